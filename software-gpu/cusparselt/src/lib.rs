// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcusparseLt.so.0` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuSPARSELt API under their own names, one file per family;
//! - [`handle`]: handles, and how a call becomes work in a stream;
//! - [`structures`]: the content of programs' structures;
//! - [`product`]: products, and computing them;
//! - [`sparsity`]: pruning, its check, compression, and decompression;
//! - [`types`]: NVIDIA's numbers for statuses, types and options.
//!
//! [`gpgpu_stand_in`] is the common part of all stand-ins.

pub mod api;
pub mod handle;
pub mod product;
pub mod sparsity;
pub mod structures;
pub mod types;
