// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The CUDA driver API, one file per object, every function under CUDA's own name.
//!
//! If cuda.h gives a function versions or variants for the per-thread default stream, each is exported: the name
//! without a suffix is CUDA's first version if its ABI still is the same.
#![allow(non_snake_case)]
// CUDA's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

pub mod array;
pub mod array_copy;
pub mod context;
pub mod copy;
pub mod copy2d;
pub mod copy3d;
pub mod copy_batch;
pub mod device;
pub mod error;
pub mod event;
pub mod function;
pub mod graph;
pub mod green;
pub mod host_memory;
pub mod init;
pub mod kernel;
pub mod launch;
pub mod library;
pub mod library_work;
pub mod link;
pub mod memory;
pub mod memset;
pub mod module;
pub mod occupancy;
pub mod pointer;
pub mod pool;
pub mod primary_context;
pub mod proc_address;
pub mod stream;
pub mod stream_attribute;
pub mod stream_memory;
pub mod tensor_map;
pub mod texture;
pub mod texture_reference;
pub mod virtual_memory;
