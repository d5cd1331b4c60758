// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The functions of CUPTI's activity API.
#![allow(non_snake_case)]

use std::ffi::{CStr, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{
    DEVICE_BUFFER_POOL_LIMIT, DEVICE_BUFFER_SIZE, INVALID_KIND, INVALID_OPERATION,
    INVALID_PARAMETER, MAX_LIMIT_REACHED, MULTIPLE_SUBSCRIBERS, NOT_INITIALIZED, NOT_SUPPORTED,
    QUEUE_EMPTY, SIZE_NOT_SUFFICIENT, SUCCESS, Status, UNKNOWN, VERSION,
};

use gpgpu_stand_in::driver::{Driver, Name};

use crate::buffers::{Callbacks, Completed, Requested};
use crate::session::BUFFERS;
use crate::{external, records, session};

type Result<T = ()> = std::result::Result<T, Status>;

fn status(f: impl FnOnce() -> Result) -> Status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        // A panic is a defect of ours. It must not go to the program.
        Err(_) => UNKNOWN,
    }
}

/// Writes a result.
///
/// # Safety
/// The pointer is NULL or valid for a write.
unsafe fn set<T>(to: *mut T, value: T) -> Result {
    if to.is_null() {
        return Err(INVALID_PARAMETER);
    }
    // SAFETY: not NULL, so valid; unaligned because C callers may be careless.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// `cuptiGetVersion`.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetVersion(version: *mut u32) -> Status {
    // SAFETY: promised by the caller.
    status(|| unsafe { set(version, VERSION) })
}

fn name_of(result: Status) -> Option<&'static CStr> {
    Some(match result {
        SUCCESS => c"CUPTI_SUCCESS",
        INVALID_PARAMETER => c"CUPTI_ERROR_INVALID_PARAMETER",
        INVALID_OPERATION => c"CUPTI_ERROR_INVALID_OPERATION",
        SIZE_NOT_SUFFICIENT => c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT",
        MAX_LIMIT_REACHED => c"CUPTI_ERROR_MAX_LIMIT_REACHED",
        NOT_INITIALIZED => c"CUPTI_ERROR_NOT_INITIALIZED",
        QUEUE_EMPTY => c"CUPTI_ERROR_QUEUE_EMPTY",
        INVALID_KIND => c"CUPTI_ERROR_INVALID_KIND",
        NOT_SUPPORTED => c"CUPTI_ERROR_NOT_SUPPORTED",
        MULTIPLE_SUBSCRIBERS => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        UNKNOWN => c"CUPTI_ERROR_UNKNOWN",
        _ => return None,
    })
}

/// `cuptiGetResultString`: the names of the results that this library knows.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetResultString(
    result: Status,
    string: *mut *const c_char,
) -> Status {
    status(|| {
        let name = name_of(result).ok_or(INVALID_PARAMETER)?;
        // SAFETY: promised by the caller.
        unsafe { set(string, name.as_ptr()) }
    })
}

/// `cuptiGetTimestamp`: nanoseconds of the host's real-time clock.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetTimestamp(time: *mut u64) -> Status {
    // SAFETY: promised by the caller.
    status(|| unsafe { set(time, session::now()) })
}

/// `cuptiGetContextId`: the number that records have for a context.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetContextId(context: *mut c_void, id: *mut u32) -> Status {
    status(|| {
        let driver = Driver::get().ok_or(NOT_INITIALIZED)?;
        let of = driver
            .context_id(Name(context))
            .map_err(|_| INVALID_PARAMETER)?;
        // SAFETY: promised by the caller.
        unsafe { set(id, of as u32) }
    })
}

/// `cuptiGetStreamIdEx`: the number that records have for a stream. NULL is the legacy stream of the current context:
/// callers make the stream's context current.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiGetStreamIdEx(
    _context: *mut c_void,
    stream: *mut c_void,
    _per_thread: u8,
    id: *mut u32,
) -> Status {
    status(|| {
        let driver = Driver::get().ok_or(NOT_INITIALIZED)?;
        let of = driver
            .stream_id(Name(stream))
            .map_err(|_| INVALID_PARAMETER)?;
        // SAFETY: promised by the caller.
        unsafe { set(id, of as u32) }
    })
}

/// `cuptiActivityRegisterCallbacks`.
///
/// # Safety
/// The functions are CUPTI's callbacks, and valid until others are registered.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Option<Requested>,
    completed: Option<Completed>,
) -> Status {
    status(|| {
        let (Some(requested), Some(completed)) = (requested, completed) else {
            return Err(INVALID_PARAMETER);
        };
        BUFFERS.register(Callbacks {
            requested,
            completed,
        });
        Ok(())
    })
}

/// `cuptiActivityEnable`.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityEnable(kind: u32) -> Status {
    status(|| session::set(kind, true))
}

/// `cuptiActivityDisable`.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityDisable(kind: u32) -> Status {
    status(|| session::set(kind, false))
}

/// `cuptiActivityFlushAll`: the flag changes nothing, because no record is incomplete.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(_flag: u32) -> Status {
    status(|| {
        if !BUFFERS.is_registered() {
            return Err(INVALID_OPERATION);
        }
        BUFFERS.flush();
        Ok(())
    })
}

/// `cuptiActivityGetNextRecord`.
///
/// # Safety
/// The buffer has this number of bytes of records, of which `*record` is one or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid: usize,
    record: *mut *mut c_void,
) -> Status {
    status(|| {
        if buffer.is_null() || record.is_null() {
            return Err(INVALID_PARAMETER);
        }
        let size_at = |place: usize| {
            let rest = valid.checked_sub(place).filter(|rest| *rest >= 4);
            rest.ok_or(INVALID_KIND)?;
            // SAFETY: these bytes are the kind of a record in the buffer.
            let kind = unsafe { buffer.add(place).cast::<u32>().read_unaligned() };
            let size = records::size(kind).filter(|size| place + size <= valid);
            size.ok_or(INVALID_KIND)
        };
        // SAFETY: promised by the caller.
        let last = unsafe { record.read_unaligned() };
        let next = match last.is_null() {
            true => 0,
            false => {
                let place = last.addr().checked_sub(buffer.addr());
                let place = place.ok_or(INVALID_PARAMETER)?;
                place + size_at(place)?
            }
        };
        if next >= valid {
            return Err(MAX_LIMIT_REACHED);
        }
        size_at(next)?;
        // SAFETY: the record is in the buffer, and the pointer is valid for a write.
        unsafe { set(record, buffer.add(next).cast()) }
    })
}

/// `cuptiActivityGetNumDroppedRecords`: all buffers are the process's own, whatever the context and the stream.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> Status {
    status(|| {
        if dropped.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // SAFETY: promised by the caller.
        unsafe { set(dropped, BUFFERS.take_dropped()) }
    })
}

/// `cuptiActivityPushExternalCorrelationId`.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityPushExternalCorrelationId(kind: u32, id: u64) -> Status {
    status(|| {
        let pushed = external::push(kind, id);
        pushed.then_some(()).ok_or(INVALID_PARAMETER)
    })
}

/// `cuptiActivityPopExternalCorrelationId`.
///
/// # Safety
/// The pointer is NULL or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityPopExternalCorrelationId(
    kind: u32,
    last: *mut u64,
) -> Status {
    status(|| {
        let popped = external::pop(kind).ok_or(INVALID_PARAMETER)?;
        let id = popped.ok_or(QUEUE_EMPTY)?;
        if last.is_null() {
            return Ok(());
        }
        // SAFETY: promised by the caller.
        unsafe { set(last, id) }
    })
}

/// The attributes, by number: their bytes and their values, which change nothing here. The defaults are CUPTI's.
static ATTRIBUTES: Mutex<[(usize, u64); 10]> = Mutex::new([
    (size_of::<usize>(), 3_200_000),
    (size_of::<usize>(), 8 << 20),
    (size_of::<usize>(), 250),
    (size_of::<usize>(), 25_000),
    (size_of::<usize>(), 250),
    (1, 0),
    (size_of::<usize>(), 3),
    (size_of::<usize>(), 3),
    (1, 0),
    (1, 1),
]);

const _: () = assert!(DEVICE_BUFFER_SIZE == 0 && DEVICE_BUFFER_POOL_LIMIT == 2);

/// The place of an attribute's value, if the program's place for it has enough bytes.
///
/// # Safety
/// Pointers are NULL or valid.
unsafe fn attribute(attribute: u32, size: *mut usize, value: *mut c_void) -> Result<usize> {
    if size.is_null() || value.is_null() {
        return Err(INVALID_PARAMETER);
    }
    let index = attribute as usize;
    let attributes = ATTRIBUTES.lock();
    let (needed, _) = attributes.get(index).ok_or(INVALID_PARAMETER)?;
    // SAFETY: not NULL, so valid by the caller's promise.
    match unsafe { size.read_unaligned() } < *needed {
        true => Err(SIZE_NOT_SUFFICIENT),
        false => Ok(index),
    }
}

/// `cuptiActivitySetAttribute`: the value is stored, and changes nothing.
///
/// # Safety
/// Pointers are NULL or valid, the value for `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivitySetAttribute(
    attr: u32,
    size: *mut usize,
    value: *mut c_void,
) -> Status {
    status(|| {
        // SAFETY: promised by the caller.
        let index = unsafe { attribute(attr, size, value) }?;
        let attribute = &mut ATTRIBUTES.lock()[index];
        let mut bytes = [0; 8];
        // SAFETY: the value has the attribute's bytes, of which there are at most 8.
        unsafe { std::ptr::copy(value.cast(), bytes.as_mut_ptr(), attribute.0) };
        attribute.1 = u64::from_le_bytes(bytes);
        Ok(())
    })
}

/// `cuptiActivityGetAttribute`.
///
/// # Safety
/// Pointers are NULL or valid, the value for `*size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetAttribute(
    attr: u32,
    size: *mut usize,
    value: *mut c_void,
) -> Status {
    status(|| {
        // SAFETY: promised by the caller.
        let index = unsafe { attribute(attr, size, value) }?;
        let (bytes, stored) = ATTRIBUTES.lock()[index];
        // SAFETY: the value has room for the attribute's bytes, of which there are at most 8.
        unsafe { std::ptr::copy(stored.to_le_bytes().as_ptr(), value.cast(), bytes) };
        // SAFETY: not NULL, so valid by the caller's promise.
        unsafe { set(size, bytes) }
    })
}
