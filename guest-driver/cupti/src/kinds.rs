// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kinds of records that the program has enabled.

use std::{
    ffi::c_void,
    sync::atomic::{AtomicU64, Ordering},
};

use gpgpu_client::log;
use gpgpu_protocol::{
    api::traced_work,
    cupti::{INVALID_KIND, INVALID_PARAMETER, NOT_SUPPORTED, Status, kind::*},
};
use gpgpu_trace::{DRIVER as DRIVER_API, RUNTIME as RUNTIME_API};

use crate::{Outcome, enabled::Numbers, enter_here, numbers, profiler::profiler};

/// One more than the largest kind of CUDA 13.0.
const END: u32 = 56;

/// The host's kinds of work, and the kinds of records that they give.
const WORKS: [(u32, &[u32]); 4] = [
    (traced_work::KERNEL, &[KERNEL, CONCURRENT_KERNEL]),
    (traced_work::COPY, &[MEMCPY, MEMCPY2]),
    (traced_work::FILL, &[MEMSET]),
    (traced_work::GRAPH, &[GRAPH_TRACE]),
];

/// The enabled kinds of records.
#[derive(Debug)]
pub struct Kinds {
    /// A bit for each kind.
    enabled: AtomicU64,
    /// The kinds that were disabled since the last flush. The host may have records of them.
    lingering: AtomicU64,
    /// The functions whose calls are recorded: of the driver API, and of the runtime API.
    apis: [Numbers; 2],
}

fn is_served(kind: u32) -> bool {
    matches!(
        kind,
        DRIVER | RUNTIME | EXTERNAL_CORRELATION | SYNCHRONIZATION | CUDA_EVENT | OVERHEAD
    ) || WORKS.iter().any(|(_, kinds)| kinds.contains(&kind))
}

impl Kinds {
    /// No kinds.
    pub const fn new() -> Self {
        Self {
            enabled: AtomicU64::new(0),
            lingering: AtomicU64::new(0),
            apis: [Numbers::new(), Numbers::new()],
        }
    }

    fn api(&self, domain: u32) -> Option<&Numbers> {
        match domain {
            DRIVER_API => Some(&self.apis[0]),
            RUNTIME_API => Some(&self.apis[1]),
            _ => None,
        }
    }

    fn set_apis(&self, kind: u32, is_on: bool) {
        match kind {
            DRIVER => self.apis[0].set_all(is_on),
            RUNTIME => self.apis[1].set_all(is_on),
            _ => {}
        }
    }

    /// Enables a kind. All functions of an API count again.
    pub fn enable(&self, kind: u32) {
        self.set_apis(kind, true);
        self.enabled.fetch_or(1 << kind, Ordering::Relaxed);
    }

    /// Disables a kind, and all functions of an API. The host's records of it still count until the next flush.
    pub fn disable(&self, kind: u32) {
        if self.withdraw(kind) && self.is_of_host(kind) {
            self.lingering.fetch_or(1 << kind, Ordering::Relaxed);
        }
    }

    /// Disables a kind that has no records. Returns whether it was enabled.
    pub fn withdraw(&self, kind: u32) -> bool {
        self.set_apis(kind, false);
        let before = self.enabled.fetch_and(!(1 << kind), Ordering::Relaxed);
        before & 1 << kind != 0
    }

    /// Enables or disables the records of a function's calls.
    pub fn set_function(&self, domain: u32, number: u32, is_on: bool) {
        if let Some(api) = self.api(domain) {
            api.set(number, is_on);
        }
    }

    /// Whether a kind is enabled.
    #[inline]
    pub fn has(&self, kind: u32) -> bool {
        self.enabled.load(Ordering::Relaxed) & 1 << kind != 0
    }

    /// Whether the host's records of a kind count: it is enabled, or was so since the last flush.
    pub fn counts(&self, kind: u32) -> bool {
        self.has(kind) || self.lingering.load(Ordering::Relaxed) & 1 << kind != 0
    }

    /// Whether the host may have records of kinds that were disabled.
    pub fn lingers(&self) -> bool {
        self.lingering.load(Ordering::Relaxed) != 0
    }

    /// Forgets the kinds that were disabled.
    pub fn linger_no_more(&self) {
        self.lingering.store(0, Ordering::Relaxed);
    }

    /// Whether a call of a function is recorded.
    #[inline]
    pub fn records(&self, domain: u32, number: u32) -> bool {
        number != numbers::NONE && self.api(domain).is_some_and(|api| api.has(number))
    }

    /// Whether calls of any function are recorded.
    pub fn records_calls(&self) -> bool {
        self.apis.iter().any(Numbers::any)
    }

    /// Whether anything is enabled that needs the program's calls.
    pub fn any(&self) -> bool {
        self.enabled.load(Ordering::Relaxed) != 0 || self.records_calls()
    }

    /// Whether the host has the records of a kind.
    pub fn is_of_host(&self, kind: u32) -> bool {
        WORKS.iter().any(|(_, kinds)| kinds.contains(&kind))
    }

    /// The host's kinds of work that are enabled.
    #[inline]
    pub fn host_bits(&self) -> u32 {
        let enabled = |kinds: &[u32]| kinds.iter().any(|kind| self.has(*kind));
        let bits = WORKS.iter().filter(|(_, kinds)| enabled(kinds));
        bits.map(|(work, _)| traced_work::bit(*work)).sum()
    }
}

/// Whether a kind is one that can be enabled.
fn check(kind: u32) -> Outcome {
    if kind == 0 || kind >= END {
        return Err(INVALID_KIND);
    }
    if !is_served(kind) {
        log::refuse(NAMES[kind as usize], "has no records in this VM");
        return Err(NOT_SUPPORTED);
    }
    Ok(())
}

/// `cuptiActivityEnable`: enables the records of a kind. Before the process has a context, the host is not asked yet.
///
/// Fails with `CUPTI_ERROR_INVALID_KIND` for a number that is no kind, and with `CUPTI_ERROR_NOT_SUPPORTED` for a kind
/// that has no records in a VM, and if the host serves no CUPTI.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> Status {
    enter_here(|| {
        check(kind)?;
        profiler().enable(kind)
    })
}

/// `cuptiActivityDisable`: disables the records of a kind. Records that were made so far are still delivered.
///
/// Fails with `CUPTI_ERROR_INVALID_KIND` for a number that is no kind.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> Status {
    enter_here(|| {
        if kind == 0 || kind >= END {
            return Err(INVALID_KIND);
        }
        profiler().disable(kind)
    })
}

/// `cuptiActivityEnableContext`: like [`cuptiActivityEnable`], for all contexts.
///
/// Fails as that.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableContext(_context: *mut c_void, kind: u32) -> Status {
    cuptiActivityEnable(kind)
}

/// `cuptiActivityDisableContext`: like [`cuptiActivityDisable`], for all contexts.
///
/// Fails as that.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisableContext(_context: *mut c_void, kind: u32) -> Status {
    cuptiActivityDisable(kind)
}

fn set_function(domain: u32, number: u32, enable: u8) -> Status {
    enter_here(|| {
        if number >= numbers::Api::of(domain).map_or(0, numbers::Api::count) {
            return Err(INVALID_PARAMETER);
        }
        let kinds = &profiler().kinds;
        kinds.set_function(domain, number, enable != 0);
        let switched = profiler().switch();
        if switched.is_err() {
            kinds.set_function(domain, number, false);
        }
        switched
    })
}

/// `cuptiActivityEnableDriverApi`: enables or disables the records of a driver function's calls, until
/// `CUPTI_ACTIVITY_KIND_DRIVER` is enabled or disabled.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an unknown number.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableDriverApi(cbid: u32, enable: u8) -> Status {
    set_function(DRIVER_API, cbid, enable)
}

/// `cuptiActivityEnableRuntimeApi`: the same for a runtime function and `CUPTI_ACTIVITY_KIND_RUNTIME`.
///
/// Fails as that.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableRuntimeApi(cbid: u32, enable: u8) -> Status {
    set_function(RUNTIME_API, cbid, enable)
}

/// `cuptiActivityEnableCudaEventDeviceTimestamps`: accepted. Records of events have no times of the device.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableCudaEventDeviceTimestamps(_enable: u8) -> Status {
    enter_here(|| Ok(()))
}

/// `cuptiActivityEnableLatencyTimestamps`: accepted. Kernels have no times of queueing and submission.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnableLatencyTimestamps(_enable: u8) -> Status {
    enter_here(|| Ok(()))
}

/// The names of all kinds, for messages, by their numbers.
const NAMES: [&str; END as usize] = [
    "CUPTI_ACTIVITY_KIND_INVALID",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_DRIVER",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_EVENT",
    "CUPTI_ACTIVITY_KIND_METRIC",
    "CUPTI_ACTIVITY_KIND_DEVICE",
    "CUPTI_ACTIVITY_KIND_CONTEXT",
    "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    "CUPTI_ACTIVITY_KIND_NAME",
    "CUPTI_ACTIVITY_KIND_MARKER",
    "CUPTI_ACTIVITY_KIND_MARKER_DATA",
    "CUPTI_ACTIVITY_KIND_SOURCE_LOCATOR",
    "CUPTI_ACTIVITY_KIND_GLOBAL_ACCESS",
    "CUPTI_ACTIVITY_KIND_BRANCH",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "CUPTI_ACTIVITY_KIND_CDP_KERNEL",
    "CUPTI_ACTIVITY_KIND_PREEMPTION",
    "CUPTI_ACTIVITY_KIND_ENVIRONMENT",
    "CUPTI_ACTIVITY_KIND_EVENT_INSTANCE",
    "CUPTI_ACTIVITY_KIND_MEMCPY2",
    "CUPTI_ACTIVITY_KIND_METRIC_INSTANCE",
    "CUPTI_ACTIVITY_KIND_INSTRUCTION_EXECUTION",
    "CUPTI_ACTIVITY_KIND_UNIFIED_MEMORY_COUNTER",
    "CUPTI_ACTIVITY_KIND_FUNCTION",
    "CUPTI_ACTIVITY_KIND_MODULE",
    "CUPTI_ACTIVITY_KIND_DEVICE_ATTRIBUTE",
    "CUPTI_ACTIVITY_KIND_SHARED_ACCESS",
    "CUPTI_ACTIVITY_KIND_PC_SAMPLING",
    "CUPTI_ACTIVITY_KIND_PC_SAMPLING_RECORD_INFO",
    "CUPTI_ACTIVITY_KIND_INSTRUCTION_CORRELATION",
    "CUPTI_ACTIVITY_KIND_OPENACC_DATA",
    "CUPTI_ACTIVITY_KIND_OPENACC_LAUNCH",
    "CUPTI_ACTIVITY_KIND_OPENACC_OTHER",
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUPTI_ACTIVITY_KIND_STREAM",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION",
    "CUPTI_ACTIVITY_KIND_NVLINK",
    "CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT",
    "CUPTI_ACTIVITY_KIND_INSTANTANEOUS_EVENT_INSTANCE",
    "CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC",
    "CUPTI_ACTIVITY_KIND_INSTANTANEOUS_METRIC_INSTANCE",
    "CUPTI_ACTIVITY_KIND_MEMORY",
    "CUPTI_ACTIVITY_KIND_PCIE",
    "CUPTI_ACTIVITY_KIND_OPENMP",
    "CUPTI_ACTIVITY_KIND_INTERNAL_LAUNCH_API",
    "CUPTI_ACTIVITY_KIND_MEMORY2",
    "CUPTI_ACTIVITY_KIND_MEMORY_POOL",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_JIT",
    "CUPTI_ACTIVITY_KIND_DEVICE_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS",
    "CUPTI_ACTIVITY_KIND_CONFIDENTIAL_COMPUTE_ROTATION",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn these_kinds_can_be_enabled() {
        let served = (0..=END).filter(|kind| check(*kind).is_ok());
        let served: Vec<u32> = served.collect();
        assert_eq!(served, [1, 2, 3, 4, 5, 10, 17, 22, 36, 38, 39, 51]);
        assert_eq!(check(0), Err(INVALID_KIND));
        // Streams.
        assert_eq!(check(37), Err(NOT_SUPPORTED));
        assert_eq!(check(END), Err(INVALID_KIND));
        assert_eq!(NAMES[51], "CUPTI_ACTIVITY_KIND_GRAPH_TRACE");
    }
}
