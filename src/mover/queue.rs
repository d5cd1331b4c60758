//! Moves that wait for their turn: one of each VM at a time, in a circle.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard},
};

/// See the module's page. `T` is a move.
#[derive(Debug)]
pub struct Turns<T> {
    state: Mutex<VecDeque<(u64, VecDeque<T>)>>,
    more: Condvar,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            more: Condvar::new(),
        }
    }
}

impl<T> Turns<T> {
    fn state(&self) -> MutexGuard<'_, VecDeque<(u64, VecDeque<T>)>> {
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts a move at the end of a channel's line.
    pub fn push(&self, channel: u64, what: T) {
        let mut lines = self.state();
        match lines.iter_mut().find(|(owner, _)| *owner == channel) {
            Some((_, line)) => line.push_back(what),
            None => lines.push_back((channel, VecDeque::from([what]))),
        }
        drop(lines);
        self.more.notify_one();
    }

    fn take(lines: &mut VecDeque<(u64, VecDeque<T>)>) -> Option<T> {
        let (channel, mut line) = lines.pop_front()?;
        let first = line.pop_front();
        if !line.is_empty() {
            lines.push_back((channel, line));
        }
        first
    }

    /// The next move, if there is one.
    pub fn next(&self) -> Option<T> {
        Self::take(&mut self.state())
    }

    /// Waits for the next move.
    pub fn wait(&self) -> T {
        let mut lines = self.state();
        loop {
            if let Some(what) = Self::take(&mut lines) {
                return what;
            }
            lines = self
                .more
                .wait(lines)
                .unwrap_or_else(|poisoned| poisoned.into_inner());
        }
    }

    /// Drops all that a channel waits for.
    pub fn forget(&self, channel: u64) {
        let mut lines = self.state();
        let (gone, kept) = lines.drain(..).partition(|(owner, _)| *owner == channel);
        *lines = kept;
        drop(lines);
        let _: VecDeque<_> = gone;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vm_with_much_to_move_does_not_hold_up_another() {
        let turns = Turns::default();
        for number in 0..3 {
            turns.push(1, (1, number));
        }
        turns.push(2, (2, 0));
        turns.push(3, (3, 0));
        turns.push(2, (2, 1));
        turns.forget(3);
        let order: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(order, [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]);
    }
}
