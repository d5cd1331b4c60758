// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Matrices and products, and their attributes. The host is asked once for each whether its library accepts it.

use std::ffi::{c_int, c_uint, c_void};

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{
    Function,
    Library::CusparseLt,
    cusparselt::{
        attributes::{Attribute, Class},
        form::{DENSE, Form, Matrix, Product},
        status,
    },
};

use crate::{
    On, enter, enter_on,
    kept::{self, Opaque},
};

const NEW_DENSE: &Function = CusparseLt.find("cusparseLtDenseDescriptorInit");
const NEW_SPARSE: &Function = CusparseLt.find("cusparseLtStructuredDescriptorInit");
const SET_MATRIX: &Function = CusparseLt.find("cusparseLtMatDescSetAttribute");
const GET_MATRIX: &Function = CusparseLt.find("cusparseLtMatDescGetAttribute");
const NEW_PRODUCT: &Function = CusparseLt.find("cusparseLtMatmulDescriptorInit");
const SET_PRODUCT: &Function = CusparseLt.find("cusparseLtMatmulDescSetAttribute");
const GET_PRODUCT: &Function = CusparseLt.find("cusparseLtMatmulDescGetAttribute");

/// `cusparseLtDenseDescriptorInit`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtDenseDescriptorInit(
    handle: *const Opaque,
    matDescr: *mut Opaque,
    rows: i64,
    cols: i64,
    ld: i64,
    alignment: c_uint,
    valueType: c_int,
    order: c_int,
) -> Status {
    let matrix = Matrix {
        rows,
        columns: cols,
        leading: ld,
        alignment,
        data: valueType,
        order,
        sparsity: DENSE,
        ..Matrix::default()
    };
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            on.send(NEW_DENSE, &matrix.bytes(), [0])?;
            kept::write(matDescr, matrix, 0)
        })
    }
}

/// `cusparseLtStructuredDescriptorInit`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtStructuredDescriptorInit(
    handle: *const Opaque,
    matDescr: *mut Opaque,
    rows: i64,
    cols: i64,
    ld: i64,
    alignment: c_uint,
    valueType: c_int,
    order: c_int,
    sparsity: c_uint,
) -> Status {
    let matrix = Matrix {
        rows,
        columns: cols,
        leading: ld,
        alignment,
        data: valueType,
        order,
        sparsity,
        ..Matrix::default()
    };
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            if sparsity == DENSE {
                return Err(status::INVALID_VALUE);
            }
            on.send(NEW_SPARSE, &matrix.bytes(), [0])?;
            kept::write(matDescr, matrix, 0)
        })
    }
}

/// `cusparseLtMatDescriptorDestroy`.
///
/// # Safety
///
/// The structure is NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatDescriptorDestroy(matDescr: *const Opaque) -> Status {
    // SAFETY: promised by the caller.
    enter(|| unsafe { kept::end::<Matrix>(matDescr).map(drop) })
}

/// An attribute of a class, and the program's value for it.
///
/// # Errors
///
/// `INVALID_VALUE` if there is no such attribute, or its value is invalid or has the wrong size.
///
/// # Safety
///
/// `data` is NULL or has so many bytes.
pub unsafe fn value(
    class: Class,
    number: c_int,
    data: *const c_void,
    bytes: usize,
) -> Result<(usize, u64), Status> {
    let (at, of) = sized(class, number, data, bytes)?;
    // SAFETY: promised by the caller; there are as many bytes as the attribute has.
    let value = unsafe {
        match of.bytes {
            4 => u64::from(data.cast::<u32>().read_unaligned()),
            _ => data.cast::<u64>().read_unaligned(),
        }
    };
    match of.takes(value) {
        true => Ok((at, value)),
        false => Err(status::INVALID_VALUE),
    }
}

fn sized(
    class: Class,
    number: c_int,
    data: *const c_void,
    bytes: usize,
) -> Result<(usize, Attribute), Status> {
    let found = class.find(number).ok_or(status::INVALID_VALUE)?;
    if data.is_null() || bytes != usize::from(found.1.bytes) {
        return Err(status::INVALID_VALUE);
    }
    Ok(found)
}

/// Returns an attribute's value to the program: the one that was set, or else the library's.
///
/// # Errors
///
/// As [`value`], and those of the host.
///
/// # Safety
///
/// `data` is NULL or has room for so many bytes.
pub unsafe fn tell(
    on: &On<'_>,
    (class, function): (Class, &'static Function),
    number: c_int,
    (data, bytes): (*mut c_void, usize),
    set: impl FnOnce(usize) -> Option<u64>,
    blob: impl FnOnce() -> Vec<u8>,
) -> Result<(), Status> {
    let (at, of) = sized(class, number, data, bytes)?;
    let value = match set(at) {
        Some(value) => value,
        None => {
            let mut told = 0_u64;
            on.send(function, &blob(), [0, at as u64, &raw mut told as u64])?;
            told
        }
    };
    // SAFETY: promised by the caller.
    unsafe {
        match of.bytes {
            4 => data.cast::<u32>().write_unaligned(value as u32),
            _ => data.cast::<u64>().write_unaligned(value),
        }
    }
    Ok(())
}

macro_rules! attributes {
    ($($set:ident $get:ident $ty:ty: $class:ident $tell:ident $ask:ident;)*) => {$(
        /// cuSPARSELt's function of this name.
        ///
        /// # Safety
        ///
        /// Structures are NULL or the caller's; `data` is NULL or has so many bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            handle: *const Opaque,
            descr: *mut Opaque,
            attribute: c_int,
            data: *const c_void,
            dataSize: usize,
        ) -> Status {
            // SAFETY: promised by the caller.
            unsafe {
                enter_on(handle, |on| {
                    let (mut of, serial) = kept::read::<$ty>(descr)?;
                    let (at, value) = value(Class::$class, attribute, data, dataSize)?;
                    of.set.set(at, value);
                    on.send($tell, &of.bytes(), [0])?;
                    kept::write(descr, of, serial)
                })
            }
        }

        /// cuSPARSELt's function of this name.
        ///
        /// # Safety
        ///
        /// Structures are NULL or the caller's; `data` is NULL or has room for so many bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            handle: *const Opaque,
            descr: *const Opaque,
            attribute: c_int,
            data: *mut c_void,
            dataSize: usize,
        ) -> Status {
            // SAFETY: promised by the caller.
            unsafe {
                enter_on(handle, |on| {
                    let (of, _) = kept::read::<$ty>(descr)?;
                    let (set, blob) = (|at| of.set.get(at), || of.bytes());
                    let asked = (Class::$class, $ask);
                    tell(&on, asked, attribute, (data, dataSize), set, blob)
                })
            }
        }
    )*};
}

attributes! {
    cusparseLtMatDescSetAttribute cusparseLtMatDescGetAttribute Matrix: Matrix SET_MATRIX GET_MATRIX;
    cusparseLtMatmulDescSetAttribute cusparseLtMatmulDescGetAttribute Product: Product SET_PRODUCT GET_PRODUCT;
}

/// `cusparseLtMatmulDescriptorInit`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtMatmulDescriptorInit(
    handle: *const Opaque,
    matmulDescr: *mut Opaque,
    opA: c_int,
    opB: c_int,
    matA: *const Opaque,
    matB: *const Opaque,
    matC: *const Opaque,
    matD: *const Opaque,
    computeType: c_int,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let mut product = Product {
                operations: [opA, opB],
                compute: computeType,
                ..Product::default()
            };
            let matrices = [matA, matB, matC, matD];
            for (matrix, from) in product.matrices.iter_mut().zip(matrices) {
                (*matrix, _) = kept::read(from)?;
            }
            on.send(NEW_PRODUCT, &product.bytes(), [0])?;
            kept::write(matmulDescr, product, 0)
        })
    }
}
