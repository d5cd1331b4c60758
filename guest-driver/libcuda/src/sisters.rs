// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The private interface for libcuda's sister libraries ([`gpgpu_client::sister`]).

use std::ffi::c_void;

use gpgpu_client::{
    sister::{Entry, LONGEST, Read, VERSION},
    trace::TRACE,
};
use gpgpu_protocol::{
    api::{Operation, Property, Request, object_id_of, operation, request as api_request},
    codec::Reader,
    cuda::*,
};
use gpgpu_trace::{LIBRARY, Trace, Traced};

use crate::{
    client::{self, Client, client},
    context,
    ffi::{Result, end, enter},
    graph::library,
    launch, library_variables, managed, thread,
};

static ENTRY: Entry = Entry {
    version: VERSION,
    bytes: size_of::<Entry>() as u32,
    context: current,
    new_id,
    stream,
    post,
    call,
    has,
    sees_all,
    call_for,
    initialise,
    ask_host,
};

/// Returns the switch of traced calls, which is only for this project's own libraries.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_gpgpu_trace() -> *const Trace {
    &TRACE
}

/// Returns the table of functions, which is only for this project's own libraries.
#[unsafe(no_mangle)]
pub extern "C" fn virtio_gpgpu_sisters() -> *const Entry {
    &ENTRY
}

unsafe extern "C" fn current(to: *mut u64) -> CUresult {
    enter("the current context", || {
        client::initialise()?;
        let client = client()?;
        if gpgpu_client::thread::current_context() == 0 {
            // The runtime inside of NVIDIA's libraries does the same.
            gpgpu_client::thread::set_context(context::retain_primary(0)?);
        }
        if !thread::has_context(client) {
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        // SAFETY: the sister gives a pointer to a value of its own.
        unsafe { *to = gpgpu_client::thread::current_context() };
        Ok(())
    })
}

unsafe extern "C" fn initialise() -> CUresult {
    enter("initialisation", client::initialise)
}

unsafe extern "C" fn new_id(kind: u8, to: *mut u64) -> CUresult {
    enter("an id", || {
        let serial = client()?.new_serial();
        // SAFETY: as above.
        unsafe { *to = object_id_of(kind, serial) };
        Ok(())
    })
}

unsafe extern "C" fn stream(stream: CUstream, to: *mut u64) -> CUresult {
    enter("a stream", || {
        let client = client()?;
        let id = thread::stream_id(client, stream as u64)?;
        if !client.objects.knows_stream(id) {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        // SAFETY: as above.
        unsafe { *to = id };
        Ok(())
    })
}

unsafe extern "C" fn has(op: u16) -> CUresult {
    enter("whether the host has an operation", || {
        let operation = operation(op).ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
        client()?.require(operation)
    })
}

unsafe extern "C" fn sees_all() -> CUresult {
    enter("whether all devices are seen", || {
        match client()?.sees_all {
            true => Ok(()),
            false => Err(CUDA_ERROR_INVALID_DEVICE),
        }
    })
}

/// The operation of a sister, and its arguments.
///
/// # Safety
///
/// The address has this many bytes until the sister's call returns.
unsafe fn request<'a>(
    op: u16,
    arguments: *const u8,
    bytes: usize,
) -> Result<(&'static Operation, &'a [u8])> {
    let operation = operation(op).ok_or(CUDA_ERROR_NOT_SUPPORTED)?;
    if bytes == 0 {
        return Ok((operation, &[]));
    }
    // SAFETY: promised by the caller.
    Ok((operation, unsafe {
        std::slice::from_raw_parts(arguments, bytes)
    }))
}

/// Whether a call is sent as data beside the stream. An older host has no such calls, but most replies are short.
fn is_long(client: &Client, arguments: &[u8], most: usize) -> bool {
    arguments.len().max(most) > LONGEST && client.has(api_request::gpgpuLongCall::OP)
}

/// Begins the call of a library's function that gives work, if calls are traced.
fn traced(op: u16) -> Option<Traced> {
    if !TRACE.is_active() {
        return None;
    }
    let work = operation(op).filter(|operation| operation.is(Property::Work))?;
    Traced::begin(&TRACE, LIBRARY, work.name, ())
}

unsafe extern "C" fn post(op: u16, arguments: *const u8, bytes: usize) -> CUresult {
    let traced = traced(op);
    let code = enter("a library's request", || {
        // SAFETY: the sister's bytes live across the call.
        let (operation, arguments) = unsafe { request(op, arguments, bytes) }?;
        let client = client()?;
        library_variables::send(client);
        if library::record(client, operation, arguments, None)? {
            return Ok(());
        }
        managed::before_library(operation, arguments);
        if is_long(client, arguments, 0) {
            client.call_long(operation, arguments, LONGEST, |reply| failure(op, reply))??;
        } else {
            client.post_written(operation, arguments)?;
        }
        block(client, operation)
    });
    end(traced, code)
}

/// Waits for the work of a call if the program wants launches to block.
fn block(client: &Client, operation: &Operation) -> Result {
    if operation.is(Property::Work) && launch::is_blocking() {
        client.call(&api_request::cuCtxSynchronize {})?;
    }
    Ok(())
}

/// The failure that a reply of a library's function reports, as a code: nobody reads the reply of a post.
fn failure(op: u16, reply: &[u8]) -> Result {
    let status: i32 = Reader::new(reply).get().map_err(|_| CUDA_ERROR_UNKNOWN)?;
    match gpgpu_protocol::libraries::function(op) {
        Some((library, _)) if status != 0 => Err(library.statuses().as_code(status as u32)),
        _ => Ok(()),
    }
}

/// Hands a reply over to a sister.
fn reader(read: Read, to: *mut c_void) -> impl FnMut(&[u8]) {
    move |reply| {
        // SAFETY: the sister's function takes so many bytes, and the pointer that came with it.
        unsafe { read(to, reply.as_ptr(), reply.len()) }
    }
}

unsafe extern "C" fn call(
    op: u16,
    arguments: *const u8,
    bytes: usize,
    read: Read,
    to: *mut c_void,
) -> CUresult {
    // SAFETY: promised by the caller.
    unsafe { call_for(op, arguments, bytes, 0, read, to) }
}

unsafe extern "C" fn call_for(
    op: u16,
    arguments: *const u8,
    bytes: usize,
    most: usize,
    read: Read,
    to: *mut c_void,
) -> CUresult {
    let traced = traced(op);
    let code = enter("a library's call", || {
        // SAFETY: the sister's bytes live across the call.
        let (operation, arguments) = unsafe { request(op, arguments, bytes) }?;
        let client = client()?;
        library_variables::send(client);
        let mut read = reader(read, to);
        if library::record(client, operation, arguments, Some(&mut read))? {
            return Ok(());
        }
        managed::before_library(operation, arguments);
        if is_long(client, arguments, most) {
            client.call_long(operation, arguments, most.max(LONGEST), read)?;
        } else {
            client.call_written(operation, arguments, read)?;
        }
        block(client, operation)
    });
    end(traced, code)
}

unsafe extern "C" fn ask_host(
    op: u16,
    arguments: *const u8,
    bytes: usize,
    read: Read,
    to: *mut c_void,
) -> CUresult {
    enter("a question about the host", || {
        // SAFETY: the sister's bytes live across the call.
        let (operation, arguments) = unsafe { request(op, arguments, bytes) }?;
        client::ask_host(|client| client.call_written(operation, arguments, reader(read, to)))
    })
}
