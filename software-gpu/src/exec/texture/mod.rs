// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Textures and surfaces for kernels: their resources, and the rules of access.
//!
//! The rules are those of the CUDA C++ Programming Guide, "Texture Fetching", and of the PTX ISA.

mod access;
pub(super) mod run;
mod sample;

use std::any::Any;
use std::sync::Arc;

/// The type of a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Unsigned integers.
    Unsigned,
    /// Signed integers.
    Signed,
    /// Floating-point numbers: halves where a channel has two bytes.
    Float,
}

/// The type of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Format {
    /// The type of a channel.
    pub class: Class,
    /// Bytes of a channel: 1, 2 or 4.
    pub bytes: u8,
    /// Channels: 1, 2 or 4.
    pub channels: u8,
}

impl Format {
    /// Bytes of an element.
    pub fn size(self) -> usize {
        usize::from(self.bytes) * usize::from(self.channels)
    }
}

/// The place of elements.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    /// In memory that the texture's `keep` holds: the first byte.
    Kept(*mut u8),
    /// At an address of the device.
    Device(u64),
}

// SAFETY: the pointer is an address here; code that follows it answers for the access.
unsafe impl Send for Place {}
// SAFETY: as for `Send`.
unsafe impl Sync for Place {}

/// A level of a texture or a surface: rows of elements. Every size is at least 1.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    /// The place of the first element.
    pub place: Place,
    /// Elements of a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Slices, layers or faces.
    pub depth: u32,
    /// Bytes from row to row.
    pub row: usize,
    /// Bytes from slice to slice.
    pub slice: usize,
}

/// The treatment of a coordinate outside an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outside {
    /// The image repeats.
    Wrap,
    /// The nearest element.
    Clamp,
    /// The image repeats, each second time mirrored.
    Mirror,
    /// The border's colour.
    Border,
}

/// The properties of a texture's reads.
#[derive(Debug, Clone, Copy)]
pub struct Sampler {
    /// Outside an image, in x, y and z.
    pub outside: [Outside; 3],
    /// Whether elements around a coordinate are weighted.
    pub linear: bool,
    /// Whether coordinates are from 0 to 1.
    pub normalized: bool,
    /// Whether integers are read as integers.
    pub integers: bool,
    /// Whether the first three channels are sRGB.
    pub srgb: bool,
    /// Whether faces of a cube meet without a seam.
    pub seamless: bool,
    /// Whether two levels are weighted.
    pub linear_levels: bool,
    /// The offset of a level.
    pub bias: f32,
    /// The least and the greatest level.
    pub levels: [f32; 2],
    /// The border's colour.
    pub border: [f32; 4],
}

/// The dimensions of an array besides x, y and z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layout {
    /// The slices are layers.
    pub layered: bool,
    /// The slices, or each six layers, are faces of a cube.
    pub cube: bool,
}

/// A texture object.
pub struct Texture {
    /// Its levels, from the first readable one.
    pub levels: Vec<Image>,
    /// Its elements.
    pub format: Format,
    /// The kind of its slices.
    pub layout: Layout,
    /// The properties of its reads.
    pub sampler: Sampler,
    /// Linear memory, which is read by integer coordinates only; outside it is zero.
    pub is_linear: bool,
    /// Holds the elements.
    pub keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// A surface object.
pub struct Surface {
    /// Its resource.
    pub image: Image,
    /// Its elements.
    pub format: Format,
    /// The kind of its slices.
    pub layout: Layout,
    /// Holds the elements.
    pub keep: Option<Arc<dyn Any + Send + Sync>>,
}

/// The kind of an instruction's coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Geometry {
    D1,
    D2,
    D3,
    A1,
    A2,
    Cube,
    ACube,
}

impl Geometry {
    pub(super) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "1d" => Self::D1,
            "2d" => Self::D2,
            "3d" => Self::D3,
            "a1d" => Self::A1,
            "a2d" => Self::A2,
            "cube" => Self::Cube,
            "acube" => Self::ACube,
            _ => return None,
        })
    }

    pub(super) fn from_number(number: i64) -> Self {
        [
            Self::D1,
            Self::D2,
            Self::D3,
            Self::A1,
            Self::A2,
            Self::Cube,
            Self::ACube,
        ][(number & 7).min(6) as usize]
    }

    pub(super) fn number(self) -> i64 {
        self as i64
    }

    /// Whether the first coordinate is a layer.
    pub(super) fn has_layer(self) -> bool {
        matches!(self, Self::A1 | Self::A2 | Self::ACube)
    }

    /// The number of coordinates besides the layer.
    pub(super) fn coordinates(self) -> usize {
        match self {
            Self::D1 | Self::A1 => 1,
            Self::D2 | Self::A2 => 2,
            Self::D3 | Self::Cube | Self::ACube => 3,
        }
    }
}

/// The ways by which an instruction of `tex` finds its level; the numbers go into `imm`.
pub(super) const BASE: i64 = 0;
pub(super) const LEVEL: i64 = 1;
pub(super) const GRADIENT: i64 = 2;
pub(super) const GATHER: i64 = 3;
/// Bits of `imm`: the geometry, then these.
pub(super) const WHOLE_BIT: u32 = 3;
pub(super) const MODE_SHIFT: u32 = 4;
pub(super) const COMPONENT_SHIFT: u32 = 8;
