// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `libcusparse.so` for a virtio-gpgpu guest. It sends calls to the host, whose own cuSPARSE executes them.
//!
//! The table's functions ([`gpgpu_protocol::libraries`]) are exported from their rows ([`exports`]). A handle's
//! settings are kept here ([`state`]), and so are the fields of descriptors whose getters return no status
//! ([`description`]), and the widths of vectors' scalars ([`vector`]). The other functions need no GPU ([`words`]).

#![allow(non_snake_case)]

mod description;
mod exports;
#[cfg(test)]
mod page;
mod state;
mod unsupported;
mod vector;
mod words;

use gpgpu_library::Status;
use gpgpu_protocol::libraries::{Class, Library};

/// The library in the tables.
const LIBRARY: Library = Library::Cusparse;
/// The class of its handles.
const HANDLE: Class = Class::CusparseHandle;

/// Runs the body of an exported function, and turns a panic into a status.
fn enter(body: impl FnOnce() -> Result<(), Status>) -> Status {
    gpgpu_library::enter(LIBRARY, body)
}

/// This process's state of objects, by id.
mod known {
    use std::collections::HashMap;

    use gpgpu_locks::{Mutex, MutexGuard};

    /// The state of the objects of a class.
    #[derive(Debug)]
    pub struct Known<T>(Mutex<Option<HashMap<u64, T>>>);

    impl<T: Copy> Known<T> {
        /// Without any object.
        pub const fn new() -> Self {
            // A constant cannot contain an empty `HashMap`.
            Self(Mutex::new(None))
        }

        fn all(&self) -> MutexGuard<'_, Option<HashMap<u64, T>>> {
            self.0.lock()
        }

        /// The state of an object, if known.
        pub fn get(&self, id: u64) -> Option<T> {
            self.all().as_ref()?.get(&id).copied()
        }

        /// Records the state of an object.
        pub fn set(&self, id: u64, value: T) {
            self.all().get_or_insert_default().insert(id, value);
        }

        /// Changes the state of an object, if it is known.
        pub fn change(&self, id: u64, how: impl FnOnce(&mut T)) {
            if let Some(value) = self.all().as_mut().and_then(|all| all.get_mut(&id)) {
                how(value);
            }
        }

        /// Removes a destroyed object.
        pub fn forget(&self, id: u64) {
            if let Some(all) = self.all().as_mut() {
                all.remove(&id);
            }
        }
    }
}
