// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The operations whose worker side is written by hand, one file for each kind of object.
//!
//! Each function has the name of its entry in the API table.

mod array;
pub mod box_copy;
mod callback;
mod client;
mod context;
mod copy;
mod device;
mod fill;
mod function;
mod graph;
mod green;
pub mod image;
mod ipc;
mod launch;
mod library;
pub mod link;
pub mod memop;
mod memory;
mod memory_pool;
mod module;
mod printed;
mod ring;
mod stream;
mod tensor_map;
mod texture;
mod texture_reference;
mod trace;
mod usage;
mod virtual_memory;

pub use array::*;
pub use box_copy::*;
pub use callback::*;
pub use client::*;
pub use context::*;
pub use copy::*;
pub use device::*;
pub use fill::*;
pub use function::*;
pub use graph::*;
pub use green::*;
pub use ipc::*;
pub use launch::*;
pub use library::*;
pub use link::*;
pub use memop::*;
pub use memory::*;
pub use memory_pool::*;
pub use module::*;
pub use printed::*;
pub use ring::*;
pub use stream::*;
pub use tensor_map::*;
pub use texture::*;
pub use texture_reference::*;
pub use trace::*;
pub use usage::*;
pub use virtual_memory::*;
