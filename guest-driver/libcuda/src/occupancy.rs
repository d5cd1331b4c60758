// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The occupancy of a multiprocessor by a function. The host is asked once for each query.

use gpgpu_protocol::{
    api::{Function, Object, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    launch::{DefaultStream, lower_config},
    stores::{
        objects::Known,
        occupancy::{Occupancy, Question, configuration},
    },
    thread,
};

fn of<T>(client: &Client, func: u64, then: impl FnOnce(&Occupancy) -> T) -> Option<T> {
    let look = |object: &Known| match object {
        Known::Function(function) | Known::Kernel(function) => Some(then(&function.occupancy)),
        _ => None,
    };
    client.objects.look(func, look).flatten()
}

fn known(client: &Client, func: u64, device: CUdevice, question: Question) -> Option<u64> {
    if client.is_corrupted() {
        return None;
    }
    of(client, func, |answers| answers.get(device, question)).flatten()
}

fn note(
    client: &Client,
    func: u64,
    device: CUdevice,
    question: Question,
    answer: u64,
    before: u64,
) {
    of(client, func, |answers| {
        answers.note(device, question, answer, before)
    });
}

/// The answer to a query, from the host unless it is cached.
fn ask(
    client: &Client,
    func: u64,
    question: Question,
    host: impl FnOnce() -> Result<u64>,
) -> Result<u64> {
    // A kernel exists in every context, and the query concerns the current one.
    let Some(device) = client.objects.context_device(thread::current_context()) else {
        return host();
    };
    if let Some(answer) = known(client, func, device, question) {
        return Ok(answer);
    }
    let before = configuration();
    let answer = host()?;
    note(client, func, device, question, answer, before);
    Ok(answer)
}

fn blocks(client: &Client, func: u64, (threads, shared, flags): (i32, usize, u32)) -> Result<i32> {
    let question = Question::Blocks {
        threads,
        shared,
        flags,
    };
    let host = || {
        let request = request::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags {
            numBlocks: true,
            func,
            blockSize: threads,
            dynamicSMemSize: shared,
            flags,
        };
        Ok(u64::from(client.call(&request)?.numBlocks as u32))
    };
    Ok(ask(client, func, question, host)? as u32 as i32)
}

/// The dynamic shared memory of a block, in bytes: a constant, or a function of its number of threads.
fn dynamic_shared(by_threads: CUoccupancyB2DSize, constant: usize, threads: i32) -> usize {
    match by_threads {
        // SAFETY: the program gave the function for this use.
        Some(function) => unsafe { function(threads) },
        None => constant,
    }
}

/// The block size with the most threads on a multiprocessor, and the number of blocks that fill the device.
fn potential_block_size(
    grid: OutPtr<i32>,
    block: OutPtr<i32>,
    func: u64,
    (by_threads, constant): (CUoccupancyB2DSize, usize),
    limit: i32,
    flags: u32,
) -> Result {
    let client = client()?;
    grid.required()?;
    block.required()?;
    let device = client
        .objects
        .context_device(thread::current_context())
        .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
    let question = Question::BlockSize {
        shared: constant,
        limit,
        flags,
    };
    let keep = by_threads.is_none();
    if keep && let Some(both) = known(client, func, device, question) {
        grid.offer((both >> 32) as i32);
        block.offer(both as u32 as i32);
        return Ok(());
    }
    let before = configuration();
    let info = crate::device::device(device)?;
    let attribute = |attribute| crate::device::attribute(info, attribute);
    let warp = attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    let per_processor = attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
    let processors = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    let most = CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    let most = match client.objects.get(func) {
        // NVIDIA's driver returns no attribute of a kernel by a function's handle.
        Some(Known::Kernel(kernel)) => kernel.attribute(client, func, device, most)?,
        Some(Known::Function(function)) => function.attribute(client, func, 0, most)?,
        _ => return Err(CUDA_ERROR_INVALID_HANDLE),
    };
    let mut most = most.min(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?);
    if limit > 0 {
        most = most.min(limit);
    }
    let (mut best_threads, mut best_block, mut best_count) = (0, 0, 0);
    let mut threads = (most + warp - 1) / warp.max(1) * warp;
    while threads > 0 {
        let size = threads.min(most);
        let shared = dynamic_shared(by_threads, constant, size);
        let count = blocks(client, func, (size, shared, flags))?;
        if count * size > best_threads {
            (best_threads, best_block, best_count) = (count * size, size, count);
        }
        // A smaller block size cannot hold more than the maximum number of threads.
        if best_threads == per_processor {
            break;
        }
        threads -= warp.max(1);
    }
    let best_grid = best_count * processors;
    if keep {
        let both = u64::from(best_grid as u32) << 32 | u64::from(best_block as u32);
        note(client, func, device, question, both, before);
    }
    grid.offer(best_grid);
    block.offer(best_block);
    Ok(())
}

cuda! {
    fn cuOccupancyMaxActiveBlocksPerMultiprocessor(numBlocks: OutPtr<i32>, func: CUfunction, blockSize: i32, dynamicSMemSize: usize) {
        let client = client()?;
        let func = Function::id(func);
        if numBlocks.is_null() {
            // The host's driver defines the meaning of NULL, here and below.
            let request = request::cuOccupancyMaxActiveBlocksPerMultiprocessor { numBlocks: false, func, blockSize, dynamicSMemSize };
            return client.call(&request).map(drop);
        }
        numBlocks.set(blocks(client, func, (blockSize, dynamicSMemSize, CU_OCCUPANCY_DEFAULT))?)
    }

    fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks: OutPtr<i32>, func: CUfunction, blockSize: i32, dynamicSMemSize: usize, flags: u32) {
        let client = client()?;
        let func = Function::id(func);
        if numBlocks.is_null() {
            let request = request::cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags { numBlocks: false, func, blockSize, dynamicSMemSize, flags };
            return client.call(&request).map(drop);
        }
        numBlocks.set(blocks(client, func, (blockSize, dynamicSMemSize, flags))?)
    }

    fn cuOccupancyAvailableDynamicSMemPerBlock(dynamicSmemSize: OutPtr<usize>, func: CUfunction, numBlocks: i32, blockSize: i32) {
        let client = client()?;
        let func = Function::id(func);
        let host = |wanted| {
            let request = request::cuOccupancyAvailableDynamicSMemPerBlock { dynamicSmemSize: wanted, func, numBlocks, blockSize };
            Ok(client.call(&request)?.dynamicSmemSize as u64)
        };
        if dynamicSmemSize.is_null() {
            return host(false).map(drop);
        }
        let question = Question::Shared { blocks: numBlocks, threads: blockSize };
        dynamicSmemSize.set(ask(client, func, question, || host(true))? as usize)
    }

    fn cuOccupancyMaxPotentialBlockSize(minGridSize: OutPtr<i32>, blockSize: OutPtr<i32>, func: CUfunction, blockSizeToDynamicSMemSize: CUoccupancyB2DSize, dynamicSMemSize: usize, blockSizeLimit: i32) {
        potential_block_size(minGridSize, blockSize, Function::id(func), (blockSizeToDynamicSMemSize, dynamicSMemSize), blockSizeLimit, 0)
    }

    fn cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize: OutPtr<i32>, blockSize: OutPtr<i32>, func: CUfunction, blockSizeToDynamicSMemSize: CUoccupancyB2DSize, dynamicSMemSize: usize, blockSizeLimit: i32, flags: u32) {
        potential_block_size(minGridSize, blockSize, Function::id(func), (blockSizeToDynamicSMemSize, dynamicSMemSize), blockSizeLimit, flags)
    }

    fn cuOccupancyMaxActiveClusters(numClusters: OutPtr<i32>, func: CUfunction, config: InPtr<CUlaunchConfig>) {
        let client = client()?;
        let config = lower_config(client, config, DefaultStream::Legacy)?;
        let reply = client.call(&request::cuOccupancyMaxActiveClusters { func: Function::id(func), config, clusters: true })?;
        numClusters.set(reply.clusters)
    }

    fn cuOccupancyMaxPotentialClusterSize(clusterSize: OutPtr<i32>, func: CUfunction, config: InPtr<CUlaunchConfig>) {
        let client = client()?;
        let config = lower_config(client, config, DefaultStream::Legacy)?;
        let reply = client.call(&request::cuOccupancyMaxPotentialClusterSize { func: Function::id(func), config, size: true })?;
        clusterSize.set(reply.size)
    }
}
