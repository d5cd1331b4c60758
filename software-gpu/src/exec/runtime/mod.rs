// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device runtime of one grid: the parameter buffers, streams and events of its threads, and the work that they
//! request, which runs [after the grid](super::children).

mod calls;
mod copy;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use gpgpu_locks::Mutex;

use super::children::{Child, Later, Work};
use super::module::LoadedModule;
use super::{Effects, Launch, run};

pub use calls::is_function;
pub(super) use calls::{call, find};

/// The errors of these functions, by the numbers of `cudaError_t`.
mod error {
    pub(super) const INVALID_VALUE: u32 = 1;
    pub(super) const MEMORY_ALLOCATION: u32 = 2;
    pub(super) const INVALID_CONFIGURATION: u32 = 9;
    pub(super) const INVALID_PITCH_VALUE: u32 = 12;
    pub(super) const LAUNCH_PENDING_COUNT_EXCEEDED: u32 = 69;
    pub(super) const INVALID_DEVICE_FUNCTION: u32 = 98;
    pub(super) const INVALID_RESOURCE_HANDLE: u32 = 400;
    pub(super) const UNSUPPORTED_LIMIT: u32 = 215;
}

/// The streams that no thread makes: NULL, the legacy and the thread's default stream are one here.
const DEFAULT_STREAMS: std::ops::RangeInclusive<u64> = 0..=2;
/// `cudaStreamTailLaunch`
const TAIL: u64 = 3;
/// `cudaStreamFireAndForget`
const FIRE_AND_FORGET: u64 = 4;

/// `CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT`, and its value unless a program sets it.
const PENDING_LIMIT: u32 = 4;
const PENDING: usize = 2048;
/// The upper limit, whatever a program sets: pending work takes memory of the process.
const MOST_PENDING: usize = 1 << 16;
/// The most streams of a grid, and the most events.
const MOST_OBJECTS: usize = 1 << 16;

/// The bytes of addresses that a parameter buffer has, and the most bytes of one.
const SPAN: u64 = 1 << 16;
const MOST_BUFFER: u64 = 32764;
/// The most bytes of all buffers of a grid: they take memory of the process.
const MOST_BUFFERS: u64 = 64 << 20;

/// A buffer for the parameters of a launch.
struct Buffer {
    bytes: Box<[AtomicU64]>,
    /// The kernel and its shape, if they are known when the buffer is made.
    of: Option<(usize, Launch)>,
    is_launched: bool,
}

#[derive(Default)]
struct State {
    later: Later,
    /// They exist until the grid ends: other threads may use them while one launches.
    buffers: Vec<Buffer>,
    buffer_bytes: u64,
    streams: HashSet<u64>,
    events: HashSet<u64>,
    handles: u64,
}

/// See the module's documentation.
pub(super) struct Runtime<'a> {
    module: &'a LoadedModule,
    pending: &'a AtomicUsize,
    output: &'a dyn Effects,
    state: Mutex<State>,
}

impl<'a> Runtime<'a> {
    /// The runtime of a grid that begins. `pending` counts the work that waits in all of the launch.
    pub(super) fn new(
        module: &'a LoadedModule,
        pending: &'a AtomicUsize,
        output: &'a dyn Effects,
    ) -> Self {
        Self {
            module,
            pending,
            output,
            state: Mutex::default(),
        }
    }

    /// The work that remains after the grid.
    pub(super) fn finish(self) -> Later {
        let state = self.state.into_inner();
        let unused = state.buffers.iter().filter(|of| !of.is_launched).count();
        self.pending.fetch_sub(unused, Ordering::Relaxed);
        state.later
    }

    /// The host's pointer to bytes of a parameter buffer, by the offset in the buffers' window. It is valid until the
    /// grid ends.
    pub(super) fn buffer(&self, at: u64, bytes: u64) -> Option<*mut u8> {
        let state = self.state.lock();
        let buffer = state.buffers.get((at / SPAN) as usize)?;
        let (offset, size) = (at % SPAN, 8 * buffer.bytes.len() as u64);
        let start = buffer.bytes.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: the offset is inside the buffer. Its bytes are atomic: a shared reference is enough to write them.
        (offset < size && size - offset >= bytes).then(|| unsafe { start.add(offset as usize) })
    }

    /// Counts one more piece of waiting work.
    fn reserve(&self) -> Result<(), u32> {
        let most = self.output.limit(PENDING_LIMIT).unwrap_or(PENDING);
        let more = |now| (now < most.min(MOST_PENDING)).then_some(now + 1);
        let counted = self
            .pending
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        counted
            .map(drop)
            .map_err(|_| error::LAUNCH_PENDING_COUNT_EXCEEDED)
    }

    /// The kernel of an address, if a launch of this shape is possible, and the shape.
    fn prepare(&self, address: u64, mut launch: Launch) -> Result<(usize, Launch), u32> {
        let kernel = self.kernel(address)?;
        let of = &self.module.programs()[kernel];
        if !self.output.prepare(kernel, &mut launch) || run::check(of, &launch).is_err() {
            return Err(error::INVALID_CONFIGURATION);
        }
        Ok((kernel, launch))
    }

    fn kernel(&self, address: u64) -> Result<usize, u32> {
        let kernel = self.module.kernel_at(address);
        kernel.ok_or(error::INVALID_DEVICE_FUNCTION)
    }

    /// A new parameter buffer: its offset in their window.
    fn make_buffer(&self, bytes: u64, of: Option<(usize, Launch)>) -> Result<u64, u32> {
        if bytes > MOST_BUFFER {
            return Err(error::INVALID_VALUE);
        }
        let words = bytes.div_ceil(8).max(1);
        let mut state = self.state.lock();
        if state.buffer_bytes + 8 * words > MOST_BUFFERS {
            return Err(error::LAUNCH_PENDING_COUNT_EXCEEDED);
        }
        self.reserve()?;
        state.buffer_bytes += 8 * words;
        state.buffers.push(Buffer {
            bytes: (0..words).map(|_| AtomicU64::new(0)).collect(),
            of,
            is_launched: false,
        });
        Ok((state.buffers.len() as u64 - 1) * SPAN)
    }

    /// Launches what a buffer was made for, or `of`.
    fn launch(&self, at: u64, of: Option<(usize, Launch)>, stream: u64) -> Result<(), u32> {
        let mut state = self.state.lock();
        state.check_stream(stream)?;
        let buffer = usize::try_from(at / SPAN)
            .ok()
            .filter(|_| at.is_multiple_of(SPAN));
        let buffer = buffer.and_then(|number| state.buffers.get_mut(number));
        let buffer = buffer.ok_or(error::INVALID_VALUE)?;
        let (kernel, launch) = of.or(buffer.of).ok_or(error::INVALID_VALUE)?;
        let size = self.module.programs()[kernel].param_bytes;
        if buffer.is_launched || size > 8 * buffer.bytes.len() {
            return Err(error::INVALID_VALUE);
        }
        buffer.is_launched = true;
        let words = buffer.bytes.iter().take(size.div_ceil(8));
        let words = words.map(|word| word.load(Ordering::Relaxed));
        let mut params: Vec<u8> = words.flat_map(u64::to_ne_bytes).collect();
        params.truncate(size);
        let child = Child {
            kernel,
            launch,
            params,
        };
        state.queue(stream, Work::Kernel(child));
        Ok(())
    }

    /// Queues work in a stream of the grid: `cudaStreamTailLaunch`, or any other.
    pub(super) fn queue(&self, stream: u64, call: super::children::Call) -> Result<(), u32> {
        let mut state = self.state.lock();
        state.check_stream(stream)?;
        self.reserve()?;
        state.queue(stream, Work::Call(call));
        Ok(())
    }
}

impl State {
    fn check_stream(&self, stream: u64) -> Result<(), u32> {
        let known = DEFAULT_STREAMS.contains(&stream)
            || matches!(stream, TAIL | FIRE_AND_FORGET)
            || self.streams.contains(&stream);
        known.then_some(()).ok_or(error::INVALID_RESOURCE_HANDLE)
    }

    /// Events are recorded in, and waited for by, streams with an order.
    fn check_ordered(&self, stream: u64) -> Result<(), u32> {
        match stream {
            TAIL | FIRE_AND_FORGET => Err(error::INVALID_VALUE),
            _ => self.check_stream(stream),
        }
    }

    fn check_event(&self, event: u64) -> Result<(), u32> {
        let known = self.events.contains(&event);
        known.then_some(()).ok_or(error::INVALID_RESOURCE_HANDLE)
    }

    fn queue(&mut self, stream: u64, work: Work) {
        match stream {
            TAIL => self.later.tail.push_back(work),
            _ => self.later.ordinary.push_back(work),
        }
    }

    /// A number for a stream or an event: no number of a stream that no thread makes.
    fn new_handle(&mut self) -> u64 {
        self.handles += 1;
        self.handles * 0x100
    }
}
