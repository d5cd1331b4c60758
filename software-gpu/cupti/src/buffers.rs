// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's buffers: records are written to the current one, and full ones are delivered in order.
//!
//! No lock is held while a callback of the program's runs. A callback may call the driver, and so make records; a record
//! that then does not fit the current buffer is dropped.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr::null_mut;

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::cupti::ALIGNMENT;

/// The program's function that gives a buffer.
pub type Requested =
    unsafe extern "C" fn(buffer: *mut *mut u8, size: *mut usize, max_records: *mut usize);
/// The program's function that takes a buffer back.
pub type Completed = unsafe extern "C" fn(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    size: usize,
    valid: usize,
);

/// Both functions.
#[derive(Debug, Clone, Copy)]
pub struct Callbacks {
    /// Gives a buffer.
    pub requested: Requested,
    /// Takes it back.
    pub completed: Completed,
}

/// A buffer of the program's.
struct Buffer {
    start: *mut u8,
    size: usize,
    /// The most records, or 0 for as many as fit.
    most: usize,
    records: usize,
    valid: usize,
    completed: Completed,
}

// SAFETY: the program lends its memory until the buffer is delivered, to whichever thread.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Asks the program for a buffer.
    fn request(callbacks: Callbacks) -> Option<Self> {
        let (mut start, mut size, mut most) = (null_mut(), 0, 0);
        // SAFETY: the program's function, and pointers that are valid meanwhile.
        in_callback(|| unsafe { (callbacks.requested)(&mut start, &mut size, &mut most) });
        if start.is_null() {
            return None;
        }
        Some(Self {
            start,
            size,
            most,
            records: 0,
            valid: 0,
            completed: callbacks.completed,
        })
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.start.addr().is_multiple_of(ALIGNMENT)
            && self.size - self.valid >= bytes
            && (self.most == 0 || self.records < self.most)
    }

    /// Appends a record, for which there is room.
    fn put<T: Copy>(&mut self, record: &T) {
        // SAFETY: there is room, and the program does not use the buffer before it is delivered.
        unsafe {
            self.start
                .add(self.valid)
                .cast::<T>()
                .write_unaligned(*record)
        };
        self.valid += size_of::<T>().next_multiple_of(ALIGNMENT);
        self.records += 1;
    }

    /// Gives it back to the program.
    fn deliver(self) {
        // SAFETY: the program's function, with the buffer that it has lent.
        in_callback(|| unsafe {
            (self.completed)(null_mut(), 0, self.start, self.size, self.valid);
        });
    }
}

thread_local! {
    static IN_CALLBACK: Cell<bool> = const { Cell::new(false) };
}

fn in_callback(f: impl FnOnce()) {
    let before = IN_CALLBACK.try_with(|of| of.replace(true)).unwrap_or(true);
    f();
    let _ = IN_CALLBACK.try_with(|of| of.set(before));
}

fn is_in_callback() -> bool {
    IN_CALLBACK.try_with(Cell::get).unwrap_or(true)
}

struct State {
    callbacks: Option<Callbacks>,
    current: Option<Buffer>,
    /// Empty ones: several threads have asked at once.
    spare: Vec<Buffer>,
    full: VecDeque<Buffer>,
    /// A thread is in the program's function that takes buffers.
    is_delivering: bool,
    dropped: usize,
}

/// All buffers.
pub struct Buffers {
    state: Mutex<State>,
    delivered: Condvar,
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new()
    }
}

impl Buffers {
    /// None yet.
    pub const fn new() -> Self {
        Self {
            state: Mutex::new(State {
                callbacks: None,
                current: None,
                spare: Vec::new(),
                full: VecDeque::new(),
                is_delivering: false,
                dropped: 0,
            }),
            delivered: Condvar::new(),
        }
    }

    /// Sets the program's functions.
    pub fn register(&self, callbacks: Callbacks) {
        self.state.lock().callbacks = Some(callbacks);
    }

    /// Whether there are functions of the program's.
    pub fn is_registered(&self) -> bool {
        self.state.lock().callbacks.is_some()
    }

    /// The number of records that found no room since the last call of this function.
    pub fn take_dropped(&self) -> usize {
        std::mem::take(&mut self.state.lock().dropped)
    }

    /// Adds a record: a structure of [`gpgpu_protocol::cupti`].
    pub fn put<T: Copy>(&self, record: &T) {
        let bytes = size_of::<T>().next_multiple_of(ALIGNMENT);
        while let Some(callbacks) = self.try_put(record, bytes) {
            let buffer = callbacks.and_then(Buffer::request);
            let mut state = self.state.lock();
            match buffer {
                Some(buffer) if buffer.has_room(bytes) => state.spare.push(buffer),
                other => {
                    // A buffer that is too small goes back.
                    state.full.extend(other);
                    state.dropped += 1;
                    break;
                }
            }
        }
        self.deliver();
    }

    /// Adds a record, if a buffer has room. Otherwise it returns the program's functions, if this thread may call them.
    fn try_put<T: Copy>(&self, record: &T, bytes: usize) -> Option<Option<Callbacks>> {
        let mut state = self.state.lock();
        loop {
            let Some(mut current) = state.current.take().or_else(|| state.spare.pop()) else {
                return Some(state.callbacks.filter(|_| !is_in_callback()));
            };
            if current.has_room(bytes) {
                current.put(record);
                state.current = Some(current);
                return None;
            }
            state.full.push_back(current);
        }
    }

    /// Delivers full buffers, if no other thread does.
    fn deliver(&self) {
        if is_in_callback() {
            return;
        }
        let mut state = self.state.lock();
        while !state.is_delivering
            && let Some(buffer) = state.full.pop_front()
        {
            state.is_delivering = true;
            drop(state);
            buffer.deliver();
            state = self.state.lock();
            state.is_delivering = false;
            self.delivered.notify_all();
        }
    }

    /// Delivers all buffers with all records that were added before, and waits until other threads have delivered
    /// theirs.
    pub fn flush(&self) {
        let mut state = self.state.lock();
        let all: Vec<_> = state.current.take().into_iter().collect();
        state.full.extend(all);
        let spare = std::mem::take(&mut state.spare);
        state.full.extend(spare);
        drop(state);
        if is_in_callback() {
            // The buffers wait for the thread's next record or flush.
            return;
        }
        loop {
            self.deliver();
            let state = self.state.lock();
            if !state.is_delivering && state.full.is_empty() {
                return;
            }
            let waits = |state: &mut State| state.is_delivering;
            drop(self.delivered.wait_while(state, waits));
        }
    }
}
