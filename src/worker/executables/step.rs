// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Steps of executable graphs in the driver's form.

use std::{
    ffi::c_void,
    sync::{Arc, OnceLock},
};

use gpgpu_graphs::abi::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS, CUDA_HOST_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUgraphEdgeData,
    CUstreamBatchMemOpParams,
};
use gpgpu_protocol::{
    api::{
        Array, BoxCopy, Context, Event, GraphStep, Kernel, MemOp, Object, graph_step as kind,
        is_node_attribute, object_kind,
    },
    cuda::*,
};

use super::{bodies::connect, part::Part};
use crate::{
    cuda::driver,
    worker::{
        callbacks::Callbacks,
        lease::current_gpu,
        ops::{DEFAULT_STACK, box_copy, known, memop, reserve_stack},
        session::Session,
    },
};

/// The callbacks of the one client of this process: the targets of a graph's calls.
static CALLBACKS: OnceLock<&'static Callbacks> = OnceLock::new();

/// Called when a launch of a graph has reached a call of the program. The data is the number of the callback.
unsafe extern "C" fn call(number: *mut c_void) {
    if let Some(callbacks) = CALLBACKS.get() {
        callbacks.run(number as u64, 0, CUDA_SUCCESS);
    }
}

/// A step in the driver's form.
pub enum Made {
    Launch {
        params: CUDA_KERNEL_NODE_PARAMS,
        /// The storage of the parameters in `params`.
        _pointers: Vec<*mut c_void>,
        _bytes: Vec<u8>,
        attributes: Vec<(CUlaunchAttributeID, CUlaunchAttributeValue)>,
    },
    Copy(CUDA_MEMCPY3D, CUcontext),
    Fill(CUDA_MEMSET_NODE_PARAMS, CUcontext),
    Call(CUDA_HOST_NODE_PARAMS),
    Words {
        params: CUDA_BATCH_MEM_OP_NODE_PARAMS,
        /// The storage of the parameters in `params`.
        _ops: Vec<CUstreamBatchMemOpParams>,
    },
    Nothing,
    Record(CUevent),
    Wait(CUevent),
    Part(Arc<Part>),
    /// A value's default and flags, and its context.
    Value([u32; 2], CUcontext),
    /// The number of a value, the type of a node and the number of its bodies, and its context.
    Conditional(u64, [u32; 2], CUcontext),
    /// A mark of the list, without a node.
    Mark,
}

/// The objects of a step that may end before its graph.
#[derive(Debug, Default, Clone)]
pub struct Uses {
    /// Functions, kernels, events and arrays, with the driver's handles.
    pub objects: Vec<(u64, u64)>,
    /// Addresses and sizes.
    pub memory: Vec<(u64, usize)>,
    /// The number of launches, copies, fills and batches of memory operations.
    pub commands: u64,
}

/// The context of steps, with the driver's handles. Most steps of a list are in one context.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Its id.
    id: u64,
    /// The context of a launch.
    raw: CUcontext,
    /// The id of the context of its other steps: a green context's multiprocessors are for kernels, so other steps are
    /// in its primary context.
    home: u64,
    /// The driver's handle of that.
    raw_home: CUcontext,
    /// Its GPU.
    pub gpu: usize,
}

impl Place {
    /// The place of the current context, which has this id.
    fn new(session: &Session, id: u64) -> Result<Self, CUresult> {
        let home = session.objects.home(id);
        Ok(Self {
            id,
            raw: session.objects.raw::<Context>(id)? as CUcontext,
            home,
            raw_home: session.objects.raw::<Context>(home)? as CUcontext,
            gpu: current_gpu()?,
        })
    }
}

fn launch(session: &Session, step: &GraphStep, at: &Place) -> Result<(Made, Uses), CUresult> {
    let function = session.function(step.object)?;
    if function.context != 0 && function.context != at.home {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    if function.local > DEFAULT_STACK {
        reserve_stack(session, function.local.into())?;
    }
    let layout = function.params();
    let end = |of: &gpgpu_protocol::api::ParamInfo| of.offset as usize + of.size as usize;
    let mut bytes = step.params.0.clone();
    if bytes.len() != layout.last().map_or(0, end) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let start = bytes.as_mut_ptr();
    let pointers = layout.iter();
    let mut pointers: Vec<*mut c_void> = pointers
        .map(|param| start.wrapping_add(param.offset as usize).cast())
        .collect();
    let mut attributes = Vec::new();
    for of in &step.launch.attributes {
        if !is_node_attribute(of.id) {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        attributes.push((of.id, CUlaunchAttributeValue { pad: of.value }));
    }
    let is_kernel = object_kind(step.object) == Kernel::KIND;
    let raw = function.raw;
    let of = &step.launch;
    let params = CUDA_KERNEL_NODE_PARAMS {
        func: if is_kernel { 0 } else { raw } as CUfunction,
        gridDimX: of.grid_x,
        gridDimY: of.grid_y,
        gridDimZ: of.grid_z,
        blockDimX: of.block_x,
        blockDimY: of.block_y,
        blockDimZ: of.block_z,
        sharedMemBytes: of.shared_bytes,
        kernelParams: pointers.as_mut_ptr(),
        extra: std::ptr::null_mut(),
        kern: if is_kernel { raw } else { 0 } as CUkernel,
        ctx: at.raw,
    };
    let made = Made::Launch {
        params,
        _pointers: pointers,
        _bytes: bytes,
        attributes,
    };
    let uses = Uses {
        objects: vec![(step.object, raw)],
        commands: 1,
        ..Uses::default()
    };
    Ok((made, uses))
}

/// The numbers of a step.
pub(super) fn numbers<const N: usize>(step: &GraphStep) -> Result<[usize; N], CUresult> {
    let all: [u64; N] = (step.numbers.as_slice())
        .try_into()
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    Ok(all.map(|number| number as usize))
}

/// The number of bytes from the first to the last of a box.
fn extent(
    (pitch, slice): (usize, usize),
    (width, height, depth): (usize, usize, usize),
) -> Option<usize> {
    let rows = depth.checked_sub(1)?.checked_mul(slice)?;
    let rows = rows.checked_add(height.checked_sub(1)?)?;
    rows.checked_mul(pitch)?.checked_add(width)
}

fn copy(session: &Session, step: &GraphStep, at: &Place) -> Result<(Made, Uses), CUresult> {
    let [
        dst,
        src,
        dst_pitch,
        src_pitch,
        dst_height,
        src_height,
        width,
        height,
        depth,
    ] = numbers(step)?;
    let size = (width, height, depth);
    let side = |address: usize, pitch: usize, slice: usize| -> Result<_, CUresult> {
        let is_good = width > 0 && pitch >= width && slice >= height;
        let bytes = extent((pitch, slice), size).filter(|_| is_good);
        let bytes = bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        known(session, address as u64, bytes)?;
        Ok((address as u64, bytes))
    };
    let memory = vec![
        side(dst, dst_pitch, dst_height)?,
        side(src, src_pitch, src_height)?,
    ];
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: 0,
        srcY: 0,
        srcZ: 0,
        srcLOD: 0,
        srcMemoryType: CU_MEMORYTYPE_UNIFIED,
        srcHost: std::ptr::null(),
        srcDevice: src as u64,
        srcArray: std::ptr::null_mut(),
        reserved0: std::ptr::null_mut(),
        srcPitch: src_pitch,
        srcHeight: src_height,
        dstXInBytes: 0,
        dstY: 0,
        dstZ: 0,
        dstLOD: 0,
        dstMemoryType: CU_MEMORYTYPE_UNIFIED,
        dstHost: std::ptr::null_mut(),
        dstDevice: dst as u64,
        dstArray: std::ptr::null_mut(),
        reserved1: std::ptr::null_mut(),
        dstPitch: dst_pitch,
        dstHeight: dst_height,
        WidthInBytes: width,
        Height: height,
        Depth: depth,
    };
    let context = at.raw_home;
    Ok((
        Made::Copy(copy, context),
        Uses {
            memory,
            commands: 1,
            ..Uses::default()
        },
    ))
}

/// A copy of a box with at least one array. The driver checks that the box is inside the array.
fn boxed(session: &Session, step: &GraphStep, at: &Place) -> Result<(Made, Uses), CUresult> {
    let of = BoxCopy::of_numbers(&step.numbers).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let size = [of.width, of.height, of.depth];
    box_copy::volume(size)?;
    let (dst, src) = (box_copy::plain(of.dst), box_copy::plain(of.src));
    let to = box_copy::hold(session, &dst, size)?;
    let from = box_copy::hold(session, &src, size)?;
    let nowhere = std::ptr::null_mut();
    let copy = box_copy::described(
        (&dst, Some(&to), nowhere),
        (&src, Some(&from), nowhere),
        size,
    );
    let memory = [&to, &from].into_iter().filter_map(|end| end.memory);
    let uses = Uses {
        objects: [&to, &from]
            .into_iter()
            .filter(|end| end.objects[0] != 0)
            .map(|end| (end.objects[0], Array::id(end.array)))
            .collect(),
        memory: memory
            .map(|(start, bytes)| (start, bytes as usize))
            .collect(),
        commands: 1,
    };
    Ok((Made::Copy(copy, at.raw_home), uses))
}

fn fill(session: &Session, step: &GraphStep, at: &Place) -> Result<(Made, Uses), CUresult> {
    let [dst, pitch, value, size, width, height] = numbers(step)?;
    let row = width.checked_mul(size).ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let is_good = matches!(size, 1 | 2 | 4) && row > 0 && pitch >= row;
    let bytes = extent((pitch, height), (row, height, 1)).filter(|_| is_good);
    let bytes = bytes.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    known(session, dst as u64, bytes)?;
    let params = CUDA_MEMSET_NODE_PARAMS {
        dst: dst as u64,
        pitch,
        value: value as u32,
        elementSize: size as u32,
        width,
        height,
    };
    let context = at.raw_home;
    let memory = vec![(dst as u64, bytes)];
    Ok((
        Made::Fill(params, context),
        Uses {
            memory,
            commands: 1,
            ..Uses::default()
        },
    ))
}

fn words(session: &Session, step: &GraphStep, at: &Place) -> Result<(Made, Uses), CUresult> {
    let bad = CUDA_ERROR_INVALID_VALUE;
    let (flags, ops) = step.numbers.split_first().ok_or(bad)?;
    let flags = u32::try_from(*flags).map_err(|_| bad)?;
    let (ops, rest) = ops.as_chunks::<4>();
    if ops.is_empty() || ops.len() > memop::MOST || !rest.is_empty() {
        return Err(bad);
    }
    let mut lowered = Vec::with_capacity(ops.len());
    let mut memory = Vec::new();
    for [operation, flags, address, value] in ops {
        let op = MemOp {
            operation: u32::try_from(*operation).map_err(|_| bad)?,
            flags: u32::try_from(*flags).map_err(|_| bad)?,
            address: *address,
            value: *value,
        };
        lowered.push(memop::lower(session, &op)?);
        if let Some(bytes) = memop::word_bytes(op.operation) {
            memory.push((op.address, bytes));
        }
    }
    let params = CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx: at.raw_home,
        count: lowered.len() as u32,
        paramArray: lowered.as_mut_ptr(),
        flags,
    };
    let made = Made::Words {
        params,
        _ops: lowered,
    };
    let uses = Uses {
        memory,
        commands: 1,
        ..Uses::default()
    };
    Ok((made, uses))
}

fn event(session: &Session, step: &GraphStep) -> Result<(CUevent, Uses), CUresult> {
    let entry = session.objects.entry::<Event>(step.object);
    let entry = entry.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
    let uses = Uses {
        objects: vec![(step.object, entry.raw)],
        ..Uses::default()
    };
    Ok((entry.raw as CUevent, uses))
}

/// Checks a step in its context, and converts it to the driver's form. `last` is the context of the previous step, and
/// becomes that of this step if it has one.
pub fn make(
    session: &Session,
    step: &GraphStep,
    last: &mut Option<Place>,
) -> Result<(Made, Uses), CUresult> {
    if !is_in_context(step.kind) {
        return elsewhere(session, step);
    }
    if step.context == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    session.enter(step.context)?;
    let at = match *last {
        Some(at) if at.id == step.context => at,
        _ => *last.insert(Place::new(session, step.context)?),
    };
    let at = &at;
    match step.kind {
        kind::LAUNCH => launch(session, step, at),
        kind::COPY => copy(session, step, at),
        kind::BOX => boxed(session, step, at),
        kind::FILL => fill(session, step, at),
        kind::WORDS => words(session, step, at),
        kind::PART => {
            let part = session.executables.parts.find(step.object)?;
            if part.context != step.context {
                return Err(CUDA_ERROR_INVALID_HANDLE);
            }
            let commands = part.commands;
            let uses = Uses {
                commands,
                ..Uses::default()
            };
            Ok((Made::Part(part), uses))
        }
        kind::VALUE | kind::CONDITIONAL => {
            let [first, second] = numbers(step)?;
            let [first, second] = [first, second].map(u32::try_from);
            let bad = |_| CUDA_ERROR_INVALID_VALUE;
            let numbers = [first.map_err(bad)?, second.map_err(bad)?];
            let context = at.raw_home;
            let made = match step.kind {
                kind::VALUE => Made::Value(numbers, context),
                _ => Made::Conditional(step.object, numbers, context),
            };
            Ok((made, Uses::default()))
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The same for a step without a context.
fn elsewhere(session: &Session, step: &GraphStep) -> Result<(Made, Uses), CUresult> {
    match step.kind {
        kind::CALL => {
            let _ = CALLBACKS.set(session.callbacks);
            session.callbacks.set_used();
            let params = CUDA_HOST_NODE_PARAMS {
                function: Some(call),
                userData: step.object as *mut c_void,
            };
            Ok((Made::Call(params), Uses::default()))
        }
        kind::NOTHING => Ok((Made::Nothing, Uses::default())),
        kind::RECORD => {
            session.callbacks.distrust_events();
            event(session, step).map(|(of, uses)| (Made::Record(of), uses))
        }
        kind::WAIT => event(session, step).map(|(of, uses)| (Made::Wait(of), uses)),
        kind::BODY | kind::END | kind::EDGES => Ok((Made::Mark, Uses::default())),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// Whether a step belongs to a context, and so to a GPU.
pub fn is_in_context(of: u32) -> bool {
    matches!(
        of,
        kind::LAUNCH
            | kind::COPY
            | kind::BOX
            | kind::FILL
            | kind::PART
            | kind::WORDS
            | kind::VALUE
            | kind::CONDITIONAL
    )
}

/// Whether a step can be left out.
pub fn can_be_disabled(of: u32) -> bool {
    matches!(of, kind::LAUNCH | kind::COPY | kind::BOX | kind::FILL)
}

impl Made {
    /// Adds it to a graph, after other nodes.
    pub fn add(&self, graph: CUgraph, after: &[CUgraphNode]) -> Result<CUgraphNode, CUresult> {
        let mut node = std::ptr::null_mut();
        let (to, first, count) = (&raw mut node, after.as_ptr(), after.len());
        // SAFETY: the graph, its nodes, functions, contexts and events are the driver's and live; structures and their
        // pointers outlive the calls, which copy them.
        unsafe {
            match self {
                Self::Launch {
                    params, attributes, ..
                } => {
                    driver::cuGraphAddKernelNode_v2(to, graph, first, count, params)?;
                    for (id, value) in attributes {
                        let value = std::ptr::from_ref(value).cast();
                        driver::cuGraphKernelNodeSetAttribute(node, *id, value)?;
                    }
                }
                Self::Copy(copy, context) => {
                    driver::cuGraphAddMemcpyNode(to, graph, first, count, copy, *context)?;
                }
                Self::Fill(fill, context) => {
                    let fill = std::ptr::from_ref(fill).cast();
                    driver::cuGraphAddMemsetNode(to, graph, first, count, fill, *context)?;
                }
                Self::Call(params) => {
                    let params = std::ptr::from_ref(params).cast();
                    driver::cuGraphAddHostNode(to, graph, first, count, params)?;
                }
                Self::Words { params, .. } => {
                    let params = std::ptr::from_ref(params).cast();
                    driver::cuGraphAddBatchMemOpNode(to, graph, first, count, params)?;
                }
                Self::Nothing => driver::cuGraphAddEmptyNode(to, graph, first, count)?,
                Self::Record(event) => {
                    driver::cuGraphAddEventRecordNode(to, graph, first, count, *event)?;
                }
                Self::Wait(event) => {
                    driver::cuGraphAddEventWaitNode(to, graph, first, count, *event)?;
                }
                Self::Part(part) => {
                    driver::cuGraphAddChildGraphNode(to, graph, first, count, part.raw())?;
                }
                Self::Value(..) | Self::Conditional(..) | Self::Mark => {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
            }
        }
        Ok(node)
    }

    /// Makes the node of a launch do this, after other nodes.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if this is not a launch; the driver's error code.
    pub fn take(
        &self,
        graph: CUgraph,
        node: CUgraphNode,
        after: &[CUgraphNode],
    ) -> Result<(), CUresult> {
        let Self::Launch {
            params, attributes, ..
        } = self
        else {
            return Err(CUDA_ERROR_INVALID_VALUE);
        };
        // SAFETY: the node is the driver's, and so are functions and contexts; structures outlive the calls.
        unsafe {
            driver::cuGraphKernelNodeSetParams_v2(node, params)?;
            for (id, value) in attributes {
                let value = std::ptr::from_ref(value).cast();
                driver::cuGraphKernelNodeSetAttribute(node, *id, value)?;
            }
        }
        connect(
            graph,
            after,
            node,
            &vec![CUgraphEdgeData::default(); after.len()],
        )
    }

    /// Makes a node of an executable graph do this.
    pub fn set(&self, exec: CUgraphExec, node: CUgraphNode) -> Result<(), CUresult> {
        // SAFETY: as above; the node is one of the graph that the executable one was made of.
        unsafe {
            match self {
                Self::Launch { params, .. } => {
                    driver::cuGraphExecKernelNodeSetParams_v2(exec, node, params)
                }
                Self::Copy(copy, context) => {
                    driver::cuGraphExecMemcpyNodeSetParams(exec, node, copy, *context)
                }
                Self::Fill(fill, context) => {
                    let fill = std::ptr::from_ref(fill).cast();
                    driver::cuGraphExecMemsetNodeSetParams(exec, node, fill, *context)
                }
                Self::Call(params) => {
                    let params = std::ptr::from_ref(params).cast();
                    driver::cuGraphExecHostNodeSetParams(exec, node, params)
                }
                Self::Words { params, .. } => {
                    let params = std::ptr::from_ref(params).cast();
                    driver::cuGraphExecBatchMemOpNodeSetParams(exec, node, params)
                }
                Self::Nothing => Ok(()),
                Self::Record(event) => {
                    driver::cuGraphExecEventRecordNodeSetEvent(exec, node, *event)
                }
                Self::Wait(event) => driver::cuGraphExecEventWaitNodeSetEvent(exec, node, *event),
                Self::Part(part) => {
                    driver::cuGraphExecChildGraphNodeSetParams(exec, node, part.raw())
                }
                Self::Value(..) | Self::Conditional(..) | Self::Mark => {
                    Err(CUDA_ERROR_INVALID_VALUE)
                }
            }
        }
    }
}
