// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The client's objects: ids that the guest has chosen, and the driver's handles for them.
//!
//! The driver gets only handles from this table, because an invalid handle would crash it. The kind is a part of the
//! id, and an id has one object at a time, from the moment when a command begins to make it.

use std::{
    cell::{Cell, RefCell},
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gpgpu_locks::{Mutex, RwLock};
use gpgpu_protocol::{
    api::{
        Array, Context, Event, Function, Kernel, Library, MemPool, MipmappedArray, Module, Object,
        ParamInfo, Stream, object_kind,
    },
    cuda::*,
    libraries::Class,
};

use super::{
    lease::{note_stream, use_stream},
    places::Places,
};

/// An object.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The driver's handle.
    pub raw: u64,
    /// The id of the context with which it ends, or 0.
    pub context: u64,
    /// The id of the module or library with which it ends, or 0.
    pub parent: u64,
    /// The bytes of local device memory of each thread of a function or kernel.
    pub local: u32,
    /// The parameters, of a function or kernel.
    pub params: Option<Arc<Params>>,
}

/// The properties of a function or kernel that a launch needs beside its handle.
#[derive(Debug)]
pub struct Params {
    /// The parameters.
    pub list: Vec<ParamInfo>,
    /// The places at which its library is charged, if it is a kernel: a kernel exists in every context in which it is
    /// used.
    pub places: Option<Arc<Places>>,
}

impl Entry {
    /// An object in a context.
    pub fn new(raw: u64, context: u64) -> Self {
        Self {
            raw,
            context,
            parent: 0,
            local: 0,
            params: None,
        }
    }

    /// The parameters of a function or kernel.
    pub fn params(&self) -> &[ParamInfo] {
        self.params.as_ref().map_or(&[], |params| &params.list)
    }

    /// The size of the parameters of a function or kernel in bytes: CUDA lays them out in order.
    pub fn param_bytes(&self) -> usize {
        let last = self.params().last();
        last.map_or(0, |of| of.offset as usize + of.size as usize)
    }

    /// The places at which the library of a kernel is charged; `None` if it is not charged.
    pub fn places(&self) -> Option<&Places> {
        self.params.as_ref()?.places.as_deref()
    }
}

/// Ids from here on are never assigned: devices' default pools and special handles have them.
const RESERVED: u64 = 1 << 56;

/// The maximum number of objects of a kind of one client: the driver's cost of each is host memory.
fn most(kind: u8) -> usize {
    match kind {
        // A hundred megabytes and more, including GPU memory.
        Context::KIND => 64,
        Stream::KIND => 16 << 10,
        Module::KIND | Library::KIND => 16 << 10,
        // Arrays, levels and planes: a few kilobytes each.
        Array::KIND | MipmappedArray::KIND => 64 << 10,
        // Some hundred bytes.
        Event::KIND => 256 << 10,
        // An entry in this table: in the driver they belong to their module.
        Function::KIND | Kernel::KIND | MemPool::KIND => 1 << 20,
        _ => match Class::from_number(kind) {
            Some(class) => class.most(),
            None => 0,
        },
    }
}

/// An object, and the reasons why look-ups do not find it.
#[derive(Debug)]
struct Place {
    entry: Entry,
    /// The reasons why it is about to end: bits of [`OWN`], [`PARENTS`] and [`CONTEXTS`]. Such objects still exist, and
    /// are counted.
    ending: u8,
    /// Whether a command has used it since it was last known to be idle, if it is a stream.
    used: AtomicBool,
}

thread_local! {
    /// Whether the thread executes a command whose [uses of streams](Objects::uses) are remembered.
    static REMEMBERS: Cell<bool> = const { Cell::new(false) };
    /// The streams that the command has looked up.
    static USED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    /// Whether this is the ring's thread.
    static IS_RING: Cell<bool> = const { Cell::new(false) };
}

/// The uses of streams by a command, from [`Objects::uses`].
#[derive(Debug)]
pub struct Uses<'a> {
    objects: &'a Objects,
    /// Whether a command around it remembers its own.
    outer: bool,
}

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        REMEMBERS.set(self.outer);
        USED.with_borrow_mut(|used| {
            used.iter().for_each(|id| self.objects.set_used(*id));
            if !self.outer {
                used.clear();
            }
        });
    }
}

/// Declares that this thread alone takes [used streams](Objects::take_used).
pub fn is_the_rings_thread() {
    IS_RING.set(true);
}

/// The object itself is being destroyed.
const OWN: u8 = 1;
/// Its module or library is being unloaded.
const PARENTS: u8 = 2;
/// Its context is being destroyed.
const CONTEXTS: u8 = 4;

/// The objects, and their number by kind.
#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Place, foldhash::fast::RandomState>,
    counts: HashMap<u8, usize>,
    /// The ids of objects that are being made.
    begun: HashSet<u64, foldhash::fast::RandomState>,
}

impl Table {
    fn count(&mut self, id: u64) -> &mut usize {
        self.counts.entry(object_kind(id)).or_default()
    }

    fn is_ending(&self, id: u64) -> bool {
        id != 0 && self.entries.get(&id).is_some_and(|of| of.ending != 0)
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        // An object that is made in an ending context ends with it.
        let mut ending = 0;
        if self.is_ending(entry.context) {
            ending |= CONTEXTS;
        }
        if self.is_ending(entry.parent) {
            ending |= PARENTS;
        }
        let place = Place {
            entry,
            ending,
            used: AtomicBool::new(true),
        };
        if self.entries.insert(id, place).is_none() {
            *self.count(id) += 1;
        }
    }

    /// The module or library with this id, and the modules of a library.
    fn owners(&self, id: u64) -> Vec<u64> {
        let is_module = |other: &u64| object_kind(*other) == Module::KIND;
        let modules = self.entries.iter().filter(|(_, of)| of.entry.parent == id);
        let modules = modules.map(|(other, _)| *other).filter(is_module);
        [id].into_iter().chain(modules).collect()
    }

    fn remove(&mut self, id: u64) {
        if self.entries.remove(&id).is_some() {
            *self.count(id) -= 1;
        }
    }

    fn retain(&mut self, keep: impl Fn(u64, &Entry) -> bool) {
        let counts = &mut self.counts;
        self.entries.retain(|&id, of| {
            let kept = keep(id, &of.entry);
            if !kept && let Some(count) = counts.get_mut(&object_kind(id)) {
                *count -= 1;
            }
            kept
        });
    }
}

/// The id of the context that owns objects made in the context `id`, whose entry is in the context `of`: for a green
/// context, its primary context.
pub fn home(id: u64, of: u64) -> u64 {
    if of == 0 { id } else { of }
}

/// The error code for an object that does not exist.
fn missing<K: Object>() -> CUresult {
    if K::KIND == Context::KIND {
        CUDA_ERROR_INVALID_CONTEXT
    } else {
        CUDA_ERROR_INVALID_HANDLE
    }
}

/// A stream that exists.
#[derive(Debug, Clone, Copy)]
struct Listed {
    id: u64,
    context: u64,
    is_apart: bool,
}

/// A stream that a command has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsedStream {
    /// Its id.
    pub id: u64,
    /// The driver's handle.
    pub raw: u64,
    /// Whether the legacy stream does not wait for it.
    pub is_apart: bool,
}

/// The table.
#[derive(Debug, Default)]
pub struct Objects {
    /// Not keyed: a guest that chooses colliding ids slows down only itself.
    table: RwLock<Table>,
    /// The number of ends of objects; see [`Self::ends`].
    ends: AtomicU64,
    /// The streams that exist.
    streams: Mutex<Vec<Listed>>,
    /// The number of streams with unfinished work that were destroyed, by context.
    unfinished: Mutex<HashMap<u64, u64>>,
    /// See [`Self::has_threads_streams`].
    threads_streams: AtomicBool,
}

/// An id that becomes an object's, or free again if this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Begun<'a> {
    objects: &'a Objects,
    id: u64,
}

impl Begun<'_> {
    /// The id.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Records that the object exists.
    pub fn finish(self, entry: Entry) {
        self.objects.write(|table| {
            table.begun.remove(&self.id);
            table.insert(self.id, entry);
        });
        std::mem::forget(self);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.objects.write(|table| table.begun.remove(&self.id));
    }
}

impl Objects {
    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(&mut self.table.write())
    }

    /// Begins to make an object of kind `K`. Until it is finished, no other thread makes one with this id.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id of another kind, one in use or a reserved one (2⁵⁶ and above);
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
    pub fn begin<K: Object>(&self, id: u64) -> Result<Begun<'_>, CUresult> {
        if K::SPECIAL.contains(&id) {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.begin_kind(K::KIND, id)
    }

    /// The same for an object of a library.
    ///
    /// # Errors
    ///
    /// As [`Objects::begin`].
    pub fn begin_of(&self, class: Class, id: u64) -> Result<Begun<'_>, CUresult> {
        self.begin_kind(class.number(), id)
    }

    fn begin_kind(&self, kind: u8, id: u64) -> Result<Begun<'_>, CUresult> {
        if object_kind(id) != kind || id >= RESERVED {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        self.write(|table| {
            let begun = table.begun.iter().filter(|id| object_kind(**id) == kind);
            let count = table.counts.get(&kind).copied().unwrap_or(0) + begun.count();
            if table.entries.contains_key(&id) || table.begun.contains(&id) {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            if count >= most(kind) {
                return Err(CUDA_ERROR_OUT_OF_MEMORY);
            }
            table.begun.insert(id);
            Ok(())
        })?;
        Ok(Begun { objects: self, id })
    }

    /// Records an object without a preceding [`Self::begin`].
    #[cfg(test)]
    pub fn insert(&self, id: u64, entry: Entry) {
        self.write(|table| table.insert(id, entry));
    }

    /// Begins the end of an object: look-ups no longer find it.
    ///
    /// # Errors
    ///
    /// As [`Objects::raw`], also for an object that is already ending.
    pub fn end<K: Object>(&self, id: u64) -> Result<Entry, CUresult> {
        if K::SPECIAL.contains(&id) || object_kind(id) != K::KIND {
            return Err(missing::<K>());
        }
        let entry = self.hide(id).ok_or(missing::<K>())?;
        if K::KIND == Stream::KIND {
            self.streams.lock().retain(|of| of.id != id);
        }
        Ok(entry)
    }

    /// The same for an object of a library; `None` if there is none.
    pub fn end_of(&self, class: Class, id: u64) -> Option<Entry> {
        class.has(id).then(|| self.hide(id)).flatten()
    }

    fn hide(&self, id: u64) -> Option<Entry> {
        let entry = self.write(|table| {
            let of = table.entries.get_mut(&id).filter(|of| of.ending == 0)?;
            of.ending |= OWN;
            Some(of.entry.clone())
        });
        if entry.is_some() {
            self.ends.fetch_add(1, Ordering::AcqRel);
        }
        entry
    }

    /// Cancels the end of an object.
    pub fn keep(&self, id: u64) {
        self.write(|table| {
            if let Some(of) = table.entries.get_mut(&id) {
                of.ending &= !OWN;
            }
        });
    }

    /// The number of ends of objects: an object that was looked up before the last one may have ended.
    pub fn ends(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// Forgets an object that has ended.
    pub fn remove(&self, id: u64) {
        self.write(|table| {
            if (table.entries.get(&id)).is_some_and(|of| of.ending & OWN != 0) {
                table.remove(id);
            }
        });
    }

    /// Begins the end of a module or library with its functions, and with its modules and theirs: look-ups no longer
    /// find them.
    ///
    /// # Errors
    ///
    /// As [`Self::end`].
    pub fn end_with_children<K: Object>(&self, id: u64) -> Result<Entry, CUresult> {
        let entry = self.end::<K>(id)?;
        self.mark(id, |ending| ending | PARENTS);
        Ok(entry)
    }

    /// Also hides objects that belong to one that is about to end. Objects that are made from it later are hidden
    /// anyway.
    pub fn hide_children(&self, id: u64) {
        self.mark(id, |ending| ending | PARENTS);
    }

    /// Cancels it.
    pub fn keep_with_children(&self, id: u64) {
        self.mark(id, |ending| ending & !PARENTS);
        self.keep(id);
    }

    fn mark(&self, parent: u64, change: impl Fn(u8) -> u8) {
        self.write(|table| {
            let owners = table.owners(parent);
            for of in table.entries.values_mut() {
                if owners.contains(&of.entry.parent) {
                    of.ending = change(of.ending);
                }
            }
        });
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets a module or library that has ended, with its own objects.
    pub fn remove_with_children(&self, id: u64) {
        self.write(|table| {
            let owners = table.owners(id);
            table.retain(|other, entry| other != id && !owners.contains(&entry.parent));
        });
    }

    /// Begins the end of a context: look-ups find neither it nor anything in it.
    ///
    /// # Errors
    ///
    /// As [`Self::end`].
    pub fn end_context(&self, context: u64) -> Result<Entry, CUresult> {
        let entry = self.end::<Context>(context)?;
        self.mark_context(context, |ending| ending | CONTEXTS);
        Ok(entry)
    }

    /// Whether an object is hidden because it ends, and has not ended yet.
    pub fn is_ending(&self, id: u64) -> bool {
        self.table.read().is_ending(id)
    }

    /// Cancels it.
    pub fn keep_context(&self, context: u64) {
        self.mark_context(context, |ending| ending & !CONTEXTS);
        self.keep(context);
    }

    fn mark_context(&self, context: u64, change: impl Fn(u8) -> u8) {
        self.write(|table| {
            for of in table.entries.values_mut() {
                if of.entry.context == context {
                    of.ending = change(of.ending);
                }
            }
        });
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    /// Forgets a context that has ended, with everything in it.
    pub fn remove_context(&self, context: u64) {
        self.write(|table| table.retain(|id, entry| id != context && entry.context != context));
        self.ends.fetch_add(1, Ordering::AcqRel);
        self.streams.lock().retain(|of| of.context != context);
        self.unfinished.lock().remove(&context);
    }

    /// The object of kind `K` with this id.
    pub fn entry<K: Object>(&self, id: u64) -> Option<Entry> {
        (object_kind(id) == K::KIND)
            .then(|| self.find(id))
            .flatten()
    }

    /// The object of a library with this id, if a function accepts it for a class.
    pub fn entry_of(&self, class: Class, id: u64) -> Option<Entry> {
        class.takes(id).then(|| self.find(id)).flatten()
    }

    fn find(&self, id: u64) -> Option<Entry> {
        let table = self.table.read();
        let of = table.entries.get(&id).filter(|of| of.ending == 0)?;
        if object_kind(id) == Stream::KIND {
            of.used.store(true, Ordering::Release);
            if REMEMBERS.get() {
                USED.with_borrow_mut(|used| {
                    if !used.contains(&id) {
                        used.push(id);
                    }
                });
            }
        }
        Some(of.entry.clone())
    }

    /// Begins a command; its end is the end of the value. The streams that the command has looked up then count as used
    /// once more, because [`Objects::take_used`] may have found them idle between the look-up and the submission
    /// of the command's work. The ring's thread does not do both at once.
    pub fn uses(&self) -> Uses<'_> {
        Uses {
            objects: self,
            outer: REMEMBERS.replace(!IS_RING.get()),
        }
    }

    /// Records that a stream may have work.
    pub fn set_used(&self, stream: u64) {
        if let Some(of) = self.table.read().entries.get(&stream) {
            of.used.store(true, Ordering::Release);
        }
    }

    /// The streams of a context that a command has used since the last call. The caller calls [`Objects::set_used`] for
    /// those that are not idle. `None` if destroyed streams may have work left.
    pub fn take_used(&self, context: u64) -> Option<Vec<UsedStream>> {
        if self.unfinished(context) != 0 {
            return None;
        }
        let all = self.streams.lock();
        let table = self.table.read();
        let used = all.iter().filter(|of| of.context == context);
        let used = used.filter_map(|&Listed { id, is_apart, .. }| {
            let of = table.entries.get(&id).filter(|of| of.ending == 0)?;
            let raw = of.entry.raw;
            let was_used = of.used.swap(false, Ordering::AcqRel);
            was_used.then_some(UsedStream { id, raw, is_apart })
        });
        Some(used.collect())
    }

    /// The id of the context of an object, or 0; `None` if there is no such object, or it is about to end.
    pub fn live_context_of(&self, id: u64) -> Option<u64> {
        let table = self.table.read();
        let of = table.entries.get(&id).filter(|of| of.ending == 0)?;
        Some(of.entry.context)
    }

    /// Whether objects, given by their ids, exist and have these handles of the driver: a client may have destroyed one
    /// and made another with its id.
    pub fn are_still<'a>(&self, mut objects: impl Iterator<Item = &'a (u64, u64)>) -> bool {
        let table = self.table.read();
        objects.all(|(id, raw)| {
            let found = table.entries.get(id).filter(|of| of.ending == 0);
            found.is_some_and(|of| of.entry.raw == *raw)
        })
    }

    /// The context of an object, even of one that is about to end; 0 if it has none.
    pub fn context_of(&self, id: u64) -> u64 {
        let table = self.table.read();
        table.entries.get(&id).map_or(0, |of| of.entry.context)
    }

    /// The id of the context that owns objects made in a context: the context itself, or a green context's primary
    /// context.
    pub fn home(&self, context: u64) -> u64 {
        home(context, self.context_of(context))
    }

    /// The driver's handles of the streams of a context that is ending, including those that are ending by themselves.
    pub fn streams(&self, context: u64) -> Vec<u64> {
        let streams = self.streams_of(context).into_iter();
        streams.map(|(_, raw)| raw).collect()
    }

    /// The ids of a context's streams, and the driver's handles.
    pub fn streams_of(&self, context: u64) -> Vec<(u64, u64)> {
        let table = self.table.read();
        let streams = table
            .entries
            .iter()
            .filter(|(id, of)| object_kind(**id) == Stream::KIND && of.entry.context == context);
        streams.map(|(id, of)| (*id, of.entry.raw)).collect()
    }

    /// Whether the client has used the default streams of this process's threads. The guest's own library does not: it
    /// makes a stream for each thread.
    pub fn has_threads_streams(&self) -> bool {
        self.threads_streams.load(Ordering::SeqCst)
    }

    /// All contexts, the green ones too.
    pub fn contexts(&self) -> Vec<u64> {
        let table = self.table.read();
        let ids = table.entries.keys().copied();
        ids.filter(|id| object_kind(*id) == Context::KIND).collect()
    }

    /// The green contexts that are in a context.
    pub fn greens(&self, context: u64) -> Vec<u64> {
        let is_one = |(id, of): &(&u64, &Place)| {
            object_kind(**id) == Context::KIND && of.entry.context == context
        };
        let table = self.table.read();
        let found = table.entries.iter().filter(is_one);
        found.map(|(id, _)| *id).collect()
    }

    /// Whether a context is a green one or has green ones.
    pub fn has_greens(&self, context: u64) -> bool {
        self.context_of(context) != 0 || !self.greens(context).is_empty()
    }

    /// The driver's handle for an id of kind `K`. Special handles are passed unchanged.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` for a context that does not exist, `CUDA_ERROR_INVALID_HANDLE` for any other
    /// object.
    pub fn raw<K: Object>(&self, id: u64) -> Result<u64, CUresult> {
        if K::SPECIAL.contains(&id) {
            if K::KIND == Stream::KIND {
                note_stream(id);
                if id == CU_STREAM_PER_THREAD as u64 {
                    self.threads_streams.store(true, Ordering::SeqCst);
                }
            }
            return Ok(id);
        }
        let entry = self.entry::<K>(id).ok_or(missing::<K>())?;
        if K::KIND == Stream::KIND {
            use_stream(entry.raw, entry.context)?;
        }
        Ok(entry.raw)
    }

    /// The driver's handle of a stream, and the id of its context: 0 for a special handle, which stands for a stream of
    /// the current context.
    ///
    /// # Errors
    ///
    /// As [`Objects::raw`].
    pub fn stream(&self, id: u64) -> Result<(u64, u64), CUresult> {
        if Stream::SPECIAL.contains(&id) {
            return Ok((self.raw::<Stream>(id)?, 0));
        }
        let entry = self.entry::<Stream>(id).ok_or(CUDA_ERROR_INVALID_HANDLE)?;
        use_stream(entry.raw, entry.context)?;
        Ok((entry.raw, entry.context))
    }

    /// Records a new stream of a context. `is_apart`: the legacy stream does not wait for it.
    pub fn list_stream(&self, id: u64, context: u64, is_apart: bool) {
        self.streams.lock().push(Listed {
            id,
            context,
            is_apart,
        });
    }

    /// Whether the legacy stream waits for a stream.
    pub fn is_joined(&self, stream: u64) -> bool {
        let all = self.streams.lock();
        all.iter().any(|of| of.id == stream && !of.is_apart)
    }

    /// The streams of a context for which the legacy stream does not wait; `None` if destroyed streams may have work
    /// left.
    pub fn streams_apart(&self, context: u64) -> Option<Vec<u64>> {
        if self.unfinished(context) != 0 {
            return None;
        }
        let all = self.streams.lock();
        let here = all.iter().filter(|of| of.context == context && of.is_apart);
        Some(here.map(|of| of.id).collect())
    }

    /// Records that a stream of a context was destroyed before its work was done.
    pub fn set_unfinished(&self, context: u64) {
        let mut unfinished = self.unfinished.lock();
        *unfinished.entry(context).or_insert(0) += 1;
    }

    /// The number of such streams of a context.
    pub fn unfinished(&self, context: u64) -> u64 {
        self.unfinished.lock().get(&context).copied().unwrap_or(0)
    }

    /// Records that a context has done all work that it had when `unfinished` was the number of such streams. Others
    /// may have been destroyed since.
    pub fn set_finished(&self, context: u64, unfinished: u64) {
        let mut all = self.unfinished.lock();
        if all.get(&context) == Some(&unfinished) {
            all.remove(&context);
        }
    }

    /// A function, or a kernel in its place.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if it is neither.
    pub fn function(&self, id: u64) -> Result<Entry, CUresult> {
        let entry = if object_kind(id) == Function::KIND {
            self.entry::<Function>(id)
        } else {
            self.entry::<Kernel>(id)
        };
        entry.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
