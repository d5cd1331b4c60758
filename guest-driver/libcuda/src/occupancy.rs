//! How much of a function fits on a multiprocessor: asked of the host once for each question.

use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

use gpgpu_protocol::{
    api::{Function, Object, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    border::Result,
    client::{Client, client},
    cuda,
    launch::{DefaultStream, lower_config},
    objects::Known,
    thread,
};

/// A question about a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    /// How many blocks of a multiprocessor: `cuOccupancyMaxActiveBlocksPerMultiprocessor`.
    Blocks {
        threads: i32,
        shared: usize,
        flags: u32,
    },
    /// How much shared memory for each of so many: `cuOccupancyAvailableDynamicSMemPerBlock`.
    Shared { blocks: i32, threads: i32 },
    /// What grid and block for the most threads: `cuOccupancyMaxPotentialBlockSize`.
    BlockSize {
        shared: usize,
        limit: i32,
        flags: u32,
    },
}

/// Counts what changes how much fits, of whatever function: attributes, preferences, limits.
static CONFIGURATION: AtomicU64 = AtomicU64::new(0);

/// A number that is another one after each such change.
pub fn configuration() -> u64 {
    CONFIGURATION.load(Ordering::Acquire)
}

/// Has `host` change what may change how much fits.
pub fn reconfigure<T>(host: impl FnOnce() -> T) -> T {
    CONFIGURATION.fetch_add(1, Ordering::AcqRel);
    let result = host();
    // What was asked for meanwhile may be from before.
    CONFIGURATION.fetch_add(1, Ordering::AcqRel);
    result
}

/// The most answers about one function: few enough to look through. A newer one takes the oldest one's place.
const MOST: usize = 64;

/// The answers about one function, by device and question.
#[derive(Debug, Default)]
pub struct Occupancy {
    known: Mutex<Answered>,
}

#[derive(Debug, Default)]
struct Answered {
    configuration: u64,
    answers: Vec<((CUdevice, Question), u64)>,
    oldest: usize,
}

impl Occupancy {
    fn known(&self) -> MutexGuard<'_, Answered> {
        self.known
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn get(&self, device: CUdevice, question: Question) -> Option<u64> {
        let known = self.known();
        if known.configuration != configuration() {
            return None;
        }
        let same = |(asked, _): &&((CUdevice, Question), u64)| *asked == (device, question);
        known.answers.iter().find(same).map(|(_, answer)| *answer)
    }

    /// Notes an answer that was asked for in configuration `before`.
    fn note(&self, device: CUdevice, question: Question, answer: u64, before: u64) {
        let mut known = self.known();
        if before != configuration() {
            return;
        }
        if known.configuration != before {
            known.answers.clear();
            known.configuration = before;
        }
        let entry = ((device, question), answer);
        if known.answers.len() < MOST {
            known.answers.push(entry);
        } else {
            let oldest = known.oldest;
            known.answers[oldest] = entry;
            known.oldest = (oldest + 1) % MOST;
        }
    }
}

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

/// The answer to a question, asked of the host unless it is known.
fn ask(
    client: &Client,
    func: u64,
    question: Question,
    host: impl FnOnce() -> Result<u64>,
) -> Result<u64> {
    // A kernel is in every context, and is asked about in the current one.
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

/// How much dynamic shared memory a block takes: a constant, or a function of its threads.
fn dynamic_shared(by_threads: CUoccupancyB2DSize, constant: usize, threads: i32) -> usize {
    match by_threads {
        // SAFETY: the program gave the function for this use.
        Some(function) => unsafe { function(threads) },
        None => constant,
    }
}

/// The block size with the most threads on a multiprocessor, and how many blocks fill the device.
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
    let request = request::cuFuncGetAttribute {
        pi: true,
        attrib: CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
        hfunc: func,
    };
    let mut most = client
        .call(&request)?
        .pi
        .min(attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?);
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
        // Nothing smaller can hold more threads than all that there are.
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
            // The host's driver decides what NULL means, here and below.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_holds_for_its_question_and_device_until_something_is_set() {
        let occupancy = Occupancy::default();
        let question = |threads| Question::Blocks {
            threads,
            shared: 0,
            flags: 0,
        };
        // Other tests may set something meanwhile: then the answer is not kept, which this must not take for a fault.
        let before = loop {
            let before = configuration();
            occupancy.note(0, question(32), 16, before);
            if occupancy.get(0, question(32)).is_some() {
                break before;
            }
        };
        assert_eq!(occupancy.get(0, question(64)), None);
        assert_eq!(occupancy.get(1, question(32)), None);
        reconfigure(|| ());
        assert_eq!(occupancy.get(0, question(32)), None);
        occupancy.note(0, question(32), 16, before);
        assert_eq!(occupancy.get(0, question(32)), None);
    }
}
