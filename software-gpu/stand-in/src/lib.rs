// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What the stand-ins for NVIDIA's libraries have in common: each computes on the CPU, in the streams of the software GPU.
//!
//! From the outside in:
//!
//! - [`call`]: the caller's pointers, and the way into and out of an exported function;
//! - [`objects`]: handles and the like, which are numbers that name what is set for them;
//! - [`work`]: work in a stream of the context in which an object was made;
//! - [`memory`]: vectors and matrices in device memory, which work reads and writes as a whole;
//! - [`driver`]: what is asked of the software GPU.
//!
//! A library's statuses are its own: functions here say `None`, [`call::Null`] or a code of the driver's, and the library makes of
//! it what NVIDIA's would return.

pub mod call;
pub mod driver;
pub mod memory;
pub mod objects;
#[cfg(feature = "testing")]
pub mod testing;
pub mod work;
