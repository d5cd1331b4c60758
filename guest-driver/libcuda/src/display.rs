// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Interoperation with graphics interfaces: OpenGL, EGL and VDPAU. No display of a virtual machine uses the device, so
//! these functions fail as NVIDIA's driver does on a machine without displays. The codes are those of driver 580 on an
//! H200.

use std::ffi::c_void;

use gpgpu_protocol::{cuda::*, with_signature};

use crate::{
    argument::{InPtr, OutPtr},
    client::{client, client_in_context},
    cuda,
    device::device,
    ffi::Result,
};

/// The targets of OpenGL's images that CUDA takes: `GL_TEXTURE_2D`, `GL_TEXTURE_3D`, `GL_TEXTURE_RECTANGLE`,
/// `GL_TEXTURE_CUBE_MAP`, `GL_TEXTURE_2D_ARRAY` and `GL_RENDERBUFFER`.
const TARGETS: [u32; 6] = [0x0de1, 0x806f, 0x84f5, 0x8513, 0x8c1a, 0x8d41];
/// The flags of contexts.
const CONTEXT_FLAGS: u32 = 0xff;

/// EGL's library is not there, so the functions of its streams fail also before `cuInit`.
fn anywhere() -> Result<()> {
    Ok(())
}

/// Defines functions that fail with a code after a check, whatever their arguments are. Their signatures are the list's.
/// A variant with per-thread default streams names its function.
macro_rules! refused {
    ($($check:ident $code:ident: $($name:ident $(as $of:ident)?),* ;)*) => {
        $($(refused!(@of $check $code $name $($of)?);)*)*
    };
    (@of $check:ident $code:ident $name:ident) => {
        with_signature!($name one $name $check $code);
    };
    (@of $check:ident $code:ident $name:ident $of:ident) => {
        with_signature!($of one $name $check $code);
    };
}

macro_rules! one {
    ($name:ident $check:ident $code:ident ($($arg:ident: $ty:ty),*)) => {
        cuda! {
            /// Refused, as by NVIDIA's driver.
            #[allow(unused_variables)]
            fn $name($($arg: $ty),*) {
                $check()?;
                Err($code)
            }
        }
    };
}

refused! {
    // No resource was ever registered, and no buffer.
    client CUDA_ERROR_INVALID_HANDLE:
        cuGraphicsResourceGetMappedEglFrame, cuGraphicsResourceGetMappedMipmappedArray,
        cuGraphicsResourceGetMappedPointer, cuGraphicsResourceGetMappedPointer_v2, cuGraphicsResourceSetMapFlags,
        cuGraphicsResourceSetMapFlags_v2, cuGraphicsSubResourceGetMappedArray, cuGraphicsUnregisterResource;
    client_in_context CUDA_ERROR_INVALID_VALUE:
        cuGLMapBufferObject_v2, cuGLMapBufferObject_v2_ptds as cuGLMapBufferObject_v2, cuGLMapBufferObjectAsync_v2,
        cuGLMapBufferObjectAsync_v2_ptsz as cuGLMapBufferObjectAsync_v2, cuGLSetBufferObjectMapFlags,
        cuGLUnmapBufferObject, cuGLUnmapBufferObjectAsync, cuGLUnregisterBufferObject;
    // OpenGL's library is not there.
    client CUDA_ERROR_OPERATING_SYSTEM: cuGLGetDevices, cuGLGetDevices_v2;
    client_in_context CUDA_ERROR_OPERATING_SYSTEM: cuGLInit, cuGLRegisterBufferObject;
    // No context of a 64-bit process has 32-bit addresses, and none was made by `cuVDPAUCtxCreate`.
    client CUDA_ERROR_INVALID_CONTEXT:
        cuGLMapBufferObject, cuGLMapBufferObjectAsync, cuGraphicsVDPAURegisterOutputSurface,
        cuGraphicsVDPAURegisterVideoSurface;
    client_in_context CUDA_ERROR_UNKNOWN: cuGraphicsEGLRegisterImage;
    client CUDA_ERROR_UNKNOWN: cuVDPAUCtxCreate, cuVDPAUCtxCreate_v2;
    client CUDA_ERROR_INVALID_VALUE: cuVDPAUGetDevice;
    anywhere CUDA_ERROR_INVALID_HANDLE:
        cuEGLStreamConsumerAcquireFrame, cuEGLStreamConsumerConnect, cuEGLStreamConsumerConnectWithFlags,
        cuEGLStreamConsumerDisconnect, cuEGLStreamConsumerReleaseFrame, cuEGLStreamProducerConnect,
        cuEGLStreamProducerDisconnect, cuEGLStreamProducerPresentFrame, cuEGLStreamProducerReturnFrame;
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

/// Makes no context for OpenGL.
fn make_context(pCtx: OutPtr<CUcontext>, flags: u32, ordinal: CUdevice) -> Result {
    client()?;
    pCtx.required()?;
    device(ordinal)?;
    Err(match flags & !CONTEXT_FLAGS {
        0 => CUDA_ERROR_OPERATING_SYSTEM,
        _ => CUDA_ERROR_INVALID_VALUE,
    })
}

cuda! {
    /// `cuGLCtxCreate` as before CUDA 3.2.
    fn cuGLCtxCreate(pCtx: OutPtr<CUcontext>, Flags: u32, device: CUdevice) {
        make_context(pCtx, Flags, device)
    }

    /// `cuGLCtxCreate`.
    fn cuGLCtxCreate_v2(pCtx: OutPtr<CUcontext>, Flags: u32, device: CUdevice) {
        make_context(pCtx, Flags, device)
    }

    /// `cuGraphicsGLRegisterBuffer`.
    fn cuGraphicsGLRegisterBuffer(pCudaResource: OutPtr<*mut c_void>, _buffer: u32, _Flags: u32) {
        client_in_context()?;
        pCudaResource.required()?;
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }

    /// `cuGraphicsGLRegisterImage`.
    fn cuGraphicsGLRegisterImage(pCudaResource: OutPtr<*mut c_void>, _image: u32, target: u32, _Flags: u32) {
        client_in_context()?;
        pCudaResource.required()?;
        if !TARGETS.contains(&target) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Err(CUDA_ERROR_OPERATING_SYSTEM)
    }
}
