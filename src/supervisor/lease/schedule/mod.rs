// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The order of GPU use: earliest eligible virtual deadline first, over measured GPU time.
//!
//! Every VM has a *virtual time*: the GPU time that it had while others wanted the GPU too, divided by its weight. The
//! queue's virtual time is the weighted mean over all active VMs: that of a VM with exactly its share. A VM is
//! *eligible* unless it is ahead of the queue's time. The next VM is the eligible one whose turn will end first in
//! virtual time. So shares follow weights whatever the length of kernels, and nothing is reserved for a VM that wants
//! nothing. A VM with short turns has one after each turn of another VM, instead of all of them together followed by a
//! round of the others' turns. A VM that becomes active again starts at the others' virtual time, or a short turn
//! before it (it cannot accumulate more). A VM that had too much, because one of its kernels was long, waits until the
//! others have had as much. (Stoica, Abdel-Wahab: Earliest Eligible Virtual Deadline First, 1995; Linux schedules
//! processors in this way.)
//!
//! The clients of a VM take turns, the one with the least time first, so that a VM with eight processes has the share
//! of one VM.
//!
//! While only one VM wants the GPU, its clients hold *open* grants at the same time, without an end. When others want
//! it too, grants are revoked. Then one client at a time has a *paced* grant for [`TURN`] or [`LONG_TURN`], or for
//! several turns in a row if its VM's weight allows. The scheduler sends the client the end of its turn. The client
//! reports when only the last of its work is left on the GPU, and the next client's grant begins then, so that the GPU
//! always has work between two turns.
//!
//! A client whose program waits for each short piece of work would wait for a whole round of long turns for each of its
//! shares. So its turns are shorter and more frequent ([`Schedule::turn`]).
//!
//! This module has no threads and no clock: its caller passes events with their times, and it returns actions.

mod decide;

use std::{collections::BTreeMap, time::Duration};

/// The length of a turn of a client with enough work, while a program that waits for each short piece of work also
/// wants the GPU.
const TURN: Duration = Duration::from_millis(10);
/// The length of a turn while there is no such program and a round of all VMs takes no longer than [`ROUND`]. A turn
/// loses some time at its ends, so longer turns are more efficient.
const LONG_TURN: Duration = Duration::from_millis(16);
const ROUND: Duration = Duration::from_millis(128);
/// The maximum length of a short piece of work.
const SHORT_BURST: Duration = Duration::from_micros(500);
/// The shortest turn when a VM that is behind becomes active.
const SHORTEST_TURN: Duration = Duration::from_millis(1);
/// The shortest turn of a client that waits for each piece of work: the change to it takes about half as long.
const SHORTEST_SHARE: Duration = Duration::from_micros(250);
/// The maximum number of turns in a row before other VMs are considered again.
const MOST_TURNS: u64 = 16;
/// The minimum number of pieces of work in a turn of a client that waits for each of them, if they are short.
const BURSTS: u64 = 8;
/// The time after its turn for a client to announce its end, before the grant is revoked.
const SLACK: Duration = Duration::from_millis(2);
/// The maximum wait for a revoked lease before other clients run beside it, by the driver's own time slices.
const PATIENCE: Duration = Duration::from_millis(30);
/// The time after the last contention until the remaining VM gets open grants again. Until then its work stays short,
/// because the others may return.
const CALM: Duration = Duration::from_secs(1);

/// A client's number in the scheduler.
pub type Client = u32;

/// The actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Grant the client the GPU without an end. Other clients may have such grants too.
    Open(Client),
    /// Grant the client the GPU while no other client has a grant.
    Pace(Client),
    /// Revoke the grant.
    Revoke(Client),
    /// Send the client the end of its turn; `None` if no client waits for the GPU.
    Until(Client, Option<u64>),
}

impl Action {
    /// The client that the action concerns.
    pub fn client(self) -> Client {
        match self {
            Self::Open(client) | Self::Pace(client) | Self::Revoke(client) => client,
            Self::Until(client, _) => client,
        }
    }
}

/// A client's grant.
#[derive(Debug, Clone, Copy)]
struct Held {
    is_open: bool,
    since: u64,
    /// The length of its turn, in nanoseconds.
    turn: u64,
    /// Its VM's virtual time at the end of the turn, if all of it is used.
    finish: u128,
    /// The end of the client's turn, as sent to it.
    until: Option<u64>,
    /// The time since which it has to be returned: it was revoked, or the client has announced the end of its turn.
    ends: Option<u64>,
    /// Whether the client has announced it: only the last of its work is left.
    is_tail: bool,
}

/// A place in a queue, of a VM or of a client within its VM.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Its virtual time: nanoseconds over weight, times [`SCALE`].
    time: u128,
    /// Whether it wants or has the GPU.
    is_active: bool,
    /// The time since which this is so, in nanoseconds.
    came: u64,
    /// The time at which it last became inactive, in nanoseconds.
    went: Option<u64>,
}

impl Place {
    /// Records whether it is active. A client that becomes active is at most a long turn behind `time`, by its weight;
    /// at most a short turn if it was inactive for longer than a long one.
    fn update(&mut self, is_active: bool, time: u128, weight: u128, now: u64) {
        if is_active && !self.is_active {
            let is_back = self.went.is_some_and(|went| now <= went + nanos(LONG_TURN));
            let behind = nanos(if is_back { LONG_TURN } else { SHORTEST_TURN });
            let start = time.saturating_sub(u128::from(behind) * SCALE / weight);
            self.time = self.time.max(start);
            self.came = now;
        } else if self.is_active && !is_active {
            self.went = Some(now);
        }
        self.is_active = is_active;
    }
}

const SCALE: u128 = 1 << 10;

#[derive(Debug)]
struct Vm {
    place: Place,
    weight: u128,
    /// Whether its clients' work is always kept short.
    is_watched: bool,
    /// The maximum overrun of its clients while it has more than its share, in nanoseconds.
    overrun_limit: Option<u64>,
    /// The current virtual time on its clients' scale.
    time: u128,
    /// The recent length of its turns, in nanoseconds: the longest turn for a VM that always has more work and does not
    /// wait for it. A VM without history counts as one with short turns, so that it is due soon.
    turn: Option<u64>,
}

impl Vm {
    /// Its virtual time after its next turn, which begins at `start`.
    fn finish(&self, start: u128) -> u128 {
        let turn = self.turn.unwrap_or(nanos(SHORTEST_TURN));
        start + u128::from(turn) * SCALE / self.weight
    }

    /// Records the length of a turn.
    fn learn(&mut self, took: u64) {
        let took = took.min(nanos(LONG_TURN));
        self.turn = Some(self.turn.map_or(took, |before| (3 * before + took) / 4));
    }
}

/// The state of a VM apart from its clients.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// Its weight.
    pub weight: u32,
    /// Whether its clients' work is always kept short, so that the time of each kernel can be observed.
    pub is_watched: bool,
    /// The maximum overrun of its clients while it has more than its share.
    pub overrun_limit: Option<Duration>,
}

#[derive(Debug)]
struct Member {
    vm: usize,
    place: Place,
    wants: bool,
    held: Option<Held>,
    /// The time since which a grant is late: its work is still on the GPU.
    overruns: Option<u64>,
    /// The time for which its program keeps the GPU busy before it waits for it, in nanoseconds; 0 if unknown.
    burst: u64,
}

impl Member {
    fn waits(&self) -> bool {
        self.wants && self.held.is_none()
    }

    fn is_on_gpu(&self) -> bool {
        self.held.is_some() || self.overruns.is_some()
    }
}

/// One GPU's queue. Times are nanoseconds of one clock.
#[derive(Debug, Default)]
pub struct Schedule {
    vms: BTreeMap<usize, Vm>,
    clients: BTreeMap<Client, Member>,
    /// The queue's virtual time at the last update.
    time: u128,
    /// The time up to which GPU time was charged.
    charged: u64,
    /// The last time at which several VMs wanted the GPU, in nanoseconds.
    contended: Option<u64>,
    /// The VMs' GPU time since the last query, in nanoseconds.
    had: BTreeMap<usize, u64>,
}

const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Schedule {
    /// The state of a VM, created at its first use.
    pub fn set_vm(&mut self, vm: usize, terms: Terms) {
        let entry = self.vms.entry(vm).or_insert(Vm {
            place: Place::default(),
            weight: 1,
            is_watched: false,
            overrun_limit: None,
            time: 0,
            turn: None,
        });
        entry.weight = terms.weight.max(1).into();
        entry.is_watched = terms.is_watched;
        entry.overrun_limit = terms.overrun_limit.map(nanos);
    }

    /// Adds a client of a VM for which [`Self::set_vm`] was called.
    pub fn join(&mut self, client: Client, vm: usize) {
        let member = Member {
            vm,
            place: Place::default(),
            wants: false,
            held: None,
            overruns: None,
            burst: 0,
        };
        self.clients.insert(client, member);
    }

    /// Removes a client that has ended, with everything that it had on the GPU.
    pub fn leave(&mut self, client: Client, now: u64) {
        self.charge(now);
        self.clients.remove(&client);
    }

    /// Sets whether a client waits for a grant, and the time for which its program keeps the GPU busy at a time, in
    /// nanoseconds.
    pub fn wants(&mut self, client: Client, wants: bool, burst: u64, now: u64) {
        self.charge(now);
        if let Some(member) = self.clients.get_mut(&client) {
            member.wants = wants;
            member.burst = burst;
        }
    }

    /// Records that a client submits no more work in its turn, and that the rest of its work is short.
    pub fn is_ending(&mut self, client: Client, now: u64) {
        self.charge(now);
        let member = self.clients.get_mut(&client);
        if let Some(held) = member.and_then(|member| member.held.as_mut())
            && !held.is_open
        {
            held.ends.get_or_insert(now);
            held.is_tail = true;
        }
    }

    /// Records that a client has returned its grant, and has no work on the GPU.
    pub fn came_back(&mut self, client: Client, now: u64) {
        self.charge(now);
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        member.overruns = None;
        if let (Some(held), Some(vm)) = (member.held.take(), self.vms.get_mut(&member.vm))
            && !held.is_open
        {
            // A turn that ended although there was more work does not show the client's need.
            let had_more = held.ends.is_some() || held.until.is_some_and(|until| until <= now);
            let took = now.saturating_sub(held.since);
            vm.learn(if had_more { took.max(held.turn) } else { took });
        }
    }

    /// Records that the late work of a client has completed.
    pub fn overrun_ended(&mut self, client: Client, now: u64) {
        self.charge(now);
        if let Some(member) = self.clients.get_mut(&client) {
            member.overruns = None;
        }
    }

    /// Whether a client has the GPU for a turn, or has not returned it yet.
    pub fn is_paced(&self) -> bool {
        let is_paced = |member: &Member| {
            member.overruns.is_some() || member.held.is_some_and(|held| !held.is_open)
        };
        self.clients.values().any(is_paced)
    }

    /// Each VM's GPU time since the last query, in nanoseconds, except under open grants.
    pub fn take_had(&mut self) -> BTreeMap<usize, u64> {
        std::mem::take(&mut self.had)
    }

    /// The clients that have overrun beyond their limit, in a VM that has had more than its share since. As long as a
    /// client that overruns gets no more than its share, by the driver's time slices, no other VM loses by it.
    pub fn overrunning(&mut self, now: u64) -> Vec<Client> {
        self.charge(now);
        let is_over = |(name, member): (&Client, &Member)| {
            let limit = self.vms.get(&member.vm)?.overrun_limit?;
            let late = now.saturating_sub(member.overruns?) >= limit;
            // The time before the overrun is not counted.
            let margin = 2 * nanos(PATIENCE) + limit / 32;
            (late && self.excess(member.vm) > margin).then_some(*name)
        };
        self.clients.iter().filter_map(is_over).collect()
    }

    /// The GPU time that a VM had beyond its share, relative to the active VM with the least, in nanoseconds.
    fn excess(&self, vm: usize) -> u64 {
        let Some(own) = self.vms.get(&vm) else {
            return 0;
        };
        let others = self
            .vms
            .iter()
            .filter(|(number, of)| **number != vm && of.place.is_active);
        let least = others.map(|(_, of)| of.place.time).min();
        let ahead = least.map_or(0, |least| own.place.time.saturating_sub(least));
        u64::try_from(ahead * own.weight / SCALE).unwrap_or(u64::MAX)
    }

    /// The sum of the weights of all active VMs.
    fn active_weight(&self) -> u128 {
        let active = self.vms.values().filter(|vm| vm.place.is_active);
        active.map(|vm| vm.weight).sum()
    }

    /// The weighted mean of the virtual times of all active VMs. A VM that is far ahead, because one of its kernels was
    /// long, counts as two turns ahead of the last: one long kernel must not determine the others' mean.
    fn mean_time(&self) -> Option<u128> {
        let active = || self.vms.values().filter(|vm| vm.place.is_active);
        let least = active().map(|vm| vm.place.time).min()?;
        let most = |vm: &Vm| 2 * u128::from(nanos(TURN)) * SCALE / vm.weight;
        let ahead = active().map(|vm| (vm.place.time - least).min(most(vm)) * vm.weight);
        Some(least + ahead.sum::<u128>() / self.active_weight().max(1))
    }

    /// Charges the time since the last call.
    fn charge(&mut self, now: u64) {
        let passed = now.saturating_sub(self.charged);
        self.charged = self.charged.max(now);
        let sharing = self.clients.values().filter(|member| member.is_on_gpu());
        let sharing = sharing.count() as u64;
        if passed == 0 || sharing == 0 {
            return;
        }
        let is_contended = !self.is_alone();
        let each = passed / sharing;
        for member in self
            .clients
            .values_mut()
            .filter(|member| member.is_on_gpu())
        {
            if !member.held.is_some_and(|held| held.is_open) {
                *self.had.entry(member.vm).or_default() += each;
            }
            if let Some(vm) = self.vms.get_mut(&member.vm).filter(|_| is_contended) {
                vm.place.time += u128::from(each) * SCALE / vm.weight;
            }
            member.place.time += u128::from(each) * SCALE;
        }
    }

    /// The length of the longest turn at present, in nanoseconds.
    fn longest_turn(&self) -> u64 {
        let is_short = |member: &Member| (1..=nanos(SHORT_BURST)).contains(&member.burst);
        let active = |member: &&Member| member.wants || member.is_on_gpu();
        if self.clients.values().filter(active).any(is_short) {
            return nanos(TURN);
        }
        let vms = self.vms.values().filter(|vm| vm.place.is_active).count();
        (nanos(ROUND) / vms.max(1) as u64).clamp(nanos(TURN), nanos(LONG_TURN))
    }

    /// Whether at most one VM wants or has the GPU.
    fn is_alone(&self) -> bool {
        let active = |member: &&Member| member.wants || member.is_on_gpu();
        let mut vms = self.clients.values().filter(active).map(|member| member.vm);
        let first = vms.next();
        vms.all(|vm| Some(vm) == first)
    }
}

#[cfg(test)]
mod tests;
