// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's CUPTI: the functions of its activity API that a worker calls, from the operator's own copy.

use std::{
    ffi::{c_char, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_protocol::{
    cuda::{CUcontext, CUstream},
    cupti::{CUSTOM0, SUCCESS, Status},
};

use super::library::{Library, Missing};

/// Whether the operator permits traces.
static IS_PERMITTED: AtomicBool = AtomicBool::new(false);

/// Lets the client of this process trace its work. Without this call CUPTI is not opened.
pub fn permit() {
    IS_PERMITTED.store(true, Ordering::Release);
}

/// CUPTI's request for a buffer: its address, its size, and the maximum number of records (0 for no maximum).
pub type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// CUPTI returns a buffer: context, stream, address, size and the size of its records.
pub type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

macro_rules! functions {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:ident($($arg:ty),*);)*) => {
        /// The functions, by their addresses.
        #[derive(Debug)]
        pub struct Cupti {
            $($field: unsafe extern "C" fn($($arg),*) -> Status,)*
        }

        impl Cupti {
            /// Opens the operator's copy at the first use.
            ///
            /// # Errors
            ///
            /// The reason why there is none, which was logged.
            pub fn open() -> Result<&'static Self, Missing> {
                static FOUND: OnceLock<Result<Cupti, Missing>> = OnceLock::new();
                let find = || {
                    if !IS_PERMITTED.load(Ordering::Acquire) {
                        tracing::info!("A program wants to trace its work, which --libraries-traces=false forbids");
                        return Err(Missing::Library(Library::Cupti));
                    }
                    Ok(Self {$(
                        // SAFETY: every version of the library has the function with this type.
                        $field: unsafe {
                            std::mem::transmute::<*const c_void, unsafe extern "C" fn($($arg),*) -> Status>(
                                Library::Cupti.symbol(stringify!($name))?,
                            )
                        },
                    )*})
                };
                FOUND.get_or_init(find).as_ref().map_err(|missing| *missing)
            }
        }
    };
}

functions! {
    /// The version of the interface.
    version = cuptiGetVersion(*mut u32);
    /// The clock of records.
    timestamp = cuptiGetTimestamp(*mut u64);
    /// The functions for buffers.
    register = cuptiActivityRegisterCallbacks(Requested, Completed);
    /// A limit of CUPTI's own memory.
    set_attribute = cuptiActivitySetAttribute(u32, *mut usize, *mut c_void);
    /// Begins records of a kind.
    enable = cuptiActivityEnable(u32);
    /// Ends them.
    disable = cuptiActivityDisable(u32);
    /// Returns buffers.
    flush = cuptiActivityFlushAll(u32);
    /// The next record of a buffer.
    next = cuptiActivityGetNextRecord(*mut u8, usize, *mut *mut c_void);
    /// The number of records that were lost since the last query.
    dropped = cuptiActivityGetNumDroppedRecords(*mut c_void, u32, *mut usize);
    /// Gives this thread's calls a number.
    push = cuptiActivityPushExternalCorrelationId(u32, u64);
    /// Ends that.
    pop = cuptiActivityPopExternalCorrelationId(u32, *mut u64);
    /// A number for a context.
    context = cuptiGetContextId(CUcontext, *mut u32);
    /// A number for a stream of a context.
    stream = cuptiGetStreamIdEx(CUcontext, CUstream, u8, *mut u32);
    /// The name of a status.
    name = cuptiGetResultString(Status, *mut *const c_char);
}

fn check(status: Status) -> Result<(), Status> {
    match status {
        SUCCESS => Ok(()),
        status => Err(status),
    }
}

impl Cupti {
    /// `CUPTI_API_VERSION` of the library; 0 if it does not report one.
    pub fn version(&self) -> u32 {
        let mut version = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { (self.version)(&mut version) };
        version
    }

    /// The time of the clock that stamps records, in nanoseconds.
    ///
    /// # Errors
    ///
    /// CUPTI's status.
    pub fn timestamp(&self) -> Result<u64, Status> {
        let mut now = 0;
        // SAFETY: as above.
        check(unsafe { (self.timestamp)(&mut now) })?;
        Ok(now)
    }

    /// Sets the functions that give and take buffers.
    ///
    /// # Errors
    ///
    /// CUPTI's status.
    pub fn register(&self, requested: Requested, completed: Completed) -> Result<(), Status> {
        // SAFETY: both functions live as long as the process.
        check(unsafe { (self.register)(requested, completed) })
    }

    /// Sets an attribute whose value is a size.
    ///
    /// # Errors
    ///
    /// CUPTI's status.
    pub fn set_size(&self, attribute: u32, mut value: usize) -> Result<(), Status> {
        let mut bytes = size_of::<usize>();
        // SAFETY: the pointers are to values that live across the call.
        check(unsafe { (self.set_attribute)(attribute, &mut bytes, (&raw mut value).cast()) })
    }

    /// Begins or ends records of a kind.
    ///
    /// # Errors
    ///
    /// CUPTI's status.
    pub fn set_enabled(&self, kind: u32, is_enabled: bool) -> Result<(), Status> {
        // SAFETY: no pointers.
        check(unsafe {
            match is_enabled {
                true => (self.enable)(kind),
                false => (self.disable)(kind),
            }
        })
    }

    /// Makes CUPTI return its buffers.
    ///
    /// # Errors
    ///
    /// CUPTI's status.
    pub fn flush(&self) -> Result<(), Status> {
        // SAFETY: no pointers.
        check(unsafe { (self.flush)(0) })
    }

    /// The record behind `record`, or the first one for NULL; `None` at the end.
    ///
    /// # Safety
    ///
    /// `buffer` is one that CUPTI has returned with so many bytes of records, and `record` is NULL or one of them.
    pub unsafe fn next(
        &self,
        buffer: *mut u8,
        bytes: usize,
        record: *mut c_void,
    ) -> Option<*mut c_void> {
        let mut at = record;
        // SAFETY: promised by the caller; the pointer is to a value that lives across the call.
        let status = unsafe { (self.next)(buffer, bytes, &mut at) };
        (status == SUCCESS && !at.is_null()).then_some(at)
    }

    /// The number of records that CUPTI lost since the last query.
    pub fn dropped(&self) -> u64 {
        let mut dropped = 0;
        // SAFETY: as above; without a context it means all.
        let status = unsafe { (self.dropped)(std::ptr::null_mut(), 0, &mut dropped) };
        if status == SUCCESS { dropped as u64 } else { 0 }
    }

    /// Gives this thread's calls a number, until [`Cupti::pop`].
    pub fn push(&self, number: u64) {
        // SAFETY: no pointers.
        unsafe { (self.push)(CUSTOM0, number) };
    }

    /// Ends the number of the last [`Cupti::push`].
    pub fn pop(&self) {
        let mut number = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        unsafe { (self.pop)(CUSTOM0, &mut number) };
    }

    /// The numbers of a context and of a stream in it, as records have them.
    ///
    /// # Errors
    ///
    /// CUPTI's status.
    pub fn numbers(&self, context: CUcontext, stream: CUstream) -> Result<(u32, u32), Status> {
        let (mut of_context, mut of_stream) = (0, 0);
        // SAFETY: the handles are the driver's and live; the pointers are to values that live across the call. The
        // legacy default stream is NULL.
        unsafe {
            check((self.context)(context, &mut of_context))?;
            check((self.stream)(context, stream, 0, &mut of_stream))?;
        }
        Ok((of_context, of_stream))
    }

    /// A status as text.
    pub fn text(&self, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: as above; the library's strings are static.
        unsafe {
            match (self.name)(status, &mut text) {
                SUCCESS if !text.is_null() => std::ffi::CStr::from_ptr(text)
                    .to_string_lossy()
                    .into_owned(),
                _ => format!("status {status}"),
            }
        }
    }
}
