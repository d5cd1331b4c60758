// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Registers and constants as arguments and results of calls, and registers as the parameters of functions.
//!
//! They become `.param` variables, the only ones that a call copies. Loads and stores are added at both ends: in a
//! function at its start and its returns, and around the call.

use super::function::{FunctionParser, Name};
use super::parser::{Declaration, Parser};
use super::{Base, Error, Function, Operand, Symbol, Variable};

/// A function's parameters in registers: the variables in their place, and the registers.
#[derive(Debug, Default)]
pub(super) struct Formals {
    params: Vec<(u32, u32)>,
    returns: Vec<(u32, u32)>,
}

/// `[variable]`
fn place(variable: u32) -> Operand {
    Operand::Address(Base::Symbol(Symbol::ParamVar(variable)), 0)
}

impl<'a> FunctionParser<'a> {
    /// A parameter, or a return parameter, that is a register.
    pub(super) fn register_parameter(
        &mut self,
        p: &Parser<'a>,
        d: &Declaration<'a>,
        returns: bool,
    ) -> Result<(), Error> {
        if self.function.is_entry {
            return p.error("a kernel's parameters cannot be registers");
        }
        if d.size != d.element || d.is_array || d.count.is_some() {
            return p.error("a parameter must be one register");
        }
        if d.size == 0 {
            return p.error("predicates as parameters are not supported");
        }
        let register = self.add_register(p, d.size as u8 * 8)?;
        self.declare(d.name, Name::Register(register));
        let variable = self.add_local(d, true);
        let pair = (variable, register);
        if returns {
            self.function.returns.push(variable);
            self.formals.returns.push(pair);
        } else {
            self.function.params.push(variable);
            self.formals.params.push(pair);
        }
        Ok(())
    }

    /// The start of a function: its registers get the arguments.
    pub(super) fn load_parameters(&mut self, line: u32) {
        for (variable, register) in self.formals.params.clone() {
            self.transfer("ld", line, variable, Operand::Register(register));
        }
    }

    /// The end of a function, or a `ret`. If that one has a guard the stores have none: what they store is the
    /// result only once the function returns.
    pub(super) fn store_results(&mut self, line: u32) {
        for (variable, register) in self.formals.returns.clone() {
            self.transfer("st", line, variable, Operand::Register(register));
        }
    }

    /// A load from a variable, or a store there.
    fn transfer(&mut self, opcode: &str, line: u32, variable: u32, value: Operand) {
        let of = &self.function.locals[variable as usize];
        // A double in a place of four bytes becomes a single.
        let kind = match value {
            Operand::Double(_) => 'f',
            _ => 'b',
        };
        let opcode = format!("{opcode}.param.{kind}{}", of.size * 8);
        let operands = match opcode.starts_with("ld") {
            true => vec![value, place(variable)],
            false => vec![place(variable), value],
        };
        self.emit(line, &opcode, operands);
    }

    /// Puts variables in the place of a call's registers and constants, and stores the arguments. Returns the results
    /// that are to be loaded after the call: variables and registers.
    pub(super) fn arguments(
        &mut self,
        p: &Parser<'a>,
        line: u32,
        operands: &mut [Operand],
    ) -> Result<Vec<(u32, u32)>, Error> {
        let (results, rest) = match operands {
            [Operand::List(results), rest @ ..] => (&mut results[..], rest),
            all => (&mut [][..], all),
        };
        let [target, rest @ ..] = rest else {
            return Ok(Vec::new());
        };
        let mut loads = Vec::new();
        for (i, result) in results.iter_mut().enumerate() {
            let formal = self.formal(p, target, |f| f.returns.get(i).copied());
            let variable = match *result {
                Operand::Sink => self.variable(formal.unwrap_or(0)),
                Operand::Register(register) => {
                    let variable = self.in_register(p, register, formal)?;
                    loads.push((variable, register));
                    variable
                }
                // A variable; or something else, which the decoder refuses.
                _ => continue,
            };
            *result = Operand::Symbol(Symbol::ParamVar(variable), 0);
        }
        let Some(Operand::List(arguments)) = rest.first_mut() else {
            return Ok(loads);
        };
        for (i, argument) in arguments.iter_mut().enumerate() {
            let formal = self.formal(p, target, |f| f.params.get(i).copied());
            let variable = match *argument {
                Operand::Register(register) => self.in_register(p, register, formal)?,
                // For a called address the parameter's size is unknown: the call copies the available lower bytes.
                Operand::Integer(_) => match formal.unwrap_or(8) {
                    size @ (1 | 2 | 4 | 8) => self.variable(size),
                    _ => return p.error("a constant for a parameter that is not a number"),
                },
                Operand::Single(_) if formal.is_none_or(|size| size == 4) => self.variable(4),
                Operand::Double(_) if matches!(formal, Some(4 | 8)) => {
                    self.variable(formal.unwrap_or(8))
                }
                Operand::Single(_) | Operand::Double(_) => {
                    return p.error("a constant of another size than the parameter");
                }
                _ => continue,
            };
            let value = Operand::Symbol(Symbol::ParamVar(variable), 0);
            let value = std::mem::replace(argument, value);
            self.transfer("st", line, variable, value);
        }
        Ok(loads)
    }

    /// After a call: its results into registers, if it was made.
    pub(super) fn load_results(
        &mut self,
        line: u32,
        guard: Option<(u32, bool)>,
        results: &[(u32, u32)],
    ) {
        for &(variable, register) in results {
            self.transfer("ld", line, variable, Operand::Register(register));
            if let Some(load) = self.function.body.last_mut() {
                load.guard = guard;
            }
        }
    }

    /// The bytes of one of a called function's parameters. `None` if only its address is known, or there is no such
    /// parameter.
    fn formal(
        &self,
        p: &Parser<'a>,
        target: &Operand,
        which: impl Fn(&Function) -> Option<u32>,
    ) -> Option<usize> {
        let Operand::Symbol(symbol @ Symbol::Function(f), _) = target else {
            return None;
        };
        // The module does not have the function at hand yet.
        let own = p.names.get(self.function.name.as_str());
        let function = match own == Some(symbol) {
            true => &self.function,
            false => p.module.functions.get(*f as usize)?,
        };
        let variable = which(function)?;
        Some(function.locals[variable as usize].size)
    }

    /// A variable in the place of a register.
    fn in_register(
        &mut self,
        p: &Parser<'a>,
        register: u32,
        formal: Option<usize>,
    ) -> Result<u32, Error> {
        let size = usize::from(self.width(&Operand::Register(register)) / 8);
        if size == 0 {
            return p.error("predicates as arguments and results are not supported");
        }
        if formal.is_some_and(|formal| formal != size) {
            return p.error("a register of another width than the parameter");
        }
        Ok(self.variable(size))
    }

    /// A new variable of this number of bytes.
    fn variable(&mut self, size: usize) -> u32 {
        self.function.locals.push(Variable {
            name: String::new(),
            size,
            align: size.max(1),
            is_extern: false,
            is_param: true,
        });
        self.function.locals.len() as u32 - 1
    }
}
