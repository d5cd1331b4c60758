// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcudart`: the CUDA runtime API, implemented on the public driver API alone. It runs on any `libcuda.so.1`:
//! NVIDIA's, this project's guest library, or the software GPU.
//!
//! The crate is a static library. The two shared libraries are linked from it with the version scripts in `link/`; see
//! `README.md`. Functions that have the same name and differ between CUDA 12 and 13 are compiled as `cudart12_…` and
//! `cudart13_…`, and the scripts give each its name.
//!
//! - [`driver`]: the table of driver functions; libcuda is opened when first needed
//! - [`context`]: which context a call runs in
//! - [`error`], [`codes`]: last error, names, strings
//! - [`registration`]: the functions that nvcc's stubs call, and the lookup of a stub's kernel
//! - [`launch`], [`memory`], [`copy`], [`mod@array`], [`texture`], [`stream`], [`event`], [`execution`], [`external`],
//!   [`graph`], [`library`], [`device`], [`properties`]: the API, by area
//! - [`unsupported`]: functions that are not implemented, but that programs need in order to start
//!
//! No code here panics, and no thread-local has a destructor: calls also come from constructors, from destructors, and
//! from threads that are being torn down.
#![allow(non_snake_case, non_upper_case_globals)]
// One macro call declares a whole area.
#![recursion_limit = "512"]

#[macro_use]
mod macros;

mod abi;
mod array;
mod codes;
mod context;
mod copy;
mod device;
mod driver;
mod error;
mod event;
mod execution;
mod external;
mod graph;
mod graphics;
mod launch;
mod library;
mod log;
mod memory;
mod node;
mod properties;
mod registration;
mod stream;
mod texture;
mod traced;
mod unsupported;

#[cfg(test)]
mod tests;
