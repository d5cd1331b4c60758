// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface references, with a program's settings of them.

use std::{collections::HashMap, sync::Arc};

use gpgpu_client::ffi::Result;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{TextureForm, TextureResource},
    cuda::*,
};

/// A common part of all handles of references, which other numbers of a program are unlikely to have.
const MARK: u64 = 0x7ef0_0000_0000;
/// The distance between handles.
const STEP: u64 = 16;

/// The sampling and the resource of a texture reference.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// Its resource. The format and the channels are valid whatever is bound.
    pub resource: TextureResource,
    /// The way in which it is read.
    pub form: TextureForm,
    /// The address that the program has bound, or the handle of the array; `None` if nothing is bound.
    pub bound: Option<u64>,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            resource: TextureResource {
                format: CU_AD_FORMAT_FLOAT,
                channels: 1,
                ..TextureResource::default()
            },
            form: TextureForm {
                address_x: CU_TR_ADDRESS_MODE_CLAMP,
                address_y: CU_TR_ADDRESS_MODE_CLAMP,
                address_z: CU_TR_ADDRESS_MODE_CLAMP,
                ..TextureForm::default()
            },
            bound: None,
        }
    }
}

/// The kind of a reference.
#[derive(Debug)]
pub enum State {
    /// Of a texture.
    Texture(Mutex<Reading>),
    /// Of a surface: the handle of its array, or 0.
    Surface(Mutex<u64>),
}

/// A reference.
#[derive(Debug)]
pub struct Reference {
    /// The id of its module; 0 for one that the program made itself.
    pub module: u64,
    /// Its name in the module.
    pub name: String,
    /// The program's settings.
    pub state: State,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of references made so far.
    made: u64,
    references: HashMap<u64, Arc<Reference>>,
}

impl Table {
    fn find(&self, module: u64, name: &str, is_surface: bool) -> Option<u64> {
        let is_it = |of: &Reference| {
            let is_kind = matches!(of.state, State::Surface(_)) == is_surface;
            of.module == module && is_kind && of.name == name
        };
        let mut all = self.references.iter();
        all.find(|(_, of)| is_it(of)).map(|(handle, _)| *handle)
    }
}

/// The references of the process.
#[derive(Debug, Default)]
pub struct References(Mutex<Table>);

impl References {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// The handle of a module's reference, if it was looked up before.
    pub fn find(&self, module: u64, name: &str, is_surface: bool) -> Option<u64> {
        self.table().find(module, name, is_surface)
    }

    /// Adds a reference; returns its handle. For a module's reference, the existing handle if another thread has just
    /// added it.
    pub fn insert(&self, reference: Reference) -> u64 {
        let mut table = self.table();
        let is_surface = matches!(reference.state, State::Surface(_));
        if reference.module != 0
            && let Some(known) = table.find(reference.module, &reference.name, is_surface)
        {
            return known;
        }
        table.made += 1;
        let handle = MARK + table.made * STEP;
        table.references.insert(handle, Arc::new(reference));
        handle
    }

    /// A reference; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn get(&self, handle: u64) -> Result<Arc<Reference>> {
        let found = self.table().references.get(&handle).cloned();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Removes a reference that the program has made; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn remove(&self, handle: u64) -> Result {
        if self.get(handle)?.module != 0 {
            return Err(CUDA_ERROR_INVALID_HANDLE);
        }
        self.table().references.remove(&handle);
        Ok(())
    }

    /// Removes the references of modules that have ended.
    pub fn retain_modules(&self, lives: impl Fn(u64) -> bool) {
        let mut table = self.table();
        table
            .references
            .retain(|_, of| of.module == 0 || lives(of.module));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texture(module: u64, name: &str) -> Reference {
        Reference {
            module,
            name: name.to_owned(),
            state: State::Texture(Mutex::default()),
        }
    }

    #[test]
    fn a_modules_references_end_with_it_and_a_programs_own_do_not() {
        let all = References::default();
        let (one, other) = (all.insert(texture(1, "t")), all.insert(texture(2, "t")));
        let own = all.insert(texture(0, ""));
        assert_eq!(all.find(1, "t", false), Some(one));
        assert_eq!(all.insert(texture(1, "t")), one, "of two threads");
        assert_ne!(all.insert(texture(0, "")), own);
        assert_eq!(all.find(1, "t", true), None);
        assert_eq!(all.find(1, "u", false), None);
        assert_eq!(
            all.remove(one),
            Err(CUDA_ERROR_INVALID_HANDLE),
            "a module's"
        );
        all.retain_modules(|module| module != 1);
        assert_eq!(all.get(one).err(), Some(CUDA_ERROR_INVALID_HANDLE));
        assert!(all.get(other).is_ok() && all.get(own).is_ok());
        assert_eq!(all.remove(own), Ok(()));
        assert_eq!(all.remove(own), Err(CUDA_ERROR_INVALID_HANDLE));
    }
}
