// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The gate of one GPU: commands that submit work to it pass here, while the worker holds the GPU's lease.
//!
//! The supervisor grants and revokes by a word that both processes map ([`Lease`]). While no other VM wants the GPU,
//! passing costs a few atomic operations on this process's own memory and one read of that word. Under a paced grant a
//! thread of the gate follows the commands on the GPU by events behind some of them ([`follow`]). It limits the work in
//! flight to the slice, and returns the lease when there is no work or the turn ends. When a grant is revoked the gate
//! closes, and the lease is returned once the GPU has done its work.
//!
//! An event shows the progress of one stream only. So the lease is never returned because an event was passed: the
//! gate's thread first waits for all work of the process on the GPU, unless it has done so since the last command.

mod follow;

use std::{
    cell::Cell,
    collections::VecDeque,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::futex;

use super::pace::Pace;
use crate::{
    account::{Counters, Lease, add, grant, monotonic},
    worker::{grace, rest},
};

/// The first time-out of commands that wait for earlier ones to complete. A kernel may wait for a later command, so the
/// wait must be limited: after this time one more command passes, after twice this time another, and so on.
const PATIENCE: Duration = Duration::from_millis(20);
/// The remaining time of the GPU's work at which the next command may be submitted, whatever its length, in
/// nanoseconds: the time that a thread takes to wake up.
const AHEAD: u64 = 300_000;
/// The number of commands that may be in flight when a turn begins, or the number that is expected to take
/// [`FIRST_WORK`].
const FIRST: u64 = 2;
const FIRST_WORK: u64 = 300_000;
/// The maximum number of marks at a time.
const MARKS: usize = 8;

/// The gate's interface to the GPU.
pub trait Work: Sync {
    /// A mark behind commands.
    type Mark: Send;

    /// Waits until the GPU has done all work that this process has submitted.
    fn drain(&self);
    /// Marks the end of this thread's latest GPU work, if possible.
    fn mark(&self) -> Option<Self::Mark>;
    /// Whether the GPU has passed a mark: its stream has then done the commands before it, and others may not have.
    fn has_passed(&self, mark: &Self::Mark) -> bool;
    /// Releases a mark.
    fn release(&self, mark: Self::Mark);
    /// The time, in nanoseconds; the supervisor compares it with its own.
    fn now(&self) -> u64 {
        monotonic()
    }
}

/// See the module's documentation.
pub struct Gate<W: Work> {
    lease: &'static Lease,
    counters: &'static Counters,
    /// The time for which the GPU had work of the VM's workers, in nanoseconds.
    vm_busy_ns: &'static AtomicU64,
    /// Makes the supervisor read the lease.
    ring_bell: Box<dyn Fn() + Send + Sync>,
    /// The GPU.
    pub work: W,
    /// The word of the present grant; 0 for none.
    live: AtomicU32,
    /// Whether no command passes, whatever the grant.
    held: AtomicBool,
    /// The number of commands that have passed, and of threads that are checking whether they may.
    entered: AtomicU64,
    /// The number of them that were submitted to the GPU. A command that has only passed cannot be waited for.
    given: AtomicU64,
    /// The number of those that are believed to be complete, under a paced grant: a mark shows only that its own stream
    /// has done the commands before it. It limits the work in flight, and does not show that the GPU is idle.
    done: AtomicU64,
    /// The number of those that are complete in all streams, as a wait for all work has shown.
    drained: AtomicU64,
    /// The number of commands that may be in flight under a paced grant.
    window: AtomicU64,
    /// Commands up to this number pass under a paced grant, however many are in flight.
    forced: AtomicU64,
    /// The expected time of a command, in nanoseconds.
    each: AtomicU64,
    /// The time since which the GPU has been executing the incomplete commands, in nanoseconds.
    began: AtomicU64,
    /// The number of the next command that gets a mark, and the distance to the one after that.
    mark_at: AtomicU64,
    stride: AtomicU64,
    /// The marks that were not checked yet, with the numbers of their commands.
    marks: Mutex<VecDeque<(u64, W::Mark)>>,
    /// The number of threads that wait until fewer commands are in flight.
    waiting: AtomicU32,
    /// Whether the gate's thread sleeps until a command passes.
    dozing: AtomicU32,
    /// The time at which the GPU was found idle, in nanoseconds; 0 if a command came since.
    idle_since: AtomicU64,
    /// Whether the program took longer than the grace period to continue the last time.
    is_slow: AtomicBool,
    /// The measured time of commands.
    learnt: Mutex<Pace>,
    /// The number of the last returned grant.
    returned: Mutex<u32>,
    changed: Condvar,
}

thread_local! {
    /// The number of commands for which a command of this thread counts.
    static WEIGHT: Cell<u64> = const { Cell::new(1) };
    /// Whether this thread wakes gates' threads only on request.
    static WAKES_LATER: Cell<bool> = const { Cell::new(false) };
    /// Whether a gate's thread has to be woken.
    static HAS_TO_WAKE: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread does not wake a gate's thread when it passes: it calls [`Gate::rouse`] soon afterwards if
/// [`has_to_wake`] returns true. Waking a thread takes longer than submitting work, and the program waits for the
/// submission.
pub fn wake_later() {
    WAKES_LATER.set(true);
}

/// Whether this thread has passed a gate whose thread slept, since the last call.
pub fn has_to_wake() -> bool {
    HAS_TO_WAKE.take()
}

/// Makes the present command of this thread count for several, at each gate that it has passed, until this is called
/// with 1: a graph counts for each of its launches, copies and fills. The time limit of a kernel then applies to each
/// of them.
pub fn weigh(commands: u64) {
    WEIGHT.set(commands.max(1));
}

/// The right to submit work to the GPU, until this is dropped.
pub struct Inside<'a, W: Work>(&'a Gate<W>);

impl<W: Work> Inside<'_, W> {
    /// Whether the grant has no end and no kernel has a time limit.
    pub fn is_open(&self) -> bool {
        mode(self.0.live.load(SeqCst)) == grant::OPEN && self.0.lease.most.load(SeqCst) == 0
    }
}

impl<W: Work> Drop for Inside<'_, W> {
    fn drop(&mut self) {
        let gate = self.0;
        // A command that counts for several has passed as one.
        let weight = WEIGHT.get();
        if weight > 1 {
            gate.entered.fetch_add(weight - 1, SeqCst);
        }
        if gate.given.load(SeqCst) + weight >= gate.mark_at.load(SeqCst) {
            gate.mark(weight);
        }
        gate.given.fetch_add(weight, SeqCst);
    }
}

fn number(word: u32) -> u32 {
    word & !grant::MODE
}

fn mode(word: u32) -> u32 {
    word & grant::MODE
}

impl<W: Work> Gate<W> {
    /// A closed gate. [`Self::serve`] needs a thread of its own.
    pub fn new(
        lease: &'static Lease,
        counters: &'static Counters,
        vm_busy_ns: &'static AtomicU64,
        work: W,
        ring_bell: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            lease,
            counters,
            vm_busy_ns,
            ring_bell,
            work,
            live: AtomicU32::new(0),
            held: AtomicBool::new(false),
            entered: AtomicU64::new(0),
            given: AtomicU64::new(0),
            done: AtomicU64::new(0),
            drained: AtomicU64::new(0),
            window: AtomicU64::new(1),
            forced: AtomicU64::new(0),
            each: AtomicU64::new(0),
            began: AtomicU64::new(0),
            mark_at: AtomicU64::new(u64::MAX),
            stride: AtomicU64::new(1),
            marks: Mutex::default(),
            waiting: AtomicU32::new(0),
            dozing: AtomicU32::new(0),
            idle_since: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
            learnt: Mutex::default(),
            returned: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.returned.lock()
    }

    /// Passes, or waits for the lease.
    pub fn enter(&self) -> Inside<'_, W> {
        let mut waited: Option<Instant> = None;
        let mut _paused = None;
        loop {
            if let Some(inside) = self.pass_if(|live, before| self.has_room(live, before)) {
                if let Some(since) = waited {
                    add(&self.counters.waits, 1);
                    add(&self.counters.wait_ns, since.elapsed().as_nanos() as u64);
                }
                return inside;
            }
            if waited.is_none() {
                waited = Some(Instant::now());
                // A thread that waits here delays the end of no object.
                _paused = Some(grace::pause());
                self.resumed();
            }
            if self.held.load(SeqCst) {
                self.wait_held();
            } else {
                self.wait();
            }
        }
    }

    /// Waits until the gate is not held any more.
    fn wait_held(&self) {
        // Dropped without the lock, because the drop may wait.
        let _resting = rest::pause();
        let held = |_: &mut u32| self.held.load(SeqCst);
        drop(self.changed.wait_while(self.lock(), held));
    }

    /// Closes the gate, whatever the grant, until [`Self::let_go`]. Threads inside continue.
    pub fn hold(&self) {
        self.held.store(true, SeqCst);
        self.nudge();
    }

    /// Makes waiting threads check their conditions again.
    pub fn nudge(&self) {
        let _returned = self.lock();
        self.changed.notify_all();
        futex::wake(&self.lease.grant);
    }

    /// Lets commands pass again.
    pub fn let_go(&self) {
        let _returned = self.lock();
        self.held.store(false, SeqCst);
        self.changed.notify_all();
    }

    /// Waits until no thread is inside and the GPU has done its work. The gate must be held.
    pub fn drain(&self) {
        self.wait_until_empty();
        self.work.drain();
    }

    /// Waits until no thread is inside. The gate must be closed.
    fn wait_until_empty(&self) {
        let mut turns = 0_u32;
        while self.is_inside() {
            turns += 1;
            if turns < 1000 {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Passes if this process has the lease, however much is in flight: for commands that only order work.
    pub fn pass_by(&self) -> Option<Inside<'_, W>> {
        self.pass_if(|_, _| true)
    }

    /// Passes if this process has the lease and `may` holds for the grant and the number of commands before this one.
    fn pass_if(&self, may: impl FnOnce(u32, u64) -> bool) -> Option<Inside<'_, W>> {
        // Counted before the grant is read: a thread that returns the grant reads the count after it has closed the
        // gate.
        let before = self.entered.fetch_add(1, SeqCst);
        let live = self.live.load(SeqCst);
        let closed = live == 0 || self.lease.grant.load(SeqCst) != live || self.held.load(SeqCst);
        if closed || !may(live, before) {
            self.entered.fetch_sub(1, SeqCst);
            return None;
        }
        if self.dozing.load(SeqCst) == 1 {
            if WAKES_LATER.get() {
                HAS_TO_WAKE.set(true);
            } else {
                self.rouse();
            }
        }
        Some(Inside(self))
    }

    /// Wakes the gate's thread, if it sleeps until a command passes.
    pub fn rouse(&self) {
        if self.dozing.swap(0, SeqCst) == 1 {
            futex::wake(&self.lease.grant);
        }
    }

    /// Whether a thread has passed, or is checking whether it may, and has not submitted its command yet.
    pub fn is_inside(&self) -> bool {
        self.entered.load(SeqCst) != self.given.load(SeqCst)
    }

    /// Submits work by `give`, for a thread that is inside. Returns a mark that the GPU passes once it has done the
    /// earlier work; none if another thread may have submitted work between the two.
    pub fn behind_mark<T>(&self, give: impl FnOnce() -> T) -> (T, Option<W::Mark>) {
        let entered = self.entered.load(SeqCst);
        let is_alone = entered == self.given.load(SeqCst) + 1;
        let mark = is_alone.then(|| self.work.mark()).flatten();
        let given = give();
        if self.entered.load(SeqCst) == entered {
            return (given, mark);
        }
        mark.into_iter().for_each(|mark| self.work.release(mark));
        (given, None)
    }

    fn pace_now(&self) -> MutexGuard<'_, Pace> {
        self.learnt.lock()
    }

    /// The maximum number of commands in flight under a paced grant, however short they are.
    fn most(&self) -> u64 {
        match self.lease.most.load(SeqCst) {
            0 => u64::MAX,
            most => most.into(),
        }
    }

    fn slice(&self) -> Duration {
        Duration::from_micros(self.lease.slice.load(SeqCst).into())
    }

    /// The time, in nanoseconds, until the GPU has done the commands before the one with this number, if they take as
    /// long as those before them.
    fn left(&self, before: u64, now: u64) -> u64 {
        let under_way = before.saturating_sub(self.done.load(SeqCst));
        let all = under_way.saturating_mul(self.each.load(SeqCst));
        all.saturating_sub(now.saturating_sub(self.began.load(SeqCst)))
    }

    /// Whether one more command may be in flight after `before` others.
    fn has_room(&self, live: u32, before: u64) -> bool {
        if mode(live) == grant::OPEN || before < self.forced.load(SeqCst) {
            return true;
        }
        let under_way = before.saturating_sub(self.done.load(SeqCst));
        if under_way >= self.window.load(SeqCst) {
            return false;
        }
        let now = self.work.now();
        let (left, each) = (self.left(before, now), self.each.load(SeqCst));
        let fits = left < AHEAD || u128::from(left + each) <= self.slice().as_nanos();
        fits && !self.is_too_late(left, now)
    }

    /// Whether a command that begins in `left` nanoseconds would run mostly after the turn.
    fn is_too_late(&self, left: u64, now: u64) -> bool {
        let until = self.lease.until.load(SeqCst);
        until != 0 && now + left + self.each.load(SeqCst) / 2 > until
    }

    /// Waits until another attempt may succeed.
    fn wait(&self) {
        let mut patience = PATIENCE;
        let mut last = 0;
        let mut returned = self.lock();
        while !self.held.load(SeqCst) {
            let (word, live) = (self.lease.grant.load(SeqCst), self.live.load(SeqCst));
            // A wait under another grant does not count for this one.
            if word != last {
                (last, patience) = (word, PATIENCE);
            }
            if live == word && live != 0 {
                // Counted before the check, because the gate's thread notifies only counted threads.
                self.waiting.fetch_add(1, SeqCst);
                let has_room = self.has_room(live, self.entered.load(SeqCst));
                let done = self.done.load(SeqCst);
                if !has_room {
                    let (lock, waited) = self.changed.wait_timeout(returned, patience);
                    returned = lock;
                    if waited.timed_out() && self.done.load(SeqCst) == done {
                        self.forced.store(self.entered.load(SeqCst) + 1, SeqCst);
                        patience *= 2;
                    }
                }
                self.waiting.fetch_sub(1, SeqCst);
                if has_room {
                    return;
                }
                continue;
            }
            // The gate's thread may still wait for earlier work: a kernel that waits for a later command.
            let is_over = mode(word) == grant::CLOSED && live != 0;
            if !is_over && self.take(word, &mut returned) != 0 {
                continue;
            }
            drop(returned);
            if self.lease.wants.fetch_add(1, SeqCst) == 0 {
                (self.ring_bell)();
            }
            futex::wait(&self.lease.grant, word);
            self.lease.wants.fetch_sub(1, SeqCst);
            returned = self.lock();
        }
    }

    /// Takes a grant if it is new or was opened further. A grant that was revoked before it was taken is returned at
    /// once.
    fn take(&self, word: u32, returned: &mut u32) -> u32 {
        if number(word) == *returned {
            return 0;
        }
        if mode(word) == grant::CLOSED {
            *returned = number(word);
            self.lease.returned.store(*returned, SeqCst);
            (self.ring_bell)();
            return 0;
        }
        let entered = self.entered.load(SeqCst);
        let window = self.set_window(mode(word));
        // One command passes in each turn, however long it takes: work of an earlier grant may wait for the next
        // command. If that command had to wait for room, it would wait for ever, because turns are shorter than its
        // time-out.
        let is_idle = self.given.load(SeqCst) == self.done.load(SeqCst);
        let forced = if is_idle { 1 } else { window };
        self.forced.store(entered + forced, SeqCst);
        self.began.store(self.work.now(), SeqCst);
        self.live.store(word, SeqCst);
        self.changed.notify_all();
        word
    }

    /// Sets how much may be in flight, and how often there is a mark; returns the former.
    fn set_window(&self, mode: u32) -> u64 {
        let (window, each) = {
            let pace = self.pace_now();
            (pace.window(self.slice()).min(self.most()), pace.each())
        };
        self.each.store(each, SeqCst);
        // The program may have changed its behaviour. So a turn begins with few commands, and their number doubles each
        // time that the GPU has passed a mark.
        let window = if mode == grant::PACED {
            window.min((FIRST_WORK / each.max(1)).max(FIRST))
        } else {
            window
        };
        self.window.store(window, SeqCst);
        if mode == grant::PACED {
            self.stride.store((window / 4).max(1), SeqCst);
            self.mark_at.store(self.given.load(SeqCst) + 1, SeqCst);
        } else {
            self.stride.store(u64::MAX / 2, SeqCst);
            self.mark_at.store(u64::MAX, SeqCst);
        }
        window
    }

    /// Makes a mark behind the command that this thread has just submitted.
    #[cold]
    fn mark(&self, weight: u64) {
        let mut marks = self.marks.lock();
        let number = self.given.load(SeqCst) + weight;
        if number < self.mark_at.load(SeqCst) || marks.len() >= MARKS {
            return;
        }
        self.mark_at
            .store(number.saturating_add(self.stride.load(SeqCst)), SeqCst);
        if let Some(mark) = self.work.mark() {
            marks.push_back((number, mark));
        }
    }

    /// The oldest unchecked mark.
    fn next_mark(&self) -> Option<(u64, W::Mark)> {
        let mut marks = self.marks.lock();
        marks.pop_front()
    }

    /// Handles a command that arrives while the GPU is idle: learns how long the program took.
    fn resumed(&self) {
        let since = self.idle_since.swap(0, SeqCst);
        if since > 0 {
            let took = self.work.now().saturating_sub(since);
            self.is_slow
                .store(took > follow::GRACE.as_nanos() as u64, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests;
