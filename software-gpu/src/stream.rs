// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Streams: queues of work that a pool of threads runs in order, and the order between streams.
//!
//! Every piece of work has a [`Ticket`]. Its dependencies beyond its own stream (the legacy NULL stream and blocking
//! streams wait for each other; `cuStreamWaitEvent`) are settled when it is queued, under the context's lock, so that
//! the order of calls decides and no circle can form.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::cuda::{CUDA_SUCCESS, CUresult};

use crate::driver::{self, new_id};
use crate::handle::Table;

/// All streams that programs created.
pub static STREAMS: Table<Stream> = Table::new(0x51);

/// The meaning of a NULL stream handle in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Null {
    /// The context's legacy stream.
    Legacy,
    /// The calling thread's own default stream.
    PerThread,
}

/// The order of a stream's work with that of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The legacy default stream: with all blocking streams.
    Legacy,
    /// Ordered with the legacy stream.
    Blocking,
    /// Ordered with no other stream.
    NonBlocking,
}

/// The end of a piece of work, which others wait for.
#[derive(Debug, Default)]
pub struct Ticket {
    done: AtomicBool,
    time: OnceLock<Instant>,
    lock: Mutex<()>,
    changed: Condvar,
}

impl Ticket {
    /// Whether the work has ended.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// The time of the work's end.
    pub fn time(&self) -> Option<Instant> {
        self.time.get().copied()
    }

    /// Waits for the work's end.
    pub fn wait(&self) {
        if self.is_done() {
            return;
        }
        let mut guard = self.lock.lock();
        while !self.is_done() {
            guard = self.changed.wait(guard);
        }
    }

    /// Marks the work as ended.
    pub(crate) fn finish(&self) {
        let _ = self.time.set(Instant::now());
        let _guard = self.lock.lock();
        self.done.store(true, Ordering::Release);
        self.changed.notify_all();
    }
}

/// The work of a stream.
pub enum Work {
    /// Not run after a fault; an error that it returns is a fault.
    Normal(Box<dyn FnOnce() -> Result<(), CUresult> + Send>),
    /// Run in any case, with the fault or `CUDA_SUCCESS`.
    Always(Box<dyn FnOnce(CUresult) + Send>),
}

struct Item {
    ticket: Arc<Ticket>,
    after: Vec<Arc<Ticket>>,
    work: Work,
}

#[derive(Default)]
struct Queue {
    items: VecDeque<Item>,
    // A thread is running the stream or is about to.
    active: bool,
    tail: Option<Arc<Ticket>>,
}

/// The settings of `cuStreamSetAttribute`. All but the priority are hints, which change nothing here.
#[derive(Debug, Clone, Copy)]
pub struct Attributes {
    /// `cuStreamGetPriority`.
    pub priority: i32,
    /// `CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW`: address, bytes, share of hits, and the kinds of hits and misses.
    pub window: (u64, usize, f32, [u32; 2]),
    /// `CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY`.
    pub synchronization: u32,
    /// `CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`: the default and the remote domain.
    pub domains: [u8; 2],
    /// `CU_STREAM_ATTRIBUTE_MEM_SYNC_DOMAIN`.
    pub domain: u32,
}

impl Attributes {
    fn new(priority: i32) -> Self {
        Self {
            priority,
            window: (0, 0, 0.0, [0; 2]),
            // `CU_SYNC_POLICY_AUTO`
            synchronization: 1,
            domains: [0, 1],
            domain: 0,
        }
    }
}

/// A stream.
pub struct Stream {
    /// `cuStreamGetId`.
    pub id: u64,
    /// The handle; zero for default streams.
    pub handle: u64,
    /// Its context, by id: for a stream of a green context, the primary context.
    pub context: u64,
    /// The context that its work is queued in, by its own number.
    pub owner: u64,
    /// Its order relative to other streams.
    pub order: Order,
    attributes: Mutex<Attributes>,
    queue: Mutex<Queue>,
    room: Condvar,
}

/// The maximum work of a stream; a call with more waits, as in NVIDIA's driver after about as much. Queued work takes
/// memory of the process, and the stream's first work may never end.
const MAX_QUEUED: usize = 1024;

impl Stream {
    /// An idle stream of a context, which has an id and its own number.
    pub fn new(handle: u64, (context, owner): (u64, u64), order: Order, priority: i32) -> Self {
        Self {
            id: new_id(),
            handle,
            context,
            owner,
            order,
            attributes: Mutex::new(Attributes::new(priority)),
            queue: Mutex::default(),
            room: Condvar::new(),
        }
    }

    /// A copy of its attributes.
    pub fn attributes(&self) -> Attributes {
        *self.attributes.lock()
    }

    /// Sets its attributes.
    pub fn set_attributes(&self, attributes: Attributes) {
        *self.attributes.lock() = attributes;
    }

    /// Waits until there is room for more work.
    pub fn wait_for_room(&self) {
        let full = |queue: &mut Queue| queue.items.len() >= MAX_QUEUED;
        drop(self.room.wait_while(self.queue.lock(), full));
    }

    /// The last work queued, unless it has ended.
    pub fn pending(&self) -> Option<Arc<Ticket>> {
        self.queue.lock().tail.clone().filter(|t| !t.is_done())
    }

    /// Queues `work` after the stream's work and after `after`.
    pub fn push(self: &Arc<Self>, after: Vec<Arc<Ticket>>, work: Work) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket::default());
        let mut queue = self.queue.lock();
        queue.tail = Some(ticket.clone());
        queue.items.push_back(Item {
            ticket: ticket.clone(),
            after,
            work,
        });
        let start = !std::mem::replace(&mut queue.active, true);
        drop(queue);
        if start {
            Pool::get().submit(self.clone());
        }
        ticket
    }

    /// Runs queued work until the queue is empty.
    fn drain(&self) {
        loop {
            let item = {
                let mut queue = self.queue.lock();
                match queue.items.pop_front() {
                    Some(item) => {
                        if queue.items.len() + 1 == MAX_QUEUED {
                            self.room.notify_all();
                        }
                        item
                    }
                    None => {
                        queue.active = false;
                        return;
                    }
                }
            };
            for ticket in &item.after {
                ticket.wait();
            }
            run(item.work);
            item.ticket.finish();
        }
    }
}

fn run(work: Work) {
    let Ok(driver) = driver::get() else {
        // The process is exiting: no further work runs, and all waits end.
        return;
    };
    // A panic in here is a defect of ours; it must not leave callers waiting for ever.
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| match work {
        Work::Normal(work) => driver.fault().is_ok().then(work).unwrap_or(Ok(())),
        Work::Always(work) => {
            work(driver.fault().err().unwrap_or(CUDA_SUCCESS));
            Ok(())
        }
    }));
    match outcome {
        Ok(Ok(())) => {}
        Ok(Err(code)) => driver.fail(code),
        Err(_) => driver.fail(gpgpu_protocol::cuda::CUDA_ERROR_UNKNOWN),
    }
}

/// Threads that run streams: as many as streams have work at once, since a stream may wait for another.
struct Pool {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    streams: VecDeque<Arc<Stream>>,
    idle: usize,
}

impl Pool {
    fn get() -> &'static Self {
        static POOL: OnceLock<Pool> = OnceLock::new();
        POOL.get_or_init(|| Pool {
            state: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn submit(&'static self, stream: Arc<Stream>) {
        let mut state = self.state.lock();
        state.streams.push_back(stream);
        if state.streams.len() <= state.idle {
            self.changed.notify_one();
            return;
        }
        drop(state);
        let spawned = std::thread::Builder::new()
            .name("software-gpu".into())
            .spawn(|| self.work());
        if spawned.is_err() {
            // No new thread is available: the existing ones will run it, or the caller does if there is none.
            let stream = self.state.lock().streams.pop_back();
            if let Some(stream) = stream {
                stream.drain();
            }
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(stream) = state.streams.pop_front() {
                drop(state);
                stream.drain();
                drop(stream);
                state = self.state.lock();
                continue;
            }
            state.idle += 1;
            state = self.changed.wait_while(state, |s| s.streams.is_empty());
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_keeps_its_order_and_waits_for_others() {
        driver::init().unwrap();
        let first = Arc::new(Stream::new(0, (1, 1), Order::NonBlocking, 0));
        let second = Arc::new(Stream::new(0, (1, 1), Order::NonBlocking, 0));
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let note = |n: i32| {
            let seen = seen.clone();
            Work::Always(Box::new(move |_| seen.lock().push(n)))
        };
        let blocked = first.push(
            Vec::new(),
            Work::Always(Box::new(move |_| gate.recv().unwrap())),
        );
        let a = first.push(Vec::new(), note(1));
        let b = second.push(vec![a.clone()], note(2));
        assert!(!blocked.is_done() && !a.is_done() && !b.is_done());
        open.send(()).unwrap();
        b.wait();
        assert_eq!(*seen.lock(), [1, 2]);
        assert!(first.pending().is_none());
    }
}
