// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles and the objects that calls take: numbers of settings. They are never addresses, so a stale or invented one
//! is an error.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome},
    objects::Objects,
    work::Work,
};

use crate::types::{Result, Status};

pub use gpgpu_stand_in::call::{Answer, Argument};

/// A `cusolverDnHandle_t`, or another object of the library.
pub type Raw = *mut c_void;

/// The settings of a handle.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The stream of its work.
    pub stream: Name,
    /// `cusolverDeterministicMode_t`, which changes nothing.
    pub deterministic: c_int,
}

/// A handle's object.
pub struct Handle {
    work: Work,
    settings: Mutex<Settings>,
}

/// The settings for Jacobi's methods, and the result of the last one.
#[derive(Debug, Clone, Copy)]
pub struct Jacobi {
    /// The tolerance of the off-diagonal remainder.
    pub tolerance: f64,
    /// The most rounds.
    pub most: c_int,
    /// Whether values are sorted. Here they always are.
    pub sorted: c_int,
    /// The rounds of the last call.
    pub rounds: c_int,
}

// Handles look like addresses of pages that no process has: so one that another library made is not found here.
static HANDLES: Objects<Handle> = Objects::new(0xC501_0000_0000_0000, 16);

/// `cusolverDnParams_t`: the algorithm of each function; there is only one here.
pub static PARAMS: Objects<Mutex<()>> = Objects::new(0xC502_0000_0000_0000, 16);

/// `gesvdjInfo_t`.
pub static GESVDJ: Objects<Mutex<Jacobi>> = Objects::new(0xC503_0000_0000_0000, 16);

/// `syevjInfo_t`.
pub static SYEVJ: Objects<Mutex<Jacobi>> = Objects::new(0xC504_0000_0000_0000, 16);

/// Makes a handle in the current context.
///
/// # Errors
/// `NotInitialized` without the software GPU's driver.
pub fn create() -> Result<Raw> {
    let handle = Handle {
        work: Work::here().ok_or(Status::NotInitialized)?,
        settings: Mutex::new(Settings {
            stream: Name(null_mut()),
            deterministic: 1,
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

/// Runs `f` with the settings of an object.
///
/// # Errors
/// `InvalidValue` if there is no such object.
pub fn with<T, R>(
    objects: &Objects<Mutex<T>>,
    name: Raw,
    f: impl FnOnce(&mut T) -> R,
) -> Result<R> {
    let found = objects.find(name as usize).ok_or(Status::InvalidValue)?;
    let mut held = found.lock();
    Ok(f(&mut held))
}

impl Handle {
    /// The settings, to read or change.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock()
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
    pub fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(Memory) -> Outcome<T> + Clone + Send + 'static,
    ) -> Result<T> {
        let stream = self.settings().stream;
        let found = self.work.answer(stream, work);
        found.map_err(|_| Status::ExecutionFailed)
    }
}
