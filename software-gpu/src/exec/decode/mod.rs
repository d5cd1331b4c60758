// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From parsed instructions to decoded ones: operands, types and modifiers.

use std::collections::{HashMap, HashSet};

use super::env::FUNCTION_WINDOW;
use super::program::{Again, Alu, Callee, EnvFn, Inst, NONE, Op, Program, Special};
use crate::ptx::{Error, Function, Instruction, Module};

mod arithmetic;
mod bits;
mod compare;
mod control;
mod convert;
mod data;
mod half;
mod mbarrier;
mod memory;
mod operands;
mod system;
mod texture;
mod warp;

/// Class of a fundamental type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bits,
    Unsigned,
    Signed,
    Float,
    Bfloat,
    /// Two halves in 32 bits.
    FloatPair,
    BfloatPair,
    Pred,
}

/// A fundamental type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ty {
    pub(super) kind: Kind,
    pub(super) bits: u8,
}

impl Ty {
    pub(super) fn new(kind: Kind, bits: u8) -> Self {
        Self { kind, bits }
    }

    pub(super) fn parse(name: &str) -> Option<Self> {
        let (kind, bits) = match name {
            "pred" => (Kind::Pred, 1),
            "f16x2" => (Kind::FloatPair, 32),
            "bf16x2" => (Kind::BfloatPair, 32),
            "bf16" => (Kind::Bfloat, 16),
            _ => {
                let kind = match name.as_bytes().first()? {
                    b'b' => Kind::Bits,
                    b'u' => Kind::Unsigned,
                    b's' => Kind::Signed,
                    b'f' => Kind::Float,
                    _ => return None,
                };
                let bits: u8 = name[1..].parse().ok()?;
                let fits = matches!(bits, 16 | 32 | 64)
                    || (kind != Kind::Float && bits == 8)
                    || (kind == Kind::Bits && bits == 128);
                if !fits {
                    return None;
                }
                (kind, bits)
            }
        };
        Some(Self { kind, bits })
    }

    pub(super) fn bytes(self) -> usize {
        usize::from(self.bits / 8)
    }

    pub(super) fn signed(self) -> bool {
        self.kind == Kind::Signed
    }
}

/// The modifiers of an instruction; the decoder must take each of them.
pub(super) struct Mods<'a> {
    left: Vec<&'a str>,
}

impl<'a> Mods<'a> {
    /// Whether `name` was given; it counts as understood then.
    pub(super) fn take(&mut self, name: &str) -> bool {
        match self.left.iter().position(|m| *m == name) {
            Some(i) => {
                self.left.remove(i);
                true
            }
            None => false,
        }
    }

    /// The first of `names` that was given.
    pub(super) fn one_of(&mut self, names: &[&str]) -> Option<&'a str> {
        let i = self.left.iter().position(|m| names.contains(m))?;
        Some(self.left.remove(i))
    }

    /// The first type among the modifiers.
    pub(super) fn ty(&mut self) -> Option<Ty> {
        let i = self.left.iter().position(|m| Ty::parse(m).is_some())?;
        Ty::parse(self.left.remove(i))
    }

    /// The first modifier, whatever it is.
    pub(super) fn first(&mut self) -> Option<&'a str> {
        (!self.left.is_empty()).then(|| self.left.remove(0))
    }
}

/// Decodes a kernel and the functions that it calls.
pub(super) struct Decoder<'m> {
    pub(super) module: &'m Module,
    addresses: &'m [u64],
    shared: HashMap<u32, usize>,
    dynamic_shared: usize,
    frame: usize,
    /// There are sixteen predicates per line.
    pred_line: (usize, usize),
    constants: HashMap<(u8, u64), u32>,
    specials: HashMap<(u8, Special), u32>,
    code: Vec<Inst>,
    /// Function index to place in `callees`.
    pub(super) callee_of: HashMap<usize, u32>,
    /// Current function: its registers' places and its variables' offsets in local memory.
    function: usize,
    registers: Vec<u32>,
    locals: Vec<u32>,
    /// The register with how far its `.local` variables are from there, if it can be called while it runs.
    shift: Option<u32>,
    /// The functions that can.
    recursive: HashSet<usize>,
    line: u32,
    pub(super) clustered: bool,
    temps: HashMap<(u8, u8), u32>,
}

/// The function by which a kernel launches a graph.
const GRAPH_LAUNCH: &str = "cudaGraphLaunch";

/// Decodes the kernel that is function `entry` of `module`.
pub(super) fn decode(
    module: &Module,
    addresses: &[u64],
    kernel: &crate::ptx::Kernel,
) -> Result<Program, Error> {
    let functions = module.reachable(kernel.function);
    let (static_shared, shared) = module.shared_layout(kernel.function);
    let mut d = Decoder {
        module,
        addresses,
        shared,
        dynamic_shared: static_shared,
        frame: 0,
        pred_line: (0, 64),
        constants: HashMap::new(),
        specials: HashMap::new(),
        code: Vec::new(),
        callee_of: functions
            .iter()
            .enumerate()
            .map(|(i, &f)| (f, i as u32))
            .collect(),
        function: 0,
        registers: Vec::new(),
        locals: Vec::new(),
        shift: None,
        recursive: module.recursive(&functions),
        line: 0,
        clustered: false,
        temps: HashMap::new(),
    };
    let mut local = 0usize;
    let mut callees = Vec::new();
    for &f in &functions {
        callees.push(d.function(f, &mut local)?);
    }
    // A multiple of the largest access keeps every lane's local memory aligned.
    let local = local.next_multiple_of(16);
    let has_variables = |of: &Callee| of.again.as_ref().is_some_and(|of| of.variables.1 > 0);
    let stack = if callees.iter().any(has_variables) {
        STACK_BYTES
    } else {
        0
    };
    let constants = d
        .constants
        .iter()
        .map(|(&(size, v), &at)| (at, size, v))
        .collect();
    let specials = d
        .specials
        .iter()
        .map(|(&(size, s), &at)| (at, size, s))
        .collect();
    Ok(Program {
        name: kernel.name.clone(),
        code: d.code,
        callees,
        frame: d.frame,
        constants,
        specials,
        local,
        stack,
        shared: kernel.static_shared_bytes,
        param_bytes: kernel.param_bytes,
        clustered: d.clustered,
        max_threads: kernel.max_threads.min(1024),
        required_block: kernel.required_block,
        launches_graphs: functions.iter().any(|&of| {
            let of = &module.functions[of];
            !of.has_body && of.name == GRAPH_LAUNCH
        }),
    })
}

/// Local memory of a thread for the variables of functions that are called while they run.
const STACK_BYTES: usize = 16 << 10;

/// The address that stands for function `f`.
pub(super) fn function_address(f: usize) -> u64 {
    FUNCTION_WINDOW + 16 * (f as u64 + 1)
}

impl<'m> Decoder<'m> {
    fn function(&mut self, index: usize, local: &mut usize) -> Result<Callee, Error> {
        let f = &self.module.functions[index];
        self.function = index;
        self.line = f.line;
        let variables = self.place_locals(f, local);
        let spans = |list: &[u32]| {
            list.iter()
                .map(|&v| (self.locals[v as usize], f.locals[v as usize].size as u32))
                .collect()
        };
        let mut callee = Callee {
            entry: self.code.len() as u32,
            address: function_address(index),
            params: spans(&f.params),
            returns: spans(&f.returns),
            again: None,
        };
        self.registers = vec![NONE; f.registers.len()];
        let is_recursive = self.recursive.contains(&index);
        self.shift = is_recursive.then(|| self.allocate(8));
        if f.has_body {
            self.body(f)?;
            callee.again = self.shift.map(|shift| self.again(f, shift, variables));
        } else {
            self.call_of_system(f, &callee);
        }
        let end = self.inst(Op::Return);
        self.code.push(end);
        Ok(callee)
    }

    /// Places a function's variables in local memory from `local` on. Returns the place and the size of those of
    /// `.local`.
    fn place_locals(&mut self, f: &Function, local: &mut usize) -> (u32, u32) {
        // Variables of `.local` lie together, so that all of them can be elsewhere in a call while the function runs.
        self.locals = vec![0; f.locals.len()];
        let before = *local;
        let mut variables = (before as u32, 0);
        for is_param in [false, true] {
            let all = f.locals.iter().zip(&mut self.locals);
            for (v, place) in all.filter(|(v, _)| v.is_param == is_param) {
                let at = local.next_multiple_of(v.align.max(1));
                *local = at + v.size;
                *place = at as u32;
            }
            if !is_param {
                variables.1 = (*local - before) as u32;
            }
        }
        variables
    }

    /// The body of a function that a module only declares: a call of the GPU's system, if that has the function.
    fn call_of_system(&mut self, f: &Function, callee: &Callee) {
        let op = match f.name.as_str() {
            "__assertfail" => Op::Assert,
            "vprintf" => Op::Env(super::printf::vprintf),
            "cudaGraphSetConditional" => Op::Env(super::effects::set_condition),
            "malloc" => Op::Env(super::effects::malloc),
            "free" => Op::Env(super::effects::free),
            n if super::runtime::find(n).is_some() => Op::Env(super::runtime::call),
            n => Op::Unsupported(format!("call to the undefined function {n}").into()),
        };
        let mut i = self.inst(op);
        i.list = callee.params.iter().map(|p: &(u32, u32)| p.0).collect();
        i.imm = callee.returns.first().map_or(-1, |result| result.0.into());
        // For a function of the device runtime, these are not registers.
        i.d = callee.returns.first().map_or(0, |result| result.1);
        i.c = super::runtime::find(&f.name).unwrap_or(0) as u32;
        self.code.push(i);
    }

    fn body(&mut self, f: &Function) -> Result<(), Error> {
        // One PTX instruction may become several instructions, so targets are patched afterwards.
        let mut at = Vec::with_capacity(f.body.len() + 1);
        let start = self.code.len();
        for i in &f.body {
            at.push(self.code.len() as u32);
            self.line = i.line;
            let first = self.code.len();
            self.instruction(i)?;
            if let Some((r, negate)) = i.guard {
                let guard = self.register(r)?;
                for k in &mut self.code[first..] {
                    k.guard = guard;
                    k.negate = negate;
                }
            }
        }
        at.push(self.code.len() as u32);
        for i in &mut self.code[start..] {
            match &mut i.op {
                Op::Branch(t) => *t = at[*t as usize],
                Op::BranchIndex(list) => {
                    for t in list {
                        *t = at[*t as usize];
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The state that a recursive call of the current function must preserve.
    fn again(&self, f: &Function, shift: u32, variables: (u32, u32)) -> Again {
        let used = f.registers.iter().zip(&self.registers);
        let used = used.filter(|(_, place)| **place != NONE);
        let registers = used.map(|(of, place)| (*place, of.bits / 8));
        let locals = f.locals.iter().zip(&self.locals);
        let params = locals.clone().filter(|(v, _)| v.is_param);
        let align = locals.filter(|(v, _)| !v.is_param).map(|(v, _)| v.align);
        Again {
            registers: registers.chain([(shift, 8)]).collect(),
            params: params.map(|(v, place)| (*place, v.size as u32)).collect(),
            shift,
            variables,
            align: align.max().unwrap_or(1).max(16) as u32,
        }
    }

    fn instruction(&mut self, i: &Instruction) -> Result<(), Error> {
        let mut m = Mods {
            left: i.modifiers.iter().map(String::as_str).collect(),
        };
        let o = &i.operands[..];
        let known = match i.opcode.as_str() {
            "add" | "sub" | "mul" | "mad" | "fma" | "div" | "rem" | "abs" | "neg" | "min"
            | "max" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh"
            | "mul24" | "mad24" | "sad" | "addc" | "subc" | "madc" | "copysign" | "dp4a"
            | "dp2a" => self.arithmetic(&i.opcode, &mut m, o)?,
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "popc"
            | "clz" | "bfind" | "fns" | "brev" | "bfe" | "bfi" | "bmsk" | "szext" | "prmt"
            | "vabsdiff" | "vabsdiff4" | "vabsdiff2" | "vadd4" | "vsub4" | "vmin4" | "vmax4"
            | "vavrg4" => self.bits(&i.opcode, &mut m, o)?,
            "setp" | "set" | "selp" | "slct" | "testp" => self.compare(&i.opcode, &mut m, o)?,
            "cvt" => self.convert(&mut m, o)?,
            "mov" | "cvta" | "isspacep" | "mapa" | "getctarank" => {
                self.data(&i.opcode, &mut m, o)?
            }
            "ld" | "ldu" | "st" | "atom" | "red" | "prefetch" | "prefetchu" | "discard"
            | "applypriority" | "createpolicy" | "cp" => self.memory(&i.opcode, &mut m, o)?,
            "bra" | "brx" | "call" | "ret" | "exit" | "trap" | "brkpt" | "bar" | "barrier"
            | "membar" | "fence" | "nanosleep" | "griddepcontrol" | "pmevent" | "setmaxnreg" => {
                self.control(&i.opcode, &mut m, o)?
            }
            "shfl" | "vote" | "match" | "activemask" | "elect" | "redux" => {
                self.collective(&i.opcode, &mut m, o)?
            }
            "mbarrier" => self.mbarrier(&mut m, o)?,
            "tex" | "tld4" | "txq" | "suq" | "suld" | "sust" => {
                self.texture(&i.opcode, &mut m, o)?
            }
            _ => false,
        };
        if !known {
            return self.error(format!(
                "instruction {}{} is not supported",
                i.opcode,
                i.modifiers
                    .iter()
                    .map(|m| format!(".{m}"))
                    .collect::<String>()
            ));
        }
        if let Some(l) = m.left.first() {
            return self.error(format!("modifier .{l} of {} is not supported", i.opcode));
        }
        Ok(())
    }

    pub(super) fn error<T>(&self, message: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(self.line, message))
    }

    pub(super) fn inst(&self, op: Op) -> Inst {
        Inst {
            op,
            guard: NONE,
            negate: false,
            wide: false,
            d: NONE,
            a: NONE,
            b: NONE,
            c: NONE,
            e: NONE,
            imm: 0,
            list: Box::default(),
            line: self.line,
        }
    }

    pub(super) fn push(&mut self, i: Inst) {
        self.code.push(i);
    }

    /// Emits a register operation.
    pub(super) fn alu(&mut self, f: Alu, d: u32, sources: &[u32]) {
        let mut i = self.inst(Op::Alu(f));
        i.d = d;
        for (slot, &s) in [&mut i.a, &mut i.b, &mut i.c, &mut i.e]
            .into_iter()
            .zip(sources)
        {
            *slot = s;
        }
        self.push(i);
    }

    /// A new instruction for an operation with an environment.
    pub(super) fn env(&self, f: EnvFn) -> Inst {
        self.inst(Op::Env(f))
    }

    fn allocate(&mut self, bytes: usize) -> u32 {
        if bytes == 0 {
            if self.pred_line.1 == 64 {
                self.pred_line = (self.frame, 0);
                self.frame += 64;
            }
            let at = self.pred_line.0 + self.pred_line.1;
            self.pred_line.1 += 4;
            return at as u32;
        }
        let at = self.frame.next_multiple_of(64);
        self.frame = at + (bytes * 32).next_multiple_of(64);
        at as u32
    }

    /// A scratch register of the decoder; `n` distinguishes several.
    pub(super) fn temp(&mut self, bytes: u8, n: u8) -> u32 {
        if let Some(&t) = self.temps.get(&(bytes, n)) {
            return t;
        }
        let t = self.allocate(usize::from(bytes));
        self.temps.insert((bytes, n), t);
        t
    }

    /// Bits of register `r` of the current function; 1 for predicates.
    pub(super) fn width(&self, r: u32) -> u8 {
        self.module.functions[self.function].registers[r as usize].bits
    }

    /// The place of register `r` of the current function.
    pub(super) fn register(&mut self, r: u32) -> Result<u32, Error> {
        if self.registers[r as usize] == NONE {
            let bits = self.width(r);
            self.registers[r as usize] = self.allocate(usize::from(bits / 8));
        }
        Ok(self.registers[r as usize])
    }

    /// A register that holds `v` in every lane; `bytes` zero for a predicate.
    pub(super) fn constant(&mut self, bytes: usize, v: u64) -> u32 {
        let v = match bytes {
            0 => u64::from(v != 0),
            1 => v & 0xff,
            2 => v & 0xffff,
            4 => v & 0xffff_ffff,
            _ => v,
        };
        if let Some(&at) = self.constants.get(&(bytes as u8, v)) {
            return at;
        }
        let at = self.allocate(bytes);
        self.constants.insert((bytes as u8, v), at);
        at
    }

    pub(super) fn special_slot(&mut self, bytes: u8, s: Special) -> u32 {
        if let Some(&at) = self.specials.get(&(bytes, s)) {
            return at;
        }
        let at = self.allocate(usize::from(bytes));
        self.specials.insert((bytes, s), at);
        at
    }

    pub(super) fn local_span(&self, v: u32) -> (u32, u32) {
        let var = &self.module.functions[self.function].locals[v as usize];
        (self.locals[v as usize], var.size as u32)
    }

    pub(super) fn targets(&self, t: u32) -> &'m [u32] {
        &self.module.functions[self.function].branch_targets[t as usize]
    }
}
