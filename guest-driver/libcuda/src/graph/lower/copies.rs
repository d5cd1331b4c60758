// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The sides of copies in graphs: memory that the worker can access, and pageable memory, for which this process makes
//! a pinned copy.

use std::sync::Arc;

use gpgpu_graphs::node::{Copy3D, Fill, MemOps};
use gpgpu_protocol::{
    api::{BoxEnd, GraphStep, Request, request},
    cuda::*,
};

use super::steps::{call_step, copy_step, fill_step, words_step};
use crate::{
    argument::HostPtr,
    client::Client,
    ffi::Result,
    graph::{calls::Call, left},
    pinned,
};

/// One side of a copy: its first byte, the distance between rows in bytes, and the distance between slices in rows.
type End = (u64, usize, usize);

/// A side in memory of the worker.
fn at((address, pitch, rows): End) -> BoxEnd {
    BoxEnd {
        address,
        pitch,
        rows,
        ..BoxEnd::default()
    }
}

/// The address at which the worker accesses memory; `None` for pageable memory.
fn far(client: &Client, kind: CUmemorytype, address: u64, bytes: usize) -> Option<u64> {
    match client.pointers.find_whole(address, bytes) {
        Some(range) if address.wrapping_sub(range.start) < range.bytes => Some(range.far(address)),
        Some(_) => Some(address),
        None if kind == CU_MEMORYTYPE_DEVICE => Some(address),
        None => None,
    }
}

/// Both sides of a copy as the worker accesses them; `None` for pageable memory.
fn ends(client: &Client, copy: &Copy3D) -> Result<(Option<BoxEnd>, Option<BoxEnd>)> {
    let of = &copy.given;
    let in_array = |array, [x, y, z]: [usize; 3]| {
        Some(BoxEnd {
            array,
            x,
            y,
            z,
            ..BoxEnd::default()
        })
    };
    let dst = match copy.dst_array {
        0 => far(client, of.dstMemoryType, copy.dst, copy.dst_extent()?)
            .map(|address| at((address, copy.dst_pitch, copy.dst_height))),
        array => in_array(array, [of.dstXInBytes, of.dstY, of.dstZ]),
    };
    let src = match copy.src_array {
        0 => far(client, of.srcMemoryType, copy.src, copy.src_extent()?)
            .map(|address| at((address, copy.src_pitch, copy.src_height))),
        array => in_array(array, [of.srcXInBytes, of.srcY, of.srcZ]),
    };
    Ok((dst, src))
}

/// Whether one side of a copy is in pageable memory.
pub fn is_near(client: &Client, copy: &Copy3D) -> Result<bool> {
    ends(client, copy).map(|(dst, src)| dst.is_none() || src.is_none())
}

/// Whether the process knows that a side is valid.
fn is_known(
    client: &Client,
    copy: &Copy3D,
    end: Option<BoxEnd>,
    memory: (u64, usize),
) -> Result<bool> {
    match end {
        None => Ok(true),
        Some(end) if end.array != 0 => {
            let size = [copy.width, copy.height, copy.depth];
            let array = client.arrays.array(end.array);
            match array.is_ok_and(|array| array.holds([end.x, end.y, end.z], size)) {
                true if client.has(request::gpgpuModuleReference::OP) => Ok(true),
                true => Err(CUDA_ERROR_NOT_SUPPORTED),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
        Some(_) => Ok(client.pointers.find_whole(memory.0, memory.1).is_some()),
    }
}

/// Checks a copy. The host checks memory that the process does not know.
pub fn check_copy(client: &Client, copy: &Copy3D) -> Result {
    for (array, address, extent) in [
        (copy.dst_array, copy.dst, copy.dst_extent()),
        (copy.src_array, copy.src, copy.src_extent()),
    ] {
        if array == 0 && client.pointers.overruns(address, extent?) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    let (dst, src) = ends(client, copy)?;
    let to = is_known(client, copy, dst, (copy.dst, copy.dst_extent()?))?;
    let from = is_known(client, copy, src, (copy.src, copy.src_extent()?))?;
    if to && from {
        return Ok(());
    }
    for (array, address) in [(copy.dst_array, copy.dst), (copy.src_array, copy.src)] {
        if array == 0 {
            client.disown(address);
        }
    }
    // The pageable side is checked as if it were the other one, which is known to be valid or checked here.
    let (Some(to), Some(from)) = (dst.or(src), src.or(dst)) else {
        return Ok(());
    };
    let step = copy_step(copy, to, from);
    client.call(&request::gpgpuGraphCheck { step }).map(drop)
}

/// Checks that memory can be filled.
pub fn check_fill(client: &Client, fill: &Fill) -> Result {
    if client
        .pointers
        .find_whole(fill.given.dst, fill.extent()?)
        .is_some()
    {
        return Ok(());
    }
    if client.pointers.overruns(fill.given.dst, fill.extent()?) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    client.disown(fill.given.dst);
    let step = fill_step(fill);
    client.call(&request::gpgpuGraphCheck { step }).map(drop)
}

/// Checks memory operations, by asking the host.
pub fn check_mem_ops(client: &Client, of: &MemOps) -> Result {
    // Hosts that have this operation support such steps.
    client.require(request::gpgpuMemOps::OPERATION)?;
    let step = words_step(client, of);
    client.call(&request::gpgpuGraphCheck { step }).map(drop)
}

/// Pinned memory for a copy from or to pageable memory.
struct Shadow {
    address: u64,
}

impl Shadow {
    fn new(copy: &Copy3D) -> Result<Arc<Self>> {
        let rows = copy.height.checked_mul(copy.depth);
        let bytes = rows.and_then(|rows| rows.checked_mul(copy.width));
        let address = pinned::allocate(bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?, 0)? as u64;
        Ok(Arc::new(Self { address }))
    }

    /// Copies between it, where rows are stored without gaps, and the program's memory.
    fn copy(&self, copy: &Copy3D, near: End, outward: bool) {
        for z in 0..copy.depth {
            for y in 0..copy.height {
                let row = z * copy.height + y;
                let own = HostPtr::at(self.address).add(row * copy.width);
                let of = HostPtr::at(near.0).add((z * near.2 + y) * near.1);
                if outward {
                    of.store(own.bytes(copy.width));
                } else {
                    own.store(of.bytes(copy.width));
                }
            }
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if let Ok(client) = crate::client::client() {
            left::leave(client, self.address);
        }
    }
}

/// Appends the steps of a copy. A disabled one has the same steps, which do nothing, so that it can be enabled in place.
pub fn copy(
    client: &Client,
    copy: &Copy3D,
    enabled: bool,
    after: Vec<u32>,
    list: &mut Vec<GraphStep>,
    calls: &mut Vec<Call>,
) -> Result {
    let copy = *copy;
    let to = (copy.dst, copy.dst_pitch, copy.dst_height);
    let from = (copy.src, copy.src_pitch, copy.src_height);
    let packed = |address| at((address, copy.width, copy.height));
    let behind = |list: &Vec<GraphStep>| vec![list.len() as u32 - 1];
    match ends(client, &copy)? {
        (Some(dst), Some(src)) => {
            let step = copy_step(&copy, dst, src);
            list.push(GraphStep {
                after,
                enabled,
                ..step
            });
        }
        (Some(dst), None) => {
            let shadow = Shadow::new(&copy)?;
            let address = shadow.address;
            let call = Call::new(client, move || {
                if enabled {
                    shadow.copy(&copy, from, false);
                }
            });
            list.push(call_step(after, &call));
            calls.push(call);
            let step = copy_step(&copy, dst, packed(address));
            let after = behind(list);
            list.push(GraphStep {
                after,
                enabled,
                ..step
            });
        }
        (None, Some(src)) => {
            let shadow = Shadow::new(&copy)?;
            let step = copy_step(&copy, packed(shadow.address), src);
            list.push(GraphStep {
                after,
                enabled,
                ..step
            });
            let call = Call::new(client, move || {
                if enabled {
                    shadow.copy(&copy, to, true);
                }
            });
            list.push(call_step(behind(list), &call));
            calls.push(call);
        }
        (None, None) => {
            let call = Call::new(client, move || {
                let slices = if enabled { copy.depth } else { 0 };
                for z in 0..slices {
                    for y in 0..copy.height {
                        let at = |end: End| HostPtr::at(end.0).add((z * end.2 + y) * end.1);
                        at(to).store(at(from).bytes(copy.width));
                    }
                }
            });
            list.push(call_step(after, &call));
            calls.push(call);
        }
    }
    Ok(())
}
