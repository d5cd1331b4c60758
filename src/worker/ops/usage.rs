// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queries of NVML: the VM's limit and use of a GPU by all of its clients, and the GPU's sensors. They need no context.

use std::sync::atomic::Ordering;

use gpgpu_protocol::{
    api::{DeviceUsage, ProcessUsage, reply, request},
    cuda::CUDA_ERROR_NOT_SUPPORTED,
};

use crate::cuda::driver;
use crate::ipc::peers::ToSupervisor;
use crate::worker::{
    dispatch::Outcome,
    session::{Data, Session},
};

/// The VM's limit and use of a device.
pub fn gpgpuDeviceUsage(
    session: &Session,
    request: request::gpgpuDeviceUsage,
    _: Data,
) -> Outcome<reply::gpgpuDeviceUsage> {
    let gpu = session.gpu(request.dev)?;
    let mut bytes = 0;
    // SAFETY: the pointer is to a value that lives across the call; the driver refuses a device that there is not.
    unsafe { driver::cuDeviceTotalMem_v2(&mut bytes, gpu)? };
    let mut usage = DeviceUsage {
        total: bytes as u64,
        ..DeviceUsage::default()
    };
    // A client that only queries should hold no memory, and should not see any of its own.
    session.prewarm.give_up();
    session.prewarm.wait_over();
    if let Some(shares) = session.shares.get() {
        let quota = &shares.quota;
        if let Some(limit) = quota.limit() {
            usage.total = usage.total.min(limit);
        }
        for (pid, holding) in quota.holders(gpu) {
            let bytes = holding.charged.saturating_sub(holding.kept);
            usage.used = usage.used.saturating_add(bytes);
            usage.processes.push(ProcessUsage { pid, bytes });
        }
        let busy = usize::try_from(gpu).ok().and_then(|gpu| quota.busy_ns(gpu));
        usage.busy_ns = busy.map_or(0, |busy| busy.load(Ordering::Relaxed));
    }
    Ok(reply::gpgpuDeviceUsage {
        usage,
        ..Default::default()
    })
}

/// The version of the host's driver.
pub fn gpgpuDriverVersion(
    _: &Session,
    _: request::gpgpuDriverVersion,
    _: Data,
) -> Outcome<reply::gpgpuDriverVersion> {
    Ok(reply::gpgpuDriverVersion {
        version: driver::version().to_owned(),
    })
}

/// The sensors of a device, if the VM may read them.
pub fn gpgpuDeviceSensors(
    session: &Session,
    request: request::gpgpuDeviceSensors,
    _: Data,
) -> Outcome<reply::gpgpuDeviceSensors> {
    let gpu = session.gpu(request.dev)?;
    let shares = session.shares.get().ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
    // As for the usage.
    session.prewarm.give_up();
    session.prewarm.wait_over();
    let ask = |gpu: usize| {
        // If the channel fails there is no sample, and the query ends by its time-out.
        let _ = shares.peers.send(&ToSupervisor::Sense(gpu as u64));
    };
    let sensors = session.sensors.read(shares.quota.terms(), gpu, ask)?;
    Ok(reply::gpgpuDeviceSensors {
        sensors,
        ..Default::default()
    })
}
