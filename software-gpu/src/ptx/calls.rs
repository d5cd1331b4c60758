// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The graph of calls between functions.

use std::collections::{HashMap, HashSet};

use super::{Instruction, Module, Operand, Symbol};

impl Instruction {
    /// The functions that it names.
    fn functions(&self) -> impl Iterator<Item = usize> {
        let symbols = self.operands.iter().filter_map(Operand::symbol);
        symbols.filter_map(|symbol| match symbol {
            Symbol::Function(f) => Some(f as usize),
            _ => None,
        })
    }

    /// Whether it calls a function whose address a register has.
    fn is_indirect_call(&self) -> bool {
        self.opcode == "call" && self.operands.contains(&Operand::Prototype)
    }
}

impl Module {
    /// `function` and every function whose name it, or one of those, mentions; also functions whose addresses variables
    /// hold.
    pub fn reachable(&self, function: usize) -> Vec<usize> {
        let mut list = vec![function];
        let mut indirect = false;
        let mut i = 0;
        while i < list.len() {
            for ins in &self.functions[list[i]].body {
                if ins.opcode == "call" && !indirect && ins.operands.contains(&Operand::Prototype) {
                    indirect = true;
                    let held = self.globals.iter().flat_map(|g| &g.relocations);
                    for r in held {
                        if let Symbol::Function(f) = r.target
                            && !self.functions[f as usize].is_entry
                            && !list.contains(&(f as usize))
                        {
                            list.push(f as usize);
                        }
                    }
                    // Any function can be the source of an address, including another kernel.
                    for f in &self.functions {
                        for o in f
                            .body
                            .iter()
                            .filter(|i| i.opcode == "mov")
                            .flat_map(|i| &i.operands)
                        {
                            if let Operand::Symbol(Symbol::Function(f), _) = o
                                && !self.functions[*f as usize].is_entry
                                && !list.contains(&(*f as usize))
                            {
                                list.push(*f as usize);
                            }
                        }
                    }
                }
                for s in ins.operands.iter().filter_map(Operand::symbol) {
                    // The address of a kernel is for launches of it.
                    if let Symbol::Function(f) = s
                        && (ins.opcode == "call" || !self.functions[f as usize].is_entry)
                        && !list.contains(&(f as usize))
                    {
                        list.push(f as usize);
                    }
                }
            }
            i += 1;
        }
        list
    }

    /// The `functions` that can be called recursively: by themselves, or by their callees.
    pub fn recursive(&self, functions: &[usize]) -> HashSet<usize> {
        let places = functions.iter().enumerate();
        let mut search = Search {
            module: self,
            functions,
            places: places.map(|(at, f)| (*f, at)).collect(),
            visits: vec![Visit::default(); functions.len() + 1],
            open: Vec::new(),
            count: 0,
            recursive: HashSet::new(),
        };
        for place in 0..functions.len() {
            if search.visits[place].number == 0 {
                search.visit(place);
            }
        }
        search.recursive
    }
}

/// The state of a function.
#[derive(Debug, Clone, Copy, Default)]
struct Visit {
    /// Its number in the order of the search, from 1 on; 0 if it was not reached.
    number: usize,
    /// The earliest open function that is reachable from it.
    earliest: usize,
    is_open: bool,
}

/// Tarjan's search for strongly connected components, without recursion: a module's calls can be deep.
struct Search<'a> {
    module: &'a Module,
    functions: &'a [usize],
    /// The place of each of them in `functions`.
    places: HashMap<usize, usize>,
    /// One for each function, and one for the targets of a call by an address: all of them.
    visits: Vec<Visit>,
    open: Vec<usize>,
    count: usize,
    recursive: HashSet<usize>,
}

impl Search<'_> {
    /// The places of a function's callees.
    fn callees(&self, place: usize) -> Vec<usize> {
        let any = self.functions.len();
        let Some(&function) = self.functions.get(place) else {
            return (0..any).collect();
        };
        let calls = self.module.functions[function].body.iter();
        let calls = calls.filter(|i| i.opcode == "call");
        let mut callees = HashSet::new();
        for call in calls {
            callees.extend(call.functions().filter_map(|f| self.places.get(&f)));
            if call.is_indirect_call() {
                callees.insert(any);
            }
        }
        callees.into_iter().collect()
    }

    fn enter(&mut self, place: usize) -> (usize, Vec<usize>) {
        self.count += 1;
        self.visits[place] = Visit {
            number: self.count,
            earliest: self.count,
            is_open: true,
        };
        self.open.push(place);
        let callees = self.callees(place);
        if callees.contains(&place) {
            self.recursive.extend(self.functions.get(place));
        }
        (place, callees)
    }

    fn visit(&mut self, place: usize) {
        let mut path = vec![self.enter(place)];
        while let Some((place, callees)) = path.last_mut() {
            let place = *place;
            if let Some(next) = callees.pop() {
                let of = self.visits[next];
                if of.number == 0 {
                    let entered = self.enter(next);
                    path.push(entered);
                } else if of.is_open {
                    let earliest = &mut self.visits[place].earliest;
                    *earliest = of.number.min(*earliest);
                }
                continue;
            }
            path.pop();
            let of = self.visits[place];
            if let Some((caller, _)) = path.last() {
                let earliest = &mut self.visits[*caller].earliest;
                *earliest = of.earliest.min(*earliest);
            }
            if of.earliest == of.number {
                self.close(place);
            }
        }
    }

    /// A component is complete: it has all functions that were reached since its first.
    fn close(&mut self, first: usize) {
        let start = self.open.iter().rposition(|place| *place == first);
        let component = self.open.split_off(start.unwrap_or(0));
        for place in &component {
            self.visits[*place].is_open = false;
        }
        if component.len() > 1 {
            let functions = component
                .iter()
                .filter_map(|place| self.functions.get(*place));
            self.recursive.extend(functions);
        }
    }
}
