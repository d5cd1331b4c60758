// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvJPEG's part of the worker. JPEGs are bytes of the request, which live as long as the library may read them
//! ([`jpegs`]). Objects live as long as another one points to them ([`objects`]). The library allocates by the worker's
//! functions ([`memory`]).

mod jpegs;
mod memory;
mod objects;

use gpgpu_protocol::{
    cuda::*,
    libraries::{
        Class, Kind, SUCCESS,
        call::Value,
        nvjpeg::{COMPONENTS, DEVICE_BACKENDS, MOST_IMAGES, MOST_PADDING, status},
    },
};

use super::{ByHand, Call};
use crate::worker::lease::current_gpu;
use memory::Allocators;
pub use objects::Jpegs;
use objects::{Locked, Named, Object, Step, host};

macro_rules! parts {
    ($($name:ident: $part:expr;)*) => {
        /// The functions with a part in this file.
        pub const BY_HAND: &[(&str, ByHand)] = &[$((stringify!($name), |call, words| {
            let part: fn(&mut Call<'_>, &[u64]) -> Step<()> = $part;
            Ok(part(call, words).err().unwrap_or(SUCCESS))
        })),*];
    };
}

parts! {
    nvjpegCreateEx: create;
    nvjpegDestroy: end;
    nvjpegSetDeviceMemoryPadding: set_padding;
    nvjpegGetDeviceMemoryPadding: plain;
    nvjpegSetPinnedMemoryPadding: set_padding;
    nvjpegGetPinnedMemoryPadding: plain;
    nvjpegGetHardwareDecoderInfo: plain;
    nvjpegGetHardwareEncoderInfo: plain;
    gpgpuJpegBytes: jpegs::begin;
    gpgpuJpegBytesFill: jpegs::fill;
    gpgpuJpegBytesEnd: end;
    nvjpegJpegStateCreate: make;
    nvjpegJpegStateDestroy: end;
    nvjpegGetImageInfo: jpegs::info;
    nvjpegDecode: jpegs::decode;
    nvjpegDecodeBatchedInitialize: initialize;
    nvjpegDecodeBatchedPreAllocate: preallocate;
    nvjpegDecodeBatchedParseJpegTables: jpegs::parse_tables_of_batch;
    nvjpegDecodeBatched: jpegs::decode_batch;
    nvjpegDecodeBatchedEx: jpegs::decode_batch;
    nvjpegEncoderStateCreate: make;
    nvjpegEncoderStateCreateWithBackend: make;
    nvjpegEncoderStateDestroy: end;
    nvjpegEncoderParamsCreate: make;
    nvjpegEncoderParamsDestroy: end;
    nvjpegEncoderParamsSetQuality: plain;
    nvjpegEncoderParamsSetEncoding: plain;
    nvjpegEncoderParamsSetOptimizedHuffman: plain;
    nvjpegEncoderParamsSetSamplingFactors: plain;
    nvjpegEncoderParamsSetRestartInterval: plain;
    nvjpegEncoderParamsCopyMetadata: plain;
    nvjpegEncoderParamsCopyQuantizationTables: plain;
    nvjpegEncoderParamsCopyHuffmanTables: plain;
    nvjpegEncodeGetBufferSize: of_size;
    nvjpegEncodeYUV: of_size;
    nvjpegEncodeImage: of_size;
    nvjpegEncode: of_size;
    nvjpegEncodeRetrieveBitstream: jpegs::retrieve;
    nvjpegEncodeRetrieveBitstreamDevice: plain;
    nvjpegBufferPinnedCreate: |call, words| make_buffer(call, words, "nvjpegBufferPinnedCreateV2", Allocators::pinned);
    nvjpegBufferPinnedResize: resize;
    nvjpegBufferPinnedDestroy: end;
    nvjpegBufferDeviceCreate: |call, words| make_buffer(call, words, "nvjpegBufferDeviceCreateV2", Allocators::device);
    nvjpegBufferDeviceResize: resize;
    nvjpegBufferDeviceRetrieve: plain;
    nvjpegBufferDeviceDestroy: end;
    nvjpegStateAttachPinnedBuffer: plain;
    nvjpegStateAttachDeviceBuffer: plain;
    nvjpegJpegStreamCreate: make;
    nvjpegJpegStreamDestroy: end;
    nvjpegJpegStreamParse: jpegs::parse;
    nvjpegJpegStreamParseHeader: jpegs::parse;
    nvjpegJpegStreamParseTables: jpegs::parse;
    nvjpegJpegStreamGetJpegEncoding: plain;
    nvjpegJpegStreamGetFrameDimensions: plain;
    nvjpegJpegStreamGetComponentsNum: plain;
    nvjpegJpegStreamGetComponentDimensions: component;
    nvjpegJpegStreamGetExifOrientation: plain;
    nvjpegJpegStreamGetSamplePrecision: plain;
    nvjpegJpegStreamGetChromaSubsampling: plain;
    nvjpegDecodeParamsCreate: make;
    nvjpegDecodeParamsDestroy: end;
    nvjpegDecodeParamsSetOutputFormat: plain;
    nvjpegDecodeParamsSetROI: set_region;
    nvjpegDecodeParamsSetAllowCMYK: plain;
    nvjpegDecodeParamsSetScaleFactor: plain;
    nvjpegDecodeParamsSetExifOrientation: plain;
    nvjpegDecoderCreate: make_decoder;
    nvjpegDecoderDestroy: end;
    nvjpegDecoderJpegSupported: plain;
    nvjpegDecodeBatchedSupported: plain;
    nvjpegDecodeBatchedSupportedEx: plain;
    nvjpegDecoderStateCreate: make;
    nvjpegDecodeJpeg: plain;
    nvjpegDecodeJpegHost: plain;
    nvjpegDecodeJpegTransferToDevice: plain;
    nvjpegDecodeJpegDevice: plain;
}

/// The maximum number of host threads that decode a batch, whatever the guest requests.
const MOST_THREADS: u64 = 16;

/// The start of the names of functions that parse into a stream.
const PARSE: &str = "nvjpegJpegStreamParse";

/// The maximum number of rows or columns of a JPEG.
const MOST_SIDE: i32 = 65_535;

/// An `int` argument.
fn int(word: u64) -> i32 {
    word as i32
}

/// Calls a function whose arguments are all words. No other call uses its objects at the same time.
fn plain(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    with_objects(call, &[], |call, _| {
        host(call.function.operation.name, words)
    })
}

/// Locks the objects of a call, and others with these ids, during `body`, which calls the library.
fn with_objects<T>(
    call: &mut Call<'_>,
    others: &[u64],
    body: impl FnOnce(&mut Call<'_>, &mut Locked<'_>) -> Step<T>,
) -> Step<T> {
    let named = Named::of(call, others)?;
    let mut locked = named.lock(call.session)?;
    if !call.function.operation.name.starts_with(PARSE) {
        locked.check_parsed()?;
    }
    let old = locked.connect();
    let done = body(call, &mut locked);
    // The library no longer uses them now.
    drop(locked);
    drop(old);
    done
}

/// Makes a handle, which allocates by the worker's functions.
fn create(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    if DEVICE_BACKENDS.contains(&int(words[1])) {
        return Err(status::NOT_SUPPORTED);
    }
    let session = call.session;
    let context = session.entered();
    let device = current_gpu().map_err(|code| call.statuses().of_code(code))?;
    let allocators = Allocators::new(
        session.device_memory,
        session.charges,
        device as CUdevice,
        session.objects.home(context),
        session.jpegs.pins.clone(),
    );
    let (backend, flags) = (words[1], words[2]);
    let all = [
        backend,
        allocators.device(),
        allocators.pinned(),
        flags,
        words[0],
    ];
    match call.call_library("nvjpegCreateExV2", &[Kind::I64; 5], &all) {
        SUCCESS => {}
        other => return Err(other),
    }
    let mut object = Object::new(Class::NvjpegHandle, made(words[0]), context);
    object.allocators = Some(allocators);
    session.jpegs.insert(call.word(0), object);
    Ok(())
}

/// The pointer that the library has written for a new object.
fn made(at: u64) -> u64 {
    // SAFETY: the creator of an object passes a pointer to a word.
    unsafe { *(at as *const u64) }
}

/// Ends an object for the guest.
fn end(call: &mut Call<'_>, _: &[u64]) -> Step<()> {
    let (at, _) = call.function.ends().ok_or(status::INTERNAL_ERROR)?;
    call.session.jpegs.remove(call.word(at));
    Ok(())
}

/// Makes an object with a handle.
fn make(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    make_by(call, words, |call, _| {
        host(call.function.operation.name, words)
    })
}

/// The same for a decoder, whose backend must be one that takes bytes.
fn make_decoder(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    match DEVICE_BACKENDS.contains(&int(words[1])) {
        true => Err(status::NOT_SUPPORTED),
        false => make(call, words),
    }
}

/// The same for a buffer, which gets an allocator of its handle.
fn make_buffer(
    call: &mut Call<'_>,
    words: &[u64],
    name: &'static str,
    allocator: fn(&Allocators) -> u64,
) -> Step<()> {
    make_by(call, words, |_, named| {
        let handle = named.handle().ok_or(status::INTERNAL_ERROR)?;
        let handle = named.get(handle)?;
        let allocators = handle.allocators.as_ref().ok_or(status::INTERNAL_ERROR)?;
        host(name, &[words[0], allocator(allocators), words[1]])
    })
}

/// Makes an object by `body`, and records it with the objects with which it was made.
fn make_by(
    call: &mut Call<'_>,
    words: &[u64],
    body: impl FnOnce(&mut Call<'_>, &Named) -> Step<()>,
) -> Step<()> {
    let (at, class) = call.function.makes().ok_or(status::INTERNAL_ERROR)?;
    let named = Named::of(call, &[])?;
    {
        let _locked = named.lock(call.session)?;
        body(call, &named)?;
    }
    let mut object = Object::new(class, made(words[at]), named.context);
    object.made_with = named.into_objects();
    call.session.jpegs.insert(call.word(at), object);
    Ok(())
}

/// Sets the unit to which a handle rounds up its allocations.
fn set_padding(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    // The library adds it to sizes, so a large value could overflow.
    match words[0] {
        ..=MOST_PADDING => plain(call, words),
        _ => Err(status::INVALID_PARAMETER),
    }
}

/// Resizes a buffer.
fn resize(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    // The library adds to it, so a large value could overflow.
    match words[1] {
        size if size >> 48 == 0 => plain(call, words),
        _ => Err(status::ALLOCATOR_FAILURE),
    }
}

/// Calls a function with the width and height of a JPEG.
fn of_size(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    check_sides(call)?;
    plain(call, words)
}

/// Checks the arguments that are a width and a height.
fn check_sides(call: &Call<'_>) -> Step<()> {
    let arguments = call.function.operation.description().arguments;
    let sides = arguments.iter().enumerate();
    let mut sides = sides.filter(|(_, of)| matches!(of.name, "width" | "height"));
    match sides.all(|(at, _)| (1..=MOST_SIDE).contains(&int(call.word(at)))) {
        true => Ok(()),
        false => Err(status::INVALID_PARAMETER),
    }
}

/// Returns the size of a component.
fn component(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    match int(words[1]) as u32 as usize {
        ..COMPONENTS => plain(call, words),
        _ => Err(status::INVALID_PARAMETER),
    }
}

/// Sets the region of a JPEG that is decoded. A side of -1 is the whole side.
fn set_region(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let [x, y, width, height] = [1, 2, 3, 4].map(|at| int(words[at]));
    let is_place = |of| (0..=MOST_SIDE).contains(&of);
    let is_side = |of| of == -1 || (1..=MOST_SIDE).contains(&of);
    match is_place(x) && is_place(y) && is_side(width) && is_side(height) {
        true => plain(call, words),
        false => Err(status::INVALID_PARAMETER),
    }
}

/// The number of images in an argument.
fn images(word: u64) -> Step<usize> {
    let count = usize::try_from(int(word)).ok();
    let count = count.filter(|count| (1..=MOST_IMAGES).contains(count));
    count.ok_or(status::INVALID_PARAMETER)
}

/// Sets the batch size of a state.
fn initialize(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (count, state) = (images(words[2])?, call.word(1));
    let mut all = words.to_vec();
    if int(words[3]) > MOST_THREADS as i32 {
        all[3] = MOST_THREADS;
    }
    with_objects(call, &[], |call, locked| {
        let own = locked.own(state)?;
        // Even if the library fails, it may have stored the number.
        (own.batch, own.most) = (0, own.most.max(count));
        host(call.function.operation.name, &all)?;
        own.batch = count;
        Ok(())
    })
}

/// Makes a state allocate memory before its batches.
fn preallocate(call: &mut Call<'_>, words: &[u64]) -> Step<()> {
    let (count, state) = (images(words[2])?, call.word(1));
    check_sides(call)?;
    with_objects(call, &[], |call, locked| {
        let own = locked.own(state)?;
        own.most = own.most.max(count);
        host(call.function.operation.name, words)
    })
}

/// The bytes of an argument, taken out of the call. Their address does not change.
fn take_bytes(call: &mut Call<'_>, at: usize) -> Vec<u8> {
    match call.values.get_mut(at) {
        Some(Value::Bytes(bytes, _)) => std::mem::take(bytes),
        _ => Vec::new(),
    }
}
