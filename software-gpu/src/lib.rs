// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A `libcuda.so.1` whose device runs PTX on the CPU.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the CUDA driver API under their own names, one file per CUDA object;
//! - [`ffi`]: the border that they pass: initialisation, current context, sticky errors, panics, pointers;
//! - [`image`]: fatbins, cubins and PTX text as modules arrive;
//! - [`context`], [`stream`], [`memory`], [`module`]: the objects themselves, found by [`handle`]s, never by address;
//! - [`green`]: multiprocessors, and the green contexts that have some of them;
//! - [`graph`]: graphs and captures of `gpgpu-graphs` on this device; [`device_graph`]: launches of graphs by kernels;
//! - [`ptx`] and [`exec`]: the parser and the executor;
//! - [`observe`]: the calls and the work that the stand-in for CUPTI is told of.

pub mod api;
pub mod array;
pub mod config;
pub mod context;
pub mod device_graph;
pub mod driver;
pub mod effects;
pub mod exec;
pub mod ffi;
pub mod graph;
pub mod green;
pub mod handle;
pub mod heap;
pub mod image;
pub mod link;
pub mod memory;
pub mod module;
pub mod observe;
pub mod printed;
pub mod ptx;
pub mod reference;
mod stack;
pub mod stream;
