// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The gate with a simulated GPU, under grants that the test gives.

use std::{
    cell::Cell,
    sync::mpsc::{Receiver, Sender, channel},
    thread,
};

use super::*;
use crate::account::Account;

/// A GPU whose work ends when the test says so.
struct Played {
    draining: Mutex<Sender<()>>,
    done: Mutex<Receiver<()>>,
    /// The number of marks that it has passed, of those that it allows.
    passed: AtomicU64,
    made: AtomicU64,
    makes_marks: AtomicBool,
    /// The time, in nanoseconds; 0 for that of the clock.
    time: AtomicU64,
}

impl Work for Played {
    /// Its number.
    type Mark = u64;

    fn drain(&self) {
        self.draining.lock().send(()).unwrap();
        // The end of the test ends all work.
        let _ = self.done.lock().recv();
    }

    fn mark(&self) -> Option<u64> {
        let makes_marks = self.makes_marks.load(SeqCst);
        makes_marks.then(|| self.made.fetch_add(1, SeqCst))
    }

    fn has_passed(&self, mark: &u64) -> bool {
        *mark < self.passed.load(SeqCst)
    }

    fn release(&self, _: u64) {}

    fn now(&self) -> u64 {
        match self.time.load(SeqCst) {
            0 => monotonic(),
            time => time,
        }
    }
}

struct Setup {
    gate: &'static Gate<Played>,
    lease: &'static Lease,
    /// The amount of work that may be in flight, in microseconds.
    slice: Cell<u32>,
    rung: Receiver<()>,
    draining: Receiver<()>,
    done: Sender<()>,
}

impl Setup {
    fn new() -> Self {
        let setup = Self::unserved();
        let gate = setup.gate;
        thread::spawn(move || gate.serve());
        setup
    }

    /// A gate whose thread does not run.
    fn unserved() -> Self {
        let account = crate::account::Shared::<Account>::new(c"test").unwrap();
        let account: &'static Account = Box::leak(Box::new(account));
        let (ring, rung) = channel();
        let (drain, draining) = channel();
        let (done, wait) = channel();
        let ring = Mutex::new(ring);
        let work = Played {
            draining: Mutex::new(drain),
            done: Mutex::new(wait),
            passed: AtomicU64::new(0),
            made: AtomicU64::new(0),
            makes_marks: AtomicBool::new(false),
            time: AtomicU64::new(0),
        };
        let bell = Box::new(move || {
            let _ = ring.lock().send(());
        });
        let busy: &'static AtomicU64 = Box::leak(Box::default());
        let gate = Gate::new(&account.leases[0], &account.counters, busy, work, bell);
        Self {
            gate: Box::leak(Box::new(gate)),
            lease: &account.leases[0],
            slice: Cell::new(1000),
            rung,
            draining,
            done,
        }
    }

    fn grant(&self, word: u32) {
        self.lease.slice.store(self.slice.get(), SeqCst);
        self.lease.grant.store(word, SeqCst);
        futex::wake(&self.lease.grant);
    }

    /// Grants a turn, and further turns until a thread has passed: on a busy machine a turn may end before the thread
    /// runs. Returns the last grant.
    fn turns(&self, first: u32, passed: &Receiver<()>) -> u32 {
        let mut number = first;
        if self.lease.grant.load(SeqCst) != number | grant::PACED {
            self.grant(number | grant::PACED);
        }
        while passed.try_recv().is_err() {
            if self.lease.returned.load(SeqCst) == number {
                number += 4;
                self.grant(number | grant::PACED);
            }
            thread::yield_now();
        }
        number
    }

    /// Stops the clock. The commands so far have taken some time.
    fn stop_time(&self) {
        self.gate.pace_now().learn(1, Duration::from_millis(2));
        self.gate.work.time.store(monotonic(), SeqCst);
    }

    /// Lets the time pass that the commands on the GPU are expected to take: they may complete at any moment.
    fn run_as_expected(&self) {
        let each = self.gate.each.load(SeqCst);
        assert_ne!(each, 0);
        self.gate.work.time.fetch_add(each, SeqCst);
    }

    /// Passes on a thread of its own, which reports it.
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
fn the_ring_wakes_the_gates_thread_once_the_gpu_has_its_work() {
    let Setup { gate, lease, .. } = Setup::unserved();
    let word = 4 | grant::OPEN;
    lease.grant.store(word, SeqCst);
    gate.live.store(word, SeqCst);
    let sleeps = || gate.dozing.load(SeqCst) == 1;

    gate.dozing.store(1, SeqCst);
    drop(gate.enter());
    assert!(!sleeps() && !has_to_wake());

    gate.dozing.store(1, SeqCst);
    wake_later();
    drop(gate.enter());
    assert!(sleeps() && has_to_wake() && !has_to_wake());
    gate.rouse();
    drop(gate.enter());
    assert!(!sleeps() && !has_to_wake());
}

#[test]
fn a_closed_gate_asks_for_a_turn_and_an_open_one_lets_all_pass() {
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
fn a_revoked_lease_is_back_when_the_gpu_has_done_its_work() {
    let setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
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
fn a_command_in_submission_is_waited_for() {
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

/// A thread makes the mark behind its command, and the GPU passes it, before the thread has counted the command.
#[test]
fn a_mark_that_is_passed_before_its_command_is_counted_does_no_harm() {
    let setup = Setup::new();
    let gate = setup.gate;
    setup.grant(4 | grant::PACED);
    let (first, second) = (gate.enter(), gate.pass_by().unwrap());
    gate.work.passed.store(1, SeqCst);
    gate.marks.lock().push_back((2, 0));
    drop(first);
    while gate.done.load(SeqCst) != 2 {
        thread::yield_now();
    }
    // The gate's thread reads the counts in the meantime.
    thread::sleep(Duration::from_millis(50));
    drop(second);
    drop(setup.done);
    while setup.lease.returned.load(SeqCst) != 4 {
        let rung = setup.rung.recv_timeout(Duration::from_secs(30));
        rung.expect("the lease never comes back");
    }
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
    // Everything else that is waited for is complete.
    setup.done = channel().0;
    let number = setup.turns(4, &second);
    while setup.lease.returned.load(SeqCst) != number {
        setup.rung.recv().unwrap();
    }
    let later = setup.pass();
    while setup.lease.wants.load(SeqCst) == 0 {
        thread::yield_now();
    }
    setup.turns(number + 4, &later);
}

#[test]
fn a_grant_that_came_and_went_unused_is_back() {
    let setup = Setup::new();
    setup.grant(4 | grant::PACED);
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
    // This grant ends before any thread has seen it, or is returned unused.
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
    // The first command never completes unless these pass.
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
fn a_mark_makes_room_while_later_commands_are_on_their_way() {
    let mut setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
    // The slice is so small that each command gets a mark.
    setup.slice.set(0);
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    // Commands pass one at a time until their duration is known.
    let second = setup.pass();
    setup.gate.work.passed.store(1, SeqCst);
    // If the second one is late, the first turn ends. That waits for all work, which is complete.
    setup.done = channel().0;
    let mut number = setup.turns(4, &second);
    for passed in 2..5 {
        number = setup.turns(number, &setup.pass());
        while setup.draining.try_recv().is_ok() {}
        setup.gate.work.passed.store(passed, SeqCst);
    }
    setup.turns(number, &setup.pass());
    assert!(
        setup.draining.try_recv().is_err(),
        "nothing was waited for as a whole"
    );
}

/// The mark behind a command in one stream passes while another stream still has work.
#[test]
fn a_lease_does_not_come_back_because_one_streams_mark_was_passed() {
    let setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
    setup.gate.work.passed.store(u64::MAX, SeqCst);
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.draining.recv().unwrap();
    assert_eq!(setup.gate.done.load(SeqCst), 1, "the mark was passed");
    assert_ne!(setup.lease.pass_since.load(SeqCst), 0);
    // The turn goes on while the GPU has work.
    setup.pass().recv().unwrap();
    assert_eq!(setup.lease.returned.load(SeqCst), 0);
    setup.done.send(()).unwrap();
    setup.draining.recv().unwrap();
    assert_eq!(setup.lease.returned.load(SeqCst), 0, "the second is there");
    setup.done.send(()).unwrap();
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
    assert_eq!(setup.lease.pass_since.load(SeqCst), 0);
    assert!(setup.draining.try_recv().is_err(), "nothing came since");
}

#[test]
fn a_revoked_lease_does_not_come_back_because_one_streams_mark_was_passed() {
    let setup = Setup::unserved();
    let gate = setup.gate;
    gate.work.makes_marks.store(true, SeqCst);
    setup.grant(4 | grant::PACED);
    drop(gate.enter());
    gate.finish(1, 0, true);
    setup.grant(4);
    thread::spawn(move || gate.serve());
    setup.draining.recv().unwrap();
    assert_eq!(setup.lease.returned.load(SeqCst), 0);
    assert_ne!(setup.lease.pass_since.load(SeqCst), 0);
    setup.done.send(()).unwrap();
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
}

#[test]
fn a_turn_ends_by_itself_and_says_so_before_its_work_is_done() {
    let setup = Setup::new();
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.draining.recv().unwrap();
    setup.lease.until.store(1, SeqCst);
    setup.done.send(()).unwrap();
    // The turn ended before the command was complete, so there is nothing to announce.
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
    assert_eq!(setup.lease.ending.load(SeqCst), 0);

    setup.gate.work.makes_marks.store(true, SeqCst);
    setup.stop_time();
    setup.lease.until.store(0, SeqCst);
    setup.grant(8 | grant::PACED);
    drop(setup.gate.enter());
    setup.lease.until.store(1, SeqCst);
    setup.run_as_expected();
    setup.draining.recv().unwrap();
    assert_eq!(setup.lease.ending.load(SeqCst), 8, "nothing was said");
    assert_eq!(setup.lease.returned.load(SeqCst), 4, "it is not done");
    let next = setup.pass();
    assert!(next.try_recv().is_err(), "it needs another grant");
    setup.done.send(()).unwrap();
    while setup.lease.returned.load(SeqCst) != 8 {
        setup.rung.recv().unwrap();
    }
    setup.lease.until.store(0, SeqCst);
    setup.grant(12 | grant::OPEN);
    next.recv().unwrap();
}

#[test]
fn a_revoked_turn_reports_its_end_before_its_work_is_done() {
    let setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
    setup.stop_time();
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.grant(4);
    setup.run_as_expected();
    setup.draining.recv().unwrap();
    assert_eq!(setup.lease.ending.load(SeqCst), 4, "nothing was said");
    assert_eq!(setup.lease.returned.load(SeqCst), 0, "it is not done");
    setup.done.send(()).unwrap();
    while setup.lease.returned.load(SeqCst) != 4 {
        setup.rung.recv().unwrap();
    }
}

#[test]
fn one_command_passes_in_each_turn_however_long_it_takes() {
    let setup = Setup::new();
    setup.lease.until.store(1, SeqCst);
    let number = setup.turns(4, &setup.pass());
    let second = setup.pass();
    setup.draining.recv().unwrap();
    setup.done.send(()).unwrap();
    while setup.lease.returned.load(SeqCst) != number {
        setup.rung.recv().unwrap();
    }
    assert!(second.try_recv().is_err(), "the turn is over");
    setup.lease.until.store(0, SeqCst);
    setup.grant((number + 4) | grant::OPEN);
    second.recv().unwrap();
}

#[test]
fn a_turn_shorter_than_a_command_is_not_given_back_before_that_has_passed() {
    for _ in 0..20 {
        let setup = Setup::new();
        let long = Duration::from_secs(1);
        setup.gate.pace_now().learn(1, long);
        let passed = setup.pass();
        while setup.lease.wants.load(SeqCst) == 0 {
            thread::yield_now();
        }
        setup.lease.until.store(monotonic() + 1, SeqCst);
        setup.grant(4 | grant::PACED);
        let waited = passed.recv_timeout(Duration::from_secs(30));
        waited.expect("the turn was given back unused");
    }
}

#[test]
fn where_kernels_have_a_limit_marks_do_not_hide_a_long_one() {
    let setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
    setup.gate.work.passed.store(u64::MAX, SeqCst);
    setup.lease.most.store(32, SeqCst);
    setup.grant(4 | grant::PACED);
    drop(setup.gate.enter());
    setup.draining.recv().unwrap();
    assert_ne!(setup.lease.pass_since.load(SeqCst), 0);
    setup.done.send(()).unwrap();
}

#[test]
fn an_open_grant_counts_all_of_a_burst_as_busy() {
    let setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
    setup.gate.work.passed.store(u64::MAX, SeqCst);
    setup.grant(4 | grant::OPEN);
    for _ in 0..32 {
        drop(setup.gate.enter());
    }
    // One of the first commands has a mark, and the GPU is executing the others.
    setup.draining.recv().unwrap();
    setup.done.send(()).unwrap();
    while setup.lease.busy_ns.load(SeqCst) == 0 {
        thread::yield_now();
    }
}

#[test]
fn an_open_grant_counts_work_of_other_streams_than_the_marks_as_busy() {
    let setup = Setup::new();
    setup.gate.work.makes_marks.store(true, SeqCst);
    setup.gate.work.passed.store(u64::MAX, SeqCst);
    setup.grant(4 | grant::OPEN);
    for _ in 0..2 {
        drop(setup.gate.enter());
        // Each command has a mark, and the GPU has passed it.
        setup.draining.recv().unwrap();
        let before = setup.lease.busy_ns.load(SeqCst);
        thread::sleep(Duration::from_millis(2));
        setup.done.send(()).unwrap();
        while setup.lease.busy_ns.load(SeqCst) < before + 2_000_000 {
            thread::yield_now();
        }
    }
}

#[test]
fn a_graph_counts_for_as_many_commands_as_it_has() {
    let setup = Setup::new();
    setup.grant(4 | grant::OPEN);
    setup.pass().recv().unwrap();
    let (entered, given) = (&setup.gate.entered, &setup.gate.given);
    assert_eq!((entered.load(SeqCst), given.load(SeqCst)), (1, 1));
    let inside = setup.gate.enter();
    weigh(100);
    assert_eq!((entered.load(SeqCst), given.load(SeqCst)), (2, 1));
    drop(inside);
    assert_eq!((entered.load(SeqCst), given.load(SeqCst)), (101, 101));
    // The next command counts as one again, and so does an empty graph.
    weigh(1);
    drop(setup.gate.enter());
    let inside = setup.gate.enter();
    weigh(0);
    drop(inside);
    assert_eq!((entered.load(SeqCst), given.load(SeqCst)), (103, 103));
}

#[test]
fn a_gate_is_open_without_other_waiters_and_a_kernel_limit() {
    let setup = Setup::new();
    // The gate's thread may wait for commands that have passed, once for each, before it sees the next grant.
    for _ in 0..4 {
        setup.done.send(()).unwrap();
    }
    setup.grant(4 | grant::OPEN);
    setup.pass().recv().unwrap();
    assert!(setup.gate.enter().is_open());
    setup.lease.most.store(32, SeqCst);
    assert!(!setup.gate.enter().is_open());
    setup.lease.most.store(0, SeqCst);
    setup.grant(4 | grant::PACED);
    let gate = setup.gate;
    let (passed, has_passed) = channel();
    let is_open = thread::spawn(move || {
        let is_open = gate.enter().is_open();
        passed.send(()).unwrap();
        is_open
    });
    // A turn may end before the thread runs.
    setup.turns(4, &has_passed);
    assert!(!is_open.join().unwrap());
}

#[test]
fn pitfall_88_a_mark_covers_earlier_work_only_without_work_of_others() {
    let setup = Setup::new();
    let work = &setup.gate.work;
    work.makes_marks.store(true, SeqCst);
    // The gate makes no mark of its own.
    setup.lease.grant.store(4 | grant::OPEN, SeqCst);
    setup.gate.live.store(4 | grant::OPEN, SeqCst);
    let inside = setup.gate.enter();
    let (given, mark) = setup.gate.behind_mark(|| 5);
    assert!(given == 5 && mark.is_some());
    let (_, mark) = setup.gate.behind_mark(|| drop(setup.gate.enter()));
    assert_eq!(mark, None);
    let other = setup.gate.enter();
    assert_eq!(setup.gate.behind_mark(|| ()).1, None);
    drop(other);
    assert!(setup.gate.behind_mark(|| ()).1.is_some());
    drop(inside);
}
