//! The gate before one GPU: what gives it work passes here, and passes while the worker holds the GPU's lease.
//!
//! The supervisor grants and revokes by a word that both map ([`Lease`]). While nobody else wants the GPU, passing costs a few
//! atomic operations on this process's own memory and one read of that word. Under a paced grant a thread of the gate follows what was given
//! to the GPU, lets no more be on its way than the slice says, and gives the lease back when there is nothing to do. When a grant
//! is revoked nothing passes any more, and the lease is back once the GPU has done what it was given.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

use gpgpu_protocol::futex;

use crate::account::{Counters, Lease, add, grant, monotonic};

/// How long the lease is kept for a program that waits for one kernel before it launches the next.
const GRACE: Duration = Duration::from_millis(1);
/// How long it is kept for a program that took longer than that the last time.
const SHORT_GRACE: Duration = Duration::from_micros(50);
/// How long commands wait for those before them to finish, at first. A kernel may be waiting for what a later command does,
/// so it is not for ever: after this one more passes, after twice this another, and so on.
const PATIENCE: Duration = Duration::from_millis(20);
/// How often the GPU is looked at while nobody else wants it.
const SAMPLE: Duration = Duration::from_millis(5);

/// What the gate asks of the GPU.
pub trait Work: Sync {
    /// Waits until the GPU has done all that this process has given it.
    fn drain(&self);
    /// Marks the end of what this thread has just given to the GPU.
    fn mark(&self);
    /// Whether the GPU has passed the mark that was made last.
    fn has_passed(&self) -> bool;
}

/// See the module's page.
pub struct Gate<W> {
    lease: &'static Lease,
    counters: &'static Counters,
    /// Has the supervisor look at the lease.
    ring_bell: Box<dyn Fn() + Send + Sync>,
    /// The GPU.
    pub work: W,
    /// The word of the grant that holds here; 0 for none.
    live: AtomicU32,
    /// Threads that have passed and are giving the GPU work.
    inside: AtomicU32,
    /// Commands that have passed.
    passed: AtomicU64,
    /// How many of them the GPU has been given: one that has only passed is not there to be waited for.
    given: AtomicU64,
    /// How many of those it is known to have done, under a paced grant.
    done: AtomicU64,
    /// How many may be on their way under a paced grant.
    window: AtomicU64,
    /// Whether the gate's thread sleeps until something passes.
    dozing: AtomicU32,
    /// Whether the next command is to be marked.
    wants_mark: AtomicU32,
    /// When the GPU was seen to have nothing to do, in nanoseconds; 0 if something came since.
    idle_since: AtomicU64,
    /// Whether the program took longer than [`GRACE`] to go on the last time.
    is_slow: AtomicBool,
    /// How long commands take.
    learnt: Mutex<Pace>,
    /// The last grant that was given back.
    returned: Mutex<u32>,
    changed: Condvar,
}

/// The right to give the GPU work, until it is dropped.
pub struct Inside<'a, W: Work>(&'a Gate<W>);

impl<W: Work> Drop for Inside<'_, W> {
    fn drop(&mut self) {
        let gate = self.0;
        if gate.wants_mark.load(SeqCst) == 1 && gate.wants_mark.swap(0, SeqCst) == 1 {
            gate.work.mark();
        }
        gate.given.fetch_add(1, SeqCst);
        gate.inside.fetch_sub(1, SeqCst);
    }
}

fn number(word: u32) -> u32 {
    word & !grant::MODE
}

fn mode(word: u32) -> u32 {
    word & grant::MODE
}

impl<W: Work> Gate<W> {
    /// A gate that is closed; [`Self::serve`] is for a thread of its own.
    pub fn new(
        lease: &'static Lease,
        counters: &'static Counters,
        work: W,
        ring_bell: Box<dyn Fn() + Send + Sync>,
    ) -> Self {
        Self {
            lease,
            counters,
            ring_bell,
            work,
            live: AtomicU32::new(0),
            inside: AtomicU32::new(0),
            passed: AtomicU64::new(0),
            given: AtomicU64::new(0),
            done: AtomicU64::new(0),
            window: AtomicU64::new(1),
            dozing: AtomicU32::new(0),
            wants_mark: AtomicU32::new(0),
            idle_since: AtomicU64::new(0),
            is_slow: AtomicBool::new(false),
            learnt: Mutex::default(),
            returned: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, u32> {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes, or waits until the lease is here.
    pub fn enter(&self) -> Inside<'_, W> {
        let mut waited: Option<Instant> = None;
        loop {
            if let Some(inside) = self.pass_if(|live| self.has_room(live)) {
                if let Some(since) = waited {
                    add(&self.counters.waits, 1);
                    add(&self.counters.wait_ns, since.elapsed().as_nanos() as u64);
                }
                return inside;
            }
            if waited.is_none() {
                waited = Some(Instant::now());
                self.resumed();
            }
            self.wait();
        }
    }

    /// Passes if the lease is here, however much is under way: for what only orders work.
    pub fn pass_by(&self) -> Option<Inside<'_, W>> {
        self.pass_if(|_| true)
    }

    /// Passes if the lease is here and `may` says so of the grant.
    fn pass_if(&self, may: impl FnOnce(u32) -> bool) -> Option<Inside<'_, W>> {
        // Counted before the grant is looked at: who takes it back looks at the count after it has closed.
        self.inside.fetch_add(1, SeqCst);
        let live = self.live.load(SeqCst);
        if live == 0 || self.lease.grant.load(SeqCst) != live || !may(live) {
            self.inside.fetch_sub(1, SeqCst);
            return None;
        }
        self.passed.fetch_add(1, SeqCst);
        if self.dozing.load(SeqCst) == 1 {
            self.dozing.store(0, SeqCst);
            futex::wake(&self.lease.grant);
        }
        Some(Inside(self))
    }

    fn pace_now(&self) -> MutexGuard<'_, Pace> {
        self.learnt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many commands may be on their way under a paced grant, however short they are.
    fn most(&self) -> u64 {
        match self.lease.most.load(SeqCst) {
            0 => u64::MAX,
            most => most.into(),
        }
    }

    fn has_room(&self, live: u32) -> bool {
        mode(live) == grant::OPEN
            || self.passed.load(SeqCst) - self.done.load(SeqCst) < self.window.load(SeqCst)
    }

    /// Waits until it may be worth trying again.
    fn wait(&self) {
        let mut patience = PATIENCE;
        let mut last = 0;
        let mut returned = self.lock();
        loop {
            let (word, live) = (self.lease.grant.load(SeqCst), self.live.load(SeqCst));
            // What was waited for under another grant says nothing about this one.
            if word != last {
                (last, patience) = (word, PATIENCE);
            }
            if live == word && live != 0 {
                if self.has_room(live) {
                    return;
                }
                let done = self.done.load(SeqCst);
                let (lock, waited) = self
                    .changed
                    .wait_timeout(returned, patience)
                    .unwrap_or_else(PoisonError::into_inner);
                returned = lock;
                if waited.timed_out() && self.done.load(SeqCst) == done {
                    self.window.fetch_add(1, SeqCst);
                    patience *= 2;
                }
                continue;
            }
            // It may be that the gate's thread still waits for what came before: a kernel that waits for a later command.
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

    /// Follows grants; for a thread of its own.
    pub fn serve(&self) -> ! {
        loop {
            let word = self.lease.grant.load(SeqCst);
            let live = {
                let mut returned = self.lock();
                match self.live.load(SeqCst) {
                    0 => self.take(word, &mut returned),
                    live => live,
                }
            };
            match mode(live) {
                grant::PACED => self.pace(live),
                grant::OPEN => self.watch(live),
                _ => futex::wait(&self.lease.grant, word),
            }
        }
    }

    /// Takes a grant that nobody has taken yet or that was widened, if this is one. One that was revoked before anyone took it is
    /// given back at once.
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
        // What an earlier grant left on the GPU may be waiting for the next command: that one passes. If it had to wait for
        // room, it would for ever, for turns are shorter than its patience.
        let done = self.done.load(SeqCst);
        let under_way = self.passed.load(SeqCst) - done;
        let slice = Duration::from_micros(self.lease.slice.load(SeqCst).into());
        let window = self.pace_now().window(slice).min(self.most());
        self.window.store(under_way + window, SeqCst);
        self.live.store(word, SeqCst);
        self.changed.notify_all();
        word
    }

    /// Whether a grant still holds; one that only changed its mode goes on as that.
    fn holds(&self, live: u32) -> bool {
        let word = self.lease.grant.load(SeqCst);
        if word == live {
            return true;
        }
        if number(word) == number(live) && mode(word) != grant::CLOSED {
            let _returned = self.lock();
            // What is under way is not counted yet.
            self.window.store(1, SeqCst);
            self.live.store(word, SeqCst);
            self.changed.notify_all();
        } else {
            self.give_back(live);
        }
        false
    }

    /// Nobody else wants the GPU: sees how busy it is, and that it is wanted back.
    fn watch(&self, live: u32) {
        let mut seen = self.passed.load(SeqCst);
        let mut last = Instant::now();
        self.wants_mark.store(1, SeqCst);
        while self.holds(live) {
            let given = self.passed.load(SeqCst);
            let now = Instant::now();
            // A copy that its caller waits for is not marked before it is over.
            if self.inside.load(SeqCst) > 0 || !self.work.has_passed() {
                let busy = (now - last).as_nanos() as u64;
                add(&self.lease.busy_ns, busy);
                add(&self.counters.busy_ns, busy);
            } else if given == seen {
                self.dozing.store(1, SeqCst);
                if self.passed.load(SeqCst) == seen {
                    futex::wait(&self.lease.grant, live);
                }
                self.dozing.store(0, SeqCst);
                last = Instant::now();
                // What woke this thread may be over soon.
                self.wants_mark.store(1, SeqCst);
                continue;
            } else {
                self.wants_mark.store(1, SeqCst);
            }
            (seen, last) = (given, now);
            futex::wait_for(&self.lease.grant, live, SAMPLE);
        }
    }

    /// Others want the GPU too: keeps what is on its way short.
    fn pace(&self, live: u32) {
        let slice = Duration::from_micros(self.lease.slice.load(SeqCst).into());
        let most = self.most();
        let mut since = Instant::now();
        while self.holds(live) {
            let given = self.given.load(SeqCst);
            let under_way = given - self.done.load(SeqCst);
            if under_way == 0 {
                if !self.comes_more(live, given) {
                    self.give_back(live);
                    return;
                }
                since = Instant::now();
                continue;
            }
            self.pass(under_way);
            let now = Instant::now();
            let window = self
                .pace_now()
                .learn(under_way, now - since, slice)
                .min(most);
            since = now;
            self.finish(given, window);
        }
    }

    /// Waits for what is under way, where the supervisor sees for how long.
    fn pass(&self, commands: u64) {
        let lease = self.lease;
        lease.pass_commands.store(commands as u32, SeqCst);
        lease.pass_since.store(monotonic(), SeqCst);
        self.work.drain();
        lease.pass_since.store(0, SeqCst);
    }

    fn finish(&self, given: u64, window: u64) {
        let _returned = self.lock();
        self.done.store(given, SeqCst);
        self.window.store(window, SeqCst);
        self.changed.notify_all();
    }

    /// Whether another command passes soon.
    fn comes_more(&self, live: u32, given: u64) -> bool {
        let since = Instant::now();
        self.idle_since.store(monotonic(), SeqCst);
        let grace = match self.is_slow.load(SeqCst) {
            true => SHORT_GRACE,
            false => GRACE,
        };
        loop {
            if self.given.load(SeqCst) != given {
                self.resumed();
                return true;
            }
            let over = since.elapsed() > grace && self.inside.load(SeqCst) == 0;
            if over || self.lease.grant.load(SeqCst) != live {
                // The caller sees a revocation for itself.
                return !over;
            }
            if since.elapsed() < 2 * GRACE {
                thread::yield_now();
            } else {
                // One is inside that its caller waits for.
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// A command has come after the GPU had nothing to do: learns how long the program took.
    fn resumed(&self) {
        let since = self.idle_since.swap(0, SeqCst);
        if since > 0 {
            let took = monotonic().saturating_sub(since);
            self.is_slow.store(took > GRACE.as_nanos() as u64, SeqCst);
        }
    }

    /// Lets nothing pass any more, waits for what is under way and says that it is over.
    fn give_back(&self, live: u32) {
        {
            let mut returned = self.lock();
            // Another grant may have come: the supervisor does not wait for ever.
            if self.live.load(SeqCst) != live {
                return;
            }
            self.live.store(0, SeqCst);
            *returned = number(live);
        }
        let mut turns = 0_u32;
        while self.inside.load(SeqCst) > 0 {
            turns += 1;
            if turns < 1000 {
                thread::yield_now();
            } else {
                thread::sleep(Duration::from_micros(200));
            }
        }
        let given = self.given.load(SeqCst);
        let under_way = given - self.done.load(SeqCst);
        if under_way > 0 {
            self.pass(under_way);
            self.finish(given, 1);
        }
        self.lease.returned.store(number(live), SeqCst);
        (self.ring_bell)();
    }
}

/// How many commands make a slice, from how long they take.
#[derive(Debug, Default)]
struct Pace {
    /// What one takes, in nanoseconds.
    each: Option<f64>,
}

impl Pace {
    /// Takes note of what some commands took, and says how many may be on their way.
    fn learn(&mut self, commands: u64, took: Duration, slice: Duration) -> u64 {
        let now = (took.as_nanos() as f64 / commands as f64).max(100.0);
        let each = match self.each {
            // Long ones count at once: too much on its way holds others up.
            Some(before) if now < before => before * 0.75 + now * 0.25,
            _ => now,
        };
        self.each = Some(each);
        self.window(slice)
    }

    /// How many commands may be on their way; one while nothing is known.
    fn window(&self, slice: Duration) -> u64 {
        let each = self.each.unwrap_or(f64::MAX);
        ((slice.as_nanos() as f64 / each) as u64).clamp(1, 1 << 16)
    }
}

#[cfg(test)]
mod tests;
