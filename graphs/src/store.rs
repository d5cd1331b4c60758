// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's graphs and their nodes. Handles are never reused, so a stale or invented one is an error.

use std::{
    any::Any,
    collections::{HashMap, HashSet},
    sync::{
        Arc, LazyLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use foldhash::fast::RandomState;
use gpgpu_locks::Brief;
use gpgpu_protocol::cuda::*;
use smallvec::SmallVec;

use crate::{
    Gpu, Result,
    abi::CUgraphEdgeData,
    capture,
    conditional::Condition,
    exec::Exec,
    node::Work,
    objects::{Allocation, Memory, UserObject},
    updatable::{self, DeviceNodes},
};

/// The kind of a handle, in its upper 16 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// A graph.
    Graph = 0x6701,
    /// A node.
    Node = 0x6702,
    /// An executable graph.
    Exec = 0x6703,
    /// A user object.
    Object = 0x6704,
}

/// A map by handles or by the process's other numbers. The hasher is randomised, so that no one can choose colliding
/// keys.
pub(crate) type Map<T> = HashMap<u64, T, RandomState>;

/// Below this number of allocations, ended ones are not removed.
const FEW_ALLOCATIONS: usize = 64;

/// An edge: the other node's handle, and CUDA's data of the edge.
pub type Edge = (u64, CUgraphEdgeData);
/// A node's edges; usually there is one.
pub type Edges = SmallVec<[Edge; 1]>;

/// A graph.
#[derive(Debug, Default)]
pub struct Graph {
    /// Its id; see [`Inner::new_id`].
    pub id: u32,
    /// The number of its next node.
    pub numbered: u32,
    /// Its nodes in the order of their creation.
    pub nodes: Vec<u64>,
    /// The node that it belongs to, if any: then programs cannot destroy it.
    pub owner: Option<u64>,
    /// Whether it became a child graph without being cloned: it is no longer a separate graph.
    pub moved: bool,
    /// References to user objects.
    pub objects: Vec<(u64, u64)>,
    /// The graph from which it was cloned.
    pub origin: Option<u64>,
    /// Whether a stream is being captured into it.
    pub captures: bool,
    /// The values that its nodes, and those of the bodies in it, depend on.
    pub conditions: Vec<Condition>,
    /// The last executable graph that was made from it.
    pub exec: Option<u64>,
    /// Whether its nodes, or those of graphs that became child graphs, allocate or free memory. Then it cannot be
    /// changed, and has one executable graph at a time.
    pub has_memory: bool,
    /// The driver's nodes for its launches that kernels update, if it ever had such a launch.
    pub(crate) device_nodes: Option<DeviceNodes>,
    /// The memory of its allocation nodes, each with the node after which no other node uses it.
    freed: Vec<(u64, Arc<Memory>)>,
}

/// A node.
#[derive(Clone)]
pub struct Node {
    /// Its graph.
    pub graph: u64,
    /// Its number in the graph, counted from 0. A graph never reuses a number. A clone keeps the number of its
    /// original.
    pub number: u32,
    /// Its content.
    pub work: Work,
    /// Its dependencies.
    pub dependencies: Edges,
    /// Its dependents.
    pub dependents: Edges,
    /// The node from which it was cloned.
    pub origin: Option<u64>,
}

/// The content of the store.
pub struct Inner<G: Gpu> {
    serial: u64,
    /// The last id of a graph.
    id: u32,
    pub(crate) graphs: Map<Graph>,
    pub(crate) nodes: Map<Node>,
    pub(crate) execs: Map<Arc<Exec<G>>>,
    pub(crate) objects: Map<UserObject>,
    pub(crate) captures: capture::Captures,
    /// By address. An allocation may exist for longer than its node, so entries of ended ones are removed from time to
    /// time.
    allocations: Map<Weak<Allocation>>,
    /// The number of entries at which those of ended allocations are removed.
    most_allocations: usize,
    /// Objects that are dropped after the lock is released.
    trash: Vec<Box<dyn Any + Send>>,
}

impl<G: Gpu> Default for Inner<G> {
    fn default() -> Self {
        Self {
            serial: 0,
            id: 0,
            graphs: Map::default(),
            nodes: Map::default(),
            execs: Map::default(),
            objects: Map::default(),
            captures: capture::Captures::default(),
            allocations: Map::default(),
            most_allocations: FEW_ALLOCATIONS,
            trash: Vec::new(),
        }
    }
}

/// The process's graphs.
pub struct Store<G: Gpu> {
    inner: LazyLock<Brief<Inner<G>>>,
    /// The number of open captures. If it is 0, calls need no further check.
    pub(crate) captures: AtomicUsize,
    /// The number of events that were last recorded in a capture. If it is 0, calls with events need no further check.
    pub(crate) events: AtomicUsize,
}

impl<G: Gpu> Default for Store<G> {
    fn default() -> Self {
        Self::new()
    }
}

impl<G: Gpu> Store<G> {
    /// A store without graphs.
    pub const fn new() -> Self {
        Self {
            inner: LazyLock::new(Brief::default),
            captures: AtomicUsize::new(0),
            events: AtomicUsize::new(0),
        }
    }

    /// Calls `body` with the store's content. Objects that it discards are dropped afterwards.
    pub fn with<T>(&self, body: impl FnOnce(&mut Inner<G>) -> T) -> T {
        let mut inner = self.inner.lock();
        let result = body(&mut inner);
        let captures = &inner.captures;
        self.captures.store(captures.open.len(), Ordering::Release);
        self.events.store(captures.marked(), Ordering::Release);
        let trash = std::mem::take(&mut inner.trash);
        drop(inner);
        drop(trash);
        result
    }

    /// Calls `look` with the store's content. `look` changes nothing and does not wait.
    #[inline]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Inner<G>) -> T) -> T {
        look(&self.inner.lock())
    }
}

/// A user object whose last reference was released.
struct Ended(Option<UserObject>);

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            object.end();
        }
    }
}

impl<G: Gpu> Inner<G> {
    /// A new handle.
    pub fn new_handle(&mut self, tag: Tag) -> u64 {
        self.serial += 1;
        (tag as u64) << 48 | self.serial << 4
    }

    /// Makes an id for a graph or an executable graph. Ids are small numbers for tools and people, and are never
    /// reused.
    pub fn new_id(&mut self) -> u32 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    /// Drops a value after the lock is released.
    pub fn discard(&mut self, what: impl Send + 'static) {
        self.trash.push(Box::new(what));
    }

    /// The graph with this handle.
    pub fn graph(&mut self, handle: u64) -> Result<&mut Graph> {
        self.graphs.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The node with this handle.
    pub fn node(&mut self, handle: u64) -> Result<&mut Node> {
        self.nodes.get_mut(&handle).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// The executable graph with this handle.
    pub fn exec(&self, handle: u64) -> Result<Arc<Exec<G>>> {
        let exec = self.execs.get(&handle).cloned();
        exec.ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// Launches an executable graph if that takes only one command of the driver; see [`Gpu::launch_at_once`]. The lock
    /// keeps the graph alive, so a launch changes no reference count.
    pub(crate) fn launch_at_once(&self, handle: u64, stream: u64) -> Option<bool> {
        self.execs.get(&handle)?.launch_at_once(stream)
    }

    /// A new graph.
    pub fn create(&mut self) -> u64 {
        let handle = self.new_handle(Tag::Graph);
        let id = self.new_id();
        self.graphs.insert(
            handle,
            Graph {
                id,
                ..Graph::default()
            },
        );
        handle
    }

    /// Adds a node with these dependencies to a graph.
    pub fn add(&mut self, graph: u64, dependencies: &[Edge], work: Work) -> Result<u64> {
        for (from, edge) in dependencies {
            if !self.node(*from)?.work.leads(&work, *edge) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        self.add_captured(graph, dependencies, work)
    }

    /// The same with edges of a capture, some of which programs cannot add.
    pub fn add_captured(&mut self, graph: u64, dependencies: &[Edge], work: Work) -> Result<u64> {
        self.graph(graph)?;
        self.check_edges(graph, dependencies)?;
        if let Work::Child(child) = work
            && self.is_within(graph, child)?
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if let Work::Child(child) = work {
            self.join_device_nodes(graph, child)?;
        }
        if matches!(work, Work::Alloc(_) | Work::Free(_)) {
            let of = self.graph(graph)?;
            if of.moved {
                return Err(CUDA_ERROR_NOT_SUPPORTED);
            }
            of.has_memory = true;
        }
        let handle = self.new_handle(Tag::Node);
        match &work {
            Work::Alloc(allocation) => {
                let weak = Arc::downgrade(allocation);
                self.allocations.insert(allocation.address(), weak);
                self.forget_allocations();
            }
            Work::Free(allocation) => {
                if let Some(memory) = allocation.freed_by(graph)? {
                    self.graph(graph)?.freed.push((handle, memory));
                }
            }
            _ => {}
        }
        for (from, data) in dependencies {
            self.node(*from)?.dependents.push((handle, *data));
        }
        if let Work::Child(child) = work
            && let Some(child) = self.graphs.get_mut(&child)
        {
            child.owner = Some(handle);
            let has_memory = child.has_memory;
            self.graph(graph)?.has_memory |= has_memory;
        }
        let of = self.graph(graph)?;
        let number = of.numbered;
        of.numbered = number.wrapping_add(1);
        of.nodes.push(handle);
        self.nodes.insert(
            handle,
            Node {
                graph,
                number,
                work,
                dependencies: dependencies.into(),
                dependents: Edges::new(),
                origin: None,
            },
        );
        Ok(handle)
    }

    /// Whether a graph is another one, or is contained in it.
    fn is_within(&mut self, graph: u64, other: u64) -> Result<bool> {
        let mut at = graph;
        while at != other {
            let Some(owner) = self.graph(at)?.owner else {
                return Ok(false);
            };
            at = self.node(owner)?.graph;
        }
        Ok(true)
    }

    /// Gives a child graph node another graph. The former one is destroyed.
    pub fn change_child(&mut self, node: u64, child: u64) -> Result {
        let Work::Child(former) = self.node(node)?.work else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        self.graph(child)?.owner = Some(node);
        self.node(node)?.work = Work::Child(child);
        self.forget_graph(former);
        Ok(())
    }

    /// Undoes the assignment of a graph to a node that was not made. A clone is destroyed; any other graph belongs to
    /// the program as before.
    pub fn give_back(&mut self, child: u64) {
        match self.graphs.get_mut(&child) {
            Some(graph) if graph.moved => graph.moved = false,
            _ => self.forget_graph(child),
        }
    }

    /// Destroys a node.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE`; `CUDA_ERROR_NOT_SUPPORTED` in a graph with memory, because nodes after this one may
    /// rely on its order, and for a launch that kernels update.
    pub fn remove_node(&mut self, handle: u64) -> Result {
        let node = self.node(handle)?.clone();
        let is_updatable = match &node.work {
            Work::Child(child) => self.is_updatable(*child),
            work => updatable::is_updatable(work),
        };
        if is_updatable || self.graph(node.graph)?.has_memory {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        for (from, _) in &node.dependencies {
            self.cut(*from, handle);
        }
        for (to, _) in &node.dependents {
            self.cut(handle, *to);
        }
        self.graph(node.graph)?.nodes.retain(|of| *of != handle);
        self.forget_node(handle);
        Ok(())
    }

    fn forget_node(&mut self, handle: u64) {
        if let Some(node) = self.nodes.remove(&handle) {
            match &node.work {
                Work::Child(child) => self.forget_graph(*child),
                Work::Conditional(of) => {
                    self.free_condition(node.graph, handle);
                    for body in of.bodies.clone() {
                        self.forget_graph(body);
                    }
                }
                _ => {}
            }
            self.discard(node.work);
        }
    }

    /// Destroys a graph with everything in it.
    pub fn forget_graph(&mut self, handle: u64) {
        let Some(graph) = self.graphs.remove(&handle) else {
            return;
        };
        for node in graph.nodes {
            self.forget_node(node);
        }
        if let Some(nodes) = graph.device_nodes {
            self.discard(nodes);
        }
        for (object, count) in graph.objects {
            let _ = self.release(object, count);
        }
    }

    /// Releases references to a user object.
    pub fn release(&mut self, object: u64, count: u64) -> Result {
        let of = self.objects.get_mut(&object);
        let of = of.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        of.count = of
            .count
            .checked_sub(count)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if of.count == 0 {
            let ended = Ended(self.objects.remove(&object));
            self.discard(ended);
        }
        Ok(())
    }

    /// Takes references to a user object.
    pub fn retain(&mut self, object: u64, count: u64) -> Result {
        let of = self.objects.get_mut(&object);
        let of = of.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        of.count += count;
        Ok(())
    }

    /// A copy of a graph. Child graphs are cloned, too.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` for a graph with conditional nodes, as with NVIDIA's driver.
    pub fn clone_graph(&mut self, of: u64) -> Result<u64> {
        if self.is_conditional(of)? {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        let (nodes, objects, numbered) = {
            let graph = self.graph(of)?;
            (graph.nodes.clone(), graph.objects.clone(), graph.numbered)
        };
        let clone = self.create();
        let mut map = Map::default();
        for node in &nodes {
            map.insert(*node, self.new_handle(Tag::Node));
        }
        for handle in &nodes {
            let mut node = self.node(*handle)?.clone();
            node.graph = clone;
            node.origin = Some(*handle);
            for (other, _) in node.dependencies.iter_mut().chain(&mut node.dependents) {
                *other = map[&*other];
            }
            if let Work::Kernel(kernel) = &node.work
                && kernel.device_node.is_some()
            {
                node.work = Work::Kernel(Arc::new(kernel.in_clone()));
            }
            if let Work::Child(child) = node.work {
                let moved = self.graph(child)?.moved;
                let child = self.clone_graph(child)?;
                let graph = self.graph(child)?;
                graph.owner = Some(map[handle]);
                graph.moved = moved;
                node.work = Work::Child(child);
            }
            self.nodes.insert(map[handle], node);
            self.graph(clone)?.nodes.push(map[handle]);
        }
        for (object, count) in &objects {
            self.retain(*object, *count)?;
        }
        let graph = self.graph(clone)?;
        graph.objects = objects;
        graph.numbered = numbered;
        graph.origin = Some(of);
        Ok(clone)
    }

    /// Takes memory of the graph for a node with these dependencies: the smallest memory of at least this size whose
    /// other users have ended by then.
    pub(crate) fn take_freed(
        &mut self,
        graph: u64,
        after: &[Edge],
        context: u64,
        bytes: usize,
    ) -> Option<Arc<Memory>> {
        let fits = |of: &Memory| of.context == context && of.bytes >= bytes;
        let freed = self.graphs.get(&graph)?.freed.iter();
        let mut left: HashSet<u64, RandomState> = freed
            .filter(|(_, of)| fits(of))
            .map(|(node, _)| *node)
            .collect();
        if left.is_empty() {
            return None;
        }
        let whole = after.iter().filter(|(_, edge)| edge.is_whole());
        let whole: Vec<u64> = whole.map(|(node, _)| *node).collect();
        // Usually they are near, so that the search does not visit all earlier iterations of a loop.
        let ended = self.before(&whole, CUgraphEdgeData::is_whole, |node| {
            left.remove(&node) && left.is_empty()
        });
        let freed = &mut self.graphs.get_mut(&graph)?.freed;
        let free = freed.iter().enumerate();
        let (place, _) = free
            .filter(|(_, (node, of))| fits(of) && ended.contains(node))
            .min_by_key(|(_, (_, of))| of.bytes)?;
        Some(freed.swap_remove(place).1)
    }

    /// Removes ended allocations whenever the number of entries has doubled.
    fn forget_allocations(&mut self) {
        if self.allocations.len() >= self.most_allocations {
            self.allocations.retain(|_, of| of.strong_count() > 0);
            self.most_allocations = (2 * self.allocations.len()).max(FEW_ALLOCATIONS);
        }
    }

    /// The number of entries for allocations.
    #[cfg(test)]
    pub(crate) fn known_allocations(&self) -> usize {
        self.allocations.len()
    }

    /// The allocation of a graph at an address.
    pub fn allocation(&self, address: u64) -> Option<Arc<Allocation>> {
        self.allocations.get(&address)?.upgrade()
    }
}

impl<G: Gpu> Store<G> {
    /// An allocation for a node with these dependencies, in memory that earlier nodes no longer use, or in new memory.
    ///
    /// # Errors
    ///
    /// The errors of `cuMemAlloc`.
    pub fn allocate(
        &self,
        graph: u64,
        after: &[Edge],
        context: u64,
        bytes: usize,
    ) -> Result<Arc<Allocation>> {
        let freed = self.with(|inner| inner.take_freed(graph, after, context, bytes));
        let memory = match freed {
            Some(memory) => memory,
            None => Arc::new(Memory::new::<G>(context, bytes)?),
        };
        Ok(Arc::new(Allocation::new(graph, bytes, memory)))
    }

    /// Frees memory for the program. `None` if it is not a graph's: then it is freed like any other memory. A graph's
    /// memory is inaccessible to the program until a launch allocates it again.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no launch has allocated it.
    pub fn free(&self, address: u64) -> Option<Result> {
        let found = self.with(|inner| inner.allocation(address))?;
        Some(if found.end() {
            Ok(())
        } else {
            Err(CUDA_ERROR_INVALID_VALUE)
        })
    }
}
