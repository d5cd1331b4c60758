// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM's share of the GPU beside a hostile one, and beside a well-behaved one.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use crate::{
    MIB,
    attack::{Tally, attack},
    host::{Host, on_gpu},
    load::{Load, turns},
    vmm,
};

/// The longest wait of a VM beside the attack, as a multiple of its wait beside an honest VM.
const LONGER: f64 = 3.0;

/// The GPU time of two VMs over an interval.
#[derive(Debug)]
struct Had {
    /// GPU time, in seconds.
    given: [f64; 2],
    /// The wait of the second, in seconds.
    waited: f64,
    /// The work of the second in each second that it was given.
    work: f64,
}

impl Had {
    /// The part of the given time that a VM had.
    fn share(&self, vm: usize) -> f64 {
        self.given[vm] / self.given.iter().sum::<f64>()
    }

    /// The wait of the second for each second that it was given. On a machine under load both take longer.
    fn waits(&self) -> f64 {
        self.waited / self.given[1]
    }
}

/// The VMs' GPU time from now on, until `seconds` of it are given; the load is the second's.
fn look(host: &Host, load: &Load, seconds: f64) -> Had {
    let had = || [0, 1].map(|vm| host.gpu_seconds(vm, None));
    let waited = || host.metric("lease_wait_seconds_total", 1, None);
    let (before, wait, rounds) = (had(), waited(), load.rounds());
    let mut given = [0.0; 2];
    host.wait_until("GPU time", || {
        given = had();
        for (given, before) in given.iter_mut().zip(before) {
            *given -= before;
        }
        given.iter().sum::<f64>() >= seconds
    });
    Had {
        given,
        waited: waited() - wait,
        work: (load.rounds() - rounds) as f64 / given[1],
    }
}

/// Two processes that attack, beside a VM whose share of the GPU, memory and results are looked at.
#[test]
fn a_neighbour_keeps_its_share_whatever_a_client_sends() {
    let Some(host) = Host::start() else { return };
    let seed = std::env::var("VIRTIO_GPGPU_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    eprintln!("VIRTIO_GPGPU_TEST_SEED={seed}");
    let (seconds, commands) = if on_gpu() {
        (10.0, 40_000)
    } else {
        (5.0, 2000)
    };
    let turns = turns(&host, 0);
    let neighbour = Load::start(&host, 1, turns);
    let honest = Load::start(&host, 0, turns);
    let fair = look(&host, &neighbour, seconds);
    honest.finish();
    let (before, lines) = (host.memory(), host.lines());
    let held = host.metric("memory_bytes", 1, None);
    let (stop, tally) = (Arc::<AtomicBool>::default(), Arc::<Tally>::default());
    let attackers: Vec<_> = (0..2)
        .map(|number| {
            let guest = host.boot(0, vmm());
            let (stop, tally) = (Arc::clone(&stop), Arc::clone(&tally));
            std::thread::spawn(move || attack(guest, seed + (number << 48), turns, &stop, &tally))
        })
        .collect();
    host.wait_until("the attack begins", || {
        tally.commands.load(Relaxed) > 200
            || attackers.iter().any(|attacker| attacker.is_finished())
    });
    let had = look(&host, &neighbour, seconds);
    host.wait_until("enough was tried", || {
        tally.commands.load(Relaxed) >= commands
            || attackers.iter().any(|attacker| attacker.is_finished())
    });
    assert_eq!(
        host.metric("memory_bytes", 1, None),
        held,
        "the neighbour's memory"
    );
    host.check_memory(&before, 256 * MIB);
    stop.store(true, Relaxed);
    for attacker in attackers {
        attacker.join().expect("the attack has failed");
    }
    neighbour.finish();
    eprintln!("{tally:?}");
    for (beside, had) in [("an honest VM", &fair), ("the attack", &had)] {
        let (share, waits, work) = (had.share(1), had.waits(), had.work);
        eprintln!(
            "beside {beside}: a share of {share:.3}, {waits:.2} s of waits and {work:.1} results a second"
        );
    }
    // Or its share would say nothing.
    let wanted = had.share(0);
    assert!(wanted > 0.25, "the attack had {wanted} of the GPU");
    let (share, due) = (had.share(1), fair.share(1));
    assert!(
        share > 0.95 * due,
        "{share} of the GPU, and {due} beside an honest VM"
    );
    let (waits, due) = (had.waits(), fair.waits());
    assert!(
        due > 0.0 && waits < LONGER * due,
        "{waits} s of waits for each second, and {due} beside an honest VM"
    );
    // And nobody computes on the GPU in its time. The software GPU's time is this machine's, which others use as well.
    assert!(
        !on_gpu() || had.work > 0.95 * fair.work,
        "{} results a second of its own, and {} beside an honest VM",
        had.work,
        fair.work
    );
    // The software GPU is ours: nothing that a guest says ends its worker.
    let deaths = tally.deaths.load(Relaxed);
    assert!(on_gpu() || deaths == 0, "{deaths} workers died");
    assert!(host.lines() - lines < 200, "{} lines", host.lines() - lines);
}
