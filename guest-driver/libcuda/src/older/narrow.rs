// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions whose device addresses and sizes have 32 bits: those of CUDA before 3.2, functions of arrays included.
//!
//! They are for contexts from the `cuCtxCreate` of that version. A 64-bit process has none: the driver does not make
//! such a context there ([`cuCtxCreate`](fn@cuCtxCreate)), and in any other context each of these functions fails with
//! `CUDA_ERROR_INVALID_CONTEXT`, with any arguments. This is so with NVIDIA's driver 580, and here.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use crate::{
    argument::{HostPtr, OutPtr, Text},
    client::client,
    cuda,
    device::device,
    ffi::Result,
};

fn refused() -> Result {
    client()?;
    Err(CUDA_ERROR_INVALID_CONTEXT)
}

/// Refuses, with a check for an invalid handle first.
fn refused_of<T>(handle: *mut T) -> Result {
    if handle.is_null() {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    refused()
}

/// The valid flags of a new context.
const FLAGS: u32 = 0xff;

cuda! {
    /// `cuCtxCreate` as in CUDA before 3.2. A 64-bit process has no memory in that form.
    fn cuCtxCreate(pctx: OutPtr<CUcontext>, flags: u32, dev: CUdevice) {
        client()?;
        pctx.required()?;
        device(dev)?;
        Err(if flags & !FLAGS == 0 { CUDA_ERROR_OUT_OF_MEMORY } else { CUDA_ERROR_INVALID_VALUE })
    }

    /// `cuDeviceTotalMem` as in CUDA before 3.2, limited to the range of the type.
    fn cuDeviceTotalMem(bytes: OutPtr<u32>, dev: CUdevice) {
        client()?;
        bytes.required()?;
        bytes.set(u32::try_from(device(dev)?.total_memory).unwrap_or(u32::MAX))
    }

    fn cuMemAlloc(dptr: OutPtr<u32>, _bytesize: u32) {
        client()?;
        dptr.offer(0);
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuMemFree(_dptr: u32) {
        refused()
    }
    fn cuMemGetInfo(free: OutPtr<u32>, total: OutPtr<u32>) {
        client()?;
        free.offer(0); total.offer(0);
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuMemAllocHost(pp: OutPtr<*mut c_void>, _bytesize: u32) {
        client()?;
        pp.offer(std::ptr::null_mut());
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuMemHostGetDevicePointer(pdptr: OutPtr<u32>, _p: HostPtr, _Flags: u32) {
        client()?;
        pdptr.offer(0);
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuMemAllocPitch(dptr: OutPtr<u32>, pPitch: OutPtr<u32>, _WidthInBytes: u32, _Height: u32, _ElementSizeBytes: u32) {
        client()?;
        dptr.offer(0); pPitch.offer(0);
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuMemGetAddressRange(pbase: OutPtr<u32>, psize: OutPtr<u32>, _dptr: u32) {
        client()?;
        pbase.offer(0); psize.offer(0);
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuModuleGetGlobal(dptr: OutPtr<u32>, bytes: OutPtr<u32>, _hmod: CUmodule, _name: Text) {
        client()?;
        dptr.offer(0); bytes.offer(0);
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
    fn cuMemcpyHtoD(_dstDevice: u32, _srcHost: HostPtr, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyDtoH(_dstHost: HostPtr, _srcDevice: u32, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyDtoD(_dstDevice: u32, _srcDevice: u32, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyHtoDAsync(_dstDevice: u32, _srcHost: HostPtr, _ByteCount: u32, _hStream: CUstream) {
        refused()
    }
    fn cuMemcpyDtoHAsync(_dstHost: HostPtr, _srcDevice: u32, _ByteCount: u32, _hStream: CUstream) {
        refused()
    }
    fn cuMemcpyDtoDAsync(_dstDevice: u32, _srcDevice: u32, _ByteCount: u32, _hStream: CUstream) {
        refused()
    }
    fn cuMemsetD8(_dstDevice: u32, _uc: u8, _N: u32) {
        refused()
    }
    fn cuMemsetD16(_dstDevice: u32, _us: u16, _N: u32) {
        refused()
    }
    fn cuMemsetD32(_dstDevice: u32, _ui: u32, _N: u32) {
        refused()
    }
    fn cuMemsetD2D8(_dstDevice: u32, _dstPitch: u32, _uc: u8, _Width: u32, _Height: u32) {
        refused()
    }
    fn cuMemsetD2D16(_dstDevice: u32, _dstPitch: u32, _us: u16, _Width: u32, _Height: u32) {
        refused()
    }
    fn cuMemsetD2D32(_dstDevice: u32, _dstPitch: u32, _ui: u32, _Width: u32, _Height: u32) {
        refused()
    }
    fn cuMemcpy2D(_pCopy: HostPtr) {
        refused()
    }
    fn cuMemcpy2DUnaligned(_pCopy: HostPtr) {
        refused()
    }
    fn cuMemcpy2DAsync(_pCopy: HostPtr, _hStream: CUstream) {
        refused()
    }
    fn cuMemcpy3D(_pCopy: HostPtr) {
        refused()
    }
    fn cuMemcpy3DAsync(_pCopy: HostPtr, _hStream: CUstream) {
        refused()
    }
    fn cuArrayCreate(_pHandle: OutPtr<CUarray>, _pAllocateArray: HostPtr) {
        refused()
    }
    fn cuArray3DCreate(_pHandle: OutPtr<CUarray>, _pAllocateArray: HostPtr) {
        refused()
    }
    fn cuArrayGetDescriptor(_pArrayDescriptor: HostPtr, hArray: CUarray) {
        refused_of(hArray)
    }
    fn cuArray3DGetDescriptor(_pArrayDescriptor: HostPtr, hArray: CUarray) {
        refused_of(hArray)
    }
    fn cuMemcpyAtoA(_dstArray: CUarray, _dstOffset: u32, _srcArray: CUarray, _srcOffset: u32, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyAtoD(_dstDevice: u32, _srcArray: CUarray, _srcOffset: u32, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyAtoH(_dstHost: HostPtr, _srcArray: CUarray, _srcOffset: u32, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyAtoHAsync(_dstHost: HostPtr, _srcArray: CUarray, _srcOffset: u32, _ByteCount: u32, _hStream: CUstream) {
        refused()
    }
    fn cuMemcpyDtoA(_dstArray: CUarray, _dstOffset: u32, _srcDevice: u32, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyHtoA(_dstArray: CUarray, _dstOffset: u32, _srcHost: HostPtr, _ByteCount: u32) {
        refused()
    }
    fn cuMemcpyHtoAAsync(_dstArray: CUarray, _dstOffset: u32, _srcHost: HostPtr, _ByteCount: u32, _hStream: CUstream) {
        refused()
    }
    fn cuTexRefSetAddress(_ByteOffset: OutPtr<u32>, hTexRef: *mut c_void, _dptr: u32, _bytes: u32) {
        refused_of(hTexRef)
    }
    fn cuTexRefSetAddress2D(hTexRef: *mut c_void, _desc: HostPtr, _dptr: u32, _Pitch: u32) {
        refused_of(hTexRef)
    }
    fn cuTexRefGetAddress(_pdptr: OutPtr<u32>, hTexRef: *mut c_void) {
        refused_of(hTexRef)
    }
}
