// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcufft.so.12` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuFFT API under their own names;
//! - [`plan`]: plans, their settings, and how a call becomes work in a plan's stream;
//! - [`layout`]: where the elements of a transform's data are;
//! - [`transform`]: the arithmetic, in ordinary Rust on copies of the operands;
//! - [`types`]: NVIDIA's numbers for statuses and types.
//!
//! Device memory, streams and the driver are [`gpgpu_stand_in`]'s.

pub mod api;
pub mod layout;
pub mod plan;
pub mod transform;
pub mod types;
