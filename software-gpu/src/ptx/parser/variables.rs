// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Declarations of variables: types, places, and the values that they begin with.

use super::{MAX_DEPTH, Parser};
use crate::ptx::constant::Constant;
use crate::ptx::lexer::Token;
use crate::ptx::{Error, Global, GlobalSpace, Reference, Relocation, Symbol, Variable};

/// The largest alignment of a variable: a page.
const MAX_ALIGN: usize = 4096;

/// A declared variable before it has found its place.
pub(in crate::ptx) struct Declaration<'a> {
    pub(in crate::ptx) name: &'a str,
    pub(in crate::ptx) size: usize,
    pub(in crate::ptx) align: usize,
    pub(in crate::ptx) element: usize,
    /// `name<count>`
    pub(in crate::ptx) count: Option<u32>,
    pub(in crate::ptx) line: u32,
    pub(in crate::ptx) is_array: bool,
    is_float: bool,
}

/// Size in bytes of a fundamental type; zero for `.pred`.
pub(in crate::ptx) fn type_size(name: &str) -> Option<usize> {
    Some(match name {
        "pred" => 0,
        "b8" | "u8" | "s8" | "e4m3" | "e5m2" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "tf32" => 4,
        "b64" | "u64" | "s64" | "f64" | "texref" | "samplerref" | "surfref" => 8,
        "b128" => 16,
        _ => return None,
    })
}

impl<'a> Parser<'a> {
    /// The part of a declaration after the state space: alignment, type, names, array bounds. Initialisers are not
    /// read.
    pub(in crate::ptx) fn declarations(&mut self) -> Result<Vec<Declaration<'a>>, Error> {
        let (element, vector, align, is_float) = self.type_prefix()?;
        let mut out = Vec::new();
        loop {
            out.push(self.declarator(element, vector, align, is_float)?);
            if !self.accept(',') {
                return Ok(out);
            }
        }
    }

    /// One declaration, as in parameter lists.
    pub(in crate::ptx) fn declaration(&mut self) -> Result<Declaration<'a>, Error> {
        let (element, vector, align, is_float) = self.type_prefix()?;
        self.declarator(element, vector, align, is_float)
    }

    fn type_prefix(&mut self) -> Result<(usize, usize, Option<usize>, bool), Error> {
        let mut align = None;
        let mut vector = 1;
        loop {
            match self.next() {
                Token::Dot("align") => align = Some(self.size()?),
                Token::Dot("v2") => vector = 2,
                Token::Dot("v4") => vector = 4,
                Token::Dot("attribute") => self.attribute()?,
                Token::Dot("ptr" | "const" | "global" | "shared" | "local") => {}
                Token::Dot(t) => match type_size(t) {
                    Some(s) if matches!(t, "texref" | "surfref") => {
                        self.reference = Some(match t {
                            "texref" => Reference::Texture,
                            _ => Reference::Surface,
                        });
                        return Ok((s, vector, align, false));
                    }
                    Some(s) => return Ok((s, vector, align, t.starts_with('f'))),
                    None => return self.error(format!("unknown type .{t}")),
                },
                t => return self.error(format!("expected a type, found {t:?}")),
            }
        }
    }

    fn declarator(
        &mut self,
        element: usize,
        vector: usize,
        mut align: Option<usize>,
        is_float: bool,
    ) -> Result<Declaration<'a>, Error> {
        // Kernel parameters may carry `.ptr .space .align n` between type and name; that alignment is the pointee's.
        if self.peek() == Token::Dot("ptr") {
            self.next();
            while let Token::Dot(_) = self.peek() {
                if self.next() == Token::Dot("align") {
                    self.size()?;
                }
            }
            align = None;
        }
        let line = self.line();
        let name = self.word()?;
        let mut size = element * vector;
        let mut count = None;
        if self.accept('<') {
            count = Some(self.size()? as u32);
            self.expect('>')?;
        }
        let is_array = self.peek() == Token::Punct('[');
        while self.accept('[') {
            let n = if self.peek() == Token::Punct(']') {
                0
            } else {
                self.size()?
            };
            size = match size.checked_mul(n) {
                Some(s) if s < 1 << 40 => s,
                _ => return self.error("variable too large"),
            };
            self.expect(']')?;
        }
        let align = align.unwrap_or((element * vector).max(1));
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return self.error("alignment is not a power of two, or too large");
        }
        Ok(Declaration {
            name,
            size,
            align,
            element,
            count,
            line,
            is_array,
            is_float,
        })
    }

    pub(in crate::ptx) fn add_shared(&mut self, v: &Declaration<'a>, is_extern: bool) -> Symbol {
        if let Some(&s) = self.names.get(v.name) {
            return s;
        }
        let s = Symbol::Shared(self.module.shared.len() as u32);
        self.module.shared.push(Variable {
            name: v.name.to_owned(),
            size: v.size,
            align: v.align,
            is_extern,
            is_param: false,
        });
        self.names.insert(v.name, s);
        self.note_array(v, s);
        s
    }

    /// `.global` and `.const` variables with their initialisers; returns names and symbols.
    pub(in crate::ptx) fn globals(
        &mut self,
        space: &str,
        linkage: &str,
        module_scope: bool,
    ) -> Result<Vec<(&'a str, Symbol)>, Error> {
        let (element, vector, align, is_float) = self.type_prefix()?;
        let is_managed = std::mem::take(&mut self.is_managed);
        let reference = self.reference.take();
        let mut out = Vec::new();
        loop {
            let mut v = self.declarator(element, vector, align, is_float)?;
            let mut bytes = Vec::new();
            let mut relocations = Vec::new();
            if self.accept('=') {
                self.initialiser(&v, &mut bytes, &mut relocations, 0)?;
                v.size = v.size.max(bytes.len());
            }
            let symbol = Symbol::Global(self.module.globals.len() as u32);
            let global = Global {
                name: v.name.to_owned(),
                size: v.size,
                align: v.align,
                space: if space == "const" {
                    GlobalSpace::Const
                } else {
                    GlobalSpace::Global
                },
                initialiser: bytes,
                relocations,
                is_extern: linkage == "extern",
                is_visible: !linkage.is_empty(),
                is_managed,
                reference,
            };
            let symbol = match self.names.get(v.name) {
                // A definition after its extern declaration takes the declaration's place.
                Some(&Symbol::Global(i))
                    if module_scope && self.module.globals[i as usize].is_extern =>
                {
                    self.module.globals[i as usize] = global;
                    Symbol::Global(i)
                }
                Some(&s) if module_scope && linkage == "extern" => s,
                Some(_) if module_scope => {
                    return Err(Error::new(v.line, format!("{} defined twice", v.name)));
                }
                _ => {
                    self.module.globals.push(global);
                    symbol
                }
            };
            if module_scope {
                self.names.insert(v.name, symbol);
            }
            self.note_array(&v, symbol);
            out.push((v.name, symbol));
            if !self.accept(',') {
                break;
            }
        }
        self.expect(';')?;
        Ok(out)
    }

    /// Elements of an array can be operands, by their numbers.
    fn note_array(&mut self, v: &Declaration<'a>, symbol: Symbol) {
        if v.is_array {
            self.elements.insert(symbol, v.element);
        }
    }

    fn initialiser(
        &mut self,
        v: &Declaration<'a>,
        bytes: &mut Vec<u8>,
        relocations: &mut Vec<Relocation>,
        depth: usize,
    ) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return self.error("an initialiser is nested too deeply");
        }
        if self.accept('{') {
            // Inner braces only group; nvcc writes flat lists.
            while !self.accept('}') {
                self.initialiser(v, bytes, relocations, depth + 1)?;
                if !self.accept(',') && self.peek() != Token::Punct('}') {
                    return self.error("expected ',' or '}' in an initialiser");
                }
            }
            return Ok(());
        }
        let offset = bytes.len();
        let value = match self.peek() {
            Token::Word(w) if w != "WARP_SZ" => {
                let mut name = w;
                self.next();
                if w == "generic" {
                    self.expect('(')?;
                    name = self.word()?;
                    self.expect(')')?;
                }
                self.relocation(name, 0, offset, v.element, relocations)?;
                0
            }
            Token::Integer(_) | Token::Unsigned(_) if self.peek_second() == Token::Punct('(') => {
                // `0xFF00(sym)`: a byte of an address.
                let n = self.integer()?;
                self.expect('(')?;
                let mut name = self.word()?;
                if name == "generic" {
                    self.expect('(')?;
                    name = self.word()?;
                    self.expect(')')?;
                }
                let shift = (n as u64).trailing_zeros();
                self.relocation(name, shift, offset, v.element, relocations)?;
                self.expect(')')?;
                0
            }
            _ => match self.constant()? {
                Constant::Single(b) => float_bits(f64::from(f32::from_bits(b)), Some(b), v.element),
                Constant::Double(n) => float_bits(n, None, v.element),
                Constant::Signed(n) if v.is_float => float_bits(n as f64, None, v.element),
                Constant::Unsigned(n) if v.is_float => float_bits(n as f64, None, v.element),
                Constant::Signed(n) => n as u64,
                Constant::Unsigned(n) => n,
            },
        };
        bytes.extend_from_slice(&u128::from(value).to_le_bytes()[..v.element.max(1)]);
        Ok(())
    }

    fn relocation(
        &mut self,
        name: &'a str,
        shift: u32,
        offset: usize,
        size: usize,
        out: &mut Vec<Relocation>,
    ) -> Result<(), Error> {
        let addend = self.offset()?;
        let Some(&target) = self.names.get(name) else {
            return self.error(format!("initialiser names unknown {name}"));
        };
        out.push(Relocation {
            offset,
            size,
            target,
            addend,
            shift,
        });
        Ok(())
    }

    pub(super) fn resolve_relocations(&self) -> Result<(), Error> {
        for g in &self.module.globals {
            for r in &g.relocations {
                if !matches!(r.target, Symbol::Global(_) | Symbol::Function(_)) {
                    return self.error(format!("initialiser of {} does not name a global", g.name));
                }
            }
        }
        Ok(())
    }
}

/// A float constant in a variable of `size` bytes; `exact` keeps a NaN's payload.
fn float_bits(v: f64, exact: Option<u32>, size: usize) -> u64 {
    match size {
        4 => u64::from(exact.unwrap_or_else(|| (v as f32).to_bits())),
        _ => v.to_bits(),
    }
}
