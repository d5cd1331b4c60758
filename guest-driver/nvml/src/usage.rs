// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The VM's use: memory, time and processes.

use gpgpu_protocol::api::{DeviceUsage, ProcessUsage};

use crate::{
    Out, Result,
    device::place,
    host, nvml, status,
    types::{Handle, MEMORY_V2, Memory, MemoryV2, NO_INSTANCE, Process, ProcessV1, Utilization},
};

fn memory(usage: &DeviceUsage) -> Memory {
    // A lowered limit may be below the use.
    let used = usage.used.min(usage.total);
    Memory {
        total: usage.total,
        free: usage.total - used,
        used,
    }
}

/// Returns a list as NVML's functions do: `count` is the length of the caller's array, and then the required length.
fn list<T>(
    processes: &[ProcessUsage],
    count: Out<u32>,
    to: Out<T>,
    entry: impl Fn(&ProcessUsage) -> T,
) -> Result {
    let room = count.get()? as usize;
    count.set(processes.len() as u32)?;
    if room < processes.len() {
        return Err(status::INSUFFICIENT_SIZE);
    }
    for (number, process) in processes.iter().enumerate() {
        to.nth(number).set(entry(process))?;
    }
    Ok(())
}

/// The VM's processes on a device. A process with several connections counts once.
pub fn processes(usage: DeviceUsage) -> Vec<ProcessUsage> {
    let mut all: Vec<ProcessUsage> = Vec::new();
    for process in usage.processes {
        match all.iter_mut().find(|other| other.pid == process.pid) {
            Some(other) => other.bytes = other.bytes.saturating_add(process.bytes),
            None => all.push(process),
        }
    }
    all
}

fn compute<T>(
    device: Handle,
    count: Out<u32>,
    infos: Out<T>,
    entry: impl Fn(&ProcessUsage) -> T,
) -> Result {
    let place = place(device)?;
    if count.get()? > 0 {
        infos.required()?;
    }
    list(&processes(host::usage(place)?), count, infos, entry)
}

fn first(process: &ProcessUsage) -> ProcessV1 {
    ProcessV1 {
        pid: process.pid,
        usedGpuMemory: process.bytes,
    }
}

fn third(process: &ProcessUsage) -> Process {
    Process {
        pid: process.pid,
        usedGpuMemory: process.bytes,
        gpuInstanceId: NO_INSTANCE,
        computeInstanceId: NO_INSTANCE,
    }
}

/// Returns an empty list, because there are no processes of that kind.
fn none(device: Handle, count: Out<u32>) -> Result {
    place(device)?;
    count.set(0)
}

nvml! {
    /// The VM's limit and use of the device's memory.
    fn nvmlDeviceGetMemoryInfo(device: Handle, memory_info: Out<Memory>) {
        let place = place(device)?;
        memory_info.required()?;
        memory_info.set(memory(&host::usage(place)?))
    }

    /// The same. None of it counts as reserved.
    fn nvmlDeviceGetMemoryInfo_v2(device: Handle, memory_info: Out<MemoryV2>) {
        let place = place(device)?;
        memory_info.required()?;
        // Another version may be shorter: only the first field is known to exist.
        if Out(memory_info.0.cast::<u32>()).get()? != MEMORY_V2 {
            return Err(status::ARGUMENT_VERSION_MISMATCH);
        }
        let Memory { total, free, used } = memory(&host::usage(place)?);
        memory_info.set(MemoryV2 { version: MEMORY_V2, total, reserved: 0, free, used })
    }

    /// The share of time in which the device did work of the VM. The share for its memory is not known.
    fn nvmlDeviceGetUtilizationRates(device: Handle, utilization: Out<Utilization>) {
        let place = place(device)?;
        utilization.required()?;
        utilization.set(Utilization { gpu: host::utilisation(place)?, memory: 0 })
    }

    /// The VM's processes.
    fn nvmlDeviceGetComputeRunningProcesses(device: Handle, count: Out<u32>, infos: Out<ProcessV1>) {
        compute(device, count, infos, first)
    }

    /// The VM's processes.
    fn nvmlDeviceGetComputeRunningProcesses_v2(device: Handle, count: Out<u32>, infos: Out<Process>) {
        compute(device, count, infos, third)
    }

    /// The VM's processes.
    fn nvmlDeviceGetComputeRunningProcesses_v3(device: Handle, count: Out<u32>, infos: Out<Process>) {
        compute(device, count, infos, third)
    }

    /// No process uses graphics.
    fn nvmlDeviceGetGraphicsRunningProcesses(device: Handle, count: Out<u32>, infos: Out<ProcessV1>) {
        let _ = infos;
        none(device, count)
    }

    /// No process uses graphics.
    fn nvmlDeviceGetGraphicsRunningProcesses_v2(device: Handle, count: Out<u32>, infos: Out<Process>) {
        let _ = infos;
        none(device, count)
    }

    /// No process uses graphics.
    fn nvmlDeviceGetGraphicsRunningProcesses_v3(device: Handle, count: Out<u32>, infos: Out<Process>) {
        let _ = infos;
        none(device, count)
    }

    /// No process uses MPS.
    fn nvmlDeviceGetMPSComputeRunningProcesses(device: Handle, count: Out<u32>, infos: Out<ProcessV1>) {
        let _ = infos;
        none(device, count)
    }

    /// No process uses MPS.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v2(device: Handle, count: Out<u32>, infos: Out<Process>) {
        let _ = infos;
        none(device, count)
    }

    /// No process uses MPS.
    fn nvmlDeviceGetMPSComputeRunningProcesses_v3(device: Handle, count: Out<u32>, infos: Out<Process>) {
        let _ = infos;
        none(device, count)
    }
}
