// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that decode and encode with nvJPEG, by its symbols.

use std::ptr::{null, null_mut};

use cudarc::driver::sys::{self, CUresult};
use libloading::Library;

use crate::device::{begin, call, cuda, download, new_stream, ok, synchronize, upload};

/// 24 by 16 pixels: a third each is red, green and blue. Chroma is subsampled by two in both directions.
const THIRDS: &[u8] = include_bytes!("thirds.jpg");
const WIDTH: usize = 24;
const HEIGHT: usize = 16;
const COLORS: [[u8; 3]; 3] = [[200, 40, 40], [40, 200, 40], [40, 40, 200]];

/// Statuses of nvJPEG.
const INVALID_PARAMETER: u32 = 2;
const BAD_JPEG: u32 = 3;
const ALLOCATOR_FAILURE: u32 = 5;
const ARCH_MISMATCH: u32 = 7;
const NOT_SUPPORTED: u32 = 9;

/// Formats.
const UNCHANGED: i32 = 0;
const LUMA: i32 = 2;
const RGB: i32 = 3;
const RGB_INTERLEAVED: i32 = 5;

type Raw = *mut u8;

/// An `nvjpegImage_t`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Image {
    channel: [u64; 4],
    pitch: [u64; 4],
}

impl Image {
    /// Memory for channels with rows of these sizes.
    fn new(rows: &[usize], height: usize) -> Self {
        let mut image = Self::default();
        for (at, row) in rows.iter().enumerate() {
            image.channel[at] = upload(&vec![7_u8; row * height]);
            image.pitch[at] = *row as u64;
        }
        image
    }

    fn of_size(width: usize, height: usize) -> Self {
        Self::new(&[width; 3], height)
    }

    /// The bytes of a channel.
    fn bytes(&self, channel: usize, height: usize) -> Vec<u8> {
        download(self.channel[channel], self.pitch[channel] as usize * height)
    }

    /// The three colors of a planar image.
    fn planes(&self, height: usize) -> [Vec<u8>; 3] {
        [0, 1, 2].map(|at| self.bytes(at, height))
    }
}

fn open() -> Library {
    crate::calls::open("libnvjpeg.so.13")
}

fn simple(jpeg: &Library) -> Raw {
    let mut handle: Raw = null_mut();
    ok!(jpeg, "nvjpegCreateSimple"; &mut handle);
    handle
}

/// An object that a function makes from a handle.
fn make(jpeg: &Library, name: &str, handle: Raw) -> Raw {
    let mut made: Raw = null_mut();
    ok!(jpeg, name; handle, &mut made);
    made
}

#[track_caller]
fn assert_near(found: &[u8], right: &[u8], within: u8, what: &str) {
    assert_eq!(found.len(), right.len(), "{what}");
    let far = found
        .iter()
        .zip(right)
        .position(|(a, b)| a.abs_diff(*b) > within);
    if let Some(at) = far {
        panic!("{what}: {} and not {} at {at}", found[at], right[at]);
    }
}

/// Checks the colors of the known image in the middle of the thirds.
#[track_caller]
fn assert_thirds(planes: &[Vec<u8>; 3]) {
    for (third, color) in COLORS.iter().enumerate() {
        for y in [2, 8, 13] {
            let at = y * WIDTH + 8 * third + 4;
            let found = [0, 1, 2].map(|plane: usize| planes[plane][at]);
            assert_near(&found, color, 12, &format!("third {third}"));
        }
    }
}

fn decode(jpeg: &Library, handle: Raw, state: Raw, data: &[u8], format: i32, to: &Image) -> u32 {
    let stream = null_mut::<u8>();
    call!(jpeg, "nvjpegDecode"; handle, state, data.as_ptr(), data.len(), format, to, stream)
}

/// Decodes each image in one call, in all formats; also makes calls that are refused.
pub fn decoding() {
    begin();
    let jpeg = open();
    let mut major = 0;
    ok!(jpeg, "nvjpegGetProperty"; 0, &mut major);
    assert!(major >= 12, "{major}");
    ok!(jpeg, "nvjpegGetCudartProperty"; 0, &mut major);
    assert!(major >= 12, "{major}");
    let handle = simple(&jpeg);
    let (mut count, mut sampling, mut widths, mut heights) = (0, -9, [9; 4], [9; 4]);
    ok!(jpeg, "nvjpegGetImageInfo"; handle, THIRDS.as_ptr(), THIRDS.len(), &mut count, &mut sampling, &mut widths, &mut heights);
    assert_eq!((count, sampling), (3, 2));
    assert_eq!((widths, heights), ([24, 12, 12, 0], [16, 8, 8, 0]));
    let state = make(&jpeg, "nvjpegJpegStateCreate", handle);
    let planar = Image::of_size(WIDTH, HEIGHT);
    assert_eq!(decode(&jpeg, handle, state, THIRDS, RGB, &planar), 0);
    let planes = planar.planes(HEIGHT);
    assert_thirds(&planes);
    let whole = Image::new(&[3 * WIDTH], HEIGHT);
    assert_eq!(
        decode(&jpeg, handle, state, THIRDS, RGB_INTERLEAVED, &whole),
        0
    );
    let pixels = whole.bytes(0, HEIGHT);
    for (at, plane) in planes.iter().enumerate() {
        let of: Vec<u8> = pixels.iter().skip(at).step_by(3).copied().collect();
        assert_near(&of, plane, 1, "interleaved");
    }
    let luma = Image::new(&[WIDTH], HEIGHT);
    assert_eq!(decode(&jpeg, handle, state, THIRDS, LUMA, &luma), 0);
    let components = Image::of_size(WIDTH, HEIGHT);
    assert_eq!(
        decode(&jpeg, handle, state, THIRDS, UNCHANGED, &components),
        0
    );
    assert_near(
        &luma.bytes(0, HEIGHT),
        &components.bytes(0, HEIGHT),
        2,
        "luma",
    );
    // Data that is no JPEG, or only the beginning of one.
    for bad in [&b"no JPEG at all"[..], &THIRDS[1..], &THIRDS[..20]] {
        let said = decode(&jpeg, handle, state, bad, RGB, &planar);
        assert!(said != 0, "{said}");
    }
    assert_eq!(
        decode(&jpeg, handle, state, b"no JPEG at all", RGB, &planar),
        BAD_JPEG
    );
    // No bytes, no image, other objects, and destroyed ones.
    let none = null::<u8>();
    let other = make(&jpeg, "nvjpegJpegStreamCreate", handle);
    let said =
        call!(jpeg, "nvjpegDecode"; handle, state, none, 8_usize, RGB, &planar, null_mut::<u8>());
    assert_eq!(said, INVALID_PARAMETER);
    let said = call!(jpeg, "nvjpegDecode"; handle, state, THIRDS.as_ptr(), THIRDS.len(), RGB, none, null_mut::<u8>());
    assert_eq!(said, INVALID_PARAMETER);
    for wrong in [null_mut(), other, handle, 0x1e1 as Raw] {
        assert_eq!(
            decode(&jpeg, handle, wrong, THIRDS, RGB, &planar),
            INVALID_PARAMETER
        );
    }
    for wrong in [null_mut(), other, state, 0x1e0 as Raw] {
        assert_eq!(
            decode(&jpeg, wrong, state, THIRDS, RGB, &planar),
            INVALID_PARAMETER
        );
    }
    ok!(jpeg, "nvjpegJpegStateDestroy"; state);
    assert_eq!(
        decode(&jpeg, handle, state, THIRDS, RGB, &planar),
        INVALID_PARAMETER
    );
    assert_eq!(
        call!(jpeg, "nvjpegJpegStateDestroy"; state),
        INVALID_PARAMETER
    );
    // The program's allocators, JPEGs on the device, and host memory.
    let mut refused: Raw = null_mut();
    let allocator = [0_usize; 2];
    let said = call!(jpeg, "nvjpegCreateEx"; 0, &allocator, null::<u8>(), 0_u32, &mut refused);
    assert_eq!(said, NOT_SUPPORTED);
    let said = call!(jpeg, "nvjpegCreateEx"; 4, null::<u8>(), null::<u8>(), 0_u32, &mut refused);
    assert_eq!(said, NOT_SUPPORTED);
    let (mut buffer, mut size) = (null_mut::<u8>(), 0_usize);
    ok!(jpeg, "nvjpegBufferPinnedCreate"; handle, null::<u8>(), &mut buffer);
    let said = call!(jpeg, "nvjpegBufferPinnedRetrieve"; buffer, &mut size, &mut refused);
    assert_eq!(said, NOT_SUPPORTED);
    ok!(jpeg, "nvjpegBufferPinnedDestroy"; buffer);
    assert!(refused.is_null());
    // The stream refers to its handle, which is destroyed first.
    ok!(jpeg, "nvjpegDestroy"; handle);
    let mut precision = 0;
    assert_ne!(
        call!(jpeg, "nvjpegJpegStreamGetSamplePrecision"; other, &mut precision),
        0
    );
    ok!(jpeg, "nvjpegJpegStreamDestroy"; other);
    assert_eq!(call!(jpeg, "nvjpegDestroy"; handle), INVALID_PARAMETER);
}

/// The objects with which a program decodes step by step.
struct Steps<'a> {
    jpeg: &'a Library,
    handle: Raw,
    decoder: Raw,
    state: Raw,
    stream: Raw,
    params: Raw,
    pinned: Raw,
    device: Raw,
}

impl<'a> Steps<'a> {
    fn new(jpeg: &'a Library, handle: Raw) -> Self {
        let (mut decoder, mut state) = (null_mut(), null_mut());
        ok!(jpeg, "nvjpegDecoderCreate"; handle, 0, &mut decoder);
        ok!(jpeg, "nvjpegDecoderStateCreate"; handle, decoder, &mut state);
        let (mut pinned, mut device) = (null_mut(), null_mut());
        ok!(jpeg, "nvjpegBufferPinnedCreate"; handle, null::<u8>(), &mut pinned);
        ok!(jpeg, "nvjpegBufferDeviceCreate"; handle, null::<u8>(), &mut device);
        Self {
            jpeg,
            handle,
            decoder,
            state,
            stream: make(jpeg, "nvjpegJpegStreamCreate", handle),
            params: make(jpeg, "nvjpegDecodeParamsCreate", handle),
            pinned,
            device,
        }
    }

    fn parse(&self, data: &[u8]) {
        let (jpeg, handle, stream) = (self.jpeg, self.handle, self.stream);
        // The program's copy is freed before the bytes are read.
        let mut copy = data.to_vec();
        ok!(jpeg, "nvjpegJpegStreamParse"; handle, copy.as_ptr(), copy.len(), 0, 0, stream);
        copy.fill(0);
    }

    fn host(&self) -> u32 {
        call!(self.jpeg, "nvjpegDecodeJpegHost"; self.handle, self.decoder, self.state, self.params, self.stream)
    }

    fn device(&self, to: &Image, stream: sys::CUstream) {
        let jpeg = self.jpeg;
        ok!(jpeg, "nvjpegDecodeJpegTransferToDevice"; self.handle, self.decoder, self.state, self.stream, stream);
        ok!(jpeg, "nvjpegDecodeJpegDevice"; self.handle, self.decoder, self.state, to, stream);
    }
}

/// A handle that uses the GPU's engines, or another one if there are none.
fn hardware(jpeg: &Library) -> Raw {
    let (mut handle, none) = (null_mut(), null::<u8>());
    let said = call!(jpeg, "nvjpegCreateEx"; 3, none, none, 0_u32, &mut handle);
    if said != 0 {
        assert_eq!(said, ARCH_MISMATCH);
        ok!(jpeg, "nvjpegCreateEx"; 0, none, none, 0_u32, &mut handle);
    }
    handle
}

/// The steps on the host and on the device; also objects that are destroyed before those that use them.
pub fn steps() {
    begin();
    let jpeg = open();
    let handle = hardware(&jpeg);
    let of = Steps::new(&jpeg, handle);
    ok!(jpeg, "nvjpegDecodeParamsSetOutputFormat"; of.params, RGB);
    // Without buffers decoding is impossible: the genuine library reports this, and the stand-in needs none.
    ok!(jpeg, "nvjpegStateAttachDeviceBuffer"; of.state, of.device);
    let streams = [null_mut(), new_stream()];
    for stream in streams {
        of.parse(THIRDS);
        let (mut width, mut height, mut count) = (0_u32, 0_u32, 0_u32);
        ok!(jpeg, "nvjpegJpegStreamGetFrameDimensions"; of.stream, &mut width, &mut height);
        assert_eq!((width, height), (24, 16));
        ok!(jpeg, "nvjpegJpegStreamGetComponentDimensions"; of.stream, 1_u32, &mut width, &mut height);
        assert_eq!((width, height), (12, 8));
        let said = call!(jpeg, "nvjpegJpegStreamGetComponentDimensions"; of.stream, 9_u32, &mut width, &mut height);
        assert_eq!(said, INVALID_PARAMETER);
        ok!(jpeg, "nvjpegJpegStreamGetComponentsNum"; of.stream, &mut count);
        assert_eq!(count, 3);
        let (mut encoding, mut sampling, mut supported) = (0, 0, 9);
        ok!(jpeg, "nvjpegJpegStreamGetJpegEncoding"; of.stream, &mut encoding);
        assert_eq!(encoding, 0xc0);
        ok!(jpeg, "nvjpegJpegStreamGetChromaSubsampling"; of.stream, &mut sampling);
        assert_eq!(sampling, 2);
        ok!(jpeg, "nvjpegDecoderJpegSupported"; of.decoder, of.stream, of.params, &mut supported);
        assert_eq!(supported, 0);
        ok!(jpeg, "nvjpegStateAttachPinnedBuffer"; of.state, of.pinned);
        assert_eq!(of.host(), 0);
        let image = Image::of_size(WIDTH, HEIGHT);
        of.device(&image, stream);
        synchronize();
        assert_thirds(&image.planes(HEIGHT));
    }
    // A part of the image.
    ok!(jpeg, "nvjpegDecodeParamsSetROI"; of.params, 8, 4, 8, 8);
    let said = call!(jpeg, "nvjpegDecodeParamsSetROI"; of.params, -8, 4, 8, 8);
    assert_eq!(said, INVALID_PARAMETER);
    assert_eq!(of.host(), 0);
    let part = Image::of_size(8, 8);
    of.device(&part, null_mut());
    let found = part.planes(8).map(|plane| plane[3 * 8 + 4]);
    assert_near(&found, &COLORS[1], 12, "a part");
    ok!(jpeg, "nvjpegDecodeParamsSetROI"; of.params, 0, 0, -1, -1);
    // Everything that the state refers to is destroyed first, and so is the handle; but the state still has them.
    of.parse(THIRDS);
    assert_eq!(of.host(), 0);
    ok!(jpeg, "nvjpegBufferPinnedDestroy"; of.pinned);
    ok!(jpeg, "nvjpegBufferDeviceDestroy"; of.device);
    ok!(jpeg, "nvjpegDecodeParamsDestroy"; of.params);
    assert_eq!(of.host(), INVALID_PARAMETER);
    let image = Image::of_size(WIDTH, HEIGHT);
    of.device(&image, null_mut());
    assert_thirds(&image.planes(HEIGHT));
    ok!(jpeg, "nvjpegDestroy"; handle);
    ok!(jpeg, "nvjpegJpegStreamDestroy"; of.stream);
    ok!(jpeg, "nvjpegDecoderDestroy"; of.decoder);
    ok!(jpeg, "nvjpegJpegStateDestroy"; of.state);
}

/// Batches, whose arrays have the length that the state was initialised with.
pub fn batches() {
    begin();
    let jpeg = open();
    let handle = simple(&jpeg);
    let state = make(&jpeg, "nvjpegJpegStateCreate", handle);
    // NVIDIA's library takes parameters of a batch only with the GPU's engines.
    let engines = hardware(&jpeg);
    let with_params = make(&jpeg, "nvjpegJpegStateCreate", engines);
    let stream = new_stream();
    for count in [3_usize, 1, 5] {
        let copies = vec![THIRDS.to_vec(); count];
        let data: Vec<_> = copies.iter().map(|of| of.as_ptr()).collect();
        let lengths = vec![THIRDS.len(); count];
        let images: Vec<_> = (0..count).map(|_| Image::of_size(WIDTH, HEIGHT)).collect();
        let decode = || call!(jpeg, "nvjpegDecodeBatched"; handle, state, data.as_ptr(), lengths.as_ptr(), images.as_ptr(), stream);
        if count == 3 {
            // The state was not initialised yet.
            assert_eq!(decode(), INVALID_PARAMETER);
        }
        ok!(jpeg, "nvjpegDecodeBatchedInitialize"; handle, state, count as i32, 1 << 30, RGB);
        assert_eq!(decode(), 0);
        synchronize();
        for image in &images {
            assert_thirds(&image.planes(HEIGHT));
        }
        ok!(jpeg, "nvjpegDecodeBatchedInitialize"; engines, with_params, count as i32, 1, RGB);
        let params = vec![make(&jpeg, "nvjpegDecodeParamsCreate", engines); count];
        ok!(jpeg, "nvjpegDecodeParamsSetOutputFormat"; params[0], RGB);
        let images: Vec<_> = (0..count).map(|_| Image::of_size(WIDTH, HEIGHT)).collect();
        let decode = |params: &[Raw]| call!(jpeg, "nvjpegDecodeBatchedEx"; engines, with_params, data.as_ptr(), lengths.as_ptr(), images.as_ptr(), params.as_ptr(), stream);
        assert_eq!(decode(&params), 0);
        synchronize();
        for image in &images {
            assert_thirds(&image.planes(HEIGHT));
        }
        assert_eq!(decode(&vec![state; count]), INVALID_PARAMETER);
    }
    for wrong in [0, -1, i32::MIN, i32::MAX] {
        let said = call!(jpeg, "nvjpegDecodeBatchedInitialize"; handle, state, wrong, 1, RGB);
        assert_eq!(said, INVALID_PARAMETER, "{wrong}");
    }
    let said = call!(jpeg, "nvjpegSetPinnedMemoryPadding"; usize::MAX, handle);
    assert_eq!(said, INVALID_PARAMETER);
}

/// Pixels that a JPEG of quality 100 compresses little.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 1_u32;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 24) as u8
    };
    (0..count).map(next).collect()
}

/// An encoder that is made from a handle.
struct Encoder<'a> {
    jpeg: &'a Library,
    handle: Raw,
    state: Raw,
    params: Raw,
    stream: sys::CUstream,
}

impl<'a> Encoder<'a> {
    fn new(jpeg: &'a Library, handle: Raw, stream: sys::CUstream) -> Self {
        let (mut state, mut params) = (null_mut(), null_mut());
        ok!(jpeg, "nvjpegEncoderStateCreate"; handle, &mut state, stream);
        ok!(jpeg, "nvjpegEncoderParamsCreate"; handle, &mut params, stream);
        Self {
            jpeg,
            handle,
            state,
            params,
            stream,
        }
    }

    fn set(&self, name: &str, value: i32) -> u32 {
        call!(self.jpeg, name; self.params, value, self.stream)
    }

    fn encode(&self, image: &Image, width: usize, height: usize) -> u32 {
        let size = (width as i32, height as i32);
        call!(self.jpeg, "nvjpegEncodeImage"; self.handle, self.state, self.params, image, RGB, size.0, size.1, self.stream)
    }

    fn retrieve(&self, name: &str, data: u64, length: &mut usize) -> u32 {
        call!(self.jpeg, name; self.handle, self.state, data, length, self.stream)
    }

    /// Encodes to bytes, through the device and through the host. Each has an encoding of its own, because NVIDIA's
    /// library gives the bytes of an encoding once: later, it succeeds and writes nothing.
    fn bytes(&self, image: &Image, width: usize, height: usize) -> Vec<u8> {
        const HOST: &str = "nvjpegEncodeRetrieveBitstream";
        const DEVICE: &str = "nvjpegEncodeRetrieveBitstreamDevice";
        let (mut length, mut again) = (0x7777, 0);
        assert_eq!(self.encode(image, width, height), 0);
        assert_eq!(self.retrieve(DEVICE, 0, &mut length), 0);
        let there = upload(&vec![0_u8; length]);
        let mut given = length;
        assert_eq!(self.retrieve(DEVICE, there, &mut given), 0);
        // The library copies in the encoder's stream.
        synchronize();
        let by_device = download::<u8>(there, length);

        assert_eq!(self.encode(image, width, height), 0);
        assert_eq!(self.retrieve(HOST, 0, &mut again), 0);
        assert_eq!(again, length);
        let mut short = length - 1;
        let mut bytes = vec![0_u8; length + 8];
        let at = bytes.as_mut_ptr() as u64;
        assert_ne!(self.retrieve(HOST, at, &mut short), 0);
        let mut room = length;
        assert_eq!(self.retrieve(HOST, at, &mut room), 0);
        assert_eq!((room, &bytes[length..]), (length, &[0; 8][..]));
        bytes.truncate(length);
        assert!(by_device == bytes);
        bytes
    }
}

/// Encodes an image in device memory and decodes the result, short and long.
pub fn encoding() {
    begin();
    let jpeg = open();
    let handle = simple(&jpeg);
    let encoder = Encoder::new(&jpeg, handle, new_stream());
    let wrong = encoder.set("nvjpegEncoderParamsSetQuality", 0);
    assert_eq!(wrong, INVALID_PARAMETER);
    assert_eq!(encoder.set("nvjpegEncoderParamsSetQuality", 95), 0);
    assert_eq!(encoder.set("nvjpegEncoderParamsSetSamplingFactors", 0), 0);
    assert_eq!(encoder.set("nvjpegEncoderParamsSetOptimizedHuffman", 1), 0);
    let state = make(&jpeg, "nvjpegJpegStateCreate", handle);

    let mut image = Image::of_size(WIDTH, HEIGHT);
    for (plane, at) in image.channel.iter_mut().take(3).enumerate() {
        let pixel = |place: usize| COLORS[place % WIDTH / 8][plane];
        *at = upload(&(0..WIDTH * HEIGHT).map(pixel).collect::<Vec<u8>>());
    }
    for side in [0, -1, 65_536] {
        let size = call!(jpeg, "nvjpegEncodeImage"; handle, encoder.state, encoder.params, &image, RGB, side, 16, encoder.stream);
        assert_eq!(size, INVALID_PARAMETER, "{side}");
    }
    let mut most = 0_usize;
    ok!(jpeg, "nvjpegEncodeGetBufferSize"; handle, encoder.params, WIDTH as i32, HEIGHT as i32, &mut most);
    let bytes = encoder.bytes(&image, WIDTH, HEIGHT);
    assert!(bytes.len() <= most && bytes.starts_with(&[0xff, 0xd8]));
    let back = Image::of_size(WIDTH, HEIGHT);
    assert_eq!(decode(&jpeg, handle, state, &bytes, RGB, &back), 0);
    assert_thirds(&back.planes(HEIGHT));

    // Too long for a request, and for an answer.
    const SIDE: usize = 1600;
    assert_eq!(encoder.set("nvjpegEncoderParamsSetQuality", 100), 0);
    let noise = noise(SIDE * SIDE);
    let mut large = Image::of_size(SIDE, SIDE);
    large.channel = [upload(&noise); 4];
    let bytes = encoder.bytes(&large, SIDE, SIDE);
    assert!(bytes.len() > 2 << 20, "{}", bytes.len());
    let mut long = bytes.clone();
    // Bytes after the end of the image are ignored.
    long.resize(9 << 20, 0);
    let back = Image::new(&[SIDE], SIDE);
    let mut short_way = Vec::new();
    for data in [&bytes, &long] {
        assert_eq!(decode(&jpeg, handle, state, data, LUMA, &back), 0);
        let found = back.bytes(0, SIDE);
        assert_near(&found, &noise, 12, "noise");
        if short_way.is_empty() {
            short_way.clone_from(&found);
        }
        assert!(found == short_way);
    }
    let (images, data) = ([back, Image::new(&[SIDE], SIDE)], [&long, &bytes]);
    let lengths = data.map(Vec::len);
    let data = data.map(|bytes| bytes.as_ptr());
    ok!(jpeg, "nvjpegDecodeBatchedInitialize"; handle, state, 2, 1, LUMA);
    ok!(jpeg, "nvjpegDecodeBatched"; handle, state, &data, &lengths, &images, null_mut::<u8>());
    // A batch may be decoded by another algorithm.
    let found = images.map(|image| image.bytes(0, SIDE));
    assert_near(&found[0], &noise, 12, "noise in a batch");
    assert!(found[0] == found[1]);
    ok!(jpeg, "nvjpegEncoderStateDestroy"; encoder.state);
    ok!(jpeg, "nvjpegEncoderParamsDestroy"; encoder.params);
    ok!(jpeg, "nvjpegJpegStateDestroy"; state);
    ok!(jpeg, "nvjpegDestroy"; handle);
}

/// The library's own memory counts against the limit.
pub fn limit() {
    begin();
    let jpeg = open();
    let handle = simple(&jpeg);
    let free = || {
        let (mut free, mut total) = (0, 0);
        cuda!(cuMemGetInfo_v2(&mut free, &mut total));
        free
    };
    let mut buffer: Raw = null_mut();
    ok!(jpeg, "nvjpegBufferDeviceCreate"; handle, null::<u8>(), &mut buffer);
    let before = free();
    let stream = null_mut::<u8>();
    for size in [before + 1, 1 << 40, 1 << 50, usize::MAX] {
        let said = call!(jpeg, "nvjpegBufferDeviceResize"; buffer, size, stream);
        assert_eq!(said, ALLOCATOR_FAILURE, "{size}");
    }
    let bytes = 16 << 20;
    ok!(jpeg, "nvjpegBufferDeviceResize"; buffer, bytes, stream);
    assert!(free() <= before - bytes, "{} of {before}", free());
    let (mut size, mut address) = (0_usize, 0_u64);
    ok!(jpeg, "nvjpegBufferDeviceRetrieve"; buffer, &mut size, &mut address);
    assert!(size >= bytes && address != 0);
    ok!(jpeg, "nvjpegBufferDeviceDestroy"; buffer);
    assert_eq!(free(), before);
    // A guest cannot pin all of the host's memory either.
    ok!(jpeg, "nvjpegBufferPinnedCreate"; handle, null::<u8>(), &mut buffer);
    let said = call!(jpeg, "nvjpegBufferPinnedResize"; buffer, 3_usize << 30, stream);
    assert_eq!(said, ALLOCATOR_FAILURE);
    ok!(jpeg, "nvjpegBufferPinnedResize"; buffer, bytes, stream);
    // Everything is destroyed with the context.
    ok!(jpeg, "nvjpegBufferDeviceCreate"; handle, null::<u8>(), &mut buffer);
    ok!(jpeg, "nvjpegBufferDeviceResize"; buffer, bytes, stream);
    cuda!(cuDevicePrimaryCtxReset_v2(0));
    begin();
    assert_eq!(
        call!(jpeg, "nvjpegBufferDeviceDestroy"; buffer),
        INVALID_PARAMETER
    );
    let handle = simple(&jpeg);
    assert_eq!(free(), before);
    ok!(jpeg, "nvjpegDestroy"; handle);
}
