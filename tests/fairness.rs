// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The VMs' shares of a GPU. The service, its policy and its metrics are the real ones, and so is the guest's library,
//! over sockets. The GPU is the software GPU or, with `VIRTIO_GPGPU_TEST_GPU=cuda`, a real one.
//!
//! `cargo xtask test` builds the programs of these tests and names their directory in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message. The tests compare shares by the GPU time that the service measures, not by
//! the clock: the machine may be busy.

#[path = "fairness/client.rs"]
mod client;
mod common;
#[path = "fairness/host.rs"]
mod host;

use host::{Client, Host};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Not a test: the program of the VMs' processes.
#[test]
fn client_of_a_vm() {
    if std::env::var_os(client::LIBRARY).is_some() {
        client::run();
    }
}

/// A client that has measured its kernels, if possible on a GPU without other users.
fn sized(host: &Host, vm: usize, order: &str) -> Client {
    let client = host.client(vm, order);
    client.wait_for("sized");
    client
}

/// Starts clients that work until they are told to stop, and waits until all of them are working.
fn go_on(clients: &mut [&mut Client]) {
    clients.iter_mut().for_each(|client| client.tell("go"));
    for client in clients {
        client.wait_for("running");
    }
}

/// Ends clients. Each has checked that all its kernels have run exactly once.
fn end(clients: impl IntoIterator<Item = Client>) {
    for client in clients {
        let status = client.end();
        assert!(status.success(), "{status:?}");
    }
}

#[test]
fn pitfall_75_gpu_time_goes_by_weight_whatever_the_kernels_length() {
    let Some(host) = Host::new(&["weight = 100", "weight = 200"]) else {
        return;
    };
    // If kernels or turns counted, the first would get far less, or far more.
    let mut short = sized(&host, 0, "loop 500");
    let mut long = sized(&host, 1, "loop 8000");
    go_on(&mut [&mut short, &mut long]);
    host.until_right(2.0, |had| (1.5..2.7).contains(&(had.of(1) / had.of(0))));
    end([short, long]);
}

#[test]
fn three_vms_with_one_to_two_to_four() {
    let Some(host) = Host::new(&["weight = 50", "weight = 100", "weight = 200"]) else {
        return;
    };
    let mut clients: Vec<Client> = (0..3).map(|vm| sized(&host, vm, "loop 2000")).collect();
    go_on(&mut clients.iter_mut().collect::<Vec<_>>());
    host.until_right(2.5, |had| {
        let had = [0, 1, 2].map(|vm| had.of(vm));
        let sum: f64 = had.iter().sum();
        let mut parts = had.iter().zip([1.0, 2.0, 4.0]);
        parts.all(|(had, part)| (0.7..1.4).contains(&(had / sum / (part / 7.0))))
    });
    end(clients);
}

#[test]
fn a_vm_with_several_processes_gets_no_more_than_one_with_one() {
    let Some(host) = Host::new(&["", ""]) else {
        return;
    };
    let mut clients: Vec<Client> = [0, 0, 0, 0, 1]
        .map(|vm| sized(&host, vm, "loop 2000"))
        .into();
    go_on(&mut clients.iter_mut().collect::<Vec<_>>());
    host.until_right(2.5, |had| (0.6..1.67).contains(&(had.of(0) / had.of(1))));
    end(clients);
}

/// A launch of the graph waits for its turn on both GPUs. Meanwhile it must not get more than its share of either.
#[test]
fn a_graph_over_two_gpus_takes_no_more_than_its_share_of_either() {
    let vms = ["", "gpus = [0]", "gpus = [1]"];
    let Some(host) = Host::with_gpus(2, &vms) else {
        return;
    };
    let mut neighbours = [1, 2].map(|vm| sized(&host, vm, "loop 2000"));
    let mut graph = sized(&host, 0, "graph-loop 2000");
    let [first, second] = &mut neighbours;
    go_on(&mut [first, second, &mut graph]);
    host.until_right(4.0, |had| {
        (0..2).all(|gpu| {
            let (graph, neighbour) = (had.on(0, gpu), had.on(gpu + 1, gpu));
            neighbour > 0.6 * graph && graph > 0.1 * neighbour
        })
    });
    end(neighbours.into_iter().chain([graph]));
}

#[test]
fn time_that_one_vm_leaves_goes_to_another() {
    let Some(host) = Host::new(&["weight = 1", "weight = 10000"]) else {
        return;
    };
    // The fastest of three, because a busy machine may delay one.
    let burst = || {
        let took = [(); 3].map(|()| {
            let mut one = sized(&host, 0, "burst 100 2000");
            one.tell("go");
            one.wait_for("took").parse::<f64>().unwrap()
        });
        took.into_iter().fold(f64::INFINITY, f64::min)
    };
    let alone = burst();
    // It has a context, has finished its work, and has nearly all the weight, which would leave a ten thousandth.
    let idle = sized(&host, 1, "burst 10 2000");
    let beside = burst();
    assert!(beside < 20.0 * alone, "{beside} us beside {alone}");
    end([idle]);
}

#[test]
fn a_host_function_may_wait_for_a_thread_that_waits_for_the_gpu() {
    let Some(host) = Host::new(&["", ""]) else {
        return;
    };
    let mut neighbour = sized(&host, 1, "loop 2000");
    let mut subject = sized(&host, 0, "callback");
    go_on(&mut [&mut neighbour]);
    subject.tell("go");
    subject.wait_for("over");
    end([subject, neighbour]);
}

#[test]
fn a_kernel_may_wait_for_a_later_one_of_its_process() {
    let Some(host) = Host::new(&["", ""]) else {
        return;
    };
    let mut neighbour = sized(&host, 1, "loop 2000");
    let mut subject = sized(&host, 0, "flag");
    go_on(&mut [&mut neighbour]);
    subject.tell("go");
    subject.wait_for("over");
    end([subject, neighbour]);
}

#[test]
fn pitfall_78_a_kernel_that_never_ends_ends_with_its_worker_and_others_go_on() {
    ends_with_its_worker("endless");
}

/// Each kernel of it is short.
#[test]
fn pitfall_78_a_loop_of_a_graph_that_never_ends_ends_with_its_worker_and_others_go_on() {
    ends_with_its_worker("endless-loop");
}

fn ends_with_its_worker(what: &str) {
    let Some(host) = Host::new(&["longest-kernel = \"1s\"", ""]) else {
        return;
    };
    let mut neighbour = sized(&host, 1, "loop 2000");
    go_on(&mut [&mut neighbour]);
    let endless = host.client(0, what);
    let code: u32 = endless.wait_for("code").parse().unwrap();
    assert_ne!(code, 0, "{what} has ended well");
    // The neighbour continues, and so does a new process of the VM.
    let had = host.gpu_time(0.5);
    assert!(had.of(1) > 0.25, "{had:?}");
    let mut next = sized(&host, 0, "burst 20 1000");
    next.tell("go");
    next.wait_for("took");
    end([next, neighbour]);
}

#[test]
fn pitfall_77_a_process_that_dies_with_the_lease_blocks_no_other() {
    let Some(host) = Host::new(&["", ""]) else {
        return;
    };
    let mut neighbour = sized(&host, 1, "loop 1000");
    go_on(&mut [&mut neighbour]);
    for _ in 0..5 {
        let mut victim = sized(&host, 0, "loop 3000");
        go_on(&mut [&mut victim]);
        victim.process.kill().unwrap();
    }
    // Also a worker that dies as if the host had run out of memory.
    let mut victim = sized(&host, 0, "loop 3000");
    go_on(&mut [&mut victim]);
    let log = host.log();
    let (_, worker) = log.rsplit_once("(worker ").unwrap();
    let worker = worker.split_once(')').unwrap().0.parse().unwrap();
    kill(Pid::from_raw(worker), Signal::SIGKILL).unwrap();
    assert!(!victim.end().success(), "its kernels cannot all have run");
    let had = host.gpu_time(0.5);
    assert!(had.of(1) > 0.25, "{had:?}");
    end([neighbour]);
}
