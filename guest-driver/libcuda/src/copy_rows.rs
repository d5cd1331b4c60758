// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of rows and of boxes between memory; those of arrays are [elsewhere](crate::array_copy).

use gpgpu_graphs::{capture, node::Copy3D};
use gpgpu_protocol::{
    api::{Copy2D, request},
    cuda::*,
};

use crate::{
    argument::InPtr,
    array_copy,
    client::{Client, client},
    copy::{Order, Side, blocks, check, copy, synchronise},
    cuda,
    ffi::Result,
    graph::{self, Guest},
    managed,
};

/// One side of a two-dimensional copy, its first byte and its pitch.
#[derive(Debug, Clone, Copy)]
struct Plane {
    side: Side,
    pitch: usize,
}

impl Plane {
    fn new(
        client: &Client,
        kind: CUmemorytype,
        (host, device): (u64, u64),
        (x, y, pitch): (usize, usize, usize),
        (width, height): (usize, usize),
    ) -> Result<Self> {
        let base = match kind {
            CU_MEMORYTYPE_HOST => host,
            CU_MEMORYTYPE_DEVICE | CU_MEMORYTYPE_UNIFIED => device,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        let pitch = if pitch == 0 { x + width } else { pitch };
        if x.checked_add(width).is_none_or(|end| end > pitch) && height > 1 || base == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let overflow = CUDA_ERROR_INVALID_VALUE;
        let skipped = y
            .checked_mul(pitch)
            .and_then(|bytes| bytes.checked_add(x))
            .ok_or(overflow)?;
        let bytes = (height - 1)
            .checked_mul(pitch)
            .and_then(|bytes| bytes.checked_add(width))
            .ok_or(overflow)?;
        let start = base.checked_add(skipped as u64).ok_or(overflow)?;
        let side = if kind == CU_MEMORYTYPE_DEVICE {
            Side::DeviceVisible(start)
        } else {
            Side::host(client, start, bytes)
        };
        Ok(Self { side, pitch })
    }
}

/// A three-dimensional copy is as many two-dimensional ones as it is deep.
pub fn planes(copy: CUDA_MEMCPY3D, order: Order) -> Result {
    client()?;
    check(1, 1)?;
    if array_copy::has_array(&copy) {
        return array_copy::copy(&copy, order);
    }
    if copy.WidthInBytes == 0 || copy.Height == 0 {
        return Ok(());
    }
    if copy.srcLOD != 0 || copy.dstLOD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    if recorded(&copy, order)? {
        return Ok(());
    }
    for z in 0..copy.Depth {
        let row = |first: usize, plane: usize, height: usize| {
            let skipped = plane
                .checked_add(z)
                .and_then(|plane| plane.checked_mul(height));
            skipped
                .and_then(|rows| rows.checked_add(first))
                .ok_or(CUDA_ERROR_INVALID_VALUE)
        };
        let plane = CUDA_MEMCPY2D {
            srcXInBytes: copy.srcXInBytes,
            srcY: row(copy.srcY, copy.srcZ, copy.srcHeight)?,
            srcMemoryType: copy.srcMemoryType,
            srcHost: copy.srcHost,
            srcDevice: copy.srcDevice,
            srcArray: copy.srcArray,
            srcPitch: copy.srcPitch,
            dstXInBytes: copy.dstXInBytes,
            dstY: row(copy.dstY, copy.dstZ, copy.dstHeight)?,
            dstMemoryType: copy.dstMemoryType,
            dstHost: copy.dstHost,
            dstDevice: copy.dstDevice,
            dstArray: copy.dstArray,
            dstPitch: copy.dstPitch,
            WidthInBytes: copy.WidthInBytes,
            Height: copy.Height,
        };
        rows(plane, order)?;
    }
    Ok(())
}

/// Makes a copy a node, if its stream records.
pub fn recorded(copy: &CUDA_MEMCPY3D, order: Order) -> Result<bool> {
    if !capture::any::<Guest>() {
        return Ok(false);
    }
    let client = client()?;
    if order.synchronous {
        return graph::refuse(client, order.stream).map(|()| false);
    }
    graph::record(client, order.stream, |stream| {
        graph::copy(client, Copy3D::new(copy, stream.context)?)
    })
}

/// A copy of rows as one of a slice.
fn deepened(copy: &CUDA_MEMCPY2D) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        reserved0: std::ptr::null_mut(),
        srcPitch: copy.srcPitch,
        srcHeight: copy.srcY.saturating_add(copy.Height),
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        reserved1: std::ptr::null_mut(),
        dstPitch: copy.dstPitch,
        dstHeight: copy.dstY.saturating_add(copy.Height),
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
    }
}

fn rows(copy2d: CUDA_MEMCPY2D, order: Order) -> Result {
    let client = client()?;
    check(1, 1)?;
    let whole = deepened(&copy2d);
    if array_copy::has_array(&whole) {
        return array_copy::copy(&whole, order);
    }
    let (width, height) = (copy2d.WidthInBytes, copy2d.Height);
    if width == 0 || height == 0 || recorded(&whole, order)? {
        return Ok(());
    }
    let extent = (width, height);
    let dst = Plane::new(
        client,
        copy2d.dstMemoryType,
        (copy2d.dstHost as u64, copy2d.dstDevice),
        (copy2d.dstXInBytes, copy2d.dstY, copy2d.dstPitch),
        extent,
    )?;
    let src = Plane::new(
        client,
        copy2d.srcMemoryType,
        (copy2d.srcHost as u64, copy2d.srcDevice),
        (copy2d.srcXInBytes, copy2d.srcY, copy2d.srcPitch),
        extent,
    )?;
    let Order {
        stream: hStream,
        synchronous,
    } = order;
    for plane in [dst, src] {
        if let Side::DeviceVisible(start) = plane.side {
            let bytes = plane.pitch.saturating_mul(height - 1).saturating_add(width);
            managed::names(client, start, bytes, hStream);
        }
    }
    match (dst.side, src.side) {
        (Side::DeviceVisible(to), Side::DeviceVisible(from)) => {
            let copy = Copy2D {
                dst: to,
                dst_pitch: dst.pitch,
                src: from,
                src_pitch: src.pitch,
                width,
                height,
            };
            client
                .call(&request::gpgpuCopy2D {
                    copy,
                    hStream,
                    synchronous,
                })
                .map(drop)
        }
        // Rows longer than a block go one by one.
        _ if width > client.block_bytes() => {
            for row in 0..height {
                copy_row(dst, src, row, width, order)?;
            }
            Ok(())
        }
        (Side::DeviceVisible(to), Side::Pageable(from)) => {
            let mut packed = Vec::new();
            for (row, count) in blocks(height, client.block_bytes() / width) {
                packed.clear();
                for y in row..row + count {
                    packed.extend_from_slice(from.add(y * src.pitch).bytes(width));
                }
                let dst_row = to + (row * dst.pitch) as u64;
                let request = request::gpgpuCopyIn2D {
                    dst: dst_row,
                    pitch: dst.pitch,
                    width,
                    height: count,
                    hStream,
                    synchronous,
                };
                client.call_with(&request, &packed, &mut [])?;
            }
            Ok(())
        }
        (Side::Pageable(to), Side::DeviceVisible(from)) => {
            let mut packed = vec![0; client.block_bytes().min(width * height)];
            for (row, count) in blocks(height, client.block_bytes() / width) {
                let src_row = from + (row * src.pitch) as u64;
                let packed = &mut packed[..count * width];
                let request = request::gpgpuCopyOut2D {
                    src: src_row,
                    pitch: src.pitch,
                    width,
                    height: count,
                    hStream,
                };
                client.call_with(&request, &[], packed)?;
                for (i, bytes) in packed.chunks_exact(width).enumerate() {
                    to.add((row + i) * dst.pitch).store(bytes);
                }
            }
            Ok(())
        }
        (Side::Pageable(_), Side::Pageable(_)) => {
            synchronise(client, hStream)?;
            for row in 0..height {
                copy_row(
                    dst,
                    src,
                    row,
                    width,
                    Order {
                        synchronous: true,
                        ..order
                    },
                )?;
            }
            Ok(())
        }
    }
}

fn copy_row(dst: Plane, src: Plane, row: usize, width: usize, order: Order) -> Result {
    let at = |plane: Plane| match plane.side {
        Side::DeviceVisible(start) => Side::DeviceVisible(start + (row * plane.pitch) as u64),
        Side::Pageable(start) => Side::Pageable(start.add(row * plane.pitch)),
    };
    let whole = (CU_MEMORYTYPE_UNIFIED, 0);
    copy(at(dst), at(src), width, (whole, whole), order)
}

cuda! {
    fn cuMemcpy2D_v2(pCopy: InPtr<CUDA_MEMCPY2D>) {
        rows(pCopy.get()?, Order::synchronous()?)
    }
    fn cuMemcpy2D_v2_ptds(pCopy: InPtr<CUDA_MEMCPY2D>) {
        rows(pCopy.get()?, Order::synchronous_per_thread()?)
    }
    fn cuMemcpy2DUnaligned_v2(pCopy: InPtr<CUDA_MEMCPY2D>) {
        rows(pCopy.get()?, Order::synchronous()?)
    }
    fn cuMemcpy2DUnaligned_v2_ptds(pCopy: InPtr<CUDA_MEMCPY2D>) {
        rows(pCopy.get()?, Order::synchronous_per_thread()?)
    }
    fn cuMemcpy2DAsync_v2(pCopy: InPtr<CUDA_MEMCPY2D>, hStream: CUstream) {
        rows(pCopy.get()?, Order::on(hStream)?)
    }
    fn cuMemcpy2DAsync_v2_ptsz(pCopy: InPtr<CUDA_MEMCPY2D>, hStream: CUstream) {
        rows(pCopy.get()?, Order::on_per_thread(hStream)?)
    }
    fn cuMemcpy3D_v2(pCopy: InPtr<CUDA_MEMCPY3D>) {
        planes(pCopy.get()?, Order::synchronous()?)
    }
    fn cuMemcpy3D_v2_ptds(pCopy: InPtr<CUDA_MEMCPY3D>) {
        planes(pCopy.get()?, Order::synchronous_per_thread()?)
    }
    fn cuMemcpy3DAsync_v2(pCopy: InPtr<CUDA_MEMCPY3D>, hStream: CUstream) {
        planes(pCopy.get()?, Order::on(hStream)?)
    }
    fn cuMemcpy3DAsync_v2_ptsz(pCopy: InPtr<CUDA_MEMCPY3D>, hStream: CUstream) {
        planes(pCopy.get()?, Order::on_per_thread(hStream)?)
    }
}
