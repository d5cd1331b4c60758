// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state: one store for each kind of object, all in the [client](crate::client).
//!
//! A store queries the host only through the connection, and does not know the functions that use it.

pub mod answers;
pub mod arrays;
pub mod blocks;
pub mod context;
pub mod freed;
pub mod function;
pub mod host;
pub mod host_parts;
pub mod host_pools;
pub mod launches;
pub mod library;
pub mod module;
pub mod objects;
pub mod occupancy;
pub mod pointers;
pub mod pools;
pub mod references;
pub mod shareable;
