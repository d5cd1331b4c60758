// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Level 1 with types as arguments.

use std::ffi::{c_int, c_void};

use half::{bf16, f16};

use crate::handle::{Answer, Argument, Handle};
use crate::number::{C32, C64};
use crate::types::data::{C_32F, C_64F, R_16BF, R_16F, R_32F, R_64F};
use crate::types::{Result, Status};
use gpgpu_stand_in::memory::Vector;

use super::level1::{axpy, dot, nrm2, scal};
use super::{family, vector};

// Elements of two bytes have scalars in single precision, all others scalars of their own type.
fn axpy_ex(
    handle: &Handle,
    alpha: Argument<c_void>,
    x: Vector,
    y: Vector,
    types: [c_int; 4],
) -> Result {
    match types {
        [R_32F, R_16F, R_16F, R_32F] => axpy::<f32, f32, f16>(handle, alpha.cast(), x, y),
        [R_32F, R_16BF, R_16BF, R_32F] => axpy::<f32, f32, bf16>(handle, alpha.cast(), x, y),
        [R_32F, R_32F, R_32F, R_32F] => axpy::<f32, f32, f32>(handle, alpha.cast(), x, y),
        [R_64F, R_64F, R_64F, R_64F] => axpy::<f64, f64, f64>(handle, alpha.cast(), x, y),
        [C_32F, C_32F, C_32F, C_32F] => axpy::<C32, C32, C32>(handle, alpha.cast(), x, y),
        [C_64F, C_64F, C_64F, C_64F] => axpy::<C64, C64, C64>(handle, alpha.cast(), x, y),
        _ => Err(Status::NotSupported),
    }
}

fn scal_ex(handle: &Handle, alpha: Argument<c_void>, x: Vector, types: [c_int; 3]) -> Result {
    match types {
        [R_32F, R_16F, R_32F] => scal::<f32, f32, f16>(handle, alpha.cast(), x),
        [R_32F, R_16BF, R_32F] => scal::<f32, f32, bf16>(handle, alpha.cast(), x),
        [R_32F, R_32F, R_32F] => scal::<f32, f32, f32>(handle, alpha.cast(), x),
        [R_64F, R_64F, R_64F] => scal::<f64, f64, f64>(handle, alpha.cast(), x),
        [C_32F, C_32F, C_32F] => scal::<C32, C32, C32>(handle, alpha.cast(), x),
        [C_64F, C_64F, C_64F] => scal::<C64, C64, C64>(handle, alpha.cast(), x),
        _ => Err(Status::NotSupported),
    }
}

fn dot_ex(
    handle: &Handle,
    conjugate: bool,
    x: Vector,
    y: Vector,
    result: Answer<c_void>,
    types: [c_int; 4],
) -> Result {
    match types {
        [R_16F, R_16F, R_16F, R_32F] => dot::<f32, f16>(handle, conjugate, x, y, result.cast()),
        [R_16BF, R_16BF, R_16BF, R_32F] => dot::<f32, bf16>(handle, conjugate, x, y, result.cast()),
        [R_32F, R_32F, R_32F, R_32F] => dot::<f32, f32>(handle, conjugate, x, y, result.cast()),
        [R_64F, R_64F, R_64F, R_64F] => dot::<f64, f64>(handle, conjugate, x, y, result.cast()),
        [C_32F, C_32F, C_32F, C_32F] => dot::<C32, C32>(handle, conjugate, x, y, result.cast()),
        [C_64F, C_64F, C_64F, C_64F] => dot::<C64, C64>(handle, conjugate, x, y, result.cast()),
        _ => Err(Status::NotSupported),
    }
}

fn nrm2_ex(handle: &Handle, x: Vector, result: Answer<c_void>, types: [c_int; 3]) -> Result {
    match types {
        [R_16F, R_16F, R_32F] => nrm2::<f32, f16, f16>(handle, x, result.cast()),
        [R_16BF, R_16BF, R_32F] => nrm2::<f32, bf16, bf16>(handle, x, result.cast()),
        [R_32F, R_32F, R_32F] => nrm2::<f32, f32, f32>(handle, x, result.cast()),
        [R_64F, R_64F, R_64F] => nrm2::<f64, f64, f64>(handle, x, result.cast()),
        [C_32F, R_32F, R_32F] => nrm2::<C32, C32, f32>(handle, x, result.cast()),
        [C_64F, R_64F, R_64F] => nrm2::<C64, C64, f64>(handle, x, result.cast()),
        _ => Err(Status::NotSupported),
    }
}

family! {
    [cublasAxpyEx c_void]
    (
        n: Int, alpha: Argument<T>, alpha_type: c_int, x: *const T, x_type: c_int, incx: Int,
        y: *mut T, y_type: c_int, incy: Int, execution: c_int,
    ) |handle| {
        let (x, y) = (vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()));
        axpy_ex(handle, alpha, x, y, [alpha_type, x_type, y_type, execution])
    }

    [cublasScalEx c_void]
    (n: Int, alpha: Argument<T>, alpha_type: c_int, x: *mut T, x_type: c_int, incx: Int, execution: c_int) |handle| {
        scal_ex(handle, alpha, vector(x, n.into(), incx.into()), [alpha_type, x_type, execution])
    }

    [cublasDotEx c_void]
    (
        n: Int, x: *const T, x_type: c_int, incx: Int, y: *const T, y_type: c_int, incy: Int,
        result: Answer<T>, result_type: c_int, execution: c_int,
    ) |handle| {
        let (x, y) = (vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()));
        dot_ex(handle, false, x, y, result, [x_type, y_type, result_type, execution])
    }

    [cublasDotcEx c_void]
    (
        n: Int, x: *const T, x_type: c_int, incx: Int, y: *const T, y_type: c_int, incy: Int,
        result: Answer<T>, result_type: c_int, execution: c_int,
    ) |handle| {
        let (x, y) = (vector(x, n.into(), incx.into()), vector(y, n.into(), incy.into()));
        dot_ex(handle, true, x, y, result, [x_type, y_type, result_type, execution])
    }

    [cublasNrm2Ex c_void]
    (n: Int, x: *const T, x_type: c_int, incx: Int, result: Answer<T>, result_type: c_int, execution: c_int) |handle| {
        nrm2_ex(handle, vector(x, n.into(), incx.into()), result, [x_type, result_type, execution])
    }
}
