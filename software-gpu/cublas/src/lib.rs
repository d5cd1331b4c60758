//! A `libcublas.so.13` whose functions compute on the CPU, for the software GPU's devices.
//!
//! From the outside in:
//!
//! - [`api`]: the functions of the cuBLAS API under their own names, one file per family;
//! - [`handle`]: handles, what is set for them, and how a call becomes work in a handle's stream;
//! - [`memory`]: vectors and matrices in device memory, which work reads and writes as a whole;
//! - [`dense`] and [`number`]: the arithmetic, in ordinary Rust on what was read;
//! - [`driver`]: what is asked of the software GPU;
//! - [`types`]: NVIDIA's numbers for statuses, types and options.

pub mod api;
pub mod dense;
pub mod driver;
pub mod handle;
pub mod memory;
pub mod number;
pub mod types;
