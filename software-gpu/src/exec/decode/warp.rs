// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Operations across the lanes of a warp.

use super::super::collective as run;
use super::super::program::{EnvFn, Inst, NONE, Op};
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

/// The code of a reduction for [`run::reduce`].
fn reduction(kind: &str, t: Ty, abs: bool, nan: bool) -> Option<i64> {
    Some(match (kind, t.kind) {
        ("min" | "max", Kind::Float) => {
            9 + i64::from(kind == "max") + i64::from(abs) * 16 + i64::from(nan) * 32
        }
        (_, Kind::Float) => return None,
        ("add", _) => 0,
        ("min", Kind::Signed) => 1,
        ("max", Kind::Signed) => 2,
        ("min", _) => 3,
        ("max", _) => 4,
        ("and", _) => 5,
        ("or", _) => 6,
        _ => 7,
    })
}

impl Decoder<'_> {
    pub(super) fn collective(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let sync = m.take("sync");
        if op == "activemask" {
            return self.active_mask(m, o);
        }
        let Some((mask, rest)) = o.split_last() else {
            return self.error("operands expected");
        };
        // Without `.sync` (PTX before 6.0) all active lanes take part.
        let (members, rest) = if sync {
            (self.source(mask, word)?, rest)
        } else {
            (self.constant(4, 0), o)
        };
        let Some((d, sources)) = rest.split_first() else {
            return self.error("destination expected");
        };
        let mut i = self.inst(Op::Nop);
        i.e = members;
        let f: EnvFn = match op {
            "shfl" => {
                let mode = match m.one_of(&["up", "down", "bfly", "idx"]) {
                    Some("up") => 0,
                    Some("down") => 1,
                    Some("bfly") => 2,
                    Some(_) => 3,
                    None => return self.error("shuffle mode expected"),
                };
                let t = self.ty(m)?;
                let [a, b, c] = self.operands(sources)?;
                if t.bits != 32 {
                    return Ok(false);
                }
                i.a = self.source(a, t)?;
                i.b = self.source(b, word)?;
                i.c = self.source(c, word)?;
                i.imm = mode;
                self.pair(&mut i, d, 32)?;
                run::shuffle
            }
            "vote" => {
                let kind = match m.one_of(&["all", "any", "uni", "ballot"]) {
                    Some("all") => 0,
                    Some("any") => 1,
                    Some("uni") => 2,
                    Some(_) => 3,
                    None => return self.error("vote mode expected"),
                };
                m.one_of(&["pred", "b32"]);
                let [p] = self.operands(sources)?;
                let (p, negated) = self.source_pred(p)?;
                i.a = p;
                i.imm = kind | i64::from(negated) << 4;
                i.d = self.destination(d, if kind == 3 { 32 } else { 1 })?;
                run::vote
            }
            "match" => {
                let all = m.one_of(&["any", "all"]) == Some("all");
                let t = self.ty(m)?;
                let [a] = self.operands(sources)?;
                i.a = self.source(a, t)?;
                i.wide = t.bits == 64;
                i.imm = i64::from(all);
                self.pair(&mut i, d, 32)?;
                run::matching
            }
            "elect" => {
                self.pair(&mut i, d, 32)?;
                run::elect
            }
            "redux" => {
                let Some(kind) = m.one_of(&["add", "min", "max", "and", "or", "xor"]) else {
                    return self.error("reduction expected");
                };
                let (abs, nan) = (m.take("abs"), m.take("NaN"));
                let t = self.ty(m)?;
                if t.bits != 32 {
                    return Ok(false);
                }
                let [a] = self.operands(sources)?;
                i.a = self.source(a, t)?;
                i.d = self.destination(d, 32)?;
                let Some(code) = reduction(kind, t, abs, nan) else {
                    return Ok(false);
                };
                i.imm = code;
                run::reduce
            }
            _ => return Ok(false),
        };
        i.op = Op::Collective(f);
        self.push(i);
        Ok(true)
    }

    fn active_mask(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        m.take("b32");
        let [d] = self.operands(o)?;
        let mut i = self.env(super::super::env::read_special);
        i.imm = 3;
        i.d = self.destination(d, 32)?;
        self.push(i);
        Ok(true)
    }

    /// `d|p`: destination and, in `list`, the predicate.
    fn pair(&mut self, i: &mut Inst, o: &Operand, bits: u8) -> Result<(), Error> {
        let (d, p) = match o {
            Operand::Pair(d, p) => (&**d, Some(&**p)),
            d => (d, None),
        };
        i.d = self.destination(d, bits)?;
        let p = match p {
            Some(Operand::Sink) | None => NONE,
            Some(p) => self.destination(p, 1)?,
        };
        i.list = Box::new([p]);
        Ok(())
    }
}
