// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcusparseLt.so.0` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuSPARSELt API under their own names, one file per family;
//! - [`handle`]: handles, and how a call becomes work in a stream;
//! - [`structures`]: what programs' structures hold;
//! - [`product`]: what a product is, and computing it;
//! - [`sparsity`]: pruning, its check, compression, and what was compressed as a matrix again;
//! - [`types`]: NVIDIA's numbers for statuses, types and options.
//!
//! What all stand-ins have in common is [`gpgpu_stand_in`].

pub mod api;
pub mod handle;
pub mod product;
pub mod sparsity;
pub mod structures;
pub mod types;
