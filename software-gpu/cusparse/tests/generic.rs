// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library as a C program gets it: products against those of the dense matrices, and refused calls.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use gpgpu_stand_in::{call, ok, testing::Libraries};

type Object = *mut c_void;

static LIBRARIES: Libraries = Libraries::new("libsoftware_cusparse.so");

fn null() -> Object {
    null_mut()
}

const DATA: c_int = 1;
const NARROW: c_int = 2;
const WIDE: c_int = 3;

fn handle() -> Object {
    LIBRARIES.enter();
    let mut handle = null();
    ok!(LIBRARIES, "cusparseCreate"; &mut handle);
    handle
}

fn upload<T: Copy>(values: &[T]) -> u64 {
    LIBRARIES.upload(values)
}

fn download<T: Copy + Default>(address: u64, count: usize) -> Vec<T> {
    LIBRARIES.download(address, count)
}

fn vector(values: &[f64]) -> (Object, u64) {
    let (mut made, at) = (null(), upload(values));
    ok!(LIBRARIES, "cusparseCreateDnVec"; &mut made, values.len() as i64, at, DATA);
    (made, at)
}

/// 3 by 4:  1 . 2 .
///          . . . 3
///          4 5 . .
const ROWS: [[f64; 4]; 3] = [
    [1.0, 0.0, 2.0, 0.0],
    [0.0, 0.0, 0.0, 3.0],
    [4.0, 5.0, 0.0, 0.0],
];
const STARTS: [i32; 4] = [0, 2, 3, 5];
const COLUMNS: [i32; 5] = [0, 2, 3, 0, 1];
const VALUES: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];

fn csr() -> Object {
    let mut made = null();
    let [starts, columns] = [upload(&STARTS), upload(&COLUMNS)];
    ok!(LIBRARIES, "cusparseCreateCsr"; &mut made, 3_i64, 4_i64, 5_i64, starts, columns, upload(&VALUES), NARROW, NARROW, 0, DATA);
    made
}

/// The same with indices of 64 bits, which begin at one.
fn coo() -> Object {
    let mut made = null();
    let rows = upload(&[1_i64, 1, 2, 3, 3]);
    let columns = upload(&COLUMNS.map(|column| i64::from(column) + 1));
    ok!(LIBRARIES, "cusparseCreateCoo"; &mut made, 3_i64, 4_i64, 5_i64, rows, columns, upload(&VALUES), WIDE, 1, DATA);
    made
}

#[test]
fn a_matrix_times_a_vector_by_rows_and_by_coordinates() {
    let handle = handle();
    for a in [csr(), coo()] {
        for (operation, on_device) in [(0, false), (1, true)] {
            let (columns, rows) = if operation == 0 { (4, 3) } else { (3, 4) };
            let xs: Vec<f64> = (0..columns).map(|at| at as f64 + 0.5).collect();
            let ys: Vec<f64> = (0..rows).map(|at| 10.0 - at as f64).collect();
            let ((x, _), (y, at_y)) = (vector(&xs), vector(&ys));
            let (alpha, beta) = (2.0_f64, -1.0_f64);
            let at = |value: &f64| {
                if on_device {
                    upload(&[*value])
                } else {
                    value as *const f64 as u64
                }
            };
            let (at_alpha, at_beta) = (at(&alpha), at(&beta));
            ok!(LIBRARIES, "cusparseSetPointerMode"; handle, c_int::from(on_device));
            let mut size = 0_usize;
            ok!(LIBRARIES, "cusparseSpMV_bufferSize"; handle, operation, at_alpha, a, x, at_beta, y, DATA, 0, &mut size);
            ok!(LIBRARIES, "cusparseSpMV"; handle, operation, at_alpha, a, x, at_beta, y, DATA, 0, upload(&vec![0_u8; size]));
            let found = download::<f64>(at_y, rows);
            for (row, found) in found.into_iter().enumerate() {
                let of = |column: usize| {
                    if operation == 0 {
                        ROWS[row][column]
                    } else {
                        ROWS[column][row]
                    }
                };
                let sum: f64 = (0..columns).map(|column| of(column) * xs[column]).sum();
                assert_eq!(found, alpha * sum + beta * ys[row]);
            }
        }
        ok!(LIBRARIES, "cusparseDestroySpMat"; a);
    }
    ok!(LIBRARIES, "cusparseDestroy"; handle);
}

#[test]
fn a_matrix_times_a_matrix_by_rows_and_by_columns() {
    let (handle, a) = (handle(), csr());
    let b: Vec<f64> = (0..8).map(|at| f64::from(at) - 3.0).collect();
    let (one, zero) = (1.0_f64, 0.0_f64);
    for order in [1, 2] {
        let (mut at_b, mut at_c) = (null(), null());
        let c = upload(&[f64::NAN; 6]);
        let [ld_b, ld_c] = if order == 1 { [4_i64, 3] } else { [2, 2] };
        ok!(LIBRARIES, "cusparseCreateDnMat"; &mut at_b, 4_i64, 2_i64, ld_b, upload(&b), DATA, order);
        ok!(LIBRARIES, "cusparseCreateDnMat"; &mut at_c, 3_i64, 2_i64, ld_c, c, DATA, order);
        ok!(LIBRARIES, "cusparseSpMM"; handle, 0, 0, &one, a, at_b, &zero, at_c, DATA, 0, 0_u64);
        let found = download::<f64>(c, 6);
        for (row, of_a) in ROWS.iter().enumerate() {
            for column in 0..2 {
                let of_b = |inner: usize| {
                    if order == 1 {
                        b[column * 4 + inner]
                    } else {
                        b[inner * 2 + column]
                    }
                };
                let sum: f64 = (0..4).map(|inner| of_a[inner] * of_b(inner)).sum();
                let at = if order == 1 {
                    column * 3 + row
                } else {
                    row * 2 + column
                };
                assert_eq!(found[at], sum);
            }
        }
    }
}

#[test]
fn a_sparse_product_is_sized_then_computed_then_copied() {
    let (handle, a) = (handle(), csr());
    // The same, transposed.
    let mut b = null();
    let [starts, columns] = [upload(&[0_i32, 2, 3, 4, 5]), upload(&[0_i32, 2, 2, 0, 1])];
    ok!(LIBRARIES, "cusparseCreateCsr"; &mut b, 4_i64, 3_i64, 5_i64, starts, columns, upload(&[1.0, 4.0, 5.0, 2.0, 3.0]), NARROW, NARROW, 0, DATA);
    let (mut c, mut product) = (null(), null());
    let c_starts = upload(&[0_i32; 4]);
    ok!(LIBRARIES, "cusparseCreateCsr"; &mut c, 3_i64, 3_i64, 0_i64, c_starts, 0_u64, 0_u64, NARROW, NARROW, 0, DATA);
    ok!(LIBRARIES, "cusparseSpGEMM_createDescr"; &mut product);
    let (one, zero) = (1.0_f64, 0.0_f64);
    for name in ["cusparseSpGEMM_workEstimation", "cusparseSpGEMM_compute"] {
        let mut size = 0_usize;
        ok!(LIBRARIES, name; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product, &mut size, 0_u64);
        let (buffer, mut less) = (upload(&vec![0_u8; size]), size - 1);
        assert_eq!(
            call!(LIBRARIES, name; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product, &mut less, buffer),
            3
        );
        ok!(LIBRARIES, name; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product, &mut size, buffer);
    }
    let (mut rows, mut also, mut count) = (0_i64, 0_i64, 0_i64);
    ok!(LIBRARIES, "cusparseSpMatGetSize"; c, &mut rows, &mut also, &mut count);
    assert_eq!((rows, also, count), (3, 3, 5));
    let (at, values) = (upload(&[0_i32; 5]), upload(&[0.0; 5]));
    ok!(LIBRARIES, "cusparseCsrSetPointers"; c, c_starts, at, values);
    ok!(LIBRARIES, "cusparseSpGEMM_copy"; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product);
    assert_eq!(download::<i32>(c_starts, 4), [0, 2, 3, 5]);
    assert_eq!(download::<i32>(at, 5), [0, 2, 1, 0, 2]);
    assert_eq!(download::<f64>(values, 5), [5.0, 4.0, 9.0, 4.0, 41.0]);
    // The whole matrix as a dense one.
    let mut dense = null();
    let room = upload(&[f64::NAN; 9]);
    ok!(LIBRARIES, "cusparseCreateDnMat"; &mut dense, 3_i64, 3_i64, 3_i64, room, DATA, 1);
    ok!(LIBRARIES, "cusparseSparseToDense"; handle, c, dense, 0, 0_u64);
    assert_eq!(
        download::<f64>(room, 9),
        [5.0, 0.0, 4.0, 0.0, 9.0, 0.0, 4.0, 0.0, 41.0]
    );
    ok!(LIBRARIES, "cusparseDenseToSparse_analysis"; handle, dense, c, 0, 0_u64);
    ok!(LIBRARIES, "cusparseDenseToSparse_convert"; handle, dense, c, 0, 0_u64);
    assert_eq!(download::<f64>(values, 5), [5.0, 4.0, 9.0, 4.0, 41.0]);
}

#[test]
fn a_triangle_is_solved() {
    let handle = handle();
    // 2 . .
    // 1 4 .
    // . 3 8
    let (mut a, mut system) = (null(), null());
    let [starts, columns] = [upload(&[0_i32, 1, 3, 5]), upload(&[0_i32, 0, 1, 1, 2])];
    ok!(LIBRARIES, "cusparseCreateCsr"; &mut a, 3_i64, 3_i64, 5_i64, starts, columns, upload(&[2.0, 1.0, 4.0, 3.0, 8.0]), NARROW, NARROW, 0, DATA);
    ok!(LIBRARIES, "cusparseSpMatSetAttribute"; a, 0, &0_i32, 4_usize);
    ok!(LIBRARIES, "cusparseSpMatSetAttribute"; a, 1, &0_i32, 4_usize);
    assert_eq!(
        call!(LIBRARIES, "cusparseSpMatSetAttribute"; a, 2, &0_i32, 4_usize),
        3
    );
    assert_eq!(
        call!(LIBRARIES, "cusparseSpMatSetAttribute"; a, 1, &0_i32, 8_usize),
        3
    );
    ok!(LIBRARIES, "cusparseSpSV_createDescr"; &mut system);
    let one = 1.0_f64;
    for (operation, right) in [(0, [2.0, 9.0, 30.0]), (1, [4.0, 17.0, 24.0])] {
        let ((x, _), (y, at_y)) = (vector(&right), vector(&[0.0; 3]));
        assert!(
            operation != 0
                || call!(LIBRARIES, "cusparseSpSV_solve"; handle, operation, &one, a, x, y, DATA, 0, system)
                    == 3
        );
        ok!(LIBRARIES, "cusparseSpSV_analysis"; handle, operation, &one, a, x, y, DATA, 0, system, 0_u64);
        ok!(LIBRARIES, "cusparseSpSV_solve"; handle, operation, &one, a, x, y, DATA, 0, system);
        assert_eq!(download::<f64>(at_y, 3), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn a_sparse_vector_is_added_and_multiplied() {
    let handle = handle();
    let mut x = null();
    ok!(LIBRARIES, "cusparseCreateSpVec"; &mut x, 4_i64, 2_i64, upload(&[1_i32, 3]), upload(&[2.0, 5.0]), NARROW, 0, DATA);
    let (y, at_y) = vector(&[1.0, 10.0, 100.0, 1000.0]);
    let (mut sum, one, two) = (0.0_f64, 1.0_f64, 2.0_f64);
    ok!(LIBRARIES, "cusparseSpVV"; handle, 0, x, y, &mut sum, DATA, 0_u64);
    assert_eq!(sum, 5020.0);
    ok!(LIBRARIES, "cusparseAxpby"; handle, &two, x, &one, y);
    assert_eq!(download::<f64>(at_y, 4), [1.0, 14.0, 100.0, 1010.0]);
}

#[test]
fn wrong_arguments_are_refused() {
    let (handle, mut made, at) = (handle(), null(), upload(&[0_u8; 64]));
    assert_eq!(
        call!(LIBRARIES, "cusparseCreateDnVec"; &mut made, -1_i64, at, DATA),
        3
    );
    assert_eq!(
        call!(LIBRARIES, "cusparseCreateCsr"; &mut made, 3_i64, 3_i64, 10_i64, at, at, at, NARROW, NARROW, 0, DATA),
        3
    );
    assert_eq!(
        call!(LIBRARIES, "cusparseCreateCsr"; &mut made, 3_i64, 3_i64, 3_i64, at, at, at, 7, NARROW, 0, DATA),
        3
    );
    let (a, (x, _), (y, _), one) = (csr(), vector(&[1.0; 4]), vector(&[1.0; 3]), 1.0_f64);
    for (wrong_a, wrong_x) in [
        (x, x),
        (a, a),
        (a, y),
        (a, handle),
        (null(), x),
        (a, 0x30 as Object),
    ] {
        assert_eq!(
            call!(LIBRARIES, "cusparseSpMV"; handle, 0, &one, wrong_a, wrong_x, &one, y, DATA, 0, 0_u64),
            3
        );
    }
    assert_eq!(
        call!(LIBRARIES, "cusparseSpMV"; a, 0, &one, a, x, &one, y, DATA, 0, 0_u64),
        1
    );
    ok!(LIBRARIES, "cusparseDestroySpMat"; a);
    assert_eq!(call!(LIBRARIES, "cusparseDestroySpMat"; a), 3);
    assert_eq!(
        call!(LIBRARIES, "cusparseSpMV"; handle, 0, &one, a, x, &one, y, DATA, 0, 0_u64),
        3
    );
}
