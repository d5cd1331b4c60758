// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that compute with sparse matrices with cuSPARSE, and that make invalid calls of it.

use std::{ffi::c_void, ptr::null_mut};

use libloading::Library;

use crate::{
    device::{begin, call, download, new_stream, ok, upload, write},
    on_gpu,
};

type Object = *mut c_void;

const NOT_INITIALIZED: u32 = 1;
const INVALID_VALUE: u32 = 3;
const NOT_SUPPORTED: u32 = 10;

/// `CUDA_R_64F`, and indices of 32 bits.
const DATA: i32 = 1;
const INDEX: i32 = 2;

/// 3 by 4:  1 . 2 .
///          . . . 3
///          4 5 . .
const ROWS: [[f64; 4]; 3] = [
    [1.0, 0.0, 2.0, 0.0],
    [0.0, 0.0, 0.0, 3.0],
    [4.0, 5.0, 0.0, 0.0],
];

fn open() -> Library {
    // SAFETY: the initialisers of the library are this project's own.
    unsafe { Library::new("libcusparse.so.12") }.unwrap()
}

fn create(sparse: &Library) -> Object {
    let mut handle: Object = null_mut();
    ok!(sparse, "cusparseCreate"; &mut handle);
    handle
}

fn vector(sparse: &Library, count: usize, at: u64) -> Object {
    let mut made = null_mut::<c_void>();
    ok!(sparse, "cusparseCreateDnVec"; &mut made, count as i64, at, DATA);
    made
}

/// The matrix, and the address of its values.
fn matrix(sparse: &Library) -> (Object, u64) {
    let mut made = null_mut::<c_void>();
    let [starts, columns] = [upload(&[0, 2, 3, 5]), upload(&[0, 2, 3, 0, 1])];
    let values = upload(&[1.0, 2.0, 3.0, 4.0, 5.0]);
    ok!(sparse, "cusparseCreateCsr"; &mut made, 3_i64, 4_i64, 5_i64, starts, columns, values, INDEX, INDEX, 0, DATA);
    (made, values)
}

/// Products in a stream, with descriptors that are kept and others that are made for each product, and scalars on both
/// sides.
pub fn products() {
    begin();
    let sparse = open();
    let (handle, stream) = (create(&sparse), new_stream());
    ok!(sparse, "cusparseSetStream"; handle, stream);
    let [at_x, at_y] = [upload(&[0.0; 4]), upload(&[0.0; 3])];
    let (a, values) = matrix(&sparse);
    let (x, y) = (vector(&sparse, 4, at_x), vector(&sparse, 3, at_y));
    let [on_device, also] = [upload(&[2.0]), upload(&[-1.0])];
    for round in 0..8 {
        let xs = [0, 1, 2, 3].map(|at| f64::from(at + round));
        let ys = [1.5, 2.5, 3.5];
        write(at_x, &xs);
        write(at_y, &ys);
        let (alpha, beta) = (2.0_f64, -1.0_f64);
        let is_on_device = round % 2 == 1;
        ok!(sparse, "cusparseSetPointerMode"; handle, i32::from(is_on_device));
        let [at_alpha, at_beta] = match is_on_device {
            true => [on_device, also],
            false => [&raw const alpha as u64, &raw const beta as u64],
        };
        let is_new = round % 4 > 1;
        let (a, x) = match is_new {
            true => (matrix(&sparse).0, vector(&sparse, 4, at_x)),
            false => (a, x),
        };
        let mut bytes = 0_usize;
        ok!(sparse, "cusparseSpMV_bufferSize"; handle, 0, at_alpha, a, x, at_beta, y, DATA, 0, &mut bytes);
        let buffer = upload(&vec![0_u8; bytes]);
        ok!(sparse, "cusparseSpMV"; handle, 0, at_alpha, a, x, at_beta, y, DATA, 0, buffer);
        if is_new {
            ok!(sparse, "cusparseDestroySpMat"; a);
            ok!(sparse, "cusparseDestroyDnVec"; x);
        }
        let found = download::<f64>(at_y, 3);
        for (row, found) in found.into_iter().enumerate() {
            let sum: f64 = ROWS[row].iter().zip(xs).map(|(a, x)| a * x).sum();
            assert_eq!(found, 2.0 * sum - ys[row], "round {round}");
        }
    }
    // Other values in the same descriptor.
    let other = upload(&[10.0, 20.0, 30.0, 40.0, 50.0]);
    ok!(sparse, "cusparseSetPointerMode"; handle, 0);
    let (one, zero) = (1.0_f64, 0.0_f64);
    write(at_x, &[1.0; 4]);
    for (at, right) in [(other, [30.0, 30.0, 90.0]), (values, [3.0, 3.0, 9.0])] {
        ok!(sparse, "cusparseSpMatSetValues"; a, at);
        ok!(sparse, "cusparseSpMV"; handle, 0, &one, a, x, &zero, y, DATA, 0, upload(&[0_u8; 128]));
        assert_eq!(download::<f64>(at_y, 3), right);
    }
    let (mut at_b, mut at_c) = (null_mut::<c_void>(), null_mut::<c_void>());
    let c = upload(&[0.0; 6]);
    let b: Vec<f64> = (0..8).map(f64::from).collect();
    ok!(sparse, "cusparseCreateDnMat"; &mut at_b, 4_i64, 2_i64, 4_i64, upload(&b), DATA, 1);
    ok!(sparse, "cusparseCreateDnMat"; &mut at_c, 3_i64, 2_i64, 3_i64, c, DATA, 1);
    ok!(sparse, "cusparseSpMM"; handle, 0, 0, &one, a, at_b, &zero, at_c, DATA, 0, upload(&[0_u8; 128]));
    let sums = b
        .chunks(4)
        .flat_map(|of| ROWS.map(|row| row.iter().zip(of).map(|(a, b)| a * b).sum::<f64>()));
    assert_eq!(download::<f64>(c, 6), sums.collect::<Vec<_>>());
    ok!(sparse, "cusparseDestroy"; handle);
}

/// Queries of descriptors and of results, at host addresses.
pub fn values() {
    begin();
    let sparse = open();
    let handle = create(&sparse);
    let (a, at_values) = matrix(&sparse);
    let (mut rows, mut columns, mut count) = (0_i64, 0_i64, 0_i64);
    ok!(sparse, "cusparseSpMatGetSize"; a, &mut rows, &mut columns, &mut count);
    assert_eq!((rows, columns, count), (3, 4, 5));
    let ([mut starts, mut at, mut values], [mut wide, mut also, mut base, mut data]) =
        ([0_u64; 3], [9_i32; 4]);
    ok!(sparse, "cusparseCsrGet"; a, &mut rows, &mut columns, &mut count, &mut starts, &mut at, &mut values, &mut wide, &mut also, &mut base, &mut data);
    assert_eq!(
        (values, wide, also, base, data),
        (at_values, INDEX, INDEX, 0, DATA)
    );
    for set in [1_i32, 0, 1] {
        let mut told = 7_i32;
        ok!(sparse, "cusparseSpMatSetAttribute"; a, 0, &set, 4_usize);
        ok!(sparse, "cusparseSpMatGetAttribute"; a, 0, &mut told, 4_usize);
        assert_eq!(told, set);
    }

    let mut described = null_mut::<c_void>();
    ok!(sparse, "cusparseCreateMatDescr"; &mut described);
    for (part, value) in [
        ("Type", 2),
        ("FillMode", 1),
        ("DiagType", 1),
        ("IndexBase", 1),
        ("Type", 0),
    ] {
        ok!(sparse, format!("cusparseSetMat{part}"); described, value);
        assert_eq!(
            call!(sparse, format!("cusparseGetMat{part}"); described),
            value as u32
        );
    }
    assert_eq!(
        call!(sparse, "cusparseSetMatType"; described, 9),
        INVALID_VALUE
    );
    assert_eq!(call!(sparse, "cusparseGetMatType"; described), 0);
    ok!(sparse, "cusparseDestroyMatDescr"; described);

    // A scalar product, and a sum with scalars whose type no argument names.
    let mut x = null_mut::<c_void>();
    ok!(sparse, "cusparseCreateSpVec"; &mut x, 4_i64, 2_i64, upload(&[1, 3]), upload(&[2.0, 5.0]), INDEX, 0, DATA);
    let at_y = upload(&[1.0, 10.0, 100.0, 1000.0]);
    let y = vector(&sparse, 4, at_y);
    let (mut sum, one, two) = (0.0_f64, 1.0_f64, 2.0_f64);
    ok!(sparse, "cusparseSpVV"; handle, 0, x, y, &mut sum, DATA, upload(&[0_u8; 128]));
    assert_eq!(sum, 5020.0);
    ok!(sparse, "cusparseAxpby"; handle, &two, x, &one, y);
    assert_eq!(download::<f64>(at_y, 4), [1.0, 14.0, 100.0, 1010.0]);
    ok!(sparse, "cusparseSetPointerMode"; handle, 1);
    let result = upload(&[0.0]);
    ok!(sparse, "cusparseSpVV"; handle, 0, x, y, result, DATA, upload(&[0_u8; 128]));
    ok!(sparse, "cusparseAxpby"; handle, upload(&[two]), x, upload(&[one]), y);
    assert_eq!(download::<f64>(result, 1), [5078.0]);
    assert_eq!(download::<f64>(at_y, 4), [1.0, 18.0, 100.0, 1020.0]);
    ok!(sparse, "cusparseSetPointerMode"; handle, 0);

    // Sizes that are read and written: A times its transpose. This A has no fill mode, which is for triangular solvers.
    let (a, _) = matrix(&sparse);
    let (mut b, mut c, mut product) = (
        null_mut::<c_void>(),
        null_mut::<c_void>(),
        null_mut::<c_void>(),
    );
    let [starts, indices] = [upload(&[0, 2, 3, 4, 5]), upload(&[0, 2, 2, 0, 1])];
    let numbers = upload(&[1.0, 4.0, 5.0, 2.0, 3.0]);
    ok!(sparse, "cusparseCreateCsr"; &mut b, 4_i64, 3_i64, 5_i64, starts, indices, numbers, INDEX, INDEX, 0, DATA);
    let c_starts = upload(&[0; 4]);
    ok!(sparse, "cusparseCreateCsr"; &mut c, 3_i64, 3_i64, 0_i64, c_starts, 0_u64, 0_u64, INDEX, INDEX, 0, DATA);
    ok!(sparse, "cusparseSpGEMM_createDescr"; &mut product);
    let zero = 0.0_f64;
    for name in ["cusparseSpGEMM_workEstimation", "cusparseSpGEMM_compute"] {
        let mut bytes = 0_usize;
        ok!(sparse, name; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product, &mut bytes, 0_u64);
        assert!(bytes > 0, "{name}");
        let (buffer, mut none) = (upload(&vec![0_u8; bytes]), 0_usize);
        // NVIDIA's library may assume that a buffer has the size that it asked for.
        if !on_gpu() {
            assert_eq!(
                call!(sparse, name; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product, &mut none, buffer),
                INVALID_VALUE
            );
        }
        ok!(sparse, name; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product, &mut bytes, buffer);
    }
    ok!(sparse, "cusparseSpMatGetSize"; c, &mut rows, &mut columns, &mut count);
    assert_eq!((rows, count), (3, 5));
    let [at, found] = [upload(&[0; 5]), upload(&[0.0; 5])];
    ok!(sparse, "cusparseCsrSetPointers"; c, c_starts, at, found);
    ok!(sparse, "cusparseSpGEMM_copy"; handle, 0, 0, &one, a, b, &zero, c, DATA, 0, product);
    assert_eq!(download::<i32>(c_starts, 4), [0, 2, 3, 5]);
    // The columns of a row may be in any order.
    let (at, found) = (download::<i32>(at, 5), download::<f64>(found, 5));
    let mut elements: Vec<(usize, i32, f64)> = [0, 0, 1, 2, 2]
        .into_iter()
        .zip(at)
        .zip(found)
        .map(|((row, column), value)| (row, column, value))
        .collect();
    elements.sort_by_key(|(row, column, _)| (*row, *column));
    let right = [
        (0, 0, 5.0),
        (0, 2, 4.0),
        (1, 1, 9.0),
        (2, 0, 4.0),
        (2, 2, 41.0),
    ];
    assert_eq!(elements, right);
    ok!(sparse, "cusparseSpGEMM_destroyDescr"; product);
    ok!(sparse, "cusparseDestroy"; handle);
}

/// Waits for the thread's posts. A call that was refused meanwhile is reported once.
fn settle() {
    // SAFETY: it takes nothing.
    unsafe { cudarc::driver::sys::cuCtxSynchronize() };
}

/// Descriptors of other classes, destroyed ones, also while another thread computes with them, and invalid sizes.
pub fn wrong() {
    begin();
    let sparse = open();
    let handle = create(&sparse);
    let (a, _) = matrix(&sparse);
    let [at_x, at_y] = [upload(&[1.0; 4]), upload(&[0.0; 3])];
    let (x, y) = (vector(&sparse, 4, at_x), vector(&sparse, 3, at_y));
    let (one, zero) = (1.0_f64, 0.0_f64);
    let buffer = upload(&[0_u8; 128]);
    let multiply = |a: Object, x: Object| call!(sparse, "cusparseSpMV"; handle, 0, &one, a, x, &zero, y, DATA, 0, buffer);
    assert_eq!(multiply(a, x), 0);
    for none in [
        x,
        y,
        handle,
        null_mut(),
        at_x as Object,
        (a as usize + 0x100) as Object,
        usize::MAX as Object,
    ] {
        assert_eq!(multiply(none, x), INVALID_VALUE, "{none:?}");
        assert_eq!(
            multiply(a, if none == x { a } else { none }),
            INVALID_VALUE,
            "{none:?}"
        );
        let mut sizes = [0_i64; 3];
        let [rows, columns, count] = &mut sizes;
        assert_eq!(
            call!(sparse, "cusparseSpMatGetSize"; none, rows, columns, count),
            INVALID_VALUE
        );
    }
    for none in [a, null_mut(), 0x40 as Object] {
        assert_eq!(
            call!(sparse, "cusparseSpMV"; none, 0, &one, a, x, &zero, y, DATA, 0, buffer),
            NOT_INITIALIZED
        );
    }
    // An invalid type of scalars, and scalars without an address.
    assert_eq!(
        call!(sparse, "cusparseSpMV"; handle, 0, &one, a, x, &zero, y, 77, 0, buffer),
        INVALID_VALUE
    );
    assert_eq!(
        call!(sparse, "cusparseSpMV"; handle, 0, 0_u64, a, x, &zero, y, DATA, 0, buffer),
        INVALID_VALUE
    );
    let mut made = null_mut::<c_void>();
    for (rows, columns, count) in [
        (-1_i64, 4_i64, 0_i64),
        (3, i64::MIN, 0),
        (3, 4, 13),
        (3, 4, -1),
        (3, 4, i64::MAX),
    ] {
        let said = call!(sparse, "cusparseCreateCsr"; &mut made, rows, columns, count, at_x, at_x, at_x, INDEX, INDEX, 0, DATA);
        assert_eq!(said, INVALID_VALUE, "{rows} {columns} {count}");
    }
    let value = [0_u8; 4096];
    for size in [0_usize, 3, 5, 1025, usize::MAX] {
        let said = call!(sparse, "cusparseSpMatSetAttribute"; a, 0, value.as_ptr(), size);
        assert_eq!(said, INVALID_VALUE, "{size}");
    }
    assert_eq!(
        call!(sparse, "cusparseSpMMOp"; null_mut::<c_void>()),
        NOT_SUPPORTED
    );

    // Each product uses its matrix, or is refused, in an unknown order.
    let [by, of_x, to_y] = [handle, x, y].map(|object| object as usize);
    for _ in 0..40 {
        let shared = matrix(&sparse).0 as usize;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin();
                for _ in 0..4 {
                    call!(sparse, "cusparseSpMV"; by, 0, &one, shared, of_x, &zero, to_y, DATA, 0, buffer);
                }
                settle();
            });
            scope.spawn(|| {
                begin();
                ok!(sparse, "cusparseDestroySpMat"; shared);
                settle();
            });
        });
        assert_eq!(multiply(shared as Object, x), INVALID_VALUE);
    }
    settle();
    assert_eq!(multiply(a, x), 0);
    assert_eq!(download::<f64>(at_y, 3), [3.0, 3.0, 9.0]);
    ok!(sparse, "cusparseDestroy"; handle);
    assert_eq!(multiply(a, x), NOT_INITIALIZED);
    // As with NVIDIA's library, also for an object that was never made.
    for name in [
        "cusparseDestroySpMat",
        "cusparseDestroyDnVec",
        "cusparseDestroy",
    ] {
        ok!(sparse, name; std::ptr::null_mut::<c_void>());
    }
}
