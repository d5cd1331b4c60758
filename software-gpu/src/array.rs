// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Arrays, and the objects by which kernels read and write them.

use std::alloc::{Layout as Memory, alloc_zeroed, dealloc};
use std::any::Any;
use std::sync::Arc;

use gpgpu_protocol::cuda::*;

use crate::config::{
    ARRAY_ALIGNMENT, MAX_CUBE_LAYERS, MAX_LAYERED, MAX_LAYERS, MAX_TEXTURE1D, MAX_TEXTURE2D,
    MAX_TEXTURE3D, MAX_TEXTURE3D_DEEP,
};
use crate::context::Context;
use crate::driver;
use crate::exec::{Class, Format, Image, Layout, Place, Surface, Texture};
use crate::ffi::Result;
use crate::handle::Table;
use crate::memory::Charge;

/// All arrays, levels of mipmapped ones too.
pub static ARRAYS: Table<Array> = Table::new(0xa7);
/// All mipmapped arrays.
pub static MIPMAPPED: Table<Mipmapped> = Table::new(0xa3);
/// All texture objects.
pub static TEXTURES: Table<TextureObject> = Table::new(0x7e);
/// All surface objects.
pub static SURFACES: Table<SurfaceObject> = Table::new(0x5f);

/// The bytes of an array, zero at first.
pub struct Storage {
    start: *mut u8,
    memory: Memory,
    _charge: Charge,
}

// SAFETY: the bytes are only reached through pointers, by code that answers for the access.
unsafe impl Send for Storage {}
// SAFETY: as for `Send`.
unsafe impl Sync for Storage {}

impl Storage {
    fn new(bytes: usize, context: &Context) -> Result<Arc<Self>> {
        let charged = (bytes as u64).next_multiple_of(ARRAY_ALIGNMENT);
        let charge = driver::get()?.memory.charge(charged, context.device)?;
        let memory = Memory::from_size_align(bytes.max(16), 16);
        let memory = memory.map_err(|_| CUDA_ERROR_OUT_OF_MEMORY)?;
        // SAFETY: the size is not zero.
        let start = unsafe { alloc_zeroed(memory) };
        if start.is_null() {
            return Err(CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(Arc::new(Self {
            start,
            memory,
            _charge: charge,
        }))
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, and no reference to it is left.
        unsafe { dealloc(self.start, self.memory) };
    }
}

/// CUDA's handle of an array.
pub struct Array {
    /// Its handle.
    pub handle: u64,
    /// The context that it is in, by id.
    pub context: u64,
    /// Its description.
    pub form: CUDA_ARRAY3D_DESCRIPTOR,
    /// Its elements.
    pub format: Format,
    /// Their place.
    pub image: Image,
    /// Bytes of all of them.
    pub bytes: usize,
    /// Whether it is a level of a mipmapped array.
    pub is_level: bool,
    /// `None` if it does not have its own memory.
    keep: Option<Arc<Storage>>,
}

/// CUDA's handle of a mipmapped array.
pub struct Mipmapped {
    /// Its handle.
    pub handle: u64,
    /// The context that it is in, by id.
    pub context: u64,
    /// Its description.
    pub form: CUDA_ARRAY3D_DESCRIPTOR,
    /// Its levels.
    pub levels: Vec<Arc<Array>>,
}

/// A texture object, and its source.
pub struct TextureObject {
    /// The context that it is in, by id.
    pub context: u64,
    /// Its resource.
    pub resource: CUDA_RESOURCE_DESC,
    /// How.
    pub texture: CUDA_TEXTURE_DESC,
    /// Its view.
    pub view: Option<CUDA_RESOURCE_VIEW_DESC>,
    /// The value for kernels.
    pub seen: Arc<Texture>,
    /// Its handle.
    pub handle: u64,
}

/// A surface object, and its source.
pub struct SurfaceObject {
    /// The context that it is in, by id.
    pub context: u64,
    /// Its resource.
    pub resource: CUDA_RESOURCE_DESC,
    /// The value for kernels.
    pub seen: Arc<Surface>,
    /// Its handle.
    pub handle: u64,
}

/// The elements of a format.
///
/// # Errors
/// `CUDA_ERROR_INVALID_VALUE` for an invalid format, `CUDA_ERROR_NOT_SUPPORTED` for blocks, planes and similar formats.
pub fn format_of(format: CUarray_format, channels: u32) -> Result<Format> {
    let (class, bytes) = match format {
        CU_AD_FORMAT_UNSIGNED_INT8 => (Class::Unsigned, 1),
        CU_AD_FORMAT_UNSIGNED_INT16 => (Class::Unsigned, 2),
        CU_AD_FORMAT_UNSIGNED_INT32 => (Class::Unsigned, 4),
        CU_AD_FORMAT_SIGNED_INT8 => (Class::Signed, 1),
        CU_AD_FORMAT_SIGNED_INT16 => (Class::Signed, 2),
        CU_AD_FORMAT_SIGNED_INT32 => (Class::Signed, 4),
        CU_AD_FORMAT_HALF => (Class::Float, 2),
        CU_AD_FORMAT_FLOAT => (Class::Float, 4),
        CU_AD_FORMAT_UNORM_INT_101010_2
        | CU_AD_FORMAT_BC1_UNORM..=CU_AD_FORMAT_P010
        | CU_AD_FORMAT_P016..=CU_AD_FORMAT_Y410
        | CU_AD_FORMAT_NV12..=CU_AD_FORMAT_YUV444_16bit_SemiPlanar
        | CU_AD_FORMAT_UNORM_INT8X1..=CU_AD_FORMAT_SNORM_INT16X4 => {
            return Err(CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => return Err(CUDA_ERROR_INVALID_VALUE),
    };
    if !matches!(channels, 1 | 2 | 4) {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(Format {
        class,
        bytes,
        channels: channels as u8,
    })
}

fn require(holds: bool) -> Result {
    match holds {
        true => Ok(()),
        false => Err(CUDA_ERROR_INVALID_VALUE),
    }
}

/// The kind of an array's slices.
pub fn layout_of(form: &CUDA_ARRAY3D_DESCRIPTOR) -> Layout {
    Layout {
        layered: form.Flags & CUDA_ARRAY3D_LAYERED != 0,
        cube: form.Flags & CUDA_ARRAY3D_CUBEMAP != 0,
    }
}

/// Checks that such an array can be made, and returns the format of its elements.
fn check(form: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<Format> {
    const KNOWN: u32 = CUDA_ARRAY3D_LAYERED
        | CUDA_ARRAY3D_SURFACE_LDST
        | CUDA_ARRAY3D_CUBEMAP
        | CUDA_ARRAY3D_TEXTURE_GATHER
        | CUDA_ARRAY3D_DEFERRED_MAPPING;
    let format = format_of(form.Format, form.NumChannels)?;
    if form.Flags & CUDA_ARRAY3D_SPARSE != 0 {
        return Err(CUDA_ERROR_NOT_SUPPORTED);
    }
    require(form.Flags & !KNOWN == 0 && form.Width > 0)?;
    let sizes = [form.Width, form.Height, form.Depth];
    let [width, height, depth] = sizes;
    let Layout { layered, cube } = layout_of(form);
    let within = |most: [usize; 3]| sizes.iter().zip(most).all(|(size, most)| *size <= most);
    if cube {
        require(width == height)?;
        require(depth == 6 || layered && depth > 0 && depth.is_multiple_of(6))?;
        require(within([MAX_LAYERED, MAX_LAYERED, MAX_CUBE_LAYERS]))?;
    } else if layered {
        require(depth > 0 && within([MAX_LAYERED, MAX_LAYERED, MAX_LAYERS]))?;
    } else if depth > 0 {
        require(height > 0 && (within(MAX_TEXTURE3D) || within(MAX_TEXTURE3D_DEEP)))?;
    } else if height > 0 {
        require(within([MAX_TEXTURE2D[0], MAX_TEXTURE2D[1], 0]))?;
    } else {
        let most = match form.Flags & CUDA_ARRAY3D_SURFACE_LDST {
            0 => MAX_TEXTURE1D,
            _ => MAX_LAYERED,
        };
        require(width <= most)?;
    }
    if form.Flags & CUDA_ARRAY3D_TEXTURE_GATHER != 0 {
        require(height > 0 && depth == 0 && width <= MAX_LAYERED && height <= MAX_LAYERED)?;
    }
    Ok(format)
}

/// The sizes of a level.
fn level_form(form: &CUDA_ARRAY3D_DESCRIPTOR, level: u32) -> CUDA_ARRAY3D_DESCRIPTOR {
    let smaller = |size: usize| match size {
        0 => 0,
        size => (size >> level).max(1),
    };
    let layout = layout_of(form);
    CUDA_ARRAY3D_DESCRIPTOR {
        Width: smaller(form.Width),
        Height: smaller(form.Height),
        Depth: match layout.layered || layout.cube {
            true => form.Depth,
            false => smaller(form.Depth),
        },
        ..*form
    }
}

/// Bytes of an array without gaps.
fn size_of(form: &CUDA_ARRAY3D_DESCRIPTOR, format: Format) -> Result<usize> {
    let row = form.Width.checked_mul(format.size());
    let slice = row.and_then(|row| row.checked_mul(form.Height.max(1)));
    let bytes = slice.and_then(|slice| slice.checked_mul(form.Depth.max(1)));
    bytes.ok_or(CUDA_ERROR_OUT_OF_MEMORY)
}

fn image_at(start: *mut u8, form: &CUDA_ARRAY3D_DESCRIPTOR, format: Format) -> Image {
    let row = form.Width * format.size();
    Image {
        place: Place::Kept(start),
        width: form.Width as u32,
        height: form.Height.max(1) as u32,
        depth: form.Depth.max(1) as u32,
        row,
        slice: row * form.Height.max(1),
    }
}

/// Memory for an array, unless it is mapped later.
fn storage(
    form: &CUDA_ARRAY3D_DESCRIPTOR,
    bytes: usize,
    context: &Context,
) -> Result<Option<Arc<Storage>>> {
    if form.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING != 0 {
        return Ok(None);
    }
    Storage::new(bytes, context).map(Some)
}

impl Array {
    /// Makes an array.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_NOT_SUPPORTED` or `CUDA_ERROR_OUT_OF_MEMORY`.
    pub fn create(context: &Context, form: &CUDA_ARRAY3D_DESCRIPTOR) -> Result<Arc<Self>> {
        let format = check(form)?;
        let bytes = size_of(form, format)?;
        let keep = storage(form, bytes, context)?;
        Ok(Self::add(context, form, format, (keep, 0, bytes), false))
    }

    fn add(
        context: &Context,
        form: &CUDA_ARRAY3D_DESCRIPTOR,
        format: Format,
        (keep, offset, bytes): (Option<Arc<Storage>>, usize, usize),
        is_level: bool,
    ) -> Arc<Self> {
        let start = keep.as_ref().map_or(std::ptr::null_mut(), |of| of.start);
        let image = image_at(start.wrapping_add(offset), form, format);
        ARRAYS.insert_with(|handle| Self {
            handle,
            context: context.id,
            form: *form,
            format,
            image,
            bytes,
            is_level,
            keep,
        })
    }

    /// The array with a handle.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub fn named(array: CUarray) -> Result<Arc<Self>> {
        ARRAYS.get(array as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// The owner of its bytes.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if it has none.
    pub fn keep(&self) -> Result<Arc<dyn Any + Send + Sync>> {
        match &self.keep {
            Some(keep) => Ok(keep.clone()),
            None => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }

    /// Whether its memory is mapped later.
    pub fn is_deferred(&self) -> bool {
        self.keep.is_none()
    }

    /// The address of its first byte.
    pub fn start(&self) -> *mut u8 {
        match self.image.place {
            Place::Kept(start) => start,
            Place::Device(_) => std::ptr::null_mut(),
        }
    }
}

impl Mipmapped {
    /// Makes a mipmapped array with at most this number of levels.
    ///
    /// # Errors
    /// As [`Array::create`].
    pub fn create(
        context: &Context,
        form: &CUDA_ARRAY3D_DESCRIPTOR,
        wanted: u32,
    ) -> Result<Arc<Self>> {
        let format = check(form)?;
        let layout = layout_of(form);
        let depth = match layout.layered || layout.cube {
            true => 1,
            false => form.Depth,
        };
        let most = form.Width.max(form.Height).max(depth).ilog2() + 1;
        let forms: Vec<_> = (0..wanted.clamp(1, most))
            .map(|level| level_form(form, level))
            .collect();
        let mut places = Vec::new();
        let mut end = 0_usize;
        for form in &forms {
            let bytes = size_of(form, format)?;
            places.push((end, bytes));
            end = (end + bytes).next_multiple_of(512);
        }
        let keep = storage(form, end, context)?;
        let levels = forms.iter().zip(places).map(|(form, (offset, bytes))| {
            Array::add(context, form, format, (keep.clone(), offset, bytes), true)
        });
        let levels: Vec<_> = levels.collect();
        Ok(MIPMAPPED.insert_with(|handle| Self {
            handle,
            context: context.id,
            form: *form,
            levels,
        }))
    }

    /// The mipmapped array with a handle.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_HANDLE`.
    pub fn named(array: CUmipmappedArray) -> Result<Arc<Self>> {
        MIPMAPPED.get(array as u64).ok_or(CUDA_ERROR_INVALID_HANDLE)
    }

    /// Bytes of all levels.
    pub fn bytes(&self) -> usize {
        self.levels.iter().map(|level| level.bytes).sum()
    }
}

/// Removes everything that belongs to a destroyed context.
pub fn forget_context(context: u64) {
    TEXTURES.remove_where(|object| object.context == context);
    SURFACES.remove_where(|object| object.context == context);
    MIPMAPPED.remove_where(|array| array.context == context);
    ARRAYS.remove_where(|array| array.context == context);
}
