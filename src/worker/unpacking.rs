// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory for compressed entries of fatbins, while the worker reads them to find the memory of an image or the kernels
//! that print. The worker unpacks one entry of an image at a time.

use gpgpu_image::fatbin::{self, MOST_UNPACKED};
use gpgpu_locks::{Condvar, Mutex};

/// The maximum size of all unpacked entries at a time, in bytes.
const MAX_BYTES: usize = 2 * MOST_UNPACKED;

/// A worker serves one client, so this is the client's.
static UNPACKING: Budget = Budget::new();

/// A number of bytes that several threads share.
#[derive(Debug)]
struct Budget {
    held: Mutex<usize>,
    freed: Condvar,
}

impl Budget {
    const fn new() -> Self {
        Self {
            held: Mutex::new(0),
            freed: Condvar::new(),
        }
    }

    /// Waits until there are so many bytes, at most [`MOST_UNPACKED`]. A thread has one part at a time, so each wait
    /// ends.
    fn part(&self, bytes: usize) -> Part<'_> {
        let has_no_room = |held: &mut usize| *held + bytes > MAX_BYTES;
        *self.freed.wait_while(self.held.lock(), has_no_room) += bytes;
        Part { of: self, bytes }
    }
}

/// A part of the budget.
#[derive(Debug)]
pub struct Part<'a> {
    of: &'a Budget,
    bytes: usize,
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        *self.of.held.lock() -= self.bytes;
        self.of.freed.notify_all();
    }
}

/// Waits until there is memory to unpack each entry of an image, one after the other. The thread must not have any yet.
pub fn room(image: &[u8]) -> Part<'static> {
    UNPACKING.part(fatbin::most_unpacked(image))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    #[test]
    fn threads_together_unpack_no_more_than_the_budget() {
        let budget = Budget::new();
        let (at_once, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for number in 0..32 {
                let (budget, at_once, most) = (&budget, &at_once, &most);
                scope.spawn(move || {
                    let bytes = MOST_UNPACKED / (1 + number % 3);
                    let _part = budget.part(bytes);
                    most.fetch_max(
                        at_once.fetch_add(bytes, Ordering::SeqCst) + bytes,
                        Ordering::SeqCst,
                    );
                    std::thread::yield_now();
                    at_once.fetch_sub(bytes, Ordering::SeqCst);
                });
            }
        });
        assert!(most.into_inner() <= MAX_BYTES);
        assert_eq!(*budget.held.lock(), 0);
    }

    #[test]
    fn an_image_waits_for_the_others() {
        let budget = Budget::new();
        let large = [budget.part(MOST_UNPACKED), budget.part(MOST_UNPACKED)];
        let is_freed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let _part = budget.part(1);
                assert!(is_freed.load(Ordering::SeqCst));
            });
            // One that unpacks nothing does not wait.
            drop(budget.part(0));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert!(!waits.is_finished());
            is_freed.store(true, Ordering::SeqCst);
            drop(large);
            waits.join().unwrap();
        });
    }
}
