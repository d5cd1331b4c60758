// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module-scope directives.

mod variables;

use std::collections::HashMap;

use super::function::FunctionParser;
use super::lexer::{Token, tokens};
pub(in crate::ptx) use variables::Declaration;

use super::{Error, Function, GlobalSpace, Kernel, Module, Param, Reference, Symbol};

/// The deepest nesting of braces: the parser recurses, and a thread's stack has an end.
pub(in crate::ptx) const MAX_DEPTH: usize = 64;

/// A cursor over tokens together with the module made so far.
pub(in crate::ptx) struct Parser<'a> {
    tokens: Vec<(Token<'a>, u32)>,
    at: usize,
    pub(in crate::ptx) module: Module,
    pub(in crate::ptx) names: HashMap<&'a str, Symbol>,
    /// The bytes of an element of each array of the module.
    pub(in crate::ptx) elements: HashMap<Symbol, usize>,
    /// The declaration at hand is of managed memory.
    is_managed: bool,
    /// The declaration at hand is of a reference.
    reference: Option<Reference>,
}

impl<'a> Parser<'a> {
    pub(in crate::ptx) fn new(text: &'a str) -> Result<Self, Error> {
        Ok(Self {
            tokens: tokens(text)?,
            at: 0,
            module: Module::default(),
            names: HashMap::new(),
            elements: HashMap::new(),
            is_managed: false,
            reference: None,
        })
    }

    pub(in crate::ptx) fn peek(&self) -> Token<'a> {
        self.tokens[self.at].0
    }

    pub(in crate::ptx) fn peek_second(&self) -> Token<'a> {
        self.tokens[(self.at + 1).min(self.tokens.len() - 1)].0
    }

    pub(in crate::ptx) fn line(&self) -> u32 {
        self.tokens[self.at].1
    }

    pub(in crate::ptx) fn next(&mut self) -> Token<'a> {
        let t = self.peek();
        if self.at + 1 < self.tokens.len() {
            self.at += 1;
        }
        t
    }

    pub(in crate::ptx) fn error<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(self.line(), message))
    }

    pub(in crate::ptx) fn accept(&mut self, c: char) -> bool {
        let yes = self.peek() == Token::Punct(c);
        if yes {
            self.next();
        }
        yes
    }

    pub(in crate::ptx) fn expect(&mut self, c: char) -> Result<(), Error> {
        if self.accept(c) {
            Ok(())
        } else {
            self.error(format!("expected '{c}', found {:?}", self.peek()))
        }
    }

    pub(in crate::ptx) fn word(&mut self) -> Result<&'a str, Error> {
        match self.next() {
            Token::Word(w) => Ok(w),
            t => {
                self.at = self.at.saturating_sub(1);
                self.error(format!("expected a name, found {t:?}"))
            }
        }
    }

    pub(in crate::ptx) fn integer(&mut self) -> Result<i64, Error> {
        let negative = self.accept('-');
        match self.next() {
            Token::Integer(v) => Ok(if negative { v.wrapping_neg() } else { v }),
            Token::Unsigned(v) if !negative => Ok(v as i64),
            t => self.error(format!("expected an integer, found {t:?}")),
        }
    }

    fn size(&mut self) -> Result<usize, Error> {
        let v = self.integer()?;
        usize::try_from(v).or_else(|_| self.error("negative size"))
    }

    pub(in crate::ptx) fn module(mut self) -> Result<Module, Error> {
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
            Token::Integer(_) | Token::Unsigned(_) | Token::Text(_) | Token::Punct(',')
        ) {
            self.next();
        }
    }

    /// The arguments of `.loc`: an instruction or a directive may follow on the same line.
    pub(in crate::ptx) fn location(&mut self) {
        loop {
            match self.peek() {
                Token::Word("function_name") => {
                    self.next();
                }
                Token::Word("inlined_at")
                | Token::Integer(_)
                | Token::Unsigned(_)
                | Token::Punct(',' | '+') => {}
                _ => return,
            }
            self.next();
        }
    }

    /// `(.managed)` and similar. The others change nothing here.
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

    pub(in crate::ptx) fn skip_to_semicolon(&mut self) {
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
        let most_registers = self.performance_directives(&mut kernel)?;
        // Register the name first: the body may call it.
        let index = self.declare_function(name)?;
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
        kernel.registers = registers_needed(&f.function).min(most_registers.max(16));
        kernel.function = index;
        self.module.functions[index] = f.function;
        if is_entry {
            self.module.kernels.push(kernel);
        }
        Ok(())
    }

    /// The directives between a function's header and its body. Returns the limit of registers.
    fn performance_directives(&mut self, kernel: &mut Kernel) -> Result<u32, Error> {
        let mut most_registers = u32::MAX;
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
                Token::Dot("maxnreg") => {
                    self.next();
                    most_registers = self.triple()?[0];
                }
                Token::Dot("minnctapersm" | "maxnctapersm" | "maxclusterrank") => {
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
                _ => return Ok(most_registers),
            }
        }
    }

    /// The index of the function of this name, which may have been declared before.
    fn declare_function(&mut self, name: &'a str) -> Result<usize, Error> {
        match self.names.get(name) {
            Some(&Symbol::Function(i)) => Ok(i as usize),
            Some(_) => self.error(format!("{name} is already a variable")),
            None => {
                let i = self.module.functions.len();
                self.names.insert(name, Symbol::Function(i as u32));
                self.module.function_index.insert(name.to_owned(), i);
                self.module.functions.push(Function::default());
                Ok(i)
            }
        }
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

/// An estimate of the registers that one thread of this function would need on a GPU.
fn registers_needed(function: &Function) -> u32 {
    let wide: usize = function
        .registers
        .iter()
        .map(|r| usize::from(r.bits > 1) + usize::from(r.bits > 32))
        .sum();
    (wide as u32 / 4).clamp(16, 128)
}

/// The number of threads of a block of this size.
fn threads(block: [u32; 3]) -> u32 {
    block.into_iter().fold(1, u32::saturating_mul)
}

/// Lays out `.param` space: the next parameter's place after `end`.
pub(in crate::ptx) fn place(end: usize, size: usize, align: usize) -> Param {
    Param {
        offset: end.next_multiple_of(align),
        size,
        align,
    }
}
