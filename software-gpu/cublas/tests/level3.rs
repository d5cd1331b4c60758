// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Symmetric and triangular matrices, and cuBLAS's own additions.

mod common;

use std::ffi::c_int;

use common::*;

fn symmetric<T: Number>() {
    let handle = handle();
    let (alpha, beta) = (T::new(C64::new(1.5, 0.5)), T::new(C64::new(-1.0, 0.5)));
    for (name, hermitian) in [("symm_v2", false), ("hemm_v2", true)] {
        if hermitian && !T::COMPLEX {
            continue;
        }
        for (side, fill, device) in [(0, 0, false), (1, 1, true), (0, 1, true), (1, 0, false)] {
            on_device(handle, device);
            let (at_alpha, at_beta) = (Scalar::new(alpha, device), Scalar::new(beta, device));
            let (m, n) = (4usize, 6usize);
            let order = if side == 0 { m } else { n };
            let a = Matrix::<T>::new(1, order, order);
            let (b, c) = (Matrix::<T>::new(2, m, n), Matrix::<T>::new(3, m, n));
            ok!(&named::<T>(name); handle, side, fill, m as c_int, n as c_int, at_alpha.at(), a.address, a.ld(),
                b.address, b.ld(), at_beta.at(), c.address, c.ld());
            let whole = |i: usize, j: usize| {
                let held = if fill == 0 { i >= j } else { i <= j };
                match (held, hermitian) {
                    (true, true) if i == j => a.at(i, i).re.into(),
                    (true, _) => a.at(i, j),
                    (false, true) => a.at(j, i).conj(),
                    (false, false) => a.at(j, i),
                }
            };
            let expected = |i: usize, j: usize| {
                let sum: C64 = match side {
                    0 => (0..m).map(|x| whole(i, x) * b.at(x, j)).sum(),
                    _ => (0..n).map(|x| b.at(i, x) * whole(x, j)).sum(),
                };
                alpha.value() * sum + beta.value() * c.at(i, j)
            };
            c.assert_is(expected, name);
        }
    }
}

fn updates<T: Number>() {
    let handle = handle();
    let (alpha, beta) = (T::new(C64::new(1.5, 0.5)), T::new(C64::new(-1.0, 0.5)));
    for (fill, operation) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (n, k) = (5usize, 3usize);
        let (rows, columns) = if operation == 0 { (n, k) } else { (k, n) };
        let (a, c) = (
            Matrix::<T>::new(4, rows, columns),
            Matrix::<T>::new(5, n, n),
        );
        ok!(&named::<T>("syrk_v2"); handle, fill, operation, n as c_int, k as c_int, &alpha, a.address, a.ld(), &beta,
            c.address, c.ld());
        let expected = |i: usize, j: usize| {
            if i != j && (fill == 0) != (i > j) {
                return c.at(i, j);
            }
            let terms = (0..k).map(|x| a.op(operation, i, x) * a.op(operation, j, x));
            alpha.value() * terms.sum::<C64>() + beta.value() * c.at(i, j)
        };
        c.assert_is(expected, "syrk");
    }
    let adjoint =
        call!(&named::<T>("syrk_v2"); handle, 0, 2, 0, 0, &alpha, 0u64, 1, &beta, 0u64, 1);
    assert_eq!(adjoint, if T::COMPLEX { 7 } else { 0 });
}

fn solutions<T: Number>() {
    let handle = handle();
    let alpha = T::new(C64::new(2.0, 1.0));
    for case in 0..24 {
        let (side, fill, unit, operation) = (case & 1, case >> 1 & 1, case >> 2 & 1, case / 8);
        let (m, n) = (4usize, 5usize);
        let order = if side == 0 { m } else { n };
        let mut values = numbers::<T>(6, order * order);
        for i in 0..order {
            for j in 0..order {
                let x = &mut values[j * order + i];
                let held = if fill == 0 { i >= j } else { i <= j };
                // Small compared with the diagonal, so that no digits are lost.
                *x = match (held, i == j) {
                    (_, true) => T::new(C64::new(3.0, 0.0)),
                    (true, _) => T::new(x.value() * 0.125),
                    (false, _) => poison(),
                };
            }
        }
        let a = Matrix::of(&values, order, order);
        let b = Matrix::<T>::new(7, m, n);
        ok!(&named::<T>("trsm_v2"); handle, side, fill, operation, unit, m as c_int, n as c_int, &alpha,
            a.address, a.ld(), b.address, b.ld());
        let element = |i: usize, j: usize| {
            let (row, column) = if operation == 0 { (i, j) } else { (j, i) };
            let held = if fill == 0 {
                row >= column
            } else {
                row <= column
            };
            match (row == column && unit == 1, held) {
                (true, _) => C64::new(1.0, 0.0),
                (false, true) => a.op(operation, i, j),
                (false, false) => C64::default(),
            }
        };
        let x: Vec<C64> = b.read().iter().map(|x| x.value()).collect();
        for i in 0..m {
            for j in 0..n {
                let back: C64 = match side {
                    0 => (0..m).map(|k| element(i, k) * x[j * m + k]).sum(),
                    _ => (0..n).map(|k| x[k * m + i] * element(k, j)).sum(),
                };
                assert_close(
                    T::new(back),
                    alpha.value() * b.at(i, j),
                    &format!("trsm {case}"),
                );
            }
        }
    }
}

fn additions<T: Number>() {
    let handle = handle();
    let (alpha, beta) = (T::new(C64::new(1.5, 0.5)), T::new(C64::new(-1.0, 0.5)));
    for (ta, tb) in [(0, 0), (1, 0), (0, 2)] {
        let shape = |op: c_int| if op == 0 { (4, 6) } else { (6, 4) };
        let a = Matrix::<T>::new(8, shape(ta).0, shape(ta).1);
        let b = Matrix::<T>::new(9, shape(tb).0, shape(tb).1);
        let c = Matrix::of(&[poison::<T>(); 24], 4, 6);
        ok!(&named::<T>("geam"); handle, ta, tb, 4, 6, &alpha, a.address, a.ld(), &beta, b.address, b.ld(), c.address, c.ld());
        let sum = |i, j| alpha.value() * a.op(ta, i, j) + beta.value() * b.op(tb, i, j);
        c.assert_is(sum, "geam");
        // With a factor of zero the matrix need not exist.
        let zero = T::new(C64::default());
        ok!(&named::<T>("geam"); handle, ta, 0, 4, 6, &alpha, a.address, a.ld(), &zero, 0u64, 4, c.address, c.ld());
        c.assert_is(|i, j| alpha.value() * a.op(ta, i, j), "geam");
    }
    let a = Matrix::<T>::new(8, 4, 4);
    let in_place = |ta: c_int| call!(&named::<T>("geam"); handle, ta, 0, 4, 4, &alpha, a.address, a.ld(), &beta, a.address, a.ld(), a.address, a.ld());
    assert_eq!(in_place(1), 7);
    assert_eq!(in_place(0), 0);
    a.assert_is(
        |i, j| (alpha.value() + beta.value()) * a.at(i, j),
        "geam in place",
    );

    for (side, step) in [(0, 1), (1, 2), (1, -1)] {
        let (a, c) = (Matrix::<T>::new(10, 4, 6), Matrix::<T>::new(11, 4, 6));
        let xs = numbers::<T>(12, 12);
        let x = upload(&xs);
        ok!(&named::<T>("dgmm"); handle, side, 4, 6, a.address, a.ld(), x, step, c.address, c.ld());
        let expected = |i: usize, j: usize| {
            let at = if side == 0 { i } else { j };
            a.at(i, j) * xs[if step < 0 { 5 - at } else { at * step as usize }].value()
        };
        c.assert_is(expected, "dgmm");
    }
}

macro_rules! tests {
    ($($name:ident $what:ident;)*) => {$(
        #[test]
        fn $name() {
            $what::<f32>();
            $what::<f64>();
            $what::<C32>();
            $what::<C64>();
        }
    )*};
}
tests! {
    symmetric_products symmetric;
    updates_of_one_triangle updates;
    triangular_solutions solutions;
    sums_and_diagonals additions;
}
