// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A program's requests: allocations, attachment to streams, advice, prefetches.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Object, Stream, request},
    cuda::*,
};

use super::{
    MOVED, advice,
    advice::{HOST, Place},
    allocate, managed, send, service,
    store::Attach,
    tell, wait,
};
use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    cuda,
    device::device,
    ffi::Result,
    graph,
    launch::DefaultStream,
    stream, thread,
};

const ATTACH_GLOBAL: u32 = 1;
const ATTACH_HOST: u32 = 2;
const ATTACH_SINGLE: u32 = 4;

/// Whether a range lies in one allocation.
fn is_managed(client: &Client, address: u64, bytes: usize) -> bool {
    let range = client.pointers.find_whole(address, bytes);
    bytes != 0 && range.is_some_and(|range| range.is_managed())
}

fn required(client: &Client, address: u64, bytes: usize) -> Result {
    if is_managed(client, address, bytes) {
        Ok(())
    } else {
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}

fn attach(
    shape: DefaultStream,
    hStream: CUstream,
    address: u64,
    bytes: usize,
    flags: u32,
) -> Result {
    let client = client()?;
    let id = stream::lower(shape, hStream)?;
    if !client.objects.knows_stream(id) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    graph::refuse(client, id)?;
    let range = client.pointers.find(address);
    let range = range.filter(|range| range.is_managed() && range.start == address);
    let range = range.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if bytes != 0 && bytes as u64 != range.bytes {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let to = match flags {
        ATTACH_GLOBAL => Attach::Global,
        ATTACH_HOST => Attach::Host,
        // The default streams cannot own memory.
        ATTACH_SINGLE if Stream::SPECIAL.contains(&id) => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        ATTACH_SINGLE => Attach::Single(id),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    let mut managed = managed();
    // A page of several variables stays global: the attachment of one of them does not apply to the others.
    let own = managed.store.within(address, range.bytes);
    for of in own.filter(|of| !of.is_shared) {
        of.attach = to;
        // The change takes effect in stream order: a thread that accesses the memory here before that waits for the
        // stream.
        if !of.used.contains(&id) {
            of.used.push(id);
        }
    }
    tell(&managed);
    Ok(())
}

/// A location that a program names, in the form in which the program reads it back.
fn place(location: CUmemLocation, unknown: CUresult) -> Result<Place> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            device(location.id).map_err(|_| unknown)?;
            Ok((CU_MEM_LOCATION_TYPE_DEVICE, location.id))
        }
        CU_MEM_LOCATION_TYPE_HOST => Ok((CU_MEM_LOCATION_TYPE_HOST, HOST)),
        CU_MEM_LOCATION_TYPE_HOST_NUMA if location.id == 0 => {
            Ok((CU_MEM_LOCATION_TYPE_HOST_NUMA, 0))
        }
        CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok((CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0)),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// A location from the number that older functions take.
fn location(device: CUdevice) -> CUmemLocation {
    let (type_, id) = if device == HOST {
        (CU_MEM_LOCATION_TYPE_HOST, 0)
    } else {
        (CU_MEM_LOCATION_TYPE_DEVICE, device)
    };
    CUmemLocation { type_, id }
}

fn advise(address: u64, bytes: usize, advice: u32, location: CUmemLocation) -> Result {
    let client = client()?;
    required(client, address, bytes)?;
    let place = match advice {
        // The place is ignored.
        advice::advise::SET_READ_MOSTLY
        | advice::advise::UNSET_READ_MOSTLY
        | advice::advise::UNSET_PREFERRED_LOCATION => (CU_MEM_LOCATION_TYPE_HOST, HOST),
        advice::advise::SET_PREFERRED_LOCATION
        | advice::advise::SET_ACCESSED_BY
        | advice::advise::UNSET_ACCESSED_BY => place(location, CUDA_ERROR_INVALID_VALUE)?,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    for of in managed().store.within(address, bytes as u64) {
        for index in of.blocks_of(address, bytes as u64) {
            of.advice[index].take(advice, place);
        }
    }
    Ok(())
}

/// Moves memory to a place, after all earlier work of a stream, and records the place.
fn bring(client: &'static Client, address: u64, bytes: usize, place: Place, stream: u64) -> Result {
    for of in managed().store.within(address, bytes as u64) {
        for index in of.blocks_of(address, bytes as u64) {
            of.advice[index].prefetched = Some(place);
        }
    }
    if place.0 == CU_MEM_LOCATION_TYPE_DEVICE {
        send(client, true, |of| of.blocks_of(address, bytes as u64));
        return Ok(());
    }
    let Some(service) = service::get_if_there() else {
        return Ok(());
    };
    // The work may wait for the callback, which may wait for this thread. The memory then comes when it is used.
    if service::is_calling() {
        return Ok(());
    }
    let request = request::cuStreamSynchronize { hStream: stream };
    client.call(&request)?;
    let mut settled = None;
    let mut managed = managed();
    loop {
        let (mut jobs, mut others) = (Vec::new(), false);
        let of = managed.store.within(address, bytes as u64);
        let of: Vec<_> = of
            .map(|of| (of.start, of.blocks_of(address, bytes as u64)))
            .collect();
        for (start, blocks) in of {
            let (own, of_others) = managed.store.fetch(start, blocks);
            jobs.extend(own);
            others |= of_others;
        }
        if jobs.is_empty() {
            if !others {
                return Ok(());
            }
            managed = wait(managed);
            continue;
        }
        drop(managed);
        for job in &jobs {
            // Work of other streams that is pending may write to the memory.
            if job.is_copied {
                service.wait_for_work(job, &mut settled);
            }
            service.fetch(job);
        }
        MOVED.notify_all();
        managed = super::managed();
    }
}

fn prefetch(
    shape: DefaultStream,
    (address, bytes): (u64, usize),
    location: CUmemLocation,
    flags: u32,
    hStream: CUstream,
) -> Result {
    let client = client()?;
    let id = stream::lower(shape, hStream)?;
    if !client.objects.knows_stream(id) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    let place = place(location, CUDA_ERROR_INVALID_DEVICE)?;
    if flags != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    required(client, address, bytes)?;
    graph::refuse(client, id)?;
    bring(client, address, bytes, place, id)
}

/// Ranges of managed memory that a function names in arrays.
struct Batch {
    addresses: InPtr<CUdeviceptr>,
    sizes: InPtr<usize>,
    count: usize,
}

/// The places of a batch, and the index where each begins.
struct Places {
    locations: InPtr<CUmemLocation>,
    starts: InPtr<usize>,
    count: usize,
}

impl Batch {
    fn ranges(&self, client: &Client) -> Result<Vec<(u64, usize)>> {
        if self.count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut ranges = Vec::new();
        for index in 0..self.count {
            let (address, bytes) = (self.addresses.at(index)?, self.sizes.at(index)?);
            required(client, address, bytes)?;
            ranges.push((address, bytes));
        }
        Ok(ranges)
    }

    /// Checks all ranges, and then moves each to its place, if there are places.
    fn carry_out(
        &self,
        places: Option<Places>,
        flags: u64,
        shape: DefaultStream,
        hStream: CUstream,
    ) -> Result {
        let client = client()?;
        let id = stream::lower(shape, hStream)?;
        // The legacy default stream accepts no batch, as with NVIDIA's driver.
        if flags != 0 || Stream::SPECIAL.contains(&id) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if !client.objects.knows_stream(id) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        let ranges = self.ranges(client)?;
        let mut to = Vec::new();
        if let Some(places) = places {
            if places.count == 0 || places.starts.at(0)? != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            for index in 0..places.count {
                let start = places.starts.at(index)?;
                let end = if index + 1 < places.count {
                    places.starts.at(index + 1)?
                } else {
                    ranges.len()
                };
                if start >= end || end > ranges.len() {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                to.resize(
                    end,
                    place(places.locations.at(index)?, CUDA_ERROR_INVALID_DEVICE)?,
                );
            }
        }
        graph::refuse(client, id)?;
        // Discarded memory may keep its contents.
        for ((address, bytes), place) in ranges.into_iter().zip(to) {
            bring(client, address, bytes, place, id)?;
        }
        Ok(())
    }
}

fn range_attribute(
    data: *mut c_void,
    bytes: usize,
    attribute: u32,
    address: u64,
    count: usize,
) -> Result {
    let client = client()?;
    if data.is_null() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    required(client, address, count)?;
    let mut said = Vec::new();
    for of in managed().store.within(address, count as u64) {
        let blocks = of.blocks_of(address, count as u64);
        said.extend_from_slice(&of.advice[blocks]);
    }
    let answer = advice::answer(&said, attribute, bytes)?;
    for (index, value) in answer.into_iter().enumerate() {
        OutPtr::nested(data.cast::<i32>().wrapping_add(index).cast()).offer(value);
    }
    Ok(())
}

/// Defines each function that takes a stream, in both variants.
macro_rules! streams {
    ($($(#[$meta:meta])* $name:ident, $per_thread:ident($($arg:ident: $ty:ty),*) |$shape:ident| $body:block)*) => {cuda! {$(
        $(#[$meta])*
        fn $name($($arg: $ty),*) {
            let $shape = DefaultStream::Legacy;
            $body
        }
        /// With NULL for the calling thread's default stream.
        fn $per_thread($($arg: $ty),*) {
            let $shape = DefaultStream::PerThread;
            $body
        }
    )*}};
}

streams! {
    /// `cuStreamAttachMemAsync`. It takes effect at the call, before the stream reaches it.
    cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz(hStream: CUstream, dptr: CUdeviceptr, length: usize, flags: u32) |shape| {
        attach(shape, hStream, dptr, length, flags)
    }

    /// `cuMemPrefetchAsync` with a device's number, or -1 for the host.
    cuMemPrefetchAsync, cuMemPrefetchAsync_ptsz(devPtr: CUdeviceptr, count: usize, dstDevice: CUdevice, hStream: CUstream) |shape| {
        prefetch(shape, (devPtr, count), location(dstDevice), 0, hStream)
    }

    /// `cuMemPrefetchAsync`.
    cuMemPrefetchAsync_v2, cuMemPrefetchAsync_v2_ptsz(devPtr: CUdeviceptr, count: usize, location: CUmemLocation, flags: u32, hStream: CUstream) |shape| {
        prefetch(shape, (devPtr, count), location, flags, hStream)
    }

    /// `cuMemPrefetchBatchAsync`.
    cuMemPrefetchBatchAsync, cuMemPrefetchBatchAsync_ptsz(dptrs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, prefetchLocs: InPtr<CUmemLocation>, prefetchLocIdxs: InPtr<usize>, numPrefetchLocs: usize, flags: u64, hStream: CUstream) |shape| {
        let places = Places { locations: prefetchLocs, starts: prefetchLocIdxs, count: numPrefetchLocs };
        Batch { addresses: dptrs, sizes, count }.carry_out(Some(places), flags, shape, hStream)
    }

    /// `cuMemDiscardBatchAsync`. Discarded memory keeps its contents, which CUDA allows.
    cuMemDiscardBatchAsync, cuMemDiscardBatchAsync_ptsz(dptrs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, flags: u64, hStream: CUstream) |shape| {
        Batch { addresses: dptrs, sizes, count }.carry_out(None, flags, shape, hStream)
    }

    /// `cuMemDiscardAndPrefetchBatchAsync`.
    cuMemDiscardAndPrefetchBatchAsync, cuMemDiscardAndPrefetchBatchAsync_ptsz(dptrs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, prefetchLocs: InPtr<CUmemLocation>, prefetchLocIdxs: InPtr<usize>, numPrefetchLocs: usize, flags: u64, hStream: CUstream) |shape| {
        let places = Places { locations: prefetchLocs, starts: prefetchLocIdxs, count: numPrefetchLocs };
        Batch { addresses: dptrs, sizes, count }.carry_out(Some(places), flags, shape, hStream)
    }
}

cuda! {
    /// `cuMemAllocManaged`.
    fn cuMemAllocManaged(dptr: OutPtr<CUdeviceptr>, bytesize: usize, flags: u32) {
        let client = client()?;
        dptr.set(0)?;
        thread::required_context()?;
        let attach = match flags {
            _ if bytesize == 0 => return Err(CUDA_ERROR_INVALID_VALUE),
            ATTACH_GLOBAL => Attach::Global,
            ATTACH_HOST => Attach::Host,
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        };
        dptr.set(allocate(client, bytesize, attach)?)
    }

    /// `cuMemAdvise` with a device's number, or -1 for the host.
    fn cuMemAdvise(devPtr: CUdeviceptr, count: usize, advice: u32, device: CUdevice) {
        advise(devPtr, count, advice, location(device))
    }

    /// `cuMemAdvise`. Advice is stored and returned, but moves nothing.
    fn cuMemAdvise_v2(devPtr: CUdeviceptr, count: usize, advice: u32, location: CUmemLocation) {
        advise(devPtr, count, advice, location)
    }

    /// `cuMemRangeGetAttribute`.
    fn cuMemRangeGetAttribute(data: OutPtr<c_void>, dataSize: usize, attribute: u32, devPtr: CUdeviceptr, count: usize) {
        range_attribute(data.raw(), dataSize, attribute, devPtr, count)
    }

    /// `cuMemRangeGetAttributes`.
    fn cuMemRangeGetAttributes(data: InPtr<*mut c_void>, dataSizes: InPtr<usize>, attributes: InPtr<u32>, numAttributes: usize, devPtr: CUdeviceptr, count: usize) {
        client()?;
        if numAttributes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        for index in 0..numAttributes {
            let attribute = attributes.at(index)?;
            range_attribute(data.at(index)?, dataSizes.at(index)?, attribute, devPtr, count)?;
        }
        Ok(())
    }
}
