// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Systems that NVIDIA's solves in a lower precision first. Here they are solved once.

use std::ffi::{c_int, c_void};

use crate::dense;
use crate::handle::Answer;
use crate::types::{Operation, require};

use super::{all, family, matrix, vector};

/// The workspace that callers must provide, in bytes.
const WORKSPACE: usize = 256;

family! {
    [cusolverDnSSgesv_bufferSize f32, cusolverDnDDgesv_bufferSize f64]
    (n: c_int, nrhs: c_int, dA: *mut T, ldda: c_int, _dipiv: *mut c_int, _dB: *mut T, _lddb: c_int, _dX: *mut T, _lddx: c_int, _dWorkspace: *mut c_void,
        lwork_bytes: Answer<usize>) |_handle| {
        require(nrhs >= 0)?;
        matrix(dA, (n.into(), n.into()), ldda.into())?;
        lwork_bytes.set(WORKSPACE)
    }

    [cusolverDnSSgesv f32, cusolverDnDDgesv f64]
    (n: c_int, nrhs: c_int, dA: *mut T, ldda: c_int, dipiv: *mut c_int, dB: *mut T, lddb: c_int, dX: *mut T, lddx: c_int, _dWorkspace: *mut c_void,
        lwork_bytes: usize, iter: Answer<c_int>, d_info: *mut c_int) |handle| {
        require(lwork_bytes >= WORKSPACE && !iter.is_null())?;
        let a = matrix(dA, (n.into(), n.into()), ldda.into())?;
        let b = matrix(dB, (n.into(), nrhs.into()), lddb.into())?;
        let x = matrix(dX, (n.into(), nrhs.into()), lddx.into())?;
        let (pivots, info) = (vector(dipiv, n.into()), d_info as u64);
        handle.answer(move |memory| {
            let values = dense::matrix::<T>(a.rows, a.columns, memory.matrix(a)?);
            let right = dense::matrix(b.rows, b.columns, memory.matrix(b)?);
            let (factors, rows, said) = dense::lu(values);
            memory.set_vector(pivots, &rows)?;
            if let Some(found) = dense::solve_lu(&factors, &rows, Operation::None, right) {
                memory.set_matrix(x, found.as_slice(), all)?;
            }
            memory.set(info, said)
        })?;
        iter.set(1)
    }
}
