// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface objects.

use gpgpu_protocol::{
    api::{Array, MipmappedArray, TextureForm, TextureResource, TextureView, reply, request},
    cuda::*,
};

use crate::cuda::driver;
use crate::worker::{
    arrays::Kind,
    dispatch::Outcome,
    session::{Data, Session},
};

/// The resource of a texture or surface in the driver's form: arrays are looked up.
pub fn resource(session: &Session, of: &TextureResource) -> Result<CUDA_RESOURCE_DESC, CUresult> {
    let mut native = CUDA_RESOURCE_DESC {
        resType: of.kind,
        flags: of.flags,
        ..CUDA_RESOURCE_DESC::default()
    };
    // NVIDIA's driver reports an invalid handle as an invalid value.
    let missing = |_| CUDA_ERROR_INVALID_VALUE;
    match of.kind {
        CU_RESOURCE_TYPE_ARRAY => {
            let raw = session.objects.raw::<Array>(of.array).map_err(missing)?;
            native.res.devPtr = raw;
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            let raw = session.objects.raw::<MipmappedArray>(of.array);
            native.res.devPtr = raw.map_err(missing)?;
        }
        // Any address is allowed, as with NVIDIA's driver: some programs' textures are longer than their memory. Only
        // kernels read it, and they can read all memory of this process.
        CU_RESOURCE_TYPE_LINEAR | CU_RESOURCE_TYPE_PITCH2D => {
            native.res = CUDA_RESOURCE_MEMORY {
                devPtr: of.address,
                format: of.format,
                numChannels: of.channels,
                width: of.width,
                height: of.height,
                pitchInBytes: of.pitch,
            };
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    Ok(native)
}

fn texture(of: &TextureForm) -> CUDA_TEXTURE_DESC {
    CUDA_TEXTURE_DESC {
        addressMode: [of.address_x, of.address_y, of.address_z],
        filterMode: of.filter,
        flags: of.flags,
        maxAnisotropy: of.anisotropy,
        mipmapFilterMode: of.mipmap_filter,
        mipmapLevelBias: of.bias,
        minMipmapLevelClamp: of.least_level,
        maxMipmapLevelClamp: of.greatest_level,
        borderColor: [of.red, of.green, of.blue, of.alpha],
        reserved: [0; 12],
    }
}

fn view(of: &TextureView) -> CUDA_RESOURCE_VIEW_DESC {
    CUDA_RESOURCE_VIEW_DESC {
        format: of.format,
        width: of.width,
        height: of.height,
        depth: of.depth,
        firstMipmapLevel: of.first_level,
        lastMipmapLevel: of.last_level,
        firstLayer: of.first_layer,
        lastLayer: of.last_layer,
        reserved: [0; 16],
    }
}

/// Makes a texture object.
pub fn gpgpuTexObjectCreate(
    session: &Session,
    request: request::gpgpuTexObjectCreate,
    _: Data,
) -> Outcome<reply::gpgpuTexObjectCreate> {
    if !request.object {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    session.textures.check_room()?;
    let resource = resource(session, &request.resource)?;
    let texture = texture(&request.texture);
    let view = request.view.as_ref().map(view);
    let view = view.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let mut object = 0;
    // SAFETY: the pointers are to values that live across the call, or NULL; an array is the driver's and lives.
    unsafe { driver::cuTexObjectCreate(&mut object, &resource, &texture, view)? };
    let context = session.current();
    session.textures.insert(context, Kind::Texture, object);
    Ok(reply::gpgpuTexObjectCreate {
        object,
        ..Default::default()
    })
}

/// `cuTexObjectDestroy`. As natively, destroying an unknown object is not an error.
pub fn cuTexObjectDestroy(
    session: &Session,
    request: request::cuTexObjectDestroy,
    _: Data,
) -> Outcome<reply::cuTexObjectDestroy> {
    let object = request.texObject;
    if session
        .textures
        .take(session.current(), Kind::Texture, object)
    {
        // SAFETY: the object is the driver's, of the current context, and no other code ends it.
        unsafe { driver::cuTexObjectDestroy(object)? };
    }
    Ok(reply::cuTexObjectDestroy::default())
}

/// Makes a surface object.
pub fn gpgpuSurfObjectCreate(
    session: &Session,
    request: request::gpgpuSurfObjectCreate,
    _: Data,
) -> Outcome<reply::gpgpuSurfObjectCreate> {
    // A surface needs an array.
    if !request.object || request.resource.kind != CU_RESOURCE_TYPE_ARRAY {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    session.textures.check_room()?;
    let resource = resource(session, &request.resource)?;
    let mut object = 0;
    // SAFETY: the pointers are to values that live across the call; the array is the driver's and lives.
    unsafe { driver::cuSurfObjectCreate(&mut object, &resource)? };
    let context = session.current();
    session.textures.insert(context, Kind::Surface, object);
    Ok(reply::gpgpuSurfObjectCreate {
        object,
        ..Default::default()
    })
}

/// `cuSurfObjectDestroy`; as [`cuTexObjectDestroy`].
pub fn cuSurfObjectDestroy(
    session: &Session,
    request: request::cuSurfObjectDestroy,
    _: Data,
) -> Outcome<reply::cuSurfObjectDestroy> {
    let object = request.surfObject;
    if session
        .textures
        .take(session.current(), Kind::Surface, object)
    {
        // SAFETY: as for a texture.
        unsafe { driver::cuSurfObjectDestroy(object)? };
    }
    Ok(reply::cuSurfObjectDestroy::default())
}

/// `cuDeviceGetTexture1DLinearMaxWidth`.
pub fn cuDeviceGetTexture1DLinearMaxWidth(
    session: &Session,
    request: request::cuDeviceGetTexture1DLinearMaxWidth,
    _: Data,
) -> Outcome<reply::cuDeviceGetTexture1DLinearMaxWidth> {
    let device = session.gpu(request.dev)?;
    let (mut width, mut to) = (0, std::ptr::null_mut());
    if request.maxWidthInElements {
        to = &raw mut width;
    }
    let (format, channels) = (request.format, request.numChannels);
    // SAFETY: the pointer is to a value that lives across the call, or NULL.
    unsafe { driver::cuDeviceGetTexture1DLinearMaxWidth(to, format, channels, device)? };
    Ok(reply::cuDeviceGetTexture1DLinearMaxWidth {
        maxWidthInElements: width,
        ..Default::default()
    })
}
