// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The driver's state of an address.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use gpgpu_protocol::cuda::{
    CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_CONTEXT,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    CU_POINTER_ATTRIBUTE_HOST_POINTER, CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_MAPPED,
    CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, CU_POINTER_ATTRIBUTE_P2P_TOKENS,
    CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED,
    CUdeviceptr, CUpointer_attribute,
};

use crate::context;
use crate::driver;
use crate::ffi::{Pointer, Result, export};
use crate::memory::{Allocation, Kind};

/// An attribute's value, in the size that CUDA writes.
enum Value {
    Flag(bool),
    Word(u32),
    Long(u64),
}

impl Value {
    fn write(&self, to: Pointer<c_void>) -> Result {
        match *self {
            Self::Flag(value) => to.cast::<u8>().set(value.into()),
            Self::Word(value) => to.cast::<u32>().set(value),
            Self::Long(value) => to.cast::<u64>().set(value),
        }
    }
}

fn known(allocation: &Allocation, attribute: CUpointer_attribute, address: u64) -> Result<Value> {
    let host = allocation.is_host();
    let managed = allocation.is_managed();
    let of_device = matches!(allocation.kind, Kind::Pool(_) | Kind::Mapped);
    Ok(match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT => {
            // Memory of a pool and mapped memory belong to the device.
            Value::Long(if of_device {
                0
            } else {
                context::handle_of(allocation.context)
            })
        }
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Word(if host {
            CU_MEMORYTYPE_HOST
        } else {
            CU_MEMORYTYPE_DEVICE
        }),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER
            if allocation.access() == CU_MEM_ACCESS_FLAGS_PROT_NONE =>
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Long(address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if host || managed => Value::Long(address),
        CU_POINTER_ATTRIBUTE_HOST_POINTER => return Err(CUDA_ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CUDA_ERROR_NOT_SUPPORTED),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Flag(managed),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS if managed => Value::Flag(true),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => {
            Value::Flag(allocation.sync_memops.load(Ordering::Relaxed))
        }
        CU_POINTER_ATTRIBUTE_BUFFER_ID | CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => {
            Value::Long(allocation.id)
        }
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(allocation.device as u32),
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Value::Flag(false),
        CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Value::Word(0),
        // For mapped memory these two describe the reservation.
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Long(match &allocation.mapped {
            Some(mapped) => mapped.reservation().0,
            None => allocation.start,
        }),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Long(match &allocation.mapped {
            Some(mapped) => mapped.reservation().1,
            None => allocation.size,
        }),
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => Value::Long(allocation.start),
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE => Value::Long(allocation.size),
        CU_POINTER_ATTRIBUTE_MAPPED => Value::Flag(true),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => Value::Long(match &allocation.mapped {
            Some(mapped) => mapped.handle().physical().handle_types().into(),
            None => 0,
        }),
        CU_POINTER_ATTRIBUTE_ACCESS_FLAGS => Value::Word(match context::current() {
            Ok(context) => allocation.access_of(context.device),
            Err(_) => allocation.access(),
        }),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Value::Long(match allocation.kind {
            Kind::Pool(handle) => handle,
            _ => 0,
        }),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

// The values of `cuPointerGetAttributes` for an address without attributes.
fn nothing(attribute: CUpointer_attribute) -> Result<Value> {
    Ok(match attribute {
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Word(-2 as c_int as u32),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
        | CU_POINTER_ATTRIBUTE_IS_MANAGED
        | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE
        | CU_POINTER_ATTRIBUTE_MAPPED => Value::Flag(false),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE
        | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE
        | CU_POINTER_ATTRIBUTE_ACCESS_FLAGS
        | CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE => Value::Word(0),
        CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CUDA_ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_CONTEXT..=CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID => Value::Long(0),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    })
}

export! {
    /// `cuPointerGetAttribute`: `CUDA_ERROR_INVALID_VALUE` for an address that the driver does not know.
    /// It needs no current context.
    healthy fn cuPointerGetAttribute(data: Pointer<c_void>, attribute: CUpointer_attribute, address: CUdeviceptr) |driver| {
        data.required()?;
        let allocation = driver.memory.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        known(&allocation, attribute, address)?.write(data)
    }

    /// `cuPointerGetAttributes`: an address that the driver does not know has type 0 and device -2.
    context fn cuPointerGetAttributes(count: c_uint, attributes: Pointer<CUpointer_attribute>, data: Pointer<Pointer<c_void>>, address: CUdeviceptr) |_| {
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let allocation = driver::get()?.memory.find(address);
        let attributes = attributes.array(count as usize)?;
        for (attribute, to) in attributes.iter().zip(data.array(count as usize)?) {
            let value = match &allocation {
                Some(allocation) => known(allocation, *attribute, address).or_else(|_| nothing(*attribute)),
                None => nothing(*attribute),
            };
            value?.write(to)?;
        }
        Ok(())
    }

    /// `cuPointerSetAttribute`: only `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS` can be set.
    context fn cuPointerSetAttribute(value: Pointer<c_void>, attribute: CUpointer_attribute, address: CUdeviceptr) |_| {
        let allocation = driver::get()?.memory.find(address).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let value = value.cast::<c_uint>().get()?;
        if attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || allocation.is_host() || value > 1 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        allocation.sync_memops.store(value == 1, Ordering::Relaxed);
        Ok(())
    }
}
