// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Grace periods: no object that a command has looked up is destroyed before the command ends.
//!
//! The guest's threads share their objects, and the driver uses a handle or an address after the lock of the look-up's
//! table was released. So each thread announces the begin and the end of a command in a slot of its own ([`enter`]). A
//! thread that destroys an object first hides it from look-ups, then takes the time ([`Ticket::now`]), and destroys it
//! once every command that had begun by then has ended. This is read-copy-update with the commands as readers.
//!
//! # Commands that wait
//!
//! A command that waits for the GPU must not delay the end of objects that it does not use. Before it waits it names
//! the objects that it still uses, and delays only their end from then on ([`narrow`]). A command that waits before any
//! look-up, for example for the gate, is outside during that time ([`pause`]). So a grace period lasts as long as a
//! call of the driver that issues work. The longest such call is a launch into a full stream. It names no memory
//! ([`Property::Memory`](gpgpu_protocol::api::Property::Memory)), so it does not delay the end of memory.
//!
//! # What is protected, and how
//!
//! | what ends | hidden by | destroyed |
//! |---|---|---|
//! | stream, event | a mark in the table of objects | at once if nobody can use it, else later by a thread ([`super::deferred`]): the guest does not wait for it. Until then it counts towards the limit, and its id stays taken |
//! | module, library | the same, with its functions, the functions of its modules, and the ranges of its globals | by the command itself, which waits |
//! | array, mipmapped array | the same, with its levels and planes | by the command itself, which waits. A texture that reads it stays: what a kernel then reads is memory of this process |
//! | texture or surface object | its value leaves the table | at once: no command but a launch uses it, by its value |
//! | context | the same, with all in it, the ring's registration, registrations, ranges | by the command, which waits. A context that ends under a thread that uses it, which CUDA does not define, ends the client after [`super::ops::LONGEST_END`]. The thread of a gate is not waited for so long: it waits for work that only the context's end may end. Once the context is hidden, that thread calls the driver there no more, and waits for the end to be reported |
//! | green context | the same; its primary context stays | by the command, which first waits for the work in it, with its streams |
//! | a registration | the table of what is pinned | by the command, which waits |
//! | a region of the guest's memory | the table of regions, and of what is pinned | when what is pinned of it was let go, by a thread of the pool; then the guest is answered. No command can then write to it, nor find another mapping in its place |
//! | memory of a chunk | the ranges | given out again at once, to the same guest process. The chunk is unmapped once nobody uses what was in it; its addresses stay reserved for good, so the driver never takes them for the worker's own memory |
//! | a mapping of the guest's own | the same | by the command, which waits, and unmaps it; its addresses stay reserved for good too |
//! | physical memory of the guest's own | nothing: mappings and commands count as references | with the last reference |
//! | an allocation of another process that is open | the same | by the command that closes it, which waits, or with its context; memory of an imported pool also by the thread that frees in a stream's order. Its chunk is unmapped with the last one in it; its addresses stay reserved for good |
//! | a shared event | its table | by a thread of its own, once no record and no wait of it is under way |
//! | memory of `cuMemAlloc` | a mark in the ranges, which is believed before the driver is asked | by the command, which waits, or by the thread that frees in a stream's order |
//! | a memory pool, an image, a callback | nothing: behind it are ids, or memory that is counted by reference, and nothing of the driver's | at once, or with the last reference |
//! | the ring, the staging area | nothing | never |
//! | the worker's own events: marks of gates, of frees | nothing: no look-up finds them | with their context, or under the lock by which they are used |
//! | an export that a mover copies from | nothing: the mover has a reference of its own to the physical memory | with the last reference |
//!
//! A thread that waits for a grace period must not be inside itself, and must hold no lock for which a thread inside
//! could wait.

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex, MutexGuard};
use gpgpu_protocol::api::{Library, Module, Object, object_kind};

/// The objects that a command continues to use while it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// The object with this id, with everything in it if it is a context; 0 for none.
    Object(u64),
    /// The context with this id, for whose work a thread of the worker itself waits.
    Watched(u64),
    /// All contexts.
    Contexts,
    /// A global that only the driver knows.
    Globals,
    /// Memory.
    Memory {
        /// The start address.
        start: u64,
        /// Its bytes.
        bytes: u64,
    },
}

/// The object that ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The object with this id.
    Object(u64),
    /// The context with this id, and everything in it.
    Context(u64),
    /// Memory.
    Memory {
        /// The start address.
        start: u64,
        /// Its bytes.
        bytes: u64,
    },
}

impl Ending {
    fn is_named(&self, name: &Name) -> bool {
        match (*self, *name) {
            (Self::Object(id) | Self::Context(id), Name::Object(other)) => id == other,
            (Self::Context(id), Name::Watched(other)) => id == other,
            (Self::Context(_), Name::Contexts | Name::Globals) => true,
            (Self::Object(id), Name::Globals) => {
                matches!(object_kind(id), Module::KIND | Library::KIND)
            }
            (
                Self::Memory { start, bytes },
                Name::Memory {
                    start: of,
                    bytes: n,
                },
            ) => start < of.saturating_add(n) && of < start.saturating_add(bytes),
            _ => false,
        }
    }
}

/// The time, which advances with each ticket. 0 is no time.
static NOW: AtomicU64 = AtomicU64::new(1);
/// The slot of each thread that has executed a command.
static SLOTS: Mutex<Vec<Arc<Slot>>> = Mutex::new(Vec::new());

const USES_MEMORY: u64 = 1;

/// The announcement of a thread. It has a cache line of its own, because the thread writes it with each command.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    /// The start of its command by [`NOW`], doubled, with [`USES_MEMORY`]; 0 while the thread is outside.
    since: AtomicU64,
    /// The context of its command.
    context: AtomicU64,
    names: Mutex<Vec<Name>>,
}

impl Slot {
    fn names(&self) -> MutexGuard<'_, Vec<Name>> {
        self.names.lock()
    }
}

struct Mine {
    slot: Arc<Slot>,
    /// The nesting depth of [`Inside`]s.
    depth: Cell<u32>,
    /// The number of names.
    named: Cell<usize>,
}

fn slots() -> MutexGuard<'static, Vec<Arc<Slot>>> {
    SLOTS.lock()
}

impl Mine {
    fn new() -> Self {
        let slot = Arc::<Slot>::default();
        slots().push(Arc::clone(&slot));
        Self {
            slot,
            depth: Cell::new(0),
            named: Cell::new(0),
        }
    }

    fn begin(&self, flags: u64) {
        let now = NOW.load(Ordering::Relaxed) << 1;
        // The thread that hides an object reads the slots afterwards, and this thread reads the tables afterwards: at
        // least one of the two sees the other.
        self.slot.since.swap(now | flags, Ordering::SeqCst);
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        slots().retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

thread_local! {
    static MINE: Mine = Mine::new();
}

/// A running command, until this is dropped.
#[derive(Debug)]
pub struct Inside {
    named: usize,
    is_nested: bool,
    /// It must stay in this thread.
    _mine: PhantomData<*const ()>,
}

/// Begins a command of this thread, in a context. A nested command is a part of the outer one. If the outer one is
/// [`narrow`], the nested one may look up objects until it is dropped.
pub fn enter(context: u64, uses_memory: bool) -> Inside {
    MINE.with(|mine| {
        mine.depth.set(mine.depth.get() + 1);
        let is_nested = mine.slot.since.load(Ordering::Relaxed) != 0;
        if !is_nested {
            mine.slot.context.store(context, Ordering::Relaxed);
            mine.begin(u64::from(uses_memory));
        }
        Inside {
            named: mine.named.get(),
            is_nested,
            _mine: PhantomData,
        }
    })
}

/// Corrects the context of the command.
pub fn set_context(context: u64) {
    MINE.with(|mine| mine.slot.context.store(context, Ordering::Relaxed));
}

impl Drop for Inside {
    fn drop(&mut self) {
        MINE.with(|mine| {
            mine.depth.set(mine.depth.get() - 1);
            if self.is_nested {
                return;
            }
            mine.slot.since.store(0, Ordering::Release);
            if mine.named.get() > self.named {
                mine.named.set(self.named);
                mine.slot.names().truncate(self.named);
            }
        });
    }
}

/// Declares that from here to its end the command uses only these of the objects that it has looked up. Afterwards it
/// may wait.
pub fn narrow(names: &[Name]) {
    MINE.with(|mine| {
        if mine.depth.get() == 0 {
            return;
        }
        let mut held = mine.slot.names();
        held.extend_from_slice(names);
        mine.named.set(held.len());
        drop(held);
        mine.slot.since.store(0, Ordering::Release);
    });
}

/// A wait of a command that uses no objects yet, until this is dropped.
#[derive(Debug)]
pub struct Paused {
    flags: Option<u64>,
    _mine: PhantomData<*const ()>,
}

/// Begins a wait of the command. Look-ups before it must be repeated afterwards.
pub fn pause() -> Paused {
    let since = MINE.with(|mine| mine.slot.since.swap(0, Ordering::Release));
    Paused {
        flags: (since != 0).then_some(since & USES_MEMORY),
        _mine: PhantomData,
    }
}

/// Locks state that a command uses exclusively. The holder may be waiting for the GPU, so a command is outside while it
/// waits for the lock.
pub fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    match state.try_lock() {
        Some(state) => state,
        None => {
            let _paused = pause();
            state.lock()
        }
    }
}

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(flags) = self.flags {
            MINE.with(|mine| mine.begin(flags));
        }
    }
}

/// The end of modules, a library or a context, whose globals may be known only to the driver; until this is dropped.
#[derive(Debug)]
pub struct Unload(Ticket);

static UNLOADS: (Mutex<Vec<u64>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());

fn unloads() -> MutexGuard<'static, Vec<u64>> {
    UNLOADS.0.lock()
}

impl Unload {
    /// Begins it, after its objects were hidden.
    pub fn begin() -> Self {
        let mut unloads = unloads();
        let ticket = Ticket::now();
        unloads.push(ticket.0);
        Self(ticket)
    }

    /// The time of its begin.
    pub fn ticket(&self) -> Ticket {
        self.0
    }
}

impl Drop for Unload {
    fn drop(&mut self) {
        unloads().retain(|ticket| *ticket != self.0.0);
        UNLOADS.1.notify_all();
    }
}

thread_local! {
    /// Whether this thread's command has to be repeated once no unload is in progress.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the driver's answer about an address holds until the command ends: no unload is in progress that does not
/// wait for the command. Otherwise the command fails, and is repeated after the unload ([`again`]). It cannot wait
/// here, because the unload may wait for objects that the command has already looked up.
pub fn unloads_are_settled() -> bool {
    let since = MINE.with(|mine| mine.slot.since.load(Ordering::Relaxed)) >> 1;
    let are_settled = !unloads().iter().any(|ticket| *ticket < since);
    AGAIN.set(!are_settled);
    are_settled
}

/// Whether the command that has just ended has to be repeated; waits until the result may differ. The thread must be
/// outside.
pub fn again() -> bool {
    let again = AGAIN.take();
    if again {
        drop(
            UNLOADS
                .1
                .wait_while(unloads(), |unloads| !unloads.is_empty()),
        );
    }
    again
}

/// The first interval between two checks of a grace period. It grows.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// A point in time after an object was hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(u64);

impl Ticket {
    /// The present time.
    pub fn now() -> Self {
        Self(NOW.fetch_add(1, Ordering::SeqCst))
    }

    /// The commands of other threads that had begun by then and may use what is ending.
    fn users(self, ending: Ending) -> Users {
        let mut users = Users::default();
        let own = MINE.with(|mine| Arc::as_ptr(&mine.slot));
        for slot in slots().iter() {
            if Arc::as_ptr(slot) == own {
                continue;
            }
            let since = slot.since.load(Ordering::SeqCst);
            let may_use = since & USES_MEMORY != 0 || !matches!(ending, Ending::Memory { .. });
            if since != 0 && since >> 1 <= self.0 && may_use {
                let context = slot.context.load(Ordering::Relaxed);
                users.commands = true;
                users.same |= ending == Ending::Context(context);
            }
            // A command that became narrow before this load has named its objects.
            for name in slot.names().iter().filter(|name| ending.is_named(name)) {
                match name {
                    Name::Watched(_) => users.watchers = true,
                    Name::Contexts | Name::Globals => users.commands = true,
                    _ => (users.commands, users.same) = (true, true),
                }
            }
        }
        users
    }

    /// Whether no command can still use an object that was hidden before.
    pub fn has_passed(self, ending: Ending) -> bool {
        let users = self.users(ending);
        !users.commands && !users.watchers
    }

    /// Waits until that is so. The calling thread's command must be outside or [`narrow`].
    pub fn wait(self, ending: Ending) {
        let mut pause = SHORTEST_PAUSE;
        while !self.has_passed(ending) {
            rest(&mut pause);
        }
    }

    /// The same for a context. Waits for watchers until `patience` is over, for commands in the context until `limit`
    /// is over, and for others without a limit.
    ///
    /// # Errors
    ///
    /// [`StillUsed`] by a command in the context.
    pub fn wait_for_context(
        self,
        context: u64,
        patience: Duration,
        limit: Duration,
    ) -> Result<(), StillUsed> {
        let began = Instant::now();
        let mut pause = SHORTEST_PAUSE;
        loop {
            let users = self.users(Ending::Context(context));
            let elapsed = began.elapsed();
            if !users.commands && (!users.watchers || elapsed >= patience) {
                return Ok(());
            }
            if users.same && elapsed >= limit {
                return Err(StillUsed);
            }
            rest(&mut pause);
        }
    }
}

/// A command still uses a context that is about to end.
#[derive(Debug, PartialEq, Eq)]
pub struct StillUsed;

#[derive(Debug, Default)]
struct Users {
    /// A command of another thread that may use what ends.
    commands: bool,
    /// A command in the ending context, or one that has named it.
    same: bool,
    /// A thread of the worker itself.
    watchers: bool,
}

fn rest(pause: &mut Duration) {
    thread::sleep(*pause);
    *pause = (*pause * 2).min(LONGEST_PAUSE);
}

#[cfg(test)]
#[path = "grace_tests.rs"]
mod tests;
