// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles: numbers of settings. They are never addresses, so a stale or invented one is an error.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome, Plain, Scalar},
    objects::Objects,
    work::Work,
};

use crate::types::{Result, Status};

pub use gpgpu_stand_in::call::{Answer, Argument};

/// A `cusparseHandle_t`, or another object of the library.
pub type Raw = *mut c_void;

/// The settings of a handle.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The stream of its work.
    pub stream: Name,
    /// Whether scalars and results are in device memory.
    pub on_device: bool,
}

/// A handle's object.
pub struct Handle {
    work: Work,
    settings: Mutex<Settings>,
}

// Handles look like addresses of a page that no process has: so one that another library made is not found here.
static HANDLES: Objects<Handle> = Objects::new(0xC5B1_0000_0000_0000, 16);

/// Makes a handle in the current context.
///
/// # Errors
/// `NotInitialized` without the software GPU's driver.
pub fn create() -> Result<Raw> {
    let handle = Handle {
        work: Work::here().ok_or(Status::NotInitialized)?,
        settings: Mutex::new(Settings {
            stream: Name(null_mut()),
            on_device: false,
        }),
    };
    Ok(HANDLES.add(handle) as Raw)
}

/// Destroys a handle after its work has ended.
///
/// # Errors
/// `NotInitialized` if there is no such handle.
pub fn destroy(name: Raw) -> Result {
    let handle = HANDLES.remove(name as usize);
    let handle = handle.ok_or(Status::NotInitialized)?;
    let stream = handle.settings().stream;
    handle.work.wait(stream);
    Ok(())
}

/// Runs a function of the API, without a panic of ours reaching the caller.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

/// The same for a function that takes a handle.
pub fn enter_with(name: Raw, f: impl FnOnce(&Handle) -> Result) -> c_int {
    enter(|| {
        let handle = HANDLES.find(name as usize);
        f(&*handle.ok_or(Status::NotInitialized)?)
    })
}

impl Handle {
    /// The settings, to read or change.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
    }

    /// A scalar that a call's pointer leads to.
    ///
    /// # Errors
    /// `InvalidValue` for NULL.
    pub fn scalar<T: Plain>(&self, pointer: Argument<c_void>) -> Result<Scalar<T>> {
        match self.settings().on_device {
            true if pointer.is_null() => Err(Status::InvalidValue),
            true => Ok(Scalar::Device(pointer.address())),
            false => pointer.cast::<T>().get().map(Scalar::Host),
        }
    }

    /// Queues work in the handle's stream.
    ///
    /// # Errors
    /// `ExecutionFailed` if the driver refuses it.
    pub fn run(&self, work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static) -> Result {
        let stream = self.settings().stream;
        let queued = self.work.queue(stream, false, work);
        queued.map_err(|_| Status::ExecutionFailed)
    }

    /// Queues work in the handle's stream and waits for its result.
    ///
    /// # Errors
    /// `ExecutionFailed` if the driver refuses it, or it fails.
    pub fn wait<T: Send + 'static>(
        &self,
        work: impl FnOnce(Memory) -> Outcome<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let stream = self.settings().stream;
        let found = self.work.answer(stream, work);
        found.map_err(|_| Status::ExecutionFailed)
    }

    /// Queues work whose result is written to `result`: to device memory in the stream's order, or to the host before
    /// this returns.
    ///
    /// # Errors
    /// `InvalidValue` for NULL, and those of the work.
    pub fn answer<T: Plain>(
        &self,
        result: Answer<c_void>,
        work: impl FnOnce(Memory) -> Outcome<T> + Clone + Send + 'static,
    ) -> Result {
        if result.is_null() {
            return Err(Status::InvalidValue);
        }
        if self.settings().on_device {
            let address = result.address();
            return self.run(move |memory| memory.set(address, work(memory)?));
        }
        result.cast::<T>().set(self.wait(work)?)
    }
}
