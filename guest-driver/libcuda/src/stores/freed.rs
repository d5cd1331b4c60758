// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Device memory that the program has freed and may allocate again soon, so that small allocations are made and freed
//! within the process.
//!
//! Kept memory is free for the program: no call accepts its address any more. Like in the driver itself, which keeps
//! small allocations in blocks of 2 MiB, kernels can access it until it is returned.
//!
//! Memory that was freed in stream order is kept only for that stream, whose next use of it comes after the free. The
//! host gets the free when the memory is returned: later in stream order, or immediately if the stream is idle.

use std::{
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicUsize, Ordering},
};

use gpgpu_client::{Connection, ffi::Result, thread};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::request,
    cuda::{CU_STREAM_PER_THREAD, CUDA_ERROR_NOT_READY},
};

use super::pointers::{Origin, Range};

/// The largest allocation that is kept. Larger ones exceed the driver's own blocks, and are returned immediately.
const LARGEST: usize = 1 << 20;
/// The maximum amount of kept memory in bytes.
const MOST: usize = 64 << 20;
/// The maximum part of that, in bytes, that was freed in stream order. The host counts it as used, and a program can
/// observe this in its pool's attributes.
const MOST_ORDERED: usize = 16 << 20;
/// Allocations are rounded up to this, which is also CUDA's alignment.
const GRAIN: usize = 512;

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Freed {
    count: AtomicUsize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Addresses, by home and by length.
    by_length: HashMap<(Home, usize), Vec<u64>>,
    /// Lengths and homes, by address.
    blocks: BTreeMap<u64, (usize, Home)>,
    bytes: usize,
    /// The part of `bytes` that was freed in stream order.
    ordered: usize,
}

impl Kept {
    fn add(&mut self, home: Home, address: u64, length: usize) {
        let addresses = self.by_length.entry((home, length)).or_default();
        addresses.push(address);
        self.blocks.insert(address, (length, home));
        self.bytes += length;
        self.ordered += home.ordered(length);
    }

    /// Updates the sums after a block was removed from the addresses.
    fn removed(&mut self, home: Home, address: u64, length: usize) {
        self.blocks.remove(&address);
        self.bytes -= length;
        self.ordered -= home.ordered(length);
    }

    /// Takes the memory of the homes for which `is_wanted` holds.
    fn extract(&mut self, is_wanted: impl Fn(&Home) -> bool) -> Vec<(u64, Home)> {
        let taken: Vec<_> = self
            .by_length
            .extract_if(|(home, _), _| is_wanted(home))
            .flat_map(|((home, length), addresses)| {
                addresses
                    .into_iter()
                    .map(move |address| (address, home, length))
            })
            .collect();
        for (address, home, length) in &taken {
            self.removed(*home, *address, *length);
        }
        taken
            .into_iter()
            .map(|(address, home, _)| (address, home))
            .collect()
    }
}

/// The owner that may reuse kept memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Home {
    /// The context of the memory.
    pub context: u64,
    /// The stream in whose order it was freed, if any.
    pub order: Option<Place>,
}

/// A stream's part of a memory pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    stream: u64,
    pool: u64,
}

impl Place {
    /// The place of a stream and a pool, by their ids. The legacy default stream has none: a free in it waits for other
    /// streams, and they wait for the free, so the host has to get it.
    pub fn of(stream: u64, pool: u64) -> Option<Self> {
        (stream > CU_STREAM_PER_THREAD as u64).then_some(Self { stream, pool })
    }
}

impl Home {
    /// The home of memory of `cuMemAlloc` in a context.
    pub fn of_context(context: u64) -> Self {
        Self {
            context,
            order: None,
        }
    }

    /// The part of `length` that counts as freed in stream order: all or none.
    fn ordered(&self, length: usize) -> usize {
        if self.order.is_some() { length } else { 0 }
    }
}

/// The length that is requested from the host for `bytes` bytes.
pub fn length_for(bytes: usize) -> usize {
    if (1..=LARGEST).contains(&bytes) {
        bytes.next_multiple_of(GRAIN)
    } else {
        bytes
    }
}

impl Freed {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock()
    }

    /// Takes memory of this length.
    pub fn take(&self, home: Home, length: usize) -> Option<u64> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.kept();
        let address = kept.by_length.get_mut(&(home, length))?.pop()?;
        kept.removed(home, address, length);
        self.count.store(kept.blocks.len(), Ordering::Relaxed);
        Some(address)
    }

    /// Keeps memory that the program frees; `false` if there would be too much.
    fn keep(&self, home: Home, address: u64, length: usize) -> bool {
        let mut kept = self.kept();
        let ordered = kept.ordered + home.ordered(length);
        if length > LARGEST || kept.bytes + length > MOST || ordered > MOST_ORDERED {
            return false;
        }
        kept.add(home, address, length);
        self.count.store(kept.blocks.len(), Ordering::Relaxed);
        true
    }

    /// Whether an address is in memory that the program has freed.
    #[inline]
    pub fn holds(&self, address: u64) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let kept = self.kept();
        let before = kept.blocks.range(..=address).next_back();
        before.is_some_and(|(start, (length, _))| address - start < *length as u64)
    }

    /// Takes the memory of these homes, to return or forget it.
    fn extract(&self, is_wanted: impl Fn(&Home) -> bool) -> Vec<(u64, Home)> {
        if self.count.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let mut kept = self.kept();
        let taken = kept.extract(is_wanted);
        self.count.store(kept.blocks.len(), Ordering::Relaxed);
        taken
    }

    /// Handles the end of a context, with its memory.
    pub fn forget_context(&self, context: u64) {
        self.extract(|home| home.context == context);
    }

    /// Frees memory for the program, once no work of its context uses it any more, and keeps it if that pays; `false`
    /// if the host has to wait for the work. Memory of a pool goes back to its pool.
    ///
    /// # Errors
    ///
    /// The error of the context's earlier work: as natively, memory is freed when it is no longer in use.
    pub fn free(&self, connection: &Connection, range: &Range) -> Result<bool> {
        let (context, address, bytes) = (range.context, range.start, range.bytes as usize);
        if connection.ring().is_none() || context != thread::current_context() {
            return Ok(false);
        }
        connection.finish_context()?;
        let home = Home::of_context(context);
        if range.origin == Origin::Call && self.keep(home, address, length_for(bytes)) {
            return Ok(true);
        }
        if connection.is_corrupted() {
            return Ok(false);
        }
        connection.post(&request::gpgpuFreeIdle { dptr: address })?;
        Ok(true)
    }

    /// Keeps memory of a pool that the program frees in stream order; `false` if the host has to get the free now.
    pub fn free_in_order(&self, connection: &Connection, range: &Range, place: Place) -> bool {
        let home = Home {
            context: range.context,
            order: Some(place),
        };
        connection.ring().is_some()
            && !connection.is_corrupted()
            && self.keep(home, range.start, range.bytes as usize)
    }

    /// Handles the use of an address that the program may have freed, for which the host's answer must be right. `true`
    /// if memory was returned in stream order.
    #[inline]
    pub fn disown(&self, connection: &Connection, address: u64) -> bool {
        self.holds(address) && self.give_back(connection)
    }

    /// Returns all kept memory, before a call whose result would show it. `true` if some was returned in stream order.
    pub fn give_back(&self, connection: &Connection) -> bool {
        let is_idle = |hStream| match connection.call(&request::cuStreamQuery { hStream }) {
            Ok(_) => true,
            Err(CUDA_ERROR_NOT_READY) => false,
            Err(code) => {
                // The error of an earlier call, which the program has to get.
                connection.defer(code);
                false
            }
        };
        give_back(connection, self.extract(|_| true), is_idle)
    }

    /// Returns the memory that is kept for a stream that is about to end. `true` if there was any.
    pub fn leave_stream(&self, connection: &Connection, stream: u64) -> bool {
        let is_there = |home: &Home| home.order.is_some_and(|place| place.stream == stream);
        give_back(connection, self.extract(is_there), |_| false)
    }
}

/// Returns blocks. Those of streams that are `idle` are free immediately, the others when their stream reaches the
/// free. `true` if there are such.
fn give_back(
    connection: &Connection,
    blocks: Vec<(u64, Home)>,
    is_idle: impl Fn(u64) -> bool,
) -> bool {
    let mut any_ordered = false;
    let mut idle = HashMap::new();
    for (dptr, home) in blocks {
        // Blocks that the end of the context has already freed need no action.
        let stream = home.order.map(|place| place.stream);
        // The thread's own context may have ended.
        let _ = thread::within(home.context, || {
            let busy = stream.filter(|of| !*idle.entry(*of).or_insert_with(|| is_idle(*of)));
            match busy {
                Some(hStream) => {
                    any_ordered = true;
                    connection.post(&request::cuMemFreeAsync { dptr, hStream })
                }
                None if connection.ring().is_some() => {
                    connection.post(&request::gpgpuFreeIdle { dptr })
                }
                None => connection.call(&request::cuMemFree_v2 { dptr }).map(drop),
            }
        });
    }
    any_ordered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn freed_memory_is_reused_in_its_context_only() {
        let spare = Freed::default();
        let (one, two) = (Home::of_context(1), Home::of_context(2));
        let length = length_for(600);
        assert_eq!(length, 1024);
        assert_eq!(spare.take(one, length), None);
        assert!(spare.keep(one, 0x1000, length));
        assert!(spare.holds(0x1000) && spare.holds(0x13ff) && !spare.holds(0x1400));
        assert_eq!(spare.take(two, length), None);
        assert_eq!(spare.take(one, length_for(400)), None);
        assert_eq!(spare.take(one, 1024), Some(0x1000));
        assert!(!spare.holds(0x1000));
        assert_eq!(spare.take(one, 1024), None);
    }

    #[test]
    fn memory_freed_in_order_is_reused_in_its_stream_and_pool_only() {
        let spare = Freed::default();
        let home = |stream, pool| Home {
            context: 1,
            order: Place::of(0x100 + stream, pool),
        };
        for special in 0..=2 {
            assert_eq!(Place::of(special, 7), None);
        }
        assert!(spare.keep(home(5, 7), 0x1000, 600));
        assert!(spare.keep(home(6, 7), 0x2000, 600));
        for other in [home(5, 8), home(4, 7), Home::of_context(1)] {
            assert_eq!(spare.take(other, 600), None);
        }
        assert_eq!(spare.take(home(5, 7), 600), Some(0x1000));
        assert!(spare.keep(home(5, 7), 0x1000, 600));
        let of_stream = spare.extract(|home| home.order.is_some_and(|place| place.stream == 0x105));
        assert_eq!(of_stream, [(0x1000, home(5, 7))]);
        assert!(!spare.holds(0x1000) && spare.holds(0x2000));
        spare.forget_context(1);
        assert_eq!(spare.take(home(6, 7), 600), None);
        for block in 0..(MOST_ORDERED / LARGEST) as u64 {
            assert!(spare.keep(home(block, 7), block << 20, LARGEST));
        }
        assert!(!spare.keep(home(5, 7), 1 << 40, 512), "too much");
        assert!(spare.keep(Home::of_context(1), 1 << 40, 512));
    }

    #[test]
    fn the_cache_stays_within_its_limit_and_keeps_nothing_of_an_ended_context() {
        let spare = Freed::default();
        let home = Home::of_context;
        assert!(!spare.keep(home(1), 0, LARGEST + 1));
        let mut kept = 0;
        while spare.keep(home(1 + kept % 2), kept << 20, LARGEST) {
            kept += 1;
        }
        assert_eq!(kept as usize, MOST / LARGEST);
        spare.forget_context(1);
        assert_eq!(spare.take(home(1), LARGEST), None);
        assert!(spare.keep(home(3), 1 << 40, LARGEST));
        assert_eq!(spare.extract(|_| true).len(), MOST / LARGEST / 2 + 1);
        assert_eq!(spare.take(home(2), LARGEST), None);
    }
}
