// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module-scope directives and variable declarations.

use std::collections::HashMap;

use super::function::FunctionParser;
use super::lexer::{Token, tokens};
use super::{
    Error, Function, Global, GlobalSpace, Kernel, Module, Param, Reference, Relocation, Symbol,
    Variable,
};

/// The largest alignment of a variable: a page.
const MAX_ALIGN: usize = 4096;
/// The deepest nesting of braces: the parser recurses, and a thread's stack has an end.
pub(super) const MAX_DEPTH: usize = 64;

/// A cursor over tokens together with the module made so far.
pub(super) struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    pub(super) module: Module,
    pub(super) names: HashMap<&'a str, Symbol>,
    /// The declaration at hand is of managed memory.
    is_managed: bool,
    /// The declaration at hand is of a reference.
    reference: Option<Reference>,
}

/// A declared variable before it has found its place.
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) size: usize,
    pub(super) align: usize,
    pub(super) element: usize,
    /// `name<count>`
    pub(super) count: Option<u32>,
    pub(super) line: u32,
    is_float: bool,
}

/// Size in bytes of a fundamental type; zero for `.pred`.
pub(super) fn type_size(name: &str) -> Option<usize> {
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
    pub(super) fn new(text: &'a str) -> Result<Self, Error> {
        Ok(Self {
            tokens: tokens(text)?,
            at: 0,
            module: Module::default(),
            names: HashMap::new(),
            is_managed: false,
            reference: None,
        })
    }

    pub(super) fn peek(&self) -> Token<'a> {
        self.tokens[self.at].0
    }

    pub(super) fn peek_second(&self) -> Token<'a> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub(super) fn line(&self) -> u32 {
        self.tokens[self.at].1
    }

    pub(super) fn next(&mut self) -> Token<'a> {
        let t = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        t
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(self.line(), message))
    }

    pub(super) fn accept(&mut self, c: char) -> bool {
        let yes = self.peek() == Token::Punct(c);
        if yes {
            self.next();
        }
        yes
    }

    pub(super) fn expect(&mut self, c: char) -> Result<(), Error> {
        if self.accept(c) {
            Ok(())
        } else {
            self.error(format!("expected '{c}', found {:?}", self.peek()))
        }
    }

    pub(super) fn word(&mut self) -> Result<&'a str, Error> {
        match self.next() {
            Token::Word(w) => Ok(w),
            t => {
                self.at = self.at.saturating_sub(1);
                self.error(format!("expected a name, found {t:?}"))
            }
        }
    }

    pub(super) fn integer(&mut self) -> Result<i64, Error> {
        let negative = self.accept('-');
        match self.next() {
            Token::Integer(v) => Ok(if negative { v.wrapping_neg() } else { v }),
            t => self.error(format!("expected an integer, found {t:?}")),
        }
    }

    fn size(&mut self) -> Result<usize, Error> {
        let v = self.integer()?;
        usize::try_from(v).or_else(|_| self.error("negative size"))
    }

    pub(super) fn module(mut self) -> Result<Module, Error> {
        let mut linkage = "";
        loop {
            match self.next() {
                Token::End => break,
                Token::Dot(d) => match d {
                    "version" => self.version()?,
                    "target" => self.target()?,
                    "address_size" => {
                        if self.integer()? != 64 {
                            return self.error("only 64-bit addresses are supported");
                        }
                    }
                    "visible" | "extern" | "weak" | "common" => linkage = d,
                    "entry" | "func" => {
                        self.function(d == "entry")?;
                        linkage = "";
                    }
                    "global" | "const" => {
                        self.globals(d, linkage, true)?;
                        linkage = "";
                    }
                    "shared" => {
                        let vars = self.declarations()?;
                        for v in vars {
                            self.add_shared(&v, linkage == "extern" || v.size == 0);
                        }
                        self.expect(';')?;
                        linkage = "";
                    }
                    "file" => self.file(),
                    "loc" => self.location(),
                    "attribute" => self.attribute()?,
                    "section" => self.section()?,
                    "pragma" | "alias" => {
                        if d == "alias" {
                            self.alias()?;
                        } else {
                            self.skip_to_semicolon();
                        }
                    }
                    _ => return self.error(format!("unknown directive .{d}")),
                },
                Token::Word("$") | Token::Punct(';') => {}
                t => return self.error(format!("unexpected {t:?}")),
            }
        }
        self.resolve_relocations()?;
        self.finish()
    }

    fn version(&mut self) -> Result<(), Error> {
        self.module.version = match self.next() {
            Token::Double(bits) => (f64::from_bits(bits) * 10.0).round() as u32,
            Token::Integer(v) => (v as u32).saturating_mul(10),
            t => return self.error(format!("expected a version, found {t:?}")),
        };
        Ok(())
    }

    fn target(&mut self) -> Result<(), Error> {
        loop {
            let w = self.word()?;
            if let Some(n) = w.strip_prefix("sm_") {
                let digits = n.trim_end_matches(|c: char| c.is_ascii_alphabetic());
                self.module.target = digits
                    .parse()
                    .map_err(|_| Error::new(self.line(), format!("unknown target {w}")))?;
            }
            if !self.accept(',') {
                return Ok(());
            }
        }
    }

    /// The arguments of `.file`: a directive may follow on the same line.
    fn file(&mut self) {
        while matches!(
            self.peek(),
            Token::Integer(_) | Token::Text(_) | Token::Punct(',')
        ) {
            self.next();
        }
    }

    /// The arguments of `.loc`: an instruction or a directive may follow on the same line.
    pub(super) fn location(&mut self) {
        loop {
            match self.peek() {
                Token::Word("function_name") => {
                    self.next();
                }
                Token::Word("inlined_at") | Token::Integer(_) | Token::Punct(',' | '+') => {}
                _ => return,
            }
            self.next();
        }
    }

    /// `(.managed)` and the like. The others change nothing here.
    fn attribute(&mut self) -> Result<(), Error> {
        self.expect('(')?;
        while !self.accept(')') {
            match self.next() {
                Token::Dot("managed") => self.is_managed = true,
                Token::End => return self.error("unfinished .attribute"),
                _ => {}
            }
        }
        Ok(())
    }

    pub(super) fn skip_to_semicolon(&mut self) {
        while !matches!(self.next(), Token::Punct(';') | Token::End) {}
    }

    /// `.section name { … }` of debug information.
    fn section(&mut self) -> Result<(), Error> {
        while self.peek() != Token::Punct('{') {
            if self.next() == Token::End {
                return self.error("unfinished .section");
            }
        }
        self.skip_braces()
    }

    fn skip_braces(&mut self) -> Result<(), Error> {
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                Token::Punct('{') => depth += 1,
                Token::Punct('}') => depth -= 1,
                Token::End => return self.error("unbalanced braces"),
                _ => {}
            }
        }
        Ok(())
    }

    fn alias(&mut self) -> Result<(), Error> {
        let name = self.word()?;
        self.expect(',')?;
        let target = self.word()?;
        let Some(&s) = self.names.get(target) else {
            return self.error(format!("alias of unknown {target}"));
        };
        self.names.insert(name, s);
        // Calls made before the alias went to the declaration of the aliased name.
        if let (Symbol::Function(t), Some(&i)) = (s, self.module.function_index.get(name)) {
            let mut copy = self.module.functions[t as usize].clone();
            copy.name = name.to_owned();
            self.module.functions[i] = copy;
        }
        self.expect(';')
    }

    /// The part of a declaration after the state space: alignment, type, names, array bounds. Initialisers are not read.
    pub(super) fn declarations(&mut self) -> Result<Vec<Declaration<'a>>, Error> {
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
    pub(super) fn declaration(&mut self) -> Result<Declaration<'a>, Error> {
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
            return self.error("alignment is no power of two, or too large");
        }
        Ok(Declaration {
            name,
            size,
            align,
            element,
            count,
            line,
            is_float,
        })
    }

    pub(super) fn add_shared(&mut self, v: &Declaration<'a>, is_extern: bool) -> Symbol {
        if let Some(&s) = self.names.get(v.name) {
            return s;
        }
        let s = Symbol::Shared(self.module.shared.len() as u32);
        self.module.shared.push(Variable {
            name: v.name.to_owned(),
            size: v.size,
            align: v.align,
            is_extern,
        });
        self.names.insert(v.name, s);
        s
    }

    /// `.global` and `.const` variables with their initialisers; returns names and symbols.
    pub(super) fn globals(
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
            out.push((v.name, symbol));
            if !self.accept(',') {
                break;
            }
        }
        self.expect(';')?;
        Ok(out)
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
            Token::Single(b) => {
                self.next();
                float_bits(f64::from(f32::from_bits(b)), Some(b), v.element)
            }
            Token::Double(b) => {
                self.next();
                float_bits(f64::from_bits(b), None, v.element)
            }
            Token::Word(w) => {
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
            _ => {
                let n = self.integer()?;
                if self.accept('(') {
                    // `0xFF00(sym)`: a byte of an address.
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
                } else if v.is_float {
                    float_bits(n as f64, None, v.element)
                } else {
                    n as u64
                }
            }
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
        let mut addend = 0;
        if self.accept('+') || self.peek() == Token::Punct('-') {
            addend = self.integer()?;
        }
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

    fn resolve_relocations(&self) -> Result<(), Error> {
        for g in &self.module.globals {
            for r in &g.relocations {
                if !matches!(r.target, Symbol::Global(_) | Symbol::Function(_)) {
                    return self.error(format!("initialiser of {} names no global", g.name));
                }
            }
        }
        Ok(())
    }

    /// `.entry` or `.func`: header, attributes, body.
    fn function(&mut self, is_entry: bool) -> Result<(), Error> {
        let line = self.line();
        while self.peek() == Token::Dot("attribute") {
            self.next();
            while self.next() != Token::Punct(')') {
                if self.peek() == Token::End {
                    return self.error("unfinished .attribute");
                }
            }
        }
        let mut f = FunctionParser::new(is_entry, line);
        if !is_entry && self.peek() == Token::Punct('(') {
            f.parameters(self, true)?;
        }
        let name = self.word()?;
        name.clone_into(&mut f.function.name);
        if self.peek() == Token::Punct('(') {
            f.parameters(self, false)?;
        }
        let mut kernel = Kernel {
            name: name.to_owned(),
            max_threads: 1024,
            ..Kernel::default()
        };
        loop {
            match self.peek() {
                Token::Dot("maxntid") => {
                    self.next();
                    kernel.max_threads = threads(self.triple()?);
                }
                Token::Dot("reqntid") => {
                    self.next();
                    let t = self.triple()?;
                    kernel.max_threads = threads(t);
                    kernel.required_block = Some(t);
                }
                Token::Dot("reqnctapercluster") => {
                    self.next();
                    kernel.required_cluster = Some(self.triple()?);
                }
                Token::Dot("minnctapersm" | "maxnctapersm" | "maxnreg" | "maxclusterrank") => {
                    self.next();
                    self.triple()?;
                }
                Token::Dot(
                    "noreturn" | "explicitcluster" | "abi_preserve" | "abi_preserve_control",
                ) => {
                    if matches!(
                        self.next(),
                        Token::Dot("abi_preserve" | "abi_preserve_control")
                    ) {
                        self.integer()?;
                    }
                }
                Token::Dot("pragma") => self.skip_to_semicolon(),
                _ => break,
            }
        }
        // Register the name first: the body may call it.
        let index = match self.names.get(name) {
            Some(&Symbol::Function(i)) => i as usize,
            Some(_) => return self.error(format!("{name} is already a variable")),
            None => {
                let i = self.module.functions.len();
                self.names.insert(name, Symbol::Function(i as u32));
                self.module.function_index.insert(name.to_owned(), i);
                self.module.functions.push(Function::default());
                i
            }
        };
        if self.accept(';') {
            if !self.module.functions[index].has_body {
                self.module.functions[index] = f.function;
            }
            return Ok(());
        }
        if self.module.functions[index].has_body {
            return Err(Error::new(line, format!("{name} defined twice")));
        }
        f.body(self)?;
        kernel.params = std::mem::take(&mut f.kernel_params);
        kernel.param_bytes = f.param_bytes;
        kernel.local_bytes = f.local_bytes();
        let wide: usize = f
            .function
            .registers
            .iter()
            .map(|r| usize::from(r.bits > 1) + usize::from(r.bits > 32))
            .sum();
        kernel.registers = (wide as u32 / 4).clamp(16, 128);
        kernel.function = index;
        self.module.functions[index] = f.function;
        if is_entry {
            self.module.kernels.push(kernel);
        }
        Ok(())
    }

    fn triple(&mut self) -> Result<[u32; 3], Error> {
        let mut t = [1; 3];
        for (i, v) in t.iter_mut().enumerate() {
            if i > 0 && !self.accept(',') {
                break;
            }
            *v = self.integer()? as u32;
        }
        Ok(t)
    }

    fn finish(mut self) -> Result<Module, Error> {
        let const_bytes = self
            .module
            .globals
            .iter()
            .filter(|g| g.space == GlobalSpace::Const)
            .map(|g| g.size)
            .sum();
        for i in 0..self.module.kernels.len() {
            let (shared, _) = self.module.shared_layout(self.module.kernels[i].function);
            let k = &mut self.module.kernels[i];
            k.static_shared_bytes = shared;
            k.const_bytes = const_bytes;
        }
        Ok(self.module)
    }
}

/// How many threads a block of this size has.
fn threads(block: [u32; 3]) -> u32 {
    block.into_iter().fold(1, u32::saturating_mul)
}

/// A float constant in a variable of `size` bytes; `exact` keeps a NaN's payload.
fn float_bits(v: f64, exact: Option<u32>, size: usize) -> u64 {
    match size {
        4 => u64::from(exact.unwrap_or_else(|| (v as f32).to_bits())),
        _ => v.to_bits(),
    }
}

/// Lays out `.param` space: the next parameter's place after `end`.
pub(super) fn place(end: usize, size: usize, align: usize) -> Param {
    Param {
        offset: end.next_multiple_of(align),
        size,
        align,
    }
}
