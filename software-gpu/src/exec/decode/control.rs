// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Branches, calls, barriers, fences.

use super::super::program::{Barrier, BarrierKind, Call, NONE, Op};
use super::super::system;
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand, Symbol};

impl Decoder<'_> {
    pub(super) fn control(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        m.take("uni");
        let simple = match op {
            "ret" => Some(Op::Return),
            "exit" => Some(Op::Exit),
            "trap" | "brkpt" => Some(Op::Trap),
            "nanosleep" => {
                m.take("u32");
                Some(Op::Yield)
            }
            "pmevent" | "griddepcontrol" | "setmaxnreg" => {
                while m.first().is_some() {}
                Some(Op::Nop)
            }
            "membar" | "fence" => {
                while let Some(k) = m.first() {
                    let known = [
                        "cta",
                        "gl",
                        "sys",
                        "gpu",
                        "cluster",
                        "sc",
                        "acq_rel",
                        "acquire",
                        "release",
                        "mbarrier_init",
                        "proxy",
                        "alias",
                        "async",
                        "global",
                        "shared::cta",
                        "shared::cluster",
                        "sync_restrict",
                    ];
                    if !known.contains(&k) && !k.starts_with("async") {
                        return self.error(format!("modifier .{k} of {op} is not supported"));
                    }
                }
                Some(Op::Env(system::fence))
            }
            _ => None,
        };
        if let Some(s) = simple {
            let i = self.inst(s);
            self.push(i);
            return Ok(true);
        }
        match op {
            "bra" => {
                let [Operand::Label(l)] = o else {
                    return self.error("label expected");
                };
                let i = self.inst(Op::Branch(*l));
                self.push(i);
                Ok(true)
            }
            "brx" => {
                m.take("idx");
                let [r, Operand::Targets(t)] = o else {
                    return self.error("index and .branchtargets expected");
                };
                let mut i = self.inst(Op::BranchIndex(self.targets(*t).into()));
                i.a = self.source_bits(r, 32)?;
                self.push(i);
                Ok(true)
            }
            "call" => self.call(o),
            _ => self.barrier(op, m, o),
        }
    }

    fn spans(&self, list: &[Operand]) -> Result<Vec<(u32, u32)>, Error> {
        list.iter()
            .map(|o| match o {
                Operand::Symbol(Symbol::ParamVar(v), 0) => Ok(self.local_span(*v)),
                _ => self.error("call arguments must be .param variables"),
            })
            .collect()
    }

    fn call(&mut self, o: &[Operand]) -> Result<bool, Error> {
        let mut rest = o;
        let mut results = Vec::new();
        if let Some((Operand::List(l), more)) = rest.split_first() {
            results = self.spans(l)?;
            rest = more;
        }
        let Some((target, rest)) = rest.split_first() else {
            return self.error("function expected");
        };
        let arguments = match rest.first() {
            Some(Operand::List(l)) => self.spans(l)?,
            _ => Vec::new(),
        };
        let mut a = NONE;
        let target = match target {
            Operand::Symbol(Symbol::Function(f), 0) => match self.callee_of.get(&(*f as usize)) {
                Some(&c) => Some(c),
                None => return self.error("call to a function that is not reachable"),
            },
            Operand::Register(_) => {
                a = self.source_bits(target, 64)?;
                None
            }
            _ => return self.error("function expected"),
        };
        let mut i = self.inst(Op::Call(Box::new(Call {
            target,
            arguments,
            results,
        })));
        i.a = a;
        self.push(i);
        Ok(true)
    }

    fn barrier(&mut self, op: &str, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        if m.take("warp") {
            if !m.take("sync") {
                return Ok(false);
            }
            let [mask] = self.operands(o)?;
            let mut i = self.inst(Op::WarpSync);
            i.a = self.source(mask, word)?;
            self.push(i);
            return Ok(true);
        }
        let cluster = m.take("cluster");
        self.clustered |= cluster;
        m.take("cta");
        let aligned = m.take("aligned");
        let _ = (aligned, op);
        m.one_of(&["acquire", "release", "relaxed"]);
        let kind = match m.one_of(&["sync", "arrive", "red", "wait"]) {
            Some("sync") => BarrierKind::Sync,
            Some("arrive") => BarrierKind::Arrive,
            Some("wait") => BarrierKind::Wait,
            Some("red") => match m.one_of(&["popc", "and", "or"]) {
                Some("popc") => BarrierKind::Popc,
                Some("and") => BarrierKind::And,
                Some("or") => BarrierKind::Or,
                _ => return self.error("reduction expected"),
            },
            _ => return self.error("barrier operation expected"),
        };
        let mut negate = false;
        let (mut c, mut d) = (NONE, NONE);
        let mut rest = o;
        match kind {
            BarrierKind::Popc | BarrierKind::And | BarrierKind::Or => {
                m.take("u32");
                m.take("pred");
                if o.len() < 3 {
                    return self.error("wrong number of operands");
                }
                let bits = if kind == BarrierKind::Popc { 32 } else { 1 };
                d = self.destination(&o[0], bits)?;
                (c, negate) = self.source_pred(&o[o.len() - 1])?;
                rest = &o[1..o.len() - 1];
            }
            _ => {}
        }
        let a = match rest.first() {
            Some(n) if !cluster => self.source(n, word)?,
            _ => self.constant(4, if cluster { 16 } else { 0 }),
        };
        let b = match rest.get(1) {
            Some(n) => self.source(n, word)?,
            None => self.constant(4, 0),
        };
        let mut i = self.inst(Op::Barrier(Box::new(Barrier { kind, negate })));
        (i.a, i.b, i.c, i.d) = (a, b, c, d);
        self.push(i);
        Ok(true)
    }
}
