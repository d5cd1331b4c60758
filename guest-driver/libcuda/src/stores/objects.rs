// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The process's state of the objects that it has made.

use std::{
    ops::Deref,
    sync::{Arc, atomic::AtomicBool},
    thread::LocalKey,
};

use gpgpu_client::{
    ffi::Result,
    handles::{Entry, Handles, Leaving, Recents},
};
use gpgpu_protocol::{
    api::{Object, Stream, object_kind},
    cuda::*,
};

use super::{
    answers::Answers, context::ContextData, function::FunctionData, library::LibraryData,
    module::ModuleData,
};

/// The process's state of an event.
#[derive(Debug)]
pub struct EventData {
    /// The id of its context.
    pub context: u64,
    /// Whether it was ever recorded.
    pub is_recorded: AtomicBool,
}

/// The process's state of a stream.
#[derive(Debug, Default)]
pub struct StreamData {
    /// The id of its context.
    pub context: u64,
    /// The host's answers about it; [`crate::stream`] has their numbers.
    pub answers: Answers<3>,
}

/// The process's state of an object.
#[derive(Debug, Clone)]
pub enum Known {
    /// An event.
    Event(Arc<EventData>),
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
    /// A new object of kind `K`, of which the process knows only the context.
    pub fn made<K: Object>(context: u64) -> Self {
        if K::KIND == Stream::KIND {
            Self::Stream(Arc::new(StreamData {
                context,
                ..StreamData::default()
            }))
        } else {
            Self::Event(Arc::new(EventData {
                context,
                is_recorded: AtomicBool::new(false),
            }))
        }
    }

    /// The id of its context; `None` for objects of all contexts.
    pub fn context(&self) -> Option<u64> {
        match self {
            Self::Event(event) => Some(event.context),
            Self::Stream(stream) => Some(stream.context),
            Self::Module(module) => Some(module.context),
            Self::Function(function) => Some(function.context),
            // Libraries and their kernels exist in every context.
            Self::Context(_) | Self::Library(_) | Self::Kernel(_) => None,
        }
    }
}

thread_local! {
    static RECENTS: Recents<Known> = const { Recents::new() };
    static LEAVING: Leaving<Known> = const { Leaving::new() };
}

impl Entry for Known {
    #[inline]
    fn recents() -> &'static LocalKey<Recents<Self>> {
        &RECENTS
    }

    #[inline]
    fn leaving() -> &'static LocalKey<Leaving<Self>> {
        &LEAVING
    }
}

/// The table of objects, and the numbers of their kinds in CUDA's driver API.
#[derive(Debug, Default)]
pub struct Objects(Handles<Known>);

impl Deref for Objects {
    type Target = Handles<Known>;

    #[inline]
    fn deref(&self) -> &Handles<Known> {
        &self.0
    }
}

impl Objects {
    /// Forgets a context with everything in it.
    pub fn remove_context(&self, context: u64) {
        self.retain(|id, object| id != context && object.context() != Some(context));
    }

    /// Whether a stream exists; the legacy stream always does.
    #[inline]
    pub fn knows_stream(&self, id: u64) -> bool {
        Stream::SPECIAL.contains(&id) || object_kind(id) == Stream::KIND && self.contains(id)
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

    /// The device of a context, if it exists.
    pub fn context_device(&self, id: u64) -> Option<CUdevice> {
        self.look(id, |object| match object {
            Known::Context(context) => Some(context.device),
            _ => None,
        })
        .flatten()
    }

    /// The state of a context, if it exists.
    pub fn context(&self, id: u64) -> Option<Arc<ContextData>> {
        match self.get(id) {
            Some(Known::Context(context)) => Some(context),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use gpgpu_protocol::api::{Context, Event, object_id};

    use super::*;

    #[test]
    fn a_context_ends_with_all_its_objects_and_no_others() {
        let objects = Objects::default();
        let contexts = [object_id::<Context>(1), object_id::<Context>(2)];
        let events = [object_id::<Event>(3), object_id::<Event>(4)];
        let stream = object_id::<Stream>(5);
        for (event, context) in events.into_iter().zip(contexts) {
            objects.insert(context, Known::made::<Context>(0));
            objects.insert(event, Known::made::<Event>(context));
        }
        objects.insert(stream, Known::made::<Stream>(contexts[0]));
        assert!(objects.contains(contexts[0]) && objects.knows_stream(stream));
        objects.remove_context(contexts[0]);
        let gone = [contexts[0], events[0], stream];
        assert!(gone.iter().all(|id| !objects.contains(*id)));
        assert!(objects.contains(contexts[1]) && objects.contains(events[1]));
    }
}
