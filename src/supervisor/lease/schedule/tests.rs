//! The queue, with a GPU and clients that the test plays.

use super::*;

const MS: u64 = 1_000_000;
const US: u64 = 1_000;
/// From the end of one client's work to the start of the next one's.
const SWITCH: u64 = 50 * US;
/// How long a client takes to ask again for what it has more to do.
const PAUSE: u64 = 120 * US;
/// How long an idle client keeps its grant, if it mostly comes back by then, and if not.
const GRACE: (u64, u64) = (MS, 50 * US);

/// What a client does all the time.
#[derive(Debug, Clone, Copy)]
struct Load {
    vm: usize,
    /// How long each kernel takes.
    kernel: u64,
    /// How long it thinks after a kernel.
    think: u64,
}

#[derive(Debug, Default, Clone, Copy)]
struct Running {
    /// When it has something to do again, if not now.
    ready: u64,
    asked: Option<u64>,
    holds: bool,
    is_open: bool,
    revoked: bool,
    /// When its kernel ends.
    ends: Option<u64>,
    idle_since: Option<u64>,
}

/// What came of it, by client and by VM.
#[derive(Debug, Default)]
struct Outcome {
    worked: BTreeMap<Client, u64>,
    by_vm: BTreeMap<usize, u64>,
    worst_wait: BTreeMap<Client, u64>,
    /// GPU time by VM in each tenth of a second.
    windows: Vec<BTreeMap<usize, u64>>,
}

/// Plays `length` of time, in steps of ten microseconds.
fn play(weights: &[u32], loads: &[Load], length: u64) -> Outcome {
    let mut schedule = Schedule::default();
    for (vm, weight) in weights.iter().enumerate() {
        schedule.set_vm(vm, *weight, false);
    }
    for (client, load) in loads.iter().enumerate() {
        schedule.join(client as Client, load.vm);
    }
    let mut clients = vec![Running::default(); loads.len()];
    let mut outcome = Outcome::default();
    let mut now = 0;
    let mut free_at = 0;
    let mut look = Some(0);
    while now < length {
        let mut changed = look.is_some_and(|look| look <= now);
        let on_gpu = clients
            .iter()
            .filter(|client| client.ends.is_some())
            .count() as u64;
        for (name, client) in clients.iter_mut().enumerate() {
            let load = loads[name];
            let id = name as Client;
            if let Some(ends) = client.ends {
                // Kernels that are on the GPU together slow each other down.
                client.ends = Some(ends + 10 * US * (on_gpu - 1) / on_gpu);
                if ends <= now {
                    client.ends = None;
                    client.ready = now + load.think;
                    *outcome.worked.entry(id).or_default() += load.kernel;
                    *outcome.by_vm.entry(load.vm).or_default() += load.kernel;
                    let window = (now / (100 * MS)) as usize;
                    let most = outcome.windows.len().max(window + 1);
                    outcome.windows.resize_with(most, BTreeMap::new);
                    *outcome.windows[window].entry(load.vm).or_default() += load.kernel;
                    free_at = now + SWITCH;
                }
            }
            if client.holds && client.revoked && client.ends.is_none() {
                client.holds = false;
                client.ready = client.ready.max(now + PAUSE);
                schedule.came_back(id, now);
                changed = true;
            }
            let has_work = client.ready <= now && client.ends.is_none();
            if client.holds && !client.revoked && client.ends.is_none() {
                if has_work {
                    client.idle_since = None;
                    client.ends = Some(now + load.kernel);
                    // All begin together, so the first round is one in which everybody waits for everybody.
                    if let Some(asked) = client.asked.take().filter(|_| now > 200 * MS) {
                        let wait = now - asked;
                        let worst = outcome.worst_wait.entry(id).or_default();
                        *worst = wait.max(*worst);
                    }
                } else if !client.is_open {
                    let since = *client.idle_since.get_or_insert(now);
                    let grace = match load.think <= GRACE.0 {
                        true => GRACE.0,
                        false => GRACE.1,
                    };
                    if now - since > grace {
                        client.holds = false;
                        client.idle_since = None;
                        schedule.came_back(id, now);
                        changed = true;
                    }
                }
            }
            if !client.holds && has_work && client.asked.is_none() {
                client.asked = Some(now);
                schedule.wants(id, true, now);
                changed = true;
            }
        }
        if changed && now >= free_at {
            let (actions, next) = schedule.decide(now);
            look = next;
            for action in actions {
                match action {
                    Action::Open(id) | Action::Pace(id) => {
                        let client = &mut clients[id as usize];
                        client.holds = true;
                        client.revoked = false;
                        client.is_open = matches!(action, Action::Open(_));
                        schedule.wants(id, false, now);
                    }
                    Action::Revoke(id) => clients[id as usize].revoked = true,
                }
            }
        } else if changed {
            look = Some(free_at);
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
fn what_one_does_not_use_the_others_have() {
    let mut loads = vec![load(0, MS), load(1, MS)];
    loads.push(Load {
        vm: 2,
        kernel: 100 * US,
        think: 2 * MS,
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
        },
    ];
    let outcome = play(&[100; 4], &loads, 4_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    let share = outcome.by_vm[&3] as f64 / sum as f64;
    // It is charged for the pauses that it makes others wait for.
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
    });
    let outcome = play(&[100; 8], &loads, 3_000 * MS);
    // One kernel that runs, and another that began before the news came.
    let worst = outcome.worst_wait[&7];
    assert!(worst <= 11 * MS, "{} µs", worst / US);
}

#[test]
fn one_that_keeps_coming_back_gets_no_more_than_its_share() {
    // It gives the lease back after each kernel, and asks anew.
    let mut loads: Vec<Load> = (0..3).map(|vm| load(vm, MS)).collect();
    loads.push(Load {
        vm: 3,
        kernel: 5 * MS,
        think: 300 * US,
    });
    let outcome = play(&[100; 4], &loads, 3_000 * MS);
    let sum: u64 = outcome.by_vm.values().sum();
    let share = outcome.by_vm[&3] as f64 / sum as f64;
    assert!(share < 0.26, "{share}");
}

#[test]
fn alone_the_gpu_is_open_and_stays_so() {
    let mut schedule = Schedule::default();
    schedule.set_vm(0, 100, false);
    schedule.set_vm(1, 100, false);
    schedule.join(1, 0);
    schedule.join(2, 0);
    schedule.wants(1, true, 5);
    assert_eq!(schedule.decide(5), (vec![Action::Open(1)], None));
    schedule.wants(1, false, 6);
    schedule.wants(2, true, 7);
    assert_eq!(schedule.decide(7), (vec![Action::Open(2)], None));
    schedule.wants(2, false, 8);
    assert_eq!(schedule.decide(900 * MS), (vec![], None));
    assert!(schedule.take_had().is_empty(), "it is sampled instead");
    // Another VM comes: both are taken back before it gets anything.
    schedule.join(3, 1);
    schedule.wants(3, true, 1000 * MS);
    let (actions, _) = schedule.decide(1000 * MS);
    assert_eq!(actions, [Action::Revoke(1), Action::Revoke(2)]);
    schedule.came_back(1, 1001 * MS);
    assert_eq!(schedule.decide(1001 * MS).0, []);
    schedule.came_back(2, 1002 * MS);
    assert_eq!(schedule.decide(1002 * MS).0, [Action::Pace(3)]);
}

#[test]
fn after_a_while_alone_it_is_open_again() {
    let mut schedule = Schedule::default();
    schedule.set_vm(0, 100, false);
    schedule.set_vm(1, 100, false);
    schedule.join(1, 0);
    schedule.join(2, 1);
    schedule.wants(1, true, 0);
    schedule.wants(2, true, 0);
    assert_eq!(schedule.decide(0).0, [Action::Pace(1)]);
    schedule.wants(1, false, MS);
    schedule.leave(2, 2 * MS);
    let (actions, look) = schedule.decide(2 * MS);
    assert_eq!(actions, []);
    let look = look.unwrap();
    assert!(look > 900 * MS, "not at once");
    assert_eq!(schedule.decide(look).0, [Action::Open(1)]);
}

#[test]
fn a_lease_that_does_not_come_back_is_not_waited_for_and_is_paid_for() {
    let mut schedule = Schedule::default();
    for vm in 0..2 {
        schedule.set_vm(vm, 100, false);
        schedule.join(vm as Client, vm);
        schedule.wants(vm as Client, true, 0);
    }
    assert_eq!(schedule.decide(0).0, [Action::Pace(0)]);
    schedule.wants(0, false, MS);
    assert_eq!(schedule.decide(10 * MS).0, [Action::Revoke(0)]);
    let (actions, look) = schedule.decide(20 * MS);
    assert_eq!(actions, []);
    let patience = look.unwrap();
    assert_eq!(schedule.decide(patience).0, [Action::Pace(1)]);
    // A kernel of client 0 runs on for half a second, beside client 1, which goes on.
    schedule.wants(0, true, patience);
    let mut now = patience;
    for _ in 0..50 {
        now += 10 * MS;
        for action in schedule.decide(now).0 {
            match action {
                Action::Revoke(client) => schedule.came_back(client, now),
                Action::Pace(client) => assert_eq!(client, 1, "client 0 has had more"),
                Action::Open(_) => panic!("two VMs want it"),
            }
        }
        schedule.wants(1, true, now);
        for action in schedule.decide(now).0 {
            assert_ne!(action, Action::Pace(0), "client 0 has had more");
        }
    }
    let had = schedule.take_had();
    assert!(had[&0] > 250 * MS, "{had:?}");
    schedule.overrun_ended(0, now);
}

#[test]
fn one_that_is_watched_is_paced_even_alone() {
    let mut schedule = Schedule::default();
    schedule.set_vm(0, 100, true);
    schedule.join(1, 0);
    schedule.wants(1, true, 0);
    assert_eq!(schedule.decide(0).0, [Action::Pace(1)]);
    schedule.wants(1, false, 1);
    assert_eq!(schedule.decide(60_000 * MS).0, []);
}
