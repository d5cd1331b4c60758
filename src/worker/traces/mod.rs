// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Traces: records of the client's work on the GPU for a profiler in the guest, made by the host's CUPTI.
//!
//! CUPTI traces this process, which serves one client only. The guest numbers the program's calls, and a stream begins
//! with the number of its call (`gpgpuTraceCall`). During the commands that follow, CUPTI has this number as an
//! external id, so each record of work leads to a call. Work without a call is this process's own, and the guest does
//! not learn of it.

mod records;

use std::{
    cell::Cell,
    ffi::c_void,
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    api::{Context, TracedWork, traced_work},
    cuda::*,
    cupti::{self, kind},
};

use super::{charges::Owner, grace, lease::current_gpu, session::Session};
use crate::{account::Charge, cuda::cupti::Cupti};
use records::Records;
pub use records::Taken;

/// The kinds of work, with CUPTI's kinds of records.
const KINDS: [(u32, &[u32]); 4] = [
    (traced_work::KERNEL, &[kind::CONCURRENT_KERNEL]),
    (traced_work::COPY, &[kind::MEMCPY, kind::MEMCPY2]),
    (traced_work::FILL, &[kind::MEMSET]),
    (traced_work::GRAPH, &[kind::GRAPH_TRACE]),
];

/// The kinds that lead from work to a call.
const LINKS: [u32; 3] = [kind::EXTERNAL_CORRELATION, kind::DRIVER, kind::RUNTIME];

/// The size of a buffer for records, in bytes.
const BUFFER_BYTES: usize = 1 << 20;
/// The maximum number of buffers that CUPTI has at a time. Without one it drops records, and counts them.
const MOST_BUFFERS: usize = 64;

/// The maximum number of CUPTI's own buffers for a context. Each has 3.2 MB of device memory
/// (`CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE`).
const DEVICE_BUFFERS: usize = 8;
/// The charge for a context whose work is traced, in bytes: CUPTI's buffers, and as much again for the rest of it.
const CHARGE: u64 = 2 * DEVICE_BUFFERS as u64 * (4 << 20);

thread_local! {
    /// The number of the call to which this thread's commands belong, or 0.
    static CALL: Cell<u32> = const { Cell::new(0) };
}

/// Whether work is traced.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// The number of buffers that CUPTI has.
static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static RECORDS: LazyLock<Mutex<Records>> = LazyLock::new(Mutex::default);

/// The client's choice.
#[derive(Debug, Default)]
pub struct Traces {
    set: Mutex<Set>,
}

#[derive(Debug, Default)]
struct Set {
    /// The kinds of work that are traced.
    kinds: u32,
    /// Whether CUPTI has this process's functions.
    is_ready: bool,
}

/// The name of a stream's call. It ends with the stream.
pub struct Stream;

impl Stream {
    /// Begins a stream, whose commands belong to no call yet.
    #[inline]
    pub fn begin() -> Self {
        Self
    }
}

impl Drop for Stream {
    #[inline]
    fn drop(&mut self) {
        CALL.set(0);
    }
}

/// Sets the call to which the stream's later commands belong.
pub fn set_call(call: u32) {
    CALL.set(call);
}

/// Whether the thread's command belongs to a traced call, so that its work must be submitted as it is.
#[inline]
pub fn is_traced() -> bool {
    CALL.get() != 0
}

/// A command of a traced call.
pub struct Command(&'static Cupti);

impl Command {
    /// Begins a command; `None` if its work is not traced.
    #[inline]
    pub fn begin() -> Option<Self> {
        match CALL.get() {
            0 => None,
            call => Self::begin_traced(call),
        }
    }

    #[cold]
    fn begin_traced(call: u32) -> Option<Self> {
        if !IS_ON.load(Ordering::Acquire) {
            return None;
        }
        let cupti = Cupti::open().ok()?;
        cupti.push(call.into());
        Some(Self(cupti))
    }
}

impl Drop for Command {
    fn drop(&mut self) {
        self.0.pop();
    }
}

/// The charge for the traces of a context that is about to be made; `None` if nothing is traced.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY` if the VM would exceed its limit.
pub fn reserve(session: &Session, device: CUdevice) -> Result<Option<Charge>, CUresult> {
    match IS_ON.load(Ordering::Acquire) {
        true => session.device_memory.reserve(device, CHARGE),
        false => Ok(None),
    }
}

impl Traces {
    /// Keeps the charge of a context that was just made.
    pub fn keep(&self, session: &Session, context: u64, charge: Option<Charge>) {
        if charge.is_some() {
            let owner = Owner::Traces(context);
            session.charges.keep(owner, context, charge);
        }
    }

    /// Traces these kinds of work and no others; returns the version of the host's CUPTI.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_SUPPORTED` if the host has no CUPTI, or CUPTI refuses; `CUDA_ERROR_INVALID_VALUE` for an unknown
    /// kind; `CUDA_ERROR_OUT_OF_MEMORY` if the VM would exceed its limit.
    pub fn trace(&self, session: &Session, kinds: u32) -> Result<u32, CUresult> {
        if KINDS
            .iter()
            .fold(kinds, |rest, (work, _)| rest & !traced_work::bit(*work))
            != 0
        {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let cupti = Cupti::open().map_err(|_| CUDA_ERROR_NOT_SUPPORTED)?;
        let mut set = self.set.lock();
        if !set.is_ready {
            // The limit is for contexts that CUPTI sees for the first time.
            log(
                cupti,
                "its limit",
                cupti.set_size(cupti::DEVICE_BUFFER_POOL_LIMIT, DEVICE_BUFFERS),
            )?;
            log(cupti, "its buffers", cupti.register(requested, completed))?;
            set.is_ready = true;
        }
        if kinds != 0 {
            charge_all(session)?;
            if set.kinds == 0 {
                RECORDS.lock().begin();
            }
        }
        let changed = set_kinds(cupti, set.kinds, kinds);
        if changed.is_err() {
            let _ = set_kinds(cupti, kinds, set.kinds);
        } else {
            set.kinds = kinds;
        }
        IS_ON.store(set.kinds != 0, Ordering::Release);
        changed.map(|()| cupti.version())
    }

    /// Takes records, after CUPTI has returned its buffers if `flush`.
    pub fn take(&self, session: &Session, flush: bool) -> Taken {
        if let Ok(cupti) = Cupti::open()
            && self.set.lock().is_ready
        {
            if flush {
                let _ = log(cupti, "a flush", cupti.flush());
            }
            let dropped = cupti.dropped();
            RECORDS.lock().drop_more(dropped);
        }
        let mut taken = RECORDS.lock().take(flush);
        for work in &mut taken.works {
            number_devices(session, work);
        }
        taken
    }
}

/// Charges the contexts that there are. One that is made meanwhile is charged by its command, if that comes after this,
/// and not at all otherwise: some megabytes, once.
fn charge_all(session: &Session) -> Result<(), CUresult> {
    let is_charged = |context: &u64| session.charges.bytes(Owner::Traces(*context)) != 0;
    let contexts = session.objects.contexts().into_iter();
    let new: Vec<_> = contexts.filter(|context| !is_charged(context)).collect();
    for (at, context) in new.iter().enumerate() {
        if let Err(code) = charge(session, *context) {
            let charged = new[..at].iter();
            charged.for_each(|context| session.charges.forget(Owner::Traces(*context)));
            return Err(code);
        }
    }
    Ok(())
}

/// Charges a context, unless it is ending.
fn charge(session: &Session, context: u64) -> Result<(), CUresult> {
    let device = {
        let _uses = grace::enter(context, false);
        if session.enter(context).is_err() {
            return Ok(());
        }
        current_gpu()? as CUdevice
    };
    // This may wait, and the context may end meanwhile.
    let charge = session.device_memory.reserve(device, CHARGE)?;
    let _uses = grace::enter(context, false);
    if session.objects.entry::<Context>(context).is_some() {
        session
            .charges
            .keep(Owner::Traces(context), context, charge);
    }
    Ok(())
}

/// Replaces the driver's numbers of devices by the client's.
fn number_devices(session: &Session, work: &mut TracedWork) {
    let gpus = session.gpus();
    let place = |device: u32| match gpus.iter().position(|gpu| *gpu == device) {
        Some(place) => place as u32,
        None if gpus.is_empty() => device,
        None => u32::MAX,
    };
    for device in [&mut work.device, &mut work.from_device, &mut work.to_device] {
        *device = place(*device);
    }
}

/// Begins and ends CUPTI's kinds so that those of `new` are traced in place of those of `old`.
fn set_kinds(cupti: &Cupti, old: u32, new: u32) -> Result<(), CUresult> {
    let set = |kind: u32, is_on| {
        let done = cupti.set_enabled(kind, is_on);
        log(cupti, "a kind of record", done)
    };
    if old == 0 && new != 0 {
        LINKS.iter().try_for_each(|kind| set(*kind, true))?;
    }
    for (work, kinds) in KINDS {
        let bit = traced_work::bit(work);
        if (old ^ new) & bit != 0 {
            kinds
                .iter()
                .try_for_each(|kind| set(*kind, new & bit != 0))?;
        }
    }
    if old != 0 && new == 0 {
        LINKS.iter().try_for_each(|kind| set(*kind, false))?;
    }
    Ok(())
}

/// Logs a failure of CUPTI.
fn log(cupti: &Cupti, what: &str, done: Result<(), cupti::Status>) -> Result<(), CUresult> {
    done.map_err(|status| {
        if super::may_log() {
            tracing::warn!("CUPTI refuses {what}: {}", cupti.text(status));
        }
        CUDA_ERROR_NOT_SUPPORTED
    })
}

/// A buffer, in words, because records are aligned to eight bytes.
type Buffer = [u64; BUFFER_BYTES / 8];

/// CUPTI wants a buffer.
unsafe extern "C" fn requested(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    let has_room = BUFFERS.fetch_add(1, Ordering::Relaxed) < MOST_BUFFERS;
    // SAFETY: CUPTI gives addresses of values of its own. The layout is not empty.
    unsafe {
        *most = 0;
        *size = 0;
        *buffer = std::ptr::null_mut();
        if has_room {
            let memory = std::alloc::alloc_zeroed(std::alloc::Layout::new::<Buffer>());
            if !memory.is_null() {
                *buffer = memory;
                *size = BUFFER_BYTES;
                return;
            }
        }
    }
    BUFFERS.fetch_sub(1, Ordering::Relaxed);
}

/// CUPTI returns a buffer with records.
unsafe extern "C" fn completed(
    _context: *mut c_void,
    _stream: u32,
    buffer: *mut u8,
    _size: usize,
    bytes: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let Ok(cupti) = Cupti::open() {
        let mut records = RECORDS.lock();
        let mut at = std::ptr::null_mut();
        // SAFETY: the buffer is CUPTI's with so many bytes of records, until it is freed below.
        while let Some(next) = unsafe { cupti.next(buffer, bytes.min(BUFFER_BYTES), at) } {
            // SAFETY: a record begins with its kind, and has the layout of its kind.
            unsafe { records.add(next) };
            at = next;
        }
    }
    // SAFETY: it is one of `requested`, with the same layout, and CUPTI no longer uses it.
    unsafe { std::alloc::dealloc(buffer, std::alloc::Layout::new::<Buffer>()) };
    BUFFERS.fetch_sub(1, Ordering::Relaxed);
}
