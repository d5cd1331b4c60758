// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries about pointers.

use gpgpu_protocol::{api::request, cuda::*};

use crate::{
    argument::{HostPtr, InPtr, OutPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    host_pool, ipc,
    stores::{
        pointers::{Kind, Origin, Range},
        pools::Sharing,
    },
    thread,
};

/// One attribute's value. The variants are the sizes in which CUDA stores it.
enum Value {
    Word(u64),
    Half(u32),
    Flag(bool),
}

impl Value {
    fn give(self, to: *mut std::ffi::c_void) {
        match self {
            Self::Word(value) => OutPtr::nested(to).offer(value),
            Self::Half(value) => OutPtr::nested(to).offer(value),
            Self::Flag(value) => OutPtr::nested(to).offer(u8::from(value)),
        }
    }
}

/// Whether a device may access the mapping at an address.
fn is_accessed(client: &Client, open: u64, dev: CUdevice, ptr: u64) -> Result<bool> {
    if open != 0 {
        return Ok(true);
    }
    let request = request::cuMemGetAccess {
        flags: true,
        dev,
        ptr,
    };
    Ok(client.call(&request)?.flags != 0)
}

/// An attribute that a mapping of physical memory has itself; `None` for others.
fn of_mapping(
    client: &Client,
    attribute: CUpointer_attribute,
    (range, address): (&Range, u64),
    (device, open, types): (CUdevice, u64, u32),
) -> Result<Option<Value>> {
    // The range is the reservation, but the mapping has attributes of its own.
    let reservation = client.pointers.reservation(address);
    let (start, bytes) = reservation.ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let value = match attribute {
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => start,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => bytes,
        CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR => range.start,
        CU_POINTER_ATTRIBUTE_MAPPING_SIZE => range.bytes,
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => types.into(),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER if !is_accessed(client, open, device, address)? => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        _ => return Ok(None),
    };
    Ok(Some(Value::Word(value)))
}

/// The same for memory of a host pool, as NVIDIA's driver reports it.
fn of_host_pool(
    client: &Client,
    attribute: CUpointer_attribute,
    range: &Range,
    pool: u64,
) -> Result<Option<Value>> {
    Ok(Some(match attribute {
        CU_POINTER_ATTRIBUTE_CONTEXT | CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Word(0),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Value::Flag(false),
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Value::Word(pool),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER if !host_pool::is_open(client, range) => {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        _ => return Ok(None),
    }))
}

fn attribute(client: &Client, attribute: CUpointer_attribute, address: u64) -> Result<Value> {
    let range = client
        .pointers
        .find(address)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let special = match range.origin {
        Origin::Mapped {
            device,
            open,
            types,
        } => of_mapping(client, attribute, (&range, address), (device, open, types))?,
        Origin::HostPool(pool) => of_host_pool(client, attribute, &range, pool)?,
        _ => None,
    };
    if let Some(value) = special {
        return Ok(value);
    }
    let is_managed = range.is_managed();
    let on_host = matches!(range.kind, Kind::Host { .. }) && !is_managed;
    let offset = address
        - if address.wrapping_sub(range.start) < range.bytes {
            range.start
        } else {
            range.far(range.start)
        };
    let pool = match range.origin {
        Origin::Pool { pool, device } => Some((pool, device)),
        Origin::Opened(device) | Origin::Mapped { device, .. } => Some((0, device)),
        _ => None,
    };
    Ok(match attribute {
        // Memory of a pool, and mapped memory, belongs to the device.
        CU_POINTER_ATTRIBUTE_CONTEXT
            if pool.is_some() && !matches!(range.origin, Origin::Opened(_)) =>
        {
            Value::Word(0)
        }
        CU_POINTER_ATTRIBUTE_CONTEXT => Value::Word(range.context),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Half(if on_host {
            CU_MEMORYTYPE_HOST
        } else {
            CU_MEMORYTYPE_DEVICE
        }),
        CU_POINTER_ATTRIBUTE_DEVICE_POINTER => Value::Word(range.far(range.start) + offset),
        CU_POINTER_ATTRIBUTE_HOST_POINTER if on_host || is_managed => {
            Value::Word(range.start + offset)
        }
        CU_POINTER_ATTRIBUTE_HOST_POINTER => return Err(CUDA_ERROR_INVALID_VALUE),
        CU_POINTER_ATTRIBUTE_IS_MANAGED => Value::Flag(is_managed),
        CU_POINTER_ATTRIBUTE_SYNC_MEMOPS if is_managed => Value::Flag(true),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => {
            let of_context = || client.objects.context_device(range.context);
            let device = pool.map(|(_, device)| device).or_else(of_context);
            Value::Half(device.unwrap_or(0) as u32)
        }
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => {
            let is_allocation = matches!(range.origin, Origin::Call | Origin::Shared);
            Value::Flag(range.kind == Kind::Device && is_allocation && ipc::is_served(client))
        }
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR => Value::Word(range.far(range.start)),
        CU_POINTER_ATTRIBUTE_RANGE_SIZE => Value::Word(range.bytes),
        CU_POINTER_ATTRIBUTE_MAPPED => Value::Flag(true),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES => match range.origin {
            Origin::Pool { pool, .. } if client.pools.sharing(pool) == Sharing::Exportable => {
                Value::Word(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.into())
            }
            _ => Value::Word(0),
        },
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE => Value::Word(pool.map_or(0, |(pool, _)| pool)),
        CU_POINTER_ATTRIBUTE_P2P_TOKENS => return Err(CUDA_ERROR_NOT_SUPPORTED),
        CU_POINTER_ATTRIBUTE_BUFFER_ID if !client.is_corrupted() => {
            let id = client.pointers.buffer_id(range.start);
            Value::Word(id.ok_or(CUDA_ERROR_INVALID_VALUE)?)
        }
        // Only the host knows the others.
        other => {
            let request = request::gpgpuPointerAttribute {
                value: true,
                attribute: other,
                ptr: range.far(range.start) + offset,
            };
            let value = client.call(&request)?.value;
            match other {
                CU_POINTER_ATTRIBUTE_BUFFER_ID => Value::Word(value),
                CU_POINTER_ATTRIBUTE_SYNC_MEMOPS => Value::Flag(value != 0),
                _ => Value::Half(value as u32),
            }
        }
    })
}

cuda! {
    /// `cuPointerGetAttribute`: from the process's own map, except for values that only the host has.
    fn cuPointerGetAttribute(data: OutPtr<std::ffi::c_void>, attr: CUpointer_attribute, ptr: CUdeviceptr) {
        let client = client()?;
        data.required()?;
        attribute(client, attr, ptr)?.give(data.raw());
        Ok(())
    }

    /// `cuPointerSetAttribute`. The host gets back freed memory first, so that it refuses its address.
    fn cuPointerSetAttribute(value: HostPtr, attribute: CUpointer_attribute, ptr: CUdeviceptr) {
        let client = client()?;
        client.disown(ptr);
        // The one attribute that can be set is 32 bits long.
        let value = InPtr::<u32>::nested(value.address() as *const std::ffi::c_void).get().ok();
        client.pointers.set_synchronous();
        client.call(&request::cuPointerSetAttribute { value, attribute, ptr }).map(drop)
    }

    /// `cuPointerGetAttributes`: succeeds, with zeros, if the pointer is unknown.
    fn cuPointerGetAttributes(numAttributes: u32, attributes: InPtr<CUpointer_attribute>, data: InPtr<*mut std::ffi::c_void>, ptr: CUdeviceptr) {
        let client = client()?;
        thread::required_context()?;
        for i in 0..numAttributes as usize {
            let (which, to) = (attributes.at(i)?, data.at(i)?);
            match attribute(client, which, ptr) {
                Ok(value) => value.give(to),
                Err(_) => match which {
                    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL => Value::Half(-2_i32 as u32).give(to),
                    CU_POINTER_ATTRIBUTE_MEMORY_TYPE => Value::Half(0).give(to),
                    CU_POINTER_ATTRIBUTE_IS_MANAGED | CU_POINTER_ATTRIBUTE_MAPPED | CU_POINTER_ATTRIBUTE_SYNC_MEMOPS
                    | CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE => Value::Flag(false).give(to),
                    CU_POINTER_ATTRIBUTE_ACCESS_FLAGS | CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE => Value::Half(0).give(to),
                    _ => Value::Word(0).give(to),
                },
            }
        }
        Ok(())
    }
}
