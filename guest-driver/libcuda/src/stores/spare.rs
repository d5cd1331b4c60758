// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory that the program freed and may soon want again: small allocations are made and freed without leaving
//! the process.
//!
//! What is kept is freed for the program: no call takes its address any more. Like the driver's own, which keeps small
//! allocations in blocks of 2 MiB, it stays reachable for kernels until it is given back.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use gpgpu_client::{Connection, Scope, ffi::Result, thread};
use gpgpu_protocol::api::request;

use super::pointers::{Origin, Range};

/// The largest allocation that is kept: beyond the driver's own blocks, freed memory is gone at once.
const LARGEST: usize = 1 << 20;
/// How much is kept at most, in bytes.
const MOST: usize = 64 << 20;
/// Allocations are as long as the next multiple of this, which is also how CUDA aligns them.
const GRAIN: usize = 512;

/// See the module's page.
#[derive(Debug, Default)]
pub struct Spare {
    count: AtomicUsize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// By context and length.
    by_length: HashMap<(u64, usize), Vec<u64>>,
    /// Lengths, by address.
    lengths: BTreeMap<u64, usize>,
    bytes: usize,
}

/// The length that is asked of the host for `bytes` bytes.
pub fn length_for(bytes: usize) -> usize {
    if (1..=LARGEST).contains(&bytes) {
        bytes.next_multiple_of(GRAIN)
    } else {
        bytes
    }
}

impl Spare {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes memory of a context for `bytes` bytes.
    pub fn take(&self, context: u64, bytes: usize) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let length = length_for(bytes);
        let mut kept = self.kept();
        let address = kept.by_length.get_mut(&(context, length))?.pop()?;
        kept.lengths.remove(&address);
        kept.bytes -= length;
        self.count.store(kept.lengths.len(), Ordering::Relaxed);
        Some(address)
    }

    /// Keeps memory of a context that the program frees; `false` if it is too much.
    fn keep(&self, context: u64, address: u64, bytes: usize) -> bool {
        let length = length_for(bytes);
        let mut kept = self.kept();
        if bytes > LARGEST || kept.bytes + length > MOST {
            return false;
        }
        kept.by_length
            .entry((context, length))
            .or_default()
            .push(address);
        kept.lengths.insert(address, length);
        kept.bytes += length;
        self.count.store(kept.lengths.len(), Ordering::Relaxed);
        true
    }

    /// Whether an address is in memory that the program freed.
    #[inline]
    pub fn holds(&self, address: u64) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let kept = self.kept();
        let before = kept.lengths.range(..=address).next_back();
        before.is_some_and(|(start, length)| address - start < *length as u64)
    }

    /// Takes everything, to be given back.
    fn drain(&self) -> Vec<u64> {
        let kept = std::mem::take(&mut *self.kept());
        self.count.store(0, Ordering::Relaxed);
        kept.lengths.into_keys().collect()
    }

    /// A context is gone, and its memory with it.
    pub fn forget_context(&self, context: u64) {
        let mut kept = self.kept();
        let gone: Vec<_> = kept
            .by_length
            .extract_if(|(of, _), _| *of == context)
            .collect();
        for ((_, length), addresses) in gone {
            for address in addresses {
                kept.lengths.remove(&address);
                kept.bytes -= length;
            }
        }
        self.count.store(kept.lengths.len(), Ordering::Relaxed);
    }

    /// Frees memory for the program, once nothing of its context uses it any more, and keeps it if that makes sense; `false`
    /// if the host is to wait for that. A memory pool's goes back to its pool.
    ///
    /// # Errors
    ///
    /// What earlier work of the context came to: as natively, memory is freed when nothing uses it any more.
    pub fn free(&self, connection: &Connection, range: &Range) -> Result<bool> {
        let (context, address, bytes) = (range.context, range.start, range.bytes as usize);
        if connection.ring().is_none() || context != thread::current_context() {
            return Ok(false);
        }
        if !connection.is_idle(Scope::All) {
            connection.call(&request::cuCtxSynchronize {})?;
        }
        if range.origin == Origin::Call && self.keep(context, address, bytes) {
            return Ok(true);
        }
        if connection.is_corrupted() {
            return Ok(false);
        }
        connection.post(&request::gpgpuFreeIdle { dptr: address })?;
        Ok(true)
    }

    /// The program uses an address that it may have freed: what the host says of it must be true.
    #[inline]
    pub fn disown(&self, connection: &Connection, address: u64) {
        if self.holds(address) {
            self.give_back(connection);
        }
    }

    /// Gives back everything that was kept, where the program would notice it.
    pub fn give_back(&self, connection: &Connection) {
        for dptr in self.drain() {
            // What the context's end has freed already is no loss.
            let _ = if connection.ring().is_some() {
                connection.post(&request::gpgpuFreeIdle { dptr })
            } else {
                connection.call(&request::cuMemFree_v2 { dptr }).map(drop)
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_freed_is_given_out_again_to_its_context_only() {
        let spare = Spare::default();
        assert_eq!(spare.take(1, 600), None);
        assert!(spare.keep(1, 0x1000, 600));
        assert!(spare.holds(0x1000) && spare.holds(0x13ff) && !spare.holds(0x1400));
        assert_eq!(spare.take(2, 600), None);
        assert_eq!(spare.take(1, 400), None);
        assert_eq!(spare.take(1, 1024), Some(0x1000));
        assert!(!spare.holds(0x1000));
        assert_eq!(spare.take(1, 1024), None);
    }

    #[test]
    fn no_more_is_kept_than_the_limit_and_nothing_of_a_context_that_is_gone() {
        let spare = Spare::default();
        assert!(!spare.keep(1, 0, LARGEST + 1));
        let mut kept = 0;
        while spare.keep(1 + kept % 2, kept << 20, LARGEST) {
            kept += 1;
        }
        assert_eq!(kept as usize, MOST / LARGEST);
        spare.forget_context(1);
        assert_eq!(spare.take(1, LARGEST), None);
        assert!(spare.keep(3, 1 << 40, LARGEST));
        assert_eq!(spare.drain().len(), MOST / LARGEST / 2 + 1);
        assert_eq!(spare.take(2, LARGEST), None);
    }
}
