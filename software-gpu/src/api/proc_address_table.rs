//! Every exported function with the CUDA version that introduced it, as NVIDIA's `cudaTypedefs.h` numbers them.

/// One version of a function.
pub(super) struct Entry {
    /// The name without suffixes.
    pub name: &'static str,
    /// The CUDA version that introduced it, 1000 times the major number and 10 times the minor.
    pub version: i32,
    /// The function.
    pub address: usize,
    /// Its variant for the per-thread default stream.
    pub per_thread: Option<usize>,
}

macro_rules! rows {
    ($($name:ident $version:literal $module:ident $function:ident $($per_thread:ident)?;)*) => {
        vec![$(Entry {
            name: stringify!($name),
            version: $version,
            address: super::$module::$function as *const () as usize,
            per_thread: rows!(@ $module $($per_thread)?),
        }),*]
    };
    (@ $module:ident $per_thread:ident) => { Some(super::$module::$per_thread as *const () as usize) };
    (@ $module:ident) => { None };
}

/// All of them.
pub(super) fn entries() -> Vec<Entry> {
    rows! {
        cuCtxCreate 2000 context cuCtxCreate;
        cuCtxCreate 3020 context cuCtxCreate_v2;
        cuCtxCreate 11040 context cuCtxCreate_v3;
        cuCtxCreate 12050 context cuCtxCreate_v4;
        cuCtxDestroy 2000 context cuCtxDestroy;
        cuCtxDestroy 4000 context cuCtxDestroy_v2;
        cuCtxDisablePeerAccess 4000 context cuCtxDisablePeerAccess;
        cuCtxEnablePeerAccess 4000 context cuCtxEnablePeerAccess;
        cuCtxGetApiVersion 3020 context cuCtxGetApiVersion;
        cuCtxGetCacheConfig 3020 context cuCtxGetCacheConfig;
        cuCtxGetCurrent 4000 context cuCtxGetCurrent;
        cuCtxGetDevice 2000 context cuCtxGetDevice;
        cuCtxGetDevice 13000 context cuCtxGetDevice_v2;
        cuCtxGetFlags 7000 context cuCtxGetFlags;
        cuCtxGetId 12000 context cuCtxGetId;
        cuCtxGetLimit 3010 context cuCtxGetLimit;
        cuCtxGetSharedMemConfig 4020 context cuCtxGetSharedMemConfig;
        cuCtxGetStreamPriorityRange 5050 context cuCtxGetStreamPriorityRange;
        cuCtxPopCurrent 2000 context cuCtxPopCurrent;
        cuCtxPopCurrent 4000 context cuCtxPopCurrent_v2;
        cuCtxPushCurrent 2000 context cuCtxPushCurrent;
        cuCtxPushCurrent 4000 context cuCtxPushCurrent_v2;
        cuCtxResetPersistingL2Cache 11000 context cuCtxResetPersistingL2Cache;
        cuCtxSetCacheConfig 3020 context cuCtxSetCacheConfig;
        cuCtxSetCurrent 4000 context cuCtxSetCurrent;
        cuCtxSetFlags 12010 context cuCtxSetFlags;
        cuCtxSetLimit 3010 context cuCtxSetLimit;
        cuCtxSetSharedMemConfig 4020 context cuCtxSetSharedMemConfig;
        cuCtxSynchronize 2000 context cuCtxSynchronize;
        cuCtxSynchronize 13000 context cuCtxSynchronize_v2;
        cuDeviceCanAccessPeer 4000 device cuDeviceCanAccessPeer;
        cuDeviceComputeCapability 2000 device cuDeviceComputeCapability;
        cuDeviceGet 2000 device cuDeviceGet;
        cuDeviceGetAttribute 2000 device cuDeviceGetAttribute;
        cuDeviceGetByPCIBusId 4010 device cuDeviceGetByPCIBusId;
        cuDeviceGetCount 2000 device cuDeviceGetCount;
        cuDeviceGetDefaultMemPool 11020 pool cuDeviceGetDefaultMemPool;
        cuDeviceGetExecAffinitySupport 11040 device cuDeviceGetExecAffinitySupport;
        cuDeviceGetLuid 10000 device cuDeviceGetLuid;
        cuDeviceGetMemPool 11020 pool cuDeviceGetMemPool;
        cuDeviceGetName 2000 device cuDeviceGetName;
        cuDeviceGetP2PAttribute 8000 device cuDeviceGetP2PAttribute;
        cuDeviceGetPCIBusId 4010 device cuDeviceGetPCIBusId;
        cuDeviceGetProperties 2000 device cuDeviceGetProperties;
        cuDeviceGetUuid 9020 device cuDeviceGetUuid;
        cuDeviceGetUuid 11040 device cuDeviceGetUuid_v2;
        cuDevicePrimaryCtxGetState 7000 primary_context cuDevicePrimaryCtxGetState;
        cuDevicePrimaryCtxRelease 7000 primary_context cuDevicePrimaryCtxRelease;
        cuDevicePrimaryCtxRelease 11000 primary_context cuDevicePrimaryCtxRelease_v2;
        cuDevicePrimaryCtxReset 7000 primary_context cuDevicePrimaryCtxReset;
        cuDevicePrimaryCtxReset 11000 primary_context cuDevicePrimaryCtxReset_v2;
        cuDevicePrimaryCtxRetain 7000 primary_context cuDevicePrimaryCtxRetain;
        cuDevicePrimaryCtxSetFlags 7000 primary_context cuDevicePrimaryCtxSetFlags;
        cuDevicePrimaryCtxSetFlags 11000 primary_context cuDevicePrimaryCtxSetFlags_v2;
        cuDeviceSetMemPool 11020 pool cuDeviceSetMemPool;
        cuDeviceTotalMem 3020 device cuDeviceTotalMem_v2;
        cuDriverGetVersion 2020 init cuDriverGetVersion;
        cuEventCreate 2000 event cuEventCreate;
        cuEventDestroy 2000 event cuEventDestroy;
        cuEventDestroy 4000 event cuEventDestroy_v2;
        cuEventElapsedTime 2000 event cuEventElapsedTime;
        cuEventElapsedTime 12080 event cuEventElapsedTime_v2;
        cuEventQuery 2000 event cuEventQuery;
        cuEventRecord 2000 event cuEventRecord cuEventRecord_ptsz;
        cuEventRecordWithFlags 11010 event cuEventRecordWithFlags cuEventRecordWithFlags_ptsz;
        cuEventSynchronize 2000 event cuEventSynchronize;
        cuFuncGetAttribute 2020 function cuFuncGetAttribute;
        cuFuncGetModule 11000 function cuFuncGetModule;
        cuFuncGetName 12030 function cuFuncGetName;
        cuFuncGetParamInfo 12040 function cuFuncGetParamInfo;
        cuFuncIsLoaded 12040 function cuFuncIsLoaded;
        cuFuncLoad 12040 function cuFuncLoad;
        cuFuncSetAttribute 9000 function cuFuncSetAttribute;
        cuFuncSetCacheConfig 3000 function cuFuncSetCacheConfig;
        cuFuncSetSharedMemConfig 4020 function cuFuncSetSharedMemConfig;
        cuGetErrorName 6000 error cuGetErrorName;
        cuGetErrorString 6000 error cuGetErrorString;
        cuGetExportTable 3000 init cuGetExportTable;
        cuGetProcAddress 11030 proc_address cuGetProcAddress;
        cuGetProcAddress 12000 proc_address cuGetProcAddress_v2;
        cuInit 2000 init cuInit;
        cuKernelGetAttribute 12000 kernel cuKernelGetAttribute;
        cuKernelGetFunction 12000 kernel cuKernelGetFunction;
        cuKernelGetLibrary 12050 kernel cuKernelGetLibrary;
        cuKernelGetName 12030 kernel cuKernelGetName;
        cuKernelGetParamInfo 12040 kernel cuKernelGetParamInfo;
        cuKernelSetAttribute 12000 kernel cuKernelSetAttribute;
        cuKernelSetCacheConfig 12000 kernel cuKernelSetCacheConfig;
        cuLaunchCooperativeKernel 9000 launch cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz;
        cuLaunchHostFunc 10000 launch cuLaunchHostFunc cuLaunchHostFunc_ptsz;
        cuLaunchKernel 4000 launch cuLaunchKernel cuLaunchKernel_ptsz;
        cuLaunchKernelEx 11060 launch cuLaunchKernelEx cuLaunchKernelEx_ptsz;
        cuLibraryEnumerateKernels 12040 library cuLibraryEnumerateKernels;
        cuLibraryGetGlobal 12000 library cuLibraryGetGlobal;
        cuLibraryGetKernel 12000 library cuLibraryGetKernel;
        cuLibraryGetKernelCount 12040 library cuLibraryGetKernelCount;
        cuLibraryGetManaged 12000 library cuLibraryGetManaged;
        cuLibraryGetModule 12000 library cuLibraryGetModule;
        cuLibraryGetUnifiedFunction 12000 library cuLibraryGetUnifiedFunction;
        cuLibraryLoadData 12000 library cuLibraryLoadData;
        cuLibraryLoadFromFile 12000 library cuLibraryLoadFromFile;
        cuLibraryUnload 12000 library cuLibraryUnload;
        cuMemAddressFree 10020 virtual_memory cuMemAddressFree;
        cuMemAddressReserve 10020 virtual_memory cuMemAddressReserve;
        cuMemAlloc 3020 memory cuMemAlloc_v2;
        cuMemAllocAsync 11020 pool cuMemAllocAsync cuMemAllocAsync_ptsz;
        cuMemAllocFromPoolAsync 11020 pool cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz;
        cuMemAllocHost 2000 host_memory cuMemAllocHost;
        cuMemAllocHost 3020 host_memory cuMemAllocHost_v2;
        cuMemAllocManaged 6000 memory cuMemAllocManaged;
        cuMemAllocPitch 3020 memory cuMemAllocPitch_v2;
        cuMemCreate 10020 virtual_memory cuMemCreate;
        cuMemExportToShareableHandle 10020 virtual_memory cuMemExportToShareableHandle;
        cuMemFree 3020 memory cuMemFree_v2;
        cuMemFreeAsync 11020 pool cuMemFreeAsync cuMemFreeAsync_ptsz;
        cuMemFreeHost 2000 host_memory cuMemFreeHost;
        cuMemGetAccess 10020 virtual_memory cuMemGetAccess;
        cuMemGetAddressRange 3020 memory cuMemGetAddressRange_v2;
        cuMemGetAllocationGranularity 10020 virtual_memory cuMemGetAllocationGranularity;
        cuMemGetAllocationPropertiesFromHandle 10020 virtual_memory cuMemGetAllocationPropertiesFromHandle;
        cuMemGetInfo 3020 memory cuMemGetInfo_v2;
        cuMemHostAlloc 2020 host_memory cuMemHostAlloc;
        cuMemHostGetDevicePointer 3020 host_memory cuMemHostGetDevicePointer_v2;
        cuMemHostGetFlags 2030 host_memory cuMemHostGetFlags;
        cuMemHostRegister 4000 host_memory cuMemHostRegister;
        cuMemHostRegister 6050 host_memory cuMemHostRegister_v2;
        cuMemHostUnregister 4000 host_memory cuMemHostUnregister;
        cuMemImportFromShareableHandle 10020 virtual_memory cuMemImportFromShareableHandle;
        cuMemMap 10020 virtual_memory cuMemMap;
        cuMemPoolCreate 11020 pool cuMemPoolCreate;
        cuMemPoolDestroy 11020 pool cuMemPoolDestroy;
        cuMemPoolGetAccess 11020 pool cuMemPoolGetAccess;
        cuMemPoolGetAttribute 11020 pool cuMemPoolGetAttribute;
        cuMemPoolSetAccess 11020 pool cuMemPoolSetAccess;
        cuMemPoolSetAttribute 11020 pool cuMemPoolSetAttribute;
        cuMemPoolTrimTo 11020 pool cuMemPoolTrimTo;
        cuMemRelease 10020 virtual_memory cuMemRelease;
        cuMemRetainAllocationHandle 11000 virtual_memory cuMemRetainAllocationHandle;
        cuMemSetAccess 10020 virtual_memory cuMemSetAccess;
        cuMemUnmap 10020 virtual_memory cuMemUnmap;
        cuMemcpy 4000 copy cuMemcpy cuMemcpy_ptds;
        cuMemcpy2D 3020 copy2d cuMemcpy2D_v2 cuMemcpy2D_v2_ptds;
        cuMemcpy2DAsync 3020 copy2d cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz;
        cuMemcpy2DUnaligned 3020 copy2d cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds;
        cuMemcpy3D 3020 copy3d cuMemcpy3D_v2 cuMemcpy3D_v2_ptds;
        cuMemcpy3DAsync 3020 copy3d cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz;
        cuMemcpyAsync 4000 copy cuMemcpyAsync cuMemcpyAsync_ptsz;
        cuMemcpyBatchAsync 12080 copy_batch cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz;
        cuMemcpyBatchAsync 13000 copy_batch cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz;
        cuMemcpyDtoD 3020 copy cuMemcpyDtoD_v2 cuMemcpyDtoD_v2_ptds;
        cuMemcpyDtoDAsync 3020 copy cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz;
        cuMemcpyDtoH 3020 copy cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds;
        cuMemcpyDtoHAsync 3020 copy cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz;
        cuMemcpyHtoD 3020 copy cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds;
        cuMemcpyHtoDAsync 3020 copy cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz;
        cuMemcpyPeer 4000 copy cuMemcpyPeer cuMemcpyPeer_ptds;
        cuMemcpyPeerAsync 4000 copy cuMemcpyPeerAsync cuMemcpyPeerAsync_ptsz;
        cuMemsetD16 3020 memset cuMemsetD16_v2 cuMemsetD16_v2_ptds;
        cuMemsetD16Async 3020 memset cuMemsetD16Async cuMemsetD16Async_ptsz;
        cuMemsetD2D16 3020 memset cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds;
        cuMemsetD2D16Async 3020 memset cuMemsetD2D16Async cuMemsetD2D16Async_ptsz;
        cuMemsetD2D32 3020 memset cuMemsetD2D32_v2 cuMemsetD2D32_v2_ptds;
        cuMemsetD2D32Async 3020 memset cuMemsetD2D32Async cuMemsetD2D32Async_ptsz;
        cuMemsetD2D8 3020 memset cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds;
        cuMemsetD2D8Async 3020 memset cuMemsetD2D8Async cuMemsetD2D8Async_ptsz;
        cuMemsetD32 3020 memset cuMemsetD32_v2 cuMemsetD32_v2_ptds;
        cuMemsetD32Async 3020 memset cuMemsetD32Async cuMemsetD32Async_ptsz;
        cuMemsetD8 3020 memset cuMemsetD8_v2 cuMemsetD8_v2_ptds;
        cuMemsetD8Async 3020 memset cuMemsetD8Async cuMemsetD8Async_ptsz;
        cuModuleEnumerateFunctions 12040 module cuModuleEnumerateFunctions;
        cuModuleGetFunction 2000 module cuModuleGetFunction;
        cuModuleGetFunctionCount 12040 module cuModuleGetFunctionCount;
        cuModuleGetGlobal 3020 module cuModuleGetGlobal_v2;
        cuModuleGetLoadingMode 11070 module cuModuleGetLoadingMode;
        cuModuleLoad 2000 module cuModuleLoad;
        cuModuleLoadData 2000 module cuModuleLoadData;
        cuModuleLoadDataEx 2010 module cuModuleLoadDataEx;
        cuModuleLoadFatBinary 2000 module cuModuleLoadFatBinary;
        cuModuleUnload 2000 module cuModuleUnload;
        cuOccupancyAvailableDynamicSMemPerBlock 10020 occupancy cuOccupancyAvailableDynamicSMemPerBlock;
        cuOccupancyMaxActiveBlocksPerMultiprocessor 6050 occupancy cuOccupancyMaxActiveBlocksPerMultiprocessor;
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags 7000 occupancy cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags;
        cuOccupancyMaxActiveClusters 11070 occupancy cuOccupancyMaxActiveClusters;
        cuOccupancyMaxPotentialBlockSize 6050 occupancy cuOccupancyMaxPotentialBlockSize;
        cuOccupancyMaxPotentialBlockSizeWithFlags 7000 occupancy cuOccupancyMaxPotentialBlockSizeWithFlags;
        cuOccupancyMaxPotentialClusterSize 11070 occupancy cuOccupancyMaxPotentialClusterSize;
        cuPointerGetAttribute 4000 pointer cuPointerGetAttribute;
        cuPointerGetAttributes 7000 pointer cuPointerGetAttributes;
        cuPointerSetAttribute 6000 pointer cuPointerSetAttribute;
        cuStreamAddCallback 5000 launch cuStreamAddCallback cuStreamAddCallback_ptsz;
        cuStreamAttachMemAsync 6000 stream cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz;
        cuStreamBeginCapture 10010 stream cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz;
        cuStreamCopyAttributes 11000 stream cuStreamCopyAttributes cuStreamCopyAttributes_ptsz;
        cuStreamCreate 2000 stream cuStreamCreate;
        cuStreamCreateWithPriority 5050 stream cuStreamCreateWithPriority;
        cuStreamDestroy 2000 stream cuStreamDestroy;
        cuStreamDestroy 4000 stream cuStreamDestroy_v2;
        cuStreamEndCapture 10000 stream cuStreamEndCapture cuStreamEndCapture_ptsz;
        cuStreamGetCaptureInfo 10010 stream cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz;
        cuStreamGetCaptureInfo 11030 stream cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz;
        cuStreamGetCaptureInfo 12030 stream cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz;
        cuStreamGetCtx 9020 stream cuStreamGetCtx cuStreamGetCtx_ptsz;
        cuStreamGetCtx 12050 stream cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz;
        cuStreamGetDevice 12080 stream cuStreamGetDevice cuStreamGetDevice_ptsz;
        cuStreamGetFlags 5050 stream cuStreamGetFlags cuStreamGetFlags_ptsz;
        cuStreamGetId 12000 stream cuStreamGetId cuStreamGetId_ptsz;
        cuStreamGetPriority 5050 stream cuStreamGetPriority cuStreamGetPriority_ptsz;
        cuStreamIsCapturing 10000 stream cuStreamIsCapturing cuStreamIsCapturing_ptsz;
        cuStreamQuery 2000 stream cuStreamQuery cuStreamQuery_ptsz;
        cuStreamSynchronize 2000 stream cuStreamSynchronize cuStreamSynchronize_ptsz;
        cuStreamWaitEvent 3020 stream cuStreamWaitEvent cuStreamWaitEvent_ptsz;
        cuStreamWaitValue32 8000 stream_memory cuStreamWaitValue32 cuStreamWaitValue32_ptsz;
        cuStreamWaitValue32 11070 stream_memory cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz;
        cuStreamWaitValue64 9000 stream_memory cuStreamWaitValue64 cuStreamWaitValue64_ptsz;
        cuStreamWaitValue64 11070 stream_memory cuStreamWaitValue64_v2 cuStreamWaitValue64_v2_ptsz;
        cuStreamWriteValue32 8000 stream_memory cuStreamWriteValue32 cuStreamWriteValue32_ptsz;
        cuStreamWriteValue32 11070 stream_memory cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz;
        cuStreamWriteValue64 9000 stream_memory cuStreamWriteValue64 cuStreamWriteValue64_ptsz;
        cuStreamWriteValue64 11070 stream_memory cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz;
        cuThreadExchangeStreamCaptureMode 10010 stream cuThreadExchangeStreamCaptureMode;
    }
}
