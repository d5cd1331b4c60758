// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Crowds: groups of launches. If the ring holds a backlog of launches into one stream, and the same functions and
//! shapes came before in that order, they are submitted to the driver as one executable graph with updated parameters.
//!
//! A launch takes the driver more than twice as long as the update of a node's parameters and the GPU's own start of a
//! node together. The nodes form a chain, so order and visibility are those of the stream. Except for the time, a
//! program cannot observe the difference:
//!
//! | | |
//! |---|---|
//! | no backlog | launches go to the driver as they come, each as a graph of one node if it recurs ([`Singles`]) |
//! | an attribute of a launch or of any stream, a cooperative launch, a green context | launches, for a node would need the attribute too |
//! | a texture or surface reference | launches, which read it when they are made |
//! | a function's attributes, a context's limits and settings, modules | the graphs end when one changes ([`changes`]) |
//! | another VM wants the GPU, or the kernels' time is limited | launches, which the gate counts one by one |
//! | long kernels | at most [`MOST_UNDER_WAY`] graphs are on their way, which are fewer launches than the driver's own queue holds |
//! | functions and contexts that end | looked up for each launch; the graphs of a context end before it |
//! | patterns that don't come back | no graph: one is made when its launches came [`OFTEN`] times, and takes the place of another only if graphs pay |

mod made;
mod single;

use std::{
    collections::{VecDeque, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_protocol::{
    api::{Request, request},
    codec::Reader,
    cuda::*,
};

use super::{
    Commands, counts, grace,
    lease::{Naming, weigh},
    mark::Mark,
    objects::Entry,
    ops::{DEFAULT_STACK, reserve_stack},
    session::Session,
};
use crate::cuda::driver;
use made::{Made, Shape};
pub use single::Singles;

/// Launches of a crowd.
pub const CROWD: usize = 32;
/// The number of bytes of the ring that count as a backlog.
pub const BACKLOG: u64 = 2048;
/// The number of occurrences of a crowd after which a graph is made of it.
const OFTEN: u32 = 4;
/// The maximum number of crowds that are remembered without a graph.
const MOST_SEEN: usize = 64;
/// The maximum number of a client's graphs.
const MOST_GRAPHS: usize = 16;
/// The maximum number of graphs in flight.
const MOST_UNDER_WAY: usize = 16;
/// The minimum number of launches of graphs before a new graph replaces another one.
const PAYS: u32 = 64;

type Launch = request::cuLaunchKernelEx;

/// Whether the operator has disabled them.
static ARE_OFF: AtomicBool = AtomicBool::new(false);

/// Disables graphs of launches in this process.
pub fn switch_off() {
    ARE_OFF.store(true, Ordering::Relaxed);
}

fn are_off() -> bool {
    ARE_OFF.load(Ordering::Relaxed)
}

/// Whether an operation changes how launches run, or ends something that a graph may use.
pub fn changes(op: u16) -> bool {
    const OPS: &[u16] = &[
        request::cuDevicePrimaryCtxSetFlags_v2::OP,
        request::cuCtxSetLimit::OP,
        request::cuCtxSetCacheConfig::OP,
        request::cuCtxSetSharedMemConfig::OP,
        request::cuCtxSetFlags::OP,
        request::cuModuleUnload::OP,
        request::cuLibraryUnload::OP,
        request::cuKernelSetAttribute::OP,
        request::cuKernelSetCacheConfig::OP,
        request::cuFuncSetAttribute::OP,
        request::cuFuncSetCacheConfig::OP,
        request::cuFuncSetSharedMemConfig::OP,
    ];
    OPS.contains(&op)
}

/// Whether an operation gives launches properties that graph nodes do not have: attributes of streams, or texture
/// references, which each launch reads.
pub fn sets_launches_apart(op: u16) -> bool {
    const OPS: &[u16] = &[
        request::cuStreamSetAttribute::OP,
        request::cuStreamCopyAttributes::OP,
        request::gpgpuModuleReference::OP,
        request::gpgpuTextureReferenceSet::OP,
        request::gpgpuSurfaceReferenceSet::OP,
    ];
    OPS.contains(&op)
}

/// Launches that were read from the ring and not submitted yet.
#[derive(Debug, Default)]
pub struct Waiting {
    /// The context of their commands.
    context: u64,
    launches: Vec<Launch>,
}

impl Waiting {
    /// Takes the launch in `commands`, if it is one and can join the waiting ones.
    pub fn take(&mut self, commands: &[u8]) -> bool {
        let mut commands = Commands(commands);
        let (Some(command), []) = (commands.next(), commands.0) else {
            return false;
        };
        if command.op != Launch::OP {
            return false;
        }
        let mut reader = Reader::new(command.arguments);
        let Ok(launch) = reader.get::<Launch>() else {
            return false;
        };
        let goes_with = match self.launches.first() {
            None => true,
            Some(first) => {
                command.context == self.context && launch.config.stream == first.config.stream
            }
        };
        if !goes_with || !launch.config.attributes.is_empty() || reader.end().is_err() {
            return false;
        }
        self.context = command.context;
        self.launches.push(launch);
        true
    }

    /// Whether there are enough for a crowd.
    pub fn is_crowd(&self) -> bool {
        self.launches.len() == CROWD
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.launches.is_empty()
    }

    /// Removes all.
    pub fn clear(&mut self) {
        self.launches.clear();
    }
}

/// The functions of launches, if all can be launched in the current context.
fn functions(session: &Session, launches: &[Launch]) -> Result<Vec<Entry>, CUresult> {
    let find = |launch: &Launch| {
        let function = session.objects.function(launch.func)?;
        if function.context != 0 && function.context != session.current() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        Ok(function)
    };
    launches.iter().map(find).collect()
}

/// The graph of a crowd.
struct Group {
    context: u64,
    shapes: Vec<Shape>,
    graph: Made,
}

impl Group {
    /// Whether it consists of these launches in this context.
    fn is_of(&self, context: u64, launches: &[Launch]) -> bool {
        let mut both = self.shapes.iter().zip(launches);
        self.context == context
            && self.shapes.len() == launches.len()
            && both.all(|(shape, launch)| *shape == Shape::of(launch))
    }
}

/// See the module's documentation.
#[derive(Default)]
pub struct Crowds {
    made: Vec<Group>,
    /// Crowds without a graph and the number of their occurrences; the newest last.
    seen: VecDeque<(u64, u32)>,
    /// Marks behind the graphs in flight, the oldest first.
    under_way: VecDeque<Mark>,
    spare: Vec<Mark>,
    /// Contexts that are about to end.
    ending: Vec<u64>,
    /// The number of launches of graphs, and its value when one last replaced another.
    launched: u64,
    replaced: u64,
    /// Whether the client has set attributes of a stream.
    is_off: bool,
}

impl std::fmt::Debug for Crowds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Crowds")
            .field("made", &self.made.len())
            .field("launched", &self.launched)
            .finish_non_exhaustive()
    }
}

impl Crowds {
    /// Forgets all graphs, because objects that they use have changed.
    pub fn forget(&mut self) {
        self.made.clear();
        self.seen.clear();
    }

    /// Disables graphs of launches for this client.
    pub fn switch_off(&mut self) {
        self.is_off = true;
        self.forget();
    }

    /// Prepares for the end of a context: removes everything that belongs to it.
    pub fn end_context(&mut self, context: u64) {
        self.made.retain(|of| of.context != context);
        self.under_way.retain(|of| of.context != context);
        self.spare.retain(|of| of.context != context);
        self.ending.push(context);
    }

    /// The context has ended, or its end was cancelled. Another context may get its id.
    pub fn settle_context(&mut self, context: u64) {
        self.ending.retain(|of| *of != context);
    }

    /// Whether one more graph may be in flight.
    fn has_room(&mut self) -> Result<bool, CUresult> {
        while let Some(oldest) = self.under_way.front() {
            // SAFETY: the event is the driver's and lives.
            match unsafe { driver::cuEventQuery(oldest.event) } {
                Ok(()) => self.spare.extend(self.under_way.pop_front()),
                Err(CUDA_ERROR_NOT_READY) => break,
                Err(code) => return Err(code),
            }
        }
        Ok(self.under_way.len() < MOST_UNDER_WAY)
    }

    /// Whether to make a graph of a crowd, which has occurred once more.
    fn is_worth_it(&mut self, context: u64, shapes: &[Shape]) -> bool {
        let mut hasher = DefaultHasher::new();
        (context, shapes).hash(&mut hasher);
        let hash = hasher.finish();
        let known = self.seen.iter().position(|(of, _)| *of == hash);
        let count = known
            .and_then(|at| self.seen.remove(at))
            .map_or(1, |(_, count)| count.saturating_add(1));
        let has_place =
            self.made.len() < MOST_GRAPHS || self.launched - self.replaced >= u64::from(PAYS);
        if count >= OFTEN && has_place {
            return true;
        }
        if self.seen.len() == MOST_SEEN {
            self.seen.pop_front();
        }
        self.seen.push_back((hash, count));
        false
    }

    /// The graph of a crowd in the current context. Makes it if that pays.
    fn graph(&mut self, session: &Session, launches: &[Launch]) -> Result<Option<usize>, CUresult> {
        let context = session.entered();
        let known = |group: &Group| group.is_of(context, launches);
        if let Some(at) = self.made.iter().position(known) {
            return Ok(Some(at));
        }
        let shapes: Vec<Shape> = launches.iter().map(Shape::of).collect();
        if !self.is_worth_it(context, &shapes) {
            return Ok(None);
        }
        let functions = functions(session, launches)?;
        for function in &functions {
            if function.local > DEFAULT_STACK {
                reserve_stack(session, function.local.into())?;
            }
            if let Some(places) = function.places() {
                places.enter(session.device_memory, session.current())?;
            }
        }
        let graph = Made::new(session, launches.iter().zip(&functions))?;
        if self.made.len() == MOST_GRAPHS {
            let oldest = (0..self.made.len()).min_by_key(|at| self.made[*at].graph.used);
            oldest.map(|at| self.made.swap_remove(at));
            self.replaced = self.launched;
        }
        self.made.push(Group {
            context,
            shapes,
            graph,
        });
        Ok(Some(self.made.len() - 1))
    }

    /// Submits the waiting launches as a graph; `Ok(false)` if nothing was submitted.
    ///
    /// # Errors
    ///
    /// Nothing was submitted either: the launches themselves will return the error.
    fn give(&mut self, session: &Session, waiting: &Waiting) -> Result<bool, CUresult> {
        let [first, ..] = waiting.launches.as_slice() else {
            return Ok(false);
        };
        let passage = session
            .gates
            .enter(waiting.context, &first.named(), Launch::GIVES)?;
        if !passage.is_open() || self.ending.contains(&session.entered()) || !self.has_room()? {
            return Ok(false);
        }
        let (stream, context) = session.objects.stream(first.config.stream)?;
        // A green context is not the driver's current context.
        let entered = session.entered();
        if entered != session.current() || (context != 0 && context != entered) {
            return Ok(false);
        }
        let Some(at) = self.graph(session, &waiting.launches)? else {
            return Ok(false);
        };
        let context = session.entered();
        let mark = match self.spare.iter().position(|of| of.context == context) {
            Some(at) => self.spare.swap_remove(at),
            None => Mark::new(context)?,
        };
        // Functions may have ended since.
        functions(session, &waiting.launches)?;
        let made = &mut self.made[at].graph;
        self.launched += 1;
        made.used = self.launched;
        if let Err(code) = made.launch(&waiting.launches, stream as CUstream) {
            // Its parameters are unknown, or it lacks resources that single launches do not need, such as memory.
            self.made.swap_remove(at);
            return Err(code);
        }
        weigh(waiting.launches.len() as u64);
        counts::launch_graph();
        for _ in &waiting.launches {
            counts::command();
            counts::launch();
        }
        // SAFETY: the event and the stream are the driver's, live, and are of one context.
        if unsafe { driver::cuEventRecord(mark.event, stream as CUstream) }.is_ok() {
            self.under_way.push_back(mark);
        }
        Ok(true)
    }

    /// Submits the waiting launches as a graph, and returns whether it did. If not, nothing was submitted.
    pub fn issue(&mut self, session: &Session, waiting: &Waiting) -> bool {
        if self.is_off || are_off() || !waiting.is_crowd() {
            return false;
        }
        let uses = grace::enter(waiting.context, false);
        let given = self.give(session, waiting).unwrap_or(false);
        drop(uses);
        // The launches themselves repeat a look-up that could not be certain of a module.
        grace::again();
        given
    }
}
