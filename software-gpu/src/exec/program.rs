// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Decoded kernels.

use super::env::Env;

/// Lanes of a warp.
pub(super) const LANES: usize = 32;

/// No register: for instance no guard.
pub(super) const NONE: u32 = u32::MAX;

/// An operation on registers only. The first argument is the warp's register file.
pub(super) type Alu = unsafe fn(*mut u8, &Inst, u32);

/// An operation that needs more than registers or may fault.
pub(super) type EnvFn = unsafe fn(&mut Env<'_, '_>, &Inst, u32) -> Result<(), Stop>;

/// A fault of one lane, or another immediate end of a warp's slice.
#[derive(Debug)]
pub(super) struct Stop {
    pub(super) kind: super::FaultKind,
    pub(super) lane: usize,
}

/// The warp loop's action for an instruction.
pub(super) enum Op {
    Alu(Alu),
    Env(EnvFn),
    /// Waits until the lanes of the mask in register `e` are together, then runs.
    Collective(EnvFn),
    Branch(u32),
    BranchIndex(Box<[u32]>),
    Call(Box<Call>),
    Return,
    Exit,
    Barrier(Box<Barrier>),
    WarpSync,
    Trap,
    Assert,
    /// Ends the slice: the thread has nothing to do for now.
    Yield,
    Nop,
    /// An instruction that a module may have if it never runs it; the reason.
    Unsupported(Box<str>),
}

/// A call's targets and its copies between parameter areas.
pub(super) struct Call {
    /// First instruction, or `None` when register `a` holds a function's address.
    pub(super) target: Option<u32>,
    /// Arguments: caller's local offset and bytes.
    pub(super) arguments: Vec<(u32, u32)>,
    /// Results, likewise.
    pub(super) results: Vec<(u32, u32)>,
}

/// A function in a program.
pub(super) struct Callee {
    pub(super) entry: u32,
    /// The address that stands for the function.
    pub(super) address: u64,
    /// Local offsets and bytes of its parameters.
    pub(super) params: Vec<(u32, u32)>,
    /// Local offsets and bytes of its results.
    pub(super) returns: Vec<(u32, u32)>,
    /// The needs of a recursive call, if there can be one.
    pub(super) again: Option<Again>,
}

/// The private state of a function, which a recursive call must preserve.
pub(super) struct Again {
    /// Its registers: offsets in the register file, and bytes of a lane (0: a predicate's word).
    pub(super) registers: Vec<(u32, u8)>,
    /// Its `.param` variables: local offsets and bytes.
    pub(super) params: Vec<(u32, u32)>,
    /// The register with how far its `.local` variables are from where they are in a first call.
    pub(super) shift: u32,
    /// The start of these variables in a first call, and their bytes.
    pub(super) variables: (u32, u32),
    /// The alignment of the distance.
    pub(super) align: u32,
}

impl Again {
    /// The bytes of a lane's registers and parameters.
    pub(super) fn bytes(&self) -> usize {
        let registers = self.registers.iter();
        let registers: usize = registers.map(|&(_, size)| usize::from(size.max(1))).sum();
        let params: usize = self.params.iter().map(|&(_, size)| size as usize).sum();
        registers + params
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BarrierKind {
    Sync,
    Arrive,
    Popc,
    And,
    Or,
    /// The second half of a split barrier (`barrier.cluster.wait`).
    Wait,
}

/// A block barrier; the barrier's number is in register `a`, the thread count, if any, in `b`, the predicate in `c`.
pub(super) struct Barrier {
    pub(super) kind: BarrierKind,
    pub(super) negate: bool,
}

/// A decoded instruction. Registers are byte offsets into the register file.
pub(super) struct Inst {
    pub(super) op: Op,
    pub(super) guard: u32,
    pub(super) negate: bool,
    /// Whether register `a` of an address is 64 bits wide.
    pub(super) wide: bool,
    pub(super) d: u32,
    pub(super) a: u32,
    pub(super) b: u32,
    pub(super) c: u32,
    pub(super) e: u32,
    pub(super) imm: i64,
    pub(super) list: Box<[u32]>,
    pub(super) line: u32,
}

/// Special registers whose values are known when a block starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    LaneId,
    WarpId,
    NWarpId,
    SmId,
    NSmId,
    GridId,
    LaneMask(u8),
    DynamicShared,
    TotalShared,
    AggrShared,
    ClusterId(u8),
    NClusterId(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtaRank,
    ClusterNctaRank,
    IsExplicitCluster,
    EnvReg(u8),
    Zero,
}

/// A kernel with all functions that it calls.
pub(super) struct Program {
    pub(super) name: String,
    pub(super) code: Vec<Inst>,
    pub(super) callees: Vec<Callee>,
    /// Bytes of one warp's register file.
    pub(super) frame: usize,
    /// Constants: offset, bytes per lane (0: a predicate word), value.
    pub(super) constants: Vec<(u32, u8, u64)>,
    /// Special registers: offset, bytes per lane, which.
    pub(super) specials: Vec<(u32, u8, Special)>,
    /// Local memory of one thread in bytes.
    pub(super) local: usize,
    /// More of it, for the variables of functions that are called while they run.
    pub(super) stack: usize,
    pub(super) shared: usize,
    pub(super) param_bytes: usize,
    /// Whether blocks of a cluster meet or read one another's shared memory.
    pub(super) clustered: bool,
    pub(super) max_threads: u32,
    /// Whether it may launch graphs.
    pub(super) launches_graphs: bool,
    pub(super) required_block: Option<[u32; 3]>,
}
