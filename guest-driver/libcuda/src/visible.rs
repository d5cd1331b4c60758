// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The devices that a program sees: `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
//!
//! Source: CUDA C++ Programming Guide, environment variables. The selection is sent to the host, so that a number means
//! the same device on both sides.

use std::ffi::OsStr;

use gpgpu_client::{
    Connection,
    log::{self, Level},
};
use gpgpu_protocol::{
    api::{DeviceInfo, Hello, request},
    cuda::*,
};

use crate::{device::pci_address, ffi::Result};

/// The variable that names the devices.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
/// The variable that determines the order of their numbers.
const ORDER: &str = "CUDA_DEVICE_ORDER";
/// The prefix of a device's name that is a UUID.
const UUID: &str = "GPU-";

/// Removes the devices from the hello that the program must not see, and sends the selection to the host; returns
/// whether all devices are left, in the host's order.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE` for an invalid variable, `CUDA_ERROR_NOT_SUPPORTED` if the host is too old for this
/// selection, or as [`Connection::call`].
pub fn select(connection: &Connection, hello: &mut Hello) -> Result<bool> {
    let (visible, order) = (std::env::var_os(VISIBLE), std::env::var_os(ORDER));
    let selected = selection(&hello.devices, visible.as_deref(), order.as_deref())?;
    let is_start = selected.iter().enumerate().all(|(at, &of)| at == of);
    let is_all = is_start && selected.len() == hello.devices.len();
    if !is_all && !selected.is_empty() {
        let devices = selected.iter().map(|&device| device as u32).collect();
        match connection.call(&request::gpgpuSelectDevices { devices }) {
            Ok(_) => {}
            // An older host without this operation: if the numbers stay the same, it is enough to hide the other
            // devices.
            Err(CUDA_ERROR_NOT_SUPPORTED) if is_start => {}
            Err(code) => {
                log::say(Level::Error, || {
                    format!(
                        "The host does not let this program choose its devices by {VISIBLE} and {ORDER}: error {code}"
                    )
                });
                return Err(code);
            }
        }
    }
    let mut all: Vec<_> = std::mem::take(&mut hello.devices)
        .into_iter()
        .map(Some)
        .collect();
    let devices = selected.into_iter().filter_map(|device| all[device].take());
    hello.devices = devices.collect();
    Ok(is_all)
}

/// The indices of the devices that these values of the two variables make visible, in the order in which a program sees
/// them.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE` for an invalid order, and for a device that is named twice, as with NVIDIA's driver.
fn selection(
    devices: &[DeviceInfo],
    visible: Option<&OsStr>,
    order: Option<&OsStr>,
) -> Result<Vec<usize>> {
    let mut all: Vec<usize> = (0..devices.len()).collect();
    match order.map(OsStr::as_encoded_bytes) {
        None | Some(b"FASTEST_FIRST") => {}
        Some(b"PCI_BUS_ID") => {
            all.sort_by_key(|&device| pci_address(&devices[device].pci_bus_id));
        }
        Some(_) => return Err(CUDA_ERROR_INVALID_DEVICE),
    }
    let Some(visible) = visible else {
        return Ok(all);
    };
    let visible = visible.to_string_lossy();
    let by_uuid = visible.trim_start().starts_with(UUID);
    let mut seen = Vec::new();
    // The list ends at the first invalid device.
    for name in visible.split(',') {
        let named = if by_uuid {
            with_uuid(devices, name.trim())
        } else {
            number(name).and_then(|number| all.get(number).copied())
        };
        match named {
            Some(device) if seen.contains(&device) => return Err(CUDA_ERROR_INVALID_DEVICE),
            Some(device) => seen.push(device),
            None => break,
        }
    }
    Ok(seen)
}

/// The number at the start of a name, as C's `strtol` parses it.
fn number(name: &str) -> Option<usize> {
    let name = name.trim_start();
    let digits = name.strip_prefix('+').unwrap_or(name);
    let end = digits.find(|c: char| !c.is_ascii_digit());
    digits[..end.unwrap_or(digits.len())].parse().ok()
}

/// The only device whose UUID starts with this.
fn with_uuid(devices: &[DeviceInfo], name: &str) -> Option<usize> {
    if !name.starts_with(UUID) {
        return None;
    }
    let mut named = (0..devices.len()).filter(|&device| uuid(&devices[device]).starts_with(name));
    let first = named.next();
    first.filter(|_| named.next().is_none())
}

/// A device's UUID as `nvidia-smi -L` writes it.
fn uuid(device: &DeviceInfo) -> String {
    let mut text = UUID.to_owned();
    for (at, byte) in device.uuid.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: &[usize] = &[];

    /// Three devices, of which the last has the lowest bus id, and the first two have UUIDs with the same start.
    fn devices() -> Vec<DeviceInfo> {
        [
            (0x11, "0000:3b:00.0"),
            (0x12, "0000:5e:00.0"),
            (0xab, "0000:03:00.0"),
        ]
        .map(|(last, bus)| {
            let mut uuid = [0x0f; 16];
            uuid[0] = last;
            DeviceInfo {
                uuid,
                pci_bus_id: bus.to_owned(),
                ..DeviceInfo::default()
            }
        })
        .to_vec()
    }

    fn seen(visible: &str) -> Vec<usize> {
        selection(&devices(), Some(OsStr::new(visible)), None).unwrap()
    }

    #[test]
    fn without_the_variables_all_are_seen_in_the_hosts_order() {
        for order in [None, Some("FASTEST_FIRST")] {
            let selected = selection(&devices(), None, order.map(OsStr::new));
            assert_eq!(selected.unwrap(), [0, 1, 2], "{order:?}");
        }
    }

    #[test]
    fn numbers_choose_and_order_devices_up_to_the_first_unknown_one() {
        for (visible, expected) in [
            ("0", &[0][..]),
            ("2,0", &[2, 0]),
            (" 1, 2", &[1, 2]),
            ("1a,+0", &[1, 0]),
            ("0,-1,2", &[0]),
            ("1,3,2", &[1]),
            ("1,,2", &[1]),
            ("0,no,2", &[0]),
            ("0,99999999999999999999", &[0]),
            ("", NONE),
            ("-1", NONE),
            ("NoDevFiles", NONE),
            ("MIG-0", NONE),
        ] {
            assert_eq!(seen(visible), expected, "{visible:?}");
        }
    }

    #[test]
    fn a_repeated_device_and_an_unknown_order_are_errors() {
        for visible in ["1,0,1", "GPU-ab,GPU-ab0f"] {
            let selected = selection(&devices(), Some(OsStr::new(visible)), None);
            assert_eq!(selected, Err(CUDA_ERROR_INVALID_DEVICE), "{visible}");
        }
        for order in ["pci_bus_id", ""] {
            let selected = selection(&devices(), None, Some(OsStr::new(order)));
            assert_eq!(selected, Err(CUDA_ERROR_INVALID_DEVICE), "{order:?}");
        }
    }

    #[test]
    fn a_uuid_may_be_cut_where_it_stays_the_only_one() {
        let whole = "GPU-110f0f0f-0f0f-0f0f-0f0f-0f0f0f0f0f0f";
        assert_eq!(seen(whole), [0]);
        assert_eq!(seen(&format!("GPU-ab,{whole}")), [2, 0]);
        assert_eq!(seen("GPU-12"), [1]);
        assert_eq!(seen("GPU-1"), NONE);
        assert_eq!(seen("GPU-ab,GPU-1,GPU-12"), [2]);
        assert_eq!(seen("GPU-ab,0"), [2]);
        assert_eq!(seen(&format!("{whole}0")), NONE);
    }

    #[test]
    fn numbers_count_by_bus_id_on_request() {
        let order = Some(OsStr::new("PCI_BUS_ID"));
        assert_eq!(selection(&devices(), None, order).unwrap(), [2, 0, 1]);
        let visible = Some(OsStr::new("0,2"));
        assert_eq!(selection(&devices(), visible, order).unwrap(), [2, 1]);
    }
}
