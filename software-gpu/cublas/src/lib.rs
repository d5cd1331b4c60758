// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcublas.so.13` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuBLAS API under their own names, one file per family;
//! - [`lt`]: the functions of the cuBLASLt API: `libcublasLt.so.13` is this library by another name;
//! - [`handle`]: handles, their settings, and how a call becomes work in a handle's stream;
//! - [`dense`] and [`number`]: the arithmetic, in ordinary Rust on copies of the operands;
//! - [`types`]: NVIDIA's numbers for statuses, types and options.
//!
//! Device memory, streams and the driver are [`gpgpu_stand_in`]'s.

pub mod api;
pub mod dense;
pub mod handle;
pub mod lt;
pub mod number;
pub mod types;
