// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The decisions: which grants end, and which client gets the next one.

use super::*;

impl Schedule {
    /// Decides. To be called after each event, and at the time that the last call returned.
    pub fn decide(&mut self, now: u64) -> (Vec<Action>, Option<u64>) {
        self.charge(now);
        self.place(now);
        let is_alone = self.is_alone();
        if !is_alone {
            self.contended = Some(now);
        }
        let calm = self.contended.map_or(0, |last| last + nanos(CALM));
        let mut actions = Vec::new();
        self.revoke(now, &mut actions);
        self.give(is_alone && now >= calm, &mut actions, now);
        self.set_ends(&mut actions);
        let to_calm = is_alone && now < calm && self.clients.values().any(Member::is_on_gpu);
        let looks = self.clients.values().filter_map(|member| self.look(member));
        let look = looks.chain(to_calm.then_some(calm)).min();
        (actions, look)
    }

    /// Assigns places to clients and VMs that have become active: at the others' virtual time, or a little behind it.
    /// So many that arrive together do not overtake one that waits, and one that was inactive for a moment loses
    /// nothing.
    fn place(&mut self, now: u64) {
        self.time = self.mean_time().unwrap_or(self.time);
        for (number, vm) in &mut self.vms {
            let mut is_active = false;
            let members = self.clients.values_mut();
            for member in members.filter(|member| member.vm == *number) {
                let wants = member.wants || member.is_on_gpu();
                member.place.update(wants, vm.time, 1, now);
                is_active |= wants;
            }
            vm.place.update(is_active, self.time, vm.weight, now);
        }
        self.time = self.mean_time().unwrap_or(self.time);
    }

    /// The length of a client's turn, in nanoseconds. A client that waits for each short piece of work gets its VM's
    /// arrears in one turn, and so is due again after each turn of another VM. A client without history gets its share
    /// of a round of two turns. All others get the longest turn.
    fn turn(&self, member: &Member) -> u64 {
        let longest = self.longest_turn();
        let Some(vm) = self.vms.get(&member.vm) else {
            return longest;
        };
        if member.burst > nanos(SHORT_BURST) {
            return longest;
        }
        let all = self.active_weight();
        let others = all.saturating_sub(vm.weight).max(1);
        let share = u128::from(longest) * vm.weight / others;
        let due = match member.burst {
            0 => share,
            // The queue's time also advances while the VM catches up. It catches up in small steps: a long turn would
            // put it ahead, and its next turn would come late.
            _ => (self.time.saturating_sub(vm.place.time) / SCALE * vm.weight * all / others)
                .min(share),
        };
        let due = u64::try_from(due).unwrap_or(u64::MAX);
        due.max(BURSTS.saturating_mul(member.burst))
            .clamp(nanos(SHORTEST_SHARE), longest)
    }

    /// The VM among these, given with their virtual times, that is next when the queue's time is `time`.
    fn next_vm(
        &self,
        time: u128,
        among: impl Iterator<Item = (usize, u128)> + Clone,
    ) -> Option<usize> {
        let least = among.clone().map(|(_, start)| start).min()?;
        let eligible = among.filter(|(_, start)| *start <= time.max(least));
        let finish = |(vm, start): &(usize, u128)| self.vms.get(vm).map(|vm| vm.finish(*start));
        eligible.min_by_key(finish).map(|(vm, _)| vm)
    }

    /// The VMs with a waiting client, with their virtual times.
    fn waiting(&self) -> impl Iterator<Item = (usize, u128)> + Clone {
        let waits = |number: usize| {
            let mut members = self.clients.values();
            members.any(|member| member.vm == number && member.waits())
        };
        let active = self.vms.iter().filter(|(_, vm)| vm.place.is_active);
        active
            .filter(move |(number, _)| waits(**number))
            .map(|(number, vm)| (*number, vm.place.time))
    }

    /// The end of the turn of a client that has the GPU: the time at which another client would be next. `None` if no
    /// client waits.
    fn turn_end(&self, member: &Member) -> Option<u64> {
        let held = member.held.filter(|held| !held.is_open)?;
        let vm = self.vms.get(&member.vm)?;
        let mut waiting = self
            .clients
            .values()
            .filter(|member| member.waits())
            .peekable();
        waiting.peek()?;
        // An announced end stays valid once it has passed.
        if let Some(until) = held.until.filter(|until| *until <= self.charged) {
            return Some(until);
        }
        // A VM that became active in the meantime and is behind need not wait for the end of the turn.
        let is_behind = |vm: &Vm| {
            let start = vm.place.time;
            vm.place.came > held.since && start <= self.time && vm.finish(start) < held.finish
        };
        let someone_is_behind = waiting
            .clone()
            .any(|other| other.vm != member.vm && self.vms.get(&other.vm).is_some_and(is_behind));
        if someone_is_behind {
            return Some((held.since + nanos(SHORTEST_TURN)).max(self.charged));
        }
        let has_mate = waiting.any(|other| other.vm == member.vm);
        let turn = held.turn;
        let first = (held.since + turn).max(self.charged);
        let ends = (0..MOST_TURNS).map(|turns| first + turns * turn);
        let is_last = |end: &u64| {
            let passed = u128::from(end - self.charged) * SCALE;
            let time = self.time + passed / self.active_weight().max(1);
            let own = (member.vm, vm.place.time + passed / vm.weight);
            let others = self.waiting().filter(|(number, _)| *number != member.vm);
            // The client gets another turn only if it is due for more than half of one.
            let half = u128::from(turn) * SCALE / vm.weight / 2;
            let own = Some(own).filter(|(_, start)| start + half <= time);
            let next = self.next_vm(time, others.chain(own));
            has_mate || next != Some(member.vm)
        };
        let last = first + (MOST_TURNS - 1) * turn;
        Some(ends.clone().find(is_last).unwrap_or(last))
    }

    /// The time of the next action on a client's grant, in nanoseconds.
    fn look(&self, member: &Member) -> Option<u64> {
        let held = member.held?;
        if let Some(ends) = held.ends {
            return Some(ends + nanos(PATIENCE));
        }
        if held.is_open {
            // Its VM's kernels have got a limit, and are observed only under other grants.
            if self.vms.get(&member.vm).is_some_and(|vm| vm.is_watched) {
                return Some(held.since);
            }
            let mut waiting = self.clients.values().filter(|member| member.waits());
            return waiting
                .any(|other| other.vm != member.vm)
                .then_some(held.since);
        }
        // The client ends its turn by itself.
        self.turn_end(member).map(|end| end + nanos(SLACK))
    }

    /// Revokes grants whose time is over, and gives up those that are not returned.
    fn revoke(&mut self, now: u64, actions: &mut Vec<Action>) {
        let is_due = |(name, member): (&Client, &Member)| {
            let is_due = self.look(member).is_some_and(|look| look <= now);
            is_due.then_some(*name)
        };
        let due: Vec<Client> = self.clients.iter().filter_map(is_due).collect();
        for name in due {
            let Some(member) = self.clients.get_mut(&name) else {
                continue;
            };
            match &mut member.held {
                Some(held) if held.ends.is_none() => {
                    held.ends = Some(now);
                    actions.push(Action::Revoke(name));
                }
                Some(held) => {
                    // A client that announces its end is revoked too, because it might announce it for ever.
                    if held.is_tail {
                        actions.push(Action::Revoke(name));
                    }
                    let took = now.saturating_sub(held.since);
                    member.held = None;
                    member.overruns = Some(now);
                    if let Some(vm) = self.vms.get_mut(&member.vm) {
                        vm.learn(took);
                    }
                }
                None => {}
            }
        }
    }

    /// Grants the GPU to the next client, if the GPU is free or about to be free.
    fn give(&mut self, may_open: bool, actions: &mut Vec<Action>, now: u64) {
        let held = || self.clients.values().filter_map(|member| member.held);
        if held().any(|held| held.ends.is_some() && !held.is_tail) {
            return;
        }
        let is_open = held().any(|held| held.is_open);
        if may_open || is_open {
            self.open(actions, now);
        }
        let mut holders = self.clients.values().filter(|member| member.held.is_some());
        let last = match (holders.next(), holders.next()) {
            (None, _) => None,
            (Some(member), None) if member.held.is_some_and(|held| held.is_tail) => Some(member.vm),
            _ => return,
        };
        // If the VM whose turn ends is also the next one, wait for that end.
        let ending = last.and_then(|vm| Some((vm, self.vms.get(&vm)?.place.time)));
        let waiting = self.waiting();
        let others = waiting.filter(|(vm, _)| Some(*vm) != last);
        let Some(next) = self.next_vm(self.time, others.chain(ending)) else {
            return;
        };
        let members = self.clients.iter();
        let of_next = members.filter(|(_, member)| member.vm == next && member.waits());
        let first = of_next.min_by_key(|(_, member)| member.place.time);
        if let Some(name) = first.map(|(name, _)| *name) {
            self.hold(name, false, now);
            actions.push(Action::Pace(name));
        }
    }

    /// Grants open leases to all clients of the only active VM: with several VMs, a revocation would be in progress.
    fn open(&mut self, actions: &mut Vec<Action>, now: u64) {
        let is_due = |(name, member): (&Client, &Member)| {
            let may = !self.vms.get(&member.vm)?.is_watched;
            let is_paced = member.held.is_some_and(|held| !held.is_open);
            (may && (member.waits() || is_paced)).then_some(*name)
        };
        let due: Vec<Client> = self.clients.iter().filter_map(is_due).collect();
        for name in due {
            self.hold(name, true, now);
            actions.push(Action::Open(name));
        }
    }

    fn hold(&mut self, name: Client, is_open: bool, now: u64) {
        let turn = self.clients.get(&name).map(|member| self.turn(member));
        let (Some(turn), Some(member)) = (turn, self.clients.get_mut(&name)) else {
            return;
        };
        let Some(vm) = self.vms.get_mut(&member.vm) else {
            return;
        };
        member.held = Some(Held {
            is_open,
            since: now,
            turn,
            finish: vm.place.time + u128::from(turn) * SCALE / vm.weight,
            until: None,
            ends: None,
            is_tail: false,
        });
        vm.time = vm.time.max(member.place.time);
        if is_open {
            self.time = self.time.max(vm.place.time);
        }
    }

    /// Sends clients the ends of their turns.
    fn set_ends(&mut self, actions: &mut Vec<Action>) {
        let end = |(name, member): (&Client, &Member)| {
            let held = member
                .held
                .filter(|held| !held.is_open && held.ends.is_none())?;
            let end = self.turn_end(member);
            (end != held.until).then_some((*name, end))
        };
        let ends: Vec<(Client, Option<u64>)> = self.clients.iter().filter_map(end).collect();
        for (name, end) in ends {
            if let Some(held) = self
                .clients
                .get_mut(&name)
                .and_then(|member| member.held.as_mut())
            {
                held.until = end;
                actions.push(Action::Until(name, end));
            }
        }
    }
}
