// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Runs kernels of a parsed module on the CPU.
//!
//! A warp is 32 lanes that run one instruction at a time under a mask; registers are arrays of 32 lanes. Lanes that
//! diverge become groups with a program counter each; the group with the lowest one runs first, so that groups meet
//! again where their paths do. Warps are resumable: a barrier, or a time slice used up, hands over to the block's next
//! warp. Blocks are spread over worker threads in ascending order; those of a cooperative launch are all resident at
//! once.

mod atomic;
mod block;
mod children;
mod collective;
mod decode;
mod effects;
mod env;
mod lanes;
mod mbarrier;
mod memory;
mod module;
mod printf;
mod program;
mod run;
mod runtime;
mod soft;
mod stacks;
mod system;
mod texture;
mod warp;

use std::sync::atomic::AtomicBool;

pub use children::Call;
pub use effects::Effects;
pub use memory::{Memory, Range};
pub use module::LoadedModule;
pub(crate) use runtime::is_function;
pub use texture::{Class, Format, Image, Layout, Outside, Place, Sampler, Surface, Texture};

use crate::ptx;

/// The properties of a kernel's launch (`cuLaunchKernelEx`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Launch {
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z; 1024 at most in all.
    pub block: [u32; 3],
    /// Blocks of a cluster in x, y and z; `[1, 1, 1]` if no cluster was requested. Must divide the grid.
    pub cluster: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub dynamic_shared_bytes: usize,
    /// All blocks are to be resident at once, as grid-wide synchronisation needs.
    pub cooperative: bool,
}

impl Default for Launch {
    fn default() -> Self {
        Self {
            grid: [1; 3],
            block: [1; 3],
            cluster: [1; 3],
            dynamic_shared_bytes: 0,
            cooperative: false,
        }
    }
}

/// The reason why a kernel stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FaultKind {
    /// An access of `len` bytes at an address where nothing is mapped, or a write to read-only memory
    /// (`CUDA_ERROR_ILLEGAL_ADDRESS`).
    IllegalAddress {
        /// The address.
        address: u64,
        /// Bytes accessed.
        len: usize,
        /// Whether it was a store or an atomic operation.
        write: bool,
    },
    /// An address that is not a multiple of the access's size (`CUDA_ERROR_MISALIGNED_ADDRESS`).
    MisalignedAddress {
        /// The address.
        address: u64,
        /// Bytes accessed.
        len: usize,
    },
    /// `trap`, or a brkpt (`CUDA_ERROR_LAUNCH_FAILED`).
    Trap,
    /// A failed `assert` (`CUDA_ERROR_ASSERT`).
    Assert {
        /// File, line and function, as CUDA prints them.
        place: String,
        /// The expression.
        expression: String,
    },
    /// An instruction that cannot be executed with its operands, for example an indirect call to an address that is no
    /// function (`CUDA_ERROR_ILLEGAL_INSTRUCTION`).
    IllegalInstruction(String),
    /// A handle that is no texture's or surface's (`CUDA_ERROR_LAUNCH_FAILED`).
    NoObject(String),
    /// An access outside a surface (`CUDA_ERROR_LAUNCH_FAILED`).
    OutsideSurface,
    /// Recursion is too deep (`CUDA_ERROR_HARDWARE_STACK_ERROR`).
    StackOverflow,
    /// Every remaining thread waits for one that never arrives (a GPU would hang; `CUDA_ERROR_LAUNCH_TIMEOUT`).
    Deadlock,
    /// The caller's flag stopped the kernel.
    Cancelled,
    /// The launch's shape or parameters do not fit the kernel (`CUDA_ERROR_INVALID_VALUE`); nothing ran.
    InvalidLaunch(String),
}

/// The reason and the place at which a kernel stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?} in kernel {kernel}, ptx line {line}, block {block:?}, thread {thread:?}")]
pub struct Fault {
    /// The event.
    pub kind: FaultKind,
    /// The kernel's name.
    pub kernel: String,
    /// Line of the PTX text, zero when the fault has no place.
    pub line: u32,
    /// `%ctaid` of the first thread concerned.
    pub block: [u32; 3],
    /// `%tid` of the first thread concerned.
    pub thread: [u32; 3],
}

/// The reason that a module could not be loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError<E> {
    /// The text has an instruction, modifier or operand that is not known (`CUDA_ERROR_INVALID_PTX`).
    #[error(transparent)]
    Ptx(#[from] ptx::Error),
    /// The allocator refused; its error.
    #[error("no room for a module variable")]
    Allocate(E),
}

/// Runs `kernel` of `module` and everything that it launches to their end, and returns when all effects are in memory.
/// `params` is the parameter buffer in the layout of [`ptx::Kernel::params`], `param_bytes` long. `cancel`, once true,
/// makes the kernel stop soon. Its output is passed to `output`, call by call.
///
/// # Errors
/// The first fault found; other blocks may have run in part or not at all by then.
pub fn launch(
    module: &LoadedModule,
    kernel: &str,
    launch: &Launch,
    params: &[u8],
    memory: &dyn Memory,
    cancel: &AtomicBool,
    output: &dyn Effects,
) -> Result<(), Fault> {
    let Some(number) = module.number(kernel) else {
        return Err(Fault {
            kind: FaultKind::InvalidLaunch("no such kernel".into()),
            kernel: kernel.to_owned(),
            line: 0,
            block: [0; 3],
            thread: [0; 3],
        });
    };
    let first = children::Child {
        kernel: number,
        launch: *launch,
        params: params.to_vec(),
    };
    children::run(module, first, memory, (cancel, output))
}
