// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! This worker's counters for the supervisor.
//!
//! Each thread counts for itself, at the cost of an addition, and adds its counts to the account at the end of a
//! command stream or of a batch of the ring's records.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use super::common::Common;
use crate::account::{self, Counters};

/// The owner of a range of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// GPU memory.
    Device,
    /// Guest memory, registered with CUDA.
    Host,
}

thread_local! {
    static TALLY: Tally = const { Tally::new() };
}

struct Tally {
    launches: Cell<u64>,
    launch_graphs: Cell<u64>,
    copies: Cell<u64>,
    to_device: Cell<u64>,
    from_device: Cell<u64>,
    on_device: Cell<u64>,
    commands: Cell<u64>,
}

impl Tally {
    const fn new() -> Self {
        Self {
            launches: Cell::new(0),
            launch_graphs: Cell::new(0),
            copies: Cell::new(0),
            to_device: Cell::new(0),
            from_device: Cell::new(0),
            on_device: Cell::new(0),
            commands: Cell::new(0),
        }
    }

    fn flush(&self, to: &Counters) {
        let pairs = [
            (&self.launches, &to.launches),
            (&self.launch_graphs, &to.launch_graphs),
            (&self.copies, &to.copies),
            (&self.to_device, &to.bytes_to_device),
            (&self.from_device, &to.bytes_from_device),
            (&self.on_device, &to.bytes_on_device),
            (&self.commands, &to.commands),
        ];
        for (from, to) in pairs {
            let amount = from.take();
            if amount > 0 {
                account::add(to, amount);
            }
        }
    }
}

fn more(cell: &Cell<u64>, amount: u64) {
    cell.set(cell.get().wrapping_add(amount));
}

/// Counts a launched kernel.
pub fn launch() {
    TALLY.with(|tally| more(&tally.launches, 1));
}

/// Counts a launch, or a group of launches, that was submitted as a graph.
pub fn launch_graph() {
    TALLY.with(|tally| more(&tally.launch_graphs, 1));
}

/// Counts an executed command.
pub fn command() {
    TALLY.with(|tally| more(&tally.commands, 1));
}

/// Counts copied bytes, at the start or the end of the copy.
pub fn copy(to: Memory, from: Memory, bytes: u64) {
    TALLY.with(|tally| {
        more(&tally.copies, 1);
        part_of(tally, to, from, bytes);
    });
}

/// The same for a part of a copy. The part at offset 0 also counts as one copy.
pub fn copy_part(to: Memory, from: Memory, bytes: u64, offset: u64) {
    TALLY.with(|tally| {
        more(&tally.copies, u64::from(offset == 0));
        part_of(tally, to, from, bytes);
    });
}

fn part_of(tally: &Tally, to: Memory, from: Memory, bytes: u64) {
    match (to, from) {
        (Memory::Device, Memory::Host) => more(&tally.to_device, bytes),
        (Memory::Host, Memory::Device) => more(&tally.from_device, bytes),
        (Memory::Device, Memory::Device) => more(&tally.on_device, bytes),
        (Memory::Host, Memory::Host) => {}
    }
}

/// Adds this thread's counts to the account.
pub fn flush(common: &Common) {
    if let Some(shares) = common.shares.get() {
        TALLY.with(|tally| tally.flush(&shares.account.counters));
    }
}

/// Sets a gauge.
pub fn set(common: &Common, which: impl FnOnce(&Counters) -> &AtomicU64, amount: u64) {
    if let Some(shares) = common.shares.get() {
        which(&shares.account.counters).store(amount, Ordering::Relaxed);
    }
}

/// The estimated number of records in `bytes` bytes of a ring, if they are as long as those before: `records` records
/// in `read` bytes. An exact count would have to read the guest's memory twice.
pub fn estimate(bytes: u64, records: u64, read: u64) -> u64 {
    let records = u128::from(bytes) * u128::from(records.max(1));
    let estimate = records.div_ceil(u128::from(read.max(1)));
    // A record has at least 16 bytes.
    u64::try_from(estimate).unwrap_or(u64::MAX).min(bytes / 16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::{Account, Shared};

    #[test]
    fn a_threads_counts_are_added_once() {
        let account = Shared::<Account>::new(c"test").unwrap();
        let counters = &account.counters;
        launch();
        command();
        command();
        copy(Memory::Device, Memory::Host, 100);
        copy_part(Memory::Device, Memory::Host, 10, 100);
        copy(Memory::Host, Memory::Device, 7);
        copy(Memory::Device, Memory::Device, 5);
        copy(Memory::Host, Memory::Host, 3);
        TALLY.with(|tally| tally.flush(counters));
        TALLY.with(|tally| tally.flush(counters));
        let seen = [
            &counters.launches,
            &counters.commands,
            &counters.copies,
            &counters.bytes_to_device,
            &counters.bytes_from_device,
            &counters.bytes_on_device,
        ];
        assert_eq!(
            seen.map(|c| c.load(Ordering::Relaxed)),
            [1, 2, 4, 110, 7, 5]
        );
    }

    #[test]
    fn a_queue_is_never_said_to_hold_more_than_it_can() {
        assert_eq!(estimate(0, 10, 400), 0);
        assert_eq!(estimate(400, 10, 400), 10);
        assert_eq!(estimate(16, 1, 1000), 1);
        assert_eq!(estimate(160, 0, 0), 10);
        assert_eq!(estimate(u64::MAX, u64::MAX, 1), u64::MAX / 16);
    }
}
