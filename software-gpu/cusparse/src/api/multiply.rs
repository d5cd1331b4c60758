// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Products of a sparse matrix or vector and a dense one, and conversions.

use std::ffi::{c_int, c_void};

use crate::descriptors::{
    Dense, DenseMatrix, MATRICES, SPARSE, SPARSE_MATRICES, SparseMatrix, VECTORS, get, with,
};
use crate::handle::{Answer, Argument, Handle, Raw};
use crate::types::{Number, Operation, Result, Status, by_type, require};

use super::{BUFFER, export};

/// Checks that the operands have the type of the computation: conversions are not supported.
fn alike(compute: c_int, data: &[c_int]) -> Result {
    match data.iter().all(|data| *data == compute) {
        true => Ok(()),
        false => Err(Status::NotSupported),
    }
}

fn vectors(
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
    let (rows, columns) = operation.shape(a.shape);
    require(x.size == columns && y.size == rows)?;
    alike(compute, &[a.data, x.data, y.data])?;
    Ok((operation, a, x, y))
}

fn spmv<T: Number>(
    handle: &Handle,
    (operation, a, x, y): (Operation, SparseMatrix, Dense, Dense),
    alpha: Argument<c_void>,
    beta: Argument<c_void>,
) -> Result {
    let (alpha, beta) = (handle.scalar::<T>(alpha)?, handle.scalar::<T>(beta)?);
    handle.run(move |memory| {
        let (alpha, beta) = (alpha.get(&memory)?, beta.get(&memory)?);
        y.check::<T>(memory)?;
        let xs = x.read::<T>(memory)?;
        let mut sums = vec![T::default(); y.size as usize];
        for element in a.read::<T>(memory)? {
            let (row, column, value) = operation.apply(element);
            sums[row] += value * xs[column];
        }
        let old = match beta == T::default() {
            // The existing value may be NaN.
            true => vec![T::default(); sums.len()],
            false => y.read(memory)?,
        };
        let new: Vec<T> = sums
            .iter()
            .zip(old)
            .map(|(sum, old)| alpha * *sum + beta * old)
            .collect();
        y.write(memory, &new)
    })
}

type Matrices = (Operation, Operation, SparseMatrix, DenseMatrix, DenseMatrix);

fn matrices(op_a: c_int, op_b: c_int, a: Raw, b: Raw, c: Raw, compute: c_int) -> Result<Matrices> {
    let (op_a, op_b) = (Operation::new(op_a)?, Operation::new(op_b)?);
    let (a, b, c) = (
        get(&SPARSE_MATRICES, a)?,
        get(&MATRICES, b)?,
        get(&MATRICES, c)?,
    );
    let ((rows, inner), (also_inner, columns)) = (op_a.shape(a.shape), op_b.shape(b.shape));
    require(inner == also_inner && c.shape == (rows, columns))?;
    alike(compute, &[a.data, b.data, c.data])?;
    Ok((op_a, op_b, a, b, c))
}

fn spmm<T: Number>(
    handle: &Handle,
    (op_a, op_b, a, b, c): Matrices,
    alpha: Argument<c_void>,
    beta: Argument<c_void>,
) -> Result {
    let (alpha, beta) = (handle.scalar::<T>(alpha)?, handle.scalar::<T>(beta)?);
    handle.run(move |memory| {
        let (alpha, beta) = (alpha.get(&memory)?, beta.get(&memory)?);
        c.check::<T>(memory)?;
        let (bs, columns) = (b.read::<T>(memory)?, c.shape.1 as usize);
        let of_b = |row: usize, column: usize| match op_b {
            Operation::None => bs[row * b.shape.1 as usize + column],
            Operation::Transpose => bs[column * b.shape.1 as usize + row],
            Operation::Adjoint => bs[column * b.shape.1 as usize + row].conjugate(),
        };
        let mut sums = vec![T::default(); c.shape.0 as usize * columns];
        for element in a.read::<T>(memory)? {
            let (row, inner, value) = op_a.apply(element);
            for column in 0..columns {
                sums[row * columns + column] += value * of_b(inner, column);
            }
        }
        let old = match beta == T::default() {
            true => vec![T::default(); sums.len()],
            false => c.read(memory)?,
        };
        let new: Vec<T> = sums
            .iter()
            .zip(old)
            .map(|(sum, old)| alpha * *sum + beta * old)
            .collect();
        c.write(memory, &new)
    })
}

export! {
    /// The workspace of `cusparseSpMV`.
    fn cusparseSpMV_bufferSize(handle: Raw, opA: c_int, alpha: Argument<c_void>, matA: Raw, vecX: Raw, beta: Argument<c_void>, vecY: Raw, computeType: c_int,
        _alg: c_int, bufferSize: Answer<usize>) |handle| {
        let _ = (handle, alpha, beta);
        vectors(opA, matA, vecX, vecY, computeType)?;
        bufferSize.set(BUFFER)
    }

    /// `y = alpha op(A) x + beta y`.
    fn cusparseSpMV(handle: Raw, opA: c_int, alpha: Argument<c_void>, matA: Raw, vecX: Raw, beta: Argument<c_void>, vecY: Raw, computeType: c_int,
        _alg: c_int, _buffer: *mut c_void) |handle| {
        let all = vectors(opA, matA, vecX, vecY, computeType)?;
        by_type!(computeType, spmv::<T>(handle, all, alpha, beta))
    }

    /// The workspace of `cusparseSpMM`.
    fn cusparseSpMM_bufferSize(handle: Raw, opA: c_int, opB: c_int, alpha: Argument<c_void>, matA: Raw, matB: Raw, beta: Argument<c_void>, matC: Raw,
        computeType: c_int, _alg: c_int, bufferSize: Answer<usize>) |handle| {
        let _ = (handle, alpha, beta);
        matrices(opA, opB, matA, matB, matC, computeType)?;
        bufferSize.set(BUFFER)
    }

    /// `C = alpha op(A) op(B) + beta C`.
    fn cusparseSpMM(handle: Raw, opA: c_int, opB: c_int, alpha: Argument<c_void>, matA: Raw, matB: Raw, beta: Argument<c_void>, matC: Raw,
        computeType: c_int, _alg: c_int, _buffer: *mut c_void) |handle| {
        let all = matrices(opA, opB, matA, matB, matC, computeType)?;
        by_type!(computeType, spmm::<T>(handle, all, alpha, beta))
    }

    /// The workspace of `cusparseSpVV`.
    fn cusparseSpVV_bufferSize(handle: Raw, _opX: c_int, vecX: Raw, vecY: Raw, _result: *const c_void, _computeType: c_int, bufferSize: Answer<usize>) |handle| {
        let _ = handle;
        require(get(&SPARSE, vecX)?.size == get(&VECTORS, vecY)?.size)?;
        bufferSize.set(BUFFER)
    }

    /// The sum of `x` times `y`.
    fn cusparseSpVV(handle: Raw, opX: c_int, vecX: Raw, vecY: Raw, result: Answer<c_void>, computeType: c_int, _buffer: *mut c_void) |handle| {
        let (operation, x, y) = (Operation::new(opX)?, get(&SPARSE, vecX)?, get(&VECTORS, vecY)?);
        require(x.size == y.size)?;
        alike(computeType, &[x.data, y.data])?;
        by_type!(computeType, handle.answer::<T>(result, move |memory| {
            let ys = y.read::<T>(memory)?;
            let mut sum = T::default();
            for (at, value) in x.read::<T>(memory)? {
                let value = if operation == Operation::Adjoint { value.conjugate() } else { value };
                sum += value * ys[at];
            }
            Ok(sum)
        }))
    }

    /// `y = alpha x + beta y`.
    fn cusparseAxpby(handle: Raw, alpha: Argument<c_void>, vecX: Raw, beta: Argument<c_void>, vecY: Raw) |handle| {
        let (x, y) = (get(&SPARSE, vecX)?, get(&VECTORS, vecY)?);
        require(x.size == y.size && x.data == y.data)?;
        by_type!(x.data, {
            let (alpha, beta) = (handle.scalar::<T>(alpha)?, handle.scalar::<T>(beta)?);
            handle.run(move |memory| {
                let (alpha, beta) = (alpha.get(&memory)?, beta.get(&memory)?);
                let mut ys: Vec<T> = y.read(memory)?;
                ys.iter_mut().for_each(|y| *y *= beta);
                for (at, value) in x.read::<T>(memory)? {
                    ys[at] += alpha * value;
                }
                y.write(memory, &ys)
            })
        })
    }

    /// The workspace of `cusparseSparseToDense`.
    fn cusparseSparseToDense_bufferSize(handle: Raw, matA: Raw, matB: Raw, _alg: c_int, bufferSize: Answer<usize>) |handle| {
        let _ = handle;
        require(get(&SPARSE_MATRICES, matA)?.shape == get(&MATRICES, matB)?.shape)?;
        bufferSize.set(BUFFER)
    }

    /// Writes all elements, also those that are not stored.
    fn cusparseSparseToDense(handle: Raw, matA: Raw, matB: Raw, _alg: c_int, _buffer: *mut c_void) |handle| {
        let (a, b) = (get(&SPARSE_MATRICES, matA)?, get(&MATRICES, matB)?);
        require(a.shape == b.shape && a.data == b.data)?;
        by_type!(a.data, handle.run(move |memory| {
            b.check::<T>(memory)?;
            let columns = b.shape.1 as usize;
            let mut values = vec![T::default(); b.shape.0 as usize * columns];
            for (row, column, value) in a.read::<T>(memory)? {
                values[row * columns + column] = value;
            }
            b.write(memory, &values)
        }))
    }

    /// The workspace of the two functions that follow.
    fn cusparseDenseToSparse_bufferSize(handle: Raw, matA: Raw, matB: Raw, _alg: c_int, bufferSize: Answer<usize>) |handle| {
        let _ = handle;
        require(get(&MATRICES, matA)?.shape == get(&SPARSE_MATRICES, matB)?.shape)?;
        bufferSize.set(BUFFER)
    }

    /// Counts the elements that are not zero, and stores the number in the sparse matrix.
    fn cusparseDenseToSparse_analysis(handle: Raw, matA: Raw, matB: Raw, _alg: c_int, _buffer: *mut c_void) |handle| {
        let (a, b) = (get(&MATRICES, matA)?, get(&SPARSE_MATRICES, matB)?);
        require(a.shape == b.shape && a.data == b.data)?;
        let count = by_type!(a.data, handle.wait(move |memory| {
            let values = a.read::<T>(memory)?;
            Ok(values.iter().filter(|value| **value != T::default()).count())
        }))?;
        with(&SPARSE_MATRICES, matB, |matrix| matrix.count = count as i64)
    }

    /// Writes the elements that are not zero.
    fn cusparseDenseToSparse_convert(handle: Raw, matA: Raw, matB: Raw, _alg: c_int, _buffer: *mut c_void) |handle| {
        let (a, b) = (get(&MATRICES, matA)?, get(&SPARSE_MATRICES, matB)?);
        require(a.shape == b.shape && a.data == b.data)?;
        by_type!(a.data, handle.run(move |memory| {
            let columns = a.shape.1 as usize;
            let values = a.read::<T>(memory)?.into_iter().enumerate();
            let kept = values.filter(|(_, value)| *value != T::default());
            let elements: Vec<_> = kept.map(|(at, value)| (at / columns, at % columns, value)).collect();
            b.write(memory, &elements)
        }))
    }
}
