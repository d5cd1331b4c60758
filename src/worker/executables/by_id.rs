// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The client's objects of one kind, by the ids that it chose.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Object, object_kind},
    cuda::*,
};

/// No object that is made has an id from here on.
const RESERVED: u64 = 1 << 56;

/// An object that ends with the first of its contexts.
pub trait Owned {
    /// Its kind.
    type Kind: Object;
    /// The most of a client.
    const MOST: usize;

    /// Whether it is in a context.
    fn is_in(&self, context: u64) -> bool;
}

/// See the module's page. An object also stays as long as a command uses it.
pub struct ById<T>(Mutex<HashMap<u64, Arc<T>>>);

impl<T> Default for ById<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Owned> ById<T> {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<T>>> {
        self.0.lock()
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Checks that an id can become that of another object.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id that is none or is in use; `CUDA_ERROR_OUT_OF_MEMORY` past the limit.
    pub fn check(&self, id: u64) -> Result<(), CUresult> {
        Self::check_in(&self.lock(), id)
    }

    fn check_in(all: &HashMap<u64, Arc<T>>, id: u64) -> Result<(), CUresult> {
        if object_kind(id) != T::Kind::KIND || id >= RESERVED || all.contains_key(&id) {
            Err(CUDA_ERROR_INVALID_VALUE)
        } else if all.len() >= T::MOST {
            Err(CUDA_ERROR_OUT_OF_MEMORY)
        } else {
            Ok(())
        }
    }

    /// Adds an object if all its contexts live, of which `are_live` tells.
    ///
    /// # Errors
    ///
    /// As [`Self::check`]: another thread may have taken the id meanwhile. `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub fn add(
        &self,
        id: u64,
        object: T,
        are_live: impl FnOnce(&T) -> bool,
    ) -> Result<(), CUresult> {
        let object = Arc::new(object);
        let mut all = self.lock();
        Self::check_in(&all, id)?;
        // A context that is about to end has ended the objects that it has found so far.
        if !are_live(&object) {
            // The object ends after the lock.
            drop(all);
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        all.insert(id, object);
        Ok(())
    }

    /// The one with this id.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn find(&self, id: u64) -> Result<Arc<T>, CUresult> {
        let found = self.lock().get(&id).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Ends one.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub fn end(&self, id: u64) -> Result<(), CUresult> {
        let gone = self.lock().remove(&id);
        gone.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// A context is about to end: the objects in it end when this returns.
    pub fn end_in(&self, context: u64) {
        let gone: Vec<_> = {
            let mut all = self.lock();
            all.extract_if(|_, of| of.is_in(context)).collect()
        };
        drop(gone);
    }
}
