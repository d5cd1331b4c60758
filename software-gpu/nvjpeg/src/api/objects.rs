// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, buffers, and properties of the library.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use gpgpu_locks::Mutex;
use gpgpu_stand_in::{call::Answer, driver::Name, work::Work};

use super::export;
use crate::decoded::Format;
use crate::objects::{
    Buffer, DECODE_PARAMS, DECODERS, DEVICE, DecodeParams, Decoder, ENCODER_PARAMS, ENCODER_STATES,
    EncoderParams, EncoderState, HANDLES, Handle, PINNED, Raw, SETTINGS, STATES, STREAMS, State,
    Stream, end, find,
};
use crate::types::{Allocator, Result, Status};

/// 13.0.4, as `nvjpeg.h` counts.
const VERSION: [c_int; 3] = [13, 0, 4];

/// Makes a handle with a backend: 3 is an engine of the GPU's, which the software GPU does not have.
fn create(backend: c_int, out: Answer<Raw>) -> Result {
    match backend {
        0..=2 => {}
        3 | 5 => return Err(Status::ArchMismatch),
        4 | 6 => return Err(Status::NotSupported),
        _ => return Err(Status::InvalidParameter),
    }
    if out.is_null() {
        return Err(Status::InvalidParameter);
    }
    let handle = Handle {
        work: Work::here().ok_or(Status::NotInitialized)?,
        paddings: Mutex::default(),
    };
    out.set(HANDLES.add(handle) as Raw)
}

fn part(version: [c_int; 3], part: c_int, value: Answer<c_int>) -> Result {
    let part = usize::try_from(part).ok();
    let part = part.and_then(|part| version.get(part).copied());
    value.set(part.ok_or(Status::InvalidParameter)?)
}

/// A buffer with an allocator of the caller's, or none.
fn buffer(allocator: *const Allocator) -> Buffer {
    Buffer {
        // SAFETY: NULL, or valid for a read by the API's contract.
        allocator: unsafe { allocator.as_ref() }.copied(),
        memory: Mutex::default(),
    }
}

/// Work in the context of a handle.
fn work(handle: Raw) -> Result<Work> {
    Ok(find(&HANDLES, handle)?.work)
}

export! {
    fn nvjpegCreate(backend: c_int, _allocator: *const c_void, handle: Answer<Raw>) {
        create(backend, handle)
    }

    fn nvjpegCreateSimple(handle: Answer<Raw>) { create(0, handle) }

    fn nvjpegCreateEx(
        backend: c_int, _device: *const c_void, _pinned: *const c_void, _flags: c_uint, handle: Answer<Raw>,
    ) {
        create(backend, handle)
    }

    fn nvjpegCreateExV2(
        backend: c_int, _device: *const c_void, _pinned: *const c_void, _flags: c_uint, handle: Answer<Raw>,
    ) {
        create(backend, handle)
    }

    fn nvjpegDestroy(handle: Raw) { end(&HANDLES, handle) }

    /// The version's parts: major 0, minor 1, patch level 2.
    fn nvjpegGetProperty(of: c_int, value: Answer<c_int>) { part(VERSION, of, value) }

    fn nvjpegGetCudartProperty(of: c_int, value: Answer<c_int>) { part([13, 0, 0], of, value) }

    fn nvjpegSetDeviceMemoryPadding(padding: usize, handle: Raw) {
        find(&HANDLES, handle)?.paddings.lock()[0] = padding;
        Ok(())
    }

    fn nvjpegGetDeviceMemoryPadding(padding: Answer<usize>, handle: Raw) {
        padding.set(find(&HANDLES, handle)?.paddings.lock()[0])
    }

    fn nvjpegSetPinnedMemoryPadding(padding: usize, handle: Raw) {
        find(&HANDLES, handle)?.paddings.lock()[1] = padding;
        Ok(())
    }

    fn nvjpegGetPinnedMemoryPadding(padding: Answer<usize>, handle: Raw) {
        padding.set(find(&HANDLES, handle)?.paddings.lock()[1])
    }

    /// There are no engines.
    fn nvjpegGetHardwareDecoderInfo(handle: Raw, engines: Answer<c_uint>, cores: Answer<c_uint>) {
        find(&HANDLES, handle)?;
        engines.set::<Status>(0)?;
        cores.set(0)
    }

    fn nvjpegGetHardwareEncoderInfo(handle: Raw, engines: Answer<c_uint>) {
        find(&HANDLES, handle)?;
        engines.set(0)
    }

    fn nvjpegJpegStateCreate(handle: Raw, state: Answer<Raw>) { new_state(handle, state) }

    fn nvjpegJpegStateDestroy(state: Raw) { end(&STATES, state) }

    fn nvjpegDecoderStateCreate(handle: Raw, decoder: Raw, state: Answer<Raw>) {
        find(&DECODERS, decoder)?;
        new_state(handle, state)
    }

    fn nvjpegDecoderCreate(handle: Raw, backend: c_int, decoder: Answer<Raw>) {
        find(&HANDLES, handle)?;
        match backend {
            0..=2 => decoder.set(DECODERS.add(Decoder) as Raw),
            3 | 5 => Err(Status::ArchMismatch),
            _ => Err(Status::NotSupported),
        }
    }

    fn nvjpegDecoderDestroy(decoder: Raw) { end(&DECODERS, decoder) }

    fn nvjpegJpegStreamCreate(handle: Raw, stream: Answer<Raw>) {
        find(&HANDLES, handle)?;
        stream.set(STREAMS.add(Stream::default()) as Raw)
    }

    fn nvjpegJpegStreamDestroy(stream: Raw) { end(&STREAMS, stream) }

    fn nvjpegDecodeParamsCreate(handle: Raw, params: Answer<Raw>) {
        find(&HANDLES, handle)?;
        let new = DecodeParams {
            format: Mutex::new(Format::Components),
            region: Mutex::default(),
        };
        params.set(DECODE_PARAMS.add(new) as Raw)
    }

    fn nvjpegDecodeParamsDestroy(params: Raw) { end(&DECODE_PARAMS, params) }

    fn nvjpegEncoderStateCreate(handle: Raw, state: Answer<Raw>, _stream: *mut c_void) {
        new_encoder(handle, state)
    }

    fn nvjpegEncoderStateCreateWithBackend(
        handle: Raw, state: Answer<Raw>, backend: c_int, _stream: *mut c_void,
    ) {
        match backend {
            0 | 1 => new_encoder(handle, state),
            _ => Err(Status::ArchMismatch),
        }
    }

    fn nvjpegEncoderStateDestroy(state: Raw) {
        let ended = ENCODER_STATES.remove(state as usize);
        let ended = ended.ok_or(Status::InvalidParameter)?;
        let stream = *ended.stream.lock();
        ended.work.wait(stream);
        Ok(())
    }

    fn nvjpegEncoderParamsCreate(handle: Raw, params: Answer<Raw>, _stream: *mut c_void) {
        find(&HANDLES, handle)?;
        params.set(ENCODER_PARAMS.add(EncoderParams(Mutex::new(SETTINGS))) as Raw)
    }

    fn nvjpegEncoderParamsDestroy(params: Raw) { end(&ENCODER_PARAMS, params) }

    fn nvjpegBufferPinnedCreate(handle: Raw, _allocator: *const c_void, made: Answer<Raw>) {
        find(&HANDLES, handle)?;
        made.set(PINNED.add(buffer(std::ptr::null())) as Raw)
    }

    fn nvjpegBufferPinnedCreateV2(handle: Raw, allocator: *const Allocator, made: Answer<Raw>) {
        find(&HANDLES, handle)?;
        made.set(PINNED.add(buffer(allocator)) as Raw)
    }

    fn nvjpegBufferPinnedResize(buffer: Raw, size: usize, _stream: *mut c_void) {
        find(&PINNED, buffer)?.resize(size)
    }

    fn nvjpegBufferPinnedDestroy(buffer: Raw) { end(&PINNED, buffer) }

    fn nvjpegBufferDeviceCreate(handle: Raw, _allocator: *const c_void, made: Answer<Raw>) {
        find(&HANDLES, handle)?;
        made.set(DEVICE.add(buffer(std::ptr::null())) as Raw)
    }

    fn nvjpegBufferDeviceCreateV2(handle: Raw, allocator: *const Allocator, made: Answer<Raw>) {
        find(&HANDLES, handle)?;
        made.set(DEVICE.add(buffer(allocator)) as Raw)
    }

    fn nvjpegBufferDeviceResize(buffer: Raw, size: usize, _stream: *mut c_void) {
        find(&DEVICE, buffer)?.resize(size)
    }

    fn nvjpegBufferDeviceRetrieve(buffer: Raw, size: Answer<usize>, address: Answer<usize>) {
        let memory = *find(&DEVICE, buffer)?.memory.lock();
        address.set::<Status>(memory.0)?;
        size.set(memory.1)
    }

    fn nvjpegBufferDeviceDestroy(buffer: Raw) { end(&DEVICE, buffer) }

    fn nvjpegStateAttachPinnedBuffer(state: Raw, buffer: Raw) {
        find(&PINNED, buffer)?;
        find(&STATES, state)?.attached.lock()[0] = buffer as usize;
        Ok(())
    }

    fn nvjpegStateAttachDeviceBuffer(state: Raw, buffer: Raw) {
        find(&DEVICE, buffer)?;
        find(&STATES, state)?.attached.lock()[1] = buffer as usize;
        Ok(())
    }
}

fn new_state(handle: Raw, state: Answer<Raw>) -> Result {
    let new = State {
        work: work(handle)?,
        batch: Mutex::default(),
        decoded: Mutex::default(),
        attached: Mutex::default(),
    };
    state.set(STATES.add(new) as Raw)
}

fn new_encoder(handle: Raw, state: Answer<Raw>) -> Result {
    let new = EncoderState {
        work: work(handle)?,
        stream: Mutex::new(Name(null_mut())),
        encoded: Arc::default(),
    };
    state.set(ENCODER_STATES.add(new) as Raw)
}
