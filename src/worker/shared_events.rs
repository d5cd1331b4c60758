// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Events that processes of a VM share.
//!
//! The driver's own shared events are not used, because any process of the host could open them. A shared event is a
//! page of words that the workers have mapped and registered with CUDA. Each worker has a few pairs of words there. A
//! record takes a pair, puts the next number into its first word and into the page's *latest*, and makes the stream
//! write the number into the second word. A wait makes its stream wait for the number of the latest record, unless it
//! is already there; a query is a read.
//!
//! A process that can write to the page can store any number there. A wait for a number that never comes is like a wait
//! for a kernel that never ends, and concerns only the VM of such processes.
//!
//! **A worker that dies leaves its records incomplete.** With the driver's events, waiters would wait for ever. Here
//! the records are completed, because the dead worker's work has ended: each worker holds a lock on a byte of the
//! page's file for its pairs, which the kernel releases when its process ends, and waiters for a record check the lock
//! from time to time. Because such locks are released when the process closes any descriptor of the file, a worker has
//! one descriptor of a page, and closes it last.

use std::{
    collections::HashMap,
    fs::File,
    os::fd::{AsRawFd, OwnedFd},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use gpgpu_locks::{Condvar, Mutex};
use gpgpu_protocol::{
    api::{Event, Object, object_kind},
    cuda::*,
};

use super::{common::Common, peers::Name};
use crate::{
    account::{Shared, Words},
    cuda::driver,
};

/// `CU_STREAM_WAIT_VALUE_GEQ`.
const CU_STREAM_WAIT_VALUE_GEQ: u32 = 0;
/// The maximum number of a client's shared events.
const MOST: usize = 4096;
/// The number of pairs of a process.
const PAIRS: usize = 8;
/// The maximum number of processes with an event at a time.
const SLOTS: usize = 63;
/// The interval between two checks of pending records.
const LOOK: Duration = Duration::from_millis(20);
/// The first interval between two checks of a synchronisation, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(2));

/// A record's words.
#[derive(Debug, Default)]
#[repr(C)]
struct Pair {
    /// The number of the last record that took the pair.
    given: AtomicU32,
    /// The number of the last complete record.
    done: AtomicU32,
}

/// The layout of a page.
#[derive(Debug)]
#[repr(C, align(4096))]
struct Board {
    /// The latest record: the index of its pair plus 1, times 2³², and its number. 0 if there is none.
    latest: AtomicU64,
    unused: [AtomicU64; 7],
    pairs: [Pair; PAIRS * SLOTS],
}

const _: () = assert!(size_of::<Board>() == 4096);

// SAFETY: atomic words, which any bytes are.
unsafe impl Words for Board {}

/// Whether a number has arrived, compared as by the GPU.
fn has_come(word: u32, number: u32) -> bool {
    word.wrapping_sub(number) as i32 >= 0
}

/// This worker's mapping of a page.
#[derive(Debug)]
pub struct Page {
    common: &'static Common,
    board: Option<Shared<Board>>,
    /// Whether the client has made the event.
    is_own: bool,
    /// This worker's slot.
    slot: usize,
    /// Held while recording.
    recording: Mutex<()>,
    registered: Mutex<Option<Registered>>,
}

#[derive(Debug, Clone, Copy)]
struct Registered {
    context: u64,
    device: u64,
    is_ending: bool,
}

/// A pending record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Record {
    pair: usize,
    number: u32,
}

/// A lock on the byte of a slot.
fn lock_of(slot: usize) -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: slot as i64,
        l_len: 1,
        l_pid: 0,
    }
}

/// Takes a slot, if it is free.
fn take_slot(file: &File, slot: usize) -> bool {
    let lock = lock_of(slot);
    // SAFETY: the pointer is to a value that lives across the call.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) == 0 }
}

/// Whether another process has a slot. If that cannot be determined, it is assumed.
fn is_held(file: &File, slot: usize) -> bool {
    let mut lock = lock_of(slot);
    // SAFETY: as above.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &raw mut lock) };
    asked != 0 || lock.l_type != libc::F_UNLCK as i16
}

impl Page {
    fn new(common: &'static Common, board: Shared<Board>, is_own: bool) -> Result<Self, CUresult> {
        let slot = (0..SLOTS).find(|slot| take_slot(board.file(), *slot));
        let slot = slot.ok_or(CUDA_ERROR_OUT_OF_MEMORY)?;
        let page = Self {
            common,
            board: Some(board),
            is_own,
            slot,
            recording: Mutex::default(),
            registered: Mutex::default(),
        };
        // Complete the records of the previous process.
        page.complete(slot);
        Ok(page)
    }

    /// Maps a page from a descriptor of another worker.
    fn map(common: &'static Common, file: OwnedFd) -> Result<Self, CUresult> {
        let board = Shared::map(Arc::new(file.into())).map_err(|_| CUDA_ERROR_MAP_FAILED)?;
        Self::new(common, board, false)
    }

    fn board(&self) -> &Shared<Board> {
        self.board.as_ref().expect("there until it is dropped")
    }

    /// The file, to be passed to other workers.
    pub fn file(&self) -> &Arc<File> {
        self.board().file()
    }

    /// Completes the records of a slot's pairs. Only the slot's worker writes them otherwise.
    fn complete(&self, slot: usize) {
        for pair in &self.board().pairs[slot * PAIRS..][..PAIRS] {
            pair.done
                .store(pair.given.load(Ordering::Acquire), Ordering::Release);
        }
    }

    /// The latest record, unless it is complete.
    fn latest(&self) -> Option<Record> {
        let latest = self.board().latest.load(Ordering::Acquire);
        let pair = (latest >> 32).checked_sub(1)? as usize;
        let record = Record {
            pair,
            number: latest as u32,
        };
        // An invalid pair is never written.
        let words = self.board().pairs.get(pair)?;
        (!has_come(words.done.load(Ordering::Acquire), record.number)).then_some(record)
    }

    /// Whether a record is complete. If its worker has ended, it is completed.
    fn is_over(&self, record: Record) -> bool {
        let words = &self.board().pairs[record.pair];
        if has_come(words.done.load(Ordering::Acquire), record.number) {
            return true;
        }
        let slot = record.pair / PAIRS;
        if slot == self.slot || is_held(self.file(), slot) {
            return false;
        }
        self.complete(slot);
        // A number that was never assigned is never written.
        words.done.store(record.number, Ordering::Release);
        true
    }

    /// The device address of a word, registered with CUDA in an existing context.
    fn address(&self, context: u64, word: &AtomicU32) -> Result<u64, CUresult> {
        let start = std::ptr::from_ref::<Board>(self.board()).addr();
        let offset = (word.as_ptr().addr() - start) as u64;
        let mut registered = self.registered.lock();
        if let Some(registered) = *registered {
            return match registered.is_ending {
                true => Err(CUDA_ERROR_NOT_SUPPORTED),
                false => Ok(registered.device + offset),
            };
        }
        let pointer = start as *mut std::ffi::c_void;
        let flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP;
        // SAFETY: the page is mapped until this was unregistered, see `drop`.
        let device = unsafe { driver::register_host(pointer, size_of::<Board>(), flags)? };
        *registered = Some(Registered {
            context,
            device,
            is_ending: false,
        });
        Ok(device + offset)
    }

    /// Records in a stream, in the thread's current context.
    fn record(&self, stream: CUstream) -> Result<Record, CUresult> {
        let _recording = self.recording.lock();
        let pairs = &self.board().pairs[self.slot * PAIRS..][..PAIRS];
        let is_free = |pair: &Pair| {
            let given = pair.given.load(Ordering::Relaxed);
            pair.done.load(Ordering::Acquire) == given
        };
        let context = self.common.current();
        let free = pairs.iter().position(is_free);
        let at = free.unwrap_or(0);
        let pair = &pairs[at];
        let address = self.address(context, &pair.done)?;
        let given = pair.given.load(Ordering::Relaxed);
        if free.is_none() {
            // All pairs are in use. The word must increase, so this record waits for the one that has the pair.
            let flags = CU_STREAM_WAIT_VALUE_GEQ;
            // SAFETY: the stream is the driver's and lives; the address is of registered memory.
            unsafe { driver::cuStreamWaitValue32_v2(stream, address, given, flags)? };
        }
        let number = given.wrapping_add(1);
        pair.given.store(number, Ordering::Release);
        // SAFETY: as above.
        let written = unsafe { driver::cuStreamWriteValue32_v2(stream, address, number, 0) };
        if let Err(code) = written {
            pair.given.store(given, Ordering::Release);
            return Err(code);
        }
        let pair = self.slot * PAIRS + at;
        let latest = (pair as u64 + 1) << 32 | u64::from(number);
        self.board().latest.store(latest, Ordering::Release);
        Ok(Record { pair, number })
    }

    /// Makes a stream wait for a record.
    fn wait(&self, stream: CUstream, record: Record) -> Result<(), CUresult> {
        let context = self.common.current();
        let address = self.address(context, &self.board().pairs[record.pair].done)?;
        let flags = CU_STREAM_WAIT_VALUE_GEQ;
        // SAFETY: the stream is the driver's and lives; the address is of registered memory.
        unsafe { driver::cuStreamWaitValue32_v2(stream, address, record.number, flags) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let Some(board) = self.board.take() else {
            return;
        };
        if let Some(registered) = *self.registered.get_mut() {
            let pointer = std::ptr::from_ref::<Board>(&board).cast_mut().cast();
            let ended = self.common.enter(registered.context).and_then(|()| {
                // SAFETY: this was registered, and no record or wait of this process is under way.
                unsafe { driver::cuMemHostUnregister(pointer) }
            });
            if let Err(code) = ended {
                tracing::debug!("cuMemHostUnregister: {code}");
                // The GPU may still access the page, so it stays mapped.
                std::mem::forget(board);
            }
        }
    }
}

#[derive(Debug, Default)]
struct Watched {
    /// The pending records.
    records: Vec<(Arc<Page>, Record)>,
    /// Pages without an event.
    retired: Vec<Arc<Page>>,
}

impl Watched {
    /// Releases a page once no event and no record uses it. A page may have had several events, and an event that is
    /// opened anew may have taken up a page that was already to be released; two entries here would keep each other.
    fn retire(&mut self, page: Arc<Page>) {
        if !self
            .retired
            .iter()
            .any(|retired| Arc::ptr_eq(retired, &page))
        {
            self.retired.push(page);
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct SharedEvents {
    common: &'static Common,
    /// By the guest's ids: the page, and the context that the event ends with.
    events: Mutex<HashMap<u64, (Arc<Page>, u64)>>,
    /// Pages of other workers, by their events' names.
    opened: Mutex<HashMap<Name, Weak<Page>>>,
    watched: Mutex<Watched>,
    changed: Condvar,
    started: OnceLock<bool>,
}

impl SharedEvents {
    /// Without events.
    pub fn new(common: &'static Common) -> Self {
        Self {
            common,
            events: Mutex::default(),
            opened: Mutex::default(),
            watched: Mutex::default(),
            changed: Condvar::new(),
            started: OnceLock::new(),
        }
    }

    fn insert(&self, id: u64, page: Arc<Page>) -> Result<(), CUresult> {
        if object_kind(id) != Event::KIND || id >> 56 != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut events = self.events.lock();
        if events.contains_key(&id) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if events.len() >= MOST {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        events.insert(id, (page, self.common.current()));
        Ok(())
    }

    /// The page of an event.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is no such event.
    pub fn page(&self, id: u64) -> Result<Arc<Page>, CUresult> {
        let events = self.events.lock();
        let found = events.get(&id).map(|(page, _)| Arc::clone(page));
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Whether the client has made an event.
    pub fn is_own(&self, id: u64) -> bool {
        let events = self.events.lock();
        events.get(&id).is_some_and(|(page, _)| page.is_own)
    }

    /// Makes an event with the guest's id.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id that is invalid or in use; `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn create(&'static self, id: u64) -> Result<(), CUresult> {
        if !self.start() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let board = Shared::new(c"gpgpu-event").map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        self.insert(id, Arc::new(Page::new(self.common, board, true)?))
    }

    /// Opens an event of another process with the guest's id; `ask` requests the page from its worker.
    ///
    /// # Errors
    ///
    /// As [`Self::create`]; `CUDA_ERROR_MAP_FAILED` for an invalid page; those of `ask`.
    pub fn open(
        &'static self,
        id: u64,
        name: &Name,
        ask: impl FnOnce() -> Result<OwnedFd, CUresult>,
    ) -> Result<(), CUresult> {
        if !self.start() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        let mut opened = self.opened.lock();
        let known = opened.get(name).and_then(Weak::upgrade);
        let page = match known {
            Some(page) => {
                // It was to be released with its last event.
                self.watched
                    .lock()
                    .retired
                    .retain(|of| !Arc::ptr_eq(of, &page));
                page
            }
            None => {
                // Under the lock, so that there is one descriptor of a page at a time.
                let page = Arc::new(Page::map(self.common, ask()?)?);
                opened.retain(|_, page| page.strong_count() > 0);
                opened.insert(*name, Arc::downgrade(&page));
                page
            }
        };
        self.insert(id, page)
    }

    /// Ends an event.
    ///
    /// # Errors
    ///
    /// As [`Self::page`].
    pub fn destroy(&self, id: u64) -> Result<(), CUresult> {
        let event = self.events.lock().remove(&id);
        let (page, _) = event.ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        self.watched.lock().retire(page);
        self.changed.notify_all();
        Ok(())
    }

    /// Records an event in a stream of the current context.
    ///
    /// # Errors
    ///
    /// As [`Self::page`]; the driver's error code.
    pub fn record(&self, id: u64, stream: CUstream) -> Result<(), CUresult> {
        let page = self.page(id)?;
        let record = page.record(stream)?;
        self.watch(page, record);
        Ok(())
    }

    /// Makes a stream of the current context wait for an event's latest record.
    ///
    /// # Errors
    ///
    /// As [`Self::record`].
    pub fn wait(&self, id: u64, stream: CUstream) -> Result<(), CUresult> {
        let page = self.page(id)?;
        let Some(record) = page.latest() else {
            return Ok(());
        };
        page.wait(stream, record)?;
        self.watch(page, record);
        Ok(())
    }

    /// Whether an event's latest record is complete.
    ///
    /// # Errors
    ///
    /// As [`Self::page`].
    pub fn is_over(&self, id: u64) -> Result<bool, CUresult> {
        let page = self.page(id)?;
        Ok(page.latest().is_none_or(|record| page.is_over(record)))
    }

    /// Waits until the record that is now the event's latest is complete, or until `has_failed` reports that it will
    /// not be.
    ///
    /// # Errors
    ///
    /// As [`Self::page`]; the errors of `has_failed`.
    pub fn synchronize(
        &self,
        id: u64,
        has_failed: impl Fn() -> Result<(), CUresult>,
    ) -> Result<(), CUresult> {
        let page = self.page(id)?;
        let Some(record) = page.latest() else {
            return Ok(());
        };
        let (mut pause, longest) = PAUSES;
        while !page.is_over(record) {
            thread::sleep(pause);
            pause = (pause * 2).min(longest);
            if pause == longest {
                has_failed()?;
            }
        }
        Ok(())
    }

    /// From now on the worker checks whether a record is complete, and whether its worker exists. The page is kept
    /// until then.
    fn watch(&self, page: Arc<Page>, record: Record) {
        let mut watched = self.watched.lock();
        let same = |(other, of): &(Arc<Page>, Record)| Arc::ptr_eq(other, &page) && *of == record;
        if watched.records.iter().rev().take(8).any(same) {
            return;
        }
        // Otherwise the thread checks again by itself.
        let is_idle = watched.records.is_empty() && watched.retired.is_empty();
        watched.records.push((page, record));
        if is_idle {
            self.changed.notify_all();
        }
    }

    fn start(&'static self) -> bool {
        *self.started.get_or_init(|| {
            let thread = thread::Builder::new().name("events".into());
            thread.spawn(|| self.look()).is_ok()
        })
    }

    /// Checks records in flight, and releases unused pages.
    fn look(&self) {
        let mut watched = self.watched.lock();
        loop {
            watched
                .records
                .retain(|(page, record)| !page.is_over(*record));
            // Without the lock: the driver may take long.
            let gone: Vec<_> = watched
                .retired
                .extract_if(.., |page| Arc::strong_count(page) == 1)
                .collect();
            if !gone.is_empty() {
                drop(watched);
                // No page may be opened during this: the descriptor of a page must be closed before there is another
                // one.
                let opened = self.opened.lock();
                drop(gone);
                drop(opened);
                watched = self.watched.lock();
                continue;
            }
            let is_idle = watched.records.is_empty() && watched.retired.is_empty();
            watched = match is_idle {
                true => self.changed.wait(watched),
                false => self.changed.wait_timeout(watched, LOOK).0,
            };
        }
    }

    /// Every page.
    fn pages(&self) -> Vec<Arc<Page>> {
        let events = self.events.lock();
        let pages = events.values().map(|(page, _)| Arc::clone(page));
        let mut pages: Vec<_> = pages.collect();
        drop(events);
        let watched = self.watched.lock();
        pages.extend(watched.records.iter().map(|(page, _)| Arc::clone(page)));
        pages.extend(watched.retired.iter().cloned());
        pages
    }

    fn each_registered(&self, context: u64, change: impl Fn(&mut Option<Registered>)) {
        for page in self.pages() {
            let mut registered = page.registered.lock();
            if registered.is_some_and(|registered| registered.context == context) {
                change(&mut registered);
            }
        }
    }

    /// Sets whether a context is about to end, and with it the memory registered in it.
    pub fn set_ending(&self, context: u64, is_ending: bool) {
        self.each_registered(context, |registered| {
            if let Some(registered) = registered {
                registered.is_ending = is_ending;
            }
        });
    }

    /// Forgets the memory that was registered in a context that has ended, and ends the context's events.
    pub fn forget_context(&self, context: u64) {
        self.each_registered(context, |registered| *registered = None);
        let mut events = self.events.lock();
        let ended: Vec<_> = events.extract_if(|_, (_, of)| *of == context).collect();
        drop(events);
        if !ended.is_empty() {
            let mut watched = self.watched.lock();
            for (_, (page, _)) in ended {
                watched.retire(page);
            }
            drop(watched);
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "shared_events_tests.rs"]
mod tests;
