// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The C types of the runtime API, laid out as in its headers. Enumerations are integers here, because a caller can
//! pass any value.
#![allow(non_camel_case_types)]

use gpgpu_protocol::cuda as cu;
use std::ffi::{c_int, c_uint, c_void};

pub type cudaError_t = c_uint;
pub type cudaStream_t = cu::CUstream;
pub type cudaEvent_t = cu::CUevent;
pub type cudaExecutionContext_t = cu::CUcontext;
pub type cudaArray_t = cu::CUarray;
pub type cudaMemPool_t = cu::CUmemoryPool;
pub type cudaMemLocation = cu::CUmemLocation;
pub type cudaFunction_t = cu::CUfunction;
pub type cudaKernel_t = cu::CUkernel;
pub type cudaLibrary_t = cu::CUlibrary;
pub type cudaGraph_t = cu::CUgraph;
pub type cudaGraphExec_t = cu::CUgraphExec;
pub type cudaGraphNode_t = cu::CUgraphNode;
pub type cudaMemcpyKind = c_uint;

pub const MEMCPY_HOST_TO_HOST: cudaMemcpyKind = 0;
pub const MEMCPY_HOST_TO_DEVICE: cudaMemcpyKind = 1;
pub const MEMCPY_DEVICE_TO_HOST: cudaMemcpyKind = 2;
pub const MEMCPY_DEVICE_TO_DEVICE: cudaMemcpyKind = 3;
pub const MEMCPY_DEFAULT: cudaMemcpyKind = 4;

/// The version of a static runtime of CUDA 11, which `libcudart.so.12` replaces.
pub const VERSION_11: c_int = 11080;
/// The version that `libcudart.so.12` reports.
pub const VERSION_12: c_int = 12090;
/// The version that `libcudart.so.13` reports.
pub const VERSION_13: c_int = 13000;

/// The runtime version that this library is linked as: [`VERSION_12`] or [`VERSION_13`].
#[cfg(not(test))]
pub fn cudart_abi() -> c_int {
    unsafe extern "C" {
        // The version script of the shared library defines this symbol.
        #[link_name = "cudart_abi"]
        static ABI: c_int;
    }
    // SAFETY: an integer that nothing writes.
    unsafe { ABI }
}

/// The unit tests act as version 13 of the runtime.
#[cfg(test)]
pub fn cudart_abi() -> c_int {
    VERSION_13
}

// The symbols among which the version scripts choose.
#[unsafe(no_mangle)]
static cudart12_abi: c_int = VERSION_12;
#[unsafe(no_mangle)]
static cudart13_abi: c_int = VERSION_13;

/// `dim3`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct dim3 {
    pub x: c_uint,
    pub y: c_uint,
    pub z: c_uint,
}

/// `cudaExtent`: the width is in bytes for linear memory, and in elements if the copy has an array.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaExtent {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// `cudaPos`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaPos {
    pub x: usize,
    pub y: usize,
    pub z: usize,
}

/// `cudaPitchedPtr`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaPitchedPtr {
    pub ptr: *mut c_void,
    pub pitch: usize,
    pub xsize: usize,
    pub ysize: usize,
}

/// `cudaMemcpy3DParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaMemcpy3DParms {
    pub srcArray: cudaArray_t,
    pub srcPos: cudaPos,
    pub srcPtr: cudaPitchedPtr,
    pub dstArray: cudaArray_t,
    pub dstPos: cudaPos,
    pub dstPtr: cudaPitchedPtr,
    pub extent: cudaExtent,
    pub kind: cudaMemcpyKind,
}

/// `cudaMemcpy3DPeerParms`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaMemcpy3DPeerParms {
    pub srcArray: cudaArray_t,
    pub srcPos: cudaPos,
    pub srcPtr: cudaPitchedPtr,
    pub srcDevice: c_int,
    pub dstArray: cudaArray_t,
    pub dstPos: cudaPos,
    pub dstPtr: cudaPitchedPtr,
    pub dstDevice: c_int,
    pub extent: cudaExtent,
}

/// `cudaMemLocationTypeDevice`.
pub const MEM_LOCATION_DEVICE: c_uint = 1;
/// `cudaMemLocationTypeHost`.
pub const MEM_LOCATION_HOST: c_uint = 2;

/// `cudaChannelFormatDesc`: the bits of each component, and their kind.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct cudaChannelFormatDesc {
    pub x: c_int,
    pub y: c_int,
    pub z: c_int,
    pub w: c_int,
    pub f: c_uint,
}

/// `cudaPointerAttributes` without the reserved words that version 13 has at its end.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaPointerAttributes {
    pub kind: c_uint,
    pub device: c_int,
    pub devicePointer: *mut c_void,
    pub hostPointer: *mut c_void,
}

/// `cudaFuncAttributes`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaFuncAttributes {
    pub sharedSizeBytes: usize,
    pub constSizeBytes: usize,
    pub localSizeBytes: usize,
    pub maxThreadsPerBlock: c_int,
    pub numRegs: c_int,
    pub ptxVersion: c_int,
    pub binaryVersion: c_int,
    pub cacheModeCA: c_int,
    pub maxDynamicSharedSizeBytes: c_int,
    pub preferredShmemCarveout: c_int,
    pub clusterDimMustBeSet: c_int,
    pub requiredClusterWidth: c_int,
    pub requiredClusterHeight: c_int,
    pub requiredClusterDepth: c_int,
    pub clusterSchedulingPolicyPreference: c_int,
    pub nonPortableClusterSizeAllowed: c_int,
    pub reserved: [c_int; 16],
}

/// `cudaLaunchConfig_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaLaunchConfig_t {
    pub gridDim: dim3,
    pub blockDim: dim3,
    pub dynamicSmemBytes: usize,
    pub stream: cudaStream_t,
    pub attrs: *mut cu::CUlaunchAttribute,
    pub numAttrs: c_uint,
}

/// `cudaKernelNodeParams`; its second version is the same.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaKernelNodeParams {
    pub func: *mut c_void,
    pub gridDim: dim3,
    pub blockDim: dim3,
    pub sharedMemBytes: c_uint,
    pub kernelParams: *mut *mut c_void,
    pub extra: *mut *mut c_void,
}

/// `cudaMemsetParams`, the same as `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cudaMemsetParams {
    pub dst: *mut c_void,
    pub pitch: usize,
    pub value: c_uint,
    pub elementSize: c_uint,
    pub width: usize,
    pub height: usize,
}

// The sizes and offsets in the headers of CUDA 12.9 and 13.0.
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<dim3>() == 12);
    assert!(size_of::<cudaMemcpy3DParms>() == 160);
    assert!(offset_of!(cudaMemcpy3DParms, dstArray) == 64);
    assert!(offset_of!(cudaMemcpy3DParms, kind) == 152);
    assert!(size_of::<cudaMemcpy3DPeerParms>() == 168);
    assert!(size_of::<cudaFuncAttributes>() == 144);
    assert!(offset_of!(cudaFuncAttributes, maxDynamicSharedSizeBytes) == 44);
    assert!(size_of::<cudaPointerAttributes>() == 24);
    assert!(size_of::<cudaLaunchConfig_t>() == 56);
    assert!(size_of::<cudaKernelNodeParams>() == 56);
    assert!(size_of::<cudaMemsetParams>() == 40);
};
