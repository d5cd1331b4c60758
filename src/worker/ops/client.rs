// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Requests of a client that are not CUDA functions.

use std::ffi::{CStr, c_char};

use gpgpu_protocol::{
    api::{AttributeValue, DeviceInfo, Hello, KnownLibrary, issued::known_from, reply, request},
    cuda::*,
    libraries::{Library, variables},
};

use crate::cuda::{
    cupti::Cupti,
    driver,
    environment::{self, Refused},
    library::Library as Hosts,
};
use crate::worker::{
    dispatch::{Carried, Outcome},
    libraries,
    session::{Data, Session, Way},
};

/// Attributes of features that the protocol does not support, or that a guest's library implements and reports by
/// itself: the host must not report them as supported.
const NOT_OFFERED: &[CUdevice_attribute] = &[
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
    CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_SPARSE_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK,
    CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_MAXIMUM_LENGTH,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MULTINODE_IPC_SUPPORTED,
    CU_DEVICE_ATTRIBUTE_HOST_ALLOC_DMA_BUF_SUPPORTED,
];

fn text(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer
        .iter()
        .take_while(|byte| **byte != 0)
        .map(|byte| *byte as u8)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn attribute(attribute: CUdevice_attribute, dev: CUdevice) -> AttributeValue {
    // The worker's own values, whatever the driver's are.
    if attribute == CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED {
        return AttributeValue {
            result: CUDA_SUCCESS,
            value: 1,
        };
    }
    let mut value = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    let asked = unsafe { driver::cuDeviceGetAttribute(&mut value, attribute, dev) };
    if NOT_OFFERED.contains(&attribute) {
        value = 0;
    }
    AttributeValue {
        result: asked.err().unwrap_or(CUDA_SUCCESS),
        value,
    }
}

fn describe(dev: CUdevice) -> Result<DeviceInfo, CUresult> {
    let mut name = [0; 256];
    let mut bus = [0; 32];
    let mut uuid = CUuuid::default();
    let mut total = 0;
    let mut properties = CUdevprop::default();
    // SAFETY: all pointers are to values that live across the calls, and lengths are theirs.
    unsafe {
        driver::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, dev)?;
        driver::cuDeviceGetUuid_v2(&mut uuid, dev)?;
        driver::cuDeviceTotalMem_v2(&mut total, dev)?;
        driver::cuDeviceGetPCIBusId(bus.as_mut_ptr(), bus.len() as i32, dev)?;
        // The structure is deprecated, and attributes have all of its values.
        let _ = driver::cuDeviceGetProperties(&mut properties, dev);
    }
    let p = properties;
    let fields = [p.maxThreadsPerBlock]
        .into_iter()
        .chain(p.maxThreadsDim)
        .chain(p.maxGridSize)
        .chain([
            p.sharedMemPerBlock,
            p.totalConstantMemory,
            p.SIMDWidth,
            p.memPitch,
            p.regsPerBlock,
        ])
        .chain([p.clockRate, p.textureAlign]);
    Ok(DeviceInfo {
        name: text(&name),
        uuid: uuid.bytes,
        total_memory: total as u64,
        pci_bus_id: text(&bus),
        attributes: (0..CU_DEVICE_ATTRIBUTE_MAX)
            .map(|which| attribute(which, dev))
            .collect(),
        properties: fields.collect(),
    })
}

/// Describes the host, with all its devices.
///
/// # Errors
///
/// The driver's error code.
pub fn hello() -> Result<Hello, CUresult> {
    let (mut version, mut count) = (0, 0);
    // SAFETY: the pointers are to values that live across the calls.
    unsafe {
        driver::cuDriverGetVersion(&mut version)?;
        driver::cuDeviceGetCount(&mut count)?;
    }
    let devices = (0..count).map(describe).collect::<Result<_, _>>()?;
    Ok(Hello {
        driver_version: version,
        devices,
    })
}

/// The part of the host's description for a client with these GPUs.
///
/// # Errors
///
/// `CUDA_ERROR_NO_DEVICE` if the host no longer has one of them.
fn seen(hello: &Hello, gpus: &[u32]) -> Result<Hello, CUresult> {
    if gpus.is_empty() {
        return Ok(hello.clone());
    }
    let device = |gpu: &u32| hello.devices.get(*gpu as usize).cloned();
    let devices: Option<_> = gpus.iter().map(device).collect();
    Ok(Hello {
        driver_version: hello.driver_version,
        devices: devices.ok_or(CUDA_ERROR_NO_DEVICE)?,
    })
}

/// Returns the operations of this worker, to clients of any version.
pub fn gpgpuOperations(
    _: &Session,
    request: request::gpgpuOperations,
    _: Data,
) -> Outcome<reply::gpgpuOperations> {
    Ok(reply::gpgpuOperations {
        operations: known_from(request.first),
        ..Default::default()
    })
}

/// Returns the libraries of NVIDIA that the operator has. Opens those that were not needed yet.
pub fn gpgpuLibraries(
    _: &Session,
    _: request::gpgpuLibraries,
    _: Data,
) -> Outcome<reply::gpgpuLibraries> {
    let known = Library::ALL.map(|library| KnownLibrary {
        name: library.name().to_owned(),
        version: libraries::version(library).unwrap_or_default(),
    });
    Ok(reply::gpgpuLibraries {
        libraries: known.into_iter().chain([cupti()]).collect(),
    })
}

/// CUPTI, which has no table. Its version is a number.
fn cupti() -> KnownLibrary {
    let version = Cupti::open().map(Cupti::version);
    KnownLibrary {
        name: Hosts::Cupti.name().to_owned(),
        version: version.map_or_else(|_| String::new(), |version| version.to_string()),
    }
}

/// Sets an environment variable of NVIDIA's libraries, which this process calls for the client's.
pub fn gpgpuLibraryVariable(
    _: &Session,
    request: request::gpgpuLibraryVariable,
    _: Data,
) -> Outcome<reply::gpgpuLibraryVariable> {
    let (name, value) = (&request.name, &request.value);
    if !variables::may_travel(name, value) {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    match environment::set(name, value) {
        Ok(()) | Err(Refused::Exists) => Ok(Default::default()),
        Err(Refused::Full) => Err(CUDA_ERROR_NOT_SUPPORTED.into()),
    }
}

/// Describes the host to a new client: the devices that it may use, in its order.
pub fn gpgpuHello(
    session: &Session,
    _: request::gpgpuHello,
    _: Data,
) -> Outcome<reply::gpgpuHello> {
    let gpus = session.gpus();
    let mut hello = match session.hello.get() {
        Some(hello) => seen(hello, gpus)?,
        None => seen(&hello()?, gpus)?,
    };
    if let Some(limit) = session.shares.get().and_then(|shares| shares.quota.limit()) {
        for device in &mut hello.devices {
            device.total_memory = device.total_memory.min(limit);
        }
    }
    Ok(reply::gpgpuHello { hello })
}

/// Takes the client's selection of its devices.
pub fn gpgpuSelectDevices(
    session: &Session,
    request: request::gpgpuSelectDevices,
    _: Data,
) -> Outcome<reply::gpgpuSelectDevices> {
    let mut count = 0;
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { driver::cuDeviceGetCount(&mut count)? };
    // If the client may use all, the driver checks their numbers.
    if request
        .devices
        .iter()
        .any(|&device| i64::from(device) >= i64::from(count))
    {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    }
    session
        .select(&request.devices)
        .map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    Ok(reply::gpgpuSelectDevices::default())
}

/// Takes a part of an image.
pub fn gpgpuImageWrite(
    session: &Session,
    request: request::gpgpuImageWrite,
    data: Data,
) -> Outcome<reply::gpgpuImageWrite> {
    let part = (data.offset, data.input_bytes);
    session
        .images
        .write(request.image, request.bytes, part, |to| data.copy_to(to))?;
    Ok(reply::gpgpuImageWrite::default())
}

/// Returns whether an image need not be sent.
pub fn gpgpuImageFind(
    session: &Session,
    request: request::gpgpuImageFind,
    _: Data,
) -> Outcome<reply::gpgpuImageFind> {
    let known = session
        .images
        .find(request.image, request.bytes, &request.hash.0)?;
    tracing::debug!("An image of {} bytes, sent before: {known}", request.bytes);
    Ok(reply::gpgpuImageFind {
        known: known.into(),
        ..Default::default()
    })
}

/// Executes an operation of a library with long arguments or a long answer.
pub fn gpgpuLongCall(
    session: &Session,
    request: request::gpgpuLongCall,
    data: Data,
) -> Outcome<reply::gpgpuLongCall> {
    let op = u16::try_from(request.operation).map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    let arguments = data.copied(0);
    let carried = libraries::carry_out(session, op, request.context, &arguments, Way::Queue);
    // Operations of libraries are complete when their function has returned.
    let Ok(Carried::Done(answer)) = carried else {
        return Err(CUDA_ERROR_INVALID_VALUE.into());
    };
    data.give(answer.reply())?;
    Ok(reply::gpgpuLongCall {
        result: answer.result,
        bytes: answer.reply().len() as u64,
        ..Default::default()
    })
}

/// The driver's description of an error.
pub fn gpgpuErrorText(
    _: &Session,
    request: request::gpgpuErrorText,
    _: Data,
) -> Outcome<reply::gpgpuErrorText> {
    let mut text = std::ptr::null();
    // SAFETY: the driver gives a static string, or an error.
    let text = unsafe {
        driver::cuGetErrorString(request.code, &mut text)?;
        if text.is_null() {
            return Err(CUDA_ERROR_INVALID_VALUE.into());
        }
        CStr::from_ptr(text)
    };
    Ok(reply::gpgpuErrorText {
        text: text.to_string_lossy().into_owned(),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::lifetimes_tests::{Rig, run};

    /// A guest may send any name and value.
    #[test]
    fn other_variables_and_values_are_refused() {
        let rig = Rig::new();
        for (name, value) in [
            ("LD_PRELOAD", "1"),
            ("NVIDIA_TF32_OVERRIDE", "/x"),
            ("CUBLAS_WORKSPACE_CONFIG", ":1048576:64"),
        ] {
            let request = request::gpgpuLibraryVariable {
                name: name.to_owned(),
                value: value.to_owned(),
            };
            let code = run(rig.session, request, 0);
            assert_eq!(code, CUDA_ERROR_INVALID_VALUE, "{name}={value}");
            assert_ne!(std::env::var(name).as_deref(), Ok(value));
        }
    }
}
