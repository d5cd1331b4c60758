// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Loops over the lanes of a warp, one function per operation.
//!
//! The functions take the operation as a closure without captures and return a plain function pointer, built twice on
//! x86-64: once for processors with AVX2 and FMA, chosen at run time.

use super::program::{Alu, Inst, LANES, Stop};

/// Calls `f` for each lane in `mask`.
#[inline(always)]
pub(super) fn each(mask: u32, mut f: impl FnMut(usize)) {
    if mask == !0 {
        for lane in 0..LANES {
            f(lane);
        }
    } else {
        let mut m = mask;
        while m != 0 {
            f(m.trailing_zeros() as usize);
            m &= m - 1;
        }
    }
}

/// Calls `f` for each lane in `mask`, until one stops.
pub(super) fn each_until(
    mask: u32,
    mut f: impl FnMut(usize) -> Result<(), Stop>,
) -> Result<(), Stop> {
    let mut stopped = Ok(());
    each(mask, |lane| {
        if stopped.is_ok() {
            stopped = f(lane);
        }
    });
    stopped
}

/// The lanes of a register.
///
/// # Safety
/// `offset` is a register of `T`'s width in the file at `regs`.
#[inline(always)]
pub(super) unsafe fn reg<T>(regs: *mut u8, offset: u32) -> *mut [T; LANES] {
    // SAFETY: the caller's promise.
    unsafe { regs.add(offset as usize).cast() }
}

/// A predicate's word.
///
/// # Safety
/// `offset` is a predicate in the file at `regs`.
#[inline(always)]
pub(super) unsafe fn pred(regs: *mut u8, offset: u32) -> *mut u32 {
    // SAFETY: the caller's promise.
    unsafe { regs.add(offset as usize).cast() }
}

/// Writes the lanes `mask` of a predicate.
///
/// # Safety
/// As for [`pred`].
#[inline(always)]
pub(super) unsafe fn set_pred(regs: *mut u8, offset: u32, mask: u32, bits: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let p = pred(regs, offset);
        *p = (*p & !mask) | (bits & mask);
    }
}

/// The value of a closure type without captures.
#[inline(always)]
fn conjure<F: Copy>() -> F {
    const { assert!(size_of::<F>() == 0) };
    // SAFETY: `F` has no bytes, and code that names it here got a value of it, so it is inhabited.
    unsafe { std::mem::zeroed() }
}

fn has_v3() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        std::is_x86_feature_detected!("avx2")
            && std::is_x86_feature_detected!("fma")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("lzcnt")
            && std::is_x86_feature_detected!("popcnt")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

macro_rules! versions {
    ($name:ident, $body:ident, $v3:ident, $base:ident, [$($g:ident),*], $bound:path) => {
        // SAFETY: `Alu`'s contract: the registers of `i` belong to the file at `regs`.
        unsafe fn $base<$($g: Copy,)* F: $bound + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
            // SAFETY: passed on.
            unsafe { $body::<$($g,)* F>(regs, i, mask) }
        }
        #[cfg(target_arch = "x86_64")]
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
        // SAFETY: as above; chosen only where the processor has the features.
        unsafe fn $v3<$($g: Copy,)* F: $bound + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
            // SAFETY: passed on.
            unsafe { $body::<$($g,)* F>(regs, i, mask) }
        }
        /// The operation `f` on every active lane.
        pub(super) fn $name<$($g: Copy,)* F: $bound + Copy>(_: F) -> Alu {
            #[cfg(target_arch = "x86_64")]
            if has_v3() {
                return $v3::<$($g,)* F>;
            }
            let _ = has_v3;
            $base::<$($g,)* F>
        }
    };
}

#[inline(always)]
unsafe fn body1<A: Copy, R: Copy, F: Fn(A) -> R + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract.
    unsafe {
        let a = reg::<A>(regs, i.a);
        let d = reg::<R>(regs, i.d);
        if mask == !0 {
            let r: [R; LANES] = std::array::from_fn(|l| f((*a)[l]));
            *d = r;
        } else {
            each(mask, |l| (*d)[l] = f((*a)[l]));
        }
    }
}
versions!(alu1, body1, body1_v3, body1_base, [A, R], Fn(A) -> R);

#[inline(always)]
unsafe fn body2<A: Copy, B: Copy, R: Copy, F: Fn(A, B) -> R + Copy>(
    regs: *mut u8,
    i: &Inst,
    mask: u32,
) {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract.
    unsafe {
        let a = reg::<A>(regs, i.a);
        let b = reg::<B>(regs, i.b);
        let d = reg::<R>(regs, i.d);
        if mask == !0 {
            let r: [R; LANES] = std::array::from_fn(|l| f((*a)[l], (*b)[l]));
            *d = r;
        } else {
            each(mask, |l| (*d)[l] = f((*a)[l], (*b)[l]));
        }
    }
}
versions!(alu2, body2, body2_v3, body2_base, [A, B, R], Fn(A, B) -> R);

#[inline(always)]
unsafe fn body3<A: Copy, B: Copy, C: Copy, R: Copy, F: Fn(A, B, C) -> R + Copy>(
    regs: *mut u8,
    i: &Inst,
    mask: u32,
) {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract.
    unsafe {
        let a = reg::<A>(regs, i.a);
        let b = reg::<B>(regs, i.b);
        let c = reg::<C>(regs, i.c);
        let d = reg::<R>(regs, i.d);
        if mask == !0 {
            let r: [R; LANES] = std::array::from_fn(|l| f((*a)[l], (*b)[l], (*c)[l]));
            *d = r;
        } else {
            each(mask, |l| (*d)[l] = f((*a)[l], (*b)[l], (*c)[l]));
        }
    }
}
versions!(alu3, body3, body3_v3, body3_base, [A, B, C, R], Fn(A, B, C) -> R);

#[inline(always)]
unsafe fn body4<A: Copy, B: Copy, C: Copy, E: Copy, R: Copy, F: Fn(A, B, C, E) -> R + Copy>(
    regs: *mut u8,
    i: &Inst,
    mask: u32,
) {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract.
    unsafe {
        let a = reg::<A>(regs, i.a);
        let b = reg::<B>(regs, i.b);
        let c = reg::<C>(regs, i.c);
        let e = reg::<E>(regs, i.e);
        let d = reg::<R>(regs, i.d);
        each(mask, |l| (*d)[l] = f((*a)[l], (*b)[l], (*c)[l], (*e)[l]));
    }
}
versions!(alu4, body4, body4_v3, body4_base, [A, B, C, E, R], Fn(A, B, C, E) -> R);

/// Combines a comparison with the predicate in `c`: bits of [`Inst::imm`].
pub(super) const COMBINE_AND: i64 = 1;
pub(super) const COMBINE_OR: i64 = 2;
pub(super) const COMBINE_XOR: i64 = 3;
/// The predicate in `c` is negated.
pub(super) const COMBINE_NOT: i64 = 4;

/// The combined result and its complement's for `p|q`.
///
/// # Safety
/// `Alu`'s contract.
#[inline(always)]
unsafe fn combine(regs: *mut u8, i: &Inst, bits: u32) -> (u32, u32) {
    if i.imm == 0 {
        return (bits, !bits);
    }
    // SAFETY: the caller's promise.
    let mut c = unsafe { *pred(regs, i.c) };
    if i.imm & COMBINE_NOT != 0 {
        c = !c;
    }
    match i.imm & 3 {
        COMBINE_AND => (bits & c, !bits & c),
        COMBINE_OR => (bits | c, !bits | c),
        _ => (bits ^ c, !bits ^ c),
    }
}

#[inline(always)]
unsafe fn body_setp<A: Copy, F: Fn(A, A) -> bool + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: `Alu`'s contract.
    unsafe {
        let (p, q) = combine(regs, i, compare::<A, F>(regs, i));
        set_pred(regs, i.d, mask, p);
        if i.e != super::program::NONE {
            set_pred(regs, i.e, mask, q);
        }
    }
}
versions!(setp, body_setp, setp_v3, setp_base, [A], Fn(A, A) -> bool);

#[inline(always)]
unsafe fn compare<A: Copy, F: Fn(A, A) -> bool + Copy>(regs: *mut u8, i: &Inst) -> u32 {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract.
    unsafe {
        let a = reg::<A>(regs, i.a);
        let b = reg::<A>(regs, i.b);
        let r: [u8; LANES] = std::array::from_fn(|l| u8::from(f((*a)[l], (*b)[l])));
        let mut bits = 0;
        for (k, w) in r.chunks_exact(8).enumerate() {
            let w = u64::from_le_bytes([w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]]);
            // Gathers the low bit of each byte.
            bits |= ((w.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32) << (8 * k);
        }
        bits
    }
}

#[inline(always)]
unsafe fn body_set<A: Copy, F: Fn(A, A) -> bool + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: `Alu`'s contract.
    unsafe {
        let (p, _) = combine(regs, i, compare::<A, F>(regs, i));
        // `wide` asks for 1.0f in place of all ones; list[0], when given, for a 16-bit result and its "true".
        if let Some(&t) = i.list.first() {
            each(mask, |l| {
                (*reg::<u16>(regs, i.d))[l] = if p >> l & 1 != 0 { t as u16 } else { 0 }
            });
        } else {
            let t = if i.wide { 1.0f32.to_bits() } else { !0 };
            each(mask, |l| {
                (*reg::<u32>(regs, i.d))[l] = if p >> l & 1 != 0 { t } else { 0 }
            });
        }
    }
}
versions!(set, body_set, set_v3, set_base, [A], Fn(A, A) -> bool);

/// A test of one operand into a predicate (`testp`).
#[inline(always)]
unsafe fn body_test<A: Copy, F: Fn(A) -> bool + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract.
    unsafe {
        let a = reg::<A>(regs, i.a);
        let mut bits = 0;
        for l in 0..LANES {
            bits |= u32::from(f((*a)[l])) << l;
        }
        set_pred(regs, i.d, mask, bits);
    }
}
versions!(test, body_test, test_v3, test_base, [A], Fn(A) -> bool);

/// `selp`: `a` where the predicate in `c` holds, else `b`.
///
/// # Safety
/// `Alu`'s contract.
pub(super) unsafe fn selp<T: Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        let p = *pred(regs, i.c) ^ if i.imm != 0 { !0 } else { 0 };
        let a = reg::<T>(regs, i.a);
        let b = reg::<T>(regs, i.b);
        let d = reg::<T>(regs, i.d);
        if mask == !0 {
            let r: [T; LANES] =
                std::array::from_fn(|l| if p >> l & 1 != 0 { (*a)[l] } else { (*b)[l] });
            *d = r;
        } else {
            each(mask, |l| {
                (*d)[l] = if p >> l & 1 != 0 { (*a)[l] } else { (*b)[l] };
            });
        }
    }
}

/// Logic on predicates.
#[inline(always)]
unsafe fn body_logic<F: Fn(u32, u32) -> u32 + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    let f = conjure::<F>();
    // SAFETY: `Alu`'s contract. Bits 0 and 1 of `imm` negate `a` and `b`.
    unsafe {
        let a = *pred(regs, i.a) ^ if i.imm & 1 != 0 { !0 } else { 0 };
        let b = *pred(regs, i.b) ^ if i.imm & 2 != 0 { !0 } else { 0 };
        set_pred(regs, i.d, mask, f(a, b));
    }
}
versions!(logic, body_logic, logic_v3, logic_base, [], Fn(u32, u32) -> u32);
