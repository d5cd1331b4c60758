// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's buffers of records.

use std::{
    ffi::c_void,
    ptr::null_mut,
    sync::atomic::{AtomicBool, Ordering},
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cupti::{
    INVALID_KIND, INVALID_OPERATION, INVALID_PARAMETER, MAX_LIMIT_REACHED, Status,
};

use crate::{
    enter, enter_here, give, layouts::size_of_kind, profiler::profiler, queue::Queue, turn::Turn,
};

/// `CUpti_BuffersCallbackRequestFunc`.
pub type Request = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// `CUpti_BuffersCallbackCompleteFunc`.
pub type Complete = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// A buffer of the program.
#[derive(Debug)]
struct Buffer {
    start: *mut u8,
    size: usize,
    used: usize,
    records: usize,
    /// The maximum number of records, or 0.
    most: usize,
}

// SAFETY: the program has given the buffer away, and one thread at a time writes to it.
unsafe impl Send for Buffer {}

impl Buffer {
    fn request(request: Request) -> Option<Self> {
        let (mut start, mut size, mut most) = (null_mut(), 0, 0);
        // SAFETY: the pointers are to values that live across the call.
        unsafe { request(&mut start, &mut size, &mut most) };
        (!start.is_null()).then_some(Self {
            start,
            size,
            used: 0,
            records: 0,
            most,
        })
    }

    fn fits(&self, bytes: usize) -> bool {
        self.size - self.used >= bytes
    }

    fn write(&mut self, record: &[u64]) {
        let bytes = size_of_val(record);
        // SAFETY: the program has given so many bytes, and the record fits. The two do not overlap.
        unsafe {
            let to = self.start.add(self.used);
            record
                .as_ptr()
                .cast::<u8>()
                .copy_to_nonoverlapping(to, bytes);
        }
        self.used += bytes;
        self.records += 1;
    }

    fn complete(self, complete: Complete) {
        // SAFETY: the buffer was the program's, and is no longer used here.
        unsafe { complete(null_mut(), 0, self.start, self.size, self.used) };
    }
}

/// When records are delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Many records wait. Full buffers are completed, unless another thread delivers records already.
    Enough,
    /// At a flush: each buffer with records is completed.
    Flush,
    /// At the end: each buffer is completed.
    End,
}

/// The program's functions, and its current buffer.
#[derive(Debug)]
pub struct Buffers {
    functions: Mutex<Option<(Request, Complete)>>,
    current: Mutex<Option<Buffer>>,
    /// Whether there is a current buffer, for threads without the turn.
    has_current: AtomicBool,
    turn: Turn,
}

impl Buffers {
    /// No functions, and no buffer.
    pub const fn new() -> Self {
        Self {
            functions: Mutex::new(None),
            current: Mutex::new(None),
            has_current: AtomicBool::new(false),
            turn: Turn::new(),
        }
    }

    /// Sets the program's functions.
    pub fn register(&self, functions: Option<(Request, Complete)>) {
        *self.functions.lock() = functions;
    }

    /// Whether the program has given its functions.
    pub fn is_registered(&self) -> bool {
        self.functions.lock().is_some()
    }

    /// Requests a buffer if there is none. A profiler can take a request for the sign that there are records, and
    /// flushes only if there was one.
    #[inline]
    pub fn prepare(&self) {
        if !self.has_current.load(Ordering::Relaxed) {
            self.request();
        }
    }

    #[cold]
    fn request(&self) {
        // Another thread with the turn requests one itself.
        let Some(_turn) = self.turn.take() else {
            return;
        };
        let Some((request, _)) = *self.functions.lock() else {
            return;
        };
        let current = self.current.lock().take();
        self.set_current(current.or_else(|| Buffer::request(request)));
    }

    fn set_current(&self, buffer: Option<Buffer>) {
        self.has_current.store(buffer.is_some(), Ordering::Relaxed);
        *self.current.lock() = buffer;
    }

    /// Writes the queue's records to the program's buffers. A callback that calls it gets nothing: its thread is about
    /// to deliver the records.
    pub fn deliver(&self, queue: &Queue, when: When) {
        let turn = match when {
            When::Enough => self.turn.take(),
            When::Flush | When::End => self.turn.wait(),
        };
        // Only the thread with the turn is here, with no lock.
        let Some(_turn) = turn else { return };
        let Some((request, complete)) = *self.functions.lock() else {
            return;
        };
        let mut current = self.current.lock().take();
        let mut is_declined = false;
        for record in queue.take().iter() {
            let bytes = size_of_val(record);
            let full = current.take_if(|buffer| buffer.used > 0 && !buffer.fits(bytes));
            if let Some(full) = full {
                full.complete(complete);
            }
            if current.is_none() && !is_declined {
                current = Buffer::request(request);
                is_declined = current.is_none();
            }
            match current.as_mut().filter(|buffer| buffer.fits(bytes)) {
                Some(buffer) => buffer.write(record),
                None => queue.drop(1),
            }
            let full =
                current.take_if(|buffer| buffer.records > 0 && buffer.records == buffer.most);
            if let Some(full) = full {
                full.complete(complete);
            }
        }
        let is_over = |buffer: &mut Buffer| match when {
            When::Enough => false,
            When::Flush => buffer.used > 0,
            When::End => true,
        };
        if let Some(buffer) = current.take_if(is_over) {
            buffer.complete(complete);
        }
        self.set_current(current);
    }
}

/// `cuptiActivityRegisterCallbacks`: sets the functions that give and take buffers.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if one is NULL.
///
/// # Safety
///
/// The functions are of these types, and may be called by any thread until `cuptiFinalize`. A buffer that the first one
/// gives is this library's until the second one gets it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterCallbacks(
    funcBufferRequested: Option<Request>,
    funcBufferCompleted: Option<Complete>,
) -> Status {
    enter_here(|| {
        let functions = funcBufferRequested.zip(funcBufferCompleted);
        functions.ok_or(INVALID_PARAMETER)?;
        profiler().buffers.register(functions);
        Ok(())
    })
}

/// `cuptiActivityFlushAll`: fetches the host's records of work that has ended, and completes all buffers with records.
/// The flag is not used, because no record waits for its completion.
///
/// Fails with `CUPTI_ERROR_INVALID_OPERATION` before `cuptiActivityRegisterCallbacks`.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushAll(_flag: u32) -> Status {
    enter_here(|| {
        if !profiler().buffers.is_registered() {
            return Err(INVALID_OPERATION);
        }
        profiler().flush(When::Flush);
        Ok(())
    })
}

/// `cuptiActivityFlush`: like [`cuptiActivityFlushAll`], as CUPTI ignores the context and the stream.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlush(_context: *mut c_void, _stream: u32, flag: u32) -> Status {
    cuptiActivityFlushAll(flag)
}

/// `cuptiActivityFlushPeriod`: accepted. Full buffers are completed when many records wait.
#[unsafe(no_mangle)]
pub extern "C" fn cuptiActivityFlushPeriod(_time: u32) -> Status {
    enter_here(|| Ok(()))
}

/// `cuptiActivityGetNumDroppedRecords`: the number of records that were lost since the last call, because the program
/// gave no buffer, or the host lost them. The context and the stream are ignored: buffers are the process's.
///
/// Fails with `CUPTI_ERROR_INVALID_PARAMETER` if `dropped` is NULL.
///
/// # Safety
///
/// `dropped` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream: u32,
    dropped: *mut usize,
) -> Status {
    enter_here(|| {
        if dropped.is_null() {
            return Err(INVALID_PARAMETER);
        }
        let count = profiler().queue.take_dropped();
        // SAFETY: promised by the caller.
        unsafe { give(dropped, count as usize) }
    })
}

/// `cuptiActivityGetNextRecord`: the record behind `*record` in a buffer, or the first one if that is NULL.
///
/// Fails with `CUPTI_ERROR_MAX_LIMIT_REACHED` if there is no further record, with `CUPTI_ERROR_INVALID_KIND` if one is
/// incomplete or of an unknown kind, and with `CUPTI_ERROR_INVALID_PARAMETER` if a pointer is NULL or the record is not
/// in the buffer.
///
/// # Safety
///
/// `buffer` has this many valid bytes, which `cuptiActivityRegisterCallbacks`' function has got, and `record` is the
/// caller's to read and write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    validBufferSizeBytes: usize,
    record: *mut *mut u8,
) -> Status {
    enter(|| {
        if buffer.is_null() || record.is_null() {
            return Err(INVALID_PARAMETER);
        }
        // The size of the record at a place. There are that many bytes.
        let size_at = |place: usize| {
            let rest = validBufferSizeBytes - place;
            if rest < size_of::<u32>() {
                return Err(INVALID_KIND);
            }
            // SAFETY: the buffer has a kind's bytes there, of any alignment.
            let kind = unsafe { buffer.add(place).cast::<u32>().read_unaligned() };
            let size = size_of_kind(kind).filter(|size| *size <= rest);
            size.ok_or(INVALID_KIND)
        };
        // SAFETY: promised by the caller.
        let last = unsafe { record.read() };
        let place = if last.is_null() {
            0
        } else {
            let place = (last as usize).checked_sub(buffer as usize);
            let place = place.filter(|place| *place < validBufferSizeBytes);
            let place = place.ok_or(INVALID_PARAMETER)?;
            place + size_at(place)?
        };
        if place >= validBufferSizeBytes {
            return Err(MAX_LIMIT_REACHED);
        }
        size_at(place)?;
        // SAFETY: the place is in the buffer.
        unsafe { give(record, buffer.add(place)) }
    })
}

#[cfg(test)]
#[path = "buffers_tests.rs"]
mod tests;
