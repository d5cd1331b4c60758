//! The driver API: `libcuda.so.1`, opened when the program first needs it, and a table of the
//! public functions that the runtime is written on.

use crate::abi::{CUDA_ARRAY3D_DESCRIPTOR, CUDA_KERNEL_NODE_PARAMS, *};
use crate::error::{self, Result};
use gpgpu_protocol::cuda::*;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Turns a driver result into a runtime error: since CUDA 10.1 they are the same numbers.
fn check(result: CUresult) -> Result<()> {
    if result == CUDA_SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}

/// Declares [`Driver`]: each entry is a function, the symbol it is found by where that differs,
/// and its parameters.
macro_rules! driver_table {
    ($($name:ident $(= $symbol:literal)? ($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The functions of the driver that was found; those that it lacks are `None`.
        pub struct Driver {
            $($name: Option<unsafe extern "C" fn($($ty),*) -> CUresult>,)*
        }

        impl Driver {
            /// Finds each function by its versioned public name.
            fn load(find: &dyn Fn(&CStr) -> *mut c_void) -> Self {
                Self {
                    $($name: {
                        let address = find(symbol!($name $($symbol)?));
                        // SAFETY: the driver's function of this name has this type, and a null
                        // address is `None`.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                Option<unsafe extern "C" fn($($ty),*) -> CUresult>,
                            >(address)
                        }
                    },)*
                }
            }

            $(
                /// Calls the driver; a driver without this function is `cudaErrorNotSupported`.
                ///
                /// # Safety
                /// The arguments are what the driver API asks for.
                #[allow(clippy::too_many_arguments, dead_code)]
                pub unsafe fn $name(&self, $($arg: $ty),*) -> Result<()> {
                    match self.$name {
                        // SAFETY: promised by the caller.
                        Some(function) => check(unsafe { function($($arg),*) }),
                        None => {
                            static NAMED: crate::log::Once = crate::log::Once::new();
                            NAMED.unsupported(concat!("the driver's ", stringify!($name)));
                            Err(error::NOT_SUPPORTED)
                        }
                    }
                }
            )*
        }
    };
}

/// A function's symbol as a C string.
macro_rules! symbol {
    ($name:ident) => {
        symbol!(@ concat!(stringify!($name), "\0"))
    };
    ($name:ident $symbol:literal) => {
        symbol!(@ concat!($symbol, "\0"))
    };
    (@ $text:expr) => {
        match CStr::from_bytes_with_nul($text.as_bytes()) {
            Ok(symbol) => symbol,
            Err(_) => c"",
        }
    };
}

driver_table! {
    cuInit(flags: c_uint);
    cuDriverGetVersion(version: *mut c_int);
    cuGetErrorString(code: CUresult, text: *mut *const c_char);
    cuGetProcAddress = "cuGetProcAddress_v2"(symbol: *const c_char, function: *mut *mut c_void, version: c_int, flags: u64, status: *mut c_uint);

    cuDeviceGet(device: *mut CUdevice, ordinal: c_int);
    cuDeviceGetCount(count: *mut c_int);
    cuDeviceGetName(name: *mut c_char, length: c_int, device: CUdevice);
    cuDeviceGetUuid = "cuDeviceGetUuid_v2"(uuid: *mut CUuuid, device: CUdevice);
    cuDeviceGetLuid(luid: *mut c_char, mask: *mut c_uint, device: CUdevice);
    cuDeviceTotalMem = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: CUdevice);
    cuDeviceGetAttribute(value: *mut c_int, attribute: CUdevice_attribute, device: CUdevice);
    cuDeviceGetByPCIBusId(device: *mut CUdevice, id: *const c_char);
    cuDeviceGetPCIBusId(id: *mut c_char, length: c_int, device: CUdevice);
    cuDeviceCanAccessPeer(can: *mut c_int, device: CUdevice, peer: CUdevice);
    cuDeviceGetP2PAttribute(value: *mut c_int, attribute: c_uint, source: CUdevice, destination: CUdevice);
    cuDeviceGetP2PAtomicCapabilities(capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, source: CUdevice, destination: CUdevice);
    cuDeviceGetHostAtomicCapabilities(capabilities: *mut c_uint, operations: *const c_uint, count: c_uint, device: CUdevice);
    cuDeviceGetTexture1DLinearMaxWidth(width: *mut usize, format: CUarray_format, channels: c_uint, device: CUdevice);
    cuDeviceGetDefaultMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceGetMemPool(pool: *mut CUmemoryPool, device: CUdevice);
    cuDeviceSetMemPool(device: CUdevice, pool: CUmemoryPool);
    cuDeviceGraphMemTrim(device: CUdevice);
    cuDeviceGetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void);
    cuDeviceSetGraphMemAttribute(device: CUdevice, attribute: c_uint, value: *mut c_void);
    cuDeviceRegisterAsyncNotification(device: CUdevice, callback: *mut c_void, data: *mut c_void, handle: *mut *mut c_void);
    cuDeviceUnregisterAsyncNotification(device: CUdevice, handle: *mut c_void);
    cuDeviceGetNvSciSyncAttributes(list: *mut c_void, device: CUdevice, flags: c_int);
    cuFlushGPUDirectRDMAWrites(target: c_uint, scope: c_uint);
    cuDevicePrimaryCtxRetain(context: *mut CUcontext, device: CUdevice);
    cuDevicePrimaryCtxReset = "cuDevicePrimaryCtxReset_v2"(device: CUdevice);
    cuDevicePrimaryCtxSetFlags = "cuDevicePrimaryCtxSetFlags_v2"(device: CUdevice, flags: c_uint);
    cuDevicePrimaryCtxGetState(device: CUdevice, flags: *mut c_uint, active: *mut c_int);

    cuCtxGetCurrent(context: *mut CUcontext);
    cuCtxSetCurrent(context: CUcontext);
    cuCtxGetDevice(device: *mut CUdevice);
    cuCtxGetFlags(flags: *mut c_uint);
    cuCtxSynchronize();
    cuCtxGetLimit(value: *mut usize, limit: c_uint);
    cuCtxSetLimit(limit: c_uint, value: usize);
    cuCtxGetCacheConfig(config: *mut c_uint);
    cuCtxSetCacheConfig(config: c_uint);
    cuCtxGetSharedMemConfig(config: *mut c_uint);
    cuCtxSetSharedMemConfig(config: c_uint);
    cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int);
    cuCtxResetPersistingL2Cache();
    cuCtxEnablePeerAccess(peer: CUcontext, flags: c_uint);
    cuCtxDisablePeerAccess(peer: CUcontext);

    cuMemAlloc = "cuMemAlloc_v2"(pointer: *mut CUdeviceptr, bytes: usize);
    cuMemAllocPitch = "cuMemAllocPitch_v2"(pointer: *mut CUdeviceptr, pitch: *mut usize, width: usize, height: usize, element: c_uint);
    cuMemAllocManaged(pointer: *mut CUdeviceptr, bytes: usize, flags: c_uint);
    cuMemFree = "cuMemFree_v2"(pointer: CUdeviceptr);
    cuMemGetInfo = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: c_uint);
    cuMemFreeHost(pointer: *mut c_void);
    cuMemHostRegister = "cuMemHostRegister_v2"(pointer: *mut c_void, bytes: usize, flags: c_uint);
    cuMemHostUnregister(pointer: *mut c_void);
    cuMemHostGetDevicePointer = "cuMemHostGetDevicePointer_v2"(device: *mut CUdeviceptr, host: *mut c_void, flags: c_uint);
    cuMemHostGetFlags(flags: *mut c_uint, pointer: *mut c_void);
    cuPointerGetAttributes(count: c_uint, attributes: *mut CUpointer_attribute, data: *mut *mut c_void, pointer: CUdeviceptr);
    cuMemAdvise = "cuMemAdvise_v2"(pointer: CUdeviceptr, bytes: usize, advice: c_uint, location: cudaMemLocation);
    cuMemPrefetchAsync = "cuMemPrefetchAsync_v2"(pointer: CUdeviceptr, bytes: usize, location: cudaMemLocation, flags: c_uint, stream: CUstream);
    cuMemPrefetchBatchAsync(pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut cudaMemLocation, indices: *mut usize, number: usize, flags: u64, stream: CUstream);
    cuMemDiscardBatchAsync(pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, flags: u64, stream: CUstream);
    cuMemDiscardAndPrefetchBatchAsync(pointers: *mut CUdeviceptr, sizes: *mut usize, count: usize, locations: *mut cudaMemLocation, indices: *mut usize, number: usize, flags: u64, stream: CUstream);
    cuMemRangeGetAttribute(data: *mut c_void, size: usize, attribute: c_uint, pointer: CUdeviceptr, bytes: usize);
    cuMemRangeGetAttributes(data: *mut *mut c_void, sizes: *mut usize, attributes: *mut c_uint, count: usize, pointer: CUdeviceptr, bytes: usize);
    cuStreamAttachMemAsync(stream: CUstream, pointer: CUdeviceptr, bytes: usize, flags: c_uint);
    cuIpcGetMemHandle(handle: *mut c_void, pointer: CUdeviceptr);
    cuIpcOpenMemHandle = "cuIpcOpenMemHandle_v2"(pointer: *mut CUdeviceptr, handle: IpcHandle, flags: c_uint);
    cuIpcCloseMemHandle(pointer: CUdeviceptr);
    cuIpcGetEventHandle(handle: *mut c_void, event: CUevent);
    cuIpcOpenEventHandle(event: *mut CUevent, handle: IpcHandle);

    cuMemAllocAsync(pointer: *mut CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemFreeAsync(pointer: CUdeviceptr, stream: CUstream);
    cuMemAllocFromPoolAsync(pointer: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream);
    cuMemPoolCreate(pool: *mut CUmemoryPool, properties: *const c_void);
    cuMemPoolDestroy(pool: CUmemoryPool);
    cuMemPoolTrimTo(pool: CUmemoryPool, keep: usize);
    cuMemPoolGetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolSetAttribute(pool: CUmemoryPool, attribute: c_uint, value: *mut c_void);
    cuMemPoolGetAccess(flags: *mut c_uint, pool: CUmemoryPool, location: *mut cudaMemLocation);
    cuMemPoolSetAccess(pool: CUmemoryPool, descriptions: *const c_void, count: usize);
    cuMemPoolExportToShareableHandle(handle: *mut c_void, pool: CUmemoryPool, kind: c_uint, flags: u64);
    cuMemPoolImportFromShareableHandle(pool: *mut CUmemoryPool, handle: *mut c_void, kind: c_uint, flags: u64);
    cuMemPoolExportPointer(data: *mut c_void, pointer: CUdeviceptr);
    cuMemPoolImportPointer(pointer: *mut CUdeviceptr, pool: CUmemoryPool, data: *mut c_void);
    cuMemGetDefaultMemPool(pool: *mut CUmemoryPool, location: *mut cudaMemLocation, kind: c_uint);
    cuMemGetMemPool(pool: *mut CUmemoryPool, location: *mut cudaMemLocation, kind: c_uint);
    cuMemSetMemPool(location: *mut cudaMemLocation, kind: c_uint, pool: CUmemoryPool);

    cuMemcpy(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize);
    cuMemcpyAsync(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyHtoD = "cuMemcpyHtoD_v2"(destination: CUdeviceptr, source: *const c_void, bytes: usize);
    cuMemcpyDtoH = "cuMemcpyDtoH_v2"(destination: *mut c_void, source: CUdeviceptr, bytes: usize);
    cuMemcpyDtoD = "cuMemcpyDtoD_v2"(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize);
    cuMemcpyHtoDAsync = "cuMemcpyHtoDAsync_v2"(destination: CUdeviceptr, source: *const c_void, bytes: usize, stream: CUstream);
    cuMemcpyDtoHAsync = "cuMemcpyDtoHAsync_v2"(destination: *mut c_void, source: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyDtoDAsync = "cuMemcpyDtoDAsync_v2"(destination: CUdeviceptr, source: CUdeviceptr, bytes: usize, stream: CUstream);
    cuMemcpyPeer(destination: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, bytes: usize);
    cuMemcpyPeerAsync(destination: CUdeviceptr, to: CUcontext, source: CUdeviceptr, from: CUcontext, bytes: usize, stream: CUstream);
    cuMemcpy2DUnaligned = "cuMemcpy2DUnaligned_v2"(copy: *const CUDA_MEMCPY2D);
    cuMemcpy2DAsync = "cuMemcpy2DAsync_v2"(copy: *const CUDA_MEMCPY2D, stream: CUstream);
    cuMemcpy3D = "cuMemcpy3D_v2"(copy: *const CUDA_MEMCPY3D);
    cuMemcpy3DAsync = "cuMemcpy3DAsync_v2"(copy: *const CUDA_MEMCPY3D, stream: CUstream);
    cuMemcpy3DPeer(copy: *const CUDA_MEMCPY3D);
    cuMemcpy3DPeerAsync(copy: *const CUDA_MEMCPY3D, stream: CUstream);
    cuMemcpyBatchAsync12 = "cuMemcpyBatchAsync"(destinations: *mut CUdeviceptr, sources: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void, indices: *mut usize, number: usize, failed: *mut usize, stream: CUstream);
    cuMemcpyBatchAsync13 = "cuMemcpyBatchAsync_v2"(destinations: *mut CUdeviceptr, sources: *mut CUdeviceptr, sizes: *mut usize, count: usize, attributes: *mut c_void, indices: *mut usize, number: usize, stream: CUstream);
    cuMemsetD8 = "cuMemsetD8_v2"(pointer: CUdeviceptr, value: u8, count: usize);
    cuMemsetD8Async(pointer: CUdeviceptr, value: u8, count: usize, stream: CUstream);
    cuMemsetD2D8 = "cuMemsetD2D8_v2"(pointer: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize);
    cuMemsetD2D8Async(pointer: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: CUstream);

    cuStreamCreate(stream: *mut CUstream, flags: c_uint);
    cuStreamCreateWithPriority(stream: *mut CUstream, flags: c_uint, priority: c_int);
    cuStreamDestroy = "cuStreamDestroy_v2"(stream: CUstream);
    cuStreamQuery(stream: CUstream);
    cuStreamSynchronize(stream: CUstream);
    cuStreamWaitEvent(stream: CUstream, event: CUevent, flags: c_uint);
    cuStreamAddCallback(stream: CUstream, callback: *mut c_void, data: *mut c_void, flags: c_uint);
    cuLaunchHostFunc(stream: CUstream, function: *mut c_void, data: *mut c_void);
    cuStreamGetFlags(stream: CUstream, flags: *mut c_uint);
    cuStreamGetPriority(stream: CUstream, priority: *mut c_int);
    cuStreamGetId(stream: CUstream, id: *mut u64);
    cuStreamGetDevice(stream: CUstream, device: *mut CUdevice);
    cuStreamGetAttribute(stream: CUstream, attribute: c_uint, value: *mut c_void);
    cuStreamSetAttribute(stream: CUstream, attribute: c_uint, value: *const c_void);
    cuStreamCopyAttributes(destination: CUstream, source: CUstream);
    cuStreamBeginCapture = "cuStreamBeginCapture_v2"(stream: CUstream, mode: c_uint);
    cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const CUgraphNode, data: *const c_void, count: usize, mode: c_uint);
    cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph);
    cuStreamIsCapturing(stream: CUstream, status: *mut c_uint);
    cuStreamGetCaptureInfo2 = "cuStreamGetCaptureInfo_v2"(stream: CUstream, status: *mut c_uint, id: *mut u64, graph: *mut CUgraph, dependencies: *mut *const CUgraphNode, count: *mut usize);
    cuStreamGetCaptureInfo3 = "cuStreamGetCaptureInfo_v3"(stream: CUstream, status: *mut c_uint, id: *mut u64, graph: *mut CUgraph, dependencies: *mut *const CUgraphNode, edges: *mut *const c_void, count: *mut usize);
    cuStreamUpdateCaptureDependencies(stream: CUstream, dependencies: *mut CUgraphNode, count: usize, flags: c_uint);
    cuStreamUpdateCaptureDependencies2 = "cuStreamUpdateCaptureDependencies_v2"(stream: CUstream, dependencies: *mut CUgraphNode, data: *const c_void, count: usize, flags: c_uint);
    cuThreadExchangeStreamCaptureMode(mode: *mut c_uint);

    cuEventCreate(event: *mut CUevent, flags: c_uint);
    cuEventRecord(event: CUevent, stream: CUstream);
    cuEventRecordWithFlags(event: CUevent, stream: CUstream, flags: c_uint);
    cuEventQuery(event: CUevent);
    cuEventSynchronize(event: CUevent);
    cuEventDestroy = "cuEventDestroy_v2"(event: CUevent);
    cuEventElapsedTime(milliseconds: *mut f32, start: CUevent, end: CUevent);

    cuLaunchKernel(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchKernelEx(config: *const CUlaunchConfig, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void);
    cuLaunchCooperativeKernel(function: CUfunction, gx: c_uint, gy: c_uint, gz: c_uint, bx: c_uint, by: c_uint, bz: c_uint, shared: c_uint, stream: CUstream, parameters: *mut *mut c_void);
    cuFuncGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, function: CUfunction);
    cuFuncSetAttribute(function: CUfunction, attribute: CUfunction_attribute, value: c_int);
    cuFuncSetCacheConfig(function: CUfunction, config: c_uint);
    cuFuncSetSharedMemConfig(function: CUfunction, config: c_uint);
    cuFuncGetName(name: *mut *const c_char, function: CUfunction);
    cuFuncGetParamInfo(function: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks: *mut c_int, function: CUfunction, block: c_int, shared: usize, flags: c_uint);
    cuOccupancyAvailableDynamicSMemPerBlock(shared: *mut usize, function: CUfunction, blocks: c_int, block: c_int);
    cuOccupancyMaxPotentialClusterSize(size: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
    cuOccupancyMaxActiveClusters(count: *mut c_int, function: CUfunction, config: *const CUlaunchConfig);
    cuKernelGetFunction(function: *mut CUfunction, kernel: CUkernel);
    cuKernelGetAttribute(value: *mut c_int, attribute: CUfunction_attribute, kernel: CUkernel, device: CUdevice);
    cuKernelSetAttribute(attribute: CUfunction_attribute, value: c_int, kernel: CUkernel, device: CUdevice);
    cuKernelSetCacheConfig(kernel: CUkernel, config: c_uint, device: CUdevice);
    cuKernelGetName(name: *mut *const c_char, kernel: CUkernel);
    cuKernelGetParamInfo(kernel: CUkernel, index: usize, offset: *mut usize, size: *mut usize);

    cuLibraryLoadData(library: *mut CUlibrary, code: *const c_void, options: *mut c_uint, values: *mut *mut c_void, count: c_uint, library_options: *mut c_uint, library_values: *mut *mut c_void, library_count: c_uint);
    cuLibraryLoadFromFile(library: *mut CUlibrary, file: *const c_char, options: *mut c_uint, values: *mut *mut c_void, count: c_uint, library_options: *mut c_uint, library_values: *mut *mut c_void, library_count: c_uint);
    cuLibraryUnload(library: CUlibrary);
    cuLibraryGetKernel(kernel: *mut CUkernel, library: CUlibrary, name: *const c_char);
    cuLibraryGetKernelCount(count: *mut c_uint, library: CUlibrary);
    cuLibraryEnumerateKernels(kernels: *mut CUkernel, count: c_uint, library: CUlibrary);
    cuLibraryGetGlobal(pointer: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    cuLibraryGetManaged(pointer: *mut CUdeviceptr, bytes: *mut usize, library: CUlibrary, name: *const c_char);
    cuLibraryGetUnifiedFunction(function: *mut *mut c_void, library: CUlibrary, name: *const c_char);

    cuArrayCreate3D = "cuArray3DCreate_v2"(array: *mut CUarray, description: *const CUDA_ARRAY3D_DESCRIPTOR);
    cuArrayDestroy(array: CUarray);
    cuArray3DGetDescriptor = "cuArray3DGetDescriptor_v2"(description: *mut CUDA_ARRAY3D_DESCRIPTOR, array: CUarray);
    cuArrayGetPlane(plane: *mut CUarray, array: CUarray, index: c_uint);
    cuArrayGetMemoryRequirements(requirements: *mut c_void, array: CUarray, device: CUdevice);
    cuArrayGetSparseProperties(properties: *mut c_void, array: CUarray);
    cuMipmappedArrayCreate(array: *mut *mut c_void, description: *const CUDA_ARRAY3D_DESCRIPTOR, levels: c_uint);
    cuMipmappedArrayDestroy(array: *mut c_void);
    cuMipmappedArrayGetLevel(level: *mut CUarray, array: *mut c_void, index: c_uint);
    cuMipmappedArrayGetMemoryRequirements(requirements: *mut c_void, array: *mut c_void, device: CUdevice);
    cuMipmappedArrayGetSparseProperties(properties: *mut c_void, array: *mut c_void);

    cuProfilerStart();
    cuProfilerStop();
    cuLogsRegisterCallback(callback: *mut c_void, data: *mut c_void, handle: *mut *mut c_void);
    cuLogsUnregisterCallback(handle: *mut c_void);
    cuLogsCurrent(iterator: *mut c_uint, flags: c_uint);
    cuLogsDumpToFile(iterator: *mut c_uint, path: *const c_char, flags: c_uint);
    cuLogsDumpToMemory(iterator: *mut c_uint, buffer: *mut c_char, size: *mut usize, flags: c_uint);
    cuDestroyExternalMemory(memory: *mut c_void);
    cuDestroyExternalSemaphore(semaphore: *mut c_void);
    cuImportExternalMemory(memory: *mut *mut c_void, description: *const c_void);
    cuImportExternalSemaphore(semaphore: *mut *mut c_void, description: *const c_void);
    cuExternalMemoryGetMappedBuffer(pointer: *mut CUdeviceptr, memory: *mut c_void, description: *const c_void);

    cuGraphCreate(graph: *mut CUgraph, flags: c_uint);
    cuGraphDestroy(graph: CUgraph);
    cuGraphClone(clone: *mut CUgraph, original: CUgraph);
    cuGraphDebugDotPrint(graph: CUgraph, path: *const c_char, flags: c_uint);
    cuGraphDestroyNode(node: CUgraphNode);
    cuGraphNodeGetType(node: CUgraphNode, kind: *mut c_uint);
    cuGraphNodeFindInClone(node: *mut CUgraphNode, original: CUgraphNode, clone: CUgraph);
    cuGraphGetNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetRootNodes(graph: CUgraph, nodes: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, count: *mut usize);
    cuGraphGetEdges2 = "cuGraphGetEdges_v2"(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut c_void, count: *mut usize);
    cuGraphNodeGetDependencies(node: CUgraphNode, dependencies: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetDependencies2 = "cuGraphNodeGetDependencies_v2"(node: CUgraphNode, dependencies: *mut CUgraphNode, data: *mut c_void, count: *mut usize);
    cuGraphNodeGetDependentNodes(node: CUgraphNode, dependents: *mut CUgraphNode, count: *mut usize);
    cuGraphNodeGetDependentNodes2 = "cuGraphNodeGetDependentNodes_v2"(node: CUgraphNode, dependents: *mut CUgraphNode, data: *mut c_void, count: *mut usize);
    cuGraphAddDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
    cuGraphAddDependencies2 = "cuGraphAddDependencies_v2"(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, data: *const c_void, count: usize);
    cuGraphRemoveDependencies(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, count: usize);
    cuGraphRemoveDependencies2 = "cuGraphRemoveDependencies_v2"(graph: CUgraph, from: *const CUgraphNode, to: *const CUgraphNode, data: *const c_void, count: usize);
    cuGraphInstantiate = "cuGraphInstantiateWithFlags"(exec: *mut CUgraphExec, graph: CUgraph, flags: u64);
    cuGraphInstantiateWithParams(exec: *mut CUgraphExec, graph: CUgraph, parameters: *mut c_void);
    cuGraphExecDestroy(exec: CUgraphExec);
    cuGraphExecGetFlags(exec: CUgraphExec, flags: *mut u64);
    cuGraphExecUpdate = "cuGraphExecUpdate_v2"(exec: CUgraphExec, graph: CUgraph, result: *mut c_void);
    cuGraphLaunch(exec: CUgraphExec, stream: CUstream);
    cuGraphUpload(exec: CUgraphExec, stream: CUstream);
    cuGraphConditionalHandleCreate(handle: *mut u64, graph: CUgraph, context: CUcontext, value: c_uint, flags: c_uint);
    cuGraphAddEmptyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize);
    cuGraphAddChildGraphNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, child: CUgraph);
    cuGraphChildGraphNodeGetGraph(node: CUgraphNode, graph: *mut CUgraph);
    cuGraphExecChildGraphNodeSetParams(exec: CUgraphExec, node: CUgraphNode, child: CUgraph);
    cuGraphAddKernelNode = "cuGraphAddKernelNode_v2"(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeGetParams = "cuGraphKernelNodeGetParams_v2"(node: CUgraphNode, parameters: *mut CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeSetParams = "cuGraphKernelNodeSetParams_v2"(node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphExecKernelNodeSetParams = "cuGraphExecKernelNodeSetParams_v2"(exec: CUgraphExec, node: CUgraphNode, parameters: *const CUDA_KERNEL_NODE_PARAMS);
    cuGraphKernelNodeCopyAttributes(destination: CUgraphNode, source: CUgraphNode);
    cuGraphKernelNodeGetAttribute(node: CUgraphNode, attribute: c_uint, value: *mut c_void);
    cuGraphKernelNodeSetAttribute(node: CUgraphNode, attribute: c_uint, value: *const c_void);
    cuGraphAddMemcpyNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, copy: *const CUDA_MEMCPY3D, context: CUcontext);
    cuGraphMemcpyNodeGetParams(node: CUgraphNode, copy: *mut CUDA_MEMCPY3D);
    cuGraphMemcpyNodeSetParams(node: CUgraphNode, copy: *const CUDA_MEMCPY3D);
    cuGraphExecMemcpyNodeSetParams(exec: CUgraphExec, node: CUgraphNode, copy: *const CUDA_MEMCPY3D, context: CUcontext);
    cuGraphAddMemsetNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const cudaMemsetParams, context: CUcontext);
    cuGraphMemsetNodeGetParams(node: CUgraphNode, parameters: *mut cudaMemsetParams);
    cuGraphMemsetNodeSetParams(node: CUgraphNode, parameters: *const cudaMemsetParams);
    cuGraphExecMemsetNodeSetParams(exec: CUgraphExec, node: CUgraphNode, parameters: *const cudaMemsetParams, context: CUcontext);
    cuGraphAddHostNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *const c_void);
    cuGraphHostNodeGetParams(node: CUgraphNode, parameters: *mut c_void);
    cuGraphHostNodeSetParams(node: CUgraphNode, parameters: *const c_void);
    cuGraphExecHostNodeSetParams(exec: CUgraphExec, node: CUgraphNode, parameters: *const c_void);
    cuGraphAddEventRecordNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
    cuGraphEventRecordNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    cuGraphEventRecordNodeSetEvent(node: CUgraphNode, event: CUevent);
    cuGraphExecEventRecordNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphAddEventWaitNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, event: CUevent);
    cuGraphEventWaitNodeGetEvent(node: CUgraphNode, event: *mut CUevent);
    cuGraphEventWaitNodeSetEvent(node: CUgraphNode, event: CUevent);
    cuGraphExecEventWaitNodeSetEvent(exec: CUgraphExec, node: CUgraphNode, event: CUevent);
    cuGraphAddMemAllocNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, parameters: *mut c_void);
    cuGraphMemAllocNodeGetParams(node: CUgraphNode, parameters: *mut c_void);
    cuGraphAddMemFreeNode(node: *mut CUgraphNode, graph: CUgraph, dependencies: *const CUgraphNode, count: usize, pointer: CUdeviceptr);
    cuGraphMemFreeNodeGetParams(node: CUgraphNode, pointer: *mut c_void);
    cuGraphNodeGetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: *mut c_uint);
    cuGraphNodeSetEnabled(exec: CUgraphExec, node: CUgraphNode, enabled: c_uint);
    cuUserObjectCreate(object: *mut *mut c_void, pointer: *mut c_void, destroy: *mut c_void, count: c_uint, flags: c_uint);
    cuUserObjectRelease(object: *mut c_void, count: c_uint);
    cuUserObjectRetain(object: *mut c_void, count: c_uint);
    cuGraphRetainUserObject(graph: CUgraph, object: *mut c_void, count: c_uint, flags: c_uint);
    cuGraphReleaseUserObject(graph: CUgraph, object: *mut c_void, count: c_uint);
}

/// `cudaIpcMemHandle_t` and `cudaIpcEventHandle_t`, which travel by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle {
    reserved: [c_char; 64],
}

static LOADED: OnceLock<Option<Driver>> = OnceLock::new();
static INITIALIZED: OnceLock<Result<()>> = OnceLock::new();
static UNLOADING: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

#[cfg(not(test))]
fn open() -> Option<Driver> {
    // SAFETY: opening the driver runs its constructors and nothing of ours.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW) };
    if library.is_null() {
        crate::log::say(format_args!("libcuda.so.1 cannot be opened"));
        return None;
    }
    // SAFETY: the handle is never closed, so what is found in it stays.
    Some(Driver::load(&|name| unsafe {
        libc::dlsym(library, name.as_ptr())
    }))
}

#[cfg(test)]
fn open() -> Option<Driver> {
    Some(Driver::load(&crate::tests::fake::find))
}

extern "C" fn at_exit() {
    UNLOADING.store(true, Ordering::SeqCst);
    READY.store(null_mut(), Ordering::SeqCst);
}

extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::SeqCst);
    READY.store(null_mut(), Ordering::SeqCst);
}

/// The driver library, opened but perhaps not initialised; `None` where there is none.
pub fn library() -> Option<&'static Driver> {
    LOADED.get_or_init(open).as_ref()
}

/// The driver library, if the program has needed it already.
pub fn if_loaded() -> Option<&'static Driver> {
    if UNLOADING.load(Ordering::Relaxed) {
        return None;
    }
    LOADED.get()?.as_ref()
}

/// Whether this process came out of a fork of one that had initialised CUDA.
pub fn forked() -> bool {
    FORKED.load(Ordering::Relaxed)
}

fn initialize() -> Result<()> {
    let driver = library().ok_or(error::INSUFFICIENT_DRIVER)?;
    // SAFETY: takes flags, which have to be 0.
    unsafe { driver.cuInit(0) }?;
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    unsafe { driver.cuDriverGetVersion(&mut version) }?;
    if version < cudart_abi() / 1000 * 1000 {
        crate::log::say(format_args!(
            "the driver is of version {version}, this runtime needs {}",
            cudart_abi() / 1000 * 1000
        ));
        return Err(error::INSUFFICIENT_DRIVER);
    }
    // Asked now, so that a child of a fork can still be told.
    crate::device::count(driver)?;
    // SAFETY: both handlers only store a flag. No destructor of ours runs at exit: everything
    // else is leaked on purpose, as other libraries' destructors may still call in.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_forked_child));
    }
    Ok(())
}

/// The driver while it can be used: most calls look at nothing else to find it.
static READY: AtomicPtr<Driver> = AtomicPtr::new(null_mut());

/// The initialised driver. After exit began: `cudaErrorCudartUnloading`; in the child of a fork
/// whose parent had initialised CUDA: `cudaErrorInitializationError`.
pub fn driver() -> Result<&'static Driver> {
    // SAFETY: the pointer is null, or to the table in `LOADED`, which stays for ever.
    match unsafe { READY.load(Ordering::Acquire).as_ref() } {
        Some(driver) => Ok(driver),
        None => driver_or_why(),
    }
}

#[cold]
fn driver_or_why() -> Result<&'static Driver> {
    if UNLOADING.load(Ordering::Relaxed) {
        return Err(error::CUDART_UNLOADING);
    }
    if FORKED.load(Ordering::Relaxed) {
        return Err(error::INITIALIZATION_ERROR);
    }
    (*INITIALIZED.get_or_init(initialize))?;
    let driver = library().ok_or(error::INSUFFICIENT_DRIVER)?;
    READY.store(std::ptr::from_ref(driver).cast_mut(), Ordering::Release);
    // The end may have begun in between.
    if UNLOADING.load(Ordering::SeqCst) || FORKED.load(Ordering::SeqCst) {
        READY.store(null_mut(), Ordering::Release);
    }
    Ok(driver)
}
