// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! General products with types as arguments.

use std::ffi::{c_int, c_longlong, c_void};

use half::{bf16, f16};
use num_complex::Complex;

use crate::handle::{Argument, Handle};
use crate::number::{C32, C64, Integer, Tf32};
use crate::types::data::{C_8I, C_32F, C_64F, R_8I, R_16BF, R_16F, R_32F, R_32I, R_64F};
use crate::types::{Compute, Result, Status};

use super::family;
use super::gemm::{Places, Products};

// The combinations of `cublasGemmEx`'s table: the computation, and the types of `a` and `b`, and of `c`.
fn run(
    handle: &Handle,
    products: Products,
    alpha: Argument<c_void>,
    beta: Argument<c_void>,
    [a, b, c]: [c_int; 3],
    compute: c_int,
) -> Result {
    use Compute::{Double, Half, Integer as Whole, Single, SingleOnly, Tf32 as Rounded};
    macro_rules! run {
        ($n:ty, $s:ty, $a:ty, $c:ty) => {
            products.run::<$n, $s, $a, $c>(handle, alpha.cast(), beta.cast())
        };
    }
    let compute = Compute::new(compute)?;
    if a != b {
        return Err(Status::NotSupported);
    }
    match (compute, a, c) {
        (Half, R_16F, R_16F) => run!(f32, f16, f16, f16),
        (Single, R_16F, R_16F) => run!(f32, f32, f16, f16),
        (Single, R_16F, R_32F) => run!(f32, f32, f16, f32),
        (Single, R_16BF, R_16BF) => run!(f32, f32, bf16, bf16),
        (Single, R_16BF, R_32F) => run!(f32, f32, bf16, f32),
        (Single, R_8I, R_32F) => run!(f32, f32, i8, f32),
        (Single, C_8I, C_32F) => run!(C32, C32, Complex<i8>, C32),
        (Single | SingleOnly, R_32F, R_32F) => run!(f32, f32, f32, f32),
        (Rounded, R_32F, R_32F) => run!(f32, f32, Tf32, f32),
        (Single | SingleOnly | Rounded, C_32F, C_32F) => run!(C32, C32, C32, C32),
        (Double, R_64F, R_64F) => run!(f64, f64, f64, f64),
        (Double, C_64F, C_64F) => run!(C64, C64, C64, C64),
        (Whole, R_8I, R_32I) if products.has_whole_words() => {
            run!(Integer, Integer, i8, Integer)
        }
        _ => Err(Status::NotSupported),
    }
}

family! {
    [cublasGemmEx c_void]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>, a: *const T, a_type: c_int, lda: Int,
        b: *const T, b_type: c_int, ldb: Int, beta: Argument<T>, c: *mut T, c_type: c_int, ldc: Int,
        compute: c_int, _algorithm: c_int,
    ) |handle| {
        let operands = [(Places::one(a), lda.into()), (Places::one(b), ldb.into()), (Places::one(c), ldc.into())];
        let products = Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, 1)?;
        run(handle, products, alpha, beta, [a_type, b_type, c_type], compute)
    }

    [cublasGemmBatchedEx c_void]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>, a: *const *const T, a_type: c_int, lda: Int,
        b: *const *const T, b_type: c_int, ldb: Int, beta: Argument<T>, c: *const *const T, c_type: c_int, ldc: Int, count: Int,
        compute: c_int, _algorithm: c_int,
    ) |handle| {
        let operands = [(Places::array(a), lda.into()), (Places::array(b), ldb.into()), (Places::array(c), ldc.into())];
        let products = Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, count.into())?;
        run(handle, products, alpha, beta, [a_type, b_type, c_type], compute)
    }

    [cublasGemmStridedBatchedEx c_void]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>,
        a: *const T, a_type: c_int, lda: Int, stride_a: c_longlong, b: *const T, b_type: c_int, ldb: Int, stride_b: c_longlong,
        beta: Argument<T>, c: *mut T, c_type: c_int, ldc: Int, stride_c: c_longlong, count: Int,
        compute: c_int, _algorithm: c_int,
    ) |handle| {
        let operands = [
            (Places::strided(a, stride_a), lda.into()),
            (Places::strided(b, stride_b), ldb.into()),
            (Places::strided(c, stride_c), ldc.into()),
        ];
        let products = Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, count.into())?;
        run(handle, products, alpha, beta, [a_type, b_type, c_type], compute)
    }

    [cublasSgemmEx f32, cublasCgemmEx C32]
    (
        transa: c_int, transb: c_int, m: Int, n: Int, k: Int, alpha: Argument<T>, a: *const c_void, a_type: c_int, lda: Int,
        b: *const c_void, b_type: c_int, ldb: Int, beta: Argument<T>, c: *mut c_void, c_type: c_int, ldc: Int,
    ) |handle| {
        const SINGLE: c_int = 68;
        // The scalars' type decides between real and complex.
        let scalars_fit = matches!(c_type, C_32F | C_64F) == (size_of::<T>() == size_of::<C32>());
        if !scalars_fit {
            return Err(Status::NotSupported);
        }
        let operands = [(Places::one(a), lda.into()), (Places::one(b), ldb.into()), (Places::one(c), ldc.into())];
        let products = Products::new([transa, transb], [m.into(), n.into(), k.into()], operands, 1)?;
        run(handle, products, alpha.cast(), beta.cast(), [a_type, b_type, c_type], SINGLE)
    }
}
