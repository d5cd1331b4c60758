// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `mov`, `cvta`, `isspacep`: values and addresses.

use super::super::env::{LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW};
use super::super::lanes::{alu1, alu2, each, logic, test};
use super::super::program::{Inst, NONE, Op};
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Error, Operand, Symbol};

/// Splits register `a` of `imm` bytes into the registers of `list`.
unsafe fn unpack(regs: *mut u8, i: &Inst, mask: u32) {
    let size = i.imm as usize;
    let part = size / i.list.len();
    // SAFETY: `Alu`'s contract; lanes are copied byte by byte because the parts' widths differ.
    unsafe {
        each(mask, |l| {
            let mut v = [0u8; 16];
            std::ptr::copy_nonoverlapping(regs.add(i.a as usize + l * size), v.as_mut_ptr(), size);
            for (k, &d) in i.list.iter().enumerate() {
                if d != NONE {
                    let to = regs.add(d as usize + l * part);
                    std::ptr::copy_nonoverlapping(v.as_ptr().add(k * part), to, part);
                }
            }
        });
    }
}

/// Joins the registers of `list` into `d` of `imm` bytes.
unsafe fn pack(regs: *mut u8, i: &Inst, mask: u32) {
    let size = i.imm as usize;
    let part = size / i.list.len();
    // SAFETY: as in `unpack`.
    unsafe {
        each(mask, |l| {
            let mut v = [0u8; 16];
            for (k, &s) in i.list.iter().enumerate() {
                let from = regs.add(s as usize + l * part);
                std::ptr::copy_nonoverlapping(from, v.as_mut_ptr().add(k * part), part);
            }
            std::ptr::copy_nonoverlapping(v.as_ptr(), regs.add(i.d as usize + l * size), size);
        });
    }
}

impl Decoder<'_> {
    pub(super) fn data(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        match op {
            "mov" => self.mov(m, o),
            "cvta" => {
                let to = m.take("to");
                let space = m.one_of(&[
                    "global",
                    "shared",
                    "local",
                    "const",
                    "param",
                    "shared::cta",
                    "shared::cluster",
                    "param::entry",
                ]);
                let t = self.ty(m)?;
                let [d, a] = self.operands(o)?;
                if t.bits != 64 {
                    return self.error("only 64-bit generic addresses are supported");
                }
                let a = self.source(a, t)?;
                let d = self.destination(d, 64)?;
                let window = match space {
                    Some("shared" | "shared::cta" | "shared::cluster") => SHARED_WINDOW,
                    Some("local") => LOCAL_WINDOW,
                    Some("param" | "param::entry") => PARAM_WINDOW,
                    Some(_) => 0,
                    None => return self.error("state space expected"),
                };
                let by = self.constant(8, if to { window.wrapping_neg() } else { window });
                self.alu(alu2(|a: u64, b: u64| a.wrapping_add(b)), d, &[a, by]);
                Ok(true)
            }
            "isspacep" => {
                let space = m.first();
                let [p, a] = self.operands(o)?;
                let a = self.source_bits(a, 64)?;
                let p = self.destination(p, 1)?;
                let f = match space {
                    Some("shared" | "shared::cta" | "shared::cluster") => {
                        test(|a: u64| a >> 60 == SHARED_WINDOW >> 60)
                    }
                    Some("local") => test(|a: u64| a >> 60 == LOCAL_WINDOW >> 60),
                    Some("param" | "param::entry") => test(|a: u64| a >> 60 == PARAM_WINDOW >> 60),
                    Some("global") => test(|a: u64| a >> 60 == 0),
                    // Constant variables live in global memory; generic loads reach them either way.
                    Some("const") => test(|_: u64| false),
                    _ => return Ok(false),
                };
                self.alu(f, p, &[a]);
                Ok(true)
            }
            "getctarank" => {
                m.one_of(&["shared::cluster"]);
                let t = self.ty(m)?;
                let [d, a] = self.operands(o)?;
                self.source(a, t)?;
                let r = self.special_slot(4, super::Special::ClusterCtaRank);
                let d = self.destination(d, 32)?;
                self.alu(alu1(|a: u32| a), d, &[r]);
                Ok(true)
            }
            "mapa" => {
                // Clusters of one block: every rank is the block's own. Launches with larger ones are refused.
                self.clustered = true;
                m.one_of(&["shared::cluster"]);
                let t = self.ty(m)?;
                let [d, a, _] = self.operands(o)?;
                let (a, d) = (self.source(a, t)?, self.destination(d, t.bits)?);
                let f = if t.bits == 64 {
                    alu1(|a: u64| a)
                } else {
                    alu1(|a: u32| a)
                };
                self.alu(f, d, &[a]);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn mov(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let t = self.ty(m)?;
        let [d, a] = self.operands(o)?;
        if t.kind == Kind::Pred {
            let (a, negated) = self.source_pred(a)?;
            let mut i = self.inst(Op::Alu(logic(|a: u32, _: u32| a)));
            (i.a, i.b, i.imm) = (a, a, i64::from(negated));
            i.d = self.destination(d, 1)?;
            self.push(i);
            return Ok(true);
        }
        if let Operand::Vector(parts) = d {
            let mut i = self.inst(Op::Alu(unpack));
            i.imm = t.bytes() as i64;
            i.a = self.source_bits(a, t.bits)?;
            let bits = self.part(t, parts)?;
            let mut list = Vec::new();
            for p in parts {
                list.push(match p {
                    Operand::Sink => NONE,
                    _ => self.destination(p, bits)?,
                });
            }
            i.list = list.into();
            self.push(i);
            return Ok(true);
        }
        if let Operand::Vector(parts) = a {
            let mut i = self.inst(Op::Alu(pack));
            i.imm = t.bytes() as i64;
            let bits = self.part(t, parts)?;
            let mut list = Vec::new();
            for p in parts {
                list.push(self.source_bits(p, bits)?);
            }
            i.list = list.into();
            i.d = self.destination(d, t.bits)?;
            self.push(i);
            return Ok(true);
        }
        let d = self.destination(d, t.bits)?;
        // The address of a kernel parameter, or of a device function's own parameter, is taken for a later ld.param.
        let a = match a {
            Operand::Symbol(s @ (Symbol::KernelParam(_) | Symbol::ParamVar(_)), off) => {
                let v = self.symbol(*s, *off);
                self.constant(t.bytes(), v)
            }
            _ => self.source(a, Ty::new(t.kind, t.bits))?,
        };
        let f = match t.bits {
            8 => alu1(|a: u8| a),
            16 => alu1(|a: u16| a),
            32 => alu1(|a: u32| a),
            64 => alu1(|a: u64| a),
            128 => alu1(|a: u128| a),
            _ => return Ok(false),
        };
        self.alu(f, d, &[a]);
        Ok(true)
    }

    /// Bits of each part of a vector that makes up a value of type `t`.
    fn part(&self, t: Ty, parts: &[Operand]) -> Result<u8, Error> {
        match parts.len() {
            2 | 4 if t.bits / parts.len() as u8 >= 8 => Ok(t.bits / parts.len() as u8),
            _ => self.error("vector of two or four parts expected"),
        }
    }
}
