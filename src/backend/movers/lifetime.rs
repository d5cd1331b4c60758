// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The life of a mover: when it is requested, and when it can no longer access guest memory.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    os::fd::{AsFd, OwnedFd},
    time::Instant,
};

use super::{ASK_AGAIN, Link, Mover, Moving, State};
use crate::{
    backend::vm::{Speaker, Vm},
    ipc::{
        device::ToSupervisor,
        mover::{DeviceEnd, MOVE_LIMIT},
    },
};

impl Vm {
    /// Requests the mover of a GPU, now and again whenever it has ended and is needed.
    pub(in crate::backend) fn want_mover(&mut self, gpu: u32) {
        if self.movers.wanted.insert(gpu) {
            self.movers.asked = None;
        }
        self.ask_for_movers();
    }

    /// Requests the missing movers, unless they were requested recently.
    pub(in crate::backend) fn ask_for_movers(&mut self) {
        let movers = &mut self.movers;
        if movers.wanted.len() == movers.by_gpu.len()
            || movers
                .asked
                .is_some_and(|asked| asked.elapsed() < ASK_AGAIN)
        {
            return;
        }
        movers.asked = Some(Instant::now());
        for &gpu in &movers.wanted {
            if movers.by_gpu.contains_key(&gpu) {
                continue;
            }
            match self.link.send(&ToSupervisor::StartMover { gpu }) {
                Ok(()) => drop(movers.by_gpu.insert(gpu, Mover::default())),
                Err(error) => tracing::error!("GPU {gpu}: cannot ask for its mover: {error}"),
            }
        }
    }

    pub(in crate::backend) fn mover_started(&mut self, gpu: u32, channel: OwnedFd) {
        let slot = self.take_slot(Speaker::Mover(gpu));
        let mover = self.movers.by_gpu.get_mut(&gpu);
        let Some(mover) = mover.filter(|mover| matches!(mover.state, State::Asked)) else {
            return self.give_slot_back(slot);
        };
        let end = DeviceEnd::new(channel);
        if let Err(error) = self.watch.add(end.as_fd(), slot, false) {
            tracing::error!("GPU {gpu}: cannot watch its mover: {error}");
            self.movers.by_gpu.remove(&gpu);
            return self.give_slot_back(slot);
        }
        mover.state = State::Open(Link {
            end,
            slot,
            wants_room: false,
            ready: false,
            outbox: VecDeque::new(),
            files: Vec::new(),
            exports: HashMap::new(),
            under_way: 0,
        });
    }

    pub(in crate::backend) fn mover_failed(&mut self, gpu: u32) {
        self.stage_waiting(gpu);
        self.movers.by_gpu.remove(&gpu);
    }

    /// Handles the end of a mover's process, which writes nothing any more.
    pub(in crate::backend) fn mover_exited(&mut self, gpu: u32) {
        // Its earlier messages are still valid.
        while self.receive_from_mover(gpu) {}
        let mover = self.movers.by_gpu.get(&gpu);
        // The mover had left, and the next one was requested: that answer is still to come.
        if mover.is_some_and(|mover| !matches!(mover.state, State::Asked)) {
            self.end_mover(gpu);
        }
    }

    /// Cancels the moves of a mover. Afterwards it writes nothing for them.
    pub(super) fn end_mover(&mut self, gpu: u32) {
        self.close_mover(gpu);
        self.movers.by_gpu.remove(&gpu);
        let lost: Vec<u64> = self
            .movers
            .under_way
            .iter()
            .filter(|(_, moving)| moving.gpu == gpu)
            .map(|(&seq, _)| seq)
            .collect();
        for seq in lost {
            if let Some(moving) = self.movers.under_way.remove(&seq) {
                self.moved(moving, false);
            }
        }
        self.ask_for_movers();
    }

    /// Closes the channel to a mover. Its moves wait for the end of its process.
    pub(super) fn close_mover(&mut self, gpu: u32) {
        let Some(mover) = self.movers.by_gpu.get_mut(&gpu) else {
            return;
        };
        let state = std::mem::replace(&mut mover.state, State::Closed);
        if let State::Open(link) | State::Leaving(link) = state {
            self.watch.remove(link.end.as_fd(), link.slot);
            self.give_slot_back(link.slot);
        }
        self.stage_waiting(gpu);
    }

    /// Stages the data of moves that were not sent to a mover yet.
    pub(super) fn stage_waiting(&mut self, gpu: u32) {
        let mover = self.movers.by_gpu.get_mut(&gpu);
        let waiting = mover.map(|mover| std::mem::take(&mut mover.waiting));
        for (_, moving) in waiting.into_iter().flatten() {
            self.moved(moving, false);
        }
    }

    /// Asks a mover that sent an invalid message to leave. Its moves wait until it reports that it has left, or until
    /// its process ends. Other VMs may use the mover, so this process does not end it.
    pub(super) fn give_up_mover(&mut self, gpu: u32) {
        let Some(mover) = self.movers.by_gpu.get_mut(&gpu) else {
            return;
        };
        let State::Open(mut link) = std::mem::replace(&mut mover.state, State::Closed) else {
            return;
        };
        link.end.leave();
        link.wants_room = false;
        if let Err(error) = self.watch.set_room(link.end.as_fd(), link.slot, false) {
            // The timer polls its channel instead.
            tracing::error!("GPU {gpu}: cannot watch its mover: {error}");
        }
        mover.state = State::Leaving(link);
        self.stage_waiting(gpu);
    }

    /// Asks the supervisor to check whether a mover is stuck, and to end it in that case.
    fn tell_that_late(&self, gpu: u32) {
        if let Err(error) = self.link.send(&ToSupervisor::MoverLate { gpu }) {
            tracing::error!("GPU {gpu}: cannot report its mover to the supervisor: {error}");
        }
    }

    /// Reports moves that take long; `true` means that the timer is still needed.
    pub(in crate::backend) fn tick_movers(&mut self, now: Instant) -> bool {
        let is_late = |moving: &&Moving| now.saturating_duration_since(moving.since) > MOVE_LIMIT;
        let late: BTreeSet<u32> = self
            .movers
            .under_way
            .values()
            .filter(is_late)
            .map(|moving| moving.gpu)
            .collect();
        for gpu in late {
            self.tell_that_late(gpu);
        }
        for gpu in self.movers.by_gpu.keys().copied().collect::<Vec<_>>() {
            self.receive_from_mover(gpu);
            self.pump_mover(gpu);
        }
        self.movers.ticking = self.movers.busy();
        self.movers.ticking
    }
}
