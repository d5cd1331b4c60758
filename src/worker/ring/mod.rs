// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The worker's end of the ring: a thread of its own that executes the guest's records.
//!
//! The thread polls while the guest is busy and sleeps when it is not ([`polling`]). It never waits for the GPU: it
//! issues a command for whose completion the guest waits, and makes the GPU itself write to the request's reply slot
//! afterwards (`cuStreamWriteValue32`). The guest polls that slot.

mod fences;
mod polling;
mod region;

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence},
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Completion, operation},
    codec::Malformed,
    cuda::*,
    futex,
    layout::MAX_ANSWER_BYTES,
    ring::{
        Area, Broken, COMMAND_BYTES, Consumer, ELSEWHERE, KEPT, NO_SLOT, RING_BYTES, Record,
        SLOT_ANSWER_BYTES, SLOTS,
    },
};
use zerocopy::IntoBytes;

use super::{
    Command, Commands, counts,
    crowds::{BACKLOG, Crowds, Waiting},
    dispatch::{Answer, Until},
    lease, objects,
    session::{Data, Session, Way},
    threads::Pool,
    wait,
};
use polling::{Polling, SHORTEST_POLL};
use region::Registered;

/// The maximum number of commands between two wake-ups of threads that wait for them.
const BATCH: u32 = 32;
/// The maximum size of an answer that is kept for a slot. It must fit into an answer of the command queue.
const LONGEST_KEPT: usize = MAX_ANSWER_BYTES - 256;

/// Launches that wait for following ones, and their records.
#[derive(Debug, Default)]
struct Crowd {
    waiting: Waiting,
    /// Each with the number of words of its commands in `words`.
    records: Vec<(Record, usize)>,
    words: Vec<u64>,
}

impl Crowd {
    /// Takes a record, if it is a launch that can join the waiting ones.
    fn takes(&mut self, record: &Record, commands: &[u64]) -> bool {
        let takes = record.slot == NO_SLOT && self.waiting.take(commands.as_bytes());
        if takes {
            self.records.push((*record, commands.len()));
            self.words.extend_from_slice(commands);
        }
        takes
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.records.clear();
        self.words.clear();
    }
}

/// The pending waits of a request. Their index is the slot.
#[derive(Debug, Default, Clone)]
struct Pending {
    sequence: u32,
    /// Whether a thread of the pool is executing it.
    is_running: bool,
    context: u64,
    streams: Vec<u64>,
}

/// A long answer, and the sequence of its request.
type Kept = (u32, Vec<u8>);

/// See the module's documentation.
#[derive(Debug)]
pub struct Ring {
    area: Area<'static>,
    base: u64,
    registered: Mutex<Option<Registered>>,
    pending: Mutex<Vec<Pending>>,
    /// The position behind the last executed command.
    done: AtomicU64,
    waiting: AtomicUsize,
    reaching: Mutex<()>,
    reached: Condvar,
    crowds: Mutex<Crowds>,
    /// Whether it accepts waits, and requests with long answers.
    is_wide: AtomicBool,
    /// Whether the driver may miss that the device sleeps.
    is_relaxed: AtomicBool,
    /// Answers that do not fit into their slots.
    kept: Mutex<Vec<Option<Kept>>>,
}

/// Serves the client's ring, once it has set one up, on a thread of its own.
///
/// # Errors
///
/// The thread cannot be started.
pub fn serve(session: &'static Session, pool: Pool) -> io::Result<()> {
    let serve = move || {
        let Err(broken) = session.ring.wait().serve(session, &pool);
        // The start of the next record is unknown, so the client ends, like a native process after memory corruption.
        tracing::warn!("{broken}");
        std::process::exit(1);
    };
    let thread = thread::Builder::new().name("ring".into());
    thread.spawn(serve).map(drop)
}

impl Ring {
    /// Takes the guest's ring at an address of its registered memory. From now on [`serve`] serves it.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is one already or the memory is not registered as a whole.
    pub fn set_up(session: &Session, address: u64) -> Result<(), CUresult> {
        // A ring cannot be replaced.
        if !address.is_multiple_of(4096) || session.ring.get().is_some() {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let base = session
            .regions
            .keep(address, RING_BYTES as u64)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        // SAFETY: the regions keep the memory mapped from now on.
        let area = unsafe { Area::new(base as *mut u8) };
        let ring = Self {
            area,
            base,
            registered: Mutex::default(),
            pending: Mutex::new(vec![Pending::default(); SLOTS]),
            done: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            reaching: Mutex::new(()),
            reached: Condvar::new(),
            crowds: Mutex::default(),
            is_wide: AtomicBool::new(false),
            is_relaxed: AtomicBool::new(false),
            kept: Mutex::new(vec![None; SLOTS]),
        };
        session.ring.set(ring).map_err(|_| CUDA_ERROR_INVALID_VALUE)
    }

    /// Wakes the ring's thread, once this worker may write to the guest's memory. For other threads: no command in the
    /// ring calls this. A guest process on this machine wakes the thread itself.
    pub fn wake(&self, session: &Session) {
        let sleeping = self.area.sleeping();
        session
            .ring_writes
            .write(|| sleeping.store(0, Ordering::Release));
        futex::wake(sleeping);
    }

    fn serve(
        &'static self,
        session: &'static Session,
        pool: &Pool,
    ) -> Result<std::convert::Infallible, Broken> {
        objects::is_the_rings_thread();
        let mut consumer = Consumer::new(self.area, 0);
        let mut commands = Vec::new();
        let mut polling = Polling::new();
        let mut crowd = Crowd::default();
        let writer = session.writer;
        writer.begin();
        lease::wake_later();
        // The number of records since the gates' threads were last woken.
        let mut unseen = 0;
        loop {
            writer.look();
            let mut since = 0;
            let start = consumer.head();
            while let Some(record) = consumer.next(&mut commands)? {
                since += 1;
                writer.look();
                let may_wait = !crowd.waiting.is_empty() || consumer.backlog() >= BACKLOG;
                if may_wait && crowd.takes(&record, &commands) {
                    // A launch in the last record of the ring does not wait for others.
                    if !crowd.waiting.is_crowd() && consumer.backlog() > 0 {
                        continue;
                    }
                    self.give(session, &mut crowd);
                } else {
                    self.give(session, &mut crowd);
                    self.take(session, pool, &record, &commands);
                }
                self.done.store(consumer.head(), Ordering::Release);
                if since % BATCH == 0 {
                    session.gates.rouse();
                    self.announce();
                    self.count(session, since, consumer.head(), start);
                }
            }
            // A request that waits for other commands ends the group.
            self.give(session, &mut crowd);
            self.done.store(consumer.head(), Ordering::Release);
            self.announce();
            self.count(session, since, consumer.head(), start);
            unseen += since;
            if unseen >= BATCH {
                session.gates.rouse();
                unseen = 0;
            }
            let idle = Instant::now();
            let mut has_more = poll_for(SHORTEST_POLL, || consumer.has_more());
            if !has_more {
                // No command waits for this.
                session.gates.rouse();
                unseen = 0;
                has_more = poll_for(polling.limit() - SHORTEST_POLL, || consumer.has_more());
            }
            if has_more {
                polling.idled(Duration::ZERO);
                continue;
            }
            while consumer.prepare_to_sleep() {
                let asleep = writer.pause();
                let is_relaxed = self.is_relaxed.load(Ordering::Relaxed);
                consumer.sleep(is_relaxed, |word, limit| match limit {
                    Some(limit) => futex::wait_for(word, 1, limit),
                    None => futex::wait(word, 1),
                });
                drop(asleep);
                consumer.awake();
            }
            polling.idled(idle.elapsed());
        }
    }

    /// Executes the launches that wait: as a graph, or one after the other.
    fn give(&self, session: &Session, crowd: &mut Crowd) {
        if crowd.waiting.is_empty() {
            return;
        }
        if !self.crowds().issue(session, &crowd.waiting) {
            let mut rest = crowd.words.as_slice();
            for (record, words) in &crowd.records {
                let (commands, others) = rest.split_at(*words);
                self.carry_out(session, record, commands.as_bytes());
                rest = others;
            }
        }
        crowd.clear();
    }

    /// The groups of launches.
    pub fn crowds(&self) -> MutexGuard<'_, Crowds> {
        self.crowds.lock()
    }

    /// Executes a record, here or, if it may block, on a thread of the pool.
    fn take(
        &'static self,
        session: &'static Session,
        pool: &Pool,
        record: &Record,
        commands: &[u64],
    ) {
        let is_wide = record.slot != NO_SLOT && self.is_wide.load(Ordering::Relaxed);
        if !is_wide || !Commands(commands.as_bytes()).any(|command| waits(&command)) {
            return self.carry_out(session, record, commands.as_bytes());
        }
        let is_free = self.with_pending(record, |pending| {
            let is_free = !pending.is_running;
            if is_free {
                *pending = Pending {
                    sequence: record.sequence,
                    is_running: true,
                    ..Pending::default()
                };
            }
            is_free
        });
        if !is_free {
            // Only one request of a slot can be in flight, so a client has no more in flight than there are slots.
            session.defer(CUDA_ERROR_INVALID_VALUE);
            return;
        }
        let (record, commands) = (*record, commands.to_vec());
        pool.run(move |may_block| {
            self.carry_out_aside(session, &record, commands.as_bytes(), may_block);
            counts::flush(session);
        });
    }

    /// Executes a record that may block.
    fn carry_out_aside(
        &self,
        session: &Session,
        record: &Record,
        commands: &[u8],
        may_block: bool,
    ) {
        let fence = |_, until: &Until, passage| wait(session, until, passage);
        let answered = if may_block {
            super::execute(session, commands, Data::of(Way::WideRing), fence)
        } else {
            // Without a thread here, the command queue reports the lack.
            Ok((Answer::code(CUDA_SUCCESS), ELSEWHERE))
        };
        // The record counts as executed when the answer is written, and not before. The client may then use the slot
        // for another request at once, which waits for the lock or finds the slot free.
        self.answer(session, record, answered, |write| {
            session.ring_writes.write(|| {
                self.with_pending(record, |pending| {
                    write();
                    *pending = Pending::default();
                });
            });
        });
    }

    /// Lets `change` read or change what is known of the pending request of a record's slot.
    fn with_pending<T>(&self, record: &Record, change: impl FnOnce(&mut Pending) -> T) -> T {
        change(&mut self.pending.lock()[record.slot as usize % SLOTS])
    }

    fn carry_out(&self, session: &Session, record: &Record, commands: &[u8]) {
        let way = match record.slot != NO_SLOT && self.is_wide.load(Ordering::Relaxed) {
            true => Way::WideRing,
            false => Way::Ring,
        };
        let answered = super::execute(session, commands, Data::of(way), |op, until, passage| {
            self.fence(session, record, op, until, passage)
        });
        self.answer(session, record, answered, |write| write());
    }

    /// Answers a record, if an answer is wanted; `write` performs the writes to the slot.
    fn answer(
        &self,
        session: &Session,
        record: &Record,
        answered: Result<(Answer, u32), Malformed>,
        write: impl FnOnce(&dyn Fn()),
    ) {
        let (mut answer, mut fences) =
            answered.unwrap_or_else(|_| (Answer::code(CUDA_ERROR_INVALID_VALUE), 0));
        if record.slot == NO_SLOT {
            if answer.result != CUDA_SUCCESS {
                session.defer(answer.result);
            }
            return;
        }
        if answer.len() > SLOT_ANSWER_BYTES {
            if self.is_wide.load(Ordering::Relaxed) && answer.len() <= LONGEST_KEPT {
                let bytes = [&answer.head(session), answer.reply()].concat();
                self.kept.lock()[record.slot as usize % SLOTS] = Some((record.sequence, bytes));
                (answer, fences) = (Answer::code(CUDA_SUCCESS), KEPT);
            } else {
                // Without a wide ring, the table excludes such long answers.
                (answer, fences) = (Answer::code(CUDA_ERROR_UNKNOWN), 0);
            }
        }
        let head = answer.head(session);
        let slot = self.area.slot(record.slot as usize);
        write(&|| slot.answer(record.sequence, fences, &head, answer.reply()));
    }

    /// Accepts waits, and requests with long answers, from now on.
    pub fn widen(&self) {
        self.is_wide.store(true, Ordering::Relaxed);
    }

    /// Allows the driver, from now on, to miss that the device sleeps.
    pub fn relax(&self, session: &Session) {
        self.is_relaxed.store(true, Ordering::Relaxed);
        // A thread that sleeps would not check again.
        self.wake(session);
    }

    /// Takes an answer that did not fit into its slot.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if there is none.
    pub fn take_kept(&self, slot: u32, sequence: u32) -> Result<Vec<u8>, CUresult> {
        let mut kept = self.kept.lock();
        let kept = kept
            .get_mut(slot as usize)
            .ok_or(CUDA_ERROR_INVALID_VALUE)?;
        match kept.take_if(|(of, _)| *of == sequence) {
            Some((_, answer)) => Ok(answer),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Reports the executed part of the ring, and the pending part, to the supervisor: `records` records were executed
    /// since `start`.
    fn count(&self, session: &Session, records: u32, head: u64, start: u64) {
        counts::flush(session);
        let waiting = self.area.tail().wrapping_sub(head);
        let waiting = waiting.min(COMMAND_BYTES as u64);
        let queued = counts::estimate(waiting, records.into(), head.wrapping_sub(start));
        counts::set(session, |counters| &counters.queued, queued);
    }

    /// Wakes threads that wait for commands that were executed by now.
    fn announce(&self) {
        // A waiter counts itself before it checks, so one of the two sees the other. The barrier waits for all earlier
        // stores, so it is not executed for each command.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            let _reaching = self.reaching.lock();
            self.reached.notify_all();
        }
    }

    /// Whether every command up to a position was executed.
    pub fn has_reached(&self, position: u64) -> bool {
        self.done.load(Ordering::SeqCst).wrapping_sub(position) as i64 >= 0
    }

    /// Waits until every command up to a position was executed.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if no command was appended there.
    pub fn wait(&self, position: u64) -> Result<(), CUresult> {
        if (self.area.tail().wrapping_sub(position) as i64) < 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if poll_for(SHORTEST_POLL, || self.has_reached(position)) {
            return Ok(());
        }
        let mut reaching = self.reaching.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !self.has_reached(position) {
            reaching = self.reached.wait(reaching);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }
}

/// Whether a command may block.
fn waits(command: &Command<'_>) -> bool {
    operation(command.op).is_some_and(|operation| operation.completion == Completion::Wait)
}

/// Polls a condition, at most for `limit`.
fn poll_for(limit: Duration, mut is_there: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..64 {
            if is_there() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() >= limit {
            return false;
        }
    }
}

#[cfg(test)]
mod tests;
