// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Contexts, and the order between the streams of one.

mod limit;
mod thread;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::{
    CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_DEINITIALIZED, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_HANDLE, CUdevice,
    CUstream,
};

use crate::config::{Config, MULTIPROCESSORS};
use crate::driver::{self, Driver, new_id};
use crate::effects::{OfContext, Peers};
use crate::ffi::Result;
use crate::graph;
use crate::green::Green;
use crate::handle::Table;
use crate::heap::Heap;
use crate::memory::{Allocation, Charge};
use crate::printed::Printed;
use crate::stream::{Null, Order, STREAMS, Stream, Ticket, Work};
use crate::{api, array, module, reference};
pub use thread::{current, current_handle, named_or_current, pop, push, replace};

/// All contexts.
pub static CONTEXTS: Table<Context> = Table::new(0xc0);

// By id: work finds the context of a stream without keeping it alive.
static LIVE: Mutex<Vec<(u64, Weak<Context>)>> = Mutex::new(Vec::new());

thread_local! {
    static DEFAULT_STREAMS: RefCell<HashMap<u64, Arc<Stream>>> = RefCell::new(HashMap::new());
}

/// `CU_LIMIT_PRINTF_FIFO_SIZE` unless it is set.
const PRINTF_BYTES: usize = 1 << 20;
/// `CU_LIMIT_MALLOC_HEAP_SIZE` unless it is set.
const HEAP_BYTES: usize = 8 << 20;

/// A device's primary context.
#[derive(Default)]
pub struct Primary {
    /// The number of times that it is retained. A reset does not change it.
    pub retained: u32,
    /// Whether it exists.
    pub is_active: bool,
    /// `cuDevicePrimaryCtxSetFlags`.
    pub flags: u32,
    /// Always the same handle, once there was one.
    pub handle: u64,
}

impl Primary {
    fn end(&mut self, driver: &'static Driver) {
        let was_active = std::mem::take(&mut self.is_active);
        if let Some(context) = CONTEXTS.get(self.handle).filter(|_| was_active) {
            context.tear_down(driver);
        }
        // The next one has its own, unless it is set again.
        self.flags = 0;
    }
}

/// A context.
pub struct Context {
    /// A number that is never reused, by which objects refer to it. A green context has that of its primary context,
    /// which owns objects made in it.
    pub id: u64,
    /// Its own number, with which its streams refer to it.
    pub own: u64,
    /// The handle.
    pub handle: u64,
    /// Its device.
    pub device: CUdevice,
    /// Whether it is the device's primary context.
    pub is_primary: bool,
    /// `cuCtxGetFlags`.
    pub flags: AtomicU32,
    /// `cuCtxGetCacheConfig`.
    pub cache_config: AtomicU32,
    /// `cuCtxGetSharedMemConfig`.
    pub shared_config: AtomicU32,
    /// Its primary context, if it is a green context.
    pub green: Option<Green>,
    // The green contexts that are parts of this one.
    greens: Mutex<Vec<Weak<Context>>>,
    destroyed: AtomicBool,
    // Its device memory, until it is torn down.
    charge: Mutex<Option<Charge>>,
    limits: Mutex<[usize; 10]>,
    /// The output of its kernels.
    pub printed: Arc<Printed>,
    heap: Arc<Heap>,
    /// The contexts whose memory its kernels reach; of a green context, those of its primary one.
    pub peers: Arc<Peers>,
    legacy: Arc<Stream>,
    // The dependencies of all later work (`cuCtxWaitEvent`).
    behind: Mutex<Vec<Arc<Ticket>>>,
    /// Marks of [`Context::mark`] that have not ended: waits for the context wait for them too.
    marks: Mutex<Vec<Arc<Ticket>>>,
    // Held while work is queued: the order of the calls is the order between streams.
    streams: Mutex<Vec<Weak<Stream>>>,
}

impl Context {
    fn charge(device: CUdevice) -> Result<Option<Charge>> {
        match Config::get().context {
            0 => Ok(None),
            bytes => driver::get()?.memory.charge(bytes, device).map(Some),
        }
    }

    fn new(
        handle: u64,
        device: CUdevice,
        is_primary: bool,
        flags: u32,
        (charge, green): (Option<Charge>, Option<Green>),
    ) -> Self {
        let own = new_id();
        let home = green.as_ref().map(|of| Arc::clone(&of.home));
        let id = home.as_ref().map_or(own, |home| home.id);
        let (printed, heap, peers) = match home.map(|home| home.effects()) {
            Some(of) => (of.printed, of.heap, of.peers),
            None => (
                Arc::new(Printed::new(PRINTF_BYTES)),
                Arc::new(Heap::new(HEAP_BYTES, (id, device))),
                Arc::default(),
            ),
        };
        Self {
            id,
            own,
            green,
            greens: Mutex::default(),
            handle,
            device,
            is_primary,
            flags: AtomicU32::new(flags),
            cache_config: AtomicU32::new(0),
            shared_config: AtomicU32::new(1),
            destroyed: AtomicBool::new(false),
            charge: Mutex::new(charge),
            // Stack, printf FIFO, heap, sync depth, pending launches, L2 fetch granularity, persisting L2, …
            limits: Mutex::new([1024, PRINTF_BYTES, HEAP_BYTES, 2, 2048, 64, 0, 0, 0, 0]),
            printed,
            heap,
            peers,
            legacy: Arc::new(Stream::new(0, (id, own), Order::Legacy, 0)),
            behind: Mutex::default(),
            marks: Mutex::default(),
            streams: Mutex::default(),
        }
    }

    fn announce(self: &Arc<Self>) {
        let mut live = LIVE.lock();
        live.retain(|(_, c)| c.strong_count() > 0);
        live.push((self.own, Arc::downgrade(self)));
    }

    /// A new context.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn create(device: CUdevice, flags: u32) -> Result<Arc<Self>> {
        let charge = Self::charge(device)?;
        let context =
            CONTEXTS.insert_with(|handle| Self::new(handle, device, false, flags, (charge, None)));
        context.announce();
        Ok(context)
    }

    /// A new green context.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn create_green(green: Green) -> Result<Arc<Self>> {
        let (home, device) = (Arc::clone(&green.home), green.home.device);
        let charge = Self::charge(device)?;
        let context = CONTEXTS
            .insert_with(|handle| Self::new(handle, device, false, 0, (charge, Some(green))));
        context.announce();
        home.greens.lock().push(Arc::downgrade(&context));
        Ok(context)
    }

    /// The green contexts that are parts of it.
    fn greens(&self) -> Vec<Arc<Self>> {
        let mut greens = self.greens.lock();
        greens.retain(|of| of.strong_count() > 0);
        greens.iter().filter_map(Weak::upgrade).collect()
    }

    /// Itself; for a green context, its primary context.
    pub fn home(&self) -> &Self {
        self.green.as_ref().map_or(self, |of| &of.home)
    }

    /// The effects of its kernels other than on memory.
    pub fn effects(&self) -> OfContext {
        OfContext {
            printed: Arc::clone(&self.printed),
            heap: Arc::clone(&self.heap),
            limits: self.limits(),
            peers: Arc::clone(&self.peers),
        }
    }

    /// The multiprocessors that it may use.
    pub fn multiprocessors(&self) -> u32 {
        let own = self.green.as_ref().map(|of| of.bits.count_ones());
        own.unwrap_or(MULTIPROCESSORS)
    }

    /// Ends a green context, when its work is done. Its streams can no longer be used.
    pub fn end_green(&self) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.wait();
        graph::forget_context(self.handle);
        LIVE.lock().retain(|(own, _)| *own != self.own);
        CONTEXTS.remove(self.handle);
        drop(self.charge.lock().take());
    }

    /// Retains a device's primary context, which is made if there is none.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn retain_primary(driver: &Driver, device: CUdevice) -> Result<u64> {
        let mut primary = driver.primary(device);
        if !primary.is_active {
            let flags = primary.flags;
            let charge = Self::charge(device)?;
            let context = if primary.handle == 0 {
                CONTEXTS
                    .insert_with(|handle| Self::new(handle, device, true, flags, (charge, None)))
            } else {
                let all = (charge, None);
                let context = Arc::new(Self::new(primary.handle, device, true, flags, all));
                CONTEXTS.replace(primary.handle, context.clone());
                context
            };
            primary.handle = context.handle;
            primary.is_active = true;
            context.announce();
        }
        primary.retained += 1;
        Ok(primary.handle)
    }

    /// Releases the primary context; the last release destroys its objects.
    pub fn release_primary(driver: &'static Driver, device: CUdevice) -> Result {
        let mut primary = driver.primary(device);
        primary.retained = primary
            .retained
            .checked_sub(1)
            .ok_or(CUDA_ERROR_INVALID_CONTEXT)?;
        if primary.retained == 0 {
            primary.end(driver);
        }
        Ok(())
    }

    /// Destroys the primary context's objects, whoever has retained it.
    pub fn reset_primary(driver: &'static Driver, device: CUdevice) {
        driver.primary(device).end(driver);
    }

    /// Whether it can no longer be used.
    pub fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Waits for its work and drops all that belongs to it.
    pub fn tear_down(&self, driver: &'static Driver) {
        if self.destroyed.swap(true, Ordering::AcqRel) {
            return;
        }
        self.greens().iter().for_each(|green| green.end_green());
        self.wait();
        self.heap.close();
        graph::forget_context(self.handle);
        self.printed.put_out();
        STREAMS.remove_where(|s| s.context == self.id);
        api::event::EVENTS.remove_where(|e| e.context == self.id);
        module::forget_context(self.id);
        array::forget_context(self.id);
        reference::forget_context(self.id);
        let gone = driver.memory.remove_context(self.id);
        wait_for_all();
        for allocation in &gone {
            driver.memory.release(allocation);
            api::pool::settle(allocation);
        }
        api::pool::trim_all(driver);
        drop(self.charge.lock().take());
    }

    /// Adds a stream to the context.
    pub fn create_stream(&self, order: Order, priority: i32) -> Arc<Stream> {
        let stream = STREAMS.insert_with(|h| Stream::new(h, (self.id, self.own), order, priority));
        self.note_stream(&stream);
        stream
    }

    fn note_stream(&self, stream: &Arc<Stream>) {
        let mut streams = self.streams.lock();
        if streams.len() == streams.capacity() {
            streams.retain(|known| known.strong_count() > 0);
        }
        streams.push(Arc::downgrade(stream));
    }

    fn thread_stream(&self) -> Result<Arc<Stream>> {
        let stream = DEFAULT_STREAMS.try_with(|streams| {
            streams
                .borrow_mut()
                .entry(self.own)
                .or_insert_with(|| {
                    let ids = (self.id, self.own);
                    let stream = Arc::new(Stream::new(0, ids, Order::Blocking, 0));
                    self.note_stream(&stream);
                    stream
                })
                .clone()
        });
        stream.map_err(|_| CUDA_ERROR_DEINITIALIZED)
    }

    /// The stream that a handle names to a call in this context.
    pub fn stream(&self, handle: CUstream, null: Null) -> Result<Arc<Stream>> {
        match (handle as usize, null) {
            (0, Null::Legacy) | (CU_STREAM_LEGACY, _) => Ok(self.legacy.clone()),
            (0, Null::PerThread) | (CU_STREAM_PER_THREAD, _) => self.thread_stream(),
            (handle, _) => {
                let stream = STREAMS
                    .get(handle as u64)
                    .ok_or(CUDA_ERROR_INVALID_HANDLE)?;
                // The stream may belong to a destroyed green context.
                of(&stream).map(|_| stream)
            }
        }
    }

    /// As [`Context::stream`], for work that needs the stream to be this context's.
    pub fn own_stream(&self, handle: CUstream, null: Null) -> Result<Arc<Stream>> {
        let stream = self.stream(handle, null)?;
        if stream.context != self.id {
            return Err(CUDA_ERROR_INVALID_CONTEXT);
        }
        Ok(stream)
    }

    // The dependencies of work that is queued now in a stream of `order`.
    fn before(&self, streams: &mut Vec<Weak<Stream>>, order: Order) -> Vec<Arc<Ticket>> {
        match order {
            Order::NonBlocking => Vec::new(),
            Order::Blocking => self.legacy.pending().into_iter().collect(),
            Order::Legacy => {
                streams.retain(|s| s.strong_count() > 0);
                let blocking = streams.iter().filter_map(Weak::upgrade);
                blocking
                    .filter(|s| s.order == Order::Blocking)
                    .filter_map(|s| s.pending())
                    .collect()
            }
        }
    }

    fn queue(&self, stream: &Arc<Stream>, mut after: Vec<Arc<Ticket>>, work: Work) -> Arc<Ticket> {
        stream.wait_for_room();
        let mut streams = self.streams.lock();
        after.extend(self.before(&mut streams, stream.order));
        let mut behind = self.behind.lock();
        behind.retain(|ticket| !ticket.is_done());
        after.extend(behind.iter().cloned());
        stream.push(after, work)
    }

    /// A ticket that is complete when all work that its streams have so far is complete.
    pub fn mark(&self) -> Arc<Ticket> {
        self.after_all(|| ())
    }

    /// Calls `then` when all work that its streams have so far is complete. The ticket is complete after that.
    pub fn after_all(&self, then: impl FnOnce() + Send + 'static) -> Arc<Ticket> {
        // A separate stream: no later work waits for it.
        let stream = Arc::new(Stream::new(0, (self.id, self.own), Order::NonBlocking, 0));
        let pending = self.pending();
        let ticket = self.queue(&stream, pending, Work::Always(Box::new(|_| then())));
        let mut marks = self.marks.lock();
        marks.retain(|mark| !mark.is_done());
        marks.push(Arc::clone(&ticket));
        ticket
    }

    /// Makes all later work of its streams wait for a ticket.
    pub fn wait_behind(&self, ticket: Arc<Ticket>) {
        for green in self.greens() {
            green.wait_behind(Arc::clone(&ticket));
        }
        self.behind.lock().push(ticket);
    }

    /// The work that must end for `stream` to be idle.
    fn tickets(&self, stream: &Arc<Stream>) -> Vec<Arc<Ticket>> {
        let mut tickets: Vec<_> = stream.pending().into_iter().collect();
        if stream.order == Order::Legacy {
            tickets.extend(self.before(&mut self.streams.lock(), Order::Legacy));
        }
        tickets
    }

    fn pending(&self) -> Vec<Arc<Ticket>> {
        let greens = self.greens();
        let mut pending: Vec<_> = greens.iter().flat_map(|green| green.pending()).collect();
        let streams = self.streams.lock();
        let streams = streams.iter().filter_map(Weak::upgrade);
        let streams = streams.chain([self.legacy.clone()]);
        pending.extend(streams.filter_map(|s| s.pending()));
        let marks = self.marks.lock();
        pending.extend(marks.iter().filter(|mark| !mark.is_done()).cloned());
        pending
    }

    /// Waits for all its streams.
    pub fn wait(&self) {
        for ticket in self.pending() {
            ticket.wait();
        }
    }
}

/// The context with an id.
pub fn of_id(id: u64) -> Result<Arc<Context>> {
    let live = LIVE.lock();
    live.iter()
        .find(|(i, _)| *i == id)
        .and_then(|(_, c)| c.upgrade())
        .ok_or(CUDA_ERROR_CONTEXT_IS_DESTROYED)
}

/// The context of a stream.
pub fn of(stream: &Stream) -> Result<Arc<Context>> {
    of_id(stream.owner)
}

/// Queues work that a fault prevents.
pub fn queue(
    stream: &Arc<Stream>,
    after: Vec<Arc<Ticket>>,
    work: impl FnOnce() -> Result + Send + 'static,
) -> Result<Arc<Ticket>> {
    graph::refuse(stream)?;
    Ok(of(stream)?.queue(stream, after, Work::Normal(Box::new(work))))
}

/// Queues work that runs even after a fault, with its code.
pub fn queue_always(
    stream: &Arc<Stream>,
    work: impl FnOnce(u32) + Send + 'static,
) -> Result<Arc<Ticket>> {
    queue_always_after(stream, Vec::new(), work)
}

/// The same, after tickets.
pub fn queue_always_after(
    stream: &Arc<Stream>,
    after: Vec<Arc<Ticket>>,
    work: impl FnOnce(u32) + Send + 'static,
) -> Result<Arc<Ticket>> {
    graph::refuse(stream)?;
    Ok(of(stream)?.queue(stream, after, Work::Always(Box::new(work))))
}

/// Whether all queued work of a stream has ended; for the legacy stream, also that of the streams for which it waits.
pub fn is_idle(stream: &Arc<Stream>) -> Result<bool> {
    Ok(of(stream)?.tickets(stream).is_empty())
}

/// Waits for all that was queued in a stream, and answers with the fault if there was one.
pub fn wait(stream: &Arc<Stream>) -> Result {
    let context = of(stream)?;
    for ticket in context.tickets(stream) {
        ticket.wait();
    }
    context.printed.put_out();
    driver::get()?.fault()
}

/// Waits for a ticket of the context with that id, and answers with the fault if there was one.
pub fn wait_for(context: u64, ticket: &Ticket) -> Result {
    ticket.wait();
    put_out(context);
    driver::get()?.fault()
}

/// Waits for the work of contexts for which their legacy streams wait, and answers with the fault if there was one.
pub fn finish_legacy(contexts: &[Arc<Context>]) -> Result {
    contexts
        .iter()
        .try_for_each(|context| wait(&context.legacy))
}

/// Writes the output of kernels of the context with that id.
pub fn put_out(context: u64) {
    if let Ok(context) = of_id(context) {
        context.printed.put_out();
    }
}

/// Waits for all work of all contexts.
pub fn wait_for_all() {
    let contexts: Vec<_> = LIVE
        .lock()
        .iter()
        .filter_map(|(_, c)| c.upgrade())
        .collect();
    for context in contexts {
        context.wait();
    }
}

/// Waits for the work of the context with an id, if it exists.
pub fn wait_for_context(id: u64) {
    if let Ok(context) = of_id(id) {
        context.wait();
    }
}

/// Waits for the work of the context to which `allocation` belongs, as freeing memory does in CUDA. It does not wait
/// for other contexts: endless work there must not block this one.
pub fn wait_for_users(allocation: &Allocation) {
    if let Ok(context) = of_id(allocation.context) {
        context.wait();
    }
}

/// Drops memory that was taken out of the map. Host memory is unmapped once nothing that runs can still reach it, be it
/// after this call.
pub fn retire(driver: &'static Driver, gone: Arc<Allocation>) {
    if !gone.is_outside() {
        driver.memory.release(&gone);
        return;
    }
    drop_when_unused(gone);
}

/// Drops `gone` once all work that is queued now has ended, possibly after this call.
pub fn drop_when_unused<T: Send + Sync + 'static>(gone: Arc<T>) {
    let contexts: Vec<_> = LIVE
        .lock()
        .iter()
        .filter_map(|(_, c)| c.upgrade())
        .collect();
    let pending: Vec<_> = contexts.iter().flat_map(|c| c.pending()).collect();
    if !pending.is_empty() {
        let held = gone.clone();
        let wait = move || {
            pending.iter().for_each(|ticket| ticket.wait());
            drop(held);
        };
        if std::thread::Builder::new().spawn(wait).is_err() {
            wait_for_all();
        }
    }
}

/// The context of a stream; `None` for a default stream, and for an invalid one.
pub fn of_stream(handle: CUstream) -> Option<Arc<Context>> {
    of(&*STREAMS.get(handle as u64)?).ok()
}

/// The context that `handle` names as an argument.
pub fn named(handle: u64) -> Result<Arc<Context>> {
    match CONTEXTS.get(handle) {
        Some(context) if !context.is_destroyed() => Ok(context),
        Some(_) => Err(CUDA_ERROR_CONTEXT_IS_DESTROYED),
        None => Err(CUDA_ERROR_INVALID_CONTEXT),
    }
}

/// The handle of the context with that id; zero if it was destroyed.
pub fn handle_of(id: u64) -> u64 {
    of_id(id).map_or(0, |c| c.handle)
}
