// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Guest programs that use cuFFT: through cudarc's safe wrapper, and by its symbols.

use std::{
    f64::consts::TAU,
    ptr::{null, null_mut},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

use cudarc::{
    cufft::{CudaFft, FftDirection, sys},
    driver::{
        CudaContext, CudaStream, DevicePtr, DevicePtrMut,
        result::{free_sync, malloc_sync, mem_get_info},
    },
};

use crate::calls::{call, ok, open};

const LIBRARY: &str = "libcufft.so.12";

/// Results of cuFFT.
const INVALID_PLAN: u32 = 1;
const ALLOC_FAILED: u32 = 2;
const INVALID_VALUE: u32 = 4;
const NOT_SUPPORTED: u32 = 16;

const C2C: i32 = 0x29;
const FORWARD: i32 = -1;
const INVERSE: i32 = 1;

/// A sequence of different numbers.
fn number(at: usize) -> f64 {
    ((at * 37 + 11) % 23) as f64 / 4.0 - 2.5
}

/// A transform by its definition, with pairs of real and imaginary parts.
fn slow(data: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let n = data.len();
    let sum = |to: usize| {
        let mut sum = [0.0; 2];
        for (from, [re, im]) in data.iter().enumerate() {
            let (sin, cos) = (-TAU * ((from * to) % n) as f64 / n as f64).sin_cos();
            sum[0] += re * cos - im * sin;
            sum[1] += re * sin + im * cos;
        }
        sum
    };
    (0..n).map(sum).collect()
}

#[track_caller]
fn assert_close(found: &[[f64; 2]], expected: &[[f64; 2]]) {
    assert_eq!(found.len(), expected.len());
    for (at, (a, b)) in found.iter().zip(expected).enumerate() {
        let is_close = (a[0] - b[0]).abs() < 1e-3 && (a[1] - b[1]).abs() < 1e-3;
        assert!(is_close, "at {at}: {a:?} is not {b:?}");
    }
}

fn wide(of: &[f32]) -> Vec<[f64; 2]> {
    let pairs = of.chunks_exact(2);
    pairs.map(|pair| [pair[0].into(), pair[1].into()]).collect()
}

/// cudarc's type for pairs of numbers.
fn pairs(values: &[f32]) -> Vec<sys::float2> {
    let pairs = values.chunks_exact(2);
    pairs
        .map(|pair| sys::float2 {
            x: pair[0],
            y: pair[1],
        })
        .collect()
}

fn parts(pairs: &[sys::float2]) -> Vec<f32> {
    pairs.iter().flat_map(|pair| [pair.x, pair.y]).collect()
}

/// Forward and inverse transforms, complex in batches and real.
pub fn wrapper() {
    let context = CudaContext::new(0).unwrap();
    for stream in [context.default_stream(), context.new_stream().unwrap()] {
        for (n, batch) in [(1, 1), (8, 3), (30, 2), (127, 1)] {
            let values: Vec<f32> = (0..2 * n * batch).map(|at| number(at) as f32).collect();
            let plan = CudaFft::plan_1d(
                n as i32,
                sys::cufftType::CUFFT_C2C,
                batch as i32,
                stream.clone(),
            )
            .unwrap();
            let mut from = stream.clone_htod(&pairs(&values)).unwrap();
            let mut to = stream.clone_htod(&pairs(&values)).unwrap();
            plan.exec_c2c(&mut from, &mut to, FftDirection::Forward)
                .unwrap();
            let found = parts(&stream.clone_dtoh(&to).unwrap());
            for (found, data) in found.chunks(2 * n).zip(values.chunks(2 * n)) {
                assert_close(&wide(found), &slow(&wide(data)));
            }
            plan.exec_c2c(&mut to, &mut from, FftDirection::Inverse)
                .unwrap();
            let again = parts(&stream.clone_dtoh(&from).unwrap());
            let scaled: Vec<f32> = values.iter().map(|value| value * n as f32).collect();
            assert_close(&wide(&again), &wide(&scaled));
        }
        real(&stream);
    }
}

/// A two-dimensional real transform, and its inverse.
fn real(stream: &Arc<CudaStream>) {
    let (rows, columns) = (6, 10);
    let values: Vec<f32> = (0..rows * columns).map(|at| number(at) as f32).collect();
    let plan = |kind| CudaFft::plan_2d(rows as i32, columns as i32, kind, stream.clone()).unwrap();
    let (there, back) = (
        plan(sys::cufftType::CUFFT_R2C),
        plan(sys::cufftType::CUFFT_C2R),
    );
    let mut data = stream.clone_htod(&values).unwrap();
    let half = vec![sys::float2 { x: 0.0, y: 0.0 }; rows * (columns / 2 + 1)];
    let mut spectrum = stream.clone_htod(&half).unwrap();
    there.exec_r2c(&data, &mut spectrum).unwrap();
    let first = stream.clone_dtoh(&spectrum).unwrap()[0];
    let sum: f32 = values.iter().sum();
    assert!((first.x - sum).abs() < 1e-3 && first.y.abs() < 1e-3);
    back.exec_c2r(&mut spectrum, &mut data).unwrap();
    let again = stream.clone_dtoh(&data).unwrap();
    let count = (rows * columns) as f32;
    for (found, value) in again.iter().zip(&values) {
        assert!((found / count - value).abs() < 1e-3, "{found} {value}");
    }
}

/// Settings, invalid plans, and sizes that no transform has.
pub fn settings() {
    let cufft = open(LIBRARY);
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    let garbage = [0, -1, 77, i32::MIN, i32::MAX];
    for plan in garbage {
        assert_eq!(call!(cufft, cufftDestroy(plan)), INVALID_PLAN);
        let none = null_mut::<u8>();
        assert_eq!(
            call!(cufft, cufftExecC2C(plan, none, none, FORWARD)),
            INVALID_PLAN
        );
        assert_eq!(call!(cufft, cufftSetStream(plan, none)), INVALID_PLAN);
    }
    let mut version = 0_i32;
    ok!(cufft, cufftGetVersion(&mut version));
    assert!(version >= 11_000, "{version}");
    assert_eq!(
        call!(cufft, cufftGetVersion(null_mut::<i32>())),
        INVALID_VALUE
    );

    // A rank or a batch that no transform has, and missing arrays.
    let sizes = [4_i32; 1000];
    let mut plan = -5_i32;
    let none = null::<i32>();
    let make = |plan: &mut i32, rank: i32, batch: i32| {
        let from = sizes.as_ptr();
        call!(
            cufft,
            cufftPlanMany(plan, rank, from, none, 1, 1, none, 1, 1, C2C, batch)
        )
    };
    for (rank, batch) in [(1000, 1), (-1, 1), (0, 1), (1, 0), (1, -7)] {
        let said = make(&mut plan, rank, batch);
        assert_ne!(said, 0, "rank {rank}, batch {batch}");
    }
    // They do not fit any GPU. NVIDIA's library checks the data's size only when the plan is executed.
    let mut vast = -5_i32;
    match make(&mut vast, 3, i32::MAX) {
        0 => ok!(cufft, cufftDestroy(vast)),
        said => assert_eq!(vast, -5, "refused with {said}"),
    }
    let said = call!(
        cufft,
        cufftPlanMany(&mut plan, 1, none, none, 1, 1, none, 1, 1, C2C, 1)
    );
    assert_ne!(said, 0);
    assert_eq!(plan, -5, "a plan that was not made has no number");

    // The program's own work area, and the library's answers for it. Short transforms need none.
    let n = 1_i32 << 20;
    ok!(cufft, cufftCreate(&mut plan));
    ok!(cufft, cufftSetAutoAllocation(plan, 0));
    let (mut bytes, mut again, mut estimate) = (0_usize, usize::MAX, usize::MAX);
    ok!(cufft, cufftMakePlan1d(plan, n, C2C, 2, &mut bytes));
    ok!(cufft, cufftGetSize(plan, &mut again));
    ok!(cufft, cufftEstimate1d(n, C2C, 2, &mut estimate));
    assert!(bytes > 0, "{bytes}");
    assert_eq!(again, bytes);
    assert_ne!(estimate, usize::MAX);
    if !crate::on_gpu() {
        // NVIDIA's library does not promise that its estimate is exact.
        assert_eq!(estimate, bytes);
    }
    assert_eq!(
        call!(cufft, cufftMakePlan1d(plan, n, C2C, 2, &mut bytes)),
        INVALID_PLAN,
        "it has its transform"
    );
    let values: Vec<f32> = (0..4 * n as usize).map(|at| number(at) as f32).collect();
    let data = stream.clone_htod(&values).unwrap();
    let area = stream.alloc_zeros::<u8>(bytes).unwrap();
    let (data_at, _sync) = data.device_ptr(&stream);
    let (mut area_at, _sync) = area.device_ptr(&stream);
    assert_ne!(
        call!(cufft, cufftXtExec(plan, data_at, data_at, FORWARD)),
        0
    );
    ok!(cufft, cufftXtSetWorkArea(plan, &mut area_at));
    ok!(cufft, cufftXtExec(plan, data_at, data_at, FORWARD));
    ok!(cufft, cufftXtExec(plan, data_at, data_at, INVERSE));
    let found = stream.clone_dtoh(&data).unwrap();
    let found: Vec<f32> = found.iter().map(|value| value / n as f32).collect();
    assert_close(&wide(&found), &wide(&values));
    ok!(cufft, cufftDestroy(plan));
    assert_eq!(
        call!(cufft, cufftXtExec(plan, data_at, data_at, FORWARD)),
        INVALID_PLAN
    );

    // Unsupported functions report an error.
    ok!(cufft, cufftCreate(&mut plan));
    let gpus = [0_i32, 1];
    assert_eq!(
        call!(cufft, cufftXtSetGPUs(plan, 2, gpus.as_ptr())),
        NOT_SUPPORTED
    );
    ok!(cufft, cufftXtSetGPUs(plan, 1, gpus.as_ptr()));
    let none = null_mut::<u8>();
    assert_eq!(
        call!(cufft, cufftXtSetCallback(plan, none, 0, none)),
        NOT_SUPPORTED
    );
    ok!(cufft, cufftDestroy(plan));
}

fn free_bytes() -> usize {
    mem_get_info().unwrap().0
}

/// A plan's work area is the guest's own memory.
pub fn memory() {
    let cufft = open(LIBRARY);
    let _context = CudaContext::new(0).unwrap();
    // Make the charges that occur only once.
    let mut plan = 0_i32;
    ok!(cufft, cufftPlan1d(&mut plan, 8, C2C, 1));
    let before = free_bytes();
    let (mut large, mut bytes) = (0_i32, 0_usize);
    ok!(cufft, cufftPlan1d(&mut large, 1 << 20, C2C, 4));
    ok!(cufft, cufftGetSize(large, &mut bytes));
    assert!(bytes > 0, "{bytes}");
    let taken = before.saturating_sub(free_bytes());
    assert!(taken >= bytes, "{taken} of {bytes}");
    ok!(cufft, cufftDestroy(large));
    let after = free_bytes();
    assert!(after + (1 << 20) >= before, "{after} and not {before}");
    // Half of the work area fits within the limit.
    let filled = (after - bytes / 2) & !((2 << 20) - 1);
    // SAFETY: nothing uses the memory.
    let filler = unsafe { malloc_sync(filled) }.unwrap();
    let rest = free_bytes();
    assert!(rest < bytes, "{rest} of {bytes}");
    let said = call!(cufft, cufftPlan1d(&mut large, 1 << 20, C2C, 4));
    assert_eq!(said, ALLOC_FAILED);
    let left = free_bytes();
    assert!(left + (1 << 20) >= rest, "{left} and not {rest}");
    // SAFETY: as above.
    unsafe { free_sync(filler) }.unwrap();
    ok!(cufft, cufftPlan1d(&mut large, 1 << 20, C2C, 4));
    ok!(cufft, cufftDestroy(large));
    ok!(cufft, cufftPlan1d(&mut large, 1 << 10, C2C, 1));
    ok!(cufft, cufftDestroy(large));
    ok!(cufft, cufftDestroy(plan));
}

/// One thread destroys a plan while another executes it.
pub fn race() {
    let cufft = &open(LIBRARY);
    let context = CudaContext::new(0).unwrap();
    let stream = context.default_stream();
    let n = 256_usize;
    let values: Vec<f32> = (0..2 * n).map(|at| number(at) as f32).collect();
    let mut data = stream.clone_htod(&values).unwrap();
    let (address, _sync) = data.device_ptr_mut(&stream);
    for _ in 0..50 {
        let mut plan = 0_i32;
        ok!(cufft, cufftPlan1d(&mut plan, n as i32, C2C, 1));
        let began = &AtomicBool::new(false);
        let context = &context;
        thread::scope(|scope| {
            scope.spawn(move || {
                context.bind_to_thread().unwrap();
                loop {
                    let said = call!(cufft, cufftExecC2C(plan, address, address, FORWARD));
                    began.store(true, Relaxed);
                    if said != 0 {
                        assert_eq!(said, INVALID_PLAN);
                        break;
                    }
                }
            });
            while !began.load(Relaxed) {
                thread::yield_now();
            }
            ok!(cufft, cufftDestroy(plan));
        });
    }
    drop(_sync);
    // Another plan still computes.
    let plan = CudaFft::plan_1d(n as i32, sys::cufftType::CUFFT_C2C, 1, stream.clone()).unwrap();
    let mut from = stream.clone_htod(&pairs(&values)).unwrap();
    let mut to = from.clone();
    plan.exec_c2c(&mut from, &mut to, FftDirection::Forward)
        .unwrap();
    let found = parts(&stream.clone_dtoh(&to).unwrap());
    assert_close(&wide(&found), &slow(&wide(&values)));
}
