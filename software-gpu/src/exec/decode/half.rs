// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Arithmetic of 16-bit floats and pairs of them.

use super::super::lanes::{each, pred, reg, set_pred};
use super::super::program::{Inst, NONE, Op};
use super::super::soft::{BF16, F16, Format, RN, narrow, two_sum, widen};
use super::arithmetic::rounding;
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

const FTZ: i64 = 1;
const SAT: i64 = 2;
const RELU: i64 = 4;
const NAN: i64 = 8;
const XORSIGN: i64 = 16;
const OPERATION: u32 = 8;

/// One result of the operation in `imm`.
fn one<const BF: bool>(imm: i64, a: u16, b: u16, c: u16) -> u16 {
    let f: Format = if BF { BF16 } else { F16 };
    let top = if BF { 0x7f80u16 } else { 0x7c00 };
    let flush = |x: u16| {
        if imm & FTZ != 0 && x & top == 0 {
            x & 0x8000
        } else {
            x
        }
    };
    let (a, b, c) = (flush(a), flush(b), flush(c));
    let get = |x: u16| widen(u64::from(x), f);
    let round = |s: f64, e: f64| narrow(s, e, RN, f) as u16;
    let fma = |x: f64, y: f64, z: f64| {
        let p = x * y;
        let (s, e) = two_sum(p, z);
        round(s, if s.is_finite() && s != 0.0 { e } else { 0.0 })
    };
    let nan = |x: u16| get(x).is_nan();
    let r = match imm >> OPERATION {
        0 => fma(get(a), 1.0, get(b)),
        1 => fma(get(a), 1.0, -get(b)),
        2 => round(get(a) * get(b), 0.0),
        3 => fma(get(a), get(b), get(c)),
        4 => a ^ 0x8000,
        5 => a & 0x7fff,
        k @ (6 | 7) => {
            let sign = if imm & XORSIGN != 0 {
                (a ^ b) & 0x8000
            } else {
                0
            };
            let strip = |x: u16| if imm & XORSIGN != 0 { x & 0x7fff } else { x };
            let (x, y) = (strip(a), strip(b));
            let r = if imm & NAN != 0 && (nan(x) || nan(y)) || nan(x) && nan(y) {
                0x7fff
            } else if nan(x) {
                y
            } else if nan(y) {
                x
            } else if get(x) == get(y) {
                if k == 6 { x | y } else { x & y }
            } else if (get(x) < get(y)) == (k == 6) {
                x
            } else {
                y
            };
            if nan(r) { r } else { r | sign }
        }
        8 => round(get(a).exp2(), 0.0),
        _ => round(get(a).tanh(), 0.0),
    };
    let mut r = flush(r);
    if imm & SAT != 0 {
        let v = get(r);
        r = if v > 0.0 {
            if v < 1.0 { r } else { round(1.0, 0.0) }
        } else {
            0
        };
    }
    if imm & RELU != 0 && !nan(r) && r & 0x8000 != 0 {
        r = 0;
    }
    r
}

unsafe fn scalar<const BF: bool>(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: `Alu`'s contract.
    unsafe {
        each(mask, |l| {
            let (a, b, c) = (
                (*reg::<u16>(regs, i.a))[l],
                (*reg::<u16>(regs, i.b))[l],
                (*reg::<u16>(regs, i.c))[l],
            );
            (*reg::<u16>(regs, i.d))[l] = one::<BF>(i.imm, a, b, c);
        });
    }
}

unsafe fn pair<const BF: bool>(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: `Alu`'s contract.
    unsafe {
        each(mask, |l| {
            let (a, b, c) = (
                (*reg::<u32>(regs, i.a))[l],
                (*reg::<u32>(regs, i.b))[l],
                (*reg::<u32>(regs, i.c))[l],
            );
            let low = one::<BF>(i.imm, a as u16, b as u16, c as u16);
            let high = one::<BF>(i.imm, (a >> 16) as u16, (b >> 16) as u16, (c >> 16) as u16);
            (*reg::<u32>(regs, i.d))[l] = u32::from(low) | u32::from(high) << 16;
        });
    }
}

/// Comparison `k` (eq ne lt le gt ge, then with NaN true, then num nan) of two values.
fn compare(k: i64, a: f64, b: f64) -> bool {
    let unordered = a.is_nan() || b.is_nan();
    match k {
        0 => a == b,
        1 => !unordered && a != b,
        2 => a < b,
        3 => a <= b,
        4 => a > b,
        5 => a >= b,
        6 => unordered || a == b,
        7 => a != b,
        8 => unordered || a < b,
        9 => unordered || a <= b,
        10 => unordered || a > b,
        11 => unordered || a >= b,
        12 => !unordered,
        _ => unordered,
    }
}

/// `setp` and `set` on pairs. `imm`: comparison, then combination (bits 8 and 9), negation (10), flush (11), bfloat
/// (12), form of the result (from 16: 0 predicates `d` and `e`, 1 halves of ones, 2 f16 1.0, 3 bf16 1.0).
unsafe fn compare_pair(regs: *mut u8, i: &Inst, mask: u32) {
    let bf = i.imm >> 12 & 1 != 0;
    let f = if bf { BF16 } else { F16 };
    let top = if bf { 0x7f80 } else { 0x7c00u32 };
    let get = |x: u32| {
        let x = if i.imm >> 11 & 1 != 0 && x & top == 0 {
            x & 0x8000
        } else {
            x
        };
        widen(u64::from(x), f)
    };
    // SAFETY: `Alu`'s contract.
    unsafe {
        let mut bits = [0u32; 2];
        for l in 0..32 {
            let (a, b) = ((*reg::<u32>(regs, i.a))[l], (*reg::<u32>(regs, i.b))[l]);
            for (h, bits) in bits.iter_mut().enumerate() {
                let (x, y) = (a >> (16 * h) & 0xffff, b >> (16 * h) & 0xffff);
                *bits |= u32::from(compare(i.imm & 0xff, get(x), get(y))) << l;
            }
        }
        if i.c != NONE {
            let c = *pred(regs, i.c) ^ if i.imm >> 10 & 1 != 0 { !0 } else { 0 };
            for b in &mut bits {
                *b = match i.imm >> 8 & 3 {
                    1 => *b & c,
                    2 => *b | c,
                    _ => *b ^ c,
                };
            }
        }
        let truth = match i.imm >> 16 {
            0 => {
                set_pred(regs, i.d, mask, bits[0]);
                set_pred(regs, i.e, mask, bits[1]);
                return;
            }
            1 => 0xffff,
            2 => 0x3c00,
            _ => 0x3f80u32,
        };
        each(mask, |l| {
            let part = |b: u32| if b >> l & 1 != 0 { truth } else { 0 };
            (*reg::<u32>(regs, i.d))[l] = part(bits[0]) | part(bits[1]) << 16;
        });
    }
}

impl Decoder<'_> {
    pub(super) fn half(
        &mut self,
        op: &str,
        t: Ty,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        let mut imm = 0;
        for (name, bit) in [
            ("ftz", FTZ),
            ("sat", SAT),
            ("relu", RELU),
            ("NaN", NAN),
            ("xorsign", XORSIGN),
        ] {
            if m.take(name) {
                imm |= bit;
            }
        }
        if imm & XORSIGN != 0 {
            m.take("abs");
        }
        if !matches!(rounding(m), None | Some(RN)) {
            return Ok(false);
        }
        let (k, n) = match op {
            "add" => (0, 2),
            "sub" => (1, 2),
            "mul" => (2, 2),
            "fma" => (3, 3),
            "neg" => (4, 1),
            "abs" => (5, 1),
            "min" => (6, 2),
            "max" => (7, 2),
            "ex2" if m.take("approx") => (8, 1),
            "tanh" if m.take("approx") => (9, 1),
            _ => return Ok(false),
        };
        if o.len() != n + 1 {
            return self.error("wrong number of operands");
        }
        let f: super::Alu = match t.kind {
            Kind::Float => scalar::<false>,
            Kind::Bfloat => scalar::<true>,
            Kind::FloatPair => pair::<false>,
            _ => pair::<true>,
        };
        let mut i = self.inst(Op::Alu(f));
        let mut places = [0; 3];
        for (k, p) in places.iter_mut().enumerate() {
            *p = self.source_bits(&o[1 + k.min(n - 1)], t.bits)?;
        }
        [i.a, i.b, i.c] = places;
        i.d = self.destination(&o[0], t.bits)?;
        i.imm = imm | k << OPERATION;
        self.push(i);
        Ok(true)
    }

    pub(super) fn compare_pairs(
        &mut self,
        cmp: &str,
        combine: i64,
        ftz: bool,
        t: Ty,
        out: Option<Ty>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        let names = [
            "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num",
            "nan",
        ];
        let Some(k) = names.iter().position(|n| *n == cmp) else {
            return Ok(false);
        };
        let mut i = self.inst(Op::Alu(compare_pair));
        let form = match out.map(|t| t.kind) {
            None => 0,
            Some(Kind::FloatPair) => 2,
            Some(Kind::BfloatPair) => 3,
            Some(_) => 1,
        };
        i.imm = k as i64
            | combine << 8
            | i64::from(ftz) << 11
            | i64::from(t.kind == Kind::BfloatPair) << 12
            | form << 16;
        if o.len() != if combine == 0 { 3 } else { 4 } {
            return self.error("wrong number of operands");
        }
        i.a = self.source_bits(&o[1], 32)?;
        i.b = self.source_bits(&o[2], 32)?;
        if combine != 0 {
            let (c, negated) = self.source_pred(&o[3])?;
            i.c = c;
            i.imm |= i64::from(negated) << 10;
        }
        match &o[0] {
            Operand::Pair(p, q) if form == 0 => {
                i.d = self.destination(p, 1)?;
                i.e = match **q {
                    Operand::Sink => self.temp(0, 4),
                    _ => self.destination(q, 1)?,
                };
            }
            d if form == 0 => {
                i.d = self.destination(d, 1)?;
                i.e = self.temp(0, 4);
            }
            d => i.d = self.destination(d, 32)?,
        }
        self.push(i);
        Ok(true)
    }
}
