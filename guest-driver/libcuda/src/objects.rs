//! What the process knows of the objects that it made.

use std::{
    cell::RefCell,
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    mem::ManuallyDrop,
    sync::{
        Arc, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use gpgpu_protocol::{
    api::{Object, Stream, object_kind},
    cuda::*,
};

use crate::{
    answers::Answers, border::Result, context::ContextData, function::FunctionData,
    library::LibraryData, module::ModuleData, thread,
};

/// What the process knows of a stream.
#[derive(Debug, Default)]
pub struct StreamData {
    /// The id of its context.
    pub context: u64,
    /// What the host said of it: [`crate::stream`] has the numbers.
    pub answers: Answers<3>,
}

/// An object, by what the process knows of it.
#[derive(Debug, Clone)]
pub enum Known {
    /// An event.
    Plain {
        /// The id of its context.
        context: u64,
    },
    /// A stream.
    Stream(Arc<StreamData>),
    /// A context.
    Context(Arc<ContextData>),
    /// A module.
    Module(Arc<ModuleData>),
    /// A function of a module, or of a library in one context.
    Function(Arc<FunctionData>),
    /// A library.
    Library(Arc<LibraryData>),
    /// A kernel of a library.
    Kernel(Arc<FunctionData>),
}

impl Known {
    /// A new object of kind `K`, of which the process knows its context alone.
    pub fn made<K: Object>(context: u64) -> Self {
        if K::KIND == Stream::KIND {
            Self::Stream(Arc::new(StreamData {
                context,
                ..StreamData::default()
            }))
        } else {
            Self::Plain { context }
        }
    }

    /// The id of the context that it is in; `None` for what is in all.
    pub fn context(&self) -> Option<u64> {
        match self {
            Self::Plain { context } => Some(*context),
            Self::Stream(stream) => Some(stream.context),
            Self::Module(module) => Some(module.context),
            Self::Function(function) => Some(function.context),
            // Libraries and their kernels are in every context.
            Self::Context(_) | Self::Library(_) | Self::Kernel(_) => None,
        }
    }
}

/// Ids are numbered by ourselves, so a multiplication spreads them well enough.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes
            .iter()
            .for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        let mixed = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

type Table = HashMap<u64, Known, BuildHasherDefault<IdHasher>>;

/// How many objects each thread keeps at hand: a power of two.
const RECENT: usize = 64;

/// What a thread looked up, and in which state of the table.
struct Recent {
    id: u64,
    state: u64,
    object: Option<Known>,
}

thread_local! {
    // Nothing has a destructor: CUDA may be called in those of other thread-locals. `forget_recent` cleans up.
    static RECENTS: ManuallyDrop<RefCell<[Recent; RECENT]>> = const {
        ManuallyDrop::new(RefCell::new([const { Recent { id: 0, state: 0, object: None } }; RECENT]))
    };
}

/// The thread ends, and with it what it kept at hand.
pub fn forget_recent() {
    let _ = RECENTS.try_with(|recents| {
        if let Ok(mut recents) = recents.try_borrow_mut() {
            recents.iter_mut().for_each(|recent| recent.object = None);
        }
    });
}

/// A number for each state of each table: no two tables ever have the same.
static STATES: AtomicU64 = AtomicU64::new(1);

/// A table's state as far as one kind of object is concerned, in a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct State(AtomicU64);

/// The table of objects, by id. Ids are never used twice, so an entry is never another object's.
///
/// Each thread keeps what it looked up last, so the calls that a program makes all the time take no lock.
#[derive(Debug, Default)]
pub struct Objects {
    table: RwLock<Table>,
    /// By kind; another one after something of that kind was forgotten.
    states: [State; 8],
}

impl Objects {
    fn read<T>(&self, look: impl FnOnce(&Table) -> T) -> T {
        look(
            &self
                .table
                .read()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    fn write<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        change(
            &mut self
                .table
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    fn state(&self, id: u64) -> &AtomicU64 {
        // Kinds are multiples of 16 up to 0x70.
        &self.states[usize::from(object_kind(id) >> 4) % 8].0
    }

    /// What the threads have at hand may be gone.
    fn outdate(&self) {
        for state in &self.states {
            state
                .0
                .store(STATES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        }
    }

    /// Notes an object.
    pub fn insert(&self, id: u64, object: Known) {
        // The first object gives the table a number of its own.
        let state = self.state(id);
        if state.load(Ordering::Relaxed) == 0 {
            let own = STATES.fetch_add(1, Ordering::Relaxed);
            let _ = state.compare_exchange(0, own, Ordering::Release, Ordering::Relaxed);
        }
        self.write(|table| table.insert(id, object));
    }

    /// Forgets an object.
    pub fn remove(&self, id: u64) -> Option<Known> {
        let removed = self.write(|table| table.remove(&id));
        if removed.is_some() {
            self.state(id)
                .store(STATES.fetch_add(1, Ordering::Relaxed), Ordering::Release);
        }
        removed
    }

    /// Forgets a context with everything in it.
    pub fn remove_context(&self, context: u64) {
        self.write(|table| {
            table.remove(&context);
            table.retain(|_, object| object.context() != Some(context));
        });
        self.outdate();
    }

    /// Forgets all but what `keep` says.
    pub fn retain(&self, mut keep: impl FnMut(&Known) -> bool) {
        self.write(|table| table.retain(|_, object| keep(object)));
        self.outdate();
    }

    /// Looks at an object, if it lives.
    pub fn look<T>(&self, id: u64, then: impl FnOnce(&Known) -> T) -> Option<T> {
        // The state is read before the table: what is forgotten meanwhile outdates what is found.
        let state = self.state(id).load(Ordering::Acquire);
        if state == 0 {
            return None;
        }
        let mut then = Some(then);
        let mut apply = |object: &Known| then.take().map(|then| then(object));
        let found = RECENTS.try_with(|recents| {
            // A look inside a look goes to the table.
            let mut recents = recents.try_borrow_mut().ok()?;
            let recent = &mut recents[(id >> 8) as usize % RECENT];
            if recent.id != id || recent.state != state || recent.object.is_none() {
                let object = self.read(|table| table.get(&id).cloned())?;
                thread::keeps_recent();
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

    /// Whether the object lives.
    pub fn contains(&self, id: u64) -> bool {
        self.look(id, |_| ()).is_some()
    }

    /// Whether a stream lives; the legacy stream always does.
    pub fn knows_stream(&self, id: u64) -> bool {
        Stream::SPECIAL.contains(&id) || object_kind(id) == Stream::KIND && self.contains(id)
    }

    /// The object.
    pub fn get(&self, id: u64) -> Option<Known> {
        self.look(id, Known::clone)
    }

    /// The module with this id; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn module(&self, id: u64) -> Result<Arc<ModuleData>> {
        match self.get(id) {
            Some(Known::Module(module)) => Ok(module),
            _ => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The library with this id; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn library(&self, id: u64) -> Result<Arc<LibraryData>> {
        match self.get(id) {
            Some(Known::Library(library)) => Ok(library),
            _ => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The function or kernel with this id; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn function(&self, id: u64) -> Result<Arc<FunctionData>> {
        match self.get(id) {
            Some(Known::Function(function) | Known::Kernel(function)) => Ok(function),
            _ => Err(CUDA_ERROR_INVALID_HANDLE),
        }
    }

    /// The device of a context, if it lives.
    pub fn context_device(&self, id: u64) -> Option<CUdevice> {
        self.look(id, |object| match object {
            Known::Context(context) => Some(context.device),
            _ => None,
        })
        .flatten()
    }

    /// What is known of a context, if it lives.
    pub fn context(&self, id: u64) -> Option<Arc<ContextData>> {
        match self.get(id) {
            Some(Known::Context(context)) => Some(context),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::{Event, object_id};

    use super::*;

    fn event(context: u64) -> Known {
        Known::made::<Event>(context)
    }

    #[test]
    fn what_a_thread_has_at_hand_is_gone_once_any_thread_forgets_it() {
        let objects = Objects::default();
        let id = object_id::<Event>(1);
        objects.insert(id, event(5));
        assert!(objects.contains(id));
        std::thread::scope(|scope| {
            scope.spawn(|| objects.remove(id));
        });
        assert!(!objects.contains(id));
        objects.insert(id, event(5));
        assert!(objects.contains(id));
        objects.remove_context(5);
        assert!(!objects.contains(id));
    }

    #[test]
    fn objects_that_share_a_place_at_hand_and_objects_of_two_tables_are_told_apart() {
        let (one, other) = (Objects::default(), Objects::default());
        let (first, second) = (object_id::<Event>(1), object_id::<Event>(1 + RECENT as u64));
        one.insert(first, event(1));
        one.insert(second, event(2));
        other.insert(first, event(3));
        for _ in 0..2 {
            assert_eq!(one.look(first, Known::context), Some(Some(1)));
            assert_eq!(one.look(second, Known::context), Some(Some(2)));
            assert_eq!(other.look(first, Known::context), Some(Some(3)));
            assert!(!other.contains(second));
        }
    }

    #[test]
    fn a_look_inside_a_look_finds_its_object() {
        let objects = Objects::default();
        let ids = [object_id::<Event>(1), object_id::<Stream>(2)];
        objects.insert(ids[0], event(1));
        objects.insert(ids[1], Known::made::<Stream>(2));
        let inner = objects.look(ids[0], |_| objects.look(ids[1], Known::context));
        assert_eq!(inner, Some(Some(Some(2))));
    }
}
