// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA graphs and stream capture: the part that needs no GPU.
//!
//! A graph is a description: nodes, edges and parameters. Capture, manual construction, queries, changes and clones
//! concern only the program. So the guest's library implements them in the program's own process, with this crate, and
//! the host learns of a graph when it is instantiated. The software GPU uses the same code, as a driver would.
//!
//! [`api`] has the functions that CUDA exports, under their own names, for any [`Gpu`]. They use [`store`] (graphs and
//! their nodes), [`capture`] (captured streams), [`exec`] (executable graphs) and [`update`]. Each library makes its
//! exported symbols from the rows with the word `graph` in the list of the driver API.
#![allow(non_snake_case)]
// CUDA's functions have this many arguments.
#![allow(clippy::too_many_arguments)]

pub mod abi;
pub mod api;
pub mod capture;
pub mod conditional;
mod dot;
mod edges;
pub mod exec;
mod gpu;
pub mod node;
pub mod objects;
pub mod store;
#[cfg(test)]
mod tests;
pub mod updatable;
pub mod update;

pub use gpu::{Gpu, Signature, Stream};

use gpgpu_protocol::cuda::CUresult;

/// The result of a function of the API: CUDA's code is the error.
pub type Result<T = ()> = std::result::Result<T, CUresult>;
