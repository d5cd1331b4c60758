// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Logic, shifts, bit fields and the byte-wise video instructions.

use super::super::lanes::{alu1, alu2, alu3, alu4, logic};
use super::super::lanes::{each, reg};
use super::super::program::{Inst, Op};
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

macro_rules! bits {
    ($d:expr, $t:expr, $T:ident => $e:expr) => {
        match $t.bits {
            16 => {
                type $T = u16;
                $e
            }
            32 => {
                type $T = u32;
                $e
            }
            64 => {
                type $T = u64;
                $e
            }
            _ => return $d.error("type of 16, 32 or 64 bits expected"),
        }
    };
}

fn prmt(sources: u64, k: u32) -> u32 {
    let byte = (sources >> (8 * (k & 7))) as u8;
    if k & 8 != 0 {
        u32::from(((byte as i8) >> 7) as u8)
    } else {
        u32::from(byte)
    }
}

fn pick(sources: u64, k: [u32; 4]) -> u32 {
    k.iter().rev().fold(0, |r, &k| r << 8 | prmt(sources, k))
}

fn join(a: u32, b: u32) -> u64 {
    u64::from(b) << 32 | u64::from(a)
}

fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    if base > 31 {
        return !0;
    }
    if offset == 0 {
        return if mask >> base & 1 != 0 { base } else { !0 };
    }
    let mut left = offset.unsigned_abs();
    let mut at = base as i32;
    while (0..32).contains(&at) {
        if mask >> at & 1 != 0 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += offset.signum();
    }
    !0
}

/// Any function of three bits; its table is `imm`.
unsafe fn lop3(regs: *mut u8, i: &Inst, mask: u32) {
    // SAFETY: `Alu`'s contract.
    unsafe {
        each(mask, |l| {
            let a = (*reg::<u32>(regs, i.a))[l];
            let b = (*reg::<u32>(regs, i.b))[l];
            let c = (*reg::<u32>(regs, i.c))[l];
            let mut r = 0;
            for k in 0..8 {
                if i.imm >> k & 1 != 0 {
                    r |= (if k & 4 != 0 { a } else { !a })
                        & (if k & 2 != 0 { b } else { !b })
                        & (if k & 1 != 0 { c } else { !c });
                }
            }
            (*reg::<u32>(regs, i.d))[l] = r;
        });
    }
}

/// Video instructions on `imm & 7` parts; the other bits: signed a, signed b, signed d, sat, operation, accumulate.
unsafe fn video(regs: *mut u8, i: &Inst, mask: u32) {
    let parts = (i.imm & 7) as u32;
    let width = 32 / parts;
    let part = |x: u32, k: u32, signed: bool| -> i64 {
        let v = i64::from(x >> (k * width)) & ((1i64 << width) - 1);
        if signed {
            v << (64 - width) >> (64 - width)
        } else {
            v
        }
    };
    let (sa, sb, sd, sat) = (
        i.imm & 8 != 0,
        i.imm & 16 != 0,
        i.imm & 32 != 0,
        i.imm & 64 != 0,
    );
    let (op, accumulate) = (i.imm >> 8 & 15, i.imm >> 12 & 15);
    // SAFETY: `Alu`'s contract.
    unsafe {
        each(mask, |l| {
            let a = (*reg::<u32>(regs, i.a))[l];
            let b = (*reg::<u32>(regs, i.b))[l];
            let c = (*reg::<u32>(regs, i.c))[l];
            let mut r = if accumulate == 1 { c } else { 0 };
            for k in 0..parts {
                let (x, y) = (part(a, k, sa), part(b, k, sb));
                let mut v = match op {
                    0 => (x - y).abs(),
                    1 => x + y,
                    2 => x - y,
                    3 => x.min(y),
                    4 => x.max(y),
                    _ => (x + y + 1) >> 1,
                };
                if sat {
                    v = if sd {
                        v.clamp(-(1 << (width - 1)), (1 << (width - 1)) - 1)
                    } else {
                        v.clamp(0, (1 << width) - 1)
                    };
                }
                if accumulate == 1 {
                    r = r.wrapping_add(v as u32);
                } else {
                    r |= ((v & ((1i64 << width) - 1)) as u32) << (k * width);
                }
            }
            (*reg::<u32>(regs, i.d))[l] = match accumulate {
                2 if sd => (r as i32).min(c as i32) as u32,
                2 => r.min(c),
                3 if sd => (r as i32).max(c as i32) as u32,
                3 => r.max(c),
                _ => r,
            };
        });
    }
}

impl Decoder<'_> {
    pub(super) fn bits(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        if op.starts_with('v') {
            return self.video(op, m, o);
        }
        let mode = m.one_of(&["l", "r", "clamp", "wrap"]);
        let second = m.one_of(&["clamp", "wrap"]);
        let Some(t) = m.ty() else {
            return self.error("type expected");
        };
        match op {
            "and" | "or" | "xor" | "not" if t.kind == Kind::Pred => self.predicate(op, o),
            "and" | "or" | "xor" => self.two_operands(op, t, o),
            "not" | "cnot" | "brev" => self.one_operand(op, t, o),
            "popc" | "clz" | "bfind" => self.count(op, t, m, o),
            "shl" | "shr" => self.shift(op, t, o),
            "shf" => self.funnel_shift(mode, second, o),
            "bfe" => self.extract(t, o),
            "bfi" => self.insert(t, o),
            "bmsk" => self.mask(mode, o),
            "szext" => self.extend(mode, t, o),
            "prmt" => self.permute(m, o),
            "fns" => self.words(o, alu3(|a: u32, b: u32, c: i32| fns(a, b, c))),
            "lop3" => self.look_up(o),
            _ => Ok(false),
        }
    }

    /// `and`, `or` and `xor`.
    fn two_operands(&mut self, op: &str, t: Ty, o: &[Operand]) -> Result<bool, Error> {
        let [d, a, b] = self.operands(o)?;
        let (a, b) = (self.source(a, t)?, self.source(b, t)?);
        let d = self.destination(d, t.bits)?;
        let f = match op {
            "and" => bits!(self, t, T => alu2(|a: T, b: T| a & b)),
            "or" => bits!(self, t, T => alu2(|a: T, b: T| a | b)),
            _ => bits!(self, t, T => alu2(|a: T, b: T| a ^ b)),
        };
        self.alu(f, d, &[a, b]);
        Ok(true)
    }

    /// `not`, `cnot` and `brev`.
    fn one_operand(&mut self, op: &str, t: Ty, o: &[Operand]) -> Result<bool, Error> {
        let [d, a] = self.operands(o)?;
        let (a, d) = (self.source(a, t)?, self.destination(d, t.bits)?);
        let f = match op {
            "not" => bits!(self, t, T => alu1(|a: T| !a)),
            "cnot" => bits!(self, t, T => alu1(|a: T| T::from(a == 0))),
            _ => bits!(self, t, T => alu1(|a: T| a.reverse_bits())),
        };
        self.alu(f, d, &[a]);
        Ok(true)
    }

    /// `popc`, `clz` and `bfind`.
    fn count(&mut self, op: &str, t: Ty, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let shiftamt = m.take("shiftamt");
        let [d, a] = self.operands(o)?;
        let (a, d) = (self.source(a, t)?, self.destination(d, 32)?);
        let f = match (op, t.signed()) {
            ("popc", _) => bits!(self, t, T => alu1(|a: T| a.count_ones())),
            ("clz", _) => bits!(self, t, T => alu1(|a: T| a.leading_zeros())),
            (_, false) => {
                bits!(self, t, T => alu1(|a: T| (T::BITS - 1).wrapping_sub(a.leading_zeros())))
            }
            (_, true) if t.bits == 32 => {
                alu1(|a: i32| 31u32.wrapping_sub((if a < 0 { !a } else { a }).leading_zeros()))
            }
            (_, true) => {
                alu1(|a: i64| 63u32.wrapping_sub((if a < 0 { !a } else { a }).leading_zeros()))
            }
        };
        self.alu(f, d, &[a]);
        if shiftamt {
            let f = if t.bits == 32 {
                alu1(|r: u32| if r == !0 { r } else { 31 - r })
            } else {
                alu1(|r: u32| if r == !0 { r } else { 63 - r })
            };
            self.alu(f, d, &[d]);
        }
        Ok(true)
    }

    /// `shl` and `shr`.
    fn shift(&mut self, op: &str, t: Ty, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let [d, a, b] = self.operands(o)?;
        let (a, b) = (self.source(a, t)?, self.source(b, word)?);
        let d = self.destination(d, t.bits)?;
        let f = match (op, t.signed()) {
            ("shl", _) => {
                bits!(self, t, T => alu2(|a: T, n: u32| if n < T::BITS { a << n } else { 0 }))
            }
            (_, false) => {
                bits!(self, t, T => alu2(|a: T, n: u32| if n < T::BITS { a >> n } else { 0 }))
            }
            (_, true) => match t.bits {
                16 => alu2(|a: i16, n: u32| a >> n.min(15)),
                32 => alu2(|a: i32, n: u32| a >> n.min(31)),
                _ => alu2(|a: i64, n: u32| a >> n.min(63)),
            },
        };
        self.alu(f, d, &[a, b]);
        Ok(true)
    }

    /// `shf`.
    fn funnel_shift(
        &mut self,
        mode: Option<&str>,
        second: Option<&str>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        let f = match (mode, second) {
            (Some("l"), Some("wrap")) => {
                alu3(|a: u32, b: u32, n: u32| (join(a, b) << (n & 31) >> 32) as u32)
            }
            (Some("l"), Some(_)) => {
                alu3(|a: u32, b: u32, n: u32| (join(a, b) << n.min(32) >> 32) as u32)
            }
            (Some("r"), Some("wrap")) => {
                alu3(|a: u32, b: u32, n: u32| (join(a, b) >> (n & 31)) as u32)
            }
            (Some("r"), Some(_)) => alu3(|a: u32, b: u32, n: u32| (join(a, b) >> n.min(32)) as u32),
            _ => return Ok(false),
        };
        self.words(o, f)
    }

    /// `bfe`.
    fn extract(&mut self, t: Ty, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let [d, a, b, c] = self.operands(o)?;
        let a = self.source(a, t)?;
        let (b, c) = (self.source(b, word)?, self.source(c, word)?);
        let d = self.destination(d, t.bits)?;
        macro_rules! field {
            ($T:ty, $S:ty, $signed:expr) => {
                alu3(|a: $T, pos: u32, len: u32| -> $T {
                    let (pos, len) = (pos & 0xff, len & 0xff);
                    if len == 0 {
                        return 0;
                    }
                    let bits = <$T>::BITS;
                    let fill: $T = if $signed && a >> (pos + len - 1).min(bits - 1) & 1 != 0 {
                        !0
                    } else {
                        0
                    };
                    let v = if pos < bits { a >> pos } else { 0 };
                    let valid = len.min(bits.saturating_sub(pos));
                    let keep: $T = if valid >= bits { !0 } else { (1 << valid) - 1 };
                    (v & keep) | (fill & !keep)
                })
            };
        }
        let f = match (t.bits, t.signed()) {
            (32, false) => field!(u32, i32, false),
            (32, true) => field!(u32, i32, true),
            (64, false) => field!(u64, i64, false),
            (64, true) => field!(u64, i64, true),
            _ => return Ok(false),
        };
        self.alu(f, d, &[a, b, c]);
        Ok(true)
    }

    /// `bfi`.
    fn insert(&mut self, t: Ty, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let [d, a, b, c, n] = self.operands(o)?;
        let (a, b) = (self.source(a, t)?, self.source(b, t)?);
        let (c, n) = (self.source(c, word)?, self.source(n, word)?);
        let d = self.destination(d, t.bits)?;
        macro_rules! insert {
            ($T:ty) => {
                alu4(|a: $T, b: $T, pos: u32, len: u32| -> $T {
                    let (pos, len) = (pos & 0xff, len & 0xff);
                    let bits = <$T>::BITS;
                    if len == 0 || pos >= bits {
                        return b;
                    }
                    let field: $T = if len >= bits { !0 } else { (1 << len) - 1 };
                    (b & !(field << pos)) | (a & field) << pos
                })
            };
        }
        let f = match t.bits {
            32 => insert!(u32),
            64 => insert!(u64),
            _ => return Ok(false),
        };
        self.alu(f, d, &[a, b, c, n]);
        Ok(true)
    }

    /// `bmsk`.
    fn mask(&mut self, mode: Option<&str>, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let [d, a, b] = self.operands(o)?;
        let (a, b) = (self.source(a, word)?, self.source(b, word)?);
        let d = self.destination(d, 32)?;
        let f = match mode {
            Some("clamp") => alu2(|a: u32, b: u32| {
                let field = (1u64 << b.min(32)) - 1;
                (field << a.min(32)) as u32
            }),
            Some("wrap") => alu2(|a: u32, b: u32| {
                let field = (1u64 << (b & 31)) - 1;
                (field << (a & 31)) as u32
            }),
            _ => return Ok(false),
        };
        self.alu(f, d, &[a, b]);
        Ok(true)
    }

    /// `szext`.
    fn extend(&mut self, mode: Option<&str>, t: Ty, o: &[Operand]) -> Result<bool, Error> {
        let word = Ty::new(Kind::Unsigned, 32);
        let [d, a, b] = self.operands(o)?;
        let (a, b) = (self.source(a, t)?, self.source(b, word)?);
        let d = self.destination(d, 32)?;
        let f = match (mode, t.signed()) {
            (Some("clamp"), false) => {
                alu2(|a: u32, n: u32| (u64::from(a) & ((1u64 << n.min(32)) - 1)) as u32)
            }
            (Some("wrap"), false) => alu2(|a: u32, n: u32| a & ((1u32 << (n & 31)) - 1)),
            (Some("clamp"), true) => alu2(|a: i32, n: u32| match n {
                0 => 0,
                1..=31 => a << (32 - n) >> (32 - n),
                _ => a,
            }),
            (Some("wrap"), true) => alu2(|a: i32, n: u32| match n & 31 {
                0 => 0,
                n => a << (32 - n) >> (32 - n),
            }),
            _ => return Ok(false),
        };
        self.alu(f, d, &[a, b]);
        Ok(true)
    }

    /// `prmt`.
    fn permute(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let f = match m.one_of(&["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"]) {
            None => alu3(|a: u32, b: u32, c: u32| {
                pick(join(a, b), [c & 15, c >> 4 & 15, c >> 8 & 15, c >> 12 & 15])
            }),
            Some("f4e") => alu3(|a: u32, b: u32, c: u32| {
                let k = c & 3;
                pick(join(a, b), [k, k + 1, k + 2, k + 3])
            }),
            Some("b4e") => alu3(|a: u32, b: u32, c: u32| {
                let k = c & 3;
                pick(join(a, b), [k, (k + 7) & 7, (k + 6) & 7, (k + 5) & 7])
            }),
            Some("rc8") => alu3(|a: u32, b: u32, c: u32| pick(join(a, b), [c & 3; 4])),
            Some("ecl") => alu3(|a: u32, b: u32, c: u32| {
                let k = c & 3;
                pick(join(a, b), [k, 1.max(k), 2.max(k), 3])
            }),
            Some("ecr") => alu3(|a: u32, b: u32, c: u32| {
                let k = c & 3;
                pick(join(a, b), [0, 1.min(k), 2.min(k), k])
            }),
            Some(_) => alu3(|a: u32, b: u32, c: u32| {
                let k = (c & 1) * 2;
                pick(join(a, b), [k, k + 1, k, k + 1])
            }),
        };
        self.words(o, f)
    }

    /// `lop3`.
    fn look_up(&mut self, o: &[Operand]) -> Result<bool, Error> {
        let [d, a, b, c, table] = self.operands(o)?;
        let Operand::Integer(table) = *table else {
            return self.error("lop3's table must be a constant");
        };
        let mut i = self.inst(Op::Alu(lop3));
        i.a = self.source_bits(a, 32)?;
        i.b = self.source_bits(b, 32)?;
        i.c = self.source_bits(c, 32)?;
        i.d = self.destination(d, 32)?;
        i.imm = table & 0xff;
        self.push(i);
        Ok(true)
    }

    fn words(&mut self, o: &[Operand], f: super::Alu) -> Result<bool, Error> {
        let [d, a, b, c] = self.operands(o)?;
        let a = self.source_bits(a, 32)?;
        let b = self.source_bits(b, 32)?;
        let c = self.source_bits(c, 32)?;
        let d = self.destination(d, 32)?;
        self.alu(f, d, &[a, b, c]);
        Ok(true)
    }

    fn predicate(&mut self, op: &str, o: &[Operand]) -> Result<bool, Error> {
        let f = match op {
            "and" => logic(|a: u32, b: u32| a & b),
            "or" => logic(|a: u32, b: u32| a | b),
            "xor" => logic(|a: u32, b: u32| a ^ b),
            _ => logic(|a: u32, _: u32| !a),
        };
        let mut i = self.inst(Op::Alu(f));
        if o.len() != if op == "not" { 2 } else { 3 } {
            return self.error("wrong number of operands");
        }
        let (a, negated) = self.source_pred(&o[1])?;
        i.a = a;
        i.imm = i64::from(negated);
        i.b = a;
        if op != "not" {
            let (b, negated) = self.source_pred(&o[2])?;
            i.b = b;
            i.imm |= i64::from(negated) << 1;
        }
        i.d = self.destination(&o[0], 1)?;
        self.push(i);
        Ok(true)
    }

    fn video(&mut self, op: &str, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let (td, ta, tb) = (self.ty(m)?, self.ty(m)?, self.ty(m)?);
        let sat = m.take("sat");
        let accumulate = match m.one_of(&["add", "min", "max"]) {
            None => 0,
            Some("add") => 1,
            Some("min") => 2,
            Some(_) => 3,
        };
        let (name, parts) = match op.as_bytes().last() {
            Some(b'4') => (&op[..op.len() - 1], 4),
            Some(b'2') => (&op[..op.len() - 1], 2),
            _ => (op, 1),
        };
        let kind = match name {
            "vabsdiff" => 0,
            "vadd" => 1,
            "vsub" => 2,
            "vmin" => 3,
            "vmax" => 4,
            "vavrg" => 5,
            _ => return Ok(false),
        };
        // With two or four parts, min and max would combine with c part by part, which is not implemented.
        if parts > 1 && accumulate > 1 {
            return Ok(false);
        }
        if o.len() < 3 || o.len() > 4 {
            return self.error("wrong number of operands");
        }
        let mut i = self.inst(Op::Alu(video));
        i.a = self.source_bits(&o[1], 32)?;
        i.b = self.source_bits(&o[2], 32)?;
        i.c = match o.get(3) {
            Some(c) => self.source_bits(c, 32)?,
            None => self.constant(4, 0),
        };
        i.d = self.destination(&o[0], 32)?;
        i.imm = parts
            | i64::from(ta.signed()) << 3
            | i64::from(tb.signed()) << 4
            | i64::from(td.signed()) << 5
            | i64::from(sat) << 6
            | kind << 8
            | accumulate << 12;
        self.push(i);
        Ok(true)
    }
}
