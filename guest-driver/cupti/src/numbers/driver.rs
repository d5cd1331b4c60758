// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions of the driver API in the order of their numbers (`CUpti_driver_api_trace_cbid`), as of CUDA 13.0.

/// The names, separated by spaces. The first one has the number 1.
pub(super) const NAMES: &str = "\
    cuInit cuDriverGetVersion cuDeviceGet cuDeviceGetCount cuDeviceGetName cuDeviceComputeCapability \
    cuDeviceTotalMem cuDeviceGetProperties cuDeviceGetAttribute cuCtxCreate cuCtxDestroy cuCtxAttach cuCtxDetach \
    cuCtxPushCurrent cuCtxPopCurrent cuCtxGetDevice cuCtxSynchronize cuModuleLoad cuModuleLoadData \
    cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction cuModuleGetGlobal \
    cu64ModuleGetGlobal cuModuleGetTexRef cuMemGetInfo cu64MemGetInfo cuMemAlloc cu64MemAlloc cuMemAllocPitch \
    cu64MemAllocPitch cuMemFree cu64MemFree cuMemGetAddressRange cu64MemGetAddressRange cuMemAllocHost cuMemFreeHost \
    cuMemHostAlloc cuMemHostGetDevicePointer cu64MemHostGetDevicePointer cuMemHostGetFlags cuMemcpyHtoD \
    cu64MemcpyHtoD cuMemcpyDtoH cu64MemcpyDtoH cuMemcpyDtoD cu64MemcpyDtoD cuMemcpyDtoA cu64MemcpyDtoA cuMemcpyAtoD \
    cu64MemcpyAtoD cuMemcpyHtoA cuMemcpyAtoH cuMemcpyAtoA cuMemcpy2D cuMemcpy2DUnaligned cuMemcpy3D cu64Memcpy3D \
    cuMemcpyHtoDAsync cu64MemcpyHtoDAsync cuMemcpyDtoHAsync cu64MemcpyDtoHAsync cuMemcpyDtoDAsync \
    cu64MemcpyDtoDAsync cuMemcpyHtoAAsync cuMemcpyAtoHAsync cuMemcpy2DAsync cuMemcpy3DAsync cu64Memcpy3DAsync \
    cuMemsetD8 cu64MemsetD8 cuMemsetD16 cu64MemsetD16 cuMemsetD32 cu64MemsetD32 cuMemsetD2D8 cu64MemsetD2D8 \
    cuMemsetD2D16 cu64MemsetD2D16 cuMemsetD2D32 cu64MemsetD2D32 cuFuncSetBlockShape cuFuncSetSharedSize \
    cuFuncGetAttribute cuFuncSetCacheConfig cuArrayCreate cuArrayGetDescriptor cuArrayDestroy cuArray3DCreate \
    cuArray3DGetDescriptor cuTexRefCreate cuTexRefDestroy cuTexRefSetArray cuTexRefSetAddress cu64TexRefSetAddress \
    cuTexRefSetAddress2D cu64TexRefSetAddress2D cuTexRefSetFormat cuTexRefSetAddressMode cuTexRefSetFilterMode \
    cuTexRefSetFlags cuTexRefGetAddress cu64TexRefGetAddress cuTexRefGetArray cuTexRefGetAddressMode \
    cuTexRefGetFilterMode cuTexRefGetFormat cuTexRefGetFlags cuParamSetSize cuParamSeti cuParamSetf cuParamSetv \
    cuParamSetTexRef cuLaunch cuLaunchGrid cuLaunchGridAsync cuEventCreate cuEventRecord cuEventQuery \
    cuEventSynchronize cuEventDestroy cuEventElapsedTime cuStreamCreate cuStreamQuery cuStreamSynchronize \
    cuStreamDestroy cuGraphicsUnregisterResource cuGraphicsSubResourceGetMappedArray \
    cuGraphicsResourceGetMappedPointer cu64GraphicsResourceGetMappedPointer cuGraphicsResourceSetMapFlags \
    cuGraphicsMapResources cuGraphicsUnmapResources cuGetExportTable cuCtxSetLimit cuCtxGetLimit cuD3D10GetDevice \
    cuD3D10CtxCreate cuGraphicsD3D10RegisterResource cuD3D10RegisterResource cuD3D10UnregisterResource \
    cuD3D10MapResources cuD3D10UnmapResources cuD3D10ResourceSetMapFlags cuD3D10ResourceGetMappedArray \
    cuD3D10ResourceGetMappedPointer cuD3D10ResourceGetMappedSize cuD3D10ResourceGetMappedPitch \
    cuD3D10ResourceGetSurfaceDimensions cuD3D11GetDevice cuD3D11CtxCreate cuGraphicsD3D11RegisterResource \
    cuD3D9GetDevice cuD3D9CtxCreate cuGraphicsD3D9RegisterResource cuD3D9GetDirect3DDevice cuD3D9RegisterResource \
    cuD3D9UnregisterResource cuD3D9MapResources cuD3D9UnmapResources cuD3D9ResourceSetMapFlags \
    cuD3D9ResourceGetSurfaceDimensions cuD3D9ResourceGetMappedArray cuD3D9ResourceGetMappedPointer \
    cuD3D9ResourceGetMappedSize cuD3D9ResourceGetMappedPitch cuD3D9Begin cuD3D9End cuD3D9RegisterVertexBuffer \
    cuD3D9MapVertexBuffer cuD3D9UnmapVertexBuffer cuD3D9UnregisterVertexBuffer cuGLCtxCreate \
    cuGraphicsGLRegisterBuffer cuGraphicsGLRegisterImage cuWGLGetDevice cuGLInit cuGLRegisterBufferObject \
    cuGLMapBufferObject cuGLUnmapBufferObject cuGLUnregisterBufferObject cuGLSetBufferObjectMapFlags \
    cuGLMapBufferObjectAsync cuGLUnmapBufferObjectAsync cuVDPAUGetDevice cuVDPAUCtxCreate \
    cuGraphicsVDPAURegisterVideoSurface cuGraphicsVDPAURegisterOutputSurface cuModuleGetSurfRef cuSurfRefCreate \
    cuSurfRefDestroy cuSurfRefSetFormat cuSurfRefSetArray cuSurfRefGetFormat cuSurfRefGetArray cu64DeviceTotalMem \
    cu64D3D10ResourceGetMappedPointer cu64D3D10ResourceGetMappedSize cu64D3D10ResourceGetMappedPitch \
    cu64D3D10ResourceGetSurfaceDimensions cu64D3D9ResourceGetSurfaceDimensions cu64D3D9ResourceGetMappedPointer \
    cu64D3D9ResourceGetMappedSize cu64D3D9ResourceGetMappedPitch cu64D3D9MapVertexBuffer cu64GLMapBufferObject \
    cu64GLMapBufferObjectAsync cuD3D11GetDevices cuD3D11CtxCreateOnDevice cuD3D10GetDevices cuD3D10CtxCreateOnDevice \
    cuD3D9GetDevices cuD3D9CtxCreateOnDevice cu64MemHostAlloc cuMemsetD8Async cu64MemsetD8Async cuMemsetD16Async \
    cu64MemsetD16Async cuMemsetD32Async cu64MemsetD32Async cuMemsetD2D8Async cu64MemsetD2D8Async cuMemsetD2D16Async \
    cu64MemsetD2D16Async cuMemsetD2D32Async cu64MemsetD2D32Async cu64ArrayCreate cu64ArrayGetDescriptor \
    cu64Array3DCreate cu64Array3DGetDescriptor cu64Memcpy2D cu64Memcpy2DUnaligned cu64Memcpy2DAsync cuCtxCreate_v2 \
    cuD3D10CtxCreate_v2 cuD3D11CtxCreate_v2 cuD3D9CtxCreate_v2 cuGLCtxCreate_v2 cuVDPAUCtxCreate_v2 \
    cuModuleGetGlobal_v2 cuMemGetInfo_v2 cuMemAlloc_v2 cuMemAllocPitch_v2 cuMemFree_v2 cuMemGetAddressRange_v2 \
    cuMemHostGetDevicePointer_v2 cuMemcpy_v2 cuMemsetD8_v2 cuMemsetD16_v2 cuMemsetD32_v2 cuMemsetD2D8_v2 \
    cuMemsetD2D16_v2 cuMemsetD2D32_v2 cuTexRefSetAddress_v2 cuTexRefSetAddress2D_v2 cuTexRefGetAddress_v2 \
    cuGraphicsResourceGetMappedPointer_v2 cuDeviceTotalMem_v2 cuD3D10ResourceGetMappedPointer_v2 \
    cuD3D10ResourceGetMappedSize_v2 cuD3D10ResourceGetMappedPitch_v2 cuD3D10ResourceGetSurfaceDimensions_v2 \
    cuD3D9ResourceGetSurfaceDimensions_v2 cuD3D9ResourceGetMappedPointer_v2 cuD3D9ResourceGetMappedSize_v2 \
    cuD3D9ResourceGetMappedPitch_v2 cuD3D9MapVertexBuffer_v2 cuGLMapBufferObject_v2 cuGLMapBufferObjectAsync_v2 \
    cuMemHostAlloc_v2 cuArrayCreate_v2 cuArrayGetDescriptor_v2 cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 \
    cuMemcpyHtoD_v2 cuMemcpyHtoDAsync_v2 cuMemcpyDtoH_v2 cuMemcpyDtoHAsync_v2 cuMemcpyDtoD_v2 cuMemcpyDtoDAsync_v2 \
    cuMemcpyAtoH_v2 cuMemcpyAtoHAsync_v2 cuMemcpyAtoD_v2 cuMemcpyDtoA_v2 cuMemcpyAtoA_v2 cuMemcpy2D_v2 \
    cuMemcpy2DUnaligned_v2 cuMemcpy2DAsync_v2 cuMemcpy3D_v2 cuMemcpy3DAsync_v2 cuMemcpyHtoA_v2 cuMemcpyHtoAAsync_v2 \
    cuMemAllocHost_v2 cuStreamWaitEvent cuCtxGetApiVersion cuD3D10GetDirect3DDevice cuD3D11GetDirect3DDevice \
    cuCtxGetCacheConfig cuCtxSetCacheConfig cuMemHostRegister cuMemHostUnregister cuCtxSetCurrent cuCtxGetCurrent \
    cuMemcpy cuMemcpyAsync cuLaunchKernel cuProfilerStart cuProfilerStop cuPointerGetAttribute cuProfilerInitialize \
    cuDeviceCanAccessPeer cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuMemPeerRegister cuMemPeerUnregister \
    cuMemPeerGetDevicePointer cuMemcpyPeer cuMemcpyPeerAsync cuMemcpy3DPeer cuMemcpy3DPeerAsync cuCtxDestroy_v2 \
    cuCtxPushCurrent_v2 cuCtxPopCurrent_v2 cuEventDestroy_v2 cuStreamDestroy_v2 cuTexRefSetAddress2D_v3 \
    cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcCloseMemHandle cuDeviceGetByPCIBusId cuDeviceGetPCIBusId \
    cuGLGetDevices cuIpcGetEventHandle cuIpcOpenEventHandle cuCtxSetSharedMemConfig cuCtxGetSharedMemConfig \
    cuFuncSetSharedMemConfig cuTexObjectCreate cuTexObjectDestroy cuTexObjectGetResourceDesc \
    cuTexObjectGetTextureDesc cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuStreamAddCallback \
    cuMipmappedArrayCreate cuMipmappedArrayGetLevel cuMipmappedArrayDestroy cuTexRefSetMipmappedArray \
    cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp cuTexRefSetMaxAnisotropy \
    cuTexRefGetMipmappedArray cuTexRefGetMipmapFilterMode cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp \
    cuTexRefGetMaxAnisotropy cuGraphicsResourceGetMappedMipmappedArray cuTexObjectGetResourceViewDesc cuLinkCreate \
    cuLinkAddData cuLinkAddFile cuLinkComplete cuLinkDestroy cuStreamCreateWithPriority cuStreamGetPriority \
    cuStreamGetFlags cuCtxGetStreamPriorityRange cuMemAllocManaged cuGetErrorString cuGetErrorName \
    cuOccupancyMaxActiveBlocksPerMultiprocessor cuCompilePtx cuBinaryFree cuStreamAttachMemAsync \
    cuPointerSetAttribute cuMemHostRegister_v2 cuGraphicsResourceSetMapFlags_v2 cuLinkCreate_v2 cuLinkAddData_v2 \
    cuLinkAddFile_v2 cuOccupancyMaxPotentialBlockSize cuGLGetDevices_v2 cuDevicePrimaryCtxRetain \
    cuDevicePrimaryCtxRelease cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxReset cuGraphicsEGLRegisterImage \
    cuCtxGetFlags cuDevicePrimaryCtxGetState cuEGLStreamConsumerConnect cuEGLStreamConsumerDisconnect \
    cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerReleaseFrame cuMemcpyHtoD_v2_ptds cuMemcpyDtoH_v2_ptds \
    cuMemcpyDtoD_v2_ptds cuMemcpyDtoA_v2_ptds cuMemcpyAtoD_v2_ptds cuMemcpyHtoA_v2_ptds cuMemcpyAtoH_v2_ptds \
    cuMemcpyAtoA_v2_ptds cuMemcpy2D_v2_ptds cuMemcpy2DUnaligned_v2_ptds cuMemcpy3D_v2_ptds cuMemcpy_ptds \
    cuMemcpyPeer_ptds cuMemcpy3DPeer_ptds cuMemsetD8_v2_ptds cuMemsetD16_v2_ptds cuMemsetD32_v2_ptds \
    cuMemsetD2D8_v2_ptds cuMemsetD2D16_v2_ptds cuMemsetD2D32_v2_ptds cuGLMapBufferObject_v2_ptds cuMemcpyAsync_ptsz \
    cuMemcpyHtoAAsync_v2_ptsz cuMemcpyAtoHAsync_v2_ptsz cuMemcpyHtoDAsync_v2_ptsz cuMemcpyDtoHAsync_v2_ptsz \
    cuMemcpyDtoDAsync_v2_ptsz cuMemcpy2DAsync_v2_ptsz cuMemcpy3DAsync_v2_ptsz cuMemcpyPeerAsync_ptsz \
    cuMemcpy3DPeerAsync_ptsz cuMemsetD8Async_ptsz cuMemsetD16Async_ptsz cuMemsetD32Async_ptsz cuMemsetD2D8Async_ptsz \
    cuMemsetD2D16Async_ptsz cuMemsetD2D32Async_ptsz cuStreamGetPriority_ptsz cuStreamGetFlags_ptsz \
    cuStreamWaitEvent_ptsz cuStreamAddCallback_ptsz cuStreamAttachMemAsync_ptsz cuStreamQuery_ptsz \
    cuStreamSynchronize_ptsz cuEventRecord_ptsz cuLaunchKernel_ptsz cuGraphicsMapResources_ptsz \
    cuGraphicsUnmapResources_ptsz cuGLMapBufferObjectAsync_v2_ptsz cuEGLStreamProducerConnect \
    cuEGLStreamProducerDisconnect cuEGLStreamProducerPresentFrame cuGraphicsResourceGetMappedEglFrame \
    cuPointerGetAttributes cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags \
    cuOccupancyMaxPotentialBlockSizeWithFlags cuEGLStreamProducerReturnFrame cuDeviceGetP2PAttribute \
    cuTexRefSetBorderColor cuTexRefGetBorderColor cuMemAdvise cuStreamWaitValue32 cuStreamWaitValue32_ptsz \
    cuStreamWriteValue32 cuStreamWriteValue32_ptsz cuStreamBatchMemOp cuStreamBatchMemOp_ptsz cuNVNbufferGetPointer \
    cuNVNtextureGetArray cuNNSetAllocator cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuEventCreateFromNVNSync \
    cuEGLStreamConsumerConnectWithFlags cuMemRangeGetAttribute cuMemRangeGetAttributes cuStreamWaitValue64 \
    cuStreamWaitValue64_ptsz cuStreamWriteValue64 cuStreamWriteValue64_ptsz cuLaunchCooperativeKernel \
    cuLaunchCooperativeKernel_ptsz cuEventCreateFromEGLSync cuLaunchCooperativeKernelMultiDevice cuFuncSetAttribute \
    cuDeviceGetUuid cuStreamGetCtx cuStreamGetCtx_ptsz cuImportExternalMemory cuExternalMemoryGetMappedBuffer \
    cuExternalMemoryGetMappedMipmappedArray cuDestroyExternalMemory cuImportExternalSemaphore \
    cuSignalExternalSemaphoresAsync cuSignalExternalSemaphoresAsync_ptsz cuWaitExternalSemaphoresAsync \
    cuWaitExternalSemaphoresAsync_ptsz cuDestroyExternalSemaphore cuStreamBeginCapture cuStreamBeginCapture_ptsz \
    cuStreamEndCapture cuStreamEndCapture_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz cuGraphCreate \
    cuGraphAddKernelNode cuGraphKernelNodeGetParams cuGraphAddMemcpyNode cuGraphMemcpyNodeGetParams \
    cuGraphAddMemsetNode cuGraphMemsetNodeGetParams cuGraphMemsetNodeSetParams cuGraphNodeGetType \
    cuGraphGetRootNodes cuGraphNodeGetDependencies cuGraphNodeGetDependentNodes cuGraphInstantiate cuGraphLaunch \
    cuGraphLaunch_ptsz cuGraphExecDestroy cuGraphDestroy cuGraphAddDependencies cuGraphRemoveDependencies \
    cuGraphMemcpyNodeSetParams cuGraphKernelNodeSetParams cuGraphDestroyNode cuGraphClone cuGraphNodeFindInClone \
    cuGraphAddChildGraphNode cuGraphAddEmptyNode cuLaunchHostFunc cuLaunchHostFunc_ptsz \
    cuGraphChildGraphNodeGetGraph cuGraphAddHostNode cuGraphHostNodeGetParams cuDeviceGetLuid \
    cuGraphHostNodeSetParams cuGraphGetNodes cuGraphGetEdges cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz \
    cuGraphExecKernelNodeSetParams cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz \
    cuThreadExchangeStreamCaptureMode cuDeviceGetNvSciSyncAttributes cuOccupancyAvailableDynamicSMemPerBlock \
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuMemAddressReserve \
    cuMemAddressFree cuMemCreate cuMemRelease cuMemMap cuMemUnmap cuMemSetAccess cuMemExportToShareableHandle \
    cuMemImportFromShareableHandle cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle \
    cuMemGetAccess cuStreamSetFlags cuStreamSetFlags_ptsz cuGraphExecUpdate cuGraphExecMemcpyNodeSetParams \
    cuGraphExecMemsetNodeSetParams cuGraphExecHostNodeSetParams cuMemRetainAllocationHandle cuFuncGetModule \
    cuIpcOpenMemHandle_v2 cuCtxResetPersistingL2Cache cuGraphKernelNodeCopyAttributes cuGraphKernelNodeGetAttribute \
    cuGraphKernelNodeSetAttribute cuStreamCopyAttributes cuStreamCopyAttributes_ptsz cuStreamGetAttribute \
    cuStreamGetAttribute_ptsz cuStreamSetAttribute cuStreamSetAttribute_ptsz cuGraphInstantiate_v2 \
    cuDeviceGetTexture1DLinearMaxWidth cuGraphUpload cuGraphUpload_ptsz cuArrayGetSparseProperties \
    cuMipmappedArrayGetSparseProperties cuMemMapArrayAsync cuMemMapArrayAsync_ptsz \
    cuGraphExecChildGraphNodeSetParams cuEventRecordWithFlags cuEventRecordWithFlags_ptsz cuGraphAddEventRecordNode \
    cuGraphAddEventWaitNode cuGraphEventRecordNodeGetEvent cuGraphEventWaitNodeGetEvent \
    cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeSetEvent cuGraphExecEventRecordNodeSetEvent \
    cuGraphExecEventWaitNodeSetEvent cuArrayGetPlane cuMemAllocAsync cuMemAllocAsync_ptsz cuMemFreeAsync \
    cuMemFreeAsync_ptsz cuMemPoolTrimTo cuMemPoolSetAttribute cuMemPoolGetAttribute cuMemPoolSetAccess \
    cuDeviceGetDefaultMemPool cuMemPoolCreate cuMemPoolDestroy cuDeviceSetMemPool cuDeviceGetMemPool \
    cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemPoolExportToShareableHandle \
    cuMemPoolImportFromShareableHandle cuMemPoolExportPointer cuMemPoolImportPointer cuMemPoolGetAccess \
    cuGraphAddExternalSemaphoresSignalNode cuGraphExternalSemaphoresSignalNodeGetParams \
    cuGraphExternalSemaphoresSignalNodeSetParams cuGraphAddExternalSemaphoresWaitNode \
    cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams \
    cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams cuGetProcAddress \
    cuFlushGPUDirectRDMAWrites cuGraphDebugDotPrint cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz \
    cuStreamUpdateCaptureDependencies cuStreamUpdateCaptureDependencies_ptsz cuUserObjectCreate cuUserObjectRetain \
    cuUserObjectRelease cuGraphRetainUserObject cuGraphReleaseUserObject cuGraphAddMemAllocNode \
    cuGraphAddMemFreeNode cuDeviceGraphMemTrim cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute \
    cuGraphInstantiateWithFlags cuDeviceGetExecAffinitySupport cuCtxCreate_v3 cuCtxGetExecAffinity \
    cuDeviceGetUuid_v2 cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuGraphNodeSetEnabled \
    cuGraphNodeGetEnabled cuLaunchKernelEx cuLaunchKernelEx_ptsz cuArrayGetMemoryRequirements \
    cuMipmappedArrayGetMemoryRequirements cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz \
    cuGraphExecGetFlags cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64_v2 \
    cuStreamWaitValue64_v2_ptsz cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64_v2 \
    cuStreamWriteValue64_v2_ptsz cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz cuGraphAddBatchMemOpNode \
    cuGraphBatchMemOpNodeGetParams cuGraphBatchMemOpNodeSetParams cuGraphExecBatchMemOpNodeSetParams \
    cuModuleGetLoadingMode cuMemGetHandleForAddressRange cuOccupancyMaxPotentialClusterSize \
    cuOccupancyMaxActiveClusters cuGetProcAddress_v2 cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload \
    cuLibraryGetKernel cuLibraryGetModule cuKernelGetFunction cuLibraryGetGlobal cuLibraryGetManaged \
    cuKernelGetAttribute cuKernelSetAttribute cuKernelSetCacheConfig cuGraphAddKernelNode_v2 \
    cuGraphKernelNodeGetParams_v2 cuGraphKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams_v2 cuStreamGetId \
    cuStreamGetId_ptsz cuCtxGetId cuGraphExecUpdate_v2 cuTensorMapEncodeTiled cuTensorMapEncodeIm2col \
    cuTensorMapReplaceAddress cuLibraryGetUnifiedFunction cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal \
    cuCoredumpSetAttribute cuCoredumpSetAttributeGlobal cuCtxSetFlags cuMulticastCreate cuMulticastAddDevice \
    cuMulticastBindMem cuMulticastBindAddr cuMulticastUnbind cuMulticastGetGranularity cuGraphAddNode \
    cuGraphNodeSetParams cuGraphExecNodeSetParams cuMemAdvise_v2 cuMemPrefetchAsync_v2 cuMemPrefetchAsync_v2_ptsz \
    cuFuncGetName cuKernelGetName cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz \
    cuGraphConditionalHandleCreate cuGraphAddNode_v2 cuGraphGetEdges_v2 cuGraphNodeGetDependencies_v2 \
    cuGraphNodeGetDependentNodes_v2 cuGraphAddDependencies_v2 cuGraphRemoveDependencies_v2 cuStreamGetCaptureInfo_v3 \
    cuStreamGetCaptureInfo_v3_ptsz cuStreamUpdateCaptureDependencies_v2 cuStreamUpdateCaptureDependencies_v2_ptsz \
    cuFuncGetParamInfo cuKernelGetParamInfo cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification \
    cuModuleGetFunctionCount cuModuleEnumerateFunctions cuLibraryGetKernelCount cuLibraryEnumerateKernels \
    cuFuncIsLoaded cuFuncLoad cuGreenCtxCreate cuGreenCtxDestroy cuDeviceGetDevResource cuCtxGetDevResource \
    cuGreenCtxGetDevResource cuDevResourceGenerateDesc cuGreenCtxRecordEvent cuGreenCtxWaitEvent \
    cuDevSmResourceSplitByCount cuStreamGetGreenCtx cuCtxFromGreenCtx cuKernelGetLibrary cuCtxRecordEvent \
    cuCtxWaitEvent cuCtxCreate_v4 cuGreenCtxStreamCreate cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz \
    cuMemBatchDecompressAsync cuMemBatchDecompressAsync_ptsz cuLogsRegisterCallback cuLogsUnregisterCallback \
    cuLogsCurrent cuLogsDumpToFile cuLogsDumpToMemory cuCheckpointProcessGetRestoreThreadId \
    cuCheckpointProcessGetState cuCheckpointProcessLock cuCheckpointProcessCheckpoint cuCheckpointProcessRestore \
    cuCheckpointProcessUnlock cuStreamGetDevice cuStreamGetDevice_ptsz cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz \
    cuMemcpy3DBatchAsync cuMemcpy3DBatchAsync_ptsz cuEventElapsedTime_v2 cuTensorMapEncodeIm2colWide cuGreenCtxGetId \
    cuStreamCreateForCaptureToCig cuMemPrefetchBatchAsync cuMemPrefetchBatchAsync_ptsz cuSemaphoreCreate \
    cuSemaphoreExport cuSemaphoreDestroy cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz \
    cuMemDiscardAndPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync_ptsz cuMultiKernelCooperativeDomainCreate \
    cuMultiKernelCooperativeDomainDestroy cuCtxGetDevice_v2 cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz \
    cuMemcpy3DBatchAsync_v2 cuMemcpy3DBatchAsync_v2_ptsz cuCtxSynchronize_v2 cuMemGetDefaultMemPool cuMemGetMemPool \
    cuMemSetMemPool cuDeviceGetP2PAtomicCapabilities cuDeviceGetHostAtomicCapabilities cuDriverGetGpuCodeIsaVersion";
