// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The numbers of processes, threads, contexts, streams and devices in records.

use std::{
    cell::Cell,
    ffi::c_void,
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{INVALID_PARAMETER, Status};

use crate::{enter_here, give, libcuda, profiler::profiler};

/// `CUPTI_ERROR_INVALID_DEVICE`.
const INVALID_DEVICE: Status = 2;
/// `CUPTI_ERROR_INVALID_CONTEXT`.
const INVALID_CONTEXT: Status = 3;
/// `CUPTI_ERROR_INVALID_STREAM`.
const INVALID_STREAM: Status = 20;

/// `CUPTI_ACTIVITY_THREAD_ID_TYPE_SYSTEM`: the number by which the system knows a thread.
const SYSTEM: u32 = 1;

/// `CUpti_ActivityThreadIdType`.
static THREADS: AtomicU32 = AtomicU32::new(0);

/// The numbers of contexts in the host's records, as far as known.
#[derive(Debug)]
pub struct Contexts(Mutex<Known>);

#[derive(Debug)]
struct Known {
    numbers: Vec<(u64, u32)>,
    latest: u32,
}

impl Contexts {
    /// No context is known. The first one has the number 1, as natively.
    pub const fn new() -> Self {
        Self(Mutex::new(Known {
            numbers: Vec::new(),
            latest: 1,
        }))
    }

    /// The number of a context by its handle; while it is unknown, that of the latest record.
    pub fn number(&self, handle: u64) -> u32 {
        let known = self.0.lock();
        let number = known.numbers.iter().find(|(of, _)| *of == handle);
        number.map_or(known.latest, |(_, number)| *number)
    }

    /// A record has this number for a context. Its handle is 0 if unknown.
    pub fn learn(&self, handle: u64, number: u32) {
        let mut known = self.0.lock();
        known.latest = number;
        if handle == 0 {
            return;
        }
        match known.numbers.iter_mut().find(|(of, _)| *of == handle) {
            Some(of) => of.1 = number,
            None => known.numbers.push((handle, number)),
        }
    }
}

/// This process. A forked child records nothing, so the number is asked for once.
pub fn process() -> u32 {
    static KNOWN: OnceLock<u32> = OnceLock::new();
    *KNOWN.get_or_init(std::process::id)
}

/// This thread, by its `pthread_t` or by the system's number.
pub fn thread() -> u32 {
    thread_local! {
        static KNOWN: Cell<u32> = const { Cell::new(0) };
    }
    if THREADS.load(Ordering::Relaxed) != SYSTEM {
        // SAFETY: takes nothing.
        return unsafe { libc::pthread_self() } as u32;
    }
    // SAFETY: takes nothing.
    let ask = || unsafe { libc::gettid() } as u32;
    let known = KNOWN.try_with(|known| {
        if known.get() == 0 {
            known.set(ask());
        }
        known.get()
    });
    known.unwrap_or_else(|_| ask())
}

/// `cuptiSetThreadIdType`: how records name threads.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` for an unknown type.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiSetThreadIdType(kind: u32) -> Status {
    enter_here(|| {
        if kind > SYSTEM {
            return Err(INVALID_PARAMETER);
        }
        THREADS.store(kind, Ordering::Relaxed);
        Ok(())
    })
}

/// `cuptiGetThreadIdType`: how records name threads.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `kind` is NULL.
///
/// # Safety
///
/// `kind` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetThreadIdType(kind: *mut u32) -> Status {
    // SAFETY: promised by the caller.
    enter_here(|| unsafe { give(kind, THREADS.load(Ordering::Relaxed)) })
}

/// `cuptiGetContextId`: the number of a context in records. If the host does not know it, it is that of the latest
/// record.
///
/// Fails with `CUPTI_ERROR_INVALID_CONTEXT` for NULL or if there is none, and with `CUPTI_ERROR_INVALID_PARAMETER` if `contextId` is NULL.
///
/// # Safety
///
/// `contextId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetContextId(context: *mut c_void, contextId: *mut u32) -> Status {
    enter_here(|| {
        if context.is_null() {
            return Err(INVALID_CONTEXT);
        }
        let context = context as u64;
        let exists = in_context(context, &mut || {
            let _ = profiler().numbers(context, 0);
        });
        if !exists {
            return Err(INVALID_CONTEXT);
        }
        // SAFETY: promised by the caller.
        unsafe { give(contextId, profiler().contexts.number(context)) }
    })
}

/// `cuptiGetStreamIdEx`: the number of a stream in records.
///
/// Fails with `CUPTI_ERROR_INVALID_STREAM` for an unknown stream and for the default streams of threads, and with
/// `CUPTI_ERROR_INVALID_PARAMETER` if `streamId` is NULL.
///
/// # Safety
///
/// `streamId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamIdEx(
    context: *mut c_void,
    stream: *mut c_void,
    perThreadStream: u8,
    streamId: *mut u32,
) -> Status {
    enter_here(|| {
        let context = match context as u64 {
            0 => libcuda::current_context(),
            context => context,
        };
        let mut number = None;
        if perThreadStream == 0 || !stream.is_null() {
            let stream = stream as u64;
            in_context(context, &mut || {
                number = profiler().numbers_of_handle(context, stream);
            });
        }
        // SAFETY: promised by the caller.
        unsafe { give(streamId, number.ok_or(INVALID_STREAM)?) }
    })
}

/// `cuptiGetStreamId`: [`cuptiGetStreamIdEx`] for a program whose default stream is the legacy one.
///
/// Fails as that.
///
/// # Safety
///
/// As for [`cuptiGetStreamIdEx`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamId(
    context: *mut c_void,
    stream: *mut c_void,
    streamId: *mut u32,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe { cuptiGetStreamIdEx(context, stream, 0, streamId) }
}

/// Runs a function in a context, if that exists; returns whether it does.
fn in_context(context: u64, body: &mut dyn FnMut()) -> bool {
    if context == libcuda::current_context() {
        body();
        return true;
    }
    libcuda::within(context, body)
}

/// `cuptiGetDeviceId`: the device of a context, or of the current one for NULL.
///
/// Fails with `CUPTI_ERROR_INVALID_DEVICE` if there is none, and with `CUPTI_ERROR_INVALID_PARAMETER` if `deviceId` is
/// NULL.
///
/// # Safety
///
/// `deviceId` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetDeviceId(context: *mut c_void, deviceId: *mut u32) -> Status {
    enter_here(|| {
        let mut device = None;
        let context = context as u64;
        match context {
            0 => device = libcuda::current_device(),
            _ => {
                in_context(context, &mut || device = libcuda::current_device());
            }
        }
        // SAFETY: promised by the caller.
        unsafe { give(deviceId, device.ok_or(INVALID_DEVICE)?) }
    })
}

/// `cuptiDeviceSupported`: every device of this VM is one that the host's CUPTI is for, or its activities are refused.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `support` is NULL.
///
/// # Safety
///
/// `support` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiDeviceSupported(_dev: i32, support: *mut i32) -> Status {
    // SAFETY: promised by the caller.
    enter_here(|| unsafe { give(support, 1) })
}

/// `cuptiComputeCapabilitySupported`: whether CUPTI of CUDA 13 is for devices with a compute capability.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `support` is NULL.
///
/// # Safety
///
/// `support` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiComputeCapabilitySupported(
    major: i32,
    minor: i32,
    support: *mut i32,
) -> Status {
    // SAFETY: promised by the caller.
    enter_here(|| unsafe { give(support, i32::from((major, minor) >= (7, 5))) })
}
