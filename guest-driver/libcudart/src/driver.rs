// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The driver API: `libcuda.so.1`, opened when the program first needs it, and a table of the public functions that the
//! runtime uses.

use crate::abi::cudart_abi;
use crate::error::{self, Result};
use gpgpu_protocol::{cuda::*, driver_api::signature, with_signature};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Turns a driver's result into a runtime error: the numbers are the same since CUDA 10.1.
fn check(result: CUresult) -> Result<()> {
    if result == CUDA_SUCCESS {
        Ok(())
    } else {
        Err(result)
    }
}

/// Declares [`Driver`]: each entry is a function, and its symbol if that differs.
macro_rules! driver_table {
    ($($name:ident $(= $symbol:ident)?;)*) => {
        /// The functions of the loaded driver; those that it lacks are `None`.
        pub struct Driver {
            $($name: Option<symbol!(type $name $($symbol)?)>,)*
        }

        impl Driver {
            /// Finds each function by its versioned public name.
            fn load(find: &dyn Fn(&CStr) -> *mut c_void) -> Self {
                Self {
                    $($name: {
                        let address = find(symbol!(name $name $($symbol)?));
                        // SAFETY: the driver's function of this name has this type, and a null
                        // address is `None`.
                        unsafe {
                            std::mem::transmute::<*mut c_void, Option<symbol!(type $name $($symbol)?)>>(address)
                        }
                    },)*
                }
            }
        }

        $(symbol!(method $name $($symbol)?);)*
    };
}

/// The forms of a function's symbol: its type, its name as a C string, its method. The symbol is the function's name
/// unless another one follows.
macro_rules! symbol {
    (type $name:ident) => {
        signature::$name
    };
    (name $name:ident) => {
        match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
            Ok(symbol) => symbol,
            Err(_) => c"",
        }
    };
    (method $name:ident) => {
        with_signature!($name method $name);
    };
    (method $name:ident $symbol:ident) => {
        with_signature!($symbol method $name);
    };
    ($what:ident $name:ident $symbol:ident) => {
        symbol!($what $symbol)
    };
}

/// The call of one function.
macro_rules! method {
    ($name:ident ($($arg:ident: $ty:ty),*)) => {
        impl Driver {
            /// Calls the driver; returns `cudaErrorNotSupported` if the driver lacks this function.
            ///
            /// # Safety
            /// The arguments are as the driver API requires.
            #[allow(clippy::too_many_arguments, dead_code, non_snake_case)]
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
        }
    };
}

driver_table! {
    cuInit;
    cuDriverGetVersion;
    cuGetErrorString;
    cuGetProcAddress = cuGetProcAddress_v2;

    cuDeviceGet;
    cuDeviceGetCount;
    cuDeviceGetName;
    cuDeviceGetUuid = cuDeviceGetUuid_v2;
    cuDeviceGetLuid;
    cuDeviceTotalMem = cuDeviceTotalMem_v2;
    cuDeviceGetAttribute;
    cuDeviceGetByPCIBusId;
    cuDeviceGetPCIBusId;
    cuDeviceCanAccessPeer;
    cuDeviceGetP2PAttribute;
    cuDeviceGetP2PAtomicCapabilities;
    cuDeviceGetHostAtomicCapabilities;
    cuDeviceGetTexture1DLinearMaxWidth;
    cuTexObjectCreate;
    cuTexObjectDestroy;
    cuTexObjectGetResourceDesc;
    cuTexObjectGetTextureDesc;
    cuTexObjectGetResourceViewDesc;
    cuSurfObjectCreate;
    cuSurfObjectDestroy;
    cuSurfObjectGetResourceDesc;
    cuDeviceGetDefaultMemPool;
    cuDeviceGetMemPool;
    cuDeviceSetMemPool;
    cuDeviceGraphMemTrim;
    cuDeviceGetGraphMemAttribute;
    cuDeviceSetGraphMemAttribute;
    cuDeviceRegisterAsyncNotification;
    cuDeviceUnregisterAsyncNotification;
    cuDeviceGetNvSciSyncAttributes;
    cuFlushGPUDirectRDMAWrites;
    cuDevicePrimaryCtxRetain;
    cuDevicePrimaryCtxRelease = cuDevicePrimaryCtxRelease_v2;
    cuDevicePrimaryCtxReset = cuDevicePrimaryCtxReset_v2;
    cuDevicePrimaryCtxSetFlags = cuDevicePrimaryCtxSetFlags_v2;
    cuDevicePrimaryCtxGetState;

    cuCtxGetCurrent;
    cuCtxPushCurrent = cuCtxPushCurrent_v2;
    cuCtxPopCurrent = cuCtxPopCurrent_v2;
    cuCtxGetDeviceOf = cuCtxGetDevice_v2;
    cuCtxSynchronizeOf = cuCtxSynchronize_v2;
    cuCtxGetId;
    cuCtxRecordEvent;
    cuCtxWaitEvent;
    cuDeviceGetDevResource;
    cuCtxGetDevResource;
    cuDevSmResourceSplitByCount;
    cuDevResourceGenerateDesc;
    cuGreenCtxCreate;
    cuGreenCtxDestroy;
    cuCtxFromGreenCtx;
    cuStreamGetCtx;
    cuCtxSetCurrent;
    cuCtxGetDevice;
    cuCtxGetFlags;
    cuCtxSynchronize;
    cuCtxGetLimit;
    cuCtxSetLimit;
    cuCtxGetCacheConfig;
    cuCtxSetCacheConfig;
    cuCtxGetSharedMemConfig;
    cuCtxSetSharedMemConfig;
    cuCtxGetStreamPriorityRange;
    cuCtxResetPersistingL2Cache;
    cuCtxEnablePeerAccess;
    cuCtxDisablePeerAccess;

    cuMemAlloc = cuMemAlloc_v2;
    cuMemAllocPitch = cuMemAllocPitch_v2;
    cuMemAllocManaged;
    cuMemFree = cuMemFree_v2;
    cuMemGetInfo = cuMemGetInfo_v2;
    cuMemHostAlloc;
    cuMemFreeHost;
    cuMemHostRegister = cuMemHostRegister_v2;
    cuMemHostUnregister;
    cuMemHostGetDevicePointer = cuMemHostGetDevicePointer_v2;
    cuMemHostGetFlags;
    cuPointerGetAttribute;
    cuPointerGetAttributes;
    cuMemAdvise = cuMemAdvise_v2;
    cuMemPrefetchAsync = cuMemPrefetchAsync_v2;
    cuMemPrefetchBatchAsync;
    cuMemDiscardBatchAsync;
    cuMemDiscardAndPrefetchBatchAsync;
    cuMemRangeGetAttribute;
    cuMemRangeGetAttributes;
    cuStreamAttachMemAsync;
    cuIpcGetMemHandle;
    cuIpcOpenMemHandle = cuIpcOpenMemHandle_v2;
    cuIpcCloseMemHandle;
    cuIpcGetEventHandle;
    cuIpcOpenEventHandle;

    cuMemAllocAsync;
    cuMemFreeAsync;
    cuMemAllocFromPoolAsync;
    cuMemPoolCreate;
    cuMemPoolDestroy;
    cuMemPoolTrimTo;
    cuMemPoolGetAttribute;
    cuMemPoolSetAttribute;
    cuMemPoolGetAccess;
    cuMemPoolSetAccess;
    cuMemPoolExportToShareableHandle;
    cuMemPoolImportFromShareableHandle;
    cuMemPoolExportPointer;
    cuMemPoolImportPointer;
    cuMemGetDefaultMemPool;
    cuMemGetMemPool;
    cuMemSetMemPool;

    cuMemcpy;
    cuMemcpyAsync;
    cuMemcpyHtoD = cuMemcpyHtoD_v2;
    cuMemcpyDtoH = cuMemcpyDtoH_v2;
    cuMemcpyDtoD = cuMemcpyDtoD_v2;
    cuMemcpyHtoDAsync = cuMemcpyHtoDAsync_v2;
    cuMemcpyDtoHAsync = cuMemcpyDtoHAsync_v2;
    cuMemcpyDtoDAsync = cuMemcpyDtoDAsync_v2;
    cuMemcpyPeer;
    cuMemcpyPeerAsync;
    cuMemcpy2DUnaligned = cuMemcpy2DUnaligned_v2;
    cuMemcpy2DAsync = cuMemcpy2DAsync_v2;
    cuMemcpy3D = cuMemcpy3D_v2;
    cuMemcpy3DAsync = cuMemcpy3DAsync_v2;
    cuMemcpy3DPeer;
    cuMemcpy3DPeerAsync;
    cuMemcpyBatchAsync12 = cuMemcpyBatchAsync;
    cuMemcpyBatchAsync13 = cuMemcpyBatchAsync_v2;
    cuMemcpy3DBatchAsync12 = cuMemcpy3DBatchAsync;
    cuMemcpy3DBatchAsync13 = cuMemcpy3DBatchAsync_v2;
    cuMemsetD8 = cuMemsetD8_v2;
    cuMemsetD8Async;
    cuMemsetD2D8 = cuMemsetD2D8_v2;
    cuMemsetD2D8Async;

    cuStreamCreate;
    cuStreamCreateWithPriority;
    cuStreamDestroy = cuStreamDestroy_v2;
    cuStreamQuery;
    cuStreamSynchronize;
    cuStreamWaitEvent;
    cuStreamAddCallback;
    cuLaunchHostFunc;
    cuLaunchHostFuncIn = cuLaunchHostFunc_v2;
    cuStreamGetFlags;
    cuStreamGetPriority;
    cuStreamGetId;
    cuStreamGetDevice;
    cuStreamGetAttribute;
    cuStreamSetAttribute;
    cuStreamCopyAttributes;
    cuStreamBeginCapture = cuStreamBeginCapture_v2;
    cuStreamBeginCaptureToGraph;
    cuStreamEndCapture;
    cuStreamIsCapturing;
    cuStreamGetCaptureInfo2 = cuStreamGetCaptureInfo_v2;
    cuStreamGetCaptureInfo3 = cuStreamGetCaptureInfo_v3;
    cuStreamUpdateCaptureDependencies;
    cuStreamUpdateCaptureDependencies2 = cuStreamUpdateCaptureDependencies_v2;
    cuThreadExchangeStreamCaptureMode;

    cuEventCreate;
    cuEventRecord;
    cuEventRecordWithFlags;
    cuEventQuery;
    cuEventSynchronize;
    cuEventDestroy = cuEventDestroy_v2;
    cuEventElapsedTime;

    cuLaunchKernel;
    cuLaunchKernelEx;
    cuLaunchCooperativeKernel;
    cuFuncGetAttribute;
    cuFuncSetAttribute;
    cuFuncSetCacheConfig;
    cuFuncSetSharedMemConfig;
    cuFuncGetName;
    cuFuncGetParamInfo;
    cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
    cuOccupancyAvailableDynamicSMemPerBlock;
    cuOccupancyMaxPotentialClusterSize;
    cuOccupancyMaxActiveClusters;
    cuKernelGetFunction;
    cuKernelGetAttribute;
    cuKernelSetAttribute;
    cuKernelSetCacheConfig;
    cuKernelGetName;
    cuKernelGetParamCount;
    cuKernelGetParamInfo;

    cuLibraryLoadData;
    cuLibraryLoadFromFile;
    cuLibraryUnload;
    cuLibraryGetKernel;
    cuLibraryGetKernelCount;
    cuLibraryEnumerateKernels;
    cuLibraryGetGlobal;
    cuLibraryGetManaged;
    cuLibraryGetUnifiedFunction;

    cuArrayCreate3D = cuArray3DCreate_v2;
    cuArrayDestroy;
    cuArray3DGetDescriptor = cuArray3DGetDescriptor_v2;
    cuArrayGetPlane;
    cuArrayGetMemoryRequirements;
    cuArrayGetSparseProperties;
    cuMipmappedArrayCreate;
    cuMipmappedArrayDestroy;
    cuMipmappedArrayGetLevel;
    cuMipmappedArrayGetMemoryRequirements;
    cuMipmappedArrayGetSparseProperties;

    cuProfilerStart;
    cuProfilerStop;
    cuLogsRegisterCallback;
    cuLogsUnregisterCallback;
    cuLogsCurrent;
    cuLogsDumpToFile;
    cuLogsDumpToMemory;
    cuDestroyExternalMemory;
    cuDestroyExternalSemaphore;
    cuImportExternalMemory;
    cuImportExternalSemaphore;
    cuExternalMemoryGetMappedBuffer;
    cuExternalMemoryGetMappedMipmappedArray;
    cuSignalExternalSemaphoresAsync;
    cuWaitExternalSemaphoresAsync;
    cuGLGetDevices = cuGLGetDevices_v2;
    cuGLMapBufferObject = cuGLMapBufferObject_v2;
    cuGLMapBufferObjectAsync = cuGLMapBufferObjectAsync_v2;
    cuGLRegisterBufferObject;
    cuGLSetBufferObjectMapFlags;
    cuGLUnmapBufferObject;
    cuGLUnmapBufferObjectAsync;
    cuGLUnregisterBufferObject;
    cuGraphicsGLRegisterBuffer;
    cuGraphicsGLRegisterImage;
    cuGraphicsMapResources;
    cuGraphicsUnmapResources;
    cuGraphicsResourceGetMappedMipmappedArray;
    cuGraphicsResourceGetMappedPointer = cuGraphicsResourceGetMappedPointer_v2;
    cuGraphicsResourceSetMapFlags = cuGraphicsResourceSetMapFlags_v2;
    cuGraphicsSubResourceGetMappedArray;
    cuGraphicsUnregisterResource;

    cuGraphCreate;
    cuGraphDestroy;
    cuGraphClone;
    cuGraphDebugDotPrint;
    cuGraphDestroyNode;
    cuGraphNodeGetType;
    cuGraphNodeFindInClone;
    cuGraphNodeGetContainingGraph;
    cuGraphNodeGetLocalId;
    cuGraphNodeGetToolsId;
    cuGraphGetId;
    cuGraphExecGetId;
    cuGraphGetNodes;
    cuGraphGetRootNodes;
    cuGraphGetEdges;
    cuGraphGetEdges2 = cuGraphGetEdges_v2;
    cuGraphNodeGetDependencies;
    cuGraphNodeGetDependencies2 = cuGraphNodeGetDependencies_v2;
    cuGraphNodeGetDependentNodes;
    cuGraphNodeGetDependentNodes2 = cuGraphNodeGetDependentNodes_v2;
    cuGraphAddDependencies;
    cuGraphAddDependencies2 = cuGraphAddDependencies_v2;
    cuGraphRemoveDependencies;
    cuGraphRemoveDependencies2 = cuGraphRemoveDependencies_v2;
    cuGraphInstantiate = cuGraphInstantiateWithFlags;
    cuGraphInstantiateWithParams;
    cuGraphExecDestroy;
    cuGraphExecGetFlags;
    cuGraphExecUpdate = cuGraphExecUpdate_v2;
    cuGraphLaunch;
    cuGraphUpload;
    cuGraphConditionalHandleCreate;
    cuGraphAddEmptyNode;
    cuGraphAddChildGraphNode;
    cuGraphChildGraphNodeGetGraph;
    cuGraphExecChildGraphNodeSetParams;
    cuGraphAddKernelNode = cuGraphAddKernelNode_v2;
    cuGraphKernelNodeGetParams = cuGraphKernelNodeGetParams_v2;
    cuGraphKernelNodeSetParams = cuGraphKernelNodeSetParams_v2;
    cuGraphExecKernelNodeSetParams = cuGraphExecKernelNodeSetParams_v2;
    cuGraphKernelNodeCopyAttributes;
    cuGraphKernelNodeGetAttribute;
    cuGraphKernelNodeSetAttribute;
    cuGraphAddNode;
    cuGraphAddNode2 = cuGraphAddNode_v2;
    cuGraphNodeGetParams;
    cuGraphNodeSetParams;
    cuGraphExecNodeSetParams;
    cuGraphAddExternalSemaphoresSignalNode;
    cuGraphAddExternalSemaphoresWaitNode;
    cuGraphExternalSemaphoresSignalNodeGetParams;
    cuGraphExternalSemaphoresSignalNodeSetParams;
    cuGraphExternalSemaphoresWaitNodeGetParams;
    cuGraphExternalSemaphoresWaitNodeSetParams;
    cuGraphExecExternalSemaphoresSignalNodeSetParams;
    cuGraphExecExternalSemaphoresWaitNodeSetParams;
    cuGraphAddMemcpyNode;
    cuGraphMemcpyNodeGetParams;
    cuGraphMemcpyNodeSetParams;
    cuGraphExecMemcpyNodeSetParams;
    cuGraphAddMemsetNode;
    cuGraphMemsetNodeGetParams;
    cuGraphMemsetNodeSetParams;
    cuGraphExecMemsetNodeSetParams;
    cuGraphAddHostNode;
    cuGraphHostNodeGetParams;
    cuGraphHostNodeSetParams;
    cuGraphExecHostNodeSetParams;
    cuGraphAddEventRecordNode;
    cuGraphEventRecordNodeGetEvent;
    cuGraphEventRecordNodeSetEvent;
    cuGraphExecEventRecordNodeSetEvent;
    cuGraphAddEventWaitNode;
    cuGraphEventWaitNodeGetEvent;
    cuGraphEventWaitNodeSetEvent;
    cuGraphExecEventWaitNodeSetEvent;
    cuGraphAddMemAllocNode;
    cuGraphMemAllocNodeGetParams;
    cuGraphAddMemFreeNode;
    cuGraphMemFreeNodeGetParams;
    cuGraphNodeGetEnabled;
    cuGraphNodeSetEnabled;
    cuUserObjectCreate;
    cuUserObjectRelease;
    cuUserObjectRetain;
    cuGraphRetainUserObject;
    cuGraphReleaseUserObject;
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
    // SAFETY: the handle is never closed, so its symbols stay.
    let find = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
    crate::traced::look_for_switch(&find);
    Some(Driver::load(&find))
}

#[cfg(test)]
fn open() -> Option<Driver> {
    crate::traced::look_for_switch(&crate::tests::fake::find);
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

/// The driver library, opened but perhaps not initialised; `None` if there is none.
pub fn library() -> Option<&'static Driver> {
    LOADED.get_or_init(open).as_ref()
}

/// The driver library, if the program has already needed it.
pub fn if_loaded() -> Option<&'static Driver> {
    if UNLOADING.load(Ordering::Relaxed) {
        return None;
    }
    LOADED.get()?.as_ref()
}

/// Whether this process is a fork of one that had initialised CUDA.
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
    // Query it now, so that a forked child can still report it.
    crate::device::count(driver)?;
    // SAFETY: both handlers only store a flag. No destructor of ours runs at exit: everything
    // else is leaked on purpose, as other libraries' destructors may still call in.
    unsafe {
        libc::atexit(at_exit);
        libc::pthread_atfork(None, None, Some(in_forked_child));
    }
    Ok(())
}

/// The driver while it is usable; most calls read only this.
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
    // The exit may have begun in between.
    if UNLOADING.load(Ordering::SeqCst) || FORKED.load(Ordering::SeqCst) {
        READY.store(null_mut(), Ordering::Release);
    }
    Ok(driver)
}
