// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Rest: while the VMM has stopped the VM, nothing of this worker writes to the guest's memory.
//!
//! The following write there: the GPU, at the addresses that the guest process registered; threads that submit work to
//! the GPU, because the driver may do a copy itself; and threads that write to the ring, which are the ring's own
//! thread, those that execute its waits, and those that wake it. So the gates close, the ring's thread stops between
//! two commands or at a gate, other writes to the ring wait, and the GPU completes its pending work. Everything else
//! continues, because it accesses at most the staging area.
//!
//! A host callback runs in the guest. The GPU may be waiting for one until the VM continues. So callbacks are held, and
//! the worker is at rest as soon as every stream is idle or [waits for one](super::callbacks). The device process does
//! not wait for ever: it kills a worker that does not come to rest.

use std::{
    cell::Cell,
    io,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread::{self, JoinHandle},
    time::Duration,
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};

use super::session::Session;
use crate::ipc;

/// The interval between two checks whether the rest is still requested.
const LOOK: Duration = Duration::from_millis(1);

/// The state of the ring's thread as a writer to the guest's memory.
#[derive(Debug, Default)]
pub struct Writer {
    is_to_stop: AtomicBool,
    writes: Mutex<bool>,
    changed: Condvar,
}

/// Writes of other threads to the ring: answers, and the flag of the ring's sleep.
#[derive(Debug, Default)]
pub struct RingWrites {
    /// Whether they must wait. Locked during each of them.
    wait: Mutex<bool>,
    changed: Condvar,
}

impl RingWrites {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.wait.lock()
    }

    /// Writes to the ring, as soon as this is allowed.
    pub fn write(&self, write: impl FnOnce()) {
        let _held = self.changed.wait_while(self.lock(), |wait| *wait);
        write();
    }

    /// Blocks writes.
    pub(super) fn stop(&self) {
        *self.lock() = true;
    }

    /// Allows writes.
    pub(super) fn go_on(&self) {
        *self.lock() = false;
        self.changed.notify_all();
    }
}

/// A pause in which the ring's thread writes nothing. Dropping it waits until the thread may write.
#[derive(Debug)]
pub struct Paused<'a>(&'a Writer);

thread_local! {
    /// In the ring's thread, its own writer.
    static WRITER: Cell<Option<&'static Writer>> = const { Cell::new(None) };
}

/// Begins a pause if this is the ring's thread, because it waits at a gate and writes nothing.
pub fn pause() -> Option<Paused<'static>> {
    WRITER.get().map(Writer::pause)
}

impl Writer {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.writes.lock()
    }

    /// Registers this thread as the ring's.
    pub fn begin(&'static self) {
        WRITER.set(Some(self));
        drop(Paused(self));
    }

    /// Begins a pause of the thread, which writes nothing until its end.
    pub fn pause(&self) -> Paused<'_> {
        *self.lock() = false;
        self.changed.notify_all();
        Paused(self)
    }

    /// To be called between two commands: waits while the thread must not write.
    pub fn look(&self) {
        if self.is_to_stop.load(Relaxed) {
            drop(self.pause());
        }
    }

    /// Forbids the thread to write.
    fn stop(&self) {
        let _writes = self.lock();
        self.is_to_stop.store(true, Relaxed);
    }

    /// Allows the thread to write.
    fn go_on(&self) {
        let _writes = self.lock();
        self.is_to_stop.store(false, Relaxed);
        self.changed.notify_all();
    }

    /// Waits until the thread has stopped, at most for `limit`.
    fn has_stopped(&self, limit: Duration) -> bool {
        let stops = |writes: &mut bool| *writes;
        let (writes, _) = self.changed.wait_timeout_while(self.lock(), limit, stops);
        !*writes
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        let writer = self.0;
        let may_not = |_: &mut bool| writer.is_to_stop.load(Relaxed);
        *writer.changed.wait_while(writer.lock(), may_not) = true;
    }
}

/// Comes to rest and continues as the device process requests, on a thread of its own.
///
/// # Errors
///
/// The thread cannot be started.
pub fn serve(session: &'static Session, words: &'static ipc::Rest) -> io::Result<()> {
    let serve = move || {
        let mut drain = None;
        loop {
            let number = words.wanted();
            if number == 0 {
                words.sleep(0);
                continue;
            }
            session.writer.stop();
            session.ring_writes.stop();
            session.gates.hold();
            session.callbacks.hold();
            if comes_to_rest(session, &mut drain, || words.wanted() == number) {
                words.reach(number);
            }
            while words.wanted() == number {
                words.sleep(number);
            }
            if words.wanted() == 0 {
                session.callbacks.let_go();
                session.gates.let_go();
                session.ring_writes.go_on();
                session.writer.go_on();
            }
        }
    };
    thread::Builder::new()
        .name("rest".into())
        .spawn(serve)
        .map(drop)
}

/// Waits until nothing writes to the guest's memory. Returns whether that was reached while it was requested. `drain`
/// is the thread that has last waited for the GPU.
fn comes_to_rest(
    session: &'static Session,
    drain: &mut Option<JoinHandle<()>>,
    is_wanted: impl Fn() -> bool,
) -> bool {
    while !session.writer.has_stopped(LOOK) {
        // It may have begun to wait at a gate just before that was held.
        session.gates.nudge();
        if !is_wanted() {
            return false;
        }
    }
    // The driver's wait has no time limit. A wait that began in an earlier rest does not cover later work.
    for is_last in [false, true] {
        if is_last {
            let started = thread::Builder::new()
                .name("drain".into())
                .spawn(|| session.gates.drain());
            match started {
                Ok(thread) => *drain = Some(thread),
                Err(_) => session.gates.drain(),
            }
        }
        while drain.as_ref().is_some_and(|thread| !thread.is_finished()) {
            if !is_wanted() {
                return false;
            }
            let blocked = session.callbacks.blocked();
            if blocked.is_some_and(|blocked| session.gates.are_still(&blocked)) {
                return true;
            }
            thread::sleep(LOOK);
        }
        *drain = None;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn writer() -> &'static Writer {
        Box::leak(Box::default())
    }

    #[test]
    fn pitfall_88_the_rings_thread_stops_between_commands_and_goes_on() {
        let writer = writer();
        let (wrote, written) = mpsc::channel();
        thread::spawn(move || {
            writer.begin();
            loop {
                writer.look();
                if wrote.send(()).is_err() {
                    return;
                }
            }
        });
        written.recv().unwrap();
        writer.stop();
        while !writer.has_stopped(LOOK) {}
        while written.try_recv().is_ok() {}
        assert!(writer.has_stopped(Duration::ZERO));
        assert_eq!(written.try_recv(), Err(mpsc::TryRecvError::Empty));
        writer.go_on();
        written.recv().unwrap();
    }

    #[test]
    fn pitfall_88_a_ring_that_sleeps_is_at_rest_and_wakes_up_when_it_may() {
        let writer = writer();
        let (wake, woken) = mpsc::channel::<()>();
        let (say, said) = mpsc::channel();
        thread::spawn(move || {
            writer.begin();
            let paused = writer.pause();
            say.send("asleep").unwrap();
            woken.recv().unwrap();
            say.send("awake").unwrap();
            drop(paused);
            say.send("writes").unwrap();
        });
        assert_eq!(said.recv(), Ok("asleep"));
        writer.stop();
        assert!(writer.has_stopped(Duration::ZERO));
        wake.send(()).unwrap();
        assert_eq!(said.recv(), Ok("awake"));
        assert!(writer.has_stopped(Duration::ZERO));
        assert_eq!(said.try_recv(), Err(mpsc::TryRecvError::Empty));
        writer.go_on();
        assert_eq!(said.recv(), Ok("writes"));
    }

    #[test]
    fn pitfall_88_answers_of_other_threads_wait_until_they_may_be_written() {
        let writes: &'static RingWrites = Box::leak(Box::default());
        writes.write(|| {});
        writes.stop();
        let (write, written) = mpsc::channel();
        let thread = thread::spawn(move || writes.write(|| write.send(()).unwrap()));
        // A write after the permission shows that the thread did not write before.
        assert_eq!(written.try_recv(), Err(mpsc::TryRecvError::Empty));
        writes.go_on();
        thread.join().unwrap();
        assert_eq!(written.recv(), Ok(()));
    }

    #[test]
    fn only_the_rings_thread_is_paused() {
        assert!(pause().is_none());
    }
}
