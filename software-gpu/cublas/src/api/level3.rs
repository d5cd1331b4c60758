// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Level 3 but for general products: symmetric and triangular matrices, and cuBLAS's own additions.

use std::ffi::c_int;

use crate::dense::{Dense, Triangle, blend};
use crate::handle::{Argument, Handle};
use crate::number::{C32, C64, Field};
use crate::types::{Fill, Operation, Result, is_right, is_unit};
use gpgpu_stand_in::memory::{Matrix, Memory, Outcome, Scalar, Vector};

use super::{family, matrix, require, vector};

/// `c = alpha product + beta c` for the elements of `c` that `which` selects. The product is only computed if it is
/// needed.
fn update<N: Field>(
    memory: &Memory,
    product: impl FnOnce() -> Outcome<Dense<N>>,
    c: Matrix,
    [alpha, beta]: [Scalar<N>; 2],
    which: impl Fn(usize, usize) -> bool,
) -> Outcome {
    memory.check_matrix::<N>(c)?;
    let (alpha, beta) = (alpha.get(memory)?, beta.get(memory)?);
    let mut new = if alpha.is_nothing() {
        Dense::new(c.rows as usize, c.columns as usize, |_, _| N::default())
    } else {
        product()?
    };
    if beta.is_nothing() {
        new.data.iter_mut().for_each(|x| *x = alpha * *x);
    } else {
        let old = memory.matrix::<N>(c)?;
        let pairs = new.data.iter_mut().zip(old);
        pairs.for_each(|(x, old)| *x = blend(alpha, *x, beta, old));
    }
    memory.set_matrix(c, &new.data, which)
}

/// A square matrix on one side of a matrix of that shape.
fn beside<T>(a: *const T, right: bool, (m, n): (i64, i64), lda: i64) -> Result<Matrix> {
    let order = if right { n } else { m };
    matrix(a, (order, order), lda)
}

fn symm<N: Field>(
    handle: &Handle,
    hermitian: bool,
    right: bool,
    fill: Fill,
    [a, b, c]: [Matrix; 3],
    alpha: Argument<N>,
    beta: Argument<N>,
) -> Result {
    let scalars = [handle.scalar(alpha)?, handle.scalar(beta)?];
    if c.rows == 0 || c.columns == 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let product = || {
            let a = Dense::read::<N>(&memory, a)?.mirrored(fill, hermitian);
            let b = Dense::read::<N>(&memory, b)?;
            Ok(if right { b.times(&a) } else { a.times(&b) })
        };
        update(&memory, product, c, scalars, |_, _| true)
    })
}

/// `c = alpha op(a) op(a)^T + beta c` in one triangle.
fn syrk<N: Field>(
    handle: &Handle,
    [fill, operation]: [c_int; 2],
    (n, k): (i64, i64),
    a: (*const N, i64),
    c: (*const N, i64),
    alpha: Argument<N>,
    beta: Argument<N>,
) -> Result {
    let (fill, operation) = (Fill::new(fill)?, Operation::new(operation)?);
    // The adjoint is for `herk`, except that with real numbers it is the transpose.
    let is_complex = size_of::<N>() > size_of::<N::Real>();
    require(match operation {
        Operation::None | Operation::Transpose => true,
        Operation::Adjoint => !is_complex,
        Operation::Conjugate => false,
    })?;
    let a = matrix(a.0, operation.stored(n, k), a.1)?;
    let c = matrix(c.0, (n, n), c.1)?;
    let scalars = [handle.scalar(alpha)?, handle.scalar(beta)?];
    if n == 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let product = || {
            let a = Dense::read::<N>(&memory, a)?.apply(operation);
            Ok(a.times(&a.clone().apply(Operation::Transpose)))
        };
        update(&memory, product, c, scalars, |row, column| {
            fill.holds(row, column)
        })
    })
}

/// Solves `op(a) x = alpha b`, or `x op(a) = alpha b`, for `x` in place of `b`.
fn trsm<N: Field>(
    handle: &Handle,
    right: bool,
    [fill, operation, diagonal]: [c_int; 3],
    [a, b]: [Matrix; 2],
    alpha: Argument<N>,
) -> Result {
    let (fill, operation) = (Fill::new(fill)?, Operation::new(operation)?);
    let unit = is_unit(diagonal)?;
    let alpha = handle.scalar(alpha)?;
    if b.rows == 0 || b.columns == 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        memory.check_matrix::<N>(b)?;
        let alpha = alpha.get(&memory)?;
        if alpha.is_nothing() {
            let zeros = vec![N::default(); (b.rows * b.columns) as usize];
            return memory.set_matrix(b, &zeros, |_, _| true);
        }
        let mut a = Dense::read::<N>(&memory, a)?.apply(operation);
        let mut fill = fill.after(operation);
        let mut x = Dense::read::<N>(&memory, b)?;
        x.data.iter_mut().for_each(|x| *x = alpha * *x);
        // On the right it is the same with everything transposed.
        let turn = if right {
            Operation::Transpose
        } else {
            Operation::None
        };
        (a, fill, x) = (a.apply(turn), fill.after(turn), x.apply(turn));
        let triangle = Triangle::new(a, fill, Operation::None, unit);
        let rows = x.rows;
        x.data
            .chunks_exact_mut(rows)
            .for_each(|column| triangle.solve(column));
        memory.set_matrix(b, &x.apply(turn).data, |_, _| true)
    })
}

/// `c = alpha op(a) + beta op(b)`.
fn geam<N: Field>(
    handle: &Handle,
    operations: [Operation; 2],
    inputs: [Matrix; 2],
    c: Matrix,
    alpha: Argument<N>,
    beta: Argument<N>,
) -> Result {
    for (operation, input) in operations.iter().zip(inputs) {
        // This works in place only if each element depends only on itself.
        let alone = *operation == Operation::None && input.leading == c.leading;
        require(input.address != c.address || c.address == 0 || alone)?;
    }
    let scalars = [handle.scalar(alpha)?, handle.scalar(beta)?];
    if c.rows == 0 || c.columns == 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        memory.check_matrix::<N>(c)?;
        let mut sum = Dense::new(c.rows as usize, c.columns as usize, |_, _| N::default());
        for ((factor, operation), input) in scalars.iter().zip(operations).zip(inputs) {
            let factor = factor.get(&memory)?;
            // With a factor of zero the matrix need not exist.
            if !factor.is_nothing() {
                let input = Dense::read::<N>(&memory, input)?.apply(operation);
                let pairs = sum.data.iter_mut().zip(input.data);
                pairs.for_each(|(sum, x)| *sum += factor * x);
            }
        }
        memory.set_matrix(c, &sum.data, |_, _| true)
    })
}

/// `c = a diag(x)`, or `diag(x) a` on the left.
fn dgmm<N: Field>(handle: &Handle, right: bool, a: Matrix, x: Vector, c: Matrix) -> Result {
    if c.rows == 0 || c.columns == 0 {
        return Ok(());
    }
    handle.run(move |memory| {
        let (a, x) = (Dense::read::<N>(&memory, a)?, memory.vector::<N>(x)?);
        let c_values = Dense::new(a.rows, a.columns, |row, column| {
            a.at(row, column) * x[if right { column } else { row }]
        });
        memory.set_matrix(c, &c_values.data, |_, _| true)
    })
}

family! {
    [cublasSsymm_v2 f32, cublasDsymm_v2 f64, cublasCsymm_v2 C32, cublasZsymm_v2 C64]
    (
        side: c_int, uplo: c_int, m: Int, n: Int, alpha: Argument<T>, a: *const T, lda: Int, b: *const T, ldb: Int,
        beta: Argument<T>, c: *mut T, ldc: Int,
    ) |handle| {
        let (right, shape) = (is_right(side)?, (m.into(), n.into()));
        let a = beside(a, right, shape, lda.into())?;
        let (b, c) = (matrix(b, shape, ldb.into())?, matrix(c, shape, ldc.into())?);
        symm(handle, false, right, Fill::new(uplo)?, [a, b, c], alpha, beta)
    }

    [cublasChemm_v2 C32, cublasZhemm_v2 C64]
    (
        side: c_int, uplo: c_int, m: Int, n: Int, alpha: Argument<T>, a: *const T, lda: Int, b: *const T, ldb: Int,
        beta: Argument<T>, c: *mut T, ldc: Int,
    ) |handle| {
        let (right, shape) = (is_right(side)?, (m.into(), n.into()));
        let a = beside(a, right, shape, lda.into())?;
        let (b, c) = (matrix(b, shape, ldb.into())?, matrix(c, shape, ldc.into())?);
        symm(handle, true, right, Fill::new(uplo)?, [a, b, c], alpha, beta)
    }

    [cublasSsyrk_v2 f32, cublasDsyrk_v2 f64, cublasCsyrk_v2 C32, cublasZsyrk_v2 C64]
    (
        uplo: c_int, trans: c_int, n: Int, k: Int, alpha: Argument<T>, a: *const T, lda: Int,
        beta: Argument<T>, c: *mut T, ldc: Int,
    ) |handle| {
        let shape = (n.into(), k.into());
        syrk::<T>(handle, [uplo, trans], shape, (a, lda.into()), (c, ldc.into()), alpha, beta)
    }

    [cublasStrsm_v2 f32, cublasDtrsm_v2 f64, cublasCtrsm_v2 C32, cublasZtrsm_v2 C64]
    (
        side: c_int, uplo: c_int, trans: c_int, diag: c_int, m: Int, n: Int, alpha: Argument<T>, a: *const T, lda: Int,
        b: *mut T, ldb: Int,
    ) |handle| {
        let (right, shape) = (is_right(side)?, (m.into(), n.into()));
        let matrices = [beside(a, right, shape, lda.into())?, matrix(b, shape, ldb.into())?];
        trsm::<T>(handle, right, [uplo, trans, diag], matrices, alpha)
    }

    [cublasSgeam f32, cublasDgeam f64, cublasCgeam C32, cublasZgeam C64]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, alpha: Argument<T>, a: *const T, lda: Int,
        beta: Argument<T>, b: *const T, ldb: Int, c: *mut T, ldc: Int,
    ) |handle| {
        let operations = [Operation::new(transa)?, Operation::new(transb)?];
        let (rows, columns) = (m.into(), n.into());
        let a = matrix(a, operations[0].stored(rows, columns), lda.into())?;
        let b = matrix(b, operations[1].stored(rows, columns), ldb.into())?;
        geam::<T>(handle, operations, [a, b], matrix(c, (rows, columns), ldc.into())?, alpha, beta)
    }

    [cublasSdgmm f32, cublasDdgmm f64, cublasCdgmm C32, cublasZdgmm C64]
    (mode: c_int, m: Int, n: Int, a: *const T, lda: Int, x: *const T, incx: Int, c: *mut T, ldc: Int) |handle| {
        let (right, shape) = (is_right(mode)?, (m.into(), n.into()));
        let (a, c) = (matrix(a, shape, lda.into())?, matrix(c, shape, ldc.into())?);
        let count = if right { n } else { m };
        dgmm::<T>(handle, right, a, vector(x, count.into(), incx.into()), c)
    }
}
