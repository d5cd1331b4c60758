// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Initialisation and shutdown, and functions for the whole system.

use std::ffi::c_char;

use crate::{Out, host, nvml, status};

/// `NVML_INIT_FLAG_NO_GPUS` and `NVML_INIT_FLAG_NO_ATTACH`.
const FLAGS: u32 = 3;

/// The version of NVML that this library corresponds to.
const NVML_VERSION: &str = concat!("13.", env!("CARGO_PKG_VERSION"));

nvml! {
    /// Initialises NVML.
    fn nvmlInit_v2() {
        host::initialise()
    }

    /// Initialises NVML.
    fn nvmlInit() {
        host::initialise()
    }

    /// Initialises NVML. Both flags have no effect: a missing GPU is never an error, and no GPU is attached.
    fn nvmlInitWithFlags(flags: u32) {
        if flags & !FLAGS != 0 {
            return Err(status::INVALID_ARGUMENT);
        }
        host::initialise()
    }

    /// Undoes one initialisation.
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

    /// The version of CUDA that the host's driver supports.
    fn nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) {
        version.required()?;
        version.set(host::known()?.cuda_version)
    }

    /// The same.
    fn nvmlSystemGetCudaDriverVersion(version: Out<i32>) {
        version.required()?;
        version.set(host::known()?.cuda_version)
    }

    /// The name of a process in this system, cut to the buffer's length.
    fn nvmlSystemGetProcessName(pid: u32, name: Out<c_char>, length: u32) {
        host::known()?;
        name.required()?;
        name.set_start_of_text(length, &process_name(pid).ok_or(status::NOT_FOUND)?)
    }

    /// Units are parts of other systems, so there are none.
    fn nvmlUnitGetCount(count: Out<u32>) {
        host::known()?;
        count.set(0)
    }

    /// NVML excludes no GPU.
    fn nvmlGetExcludedDeviceCount(count: Out<u32>) {
        count.set(0)
    }
}

/// The command by which a process was started.
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
