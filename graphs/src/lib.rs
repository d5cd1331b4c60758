// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA graphs and stream capture: what of them needs no GPU.
//!
//! A graph is a description: nodes, edges and parameters. Recording one, by capture or by hand, asking about it, changing it and
//! cloning it concern nobody but the program. So the guest's library does all of that in the program's own process, with this crate,
//! and the host hears of a graph when it is instantiated. The software GPU does the same with the same code, as a driver would.
//!
//! The functions that CUDA exports are in [`api`], under their own names, for any [`Gpu`]. What they do is in [`store`] (graphs and
//! their nodes), [`capture`] (streams that record), [`exec`] (what was instantiated) and [`update`]. Each library makes its
//! exported symbols from the rows of the list of the driver API that say `graph`.
#![allow(non_snake_case)]
// CUDA's functions have as many arguments as they have.
#![allow(clippy::too_many_arguments)]

pub mod abi;
pub mod api;
pub mod capture;
pub mod conditional;
mod dot;
pub mod exec;
mod gpu;
pub mod node;
pub mod objects;
pub mod store;
#[cfg(test)]
mod tests;
pub mod update;

pub use gpu::{Gpu, Signature, Stream};

use gpgpu_protocol::cuda::CUresult;

/// What a function of the API answers: CUDA's code is the error.
pub type Result<T = ()> = std::result::Result<T, CUresult>;
