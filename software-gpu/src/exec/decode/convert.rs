// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cvt`.

use super::super::lanes::{alu1, each, reg};
use super::super::program::{Inst, Op};
use super::super::soft::*;
use super::arithmetic::rounding;
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand};

/// The operation of a conversion that has no loop of its own, packed into [`Inst::imm`].
#[derive(Clone, Copy)]
struct Plan {
    from: Ty,
    to: Ty,
    rounding: u8,
    integral: bool,
    ftz: bool,
    sat: bool,
    relu: bool,
    tf32: bool,
    /// Bytes of a lane of the source and of the destination.
    source: u8,
    destination: u8,
}

fn kind(k: Kind) -> i64 {
    match k {
        Kind::Signed => 1,
        Kind::Float => 2,
        Kind::Bfloat => 3,
        _ => 0,
    }
}

fn unkind(k: i64) -> Kind {
    match k & 3 {
        1 => Kind::Signed,
        2 => Kind::Float,
        3 => Kind::Bfloat,
        _ => Kind::Unsigned,
    }
}

impl Plan {
    fn pack(self) -> i64 {
        kind(self.from.kind)
            | i64::from(self.from.bits) << 2
            | kind(self.to.kind) << 10
            | i64::from(self.to.bits) << 12
            | i64::from(self.rounding) << 20
            | i64::from(self.integral) << 24
            | i64::from(self.ftz) << 25
            | i64::from(self.sat) << 26
            | i64::from(self.relu) << 27
            | i64::from(self.tf32) << 28
            | i64::from(self.source) << 32
            | i64::from(self.destination) << 40
    }

    fn unpack(v: i64) -> Self {
        Self {
            from: Ty::new(unkind(v), (v >> 2) as u8),
            to: Ty::new(unkind(v >> 10), (v >> 12) as u8),
            rounding: (v >> 20 & 15) as u8,
            integral: v >> 24 & 1 != 0,
            ftz: v >> 25 & 1 != 0,
            sat: v >> 26 & 1 != 0,
            relu: v >> 27 & 1 != 0,
            tf32: v >> 28 & 1 != 0,
            source: (v >> 32) as u8,
            destination: (v >> 40) as u8,
        }
    }
}

#[derive(Clone, Copy)]
enum Value {
    Integer(i128),
    Float(f64),
}

fn format(t: Ty) -> Format {
    match (t.kind, t.bits) {
        (Kind::Bfloat, _) => BF16,
        (_, 16) => F16,
        _ => F32,
    }
}

fn is_float(t: Ty) -> bool {
    matches!(t.kind, Kind::Float | Kind::Bfloat)
}

fn low(x: u64, bits: u8) -> u64 {
    if bits >= 64 { x } else { x & ((1 << bits) - 1) }
}

fn to_integral(x: f64, rounding: u8) -> f64 {
    match rounding {
        RZ => x.trunc(),
        RM => x.floor(),
        RP => x.ceil(),
        _ => x.round_ties_even(),
    }
}

fn range(t: Ty) -> (i128, i128) {
    if t.signed() {
        (-(1i128 << (t.bits - 1)), (1i128 << (t.bits - 1)) - 1)
    } else {
        (0, (1i128 << t.bits) - 1)
    }
}

/// The conversion of one value; its result is extended to the destination's register.
fn convert(p: &Plan, raw: u64) -> u64 {
    let raw = low(raw, p.from.bits);
    let mut v = if is_float(p.from) {
        let mut x = match p.from.bits {
            64 => f64::from_bits(raw),
            32 => f64::from(f32::from_bits(raw as u32)),
            _ => widen(raw, format(p.from)),
        };
        if p.ftz && p.from.bits == 32 && x.abs() < f64::from(f32::MIN_POSITIVE) {
            x = 0f64.copysign(x);
        }
        Value::Float(x)
    } else if p.from.signed() {
        let s = 64 - u32::from(p.from.bits);
        Value::Integer(i128::from((raw << s) as i64 >> s))
    } else {
        Value::Integer(i128::from(raw))
    };
    if is_float(p.to) {
        if let Value::Float(x) = &mut v {
            if p.integral {
                *x = to_integral(*x, p.rounding);
            }
            if p.relu && *x < 0.0 {
                *x = 0.0;
            }
            if p.sat {
                *x = if *x > 0.0 { x.min(1.0) } else { 0.0 };
            }
        }
        return low(to_float(p, v), p.to.bits);
    }
    let (least, most) = range(p.to);
    let wrapped = match v {
        Value::Integer(i) if p.sat => i.clamp(least, most),
        Value::Integer(i) => i,
        Value::Float(x) if x.is_nan() => {
            // Zero, but for 64-bit types the pattern that only the top bit is set in.
            if p.from.bits == 64 || p.to.bits == 64 {
                1i128 << (p.to.bits - 1)
            } else {
                0
            }
        }
        Value::Float(x) => {
            let x = to_integral(x, p.rounding);
            // `as` saturates to i128, which is wider than any target.
            (x as i128).clamp(least, most)
        }
    };
    let bits = low(wrapped as u64, p.to.bits);
    if p.to.signed() {
        let s = 64 - u32::from(p.to.bits);
        ((bits << s) as i64 >> s) as u64
    } else {
        bits
    }
}

fn to_float(p: &Plan, v: Value) -> u64 {
    // The value as a double, and the lost part.
    let (s, e) = match v {
        Value::Float(x) => (x, 0.0),
        Value::Integer(i) => {
            let s = i as f64;
            (s, (i - s as i128) as f64)
        }
    };
    if p.to.bits == 64 {
        if s.is_nan() {
            return NAN64.to_bits();
        }
        let r = match p.rounding {
            RZ if e != 0.0 && (e > 0.0) != (s > 0.0) => {
                if s > 0.0 {
                    s.next_down()
                } else {
                    s.next_up()
                }
            }
            RM if e < 0.0 => s.next_down(),
            RP if e > 0.0 => s.next_up(),
            _ => s,
        };
        return r.to_bits();
    }
    if p.tf32 {
        let f = Format {
            mantissa: 10,
            exponent: 8,
            nan: 0x7fff_ffff >> 13,
        };
        return if s.is_nan() {
            F32.nan
        } else {
            narrow(s, e, p.rounding, f) << 13
        };
    }
    let r = narrow(s, e, p.rounding, format(p.to));
    if p.ftz && p.to.bits == 32 && r & 0x7f80_0000 == 0 {
        r & 0x8000_0000
    } else {
        r
    }
}

unsafe fn general(regs: *mut u8, i: &Inst, mask: u32) {
    let p = Plan::unpack(i.imm);
    // SAFETY: `Alu`'s contract; the plan knows the registers' widths.
    unsafe {
        each(mask, |l| {
            let raw = match p.source {
                1 => u64::from((*reg::<u8>(regs, i.a))[l]),
                2 => u64::from((*reg::<u16>(regs, i.a))[l]),
                4 => u64::from((*reg::<u32>(regs, i.a))[l]),
                _ => (*reg::<u64>(regs, i.a))[l],
            };
            let r = convert(&p, raw);
            match p.destination {
                1 => (*reg::<u8>(regs, i.d))[l] = r as u8,
                2 => (*reg::<u16>(regs, i.d))[l] = r as u16,
                4 => (*reg::<u32>(regs, i.d))[l] = r as u32,
                _ => (*reg::<u64>(regs, i.d))[l] = r,
            }
        });
    }
}

/// Two singles to a pair of halves: `a` becomes the upper one.
unsafe fn pack_pair(regs: *mut u8, i: &Inst, mask: u32) {
    let p = Plan::unpack(i.imm);
    // SAFETY: `Alu`'s contract.
    unsafe {
        each(mask, |l| {
            let high = convert(&p, u64::from((*reg::<u32>(regs, i.a))[l]));
            let low = convert(&p, u64::from((*reg::<u32>(regs, i.b))[l]));
            (*reg::<u32>(regs, i.d))[l] = (high << 16 | low) as u32;
        });
    }
}

impl Decoder<'_> {
    pub(super) fn convert(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let integral = m.one_of(&["rni", "rzi", "rmi", "rpi"]);
        let rounded = rounding(m);
        let (ftz, sat, relu) = (m.take("ftz"), m.take("sat"), m.take("relu"));
        // `.satfinite` belongs to formats that are not offered here, but for tf32, where it would change overflow.
        let tf32 = m.take("tf32");
        let to = if tf32 {
            Ty::new(Kind::Float, 32)
        } else {
            self.ty(m)?
        };
        let from = self.ty(m)?;
        let pair = matches!(to.kind, Kind::FloatPair | Kind::BfloatPair);
        let mode = match integral {
            Some("rzi") => RZ,
            Some("rmi") => RM,
            Some("rpi") => RP,
            Some(_) => RN,
            None => rounded.unwrap_or(RN),
        };
        // Float to integer without a mode truncates nowhere: the mode is mandatory.
        if is_float(from) && !is_float(to) && !pair && integral.is_none() {
            return self.error("integer rounding mode expected");
        }
        let mut plan = Plan {
            from,
            to,
            rounding: mode,
            integral: integral.is_some(),
            ftz,
            sat,
            relu,
            tf32,
            source: from.bits / 8,
            destination: to.bits / 8,
        };
        if pair {
            if from.bits != 32 || o.len() != 3 {
                return Ok(false);
            }
            let kind = if to.kind == Kind::FloatPair {
                Kind::Float
            } else {
                Kind::Bfloat
            };
            plan.to = Ty::new(kind, 16);
            let mut i = self.inst(Op::Alu(pack_pair));
            i.a = self.source(&o[1], from)?;
            i.b = self.source(&o[2], from)?;
            i.d = self.destination(&o[0], 32)?;
            i.imm = plan.pack();
            self.push(i);
            return Ok(true);
        }
        let [d, a] = self.operands(o)?;
        if matches!(from.kind, Kind::Pred | Kind::FloatPair | Kind::BfloatPair)
            || to.kind == Kind::Pred
        {
            return Ok(false);
        }
        // Registers may be wider than the types.
        let source = match a {
            Operand::Register(r) if self.width(*r) >= from.bits => self.width(*r),
            Operand::Register(_) => return self.error("register narrower than the type"),
            _ => from.bits,
        };
        let destination = match d {
            Operand::Register(r) if self.width(*r) >= to.bits => self.width(*r),
            _ => return self.error("destination narrower than the type"),
        };
        plan.source = source / 8;
        plan.destination = destination / 8;
        let a = match a {
            Operand::Register(r) => self.register(*r)?,
            _ => self.source(a, from)?,
        };
        let d = self.destination(d, destination)?;
        let exact = source == from.bits && destination == to.bits;
        if let Some(f) = fast(&plan, exact) {
            self.alu(f, d, &[a]);
            return Ok(true);
        }
        let mut i = self.inst(Op::Alu(general));
        (i.a, i.d, i.imm) = (a, d, plan.pack());
        self.push(i);
        Ok(true)
    }
}

/// Loops for the conversions that compilers write most.
fn fast(p: &Plan, exact: bool) -> Option<super::Alu> {
    let integers = !is_float(p.from) && !is_float(p.to);
    if integers && !p.sat {
        // Low bits of the source register, extended by the source's type, then by the destination's.
        return Some(
            match (
                p.from.signed(),
                p.from.bits,
                p.source,
                p.to.bits,
                p.destination,
            ) {
                (false, 32, 4, 64, 8) => alu1(|a: u32| u64::from(a)),
                (true, 32, 4, 64, 8) => alu1(|a: i32| i64::from(a)),
                (_, 64, 8, 32, 4) => alu1(|a: u64| a as u32),
                (_, 32, 4, 16, 2) => alu1(|a: u32| a as u16),
                (_, 64, 8, 16, 2) => alu1(|a: u64| a as u16),
                (false, 16, 2, 32, 4) => alu1(|a: u16| u32::from(a)),
                (true, 16, 2, 32, 4) => alu1(|a: i16| i32::from(a)),
                (false, 16, 2, 64, 8) => alu1(|a: u16| u64::from(a)),
                (true, 16, 2, 64, 8) => alu1(|a: i16| i64::from(a)),
                (false, 8, 2, 32, 4) => alu1(|a: u16| u32::from(a as u8)),
                (true, 8, 2, 32, 4) => alu1(|a: u16| i32::from(a as i8)),
                (false, 8, 4, 32, 4) => alu1(|a: u32| u32::from(a as u8)),
                (true, 8, 4, 32, 4) => alu1(|a: u32| i32::from(a as i8)),
                (false, 16, 4, 32, 4) => alu1(|a: u32| u32::from(a as u16)),
                (true, 16, 4, 32, 4) => alu1(|a: u32| i32::from(a as i16)),
                (false, 8, 2, 16, 2) => alu1(|a: u16| u16::from(a as u8)),
                (true, 8, 2, 16, 2) => alu1(|a: u16| i16::from(a as i8)),
                _ => return None,
            },
        );
    }
    if !exact
        || p.ftz
        || p.sat
        || p.relu
        || p.tf32
        || p.from.kind == Kind::Bfloat
        || p.to.kind == Kind::Bfloat
    {
        return None;
    }
    Some(
        match (p.from.kind, p.from.bits, p.to.kind, p.to.bits, p.rounding) {
            (Kind::Signed, 32, Kind::Float, 32, RN) => alu1(|a: i32| a as f32),
            (Kind::Unsigned, 32, Kind::Float, 32, RN) => alu1(|a: u32| a as f32),
            (Kind::Signed, 64, Kind::Float, 32, RN) => alu1(|a: i64| a as f32),
            (Kind::Unsigned, 64, Kind::Float, 32, RN) => alu1(|a: u64| a as f32),
            (Kind::Signed, 32, Kind::Float, 64, _) => alu1(|a: i32| f64::from(a)),
            (Kind::Unsigned, 32, Kind::Float, 64, _) => alu1(|a: u32| f64::from(a)),
            (Kind::Signed, 64, Kind::Float, 64, RN) => alu1(|a: i64| a as f64),
            (Kind::Unsigned, 64, Kind::Float, 64, RN) => alu1(|a: u64| a as f64),
            (Kind::Float, 32, Kind::Float, 64, _) if !p.integral => {
                alu1(|a: f32| finish64(f64::from(a)))
            }
            (Kind::Float, 64, Kind::Float, 32, RN) if !p.integral => {
                alu1(|a: f64| finish::<false, false>(a as f32))
            }
            (Kind::Float, 32, Kind::Signed, 32, RZ) => alu1(|a: f32| a as i32),
            (Kind::Float, 32, Kind::Unsigned, 32, RZ) => alu1(|a: f32| a as u32),
            (Kind::Float, 32, Kind::Signed, 32, RN) => alu1(|a: f32| a.round_ties_even() as i32),
            (Kind::Float, 32, Kind::Signed, 32, RM) => alu1(|a: f32| a.floor() as i32),
            (Kind::Float, 32, Kind::Float, 32, RZ) if p.integral => {
                alu1(|a: f32| finish::<false, false>(a.trunc()))
            }
            (Kind::Float, 32, Kind::Float, 32, RN) if p.integral => {
                alu1(|a: f32| finish::<false, false>(a.round_ties_even()))
            }
            (Kind::Float, 32, Kind::Float, 32, RM) if p.integral => {
                alu1(|a: f32| finish::<false, false>(a.floor()))
            }
            (Kind::Float, 64, Kind::Float, 64, RZ) if p.integral => {
                alu1(|a: f64| finish64(a.trunc()))
            }
            (Kind::Float, 64, Kind::Float, 64, RM) if p.integral => {
                alu1(|a: f64| finish64(a.floor()))
            }
            (Kind::Float, 64, Kind::Float, 64, RN) if p.integral => {
                alu1(|a: f64| finish64(a.round_ties_even()))
            }
            _ => return None,
        },
    )
}
