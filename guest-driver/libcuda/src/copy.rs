// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of bytes, synchronous and asynchronous. [`crate::copy_rows`] has those of rows and boxes.
//!
//! Each side of a copy is either visible to the device: memory that the worker can access (device memory, and pinned
//! host memory, which the worker shares); or pageable memory of this process, whose bytes are sent beside the stream.
//! Pinned memory is read and written in stream order. A pageable source was read, and a pageable destination written,
//! when the call returns, as CUDA documents.

use std::time::{Duration, Instant};

use gpgpu_client::{Scope, data_blocks::Run, parallel_copy, ring::Ring, trace, transport::Data};
use gpgpu_graphs::{capture, node::Copy3D};
use gpgpu_protocol::{api::request, codec::Blob, cuda::*, cupti, ring::BLOCK_BYTES};
use gpgpu_trace::Copied;

use crate::{
    argument::HostPtr,
    client::{Client, client},
    cuda,
    ffi::Result,
    graph::{self, Guest},
    managed,
    stores::pointers::Kind,
    stream, thread,
};

/// The maximum number of bytes that are sent in the command itself. On an H100, 4 and 8 KiB followed by a wait take 1
/// µs less than with a block, which the worker has to release again; 16 KiB take as long, and 32 KiB 10 µs more.
const IN_COMMAND: usize = 8 << 10;
/// The maximum number of bytes that are sent in the ring's data blocks. For more, a path without this extra copy is
/// faster.
const BY_BLOCKS: usize = 4 << 20;

/// The minimum number of bytes of a copy for which each command has two data blocks.
const TWO_BLOCKS: usize = 512 << 10;
/// The same for blocks that several threads fill or read. On an H200 that takes 0.8 times as long for 1 MiB to the
/// device, 0.7 times for 3 MiB, but 1.2 times for 512 KiB.
const BY_THREADS: usize = 1 << 20;

/// The maximum time for which a copy waits for a data block before it uses another path.
const BLOCK_PATIENCE: Duration = Duration::from_micros(100);

/// The maximum amount of pinned memory that an asynchronous copy may read when it is issued, if its own stream is idle,
/// even if a stream for which it waits has not written that memory yet. A synchronous copy is sent as an asynchronous
/// one, and must not.
const READ_AT_ONCE: usize = 64 << 10;

/// One side of a copy.
#[derive(Debug, Clone, Copy)]
pub enum Side {
    /// Memory that the worker can access.
    DeviceVisible(u64),
    /// Pageable memory.
    Pageable(HostPtr),
}

impl Side {
    /// Host memory: visible to the device if it is pinned as a whole, pageable otherwise.
    pub fn host(client: &Client, address: u64, bytes: usize) -> Self {
        match client.pointers.find_whole(address, bytes) {
            Some(range) if address.wrapping_sub(range.start) < range.bytes => {
                Self::DeviceVisible(range.far(address))
            }
            Some(_) => Self::DeviceVisible(address),
            // Mapped or not, the host checks it.
            None if client.pointers.reservation(address).is_some() => Self::DeviceVisible(address),
            // A part of it is managed memory, which counts as device memory, and the host refuses the copy.
            None if managed::holds(address) => Self::DeviceVisible(address),
            // As natively, the copy is refused.
            None if client.pointers.overruns(address, bytes) => Self::DeviceVisible(address),
            None => Self::Pageable(HostPtr::at(address)),
        }
    }

    /// The program's address, unless it is memory of the device or managed memory.
    fn in_host(self, client: &Client) -> Option<HostPtr> {
        let address = match self {
            Self::Pageable(start) => return Some(start),
            Self::DeviceVisible(address) => address,
        };
        let range = client.pointers.find(address)?;
        range.is_pinned().then(|| HostPtr::at(range.near(address)))
    }
}

/// The stream of a copy, and whether the caller waits for the copy.
#[derive(Debug, Clone, Copy)]
pub struct Order {
    /// The stream's id; 0 is the legacy default stream.
    pub stream: u64,
    /// Whether the caller waits.
    pub synchronous: bool,
}

impl Order {
    /// A copy in the legacy default stream, with a wait.
    pub fn synchronous() -> Result<Self> {
        client()?;
        Ok(Self {
            stream: 0,
            synchronous: true,
        })
    }

    /// A copy in the thread's default stream, with a wait.
    pub fn synchronous_per_thread() -> Result<Self> {
        Ok(Self {
            stream: thread::stream_id_per_thread(client()?, 0)?,
            synchronous: true,
        })
    }

    /// Makes a copy in this order.
    ///
    /// # Errors
    ///
    /// Those of `copy`.
    fn give(self, copy: impl FnOnce(Self) -> Result) -> Result {
        stream::with_context(client()?, self.stream, || copy(self))
    }

    /// A copy in a stream; NULL is the legacy default stream.
    pub fn on(stream: CUstream) -> Result<Self> {
        Ok(Self {
            stream: thread::stream_id(client()?, stream as u64)?,
            synchronous: false,
        })
    }

    /// A copy in a stream; NULL is the thread's default stream.
    pub fn on_per_thread(stream: CUstream) -> Result<Self> {
        Ok(Self {
            stream: thread::stream_id_per_thread(client()?, stream as u64)?,
            synchronous: false,
        })
    }
}

/// Whether there is anything to copy; an error if there is no context or no address.
pub fn check(address: u64, bytes: usize) -> Result<bool> {
    thread::required_context()?;
    if bytes == 0 {
        return Ok(false);
    }
    if address == 0 {
        Err(CUDA_ERROR_INVALID_VALUE)
    } else {
        Ok(true)
    }
}

/// The two sides of a copy as the program passed them: types of memory, and addresses.
pub type Given = ((CUmemorytype, u64), (CUmemorytype, u64));

/// Adds a copy as a node, if its stream is captured.
fn record(client: &Client, (dst, src): Given, bytes: usize, order: Order) -> Result<bool> {
    if order.synchronous {
        return graph::refuse(client, order.stream).map(|()| false);
    }
    graph::record(client, order.stream, |stream| {
        graph::copy(client, Copy3D::line(dst, src, bytes, stream.context)?)
    })
}

/// Copies bytes between known sides, in stream order. `given` is for a stream that is captured.
pub fn copy(dst: Side, src: Side, bytes: usize, given: Given, order: Order) -> Result {
    let client = client()?;
    if capture::any::<Guest>() && record(client, given, bytes, order)? {
        return Ok(());
    }
    for side in [dst, src] {
        if let Side::DeviceVisible(address) = side {
            name(client, address, bytes, order.stream)?;
        }
    }
    if let Some((to, from)) = within_host(client, (dst, src), order) {
        synchronise(client, order.stream)?;
        to.store(from.bytes(bytes));
        return Ok(());
    }
    transmit(client, dst, src, bytes, order)
}

/// Prepares memory that the device can access for a copy in a stream.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` for memory beyond the end of an allocation or a registration. The host refuses any other.
pub fn name(client: &Client, address: u64, bytes: usize, stream: u64) -> Result {
    client.disown(address);
    let is_beyond = managed::holds(address) && client.pointers.find_whole(address, bytes).is_none()
        || client.pointers.overruns(address, bytes);
    if is_beyond {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    managed::names(client, address, bytes, stream);
    Ok(())
}

/// The program's addresses of both sides, if this process makes the copy once its stream is idle: a copy within host
/// memory is complete when the call returns, in a stream too. The host's driver would make its caller wait, and with it
/// the other threads of the program.
///
/// Source: CUDA Runtime API, API synchronization behavior.
pub fn within_host(
    client: &Client,
    (dst, src): (Side, Side),
    order: Order,
) -> Option<(HostPtr, HostPtr)> {
    let is_pageable = |side: Side| matches!(side, Side::Pageable(_));
    if order.synchronous && !(is_pageable(dst) && is_pageable(src)) {
        return None;
    }
    dst.in_host(client).zip(src.in_host(client))
}

/// Makes a copy that is not captured, and whose sides are prepared.
fn transmit(client: &Client, dst: Side, src: Side, bytes: usize, order: Order) -> Result {
    let Order {
        stream: hStream,
        synchronous,
    } = order;
    match (dst, src) {
        (Side::DeviceVisible(dst), Side::DeviceVisible(src)) => {
            let known = |address| client.whole(address, bytes).is_some();
            let request = request::cuMemcpyAsync {
                dst,
                src,
                ByteCount: bytes,
                hStream,
            };
            if synchronous
                && bytes <= READ_AT_ONCE
                && !client.is_idle(Scope::Legacy)
                && is_host(client, src)
            {
                synchronise(client, hStream)?;
            }
            if synchronous && hStream == 0 {
                let mut given = client.given();
                client.call(&request::cuMemcpy {
                    dst,
                    src,
                    ByteCount: bytes,
                })?;
                given.work += 1;
                client.set_idle(given, Scope::Legacy);
                Ok(())
            } else if synchronous {
                client.call(&request)?;
                synchronise(client, hStream)
            } else if known(dst) && known(src) && client.objects.knows_stream(hStream) {
                client.post(&request)
            } else {
                client.call(&request).map(drop)
            }
        }
        (Side::DeviceVisible(dst), Side::Pageable(src)) => {
            traced(client, cupti::copy_kind::HTOD, bytes, order, || {
                inward(client, dst, src, bytes, order)
            })
        }
        (Side::Pageable(dst), Side::DeviceVisible(src)) => {
            traced(client, cupti::copy_kind::DTOH, bytes, order, || {
                outward(client, dst, src, bytes, hStream)
            })
        }
        // Made within this process.
        (Side::Pageable(_), Side::Pageable(_)) => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Makes a copy of pageable memory, and reports it as one of the [`cupti::copy_kind`]s if the program's call is traced.
/// It is one copy for the program, whichever way it takes.
pub fn traced(
    client: &Client,
    kind: u8,
    bytes: usize,
    order: Order,
    copy: impl FnOnce() -> Result,
) -> Result {
    let Some(start) = trace::begin_copy() else {
        return copy();
    };
    copy()?;
    let device = client.objects.context_device(thread::current_context());
    trace::copied(
        start,
        Copied {
            call: 0,
            kind: kind.into(),
            bytes: bytes as u64,
            start,
            end: start,
            stream: order.stream,
            context: 0,
            device: device.unwrap_or_default() as u32,
            asynchronous: u32::from(!order.synchronous),
        },
    );
    Ok(())
}

/// Copies pageable memory to the device.
fn inward(client: &Client, dst: u64, src: HostPtr, bytes: usize, order: Order) -> Result {
    let Order {
        stream: hStream,
        synchronous,
    } = order;
    let known = client.whole(dst, bytes).is_some() && client.objects.knows_stream(hStream);
    let done = match client.ring() {
        Some(ring) if bytes <= BY_BLOCKS && known => {
            write(client, ring, dst, src.bytes(bytes), order)?
        }
        _ => 0,
    };
    if done == bytes {
        return Ok(());
    }
    let request = request::gpgpuCopyIn {
        dst: dst + done as u64,
        hStream,
        synchronous,
    };
    let rest = src.add(done).bytes(bytes - done);
    client.transfer(&request, Data::In(rest)).map(drop)
}

/// Copies from the device to pageable memory.
fn outward(client: &Client, dst: HostPtr, src: u64, bytes: usize, hStream: u64) -> Result {
    let known = client.whole(src, bytes).is_some() && client.objects.knows_stream(hStream);
    if bytes <= BY_BLOCKS
        && known
        && let Some(ring) = client.ring()
        && read(client, ring, dst, src, bytes, hStream)?
    {
        return Ok(());
    }
    let request = request::gpgpuCopyOut { src, hStream };
    client
        .transfer(&request, Data::Out(dst.bytes_mut(bytes)))
        .map(drop)
}

/// Copies this process's memory to the device in a stream, whatever kind of memory it is. The memory was read when this
/// returns.
///
/// # Errors
///
/// Those of `cuMemcpyHtoDAsync`.
pub fn send(client: &Client, dst: u64, src: HostPtr, bytes: usize, stream: u64) -> Result {
    let order = Order {
        stream,
        synchronous: false,
    };
    inward(client, dst, src, bytes, order)
}

/// Copies from the device to this process's memory, whatever kind of memory it is. The memory was written when this
/// returns.
///
/// # Errors
///
/// Those of `cuMemcpyDtoHAsync`.
pub fn fetch(client: &Client, dst: HostPtr, src: u64, bytes: usize, stream: u64) -> Result {
    outward(client, dst, src, bytes, stream)
}

/// Waits for a stream.
pub fn synchronise(client: &Client, hStream: u64) -> Result {
    let (given, sent) = (client.given(), client.sent());
    client.call(&request::cuStreamSynchronize { hStream })?;
    client.set_stream_idle(hStream, sent, false);
    if hStream == 0 {
        client.set_idle(given, Scope::Legacy);
    }
    Ok(())
}

/// Waits for the work of a context for which its legacy stream waits.
pub fn await_legacy(client: &Client, context: u64) -> Result {
    thread::within(context, || {
        if client.is_idle(Scope::Legacy) {
            return Ok(());
        }
        synchronise(client, 0)
    })
}

/// Sends bytes through the ring, and returns their number, which is smaller than requested if there is no more room
/// now.
///
/// The bytes were read when this returns. If all are sent, the copy also ends as by [`finish`].
fn write(client: &Client, ring: &Ring, dst: u64, bytes: &[u8], order: Order) -> Result<usize> {
    let hStream = order.stream;
    let mut done = 0;
    if bytes.len() <= IN_COMMAND {
        client.post(&request::gpgpuWrite {
            dst,
            hStream,
            bytes: Blob(bytes.to_vec()),
        })?;
        done = bytes.len();
    } else {
        let most = blocks_for(bytes.len());
        while done < bytes.len() {
            let Some(run) = await_blocks(ring, most) else {
                break;
            };
            let length = (run.count * BLOCK_BYTES).min(bytes.len() - done);
            let block = run.first;
            // SAFETY: the blocks are this copy's alone, and as long.
            unsafe { parallel_copy::copy(ring.block(block), bytes[done..].as_ptr(), length) };
            let request = request::gpgpuBlockIn {
                dst: dst + done as u64,
                block,
                ByteCount: length,
                hStream,
            };
            // The GPU reads the blocks when the stream reaches the copy. Then they are free again.
            let ticket = client.begin(ring, &request);
            ring.give_blocks(run, ticket.ok());
            ticket?;
            done += length;
        }
    }
    if done == bytes.len() {
        finish(client, dst, order)?;
    }
    Ok(done)
}

/// Whether an address is in pinned memory of the host.
pub fn is_host(client: &Client, address: u64) -> bool {
    let range = client.pointers.find_whole(address, 1);
    range.is_some_and(|range| matches!(range.kind, Kind::Host { .. }))
}

/// Ends a copy of pageable memory that was sent through the ring. A synchronous one waits for earlier work of the
/// stream. It does not wait until the GPU has copied the bytes to its own memory, but the program may read host memory
/// at once.
pub fn finish(client: &Client, dst: u64, order: Order) -> Result {
    if order.synchronous && (!client.is_idle(Scope::Legacy) || is_host(client, dst)) {
        synchronise(client, order.stream)?;
    }
    Ok(())
}

/// The number of data blocks for one command of a copy of `bytes` bytes. In a short copy, the GPU copies one block while
/// the next is filled. In a long one, several threads fill the blocks of a command.
pub fn blocks_for(bytes: usize) -> usize {
    match bytes {
        0..TWO_BLOCKS => 1,
        TWO_BLOCKS..BY_THREADS => 2,
        _ => parallel_copy::WORTH_IT / BLOCK_BYTES,
    }
}

/// Free data blocks, at most `most`. They become free at the speed of the bus, unless they wait for a busy stream.
pub fn await_blocks(ring: &Ring, most: usize) -> Option<Run> {
    let start = Instant::now();
    loop {
        match ring.take_blocks(most) {
            None if start.elapsed() < BLOCK_PATIENCE => std::hint::spin_loop(),
            taken => return taken,
        }
    }
}

/// Fetches bytes through the ring; `false` if there is no room for them now, in which case nothing was done.
fn read(
    client: &Client,
    ring: &Ring,
    dst: HostPtr,
    src: u64,
    bytes: usize,
    hStream: u64,
) -> Result<bool> {
    let mut done = 0;
    while done < bytes {
        let (given, sent) = (client.given(), client.sent());
        let mut under_way = Vec::new();
        while done < bytes
            && let Some(run) = ring.take_blocks(blocks_for(bytes))
        {
            let length = (run.count * BLOCK_BYTES).min(bytes - done);
            let request = request::gpgpuBlockOut {
                src: src + done as u64,
                block: run.first,
                ByteCount: length,
                hStream,
            };
            under_way.push((run, done, length, client.begin(ring, &request)?));
            done += length;
        }
        if under_way.is_empty() {
            if done == 0 {
                return Ok(false);
            }
            // Other threads have all blocks, for as long as their copies take.
            std::thread::yield_now();
        }
        for (run, offset, length, ticket) in under_way {
            // After an error the GPU may still write to the blocks, which are then lost.
            client.end::<request::gpgpuBlockOut>(ring, ticket)?;
            let to = dst.add(offset).bytes_mut(length);
            // SAFETY: the blocks are this copy's alone, and the GPU has written them.
            unsafe { parallel_copy::copy(to.as_mut_ptr(), ring.block(run.first), length) };
            ring.give_blocks(run, None);
        }
        // The copy of a block completes after all earlier work of the stream.
        client.set_stream_idle(hStream, sent, false);
        if hStream == 0 {
            client.set_idle(given, Scope::Legacy);
        }
    }
    Ok(true)
}

/// Cuts `bytes` bytes into blocks of at most `block`: the offset and length of each.
pub fn blocks(bytes: usize, block: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..bytes)
        .step_by(block)
        .map(move |offset| (offset, block.min(bytes - offset)))
}

fn to_device(dst: u64, src: HostPtr, bytes: usize, order: Order) -> Result {
    if !check(src.address(), bytes)? {
        return Ok(());
    }
    copy(
        Side::DeviceVisible(dst),
        Side::host(client()?, src.address(), bytes),
        bytes,
        (
            (CU_MEMORYTYPE_DEVICE, dst),
            (CU_MEMORYTYPE_HOST, src.address()),
        ),
        order,
    )
}

fn from_device(dst: HostPtr, src: u64, bytes: usize, order: Order) -> Result {
    if !check(dst.address(), bytes)? {
        return Ok(());
    }
    copy(
        Side::host(client()?, dst.address(), bytes),
        Side::DeviceVisible(src),
        bytes,
        (
            (CU_MEMORYTYPE_HOST, dst.address()),
            (CU_MEMORYTYPE_DEVICE, src),
        ),
        order,
    )
}

fn in_device(dst: u64, src: u64, bytes: usize, order: Order) -> Result {
    let client = client()?;
    check(dst, 0)?;
    client.disown(dst);
    client.disown(src);
    if order.synchronous {
        // A copy between two GPUs also follows the work of the other one.
        let here = client.objects.context_device(thread::current_context());
        for address in [dst, src] {
            if let Some(range) = client.pointers.find(address)
                && let there @ Some(_) = client.objects.context_device(range.context)
                && there != here
            {
                await_legacy(client, range.context)?;
            }
        }
    }
    // A synchronous device-to-device copy is ordered like a synchronous one, but the host does not wait for it.
    let is_device = |address| {
        let range = client.pointers.find_whole(address, bytes);
        range.is_some_and(|range| matches!(range.kind, Kind::Device))
    };
    let is_within = is_device(dst) && is_device(src) && !client.pointers.any_synchronous();
    let is_posted = client.ring().is_some() && bytes > 0 && is_within;
    if order.synchronous && order.stream == 0 && !is_posted {
        for address in [dst, src] {
            name(client, address, bytes, order.stream)?;
        }
        return client
            .call(&request::cuMemcpyDtoD_v2 {
                dstDevice: dst,
                srcDevice: src,
                ByteCount: bytes,
            })
            .map(drop);
    }
    if bytes == 0 {
        return Ok(());
    }
    copy(
        Side::DeviceVisible(dst),
        Side::DeviceVisible(src),
        bytes,
        ((CU_MEMORYTYPE_DEVICE, dst), (CU_MEMORYTYPE_DEVICE, src)),
        Order {
            synchronous: order.synchronous && !is_within,
            ..order
        },
    )
}

/// `cuMemcpy`: the addresses determine the kinds.
pub fn unified(dst: u64, src: u64, bytes: usize, order: Order) -> Result {
    if !check(dst, bytes)? {
        return Ok(());
    }
    check(src, bytes)?;
    let client = client()?;
    copy(
        Side::host(client, dst, bytes),
        Side::host(client, src, bytes),
        bytes,
        ((CU_MEMORYTYPE_UNIFIED, dst), (CU_MEMORYTYPE_UNIFIED, src)),
        order,
    )
}

/// As [`unified`], but the source was read when this returns, possibly before the stream reaches the copy.
pub fn at_once(dst: u64, src: u64, bytes: usize, order: Order) -> Result {
    let client = client()?;
    let here = match client.pointers.find_whole(src, bytes) {
        Some(range) => {
            matches!(range.kind, Kind::Host { .. }) && src.wrapping_sub(range.start) < range.bytes
        }
        None => false,
    };
    let to = Side::host(client, dst, bytes);
    if here && matches!(to, Side::DeviceVisible(_)) {
        // Pinned memory belongs to this process too, so its present content is sent like that of pageable memory.
        let given = ((CU_MEMORYTYPE_UNIFIED, dst), (CU_MEMORYTYPE_UNIFIED, src));
        return copy(to, Side::Pageable(HostPtr::at(src)), bytes, given, order);
    }
    let pageable = matches!(Side::host(client, src, bytes), Side::Pageable(_));
    unified(dst, src, bytes, order)?;
    if pageable {
        return Ok(());
    }
    synchronise(client, order.stream)
}

cuda! {
    fn cuMemcpy(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) {
        unified(dst, src, ByteCount, Order::synchronous()?)
    }
    fn cuMemcpy_ptds(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize) {
        unified(dst, src, ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyAsync(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        Order::on(hStream)?.give(|order| unified(dst, src, ByteCount, order))
    }
    fn cuMemcpyAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        Order::on_per_thread(hStream)?.give(|order| unified(dst, src, ByteCount, order))
    }
    fn cuMemcpyHtoD_v2(dstDevice: CUdeviceptr, srcHost: HostPtr, ByteCount: usize) {
        to_device(dstDevice, srcHost, ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyHtoD_v2_ptds(dstDevice: CUdeviceptr, srcHost: HostPtr, ByteCount: usize) {
        to_device(dstDevice, srcHost, ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyHtoDAsync_v2(dstDevice: CUdeviceptr, srcHost: HostPtr, ByteCount: usize, hStream: CUstream) {
        Order::on(hStream)?.give(|order| to_device(dstDevice, srcHost, ByteCount, order))
    }
    fn cuMemcpyHtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcHost: HostPtr, ByteCount: usize, hStream: CUstream) {
        Order::on_per_thread(hStream)?.give(|order| to_device(dstDevice, srcHost, ByteCount, order))
    }
    fn cuMemcpyDtoH_v2(dstHost: HostPtr, srcDevice: CUdeviceptr, ByteCount: usize) {
        from_device(dstHost, srcDevice, ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyDtoH_v2_ptds(dstHost: HostPtr, srcDevice: CUdeviceptr, ByteCount: usize) {
        from_device(dstHost, srcDevice, ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyDtoHAsync_v2(dstHost: HostPtr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        Order::on(hStream)?.give(|order| from_device(dstHost, srcDevice, ByteCount, order))
    }
    fn cuMemcpyDtoHAsync_v2_ptsz(dstHost: HostPtr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        Order::on_per_thread(hStream)?.give(|order| from_device(dstHost, srcDevice, ByteCount, order))
    }
    fn cuMemcpyDtoD_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) {
        in_device(dstDevice, srcDevice, ByteCount, Order::synchronous()?)
    }
    fn cuMemcpyDtoD_v2_ptds(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize) {
        in_device(dstDevice, srcDevice, ByteCount, Order::synchronous_per_thread()?)
    }
    fn cuMemcpyDtoDAsync_v2(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        Order::on(hStream)?.give(|order| in_device(dstDevice, srcDevice, ByteCount, order))
    }
    fn cuMemcpyDtoDAsync_v2_ptsz(dstDevice: CUdeviceptr, srcDevice: CUdeviceptr, ByteCount: usize, hStream: CUstream) {
        Order::on_per_thread(hStream)?.give(|order| in_device(dstDevice, srcDevice, ByteCount, order))
    }
    fn cuMemcpyPeer(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) {
        for address in [dstDevice, srcDevice] {
            client()?.disown(address);
            managed::names(client()?, address, ByteCount, 0);
        }
        let request = request::cuMemcpyPeer {
            dstDevice, dstContext: dstContext as u64, srcDevice, srcContext: srcContext as u64, ByteCount,
        };
        client()?.call(&request).map(drop)
    }
    fn cuMemcpyPeer_ptds(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize) {
        let order = Order::synchronous_per_thread()?;
        peer_async(dstDevice, dstContext, srcDevice, srcContext, ByteCount, order)?;
        synchronise(client()?, order.stream)
    }
    fn cuMemcpyPeerAsync(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) {
        peer_async(dstDevice, dstContext, srcDevice, srcContext, ByteCount, Order::on(hStream)?)
    }
    fn cuMemcpyPeerAsync_ptsz(dstDevice: CUdeviceptr, dstContext: CUcontext, srcDevice: CUdeviceptr, srcContext: CUcontext, ByteCount: usize, hStream: CUstream) {
        peer_async(dstDevice, dstContext, srcDevice, srcContext, ByteCount, Order::on_per_thread(hStream)?)
    }
}

fn peer_async(
    dst: u64,
    dst_context: CUcontext,
    src: u64,
    src_context: CUcontext,
    bytes: usize,
    order: Order,
) -> Result {
    // NVIDIA's driver (580) captures no copy between contexts, not even within one device.
    graph::refuse(client()?, order.stream)?;
    for address in [dst, src] {
        client()?.disown(address);
        managed::names(client()?, address, bytes, order.stream);
    }
    let request = request::cuMemcpyPeerAsync {
        dstDevice: dst,
        dstContext: dst_context as u64,
        srcDevice: src,
        srcContext: src_context as u64,
        ByteCount: bytes,
        hStream: order.stream,
    };
    client()?.call(&request).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_08_blocks_cover_every_byte_once() {
        for bytes in [0, 1, 9, 10, 11, 20, 21] {
            let mut next = 0;
            for (offset, length) in blocks(bytes, 10) {
                assert_eq!(offset, next);
                assert!((1..=10).contains(&length));
                next += length;
            }
            assert_eq!(next, bytes);
        }
    }
}
