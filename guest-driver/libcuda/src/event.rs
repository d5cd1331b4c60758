// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events: recording, queries and waits.
//!
//! An event that the program queries gets a word in the ring. From then on each record of it is followed by a write of
//! the GPU itself to that word, so that the next query only reads the word. While the word shows that the record is not
//! complete, the host is queried occasionally, which also detects errors.
//!
//! A record in a stream that is known to have nothing to wait for completes at once, as in NVIDIA's driver, and the GPU
//! writes no word.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use gpgpu_client::ring::{Patience, Ring};
use gpgpu_graphs::capture;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Context, Event, Object, request},
    cuda::*,
    ring::WORDS,
};

use crate::{
    argument::{GuestArg, OutPtr},
    client::{Client, client},
    cuda,
    ffi::Result,
    graph::{self, Guest},
    green, ipc_event,
    launch::DefaultStream,
    stores::objects::Known,
    stream, thread,
};

/// The time for which a word that shows an incomplete record is trusted before the host is queried again.
const BELIEF: Duration = Duration::from_micros(50);

/// The number of reads of a word for one read of the clock.
const CLOCK_EVERY: u32 = 16;

/// The state of an event that the program queried.
#[derive(Debug, Default)]
struct Watched {
    word: u32,
    /// The value of the word that means that the latest record is complete; 0 if that record has none.
    latest: AtomicU32,
    /// The stream of the latest record that has a value.
    stream: AtomicU64,
    /// The value of the first of the latest records that are all in that stream.
    since: AtomicU32,
    /// That of the latest record, if the latest record was complete before the host had it.
    settled: AtomicU32,
    /// The time of the last query of the host, in nanoseconds since the first of all queries.
    asked: AtomicU64,
    /// The number of times that the word was trusted. The clock is read only at some of them.
    looks: AtomicU32,
    /// Whether the word belongs to another event by now.
    gone: AtomicBool,
}

#[derive(Debug, Default)]
struct Table {
    watched: HashMap<u64, Arc<Watched>>,
    free: Vec<u32>,
    used: u32,
}

static TABLE: Mutex<Option<Table>> = Mutex::new(None);
/// Whether any event has a word, so that programs without queries skip the look-up.
static ANY: AtomicBool = AtomicBool::new(false);
/// The next value. A value is reused only after all others.
static VALUE: AtomicU32 = AtomicU32::new(1);

fn table() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock()
}

thread_local! {
    /// The event that the thread has queried last.
    static LAST: RefCell<Option<(u64, Arc<Watched>)>> = const { RefCell::new(None) };
    /// The event that the thread has recorded last, and its stream. Then, as at that time, the current context, because
    /// special handles are streams of it, and the number of sent requests.
    static RECORDED: Cell<(u64, u64, u64, u64)> = const { Cell::new((0, 0, 0, 0)) };
}

/// Records that an event is complete. If the thread recorded it last, and nothing was sent since, its stream is idle.
fn set_over(client: &Client, event: u64) {
    let (recorded, stream, context, sent) = RECORDED.get();
    if recorded == event && context == thread::current_context() && client.sent() == sent {
        client.set_stream_idle(stream, sent, true);
    }
}

/// The state of an event. Ids are never reused, so a cached look-up stays valid.
fn find(event: u64) -> Option<Arc<Watched>> {
    if !ANY.load(Ordering::Relaxed) {
        return None;
    }
    let last = LAST.try_with(|last| {
        let last = last.try_borrow().ok()?;
        last.as_ref()
            .filter(|(id, _)| *id == event)
            .map(|(_, watched)| Arc::clone(watched))
    });
    if let Some(found) = last
        .ok()
        .flatten()
        .filter(|found| !found.gone.load(Ordering::Relaxed))
    {
        return Some(found);
    }
    let found = table().as_ref()?.watched.get(&event).cloned()?;
    let _ = LAST.try_with(|last| last.replace(Some((event, Arc::clone(&found)))));
    Some(found)
}

/// Assigns a word to an event, if there is one left.
fn watch(client: &Client, event: u64) {
    if client.ring().is_none() || !client.objects.contains(event) {
        return;
    }
    let mut table = table();
    let table = table.get_or_insert_default();
    if table.watched.contains_key(&event) {
        return;
    }
    if table.free.is_empty() && table.used as usize == WORDS {
        // Events end with their contexts without an update of this table.
        let free = &mut table.free;
        table.watched.retain(|id, watched| {
            let lives = client.objects.contains(*id);
            if !lives {
                watched.gone.store(true, Ordering::Relaxed);
                free.push(watched.word);
            }
            lives
        });
    }
    let word = match table.free.pop() {
        Some(word) => word,
        None if (table.used as usize) < WORDS => {
            table.used += 1;
            table.used - 1
        }
        None => return,
    };
    let watched = Watched {
        word,
        ..Watched::default()
    };
    table.watched.insert(event, Arc::new(watched));
    ANY.store(true, Ordering::Relaxed);
}

impl Watched {
    fn is_over(&self, ring: &Ring) -> bool {
        let latest = self.latest.load(Ordering::Relaxed);
        self.was_settled() || latest != 0 && ring.word(self.word).load(Ordering::Acquire) == latest
    }

    /// Records that the event is being recorded with this value in a stream.
    fn begin(&self, stream: u64, value: u32) {
        let before = self.stream.swap(stream, Ordering::Relaxed);
        let is_other = before != stream || stream == CU_STREAM_PER_THREAD as u64;
        if is_other || self.latest.load(Ordering::Relaxed) == 0 {
            self.since.store(value, Ordering::Relaxed);
        }
        // Before the record is sent: until it is complete, no reader may take an earlier record for it.
        self.latest.store(value, Ordering::Release);
    }

    /// Whether the record with this value is complete, although it is the latest no more: the same stream has completed
    /// a later one.
    fn has_passed(&self, value: u32, ring: &Ring) -> bool {
        let word = ring.word(self.word).load(Ordering::Acquire);
        let latest = self.latest.load(Ordering::Acquire);
        let is_between = |at: u32, from: u32| at.wrapping_sub(from) <= latest.wrapping_sub(from);
        let since = self.since.load(Ordering::Relaxed);
        let is_one_stream = is_between(value, since);
        word == value || word != 0 && latest != 0 && is_one_stream && is_between(word, value)
    }

    /// Whether the latest record was complete before the host had it.
    fn was_settled(&self) -> bool {
        let latest = self.latest.load(Ordering::Relaxed);
        latest != 0 && self.settled.load(Ordering::Relaxed) == latest
    }

    /// Whether an incomplete record may be reported by the word alone.
    fn is_believed(&self) -> bool {
        static FIRST: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        if self.latest.load(Ordering::Relaxed) == 0 {
            return false;
        }
        if !self
            .looks
            .fetch_add(1, Ordering::Relaxed)
            .is_multiple_of(CLOCK_EVERY)
        {
            return true;
        }
        let now = FIRST.get_or_init(Instant::now).elapsed().as_nanos() as u64;
        let asked = self.asked.load(Ordering::Relaxed);
        if now.saturating_sub(asked) < BELIEF.as_nanos() as u64 {
            return true;
        }
        self.asked.store(now, Ordering::Relaxed);
        // Never queried: the record is recent.
        asked == 0
    }
}

/// Notes that an event is recorded. Returns its context; `None` if there is no such event.
fn note_recorded(client: &Client, event: u64) -> Option<u64> {
    let look = |object: &Known| match object {
        Known::Event(event) => {
            event.is_recorded.store(true, Ordering::Relaxed);
            Some(event.context)
        }
        _ => None,
    };
    client.objects.look(event, look).flatten()
}

/// Whether an event was ever recorded, other than in a capture.
pub fn is_recorded(event: u64) -> bool {
    let look = |object: &Known| match object {
        Known::Event(event) => event.is_recorded.load(Ordering::Relaxed),
        _ => true,
    };
    client().is_ok_and(|client| client.objects.look(event, look).unwrap_or(true))
}

fn record(shape: DefaultStream, event: CUevent, stream: CUstream) -> Result {
    let client = client()?;
    let (hEvent, hStream) = (Event::id(event), stream::lower(shape, stream)?);
    if ipc_event::is_one(client, hEvent) {
        return ipc_event::record(client, hStream, hEvent);
    }
    if graph::record_event(hStream, hEvent, 0)? {
        return Ok(());
    }
    // The driver refuses to record an event in a stream of another context.
    let is_its = |home| {
        stream::find_context(client, hStream).is_some_and(|of| green::home(client, of) == home)
    };
    let known = note_recorded(client, hEvent).is_some_and(is_its) && thread::has_context(client);
    let watched = find(hEvent);
    // Read before the stream's state: work that another thread gives in between then counts as given.
    let sent = client.sent() + 1;
    let is_settled = known && client.is_stream_settled(hStream);
    match (&watched, client.ring()) {
        (Some(watched), Some(_)) if is_settled => {
            let value = next_value();
            watched.begin(hStream, value);
            client.post(&request::cuEventRecord { hEvent, hStream })?;
            // If another thread has sent a request in the meantime, the record may be behind it.
            if client.sent() == sent {
                watched.settled.store(value, Ordering::Relaxed);
            } else {
                watched.latest.store(0, Ordering::Relaxed);
            }
        }
        (Some(watched), Some(_)) if known => {
            let value = next_value();
            watched.begin(hStream, value);
            client.post(&request::gpgpuEventMark {
                hEvent,
                hStream,
                word: watched.word,
                value,
            })?;
        }
        _ => {
            if let Some(watched) = watched {
                watched.latest.store(0, Ordering::Relaxed);
            }
            let request = request::cuEventRecord { hEvent, hStream };
            if known {
                client.post(&request)?;
            } else {
                client.call(&request)?;
            }
        }
    }
    // The host may have put a mark of its own behind the record, because of which it would report the stream as busy.
    RECORDED.set((hEvent, hStream, thread::current_context(), sent));
    if is_settled && client.sent() == sent {
        client.set_stream_idle(hStream, sent, true);
    }
    Ok(())
}

/// Records that the latest record of an event has no word, or another one, so that queries ask the host.
pub fn forget_word(event: u64) {
    if let Ok(client) = client() {
        note_recorded(client, event);
    }
    if let Some(watched) = find(event) {
        watched.latest.store(0, Ordering::Relaxed);
    }
}

fn next_value() -> u32 {
    loop {
        let value = VALUE.fetch_add(1, Ordering::Relaxed);
        if value != 0 {
            return value;
        }
    }
}

fn record_with_flags(shape: DefaultStream, event: CUevent, stream: CUstream, flags: u32) -> Result {
    if flags == 0 {
        return record(shape, event, stream);
    }
    let client = client()?;
    let (hEvent, hStream) = (Event::id(event), stream::lower(shape, stream)?);
    if ipc_event::is_one(client, hEvent) {
        return ipc_event::record_with_flags(client, hStream, hEvent, flags);
    }
    if flags == 1 && graph::record_event(hStream, hEvent, flags)? {
        return Ok(());
    }
    forget_word(hEvent);
    let request = request::cuEventRecordWithFlags {
        hEvent,
        hStream,
        flags,
    };
    client.call(&request).map(drop)
}

/// The ids of a context and an event, for a call about the whole context.
fn whole(context: CUcontext, event: CUevent) -> Result<(u64, u64)> {
    let client = client()?;
    let (hCtx, hEvent) = (Context::id(context), Event::id(event));
    if client.objects.context_device(hCtx).is_none() {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if !Event::is_known(client, &hEvent) {
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    Ok((hCtx, hEvent))
}

/// Records an event after all work of a context.
pub fn record_all(context: CUcontext, event: CUevent) -> Result {
    let (hCtx, hEvent) = whole(context, event)?;
    capture::refuse_context::<Guest>(hCtx)?;
    forget_word(hEvent);
    thread::within(hCtx, || {
        let request = request::cuCtxRecordEvent { hCtx, hEvent };
        client()?.call(&request).map(drop)
    })?;
    // In a capture it becomes invalid.
    capture::forget_event::<Guest>(hEvent);
    Ok(())
}

/// Makes all later work of a context wait for an event.
pub fn hold_all(context: CUcontext, event: CUevent) -> Result {
    let (hCtx, hEvent) = whole(context, event)?;
    capture::refuse_context::<Guest>(hCtx)?;
    capture::use_event::<Guest>(hEvent).map_err(|_| CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)?;
    thread::within(hCtx, || {
        let request = request::cuCtxWaitEvent { hCtx, hEvent };
        client()?.call(&request).map(drop)
    })
}

/// Whether an event's latest record is complete even if the host may not have it yet.
fn is_settled(event: u64) -> bool {
    find(event).is_some_and(|watched| watched.was_settled())
}

/// The time between two events, from the host. Records that are complete for the program must be complete there too.
fn elapsed(
    client: &Client,
    (start, end): (u64, u64),
    ask: impl Fn() -> Result<f32>,
) -> Result<f32> {
    match ask() {
        Err(CUDA_ERROR_NOT_READY) if is_settled(start) || is_settled(end) => {}
        answered => return answered,
    }
    for hEvent in [start, end].into_iter().filter(|event| is_settled(*event)) {
        client.call(&request::cuEventSynchronize { hEvent })?;
    }
    ask()
}

fn ask(client: &Client, hEvent: u64) -> Result {
    client.call(&request::cuEventQuery { hEvent })?;
    set_over(client, hEvent);
    Ok(())
}

/// The ids of two events, neither of which was last recorded in a capture.
fn compared(start: CUevent, end: CUevent) -> Result<(u64, u64)> {
    let client = client()?;
    let ids = (Event::id(start), Event::id(end));
    if ipc_event::is_one(client, ids.0) || ipc_event::is_one(client, ids.1) {
        // Captured records have no time.
        return Err(CUDA_ERROR_INVALID_HANDLE);
    }
    capture::use_event::<Guest>(ids.0)?;
    capture::use_event::<Guest>(ids.1)?;
    Ok(ids)
}

cuda! {
    fn cuEventCreate(phEvent: OutPtr<CUevent>, Flags: u32) {
        let client = client()?;
        phEvent.required()?;
        if Flags & CU_EVENT_INTERPROCESS != 0 && ipc_event::is_served(client) {
            return ipc_event::create(client, phEvent, Flags);
        }
        let id = client.new_id::<Event>();
        let request = request::cuEventCreate { phEvent: id, Flags };
        if Flags & !(CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING) == 0 && thread::has_context(client) {
            client.post(&request)?;
        } else {
            client.call(&request)?;
        }
        client.objects.insert(id, Known::made::<Event>(thread::home(client)));
        phEvent.set(Event::handle(id))
    }

    fn cuEventRecord(hEvent: CUevent, hStream: CUstream) {
        record(DefaultStream::Legacy, hEvent, hStream)
    }

    fn cuEventRecord_ptsz(hEvent: CUevent, hStream: CUstream) {
        record(DefaultStream::PerThread, hEvent, hStream)
    }

    fn cuEventRecordWithFlags(hEvent: CUevent, hStream: CUstream, flags: u32) {
        record_with_flags(DefaultStream::Legacy, hEvent, hStream, flags)
    }

    fn cuEventRecordWithFlags_ptsz(hEvent: CUevent, hStream: CUstream, flags: u32) {
        record_with_flags(DefaultStream::PerThread, hEvent, hStream, flags)
    }

    /// As CUDA's documentation describes it: after all work of the context.
    fn cuCtxRecordEvent(hCtx: CUcontext, hEvent: CUevent) {
        record_all(hCtx, hEvent)
    }

    /// As CUDA's documentation describes it: all later work of the context waits.
    fn cuCtxWaitEvent(hCtx: CUcontext, hEvent: CUevent) {
        hold_all(hCtx, hEvent)
    }

    fn cuEventDestroy_v2(hEvent: CUevent) {
        let client = client()?;
        let id = Event::id(hEvent);
        if ipc_event::is_one(client, id) {
            return ipc_event::destroy(client, id);
        }
        let request = request::cuEventDestroy_v2 { hEvent: id };
        if Event::is_known(client, &id) && thread::has_context(client) {
            client.post(&request)?;
        } else {
            client.call(&request)?;
        }
        client.objects.remove(id);
        capture::forget_event::<Guest>(id);
        Ok(())
    }

    fn cuEventElapsedTime(pMilliseconds: OutPtr<f32>, hStart: CUevent, hEnd: CUevent) {
        let (hStart, hEnd) = compared(hStart, hEnd)?;
        let request = request::cuEventElapsedTime { pMilliseconds: !pMilliseconds.is_null(), hStart, hEnd };
        let client = client()?;
        let ask = || Ok(client.call(&request)?.pMilliseconds);
        pMilliseconds.set(elapsed(client, (hStart, hEnd), ask)?)
    }

    fn cuEventElapsedTime_v2(pMilliseconds: OutPtr<f32>, hStart: CUevent, hEnd: CUevent) {
        let (hStart, hEnd) = compared(hStart, hEnd)?;
        let request = request::cuEventElapsedTime_v2 { pMilliseconds: !pMilliseconds.is_null(), hStart, hEnd };
        let client = client()?;
        let ask = || Ok(client.call(&request)?.pMilliseconds);
        pMilliseconds.set(elapsed(client, (hStart, hEnd), ask)?)
    }

    fn cuEventQuery(hEvent: CUevent) {
        let client = client()?;
        let id = Event::id(hEvent);
        if ipc_event::is_one(client, id) {
            return ipc_event::query(client, id);
        }
        capture::observe_event::<Guest>(id)?;
        match (find(id), client.ring()) {
            (Some(watched), Some(ring)) => {
                if watched.is_over(ring) {
                    set_over(client, id);
                    return Ok(());
                }
                if watched.is_believed() {
                    return Err(CUDA_ERROR_NOT_READY);
                }
            }
            _ => watch(client, id),
        }
        ask(client, id)
    }

    fn cuEventSynchronize(hEvent: CUevent) {
        let client = client()?;
        let id = Event::id(hEvent);
        if ipc_event::is_one(client, id) {
            return ipc_event::synchronize(client, id);
        }
        capture::observe_event::<Guest>(id)?;
        let Some(ring) = client.ring().filter(|_| client.objects.contains(id)) else {
            client.call(&request::cuEventSynchronize { hEvent: id })?;
            set_over(client, id);
            return Ok(());
        };
        let watched = find(id);
        if watched.is_none() {
            watch(client, id);
        }
        let marked = watched.map(|of| (of.latest.load(Ordering::Acquire), of));
        let mut patience = Patience::new();
        if let Some((value, watched)) = marked.filter(|(value, _)| *value != 0) {
            while !watched.is_over(ring) {
                // Another thread may record it again and again.
                if watched.has_passed(value, ring) {
                    return Ok(());
                }
                if patience.pause() {
                    match ask(client, id) {
                        Err(CUDA_ERROR_NOT_READY) => {}
                        answered => return answered,
                    }
                }
            }
            set_over(client, id);
            return Ok(());
        }
        // This record has no word: query it until it is complete.
        loop {
            match ask(client, id) {
                Err(CUDA_ERROR_NOT_READY) => {}
                answered => return answered,
            }
            for _ in 0..64 {
                patience.pause();
            }
        }
    }
}
