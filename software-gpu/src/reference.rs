// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texture and surface references. Each is a variable of a module, whose bytes are the handle of the object that is
//! bound to it.

use gpgpu_locks::Mutex;
use gpgpu_protocol::cuda::*;

use crate::api::texture;
use crate::array::{SURFACES, TEXTURES};
use crate::context;
use crate::driver;
use crate::ffi::Result;
use crate::handle::Table;

/// All texture references.
pub static TEXTURE_REFERENCES: Table<TextureReference> = Table::new(0x7f);
/// All surface references.
pub static SURFACE_REFERENCES: Table<SurfaceReference> = Table::new(0x5e);

/// The bound object of a reference.
#[derive(Debug, Clone, Copy)]
pub enum Bound {
    /// Nothing.
    None,
    /// An array.
    Array(u64),
    /// A mipmapped array.
    Mipmapped(u64),
    /// This number of bytes from an address on.
    Linear(u64, usize),
    /// Rows at an address.
    Rows(u64, CUDA_ARRAY_DESCRIPTOR, usize),
}

/// The sampling of a reference.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// The format of an element.
    pub format: CUarray_format,
    /// The channels of an element.
    pub channels: u32,
    /// As for a texture object.
    pub form: CUDA_TEXTURE_DESC,
    /// Its resource.
    pub bound: Bound,
}

impl Default for Reading {
    fn default() -> Self {
        Self {
            format: CU_AD_FORMAT_FLOAT,
            channels: 1,
            form: CUDA_TEXTURE_DESC {
                addressMode: [CU_TR_ADDRESS_MODE_CLAMP; 3],
                ..CUDA_TEXTURE_DESC::default()
            },
            bound: Bound::None,
        }
    }
}

impl Reading {
    fn resource(&self) -> Option<CUDA_RESOURCE_DESC> {
        let of_array = |kind, array| CUDA_RESOURCE_DESC {
            resType: kind,
            res: CUDA_RESOURCE_MEMORY {
                devPtr: array,
                ..CUDA_RESOURCE_MEMORY::default()
            },
            ..CUDA_RESOURCE_DESC::default()
        };
        let of_memory = |kind, start, width, height, pitch| CUDA_RESOURCE_DESC {
            resType: kind,
            res: CUDA_RESOURCE_MEMORY {
                devPtr: start,
                format: self.format,
                numChannels: self.channels,
                width,
                height,
                pitchInBytes: pitch,
            },
            ..CUDA_RESOURCE_DESC::default()
        };
        Some(match self.bound {
            Bound::None => return None,
            Bound::Array(array) => of_array(CU_RESOURCE_TYPE_ARRAY, array),
            Bound::Mipmapped(array) => of_array(CU_RESOURCE_TYPE_MIPMAPPED_ARRAY, array),
            Bound::Linear(start, bytes) => of_memory(CU_RESOURCE_TYPE_LINEAR, start, bytes, 0, 0),
            Bound::Rows(start, form, pitch) => {
                let (width, height) = (form.Width, form.Height);
                of_memory(CU_RESOURCE_TYPE_PITCH2D, start, width, height, pitch)
            }
        })
    }
}

/// The key of a bound object for kernels: the context, and the address of the variable; a reference of no module has
/// none.
#[derive(Debug, Clone, Copy)]
pub struct Slot {
    /// The context, by id.
    pub context: u64,
    /// The variable's address.
    pub address: Option<u64>,
}

impl Slot {
    /// Has kernels that start from now on find an object.
    fn set(&self, object: u64) {
        let Some(address) = self.address else { return };
        // Launched kernels use the object that was bound then.
        context::wait_for_context(self.context);
        let Ok(driver) = driver::get() else { return };
        if let Some(pointer) = driver.memory.host_pointer(address, 8, true) {
            // SAFETY: the variable's module lives, and no kernel of its context runs.
            unsafe { pointer.cast::<u64>().write_unaligned(object) };
        }
    }
}

/// A texture reference.
pub struct TextureReference {
    /// The place at which kernels find it.
    pub slot: Slot,
    /// Its handle.
    pub handle: u64,
    /// Its properties, and the object that represents it for kernels, or 0.
    state: Mutex<(Reading, u64)>,
}

/// A surface reference.
pub struct SurfaceReference {
    /// The place at which kernels find it.
    pub slot: Slot,
    /// Its handle.
    pub handle: u64,
    /// The array, and the object that it is for kernels; or 0.
    state: Mutex<(u64, u64)>,
}

impl TextureReference {
    /// Makes one; its handle.
    pub fn create(slot: Slot) -> u64 {
        let made = TEXTURE_REFERENCES.insert_with(|handle| Self {
            slot,
            handle,
            state: Mutex::default(),
        });
        made.handle
    }

    /// The properties of its reads.
    pub fn reading(&self) -> Reading {
        self.state.lock().0
    }

    /// Changes how it reads.
    pub fn change(&self, change: impl FnOnce(&mut Reading)) -> Result {
        let mut state = self.state.lock();
        change(&mut state.0);
        // The bound object may have been destroyed, and another one may be bound next.
        let _ = self.make(&mut state);
        Ok(())
    }

    /// Binds something else.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`: the earlier binding stays.
    pub fn bind(&self, change: impl FnOnce(&mut Reading)) -> Result {
        let mut state = self.state.lock();
        let before = state.0;
        change(&mut state.0);
        let made = self.make(&mut state);
        if made.is_err() {
            state.0 = before;
            let _ = self.make(&mut state);
        }
        made
    }

    fn make(&self, state: &mut (Reading, u64)) -> Result {
        let (reading, object) = state;
        let made = match reading.resource() {
            None => Ok(0),
            Some(resource) => texture::create(self.slot.context, resource, reading.form, None),
        };
        let new = *made.as_ref().unwrap_or(&0);
        self.slot.set(new);
        TEXTURES.remove(std::mem::replace(object, new));
        made.map(drop)
    }
}

impl SurfaceReference {
    /// Makes one; its handle.
    pub fn create(slot: Slot) -> u64 {
        let made = SURFACE_REFERENCES.insert_with(|handle| Self {
            slot,
            handle,
            state: Mutex::default(),
        });
        made.handle
    }

    /// The array that is bound, or 0.
    pub fn array(&self) -> u64 {
        self.state.lock().0
    }

    /// Binds an array.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub fn bind(&self, array: u64) -> Result {
        let resource = CUDA_RESOURCE_DESC {
            resType: CU_RESOURCE_TYPE_ARRAY,
            res: CUDA_RESOURCE_MEMORY {
                devPtr: array,
                ..CUDA_RESOURCE_MEMORY::default()
            },
            ..CUDA_RESOURCE_DESC::default()
        };
        let new = texture::create_surface(self.slot.context, resource)?;
        let mut state = self.state.lock();
        self.slot.set(new);
        SURFACES.remove(state.1);
        *state = (array, new);
        Ok(())
    }
}

/// Ends a reference, with the object that it was for kernels.
pub fn remove(handle: u64) {
    if let Some(texture) = TEXTURE_REFERENCES.remove(handle) {
        TEXTURES.remove(texture.state.lock().1);
    }
    if let Some(surface) = SURFACE_REFERENCES.remove(handle) {
        SURFACES.remove(surface.state.lock().1);
    }
}

/// Drops the references of a destroyed context.
pub fn forget_context(context: u64) {
    TEXTURE_REFERENCES.remove_where(|of| of.slot.context == context);
    SURFACE_REFERENCES.remove_where(|of| of.slot.context == context);
}
