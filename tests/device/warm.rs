// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Workers that are started before a client needs them.

use gpgpu_protocol::layout::{CONTROL_QUEUE, status};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    guest::{Guest, Vmm},
    host::{Host, echoes, exists, pid_of},
    worker,
};

/// The waiting workers of a host. They are identified by the mode, which only its test uses.
fn waiting(mode: &str) -> Vec<Pid> {
    let variable = format!("{}={mode}", worker::MODE);
    let mut found: Vec<i32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let file = |name| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
            let (arguments, variables) = (file("cmdline"), file("environ"));
            arguments.ends_with(b"\0warm\0")
                && variables
                    .split(|&byte| byte == 0)
                    .any(|entry| entry == variable.as_bytes())
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(Pid::from_raw).collect()
}

/// Waits until there is a waiting worker that is not in `known`; returns it.
fn next(mode: &str, known: &[Pid]) -> Pid {
    loop {
        if let Some(new) = waiting(mode).into_iter().find(|pid| !known.contains(pid)) {
            return new;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_client_gets_the_worker_that_waits_and_the_next_client_another() {
    let mode = "warm-handed-over";
    let host = Host::start(mode, 8, 1);
    let warm = next(mode, &[]);
    let mut guest = host.boot(Vmm::qemu());
    let first = guest.open();
    assert_eq!(pid_of(&mut guest, first), warm);
    let replacement = next(mode, &[warm]);
    assert_eq!(guest.close(first), status::OK);
    assert!(!exists(warm), "it is not kept for another client");
    let second = guest.open();
    assert_eq!(pid_of(&mut guest, second), replacement);
    echoes(&mut guest, second);
}

/// Clients of several VMs at once: each has its own worker, although few are waiting.
#[test]
fn no_worker_serves_two_clients() {
    let mode = "warm-many";
    let host = Host::start(mode, 8, 2);
    next(mode, &[next(mode, &[])]);
    let mut guests = [
        Guest::boot(&host.socket(0), Vmm::qemu()),
        Guest::boot(&host.socket(1), Vmm::qemu()),
    ];
    let mut pids = Vec::new();
    for _ in 0..3 {
        for guest in &mut guests {
            let client = guest.open();
            pids.push(pid_of(guest, client));
        }
    }
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 6);
}

#[test]
fn a_worker_that_is_killed_while_it_waits_is_replaced_and_no_client_notices() {
    let mode = "warm-killed";
    let host = Host::start(mode, 8, 1);
    let warm = next(mode, &[]);
    kill(warm, Signal::SIGKILL).unwrap();
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    assert_ne!(pid_of(&mut guest, client), warm);
    echoes(&mut guest, client);
    next(mode, &[warm]);
}

/// Workers that fail while they wait, as on a host whose GPU fails: clients get other workers, which report the error.
#[test]
fn workers_that_cannot_wait_cost_clients_nothing() {
    let host = Host::start("cold-death", 8, 1);
    let mut guest = host.boot(Vmm::qemu());
    for _ in 0..3 {
        let open = guest.post_open();
        let status = guest.wait(CONTROL_QUEUE, open).status();
        // A worker that was assigned just before its end is an error of only this client.
        assert!([status::OK, status::NO_RESOURCES].contains(&status));
    }
}

#[test]
fn no_worker_waits_if_the_number_of_warm_workers_is_0() {
    let mode = "warm-none";
    let host = Host::start(mode, 8, 0);
    let mut guest = host.boot(Vmm::qemu());
    for _ in 0..3 {
        let client = guest.open();
        assert!(waiting(mode).is_empty());
        echoes(&mut guest, client);
        assert_eq!(guest.close(client), status::OK);
    }
    assert!(waiting(mode).is_empty());
}

#[test]
fn no_warm_worker_is_left_when_the_supervisor_ends() {
    let mode = "warm-ended";
    let mut host = Host::start(mode, 8, 2);
    let first = next(mode, &[]);
    let second = next(mode, &[first]);
    host.stop();
    assert!(!exists(first) && !exists(second));
    assert!(waiting(mode).is_empty());
}
