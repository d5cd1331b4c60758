//! The client's objects: ids that the guest chose, and the driver's handles for them.
//!
//! A handle comes from here or not at all: a garbage handle would crash the driver. The kind is a
//! part of the id, and an id is never used again, so neither a wrong kind nor a stale id finds anything.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use gpgpu_protocol::{
    api::{
        Context, Event, Function, Kernel, Library, Module, Object, ParamInfo, Stream, object_kind,
    },
    cuda::*,
};

use super::lease::{note_stream, use_stream};

/// An object.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The driver's handle.
    pub raw: u64,
    /// The id of the context that it goes with, or 0.
    pub context: u64,
    /// The id of the module or library that it goes with, or 0.
    pub parent: u64,
    /// The bytes that each thread of a function or kernel has of the device's memory.
    pub local: u32,
    /// The parameters, of a function or kernel.
    pub params: Option<Arc<[ParamInfo]>>,
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
}

/// The most objects of a kind that one client has: what each costs the driver is the host's memory.
const fn most(kind: u8) -> usize {
    match kind {
        // A hundred megabytes and more, of the GPU's memory too.
        Context::KIND => 64,
        Stream::KIND => 16 << 10,
        Module::KIND | Library::KIND => 16 << 10,
        // Some hundred bytes.
        Event::KIND => 256 << 10,
        // An entry here: the driver has them with their module.
        _ => 1 << 20,
    }
}

/// What there is, and how much of each kind.
#[derive(Debug, Default)]
struct Table {
    entries: HashMap<u64, Entry, foldhash::fast::RandomState>,
    counts: HashMap<u8, usize>,
}

impl Table {
    fn count(&mut self, id: u64) -> &mut usize {
        self.counts.entry(object_kind(id)).or_default()
    }

    fn insert(&mut self, id: u64, entry: Entry) {
        if self.entries.insert(id, entry).is_none() {
            *self.count(id) += 1;
        }
    }

    fn remove(&mut self, id: u64) {
        if self.entries.remove(&id).is_some() {
            *self.count(id) -= 1;
        }
    }

    fn retain(&mut self, keep: impl Fn(u64, &Entry) -> bool) {
        let counts = &mut self.counts;
        self.entries.retain(|&id, entry| {
            let kept = keep(id, entry);
            if !kept && let Some(count) = counts.get_mut(&object_kind(id)) {
                *count -= 1;
            }
            kept
        });
    }
}

/// The table.
#[derive(Debug, Default)]
pub struct Objects {
    /// A guest that chose its ids so that they collide would slow down nobody but itself.
    table: RwLock<Table>,
    /// How often a stream or a function ended.
    ends: AtomicU64,
    /// The streams that the legacy stream does not wait for, with their contexts.
    apart: Mutex<Vec<(u64, u64)>>,
    /// Contexts in which a stream was destroyed that had work left.
    unfinished: Mutex<Vec<u64>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Objects {
    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(
            &mut self
                .table
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// Whether `id` can become a new object of kind `K`.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id of another kind or one in use; `CUDA_ERROR_OUT_OF_MEMORY` past the limit.
    pub fn check_new<K: Object>(&self, id: u64) -> Result<(), CUresult> {
        let table = self
            .table
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let known = table.entries.contains_key(&id);
        if object_kind(id) != K::KIND || K::SPECIAL.contains(&id) || known {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        if table
            .counts
            .get(&K::KIND)
            .is_some_and(|count| *count >= most(K::KIND))
        {
            Err(CUDA_ERROR_OUT_OF_MEMORY)
        } else {
            Ok(())
        }
    }

    /// Notes an object under a checked id.
    pub fn insert(&self, id: u64, entry: Entry) {
        self.write(|table| table.insert(id, entry));
    }

    /// Forgets an object.
    pub fn remove(&self, id: u64) {
        self.write(|table| table.remove(id));
        if object_kind(id) == Stream::KIND {
            self.ends.fetch_add(1, Ordering::AcqRel);
            locked(&self.apart).retain(|(stream, _)| *stream != id);
        }
    }

    /// Forgets a module or library with its functions.
    pub fn remove_with_children(&self, parent: u64) {
        self.write(|table| table.retain(|id, entry| id != parent && entry.parent != parent));
        self.ends.fetch_add(1, Ordering::AcqRel);
    }

    /// How often streams or functions have ended: what was found before then may be there no more.
    pub fn ends(&self) -> u64 {
        self.ends.load(Ordering::Acquire)
    }

    /// The id of the context that an object is in, or 0; `None` if there is no such object.
    pub fn context_of(&self, id: u64) -> Option<u64> {
        let table = self
            .table
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        table.entries.get(&id).map(|entry| entry.context)
    }

    /// Forgets a context with everything in it.
    pub fn remove_context(&self, context: u64) {
        self.write(|table| table.retain(|id, entry| id != context && entry.context != context));
        self.ends.fetch_add(1, Ordering::AcqRel);
        locked(&self.apart).retain(|(_, of)| *of != context);
        self.set_finished(context);
    }

    /// The object of kind `K` with this id.
    pub fn entry<K: Object>(&self, id: u64) -> Option<Entry> {
        if object_kind(id) != K::KIND {
            return None;
        }
        let table = self
            .table
            .read()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        table.entries.get(&id).cloned()
    }

    /// The driver's handle for an id of kind `K`; special handles stand for themselves.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_CONTEXT` for a context, `CUDA_ERROR_INVALID_HANDLE` for anything else that is not there.
    pub fn raw<K: Object>(&self, id: u64) -> Result<u64, CUresult> {
        if K::SPECIAL.contains(&id) {
            if K::KIND == Stream::KIND {
                note_stream(id);
            }
            return Ok(id);
        }
        let missing = if K::KIND == gpgpu_protocol::api::Context::KIND {
            CUDA_ERROR_INVALID_CONTEXT
        } else {
            CUDA_ERROR_INVALID_HANDLE
        };
        let entry = self.entry::<K>(id).ok_or(missing)?;
        if K::KIND == Stream::KIND {
            use_stream(entry.raw, entry.context)?;
        }
        Ok(entry.raw)
    }

    /// Notes a stream that the legacy stream does not wait for.
    pub fn set_apart(&self, stream: u64, context: u64) {
        locked(&self.apart).push((stream, context));
    }

    /// The streams of a context that the legacy stream does not wait for; `None` if there is work of streams that
    /// have no name any more.
    pub fn streams_apart(&self, context: u64) -> Option<Vec<u64>> {
        if locked(&self.unfinished).contains(&context) {
            return None;
        }
        let apart = locked(&self.apart);
        let here = apart.iter().filter(|(_, of)| *of == context);
        Some(here.map(|(id, _)| *id).collect())
    }

    /// A stream of a context is destroyed before its work is done.
    pub fn set_unfinished(&self, context: u64) {
        let mut unfinished = locked(&self.unfinished);
        if !unfinished.contains(&context) {
            unfinished.push(context);
        }
    }

    /// All work of a context is done.
    pub fn set_finished(&self, context: u64) {
        locked(&self.unfinished).retain(|other| *other != context);
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
mod tests {
    use gpgpu_protocol::api::object_id;

    use super::*;

    #[test]
    fn pitfall_63_stale_foreign_and_garbage_handles_find_nothing() {
        let objects = Objects::default();
        let id = object_id::<Stream>(1);
        assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
        objects.check_new::<Stream>(id).unwrap();
        objects.insert(id, Entry::new(0x1234, 0));
        assert_eq!(objects.raw::<Stream>(id), Ok(0x1234));
        assert_eq!(objects.raw::<Event>(id), Err(CUDA_ERROR_INVALID_HANDLE));
        assert!(objects.check_new::<Stream>(id).is_err());
        assert!(objects.check_new::<Event>(object_id::<Stream>(2)).is_err());
        objects.remove(id);
        assert_eq!(objects.raw::<Stream>(id), Err(CUDA_ERROR_INVALID_HANDLE));
        assert_eq!(
            objects.raw::<Stream>(0xdead_beef),
            Err(CUDA_ERROR_INVALID_HANDLE)
        );
        assert_eq!(objects.raw::<Stream>(0), Ok(0));
    }

    #[test]
    fn a_context_takes_what_is_in_it_along() {
        let objects = Objects::default();
        objects.insert(object_id::<Stream>(1), Entry::new(1, 7));
        objects.insert(object_id::<Stream>(2), Entry::new(2, 8));
        objects.remove_context(7);
        assert!(objects.raw::<Stream>(object_id::<Stream>(1)).is_err());
        assert!(objects.raw::<Stream>(object_id::<Stream>(2)).is_ok());
    }

    #[test]
    fn pitfall_73_objects_of_a_kind_are_bounded_and_make_room_as_they_end() {
        let objects = Objects::default();
        let id = object_id::<Context>;
        for serial in 0..most(Context::KIND) as u64 {
            objects.check_new::<Context>(id(serial)).unwrap();
            objects.insert(id(serial), Entry::new(1, 0));
            // What is in it goes with it.
            objects.insert(object_id::<Stream>(serial), Entry::new(1, id(serial)));
        }
        let next = id(1 << 20);
        assert_eq!(
            objects.check_new::<Context>(next),
            Err(CUDA_ERROR_OUT_OF_MEMORY)
        );
        objects.check_new::<Event>(object_id::<Event>(0)).unwrap();
        objects.remove(id(0));
        objects.check_new::<Context>(next).unwrap();
        for serial in 1..most(Context::KIND) as u64 {
            objects.remove_context(id(serial));
        }
        assert_eq!(objects.write(|table| *table.count(id(0))), 0);
        assert_eq!(
            objects.write(|table| *table.count(object_id::<Stream>(0))),
            1
        );
    }
}
