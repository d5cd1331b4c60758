// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Interoperation with graphics interfaces: OpenGL, EGL and VDPAU. No display of a virtual machine uses the device, so
//! these functions fail as NVIDIA's driver does on a machine without displays. The codes are those of driver 580 on an
//! H200.

use std::ffi::c_void;

use gpgpu_protocol::cuda::*;

use crate::{
    argument::{InPtr, OutPtr},
    client::client,
    cuda,
    device::device,
    ffi::Result,
    thread,
};

/// The targets of OpenGL's images that CUDA takes: `GL_TEXTURE_2D`, `GL_TEXTURE_3D`, `GL_TEXTURE_RECTANGLE`,
/// `GL_TEXTURE_CUBE_MAP`, `GL_TEXTURE_2D_ARRAY` and `GL_RENDERBUFFER`.
const TARGETS: [u32; 6] = [0x0de1, 0x806f, 0x84f5, 0x8513, 0x8c1a, 0x8d41];

/// The flags of contexts.
const CONTEXT_FLAGS: u32 = 0xff;

fn has_context() -> Result {
    client()?;
    match thread::current_context() {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        _ => Ok(()),
    }
}

/// Checks a resource of a display's interface: none was ever registered.
fn resource(resource: *mut c_void) -> Result {
    let _ = resource;
    client()?;
    Err(CUDA_ERROR_INVALID_HANDLE)
}

/// Checks several resources of a display's interface.
fn resources(count: u32, resources: InPtr<*const c_void>) -> Result {
    client()?;
    Err(if count == 0 || resources.is_null() {
        CUDA_ERROR_INVALID_VALUE
    } else {
        CUDA_ERROR_INVALID_HANDLE
    })
}

/// Checks a buffer of OpenGL: none was ever registered.
fn buffer(_buffer: u32) -> Result {
    has_context()?;
    Err(CUDA_ERROR_INVALID_VALUE)
}

/// Checks the arguments of a context for a display's interface.
fn new_context(pCtx: OutPtr<CUcontext>, flags: u32, ordinal: CUdevice) -> Result {
    client()?;
    pCtx.required()?;
    device(ordinal)?;
    match flags & !CONTEXT_FLAGS {
        0 => Ok(()),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

macro_rules! of_resources {
    ($($name:ident)*) => {cuda! {$(
        fn $name(count: u32, from: InPtr<*const c_void>, _hStream: CUstream) {
            resources(count, from)
        }
    )*}};
}

of_resources! {
    cuGraphicsMapResources
    cuGraphicsMapResources_ptsz
    cuGraphicsUnmapResources
    cuGraphicsUnmapResources_ptsz
}

cuda! {
    fn cuGraphicsUnregisterResource(resource: *mut c_void) {
        self::resource(resource)
    }

    fn cuGraphicsResourceGetMappedPointer(_pDevPtr: OutPtr<u32>, _pSize: OutPtr<u32>, resource: *mut c_void) {
        self::resource(resource)
    }

    fn cuGraphicsResourceGetMappedPointer_v2(_pDevPtr: OutPtr<CUdeviceptr>, _pSize: OutPtr<usize>, resource: *mut c_void) {
        self::resource(resource)
    }

    fn cuGraphicsResourceSetMapFlags(resource: *mut c_void, _flags: u32) {
        self::resource(resource)
    }

    fn cuGraphicsResourceSetMapFlags_v2(resource: *mut c_void, _flags: u32) {
        self::resource(resource)
    }

    fn cuGraphicsSubResourceGetMappedArray(_pArray: OutPtr<CUarray>, resource: *mut c_void, _arrayIndex: u32, _mipLevel: u32) {
        self::resource(resource)
    }

    fn cuGraphicsResourceGetMappedMipmappedArray(_pMipmappedArray: OutPtr<*mut c_void>, resource: *mut c_void) {
        self::resource(resource)
    }

    /// `cuGraphicsGLRegisterBuffer`: OpenGL's library is not there.
    fn cuGraphicsGLRegisterBuffer(pCudaResource: OutPtr<*mut c_void>, _buffer: u32, _Flags: u32) {
        has_context()?;
        pCudaResource.required()?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// As [`cuGraphicsGLRegisterBuffer`].
    fn cuGraphicsGLRegisterImage(pCudaResource: OutPtr<*mut c_void>, _image: u32, target: u32, _Flags: u32) {
        has_context()?;
        pCudaResource.required()?;
        if !TARGETS.contains(&target) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLGetDevices` as before CUDA 6.5.
    fn cuGLGetDevices(_pCudaDeviceCount: OutPtr<u32>, _pCudaDevices: OutPtr<CUdevice>, _cudaDeviceCount: u32, _deviceList: u32) {
        client()?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLGetDevices`.
    fn cuGLGetDevices_v2(_pCudaDeviceCount: OutPtr<u32>, _pCudaDevices: OutPtr<CUdevice>, _cudaDeviceCount: u32, _deviceList: u32) {
        client()?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLCtxCreate` as before CUDA 3.2.
    fn cuGLCtxCreate(pCtx: OutPtr<CUcontext>, Flags: u32, device: CUdevice) {
        new_context(pCtx, Flags, device)?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLCtxCreate`.
    fn cuGLCtxCreate_v2(pCtx: OutPtr<CUcontext>, Flags: u32, device: CUdevice) {
        new_context(pCtx, Flags, device)?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLInit`.
    fn cuGLInit() {
        has_context()?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLRegisterBufferObject`.
    fn cuGLRegisterBufferObject(_buffer: u32) {
        has_context()?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGLMapBufferObject` with 32-bit addresses, which no context of this process has.
    fn cuGLMapBufferObject(_dptr: OutPtr<u32>, _size: OutPtr<u32>, _buffer: u32) {
        client()?;
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// `cuGLMapBufferObject`.
    fn cuGLMapBufferObject_v2(_dptr: OutPtr<CUdeviceptr>, _size: OutPtr<usize>, buffer: u32) {
        self::buffer(buffer)
    }

    /// The same.
    fn cuGLMapBufferObject_v2_ptds(_dptr: OutPtr<CUdeviceptr>, _size: OutPtr<usize>, buffer: u32) {
        self::buffer(buffer)
    }

    /// `cuGLMapBufferObjectAsync` with 32-bit addresses.
    fn cuGLMapBufferObjectAsync(_dptr: OutPtr<u32>, _size: OutPtr<u32>, _buffer: u32, _hStream: CUstream) {
        client()?;
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// `cuGLMapBufferObjectAsync`.
    fn cuGLMapBufferObjectAsync_v2(_dptr: OutPtr<CUdeviceptr>, _size: OutPtr<usize>, buffer: u32, _hStream: CUstream) {
        self::buffer(buffer)
    }

    /// The same.
    fn cuGLMapBufferObjectAsync_v2_ptsz(_dptr: OutPtr<CUdeviceptr>, _size: OutPtr<usize>, buffer: u32, _hStream: CUstream) {
        self::buffer(buffer)
    }

    /// `cuGLSetBufferObjectMapFlags`.
    fn cuGLSetBufferObjectMapFlags(buffer: u32, _Flags: u32) {
        self::buffer(buffer)
    }

    /// `cuGLUnmapBufferObject`.
    fn cuGLUnmapBufferObject(buffer: u32) {
        self::buffer(buffer)
    }

    /// `cuGLUnmapBufferObjectAsync`.
    fn cuGLUnmapBufferObjectAsync(buffer: u32, _hStream: CUstream) {
        self::buffer(buffer)
    }

    /// `cuGLUnregisterBufferObject`.
    fn cuGLUnregisterBufferObject(buffer: u32) {
        self::buffer(buffer)
    }

    /// `cuGraphicsEGLRegisterImage`.
    fn cuGraphicsEGLRegisterImage(_pCudaResource: OutPtr<*mut c_void>, _image: *mut c_void, _flags: u32) {
        has_context()?;
        Err(CUDA_ERROR_UNKNOWN)
    }

    /// `cuGraphicsResourceGetMappedEglFrame`.
    fn cuGraphicsResourceGetMappedEglFrame(_eglFrame: OutPtr<CUeglFrame>, resource: *mut c_void, _index: u32, _mipLevel: u32) {
        self::resource(resource)
    }

    /// `cuEGLStreamConsumerConnect`. The functions of EGL's streams fail also before `cuInit`: EGL's library is not there.
    fn cuEGLStreamConsumerConnect(_conn: OutPtr<*mut c_void>, _stream: *mut c_void) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamConsumerConnectWithFlags(_conn: OutPtr<*mut c_void>, _stream: *mut c_void, _flags: u32) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamConsumerDisconnect(_conn: OutPtr<*mut c_void>) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamConsumerAcquireFrame(_conn: OutPtr<*mut c_void>, _pCudaResource: OutPtr<*mut c_void>, _pStream: OutPtr<CUstream>, _timeout: u32) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamConsumerReleaseFrame(_conn: OutPtr<*mut c_void>, _pCudaResource: *mut c_void, _pStream: OutPtr<CUstream>) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamProducerConnect(_conn: OutPtr<*mut c_void>, _stream: *mut c_void, _width: i32, _height: i32) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamProducerDisconnect(_conn: OutPtr<*mut c_void>) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamProducerPresentFrame(_conn: OutPtr<*mut c_void>, _eglframe: CUeglFrame, _pStream: OutPtr<CUstream>) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// As [`cuEGLStreamConsumerConnect`].
    fn cuEGLStreamProducerReturnFrame(_conn: OutPtr<*mut c_void>, _eglframe: OutPtr<CUeglFrame>, _pStream: OutPtr<CUstream>) {
        Err(CUDA_ERROR_INVALID_HANDLE)
    }

    /// `cuVDPAUGetDevice`: no device of VDPAU is one of CUDA.
    fn cuVDPAUGetDevice(_pDevice: OutPtr<CUdevice>, _vdpDevice: u32, _vdpGetProcAddress: *mut c_void) {
        client()?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuVDPAUCtxCreate` as before CUDA 3.2.
    fn cuVDPAUCtxCreate(_pCtx: OutPtr<CUcontext>, _flags: u32, _device: CUdevice, _vdpDevice: u32, _vdpGetProcAddress: *mut c_void) {
        client()?;
        Err(CUDA_ERROR_UNKNOWN)
    }

    /// `cuVDPAUCtxCreate`.
    fn cuVDPAUCtxCreate_v2(_pCtx: OutPtr<CUcontext>, _flags: u32, _device: CUdevice, _vdpDevice: u32, _vdpGetProcAddress: *mut c_void) {
        client()?;
        Err(CUDA_ERROR_UNKNOWN)
    }

    /// `cuGraphicsVDPAURegisterVideoSurface`: no context was made by `cuVDPAUCtxCreate`.
    fn cuGraphicsVDPAURegisterVideoSurface(_pCudaResource: OutPtr<*mut c_void>, _vdpSurface: u32, _flags: u32) {
        client()?;
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }

    /// As [`cuGraphicsVDPAURegisterVideoSurface`].
    fn cuGraphicsVDPAURegisterOutputSurface(_pCudaResource: OutPtr<*mut c_void>, _vdpSurface: u32, _flags: u32) {
        client()?;
        Err(CUDA_ERROR_INVALID_CONTEXT)
    }
}
