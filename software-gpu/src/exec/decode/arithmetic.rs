// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `add` … `tanh`: integer and floating-point arithmetic.

use super::super::lanes::{alu1, alu2, alu3, each, pred, reg, set_pred};
use super::super::program::Inst;
use super::super::soft::*;
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

/// Expands an expression for the integer type `$t`, called `$T` in it.
macro_rules! ints {
    ($d:expr, $t:expr, $T:ident => $e:expr) => {
        match ($t.signed(), $t.bits) {
            (false, 16) => {
                type $T = u16;
                $e
            }
            (true, 16) => {
                type $T = i16;
                $e
            }
            (false, 32) => {
                type $T = u32;
                $e
            }
            (true, 32) => {
                type $T = i32;
                $e
            }
            (false, 64) => {
                type $T = u64;
                $e
            }
            (true, 64) => {
                type $T = i64;
                $e
            }
            _ => return $d.error("integer type of 16, 32 or 64 bits expected"),
        }
    };
}
pub(super) use ints;

/// Expands an expression with two booleans as constants.
macro_rules! flags {
    ($x:expr, $y:expr, $X:ident, $Y:ident => $e:expr) => {
        match ($x, $y) {
            (false, false) => {
                const $X: bool = false;
                const $Y: bool = false;
                $e
            }
            (false, true) => {
                const $X: bool = false;
                const $Y: bool = true;
                $e
            }
            (true, false) => {
                const $X: bool = true;
                const $Y: bool = false;
                $e
            }
            (true, true) => {
                const $X: bool = true;
                const $Y: bool = true;
                $e
            }
        }
    };
}

/// Expands an expression with the rounding mode as a constant.
macro_rules! rounded {
    ($m:expr, $M:ident => $e:expr) => {
        match $m {
            RZ => {
                const $M: u8 = RZ;
                $e
            }
            RM => {
                const $M: u8 = RM;
                $e
            }
            RP => {
                const $M: u8 = RP;
                $e
            }
            _ => {
                const $M: u8 = RN;
                $e
            }
        }
    };
}

/// Adds with carry: bit 0 of `imm` reads the carry, bit 1 writes it, bit 2 subtracts; the carry is predicate `e`.
unsafe fn carry<T: Into<u64> + TryFrom<u64> + Copy>(regs: *mut u8, i: &Inst, mask: u32) {
    let bits = size_of::<T>() * 8;
    // SAFETY: `Alu`'s contract.
    unsafe {
        let cc = *pred(regs, i.e);
        let mut out = 0u32;
        each(mask, |l| {
            let a: u64 = (*reg::<T>(regs, i.a))[l].into();
            let b: u64 = (*reg::<T>(regs, i.b))[l].into();
            let c = u128::from(i.imm & 1 != 0 && cc >> l & 1 != 0);
            let (a, b) = (u128::from(a), u128::from(b));
            let r = if i.imm & 4 != 0 {
                a.wrapping_sub(b).wrapping_sub(c)
            } else {
                a + b + c
            };
            out |= ((r >> bits & 1) as u32) << l;
            let low = (r & ((1u128 << bits) - 1)) as u64;
            if let Ok(v) = T::try_from(low) {
                (*reg::<T>(regs, i.d))[l] = v;
            }
        });
        if i.imm & 2 != 0 {
            set_pred(regs, i.e, mask, out);
        }
    }
}

pub(super) fn rounding(m: &mut Mods<'_>) -> Option<u8> {
    Some(match m.one_of(&["rn", "rz", "rm", "rp", "rna"])? {
        "rz" => RZ,
        "rm" => RM,
        "rp" => RP,
        "rna" => RNA,
        _ => RN,
    })
}

impl Decoder<'_> {
    pub(super) fn arithmetic(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        if matches!(op, "dp4a" | "dp2a") {
            return self.dot(op, m, o);
        }
        if let Some(t) = m.one_of(&["u16x2", "s16x2"]) {
            return self.pairs(op, t, o);
        }
        let t = self.ty(m)?;
        match t.kind {
            Kind::Float if t.bits == 32 => self.single(op, m, o),
            Kind::Float if t.bits == 64 => self.double(op, m, o),
            Kind::Float | Kind::Bfloat | Kind::FloatPair | Kind::BfloatPair => {
                self.half(op, t, m, o)
            }
            _ => self.integer(op, t, m, o),
        }
    }

    fn unary(&mut self, t: Ty, o: &[Operand], f: super::Alu) -> Result<bool, Error> {
        let [d, a] = self.operands(o)?;
        let (a, d) = (self.source(a, t)?, self.destination(d, t.bits)?);
        self.alu(f, d, &[a]);
        Ok(true)
    }

    fn binary(&mut self, t: Ty, o: &[Operand], f: super::Alu) -> Result<bool, Error> {
        let [d, a, b] = self.operands(o)?;
        let (a, b) = (self.source(a, t)?, self.source(b, t)?);
        let d = self.destination(d, t.bits)?;
        self.alu(f, d, &[a, b]);
        Ok(true)
    }

    fn ternary(&mut self, t: Ty, o: &[Operand], f: super::Alu) -> Result<bool, Error> {
        let [d, a, b, c] = self.operands(o)?;
        let (a, b, c) = (self.source(a, t)?, self.source(b, t)?, self.source(c, t)?);
        let d = self.destination(d, t.bits)?;
        self.alu(f, d, &[a, b, c]);
        Ok(true)
    }

    fn integer(&mut self, op: &str, t: Ty, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let cc = m.take("cc");
        match op {
            "add" | "sub" | "addc" | "subc" if cc || op.len() == 4 => {
                let [d, a, b] = self.operands(o)?;
                let (a, b) = (self.source(a, t)?, self.source(b, t)?);
                let d = self.destination(d, t.bits)?;
                let imm = i64::from(op.len() == 4)
                    | i64::from(cc) << 1
                    | i64::from(op.starts_with("sub")) << 2;
                self.with_carry(t, imm, d, a, b)
            }
            "add" if m.take("sat") => self.binary(t, o, alu2(|a: i32, b: i32| a.saturating_add(b))),
            "sub" if m.take("sat") => self.binary(t, o, alu2(|a: i32, b: i32| a.saturating_sub(b))),
            "add" => {
                let f = ints!(self, t, T => alu2(|a: T, b: T| a.wrapping_add(b)));
                self.binary(t, o, f)
            }
            "sub" => {
                let f = ints!(self, t, T => alu2(|a: T, b: T| a.wrapping_sub(b)));
                self.binary(t, o, f)
            }
            "min" | "max" => {
                let relu = m.take("relu");
                let f = match (op == "min", relu) {
                    (true, false) => ints!(self, t, T => alu2(|a: T, b: T| a.min(b))),
                    (false, false) => ints!(self, t, T => alu2(|a: T, b: T| a.max(b))),
                    (true, true) => alu2(|a: i32, b: i32| a.min(b).max(0)),
                    (false, true) => alu2(|a: i32, b: i32| a.max(b).max(0)),
                };
                self.binary(t, o, f)
            }
            "div" => {
                let f = ints!(self, t, T => alu2(|a: T, b: T| if b == 0 { !0 } else { a.wrapping_div(b) }));
                self.binary(t, o, f)
            }
            "rem" => {
                let f = ints!(self, t, T => alu2(|a: T, b: T| if b == 0 { a } else { a.wrapping_rem(b) }));
                self.binary(t, o, f)
            }
            "abs" => {
                let f = match t.bits {
                    16 => alu1(|a: i16| a.wrapping_abs()),
                    32 => alu1(|a: i32| a.wrapping_abs()),
                    _ => alu1(|a: i64| a.wrapping_abs()),
                };
                self.unary(t, o, f)
            }
            "neg" => {
                let f = ints!(self, t, T => alu1(|a: T| (0 as T).wrapping_sub(a)));
                self.unary(t, o, f)
            }
            "sad" => {
                let f = ints!(self, t, T => alu3(|a: T, b: T, c: T| {
                    let d = if a > b { a.wrapping_sub(b) } else { b.wrapping_sub(a) };
                    c.wrapping_add(d)
                }));
                self.ternary(t, o, f)
            }
            "mul" | "mad" | "madc" | "mul24" | "mad24" => self.multiply(op, t, m, o, cc),
            _ => Ok(false),
        }
    }

    fn with_carry(&mut self, t: Ty, imm: i64, d: u32, a: u32, b: u32) -> Result<bool, Error> {
        let f = match t.bits {
            32 => carry::<u32> as super::Alu,
            64 => carry::<u64>,
            _ => return self.error("carry needs a type of 32 or 64 bits"),
        };
        let e = self.temp(0, 5);
        let mut i = self.inst(super::Op::Alu(f));
        (i.d, i.a, i.b, i.e, i.imm) = (d, a, b, e, imm);
        self.push(i);
        Ok(true)
    }

    fn multiply(
        &mut self,
        op: &str,
        t: Ty,
        m: &mut Mods<'_>,
        o: &[Operand],
        cc: bool,
    ) -> Result<bool, Error> {
        let add = op.starts_with("mad");
        if o.len() != if add { 4 } else { 3 } {
            return self.error("wrong number of operands");
        }
        let Some(part) = m.one_of(&["lo", "hi", "wide"]) else {
            return self.error("modifier .lo, .hi or .wide expected");
        };
        let (a, b) = (self.source(&o[1], t)?, self.source(&o[2], t)?);
        let out = if part == "wide" {
            Ty::new(t.kind, t.bits.saturating_mul(2))
        } else {
            t
        };
        let d = self.destination(&o[0], out.bits)?;
        let sat = m.take("sat");
        if op.ends_with("24") {
            let f = match (part, t.signed()) {
                ("lo", false) => alu2(|a: u32, b: u32| (a & 0xff_ffff).wrapping_mul(b & 0xff_ffff)),
                ("lo", true) => alu2(|a: i32, b: i32| (a << 8 >> 8).wrapping_mul(b << 8 >> 8)),
                (_, false) => alu2(|a: u32, b: u32| {
                    ((u64::from(a & 0xff_ffff) * u64::from(b & 0xff_ffff)) >> 16) as u32
                }),
                (_, true) => alu2(|a: i32, b: i32| {
                    ((i64::from(a << 8 >> 8) * i64::from(b << 8 >> 8)) >> 16) as i32
                }),
            };
            if !add {
                self.alu(f, d, &[a, b]);
                return Ok(true);
            }
            let c = self.source(&o[3], out)?;
            let p = self.temp(4, 0);
            self.alu(f, p, &[a, b]);
            let sum = if sat {
                alu2(|a: i32, b: i32| a.saturating_add(b))
            } else {
                alu2(|a: u32, b: u32| a.wrapping_add(b))
            };
            self.alu(sum, d, &[p, c]);
            return Ok(true);
        }
        if !add {
            let f = match part {
                "lo" => ints!(self, t, T => alu2(|a: T, b: T| a.wrapping_mul(b))),
                "wide" => match (t.signed(), t.bits) {
                    (false, 16) => alu2(|a: u16, b: u16| u32::from(a) * u32::from(b)),
                    (true, 16) => alu2(|a: i16, b: i16| i32::from(a) * i32::from(b)),
                    (false, 32) => alu2(|a: u32, b: u32| u64::from(a) * u64::from(b)),
                    (true, 32) => alu2(|a: i32, b: i32| i64::from(a) * i64::from(b)),
                    _ => return self.error("mul.wide of this type"),
                },
                _ => self.high(t)?,
            };
            self.alu(f, d, &[a, b]);
            return Ok(true);
        }
        let c = self.source(&o[3], out)?;
        if cc || op == "madc" {
            let f = if part == "lo" {
                ints!(self, t, T => alu2(|a: T, b: T| a.wrapping_mul(b)))
            } else {
                self.high(t)?
            };
            let p = self.temp(t.bytes() as u8, 0);
            self.alu(f, p, &[a, b]);
            let imm = i64::from(op == "madc") | i64::from(cc) << 1;
            return self.with_carry(t, imm, d, p, c);
        }
        let f = match part {
            "lo" => {
                ints!(self, t, T => alu3(|a: T, b: T, c: T| a.wrapping_mul(b).wrapping_add(c)))
            }
            "wide" => match (t.signed(), t.bits) {
                (false, 16) => {
                    alu3(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c))
                }
                (true, 16) => {
                    alu3(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c))
                }
                (false, 32) => {
                    alu3(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c))
                }
                (true, 32) => {
                    alu3(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c))
                }
                _ => return self.error("mad.wide of this type"),
            },
            _ => {
                let p = self.temp(t.bytes() as u8, 0);
                let f = self.high(t)?;
                self.alu(f, p, &[a, b]);
                let sum = if sat {
                    alu2(|a: i32, b: i32| a.saturating_add(b))
                } else {
                    ints!(self, t, T => alu2(|a: T, b: T| a.wrapping_add(b)))
                };
                self.alu(sum, d, &[p, c]);
                return Ok(true);
            }
        };
        self.alu(f, d, &[a, b, c]);
        Ok(true)
    }

    fn high(&self, t: Ty) -> Result<super::Alu, Error> {
        Ok(match (t.signed(), t.bits) {
            (false, 16) => alu2(|a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16),
            (true, 16) => alu2(|a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16),
            (false, 32) => alu2(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
            (true, 32) => alu2(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32),
            (false, 64) => alu2(|a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64),
            (true, 64) => alu2(|a: i64, b: i64| ((i128::from(a) * i128::from(b)) >> 64) as i64),
            _ => return self.error("integer type expected"),
        })
    }

    fn dot(&mut self, op: &str, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let high = if op == "dp2a" {
            m.one_of(&["lo", "hi"]) == Some("hi")
        } else {
            false
        };
        let (ta, tb) = (self.ty(m)?, self.ty(m)?);
        let [d, a, b, c] = self.operands(o)?;
        let a = self.source_bits(a, 32)?;
        let b = self.source_bits(b, 32)?;
        let c = self.source_bits(c, 32)?;
        let d = self.destination(d, 32)?;
        fn byte(x: u32, k: u32, signed: bool) -> i64 {
            let v = (x >> (8 * k)) as u8;
            if signed {
                i64::from(v as i8)
            } else {
                i64::from(v)
            }
        }
        fn word(x: u32, k: u32, signed: bool) -> i64 {
            let v = (x >> (16 * k)) as u16;
            if signed {
                i64::from(v as i16)
            } else {
                i64::from(v)
            }
        }
        let f = flags!(ta.signed(), tb.signed(), A, B => match (op, high) {
            ("dp4a", _) => alu3(|a: u32, b: u32, c: u32| {
                (0..4).fold(c, |s, k| s.wrapping_add((byte(a, k, A) * byte(b, k, B)) as u32))
            }),
            (_, false) => alu3(|a: u32, b: u32, c: u32| {
                (0..2).fold(c, |s, k| s.wrapping_add((word(a, k, A) * byte(b, k, B)) as u32))
            }),
            (_, true) => alu3(|a: u32, b: u32, c: u32| {
                (0..2).fold(c, |s, k| s.wrapping_add((word(a, k, A) * byte(b, k + 2, B)) as u32))
            }),
        });
        self.alu(f, d, &[a, b, c]);
        Ok(true)
    }

    fn pairs(&mut self, op: &str, t: &str, o: &[Operand]) -> Result<bool, Error> {
        fn both(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
            u32::from(f(a as u16, b as u16))
                | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
        }
        let f = match (op, t) {
            ("add", _) => alu2(|a: u32, b: u32| both(a, b, u16::wrapping_add)),
            ("min", "u16x2") => alu2(|a: u32, b: u32| both(a, b, |x, y| x.min(y))),
            ("max", "u16x2") => alu2(|a: u32, b: u32| both(a, b, |x, y| x.max(y))),
            ("min", _) => alu2(|a: u32, b: u32| both(a, b, |x, y| (x as i16).min(y as i16) as u16)),
            ("max", _) => alu2(|a: u32, b: u32| both(a, b, |x, y| (x as i16).max(y as i16) as u16)),
            _ => return Ok(false),
        };
        self.binary(Ty::new(Kind::Bits, 32), o, f)
    }

    fn single(&mut self, op: &str, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let t = Ty::new(Kind::Float, 32);
        let ftz = m.take("ftz");
        let sat = m.take("sat");
        let approximate = m.take("approx") | m.take("full");
        let mode = rounding(m).unwrap_or(RN);
        macro_rules! f1 {
            ($x:ident => $e:expr) => {
                flags!(ftz, sat, FTZ, SAT => alu1(|a: f32| {
                    let $x = flush_if::<FTZ>(a);
                    finish::<FTZ, SAT>($e)
                }))
            };
        }
        Ok(match op {
            "add" | "sub" => {
                let f = if op == "add" {
                    rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu2(|a: f32, b: f32| {
                        finish::<FTZ, SAT>(add32::<M>(flush_if::<FTZ>(a), flush_if::<FTZ>(b)))
                    })))
                } else {
                    rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu2(|a: f32, b: f32| {
                        finish::<FTZ, SAT>(add32::<M>(flush_if::<FTZ>(a), -flush_if::<FTZ>(b)))
                    })))
                };
                self.binary(t, o, f)?
            }
            "mul" => {
                let f = rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu2(|a: f32, b: f32| {
                    finish::<FTZ, SAT>(mul32::<M>(flush_if::<FTZ>(a), flush_if::<FTZ>(b)))
                })));
                self.binary(t, o, f)?
            }
            "fma" | "mad" => {
                let f = rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu3(|a: f32, b: f32, c: f32| {
                    finish::<FTZ, SAT>(fma32::<M>(
                        flush_if::<FTZ>(a),
                        flush_if::<FTZ>(b),
                        flush_if::<FTZ>(c),
                    ))
                })));
                self.ternary(t, o, f)?
            }
            "div" => {
                let f = rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu2(|a: f32, b: f32| {
                    finish::<FTZ, SAT>(div32::<M>(flush_if::<FTZ>(a), flush_if::<FTZ>(b)))
                })));
                self.binary(t, o, f)?
            }
            "rcp" => {
                let f = rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu1(|a: f32| {
                    finish::<FTZ, SAT>(div32::<M>(1.0, flush_if::<FTZ>(a)))
                })));
                self.unary(t, o, f)?
            }
            "sqrt" => {
                let f = rounded!(mode, M => flags!(ftz, sat, FTZ, SAT => alu1(|a: f32| {
                    finish::<FTZ, SAT>(sqrt32::<M>(flush_if::<FTZ>(a)))
                })));
                self.unary(t, o, f)?
            }
            "rsqrt" if approximate => {
                let f = f1!(x => (1.0 / f64::from(x).sqrt().copysign(f64::from(x))) as f32);
                self.unary(t, o, f)?
            }
            "sin" if approximate => self.unary(t, o, f1!(x => x.sin()))?,
            "cos" if approximate => self.unary(t, o, f1!(x => x.cos()))?,
            "lg2" if approximate => self.unary(t, o, f1!(x => x.log2()))?,
            "ex2" if approximate => self.unary(t, o, f1!(x => x.exp2()))?,
            "tanh" if approximate => self.unary(t, o, f1!(x => x.tanh()))?,
            "abs" => {
                let f = if ftz {
                    alu1(|a: f32| flush(a).abs())
                } else {
                    alu1(|a: u32| a & 0x7fff_ffff)
                };
                self.unary(t, o, f)?
            }
            "neg" => {
                let f = if ftz {
                    alu1(|a: f32| -flush(a))
                } else {
                    alu1(|a: u32| a ^ 0x8000_0000)
                };
                self.unary(t, o, f)?
            }
            "min" | "max" => {
                let nan = m.take("NaN");
                if m.take("xorsign") {
                    if !m.take("abs") {
                        return self.error("modifier .abs expected");
                    }
                    let f = flags!(ftz, nan, FTZ, NAN => if op == "min" {
                        alu2(|a: f32, b: f32| {
                            let (a, b) = (flush_if::<FTZ>(a), flush_if::<FTZ>(b));
                            let s = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
                            let r = min32::<NAN>(a.abs(), b.abs());
                            finish::<false, false>(f32::from_bits(r.to_bits() | s))
                        })
                    } else {
                        alu2(|a: f32, b: f32| {
                            let (a, b) = (flush_if::<FTZ>(a), flush_if::<FTZ>(b));
                            let s = (a.to_bits() ^ b.to_bits()) & 0x8000_0000;
                            let r = max32::<NAN>(a.abs(), b.abs());
                            finish::<false, false>(f32::from_bits(r.to_bits() | s))
                        })
                    });
                    return self.binary(t, o, f);
                }
                let f = flags!(ftz, nan, FTZ, NAN => if op == "min" {
                    alu2(|a: f32, b: f32| {
                        finish::<FTZ, false>(min32::<NAN>(flush_if::<FTZ>(a), flush_if::<FTZ>(b)))
                    })
                } else {
                    alu2(|a: f32, b: f32| {
                        finish::<FTZ, false>(max32::<NAN>(flush_if::<FTZ>(a), flush_if::<FTZ>(b)))
                    })
                });
                self.binary(t, o, f)?
            }
            "copysign" => {
                let f = alu2(|a: u32, b: u32| (b & 0x7fff_ffff) | (a & 0x8000_0000));
                self.binary(t, o, f)?
            }
            _ => false,
        })
    }

    fn double(&mut self, op: &str, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let t = Ty::new(Kind::Float, 64);
        let approximate = m.take("approx");
        if approximate {
            // Only the upper half of the operand counts, and only the upper half of the result is written.
            m.take("ftz");
            fn upper(x: f64) -> f64 {
                f64::from_bits(x.to_bits() & 0xffff_ffff_0000_0000)
            }
            fn zeroed(x: f64) -> f64 {
                if x.is_subnormal() {
                    0f64.copysign(x)
                } else {
                    x
                }
            }
            let f = match op {
                "rcp" => alu1(|a: f64| upper(zeroed(finish64(1.0 / zeroed(upper(a)))))),
                "rsqrt" => alu1(|a: f64| {
                    let x = zeroed(upper(a));
                    upper(finish64(1.0 / x.sqrt().copysign(x)))
                }),
                _ => return Ok(false),
            };
            return self.unary(t, o, f);
        }
        let mode = rounding(m).unwrap_or(RN);
        Ok(match op {
            "add" => {
                let f = rounded!(mode, M => alu2(|a: f64, b: f64| finish64(add64::<M>(a, b))));
                self.binary(t, o, f)?
            }
            "sub" => {
                let f = rounded!(mode, M => alu2(|a: f64, b: f64| finish64(add64::<M>(a, -b))));
                self.binary(t, o, f)?
            }
            "mul" => {
                let f = rounded!(mode, M => alu2(|a: f64, b: f64| finish64(mul64::<M>(a, b))));
                self.binary(t, o, f)?
            }
            "div" => {
                let f = rounded!(mode, M => alu2(|a: f64, b: f64| finish64(div64::<M>(a, b))));
                self.binary(t, o, f)?
            }
            "fma" | "mad" => {
                let f = rounded!(mode, M => alu3(|a: f64, b: f64, c: f64| finish64(fma64::<M>(a, b, c))));
                self.ternary(t, o, f)?
            }
            "rcp" => {
                let f = rounded!(mode, M => alu1(|a: f64| finish64(div64::<M>(1.0, a))));
                self.unary(t, o, f)?
            }
            "sqrt" => {
                let f = rounded!(mode, M => alu1(|a: f64| finish64(sqrt64::<M>(a))));
                self.unary(t, o, f)?
            }
            "abs" => self.unary(t, o, alu1(|a: u64| a & !(1 << 63)))?,
            "neg" => self.unary(t, o, alu1(|a: u64| a ^ (1 << 63)))?,
            "min" => self.binary(t, o, alu2(|a: f64, b: f64| finish64(min64(a, b))))?,
            "max" => self.binary(t, o, alu2(|a: f64, b: f64| finish64(max64(a, b))))?,
            "copysign" => {
                let f = alu2(|a: u64, b: u64| (b & !(1 << 63)) | (a & (1 << 63)));
                self.binary(t, o, f)?
            }
            _ => false,
        })
    }
}
