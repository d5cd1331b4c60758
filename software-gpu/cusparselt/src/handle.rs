// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles, and how a call becomes work in a stream.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome},
    objects::Objects,
    work::Work,
};

use crate::structures::{HANDLE, Named, end, read};
use crate::types::{Result, Status};

pub use gpgpu_stand_in::call::{Answer, Argument};

/// A program's structure of a handle.
pub type RawHandle = Named<HANDLE>;

/// A handle's object.
pub struct Handle {
    work: Work,
}

static HANDLES: Objects<Handle> = Objects::new(0xC5B2_0000_0000_0000, 16);

/// Makes a handle in the current context.
///
/// # Errors
/// `NotInitialized` without the software GPU's driver, `InvalidValue` for NULL.
pub fn create(out: Answer<RawHandle>) -> Result {
    if out.is_null() {
        return Err(Status::InvalidValue);
    }
    let work = Work::here().ok_or(Status::NotInitialized)?;
    out.set(Named::new(HANDLES.add(Handle { work })))
}

/// Ends a handle.
///
/// # Errors
/// `NotInitialized` if there is no such handle, `InvalidValue` for NULL.
pub fn destroy(handle: Answer<RawHandle>) -> Result {
    find(handle.as_argument())?;
    let ended = end(handle)?;
    let ended = HANDLES.remove(ended.number as usize);
    ended.map(drop).ok_or(Status::NotInitialized)
}

fn find(handle: Argument<RawHandle>) -> Result<Arc<Handle>> {
    if handle.is_null() {
        return Err(Status::InvalidValue);
    }
    let number = read(handle).map_err(|_| Status::NotInitialized)?.number;
    let found = HANDLES.find(number as usize);
    found.ok_or(Status::NotInitialized)
}

/// Runs a function of the API, without a panic of ours reaching the caller.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

/// The same for a function that takes a handle.
pub fn enter_with(handle: Argument<RawHandle>, f: impl FnOnce(&Handle) -> Result) -> c_int {
    enter(|| f(&*find(handle)?))
}

impl Handle {
    /// Queues work in a stream, and waits for its end if `wait` is set.
    ///
    /// # Errors
    /// `ExecutionFailed` if the driver refuses it, or the awaited work fails.
    pub fn run(
        &self,
        stream: *mut c_void,
        wait: bool,
        work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static,
    ) -> Result {
        let queued = self.work.queue(Name(stream), wait, work);
        queued.map_err(|_| Status::ExecutionFailed)
    }
}
