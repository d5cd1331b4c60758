// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Creation, description and destruction of arrays.

use std::ffi::c_uint;

use gpgpu_protocol::cuda::*;

use super::device;
use crate::array::{ARRAYS, Array, MIPMAPPED, Mipmapped};
use crate::config::{ARRAY_ALIGNMENT, MAX_LINEAR};
use crate::context::{self, Context};
use crate::ffi::{Pointer, Result, export};

fn create(cx: &Context, out: Pointer<CUarray>, form: CUDA_ARRAY3D_DESCRIPTOR) -> Result {
    out.required()?;
    out.set(Array::create(cx, &form)?.handle as CUarray)
}

/// The memory of an array without memory; one that has its own does not report it.
fn requirements(
    out: Pointer<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    array: &Array,
    bytes: usize,
) -> Result {
    if !array.is_deferred() {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    out.set(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: bytes.next_multiple_of(ARRAY_ALIGNMENT as usize),
        alignment: ARRAY_ALIGNMENT as usize,
        ..Default::default()
    })
}

/// Waits for work that may use an array that is being destroyed: all of its context's.
fn wait_for(context: u64) {
    context::wait_for_context(context);
}

export! {
    /// `cuArrayCreate`.
    context fn cuArrayCreate_v2(out: Pointer<CUarray>, form: Pointer<CUDA_ARRAY_DESCRIPTOR>) |cx| {
        let form = form.get()?;
        create(&cx, out, CUDA_ARRAY3D_DESCRIPTOR {
            Width: form.Width,
            Height: form.Height,
            Depth: 0,
            Format: form.Format,
            NumChannels: form.NumChannels,
            Flags: 0,
        })
    }

    /// `cuArray3DCreate`.
    context fn cuArray3DCreate_v2(out: Pointer<CUarray>, form: Pointer<CUDA_ARRAY3D_DESCRIPTOR>) |cx| {
        create(&cx, out, form.get()?)
    }

    /// `cuArrayGetDescriptor`.
    healthy fn cuArrayGetDescriptor_v2(out: Pointer<CUDA_ARRAY_DESCRIPTOR>, array: CUarray) |_| {
        let form = Array::named(array)?.form;
        out.set(CUDA_ARRAY_DESCRIPTOR {
            Width: form.Width,
            Height: form.Height,
            Format: form.Format,
            NumChannels: form.NumChannels,
        })
    }

    /// `cuArray3DGetDescriptor`.
    healthy fn cuArray3DGetDescriptor_v2(out: Pointer<CUDA_ARRAY3D_DESCRIPTOR>, array: CUarray) |_| {
        out.set(Array::named(array)?.form)
    }

    /// `cuArrayDestroy`.
    healthy fn cuArrayDestroy(array: CUarray) |_| {
        let there = Array::named(array)?;
        // As in NVIDIA's driver, a level is destroyed with its mipmapped array.
        if there.is_level {
            return Ok(());
        }
        ARRAYS.remove(array as u64);
        wait_for(there.context);
        Ok(())
    }

    /// `cuArrayGetMemoryRequirements`.
    healthy fn cuArrayGetMemoryRequirements(out: Pointer<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice) |_| {
        device::check(device)?;
        let array = Array::named(array)?;
        requirements(out, &array, array.bytes)
    }

    /// `cuArrayGetPlane`: no format here has planes.
    healthy fn cuArrayGetPlane(plane: Pointer<CUarray>, array: CUarray, _index: c_uint) |_| {
        plane.required()?;
        Array::named(array)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuArrayGetSparseProperties`: no array here is sparse.
    healthy fn cuArrayGetSparseProperties(properties: Pointer<std::ffi::c_void>, array: CUarray) |_| {
        properties.required()?;
        Array::named(array)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuMipmappedArrayCreate`.
    context fn cuMipmappedArrayCreate(out: Pointer<CUmipmappedArray>, form: Pointer<CUDA_ARRAY3D_DESCRIPTOR>, levels: c_uint) |cx| {
        out.required()?;
        out.set(Mipmapped::create(&cx, &form.get()?, levels)?.handle as CUmipmappedArray)
    }

    /// `cuMipmappedArrayGetLevel`.
    healthy fn cuMipmappedArrayGetLevel(out: Pointer<CUarray>, array: CUmipmappedArray, level: c_uint) |_| {
        out.required()?;
        let array = Mipmapped::named(array)?;
        let level = array.levels.get(level as usize).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        out.set(level.handle as CUarray)
    }

    /// `cuMipmappedArrayDestroy`.
    healthy fn cuMipmappedArrayDestroy(array: CUmipmappedArray) |_| {
        let there = MIPMAPPED.remove(array as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        for level in &there.levels {
            ARRAYS.remove(level.handle);
        }
        wait_for(there.context);
        Ok(())
    }

    /// `cuMipmappedArrayGetMemoryRequirements`.
    healthy fn cuMipmappedArrayGetMemoryRequirements(out: Pointer<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUmipmappedArray, device: CUdevice) |_| {
        device::check(device)?;
        let array = Mipmapped::named(array)?;
        requirements(out, &array.levels[0], array.bytes())
    }

    /// `cuMipmappedArrayGetSparseProperties`: no array here is sparse.
    healthy fn cuMipmappedArrayGetSparseProperties(properties: Pointer<std::ffi::c_void>, array: CUmipmappedArray) |_| {
        properties.required()?;
        Mipmapped::named(array)?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuDeviceGetTexture1DLinearMaxWidth`.
    initialised fn cuDeviceGetTexture1DLinearMaxWidth(out: Pointer<usize>, format: CUarray_format, channels: c_uint, device: CUdevice) |_| {
        device::check(device)?;
        crate::array::format_of(format, channels)?;
        out.set(MAX_LINEAR)
    }
}
