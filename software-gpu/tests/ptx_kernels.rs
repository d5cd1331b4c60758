// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Compiled CUDA kernels (`ptx/kernels.cu`) on the executor, against results computed here.

#[path = "ptx/device.rs"]
mod device;

use device::{Device, Params, shape};
use software_gpu::exec::{FaultKind, Launch};

fn open() -> Device {
    match std::env::var("PTX_KERNELS") {
        Ok(p) => Device::new(&std::fs::read_to_string(p).unwrap(), 64 << 20),
        Err(_) => Device::new(include_str!("ptx/kernels.ptx"), 64 << 20),
    }
}

#[test]
fn vector_addition() {
    let mut d = open();
    let n = 200_003usize;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.37).collect();
    let b: Vec<f32> = (0..n).map(|i| 1.0 / (i + 1) as f32).collect();
    let (pa, pb, pc) = (d.put(&a), d.put(&b), d.put(&vec![0f32; n]));
    let p = Params::new().add(pa).add(pb).add(pc).add(n as i32);
    d.launch("vector_add", &shape(n.div_ceil(256) as u32, 256), &p)
        .unwrap();
    let c: Vec<f32> = d.get(pc, n);
    for i in 0..n {
        assert_eq!(c[i], a[i] + b[i], "element {i}");
    }
}

#[test]
fn tiled_matrix_multiplication() {
    let mut d = open();
    let n = 160usize;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 17) as f32 - 8.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 13) as f32 * 0.5).collect();
    let (pa, pb, pc) = (d.put(&a), d.put(&b), d.put(&vec![0f32; n * n]));
    let p = Params::new()
        .add(pc)
        .add(pa)
        .add(pb)
        .add(n as i32)
        .add(n as i32);
    let l = Launch {
        grid: [10, 10, 1],
        block: [16, 16, 1],
        ..Launch::default()
    };
    d.launch("matmul16", &l, &p).unwrap();
    let c: Vec<f32> = d.get(pc, n * n);
    for y in 0..n {
        for x in 0..n {
            let want = (0..n).fold(0f32, |s, k| a[y * n + k].mul_add(b[k * n + x], s));
            assert_eq!(c[y * n + x], want, "row {y} column {x}");
        }
    }
}

#[test]
fn black_scholes_is_close_to_double_precision() {
    let mut d = open();
    let n = 100_000usize;
    let s: Vec<f32> = (0..n)
        .map(|i| 5.0 + 25.0 * (i % 1000) as f32 / 1000.0)
        .collect();
    let x: Vec<f32> = (0..n)
        .map(|i| 1.0 + 99.0 * (i % 777) as f32 / 777.0)
        .collect();
    let t: Vec<f32> = (0..n)
        .map(|i| 0.25 + 9.75 * (i % 333) as f32 / 333.0)
        .collect();
    let zero = vec![0f32; n];
    let (pc, pp) = (d.put(&zero), d.put(&zero));
    let (ps, px, pt) = (d.put(&s), d.put(&x), d.put(&t));
    let p = Params::new().add(pc).add(pp).add(ps).add(px).add(pt);
    let p = p.add(0.02f32).add(0.3f32).add(n as i32);
    d.launch("black_scholes", &shape(n.div_ceil(128) as u32, 128), &p)
        .unwrap();
    let (call, put): (Vec<f32>, Vec<f32>) = (d.get(pc, n), d.get(pp, n));
    let cnd = |d: f64| {
        let k = 1.0 / (1.0 + 0.2316419 * d.abs());
        let poly = k
            * (0.31938153
                + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429))));
        let c = 0.398_942_280_401_432_7 * (-0.5 * d * d).exp() * poly;
        if d > 0.0 { 1.0 - c } else { c }
    };
    for i in 0..n {
        let (s, x, t) = (f64::from(s[i]), f64::from(x[i]), f64::from(t[i]));
        let (r, v) = (0.02f32 as f64, 0.3f32 as f64);
        let d1 = ((s / x).ln() + (r + 0.5 * v * v) * t) / (v * t.sqrt());
        let d2 = d1 - v * t.sqrt();
        let e = (-r * t).exp();
        let want = s * cnd(d1) - x * e * cnd(d2);
        assert!(
            (f64::from(call[i]) - want).abs() < 1e-4,
            "call {i}: {} for {want}",
            call[i]
        );
        let want = x * e * (1.0 - cnd(d2)) - s * (1.0 - cnd(d1));
        assert!(
            (f64::from(put[i]) - want).abs() < 1e-4,
            "put {i}: {} for {want}",
            put[i]
        );
    }
}

#[test]
fn shuffles_shared_memory_and_atomics_sum_a_grid() {
    let mut d = open();
    let n = 123_457usize;
    let v: Vec<i32> = (0..n as i32).map(|i| i % 1000 - 300).collect();
    let (pv, po) = (d.put(&v), d.put(&[0i32]));
    let p = Params::new().add(pv).add(po).add(n as i32);
    d.launch("block_reduce", &shape(n.div_ceil(512) as u32, 512), &p)
        .unwrap();
    assert_eq!(d.get::<i32>(po, 1)[0], v.iter().sum());
}

#[test]
fn lanes_that_leave_a_loop_at_different_times_meet_again() {
    let mut d = open();
    let n = 5000usize;
    let v: Vec<i32> = (1..=n as i32).collect();
    let (pv, po) = (d.put(&v), d.put(&vec![0i32; n]));
    let p = Params::new().add(pv).add(po).add(n as i32);
    d.launch("collatz", &shape(n.div_ceil(96) as u32, 96), &p)
        .unwrap();
    let got = d.get::<i32>(po, n);
    for i in 0..n {
        let (mut x, mut c) = (v[i] as u32, 0);
        while x != 1 {
            x = if x & 1 != 0 {
                x.wrapping_mul(3).wrapping_add(1)
            } else {
                x >> 1
            };
            c += 1;
            if c > 1000 {
                break;
            }
        }
        assert_eq!(got[i], c, "start {}", v[i]);
    }
}

#[test]
fn grid_sync_lets_all_blocks_progress() {
    let mut d = open();
    let (blocks, threads, rounds) = (24, 64, 5);
    let n = (blocks * threads) as usize;
    let (pa, po) = (d.put(&vec![0i32; n]), d.put(&[0i32]));
    let p = Params::new().add(pa).add(po).add(rounds);
    let l = Launch {
        cooperative: true,
        ..shape(blocks, threads)
    };
    d.launch("grid_sync", &l, &p).unwrap();
    assert_eq!(d.get::<i32>(pa, n), vec![rounds; n]);
    assert_eq!(d.get::<i32>(po, 1)[0], n as i32);
}

#[test]
fn a_grid_sync_without_a_cooperative_launch_traps() {
    let mut d = open();
    let (pa, po) = (d.put(&[0i32; 64]), d.put(&[0i32]));
    let p = Params::new().add(pa).add(po).add(1);
    let e = d.launch("grid_sync", &shape(2, 32), &p).unwrap_err();
    assert_eq!(e.kind, FaultKind::Trap);
    assert_eq!(e.kernel, "grid_sync");
}

#[test]
fn locks_taken_by_lanes_of_one_warp_do_not_hang() {
    for kernel in ["lock", "spinlock"] {
        let mut d = open();
        let (pl, pc) = (d.put(&[0i32]), d.put(&[0i32]));
        let p = Params::new().add(pl).add(pc);
        d.launch(kernel, &shape(2, 48), &p).unwrap();
        assert_eq!(d.get::<i32>(pc, 1)[0], 96, "{kernel}");
    }
}

#[test]
fn device_functions_and_double_precision_libm() {
    let mut d = open();
    let po = d.put(&[0f64; 64]);
    d.launch("calls", &shape(1, 64), &Params::new().add(po))
        .unwrap();
    for (t, &v) in d.get::<f64>(po, 64).iter().enumerate() {
        let x = t as f64;
        let want = if t & 1 != 0 {
            (0..t).fold(0.0, |r: f64, i| r.mul_add(0.5, i as f64))
        } else {
            x.sin() * (x * 1e6).cos() + (-x * 0.1).exp() + 1.1f64.powf(x)
        };
        assert!(
            (v - want).abs() <= 1e-12 * want.abs().max(1.0),
            "{t}: {v} for {want}"
        );
    }
}

#[test]
fn constants_initialisers_and_dynamic_shared_memory() {
    let mut d = open();
    let (po, pp) = (d.put(&[0f32; 128]), d.put(&[0i32]));
    let l = Launch {
        dynamic_shared_bytes: 512,
        ..shape(1, 128)
    };
    d.launch("constants", &l, &Params::new().add(po).add(pp))
        .unwrap();
    for (t, v) in d.get::<f32>(po, 128).into_iter().enumerate() {
        let s = 127 - t;
        assert_eq!(v, ((s & 3) + 1) as f32 * s as f32);
    }
    assert_eq!(d.get::<i32>(pp, 1)[0], 7);
    let (at, size) = d.module.global_address("counter").unwrap();
    assert_eq!((size, d.get::<i32>(at, 1)[0]), (4, 12));
}

#[test]
fn half_precision_arithmetic() {
    let mut d = open();
    // 1.0, 0.5, -2.0, 0.0999755859375
    let a = [0x3c00u16, 0x3800, 0xc000, 0x2e66];
    let (pa, po) = (d.put(&a), d.put(&[0f32; 4]));
    d.launch("halves", &shape(1, 4), &Params::new().add(pa).add(po))
        .unwrap();
    let x = [1.0f64, 0.5, -2.0, 0.099_975_585_937_5];
    for (t, v) in d.get::<f32>(po, 4).into_iter().enumerate() {
        let want = x[t] * x[t] + 1.5 + x[t].exp() + x[t] * x[t];
        assert!(
            (f64::from(v) - want).abs() < 2e-3 * want.abs(),
            "{t}: {v} for {want}"
        );
    }
}

#[test]
fn local_arrays_and_parameters_by_value() {
    let mut d = open();
    let po = d.put(&[0i32; 64]);
    d.launch("local_array", &shape(1, 64), &Params::new().add(po).add(20))
        .unwrap();
    for (t, v) in d.get::<i32>(po, 64).into_iter().enumerate() {
        let want: usize = (0..20).map(|i| ((i * 7 + t) & 63) * t).sum();
        assert_eq!(v, want as i32);
    }
    let big: [i32; 10] = std::array::from_fn(|i| i as i32 * 11);
    d.launch("by_value", &shape(1, 64), &Params::new().add(big).add(po))
        .unwrap();
    let want: Vec<i32> = (0..64).map(|t| t % 10 * 11).collect();
    assert_eq!(d.get::<i32>(po, 64), want);
}

#[test]
fn a_switch_sends_every_lane_its_own_way() {
    let mut d = open();
    let po = d.put(&[0i32; 64]);
    d.launch("switcher", &shape(1, 64), &Params::new().add(po))
        .unwrap();
    let want: Vec<i32> = (0..64)
        .map(|t| match t % 9 {
            0 => 11,
            1 => t * 3,
            2 => t ^ 77,
            3 => t << 3,
            4 => t / 3,
            5 => -t,
            6 => t % 5,
            7 => t | 64,
            _ => 1,
        })
        .collect();
    assert_eq!(d.get::<i32>(po, 64), want);
}

#[test]
fn cooperative_groups_tiles() {
    let mut d = open();
    let po = d.put(&[0i32; 64]);
    d.launch("tiles", &shape(1, 64), &Params::new().add(po))
        .unwrap();
    let want: Vec<i32> = (0..64)
        .map(|t| {
            let first = t / 8 * 8;
            (first..first + 8).sum::<i32>() + if t & 1 != 0 { 16_000 } else { 0 }
        })
        .collect();
    assert_eq!(d.get::<i32>(po, 64), want);
}

#[test]
fn an_illegal_store_is_reported_with_its_place() {
    let mut d = open();
    let po = d.put(&[0i32; 64]);
    let e = d
        .launch("out_of_bounds", &shape(1, 64), &Params::new().add(po))
        .unwrap_err();
    assert!(
        matches!(e.kind, FaultKind::IllegalAddress { len: 4, write: true, address } if address > po),
        "{e}"
    );
    assert_eq!(e.kernel, "out_of_bounds");
    assert!(e.line > 0 && e.thread[0] > 0, "{e}");
}
