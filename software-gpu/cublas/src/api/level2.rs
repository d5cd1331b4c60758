// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Level 2: a matrix and vectors.

use std::ffi::c_int;

use crate::dense::{Dense, Triangle, blend};
use crate::handle::{Argument, Handle};
use crate::number::{C32, C64, Field};
use crate::types::{Fill, Operation, Result, is_unit};
use gpgpu_stand_in::memory::{Matrix, Memory, Outcome, Scalar, Vector};

use super::{family, matrix, require, vector};

/// `y = alpha a x + beta y`, where `a` reads the matrix if it is needed.
fn multiply_add<N: Field>(
    handle: &Handle,
    a: impl FnOnce(&Memory) -> Outcome<Dense<N>> + Clone + Send + 'static,
    x: Vector,
    y: Vector,
    [alpha, beta]: [Scalar<N>; 2],
) -> Result {
    handle.run(move |memory| {
        memory.check_vector::<N>(y)?;
        let (alpha, beta) = (alpha.get(&memory)?, beta.get(&memory)?);
        let mut sums = vec![N::default(); y.count as usize];
        if !alpha.is_nothing() {
            let (a, x) = (a(&memory)?, memory.vector::<N>(x)?);
            for (column, x) in a.data.chunks_exact(a.rows).zip(x) {
                sums.iter_mut().zip(column).for_each(|(s, a)| *s += *a * x);
            }
        }
        let old = if beta.is_nothing() {
            sums.clone()
        } else {
            memory.vector(y)?
        };
        let new = sums
            .iter()
            .zip(old)
            .map(|(new, old)| blend(alpha, *new, beta, old));
        memory.set_vector(y, &new.collect::<Vec<_>>())
    })
}

fn gemv<N: Field>(
    handle: &Handle,
    operation: Operation,
    a: Matrix,
    x: (*const N, i64),
    y: (*const N, i64),
    alpha: Argument<N>,
    beta: Argument<N>,
) -> Result {
    require(x.1 != 0 && y.1 != 0)?;
    let scalars = [handle.scalar(alpha)?, handle.scalar(beta)?];
    if a.rows == 0 || a.columns == 0 {
        return Ok(());
    }
    // The operation changes the lengths as it changes the shape.
    let (rows, columns) = operation.stored(a.rows, a.columns);
    let (x, y) = (vector(x.0, columns, x.1), vector(y.0, rows, y.1));
    let read = move |memory: &Memory| Ok(Dense::read::<N>(memory, a)?.apply(operation));
    multiply_add(handle, read, x, y, scalars)
}

fn symv<N: Field>(
    handle: &Handle,
    hermitian: bool,
    fill: Fill,
    a: Matrix,
    x: (*const N, i64),
    y: (*const N, i64),
    alpha: Argument<N>,
    beta: Argument<N>,
) -> Result {
    require(x.1 != 0 && y.1 != 0)?;
    let scalars = [handle.scalar(alpha)?, handle.scalar(beta)?];
    if a.rows == 0 {
        return Ok(());
    }
    let (x, y) = (vector(x.0, a.rows, x.1), vector(y.0, a.rows, y.1));
    let read = move |memory: &Memory| Ok(Dense::read::<N>(memory, a)?.mirrored(fill, hermitian));
    multiply_add(handle, read, x, y, scalars)
}

/// `a = alpha x y^T + a`; `y` may be conjugated.
fn ger<N: Field>(
    handle: &Handle,
    conjugate: bool,
    a: Matrix,
    x: (*const N, i64),
    y: (*const N, i64),
    alpha: Argument<N>,
) -> Result {
    require(x.1 != 0 && y.1 != 0)?;
    let alpha = handle.scalar(alpha)?;
    if a.rows == 0 || a.columns == 0 {
        return Ok(());
    }
    let (x, y) = (vector(x.0, a.rows, x.1), vector(y.0, a.columns, y.1));
    handle.run(move |memory| {
        let alpha = alpha.get(&memory)?;
        if alpha.is_nothing() {
            return Ok(());
        }
        let (x, y) = (memory.vector::<N>(x)?, memory.vector::<N>(y)?);
        let old = Dense::read::<N>(&memory, a)?;
        let new = Dense::new(old.rows, old.columns, |row, column| {
            let y = if conjugate {
                y[column].conjugate()
            } else {
                y[column]
            };
            old.at(row, column) + alpha * x[row] * y
        });
        memory.set_matrix(a, &new.data, |_, _| true)
    })
}

fn triangular<N: Field>(
    handle: &Handle,
    [fill, operation, diagonal]: [c_int; 3],
    a: Matrix,
    x: (*const N, i64),
    work: fn(&Triangle<N>, &mut [N]),
) -> Result {
    let (fill, operation) = (Fill::new(fill)?, Operation::new(operation)?);
    let unit = is_unit(diagonal)?;
    require(x.1 != 0)?;
    if a.rows == 0 {
        return Ok(());
    }
    let x = vector(x.0, a.rows, x.1);
    handle.run(move |memory| {
        let triangle = Triangle::new(Dense::read::<N>(&memory, a)?, fill, operation, unit);
        let mut values = memory.vector::<N>(x)?;
        work(&triangle, &mut values);
        memory.set_vector(x, &values)
    })
}

family! {
    [cublasSgemv_v2 f32, cublasDgemv_v2 f64, cublasCgemv_v2 C32, cublasZgemv_v2 C64]
    (
        trans: c_int, m: Int, n: Int, alpha: Argument<T>, a: *const T, lda: Int, x: *const T, incx: Int,
        beta: Argument<T>, y: *mut T, incy: Int,
    ) |handle| {
        let a = matrix(a, (m.into(), n.into()), lda.into())?;
        gemv(handle, Operation::new(trans)?, a, (x, incx.into()), (y, incy.into()), alpha, beta)
    }

    [cublasSger_v2 f32, cublasDger_v2 f64, cublasCgeru_v2 C32, cublasZgeru_v2 C64]
    (m: Int, n: Int, alpha: Argument<T>, x: *const T, incx: Int, y: *const T, incy: Int, a: *mut T, lda: Int) |handle| {
        let a = matrix(a, (m.into(), n.into()), lda.into())?;
        ger(handle, false, a, (x, incx.into()), (y, incy.into()), alpha)
    }

    [cublasCgerc_v2 C32, cublasZgerc_v2 C64]
    (m: Int, n: Int, alpha: Argument<T>, x: *const T, incx: Int, y: *const T, incy: Int, a: *mut T, lda: Int) |handle| {
        let a = matrix(a, (m.into(), n.into()), lda.into())?;
        ger(handle, true, a, (x, incx.into()), (y, incy.into()), alpha)
    }

    [cublasSsymv_v2 f32, cublasDsymv_v2 f64, cublasCsymv_v2 C32, cublasZsymv_v2 C64]
    (
        uplo: c_int, n: Int, alpha: Argument<T>, a: *const T, lda: Int, x: *const T, incx: Int,
        beta: Argument<T>, y: *mut T, incy: Int,
    ) |handle| {
        let a = matrix(a, (n.into(), n.into()), lda.into())?;
        symv(handle, false, Fill::new(uplo)?, a, (x, incx.into()), (y, incy.into()), alpha, beta)
    }

    [cublasChemv_v2 C32, cublasZhemv_v2 C64]
    (
        uplo: c_int, n: Int, alpha: Argument<T>, a: *const T, lda: Int, x: *const T, incx: Int,
        beta: Argument<T>, y: *mut T, incy: Int,
    ) |handle| {
        let a = matrix(a, (n.into(), n.into()), lda.into())?;
        symv(handle, true, Fill::new(uplo)?, a, (x, incx.into()), (y, incy.into()), alpha, beta)
    }

    [cublasStrmv_v2 f32, cublasDtrmv_v2 f64, cublasCtrmv_v2 C32, cublasZtrmv_v2 C64]
    (uplo: c_int, trans: c_int, diag: c_int, n: Int, a: *const T, lda: Int, x: *mut T, incx: Int) |handle| {
        let a = matrix(a, (n.into(), n.into()), lda.into())?;
        triangular::<T>(handle, [uplo, trans, diag], a, (x, incx.into()), Triangle::multiply)
    }

    [cublasStrsv_v2 f32, cublasDtrsv_v2 f64, cublasCtrsv_v2 C32, cublasZtrsv_v2 C64]
    (uplo: c_int, trans: c_int, diag: c_int, n: Int, a: *const T, lda: Int, x: *mut T, incx: Int) |handle| {
        let a = matrix(a, (n.into(), n.into()), lda.into())?;
        triangular::<T>(handle, [uplo, trans, diag], a, (x, incx.into()), Triangle::solve)
    }
}
