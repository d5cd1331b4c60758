// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Products of two sparse matrices.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};

use gpgpu_stand_in::memory::{Memory, Outcome};

use crate::descriptors::{
    Format, PRODUCTS, Product, SPARSE_MATRICES, SparseMatrix, get, starts, with,
};
use crate::handle::{Answer, Argument, Raw};
use crate::types::{Number, Result, Status, by_type, require};

use super::describe::{end, make};
use super::{BUFFER, export};

fn factors(ops: [c_int; 2], a: Raw, b: Raw, c: Raw, compute: c_int) -> Result<[SparseMatrix; 3]> {
    if ops != [0, 0] {
        return Err(Status::NotSupported);
    }
    let [a, b, c] = [
        get(&SPARSE_MATRICES, a)?,
        get(&SPARSE_MATRICES, b)?,
        get(&SPARSE_MATRICES, c)?,
    ];
    require(a.shape.1 == b.shape.0 && c.shape == (a.shape.0, b.shape.1))?;
    require(
        [a, b, c]
            .iter()
            .all(|of| of.format == Format::Csr && of.data == compute),
    )?;
    Ok([a, b, c])
}

type Elements<T> = Vec<(usize, usize, T)>;

fn multiply<T: Number>(memory: Memory, a: SparseMatrix, b: SparseMatrix) -> Outcome<Elements<T>> {
    let mut rows: BTreeMap<usize, Vec<(usize, T)>> = BTreeMap::new();
    for (row, column, value) in b.read::<T>(memory)? {
        rows.entry(row).or_default().push((column, value));
    }
    let mut sums: BTreeMap<(usize, usize), T> = BTreeMap::new();
    for (row, inner, value) in a.read::<T>(memory)? {
        for (column, other) in rows.get(&inner).into_iter().flatten() {
            *sums.entry((row, *column)).or_default() += value * *other;
        }
    }
    Ok(sums
        .into_iter()
        .map(|((row, column), value)| (row, column, value))
        .collect())
}

/// A caller's pointer to a size that a function reads and writes; may be NULL.
#[repr(transparent)]
pub struct Size(*mut usize);

/// Writes the required size if there is no buffer. Returns whether there is one.
fn has_buffer(size: Size, buffer: *mut c_void) -> Result<bool> {
    require(!size.0.is_null())?;
    if buffer.is_null() {
        // SAFETY: not NULL, so valid for a write by the API's contract.
        unsafe { size.0.write(BUFFER) };
        return Ok(false);
    }
    // SAFETY: as for the write.
    require(unsafe { size.0.read() } >= BUFFER)?;
    Ok(true)
}

export! {
    /// A product that is about to be made.
    fn cusparseSpGEMM_createDescr(out: Answer<Raw>) { make(&PRODUCTS, out, Product::default()) }

    /// Destroys it.
    fn cusparseSpGEMM_destroyDescr(name: Raw) { end(&PRODUCTS, name) }

    /// The size of the first buffer; the second call does nothing with it.
    fn cusparseSpGEMM_workEstimation(handle: Raw, opA: c_int, opB: c_int, _alpha: *const c_void, matA: Raw, matB: Raw, _beta: *const c_void, matC: Raw,
        computeType: c_int, _alg: c_int, product: Raw, size: Size, buffer: *mut c_void) |handle| {
        let _ = handle;
        factors([opA, opB], matA, matB, matC, computeType)?;
        get(&PRODUCTS, product)?;
        has_buffer(size, buffer).map(|_| ())
    }

    /// The size of the second buffer; with it, how many elements the product has.
    fn cusparseSpGEMM_compute(handle: Raw, opA: c_int, opB: c_int, _alpha: *const c_void, matA: Raw, matB: Raw, _beta: *const c_void, matC: Raw,
        computeType: c_int, _alg: c_int, product: Raw, size: Size, buffer: *mut c_void) |handle| {
        let [a, b, _] = factors([opA, opB], matA, matB, matC, computeType)?;
        get(&PRODUCTS, product)?;
        if !has_buffer(size, buffer)? {
            return Ok(());
        }
        let found = by_type!(computeType, handle.wait(move |memory| {
            let elements = multiply::<T>(memory, a, b)?;
            Ok(Product {
                rows: starts(a.shape.0, elements.iter().map(|(row, ..)| *row)),
                columns: elements.iter().map(|(_, column, _)| *column as i64).collect(),
            })
        }))?;
        with(&SPARSE_MATRICES, matC, |matrix| matrix.count = found.columns.len() as i64)?;
        with(&PRODUCTS, product, |product| *product = found)
    }

    /// Writes the product. `beta` is taken for zero, as it has to be where C has been empty.
    fn cusparseSpGEMM_copy(handle: Raw, opA: c_int, opB: c_int, alpha: Argument<c_void>, matA: Raw, matB: Raw, _beta: *const c_void, matC: Raw,
        computeType: c_int, _alg: c_int, product: Raw) |handle| {
        let [a, b, c] = factors([opA, opB], matA, matB, matC, computeType)?;
        let known = get(&PRODUCTS, product)?;
        require(known.columns.len() as i64 == c.count && known.rows.len() as i64 == c.shape.0 + 1)?;
        by_type!(computeType, {
            let alpha = handle.scalar::<T>(alpha)?;
            handle.run(move |memory| {
                let alpha = alpha.get(&memory)?;
                let mut elements = multiply::<T>(memory, a, b)?;
                elements.iter_mut().for_each(|(.., value)| *value *= alpha);
                c.write(memory, &elements)
            })
        })
    }
}
