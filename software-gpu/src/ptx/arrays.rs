// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Elements of arrays as operands (PTX ISA, "Arrays as Operands"). They are replaced by simpler operands and
//! instructions.

use std::collections::HashMap;

use super::function::{FunctionParser, Name};
use super::lexer::Token;
use super::parser::{Declaration, Parser};
use super::{Base, Error, Operand, Symbol};

/// A function's own arrays, and the registers that its operands `name[register]` need.
#[derive(Debug, Default)]
pub(super) struct Arrays {
    /// The bytes of an element of each.
    elements: HashMap<Symbol, usize>,
    /// Pairs of registers, of 32 and 64 bits. All instructions use the same ones: each for an operand.
    registers: Vec<(u32, u32)>,
    /// The number of these that the instruction at hand uses.
    used: usize,
}

impl Arrays {
    /// Remembers a variable if it is an array.
    pub(super) fn note(&mut self, variable: &Declaration<'_>, symbol: Symbol) {
        if variable.is_array {
            self.elements.insert(symbol, variable.element);
        }
    }

    /// An instruction begins.
    pub(super) fn begin(&mut self) {
        self.used = 0;
    }
}

impl<'a> FunctionParser<'a> {
    /// Parses the brackets after an array's name: `[constant]`, `[register]` or `[register+constant]`. Loads and stores
    /// use the element, all other instructions its address.
    pub(super) fn element(
        &mut self,
        p: &mut Parser<'a>,
        array: Symbol,
        opcode: &str,
    ) -> Result<Operand, Error> {
        let line = p.line();
        p.expect('[')?;
        let own = self.arrays.elements.get(&array);
        let Some(&size) = own.or_else(|| p.elements.get(&array)) else {
            return p.error("only arrays have an index");
        };
        let is_access = matches!(opcode, "ld" | "ldu" | "st");
        let register = match p.peek() {
            Token::Word(name) => self.lookup(p, name),
            _ => None,
        };
        let Some(Name::Register(register)) = register else {
            let index = p.constant_integer()?;
            p.expect(']')?;
            let offset = index.wrapping_mul(size as i64);
            return Ok(match is_access {
                true => Operand::Address(Base::Symbol(array), offset),
                false => Operand::Symbol(array, offset),
            });
        };
        p.next();
        let more = match p.accept('+') {
            true => p.constant_integer()?,
            false => 0,
        };
        p.expect(']')?;
        if self.function.is_entry && matches!(array, Symbol::ParamVar(_)) {
            // The decoder would take such an address for one of the kernel's parameters.
            return p.error("a register cannot index a call's parameter in a kernel");
        }
        let (index, address) = self.registers_of_index(p)?;
        let [index, address, register] = [index, address, register].map(Operand::Register);
        // ptxas only adds the product's 32 bits, whatever the register's type is.
        let index = match self.width(&register) {
            32 => self.product(line, (register, index), more, size),
            bits @ (16 | 64) => {
                let convert = format!("cvt.u32.u{bits}");
                self.emit(line, &convert, vec![index.clone(), register]);
                self.product(line, (index.clone(), index), more, size)
            }
            _ => return p.error("index of 16, 32 or 64 bits expected"),
        };
        self.emit(line, "cvt.u64.u32", vec![address.clone(), index]);
        let sum = vec![address.clone(), address.clone(), Operand::Symbol(array, 0)];
        self.emit(line, "add.u64", sum);
        Ok(match (is_access, address) {
            (true, Operand::Register(address)) => Operand::Address(Base::Register(address), 0),
            (_, address) => address,
        })
    }

    /// Emits `to = (from + more) * size`.
    fn product(
        &mut self,
        line: u32,
        (mut from, to): (Operand, Operand),
        more: i64,
        size: usize,
    ) -> Operand {
        if more != 0 {
            self.emit(
                line,
                "add.u32",
                vec![to.clone(), from, Operand::Integer(more)],
            );
            from = to.clone();
        }
        let size = Operand::Integer(size as i64);
        self.emit(line, "mul.lo.u32", vec![to.clone(), from, size]);
        to
    }

    /// A register for the index and one for the address that no other operand of the instruction has.
    fn registers_of_index(&mut self, p: &Parser<'a>) -> Result<(u32, u32), Error> {
        let number = self.arrays.used;
        self.arrays.used += 1;
        if let Some(&pair) = self.arrays.registers.get(number) {
            return Ok(pair);
        }
        let pair = (self.add_register(p, 32)?, self.add_register(p, 64)?);
        self.arrays.registers.push(pair);
        Ok(pair)
    }

    /// The bits of a register; zero for other operands.
    pub(super) fn width(&self, operand: &Operand) -> u8 {
        match *operand {
            Operand::Register(r) => self.function.registers[r as usize].bits,
            _ => 0,
        }
    }
}
