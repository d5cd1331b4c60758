// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Random numbers through the C interface: how they are distributed, and that they are the same again.
#![allow(missing_docs)]

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use gpgpu_stand_in::{call, ok, testing::Libraries};

static LIBRARIES: Libraries = Libraries::new("libsoftware_curand.so");

const XORWOW: c_int = 101;
const MT19937: c_int = 142;
const PHILOX: c_int = 161;

fn generator(kind: c_int, seed: u64) -> *mut c_void {
    LIBRARIES.enter();
    let mut generator = null_mut::<c_void>();
    ok!(LIBRARIES, "curandCreateGenerator"; &mut generator, kind);
    ok!(LIBRARIES, "curandSetPseudoRandomGeneratorSeed"; generator, seed);
    generator
}

fn words(generator: *mut c_void, count: usize) -> Vec<u32> {
    let address = LIBRARIES.allocate(4 * count);
    ok!(LIBRARIES, "curandGenerate"; generator, address, count);
    LIBRARIES.download(address, count)
}

#[track_caller]
fn assert_moments(values: &[f64], mean: f64, deviation: f64) {
    let count = values.len() as f64;
    let found = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|x| (x - found).powi(2)).sum::<f64>() / count;
    // Five standard deviations of the mean of this number of values.
    let near = 5.0 * deviation / count.sqrt();
    assert!((found - mean).abs() < near, "mean {found} of {mean}");
    assert!(
        (squares.sqrt() / deviation - 1.0).abs() < 0.05,
        "{} of {deviation}",
        squares.sqrt()
    );
}

#[test]
fn numbers_are_distributed_as_asked_for() {
    let generator = generator(XORWOW, 7);
    const COUNT: usize = 100_000;
    let address = LIBRARIES.allocate(8 * COUNT);
    let single = || -> Vec<f64> {
        let values = LIBRARIES.download::<f32>(address, COUNT);
        values.into_iter().map(f64::from).collect()
    };
    let double = || LIBRARIES.download::<f64>(address, COUNT);
    let uniform = 1.0 / 12.0_f64.sqrt();
    ok!(LIBRARIES, "curandGenerateUniform"; generator, address, COUNT);
    assert!(single().iter().all(|x| 0.0 < *x && *x <= 1.0));
    assert_moments(&single(), 0.5, uniform);
    ok!(LIBRARIES, "curandGenerateUniformDouble"; generator, address, COUNT);
    assert_moments(&double(), 0.5, uniform);
    ok!(LIBRARIES, "curandGenerateNormal"; generator, address, COUNT, 3.0_f32, 2.0_f32);
    assert_moments(&single(), 3.0, 2.0);
    ok!(LIBRARIES, "curandGenerateNormalDouble"; generator, address, COUNT, -1.0_f64, 0.5_f64);
    assert_moments(&double(), -1.0, 0.5);
    ok!(LIBRARIES, "curandGenerateLogNormal"; generator, address, COUNT, 1.0_f32, 0.25_f32);
    let logs: Vec<_> = single().into_iter().map(f64::ln).collect();
    assert_moments(&logs, 1.0, 0.25);
    ok!(LIBRARIES, "curandGenerateLogNormalDouble"; generator, address, COUNT, 1.0_f64, 0.25_f64);
    let logs: Vec<_> = double().into_iter().map(f64::ln).collect();
    assert_moments(&logs, 1.0, 0.25);
    for lambda in [0.5, 40.0, 5000.0] {
        ok!(LIBRARIES, "curandGeneratePoisson"; generator, address, COUNT, lambda);
        let counts = LIBRARIES.download::<u32>(address, COUNT);
        let counts: Vec<_> = counts.into_iter().map(f64::from).collect();
        assert_moments(&counts, lambda, lambda.sqrt());
    }
}

#[test]
fn a_seed_and_an_offset_determine_the_numbers() {
    let all = words(generator(PHILOX, 1), 200_000);
    assert_eq!(words(generator(PHILOX, 1), 200_000), all);
    assert_ne!(words(generator(PHILOX, 2), 100), all[..100]);
    assert_ne!(words(generator(XORWOW, 1), 100), all[..100]);
    let again = generator(PHILOX, 1);
    // In two calls as in one.
    assert_eq!(words(again, 7), all[..7]);
    assert_eq!(words(again, 100), all[7..107]);
    ok!(LIBRARIES, "curandSetGeneratorOffset"; again, 150_000_u64);
    assert_eq!(words(again, 10), all[150_000..150_010]);
    // A seed alone does not change the offset.
    ok!(LIBRARIES, "curandSetPseudoRandomGeneratorSeed"; again, 1_u64);
    assert_eq!(words(again, 10), all[150_010..150_020]);
    ok!(LIBRARIES, "curandSetGeneratorOffset"; again, 0_u64);
    assert_eq!(words(again, 10), all[..10]);
    let twister = generator(MT19937, 1);
    let first = words(twister, 10);
    ok!(LIBRARIES, "curandSetPseudoRandomGeneratorSeed"; twister, 1_u64);
    assert_eq!(words(twister, 10), first);
}

#[test]
fn unsupported_numbers_are_refused() {
    let made = generator(MT19937, 1);
    let address = LIBRARIES.allocate(64);
    let normal = |count: usize| call!(LIBRARIES, "curandGenerateNormal"; made, address, count, 0.0_f32, 1.0_f32);
    assert_eq!(normal(3), 105);
    assert_eq!(normal(0), 0);
    assert_eq!(
        call!(LIBRARIES, "curandSetGeneratorOffset"; made, 1_u64),
        103
    );
    assert_eq!(
        call!(LIBRARIES, "curandGeneratePoisson"; made, address, 4_usize, -1.0_f64),
        104
    );
    assert_eq!(
        call!(LIBRARIES, "curandGenerate"; made, 0_u64, 4_usize),
        104
    );
    let mut other = null_mut::<c_void>();
    for kind in [0, 7, 201, -1] {
        assert_eq!(
            call!(LIBRARIES, "curandCreateGenerator"; &mut other, kind),
            103
        );
    }
    ok!(LIBRARIES, "curandDestroyGenerator"; made);
    for name in [made, null_mut(), 0x1000 as *mut c_void] {
        assert_eq!(call!(LIBRARIES, "curandDestroyGenerator"; name), 101);
        assert_eq!(
            call!(LIBRARIES, "curandGenerate"; name, address, 4_usize),
            101
        );
    }
}

#[test]
fn tables_stay_where_they_are() {
    LIBRARIES.enter();
    let mut tables = [null_mut::<u32>(); 2];
    for table in &mut tables {
        ok!(LIBRARIES, "curandGetDirectionVectors32"; table, 101);
    }
    assert_eq!(tables[0], tables[1]);
    // SAFETY: the table has 20,000 times 32 words.
    let last = unsafe { tables[0].add(20_000 * 32 - 1).read() };
    assert_ne!(last, 0);
    assert_eq!(
        call!(LIBRARIES, "curandGetDirectionVectors32"; &mut tables[0], 103),
        104
    );
}
