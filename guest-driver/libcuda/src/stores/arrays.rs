// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Arrays, textures and surfaces: their descriptions.

use std::collections::HashMap;

use gpgpu_client::ffi::Result;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{api::ArrayForm, cuda::*};

/// An array.
#[derive(Debug, Clone, Copy)]
pub struct ArrayData {
    /// Its description.
    pub form: ArrayForm,
    /// The id of its context.
    pub context: u64,
    /// The id of the object of which it is a level or a plane, or 0.
    pub parent: u64,
}

/// A mipmapped array.
#[derive(Debug, Clone, Copy)]
pub struct MipmappedData {
    /// Its description.
    pub form: ArrayForm,
    /// The id of its context.
    pub context: u64,
    /// The number of its levels.
    pub levels: u32,
}

/// The source of a texture object.
#[derive(Debug, Clone, Copy)]
pub struct TextureData {
    /// Its resource.
    pub resource: CUDA_RESOURCE_DESC,
    /// The way in which it is read.
    pub texture: CUDA_TEXTURE_DESC,
    /// Its view; all zero without one.
    pub view: CUDA_RESOURCE_VIEW_DESC,
}

/// The state.
#[derive(Debug, Default)]
pub struct Table {
    /// Arrays, by id.
    pub arrays: HashMap<u64, ArrayData>,
    /// Mipmapped arrays, by id.
    pub mipmapped: HashMap<u64, MipmappedData>,
    /// Levels and planes, by their owner and their number.
    pub parts: HashMap<(u64, u32), u64>,
    /// Texture objects, by context and value: each context numbers them separately.
    pub textures: HashMap<(u64, u64), TextureData>,
    /// Surface objects, in the same way.
    pub surfaces: HashMap<(u64, u64), CUDA_RESOURCE_DESC>,
}

/// The arrays of the process, and the texture and surface objects.
#[derive(Debug, Default)]
pub struct Arrays(Mutex<Table>);

impl Arrays {
    /// The state, under a lock.
    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// An array; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn array(&self, id: u64) -> Result<ArrayData> {
        let found = self.table().arrays.get(&id).copied();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// A mipmapped array; `CUDA_ERROR_INVALID_HANDLE` if there is none.
    pub fn mipmapped(&self, id: u64) -> Result<MipmappedData> {
        let found = self.table().mipmapped.get(&id).copied();
        found.ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Handles the end of an array or mipmapped array, with its parts.
    pub fn remove(&self, id: u64) {
        let mut table = self.table();
        table
            .arrays
            .retain(|of, array| *of != id && array.parent != id);
        table.mipmapped.remove(&id);
        table.parts.retain(|(of, _), _| *of != id);
    }

    /// Handles the end of a context, with everything in it.
    pub fn remove_context(&self, context: u64) {
        let mut all = self.table();
        let table = &mut *all;
        table.arrays.retain(|_, array| array.context != context);
        table.mipmapped.retain(|_, array| array.context != context);
        let arrays = &table.arrays;
        table.parts.retain(|_, part| arrays.contains_key(part));
        table.textures.retain(|(of, _), _| *of != context);
        table.surfaces.retain(|(of, _), _| *of != context);
    }
}

/// The size of a channel of a format in bytes, for formats whose elements are channels side by side.
fn channel(format: CUarray_format) -> Option<usize> {
    Some(match format {
        CU_AD_FORMAT_UNSIGNED_INT8 | CU_AD_FORMAT_SIGNED_INT8 => 1,
        CU_AD_FORMAT_UNSIGNED_INT16 | CU_AD_FORMAT_SIGNED_INT16 | CU_AD_FORMAT_HALF => 2,
        CU_AD_FORMAT_UNSIGNED_INT32 | CU_AD_FORMAT_SIGNED_INT32 | CU_AD_FORMAT_FLOAT => 4,
        _ => return None,
    })
}

impl ArrayData {
    /// The size of an element in bytes; `None` for an array of blocks or planes.
    pub fn element(&self) -> Option<usize> {
        Some(channel(self.form.format)? * self.form.channels as usize)
    }

    /// Whether a box lies in the array, by its first byte, row and slice, and its sizes. The host checks arrays of
    /// blocks and planes.
    pub fn holds(&self, at: [usize; 3], size: [usize; 3]) -> bool {
        let form = &self.form;
        let Some(element) = self.element() else {
            return true;
        };
        let row = form.width * element;
        let sizes = [row, form.height.max(1), form.depth.max(1)];
        let ends = at.iter().zip(size).map(|(at, size)| at.checked_add(size));
        ends.zip(sizes)
            .all(|(end, size)| end.is_some_and(|end| end <= size))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(context: u64, parent: u64) -> ArrayData {
        let form = ArrayForm {
            width: 8,
            height: 4,
            format: CU_AD_FORMAT_FLOAT,
            channels: 2,
            ..ArrayForm::default()
        };
        ArrayData {
            form,
            context,
            parent,
        }
    }

    #[test]
    fn pitfall_09_a_box_that_leaves_its_array_is_recognised() {
        let array = array(0, 0);
        assert_eq!(
            array.element().map(|bytes| bytes * array.form.width),
            Some(64)
        );
        assert!(array.holds([0; 3], [64, 4, 1]));
        assert!(array.holds([60, 3, 0], [4, 1, 1]));
        for (at, size) in [
            ([4, 0, 0], [64, 1, 1]),
            ([0, 4, 0], [4, 1, 1]),
            ([0, 0, 1], [4, 1, 1]),
            ([0; 3], [64, 4, 2]),
            ([usize::MAX, 0, 0], [4, 1, 1]),
        ] {
            assert!(!array.holds(at, size), "{at:?} {size:?}");
        }
    }

    #[test]
    fn parts_end_with_their_array_and_all_with_the_context() {
        let arrays = Arrays::default();
        {
            let mut table = arrays.table();
            let mipmapped = MipmappedData {
                form: ArrayForm::default(),
                context: 7,
                levels: 2,
            };
            table.mipmapped.insert(1, mipmapped);
            table.arrays.insert(2, array(7, 1));
            table.parts.insert((1, 0), 2);
            table.arrays.insert(3, array(7, 0));
            table.arrays.insert(4, array(8, 0));
            table.surfaces.insert((7, 1), CUDA_RESOURCE_DESC::default());
            table.surfaces.insert((8, 1), CUDA_RESOURCE_DESC::default());
        }
        arrays.remove(1);
        assert!(arrays.mipmapped(1).is_err() && arrays.array(2).is_err());
        assert!(arrays.table().parts.is_empty() && arrays.array(3).is_ok());
        arrays.remove_context(7);
        assert!(arrays.array(3).is_err() && arrays.array(4).is_ok());
        assert_eq!(arrays.table().surfaces.len(), 1);
    }
}
