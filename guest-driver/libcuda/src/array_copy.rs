// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of boxes with at least one array.
//!
//! The other side is also an array, or memory that the worker can access, or pageable memory. The bytes of pageable
//! memory are sent through the ring, or beside the stream in pieces of boxes; many bytes without gaps are sent through
//! device memory.

use gpgpu_protocol::{
    api::{Array, BoxEnd, Object, request},
    cuda::*,
    cupti::copy_kind,
};

use crate::{
    argument::{HostPtr, InPtr},
    boxes::{self, Near, Size, moved, pieces},
    client::{Client, client},
    copy::{Order, Side, await_legacy, check, is_host, name, traced},
    copy_rows::{pitch_of, planes, recorded, slice_of},
    cuda,
    ffi::Result,
    graph,
};

/// The kind of one side.
#[derive(Debug, Clone, Copy)]
enum End {
    /// An array, or memory that the worker can access.
    Far(BoxEnd),
    /// Pageable memory.
    Near(Near),
}

/// Whether a copy is one of these.
pub fn has_array(copy: &CUDA_MEMCPY3D) -> bool {
    [copy.srcMemoryType, copy.dstMemoryType].contains(&CU_MEMORYTYPE_ARRAY)
}

/// One side as the program described it.
struct Given {
    kind: CUmemorytype,
    host: u64,
    device: u64,
    array: CUarray,
    at: [usize; 3],
    pitch: usize,
    rows: usize,
}

fn end(client: &Client, given: &Given, size: Size, stream: u64) -> Result<End> {
    let bad = CUDA_ERROR_INVALID_VALUE;
    let [x, y, z] = given.at;
    let [width, height, depth] = size;
    let base = match given.kind {
        CU_MEMORYTYPE_HOST => given.host,
        CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => given.device,
        CU_MEMORYTYPE_ARRAY => {
            let array = Array::id(given.array);
            let known = client.arrays.array(array).map_err(|_| bad)?;
            if !known.holds(given.at, size) {
                return Err(bad);
            }
            return Ok(End::Far(BoxEnd {
                array,
                x,
                y,
                z,
                ..BoxEnd::default()
            }));
        }
        _ => return Err(bad),
    };
    let pitch = pitch_of(given.pitch, x, width)?;
    let rows = slice_of(given.rows, y, height, depth)?;
    if base == 0 {
        return Err(bad);
    }
    let slice = pitch.checked_mul(rows).ok_or(bad)?;
    let reach = |z: usize, y: usize, x: usize| {
        let slices = z.checked_mul(slice)?;
        slices.checked_add(y.checked_mul(pitch)?)?.checked_add(x)
    };
    let skipped = reach(z, y, x).ok_or(bad)?;
    let bytes = reach(depth - 1, height - 1, width).ok_or(bad)?;
    let start = base.checked_add(skipped as u64).ok_or(bad)?;
    let side = match given.kind {
        CU_MEMORYTYPE_DEVICE => Side::DeviceVisible(start),
        _ => Side::host(client, start, bytes),
    };
    Ok(match side {
        Side::DeviceVisible(address) => {
            name(client, address, bytes, stream)?;
            End::Far(BoxEnd {
                address,
                pitch,
                rows,
                ..BoxEnd::default()
            })
        }
        Side::Pageable(first) => End::Near(Near {
            first,
            pitch,
            slice,
        }),
    })
}

fn send(client: &Client, to: &BoxEnd, from: Near, size: Size, order: Order) -> Result {
    if boxes::send(client, to, from, size, order)? {
        return Ok(());
    }
    let hStream = order.stream;
    let all = pieces(size, client.block_bytes());
    let last = all.len() - 1;
    let mut packed = Vec::new();
    for (i, (at, part)) in all.into_iter().enumerate() {
        let [width, height, depth] = part;
        let bytes = if from.is_packed(part) {
            from.at(at).bytes(width * height * depth)
        } else {
            packed.clear();
            for row in from.rows(at, part) {
                packed.extend_from_slice(row.bytes(width));
            }
            &packed[..]
        };
        let request = request::gpgpuBoxIn {
            to: moved(to, at),
            width,
            height,
            depth,
            hStream,
            synchronous: order.synchronous && i == last,
        };
        client.call_with(&request, bytes, &mut [])?;
    }
    Ok(())
}

fn fetch(client: &Client, to: Near, from: &BoxEnd, size: Size, order: Order) -> Result {
    let hStream = order.stream;
    if boxes::fetch(client, to, from, size, hStream)? {
        return Ok(());
    }
    let mut packed = Vec::new();
    for (at, part) in pieces(size, client.block_bytes()) {
        let [width, height, depth] = part;
        let bytes = width * height * depth;
        let request = request::gpgpuBoxOut {
            from: moved(from, at),
            width,
            height,
            depth,
            hStream,
        };
        if to.is_packed(part) {
            client.call_with(&request, &[], to.at(at).bytes_mut(bytes))?;
            continue;
        }
        packed.resize(bytes, 0);
        client.call_with(&request, &[], &mut packed)?;
        for (row, bytes) in to.rows(at, part).zip(packed.chunks_exact(width)) {
            row.store(bytes);
        }
    }
    Ok(())
}

/// Copies a box.
pub fn copy(copy: &CUDA_MEMCPY3D, order: Order) -> Result {
    let client = client()?;
    check(1, 1)?;
    let size = [copy.WidthInBytes, copy.Height, copy.Depth];
    if size.contains(&0) {
        return Ok(());
    }
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if recorded(copy, order)? {
        return Ok(());
    }
    let dst = Given {
        kind: copy.dstMemoryType,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray,
        at: [copy.dstXInBytes, copy.dstY, copy.dstZ],
        pitch: copy.dstPitch,
        rows: copy.dstHeight,
    };
    let src = Given {
        kind: copy.srcMemoryType,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray,
        at: [copy.srcXInBytes, copy.srcY, copy.srcZ],
        pitch: copy.srcPitch,
        rows: copy.srcHeight,
    };
    let end = |given| end(client, given, size, order.stream);
    match (end(&dst)?, end(&src)?) {
        (End::Far(dst), End::Far(src)) => {
            // Within device memory, the host does not wait for a synchronous copy.
            let waits = is_host(client, dst.address) || is_host(client, src.address);
            let order = Order {
                synchronous: order.synchronous && waits,
                ..order
            };
            boxes::between(client, (dst, src), size, order)
        }
        (End::Far(to), End::Near(from)) => {
            let bytes = size.iter().product();
            traced(client, copy_kind::HTOA, bytes, order, || {
                send(client, &to, from, size, order)
            })
        }
        (End::Near(to), End::Far(from)) => {
            let bytes = size.iter().product();
            traced(client, copy_kind::ATOH, bytes, order, || {
                fetch(client, to, &from, size, order)
            })
        }
        // One of the two is an array.
        (End::Near(..), End::Near(..)) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// One side of a copy of one range.
#[derive(Clone, Copy)]
enum Line {
    Array(CUarray, usize),
    Host(u64),
    Device(u64),
}

/// A copy of bytes of an array's first row.
fn line(to: Line, from: Line, bytes: usize, order: Order) -> Result {
    let nothing = std::ptr::null_mut();
    let place = |line: Line| match line {
        Line::Array(array, offset) => (CU_MEMORYTYPE_ARRAY, 0, array, offset),
        Line::Host(address) => (CU_MEMORYTYPE_HOST, address, nothing, 0),
        Line::Device(address) => (CU_MEMORYTYPE_DEVICE, address, nothing, 0),
    };
    let (dstMemoryType, to, dstArray, dstXInBytes) = place(to);
    let (srcMemoryType, from, srcArray, srcXInBytes) = place(from);
    let row = CUDA_MEMCPY3D {
        srcXInBytes,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType,
        srcHost: from as *const _,
        srcDevice: from,
        srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: 0,
        srcHeight: 0,
        dstXInBytes,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType,
        dstHost: to as *mut _,
        dstDevice: to,
        dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: 0,
        dstHeight: 0,
        WidthInBytes: bytes,
        Height: 1,
        Depth: 1,
    };
    copy(&row, order)
}

/// `cuMemcpy3DPeer`: its structure has the contexts in reserved fields of the other. Addresses and arrays determine
/// their devices by themselves. A synchronous copy comes after all work that both contexts' legacy streams wait for.
fn between(given: InPtr<CUDA_MEMCPY3D>, order: Order) -> Result {
    let client = client()?;
    let mut copy = given.get()?;
    let ends = [copy.reserved0 as u64, copy.reserved1 as u64];
    for context in ends {
        client
            .objects
            .context(context)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    }
    (copy.reserved0, copy.reserved1) = (std::ptr::null_mut(), std::ptr::null_mut());
    graph::refuse(client, order.stream)?;
    if order.synchronous {
        for context in ends {
            await_legacy(client, context)?;
        }
    }
    planes(copy, order)
}

cuda! {
    fn cuMemcpyHtoA_v2(dstArray: CUarray, dstOffset: usize, srcHost: HostPtr, ByteCount: usize) {
        line(Line::Array(dstArray, dstOffset), Line::Host(srcHost.address()), ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyHtoA_v2_ptds(dstArray: CUarray, dstOffset: usize, srcHost: HostPtr, ByteCount: usize) {
        line(Line::Array(dstArray, dstOffset), Line::Host(srcHost.address()), ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyHtoAAsync_v2(dstArray: CUarray, dstOffset: usize, srcHost: HostPtr, ByteCount: usize, hStream: CUstream) {
        line(Line::Array(dstArray, dstOffset), Line::Host(srcHost.address()), ByteCount, Order::on(hStream)?)
    }
    fn cuMemcpyHtoAAsync_v2_ptsz(dstArray: CUarray, dstOffset: usize, srcHost: HostPtr, ByteCount: usize, hStream: CUstream) {
        line(Line::Array(dstArray, dstOffset), Line::Host(srcHost.address()), ByteCount, Order::on_per_thread(hStream)?)
    }
    fn cuMemcpyAtoH_v2(dstHost: HostPtr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        line(Line::Host(dstHost.address()), Line::Array(srcArray, srcOffset), ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyAtoH_v2_ptds(dstHost: HostPtr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        line(Line::Host(dstHost.address()), Line::Array(srcArray, srcOffset), ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyAtoHAsync_v2(dstHost: HostPtr, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream) {
        line(Line::Host(dstHost.address()), Line::Array(srcArray, srcOffset), ByteCount, Order::on(hStream)?)
    }
    fn cuMemcpyAtoHAsync_v2_ptsz(dstHost: HostPtr, srcArray: CUarray, srcOffset: usize, ByteCount: usize, hStream: CUstream) {
        line(Line::Host(dstHost.address()), Line::Array(srcArray, srcOffset), ByteCount, Order::on_per_thread(hStream)?)
    }
    fn cuMemcpyDtoA_v2(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) {
        line(Line::Array(dstArray, dstOffset), Line::Device(srcDevice), ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyDtoA_v2_ptds(dstArray: CUarray, dstOffset: usize, srcDevice: CUdeviceptr, ByteCount: usize) {
        line(Line::Array(dstArray, dstOffset), Line::Device(srcDevice), ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyAtoD_v2(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        line(Line::Device(dstDevice), Line::Array(srcArray, srcOffset), ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyAtoD_v2_ptds(dstDevice: CUdeviceptr, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        line(Line::Device(dstDevice), Line::Array(srcArray, srcOffset), ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyAtoA_v2(dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        line(Line::Array(dstArray, dstOffset), Line::Array(srcArray, srcOffset), ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyAtoA_v2_ptds(dstArray: CUarray, dstOffset: usize, srcArray: CUarray, srcOffset: usize, ByteCount: usize) {
        line(Line::Array(dstArray, dstOffset), Line::Array(srcArray, srcOffset), ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpy3DPeer(pCopy: InPtr<CUDA_MEMCPY3D>) {
        between(pCopy, Order::synchronous()?)
    }
    fn cuMemcpy3DPeer_ptds(pCopy: InPtr<CUDA_MEMCPY3D>) {
        between(pCopy, Order::synchronous_per_thread()?)
    }
    fn cuMemcpy3DPeerAsync(pCopy: InPtr<CUDA_MEMCPY3D>, hStream: CUstream) {
        between(pCopy, Order::on(hStream)?)
    }
    fn cuMemcpy3DPeerAsync_ptsz(pCopy: InPtr<CUDA_MEMCPY3D>, hStream: CUstream) {
        between(pCopy, Order::on_per_thread(hStream)?)
    }
}
