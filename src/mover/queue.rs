// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Moves that wait for their turn: weighted fair queueing over VMs, by bytes.
//!
//! Each VM has a *virtual time*. A move advances it by its bytes divided by the VM's weight. The VM with the least
//! virtual time is next. A VM that had no moves for a while starts at the virtual time of the others: unused time is
//! lost. Within a VM the channels take turns, so a VM gets its share once, however many channels it has.

use std::collections::{HashMap, VecDeque};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};

/// A byte at weight 1, in the unit of virtual times. It exceeds any weight by far, so that a byte of no VM counts as 0.
const SCALE: u128 = 1 << 32;

/// A VM's moves.
#[derive(Debug)]
struct Line<T> {
    weight: u32,
    time: u128,
    /// Channels with moves, in the order of their turns; each move with its bytes.
    channels: VecDeque<(u64, VecDeque<(u64, T)>)>,
}

#[derive(Debug)]
struct State<T> {
    /// By the VM's number. There is an entry for each VM of the back end; none is ever removed.
    lines: HashMap<u32, Line<T>>,
    /// The virtual time at which the last move was taken.
    now: u128,
}

impl<T> State<T> {
    fn line(&mut self, vm: u32) -> &mut Line<T> {
        self.lines.entry(vm).or_insert_with(|| Line {
            weight: 1,
            time: 0,
            channels: VecDeque::new(),
        })
    }

    fn take(&mut self) -> Option<T> {
        let waiting = self.lines.iter_mut();
        let waiting = waiting.filter(|(_, line)| !line.channels.is_empty());
        let (_, line) = waiting.min_by_key(|(vm, line)| (line.time, **vm))?;
        let (channel, mut moves) = line.channels.pop_front()?;
        let (bytes, first) = moves.pop_front()?;
        if !moves.is_empty() {
            line.channels.push_back((channel, moves));
        }
        self.now = line.time;
        line.time += u128::from(bytes) * SCALE / u128::from(line.weight);
        Some(first)
    }
}

/// See the module's documentation. `T` is a move.
#[derive(Debug)]
pub struct Turns<T> {
    state: Mutex<State<T>>,
    more: Condvar,
}

impl<T> Default for Turns<T> {
    fn default() -> Self {
        let state = State {
            lines: HashMap::new(),
            now: 0,
        };
        Self {
            state: Mutex::new(state),
            more: Condvar::new(),
        }
    }
}

impl<T> Turns<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock()
    }

    /// Sets a VM's weight, which is 1 before the first call.
    pub fn set_weight(&self, vm: u32, weight: u32) {
        self.state().line(vm).weight = weight.max(1);
    }

    /// Appends a move of `bytes` bytes to a channel of the VM.
    pub fn push(&self, vm: u32, channel: u64, bytes: u64, what: T) {
        let mut state = self.state();
        let now = state.now;
        let line = state.line(vm);
        if line.channels.is_empty() {
            line.time = line.time.max(now);
        }
        let mut channels = line.channels.iter_mut();
        match channels.find(|(owner, _)| *owner == channel) {
            Some((_, moves)) => moves.push_back((bytes, what)),
            None => {
                let moves = VecDeque::from([(bytes, what)]);
                line.channels.push_back((channel, moves));
            }
        }
        drop(state);
        self.more.notify_one();
    }

    /// Takes the next move, if there is one.
    pub fn next(&self) -> Option<T> {
        self.state().take()
    }

    /// Waits for the next move, and takes it.
    pub fn wait(&self) -> T {
        let mut state = self.state();
        loop {
            if let Some(what) = state.take() {
                return what;
            }
            state = self.more.wait(state);
        }
    }

    /// Removes all moves of a channel. The caller drops them without the lock.
    pub fn take_all(&self, channel: u64) -> Vec<T> {
        let mut gone = Vec::new();
        for line in self.state().lines.values_mut() {
            let at = line
                .channels
                .iter()
                .position(|(owner, _)| *owner == channel);
            let moves = at.and_then(|at| line.channels.remove(at));
            gone.extend(moves.into_iter().flat_map(|(_, moves)| moves));
        }
        gone.into_iter().map(|(_, what)| what).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The number of moves of each VM among the next `count`. Every VM has more moves than that.
    fn taken(turns: &Turns<u32>, count: usize) -> HashMap<u32, usize> {
        let mut by_vm = HashMap::new();
        for _ in 0..count {
            *by_vm.entry(turns.next().unwrap()).or_default() += 1;
        }
        by_vm
    }

    fn fill(turns: &Turns<u32>, vm: u32, channel: u64, bytes: u64, count: usize) {
        for _ in 0..count {
            turns.push(vm, channel, bytes, vm);
        }
    }

    #[test]
    fn a_vm_with_much_to_move_does_not_hold_up_another() {
        let turns = Turns::default();
        for number in 0..3 {
            turns.push(1, 1, MIB, (1, number));
        }
        turns.push(2, 2, MIB, (2, 0));
        turns.push(3, 3, MIB, (3, 0));
        turns.push(2, 2, MIB, (2, 1));
        turns.take_all(3);
        let order: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(order, [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2)]);
    }

    #[test]
    fn pitfall_75_bytes_go_by_weight_whatever_the_length_of_moves() {
        let turns = Turns::default();
        for (vm, weight) in [(1, 100), (2, 200), (4, 400)] {
            turns.set_weight(vm, weight);
        }
        fill(&turns, 1, 1, 4 * MIB, 1000);
        fill(&turns, 2, 2, 4 * MIB, 1000);
        fill(&turns, 4, 4, MIB, 4000);
        let by_vm = taken(&turns, 1900);
        // The last VM has 4 times the bytes of the first, in moves of a quarter of the size.
        assert_eq!((by_vm[&1], by_vm[&2], by_vm[&4]), (100, 200, 1600));
        turns.set_weight(1, 800);
        let by_vm = taken(&turns, 260);
        assert_eq!((by_vm[&1], by_vm[&2], by_vm[&4]), (80, 20, 160));
    }

    #[test]
    fn pitfall_75_a_vm_with_many_channels_has_its_share_once() {
        let turns = Turns::default();
        for channel in 0..8 {
            fill(&turns, 1, channel, MIB, 100);
        }
        fill(&turns, 2, 8, MIB, 100);
        let by_vm = taken(&turns, 100);
        assert_eq!((by_vm[&1], by_vm[&2]), (50, 50));
    }

    #[test]
    fn a_vm_that_had_nothing_to_move_has_saved_nothing() {
        let turns = Turns::default();
        fill(&turns, 1, 1, MIB, 1000);
        taken(&turns, 500);
        fill(&turns, 2, 2, MIB, 1000);
        let by_vm = taken(&turns, 100);
        assert_eq!((by_vm[&1], by_vm[&2]), (50, 50));
        // A VM is not charged for moves that it made while it was alone.
        turns.take_all(2);
        taken(&turns, 200);
        fill(&turns, 2, 2, MIB, 1000);
        let by_vm = taken(&turns, 100);
        assert_eq!((by_vm[&1], by_vm[&2]), (50, 50));
    }
}
