// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Textures and surfaces, by 64-bit handles (unified mode). A reference is a variable whose bytes are the handle of the
//! bound object.

use super::super::program::{EnvFn, NONE, Op};
use super::super::texture::run::{
    self, BYTES_SHIFT, CLAMP, COORDINATES, EXTRA, LAYER, OUTSIDE_SHIFT, TRAP, ZERO,
};
use super::super::texture::{
    BASE, COMPONENT_SHIFT, GATHER, GRADIENT, Geometry, LEVEL, MODE_SHIFT, WHOLE_BIT,
};
use super::{Decoder, Kind, Mods, Ty};
use crate::ptx::{Base, Error, Operand, Symbol};

const GEOMETRIES: &[&str] = &["1d", "2d", "3d", "a1d", "a2d", "cube", "acube"];
const F32: Ty = Ty {
    kind: Kind::Float,
    bits: 32,
};
const S32: Ty = Ty {
    kind: Kind::Signed,
    bits: 32,
};

impl Decoder<'_> {
    pub(super) fn texture(
        &mut self,
        op: &str,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        match op {
            "tex" => self.sample(m, o),
            "tld4" => self.gather(m, o),
            "txq" | "suq" => self.question(op == "txq", m, o),
            _ => self.surface(op == "suld", m, o),
        }
    }

    /// The register of a handle.
    fn object(&mut self, base: &Base) -> Result<u32, Error> {
        match base {
            Base::Register(r) if self.width(*r) == 64 => self.register(*r),
            Base::Symbol(symbol @ Symbol::Global(_)) => {
                let address = self.symbol(*symbol, 0);
                Ok(self.word_at(address))
            }
            _ => self.error("texture or surface expected"),
        }
    }

    /// The registers of coordinates, after that of the layer or `NONE`.
    fn place(
        &mut self,
        geometry: Geometry,
        coordinates: &[Operand],
        of: Ty,
    ) -> Result<Vec<u32>, Error> {
        let first = usize::from(geometry.has_layer());
        let count = geometry.coordinates();
        // Three become four; the last one has no meaning.
        if coordinates.len() < first + count {
            return self.error("too few coordinates");
        }
        let layer = match first {
            1 => self.source(&coordinates[0], Ty::new(Kind::Bits, 32))?,
            _ => NONE,
        };
        let mut places = vec![layer];
        for o in &coordinates[first..first + count] {
            places.push(self.source(o, of)?);
        }
        Ok(places)
    }

    /// A vector's elements, or the one operand.
    fn parts(o: &Operand) -> &[Operand] {
        match o {
            Operand::Vector(v) => v,
            one => std::slice::from_ref(one),
        }
    }

    fn geometry(&self, m: &mut Mods<'_>) -> Result<Geometry, Error> {
        match m.one_of(GEOMETRIES).and_then(Geometry::parse) {
            Some(geometry) => Ok(geometry),
            None => self.error("geometry expected"),
        }
    }

    fn sample(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let mode = match m.one_of(&["base", "level", "grad"]) {
            Some("level") => LEVEL,
            Some("grad") => GRADIENT,
            _ => BASE,
        };
        let geometry = self.geometry(m)?;
        if !m.take("v4") {
            return Ok(false);
        }
        let (to, of) = (self.ty(m)?, self.ty(m)?);
        let is_whole = of.kind == Kind::Signed;
        if to.bits != 32 || of.bits != 32 {
            return Ok(false);
        }
        let (Some(d), Some(Operand::Texture(base, coordinates))) = (o.first(), o.get(1)) else {
            return self.error("destination and texture expected");
        };
        let (d, there) = match d {
            Operand::Pair(d, there) => (&**d, Some(&**there)),
            d => (d, None),
        };
        let of = if is_whole { S32 } else { F32 };
        let mut list = self.destinations(d, 4)?;
        list.extend(self.place(geometry, coordinates, of)?);
        debug_assert_eq!(
            (LAYER, list.len() - geometry.coordinates()),
            (4, COORDINATES)
        );
        list.resize(EXTRA, NONE);
        match (mode, &o[2..]) {
            (BASE, []) => {}
            (LEVEL, [level]) => {
                let level = self.source(level, of)?;
                list.push(level);
            }
            (GRADIENT, [by_x, by_y]) => {
                for by in [by_x, by_y] {
                    let parts = Self::parts(by);
                    for k in 0..3 {
                        let part = match parts.get(k).filter(|_| k < geometry.coordinates()) {
                            Some(o) => self.source(o, F32)?,
                            None => NONE,
                        };
                        list.push(part);
                    }
                }
            }
            // Offsets, and depth to compare with.
            _ => return Ok(false),
        }
        let mut i = self.env(run::sample);
        i.a = self.object(base)?;
        if let Some(there) = there {
            i.d = self.destination(there, 1)?;
        }
        i.list = list.into();
        i.imm = geometry.number() | i64::from(is_whole) << WHOLE_BIT | mode << MODE_SHIFT;
        self.push(i);
        Ok(true)
    }

    fn destinations(&mut self, d: &Operand, count: usize) -> Result<Vec<u32>, Error> {
        let parts = Self::parts(d);
        if parts.len() != count {
            return self.error("vector of another length");
        }
        parts
            .iter()
            .map(|part| match part {
                Operand::Sink => Ok(NONE),
                part => self.destination(part, 32),
            })
            .collect()
    }

    fn gather(&mut self, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        let Some(channel) = m.one_of(&["r", "g", "b", "a"]) else {
            return self.error("component expected");
        };
        let geometry = self.geometry(m)?;
        if !m.take("v4") {
            return Ok(false);
        }
        let (to, of) = (self.ty(m)?, self.ty(m)?);
        if to.bits != 32 || of.kind != Kind::Float || of.bits != 32 {
            return Ok(false);
        }
        let [d, Operand::Texture(base, coordinates)] = o else {
            return Ok(false);
        };
        let (d, there) = match d {
            Operand::Pair(d, there) => (&**d, Some(&**there)),
            d => (d, None),
        };
        let mut list = self.destinations(d, 4)?;
        list.extend(self.place(geometry, coordinates, F32)?);
        list.resize(EXTRA, NONE);
        let mut i = self.env(run::sample);
        i.a = self.object(base)?;
        if let Some(there) = there {
            i.d = self.destination(there, 1)?;
        }
        i.list = list.into();
        let channel = ["r", "g", "b", "a"]
            .iter()
            .position(|name| *name == channel);
        let channel = channel.unwrap_or(0) as i64;
        i.imm = geometry.number() | GATHER << MODE_SHIFT | channel << COMPONENT_SHIFT;
        self.push(i);
        Ok(true)
    }

    fn question(
        &mut self,
        of_texture: bool,
        m: &mut Mods<'_>,
        o: &[Operand],
    ) -> Result<bool, Error> {
        let has_level = m.take("level");
        let Some(question) = m.first().and_then(run::question) else {
            return Ok(false);
        };
        if !m.take("b32") {
            return Ok(false);
        }
        let (Some(d), Some(Operand::Address(base, 0))) = (o.first(), o.get(1)) else {
            return self.error("destination and object expected");
        };
        let mut i = self.inst(Op::Env(match of_texture {
            true => run::query as EnvFn,
            false => run::surface_query,
        }));
        i.a = self.object(base)?;
        i.d = self.destination(d, 32)?;
        i.imm = question;
        match (has_level, o.get(2)) {
            (true, Some(level)) => i.b = self.source(level, Ty::new(Kind::Bits, 32))?,
            (false, None) => {}
            _ => return self.error("wrong number of operands"),
        }
        self.push(i);
        Ok(true)
    }

    fn surface(&mut self, is_load: bool, m: &mut Mods<'_>, o: &[Operand]) -> Result<bool, Error> {
        // Formatted stores have been left out of the ISA's newer targets' libraries: nvcc emits none.
        if !m.take("b") {
            return Ok(false);
        }
        let geometry = self.geometry(m)?;
        m.one_of(&["ca", "cg", "cs", "cv", "wb", "wt"]);
        let count = match m.one_of(&["v2", "v4"]) {
            None => 1,
            Some("v2") => 2,
            Some(_) => 4,
        };
        let t = self.ty(m)?;
        let outside = match m.one_of(&["trap", "clamp", "zero"]) {
            Some("clamp") => CLAMP,
            Some("zero") => ZERO,
            _ => TRAP,
        };
        let (value, object) = match (is_load, o) {
            (true, [value, object]) | (false, [object, value]) => (value, object),
            _ => return self.error("wrong number of operands"),
        };
        let Operand::Texture(base, coordinates) = object else {
            return self.error("surface expected");
        };
        let parts = Self::parts(value);
        if parts.len() != count || !matches!(t.bits, 8 | 16 | 32 | 64) {
            return self.error("vector of another length");
        }
        let mut width = t.bits;
        for part in parts {
            if let Operand::Register(r) = part {
                width = width.max(self.width(*r));
            }
        }
        let mut list = Vec::new();
        for part in parts {
            list.push(match part {
                Operand::Sink if is_load => NONE,
                part if is_load => self.destination(part, width)?,
                part => self.source(part, Ty::new(Kind::Bits, width))?,
            });
        }
        list.extend(self.place(geometry, coordinates, S32)?);
        let mut i = self.inst(Op::Env(match is_load {
            true => run::surface_load as EnvFn,
            false => run::surface_store,
        }));
        i.a = self.object(base)?;
        (i.b, i.c) = (count as u32, u32::from(width / 8));
        i.list = list.into();
        i.imm = geometry.number() | outside << OUTSIDE_SHIFT | i64::from(t.bits / 8) << BYTES_SHIFT;
        self.push(i);
        Ok(true)
    }
}
