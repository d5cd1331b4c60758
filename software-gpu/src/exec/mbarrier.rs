// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `mbarrier` objects: a word of shared memory with the pending arrivals (20 bits), those of a phase (20 bits), and the
//! number of the phase. A block runs on one host thread at a time, so plain steps are indivisible.

use super::env::Env;
use super::lanes::{each, reg, set_pred};
use super::memory::Cell;
use super::program::{Inst, NONE, Stop};

pub(super) const INIT: u32 = 0;
pub(super) const INVALIDATE: u32 = 1;
pub(super) const ARRIVE: u32 = 2;
pub(super) const DROP: u32 = 3;
pub(super) const TEST: u32 = 4;
pub(super) const TEST_PARITY: u32 = 5;

const COUNT: u64 = (1 << 20) - 1;

/// `mbarrier.pending_count` of a state in `a`.
///
/// # Safety
/// `Alu`'s contract.
pub(super) unsafe fn pending_count(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: the caller's promise.
    unsafe {
        each(mask, |l| {
            (*reg::<u32>(regs, i.d))[l] = ((*reg::<u64>(regs, i.a))[l] & COUNT) as u32;
        });
    }
}

/// The operation in `list[0]` on the object at `[a + imm]`.
///
/// # Safety
/// `EnvFn`'s contract.
pub(super) unsafe fn step<const SPACE: u8>(
    env: &mut Env<'_, '_>,
    i: &Inst,
    mask: u32,
) -> Result<(), Stop> {
    let addresses = env.addresses(i);
    let op = i.list[0];
    let mut m = mask;
    while m != 0 {
        let l = m.trailing_zeros() as usize;
        m &= m - 1;
        let p = env.host::<SPACE>(l, addresses[l], 8, true)?;
        // SAFETY: `host` answers for the pointer, the caller for the registers.
        unsafe {
            let old = u64::load(p);
            let phase = old >> 40;
            match op {
                INIT => {
                    let n = u64::from((*reg::<u32>(env.regs, i.b))[l]) & COUNT;
                    u64::store(p, n | n << 20);
                }
                INVALIDATE => u64::store(p, 0),
                ARRIVE | DROP => {
                    let n = u64::from((*reg::<u32>(env.regs, i.b))[l]);
                    let mut expected = old >> 20 & COUNT;
                    if op == DROP {
                        expected = expected.saturating_sub(n);
                    }
                    let pending = (old & COUNT).saturating_sub(n);
                    let new = if pending == 0 {
                        expected | expected << 20 | (phase + 1) << 40
                    } else {
                        pending | expected << 20 | phase << 40
                    };
                    u64::store(p, new);
                    if i.d != NONE {
                        (*reg::<u64>(env.regs, i.d))[l] = old;
                    }
                }
                _ => {
                    let done = if op == TEST {
                        (*reg::<u64>(env.regs, i.b))[l] >> 40 != phase
                    } else {
                        u64::from((*reg::<u32>(env.regs, i.b))[l]) & 1 != phase & 1
                    };
                    set_pred(env.regs, i.d, 1 << l, if done { !0 } else { 0 });
                }
            }
        }
    }
    Ok(())
}
