// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! JPEGs through the C interface: encoded out of device memory, and decoded into it.
#![allow(missing_docs)]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use gpgpu_stand_in::{call, ok, testing::Libraries};
use software_nvjpeg::types::Image;

static LIBRARIES: Libraries = Libraries::new("libsoftware_nvjpeg.so");

const WIDTH: usize = 40;
const HEIGHT: usize = 24;

type Raw = *mut c_void;

/// Smooth planes, which a JPEG keeps well.
fn planes() -> [Vec<u8>; 3] {
    let places = || (0..HEIGHT).flat_map(|y| (0..WIDTH).map(move |x| (x, y)));
    [
        places().map(|(x, _)| 40 + 4 * x as u8).collect(),
        places().map(|(_, y)| 200 - 5 * y as u8).collect(),
        places().map(|(x, y)| 60 + (x + y) as u8).collect(),
    ]
}

fn image(channels: &[Vec<u8>], row: usize) -> Image {
    let mut image = Image {
        channel: [0; 4],
        pitch: [row as u64; 4],
    };
    for (to, channel) in image.channel.iter_mut().zip(channels) {
        *to = LIBRARIES.upload(channel);
    }
    image
}

fn handle() -> Raw {
    LIBRARIES.enter();
    let mut handle: Raw = null_mut();
    ok!(LIBRARIES, "nvjpegCreateSimple"; &mut handle);
    handle
}

/// Encodes an image of these settings.
fn encode(handle: Raw, image: &Image, format: c_int, settings: &[(&str, c_int)]) -> Vec<u8> {
    let (mut state, mut params): (Raw, Raw) = (null_mut(), null_mut());
    let stream: Raw = null_mut();
    ok!(LIBRARIES, "nvjpegEncoderStateCreate"; handle, &mut state, stream);
    ok!(LIBRARIES, "nvjpegEncoderParamsCreate"; handle, &mut params, stream);
    for (name, value) in settings {
        ok!(LIBRARIES, name; params, *value, stream);
    }
    let (width, height) = (WIDTH as c_int, HEIGHT as c_int);
    ok!(LIBRARIES, "nvjpegEncode"; handle, state, params, image, 0, format, width, height, stream);
    let mut length = 0_usize;
    ok!(LIBRARIES, "nvjpegEncodeRetrieveBitstream"; handle, state, null_mut::<u8>(), &mut length, stream);
    let mut bytes = vec![0_u8; length];
    ok!(LIBRARIES, "nvjpegEncodeRetrieveBitstream"; handle, state, bytes.as_mut_ptr(), &mut length, stream);
    ok!(LIBRARIES, "nvjpegEncoderParamsDestroy"; params);
    ok!(LIBRARIES, "nvjpegEncoderStateDestroy"; state);
    bytes
}

fn decode(handle: Raw, jpeg: &[u8], format: c_int, to: &Image) -> c_int {
    let (mut state, stream): (Raw, Raw) = (null_mut(), null_mut());
    ok!(LIBRARIES, "nvjpegJpegStateCreate"; handle, &mut state);
    let said = call!(LIBRARIES, "nvjpegDecode"; handle, state, jpeg.as_ptr(), jpeg.len(), format, to, stream);
    ok!(LIBRARIES, "nvjpegJpegStateDestroy"; state);
    said
}

#[track_caller]
fn assert_near(found: &[u8], right: &[u8], within: u8) {
    assert_eq!(found.len(), right.len());
    let far = found
        .iter()
        .zip(right)
        .position(|(a, b)| a.abs_diff(*b) > within);
    assert_eq!(far.map(|at| (at, found[at], right[at])), None);
}

#[test]
fn what_is_encoded_is_decoded_whatever_the_settings_and_formats() {
    let (handle, planes) = (handle(), planes());
    let source = image(&planes, WIDTH);
    let interleaved: Vec<u8> = (0..WIDTH * HEIGHT)
        .flat_map(|at| [planes[2][at], planes[1][at], planes[0][at]])
        .collect();
    let bgr = image(&[interleaved], 3 * WIDTH);
    for (image_of, format) in [(&source, 3), (&bgr, 6)] {
        for (sampling, encoding, within) in [(0, 0xc0, 4), (2, 0xc0, 12), (1, 0xc2, 12)] {
            let settings = [
                ("nvjpegEncoderParamsSetQuality", 98),
                ("nvjpegEncoderParamsSetSamplingFactors", sampling),
                ("nvjpegEncoderParamsSetEncoding", encoding),
                ("nvjpegEncoderParamsSetOptimizedHuffman", 1),
                ("nvjpegEncoderParamsSetRestartInterval", 0),
            ];
            let jpeg = encode(handle, image_of, format, &settings);
            let back = image(
                &[
                    vec![0; WIDTH * HEIGHT],
                    vec![0; WIDTH * HEIGHT],
                    vec![0; WIDTH * HEIGHT],
                ],
                WIDTH,
            );
            assert_eq!(decode(handle, &jpeg, 3, &back), 0);
            for (at, plane) in planes.iter().enumerate() {
                let found = LIBRARIES.download::<u8>(back.channel[at], WIDTH * HEIGHT);
                assert_near(&found, plane, within);
            }
            let whole = image(&[vec![0; 3 * WIDTH * HEIGHT]], 3 * WIDTH);
            assert_eq!(decode(handle, &jpeg, 6, &whole), 0);
            let found = LIBRARIES.download::<u8>(whole.channel[0], 3 * WIDTH * HEIGHT);
            let red: Vec<u8> = found.iter().skip(2).step_by(3).copied().collect();
            assert_near(&red, &planes[0], within);
        }
    }
    ok!(LIBRARIES, "nvjpegDestroy"; handle);
}

#[test]
fn components_have_their_own_sizes() {
    let handle = handle();
    let chroma = vec![100_u8; WIDTH * HEIGHT];
    let luma = vec![150_u8; WIDTH * HEIGHT];
    let source = image(&[luma, chroma.clone(), chroma], WIDTH);
    let settings = [("nvjpegEncoderParamsSetSamplingFactors", 2)];
    let jpeg = encode(handle, &source, 1, &settings);
    let (mut count, mut sampling, mut widths, mut heights) = (0, 0, [0; 4], [0; 4]);
    ok!(LIBRARIES, "nvjpegGetImageInfo"; handle, jpeg.as_ptr(), jpeg.len(), &mut count, &mut sampling, widths.as_mut_ptr(), heights.as_mut_ptr());
    assert_eq!((count, sampling), (3, 2));
    assert_eq!((widths, heights), ([40, 20, 20, 0], [24, 12, 12, 0]));
    let back = image(&[vec![0; 960], vec![0; 960], vec![0; 960]], WIDTH);
    assert_eq!(decode(handle, &jpeg, 1, &back), 0);
    assert_near(
        &LIBRARIES.download::<u8>(back.channel[0], 960),
        &[150; 960],
        3,
    );
    let found = LIBRARIES.download::<u8>(back.channel[1], 960);
    // Rows of 20 of the 40 bytes.
    assert_near(&found[..20], &[100; 20], 3);
    assert_near(&found[11 * 40..11 * 40 + 20], &[100; 20], 3);
    assert_eq!(found[20..40], [0; 20]);
    assert_eq!(found[12 * 40..], [0; 480]);
    ok!(LIBRARIES, "nvjpegDestroy"; handle);
}

#[test]
fn what_is_none_is_refused() {
    let handle = handle();
    let to = image(&[vec![0; 64]], 8);
    assert_eq!(decode(handle, b"no JPEG", 2, &to), 3);
    let mut made: Raw = null_mut();
    let nothing = null::<c_void>();
    assert_eq!(
        call!(LIBRARIES, "nvjpegCreateEx"; 3, nothing, nothing, 0_u32, &mut made),
        7
    );
    assert_eq!(
        call!(LIBRARIES, "nvjpegCreateEx"; 77, nothing, nothing, 0_u32, &mut made),
        2
    );
    for none in [null_mut(), made, 8 as Raw] {
        assert_eq!(call!(LIBRARIES, "nvjpegDestroy"; none), 2);
        assert_eq!(call!(LIBRARIES, "nvjpegJpegStateDestroy"; none), 2);
    }
    // A file of few bytes that declares four thousand million pixels.
    let huge = [
        0xff, 0xd8, 0xff, 0xc0, 0, 11, 8, 0xff, 0xff, 0xff, 0xff, 1, 1, 0x11, 0,
    ];
    assert_eq!(decode(handle, &huge, 2, &to), 5);
    ok!(LIBRARIES, "nvjpegDestroy"; handle);
    assert_eq!(call!(LIBRARIES, "nvjpegDestroy"; handle), 2);
}
