// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The intermediate form that the parser hands to the executor.

use std::collections::HashMap;

/// A parsed module.
#[derive(Debug, Clone, Default)]
pub struct Module {
    /// PTX ISA version times ten, for instance 90 for `.version 9.0`.
    pub version: u32,
    /// The target's number, for instance 80 for `.target sm_80`.
    pub target: u32,
    /// The `.entry` functions in the order of the text.
    pub kernels: Vec<Kernel>,
    /// Module-scope variables in `.global` and `.const`, those with local linkage and those declared in functions
    /// included.
    pub globals: Vec<Global>,
    /// All function bodies, entries included.
    pub functions: Vec<Function>,
    /// Module-scope `.shared` variables.
    pub shared: Vec<Variable>,
    /// `functions` by name.
    pub function_index: HashMap<String, usize>,
}

impl Module {
    /// The kernel called `name`.
    pub fn kernel(&self, name: &str) -> Option<&Kernel> {
        self.kernels.iter().find(|k| k.name == name)
    }

    /// The visible or local variable called `name`.
    pub fn global(&self, name: &str) -> Option<(usize, &Global)> {
        self.globals
            .iter()
            .enumerate()
            .find(|(_, g)| g.name == name)
    }
}

impl Module {
    /// Bytes of all variables that the module brings to a context.
    pub fn variable_bytes(&self) -> u64 {
        let own = self.globals.iter().filter(|global| !global.is_extern);
        own.fold(0, |sum, global| sum.saturating_add(global.size as u64))
    }

    /// Bytes of static shared memory that `function` and all it may call use, and each used [`Module::shared`]
    /// variable's offset. Dynamically sized arrays begin at the end of the static part, aligned to 16.
    pub fn shared_layout(&self, function: usize) -> (usize, HashMap<u32, usize>) {
        let mut used = Vec::new();
        for &f in &self.reachable(function) {
            for i in &self.functions[f].body {
                for s in i.operands.iter().filter_map(Operand::symbol) {
                    if let Symbol::Shared(v) = s
                        && !used.contains(&v)
                    {
                        used.push(v);
                    }
                }
            }
        }
        used.sort_unstable();
        let mut offsets = HashMap::new();
        let mut end = 0usize;
        for &v in &used {
            let var = &self.shared[v as usize];
            if !var.is_extern {
                let at = end.next_multiple_of(var.align);
                offsets.insert(v, at);
                end = at + var.size;
            }
        }
        for &v in &used {
            let var = &self.shared[v as usize];
            if var.is_extern {
                end = end.next_multiple_of(var.align.max(16));
            }
        }
        for &v in &used {
            if self.shared[v as usize].is_extern {
                offsets.insert(v, end);
            }
        }
        (end, offsets)
    }
}

/// The host's properties of an entry (`cuFuncGetAttribute`, `cuFuncGetParamInfo`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kernel {
    /// The entry's name.
    pub name: String,
    /// Its function in [`Module::functions`].
    pub function: usize,
    /// The parameters in order.
    pub params: Vec<Param>,
    /// Size of the parameter buffer in bytes.
    pub param_bytes: usize,
    /// Statically sized shared memory in bytes.
    pub static_shared_bytes: usize,
    /// Local memory of one thread in bytes, called functions not included.
    pub local_bytes: usize,
    /// Bytes of `.const` variables of the module.
    pub const_bytes: usize,
    /// Most threads that a block may have: from `.maxntid` or `.reqntid`, else 1024.
    pub max_threads: u32,
    /// `.reqntid`, the only block shape allowed.
    pub required_block: Option<[u32; 3]>,
    /// `.reqnctapercluster`, the only cluster shape allowed.
    pub required_cluster: Option<[u32; 3]>,
    /// An estimate of the registers that one thread would need on a GPU, from 16 to 255.
    pub registers: u32,
}

/// One kernel parameter's place in the parameter buffer, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Param {
    /// Offset in the buffer.
    pub offset: usize,
    /// Size.
    pub size: usize,
    /// Alignment.
    pub align: usize,
}

/// State space of a module variable that lives in device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GlobalSpace {
    /// `.global`
    Global,
    /// `.const`
    Const,
}

/// A `.global` or `.const` variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Global {
    /// The name in the text.
    pub name: String,
    /// Size in bytes; zero for `.extern` arrays of unknown size.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Its state space.
    pub space: GlobalSpace,
    /// Initial bytes; shorter than `size` where the rest is zero.
    pub initialiser: Vec<u8>,
    /// Addresses to be written over the initial bytes.
    pub relocations: Vec<Relocation>,
    /// Declared `.extern`: another module defines it.
    pub is_extern: bool,
    /// Declared `.visible`, `.weak`, `.common` or `.extern`: `cuModuleGetGlobal` may find it.
    pub is_visible: bool,
    /// Declared `.attribute(.managed)`: the host uses it as well.
    pub is_managed: bool,
    /// Set if its type is `.texref` or `.surfref`.
    pub reference: Option<Reference>,
}

/// A variable for the object that the host binds to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reference {
    /// A texture.
    Texture,
    /// A surface.
    Surface,
}

/// An address inside an initialiser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relocation {
    /// Byte offset in the initialiser.
    pub offset: usize,
    /// Width of the field in bytes.
    pub size: usize,
    /// The symbol of the address.
    pub target: Symbol,
    /// Added to the address.
    pub addend: i64,
    /// Right shift in bits applied to the address (the mask operators such as `0xFF00(sym)`).
    pub shift: u32,
}

/// A variable of `.shared`, `.local` or `.param` space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name in the text.
    pub name: String,
    /// Size in bytes; zero for the dynamically sized `.extern .shared` array.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// `.extern .shared`: begins after static shared memory.
    pub is_extern: bool,
    /// Whether it is in the `.param` space.
    pub is_param: bool,
}

/// The object of a name in an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Symbol {
    /// Index in [`Module::globals`].
    Global(u32),
    /// Index in [`Module::shared`].
    Shared(u32),
    /// Index in [`Function::locals`].
    Local(u32),
    /// Index in [`Function::locals`] of a call-site `.param` variable or of a device function's parameter.
    ParamVar(u32),
    /// Byte offset in the kernel's parameter buffer.
    KernelParam(u32),
    /// Index in [`Module::functions`].
    Function(u32),
}

/// A register declaration's class by width in bits: 1 for `.pred`, 8, 16, 32, 64 or 128.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Register {
    /// Width in bits.
    pub bits: u8,
}

/// A function body.
#[derive(Debug, Clone, Default)]
pub struct Function {
    /// The name in the text.
    pub name: String,
    /// Whether it is an `.entry`.
    pub is_entry: bool,
    /// Whether a body was given; declarations of unknown external functions have none.
    pub has_body: bool,
    /// Return parameters: indices in `locals`.
    pub returns: Vec<u32>,
    /// Parameters of a device function: indices in `locals`.
    pub params: Vec<u32>,
    /// All registers.
    pub registers: Vec<Register>,
    /// Variables of one thread: `.local`, call-site `.param`, and a device function's own parameters.
    pub locals: Vec<Variable>,
    /// The instructions; labels are indices in here and may equal its length.
    pub body: Vec<Instruction>,
    /// Lists named by `.branchtargets`.
    pub branch_targets: Vec<Vec<u32>>,
    /// Line of the declaration.
    pub line: u32,
}

/// One instruction, its names resolved.
#[derive(Debug, Clone)]
pub struct Instruction {
    /// Line of the text.
    pub line: u32,
    /// `@p` or `@!p`: the register and whether it is negated.
    pub guard: Option<(u32, bool)>,
    /// The opcode without modifiers, for instance `add`.
    pub opcode: String,
    /// The modifiers in order, without their dots, for instance `["rn", "f32"]`.
    pub modifiers: Vec<String>,
    /// The operands in order.
    pub operands: Vec<Operand>,
}

/// An operand.
#[derive(Debug, Clone, PartialEq)]
pub enum Operand {
    /// A register.
    Register(u32),
    /// `!p`
    Not(u32),
    /// An integer constant.
    Integer(i64),
    /// A constant written `0f…`.
    Single(u32),
    /// A constant written `0d…` or in decimal.
    Double(u64),
    /// A special register by name, for instance `%tid.x`.
    Special(String),
    /// The address of a symbol plus an offset in bytes.
    Symbol(Symbol, i64),
    /// `[base + offset]`
    Address(Base, i64),
    /// `[base, {a, b, …}]`: a texture or a surface, and where.
    Texture(Base, Vec<Operand>),
    /// `{a, b, …}`
    Vector(Vec<Operand>),
    /// `p|q`
    Pair(Box<Operand>, Box<Operand>),
    /// A label.
    Label(u32),
    /// Index in [`Function::branch_targets`].
    Targets(u32),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
    /// `_`
    Sink,
    /// The name of a `.callprototype` or `.calltargets` label.
    Prototype,
}

impl Operand {
    /// The symbol that the operand names.
    pub fn symbol(&self) -> Option<Symbol> {
        match self {
            Operand::Symbol(s, _) | Operand::Address(Base::Symbol(s), _) => Some(*s),
            _ => None,
        }
    }
}

/// The base of an address operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// A register.
    Register(u32),
    /// A symbol.
    Symbol(Symbol),
    /// Nothing: the offset is the address.
    Absolute,
}
