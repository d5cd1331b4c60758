// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions of 64-bit sizes, whose matrices are of a type that an argument names.

use std::ffi::{c_int, c_schar, c_void};

use nalgebra::Complex;

use crate::handle::{Answer, Handle, PARAMS, Raw, enter_with, with};
use crate::types::{Fill, Operation, Result, Status, require};

use super::{eigen, factor, matrix, singular, vector};

/// The workspaces that callers must provide on the device and on the host, in bytes.
const DEVICE: usize = 256;
const HOST: usize = 96;

/// Runs `$body` with `T` for the type that a `cudaDataType` names.
macro_rules! by_type {
    ($data:expr, $body:expr) => {
        match $data {
            0 => {
                type T = f32;
                $body
            }
            1 => {
                type T = f64;
                $body
            }
            4 => {
                type T = Complex<f32>;
                $body
            }
            5 => {
                type T = Complex<f64>;
                $body
            }
            _ => Err(Status::InvalidValue),
        }
    };
}

/// The `cudaDataType` of the eigenvalues of a matrix of this one.
fn real(data: c_int) -> c_int {
    data & 1
}

fn sizes(params: Raw, right: bool, device: Answer<usize>, host: Answer<usize>) -> Result {
    with(&PARAMS, params, |()| ())?;
    require(right)?;
    device.set::<Status>(DEVICE)?;
    host.set(HOST)
}

/// The workspaces of a call. NVIDIA's library computes in both: the host's is written from its first to its last byte
/// here.
fn workspaces(params: Raw, device: usize, host: *mut c_void, bytes: usize) -> Result {
    with(&PARAMS, params, |()| ())?;
    require(device >= DEVICE && bytes >= HOST && !host.is_null())?;
    // SAFETY: the API's contract is that there are so many bytes.
    unsafe { host.cast::<u8>().write_bytes(0x5A, bytes) };
    Ok(())
}

macro_rules! export {
    ($($(#[$m:meta])* fn $name:ident($($a:ident: $t:ty),* $(,)?) |$handle:ident| $body:block)*) => {$(
        $(#[$m])*
        ///
        /// # Safety
        /// The workspace on the host is the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(handle: Raw, $($a: $t),*) -> c_int {
            enter_with(handle, |$handle: &Handle| $body)
        }
    )*};
}

export! {
    /// The workspaces of `cusolverDnXpotrf`.
    fn cusolverDnXpotrf_bufferSize(params: Raw, uplo: c_int, n: i64, _dataTypeA: c_int, _A: *const c_void, lda: i64, _computeType: c_int,
        device: Answer<usize>, host: Answer<usize>) |_handle| {
        Fill::new(uplo)?;
        sizes(params, n >= 0 && lda >= n.max(1), device, host)
    }

    /// The Cholesky factor.
    fn cusolverDnXpotrf(params: Raw, uplo: c_int, n: i64, dataTypeA: c_int, A: *mut c_void, lda: i64, computeType: c_int,
        _device: *mut c_void, onDevice: usize, host: *mut c_void, onHost: usize, info: *mut c_int) |handle| {
        workspaces(params, onDevice, host, onHost)?;
        require(computeType == dataTypeA)?;
        let (fill, a) = (Fill::new(uplo)?, matrix(A, (n, n), lda)?);
        by_type!(dataTypeA, factor::potrf::<T>(handle, fill, a, info as u64))
    }

    /// Solves by that factor.
    fn cusolverDnXpotrs(params: Raw, uplo: c_int, n: i64, nrhs: i64, dataTypeA: c_int, A: *const c_void, lda: i64, dataTypeB: c_int,
        B: *mut c_void, ldb: i64, info: *mut c_int) |handle| {
        with(&PARAMS, params, |()| ())?;
        require(dataTypeA == dataTypeB)?;
        let (fill, a, b) = (Fill::new(uplo)?, matrix(A, (n, n), lda)?, matrix(B, (n, nrhs), ldb)?);
        by_type!(dataTypeA, factor::potrs::<T>(handle, fill, a, b, info as u64))
    }

    /// The workspaces of `cusolverDnXgetrf`.
    fn cusolverDnXgetrf_bufferSize(params: Raw, m: i64, n: i64, _dataTypeA: c_int, _A: *const c_void, lda: i64, _computeType: c_int,
        device: Answer<usize>, host: Answer<usize>) |_handle| {
        sizes(params, n >= 0 && m >= 0 && lda >= m.max(1), device, host)
    }

    /// The triangular factors, with rows exchanged.
    fn cusolverDnXgetrf(params: Raw, m: i64, n: i64, dataTypeA: c_int, A: *mut c_void, lda: i64, ipiv: *mut i64, _computeType: c_int,
        _device: *mut c_void, onDevice: usize, host: *mut c_void, onHost: usize, info: *mut c_int) |handle| {
        workspaces(params, onDevice, host, onHost)?;
        let a = matrix(A, (m, n), lda)?;
        by_type!(dataTypeA, factor::getrf::<T>(handle, a, ipiv as u64, true, info as u64))
    }

    /// Solves by these factors.
    fn cusolverDnXgetrs(params: Raw, trans: c_int, n: i64, nrhs: i64, dataTypeA: c_int, A: *const c_void, lda: i64, ipiv: *const i64,
        dataTypeB: c_int, B: *mut c_void, ldb: i64, info: *mut c_int) |handle| {
        with(&PARAMS, params, |()| ())?;
        require(dataTypeA == dataTypeB)?;
        let (operation, pivots) = (Operation::new(trans)?, vector(ipiv, n));
        let (a, b) = (matrix(A, (n, n), lda)?, matrix(B, (n, nrhs), ldb)?);
        by_type!(dataTypeA, factor::getrs::<T>(handle, operation, a, pivots, true, b, info as u64))
    }

    /// The workspaces of `cusolverDnXgeqrf`.
    fn cusolverDnXgeqrf_bufferSize(params: Raw, m: i64, n: i64, _dataTypeA: c_int, _A: *const c_void, lda: i64, _dataTypeTau: c_int,
        _tau: *const c_void, _computeType: c_int, device: Answer<usize>, host: Answer<usize>) |_handle| {
        sizes(params, n >= 0 && m >= 0 && lda >= m.max(1), device, host)
    }

    /// The reflections whose product is Q, and R.
    fn cusolverDnXgeqrf(params: Raw, m: i64, n: i64, dataTypeA: c_int, A: *mut c_void, lda: i64, dataTypeTau: c_int, tau: *mut c_void,
        _computeType: c_int, _device: *mut c_void, onDevice: usize, host: *mut c_void, onHost: usize, info: *mut c_int) |handle| {
        workspaces(params, onDevice, host, onHost)?;
        require(dataTypeA == dataTypeTau)?;
        let a = matrix(A, (m, n), lda)?;
        by_type!(dataTypeA, factor::geqrf::<T>(handle, a, tau as u64, info as u64))
    }

    /// The workspaces of `cusolverDnXsyevd`.
    fn cusolverDnXsyevd_bufferSize(params: Raw, _jobz: c_int, uplo: c_int, n: i64, _dataTypeA: c_int, _A: *const c_void, lda: i64,
        _dataTypeW: c_int, _W: *const c_void, _computeType: c_int, device: Answer<usize>, host: Answer<usize>) |_handle| {
        Fill::new(uplo)?;
        sizes(params, n >= 0 && lda >= n.max(1), device, host)
    }

    /// Eigenvalues and vectors.
    fn cusolverDnXsyevd(params: Raw, jobz: c_int, uplo: c_int, n: i64, dataTypeA: c_int, A: *mut c_void, lda: i64, dataTypeW: c_int,
        W: *mut c_void, _computeType: c_int, _device: *mut c_void, onDevice: usize, host: *mut c_void, onHost: usize, info: *mut c_int) |handle| {
        workspaces(params, onDevice, host, onHost)?;
        require(dataTypeW == real(dataTypeA))?;
        let a = matrix(A, (n, n), lda)?;
        by_type!(dataTypeA, eigen::syevd::<T>(handle, jobz, uplo, a, W as u64, info as u64))
    }

    /// The workspaces of `cusolverDnXgesvd`.
    fn cusolverDnXgesvd_bufferSize(params: Raw, _jobu: c_schar, _jobvt: c_schar, m: i64, n: i64, _dataTypeA: c_int, _A: *const c_void, lda: i64,
        _dataTypeS: c_int, _S: *const c_void, _dataTypeU: c_int, _U: *const c_void, _ldu: i64, _dataTypeVT: c_int, _VT: *const c_void, _ldvt: i64,
        _computeType: c_int, device: Answer<usize>, host: Answer<usize>) |_handle| {
        sizes(params, n >= 0 && m >= n && lda >= m.max(1), device, host)
    }

    /// Singular values and vectors.
    fn cusolverDnXgesvd(params: Raw, jobu: c_schar, jobvt: c_schar, m: i64, n: i64, dataTypeA: c_int, A: *mut c_void, lda: i64,
        dataTypeS: c_int, S: *mut c_void, dataTypeU: c_int, U: *mut c_void, ldu: i64, dataTypeVT: c_int, VT: *mut c_void, ldvt: i64,
        _computeType: c_int, _device: *mut c_void, onDevice: usize, host: *mut c_void, onHost: usize, info: *mut c_int) |handle| {
        workspaces(params, onDevice, host, onHost)?;
        require(dataTypeS == real(dataTypeA) && dataTypeU == dataTypeA && dataTypeVT == dataTypeA)?;
        let a = matrix(A, (m, n), lda)?;
        let (left, right) = ((U as u64, ldu), (VT as u64, ldvt));
        by_type!(dataTypeA, singular::gesvd::<T>(handle, (jobu, jobvt), a, S as u64, left, right, info as u64))
    }
}
