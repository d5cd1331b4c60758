// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Comparisons and selections.

#![allow(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "an unordered comparison is the negation of its opposite"
)]

use super::super::lanes::{
    COMBINE_AND, COMBINE_NOT, COMBINE_OR, COMBINE_XOR, alu3, selp, set, setp, test,
};
use super::super::program::{NONE, Op};
use super::super::soft::{BF16, F16, flush, widen};
use super::arithmetic::ints;
use super::{Alu, Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

/// The comparisons of one type, by `setp` or `set`.
macro_rules! comparisons {
    ($make:ident, $T:ty, $op:expr, |$x:ident| $get:expr) => {{
        fn get($x: $T) -> impl PartialOrd + Copy {
            $get
        }
        Some(match $op {
            "eq" => $make(|a: $T, b: $T| get(a) == get(b)),
            "ne" => $make(|a: $T, b: $T| get(a) < get(b) || get(a) > get(b)),
            "lt" | "lo" => $make(|a: $T, b: $T| get(a) < get(b)),
            "le" | "ls" => $make(|a: $T, b: $T| get(a) <= get(b)),
            "gt" | "hi" => $make(|a: $T, b: $T| get(a) > get(b)),
            "ge" | "hs" => $make(|a: $T, b: $T| get(a) >= get(b)),
            "equ" => $make(|a: $T, b: $T| !(get(a) < get(b) || get(a) > get(b))),
            "neu" => $make(|a: $T, b: $T| get(a) != get(b)),
            "ltu" => $make(|a: $T, b: $T| !(get(a) >= get(b))),
            "leu" => $make(|a: $T, b: $T| !(get(a) > get(b))),
            "gtu" => $make(|a: $T, b: $T| !(get(a) <= get(b))),
            "geu" => $make(|a: $T, b: $T| !(get(a) < get(b))),
            "num" => $make(|a: $T, b: $T| get(a).partial_cmp(&get(b)).is_some()),
            "nan" => $make(|a: $T, b: $T| get(a).partial_cmp(&get(b)).is_none()),
            _ => None?,
        })
    }};
}

macro_rules! typed {
    ($name:ident, $make:ident) => {
        fn $name(op: &str, t: Ty, ftz: bool) -> Option<Alu> {
            match (t.kind, t.bits) {
                (Kind::Float, 16) => comparisons!($make, u16, op, |x| widen(u64::from(x), F16)),
                (Kind::Bfloat, 16) => comparisons!($make, u16, op, |x| widen(u64::from(x), BF16)),
                (Kind::Float, 32) if ftz => comparisons!($make, f32, op, |x| flush(x)),
                (Kind::Float, 32) => comparisons!($make, f32, op, |x| x),
                (Kind::Float, _) => comparisons!($make, f64, op, |x| x),
                (Kind::Signed, 16) => comparisons!($make, i16, op, |x| x),
                (Kind::Signed, 32) => comparisons!($make, i32, op, |x| x),
                (Kind::Signed, 64) => comparisons!($make, i64, op, |x| x),
                (Kind::Unsigned | Kind::Bits, 16) => comparisons!($make, u16, op, |x| x),
                (Kind::Unsigned | Kind::Bits, 32) => comparisons!($make, u32, op, |x| x),
                (Kind::Unsigned | Kind::Bits, 64) => comparisons!($make, u64, op, |x| x),
                _ => None,
            }
        }
    };
}
typed!(into_predicate, setp);
typed!(into_word, set);

const OPERATORS: [&str; 18] = [
    "eq", "ne", "lt", "le", "gt", "ge", "lo", "ls", "hi", "hs", "equ", "neu", "ltu", "leu", "gtu",
    "geu", "num", "nan",
];

impl Decoder<'_> {
    pub(super) fn compare(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        match op {
            "selp" => {
                let t = self.ty(m)?;
                let [d, a, b, c] = self.operands(o)?;
                let f: Alu = match t.bits {
                    16 => selp::<u16>,
                    32 => selp::<u32>,
                    64 => selp::<u64>,
                    _ => return Ok(false),
                };
                let mut i = self.inst(Op::Alu(f));
                i.a = self.source(a, t)?;
                i.b = self.source(b, t)?;
                let (c, negated) = self.source_pred(c)?;
                i.c = c;
                i.imm = i64::from(negated);
                i.d = self.destination(d, t.bits)?;
                self.push(i);
                Ok(true)
            }
            "slct" => {
                let ftz = m.take("ftz");
                let (t, tc) = (self.ty(m)?, self.ty(m)?);
                let [d, a, b, c] = self.operands(o)?;
                let (a, b, c) = (self.source(a, t)?, self.source(b, t)?, self.source(c, tc)?);
                let d = self.destination(d, t.bits)?;
                let t = Ty::new(Kind::Unsigned, t.bits);
                let f = match (tc.kind, ftz) {
                    (Kind::Signed, _) => {
                        ints!(self, t, T => alu3(|a: T, b: T, c: i32| if c >= 0 { a } else { b }))
                    }
                    // Without flush a negative subnormal is below zero, with it it is not.
                    (Kind::Float, false) => {
                        ints!(self, t, T => alu3(|a: T, b: T, c: f32| if c >= 0.0 { a } else { b }))
                    }
                    (Kind::Float, true) => {
                        ints!(self, t, T => alu3(|a: T, b: T, c: f32| if flush(c) >= 0.0 { a } else { b }))
                    }
                    _ => return Ok(false),
                };
                self.alu(f, d, &[a, b, c]);
                Ok(true)
            }
            "testp" => {
                let Some(what) = m.one_of(&[
                    "finite",
                    "infinite",
                    "number",
                    "notanumber",
                    "normal",
                    "subnormal",
                ]) else {
                    return self.error("test expected");
                };
                let t = self.ty(m)?;
                let [d, a] = self.operands(o)?;
                macro_rules! tests {
                    ($T:ty) => {
                        match what {
                            "finite" => test(|a: $T| a.is_finite()),
                            "infinite" => test(|a: $T| a.is_infinite()),
                            "number" => test(|a: $T| !a.is_nan()),
                            "notanumber" => test(|a: $T| a.is_nan()),
                            "normal" => test(|a: $T| a.is_normal()),
                            _ => test(|a: $T| a.is_subnormal()),
                        }
                    };
                }
                let f = match t.bits {
                    32 => tests!(f32),
                    64 => tests!(f64),
                    _ => return Ok(false),
                };
                let (a, d) = (self.source(a, t)?, self.destination(d, 1)?);
                self.alu(f, d, &[a]);
                Ok(true)
            }
            _ => self.set(op, m, o),
        }
    }

    fn set(&mut self, op: &str, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let Some(cmp) = m.one_of(&OPERATORS) else {
            return self.error("comparison expected");
        };
        let ftz = m.take("ftz");
        let combine = match m.one_of(&["and", "or", "xor"]) {
            None => 0,
            Some("and") => COMBINE_AND,
            Some("or") => COMBINE_OR,
            Some(_) => COMBINE_XOR,
        };
        let out = if op == "set" { Some(self.ty(m)?) } else { None };
        let t = self.ty(m)?;
        if matches!(t.kind, Kind::FloatPair | Kind::BfloatPair) {
            return self.compare_pairs(cmp, combine, ftz, t, out, o);
        }
        let signed_form = match cmp {
            "lo" | "ls" | "hi" | "hs" => Ty::new(Kind::Unsigned, t.bits),
            _ => t,
        };
        let f = if out.is_some() {
            into_word(cmp, signed_form, ftz)
        } else {
            into_predicate(cmp, signed_form, ftz)
        };
        let Some(f) = f else { return Ok(false) };
        if o.len() != if combine == 0 { 3 } else { 4 } {
            return self.error("wrong number of operands");
        }
        let mut i = self.inst(Op::Alu(f));
        i.a = self.source(&o[1], t)?;
        i.b = self.source(&o[2], t)?;
        i.imm = combine;
        if combine != 0 {
            let (c, negated) = self.source_pred(&o[3])?;
            i.c = c;
            i.imm |= if negated { COMBINE_NOT } else { 0 };
        }
        i.e = NONE;
        match (out, &o[0]) {
            (Some(out), d) => {
                i.d = self.destination(d, out.bits)?;
                i.wide = out.kind == Kind::Float;
                if out.bits == 16 {
                    let one = match out.kind {
                        Kind::Float => 0x3c00,
                        Kind::Bfloat => 0x3f80,
                        _ => 0xffff,
                    };
                    i.list = Box::new([one]);
                } else if out.bits != 32 {
                    return Ok(false);
                }
            }
            (None, Operand::Pair(p, q)) => {
                i.d = self.destination(p, 1)?;
                if **q != Operand::Sink {
                    i.e = self.destination(q, 1)?;
                }
            }
            (None, d) => i.d = self.destination(d, 1)?,
        }
        self.push(i);
        Ok(true)
    }
}
