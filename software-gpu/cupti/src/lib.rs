// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcupti.so.13` that records the activity of the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of CUPTI's activity API under their own names;
//! - [`session`]: the kinds that are enabled, and the observer of the software GPU that makes their records;
//! - [`external`]: the numbers that a thread has given to its calls;
//! - [`records`]: the records of calls and of work;
//! - [`buffers`]: the program's buffers, and their delivery;
//! - [`names`]: the names of kernels, and the numbers of the driver's functions.
//!
//! The layouts are [`gpgpu_protocol::cupti`]'s. The software GPU calls the observer by
//! [`gpgpu_protocol::software_gpu`].

pub mod api;
pub mod buffers;
pub mod external;
pub mod names;
pub mod records;
pub mod session;
