// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface objects.

use std::ffi::{c_int, c_uint, c_void};
use std::mem::{MaybeUninit, offset_of};

use gpgpu_protocol::cuda::*;

use crate::abi::*;
use crate::array::{describe, description_of, format_of};
use crate::context::current;
use crate::driver::Driver;
use crate::error::{self, Result};
use crate::properties::write_prefix;

/// `cudaErrorInvalidFilterSetting`.
const INVALID_FILTER_SETTING: cudaError_t = 26;
/// `cudaErrorInvalidNormSetting`.
const INVALID_NORM_SETTING: cudaError_t = 27;
/// `cudaReadModeElementType`, `cudaReadModeNormalizedFloat`.
const ELEMENT_TYPE: c_uint = 0;
const NORMALIZED_FLOAT: c_uint = 1;

/// The members of the union in `cudaResourceDesc`: an array's handle is in the first word; linear memory has its size
/// in bytes in `width`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaResource {
    devPtr: u64,
    desc: cudaChannelFormatDesc,
    width: usize,
    height: usize,
    pitchInBytes: usize,
}

/// `cudaResourceDesc` of CUDA 12, and the beginning of CUDA 13's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaResourceDesc {
    resType: CUresourcetype,
    res: cudaResource,
}

/// The additional members of CUDA 13.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Rest {
    reserved: [u64; 9],
    flags: c_uint,
}

const _: () = assert!(size_of::<cudaResourceDesc>() == 64);
const _: () = assert!(size_of::<cudaResourceDesc>() + size_of::<Rest>() == 144);

/// `cudaTextureDesc`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct cudaTextureDesc {
    addressMode: [c_uint; 3],
    filterMode: c_uint,
    readMode: c_uint,
    sRGB: c_int,
    borderColor: [f32; 4],
    normalizedCoords: c_int,
    maxAnisotropy: c_uint,
    mipmapFilterMode: c_uint,
    mipmapLevelBias: f32,
    minMipmapLevelClamp: f32,
    maxMipmapLevelClamp: f32,
    disableTrilinearOptimization: c_int,
    seamlessCubemap: c_int,
}

const _: () = assert!(size_of::<cudaTextureDesc>() == 72);

/// The bytes of the structure in CUDA 11.
const FORM_11: usize = offset_of!(cudaTextureDesc, seamlessCubemap);

fn has_rest() -> bool {
    cudart_abi() == VERSION_13
}

/// The driver's form of a resource.
///
/// # Safety
/// `given` is NULL or readable.
unsafe fn lower(given: *const cudaResourceDesc) -> Result<CUDA_RESOURCE_DESC> {
    // SAFETY: promised by the caller.
    let from = unsafe { given.as_ref() }.ok_or(error::INVALID_VALUE)?;
    let mut to = CUDA_RESOURCE_DESC {
        resType: from.resType,
        ..CUDA_RESOURCE_DESC::default()
    };
    to.res.devPtr = from.res.devPtr;
    if matches!(
        from.resType,
        CU_RESOURCE_TYPE_LINEAR | CU_RESOURCE_TYPE_PITCH2D
    ) {
        (to.res.format, to.res.numChannels) = format_of(&from.res.desc)?;
        to.res.width = from.res.width;
        if from.resType == CU_RESOURCE_TYPE_PITCH2D {
            to.res.height = from.res.height;
            to.res.pitchInBytes = from.res.pitchInBytes;
        }
    }
    if has_rest() {
        // SAFETY: promised by the caller: of CUDA 13 the structure is so long.
        to.flags = unsafe { (*given.add(1).cast::<Rest>()).flags };
    }
    Ok(to)
}

/// Writes a resource in the runtime's form.
///
/// # Safety
/// `to` is NULL or writable.
unsafe fn raise(to: *mut cudaResourceDesc, from: &CUDA_RESOURCE_DESC) -> Result<()> {
    if to.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let nothing = cudaChannelFormatDesc {
        x: 0,
        y: 0,
        z: 0,
        w: 0,
        f: 0,
    };
    let is_memory = matches!(
        from.resType,
        CU_RESOURCE_TYPE_LINEAR | CU_RESOURCE_TYPE_PITCH2D
    );
    let desc = match is_memory {
        true => {
            let form = CUDA_ARRAY3D_DESCRIPTOR {
                Format: from.res.format,
                NumChannels: from.res.numChannels,
                ..CUDA_ARRAY3D_DESCRIPTOR::default()
            };
            description_of(&form)?.0
        }
        false => nothing,
    };
    let known = |value| if is_memory { value } else { 0 };
    // SAFETY: promised by the caller.
    unsafe {
        to.write(cudaResourceDesc {
            resType: from.resType,
            res: cudaResource {
                devPtr: from.res.devPtr,
                desc,
                width: known(from.res.width),
                height: known(from.res.height),
                pitchInBytes: known(from.res.pitchInBytes),
            },
        });
        if has_rest() {
            to.add(1).cast::<Rest>().write(Rest {
                reserved: [0; 9],
                flags: from.flags,
            });
        }
    }
    Ok(())
}

/// The format of a resource's elements.
fn format(driver: &Driver, resource: &CUDA_RESOURCE_DESC) -> Result<CUarray_format> {
    let mut array = resource.res.devPtr as CUarray;
    match resource.resType {
        CU_RESOURCE_TYPE_ARRAY => {}
        CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            let mipmapped = resource.res.devPtr as CUmipmappedArray;
            if mipmapped.is_null() {
                return Err(error::INVALID_VALUE);
            }
            // SAFETY: the pointer is to a value that outlives the call.
            unsafe { driver.cuMipmappedArrayGetLevel(&mut array, mipmapped, 0)? };
        }
        _ => return Ok(resource.res.format),
    }
    if array.is_null() {
        return Err(error::INVALID_VALUE);
    }
    Ok(describe(driver, array)?.Format)
}

/// The driver's form of a texture's settings for elements of a format.
fn texture(from: &cudaTextureDesc, format: CUarray_format) -> Result<CUDA_TEXTURE_DESC> {
    let is_float = matches!(format, CU_AD_FORMAT_FLOAT | CU_AD_FORMAT_HALF);
    let is_wide = matches!(
        format,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32
    );
    let is_integer = !is_float && format < CU_AD_FORMAT_HALF;
    match from.readMode {
        ELEMENT_TYPE if is_integer && from.filterMode == CU_TR_FILTER_MODE_LINEAR => {
            return Err(INVALID_FILTER_SETTING);
        }
        NORMALIZED_FLOAT if is_wide => return Err(INVALID_NORM_SETTING),
        ELEMENT_TYPE | NORMALIZED_FLOAT => {}
        _ => return Err(error::INVALID_VALUE),
    }
    let flag = |is_set: bool, flag: c_uint| if is_set { flag } else { 0 };
    let flags = flag(from.readMode == ELEMENT_TYPE, CU_TRSF_READ_AS_INTEGER)
        | flag(from.normalizedCoords != 0, CU_TRSF_NORMALIZED_COORDINATES)
        | flag(from.sRGB != 0, CU_TRSF_SRGB)
        | flag(
            from.disableTrilinearOptimization != 0,
            CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION,
        )
        | flag(from.seamlessCubemap != 0, CU_TRSF_SEAMLESS_CUBEMAP);
    Ok(CUDA_TEXTURE_DESC {
        addressMode: from.addressMode,
        filterMode: from.filterMode,
        flags,
        maxAnisotropy: from.maxAnisotropy,
        mipmapFilterMode: from.mipmapFilterMode,
        mipmapLevelBias: from.mipmapLevelBias,
        minMipmapLevelClamp: from.minMipmapLevelClamp,
        maxMipmapLevelClamp: from.maxMipmapLevelClamp,
        borderColor: from.borderColor,
        reserved: [0; 12],
    })
}

fn raised(from: &CUDA_TEXTURE_DESC) -> cudaTextureDesc {
    let has = |flag| c_int::from(from.flags & flag != 0);
    cudaTextureDesc {
        addressMode: from.addressMode,
        filterMode: from.filterMode,
        readMode: match has(CU_TRSF_READ_AS_INTEGER) {
            0 => NORMALIZED_FLOAT,
            _ => ELEMENT_TYPE,
        },
        sRGB: has(CU_TRSF_SRGB),
        borderColor: from.borderColor,
        normalizedCoords: has(CU_TRSF_NORMALIZED_COORDINATES),
        maxAnisotropy: from.maxAnisotropy,
        mipmapFilterMode: from.mipmapFilterMode,
        mipmapLevelBias: from.mipmapLevelBias,
        minMipmapLevelClamp: from.minMipmapLevelClamp,
        maxMipmapLevelClamp: from.maxMipmapLevelClamp,
        disableTrilinearOptimization: has(CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION),
        seamlessCubemap: has(CU_TRSF_SEAMLESS_CUBEMAP),
    }
}

/// Makes a texture.
///
/// # Safety
/// The pointers are those of `cudaCreateTextureObject`.
unsafe fn create(
    object: *mut u64,
    resource: *const cudaResourceDesc,
    form: Option<&cudaTextureDesc>,
    view: *const c_void,
) -> Result<()> {
    let driver = current()?;
    // SAFETY: the caller's promise. The view is the same structure in both.
    unsafe {
        let resource = lower(resource)?;
        let form = form.ok_or(error::INVALID_VALUE)?;
        let texture = texture(form, format(driver, &resource)?)?;
        driver.cuTexObjectCreate(object, &resource, &texture, view.cast())
    }
}

/// Writes the first `bytes` bytes of a texture's description.
///
/// # Safety
/// `form` is null, or writable for as many bytes, which are no more than [`cudaTextureDesc`] has.
unsafe fn tell(object: u64, form: *mut u8, bytes: usize) -> Result<()> {
    let mut native = CUDA_TEXTURE_DESC::default();
    // SAFETY: the structure is this function's own.
    unsafe { current()?.cuTexObjectGetTextureDesc(&mut native, object)? };
    if form.is_null() {
        return Err(error::INVALID_VALUE);
    }
    let full = raised(&native);
    // SAFETY: the caller's promise.
    unsafe { write_prefix(&full, form, bytes) };
    Ok(())
}

export! {
    fn cudaCreateTextureObject(object: *mut u64, resource: *const cudaResourceDesc, form: *const cudaTextureDesc, view: *const c_void) {
        create(object, resource, form.as_ref(), view)
    }

    // CUDA 11's structure ends before the last word.
    fn cudart11_cudaCreateTextureObject(object: *mut u64, resource: *const cudaResourceDesc, form: *const u8, view: *const c_void) {
        let mut full = MaybeUninit::<cudaTextureDesc>::zeroed();
        if !form.is_null() {
            full.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(form, FORM_11);
        }
        create(object, resource, (!form.is_null()).then(|| full.assume_init_ref()), view)
    }

    fn cudart11_cudaCreateTextureObject_v2(object: *mut u64, resource: *const cudaResourceDesc, form: *const cudaTextureDesc, view: *const c_void) {
        create(object, resource, form.as_ref(), view)
    }

    pass fn cudaDestroyTextureObject(object: u64) => cuTexObjectDestroy;

    fn cudaGetTextureObjectResourceDesc(resource: *mut cudaResourceDesc, object: u64) {
        let mut native = CUDA_RESOURCE_DESC::default();
        current()?.cuTexObjectGetResourceDesc(&mut native, object)?;
        raise(resource, &native)
    }

    fn cudaGetTextureObjectTextureDesc(form: *mut cudaTextureDesc, object: u64) {
        tell(object, form.cast(), size_of::<cudaTextureDesc>())
    }

    fn cudart11_cudaGetTextureObjectTextureDesc(form: *mut u8, object: u64) {
        tell(object, form, FORM_11)
    }

    fn cudart11_cudaGetTextureObjectTextureDesc_v2(form: *mut cudaTextureDesc, object: u64) {
        tell(object, form.cast(), size_of::<cudaTextureDesc>())
    }

    fn cudaGetTextureObjectResourceViewDesc(view: *mut c_void, object: u64) {
        current()?.cuTexObjectGetResourceViewDesc(view.cast(), object)
    }

    fn cudaCreateSurfaceObject(object: *mut u64, resource: *const cudaResourceDesc) {
        let driver = current()?;
        let resource = lower(resource)?;
        if resource.resType != CU_RESOURCE_TYPE_ARRAY || resource.res.devPtr == 0 || object.is_null() {
            return Err(error::INVALID_VALUE);
        }
        driver.cuSurfObjectCreate(object, &resource)
    }

    pass fn cudaDestroySurfaceObject(object: u64) => cuSurfObjectDestroy;

    fn cudaGetSurfaceObjectResourceDesc(resource: *mut cudaResourceDesc, object: u64) {
        let mut native = CUDA_RESOURCE_DESC::default();
        current()?.cuSurfObjectGetResourceDesc(&mut native, object)?;
        raise(resource, &native)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> cudaTextureDesc {
        cudaTextureDesc {
            normalizedCoords: 1,
            seamlessCubemap: 1,
            borderColor: [1.0, 2.0, 3.0, 4.0],
            ..raised(&CUDA_TEXTURE_DESC::default())
        }
    }

    #[test]
    fn pitfall_55_how_a_texture_reads_comes_back_as_it_was_given() {
        let given = form();
        let native = texture(&given, CU_AD_FORMAT_FLOAT).unwrap();
        let flags = CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SEAMLESS_CUBEMAP;
        assert_eq!(native.flags, flags);
        assert_eq!(format!("{:?}", raised(&native)), format!("{given:?}"));
    }

    #[test]
    fn pitfall_55_integers_are_not_weighted_and_wide_ones_are_no_fractions() {
        let linear = cudaTextureDesc {
            filterMode: CU_TR_FILTER_MODE_LINEAR,
            readMode: ELEMENT_TYPE,
            ..form()
        };
        let of = |form: &cudaTextureDesc, format| texture(form, format).map(drop);
        assert_eq!(of(&linear, CU_AD_FORMAT_FLOAT), Ok(()));
        let bytes = CU_AD_FORMAT_UNSIGNED_INT8;
        assert_eq!(of(&linear, bytes), Err(INVALID_FILTER_SETTING));
        let fractions = cudaTextureDesc {
            readMode: NORMALIZED_FLOAT,
            ..linear
        };
        assert_eq!(of(&fractions, bytes), Ok(()));
        let wide = CU_AD_FORMAT_SIGNED_INT32;
        assert_eq!(of(&fractions, wide), Err(INVALID_NORM_SETTING));
    }
}
