// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Start and end, and functions about the whole system.

use std::ffi::c_char;

use crate::{Out, host, nvml, status};

/// `NVML_INIT_FLAG_NO_GPUS` and `NVML_INIT_FLAG_NO_ATTACH`.
const FLAGS: u32 = 3;

/// The version of NVML that this library is like.
const NVML_VERSION: &str = concat!("13.", env!("CARGO_PKG_VERSION"));

nvml! {
    /// Starts NVML.
    fn nvmlInit_v2() {
        host::initialise()
    }

    /// Starts NVML.
    fn nvmlInit() {
        host::initialise()
    }

    /// Starts NVML. That there is no GPU is no error in any case, and none is attached.
    fn nvmlInitWithFlags(flags: u32) {
        if flags & !FLAGS != 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        host::initialise()
    }

    /// Undoes one start.
    fn nvmlShutdown() {
        host::shutdown()
    }

    /// The version of the host's driver.
    fn nvmlSystemGetDriverVersion(version: Out<c_char>, length: u32) {
        version.set_text(length, &host::known()?.driver_version)
    }

    /// The version of this library.
    fn nvmlSystemGetNVMLVersion(version: Out<c_char>, length: u32) {
        version.set_text(length, NVML_VERSION)
    }

    /// The version of CUDA that the host's driver has.
    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) {
        version.required()?;
        version.set(host::known()?.cuda_version)
    }

    /// The same.
    fn nvmlSystemGetCudaDriverVersion(version: Out<i32>) {
        version.required()?;
        version.set(host::known()?.cuda_version)
    }

    /// The name of a process of this system, cut where there is no room for it.
    fn nvmlSystemGetProcessName(pid: u32, name: Out<c_char>, length: u32) {
        host::known()?;
        name.required()?;
        name.set_start_of_text(length, &process_name(pid).ok_or(status::NOT_FOUND)?)
    }

    /// Units are boards of other machines: there is none.
    fn nvmlUnitGetCount(count: Out<u32>) {
        host::known()?;
        count.set(0)
    }

    /// No GPU is kept from NVML.
    fn nvmlGetExcludedDeviceCount(count: Out<u32>) {
        count.set(0)
    }
}

/// The name that a process was started by.
pub fn process_name(pid: u32) -> Option<String> {
    let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).ok();
    let line = read("cmdline")?;
    let name = line.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = match name {
        [] => read("comm")?,
        name => name.to_vec(),
    };
    Some(String::from_utf8_lossy(&name).trim_end().to_owned())
}
