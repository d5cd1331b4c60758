// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Function bodies: scopes, labels, instructions and operands.

use std::collections::HashMap;

use super::arguments::Formals;
use super::arrays::Arrays;
use super::lexer::Token;
use super::parser::{Declaration, MAX_DEPTH, Parser, place};
use super::{Base, Error, Function, Instruction, Operand, Param, Register, Symbol, Variable};

/// The most registers of a function; nvcc's largest have some ten thousand.
const MAX_REGISTERS: usize = 1 << 22;
/// The most bytes of a kernel's parameters: CUDA's own limit.
const MAX_PARAM_BYTES: usize = 32_764;

/// What a name stands for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name {
    Register(u32),
    Symbol(Symbol),
    Targets(u32),
    Prototype,
}

#[derive(Default)]
struct Scope<'a> {
    parent: usize,
    names: HashMap<&'a str, Name>,
    /// `%r<n>`: prefix, count, first register.
    families: Vec<(&'a str, u32, u32)>,
    labels: HashMap<&'a str, u32>,
}

/// Builds one function.
pub(super) struct FunctionParser<'a> {
    pub(super) function: Function,
    pub(super) kernel_params: Vec<Param>,
    pub(super) param_bytes: usize,
    pub(super) arrays: Arrays,
    pub(super) formals: Formals,
    scopes: Vec<Scope<'a>>,
    scope: usize,
    /// The number of operands that the parser is inside of.
    depth: usize,
    /// References to labels: id, scope, name, line. An operand `Label(id)` is rewritten at the end.
    references: Vec<(usize, &'a str, u32)>,
}

impl<'a> FunctionParser<'a> {
    pub(super) fn new(is_entry: bool, line: u32) -> Self {
        Self {
            function: Function {
                is_entry,
                line,
                ..Function::default()
            },
            kernel_params: Vec::new(),
            param_bytes: 0,
            arrays: Arrays::default(),
            formals: Formals::default(),
            scopes: vec![Scope::default()],
            scope: 0,
            depth: 0,
            references: Vec::new(),
        }
    }

    pub(super) fn local_bytes(&self) -> usize {
        self.function.locals.iter().map(|v| v.size).sum()
    }

    pub(super) fn declare(&mut self, name: &'a str, what: Name) {
        self.scopes[self.scope].names.insert(name, what);
    }

    pub(super) fn add_local(&mut self, of: &Declaration<'a>, is_param: bool) -> u32 {
        let i = self.function.locals.len() as u32;
        self.function.locals.push(Variable {
            name: of.name.to_owned(),
            size: of.size,
            align: of.align,
            is_extern: false,
            is_param,
        });
        i
    }

    /// The parenthesised parameters, or return parameters, of the header.
    pub(super) fn parameters(&mut self, p: &mut Parser<'a>, returns: bool) -> Result<(), Error> {
        p.expect('(')?;
        while !p.accept(')') {
            let space = p.next();
            if !matches!(space, Token::Dot("param" | "reg")) {
                return p.error(format!("expected .param, found {space:?}"));
            }
            let d = p.declaration()?;
            if space == Token::Dot("reg") {
                self.register_parameter(p, &d, returns)?;
            } else if self.function.is_entry {
                let at = place(self.param_bytes, d.size, d.align);
                self.param_bytes = at.offset + at.size;
                if self.param_bytes > MAX_PARAM_BYTES {
                    return p.error("too many bytes of parameters");
                }
                self.kernel_params.push(at);
                let symbol = Symbol::KernelParam(at.offset as u32);
                self.arrays.note(&d, symbol);
                self.declare(d.name, Name::Symbol(symbol));
            } else {
                let i = self.add_local(&d, true);
                self.arrays.note(&d, Symbol::ParamVar(i));
                self.declare(d.name, Name::Symbol(Symbol::ParamVar(i)));
                if returns {
                    self.function.returns.push(i);
                } else {
                    self.function.params.push(i);
                }
            }
            p.accept(',');
        }
        Ok(())
    }

    pub(super) fn body(&mut self, p: &mut Parser<'a>) -> Result<(), Error> {
        self.function.has_body = true;
        p.expect('{')?;
        self.load_parameters(p.line());
        loop {
            match p.peek() {
                Token::Punct('{') => {
                    p.next();
                    self.scopes.push(Scope {
                        parent: self.scope,
                        ..Scope::default()
                    });
                    self.scope = self.scopes.len() - 1;
                }
                Token::Punct('}') => {
                    let line = p.line();
                    p.next();
                    if self.scope == 0 {
                        self.store_results(line);
                        break;
                    }
                    self.scope = self.scopes[self.scope].parent;
                }
                Token::Punct(';') => {
                    p.next();
                }
                Token::Dot(_) => self.directive(p)?,
                Token::Word(w) if p.peek_second() == Token::Punct(':') => {
                    p.next();
                    p.next();
                    self.label(p, w)?;
                }
                Token::Word(_) | Token::Punct('@') => self.instruction(p)?,
                t => return p.error(format!("unexpected {t:?} in a function")),
            }
        }
        self.resolve_labels()
    }

    fn label(&mut self, p: &mut Parser<'a>, name: &'a str) -> Result<(), Error> {
        match p.peek() {
            Token::Dot("branchtargets") => {
                p.next();
                let mut list = Vec::new();
                loop {
                    let target = p.word()?;
                    list.push(self.reference(target, p.line()));
                    if !p.accept(',') {
                        break;
                    }
                }
                p.expect(';')?;
                let i = self.function.branch_targets.len() as u32;
                self.function.branch_targets.push(list);
                self.declare(name, Name::Targets(i));
            }
            Token::Dot("callprototype" | "calltargets") => {
                p.skip_to_semicolon();
                self.declare(name, Name::Prototype);
            }
            _ => {
                let at = self.function.body.len() as u32;
                if self.scopes[self.scope].labels.insert(name, at).is_some() {
                    return p.error(format!("label {name} defined twice"));
                }
            }
        }
        Ok(())
    }

    fn directive(&mut self, p: &mut Parser<'a>) -> Result<(), Error> {
        let Token::Dot(d) = p.next() else {
            return p.error("expected a directive");
        };
        match d {
            "reg" => {
                // The type decides the width; `declarations` gives bytes, zero for predicates.
                let vars = p.declarations()?;
                for v in vars {
                    if v.size != v.element {
                        return p.error("vector registers are not supported");
                    }
                    let bits = if v.element == 0 {
                        1
                    } else {
                        v.element as u8 * 8
                    };
                    let first = self.function.registers.len() as u32;
                    let n = v.count.unwrap_or(1);
                    if n as usize > MAX_REGISTERS - self.function.registers.len() {
                        return p.error("too many registers");
                    }
                    let all = std::iter::repeat_n(Register { bits }, n as usize);
                    self.function.registers.extend(all);
                    if v.count.is_some() {
                        let s = &mut self.scopes[self.scope];
                        s.families.push((v.name, n, first));
                    } else {
                        self.declare(v.name, Name::Register(first));
                    }
                }
                p.expect(';')
            }
            "local" | "param" => {
                for v in p.declarations()? {
                    let i = self.add_local(&v, d == "param");
                    let s = if d == "local" {
                        Symbol::Local(i)
                    } else {
                        Symbol::ParamVar(i)
                    };
                    self.arrays.note(&v, s);
                    self.declare(v.name, Name::Symbol(s));
                }
                p.expect(';')
            }
            "shared" => {
                for v in p.declarations()? {
                    let s = p.add_shared(&v, v.size == 0);
                    self.declare(v.name, Name::Symbol(s));
                }
                p.expect(';')
            }
            "global" | "const" => {
                for (name, s) in p.globals(d, "", false)? {
                    self.declare(name, Name::Symbol(s));
                }
                Ok(())
            }
            "loc" | "file" => {
                p.location();
                Ok(())
            }
            "pragma" => {
                p.skip_to_semicolon();
                Ok(())
            }
            _ => p.error(format!("unknown directive .{d} in a function")),
        }
    }

    pub(super) fn lookup(&self, p: &Parser<'a>, name: &str) -> Option<Name> {
        let mut s = self.scope;
        loop {
            let scope = &self.scopes[s];
            if let Some(&n) = scope.names.get(name) {
                return Some(n);
            }
            for &(prefix, count, first) in &scope.families {
                if let Some(rest) = name.strip_prefix(prefix)
                    && !rest.is_empty()
                    && rest.bytes().all(|c| c.is_ascii_digit())
                    && let Ok(n) = rest.parse::<u32>()
                    && n < count
                {
                    return Some(Name::Register(first + n));
                }
            }
            if s == 0 {
                break;
            }
            s = scope.parent;
        }
        p.names.get(name).map(|&s| Name::Symbol(s))
    }

    fn reference(&mut self, name: &'a str, line: u32) -> u32 {
        self.references.push((self.scope, name, line));
        self.references.len() as u32 - 1
    }

    fn instruction(&mut self, p: &mut Parser<'a>) -> Result<(), Error> {
        let line = p.line();
        let mut guard = None;
        if p.accept('@') {
            let negated = p.accept('!');
            let name = p.word()?;
            match self.lookup(p, name) {
                Some(Name::Register(r)) if self.function.registers[r as usize].bits == 1 => {
                    guard = Some((r, negated));
                }
                _ => return p.error(format!("guard {name} is not a predicate")),
            }
        }
        let opcode = p.word()?;
        let mut modifiers = Vec::new();
        while let Token::Dot(m) = p.peek() {
            modifiers.push(m.to_owned());
            p.next();
        }
        self.arrays.begin();
        let mut operands = Vec::new();
        if !p.accept(';') {
            loop {
                operands.push(self.operand(p, opcode)?);
                // `call (ret), f, (args)` separates by commas like all others.
                if p.accept(';') {
                    break;
                }
                p.expect(',')?;
            }
        }
        let results = match opcode {
            "call" => self.arguments(p, line, &mut operands)?,
            "ret" => {
                self.store_results(line);
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.function.body.push(Instruction {
            line,
            guard,
            opcode: opcode.to_owned(),
            modifiers,
            operands,
        });
        self.load_results(line, guard, &results);
        Ok(())
    }

    /// Adds an instruction that the text has not: a part of another.
    pub(super) fn emit(&mut self, line: u32, opcode: &str, operands: Vec<Operand>) {
        let mut parts = opcode.split('.').map(str::to_owned);
        self.function.body.push(Instruction {
            line,
            guard: None,
            opcode: parts.next().unwrap_or_default(),
            modifiers: parts.collect(),
            operands,
        });
    }

    /// Adds a register that the text has not.
    pub(super) fn add_register(&mut self, p: &Parser<'a>, bits: u8) -> Result<u32, Error> {
        let number = self.function.registers.len();
        if number >= MAX_REGISTERS {
            return p.error("too many registers");
        }
        self.function.registers.push(Register { bits });
        Ok(number as u32)
    }

    fn operand(&mut self, p: &mut Parser<'a>, opcode: &str) -> Result<Operand, Error> {
        let first = self.simple_operand(p, opcode)?;
        if p.accept('|') {
            let second = self.simple_operand(p, opcode)?;
            return Ok(Operand::Pair(Box::new(first), Box::new(second)));
        }
        Ok(first)
    }

    fn simple_operand(&mut self, p: &mut Parser<'a>, opcode: &str) -> Result<Operand, Error> {
        let line = p.line();
        // Only calls have lists in parentheses, and lists are not nested.
        let is_list = opcode == "call" && self.depth == 0;
        match (p.peek(), p.peek_second()) {
            (Token::Punct('!'), Token::Word(name)) if name != "WARP_SZ" => {
                p.next();
                p.next();
                match self.lookup(p, name) {
                    Some(Name::Register(r)) => Ok(Operand::Not(r)),
                    _ => p.error(format!("unknown predicate {name}")),
                }
            }
            (Token::Punct('{'), _) => Ok(Operand::Vector(self.list(p, opcode, '}')?)),
            (Token::Punct('('), _) if is_list => Ok(Operand::List(self.list(p, opcode, ')')?)),
            (Token::Punct('['), _) => self.brackets(p, opcode),
            (Token::Word("_"), _) => {
                p.next();
                Ok(Operand::Sink)
            }
            (Token::Word(name), _) if name != "WARP_SZ" => {
                p.next();
                self.name(p, name, line, opcode)
            }
            _ => Ok(p.constant()?.into()),
        }
    }

    /// `[address]`, or a texture and a place in it.
    fn brackets(&mut self, p: &mut Parser<'a>, opcode: &str) -> Result<Operand, Error> {
        p.expect('[')?;
        let operand = match self.address(p)? {
            Operand::Address(base, 0) if p.accept(',') => {
                self.deeper(p)?;
                let place = match self.simple_operand(p, opcode)? {
                    Operand::Vector(place) => place,
                    one => vec![one],
                };
                self.depth -= 1;
                Operand::Texture(base, place)
            }
            address => address,
        };
        p.expect(']')?;
        Ok(operand)
    }

    /// Records that the following operands are nested in another one.
    fn deeper(&mut self, p: &Parser<'a>) -> Result<(), Error> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return p.error("operands are nested too deeply");
        }
        Ok(())
    }

    fn list(&mut self, p: &mut Parser<'a>, opcode: &str, end: char) -> Result<Vec<Operand>, Error> {
        // The bracket is the caller's to check.
        p.next();
        let mut v = Vec::new();
        self.deeper(p)?;
        while !p.accept(end) {
            v.push(self.simple_operand(p, opcode)?);
            if !p.accept(',') && p.peek() != Token::Punct(end) {
                return p.error(format!("expected ',' or '{end}'"));
            }
        }
        self.depth -= 1;
        Ok(v)
    }

    fn name(
        &mut self,
        p: &mut Parser<'a>,
        w: &'a str,
        line: u32,
        opcode: &str,
    ) -> Result<Operand, Error> {
        let found = self.lookup(p, w);
        if let Some(n) = found {
            return Ok(match n {
                Name::Register(r) => Operand::Register(r),
                Name::Symbol(s) if p.peek() == Token::Punct('[') => self.element(p, s, opcode)?,
                Name::Symbol(s) => {
                    let offset = p.offset()?;
                    Operand::Symbol(s, offset)
                }
                Name::Targets(t) => Operand::Targets(t),
                Name::Prototype => Operand::Prototype,
            });
        }
        if w.starts_with('%') {
            if let Token::Dot(d @ ("x" | "y" | "z" | "w")) = p.peek() {
                p.next();
                return Ok(Operand::Special(format!("{w}.{d}")));
            }
            return Ok(Operand::Special(w.to_owned()));
        }
        if matches!(opcode, "bra" | "brx") {
            let r = self.reference(w, line);
            return Ok(Operand::Label(r));
        }
        Err(Error::new(line, format!("unknown name {w}")))
    }

    fn address(&mut self, p: &mut Parser<'a>) -> Result<Operand, Error> {
        let line = p.line();
        let base = match p.peek() {
            Token::Word(w) => {
                p.next();
                match self.lookup(p, w) {
                    Some(Name::Register(r)) => Base::Register(r),
                    Some(Name::Symbol(s)) => Base::Symbol(s),
                    _ => return Err(Error::new(line, format!("unknown name {w}"))),
                }
            }
            _ => return Ok(Operand::Address(Base::Absolute, p.constant_integer()?)),
        };
        let offset = p.offset()?;
        Ok(Operand::Address(base, offset))
    }

    fn resolve_labels(&mut self) -> Result<(), Error> {
        let mut at = Vec::with_capacity(self.references.len());
        for &(scope, name, line) in &self.references {
            let mut s = scope;
            let found = loop {
                if let Some(&i) = self.scopes[s].labels.get(name) {
                    break i;
                }
                if s == 0 {
                    return Err(Error::new(line, format!("unknown label {name}")));
                }
                s = self.scopes[s].parent;
            };
            at.push(found);
        }
        for i in &mut self.function.body {
            for o in &mut i.operands {
                if let Operand::Label(l) = o {
                    *l = at[*l as usize];
                }
            }
        }
        for list in &mut self.function.branch_targets {
            for l in list {
                *l = at[*l as usize];
            }
        }
        Ok(())
    }
}
