// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Pinned host memory: allocations, and pages of the program that it registered.

use std::collections::BTreeMap;

use gpgpu_client::transport::{Failure, Pinned, Transport};
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::layout::PAGE_BYTES;

/// The pinned pages, by their first address. In CUDA two registrations may share a page, but a page is pinned once.
#[derive(Debug, Default)]
pub struct Host {
    pages: Mutex<BTreeMap<u64, Pages>>,
}

#[derive(Debug)]
struct Pages {
    pinned: Pinned,
    users: usize,
}

/// The whole pages that contain a range.
fn pages_of(start: u64, bytes: u64) -> std::ops::Range<u64> {
    start & !(PAGE_BYTES - 1)..(start + bytes).next_multiple_of(PAGE_BYTES)
}

impl Host {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<u64, Pages>> {
        self.pages.lock()
    }

    /// Records pages that were allocated.
    pub fn insert(&self, pinned: Pinned) {
        self.pages()
            .insert(pinned.address, Pages { pinned, users: 1 });
    }

    /// Pins the pages of a range that are not pinned yet, and adds a use to all of them.
    pub fn pin(
        &self,
        transport: &dyn Transport,
        start: u64,
        bytes: u64,
        read_only: bool,
    ) -> std::result::Result<(), Failure> {
        let wanted = pages_of(start, bytes);
        let mut pages = self.pages();
        let there: Vec<_> = pages
            .range(..wanted.end)
            .filter(|(_, pages)| pages.pinned.end() > wanted.start)
            .map(|(address, pages)| (*address, pages.pinned.end()))
            .collect();
        let mut gaps = Vec::new();
        let mut at = wanted.start;
        for (first, end) in &there {
            if *first > at {
                gaps.push(at..*first);
            }
            at = at.max(*end);
        }
        if at < wanted.end {
            gaps.push(at..wanted.end);
        }
        let mut made: Vec<Pinned> = Vec::new();
        for gap in gaps {
            match transport.pin(gap.start, (gap.end - gap.start) as usize, read_only) {
                Ok(pinned) => made.push(pinned),
                Err(failure) => {
                    made.into_iter()
                        .for_each(|pinned| transport.release(pinned));
                    return Err(failure);
                }
            }
        }
        for (address, _) in there {
            if let Some(pages) = pages.get_mut(&address) {
                pages.users += 1;
            }
        }
        for pinned in made {
            pages.insert(pinned.address, Pages { pinned, users: 1 });
        }
        Ok(())
    }

    /// Ends one use of the pages of a range, and unpins pages without another use.
    pub fn unpin(&self, transport: &dyn Transport, start: u64, bytes: u64) {
        let range = pages_of(start, bytes);
        let mut pages = self.pages();
        let used: Vec<_> = pages
            .range(..range.end)
            .filter(|(_, pages)| pages.pinned.end() > range.start)
            .map(|(address, _)| *address)
            .collect();
        for address in used {
            if let Some(entry) = pages.get_mut(&address) {
                entry.users -= 1;
                if entry.users == 0
                    && let Some(entry) = pages.remove(&address)
                {
                    transport.release(entry.pinned);
                }
            }
        }
    }
}
