//! Handles: numbers that name what is set for them. They are never addresses, so a stale or invented one is an error.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use crate::driver::{Driver, Name};
use crate::memory::{Memory, Outcome, Scalar};
use crate::number::Plain;
use crate::types::{Result, Status};

/// A `cublasHandle_t`.
pub type RawHandle = *mut c_void;

/// A pointer of the caller's to one `T` that the function reads; may be NULL.
///
/// It has the pointer's ABI. Only C callers make one, and the API's contract is that what is not NULL is valid for the call, or
/// an address of the device's where scalars are there.
#[repr(transparent)]
pub struct Argument<T>(*const T);

impl<T> Clone for Argument<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Argument<T> {}

impl<T> Argument<T> {
    /// The same address, to something of another type.
    pub fn cast<U>(self) -> Argument<U> {
        Argument(self.0.cast())
    }
}

impl<T: Plain> Argument<T> {
    fn get(self) -> Result<T> {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not NULL, so valid for a read by the API's contract.
        Ok(unsafe { self.0.read_unaligned() })
    }
}

/// A pointer of the caller's to one `T` that the function writes. As [`Argument`].
#[repr(transparent)]
pub struct Answer<T>(*mut T);

impl<T> Answer<T> {
    /// Whether it is NULL.
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// The same address, to something of another type.
    pub fn cast<U>(self) -> Answer<U> {
        Answer(self.0.cast())
    }

    /// Writes a value to the host's memory; `InvalidValue` for NULL.
    pub fn set(self, value: T) -> Result {
        if self.0.is_null() {
            return Err(Status::InvalidValue);
        }
        // SAFETY: not NULL, so valid for a write by the API's contract.
        unsafe { self.0.write_unaligned(value) };
        Ok(())
    }
}

/// What is set for a handle.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The stream of its work.
    pub stream: Name,
    /// Whether scalars and results are in device memory.
    pub on_device: bool,
    /// `cublasMath_t`, which changes nothing.
    pub math: c_int,
    /// `cublasAtomicsMode_t`, which changes nothing.
    pub atomics: c_int,
    /// `cublasSetSmCountTarget`, which changes nothing.
    pub multiprocessors: c_int,
}

/// A handle's object.
pub struct Handle {
    driver: &'static Driver,
    context: Name,
    settings: Mutex<Settings>,
}

struct Handles {
    live: Option<HashMap<usize, Arc<Handle>>>,
    made: usize,
}

static HANDLES: RwLock<Handles> = RwLock::new(Handles {
    live: None,
    made: 0,
});

// Handles look like addresses of this page, which no process has: so one that another library made is not found here.
const FIRST: usize = 0xCB1A_0000_0000_0000;

/// Makes a handle in the current context.
pub fn create() -> Result<RawHandle> {
    let driver = Driver::get()?;
    let context = driver.current_or_primary()?;
    let handle = Handle {
        driver,
        context,
        settings: Mutex::new(Settings {
            stream: Name(null_mut()),
            on_device: false,
            math: 0,
            atomics: 0,
            multiprocessors: 0,
        }),
    };
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    handles.made += 1;
    let name = FIRST + handles.made * 16;
    let live = handles.live.get_or_insert_default();
    live.insert(name, Arc::new(handle));
    Ok(name as RawHandle)
}

/// Ends a handle once its work has ended, as `cublasDestroy` does.
pub fn destroy(name: RawHandle) -> Result {
    let mut handles = HANDLES.write().unwrap_or_else(PoisonError::into_inner);
    let handle = handles
        .live
        .as_mut()
        .and_then(|live| live.remove(&(name as usize)))
        .ok_or(Status::NotInitialized)?;
    drop(handles);
    let stream = handle.settings().stream;
    // The context or the stream may be gone, or the device faulty: then there is nothing to wait for.
    let _ = handle.driver.queue(handle.context, stream, true, || Ok(()));
    Ok(())
}

fn find(name: RawHandle) -> Result<Arc<Handle>> {
    let handles = HANDLES.read().unwrap_or_else(PoisonError::into_inner);
    let found = handles.live.as_ref().and_then(|l| l.get(&(name as usize)));
    found.cloned().ok_or(Status::NotInitialized)
}

/// Runs a function of the API, without a panic of ours reaching the caller.
pub fn enter(f: impl FnOnce() -> Result) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status as c_int,
        Err(_) => Status::InternalError as c_int,
    }
}

/// The same for a function that takes a handle.
pub fn enter_with(name: RawHandle, f: impl FnOnce(&Handle) -> Result) -> c_int {
    enter(|| f(&*find(name)?))
}

impl Handle {
    /// What is set, to be read or changed.
    pub fn settings(&self) -> MutexGuard<'_, Settings> {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A scalar that a call's pointer leads to. `InvalidValue` for NULL.
    pub fn scalar<T: Plain>(&self, pointer: Argument<T>) -> Result<Scalar<T>> {
        let value = || pointer.get().map(Scalar::Host);
        match self.settings().on_device {
            true if pointer.0.is_null() => Err(Status::InvalidValue),
            true => Ok(Scalar::Device(pointer.0 as u64)),
            false => value(),
        }
    }

    /// Queues work in the handle's stream.
    pub fn run(&self, work: impl FnOnce(Memory) -> Outcome + Send + 'static) -> Result {
        self.queue(false, work)
    }

    fn queue(&self, wait: bool, work: impl FnOnce(Memory) -> Outcome + Send + 'static) -> Result {
        let current = self.driver.current();
        if current.is_some_and(|context| context != self.context) {
            return Err(Status::ExecutionFailed);
        }
        let memory = Memory::new(self.driver);
        let stream = self.settings().stream;
        self.driver
            .queue(self.context, stream, wait, move || work(memory))
            .map_err(|_| Status::ExecutionFailed)
    }

    /// Queues work in the handle's stream whose result goes where `result` leads: to device memory in the stream's order, or to the
    /// host before this returns. `InvalidValue` for NULL.
    pub fn answer<T: Plain>(
        &self,
        result: Answer<T>,
        work: impl FnOnce(Memory) -> Outcome<T> + Send + 'static,
    ) -> Result {
        if result.0.is_null() {
            return Err(Status::InvalidValue);
        }
        if self.settings().on_device {
            let address = result.0 as u64;
            return self.run(move |memory| memory.set(address, work(memory)?));
        }
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        self.queue(true, move |memory| {
            // The receiver waits for this work.
            let _ = send.send(work(memory)?);
            Ok(())
        })?;
        let value = receive.try_recv().map_err(|_| Status::ExecutionFailed)?;
        result.set(value)
    }
}
