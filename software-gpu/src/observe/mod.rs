// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The observer of this process's work: the stand-in for CUPTI (`software-gpu/cupti`).
//!
//! A call of the driver API that gives work passes [`call`], where the observer gives it a number. What the call queues
//! is a [`Seen`], which tells the observer its times when it has ended. Without an observer this costs a load for the
//! call, and one for each piece of work.

mod memory;
mod piece;

use std::cell::Cell;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::SystemTime;

use gpgpu_protocol::cuda::{CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, CUresult};
use gpgpu_protocol::software_gpu::{Call, Observer, VERSION};

pub use memory::{OfNode, Side, array, memory_of};
pub use piece::Seen;

static OBSERVER: AtomicPtr<Observer> = AtomicPtr::new(null_mut());

thread_local! {
    // The number of the call that this thread is in.
    static NUMBER: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The functions that give work, by the beginning of their names.
const OF_WORK: [&str; 4] = ["cuMemcpy", "cuMemset", "cuLaunch", "cuGraphLaunch"];

/// The name of a function that gives work as a C string; `None` for other functions. `name` ends in NUL.
pub const fn of_work(name: &'static str) -> Option<&'static CStr> {
    const fn begins(name: &[u8], with: &[u8]) -> bool {
        let mut at = 0;
        while at < with.len() {
            if at >= name.len() || name[at] != with[at] {
                return false;
            }
            at += 1;
        }
        true
    }
    let mut index = 0;
    while index < OF_WORK.len() {
        if begins(name.as_bytes(), OF_WORK[index].as_bytes()) {
            return match CStr::from_bytes_with_nul(name.as_bytes()) {
                Ok(name) => Some(name),
                Err(_) => panic!("a name ends in its only NUL"),
            };
        }
        index += 1;
    }
    None
}

/// [`of_work`] for a function's identifier.
macro_rules! name {
    ($name:ident) => {
        const { $crate::observe::of_work(concat!(stringify!($name), "\0")) }
    };
}
pub(crate) use name;

fn observer() -> Option<&'static Observer> {
    let observer = OBSERVER.load(Ordering::Acquire);
    // SAFETY: NULL, or an observer that is valid as long as the process lives (`softwareGpuObserve`).
    unsafe { observer.as_ref() }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// `softwareGpuObserve`: see [`gpgpu_protocol::software_gpu::Observe`].
///
/// # Safety
/// The observer is NULL, or valid as long as the process lives.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn softwareGpuObserve(observer: *const Observer) -> CUresult {
    // SAFETY: promised by the caller. Every version begins with its number.
    if let Some(observer) = unsafe { observer.as_ref() }
        && observer.version != VERSION
    {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    OBSERVER.store(observer.cast_mut(), Ordering::Release);
    CUDA_SUCCESS
}

/// Calls `f`, the body of an exported function. If the function gives work, it has a [`name!`].
pub fn call(name: Option<&'static CStr>, f: impl FnOnce() -> CUresult) -> CUresult {
    match (name, name.and_then(|_| observer())) {
        (Some(name), Some(observer)) => observed(observer, name, f),
        _ => f(),
    }
}

fn observed(
    observer: &'static Observer,
    name: &'static CStr,
    f: impl FnOnce() -> CUresult,
) -> CUresult {
    let start = now();
    // SAFETY: the name is a constant.
    let number = unsafe { (observer.begin)(name.as_ptr()) };
    let outer = NUMBER.try_with(|of| of.replace(Some(number))).ok();
    let result = f();
    let _ = NUMBER.try_with(|of| of.set(outer.flatten()));
    let call = Call {
        name: name.as_ptr(),
        number,
        result,
        start,
        end: now().max(start),
    };
    // SAFETY: the call's description is valid meanwhile.
    unsafe { (observer.end)(&call) };
    result
}

/// The observer, and the number of the call that this thread is in.
fn current() -> Option<(&'static Observer, u32)> {
    let observer = observer()?;
    let number = NUMBER.try_with(Cell::get).ok().flatten()?;
    Some((observer, number))
}
