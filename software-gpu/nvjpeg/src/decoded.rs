// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Decoding: a JPEG becomes rows of bytes for each channel of an image.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::Arc;

use gpgpu_stand_in::memory::{Memory, Outcome, Vector};
use zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::JpegDecoder;

use crate::header::Header;
use crate::types::{COMPONENTS, Image, Result, Status, Subsampling};

/// The most pixels of an image: a small file may declare a huge image.
const MOST_PIXELS: usize = 1 << 26;

/// The marker of a frame whose scans are each finer than the one before.
const PROGRESSIVE: u8 = 0xc2;

/// What becomes of the pixels: `nvjpegOutputFormat_t`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A channel for each component, with its own size.
    Components,
    /// Only luma.
    Luma,
    /// A channel for each color.
    Planes([usize; 3]),
    /// All colors in the first channel.
    Interleaved([usize; 3]),
}

const RGB: [usize; 3] = [0, 1, 2];
const BGR: [usize; 3] = [2, 1, 0];

impl Format {
    /// The one with a number.
    pub fn from_number(number: c_int) -> Result<Self> {
        Ok(match number {
            0 | 1 => Self::Components,
            2 => Self::Luma,
            3 => Self::Planes(RGB),
            4 => Self::Planes(BGR),
            5 => Self::Interleaved(RGB),
            6 => Self::Interleaved(BGR),
            7..=10 => return Err(Status::NotSupported),
            _ => return Err(Status::InvalidParameter),
        })
    }
}

/// A part of an image: columns and rows. `None` is all of it.
pub type Region = Option<(Range<usize>, Range<usize>)>;

/// A channel's pixels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    /// Bytes of a row.
    pub row: usize,
    /// All rows.
    pub bytes: Vec<u8>,
}

impl Channel {
    fn cut(self, columns: Range<usize>, rows: Range<usize>) -> Self {
        let of_row = |row: &[u8]| row[columns.clone()].to_vec();
        let all = self.bytes.chunks(self.row);
        Self {
            row: columns.len(),
            bytes: all
                .skip(rows.start)
                .take(rows.len())
                .flat_map(of_row)
                .collect(),
        }
    }
}

/// Decodes a JPEG.
pub fn decode(jpeg: &[u8], format: Format, region: &Region) -> Result<Vec<Channel>> {
    let header = Header::read(jpeg)?;
    if header.width * header.height > MOST_PIXELS {
        return Err(Status::AllocatorFailure);
    }
    let is_gray = match header.components.len() {
        1 => true,
        3 => false,
        _ => return Err(Status::JpegNotSupported),
    };
    // zune-jpeg 0.5 decodes such images wrongly if they are not progressive.
    if header.encoding != PROGRESSIVE && !header.is_scanned_at_once(jpeg)? {
        return Err(Status::JpegNotSupported);
    }
    let space = match format {
        _ if is_gray => ColorSpace::Luma,
        Format::Luma => ColorSpace::Luma,
        Format::Components => ColorSpace::YCbCr,
        Format::Planes(_) | Format::Interleaved(_) => ColorSpace::RGB,
    };
    let options = DecoderOptions::default()
        .set_max_width(usize::from(u16::MAX))
        .set_max_height(usize::from(u16::MAX))
        .jpeg_set_out_colorspace(space);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(jpeg), options);
    let pixels = decoder.decode().map_err(|_| Status::BadJpeg)?;
    let count = match space {
        ColorSpace::Luma => 1,
        _ => 3,
    };
    if pixels.len() != header.width * header.height * count {
        return Err(Status::BadJpeg);
    }
    let plane = |which: usize| Channel {
        row: header.width,
        bytes: match count {
            1 => pixels.clone(),
            _ => pixels.iter().skip(which).step_by(count).copied().collect(),
        },
    };
    let cut = |channel: Channel, wide: usize, shrunk: (usize, usize)| match region {
        None => channel,
        Some((columns, rows)) => {
            let shrink = |of: &Range<usize>, by: usize| of.start / by..of.end.div_ceil(by);
            let columns = shrink(columns, shrunk.0);
            let columns = columns.start * wide..columns.end * wide;
            channel.cut(columns, shrink(rows, shrunk.1))
        }
    };
    if let Some((columns, rows)) = region
        && (columns.is_empty()
            || rows.is_empty()
            || columns.end > header.width
            || rows.end > header.height)
    {
        return Err(Status::InvalidParameter);
    }
    Ok(match format {
        Format::Luma => vec![cut(plane(0), 1, (1, 1))],
        Format::Components => (0..count)
            .map(|at| {
                let shrunk = match header.subsampling() {
                    Some(Subsampling::Chroma(columns, rows)) if at > 0 => {
                        (columns.into(), rows.into())
                    }
                    _ => (1, 1),
                };
                cut(shrink(plane(at), shrunk), 1, shrunk)
            })
            .collect(),
        Format::Planes(order) => order
            .map(|of| cut(plane(of), 1, (1, 1)))
            .into_iter()
            .collect(),
        Format::Interleaved(order) => {
            let planes = order.map(plane);
            let pixels = (0..planes[0].bytes.len()).flat_map(|at| {
                let of = |plane: &Channel| plane.bytes[at];
                planes.each_ref().map(of)
            });
            let all = Channel {
                row: 3 * header.width,
                bytes: pixels.collect(),
            };
            vec![cut(all, 3, (1, 1))]
        }
    })
}

/// The means of blocks with this number of columns and rows.
fn shrink(channel: Channel, (columns, rows): (usize, usize)) -> Channel {
    if (columns, rows) == (1, 1) {
        return channel;
    }
    let lines: Vec<&[u8]> = channel.bytes.chunks(channel.row).collect();
    let mut bytes = Vec::new();
    for lines in lines.chunks(rows) {
        for at in (0..channel.row).step_by(columns) {
            let end = (at + columns).min(channel.row);
            let block = lines.iter().flat_map(|line| &line[at..end]);
            let sum: usize = block.map(|of| usize::from(*of)).sum();
            let count = lines.len() * (end - at);
            bytes.push(((sum + count / 2) / count) as u8);
        }
    }
    Channel {
        row: channel.row.div_ceil(columns),
        bytes,
    }
}

/// Channels on their way to device memory.
#[derive(Debug, Clone)]
pub struct Written {
    channels: Arc<Vec<Channel>>,
    image: Image,
}

impl Written {
    /// The channels of an image, if it has a place for each.
    pub fn new(channels: Arc<Vec<Channel>>, image: Image) -> Result<Self> {
        for (at, channel) in channels.iter().enumerate() {
            let is_good = image.channel[at] != 0 && image.pitch[at] >= channel.row as u64;
            if !is_good || at >= COMPONENTS {
                return Err(Status::InvalidParameter);
            }
        }
        Ok(Self { channels, image })
    }

    /// Writes them.
    pub fn write(&self, memory: Memory) -> Outcome {
        for (at, channel) in self.channels.iter().enumerate() {
            let (address, pitch) = (self.image.channel[at], self.image.pitch[at]);
            for (row, bytes) in (0_u64..).zip(channel.bytes.chunks(channel.row)) {
                let to = Vector {
                    address: address.wrapping_add(row.wrapping_mul(pitch)),
                    count: bytes.len() as i64,
                    step: 1,
                };
                memory.set_vector(to, bytes)?;
            }
        }
        Ok(())
    }
}
