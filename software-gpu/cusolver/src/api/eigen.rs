// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Eigenvalues of symmetric and Hermitian matrices.

use std::ffi::c_int;

use gpgpu_stand_in::memory::{Matrix, Memory, Outcome};
use nalgebra::Complex;

use crate::dense;
use crate::handle::{Answer, Handle, Raw, SYEVJ, with};
use crate::types::{Fill, Number, Real, Result, flag, require};

use super::factor::WORKSPACE;
use super::{all, family, matrix, vector};

/// The range of eigenvalues, in their order, counted from one.
type Range = Option<(i64, i64)>;

fn compute<T: Number>(
    memory: Memory,
    (vectors, fill): (bool, Fill),
    a: Matrix,
    w: u64,
    range: Range,
    info: u64,
) -> Outcome<i64> {
    let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
    let (found, columns) = dense::eigen(&values, fill);
    let (first, count) = match range {
        Some((first, last)) => (first as usize - 1, (last - first + 1) as usize),
        None => (0, found.len()),
    };
    let found = &found[first..first + count];
    memory.set_vector(vector(w as *const T, count as i64), found)?;
    if vectors {
        let chosen = columns.columns(first, count).into_owned();
        let to = Matrix {
            columns: count as i64,
            ..a
        };
        memory.set_matrix(to, chosen.as_slice(), all)?;
    }
    memory.set(info, 0_i32)?;
    Ok(count as i64)
}

/// All eigenvalues, the least first, and with `jobz` the vectors in the matrix's place.
pub fn syevd<T: Number>(
    handle: &Handle,
    jobz: c_int,
    uplo: c_int,
    a: Matrix,
    w: u64,
    info: u64,
) -> Result {
    let what = (flag(jobz)?, Fill::new(uplo)?);
    require(info != 0)?;
    handle.run(move |memory| compute::<T>(memory, what, a, w, None, info).map(|_| ()))
}

/// The eigenvalues in a range, and their number. Ranges of values are not supported.
pub fn syevdx<T: Number>(
    handle: &Handle,
    (jobz, range, uplo): (c_int, c_int, c_int),
    a: Matrix,
    (first, last): (i64, i64),
    w: u64,
    info: u64,
) -> Result<i64> {
    let what = (flag(jobz)?, Fill::new(uplo)?);
    require(info != 0)?;
    let range = match range {
        1001 => None,
        1002 => {
            require(1 <= first && first <= last && last <= a.columns)?;
            Some((first, last))
        }
        _ => return Err(crate::types::Status::NotSupported),
    };
    handle.answer(move |memory| compute::<T>(memory, what, a, w, range, info))
}

fn size<T>(n: c_int, a: *const T, lda: c_int, to: Answer<c_int>) -> Result {
    matrix(a, (n.into(), n.into()), lda.into())?;
    to.set(WORKSPACE)
}

family! {
    [cusolverDnSsyevd_bufferSize f32, cusolverDnDsyevd_bufferSize f64, cusolverDnCheevd_bufferSize Complex<f32>, cusolverDnZheevd_bufferSize Complex<f64>]
    (_jobz: c_int, _uplo: c_int, n: c_int, A: *const T, lda: c_int, _W: *const Real<T>, lwork: Answer<c_int>) |_handle| {
        size(n, A, lda, lwork)
    }

    [cusolverDnSsyevd f32, cusolverDnDsyevd f64, cusolverDnCheevd Complex<f32>, cusolverDnZheevd Complex<f64>]
    (jobz: c_int, uplo: c_int, n: c_int, A: *mut T, lda: c_int, W: *mut Real<T>, _work: *mut T, lwork: c_int, info: *mut c_int) |handle| {
        require(lwork >= WORKSPACE)?;
        let a = matrix(A, (n.into(), n.into()), lda.into())?;
        syevd::<T>(handle, jobz, uplo, a, W as u64, info as u64)
    }

    [cusolverDnSsyevdx_bufferSize f32, cusolverDnDsyevdx_bufferSize f64, cusolverDnCheevdx_bufferSize Complex<f32>, cusolverDnZheevdx_bufferSize Complex<f64>]
    (_jobz: c_int, _range: c_int, _uplo: c_int, n: c_int, A: *const T, lda: c_int, _vl: Real<T>, _vu: Real<T>, _il: c_int, _iu: c_int,
        _meig: Answer<c_int>, _W: *const Real<T>, lwork: Answer<c_int>) |_handle| {
        size(n, A, lda, lwork)
    }

    [cusolverDnSsyevdx f32, cusolverDnDsyevdx f64, cusolverDnCheevdx Complex<f32>, cusolverDnZheevdx Complex<f64>]
    (jobz: c_int, range: c_int, uplo: c_int, n: c_int, A: *mut T, lda: c_int, _vl: Real<T>, _vu: Real<T>, il: c_int, iu: c_int,
        meig: Answer<c_int>, W: *mut Real<T>, _work: *mut T, lwork: c_int, info: *mut c_int) |handle| {
        require(lwork >= WORKSPACE && !meig.is_null())?;
        let a = matrix(A, (n.into(), n.into()), lda.into())?;
        let count = syevdx::<T>(handle, (jobz, range, uplo), a, (il.into(), iu.into()), W as u64, info as u64)?;
        meig.set(count as c_int)
    }

    [cusolverDnSsyevj_bufferSize f32, cusolverDnDsyevj_bufferSize f64, cusolverDnCheevj_bufferSize Complex<f32>, cusolverDnZheevj_bufferSize Complex<f64>]
    (_jobz: c_int, _uplo: c_int, n: c_int, A: *const T, lda: c_int, _W: *const Real<T>, lwork: Answer<c_int>, params: Raw) |_handle| {
        with(&SYEVJ, params, |_| ())?;
        size(n, A, lda, lwork)
    }

    [cusolverDnSsyevj f32, cusolverDnDsyevj f64, cusolverDnCheevj Complex<f32>, cusolverDnZheevj Complex<f64>]
    (jobz: c_int, uplo: c_int, n: c_int, A: *mut T, lda: c_int, W: *mut Real<T>, _work: *mut T, lwork: c_int, info: *mut c_int, params: Raw) |handle| {
        require(lwork >= WORKSPACE)?;
        with(&SYEVJ, params, |params| params.rounds = 1)?;
        let a = matrix(A, (n.into(), n.into()), lda.into())?;
        syevd::<T>(handle, jobz, uplo, a, W as u64, info as u64)
    }
}
