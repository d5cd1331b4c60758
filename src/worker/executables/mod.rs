// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The client's executable graphs.
//!
//! A driver's graph is made from the client's list of steps, node by node. Each step is checked like the command that
//! does the same in a stream ([`step`]). Objects of an executable graph may end before it: each launch checks that they
//! still exist, because the driver does not. Recorded calls of libraries are parts of graphs ([`part`]). The driver's
//! nodes of launches that kernels update are made before the graph ([`updatable`]).

mod bodies;
mod by_id;
mod charged;
mod direct;
mod part;
mod step;
#[cfg(test)]
mod tests;
mod updatable;
#[cfg(test)]
mod updatable_tests;

use std::{
    borrow::Cow,
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use gpgpu_graphs::abi::CUgraphEdgeData;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{GraphChange, GraphExec, GraphStep, Stream, graph_step as kind},
    cuda::*,
};

use self::bodies::Bodies;
use self::by_id::{ById, Owned};
use self::charged::{Account, Taken, bytes_of};
use self::direct::{in_one_context, is_direct, without_joins};
pub use self::part::{Part, Recorder, Refused};
use self::step::{Made, Uses, can_be_disabled, is_in_context, make};
use self::updatable::{Nodes, Taking};
use super::{
    lease::{bit, gpu_of_memory, use_gpus},
    mark::Mark,
    ops::known,
    session::Session,
};
use crate::cuda::driver;

/// The maximum number of steps of a graph.
pub const MOST_STEPS: usize = 1 << 18;
/// The maximum number of steps of all graphs of a client. The nodes of parts are included, and an eighth for each
/// dependency: each step costs about a kilobyte of the host's memory in the driver.
const MOST_STEPS_OF_ALL: usize = 1 << 20;

/// Adds to a counter that is limited for the client, completely or not at all.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
fn reserve(counted: &AtomicUsize, more: usize) -> Result<(), CUresult> {
    let add = |now: usize| {
        now.checked_add(more)
            .filter(|all| *all <= MOST_STEPS_OF_ALL)
    };
    let done = counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    done.map(drop).map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)
}

/// Steps that are counted towards the client's limit, until this is dropped.
struct Counted(Arc<AtomicUsize>, usize);

impl Counted {
    fn new(executables: &Executables, steps: &[GraphStep]) -> Result<Self, CUresult> {
        let mut all = steps.len();
        for step in steps {
            // The driver copies the graph of a part.
            let nodes = match step.kind {
                kind::PART => executables.parts.find(step.object)?.nodes(),
                _ => 0,
            };
            all = all.saturating_add(step.after.len() / 8 + nodes);
        }
        reserve(&executables.counted, all)?;
        Ok(Self(Arc::clone(&executables.counted), all))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::Relaxed);
    }
}

/// A driver's graph, made from steps.
struct Graph {
    raw: CUgraph,
    nodes: Vec<CUgraphNode>,
    steps: Vec<Kept>,
    /// The GPUs of its steps.
    gpus: BTreeSet<usize>,
    /// These and the GPUs whose memory its copies and fills access, a bit for each.
    given: u64,
    /// The contexts of its steps.
    contexts: BTreeSet<u64>,
    counted: Counted,
    /// The nodes with which it was begun, if kernels update launches of it. Its graph belongs to them.
    taking: Option<Taking>,
}

/// The GPUs whose memory a step accesses, a bit for each, if the client may have memory on several.
fn touched(session: &Session, uses: &Uses) -> u64 {
    if !session.gates.spans() {
        return 0;
    }
    let gpus = uses.memory.iter().filter_map(|(at, _)| gpu_of_memory(*at));
    gpus.fold(0, |all, gpu| all | bit(gpu))
}

/// The information about a step that is kept.
struct Kept {
    kind: u32,
    context: u64,
    enabled: bool,
    uses: Uses,
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.taking.is_none() {
            // SAFETY: the graph is the driver's, and this alone ends it.
            let _ = unsafe { driver::cuGraphDestroy(self.raw) };
        }
    }
}

impl Graph {
    fn new(session: &Session, steps: &[GraphStep], flags: u64) -> Result<Self, CUresult> {
        if steps.len() > MOST_STEPS {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let is_direct = is_direct(flags);
        let steps = match is_direct {
            true => Cow::Owned(in_one_context(without_joins(steps)?)),
            false => Cow::Borrowed(steps),
        };
        let steps = &steps[..];
        let counted = Counted::new(&session.executables, steps)?;
        let taking = Taking::of(&session.executables, steps)?;
        let (raw, values) = match &taking {
            Some(taking) => (taking.raw, taking.values.clone()),
            None => {
                let mut raw = std::ptr::null_mut();
                // SAFETY: the pointer is to a value that lives across the call.
                unsafe { driver::cuGraphCreate(&mut raw, 0) }?;
                (raw, Vec::new())
            }
        };
        let mut graph = Self {
            raw,
            nodes: Vec::with_capacity(steps.len()),
            steps: Vec::with_capacity(steps.len()),
            gpus: BTreeSet::new(),
            given: 0,
            contexts: BTreeSet::new(),
            counted,
            taking,
        };
        let mut bodies = Bodies::new(raw, values);
        let added = graph.add(session, steps, is_direct, &mut bodies);
        if let Some(taking) = &mut graph.taking {
            taking.keep(&bodies, steps);
        }
        added.and_then(|()| bodies.end())?;
        if let Some(taking) = &graph.taking {
            taking.check()?;
        }
        Ok(graph)
    }

    /// Adds the steps' nodes.
    fn add(
        &mut self,
        session: &Session,
        steps: &[GraphStep],
        is_direct: bool,
        bodies: &mut Bodies,
    ) -> Result<(), CUresult> {
        let mut last = None;
        for (index, step) in steps.iter().enumerate() {
            let (made, uses) = make(session, step, &mut last)?;
            if is_in_context(step.kind)
                && let Some(at) = last
            {
                self.gpus.insert(at.gpu);
                self.given |= bit(at.gpu) | touched(session, &uses);
                self.contexts.insert(step.context);
            }
            let own = match &mut self.taking {
                Some(taking) => taking.node(&session.executables, step)?,
                None => None,
            };
            let left = steps.len() - index - 1;
            let node = match step.kind {
                kind::NOTHING if is_direct => bodies.skip(),
                _ => bodies.add(&made, (step, own), &self.nodes, left)?,
            };
            self.nodes.push(node);
            self.steps.push(Kept {
                kind: step.kind,
                context: step.context,
                enabled: step.enabled,
                uses,
            });
        }
        Ok(())
    }

    /// Checks that all its objects still exist.
    fn check(&self, session: &Session) -> Result<(), CUresult> {
        let uses = || self.steps.iter().map(|step| &step.uses);
        if !session
            .objects
            .are_still(uses().flat_map(|uses| &uses.objects))
        {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        // A disabled step does nothing, and its memory may have been freed.
        let active = self.steps.iter();
        let active = active.filter(|step| step.enabled || !can_be_disabled(step.kind));
        for (address, bytes) in active.flat_map(|step| &step.uses.memory) {
            known(session, *address, *bytes)?;
        }
        Ok(())
    }
}

/// The driver's handles of an executable graph.
struct Handles {
    exec: CUgraphExec,
    graph: Graph,
    /// Its memory on each GPU of its steps.
    _taken: Vec<Taken>,
    /// Whether an update has failed half-way: the objects that the driver's graph uses are then unknown.
    is_torn: bool,
    order: Order,
}

// SAFETY: the driver's handles can be used by any thread, one at a time, which the lock around them sees to.
unsafe impl Send for Handles {}

impl Drop for Handles {
    fn drop(&mut self) {
        // SAFETY: the executable graph is the driver's, and only this ends it. Pending launches still complete.
        let _ = unsafe { driver::cuGraphExecDestroy(self.exec) };
    }
}

impl Handles {
    fn new(session: &Session, graph: Graph, flags: u64) -> Result<Self, CUresult> {
        let take = |gpu| {
            let device = CUdevice::try_from(gpu).map_err(|_| CUDA_ERROR_INVALID_DEVICE)?;
            let account = &session.executables.account;
            account.take(session.device_memory, device, bytes_of(graph.counted.1))
        };
        let taken = graph.gpus.iter().copied().map(take);
        let taken = taken.collect::<Result<_, _>>()?;
        let mut exec = std::ptr::null_mut();
        // SAFETY: the graph is the driver's and lives; the pointer is to a value that lives across the call.
        unsafe { driver::cuGraphInstantiateWithFlags(&mut exec, graph.raw, flags) }?;
        if let Some(taking) = &graph.taking {
            taking.made();
        }
        let handles = Self {
            exec,
            graph,
            _taken: taken,
            is_torn: false,
            order: Order::default(),
        };
        for index in 0..handles.graph.steps.len() {
            if !handles.graph.steps[index].enabled {
                handles.enable(index, false)?;
            }
        }
        Ok(handles)
    }

    /// Checks that it can be launched.
    fn check(&self, session: &Session) -> Result<(), CUresult> {
        match self.is_torn {
            true => Err(CUDA_ERROR_INVALID_VALUE),
            false => self.graph.check(session),
        }
    }

    fn enable(&self, index: usize, enabled: bool) -> Result<(), CUresult> {
        if !can_be_disabled(self.graph.steps[index].kind) {
            return Ok(());
        }
        // SAFETY: both are the driver's and live: a step that can be left out has a node.
        unsafe { driver::cuGraphNodeSetEnabled(self.exec, self.graph.nodes[index], enabled.into()) }
    }

    /// Enables or disables a step.
    fn set_enabled(&mut self, index: usize, enabled: bool) -> Result<(), CUresult> {
        if self.graph.steps[index].enabled != enabled {
            self.enable(index, enabled)?;
            self.graph.steps[index].enabled = enabled;
        }
        Ok(())
    }
}

/// An executable graph. It exists until the last command that uses it ends.
pub struct Executable {
    flags: u64,
    /// The contexts of its steps, which never change: it ends with the first of them.
    contexts: BTreeSet<u64>,
    /// The GPUs to which a launch submits work, a bit for each.
    gpus: AtomicU64,
    handles: Mutex<Handles>,
}

/// The order of the launches of a client's executable graph. The driver orders the launches of one of its objects, so
/// this matters only if an update has replaced that object.
#[derive(Default)]
struct Order {
    /// The stream of the last launch and the context that was current, by id.
    last: Option<(u64, u64)>,
    /// The end of the launches of the object before, until a launch has waited for it. Its context is one of the
    /// graph's, so the graph ends before it.
    before: Option<Mark>,
}

impl Order {
    /// Prepares for launches of another object. A stream that has ended, or is in none of the graph's contexts, is not
    /// waited for.
    fn object_changes(&mut self, session: &Session, contexts: &BTreeSet<u64>) {
        let Some((stream, context)) = self.last else {
            return;
        };
        let current = session.entered();
        let marked = session.enter(context).and_then(|()| {
            let home = session.current();
            if !contexts.contains(&home) {
                return Err(CUDA_ERROR_INVALID_CONTEXT);
            }
            let stream = session.objects.raw::<Stream>(stream)? as CUstream;
            let mark = Mark::new(home)?;
            // SAFETY: both are the driver's, and the driver refuses a stream of another context.
            unsafe { driver::cuEventRecord(mark.event, stream) }.map(|()| mark)
        });
        self.before = marked.ok();
        if session.enter(current).is_err() {
            session.forget_current();
        }
    }
}

impl Executable {
    fn handles(&self) -> MutexGuard<'_, Handles> {
        self.handles.lock()
    }

    /// Launches it in a stream of the current context. The gate counts one command for each of its launches, copies and
    /// fills.
    ///
    /// # Errors
    ///
    /// See `cuGraphLaunch` of the API table.
    pub fn launch(&self, session: &Session, stream: u64) -> Result<(), CUresult> {
        let id = stream;
        let stream = session.objects.raw::<Stream>(id)? as CUstream;
        let mut handles = self.handles();
        use_gpus(self.gpus())?;
        handles.check(session)?;
        let given = handles.graph.steps.iter();
        let given = given.filter(|of| of.enabled || !can_be_disabled(of.kind));
        super::lease::weigh(given.map(|of| of.uses.commands).sum());
        if let Some(mark) = &handles.order.before {
            // SAFETY: both are the driver's and live.
            unsafe { driver::cuStreamWaitEvent(stream, mark.event, 0) }?;
        }
        // SAFETY: both are the driver's and live, and so does all that the graph uses.
        unsafe { driver::cuGraphLaunch(handles.exec, stream) }?;
        handles.order = Order {
            last: Some((id, session.entered())),
            before: None,
        };
        Ok(())
    }

    /// The GPUs to which a launch submits work, a bit for each.
    pub fn gpus(&self) -> u64 {
        self.gpus.load(Ordering::Relaxed)
    }

    /// Uploads it to its GPUs, in the order of a stream.
    ///
    /// # Errors
    ///
    /// As [`Self::launch`].
    pub fn upload(&self, session: &Session, stream: CUstream) -> Result<(), CUresult> {
        let handles = self.handles();
        use_gpus(self.gpus())?;
        handles.check(session)?;
        // SAFETY: as above.
        unsafe { driver::cuGraphUpload(handles.exec, stream) }
    }

    /// Updates it to other steps.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for other contexts or another number of steps; the driver's error code. It is
    /// unchanged in that case, unless kernels can launch it; see [`Handles::become_graph`].
    pub fn update(&self, session: &Session, steps: &[GraphStep]) -> Result<(), CUresult> {
        let graph = Graph::new(session, steps, self.flags)?;
        let mut handles = self.handles();
        if graph.steps.len() != handles.graph.steps.len() || graph.contexts != self.contexts {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let given = graph.given;
        if is_direct(self.flags) {
            self.gpus.fetch_or(given, Ordering::Relaxed);
            handles.become_graph(session, graph)?;
        } else {
            // The driver restricts updates in place, so a new object is made.
            let mut new = Handles::new(session, graph, self.flags)?;
            new.order = std::mem::take(&mut handles.order);
            new.order.object_changes(session, &self.contexts);
            *handles = new;
        }
        // A launch by another thread that has passed fewer gates is refused.
        self.gpus.store(given, Ordering::Relaxed);
        Ok(())
    }

    /// Changes steps. If the driver refuses one, the steps before it have changed.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is no such step, or it is of another kind or context; the driver's error
    /// code.
    pub fn set(&self, session: &Session, changes: &[GraphChange]) -> Result<(), CUresult> {
        let changes = match is_direct(self.flags) {
            true => Cow::Owned(self.in_its_context(changes)),
            false => Cow::Borrowed(changes),
        };
        let mut last = None;
        let made = changes
            .iter()
            .map(|change| make(session, &change.to, &mut last))
            .collect::<Result<Vec<_>, _>>()?;
        let mut handles = self.handles();
        for GraphChange { step, to } in changes.iter() {
            let of = handles.graph.steps.get(*step as usize);
            let of = of.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if of.kind != to.kind || of.context != to.context {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        for (GraphChange { step, to }, (made, uses)) in changes.iter().zip(made) {
            self.gpus
                .fetch_or(touched(session, &uses), Ordering::Relaxed);
            let index = *step as usize;
            made.set(handles.exec, handles.graph.nodes[index])?;
            handles.graph.steps[index].uses = uses;
            handles.set_enabled(index, to.enabled)?;
        }
        Ok(())
    }
}

impl Owned for Executable {
    type Kind = GraphExec;
    const MOST: usize = 16 << 10;

    fn is_in(&self, context: u64) -> bool {
        self.contexts.contains(&context)
    }
}

/// A client's executable graphs, and the parts and nodes that exist before them.
#[derive(Default)]
pub struct Executables {
    /// The executable graphs.
    pub graphs: ById<Executable>,
    /// Recorded calls of libraries.
    pub parts: ById<Part>,
    /// The nodes of launches that kernels update.
    pub nodes: ById<Nodes>,
    counted: Arc<AtomicUsize>,
    account: Account,
}

impl std::fmt::Debug for Executables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Executables({})", self.graphs.len())
    }
}

impl Executables {
    /// Makes an executable graph.
    ///
    /// # Errors
    ///
    /// As [`ById::add`]; `CUDA_ERROR_OUT_OF_MEMORY` above the limits; the driver's error code.
    pub fn make(
        &self,
        session: &Session,
        id: u64,
        steps: &[GraphStep],
        flags: u64,
    ) -> Result<(), CUresult> {
        self.graphs.check(id)?;
        let graph = Graph::new(session, steps, flags)?;
        let executable = Executable {
            flags,
            contexts: graph.contexts.clone(),
            gpus: AtomicU64::new(graph.given),
            handles: Mutex::new(Handles::new(session, graph, flags)?),
        };
        let is_live = |of: &u64| session.objects.live_context_of(*of).is_some();
        let are_live = |of: &Executable| of.contexts.iter().all(is_live);
        self.graphs.add(id, executable, are_live)
    }

    /// Records the work that `body` submits to the stream that it gets, as a part with this id in the current context.
    /// Returns the number of the part's commands; 0 if there is no work.
    ///
    /// # Errors
    ///
    /// As [`ById::add`], and as [`Recorder::finish`]; those of `body`.
    pub fn record<T>(
        &self,
        session: &Session,
        id: u64,
        body: impl FnOnce(&Recorder) -> Result<T, CUresult>,
    ) -> Result<(T, Result<u64, Refused>), CUresult> {
        self.parts.check(id)?;
        let context = session.entered();
        let recorder = Recorder::new()?;
        let done = body(&recorder)?;
        let part = match recorder.finish(context, &self.counted) {
            Ok(Some(part)) => part,
            Ok(None) => return Ok((done, Ok(0))),
            Err(refused) => return Ok((done, Err(refused))),
        };
        let commands = part.commands;
        let is_live = |of: &Part| session.objects.live_context_of(of.context).is_some();
        self.parts.add(id, part, is_live)?;
        Ok((done, Ok(commands)))
    }

    /// Prepares for the end of a context: ends everything in it.
    pub fn end_context(&self, context: u64) {
        self.graphs.end_in(context);
        self.parts.end_in(context);
        self.nodes.end_in(context);
    }
}

/// Checks whether a step is possible.
///
/// # Errors
///
/// The error that the step would have.
pub fn check(session: &Session, step: &GraphStep) -> Result<(), CUresult> {
    let alone = GraphStep {
        after: Vec::new(),
        ..step.clone()
    };
    Graph::new(session, &[alone], 0).map(drop)
}

/// Checks whether steps can wait for a part of a launch.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` if the driver has no such edges; the error of making one.
pub fn check_edges() -> Result<(), CUresult> {
    let mut graph = std::ptr::null_mut();
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { driver::cuGraphCreate(&mut graph, 0) }?;
    let add = || Made::Nothing.add(graph, &[]);
    let edge = [CUgraphEdgeData::default()];
    let checked = add().and_then(|from| bodies::connect(graph, &[from], add()?, &edge));
    // SAFETY: the graph is the driver's, and no other code has it.
    unsafe { driver::cuGraphDestroy(graph) }?;
    checked
}

/// Checks whether graphs in the current context can have a value on which conditional steps depend.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` if the driver has none; the error of making one.
pub fn check_condition(session: &Session, default: u32, flags: u32) -> Result<(), CUresult> {
    let value = GraphStep {
        kind: kind::VALUE,
        context: session.entered(),
        numbers: vec![default.into(), flags.into()],
        ..GraphStep::default()
    };
    Graph::new(session, &[value], 0).map(drop)
}
