// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVML's structures, as C lays them out.

use std::ffi::c_char;

pub use gpgpu_protocol::nvml::{FieldValue, TYPE_UNSIGNED};

/// An `nvmlDevice_t`: the device's index plus 1.
pub type Handle = usize;

/// `nvmlPciInfo_t`, of the third version.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PciInfo {
    /// As in `0000:3B:00.0`.
    pub busIdLegacy: [c_char; 16],
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The device.
    pub device: u32,
    /// Device and vendor.
    pub pciDeviceId: u32,
    /// The board's maker.
    pub pciSubSystemId: u32,
    /// As in `00000000:3B:00.0`.
    pub busId: [c_char; 32],
}

/// The second version: without the longer address.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PciInfoV2 {
    /// The fields of the first version.
    pub first: PciInfoV1,
    /// The board's maker. Some headers have unused fields behind it.
    pub pciSubSystemId: u32,
}

impl From<PciInfo> for PciInfoV2 {
    fn from(of: PciInfo) -> Self {
        Self {
            first: of.into(),
            pciSubSystemId: of.pciSubSystemId,
        }
    }
}

/// The first version.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PciInfoV1 {
    /// As in `0000:3B:00.0`.
    pub busId: [c_char; 16],
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The device.
    pub device: u32,
    /// Device and vendor.
    pub pciDeviceId: u32,
}

impl From<PciInfo> for PciInfoV1 {
    fn from(of: PciInfo) -> Self {
        Self {
            busId: of.busIdLegacy,
            domain: of.domain,
            bus: of.bus,
            device: of.device,
            pciDeviceId: of.pciDeviceId,
        }
    }
}

/// `nvmlPciInfoExt_v1_t`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct PciInfoExt {
    /// [`PCI_INFO_EXT_V1`].
    pub version: u32,
    /// The domain.
    pub domain: u32,
    /// The bus.
    pub bus: u32,
    /// The device.
    pub device: u32,
    /// Device and vendor.
    pub pciDeviceId: u32,
    /// The board's maker.
    pub pciSubSystemId: u32,
    /// The class of the device: [`DISPLAY_CONTROLLER`].
    pub baseClass: u32,
    /// The subclass.
    pub subClass: u32,
    /// As in `00000000:3B:00.0`.
    pub busId: [c_char; 32],
}

/// `nvmlPciInfoExt_v1`: the structure's size, and its version in the highest byte.
pub const PCI_INFO_EXT_V1: u32 = size_of::<PciInfoExt>() as u32 | 1 << 24;

/// PCI's class of GPUs.
pub const DISPLAY_CONTROLLER: u32 = 3;

impl From<PciInfo> for PciInfoExt {
    fn from(of: PciInfo) -> Self {
        Self {
            version: PCI_INFO_EXT_V1,
            domain: of.domain,
            bus: of.bus,
            device: of.device,
            pciDeviceId: of.pciDeviceId,
            pciSubSystemId: of.pciSubSystemId,
            baseClass: DISPLAY_CONTROLLER,
            // The host's driver API does not report whether it is a display or a 3D controller.
            subClass: 0,
            busId: of.busId,
        }
    }
}

/// `nvmlMemory_t`, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    /// All memory.
    pub total: u64,
    /// Unused memory.
    pub free: u64,
    /// Used memory.
    pub used: u64,
}

/// `nvmlMemory_v2_t`, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MemoryV2 {
    /// [`MEMORY_V2`].
    pub version: u32,
    /// All memory.
    pub total: u64,
    /// The memory that the driver reserves.
    pub reserved: u64,
    /// Unused memory.
    pub free: u64,
    /// Used memory.
    pub used: u64,
}

/// `nvmlMemory_v2`: the structure's size, and its version in the highest byte.
pub const MEMORY_V2: u32 = size_of::<MemoryV2>() as u32 | 2 << 24;

/// `nvmlUtilization_t`, in percent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Utilization {
    /// The share of time in which a kernel was running.
    pub gpu: u32,
    /// The share of time in which memory was read or written.
    pub memory: u32,
}

/// `nvmlProcessInfo_v1_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ProcessV1 {
    /// The process's id.
    pub pid: u32,
    /// Its GPU memory, in bytes.
    pub usedGpuMemory: u64,
}

/// `nvmlProcessInfo_t`, of the second and the third version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Process {
    /// The process's id.
    pub pid: u32,
    /// Its GPU memory, in bytes.
    pub usedGpuMemory: u64,
    /// [`NO_INSTANCE`].
    pub gpuInstanceId: u32,
    /// [`NO_INSTANCE`].
    pub computeInstanceId: u32,
}

/// The instance id for a GPU that is not partitioned.
pub const NO_INSTANCE: u32 = u32::MAX;

/// `nvmlTemperature_v1_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Temperature {
    /// [`TEMPERATURE_V1`].
    pub version: u32,
    /// An `nvmlTemperatureSensors_t`.
    pub sensorType: u32,
    /// In degrees Celsius.
    pub temperature: i32,
}

/// `nvmlTemperature_v1`: the structure's size, and its version in the highest byte.
pub const TEMPERATURE_V1: u32 = size_of::<Temperature>() as u32 | 1 << 24;

/// `nvmlGpuFabricInfo_v2_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Fabric {
    /// [`FABRIC_V2`].
    pub version: u32,
    /// The fabric's UUID.
    pub clusterUuid: [u8; 16],
    /// The result of the search for it.
    pub status: u32,
    /// The set of GPUs that can access each other.
    pub cliqueId: u32,
    /// An `NVML_GPU_FABRIC_STATE`, a byte in NVML's newest header.
    pub state: u32,
    /// The faults: a bit mask.
    pub healthMask: u32,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct FabricV3 {
    /// The fields of the second version, with [`FABRIC_V3`].
    pub fabric: Fabric,
    /// A summary of all faults.
    pub healthSummary: u8,
}

/// `nvmlGpuFabricInfo_v2`: the structure's size, and its version in the highest byte.
pub const FABRIC_V2: u32 = size_of::<Fabric>() as u32 | 2 << 24;

/// `nvmlGpuFabricInfo_v3`.
pub const FABRIC_V3: u32 = size_of::<FabricV3>() as u32 | 3 << 24;

const _: () = assert!(
    size_of::<PciInfo>() == 68
        && size_of::<PciInfoExt>() == 64
        && size_of::<PciInfoV1>() == 32
        && size_of::<Memory>() == 24
        && size_of::<MemoryV2>() == 40
        && size_of::<ProcessV1>() == 16
        && size_of::<Process>() == 24
        && size_of::<Temperature>() == 12
);
