// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The times at which workers are started in advance.
//!
//! All sockets share one pool, because such a worker does not depend on a VM. A worker that leaves the pool for a
//! client never returns. The next one is started a little later, so that it does not compete with the client's own
//! start. If workers die in the pool, the delays grow.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// The delay after a program got a warm worker. Within it, the program has loaded its first modules and libraries. A
/// driver that starts at that time holds locks that they need: on an H200, 64 MiB took 1 to 2 ms to map and unmap
/// beside one, and 0.2 ms without.
const AFTER_WARM: Duration = Duration::from_secs(1);
/// The delay after a program that follows another closely: more programs are likely to follow.
const IN_A_SERIES: Duration = Duration::from_millis(100);
/// The maximum time between two programs that follow each other closely: less than the next worker needs to become
/// warm.
const CLOSELY: Duration = Duration::from_millis(1500);
/// The delay after a client that found the pool empty, so that its worker can start.
const AFTER_COLD: Duration = Duration::from_millis(500);
/// The interval between two starts: a driver takes locks of the whole host when it starts.
const SPACING: Duration = Duration::from_millis(300);
/// The delay after the first death. Each further death doubles it.
const FIRST_BACK_OFF: Duration = Duration::from_secs(1);
/// The maximum of that delay.
const LONGEST_BACK_OFF: Duration = Duration::from_secs(60);

/// The workers that wait, oldest first, and the time of the next start.
#[derive(Debug)]
pub struct Pool<W> {
    wanted: usize,
    waiting: VecDeque<W>,
    due: Option<Instant>,
    /// The time at which the last client took a worker.
    last: Option<Instant>,
    deaths: u32,
}

impl<W> Pool<W> {
    /// A pool of `wanted` workers. The first is due at `now`.
    pub fn new(wanted: usize, now: Instant) -> Self {
        Self {
            wanted,
            waiting: VecDeque::new(),
            due: (wanted > 0).then_some(now),
            last: None,
            deaths: 0,
        }
    }

    /// Takes the worker that has waited longest, for a client.
    pub fn take(&mut self, now: Instant) -> Option<W> {
        let worker = self.waiting.pop_front();
        if self.wanted == 0 {
            return worker;
        }
        if worker.is_some() {
            self.deaths = 0;
        }
        let last = self.last.replace(now);
        let is_series = last.is_some_and(|last| now.saturating_duration_since(last) < CLOSELY);
        let delay = match (&worker, is_series) {
            (None, _) => AFTER_COLD,
            (Some(_), true) => IN_A_SERIES,
            (Some(_), false) => AFTER_WARM,
        };
        // Further programs do not delay the next start, and a second one soon after the first advances it, unless it is
        // delayed because workers die.
        let due = *self.due.get_or_insert(now + delay);
        if is_series && self.deaths == 0 {
            self.due = Some(due.min(now + delay));
        }
        worker
    }

    /// Takes all waiting workers, which have to be replaced.
    pub fn take_all(&mut self, now: Instant) -> Vec<W> {
        if !self.waiting.is_empty() {
            self.due = Some(now);
        }
        self.waiting.drain(..).collect()
    }

    /// Whether a worker has to be started now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// The time of the next start.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Adds a started worker.
    pub fn add(&mut self, worker: W, now: Instant) {
        self.waiting.push_back(worker);
        self.due = (self.waiting.len() < self.wanted).then_some(now + SPACING);
    }

    /// Records that the first worker for which `is_it` holds has died, or that none could be started. Returns the
    /// delay.
    pub fn died(&mut self, is_it: impl Fn(&W) -> bool, now: Instant) -> (Option<W>, Duration) {
        let worker = self
            .waiting
            .iter()
            .position(is_it)
            .and_then(|position| self.waiting.remove(position));
        let wait = FIRST_BACK_OFF
            .saturating_mul(1 << self.deaths.min(16))
            .min(LONGEST_BACK_OFF);
        self.deaths = self.deaths.saturating_add(1);
        self.due = Some(now + wait);
        (worker, wait)
    }

    /// The waiting workers.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut W> {
        self.waiting.iter_mut()
    }

    /// Removes all workers, and starts no others.
    pub fn clear(&mut self) {
        self.waiting.clear();
        self.wanted = 0;
        self.due = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_fills_one_by_one_and_gives_no_worker_twice() {
        let now = Instant::now();
        let mut pool = Pool::new(2, now);
        assert!(pool.is_due(now));
        pool.add(1, now);
        assert!(!pool.is_due(now), "the second comes a little later");
        let later = pool.due().unwrap();
        pool.add(2, later);
        assert_eq!(pool.due(), None);
        assert_eq!(pool.take(later), Some(1));
        let due = pool.due().unwrap();
        assert!(due > later, "not beside the client's own start");
        assert_eq!(pool.take(later), Some(2));
        assert_eq!(pool.take(later), None);
        assert!(pool.due() <= Some(due), "more clients do not put it off");
    }

    #[test]
    fn the_next_comes_sooner_in_a_series_of_programs() {
        let now = Instant::now();
        let mut pool = Pool::new(1, now);
        pool.add(1, now);
        assert_eq!(pool.take(now), Some(1));
        let alone = pool.due().unwrap();
        let second = now + IN_A_SERIES;
        assert_eq!(pool.take(second), None);
        let due = pool.due().unwrap();
        assert!(due < alone, "the second program shows that more may come");
        pool.add(2, due);
        assert_eq!(pool.take(due), Some(2));
        assert_eq!(pool.due(), Some(due + IN_A_SERIES));
        let later = due + CLOSELY;
        pool.add(3, later);
        assert_eq!(pool.take(later), Some(3));
        assert_eq!(pool.due(), Some(later + AFTER_WARM), "a program alone");
    }

    #[test]
    fn a_series_of_programs_does_not_hurry_workers_that_keep_dying() {
        let now = Instant::now();
        let mut pool = Pool::new(1, now);
        for worker in 0..3 {
            pool.add(worker, now);
            pool.died(|waiting| *waiting == worker, now);
        }
        let due = pool.due();
        assert_eq!((pool.take(now), pool.take(now)), (None, None));
        assert_eq!(pool.due(), due);
    }

    #[test]
    fn a_pool_of_size_0_starts_no_worker() {
        let now = Instant::now();
        let mut pool = Pool::<u32>::new(0, now);
        assert_eq!(pool.take(now), None);
        assert_eq!(pool.due(), None);
    }

    #[test]
    fn those_that_are_replaced_make_place_at_once() {
        let now = Instant::now();
        let mut pool = Pool::new(2, now);
        pool.add(1, now);
        pool.add(2, now);
        assert_eq!(pool.take_all(now), [1, 2]);
        assert!(pool.is_due(now));
        pool.add(3, now);
        assert_eq!(pool.take(now), Some(3));
        // A worker that is not ready yet is not replaced early, because it may be one of a series that dies.
        let due = pool.due();
        assert!(pool.take_all(now).is_empty());
        assert_eq!(pool.due(), due);
    }

    #[test]
    fn workers_that_keep_dying_are_replaced_less_and_less_often() {
        let mut now = Instant::now();
        let mut pool = Pool::new(1, now);
        let mut waits = Vec::new();
        for worker in 0..10 {
            pool.add(worker, now);
            let (died, wait) = pool.died(|waiting| *waiting == worker, now);
            assert_eq!(died, Some(worker));
            assert!(!pool.is_due(now));
            now += wait;
            assert!(pool.is_due(now));
            waits.push(wait);
        }
        assert!(waits.is_sorted());
        assert_eq!(waits.last(), Some(&LONGEST_BACK_OFF));
        pool.add(10, now);
        assert_eq!(pool.take(now), Some(10));
        pool.add(11, now);
        let (_, wait) = pool.died(|_| true, now);
        assert_eq!(wait, FIRST_BACK_OFF, "one that served a client was well");
    }
}
