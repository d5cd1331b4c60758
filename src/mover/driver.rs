//! The functions of the driver API that a mover calls beside the worker's.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use crate::worker::driver::{Symbol, check, functions};

pub use crate::worker::driver::{
    cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuDeviceTotalMem_v2, cuInit,
    cuMemHostGetDevicePointer_v2, cuMemHostRegister_v2, cuMemHostUnregister, cuMemcpyAsync,
    cuModuleGetFunction, is_present,
};

functions! {
    fn cuDeviceGet(dev: *mut CUdevice, ordinal: i32);
    fn cuEventCreate(event: *mut CUevent, flags: u32);
    fn cuEventRecord(event: CUevent, stream: CUstream);
    fn cuEventQuery(event: CUevent);
    fn cuMemAddressFree(address: CUdeviceptr, bytes: usize);
    fn cuMemAddressReserve(address: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: u64);
    fn cuMemGetAllocationPropertiesFromHandle(properties: *mut CUmemAllocationProp, handle: CUmemGenericAllocationHandle);
    fn cuMemHostAlloc(pointer: *mut *mut c_void, bytes: usize, flags: u32);
    fn cuMemImportFromShareableHandle(handle: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: CUmemAllocationHandleType);
    fn cuMemMap(address: CUdeviceptr, bytes: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64);
    fn cuMemRelease(handle: CUmemGenericAllocationHandle);
    fn cuMemSetAccess(address: CUdeviceptr, bytes: usize, access: *const CUmemAccessDesc, count: usize);
    fn cuMemUnmap(address: CUdeviceptr, bytes: usize);
    fn cuModuleLoadData(module: *mut CUmodule, image: *const c_void);
    fn cuStreamCreate(stream: *mut CUstream, flags: u32);
    fn cuStreamSynchronize(stream: CUstream);
    fn cuLaunchKernel(function: CUfunction, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: CUstream, params: *mut *mut c_void, extra: *mut *mut c_void);
}
