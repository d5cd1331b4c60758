// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! nvJPEG's objects, and the other objects and bytes that the library may still access through them.
//!
//! The library's objects point to each other: a state to its attached buffers and to its decoder; all to their handle.
//! A guest may destroy them in any order. So an object of the library is destroyed once it has ended for the guest and
//! no other object keeps it. A parsed stream points to the bytes of its JPEG, which are kept with it, and with the
//! states that use it.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    cuda::CUresult,
    libraries::{Class, Kind, SUCCESS, call::Value, nvjpeg::status},
};

use super::{
    super::{Call, abi},
    memory::{Allocators, Budget, Taken},
};
use crate::{
    cuda::library::Library,
    worker::{grace, session::Session},
};

/// The result of a step: the error is the call's status.
pub type Step<T> = Result<T, u32>;

/// Calls a function of the library. None of them takes floating-point numbers.
pub fn host(name: &'static str, words: &[u64]) -> Step<()> {
    let address = Library::Nvjpeg.symbol(name);
    let address = address.map_err(|_| status::NOT_SUPPORTED)?;
    // SAFETY: callers give the library's own objects, which live across the call; values and buffers as long as the
    // function reads or writes; and device addresses where the library takes them for such.
    match unsafe { abi::call_with(address, words, [0.0; abi::MOST_FLOATS]) } {
        SUCCESS => Ok(()),
        other => Err(other),
    }
}

/// Bytes of JPEGs, at an address that does not change.
#[derive(Debug)]
pub struct Bytes {
    /// The bytes.
    pub data: Vec<u8>,
    _taken: Taken,
}

/// The objects of a client, by id, and the amount of memory that they keep.
#[derive(Debug, Default)]
pub struct Jpegs {
    all: Mutex<HashMap<u64, Arc<Object>>>,
    kept: Budget,
    /// Pinned host memory.
    pub pins: Budget,
}

/// The fewest bytes that count for kept ones.
const LEAST_KEPT: usize = 256;

impl Jpegs {
    /// Stores bytes.
    ///
    /// # Errors
    ///
    /// `ALLOCATOR_FAILURE` if the client has too many bytes.
    pub fn keep(&self, data: Vec<u8>) -> Step<Bytes> {
        let most = gpgpu_protocol::libraries::nvjpeg::MOST_KEPT;
        // Short ones take room beside their bytes.
        let taken = self.kept.take(data.len().max(LEAST_KEPT) as u64, most);
        let _taken = taken.ok_or(status::ALLOCATOR_FAILURE)?;
        Ok(Bytes { data, _taken })
    }

    /// The same with zeros, which occupy no memory before they are written.
    ///
    /// # Errors
    ///
    /// As [`Jpegs::keep`].
    pub fn room(&self, length: u64) -> Step<Bytes> {
        let most = gpgpu_protocol::libraries::nvjpeg::MOST_KEPT;
        let taken = self.kept.take(length, most);
        let _taken = taken.ok_or(status::ALLOCATOR_FAILURE)?;
        let data = vec![0; length as usize];
        Ok(Bytes { data, _taken })
    }

    fn find(&self, id: u64) -> Option<Arc<Object>> {
        self.all.lock().get(&id).cloned()
    }

    /// Records an object.
    pub fn insert(&self, id: u64, object: Object) {
        self.all.lock().insert(id, Arc::new(object));
    }

    /// Handles the end of an object for the guest.
    pub fn remove(&self, id: u64) {
        let ended = self.all.lock().remove(&id);
        // Dropping it calls the library, so this is done without the lock.
        drop(ended);
    }

    /// Handles the end of a context. The library does not destroy its objects, as with all libraries.
    pub fn forget_context(&self, context: u64) {
        let mut all = self.all.lock();
        let gone: Vec<_> = all
            .extract_if(|_, object| object.context == context)
            .map(|(_, object)| object)
            .collect();
        drop(all);
        for object in &gone {
            object.set_over();
            if let Some(allocators) = &object.allocators
                && allocators.home() != context
            {
                allocators.lose();
            }
        }
    }
}

/// An object of the library.
#[derive(Debug)]
pub struct Object {
    /// Its class.
    pub class: Class,
    /// The library's pointer; 0 if it has none.
    pub raw: u64,
    /// The context that it is in.
    pub context: u64,
    /// The allocators of a handle.
    pub allocators: Option<Allocators>,
    /// The objects with which it was made; they end later.
    pub made_with: Vec<Arc<Object>>,
    /// Its context has ended.
    is_over: AtomicBool,
    own: Mutex<Own>,
}

/// The part of an object that calls change.
#[derive(Debug, Default)]
pub struct Own {
    /// The bytes that the library may still read.
    pub bytes: Option<Arc<Bytes>>,
    /// Whether the stream's last JPEG was parsed. If not, the library may have addresses in any previous one.
    pub is_parsed: bool,
    /// The bytes of tables that it may still read: the last ones that it has accepted, and those after them that it has
    /// not.
    pub tables: Vec<Arc<Bytes>>,
    /// The last object of each class that the library may still access through this one.
    uses: Vec<Arc<Object>>,
    /// The batch size that was set for a state; 0 if none was.
    pub batch: usize,
    /// The largest batch size that was ever set for a state.
    pub most: usize,
    /// An encoded JPEG that was not fetched completely.
    pub encoded: Option<Bytes>,
}

impl Own {
    /// Records tables that were passed to the library, which may have accepted them.
    pub fn set_tables(&mut self, bytes: Arc<Bytes>, is_accepted: bool) {
        if is_accepted {
            self.tables.clear();
        }
        self.tables.push(bytes);
    }
}

impl Object {
    /// A new object.
    pub fn new(class: Class, raw: u64, context: u64) -> Self {
        Self {
            class,
            raw,
            context,
            allocators: None,
            made_with: Vec::new(),
            is_over: AtomicBool::new(false),
            own: Mutex::default(),
        }
    }

    /// Stores bytes in a new object.
    pub fn set_bytes(&self, bytes: Bytes) {
        self.own.lock().bytes = Some(Arc::new(bytes));
    }

    /// The library's function that destroys it.
    fn end(&self) -> Option<&'static str> {
        Some(match self.class {
            Class::NvjpegHandle => "nvjpegDestroy",
            Class::NvjpegState => "nvjpegJpegStateDestroy",
            Class::NvjpegDecoder => "nvjpegDecoderDestroy",
            Class::NvjpegStream => "nvjpegJpegStreamDestroy",
            Class::NvjpegDecodeParams => "nvjpegDecodeParamsDestroy",
            Class::NvjpegPinned => "nvjpegBufferPinnedDestroy",
            Class::NvjpegDevice => "nvjpegBufferDeviceDestroy",
            Class::NvjpegEncoderState => "nvjpegEncoderStateDestroy",
            Class::NvjpegEncoderParams => "nvjpegEncoderParamsDestroy",
            _ => return None,
        })
    }

    /// Records that its context has ended, and with it all objects to which it points. Some of these have ended for the
    /// guest before.
    fn set_over(&self) {
        if !self.is_over.swap(true, Ordering::Relaxed) {
            let own = self.own.lock();
            let leads_to = own.uses.iter().chain(&self.made_with);
            leads_to.for_each(|object| object.set_over());
        }
    }

    /// Its rank. An object points only to objects of a lower rank, so there are no cycles.
    fn rank(&self) -> u8 {
        match self.class {
            Class::NvjpegState | Class::NvjpegEncoderState => 2,
            Class::NvjpegEncoderParams => 1,
            _ => 0,
        }
    }
}

impl Drop for Object {
    /// Fields are dropped after this: the library's object ends before those to which it points.
    fn drop(&mut self) {
        let is_over = self.is_over.load(Ordering::Relaxed);
        if let Some(end) = self.end().filter(|_| self.raw != 0 && !is_over)
            && let Err(said) = host(end, &[self.raw])
        {
            tracing::debug!("{end} returns {said}");
        }
    }
}

/// The objects of a call, each once, in the order of their ids: every thread locks them in this order.
pub struct Named {
    all: Vec<(u64, Arc<Object>)>,
    /// The context of all of them.
    pub context: u64,
    /// The call's stream: its id, and the driver's handle, which the call's arguments have.
    stream: Option<(u64, u64)>,
}

impl Named {
    /// The objects of a call, and others with these ids. Their context is current afterwards.
    ///
    /// # Errors
    ///
    /// `INVALID_PARAMETER` if an argument is NULL that must not be, if an object does not exist, or if they and the
    /// call's stream are not all in one context.
    pub fn of(call: &Call<'_>, others: &[u64]) -> Step<Self> {
        let wrong = status::INVALID_PARAMETER;
        let mut ids = others.to_vec();
        for (kind, value) in call.function.kinds.iter().zip(&call.values) {
            match (kind, value) {
                (Kind::Object(Class::NvjpegBytes), Value::Word(0)) => {}
                (Kind::Handle(_) | Kind::Object(_), Value::Word(0)) => return Err(wrong),
                (Kind::Handle(_) | Kind::Object(_), Value::Word(id)) => ids.push(*id),
                (Kind::Out(_) | Kind::In(_) | Kind::Update(_), Value::Word(_)) => {
                    return Err(wrong);
                }
                _ => {}
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let (session, mut all) = (call.session, Vec::with_capacity(ids.len()));
        for id in ids {
            all.push((id, session.jpegs.find(id).ok_or(wrong)?));
        }
        let context = all.first().ok_or(wrong)?.1.context;
        let is_there = |of: u64| session.objects.home(of) == session.objects.home(context);
        if !all.iter().all(|(_, object)| object.context == context) {
            return Err(wrong);
        }
        let mut named = None;
        if let Some(stream) = call.stream() {
            let found = session.objects.stream(stream);
            let (raw, of) = found.map_err(|_| wrong)?;
            if of != 0 && !is_there(of) {
                return Err(wrong);
            }
            named = Some((stream, raw));
        }
        if call.function.handle().is_none() {
            // First: an end of the context that begins after this waits for this command.
            grace::set_context(context);
            let entered: Result<(), CUresult> = session.enter(context);
            entered.map_err(|_| wrong)?;
        }
        Ok(Self {
            all,
            context,
            stream: named,
        })
    }

    /// The object with an id.
    pub fn get(&self, id: u64) -> Step<&Arc<Object>> {
        let found = self.all.iter().find(|(of, _)| *of == id);
        found
            .map(|(_, object)| object)
            .ok_or(status::INVALID_PARAMETER)
    }

    /// The id of the handle among them.
    pub fn handle(&self) -> Option<u64> {
        let mut all = self.all.iter();
        let handle = all.find(|(_, object)| object.class == Class::NvjpegHandle);
        handle.map(|(id, _)| *id)
    }

    /// The objects themselves.
    pub fn into_objects(self) -> Vec<Arc<Object>> {
        self.all.into_iter().map(|(_, object)| object).collect()
    }

    /// Locks them against other calls. The caller holds the handle's state, which stands for the handle.
    ///
    /// # Errors
    ///
    /// `INVALID_PARAMETER` if one has ended in the meantime.
    pub fn lock(&self, session: &Session) -> Step<Locked<'_>> {
        let objects = self.all.iter();
        let objects = objects.filter(|(_, object)| object.class != Class::NvjpegHandle);
        let locked = objects.map(|(id, object)| (*id, object, grace::lock(&object.own)));
        let locked = Locked(locked.collect());
        // Objects may have ended while this thread waited for a lock.
        let is_there = |id: u64, object: &Object| {
            let entry = session.objects.entry_of(object.class, id);
            entry.is_some_and(|entry| entry.raw == object.raw && entry.context == object.context)
        };
        let has_stream = self.stream.is_none_or(|(id, raw)| {
            let found = session.objects.stream(id);
            found.is_ok_and(|(now, _)| now == raw)
        });
        match has_stream && self.all.iter().all(|(id, object)| is_there(*id, object)) {
            true => Ok(locked),
            false => Err(status::INVALID_PARAMETER),
        }
    }
}

/// The objects to which others pointed before a call. To be dropped after it.
#[derive(Default)]
pub struct Old {
    objects: Vec<Arc<Object>>,
    bytes: Vec<Arc<Bytes>>,
}

/// Objects that are locked for one call.
pub struct Locked<'a>(Vec<(u64, &'a Arc<Object>, MutexGuard<'a, Own>)>);

impl Locked<'_> {
    /// The changeable part of an object.
    pub fn own(&mut self, id: u64) -> Step<&mut Own> {
        let found = self.0.iter_mut().find(|(of, ..)| *of == id);
        found
            .map(|(.., own)| &mut **own)
            .ok_or(status::INVALID_PARAMETER)
    }

    /// Checks that the streams among them have parsed a JPEG.
    ///
    /// # Errors
    ///
    /// `INVALID_PARAMETER` if one has not.
    pub fn check_parsed(&self) -> Step<()> {
        let mut streams = self.0.iter();
        let has = |(_, object, own): &(u64, &Arc<Object>, MutexGuard<'_, Own>)| {
            object.class != Class::NvjpegStream || own.is_parsed
        };
        match streams.all(has) {
            true => Ok(()),
            false => Err(status::INVALID_PARAMETER),
        }
    }

    /// Records that the library may access each of these through the others from now on. Returns the objects that it no
    /// longer accesses after the call.
    pub fn connect(&mut self) -> Old {
        let mut old = Old::default();
        // Few objects point to others; a batch may name thousands that do not.
        let leads = |at: &usize| self.0[*at].1.rank() > 0;
        let leading: Vec<usize> = (0..self.0.len()).filter(leads).collect();
        for at in leading {
            for other in 0..self.0.len() {
                let (_, used, own) = &self.0[other];
                let (used, bytes) = (Arc::clone(used), own.bytes.clone());
                let (_, by, own) = &mut self.0[at];
                if used.rank() >= by.rank() || used.class == Class::NvjpegBytes {
                    continue;
                }
                if used.class == Class::NvjpegStream {
                    old.bytes.extend(std::mem::replace(&mut own.bytes, bytes));
                }
                let is_same = |of: &&mut Arc<Object>| of.class == used.class;
                match own.uses.iter_mut().find(is_same) {
                    Some(place) => old.objects.push(std::mem::replace(place, used)),
                    None => own.uses.push(used),
                }
            }
        }
        old
    }
}
