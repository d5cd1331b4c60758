// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! General products of all types, alone and in batches, against sums in double precision.

mod common;

use std::ffi::c_int;
use std::time::Instant;

use common::*;
use half::{bf16, f16};

const HALF: c_int = 64;
const SINGLE: c_int = 68;
const DOUBLE: c_int = 70;
const INTEGER: c_int = 72;

struct Case<A, C> {
    operations: [c_int; 2],
    shape: [usize; 3],
    a: Matrix<A>,
    b: Matrix<A>,
    c: Matrix<C>,
}

impl<A: Number, C: Number> Case<A, C> {
    fn new(seed: u64, operations: [c_int; 2], [m, n, k]: [usize; 3]) -> Self {
        let stored = |op, r, c| if op == 0 { (r, c) } else { (c, r) };
        let ((ar, ac), (br, bc)) = (stored(operations[0], m, k), stored(operations[1], k, n));
        Self {
            operations,
            shape: [m, n, k],
            a: Matrix::new(seed, ar, ac),
            b: Matrix::new(seed + 1, br, bc),
            c: Matrix::new(seed + 2, m, n),
        }
    }

    fn ints(&self) -> [c_int; 3] {
        self.shape.map(|x| x as c_int)
    }

    fn check(&self, alpha: C64, beta: C64, what: &str) {
        let expected = |row, column| {
            let terms = (0..self.shape[2]).map(|i| {
                self.a.op(self.operations[0], row, i) * self.b.op(self.operations[1], i, column)
            });
            alpha * terms.sum::<C64>() + beta * self.c.at(row, column)
        };
        self.c.assert_is(expected, what);
    }
}

fn plain<T: Number>() {
    let handle = handle();
    for (device, [ta, tb]) in [
        (false, [0, 0]),
        (true, [1, 0]),
        (false, [0, 2]),
        (true, [2, 1]),
    ] {
        on_device(handle, device);
        let case = Case::<T, T>::new(3, [ta, tb], [5, 7, 9]);
        let (alpha, beta) = (C64::new(1.5, 0.5), C64::new(-0.5, 0.25));
        let (alpha, beta) = (T::new(alpha), T::new(beta));
        let (at_alpha, at_beta) = (Scalar::new(alpha, device), Scalar::new(beta, device));
        let name = if T::LETTER == "H" { "gemm" } else { "gemm_v2" };
        let [m, n, k] = case.ints();
        ok!(&named::<T>(name); handle, ta, tb, m, n, k, at_alpha.at(), case.a.address, case.a.ld(),
            case.b.address, case.b.ld(), at_beta.at(), case.c.address, case.c.ld());
        case.check(alpha.value(), beta.value(), "gemm");
        // The same with wide integers.
        let case = Case::<T, T>::new(4, [ta, tb], [5, 7, 9]);
        let wide = |x: c_int| i64::from(x);
        ok!(&named::<T>(&format!("{name}_64")); handle, ta, tb, wide(m), wide(n), wide(k), at_alpha.at(), case.a.address,
            wide(case.a.ld()), case.b.address, wide(case.b.ld()), at_beta.at(), case.c.address, wide(case.c.ld()));
        case.check(alpha.value(), beta.value(), "gemm_64");
    }
}

#[test]
fn products_are_right_in_all_types() {
    plain::<f32>();
    plain::<f64>();
    plain::<C32>();
    plain::<C64>();
    plain::<f16>();
}

#[test]
fn zero_for_beta_means_that_c_is_not_read() {
    let handle = handle();
    let case = Case::<f32, f32>::new(1, [0, 0], [3, 4, 5]);
    let c = Matrix::of(&[f32::NAN; 12], 3, 4);
    let case = Case { c, ..case };
    let (one, zero) = (Scalar::new(1f32, false), Scalar::new(0f32, false));
    let gemm = |k: c_int, alpha: &Scalar<f32>| {
        ok!("cublasSgemm_v2"; handle, 0, 0, 3, 4, k, alpha.at(), case.a.address, case.a.ld(),
            case.b.address, case.b.ld(), zero.at(), case.c.address, case.c.ld());
    };
    gemm(5, &one);
    let sums = |row, column| {
        (0..5)
            .map(|i| case.a.at(row, i) * case.b.at(i, column))
            .sum()
    };
    case.c.assert_is(sums, "NaN");
    // Nor are a and b used if the sums are empty.
    gemm(0, &one);
    case.c.assert_is(|_, _| C64::default(), "k = 0");
    write(case.a.address, &[f32::NAN; 3]);
    gemm(5, &zero);
    case.c.assert_is(|_, _| C64::default(), "alpha = 0");
}

/// `cublasGemmEx`, `…StridedBatchedEx` and `…BatchedEx` with these types.
fn by_types<A: Number, C: Number, S: Number>(types: [c_int; 2], compute: c_int) {
    let handle = handle();
    for device in [false, true] {
        on_device(handle, device);
        let (alpha, beta) = (S::new(C64::new(2.0, 1.0)), S::new(C64::new(-1.0, 0.0)));
        let (at_alpha, at_beta) = (Scalar::new(alpha, device), Scalar::new(beta, device));
        let [a_type, c_type] = types;
        let what = format!("{types:?} {compute}");
        let case = Case::<A, C>::new(5, [1, 0], [6, 3, 8]);
        let (a, b, c) = (&case.a, &case.b, &case.c);
        ok!("cublasGemmEx"; handle, 1, 0, 6, 3, 8, at_alpha.at(), a.address, a_type, a.ld(), b.address, a_type, b.ld(),
            at_beta.at(), c.address, c_type, c.ld(), compute, -1);
        case.check(alpha.value(), beta.value(), &what);

        let cases = [0, 1, 2].map(|i| Case::<A, C>::new(7 + i, [0, 0], [4, 5, 4]));
        let [pa, pb, pc] = [
            upload(&cases.each_ref().map(|x| x.a.address)),
            upload(&cases.each_ref().map(|x| x.b.address)),
            upload(&cases.each_ref().map(|x| x.c.address)),
        ];
        let [la, lb, lc] = [cases[0].a.ld(), cases[0].b.ld(), cases[0].c.ld()];
        ok!("cublasGemmBatchedEx"; handle, 0, 0, 4, 5, 4, at_alpha.at(), pa, a_type, la, pb, a_type, lb,
            at_beta.at(), pc, c_type, lc, 3, compute, -1);
        for case in &cases {
            case.check(alpha.value(), beta.value(), &what);
        }

        // Two adjacent products: b and c have further columns, and a is the same matrix.
        let case = Case::<A, C>::new(11, [0, 0], [4, 10, 4]);
        let (a, b, c) = (&case.a, &case.b, &case.c);
        let (stride_b, stride_c) = (5 * b.leading as i64, 5 * c.leading as i64);
        ok!("cublasGemmStridedBatchedEx"; handle, 0, 0, 4, 5, 4, at_alpha.at(), a.address, a_type, a.ld(), 0i64,
            b.address, a_type, b.ld(), stride_b, at_beta.at(), c.address, c_type, c.ld(), stride_c, 2, compute, 99);
        case.check(alpha.value(), beta.value(), &what);
    }
}

#[test]
fn products_by_types() {
    by_types::<f16, f16, f16>([2, 2], HALF);
    by_types::<f16, f16, f32>([2, 2], SINGLE);
    by_types::<f16, f32, f32>([2, 0], SINGLE);
    by_types::<bf16, bf16, f32>([14, 14], SINGLE + 1);
    by_types::<bf16, f32, f32>([14, 0], SINGLE);
    by_types::<i8, f32, f32>([3, 0], SINGLE);
    by_types::<i8, i32, i32>([3, 10], INTEGER);
    for compute in [SINGLE, SINGLE + 1, 74, 75, 77] {
        by_types::<f32, f32, f32>([0, 0], compute);
        by_types::<C32, C32, C32>([4, 4], compute);
    }
    by_types::<f64, f64, f64>([1, 1], DOUBLE);
    by_types::<C64, C64, C64>([5, 5], DOUBLE + 1);
}

fn batches<T: Number>() {
    let handle = handle();
    let (alpha, beta) = (T::new(C64::new(1.0, 1.0)), T::new(C64::new(0.5, 0.0)));
    let cases = [0, 1].map(|i| Case::<T, T>::new(20 + i, [0, 1], [3, 4, 5]));
    let [pa, pb, pc] = [
        upload(&cases.each_ref().map(|x| x.a.address)),
        upload(&cases.each_ref().map(|x| x.b.address)),
        upload(&cases.each_ref().map(|x| x.c.address)),
    ];
    let [la, lb, lc] = [cases[0].a.ld(), cases[0].b.ld(), cases[0].c.ld()];
    ok!(&named::<T>("gemmBatched"); handle, 0, 1, 3, 4, 5, &alpha, pa, la, pb, lb, &beta, pc, lc, 2);
    for case in &cases {
        case.check(alpha.value(), beta.value(), "batched");
    }
    let case = Case::<T, T>::new(25, [0, 0], [3, 8, 5]);
    let (a, b, c) = (&case.a, &case.b, &case.c);
    let strides = [0, 4 * b.leading as i64, 4 * c.leading as i64];
    ok!(&named::<T>("gemmStridedBatched"); handle, 0, 0, 3, 4, 5, &alpha, a.address, a.ld(), strides[0], b.address, b.ld(),
        strides[1], &beta, c.address, c.ld(), strides[2], 2);
    case.check(alpha.value(), beta.value(), "strided");
}

#[test]
fn batches_of_all_types() {
    batches::<f32>();
    batches::<f64>();
    batches::<C32>();
    batches::<C64>();
    batches::<f16>();
}

#[test]
fn an_unknown_combination_is_refused() {
    let handle = handle();
    let place = alloc(4096);
    let ex = |types: [c_int; 3], compute: c_int, lda: c_int| {
        let (one, [a, b, c]) = (1u64, types);
        call!("cublasGemmEx"; handle, 0, 0, 4, 4, 4, &one, place, a, lda, place, b, 4, &one, place, c, 4, compute, -1)
    };
    assert_eq!(ex([0, 0, 0], SINGLE, 4), 0);
    assert_eq!(ex([2, 14, 0], SINGLE, 4), 15, "mixed inputs");
    assert_eq!(ex([0, 0, 2], SINGLE, 4), 15);
    assert_eq!(ex([0, 0, 0], DOUBLE, 4), 15);
    assert_eq!(ex([2, 2, 2], 77, 4), 15);
    assert_eq!(ex([3, 3, 10], INTEGER, 4), 0);
    assert_eq!(
        ex([3, 3, 10], INTEGER, 5),
        15,
        "columns that begin at no word"
    );
    assert_eq!(ex([0, 0, 0], 1, 4), 7, "no compute type");
    ok!("cuCtxSynchronize";);
    let gemm = |ta: c_int, m: c_int, n: c_int, k: c_int, [la, lb, lc]: [c_int; 3]| {
        let one = 1f32;
        call!("cublasSgemm_v2"; handle, ta, 0, m, n, k, &one, place, la, place, lb, &one, place, lc)
    };
    assert_eq!(gemm(0, 4, 4, 4, [4, 4, 4]), 0);
    for sizes in [[-1, 4, 4], [4, -1, 4], [4, 4, -1]] {
        assert_eq!(gemm(0, sizes[0], sizes[1], sizes[2], [4, 4, 4]), 7);
    }
    for leading in [[3, 4, 4], [4, 3, 4], [4, 4, 3], [4, 4, 0]] {
        assert_eq!(gemm(0, 4, 4, 4, leading), 7, "{leading:?}");
    }
    assert_eq!(gemm(9, 4, 4, 4, [4, 4, 4]), 7);
    assert_eq!(gemm(1, 4, 4, 2, [2, 4, 4]), 0, "transposed, a has two rows");
    assert_eq!(gemm(0, 0, 4, 4, [1, 4, 1]), 0, "nothing to do");
    let (one, null) = (1f32, 0u64);
    let status =
        call!("cublasSgemm_v2"; handle, 0, 0, 4, 4, 4, null, place, 4, place, 4, &one, place, 4);
    assert_eq!(status, 7, "no alpha");
    let status =
        call!("cublasSgemm_v2"; handle, 0, 0, 4, 4, 4, &one, place, 4, place, 4, &one, null, 4);
    assert_eq!(status, 7, "no c");
    ok!("cuCtxSynchronize";);
}

/// Measures the time of a product of 512, and checks the result.
fn large<A: Number, C: Number, S: Number>(types: [c_int; 2], compute: c_int) {
    const SIZE: usize = 512;
    let (handle, n) = (handle(), SIZE as c_int);
    // Too large for a stack.
    let all =
        |x: f64| -> Vec<A> { std::iter::repeat_n(A::new(C64::new(x, 0.0)), SIZE * SIZE).collect() };
    let a = upload(&all(1.0));
    let b = upload(&all(2.0));
    let c = alloc(SIZE * SIZE * size_of::<C>());
    let (one, zero) = (S::new(C64::new(1.0, 0.0)), S::new(C64::default()));
    let ([of_a, of_c], start) = (types, Instant::now());
    ok!("cublasGemmEx"; handle, 1, 0, n, n, n, &one, a, of_a, n, b, of_a, n, &zero, c, of_c, n, compute, -1);
    ok!("cuCtxSynchronize";);
    println!("{types:?}: {:?}", start.elapsed());
    let all = download::<C>(c, SIZE * SIZE);
    assert!(all.iter().all(|x| x.value() == C64::new(1024.0, 0.0)));
}

#[test]
fn large_products() {
    large::<f32, f32, f32>([0, 0], SINGLE);
    large::<f64, f64, f64>([1, 1], DOUBLE);
    large::<C32, C32, C32>([4, 4], SINGLE);
    large::<C64, C64, C64>([5, 5], DOUBLE);
    large::<f16, f16, f32>([2, 2], SINGLE);
    large::<bf16, bf16, f32>([14, 14], SINGLE);
    large::<i8, i32, i32>([3, 10], INTEGER);
}
