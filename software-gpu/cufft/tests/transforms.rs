// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Transforms through the C interface, against sums in double precision.
#![allow(missing_docs)]

use std::ffi::c_int;
use std::ptr::{null, null_mut};

use gpgpu_stand_in::{call, ok, testing::Libraries};
use num_complex::Complex;

type C32 = Complex<f32>;
type C64 = Complex<f64>;

static LIBRARIES: Libraries = Libraries::new("libsoftware_cufft.so");

const C2C: c_int = 0x29;
const R2C: c_int = 0x2a;
const C2R: c_int = 0x2c;
const Z2Z: c_int = 0x69;

/// Numbers that differ from each other.
fn number(i: usize) -> f64 {
    ((i * 37 + 11) % 23) as f64 / 4.0 - 2.5
}

/// A one-dimensional transform by its definition.
fn slow(data: &[C64], sign: f64) -> Vec<C64> {
    let n = data.len();
    let term = |from: usize, to: usize| {
        let turns = ((from * to) % n) as f64 / n as f64;
        data[from] * C64::from_polar(1.0, sign * turns * std::f64::consts::TAU)
    };
    (0..n)
        .map(|to| (0..n).map(|from| term(from, to)).sum())
        .collect()
}

#[track_caller]
fn assert_close(found: &[C64], expected: &[C64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).norm() < tolerance, "at {at}: {a} is not {b}");
    }
}

fn wide(of: &[C32]) -> Vec<C64> {
    of.iter()
        .map(|x| C64::new(x.re.into(), x.im.into()))
        .collect()
}

fn complex(count: usize) -> Vec<C32> {
    (0..count)
        .map(|i| C32::new(number(i) as f32, number(i + 7) as f32))
        .collect()
}

#[test]
fn batches_are_transformed_there_and_back() {
    LIBRARIES.enter();
    let (n, batch) = (30, 3);
    let data = complex(n * batch);
    let address = LIBRARIES.upload(&data);
    let mut plan: c_int = 0;
    ok!(LIBRARIES, "cufftPlan1d"; &mut plan, n as c_int, C2C, batch as c_int);
    ok!(LIBRARIES, "cufftExecC2C"; plan, address, address, -1);
    let spectrum = wide(&LIBRARIES.download::<C32>(address, n * batch));
    for (found, data) in spectrum.chunks(n).zip(data.chunks(n)) {
        assert_close(found, &slow(&wide(data), -1.0), 1e-3);
    }
    ok!(LIBRARIES, "cufftExecC2C"; plan, address, address, 1);
    let again = wide(&LIBRARIES.download::<C32>(address, n * batch));
    let expected: Vec<_> = wide(&data).iter().map(|x| x * n as f64).collect();
    assert_close(&again, &expected, 1e-3);
    ok!(LIBRARIES, "cufftDestroy"; plan);
    assert_eq!(
        call!(LIBRARIES, "cufftExecC2C"; plan, address, address, 1),
        1
    );
    assert_eq!(call!(LIBRARIES, "cufftDestroy"; plan), 1);
}

#[test]
fn real_numbers_have_half_a_spectrum_also_in_place() {
    LIBRARIES.enter();
    let (rows, n) = (4_usize, 10_usize);
    let real: Vec<f32> = (0..rows * n).map(|i| number(i) as f32).collect();
    // In place the rows have room for the spectrum.
    let padded: Vec<f32> = real
        .chunks(n)
        .flat_map(|row| [row, &[f32::NAN; 2]].concat())
        .collect();
    let (from, to) = (
        LIBRARIES.upload(&real),
        LIBRARIES.allocate(8 * rows * (n / 2 + 1)),
    );
    let place = LIBRARIES.upload(&padded);
    let (mut there, mut back): (c_int, c_int) = (0, 0);
    ok!(LIBRARIES, "cufftPlan2d"; &mut there, rows as c_int, n as c_int, R2C);
    ok!(LIBRARIES, "cufftPlan2d"; &mut back, rows as c_int, n as c_int, C2R);
    ok!(LIBRARIES, "cufftExecR2C"; there, from, to);
    ok!(LIBRARIES, "cufftExecR2C"; there, place, place);
    let count = rows * (n / 2 + 1);
    let outside = wide(&LIBRARIES.download::<C32>(to, count));
    let inside = wide(&LIBRARIES.download::<C32>(place, count));
    assert_close(&inside, &outside, 1e-6);
    // The sum of all is the first of the spectrum.
    let sum: f64 = real.iter().map(|x| f64::from(*x)).sum();
    assert_close(&outside[..1], &[C64::new(sum, 0.0)], 1e-3);
    ok!(LIBRARIES, "cufftExecC2R"; back, place, place);
    ok!(LIBRARIES, "cufftExecC2R"; back, to, from);
    let outside = LIBRARIES.download::<f32>(from, rows * n);
    let inside = LIBRARIES.download::<f32>(place, rows * (n + 2));
    for (row, real) in real.chunks(n).enumerate() {
        for (column, real) in real.iter().enumerate() {
            let (a, b) = (outside[row * n + column], inside[row * (n + 2) + column]);
            let expected = real * (rows * n) as f32;
            assert!((a - expected).abs() < 1e-3 && (b - expected).abs() < 1e-3);
        }
    }
    // The wrong function for the plan.
    assert_ne!(call!(LIBRARIES, "cufftExecC2C"; there, from, to, 1), 0);
}

#[test]
fn embedded_data_is_found_and_all_else_is_left_alone() {
    LIBRARIES.enter();
    // Columns of a matrix, each a transform.
    let (n, columns) = (6_usize, 5_usize);
    let data: Vec<C64> = (0..n * columns)
        .map(|i| C64::new(number(i), number(i + 3)))
        .collect();
    let (from, to) = (
        LIBRARIES.upload(&data),
        LIBRARIES.upload(&vec![C64::new(-9.0, 9.0); n * columns]),
    );
    let mut plan: c_int = 0;
    ok!(LIBRARIES, "cufftCreate"; &mut plan);
    ok!(LIBRARIES, "cufftSetAutoAllocation"; plan, 0);
    let sizes = [n as i64];
    let mut work = 0_usize;
    // The last column stays as it is.
    ok!(
        LIBRARIES, "cufftMakePlanMany64"; plan, 1, sizes.as_ptr(), sizes.as_ptr(), columns as i64, 1_i64, sizes.as_ptr(),
        columns as i64, 1_i64, Z2Z, columns as i64 - 1, &mut work
    );
    let mut again = 0_usize;
    ok!(LIBRARIES, "cufftGetSize"; plan, &mut again);
    assert!(work > 0 && work == again);
    assert_eq!(
        call!(LIBRARIES, "cufftExecZ2Z"; plan, from, to, -1),
        13,
        "it has no work area"
    );
    let area = LIBRARIES.allocate(work);
    ok!(LIBRARIES, "cufftSetWorkArea"; plan, area);
    ok!(LIBRARIES, "cufftXtExec"; plan, from, to, -1);
    let found = LIBRARIES.download::<C64>(to, n * columns);
    let column = |of: &[C64], at: usize| -> Vec<C64> {
        of.iter().skip(at).step_by(columns).copied().collect()
    };
    for at in 0..columns - 1 {
        assert_close(&column(&found, at), &slow(&column(&data, at), -1.0), 1e-9);
    }
    assert_close(
        &column(&found, columns - 1),
        &[C64::new(-9.0, 9.0); 6],
        1e-12,
    );
}

#[test]
fn an_invalid_transform_is_refused() {
    LIBRARIES.enter();
    let mut plan: c_int = 0;
    let sizes = [4_i32; 1000];
    let many = |plan: *mut c_int, rank: c_int, kind: c_int, batch: c_int| {
        call!(
            LIBRARIES, "cufftPlanMany"; plan, rank, sizes.as_ptr(), null::<c_int>(), 1, 1, null::<c_int>(), 1, 1, kind, batch
        )
    };
    assert_eq!(many(null_mut(), 1, C2C, 1), 4);
    for rank in [0, -1, 4, 1000] {
        assert_eq!(many(&mut plan, rank, C2C, 1), 4, "{rank}");
    }
    assert_eq!(many(&mut plan, 1, 0, 1), 3);
    assert_eq!(many(&mut plan, 1, C2C, 0), 8);
    assert_eq!(many(&mut plan, 3, C2C, c_int::MAX), 8);
    for name in [-1, 0, 12345, c_int::MIN] {
        assert_eq!(call!(LIBRARIES, "cufftDestroy"; name), 1);
        assert_eq!(call!(LIBRARIES, "cufftExecC2C"; name, 1_u64, 1_u64, 1), 1);
    }
    ok!(LIBRARIES, "cufftCreate"; &mut plan);
    assert_eq!(
        call!(LIBRARIES, "cufftXtExec"; plan, 256_u64, 256_u64, 1),
        1
    );
}
