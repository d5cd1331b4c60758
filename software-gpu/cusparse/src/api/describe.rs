// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Descriptors of vectors and matrices.

use std::ffi::{c_int, c_void};

use gpgpu_locks::Mutex;
use gpgpu_stand_in::objects::Objects;

use crate::descriptors::{
    Dense, DenseMatrix, Format, Indices, MATRICES, SPARSE, SPARSE_MATRICES, Sparse, SparseMatrix,
    VECTORS, get, with,
};
use crate::handle::{Answer, Argument, Raw};
use crate::types::{Index, Result, Status, is_data, require};

use super::export;

/// Gives the caller an object.
pub(crate) fn make<T>(objects: &Objects<Mutex<T>>, out: Answer<Raw>, object: T) -> Result {
    require(!out.is_null())?;
    out.set(objects.add(Mutex::new(object)) as Raw)
}

/// Ends an object.
pub(crate) fn end<T>(objects: &Objects<Mutex<T>>, name: Raw) -> Result {
    let ended = objects.remove(name as usize);
    ended.map(|_| ()).ok_or(Status::InvalidValue)
}

fn indices(address: *const c_void, width: c_int, base: c_int) -> Result<Indices> {
    require(matches!(base, 0 | 1))?;
    Ok(Indices {
        address: address as u64,
        width: Index::new(width)?,
        base: base.into(),
    })
}

fn vector(size: i64, values: *const c_void, data: c_int) -> Result<Dense> {
    require(size >= 0 && is_data(data))?;
    Ok(Dense {
        size,
        values: values as u64,
        data,
    })
}

fn sparse(
    (size, count): (i64, i64),
    at: *const c_void,
    values: *const c_void,
    width: c_int,
    base: c_int,
    data: c_int,
) -> Result<Sparse> {
    require(count >= 0 && size >= count && is_data(data))?;
    Ok(Sparse {
        size,
        count,
        indices: indices(at, width, base)?,
        values: values as u64,
        data,
    })
}

fn matrix(
    shape: (i64, i64),
    leading: i64,
    values: *const c_void,
    data: c_int,
    order: c_int,
) -> Result<DenseMatrix> {
    require(matches!(order, 1 | 2) && is_data(data) && shape.0 >= 0 && shape.1 >= 0)?;
    let by_rows = order == 2;
    require(leading >= if by_rows { shape.1 } else { shape.0 })?;
    Ok(DenseMatrix {
        shape,
        leading,
        values: values as u64,
        data,
        by_rows,
    })
}

fn stored(
    format: Format,
    shape: (i64, i64),
    count: i64,
    [rows, columns]: [Indices; 2],
    values: *const c_void,
    data: c_int,
) -> Result<SparseMatrix> {
    let most = shape.0.checked_mul(shape.1).unwrap_or(i64::MAX);
    require(shape.0 >= 0 && shape.1 >= 0 && (0..=most).contains(&count) && is_data(data))?;
    Ok(SparseMatrix {
        format,
        shape,
        count,
        rows,
        columns,
        values: values as u64,
        data,
        attributes: [0; 2],
    })
}

/// A function and its variant for read-only data.
macro_rules! both {
    ($($(#[$m:meta])* fn $name:ident $constant:ident($($a:ident: $t:ty),* $(,)?) $body:block)*) => {
        export! {$(
            $(#[$m])* fn $name($($a: $t),*) $body
            $(#[$m])* fn $constant($($a: $t),*) $body
        )*}
    };
}

both! {
    /// Describes a vector.
    fn cusparseCreateDnVec cusparseCreateConstDnVec(out: Answer<Raw>, size: i64, values: *const c_void, data: c_int) {
        make(&VECTORS, out, vector(size, values, data)?)
    }

    /// Describes a sparse vector.
    fn cusparseCreateSpVec cusparseCreateConstSpVec(out: Answer<Raw>, size: i64, nnz: i64, at: *const c_void, values: *const c_void, width: c_int,
        base: c_int, data: c_int) {
        make(&SPARSE, out, sparse((size, nnz), at, values, width, base, data)?)
    }

    /// Describes a matrix.
    fn cusparseCreateDnMat cusparseCreateConstDnMat(out: Answer<Raw>, rows: i64, columns: i64, ld: i64, values: *const c_void, data: c_int, order: c_int) {
        make(&MATRICES, out, matrix((rows, columns), ld, values, data, order)?)
    }

    /// Describes a sparse matrix by where its rows begin.
    fn cusparseCreateCsr cusparseCreateConstCsr(out: Answer<Raw>, rows: i64, columns: i64, nnz: i64, starts: *const c_void, at: *const c_void,
        values: *const c_void, startsType: c_int, atType: c_int, base: c_int, data: c_int) {
        let places = [indices(starts, startsType, base)?, indices(at, atType, base)?];
        make(&SPARSE_MATRICES, out, stored(Format::Csr, (rows, columns), nnz, places, values, data)?)
    }

    /// Describes a sparse matrix by each element's row.
    fn cusparseCreateCoo cusparseCreateConstCoo(out: Answer<Raw>, rows: i64, columns: i64, nnz: i64, row: *const c_void, column: *const c_void,
        values: *const c_void, width: c_int, base: c_int, data: c_int) {
        let places = [indices(row, width, base)?, indices(column, width, base)?];
        make(&SPARSE_MATRICES, out, stored(Format::Coo, (rows, columns), nnz, places, values, data)?)
    }

    /// The description of a vector.
    fn cusparseDnVecGet cusparseConstDnVecGet(name: Raw, size: Answer<i64>, values: Answer<u64>, data: Answer<c_int>) {
        let found = get(&VECTORS, name)?;
        size.set::<Status>(found.size)?;
        values.set::<Status>(found.values)?;
        data.set(found.data)
    }

    /// The description of a matrix.
    fn cusparseDnMatGet cusparseConstDnMatGet(name: Raw, rows: Answer<i64>, columns: Answer<i64>, ld: Answer<i64>, values: Answer<u64>,
        data: Answer<c_int>, order: Answer<c_int>) {
        let found = get(&MATRICES, name)?;
        rows.set::<Status>(found.shape.0)?;
        columns.set::<Status>(found.shape.1)?;
        ld.set::<Status>(found.leading)?;
        values.set::<Status>(found.values)?;
        data.set::<Status>(found.data)?;
        order.set(1 + c_int::from(found.by_rows))
    }

    /// The description of a sparse matrix.
    fn cusparseCsrGet cusparseConstCsrGet(name: Raw, rows: Answer<i64>, columns: Answer<i64>, nnz: Answer<i64>, starts: Answer<u64>, at: Answer<u64>,
        values: Answer<u64>, startsType: Answer<c_int>, atType: Answer<c_int>, base: Answer<c_int>, data: Answer<c_int>) {
        let found = get(&SPARSE_MATRICES, name)?;
        require(found.format == Format::Csr)?;
        rows.set::<Status>(found.shape.0)?;
        columns.set::<Status>(found.shape.1)?;
        nnz.set::<Status>(found.count)?;
        starts.set::<Status>(found.rows.address)?;
        at.set::<Status>(found.columns.address)?;
        values.set::<Status>(found.values)?;
        startsType.set::<Status>(found.rows.width.number())?;
        atType.set::<Status>(found.columns.width.number())?;
        base.set::<Status>(found.rows.base as c_int)?;
        data.set(found.data)
    }
}

export! {
    /// Destroys it.
    fn cusparseDestroyDnVec(name: Raw) { end(&VECTORS, name) }

    /// Destroys it.
    fn cusparseDestroySpVec(name: Raw) { end(&SPARSE, name) }

    /// Destroys it.
    fn cusparseDestroyDnMat(name: Raw) { end(&MATRICES, name) }

    /// Destroys it.
    fn cusparseDestroySpMat(name: Raw) { end(&SPARSE_MATRICES, name) }

    /// Other values of the same shape.
    fn cusparseDnVecSetValues(name: Raw, values: *mut c_void) {
        with(&VECTORS, name, |vector| vector.values = values as u64)
    }

    /// Other values of the same shape.
    fn cusparseDnMatSetValues(name: Raw, values: *mut c_void) {
        with(&MATRICES, name, |matrix| matrix.values = values as u64)
    }

    /// Other values of the same shape.
    fn cusparseSpMatSetValues(name: Raw, values: *mut c_void) {
        with(&SPARSE_MATRICES, name, |matrix| matrix.values = values as u64)
    }

    /// Rows, columns, and elements that are stored.
    fn cusparseSpMatGetSize(name: Raw, rows: Answer<i64>, columns: Answer<i64>, nnz: Answer<i64>) {
        let found = get(&SPARSE_MATRICES, name)?;
        rows.set::<Status>(found.shape.0)?;
        columns.set::<Status>(found.shape.1)?;
        nnz.set(found.count)
    }

    /// The format.
    fn cusparseSpMatGetFormat(name: Raw, format: Answer<c_int>) {
        format.set(match get(&SPARSE_MATRICES, name)?.format {
            Format::Csr => 1,
            Format::Coo => 3,
        })
    }

    /// Sets the addresses of all of it.
    fn cusparseCsrSetPointers(name: Raw, starts: *mut c_void, at: *mut c_void, values: *mut c_void) {
        require(get(&SPARSE_MATRICES, name)?.format == Format::Csr)?;
        with(&SPARSE_MATRICES, name, |matrix| {
            matrix.rows.address = starts as u64;
            matrix.columns.address = at as u64;
            matrix.values = values as u64;
        })
    }

    /// The used triangle (0), or the kind of its diagonal (1).
    fn cusparseSpMatSetAttribute(name: Raw, attribute: c_int, data: Argument<c_int>, size: usize) {
        let attribute = usize::try_from(attribute).ok().filter(|of| *of < 2).ok_or(Status::InvalidValue)?;
        require(size == size_of::<c_int>())?;
        let value = data.get::<Status>()?;
        require(matches!(value, 0 | 1))?;
        with(&SPARSE_MATRICES, name, |matrix| matrix.attributes[attribute] = value)
    }

    /// The settings.
    fn cusparseSpMatGetAttribute(name: Raw, attribute: c_int, data: Answer<c_int>, size: usize) {
        let attribute = usize::try_from(attribute).ok().filter(|of| *of < 2).ok_or(Status::InvalidValue)?;
        require(size == size_of::<c_int>())?;
        data.set(get(&SPARSE_MATRICES, name)?.attributes[attribute])
    }
}
