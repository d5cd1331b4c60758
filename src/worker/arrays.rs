// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A client's arrays, texture objects and surface objects.
//!
//! An array is an object with an id. Kernels get a texture or surface object in their parameters, so the guest gets the
//! driver's own value. The worker records each value with its context, and passes only recorded ones to the driver,
//! because the driver counts its values separately in each context.

use std::collections::{HashMap, HashSet};

use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::{
    api::{Array, ArrayForm, MipmappedArray},
    cuda::*,
};

use super::{
    charges::Owner,
    device_memory::DeviceMemory,
    objects::{Begun, Entry},
    session::Session,
};
use crate::account::Charge;
use crate::cuda::driver;

/// The unit of the driver's memory for arrays: on an H100 (driver 580) each array begins at a multiple of 64 KiB, in
/// pieces of 2 MiB that it shares with others. So an array takes at most its size, rounded up to this unit.
const PIECE: u64 = 2 << 20;

/// The maximum number of a client's texture and surface objects.
const MOST: usize = 1 << 20;

/// `CUDA_ARRAY3D_VIDEO_ENCODE_DECODE`.
const VIDEO: u32 = 0x100;

/// The permitted flags of an array.
const FLAGS: u32 = CUDA_ARRAY3D_LAYERED
    | CUDA_ARRAY3D_SURFACE_LDST
    | CUDA_ARRAY3D_CUBEMAP
    | CUDA_ARRAY3D_TEXTURE_GATHER
    | CUDA_ARRAY3D_DEPTH_TEXTURE
    | CUDA_ARRAY3D_COLOR_ATTACHMENT
    | VIDEO;

/// The two kinds of objects that kernels get as values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A texture object.
    Texture,
    /// A surface object.
    Surface,
}

/// The texture and surface objects, each with the id of its context.
#[derive(Debug, Default)]
pub struct Textures(Mutex<HashSet<(u64, Kind, u64)>>);

impl Textures {
    fn lock(&self) -> MutexGuard<'_, HashSet<(u64, Kind, u64)>> {
        self.0.lock()
    }

    /// Checks that there is room for one more.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` if not.
    pub fn check_room(&self) -> Result<(), CUresult> {
        if self.lock().len() >= MOST {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(())
    }

    /// Records an object that the driver has made.
    pub fn insert(&self, context: u64, kind: Kind, object: u64) {
        self.lock().insert((context, kind, object));
    }

    /// Removes an object, if it exists. The caller that gets it destroys it.
    pub fn take(&self, context: u64, kind: Kind, object: u64) -> bool {
        self.lock().remove(&(context, kind, object))
    }

    /// Forgets the objects of a context that has ended.
    pub fn forget_context(&self, context: u64) {
        self.lock().retain(|(of, ..)| *of != context);
    }
}

/// The state of arrays, apart from their handles.
#[derive(Debug, Default)]
struct Table {
    /// The devices of arrays, by the driver's numbers.
    devices: HashMap<u64, CUdevice>,
    /// The requested levels and planes, by their owner.
    parts: HashMap<u64, Vec<u64>>,
}

/// The arrays of a client.
#[derive(Debug, Default)]
pub struct Arrays(Mutex<Table>);

impl Arrays {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.0.lock()
    }

    /// Records an array's device.
    pub fn note(&self, array: u64, device: CUdevice) {
        self.lock().devices.insert(array, device);
    }

    /// Records a part of an array or of a mipmapped array, before it becomes an object.
    pub fn note_part(&self, part: u64, parent: u64) {
        let mut table = self.lock();
        if let Some(&device) = table.devices.get(&parent) {
            table.devices.insert(part, device);
        }
        table.parts.entry(parent).or_default().push(part);
    }

    /// Whether an array has parts.
    pub fn has_parts(&self, array: u64) -> bool {
        self.lock().parts.contains_key(&array)
    }

    /// The device of an array.
    pub fn device(&self, array: u64) -> Option<CUdevice> {
        self.lock().devices.get(&array).copied()
    }

    /// Forgets an array that has ended, with its parts.
    pub fn forget(&self, array: u64) {
        let mut table = self.lock();
        table.devices.remove(&array);
        for part in table.parts.remove(&array).unwrap_or_default() {
            table.devices.remove(&part);
        }
    }

    /// Forgets arrays that are no longer objects.
    pub fn forget_ended(&self, session: &Session) {
        let objects = &session.objects;
        let is_there = |id: u64| {
            objects.entry::<Array>(id).is_some() || objects.entry::<MipmappedArray>(id).is_some()
        };
        let mut table = self.lock();
        table.devices.retain(|id, _| is_there(*id));
        table.parts.retain(|id, _| is_there(*id));
    }
}

/// An array's description in the driver's form.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_SUPPORTED` for an array without memory of its own, `CUDA_ERROR_INVALID_VALUE` for unknown flags.
pub fn native(form: &ArrayForm) -> Result<CUDA_ARRAY3D_DESCRIPTOR, CUresult> {
    if form.flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING) != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    if form.flags & !FLAGS != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(CUDA_ARRAY3D_DESCRIPTOR {
        Width: form.width,
        Height: form.height,
        Depth: form.depth,
        Format: form.format,
        NumChannels: form.channels,
        Flags: form.flags,
    })
}

/// An array's description in the protocol's form.
pub fn form(native: &CUDA_ARRAY3D_DESCRIPTOR) -> ArrayForm {
    ArrayForm {
        width: native.Width,
        height: native.Height,
        depth: native.Depth,
        format: native.Format,
        channels: native.NumChannels,
        flags: native.Flags,
    }
}

/// An upper bound of an array's memory, for a device that does not report it: rows of whole blocks, which hold at least
/// eight rows, and slices in multiples of a block's depth. `levels` is the number of levels of a mipmapped array, or
/// `None`.
fn estimate(native: &CUDA_ARRAY3D_DESCRIPTOR, levels: Option<u32>) -> u64 {
    // The size of the largest element.
    let row = (native.Width as u64).saturating_mul(16);
    let row = row.checked_next_multiple_of(512).unwrap_or(u64::MAX);
    let up = |size: usize, most: u64| {
        let size = (size as u64).max(1);
        let block = size
            .checked_next_power_of_two()
            .unwrap_or(most)
            .clamp(8, most);
        size.checked_next_multiple_of(block).unwrap_or(u64::MAX)
    };
    let slice = row.saturating_mul(up(native.Height, 256));
    let all = slice.saturating_mul(up(native.Depth, 32));
    match levels {
        // Each level is half of the previous one, or nearly as large if it is a single block.
        Some(levels) => all
            .saturating_mul(2)
            .saturating_add(u64::from(levels.min(32)) << 20),
        None => all,
    }
}

/// The device memory of an array, as the driver reports it before the array is made.
fn needs(
    native: &CUDA_ARRAY3D_DESCRIPTOR,
    levels: Option<u32>,
    device: CUdevice,
) -> Result<u64, CUresult> {
    let mut can_say = 0;
    let attribute = CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED;
    // SAFETY: the pointer is to a value that lives across the call.
    let asked = unsafe { driver::cuDeviceGetAttribute(&mut can_say, attribute, device) };
    if asked.is_err() || can_say == 0 {
        return Ok(estimate(native, levels));
    }
    let deferred = CUDA_ARRAY3D_DESCRIPTOR {
        Flags: native.Flags | CUDA_ARRAY3D_DEFERRED_MAPPING,
        ..*native
    };
    let mut requirements = CUDA_ARRAY_MEMORY_REQUIREMENTS::default();
    // SAFETY: the pointers are to values that live across the calls; the array is this function's alone, has no memory,
    // and ends here.
    let asked = unsafe {
        match levels {
            None => {
                let mut array = std::ptr::null_mut();
                driver::cuArray3DCreate_v2(&mut array, &deferred)?;
                let asked = driver::cuArrayGetMemoryRequirements(&mut requirements, array, device);
                driver::cuArrayDestroy(array)?;
                asked
            }
            Some(levels) => {
                let mut array = std::ptr::null_mut();
                driver::cuMipmappedArrayCreate(&mut array, &deferred, levels)?;
                let asked =
                    driver::cuMipmappedArrayGetMemoryRequirements(&mut requirements, array, device);
                driver::cuMipmappedArrayDestroy(array)?;
                asked
            }
        }
    };
    Ok(match asked {
        Ok(()) => requirements.size as u64,
        Err(_) => estimate(native, levels),
    })
}

impl DeviceMemory {
    /// Charges an array before it is made; `levels` is the number of levels of a mipmapped one.
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_OUT_OF_MEMORY` above the VM's limit, or the driver's error for such an array.
    pub fn reserve_array(
        &self,
        native: &CUDA_ARRAY3D_DESCRIPTOR,
        levels: Option<u32>,
        device: CUdevice,
    ) -> Result<Option<Charge>, CUresult> {
        let bytes = needs(native, levels, device)?;
        let pieces = bytes.max(1).div_ceil(PIECE);
        self.reserve(device, pieces.saturating_mul(PIECE))
    }
}

/// Records an array that was made.
pub fn keep(
    session: &Session,
    begun: Begun<'_>,
    raw: u64,
    device: CUdevice,
    charge: Option<Charge>,
) {
    let (id, context) = (begun.id(), session.current());
    session.charges.keep(Owner::Array(id), context, charge);
    session.arrays.note(id, device);
    begun.finish(Entry::new(raw, context));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_is_at_least_the_use_on_an_h100() {
        let of = |width, height, depth, flags| CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: height,
            Depth: depth,
            Flags: flags,
            ..CUDA_ARRAY3D_DESCRIPTOR::default()
        };
        for (form, took) in [
            (of(1000, 1000, 0, 0), 16_384_000),
            (of(4097, 4097, 0, 0), 17_629_184),
            (of(100, 100, 100, 0), 5_242_880),
            (of(200, 200, 200, 0), 34_668_544),
            (of(2, 2, 16384, 0), 8_388_608),
            (of(33, 33, 2048, CUDA_ARRAY3D_LAYERED), 25_165_824),
            (of(4, 65536, 0, 0), 4_194_304),
        ] {
            assert!(estimate(&form, None) >= took, "{form:?}");
        }
        let huge = of(usize::MAX, usize::MAX, usize::MAX, 0);
        assert_eq!(estimate(&huge, Some(u32::MAX)), u64::MAX);
    }

    #[test]
    fn an_array_without_memory_and_unknown_flags_are_refused() {
        let of = |flags| ArrayForm {
            width: 1,
            format: CU_AD_FORMAT_FLOAT,
            channels: 1,
            flags,
            ..ArrayForm::default()
        };
        assert!(native(&of(FLAGS)).is_ok());
        for (flags, code) in [
            (CUDA_ARRAY3D_SPARSE, CUDA_ERROR_NOT_SUPPORTED),
            (CUDA_ARRAY3D_DEFERRED_MAPPING, CUDA_ERROR_NOT_SUPPORTED),
            (1 << 31, CUDA_ERROR_INVALID_VALUE),
        ] {
            assert_eq!(native(&of(flags)).err(), Some(code));
        }
    }

    #[test]
    fn pitfall_63_an_object_ends_once_and_in_its_context_alone() {
        let textures = Textures::default();
        textures.insert(1, Kind::Texture, 7);
        textures.insert(2, Kind::Texture, 7);
        assert!(!textures.take(1, Kind::Surface, 7));
        assert!(textures.take(1, Kind::Texture, 7));
        assert!(!textures.take(1, Kind::Texture, 7));
        textures.forget_context(2);
        assert!(!textures.take(2, Kind::Texture, 7));
    }
}
