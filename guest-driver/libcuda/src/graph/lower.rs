// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! From a graph's steps to those that travel.
//!
//! A copy from or to pageable memory becomes one between pinned memory of this library's own and the device, with a call before or
//! behind it that copies between that and the program's memory. So the program's bytes are read, or written, when the launch comes to the
//! node, once each launch, as natively.

use std::sync::{Arc, Mutex, PoisonError};

use gpgpu_graphs::{
    exec::Step,
    node::{Copy3D, Fill, Kernel, MemOps, Work},
};
use gpgpu_protocol::{
    api::{
        BoxCopy, BoxEnd, GraphStep, LaunchAttribute, LaunchConfig, Request, graph_edge,
        graph_step as kind, is_node_attribute, request,
    },
    codec::Blob,
    cuda::*,
};

use smallvec::SmallVec;

use super::{calls::Call, library::Part};
use crate::{argument::HostPtr, client::Client, ffi::Result, memop, memory};

/// Addresses and bytes.
type Names = SmallVec<[(u64, usize); 2]>;

/// What is known of a list that the host has.
#[derive(Default)]
pub struct Lowered {
    /// The step that each of the graph's became last, and whether it became only that.
    places: Vec<(u32, bool)>,
    /// The calls of each of the graph's steps.
    calls: Vec<Vec<Call>>,
    /// The event that each of the graph's steps records, or 0.
    events: Vec<u64>,
    /// Whether there ever was a call, and an event.
    has_calls: bool,
    has_events: bool,
    /// Whether a kernel of it may print.
    prints: bool,
    /// What memory each of the graph's steps names, if it is a copy, a fill or operations with words: addresses and bytes.
    names: Vec<Names>,
}

impl Lowered {
    /// The events that a launch records.
    pub fn events(&self) -> impl Iterator<Item = u64> {
        let events: &[u64] = if self.has_events { &self.events } else { &[] };
        events.iter().copied().filter(|event| *event != 0)
    }

    /// Whether a launch may print.
    pub fn prints(&self) -> bool {
        self.prints
    }

    /// What memory a launch names beside what kernels use: addresses and bytes.
    pub fn names(&self) -> impl Iterator<Item = &(u64, usize)> {
        self.names.iter().flatten()
    }

    /// Whether a launch calls anything.
    pub fn has_calls(&self) -> bool {
        self.has_calls
    }

    /// A launch is under way, or, with -1, is not after all.
    pub fn expect_calls(&self, launches: i64) {
        if self.has_calls {
            for call in self.calls.iter().flatten() {
                call.expect(launches);
            }
        }
    }

    /// Notes what a step becomes beside what travels, and gives the event that it records and the memory that it names.
    fn note(&mut self, client: &Client, work: &Work, calls: &[Call]) -> Result<(u64, Names)> {
        let event = recorded(work);
        self.has_calls |= !calls.is_empty();
        self.has_events |= event != 0;
        self.prints |= prints(client, work)?;
        Ok((event, names(work)?))
    }

    /// The step that one of the graph's has to become, if it was one and is one: its number, what it is, and its calls.
    pub fn single(
        &self,
        client: &Client,
        steps: &[Step],
        index: usize,
    ) -> Result<Option<(u32, GraphStep, Vec<Call>)>> {
        let (place, is_single) = self.places[index];
        if !is_single {
            return Ok(None);
        }
        let mut list = Vec::new();
        let mut calls = Vec::new();
        one(client, &steps[index], Vec::new(), &mut list, &mut calls)?;
        let step = list.pop().filter(|_| list.is_empty());
        Ok(step.map(|step| (place, step, calls)))
    }

    /// The host has taken that.
    pub fn replace(
        &mut self,
        client: &Client,
        index: usize,
        work: &Work,
        calls: Vec<Call>,
    ) -> Result {
        (self.events[index], self.names[index]) = self.note(client, work, &calls)?;
        // What is under way may have the old ones to make still; then they stay until it has.
        self.calls[index] = calls;
        Ok(())
    }
}

/// Whether a launch may print.
fn prints(client: &Client, work: &Work) -> Result<bool> {
    match work {
        Work::Kernel(kernel) => {
            let function = client.objects.function(kernel.function)?;
            function.may_print(client, kernel.function)
        }
        _ => Ok(false),
    }
}

/// What memory a step names beside what kernels use.
fn names(work: &Work) -> Result<Names> {
    let mut names = Names::new();
    match work {
        Work::Copy(of) => {
            if of.dst_array == 0 {
                names.push((of.dst, of.dst_extent()?));
            }
            if of.src_array == 0 {
                names.push((of.src, of.src_extent()?));
            }
        }
        Work::Fill(of) => names.push((of.given.dst, of.extent()?)),
        Work::MemOps(of) => {
            let ops = of.ops.iter().map(memop::read);
            // A word is 8 bytes at most, and those of 4 do not end with their block.
            names.extend(ops.map(|op| (op.address, 4)));
        }
        _ => {}
    }
    Ok(names)
}

fn recorded(work: &Work) -> u64 {
    match work {
        Work::Record(event) => *event,
        _ => 0,
    }
}

/// The steps as they travel.
pub fn lower(client: &Client, steps: &[Step]) -> Result<(Vec<GraphStep>, Lowered)> {
    forget_shadows();
    let mut list = Vec::with_capacity(steps.len());
    let mut lowered = Lowered::default();
    for step in steps {
        let after = step.after.iter();
        let after = after.map(|of| lowered.places[*of as usize].0).collect();
        let (first, mut calls) = (list.len(), Vec::new());
        one(client, step, after, &mut list, &mut calls)?;
        let is_single = list.len() - first == 1;
        lowered.places.push((list.len() as u32 - 1, is_single));
        let (event, names) = lowered.note(client, &step.work, &calls)?;
        lowered.events.push(event);
        lowered.names.push(names);
        lowered.calls.push(calls);
    }
    Ok((list, lowered))
}

/// A launch's configuration, as it travels.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` for an attribute that a node cannot have.
pub fn launch_config(kernel: &Kernel) -> Result<LaunchConfig> {
    let mut attributes = Vec::new();
    for of in &kernel.attributes {
        if !is_node_attribute(of.id) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        attributes.push(LaunchAttribute {
            id: of.id,
            // SAFETY: every bit pattern of the union's 64 bytes is a value of its byte array.
            value: unsafe { of.value.pad },
        });
    }
    Ok(LaunchConfig {
        grid_x: kernel.grid[0],
        grid_y: kernel.grid[1],
        grid_z: kernel.grid[2],
        block_x: kernel.block[0],
        block_y: kernel.block[1],
        block_z: kernel.block[2],
        shared_bytes: kernel.shared,
        stream: 0,
        attributes,
    })
}

/// A launch, as it travels; nobody waits for it.
///
/// # Errors
///
/// As [`launch_config`].
pub fn launch_step(kernel: &Kernel) -> Result<GraphStep> {
    Ok(GraphStep {
        kind: kind::LAUNCH,
        enabled: true,
        context: kernel.context,
        object: kernel.function,
        launch: launch_config(kernel)?,
        params: Blob(kernel.bytes().to_vec()),
        ..GraphStep::default()
    })
}

fn fill_step(fill: &Fill) -> GraphStep {
    let of = &fill.given;
    GraphStep {
        kind: kind::FILL,
        enabled: true,
        context: fill.context,
        numbers: vec![
            of.dst,
            of.pitch as u64,
            of.value.into(),
            of.elementSize.into(),
            of.width as u64,
            of.height as u64,
        ],
        ..GraphStep::default()
    }
}

/// One end of a copy: its first byte, bytes from row to row, rows from slice to slice.
type End = (u64, usize, usize);

/// An end in memory of the worker's.
fn at((address, pitch, rows): End) -> BoxEnd {
    BoxEnd {
        address,
        pitch,
        rows,
        ..BoxEnd::default()
    }
}

fn copy_step(copy: &Copy3D, dst: BoxEnd, src: BoxEnd) -> GraphStep {
    let (kind, numbers) = if dst.array != 0 || src.array != 0 {
        let of = BoxCopy {
            dst,
            src,
            width: copy.width,
            height: copy.height,
            depth: copy.depth,
        };
        (kind::BOX, of.numbers())
    } else {
        let numbers = [
            dst.address,
            src.address,
            dst.pitch as u64,
            src.pitch as u64,
            dst.rows as u64,
            src.rows as u64,
            copy.width as u64,
            copy.height as u64,
            copy.depth as u64,
        ];
        (kind::COPY, numbers.to_vec())
    };
    GraphStep {
        kind,
        enabled: true,
        context: copy.context,
        numbers,
        ..GraphStep::default()
    }
}

/// The address by which the worker reaches memory; `None` for pageable memory.
fn far(client: &Client, kind: CUmemorytype, address: u64, bytes: usize) -> Option<u64> {
    match client.pointers.find_whole(address, bytes) {
        Some(range) if address.wrapping_sub(range.start) < range.bytes => Some(range.far(address)),
        Some(_) => Some(address),
        None if kind == CU_MEMORYTYPE_DEVICE => Some(address),
        None => None,
    }
}

/// Both ends of a copy as the worker reaches them; `None` for pageable memory.
fn ends(client: &Client, copy: &Copy3D) -> Result<(Option<BoxEnd>, Option<BoxEnd>)> {
    let of = &copy.given;
    let in_array = |array, [x, y, z]: [usize; 3]| {
        Some(BoxEnd {
            array,
            x,
            y,
            z,
            ..BoxEnd::default()
        })
    };
    let dst = match copy.dst_array {
        0 => far(client, of.dstMemoryType, copy.dst, copy.dst_extent()?)
            .map(|address| at((address, copy.dst_pitch, copy.dst_height))),
        array => in_array(array, [of.dstXInBytes, of.dstY, of.dstZ]),
    };
    let src = match copy.src_array {
        0 => far(client, of.srcMemoryType, copy.src, copy.src_extent()?)
            .map(|address| at((address, copy.src_pitch, copy.src_height))),
        array => in_array(array, [of.srcXInBytes, of.srcY, of.srcZ]),
    };
    Ok((dst, src))
}

/// Whether one end of a copy is in pageable memory.
pub fn is_near(client: &Client, copy: &Copy3D) -> Result<bool> {
    ends(client, copy).map(|(dst, src)| dst.is_none() || src.is_none())
}

/// Whether an end is one that the process knows to be good.
fn is_known(
    client: &Client,
    copy: &Copy3D,
    end: Option<BoxEnd>,
    memory: (u64, usize),
) -> Result<bool> {
    match end {
        None => Ok(true),
        Some(end) if end.array != 0 => {
            let size = [copy.width, copy.height, copy.depth];
            let array = client.arrays.array(end.array);
            match array.is_ok_and(|array| array.holds([end.x, end.y, end.z], size)) {
                true if client.has(request::gpgpuModuleReference::OP) => Ok(true),
                true => Err(CUDA_ERROR_NOT_SUPPORTED),
                false => Err(CUDA_ERROR_INVALID_VALUE),
            }
        }
        Some(_) => Ok(client.pointers.find_whole(memory.0, memory.1).is_some()),
    }
}

/// Whether a copy can be made. Memory that the process does not know the host judges.
pub fn check_copy(client: &Client, copy: &Copy3D) -> Result {
    let (dst, src) = ends(client, copy)?;
    let to = is_known(client, copy, dst, (copy.dst, copy.dst_extent()?))?;
    let from = is_known(client, copy, src, (copy.src, copy.src_extent()?))?;
    if to && from {
        return Ok(());
    }
    for (array, address) in [(copy.dst_array, copy.dst), (copy.src_array, copy.src)] {
        if array == 0 {
            client.disown(address);
        }
    }
    // The near end is judged as if it were the far one, which is known to be good or judged here.
    let (Some(to), Some(from)) = (dst.or(src), src.or(dst)) else {
        return Ok(());
    };
    let step = copy_step(copy, to, from);
    client.call(&request::gpgpuGraphCheck { step }).map(drop)
}

/// Whether memory can be filled.
pub fn check_fill(client: &Client, fill: &Fill) -> Result {
    if client
        .pointers
        .find_whole(fill.given.dst, fill.extent()?)
        .is_some()
    {
        return Ok(());
    }
    client.disown(fill.given.dst);
    let step = fill_step(fill);
    client.call(&request::gpgpuGraphCheck { step }).map(drop)
}

fn words_step(client: &Client, of: &MemOps) -> GraphStep {
    let mut numbers = vec![of.flags.into()];
    for op in &of.ops {
        let op = memop::reach(client, memop::read(op));
        numbers.extend([op.operation.into(), op.flags.into(), op.address, op.value]);
    }
    GraphStep {
        kind: kind::WORDS,
        enabled: true,
        context: of.context,
        numbers,
        ..GraphStep::default()
    }
}

/// Whether words can be written and waited for: the host judges.
pub fn check_mem_ops(client: &Client, of: &MemOps) -> Result {
    // The operation is as old as such steps.
    client.require(request::gpgpuMemOps::OPERATION)?;
    let step = words_step(client, of);
    client.call(&request::gpgpuGraphCheck { step }).map(drop)
}

/// Pinned memory that a copy from or to pageable memory goes through.
struct Shadow {
    address: u64,
}

/// Shadows that ended where nothing can be freed: in a call.
static LEFT: Mutex<Vec<u64>> = Mutex::new(Vec::new());

impl Shadow {
    fn new(copy: &Copy3D) -> Result<Arc<Self>> {
        let rows = copy.height.checked_mul(copy.depth);
        let bytes = rows.and_then(|rows| rows.checked_mul(copy.width));
        let address = memory::allocate_host(bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?, 0)? as u64;
        Ok(Arc::new(Self { address }))
    }

    /// Copies between it, where rows follow each other without a gap, and the program's memory.
    fn copy(&self, copy: &Copy3D, near: End, outward: bool) {
        for z in 0..copy.depth {
            for y in 0..copy.height {
                let row = z * copy.height + y;
                let own = HostPtr::at(self.address).add(row * copy.width);
                let of = HostPtr::at(near.0).add((z * near.2 + y) * near.1);
                if outward {
                    of.store(own.bytes(copy.width));
                } else {
                    own.store(of.bytes(copy.width));
                }
            }
        }
    }
}

impl Drop for Shadow {
    fn drop(&mut self) {
        if memory::free_host(self.address, false).is_err() {
            LEFT.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(self.address);
        }
    }
}

/// Frees what could not be freed before.
fn forget_shadows() {
    let left = std::mem::take(&mut *LEFT.lock().unwrap_or_else(PoisonError::into_inner));
    for address in left {
        let _ = memory::free_host(address, false);
    }
}

fn call_step(after: Vec<u32>, call: &Call) -> GraphStep {
    GraphStep {
        kind: kind::CALL,
        after,
        enabled: true,
        object: call.id(),
        ..GraphStep::default()
    }
}

/// Appends what a copy becomes.
fn copy(
    client: &Client,
    copy: &Copy3D,
    after: Vec<u32>,
    list: &mut Vec<GraphStep>,
    calls: &mut Vec<Call>,
) -> Result {
    let copy = *copy;
    let to = (copy.dst, copy.dst_pitch, copy.dst_height);
    let from = (copy.src, copy.src_pitch, copy.src_height);
    let packed = |address| at((address, copy.width, copy.height));
    let behind = |list: &Vec<GraphStep>| vec![list.len() as u32 - 1];
    match ends(client, &copy)? {
        (Some(dst), Some(src)) => {
            let step = copy_step(&copy, dst, src);
            list.push(GraphStep { after, ..step });
        }
        (Some(dst), None) => {
            let shadow = Shadow::new(&copy)?;
            let address = shadow.address;
            let call = Call::new(client, move || shadow.copy(&copy, from, false));
            list.push(call_step(after, &call));
            calls.push(call);
            let step = copy_step(&copy, dst, packed(address));
            let after = behind(list);
            list.push(GraphStep { after, ..step });
        }
        (None, Some(src)) => {
            let shadow = Shadow::new(&copy)?;
            let step = copy_step(&copy, packed(shadow.address), src);
            list.push(GraphStep { after, ..step });
            let call = Call::new(client, move || shadow.copy(&copy, to, true));
            list.push(call_step(behind(list), &call));
            calls.push(call);
        }
        (None, None) => {
            let call = Call::new(client, move || {
                for z in 0..copy.depth {
                    for y in 0..copy.height {
                        let at = |end: End| HostPtr::at(end.0).add((z * end.2 + y) * end.1);
                        at(to).store(at(from).bytes(copy.width));
                    }
                }
            });
            list.push(call_step(after, &call));
            calls.push(call);
        }
    }
    Ok(())
}

/// Appends what a step becomes.
fn one(
    client: &Client,
    step: &Step,
    after: Vec<u32>,
    list: &mut Vec<GraphStep>,
    calls: &mut Vec<Call>,
) -> Result {
    let made = match &step.work {
        Work::Kernel(kernel) => launch_step(kernel)?,
        Work::Fill(fill) => fill_step(fill),
        Work::MemOps(of) => words_step(client, of),
        // What does not happen calls nobody.
        Work::Copy(of) if !step.enabled && is_near(client, of)? => nothing(),
        Work::Copy(of) => {
            copy(client, of, after, list, calls)?;
            if let Some(last) = list.last_mut() {
                last.enabled = step.enabled;
            }
            return Ok(());
        }
        Work::Host(host) => {
            let of = *host;
            let call = Call::new(client, move || {
                let call = of;
                if let Some(function) = call.0.function {
                    // SAFETY: the program gave this function and this pointer for every launch of the graph.
                    unsafe { function(call.0.userData) }
                }
            });
            let made = call_step(Vec::new(), &call);
            calls.push(call);
            made
        }
        Work::Record(event) => GraphStep {
            kind: kind::RECORD,
            object: *event,
            ..nothing()
        },
        Work::Wait(event) => GraphStep {
            kind: kind::WAIT,
            object: *event,
            ..nothing()
        },
        Work::Condition(of) => GraphStep {
            kind: kind::VALUE,
            context: of.context,
            numbers: vec![of.default.into(), of.flags.into()],
            ..nothing()
        },
        Work::Conditional(of) => GraphStep {
            kind: kind::CONDITIONAL,
            context: of.context,
            object: of.condition,
            numbers: vec![of.kind.into(), of.bodies.len() as u64],
            ..nothing()
        },
        Work::Edges(edges) => {
            let edges = edges.iter();
            let numbers = edges.map(|of| graph_edge([of.from_port, of.to_port, of.type_]));
            GraphStep {
                kind: kind::EDGES,
                numbers: numbers.collect(),
                ..nothing()
            }
        }
        Work::Body => GraphStep {
            kind: kind::BODY,
            ..nothing()
        },
        Work::EndBodies => GraphStep {
            kind: kind::END,
            ..nothing()
        },
        Work::Child(_) | Work::Empty | Work::Alloc(_) | Work::Free(_) => nothing(),
        Work::Own(of) => {
            let part = of.downcast_ref::<Part>();
            let part = part.ok_or(CUDA_ERROR_INVALID_VALUE)?;
            GraphStep {
                kind: kind::PART,
                object: part.id,
                context: part.context,
                ..nothing()
            }
        }
    };
    let enabled = step.enabled || matches!(made.kind, kind::CALL..=kind::END);
    list.push(GraphStep {
        after,
        enabled,
        ..made
    });
    Ok(())
}

fn nothing() -> GraphStep {
    GraphStep {
        kind: kind::NOTHING,
        enabled: true,
        ..GraphStep::default()
    }
}
