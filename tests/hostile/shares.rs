// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM's share of the GPU next to a hostile VM, and next to a well-behaved one.

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

/// The longest wait of a VM next to the attack, as a multiple of its wait next to a well-behaved VM.
const LONGER: f64 = 3.0;

/// The GPU time of two VMs in an interval.
#[derive(Debug)]
struct Had {
    /// Their GPU time, in seconds.
    given: [f64; 2],
    /// The second VM's waiting time, in seconds.
    waited: f64,
    /// The second VM's work per second of its GPU time.
    work: f64,
}

impl Had {
    /// A VM's share of the GPU time.
    fn share(&self, vm: usize) -> f64 {
        self.given[vm] / self.given.iter().sum::<f64>()
    }

    /// The second VM's wait per second of its GPU time. On a machine under load both take longer.
    fn waits(&self) -> f64 {
        self.waited / self.given[1]
    }
}

/// The VMs' GPU time from now on, until the sum is `seconds`; the load belongs to the second VM.
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

/// Two attacking processes, next to a VM whose share of the GPU, memory and results are checked.
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
    // Otherwise its share would have no meaning.
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
    // No other VM may use the GPU in its turns. The software GPU uses this machine's time, as other processes do.
    assert!(
        !on_gpu() || had.work > 0.95 * fair.work,
        "{} results a second of its own, and {} beside an honest VM",
        had.work,
        fair.work
    );
    // No request of a guest may end a worker on the software GPU.
    let deaths = tally.deaths.load(Relaxed);
    assert!(on_gpu() || deaths == 0, "{deaths} workers died");
    assert!(host.lines() - lines < 200, "{} lines", host.lines() - lines);
}
