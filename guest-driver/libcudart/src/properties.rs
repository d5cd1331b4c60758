// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cudaDeviceProp`, with the exact layout of each version's headers.

use crate::context::DEVICES;
use crate::driver::{Driver, driver};
use crate::error::{self, Result};
use gpgpu_protocol::cuda::*;
use std::ffi::{c_char, c_int, c_uint};
use std::mem::offset_of;
use std::sync::OnceLock;

/// The source of a field of `cudaDeviceProp`.
trait Field {
    /// Stores the driver's answers.
    fn put(&mut self, values: &[c_int]);
}

impl Field for c_int {
    fn put(&mut self, values: &[c_int]) {
        *self = values.first().copied().unwrap_or(0);
    }
}

impl Field for c_uint {
    fn put(&mut self, values: &[c_int]) {
        *self = values.first().map_or(0, |value| value.cast_unsigned());
    }
}

impl Field for usize {
    fn put(&mut self, values: &[c_int]) {
        // Sizes of up to 4 GiB are returned in the bits of an int.
        *self = values
            .first()
            .map_or(0, |value| value.cast_unsigned() as usize);
    }
}

impl<const N: usize> Field for [c_int; N] {
    fn put(&mut self, values: &[c_int]) {
        for (to, from) in self.iter_mut().zip(values) {
            *to = *from;
        }
    }
}

/// The driver's answers for a list of attributes; 0 for an attribute that it does not know.
fn ask<const N: usize>(
    driver: &Driver,
    device: CUdevice,
    attributes: [CUdevice_attribute; N],
) -> [c_int; N] {
    attributes.map(|attribute| {
        let mut value = 0;
        // SAFETY: `value` outlives the call.
        match unsafe { driver.cuDeviceGetAttribute(&mut value, attribute, device) } {
            Ok(()) => value,
            Err(_) => 0,
        }
    })
}

/// Declares one version of the structure: the fields in the headers' order, each with the device attributes that fill
/// it. A field without attributes is filled by hand, or reserved.
macro_rules! device_prop {
    ($name:ident { $($field:ident: $ty:ty $(= $($attribute:expr),+)?;)* }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name {
            $(pub $field: $ty,)*
        }

        impl $name {
            /// The constant properties of `device` from the driver, queried once.
            fn known(driver: &Driver, device: CUdevice) -> Result<&'static Self> {
                static KNOWN: [OnceLock<$name>; DEVICES] = [const { OnceLock::new() }; DEVICES];
                let known = usize::try_from(device).ok().and_then(|index| KNOWN.get(index));
                let known = known.ok_or(error::INVALID_DEVICE)?;
                match known.get() {
                    Some(prop) => Ok(prop),
                    None => {
                        let prop = Self::of(driver, device)?;
                        Ok(known.get_or_init(|| prop))
                    }
                }
            }

            /// The properties of `device` from the driver.
            fn of(driver: &Driver, device: CUdevice) -> Result<Self> {
                // SAFETY: integers and arrays of them, for all of which zero is a value.
                let mut prop: Self = unsafe { std::mem::zeroed() };
                // SAFETY: the buffers outlive the calls and are as long as they are said to be.
                unsafe {
                    driver.cuDeviceGetName(prop.name.as_mut_ptr(), 256, device)?;
                    let mut uuid = CUuuid::default();
                    if driver.cuDeviceGetUuid(&mut uuid, device).is_ok() {
                        prop.uuid = uuid.bytes;
                    }
                    // Only Windows has these values.
                    let _ = driver.cuDeviceGetLuid(
                        prop.luid.as_mut_ptr(),
                        &mut prop.luidDeviceNodeMask,
                        device,
                    );
                    driver.cuDeviceTotalMem(&mut prop.totalGlobalMem, device)?;
                }
                $($(Field::put(&mut prop.$field, &ask(driver, device, [$($attribute),+]));)?)*
                Ok(prop)
            }
        }
    };
}

device_prop! { DeviceProp12 {
    name: [c_char; 256];
    uuid: [u8; 16];
    luid: [c_char; 8];
    luidDeviceNodeMask: c_uint;
    totalGlobalMem: usize;
    sharedMemPerBlock: usize = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
    regsPerBlock: c_int = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
    warpSize: c_int = CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    memPitch: usize = CU_DEVICE_ATTRIBUTE_MAX_PITCH;
    maxThreadsPerBlock: c_int = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    maxThreadsDim: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z;
    maxGridSize: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z;
    clockRate: c_int = CU_DEVICE_ATTRIBUTE_CLOCK_RATE;
    totalConstMem: usize = CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY;
    major: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    minor: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    textureAlignment: usize = CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT;
    texturePitchAlignment: usize = CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT;
    deviceOverlap: c_int = CU_DEVICE_ATTRIBUTE_GPU_OVERLAP;
    multiProcessorCount: c_int = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    kernelExecTimeoutEnabled: c_int = CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT;
    integrated: c_int = CU_DEVICE_ATTRIBUTE_INTEGRATED;
    canMapHostMemory: c_int = CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
    computeMode: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_MODE;
    maxTexture1D: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH;
    maxTexture1DMipmap: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH;
    maxTexture1DLinear: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH;
    maxTexture2D: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT;
    maxTexture2DMipmap: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT;
    maxTexture2DLinear: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH;
    maxTexture2DGather: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT;
    maxTexture3D: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH;
    maxTexture3DAlt: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE;
    maxTextureCubemap: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH;
    maxTexture1DLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS;
    maxTexture2DLayered: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS;
    maxTextureCubemapLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS;
    maxSurface1D: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH;
    maxSurface2D: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT;
    maxSurface3D: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH;
    maxSurface1DLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS;
    maxSurface2DLayered: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS;
    maxSurfaceCubemap: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH;
    maxSurfaceCubemapLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS;
    surfaceAlignment: usize = CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT;
    concurrentKernels: c_int = CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS;
    ECCEnabled: c_int = CU_DEVICE_ATTRIBUTE_ECC_ENABLED;
    pciBusID: c_int = CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
    pciDeviceID: c_int = CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID;
    pciDomainID: c_int = CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID;
    tccDriver: c_int = CU_DEVICE_ATTRIBUTE_TCC_DRIVER;
    asyncEngineCount: c_int = CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT;
    unifiedAddressing: c_int = CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
    memoryClockRate: c_int = CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE;
    memoryBusWidth: c_int = CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
    l2CacheSize: c_int = CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
    persistingL2CacheMaxSize: c_int = CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE;
    maxThreadsPerMultiProcessor: c_int = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
    streamPrioritiesSupported: c_int = CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED;
    globalL1CacheSupported: c_int = CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED;
    localL1CacheSupported: c_int = CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED;
    sharedMemPerMultiprocessor: usize = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    regsPerMultiprocessor: c_int = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR;
    managedMemory: c_int = CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY;
    isMultiGpuBoard: c_int = CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD;
    multiGpuBoardGroupID: c_int = CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID;
    hostNativeAtomicSupported: c_int = CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED;
    singleToDoublePrecisionPerfRatio: c_int = CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO;
    pageableMemoryAccess: c_int = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
    concurrentManagedAccess: c_int = CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    computePreemptionSupported: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED;
    canUseHostPointerForRegisteredMem: c_int = CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    cooperativeLaunch: c_int = CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH;
    cooperativeMultiDeviceLaunch: c_int = CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH;
    sharedMemPerBlockOptin: usize = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    pageableMemoryAccessUsesHostPageTables: c_int = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
    directManagedMemAccessFromHost: c_int = CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST;
    maxBlocksPerMultiProcessor: c_int = CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR;
    accessPolicyMaxWindowSize: c_int = CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE;
    reservedSharedMemPerBlock: usize = CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK;
    hostRegisterSupported: c_int = CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
    sparseCudaArraySupported: c_int = CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED;
    hostRegisterReadOnlySupported: c_int = CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    timelineSemaphoreInteropSupported: c_int = CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED;
    memoryPoolsSupported: c_int = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    gpuDirectRDMASupported: c_int = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED;
    gpuDirectRDMAFlushWritesOptions: c_uint = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS;
    gpuDirectRDMAWritesOrdering: c_int = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING;
    memoryPoolSupportedHandleTypes: c_uint = CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
    deferredMappingCudaArraySupported: c_int = CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED;
    ipcEventSupported: c_int = CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED;
    clusterLaunch: c_int = CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH;
    unifiedFunctionPointers: c_int = CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS;
    reserved: [c_int; 63];
} }
device_prop! { DeviceProp13 {
    name: [c_char; 256];
    uuid: [u8; 16];
    luid: [c_char; 8];
    luidDeviceNodeMask: c_uint;
    totalGlobalMem: usize;
    sharedMemPerBlock: usize = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK;
    regsPerBlock: c_int = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK;
    warpSize: c_int = CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    memPitch: usize = CU_DEVICE_ATTRIBUTE_MAX_PITCH;
    maxThreadsPerBlock: c_int = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    maxThreadsDim: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z;
    maxGridSize: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z;
    totalConstMem: usize = CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY;
    major: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR;
    minor: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR;
    textureAlignment: usize = CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT;
    texturePitchAlignment: usize = CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT;
    multiProcessorCount: c_int = CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    integrated: c_int = CU_DEVICE_ATTRIBUTE_INTEGRATED;
    canMapHostMemory: c_int = CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY;
    maxTexture1D: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH;
    maxTexture1DMipmap: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH;
    maxTexture2D: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT;
    maxTexture2DMipmap: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT;
    maxTexture2DLinear: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH;
    maxTexture2DGather: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT;
    maxTexture3D: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH;
    maxTexture3DAlt: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE;
    maxTextureCubemap: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH;
    maxTexture1DLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS;
    maxTexture2DLayered: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS;
    maxTextureCubemapLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS;
    maxSurface1D: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH;
    maxSurface2D: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT;
    maxSurface3D: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH;
    maxSurface1DLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS;
    maxSurface2DLayered: [c_int; 3] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS;
    maxSurfaceCubemap: c_int = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH;
    maxSurfaceCubemapLayered: [c_int; 2] = CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH, CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS;
    surfaceAlignment: usize = CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT;
    concurrentKernels: c_int = CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS;
    ECCEnabled: c_int = CU_DEVICE_ATTRIBUTE_ECC_ENABLED;
    pciBusID: c_int = CU_DEVICE_ATTRIBUTE_PCI_BUS_ID;
    pciDeviceID: c_int = CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID;
    pciDomainID: c_int = CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID;
    tccDriver: c_int = CU_DEVICE_ATTRIBUTE_TCC_DRIVER;
    asyncEngineCount: c_int = CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT;
    unifiedAddressing: c_int = CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING;
    memoryBusWidth: c_int = CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
    l2CacheSize: c_int = CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE;
    persistingL2CacheMaxSize: c_int = CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE;
    maxThreadsPerMultiProcessor: c_int = CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR;
    streamPrioritiesSupported: c_int = CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED;
    globalL1CacheSupported: c_int = CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED;
    localL1CacheSupported: c_int = CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED;
    sharedMemPerMultiprocessor: usize = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR;
    regsPerMultiprocessor: c_int = CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR;
    managedMemory: c_int = CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY;
    isMultiGpuBoard: c_int = CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD;
    multiGpuBoardGroupID: c_int = CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID;
    hostNativeAtomicSupported: c_int = CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED;
    pageableMemoryAccess: c_int = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS;
    concurrentManagedAccess: c_int = CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
    computePreemptionSupported: c_int = CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED;
    canUseHostPointerForRegisteredMem: c_int = CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM;
    cooperativeLaunch: c_int = CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH;
    sharedMemPerBlockOptin: usize = CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    pageableMemoryAccessUsesHostPageTables: c_int = CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES;
    directManagedMemAccessFromHost: c_int = CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST;
    maxBlocksPerMultiProcessor: c_int = CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR;
    accessPolicyMaxWindowSize: c_int = CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE;
    reservedSharedMemPerBlock: usize = CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK;
    hostRegisterSupported: c_int = CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED;
    sparseCudaArraySupported: c_int = CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED;
    hostRegisterReadOnlySupported: c_int = CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED;
    timelineSemaphoreInteropSupported: c_int = CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED;
    memoryPoolsSupported: c_int = CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
    gpuDirectRDMASupported: c_int = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED;
    gpuDirectRDMAFlushWritesOptions: c_uint = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS;
    gpuDirectRDMAWritesOrdering: c_int = CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING;
    memoryPoolSupportedHandleTypes: c_uint = CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES;
    deferredMappingCudaArraySupported: c_int = CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED;
    ipcEventSupported: c_int = CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED;
    clusterLaunch: c_int = CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH;
    unifiedFunctionPointers: c_int = CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS;
    deviceNumaConfig: c_int = CU_DEVICE_ATTRIBUTE_NUMA_CONFIG;
    deviceNumaId: c_int = CU_DEVICE_ATTRIBUTE_NUMA_ID;
    mpsEnabled: c_int = CU_DEVICE_ATTRIBUTE_MPS_ENABLED;
    hostNumaId: c_int = CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID;
    gpuPciDeviceID: c_uint = CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID;
    gpuPciSubsystemID: c_uint = CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID;
    hostNumaMultinodeIpcSupported: c_int = CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED;
    reserved: [c_int; 56];
} }

// The offsets in the headers of CUDA 12.9 and 13.0.
const _: () = {
    use std::mem::size_of;
    assert!(size_of::<DeviceProp12>() == 1032);
    assert!(offset_of!(DeviceProp12, luidDeviceNodeMask) == 280);
    assert!(offset_of!(DeviceProp12, totalGlobalMem) == 288);
    assert!(offset_of!(DeviceProp12, totalConstMem) == 352);
    assert!(offset_of!(DeviceProp12, multiProcessorCount) == 388);
    assert!(offset_of!(DeviceProp12, maxTexture1D) == 408);
    assert!(offset_of!(DeviceProp12, surfaceAlignment) == 568);
    assert!(offset_of!(DeviceProp12, concurrentKernels) == 576);
    assert!(offset_of!(DeviceProp12, sharedMemPerMultiprocessor) == 640);
    assert!(offset_of!(DeviceProp12, sharedMemPerBlockOptin) == 696);
    assert!(offset_of!(DeviceProp12, reservedSharedMemPerBlock) == 720);
    assert!(offset_of!(DeviceProp12, unifiedFunctionPointers) == 776);
    assert!(size_of::<DeviceProp13>() == 1008);
    assert!(offset_of!(DeviceProp13, totalConstMem) == 352);
    assert!(offset_of!(DeviceProp13, multiProcessorCount) == 384);
    assert!(offset_of!(DeviceProp13, maxTexture1D) == 396);
    assert!(offset_of!(DeviceProp13, surfaceAlignment) == 552);
    assert!(offset_of!(DeviceProp13, concurrentKernels) == 560);
    assert!(offset_of!(DeviceProp13, sharedMemPerMultiprocessor) == 624);
    assert!(offset_of!(DeviceProp13, sharedMemPerBlockOptin) == 672);
    assert!(offset_of!(DeviceProp13, reservedSharedMemPerBlock) == 696);
    assert!(offset_of!(DeviceProp13, unifiedFunctionPointers) == 752);
    assert!(offset_of!(DeviceProp13, reserved) == 784);
};

/// Writes the first `size` bytes of the driver's answer. Reserved fields stay unchanged, as observed with the runtimes
/// 12.9 and 13.0.
///
/// # Safety
/// `to` is writable for `size` bytes, which is no more than `T` has.
pub unsafe fn write_prefix<T>(full: &T, to: *mut u8, size: usize) {
    // SAFETY: promised by the caller.
    unsafe { std::ptr::copy_nonoverlapping((&raw const *full).cast(), to, size) };
}

/// The driver, after a check of the arguments.
fn checked<T>(prop: *mut T, device: c_int) -> Result<&'static Driver> {
    let driver = driver()?;
    if prop.is_null() {
        return Err(error::INVALID_VALUE);
    }
    crate::device::check_ordinal(driver, device)?;
    Ok(driver)
}

export! {
    fn cudart13_cudaGetDeviceProperties(prop: *mut DeviceProp13, device: c_int) {
        let full = DeviceProp13::known(checked(prop, device)?, device)?;
        write_prefix(full, prop.cast(), offset_of!(DeviceProp13, reserved));
        Ok(())
    }

    fn cudaGetDeviceProperties_v2(prop: *mut DeviceProp12, device: c_int) {
        let full = DeviceProp12::known(checked(prop, device)?, device)?;
        write_prefix(full, prop.cast(), offset_of!(DeviceProp12, reserved));
        Ok(())
    }

    // The structure of CUDA 11 is the beginning of the structure of CUDA 12.
    fn cudart12_cudaGetDeviceProperties(prop: *mut u8, device: c_int) {
        let full = DeviceProp12::known(checked(prop, device)?, device)?;
        write_prefix(full, prop, offset_of!(DeviceProp12, hostRegisterSupported));
        Ok(())
    }

    fn cudart13_cudaChooseDevice(device: *mut c_int, prop: *const DeviceProp13) {
        choose(device, prop, |prop| (prop.major, prop.minor, prop.totalGlobalMem, prop.multiProcessorCount))
    }

    fn cudart12_cudaChooseDevice(device: *mut c_int, prop: *const DeviceProp12) {
        choose(device, prop, |prop| (prop.major, prop.minor, prop.totalGlobalMem, prop.multiProcessorCount))
    }
}

/// The device that is closest to a description: the first one with the requested compute capability, memory and
/// multiprocessors, or else the first device.
fn choose<T>(
    chosen: *mut c_int,
    wanted: *const T,
    key: impl Fn(&T) -> (c_int, c_int, usize, c_int),
) -> Result<()> {
    let driver = driver()?;
    if chosen.is_null() || wanted.is_null() {
        return Err(error::INVALID_VALUE);
    }
    // SAFETY: not null, and the caller's to lend.
    let (major, minor, memory, processors) = key(unsafe { &*wanted });
    let found = (0..crate::device::count(driver)?).find(|&device| {
        let [a, b, c] = ask(
            driver,
            device,
            [
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            ],
        );
        let mut total = 0;
        // SAFETY: `total` outlives the call.
        let known = unsafe { driver.cuDeviceTotalMem(&mut total, device) }.is_ok();
        known && (a, b) >= (major, minor) && c >= processors && total >= memory
    });
    // SAFETY: not null, and the caller's to write.
    unsafe { chosen.write(found.unwrap_or(0)) };
    Ok(())
}
