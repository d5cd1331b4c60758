// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Several clients of one ledger, in threads and in processes.

use std::{
    os::fd::OwnedFd,
    process::{Command, Stdio},
    sync::Barrier,
};

use proptest::prelude::*;

use super::*;
use crate::account::{GRANULE, Terms};

const MIB: u64 = 1 << 20;

fn room(limit: u64, used: u64, kept_by_others: u64) -> Room {
    Room {
        limit,
        used,
        kept_by_others,
    }
}

/// A VM's ledger, and its terms.
struct Vm {
    ledger: Arc<Shared<Ledger>>,
    terms: Terms,
}

impl std::ops::Deref for Vm {
    type Target = Shared<Ledger>;

    fn deref(&self) -> &Self::Target {
        &self.ledger
    }
}

impl Vm {
    fn new(ledger: Shared<Ledger>, limit: Option<u64>) -> Self {
        let terms = Terms::new().unwrap();
        terms.set_limit(limit);
        let ledger = Arc::new(ledger);
        Self { ledger, terms }
    }

    fn quota(&self, slot: usize) -> Quota {
        let terms = TermsView::map(Arc::clone(self.terms.file())).unwrap();
        Quota::new(Arc::clone(&self.ledger), terms, slot)
    }
}

fn ledger(limit: Option<u64>) -> Vm {
    Vm::new(Shared::new(c"test-ledger").unwrap(), limit)
}

#[test]
fn charges_are_rounded_once_for_all_of_a_client() {
    let ledger = ledger(Some(8 * MIB));
    let quota = ledger.quota(3);
    let small: Vec<_> = (0..4).map(|_| quota.reserve(1, MIB / 2).unwrap()).collect();
    assert_eq!(quota.room(1), Some(room(8 * MIB, 2 * MIB, 0)));
    assert_eq!(quota.room(0), Some(room(8 * MIB, 0, 0)));
    let whole = quota.reserve(1, 6 * MIB).unwrap();
    assert_eq!(quota.reserve(1, 1).unwrap_err(), CUDA_ERROR_OUT_OF_MEMORY);
    drop(small);
    assert_eq!(ledger.used(1), 6 * MIB);
    drop(whole);
    assert_eq!(ledger.used(1), 0);
}

#[test]
fn pitfall_71_a_ledger_never_underruns() {
    let ledger = ledger(Some(8 * MIB));
    let quota = ledger.quota(0);
    let charge = quota.reserve(0, 8 * MIB).unwrap();
    // A limit below the use frees nothing, and refuses every new charge.
    ledger.terms.set_limit(Some(2 * MIB));
    assert_eq!(quota.room(0), Some(room(2 * MIB, 8 * MIB, 0)));
    assert!(quota.reserve(0, 1).is_err());
    // The supervisor clears the slot while the worker has not quite ended; then the worker drops its charges.
    ledger.clear(0);
    drop(charge);
    assert_eq!(ledger.used(0), 0);
    for absurd in [u64::MAX, u64::MAX - 1, 1 << 63] {
        assert!(quota.reserve(0, absurd).is_err());
    }
    assert!(quota.reserve(GPUS as i32, 1).is_err());
    assert!(quota.reserve(-1, 1).is_err());
    assert!(ledger.quota(usize::MAX).reserve(0, 1).is_err());
    assert_eq!(ledger.used(0), 0);
    // The slots in use.
    for slot in &ledger.held[0] {
        slot.store(u64::MAX, Ordering::Relaxed);
    }
    assert!(ledger.used(0) > 1 << 62);
    assert!(quota.reserve(0, 1).is_err());
}

#[test]
fn memory_that_another_client_only_keeps_is_asked_for() {
    let ledger = ledger(Some(8 * MIB));
    let (keeper, other) = (ledger.quota(0), ledger.quota(1));
    let kept = keeper.reserve(0, 6 * MIB).unwrap();
    assert!(other.reserve_patiently(0, 4 * MIB).is_err(), "it is in use");
    kept.set_kept(true);
    kept.set_kept(true);
    assert_eq!(other.room(0), Some(room(8 * MIB, 6 * MIB, 6 * MIB)));
    assert_eq!(keeper.room(0), Some(room(8 * MIB, 6 * MIB, 0)));
    kept.set_kept(false);
    assert!(other.reserve_patiently(0, 4 * MIB).is_err(), "it is in use");
    kept.set_kept(true);
    let seen = keeper.asked(0);
    let gives = std::thread::spawn(move || {
        while keeper.asked(0) == seen {
            keeper.wait_asked(0, seen);
        }
        drop(kept);
    });
    let _charge = other.reserve_patiently(0, 8 * MIB).unwrap();
    gives.join().unwrap();
    assert_eq!(ledger.used(0), 8 * MIB);
    assert_eq!(ledger.others(0, 1), Holding::default());
}

#[test]
fn pitfall_68_returned_memory_is_never_counted_twice() {
    let ledger = ledger(Some(8 * MIB));
    let (keeper, other) = (ledger.quota(0), ledger.quota(1));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20_000 {
                let charge = keeper.reserve(0, 4 * MIB).unwrap();
                charge.set_kept(true);
                drop(charge);
            }
            stop.store(true, Ordering::Relaxed);
        });
        while !stop.load(Ordering::Relaxed) {
            let room = other.room(0).unwrap();
            assert!(room.kept_by_others <= room.used, "{room:?}");
        }
    });
}

#[test]
fn pitfall_69_contexts_share_their_granules_with_nothing() {
    let ledger = ledger(Some(8 * MIB));
    ledger.terms.set_context_costs(&[MIB + 1, 0, u64::MAX]);
    let quota = ledger.quota(0);
    assert_eq!(quota.context_cost(0), 2 * MIB);
    assert_eq!(quota.context_cost(1), 0);
    assert!(quota.reserve(2, quota.context_cost(2)).is_err());
}

/// The use of GPU 0 while no process reserves more. The slots are read one after the other: without the lock, memory
/// that one process returns and another reserves in between would count twice.
fn used(ledger: &Shared<Ledger>) -> u64 {
    let _turn = Turn::take(ledger.file(), 0).unwrap();
    ledger.used(0)
}

/// A client that reserves and returns memory in the given steps, and checks the limit after each reservation.
fn churn(quota: &Quota, limit: u64, steps: &[u16]) {
    let mut held = Vec::new();
    for step in steps {
        if step % 3 == 0 && !held.is_empty() {
            let _ = held.swap_remove(*step as usize % held.len());
        } else if let Ok(charge) = quota.reserve(0, u64::from(*step) * 4096) {
            held.push(charge);
            let used = used(&quota.0.ledger);
            assert!(used <= limit, "{used} > {limit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn pitfall_70_threads_never_have_more_than_the_limit(
        limit in 1..64_u64,
        clients in prop::collection::vec(prop::collection::vec(any::<u16>(), 0..80), 1..6),
    ) {
        let limit = limit * GRANULE;
        let ledger = ledger(Some(limit));
        // Two threads for each client, as a worker has several.
        std::thread::scope(|scope| {
            for (slot, steps) in clients.iter().enumerate() {
                let quota = ledger.quota(slot);
                for _ in 0..2 {
                    let quota = quota.clone();
                    scope.spawn(move || churn(&quota, limit, steps));
                }
            }
        });
        prop_assert_eq!(ledger.used(0), 0);
    }
}

#[test]
fn pitfall_70_all_of_the_limit_can_be_had_and_no_more() {
    let ledger = ledger(Some(100 * GRANULE));
    let clients: Vec<_> = (0..8).map(|slot| ledger.quota(slot)).collect();
    let start = Barrier::new(64);
    let held = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for thread in 0..64 {
            let quota = clients[thread % 8].clone();
            let (start, held) = (&start, &held);
            scope.spawn(move || {
                start.wait();
                while let Ok(charge) = quota.reserve(0, GRANULE) {
                    held.lock().push(charge);
                }
            });
        }
    });
    assert_eq!(held.lock().len(), 100);
    assert_eq!(ledger.used(0), 100 * GRANULE);
    held.lock().clear();
    assert_eq!(ledger.used(0), 0);
}

/// A process of the test below; it ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The body of a process of the test below; run only by that test.
#[test]
#[ignore = "a part of another test"]
fn child() {
    use std::os::fd::AsFd;
    let file = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let number = |name| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (slot, limit) = (number("LEDGER_SLOT") as usize, number("LEDGER_LIMIT"));
    let ledger = Shared::<Ledger>::map(Arc::new(file.into())).unwrap();
    let ledger = Vm::new(ledger, Some(limit));
    let quota = ledger.quota(slot);
    let mut number = slot as u64 + 1;
    loop {
        let steps: Vec<u16> = (0..200)
            .map(|_| {
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                (number >> 48) as u16
            })
            .collect();
        churn(&quota, limit, &steps);
        // The parent reads this as the progress.
        ledger.held[1][slot].fetch_add(1, Ordering::Release);
    }
}

#[test]
fn pitfall_77_killed_processes_delay_no_other() {
    let limit = 20 * GRANULE;
    let ledger = ledger(Some(limit));
    let spawn = |slot: usize| {
        let file = OwnedFd::from(ledger.file().try_clone().unwrap());
        let started = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "account::quota::tests::child", "--ignored"])
            .env("LEDGER_SLOT", slot.to_string())
            .env("LEDGER_LIMIT", limit.to_string())
            .stdin(Stdio::from(file))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Child(started.unwrap())
    };
    let steps = |slot: usize| ledger.held[1][slot].load(Ordering::Acquire);
    let advance = |slots: &[usize]| {
        let deadline = Instant::now() + Duration::from_secs(60);
        for slot in slots {
            let was = steps(*slot);
            while steps(*slot) < was + 3 {
                assert!(Instant::now() < deadline, "client {slot} does not get on");
                assert!(used(&ledger) <= limit);
                std::thread::yield_now();
            }
        }
    };
    let mut children: Vec<_> = (0..4).map(spawn).collect();
    advance(&[0, 1, 2, 3]);
    for round in 0..10 {
        let victim = round % 3;
        children[victim].0.kill().unwrap();
        children[victim].0.wait().unwrap();
        ledger.clear(victim);
        advance(&[3]);
        children[victim] = spawn(victim);
        advance(&[victim]);
    }
    for (slot, child) in children.into_iter().enumerate() {
        drop(child);
        ledger.clear(slot);
    }
    assert_eq!(ledger.used(0), 0);
}

#[test]
fn without_a_limit_all_is_charged_and_nothing_refused() {
    let ledger = ledger(None);
    let quota = ledger.quota(0);
    let charge = quota.reserve(0, 1 << 50).unwrap();
    assert_eq!((quota.room(0), ledger.used(0)), (None, 1 << 50));
    drop(charge);
    assert_eq!(ledger.used(0), 0);
}
