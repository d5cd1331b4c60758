// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Single instructions on the executor, bit for bit against results computed here.

#[path = "ptx/device.rs"]
mod device;

use device::{Device, Params, shape};
use software_gpu::exec::{FaultKind, LoadError, LoadedModule};
use software_gpu::ptx;

/// A kernel that runs `body` in each of 32 lanes: `%a`, `%b`, `%c` (64 bits) are loaded from memory, and `%d` is
/// stored. The body can use the registers `%r`, `%f`, `%rd`, `%fd`, `%h`, `%p`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 pin, .param .u64 pout) {{\n\
         .reg .b64 %a, %b, %c, %d, %in, %out, %off; .reg .b32 %lane;\n\
         .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<16>; .reg .f64 %fd<16>; .reg .b16 %h<16>; .reg .pred %p<16>;\n\
         ld.param.u64 %in, [pin]; ld.param.u64 %out, [pout]; mov.u32 %lane, %tid.x;\n\
         mul.wide.u32 %off, %lane, 24; add.s64 %in, %in, %off; mul.wide.u32 %off, %lane, 8; add.s64 %out, %out, %off;\n\
         ld.global.u64 %a, [%in]; ld.global.u64 %b, [%in+8]; ld.global.u64 %c, [%in+16]; mov.u64 %d, 0;\n\
         cvt.u32.u64 %r1, %a; cvt.u32.u64 %r2, %b; cvt.u32.u64 %r3, %c;\n\
         mov.b32 %f1, %r1; mov.b32 %f2, %r2; mov.b32 %f3, %r3; mov.b64 %fd1, %a; mov.b64 %fd2, %b; mov.b64 %fd3, %c;\n\
         cvt.u16.u32 %h1, %r1; cvt.u16.u32 %h2, %r2; cvt.u16.u32 %h3, %r3;\n\
         {body}\n st.global.u64 [%out], %d; ret; }}\n"
    )
}

/// Ends of bodies: a 32-bit, single or 16-bit result, or a predicate, into `%d`.
const R: &str = "cvt.u64.u32 %d, %r0;";
const F: &str = "mov.b32 %r0, %f0; cvt.u64.u32 %d, %r0;";
const FD: &str = "mov.b64 %d, %fd0;";
const H: &str = "cvt.u64.u16 %d, %h0;";
const P: &str = "selp.u64 %d, 1, 0, %p0;";

/// Runs `body` on the inputs, 32 at a time, and compares.
fn check(body: &str, end: &str, inputs: &[[u64; 3]], want: impl Fn([u64; 3]) -> u64) {
    let mut d = Device::new(&kernel(&format!("{body} {end}")), 1 << 20);
    for chunk in inputs.chunks(32) {
        let pin = d.put(chunk.as_flattened());
        let pout = d.put(&[0u64; 32]);
        d.launch(
            "k",
            &shape(1, chunk.len() as u32),
            &Params::new().add(pin).add(pout),
        )
        .unwrap_or_else(|e| panic!("{body}: {e}"));
        for (i, got) in chunk.iter().zip(d.get::<u64>(pout, chunk.len())) {
            let want = want(*i);
            assert!(got == want, "{body} of {i:x?}: {got:#x}, not {want:#x}");
        }
    }
}

/// Pseudo-random words with the interesting ones among them.
fn words() -> Vec<[u64; 3]> {
    let edges = [
        0,
        1,
        2,
        31,
        32,
        33,
        0x7f,
        0x80,
        0xff,
        0x7fff,
        0x8000,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x7fff_ffff_ffff_ffff,
        0x8000_0000_0000_0000,
        u64::MAX,
    ];
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..320)
        .map(|k| {
            std::array::from_fn(|_| {
                let r = next();
                if k % 3 == 0 {
                    edges[(r % edges.len() as u64) as usize]
                } else {
                    r >> (r % 61)
                }
            })
        })
        .collect()
}

/// Single-precision triples: ordinary, tiny, huge, special.
fn singles() -> Vec<[u64; 3]> {
    let edges = [
        0u32,
        0x8000_0000,
        0x3f80_0000,
        0xbf80_0000,
        1,
        0x8000_0001,
        0x007f_ffff,
        0x0080_0000,
        0x7f7f_ffff,
        0xff7f_ffff,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x3eaa_aaab,
        0x4b00_0001,
    ];
    words()
        .into_iter()
        .enumerate()
        .map(|(k, w)| {
            w.map(|x| {
                let x = x.wrapping_mul(0x2545_f491_4f6c_dd1d);
                u64::from(match k % 4 {
                    0 => edges[(x >> 40) as usize % edges.len()],
                    1 => (x >> 32) as u32,
                    // Exponents close together, so that results are inexact.
                    _ => (x as u32 & 0x807f_ffff) | (0x3f00_0000 + (((x >> 40) as u32 % 16) << 23)),
                })
            })
        })
        .collect()
}

fn nan32(x: f32) -> u64 {
    u64::from(if x.is_nan() { 0x7fff_ffff } else { x.to_bits() })
}

fn nan64(x: f64) -> u64 {
    if x.is_nan() {
        0xfff8_0000_0000_0000
    } else {
        x.to_bits()
    }
}

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

#[test]
fn integer_arithmetic() {
    let w = words();
    let u = |x: u64| x as u32;
    let s = |x: u64| x as u32 as i32;
    let z = |x: u32| u64::from(x);
    check("add.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(u(a).wrapping_add(u(b)))
    });
    check("add.sat.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(s(a).saturating_add(s(b)) as u32)
    });
    check("sub.sat.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(s(a).saturating_sub(s(b)) as u32)
    });
    check("sub.u64 %d, %a, %b;", "", &w, |[a, b, _]| a.wrapping_sub(b));
    check("mul.lo.s64 %d, %a, %b;", "", &w, |[a, b, _]| {
        a.wrapping_mul(b)
    });
    check("mul.hi.u64 %d, %a, %b;", "", &w, |[a, b, _]| {
        ((u128::from(a) * u128::from(b)) >> 64) as u64
    });
    check("mul.hi.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(((i64::from(s(a)) * i64::from(s(b))) >> 32) as u32)
    });
    check("mul.wide.s32 %d, %r1, %r2;", "", &w, |[a, b, _]| {
        (i64::from(s(a)) * i64::from(s(b))) as u64
    });
    check("mad.wide.u32 %d, %r1, %r2, %c;", "", &w, |[a, b, c]| {
        (u64::from(u(a)) * u64::from(u(b))).wrapping_add(c)
    });
    check("mad.lo.s32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        z(u(a).wrapping_mul(u(b)).wrapping_add(u(c)))
    });
    check("mul24.lo.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(((s(a) << 8 >> 8) as i64 * (s(b) << 8 >> 8) as i64) as u32)
    });
    check("div.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        if s(b) == 0 {
            0xffff_ffff
        } else {
            z(s(a).wrapping_div(s(b)) as u32)
        }
    });
    check("rem.u64 %d, %a, %b;", "", &w, |[a, b, _]| {
        a.checked_rem(b).unwrap_or(a)
    });
    check("neg.s32 %r0, %r1;", R, &w, |[a, ..]| {
        z(s(a).wrapping_neg() as u32)
    });
    check("abs.s64 %d, %a;", "", &w, |[a, ..]| {
        (a as i64).wrapping_abs() as u64
    });
    check("min.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(s(a).min(s(b)) as u32)
    });
    check("max.u16 %h0, %h1, %h2;", H, &w, |[a, b, _]| {
        u64::from((a as u16).max(b as u16))
    });
    check("sad.s32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        z(u(c).wrapping_add(s(a).abs_diff(s(b))))
    });
    check(
        "add.cc.u32 %r4, %r1, %r2; addc.u32 %r0, %r3, 0;",
        R,
        &w,
        |[a, b, c]| z(u(c).wrapping_add(u32::from(u(a).checked_add(u(b)).is_none()))),
    );
    check(
        "sub.cc.u64 %rd1, %a, %b; subc.u64 %d, %c, 0;",
        "",
        &w,
        |[a, b, c]| c.wrapping_sub(u64::from(a < b)),
    );
    check(
        "mad.lo.cc.u32 %r4, %r1, %r2, %r3; madc.hi.u32 %r0, %r1, %r2, 0;",
        R,
        &w,
        |[a, b, c]| (u64::from(u(a)) * u64::from(u(b)) + u64::from(u(c))) >> 32,
    );
    check("dp4a.s32.u32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        let t: i32 = (0..4)
            .map(|k| i32::from((a >> (8 * k)) as i8) * i32::from((b >> (8 * k)) as u8))
            .sum();
        z(u(c).wrapping_add(t as u32))
    });
    check("dp2a.hi.u32.u32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        let t: u32 = (0..2)
            .map(|k| u32::from((a >> (16 * k)) as u16) * u32::from((b >> (16 + 8 * k)) as u8))
            .fold(0, u32::wrapping_add);
        z(u(c).wrapping_add(t))
    });
    check(
        "vabsdiff4.u32.u32.u32.add %r0, %r1, %r2, %r3;",
        R,
        &w,
        |[a, b, c]| {
            let t: u32 = (0..4)
                .map(|k| u32::from(((a >> (8 * k)) as u8).abs_diff((b >> (8 * k)) as u8)))
                .sum();
            z(u(c).wrapping_add(t))
        },
    );
}

#[test]
fn bits_and_fields() {
    let w = words();
    let u = |x: u64| x as u32;
    let z = |x: u32| u64::from(x);
    check("xor.b64 %d, %a, %b;", "", &w, |[a, b, _]| a ^ b);
    check("not.b32 %r0, %r1;", R, &w, |[a, ..]| z(!u(a)));
    check("lop3.b32 %r0, %r1, %r2, %r3, 0xE8;", R, &w, |[a, b, c]| {
        z(u((a & b) | (b & c) | (a & c)))
    });
    check("shl.b32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        z(u(a).checked_shl(u(b)).unwrap_or(0))
    });
    check("shr.s64 %d, %a, %r2;", "", &w, |[a, b, _]| {
        (a as i64 >> u(b).min(63)) as u64
    });
    check("shr.u16 %h0, %h1, %r2;", H, &w, |[a, b, _]| {
        if u(b) > 15 {
            0
        } else {
            u64::from(a as u16 >> u(b))
        }
    });
    check("shf.l.wrap.b32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        z(((u64::from(u(b)) << 32 | u64::from(u(a))) << (c & 31) >> 32) as u32)
    });
    check("shf.r.clamp.b32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        z(((u64::from(u(b)) << 32 | u64::from(u(a))) >> u(c).min(32)) as u32)
    });
    check("popc.b64 %r0, %a;", R, &w, |[a, ..]| z(a.count_ones()));
    check(
        "clz.b32 %r0, %r1;",
        R,
        &w,
        |[a, ..]| z(u(a).leading_zeros()),
    );
    check("brev.b64 %d, %a;", "", &w, |[a, ..]| a.reverse_bits());
    check("bfind.s32 %r0, %r1;", R, &w, |[a, ..]| {
        let v = a as i32;
        z(31u32.wrapping_sub((if v < 0 { !v } else { v }).leading_zeros()))
    });
    // Field by field as the PTX manual's own pseudocode puts it.
    check("bfe.s32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        let (pos, len) = ((b & 255) as u32, (c & 255) as u32);
        let sign = len != 0 && u(a) >> (pos + len - 1).min(31) & 1 != 0;
        z((0..32).fold(0, |d, i| {
            let bit = if i < len && pos + i <= 31 {
                u(a) >> (pos + i) & 1 != 0
            } else {
                sign
            };
            d | u32::from(bit) << i
        }))
    });
    check("bfi.b64 %d, %a, %b, %r3, 9;", "", &w, |[a, b, c]| {
        let pos = (c & 255) as u32;
        (0..9)
            .filter(|i| pos + i <= 63)
            .fold(b, |d, i| d & !(1 << (pos + i)) | (a >> i & 1) << (pos + i))
    });
    check("bmsk.clamp.b32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        let m = if u(b) >= 32 {
            u64::from(u32::MAX)
        } else {
            (1 << u(b)) - 1
        };
        z(m.checked_shl(u(a).min(32)).unwrap_or(0) as u32)
    });
    check("szext.wrap.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        match b & 31 {
            0 => 0,
            n => z(((u(a) << (32 - n)) as i32 >> (32 - n)) as u32),
        }
    });
    check("prmt.b32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        let all = u64::from(u(b)) << 32 | u64::from(u(a));
        z((0..4).fold(0, |r, k| {
            let sel = c >> (4 * k) & 15;
            let byte = (all >> (8 * (sel & 7))) as u8;
            let byte = if sel & 8 != 0 {
                ((byte as i8) >> 7) as u8
            } else {
                byte
            };
            r | u32::from(byte) << (8 * k)
        }))
    });
}

#[test]
fn comparisons_and_selections() {
    let w = words();
    check("setp.lt.s32 %p0, %r1, %r2;", P, &w, |[a, b, _]| {
        u64::from((a as i32) < (b as i32))
    });
    check("setp.hs.u64 %p0, %a, %b;", P, &w, |[a, b, _]| {
        u64::from(a >= b)
    });
    check(
        "setp.ne.u32 %p1, %r3, 0; setp.gt.and.u32 %p2|%p0, %r1, %r2, !%p1;",
        P,
        &w,
        |[a, b, c]| u64::from(a as u32 <= b as u32 && c as u32 == 0),
    );
    check("set.le.u32.s32 %r0, %r1, %r2;", R, &w, |[a, b, _]| {
        if a as i32 <= b as i32 { 0xffff_ffff } else { 0 }
    });
    check("slct.u32.s32 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        u64::from(if c as i32 >= 0 { a as u32 } else { b as u32 })
    });
    let s = singles();
    check("setp.lt.f32 %p0, %f1, %f2;", P, &s, |[a, b, _]| {
        u64::from(f(a) < f(b))
    });
    check("setp.geu.f32 %p0, %f1, %f2;", P, &s, |[a, b, _]| {
        u64::from(f(a) >= f(b) || f(a).is_nan() || f(b).is_nan())
    });
    check("setp.ne.f32 %p0, %f1, %f2;", P, &s, |[a, b, _]| {
        u64::from(f(a) < f(b) || f(a) > f(b))
    });
    check("setp.nan.f32 %p0, %f1, %f2;", P, &s, |[a, b, _]| {
        u64::from(f(a).is_nan() || f(b).is_nan())
    });
    check("testp.subnormal.f32 %p0, %f1;", P, &s, |[a, ..]| {
        u64::from(f(a).is_subnormal())
    });
}

#[test]
fn single_precision_in_all_roundings() {
    let s = singles();
    check("add.f32 %f0, %f1, %f2;", F, &s, |[a, b, _]| {
        nan32(f(a) + f(b))
    });
    check("fma.rn.f32 %f0, %f1, %f2, %f3;", F, &s, |[a, b, c]| {
        nan32(f(a).mul_add(f(b), f(c)))
    });
    check("div.rn.f32 %f0, %f1, %f2;", F, &s, |[a, b, _]| {
        nan32(f(a) / f(b))
    });
    check("sqrt.rn.f32 %f0, %f1;", F, &s, |[a, ..]| nan32(f(a).sqrt()));
    check("mul.sat.f32 %f0, %f1, %f2;", F, &s, |[a, b, _]| {
        let r = f(a) * f(b);
        u64::from(if r > 0.0 { r.min(1.0) } else { 0.0 }.to_bits())
    });
    let flush = |x: f32| {
        if x.is_subnormal() {
            0f32.copysign(x)
        } else {
            x
        }
    };
    check("add.ftz.f32 %f0, %f1, %f2;", F, &s, |[a, b, _]| {
        nan32(flush(flush(f(a)) + flush(f(b))))
    });
    check("min.f32 %f0, %f1, %f2;", F, &s, |[a, b, _]| {
        let (a, b) = (f(a), f(b));
        nan32(match (a.is_nan(), b.is_nan()) {
            (true, _) => b,
            (_, true) => a,
            _ if a == 0.0 && b == 0.0 && a.is_sign_negative() != b.is_sign_negative() => -0.0,
            _ => a.min(b),
        })
    });
    // Directed rounding against a wider format, independently of the executor.
    use rustc_apfloat::{Float, Round, ieee::Single};
    let ap = |x: u64| Single::from_bits(u128::from(x as u32));
    let back = |x: Single| nan32(f32::from_bits(x.to_bits() as u32));
    for (name, mode) in [
        ("rz", Round::TowardZero),
        ("rm", Round::TowardNegative),
        ("rp", Round::TowardPositive),
    ] {
        let on = |op: &str, args: &str| format!("{op}.{name}.f32 %f0, {args};");
        check(&on("add", "%f1, %f2"), F, &s, |[a, b, _]| {
            back(ap(a).add_r(ap(b), mode).value)
        });
        check(&on("sub", "%f1, %f2"), F, &s, |[a, b, _]| {
            back(ap(a).sub_r(ap(b), mode).value)
        });
        check(&on("mul", "%f1, %f2"), F, &s, |[a, b, _]| {
            back(ap(a).mul_r(ap(b), mode).value)
        });
        check(&on("div", "%f1, %f2"), F, &s, |[a, b, _]| {
            back(ap(a).div_r(ap(b), mode).value)
        });
        check(&on("fma", "%f1, %f2, %f3"), F, &s, |[a, b, c]| {
            back(ap(a).mul_add_r(ap(b), ap(c), mode).value)
        });
        check(&on("rcp", "%f1"), F, &s, |[a, ..]| {
            back(ap(0x3f80_0000).div_r(ap(a), mode).value)
        });
        check(&on("sqrt", "%f1"), F, &s, |[a, ..]| {
            let x = f(a);
            let r = x.sqrt();
            let exact = f64::from(r) * f64::from(r);
            let r = match name {
                "rp" if exact < f64::from(x) && r.is_finite() => r.next_up(),
                "rz" | "rm" if exact > f64::from(x) && r.is_finite() => r.next_down(),
                _ => r,
            };
            nan32(r)
        });
    }
}

#[test]
fn double_precision() {
    let s = singles();
    let g = |x: u64| f64::from_bits(x.wrapping_mul(0x9e37_79b9_97f4_a7c5));
    let wide: Vec<[u64; 3]> = s
        .iter()
        .map(|w| {
            w.map(|x| {
                if x & 3 == 0 {
                    f64::from(f(x)).to_bits()
                } else {
                    g(x).to_bits()
                }
            })
        })
        .collect();
    let v = f64::from_bits;
    check("add.f64 %fd0, %fd1, %fd2;", FD, &wide, |[a, b, _]| {
        nan64(v(a) + v(b))
    });
    check("mul.rn.f64 %fd0, %fd1, %fd2;", FD, &wide, |[a, b, _]| {
        nan64(v(a) * v(b))
    });
    check(
        "fma.rn.f64 %fd0, %fd1, %fd2, %fd3;",
        FD,
        &wide,
        |[a, b, c]| nan64(v(a).mul_add(v(b), v(c))),
    );
    check("div.rn.f64 %fd0, %fd1, %fd2;", FD, &wide, |[a, b, _]| {
        nan64(v(a) / v(b))
    });
    check("sqrt.rn.f64 %fd0, %fd1;", FD, &wide, |[a, ..]| {
        nan64(v(a).sqrt())
    });
    check("abs.f64 %fd0, %fd1;", FD, &wide, |[a, ..]| a & !(1 << 63));
    // The sign of a sum's rounding error decides which neighbour a directed rounding returns.
    check(
        "add.rm.f64 %fd0, %fd1, %fd2;",
        FD,
        &[[1f64.to_bits(), 1e-30f64.to_bits(), 0]],
        |_| 1f64.to_bits(),
    );
    check(
        "add.rp.f64 %fd0, %fd1, %fd2;",
        FD,
        &[[1f64.to_bits(), 1e-30f64.to_bits(), 0]],
        |_| 1f64.next_up().to_bits(),
    );
    check(
        "sqrt.rz.f64 %fd0, %fd1;",
        FD,
        &[[2f64.to_bits(), 0, 0]],
        |_| {
            let r = 2f64.sqrt();
            if (-r).mul_add(r, 2.0) < 0.0 {
                r.next_down()
            } else {
                r
            }
            .to_bits()
        },
    );
}

#[test]
fn conversions() {
    let (w, s) = (words(), singles());
    check("cvt.s64.s8 %d, %r1;", "", &w, |[a, ..]| {
        a as i8 as i64 as u64
    });
    check("cvt.u16.u32 %h0, %r1;", H, &w, |[a, ..]| {
        u64::from(a as u16)
    });
    check("cvt.sat.u8.s32 %r0, %r1;", R, &w, |[a, ..]| {
        (a as i32).clamp(0, 255) as u64
    });
    check("cvt.rn.f32.u64 %f0, %a;", F, &w, |[a, ..]| {
        u64::from((a as f32).to_bits())
    });
    check("cvt.rz.f32.s32 %f0, %r1;", F, &w, |[a, ..]| {
        let (x, r) = (a as i32, a as i32 as f32);
        let over = f64::from(r).abs() > f64::from(x).abs();
        u64::from(
            if over {
                if r > 0.0 { r.next_down() } else { r.next_up() }
            } else {
                r
            }
            .to_bits(),
        )
    });
    check("cvt.rn.f64.s64 %fd0, %a;", FD, &w, |[a, ..]| {
        (a as i64 as f64).to_bits()
    });
    check("cvt.rp.f64.u64 %fd0, %a;", FD, &w, |[a, ..]| {
        let r = a as f64;
        if (r as u128) < u128::from(a) {
            r.next_up()
        } else {
            r
        }
        .to_bits()
    });
    check("cvt.rzi.s32.f32 %r0, %f1;", R, &s, |[a, ..]| {
        u64::from(f(a) as i32 as u32)
    });
    check("cvt.rni.u32.f32 %r0, %f1;", R, &s, |[a, ..]| {
        u64::from(f(a).round_ties_even() as u32)
    });
    check("cvt.rmi.s64.f32 %d, %f1;", "", &s, |[a, ..]| {
        if f(a).is_nan() {
            1 << 63
        } else {
            f(a).floor() as i64 as u64
        }
    });
    check("cvt.rpi.f32.f32 %f0, %f1;", F, &s, |[a, ..]| {
        nan32(f(a).ceil())
    });
    check("cvt.f64.f32 %fd0, %f1;", FD, &s, |[a, ..]| {
        nan64(f64::from(f(a)))
    });
    use rustc_apfloat::{
        Float, FloatConvert, Round,
        ieee::{BFloat, Half, Single},
    };
    for (name, mode) in [("rn", Round::NearestTiesToEven), ("rz", Round::TowardZero)] {
        check(
            &format!("cvt.{name}.f16.f32 %h0, %f1;"),
            H,
            &s,
            |[a, ..]| {
                let h: Half = Single::from_bits(u128::from(a as u32))
                    .convert_r(mode, &mut false)
                    .value;
                if f(a).is_nan() {
                    0x7fff
                } else {
                    h.to_bits() as u64
                }
            },
        );
        check(
            &format!("cvt.{name}.bf16.f32 %h0, %f1;"),
            H,
            &s,
            |[a, ..]| {
                let h: BFloat = Single::from_bits(u128::from(a as u32))
                    .convert_r(mode, &mut false)
                    .value;
                if f(a).is_nan() {
                    0x7fff
                } else {
                    h.to_bits() as u64
                }
            },
        );
    }
    check("cvt.f32.f16 %f0, %h1;", F, &w, |[a, ..]| {
        let s: Single = Half::from_bits(u128::from(a as u16))
            .convert(&mut false)
            .value;
        nan32(f32::from_bits(s.to_bits() as u32))
    });
}

#[test]
fn half_precision_rounds_once() {
    use rustc_apfloat::{Float, Round, ieee::Half};
    let w = words();
    let h = |x: u64| Half::from_bits(u128::from(x as u16));
    let back = |x: Half| {
        if x.is_nan() {
            0x7fff
        } else {
            x.to_bits() as u64
        }
    };
    let rn = Round::NearestTiesToEven;
    check("add.f16 %h0, %h1, %h2;", H, &w, |[a, b, _]| {
        back(h(a).add_r(h(b), rn).value)
    });
    check("mul.f16 %h0, %h1, %h2;", H, &w, |[a, b, _]| {
        back(h(a).mul_r(h(b), rn).value)
    });
    check("fma.rn.f16 %h0, %h1, %h2, %h3;", H, &w, |[a, b, c]| {
        back(h(a).mul_add_r(h(b), h(c), rn).value)
    });
    check("fma.rn.f16x2 %r0, %r1, %r2, %r3;", R, &w, |[a, b, c]| {
        let one = |k: u32| back(h(a >> k).mul_add_r(h(b >> k), h(c >> k), rn).value);
        one(0) | one(16) << 16
    });
}

#[test]
fn vectors_and_wide_registers() {
    let w = words();
    check(
        "mov.b64 {%r4, %r5}, %a; mov.b64 %d, {%r5, %r4};",
        "",
        &w,
        |[a, ..]| a.rotate_left(32),
    );
    check(
        "ld.global.v4.u16 {%h4, %h5, %h6, %h7}, [%in]; mov.b64 %d, {%h7, %h6, %h5, %h4};",
        "",
        &w,
        |[a, ..]| (0..4).fold(0, |r, k| r << 16 | (a >> (16 * k) & 0xffff)),
    );
    check("ld.global.s8 %r0, [%in+1];", R, &w, |[a, ..]| {
        u64::from((a >> 8) as i8 as u32)
    });
    check(
        "st.global.v2.u32 [%out], {%r1, %r2}; ld.global.u64 %d, [%out];",
        "",
        &w,
        |[a, b, _]| u64::from(a as u32) | u64::from(b as u32) << 32,
    );
}

#[test]
fn guards_branches_and_tables() {
    let w = words();
    let body = "setp.lt.u32 %p1, %lane, 7; @%p1 add.u64 %d, %a, 1; @!%p1 bra L1; add.u64 %d, %d, 5; bra.uni L2;\n\
                L1: { .reg .u64 %d2; sub.u64 %d2, %a, %b; mov.u64 %d, %d2; }\n L2: ";
    let few = &w[..32];
    let at = |x: [u64; 3]| few.iter().position(|f| *f == x).unwrap();
    check(body, "", few, |i| {
        if at(i) < 7 {
            i[0].wrapping_add(6)
        } else {
            i[0].wrapping_sub(i[1])
        }
    });
    let body = "and.b32 %r4, %r1, 3; T: .branchtargets A, B, A, C; brx.idx %r4, T;\n\
                A: mov.u64 %d, 10; bra E; B: mov.u64 %d, 20; bra E; C: mov.u64 %d, 30; E: ";
    check(body, "", &w, |[a, ..]| [10, 20, 10, 30][(a & 3) as usize]);
}

#[test]
fn warp_operations() {
    let w = &words()[..32];
    let at = |x: [u64; 3]| w.iter().position(|f| *f == x).unwrap();
    let lane = |l: usize| w[l][0] as u32;
    check(
        "shfl.sync.up.b32 %r0|%p0, %r1, 3, 0, 0xffffffff; @!%p0 mov.u32 %r0, 77;",
        R,
        w,
        |i| u64::from(if at(i) < 3 { 77 } else { lane(at(i) - 3) }),
    );
    check(
        "shfl.sync.down.b32 %r0, %r1, 2, 0x181f, 0xffffffff;",
        R,
        w,
        |i| {
            let l = at(i);
            u64::from(lane(if l % 8 < 6 { l + 2 } else { l }))
        },
    );
    check(
        "shfl.sync.bfly.b32 %r0, %r1, 5, 31, 0xffffffff;",
        R,
        w,
        |i| u64::from(lane(at(i) ^ 5)),
    );
    check(
        "shfl.sync.idx.b32 %r0, %r1, 9, 0x101f, 0xffffffff;",
        R,
        w,
        |i| u64::from(lane((at(i) & 16) | 9)),
    );
    let odd = (0..32).fold(0u32, |m, l| m | (lane(l) & 1) << l);
    check(
        "and.b32 %r4, %r1, 1; setp.ne.u32 %p1, %r4, 0; vote.sync.ballot.b32 %r0, %p1, -1;",
        R,
        w,
        |_| u64::from(odd),
    );
    check("redux.sync.max.u32 %r0, %r1, -1;", R, w, |_| {
        u64::from((0..32).map(lane).max().unwrap())
    });
    check(
        "and.b32 %r4, %r1, 3; match.any.sync.b32 %r0, %r4, -1;",
        R,
        w,
        |i| {
            u64::from((0..32).fold(0u32, |m, l| {
                m | u32::from(lane(l) & 3 == i[0] as u32 & 3) << l
            }))
        },
    );
    // Half of the warp arrives later; the shuffle waits for it.
    let body = "setp.lt.u32 %p1, %lane, 16; @%p1 bra L1; mov.u32 %r5, 0; L0: add.u32 %r5, %r5, 1;\n\
                setp.lt.u32 %p2, %r5, %lane; @%p2 bra L0; L1: shfl.sync.bfly.b32 %r0, %r1, 16, 31, -1;";
    check(body, R, w, |i| u64::from(lane(at(i) ^ 16)));
}

#[test]
fn barriers_order_the_warps_of_a_block() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {\n\
        .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .pred %p<4>; .shared .align 4 .b8 s[1024];\n\
        mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; add.u32 %r3, %r2, %r1; st.shared.u32 [%r3], %r0;\n\
        bar.sync 0; xor.b32 %r4, %r1, 0x3fc; add.u32 %r4, %r2, %r4; ld.shared.u32 %r5, [%r4];\n\
        setp.lt.u32 %p1, %r0, 100; bar.red.popc.u32 %r6, 1, %p1; mad.lo.u32 %r5, %r6, 1000, %r5;\n\
        ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r5; ret; }\n";
    let mut d = Device::new(text, 1 << 16);
    let out = d.put(&[0u32; 256]);
    d.launch("k", &shape(1, 256), &Params::new().add(out))
        .unwrap();
    let want: Vec<u32> = (0..256).map(|t| 100_000 + (255 - t)).collect();
    assert_eq!(d.get::<u32>(out, 256), want);
}

/// LLVM subtracts from the address of shared memory, which is often 0, and adds the rest in the address.
#[test]
fn addresses_in_short_registers_wrap() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {\n\
        .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 4 .b8 s[1024]; .local .align 4 .b8 l[16];\n\
        mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 2; mov.u32 %r2, s; sub.u32 %r3, %r2, %r1; st.shared.u32 [%r3+1020], %r0;\n\
        bar.sync 0; add.u32 %r4, %r2, %r1; ld.shared.u32 %r5, [%r4]; mov.u32 %r6, l; sub.u32 %r6, %r6, 64;\n\
        st.local.u32 [%r6+68], %r5; ld.local.u32 %r5, [%r6+68]; atom.shared.add.u32 %r7, [%r3+1020], 0;\n\
        mad.lo.u32 %r5, %r7, 1000, %r5; ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd0, %rd0, %rd1;\n\
        st.global.u32 [%rd0], %r5; ret; }\n";
    let mut d = Device::new(text, 1 << 16);
    let out = d.put(&[0u32; 256]);
    d.launch("k", &shape(1, 256), &Params::new().add(out))
        .unwrap();
    let want: Vec<u32> = (0..256).map(|t| 1000 * t + 255 - t).collect();
    assert_eq!(d.get::<u32>(out, 256), want);
}

#[test]
fn atomics_of_all_blocks_add_up() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 out) {\n\
        .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .f32 %f<2>; ld.param.u64 %rd0, [out]; cvta.to.global.u64 %rd0, %rd0;\n\
        red.global.add.u32 [%rd0], 1; red.global.add.f32 [%rd0+4], 0f3F000000; atom.global.max.s32 %r1, [%rd0+8], -5;\n\
        mov.u32 %r2, %ctaid.x; atom.global.min.u32 %r1, [%rd0+12], %r2; atom.global.inc.u32 %r1, [%rd0+16], 9;\n\
        red.global.add.noftz.f16x2 [%rd0+20], 0x3c003c00; atom.global.cas.b64 %rd1, [%rd0+24], 0, 42; ret; }\n";
    let mut d = Device::new(text, 1 << 16);
    let out = d.put(&[0u32, 0, -100i32 as u32, 500, 0, 0, 0, 0]);
    d.launch("k", &shape(16, 64), &Params::new().add(out))
        .unwrap();
    let got = d.get::<u32>(out, 8);
    assert_eq!(got[0], 1024);
    assert_eq!(f32::from_bits(got[1]), 512.0);
    assert_eq!(got[2] as i32, -5);
    assert_eq!((got[3], got[4]), (0, 1024 % 10));
    assert_eq!(got[5], 0x6400_6400);
    assert_eq!((got[6], got[7]), (42, 0));
}

#[test]
fn unknown_instructions_and_modifiers_are_refused_with_their_line() {
    let load = |body: &str| {
        let m = ptx::parse(&kernel(body)).map_err(|e| e.to_string())?;
        match LoadedModule::new(m.into(), |_| Ok::<_, ()>(0)) {
            Ok(_) => Ok(()),
            Err(LoadError::Ptx(e)) => Err(e.to_string()),
            Err(e) => Err(format!("{e:?}")),
        }
    };
    for (body, named) in [
        ("\nfrobnicate.u32 %r0, %r1;", "frobnicate.u32"),
        ("\nadd.odd.u32 %r0, %r1, %r2;", ".odd"),
        ("\nadd.u32 %r0, %rd1, %r2;", "width"),
        ("\nbra NOWHERE;", "NOWHERE"),
        ("\nadd.u32 %r0, %nothing, 1;", "%nothing"),
    ] {
        let e = load(body).unwrap_err();
        assert!(e.contains(named) && e.contains("line 14"), "{body}: {e}");
    }
}

#[test]
fn traps_and_misaligned_accesses_are_reported() {
    let fault = |body: &str| {
        let mut d = Device::new(&kernel(body), 1 << 16);
        let p = d.put(&[0u64; 128]);
        d.launch("k", &shape(1, 32), &Params::new().add(p).add(p))
            .unwrap_err()
    };
    let e = fault("setp.eq.u32 %p1, %lane, 9; @%p1 trap;");
    assert_eq!((e.kind, e.thread, e.line), (FaultKind::Trap, [9, 0, 0], 13));
    let e = fault("ld.global.u32 %r0, [%in+2];");
    assert!(
        matches!(e.kind, FaultKind::MisalignedAddress { len: 4, .. }),
        "{e}"
    );
    let e = fault("mov.u64 %rd0, 16; ld.global.u32 %r0, [%rd0];");
    let want = FaultKind::IllegalAddress {
        address: 16,
        len: 4,
        write: false,
    };
    assert_eq!(e.kind, want);
    let e = fault("setp.lt.u32 %p1, %lane, 4; @%p1 bra L; bar.sync 1, 64; L: bar.sync 2, 64;");
    assert_eq!(e.kind, FaultKind::Deadlock);
}
