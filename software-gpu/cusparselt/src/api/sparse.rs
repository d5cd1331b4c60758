// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pruning, its check, and compression: of a matrix, or of the sparse one of a product or a plan.

use std::ffi::{c_int, c_void};

use crate::handle::{Answer, Argument, Handle, RawHandle};
use crate::product::{compressed_place, sparse};
use crate::sparsity::Factor;
use crate::structures::{Matrix, Named, PLAN, Product, read};
use crate::types::{Result, Status, by_type, require, transposes};

use super::{export, plan::plan};

/// The size of the workspace of compression, in bytes. It is not used here, but callers must provide it.
const BUFFER: u64 = 128;

fn factor(matrix: Argument<Matrix>, is_first: c_int, operation: c_int) -> Result<Factor> {
    let matrix = read(matrix)?;
    require(matrix.is_sparse() && matches!(is_first, 0 | 1))?;
    Ok(Factor::new(matrix, is_first == 1, transposes(operation)?))
}

fn prune(
    handle: &Handle,
    of: Factor,
    [from, to]: [u64; 2],
    algorithm: c_int,
    stream: *mut c_void,
) -> Result {
    require(from != 0 && to != 0 && matches!(algorithm, 0 | 1))?;
    by_type!(of.matrix.data, {
        handle.run(stream, false, move |memory| {
            for i in 0..i64::from(of.matrix.batch) {
                let mut lines = of.read::<T>(&memory, from, i)?;
                of.prune(&mut lines, algorithm == 0);
                of.write(&memory, to, i, lines)?;
            }
            Ok(())
        })
    })
}

fn check(handle: &Handle, of: Factor, from: u64, valid: u64, stream: *mut c_void) -> Result {
    require(from != 0 && valid != 0)?;
    by_type!(of.matrix.data, {
        handle.run(stream, false, move |memory| {
            let mut is_wrong = false;
            for i in 0..i64::from(of.matrix.batch) {
                is_wrong |= !of.is_pruned(&of.read::<T>(&memory, from, i)?);
            }
            memory.set(valid, i32::from(is_wrong))
        })
    })
}

fn compress(
    handle: &Handle,
    of: Factor,
    [from, to, buffer]: [u64; 3],
    stream: *mut c_void,
) -> Result {
    require(from != 0 && to != 0 && buffer != 0)?;
    by_type!(of.matrix.data, {
        handle.run(stream, false, move |memory| {
            for i in 0..i64::from(of.matrix.batch) {
                let lines = of.read::<T>(&memory, from, i)?;
                of.compress(&memory, to.wrapping_add(compressed_place(&of, i)), &lines)?;
            }
            Ok(())
        })
    })
}

fn sizes(of: Factor, size: Answer<u64>, buffer: Answer<u64>) -> Result {
    require(!size.is_null() && !buffer.is_null())?;
    let count = match of.matrix.stride {
        0 => 1,
        _ => of.matrix.batch as u64,
    };
    let all = of.compressed()?.checked_mul(count);
    size.set::<Status>(all.ok_or(Status::InvalidValue)?)?;
    buffer.set(BUFFER)
}

export! {
    /// Half of the sparse matrix of a product becomes zero.
    fn cusparseLtSpMMAPrune(
        handle: Argument<RawHandle>, product: Argument<Product>, from: u64, to: u64, algorithm: c_int, stream: *mut c_void,
    ) |handle| { prune(handle, sparse(&read(product)?)?, [from, to], algorithm, stream) }

    /// Half of a matrix becomes zero.
    fn cusparseLtSpMMAPrune2(
        handle: Argument<RawHandle>, matrix: Argument<Matrix>, is_first: c_int, operation: c_int, from: u64, to: u64, algorithm: c_int,
        stream: *mut c_void,
    ) |handle| { prune(handle, factor(matrix, is_first, operation)?, [from, to], algorithm, stream) }

    /// Writes 0 if half of the sparse matrix of a product is zero, and 1 otherwise.
    fn cusparseLtSpMMAPruneCheck(
        handle: Argument<RawHandle>, product: Argument<Product>, from: u64, valid: u64, stream: *mut c_void,
    ) |handle| { check(handle, sparse(&read(product)?)?, from, valid, stream) }

    /// The same of a matrix.
    fn cusparseLtSpMMAPruneCheck2(
        handle: Argument<RawHandle>, matrix: Argument<Matrix>, is_first: c_int, operation: c_int, from: u64, valid: u64, stream: *mut c_void,
    ) |handle| { check(handle, factor(matrix, is_first, operation)?, from, valid, stream) }

    /// The bytes of the compressed matrix of a plan.
    fn cusparseLtSpMMACompressedSize(
        handle: Argument<RawHandle>, plan: Argument<Named<PLAN>>, size: Answer<u64>, buffer: Answer<u64>,
    ) |handle| {
        let _ = handle;
        let plan = self::plan(plan)?;
        sizes(sparse(&plan.product)?, size, buffer)
    }

    /// The bytes of a compressed matrix.
    fn cusparseLtSpMMACompressedSize2(
        handle: Argument<RawHandle>, matrix: Argument<Matrix>, size: Answer<u64>, buffer: Answer<u64>,
    ) |handle| {
        let _ = handle;
        sizes(factor(matrix, 1, 0)?, size, buffer)
    }

    /// Compresses the sparse matrix of a plan.
    fn cusparseLtSpMMACompress(
        handle: Argument<RawHandle>, plan: Argument<Named<PLAN>>, from: u64, to: u64, buffer: u64, stream: *mut c_void,
    ) |handle| {
        let plan = self::plan(plan)?;
        compress(handle, sparse(&plan.product)?, [from, to, buffer], stream)
    }

    /// Compresses a matrix.
    fn cusparseLtSpMMACompress2(
        handle: Argument<RawHandle>, matrix: Argument<Matrix>, is_first: c_int, operation: c_int, from: u64, to: u64, buffer: u64, stream: *mut c_void,
    ) |handle| { compress(handle, factor(matrix, is_first, operation)?, [from, to, buffer], stream) }
}
