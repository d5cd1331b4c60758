// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Arrays. Their descriptions are [cached here](crate::stores::arrays); the host makes and destroys them.

use std::ffi::c_void;

use gpgpu_protocol::{
    api::{Array, ArrayForm, MipmappedArray, Object, request},
    cuda::*,
};

use crate::{
    argument::{InPtr, OutPtr},
    client::{Client, client},
    cuda,
    device::device,
    ffi::Result,
    stores::arrays::{ArrayData, MipmappedData},
    thread,
};

fn form(native: &CUDA_ARRAY3D_DESCRIPTOR) -> ArrayForm {
    ArrayForm {
        width: native.Width,
        height: native.Height,
        depth: native.Depth,
        format: native.Format,
        channels: native.NumChannels,
        flags: native.Flags,
    }
}

fn native(form: &ArrayForm) -> CUDA_ARRAY3D_DESCRIPTOR {
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: form.width,
        Height: form.height,
        Depth: form.depth,
        Format: form.format,
        NumChannels: form.channels,
        Flags: form.flags,
    }
}

fn create(out: OutPtr<CUarray>, form: ArrayForm) -> Result {
    let client = client()?;
    out.required()?;
    let context = thread::home(client);
    let array = client.new_id::<Array>();
    let request = request::gpgpuArrayCreate {
        array,
        form,
        made: true,
    };
    let form = client.allocate(|| client.call(&request))?.made;
    let data = ArrayData {
        form,
        context,
        parent: 0,
    };
    client.arrays.table().arrays.insert(array, data);
    out.set(Array::handle(array))
}

fn create_mipmapped(out: OutPtr<CUmipmappedArray>, form: ArrayForm, levels: u32) -> Result {
    let client = client()?;
    out.required()?;
    let context = thread::home(client);
    let mipmap = client.new_id::<MipmappedArray>();
    let request = request::gpgpuMipmappedArrayCreate {
        mipmap,
        form,
        levels,
        count: true,
    };
    let levels = client.allocate(|| client.call(&request))?.count;
    let data = MipmappedData {
        form,
        context,
        levels,
    };
    client.arrays.table().mipmapped.insert(mipmap, data);
    out.set(MipmappedArray::handle(mipmap))
}

/// The level or plane with a number. From its first request on, it is an array of its own.
fn part(
    client: &Client,
    (parent, number): (u64, u32),
    context: u64,
    ask: impl FnOnce(u64) -> Result<ArrayForm>,
) -> Result<CUarray> {
    // One thread at a time, so that all get the same array.
    let mut table = client.arrays.table();
    if let Some(known) = table.parts.get(&(parent, number)) {
        return Ok(Array::handle(*known));
    }
    let id = client.new_id::<Array>();
    let data = ArrayData {
        form: ask(id)?,
        context,
        parent,
    };
    table.arrays.insert(id, data);
    table.parts.insert((parent, number), id);
    Ok(Array::handle(id))
}

fn requirements(
    out: OutPtr<CUDA_ARRAY_MEMORY_REQUIREMENTS>,
    (size, alignment): (usize, usize),
) -> Result {
    out.set(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size,
        alignment,
        reserved: [0; 4],
    })
}

/// A device. These functions report a missing one as an invalid value.
fn checked(dev: CUdevice) -> Result<CUdevice> {
    device(dev).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    Ok(dev)
}

cuda! {
    fn cuArrayCreate_v2(pHandle: OutPtr<CUarray>, pAllocateArray: InPtr<CUDA_ARRAY_DESCRIPTOR>) {
        let given = pAllocateArray.get()?;
        create(pHandle, ArrayForm {
            width: given.Width,
            height: given.Height,
            depth: 0,
            format: given.Format,
            channels: given.NumChannels,
            flags: 0,
        })
    }

    fn cuArray3DCreate_v2(pHandle: OutPtr<CUarray>, pAllocateArray: InPtr<CUDA_ARRAY3D_DESCRIPTOR>) {
        create(pHandle, form(&pAllocateArray.get()?))
    }

    fn cuArrayGetDescriptor_v2(pArrayDescriptor: OutPtr<CUDA_ARRAY_DESCRIPTOR>, hArray: CUarray) {
        let form = client()?.arrays.array(Array::id(hArray))?.form;
        pArrayDescriptor.set(CUDA_ARRAY_DESCRIPTOR {
            Width: form.width,
            Height: form.height,
            Format: form.format,
            NumChannels: form.channels,
        })
    }

    fn cuArray3DGetDescriptor_v2(pArrayDescriptor: OutPtr<CUDA_ARRAY3D_DESCRIPTOR>, hArray: CUarray) {
        pArrayDescriptor.set(native(&client()?.arrays.array(Array::id(hArray))?.form))
    }

    /// `cuArrayDestroy`. As natively, it does nothing for a level, which ends with its mipmapped array.
    fn cuArrayDestroy(hArray: CUarray) {
        let client = client()?;
        let id = Array::id(hArray);
        if client.arrays.array(id)?.parent != 0 {
            return Ok(());
        }
        client.call(&request::cuArrayDestroy { hArray: id })?;
        client.arrays.remove(id);
        Ok(())
    }

    fn cuArrayGetMemoryRequirements(memoryRequirements: OutPtr<CUDA_ARRAY_MEMORY_REQUIREMENTS>, array: CUarray, device: CUdevice) {
        let client = client()?;
        memoryRequirements.required()?;
        let id = Array::id(array);
        client.arrays.array(id)?;
        let request = request::gpgpuArrayMemory { array: id, dev: checked(device)?, size: true, alignment: true };
        let answer = client.call(&request)?;
        requirements(memoryRequirements, (answer.size, answer.alignment))
    }

    fn cuArrayGetPlane(pPlaneArray: OutPtr<CUarray>, hArray: CUarray, planeIdx: u32) {
        let client = client()?;
        pPlaneArray.required()?;
        let array = Array::id(hArray);
        let context = client.arrays.array(array)?.context;
        let plane = part(client, (array, planeIdx), context, |plane| {
            let request = request::gpgpuArrayPlane { plane, array, number: planeIdx, made: true };
            Ok(client.call(&request)?.made)
        });
        pPlaneArray.set(plane?)
    }

    /// `cuArrayGetSparseProperties`: no array here is sparse.
    fn cuArrayGetSparseProperties(_sparseProperties: OutPtr<c_void>, array: CUarray) {
        client()?.arrays.array(Array::id(array))?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }

    fn cuMipmappedArrayCreate(pHandle: OutPtr<CUmipmappedArray>, pMipmappedArrayDesc: InPtr<CUDA_ARRAY3D_DESCRIPTOR>, numMipmapLevels: u32) {
        create_mipmapped(pHandle, form(&pMipmappedArrayDesc.get()?), numMipmapLevels)
    }

    fn cuMipmappedArrayGetLevel(pLevelArray: OutPtr<CUarray>, hMipmappedArray: CUmipmappedArray, level: u32) {
        let client = client()?;
        pLevelArray.required()?;
        let mipmap = MipmappedArray::id(hMipmappedArray);
        let known = client.arrays.mipmapped(mipmap)?;
        if level >= known.levels {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let array = part(client, (mipmap, level), known.context, |id| {
            let request = request::gpgpuMipmappedArrayLevel { level: id, mipmap, number: level, made: true };
            Ok(client.call(&request)?.made)
        });
        pLevelArray.set(array?)
    }

    fn cuMipmappedArrayDestroy(hMipmappedArray: CUmipmappedArray) {
        let client = client()?;
        let id = MipmappedArray::id(hMipmappedArray);
        client.arrays.mipmapped(id)?;
        client.call(&request::cuMipmappedArrayDestroy { hMipmappedArray: id })?;
        client.arrays.remove(id);
        Ok(())
    }

    fn cuMipmappedArrayGetMemoryRequirements(memoryRequirements: OutPtr<CUDA_ARRAY_MEMORY_REQUIREMENTS>, mipmap: CUmipmappedArray, device: CUdevice) {
        let client = client()?;
        memoryRequirements.required()?;
        let id = MipmappedArray::id(mipmap);
        client.arrays.mipmapped(id)?;
        let request = request::gpgpuMipmappedArrayMemory { mipmap: id, dev: checked(device)?, size: true, alignment: true };
        let answer = client.call(&request)?;
        requirements(memoryRequirements, (answer.size, answer.alignment))
    }

    /// `cuMipmappedArrayGetSparseProperties`: no array here is sparse.
    fn cuMipmappedArrayGetSparseProperties(_sparseProperties: OutPtr<c_void>, mipmap: CUmipmappedArray) {
        client()?.arrays.mipmapped(MipmappedArray::id(mipmap))?;
        Err(CUDA_ERROR_INVALID_VALUE)
    }
}
