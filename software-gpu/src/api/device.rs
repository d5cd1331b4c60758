// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device.

use std::ffi::{CStr, c_char, c_int, c_uint};

use gpgpu_protocol::cuda::*;

use crate::config::{self, Config};
use crate::driver;
use crate::ffi::{Pointer, Result, Text, export};

/// `CUDA_ERROR_INVALID_DEVICE` for a device that does not exist.
pub(crate) fn check(device: CUdevice) -> Result {
    if !(0..Config::get().devices as CUdevice).contains(&device) {
        return Err(CUDA_ERROR_INVALID_DEVICE);
    }
    Ok(())
}

fn pci_bus(device: CUdevice) -> c_int {
    config::PCI_BUS - device
}

// Writes a string with its NUL, cut to `length` bytes.
fn set_text(out: Pointer<c_char>, length: c_int, text: &str) -> Result {
    out.required()?;
    let room = usize::try_from(length)
        .ok()
        .filter(|l| *l > 0)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    let shown = text.bytes().take(room - 1);
    for (index, byte) in shown.chain([0]).enumerate() {
        out.at(index).set(byte as c_char)?;
    }
    Ok(())
}

/// `cuDeviceGetAttribute`.
pub(crate) fn attribute(which: CUdevice_attribute, device: CUdevice) -> Result<c_int> {
    let config = Config::get();
    let value = match which {
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK => config::MAX_THREADS_PER_BLOCK as c_int,
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X..=CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z => {
            config::MAX_BLOCK_DIM[(which - CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X) as usize] as c_int
        }
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X..=CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z => {
            config::MAX_GRID_DIM[(which - CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X) as usize] as c_int
        }
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK => config::SHARED_PER_BLOCK as c_int,
        CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY => 65536,
        CU_DEVICE_ATTRIBUTE_WARP_SIZE => config::WARP_SIZE as c_int,
        CU_DEVICE_ATTRIBUTE_MAX_PITCH => config::MAX_PITCH as c_int,
        CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK
        | CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR => config::REGISTERS as c_int,
        CU_DEVICE_ATTRIBUTE_CLOCK_RATE | CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE => 1_000_000,
        CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT | CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT => {
            config::TEXTURE_ALIGNMENT as c_int
        }
        CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT => config::TEXTURE_PITCH_ALIGNMENT as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH => config::MAX_TEXTURE1D as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_WIDTH => config::MAX_TEXTURE2D[0] as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_HEIGHT => config::MAX_TEXTURE2D[1] as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH
            ..=CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_WIDTH
            ..=CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE3D_DEPTH => config::MAX_TEXTURE3D[0] as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE
            ..=CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE => {
            let axis = which - CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE;
            config::MAX_TEXTURE3D_DEEP[axis as usize] as c_int
        }
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH => config::MAX_LAYERED as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE1D_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACE2D_LAYERED_LAYERS => config::MAX_LAYERS as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS
        | CU_DEVICE_ATTRIBUTE_MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS => {
            config::MAX_CUBE_LAYERS as c_int
        }
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH => config::MAX_LINEAR as c_int,
        CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH
            ..=CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH => {
            let axis = which - CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH;
            config::MAX_LINEAR2D[axis as usize] as c_int
        }
        CU_DEVICE_ATTRIBUTE_GPU_OVERLAP
        | CU_DEVICE_ATTRIBUTE_CAN_TEX2D_GATHER
        | CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY
        | CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS
        | CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING
        | CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1
        | CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS
        | CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR
        | CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH
        | CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT => 1,
        CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS => config.pageable.into(),
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT => config::MULTIPROCESSORS as c_int,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID => pci_bus(device),
        CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID => config::PCI_DEVICE,
        CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH => 64,
        CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE => 4 << 20,
        CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR => {
            config::THREADS_PER_MULTIPROCESSOR as c_int
        }
        CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT => 2,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR => (config.capability / 10) as c_int,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR => (config.capability % 10) as c_int,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR => {
            config::SHARED_PER_MULTIPROCESSOR as c_int
        }
        CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO => 2,
        CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN => {
            config::SHARED_PER_BLOCK_OPTIN as c_int
        }
        CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR => {
            config::BLOCKS_PER_MULTIPROCESSOR as c_int
        }
        CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK => {
            config::SHARED_RESERVED_PER_BLOCK as c_int
        }
        CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH => config.has_clusters().into(),
        CU_DEVICE_ATTRIBUTE_NUMA_ID => -1,
        // No device of its own on the bus.
        CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID | CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID => 0,
        CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY | CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS => 1,
        // Pageable memory, decompression: none.
        _ if (1..CU_DEVICE_ATTRIBUTE_MAX).contains(&which) => 0,
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    Ok(value)
}

fn parse_bus_id(text: &CStr) -> Option<[u32; 4]> {
    let text = text.to_str().ok()?;
    let (place, function) = text.rsplit_once('.').unwrap_or((text, "0"));
    let parts: Vec<_> = place
        .split(':')
        .map(|p| u32::from_str_radix(p, 16).ok())
        .collect();
    let function = u32::from_str_radix(function, 16).ok()?;
    match parts[..] {
        [bus, device] => Some([0, bus?, device?, function]),
        [domain, bus, device] => Some([domain?, bus?, device?, function]),
        _ => None,
    }
}

fn uuid(out: Pointer<CUuuid>, device: CUdevice) -> Result {
    check(device)?;
    let mut bytes = config::DEVICE_UUID;
    bytes[15] += device as u8;
    out.set(CUuuid { bytes })
}

fn total(out: Pointer<usize>, device: CUdevice) -> Result {
    check(device)?;
    out.set(Config::get().memory as usize)
}

export! {
    /// `cuDeviceGet`.
    initialised fn cuDeviceGet(device: Pointer<CUdevice>, ordinal: c_int) |_| {
        device.required()?;
        check(ordinal)?;
        device.set(ordinal)
    }

    /// `cuDeviceGetCount`: one, unless the environment says otherwise.
    initialised fn cuDeviceGetCount(count: Pointer<c_int>) |_| {
        count.set(Config::get().devices as c_int)
    }

    /// `cuDeviceGetName`.
    initialised fn cuDeviceGetName(name: Pointer<c_char>, length: c_int, device: CUdevice) |_| {
        check(device)?;
        set_text(name, length, config::DEVICE_NAME)
    }

    /// `cuDeviceGetUuid`.
    initialised fn cuDeviceGetUuid_v2(out: Pointer<CUuuid>, device: CUdevice) |_| {
        uuid(out, device)
    }

    /// As [`cuDeviceGetUuid_v2`].
    initialised fn cuDeviceGetUuid(out: Pointer<CUuuid>, device: CUdevice) |_| {
        uuid(out, device)
    }

    /// `cuDeviceGetLuid`: only Windows has them.
    initialised fn cuDeviceGetLuid(_luid: Pointer<c_char>, _mask: Pointer<c_uint>, device: CUdevice) |_| {
        check(device)?;
        Err(CUDA_ERROR_NOT_SUPPORTED)
    }

    /// `cuDeviceTotalMem`.
    initialised fn cuDeviceTotalMem_v2(bytes: Pointer<usize>, device: CUdevice) |_| {
        total(bytes, device)
    }

    /// `cuDeviceGetAttribute`.
    always fn cuDeviceGetAttribute(value: Pointer<c_int>, which: CUdevice_attribute, device: CUdevice) |()| {
        value.required()?;
        driver::get()?;
        check(device)?;
        value.set(attribute(which, device)?)
    }

    /// `cuDeviceGetProperties`.
    initialised fn cuDeviceGetProperties(out: Pointer<CUdevprop>, device: CUdevice) |_| {
        check(device)?;
        out.set(CUdevprop {
            maxThreadsPerBlock: config::MAX_THREADS_PER_BLOCK as c_int,
            maxThreadsDim: config::MAX_BLOCK_DIM.map(|d| d as c_int),
            maxGridSize: config::MAX_GRID_DIM.map(|d| d as c_int),
            sharedMemPerBlock: config::SHARED_PER_BLOCK as c_int,
            totalConstantMemory: attribute(CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, device)?,
            SIMDWidth: config::WARP_SIZE as c_int,
            memPitch: config::MAX_PITCH as c_int,
            regsPerBlock: config::REGISTERS as c_int,
            clockRate: attribute(CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device)?,
            textureAlign: attribute(CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device)?,
        })
    }

    /// `cuDeviceComputeCapability`.
    initialised fn cuDeviceComputeCapability(major: Pointer<c_int>, minor: Pointer<c_int>, device: CUdevice) |_| {
        check(device)?;
        major.set(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)?)?;
        minor.set(attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)?)
    }

    /// `cuDeviceGetPCIBusId`: complete, or `CUDA_ERROR_INVALID_VALUE` if there is no room.
    initialised fn cuDeviceGetPCIBusId(out: Pointer<c_char>, length: c_int, device: CUdevice) |_| {
        check(device)?;
        let id = format!("0000:{:02X}:{:02X}.0", pci_bus(device), config::PCI_DEVICE);
        if usize::try_from(length).is_ok_and(|l| l <= id.len()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        set_text(out, length, &id)
    }

    /// `cuDeviceGetByPCIBusId`; `CUDA_ERROR_INVALID_DEVICE` for another device's.
    initialised fn cuDeviceGetByPCIBusId(device: Pointer<CUdevice>, id: Text) |_| {
        device.required()?;
        let place = parse_bus_id(id.get()?).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let sits = |device: &CUdevice| place == [0, pci_bus(*device) as u32, config::PCI_DEVICE as u32, 0];
        let found = (0..Config::get().devices as CUdevice).find(sits);
        device.set(found.ok_or(CUDA_ERROR_INVALID_DEVICE)?)
    }

    /// `cuDeviceCanAccessPeer`: each device is a peer of each other one, or of none.
    initialised fn cuDeviceCanAccessPeer(can: Pointer<c_int>, device: CUdevice, peer: CUdevice) |_| {
        can.required()?;
        check(device)?;
        check(peer)?;
        can.set((device != peer && Config::get().peers).into())
    }

    /// `cuDeviceGetP2PAttribute`: all accesses are possible, at the best rank, or none; `CUDA_ERROR_INVALID_DEVICE` for
    /// one device.
    initialised fn cuDeviceGetP2PAttribute(value: Pointer<c_int>, which: c_uint, from: CUdevice, to: CUdevice) |_| {
        value.required()?;
        check(from)?;
        check(to)?;
        if from == to {
            return Err(CUDA_ERROR_INVALID_DEVICE);
        }
        // The rank comes first, followed by the accesses.
        match which {
            1 => value.set(0),
            2..=4 => value.set(Config::get().peers.into()),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// `cuDeviceGetExecAffinitySupport`: none.
    initialised fn cuDeviceGetExecAffinitySupport(supported: Pointer<c_int>, _which: c_uint, device: CUdevice) |_| {
        check(device)?;
        supported.set(0)
    }
}
