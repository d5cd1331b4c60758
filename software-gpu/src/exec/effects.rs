// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The effects of kernels other than on memory, through functions of the device.

use super::env::{Env, LOCAL};
use super::lanes::each_until;
use super::program::{Inst, Stop};
use super::{FaultKind, Launch};

/// The destination of these effects.
pub trait Effects: Sync {
    /// Takes the text of one call of `printf`.
    fn print(&self, text: Vec<u8>);

    /// Sets the value with this number, on which conditional nodes of the launched graph depend. `false` if there is
    /// none: the kernel was not launched by a graph, or the graph has fewer values.
    fn set_condition(&self, _number: u64, _value: u32) -> bool {
        false
    }

    /// The name of the graph that the kernel is launched in, if kernels can launch that, or 0 (`%current_graph_exec`).
    fn current_graph(&self) -> u64 {
        0
    }

    /// Launches a graph by its name, in one of the streams for that; returns the result for the kernel. `None` if there
    /// is no such graph.
    fn launch_graph(&self, _graph: u64, _stream: u64) -> Option<u32> {
        None
    }

    /// Whether kernels reach the memory of another device's context, by its id (`cuCtxEnablePeerAccess`).
    fn reaches(&self, _context: u64) -> bool {
        false
    }

    /// Allocates this number of bytes for all kernels of the context. Returns their address, a multiple of 16, or zero
    /// if there is no room. Kernels can access the memory as soon as this has returned.
    fn allocate(&self, _bytes: u64) -> u64 {
        0
    }

    /// Frees memory of `allocate`. `false` if no allocation begins at the address.
    fn free(&self, _address: u64) -> bool {
        false
    }

    /// The number of the kernels' device, and how many devices there are.
    fn device(&self) -> (i32, u32) {
        (0, 1)
    }

    /// An attribute of a device, or an error by its number in `cudaError_t`.
    ///
    /// # Errors
    /// There is no such device or attribute.
    fn device_attribute(&self, _attribute: u32, _device: i32) -> Result<i32, u32> {
        Err(1)
    }

    /// A limit of the context (`CUlimit`).
    fn limit(&self, _limit: u32) -> Option<usize> {
        None
    }

    /// An attribute of a kernel of the module (`CUfunction_attribute`).
    fn kernel_attribute(&self, _kernel: usize, _attribute: u32) -> i32 {
        0
    }

    /// The blocks of a kernel that a multiprocessor holds at once.
    fn active_blocks(&self, _kernel: usize, _threads: u32, _shared: usize) -> u32 {
        0
    }

    /// Whether a kernel may launch this kernel in this way, in addition to the kernel's own requirements. Sets the
    /// cluster.
    fn prepare(&self, _kernel: usize, _launch: &mut Launch) -> bool {
        true
    }
}

/// `cudaGraphSetConditional`: `list` has the places of its parameters in local memory. A number of no value is an
/// illegal address, as with NVIDIA's driver.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(super) unsafe fn set_condition(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    each_until(mask, |lane| {
        let number = env.parameter(lane, i.list.first().copied());
        let value = env.parameter_word(lane, i.list.get(1).copied());
        match env.output.set_condition(number, value) {
            true => Ok(()),
            false => Err(illegal(lane, number, 4)),
        }
    })
}

/// The fault of a lane that has named an invalid address.
pub(super) fn illegal(lane: usize, address: u64, len: usize) -> Stop {
    let kind = FaultKind::IllegalAddress {
        address,
        len,
        write: true,
    };
    Stop { kind, lane }
}

/// `malloc`: `list` has the place of its parameter in local memory, `imm` that of its result.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(super) unsafe fn malloc(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    each_until(mask, |lane| allocate(env, i, lane))
}

fn allocate(env: &mut Env<'_, '_>, i: &Inst, lane: usize) -> Result<(), Stop> {
    // After a declaration without a result the memory cannot be freed.
    let Ok(result) = u64::try_from(i.imm) else {
        return Ok(());
    };
    let to = env.host::<LOCAL>(lane, result, 8, true)?;
    let bytes = env.parameter(lane, i.list.first().copied());
    let address = env.output.allocate(bytes);
    // SAFETY: `host` answers for the pointer and the length.
    unsafe { to.cast::<u64>().write_unaligned(address) };
    Ok(())
}

/// `free`: `list` has the place of its parameter in local memory. An address that is no allocation is an illegal
/// address; natively the behaviour is undefined.
///
/// # Safety
/// None of its own; the type is `EnvFn`'s.
pub(super) unsafe fn free(env: &mut Env<'_, '_>, i: &Inst, mask: u32) -> Result<(), Stop> {
    each_until(mask, |lane| {
        let address = env.parameter(lane, i.list.first().copied());
        match address == 0 || env.output.free(address) {
            true => Ok(()),
            false => Err(illegal(lane, address, 1)),
        }
    })
}
