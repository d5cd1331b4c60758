// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kernels of a cubin that reach a function that it does not contain.
//!
//! `.nv.callgraph` is not documented; this description is based on the output of `ptxas` and `nvlink` of CUDA 12
//! and 13. It consists of pairs of words, usually symbols. A pair of 0 and a negative number describes the pairs after
//! it. After -1, the first symbol calls the second one; after -2, the address of the first one is taken; after -3, the
//! first one calls through an address. `ptxas` lists the calls of functions that it has compiled with a kernel as the
//! kernel's own.

use std::collections::{HashMap, HashSet};

use super::{
    Broken,
    elf::{Elf, SHT_CUDA_CALLGRAPH, SHT_SYMTAB, SYMBOL_BYTES, Section},
};

const PAIR_BYTES: u64 = 8;
/// The flag of a kernel in a symbol's `st_other`.
const STO_CUDA_ENTRY: u8 = 0x10;

/// The meaning of the pairs that follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Calls,
    Taken,
    CallsByAddress,
}

/// The calls, by the indices of symbols.
#[derive(Debug, Default)]
struct Calls {
    /// The callers of each callee.
    callers: HashMap<u32, Vec<u32>>,
    /// The functions whose address is taken.
    taken: HashSet<u32>,
    /// The functions that call by an address.
    by_address: Vec<u32>,
}

/// The names of the kernels that may reach a function for whose name `counts` is true. `counts` is not called for
/// functions whose code is in the cubin.
///
/// # Errors
/// The cubin is broken, or does not say which function calls which.
pub fn reaching(elf: &[u8], counts: impl Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>, Broken> {
    let elf = Elf::new(elf)?;
    let sections = elf.sections()?;
    let (mut symbols, mut calls) = (None, None);
    for section in sections.each() {
        let section = section?;
        match section.kind {
            SHT_SYMTAB => symbols = Some(section),
            SHT_CUDA_CALLGRAPH => calls = Some(section),
            _ => {}
        }
    }
    let (Some(symbols), Some(calls)) = (symbols, calls) else {
        return Err(Broken::new("the cubin has no call graph"));
    };
    let names = sections.get(symbols.link.into())?;
    let calls = Calls::read(&elf, &calls)?;
    let (mut outside, mut kernels) = (Vec::new(), Vec::new());
    for index in 0..symbols.bytes / SYMBOL_BYTES {
        let at = elf.place(symbols.offset, index, SYMBOL_BYTES)?;
        let index = u32::try_from(index).map_err(|_| Broken::new("too many symbols"))?;
        let name = elf.name_and_rest(&names, elf.u32(at)?)?;
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let [_, other] = elf.word(at + 4)?;
        if other & STO_CUDA_ENTRY != 0 {
            kernels.push((index, name));
        } else if elf.u16(at + 6)? == 0 && counts(name) {
            outside.push(index);
        }
    }
    let reached = calls.reach(outside);
    kernels.retain(|(index, _)| reached.contains(index));
    Ok(kernels.into_iter().map(|(_, name)| name.into()).collect())
}

impl Calls {
    fn read(elf: &Elf<'_>, section: &Section) -> Result<Self, Broken> {
        let (mut calls, mut part) = (Self::default(), None);
        for index in 0..section.bytes / PAIR_BYTES {
            let at = elf.place(section.offset, index, PAIR_BYTES)?;
            let (first, second) = (elf.u32(at)?, elf.u32(at + 4)?);
            if first == 0 && second.cast_signed() < 0 {
                part = match second.cast_signed() {
                    -1 => Some(Part::Calls),
                    -2 => Some(Part::Taken),
                    -3 => Some(Part::CallsByAddress),
                    _ => None,
                };
                continue;
            }
            match part {
                Some(Part::Calls) => calls.callers.entry(second).or_default().push(first),
                Some(Part::Taken) => drop(calls.taken.insert(first)),
                Some(Part::CallsByAddress) => calls.by_address.push(first),
                None => return Err(Broken::new("calls of an unknown kind")),
            }
        }
        Ok(calls)
    }

    /// The functions that reach one of these, and these.
    fn reach(mut self, from: Vec<u32>) -> HashSet<u32> {
        let (mut reached, mut next) = (HashSet::new(), from);
        while let Some(function) = next.pop() {
            if !reached.insert(function) {
                continue;
            }
            next.extend(self.callers.remove(&function).unwrap_or_default());
            // The callee of a call through an address is unknown.
            if self.taken.contains(&function) {
                next.append(&mut self.by_address);
            }
        }
        reached
    }
}
