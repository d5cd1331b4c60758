// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The client's objects of one kind, by ids that the client has chosen.

use std::{collections::HashMap, sync::Arc};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Object, object_kind},
    cuda::*,
};

/// Ids from here on are never assigned.
const RESERVED: u64 = 1 << 56;

/// An object that ends with the first of its contexts.
pub trait Owned {
    /// Its kind.
    type Kind: Object;
    /// The maximum number of a client.
    const MOST: usize;

    /// Whether it belongs to a context.
    fn is_in(&self, context: u64) -> bool;
}

/// See the module's documentation. An object also exists as long as a command uses it.
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

    /// The number of objects.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Checks that an id can be assigned to another object.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_VALUE` for an id that is invalid or in use; `CUDA_ERROR_OUT_OF_MEMORY` above the limit.
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

    /// Adds an object if all its contexts exist, which `are_live` checks.
    ///
    /// # Errors
    ///
    /// As [`Self::check`], because another thread may have taken the id in the meantime;
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub fn add(
        &self,
        id: u64,
        object: T,
        are_live: impl FnOnce(&T) -> bool,
    ) -> Result<(), CUresult> {
        let object = Arc::new(object);
        let mut all = self.lock();
        Self::check_in(&all, id)?;
        // The end of a context ends only the objects that were added before.
        if !are_live(&object) {
            // The object is dropped without the lock.
            drop(all);
            return Err(CUDA_ERROR_CONTEXT_IS_DESTROYED);
        }
        all.insert(id, object);
        Ok(())
    }

    /// The object with this id.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn find(&self, id: u64) -> Result<Arc<T>, CUresult> {
        let found = self.lock().get(&id).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Ends an object.
    ///
    /// # Errors
    ///
    /// As [`Self::find`].
    pub fn end(&self, id: u64) -> Result<(), CUresult> {
        let gone = self.lock().remove(&id);
        gone.map(drop).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Ends the objects in a context that is about to end, before this returns.
    pub fn end_in(&self, context: u64) {
        let gone: Vec<_> = {
            let mut all = self.lock();
            all.extract_if(|_, of| of.is_in(context)).collect()
        };
        drop(gone);
    }
}
