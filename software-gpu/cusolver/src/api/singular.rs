// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Singular values.

use std::ffi::{c_int, c_schar};

use gpgpu_stand_in::memory::{Matrix, Memory, Outcome};
use nalgebra::{Complex, DMatrix};

use crate::dense::{self, Singular};
use crate::handle::{Answer, GESVDJ, Handle, Raw, with};
use crate::types::{Number, Real, Result, Status, flag, require};

use super::factor::WORKSPACE;
use super::{all, family, matrix, vector};

/// The place for one side's vectors, if they are wanted.
type Vectors = Option<Matrix>;

fn decompose<T: Number>(memory: Memory, a: Matrix, s: u64, is_whole: bool) -> Outcome<Singular<T>> {
    let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
    let found = dense::singular(values, is_whole);
    memory.set_vector(
        vector(s as *const T, found.values.len() as i64),
        &found.values,
    )?;
    Ok(found)
}

// `gesvd`'s letters: all vectors, as many as there are values, the same in place of the matrix, or none.
fn place(
    letter: c_schar,
    (all, some): (i64, i64),
    given: impl Fn(i64) -> Result<Matrix>,
    over: Matrix,
) -> Result<Vectors> {
    match letter as u8 {
        b'A' => given(all).map(Some),
        b'S' => given(some).map(Some),
        b'O' => Ok(Some(over)),
        b'N' => Ok(None),
        _ => Err(Status::InvalidValue),
    }
}

/// The left vectors in columns and the right ones, adjoint, in rows.
pub fn gesvd<T: Number>(
    handle: &Handle,
    (jobu, jobvt): (c_schar, c_schar),
    a: Matrix,
    s: u64,
    (u, ldu): (u64, i64),
    (vt, ldvt): (u64, i64),
    info: u64,
) -> Result {
    let (m, n) = (a.rows, a.columns);
    let is_one_place_for_both = (jobu as u8, jobvt as u8) == (b'O', b'O');
    require(m >= n && info != 0 && !is_one_place_for_both)?;
    let left = place(
        jobu,
        (m, n),
        |columns| matrix(u as *const T, (m, columns), ldu),
        a,
    )?;
    let right = place(
        jobvt,
        (n, n),
        |rows| matrix(vt as *const T, (rows, n), ldvt),
        Matrix { rows: n, ..a },
    )?;
    handle.run(move |memory| {
        // Before memory of this size is allocated.
        for of in [left, right].into_iter().flatten() {
            memory.check_matrix::<T>(of)?;
        }
        let is_whole = left.is_some_and(|left| left.columns == m);
        let found = decompose::<T>(memory, a, s, is_whole)?;
        if let Some(left) = left {
            memory.set_matrix(left, found.left.as_slice(), all)?;
        }
        if let Some(right) = right {
            memory.set_matrix(right, found.right.adjoint().as_slice(), all)?;
        }
        memory.set(info, 0_i32)
    })
}

/// Both sides' vectors in columns.
fn gesvdj<T: Number>(
    handle: &Handle,
    (jobz, econ): (c_int, c_int),
    a: Matrix,
    s: u64,
    (u, ldu): (u64, i64),
    (v, ldv): (u64, i64),
    info: u64,
) -> Result {
    let (m, n) = (a.rows, a.columns);
    require(info != 0 && (0..=1).contains(&econ))?;
    let sides = match flag(jobz)? {
        true => {
            let least = if econ == 1 { m.min(n) } else { i64::MAX };
            let left = matrix(u as *const T, (m, m.min(least)), ldu)?;
            Some((left, matrix(v as *const T, (n, n.min(least)), ldv)?))
        }
        false => None,
    };
    handle.run(move |memory| {
        let values = dense::matrix::<T>(m, n, memory.matrix(a)?);
        for of in sides.into_iter().flat_map(|(left, right)| [left, right]) {
            memory.check_matrix::<T>(of)?;
        }
        // A matrix with more columns than rows is decomposed as its adjoint.
        let is_wide = m < n;
        let values = if is_wide { values.adjoint() } else { values };
        let mut found = dense::singular(values, econ == 0 && sides.is_some());
        if is_wide {
            std::mem::swap(&mut found.left, &mut found.right);
        }
        memory.set_vector(
            vector(s as *const T, found.values.len() as i64),
            &found.values,
        )?;
        if let Some((left, right)) = sides {
            memory.set_matrix(left, found.left.as_slice(), all)?;
            memory.set_matrix(right, found.right.as_slice(), all)?;
        }
        memory.set(info, 0_i32)
    })
}

/// The distance of the left vectors, times their values, from the matrix times the right ones: as NVIDIA's library,
/// which leaves the other values out.
fn residual<T: Number>(a: &DMatrix<T>, found: &Singular<T>, rank: usize) -> f64 {
    let mut left = found.left.columns(0, rank).into_owned();
    for (at, value) in found.values[..rank].iter().enumerate() {
        left.column_mut(at).scale_mut(*value);
    }
    let rest = a * found.right.columns(0, rank) - left;
    nalgebra::try_convert(rest.norm()).unwrap_or(f64::NAN)
}

family! {
    [cusolverDnSgesvd_bufferSize f32, cusolverDnDgesvd_bufferSize f64, cusolverDnCgesvd_bufferSize Complex<f32>, cusolverDnZgesvd_bufferSize Complex<f64>]
    (m: c_int, n: c_int, lwork: Answer<c_int>) |_handle| {
        require(n >= 0 && m >= n)?;
        lwork.set(WORKSPACE)
    }

    [cusolverDnSgesvd f32, cusolverDnDgesvd f64, cusolverDnCgesvd Complex<f32>, cusolverDnZgesvd Complex<f64>]
    (jobu: c_schar, jobvt: c_schar, m: c_int, n: c_int, A: *mut T, lda: c_int, S: *mut Real<T>, U: *mut T, ldu: c_int, VT: *mut T, ldvt: c_int,
        _work: *mut T, lwork: c_int, _rwork: *mut Real<T>, info: *mut c_int) |handle| {
        require(lwork >= WORKSPACE)?;
        let a = matrix(A, (m.into(), n.into()), lda.into())?;
        gesvd::<T>(handle, (jobu, jobvt), a, S as u64, (U as u64, ldu.into()), (VT as u64, ldvt.into()), info as u64)
    }

    [cusolverDnSgesvdj_bufferSize f32, cusolverDnDgesvdj_bufferSize f64, cusolverDnCgesvdj_bufferSize Complex<f32>, cusolverDnZgesvdj_bufferSize Complex<f64>]
    (_jobz: c_int, _econ: c_int, m: c_int, n: c_int, A: *const T, lda: c_int, _S: *const Real<T>, _U: *const T, _ldu: c_int, _V: *const T, _ldv: c_int,
        lwork: Answer<c_int>, params: Raw) |_handle| {
        with(&GESVDJ, params, |_| ())?;
        matrix(A, (m.into(), n.into()), lda.into())?;
        lwork.set(WORKSPACE)
    }

    [cusolverDnSgesvdj f32, cusolverDnDgesvdj f64, cusolverDnCgesvdj Complex<f32>, cusolverDnZgesvdj Complex<f64>]
    (jobz: c_int, econ: c_int, m: c_int, n: c_int, A: *mut T, lda: c_int, S: *mut Real<T>, U: *mut T, ldu: c_int, V: *mut T, ldv: c_int,
        _work: *mut T, lwork: c_int, info: *mut c_int, params: Raw) |handle| {
        require(lwork >= WORKSPACE)?;
        with(&GESVDJ, params, |params| params.rounds = 1)?;
        let a = matrix(A, (m.into(), n.into()), lda.into())?;
        gesvdj::<T>(handle, (jobz, econ), a, S as u64, (U as u64, ldu.into()), (V as u64, ldv.into()), info as u64)
    }

    [cusolverDnSgesvdaStridedBatched_bufferSize f32, cusolverDnDgesvdaStridedBatched_bufferSize f64]
    (_jobz: c_int, rank: c_int, m: c_int, n: c_int, A: *const T, lda: c_int, _strideA: i64, _S: *const Real<T>, _strideS: i64,
        _U: *const T, _ldu: c_int, _strideU: i64, _V: *const T, _ldv: c_int, _strideV: i64, lwork: Answer<c_int>, batchSize: c_int) |_handle| {
        require(rank >= 0 && rank <= n && n <= m && batchSize >= 0)?;
        matrix(A, (m.into(), n.into()), lda.into())?;
        lwork.set(WORKSPACE)
    }

    [cusolverDnSgesvdaStridedBatched f32, cusolverDnDgesvdaStridedBatched f64]
    (jobz: c_int, rank: c_int, m: c_int, n: c_int, A: *const T, lda: c_int, strideA: i64, S: *mut Real<T>, strideS: i64,
        U: *mut T, ldu: c_int, strideU: i64, V: *mut T, ldv: c_int, strideV: i64, _work: *mut T, lwork: c_int, info: *mut c_int,
        h_R_nrmF: *mut f64, batchSize: c_int) |handle| {
        require(lwork >= WORKSPACE && rank >= 0 && rank <= n && n <= m && batchSize >= 0)?;
        let (vectors, bytes) = (flag(jobz)?, size_of::<T>() as i64);
        let a = matrix(A, (m.into(), n.into()), lda.into())?;
        let (u, v) = match vectors {
            true => (matrix(U, (m.into(), rank.into()), ldu.into())?, matrix(V, (n.into(), rank.into()), ldv.into())?),
            false => (a, a),
        };
        let (s, info, rank) = (S as u64, info as u64, rank as usize);
        let at = move |of: Matrix, stride: i64, batch: i64| Matrix {
            address: of.address.wrapping_add_signed(stride.wrapping_mul(bytes).wrapping_mul(batch)),
            ..of
        };
        let norms = handle.answer(move |memory| {
            let mut norms = Vec::new();
            for batch in 0..i64::from(batchSize) {
                let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(at(a, strideA, batch))?);
                let found = dense::singular(values.clone(), false);
                let to = s.wrapping_add_signed(strideS.wrapping_mul(bytes).wrapping_mul(batch));
                memory.set_vector(vector(to as *const T, rank as i64), &found.values[..rank])?;
                if vectors {
                    memory.set_matrix(at(u, strideU, batch), found.left.columns(0, rank).into_owned().as_slice(), all)?;
                    memory.set_matrix(at(v, strideV, batch), found.right.columns(0, rank).into_owned().as_slice(), all)?;
                }
                memory.set(info + 4 * batch as u64, 0_i32)?;
                norms.push(residual(&values, &found, rank));
            }
            Ok(norms)
        })?;
        if vectors && !h_R_nrmF.is_null() {
            // SAFETY: the API's contract is that there is room for as many as there are matrices.
            unsafe { std::ptr::copy_nonoverlapping(norms.as_ptr(), h_R_nrmF, norms.len()) };
        }
        Ok(())
    }
}
