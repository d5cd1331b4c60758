// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA's functions for graphs and for capture, under their own names.
//!
//! Each function is generic over the driver, and over whether NULL is the calling thread's own stream. All are unsafe
//! for the same reason: pointers must be NULL, or valid as CUDA's documentation of the function says.
// The sentence above covers all of them.
#![allow(clippy::missing_safety_doc)]

mod capture;
mod conditional;
mod exec;
mod generic;
mod graph;
mod memory;
mod nodes;
mod objects;

pub use capture::*;
pub use conditional::*;
pub use exec::*;
pub use generic::*;
pub use graph::*;
pub use memory::*;
pub use nodes::*;
pub use objects::*;

use gpgpu_protocol::cuda::*;

use crate::{Gpu, Result, abi::CUgraphEdgeData, store::Edge};

/// Writes a result; `CUDA_ERROR_INVALID_VALUE` for NULL.
///
/// # Safety
///
/// The pointer is NULL or valid.
unsafe fn set<T>(to: *mut T, value: T) -> Result {
    required(to)?;
    // SAFETY: not NULL, so valid.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// Writes a result, unless the pointer is NULL.
///
/// # Safety
///
/// As [`set`].
unsafe fn offer<T>(to: *mut T, value: T) {
    // SAFETY: as above.
    let _ = unsafe { set(to, value) };
}

fn required<T>(pointer: *const T) -> Result {
    if pointer.is_null() {
        Err(CUDA_ERROR_INVALID_VALUE)
    } else {
        Ok(())
    }
}

/// Reads a structure; `CUDA_ERROR_INVALID_VALUE` for NULL.
///
/// # Safety
///
/// As [`set`].
unsafe fn get<T: Copy>(from: *const T) -> Result<T> {
    required(from)?;
    // SAFETY: not NULL, so valid.
    Ok(unsafe { from.read_unaligned() })
}

/// Edges from an array of nodes and, if present, an array of the edges' data.
///
/// # Safety
///
/// The arrays are NULL or have `count` entries.
unsafe fn edges<G: Gpu>(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Result<Vec<Edge>> {
    if count > 0 {
        required(nodes)?;
    }
    let edge = |index: usize| {
        // SAFETY: within the arrays.
        let (node, data) = unsafe {
            let data = if data.is_null() {
                CUgraphEdgeData::default()
            } else {
                data.add(index).read_unaligned()
            };
            (nodes.add(index).read_unaligned(), data)
        };
        if data.reserved != [0; 5] || data.type_ > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !data.is_whole() {
            // Query it now, because the answer must be known when the graph is flattened.
            G::has_partial_edges();
        }
        Ok((node as u64, data))
    };
    (0..count).map(edge).collect()
}

/// Returns an array as CUDA's queries do. If `to` is NULL, returns the number of entries. Otherwise writes as many
/// entries as there is room for, and NULL after them.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if there is room for no entry.
///
/// # Safety
///
/// `count` is NULL or valid, and each array is NULL or has `*count` entries.
unsafe fn list<const N: usize>(
    all: &[[u64; N]],
    to: [*mut CUgraphNode; N],
    data: (*mut CUgraphEdgeData, &[CUgraphEdgeData]),
    count: *mut usize,
) -> Result {
    // SAFETY: promised by the caller.
    let room = unsafe { get(count) }?;
    if to.iter().all(|to| to.is_null()) {
        // SAFETY: as above.
        return unsafe { set(count, all.len()) };
    }
    if room == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if data.0.is_null() && data.1.iter().take(room).any(|of| !of.is_whole()) {
        return Err(CUDA_ERROR_LOSSY_QUERY);
    }
    for index in 0..room {
        for (array, to) in to.iter().enumerate() {
            let node = all.get(index).map_or(0, |nodes| nodes[array]);
            if !to.is_null() {
                // SAFETY: within the array.
                unsafe { to.add(index).write_unaligned(node as CUgraphNode) };
            }
        }
        if !data.0.is_null() {
            let of = data.1.get(index).copied().unwrap_or_default();
            // SAFETY: within the array.
            unsafe { data.0.add(index).write_unaligned(of) };
        }
    }
    // SAFETY: promised by the caller.
    unsafe { set(count, all.len().min(room)) }
}
