// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcurand.so.10` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuRAND API under their own names;
//! - [`generator`]: generators, their settings, and how a call becomes work in a generator's stream;
//! - [`numbers`]: sequences and distributions, in ordinary Rust;
//! - [`types`]: NVIDIA's numbers for statuses.
//!
//! Device memory, streams and the driver are [`gpgpu_stand_in`]'s. The numbers are not NVIDIA's: each type of generator
//! has a sequence of this library's own.

pub mod api;
pub mod generator;
pub mod numbers;
pub mod types;
