// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Numbers and a structure of NVML that the guest's library, the host and the software GPU's stand-in all use.

/// `NVML_SUCCESS`.
pub const SUCCESS: u32 = 0;
/// `NVML_ERROR_INVALID_ARGUMENT`.
pub const INVALID_ARGUMENT: u32 = 2;
/// `NVML_ERROR_NOT_SUPPORTED`.
pub const NOT_SUPPORTED: u32 = 3;

/// `nvmlClockType_t`, and the number of its values.
#[allow(missing_docs)]
pub mod clock {
    pub const GRAPHICS: u32 = 0;
    pub const SM: u32 = 1;
    pub const MEMORY: u32 = 2;
    pub const VIDEO: u32 = 3;
    pub const COUNT: u32 = 4;
}

/// `nvmlClockId_t`, and the number of its values.
#[allow(missing_docs)]
pub mod clock_id {
    pub const CURRENT: u32 = 0;
    pub const APP_CLOCK_TARGET: u32 = 1;
    pub const COUNT: u32 = 4;
}

/// `nvmlTemperatureThresholds_t`, and the number of its values.
#[allow(missing_docs)]
pub mod threshold {
    pub const SHUTDOWN: u32 = 0;
    pub const SLOWDOWN: u32 = 1;
    pub const MEMORY_MAX: u32 = 2;
    pub const GPU_MAX: u32 = 3;
    pub const ACOUSTIC_MIN: u32 = 4;
    pub const COUNT: u32 = 8;
}

/// `NVML_FI_DEV_…`: fields of `nvmlDeviceGetFieldValues`.
#[allow(missing_docs)]
pub mod field {
    pub const MEMORY_TEMPERATURE: u32 = 82;
    pub const TOTAL_ENERGY: u32 = 83;
    pub const POWER_AVERAGE: u32 = 185;
    pub const POWER_INSTANT: u32 = 186;
    pub const POWER_MIN_LIMIT: u32 = 187;
    pub const POWER_MAX_LIMIT: u32 = 188;
    pub const POWER_DEFAULT_LIMIT: u32 = 189;
    pub const POWER_CURRENT_LIMIT: u32 = 190;
    pub const ENERGY: u32 = 191;
    pub const POWER_REQUESTED_LIMIT: u32 = 192;
}

/// `NVML_TEMPERATURE_GPU`, the only sensor of `nvmlDeviceGetTemperature`.
pub const TEMPERATURE_GPU: u32 = 0;

/// `NVML_VALUE_TYPE_UNSIGNED_INT`.
pub const TYPE_UNSIGNED: u32 = 1;
/// `NVML_VALUE_TYPE_UNSIGNED_LONG`, of 64 bits.
pub const TYPE_UNSIGNED_LONG: u32 = 2;
/// `NVML_VALUE_TYPE_UNSIGNED_LONG_LONG`.
pub const TYPE_UNSIGNED_LONG_LONG: u32 = 3;

/// `nvmlFieldValue_t`.
#[allow(non_snake_case)]
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct FieldValue {
    /// The field that is requested.
    pub fieldId: u32,
    /// The part of the GPU for which it is requested.
    pub scopeId: u32,
    /// Microseconds since 1970.
    pub timestamp: i64,
    /// The time that the query took, in microseconds.
    pub latencyUsec: i64,
    /// The type of the value.
    pub valueType: u32,
    /// An `nvmlReturn_t` for this field.
    pub nvmlReturn: u32,
    /// The value.
    pub value: u64,
}

const _: () = assert!(size_of::<FieldValue>() == 40);
