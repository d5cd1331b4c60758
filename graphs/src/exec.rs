// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Executable graphs: a list of steps in an order in which they can be executed. The list contains the steps of child
//! graphs.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::cuda::*;
use smallvec::SmallVec;

use crate::{
    Gpu, Result,
    abi::{
        AUTO_FREE_ON_LAUNCH, CUgraphEdgeData, DEVICE_LAUNCH, INSTANTIATE_ERROR,
        INSTANTIATE_NODE_NOT_SUPPORTED, INSTANTIATE_SEVERAL_CONTEXTS, UPLOAD, USE_NODE_PRIORITY,
    },
    conditional::check_bodies,
    node::Work,
    objects::Allocation,
    store::{Edge, Inner, Map, Node, Tag},
    updatable,
};

/// A step.
#[derive(Clone)]
pub struct Step {
    /// The node from which it was made; 0 for the start of a child graph.
    pub node: u64,
    /// The steps that it depends on, by index.
    pub after: SmallVec<[u32; 2]>,
    /// Its content.
    pub work: Work,
    /// `cuGraphNodeSetEnabled`.
    pub enabled: bool,
}

impl Step {
    /// A marker in the list, which depends on nothing.
    fn mark(work: Work) -> Self {
        Self {
            node: 0,
            after: SmallVec::new(),
            work,
            enabled: true,
        }
    }
}

/// The mutable part of an executable graph.
#[derive(Default)]
pub struct State {
    /// The current steps.
    pub steps: Arc<Vec<Step>>,
}

/// References to user objects.
pub(crate) struct Held<G: Gpu>(Vec<(u64, u64)>, std::marker::PhantomData<fn() -> G>);

impl<G: Gpu> Drop for Held<G> {
    fn drop(&mut self) {
        let held = std::mem::take(&mut self.0);
        G::store().with(|inner| {
            for (object, count) in held {
                let _ = inner.release(object, count);
            }
        });
    }
}

/// An executable graph.
pub struct Exec<G: Gpu> {
    /// Its id: see [`Inner::new_id`].
    pub id: u32,
    /// The flags of its instantiation.
    pub flags: u64,
    /// The driver's executable graph.
    pub of: G::Exec,
    /// The step of each node, including those of child graphs.
    pub(crate) places: Map<usize>,
    /// Whether it allocates or frees memory.
    has_memory: bool,
    /// Whether kernels update launches in it.
    pub(crate) is_updatable: bool,
    /// The allocations of other graphs that it frees.
    foreign: Vec<Arc<Allocation>>,
    state: Mutex<State>,
    pub(crate) objects: Objects<G>,
}

/// The user objects of an executable graph: those of the graph from which it was made or last updated.
pub(crate) struct Objects<G: Gpu> {
    /// Whether there are any, for launches without the lock.
    any: AtomicBool,
    held: Mutex<Option<Arc<Held<G>>>>,
}

impl<G: Gpu> Objects<G> {
    fn new(held: Option<Held<G>>) -> Self {
        Self {
            any: AtomicBool::new(held.is_some()),
            held: Mutex::new(held.map(Arc::new)),
        }
    }

    fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Those that a launch must keep.
    fn get(&self) -> Option<Arc<Held<G>>> {
        self.any().then(|| self.held.lock().clone())?
    }

    /// Replaces them. Launches that are pending keep the earlier ones.
    pub(crate) fn replace(&self, held: Option<Held<G>>) {
        if held.is_some() || self.any() {
            self.any.store(held.is_some(), Ordering::Relaxed);
            let before = std::mem::replace(&mut *self.held.lock(), held.map(Arc::new));
            // Its end takes the store's lock and may call the program.
            drop(before);
        }
    }
}

/// A graph's steps, and the step of each node.
pub(crate) fn flatten<G: Gpu>(inner: &Inner<G>, graph: u64) -> Result<(Vec<Step>, Map<usize>)> {
    let of = inner.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let (mut steps, mut places) = (Vec::new(), Map::default());
    steps.reserve(of.nodes.len());
    places.reserve(of.nodes.len());
    let conditions = of.conditions.iter();
    steps.extend(conditions.map(|of| Step::mark(Work::Condition(*of))));
    inner.lay(graph, &[], &mut steps, &mut places)?;
    Ok((steps, places))
}

impl<G: Gpu> Inner<G> {
    /// Appends a graph's steps, all of which depend on `before`. Returns the steps that no other step of the graph
    /// depends on.
    fn lay(
        &self,
        graph: u64,
        before: &[u32],
        steps: &mut Vec<Step>,
        places: &mut Map<usize>,
    ) -> Result<Vec<u32>> {
        let mut leaves = Vec::new();
        for handle in self.ordered(graph)? {
            let node = &self.nodes[&handle];
            let mut after: SmallVec<[u32; 2]> = node
                .dependencies
                .iter()
                .map(|(of, _)| places[of] as u32)
                .collect();
            if let Some(edges) = self.partial_edges(node) {
                // Sort them, so that graphs with the same edges have the same steps.
                let mut both: Vec<_> = after.iter().copied().zip(edges).collect();
                both.sort_by_key(|(place, _)| *place);
                after = both.iter().map(|(place, _)| *place).collect();
                let edges = both.into_iter().map(|(_, edge)| edge).collect();
                steps.push(Step::mark(Work::Edges(edges)));
            }
            if after.is_empty() {
                after.extend_from_slice(before);
            }
            let mut work = node.work.clone();
            if let Work::Child(child) = work {
                let start = steps.len() as u32;
                steps.push(Step {
                    node: 0,
                    after,
                    work: Work::Empty,
                    enabled: true,
                });
                after = self.lay(child, &[start], steps, places)?.into();
                if after.is_empty() {
                    after.push(start);
                }
                work = Work::Empty;
            }
            places.insert(handle, steps.len());
            if node.dependents.is_empty() {
                leaves.push(steps.len() as u32);
            }
            let bodies = match &work {
                Work::Conditional(of) => Some(Arc::clone(of)),
                _ => None,
            };
            steps.push(Step {
                node: handle,
                after,
                work,
                enabled: true,
            });
            if let Some(of) = bodies {
                for body in &of.bodies {
                    steps.push(Step::mark(Work::Body));
                    self.lay(*body, &[], steps, places)?;
                }
                steps.push(Step::mark(Work::EndBodies));
            }
        }
        Ok(leaves)
    }

    /// The edges from a node to each of its dependencies, if it waits for only a part of one. A capture may create
    /// edges that a program cannot add; such an edge waits for the whole node.
    fn partial_edges(&self, node: &Node) -> Option<Vec<CUgraphEdgeData>> {
        let edges = || node.dependencies.iter();
        if edges().all(|(_, edge)| edge.is_whole()) || !G::has_partial_edges() {
            return None;
        }
        let is_known = |(of, edge): &Edge| {
            let is_simple = matches!(node.work, Work::Kernel(_) | Work::Fill(_));
            is_simple && self.nodes[of].work.leads(&node.work, *edge)
        };
        let edges = edges().map(|edge| {
            if is_known(edge) {
                edge.1
            } else {
                CUgraphEdgeData::default()
            }
        });
        let edges: Vec<_> = edges.collect();
        edges.iter().any(|edge| !edge.is_whole()).then_some(edges)
    }

    /// The nodes of a graph and of the graphs that it contains.
    fn works(&self, graph: u64, works: &mut Vec<(u64, Work)>) -> Result {
        for node in self.ordered(graph)? {
            let work = self.nodes[&node].work.clone();
            if let Work::Child(child) = work {
                self.works(child, works)?;
            }
            works.push((node, work));
        }
        Ok(())
    }

    /// Takes references to the user objects of a graph and of the graphs that it contains, if it has any.
    pub(crate) fn hold(&mut self, graph: u64) -> Result<Option<Held<G>>> {
        let mut held = Vec::new();
        if !self.objects.is_empty() {
            self.objects_of(graph, &mut held)?;
        }
        for (object, count) in &held {
            self.retain(*object, *count)?;
        }
        Ok((!held.is_empty()).then(|| Held(held, std::marker::PhantomData)))
    }

    /// One reference for each user object of a graph and of the graphs that it contains.
    fn objects_of(&self, graph: u64, found: &mut Vec<(u64, u64)>) -> Result {
        let graph = self.graphs.get(&graph).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        found.extend(graph.objects.iter().map(|(object, _)| (*object, 1)));
        for node in &graph.nodes {
            match &self.nodes[node].work {
                Work::Child(child) => self.objects_of(*child, found)?,
                Work::Conditional(of) => {
                    for body in &of.bodies {
                        self.objects_of(*body, found)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The allocations that these steps free and do not make.
fn foreign(steps: &[Step]) -> Vec<Arc<Allocation>> {
    let own: HashSet<_> = steps
        .iter()
        .filter_map(|step| match &step.work {
            Work::Alloc(of) => Some(Arc::as_ptr(of)),
            _ => None,
        })
        .collect();
    steps
        .iter()
        .filter_map(|step| match &step.work {
            Work::Free(of) if !own.contains(&Arc::as_ptr(of)) => Some(Arc::clone(of)),
            _ => None,
        })
        .collect()
}

/// The reason that a graph cannot be instantiated: the result, a `CUgraphInstantiateResult`, and the node, 0 for none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// The call's result.
    pub code: CUresult,
    /// The reason.
    pub result: u32,
    /// The node that is the reason.
    pub node: u64,
}

impl From<CUresult> for Refused {
    fn from(code: CUresult) -> Self {
        Self {
            code,
            result: INSTANTIATE_ERROR,
            node: 0,
        }
    }
}

/// Checks that kernels can launch a graph. It must have nodes, and all of them must be launches, fills, copies of
/// memory that the GPU can access, or child graphs of these. All must be on one device, and the launches and fills in
/// one context. The results are those of NVIDIA's driver (580).
fn check_for_device<G: Gpu>(graph: u64) -> std::result::Result<(), Refused> {
    let mut works = Vec::new();
    G::store().with(|inner| inner.works(graph, &mut works))?;
    if works.is_empty() {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let (mut context, mut device) = (None, None);
    for (node, work) in works {
        let refused = |result| Refused {
            code: CUDA_ERROR_INVALID_VALUE,
            result,
            node,
        };
        let (own, is_free) = match &work {
            Work::Kernel(of) => (of.context, false),
            Work::Fill(of) => (of.context, false),
            // The driver counts pageable memory as another device's.
            Work::Copy(of) if G::is_near(of)? && device.is_some() => {
                return Err(refused(INSTANTIATE_SEVERAL_CONTEXTS));
            }
            Work::Copy(of) if of.dst_array == 0 && of.src_array == 0 && !G::is_near(of)? => {
                (of.context, true)
            }
            // The driver itself knows the work of a library's call.
            Work::Child(_) | Work::Own(_) => continue,
            _ => return Err(refused(INSTANTIATE_NODE_NOT_SUPPORTED)),
        };
        let place = G::device(own)?;
        let is_elsewhere = *device.get_or_insert(place) != place;
        if is_elsewhere || !is_free && *context.get_or_insert(own) != own {
            return Err(refused(INSTANTIATE_SEVERAL_CONTEXTS));
        }
    }
    Ok(())
}

/// Instantiates a graph, and returns the handle.
pub fn instantiate<G: Gpu>(graph: u64, flags: u64) -> std::result::Result<u64, Refused> {
    if flags & !(AUTO_FREE_ON_LAUNCH | UPLOAD | DEVICE_LAUNCH | USE_NODE_PRIORITY) != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let for_device = flags & DEVICE_LAUNCH != 0;
    if for_device && flags & AUTO_FREE_ON_LAUNCH != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    let (steps, places) = G::store().with(|inner| {
        let of = inner.graph(graph)?;
        if of.captures {
            return Err(CUDA_ERROR_ILLEGAL_STATE);
        }
        if of.moved {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let flat = flatten(inner, graph)?;
        inner.check_instantiable(graph)?;
        Ok(flat)
    })?;
    if for_device {
        check_for_device::<G>(graph)?;
    }
    check_bodies::<G>(&steps)?;
    let of = G::instantiate(&steps, flags)?;
    let mut made = Some((of, steps, places));
    let kept = G::store().with(|inner| keep(inner, graph, flags, &mut made));
    Ok(kept?)
}

/// An executable graph of the driver, its steps, and their indices by node.
type Made<E> = (E, Vec<Step>, Map<usize>);

/// Stores the driver's object for the program, and returns the handle. If another thread has destroyed the graph
/// meanwhile, the object is left to the caller: its destruction may wait, which must not happen while the store is
/// locked.
fn keep<G: Gpu>(
    inner: &mut Inner<G>,
    graph: u64,
    flags: u64,
    made: &mut Option<Made<G::Exec>>,
) -> Result<u64> {
    let objects = Objects::new(inner.hold(graph)?);
    let (of, steps, places) = made.take().ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let name = G::device_handle(&of).filter(|_| flags & DEVICE_LAUNCH != 0);
    let handle = name.unwrap_or_else(|| inner.new_handle(Tag::Exec));
    let id = inner.new_id();
    G::tell_id(&of, id);
    let is_memory = |step: &Step| matches!(step.work, Work::Alloc(_) | Work::Free(_));
    let has_memory = steps.iter().any(is_memory);
    let is_updatable = steps.iter().any(|of| updatable::is_updatable(&of.work));
    let foreign = foreign(&steps);
    inner.graph(graph)?.exec = Some(handle);
    let state = State {
        steps: Arc::new(steps),
    };
    let exec = Arc::new(Exec {
        id,
        flags,
        of,
        places,
        has_memory,
        is_updatable,
        foreign,
        state: Mutex::new(state),
        objects,
    });
    // The driver reuses a name after the context of its graph was destroyed.
    if let Some(ended) = inner.execs.insert(handle, exec) {
        inner.discard(ended);
    }
    Ok(handle)
}

impl<G: Gpu> Exec<G> {
    /// Its steps, under a lock that excludes changes, and launches that take more than one command. CUDA requires
    /// programs not to change and launch an executable graph concurrently.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Launches it, if it has no memory or user objects whose state a launch changes; see [`Gpu::launch_at_once`].
    pub(crate) fn launch_at_once(&self, stream: u64) -> Option<bool> {
        let is_plain = !self.has_memory && self.foreign.is_empty() && !self.objects.any();
        is_plain.then(|| G::launch_at_once(&self.of, stream))?
    }

    /// Launches it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if memory that it allocates was not freed, or if it frees memory that no launch has
    /// allocated; the driver's errors.
    pub fn launch(&self, stream: CUstream, per_thread: bool) -> Result {
        let state = self.state();
        let steps = &state.steps;
        // The kinds of steps never change.
        let memory = if self.has_memory {
            steps.as_slice()
        } else {
            &[]
        };
        let allocated = || {
            memory.iter().filter_map(|step| match &step.work {
                Work::Alloc(of) => Some(of),
                _ => None,
            })
        };
        if self.flags & AUTO_FREE_ON_LAUNCH != 0 {
            allocated().for_each(|of| {
                of.end();
            });
        }
        // Check everything before the launch, so that an error changes nothing.
        if allocated().any(|of| of.is_live()) || self.foreign.iter().any(|of| !of.is_live()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        G::launch(&self.of, steps, stream, per_thread)?;
        for step in memory {
            match &step.work {
                Work::Alloc(of) => drop(of.begin()),
                Work::Free(of) => drop(of.end()),
                _ => {}
            }
        }
        // A free may come before its allocation in the list, if no edge orders them.
        for step in memory {
            if let Work::Free(of) = &step.work {
                of.end();
            }
        }
        if let Some(held) = self.objects.get() {
            // The launch keeps these references, even if the graph is destroyed meanwhile.
            G::call(stream, per_thread, Box::new(move || drop(held)))?;
        }
        Ok(())
    }

    /// Prepares a launch in a stream, and later launches by kernels.
    ///
    /// # Errors
    ///
    /// The driver's errors.
    pub fn upload(&self, stream: CUstream, per_thread: bool) -> Result {
        let state = self.state();
        G::upload(&self.of, &state.steps, stream, per_thread)
    }

    /// Changes one step. The driver may refuse; nothing has changed then. A change that affects only the values of a
    /// launch's parameters may be sent without waiting for the driver.
    pub fn change(&self, node: u64, change: impl FnOnce(&mut Step) -> Result) -> Result {
        let place = *self.places.get(&node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let mut state = self.state();
        let mut step = state.steps[place].clone();
        change(&mut step)?;
        let steps = Arc::make_mut(&mut state.steps);
        let before = std::mem::replace(&mut steps[place], step);
        let are_parameters = crate::update::changes_parameters(&before, &steps[place]);
        G::set(&self.of, steps, place, are_parameters).inspect_err(|_| steps[place] = before)
    }

    /// Changes the steps of a child graph, `own`, to those of another graph with the same topology.
    pub fn change_child(&self, own: u64, other: u64) -> Result {
        let ((before, at), (after, _)) = G::store().with(|inner| -> Result<_> {
            // The driver might have to rebuild the whole graph.
            if self.is_updatable || inner.is_updatable(other) {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            Ok((flatten(inner, own)?, flatten(inner, other)?))
        })?;
        if crate::update::compare_steps(&before, &after).is_some() {
            return Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        }
        let mut state = self.state();
        let mut steps = (*state.steps).clone();
        for (node, place) in at {
            let own = *self.places.get(&node).ok_or(CUDA_ERROR_INVALID_VALUE)?;
            if crate::update::compare(&steps[own].work, &after[place].work) != 0 {
                return Err(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
            }
            steps[own].work = after[place].work.clone();
        }
        let changed = crate::update::changes(&state.steps, &steps);
        G::update(&self.of, &steps, changed.as_ref())?;
        state.steps = Arc::new(steps);
        Ok(())
    }
}
