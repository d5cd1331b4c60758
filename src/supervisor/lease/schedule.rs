//! Who has a GPU next: weighted fair queueing over measured GPU time.
//!
//! Every VM has a *virtual time*: the GPU time that it had while others wanted the GPU too, divided by its weight. The VM goes next whose virtual time
//! will be least after its turn, so shares follow weights whatever the length of kernels, and nothing is set aside for who wants nothing. A VM
//! that comes back after a while starts where the others are, or a turn before (it cannot save more up), and one that had too much,
//! because a kernel of it ran on, waits until the others have had as much. Deficit round robin gives the same shares; what this adds is
//! that a VM whose turns are short goes next instead of waiting for a whole round of the others. (Demers, Keshav, Shenker: Analysis and
//! Simulation of a Fair Queueing Algorithm, 1989; the start tags are those of Goyal, Vin, Cheng: Start-time Fair Queueing, 1996.)
//!
//! Within a VM its clients take turns in the same way, so that a VM with eight processes has one VM's share.
//!
//! While only one VM wants the GPU, its clients hold *open* grants at the same time, without an end. When others want it too, grants are revoked, and then
//! one client at a time has a *paced* grant for [`TURN`].
//!
//! This module knows neither threads nor clocks: it is told what happened and when, and says what to do.

use std::{collections::BTreeMap, time::Duration};

/// How long a client has the GPU, if it has so much to do.
pub const TURN: Duration = Duration::from_millis(10);
/// How long it has it at least when a VM that is behind comes.
const SHORTEST_TURN: Duration = Duration::from_millis(1);
/// How long a revoked lease may take to come back before others go on beside it, by the driver's own time slices.
const PATIENCE: Duration = Duration::from_millis(30);
/// How long after several VMs wanted the GPU the one that is left has it open again: until then what it
/// gives the GPU is kept short, for the others may be back.
const CALM: Duration = Duration::from_secs(1);

/// A client's name here.
pub type Client = u32;

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Give the client a grant that others may have beside it, without an end.
    Open(Client),
    /// Give the client a grant while no other client has one.
    Pace(Client),
    /// Take the grant back.
    Revoke(Client),
}

/// A client's grant.
#[derive(Debug, Clone, Copy)]
struct Held {
    is_open: bool,
    since: u64,
    /// Its VM's virtual time at the end of the turn, if all of it is used.
    finish: u128,
    /// Since when it is to come back.
    revoked: Option<u64>,
}

/// A place in a queue, of a VM or of a client within its VM.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Its virtual time: nanoseconds over weight, times [`SCALE`].
    time: u128,
    /// Whether it wants or has the GPU.
    is_active: bool,
    /// Since when.
    came: u64,
}

impl Place {
    /// Takes note of whether it is active; one that has become so is not behind `start`.
    fn update(&mut self, is_active: bool, start: u128, now: u64) {
        if is_active && !self.is_active {
            self.time = self.time.max(start);
            self.came = now;
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
    /// Where its clients' times are.
    time: u128,
    /// How long its turns are, in nanoseconds: [`TURN`] for one that always has more to do.
    turn: u64,
}

impl Vm {
    /// Its virtual time after its next turn.
    fn finish(&self) -> u128 {
        self.place.time + u128::from(self.turn) * SCALE / self.weight
    }

    /// Takes note of a turn that was as long as it was because there was no more to do, or was taken back.
    fn learn(&mut self, took: u64, taken_back: bool) {
        let took = if taken_back { nanos(TURN) } else { took };
        self.turn = ((3 * self.turn + took) / 4).min(nanos(TURN));
    }
}

#[derive(Debug)]
struct Member {
    vm: usize,
    place: Place,
    wants: bool,
    held: Option<Held>,
    /// A grant did not come back in time: its work is still on the GPU.
    overruns: bool,
}

impl Member {
    fn waits(&self) -> bool {
        self.wants && self.held.is_none()
    }

    fn is_on_gpu(&self) -> bool {
        self.held.is_some() || self.overruns
    }
}

/// One GPU's queue. Times are nanoseconds of one clock.
#[derive(Debug, Default)]
pub struct Schedule {
    vms: BTreeMap<usize, Vm>,
    clients: BTreeMap<Client, Member>,
    /// Where the VMs' times are.
    time: u128,
    /// Until when times have been charged.
    charged: u64,
    /// When several VMs wanted the GPU last.
    contended: Option<u64>,
    /// What VMs had of the GPU since it was asked.
    had: BTreeMap<usize, u64>,
}

const fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}

impl Schedule {
    /// A VM's weight, and whether its clients' work is always kept short, so that one can see how long each kernel takes.
    pub fn set_vm(&mut self, vm: usize, weight: u32, is_watched: bool) {
        let entry = self.vms.entry(vm).or_insert(Vm {
            place: Place::default(),
            weight: 1,
            is_watched,
            time: 0,
            turn: 0,
        });
        entry.weight = weight.max(1).into();
        entry.is_watched = is_watched;
    }

    /// A client of a VM that was set.
    pub fn join(&mut self, client: Client, vm: usize) {
        let member = Member {
            vm,
            place: Place::default(),
            wants: false,
            held: None,
            overruns: false,
        };
        self.clients.insert(client, member);
    }

    /// A client is gone, and with it all that it had on the GPU.
    pub fn leave(&mut self, client: Client, now: u64) {
        self.charge(now);
        self.clients.remove(&client);
    }

    /// Whether a client waits for a grant.
    pub fn wants(&mut self, client: Client, wants: bool, now: u64) {
        self.charge(now);
        if let Some(member) = self.clients.get_mut(&client) {
            member.wants = wants;
        }
    }

    /// The client has given back what it held, and nothing of it is on the GPU.
    pub fn came_back(&mut self, client: Client, now: u64) {
        self.charge(now);
        let Some(member) = self.clients.get_mut(&client) else {
            return;
        };
        member.overruns = false;
        if let (Some(held), Some(vm)) = (member.held.take(), self.vms.get_mut(&member.vm))
            && !held.is_open
        {
            vm.learn(now.saturating_sub(held.since), held.revoked.is_some());
        }
    }

    /// What is left of a grant that did not come back in time is over.
    pub fn overrun_ended(&mut self, client: Client, now: u64) {
        self.charge(now);
        if let Some(member) = self.clients.get_mut(&client) {
            member.overruns = false;
        }
    }

    /// Whether a client has the GPU for a turn, or has not given it back yet.
    pub fn is_paced(&self) -> bool {
        let is_paced =
            |member: &Member| member.overruns || member.held.is_some_and(|held| !held.is_open);
        self.clients.values().any(is_paced)
    }

    /// What each VM had of the GPU since this was asked last, in nanoseconds; not while it had it open.
    pub fn take_had(&mut self) -> BTreeMap<usize, u64> {
        std::mem::take(&mut self.had)
    }

    /// Charges what passed since the last time.
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

    /// Whether no more than one VM wants or has the GPU.
    fn is_alone(&self) -> bool {
        let active = |member: &&Member| member.wants || member.is_on_gpu();
        let mut vms = self.clients.values().filter(active).map(|member| member.vm);
        let first = vms.next();
        vms.all(|vm| Some(vm) == first)
    }

    /// Decides; to be called after anything has happened, and at the time that it said last.
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
        let to_calm = is_alone && now < calm && self.clients.values().any(Member::is_on_gpu);
        let ends = self.clients.values().filter_map(|member| self.end(member));
        let look = ends.chain(to_calm.then_some(calm)).min();
        (actions, look)
    }

    /// When a client's grant is to be taken back, or not to be waited for any more.
    fn end(&self, member: &Member) -> Option<u64> {
        let held = member.held?;
        if let Some(revoked) = held.revoked {
            return Some(revoked + nanos(PATIENCE));
        }
        let mut waiting = self.clients.values().filter(|member| member.waits());
        if held.is_open {
            return waiting
                .any(|other| other.vm != member.vm)
                .then_some(held.since);
        }
        let mut is_waiting = false;
        // One that came meanwhile and is behind need not wait for the end of the turn.
        let someone_is_behind = waiting.any(|other| {
            is_waiting = true;
            let is_behind = |vm: &Vm| vm.place.came > held.since && vm.finish() < held.finish;
            other.vm != member.vm && self.vms.get(&other.vm).is_some_and(is_behind)
        });
        let turn = if someone_is_behind {
            SHORTEST_TURN
        } else {
            TURN
        };
        is_waiting.then_some(held.since + nanos(turn))
    }

    /// Gives places to those that have become active: no more than a turn behind the others.
    fn place(&mut self, now: u64) {
        let turn = u128::from(nanos(TURN)) * SCALE;
        let active = self.vms.values().filter(|vm| vm.place.is_active);
        let least = active.map(|vm| vm.place.time).min();
        self.time = self.time.max(least.unwrap_or(0));
        for (number, vm) in &mut self.vms {
            let mut is_active = false;
            let members = self.clients.values_mut();
            for member in members.filter(|member| member.vm == *number) {
                let wants = member.wants || member.held.is_some();
                member
                    .place
                    .update(wants, vm.time.saturating_sub(turn), now);
                is_active |= wants;
            }
            let start = self.time.saturating_sub(turn / vm.weight);
            vm.place.update(is_active, start, now);
        }
    }

    /// Takes grants back whose time is over, and gives those up that do not come.
    fn revoke(&mut self, now: u64, actions: &mut Vec<Action>) {
        let ended = |(name, member): (&Client, &Member)| {
            let is_over = self.end(member).is_some_and(|end| end <= now);
            is_over.then_some(*name)
        };
        let ended: Vec<Client> = self.clients.iter().filter_map(ended).collect();
        for name in ended {
            let Some(member) = self.clients.get_mut(&name) else {
                continue;
            };
            match &mut member.held {
                Some(held) if held.revoked.is_none() => {
                    held.revoked = Some(now);
                    actions.push(Action::Revoke(name));
                }
                _ => {
                    member.held = None;
                    member.overruns = true;
                    if let Some(vm) = self.vms.get_mut(&member.vm) {
                        vm.learn(0, true);
                    }
                }
            }
        }
    }

    /// Gives the GPU to who is next, if it is free.
    fn give(&mut self, may_open: bool, actions: &mut Vec<Action>, now: u64) {
        let held = || self.clients.values().filter_map(|member| member.held);
        if held().any(|held| held.revoked.is_some()) {
            return;
        }
        let is_open = held().any(|held| held.is_open);
        let is_paced = held().any(|held| !held.is_open);
        let grant = |is_open, vm: &Vm| {
            Some(Held {
                is_open,
                since: now,
                finish: vm.place.time + u128::from(nanos(TURN)) * SCALE / vm.weight,
                revoked: None,
            })
        };
        if may_open || is_open {
            // All of them are of one VM, or there would be a revocation under way.
            for (name, member) in &mut self.clients {
                let Some(vm) = self.vms.get(&member.vm).filter(|vm| !vm.is_watched) else {
                    continue;
                };
                let is_paced = member.held.is_some_and(|held| !held.is_open);
                if member.waits() || is_paced {
                    member.held = grant(true, vm);
                    self.time = self.time.max(vm.place.time);
                    actions.push(Action::Open(*name));
                }
            }
        }
        if is_open || is_paced || self.clients.values().any(|member| member.held.is_some()) {
            return;
        }
        let finish = |vm: &usize| self.vms.get(vm).map(Vm::finish);
        let waiting = self.clients.values().filter(|member| member.waits());
        let Some(next) = waiting.map(|member| member.vm).min_by_key(finish) else {
            return;
        };
        let members = self.clients.iter_mut();
        let of_next = members.filter(|(_, member)| member.vm == next && member.waits());
        let first = of_next.min_by_key(|(_, member)| member.place.time);
        if let (Some((name, member)), Some(vm)) = (first, self.vms.get_mut(&next)) {
            member.held = grant(false, vm);
            vm.time = vm.time.max(member.place.time);
            actions.push(Action::Pace(*name));
        }
    }
}

#[cfg(test)]
mod tests;
