// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Temperature, power, energy and clocks of a GPU, if the host's operator lets the virtual machine read them.
//!
//! Sensors reveal the activity of all users of a GPU. A virtual machine that may not read them gets
//! `NVML_ERROR_NOT_SUPPORTED`, as from a host that does not know the query, and from a GPU without the sensor. NVML
//! documents that code for each of these functions, and monitors then show no value. It does not document
//! `NVML_ERROR_NO_PERMISSION` for them, and some programs end when they get it.

use gpgpu_protocol::{
    api::{Sensor, SensorValue},
    nvml::{TEMPERATURE_GPU, TYPE_UNSIGNED_LONG_LONG, clock, clock_id, field, threshold},
};

use crate::{
    Out, Result,
    device::place,
    host, nvml, status,
    types::{FieldValue, Handle, TEMPERATURE_V1, TYPE_UNSIGNED, Temperature},
};

/// The values that the host reported.
#[derive(Debug, Clone, Default)]
pub struct Values(Vec<SensorValue>);

impl From<Vec<SensorValue>> for Values {
    fn from(values: Vec<SensorValue>) -> Self {
        Self(values)
    }
}

impl Values {
    /// A sensor's value, in the sensor's unit.
    ///
    /// # Errors
    ///
    /// `NVML_ERROR_NOT_SUPPORTED` if it is not known.
    pub fn get(&self, sensor: Sensor) -> Result<u64> {
        let found = self.0.iter().find(|value| value.sensor == sensor.number());
        found.map(|value| value.value).ok_or(status::NOT_SUPPORTED)
    }

    /// Whether any value is known.
    pub fn are_known(&self) -> bool {
        !self.0.is_empty()
    }
}

/// A value in the 32 bits of NVML's functions.
///
/// # Errors
///
/// `NVML_ERROR_NOT_SUPPORTED` if it is not known, or too large.
fn narrow(values: &Values, sensor: Sensor) -> Result<u32> {
    let value = values.get(sensor)?;
    u32::try_from(value).map_err(|_| status::NOT_SUPPORTED)
}

fn number(place: usize, sensor: Sensor) -> Result<u32> {
    narrow(&host::sensors(place)?, sensor)
}

/// Returns a value to the caller of an exported function.
fn give(device: Handle, sensor: Sensor, to: Out<u32>) -> Result {
    let place = place(device)?;
    to.required()?;
    to.set(number(place, sensor)?)
}

/// The sensor of a clock's present frequency, by its `nvmlClockType_t`.
pub(crate) fn clock(kind: u32) -> Result<Sensor> {
    match kind {
        clock::GRAPHICS => Ok(Sensor::GraphicsClock),
        clock::SM => Ok(Sensor::SmClock),
        clock::MEMORY => Ok(Sensor::MemoryClock),
        clock::VIDEO => Ok(Sensor::VideoClock),
        _ => Err(status::INVALID_ARGUMENT),
    }
}

/// The sensor of a clock's highest frequency.
pub(crate) fn max_clock(kind: u32) -> Result<Sensor> {
    match kind {
        clock::GRAPHICS => Ok(Sensor::MaxGraphicsClock),
        clock::SM => Ok(Sensor::MaxSmClock),
        clock::MEMORY => Ok(Sensor::MaxMemoryClock),
        clock::VIDEO => Ok(Sensor::MaxVideoClock),
        _ => Err(status::INVALID_ARGUMENT),
    }
}

/// The sensor of a threshold, by its `nvmlTemperatureThresholds_t`.
pub(crate) fn threshold(kind: u32) -> Result<Sensor> {
    match kind {
        threshold::SHUTDOWN => Ok(Sensor::ShutdownTemperature),
        threshold::SLOWDOWN => Ok(Sensor::SlowdownTemperature),
        threshold::MEMORY_MAX => Ok(Sensor::MaxMemoryTemperature),
        threshold::GPU_MAX => Ok(Sensor::MaxTemperature),
        // Thresholds of fans, and of boards with user settings.
        threshold::ACOUSTIC_MIN..threshold::COUNT => Err(status::NOT_SUPPORTED),
        _ => Err(status::INVALID_ARGUMENT),
    }
}

/// The sensor of a field.
pub(crate) fn of_field(field: u32) -> Option<Sensor> {
    Some(match field {
        field::MEMORY_TEMPERATURE => Sensor::MemoryTemperature,
        field::TOTAL_ENERGY | field::ENERGY => Sensor::Energy,
        field::POWER_AVERAGE => Sensor::Power,
        field::POWER_INSTANT => Sensor::InstantPower,
        field::POWER_MIN_LIMIT => Sensor::MinPowerLimit,
        field::POWER_MAX_LIMIT => Sensor::MaxPowerLimit,
        field::POWER_DEFAULT_LIMIT => Sensor::DefaultPowerLimit,
        field::POWER_CURRENT_LIMIT => Sensor::EnforcedPowerLimit,
        field::POWER_REQUESTED_LIMIT => Sensor::PowerLimit,
        _ => return None,
    })
}

/// The value of a field and the value's type.
///
/// # Errors
///
/// `NVML_ERROR_NOT_SUPPORTED` for a field that is no sensor's, and for a part of a board.
pub(crate) fn field(place: usize, asked: FieldValue) -> Result<(u64, u32)> {
    let sensor = of_field(asked.fieldId).filter(|_| asked.scopeId == 0);
    let sensor = sensor.ok_or(status::NOT_SUPPORTED)?;
    let values = host::sensors(place)?;
    match sensor {
        Sensor::Energy => Ok((values.get(sensor)?, TYPE_UNSIGNED_LONG_LONG)),
        _ => Ok((narrow(&values, sensor)?.into(), TYPE_UNSIGNED)),
    }
}

nvml! {
    /// A clock, in MHz.
    fn nvmlDeviceGetClockInfo(device: Handle, kind: u32, clock_mhz: Out<u32>) {
        give(device, clock(kind)?, clock_mhz)
    }

    /// A clock's present frequency, in MHz. The other clock ids are settings.
    fn nvmlDeviceGetClock(device: Handle, kind: u32, id: u32, clock_mhz: Out<u32>) {
        let sensor = clock(kind)?;
        match id {
            clock_id::CURRENT => give(device, sensor, clock_mhz),
            clock_id::APP_CLOCK_TARGET..clock_id::COUNT => {
                place(device)?;
                Err(status::NOT_SUPPORTED)
            }
            _ => Err(status::INVALID_ARGUMENT),
        }
    }

    /// A clock's highest frequency, in MHz.
    fn nvmlDeviceGetMaxClockInfo(device: Handle, kind: u32, clock_mhz: Out<u32>) {
        give(device, max_clock(kind)?, clock_mhz)
    }

    /// The GPU's temperature, in degrees Celsius.
    fn nvmlDeviceGetTemperature(device: Handle, sensor: u32, temperature: Out<u32>) {
        if sensor != TEMPERATURE_GPU {
            return Err(status::INVALID_ARGUMENT);
        }
        give(device, Sensor::Temperature, temperature)
    }

    /// The same, in a structure.
    fn nvmlDeviceGetTemperatureV(device: Handle, temperature: Out<Temperature>) {
        let place = place(device)?;
        // Another version may be shorter: only the first field is known to exist.
        if Out(temperature.0.cast::<u32>()).get()? != TEMPERATURE_V1 {
            return Err(status::ARGUMENT_VERSION_MISMATCH);
        }
        let asked = temperature.get()?;
        if asked.sensorType != TEMPERATURE_GPU {
            return Err(status::INVALID_ARGUMENT);
        }
        let degrees = number(place, Sensor::Temperature)?;
        let degrees = i32::try_from(degrees).map_err(|_| status::NOT_SUPPORTED)?;
        temperature.set(Temperature { temperature: degrees, ..asked })
    }

    /// A temperature threshold, in degrees Celsius.
    fn nvmlDeviceGetTemperatureThreshold(device: Handle, kind: u32, temperature: Out<u32>) {
        give(device, threshold(kind)?, temperature)
    }

    /// The power of the board, in milliwatts.
    fn nvmlDeviceGetPowerUsage(device: Handle, power: Out<u32>) {
        give(device, Sensor::Power, power)
    }

    /// The lowest of all power limits that apply, in milliwatts.
    fn nvmlDeviceGetEnforcedPowerLimit(device: Handle, limit: Out<u32>) {
        give(device, Sensor::EnforcedPowerLimit, limit)
    }

    /// The power limit that was set, in milliwatts.
    fn nvmlDeviceGetPowerManagementLimit(device: Handle, limit: Out<u32>) {
        give(device, Sensor::PowerLimit, limit)
    }

    /// The board's default power limit, in milliwatts.
    fn nvmlDeviceGetPowerManagementDefaultLimit(device: Handle, default_limit: Out<u32>) {
        give(device, Sensor::DefaultPowerLimit, default_limit)
    }

    /// The lowest and the highest power limit that can be set, in milliwatts.
    fn nvmlDeviceGetPowerManagementLimitConstraints(device: Handle, min_limit: Out<u32>, max_limit: Out<u32>) {
        let place = place(device)?;
        min_limit.required()?;
        max_limit.required()?;
        let values = host::sensors(place)?;
        let limits = (narrow(&values, Sensor::MinPowerLimit)?, narrow(&values, Sensor::MaxPowerLimit)?);
        min_limit.set(limits.0)?;
        max_limit.set(limits.1)
    }

    /// The performance state, an `nvmlPstates_t`.
    fn nvmlDeviceGetPerformanceState(device: Handle, state: Out<u32>) {
        give(device, Sensor::PerformanceState, state)
    }

    /// The same, by its older name.
    fn nvmlDeviceGetPowerState(device: Handle, state: Out<u32>) {
        give(device, Sensor::PerformanceState, state)
    }

    /// The energy that the board has used since the driver was loaded, in millijoules.
    fn nvmlDeviceGetTotalEnergyConsumption(device: Handle, energy: Out<u64>) {
        let place = place(device)?;
        energy.required()?;
        energy.set(host::sensors(place)?.get(Sensor::Energy)?)
    }
}
