// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions of NVML with which the host reads sensors, for the software GPU. Its sensors have constant values.

#![allow(non_snake_case)]

use std::ffi::{CStr, c_char};

use gpgpu_protocol::nvml::{
    FieldValue, INVALID_ARGUMENT, NOT_SUPPORTED, SUCCESS, TEMPERATURE_GPU, TYPE_UNSIGNED, clock,
    field, threshold,
};

/// `NVML_ERROR_NOT_FOUND`.
const NOT_FOUND: u32 = 6;

/// The bus of the software GPU's first device; the others' numbers descend.
const FIRST_BUS: u32 = 0xff;
/// The device number on each bus.
const PCI_DEVICE: u32 = 0x1f;
/// Devices at most.
const MAX_DEVICES: u32 = 16;

/// The temperature of the first device, in degrees Celsius. Each device is one degree warmer than the one before it.
pub const TEMPERATURE: u32 = 41;
/// The temperature of the memory, in degrees Celsius.
pub const MEMORY_TEMPERATURE: u32 = 47;
/// Temperatures in degrees Celsius, by `nvmlTemperatureThresholds_t`.
pub const THRESHOLDS: [u32; 4] = [95, 90, 105, 87];
/// The power, in milliwatts.
pub const POWER: u32 = 71_250;
/// The power at the moment, in milliwatts.
pub const INSTANT_POWER: u32 = 70_500;
/// The power limit that was set and is enforced, in milliwatts.
pub const POWER_LIMIT: u32 = 300_000;
/// The power limit that the board starts with, in milliwatts.
pub const DEFAULT_POWER_LIMIT: u32 = 350_000;
/// The lowest and the highest limit that can be set, in milliwatts.
pub const POWER_LIMITS: (u32, u32) = (100_000, 400_000);
/// The energy so far, in millijoules: more than 32 bits can hold.
pub const ENERGY: u64 = 123_456_789_012;
/// The performance state.
pub const PERFORMANCE_STATE: u32 = 2;
/// Clocks in MHz, by `nvmlClockType_t`.
pub const CLOCKS: [u32; clock::COUNT as usize] = [1410, 1400, 1593, 1275];
/// The highest clocks in MHz, by `nvmlClockType_t`.
pub const MAX_CLOCKS: [u32; clock::COUNT as usize] = [1980, 1970, 2619, 1545];

/// An `nvmlDevice_t`: the device's number, from 1.
pub type Device = usize;

type Result<T> = std::result::Result<T, u32>;

/// The number of a device, from 0.
fn number(device: Device) -> Result<u32> {
    let number = device.checked_sub(1).and_then(|of| u32::try_from(of).ok());
    let number = number.filter(|number| *number < MAX_DEVICES);
    number.ok_or(INVALID_ARGUMENT)
}

/// The device at an address such as `0000:FF:1F.0`.
fn find(address: &str) -> Option<Device> {
    let (rest, device) = address.rsplit_once(':')?;
    let bus = rest.rsplit_once(':').map_or(rest, |(_, bus)| bus);
    let device = device.strip_suffix(".0")?;
    let read = |text| u32::from_str_radix(text, 16).ok();
    let number = FIRST_BUS.checked_sub(read(bus)?)?;
    let is_there = read(device) == Some(PCI_DEVICE) && number < MAX_DEVICES;
    is_there.then_some(number as Device + 1)
}

/// Writes a value to the caller's pointer.
///
/// # Safety
///
/// `to` is NULL or valid for a write.
unsafe fn set<T>(to: *mut T, value: Result<T>) -> u32 {
    match value {
        _ if to.is_null() => INVALID_ARGUMENT,
        Ok(value) => {
            // SAFETY: it is not NULL, so the caller has promised that it can be written.
            unsafe { to.write(value) };
            SUCCESS
        }
        Err(code) => code,
    }
}

/// Exports functions that return one value.
macro_rules! values {
    ($($(#[doc = $doc:literal])* fn $name:ident($device:ident $(, $part:ident)?) -> $type:ty $body:block)*) => {$(
        $(#[doc = $doc])*
        ///
        /// # Safety
        ///
        /// `to` is NULL or valid for a write.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($device: Device, $($part: u32,)? to: *mut $type) -> u32 {
            let value = number($device).and_then(|$device| {
                let _ = $device;
                $body
            });
            // SAFETY: promised by the caller.
            unsafe { set(to, value) }
        }
    )*};
}

/// The value of the part with this number; NVML defines `count` parts.
fn part(values: &[u32], number: u32, count: u32) -> Result<u32> {
    match values.get(number as usize) {
        Some(value) => Ok(*value),
        None if number < count => Err(NOT_SUPPORTED),
        None => Err(INVALID_ARGUMENT),
    }
}

values! {
    /// The temperature in degrees Celsius.
    fn nvmlDeviceGetTemperature(device, sensor) -> u32 {
        match sensor {
            TEMPERATURE_GPU => Ok(TEMPERATURE + device),
            _ => Err(INVALID_ARGUMENT),
        }
    }

    /// A temperature that something happens at, in degrees Celsius.
    fn nvmlDeviceGetTemperatureThreshold(device, kind) -> u32 {
        part(&THRESHOLDS, kind, threshold::COUNT)
    }

    /// The power in milliwatts.
    fn nvmlDeviceGetPowerUsage(device) -> u32 {
        Ok(POWER)
    }

    /// The power limit that was set, in milliwatts.
    fn nvmlDeviceGetPowerManagementLimit(device) -> u32 {
        Ok(POWER_LIMIT)
    }

    /// The power limit that is enforced, in milliwatts.
    fn nvmlDeviceGetEnforcedPowerLimit(device) -> u32 {
        Ok(POWER_LIMIT)
    }

    /// The power limit that the board starts with, in milliwatts.
    fn nvmlDeviceGetPowerManagementDefaultLimit(device) -> u32 {
        Ok(DEFAULT_POWER_LIMIT)
    }

    /// The energy so far, in millijoules.
    fn nvmlDeviceGetTotalEnergyConsumption(device) -> u64 {
        Ok(ENERGY)
    }

    /// The performance state.
    fn nvmlDeviceGetPerformanceState(device) -> u32 {
        Ok(PERFORMANCE_STATE)
    }

    /// A clock in MHz.
    fn nvmlDeviceGetClockInfo(device, kind) -> u32 {
        part(&CLOCKS, kind, clock::COUNT)
    }

    /// The highest that a clock can be, in MHz.
    fn nvmlDeviceGetMaxClockInfo(device, kind) -> u32 {
        part(&MAX_CLOCKS, kind, clock::COUNT)
    }
}

/// Starts the library, which has nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> u32 {
    SUCCESS
}

/// The device at an address on the PCI bus.
///
/// # Safety
///
/// `address` is NULL or a string, `to` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(
    address: *const c_char,
    to: *mut Device,
) -> u32 {
    if address.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not NULL, so the caller has promised that it is a string.
    let address = unsafe { CStr::from_ptr(address) };
    let device = address.to_str().ok().and_then(find);
    // SAFETY: promised by the caller.
    unsafe { set(to, device.ok_or(NOT_FOUND)) }
}

/// The lowest and the highest power limit that can be set, in milliwatts.
///
/// # Safety
///
/// `lowest` and `highest` are each NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerManagementLimitConstraints(
    device: Device,
    lowest: *mut u32,
    highest: *mut u32,
) -> u32 {
    let limits = number(device).map(|_| POWER_LIMITS);
    // SAFETY: promised by the caller.
    let code = unsafe { set(lowest, limits.map(|limits| limits.0)) };
    // SAFETY: as above.
    code.max(unsafe { set(highest, limits.map(|limits| limits.1)) })
}

/// Values by field.
///
/// # Safety
///
/// `values` is NULL or valid for reads and writes of `count` values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetFieldValues(
    device: Device,
    count: i32,
    values: *mut FieldValue,
) -> u32 {
    let count = usize::try_from(count).unwrap_or(0);
    if number(device).is_err() || count == 0 || values.is_null() {
        return INVALID_ARGUMENT;
    }
    // SAFETY: it is not NULL, so the caller has promised so many values.
    for value in unsafe { std::slice::from_raw_parts_mut(values, count) } {
        let found = match value.fieldId {
            field::MEMORY_TEMPERATURE => Some(MEMORY_TEMPERATURE),
            field::POWER_INSTANT => Some(INSTANT_POWER),
            _ => None,
        };
        value.nvmlReturn = found.map_or(NOT_SUPPORTED, |_| SUCCESS);
        value.valueType = TYPE_UNSIGNED;
        value.value = found.unwrap_or_default().into();
    }
    SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(address: &CStr) -> Option<Device> {
        let mut device = 0;
        // SAFETY: a string, and a value that lives across the call.
        let code = unsafe { nvmlDeviceGetHandleByPciBusId_v2(address.as_ptr(), &mut device) };
        assert_eq!(code == SUCCESS, device > 0);
        (code == SUCCESS).then_some(device)
    }

    #[test]
    fn devices_are_where_the_software_gpu_has_them() {
        assert_eq!(device(c"0000:FF:1F.0"), Some(1));
        assert_eq!(device(c"00000000:f0:1f.0"), Some(16));
        for wrong in [
            c"0000:EF:1F.0",
            c"0000:FF:1E.0",
            c"0000:FF:1F.1",
            c"FF",
            c"",
        ] {
            assert_eq!(device(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn each_device_is_warmer_than_the_one_before() {
        let mut degrees = 0;
        // SAFETY: the pointer is to a value that lives across the calls, or NULL.
        unsafe {
            assert_eq!(nvmlDeviceGetTemperature(3, 0, &mut degrees), SUCCESS);
            assert_eq!(degrees, TEMPERATURE + 2);
            for (device, sensor) in [(0, 0), (17, 0), (1, 1)] {
                let code = nvmlDeviceGetTemperature(device, sensor, &mut degrees);
                assert_eq!(code, INVALID_ARGUMENT);
            }
            let nowhere = std::ptr::null_mut();
            assert_eq!(nvmlDeviceGetTemperature(1, 0, nowhere), INVALID_ARGUMENT);
            let code = nvmlDeviceGetTemperatureThreshold(1, 7, &mut degrees);
            assert_eq!(code, NOT_SUPPORTED);
        }
    }

    #[test]
    fn an_unknown_field_has_an_error_of_its_own() {
        let mut values = [FieldValue::default(); 2];
        values[0].fieldId = field::MEMORY_TEMPERATURE;
        // SAFETY: the pointer is to as many values, which live across the call.
        let code = unsafe { nvmlDeviceGetFieldValues(1, 2, values.as_mut_ptr()) };
        assert_eq!(code, SUCCESS);
        assert_eq!(values[0].value, MEMORY_TEMPERATURE.into());
        let codes = values.map(|value| value.nvmlReturn);
        assert_eq!(codes, [SUCCESS, NOT_SUPPORTED]);
    }
}
