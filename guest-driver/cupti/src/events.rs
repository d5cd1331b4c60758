// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls that order work or wait for it: records of events, and waits for events, streams and contexts.

use std::{
    collections::BTreeMap,
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicU64, Ordering},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{INVALID_PARAMETER, Status, kind};
use gpgpu_trace::Call;

use crate::{
    enter_here, give,
    layouts::{CudaEvent, Synchronization, UNKNOWN},
    libcuda,
    observer::{handle, name},
    profiler::Profiler,
};

/// The maximum number of events whose latest record is known. Beyond it all are forgotten.
const MOST: usize = 1 << 20;

/// The latest record of each event, by the event's handle, as records number them.
#[derive(Debug)]
pub struct Recorded {
    latest: Mutex<BTreeMap<u64, u64>>,
    next: AtomicU64,
}

impl Recorded {
    /// No event was recorded.
    pub const fn new() -> Self {
        Self {
            latest: Mutex::new(BTreeMap::new()),
            next: AtomicU64::new(1),
        }
    }

    /// Numbers a record of an event.
    fn add(&self, event: u64) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut latest = self.latest.lock();
        if latest.len() >= MOST {
            latest.clear();
        }
        latest.insert(event, number);
        number
    }

    /// The latest record of an event; 0 if there is none.
    fn of(&self, event: u64) -> u64 {
        self.latest.lock().get(&event).copied().unwrap_or(0)
    }
}

/// The number of an event: libcuda's own, which is a part of the handle and is never used again.
fn number(event: u64) -> u32 {
    (event >> 8) as u32
}

/// What a call does, with the handles of its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// It waits: `CUpti_ActivitySynchronizationType`.
    Waits(u32, Option<u64>, Option<u64>),
    /// It records an event in a stream.
    Records(u64, Option<u64>),
}

fn order(call: &Call) -> Option<Order> {
    let name = name(call);
    let plain = name.strip_suffix(b"_ptsz");
    // The positions of the stream and of the event among the arguments.
    let (wait, stream, event) = match plain.unwrap_or(name) {
        b"cuEventSynchronize" | b"cudaEventSynchronize" => (1, None, Some(0)),
        b"cuStreamWaitEvent" | b"cudaStreamWaitEvent" => (2, Some(0), Some(1)),
        b"cuStreamSynchronize" | b"cudaStreamSynchronize" => (3, Some(0), None),
        b"cuCtxSynchronize" | b"cuCtxSynchronize_v2" | b"cudaDeviceSynchronize" => (4, None, None),
        b"cuEventRecord"
        | b"cudaEventRecord"
        | b"cuEventRecordWithFlags"
        | b"cudaEventRecordWithFlags" => (0, Some(1), Some(0)),
        _ => return None,
    };
    // SAFETY: each of these arguments is a handle, and those ahead of it are too.
    let argument = |at: usize| unsafe { handle(call, at) };
    // The default stream of such a function is the thread's, whose handle is not known.
    let stream = stream.and_then(argument);
    let stream = stream.filter(|stream| *stream != 0 || plain.is_none());
    let event = event.and_then(argument);
    Some(match (wait, event) {
        (0, event) => Order::Records(event?, stream),
        (wait, event) => Order::Waits(wait, stream, event),
    })
}

impl Profiler {
    /// Makes the record of a call that orders work, if its kind is enabled. Returns whether enough records wait.
    pub fn record_order(&self, call: &Call, end: u64, result: u32) -> bool {
        let wants = [kind::SYNCHRONIZATION, kind::CUDA_EVENT].map(|kind| self.kinds.has(kind));
        if wants == [false, false] {
            return false;
        }
        let Some(order) = order(call) else {
            return false;
        };
        let number_of = |stream: Option<u64>| {
            stream
                .and_then(|stream| self.numbers_of_handle(call.context, stream))
                .unwrap_or(UNKNOWN)
        };
        match order {
            Order::Records(event, stream) if result == 0 => {
                // A wait names it, whether it has a record of its own or not.
                let event_sync = self.recorded.add(event);
                if !wants[1] {
                    return false;
                }
                let stream = number_of(stream);
                let record = CudaEvent {
                    kind: kind::CUDA_EVENT,
                    correlation: call.number,
                    context: self.contexts.number(call.context),
                    stream,
                    event: number(event),
                    pad: 0,
                    device: libcuda::current_device().unwrap_or_default(),
                    pad2: 0,
                    reserved: null_mut(),
                    timestamp: 0,
                    event_sync,
                };
                self.queue.add(|records| records.push(&record))
            }
            Order::Waits(of, stream, event) if wants[0] => {
                let stream = number_of(stream);
                let record = Synchronization {
                    kind: kind::SYNCHRONIZATION,
                    of,
                    start: call.began,
                    end: end.max(call.began),
                    correlation: call.number,
                    context: self.contexts.number(call.context),
                    stream,
                    event: event.map_or(UNKNOWN, number),
                    event_sync: event.map_or(0, |event| self.recorded.of(event)),
                    result,
                    pad: 0,
                };
                self.queue.add(|records| records.push(&record))
            }
            _ => false,
        }
    }
}

/// `cuptiGetCudaEventId`: the number of an event in records.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for NULL.
///
/// # Safety
///
/// `eventId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetCudaEventId(
    _context: *mut c_void,
    event: *mut c_void,
    eventId: *mut u32,
) -> Status {
    enter_here(|| {
        if event.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: promised by the caller.
        unsafe { give(eventId, number(event as u64)) }
    })
}

#[cfg(test)]
mod tests {
    use gpgpu_trace::{DRIVER, RUNTIME};

    use super::*;
    use crate::{
        fake::{Fake, call, read},
        streams::Numbers,
    };

    #[test]
    fn a_wait_names_the_latest_record_of_its_event() {
        let (host, profiler) = Fake::start();
        *host.numbers.lock() = Some(Numbers {
            context: 5,
            stream: 40,
        });
        profiler.enable(kind::SYNCHRONIZATION).unwrap();
        profiler.enable(kind::CUDA_EVENT).unwrap();
        let (event, stream) = (9 << 8, 3 << 8);
        let run = |domain, name, arguments: [u64; 2]| {
            let mut call = call(domain, name);
            call.arguments = arguments.as_ptr().cast();
            profiler.begin(&mut call);
            profiler.end(&mut call);
            profiler.records()
        };
        let wait = || {
            let records = run(RUNTIME, "cudaStreamWaitEvent", [stream, event]);
            let wait: Synchronization = read(&records[0]);
            assert_eq!((wait.of, wait.stream, wait.event), (2, 40, 9));
            wait.event_sync
        };
        assert_eq!(wait(), 0);
        for (domain, name) in [
            (RUNTIME, "cudaEventRecordWithFlags"),
            (DRIVER, "cuEventRecord"),
        ] {
            let records = run(domain, name, [event, stream]);
            assert_eq!(records.len(), 1, "{name}");
            let record: CudaEvent = read(&records[0]);
            assert_eq!((record.event, record.stream, record.context), (9, 40, 5));
            assert_eq!(wait(), record.event_sync, "{name}");
        }
        let records = run(DRIVER, "cuEventSynchronize", [8 << 8, 0]);
        let wait: Synchronization = read(&records[0]);
        assert_eq!((wait.of, wait.event, wait.event_sync), (1, 8, 0));
        // The stream of the thread is not known.
        let records = run(DRIVER, "cuEventRecord_ptsz", [event, 0]);
        let record: CudaEvent = read(&records[0]);
        assert_eq!(record.stream, UNKNOWN);
        // A call that failed records nothing.
        let (mut result, arguments) = (400, [event, stream]);
        let mut failed = call(RUNTIME, "cudaEventRecord");
        failed.arguments = arguments.as_ptr().cast();
        failed.result = &mut result;
        profiler.begin(&mut failed);
        profiler.end(&mut failed);
        assert!(profiler.records().is_empty());
    }
}
