// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cuGetProcAddress`: functions by name and CUDA version.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use gpgpu_protocol::cuda::{
    CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    CU_GET_PROC_ADDRESS_SUCCESS, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND,
    CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_FOUND,
    CUdriverProcAddressQueryResult,
};
use gpgpu_protocol::driver_api::ENTRY_POINTS;

use crate::config::DRIVER_VERSION;
use crate::ffi::{Pointer, Result, Text, export};

/// The functions of this library: their addresses by symbol. One that is not listed here is not found by name.
fn addresses() -> HashMap<&'static str, usize> {
    macro_rules! functions {
        ($($module:ident: $($function:ident)*;)*) => {
            HashMap::from([$($((stringify!($function), super::$module::$function as *const () as usize),)*)*])
        };
    }
    let mut all = functions! {
        array:
            cuArray3DCreate_v2 cuArray3DGetDescriptor_v2 cuArrayCreate_v2 cuArrayDestroy cuArrayGetDescriptor_v2
            cuArrayGetMemoryRequirements cuArrayGetPlane cuArrayGetSparseProperties cuDeviceGetTexture1DLinearMaxWidth
            cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMipmappedArrayGetLevel cuMipmappedArrayGetMemoryRequirements
            cuMipmappedArrayGetSparseProperties;
        array_copy:
            cuMemcpyAtoA_v2 cuMemcpyAtoA_v2_ptds cuMemcpyAtoD_v2 cuMemcpyAtoD_v2_ptds cuMemcpyAtoHAsync_v2
            cuMemcpyAtoHAsync_v2_ptsz cuMemcpyAtoH_v2 cuMemcpyAtoH_v2_ptds cuMemcpyDtoA_v2 cuMemcpyDtoA_v2_ptds
            cuMemcpyHtoAAsync_v2 cuMemcpyHtoAAsync_v2_ptsz cuMemcpyHtoA_v2 cuMemcpyHtoA_v2_ptds;
        texture:
            cuSurfObjectCreate cuSurfObjectDestroy cuSurfObjectGetResourceDesc cuTexObjectCreate cuTexObjectDestroy
            cuTexObjectGetResourceDesc cuTexObjectGetResourceViewDesc cuTexObjectGetTextureDesc;
        texture_reference:
            cuModuleGetSurfRef cuModuleGetTexRef cuSurfRefGetArray cuSurfRefSetArray cuTexRefCreate cuTexRefDestroy
            cuTexRefGetAddressMode cuTexRefGetAddress_v2 cuTexRefGetArray cuTexRefGetBorderColor cuTexRefGetFilterMode
            cuTexRefGetFlags cuTexRefGetFormat cuTexRefGetMaxAnisotropy cuTexRefGetMipmapFilterMode
            cuTexRefGetMipmapLevelBias cuTexRefGetMipmapLevelClamp cuTexRefGetMipmappedArray cuTexRefSetAddress2D_v2
            cuTexRefSetAddress2D_v3 cuTexRefSetAddressMode cuTexRefSetAddress_v2 cuTexRefSetArray cuTexRefSetBorderColor
            cuTexRefSetFilterMode cuTexRefSetFlags cuTexRefSetFormat cuTexRefSetMaxAnisotropy
            cuTexRefSetMipmapFilterMode cuTexRefSetMipmapLevelBias cuTexRefSetMipmapLevelClamp
            cuTexRefSetMipmappedArray;
        context:
            cuCtxCreate cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy cuCtxDestroy_v2 cuCtxDisablePeerAccess
            cuCtxEnablePeerAccess cuCtxGetApiVersion cuCtxGetCacheConfig cuCtxGetCurrent cuCtxGetDevice cuCtxGetDevice_v2
            cuCtxGetFlags cuCtxGetId cuCtxGetLimit cuCtxGetSharedMemConfig cuCtxGetStreamPriorityRange cuCtxPopCurrent
            cuCtxPopCurrent_v2 cuCtxPushCurrent cuCtxPushCurrent_v2 cuCtxResetPersistingL2Cache cuCtxSetCacheConfig
            cuCtxSetCurrent cuCtxSetFlags cuCtxSetLimit cuCtxSetSharedMemConfig cuCtxSynchronize cuCtxSynchronize_v2;
        copy:
            cuMemcpy cuMemcpyAsync cuMemcpyAsync_ptsz cuMemcpyDtoDAsync_v2 cuMemcpyDtoDAsync_v2_ptsz cuMemcpyDtoD_v2
            cuMemcpyDtoD_v2_ptds cuMemcpyDtoHAsync_v2 cuMemcpyDtoHAsync_v2_ptsz cuMemcpyDtoH_v2 cuMemcpyDtoH_v2_ptds
            cuMemcpyHtoDAsync_v2 cuMemcpyHtoDAsync_v2_ptsz cuMemcpyHtoD_v2 cuMemcpyHtoD_v2_ptds cuMemcpyPeer cuMemcpyPeerAsync
            cuMemcpyPeerAsync_ptsz cuMemcpyPeer_ptds cuMemcpy_ptds;
        copy2d:
            cuMemcpy2DAsync_v2 cuMemcpy2DAsync_v2_ptsz cuMemcpy2DUnaligned_v2 cuMemcpy2DUnaligned_v2_ptds cuMemcpy2D_v2
            cuMemcpy2D_v2_ptds;
        copy3d:
            cuMemcpy3DAsync_v2 cuMemcpy3DAsync_v2_ptsz cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz cuMemcpy3DPeer_ptds
            cuMemcpy3D_v2 cuMemcpy3D_v2_ptds;
        copy_batch:
            cuMemcpyBatchAsync cuMemcpyBatchAsync_ptsz cuMemcpyBatchAsync_v2 cuMemcpyBatchAsync_v2_ptsz;
        device:
            cuDeviceCanAccessPeer cuDeviceComputeCapability cuDeviceGet cuDeviceGetAttribute cuDeviceGetByPCIBusId
            cuDeviceGetCount cuDeviceGetExecAffinitySupport cuDeviceGetLuid cuDeviceGetName cuDeviceGetP2PAttribute
            cuDeviceGetPCIBusId cuDeviceGetProperties cuDeviceGetUuid cuDeviceGetUuid_v2 cuDeviceTotalMem_v2;
        error:
            cuGetErrorName cuGetErrorString;
        event:
            cuCtxRecordEvent cuCtxWaitEvent cuEventCreate cuEventDestroy cuEventDestroy_v2 cuEventElapsedTime cuEventElapsedTime_v2 cuEventQuery cuEventRecord
            cuEventRecordWithFlags cuEventRecordWithFlags_ptsz cuEventRecord_ptsz cuEventSynchronize;
        function:
            cuFuncGetAttribute cuFuncGetModule cuFuncGetName cuFuncGetParamInfo cuFuncIsLoaded cuFuncLoad cuFuncSetAttribute
            cuFuncSetCacheConfig cuFuncSetSharedMemConfig;
        host_memory:
            cuMemAllocHost cuMemAllocHost_v2 cuMemFreeHost cuMemHostAlloc cuMemHostGetDevicePointer_v2 cuMemHostGetFlags
            cuMemHostRegister cuMemHostRegister_v2 cuMemHostUnregister;
        init:
            cuDriverGetVersion cuGetExportTable cuInit;
        kernel:
            cuKernelGetAttribute cuKernelGetFunction cuKernelGetLibrary cuKernelGetName cuKernelGetParamInfo cuKernelSetAttribute
            cuKernelSetCacheConfig;
        launch:
            cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz cuLaunchHostFunc cuLaunchHostFunc_ptsz cuLaunchKernel
            cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchKernel_ptsz cuStreamAddCallback cuStreamAddCallback_ptsz;
        library:
            cuLibraryEnumerateKernels cuLibraryGetGlobal cuLibraryGetKernel cuLibraryGetKernelCount cuLibraryGetManaged
            cuLibraryGetModule cuLibraryGetUnifiedFunction cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload;
        link:
            cuLinkAddData cuLinkAddData_v2 cuLinkAddFile cuLinkAddFile_v2 cuLinkComplete cuLinkCreate cuLinkCreate_v2 cuLinkDestroy;
        memory:
            cuMemAllocManaged cuMemAllocPitch_v2 cuMemAlloc_v2 cuMemFree_v2 cuMemGetAddressRange_v2 cuMemGetInfo_v2;
        memset:
            cuMemsetD16Async cuMemsetD16Async_ptsz cuMemsetD16_v2 cuMemsetD16_v2_ptds cuMemsetD2D16Async cuMemsetD2D16Async_ptsz
            cuMemsetD2D16_v2 cuMemsetD2D16_v2_ptds cuMemsetD2D32Async cuMemsetD2D32Async_ptsz cuMemsetD2D32_v2
            cuMemsetD2D32_v2_ptds cuMemsetD2D8Async cuMemsetD2D8Async_ptsz cuMemsetD2D8_v2 cuMemsetD2D8_v2_ptds cuMemsetD32Async
            cuMemsetD32Async_ptsz cuMemsetD32_v2 cuMemsetD32_v2_ptds cuMemsetD8Async cuMemsetD8Async_ptsz cuMemsetD8_v2
            cuMemsetD8_v2_ptds;
        module:
            cuModuleEnumerateFunctions cuModuleGetFunction cuModuleGetFunctionCount cuModuleGetGlobal_v2 cuModuleGetLoadingMode
            cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload;
        occupancy:
            cuOccupancyAvailableDynamicSMemPerBlock cuOccupancyMaxActiveBlocksPerMultiprocessor
            cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags cuOccupancyMaxActiveClusters cuOccupancyMaxPotentialBlockSize
            cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyMaxPotentialClusterSize;
        pointer:
            cuPointerGetAttribute cuPointerGetAttributes cuPointerSetAttribute;
        pool:
            cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool cuMemAllocAsync cuMemAllocAsync_ptsz
            cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz cuMemPoolCreate
            cuMemPoolDestroy cuMemPoolGetAccess cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolSetAttribute cuMemPoolTrimTo;
        primary_context:
            cuDevicePrimaryCtxGetState cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset
            cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxRetain cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2;
        proc_address:
            cuGetProcAddress cuGetProcAddress_v2;
        green:
            cuCtxFromGreenCtx cuCtxGetDevResource cuDevResourceGenerateDesc cuDevSmResourceSplitByCount cuDeviceGetDevResource
            cuGreenCtxCreate cuGreenCtxDestroy cuGreenCtxGetDevResource cuGreenCtxGetId cuGreenCtxRecordEvent
            cuGreenCtxStreamCreate cuGreenCtxWaitEvent;
        stream:
            cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz
            cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy cuStreamDestroy_v2 cuStreamGetCtx cuStreamGetCtx_ptsz
            cuStreamGetCtx_v2 cuStreamGetCtx_v2_ptsz cuStreamGetDevice cuStreamGetDevice_ptsz cuStreamGetFlags
            cuStreamGetFlags_ptsz cuStreamGetGreenCtx cuStreamGetId cuStreamGetId_ptsz cuStreamGetPriority cuStreamGetPriority_ptsz cuStreamQuery
            cuStreamQuery_ptsz cuStreamSynchronize cuStreamSynchronize_ptsz cuStreamWaitEvent cuStreamWaitEvent_ptsz;
        stream_attribute:
            cuStreamCopyAttributes cuStreamCopyAttributes_ptsz cuStreamGetAttribute cuStreamGetAttribute_ptsz cuStreamSetAttribute
            cuStreamSetAttribute_ptsz;
        stream_memory:
            cuStreamBatchMemOp cuStreamBatchMemOp_ptsz cuStreamBatchMemOp_v2 cuStreamBatchMemOp_v2_ptsz cuStreamWaitValue32 cuStreamWaitValue32_ptsz cuStreamWaitValue32_v2 cuStreamWaitValue32_v2_ptsz cuStreamWaitValue64
            cuStreamWaitValue64_ptsz cuStreamWaitValue64_v2 cuStreamWaitValue64_v2_ptsz cuStreamWriteValue32
            cuStreamWriteValue32_ptsz cuStreamWriteValue32_v2 cuStreamWriteValue32_v2_ptsz cuStreamWriteValue64
            cuStreamWriteValue64_ptsz cuStreamWriteValue64_v2 cuStreamWriteValue64_v2_ptsz;
        tensor_map:
            cuTensorMapEncodeIm2col cuTensorMapEncodeIm2colWide cuTensorMapEncodeTiled cuTensorMapReplaceAddress;
        virtual_memory:
            cuMemAddressFree cuMemAddressReserve cuMemCreate cuMemExportToShareableHandle cuMemGetAccess
            cuMemGetAllocationGranularity cuMemGetAllocationPropertiesFromHandle cuMemImportFromShareableHandle cuMemMap
            cuMemRelease cuMemRetainAllocationHandle cuMemSetAccess cuMemUnmap;
    };
    all.extend(super::graph::addresses());
    all
}

/// One version of a function.
struct Version {
    /// The CUDA version that introduced it.
    since: c_int,
    /// The function.
    address: usize,
    /// Its variant for the per-thread default stream.
    per_thread: Option<usize>,
}

// The versions of a name that this library has, oldest first.
fn versions(name: &str) -> Option<&'static [Version]> {
    static TABLE: OnceLock<HashMap<&'static str, Vec<Version>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let addresses = addresses();
        let mut table: HashMap<_, Vec<Version>> = HashMap::new();
        for entry in ENTRY_POINTS {
            let Some(&address) = addresses.get(entry.symbol) else {
                continue;
            };
            let versions = table.entry(entry.name).or_default();
            if !entry.per_thread {
                versions.push(Version {
                    since: entry.since as c_int,
                    address,
                    per_thread: None,
                });
            } else if let Some(version) = versions.last_mut() {
                // A variant follows its function in the list.
                version.per_thread = Some(address);
            }
        }
        table
    });
    table.get(name).map(Vec::as_slice)
}

fn find(
    name: &str,
    version: c_int,
    per_thread: bool,
) -> (*mut c_void, CUdriverProcAddressQueryResult) {
    let Some(versions) = versions(name) else {
        return (std::ptr::null_mut(), CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    };
    // The default streams of threads came with CUDA 7.
    let too_old = |e: &Version| per_thread && e.per_thread.is_some() && version < 7000;
    match versions
        .iter()
        .rev()
        .find(|e| e.since <= version)
        .filter(|e| !too_old(e))
    {
        Some(entry) => {
            let address = entry
                .per_thread
                .filter(|_| per_thread)
                .unwrap_or(entry.address);
            (address as *mut c_void, CU_GET_PROC_ADDRESS_SUCCESS)
        }
        None => (
            std::ptr::null_mut(),
            CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT,
        ),
    }
}

fn look_up(
    name: Text,
    out: Pointer<*mut c_void>,
    version: c_int,
    flags: u64,
) -> Result<CUdriverProcAddressQueryResult> {
    let name = name.name()?;
    out.required()?;
    let known = u64::from(
        CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM,
    );
    if flags & !known != 0 || flags == known || version > DRIVER_VERSION {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let per_thread = flags == u64::from(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    let (address, status) = find(&name, version, per_thread);
    out.set(address)?;
    Ok(status)
}

export! {
    /// `cuGetProcAddress`, of CUDA 11.3: `CUDA_ERROR_NOT_FOUND` where there is no such function.
    always fn cuGetProcAddress(name: Text, out: Pointer<*mut c_void>, version: c_int, flags: u64) |()| {
        match look_up(name, out, version, flags)? {
            CU_GET_PROC_ADDRESS_SUCCESS => Ok(()),
            _ => Err(CUDA_ERROR_NOT_FOUND),
        }
    }

    /// `cuGetProcAddress`, of CUDA 12.0: `status`, if not NULL, says why `out` is NULL.
    always fn cuGetProcAddress_v2(name: Text, out: Pointer<*mut c_void>, version: c_int, flags: u64, status: Pointer<CUdriverProcAddressQueryResult>) |()| {
        let found = look_up(name, out, version, flags)?;
        status.set_if(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_decides() {
        let (v2, status) = find("cuCtxCreate", 11000, false);
        assert_eq!(status, CU_GET_PROC_ADDRESS_SUCCESS);
        assert_eq!(v2, super::super::context::cuCtxCreate_v2 as *mut c_void);
        assert_eq!(
            find("cuCtxCreate", 13000, false).0,
            super::super::context::cuCtxCreate_v4 as *mut c_void
        );
        assert_eq!(
            find("cuLibraryLoadData", 11080, false).1,
            CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
        );
        assert_eq!(
            find("cuNothing", 13000, false).1,
            CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
        );
        // Versions are asked for by number: a suffixed name is no name.
        assert_eq!(
            find("cuMemAlloc_v2", 13000, false).1,
            CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
        );
    }

    #[test]
    fn every_function_is_found_by_its_name_and_version() {
        let addresses = addresses();
        let mut found = 0;
        for entry in ENTRY_POINTS {
            if let Some(&address) = addresses.get(entry.symbol) {
                let answer = find(entry.name, entry.since as c_int, entry.per_thread);
                assert_eq!(
                    answer,
                    (address as *mut c_void, CU_GET_PROC_ADDRESS_SUCCESS),
                    "{}",
                    entry.symbol
                );
                found += 1;
            }
        }
        assert_eq!(found, addresses.len());
    }

    #[test]
    fn per_thread_variants_are_found_where_there_are_any() {
        let legacy = find("cuLaunchKernel", 13000, false).0;
        let per_thread = find("cuLaunchKernel", 13000, true).0;
        assert_ne!(legacy, per_thread);
        assert_eq!(
            find("cuMemAlloc", 13000, false),
            find("cuMemAlloc", 13000, true)
        );
    }
}
