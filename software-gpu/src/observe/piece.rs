// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pieces of work that an observer is told of.

use std::sync::Arc;

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES;
use gpgpu_protocol::software_gpu::{Copied, Detail, Fill, Kernel, Memory, Observer, Work};

use super::{Side, current, now};
use crate::context::{self, Context};
use crate::exec::Launch;
use crate::module::Function;
use crate::stream::Stream;

/// A context as the observer knows it.
#[derive(Debug, Clone, Copy)]
struct Owner {
    device: u32,
    context: u32,
}

impl Owner {
    fn of(context: &Context) -> Self {
        Self {
            device: context.device as u32,
            context: context.own as u32,
        }
    }
}

/// The place of a piece of work.
#[derive(Debug, Clone, Copy)]
struct Origin {
    call: u32,
    owner: Owner,
    stream: u32,
    node: u64,
    graph: u32,
    is_of_kernel: bool,
}

#[derive(Clone, Copy, Default)]
struct Outcome {
    detail: Option<Detail>,
    /// The begin of its first part, and the end of its last one.
    times: Option<(u64, u64)>,
}

// SAFETY: the only pointer is the name of a kernel. Only `Seen::kernel` and `Seen::library` set it, and the piece ends
// before they return, while the name is valid.
unsafe impl Send for Outcome {}

/// A piece of work, which may have several parts. The observer is told when the last part has ended, before any wait
/// for the part ends.
struct Piece {
    observer: &'static Observer,
    origin: Origin,
    outcome: Mutex<Outcome>,
}

impl Piece {
    fn note(&self, start: u64) {
        let end = now().max(start);
        let times = &mut self.outcome.lock().times;
        let (first, last) = times.unwrap_or((start, end));
        *times = Some((first.min(start), last.max(end)));
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let outcome = std::mem::take(&mut *self.outcome.lock());
        // A fault may have prevented it.
        let (Some(detail), Some((start, end))) = (outcome.detail, outcome.times) else {
            return;
        };
        let of = self.origin;
        let work = Work {
            call: of.call,
            device: of.owner.device,
            context: of.owner.context,
            stream: of.stream,
            start,
            end,
            node: of.node,
            graph: of.graph,
            is_of_kernel: of.is_of_kernel,
            detail,
        };
        // SAFETY: the description is valid meanwhile, and so is the name of a kernel: `Seen::kernel` and
        // `Seen::library` do not return before.
        unsafe { (self.observer.work)(&work) };
    }
}

/// Work that the observer is told of, if there is one. Clones are parts of the same piece.
#[derive(Clone, Default)]
pub struct Seen(Option<Arc<Piece>>);

impl Seen {
    /// Work that the call of this thread queues in a stream.
    pub fn queued(stream: &Stream) -> Self {
        let Some((observer, call)) = current() else {
            return Self(None);
        };
        let Ok(context) = context::of(stream) else {
            return Self(None);
        };
        let origin = Origin {
            call,
            owner: Owner::of(&context),
            stream: stream.id as u32,
            node: 0,
            graph: 0,
            is_of_kernel: false,
        };
        Self::new(observer, origin)
    }

    fn new(observer: &'static Observer, origin: Origin) -> Self {
        Self(Some(Arc::new(Piece {
            observer,
            origin,
            outcome: Mutex::default(),
        })))
    }

    fn same_as(&self, change: impl FnOnce(&mut Origin)) -> Self {
        let Some(piece) = &self.0 else {
            return Self(None);
        };
        let mut origin = piece.origin;
        change(&mut origin);
        Self::new(piece.observer, origin)
    }

    /// The whole of a launch of an executable graph, of which this is the place.
    pub fn graph(&self, graph: u32) -> Self {
        let whole = self.same_as(|of| of.graph = graph);
        whole.set(|| Detail::Graph);
        whole
    }

    /// The whole of a graph that a kernel of this launch has launched; it is never told itself.
    pub fn of_kernel(&self) -> Self {
        self.same_as(|of| of.is_of_kernel = true)
    }

    /// The work of a node of this launch, in the context with that handle or the stream's.
    pub fn node(&self, node: u64, context: Option<u64>) -> Self {
        let context = self.0.as_ref().and(context);
        let owner = context.and_then(|handle| context::named(handle).ok());
        self.same_as(|of| {
            of.node = node;
            of.owner = owner.map_or(of.owner, |context| Owner::of(&context));
        })
    }

    /// Makes this the detail, without which the piece is not told.
    fn set(&self, detail: impl FnOnce() -> Detail) {
        if let Some(piece) = &self.0 {
            let detail = detail();
            piece.outcome.lock().detail = Some(detail);
        }
    }

    /// Says that a part of it is a copy of this number of bytes.
    pub fn copy(&self, (to, from): (&impl Side, &impl Side), bytes: usize, is_async: bool) {
        let Some(piece) = &self.0 else {
            return;
        };
        let (to, from) = (to.memory(), from.memory());
        let detail = &mut piece.outcome.lock().detail;
        let before = match detail {
            Some(Detail::Copy(of)) => of.bytes,
            _ => 0,
        };
        *detail = Some(Detail::Copy(Copied {
            from,
            to,
            bytes: before + bytes as u64,
            is_async,
        }));
    }

    /// Says that it is a fill of this number of bytes with a value.
    pub fn fill(&self, memory: impl FnOnce() -> Memory, value: u32, bytes: usize) {
        self.set(|| {
            Detail::Fill(Fill {
                memory: memory(),
                value,
                bytes: bytes as u64,
            })
        });
    }

    /// Executes a part of it.
    pub fn time<T>(&self, part: impl FnOnce() -> T) -> T {
        let Some(piece) = &self.0 else {
            return part();
        };
        let start = now();
        let outcome = part();
        piece.note(start);
        outcome
    }

    /// Executes a kernel, the whole of it.
    pub fn kernel<T>(self, function: &Function, launch: &Launch, run: impl FnOnce() -> T) -> T {
        let outcome = self.time(run);
        self.set(|| {
            let info = function.info();
            let local = function.attribute(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
            Detail::Kernel(Kernel {
                name: function.name.as_ptr(),
                grid: launch.grid,
                block: launch.block,
                cluster: launch.cluster,
                static_shared: info.static_shared_bytes as u32,
                dynamic_shared: launch.dynamic_shared_bytes as u32,
                registers: info.registers,
                local: local.unwrap_or(0) as u32,
                is_cooperative: launch.cooperative,
            })
        });
        outcome
    }

    /// Executes the work of a library, the whole of it: NVIDIA's would be kernels.
    pub fn library<T>(self, run: impl FnOnce() -> T) -> T {
        let outcome = self.time(run);
        self.set(|| {
            Detail::Kernel(Kernel {
                name: c"software_gpu_library".as_ptr(),
                grid: [1; 3],
                block: [1; 3],
                cluster: [1; 3],
                static_shared: 0,
                dynamic_shared: 0,
                registers: 16,
                local: 0,
                is_cooperative: false,
            })
        });
        outcome
    }
}
