// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Records that wait for the program's buffers.

use std::sync::atomic::{AtomicU64, Ordering};

use gpgpu_locks::Mutex;

use crate::layouts::{Record, size_of_kind};

/// The bytes with which a thread delivers the records without a flush.
pub const ENOUGH: usize = 1 << 20;
/// The maximum bytes that wait. Further records are lost.
const MOST: usize = 256 << 20;

/// Records, one behind the other, in words of 8 bytes.
#[derive(Debug, Default)]
pub struct Records(Vec<u64>);

impl Records {
    /// No records.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Appends a record.
    pub fn push<R: Record>(&mut self, record: &R) {
        // SAFETY: a record has no padding, its size is a multiple of 8, and a word has no invalid value. The record may
        // be aligned to less than a word, for which reason the words are read as bytes.
        unsafe {
            let from = (&raw const *record).cast::<u64>();
            for word in 0..size_of::<R>() / 8 {
                self.0.push(from.add(word).read_unaligned());
            }
        }
    }

    /// Their bytes.
    pub fn bytes(&self) -> usize {
        self.0.len() * 8
    }

    /// The records, each as its words.
    pub fn iter(&self) -> impl Iterator<Item = &[u64]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let kind = *rest.first()? as u32;
            let words = size_of_kind(kind)? / 8;
            let (record, behind) = rest.split_at_checked(words)?;
            rest = behind;
            Some(record)
        })
    }
}

/// The queue of a process, which all its threads fill.
#[derive(Debug)]
pub struct Queue {
    records: Mutex<Records>,
    dropped: AtomicU64,
}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            records: Mutex::new(Records::new()),
            dropped: AtomicU64::new(0),
        }
    }

    /// Appends records by a function. Returns whether enough wait for a delivery.
    #[inline]
    pub fn add(&self, fill: impl FnOnce(&mut Records)) -> bool {
        let mut records = self.records.lock();
        if records.bytes() >= MOST {
            drop(records);
            let mut lost = Records::new();
            fill(&mut lost);
            self.drop(lost.iter().count() as u64);
            return true;
        }
        fill(&mut records);
        records.bytes() >= ENOUGH
    }

    /// Appends a batch, which is of any size.
    pub fn append(&self, batch: &Records) {
        self.records.lock().0.extend_from_slice(&batch.0);
    }

    /// Takes all records.
    pub fn take(&self) -> Records {
        std::mem::take(&mut self.records.lock())
    }

    /// Counts records that were lost.
    pub fn drop(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// The number of records that were lost since the last call.
    pub fn take_dropped(&self) -> u64 {
        self.dropped.swap(0, Ordering::Relaxed)
    }
}
