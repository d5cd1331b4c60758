// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Features that a virtual machine's device does not have: devices that write to GPUs' memory, and memory and
//! semaphores of other interfaces. These functions fail as NVIDIA's driver does without the feature: the codes are
//! those of driver 580 on an H100.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicUsize, Ordering},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Library, Object, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr, OutPtr, Text},
    client::{client, client_in_context},
    cuda,
    device::{attribute, device},
    ffi::Result,
    thread,
};

/// `CU_EXEC_AFFINITY_TYPE_SM_COUNT`, the only type.
const SM_COUNT: u32 = 0;
/// `CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED`.
const NATIVE_ATOMIC_SUPPORTED: u32 = 3;
/// The number of values of `CUatomicOperation`.
const ATOMIC_OPERATIONS: u32 = 13;
/// The scopes in which writes of other devices can be made visible.
const FLUSH_SCOPES: [u32; 2] = [100, 200];
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: u32 = 1;
/// `CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD`, and the same for semaphores.
const OPAQUE_FD: u32 = 1;

/// `CUexecAffinityParam`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ExecAffinity {
    type_: u32,
    count: u32,
}

/// The first fields of `CUDA_EXTERNAL_MEMORY_HANDLE_DESC`, which contain its type, and of the same structure for a
/// semaphore.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct External {
    type_: u32,
    handle: [u64; 2],
    bytes: u64,
}

/// Checks a semaphore or memory of another interface: none was ever imported.
fn external(handle: *mut c_void) -> Result {
    client()?;
    Err(if handle.is_null() {
        CUDA_ERROR_INVALID_VALUE
    } else {
        CUDA_ERROR_INVALID_HANDLE
    })
}

fn semaphores(array: InPtr<*mut c_void>, params: HostPtr, count: u32) -> Result {
    client()?;
    Err(if array.is_null() || params.is_null() || count == 0 {
        CUDA_ERROR_INVALID_VALUE
    } else {
        CUDA_ERROR_INVALID_HANDLE
    })
}

/// The driver's answer for atomic operations on the memory of a device that is shared only by the bus: none is
/// supported.
fn atomics(capabilities: OutPtr<u32>, operations: InPtr<u32>, count: u32) -> Result {
    capabilities.required()?;
    if count == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    for index in 0..count as usize {
        let operation = operations.at(index)?;
        capabilities.at(index).offer(0);
        if operation >= ATOMIC_OPERATIONS {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
    }
    Ok(())
}

/// The registered callbacks for a device's messages, by handle. There are no messages, because they concern budgets
/// that no virtual machine has.
static NOTIFIED: Mutex<Vec<(usize, CUdevice)>> = Mutex::new(Vec::new());

macro_rules! of_semaphores {
    ($($name:ident)*) => {cuda! {$(
        fn $name(extSemArray: InPtr<*mut c_void>, paramsArray: HostPtr, numExtSems: u32, _stream: CUstream) {
            semaphores(extSemArray, paramsArray, numExtSems)
        }
    )*}};
}

of_semaphores! {
    cuSignalExternalSemaphoresAsync
    cuSignalExternalSemaphoresAsync_ptsz
    cuWaitExternalSemaphoresAsync
    cuWaitExternalSemaphoresAsync_ptsz
}

/// Defines a function on a node of semaphores. No node is one.
macro_rules! of_nodes {
    ($($name:ident($($arg:ident: $ty:ty),*);)*) => {cuda! {$(
        fn $name($($arg: $ty),*) {
            client()?;
            Err(CUDA_ERROR_INVALID_VALUE)
        }
    )*}};
}

of_nodes! {
    cuGraphExternalSemaphoresSignalNodeGetParams(_hNode: CUgraphNode, _params_out: HostPtr);
    cuGraphExternalSemaphoresSignalNodeSetParams(_hNode: CUgraphNode, _nodeParams: HostPtr);
    cuGraphExternalSemaphoresWaitNodeGetParams(_hNode: CUgraphNode, _params_out: HostPtr);
    cuGraphExternalSemaphoresWaitNodeSetParams(_hNode: CUgraphNode, _nodeParams: HostPtr);
    cuGraphExecExternalSemaphoresSignalNodeSetParams(_hGraphExec: CUgraphExec, _hNode: CUgraphNode, _nodeParams: HostPtr);
    cuGraphExecExternalSemaphoresWaitNodeSetParams(_hGraphExec: CUgraphExec, _hNode: CUgraphNode, _nodeParams: HostPtr);
}

/// Fails to make a node of semaphores, because there are no semaphores.
fn semaphore_node(params: HostPtr) -> Result {
    client()?;
    Err(if params.is_null() {
        CUDA_ERROR_INVALID_VALUE
    } else {
        CUDA_ERROR_INVALID_HANDLE
    })
}

cuda! {
    fn cuGraphAddExternalSemaphoresSignalNode(_phGraphNode: OutPtr<CUgraphNode>, _hGraph: CUgraph, _dependencies: InPtr<CUgraphNode>, _numDependencies: usize, nodeParams: HostPtr) {
        semaphore_node(nodeParams)
    }

    fn cuGraphAddExternalSemaphoresWaitNode(_phGraphNode: OutPtr<CUgraphNode>, _hGraph: CUgraph, _dependencies: InPtr<CUgraphNode>, _numDependencies: usize, nodeParams: HostPtr) {
        semaphore_node(nodeParams)
    }

    /// `cuCtxGetExecAffinity`: a context has all multiprocessors.
    fn cuCtxGetExecAffinity(pExecAffinity: HostPtr, type_: u32) {
        client_in_context()?;
        let to: OutPtr<ExecAffinity> = OutPtr::nested(pExecAffinity.address() as *mut c_void);
        let old = to.required()?.read().ok_or(CUDA_ERROR_INVALID_VALUE)?;
        if type_ != SM_COUNT {
            to.offer(ExecAffinity { type_, ..old });
            return Err(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
        }
        let of = client()?.objects.context_device(thread::current_context()).ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        let count = attribute(device(of)?, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32;
        to.set(ExecAffinity { type_, count })
    }

    /// `cuDeviceGetExecAffinitySupport`. Only MPS supports it.
    fn cuDeviceGetExecAffinitySupport(pi: OutPtr<i32>, _type: u32, dev: CUdevice) {
        pi.required()?;
        device(dev)?;
        pi.set(0)
    }

    fn cuDeviceGetHostAtomicCapabilities(capabilities: OutPtr<u32>, operations: InPtr<u32>, count: u32, dev: CUdevice) {
        device(dev)?;
        atomics(capabilities, operations, count)
    }

    /// `cuDeviceGetP2PAtomicCapabilities`: two devices support all operations if the host reports that they support
    /// any.
    fn cuDeviceGetP2PAtomicCapabilities(capabilities: OutPtr<u32>, operations: InPtr<u32>, count: u32, srcDevice: CUdevice, dstDevice: CUdevice) {
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        device(srcDevice)?;
        device(dstDevice)?;
        if srcDevice == dstDevice {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        let attribute = NATIVE_ATOMIC_SUPPORTED;
        let request = request::cuDeviceGetP2PAttribute { value: true, attrib: attribute, srcDevice, dstDevice };
        if client()?.call(&request)?.value != 0 {
            // The supported operations depend on the link, and only a host driver of CUDA 13 reports them.
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        atomics(capabilities, operations, count)
    }

    /// `cuFlushGPUDirectRDMAWrites`: no device of the machine writes to the GPU's memory.
    fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) {
        client_in_context()?;
        if target != 0 || !FLUSH_SCOPES.contains(&scope) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(())
    }

    fn cuDeviceRegisterAsyncNotification(device: CUdevice, callbackFunc: HostPtr, _userData: HostPtr, callback: OutPtr<*mut c_void>) {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        crate::device::device(device)?;
        callback.required()?;
        if callbackFunc.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let handle = NEXT.fetch_add(1, Ordering::Relaxed);
        NOTIFIED.lock().push((handle, device));
        callback.set(handle as *mut c_void)
    }

    fn cuDeviceUnregisterAsyncNotification(device: CUdevice, callback: HostPtr) {
        crate::device::device(device)?;
        let mut notified = NOTIFIED.lock();
        let at = notified.iter().position(|of| *of == (callback.address() as usize, device));
        notified.swap_remove(at.ok_or(CUDA_ERROR_INVALID_VALUE)?);
        Ok(())
    }

    /// `cuMemGetHandleForAddressRange`: a device's memory has no dma-bufs, as the device's attribute reports.
    fn cuMemGetHandleForAddressRange(handle: HostPtr, dptr: CUdeviceptr, size: usize, handleType: u32, flags: u64) {
        let client = client()?;
        if handle.is_null() || handleType != DMA_BUF_FD || flags > 1 || size == 0 || client.pointers.find_whole(dptr, size).is_none() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    fn cuDeviceGetNvSciSyncAttributes(nvSciSyncAttrList: HostPtr, dev: CUdevice, _flags: i32) {
        client()?;
        if nvSciSyncAttrList.is_null() {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        device(dev)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// `cuImportExternalMemory`: no descriptor of the machine refers to the GPU's memory.
    fn cuImportExternalMemory(extMem_out: OutPtr<*mut c_void>, memHandleDesc: HostPtr) {
        client()?;
        extMem_out.required()?;
        let from: InPtr<External> = InPtr::nested(memHandleDesc.address() as *const c_void);
        let External { type_, bytes, .. } = from.get()?;
        Err(match type_ {
            _ if bytes == 0 => CUDA_ERROR_INVALID_VALUE,
            OPAQUE_FD => CUDA_ERROR_UNKNOWN,
            // Those of Windows, and of NvSciBuf.
            2..=4 | 8 => CUDA_ERROR_NOT_SUPPORTED,
            _ => CUDA_ERROR_INVALID_VALUE,
        })
    }

    /// `cuImportExternalSemaphore`: as [`cuImportExternalMemory`].
    fn cuImportExternalSemaphore(extSem_out: OutPtr<*mut c_void>, semHandleDesc: HostPtr) {
        client()?;
        extSem_out.required()?;
        let from: InPtr<u32> = InPtr::nested(semHandleDesc.address() as *const c_void);
        // After the type and the two 64-bit words of a handle. There are no flags.
        let flags = from.at(6)?;
        Err(match from.get()? {
            _ if flags != 0 => CUDA_ERROR_INVALID_VALUE,
            OPAQUE_FD => CUDA_ERROR_UNKNOWN,
            // Those of Windows, NvSciSync, and Direct3D.
            2..=8 | 10 => CUDA_ERROR_NOT_SUPPORTED,
            _ => CUDA_ERROR_INVALID_VALUE,
        })
    }

    fn cuDestroyExternalMemory(extMem: *mut c_void) {
        external(extMem)
    }

    fn cuDestroyExternalSemaphore(extSem: *mut c_void) {
        external(extSem)
    }

    fn cuExternalMemoryGetMappedBuffer(_devPtr: OutPtr<CUdeviceptr>, extMem: *mut c_void, _bufferDesc: HostPtr) {
        external(extMem)
    }

    fn cuExternalMemoryGetMappedMipmappedArray(_mipmap: OutPtr<*mut c_void>, extMem: *mut c_void, _mipmapDesc: HostPtr) {
        external(extMem)
    }

    /// `cuLibraryGetUnifiedFunction`: functions have no address that the host shares, as the device's attribute
    /// reports.
    fn cuLibraryGetUnifiedFunction(fptr: OutPtr<*mut c_void>, library: CUlibrary, symbol: Text) {
        client()?.objects.library(Library::id(library))?;
        let _ = (fptr, symbol);
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}
