// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The settings of libraries' handles: their streams and pointer modes.

use std::{
    collections::{HashMap, hash_map},
    sync::Arc,
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{cuda::*, libraries::call::PointerMode};

use crate::worker::{
    objects::{self, Entry, Objects},
    session::Session,
};

/// The settings of a handle.
#[derive(Debug, Default)]
pub struct State {
    /// The id of its stream.
    pub stream: u64,
    /// The driver's handle of that stream, which the library has. Another stream may have got the id since.
    pub raw: u64,
    /// The place of scalars and results: host or device.
    pub mode: PointerMode,
    /// The workspace of a cuBLAS handle, which the library drops when the stream is set: address and size. `None` for
    /// the library's own.
    pub workspace: Option<(u64, u64)>,
}

impl State {
    /// Its stream: the driver's handle, and the context.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if the stream has ended, even if another one has its id: the library still has the
    /// old one.
    pub fn stream_in(&self, objects: &Objects) -> Result<(u64, u64), CUresult> {
        let found = objects.stream(self.stream)?;
        let is_same = found.0 == self.raw;
        is_same.then_some(found).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }
}

/// The state of an id.
#[derive(Debug)]
enum Place {
    /// A command is making the handle.
    Begun,
    /// It exists.
    Made(Arc<Mutex<State>>),
}

/// The handles' states, by id.
#[derive(Debug, Default)]
pub struct Handles(Mutex<HashMap<u64, Place>>);

impl Handles {
    /// The state of the handle that has an id.
    pub fn of(&self, id: u64) -> Option<Arc<Mutex<State>>> {
        match self.0.lock().get(&id)? {
            Place::Begun => None,
            Place::Made(state) => Some(Arc::clone(state)),
        }
    }

    /// Whether this is the state of the handle that has an id.
    pub fn is(&self, id: u64, state: &Arc<Mutex<State>>) -> bool {
        matches!(self.0.lock().get(&id), Some(Place::Made(now)) if Arc::ptr_eq(now, state))
    }

    /// Reserves an id for a handle that is about to be made, so that no other thread makes one with it: their states
    /// would be confused.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` if the id is in use.
    pub fn begin(&self, id: u64) -> Result<Begun<'_>, CUresult> {
        match self.0.lock().entry(id) {
            hash_map::Entry::Occupied(_) => Err(CUDA_ERROR_INVALID_VALUE),
            hash_map::Entry::Vacant(place) => {
                place.insert(Place::Begun);
                Ok(Begun { handles: self, id })
            }
        }
    }

    /// Forgets a handle that has ended.
    pub fn forget(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    /// Forgets the handles that are no longer objects, because their context has ended.
    pub fn forget_ended(&self, session: &Session) {
        let is_there = |id: &u64| session.objects.live_context_of(*id).is_some();
        self.0
            .lock()
            .retain(|id, place| matches!(place, Place::Begun) || is_there(id));
    }
}

/// An id that becomes a handle's, or free again if this is dropped.
#[derive(Debug)]
pub struct Begun<'a> {
    handles: &'a Handles,
    id: u64,
}

impl Begun<'_> {
    /// Records that the handle exists.
    pub fn finish(self, object: objects::Begun<'_>, entry: Entry) {
        let mut all = self.handles.0.lock();
        object.finish(entry);
        all.insert(self.id, Place::Made(Arc::default()));
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let mut all = self.handles.0.lock();
        if let Some(Place::Begun) = all.get(&self.id) {
            all.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::{
        api::{Stream, object_id},
        libraries::Class,
    };

    use super::*;

    #[test]
    fn pitfall_63_a_handle_loses_its_ended_stream_even_if_the_id_has_another() {
        let objects = Objects::default();
        let stream = object_id::<Stream>(1);
        objects.insert(stream, Entry::new(5, 0x110));
        let state = State {
            stream,
            raw: 5,
            ..State::default()
        };
        assert_eq!(state.stream_in(&objects), Ok((5, 0x110)));
        assert_eq!(State::default().stream_in(&objects), Ok((0, 0)));
        assert!(objects.end::<Stream>(stream).is_ok());
        objects.remove(stream);
        assert_eq!(state.stream_in(&objects), Err(CUDA_ERROR_INVALID_HANDLE));
        objects.insert(stream, Entry::new(6, 0x110));
        assert_eq!(state.stream_in(&objects), Err(CUDA_ERROR_INVALID_HANDLE));
    }

    #[test]
    fn an_id_is_one_handles_from_the_time_when_it_is_made() {
        let session = Session::new(None);
        let (handles, id) = (&session.handles, Class::CublasHandle.id(1));
        let begun = handles.begin(id).unwrap();
        assert!(handles.of(id).is_none(), "it is not there yet");
        assert_eq!(handles.begin(id).err(), Some(CUDA_ERROR_INVALID_VALUE));
        // The end of one context does not end an object that is being made in another.
        handles.forget_ended(&session);
        assert_eq!(handles.begin(id).err(), Some(CUDA_ERROR_INVALID_VALUE));
        drop(begun);
        let begun = handles.begin(id).expect("the first has failed");
        let object = || session.objects.begin_of(Class::CublasHandle, id).unwrap();
        begun.finish(object(), Entry::new(1, 0x110));
        let first = handles.of(id).expect("it is there");
        assert!(handles.is(id, &first));
        assert_eq!(handles.begin(id).err(), Some(CUDA_ERROR_INVALID_VALUE));
        session.objects.remove_context(0x110);
        handles.forget_ended(&session);
        assert!(handles.of(id).is_none() && !handles.is(id, &first));
        let begun = handles.begin(id).expect("its context has ended");
        begun.finish(object(), Entry::new(1, 0x110));
        // A thread that waits for the first handle's state does not get the second one's.
        assert!(!handles.is(id, &first));
    }
}
