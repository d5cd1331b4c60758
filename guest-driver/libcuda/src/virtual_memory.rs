// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Virtual memory: reserved addresses, physical memory, and mappings.
//!
//! Reservations and mappings are [stored here](crate::stores::pointers), so that copies and queries of addresses find
//! them. The host checks everything else.

use gpgpu_protocol::{
    api::{Object, Physical, request},
    cuda::*,
};

use crate::{
    argument::{HostPtr, InPtr, OutPtr},
    client::client,
    cuda,
    device::device,
    ffi::Result,
    ipc,
    stores::pointers::{Kind, Origin, Range},
};

/// The device of a location.
fn of_location(location: CUmemLocation) -> Result<CUdevice> {
    match location.type_ {
        CU_MEM_LOCATION_TYPE_DEVICE => {
            device(location.id)?;
            Ok(location.id)
        }
        CU_MEM_LOCATION_TYPE_HOST..=CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => {
            Err(CUDA_ERROR_NOT_SUPPORTED)
        }
        _ => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The device of physical memory with these properties, if such memory is possible.
fn of_properties(properties: &CUmemAllocationProp) -> Result<CUdevice> {
    match properties.type_ {
        CU_MEM_ALLOCATION_TYPE_PINNED => {}
        CU_MEM_ALLOCATION_TYPE_MANAGED => return Err(CUDA_ERROR_NOT_SUPPORTED),
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    }
    let dev = of_location(properties.location)?;
    let flags = &properties.allocFlags;
    if !properties.win32HandleMetaData.is_null()
        || flags.compressionType > CU_MEM_ALLOCATION_COMP_GENERIC
        || flags.reserved != [0; 4]
    {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    // Like compression, export as a descriptor is only a wish: PyTorch and NCCL request it for all their memory,
    // whether they export it or not. An older host cannot grant it; the handle's properties report that.
    if properties.requestedHandleTypes & !CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        != CU_MEM_HANDLE_TYPE_NONE
        || flags.gpuDirectRDMACapable != 0
        || flags.usage != 0
    {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(dev)
}

fn set_access(ptr: u64, size: usize, wishes: &[CUmemAccessDesc]) -> Result {
    let client = client()?;
    for wish in wishes {
        let dev = of_location(wish.location)?;
        let is_open = wish.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        if !is_open {
            client.pointers.set_open(ptr, size as u64, dev, false);
        }
        client.call(&request::cuMemSetAccess {
            ptr,
            size,
            dev,
            flags: wish.flags,
        })?;
        if is_open {
            client.pointers.set_open(ptr, size as u64, dev, true);
        }
    }
    Ok(())
}

cuda! {
    /// `cuMemAddressReserve`.
    fn cuMemAddressReserve(ptr: OutPtr<CUdeviceptr>, size: usize, alignment: usize, addr: CUdeviceptr, flags: u64) {
        let client = client()?;
        ptr.required()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let start = client.call(&request::cuMemAddressReserve { ptr: true, size, alignment, addr })?.ptr;
        client.pointers.reserve(start, size as u64);
        ptr.set(start)
    }

    /// `cuMemAddressFree`.
    fn cuMemAddressFree(ptr: CUdeviceptr, size: usize) {
        let client = client()?;
        // Another thread may get the same addresses immediately.
        let reserved = client.pointers.unreserve(ptr);
        let freed = client.call(&request::cuMemAddressFree { ptr, size }).map(drop);
        if let (Err(_), Some(bytes)) = (freed, reserved) {
            client.pointers.reserve(ptr, bytes);
        }
        freed
    }

    /// `cuMemCreate`: memory of a device, for this process only.
    fn cuMemCreate(handle: OutPtr<CUmemGenericAllocationHandle>, size: usize, prop: InPtr<CUmemAllocationProp>, flags: u64) {
        let client = client()?;
        handle.required()?;
        let properties = prop.get()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let dev = of_properties(&properties)?;
        let id = client.new_id::<Physical>();
        let is_shareable = properties.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && ipc::is_served(client);
        if is_shareable {
            client.allocate(|| client.call(&request::gpgpuCreateShareable { handle: id, size, dev }))?;
            client.shareable.insert(id);
        } else {
            client.allocate(|| client.call(&request::cuMemCreate { handle: id, size, dev }))?;
        }
        handle.set(Physical::handle(id))
    }

    /// `cuMemRelease`. Mapped memory exists until it is unmapped.
    fn cuMemRelease(handle: CUmemGenericAllocationHandle) {
        client()?.call(&request::cuMemRelease { handle: Physical::id(handle) }).map(drop)
    }

    /// `cuMemMap`: maps without any access.
    fn cuMemMap(ptr: CUdeviceptr, size: usize, offset: usize, handle: CUmemGenericAllocationHandle, flags: u64) {
        let client = client()?;
        if flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let request = request::cuMemMap { ptr, size, offset, handle: Physical::id(handle), dev: true };
        let device = client.call(&request)?.dev;
        client.pointers.insert(Range {
            start: ptr,
            bytes: size as u64,
            context: 0,
            kind: Kind::Device,
            origin: Origin::Mapped { device, open: 0, types: client.shareable.types(Physical::id(handle)) },
        });
        Ok(())
    }

    /// `cuMemUnmap` of the whole mappings in a range, which may have holes.
    fn cuMemUnmap(ptr: CUdeviceptr, size: usize) {
        let client = client()?;
        // Removed before the host is called, like freed memory.
        let gone = client.pointers.remove_mapped(ptr, size as u64);
        let unmapped = client.call(&request::cuMemUnmap { ptr, size }).map(drop);
        if unmapped.is_err() {
            for range in gone {
                client.pointers.insert(range);
            }
        }
        unmapped
    }

    /// `cuMemSetAccess`, only of devices.
    fn cuMemSetAccess(ptr: CUdeviceptr, size: usize, desc: InPtr<CUmemAccessDesc>, count: usize) {
        client()?;
        if count == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        // All requests are checked before one is granted.
        let wishes: Vec<_> = (0..count).map(|index| desc.at(index)).collect::<Result<_>>()?;
        for wish in &wishes {
            of_location(wish.location)?;
            if !matches!(
                wish.flags,
                CU_MEM_ACCESS_FLAGS_PROT_NONE | CU_MEM_ACCESS_FLAGS_PROT_READ | CU_MEM_ACCESS_FLAGS_PROT_READWRITE
            ) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
        }
        set_access(ptr, size, &wishes)
    }

    /// `cuMemGetAccess`.
    fn cuMemGetAccess(flags: OutPtr<u64>, location: InPtr<CUmemLocation>, ptr: CUdeviceptr) {
        let client = client()?;
        flags.required()?;
        let dev = of_location(location.get()?)?;
        let range = client.pointers.find(ptr);
        // NVIDIA's driver returns this for allocated memory, whatever the access.
        if range.is_some_and(|range| matches!(range.origin, Origin::HostPool(_))) {
            return flags.set(0);
        }
        flags.set(client.call(&request::cuMemGetAccess { flags: true, dev, ptr })?.flags)
    }

    /// `cuMemRetainAllocationHandle`: the handle with which the memory at an address was mapped.
    fn cuMemRetainAllocationHandle(handle: OutPtr<CUmemGenericAllocationHandle>, addr: HostPtr) {
        let client = client()?;
        handle.required()?;
        let request = request::cuMemRetainAllocationHandle { handle: true, addr: addr.address() };
        handle.set(Physical::handle(client.call(&request)?.handle))
    }

    /// `cuMemGetAllocationPropertiesFromHandle`: the granted properties.
    fn cuMemGetAllocationPropertiesFromHandle(prop: OutPtr<CUmemAllocationProp>, handle: CUmemGenericAllocationHandle) {
        let client = client()?;
        prop.required()?;
        let request = request::gpgpuPhysicalMemory { handle: Physical::id(handle), dev: true, bytes: true };
        let device = client.call(&request)?.dev;
        prop.set(CUmemAllocationProp {
            type_: CU_MEM_ALLOCATION_TYPE_PINNED,
            requestedHandleTypes: client.shareable.types(Physical::id(handle)),
            location: CUmemLocation { type_: CU_MEM_LOCATION_TYPE_DEVICE, id: device },
            win32HandleMetaData: std::ptr::null_mut(),
            allocFlags: CUmemAllocationFlags::default(),
        })
    }
}
