// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The only algorithm, and queries about it.

use std::ffi::c_int;

use gpgpu_stand_in::call::{Answer, Argument};
use gpgpu_stand_in::memory::Plain;

use crate::handle::{RawHandle, enter, enter_with};
use crate::types::{Result, Status};

use super::descriptor::{Class, Raw, read};
use super::product::{Product, check_types};
use super::{give, on_device};

/// The number of the algorithm.
const ID: u32 = 1;
/// The first word of its bytes.
const MARK: u32 = 0x0061_4c74;

/// A `cublasLtMatmulAlgo_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Algorithm {
    mark: u32,
    /// Its settings by number. The first one is the algorithm's own number. Each may be 2 or 4 bytes wide.
    settings: [u32; 9],
    rest: [u32; 6],
}

// SAFETY: integers of one width, without padding.
unsafe impl Plain for Algorithm {}

/// A `cublasLtMatmulHeuristicResult_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct Found {
    algorithm: Algorithm,
    workspace: u64,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

// SAFETY: numbers without padding: 64, 8 and 24 bytes.
unsafe impl Plain for Found {}

impl Found {
    fn new(algorithm: Algorithm) -> Self {
        Self {
            algorithm,
            workspace: 0,
            state: 0,
            waves: 1.0,
            reserved: [0; 4],
        }
    }
}

impl Algorithm {
    fn new() -> Self {
        let mut settings = [0; 9];
        // The algorithm, and one part of the sums.
        (settings[0], settings[2]) = (ID, 1);
        Self {
            mark: MARK,
            settings,
            rest: [0; 6],
        }
    }

    /// `InvalidValue` if these are no algorithm's bytes.
    pub fn check(&self) -> Result {
        let is_one = (self.mark, self.settings[0], self.rest) == (MARK, ID, [0; 6]);
        match is_one {
            true => Ok(()),
            false => Err(Status::InvalidValue),
        }
    }
}

// The size of a setting.
fn setting_bytes(number: u32) -> Result<usize> {
    match number {
        0..=6 => Ok(4),
        7 | 8 => Ok(2),
        _ => Err(Status::InvalidValue),
    }
}

fn heuristic(
    handle: RawHandle,
    operation: Raw,
    layouts: [Raw; 4],
    preference: Raw,
    wanted: c_int,
    results: *mut Found,
    count: Answer<c_int>,
) -> c_int {
    enter_with(handle, |_| {
        if wanted <= 0 || results.is_null() || count.is_null() {
            return Err(Status::InvalidValue);
        }
        let preference = read(Class::Preference, preference)?;
        on_device(read(Class::Operation, operation)?.get(2))?;
        Product::new(operation, layouts)?;
        let algorithm = match preference.get(0) {
            0 => Algorithm::new(),
            // SAFETY: not NULL, and by the API's contract so many results, whose algorithms were made.
            1 => unsafe { (&raw const (*results).algorithm).read_unaligned() },
            _ => return Err(Status::NotSupported),
        };
        algorithm.check()?;
        // SAFETY: not NULL, and room for at least one by the API's contract.
        unsafe { results.write_unaligned(Found::new(algorithm)) };
        count.set(1)
    })
}

fn check(
    handle: RawHandle,
    operation: Raw,
    layouts: [Raw; 4],
    algorithm: Argument<Algorithm>,
    result: *mut Found,
) -> c_int {
    enter_with(handle, |_| {
        let algorithm: Algorithm = algorithm.get::<Status>()?;
        algorithm.check()?;
        Product::new(operation, layouts)?;
        if result.is_null() {
            return Err(Status::InvalidValue);
        }
        let found = Found::new(algorithm);
        // The algorithm's bytes do not change. SAFETY: not NULL, so a result by the API's contract.
        unsafe {
            (&raw mut (*result).workspace).write_unaligned(found.workspace);
            (&raw mut (*result).state).write_unaligned(found.state);
            (&raw mut (*result).waves).write_unaligned(found.waves);
        }
        Ok(())
    })
}

/// The algorithms for a product: one.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: RawHandle,
    operation: Raw,
    a: Raw,
    b: Raw,
    c: Raw,
    d: Raw,
    preference: Raw,
    wanted: c_int,
    results: *mut Found,
    count: Answer<c_int>,
) -> c_int {
    heuristic(
        handle,
        operation,
        [a, b, c, d],
        preference,
        wanted,
        results,
        count,
    )
}

/// The same for a stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristicForStream(
    handle: RawHandle,
    operation: Raw,
    a: Raw,
    b: Raw,
    c: Raw,
    d: Raw,
    preference: Raw,
    wanted: c_int,
    results: *mut Found,
    count: Answer<c_int>,
    _stream: usize,
) -> c_int {
    heuristic(
        handle,
        operation,
        [a, b, c, d],
        preference,
        wanted,
        results,
        count,
    )
}

/// Checks that an algorithm can compute a product.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoCheck(
    handle: RawHandle,
    operation: Raw,
    a: Raw,
    b: Raw,
    c: Raw,
    d: Raw,
    algorithm: Argument<Algorithm>,
    result: *mut Found,
) -> c_int {
    check(handle, operation, [a, b, c, d], algorithm, result)
}

/// The same for a stream.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoCheckForStream(
    handle: RawHandle,
    operation: Raw,
    a: Raw,
    b: Raw,
    c: Raw,
    d: Raw,
    algorithm: Argument<Algorithm>,
    result: *mut Found,
    _stream: usize,
) -> c_int {
    check(handle, operation, [a, b, c, d], algorithm, result)
}

/// The numbers of the algorithms for types.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetIds(
    handle: RawHandle,
    compute: c_int,
    scale: c_int,
    a: c_int,
    b: c_int,
    c: c_int,
    d: c_int,
    wanted: c_int,
    ids: Answer<c_int>,
    count: Answer<c_int>,
) -> c_int {
    enter_with(handle, |_| {
        if wanted <= 0 || count.is_null() {
            return Err(Status::InvalidValue);
        }
        check_types(compute, scale, [a, b, c, d])?;
        ids.set::<Status>(ID as c_int)?;
        count.set(1)
    })
}

/// Makes the bytes of an algorithm.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoInit(
    handle: RawHandle,
    compute: c_int,
    scale: c_int,
    a: c_int,
    b: c_int,
    c: c_int,
    d: c_int,
    id: c_int,
    algorithm: Answer<Algorithm>,
) -> c_int {
    enter_with(handle, |_| {
        if id != ID as c_int {
            return Err(Status::InvalidValue);
        }
        check_types(compute, scale, [a, b, c, d])?;
        algorithm.set(Algorithm::new())
    })
}

/// The capabilities of an algorithm. Two tiles are named, although a CPU has none.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoCapGetAttribute(
    algorithm: Argument<Algorithm>,
    number: u32,
    to: *mut u8,
    room: usize,
    written: Answer<usize>,
) -> c_int {
    enter(|| {
        algorithm.get::<Status>()?.check()?;
        let words: &[u32] = match number {
            // Batches, results elsewhere than C.
            3 | 4 => &[1],
            6 => &[15, 20],
            // Pointer modes, and epilogues: none, ReLU, bias, GELU.
            11 => &[3],
            12 => &[39],
            13 => &[0],
            // Alignments.
            16..=19 => &[1],
            15 => &[0, 0],
            0..=23 => &[0],
            _ => return Err(Status::InvalidValue),
        };
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        give(&bytes, to, room, written, true)
    })
}

/// A setting of an algorithm.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algorithm: Argument<Algorithm>,
    number: u32,
    to: *mut u8,
    room: usize,
    written: Answer<usize>,
) -> c_int {
    enter(|| {
        let bytes = setting_bytes(number)?;
        let algorithm: Algorithm = algorithm.get::<Status>()?;
        let value = algorithm.settings[number as usize].to_le_bytes();
        give(&value[..bytes], to, room, written, room == bytes)
    })
}

/// Changes a setting of an algorithm.
#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoConfigSetAttribute(
    algorithm: *mut Algorithm,
    number: u32,
    from: Argument<u8>,
    size: usize,
) -> c_int {
    enter(|| {
        if algorithm.is_null() || number == 0 || setting_bytes(number)? != size {
            return Err(Status::InvalidValue);
        }
        let mut value = [0; 4];
        value[..size].copy_from_slice(&from.array::<Status>(size)?);
        // SAFETY: not NULL, so an algorithm by the API's contract.
        let mut changed = unsafe { algorithm.read_unaligned() };
        changed.settings[number as usize] = u32::from_le_bytes(value);
        // SAFETY: as above.
        unsafe { algorithm.write_unaligned(changed) };
        Ok(())
    })
}
