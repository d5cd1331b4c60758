// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcusparse.so.12` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuSPARSE API under their own names, one file per family;
//! - [`handle`]: handles, and how a call becomes work in a handle's stream;
//! - [`descriptors`]: vectors and matrices as programs describe them, and as work reads and writes them;
//! - [`types`]: NVIDIA's numbers for statuses, types and options.
//!
//! [`gpgpu_stand_in`] is the common part of all stand-ins.

pub mod api;
pub mod descriptors;
pub mod handle;
pub mod types;
