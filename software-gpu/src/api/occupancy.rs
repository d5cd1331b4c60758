// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The number of blocks that fit on a multiprocessor.

use std::ffi::{c_int, c_uint};

use gpgpu_protocol::cuda::{
    CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUfunction, CUlaunchConfig,
    CUoccupancyB2DSize,
};

use super::launch::{check, from_config};
use crate::config::{
    BLOCKS_PER_MULTIPROCESSOR, Config, MAX_CLUSTER_BLOCKS, MULTIPROCESSORS, REGISTERS,
    SHARED_PER_BLOCK_OPTIN, SHARED_PER_MULTIPROCESSOR, SHARED_RESERVED_PER_BLOCK,
    THREADS_PER_MULTIPROCESSOR, WARP_SIZE,
};
use crate::context::Context;
use crate::ffi::{Pointer, Result, export};
use crate::module::Function;

/// Shared memory is handed out in pieces of this many bytes.
const SHARED_UNIT: usize = 128;
/// Registers are handed out to a warp in pieces of this many.
const REGISTER_UNIT: u32 = 256;

/// Blocks of `threads` threads with `dynamic_shared` bytes that a multiprocessor holds at once.
pub(crate) fn active_blocks(function: &Function, threads: u32, dynamic_shared: usize) -> u32 {
    let info = function.info();
    let warps = threads.div_ceil(WARP_SIZE);
    let shared = info.static_shared_bytes.saturating_add(dynamic_shared);
    if warps == 0
        || threads > info.max_threads
        || dynamic_shared > function.most_dynamic_shared()
        || shared > SHARED_PER_BLOCK_OPTIN
    {
        return 0;
    }
    let shared = (shared + SHARED_RESERVED_PER_BLOCK).next_multiple_of(SHARED_UNIT);
    let registers = warps * (info.registers * WARP_SIZE).next_multiple_of(REGISTER_UNIT);
    let by_registers = match info.registers {
        0 => u32::MAX,
        // The estimate refuses nothing that the executor can run.
        _ => (REGISTERS / registers).max(1),
    };
    BLOCKS_PER_MULTIPROCESSOR
        .min(THREADS_PER_MULTIPROCESSOR / (warps * WARP_SIZE))
        .min(by_registers)
        .min((SHARED_PER_MULTIPROCESSOR / shared) as u32)
}

fn blocks(
    cx: &Context,
    out: Pointer<c_int>,
    function: CUfunction,
    threads: c_int,
    shared: usize,
    flags: c_uint,
) -> Result {
    out.required()?;
    let function = Function::named(function as u64, cx)?;
    let threads = u32::try_from(threads)
        .ok()
        .filter(|t| *t > 0)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if flags > 1 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(active_blocks(&function, threads, shared) as c_int)
}

fn best(
    cx: &Context,
    (min_grid, block): (Pointer<c_int>, Pointer<c_int>),
    function: CUfunction,
    shared_of: CUoccupancyB2DSize,
    shared: usize,
    limit: c_int,
    flags: c_uint,
) -> Result {
    min_grid.required()?;
    block.required()?;
    if flags > 1 || limit < 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let function = Function::named(function as u64, cx)?;
    let most = function.info().max_threads;
    let limit = if limit == 0 {
        most
    } else {
        most.min(limit as u32)
    };
    let mut found = (0, 0, 0);
    // From the largest size down; a smaller one must hold more threads to win.
    let first = limit.next_multiple_of(WARP_SIZE);
    for size in (1..=first / WARP_SIZE)
        .rev()
        .map(|w| (w * WARP_SIZE).min(limit))
    {
        let shared = match shared_of {
            // SAFETY: the caller's function, as it asked.
            Some(f) => unsafe { f(size as c_int) },
            None => shared,
        };
        let blocks = active_blocks(&function, size, shared);
        if blocks * size > found.0 {
            found = (blocks * size, blocks, size);
        }
    }
    min_grid.set((found.1 * MULTIPROCESSORS) as c_int)?;
    block.set(found.2 as c_int)
}

fn cluster_config(
    function: &Function,
    config: Pointer<CUlaunchConfig>,
) -> Result<crate::exec::Launch> {
    if !Config::get().has_clusters() {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    let mut launch = from_config(&config.get()?)?.0;
    if launch.cluster == [1; 3] {
        launch.cluster = function.cluster().unwrap_or([1; 3]);
    }
    Ok(launch)
}

export! {
    /// `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
    context fn cuOccupancyMaxActiveBlocksPerMultiprocessor(out: Pointer<c_int>, function: CUfunction, threads: c_int, shared: usize) |cx| {
        blocks(&cx, out, function, threads, shared, 0)
    }

    /// `cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags`.
    context fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(out: Pointer<c_int>, function: CUfunction, threads: c_int, shared: usize, flags: c_uint) |cx| {
        blocks(&cx, out, function, threads, shared, flags)
    }

    /// `cuOccupancyMaxPotentialBlockSize`.
    context fn cuOccupancyMaxPotentialBlockSize(min_grid: Pointer<c_int>, block: Pointer<c_int>, function: CUfunction, shared_of: CUoccupancyB2DSize, shared: usize, limit: c_int) |cx| {
        best(&cx, (min_grid, block), function, shared_of, shared, limit, 0)
    }

    /// `cuOccupancyMaxPotentialBlockSizeWithFlags`.
    context fn cuOccupancyMaxPotentialBlockSizeWithFlags(min_grid: Pointer<c_int>, block: Pointer<c_int>, function: CUfunction, shared_of: CUoccupancyB2DSize, shared: usize, limit: c_int, flags: c_uint) |cx| {
        best(&cx, (min_grid, block), function, shared_of, shared, limit, flags)
    }

    /// `cuOccupancyAvailableDynamicSMemPerBlock`: with `count` blocks on each multiprocessor.
    context fn cuOccupancyAvailableDynamicSMemPerBlock(out: Pointer<usize>, function: CUfunction, count: c_int, threads: c_int) |cx| {
        out.required()?;
        let function = Function::named(function as u64, &cx)?;
        if count <= 0 || threads <= 0 || active_blocks(&function, threads as u32, 0) < count as u32 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let share = SHARED_PER_MULTIPROCESSOR / count as usize / SHARED_UNIT * SHARED_UNIT;
        let taken = SHARED_RESERVED_PER_BLOCK + function.info().static_shared_bytes;
        out.set(share.saturating_sub(taken).min(function.most_dynamic_shared()))
    }

    /// `cuOccupancyMaxPotentialClusterSize`.
    context fn cuOccupancyMaxPotentialClusterSize(out: Pointer<c_int>, function: CUfunction, config: Pointer<CUlaunchConfig>) |cx| {
        out.required()?;
        let function = Function::named(function as u64, &cx)?;
        let launch = cluster_config(&function, config)?;
        let threads = launch.block.iter().product();
        let fits = active_blocks(&function, threads, launch.dynamic_shared_bytes) > 0;
        out.set(if fits { MAX_CLUSTER_BLOCKS as c_int } else { 0 })
    }

    /// `cuOccupancyMaxActiveClusters`.
    context fn cuOccupancyMaxActiveClusters(out: Pointer<c_int>, function: CUfunction, config: Pointer<CUlaunchConfig>) |cx| {
        out.required()?;
        let function = Function::named(function as u64, &cx)?;
        let launch = cluster_config(&function, config)?;
        check(&function, &launch, &cx)?;
        let threads = launch.block.iter().product();
        let blocks = active_blocks(&function, threads, launch.dynamic_shared_bytes) * cx.multiprocessors();
        out.set((blocks / launch.cluster.iter().product::<u32>()) as c_int)
    }
}
