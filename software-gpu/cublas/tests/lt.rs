// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuBLASLt: products with an epilogue, transformations, and the questions about algorithms.

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use common::*;
use half::{bf16, f16};

const INVALID_VALUE: c_int = 7;
const NOT_SUPPORTED: c_int = 15;

type Raw = usize;

/// The numbers of a type: data, compute, scale.
trait Typed: Number {
    const DATA: c_int;
    const COMPUTE: c_int;
    type Scale: Number;
}

macro_rules! typed {
    ($($t:ty: $data:literal $compute:literal $scale:ty;)*) => {$(
        impl Typed for $t {
            const DATA: c_int = $data;
            const COMPUTE: c_int = $compute;
            type Scale = $scale;
        }
    )*};
}
typed! {
    f32: 0 68 f32;
    f64: 1 70 f64;
    f16: 2 68 f32;
    bf16: 14 68 f32;
}

fn scale_type<T: Typed>() -> c_int {
    match T::COMPUTE {
        70 => 1,
        _ => 0,
    }
}

fn operation<T: Typed>() -> Raw {
    let mut raw: Raw = 0;
    ok!("cublasLtMatmulDescCreate"; &mut raw, T::COMPUTE, scale_type::<T>());
    raw
}

fn layout(data: c_int, rows: usize, columns: usize, leading: usize) -> Raw {
    let mut raw: Raw = 0;
    ok!("cublasLtMatrixLayoutCreate"; &mut raw, data, rows as u64, columns as u64, leading as i64);
    raw
}

fn preference() -> Raw {
    let mut raw: Raw = 0;
    ok!("cublasLtMatmulPreferenceCreate"; &mut raw);
    raw
}

fn set<T: Copy>(kind: &str, raw: Raw, number: c_int, value: T) {
    let name = format!("cublasLt{kind}SetAttribute");
    ok!(&name; raw, number, &raw const value, size_of::<T>());
}

fn stream() -> *mut c_void {
    let mut stream = null_mut::<c_void>();
    ok!("cuStreamCreate"; &mut stream, 1u32);
    stream
}

#[derive(Clone, Copy)]
struct Algorithm([u64; 8]);

#[derive(Clone, Copy)]
#[repr(C)]
struct Found {
    algorithm: Algorithm,
    workspace: usize,
    state: c_int,
    waves: f32,
    reserved: [c_int; 4],
}

const NOTHING: Found = Found {
    algorithm: Algorithm([0; 8]),
    workspace: 99,
    state: 99,
    waves: 0.0,
    reserved: [0; 4],
};

fn heuristic(handle: Handle, operation: Raw, layouts: [Raw; 4]) -> (c_int, Found) {
    let (mut found, mut count) = (NOTHING, 0);
    let [a, b, c, d] = layouts;
    let (name, pref) = ("cublasLtMatmulAlgoGetHeuristic", preference());
    let status = call!(name; handle, operation, a, b, c, d, pref, 1, &mut found, &mut count);
    assert_eq!(count, c_int::from(status == 0));
    (status, found)
}

/// The shape of the tests' products: `m` rows, `n` columns, sums of `k`.
const SHAPE: [usize; 3] = [5, 4, 6];

fn epilogue(value: C64, bias: C64, epilogue: u32) -> C64 {
    let x = value.re + if epilogue & 4 != 0 { bias.re } else { 0.0 };
    let y = match epilogue & !5 {
        2 => x.max(0.0),
        32 => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        _ => x,
    };
    C64::new(y, 0.0)
}

fn products<T: Typed>() {
    let handle = handle();
    let stream = stream();
    let [m, n, k] = SHAPE;
    let bias: Vec<T> = numbers(9, m);
    let bias_at = upload(&bias);
    let (one, half) = (
        T::Scale::new(C64::new(0.5, 0.0)),
        T::Scale::new(C64::new(0.25, 0.0)),
    );
    for (transposed, which, beta) in [
        ([0, 0], 1_u32, 0.25),
        ([1, 0], 4, 0.0),
        ([0, 1], 6, 0.25),
        ([1, 1], 2, 0.25),
        ([0, 0], 32, 0.25),
        ([1, 0], 36, 0.0),
    ] {
        let stored = |by: c_int, rows, columns| {
            if by == 1 {
                (columns, rows)
            } else {
                (rows, columns)
            }
        };
        let (a_shape, b_shape) = (stored(transposed[0], m, k), stored(transposed[1], k, n));
        let a = Matrix::<T>::new(1, a_shape.0, a_shape.1);
        let b = Matrix::<T>::new(2, b_shape.0, b_shape.1);
        let c = Matrix::<T>::new(3, m, n);
        let d = Matrix::<T>::of(&vec![poison::<T>(); m * n], m, n);
        let of = operation::<T>();
        set("MatmulDesc", of, 3, transposed[0]);
        set("MatmulDesc", of, 4, transposed[1]);
        set("MatmulDesc", of, 7, which);
        set("MatmulDesc", of, 8, bias_at);
        let layouts = [&a, &b, &c, &d].map(|of| layout(T::DATA, of.rows, of.columns, of.leading));
        let (status, found) = heuristic(handle, of, layouts);
        assert_eq!((status, found.state, found.workspace), (0, 0, 0));
        let zero = T::Scale::new(C64::default());
        let factor = if beta == 0.0 { &zero } else { &half };
        let [la, lb, lc, ld] = layouts;
        ok!("cublasLtMatmul"; handle, of, &one, a.address, la, b.address, lb, factor, c.address, lc,
            d.address, ld, &found.algorithm, 0u64, 0usize, stream);
        ok!("cuStreamSynchronize"; stream);
        let expected = |row, column| {
            let sum = |i| a.op(transposed[0], row, i) * b.op(transposed[1], i, column);
            let sum: C64 = (0..k).map(sum).sum();
            epilogue(
                0.5 * sum + beta * c.at(row, column),
                bias[row].value(),
                which,
            )
        };
        d.assert_is(expected, &format!("{transposed:?} {which}"));
    }
}

#[test]
fn products_have_an_epilogue() {
    products::<f32>();
    products::<f64>();
    products::<f16>();
    products::<bf16>();
}

#[test]
fn batches_are_a_stride_apart_and_rows_may_come_first() {
    let handle = handle();
    let [m, n, k] = SHAPE;
    let (batches, one, zero) = (3, 1_f32, 0_f32);
    let a: Vec<f32> = numbers(1, m * k * batches);
    let b: Vec<f32> = numbers(2, k * n);
    let bias: Vec<f32> = numbers(3, m * batches);
    let (at_a, at_b, at_bias) = (upload(&a), upload(&b), upload(&bias));
    let at_d = alloc(4 * m * n * batches);
    let of = operation::<f32>();
    set("MatmulDesc", of, 7, 4_u32);
    set("MatmulDesc", of, 8, at_bias);
    set("MatmulDesc", of, 10, m as i64);
    // A by rows, B by columns and the same in each, D by rows.
    let layouts = [layout(0, m, k, k), layout(0, k, n, k), layout(0, m, n, n)];
    for (raw, stride) in layouts.into_iter().zip([m * k, 0, m * n]) {
        set("MatrixLayout", raw, 5, batches as c_int);
        set("MatrixLayout", raw, 6, stride as i64);
    }
    set("MatrixLayout", layouts[0], 1, 1);
    set("MatrixLayout", layouts[2], 1, 1);
    let [la, lb, ld] = layouts;
    ok!("cublasLtMatmul"; handle, of, &one, at_a, la, at_b, lb, &zero, at_d, ld, at_d, ld,
        null_mut::<c_void>(), 0u64, 0usize, null_mut::<c_void>());
    let found: Vec<f32> = download(at_d, m * n * batches);
    for batch in 0..batches {
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            let sum = |i| a[batch * m * k + row * k + i] * b[column * k + i];
            let expected = (0..k).map(sum).sum::<f32>() + bias[batch * m + row];
            let place = batch * m * n + row * n + column;
            assert_close(found[place], C64::new(expected.into(), 0.0), "batch");
        }
    }
}

#[test]
fn scalars_may_be_on_the_device() {
    let handle = handle();
    let scalars = upload(&[3_f32, 0.0]);
    let (a, d) = (Matrix::<f32>::new(1, 4, 4), Matrix::<f32>::new(2, 4, 4));
    let of = operation::<f32>();
    set("MatmulDesc", of, 2, 1);
    let (la, ld) = (layout(0, 4, 4, a.leading), layout(0, 4, 4, d.leading));
    ok!("cublasLtMatmul"; handle, of, scalars, a.address, la, a.address, la, scalars + 4, d.address, ld,
        d.address, ld, null_mut::<c_void>(), 0u64, 0usize, null_mut::<c_void>());
    let product = |row, column| -> C64 { (0..4).map(|i| a.at(row, i) * a.at(i, column)).sum() };
    d.assert_is(|row, column| 3.0 * product(row, column), "device");
}

#[test]
fn unsupported_or_mismatched_products_are_refused() {
    let handle = handle();
    let memory = alloc(4096);
    let one = 1_f32;
    let multiply = |of: Raw, layouts: [Raw; 4], algorithm: *const Algorithm| {
        let [a, b, c, d] = layouts;
        call!("cublasLtMatmul"; handle, of, &one, memory, a, memory, b, &one, memory, c, memory, d,
            algorithm, 0u64, 0usize, null_mut::<c_void>())
    };
    let good = layout(0, 4, 4, 4);
    let of = operation::<f32>();
    let none = std::ptr::null();
    assert_eq!(multiply(of, [good; 4], none), 0);
    for (layouts, status) in [
        ([good, good, good, layout(0, 4, 5, 4)], INVALID_VALUE),
        ([good, layout(0, 5, 4, 5), good, good], INVALID_VALUE),
        ([layout(0, 4, 4, 3), good, good, good], INVALID_VALUE),
        ([layout(1, 4, 4, 4), good, good, good], NOT_SUPPORTED),
        ([layout(28, 4, 4, 4); 4], NOT_SUPPORTED),
        ([of; 4], INVALID_VALUE),
        ([0; 4], INVALID_VALUE),
    ] {
        assert_eq!(multiply(of, layouts, none), status);
        assert_eq!(heuristic(handle, of, layouts).0, status);
    }
    let garbage = Algorithm([0x1234; 8]);
    assert_eq!(multiply(of, [good; 4], &garbage), NOT_SUPPORTED);
    for (number, value, status) in [
        (2, 9, INVALID_VALUE),
        (2, 3, NOT_SUPPORTED),
        (3, 9, INVALID_VALUE),
        (7, 130, NOT_SUPPORTED),
        // A bias, and none.
        (7, 4, INVALID_VALUE),
        (31, 1, NOT_SUPPORTED),
    ] {
        let of = operation::<f32>();
        set("MatmulDesc", of, number, value);
        assert_eq!(multiply(of, [good; 4], none), status, "{number} {value}");
    }
    let mut word = 0_u32;
    let name = "cublasLtMatmulDescGetAttribute";
    assert_eq!(
        call!(name; of, 9, &mut word, 4usize, null_mut::<c_void>()),
        INVALID_VALUE
    );
    assert_eq!(
        call!(name; of, 7, &mut word, 8usize, null_mut::<c_void>()),
        INVALID_VALUE
    );
    ok!("cublasLtMatmulDescDestroy"; of);
    assert_eq!(call!("cublasLtMatmulDescDestroy"; of), INVALID_VALUE);
    assert_eq!(multiply(of, [good; 4], none), INVALID_VALUE);
}

#[test]
fn algorithms_are_told_checked_and_set() {
    let handle = handle();
    let (of, good) = (operation::<f32>(), layout(0, 4, 4, 4));
    let (mut ids, mut count) = ([0; 4], 0);
    ok!("cublasLtMatmulAlgoGetIds"; handle, 68, 0, 0, 0, 0, 0, 4, &mut ids, &mut count);
    assert_eq!((ids[0], count), (1, 1));
    let mut algorithm = Algorithm([0; 8]);
    ok!("cublasLtMatmulAlgoInit"; handle, 68, 0, 0, 0, 0, 0, ids[0], &mut algorithm);
    assert_eq!(heuristic(handle, of, [good; 4]).1.algorithm.0, algorithm.0);
    let wrong = call!("cublasLtMatmulAlgoInit"; handle, 68, 0, 0, 0, 0, 0, 7, &mut algorithm);
    assert_eq!(wrong, INVALID_VALUE);

    let (mut tiles, mut written) = ([0_u32; 8], 0_usize);
    let name = "cublasLtMatmulAlgoCapGetAttribute";
    ok!(name; &algorithm, 6, null_mut::<c_void>(), 0usize, &mut written);
    assert_eq!(written, 8);
    ok!(name; &algorithm, 6, &mut tiles, 32usize, &mut written);
    assert_eq!((tiles[..3].to_vec(), written), (vec![15, 20, 0], 8));
    ok!("cublasLtMatmulAlgoConfigSetAttribute"; &mut algorithm, 1, &20_u32, 4usize);
    let mut tile = 0_u32;
    let name = "cublasLtMatmulAlgoConfigGetAttribute";
    ok!(name; &algorithm, 1, &mut tile, 4usize, null_mut::<c_void>());
    assert_eq!(tile, 20);
    assert_eq!(
        call!(name; &algorithm, 7, &mut tile, 4usize, null_mut::<c_void>()),
        INVALID_VALUE
    );

    let mut found = NOTHING;
    let name = "cublasLtMatmulAlgoCheck";
    ok!(name; handle, of, good, good, good, good, &algorithm, &mut found);
    assert_eq!(
        (found.state, found.workspace, found.algorithm.0),
        (0, 0, [0; 8])
    );
    let garbage = Algorithm([1; 8]);
    let status = call!(name; handle, of, good, good, good, good, &garbage, &mut found);
    assert_eq!(status, INVALID_VALUE);
}

#[test]
fn matrices_are_copied_in_another_order() {
    let handle = handle();
    let (two, one) = (2_f32, 1_f32);
    let (a, b) = (Matrix::<f32>::new(1, 4, 3), Matrix::<f32>::new(2, 3, 4));
    let at = alloc(4 * 12);
    let mut of: Raw = 0;
    ok!("cublasLtMatrixTransformDescCreate"; &mut of, 0);
    set("MatrixTransformDesc", of, 2, 1);
    let out = layout(0, 3, 4, 4);
    set("MatrixLayout", out, 1, 1);
    let (la, lb) = (layout(0, 4, 3, a.leading), layout(0, 3, 4, b.leading));
    ok!("cublasLtMatrixTransform"; handle, of, &two, a.address, la, &one, b.address, lb, at, out, null_mut::<c_void>());
    let found: Vec<f32> = download(at, 12);
    for (row, column) in (0..3).flat_map(|row| (0..4).map(move |column| (row, column))) {
        let expected = 2.0 * a.at(column, row) + b.at(row, column);
        assert_close(found[row * 4 + column], expected, "transformed");
    }
    let none = (0_u64, 0_usize);
    ok!("cublasLtMatrixTransform"; handle, of, &two, a.address, la, &one, none.0, none.1, at, out, null_mut::<c_void>());
    let found: Vec<f32> = download(at, 12);
    assert_close(found[4], 2.0 * a.at(0, 1), "alone");
    let wrong = call!("cublasLtMatrixTransform"; handle, of, &two, b.address, lb, &one, none.0, none.1, at, out, null_mut::<c_void>());
    assert_eq!(wrong, INVALID_VALUE);
}

#[test]
fn a_handle_of_either_library_is_one_of_the_other() {
    let blas = handle();
    let mut lt: Handle = null_mut();
    ok!("cublasLtCreate"; &mut lt);
    let (of, good) = (operation::<f32>(), layout(0, 4, 4, 4));
    assert_eq!(heuristic(blas, of, [good; 4]).0, 0);
    assert_eq!(heuristic(lt, of, [good; 4]).0, 0);
    ok!("cublasLtDestroy"; lt);
    assert_eq!(heuristic(lt, of, [good; 4]).0, 1);
}
