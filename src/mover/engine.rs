// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executes moves: one thread for each direction, with several moves in flight, each on its own stream.
//!
//! The thread polls while moves are in flight, and sleeps otherwise.

use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use gpgpu_protocol::cuda::*;
use zerocopy::IntoBytes;

use super::{
    export::Import,
    guest::Chunk,
    plan::{Copy, Plan},
    queue::Turns,
};
use crate::cuda::driver;
use crate::{
    account::{self, Shared},
    ipc::mover::{self, DEPTH},
};

/// The start times of the moves in flight, which the supervisor reads.
pub type Progress = Shared<mover::Progress>;

/// The maximum number of copies of one launch of the kernel.
pub const MAX_SHORT: usize = 10 << 10;
/// The number of threads in a block of the kernel.
const THREADS: u32 = 256;
/// The number of blocks of the kernel: enough to saturate the bus, and few enough to leave the GPU to its guests.
const BLOCKS: u32 = 128;

const KERNEL: &str = concat!(include_str!("gather.ptx"), "\0");

/// A move that is ready to be executed.
pub struct Job {
    /// The parts to copy.
    pub plan: Plan,
    /// Memory that must stay mapped and pinned until the move is done.
    pub held: (Arc<Import>, Vec<Arc<Chunk>>),
    /// Called after the move has ended; the argument says whether all bytes were copied.
    pub done: Box<dyn FnOnce(bool) + Send>,
}

impl Job {
    /// Reports the end of the move, after its last access to memory. Memory that was returned in the meantime is
    /// released before the report.
    pub fn end(self, done: bool) {
        drop(self.held);
        (self.done)(done);
    }
}

/// The driver failed in a way that makes this process useless: the context is lost.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("CUDA fails with {0} ({name})", name = result_name(*.0).unwrap_or("unknown"))]
pub struct Lost(CUresult);

/// The number of bytes moved, by method.
#[derive(Debug, Default)]
pub struct Counters {
    /// By the copy engine.
    pub engine: AtomicU64,
    /// By the kernel.
    pub kernel: AtomicU64,
}

/// A slot for a move in flight.
struct Slot {
    stream: CUstream,
    event: CUevent,
    /// The kernel's list of copies: the CPU writes it, and the kernel reads it in place.
    list: *mut Copy,
    list_device: CUdeviceptr,
    job: Option<Job>,
    /// The index of the shared word that holds the move's start time.
    place: (usize, usize),
    progress: Arc<Progress>,
}

/// The moves of one direction.
pub struct Engine {
    turns: Arc<Turns<Job>>,
    gather: CUfunction,
    slots: Vec<Slot>,
}

// SAFETY: the pointers are the driver's handles, which any thread may use, and memory of this value's alone.
unsafe impl Send for Engine {}

impl Engine {
    /// An engine for the current context; `direction` is its index in
    /// [`Progress::begun`](crate::ipc::mover::Progress::begun).
    ///
    /// # Errors
    /// The driver's error code.
    pub fn new(
        turns: Arc<Turns<Job>>,
        direction: usize,
        progress: &Arc<Progress>,
    ) -> Result<Self, CUresult> {
        let (mut module, mut gather) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the image and the name are NUL-terminated; the pointers are to values that live across the calls.
        unsafe {
            driver::cuModuleLoadData(&mut module, KERNEL.as_ptr().cast())?;
            driver::cuModuleGetFunction(&mut gather, module, c"gather".as_ptr())?;
        }
        let slots = (0..DEPTH)
            .map(|slot| Slot::new((direction, slot), Arc::clone(progress)))
            .collect::<Result<_, _>>()?;
        Ok(Self {
            turns,
            gather,
            slots,
        })
    }

    /// Executes moves for ever.
    ///
    /// # Errors
    /// [`Lost`].
    pub fn run(mut self, counters: &Counters) -> Lost {
        loop {
            if let Err(lost) = self.step(counters) {
                return lost;
            }
        }
    }

    fn step(&mut self, counters: &Counters) -> Result<(), Lost> {
        let mut busy = false;
        for slot in &mut self.slots {
            if slot.job.is_some() {
                // SAFETY: the event is this slot's, and was recorded.
                match unsafe { driver::cuEventQuery(slot.event) } {
                    Ok(()) => slot.finish(true),
                    Err(CUDA_ERROR_NOT_READY) => busy = true,
                    Err(code) => return Err(Lost(code)),
                }
            }
            if slot.job.is_none()
                && let Some(job) = self.turns.next()
            {
                slot.start(self.gather, job, counters)?;
                busy = true;
            }
        }
        if busy {
            std::thread::yield_now();
            return Ok(());
        }
        let job = self.turns.wait();
        match self.slots.iter_mut().find(|slot| slot.job.is_none()) {
            Some(slot) => slot.start(self.gather, job, counters),
            None => Ok(()),
        }
    }
}

impl Slot {
    fn new(place: (usize, usize), progress: Arc<Progress>) -> Result<Self, CUresult> {
        let (mut stream, mut event) = (std::ptr::null_mut(), std::ptr::null_mut());
        let (mut list, mut list_device) = (std::ptr::null_mut(), 0);
        let bytes = MAX_SHORT * size_of::<Copy>();
        // SAFETY: the pointers are to values that live across the calls.
        unsafe {
            driver::cuStreamCreate(&mut stream, CU_STREAM_NON_BLOCKING)?;
            driver::cuEventCreate(&mut event, CU_EVENT_DISABLE_TIMING)?;
            driver::cuMemHostAlloc(&mut list, bytes, CU_MEMHOSTALLOC_DEVICEMAP)?;
            driver::cuMemHostGetDevicePointer_v2(&mut list_device, list, 0)?;
        }
        Ok(Self {
            stream,
            event,
            list: list.cast(),
            list_device,
            job: None,
            place,
            progress,
        })
    }

    fn start(&mut self, gather: CUfunction, job: Job, counters: &Counters) -> Result<(), Lost> {
        self.note_begin(account::monotonic());
        let issued = self.issue(gather, &job.plan);
        let (engine, kernel) = job.plan.bytes();
        self.job = Some(job);
        match issued {
            Ok(()) => {
                counters.engine.fetch_add(engine, Ordering::Relaxed);
                counters.kernel.fetch_add(kernel, Ordering::Relaxed);
                Ok(())
            }
            Err(code) => {
                // A part of the move may have been submitted.
                // SAFETY: the stream is this slot's.
                unsafe { driver::cuStreamSynchronize(self.stream) }.map_err(|_| Lost(code))?;
                self.finish(false);
                Ok(())
            }
        }
    }

    fn issue(&mut self, gather: CUfunction, plan: &Plan) -> Result<(), CUresult> {
        for copy in &plan.long {
            let bytes = copy.bytes as usize;
            // SAFETY: the job holds both ranges until the copy is done.
            unsafe { driver::cuMemcpyAsync(copy.to, copy.from, bytes, self.stream)? };
        }
        let mut count = plan.short.len() as u32;
        if plan.short.len() > MAX_SHORT {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if count > 0 {
            let bytes = plan.short.as_bytes();
            // SAFETY: the list is as long as the longest plan, and no kernel reads it now.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.list.cast(), bytes.len()) };
            let mut params: [*mut c_void; 2] = [
                std::ptr::from_mut(&mut self.list_device).cast(),
                std::ptr::from_mut(&mut count).cast(),
            ];
            let (blocks, stream) = (count.min(BLOCKS), self.stream);
            let (params, none) = (params.as_mut_ptr(), std::ptr::null_mut());
            // SAFETY: the parameters are the kernel's, and live across the call; the job holds the memory that it
            // copies.
            unsafe {
                driver::cuLaunchKernel(
                    gather, blocks, 1, 1, THREADS, 1, 1, 0, stream, params, none,
                )?
            };
        }
        // SAFETY: both are this slot's.
        unsafe { driver::cuEventRecord(self.event, self.stream) }
    }

    /// Stores the start time of a move; 0 means that there is no move.
    fn note_begin(&self, time: u64) {
        let (direction, slot) = self.place;
        self.progress.begun[direction][slot].store(time, Ordering::Relaxed);
    }

    fn finish(&mut self, done: bool) {
        if let Some(job) = self.job.take() {
            self.note_begin(0);
            job.end(done);
        }
    }
}
