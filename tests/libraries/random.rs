// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that use cuRAND: through cudarc's safe wrapper, and by its symbols.

use std::ptr::null_mut;

use cudarc::{
    curand::{CudaRng, result::CurandError, sys::curandStatus},
    driver::{CudaContext, DevicePtr},
};

use crate::calls::{call, ok, open};

const LIBRARY: &str = "libcurand.so.10";
/// The variable with another name of the host's library, for its tables.
pub const HOSTS: &str = "VIRTIO_GPGPU_TEST_HOSTS_CURAND";

/// Statuses of cuRAND.
const NOT_INITIALIZED: u32 = 101;
const TYPE_ERROR: u32 = 103;
const OUT_OF_RANGE: u32 = 104;
const NOT_SUPPORTED: u32 = 204;

const XORWOW: i32 = 101;
const PHILOX: i32 = 161;

const COUNT: usize = 20_000;

#[track_caller]
fn assert_moments(values: &[f64], mean: f64, deviation: f64) {
    let count = values.len() as f64;
    let found = values.iter().sum::<f64>() / count;
    let squares = values.iter().map(|x| (x - found).powi(2)).sum::<f64>() / count;
    let near = 5.0 * deviation / count.sqrt();
    assert!((found - mean).abs() < near, "mean {found} of {mean}");
    let deviates = (squares.sqrt() / deviation - 1.0).abs();
    assert!(deviates < 0.1, "{} of {deviation}", squares.sqrt());
}

/// Comparing the first numbers is enough.
#[track_caller]
fn assert_same(found: &[f32], right: &[f32], what: &str) {
    let (few, others) = (&found[..12], &right[..12]);
    assert!(found == right, "{what}: {few:?} and not {others:?}");
}

#[track_caller]
fn assert_unlike(found: &[f32], other: &[f32], what: &str) {
    assert!(found != other, "{what}: {:?}", &found[..12]);
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

/// Distributions, and repeatable numbers.
pub fn wrapper() {
    let context = CudaContext::new(0).unwrap();
    for stream in [context.default_stream(), context.new_stream().unwrap()] {
        let mut generator = CudaRng::new(7, stream.clone()).unwrap();
        let mut single = stream.alloc_zeros::<f32>(COUNT).unwrap();
        let mut double = stream.alloc_zeros::<f64>(COUNT).unwrap();
        generator.fill_with_uniform(&mut single).unwrap();
        let first = stream.clone_dtoh(&single).unwrap();
        assert!(first.iter().all(|x| 0.0 < *x && *x <= 1.0));
        assert_moments(&wide(&first), 0.5, 1.0 / 12_f64.sqrt());
        generator.fill_with_normal(&mut single, 3.0, 2.0).unwrap();
        assert_moments(&wide(&stream.clone_dtoh(&single).unwrap()), 3.0, 2.0);
        generator.fill_with_normal(&mut double, -1.0, 0.5).unwrap();
        assert_moments(&stream.clone_dtoh(&double).unwrap(), -1.0, 0.5);
        generator
            .fill_with_log_normal(&mut double, 1.0, 0.25)
            .unwrap();
        let logs = stream.clone_dtoh(&double).unwrap();
        let logs: Vec<f64> = logs.into_iter().map(f64::ln).collect();
        assert_moments(&logs, 1.0, 0.25);

        let mut from = |seed: Option<u64>, offset: Option<u64>| {
            seed.into_iter()
                .for_each(|seed| generator.set_seed(seed).unwrap());
            let offset = offset.into_iter();
            offset.for_each(|offset| generator.set_offset(offset).unwrap());
            generator.fill_with_uniform(&mut single).unwrap();
            stream.clone_dtoh(&single).unwrap()
        };
        // A seed alone does not change the position in the sequence.
        assert_unlike(&from(Some(7), None), &first, "without an offset");
        assert_same(&from(Some(7), Some(0)), &first, "again");
        assert_unlike(&from(Some(8), Some(0)), &first, "another seed");
        assert_same(&from(Some(7), Some(0)), &first, "the first seed");
        let behind = from(None, Some(5));
        assert_same(&behind[..COUNT - 5], &first[5..], "behind the first five");

        // Normal numbers are generated in pairs.
        let mut odd = stream.alloc_zeros::<f32>(3).unwrap();
        let said = generator.fill_with_normal(&mut odd, 0.0, 1.0);
        let status = curandStatus::CURAND_STATUS_LENGTH_NOT_MULTIPLE;
        assert_eq!(said, Err(CurandError(status)));
    }
}

/// By symbols: numbers in host memory, tables, and refused calls.
pub fn symbols() {
    let curand = open(LIBRARY);
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    let create = |for_host: bool, kind: i32| {
        let mut generator = null_mut::<u8>();
        match for_host {
            true => ok!(curand, curandCreateGeneratorHost(&mut generator, kind)),
            false => ok!(curand, curandCreateGenerator(&mut generator, kind)),
        }
        ok!(curand, curandSetPseudoRandomGeneratorSeed(generator, 3_u64));
        generator
    };
    // A host generator's numbers are those of the GPU.
    let (here, there) = (create(true, PHILOX), create(false, PHILOX));
    let mut numbers = vec![0_u32; COUNT];
    let device = stream.alloc_zeros::<u32>(COUNT).unwrap();
    let (address, _sync) = device.device_ptr(&stream);
    for lambda in [2.0_f64, 300.0] {
        ok!(curand, curandGenerate(here, numbers.as_mut_ptr(), COUNT));
        ok!(curand, curandGenerate(there, address, COUNT));
        assert_eq!(numbers, stream.clone_dtoh(&device).unwrap());
        ok!(
            curand,
            curandGeneratePoisson(here, numbers.as_mut_ptr(), COUNT, lambda)
        );
        ok!(curand, curandGeneratePoisson(there, address, COUNT, lambda));
        assert_eq!(numbers, stream.clone_dtoh(&device).unwrap());
        let counts: Vec<f64> = numbers.iter().copied().map(f64::from).collect();
        assert_moments(&counts, lambda, lambda.sqrt());
    }
    assert_eq!(
        call!(curand, curandGenerate(here, null_mut::<u32>(), COUNT)),
        OUT_OF_RANGE
    );
    assert_eq!(
        call!(curand, curandSetGeneratorOrdering(here, 104)),
        OUT_OF_RANGE
    );
    ok!(curand, curandSetGeneratorOrdering(there, 104));

    // Two threads, each with its own generator.
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                context.bind_to_thread().unwrap();
                let generator = create(true, XORWOW);
                let mut numbers = vec![0.0_f64; 1000];
                for _ in 0..20 {
                    let at = numbers.as_mut_ptr();
                    ok!(
                        curand,
                        curandGenerateNormalDouble(generator, at, 1000_usize, 5.0_f64, 2.0_f64)
                    );
                    assert_moments(&numbers, 5.0, 2.0);
                }
                ok!(curand, curandDestroyGenerator(generator));
            });
        }
    });

    for generator in [here, there] {
        ok!(curand, curandDestroyGenerator(generator));
        for none in [generator, null_mut(), 0x19c as *mut u8, 8 as *mut u8] {
            assert_eq!(call!(curand, curandDestroyGenerator(none)), NOT_INITIALIZED);
            assert_eq!(
                call!(curand, curandGenerate(none, address, 4_usize)),
                NOT_INITIALIZED
            );
        }
    }
    let mut none = null_mut::<u8>();
    assert_eq!(
        call!(curand, curandCreateGenerator(&mut none, 7)),
        TYPE_ERROR
    );
    assert_eq!(
        call!(
            curand,
            curandCreateGeneratorHost(null_mut::<*mut u8>(), XORWOW)
        ),
        OUT_OF_RANGE
    );
    assert_eq!(
        call!(curand, curandCreatePoissonDistribution(2.0_f64, &mut none)),
        NOT_SUPPORTED
    );
    tables();
}

/// A table that a library returns.
fn table(library: &libloading::Library, set: i32, bytes: usize) -> Option<Vec<u8>> {
    let mut at = null_mut::<u8>();
    let said = match set {
        32 => call!(library, curandGetScrambleConstants32(&mut at)),
        64 => call!(library, curandGetScrambleConstants64(&mut at)),
        101 | 102 => call!(library, curandGetDirectionVectors32(&mut at, set)),
        _ => call!(library, curandGetDirectionVectors64(&mut at, set)),
    };
    // SAFETY: the table has so many bytes, by NVIDIA's documentation.
    (said == 0).then(|| unsafe { std::slice::from_raw_parts(at, bytes) }.to_vec())
}

/// The tables are those of the host's library.
fn tables() {
    let (guests, hosts) = (open(LIBRARY), open(&std::env::var(HOSTS).unwrap()));
    let sizes = [
        (32, 4),
        (64, 8),
        (101, 32 * 4),
        (102, 32 * 4),
        (103, 64 * 8),
        (104, 64 * 8),
    ];
    for (set, bytes) in sizes {
        let [ours, theirs] = [&guests, &hosts].map(|of| table(of, set, 20_000 * bytes));
        assert!(ours.is_some() && ours == theirs, "{set}");
    }
    let mut none = null_mut::<u8>();
    assert_eq!(
        call!(guests, curandGetDirectionVectors32(&mut none, 103)),
        OUT_OF_RANGE
    );
    assert_eq!(
        call!(guests, curandGetDirectionVectors64(&mut none, -1)),
        OUT_OF_RANGE
    );
}
