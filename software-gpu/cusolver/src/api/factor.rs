// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Factors, and systems that are solved by them.

use std::ffi::c_int;

use gpgpu_stand_in::memory::{Matrix, Vector};
use nalgebra::Complex;

use crate::dense;
use crate::handle::{Answer, Handle};
use crate::types::{Fill, Number, Operation, Result, Status, flag, require};

use super::{all, family, matrix, vector};

/// The Cholesky factor of a matrix; `info` is the leading minor that is not positive.
pub fn potrf<T: Number>(handle: &Handle, fill: Fill, a: Matrix, info: u64) -> Result {
    require(info != 0)?;
    handle.run(move |memory| {
        let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let said = match dense::cholesky(&values, fill) {
            Ok(factor) => {
                memory.set_matrix(a, factor.as_slice(), |row, column| fill.holds(row, column))?;
                0
            }
            Err(minor) => minor,
        };
        memory.set(info, said)
    })
}

/// Solves by the factor of [`potrf`].
pub fn potrs<T: Number>(handle: &Handle, fill: Fill, a: Matrix, b: Matrix, info: u64) -> Result {
    require(info != 0)?;
    handle.run(move |memory| {
        let factor = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let right = dense::matrix(b.rows, b.columns, memory.matrix(b)?);
        let x = dense::solve_cholesky(&factor, fill, &right);
        memory.set_matrix(b, x.as_slice(), all)?;
        memory.set(info, 0_i32)
    })
}

/// The triangular factors of a matrix with rows exchanged. Pivots are as wide as `pivot` makes them.
pub fn getrf<T: Number>(
    handle: &Handle,
    a: Matrix,
    pivots: u64,
    is_wide: bool,
    info: u64,
) -> Result {
    require(info != 0)?;
    if pivots == 0 {
        // Without exchanges: nothing here computes that.
        return Err(Status::NotSupported);
    }
    handle.run(move |memory| {
        let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let (factors, rows, said) = dense::lu(values);
        memory.set_matrix(a, factors.as_slice(), all)?;
        let places = vector(pivots as *const T, rows.len() as i64);
        if is_wide {
            let rows: Vec<i64> = rows.iter().map(|row| i64::from(*row)).collect();
            memory.set_vector(places, &rows)?;
        } else {
            memory.set_vector(places, &rows)?;
        }
        memory.set(info, said)
    })
}

/// Solves by the factors of [`getrf`].
pub fn getrs<T: Number>(
    handle: &Handle,
    operation: Operation,
    a: Matrix,
    pivots: Vector,
    is_wide: bool,
    b: Matrix,
    info: u64,
) -> Result {
    require(info != 0)?;
    handle.run(move |memory| {
        let factors = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let right = dense::matrix(b.rows, b.columns, memory.matrix(b)?);
        let pivots: Vec<i32> = match is_wide {
            true => {
                let wide = memory.vector::<i64>(pivots)?;
                wide.iter().map(|row| *row as i32).collect()
            }
            false => memory.vector(pivots)?,
        };
        let x = dense::solve_lu(&factors, &pivots, operation, right);
        // A pivot that is no row is an access outside of the matrix.
        let x = x.ok_or(gpgpu_stand_in::driver::ILLEGAL_ADDRESS)?;
        memory.set_matrix(b, x.as_slice(), all)?;
        memory.set(info, 0_i32)
    })
}

/// The reflections whose product is Q, below R.
pub fn geqrf<T: Number>(handle: &Handle, a: Matrix, tau: u64, info: u64) -> Result {
    require(info != 0)?;
    handle.run(move |memory| {
        let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let (vectors, factors) = dense::qr(values);
        memory.set_matrix(a, vectors.as_slice(), all)?;
        memory.set_vector(vector(tau as *const T, factors.len() as i64), &factors)?;
        memory.set(info, 0_i32)
    })
}

/// The first columns of Q in the place of the reflections.
fn orgqr<T: Number>(handle: &Handle, a: Matrix, tau: Vector, info: u64) -> Result {
    require(info != 0 && tau.count >= 0 && tau.count <= a.columns && a.columns <= a.rows)?;
    handle.run(move |memory| {
        let vectors = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let factors = memory.vector(tau)?;
        let start = nalgebra::DMatrix::identity(a.rows as usize, a.columns as usize);
        let q = dense::times_q(&vectors, &factors, false, false, start);
        memory.set_matrix(a, q.as_slice(), all)?;
        memory.set(info, 0_i32)
    })
}

/// The product of Q, or its adjoint, and a matrix.
fn ormqr<T: Number>(
    handle: &Handle,
    (is_right, adjoint): (bool, bool),
    a: Matrix,
    tau: Vector,
    c: Matrix,
    info: u64,
) -> Result {
    let order = if is_right { c.columns } else { c.rows };
    require(info != 0 && a.rows == order && tau.count <= order)?;
    handle.run(move |memory| {
        let vectors = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
        let factors = memory.vector(tau)?;
        let values = dense::matrix(c.rows, c.columns, memory.matrix(c)?);
        let product = dense::times_q(&vectors, &factors, is_right, adjoint, values);
        memory.set_matrix(c, product.as_slice(), all)?;
        memory.set(info, 0_i32)
    })
}

/// The size of every function's workspace. It is not used here, but callers must provide it.
pub const WORKSPACE: c_int = 64;

/// A workspace's size, once the shape is a matrix's.
fn size<T>(a: *const T, (rows, columns): (c_int, c_int), lda: c_int, to: Answer<c_int>) -> Result {
    matrix(a, (rows.into(), columns.into()), lda.into())?;
    to.set(WORKSPACE)
}

family! {
    [cusolverDnSpotrf_bufferSize f32, cusolverDnDpotrf_bufferSize f64, cusolverDnCpotrf_bufferSize Complex<f32>, cusolverDnZpotrf_bufferSize Complex<f64>]
    (uplo: c_int, n: c_int, A: *mut T, lda: c_int, Lwork: Answer<c_int>) |_handle| {
        Fill::new(uplo)?;
        size(A, (n, n), lda, Lwork)
    }

    [cusolverDnSpotrf f32, cusolverDnDpotrf f64, cusolverDnCpotrf Complex<f32>, cusolverDnZpotrf Complex<f64>]
    (uplo: c_int, n: c_int, A: *mut T, lda: c_int, _work: *mut T, Lwork: c_int, devInfo: *mut c_int) |handle| {
        require(Lwork >= WORKSPACE)?;
        potrf::<T>(handle, Fill::new(uplo)?, matrix(A, (n.into(), n.into()), lda.into())?, devInfo as u64)
    }

    [cusolverDnSpotrs f32, cusolverDnDpotrs f64, cusolverDnCpotrs Complex<f32>, cusolverDnZpotrs Complex<f64>]
    (uplo: c_int, n: c_int, nrhs: c_int, A: *const T, lda: c_int, B: *mut T, ldb: c_int, devInfo: *mut c_int) |handle| {
        let a = matrix(A, (n.into(), n.into()), lda.into())?;
        potrs::<T>(handle, Fill::new(uplo)?, a, matrix(B, (n.into(), nrhs.into()), ldb.into())?, devInfo as u64)
    }

    [cusolverDnSpotrfBatched f32, cusolverDnDpotrfBatched f64, cusolverDnCpotrfBatched Complex<f32>, cusolverDnZpotrfBatched Complex<f64>]
    (uplo: c_int, n: c_int, Aarray: *const u64, lda: c_int, infoArray: *mut c_int, batchSize: c_int) |handle| {
        let (fill, shape) = (Fill::new(uplo)?, matrix(std::ptr::null::<T>(), (n.into(), n.into()), lda.into())?);
        require(batchSize >= 0)?;
        let (addresses, infos) = (vector(Aarray, batchSize.into()), infoArray as u64);
        handle.run(move |memory| {
            for (at, address) in memory.vector::<u64>(addresses)?.into_iter().enumerate() {
                let a = Matrix { address, ..shape };
                let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
                let found = dense::cholesky(&values, fill);
                if let Ok(factor) = &found {
                    memory.set_matrix(a, factor.as_slice(), |row, column| fill.holds(row, column))?;
                }
                memory.set(infos + 4 * at as u64, found.err().unwrap_or(0))?;
            }
            Ok(())
        })
    }

    [cusolverDnSgetrf_bufferSize f32, cusolverDnDgetrf_bufferSize f64, cusolverDnCgetrf_bufferSize Complex<f32>, cusolverDnZgetrf_bufferSize Complex<f64>]
    (m: c_int, n: c_int, A: *mut T, lda: c_int, Lwork: Answer<c_int>) |_handle| {
        size(A, (m, n), lda, Lwork)
    }

    [cusolverDnSgetrf f32, cusolverDnDgetrf f64, cusolverDnCgetrf Complex<f32>, cusolverDnZgetrf Complex<f64>]
    (m: c_int, n: c_int, A: *mut T, lda: c_int, _work: *mut T, devIpiv: *mut c_int, devInfo: *mut c_int) |handle| {
        getrf::<T>(handle, matrix(A, (m.into(), n.into()), lda.into())?, devIpiv as u64, false, devInfo as u64)
    }

    [cusolverDnSgetrs f32, cusolverDnDgetrs f64, cusolverDnCgetrs Complex<f32>, cusolverDnZgetrs Complex<f64>]
    (trans: c_int, n: c_int, nrhs: c_int, A: *const T, lda: c_int, devIpiv: *const c_int, B: *mut T, ldb: c_int, devInfo: *mut c_int) |handle| {
        let a = matrix(A, (n.into(), n.into()), lda.into())?;
        let b = matrix(B, (n.into(), nrhs.into()), ldb.into())?;
        getrs::<T>(handle, Operation::new(trans)?, a, vector(devIpiv, n.into()), false, b, devInfo as u64)
    }

    [cusolverDnSgeqrf_bufferSize f32, cusolverDnDgeqrf_bufferSize f64, cusolverDnCgeqrf_bufferSize Complex<f32>, cusolverDnZgeqrf_bufferSize Complex<f64>]
    (m: c_int, n: c_int, A: *mut T, lda: c_int, lwork: Answer<c_int>) |_handle| {
        size(A, (m, n), lda, lwork)
    }

    [cusolverDnSgeqrf f32, cusolverDnDgeqrf f64, cusolverDnCgeqrf Complex<f32>, cusolverDnZgeqrf Complex<f64>]
    (m: c_int, n: c_int, A: *mut T, lda: c_int, TAU: *mut T, _work: *mut T, Lwork: c_int, devInfo: *mut c_int) |handle| {
        require(Lwork >= WORKSPACE)?;
        geqrf::<T>(handle, matrix(A, (m.into(), n.into()), lda.into())?, TAU as u64, devInfo as u64)
    }

    [cusolverDnSorgqr_bufferSize f32, cusolverDnDorgqr_bufferSize f64, cusolverDnCungqr_bufferSize Complex<f32>, cusolverDnZungqr_bufferSize Complex<f64>]
    (m: c_int, n: c_int, _k: c_int, A: *const T, lda: c_int, _tau: *const T, lwork: Answer<c_int>) |_handle| {
        size(A, (m, n), lda, lwork)
    }

    [cusolverDnSorgqr f32, cusolverDnDorgqr f64, cusolverDnCungqr Complex<f32>, cusolverDnZungqr Complex<f64>]
    (m: c_int, n: c_int, k: c_int, A: *mut T, lda: c_int, tau: *const T, _work: *mut T, lwork: c_int, info: *mut c_int) |handle| {
        require(lwork >= WORKSPACE)?;
        orgqr::<T>(handle, matrix(A, (m.into(), n.into()), lda.into())?, vector(tau, k.into()), info as u64)
    }

    [cusolverDnSormqr_bufferSize f32, cusolverDnDormqr_bufferSize f64, cusolverDnCunmqr_bufferSize Complex<f32>, cusolverDnZunmqr_bufferSize Complex<f64>]
    (_side: c_int, _trans: c_int, m: c_int, n: c_int, _k: c_int, _A: *const T, _lda: c_int, _tau: *const T, C: *const T, ldc: c_int, lwork: Answer<c_int>) |_handle| {
        size(C, (m, n), ldc, lwork)
    }

    [cusolverDnSormqr f32, cusolverDnDormqr f64, cusolverDnCunmqr Complex<f32>, cusolverDnZunmqr Complex<f64>]
    (side: c_int, trans: c_int, m: c_int, n: c_int, k: c_int, A: *const T, lda: c_int, tau: *const T, C: *mut T, ldc: c_int, _work: *mut T, lwork: c_int, devInfo: *mut c_int) |handle| {
        let (is_right, adjoint) = (flag(side)?, Operation::new(trans)? != Operation::None);
        let order = if is_right { n } else { m };
        require(lwork >= WORKSPACE && k >= 0)?;
        let a = matrix(A, (order.into(), k.into()), lda.into())?;
        let c = matrix(C, (m.into(), n.into()), ldc.into())?;
        ormqr::<T>(handle, (is_right, adjoint), a, vector(tau, k.into()), c, devInfo as u64)
    }
}
