// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A library's state of the objects that it has made, by their ids.
//!
//! Each thread caches its last look-ups, so frequent calls take no lock.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    marker::PhantomData,
    mem::ManuallyDrop,
    sync::atomic::{AtomicU64, Ordering},
    thread::LocalKey,
};

use gpgpu_locks::RwLock;
use gpgpu_protocol::api::object_kind;

/// The state of an object. Its clone must be cheap, because each thread has one for its last look-up.
///
/// A library has two thread-locals for its kind of entry, which generic code cannot define:
///
/// ```text
/// thread_local! {
///     static RECENTS: Recents<Known> = const { Recents::new() };
///     static LEAVING: Leaving<Known> = const { Leaving::new() };
/// }
/// ```
pub trait Entry: Clone + 'static {
    /// Each thread's last look-up.
    fn recents() -> &'static LocalKey<Recents<Self>>;
    /// Drops the last look-up when the thread ends.
    fn leaving() -> &'static LocalKey<Leaving<Self>>;
}

/// Ids are assigned consecutively, so a multiplication distributes them well enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    #[inline]
    fn write_u64(&mut self, id: u64) {
        let mixed = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Table<E> = HashMap<u64, E, BuildHasherDefault<IdHasher>>;

/// The number of objects that each thread caches: a power of two.
const RECENT: usize = 64;

/// A thread's look-up, and the table's state at that time.
struct Recent<E> {
    id: u64,
    state: u64,
    object: Option<E>,
}

impl<E> Recent<E> {
    const NOTHING: Self = Self {
        id: 0,
        state: 0,
        object: None,
    };
}

/// A thread's last look-ups. It has no destructor, because destructors of other thread-locals may call CUDA:
/// [`Leaving`] cleans up.
pub struct Recents<E>(ManuallyDrop<RefCell<[Recent<E>; RECENT]>>);

impl<E> Recents<E> {
    /// An empty cache.
    #[expect(clippy::new_without_default, reason = "only ever made by a constant")]
    pub const fn new() -> Self {
        Self(ManuallyDrop::new(RefCell::new(
            [const { Recent::NOTHING }; RECENT],
        )))
    }
}

/// Drops a thread's last look-ups when the thread ends.
pub struct Leaving<E: Entry>(PhantomData<fn(E)>);

impl<E: Entry> Leaving<E> {
    /// For a thread without look-ups.
    #[expect(clippy::new_without_default, reason = "only ever made by a constant")]
    pub const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<E: Entry> Drop for Leaving<E> {
    fn drop(&mut self) {
        let _ = E::recents().try_with(|recents| {
            if let Ok(mut recents) = recents.0.try_borrow_mut() {
                recents.iter_mut().for_each(|recent| recent.object = None);
            }
        });
    }
}

/// A number for each state of each table. No two tables ever have the same.
static STATES: AtomicU64 = AtomicU64::new(1);

/// A table's state for one kind of object, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct State(AtomicU64);

/// The table of objects, by id. Ids are never reused, so an entry never belongs to another object.
#[derive(Debug)]
pub struct Handles<E> {
    table: RwLock<Table<E>>,
    /// By kind. The value changes after an object of the kind was removed.
    states: [State; 8],
}

impl<E> Default for Handles<E> {
    fn default() -> Self {
        Self {
            table: RwLock::default(),
            states: Default::default(),
        }
    }
}

impl<E: Entry> Handles<E> {
    fn read<T>(&self, look: impl FnOnce(&Table<E>) -> T) -> T {
        look(&self.table.read())
    }

    fn write<T>(&self, change: impl FnOnce(&mut Table<E>) -> T) -> T {
        change(&mut self.table.write())
    }

    #[inline]
    fn state(&self, id: u64) -> &AtomicU64 {
        // Kinds are multiples of 16 up to 0x70.
        &self.states[usize::from(object_kind(id) >> 4) % 8].0
    }

    /// Adds an object.
    pub fn insert(&self, id: u64, object: E) {
        // With the first object the table gets a number of its own.
        let state = self.state(id);
        if state.load(Ordering::Relaxed) == 0 {
            let own = STATES.fetch_add(1, Ordering::Relaxed);
            let _ = state.compare_exchange(0, own, Ordering::Release, Ordering::Relaxed);
        }
        self.write(|table| table.insert(id, object));
    }

    /// Removes an object.
    pub fn remove(&self, id: u64) -> Option<E> {
        let removed = self.write(|table| table.remove(&id));
        if removed.is_some() {
            self.state(id)
                .store(STATES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        }
        removed
    }

    /// Removes all objects for which `keep` does not hold.
    pub fn retain(&self, mut keep: impl FnMut(u64, &E) -> bool) {
        self.write(|table| table.retain(|id, object| keep(*id, object)));
        // The threads' last look-ups may be outdated.
        for state in &self.states {
            state
                .0
                .store(STATES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        }
    }

    /// The ids of all objects for which `is_one` holds.
    pub fn ids(&self, is_one: impl Fn(u64, &E) -> bool) -> Vec<u64> {
        self.read(|table| {
            let found = table.iter().filter(|(id, object)| is_one(**id, object));
            found.map(|(id, _)| *id).collect()
        })
    }

    /// Calls `then` with an object, if it exists.
    #[inline]
    pub fn look<T>(&self, id: u64, then: impl FnOnce(&E) -> T) -> Option<T> {
        // The state is read before the table, so that the removal of an object in between outdates the cached look-up.
        let state = self.state(id).load(Ordering::Acquire);
        if state == 0 {
            return None;
        }
        let mut then = Some(then);
        let mut apply = |object: &E| then.take().map(|then| then(object));
        let found = E::recents().try_with(|recents| {
            // A nested look-up uses the table.
            let mut recents = recents.0.try_borrow_mut().ok()?;
            let recent = &mut recents[(id >> 8) as usize % RECENT];
            if recent.id != id || recent.state != state || recent.object.is_none() {
                let object = self.read(|table| table.get(&id).cloned())?;
                // The access registers its destructor.
                let _ = E::leaving().try_with(|_| ());
                *recent = Recent {
                    id,
                    state,
                    object: Some(object),
                };
            }
            recent.object.as_ref().and_then(&mut apply)
        });
        if let Ok(Some(found)) = found {
            return Some(found);
        }
        let object = self.read(|table| table.get(&id).cloned())?;
        apply(&object)
    }

    /// Whether the object exists.
    #[inline]
    pub fn contains(&self, id: u64) -> bool {
        self.look(id, |_| ()).is_some()
    }

    /// The object.
    pub fn get(&self, id: u64) -> Option<E> {
        self.look(id, E::clone)
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::{Event, Stream, object_id};

    use super::*;

    #[derive(Debug, Clone)]
    struct Plain {
        context: u64,
    }

    thread_local! {
        static RECENTS: Recents<Plain> = const { Recents::new() };
        static LEAVING: Leaving<Plain> = const { Leaving::new() };
    }

    impl Entry for Plain {
        fn recents() -> &'static LocalKey<Recents<Self>> {
            &RECENTS
        }

        fn leaving() -> &'static LocalKey<Leaving<Self>> {
            &LEAVING
        }
    }

    fn event(context: u64) -> Plain {
        Plain { context }
    }

    fn context(object: &Plain) -> u64 {
        object.context
    }

    #[test]
    fn a_threads_cached_look_up_ends_when_any_thread_forgets_it() {
        let objects = Handles::default();
        let id = object_id::<Event>(1);
        objects.insert(id, event(5));
        assert!(objects.contains(id));
        std::thread::scope(|scope| {
            scope.spawn(|| objects.remove(id));
        });
        assert!(!objects.contains(id));
        objects.insert(id, event(5));
        assert!(objects.contains(id));
        objects.retain(|_, object| object.context != 5);
        assert!(!objects.contains(id));
    }

    #[test]
    fn objects_that_share_a_place_at_hand_and_objects_of_two_tables_are_told_apart() {
        let (one, other) = (Handles::default(), Handles::default());
        let (first, second) = (object_id::<Event>(1), object_id::<Event>(1 + RECENT as u64));
        one.insert(first, event(1));
        one.insert(second, event(2));
        other.insert(first, event(3));
        for _ in 0..2 {
            assert_eq!(one.look(first, context), Some(1));
            assert_eq!(one.look(second, context), Some(2));
            assert_eq!(other.look(first, context), Some(3));
            assert!(!other.contains(second));
        }
    }

    #[test]
    fn a_look_inside_a_look_finds_its_object() {
        let objects = Handles::default();
        let ids = [object_id::<Event>(1), object_id::<Stream>(2)];
        objects.insert(ids[0], event(1));
        objects.insert(ids[1], event(2));
        let inner = objects.look(ids[0], |_| objects.look(ids[1], context));
        assert_eq!(inner, Some(Some(2)));
    }
}
