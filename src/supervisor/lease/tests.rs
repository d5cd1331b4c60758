// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor's side of leases.

use std::{io::Write, os::fd::OwnedFd, time::Instant};

use super::*;

fn leases(vms: usize) -> Leases {
    let leases = Leases::start(vms, true).unwrap();
    for vm in 0..vms {
        leases.set_vm(vm, &VmPolicy::new("vm".into()));
    }
    leases
}

/// A worker shares the doorbell as one object, and has cleared O_NONBLOCK on it.
#[test]
fn a_doorbell_that_would_block_delays_no_other() {
    let leases = leases(2);
    let join = |client, vm| {
        let account = Arc::new(Shared::<Account>::new(c"test").unwrap());
        let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let bell = Arc::new(File::from(OwnedFd::from(bell)));
        leases.join(client, vm, &account, &bell, &[0]);
        (account, bell)
    };
    let _first = join(1, 0);
    let (account, bell) = join(2, 1);
    let end = Instant::now() + Duration::from_secs(20);
    account.used.store(1, SeqCst);
    account.leases[0].wants.store(1, SeqCst);
    (&*bell).write_all(&1_u64.to_ne_bytes()).unwrap();
    while account.leases[0].grant.load(SeqCst) & grant::MODE == grant::CLOSED {
        assert!(Instant::now() < end, "no grant");
        std::thread::yield_now();
    }
}

/// A worker cannot affect GPUs that are not its VM's, whatever it writes.
#[test]
fn a_worker_has_no_lease_of_a_gpu_that_is_not_its_own() {
    let leases = leases(1);
    let account = Arc::new(Shared::<Account>::new(c"test").unwrap());
    let bell = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
    let bell = Arc::new(File::from(OwnedFd::from(bell)));
    for lease in &account.leases {
        lease.wants.store(1, SeqCst);
    }
    account.used.store(u64::MAX, SeqCst);
    leases.join(1, 0, &account, &bell, &[2]);
    let end = Instant::now() + Duration::from_secs(20);
    let granted = |gpu: usize| account.leases[gpu].grant.load(SeqCst) & grant::MODE;
    while granted(2) == grant::CLOSED {
        assert!(Instant::now() < end, "no grant");
        std::thread::yield_now();
    }
    // Earlier grants remain.
    drop(leases);
    assert!((0..GPUS).all(|gpu| gpu == 2 || granted(gpu) == grant::CLOSED));
}
