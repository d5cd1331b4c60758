// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Elements of images: their places, and their contents.

use super::super::FaultKind;
use super::super::env::Env;
use super::super::memory::Cell;
use super::super::program::Stop;
use super::super::soft::{F16, widen};
use super::{Class, Format, Image, Place, Sampler};

impl Image {
    /// The host's pointer to `length` bytes at `offset` in a row. The caller has checked that the row and the slice are
    /// in the image.
    pub(super) fn host(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        (offset, y, z): (usize, u32, u32),
        length: usize,
        write: bool,
    ) -> Result<*mut u8, Stop> {
        let at = offset + y as usize * self.row + z as usize * self.slice;
        match self.place {
            Place::Kept(start) => Ok(start.wrapping_add(at)),
            Place::Device(start) => {
                let address = start + at as u64;
                let found = env.cache.host(address, length as u64, write);
                found.ok_or(Stop {
                    kind: FaultKind::IllegalAddress {
                        address,
                        len: length,
                        write,
                    },
                    lane,
                })
            }
        }
    }

    /// The channels of an element, widened to 32 bits; those that it has not are 0, and the last 1.
    pub(super) fn element(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        format: Format,
        [x, y, z]: [u32; 3],
    ) -> Result<[u32; 4], Stop> {
        let size = format.size();
        let from = self.host(env, lane, (x as usize * size, y, z), size, false)?;
        let mut channels = [0; 4];
        for (k, to) in channels
            .iter_mut()
            .enumerate()
            .take(usize::from(format.channels))
        {
            let at = from.wrapping_add(k * usize::from(format.bytes));
            // SAFETY: the element is inside the image, whose memory `host` or the texture answers for, and aligned to
            // its size.
            *to = unsafe {
                match (format.class, format.bytes) {
                    (Class::Signed, 1) => i8::load(at) as i32 as u32,
                    (_, 1) => u8::load(at).into(),
                    (Class::Signed, 2) => i16::load(at) as i32 as u32,
                    (Class::Float, 2) => (widen(u16::load(at).into(), F16) as f32).to_bits(),
                    (_, 2) => u16::load(at).into(),
                    _ => u32::load(at),
                }
            };
        }
        if format.channels < 4 {
            channels[3] = match format.class {
                Class::Float => 1.0_f32.to_bits(),
                _ => 1,
            };
        }
        Ok(channels)
    }
}

/// sRGB to linear.
fn linear(channel: f32) -> f32 {
    if channel <= 0.04045 {
        channel / 12.92
    } else {
        ((channel + 0.055) / 1.055).powf(2.4)
    }
}

impl Sampler {
    /// Whether the read elements are integers.
    pub(super) fn gives_integers(&self, format: Format) -> bool {
        format.class != Class::Float && (self.integers || format.bytes == 4)
    }

    /// The channels of an element as numbers: integers from 0 to 1, or from -1 to 1.
    pub(super) fn numbers(&self, format: Format, channels: [u32; 4]) -> [f32; 4] {
        let most = match (format.class, format.bytes) {
            (Class::Float, _) => return channels.map(f32::from_bits),
            (Class::Unsigned, 1) => 255.0,
            (Class::Unsigned, 2) => 65535.0,
            (Class::Signed, 1) => 127.0,
            (Class::Signed, 2) => 32767.0,
            // Never weighted.
            _ => 1.0,
        };
        let mut numbers = channels.map(|channel| match format.class {
            Class::Signed => (channel as i32 as f32 / most).max(-1.0),
            _ => channel as f32 / most,
        });
        if format.channels < 4 {
            numbers[3] = 1.0;
        }
        if self.srgb && format.bytes == 1 {
            for number in numbers.iter_mut().take(3.min(format.channels.into())) {
                *number = linear(*number);
            }
        }
        numbers
    }
}
