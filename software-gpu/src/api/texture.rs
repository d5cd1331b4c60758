// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface objects.

use std::sync::Arc;

use gpgpu_protocol::cuda::*;

use crate::array::{
    Array, Mipmapped, SURFACES, SurfaceObject, TEXTURES, TextureObject, format_of, layout_of,
};
use crate::config::{MAX_LINEAR, MAX_LINEAR2D, TEXTURE_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT};
use crate::context::Context;
use crate::exec::{Class, Format, Image, Layout, Outside, Place, Sampler, Surface, Texture};
use crate::ffi::{Pointer, Result, export};

fn require(holds: bool) -> Result {
    match holds {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn outside(mode: CUaddress_mode) -> Result<Outside> {
    Ok(match mode {
        CU_TR_ADDRESS_MODE_WRAP => Outside::Wrap,
        CU_TR_ADDRESS_MODE_CLAMP => Outside::Clamp,
        CU_TR_ADDRESS_MODE_MIRROR => Outside::Mirror,
        CU_TR_ADDRESS_MODE_BORDER => Outside::Border,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

fn is_linear(mode: CUfilter_mode) -> Result<bool> {
    match mode {
        CU_TR_FILTER_MODE_POINT => Ok(false),
        CU_TR_FILTER_MODE_LINEAR => Ok(true),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

fn sampler(form: &CUDA_TEXTURE_DESC, layout: Layout) -> Result<Sampler> {
    const KNOWN: u32 = CU_TRSF_READ_AS_INTEGER
        | CU_TRSF_NORMALIZED_COORDINATES
        | CU_TRSF_SRGB
        | CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION
        | CU_TRSF_SEAMLESS_CUBEMAP;
    require(form.flags & !KNOWN == 0 && form.reserved == [0; 12])?;
    let has = |flag| form.flags & flag != 0;
    require(layout.cube || !has(CU_TRSF_SEAMLESS_CUBEMAP))?;
    let [x, y, z] = form.addressMode;
    let sampler = Sampler {
        outside: [outside(x)?, outside(y)?, outside(z)?],
        linear: is_linear(form.filterMode)?,
        normalized: has(CU_TRSF_NORMALIZED_COORDINATES),
        integers: has(CU_TRSF_READ_AS_INTEGER),
        srgb: has(CU_TRSF_SRGB),
        seamless: has(CU_TRSF_SEAMLESS_CUBEMAP),
        linear_levels: is_linear(form.mipmapFilterMode)?,
        bias: form.mipmapLevelBias,
        levels: [form.minMipmapLevelClamp, form.maxMipmapLevelClamp],
        border: form.borderColor,
    };
    Ok(sampler)
}

/// The format of a `CUresourceViewFormat`.
fn view_format(format: u32) -> Result<Format> {
    let channels = |first: u32| [1, 2, 4][(format - first) as usize];
    let (class, bytes, channels) = match format {
        0x01..=0x03 => (Class::Unsigned, 1, channels(0x01)),
        0x04..=0x06 => (Class::Signed, 1, channels(0x04)),
        0x07..=0x09 => (Class::Unsigned, 2, channels(0x07)),
        0x0a..=0x0c => (Class::Signed, 2, channels(0x0a)),
        0x0d..=0x0f => (Class::Unsigned, 4, channels(0x0d)),
        0x10..=0x12 => (Class::Signed, 4, channels(0x10)),
        0x13..=0x15 => (Class::Float, 2, channels(0x13)),
        0x16..=0x18 => (Class::Float, 4, channels(0x16)),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    Ok(Format {
        class,
        bytes,
        channels,
    })
}

/// The resource of a texture or a surface.
struct Source {
    levels: Vec<Image>,
    form: CUDA_ARRAY3D_DESCRIPTOR,
    format: Format,
    layout: Layout,
    is_linear: bool,
    keep: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

fn memory(resource: &CUDA_RESOURCE_DESC) -> Result<Source> {
    let of = &resource.res;
    let format = format_of(of.format, of.numChannels)?;
    let element = format.size();
    require(of.devPtr != 0 && of.devPtr.is_multiple_of(TEXTURE_ALIGNMENT))?;
    let is_linear = resource.resType == CU_RESOURCE_TYPE_LINEAR;
    let (width, height, row) = if is_linear {
        let width = of.width / element;
        require(width <= MAX_LINEAR)?;
        (width, 1, of.width)
    } else {
        let sizes = [of.width, of.height, of.pitchInBytes];
        require(
            sizes
                .iter()
                .zip(MAX_LINEAR2D)
                .all(|(size, most)| *size <= most),
        )?;
        require(of.pitchInBytes.is_multiple_of(TEXTURE_PITCH_ALIGNMENT))?;
        (of.width, of.height, of.pitchInBytes)
    };
    require(width > 0 && height > 0)?;
    // NVIDIA's driver takes any address (seen with 580): a kernel that samples where no memory is has a fault.
    let image = Image {
        place: Place::Device(of.devPtr),
        width: width as u32,
        height: height as u32,
        depth: 1,
        row,
        slice: 0,
    };
    Ok(Source {
        levels: vec![image],
        form: CUDA_ARRAY3D_DESCRIPTOR::default(),
        format,
        layout: Layout::default(),
        is_linear,
        keep: None,
    })
}

fn source(resource: &CUDA_RESOURCE_DESC) -> Result<Source> {
    require(resource.flags == 0)?;
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => {
            let array = Array::named(resource.res.devPtr as CUarray)
                .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
            Ok(Source {
                levels: vec![array.image],
                form: array.form,
                format: array.format,
                layout: layout_of(&array.form),
                is_linear: false,
                keep: Some(array.keep()?),
            })
        }
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            let array = Mipmapped::named(resource.res.devPtr as CUmipmappedArray)
                .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
            Ok(Source {
                levels: array.levels.iter().map(|level| level.image).collect(),
                form: array.form,
                format: array.levels[0].format,
                layout: layout_of(&array.form),
                is_linear: false,
                keep: Some(array.levels[0].keep()?),
            })
        }
        CU_RESOURCE_TYPE_LINEAR | CU_RESOURCE_TYPE_PITCH2D => memory(resource),
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

impl Source {
    /// Narrows it to a view.
    fn see(&mut self, view: &CUDA_RESOURCE_VIEW_DESC) -> Result {
        require(view.reserved == [0; 16])?;
        // A view has no meaning for linear memory.
        if self.keep.is_none() {
            return Ok(());
        }
        let format = view_format(view.format)?;
        require(format.size() == self.format.size() && format.bytes == self.format.bytes)?;
        require(view.width == self.form.Width && view.height == self.form.Height)?;
        require(view.depth == self.form.Depth)?;
        let (first, last) = (
            view.firstMipmapLevel as usize,
            view.lastMipmapLevel as usize,
        );
        require(first <= last && last < self.levels.len())?;
        self.levels = self.levels[first..=last].to_vec();
        let (first, last) = (view.firstLayer, view.lastLayer);
        if self.layout.layered || self.layout.cube {
            require(first <= last && last < self.levels[0].depth)?;
            for image in &mut self.levels {
                if let Place::Kept(start) = image.place {
                    let skipped = first as usize * image.slice;
                    image.place = Place::Kept(start.wrapping_add(skipped));
                }
                image.depth = last - first + 1;
            }
        } else {
            require(first == 0 && last == 0)?;
        }
        self.format = format;
        Ok(())
    }
}

/// Makes a texture in a context; its handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn create(
    context: u64,
    resource: CUDA_RESOURCE_DESC,
    form: CUDA_TEXTURE_DESC,
    view: Option<CUDA_RESOURCE_VIEW_DESC>,
) -> Result<CUtexObject> {
    let mut source = source(&resource)?;
    if let Some(view) = &view {
        source.see(view)?;
    }
    let sampler = sampler(&form, source.layout)?;
    let seen = Arc::new(Texture {
        levels: source.levels,
        format: source.format,
        layout: source.layout,
        sampler,
        is_linear: source.is_linear,
        keep: source.keep,
    });
    let object = TEXTURES.insert_with(|handle| TextureObject {
        context,
        resource,
        texture: form,
        view,
        seen,
        handle,
    });
    Ok(object.handle)
}

/// Makes a surface of an array; its handle.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE`.
pub fn create_surface(context: u64, resource: CUDA_RESOURCE_DESC) -> Result<CUsurfObject> {
    require(resource.resType == CU_RESOURCE_TYPE_ARRAY)?;
    let source = source(&resource)?;
    let seen = Arc::new(Surface {
        image: source.levels[0],
        format: source.format,
        layout: source.layout,
        keep: source.keep,
    });
    let object = SURFACES.insert_with(|handle| SurfaceObject {
        context,
        resource,
        seen,
        handle,
    });
    Ok(object.handle)
}

/// A texture object of the current context.
fn named(cx: &Context, object: CUtexObject) -> Result<Arc<TextureObject>> {
    let found = TEXTURES.get(object).filter(|of| of.context == cx.id);
    found.ok_or(CUDA_ERROR_INVALID_VALUE)
}

export! {
    /// `cuTexObjectCreate`.
    context fn cuTexObjectCreate(out: Pointer<CUtexObject>, resource: Pointer<CUDA_RESOURCE_DESC>, texture: Pointer<CUDA_TEXTURE_DESC>, view: Pointer<CUDA_RESOURCE_VIEW_DESC>) |cx| {
        out.required()?;
        let view = match view.is_null() {
            true => None,
            false => Some(view.get()?),
        };
        out.set(create(cx.id, resource.get()?, texture.get()?, view)?)
    }

    /// `cuTexObjectDestroy`: as with NVIDIA's driver, an unknown object is no error.
    context fn cuTexObjectDestroy(object: CUtexObject) |cx| {
        if named(&cx, object).is_ok() {
            TEXTURES.remove(object);
        }
        Ok(())
    }

    /// `cuTexObjectGetResourceDesc`.
    context fn cuTexObjectGetResourceDesc(out: Pointer<CUDA_RESOURCE_DESC>, object: CUtexObject) |cx| {
        out.set(named(&cx, object)?.resource)
    }

    /// `cuTexObjectGetTextureDesc`.
    context fn cuTexObjectGetTextureDesc(out: Pointer<CUDA_TEXTURE_DESC>, object: CUtexObject) |cx| {
        out.set(named(&cx, object)?.texture)
    }

    /// `cuTexObjectGetResourceViewDesc`.
    context fn cuTexObjectGetResourceViewDesc(out: Pointer<CUDA_RESOURCE_VIEW_DESC>, object: CUtexObject) |cx| {
        out.set(named(&cx, object)?.view.unwrap_or_default())
    }

    /// `cuSurfObjectCreate`: as with NVIDIA's, of any array.
    context fn cuSurfObjectCreate(out: Pointer<CUsurfObject>, resource: Pointer<CUDA_RESOURCE_DESC>) |cx| {
        out.required()?;
        out.set(create_surface(cx.id, resource.get()?)?)
    }

    /// `cuSurfObjectDestroy`.
    context fn cuSurfObjectDestroy(object: CUsurfObject) |cx| {
        if SURFACES.get(object).is_some_and(|of| of.context == cx.id) {
            SURFACES.remove(object);
        }
        Ok(())
    }

    /// `cuSurfObjectGetResourceDesc`.
    context fn cuSurfObjectGetResourceDesc(out: Pointer<CUDA_RESOURCE_DESC>, object: CUsurfObject) |cx| {
        let found = SURFACES.get(object).filter(|of| of.context == cx.id);
        out.set(found.ok_or(CUDA_ERROR_INVALID_VALUE)?.resource)
    }
}
