// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The kinds of records that are enabled, and the observer that makes them.

use std::ffi::c_char;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::SystemTime;

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{INVALID_KIND, NOT_INITIALIZED, Status, kind};
use gpgpu_protocol::software_gpu::{Call, Detail, Observer, VERSION, Work};
use gpgpu_stand_in::driver::Driver;

use crate::buffers::Buffers;
use crate::{external, names, records};

/// The buffers of all records.
pub static BUFFERS: Buffers = Buffers::new();

// A bit for each kind.
static ENABLED: AtomicU64 = AtomicU64::new(0);
// Held while the observation begins or ends.
static CHANGE: Mutex<()> = Mutex::new(());

static OBSERVER: Observer = Observer {
    version: VERSION,
    begin,
    end,
    work,
};

/// The kinds that can be enabled. There are no records of the runtime API: its library has none that is ours.
const KINDS: [u32; 9] = [
    kind::MEMCPY,
    kind::MEMSET,
    kind::KERNEL,
    kind::DRIVER,
    kind::RUNTIME,
    kind::CONCURRENT_KERNEL,
    kind::MEMCPY2,
    kind::EXTERNAL_CORRELATION,
    kind::GRAPH_TRACE,
];

/// Whether records of a kind are made.
pub fn is_enabled(kind: u32) -> bool {
    ENABLED.load(Ordering::Acquire) >> kind & 1 != 0
}

/// Begins or ends the making of records of a kind.
///
/// # Errors
/// `INVALID_KIND`, and `NOT_INITIALIZED` if the driver is not the software GPU's.
pub fn set(kind: u32, is_on: bool) -> Result<(), Status> {
    if !KINDS.contains(&kind) {
        return Err(INVALID_KIND);
    }
    let driver = Driver::get().ok_or(NOT_INITIALIZED)?;
    let _change = CHANGE.lock();
    let before = ENABLED.load(Ordering::Acquire);
    let after = match is_on {
        true => before | 1 << kind,
        false => before & !(1 << kind),
    };
    if (before == 0) != (after == 0) {
        let observer = (after != 0).then_some(&OBSERVER);
        driver.observe(observer).map_err(|_| NOT_INITIALIZED)?;
    }
    ENABLED.store(after, Ordering::Release);
    Ok(())
}

/// The time, by the clock of the records.
pub fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

unsafe extern "C" fn begin(_: *const c_char) -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = match NEXT.fetch_add(1, Ordering::Relaxed) {
        0 => NEXT.fetch_add(1, Ordering::Relaxed),
        number => number,
    };
    if is_enabled(kind::EXTERNAL_CORRELATION) && is_enabled(kind::DRIVER) {
        for last in external::last() {
            BUFFERS.put(&records::external(last, number));
        }
    }
    number
}

unsafe extern "C" fn end(call: *const Call) {
    if !is_enabled(kind::DRIVER) {
        return;
    }
    // SAFETY: the software GPU's description of a call, whose name is a constant string.
    let (call, name) = unsafe { (&*call, records::text((*call).name)) };
    BUFFERS.put(&records::call(call, name));
}

unsafe extern "C" fn work(work: *const Work) {
    // SAFETY: the software GPU's description of a piece of work, valid for this call.
    let work = unsafe { &*work };
    // One record of the whole launch of a graph is in the place of those of its nodes.
    let is_whole = matches!(work.detail, Detail::Graph);
    if work.graph != 0 && is_whole != is_enabled(kind::GRAPH_TRACE) {
        return;
    }
    match &work.detail {
        Detail::Kernel(kernel) => {
            let kinds = [kind::CONCURRENT_KERNEL, kind::KERNEL];
            let Some(of) = kinds.into_iter().find(|of| is_enabled(*of)) else {
                return;
            };
            // SAFETY: the name is valid for this call.
            let name = names::keep(unsafe { records::text(kernel.name) });
            BUFFERS.put(&records::kernel(work, kernel, name, of));
        }
        Detail::Copy(copy) if records::is_between_devices(copy) => {
            if is_enabled(kind::MEMCPY2) {
                BUFFERS.put(&records::peer_copy(work, copy));
            }
        }
        Detail::Copy(copy) => {
            if is_enabled(kind::MEMCPY) {
                BUFFERS.put(&records::copy(work, copy));
            }
        }
        Detail::Fill(fill) => {
            if is_enabled(kind::MEMSET) {
                BUFFERS.put(&records::fill(work, fill));
            }
        }
        Detail::Graph => BUFFERS.put(&records::graph(work)),
    }
}
