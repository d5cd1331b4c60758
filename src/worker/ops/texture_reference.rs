// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface references: globals of a module that its kernels read, and that the host binds to memory.
//! Objects replaced them in CUDA 5; the driver still supports them for images that were compiled before CUDA 12.
//!
//! The client stores a program's settings, and sends the whole reference when it is bound.

use std::{
    ffi::{CString, c_void},
    ptr::null_mut,
};

use gpgpu_protocol::{
    api::{Array, Object, TextureForm, TextureResource, reply, request},
    cuda::*,
};

use super::{
    module::{c_name, module},
    texture::resource,
};
use crate::cuda::driver;
use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

/// Looks up a texture reference.
fn texture(session: &Session, id: u64, name: &CString) -> Result<*mut c_void, CUresult> {
    let (module, mut found) = (module(session, id)?, null_mut());
    // SAFETY: the pointers are to values that live across the call; the module is the driver's and lives.
    unsafe { driver::cuModuleGetTexRef(&mut found, module, name.as_ptr())? };
    Ok(found)
}

/// Looks up a surface reference.
fn surface(session: &Session, id: u64, name: &CString) -> Result<*mut c_void, CUresult> {
    let (module, mut found) = (module(session, id)?, null_mut());
    // SAFETY: as in `texture`.
    unsafe { driver::cuModuleGetSurfRef(&mut found, module, name.as_ptr())? };
    Ok(found)
}

/// A reference of the driver that belongs to no module.
struct Loose(*mut c_void);

impl Loose {
    fn new() -> Result<Self, CUresult> {
        let mut made = null_mut();
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { driver::cuTexRefCreate(&mut made)? };
        Ok(Self(made))
    }
}

impl Drop for Loose {
    fn drop(&mut self) {
        // SAFETY: the reference is the driver's, and no other code ends it.
        let _ = unsafe { driver::cuTexRefDestroy(self.0) };
    }
}

/// Sets how a reference is sampled.
///
/// # Safety
///
/// The reference is the driver's and exists.
unsafe fn sample(
    to: *mut c_void,
    of: &TextureResource,
    form: &TextureForm,
) -> Result<(), CUresult> {
    let colour = [form.red, form.green, form.blue, form.alpha];
    let channels = i32::try_from(of.channels).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let modes = [form.address_x, form.address_y, form.address_z];
    // SAFETY: promised by the caller; the colour lives across its call.
    unsafe {
        driver::cuTexRefSetFormat(to, of.format, channels)?;
        driver::cuTexRefSetFlags(to, form.flags)?;
        for (dimension, mode) in modes.into_iter().enumerate() {
            driver::cuTexRefSetAddressMode(to, dimension as i32, mode)?;
        }
        driver::cuTexRefSetFilterMode(to, form.filter)?;
        driver::cuTexRefSetMipmapFilterMode(to, form.mipmap_filter)?;
        driver::cuTexRefSetMipmapLevelBias(to, form.bias)?;
        driver::cuTexRefSetMipmapLevelClamp(to, form.least_level, form.greatest_level)?;
        driver::cuTexRefSetMaxAnisotropy(to, form.anisotropy)?;
        driver::cuTexRefSetBorderColor(to, colour.as_ptr())
    }
}

/// Binds a reference to a resource; returns the offset of its address from a texture's alignment, if that is requested.
///
/// # Safety
///
/// As for [`sample`], and the resource was looked up for the client.
unsafe fn bind(
    to: *mut c_void,
    of: &CUDA_RESOURCE_DESC,
    flags: u32,
    wants_offset: bool,
) -> Result<usize, CUresult> {
    let mut offset = 0;
    let offset_to = if wants_offset {
        &raw mut offset
    } else {
        null_mut()
    };
    let memory = &of.res;
    // SAFETY: promised by the caller; the pointers are to values that live across the call, or NULL.
    unsafe {
        match of.resType {
            CU_RESOURCE_TYPE_ARRAY => {
                driver::cuTexRefSetArray(to, memory.devPtr as CUarray, flags)?;
            }
            CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                let array = memory.devPtr as CUmipmappedArray;
                driver::cuTexRefSetMipmappedArray(to, array, flags)?;
            }
            CU_RESOURCE_TYPE_LINEAR => {
                driver::cuTexRefSetAddress_v2(offset_to, to, memory.devPtr, memory.width)?;
            }
            _ => {
                let form = CUDA_ARRAY_DESCRIPTOR {
                    Width: memory.width,
                    Height: memory.height,
                    Format: memory.format,
                    NumChannels: memory.numChannels,
                };
                let pitch = memory.pitchInBytes;
                driver::cuTexRefSetAddress2D_v3(to, &form, memory.devPtr, pitch)?;
            }
        }
    }
    Ok(offset)
}

/// Whether a module has a reference.
pub fn gpgpuModuleReference(
    session: &Session,
    request: request::gpgpuModuleReference,
    _: Data,
) -> Outcome<reply::gpgpuModuleReference> {
    let name = c_name(request.name)?;
    match request.surface {
        true => surface(session, request.hmod, &name)?,
        false => texture(session, request.hmod, &name)?,
    };
    Ok(reply::gpgpuModuleReference::default())
}

/// Sets a whole texture reference.
pub fn gpgpuTextureReferenceSet(
    session: &Session,
    request: request::gpgpuTextureReferenceSet,
    _: Data,
) -> Outcome<reply::gpgpuTextureReferenceSet> {
    let (of, name) = (&request.resource, c_name(request.name)?);
    // The address 0 ends a binding.
    let is_end = of.kind == CU_RESOURCE_TYPE_LINEAR && of.address == 0;
    let native = if is_end {
        CUDA_RESOURCE_DESC {
            resType: of.kind,
            ..CUDA_RESOURCE_DESC::default()
        }
    } else {
        resource(session, of)?
    };
    let loose;
    let to = if request.hmod == 0 {
        loose = Loose::new()?;
        loose.0
    } else {
        texture(session, request.hmod, &name)?
    };
    // SAFETY: the reference was just looked up or made, and its module stays until the command ends; so does the
    // resource.
    let offset = unsafe {
        sample(to, of, &request.texture)?;
        bind(to, &native, of.flags, request.offset)?
    };
    Ok(reply::gpgpuTextureReferenceSet {
        offset,
        ..Default::default()
    })
}

/// Sets the array of a surface reference.
pub fn gpgpuSurfaceReferenceSet(
    session: &Session,
    request: request::gpgpuSurfaceReferenceSet,
    _: Data,
) -> Outcome<reply::gpgpuSurfaceReferenceSet> {
    let name = c_name(request.name)?;
    let array = Array::handle(session.objects.raw::<Array>(request.array)?);
    let to = surface(session, request.hmod, &name)?;
    // SAFETY: the reference and the array were looked up, and stay until the command ends.
    unsafe { driver::cuSurfRefSetArray(to, array, 0)? };
    Ok(reply::gpgpuSurfaceReferenceSet::default())
}
