// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Atomic operations on memory.

use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::SeqCst};

use super::decode::{Kind, Ty};
use super::env::Env;
use super::lanes::reg;
use super::program::{Inst, NONE, Stop};
use super::soft::{BF16, F16, Format, RN, finish, finish64, narrow, two_sum, widen};

const ADD: u32 = 0;
const MIN: u32 = 1;
const MAX: u32 = 2;
const INC: u32 = 3;
const DEC: u32 = 4;
const CAS: u32 = 5;
const EXCH: u32 = 6;
const AND: u32 = 7;
const OR: u32 = 8;

const SIGNED: u32 = 16;
const FLOAT: u32 = 32;
const PAIR: u32 = 64;
const BFLOAT: u32 = 128;

/// The operation's code, or `None` for one that does not exist.
pub(super) fn code(op: &str, t: Ty) -> Option<u32> {
    let names = [
        "add", "min", "max", "inc", "dec", "cas", "exch", "and", "or", "xor",
    ];
    let op = names.iter().position(|n| *n == op)? as u32;
    let kind = match t.kind {
        Kind::Bits | Kind::Unsigned => 0,
        Kind::Signed => SIGNED,
        Kind::Float => FLOAT,
        Kind::Bfloat => FLOAT | BFLOAT,
        Kind::FloatPair => FLOAT | PAIR,
        Kind::BfloatPair => FLOAT | PAIR | BFLOAT,
        Kind::Pred => return None,
    };
    let narrow = kind & PAIR != 0 || t.bits == 16;
    let fits = match op {
        ADD => true,
        MIN | MAX => kind & FLOAT == 0 || narrow,
        INC | DEC => kind == 0 && t.bits == 32,
        CAS | EXCH => kind & FLOAT == 0,
        _ => kind & FLOAT == 0 && t.bits >= 32,
    };
    let sized = matches!(t.bits, 32 | 64) || (t.bits == 16 && (kind & FLOAT != 0 || op == CAS));
    (fits && sized).then_some(op | kind)
}

fn half(op: u32, a: u16, b: u16) -> u16 {
    let f: Format = if op & BFLOAT != 0 { BF16 } else { F16 };
    let (x, y) = (widen(u64::from(a), f), widen(u64::from(b), f));
    match op & 15 {
        ADD => {
            let (s, e) = two_sum(x, y);
            narrow(s, if s.is_finite() { e } else { 0.0 }, RN, f) as u16
        }
        _ if x.is_nan() => b,
        _ if y.is_nan() => a,
        MIN => {
            if x <= y {
                a
            } else {
                b
            }
        }
        _ => {
            if x >= y {
                a
            } else {
                b
            }
        }
    }
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn run16<const SPACE: u8>(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let op = i.list[0];
    let addresses = env.addresses(i);
    let mut m = mask;
    while m != 0 {
        let l = m.trailing_zeros() as usize;
        m &= m - 1;
        let p = env.host::<SPACE>(l, addresses[l], 2, true)?;
        // SAFETY: `host` answers for the pointer, the caller for the registers.
        unsafe {
            let cell = &*p.cast::<AtomicU16>();
            let b = (*reg::<u16>(env.regs, i.b))[l];
            let c = (*reg::<u16>(env.regs, i.c))[l];
            let old = if op & 15 == CAS {
                cell.compare_exchange(b, c, SeqCst, SeqCst)
                    .unwrap_or_else(|v| v)
            } else {
                update(
                    |v| half(op, v, b),
                    || cell.load(SeqCst),
                    |o, n| cell.compare_exchange(o, n, SeqCst, SeqCst).map(drop),
                )
            };
            if i.d != NONE {
                (*reg::<u16>(env.regs, i.d))[l] = old;
            }
        }
    }
    Ok(())
}

/// Applies `f` until no other thread came between.
fn update<T: Copy>(
    f: impl Fn(T) -> T,
    load: impl Fn() -> T,
    swap: impl Fn(T, T) -> Result<(), T>,
) -> T {
    let mut old = load();
    while let Err(now) = swap(old, f(old)) {
        old = now;
    }
    old
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn run32<const SPACE: u8>(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let op = i.list[0];
    let addresses = env.addresses(i);
    let mut m = mask;
    while m != 0 {
        let l = m.trailing_zeros() as usize;
        m &= m - 1;
        let p = env.host::<SPACE>(l, addresses[l], 4, true)?;
        // SAFETY: `host` answers for the pointer, the caller for the registers.
        unsafe {
            let cell = &*p.cast::<AtomicU32>();
            let b = (*reg::<u32>(env.regs, i.b))[l];
            let c = (*reg::<u32>(env.regs, i.c))[l];
            let rmw = |f: &dyn Fn(u32) -> u32| {
                update(
                    f,
                    || cell.load(SeqCst),
                    |o, n| cell.compare_exchange(o, n, SeqCst, SeqCst).map(drop),
                )
            };
            let old = if op & PAIR != 0 {
                rmw(&|v| {
                    let low = half(op, v as u16, b as u16);
                    let high = half(op, (v >> 16) as u16, (b >> 16) as u16);
                    u32::from(low) | u32::from(high) << 16
                })
            } else {
                match (op & 15, op & (SIGNED | FLOAT)) {
                    (ADD, FLOAT) => rmw(&|v| {
                        finish::<false, false>(f32::from_bits(v) + f32::from_bits(b)).to_bits()
                    }),
                    (ADD, _) => cell.fetch_add(b, SeqCst),
                    (MIN, SIGNED) => rmw(&|v| (v as i32).min(b as i32) as u32),
                    (MAX, SIGNED) => rmw(&|v| (v as i32).max(b as i32) as u32),
                    (MIN, _) => cell.fetch_min(b, SeqCst),
                    (MAX, _) => cell.fetch_max(b, SeqCst),
                    (INC, _) => rmw(&|v| if v >= b { 0 } else { v + 1 }),
                    (DEC, _) => rmw(&|v| if v == 0 || v > b { b } else { v - 1 }),
                    (CAS, _) => cell
                        .compare_exchange(b, c, SeqCst, SeqCst)
                        .unwrap_or_else(|v| v),
                    (EXCH, _) => cell.swap(b, SeqCst),
                    (AND, _) => cell.fetch_and(b, SeqCst),
                    (OR, _) => cell.fetch_or(b, SeqCst),
                    _ => cell.fetch_xor(b, SeqCst),
                }
            };
            if i.d != NONE {
                (*reg::<u32>(env.regs, i.d))[l] = old;
            }
        }
    }
    Ok(())
}

/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn run64<const SPACE: u8>(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let op = i.list[0];
    let addresses = env.addresses(i);
    let mut m = mask;
    while m != 0 {
        let l = m.trailing_zeros() as usize;
        m &= m - 1;
        let p = env.host::<SPACE>(l, addresses[l], 8, true)?;
        // SAFETY: `host` answers for the pointer, the caller for the registers.
        unsafe {
            let cell = &*p.cast::<AtomicU64>();
            let b = (*reg::<u64>(env.regs, i.b))[l];
            let c = (*reg::<u64>(env.regs, i.c))[l];
            let rmw = |f: &dyn Fn(u64) -> u64| {
                update(
                    f,
                    || cell.load(SeqCst),
                    |o, n| cell.compare_exchange(o, n, SeqCst, SeqCst).map(drop),
                )
            };
            let old = match (op & 15, op & (SIGNED | FLOAT)) {
                (ADD, FLOAT) => rmw(&|v| finish64(f64::from_bits(v) + f64::from_bits(b)).to_bits()),
                (ADD, _) => cell.fetch_add(b, SeqCst),
                (MIN, SIGNED) => rmw(&|v| (v as i64).min(b as i64) as u64),
                (MAX, SIGNED) => rmw(&|v| (v as i64).max(b as i64) as u64),
                (MIN, _) => cell.fetch_min(b, SeqCst),
                (MAX, _) => cell.fetch_max(b, SeqCst),
                (CAS, _) => cell
                    .compare_exchange(b, c, SeqCst, SeqCst)
                    .unwrap_or_else(|v| v),
                (EXCH, _) => cell.swap(b, SeqCst),
                (AND, _) => cell.fetch_and(b, SeqCst),
                (OR, _) => cell.fetch_or(b, SeqCst),
                _ => cell.fetch_xor(b, SeqCst),
            };
            if i.d != NONE {
                (*reg::<u64>(env.regs, i.d))[l] = old;
            }
        }
    }
    Ok(())
}
