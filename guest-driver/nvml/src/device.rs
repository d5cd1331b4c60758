// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Devices, and their constant properties.

use std::{
    ffi::{CStr, c_char},
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use gpgpu_protocol::cuda::*;

use crate::{
    Out, Result,
    host::{self, Address, Known},
    links, nvml, sensors, status,
    types::{
        FABRIC_V2, FABRIC_V3, Fabric, FabricV3, FieldValue, Handle, PCI_INFO_EXT_V1, PciInfo,
        PciInfoExt, PciInfoV1, PciInfoV2,
    },
};

/// The index of a device, from its handle.
///
/// # Errors
///
/// `NVML_ERROR_INVALID_ARGUMENT` if there is none, `NVML_ERROR_UNINITIALIZED`.
pub(crate) fn place(handle: Handle) -> Result<usize> {
    let known = host::known()?;
    let place = handle.checked_sub(1).ok_or(status::INVALID_ARGUMENT)?;
    known.device(place)?;
    Ok(place)
}

fn with<T>(handle: Handle, body: impl FnOnce(&host::Device) -> Result<T>) -> Result<T> {
    let known = host::known()?;
    let place = handle.checked_sub(1).ok_or(status::INVALID_ARGUMENT)?;
    body(known.device(place)?)
}

/// Reports that a VM's GPU is in no fabric. PyTorch warns if a GPU of compute capability 9.0 or higher does not report
/// this. Older GPUs do not support the query.
pub(crate) fn fabric(major: i32, info: Out<FabricV3>) -> Result {
    info.required()?;
    // The second version is shorter.
    let short = Out(info.0.cast::<Fabric>());
    let version = Out(info.0.cast::<u32>()).get()?;
    let fabric = Fabric {
        version,
        ..Fabric::default()
    };
    match version {
        _ if major < 9 => Err(status::NOT_SUPPORTED),
        FABRIC_V2 => short.set(fabric),
        FABRIC_V3 => info.set(FabricV3 {
            fabric,
            healthSummary: 0,
        }),
        _ => Err(status::ARGUMENT_VERSION_MISMATCH),
    }
}

/// The handle of the first device that satisfies `is_it`.
fn find(to: Out<Handle>, is_it: impl Fn(&host::Device) -> bool) -> Result {
    let known: Arc<Known> = host::known()?;
    to.required()?;
    let place = known.devices.iter().position(is_it);
    to.set(place.ok_or(status::NOT_FOUND)? + 1)
}

/// Whether a text is this UUID. NVIDIA's NVML also takes it without the prefix, as programs that use CUDA write it.
pub fn is_uuid(uuid: &str, given: &str) -> bool {
    given == uuid || uuid.strip_prefix("GPU-") == Some(given)
}

fn by_index(index: u32, to: Out<Handle>) -> Result {
    let known = host::known()?;
    to.required()?;
    known.device(index as usize)?;
    to.set(index as usize + 1)
}

/// The caller's text.
///
/// # Errors
///
/// `NVML_ERROR_INVALID_ARGUMENT` if it is NULL or no UTF-8.
fn text(of: *const c_char) -> Result<String> {
    if of.is_null() {
        return Err(status::INVALID_ARGUMENT);
    }
    // SAFETY: the caller of the exported function gives a string, as NVML asks.
    let of = unsafe { CStr::from_ptr(of) };
    let of = of.to_str().map_err(|_| status::INVALID_ARGUMENT)?;
    Ok(of.to_owned())
}

pub(crate) fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, byte) in chars.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = byte as c_char;
    }
    chars
}

fn by_address(id: *const c_char, to: Out<Handle>) -> Result {
    let address = Address::read(&text(id)?).ok_or(status::INVALID_ARGUMENT)?;
    find(to, |device| device.address == address)
}

fn pci(handle: Handle) -> Result<PciInfo> {
    let address = with(handle, |device| Ok(device.address))?;
    Ok(PciInfo {
        busIdLegacy: chars(&address.text(4)),
        domain: address.domain,
        bus: address.bus,
        device: address.device,
        // The host's driver API has no query for this.
        pciDeviceId: 0,
        pciSubSystemId: 0,
        busId: chars(&address.text(8)),
    })
}

/// The `nvmlDeviceArchitecture_t` for a compute capability.
pub(crate) fn architecture((major, minor): (i32, i32)) -> u32 {
    match (major, minor) {
        (3, _) => 2,
        (5, _) => 3,
        (6, _) => 4,
        (7, 5) => 6,
        (7, _) => 5,
        (8, 9) => 8,
        (8, _) => 7,
        (9, _) => 9,
        (10.., _) => 10,
        _ => u32::MAX,
    }
}

/// The `nvmlBrandType_t` for a device's name.
pub(crate) fn brand(name: &str) -> u32 {
    const BRANDS: [(&str, u32); 9] = [
        ("GeForce RTX", 15),
        ("GeForce", 5),
        ("TITAN RTX", 16),
        ("TITAN", 6),
        ("Quadro RTX", 12),
        ("Quadro", 1),
        ("Tesla", 2),
        ("RTX", 13),
        ("NVIDIA", 14),
    ];
    let found = BRANDS.iter().find(|(part, _)| name.contains(part));
    found.map_or(0, |(_, brand)| *brand)
}

/// The number of a multiprocessor's lanes for 32-bit numbers. Source: CUDA C++ Programming Guide, arithmetic
/// throughput.
pub(crate) fn cores_of_multiprocessor((major, minor): (i32, i32)) -> Result<u32> {
    match (major, minor) {
        (6, 0) | (7, _) | (8, 0) => Ok(64),
        (5 | 6 | 8 | 9 | 10 | 12, _) => Ok(128),
        _ => Err(status::NOT_SUPPORTED),
    }
}

/// A field with its value, or with the code that says why there is none.
fn field(device: Handle, place: usize, asked: FieldValue) -> FieldValue {
    let answer = links::field(device, asked);
    match answer.unwrap_or_else(|| sensors::field(place, asked)) {
        Ok((value, valueType)) => FieldValue {
            timestamp: microseconds(),
            latencyUsec: 0,
            valueType,
            nvmlReturn: status::SUCCESS,
            value,
            ..asked
        },
        Err(nvmlReturn) => FieldValue {
            nvmlReturn,
            ..asked
        },
    }
}

/// The time since 1970, in microseconds.
fn microseconds() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| i64::try_from(now.as_micros()).unwrap_or(i64::MAX))
}

nvml! {
    /// The number of devices.
    fn nvmlDeviceGetCount_v2(count: Out<u32>) {
        let known = host::known()?;
        count.set(known.devices.len() as u32)
    }

    /// The number of devices.
    fn nvmlDeviceGetCount(count: Out<u32>) {
        let known = host::known()?;
        count.set(known.devices.len() as u32)
    }

    /// A device by its number.
    fn nvmlDeviceGetHandleByIndex_v2(index: u32, device: Out<Handle>) {
        by_index(index, device)
    }

    /// A device by its number.
    fn nvmlDeviceGetHandleByIndex(index: u32, device: Out<Handle>) {
        by_index(index, device)
    }

    /// A device by its UUID.
    fn nvmlDeviceGetHandleByUUID(uuid: *const c_char, device: Out<Handle>) {
        let uuid = text(uuid)?;
        find(device, |of| is_uuid(&of.uuid, &uuid))
    }

    /// A device by its address on the host's PCI bus.
    fn nvmlDeviceGetHandleByPciBusId_v2(pci_bus_id: *const c_char, device: Out<Handle>) {
        by_address(pci_bus_id, device)
    }

    /// A device by its address on the host's PCI bus.
    fn nvmlDeviceGetHandleByPciBusId(pci_bus_id: *const c_char, device: Out<Handle>) {
        by_address(pci_bus_id, device)
    }

    /// Serial numbers are unknown.
    fn nvmlDeviceGetHandleBySerial(serial: *const c_char, device: Out<Handle>) {
        let _ = text(serial)?;
        find(device, |_| false)
    }

    /// The device's name.
    fn nvmlDeviceGetName(device: Handle, name: Out<c_char>, length: u32) {
        with(device, |device| name.set_text(length, &device.info.name))
    }

    /// The device's UUID.
    fn nvmlDeviceGetUUID(device: Handle, uuid: Out<c_char>, length: u32) {
        with(device, |device| uuid.set_text(length, &device.uuid))
    }

    /// The device's number.
    fn nvmlDeviceGetIndex(device: Handle, index: Out<u32>) {
        index.set(place(device)? as u32)
    }

    /// The number that NVIDIA's device file would have.
    fn nvmlDeviceGetMinorNumber(device: Handle, minor: Out<u32>) {
        minor.set(place(device)? as u32)
    }

    /// The device's address on the host's PCI bus.
    fn nvmlDeviceGetPciInfo_v3(device: Handle, pci_info: Out<PciInfo>) {
        pci_info.set(pci(device)?)
    }

    /// The same, with the class of the PCI device.
    fn nvmlDeviceGetPciInfoExt(device: Handle, pci_info: Out<PciInfoExt>) {
        let pci = pci(device)?;
        pci_info.required()?;
        // Another version may be shorter: only the first field is known to exist.
        if Out(pci_info.0.cast::<u32>()).get()? != PCI_INFO_EXT_V1 {
            return Err(status::ARGUMENT_VERSION_MISMATCH);
        }
        pci_info.set(pci.into())
    }

    /// The same, in the older form.
    fn nvmlDeviceGetPciInfo_v2(device: Handle, pci_info: Out<PciInfoV2>) {
        pci_info.set(pci(device)?.into())
    }

    /// The same, in the oldest form.
    fn nvmlDeviceGetPciInfo(device: Handle, pci_info: Out<PciInfoV1>) {
        pci_info.set(pci(device)?.into())
    }

    /// The compute capability.
    fn nvmlDeviceGetCudaComputeCapability(device: Handle, major: Out<i32>, minor: Out<i32>) {
        let capability = with(device, host::Device::capability)?;
        minor.required()?;
        major.set(capability.0)?;
        minor.set(capability.1)
    }

    /// Several processes may have contexts: `NVML_COMPUTEMODE_DEFAULT`.
    fn nvmlDeviceGetComputeMode(device: Handle, mode: Out<u32>) {
        place(device)?;
        mode.set(0)
    }

    /// Persistence mode is a setting of the host; the answer is the default, off.
    fn nvmlDeviceGetPersistenceMode(device: Handle, mode: Out<u32>) {
        place(device)?;
        mode.set(0)
    }

    /// No display is connected.
    fn nvmlDeviceGetDisplayMode(device: Handle, display: Out<u32>) {
        place(device)?;
        display.set(0)
    }

    /// No display is set up.
    fn nvmlDeviceGetDisplayActive(device: Handle, is_active: Out<u32>) {
        place(device)?;
        is_active.set(0)
    }

    /// The architecture.
    fn nvmlDeviceGetArchitecture(device: Handle, arch: Out<u32>) {
        arch.set(architecture(with(device, host::Device::capability)?))
    }

    /// The brand, as far as the name reveals it.
    fn nvmlDeviceGetBrand(device: Handle, kind: Out<u32>) {
        kind.set(with(device, |device| Ok(brand(&device.info.name)))?)
    }

    /// The number of cores.
    fn nvmlDeviceGetNumGpuCores(device: Handle, cores: Out<u32>) {
        cores.set(with(device, |device| {
            let each = cores_of_multiprocessor(device.capability()?)?;
            let count = device.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
            Ok(each.saturating_mul(count.max(0) as u32))
        })?)
    }

    /// The width of the memory's bus, in bits.
    fn nvmlDeviceGetMemoryBusWidth(device: Handle, width: Out<u32>) {
        let attribute = CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH;
        width.set(with(device, |device| device.attribute(attribute))? as u32)
    }

    /// GPUs are not partitioned, so a handle never belongs to a part.
    fn nvmlDeviceIsMigDeviceHandle(device: Handle, is_mig: Out<u32>) {
        place(device)?;
        is_mig.set(0)
    }

    /// GPUs are not partitioned.
    fn nvmlDeviceGetMaxMigDeviceCount(device: Handle, count: Out<u32>) {
        place(device)?;
        count.set(0)
    }

    /// Whether two devices can reach each other's memory: `NVML_P2P_STATUS_OK`, or `NVML_P2P_STATUS_NOT_SUPPORTED`.
    fn nvmlDeviceGetP2PStatus(device1: Handle, device2: Handle, index: u32, p2p: Out<u32>) {
        let (from, to) = (place(device1)?, place(device2)?);
        p2p.required()?;
        let is_there = match index {
            // Reads, writes, and copies over PCI Express.
            0 | 1 | 4 => host::reaches(from, to)?,
            2 => host::reaches(from, to)? && host::is_linked()?,
            3 => host::reaches(from, to)? && host::has_atomics(from, to)?,
            _ => return Err(status::INVALID_ARGUMENT),
        };
        p2p.set(if is_there { 0 } else { 5 })
    }

    /// The fabric of NVLinks that several hosts share.
    fn nvmlDeviceGetGpuFabricInfoV(device: Handle, info: Out<FabricV3>) {
        let (major, _) = with(device, host::Device::capability)?;
        fabric(major, info)
    }

    /// The distance between two devices. The host does not report it, so the answer is the greatest one,
    /// `NVML_TOPOLOGY_SYSTEM`.
    fn nvmlDeviceGetTopologyCommonAncestor(device1: Handle, device2: Handle, level: Out<u32>) {
        let (one, other) = (place(device1)?, place(device2)?);
        level.set(if one == other { 0 } else { 50 })
    }

    /// Whether two handles belong to one board.
    fn nvmlDeviceOnSameBoard(device1: Handle, device2: Handle, on_same_board: Out<i32>) {
        let (one, other) = (place(device1)?, place(device2)?);
        on_same_board.set(i32::from(one == other))
    }

    /// A board has one GPU.
    fn nvmlDeviceGetMultiGpuBoard(device: Handle, multi_gpu_bool: Out<u32>) {
        place(device)?;
        multi_gpu_bool.set(0)
    }

    /// Supports only the fields of links and sensors.
    fn nvmlDeviceGetFieldValues(device: Handle, count: i32, values: Out<FieldValue>) {
        let place = place(device)?;
        values.required()?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0);
        for number in 0..count.ok_or(status::INVALID_ARGUMENT)? {
            let asked = values.nth(number);
            asked.set(field(device, place, asked.get()?))?;
        }
        Ok(())
    }
}
