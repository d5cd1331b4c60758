// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the stand-ins for NVIDIA's libraries: each computes on the CPU, in the streams of the software
//! GPU.
//!
//! From the outside in:
//!
//! - [`call`]: the caller's pointers, and the way into and out of an exported function;
//! - [`objects`]: handles and similar objects, which are numbers of settings;
//! - [`work`]: work in a stream of the context in which an object was made;
//! - [`memory`]: vectors and matrices in device memory, which work reads and writes as a whole;
//! - [`driver`]: calls of the software GPU.
//!
//! A library's statuses are its own: functions here return `None`, [`call::Null`] or a code of the driver's, and the
//! library turns that into NVIDIA's status.

pub mod call;
pub mod driver;
pub mod memory;
pub mod objects;
#[cfg(feature = "testing")]
pub mod testing;
pub mod work;
