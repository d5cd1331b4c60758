// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of rows and of boxes between memory. [`crate::array_copy`] has those of arrays.

use gpgpu_graphs::{capture, node::Copy3D};
use gpgpu_protocol::{
    api::{BoxEnd, request},
    cuda::*,
    cupti::copy_kind,
};

use crate::{
    argument::{HostPtr, InPtr},
    array_copy,
    boxes::{self, Near, Size},
    client::{Client, client},
    copy::{Order, Side, blocks, check, copy, name, synchronise, traced, within_host},
    cuda,
    ffi::Result,
    graph::{self, Guest},
};

/// The distance between rows that begin `x` bytes after it and have `width` bytes. Without a given one the rows follow
/// each other.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if it is shorter than that.
pub fn pitch_of(given: usize, x: usize, width: usize) -> Result<usize> {
    match (given, x.checked_add(width)) {
        (0, Some(row)) => Ok(row),
        (pitch, Some(row)) if row <= pitch => Ok(pitch),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The number of rows from one of `depth` slices to the next, of which `height` are copied from row `y` on. Without a
/// given one the slices follow each other.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if several slices have fewer rows than that.
pub fn slice_of(given: usize, y: usize, height: usize, depth: usize) -> Result<usize> {
    match (given, y.checked_add(height)) {
        (0, Some(rows)) => Ok(rows),
        (slice, Some(rows)) if rows <= slice || depth <= 1 => Ok(slice),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

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
        let overflow = CUDA_ERROR_INVALID_VALUE;
        let pitch = pitch_of(pitch, x, width)?;
        if base == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
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

/// Executes a three-dimensional copy as one two-dimensional copy for each slice.
pub fn planes(copy: CUDA_MEMCPY3D, order: Order) -> Result {
    client()?;
    check(1, 1)?;
    if array_copy::has_array(&copy) {
        return array_copy::copy(&copy, order);
    }
    if copy.WidthInBytes == 0 || copy.Height == 0 {
        return Ok(());
    }
    let from_height = slice_of(copy.srcHeight, copy.srcY, copy.Height, copy.Depth)?;
    let to_height = slice_of(copy.dstHeight, copy.dstY, copy.Height, copy.Depth)?;
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
            srcY: row(copy.srcY, copy.srcZ, from_height)?,
            srcMemoryType: copy.srcMemoryType,
            srcHost: copy.srcHost,
            srcDevice: copy.srcDevice,
            srcArray: copy.srcArray,
            srcPitch: copy.srcPitch,
            dstXInBytes: copy.dstXInBytes,
            dstY: row(copy.dstY, copy.dstZ, to_height)?,
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

/// Adds a copy as a node, if its stream is captured.
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

/// A copy of rows as a copy of one slice.
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
    if copy2d.WidthInBytes == 0 || copy2d.Height == 0 || recorded(&whole, order)? {
        return Ok(());
    }
    Rows::new(client, &copy2d, order)?.copy(client)
}

/// A copy of rows between two sides without arrays.
struct Rows {
    dst: Plane,
    src: Plane,
    width: usize,
    height: usize,
    order: Order,
}

impl Rows {
    fn new(client: &Client, copy: &CUDA_MEMCPY2D, order: Order) -> Result<Self> {
        let (width, height) = (copy.WidthInBytes, copy.Height);
        let extent = (width, height);
        let dst = Plane::new(
            client,
            copy.dstMemoryType,
            (copy.dstHost as u64, copy.dstDevice),
            (copy.dstXInBytes, copy.dstY, copy.dstPitch),
            extent,
        )?;
        let src = Plane::new(
            client,
            copy.srcMemoryType,
            (copy.srcHost as u64, copy.srcDevice),
            (copy.srcXInBytes, copy.srcY, copy.srcPitch),
            extent,
        )?;
        Ok(Self {
            dst,
            src,
            width,
            height,
            order,
        })
    }

    fn copy(&self, client: &Client) -> Result {
        for plane in [self.dst, self.src] {
            if let Side::DeviceVisible(start) = plane.side {
                let rows = plane.pitch.saturating_mul(self.height - 1);
                let bytes = rows.saturating_add(self.width);
                name(client, start, bytes, self.order.stream)?;
            }
        }
        if let Some((to, from)) = within_host(client, (self.dst.side, self.src.side), self.order) {
            synchronise(client, self.order.stream)?;
            for row in 0..self.height {
                let from = from.add(row * self.src.pitch);
                to.add(row * self.dst.pitch).store(from.bytes(self.width));
            }
            return Ok(());
        }
        self.transmit(client)
    }

    /// Makes the copy, whose sides are prepared.
    fn transmit(&self, client: &Client) -> Result {
        match (self.dst.side, self.src.side) {
            (Side::DeviceVisible(to), Side::DeviceVisible(from)) => {
                self.in_device(client, to, from)
            }
            // Rows longer than a block are copied one by one.
            _ if self.width > client.block_bytes() => self.one_by_one(),
            (Side::DeviceVisible(to), Side::Pageable(from)) => {
                self.traced(client, copy_kind::HTOD, || self.send(client, to, from))
            }
            (Side::Pageable(to), Side::DeviceVisible(from)) => {
                self.traced(client, copy_kind::DTOH, || self.fetch(client, to, from))
            }
            // Made within this process.
            (Side::Pageable(_), Side::Pageable(_)) => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// The box of one side, which has one slice.
    fn end(&self, plane: Plane, address: u64) -> BoxEnd {
        BoxEnd {
            address,
            pitch: plane.pitch,
            rows: self.height,
            ..BoxEnd::default()
        }
    }

    fn near(&self, plane: Plane, first: HostPtr) -> Near {
        Near {
            first,
            pitch: plane.pitch,
            slice: 0,
        }
    }

    fn traced(&self, client: &Client, kind: u8, copy: impl FnOnce() -> Result) -> Result {
        traced(client, kind, self.width * self.height, self.order, copy)
    }

    fn size(&self) -> Size {
        [self.width, self.height, 1]
    }

    fn in_device(&self, client: &Client, to: u64, from: u64) -> Result {
        let ends = (self.end(self.dst, to), self.end(self.src, from));
        boxes::between(client, ends, self.size(), self.order)
    }

    /// Copies from pageable memory: without the ring, with as many rows in a request as fit into a block.
    fn send(&self, client: &Client, to: u64, from: HostPtr) -> Result {
        let (end, near) = (self.end(self.dst, to), self.near(self.src, from));
        if boxes::send(client, &end, near, self.size(), self.order)? {
            return Ok(());
        }
        let mut packed = Vec::new();
        for (row, count) in blocks(self.height, client.block_bytes() / self.width) {
            packed.clear();
            for y in row..row + count {
                packed.extend_from_slice(from.add(y * self.src.pitch).bytes(self.width));
            }
            let request = request::gpgpuCopyIn2D {
                dst: to + (row * self.dst.pitch) as u64,
                pitch: self.dst.pitch,
                width: self.width,
                height: count,
                hStream: self.order.stream,
                synchronous: self.order.synchronous,
            };
            client.call_with(&request, &packed, &mut [])?;
        }
        Ok(())
    }

    /// Copies to pageable memory, in the same way.
    fn fetch(&self, client: &Client, to: HostPtr, from: u64) -> Result {
        let (near, end) = (self.near(self.dst, to), self.end(self.src, from));
        if boxes::fetch(client, near, &end, self.size(), self.order.stream)? {
            return Ok(());
        }
        let width = self.width;
        let mut packed = vec![0; client.block_bytes().min(width * self.height)];
        for (row, count) in blocks(self.height, client.block_bytes() / width) {
            let packed = &mut packed[..count * width];
            let request = request::gpgpuCopyOut2D {
                src: from + (row * self.src.pitch) as u64,
                pitch: self.src.pitch,
                width,
                height: count,
                hStream: self.order.stream,
            };
            client.call_with(&request, &[], packed)?;
            for (i, bytes) in packed.chunks_exact(width).enumerate() {
                to.add((row + i) * self.dst.pitch).store(bytes);
            }
        }
        Ok(())
    }

    fn one_by_one(&self) -> Result {
        let whole = (CU_MEMORYTYPE_UNIFIED, 0);
        for row in 0..self.height {
            let at = |plane: Plane| match plane.side {
                Side::DeviceVisible(start) => {
                    Side::DeviceVisible(start + (row * plane.pitch) as u64)
                }
                Side::Pageable(start) => Side::Pageable(start.add(row * plane.pitch)),
            };
            copy(
                at(self.dst),
                at(self.src),
                self.width,
                (whole, whole),
                self.order,
            )?;
        }
        Ok(())
    }
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
