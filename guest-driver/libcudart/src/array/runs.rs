// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of rows, and of runs of bytes that begin inside a row of an array.

use super::{describe, description_of};
use crate::abi::*;
use crate::context::current;
use crate::copy::{Order, check_kind, memory_types, ordered};
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::memory::address;
use gpgpu_protocol::cuda::*;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Copies rows between a linear range and an array. Offsets and widths are in bytes.
///
/// # Safety
/// The ranges are valid for as long as the copy takes.
#[allow(clippy::too_many_arguments)]
pub unsafe fn array_rows(
    to: (cudaArray_t, *mut c_void),
    to_at: (usize, usize),
    to_pitch: usize,
    from: (cudaArray_t, *const c_void),
    from_at: (usize, usize),
    from_pitch: usize,
    width: usize,
    height: usize,
    kind: cudaMemcpyKind,
    order: Order,
) -> Result<()> {
    let driver = current()?;
    check_kind(kind)?;
    if width == 0 || height == 0 {
        return Ok(());
    }
    let (source, destination) = memory_types(kind);
    let of = |array: cudaArray_t, linear| {
        if array.is_null() {
            linear
        } else {
            CU_MEMORYTYPE_ARRAY
        }
    };
    let copy = CUDA_MEMCPY2D {
        srcXInBytes: from_at.0,
        srcY: from_at.1,
        srcMemoryType: of(from.0, source),
        srcHost: from.1,
        srcDevice: address(from.1),
        srcArray: from.0,
        srcPitch: from_pitch,
        dstXInBytes: to_at.0,
        dstY: to_at.1,
        dstMemoryType: of(to.0, destination),
        dstHost: to.1,
        dstDevice: address(to.1),
        dstArray: to.0,
        dstPitch: to_pitch,
        WidthInBytes: width,
        Height: height,
    };
    // SAFETY: promised by the caller.
    unsafe {
        ordered(
            driver,
            order,
            || driver.cuMemcpy2DUnaligned(&copy),
            |s| driver.cuMemcpy2DAsync(&copy, s),
        )
    }
}

/// Splits a run of bytes that starts inside an array into whole and partial rows.
fn runs(
    driver: &Driver,
    array: cudaArray_t,
    x: usize,
    y: usize,
    bytes: usize,
) -> Result<Vec<(usize, usize, usize, usize)>> {
    let description = describe(driver, array)?;
    let row = description_of(&description)?
        .1
        .checked_mul(description.Width)
        .ok_or(error::INVALID_VALUE)?;
    if row == 0 || x >= row && bytes > 0 {
        return Err(error::INVALID_VALUE);
    }
    let mut runs = Vec::new();
    let (mut x, mut y, mut left) = (x, y, bytes);
    while left > 0 {
        let (width, height) = if x == 0 && left >= row {
            (row, left / row)
        } else {
            (left.min(row - x), 1)
        };
        runs.push((x, y, width, height));
        left -= width * height;
        (x, y) = (0, y + height);
    }
    Ok(runs)
}

/// Copies a run of bytes into an array.
///
/// # Safety
/// The source is valid for `bytes`.
pub unsafe fn into_array(
    to: cudaArray_t,
    x: usize,
    y: usize,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
    order: Order,
) -> Result<()> {
    let mut from = from;
    for (x, y, width, height) in runs(current()?, to, x, y, bytes)? {
        // SAFETY: promised by the caller.
        unsafe {
            array_rows(
                (to, null_mut()),
                (x, y),
                0,
                (null_mut(), from),
                (0, 0),
                width,
                width,
                height,
                kind,
                order,
            )
        }?;
        from = from.wrapping_byte_add(width * height);
    }
    Ok(())
}

/// Copies a run of bytes out of an array.
///
/// # Safety
/// The destination is valid for `bytes`.
pub unsafe fn out_of_array(
    to: *mut c_void,
    from: cudaArray_t,
    x: usize,
    y: usize,
    bytes: usize,
    kind: cudaMemcpyKind,
    order: Order,
) -> Result<()> {
    let mut to = to;
    for (x, y, width, height) in runs(current()?, from, x, y, bytes)? {
        // SAFETY: promised by the caller.
        unsafe {
            array_rows(
                (null_mut(), to),
                (0, 0),
                width,
                (from, null_mut()),
                (x, y),
                0,
                width,
                height,
                kind,
                order,
            )
        }?;
        to = to.wrapping_byte_add(width * height);
    }
    Ok(())
}

/// A step of a copy between arrays: the place in the destination, the place in the source, bytes of a row, rows.
type Step = ([(usize, usize); 2], usize, usize);

/// Splits a run of bytes that starts inside two arrays, the destination and the source, into whole and partial rows.
/// `sizes` has the bytes of a row and the number of rows of each array.
fn steps(
    sizes: [(usize, usize); 2],
    starts: [(usize, usize); 2],
    bytes: usize,
) -> Result<Vec<Step>> {
    for ((row, height), (x, y)) in sizes.into_iter().zip(starts) {
        let start = y.checked_mul(row).and_then(|start| start.checked_add(x));
        let end = start.and_then(|start| start.checked_add(bytes));
        let is_inside = end.is_some_and(|end| Some(end) <= row.checked_mul(height));
        if x > row || bytes > 0 && (x == row || !is_inside) {
            return Err(error::INVALID_VALUE);
        }
    }
    let [(to_row, _), (from_row, _)] = sizes;
    let (mut at, mut left) = (starts, bytes);
    let mut steps = Vec::new();
    while left > 0 {
        let [(to_x, _), (from_x, _)] = at;
        let are_whole = to_x == 0 && from_x == 0 && to_row == from_row && left >= to_row;
        let (width, height) = if are_whole {
            (to_row, left / to_row)
        } else {
            (left.min(to_row - to_x).min(from_row - from_x), 1)
        };
        steps.push((at, width, height));
        left -= width * height;
        for ((x, y), row) in at.iter_mut().zip([to_row, from_row]) {
            *x += width;
            if *x == row {
                (*x, *y) = (0, *y + height);
            }
        }
    }
    Ok(steps)
}

/// Copies a run of bytes from one array into another.
pub fn between_arrays(
    (to, to_at): (cudaArray_t, (usize, usize)),
    (from, from_at): (cudaArray_t, (usize, usize)),
    bytes: usize,
    kind: cudaMemcpyKind,
    order: Order,
) -> Result<()> {
    let driver = current()?;
    check_kind(kind)?;
    let size = |array| {
        let description = describe(driver, array)?;
        let row = description_of(&description)?
            .1
            .checked_mul(description.Width)
            .ok_or(error::INVALID_VALUE)?;
        Ok::<_, cudaError_t>((row, description.Height.max(1)))
    };
    let sizes = [size(to)?, size(from)?];
    for ([to_at, from_at], width, height) in steps(sizes, [to_at, from_at], bytes)? {
        // SAFETY: both sides are arrays of the driver's, so no address takes part.
        unsafe {
            array_rows(
                (to, null_mut()),
                to_at,
                0,
                (from, null_mut()),
                from_at,
                0,
                width,
                height,
                kind,
                order,
            )
        }?;
    }
    Ok(())
}
