// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs. Most functions have the driver's form.

use crate::abi::*;
use crate::context::{current, current_context};
use crate::copy::{FROM_SYMBOL, TO_SYMBOL, within_symbol};
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::registration::launchable;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_char, c_uint, c_void};
use std::ptr::null_mut;

/// The driver's form of a kernel node.
///
/// # Safety
/// `parameters` is readable.
pub unsafe fn kernel_node(
    driver: &Driver,
    parameters: *const cudaKernelNodeParams,
) -> Result<CUDA_KERNEL_NODE_PARAMS> {
    // SAFETY: promised by the caller, null excepted.
    let p = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
    let mut func = null_mut();
    // SAFETY: `func` outlives the call.
    unsafe { driver.cuKernelGetFunction(&mut func, launchable(driver, p.func)?.cast()) }?;
    Ok(launch_of(func, p))
}

/// The driver's form of a launch of a function.
pub fn launch_of(func: CUfunction, p: &cudaKernelNodeParams) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func,
        gridDimX: p.gridDim.x,
        gridDimY: p.gridDim.y,
        gridDimZ: p.gridDim.z,
        blockDimX: p.blockDim.x,
        blockDimY: p.blockDim.y,
        blockDimZ: p.blockDim.z,
        sharedMemBytes: p.sharedMemBytes,
        kernelParams: p.kernelParams,
        extra: p.extra,
        kern: null_mut(),
        ctx: null_mut(),
    }
}

/// The runtime's form of a launch that the driver describes, and whether its function is the stub of a registered
/// kernel. The program gets the function that it knows.
pub fn launch_from(
    driver: &Driver,
    native: &CUDA_KERNEL_NODE_PARAMS,
) -> (cudaKernelNodeParams, bool) {
    let stub = crate::registration::host_function(driver, native.func);
    let own = if native.kern.is_null() {
        native.func.cast()
    } else {
        native.kern.cast()
    };
    let parameters = cudaKernelNodeParams {
        func: stub.unwrap_or(own),
        gridDim: dim3 {
            x: native.gridDimX,
            y: native.gridDimY,
            z: native.gridDimZ,
        },
        blockDim: dim3 {
            x: native.blockDimX,
            y: native.blockDimY,
            z: native.blockDimZ,
        },
        sharedMemBytes: native.sharedMemBytes,
        kernelParams: native.kernelParams,
        extra: native.extra,
    };
    (parameters, stub.is_some())
}

/// The driver's form of a copy of `bytes` bytes in a row.
fn row(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: cudaMemcpyKind,
) -> Result<(&'static Driver, CUcontext, CUDA_MEMCPY3D)> {
    let (driver, context) = current_context()?;
    let zero = cudaPos { x: 0, y: 0, z: 0 };
    let line = |ptr| cudaPitchedPtr {
        ptr,
        pitch: bytes,
        xsize: bytes,
        ysize: 1,
    };
    let parameters = cudaMemcpy3DParms {
        srcArray: null_mut(),
        srcPos: zero,
        srcPtr: line(from.cast_mut()),
        dstArray: null_mut(),
        dstPos: zero,
        dstPtr: line(to),
        extent: cudaExtent {
            width: bytes,
            height: 1,
            depth: 1,
        },
        kind,
    };
    Ok((driver, context, crate::array::native(driver, &parameters)?))
}

/// The driver's form of a copy.
///
/// # Safety
/// `parameters` is readable.
pub unsafe fn copy_node(
    parameters: *const cudaMemcpy3DParms,
) -> Result<(&'static Driver, CUcontext, CUDA_MEMCPY3D)> {
    let (driver, context) = current_context()?;
    // SAFETY: promised by the caller, null excepted.
    let p = unsafe { parameters.as_ref() }.ok_or(error::INVALID_VALUE)?;
    Ok((driver, context, crate::array::native(driver, p)?))
}

type Node = cudaGraphNode_t;
type Graph = cudaGraph_t;
type Exec = cudaGraphExec_t;

/// `cudaGraphExecUpdateResultInfo`.
#[repr(C)]
struct UpdateResult {
    result: c_uint,
    node: *mut c_void,
    from: *mut c_void,
}

export! {
    pass fn cudaGraphCreate(graph: *mut Graph, flags: c_uint) => cuGraphCreate;
    pass fn cudaGraphDestroy(graph: Graph) => cuGraphDestroy;
    pass fn cudaGraphClone(clone: *mut Graph, original: Graph) => cuGraphClone;
    pass fn cudaGraphDebugDotPrint(graph: Graph, path: *const c_char, flags: c_uint) => cuGraphDebugDotPrint;
    pass fn cudaGraphDestroyNode(node: Node) => cuGraphDestroyNode;
    pass fn cudaGraphNodeGetType(node: Node, kind: *mut c_uint) => cuGraphNodeGetType;
    pass fn cudaGraphNodeFindInClone(node: *mut Node, original: Node, clone: Graph) => cuGraphNodeFindInClone;
    pass fn cudaGraphNodeGetContainingGraph(node: Node, graph: *mut Graph) => cuGraphNodeGetContainingGraph;
    pass fn cudaGraphNodeGetLocalId(node: Node, id: *mut c_uint) => cuGraphNodeGetLocalId;
    pass fn cudaGraphNodeGetToolsId(node: Node, id: *mut u64) => cuGraphNodeGetToolsId;
    pass fn cudaGraphGetId(graph: Graph, id: *mut c_uint) => cuGraphGetId;
    pass fn cudaGraphExecGetId(exec: Exec, id: *mut c_uint) => cuGraphExecGetId;
    pass fn cudaGraphGetNodes(graph: Graph, nodes: *mut Node, count: *mut usize) => cuGraphGetNodes;
    pass fn cudaGraphGetRootNodes(graph: Graph, nodes: *mut Node, count: *mut usize) => cuGraphGetRootNodes;
    pass fn cudaGraphNodeGetEnabled(exec: Exec, node: Node, enabled: *mut c_uint) => cuGraphNodeGetEnabled;
    pass fn cudaGraphNodeSetEnabled(exec: Exec, node: Node, enabled: c_uint) => cuGraphNodeSetEnabled;

    pass fn cudart12_cudaGraphGetEdges(graph: Graph, from: *mut Node, to: *mut Node, count: *mut usize) => cuGraphGetEdges;
    pass fn cudart13_cudaGraphGetEdges(graph: Graph, from: *mut Node, to: *mut Node, data: *mut c_void, count: *mut usize) => cuGraphGetEdges2;
    pass fn cudaGraphGetEdges_v2(graph: Graph, from: *mut Node, to: *mut Node, data: *mut c_void, count: *mut usize) => cuGraphGetEdges2;
    pass fn cudart12_cudaGraphNodeGetDependencies(node: Node, dependencies: *mut Node, count: *mut usize) => cuGraphNodeGetDependencies;
    pass fn cudart13_cudaGraphNodeGetDependencies(node: Node, dependencies: *mut Node, data: *mut c_void, count: *mut usize) => cuGraphNodeGetDependencies2;
    pass fn cudaGraphNodeGetDependencies_v2(node: Node, dependencies: *mut Node, data: *mut c_void, count: *mut usize) => cuGraphNodeGetDependencies2;
    pass fn cudart12_cudaGraphNodeGetDependentNodes(node: Node, dependents: *mut Node, count: *mut usize) => cuGraphNodeGetDependentNodes;
    pass fn cudart13_cudaGraphNodeGetDependentNodes(node: Node, dependents: *mut Node, data: *mut c_void, count: *mut usize) => cuGraphNodeGetDependentNodes2;
    pass fn cudaGraphNodeGetDependentNodes_v2(node: Node, dependents: *mut Node, data: *mut c_void, count: *mut usize) => cuGraphNodeGetDependentNodes2;
    pass fn cudart12_cudaGraphAddDependencies(graph: Graph, from: *const Node, to: *const Node, count: usize) => cuGraphAddDependencies;
    pass fn cudart13_cudaGraphAddDependencies(graph: Graph, from: *const Node, to: *const Node, data: *const c_void, count: usize) => cuGraphAddDependencies2;
    pass fn cudaGraphAddDependencies_v2(graph: Graph, from: *const Node, to: *const Node, data: *const c_void, count: usize) => cuGraphAddDependencies2;
    pass fn cudart12_cudaGraphRemoveDependencies(graph: Graph, from: *const Node, to: *const Node, count: usize) => cuGraphRemoveDependencies;
    pass fn cudart13_cudaGraphRemoveDependencies(graph: Graph, from: *const Node, to: *const Node, data: *const c_void, count: usize) => cuGraphRemoveDependencies2;
    pass fn cudaGraphRemoveDependencies_v2(graph: Graph, from: *const Node, to: *const Node, data: *const c_void, count: usize) => cuGraphRemoveDependencies2;

    pass fn cudaGraphInstantiate(exec: *mut Exec, graph: Graph, flags: u64) => cuGraphInstantiate;
    pass fn cudaGraphInstantiateWithFlags(exec: *mut Exec, graph: Graph, flags: u64) => cuGraphInstantiate;
    // In place of flags, CUDA 11 has pointers for the node at fault and a log.
    fn cudart11_cudaGraphInstantiate(exec: *mut Exec, graph: Graph, node: *mut *mut c_void, _log: *mut c_void, _bytes: usize) {
        if !node.is_null() {
            node.write(null_mut());
        }
        current()?.cuGraphInstantiate(exec, graph, 0)
    }
    // CUDA 11 also has separate pointers for the node and the result.
    fn cudart11_cudaGraphExecUpdate(exec: Exec, graph: Graph, node: *mut *mut c_void, result: *mut c_uint) {
        let mut info = UpdateResult { result: 0, node: null_mut(), from: null_mut() };
        let updated = current()?.cuGraphExecUpdate(exec, graph, (&raw mut info).cast());
        if !node.is_null() {
            node.write(info.node);
        }
        if !result.is_null() {
            result.write(info.result);
        }
        updated
    }
    pass fn cudaGraphExecDestroy(exec: Exec) => cuGraphExecDestroy;
    pass fn cudaGraphExecGetFlags(exec: Exec, flags: *mut u64) => cuGraphExecGetFlags;
    pass fn cudaGraphExecUpdate(exec: Exec, graph: Graph, result: *mut c_void) => cuGraphExecUpdate;
    pass fn(stream) cudaGraphLaunch, cudaGraphLaunch_ptsz(exec: Exec, stream: cudaStream_t) => cuGraphLaunch;
    pass fn(stream) cudaGraphUpload, cudaGraphUpload_ptsz(exec: Exec, stream: cudaStream_t) => cuGraphUpload;

    fn(ds) cudaGraphInstantiateWithParams, cudaGraphInstantiateWithParams_ptsz(exec: *mut Exec, graph: Graph, parameters: *mut c_void) {
        let driver = current()?;
        // The stream for the upload is the second word: flags, stream, node, result.
        if ds == crate::stream::DefaultStream::PerThread && !parameters.is_null() {
            let stream = parameters.cast::<cudaStream_t>().add(1);
            let asked = stream.read();
            stream.write(ds.of(asked));
            let result = driver.cuGraphInstantiateWithParams(exec, graph, parameters);
            stream.write(asked);
            return result;
        }
        driver.cuGraphInstantiateWithParams(exec, graph, parameters)
    }

    fn cudaGraphConditionalHandleCreate(handle: *mut u64, graph: Graph, value: c_uint, flags: c_uint) {
        let (driver, context) = current_context()?;
        driver.cuGraphConditionalHandleCreate(handle, graph, context, value, flags)
    }

    fn cudaGraphConditionalHandleCreate_v2(handle: *mut u64, graph: Graph, context: cudaExecutionContext_t, value: c_uint, flags: c_uint) {
        let (driver, current) = current_context()?;
        let context = if context.is_null() { current } else { context };
        driver.cuGraphConditionalHandleCreate(handle, graph, context, value, flags)
    }

    pass fn cudaGraphAddEmptyNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize) => cuGraphAddEmptyNode;
    pass fn cudaGraphAddChildGraphNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, child: Graph) => cuGraphAddChildGraphNode;
    pass fn cudaGraphChildGraphNodeGetGraph(node: Node, graph: *mut Graph) => cuGraphChildGraphNodeGetGraph;
    pass fn cudaGraphExecChildGraphNodeSetParams(exec: Exec, node: Node, child: Graph) => cuGraphExecChildGraphNodeSetParams;

    fn cudaGraphAddKernelNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *const cudaKernelNodeParams) {
        let driver = current()?;
        driver.cuGraphAddKernelNode(node, graph, dependencies, count, &kernel_node(driver, parameters)?)
    }

    fn cudaGraphKernelNodeSetParams(node: Node, parameters: *const cudaKernelNodeParams) {
        let driver = current()?;
        driver.cuGraphKernelNodeSetParams(node, &kernel_node(driver, parameters)?)
    }

    fn cudaGraphExecKernelNodeSetParams(exec: Exec, node: Node, parameters: *const cudaKernelNodeParams) {
        let driver = current()?;
        driver.cuGraphExecKernelNodeSetParams(exec, node, &kernel_node(driver, parameters)?)
    }

    fn cudaGraphKernelNodeGetParams(node: Node, parameters: *mut cudaKernelNodeParams) {
        let driver = current()?;
        if parameters.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let mut native: CUDA_KERNEL_NODE_PARAMS = std::mem::zeroed();
        driver.cuGraphKernelNodeGetParams(node, &mut native)?;
        parameters.write(launch_from(driver, &native).0);
        Ok(())
    }

    // The two versions have the parameters in opposite order; the driver's destination comes first.
    fn cudart13_cudaGraphKernelNodeCopyAttributes(to: Node, from: Node) {
        current()?.cuGraphKernelNodeCopyAttributes(to, from)
    }

    fn cudart12_cudaGraphKernelNodeCopyAttributes(from: Node, to: Node) {
        current()?.cuGraphKernelNodeCopyAttributes(to, from)
    }

    pass fn cudaGraphKernelNodeGetAttribute(node: Node, attribute: c_uint, value: *mut c_void) => cuGraphKernelNodeGetAttribute;
    pass fn cudaGraphKernelNodeSetAttribute(node: Node, attribute: c_uint, value: *const c_void) => cuGraphKernelNodeSetAttribute;

    fn cudaGraphAddMemcpyNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *const cudaMemcpy3DParms) {
        let (driver, context, copy) = copy_node(parameters)?;
        driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, context)
    }

    fn cudaGraphMemcpyNodeSetParams(node: Node, parameters: *const cudaMemcpy3DParms) {
        let (driver, _, copy) = copy_node(parameters)?;
        driver.cuGraphMemcpyNodeSetParams(node, &copy)
    }

    fn cudaGraphExecMemcpyNodeSetParams(exec: Exec, node: Node, parameters: *const cudaMemcpy3DParms) {
        let (driver, context, copy) = copy_node(parameters)?;
        driver.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context)
    }

    fn cudaGraphAddMemcpyNode1D(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind) {
        let (driver, context, copy) = row(to, from, bytes, kind)?;
        driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, context)
    }

    fn cudaGraphMemcpyNodeSetParams1D(node: Node, to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind) {
        let (driver, _, copy) = row(to, from, bytes, kind)?;
        driver.cuGraphMemcpyNodeSetParams(node, &copy)
    }

    fn cudaGraphExecMemcpyNodeSetParams1D(exec: Exec, node: Node, to: *mut c_void, from: *const c_void, bytes: usize, kind: cudaMemcpyKind) {
        let (driver, context, copy) = row(to, from, bytes, kind)?;
        driver.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context)
    }

    fn cudaGraphAddMemcpyNodeToSymbol(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, variable: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let (driver, context, copy) = row(within_symbol(variable, bytes, offset, kind, TO_SYMBOL)?, from, bytes, kind)?;
        driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, context)
    }

    fn cudaGraphMemcpyNodeSetParamsToSymbol(node: Node, variable: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let (driver, _, copy) = row(within_symbol(variable, bytes, offset, kind, TO_SYMBOL)?, from, bytes, kind)?;
        driver.cuGraphMemcpyNodeSetParams(node, &copy)
    }

    fn cudaGraphExecMemcpyNodeSetParamsToSymbol(exec: Exec, node: Node, variable: *const c_void, from: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let (driver, context, copy) = row(within_symbol(variable, bytes, offset, kind, TO_SYMBOL)?, from, bytes, kind)?;
        driver.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context)
    }

    fn cudaGraphAddMemcpyNodeFromSymbol(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, to: *mut c_void, variable: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let (driver, context, copy) = row(to, within_symbol(variable, bytes, offset, kind, FROM_SYMBOL)?, bytes, kind)?;
        driver.cuGraphAddMemcpyNode(node, graph, dependencies, count, &copy, context)
    }

    fn cudaGraphMemcpyNodeSetParamsFromSymbol(node: Node, to: *mut c_void, variable: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let (driver, _, copy) = row(to, within_symbol(variable, bytes, offset, kind, FROM_SYMBOL)?, bytes, kind)?;
        driver.cuGraphMemcpyNodeSetParams(node, &copy)
    }

    fn cudaGraphExecMemcpyNodeSetParamsFromSymbol(exec: Exec, node: Node, to: *mut c_void, variable: *const c_void, bytes: usize, offset: usize, kind: cudaMemcpyKind) {
        let (driver, context, copy) = row(to, within_symbol(variable, bytes, offset, kind, FROM_SYMBOL)?, bytes, kind)?;
        driver.cuGraphExecMemcpyNodeSetParams(exec, node, &copy, context)
    }

    fn cudaGraphMemcpyNodeGetParams(node: Node, parameters: *mut cudaMemcpy3DParms) {
        let driver = current()?;
        if parameters.is_null() {
            return Err(error::INVALID_VALUE);
        }
        let mut copy: CUDA_MEMCPY3D = std::mem::zeroed();
        driver.cuGraphMemcpyNodeGetParams(node, &mut copy)?;
        parameters.write(crate::array::foreign(driver, &copy)?);
        Ok(())
    }

    fn cudaGraphAddMemsetNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *const cudaMemsetParams) {
        let (driver, context) = current_context()?;
        driver.cuGraphAddMemsetNode(node, graph, dependencies, count, parameters.cast(), context)
    }

    fn cudaGraphExecMemsetNodeSetParams(exec: Exec, node: Node, parameters: *const cudaMemsetParams) {
        let (driver, context) = current_context()?;
        driver.cuGraphExecMemsetNodeSetParams(exec, node, parameters.cast(), context)
    }

    fn cudaGraphMemsetNodeGetParams(node: Node, parameters: *mut cudaMemsetParams) {
        current()?.cuGraphMemsetNodeGetParams(node, parameters.cast())
    }
    fn cudaGraphMemsetNodeSetParams(node: Node, parameters: *const cudaMemsetParams) {
        current()?.cuGraphMemsetNodeSetParams(node, parameters.cast())
    }
    pass fn cudaGraphAddHostNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *const c_void) => cuGraphAddHostNode;
    pass fn cudaGraphHostNodeGetParams(node: Node, parameters: *mut c_void) => cuGraphHostNodeGetParams;
    pass fn cudaGraphHostNodeSetParams(node: Node, parameters: *const c_void) => cuGraphHostNodeSetParams;
    pass fn cudaGraphExecHostNodeSetParams(exec: Exec, node: Node, parameters: *const c_void) => cuGraphExecHostNodeSetParams;
    pass fn cudaGraphAddEventRecordNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, event: cudaEvent_t) => cuGraphAddEventRecordNode;
    pass fn cudaGraphEventRecordNodeGetEvent(node: Node, event: *mut cudaEvent_t) => cuGraphEventRecordNodeGetEvent;
    pass fn cudaGraphEventRecordNodeSetEvent(node: Node, event: cudaEvent_t) => cuGraphEventRecordNodeSetEvent;
    pass fn cudaGraphExecEventRecordNodeSetEvent(exec: Exec, node: Node, event: cudaEvent_t) => cuGraphExecEventRecordNodeSetEvent;
    pass fn cudaGraphAddEventWaitNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, event: cudaEvent_t) => cuGraphAddEventWaitNode;
    pass fn cudaGraphEventWaitNodeGetEvent(node: Node, event: *mut cudaEvent_t) => cuGraphEventWaitNodeGetEvent;
    pass fn cudaGraphEventWaitNodeSetEvent(node: Node, event: cudaEvent_t) => cuGraphEventWaitNodeSetEvent;
    pass fn cudaGraphExecEventWaitNodeSetEvent(exec: Exec, node: Node, event: cudaEvent_t) => cuGraphExecEventWaitNodeSetEvent;
    pass fn cudaGraphAddMemAllocNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *mut c_void) => cuGraphAddMemAllocNode;
    pass fn cudaGraphMemAllocNodeGetParams(node: Node, parameters: *mut c_void) => cuGraphMemAllocNodeGetParams;
    pass fn cudaGraphAddMemFreeNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, pointer: CUdeviceptr) => cuGraphAddMemFreeNode;
    pass fn cudaGraphMemFreeNodeGetParams(node: Node, pointer: *mut CUdeviceptr) => cuGraphMemFreeNodeGetParams;
    pass fn cudaUserObjectCreate(object: *mut *mut c_void, pointer: *mut c_void, destroy: CUhostFn, count: c_uint, flags: c_uint) => cuUserObjectCreate;
    pass fn cudaUserObjectRelease(object: *mut c_void, count: c_uint) => cuUserObjectRelease;
    pass fn cudaUserObjectRetain(object: *mut c_void, count: c_uint) => cuUserObjectRetain;
    pass fn cudaGraphRetainUserObject(graph: Graph, object: *mut c_void, count: c_uint, flags: c_uint) => cuGraphRetainUserObject;
    pass fn cudaGraphReleaseUserObject(graph: Graph, object: *mut c_void, count: c_uint) => cuGraphReleaseUserObject;

    pass fn cudaExternalMemoryGetMappedMipmappedArray(array: *mut *mut c_void, memory: *mut c_void, description: *const c_void) => cuExternalMemoryGetMappedMipmappedArray;
    pass fn cudaGraphAddExternalSemaphoresSignalNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *const c_void) => cuGraphAddExternalSemaphoresSignalNode;
    pass fn cudaGraphAddExternalSemaphoresWaitNode(node: *mut Node, graph: Graph, dependencies: *const Node, count: usize, parameters: *const c_void) => cuGraphAddExternalSemaphoresWaitNode;
    pass fn cudaGraphExternalSemaphoresSignalNodeGetParams(node: Node, parameters: *mut c_void) => cuGraphExternalSemaphoresSignalNodeGetParams;
    pass fn cudaGraphExternalSemaphoresSignalNodeSetParams(node: Node, parameters: *const c_void) => cuGraphExternalSemaphoresSignalNodeSetParams;
    pass fn cudaGraphExternalSemaphoresWaitNodeGetParams(node: Node, parameters: *mut c_void) => cuGraphExternalSemaphoresWaitNodeGetParams;
    pass fn cudaGraphExternalSemaphoresWaitNodeSetParams(node: Node, parameters: *const c_void) => cuGraphExternalSemaphoresWaitNodeSetParams;
    pass fn cudaGraphExecExternalSemaphoresSignalNodeSetParams(exec: Exec, node: Node, parameters: *const c_void) => cuGraphExecExternalSemaphoresSignalNodeSetParams;
    pass fn cudaGraphExecExternalSemaphoresWaitNodeSetParams(exec: Exec, node: Node, parameters: *const c_void) => cuGraphExecExternalSemaphoresWaitNodeSetParams;
    pass fn cudaDestroyExternalMemory(memory: *mut c_void) => cuDestroyExternalMemory;
    pass fn cudaDestroyExternalSemaphore(semaphore: *mut c_void) => cuDestroyExternalSemaphore;
    pass fn cudaExternalMemoryGetMappedBuffer(pointer: *mut CUdeviceptr, memory: *mut c_void, description: *const c_void) => cuExternalMemoryGetMappedBuffer;
    pass fn cudaImportExternalMemory(memory: *mut *mut c_void, description: *const c_void) => cuImportExternalMemory;
    pass fn cudaImportExternalSemaphore(semaphore: *mut *mut c_void, description: *const c_void) => cuImportExternalSemaphore;
}
