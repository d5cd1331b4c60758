// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface objects. Their values are those of the host's driver, because kernels get them.

use gpgpu_protocol::{
    api::{TextureForm, TextureResource, TextureView, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    stores::arrays::TextureData,
    tensor_map::far,
    thread,
};

fn resource(client: &Client, native: &CUDA_RESOURCE_DESC) -> TextureResource {
    let of = &native.res;
    let kind = native.resType;
    let flags = native.flags;
    if matches!(kind, CU_RESOURCE_TYPE_LINEAR | CU_RESOURCE_TYPE_PITCH2D) {
        client.disown(of.devPtr);
        return TextureResource {
            kind,
            array: 0,
            address: far(client, of.devPtr as *mut _),
            format: of.format,
            channels: of.numChannels,
            width: of.width,
            height: of.height,
            pitch: of.pitchInBytes,
            flags,
        };
    }
    TextureResource {
        kind,
        array: of.devPtr,
        flags,
        ..TextureResource::default()
    }
}

fn texture(native: &CUDA_TEXTURE_DESC) -> Result<TextureForm> {
    if native.reserved != [0; 12] {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let [address_x, address_y, address_z] = native.addressMode;
    let [red, green, blue, alpha] = native.borderColor;
    Ok(TextureForm {
        address_x,
        address_y,
        address_z,
        filter: native.filterMode,
        flags: native.flags,
        anisotropy: native.maxAnisotropy,
        mipmap_filter: native.mipmapFilterMode,
        bias: native.mipmapLevelBias,
        least_level: native.minMipmapLevelClamp,
        greatest_level: native.maxMipmapLevelClamp,
        red,
        green,
        blue,
        alpha,
    })
}

fn view(native: &CUDA_RESOURCE_VIEW_DESC) -> Result<TextureView> {
    if native.reserved != [0; 16] {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(TextureView {
        format: native.format,
        width: native.width,
        height: native.height,
        depth: native.depth,
        first_level: native.firstMipmapLevel,
        last_level: native.lastMipmapLevel,
        first_layer: native.firstLayer,
        last_layer: native.lastLayer,
    })
}

fn context() -> Result<u64> {
    match thread::home(client()?) {
        0 => Err(CUDA_ERROR_INVALID_CONTEXT),
        context => Ok(context),
    }
}

/// The source of a texture of the current context.
fn known(object: CUtexObject) -> Result<TextureData> {
    let client = client()?;
    let found = client
        .arrays
        .table()
        .textures
        .get(&(context()?, object))
        .copied();
    found.ok_or(CUDA_ERROR_INVALID_VALUE)
}

cuda! {
    fn cuTexObjectCreate(pTexObject: OutPtr<CUtexObject>, pResDesc: InPtr<CUDA_RESOURCE_DESC>, pTexDesc: InPtr<CUDA_TEXTURE_DESC>, pResViewDesc: InPtr<CUDA_RESOURCE_VIEW_DESC>) {
        let client = client()?;
        pTexObject.required()?;
        let context = context()?;
        let (given, how) = (pResDesc.get()?, pTexDesc.get()?);
        let seen = if pResViewDesc.is_null() { None } else { Some(pResViewDesc.get()?) };
        let request = request::gpgpuTexObjectCreate {
            object: true,
            resource: resource(client, &given),
            texture: texture(&how)?,
            view: seen.as_ref().map(view).transpose()?,
        };
        let object = client.call(&request)?.object;
        let data = TextureData { resource: given, texture: how, view: seen.unwrap_or_default() };
        client.arrays.table().textures.insert((context, object), data);
        pTexObject.set(object)
    }

    /// `cuTexObjectDestroy`. As natively, destroying an unknown object is not an error.
    fn cuTexObjectDestroy(texObject: CUtexObject) {
        let client = client()?;
        let context = context()?;
        // Another object may get the value as soon as the host has destroyed this one.
        let known = client.arrays.table().textures.remove(&(context, texObject));
        match known {
            Some(_) => client.call(&request::cuTexObjectDestroy { texObject }).map(drop),
            None => Ok(()),
        }
    }

    fn cuTexObjectGetResourceDesc(pResDesc: OutPtr<CUDA_RESOURCE_DESC>, texObject: CUtexObject) {
        pResDesc.set(known(texObject)?.resource)
    }

    fn cuTexObjectGetTextureDesc(pTexDesc: OutPtr<CUDA_TEXTURE_DESC>, texObject: CUtexObject) {
        pTexDesc.set(known(texObject)?.texture)
    }

    fn cuTexObjectGetResourceViewDesc(pResViewDesc: OutPtr<CUDA_RESOURCE_VIEW_DESC>, texObject: CUtexObject) {
        pResViewDesc.set(known(texObject)?.view)
    }

    fn cuSurfObjectCreate(pSurfObject: OutPtr<CUsurfObject>, pResDesc: InPtr<CUDA_RESOURCE_DESC>) {
        let client = client()?;
        pSurfObject.required()?;
        let context = context()?;
        let given = pResDesc.get()?;
        let request = request::gpgpuSurfObjectCreate { object: true, resource: resource(client, &given) };
        let object = client.call(&request)?.object;
        client.arrays.table().surfaces.insert((context, object), given);
        pSurfObject.set(object)
    }

    /// `cuSurfObjectDestroy`: as for a texture.
    fn cuSurfObjectDestroy(surfObject: CUsurfObject) {
        let client = client()?;
        let context = context()?;
        let known = client.arrays.table().surfaces.remove(&(context, surfObject));
        match known {
            Some(_) => client.call(&request::cuSurfObjectDestroy { surfObject }).map(drop),
            None => Ok(()),
        }
    }

    fn cuSurfObjectGetResourceDesc(pResDesc: OutPtr<CUDA_RESOURCE_DESC>, surfObject: CUsurfObject) {
        let client = client()?;
        let known = client.arrays.table().surfaces.get(&(context()?, surfObject)).copied();
        pResDesc.set(known.ok_or(CUDA_ERROR_INVALID_VALUE)?)
    }
}
