// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVLink, as seen by a virtual machine whose GPUs are behind a switch: each GPU has all its links, and their far ends
//! are outside the VM.
//!
//! NCCL uses this to decide how processes on different GPUs access each other's memory, and with how many channels. The
//! host's driver has no query for links. It reports whether atomic operations between GPUs are native: they are over
//! NVLink, and not over PCI Express. So a GPU has links here if that holds between all GPUs of the VM, and none
//! otherwise. NCCL takes the far end for a switch that connects all of them.

use crate::{
    Out, Result, host, nvml, status,
    types::{FieldValue, Handle, PciInfo, PciInfoV1, TYPE_UNSIGNED},
};

/// `NVML_FI_DEV_NVLINK_LINK_COUNT`.
const LINK_COUNT: u32 = 91;
/// `NVML_FI_DEV_NVLINK_GET_STATE`, of the link with the number in the scope.
const LINK_STATE: u32 = 165;
/// `NVML_NVLINK_CAP_VALID`, the last capability; the first one, 0, is peer-to-peer access.
const LAST_CAPABILITY: u32 = 5;
/// `NVML_NVLINK_DEVICE_TYPE_SWITCH`.
const SWITCH: u32 = 2;

/// The number of a GPU's links and their `nvmlNvlinkVersion_t`, by the compute capability; `None` if it has none.
/// Source: NVIDIA's data sheets of P100, V100, A100, A40, H100 and B200.
pub(crate) fn links_of((major, minor): (i32, i32)) -> Option<(u32, u32)> {
    match (major, minor) {
        (6, 0) => Some((4, 1)),
        (7, 0) => Some((6, 2)),
        (8, 0) => Some((12, 4)),
        (8, 6) => Some((4, 5)),
        (9, 0) => Some((18, 6)),
        (10, _) => Some((18, 7)),
        _ => None,
    }
}

/// The number of links of a device, and their version.
///
/// # Errors
///
/// `NVML_ERROR_NOT_SUPPORTED` if it has none.
fn links(handle: Handle) -> Result<(u32, u32)> {
    let place = crate::device::place(handle)?;
    let capability = host::known()?.device(place)?.capability()?;
    let links = links_of(capability).ok_or(status::NOT_SUPPORTED)?;
    match host::is_linked()? {
        true => Ok(links),
        false => Err(status::NOT_SUPPORTED),
    }
}

/// The version of a link of a device.
///
/// # Errors
///
/// As [`links`]; `NVML_ERROR_INVALID_ARGUMENT` if it has no such link.
fn link(handle: Handle, number: u32) -> Result<u32> {
    let (count, version) = links(handle)?;
    match number < count {
        true => Ok(version),
        false => Err(status::INVALID_ARGUMENT),
    }
}

/// The address of a device outside the VM, as NVML (580, H100) reports it in a VM.
fn outside() -> PciInfo {
    PciInfo {
        busIdLegacy: crate::device::chars("FFFFFFF:FF:FF.0"),
        domain: u32::MAX,
        bus: 0xff,
        device: 0xff,
        pciDeviceId: u32::MAX,
        pciSubSystemId: 0,
        busId: crate::device::chars("FFFFFFFF:FF:FF.0"),
    }
}

/// The value of a field and the value's type; `None` if the field does not concern links.
pub(crate) fn field(handle: Handle, asked: FieldValue) -> Option<Result<(u64, u32)>> {
    let answer = match asked.fieldId {
        LINK_COUNT => links(handle).map(|(count, _)| count),
        LINK_STATE => link(handle, asked.scopeId).map(|_| 1),
        _ => return None,
    };
    Some(answer.map(|value| (value.into(), TYPE_UNSIGNED)))
}

nvml! {
    /// Whether a link is up; every existing link is.
    fn nvmlDeviceGetNvLinkState(device: Handle, number: u32, is_active: Out<u32>) {
        link(device, number)?;
        is_active.set(1)
    }

    /// A link's `nvmlNvlinkVersion_t`.
    fn nvmlDeviceGetNvLinkVersion(device: Handle, number: u32, version: Out<u32>) {
        version.set(link(device, number)?)
    }

    /// A link's capabilities: it has all that NVML defines.
    fn nvmlDeviceGetNvLinkCapability(device: Handle, number: u32, capability: u32, result: Out<u32>) {
        link(device, number)?;
        if capability > LAST_CAPABILITY {
            return Err(status::INVALID_ARGUMENT);
        }
        result.set(1)
    }

    /// The device at a link's far end.
    fn nvmlDeviceGetNvLinkRemoteDeviceType(device: Handle, number: u32, kind: Out<u32>) {
        link(device, number)?;
        kind.set(SWITCH)
    }

    /// The PCI address of the device at a link's far end.
    fn nvmlDeviceGetNvLinkRemotePciInfo_v2(device: Handle, number: u32, pci: Out<PciInfo>) {
        link(device, number)?;
        pci.set(outside())
    }

    /// The same, in the older form.
    fn nvmlDeviceGetNvLinkRemotePciInfo(device: Handle, number: u32, pci: Out<PciInfoV1>) {
        link(device, number)?;
        pci.set(PciInfoV1::from(outside()))
    }
}
