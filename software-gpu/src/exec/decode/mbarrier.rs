// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `mbarrier` objects.

use super::super::env::{GENERIC, SHARED};
use super::super::mbarrier as run;
use super::super::program::{NONE, Op};
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

/// The operation on an object in a state space.
fn step_in(space: u8) -> Op {
    Op::Env(match space {
        SHARED => run::step::<SHARED>,
        _ => run::step::<GENERIC>,
    })
}

impl Decoder<'_> {
    pub(super) fn mbarrier(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let Some(op) = m.one_of(&[
            "init",
            "inval",
            "arrive",
            "arrive_drop",
            "test_wait",
            "try_wait",
            "pending_count",
        ]) else {
            return Ok(false);
        };
        let parity = m.take("parity");
        // Completion by an arrival that forbids it is undefined: nothing to do for it.
        m.take("noComplete");
        m.one_of(&["acquire", "release", "relaxed"]);
        m.one_of(&["cta", "cluster"]);
        let shared = m.one_of(&["shared", "shared::cta", "shared::cluster"]);
        if !m.take("b64") {
            return Ok(false);
        }
        let mut i = self.inst(Op::Nop);
        if op == "pending_count" {
            let [d, state] = self.operands(o)?;
            i.a = self.source_bits(state, 64)?;
            i.d = self.destination(d, 32)?;
            i.op = Op::Alu(run::pending_count);
            self.push(i);
            return Ok(true);
        }
        let has_result = !matches!(o.first(), Some(Operand::Address(..)) | None);
        let rest = &o[usize::from(has_result)..];
        let Some((address, rest)) = rest.split_first() else {
            return self.error("address expected");
        };
        let space = self.address(&mut i, address, shared.map(|_| "shared"))?;
        i.d = NONE;
        let code = match op {
            "init" => {
                i.b = match rest {
                    [n] => self.source(n, word)?,
                    _ => return self.error("count expected"),
                };
                run::INIT
            }
            "inval" => run::INVALIDATE,
            "arrive" | "arrive_drop" => {
                i.b = match rest {
                    [] => self.constant(4, 1),
                    [n] => self.source(n, word)?,
                    _ => return self.error("too many operands"),
                };
                if has_result && o[0] != Operand::Sink {
                    i.d = self.destination(&o[0], 64)?;
                }
                if op == "arrive" {
                    run::ARRIVE
                } else {
                    run::DROP
                }
            }
            _ => {
                let Some(state) = rest.first() else {
                    return self.error("state expected");
                };
                i.b = if parity {
                    self.source(state, word)?
                } else {
                    self.source_bits(state, 64)?
                };
                i.d = self.destination(&o[0], 1)?;
                if parity { run::TEST_PARITY } else { run::TEST }
            }
        };
        i.list = Box::new([code]);
        i.op = step_in(space);
        self.push(i);
        Ok(true)
    }

    /// `cp.async.mbarrier.arrive`: the copies are complete already, so that only an arrival that counts is left of it.
    pub(super) fn mbarrier_of_copies(
        &mut self,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        m.take("arrive");
        let counts = m.take("noinc");
        let shared = m.one_of(&["shared", "shared::cta"]);
        m.take("b64");
        let [address] = self.operands(o)?;
        let mut i = self.inst(Op::Nop);
        let space = self.address(&mut i, address, shared.map(|_| "shared"))?;
        if counts {
            i.b = self.constant(4, 1);
            i.d = NONE;
            i.list = Box::new([run::ARRIVE]);
            i.op = step_in(space);
        }
        self.push(i);
        Ok(true)
    }
}
