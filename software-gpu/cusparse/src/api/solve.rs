// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Systems whose matrix is a sparse triangle.

use std::ffi::{c_int, c_void};

use crate::descriptors::{Dense, SPARSE_MATRICES, SYSTEMS, SparseMatrix, VECTORS, get, with};
use crate::handle::{Answer, Argument, Handle, Raw};
use crate::types::{Number, Operation, Result, by_type, require};

use super::describe::{end, make};
use super::{BUFFER, export};

fn system(
    op: c_int,
    a: Raw,
    x: Raw,
    y: Raw,
    compute: c_int,
) -> Result<(Operation, SparseMatrix, Dense, Dense)> {
    let operation = Operation::new(op)?;
    let (a, x, y) = (
        get(&SPARSE_MATRICES, a)?,
        get(&VECTORS, x)?,
        get(&VECTORS, y)?,
    );
    require(a.shape.0 == a.shape.1 && x.size == a.shape.0 && y.size == a.shape.0)?;
    require([a.data, x.data, y.data].iter().all(|data| *data == compute))?;
    Ok((operation, a, x, y))
}

fn solve<T: Number>(
    handle: &Handle,
    (operation, a, x, y): (Operation, SparseMatrix, Dense, Dense),
    alpha: Argument<c_void>,
) -> Result {
    let alpha = handle.scalar::<T>(alpha)?;
    let [is_upper, is_unit] = a.attributes.map(|of| of == 1);
    handle.run(move |memory| {
        let (alpha, order) = (alpha.get(&memory)?, x.size as usize);
        y.check::<T>(memory)?;
        let mut rows = vec![Vec::new(); order];
        let mut diagonal = vec![None; order];
        for (row, column, value) in a.read::<T>(memory)? {
            if row == column {
                diagonal[row] = Some(operation.apply((row, row, value)).2);
            } else if is_upper == (row < column) {
                let (row, column, value) = operation.apply((row, column, value));
                rows[row].push((column, value));
            }
        }
        let mut found: Vec<T> = x.read(memory)?;
        let from_below = is_upper == (operation == Operation::None);
        for step in 0..order {
            let row = if from_below { order - 1 - step } else { step };
            let mut rest = alpha * found[row];
            for (column, value) in &rows[row] {
                rest = rest - *value * found[*column];
            }
            found[row] = match is_unit {
                true => rest,
                false => rest / diagonal[row].unwrap_or_default(),
            };
        }
        y.write(memory, &found)
    })
}

export! {
    /// A system that is about to be solved.
    fn cusparseSpSV_createDescr(out: Answer<Raw>) { make(&SYSTEMS, out, false) }

    /// Destroys it.
    fn cusparseSpSV_destroyDescr(name: Raw) { end(&SYSTEMS, name) }

    /// The workspace of the analysis.
    fn cusparseSpSV_bufferSize(handle: Raw, opA: c_int, _alpha: *const c_void, matA: Raw, vecX: Raw, vecY: Raw, computeType: c_int, _alg: c_int,
        descr: Raw, bufferSize: Answer<usize>) |handle| {
        let _ = handle;
        system(opA, matA, vecX, vecY, computeType)?;
        get(&SYSTEMS, descr)?;
        bufferSize.set(BUFFER)
    }

    /// Looks at the matrix.
    fn cusparseSpSV_analysis(handle: Raw, opA: c_int, _alpha: *const c_void, matA: Raw, vecX: Raw, vecY: Raw, computeType: c_int, _alg: c_int,
        descr: Raw, _buffer: *mut c_void) |handle| {
        let _ = handle;
        system(opA, matA, vecX, vecY, computeType)?;
        with(&SYSTEMS, descr, |is_known| *is_known = true)
    }

    /// `op(A) y = alpha x`.
    fn cusparseSpSV_solve(handle: Raw, opA: c_int, alpha: Argument<c_void>, matA: Raw, vecX: Raw, vecY: Raw, computeType: c_int, _alg: c_int,
        descr: Raw) |handle| {
        let all = system(opA, matA, vecX, vecY, computeType)?;
        require(get(&SYSTEMS, descr)?)?;
        by_type!(computeType, solve::<T>(handle, all, alpha))
    }
}
