// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The library as a C program gets it: pruned, compressed and multiplied matrices against the dense ones, and refused
//! calls.

use std::ffi::c_int;
use std::ptr::null_mut;

use gpgpu_stand_in::{call, ok, testing::Libraries};

static LIBRARIES: Libraries = Libraries::new("libsoftware_cusparselt.so");

const INVALID_VALUE: c_int = 3;
const NOT_SUPPORTED: c_int = 10;
const NOT_INITIALIZED: c_int = 1;

const R_32F: c_int = 0;
const R_8I: c_int = 3;
const R_32I: c_int = 10;
const BY_COLUMNS: c_int = 1;
const BY_ROWS: c_int = 2;

/// The memory that `cusparseLt.h` reserves in a program for any object.
#[repr(C, align(16))]
struct Room([u8; 512]);

impl Room {
    fn new() -> Self {
        Self([0; 512])
    }
}

fn handle() -> Room {
    LIBRARIES.enter();
    let mut handle = Room::new();
    ok!(LIBRARIES, "cusparseLtInit"; &mut handle);
    handle
}

fn dense(handle: &Room, rows: i64, columns: i64, leading: i64, data: c_int, order: c_int) -> Room {
    let mut made = Room::new();
    ok!(LIBRARIES, "cusparseLtDenseDescriptorInit"; handle, &mut made, rows, columns, leading, 16_u32, data, order);
    made
}

fn sparse(handle: &Room, rows: i64, columns: i64, leading: i64, data: c_int, order: c_int) -> Room {
    let mut made = Room::new();
    ok!(LIBRARIES, "cusparseLtStructuredDescriptorInit"; handle, &mut made, rows, columns, leading, 16_u32, data, order, 0_u32);
    made
}

/// Numbers that repeat only after many.
fn numbers(count: usize, from: i32) -> Vec<i32> {
    (0..count as i32)
        .map(|at| (at * 7 + at / 5 * 3 + from) % 11 - 5)
        .collect()
}

/// The second matrix is the sparse one, with columns one after the other; D is wider than its rows.
#[test]
fn the_second_factor_may_be_the_sparse_one() {
    let handle = handle();
    let (m, n, k) = (16_i64, 32_i64, 16_i64);
    let a: Vec<f32> = numbers((m * k) as usize, 1)
        .into_iter()
        .map(|of| of as f32)
        .collect();
    let b: Vec<f32> = numbers((n * k) as usize, 4)
        .into_iter()
        .map(|of| of as f32)
        .collect();
    let leading = n + 4;
    let of_a = dense(&handle, m, k, k, R_32F, BY_ROWS);
    let of_b = sparse(&handle, k, n, k, R_32F, BY_COLUMNS);
    let of_d = dense(&handle, m, n, leading, R_32F, BY_ROWS);
    let mut product = Room::new();
    ok!(LIBRARIES, "cusparseLtMatmulDescriptorInit"; &handle, &mut product, 0, 0, &of_a, &of_b, &of_d, &of_d, 2);
    let (mut selection, mut plan) = (Room::new(), Room::new());
    ok!(LIBRARIES, "cusparseLtMatmulAlgSelectionInit"; &handle, &mut selection, &product, 0);
    ok!(LIBRARIES, "cusparseLtMatmulPlanInit"; &handle, &mut plan, &product, &selection);

    let [at_a, at_b, valid] = [
        LIBRARIES.upload(&a),
        LIBRARIES.upload(&b),
        LIBRARIES.upload(&[7_i32]),
    ];
    let none = null_mut::<u8>();
    ok!(LIBRARIES, "cusparseLtSpMMAPruneCheck"; &handle, &product, at_b, valid, none);
    assert_eq!(LIBRARIES.download::<c_int>(valid, 1), [1]);
    ok!(LIBRARIES, "cusparseLtSpMMAPrune"; &handle, &product, at_b, at_b, 1, none);
    ok!(LIBRARIES, "cusparseLtSpMMAPruneCheck"; &handle, &product, at_b, valid, none);
    assert_eq!(LIBRARIES.download::<c_int>(valid, 1), [0]);
    let pruned = LIBRARIES.download::<f32>(at_b, b.len());
    for (pair, left) in b.chunks(2).zip(pruned.chunks(2)) {
        let want = match pair[1].abs() > pair[0].abs() {
            true => [0.0, pair[1]],
            false => [pair[0], 0.0],
        };
        assert_eq!(left, want);
    }
    let (mut size, mut buffer) = (0_usize, 0_usize);
    ok!(LIBRARIES, "cusparseLtSpMMACompressedSize"; &handle, &plan, &mut size, &mut buffer);
    assert_eq!(size, b.len() * 17 / 8);
    let [compressed, buffer] = [size, buffer].map(|size| LIBRARIES.allocate(size));
    ok!(LIBRARIES, "cusparseLtSpMMACompress"; &handle, &plan, at_b, compressed, buffer, none);
    let old = vec![2.0_f32; (m * leading) as usize];
    let at_d = LIBRARIES.upload(&old);
    let (alpha, beta) = (3.0_f32, -0.5_f32);
    ok!(LIBRARIES, "cusparseLtMatmul"; &handle, &plan, &alpha, at_a, compressed, &beta, at_d, at_d, 0_u64, none, 0);
    let d = LIBRARIES.download::<f32>(at_d, old.len());
    for (row, line) in d.chunks(leading as usize).enumerate() {
        for (column, got) in line.iter().enumerate() {
            let want = match column < n as usize {
                false => 2.0,
                true => {
                    let of_k =
                        |at: usize| a[row * k as usize + at] * pruned[column * k as usize + at];
                    3.0 * (0..k as usize).map(of_k).sum::<f32>() - 1.0
                }
            };
            assert_eq!(*got, want, "{row} {column}");
        }
    }
}

/// Two products of integers at once; each row has its own alpha and bias, and what is too large becomes the largest.
#[test]
fn a_batch_has_its_rows_scaled_and_its_results_bounded() {
    let handle = handle();
    let (m, n, k) = (32_i64, 16_i64, 32_i64);
    let a: Vec<i8> = numbers((2 * m * k) as usize, 2)
        .into_iter()
        .map(|of| of as i8)
        .collect();
    let b: Vec<i8> = numbers((2 * n * k) as usize, 3)
        .into_iter()
        .map(|of| of as i8)
        .collect();
    let mut of_a = sparse(&handle, m, k, k, R_8I, BY_ROWS);
    let mut of_b = dense(&handle, n, k, k, R_8I, BY_ROWS);
    let mut of_d = dense(&handle, m, n, m, R_8I, BY_COLUMNS);
    for (of, stride) in [(&mut of_a, m * k), (&mut of_b, n * k), (&mut of_d, m * n)] {
        ok!(LIBRARIES, "cusparseLtMatDescSetAttribute"; &handle, &mut *of, 0, &2_i32, 4_usize);
        ok!(LIBRARIES, "cusparseLtMatDescSetAttribute"; &handle, of, 1, &stride, 8_usize);
    }
    let mut product = Room::new();
    ok!(LIBRARIES, "cusparseLtMatmulDescriptorInit"; &handle, &mut product, 0, 1, &of_a, &of_b, &of_d, &of_d, 0);
    let alphas: Vec<f32> = (0..m).map(|row| 0.25 * (row - 9) as f32).collect();
    let biases: Vec<f32> = (0..m).map(|row| row as f32).collect();
    let [alpha, bias] = [LIBRARIES.upload(&alphas), LIBRARIES.upload(&biases)];
    for (number, is_set) in [(5, 1_u32), (0, 1)] {
        ok!(LIBRARIES, "cusparseLtMatmulDescSetAttribute"; &handle, &mut product, number, &is_set, 4_usize);
    }
    ok!(LIBRARIES, "cusparseLtMatmulDescSetAttribute"; &handle, &mut product, 8, &bias, 8_usize);
    let (mut selection, mut plan) = (Room::new(), Room::new());
    ok!(LIBRARIES, "cusparseLtMatmulAlgSelectionInit"; &handle, &mut selection, &product, 0);
    ok!(LIBRARIES, "cusparseLtMatmulPlanInit"; &handle, &mut plan, &product, &selection);

    let none = null_mut::<u8>();
    let [at_a, at_b] = [LIBRARIES.upload(&a), LIBRARIES.upload(&b)];
    ok!(LIBRARIES, "cusparseLtSpMMAPrune2"; &handle, &of_a, 1, 0, at_a, at_a, 0, none);
    let pruned = LIBRARIES.download::<i8>(at_a, a.len());
    // In tiles, half of each column is zero, too.
    for column in 0..k as usize {
        for tile in 0..(2 * m as usize / 4) {
            let rows = (0..4).filter(|row| pruned[(tile * 4 + row) * k as usize + column] != 0);
            assert!(rows.count() <= 2, "{column} {tile}");
        }
    }
    let (mut size, mut buffer) = (0_usize, 0_usize);
    ok!(LIBRARIES, "cusparseLtSpMMACompressedSize2"; &handle, &of_a, &mut size, &mut buffer);
    assert_eq!(size, a.len() * 10 / 16);
    let [compressed, buffer] = [size, buffer].map(|size| LIBRARIES.allocate(size));
    ok!(LIBRARIES, "cusparseLtSpMMACompress2"; &handle, &of_a, 1, 0, at_a, compressed, buffer, none);
    let at_d = LIBRARIES.upload(&vec![0_i8; (2 * m * n) as usize]);
    let beta = 0.0_f32;
    ok!(LIBRARIES, "cusparseLtMatmulSearch"; &handle, &plan, alpha, compressed, at_b, &beta, at_d, at_d, 0_u64, none, 0);
    let mut algorithm = -1;
    ok!(LIBRARIES, "cusparseLtMatmulAlgGetAttribute"; &handle, &selection, 0, &mut algorithm, 4_usize);
    assert_eq!(algorithm, 1);
    let d = LIBRARIES.download::<i8>(at_d, (2 * m * n) as usize);
    let (m, n, k) = (m as usize, n as usize, k as usize);
    let mut bounded = 0;
    for (at, got) in d.iter().enumerate() {
        let (i, column, row) = (at / (m * n), at / m % n, at % m);
        let a = &pruned[(i * m + row) * k..][..k];
        let b = &b[(i * n + column) * k..][..k];
        let sum: i32 = a
            .iter()
            .zip(b)
            .map(|(a, b)| i32::from(*a) * i32::from(*b))
            .sum();
        let value = (alphas[row] * sum as f32 + biases[row]).max(0.0);
        bounded += usize::from(value > 127.0);
        assert_eq!(*got, value.round_ties_even() as i8, "{i} {row} {column}");
    }
    assert!(bounded > 0);
}

#[test]
fn invalid_structures_are_refused() {
    let handle = handle();
    let mut made = Room::new();
    let none = Room::new();
    for (rows, columns, leading, alignment, data, order, want) in [
        (0_i64, 32_i64, 32_i64, 16_u32, R_8I, BY_ROWS, INVALID_VALUE),
        (32, -32, 32, 16, R_8I, BY_ROWS, INVALID_VALUE),
        (32, 32, 31, 16, R_8I, BY_ROWS, INVALID_VALUE),
        (32, 33, 33, 16, R_8I, BY_ROWS, INVALID_VALUE),
        (16, 32, 32, 16, R_8I, BY_ROWS, INVALID_VALUE),
        (32, 32, 32, 8, R_8I, BY_ROWS, INVALID_VALUE),
        (32, 32, 32, 16, R_8I, 0, INVALID_VALUE),
        (32, 32, 32, 16, 77, BY_ROWS, NOT_SUPPORTED),
    ] {
        let said = call!(LIBRARIES, "cusparseLtStructuredDescriptorInit"; &handle, &mut made, rows, columns, leading, alignment, data, order, 0_u32);
        assert_eq!(
            said, want,
            "{rows} {columns} {leading} {alignment} {data} {order}"
        );
    }
    for (handle, want) in [
        (&raw const none, NOT_INITIALIZED),
        (&raw const made, NOT_INITIALIZED),
        (std::ptr::null(), INVALID_VALUE),
    ] {
        let said = call!(LIBRARIES, "cusparseLtDenseDescriptorInit"; handle, &mut made, 16_i64, 16_i64, 16_i64, 16_u32, R_8I, BY_ROWS);
        assert_eq!(said, want);
    }
    let of_a = sparse(&handle, 32, 32, 32, R_8I, BY_ROWS);
    let of_b = dense(&handle, 32, 32, 32, R_8I, BY_ROWS);
    let of_d = dense(&handle, 32, 32, 32, R_32I, BY_ROWS);
    let describe = |a: &Room, b: &Room, d: &Room, compute: c_int| {
        let mut made = Room::new();
        call!(LIBRARIES, "cusparseLtMatmulDescriptorInit"; &handle, &mut made, 0, 0, a, b, d, d, compute)
    };
    assert_eq!(describe(&of_a, &of_b, &of_d, 0), 0);
    for (a, b, d, compute, want) in [
        (&of_b, &of_b, &of_d, 0, INVALID_VALUE),
        (&of_a, &of_a, &of_d, 0, INVALID_VALUE),
        (&of_a, &none, &of_d, 0, INVALID_VALUE),
        (&of_a, &of_b, &of_d, 9, INVALID_VALUE),
        (&of_a, &of_b, &of_d, 2, NOT_SUPPORTED),
        (&of_a, &of_d, &of_d, 0, NOT_SUPPORTED),
    ] {
        assert_eq!(describe(a, b, d, compute), want);
    }
    ok!(LIBRARIES, "cusparseLtMatDescriptorDestroy"; &of_a);
    assert_eq!(describe(&of_a, &of_b, &of_d, 0), INVALID_VALUE);
    ok!(LIBRARIES, "cusparseLtDestroy"; &handle);
    assert_eq!(describe(&of_b, &of_b, &of_d, 0), NOT_INITIALIZED);
    assert_eq!(
        call!(LIBRARIES, "cusparseLtDestroy"; &handle),
        NOT_INITIALIZED
    );
}
