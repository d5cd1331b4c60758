// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The life of a mover: when it is asked for, and when nothing of it reaches guest memory any more.

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
    /// Asks for the mover of a GPU, now and whenever it is gone and there is use for it.
    pub(in crate::backend) fn want_mover(&mut self, gpu: u32) {
        if self.movers.wanted.insert(gpu) {
            self.movers.asked = None;
        }
        self.ask_for_movers();
    }

    /// Asks for the movers that are not there, unless it was asked lately.
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

    /// Takes note of the end of a mover's process: it writes nothing any more.
    pub(in crate::backend) fn mover_exited(&mut self, gpu: u32) {
        // Its earlier messages still count.
        while self.receive_from_mover(gpu) {}
        let mover = self.movers.by_gpu.get(&gpu);
        // It had left, and the next was asked for: an answer to that is on its way.
        if mover.is_some_and(|mover| !matches!(mover.state, State::Asked)) {
            self.end_mover(gpu);
        }
    }

    /// Cancels the moves of a mover, which writes nothing for them from then on.
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

    /// Closes the channel of a mover. Its moves wait for the end of its process.
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

    /// Stages the data that no mover has a request for yet.
    pub(super) fn stage_waiting(&mut self, gpu: u32) {
        let mover = self.movers.by_gpu.get_mut(&gpu);
        let waiting = mover.map(|mover| std::mem::take(&mut mover.waiting));
        for (_, moving) in waiting.into_iter().flatten() {
            self.moved(moving, false);
        }
    }

    /// Asks a mover that sent an invalid message to leave. Its moves wait until it reports that it has left, or for the
    /// end of its process. Other VMs may use the mover, so this process does not end it.
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
            // The clock checks for its messages.
            tracing::error!("GPU {gpu}: cannot watch its mover: {error}");
        }
        mover.state = State::Leaving(link);
        self.stage_waiting(gpu);
    }

    /// Has the supervisor look whether a mover is stuck, which ends it then.
    fn tell_that_late(&self, gpu: u32) {
        if let Err(error) = self.link.send(&ToSupervisor::MoverLate { gpu }) {
            tracing::error!("GPU {gpu}: cannot report its mover to the supervisor: {error}");
        }
    }

    /// Tells of movers that take long; `true` says that the clock is still wanted.
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
        }
        self.movers.ticking = self.movers.busy();
        self.movers.ticking
    }
}
