// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Fills: the `cuMemset` family.

use gpgpu_protocol::{
    api::{Stream, request},
    cuda::*,
};

use crate::{
    argument::GuestArg,
    client::{Client, client},
    copy::synchronise,
    cuda,
    ffi::Result,
    graph, managed,
    stores::pointers::Kind,
    thread,
};

/// Whether a fill lies in memory that the process knows, so that it can be posted. The host checks any other fill
/// before the caller continues.
fn whole(client: &Client, stream: u64, start: u64, bytes: Option<usize>) -> Result<bool> {
    name(client, stream, start, bytes)?;
    let lies_in = |bytes| client.whole(start, bytes);
    let known = thread::has_context(client)
        && Stream::is_known(client, &stream)
        && bytes.and_then(lies_in).is_some();
    if !known {
        client.disown(start);
    }
    Ok(known)
}

/// Prepares managed memory, and refuses a fill beyond the end of an allocation or a registration.
fn name(client: &Client, stream: u64, start: u64, bytes: Option<usize>) -> Result {
    let Some(bytes) = bytes else {
        return Ok(());
    };
    managed::names(client, start, bytes, stream);
    match client.pointers.overruns(start, bytes) {
        true => Err(CUDA_ERROR_INVALID_VALUE),
        false => Ok(()),
    }
}

/// The same for a fill without a stream argument: it does not wait either for device memory, but does for host memory,
/// and for memory with `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`.
fn whole_on_device(client: &Client, stream: u64, start: u64, bytes: Option<usize>) -> Result<bool> {
    name(client, stream, start, bytes)?;
    let lies_in = |bytes| client.whole(start, bytes);
    let known = thread::has_context(client)
        && bytes
            .and_then(lies_in)
            .is_some_and(|range| range.kind == Kind::Device)
        && !client.pointers.any_synchronous();
    if !known {
        client.disown(start);
    }
    Ok(known)
}

/// The legacy stream, for fills without a stream argument.
const LEGACY: u64 = 0;

/// The number of bytes from the first to the last that a pitched fill accesses.
fn extent(pitch: usize, row: Option<usize>, rows: usize) -> Option<usize> {
    let row = row?;
    if rows > 1 && pitch < row {
        return None;
    }
    if rows == 0 {
        Some(0)
    } else {
        pitch.checked_mul(rows - 1)?.checked_add(row)
    }
}

fn aligned<T>(address: u64) -> bool {
    address.is_multiple_of(size_of::<T>() as u64)
}

macro_rules! linear {
    ($($value:ident: $ty:ty, $request:ident, $async_request:ident, $per_thread:ident, $async:ident, $async_per_thread:ident;)*) => {cuda! {$(
        /// As CUDA's documentation describes it.
        fn $request(dstDevice: CUdeviceptr, $value: $ty, N: usize) {
            let client = client()?;
            if whole_on_device(client, LEGACY, dstDevice, N.checked_mul(size_of::<$ty>()).filter(|_| aligned::<$ty>(dstDevice)))? {
                return client.post(&request::$async_request { dstDevice, $value, N, hStream: LEGACY });
            }
            client.call(&request::$request { dstDevice, $value, N }).map(drop)
        }
        /// On the calling thread's default stream.
        fn $per_thread(dstDevice: CUdeviceptr, $value: $ty, N: usize) {
            let client = client()?;
            let hStream = thread::stream_id_per_thread(client, 0)?;
            let known = whole_on_device(client, hStream, dstDevice, N.checked_mul(size_of::<$ty>()).filter(|_| aligned::<$ty>(dstDevice)))?;
            finish(client, known, hStream, request::$async_request { dstDevice, $value, N, hStream })
        }
        /// As CUDA's documentation describes it.
        fn $async(dstDevice: CUdeviceptr, $value: $ty, N: usize, hStream: CUstream) {
            let client = client()?;
            let hStream = thread::stream_id(client, hStream as u64)?;
            if graph::fill(client, hStream, (dstDevice, 0), ($value.into(), size_of::<$ty>()), (N, 1))? {
                return Ok(());
            }
            let known = whole(client, hStream, dstDevice, N.checked_mul(size_of::<$ty>()).filter(|_| aligned::<$ty>(dstDevice)))?;
            send(client, known, request::$async_request { dstDevice, $value, N, hStream })
        }
        /// With NULL for the calling thread's default stream.
        fn $async_per_thread(dstDevice: CUdeviceptr, $value: $ty, N: usize, hStream: CUstream) {
            let client = client()?;
            let hStream = thread::stream_id_per_thread(client, hStream as u64)?;
            if graph::fill(client, hStream, (dstDevice, 0), ($value.into(), size_of::<$ty>()), (N, 1))? {
                return Ok(());
            }
            let known = whole(client, hStream, dstDevice, N.checked_mul(size_of::<$ty>()).filter(|_| aligned::<$ty>(dstDevice)))?;
            send(client, known, request::$async_request { dstDevice, $value, N, hStream })
        }
    )*}};
}

macro_rules! pitched {
    ($($value:ident: $ty:ty, $request:ident, $async_request:ident, $per_thread:ident, $async:ident, $async_per_thread:ident;)*) => {cuda! {$(
        /// As CUDA's documentation describes it.
        fn $request(dstDevice: CUdeviceptr, dstPitch: usize, $value: $ty, Width: usize, Height: usize) {
            let client = client()?;
            if whole_on_device(client, LEGACY, dstDevice, extent(dstPitch, Width.checked_mul(size_of::<$ty>()), Height).filter(|_| aligned::<$ty>(dstDevice | dstPitch as u64)))? {
                return client.post(&request::$async_request { dstDevice, dstPitch, $value, Width, Height, hStream: LEGACY });
            }
            client.call(&request::$request { dstDevice, dstPitch, $value, Width, Height }).map(drop)
        }
        /// On the calling thread's default stream.
        fn $per_thread(dstDevice: CUdeviceptr, dstPitch: usize, $value: $ty, Width: usize, Height: usize) {
            let client = client()?;
            let hStream = thread::stream_id_per_thread(client, 0)?;
            let known = whole_on_device(client, hStream, dstDevice, extent(dstPitch, Width.checked_mul(size_of::<$ty>()), Height).filter(|_| aligned::<$ty>(dstDevice | dstPitch as u64)))?;
            finish(client, known, hStream, request::$async_request { dstDevice, dstPitch, $value, Width, Height, hStream })
        }
        /// As CUDA's documentation describes it.
        fn $async(dstDevice: CUdeviceptr, dstPitch: usize, $value: $ty, Width: usize, Height: usize, hStream: CUstream) {
            let client = client()?;
            let hStream = thread::stream_id(client, hStream as u64)?;
            if graph::fill(client, hStream, (dstDevice, dstPitch), ($value.into(), size_of::<$ty>()), (Width, Height))? {
                return Ok(());
            }
            let known = whole(client, hStream, dstDevice, extent(dstPitch, Width.checked_mul(size_of::<$ty>()), Height).filter(|_| aligned::<$ty>(dstDevice | dstPitch as u64)))?;
            send(client, known, request::$async_request { dstDevice, dstPitch, $value, Width, Height, hStream })
        }
        /// With NULL for the calling thread's default stream.
        fn $async_per_thread(dstDevice: CUdeviceptr, dstPitch: usize, $value: $ty, Width: usize, Height: usize, hStream: CUstream) {
            let client = client()?;
            let hStream = thread::stream_id_per_thread(client, hStream as u64)?;
            if graph::fill(client, hStream, (dstDevice, dstPitch), ($value.into(), size_of::<$ty>()), (Width, Height))? {
                return Ok(());
            }
            let known = whole(client, hStream, dstDevice, extent(dstPitch, Width.checked_mul(size_of::<$ty>()), Height).filter(|_| aligned::<$ty>(dstDevice | dstPitch as u64)))?;
            send(client, known, request::$async_request { dstDevice, dstPitch, $value, Width, Height, hStream })
        }
    )*}};
}

fn send<R: gpgpu_protocol::api::Request>(client: &Client, known: bool, request: R) -> Result {
    if known {
        client.post(&request)
    } else {
        client.call(&request).map(drop)
    }
}

/// Sends a fill without a stream argument in a thread's default stream. It waits for memory that is not known to be the
/// device's.
fn finish<R: gpgpu_protocol::api::Request>(
    client: &Client,
    known: bool,
    stream: u64,
    request: R,
) -> Result {
    send(client, known, request)?;
    if !known {
        synchronise(client, stream)?;
    }
    Ok(())
}

linear! {
    uc: u8, cuMemsetD8_v2, cuMemsetD8Async, cuMemsetD8_v2_ptds, cuMemsetD8Async, cuMemsetD8Async_ptsz;
    us: u16, cuMemsetD16_v2, cuMemsetD16Async, cuMemsetD16_v2_ptds, cuMemsetD16Async, cuMemsetD16Async_ptsz;
    ui: u32, cuMemsetD32_v2, cuMemsetD32Async, cuMemsetD32_v2_ptds, cuMemsetD32Async, cuMemsetD32Async_ptsz;
}

pitched! {
    uc: u8, cuMemsetD2D8_v2, cuMemsetD2D8Async, cuMemsetD2D8_v2_ptds, cuMemsetD2D8Async, cuMemsetD2D8Async_ptsz;
    us: u16, cuMemsetD2D16_v2, cuMemsetD2D16Async, cuMemsetD2D16_v2_ptds, cuMemsetD2D16Async, cuMemsetD2D16Async_ptsz;
    ui: u32, cuMemsetD2D32_v2, cuMemsetD2D32Async, cuMemsetD2D32_v2_ptds, cuMemsetD2D32Async, cuMemsetD2D32Async_ptsz;
}
