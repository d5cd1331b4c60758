// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The observation of the program's calls.

mod calls;
mod external;

use std::{
    ffi::c_void,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

use gpgpu_client::forks;
use gpgpu_protocol::cupti::{Api as ApiRecord, ExternalCorrelation, kind};
use gpgpu_trace::{Call, Copied, DRIVER, LIBRARY, Observer, RUNTIME};

use crate::{
    buffers::When,
    callbacks::{Data, ENTER, EXIT},
    ids,
    launches::Launch,
    libcuda,
    numbers::{self, Api},
    profiler::{Profiler, profiler},
    queue::Records,
};

pub use calls::Calls;
#[cfg(test)]
pub use external::cuptiActivityPushExternalCorrelationId;

/// The observer that libcuda calls.
pub static OBSERVER: Observer = Observer {
    begin,
    end,
    now,
    copied,
};

/// After so many calls without a flush, the host's records are fetched, which has room for a limited number of them.
const OFTEN: u32 = 4096;

unsafe extern "C" fn begin(call: *mut Call) {
    // The child's calls are not traced, and neither are those that the profiler makes itself.
    if forks::is_child() || libcuda::is_own() {
        // SAFETY: libcuda gives a call of its own.
        unsafe { (*call).number = 0 };
        return;
    }
    // A panic is a bug of this library. The program's call is not affected.
    // SAFETY: libcuda gives a call of its own, which no other thread uses.
    let _ = catch_unwind(AssertUnwindSafe(|| profiler().begin(unsafe { &mut *call })));
}

unsafe extern "C" fn end(call: *mut Call) {
    // SAFETY: as above.
    if unsafe { (*call).number } == 0 || forks::is_child() {
        return;
    }
    // SAFETY: as above.
    let _ = catch_unwind(AssertUnwindSafe(|| profiler().end(unsafe { &mut *call })));
}

unsafe extern "C" fn now() -> u64 {
    profiler().clock.now()
}

unsafe extern "C" fn copied(copied: *const Copied) {
    if !forks::is_child() {
        // SAFETY: libcuda gives a structure that lives across the call.
        profiler().copied(unsafe { *copied });
    }
}

/// Makes the records of the program's own numbers for a call, which precede that of the call.
fn push_external(records: &mut Records, correlation: u32, numbers: &[(u32, u64)]) {
    for (external_kind, external) in numbers {
        records.push(&ExternalCorrelation {
            kind: kind::EXTERNAL_CORRELATION,
            external_kind: *external_kind,
            external: *external,
            correlation,
            reserved: 0,
        });
    }
}

/// The arguments of `cudaLaunchKernel` in a callback for a library's call: no function, no blocks. The host's library
/// launches the kernels, and the guest does not know them.
static NO_LAUNCH: [u64; 8] = [0; 8];

/// The number of further calls that a call counts as, because it makes many works: the host has room for a number of
/// records.
fn work_of(call: &Call) -> u32 {
    if call.domain == LIBRARY {
        return 7;
    }
    let name = name(call);
    match name.strip_suffix(b"_ptsz").unwrap_or(name) {
        b"cuGraphLaunch" | b"cudaGraphLaunch" => OFTEN / 8,
        _ => 0,
    }
}

/// The name of a call's function.
pub fn name(call: &Call) -> &'static [u8] {
    // SAFETY: the name has so many bytes, and lives as long as the process.
    unsafe { slice::from_raw_parts(call.name, call.name_bytes) }
}

/// A handle among a call's arguments, by its position; `None` if they are unknown.
///
/// # Safety
/// That argument and all those ahead of it are handles or pointers.
pub unsafe fn handle(call: &Call, at: usize) -> Option<u64> {
    // SAFETY: the arguments lie in their order, and the caller promises that each has eight bytes.
    (!call.arguments.is_null()).then(|| unsafe { call.arguments.cast::<u64>().add(at).read() })
}

/// The domain and the number of a call's function. A library's launches natively are calls of the runtime.
fn function(call: &Call) -> (u32, u32) {
    if call.domain == LIBRARY {
        return (RUNTIME, library_number());
    }
    let number = Api::of(call.domain).map_or(numbers::NONE, |api| api.number(name(call)));
    (call.domain, number)
}

fn library_number() -> u32 {
    Api::of(RUNTIME).map_or(numbers::NONE, |api| api.number(b"cudaLaunchKernel"))
}

/// The function or kernel that a call of the driver API launches.
fn launched(call: &Call) -> Option<u64> {
    let name = name(call);
    let at = match name.strip_suffix(b"_ptsz").unwrap_or(name) {
        b"cuLaunchKernel" | b"cuLaunchCooperativeKernel" => 0,
        b"cuLaunchKernelEx" => 1,
        _ => return None,
    };
    // SAFETY: this argument is a handle, and the one ahead of it is a pointer.
    unsafe { handle(call, at) }
}

impl Profiler {
    /// A call begins.
    pub fn begin(&self, call: &mut Call) {
        self.calls.begin(call, self.clock.now());
        call.data = 0;
        // The first call after the program has enabled a kind, if it has a context. The call itself is traced then.
        if call.context != 0 && self.is_unsettled() {
            let _ = self.settle(call.context);
        }
        self.graphs.begin(call);
        let (domain, number) = function(call);
        let mut numbers = Vec::new();
        if self.kinds.has(kind::EXTERNAL_CORRELATION)
            && (self.kinds.records(domain, number) || !self.kinds.records_calls())
        {
            external::each(|kind, number| numbers.push((kind, number)));
        }
        if !numbers.is_empty() {
            self.queue
                .add(|records| push_external(records, call.number, &numbers));
        }
        if call.domain == LIBRARY && self.kinds.host_bits() != 0 {
            let launch = Launch::new(call.began, ids::thread(), numbers);
            self.launches.begin(call.number, launch);
        }
        if self.callbacks.wants(domain, number) {
            self.call_back(ENTER, domain, number, call);
        }
    }

    /// Makes the records of a further kernel's launch in a library's call, ahead of that of the kernel. Returns its
    /// number.
    pub fn record_launch(&self, launch: &Launch, records: &mut Records) -> u32 {
        let correlation = self.calls.number();
        push_external(records, correlation, &launch.external);
        let callback = library_number();
        if self.kinds.records(RUNTIME, callback) {
            records.push(&ApiRecord {
                kind: kind::RUNTIME,
                callback,
                start: launch.start,
                end: launch.end,
                process: ids::process(),
                thread: launch.thread,
                correlation,
                result: 0,
            });
        }
        correlation
    }

    /// It ends.
    pub fn end(&self, call: &mut Call) {
        let end = self.clock.now();
        let (domain, number) = function(call);
        // SAFETY: the pointer is NULL or to the call's result.
        let result = unsafe { call.result.as_ref() }.copied().unwrap_or(0);
        let is_enough = self.record_call(call, (domain, number), end, result);
        if call.domain == LIBRARY {
            self.launches.end(call.number, end);
        }
        // The callback below may flush.
        self.calls.end(call);
        self.calls.count_more(work_of(call));
        if self.callbacks.wants(domain, number) {
            self.call_back(EXIT, domain, number, call);
        }
        if call.context != 0 && self.is_unsettled() {
            let _ = self.settle(call.context);
        }
        if self.calls.count() >= OFTEN && self.is_traced() {
            self.calls.count_anew();
            self.collect(false);
        }
        if is_enough {
            self.buffers.deliver(&self.queue, When::Enough);
        } else if self.kinds.any() {
            self.buffers.prepare();
        }
    }

    /// Makes the records of a call that has ended. Returns whether enough records wait.
    fn record_call(
        &self,
        call: &Call,
        (domain, number): (u32, u32),
        end: u64,
        result: u32,
    ) -> bool {
        let start = call.began;
        let end = end.max(start);
        let mut is_enough = false;
        if self.kinds.records(domain, number) {
            let api = ApiRecord {
                kind: match domain {
                    DRIVER => kind::DRIVER,
                    _ => kind::RUNTIME,
                },
                callback: number,
                start,
                end,
                process: ids::process(),
                thread: ids::thread(),
                correlation: call.number,
                result,
            };
            is_enough = self.queue.add(|records| records.push(&api));
        }
        if call.domain == LIBRARY {
            return is_enough;
        }
        self.record_order(call, end, result) || is_enough
    }

    fn call_back(&self, site: u32, domain: u32, number: u32, call: &mut Call) {
        let name = Api::of(domain).and_then(|api| api.exported(number));
        let context_number = match call.context {
            0 => 0,
            context => self.contexts.number(context),
        };
        let mut success = 0_u32;
        let (arguments, result) = match call.domain {
            LIBRARY => ((&raw const NO_LAUNCH).cast(), &raw mut success),
            _ => (call.arguments, call.result),
        };
        let data = Data {
            site,
            name: name.unwrap_or_default().as_ptr(),
            arguments,
            result: result.cast::<c_void>(),
            symbol: launched(call)
                .map_or(std::ptr::null(), |function| self.host.kernel_name(function)),
            context: call.context as *mut c_void,
            context_number,
            word: &raw mut call.data,
            correlation: call.number,
        };
        self.callbacks.call(domain, number, &data);
    }

    /// Memory was copied as a part of a call.
    pub fn copied(&self, copied: Copied) {
        if copied.call != 0 && self.kinds.has(kind::MEMCPY) {
            self.copied.lock().push(copied);
            // The record may have to name the stream without the host's records. Each stream is asked for once.
            let _ = self.numbers(copied.context, copied.stream);
        }
    }
}

#[cfg(test)]
#[path = "observer_tests.rs"]
mod tests;
