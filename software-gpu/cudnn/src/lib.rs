// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcudnn.so.9` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuDNN API under their own names, one file per family;
//! - [`handle`]: handles, and how a call becomes work in a handle's stream;
//! - [`graph`]: the backend's descriptors, from tensors to variant packs;
//! - [`tensor`]: where a tensor's elements are, and the memory that holds them;
//! - [`compute`]: the arithmetic, in ordinary Rust on copies of the operands;
//! - [`types`]: NVIDIA's numbers for statuses and types.
//!
//! Device memory, streams and the driver are [`gpgpu_stand_in`]'s.

pub mod api;
pub mod compute;
pub mod graph;
pub mod handle;
pub mod tensor;
mod text;
pub mod types;
