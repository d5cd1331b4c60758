// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Handles: numbers of settings.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use gpgpu_locks::{Mutex, MutexGuard};
pub use gpgpu_stand_in::call::{Answer, Argument};
use gpgpu_stand_in::{
    call,
    driver::Name,
    memory::{Memory, Outcome, Plain, Scalar},
    objects::Objects,
    work::Work,
};

use crate::types::{Result, Status};

/// A `cublasHandle_t`.
pub type RawHandle = *mut c_void;

/// The settings of a handle.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The stream of its work.
    pub stream: Name,
    /// Whether it has a workspace of the program's.
    pub has_workspace: bool,
    /// Whether scalars and results are in device memory.
    pub on_device: bool,
    /// `cublasMath_t`, which changes nothing.
    pub math: c_int,
    /// `cublasAtomicsMode_t`, which changes nothing.
    pub atomics: c_int,
    /// `cublasSetSmCountTarget`, which changes nothing.
    pub multiprocessors: c_int,
}

/// The bytes that a reduction allocates in a graph if its handle has no workspace.
const REDUCTION: usize = 8448;

/// A handle's object.
pub struct Handle {
    work: Work,
    settings: Mutex<Settings>,
}

// Handles look like addresses of this page, which no process has: so one that another library made is not found here.
static HANDLES: Objects<Handle> = Objects::new(0xCB1A_0000_0000_0000, 16);

/// Makes a handle in the current context.
pub fn create() -> Result<RawHandle> {
    let handle = Handle {
        work: Work::here().ok_or(Status::NotInitialized)?,
        settings: Mutex::new(Settings {
            stream: Name(null_mut()),
            has_workspace: false,
            on_device: false,
            math: 0,
            atomics: 0,
            multiprocessors: 0,
        }),
    };
    Ok(HANDLES.add(handle) as RawHandle)
}

/// Destroys a handle after its work has ended, as `cublasDestroy` does.
pub fn destroy(name: RawHandle) -> Result {
    let handle = HANDLES.remove(name as usize);
    let handle = handle.ok_or(Status::NotInitialized)?;
    let stream = handle.settings().stream;
    handle.work.wait(stream);
    Ok(())
}

/// Runs a function of the API, and turns a panic into a status.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    call::enter(Status::InternalError, f)
}

/// The same for a function that takes a handle.
pub fn enter_with(name: RawHandle, f: impl FnOnce(&Handle) -> Result) -> c_int {
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

    /// A scalar that a call's pointer leads to. `InvalidValue` for NULL.
    pub fn scalar<T: Plain>(&self, pointer: Argument<T>) -> Result<Scalar<T>> {
        match self.settings().on_device {
            true if pointer.is_null() => Err(Status::InvalidValue),
            true => Ok(Scalar::Device(pointer.address())),
            false => pointer.get().map(Scalar::Host),
        }
    }

    /// Queues work in the handle's stream.
    pub fn run(&self, work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static) -> Result {
        let stream = self.settings().stream;
        self.run_in(stream, work)
    }

    /// Queues work in a stream of the handle's context.
    pub fn run_in(
        &self,
        stream: Name,
        work: impl FnOnce(Memory) -> Outcome + Clone + Send + 'static,
    ) -> Result {
        let queued = self.work.queue(stream, false, work);
        queued.map_err(|_| Status::ExecutionFailed)
    }

    /// Queues work in the handle's stream. Its result is written to `result`: to device memory in the stream's order,
    /// or to the host before this returns. `InvalidValue` for NULL.
    pub fn answer<T: Plain>(
        &self,
        result: Answer<T>,
        work: impl FnOnce(Memory) -> Outcome<T> + Clone + Send + 'static,
    ) -> Result {
        if result.is_null() {
            return Err(Status::InvalidValue);
        }
        let Settings {
            stream,
            on_device,
            has_workspace,
            ..
        } = *self.settings();
        if on_device {
            let address = result.address();
            let work = move |memory: Memory| memory.set(address, work(memory)?);
            // Like NVIDIA's, which reduces in two launches and so needs memory for the intermediate results.
            let queued = match has_workspace {
                true => self.work.queue(stream, false, work),
                false => self.work.queue_with_memory(stream, REDUCTION, work),
            };
            return queued.map_err(|_| Status::ExecutionFailed);
        }
        let value = self.work.answer(stream, work);
        result.set(value.map_err(|_| Status::ExecutionFailed)?)
    }
}
