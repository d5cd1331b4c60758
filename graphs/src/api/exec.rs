// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Instantiation, launches and changes of executable graphs.

use std::{
    ffi::{c_char, c_void},
    sync::Arc,
};

use gpgpu_protocol::cuda::*;

use super::{
    get,
    nodes::{self, context_of, kernel_of},
    offer, required, set,
};
use crate::{
    Gpu, Result,
    abi::*,
    exec::{self, Exec},
    node::Work,
    update::{self, Difference},
};

fn exec_of<G: Gpu>(exec: CUgraphExec) -> Result<Arc<Exec<G>>> {
    G::ready()?;
    G::store().with(|inner| inner.exec(exec as u64))
}

/// `cuGraphInstantiateWithFlags`.
pub unsafe fn cuGraphInstantiateWithFlags<G: Gpu, const PT: bool>(
    to: *mut CUgraphExec,
    graph: CUgraph,
    flags: u64,
) -> Result {
    G::ready()?;
    required(to)?;
    // There is no stream for the upload.
    if flags & UPLOAD != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let handle = exec::instantiate::<G>(graph as u64, flags).map_err(|refused| refused.code)?;
    // SAFETY: promised by the caller.
    unsafe { set(to, handle as CUgraphExec) }
}

/// `cuGraphInstantiate`, of CUDA 11; it writes nothing to the log.
pub unsafe fn cuGraphInstantiate_v2<G: Gpu, const PT: bool>(
    to: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    bytes: usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe {
        offer(node, std::ptr::null_mut());
        if bytes > 0 {
            offer(log, 0);
        }
        cuGraphInstantiateWithFlags::<G, PT>(to, graph, 0)
    }
}

/// `cuGraphInstantiate`, of CUDA 10.
pub unsafe fn cuGraphInstantiate<G: Gpu, const PT: bool>(
    to: *mut CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    log: *mut c_char,
    bytes: usize,
) -> Result {
    // SAFETY: promised by the caller.
    unsafe { cuGraphInstantiate_v2::<G, PT>(to, graph, node, log, bytes) }
}

/// `cuGraphInstantiateWithParams`.
pub unsafe fn cuGraphInstantiateWithParams<G: Gpu, const PT: bool>(
    to: *mut CUgraphExec,
    graph: CUgraph,
    params: *mut c_void,
) -> Result {
    G::ready()?;
    required(to)?;
    let params = params.cast::<CUDA_GRAPH_INSTANTIATE_PARAMS>();
    // SAFETY: promised by the caller.
    let mut given = unsafe { get(params) }?;
    given.hErrNode_out = std::ptr::null_mut();
    let uploaded = |handle: u64| -> Result<u64> {
        if given.flags & UPLOAD != 0 {
            let exec = exec_of::<G>(handle as CUgraphExec)?;
            let uploaded = exec.upload(given.hUploadStream, PT);
            // Without the handle the program could not destroy it.
            uploaded.inspect_err(|_| _ = end::<G>(handle))?;
        }
        Ok(handle)
    };
    let made = exec::instantiate::<G>(graph as u64, given.flags);
    let made = made.and_then(|handle| uploaded(handle).map_err(exec::Refused::from));
    given.result_out = match made {
        Ok(_) => INSTANTIATE_SUCCESS,
        Err(_) if G::store().with(|inner| inner.has_circle(graph as u64)) => {
            INSTANTIATE_INVALID_STRUCTURE
        }
        Err(refused) => {
            given.hErrNode_out = refused.node as CUgraphNode;
            refused.result
        }
    };
    // SAFETY: as above.
    unsafe { set(params, given) }?;
    let handle = made.map_err(|refused| refused.code)? as CUgraphExec;
    // SAFETY: as above.
    unsafe { set(to, handle) }
}

/// `cuGraphExecDestroy`: pending launches still complete.
pub unsafe fn cuGraphExecDestroy<G: Gpu, const PT: bool>(exec: CUgraphExec) -> Result {
    G::ready()?;
    end::<G>(exec as u64)
}

fn end<G: Gpu>(exec: u64) -> Result {
    G::store().with(|inner| {
        let gone = inner.execs.remove(&exec);
        let gone = gone.ok_or(CUDA_ERROR_INVALID_VALUE)?;
        inner.discard(gone);
        Ok(())
    })
}

/// `cuGraphExecGetFlags`: without the upload flag, because the upload is complete.
pub unsafe fn cuGraphExecGetFlags<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    flags: *mut u64,
) -> Result {
    let exec = exec_of::<G>(exec)?;
    // SAFETY: promised by the caller.
    unsafe { set(flags, exec.flags & (AUTO_FREE_ON_LAUNCH | DEVICE_LAUNCH)) }
}

/// `cuGraphExecGetId`.
pub unsafe fn cuGraphExecGetId<G: Gpu, const PT: bool>(exec: CUgraphExec, to: *mut u32) -> Result {
    let exec = exec_of::<G>(exec)?;
    // SAFETY: promised by the caller.
    unsafe { set(to, exec.id) }
}

/// Refuses a captured stream, as the driver (580) does: an executable graph cannot become a node. The refusal
/// invalidates the capture.
fn refuse_capture<G: Gpu>(stream: CUstream, per_thread: bool) -> Result {
    if !crate::capture::any::<G>() {
        return Ok(());
    }
    crate::capture::refuse::<G>(&G::stream(stream, per_thread)?)
}

/// `cuGraphLaunch`.
pub unsafe fn cuGraphLaunch<G: Gpu, const PT: bool>(exec: CUgraphExec, stream: CUstream) -> Result {
    G::ready()?;
    if !crate::capture::any::<G>()
        && let Some(place) = G::stream_at_once(stream, PT)
        && let Some(sleeps) = G::store().look(|inner| inner.launch_at_once(exec as u64, place))
    {
        return if sleeps { G::wake() } else { Ok(()) };
    }
    let exec = exec_of::<G>(exec)?;
    refuse_capture::<G>(stream, PT)?;
    exec.launch(stream, PT)
}

/// `cuGraphUpload`.
pub unsafe fn cuGraphUpload<G: Gpu, const PT: bool>(exec: CUgraphExec, stream: CUstream) -> Result {
    let exec = exec_of::<G>(exec)?;
    refuse_capture::<G>(stream, PT)?;
    exec.upload(stream, PT)
}

/// `cuGraphExecUpdate_v2`.
pub unsafe fn cuGraphExecUpdate_v2<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    graph: CUgraph,
    info: *mut c_void,
) -> Result {
    let exec = exec_of::<G>(exec)?;
    required(info)?;
    let (moved, is_updatable) = G::store().with(|inner| {
        let of = inner.graph(graph as u64);
        of.map_or((false, false), |of| (of.moved, of.device_nodes.is_some()))
    });
    if moved {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let outcome = match is_updatable || exec.is_updatable {
        // With NVIDIA's driver (580), a result structure of zeros is unchanged in this case.
        true => Err((
            CUDA_ERROR_NOT_SUPPORTED,
            Some(Difference(updated::SUCCESS, 0, 0)),
        )),
        false => update::update::<G>(&exec, graph as u64),
    };
    let Difference(result, node, from) = match &outcome {
        Ok(()) => Difference(updated::SUCCESS, 0, 0),
        Err((_, Some(difference))) => *difference,
        Err((_, None)) => Difference(updated::ERROR, 0, 0),
    };
    // SAFETY: promised by the caller.
    unsafe {
        set(
            info.cast(),
            CUgraphExecUpdateResultInfo {
                result,
                errorNode: node as CUgraphNode,
                errorFromNode: from as CUgraphNode,
            },
        )
    }?;
    outcome.map_err(|(code, _)| code)
}

/// `cuGraphExecUpdate`, of CUDA 10.2.
pub unsafe fn cuGraphExecUpdate<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    graph: CUgraph,
    node: *mut CUgraphNode,
    result: *mut u32,
) -> Result {
    let mut info = CUgraphExecUpdateResultInfo {
        result: updated::ERROR,
        errorNode: std::ptr::null_mut(),
        errorFromNode: std::ptr::null_mut(),
    };
    // SAFETY: promised by the caller; the structure outlives the call.
    unsafe {
        let outcome = cuGraphExecUpdate_v2::<G, PT>(exec, graph, (&raw mut info).cast());
        offer(node, info.errorNode);
        offer(result, info.result);
        outcome
    }
}

/// Whether a step of an executable graph can be disabled.
fn can_be_disabled(work: &Work) -> bool {
    matches!(work, Work::Kernel(_) | Work::Copy(_) | Work::Fill(_))
}

/// `cuGraphNodeSetEnabled`: for launches, copies and fills.
pub unsafe fn cuGraphNodeSetEnabled<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: u32,
) -> Result {
    exec_of::<G>(exec)?.change(node as u64, |step| {
        if !can_be_disabled(&step.work) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        step.enabled = enabled != 0;
        Ok(())
    })
}

/// `cuGraphNodeGetEnabled`.
pub unsafe fn cuGraphNodeGetEnabled<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    enabled: *mut u32,
) -> Result {
    let exec = exec_of::<G>(exec)?;
    let place = exec.places.get(&(node as u64));
    let step = exec.state().steps[*place.ok_or(CUDA_ERROR_INVALID_VALUE)?].clone();
    if !can_be_disabled(&step.work) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: promised by the caller.
    unsafe { set(enabled, step.enabled.into()) }
}

/// Changes a step of an executable graph to other work of its kind.
pub(super) fn change<G: Gpu>(exec: CUgraphExec, node: CUgraphNode, work: Work) -> Result {
    exec_of::<G>(exec)?.change(node as u64, |step| {
        if update::compare(&step.work, &work) != updated::SUCCESS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        step.work = work;
        Ok(())
    })
}

/// `cuGraphExecKernelNodeSetParams_v2`.
pub unsafe fn cuGraphExecKernelNodeSetParams_v2<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS,
) -> Result {
    let of = exec_of::<G>(exec)?;
    let place = of.places.get(&(node as u64));
    let place = *place.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let before = match &of.state().steps[place].work {
        Work::Kernel(kernel) => Arc::clone(kernel),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    // SAFETY: promised by the caller.
    change::<G>(exec, node, unsafe {
        nodes::kernel::<G>(params, Some(&before))
    }?)
}

/// `cuGraphExecKernelNodeSetParams`, of CUDA 10.1.
pub unsafe fn cuGraphExecKernelNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    kernel_of::<G>(node)?;
    // SAFETY: promised by the caller.
    unsafe {
        let params = nodes::widen(params)?;
        cuGraphExecKernelNodeSetParams_v2::<G, PT>(exec, node, &params)
    }
}

/// `cuGraphExecMemcpyNodeSetParams`.
pub unsafe fn cuGraphExecMemcpyNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_MEMCPY3D,
    context: CUcontext,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    change::<G>(exec, node, unsafe {
        nodes::copy::<G>(params, context_of::<G>(context)?)
    }?)
}

/// `cuGraphExecMemsetNodeSetParams`.
pub unsafe fn cuGraphExecMemsetNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const c_void,
    context: CUcontext,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    change::<G>(exec, node, unsafe {
        nodes::fill::<G>(params, context_of::<G>(context)?)
    }?)
}

/// `cuGraphExecHostNodeSetParams`.
pub unsafe fn cuGraphExecHostNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    // SAFETY: promised by the caller.
    change::<G>(exec, node, unsafe { nodes::host(params) }?)
}

/// `cuGraphExecEventRecordNodeSetEvent`.
pub unsafe fn cuGraphExecEventRecordNodeSetEvent<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result {
    G::ready()?;
    G::check_event(event as u64)?;
    change::<G>(exec, node, Work::Record(event as u64))
}

/// `cuGraphExecEventWaitNodeSetEvent`.
pub unsafe fn cuGraphExecEventWaitNodeSetEvent<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    event: CUevent,
) -> Result {
    G::ready()?;
    G::check_event(event as u64)?;
    change::<G>(exec, node, Work::Wait(event as u64))
}

/// Changes the graph of a node to another one with the same topology.
pub(super) fn change_child<G: Gpu>(exec: CUgraphExec, node: CUgraphNode, graph: CUgraph) -> Result {
    let exec = exec_of::<G>(exec)?;
    let Work::Child(own) = nodes::work::<G>(node)? else {
        return Err(CUDA_ERROR_INVALID_VALUE);
    };
    exec.change_child(own, graph as u64)
}

/// `cuGraphExecChildGraphNodeSetParams`.
pub unsafe fn cuGraphExecChildGraphNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    graph: CUgraph,
) -> Result {
    change_child::<G>(exec, node, graph)
}

/// `cuGraphExecBatchMemOpNodeSetParams`: can change addresses, values and conditions.
pub unsafe fn cuGraphExecBatchMemOpNodeSetParams<G: Gpu, const PT: bool>(
    exec: CUgraphExec,
    node: CUgraphNode,
    params: *const c_void,
) -> Result {
    G::ready()?;
    // SAFETY: promised by the caller.
    change::<G>(exec, node, unsafe { nodes::mem_ops::<G>(params) }?)
}
