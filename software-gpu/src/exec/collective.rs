// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Shuffles, votes, matches and reductions of a warp.

use super::env::Env;
use super::lanes::{each, pred, reg, set_pred};
use super::program::{Inst, LANES, NONE, Stop};
use super::soft::{NAN32, max32, min32};

/// Lanes of each active lane's member mask; all active lanes name the same one.
unsafe fn members(env: &Env<'_, '_>, i: &Inst, mask: u32) -> u32 {
    let first = mask.trailing_zeros() as usize % LANES;
    // SAFETY: the caller's promise.
    let m = unsafe { (*reg::<u32>(env.regs, i.e))[first] };
    if m == 0 { mask } else { m & mask }
}

/// Different member masks may meet in one instruction: runs `f` for each set of lanes that name the same one.
unsafe fn sets(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
    mut f: impl FnMut(&mut Env<'_, '_>, u32),
) {
    let mut left = mask;
    while left != 0 {
        // SAFETY: the caller's promise.
        let m = unsafe { members(env, i, left) } | (left & left.wrapping_neg());
        f(env, m);
        left &= !m;
    }
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn shuffle(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    // SAFETY: the caller's promise.
    unsafe {
        let a = *reg::<u32>(env.regs, i.a);
        let b = *reg::<u32>(env.regs, i.b);
        let c = *reg::<u32>(env.regs, i.c);
        let d = reg::<u32>(env.regs, i.d);
        let mut valid = 0u32;
        each(mask, |l| {
            let lane = l as i32;
            let delta = (b[l] & 31) as i32;
            let clamp = (c[l] & 31) as i32;
            let segment = (c[l] >> 8 & 31) as i32;
            let most = (lane & segment) | (clamp & !segment);
            let least = lane & segment;
            let (from, ok) = match i.imm {
                0 => (lane - delta, lane - delta >= most),
                1 => (lane + delta, lane + delta <= most),
                2 => (lane ^ delta, lane ^ delta <= most),
                _ => {
                    let j = least | (delta & !segment);
                    (j, j <= most)
                }
            };
            let from = if ok { from as usize & 31 } else { l };
            valid |= u32::from(ok) << l;
            (*d)[l] = a[from];
        });
        if i.list[0] != NONE {
            set_pred(env.regs, i.list[0], mask, valid);
        }
    }
    Ok(())
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn vote(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    // SAFETY: the caller's promise.
    unsafe {
        let p = *pred(env.regs, i.a) ^ if i.imm & 16 != 0 { !0 } else { 0 };
        sets(env, i, mask, |env, m| {
            let yes = p & m;
            match i.imm & 15 {
                0 => set_pred(env.regs, i.d, m, if yes == m { !0 } else { 0 }),
                1 => set_pred(env.regs, i.d, m, if yes != 0 { !0 } else { 0 }),
                2 => set_pred(env.regs, i.d, m, if yes == m || yes == 0 { !0 } else { 0 }),
                _ => each(m, |l| (*reg::<u32>(env.regs, i.d))[l] = yes),
            }
        });
    }
    Ok(())
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn matching(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    // SAFETY: the caller's promise.
    unsafe {
        let v: [u64; LANES] = if i.wide {
            *reg::<u64>(env.regs, i.a)
        } else {
            (*reg::<u32>(env.regs, i.a)).map(u64::from)
        };
        sets(env, i, mask, |env, m| {
            let first = m.trailing_zeros() as usize;
            let mut all = true;
            each(m, |l| all &= v[l] == v[first]);
            each(m, |l| {
                let mut same = 0;
                each(m, |k| same |= u32::from(v[k] == v[l]) << k);
                let r = match i.imm {
                    0 => same,
                    _ if all => m,
                    _ => 0,
                };
                (*reg::<u32>(env.regs, i.d))[l] = r;
            });
            if i.list[0] != NONE {
                set_pred(env.regs, i.list[0], m, if all { !0 } else { 0 });
            }
        });
    }
    Ok(())
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn elect(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    // SAFETY: the caller's promise.
    unsafe {
        sets(env, i, mask, |env, m| {
            let leader = m.trailing_zeros();
            each(m, |l| (*reg::<u32>(env.regs, i.d))[l] = leader);
            if i.list[0] != NONE {
                set_pred(env.regs, i.list[0], m, 1 << leader);
            }
        });
    }
    Ok(())
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn reduce(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    // SAFETY: the caller's promise.
    unsafe {
        let a = *reg::<u32>(env.regs, i.a);
        sets(env, i, mask, |env, m| {
            let mut r = a[m.trailing_zeros() as usize];
            let (abs, nan) = (i.imm & 16 != 0, i.imm & 32 != 0);
            let value = |x: u32| {
                let v = f32::from_bits(x);
                if abs { v.abs() } else { v }
            };
            let mut any_nan = f32::from_bits(r).is_nan();
            if i.imm & 15 >= 9 {
                r = value(r).to_bits();
            }
            each(m & (m - 1), |l| {
                let x = a[l];
                any_nan |= f32::from_bits(x).is_nan();
                r = match i.imm & 15 {
                    0 => r.wrapping_add(x),
                    1 => (r as i32).min(x as i32) as u32,
                    2 => (r as i32).max(x as i32) as u32,
                    3 => r.min(x),
                    4 => r.max(x),
                    5 => r & x,
                    6 => r | x,
                    7 => r ^ x,
                    9 => min32::<false>(f32::from_bits(r), value(x)).to_bits(),
                    _ => max32::<false>(f32::from_bits(r), value(x)).to_bits(),
                };
            });
            if nan && any_nan {
                r = NAN32.to_bits();
            }
            each(m, |l| (*reg::<u32>(env.regs, i.d))[l] = r);
        });
    }
    Ok(())
}
