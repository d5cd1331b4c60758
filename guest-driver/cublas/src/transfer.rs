// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cublasSetVector`, `cublasGetMatrix` and similar functions: they copy with libcuda.

use std::ffi::c_void;

use gpgpu_library::forward::context;
use gpgpu_protocol::{cuda::*, libraries::cublas::status};

use crate::{LIBRARY, Status, enter};

gpgpu_library::driver_functions! {
    /// The copy functions of libcuda.
    struct Copies {
        at_once = cuMemcpy2DUnaligned_v2;
        in_stream = cuMemcpy2DAsync_v2;
    }
}

/// The side of the copy that is on the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    Device,
    Host,
}

/// Rows of bytes, and the distances between them on both sides.
struct Rows {
    width: usize,
    height: usize,
    from: (*const c_void, usize),
    to: (*mut c_void, usize),
}

fn size(of: i64) -> Result<usize, Status> {
    usize::try_from(of).map_err(|_| status::INVALID_VALUE)
}

fn bytes(count: usize, each: usize) -> Result<usize, Status> {
    count.checked_mul(each).ok_or(status::INVALID_VALUE)
}

impl Rows {
    /// A matrix of `rows` times `columns` elements in column-major order; `lda` and `ldb` elements separate columns.
    fn matrix(
        [rows, columns, element]: [i64; 3],
        (from, lda): (*const c_void, i64),
        (to, ldb): (*mut c_void, i64),
    ) -> Result<Self, Status> {
        if rows < 0 || columns < 0 || element <= 0 || lda < rows.max(1) || ldb < rows.max(1) {
            return Err(status::INVALID_VALUE);
        }
        let element = size(element)?;
        Ok(Self {
            width: bytes(size(rows)?, element)?,
            height: size(columns)?,
            from: (from, bytes(size(lda)?, element)?),
            to: (to, bytes(size(ldb)?, element)?),
        })
    }

    /// A vector of `n` elements; `incx` and `incy` elements separate them.
    fn vector(
        [n, element]: [i64; 2],
        (from, incx): (*const c_void, i64),
        (to, incy): (*mut c_void, i64),
    ) -> Result<Self, Status> {
        if n < 0 || incx <= 0 || incy <= 0 {
            return Err(status::INVALID_VALUE);
        }
        if (incx, incy) == (1, 1) {
            // Contiguous elements are a single row.
            return Self::matrix([n, 1, element], (from, n.max(1)), (to, n.max(1)));
        }
        Self::matrix([1, n, element], (from, incx), (to, incy))
    }

    fn copy(self, direction: To, stream: Option<CUstream>) -> Result<(), Status> {
        context(LIBRARY)?;
        if self.width == 0 || self.height == 0 {
            return Ok(());
        }
        let (host, device) = (CU_MEMORYTYPE_HOST, CU_MEMORYTYPE_DEVICE);
        let types = match direction {
            To::Device => (host, device),
            To::Host => (device, host),
        };
        let (from, to) = (self.from.0, self.to.0);
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: types.0,
            srcHost: from,
            srcDevice: from as u64,
            srcPitch: self.from.1,
            dstMemoryType: types.1,
            dstHost: to,
            dstDevice: to as u64,
            dstPitch: self.to.1,
            WidthInBytes: self.width,
            Height: self.height,
            // SAFETY: a structure of integers and pointers, of which NULL and 0 mean nothing.
            ..unsafe { std::mem::zeroed() }
        };
        let copies = Copies::find(LIBRARY)?;
        // SAFETY: the structure lives across the call; its pointers are the program's, as cuBLAS requires.
        let code = unsafe {
            match stream {
                None => (copies.at_once)(&copy),
                Some(stream) => (copies.in_stream)(&copy, stream),
            }
        };
        match code {
            CUDA_SUCCESS => Ok(()),
            CUDA_ERROR_INVALID_VALUE => Err(status::MAPPING_ERROR),
            code => Err(LIBRARY.statuses().of_code(code)),
        }
    }
}

macro_rules! stream_of {
    () => {
        None
    };
    ($stream:ident) => {
        Some($stream)
    };
}

macro_rules! vectors {
    ($($name:ident $int:ty, $direction:ident $(, $stream:ident)?;)*) => {$(
        /// cuBLAS's function of this name.
        ///
        /// # Safety
        ///
        /// Host memory is the caller's, and as long as the vector.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            n: $int,
            elemSize: $int,
            from: *const c_void,
            incFrom: $int,
            to: *mut c_void,
            incTo: $int,
            $($stream: CUstream,)?
        ) -> Status {
            #[allow(clippy::useless_conversion)]
            enter(|| {
                let sizes = [n.into(), elemSize.into()];
                let rows = Rows::vector(sizes, (from, incFrom.into()), (to, incTo.into()))?;
                rows.copy(To::$direction, stream_of!($($stream)?))
            })
        }
    )*};
}

macro_rules! matrices {
    ($($name:ident $int:ty, $direction:ident $(, $stream:ident)?;)*) => {$(
        /// cuBLAS's function of this name.
        ///
        /// # Safety
        ///
        /// Host memory is the caller's, and as long as the matrix.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name(
            rows: $int,
            cols: $int,
            elemSize: $int,
            from: *const c_void,
            lda: $int,
            to: *mut c_void,
            ldb: $int,
            $($stream: CUstream,)?
        ) -> Status {
            #[allow(clippy::useless_conversion)]
            enter(|| {
                let sizes = [rows.into(), cols.into(), elemSize.into()];
                let rows = Rows::matrix(sizes, (from, lda.into()), (to, ldb.into()))?;
                rows.copy(To::$direction, stream_of!($($stream)?))
            })
        }
    )*};
}

vectors! {
    cublasSetVector i32, Device;
    cublasSetVector_64 i64, Device;
    cublasSetVectorAsync i32, Device, stream;
    cublasSetVectorAsync_64 i64, Device, stream;
    cublasGetVector i32, Host;
    cublasGetVector_64 i64, Host;
    cublasGetVectorAsync i32, Host, stream;
    cublasGetVectorAsync_64 i64, Host, stream;
}

matrices! {
    cublasSetMatrix i32, Device;
    cublasSetMatrix_64 i64, Device;
    cublasSetMatrixAsync i32, Device, stream;
    cublasSetMatrixAsync_64 i64, Device, stream;
    cublasGetMatrix i32, Host;
    cublasGetMatrix_64 i64, Host;
    cublasGetMatrixAsync i32, Host, stream;
    cublasGetMatrixAsync_64 i64, Host, stream;
}
