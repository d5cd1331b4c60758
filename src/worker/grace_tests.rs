// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of [`super`].

use std::sync::mpsc::{Receiver, Sender, channel};

use gpgpu_protocol::api::{Event, Stream, object_id};

use super::*;

/// A command of another thread, which the test executes step by step.
struct Command {
    step: Sender<fn()>,
    done: Receiver<()>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Command {
    fn begin(context: u64, uses_memory: bool) -> Self {
        let (step, steps) = channel::<fn()>();
        let (did, done) = channel();
        let run = move || {
            let _uses = enter(context, uses_memory);
            did.send(()).unwrap();
            for step in steps {
                step();
                did.send(()).unwrap();
            }
        };
        let command = Self {
            step,
            done,
            thread: Some(thread::spawn(run)),
        };
        command.done.recv().unwrap();
        command
    }

    fn go_on(&self, step: fn()) {
        self.step.send(step).unwrap();
        self.done.recv().unwrap();
    }

    fn end(mut self) {
        self.step = channel().0;
        self.thread.take().unwrap().join().unwrap();
    }
}

fn stream() -> Ending {
    Ending::Object(object_id::<Stream>(1))
}

const MEMORY: Ending = Ending::Memory {
    start: 0x5000,
    bytes: 0x1000,
};

/// Waits until all of these may end. Commands of other tests that began before and use memory too end by themselves.
fn pass(ticket: Ticket, endings: &[Ending]) {
    let end = Instant::now() + Duration::from_secs(60);
    while !endings.iter().all(|ending| ticket.has_passed(*ending)) {
        assert!(Instant::now() < end, "{endings:?}");
        thread::yield_now();
    }
}

/// The slots belong to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock()
}

#[test]
fn an_object_found_before_it_was_hidden_lasts_until_the_command_ends() {
    let _alone = alone();
    let before = Command::begin(7, true);
    let ticket = Ticket::now();
    let after = Command::begin(7, true);
    assert!(!ticket.has_passed(stream()) && !ticket.has_passed(MEMORY));
    before.end();
    pass(ticket, &[stream(), MEMORY]);
    after.end();
    // A command does not wait for itself.
    let _own = enter(7, true);
    pass(Ticket::now(), &[stream()]);
}

#[test]
fn a_command_without_memory_delays_no_free() {
    let _alone = alone();
    let launch = Command::begin(7, false);
    let ticket = Ticket::now();
    pass(ticket, &[MEMORY]);
    assert!(!ticket.has_passed(stream()));
    launch.end();
}

#[test]
fn a_waiting_command_delays_only_the_objects_that_it_has_named() {
    let _alone = alone();
    let sync = Command::begin(7, true);
    let ticket = Ticket::now();
    sync.go_on(|| {
        narrow(&[
            Name::Object(object_id::<Stream>(1)),
            Name::Memory {
                start: 0x5fff,
                bytes: 1,
            },
        ]);
    });
    let other = Ending::Memory {
        start: 0x6000,
        bytes: 1 << 20,
    };
    pass(
        ticket,
        &[
            Ending::Object(object_id::<Event>(1)),
            other,
            Ending::Context(7),
        ],
    );
    assert!(!ticket.has_passed(stream()) && !ticket.has_passed(MEMORY));
    // However late they are to end.
    assert!(!Ticket::now().has_passed(stream()));
    sync.end();
    pass(ticket, &[stream(), MEMORY]);
}

#[test]
fn within_a_command_that_waits_more_can_be_looked_up_for_a_while() {
    let _alone = alone();
    let command = Command::begin(7, false);
    command.go_on(|| narrow(&[Name::Object(object_id::<Stream>(1))]));
    command.go_on(|| {
        let _uses = enter(8, false);
        narrow(&[Name::Object(object_id::<Event>(1))]);
    });
    let ticket = Ticket::now();
    pass(ticket, &[Ending::Object(object_id::<Event>(1))]);
    assert!(!ticket.has_passed(stream()));
    command.end();
}

#[test]
fn a_command_at_a_gate_delays_no_end_until_it_passes() {
    let _alone = alone();
    let command = Command::begin(7, true);
    let ticket = Ticket::now();
    command.go_on(|| {
        thread_local! {
            static PAUSED: Cell<Option<Paused>> = const { Cell::new(None) };
        }
        match PAUSED.take() {
            None => PAUSED.set(Some(pause())),
            Some(paused) => drop(paused),
        }
    });
    pass(ticket, &[stream()]);
    command.end();
}

#[test]
fn a_context_waits_for_commands_in_it_for_so_long_and_for_others_without_a_limit() {
    let _alone = alone();
    let wait = |ticket: Ticket| ticket.wait_for_context(7, Duration::ZERO, Duration::ZERO);
    let inside = Command::begin(7, false);
    assert_eq!(wait(Ticket::now()), Err(StillUsed));
    inside.go_on(|| narrow(&[Name::Object(7)]));
    assert_eq!(wait(Ticket::now()), Err(StillUsed));
    inside.end();
    // A gate's thread, which waits for work that only the end of the context may end.
    let watcher = Command::begin(7, false);
    watcher.go_on(|| narrow(&[Name::Watched(7)]));
    assert!(!Ticket::now().has_passed(Ending::Context(7)));
    assert_eq!(wait(Ticket::now()), Ok(()));
    watcher.end();
    let elsewhere = Command::begin(8, false);
    let ticket = Ticket::now();
    let waits = thread::spawn(move || wait(ticket));
    assert!(!ticket.has_passed(Ending::Context(7)));
    elsewhere.end();
    assert_eq!(waits.join().unwrap(), Ok(()));
}

/// A command that uses an address that only the driver knows. It is repeated until the driver may be asked. Reports the
/// first refusal.
fn ask(not_yet: std::sync::mpsc::Sender<()>) {
    loop {
        let uses = enter(7, true);
        let is_settled = unloads_are_settled();
        drop(uses);
        if is_settled {
            assert!(!again());
            return;
        }
        let _ = not_yet.send(());
        assert!(again());
    }
}

#[test]
fn the_driver_is_asked_about_no_address_during_an_unload() {
    let _alone = alone();
    let before = Command::begin(7, true);
    let unload = Unload::begin();
    // The unload waits for this command, so it may ask the driver.
    before.go_on(|| assert!(unloads_are_settled()));
    let (tell, told) = channel();
    let asks = thread::spawn(move || ask(tell));
    told.recv().unwrap();
    before.end();
    unload.ticket().wait(stream());
    // It checks again for objects found in the meantime, and its own waiters do not delay it.
    Ticket::now().wait(stream());
    assert!(!asks.is_finished(), "it asked before the unload was over");
    drop(unload);
    asks.join().unwrap();
}

#[test]
#[ignore = "prints a figure: --release --run-ignored all --no-capture"]
fn a_command_costs_a_few_nanoseconds() {
    let _alone = alone();
    const TIMES: u32 = 1_000_000;
    let least = |act: fn()| {
        let once = || {
            let began = Instant::now();
            (0..TIMES).for_each(|_| act());
            began.elapsed()
        };
        let least = (0..20).map(|_| once()).min().unwrap_or_default();
        least.as_nanos() as f64 / f64::from(TIMES)
    };
    let command = least(|| drop(std::hint::black_box(enter(7, false))));
    let look = least(|| assert!(Ticket::now().has_passed(stream())));
    println!("begin and end of a command: {command:.1} ns; a ticket and a look: {look:.1} ns");
}
