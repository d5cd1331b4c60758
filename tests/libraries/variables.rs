// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest program whose environment has variables of NVIDIA's libraries.

use std::{ffi::c_void, ptr::null_mut};

use libloading::Library;

use crate::device::{begin, call, download, ok, upload};

/// Rows and columns: enough for tensor cores.
const N: usize = 256;
/// A number that TF32, with ten bits of fraction, rounds to 1.
const A: f32 = 1.0 + 1.0 / 4096.0;

/// A product whose inputs may be rounded to TF32, unless `NVIDIA_TF32_OVERRIDE` is 0.
pub fn tf32() {
    begin();
    // SAFETY: the initialisers of the library are this project's own.
    let blas = unsafe { Library::new("libcublas.so.13") }.unwrap();
    let mut handle: *mut c_void = null_mut();
    ok!(blas, "cublasCreate_v2"; &mut handle);
    let (a, b, c) = (
        upload(&[A; N * N]),
        upload(&[1f32; N * N]),
        upload(&[0f32; N * N]),
    );
    let (n, one, zero, r_32f, fast_tf32) = (N as i32, 1f32, 0f32, 0, 77);
    ok!(
        blas, "cublasGemmEx"; handle, 0, 0, n, n, n, &one, a, r_32f, n, b, r_32f, n, &zero, c, r_32f, n, fast_tf32, -1
    );
    let is_exact = std::env::var_os("NVIDIA_TF32_OVERRIDE").is_some_and(|value| value == "0");
    let right = N as f32 * if is_exact { A } else { 1.0 };
    assert_eq!(download::<f32>(c, N * N), [right; N * N]);
    ok!(blas, "cublasDestroy_v2"; handle);
}
