// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Encoding: channels of an image become a JPEG.

use std::ffi::c_int;

use gpgpu_stand_in::memory::{Memory, Outcome, Vector};
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::types::{Image, Result, Status, Subsampling};

/// What the pixels are: `nvjpegInputFormat_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A channel for each component, whose size depends on the subsampling.
    Components(Subsampling),
    /// A channel for each color.
    Planes([usize; 3]),
    /// All colors in the first channel.
    Interleaved(ColorType),
}

impl Format {
    /// The one with a number; the subsampling is that of components.
    pub fn from_number(number: c_int, subsampling: Option<Subsampling>) -> Result<Self> {
        Ok(match number {
            1 => Self::Components(subsampling.ok_or(Status::InvalidParameter)?),
            3 => Self::Planes([0, 1, 2]),
            4 => Self::Planes([2, 1, 0]),
            5 => Self::Interleaved(ColorType::Rgb),
            6 => Self::Interleaved(ColorType::Bgr),
            8 => return Err(Status::NotSupported),
            _ => return Err(Status::InvalidParameter),
        })
    }
}

/// The settings of an encoder.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// 1 to 100.
    pub quality: u8,
    /// Whether there are several scans, each finer than the one before.
    pub is_progressive: bool,
    /// The sampling of chroma.
    pub subsampling: Subsampling,
}

/// An image that is to be encoded.
#[derive(Debug, Clone, Copy)]
pub struct Source {
    /// Its channels.
    pub image: Image,
    /// Their content.
    pub format: Format,
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
    /// The settings.
    pub settings: Settings,
}

impl Source {
    /// Columns and rows of a channel, in bytes.
    fn size(&self, channel: usize) -> (usize, usize) {
        let (width, height) = (usize::from(self.width), usize::from(self.height));
        match self.format {
            Format::Interleaved(_) => (3 * width, height),
            Format::Components(Subsampling::Chroma(columns, rows)) if channel > 0 => {
                (width.div_ceil(columns.into()), height.div_ceil(rows.into()))
            }
            _ => (width, height),
        }
    }

    /// The number of channels.
    fn channels(&self) -> usize {
        match self.format {
            Format::Interleaved(_) | Format::Components(Subsampling::Gray) => 1,
            _ => 3,
        }
    }

    /// Whether there is an address for each channel.
    pub fn check(&self) -> Result {
        let is_good = |at: usize| {
            let (columns, _) = self.size(at);
            self.image.channel[at] != 0 && self.image.pitch[at] >= columns as u64
        };
        match (0..self.channels()).all(is_good) && self.width > 0 && self.height > 0 {
            true => Ok(()),
            false => Err(Status::InvalidParameter),
        }
    }

    fn read(&self, memory: Memory, channel: usize) -> Outcome<Vec<u8>> {
        let (columns, rows) = self.size(channel);
        let (address, pitch) = (self.image.channel[channel], self.image.pitch[channel]);
        let mut bytes = Vec::new();
        for row in 0..rows as u64 {
            let from = Vector {
                address: address.wrapping_add(row.wrapping_mul(pitch)),
                count: columns as i64,
                step: 1,
            };
            bytes.extend(memory.vector::<u8>(from)?);
        }
        Ok(bytes)
    }

    /// Encodes it. If the encoder fails, there are no bytes.
    pub fn encode(&self, memory: Memory) -> Outcome<Vec<u8>> {
        let (pixels, of) = match self.format {
            Format::Interleaved(of) => (self.read(memory, 0)?, of),
            Format::Planes(order) => {
                let planes = order.map(|at| self.read(memory, at));
                let [red, green, blue] = planes;
                let (red, green, blue) = (red?, green?, blue?);
                let pixels = red.iter().zip(&green).zip(&blue);
                let pixels = pixels.flat_map(|((red, green), blue)| [*red, *green, *blue]);
                (pixels.collect(), ColorType::Rgb)
            }
            Format::Components(Subsampling::Gray) => (self.read(memory, 0)?, ColorType::Luma),
            Format::Components(Subsampling::Chroma(columns, rows)) => {
                let planes = [0, 1, 2].map(|at| self.read(memory, at));
                let [luma, one, other] = planes;
                let (luma, one, other) = (luma?, one?, other?);
                let (width, height) = (usize::from(self.width), usize::from(self.height));
                let (row, _) = self.size(1);
                let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
                let pixels = places.flat_map(|(x, y)| {
                    let at = y / usize::from(rows) * row + x / usize::from(columns);
                    [luma[y * width + x], one[at], other[at]]
                });
                (pixels.collect(), ColorType::Ycbcr)
            }
        };
        Ok(self.compress(pixels, of).unwrap_or_default())
    }

    fn compress(&self, mut pixels: Vec<u8>, mut of: ColorType) -> Option<Vec<u8>> {
        let settings = self.settings;
        if settings.subsampling == Subsampling::Gray && of != ColorType::Luma {
            let luma = |of: [u8; 3], weights: [u32; 3]| {
                let sum: u32 = of
                    .iter()
                    .zip(weights)
                    .map(|(of, by)| u32::from(*of) * by)
                    .sum();
                (sum / 1000) as u8
            };
            let weights = match of {
                ColorType::Ycbcr => [1000, 0, 0],
                ColorType::Bgr => [114, 587, 299],
                _ => [299, 587, 114],
            };
            let all = pixels.chunks_exact(3);
            pixels = all.map(|of| luma([of[0], of[1], of[2]], weights)).collect();
            of = ColorType::Luma;
        }
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, settings.quality);
        if let Subsampling::Chroma(columns, rows) = settings.subsampling {
            encoder.set_sampling_factor(SamplingFactor::from_factors(columns, rows)?);
        }
        encoder.set_progressive(settings.is_progressive);
        encoder.encode(&pixels, self.width, self.height, of).ok()?;
        Some(jpeg)
    }

    /// The most bytes of a JPEG with this number of columns and rows.
    pub fn most_bytes(width: usize, height: usize) -> usize {
        // A block of 64 samples has 64 codes of up to 26 bits, and there are three components.
        let blocks = |of: usize| of.next_multiple_of(32) / 8;
        4096 + blocks(width) * blocks(height) * 3 * 64 * 4
    }
}
