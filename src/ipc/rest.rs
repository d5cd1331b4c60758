// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The two words of shared memory by which a device process brings a worker to rest. Both processes map them.
//!
//! Messages cannot do this, because a worker reads messages between commands, and a command may wait for work that a
//! rest delays.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};

use gpgpu_protocol::futex;

/// The size of the memory of the words: a page behind the staging area.
pub const REST_BYTES: usize = 4096;

/// The words. Each side accepts any value, because the other side may be compromised.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Rest {
    /// The number of the rest that the device process requests, or 0.
    wanted: AtomicU32,
    /// The last rest that the worker has reached.
    reached: AtomicU32,
}

const _: () = assert!(size_of::<Rest>() <= REST_BYTES);

impl Rest {
    /// The words at the start of a page.
    ///
    /// # Safety
    /// The page is mapped for as long as the reference is used, for reading and writing.
    pub unsafe fn at<'a>(page: *mut u8) -> &'a Self {
        // SAFETY: two atomic words fit into a page and are aligned at its start, any bytes are values of theirs, and
        // the caller says that they stay.
        unsafe { &*page.cast::<Self>() }
    }

    /// For the device process: requests the rest with this `number`; with 0, the worker continues.
    pub fn want(&self, number: u32) {
        self.wanted.store(number, Release);
        futex::wake(&self.wanted);
    }

    /// For the device process: whether the worker rests.
    pub fn is_reached(&self, number: u32) -> bool {
        self.reached.load(Acquire) == number
    }

    /// For the worker: the number of the requested rest, or 0.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Acquire)
    }

    /// For the worker: sleeps while `number` is requested. May return early.
    pub fn sleep(&self, number: u32) {
        futex::wait(&self.wanted, number);
    }

    /// For the worker: reports that it rests.
    pub fn reach(&self, number: u32) {
        self.reached.store(number, Release);
    }
}
