// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The C ABI of the CUDA driver API, as far as this project speaks it: types and
//! constants under the names that CUDA's documentation gives them. Every enumeration is an
//! integer here, because any value can arrive from a caller.
#![allow(non_camel_case_types, missing_docs)]

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `CUmemAttach_flags`; the constants below are its values.
pub type CUmemAttach_flags = u32;
pub const CU_MEM_ATTACH_GLOBAL: CUmemAttach_flags = 1;
pub const CU_MEM_ATTACH_HOST: CUmemAttach_flags = 2;
pub const CU_MEM_ATTACH_SINGLE: CUmemAttach_flags = 4;

/// `CUctx_flags`; the constants below are its values.
pub type CUctx_flags = u32;
pub const CU_CTX_SCHED_AUTO: CUctx_flags = 0;
pub const CU_CTX_SCHED_SPIN: CUctx_flags = 1;
pub const CU_CTX_SCHED_YIELD: CUctx_flags = 2;
pub const CU_CTX_SCHED_BLOCKING_SYNC: CUctx_flags = 4;
pub const CU_CTX_BLOCKING_SYNC: CUctx_flags = 4;
pub const CU_CTX_SCHED_MASK: CUctx_flags = 7;
pub const CU_CTX_MAP_HOST: CUctx_flags = 8;
pub const CU_CTX_LMEM_RESIZE_TO_MAX: CUctx_flags = 16;
pub const CU_CTX_COREDUMP_ENABLE: CUctx_flags = 32;
pub const CU_CTX_USER_COREDUMP_ENABLE: CUctx_flags = 64;
pub const CU_CTX_SYNC_MEMOPS: CUctx_flags = 128;
pub const CU_CTX_FLAGS_MASK: CUctx_flags = 255;

/// `CUstream_flags`; the constants below are its values.
pub type CUstream_flags = u32;
pub const CU_STREAM_DEFAULT: CUstream_flags = 0;
pub const CU_STREAM_NON_BLOCKING: CUstream_flags = 1;

/// `CUevent_flags`; the constants below are its values.
pub type CUevent_flags = u32;
pub const CU_EVENT_DEFAULT: CUevent_flags = 0;
pub const CU_EVENT_BLOCKING_SYNC: CUevent_flags = 1;
pub const CU_EVENT_DISABLE_TIMING: CUevent_flags = 2;
pub const CU_EVENT_INTERPROCESS: CUevent_flags = 4;

/// `CUevent_record_flags`; the constants below are its values.
pub type CUevent_record_flags = u32;
pub const CU_EVENT_RECORD_DEFAULT: CUevent_record_flags = 0;
pub const CU_EVENT_RECORD_EXTERNAL: CUevent_record_flags = 1;

/// `CUevent_wait_flags`; the constants below are its values.
pub type CUevent_wait_flags = u32;
pub const CU_EVENT_WAIT_DEFAULT: CUevent_wait_flags = 0;
pub const CU_EVENT_WAIT_EXTERNAL: CUevent_wait_flags = 1;

/// `CUoccupancy_flags`; the constants below are its values.
pub type CUoccupancy_flags = u32;
pub const CU_OCCUPANCY_DEFAULT: CUoccupancy_flags = 0;
pub const CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE: CUoccupancy_flags = 1;

/// `CUarray_format`; the constants below are its values.
pub type CUarray_format = u32;
pub const CU_AD_FORMAT_UNSIGNED_INT8: CUarray_format = 1;
pub const CU_AD_FORMAT_UNSIGNED_INT16: CUarray_format = 2;
pub const CU_AD_FORMAT_UNSIGNED_INT32: CUarray_format = 3;
pub const CU_AD_FORMAT_SIGNED_INT8: CUarray_format = 8;
pub const CU_AD_FORMAT_SIGNED_INT16: CUarray_format = 9;
pub const CU_AD_FORMAT_SIGNED_INT32: CUarray_format = 10;
pub const CU_AD_FORMAT_HALF: CUarray_format = 16;
pub const CU_AD_FORMAT_FLOAT: CUarray_format = 32;
pub const CU_AD_FORMAT_NV12: CUarray_format = 176;
pub const CU_AD_FORMAT_UNORM_INT8X1: CUarray_format = 192;
pub const CU_AD_FORMAT_UNORM_INT8X2: CUarray_format = 193;
pub const CU_AD_FORMAT_UNORM_INT8X4: CUarray_format = 194;
pub const CU_AD_FORMAT_UNORM_INT16X1: CUarray_format = 195;
pub const CU_AD_FORMAT_UNORM_INT16X2: CUarray_format = 196;
pub const CU_AD_FORMAT_UNORM_INT16X4: CUarray_format = 197;
pub const CU_AD_FORMAT_SNORM_INT8X1: CUarray_format = 198;
pub const CU_AD_FORMAT_SNORM_INT8X2: CUarray_format = 199;
pub const CU_AD_FORMAT_SNORM_INT8X4: CUarray_format = 200;
pub const CU_AD_FORMAT_SNORM_INT16X1: CUarray_format = 201;
pub const CU_AD_FORMAT_SNORM_INT16X2: CUarray_format = 202;
pub const CU_AD_FORMAT_SNORM_INT16X4: CUarray_format = 203;
pub const CU_AD_FORMAT_BC1_UNORM: CUarray_format = 145;
pub const CU_AD_FORMAT_BC1_UNORM_SRGB: CUarray_format = 146;
pub const CU_AD_FORMAT_BC2_UNORM: CUarray_format = 147;
pub const CU_AD_FORMAT_BC2_UNORM_SRGB: CUarray_format = 148;
pub const CU_AD_FORMAT_BC3_UNORM: CUarray_format = 149;
pub const CU_AD_FORMAT_BC3_UNORM_SRGB: CUarray_format = 150;
pub const CU_AD_FORMAT_BC4_UNORM: CUarray_format = 151;
pub const CU_AD_FORMAT_BC4_SNORM: CUarray_format = 152;
pub const CU_AD_FORMAT_BC5_UNORM: CUarray_format = 153;
pub const CU_AD_FORMAT_BC5_SNORM: CUarray_format = 154;
pub const CU_AD_FORMAT_BC6H_UF16: CUarray_format = 155;
pub const CU_AD_FORMAT_BC6H_SF16: CUarray_format = 156;
pub const CU_AD_FORMAT_BC7_UNORM: CUarray_format = 157;
pub const CU_AD_FORMAT_BC7_UNORM_SRGB: CUarray_format = 158;
pub const CU_AD_FORMAT_P010: CUarray_format = 159;
pub const CU_AD_FORMAT_P016: CUarray_format = 161;
pub const CU_AD_FORMAT_NV16: CUarray_format = 162;
pub const CU_AD_FORMAT_P210: CUarray_format = 163;
pub const CU_AD_FORMAT_P216: CUarray_format = 164;
pub const CU_AD_FORMAT_YUY2: CUarray_format = 165;
pub const CU_AD_FORMAT_Y210: CUarray_format = 166;
pub const CU_AD_FORMAT_Y216: CUarray_format = 167;
pub const CU_AD_FORMAT_AYUV: CUarray_format = 168;
pub const CU_AD_FORMAT_Y410: CUarray_format = 169;
pub const CU_AD_FORMAT_Y416: CUarray_format = 177;
pub const CU_AD_FORMAT_Y444_PLANAR8: CUarray_format = 178;
pub const CU_AD_FORMAT_Y444_PLANAR10: CUarray_format = 179;
pub const CU_AD_FORMAT_YUV444_8bit_SemiPlanar: CUarray_format = 180;
pub const CU_AD_FORMAT_YUV444_16bit_SemiPlanar: CUarray_format = 181;
pub const CU_AD_FORMAT_UNORM_INT_101010_2: CUarray_format = 80;
pub const CU_AD_FORMAT_MAX: CUarray_format = 0x7fffffff;

/// `CUdevice_P2PAttribute`: whether atomic operations on the other device's memory are native.
pub const CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED: u32 = 3;

/// `CUdevice_attribute`; the constants below are its values.
pub type CUdevice_attribute = u32;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUdevice_attribute = 1;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: CUdevice_attribute = 2;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: CUdevice_attribute = 3;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: CUdevice_attribute = 4;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: CUdevice_attribute = 5;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: CUdevice_attribute = 6;
pub const CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: CUdevice_attribute = 7;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 8;
pub const CU_DEVICE_ATTRIBUTE_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 8;
pub const CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY: CUdevice_attribute = 9;
pub const CU_DEVICE_ATTRIBUTE_WARP_SIZE: CUdevice_attribute = 10;
pub const CU_DEVICE_ATTRIBUTE_MAX_PITCH: CUdevice_attribute = 11;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK: CUdevice_attribute = 12;
pub const CU_DEVICE_ATTRIBUTE_REGISTERS_PER_BLOCK: CUdevice_attribute = 12;
pub const CU_DEVICE_ATTRIBUTE_CLOCK_RATE: CUdevice_attribute = 13;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT: CUdevice_attribute = 14;
pub const CU_DEVICE_ATTRIBUTE_GPU_OVERLAP: CUdevice_attribute = 15;
pub const CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: CUdevice_attribute = 16;
pub const CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT: CUdevice_attribute = 17;
pub const CU_DEVICE_ATTRIBUTE_INTEGRATED: CUdevice_attribute = 18;
pub const CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY: CUdevice_attribute = 19;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_MODE: CUdevice_attribute = 20;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH: CUdevice_attribute = 21;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH: CUdevice_attribute = 22;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT: CUdevice_attribute = 23;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH: CUdevice_attribute = 24;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT: CUdevice_attribute = 25;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH: CUdevice_attribute = 26;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH: CUdevice_attribute = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT: CUdevice_attribute = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS: CUdevice_attribute = 29;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_WIDTH: CUdevice_attribute = 27;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_HEIGHT: CUdevice_attribute = 28;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_ARRAY_NUMSLICES: CUdevice_attribute = 29;
pub const CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT: CUdevice_attribute = 30;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS: CUdevice_attribute = 31;
pub const CU_DEVICE_ATTRIBUTE_ECC_ENABLED: CUdevice_attribute = 32;
pub const CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: CUdevice_attribute = 33;
pub const CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: CUdevice_attribute = 34;
pub const CU_DEVICE_ATTRIBUTE_TCC_DRIVER: CUdevice_attribute = 35;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: CUdevice_attribute = 36;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: CUdevice_attribute = 37;
pub const CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: CUdevice_attribute = 38;
pub const CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR: CUdevice_attribute = 39;
pub const CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: CUdevice_attribute = 40;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: CUdevice_attribute = 41;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH: CUdevice_attribute = 42;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS: CUdevice_attribute = 43;
pub const CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER: CUdevice_attribute = 44;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH: CUdevice_attribute = 45;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT: CUdevice_attribute = 46;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE: CUdevice_attribute = 47;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE: CUdevice_attribute = 48;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE: CUdevice_attribute = 49;
pub const CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: CUdevice_attribute = 50;
pub const CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT: CUdevice_attribute = 51;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH: CUdevice_attribute = 52;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH: CUdevice_attribute = 53;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS: CUdevice_attribute = 54;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH: CUdevice_attribute = 55;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH: CUdevice_attribute = 56;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT: CUdevice_attribute = 57;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH: CUdevice_attribute = 58;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_HEIGHT: CUdevice_attribute = 59;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH: CUdevice_attribute = 60;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH: CUdevice_attribute = 61;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS: CUdevice_attribute = 62;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH: CUdevice_attribute = 63;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT: CUdevice_attribute = 64;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS: CUdevice_attribute = 65;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH: CUdevice_attribute = 66;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH: CUdevice_attribute = 67;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS: CUdevice_attribute = 68;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH: CUdevice_attribute = 69;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH: CUdevice_attribute = 70;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT: CUdevice_attribute = 71;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH: CUdevice_attribute = 72;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH: CUdevice_attribute = 73;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT: CUdevice_attribute = 74;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: CUdevice_attribute = 75;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: CUdevice_attribute = 76;
pub const CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH: CUdevice_attribute = 77;
pub const CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED: CUdevice_attribute = 78;
pub const CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED: CUdevice_attribute = 79;
pub const CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED: CUdevice_attribute = 80;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR: CUdevice_attribute = 81;
pub const CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR: CUdevice_attribute = 82;
pub const CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: CUdevice_attribute = 83;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD: CUdevice_attribute = 84;
pub const CU_DEVICE_ATTRIBUTE_MULTI_GPU_BOARD_GROUP_ID: CUdevice_attribute = 85;
pub const CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute = 86;
pub const CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO: CUdevice_attribute = 87;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: CUdevice_attribute = 88;
pub const CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: CUdevice_attribute = 89;
pub const CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED: CUdevice_attribute = 90;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM: CUdevice_attribute = 91;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1: CUdevice_attribute = 92;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1: CUdevice_attribute = 93;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1: CUdevice_attribute = 94;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: CUdevice_attribute = 95;
pub const CU_DEVICE_ATTRIBUTE_COOPERATIVE_MULTI_DEVICE_LAUNCH: CUdevice_attribute = 96;
pub const CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: CUdevice_attribute = 97;
pub const CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES: CUdevice_attribute = 98;
pub const CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED: CUdevice_attribute = 99;
pub const CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES: CUdevice_attribute =
    100;
pub const CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: CUdevice_attribute = 101;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_ADDRESS_MANAGEMENT_SUPPORTED: CUdevice_attribute = 102;
pub const CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute = 102;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: CUdevice_attribute = 103;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED: CUdevice_attribute = 104;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED: CUdevice_attribute = 105;
pub const CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR: CUdevice_attribute = 106;
pub const CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED: CUdevice_attribute = 107;
pub const CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE: CUdevice_attribute = 108;
pub const CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE: CUdevice_attribute = 109;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: CUdevice_attribute = 110;
pub const CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK: CUdevice_attribute = 111;
pub const CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED: CUdevice_attribute = 112;
pub const CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: CUdevice_attribute = 113;
pub const CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: CUdevice_attribute = 114;
pub const CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 115;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED: CUdevice_attribute = 116;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS: CUdevice_attribute = 117;
pub const CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING: CUdevice_attribute = 118;
pub const CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: CUdevice_attribute = 119;
pub const CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH: CUdevice_attribute = 120;
pub const CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED: CUdevice_attribute = 121;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS: CUdevice_attribute = 122;
pub const CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: CUdevice_attribute = 123;
pub const CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED: CUdevice_attribute = 124;
pub const CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED: CUdevice_attribute = 125;
pub const CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT: CUdevice_attribute = 126;
pub const CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED: CUdevice_attribute = 127;
pub const CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: CUdevice_attribute = 128;
pub const CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS: CUdevice_attribute = 129;
pub const CU_DEVICE_ATTRIBUTE_NUMA_CONFIG: CUdevice_attribute = 130;
pub const CU_DEVICE_ATTRIBUTE_NUMA_ID: CUdevice_attribute = 131;
pub const CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED: CUdevice_attribute = 132;
pub const CU_DEVICE_ATTRIBUTE_MPS_ENABLED: CUdevice_attribute = 133;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: CUdevice_attribute = 134;
pub const CU_DEVICE_ATTRIBUTE_D3D12_CIG_SUPPORTED: CUdevice_attribute = 135;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK: CUdevice_attribute = 136;
pub const CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH: CUdevice_attribute = 137;
pub const CU_DEVICE_ATTRIBUTE_VULKAN_CIG_SUPPORTED: CUdevice_attribute = 138;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID: CUdevice_attribute = 139;
pub const CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID: CUdevice_attribute = 140;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute =
    141;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 142;
pub const CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED: CUdevice_attribute = 143;
pub const CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED: CUdevice_attribute = 144;
pub const CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: CUdevice_attribute = 145;
pub const CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED: CUdevice_attribute = 146;
pub const CU_DEVICE_ATTRIBUTE_ONLY_PARTIAL_HOST_NATIVE_ATOMIC_SUPPORTED: CUdevice_attribute = 147;
pub const CU_DEVICE_ATTRIBUTE_MAX: CUdevice_attribute = 148;

/// `CUpointer_attribute`; the constants below are its values.
pub type CUpointer_attribute = u32;
pub const CU_POINTER_ATTRIBUTE_CONTEXT: CUpointer_attribute = 1;
pub const CU_POINTER_ATTRIBUTE_MEMORY_TYPE: CUpointer_attribute = 2;
pub const CU_POINTER_ATTRIBUTE_DEVICE_POINTER: CUpointer_attribute = 3;
pub const CU_POINTER_ATTRIBUTE_HOST_POINTER: CUpointer_attribute = 4;
pub const CU_POINTER_ATTRIBUTE_P2P_TOKENS: CUpointer_attribute = 5;
pub const CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: CUpointer_attribute = 6;
pub const CU_POINTER_ATTRIBUTE_BUFFER_ID: CUpointer_attribute = 7;
pub const CU_POINTER_ATTRIBUTE_IS_MANAGED: CUpointer_attribute = 8;
pub const CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: CUpointer_attribute = 9;
pub const CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: CUpointer_attribute = 10;
pub const CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: CUpointer_attribute = 11;
pub const CU_POINTER_ATTRIBUTE_RANGE_SIZE: CUpointer_attribute = 12;
pub const CU_POINTER_ATTRIBUTE_MAPPED: CUpointer_attribute = 13;
pub const CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: CUpointer_attribute = 14;
pub const CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE: CUpointer_attribute = 15;
pub const CU_POINTER_ATTRIBUTE_ACCESS_FLAGS: CUpointer_attribute = 16;
pub const CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: CUpointer_attribute = 17;
pub const CU_POINTER_ATTRIBUTE_MAPPING_SIZE: CUpointer_attribute = 18;
pub const CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR: CUpointer_attribute = 19;
pub const CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID: CUpointer_attribute = 20;
pub const CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE: CUpointer_attribute = 21;

/// `CUfunction_attribute`; the constants below are its values.
pub type CUfunction_attribute = u32;
pub const CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: CUfunction_attribute = 0;
pub const CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: CUfunction_attribute = 1;
pub const CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES: CUfunction_attribute = 2;
pub const CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES: CUfunction_attribute = 3;
pub const CU_FUNC_ATTRIBUTE_NUM_REGS: CUfunction_attribute = 4;
pub const CU_FUNC_ATTRIBUTE_PTX_VERSION: CUfunction_attribute = 5;
pub const CU_FUNC_ATTRIBUTE_BINARY_VERSION: CUfunction_attribute = 6;
pub const CU_FUNC_ATTRIBUTE_CACHE_MODE_CA: CUfunction_attribute = 7;
pub const CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: CUfunction_attribute = 8;
pub const CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: CUfunction_attribute = 9;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET: CUfunction_attribute = 10;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH: CUfunction_attribute = 11;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT: CUfunction_attribute = 12;
pub const CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH: CUfunction_attribute = 13;
pub const CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: CUfunction_attribute = 14;
pub const CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: CUfunction_attribute = 15;
pub const CU_FUNC_ATTRIBUTE_MAX: CUfunction_attribute = 16;

/// `CUfunc_cache`; the constants below are its values.
pub type CUfunc_cache = u32;
pub const CU_FUNC_CACHE_PREFER_NONE: CUfunc_cache = 0;
pub const CU_FUNC_CACHE_PREFER_SHARED: CUfunc_cache = 1;
pub const CU_FUNC_CACHE_PREFER_L1: CUfunc_cache = 2;
pub const CU_FUNC_CACHE_PREFER_EQUAL: CUfunc_cache = 3;

/// `CUsharedconfig`; the constants below are its values.
pub type CUsharedconfig = u32;
pub const CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE: CUsharedconfig = 0;
pub const CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE: CUsharedconfig = 1;
pub const CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE: CUsharedconfig = 2;

/// `CUshared_carveout`; the constants below are its values.
pub type CUshared_carveout = i32;
pub const CU_SHAREDMEM_CARVEOUT_DEFAULT: CUshared_carveout = -1;
pub const CU_SHAREDMEM_CARVEOUT_MAX_SHARED: CUshared_carveout = 100;
pub const CU_SHAREDMEM_CARVEOUT_MAX_L1: CUshared_carveout = 0;

/// `CUmemorytype`; the constants below are its values.
pub type CUmemorytype = u32;
pub const CU_MEMORYTYPE_HOST: CUmemorytype = 1;
pub const CU_MEMORYTYPE_DEVICE: CUmemorytype = 2;
pub const CU_MEMORYTYPE_ARRAY: CUmemorytype = 3;
pub const CU_MEMORYTYPE_UNIFIED: CUmemorytype = 4;

/// `CUcomputemode`; the constants below are its values.
pub type CUcomputemode = u32;
pub const CU_COMPUTEMODE_DEFAULT: CUcomputemode = 0;
pub const CU_COMPUTEMODE_PROHIBITED: CUcomputemode = 2;
pub const CU_COMPUTEMODE_EXCLUSIVE_PROCESS: CUcomputemode = 3;

/// `CUjit_option`; the constants below are its values.
pub type CUjit_option = u32;
pub const CU_JIT_MAX_REGISTERS: CUjit_option = 0;
pub const CU_JIT_THREADS_PER_BLOCK: CUjit_option = 1;
pub const CU_JIT_WALL_TIME: CUjit_option = 2;
pub const CU_JIT_INFO_LOG_BUFFER: CUjit_option = 3;
pub const CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES: CUjit_option = 4;
pub const CU_JIT_ERROR_LOG_BUFFER: CUjit_option = 5;
pub const CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES: CUjit_option = 6;
pub const CU_JIT_OPTIMIZATION_LEVEL: CUjit_option = 7;
pub const CU_JIT_TARGET_FROM_CUCONTEXT: CUjit_option = 8;
pub const CU_JIT_TARGET: CUjit_option = 9;
pub const CU_JIT_FALLBACK_STRATEGY: CUjit_option = 10;
pub const CU_JIT_GENERATE_DEBUG_INFO: CUjit_option = 11;
pub const CU_JIT_LOG_VERBOSE: CUjit_option = 12;
pub const CU_JIT_GENERATE_LINE_INFO: CUjit_option = 13;
pub const CU_JIT_CACHE_MODE: CUjit_option = 14;
pub const CU_JIT_NEW_SM3X_OPT: CUjit_option = 15;
pub const CU_JIT_FAST_COMPILE: CUjit_option = 16;
pub const CU_JIT_GLOBAL_SYMBOL_NAMES: CUjit_option = 17;
pub const CU_JIT_GLOBAL_SYMBOL_ADDRESSES: CUjit_option = 18;
pub const CU_JIT_GLOBAL_SYMBOL_COUNT: CUjit_option = 19;
pub const CU_JIT_LTO: CUjit_option = 20;
pub const CU_JIT_FTZ: CUjit_option = 21;
pub const CU_JIT_PREC_DIV: CUjit_option = 22;
pub const CU_JIT_PREC_SQRT: CUjit_option = 23;
pub const CU_JIT_FMA: CUjit_option = 24;
pub const CU_JIT_REFERENCED_KERNEL_NAMES: CUjit_option = 25;
pub const CU_JIT_REFERENCED_KERNEL_COUNT: CUjit_option = 26;
pub const CU_JIT_REFERENCED_VARIABLE_NAMES: CUjit_option = 27;
pub const CU_JIT_REFERENCED_VARIABLE_COUNT: CUjit_option = 28;
pub const CU_JIT_OPTIMIZE_UNUSED_DEVICE_VARIABLES: CUjit_option = 29;
pub const CU_JIT_POSITION_INDEPENDENT_CODE: CUjit_option = 30;
pub const CU_JIT_MIN_CTA_PER_SM: CUjit_option = 31;
pub const CU_JIT_MAX_THREADS_PER_BLOCK: CUjit_option = 32;
pub const CU_JIT_OVERRIDE_DIRECTIVE_VALUES: CUjit_option = 33;
pub const CU_JIT_SPLIT_COMPILE: CUjit_option = 34;
pub const CU_JIT_NUM_OPTIONS: CUjit_option = 35;

/// `CUjit_target`; the constants below are its values.
pub type CUjit_target = u32;
pub const CU_TARGET_COMPUTE_30: CUjit_target = 30;
pub const CU_TARGET_COMPUTE_32: CUjit_target = 32;
pub const CU_TARGET_COMPUTE_35: CUjit_target = 35;
pub const CU_TARGET_COMPUTE_37: CUjit_target = 37;
pub const CU_TARGET_COMPUTE_50: CUjit_target = 50;
pub const CU_TARGET_COMPUTE_52: CUjit_target = 52;
pub const CU_TARGET_COMPUTE_53: CUjit_target = 53;
pub const CU_TARGET_COMPUTE_60: CUjit_target = 60;
pub const CU_TARGET_COMPUTE_61: CUjit_target = 61;
pub const CU_TARGET_COMPUTE_62: CUjit_target = 62;
pub const CU_TARGET_COMPUTE_70: CUjit_target = 70;
pub const CU_TARGET_COMPUTE_72: CUjit_target = 72;
pub const CU_TARGET_COMPUTE_75: CUjit_target = 75;
pub const CU_TARGET_COMPUTE_80: CUjit_target = 80;
pub const CU_TARGET_COMPUTE_86: CUjit_target = 86;
pub const CU_TARGET_COMPUTE_87: CUjit_target = 87;
pub const CU_TARGET_COMPUTE_89: CUjit_target = 89;
pub const CU_TARGET_COMPUTE_90: CUjit_target = 90;
pub const CU_TARGET_COMPUTE_100: CUjit_target = 100;
pub const CU_TARGET_COMPUTE_110: CUjit_target = 110;
pub const CU_TARGET_COMPUTE_103: CUjit_target = 103;
pub const CU_TARGET_COMPUTE_120: CUjit_target = 120;
pub const CU_TARGET_COMPUTE_121: CUjit_target = 121;

/// `CUlimit`; the constants below are its values.
pub type CUlimit = u32;
pub const CU_LIMIT_STACK_SIZE: CUlimit = 0;
pub const CU_LIMIT_PRINTF_FIFO_SIZE: CUlimit = 1;
pub const CU_LIMIT_MALLOC_HEAP_SIZE: CUlimit = 2;
pub const CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH: CUlimit = 3;
pub const CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT: CUlimit = 4;
pub const CU_LIMIT_MAX_L2_FETCH_GRANULARITY: CUlimit = 5;
pub const CU_LIMIT_PERSISTING_L2_CACHE_SIZE: CUlimit = 6;
pub const CU_LIMIT_SHMEM_SIZE: CUlimit = 7;
pub const CU_LIMIT_CIG_ENABLED: CUlimit = 8;
pub const CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED: CUlimit = 9;
pub const CU_LIMIT_MAX: CUlimit = 10;

/// `CUclusterSchedulingPolicy`; the constants below are its values.
pub type CUclusterSchedulingPolicy = u32;
pub const CU_CLUSTER_SCHEDULING_POLICY_DEFAULT: CUclusterSchedulingPolicy = 0;
pub const CU_CLUSTER_SCHEDULING_POLICY_SPREAD: CUclusterSchedulingPolicy = 1;
pub const CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING: CUclusterSchedulingPolicy = 2;

/// `CUlaunchAttributeID`; the constants below are its values.
pub type CUlaunchAttributeID = u32;
pub const CU_LAUNCH_ATTRIBUTE_IGNORE: CUlaunchAttributeID = 0;
pub const CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW: CUlaunchAttributeID = 1;
pub const CU_LAUNCH_ATTRIBUTE_COOPERATIVE: CUlaunchAttributeID = 2;
pub const CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY: CUlaunchAttributeID = 3;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION: CUlaunchAttributeID = 4;
pub const CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE: CUlaunchAttributeID = 5;
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: CUlaunchAttributeID = 6;
pub const CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT: CUlaunchAttributeID = 7;
pub const CU_LAUNCH_ATTRIBUTE_PRIORITY: CUlaunchAttributeID = 8;
pub const CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP: CUlaunchAttributeID = 9;
pub const CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN: CUlaunchAttributeID = 10;
pub const CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION: CUlaunchAttributeID = 11;
pub const CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT: CUlaunchAttributeID = 12;
pub const CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE: CUlaunchAttributeID = 13;
pub const CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: CUlaunchAttributeID = 14;
pub const CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING: CUlaunchAttributeID = 16;
pub const CU_LAUNCH_ATTRIBUTE_MAX: CUlaunchAttributeID = 17;

/// `CUstreamBatchMemOpType`; the constants below are its values.
pub type CUstreamBatchMemOpType = u32;
pub const CU_STREAM_MEM_OP_WAIT_VALUE_32: CUstreamBatchMemOpType = 1;
pub const CU_STREAM_MEM_OP_WRITE_VALUE_32: CUstreamBatchMemOpType = 2;
pub const CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: CUstreamBatchMemOpType = 3;
pub const CU_STREAM_MEM_OP_WAIT_VALUE_64: CUstreamBatchMemOpType = 4;
pub const CU_STREAM_MEM_OP_WRITE_VALUE_64: CUstreamBatchMemOpType = 5;
pub const CU_STREAM_MEM_OP_BARRIER: CUstreamBatchMemOpType = 6;

/// `CUjitInputType`; the constants below are its values.
pub type CUjitInputType = u32;
pub const CU_JIT_INPUT_CUBIN: CUjitInputType = 0;
pub const CU_JIT_INPUT_PTX: CUjitInputType = 1;
pub const CU_JIT_INPUT_FATBINARY: CUjitInputType = 2;
pub const CU_JIT_INPUT_OBJECT: CUjitInputType = 3;
pub const CU_JIT_INPUT_LIBRARY: CUjitInputType = 4;
pub const CU_JIT_INPUT_NVVM: CUjitInputType = 5;

/// `CUtensorMap`: opaque, and at a multiple of 64 bytes.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUtensorMap {
    pub opaque: [u64; 16],
}

/// `CUstreamCaptureStatus`; the constants below are its values.
pub type CUstreamCaptureStatus = u32;
pub const CU_STREAM_CAPTURE_STATUS_NONE: CUstreamCaptureStatus = 0;
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: CUstreamCaptureStatus = 1;
pub const CU_STREAM_CAPTURE_STATUS_INVALIDATED: CUstreamCaptureStatus = 2;

/// `CUstreamCaptureMode`; the constants below are its values.
pub type CUstreamCaptureMode = u32;
pub const CU_STREAM_CAPTURE_MODE_GLOBAL: CUstreamCaptureMode = 0;
pub const CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: CUstreamCaptureMode = 1;
pub const CU_STREAM_CAPTURE_MODE_RELAXED: CUstreamCaptureMode = 2;

/// `CUdriverProcAddress_flags`; the constants below are its values.
pub type CUdriverProcAddress_flags = u32;
pub const CU_GET_PROC_ADDRESS_DEFAULT: CUdriverProcAddress_flags = 0;
pub const CU_GET_PROC_ADDRESS_LEGACY_STREAM: CUdriverProcAddress_flags = 1;
pub const CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: CUdriverProcAddress_flags = 2;

/// `CUdriverProcAddressQueryResult`; the constants below are its values.
pub type CUdriverProcAddressQueryResult = u32;
pub const CU_GET_PROC_ADDRESS_SUCCESS: CUdriverProcAddressQueryResult = 0;
pub const CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND: CUdriverProcAddressQueryResult = 1;
pub const CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT: CUdriverProcAddressQueryResult = 2;

/// `CUlibraryOption`; the constants below are its values.
pub type CUlibraryOption = u32;
pub const CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE: CUlibraryOption = 0;
pub const CU_LIBRARY_BINARY_IS_PRESERVED: CUlibraryOption = 1;
pub const CU_LIBRARY_NUM_OPTIONS: CUlibraryOption = 2;

/// `CUresult`; the constants below are its values.
pub type CUresult = u32;
pub const CUDA_SUCCESS: CUresult = 0;
pub const CUDA_ERROR_INVALID_VALUE: CUresult = 1;
pub const CUDA_ERROR_OUT_OF_MEMORY: CUresult = 2;
pub const CUDA_ERROR_NOT_INITIALIZED: CUresult = 3;
pub const CUDA_ERROR_DEINITIALIZED: CUresult = 4;
pub const CUDA_ERROR_PROFILER_DISABLED: CUresult = 5;
pub const CUDA_ERROR_PROFILER_NOT_INITIALIZED: CUresult = 6;
pub const CUDA_ERROR_PROFILER_ALREADY_STARTED: CUresult = 7;
pub const CUDA_ERROR_PROFILER_ALREADY_STOPPED: CUresult = 8;
pub const CUDA_ERROR_STUB_LIBRARY: CUresult = 34;
pub const CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER: CUresult = 36;
pub const CUDA_ERROR_DEVICE_UNAVAILABLE: CUresult = 46;
pub const CUDA_ERROR_NO_DEVICE: CUresult = 100;
pub const CUDA_ERROR_INVALID_DEVICE: CUresult = 101;
pub const CUDA_ERROR_DEVICE_NOT_LICENSED: CUresult = 102;
pub const CUDA_ERROR_INVALID_IMAGE: CUresult = 200;
pub const CUDA_ERROR_INVALID_CONTEXT: CUresult = 201;
pub const CUDA_ERROR_CONTEXT_ALREADY_CURRENT: CUresult = 202;
pub const CUDA_ERROR_MAP_FAILED: CUresult = 205;
pub const CUDA_ERROR_UNMAP_FAILED: CUresult = 206;
pub const CUDA_ERROR_ARRAY_IS_MAPPED: CUresult = 207;
pub const CUDA_ERROR_ALREADY_MAPPED: CUresult = 208;
pub const CUDA_ERROR_NO_BINARY_FOR_GPU: CUresult = 209;
pub const CUDA_ERROR_ALREADY_ACQUIRED: CUresult = 210;
pub const CUDA_ERROR_NOT_MAPPED: CUresult = 211;
pub const CUDA_ERROR_NOT_MAPPED_AS_ARRAY: CUresult = 212;
pub const CUDA_ERROR_NOT_MAPPED_AS_POINTER: CUresult = 213;
pub const CUDA_ERROR_ECC_UNCORRECTABLE: CUresult = 214;
pub const CUDA_ERROR_UNSUPPORTED_LIMIT: CUresult = 215;
pub const CUDA_ERROR_CONTEXT_ALREADY_IN_USE: CUresult = 216;
pub const CUDA_ERROR_PEER_ACCESS_UNSUPPORTED: CUresult = 217;
pub const CUDA_ERROR_INVALID_PTX: CUresult = 218;
pub const CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: CUresult = 219;
pub const CUDA_ERROR_NVLINK_UNCORRECTABLE: CUresult = 220;
pub const CUDA_ERROR_JIT_COMPILER_NOT_FOUND: CUresult = 221;
pub const CUDA_ERROR_UNSUPPORTED_PTX_VERSION: CUresult = 222;
pub const CUDA_ERROR_JIT_COMPILATION_DISABLED: CUresult = 223;
pub const CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY: CUresult = 224;
pub const CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC: CUresult = 225;
pub const CUDA_ERROR_CONTAINED: CUresult = 226;
pub const CUDA_ERROR_INVALID_SOURCE: CUresult = 300;
pub const CUDA_ERROR_FILE_NOT_FOUND: CUresult = 301;
pub const CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND: CUresult = 302;
pub const CUDA_ERROR_SHARED_OBJECT_INIT_FAILED: CUresult = 303;
pub const CUDA_ERROR_OPERATING_SYSTEM: CUresult = 304;
pub const CUDA_ERROR_INVALID_HANDLE: CUresult = 400;
pub const CUDA_ERROR_ILLEGAL_STATE: CUresult = 401;
pub const CUDA_ERROR_LOSSY_QUERY: CUresult = 402;
pub const CUDA_ERROR_NOT_FOUND: CUresult = 500;
pub const CUDA_ERROR_NOT_READY: CUresult = 600;
pub const CUDA_ERROR_ILLEGAL_ADDRESS: CUresult = 700;
pub const CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES: CUresult = 701;
pub const CUDA_ERROR_LAUNCH_TIMEOUT: CUresult = 702;
pub const CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING: CUresult = 703;
pub const CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED: CUresult = 704;
pub const CUDA_ERROR_PEER_ACCESS_NOT_ENABLED: CUresult = 705;
pub const CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE: CUresult = 708;
pub const CUDA_ERROR_CONTEXT_IS_DESTROYED: CUresult = 709;
pub const CUDA_ERROR_ASSERT: CUresult = 710;
pub const CUDA_ERROR_TOO_MANY_PEERS: CUresult = 711;
pub const CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED: CUresult = 712;
pub const CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED: CUresult = 713;
pub const CUDA_ERROR_HARDWARE_STACK_ERROR: CUresult = 714;
pub const CUDA_ERROR_ILLEGAL_INSTRUCTION: CUresult = 715;
pub const CUDA_ERROR_MISALIGNED_ADDRESS: CUresult = 716;
pub const CUDA_ERROR_INVALID_ADDRESS_SPACE: CUresult = 717;
pub const CUDA_ERROR_INVALID_PC: CUresult = 718;
pub const CUDA_ERROR_LAUNCH_FAILED: CUresult = 719;
pub const CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: CUresult = 720;
pub const CUDA_ERROR_TENSOR_MEMORY_LEAK: CUresult = 721;
pub const CUDA_ERROR_NOT_PERMITTED: CUresult = 800;
pub const CUDA_ERROR_NOT_SUPPORTED: CUresult = 801;
pub const CUDA_ERROR_SYSTEM_NOT_READY: CUresult = 802;
pub const CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: CUresult = 803;
pub const CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE: CUresult = 804;
pub const CUDA_ERROR_MPS_CONNECTION_FAILED: CUresult = 805;
pub const CUDA_ERROR_MPS_RPC_FAILURE: CUresult = 806;
pub const CUDA_ERROR_MPS_SERVER_NOT_READY: CUresult = 807;
pub const CUDA_ERROR_MPS_MAX_CLIENTS_REACHED: CUresult = 808;
pub const CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: CUresult = 809;
pub const CUDA_ERROR_MPS_CLIENT_TERMINATED: CUresult = 810;
pub const CUDA_ERROR_CDP_NOT_SUPPORTED: CUresult = 811;
pub const CUDA_ERROR_CDP_VERSION_MISMATCH: CUresult = 812;
pub const CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;
pub const CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: CUresult = 901;
pub const CUDA_ERROR_STREAM_CAPTURE_MERGE: CUresult = 902;
pub const CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: CUresult = 903;
pub const CUDA_ERROR_STREAM_CAPTURE_UNJOINED: CUresult = 904;
pub const CUDA_ERROR_STREAM_CAPTURE_ISOLATION: CUresult = 905;
pub const CUDA_ERROR_STREAM_CAPTURE_IMPLICIT: CUresult = 906;
pub const CUDA_ERROR_CAPTURED_EVENT: CUresult = 907;
pub const CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD: CUresult = 908;
pub const CUDA_ERROR_TIMEOUT: CUresult = 909;
pub const CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE: CUresult = 910;
pub const CUDA_ERROR_EXTERNAL_DEVICE: CUresult = 911;
pub const CUDA_ERROR_INVALID_CLUSTER_SIZE: CUresult = 912;
pub const CUDA_ERROR_FUNCTION_NOT_LOADED: CUresult = 913;
pub const CUDA_ERROR_INVALID_RESOURCE_TYPE: CUresult = 914;
pub const CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: CUresult = 915;
pub const CUDA_ERROR_KEY_ROTATION: CUresult = 916;
pub const CUDA_ERROR_UNKNOWN: CUresult = 999;

/// `CUmemAllocationHandleType`; the constants below are its values.
pub type CUmemAllocationHandleType = u32;
pub const CU_MEM_HANDLE_TYPE_NONE: CUmemAllocationHandleType = 0;
pub const CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR: CUmemAllocationHandleType = 1;
pub const CU_MEM_HANDLE_TYPE_WIN32: CUmemAllocationHandleType = 2;
pub const CU_MEM_HANDLE_TYPE_WIN32_KMT: CUmemAllocationHandleType = 4;
pub const CU_MEM_HANDLE_TYPE_FABRIC: CUmemAllocationHandleType = 8;
pub const CU_MEM_HANDLE_TYPE_MAX: CUmemAllocationHandleType = 0x7fffffff;

/// `CUmemAccess_flags`; the constants below are its values.
pub type CUmemAccess_flags = u32;
pub const CU_MEM_ACCESS_FLAGS_PROT_NONE: CUmemAccess_flags = 0;
pub const CU_MEM_ACCESS_FLAGS_PROT_READ: CUmemAccess_flags = 1;
pub const CU_MEM_ACCESS_FLAGS_PROT_READWRITE: CUmemAccess_flags = 3;
pub const CU_MEM_ACCESS_FLAGS_PROT_MAX: CUmemAccess_flags = 0x7fffffff;

/// `CUmemLocationType`; the constants below are its values.
pub type CUmemLocationType = u32;
pub const CU_MEM_LOCATION_TYPE_INVALID: CUmemLocationType = 0;
pub const CU_MEM_LOCATION_TYPE_NONE: CUmemLocationType = 0;
pub const CU_MEM_LOCATION_TYPE_DEVICE: CUmemLocationType = 1;
pub const CU_MEM_LOCATION_TYPE_HOST: CUmemLocationType = 2;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA: CUmemLocationType = 3;
pub const CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT: CUmemLocationType = 4;
pub const CU_MEM_LOCATION_TYPE_MAX: CUmemLocationType = 0x7fffffff;

/// `CUmemAllocationType`; the constants below are its values.
pub type CUmemAllocationType = u32;
pub const CU_MEM_ALLOCATION_TYPE_INVALID: CUmemAllocationType = 0;
pub const CU_MEM_ALLOCATION_TYPE_PINNED: CUmemAllocationType = 1;
pub const CU_MEM_ALLOCATION_TYPE_MANAGED: CUmemAllocationType = 2;
pub const CU_MEM_ALLOCATION_TYPE_MAX: CUmemAllocationType = 0x7fffffff;

/// `CUmemAllocationGranularity_flags`; the constants below are its values.
pub type CUmemAllocationGranularity_flags = u32;
pub const CU_MEM_ALLOC_GRANULARITY_MINIMUM: CUmemAllocationGranularity_flags = 0;
pub const CU_MEM_ALLOC_GRANULARITY_RECOMMENDED: CUmemAllocationGranularity_flags = 1;

/// `CUmemAllocationCompType`; the constants below are its values.
pub type CUmemAllocationCompType = u8;
pub const CU_MEM_ALLOCATION_COMP_NONE: CUmemAllocationCompType = 0;
pub const CU_MEM_ALLOCATION_COMP_GENERIC: CUmemAllocationCompType = 1;

/// `CUmemAllocationProp::allocFlags.usage`: backs sparse arrays.
pub const CU_MEM_CREATE_USAGE_TILE_POOL: u16 = 1;
/// `CUmemAllocationProp::allocFlags.usage`: for hardware decompression.
pub const CU_MEM_CREATE_USAGE_HW_DECOMPRESS: u16 = 2;

/// `CUmemcpySrcAccessOrder`; the constants below are its values.
pub type CUmemcpySrcAccessOrder = u32;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_INVALID: CUmemcpySrcAccessOrder = 0;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_STREAM: CUmemcpySrcAccessOrder = 1;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL: CUmemcpySrcAccessOrder = 2;
pub const CU_MEMCPY_SRC_ACCESS_ORDER_ANY: CUmemcpySrcAccessOrder = 3;

/// `CUmemcpyFlags`; the constants below are its values.
pub type CUmemcpyFlags = u32;
pub const CU_MEMCPY_FLAG_DEFAULT: CUmemcpyFlags = 0;
pub const CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE: CUmemcpyFlags = 1;

/// `CUmemPool_attribute`; the constants below are its values.
pub type CUmemPool_attribute = u32;
pub const CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: CUmemPool_attribute = 1;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: CUmemPool_attribute = 2;
pub const CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: CUmemPool_attribute = 3;
pub const CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: CUmemPool_attribute = 4;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: CUmemPool_attribute = 5;
pub const CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: CUmemPool_attribute = 6;
pub const CU_MEMPOOL_ATTR_USED_MEM_CURRENT: CUmemPool_attribute = 7;
pub const CU_MEMPOOL_ATTR_USED_MEM_HIGH: CUmemPool_attribute = 8;

/// `CUmoduleLoadingMode`; the constants below are its values.
pub type CUmoduleLoadingMode = u32;
pub const CU_MODULE_EAGER_LOADING: CUmoduleLoadingMode = 1;
pub const CU_MODULE_LAZY_LOADING: CUmoduleLoadingMode = 2;

/// `CUfunctionLoadingState`; the constants below are its values.
pub type CUfunctionLoadingState = u32;
pub const CU_FUNCTION_LOADING_STATE_UNLOADED: CUfunctionLoadingState = 0;
pub const CU_FUNCTION_LOADING_STATE_LOADED: CUfunctionLoadingState = 1;
pub const CU_FUNCTION_LOADING_STATE_MAX: CUfunctionLoadingState = 2;

/// Every result code with its name, in the order of their values.
pub const RESULT_NAMES: &[(CUresult, &str)] = &[
    (CUDA_SUCCESS, "CUDA_SUCCESS"),
    (CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"),
    (CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY"),
    (CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED"),
    (CUDA_ERROR_DEINITIALIZED, "CUDA_ERROR_DEINITIALIZED"),
    (CUDA_ERROR_PROFILER_DISABLED, "CUDA_ERROR_PROFILER_DISABLED"),
    (
        CUDA_ERROR_PROFILER_NOT_INITIALIZED,
        "CUDA_ERROR_PROFILER_NOT_INITIALIZED",
    ),
    (
        CUDA_ERROR_PROFILER_ALREADY_STARTED,
        "CUDA_ERROR_PROFILER_ALREADY_STARTED",
    ),
    (
        CUDA_ERROR_PROFILER_ALREADY_STOPPED,
        "CUDA_ERROR_PROFILER_ALREADY_STOPPED",
    ),
    (CUDA_ERROR_STUB_LIBRARY, "CUDA_ERROR_STUB_LIBRARY"),
    (
        CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER,
        "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER",
    ),
    (
        CUDA_ERROR_DEVICE_UNAVAILABLE,
        "CUDA_ERROR_DEVICE_UNAVAILABLE",
    ),
    (CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE"),
    (CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"),
    (
        CUDA_ERROR_DEVICE_NOT_LICENSED,
        "CUDA_ERROR_DEVICE_NOT_LICENSED",
    ),
    (CUDA_ERROR_INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"),
    (CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"),
    (
        CUDA_ERROR_CONTEXT_ALREADY_CURRENT,
        "CUDA_ERROR_CONTEXT_ALREADY_CURRENT",
    ),
    (CUDA_ERROR_MAP_FAILED, "CUDA_ERROR_MAP_FAILED"),
    (CUDA_ERROR_UNMAP_FAILED, "CUDA_ERROR_UNMAP_FAILED"),
    (CUDA_ERROR_ARRAY_IS_MAPPED, "CUDA_ERROR_ARRAY_IS_MAPPED"),
    (CUDA_ERROR_ALREADY_MAPPED, "CUDA_ERROR_ALREADY_MAPPED"),
    (CUDA_ERROR_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    (CUDA_ERROR_ALREADY_ACQUIRED, "CUDA_ERROR_ALREADY_ACQUIRED"),
    (CUDA_ERROR_NOT_MAPPED, "CUDA_ERROR_NOT_MAPPED"),
    (
        CUDA_ERROR_NOT_MAPPED_AS_ARRAY,
        "CUDA_ERROR_NOT_MAPPED_AS_ARRAY",
    ),
    (
        CUDA_ERROR_NOT_MAPPED_AS_POINTER,
        "CUDA_ERROR_NOT_MAPPED_AS_POINTER",
    ),
    (CUDA_ERROR_ECC_UNCORRECTABLE, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (CUDA_ERROR_UNSUPPORTED_LIMIT, "CUDA_ERROR_UNSUPPORTED_LIMIT"),
    (
        CUDA_ERROR_CONTEXT_ALREADY_IN_USE,
        "CUDA_ERROR_CONTEXT_ALREADY_IN_USE",
    ),
    (
        CUDA_ERROR_PEER_ACCESS_UNSUPPORTED,
        "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
    ),
    (CUDA_ERROR_INVALID_PTX, "CUDA_ERROR_INVALID_PTX"),
    (
        CUDA_ERROR_INVALID_GRAPHICS_CONTEXT,
        "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT",
    ),
    (
        CUDA_ERROR_NVLINK_UNCORRECTABLE,
        "CUDA_ERROR_NVLINK_UNCORRECTABLE",
    ),
    (
        CUDA_ERROR_JIT_COMPILER_NOT_FOUND,
        "CUDA_ERROR_JIT_COMPILER_NOT_FOUND",
    ),
    (
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    ),
    (
        CUDA_ERROR_JIT_COMPILATION_DISABLED,
        "CUDA_ERROR_JIT_COMPILATION_DISABLED",
    ),
    (
        CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY,
        "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY",
    ),
    (
        CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC,
        "CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC",
    ),
    (CUDA_ERROR_CONTAINED, "CUDA_ERROR_CONTAINED"),
    (CUDA_ERROR_INVALID_SOURCE, "CUDA_ERROR_INVALID_SOURCE"),
    (CUDA_ERROR_FILE_NOT_FOUND, "CUDA_ERROR_FILE_NOT_FOUND"),
    (
        CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND,
        "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND",
    ),
    (
        CUDA_ERROR_SHARED_OBJECT_INIT_FAILED,
        "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED",
    ),
    (CUDA_ERROR_OPERATING_SYSTEM, "CUDA_ERROR_OPERATING_SYSTEM"),
    (CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE"),
    (CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE"),
    (CUDA_ERROR_LOSSY_QUERY, "CUDA_ERROR_LOSSY_QUERY"),
    (CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"),
    (CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"),
    (CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (
        CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
        "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
    ),
    (CUDA_ERROR_LAUNCH_TIMEOUT, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    (
        CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING,
        "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING",
    ),
    (
        CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED,
        "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
    ),
    (
        CUDA_ERROR_PEER_ACCESS_NOT_ENABLED,
        "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
    ),
    (
        CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE,
        "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE",
    ),
    (
        CUDA_ERROR_CONTEXT_IS_DESTROYED,
        "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    ),
    (CUDA_ERROR_ASSERT, "CUDA_ERROR_ASSERT"),
    (CUDA_ERROR_TOO_MANY_PEERS, "CUDA_ERROR_TOO_MANY_PEERS"),
    (
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
        "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED",
    ),
    (
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
        "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED",
    ),
    (
        CUDA_ERROR_HARDWARE_STACK_ERROR,
        "CUDA_ERROR_HARDWARE_STACK_ERROR",
    ),
    (
        CUDA_ERROR_ILLEGAL_INSTRUCTION,
        "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    ),
    (
        CUDA_ERROR_MISALIGNED_ADDRESS,
        "CUDA_ERROR_MISALIGNED_ADDRESS",
    ),
    (
        CUDA_ERROR_INVALID_ADDRESS_SPACE,
        "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    ),
    (CUDA_ERROR_INVALID_PC, "CUDA_ERROR_INVALID_PC"),
    (CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED"),
    (
        CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
        "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE",
    ),
    (
        CUDA_ERROR_TENSOR_MEMORY_LEAK,
        "CUDA_ERROR_TENSOR_MEMORY_LEAK",
    ),
    (CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"),
    (CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED"),
    (CUDA_ERROR_SYSTEM_NOT_READY, "CUDA_ERROR_SYSTEM_NOT_READY"),
    (
        CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
    ),
    (
        CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE,
        "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
    ),
    (
        CUDA_ERROR_MPS_CONNECTION_FAILED,
        "CUDA_ERROR_MPS_CONNECTION_FAILED",
    ),
    (CUDA_ERROR_MPS_RPC_FAILURE, "CUDA_ERROR_MPS_RPC_FAILURE"),
    (
        CUDA_ERROR_MPS_SERVER_NOT_READY,
        "CUDA_ERROR_MPS_SERVER_NOT_READY",
    ),
    (
        CUDA_ERROR_MPS_MAX_CLIENTS_REACHED,
        "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED",
    ),
    (
        CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED,
        "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED",
    ),
    (
        CUDA_ERROR_MPS_CLIENT_TERMINATED,
        "CUDA_ERROR_MPS_CLIENT_TERMINATED",
    ),
    (CUDA_ERROR_CDP_NOT_SUPPORTED, "CUDA_ERROR_CDP_NOT_SUPPORTED"),
    (
        CUDA_ERROR_CDP_VERSION_MISMATCH,
        "CUDA_ERROR_CDP_VERSION_MISMATCH",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
        "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
        "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_MERGE,
        "CUDA_ERROR_STREAM_CAPTURE_MERGE",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
        "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
        "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
        "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
    ),
    (
        CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
        "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
    ),
    (CUDA_ERROR_CAPTURED_EVENT, "CUDA_ERROR_CAPTURED_EVENT"),
    (
        CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
        "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
    ),
    (CUDA_ERROR_TIMEOUT, "CUDA_ERROR_TIMEOUT"),
    (
        CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
        "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
    ),
    (CUDA_ERROR_EXTERNAL_DEVICE, "CUDA_ERROR_EXTERNAL_DEVICE"),
    (
        CUDA_ERROR_INVALID_CLUSTER_SIZE,
        "CUDA_ERROR_INVALID_CLUSTER_SIZE",
    ),
    (
        CUDA_ERROR_FUNCTION_NOT_LOADED,
        "CUDA_ERROR_FUNCTION_NOT_LOADED",
    ),
    (
        CUDA_ERROR_INVALID_RESOURCE_TYPE,
        "CUDA_ERROR_INVALID_RESOURCE_TYPE",
    ),
    (
        CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
        "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION",
    ),
    (CUDA_ERROR_KEY_ROTATION, "CUDA_ERROR_KEY_ROTATION"),
    (CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"),
];

macro_rules! opaque_handles {
    ($($(#[$doc:meta])* $name:ident, $target:ident;)*) => {$(
        #[doc(hidden)]
        #[repr(C)]
        pub struct $target {
            _private: [u8; 0],
        }
        $(#[$doc])*
        pub type $name = *mut $target;
    )*};
}

opaque_handles! {
    /// A context.
    CUcontext, CUctx_st;
    /// A green context: a part of a device's multiprocessors.
    CUgreenCtx, CUgreenCtx_st;
    /// The resources of a green context that is to be made.
    CUdevResourceDesc, CUdevResourceDesc_st;
    /// A module.
    CUmodule, CUmod_st;
    /// A kernel of a module; some callers pass a [`CUkernel`] in its place.
    CUfunction, CUfunc_st;
    /// A library: a module that exists in every context.
    CUlibrary, CUlib_st;
    /// A kernel of a library.
    CUkernel, CUkern_st;
    /// A stream; see [`CU_STREAM_LEGACY`] and [`CU_STREAM_PER_THREAD`].
    CUstream, CUstream_st;
    /// An event.
    CUevent, CUevent_st;
    /// An array (opaque texture memory).
    CUarray, CUarray_st;
    /// A memory pool.
    CUmemoryPool, CUmemPoolHandle_st;
    /// A graph.
    CUgraph, CUgraph_st;
    /// An executable graph.
    CUgraphExec, CUgraphExec_st;
    /// A graph node.
    CUgraphNode, CUgraphNode_st;
}

/// A device's ordinal.
pub type CUdevice = c_int;
/// A device address (of device memory, or of host memory that the device can access).
pub type CUdeviceptr = u64;

/// Physical memory of `cuMemCreate`: a number, not an address.
pub type CUmemGenericAllocationHandle = u64;

/// The NULL stream with legacy semantics, by name.
pub const CU_STREAM_LEGACY: usize = 1;
/// The calling thread's own default stream, by name.
pub const CU_STREAM_PER_THREAD: usize = 2;

/// `cuMemHostAlloc`: pinned for every context.
pub const CU_MEMHOSTALLOC_PORTABLE: c_uint = 1;
/// `cuMemHostAlloc`: mapped for the device.
pub const CU_MEMHOSTALLOC_DEVICEMAP: c_uint = 2;
/// `cuMemHostAlloc`: write-combined.
pub const CU_MEMHOSTALLOC_WRITECOMBINED: c_uint = 4;
/// `cuMemHostRegister`: pinned for every context.
pub const CU_MEMHOSTREGISTER_PORTABLE: c_uint = 1;
/// `cuMemHostRegister`: mapped for the device.
pub const CU_MEMHOSTREGISTER_DEVICEMAP: c_uint = 2;
/// `cuMemHostRegister`: I/O memory.
pub const CU_MEMHOSTREGISTER_IOMEMORY: c_uint = 4;
/// `cuMemHostRegister`: the device only reads.
pub const CU_MEMHOSTREGISTER_READ_ONLY: c_uint = 8;

/// `extra[]` of a launch: ends the list.
pub const CU_LAUNCH_PARAM_END: usize = 0;
/// `extra[]` of a launch: the next pointer is the packed parameter buffer.
pub const CU_LAUNCH_PARAM_BUFFER_POINTER: usize = 1;
/// `extra[]` of a launch: the next pointer points to the buffer's size, a `size_t`.
pub const CU_LAUNCH_PARAM_BUFFER_SIZE: usize = 2;

/// `CUuuid`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUuuid {
    pub bytes: [u8; 16],
}

/// `CUmemLocation`: the place of memory, or of its accessor.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUmemLocation {
    pub type_: CUmemLocationType,
    pub id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUmemAccessDesc {
    pub location: CUmemLocation,
    pub flags: CUmemAccess_flags,
}

const _: () = assert!(size_of::<CUmemAccessDesc>() == 12);

/// `CUmemcpyAttributes`: the attributes of some copies of a batch.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUmemcpyAttributes {
    pub srcAccessOrder: CUmemcpySrcAccessOrder,
    pub srcLocHint: CUmemLocation,
    pub dstLocHint: CUmemLocation,
    pub flags: c_uint,
}

const _: () = assert!(size_of::<CUmemcpyAttributes>() == 24);

/// The anonymous structure `allocFlags` of [`CUmemAllocationProp`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUmemAllocationFlags {
    pub compressionType: CUmemAllocationCompType,
    pub gpuDirectRDMACapable: u8,
    pub usage: u16,
    pub reserved: [u8; 4],
}

/// `CUmemAllocationProp`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CUmemAllocationProp {
    pub type_: CUmemAllocationType,
    pub requestedHandleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    /// NULL on other systems than Windows.
    pub win32HandleMetaData: *mut c_void,
    pub allocFlags: CUmemAllocationFlags,
}

const _: () = assert!(size_of::<CUmemAllocationProp>() == 32);

/// `CUmemPoolPtrExportData`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CUmemPoolPtrExportData {
    pub reserved: [c_char; 64],
}

/// `CUmemPoolProps`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUmemPoolProps {
    pub allocType: CUmemAllocationType,
    pub handleTypes: CUmemAllocationHandleType,
    pub location: CUmemLocation,
    /// NULL on other systems than Windows.
    pub win32SecurityAttributes: *mut c_void,
    pub maxSize: usize,
    pub usage: u16,
    pub reserved: [u8; 54],
}

const _: () = assert!(size_of::<CUmemPoolProps>() == 88);

/// `CUdevResourceType`; the constants below are its values.
pub type CUdevResourceType = u32;
pub const CU_DEV_RESOURCE_TYPE_INVALID: CUdevResourceType = 0;
pub const CU_DEV_RESOURCE_TYPE_SM: CUdevResourceType = 1;

/// `CUdevSmResourceSplit_flags`; the constants below are its values.
pub type CUdevSmResourceSplit_flags = u32;
pub const CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING: CUdevSmResourceSplit_flags = 1;
pub const CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE: CUdevSmResourceSplit_flags = 2;

/// `CUgreenCtxCreate_flags`; the constant below is its value.
pub type CUgreenCtxCreate_flags = u32;
pub const CU_GREEN_CTX_DEFAULT_STREAM: CUgreenCtxCreate_flags = 1;

/// `CUdevSmResource`: multiprocessors.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUdevSmResource {
    pub smCount: c_uint,
    pub minSmPartitionSize: c_uint,
    pub smCoscheduledAlignment: c_uint,
}

/// `CUdevResource`: the content of `internal` belongs to the library.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUdevResource {
    pub type_: CUdevResourceType,
    pub internal: [u32; 23],
    pub sm: CUdevSmResource,
    pub oversize: [u32; 9],
}

const _: () = assert!(size_of::<CUdevResource>() == 144);

/// `CUeglFrame` (`_v1`): the planes of an image of EGL.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUeglFrame {
    /// Arrays, or addresses.
    pub frame: [*mut c_void; 3],
    pub width: u32,
    pub height: u32,
    pub depth: u32,
    pub pitch: u32,
    pub planeCount: u32,
    pub numChannels: u32,
    pub frameType: u32,
    pub eglColorFormat: u32,
    pub cuFormat: u32,
}

/// `CUDA_MEMCPY2D` (`_v2`): one two-dimensional copy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY2D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub srcPitch: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub dstPitch: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
}

/// `CUDA_MEMCPY3D` (`_v2`): one three-dimensional copy.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CUDA_MEMCPY3D {
    pub srcXInBytes: usize,
    pub srcY: usize,
    pub srcZ: usize,
    pub srcLOD: usize,
    pub srcMemoryType: CUmemorytype,
    pub srcHost: *const c_void,
    pub srcDevice: CUdeviceptr,
    pub srcArray: CUarray,
    pub reserved0: *mut c_void,
    pub srcPitch: usize,
    pub srcHeight: usize,
    pub dstXInBytes: usize,
    pub dstY: usize,
    pub dstZ: usize,
    pub dstLOD: usize,
    pub dstMemoryType: CUmemorytype,
    pub dstHost: *mut c_void,
    pub dstDevice: CUdeviceptr,
    pub dstArray: CUarray,
    pub reserved1: *mut c_void,
    pub dstPitch: usize,
    pub dstHeight: usize,
    pub WidthInBytes: usize,
    pub Height: usize,
    pub Depth: usize,
}

const _: () = assert!(size_of::<CUDA_MEMCPY3D>() == 25 * 8);

/// `CUDA_ARRAY3D_DESCRIPTOR` (`_v2`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_ARRAY3D_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Depth: usize,
    pub Format: CUarray_format,
    pub NumChannels: c_uint,
    pub Flags: c_uint,
}

const _: () = assert!(size_of::<CUDA_ARRAY3D_DESCRIPTOR>() == 40);

/// `CUmipmappedArray`.
pub type CUmipmappedArray = *mut c_void;
/// `CUtexObject`: the value that kernels get.
pub type CUtexObject = u64;
/// `CUsurfObject`: the value that kernels get.
pub type CUsurfObject = u64;

/// `CUDA_ARRAY3D_DESCRIPTOR::Flags`: `CUDA_ARRAY3D_*`.
pub const CUDA_ARRAY3D_LAYERED: c_uint = 1;
pub const CUDA_ARRAY3D_SURFACE_LDST: c_uint = 2;
pub const CUDA_ARRAY3D_CUBEMAP: c_uint = 4;
pub const CUDA_ARRAY3D_TEXTURE_GATHER: c_uint = 8;
pub const CUDA_ARRAY3D_DEPTH_TEXTURE: c_uint = 0x10;
pub const CUDA_ARRAY3D_COLOR_ATTACHMENT: c_uint = 0x20;
pub const CUDA_ARRAY3D_SPARSE: c_uint = 0x40;
pub const CUDA_ARRAY3D_DEFERRED_MAPPING: c_uint = 0x80;

/// `CUDA_ARRAY_DESCRIPTOR` (`_v2`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_ARRAY_DESCRIPTOR {
    pub Width: usize,
    pub Height: usize,
    pub Format: CUarray_format,
    pub NumChannels: c_uint,
}

const _: () = assert!(size_of::<CUDA_ARRAY_DESCRIPTOR>() == 24);

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_ARRAY_MEMORY_REQUIREMENTS {
    pub size: usize,
    pub alignment: usize,
    pub reserved: [c_uint; 4],
}

const _: () = assert!(size_of::<CUDA_ARRAY_MEMORY_REQUIREMENTS>() == 32);

/// `CUresourcetype`.
pub type CUresourcetype = u32;
pub const CU_RESOURCE_TYPE_ARRAY: CUresourcetype = 0;
pub const CU_RESOURCE_TYPE_MIPMAPPED_ARRAY: CUresourcetype = 1;
pub const CU_RESOURCE_TYPE_LINEAR: CUresourcetype = 2;
pub const CU_RESOURCE_TYPE_PITCH2D: CUresourcetype = 3;

/// `CUDA_RESOURCE_DESC` (`_v1`). `res` is a union: for an array or a mipmapped array its first word is the handle; for
/// linear memory and rows its words are the fields of [`CUDA_RESOURCE_MEMORY`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_RESOURCE_DESC {
    pub resType: CUresourcetype,
    pub res: CUDA_RESOURCE_MEMORY,
    pub reserved: [u64; 11],
    pub flags: c_uint,
}

/// The members `linear` and `pitch2D` of the union in [`CUDA_RESOURCE_DESC`].
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_RESOURCE_MEMORY {
    /// `devPtr`, or the handle of an array.
    pub devPtr: u64,
    pub format: CUarray_format,
    pub numChannels: c_uint,
    /// `sizeInBytes` of linear memory, `width` of rows.
    pub width: usize,
    pub height: usize,
    pub pitchInBytes: usize,
}

const _: () = assert!(size_of::<CUDA_RESOURCE_DESC>() == 144);
const _: () = assert!(std::mem::offset_of!(CUDA_RESOURCE_DESC, flags) == 136);

/// `CUaddress_mode`.
pub type CUaddress_mode = u32;
pub const CU_TR_ADDRESS_MODE_WRAP: CUaddress_mode = 0;
pub const CU_TR_ADDRESS_MODE_CLAMP: CUaddress_mode = 1;
pub const CU_TR_ADDRESS_MODE_MIRROR: CUaddress_mode = 2;
pub const CU_TR_ADDRESS_MODE_BORDER: CUaddress_mode = 3;

/// `CUfilter_mode`.
pub type CUfilter_mode = u32;
pub const CU_TR_FILTER_MODE_POINT: CUfilter_mode = 0;
pub const CU_TR_FILTER_MODE_LINEAR: CUfilter_mode = 1;

/// `CUDA_TEXTURE_DESC::flags`.
pub const CU_TRSF_READ_AS_INTEGER: c_uint = 1;
pub const CU_TRSF_NORMALIZED_COORDINATES: c_uint = 2;
pub const CU_TRSF_SRGB: c_uint = 0x10;
pub const CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION: c_uint = 0x20;
pub const CU_TRSF_SEAMLESS_CUBEMAP: c_uint = 0x40;

/// `cuTexRefSetArray` takes the array's format.
pub const CU_TRSA_OVERRIDE_FORMAT: c_uint = 1;

/// `CUDA_TEXTURE_DESC` (`_v1`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_TEXTURE_DESC {
    pub addressMode: [CUaddress_mode; 3],
    pub filterMode: CUfilter_mode,
    pub flags: c_uint,
    pub maxAnisotropy: c_uint,
    pub mipmapFilterMode: CUfilter_mode,
    pub mipmapLevelBias: f32,
    pub minMipmapLevelClamp: f32,
    pub maxMipmapLevelClamp: f32,
    pub borderColor: [f32; 4],
    pub reserved: [c_int; 12],
}

const _: () = assert!(size_of::<CUDA_TEXTURE_DESC>() == 104);

/// `CUDA_RESOURCE_VIEW_DESC` (`_v1`).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUDA_RESOURCE_VIEW_DESC {
    pub format: u32,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub firstMipmapLevel: c_uint,
    pub lastMipmapLevel: c_uint,
    pub firstLayer: c_uint,
    pub lastLayer: c_uint,
    pub reserved: [c_uint; 16],
}

const _: () = assert!(size_of::<CUDA_RESOURCE_VIEW_DESC>() == 112);

/// `CUDA_KERNEL_NODE_PARAMS` (`_v2`): a launch that is a node of a graph.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUDA_KERNEL_NODE_PARAMS {
    pub func: CUfunction,
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
    pub kern: CUkernel,
    pub ctx: CUcontext,
}

const _: () = assert!(size_of::<CUDA_KERNEL_NODE_PARAMS>() == 72);

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS`, a flag of `cuIpcOpenMemHandle`.
pub const CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// `CUipcMemHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUipcMemHandle {
    pub reserved: [c_char; 64],
}

/// `CUipcEventHandle`, which is passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUipcEventHandle {
    pub reserved: [c_char; 64],
}

/// `CUlaunchAttributeValue`: 64 bytes, read by the attribute's id.
#[repr(C)]
#[derive(Clone, Copy)]
pub union CUlaunchAttributeValue {
    pub pad: [u8; 64],
    pub cooperative: c_int,
    pub clusterDim: CUlaunchAttributeClusterDim,
    pub clusterSchedulingPolicyPreference: CUclusterSchedulingPolicy,
    pub programmaticStreamSerializationAllowed: c_int,
    pub priority: c_int,
    pub words: [u64; 8],
}

/// The cluster's size in blocks.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CUlaunchAttributeClusterDim {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchAttribute {
    pub id: CUlaunchAttributeID,
    pub pad: [u8; 4],
    pub value: CUlaunchAttributeValue,
}

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct CUlaunchConfig {
    pub gridDimX: c_uint,
    pub gridDimY: c_uint,
    pub gridDimZ: c_uint,
    pub blockDimX: c_uint,
    pub blockDimY: c_uint,
    pub blockDimZ: c_uint,
    pub sharedMemBytes: c_uint,
    pub hStream: CUstream,
    pub attrs: *mut CUlaunchAttribute,
    pub numAttrs: c_uint,
}

/// `CUdevprop`, of the deprecated `cuDeviceGetProperties`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CUdevprop {
    pub maxThreadsPerBlock: c_int,
    pub maxThreadsDim: [c_int; 3],
    pub maxGridSize: [c_int; 3],
    pub sharedMemPerBlock: c_int,
    pub totalConstantMemory: c_int,
    pub SIMDWidth: c_int,
    pub memPitch: c_int,
    pub regsPerBlock: c_int,
    pub clockRate: c_int,
    pub textureAlign: c_int,
}

/// A function that a stream calls on the host.
pub type CUhostFn = Option<unsafe extern "C" fn(userData: *mut c_void)>;
/// A function that a stream calls on the host, with its status.
pub type CUstreamCallback =
    Option<unsafe extern "C" fn(hStream: CUstream, status: CUresult, userData: *mut c_void)>;
/// The dynamic shared memory of a block of a given size, in bytes.
pub type CUoccupancyB2DSize = Option<unsafe extern "C" fn(blockSize: c_int) -> usize>;

/// The name of a result code, or `None` for a code that CUDA does not have.
pub fn result_name(code: CUresult) -> Option<&'static str> {
    RESULT_NAMES
        .iter()
        .find(|(c, _)| *c == code)
        .map(|(_, name)| *name)
}

/// Whether an error leaves a process unable to use the GPU: every later call fails with the same error.
pub const fn is_sticky(code: CUresult) -> bool {
    matches!(
        code,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sticky_errors_are_those_after_which_a_process_has_to_start_again() {
        let sticky: Vec<_> = (0..=CUDA_ERROR_UNKNOWN)
            .filter(|&code| is_sticky(code))
            .collect();
        assert_eq!(
            sticky,
            [
                214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911
            ]
        );
        assert!(sticky.iter().all(|&code| result_name(code).is_some()));
    }
}
