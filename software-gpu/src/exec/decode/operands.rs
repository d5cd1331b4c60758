// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Operands: from names and constants to registers.

use super::{Decoder, Kind, Mods, Ty, function_address, system};
use crate::exec::env;
use crate::exec::lanes::{alu1, alu2};
use crate::ptx::{Error, Operand, Symbol};

impl Decoder<'_> {
    /// The generic or window-relative value of a symbol, like that of `mov`.
    pub(super) fn symbol(&self, s: Symbol, offset: i64) -> u64 {
        let base = match s {
            Symbol::Global(g) => self.addresses[g as usize],
            Symbol::Shared(v) => self.shared.get(&v).copied().unwrap_or(self.dynamic_shared) as u64,
            Symbol::Local(v) | Symbol::ParamVar(v) => u64::from(self.locals[v as usize]),
            Symbol::KernelParam(at) => u64::from(at),
            Symbol::Function(f) => function_address(f as usize),
        };
        base.wrapping_add(offset as u64)
    }

    /// A register with a symbol's value.
    pub(super) fn register_of(&mut self, s: Symbol, offset: i64) -> u32 {
        let v = self.symbol(s, offset);
        let first = self.constant(8, v);
        match (s, self.shift) {
            (Symbol::Local(_), Some(shift)) => {
                let at = self.allocate(8);
                self.alu(
                    alu2(|a: u64, b: u64| a.wrapping_add(b)),
                    at,
                    &[first, shift],
                );
                at
            }
            _ => first,
        }
    }

    /// A constant operand's bits as a value of type `t`.
    fn immediate(&self, o: &Operand, t: Ty) -> Result<Option<u64>, Error> {
        let v = match *o {
            Operand::Integer(v) => match t {
                Ty {
                    kind: Kind::Float,
                    bits: 32,
                } => u64::from((v as f32).to_bits()),
                Ty {
                    kind: Kind::Float,
                    bits: 64,
                } => (v as f64).to_bits(),
                _ => v as u64,
            },
            Operand::Single(b) => match t {
                Ty { bits: 32, .. } => u64::from(b),
                Ty {
                    kind: Kind::Float,
                    bits: 64,
                } => f64::from(f32::from_bits(b)).to_bits(),
                _ => return self.error("single-precision constant in another type's place"),
            },
            Operand::Double(b) => match t {
                Ty { bits: 64, .. } => b,
                Ty {
                    kind: Kind::Float,
                    bits: 32,
                } => u64::from((f64::from_bits(b) as f32).to_bits()),
                _ => return self.error("double-precision constant in another type's place"),
            },
            Operand::Symbol(s, off) => self.symbol(s, off),
            _ => return Ok(None),
        };
        Ok(Some(v))
    }

    /// Special registers that change while a warp runs: emitted as a read into a scratch register.
    fn volatile_special(&mut self, name: &str, bytes: u8) -> Option<u32> {
        let which = match name {
            "%clock" | "%clock64" => 0,
            "%globaltimer" | "%globaltimer_lo" => 1,
            "%clock_hi" | "%globaltimer_hi" => 2,
            "%current_graph_exec" => 4,
            _ => return None,
        };
        let d = self.temp(bytes, 7);
        let mut i = self.env(env::read_special);
        i.d = d;
        i.wide = bytes == 8;
        i.imm = which;
        self.push(i);
        Some(d)
    }

    /// A source operand of type `t`; registers must have its width.
    pub(super) fn source(&mut self, o: &Operand, t: Ty) -> Result<u32, Error> {
        match o {
            Operand::Register(r) => {
                if self.width(*r) != t.bits {
                    return self.error("register of another width than the instruction's type");
                }
                self.register(*r)
            }
            Operand::Special(name) => self.special(name, t.bytes() as u8),
            Operand::Symbol(s @ Symbol::Local(_), offset) if self.shift.is_some() => {
                let at = self.register_of(*s, *offset);
                match t.bytes() {
                    8 => Ok(at),
                    4 => {
                        let low = self.allocate(4);
                        self.alu(alu1(|a: u64| a as u32), low, &[at]);
                        Ok(low)
                    }
                    _ => self.error("address in a place of another width"),
                }
            }
            _ => match self.immediate(o, t)? {
                Some(v) => Ok(self.constant(t.bytes(), v)),
                None => self.error(format!("unexpected operand {o:?}")),
            },
        }
    }

    pub(super) fn special(&mut self, name: &str, bytes: u8) -> Result<u32, Error> {
        if !matches!(bytes, 2 | 4 | 8) {
            return self.error("special register in a place of another width");
        }
        if let Some(at) = self.volatile_special(name, bytes) {
            return Ok(at);
        }
        match system::special(name) {
            Some(s) => Ok(self.special_slot(bytes, s)),
            None => self.error(format!("unknown register {name}")),
        }
    }

    /// A source of `bits` bits, registers of other widths refused.
    pub(super) fn source_bits(&mut self, o: &Operand, bits: u8) -> Result<u32, Error> {
        self.source(o, Ty::new(Kind::Bits, bits))
    }

    /// A predicate source and whether it is negated.
    pub(super) fn source_pred(&mut self, o: &Operand) -> Result<(u32, bool), Error> {
        match *o {
            Operand::Register(r) | Operand::Not(r) => {
                if self.width(r) != 1 {
                    return self.error("predicate expected");
                }
                Ok((self.register(r)?, matches!(o, Operand::Not(_))))
            }
            Operand::Integer(v) => Ok((self.constant(0, v as u64), false)),
            _ => self.error("predicate expected"),
        }
    }

    /// A destination of `bits` bits.
    pub(super) fn destination(&mut self, o: &Operand, bits: u8) -> Result<u32, Error> {
        match o {
            Operand::Register(r) if self.width(*r) == bits => self.register(*r),
            Operand::Register(_) => {
                self.error("destination of another width than the instruction's type")
            }
            Operand::Sink => Ok(if bits == 1 {
                self.temp(0, 6)
            } else {
                self.temp(bits / 8, 6)
            }),
            _ => self.error("destination expected"),
        }
    }

    /// Exactly `N` operands.
    pub(super) fn operands<'o, const N: usize>(
        &self,
        o: &'o [Operand],
    ) -> Result<&'o [Operand; N], Error> {
        match o.try_into() {
            Ok(a) => Ok(a),
            Err(_) => self.error(format!("{N} operands expected, {} found", o.len())),
        }
    }

    /// The type that the modifiers must have.
    pub(super) fn ty(&self, m: &mut Mods<'_>) -> Result<Ty, Error> {
        match m.ty() {
            Some(t) => Ok(t),
            None => self.error("type expected"),
        }
    }
}
