// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of boxes with at least one array.
//!
//! The other side is also an array, or memory that the worker can access, or pageable memory. The bytes of pageable
//! memory are sent beside the stream in pieces of boxes; many bytes without gaps are sent through device memory.

use std::sync::atomic::Ordering;

use gpgpu_client::transport::Data;
use gpgpu_protocol::{
    api::{Array, BoxCopy, BoxEnd, Object, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr},
    client::{Client, client},
    copy::{Order, Side, check},
    copy_rows::{planes, recorded},
    cuda,
    ffi::Result,
    graph,
    stores::pointers::Kind,
};

/// The size of a row in bytes, the number of rows, and the number of slices.
type Size = [usize; 3];

/// The kind of one side.
#[derive(Debug, Clone, Copy)]
enum End {
    /// An array, or memory that the worker can access.
    Far(BoxEnd),
    /// Pageable memory: the first byte, and the distances between rows and between slices in bytes.
    Near(HostPtr, usize, usize),
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

fn end(client: &Client, given: &Given, size: Size) -> Result<End> {
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
    let row = x.checked_add(width).ok_or(bad)?;
    let column = y.checked_add(height).ok_or(bad)?;
    let pitch = if given.pitch == 0 { row } else { given.pitch };
    let rows = if given.rows == 0 { column } else { given.rows };
    if base == 0 || row > pitch || column > rows && depth > 1 {
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
            client.disown(address);
            End::Far(BoxEnd {
                address,
                pitch,
                rows,
                ..BoxEnd::default()
            })
        }
        Side::Pageable(first) => End::Near(first, pitch, slice),
    })
}

/// Whether a side is pinned memory.
fn is_host(client: &Client, end: &BoxEnd) -> bool {
    let range = client.pointers.find_whole(end.address, 1);
    end.array == 0 && range.is_some_and(|range| matches!(range.kind, Kind::Host { .. }))
}

/// Cuts a box into pieces of at most `most` bytes: the start of each, and its size.
fn pieces([width, height, depth]: Size, most: usize) -> Vec<([usize; 3], Size)> {
    let cut = |all: usize, each: usize| {
        (0..all)
            .step_by(each.max(1))
            .map(move |at| (at, each.max(1).min(all - at)))
    };
    let mut pieces = Vec::new();
    if width > most {
        // Between elements, because no element is longer than this.
        let each = most / 16 * 16;
        for z in 0..depth {
            for y in 0..height {
                pieces.extend(cut(width, each).map(|(x, bytes)| ([x, y, z], [bytes, 1, 1])));
            }
        }
    } else if width * height > most {
        for z in 0..depth {
            let rows = cut(height, most / width);
            pieces.extend(rows.map(|(y, rows)| ([0, y, z], [width, rows, 1])));
        }
    } else {
        let slices = cut(depth, most / (width * height));
        pieces.extend(slices.map(|(z, slices)| ([0, 0, z], [width, height, slices])));
    }
    pieces
}

/// The place of a piece in an array.
fn moved(end: &BoxEnd, [x, y, z]: [usize; 3]) -> BoxEnd {
    BoxEnd {
        x: end.x + x,
        y: end.y + y,
        z: end.z + z,
        ..*end
    }
}

/// Each row of a piece in pageable memory, in order.
fn rows_of(
    (first, pitch, slice): (HostPtr, usize, usize),
    [x, y, z]: [usize; 3],
    [_, height, depth]: Size,
) -> impl Iterator<Item = HostPtr> {
    (0..depth).flat_map(move |k| {
        (0..height).map(move |j| first.add((z + k) * slice + (y + j) * pitch + x))
    })
}

/// Whether a piece of pageable memory has no gaps.
fn is_packed(pitch: usize, slice: usize, [width, height, depth]: Size) -> bool {
    (height == 1 || pitch == width) && (depth == 1 || slice == width * height)
}

/// The minimum size of pageable memory without gaps that is copied through device memory: the mover copies large data
/// faster than it can be sent beside the stream in pieces, and the GPU's part takes little time.
const STAGED: usize = 8 << 20;
/// The maximum amount of device memory for that.
const STAGE: usize = 64 << 20;

/// Calls `each` to copy a box piece by piece through device memory, whose address it gets; `false` if that does not
/// pay, or there is no memory.
fn staged(
    client: &Client,
    (size, is_packed): (Size, bool),
    order: Order,
    mut each: impl FnMut(u64, [usize; 3], Size) -> Result,
) -> Result<bool> {
    let bytes = |part: &Size| part.iter().product::<usize>();
    if !is_packed || bytes(&size) < STAGED {
        return Ok(false);
    }
    let all = pieces(size, STAGE);
    let bytesize = all.iter().map(|(_, part)| bytes(part)).max();
    let bytesize = bytesize.unwrap_or(STAGE);
    let allocate = request::cuMemAlloc_v2 {
        dptr: true,
        bytesize,
    };
    let Ok(made) = client.call(&allocate) else {
        return Ok(false);
    };
    let dptr = made.dptr;
    let copied = all
        .into_iter()
        .try_for_each(|(at, part)| each(dptr, at, part));
    // In stream order, after the copies, so no other stream is waited for.
    client.pools.any_freed.store(true, Ordering::Relaxed);
    let hStream = order.stream;
    let freed = client.call(&request::cuMemFreeAsync { dptr, hStream });
    copied.and(freed.map(|_| true))
}

/// A piece of a box in device memory, without gaps.
fn packed_end(address: u64, [width, height, _]: Size) -> BoxEnd {
    BoxEnd {
        address,
        pitch: width,
        rows: height,
        ..BoxEnd::default()
    }
}

fn between_far(
    client: &Client,
    (dst, src): (BoxEnd, BoxEnd),
    [width, height, depth]: Size,
    (hStream, synchronous): (u64, bool),
) -> Result {
    let copy = BoxCopy {
        dst,
        src,
        width,
        height,
        depth,
    };
    let request = request::gpgpuBoxCopy {
        copy,
        hStream,
        synchronous,
    };
    client.call(&request).map(drop)
}

fn send(
    client: &Client,
    to: &BoxEnd,
    from: (HostPtr, usize, usize),
    size: Size,
    order: Order,
) -> Result {
    let hStream = order.stream;
    let first = |[x, y, z]: [usize; 3]| from.0.add(z * from.2 + y * from.1 + x);
    let is_whole = is_packed(from.1, from.2, size);
    let sent = staged(client, (size, is_whole), order, |stage, at, part| {
        let request = request::gpgpuCopyIn {
            dst: stage,
            hStream,
            synchronous: false,
        };
        let bytes = first(at).bytes(part.iter().product());
        client.transfer(&request, Data::In(bytes))?;
        let ends = (moved(to, at), packed_end(stage, part));
        between_far(client, ends, part, (hStream, order.synchronous))
    })?;
    if sent {
        return Ok(());
    }
    let all = pieces(size, client.block_bytes());
    let last = all.len() - 1;
    let mut packed = Vec::new();
    for (i, (at, part)) in all.into_iter().enumerate() {
        let [width, height, depth] = part;
        let bytes = if is_packed(from.1, from.2, part) {
            first(at).bytes(width * height * depth)
        } else {
            packed.clear();
            for row in rows_of(from, at, part) {
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

fn fetch(
    client: &Client,
    to: (HostPtr, usize, usize),
    from: &BoxEnd,
    size: Size,
    order: Order,
) -> Result {
    let hStream = order.stream;
    let first = |[x, y, z]: [usize; 3]| to.0.add(z * to.2 + y * to.1 + x);
    let is_whole = is_packed(to.1, to.2, size);
    let fetched = staged(client, (size, is_whole), order, |stage, at, part| {
        let ends = (packed_end(stage, part), moved(from, at));
        between_far(client, ends, part, (hStream, false))?;
        let request = request::gpgpuCopyOut {
            src: stage,
            hStream,
        };
        let bytes = first(at).bytes_mut(part.iter().product());
        client.transfer(&request, Data::Out(bytes)).map(drop)
    })?;
    if fetched {
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
        if is_packed(to.1, to.2, part) {
            client.call_with(&request, &[], first(at).bytes_mut(bytes))?;
            continue;
        }
        packed.resize(bytes, 0);
        client.call_with(&request, &[], &mut packed)?;
        for (row, bytes) in rows_of(to, at, part).zip(packed.chunks_exact(width)) {
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
    match (end(client, &dst, size)?, end(client, &src, size)?) {
        (End::Far(dst), End::Far(src)) => {
            // Within device memory, the host does not wait for a synchronous copy.
            let waits = is_host(client, &dst) || is_host(client, &src);
            let synchronous = order.synchronous && waits;
            between_far(client, (dst, src), size, (order.stream, synchronous))
        }
        (End::Far(to), End::Near(first, pitch, slice)) => {
            send(client, &to, (first, pitch, slice), size, order)
        }
        (End::Near(first, pitch, slice), End::Far(from)) => {
            fetch(client, (first, pitch, slice), &from, size, order)
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
/// their devices by themselves.
fn between(given: InPtr<CUDA_MEMCPY3D>, order: Order) -> Result {
    let client = client()?;
    let mut copy = given.get()?;
    for context in [copy.reserved0 as u64, copy.reserved1 as u64] {
        client
            .objects
            .context(context)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    }
    (copy.reserved0, copy.reserved1) = (std::ptr::null_mut(), std::ptr::null_mut());
    graph::refuse(client, order.stream)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_08_pieces_cover_a_box_once_and_are_no_longer_than_they_may() {
        for size in [[1, 1, 1], [48, 3, 2], [100, 7, 5], [640, 1, 2], [33, 40, 1]] {
            for most in [16, 100, 300, 1 << 20] {
                let mut seen = vec![false; size.iter().product()];
                for ([x, y, z], part) in pieces(size, most) {
                    assert!(part.iter().product::<usize>() <= most);
                    for k in z..z + part[2] {
                        for j in y..y + part[1] {
                            for i in x..x + part[0] {
                                let at = (k * size[1] + j) * size[0] + i;
                                assert!(!std::mem::replace(&mut seen[at], true));
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|seen| *seen), "{size:?} {most}");
            }
        }
    }
}
