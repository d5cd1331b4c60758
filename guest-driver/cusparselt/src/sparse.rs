// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pruning, its check, and compression, of a matrix or of a product's or a plan's sparse matrix.

use std::ffi::c_int;

use gpgpu_library::{Status, forward::stream_id};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function,
        Library::CusparseLt,
        cusparselt::{
            form::{Form, Matrix, Product},
            status,
        },
    },
};

use crate::{
    LIBRARY, alive, enter_on,
    kept::{self, Opaque},
    plan,
};

const PRUNE: &Function = CusparseLt.find("cusparseLtSpMMAPrune");
const CHECK: &Function = CusparseLt.find("cusparseLtSpMMAPruneCheck");
const PRUNE_MATRIX: &Function = CusparseLt.find("cusparseLtSpMMAPrune2");
const CHECK_MATRIX: &Function = CusparseLt.find("cusparseLtSpMMAPruneCheck2");
const SIZE: &Function = CusparseLt.find("cusparseLtSpMMACompressedSize");
const SIZE_OF_MATRIX: &Function = CusparseLt.find("cusparseLtSpMMACompressedSize2");
const COMPRESS: &Function = CusparseLt.find("cusparseLtSpMMACompress");
const COMPRESS_MATRIX: &Function = CusparseLt.find("cusparseLtSpMMACompress2");

/// `cusparseLtSpMMAPrune`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPrune(
    handle: *const Opaque,
    matmulDescr: *const Opaque,
    d_in: u64,
    d_out: u64,
    pruneAlg: c_int,
    stream: CUstream,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = kept::read::<Product>(matmulDescr)?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            let rest = [0, d_in, d_out, pruneAlg as u64, stream];
            on.send(PRUNE, &of.bytes(), rest)
        })
    }
}

/// `cusparseLtSpMMAPruneCheck`: `valid` is a device address.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPruneCheck(
    handle: *const Opaque,
    matmulDescr: *const Opaque,
    d_in: u64,
    valid: u64,
    stream: CUstream,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = kept::read::<Product>(matmulDescr)?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            on.send(CHECK, &of.bytes(), [0, d_in, valid, stream])
        })
    }
}

/// `cusparseLtSpMMAPrune2`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtSpMMAPrune2(
    handle: *const Opaque,
    sparseMatDescr: *const Opaque,
    isSparseA: c_int,
    op: c_int,
    d_in: u64,
    d_out: u64,
    pruneAlg: c_int,
    stream: CUstream,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = kept::read::<Matrix>(sparseMatDescr)?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            let [side, op, algorithm] = [isSparseA, op, pruneAlg].map(|of| of as u64);
            let rest = [0, side, op, d_in, d_out, algorithm, stream];
            on.send(PRUNE_MATRIX, &of.bytes(), rest)
        })
    }
}

/// `cusparseLtSpMMAPruneCheck2`: `d_valid` is a device address.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMAPruneCheck2(
    handle: *const Opaque,
    sparseMatDescr: *const Opaque,
    isSparseA: c_int,
    op: c_int,
    d_in: u64,
    d_valid: u64,
    stream: CUstream,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = kept::read::<Matrix>(sparseMatDescr)?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            let rest = [0, isSparseA as u64, op as u64, d_in, d_valid, stream];
            on.send(CHECK_MATRIX, &of.bytes(), rest)
        })
    }
}

/// `cusparseLtSpMMACompressedSize`.
///
/// # Safety
///
/// Structures are NULL or the caller's; sizes are NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompressedSize(
    handle: *const Opaque,
    plan: *const Opaque,
    compressedSize: *mut usize,
    compressedBufferSize: *mut usize,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = plan::read(plan)?;
            let sizes = sizes(compressedSize, compressedBufferSize)?;
            on.send(SIZE, &of.selection.bytes(), sizes)
        })
    }
}

/// `cusparseLtSpMMACompressedSize2`.
///
/// # Safety
///
/// As [`cusparseLtSpMMACompressedSize`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompressedSize2(
    handle: *const Opaque,
    sparseMatDescr: *const Opaque,
    compressedSize: *mut usize,
    compressedBufferSize: *mut usize,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = kept::read::<Matrix>(sparseMatDescr)?;
            let sizes = sizes(compressedSize, compressedBufferSize)?;
            on.send(SIZE_OF_MATRIX, &of.bytes(), sizes)
        })
    }
}

/// The words for the pointers to sizes, after the word for a byte string.
fn sizes(size: *mut usize, buffer: *mut usize) -> Result<[u64; 3], Status> {
    match size.is_null() || buffer.is_null() {
        true => Err(status::INVALID_VALUE),
        false => Ok([0, size as u64, buffer as u64]),
    }
}

/// `cusparseLtSpMMACompress`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtSpMMACompress(
    handle: *const Opaque,
    plan: *const Opaque,
    d_dense: u64,
    d_compressed: u64,
    d_compressed_buffer: u64,
    stream: CUstream,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = plan::read(plan)?;
            alive::use_one(of.id)?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            let rest = [of.id, d_dense, d_compressed, d_compressed_buffer, stream];
            on.send(COMPRESS, &[], rest)
        })
    }
}

/// `cusparseLtSpMMACompress2`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtSpMMACompress2(
    handle: *const Opaque,
    sparseMatDescr: *const Opaque,
    isSparseA: c_int,
    op: c_int,
    d_dense: u64,
    d_compressed: u64,
    d_compressed_buffer: u64,
    stream: CUstream,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = kept::read::<Matrix>(sparseMatDescr)?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            let [side, op] = [isSparseA, op].map(|of| of as u64);
            let to = [d_dense, d_compressed, d_compressed_buffer];
            let rest = [0, side, op, to[0], to[1], to[2], stream];
            on.send(COMPRESS_MATRIX, &of.bytes(), rest)
        })
    }
}
