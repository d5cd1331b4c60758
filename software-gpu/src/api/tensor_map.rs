// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tensor maps: checked as CUDA documents it, and written down in a form of this device's own. No instruction of this
//! device reads one.

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUtensorMap};

use crate::ffi::{Pointer, Result, export};

/// The first word of this device's maps.
const MAGIC: u64 = u64::from_le_bytes(*b"softtmap");

/// The most dimensions.
const MOST_DIMS: u32 = 5;
/// The widest box.
const MOST_BOX: u32 = 256;
/// The longest column of pixels.
const MOST_PIXELS: u32 = 1024;
/// The longest step.
const MOST_STEP: u32 = 8;

/// `CU_TENSOR_MAP_INTERLEAVE_*`: none, 16 bytes, 32 bytes.
const INTERLEAVE_32: u32 = 2;
/// `CU_TENSOR_MAP_SWIZZLE_*`: none, 32, 64, 128 bytes, and variants of the last.
const SWIZZLE_32: u32 = 1;
const LAST_SWIZZLE: u32 = 6;
/// `CU_TENSOR_MAP_L2_PROMOTION_*`.
const LAST_PROMOTION: u32 = 3;

/// Bytes of an element of each `CUtensorMapDataType`; packed ones of 4 and 6 bits count as a byte.
const ELEMENT_BYTES: [u64; 16] = [1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 1, 1, 1];
/// The types that have a NaN.
const FLOATS: std::ops::RangeInclusive<u32> = 6..=12;
/// The packed ones whose memory is aligned to 32 bytes.
const WIDE: [u32; 2] = [14, 15];

/// A tensor and the requested map.
struct Tensor {
    data_type: u32,
    address: u64,
    dims: Vec<u64>,
    strides: Vec<u64>,
    steps: Vec<u32>,
    interleave: u32,
    swizzle: u32,
    promotion: u32,
    fill: u32,
}

fn require(holds: bool) -> Result {
    match holds {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Tensor {
    fn element(&self) -> u64 {
        ELEMENT_BYTES[self.data_type as usize]
    }

    /// Bytes that addresses and strides are multiples of.
    fn align(&self) -> u64 {
        match self.interleave == INTERLEAVE_32 || WIDE.contains(&self.data_type) {
            true => 32,
            false => 16,
        }
    }

    fn check(&self) -> Result {
        require((self.data_type as usize) < ELEMENT_BYTES.len())?;
        require(self.interleave <= INTERLEAVE_32 && self.swizzle <= LAST_SWIZZLE)?;
        require(self.promotion <= LAST_PROMOTION && self.fill <= 1)?;
        require(self.fill == 0 || FLOATS.contains(&self.data_type))?;
        require(self.interleave == 0 || self.dims.len() >= 3)?;
        require(self.interleave != INTERLEAVE_32 || self.swizzle == SWIZZLE_32)?;
        require(self.address.is_multiple_of(self.align()))?;
        require(self.dims.iter().all(|size| (1..=1 << 32).contains(size)))?;
        let good = |stride: &u64| stride.is_multiple_of(self.align()) && *stride < 1 << 40;
        require(self.strides.iter().all(good))?;
        require(self.steps.iter().all(|step| (1..=MOST_STEP).contains(step)))
    }

    /// The limit that swizzling sets for the innermost dimension of a box with this number of elements.
    fn check_inner(&self, elements: u32) -> Result {
        if self.interleave != 0 {
            return Ok(());
        }
        let bytes = u64::from(elements) * self.element();
        let most = match self.swizzle {
            0 => u64::MAX,
            1 => 32,
            2 => 64,
            _ => 128,
        };
        require(bytes.is_multiple_of(16) && bytes <= most)
    }

    /// The map of a checked tensor; `rest` has its other properties.
    fn put(&self, map: Pointer<c_void>, kind: u64, rest: &[u64]) -> Result {
        let word = |which: u32, at: u32| u64::from(which) << at;
        let modes = word(self.data_type, 0)
            | word(self.dims.len() as u32, 8)
            | word(self.interleave, 16)
            | word(self.swizzle, 24)
            | word(self.promotion, 32)
            | word(self.fill, 40)
            | kind << 48;
        let mut opaque = [0; 16];
        // The dimensions, less one, and the steps are short.
        let sizes = self.dims.iter().map(|size| size - 1);
        let steps = self
            .steps
            .iter()
            .rev()
            .fold(0, |all, step| all << 4 | u64::from(*step));
        let words = [MAGIC, self.address, modes, steps].into_iter();
        let words = words.chain(sizes).chain(self.strides.iter().copied());
        for (place, word) in opaque.iter_mut().zip(words.chain(rest.iter().copied())) {
            *place = word;
        }
        map.cast().set(CUtensorMap { opaque })
    }
}

/// The place for a map: at any alignment, as with NVIDIA's driver.
fn place(map: Pointer<c_void>) -> Result<Pointer<c_void>> {
    require(!map.is_null())?;
    Ok(map)
}

/// The tensor that a caller describes; `modes` are interleave, swizzle, promotion and fill.
fn tensor(
    data_type: c_uint,
    rank: c_uint,
    address: *mut c_void,
    (dims, strides): (Pointer<c_ulonglong>, Pointer<c_ulonglong>),
    steps: Pointer<c_uint>,
    [interleave, swizzle, promotion, fill]: [c_uint; 4],
) -> Result<Tensor> {
    require((1..=MOST_DIMS).contains(&rank))?;
    let tensor = Tensor {
        data_type,
        address: address as u64,
        dims: dims.array(rank as usize)?,
        strides: strides.array(rank as usize - 1)?,
        steps: steps.array(rank as usize)?,
        interleave,
        swizzle,
        promotion,
        fill,
    };
    tensor.check()?;
    Ok(tensor)
}

/// Checks the corners of a box of pixels. The more dimensions there are, the smaller is their range.
fn check_corners(lower: &[c_int], upper: &[c_int]) -> Result {
    let bits = match lower.len() {
        1 => 15,
        2 => 7,
        _ => 4,
    };
    let range = -(1 << bits)..1 << bits;
    require(
        lower
            .iter()
            .chain(upper)
            .all(|corner| range.contains(corner)),
    )
}

fn columns(channels: c_uint, pixels: c_uint) -> Result<u64> {
    require((1..=MOST_BOX).contains(&channels) && (1..=MOST_PIXELS).contains(&pixels))?;
    Ok(u64::from(channels) | u64::from(pixels) << 32)
}

fn packed(corners: &[c_int]) -> u64 {
    corners
        .iter()
        .rev()
        .fold(0, |all, corner| all << 16 | u64::from(*corner as u16))
}

export! {
    /// `cuTensorMapEncodeTiled`.
    initialised fn cuTensorMapEncodeTiled(
        map: Pointer<c_void>, data_type: c_uint, rank: c_uint, address: *mut c_void, dims: Pointer<c_ulonglong>,
        strides: Pointer<c_ulonglong>, sizes: Pointer<c_uint>, steps: Pointer<c_uint>, interleave: c_uint, swizzle: c_uint,
        promotion: c_uint, fill: c_uint,
    ) |_| {
        let map = place(map)?;
        let tensor = tensor(data_type, rank, address, (dims, strides), steps, [interleave, swizzle, promotion, fill])?;
        let sizes = sizes.array(rank as usize)?;
        require(sizes.iter().all(|size| (1..=MOST_BOX).contains(size)))?;
        tensor.check_inner(sizes[0])?;
        let sizes = sizes.iter().rev().fold(0, |all, size| all << 9 | u64::from(*size));
        tensor.put(map, 0, &[sizes])
    }

    /// `cuTensorMapEncodeIm2col`.
    initialised fn cuTensorMapEncodeIm2col(
        map: Pointer<c_void>, data_type: c_uint, rank: c_uint, address: *mut c_void, dims: Pointer<c_ulonglong>,
        strides: Pointer<c_ulonglong>, lower: Pointer<c_int>, upper: Pointer<c_int>, channels: c_uint, pixels: c_uint,
        steps: Pointer<c_uint>, interleave: c_uint, swizzle: c_uint, promotion: c_uint, fill: c_uint,
    ) |_| {
        let map = place(map)?;
        require(rank >= 3)?;
        let tensor = tensor(data_type, rank, address, (dims, strides), steps, [interleave, swizzle, promotion, fill])?;
        let corners = rank as usize - 2;
        let (lower, upper) = (lower.array(corners)?, upper.array(corners)?);
        check_corners(&lower, &upper)?;
        tensor.check_inner(channels)?;
        tensor.put(map, 1, &[columns(channels, pixels)?, packed(&lower), packed(&upper)])
    }

    /// `cuTensorMapEncodeIm2colWide`.
    initialised fn cuTensorMapEncodeIm2colWide(
        map: Pointer<c_void>, data_type: c_uint, rank: c_uint, address: *mut c_void, dims: Pointer<c_ulonglong>,
        strides: Pointer<c_ulonglong>, lower: c_int, upper: c_int, channels: c_uint, pixels: c_uint,
        steps: Pointer<c_uint>, interleave: c_uint, mode: c_uint, swizzle: c_uint, promotion: c_uint, fill: c_uint,
    ) |_| {
        let map = place(map)?;
        require(rank >= 3 && mode <= 1)?;
        let tensor = tensor(data_type, rank, address, (dims, strides), steps, [interleave, swizzle, promotion, fill])?;
        check_corners(&[lower], &[upper])?;
        let columns = columns(channels, pixels)?;
        tensor.put(map, 2 | u64::from(mode) << 8, &[columns, packed(&[lower]), packed(&[upper])])
    }

    /// `cuTensorMapReplaceAddress`.
    initialised fn cuTensorMapReplaceAddress(map: Pointer<c_void>, address: *mut c_void) |_| {
        let map = place(map)?.cast::<CUtensorMap>();
        let mut made = map.get()?;
        require(made.opaque[0] == MAGIC && (address as u64).is_multiple_of(16))?;
        made.opaque[1] = address as u64;
        map.set(made)
    }
}
