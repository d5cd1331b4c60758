// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The gate's thread, which follows the GPU's work under a grant.

use super::*;

/// The time for which the lease is kept for a program that waits for one kernel before it launches the next.
pub(super) const GRACE: Duration = Duration::from_millis(1);
/// The time for a program that took longer than that the last time.
const SHORT_GRACE: Duration = Duration::from_micros(50);
/// The interval between two checks of the GPU while no other VM wants it.
const SAMPLE: Duration = Duration::from_millis(5);
/// The time before the end of its work on the GPU at which a worker announces the end of its turn, in nanoseconds: the
/// time until another worker's first kernel arrives.
const LEAD: u64 = 120_000;
/// The thread sleeps during a longer wait for the GPU, except for its last part, in nanoseconds: a timer of the host
/// may be two milliseconds late.
const LONG: u64 = 2_500_000;

impl<W: Work> Gate<W> {
    /// Follows grants, on a thread of its own.
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

    /// Whether a grant still holds. If only its mode changed, it holds with the new mode.
    fn holds(&self, live: u32) -> bool {
        let word = self.lease.grant.load(SeqCst);
        if word == live {
            return true;
        }
        if number(word) == number(live) && mode(word) != grant::CLOSED {
            let _returned = self.lock();
            self.set_window(mode(word));
            self.live.store(word, SeqCst);
            self.changed.notify_all();
        } else {
            self.give_back(live, false);
        }
        false
    }

    /// While no other VM wants the GPU: measures its use, and waits for a revocation.
    fn watch(&self, live: u32) {
        let mut seen = self.given.load(SeqCst);
        let mut last = Instant::now();
        let mut mark: Option<(u64, W::Mark)> = None;
        // The number up to which commands are complete in all streams.
        let mut done = 0;
        self.mark_at.store(0, SeqCst);
        while self.holds(live) {
            let given = self.given.load(SeqCst);
            let now = Instant::now();
            while let Some(next) = self.next_mark() {
                self.release(mark.replace(next));
            }
            let passed = mark.take_if(|(_, mark)| self.work.has_passed(mark));
            self.release(passed);
            // A copy for which its caller waits has no mark before it is complete.
            if self.is_inside() || mark.is_some() {
                self.was_busy(now - last);
            } else if given == seen && done < given {
                // A mark says nothing about later commands, nor about those of other streams.
                self.work.drain();
                done = given;
                self.was_busy(last.elapsed());
                last = Instant::now();
                continue;
            } else if given == seen {
                self.dozing.store(1, SeqCst);
                if self.entered.load(SeqCst) == seen {
                    futex::wait(&self.lease.grant, live);
                }
                self.dozing.store(0, SeqCst);
                last = Instant::now();
                // The work that has woken this thread may be complete soon.
                self.mark_at.store(0, SeqCst);
                continue;
            } else {
                self.mark_at.store(0, SeqCst);
            }
            (seen, last) = (given, now);
            futex::wait_for(&self.lease.grant, live, SAMPLE);
        }
        self.release(mark);
    }

    fn release(&self, mark: Option<(u64, W::Mark)>) {
        if let Some((_, mark)) = mark {
            self.work.release(mark);
        }
    }

    /// Adds time for which the GPU had work of this process under an open grant.
    fn was_busy(&self, time: Duration) {
        let time = time.as_nanos() as u64;
        add(&self.lease.busy_ns, time);
        add(&self.counters.busy_ns, time);
        add(self.vm_busy_ns, time);
    }

    /// While other VMs want the GPU too: limits the work in flight.
    fn pace(&self, live: u32) {
        let is_watched = self.lease.most.load(SeqCst) != 0;
        let mut next: Option<(u64, W::Mark)> = None;
        let mut busy_since = self.work.now();
        // Whether there was work since then, and whether there was any in this turn.
        let (mut has_work, mut had_work) = (false, false);
        while self.is_revoked_amid_work(live) || self.holds(live) {
            let (given, done) = (self.given.load(SeqCst), self.done.load(SeqCst));
            if given < done {
                // The GPU has passed the mark behind a command that its thread has not counted yet.
                thread::yield_now();
                continue;
            }
            if given == done {
                if std::mem::take(&mut has_work) {
                    self.learn_burst(busy_since, true);
                }
                if !self.comes_more(live, given, had_work) {
                    let since = self.work.now();
                    // While other streams still have work, the turn goes on: commands may pass during this wait.
                    self.pass(given);
                    if self.given.load(SeqCst) == given {
                        self.give_back(live, false);
                        break;
                    }
                    // The commands that came meanwhile began after this time.
                    self.resumed();
                    busy_since = since;
                    self.began.store(since, SeqCst);
                    continue;
                }
                busy_since = self.work.now();
                self.began.store(busy_since, SeqCst);
                continue;
            }
            (has_work, had_work) = (true, true);
            let now = self.work.now();
            let left = self.left(self.entered.load(SeqCst), now);
            let is_last = self.is_too_late(left, now) || self.is_revoked(live);
            if self.is_as_expected(now) && left <= LEAD && is_last {
                self.give_back(live, true);
                break;
            }
            while next.as_ref().is_none_or(|(count, _)| *count <= done) {
                self.release(next.take());
                next = self.next_mark();
                if next.is_none() {
                    break;
                }
            }
            match &next {
                // A kernel with a time limit must not be hidden by others that end beside it.
                Some((count, mark)) if !is_watched => {
                    if self.work.has_passed(mark) {
                        self.finish(*count, done, true);
                    } else {
                        self.tell_of_room(live);
                        self.relax(*count, now);
                    }
                }
                _ => {
                    self.pass(given);
                    self.finish(given, done, true);
                }
            }
        }
        if has_work {
            self.learn_burst(busy_since, false);
        }
        self.release(next);
    }

    /// Whether the supervisor has revoked the grant.
    fn is_revoked(&self, live: u32) -> bool {
        let word = self.lease.grant.load(SeqCst);
        number(word) == number(live) && mode(word) == grant::CLOSED
    }

    /// Whether the grant was revoked while the end of the commands on the GPU can be predicted: the end is then
    /// announced a little in advance, so that the next client's first command reaches the GPU in time. No further
    /// command passes.
    fn is_revoked_amid_work(&self, live: u32) -> bool {
        let has_work = self.given.load(SeqCst) != self.done.load(SeqCst);
        self.is_revoked(live) && has_work && self.is_as_expected(self.work.now())
    }

    /// Whether the GPU's work is within its expected time: not if no time is known, nor if it has taken twice as long.
    fn is_as_expected(&self, now: u64) -> bool {
        let under_way = self
            .entered
            .load(SeqCst)
            .saturating_sub(self.done.load(SeqCst));
        let expected = under_way.saturating_mul(self.each.load(SeqCst));
        let taken = now.saturating_sub(self.began.load(SeqCst));
        expected > 0 && taken < expected.saturating_mul(2).saturating_add(LEAD)
    }

    /// Learns the time for which the program kept the GPU busy; `is_whole` if it waited at the end.
    fn learn_burst(&self, since: u64, is_whole: bool) {
        let busy = Duration::from_nanos(self.work.now().saturating_sub(since));
        let mut pace = self.pace_now();
        pace.learn_burst(busy, is_whole);
        self.lease.burst_ns.store(pace.burst(), SeqCst);
    }

    /// Wakes waiting threads if one more command may be in flight.
    fn tell_of_room(&self, live: u32) {
        if self.waiting.load(SeqCst) > 0 && self.has_room(live, self.entered.load(SeqCst)) {
            let _returned = self.lock();
            self.changed.notify_all();
        }
    }

    /// Waits until the GPU may soon have reached the command with this number.
    fn relax(&self, count: u64, now: u64) {
        let left = self.left(count, now);
        if left > LONG {
            let most = Duration::from_nanos(left + 500_000 - LONG);
            let word = self.lease.grant.load(SeqCst);
            futex::wait_for(&self.lease.grant, word, most);
        } else {
            for _ in 0..32 {
                std::hint::spin_loop();
            }
            thread::yield_now();
        }
    }

    /// Waits until all streams have done the commands up to `given`, the present number, and publishes the wait to the
    /// supervisor.
    fn pass(&self, given: u64) {
        let drained = self.drained.load(SeqCst);
        if drained >= given {
            return;
        }
        let commands = u32::try_from(given - drained).unwrap_or(u32::MAX);
        let lease = self.lease;
        lease.pass_commands.store(commands, SeqCst);
        lease.pass_since.store(self.work.now(), SeqCst);
        self.work.drain();
        lease.pass_since.store(0, SeqCst);
        self.drained.store(given, SeqCst);
    }

    /// Handles the completion of the commands up to this number.
    pub(super) fn finish(&self, count: u64, done: u64, learns: bool) {
        let now = self.work.now();
        let took = now.saturating_sub(self.began.load(SeqCst));
        let (window, each) = {
            let mut pace = self.pace_now();
            if learns {
                pace.learn(count - done, Duration::from_nanos(took));
            }
            (pace.window(self.slice()).min(self.most()), pace.each())
        };
        let window = window.min(2 * self.window.load(SeqCst));
        let _returned = self.lock();
        self.done.store(count, SeqCst);
        self.began.store(now, SeqCst);
        self.each.store(each, SeqCst);
        self.window.store(window, SeqCst);
        self.stride.store((window / 4).max(1), SeqCst);
        self.changed.notify_all();
    }

    /// Whether another command passes soon, within this turn. The first command of a turn passes however long it takes.
    fn comes_more(&self, live: u32, given: u64, had_work: bool) -> bool {
        let since = Instant::now();
        self.idle_since.store(self.work.now(), SeqCst);
        let grace = match self.is_slow.load(SeqCst) {
            true => SHORT_GRACE,
            false => GRACE,
        };
        loop {
            if self.given.load(SeqCst) != given {
                self.resumed();
                return true;
            }
            // A thread that waits for the lease or for room has just been notified.
            let has_waiting = self.waiting.load(SeqCst) + self.lease.wants.load(SeqCst) > 0;
            let is_quiet = since.elapsed() > grace && !has_waiting;
            let is_over = is_quiet || had_work && self.is_too_late(0, self.work.now());
            let over = is_over && !self.is_inside();
            if over || self.lease.grant.load(SeqCst) != live {
                // The caller detects a revocation itself.
                return !over;
            }
            if since.elapsed() < 2 * GRACE {
                thread::yield_now();
            } else {
                // A command is inside for which its caller waits.
                thread::sleep(Duration::from_micros(200));
            }
        }
    }

    /// Closes the gate, waits for work in flight and reports its end. If the work is expected to end soon, first
    /// announces the end of the turn.
    fn give_back(&self, live: u32, is_ending: bool) {
        {
            let mut returned = self.lock();
            // Another grant may have arrived, because the supervisor's patience is limited.
            if self.live.load(SeqCst) != live {
                return;
            }
            self.live.store(0, SeqCst);
            *returned = number(live);
        }
        // Threads that wait for room then wait for the next grant.
        self.changed.notify_all();
        self.wait_until_empty();
        let (given, done) = (self.given.load(SeqCst), self.done.load(SeqCst));
        if given > done {
            if is_ending {
                self.lease.ending.store(number(live), SeqCst);
                (self.ring_bell)();
            }
            // The progress of commands under an open grant is not counted.
            let learns = is_ending || (mode(live) == grant::PACED && self.is_revoked(live));
            self.pass(given);
            self.finish(given, done, learns);
        } else {
            // Marks have shown the end of these commands in some streams only.
            self.pass(given);
        }
        self.lease.returned.store(number(live), SeqCst);
        (self.ring_bell)();
    }
}
