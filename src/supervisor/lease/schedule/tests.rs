// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The queue, with a GPU and clients that the test simulates.

use std::collections::BTreeSet;

use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// The time from a grant to the start of the client's work.
const SWITCH: u64 = 100 * US;
/// The time before the end of its work at which a client announces the end of its turn.
const LEAD: u64 = 100 * US;
/// The time for which an idle client keeps its grant: if it usually has new work by then, and if not.
const GRACE: (u64, u64) = (MS, 50 * US);

/// A VM with this weight, whose work is not watched and which may overrun.
fn weighing(weight: u32) -> Terms {
    Terms {
        weight,
        is_watched: false,
        overrun_limit: None,
    }
}

/// The behaviour of a client.
#[derive(Debug, Clone, Copy)]
struct Load {
    vm: usize,
    /// The run time of each kernel.
    kernel: u64,
    /// Its pause after a kernel; 0 for a program that submits kernels ahead.
    think: u64,
    /// Whether its client reports for how long it keeps the GPU busy at a time.
    is_known: bool,
}

impl Load {
    fn burst(&self) -> u64 {
        match (self.is_known, self.think) {
            (false, _) => 0,
            (true, 0) => 10 * MS,
            (true, _) => self.kernel,
        }
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Running {
    /// The time from which it has work, in nanoseconds.
    ready: u64,
    asked: Option<u64>,
    wants: bool,
    holds: bool,
    is_open: bool,
    /// Whether nothing more begins under this grant.
    is_over: bool,
    said_so: bool,
    has_begun: bool,
    until: Option<u64>,
    /// The time of its kernel's end, in nanoseconds.
    ends: Option<u64>,
    idle_since: Option<u64>,
}

/// The results, by client and by VM.
#[derive(Debug, Default)]
struct Outcome {
    worked: BTreeMap<Client, u64>,
    by_vm: BTreeMap<usize, u64>,
    waits: BTreeMap<Client, Vec<u64>>,
    /// GPU time by VM in each tenth of a second.
    windows: Vec<BTreeMap<usize, u64>>,
}

impl Outcome {
    fn work(&mut self, id: Client, load: &Load, now: u64) {
        *self.worked.entry(id).or_default() += load.kernel;
        *self.by_vm.entry(load.vm).or_default() += load.kernel;
        let window = (now / (100 * MS)) as usize;
        let most = self.windows.len().max(window + 1);
        self.windows.resize_with(most, BTreeMap::new);
        *self.windows[window].entry(load.vm).or_default() += load.kernel;
    }

    fn worst_wait(&self, id: Client) -> u64 {
        self.waits[&id].iter().copied().max().unwrap()
    }

    /// The wait that one of a hundred kernels exceeds; kernels that did not wait are included.
    fn wait_of_99_in_100(&self, id: Client, load: &Load) -> u64 {
        let kernels = (self.worked[&id] / load.kernel) as usize;
        let mut waits = self.waits[&id].clone();
        waits.sort_unstable_by(|a, b| b.cmp(a));
        waits.get(kernels / 100).copied().unwrap_or(0)
    }
}

impl Running {
    /// One step of a client that has the GPU; returns whether the scheduler must decide.
    fn go_on(
        &mut self,
        id: Client,
        load: &Load,
        schedule: &mut Schedule,
        now: u64,
        outcome: &mut Outcome,
    ) -> bool {
        let has_work = self.ready <= now && self.ends.is_none();
        let is_late = |until| now + load.kernel / 2 > until && self.has_begun;
        if !self.is_open && self.ends.is_none() && self.until.is_some_and(is_late) {
            self.is_over = true;
        }
        if self.is_over {
            let left = self.ends.map_or(0, |ends| ends.saturating_sub(now));
            if self.ends.is_none() {
                self.holds = false;
                schedule.came_back(id, now);
                return true;
            }
            let says_so = left <= LEAD && self.until.is_some() && !self.said_so;
            if says_so {
                self.said_so = true;
                schedule.is_ending(id, now);
            }
            return says_so;
        }
        if has_work {
            self.idle_since = None;
            self.has_begun = true;
            self.ends = Some(now + load.kernel);
            // All begin together, so the waits of the first round are not representative.
            if let Some(asked) = self.asked.take().filter(|_| now > 200 * MS) {
                outcome.waits.entry(id).or_default().push(now - asked);
            }
            // It ends its turn with its last kernel.
            let next = now + load.kernel + load.kernel / 2;
            self.is_over = !self.is_open && self.until.is_some_and(|until| next > until);
        } else if self.ends.is_none() && self.asked.is_none() && !self.is_open {
            let since = *self.idle_since.get_or_insert(now);
            let grace = if load.think <= GRACE.0 {
                GRACE.0
            } else {
                GRACE.1
            };
            if now - since > grace {
                self.holds = false;
                schedule.came_back(id, now);
                return true;
            }
        }
        false
    }
}

/// Simulates `length` of time, in steps of ten microseconds.
fn play(weights: &[u32], loads: &[Load], length: u64) -> Outcome {
    let mut schedule = Schedule::default();
    for (vm, weight) in weights.iter().enumerate() {
        schedule.set_vm(vm, weighing(*weight));
    }
    for (client, load) in loads.iter().enumerate() {
        schedule.join(client as Client, load.vm);
    }
    let mut clients = vec![Running::default(); loads.len()];
    let mut outcome = Outcome::default();
    let mut now = 0;
    let mut look = Some(0);
    while now < length {
        let mut changed = look.is_some_and(|look| look <= now);
        let on_gpu = clients
            .iter()
            .filter(|client| client.ends.is_some())
            .count() as u64;
        for (name, client) in clients.iter_mut().enumerate() {
            let load = &loads[name];
            let id = name as Client;
            if let Some(ends) = client.ends {
                // Kernels that run on the GPU together slow each other down.
                client.ends = Some(ends + 10 * US * (on_gpu - 1) / on_gpu);
                if ends <= now {
                    client.ends = None;
                    client.ready = now + load.think;
                    outcome.work(id, load, now);
                }
            }
            if client.holds {
                changed |= client.go_on(id, load, &mut schedule, now, &mut outcome);
            }
            let has_work = client.ready <= now && client.ends.is_none();
            if !client.holds && has_work && !client.wants {
                client.asked.get_or_insert(now);
                client.wants = true;
                schedule.wants(id, true, load.burst(), now);
                changed = true;
            }
        }
        if changed {
            let (actions, next) = schedule.decide(now);
            look = next;
            for action in actions {
                match action {
                    Action::Open(id) | Action::Pace(id) => {
                        let client = &mut clients[id as usize];
                        let burst = loads[id as usize].burst();
                        *client = Running {
                            ready: client.ready.max(now + SWITCH),
                            asked: client.asked,
                            holds: true,
                            is_open: matches!(action, Action::Open(_)),
                            ends: client.ends,
                            ..Running::default()
                        };
                        schedule.wants(id, false, burst, now);
                    }
                    Action::Revoke(id) => clients[id as usize].is_over = true,
                    Action::Until(id, until) => clients[id as usize].until = until,
                }
            }
        }
        now += 10 * US;
    }
    outcome
}

fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    sum * sum / (values.len() as f64 * squares)
}

fn load(vm: usize, kernel: u64) -> Load {
    Load {
        vm,
        kernel,
        think: 0,
        is_known: true,
    }
}

#[test]
fn shares_are_equal_whatever_the_kernels_and_the_processes() {
    let mut loads = vec![
        load(0, 100 * US),
        load(1, 5 * MS),
        load(2, 700 * US),
        load(3, 20 * MS),
    ];
    loads.extend((0..8).map(|_| load(4, MS)));
    let outcome = play(&[100; 5], &loads, 4_000 * MS);
    let shares: Vec<f64> = outcome.by_vm.values().map(|time| *time as f64).collect();
    assert!(jain(&shares) > 0.999, "{shares:?}");
    // Over any two seconds too.
    for window in outcome.windows.windows(20) {
        let shares: Vec<f64> = (0..5)
            .map(|vm| window.iter().filter_map(|part| part.get(&vm)).sum::<u64>() as f64)
            .collect();
        assert!(jain(&shares) > 0.99, "{shares:?}");
    }
    let sum: u64 = outcome.by_vm.values().sum();
    assert!(sum > 3_880 * MS, "the GPU was idle: {sum}");
    let processes: Vec<f64> = (4..12).map(|id| outcome.worked[&id] as f64).collect();
    assert!(jain(&processes) > 0.99, "{processes:?}");
}

#[test]
fn shares_follow_weights() {
    let loads = [load(0, 300 * US), load(1, 5 * MS), load(2, MS)];
    let outcome = play(&[100, 200, 400], &loads, 5_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    for (vm, share) in [(0, 1.0 / 7.0), (1, 2.0 / 7.0), (2, 4.0 / 7.0)] {
        let had = outcome.by_vm[&vm] as f64 / sum as f64;
        assert!(
            (had / share - 1.0).abs() < 0.03,
            "VM {vm} had {had}, not {share}"
        );
    }
}

#[test]
fn unused_time_goes_to_the_others() {
    let mut loads = vec![load(0, MS), load(1, MS)];
    loads.push(Load {
        vm: 2,
        kernel: 100 * US,
        think: 2 * MS,
        is_known: true,
    });
    let outcome = play(&[100, 100, 800], &loads, 3_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    assert!(sum > 2_600 * MS, "{:?}", outcome.by_vm);
    let rest = [outcome.by_vm[&0] as f64, outcome.by_vm[&1] as f64];
    assert!(jain(&rest) > 0.999, "{rest:?}");
}

#[test]
fn one_that_waits_for_each_kernel_has_its_share_and_no_more() {
    let loads = [
        load(0, 100 * US),
        load(1, 5 * MS),
        load(2, 500 * US),
        Load {
            vm: 3,
            kernel: MS,
            think: 150 * US,
            is_known: true,
        },
    ];
    let outcome = play(&[100; 4], &loads, 4_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    let share = outcome.by_vm[&3] as f64 / sum as f64;
    // It is charged for the pauses during which it makes others wait.
    assert!((0.2..0.26).contains(&share), "{share}");
    let outcome = play(&[100, 200, 100, 800], &loads, 4_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    let share = outcome.by_vm[&3] as f64 / sum as f64;
    assert!((0.56..0.68).contains(&share), "{share}");
}

#[test]
fn one_with_little_to_do_waits_for_one_turn_and_not_for_a_round() {
    let mut loads: Vec<Load> = (0..7).map(|vm| load(vm, 5 * MS)).collect();
    loads.push(Load {
        vm: 7,
        kernel: 100 * US,
        think: 5 * MS,
        is_known: true,
    });
    let outcome = play(&[100; 8], &loads, 3_000 * MS);
    // One kernel that runs, and another that began before the revocation arrived.
    let worst = outcome.worst_wait(7);
    assert!(worst <= 11 * MS, "{} µs", worst / US);
}

#[test]
fn one_that_keeps_coming_back_gets_no_more_than_its_share() {
    // It returns the lease after each kernel, and requests it again.
    let mut loads: Vec<Load> = (0..3).map(|vm| load(vm, MS)).collect();
    loads.push(Load {
        vm: 3,
        kernel: 5 * MS,
        think: 300 * US,
        is_known: true,
    });
    let outcome = play(&[100; 4], &loads, 3_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    let share = outcome.by_vm[&3] as f64 / sum as f64;
    assert!(share < 0.26, "{share}");
}

/// The decisions, without the ends of turns.
fn grants(schedule: &mut Schedule, now: u64) -> Vec<Action> {
    let (mut actions, _) = schedule.decide(now);
    actions.retain(|action| !matches!(action, Action::Until(..)));
    actions
}

#[test]
fn alone_the_gpu_is_open_and_stays_so() {
    let mut schedule = Schedule::default();
    schedule.set_vm(0, weighing(100));
    schedule.set_vm(1, weighing(100));
    schedule.join(1, 0);
    schedule.join(2, 0);
    schedule.wants(1, true, 10 * MS, 5);
    assert_eq!(schedule.decide(5), (vec![Action::Open(1)], None));
    schedule.wants(1, false, 10 * MS, 6);
    schedule.wants(2, true, 10 * MS, 7);
    assert_eq!(schedule.decide(7), (vec![Action::Open(2)], None));
    schedule.wants(2, false, 10 * MS, 8);
    assert_eq!(schedule.decide(900 * MS), (vec![], None));
    assert!(schedule.take_had().is_empty(), "it is sampled instead");
    // Another VM becomes active: both grants are revoked before it gets one.
    schedule.join(3, 1);
    schedule.wants(3, true, 10 * MS, 1000 * MS);
    let (actions, _) = schedule.decide(1000 * MS);
    assert_eq!(actions, [Action::Revoke(1), Action::Revoke(2)]);
    schedule.came_back(1, 1001 * MS);
    assert_eq!(grants(&mut schedule, 1001 * MS), []);
    schedule.came_back(2, 1002 * MS);
    assert_eq!(grants(&mut schedule, 1002 * MS), [Action::Pace(3)]);
}

#[test]
fn after_a_while_alone_it_is_open_again() {
    let mut schedule = Schedule::default();
    schedule.set_vm(0, weighing(100));
    schedule.set_vm(1, weighing(100));
    schedule.join(1, 0);
    schedule.join(2, 1);
    schedule.wants(1, true, 10 * MS, 0);
    schedule.wants(2, true, 10 * MS, 0);
    assert_eq!(grants(&mut schedule, 0), [Action::Pace(1)]);
    schedule.wants(1, false, 10 * MS, MS);
    schedule.leave(2, 2 * MS);
    let (actions, look) = schedule.decide(2 * MS);
    assert_eq!(actions, [Action::Until(1, None)]);
    let look = look.unwrap();
    assert!(look > 900 * MS, "not at once");
    assert_eq!(grants(&mut schedule, look), [Action::Open(1)]);
}

#[test]
fn a_lease_that_does_not_come_back_is_not_waited_for_and_is_paid_for() {
    let mut schedule = Schedule::default();
    for vm in 0..2 {
        schedule.set_vm(vm, weighing(100));
        schedule.join(vm as Client, vm);
        schedule.wants(vm as Client, true, 10 * MS, 0);
    }
    assert_eq!(grants(&mut schedule, 0), [Action::Pace(0)]);
    schedule.wants(0, false, 10 * MS, MS);
    assert_eq!(
        grants(&mut schedule, 17 * MS),
        [],
        "it ends its turn itself"
    );
    assert_eq!(grants(&mut schedule, 18 * MS), [Action::Revoke(0)]);
    let (actions, look) = schedule.decide(26 * MS);
    assert_eq!(actions, []);
    let patience = look.unwrap();
    assert_eq!(grants(&mut schedule, patience), [Action::Pace(1)]);
    // A kernel of client 0 runs for half a second, beside client 1, which continues.
    schedule.wants(0, true, 10 * MS, patience);
    let mut now = patience;
    for _ in 0..50 {
        now += 10 * MS;
        for action in grants(&mut schedule, now) {
            match action {
                Action::Revoke(client) => schedule.came_back(client, now),
                Action::Pace(client) => assert_eq!(client, 1, "client 0 has had more"),
                Action::Open(_) => panic!("two VMs want it"),
                Action::Until(..) => {}
            }
        }
        schedule.wants(1, true, 10 * MS, now);
        for action in grants(&mut schedule, now) {
            assert_ne!(action, Action::Pace(0), "client 0 has had more");
        }
    }
    let had = schedule.take_had();
    assert!(had[&0] > 250 * MS, "{had:?}");
    schedule.overrun_ended(0, now);
}

#[test]
fn a_watched_client_is_paced_even_alone() {
    let mut schedule = Schedule::default();
    schedule.set_vm(
        0,
        Terms {
            is_watched: true,
            ..weighing(100)
        },
    );
    schedule.join(1, 0);
    schedule.wants(1, true, 10 * MS, 0);
    assert_eq!(grants(&mut schedule, 0), [Action::Pace(1)]);
    schedule.wants(1, false, 10 * MS, 1);
    assert_eq!(grants(&mut schedule, 60_000 * MS), []);
}

#[test]
fn one_that_waits_for_each_short_kernel_is_due_after_each_turn_of_another() {
    let short = Load {
        vm: 7,
        kernel: 100 * US,
        think: 10 * US,
        is_known: true,
    };
    for is_known in [true, false] {
        let long = |vm| Load {
            is_known,
            ..load(vm, 5 * MS)
        };
        let mut loads: Vec<Load> = (0..7).map(long).collect();
        loads.push(short);
        let outcome = play(&[100; 8], &loads, 4_000 * MS);
        let late = outcome.wait_of_99_in_100(7, &short);
        assert!(late <= 11 * MS, "{} µs", late / US);
        let worst = outcome.worst_wait(7);
        assert!(worst <= 22 * MS, "{} µs", worst / US);
        // It still has its share, less the time of the switches to it.
        let sum: u64 = outcome.by_vm.values().sum();
        let share = outcome.by_vm[&7] as f64 / sum as f64;
        assert!((0.08..0.14).contains(&share), "{share}");
    }
}

#[test]
fn turns_are_shorter_while_a_program_with_short_work_wants_the_gpu() {
    for (burst, turn) in [(100 * US, 10 * MS), (5 * MS, 16 * MS), (0, 16 * MS)] {
        let mut schedule = Schedule::default();
        for client in 0..3 {
            schedule.set_vm(client as usize, weighing(100));
            schedule.join(client, client as usize);
        }
        schedule.wants(0, true, 10 * MS, 0);
        schedule.wants(1, true, 10 * MS, 0);
        schedule.wants(2, true, burst, 0);
        let (actions, _) = schedule.decide(0);
        assert_eq!(actions, [Action::Pace(0), Action::Until(0, Some(turn))]);
        // This also holds if a round of all takes long.
        for client in 3..16 {
            schedule.set_vm(client as usize, weighing(100));
            schedule.join(client, client as usize);
            schedule.wants(client, true, 10 * MS, 0);
        }
        schedule.came_back(0, MS);
        let grant = schedule.decide(MS).0;
        let ends = |action: &Action| match action {
            Action::Until(_, until) => *until,
            _ => None,
        };
        assert_eq!(grant.iter().find_map(ends), Some(11 * MS), "{grant:?}");
    }
}

#[test]
fn turns_follow_each_other_without_a_gap() {
    let loads = [load(0, MS), load(1, 5 * MS), load(2, 100 * US)];
    let outcome = play(&[100; 3], &loads, 3_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    assert!(sum > 2_980 * MS, "the GPU was idle: {sum}");
}

/// Clients of some VMs each have a kernel that never ends. The last client works in turns beside them, from the
/// returned time on.
fn overrun(vms: &[usize], limit: u64) -> (Schedule, u64) {
    let mut schedule = Schedule::default();
    let mut now = 0;
    for (client, vm) in vms.iter().enumerate() {
        let terms = Terms {
            overrun_limit: Some(Duration::from_nanos(limit)),
            ..weighing(1)
        };
        schedule.set_vm(*vm, terms);
        schedule.join(client as Client, *vm);
        schedule.wants(client as Client, true, 10 * MS, now);
        // No client returns its grant.
        let client = client as Client;
        while !grants(&mut schedule, now)
            .iter()
            .any(|action| *action == Action::Open(client) || *action == Action::Pace(client))
        {
            now += MS;
        }
        schedule.wants(client, false, 10 * MS, now);
    }
    let worker = vms.len() as Client;
    schedule.set_vm(100, weighing(10_000));
    schedule.join(worker, 100);
    schedule.wants(worker, true, 10 * MS, now);
    (schedule, now)
}

#[test]
fn those_that_overrun_beside_more_weight_are_found() {
    // All of one VM, and each of a VM of its own.
    for vms in [vec![0; 16], (0..16).collect()] {
        let (mut schedule, start) = overrun(&vms, 500 * MS);
        let mut late = BTreeSet::new();
        for now in (0..2_000).map(|ms| start + ms * MS) {
            for action in schedule.decide(now).0 {
                if action == Action::Revoke(16) {
                    schedule.came_back(16, now);
                }
            }
            for client in schedule.overrunning(now) {
                let is_early = now < start + 500 * MS;
                assert!(vms[1] != 0 || !is_early, "it may overrun for so long");
                schedule.leave(client, now);
                late.insert(client);
            }
        }
        assert_eq!(late, (0..16).collect(), "{vms:?}");
    }
}

#[test]
fn one_that_overruns_within_its_share_is_left_alone() {
    let mut schedule = Schedule::default();
    for vm in 0..2 {
        let terms = Terms {
            overrun_limit: Some(Duration::from_secs(5)),
            ..weighing(100)
        };
        schedule.set_vm(vm, terms);
        schedule.join(vm as Client, vm);
    }
    // One kernel of VM 0 runs on, and the GPU's own time slices give VM 1 the other half.
    schedule.wants(0, true, 10 * MS, 0);
    schedule.decide(0);
    schedule.wants(0, false, 10 * MS, MS);
    schedule.wants(1, true, 10 * MS, MS);
    for now in (1..20_000).map(|ms| ms * MS) {
        schedule.decide(now);
        assert!(schedule.overrunning(now).is_empty(), "after {now}");
    }
}

#[test]
fn a_vm_whose_kernels_get_a_limit_loses_its_open_grants() {
    let mut schedule = Schedule::default();
    let watched = Terms {
        is_watched: true,
        ..weighing(1)
    };
    schedule.set_vm(0, weighing(1));
    schedule.join(1, 0);
    schedule.join(2, 0);
    schedule.wants(1, true, 0, 0);
    assert_eq!(schedule.decide(0).0, [Action::Open(1)]);
    schedule.wants(1, false, 0, MS);
    assert_eq!(schedule.decide(MS).0, []);
    schedule.set_vm(0, watched);
    assert_eq!(schedule.decide(2 * MS).0, [Action::Revoke(1)]);
    // Another client of the VM waits for the first one to return its grant, and no longer.
    schedule.wants(2, true, 0, 3 * MS);
    assert_eq!(schedule.decide(3 * MS).0, []);
    schedule.came_back(1, 4 * MS);
    assert_eq!(schedule.decide(4 * MS).0, [Action::Pace(2)]);
    // Without a limit, its grant has no end again.
    schedule.set_vm(0, weighing(1));
    assert_eq!(schedule.decide(5 * MS).0, [Action::Open(2)]);
}
