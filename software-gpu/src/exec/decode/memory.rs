// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Loads, stores and atomic operations.

use super::super::atomic;
use super::super::env::{GENERIC, LOCAL, PARAM, SHARED, load, store};
use super::super::program::{EnvFn, Inst, NONE, Op};
use super::super::system;
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Base, Error, Operand, Symbol};

/// Expands a generic function for a state space.
macro_rules! spaces {
    ($space:expr, $f:ident < $($g:ty),* >) => {
        match $space {
            SHARED => $f::<$($g,)* SHARED> as EnvFn,
            LOCAL => $f::<$($g,)* LOCAL>,
            PARAM => $f::<$($g,)* PARAM>,
            _ => $f::<$($g,)* GENERIC>,
        }
    };
}

/// The load of a type into registers of this width.
fn load_of(space: u8, t: Ty, width: u8) -> Option<EnvFn> {
    Some(match (t.bits, t.signed(), width) {
        (8, false, 8) | (8, true, 8) => spaces!(space, load<u8, u8>),
        (8, false, 16) => spaces!(space, load<u8, u16>),
        (8, false, 32) => spaces!(space, load<u8, u32>),
        (8, false, 64) => spaces!(space, load<u8, u64>),
        (8, true, 16) => spaces!(space, load<i8, u16>),
        (8, true, 32) => spaces!(space, load<i8, u32>),
        (8, true, 64) => spaces!(space, load<i8, u64>),
        (16, _, 16) => spaces!(space, load<u16, u16>),
        (16, false, 32) => spaces!(space, load<u16, u32>),
        (16, false, 64) => spaces!(space, load<u16, u64>),
        (16, true, 32) => spaces!(space, load<i16, u32>),
        (16, true, 64) => spaces!(space, load<i16, u64>),
        (32, _, 32) => spaces!(space, load<u32, u32>),
        (32, false, 64) => spaces!(space, load<u32, u64>),
        (32, true, 64) => spaces!(space, load<i32, u64>),
        (64, _, 64) => spaces!(space, load<u64, u64>),
        _ => return None,
    })
}

/// The store of a type from registers of this width.
fn store_of(space: u8, t: Ty, width: u8) -> Option<EnvFn> {
    Some(match (t.bits, width) {
        (8, 8) => spaces!(space, store<u8, u8>),
        (8, 16) => spaces!(space, store<u8, u16>),
        (8, 32) => spaces!(space, store<u8, u32>),
        (8, 64) => spaces!(space, store<u8, u64>),
        (16, 16) => spaces!(space, store<u16, u16>),
        (16, 32) => spaces!(space, store<u16, u32>),
        (16, 64) => spaces!(space, store<u16, u64>),
        (32, 32) => spaces!(space, store<u32, u32>),
        (32, 64) => spaces!(space, store<u32, u64>),
        (64, 64) => spaces!(space, store<u64, u64>),
        _ => return None,
    })
}

impl Decoder<'_> {
    pub(super) fn memory(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        match op {
            "ld" | "ldu" => self.load_or_store(true, m, o),
            "st" => self.load_or_store(false, m, o),
            "atom" | "red" => self.atomic(op == "atom", m, o),
            "cp" => self.copy(m, o),
            "createpolicy" => {
                // A policy is a hint without meaning here, but its register must hold something.
                while m.first().is_some() {}
                let Some(d) = o.first() else {
                    return self.error("destination expected");
                };
                let zero = self.constant(8, 0);
                let d = self.destination(d, 64)?;
                self.alu(super::super::lanes::alu1(|a: u64| a), d, &[zero]);
                Ok(true)
            }
            _ => {
                // prefetch and its kin change nothing that a program can see.
                while m.first().is_some() {}
                let nop = self.inst(Op::Nop);
                self.push(nop);
                Ok(true)
            }
        }
    }

    /// Reads the modifiers that all accesses share; returns the space and whether a cache hint is an operand.
    fn access(&self, m: &mut Mods<'_>) -> (Option<&'static str>, bool, Option<&'static str>) {
        let order = if m.take("acquire") {
            Some("acquire")
        } else if m.take("release") {
            Some("release")
        } else if m.take("acq_rel") {
            Some("acq_rel")
        } else {
            m.one_of(&["weak", "relaxed", "volatile", "mmio"]);
            None
        };
        m.one_of(&["cta", "cluster", "gpu", "sys"]);
        let space = if m
            .one_of(&["shared", "shared::cta", "shared::cluster"])
            .is_some()
        {
            Some("shared")
        } else if m.take("local") {
            Some("local")
        } else if m
            .one_of(&["param", "param::entry", "param::func"])
            .is_some()
        {
            Some("param")
        } else {
            m.one_of(&["global", "const"]);
            None
        };
        m.one_of(&["ca", "cg", "cs", "lu", "cv", "wb", "wt"]);
        m.take("nc");
        m.one_of(&[
            "L1::evict_normal",
            "L1::evict_unchanged",
            "L1::evict_first",
            "L1::evict_last",
            "L1::no_allocate",
        ]);
        m.one_of(&["L2::evict_normal", "L2::evict_first", "L2::evict_last"]);
        let hint = m.take("L2::cache_hint");
        m.one_of(&["L2::64B", "L2::128B", "L2::256B"]);
        m.take("unified");
        (space, hint, order)
    }

    /// Sets `a`, `imm` and `wide` from an address operand; returns the state space.
    pub(super) fn address(
        &mut self,
        i: &mut Inst,
        o: &Operand,
        space: Option<&str>,
    ) -> Result<u8, Error> {
        let Operand::Address(base, offset) = *o else {
            return self.error("address expected");
        };
        let entry = self.module.functions[self.function].is_entry;
        let mut code = match space {
            Some("shared") => SHARED,
            Some("local") => LOCAL,
            Some("param") if entry => PARAM,
            Some("param") => LOCAL,
            _ => GENERIC,
        };
        match base {
            Base::Register(r) => {
                i.wide = match self.width(r) {
                    64 => true,
                    32 => false,
                    _ => return self.error("address register of 32 or 64 bits expected"),
                };
                i.a = self.register(r)?;
                i.imm = offset;
            }
            Base::Symbol(s) => {
                if matches!(s, Symbol::ParamVar(_)) {
                    code = LOCAL;
                }
                i.a = self.register_of(s, offset);
                i.wide = true;
            }
            Base::Absolute => {
                i.a = self.constant(8, offset as u64);
                i.wide = true;
            }
        }
        Ok(code)
    }

    /// A register with the eight bytes at a generic address.
    pub(super) fn word_at(&mut self, address: u64) -> u32 {
        let to = self.temp(8, 0);
        let mut i = self.inst(Op::Env(spaces!(GENERIC, load<u64, u64>)));
        i.a = self.constant(8, address);
        i.wide = true;
        i.list = Box::new([to]);
        self.push(i);
        to
    }

    fn fence(&mut self) {
        let i = self.env(system::fence);
        self.push(i);
    }

    fn load_or_store(
        &mut self,
        is_load: bool,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        let (space, hint, order) = self.access(m);
        let count = match m.one_of(&["v2", "v4", "v8"]) {
            None => 1,
            Some("v2") => 2,
            Some("v4") => 4,
            Some(_) => 8,
        };
        let t = self.ty(m)?;
        if o.len() != 2 + usize::from(hint) {
            return self.error("wrong number of operands");
        }
        let (value, address) = if is_load {
            (&o[0], &o[1])
        } else {
            (&o[1], &o[0])
        };
        let single = std::slice::from_ref(value);
        let parts = match value {
            Operand::Vector(v) if v.len() == count => &v[..],
            Operand::Vector(_) => return self.error("vector of another length"),
            _ if count == 1 => single,
            _ => return self.error("vector expected"),
        };
        let mut i = self.inst(Op::Nop);
        let code = self.address(&mut i, address, space)?;
        // 128-bit values are two elements of 64 bits in one register; only mov and ld/st meet them.
        if t.bits == 128 {
            return Ok(false);
        }
        let width = self.common_width(parts, t)?;
        let mut list = Vec::new();
        for p in parts {
            list.push(match p {
                Operand::Sink if is_load && count > 1 => NONE,
                Operand::Register(r) if self.width(*r) != width => {
                    return self.error("registers of different widths");
                }
                Operand::Register(r) => self.register(*r)?,
                _ if is_load => self.destination(p, width)?,
                _ => self.source(p, Ty::new(t.kind, width))?,
            });
        }
        i.list = list.into();
        let function = match is_load {
            true => load_of(code, t, width),
            false => store_of(code, t, width),
        };
        let Some(f) = function else {
            return Ok(false);
        };
        i.op = Op::Env(f);
        if order == Some("release") {
            self.fence();
        }
        self.push(i);
        if order == Some("acquire") {
            self.fence();
        }
        Ok(true)
    }

    /// The bits of the widest register, or those of the type if none is wider.
    fn common_width(&self, parts: &[Operand], t: Ty) -> Result<u8, Error> {
        let mut width = t.bits;
        for p in parts {
            if let Operand::Register(r) = p {
                let w = self.width(*r);
                if w < t.bits {
                    return self.error("register narrower than the type");
                }
                width = width.max(w);
            }
        }
        Ok(width)
    }

    fn atomic(&mut self, returns: bool, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let (space, hint, _) = self.access(m);
        let Some(op) = m.one_of(&[
            "add", "min", "max", "inc", "dec", "cas", "exch", "and", "or", "xor",
        ]) else {
            return self.error("operation expected");
        };
        m.take("noftz");
        m.one_of(&["cta", "cluster", "gpu", "sys"]);
        let t = self.ty(m)?;
        let first = usize::from(returns);
        let wanted = first + 2 + usize::from(op == "cas") + usize::from(hint);
        if o.len() != wanted {
            return self.error("wrong number of operands");
        }
        let Some(imm) = atomic::code(op, t) else {
            return Ok(false);
        };
        let mut i = self.inst(Op::Nop);
        let code = self.address(&mut i, &o[first], space)?;
        // `imm` is the address's offset, so the operation is in the list.
        i.list = Box::new([imm]);
        i.b = self.source(&o[first + 1], t)?;
        i.c = match op {
            "cas" => self.source(&o[first + 2], t)?,
            _ => i.b,
        };
        i.d = match (returns, o.first()) {
            (true, Some(d)) if *d != Operand::Sink => self.destination(d, t.bits)?,
            _ => NONE,
        };
        i.op = Op::Env(match t.bits {
            16 => match code {
                SHARED => atomic::run16::<SHARED> as EnvFn,
                _ => atomic::run16::<GENERIC>,
            },
            32 => match code {
                SHARED => atomic::run32::<SHARED> as EnvFn,
                LOCAL => atomic::run32::<LOCAL>,
                _ => atomic::run32::<GENERIC>,
            },
            _ => match code {
                SHARED => atomic::run64::<SHARED> as EnvFn,
                LOCAL => atomic::run64::<LOCAL>,
                _ => atomic::run64::<GENERIC>,
            },
        });
        self.push(i);
        Ok(true)
    }

    /// `cp.async`: the copy happens at once, so that groups of copies are always complete.
    fn copy(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        if !m.take("async") {
            return Ok(false);
        }
        if m.take("mbarrier") {
            return self.mbarrier_of_copies(m, o);
        }
        if m.one_of(&["commit_group", "wait_group", "wait_all"])
            .is_some()
        {
            let nop = self.inst(Op::Nop);
            self.push(nop);
            return Ok(true);
        }
        if m.one_of(&["bulk", "reduce"]).is_some() {
            return Ok(false);
        }
        let (_, hint, _) = self.access(m);
        m.take("global");
        let n = o.len() - usize::from(hint && !o.is_empty());
        if !(3..=4).contains(&n) {
            return self.error("wrong number of operands");
        }
        let Operand::Integer(bytes @ (4 | 8 | 16)) = o[2] else {
            return self.error("copy size of 4, 8 or 16 expected");
        };
        // Source address in a scratch register, so that one instruction can hold both.
        let mut source = self.inst(Op::Nop);
        self.address(&mut source, &o[1], None)?;
        let from = self.temp(8, 1);
        let mut load = self.env(system::address_of);
        (load.a, load.imm, load.wide, load.d) = (source.a, source.imm, source.wide, from);
        self.push(load);
        let mut i = self.env(system::copy_async);
        self.address(&mut i, &o[0], Some("shared"))?;
        i.b = from;
        i.c = match o.get(3).filter(|_| n == 4) {
            Some(s) => self.source(s, Ty::new(Kind::Unsigned, 32))?,
            None => self.constant(4, bytes as u64),
        };
        i.list = Box::new([bytes as u32]);
        self.push(i);
        Ok(true)
    }
}
