// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Fences, asynchronous copies and the text of failed assertions.

use std::sync::atomic::{Ordering, fence as host_fence};

use super::FaultKind;
use super::env::{Env, GENERIC, SHARED};
use super::lanes::{each, reg};
use super::memory::Cell;
use super::program::{Inst, Stop};

/// `membar` and `fence`.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(super) unsafe fn fence(_: &mut Env<'_, '_>, _: &Inst, _: u32) -> Result<(), Stop> {
    host_fence(Ordering::SeqCst);
    Ok(())
}

/// The address `[a + imm]` into `d`.
///
/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn address_of(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    let a = env.addresses(i);
    // SAFETY: the caller's promise.
    unsafe {
        each(mask, |l| (*reg::<u64>(env.regs, i.d))[l] = a[l]);
    }
    Ok(())
}

/// `cp.async`: copies `list[0]` bytes to shared memory; the first `c` of them are at the global address in `b`.
///
/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn copy_async(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    let bytes = i.list[0] as usize;
    let to = env.addresses(i);
    let mut m = mask;
    while m != 0 {
        let l = m.trailing_zeros() as usize;
        m &= m - 1;
        // SAFETY: the caller answers for the registers, `host` for the pointers.
        unsafe {
            let from = (*reg::<u64>(env.regs, i.b))[l];
            let valid = ((*reg::<u32>(env.regs, i.c))[l] as usize).min(bytes);
            let d = env.host::<SHARED>(l, to[l], bytes, true)?;
            let s = if valid == 0 {
                d
            } else {
                env.host::<GENERIC>(l, from, bytes, false)?
            };
            for k in 0..bytes {
                let v = if k < valid { u8::load(s.add(k)) } else { 0 };
                u8::store(d.add(k), v);
            }
        }
    }
    Ok(())
}

/// The message of `assert`, from `__assertfail`'s parameters: message, file, line, function, character size.
pub(super) fn assertion(env: &mut Env<'_, '_>, i: &Inst, lane: usize) -> FaultKind {
    let mut text = |k: usize| {
        let address = env.parameter(lane, i.list.get(k).copied());
        String::from_utf8_lossy(&env.string_of(lane, address)).into_owned()
    };
    let (expression, file, function) = (text(0), text(1), text(3));
    let line = env.parameter_word(lane, i.list.get(2).copied());
    FaultKind::Assert {
        place: format!("{file}:{line}: {function}"),
        expression,
    }
}
