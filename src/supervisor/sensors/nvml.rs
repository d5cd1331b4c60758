// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process that reads sensors, by NVIDIA's NVML or the software GPU's stand-in for it.
//!
//! It has the sandbox of a worker, and no access to any guest. It reads the number of a GPU from each line of its
//! standard input, and prints a line for each.

use std::{
    ffi::{CStr, CString, c_void},
    io::BufRead,
    process::ExitCode,
};

use gpgpu_protocol::{
    api::Sensor,
    nvml::{
        FieldValue, SUCCESS, TEMPERATURE_GPU, TYPE_UNSIGNED, TYPE_UNSIGNED_LONG,
        TYPE_UNSIGNED_LONG_LONG, clock, field, threshold,
    },
};

use super::{Values, print};

/// The library's soname.
const LIBRARY: &CStr = c"libnvidia-ml.so.1";
/// The slowest performance state. A higher number means that the state is unknown.
const LAST_STATE: u64 = 15;

/// An `nvmlDevice_t`.
type Device = *mut c_void;

/// The NVML function that returns a sensor's value.
enum Function {
    /// It returns one 32-bit number.
    Number(&'static CStr),
    /// The same, for the part with this index.
    NumberOf(&'static CStr, u32),
    /// The lower of two 32-bit numbers that it returns.
    Lower(&'static CStr),
    /// The higher of two 32-bit numbers that it returns.
    Higher(&'static CStr),
    /// It returns one 64-bit number.
    Long(&'static CStr),
    /// `nvmlDeviceGetFieldValues`, for this field of the whole GPU.
    Field(u32),
}

fn function(sensor: Sensor) -> Function {
    use Function::*;
    const THRESHOLD: &CStr = c"nvmlDeviceGetTemperatureThreshold";
    const LIMITS: &CStr = c"nvmlDeviceGetPowerManagementLimitConstraints";
    const CLOCK: &CStr = c"nvmlDeviceGetClockInfo";
    const MAX_CLOCK: &CStr = c"nvmlDeviceGetMaxClockInfo";
    match sensor {
        Sensor::Temperature => NumberOf(c"nvmlDeviceGetTemperature", TEMPERATURE_GPU),
        Sensor::MemoryTemperature => Field(field::MEMORY_TEMPERATURE),
        Sensor::ShutdownTemperature => NumberOf(THRESHOLD, threshold::SHUTDOWN),
        Sensor::SlowdownTemperature => NumberOf(THRESHOLD, threshold::SLOWDOWN),
        Sensor::MaxMemoryTemperature => NumberOf(THRESHOLD, threshold::MEMORY_MAX),
        Sensor::MaxTemperature => NumberOf(THRESHOLD, threshold::GPU_MAX),
        Sensor::Power => Number(c"nvmlDeviceGetPowerUsage"),
        Sensor::InstantPower => Field(field::POWER_INSTANT),
        Sensor::PowerLimit => Number(c"nvmlDeviceGetPowerManagementLimit"),
        Sensor::EnforcedPowerLimit => Number(c"nvmlDeviceGetEnforcedPowerLimit"),
        Sensor::DefaultPowerLimit => Number(c"nvmlDeviceGetPowerManagementDefaultLimit"),
        Sensor::MinPowerLimit => Lower(LIMITS),
        Sensor::MaxPowerLimit => Higher(LIMITS),
        Sensor::Energy => Long(c"nvmlDeviceGetTotalEnergyConsumption"),
        Sensor::PerformanceState => Number(c"nvmlDeviceGetPerformanceState"),
        Sensor::GraphicsClock => NumberOf(CLOCK, clock::GRAPHICS),
        Sensor::SmClock => NumberOf(CLOCK, clock::SM),
        Sensor::MemoryClock => NumberOf(CLOCK, clock::MEMORY),
        Sensor::VideoClock => NumberOf(CLOCK, clock::VIDEO),
        Sensor::MaxGraphicsClock => NumberOf(MAX_CLOCK, clock::GRAPHICS),
        Sensor::MaxSmClock => NumberOf(MAX_CLOCK, clock::SM),
        Sensor::MaxMemoryClock => NumberOf(MAX_CLOCK, clock::MEMORY),
        Sensor::MaxVideoClock => NumberOf(MAX_CLOCK, clock::VIDEO),
    }
}

/// NVML, which stays open as long as the process.
struct Nvml(*mut c_void);

/// Calls a function of NVML by its name, with arguments of its parameters' types. Returns its code, or `None` if this
/// version of NVML does not have the function.
macro_rules! call {
    ($nvml:expr, $name:expr, ($($argument:expr => $type:ty),*)) => {
        $nvml.symbol($name).map(|address| {
            // SAFETY: NVML's functions of these names have these parameters in every version, and return an
            // nvmlReturn_t.
            let function = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($type),*) -> u32>(address)
            };
            // SAFETY: NVML is started before any device is asked for, devices are ones that it gave out, and each
            // pointer is to a value of the caller's that lives across the call.
            unsafe { function($($argument),*) }
        })
    };
}

impl Nvml {
    /// Loads and initialises the library.
    ///
    /// # Errors
    /// The reason why it cannot be used.
    fn open() -> Result<Self, String> {
        // SAFETY: it loads the library that this process is for, whose initialisers are trusted.
        let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(format!("{} cannot be loaded", LIBRARY.to_string_lossy()));
        }
        let nvml = Self(library);
        match call!(nvml, c"nvmlInit_v2", ()) {
            Some(SUCCESS) => Ok(nvml),
            Some(code) => Err(format!("nvmlInit failed with {code}")),
            None => Err("NVML has no nvmlInit_v2".to_owned()),
        }
    }

    fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the library is open for as long as the process lives; the address is only looked up.
        let address = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!address.is_null()).then_some(address)
    }

    /// The device at an address of the PCI bus.
    fn device(&self, address: &str) -> Option<Device> {
        let address = CString::new(address).ok()?;
        let mut device: Device = std::ptr::null_mut();
        let name = c"nvmlDeviceGetHandleByPciBusId_v2";
        let code = call!(self, name, (
            address.as_ptr() => *const libc::c_char,
            &mut device => *mut Device
        ));
        (code == Some(SUCCESS)).then_some(device)
    }

    /// A sensor's value, in the sensor's unit.
    fn value(&self, device: Device, sensor: Sensor) -> Option<u64> {
        let (mut number, mut other, mut long) = (0, 0, 0);
        let (code, value) = match function(sensor) {
            Function::Number(name) => {
                let code = call!(self, name, (device => Device, &mut number => *mut u32));
                (code, u64::from(number))
            }
            Function::NumberOf(name, part) => {
                let code = call!(self, name, (
                    device => Device,
                    part => u32,
                    &mut number => *mut u32
                ));
                (code, u64::from(number))
            }
            Function::Lower(name) | Function::Higher(name) => {
                let code = call!(self, name, (
                    device => Device,
                    &mut number => *mut u32,
                    &mut other => *mut u32
                ));
                let is_lower = matches!(function(sensor), Function::Lower(_));
                (code, u64::from(if is_lower { number } else { other }))
            }
            Function::Long(name) => {
                let code = call!(self, name, (device => Device, &mut long => *mut u64));
                (code, long)
            }
            Function::Field(field) => return self.field(device, field),
        };
        let is_known = match sensor {
            Sensor::PerformanceState => value <= LAST_STATE,
            _ => true,
        };
        (code == Some(SUCCESS) && is_known).then_some(value)
    }

    /// The value of a field, if it is an unsigned integer.
    fn field(&self, device: Device, field: u32) -> Option<u64> {
        let mut asked = FieldValue {
            fieldId: field,
            ..FieldValue::default()
        };
        let name = c"nvmlDeviceGetFieldValues";
        let code = call!(self, name, (
            device => Device,
            1 => i32,
            &mut asked => *mut FieldValue
        ));
        let is_there = code == Some(SUCCESS) && asked.nvmlReturn == SUCCESS;
        match asked.valueType {
            // The value is a union, whose other bytes are undefined.
            TYPE_UNSIGNED => is_there.then_some(asked.value & u64::from(u32::MAX)),
            TYPE_UNSIGNED_LONG | TYPE_UNSIGNED_LONG_LONG => is_there.then_some(asked.value),
            _ => None,
        }
    }

    fn values(&self, device: Device) -> Values {
        let mut values = [None; Sensor::COUNT];
        for (value, sensor) in values.iter_mut().zip(Sensor::ALL) {
            *value = self.value(device, *sensor);
        }
        values
    }
}

/// The main function of the process: answers until its standard input ends. `addresses` are the GPUs' addresses on the
/// PCI bus, by the driver's numbers.
pub fn serve(addresses: &[String]) -> ExitCode {
    let nvml = match Nvml::open() {
        Ok(nvml) => nvml,
        Err(reason) => {
            println!("{reason}");
            return ExitCode::FAILURE;
        }
    };
    let devices: Vec<Option<Device>> = (addresses.iter())
        .map(|address| nvml.device(address))
        .collect();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let gpu = line.parse().ok();
        let device = gpu.and_then(|gpu: usize| devices.get(gpu).copied().flatten());
        let values = device.map_or([None; Sensor::COUNT], |device| nvml.values(device));
        println!("{}", print(&values));
    }
    ExitCode::SUCCESS
}
