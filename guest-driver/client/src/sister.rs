// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The interface through which libcuda's sister libraries use libcuda's connection, the only one of the process.
//!
//! libcuda exports [`NAME`], a function that returns an [`Entry`]: a table of C functions. It is private to this
//! project's libraries, and versioned, because libraries of different versions may be in one process.

use std::ffi::{CStr, c_int, c_void};

use gpgpu_protocol::{
    api::{Operation, Request},
    codec::{Reader, Writer},
    cuda::*,
};

use crate::ffi::Result;

/// The exported function, of the type [`Get`].
pub const NAME: &CStr = c"virtio_gpgpu_sisters";

/// The version of [`Entry`]. Fields are only ever appended.
pub const VERSION: u32 = 1;

/// The symbol that libcuda exports.
pub type Get = extern "C" fn() -> *const Entry;

/// libcuda's functions for its sisters.
#[repr(C)]
#[derive(Debug)]
pub struct Entry {
    /// [`VERSION`] of libcuda.
    pub version: u32,
    /// The size of libcuda's own structure, in bytes.
    pub bytes: u32,
    /// Connects the process if necessary, makes a current context if there is none, and returns the context's id.
    pub context: unsafe extern "C" fn(context: *mut u64) -> CUresult,
    /// An id for a new object of a kind.
    pub new_id: unsafe extern "C" fn(kind: u8, id: *mut u64) -> CUresult,
    /// The id of a stream handle.
    pub stream: unsafe extern "C" fn(stream: CUstream, id: *mut u64) -> CUresult,
    /// Sends a request that needs no answer: the operation's number, its encoded arguments, and their length.
    pub post: unsafe extern "C" fn(op: u16, arguments: *const u8, bytes: usize) -> CUresult,
    /// Sends a request, and calls `read` with its reply and `to` before it returns. The reply has at most [`LONGEST`]
    /// bytes.
    pub call: unsafe extern "C" fn(
        op: u16,
        arguments: *const u8,
        bytes: usize,
        read: Read,
        to: *mut c_void,
    ) -> CUresult,
    /// `CUDA_SUCCESS` if the host supports an operation, `CUDA_ERROR_NOT_SUPPORTED` if not.
    pub has: unsafe extern "C" fn(op: u16) -> CUresult,
    /// `CUDA_SUCCESS` if the program sees all devices, in the host's order, `CUDA_ERROR_INVALID_DEVICE` if it has
    /// selected some.
    pub sees_all: unsafe extern "C" fn() -> CUresult,
    /// As `call`, for a reply of up to `most` bytes, which may exceed an answer.
    pub call_for: unsafe extern "C" fn(
        op: u16,
        arguments: *const u8,
        bytes: usize,
        most: usize,
        read: Read,
        to: *mut c_void,
    ) -> CUresult,
    /// As `cuInit`.
    pub initialise: unsafe extern "C" fn() -> CUresult,
    /// As `call`, but does not initialise CUDA: for a question about the host.
    pub ask_host: unsafe extern "C" fn(
        op: u16,
        arguments: *const u8,
        bytes: usize,
        read: Read,
        to: *mut c_void,
    ) -> CUresult,
}

/// The maximum size of the arguments or the reply of a library's call in a command, which also has headers. Longer ones
/// are sent as data.
pub const LONGEST: usize = 60 << 10;

/// libcuda, for a sister.
#[derive(Debug, Clone, Copy)]
pub struct Sister(&'static Entry);

impl Sister {
    /// The libcuda of this process; `None` if the process has loaded another libcuda than this project's.
    pub fn find() -> Option<Self> {
        // Loads libcuda if the program has not, as NVIDIA's runtime does.
        Self::open(0)
    }

    /// The same, but also `None` if the process has not loaded any yet.
    pub fn loaded() -> Option<Self> {
        Self::open(libc::RTLD_NOLOAD)
    }

    fn open(flags: c_int) -> Option<Self> {
        // SAFETY: the name is a string, and our libcuda may be loaded at any time.
        let found = unsafe {
            let library = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | flags);
            if library.is_null() {
                return None;
            }
            libc::dlsym(library, NAME.as_ptr())
        };
        if found.is_null() {
            return None;
        }
        // SAFETY: only this project's libcuda has a symbol of this name, and it is of this type in every version.
        let get = unsafe { std::mem::transmute::<*mut c_void, Get>(found) };
        // SAFETY: the table is a static of a library that is never unloaded.
        let entry = unsafe { get().as_ref() }?;
        (entry.version >= VERSION && entry.bytes as usize >= size_of::<Entry>())
            .then_some(Self(entry))
    }

    /// The id of the current context, which is made if there is none.
    ///
    /// # Errors
    ///
    /// As `cuInit` and `cuDevicePrimaryCtxRetain`.
    pub fn context(self) -> Result<u64> {
        let mut context = 0;
        // SAFETY: the pointer is to a value that lives across the call.
        check(unsafe { (self.0.context)(&mut context) })?;
        Ok(context)
    }

    /// Initialises CUDA.
    ///
    /// # Errors
    ///
    /// As `cuInit`.
    pub fn initialise(self) -> Result {
        // SAFETY: no pointers.
        check(unsafe { (self.0.initialise)() })
    }

    /// An id for a new object.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_NOT_INITIALIZED` if CUDA cannot be used.
    pub fn new_id(self, kind: u8) -> Result<u64> {
        let mut id = 0;
        // SAFETY: as above.
        check(unsafe { (self.0.new_id)(kind, &mut id) })?;
        Ok(id)
    }

    /// The id of a stream handle.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such stream.
    pub fn stream(self, stream: u64) -> Result<u64> {
        let mut id = 0;
        // SAFETY: as above; the handle is looked up, not used.
        check(unsafe { (self.0.stream)(stream as CUstream, &mut id) })?;
        Ok(id)
    }

    /// Sends a request that needs no answer; a later call of libcuda reports an error.
    ///
    /// # Errors
    ///
    /// The request could not be sent, or the host does not support the operation.
    pub fn post(self, operation: &Operation, arguments: &[u8]) -> Result {
        // SAFETY: the bytes live across the call.
        check(unsafe { (self.0.post)(operation.op, arguments.as_ptr(), arguments.len()) })
    }

    /// Sends a request and waits for its reply, which `read` decodes.
    ///
    /// # Errors
    ///
    /// The code of an operation that failed without a reply.
    pub fn call<T>(
        self,
        operation: &Operation,
        arguments: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        self.call_for(operation, arguments, 0, read)
    }

    /// The same, for a reply of up to `most` bytes.
    ///
    /// # Errors
    ///
    /// As [`Sister::call`].
    pub fn call_for<T>(
        self,
        operation: &Operation,
        arguments: &[u8],
        most: usize,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let (op, bytes) = (operation.op, arguments.len());
        let arguments = arguments.as_ptr();
        // SAFETY: the bytes live across the call, and the other two are for each other.
        take(read, |read, to| unsafe {
            match most {
                ..=LONGEST => (self.0.call)(op, arguments, bytes, read, to),
                _ => (self.0.call_for)(op, arguments, bytes, most, read, to),
            }
        })
    }

    /// Sends a question about the host and waits for its reply of at most [`LONGEST`] bytes, which `read` decodes. This
    /// does not initialise CUDA: a child that is forked later can use it.
    ///
    /// # Errors
    ///
    /// As [`Sister::call`].
    pub fn ask_host<T>(
        self,
        operation: &Operation,
        arguments: &[u8],
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<T> {
        let (op, bytes) = (operation.op, arguments.len());
        let arguments = arguments.as_ptr();
        // SAFETY: as above.
        take(read, |read, to| unsafe {
            (self.0.ask_host)(op, arguments, bytes, read, to)
        })
    }

    /// Sends a request and waits for its reply.
    ///
    /// # Errors
    ///
    /// As [`Sister::call`]; `CUDA_ERROR_NOT_INITIALIZED` if the process has not initialised CUDA, and in a forked
    /// child.
    pub fn ask<R: Request>(self, request: &R) -> Result<R::Reply> {
        let mut writer = Writer::new();
        request.put(&mut writer);
        let read = |reply: &[u8]| Reader::new(reply).get::<R::Reply>();
        let reply = self.call(R::OPERATION, &writer.into_bytes(), read)?;
        reply.map_err(|_| CUDA_ERROR_UNKNOWN)
    }

    /// Whether the host supports an operation.
    ///
    /// # Errors
    ///
    /// As [`Sister::ask`].
    pub fn has(self, op: u16) -> Result<bool> {
        // SAFETY: no pointers.
        match check(unsafe { (self.0.has)(op) }) {
            Err(CUDA_ERROR_NOT_SUPPORTED) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Whether the program sees all devices, in the host's order.
    ///
    /// # Errors
    ///
    /// As [`Sister::ask`].
    pub fn sees_all(self) -> Result<bool> {
        // SAFETY: no pointers.
        match check(unsafe { (self.0.sees_all)() }) {
            Err(CUDA_ERROR_INVALID_DEVICE) => Ok(false),
            other => other.map(|()| true),
        }
    }
}

/// A function of a sister that gets a reply of so many bytes, for the pointer that comes with it.
pub type Read = unsafe extern "C" fn(to: *mut c_void, reply: *const u8, bytes: usize);

/// Calls a function of libcuda that hands over a reply, and decodes it with `read`.
fn take<T, F: FnOnce(&[u8]) -> T>(
    read: F,
    call: impl FnOnce(Read, *mut c_void) -> CUresult,
) -> Result<T> {
    struct Call<F, T>(Option<F>, Option<T>);

    unsafe extern "C" fn hand<T, F: FnOnce(&[u8]) -> T>(
        to: *mut c_void,
        reply: *const u8,
        bytes: usize,
    ) {
        // SAFETY: libcuda passes the pointer given below, to a value of this type that no other code uses meanwhile.
        let call = unsafe { &mut *to.cast::<Call<F, T>>() };
        if let Some(read) = call.0.take() {
            // SAFETY: libcuda gives so many bytes, which live across the call.
            let reply = unsafe { std::slice::from_raw_parts(reply, bytes) };
            call.1 = Some(read(reply));
        }
    }

    let mut taken = Call::<F, T>(Some(read), None);
    check(call(hand::<T, F>, (&raw mut taken).cast()))?;
    taken.1.ok_or(CUDA_ERROR_UNKNOWN)
}

fn check(code: CUresult) -> Result {
    match code {
        CUDA_SUCCESS => Ok(()),
        code => Err(code),
    }
}
