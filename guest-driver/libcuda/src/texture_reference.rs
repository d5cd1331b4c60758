// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface references. A program's settings are stored [here](crate::stores::references). The whole
//! reference is sent to the host when a resource is bound to it, and again when another setting of a bound reference
//! changes.

use std::{ffi::c_void, sync::Arc};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Array, ArrayForm, MipmappedArray, Module, Object, TextureResource, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr, Text},
    client::{Client, client},
    cuda,
    ffi::Result,
    stores::references::{Reading, Reference, State},
    tensor_map::far,
};

type Handle = *mut c_void;

/// `CU_TRSF_*`, all of them.
const FLAGS: u32 = CU_TRSF_READ_AS_INTEGER
    | CU_TRSF_NORMALIZED_COORDINATES
    | CU_TRSF_SRGB
    | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
    | CU_TRSF_SEAMLESS_CUBEMAP;

fn found(handle: Handle) -> Result<(&'static Client, Arc<Reference>)> {
    let client = client()?;
    Ok((client, client.references.get(handle as u64)?))
}

/// The settings of a texture reference.
fn reading(handle: Handle) -> Result<Reading> {
    match &found(handle)?.1.state {
        State::Texture(state) => Ok(*state.lock()),
        State::Surface(_) => Err(CUDA_ERROR_INVALID_HANDLE),
    }
}

/// Whether a handle belongs to a texture reference.
pub fn is_one(handle: Handle) -> bool {
    reading(handle).is_ok()
}

/// Handles the end of modules.
pub fn forget_modules(client: &Client) {
    let objects = &client.objects;
    client
        .references
        .retain_modules(|module| objects.module(module).is_ok());
}

fn send(client: &Client, of: &Reference, reading: &Reading, offset: bool) -> Result<usize> {
    let request = request::gpgpuTextureReferenceSet {
        hmod: of.module,
        name: of.name.clone(),
        resource: reading.resource,
        texture: reading.form,
        offset,
    };
    Ok(client.call(&request)?.offset)
}

/// Changes a texture reference. `send` sends it to the host, unless it is not bound.
fn set<T>(
    handle: Handle,
    change: impl FnOnce(&Client, &mut Reading) -> Result,
    send: impl FnOnce(&Client, &Reference, &Reading) -> Result<T>,
) -> Result<T> {
    let (client, of) = found(handle)?;
    let State::Texture(state) = &of.state else {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    };
    let mut state = state.lock();
    let mut new = *state;
    change(client, &mut new)?;
    let sent = send(client, &of, &new)?;
    *state = new;
    Ok(sent)
}

/// Changes how a reference is read, and sends it to the host if something is bound.
fn change(handle: Handle, change: impl FnOnce(&mut Reading) -> Result) -> Result {
    let send_bound = |client: &Client, of: &Reference, new: &Reading| {
        if of.module != 0 && new.bound.is_some() {
            send(client, of, new, true)?;
        }
        Ok(())
    };
    set(handle, |_, reading| change(reading), send_bound)
}

/// Binds a resource: returns the offset of its address from a texture's alignment, if that is requested.
fn bind(
    handle: Handle,
    wants_offset: bool,
    bind: impl FnOnce(&Client, &mut Reading) -> Result,
) -> Result<usize> {
    set(handle, bind, |client, of, new| {
        send(client, of, new, wants_offset)
    })
}

/// Binds an array of some kind, whose description `form` returns.
fn bind_array(
    handle: Handle,
    (kind, array): (u32, u64),
    flags: u32,
    form: impl FnOnce(&Client) -> Result<ArrayForm>,
) -> Result {
    let bound = bind(handle, true, |client, reading| {
        let form = form(client)?;
        reading.resource = TextureResource {
            kind,
            array,
            flags,
            format: form.format,
            channels: form.channels,
            ..TextureResource::default()
        };
        reading.bound = Some(array);
        Ok(())
    });
    bound.map(drop)
}

/// Memory of a format, bound at an address.
fn memory(client: &Client, reading: &mut Reading, start: u64, of: TextureResource) {
    let mut address = start;
    if start != 0 {
        client.disown(start);
        address = far(client, start as *mut _);
    }
    reading.resource = TextureResource { address, ..of };
    reading.bound = (start != 0).then_some(start);
}

fn rows(handle: Handle, form: InPtr<CUDA_ARRAY_DESCRIPTOR>, start: u64, pitch: usize) -> Result {
    let form = form.get()?;
    let bound = bind(handle, true, |client, reading| {
        let resource = TextureResource {
            kind: CU_RESOURCE_TYPE_PITCH2D,
            format: form.Format,
            channels: form.NumChannels,
            width: form.Width,
            height: form.Height,
            pitch,
            ..TextureResource::default()
        };
        memory(client, reading, start, resource);
        Ok(())
    });
    bound.map(drop)
}

/// The bound resource of a texture reference, of some kind.
fn bound(handle: Handle, kinds: &[u32]) -> Result<u64> {
    let reading = reading(handle)?;
    let bound = reading
        .bound
        .filter(|_| kinds.contains(&reading.resource.kind));
    bound.ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The handle of a module's reference.
fn of_module(module: CUmodule, name: Text, is_surface: bool) -> Result<Handle> {
    let client = client()?;
    let (id, name) = (Module::id(module), name.get()?);
    client.objects.module(id)?;
    if let Some(known) = client.references.find(id, &name, is_surface) {
        return Ok(known as Handle);
    }
    client.call(&request::gpgpuModuleReference {
        hmod: id,
        name: name.clone(),
        surface: is_surface,
    })?;
    let state = match is_surface {
        true => State::Surface(Mutex::default()),
        false => State::Texture(Mutex::default()),
    };
    let reference = Reference {
        module: id,
        name,
        state,
    };
    Ok(client.references.insert(reference) as Handle)
}

fn dimension(reading: &mut Reading, dim: i32) -> Result<&mut u32> {
    let form = &mut reading.form;
    match dim {
        0 => Ok(&mut form.address_x),
        1 => Ok(&mut form.address_y),
        2 => Ok(&mut form.address_z),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

cuda! {
    fn cuModuleGetTexRef(pTexRef: OutPtr<Handle>, hmod: CUmodule, name: Text) {
        pTexRef.required()?.set(of_module(hmod, name, false)?)
    }

    fn cuModuleGetSurfRef(pSurfRef: OutPtr<Handle>, hmod: CUmodule, name: Text) {
        pSurfRef.required()?.set(of_module(hmod, name, true)?)
    }

    /// `cuTexRefCreate`: makes a reference that no kernel reads.
    fn cuTexRefCreate(pTexRef: OutPtr<Handle>) {
        let client = client()?;
        pTexRef.required()?;
        let reference = Reference { module: 0, name: String::new(), state: State::Texture(Mutex::default()) };
        pTexRef.set(client.references.insert(reference) as Handle)
    }

    /// `cuTexRefDestroy`. A module's own reference ends only with the module.
    fn cuTexRefDestroy(hTexRef: Handle) {
        client()?.references.remove(hTexRef as u64)
    }

    fn cuTexRefSetArray(hTexRef: Handle, hArray: CUarray, Flags: u32) {
        let id = Array::id(hArray);
        bind_array(hTexRef, (CU_RESOURCE_TYPE_ARRAY, id), Flags, |client| Ok(client.arrays.array(id)?.form))
    }

    fn cuTexRefSetMipmappedArray(hTexRef: Handle, hMipmappedArray: CUmipmappedArray, Flags: u32) {
        let id = MipmappedArray::id(hMipmappedArray);
        bind_array(hTexRef, (CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, id), Flags, |client| Ok(client.arrays.mipmapped(id)?.form))
    }

    fn cuTexRefSetAddress_v2(ByteOffset: OutPtr<usize>, hTexRef: Handle, dptr: CUdeviceptr, bytes: usize) {
        let offset = bind(hTexRef, !ByteOffset.is_null(), |client, reading| {
            let resource = TextureResource {
                kind: CU_RESOURCE_TYPE_LINEAR,
                width: bytes,
                format: reading.resource.format,
                channels: reading.resource.channels,
                ..TextureResource::default()
            };
            memory(client, reading, dptr, resource);
            Ok(())
        })?;
        ByteOffset.offer(offset);
        Ok(())
    }

    fn cuTexRefSetAddress2D_v2(hTexRef: Handle, desc: InPtr<CUDA_ARRAY_DESCRIPTOR>, dptr: CUdeviceptr, Pitch: usize) {
        rows(hTexRef, desc, dptr, Pitch)
    }

    fn cuTexRefSetAddress2D_v3(hTexRef: Handle, desc: InPtr<CUDA_ARRAY_DESCRIPTOR>, dptr: CUdeviceptr, Pitch: usize) {
        rows(hTexRef, desc, dptr, Pitch)
    }

    fn cuTexRefSetFormat(hTexRef: Handle, fmt: CUarray_format, NumPackedComponents: i32) {
        change(hTexRef, |reading| {
            let channels = u32::try_from(NumPackedComponents).unwrap_or_default();
            if !matches!(channels, 1 | 2 | 4) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            (reading.resource.format, reading.resource.channels) = (fmt, channels);
            Ok(())
        })
    }

    fn cuTexRefSetAddressMode(hTexRef: Handle, dim: i32, am: u32) {
        change(hTexRef, |reading| {
            *dimension(reading, dim)? = am;
            Ok(())
        })
    }

    fn cuTexRefSetFilterMode(hTexRef: Handle, fm: u32) {
        change(hTexRef, |reading| {
            reading.form.filter = fm;
            Ok(())
        })
    }

    fn cuTexRefSetFlags(hTexRef: Handle, Flags: u32) {
        change(hTexRef, |reading| {
            if Flags & !FLAGS != 0 {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            reading.form.flags = Flags;
            Ok(())
        })
    }

    fn cuTexRefSetMipmapFilterMode(hTexRef: Handle, fm: u32) {
        change(hTexRef, |reading| {
            reading.form.mipmap_filter = fm;
            Ok(())
        })
    }

    fn cuTexRefSetMipmapLevelBias(hTexRef: Handle, bias: f32) {
        change(hTexRef, |reading| {
            reading.form.bias = bias;
            Ok(())
        })
    }

    fn cuTexRefSetMipmapLevelClamp(hTexRef: Handle, minMipmapLevelClamp: f32, maxMipmapLevelClamp: f32) {
        change(hTexRef, |reading| {
            let form = &mut reading.form;
            (form.least_level, form.greatest_level) = (minMipmapLevelClamp, maxMipmapLevelClamp);
            Ok(())
        })
    }

    fn cuTexRefSetMaxAnisotropy(hTexRef: Handle, maxAniso: u32) {
        change(hTexRef, |reading| {
            reading.form.anisotropy = maxAniso;
            Ok(())
        })
    }

    fn cuTexRefSetBorderColor(hTexRef: Handle, pBorderColor: InPtr<f32>) {
        change(hTexRef, |reading| {
            let form = &mut reading.form;
            (form.red, form.green) = (pBorderColor.at(0)?, pBorderColor.at(1)?);
            (form.blue, form.alpha) = (pBorderColor.at(2)?, pBorderColor.at(3)?);
            Ok(())
        })
    }

    fn cuTexRefGetAddress_v2(pdptr: OutPtr<CUdeviceptr>, hTexRef: Handle) {
        pdptr.set(bound(hTexRef, &[CU_RESOURCE_TYPE_LINEAR, CU_RESOURCE_TYPE_PITCH2D])?)
    }

    fn cuTexRefGetArray(phArray: OutPtr<CUarray>, hTexRef: Handle) {
        phArray.set(Array::handle(bound(hTexRef, &[CU_RESOURCE_TYPE_ARRAY])?))
    }

    fn cuTexRefGetMipmappedArray(phMipmappedArray: OutPtr<CUmipmappedArray>, hTexRef: Handle) {
        phMipmappedArray.set(MipmappedArray::handle(bound(hTexRef, &[CU_RESOURCE_TYPE_MIPMAPPED_ARRAY])?))
    }

    fn cuTexRefGetAddressMode(pam: OutPtr<u32>, hTexRef: Handle, dim: i32) {
        pam.set(*dimension(&mut reading(hTexRef)?, dim)?)
    }

    fn cuTexRefGetFilterMode(pfm: OutPtr<u32>, hTexRef: Handle) {
        pfm.set(reading(hTexRef)?.form.filter)
    }

    fn cuTexRefGetFlags(pFlags: OutPtr<u32>, hTexRef: Handle) {
        pFlags.set(reading(hTexRef)?.form.flags)
    }

    fn cuTexRefGetFormat(pFormat: OutPtr<CUarray_format>, pNumChannels: OutPtr<i32>, hTexRef: Handle) {
        let of = reading(hTexRef)?.resource;
        pFormat.offer(of.format);
        pNumChannels.offer(of.channels as i32);
        Ok(())
    }

    fn cuTexRefGetMipmapFilterMode(pfm: OutPtr<u32>, hTexRef: Handle) {
        pfm.set(reading(hTexRef)?.form.mipmap_filter)
    }

    fn cuTexRefGetMipmapLevelBias(pbias: OutPtr<f32>, hTexRef: Handle) {
        pbias.set(reading(hTexRef)?.form.bias)
    }

    fn cuTexRefGetMipmapLevelClamp(pminMipmapLevelClamp: OutPtr<f32>, pmaxMipmapLevelClamp: OutPtr<f32>, hTexRef: Handle) {
        let form = reading(hTexRef)?.form;
        pminMipmapLevelClamp.offer(form.least_level);
        pmaxMipmapLevelClamp.offer(form.greatest_level);
        Ok(())
    }

    fn cuTexRefGetMaxAnisotropy(pmaxAniso: OutPtr<i32>, hTexRef: Handle) {
        pmaxAniso.set(reading(hTexRef)?.form.anisotropy as i32)
    }

    fn cuTexRefGetBorderColor(pBorderColor: OutPtr<f32>, hTexRef: Handle) {
        let form = reading(hTexRef)?.form;
        pBorderColor.required()?;
        for (at, part) in [form.red, form.green, form.blue, form.alpha].into_iter().enumerate() {
            pBorderColor.at(at).offer(part);
        }
        Ok(())
    }

    fn cuSurfRefSetArray(hSurfRef: Handle, hArray: CUarray, Flags: u32) {
        let (client, of) = found(hSurfRef)?;
        let State::Surface(state) = &of.state else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let id = Array::id(hArray);
        client.arrays.array(id)?;
        if Flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut state = state.lock();
        client.call(&request::gpgpuSurfaceReferenceSet { hmod: of.module, name: of.name.clone(), array: id })?;
        *state = id;
        Ok(())
    }

    fn cuSurfRefGetArray(phArray: OutPtr<CUarray>, hSurfRef: Handle) {
        let (_, of) = found(hSurfRef)?;
        let State::Surface(state) = &of.state else {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        };
        let bound = *state.lock();
        if bound == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        phArray.set(Array::handle(bound))
    }
}
