// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A guest program that uses cuBLAS through cudarc's safe wrapper. Its numbers are small integers, so that results are
//! exact.

use std::{fmt::Debug, sync::Arc, thread};

use cudarc::{
    cublas::{
        Asum, AsumConfig, CudaBlas, Gemm, GemmConfig, Gemv, GemvConfig, StridedBatchedConfig,
        result::gemm_ex, sys,
    },
    cublaslt::{Activation, CudaBlasLT, Matmul, MatmulConfig},
    driver::{CudaContext, CudaStream, DevicePtr, DevicePtrMut, DeviceRepr, ValidAsZeroBits},
};

use sys::cublasOperation_t::{CUBLAS_OP_N as PLAIN, CUBLAS_OP_T as TRANSPOSED};

/// The rows, columns, and length of the sums.
const SIZES: [(usize, usize, usize); 4] = [(1, 1, 1), (3, 5, 7), (16, 16, 16), (33, 20, 65)];

/// Numbers from -4 to 4.
fn numbers(count: usize, seed: i64) -> Vec<i16> {
    let number = |at: i64| ((at * 7 + seed * 5 + at * at * seed) % 9) as i16;
    let all = (0..count as i64).map(number);
    all.map(|number| (number + 9) % 9 - 4).collect()
}

/// A's columns have `m` numbers, or `k` if it is transposed.
fn product(
    (m, n, k): (usize, usize, usize),
    transposed: bool,
    a: &[i16],
    b: &[i16],
    (alpha, beta): (i16, i16),
    c: &[i16],
) -> Vec<i16> {
    let of_a = |row: usize, column: usize| match transposed {
        true => a[column + row * k],
        false => a[row + column * m],
    };
    let places = (0..n).flat_map(|column| (0..m).map(move |row| (row, column)));
    let value = |(row, column)| {
        let sum: i16 = (0..k).map(|at| of_a(row, at) * b[at + column * k]).sum();
        alpha * sum + beta * c[row + column * m]
    };
    places.map(value).collect()
}

trait Number: DeviceRepr + ValidAsZeroBits + From<i16> + Copy + PartialEq + Debug {}
impl Number for f32 {}
impl Number for f64 {}

fn from<T: Number>(values: &[i16]) -> Vec<T> {
    values.iter().copied().map(T::from).collect()
}

fn gemm<T: Number>(blas: &CudaBlas, stream: &Arc<CudaStream>, seed: i64)
where
    CudaBlas: Gemm<T>,
{
    for (m, n, k) in SIZES {
        for transposed in [false, true] {
            let (a, b, c) = (
                numbers(m * k, seed),
                numbers(k * n, seed + 1),
                numbers(m * n, seed + 2),
            );
            let expected = product((m, n, k), transposed, &a, &b, (2, -1), &c);
            let config = GemmConfig {
                transa: if transposed { TRANSPOSED } else { PLAIN },
                transb: PLAIN,
                m: m as i32,
                n: n as i32,
                k: k as i32,
                alpha: T::from(2),
                lda: if transposed { k } else { m } as i32,
                ldb: k as i32,
                beta: T::from(-1),
                ldc: m as i32,
            };
            let on_device = |values: &[i16]| stream.clone_htod(&from::<T>(values)).unwrap();
            let (a, b, mut to) = (on_device(&a), on_device(&b), on_device(&c));
            // SAFETY: the matrices are as large as the sizes say.
            unsafe { blas.gemm(config, &a, &b, &mut to) }.unwrap();
            let got = stream.clone_dtoh(&to).unwrap();
            assert_eq!(got, from::<T>(&expected), "{m}, {n}, {k}, {transposed}");

            let mut twice = on_device(&[&c[..], &c[..]].concat());
            let batched = StridedBatchedConfig {
                gemm: config,
                batch_size: 2,
                stride_a: 0,
                stride_b: 0,
                stride_c: (m * n) as i64,
            };
            // SAFETY: as above, twice for the results.
            unsafe { blas.gemm_strided_batched(batched, &a, &b, &mut twice) }.unwrap();
            let got = stream.clone_dtoh(&twice).unwrap();
            let both = [&expected[..], &expected[..]].concat();
            assert_eq!(got, from::<T>(&both), "{m}, {n}, {k}, {transposed}");
        }
    }
}

fn vectors<T: Number>(blas: &CudaBlas, stream: &Arc<CudaStream>, seed: i64)
where
    CudaBlas: Gemv<T> + Asum<T>,
{
    let (m, n) = (19, 11);
    let (a, x, y) = (
        numbers(m * n, seed),
        numbers(n, seed + 1),
        numbers(2 * m, seed + 2),
    );
    let config = GemvConfig {
        trans: PLAIN,
        m: m as i32,
        n: n as i32,
        alpha: T::from(3),
        lda: m as i32,
        incx: 1,
        beta: T::from(1),
        incy: 2,
    };
    let mut expected = y.clone();
    for row in 0..m {
        let sum: i16 = (0..n).map(|at| a[row + at * m] * x[at]).sum();
        expected[2 * row] += 3 * sum;
    }
    let on_device = |values: &[i16]| stream.clone_htod(&from::<T>(values)).unwrap();
    let (a, x, mut to) = (on_device(&a), on_device(&x), on_device(&y));
    // SAFETY: the vectors and the matrix are as large as the sizes say.
    unsafe { blas.gemv(config, &a, &x, &mut to) }.unwrap();
    assert_eq!(stream.clone_dtoh(&to).unwrap(), from::<T>(&expected));

    let mut sum = T::from(-1);
    let config = AsumConfig {
        n: m as i32,
        incx: 2,
    };
    // SAFETY: as above.
    unsafe { blas.asum(config, &to, &mut sum) }.unwrap();
    let right: i16 = expected.iter().step_by(2).map(|value| value.abs()).sum();
    assert_eq!(sum, T::from(right));
}

/// An integer of at most eleven bits as a half.
fn half(value: i16) -> u16 {
    if value == 0 {
        return 0;
    }
    let size = value.unsigned_abs();
    let exponent = 15 - size.leading_zeros() as u16;
    let fraction = ((u32::from(size) << (10 - exponent)) & 0x3ff) as u16;
    (if value < 0 { 0x8000 } else { 0 }) | (exponent + 15) << 10 | fraction
}

fn halves(blas: &CudaBlas, stream: &Arc<CudaStream>) {
    let (m, n, k) = (9, 6, 20);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let c = vec![0; m * n];
    let expected = product((m, n, k), false, &a, &b, (1, 0), &c);
    let on_device = |values: &[i16]| {
        let halves: Vec<u16> = values.iter().copied().map(half).collect();
        stream.clone_htod(&halves).unwrap()
    };
    let (a, b, mut c) = (on_device(&a), on_device(&b), on_device(&c));
    let (one, zero) = (1_f32, 0_f32);
    {
        let (a, _reads_a) = a.device_ptr(stream);
        let (b, _reads_b) = b.device_ptr(stream);
        let (c, _writes_c) = c.device_ptr_mut(stream);
        let half = sys::cudaDataType::CUDA_R_16F;
        let scalar = |value: &f32| std::ptr::from_ref(value).cast();
        // SAFETY: the matrices are as large as the sizes say.
        unsafe {
            gemm_ex(
                *blas.handle(),
                PLAIN,
                PLAIN,
                m as i32,
                n as i32,
                k as i32,
                scalar(&one),
                a as *const _,
                half,
                m as i32,
                b as *const _,
                half,
                k as i32,
                scalar(&zero),
                c as *mut _,
                half,
                m as i32,
                sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        }
        .unwrap();
    }
    let right: Vec<u16> = expected.into_iter().map(half).collect();
    assert_eq!(stream.clone_dtoh(&c).unwrap(), right);
}

/// See the module's documentation.
/// Products with a bias and a ReLU, alone and in batches.
fn layers(lt: &CudaBlasLT, stream: &Arc<CudaStream>, seed: i64) {
    for (m, n, k) in SIZES {
        for (batches, has_relu) in [(1, true), (3, false), (2, true)] {
            let a = numbers(m * k * batches, seed);
            let b = numbers(k * n * batches, seed + 1);
            let c = numbers(m * n * batches, seed + 2);
            let bias = numbers(m, seed + 3);
            let expected: Vec<i16> = (0..batches)
                .flat_map(|batch| {
                    let of = |all: &[i16], count: usize| all[batch * count..][..count].to_vec();
                    let (a, b, c) = (of(&a, m * k), of(&b, k * n), of(&c, m * n));
                    product((m, n, k), true, &a, &b, (2, -1), &c)
                })
                .zip(bias.iter().cycle())
                .map(|(sum, bias)| sum + bias)
                .map(|sum| if has_relu { sum.max(0) } else { sum })
                .collect();
            let stride = |count: usize| (batches > 1).then_some(count as i64);
            let config = MatmulConfig {
                transa: true,
                transb: false,
                transc: false,
                m: m as u64,
                n: n as u64,
                k: k as u64,
                alpha: 2.0,
                lda: k as i64,
                ldb: k as i64,
                beta: -1.0,
                ldc: m as i64,
                stride_a: stride(m * k),
                stride_b: stride(k * n),
                stride_c: stride(m * n),
                stride_bias: None,
                batch_size: (batches > 1).then_some(batches as i32),
            };
            let on_device = |values: &[i16]| stream.clone_htod(&from::<f32>(values)).unwrap();
            let (a, b, mut to) = (on_device(&a), on_device(&b), on_device(&c));
            let bias = on_device(&bias);
            let activation = has_relu.then_some(&Activation::Relu);
            // SAFETY: the matrices are as large as the sizes say.
            let done = unsafe { lt.matmul(config, &a, &b, &mut to, Some(&bias), activation) };
            done.unwrap();
            let got = stream.clone_dtoh(&to).unwrap();
            assert_eq!(got, from::<f32>(&expected), "{m} {n} {k} times {batches}");
        }
    }
}

pub fn run() {
    let context = CudaContext::new(0).unwrap();
    let stream = context.new_stream().unwrap();
    let blas = CudaBlas::new(stream.clone()).unwrap();
    gemm::<f32>(&blas, &stream, 1);
    gemm::<f64>(&blas, &stream, 2);
    halves(&blas, &stream);
    vectors::<f32>(&blas, &stream, 3);
    vectors::<f64>(&blas, &stream, 4);
    // A handle that another thread uses.
    thread::scope(|scope| {
        scope
            .spawn(|| gemm::<f32>(&blas, &stream, 5))
            .join()
            .unwrap();
    });
    // Two threads, each with its own handle.
    thread::scope(|scope| {
        for seed in [6, 7] {
            let context = &context;
            scope.spawn(move || {
                let stream = context.new_stream().unwrap();
                let blas = CudaBlas::new(stream.clone()).unwrap();
                for round in 0..4 {
                    gemm::<f32>(&blas, &stream, seed + round);
                    vectors::<f64>(&blas, &stream, seed + round);
                }
            });
        }
    });
    gemm::<f64>(&blas, &stream, 8);
    let lt = CudaBlasLT::new(stream.clone()).unwrap();
    for seed in 9..12 {
        layers(&lt, &stream, seed);
    }
}
