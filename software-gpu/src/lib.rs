//! A `libcuda.so.1` whose device runs PTX on the CPU.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the CUDA driver API under their own names, one file per CUDA object;
//! - [`border`]: what every one of them passes through: initialisation, current context, sticky errors, panics, pointers;
//! - [`image`]: fatbins, cubins and PTX text as modules arrive;
//! - [`context`], [`stream`], [`memory`], [`module`]: the objects themselves, found by [`handle`]s, never by address;
//! - [`ptx`] and [`exec`]: the parser and the executor.

pub mod api;
pub mod border;
pub mod config;
pub mod context;
pub mod driver;
pub mod exec;
pub mod handle;
pub mod image;
pub mod memory;
pub mod module;
pub mod ptx;
pub mod stream;
