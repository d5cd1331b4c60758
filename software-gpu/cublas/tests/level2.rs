// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A matrix and vectors. Triangles that must not be read contain NaN.

mod common;

use std::ffi::c_int;

use common::*;

const N: c_int = 6;

fn vector<T: Number>(seed: u64, count: usize) -> (u64, Vec<C64>) {
    let values = numbers::<T>(seed, count);
    (upload(&values), values.iter().map(|x| x.value()).collect())
}

#[track_caller]
fn assert_vector<T: Number>(address: u64, expected: &[C64], what: &str) {
    let found = download::<T>(address, expected.len());
    for (found, expected) in found.into_iter().zip(expected) {
        assert_close(found, *expected, what);
    }
}

/// An `N` by `N` matrix with NaN outside of a triangle and a strong diagonal. `values` are those of the whole matrix,
/// which `mirror` completes.
fn triangle<T: Number>(fill: c_int, mirror: impl Fn(C64) -> C64) -> Matrix<T> {
    let n = N as usize;
    let mut values = numbers::<T>(31, n * n);
    let mut whole = vec![C64::default(); n * n];
    for column in 0..n {
        for row in 0..n {
            let held = if fill == 0 {
                row >= column
            } else {
                row <= column
            };
            if row == column {
                values[column * n + row] = T::new(C64::new(4.0 + row as f64, 0.0));
            }
            if held {
                let x = values[column * n + row].value();
                whole[row * n + column] = mirror(x);
                whole[column * n + row] = x;
            } else {
                values[column * n + row] = poison::<T>();
            }
        }
    }
    let mut matrix = Matrix::of(&values, n, n);
    matrix.values = whole;
    matrix
}

fn general<T: Number>() {
    let handle = handle();
    let (alpha, beta) = (T::new(C64::new(1.5, 0.5)), T::new(C64::new(0.5, -1.0)));
    for (operation, device) in [(0, false), (1, true), (2, false)] {
        on_device(handle, device);
        let (at_alpha, at_beta) = (Scalar::new(alpha, device), Scalar::new(beta, device));
        let a = Matrix::<T>::new(1, 5, 7);
        let (rows, columns) = if operation == 0 { (5, 7) } else { (7, 5) };
        let ((x, xs), (y, ys)) = (vector::<T>(2, columns), vector::<T>(3, rows));
        ok!(&named::<T>("gemv_v2"); handle, operation, 5, 7, at_alpha.at(), a.address, a.ld(), x, 1, at_beta.at(), y, -1);
        let expected: Vec<C64> = (0..rows)
            .map(|at| {
                // The step is negative: the last row is the first in memory.
                let row = rows - 1 - at;
                let sum: C64 = (0..columns).map(|i| a.op(operation, row, i) * xs[i]).sum();
                alpha.value() * sum + beta.value() * ys[at]
            })
            .collect();
        assert_vector::<T>(y, &expected, "gemv");
    }
    on_device(handle, false);
    for name in ["ger_v2", "geru_v2", "gerc_v2"] {
        if T::COMPLEX == (name == "ger_v2") {
            continue;
        }
        let a = Matrix::<T>::new(4, 5, 7);
        let ((x, xs), (y, ys)) = (vector::<T>(5, 5), vector::<T>(6, 7));
        ok!(&named::<T>(name); handle, 5, 7, &alpha, x, 1, y, 1, a.address, a.ld());
        let other = |y: C64| if name == "gerc_v2" { y.conj() } else { y };
        let expected = |i: usize, j: usize| a.at(i, j) + alpha.value() * xs[i] * other(ys[j]);
        a.assert_is(expected, name);
    }
}

fn symmetric<T: Number>() {
    let handle = handle();
    let (alpha, beta) = (T::new(C64::new(1.0, 0.5)), T::new(C64::new(2.0, -1.0)));
    for (name, hermitian) in [("symv_v2", false), ("hemv_v2", true)] {
        if hermitian && !T::COMPLEX {
            continue;
        }
        for fill in [0, 1] {
            let a = triangle::<T>(fill, |x| if hermitian { x.conj() } else { x });
            let ((x, xs), (y, ys)) = (vector::<T>(7, 6), vector::<T>(8, 6));
            ok!(&named::<T>(name); handle, fill, N, &alpha, a.address, a.ld(), x, 1, &beta, y, 1);
            let row = |row: usize| {
                let sum: C64 = (0..6).map(|i| a.at(row, i) * xs[i]).sum();
                alpha.value() * sum + beta.value() * ys[row]
            };
            assert_vector::<T>(y, &(0..6).map(row).collect::<Vec<_>>(), name);
        }
    }
}

fn triangular<T: Number>() {
    let handle = handle();
    for fill in [0, 1] {
        for operation in [0, 1, 2] {
            for unit in [0, 1] {
                let mut a = triangle::<T>(fill, |_| C64::default());
                for i in (0..6).filter(|_| unit == 1) {
                    a.values[i * 7] = C64::new(1.0, 0.0);
                }
                let (x, xs) = vector::<T>(9, 6);
                ok!(&named::<T>("trmv_v2"); handle, fill, operation, unit, N, a.address, a.ld(), x, 1);
                let row = |row: usize| (0..6).map(|i| a.op(operation, row, i) * xs[i]).sum();
                let product: Vec<C64> = (0..6).map(row).collect();
                assert_vector::<T>(x, &product, "trmv");
            }
        }
    }
    // The product with the result of `trsv` must be the right-hand side.
    for (fill, operation) in [(0, 0), (0, 2), (1, 0), (1, 1)] {
        let a = triangle::<T>(fill, |_| C64::default());
        let (x, xs) = vector::<T>(10, 6);
        ok!(&named::<T>("trsv_v2"); handle, fill, operation, 0, N, a.address, a.ld(), x, -1);
        let found: Vec<C64> = download::<T>(x, 6).iter().map(|x| x.value()).collect();
        let back: Vec<T> = (0..6)
            .map(|row| (0..6).map(|i| a.op(operation, row, i) * found[5 - i]).sum())
            .map(T::new)
            .collect();
        for (found, expected) in back.into_iter().zip(xs.iter().rev()) {
            assert_close(found, *expected, "trsv");
        }
    }
}

#[test]
fn general_matrices() {
    general::<f32>();
    general::<f64>();
    general::<C32>();
    general::<C64>();
}

#[test]
fn symmetric_and_hermitian_matrices() {
    symmetric::<f32>();
    symmetric::<f64>();
    symmetric::<C32>();
    symmetric::<C64>();
}

#[test]
fn triangular_matrices() {
    triangular::<f32>();
    triangular::<f64>();
    triangular::<C32>();
    triangular::<C64>();
}

#[test]
fn wrong_arguments_are_refused() {
    let (handle, place, one) = (handle(), alloc(1024), 1f32);
    let gemv = |trans: c_int, m: c_int, n: c_int, lda: c_int, incx: c_int, incy: c_int| call!("cublasSgemv_v2"; handle, trans, m, n, &one, place, lda, place, incx, &one, place, incy);
    assert_eq!(gemv(0, 0, 4, 1, 1, 1), 0);
    for (trans, m, n, lda, incx, incy) in [
        (0, -1, 4, 4, 1, 1),
        (0, 4, -1, 4, 1, 1),
        (0, 4, 4, 3, 1, 1),
        (0, 4, 4, 4, 0, 1),
        (0, 4, 4, 4, 1, 0),
        (7, 4, 4, 4, 1, 1),
    ] {
        assert_eq!(gemv(trans, m, n, lda, incx, incy), 7);
    }
    let trsv = |fill: c_int, unit: c_int, n: c_int| call!("cublasStrsv_v2"; handle, fill, 0, unit, n, place, 4, place, 1);
    assert_eq!((trsv(5, 0, 4), trsv(0, 5, 4), trsv(0, 0, -4)), (7, 7, 7));
    ok!("cuCtxSynchronize";);
}
