// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The two words of memory by which a device process brings a worker to rest. Both map them.
//!
//! These are no messages, because a worker reads messages between commands, and a command may wait for work that a rest
//! holds back.

use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Release},
};

use gpgpu_protocol::futex;

/// Bytes of the memory in which the words lie: a page behind the staging area.
pub const REST_BYTES: usize = 4096;

/// The words. Either side may find anything in them: the other may have been taken over.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Rest {
    /// The number of the rest that the device process wants, or 0.
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

    /// The device process: whether the worker is at rest.
    pub fn is_reached(&self, number: u32) -> bool {
        self.reached.load(Acquire) == number
    }

    /// The worker: the number of the rest that is wanted, or 0.
    pub fn wanted(&self) -> u32 {
        self.wanted.load(Acquire)
    }

    /// The worker: sleeps until another one than `number` is wanted; may return before.
    pub fn sleep(&self, number: u32) {
        futex::wait(&self.wanted, number);
    }

    /// The worker: says that it is at rest.
    pub fn reach(&self, number: u32) {
        self.reached.store(number, Release);
    }
}
