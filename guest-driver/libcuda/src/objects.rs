//! What the process knows of the objects that it made.

use std::{
    collections::HashMap,
    sync::{Arc, RwLock},
};

use gpgpu_protocol::{
    api::{Object, Stream},
    cuda::*,
};

use crate::{border::Result, function::FunctionData, library::LibraryData, module::ModuleData};

/// An object, by what the process knows of it.
#[derive(Debug, Clone)]
pub enum Known {
    /// A stream or an event.
    Plain {
        /// The id of its context.
        context: u64,
    },
    /// A context.
    Context {
        /// Its device.
        device: CUdevice,
        /// Whether it is the device's primary context.
        primary: bool,
    },
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
    fn context(&self) -> Option<u64> {
        match self {
            Self::Plain { context } => Some(*context),
            Self::Module(module) => Some(module.context),
            Self::Function(function) => Some(function.context),
            // Libraries and their kernels are in every context.
            Self::Context { .. } | Self::Library(_) | Self::Kernel(_) => None,
        }
    }
}

/// The table of objects, by id. Ids are never used twice, so an entry is never another object's.
#[derive(Debug, Default)]
pub struct Objects {
    table: RwLock<HashMap<u64, Known>>,
}

impl Objects {
    fn read<T>(&self, look: impl FnOnce(&HashMap<u64, Known>) -> T) -> T {
        look(
            &self
                .table
                .read()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    fn write<T>(&self, change: impl FnOnce(&mut HashMap<u64, Known>) -> T) -> T {
        change(
            &mut self
                .table
                .write()
                .unwrap_or_else(|poisoned| poisoned.into_inner()),
        )
    }

    /// Notes an object.
    pub fn insert(&self, id: u64, object: Known) {
        self.write(|table| table.insert(id, object));
    }

    /// Forgets an object.
    pub fn remove(&self, id: u64) -> Option<Known> {
        self.write(|table| table.remove(&id))
    }

    /// Forgets a context with everything in it.
    pub fn remove_context(&self, context: u64) {
        self.write(|table| {
            table.remove(&context);
            table.retain(|_, object| object.context() != Some(context));
        });
    }

    /// Forgets what `gone` says.
    pub fn retain(&self, mut keep: impl FnMut(&Known) -> bool) {
        self.write(|table| table.retain(|_, object| keep(object)));
    }

    /// Whether the object lives.
    pub fn contains(&self, id: u64) -> bool {
        self.read(|table| table.contains_key(&id))
    }

    /// Whether a stream lives; the legacy stream always does.
    pub fn knows_stream(&self, id: u64) -> bool {
        Stream::SPECIAL.contains(&id) || self.contains(id)
    }

    /// The object.
    pub fn get(&self, id: u64) -> Option<Known> {
        self.read(|table| table.get(&id).cloned())
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
        match self.get(id) {
            Some(Known::Context { device, .. }) => Some(device),
            _ => None,
        }
    }
}
