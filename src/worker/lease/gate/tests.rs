//! The gate before a GPU that the test plays, under grants that the test gives.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;
use crate::account::Account;

/// A GPU whose work ends when the test says so.
struct Played {
    draining: Mutex<Sender<()>>,
    done: Mutex<Receiver<()>>,
}

impl Work for Played {
    fn drain(&self) {
        self.draining.lock().unwrap().send(()).unwrap();
        // The end of the test is the end of all work.
        let _ = self.done.lock().unwrap().recv();
    }

    fn mark(&self) {}

    fn has_passed(&self) -> bool {
        true
    }
}

struct Setup {
    gate: &'static Gate<Played>,
    lease: &'static Lease,
    rung: Receiver<()>,
    draining: Receiver<()>,
    done: Sender<()>,
}

impl Setup {
    fn new() -> Self {
        let account = crate::account::Shared::<Account>::new(c"test").unwrap();
        let account: &'static Account = Box::leak(Box::new(account));
        let (ring, rung) = channel();
        let (drain, draining) = channel();
        let (done, wait) = channel();
        let ring = Mutex::new(ring);
        let work = Played {
            draining: Mutex::new(drain),
            done: Mutex::new(wait),
        };
        let bell = Box::new(move || {
            let _ = ring.lock().unwrap().send(());
        });
        let gate = Gate::new(&account.leases[0], &account.counters, work, bell);
        let gate: &'static Gate<Played> = Box::leak(Box::new(gate));
        thread::spawn(move || gate.serve());
        Self {
            gate,
            lease: &account.leases[0],
            rung,
            draining,
            done,
        }
    }

    fn grant(&self, word: u32) {
        self.lease.slice.store(1000, SeqCst);
        self.lease.grant.store(word, SeqCst);
        futex::wake(&self.lease.grant);
    }

    /// Passes on a thread of its own; says when it has.
    fn pass(&self) -> Receiver<()> {
        let gate = self.gate;
        let (passed, has_passed) = channel();
        thread::spawn(move || {
            drop(gate.enter());
            let _ = passed.send(());
        });
        has_passed
    }
}

#[test]
fn a_closed_gate_asks_and_an_open_one_lets_all_pass() {
    let setup = Setup::new();
    let first = setup.pass();
    setup.rung.recv().unwrap();
    assert_eq!(setup.lease.wants.load(SeqCst), 1);
    assert!(first.try_recv().is_err());
    setup.grant(4 | grant::OPEN);
    first.recv().unwrap();
    for _ in 0..1000 {
        drop(setup.gate.enter());
    }
    assert_eq!(setup.lease.wants.load(SeqCst), 0);
}

#[test]
fn a_revoked_lease_is_back_when_the_gpu_has_done_what_it_was_given() {
    let setup = Setup::new();
    setup.grant(4 | grant::OPEN);
    drop(setup.gate.enter());
    setup.grant(4);
    setup.draining.recv().unwrap();
    assert_eq!(
        setup.lease.returned.load(SeqCst),
        0,
        "there is work on its way"
    );
    assert_ne!(setup.lease.pass_since.load(SeqCst), 0);
    let next = setup.pass();
    setup.done.send(()).unwrap();
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
    assert!(next.try_recv().is_err(), "it needs another grant");
    setup.grant(8 | grant::OPEN);
    next.recv().unwrap();
}

#[test]
fn a_command_that_is_being_given_is_waited_for() {
    let setup = Setup::new();
    setup.grant(4 | grant::OPEN);
    let inside = setup.gate.enter();
    setup.grant(4);
    let next = setup.pass();
    while setup.lease.wants.load(SeqCst) == 0 {
        thread::yield_now();
    }
    assert!(
        setup.draining.try_recv().is_err(),
        "it would miss the command"
    );
    drop(inside);
    setup.draining.recv().unwrap();
    setup.done.send(()).unwrap();
    setup.grant(8 | grant::OPEN);
    next.recv().unwrap();
}

#[test]
fn a_command_that_has_only_passed_is_not_there_to_be_waited_for() {
    let setup = Setup::new();
    setup.grant(4 | grant::PACED);
    let inside = setup.gate.enter();
    let too_early = setup.draining.recv_timeout(Duration::from_millis(50));
    assert!(too_early.is_err(), "the GPU has nothing yet");
    drop(inside);
    setup.draining.recv().unwrap();
    setup.done.send(()).unwrap();
}

#[test]
fn under_a_paced_grant_little_is_on_its_way_and_the_idle_give_it_back() {
    let mut setup = Setup::new();
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.draining.recv().unwrap();
    let second = setup.pass();
    assert!(second.try_recv().is_err());
    setup.done.send(()).unwrap();
    second.recv().unwrap();
    // Whatever else is waited for is over.
    setup.done = channel().0;
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
    let later = setup.pass();
    while setup.lease.wants.load(SeqCst) == 0 {
        thread::yield_now();
    }
    setup.grant(8 | grant::PACED);
    later.recv().unwrap();
}

#[test]
fn a_grant_that_came_and_went_unused_is_back() {
    let setup = Setup::new();
    setup.grant(4 | grant::PACED);
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
    // This one is over before any thread has seen it, or given back as unused.
    setup.grant(8 | grant::PACED);
    setup.grant(8);
    while setup.lease.returned.load(SeqCst) != 8 {
        setup.rung.recv().unwrap();
    }
    let passed = setup.pass();
    setup.grant(12 | grant::OPEN);
    passed.recv().unwrap();
}

#[test]
fn a_kernel_that_waits_for_a_later_command_gets_it() {
    let setup = Setup::new();
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.draining.recv().unwrap();
    // The first is never done unless these pass.
    setup.pass().recv().unwrap();
    setup.pass().recv().unwrap();
    setup.done.send(()).unwrap();
}

#[test]
fn a_grant_that_is_widened_needs_no_return() {
    let setup = Setup::new();
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.draining.recv().unwrap();
    let second = setup.pass();
    setup.grant(4 | grant::OPEN);
    setup.done.send(()).unwrap();
    second.recv().unwrap();
    for _ in 0..100 {
        drop(setup.gate.enter());
    }
    assert_eq!(setup.lease.returned.load(SeqCst), 0);
}

#[test]
fn long_commands_shorten_the_window_at_once() {
    let slice = Duration::from_millis(3);
    let mut pace = Pace::default();
    assert_eq!(pace.learn(1, Duration::from_micros(100), slice), 30);
    assert_eq!(pace.learn(30, Duration::from_millis(150), slice), 1);
    let mut window = 1;
    for _ in 0..30 {
        let took = Duration::from_micros(100) * window as u32;
        window = pace.learn(window, took, slice);
    }
    assert!((28..=30).contains(&window), "{window}");
}
