// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface references.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use gpgpu_protocol::cuda::*;

use super::module::named as module;
use crate::array::{Array, Mipmapped};
use crate::config::{TEXTURE_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT};
use crate::ffi::{Pointer, Result, Text, export};
use crate::ptx::Reference;
use crate::reference::{
    self, Bound, SURFACE_REFERENCES, Slot, SurfaceReference, TEXTURE_REFERENCES, TextureReference,
};

type Handle = *mut c_void;

const DIMENSIONS: usize = 3;

fn texture(handle: Handle) -> Result<Arc<TextureReference>> {
    let found = TEXTURE_REFERENCES.get(handle as u64);
    found.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn surface(handle: Handle) -> Result<Arc<SurfaceReference>> {
    let found = SURFACE_REFERENCES.get(handle as u64);
    found.ok_or(CUDA_ERROR_INVALID_HANDLE)
}

fn dimension(dim: c_int) -> Result<usize> {
    let dim = usize::try_from(dim).ok().filter(|dim| *dim < DIMENSIONS);
    dim.ok_or(CUDA_ERROR_INVALID_VALUE)
}

fn rows(handle: Handle, form: CUDA_ARRAY_DESCRIPTOR, start: u64, pitch: usize) -> Result {
    let of = texture(handle)?;
    let is_aligned = start.is_multiple_of(TEXTURE_ALIGNMENT);
    if !is_aligned || !pitch.is_multiple_of(TEXTURE_PITCH_ALIGNMENT) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    of.bind(|reading| {
        (reading.format, reading.channels) = (form.Format, form.NumChannels);
        reading.bound = Bound::Rows(start, form, pitch);
    })
}

export! {
    /// `cuModuleGetTexRef`.
    context fn cuModuleGetTexRef(out: Pointer<Handle>, of: CUmodule, name: Text) |cx| {
        out.required()?;
        let slot = |address| Slot { context: cx.id, address: Some(address) };
        let make = |address| TextureReference::create(slot(address));
        out.set(module(of)?.reference(&name.name()?, Reference::Texture, make)? as Handle)
    }

    /// `cuModuleGetSurfRef`.
    context fn cuModuleGetSurfRef(out: Pointer<Handle>, of: CUmodule, name: Text) |cx| {
        out.required()?;
        let slot = |address| Slot { context: cx.id, address: Some(address) };
        let make = |address| SurfaceReference::create(slot(address));
        out.set(module(of)?.reference(&name.name()?, Reference::Surface, make)? as Handle)
    }

    /// `cuTexRefCreate`: one that no kernel reads.
    context fn cuTexRefCreate(out: Pointer<Handle>) |cx| {
        out.required()?;
        out.set(TextureReference::create(Slot { context: cx.id, address: None }) as Handle)
    }

    /// `cuTexRefDestroy`: of one that `cuTexRefCreate` made.
    context fn cuTexRefDestroy(of: Handle) |_| {
        if texture(of)?.slot.address.is_none() {
            reference::remove(of as u64);
        }
        Ok(())
    }

    /// `cuTexRefSetArray`: the format is always the array's.
    context fn cuTexRefSetArray(of: Handle, array: CUarray, _flags: c_uint) |_| {
        let (of, array) = (texture(of)?, Array::named(array)?);
        of.bind(|reading| {
            (reading.format, reading.channels) = (array.form.Format, array.form.NumChannels);
            reading.bound = Bound::Array(array.handle);
        })
    }

    /// `cuTexRefSetMipmappedArray`.
    context fn cuTexRefSetMipmappedArray(of: Handle, array: CUmipmappedArray, _flags: c_uint) |_| {
        let (of, array) = (texture(of)?, Mipmapped::named(array)?);
        of.bind(|reading| {
            (reading.format, reading.channels) = (array.form.Format, array.form.NumChannels);
            reading.bound = Bound::Mipmapped(array.handle);
        })
    }

    /// `cuTexRefSetAddress`: the texture begins at the last multiple of the alignment, and the caller adds the offset.
    context fn cuTexRefSetAddress_v2(offset: Pointer<usize>, of: Handle, start: CUdeviceptr, bytes: usize) |_| {
        let of = texture(of)?;
        let skipped = (start % TEXTURE_ALIGNMENT) as usize;
        if offset.is_null() && skipped != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        of.bind(|reading| {
            reading.bound = match start {
                0 => Bound::None,
                start => Bound::Linear(start - skipped as u64, bytes.saturating_add(skipped)),
            };
        })?;
        offset.set_if(skipped);
        Ok(())
    }

    /// `cuTexRefSetAddress2D` of CUDA 3.2.
    context fn cuTexRefSetAddress2D_v2(of: Handle, form: Pointer<CUDA_ARRAY_DESCRIPTOR>, start: CUdeviceptr, pitch: usize) |_| {
        rows(of, form.get()?, start, pitch)
    }

    /// `cuTexRefSetAddress2D`.
    context fn cuTexRefSetAddress2D_v3(of: Handle, form: Pointer<CUDA_ARRAY_DESCRIPTOR>, start: CUdeviceptr, pitch: usize) |_| {
        rows(of, form.get()?, start, pitch)
    }

    /// `cuTexRefSetFormat`.
    context fn cuTexRefSetFormat(of: Handle, format: CUarray_format, channels: c_int) |_| {
        let channels = u32::try_from(channels).unwrap_or(0);
        if !matches!(channels, 1 | 2 | 4) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        texture(of)?.change(|reading| (reading.format, reading.channels) = (format, channels))
    }

    /// `cuTexRefSetAddressMode`.
    context fn cuTexRefSetAddressMode(of: Handle, dim: c_int, mode: CUaddress_mode) |_| {
        let (of, dim) = (texture(of)?, dimension(dim)?);
        of.change(|reading| reading.form.addressMode[dim] = mode)
    }

    /// `cuTexRefSetFilterMode`.
    context fn cuTexRefSetFilterMode(of: Handle, mode: CUfilter_mode) |_| {
        texture(of)?.change(|reading| reading.form.filterMode = mode)
    }

    /// `cuTexRefSetFlags`.
    context fn cuTexRefSetFlags(of: Handle, flags: c_uint) |_| {
        const KNOWN: u32 = 0xff;
        let of = texture(of)?;
        if flags & !KNOWN != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        of.change(|reading| reading.form.flags = flags)
    }

    /// `cuTexRefSetMipmapFilterMode`.
    context fn cuTexRefSetMipmapFilterMode(of: Handle, mode: CUfilter_mode) |_| {
        texture(of)?.change(|reading| reading.form.mipmapFilterMode = mode)
    }

    /// `cuTexRefSetMipmapLevelBias`.
    context fn cuTexRefSetMipmapLevelBias(of: Handle, bias: f32) |_| {
        texture(of)?.change(|reading| reading.form.mipmapLevelBias = bias)
    }

    /// `cuTexRefSetMipmapLevelClamp`.
    context fn cuTexRefSetMipmapLevelClamp(of: Handle, least: f32, greatest: f32) |_| {
        texture(of)?.change(|reading| {
            (reading.form.minMipmapLevelClamp, reading.form.maxMipmapLevelClamp) = (least, greatest);
        })
    }

    /// `cuTexRefSetMaxAnisotropy`.
    context fn cuTexRefSetMaxAnisotropy(of: Handle, most: c_uint) |_| {
        texture(of)?.change(|reading| reading.form.maxAnisotropy = most)
    }

    /// `cuTexRefSetBorderColor`.
    context fn cuTexRefSetBorderColor(of: Handle, colour: Pointer<f32>) |_| {
        let (of, colour) = (texture(of)?, colour.array(4)?);
        of.change(|reading| reading.form.borderColor.copy_from_slice(&colour))
    }

    /// `cuTexRefGetAddress`.
    context fn cuTexRefGetAddress_v2(out: Pointer<CUdeviceptr>, of: Handle) |_| {
        match texture(of)?.reading().bound {
            Bound::Linear(start, _) | Bound::Rows(start, ..) => out.set(start),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuTexRefGetArray`.
    context fn cuTexRefGetArray(out: Pointer<CUarray>, of: Handle) |_| {
        match texture(of)?.reading().bound {
            Bound::Array(array) => out.set(array as CUarray),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuTexRefGetMipmappedArray`.
    context fn cuTexRefGetMipmappedArray(out: Pointer<CUmipmappedArray>, of: Handle) |_| {
        match texture(of)?.reading().bound {
            Bound::Mipmapped(array) => out.set(array as CUmipmappedArray),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuTexRefGetAddressMode`.
    context fn cuTexRefGetAddressMode(out: Pointer<CUaddress_mode>, of: Handle, dim: c_int) |_| {
        out.set(texture(of)?.reading().form.addressMode[dimension(dim)?])
    }

    /// `cuTexRefGetFilterMode`.
    context fn cuTexRefGetFilterMode(out: Pointer<CUfilter_mode>, of: Handle) |_| {
        out.set(texture(of)?.reading().form.filterMode)
    }

    /// `cuTexRefGetFormat`.
    context fn cuTexRefGetFormat(format: Pointer<CUarray_format>, channels: Pointer<c_int>, of: Handle) |_| {
        let reading = texture(of)?.reading();
        format.set_if(reading.format);
        channels.set_if(reading.channels as c_int);
        Ok(())
    }

    /// `cuTexRefGetFlags`.
    context fn cuTexRefGetFlags(out: Pointer<c_uint>, of: Handle) |_| {
        out.set(texture(of)?.reading().form.flags)
    }

    /// `cuTexRefGetMipmapFilterMode`.
    context fn cuTexRefGetMipmapFilterMode(out: Pointer<CUfilter_mode>, of: Handle) |_| {
        out.set(texture(of)?.reading().form.mipmapFilterMode)
    }

    /// `cuTexRefGetMipmapLevelBias`.
    context fn cuTexRefGetMipmapLevelBias(out: Pointer<f32>, of: Handle) |_| {
        out.set(texture(of)?.reading().form.mipmapLevelBias)
    }

    /// `cuTexRefGetMipmapLevelClamp`.
    context fn cuTexRefGetMipmapLevelClamp(least: Pointer<f32>, greatest: Pointer<f32>, of: Handle) |_| {
        let form = texture(of)?.reading().form;
        least.set_if(form.minMipmapLevelClamp);
        greatest.set_if(form.maxMipmapLevelClamp);
        Ok(())
    }

    /// `cuTexRefGetMaxAnisotropy`.
    context fn cuTexRefGetMaxAnisotropy(out: Pointer<c_int>, of: Handle) |_| {
        out.set(texture(of)?.reading().form.maxAnisotropy as c_int)
    }

    /// `cuTexRefGetBorderColor`.
    context fn cuTexRefGetBorderColor(out: Pointer<f32>, of: Handle) |_| {
        let of = texture(of)?;
        out.required()?;
        for (index, value) in of.reading().form.borderColor.into_iter().enumerate() {
            out.at(index).set(value)?;
        }
        Ok(())
    }

    /// `cuSurfRefSetArray`: the array must support surfaces.
    context fn cuSurfRefSetArray(of: Handle, array: CUarray, flags: c_uint) |_| {
        let (of, array) = (surface(of)?, Array::named(array)?);
        if flags != 0 || array.form.Flags & CUDA_ARRAY3D_SURFACE_LDST == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        of.bind(array.handle)
    }

    /// `cuSurfRefGetArray`.
    context fn cuSurfRefGetArray(out: Pointer<CUarray>, of: Handle) |_| {
        match surface(of)?.array() {
            0 => Err(CUDA_ERROR_INVALID_VALUE),
            array => out.set(array as CUarray),
        }
    }
}
