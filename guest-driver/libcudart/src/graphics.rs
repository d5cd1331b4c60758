// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Resources of graphics APIs, and the older functions of OpenGL's buffers. They have the driver's form.

use crate::abi::*;
use gpgpu_protocol::cuda::*;
use std::ffi::{c_int, c_uint, c_void};

export! {
    pass fn cudaGraphicsGLRegisterBuffer(resource: *mut *mut c_void, buffer: c_uint, flags: c_uint) => cuGraphicsGLRegisterBuffer;
    pass fn cudaGraphicsGLRegisterImage(resource: *mut *mut c_void, image: c_uint, target: c_uint, flags: c_uint) => cuGraphicsGLRegisterImage;
    pass fn cudaGraphicsUnregisterResource(resource: *mut c_void) => cuGraphicsUnregisterResource;
    pass fn cudaGraphicsResourceSetMapFlags(resource: *mut c_void, flags: c_uint) => cuGraphicsResourceSetMapFlags;
    pass fn cudaGraphicsResourceGetMappedPointer(pointer: *mut CUdeviceptr, bytes: *mut usize, resource: *mut c_void) => cuGraphicsResourceGetMappedPointer;
    pass fn cudaGraphicsSubResourceGetMappedArray(array: *mut CUarray, resource: *mut c_void, index: c_uint, level: c_uint) => cuGraphicsSubResourceGetMappedArray;
    pass fn cudaGraphicsResourceGetMappedMipmappedArray(array: *mut *mut c_void, resource: *mut c_void) => cuGraphicsResourceGetMappedMipmappedArray;

    pass fn cudaGLGetDevices(count: *mut c_uint, devices: *mut c_int, most: c_uint, list: c_uint) => cuGLGetDevices;
    pass fn cudaGLRegisterBufferObject(buffer: c_uint) => cuGLRegisterBufferObject;
    pass fn cudaGLSetBufferObjectMapFlags(buffer: c_uint, flags: c_uint) => cuGLSetBufferObjectMapFlags;
    pass fn cudaGLUnmapBufferObject(buffer: c_uint) => cuGLUnmapBufferObject;
    pass fn cudaGLUnmapBufferObjectAsync(buffer: c_uint, stream: cudaStream_t) => cuGLUnmapBufferObjectAsync;
    pass fn cudaGLUnregisterBufferObject(buffer: c_uint) => cuGLUnregisterBufferObject;

    fn cudaGLMapBufferObject(pointer: *mut CUdeviceptr, buffer: c_uint) {
        crate::context::current()?.cuGLMapBufferObject(pointer, std::ptr::null_mut(), buffer)
    }

    fn cudaGLMapBufferObjectAsync(pointer: *mut CUdeviceptr, buffer: c_uint, stream: cudaStream_t) {
        crate::context::current()?.cuGLMapBufferObjectAsync(pointer, std::ptr::null_mut(), buffer, stream)
    }

    fn cudaGraphicsMapResources(count: c_int, resources: *mut *mut c_void, stream: cudaStream_t) {
        crate::context::current()?.cuGraphicsMapResources(count as c_uint, resources, stream)
    }

    fn cudaGraphicsUnmapResources(count: c_int, resources: *mut *mut c_void, stream: cudaStream_t) {
        crate::context::current()?.cuGraphicsUnmapResources(count as c_uint, resources, stream)
    }
}
