// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Devices. Nearly all queries are answered from the hello.

use std::ffi::c_char;

use gpgpu_locks::RwLock;
use gpgpu_protocol::{
    api::{DeviceInfo, request},
    cuda::*,
};

use crate::{
    argument::{OutPtr, Text},
    client::{API_VERSION, client, driver_version, initialise},
    cuda,
    ffi::Result,
    ipc,
    stores::answers::local,
};

pub(crate) fn device(ordinal: CUdevice) -> Result<&'static DeviceInfo> {
    let devices = &client()?.hello.devices;
    usize::try_from(ordinal)
        .ok()
        .and_then(|index| devices.get(index))
        .ok_or(CUDA_ERROR_INVALID_DEVICE)
}

/// A device attribute, or the error of the host's query.
pub(crate) fn attribute(info: &DeviceInfo, attribute: CUdevice_attribute) -> Result<i32> {
    // Managed memory is implemented by this library, whatever the host supports: the program and the GPU use it in
    // turn.
    match attribute {
        CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY => return Ok(1),
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
        | CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => return Ok(0),
        // So are pools of host memory.
        CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED
        | CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED => return Ok(1),
        _ => {}
    }
    if let Some(value) = ipc::attribute(attribute)? {
        return Ok(value);
    }
    let answer = info
        .attributes
        .get(attribute as usize)
        .ok_or(CUDA_ERROR_INVALID_VALUE)?;
    if answer.result == CUDA_SUCCESS {
        Ok(answer.value)
    } else {
        Err(answer.result)
    }
}

fn name_out(name: *mut c_char) -> OutPtr<u8> {
    OutPtr::nested(name.cast())
}

cuda! {
    fn cuInit(Flags: u32) {
        if Flags != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        initialise()
    }

    /// `cuDriverGetVersion`: works before `cuInit`, with the same result as afterwards.
    fn cuDriverGetVersion(driverVersion: OutPtr<i32>) {
        driverVersion.required()?;
        let version = driver_version().unwrap_or(API_VERSION);
        driverVersion.set(version)
    }

    fn cuDeviceGetCount(count: OutPtr<i32>) {
        count.set(client()?.hello.devices.len() as i32)
    }

    fn cuDeviceGet(device_out: OutPtr<CUdevice>, ordinal: i32) {
        client()?;
        device_out.required()?;
        device(ordinal)?;
        device_out.set(ordinal)
    }

    fn cuDeviceGetName(name: *mut c_char, len: i32, dev: CUdevice) {
        let info = device(dev)?;
        name_out(name).set_text(&info.name, usize::try_from(len).unwrap_or(0))
    }

    fn cuDeviceGetUuid(uuid: OutPtr<CUuuid>, dev: CUdevice) {
        let info = device(dev)?;
        uuid.set(CUuuid { bytes: info.uuid })
    }

    fn cuDeviceGetUuid_v2(uuid: OutPtr<CUuuid>, dev: CUdevice) {
        let info = device(dev)?;
        uuid.set(CUuuid { bytes: info.uuid })
    }

    fn cuDeviceTotalMem_v2(bytes: OutPtr<usize>, dev: CUdevice) {
        let info = device(dev)?;
        bytes.set(info.total_memory as usize)
    }

    fn cuDeviceGetAttribute(pi: OutPtr<i32>, attrib: CUdevice_attribute, dev: CUdevice) {
        pi.required()?;
        client()?;
        let info = device(dev)?;
        pi.set(attribute(info, attrib)?)
    }

    fn cuDeviceComputeCapability(major: OutPtr<i32>, minor: OutPtr<i32>, dev: CUdevice) {
        let info = device(dev)?;
        major.required()?;
        minor.set(attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?)?;
        major.set(attribute(info, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?)
    }

    /// `cuDeviceCanAccessPeer`: the answer for two devices never changes.
    fn cuDeviceCanAccessPeer(canAccessPeer: OutPtr<i32>, dev: CUdevice, peerDev: CUdevice) {
        static KNOWN: RwLock<Vec<(CUdevice, CUdevice, i32)>> = RwLock::new(Vec::new());
        let client = client()?;
        let host = |canAccessPeer| Ok(client.call(&request::cuDeviceCanAccessPeer { canAccessPeer, dev, peerDev })?.canAccessPeer);
        if canAccessPeer.is_null() {
            // The host's driver defines the meaning of NULL.
            return host(false).map(drop);
        }
        let known = local(client, || {
            let known = KNOWN.read();
            known.iter().find(|(from, to, _)| (*from, *to) == (dev, peerDev)).map(|(_, _, can)| *can)
        });
        if let Some(can) = known {
            return canAccessPeer.set(can);
        }
        let can = host(true)?;
        KNOWN.write().push((dev, peerDev, can));
        canAccessPeer.set(can)
    }

    fn cuDeviceGetProperties(prop: OutPtr<CUdevprop>, dev: CUdevice) {
        let info = device(dev)?;
        let fields: [i32; 14] = info.properties.as_slice().try_into().map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?;
        prop.set(CUdevprop {
            maxThreadsPerBlock: fields[0],
            maxThreadsDim: [fields[1], fields[2], fields[3]],
            maxGridSize: [fields[4], fields[5], fields[6]],
            sharedMemPerBlock: fields[7],
            totalConstantMemory: fields[8],
            SIMDWidth: fields[9],
            memPitch: fields[10],
            regsPerBlock: fields[11],
            clockRate: fields[12],
            textureAlign: fields[13],
        })
    }

    fn cuDeviceGetPCIBusId(pciBusId: *mut c_char, len: i32, dev: CUdevice) {
        let info = device(dev)?;
        // A truncated bus id is invalid.
        if usize::try_from(len).is_ok_and(|len| len <= info.pci_bus_id.len()) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        name_out(pciBusId).set_text(&info.pci_bus_id, usize::try_from(len).unwrap_or(0))
    }

    fn cuDeviceGetByPCIBusId(dev: OutPtr<CUdevice>, pciBusId: Text) {
        let client = client()?;
        dev.required()?;
        let wanted = pci_address(&pciBusId.get()?).ok_or(CUDA_ERROR_INVALID_VALUE)?;
        let found = client.hello.devices.iter().position(|info| pci_address(&info.pci_bus_id) == Some(wanted));
        dev.set(found.ok_or(CUDA_ERROR_INVALID_DEVICE)? as CUdevice)
    }
}

/// `[domain:]bus:device[.function]`, in hexadecimal.
pub(crate) fn pci_address(text: &str) -> Option<[u32; 4]> {
    let (place, function) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<_> = place.split(':').collect();
    let (domain, bus, device) = match parts[..] {
        [domain, bus, device] => (domain, bus, device),
        [bus, device] => ("0", bus, device),
        _ => return None,
    };
    let number = |text| u32::from_str_radix(text, 16).ok();
    Some([
        number(domain)?,
        number(bus)?,
        number(device)?,
        number(function)?,
    ])
}

#[cfg(test)]
mod tests {
    use super::pci_address;

    #[test]
    fn pci_addresses_are_read_in_all_three_forms() {
        assert_eq!(pci_address("0000:3B:00.0"), Some([0, 0x3b, 0, 0]));
        assert_eq!(pci_address("3b:00.1"), Some([0, 0x3b, 0, 1]));
        assert_eq!(pci_address("1:3b:1f"), Some([1, 0x3b, 0x1f, 0]));
        assert_eq!(pci_address("nonsense"), None);
    }
}
