// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions from before the generic API, and their descriptions of matrices.

use std::ffi::{c_int, c_void};

use gpgpu_stand_in::memory::Vector;

use crate::descriptors::{DESCRIPTIONS, Indices, get, starts, with};
use crate::handle::{Answer, Raw};
use crate::types::{Index, Result, require};

use super::describe::{end, make};
use super::{BUFFER, export};

fn set(name: Raw, at: usize, value: c_int, most: c_int) -> Result {
    require((0..=most).contains(&value))?;
    with(&DESCRIPTIONS, name, |description| description[at] = value)
}

export! {
    /// A general matrix whose indices begin at zero.
    fn cusparseCreateMatDescr(out: Answer<Raw>) { make(&DESCRIPTIONS, out, [0; 4]) }

    /// Destroys it.
    fn cusparseDestroyMatDescr(name: Raw) { end(&DESCRIPTIONS, name) }

    /// General, symmetric, Hermitian or triangular.
    fn cusparseSetMatType(name: Raw, value: c_int) { set(name, 0, value, 3) }

    /// The triangle.
    fn cusparseSetMatFillMode(name: Raw, value: c_int) { set(name, 1, value, 1) }

    /// Sets whether the diagonal is taken for ones.
    fn cusparseSetMatDiagType(name: Raw, value: c_int) { set(name, 2, value, 1) }

    /// The number of the first index.
    fn cusparseSetMatIndexBase(name: Raw, value: c_int) { set(name, 3, value, 1) }

    /// Computes the starts of rows from each element's row.
    fn cusparseXcoo2csr(handle: Raw, cooRowInd: *const c_int, nnz: c_int, m: c_int, csrRowPtr: *mut c_int, idxBase: c_int) |handle| {
        require(nnz >= 0 && m >= 0 && matches!(idxBase, 0 | 1))?;
        let indices = |address: *const c_int| Indices { address: address as u64, width: Index::Narrow, base: idxBase.into() };
        let (from, to) = (indices(cooRowInd), indices(csrRowPtr));
        handle.run(move |memory| {
            let rows = from.read(memory, nnz.into())?;
            let rows: Option<Vec<usize>> = rows.into_iter().map(|row| usize::try_from(row).ok().filter(|row| *row < m as usize)).collect();
            let rows = rows.ok_or(gpgpu_stand_in::driver::ILLEGAL_ADDRESS)?;
            to.check(memory, i64::from(m) + 1)?;
            to.write(memory, &starts(m.into(), rows.into_iter()))
        })
    }

    /// The workspace of `cusparseXcsrsort`.
    fn cusparseXcsrsort_bufferSizeExt(handle: Raw, m: c_int, n: c_int, nnz: c_int, _rows: *const c_int, _columns: *const c_int, size: Answer<usize>) |handle| {
        let _ = handle;
        require(m >= 0 && n >= 0 && nnz >= 0)?;
        size.set(BUFFER)
    }

    /// Sorts each row by columns, and permutes the permutation in the same way.
    fn cusparseXcsrsort(handle: Raw, m: c_int, n: c_int, nnz: c_int, descrA: Raw, csrRowPtr: *const c_int, csrColInd: *mut c_int, P: *mut c_int,
        _buffer: *mut c_void) |handle| {
        require(m >= 0 && n >= 0 && nnz >= 0)?;
        let base = get(&DESCRIPTIONS, descrA)?[3];
        let rows = Indices { address: csrRowPtr as u64, width: Index::Narrow, base: base.into() };
        let at = |address: *mut c_int| Vector { address: address as u64, count: nnz.into(), step: 1 };
        let (columns, order) = (at(csrColInd), at(P));
        handle.run(move |memory| {
            let starts = rows.read(memory, i64::from(m) + 1)?;
            let (mut all, mut moved) = (memory.vector::<c_int>(columns)?, vec![0; nnz as usize]);
            if order.address != 0 {
                moved = memory.vector(order)?;
            }
            for ends in starts.windows(2) {
                let range = ends[0] as usize..ends[1] as usize;
                let mut pairs: Vec<_> = match (all.get(range.clone()), moved.get(range.clone())) {
                    (Some(columns), Some(moved)) => columns.iter().copied().zip(moved.iter().copied()).collect(),
                    _ => return Err(gpgpu_stand_in::driver::ILLEGAL_ADDRESS),
                };
                pairs.sort_by_key(|(column, _)| *column);
                for (at, (column, from)) in range.zip(pairs) {
                    (all[at], moved[at]) = (column, from);
                }
            }
            memory.set_vector(columns, &all)?;
            match order.address {
                0 => Ok(()),
                _ => memory.set_vector(order, &moved),
            }
        })
    }
}
