// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions for descriptors. None of them calls the host.

use gpgpu_library::Status;
use gpgpu_protocol::libraries::cublaslt::attributes::{
    BATCH_COUNT, BATCH_MODE, COLUMNS, COMPUTE_TYPE, Class, GROUPED_ARRAYS, LAYOUT_TYPE, LEADING,
    ROWS, SCALE_TYPE, TRANSFORM_SCALE_TYPE,
};

use crate::{
    descriptor::{self, Raw},
    enter,
};

/// `CUBLASLT_BATCH_MODE_GROUPED`.
const GROUPED: u64 = 2;

/// An enumeration as an attribute of 4 bytes.
fn number(of: i32) -> u64 {
    u64::from(of as u32)
}

/// Exports the functions that make a descriptor: allocated, and in the program's memory. Both take its initial values.
macro_rules! made {
    ($($class:ident: $create:ident $init:ident ($($arg:ident: $ty:ty),*) [$($first:expr),*];)*) => {$(
        /// cuBLASLt's function of this name.
        ///
        /// # Safety
        ///
        /// `descriptor` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $create(descriptor: *mut Raw $(, $arg: $ty)*) -> Status {
            // SAFETY: promised by the caller.
            enter(|| unsafe { descriptor::create(Class::$class, descriptor, &[$($first),*]) })
        }

        /// cuBLASLt's function of this name, on which an inline function of its header is based.
        ///
        /// # Safety
        ///
        /// `descriptor` is NULL or to as many bytes, which are the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $init(descriptor: Raw, size: usize $(, $arg: $ty)*) -> Status {
            // SAFETY: promised by the caller.
            enter(|| unsafe { descriptor::init(Class::$class, descriptor, size, &[$($first),*]) })
        }
    )*};
}

made! {
    Operation: cublasLtMatmulDescCreate cublasLtMatmulDescInit_internal (computeType: i32, scaleType: i32)
        [(COMPUTE_TYPE, number(computeType)), (SCALE_TYPE, number(scaleType))];
    Layout: cublasLtMatrixLayoutCreate cublasLtMatrixLayoutInit_internal (r#type: i32, rows: u64, cols: u64, ld: i64)
        [(LAYOUT_TYPE, number(r#type)), (ROWS, rows), (COLUMNS, cols), (LEADING, ld as u64)];
    Layout: cublasLtGroupedMatrixLayoutCreate cublasLtGroupedMatrixLayoutInit_internal
        (r#type: i32, groupCount: i32, rows_array: u64, cols_array: u64, ld_array: u64)
        [
            (LAYOUT_TYPE, number(r#type)), (BATCH_COUNT, number(groupCount)), (BATCH_MODE, GROUPED),
            (GROUPED_ARRAYS[0], rows_array), (GROUPED_ARRAYS[1], cols_array), (GROUPED_ARRAYS[2], ld_array)
        ];
    Preference: cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceInit_internal () [];
    Transform: cublasLtMatrixTransformDescCreate cublasLtMatrixTransformDescInit_internal (scaleType: i32)
        [(TRANSFORM_SCALE_TYPE, number(scaleType))];
    Emulation: cublasLtEmulationDescCreate cublasLtEmulationDescInit_internal () [];
}

/// Exports the functions that destroy a descriptor, and set and get its attributes.
macro_rules! used {
    ($($class:ident: $destroy:ident $set:ident $get:ident;)*) => {$(
        /// cuBLASLt's function of this name.
        ///
        /// # Safety
        ///
        /// `descriptor` is NULL or no longer in use.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $destroy(descriptor: Raw) -> Status {
            // SAFETY: promised by the caller.
            enter(|| unsafe { descriptor::destroy(Class::$class, descriptor) })
        }

        /// cuBLASLt's function of this name.
        ///
        /// # Safety
        ///
        /// `descriptor` is NULL or not in use elsewhere, `buf` is NULL or valid for so many bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $set(
            descriptor: Raw,
            attr: u32,
            buf: *const u8,
            sizeInBytes: usize,
        ) -> Status {
            // SAFETY: promised by the caller.
            enter(|| unsafe { descriptor::set(Class::$class, descriptor, attr, buf, sizeInBytes) })
        }

        /// cuBLASLt's function of this name.
        ///
        /// # Safety
        ///
        /// `descriptor` is NULL or unchanged meanwhile; `buf` and `sizeWritten` are NULL or writable, `buf` for so many
        /// bytes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $get(
            descriptor: Raw,
            attr: u32,
            buf: *mut u8,
            sizeInBytes: usize,
            sizeWritten: *mut usize,
        ) -> Status {
            // SAFETY: promised by the caller.
            enter(|| unsafe {
                descriptor::get(Class::$class, descriptor, attr, buf, sizeInBytes, sizeWritten)
            })
        }
    )*};
}

used! {
    Operation: cublasLtMatmulDescDestroy cublasLtMatmulDescSetAttribute cublasLtMatmulDescGetAttribute;
    Layout: cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutGetAttribute;
    Preference: cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute cublasLtMatmulPreferenceGetAttribute;
    Transform: cublasLtMatrixTransformDescDestroy cublasLtMatrixTransformDescSetAttribute cublasLtMatrixTransformDescGetAttribute;
    Emulation: cublasLtEmulationDescDestroy cublasLtEmulationDescSetAttribute cublasLtEmulationDescGetAttribute;
}
