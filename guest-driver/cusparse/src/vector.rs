// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sparse vectors, and the functions whose scalars have a vector's type. The arguments do not contain that type.

use std::ffi::c_void;

use gpgpu_library::{Object, Status, forward, handle::find};
use gpgpu_protocol::libraries::{Function, Library::Cusparse, call::PointerMode, cusparse::status};

use crate::{HANDLE, enter, known::Known};

/// The `cudaDataType` of each vector's values.
static TYPES: Known<i32> = Known::new();

macro_rules! creates {
    ($($name:ident)*) => {$(
        /// cuSPARSE's function of this name.
        ///
        /// # Safety
        ///
        /// `spVecDescr` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name(
            spVecDescr: *mut Object,
            size: i64,
            nnz: i64,
            indices: *const c_void,
            values: *const c_void,
            idxType: i32,
            idxBase: i32,
            valueType: i32,
        ) -> Status {
            const CREATE: &Function = Cusparse.find(stringify!($name));
            enter(|| {
                let [size, nnz] = [size, nnz].map(|of| of as u64);
                let [index, base, data] = [idxType, idxBase, valueType].map(|of| of as u64);
                let words = [spVecDescr as u64, size, nnz, indices as u64, values as u64, index, base, data];
                forward::send(CREATE, &words)?;
                // SAFETY: the caller's, and it has been written.
                TYPES.set(unsafe { spVecDescr.read() } as u64, valueType);
                Ok(())
            })
        }
    )*};
}

creates! { cusparseCreateSpVec cusparseCreateConstSpVec }

/// `cusparseDestroySpVec`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroySpVec(spVecDescr: Object) -> Status {
    const DESTROY: &Function = Cusparse.find("cusparseDestroySpVec");
    enter(|| {
        TYPES.forget(spVecDescr as u64);
        forward::send(DESTROY, &[spVecDescr as u64])
    })
}

/// The width in bytes of scalars that multiply values of a `cudaDataType`: scalars for half precision have single
/// precision.
fn scalar_bytes(data: i32) -> Option<usize> {
    Some(match data {
        // 32F, 16F, 16BF; 64F; then the complex types.
        0 | 2 | 14 => 4,
        1 | 4 | 6 | 15 => 8,
        5 => 16,
        _ => return None,
    })
}

/// A scalar, padded to the size in its row.
struct Padded([u8; 16]);

impl Padded {
    /// The scalar at an address; NULL stays NULL.
    ///
    /// # Safety
    ///
    /// The address is NULL or has so many bytes.
    unsafe fn at(scalar: *const c_void, bytes: usize) -> Option<Self> {
        let mut padded = [0; 16];
        if scalar.is_null() {
            return None;
        }
        // SAFETY: promised by the caller; no scalar is wider.
        unsafe {
            padded
                .as_mut_ptr()
                .copy_from_nonoverlapping(scalar.cast(), bytes.min(16))
        };
        Some(Self(padded))
    }
}

/// Sends a call whose arguments with these numbers are scalars of the type of a sparse vector.
///
/// # Safety
///
/// If scalars are at host addresses, they are NULL or as wide as the vector's type says.
unsafe fn with_scalars(
    function: &'static Function,
    mut words: [u64; 5],
    scalars: [usize; 2],
    vector: usize,
) -> Result<(), Status> {
    let mode = find(HANDLE, words[0] as Object)?.mode();
    let bytes = TYPES.get(words[vector]).ok_or(status::INVALID_VALUE)?;
    let bytes = scalar_bytes(bytes).ok_or(status::NOT_SUPPORTED)?;
    let padded = scalars.map(|at| match mode {
        // SAFETY: promised by the caller.
        PointerMode::Host => unsafe { Padded::at(words[at] as *const c_void, bytes) },
        // Device addresses are not accessed here.
        PointerMode::Device => None,
    });
    for (at, padded) in scalars.into_iter().zip(&padded) {
        if let Some(Padded(bytes)) = padded {
            words[at] = bytes.as_ptr() as u64;
        }
    }
    forward::send(function, &words)
}

/// `cusparseAxpby`.
///
/// # Safety
///
/// `alpha` and `beta` are scalars as cuSPARSE asks for, where the handle's pointer mode says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseAxpby(
    handle: Object,
    alpha: *const c_void,
    vecX: Object,
    beta: *const c_void,
    vecY: Object,
) -> Status {
    const AXPBY: &Function = Cusparse.find("cusparseAxpby");
    let words = [
        handle as u64,
        alpha as u64,
        vecX as u64,
        beta as u64,
        vecY as u64,
    ];
    // SAFETY: promised by the caller.
    enter(|| unsafe { with_scalars(AXPBY, words, [1, 3], 2) })
}

/// `cusparseRot`.
///
/// # Safety
///
/// `c_coeff` and `s_coeff` are scalars as cuSPARSE asks for, where the handle's pointer mode says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseRot(
    handle: Object,
    c_coeff: *const c_void,
    s_coeff: *const c_void,
    vecX: Object,
    vecY: Object,
) -> Status {
    const ROT: &Function = Cusparse.find("cusparseRot");
    let words = [
        handle as u64,
        c_coeff as u64,
        s_coeff as u64,
        vecX as u64,
        vecY as u64,
    ];
    // SAFETY: promised by the caller.
    enter(|| unsafe { with_scalars(ROT, words, [1, 2], 3) })
}
