// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The header of a JPEG: everything before its first scan.

use crate::types::{COMPONENTS, Result, Status, Subsampling};

/// The description of a JPEG.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The marker of its frame: 0xc0 for baseline, 0xc2 for progressive.
    pub encoding: u8,
    /// The bits of a sample.
    pub precision: u8,
    /// Columns.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// The sampling factors of each component, horizontal and vertical.
    pub components: Vec<(u8, u8)>,
    /// The orientation in its Exif segment; 0 if there is none.
    pub orientation: u16,
}

/// The marker of a scan.
const SCAN: u8 = 0xda;

/// A number of two bytes.
fn number(bytes: &[u8], at: usize) -> Result<usize> {
    let bytes = bytes.get(at..at + 2).ok_or(Status::BadJpeg)?;
    Ok(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
}

/// The segments of a JPEG up to its first scan: the marker of each, and its bytes.
fn segments(jpeg: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8])>> {
    let mut at = match jpeg.starts_with(&[0xff, 0xd8]) {
        true => Some(2),
        false => Some(jpeg.len()),
    };
    std::iter::from_fn(move || {
        let segment = next_segment(jpeg, at?);
        // A scan's segment is followed by its samples.
        at = match segment {
            Ok((marker, _, end)) if marker != SCAN => Some(end),
            _ => None,
        };
        Some(segment.map(|(marker, bytes, _)| (marker, bytes)))
    })
}

/// The segment at an offset, and its end.
fn next_segment(jpeg: &[u8], mut at: usize) -> Result<(u8, &[u8], usize)> {
    let byte = |at: usize| jpeg.get(at).copied().ok_or(Status::BadJpeg);
    if byte(at)? != 0xff {
        return Err(Status::BadJpeg);
    }
    // Bytes that fill up.
    while byte(at + 1)? == 0xff {
        at += 1;
    }
    let marker = byte(at + 1)?;
    if matches!(marker, 0xd0..=0xd9) {
        return Err(Status::BadJpeg);
    }
    let end = at + 2 + number(jpeg, at + 2)?;
    let bytes = jpeg.get(at + 4..end).ok_or(Status::BadJpeg)?;
    Ok((marker, bytes, end))
}

impl Header {
    /// Reads one.
    pub fn read(jpeg: &[u8]) -> Result<Self> {
        let mut orientation = 0;
        for segment in segments(jpeg) {
            match segment? {
                (marker @ 0xc0..=0xc3, frame) => {
                    return Self::of_frame(marker, frame, orientation);
                }
                (0xe1, exif) => orientation = oriented(exif).unwrap_or(orientation),
                // Frames that this library does not know.
                (0xc5..=0xc7 | 0xc9..=0xcb | 0xcd..=0xcf, _) => {
                    return Err(Status::JpegNotSupported);
                }
                _ => {}
            }
        }
        Err(Status::BadJpeg)
    }

    /// Whether the first scan has all components.
    pub fn is_scanned_at_once(&self, jpeg: &[u8]) -> Result<bool> {
        for segment in segments(jpeg) {
            if let (SCAN, scan) = segment? {
                let count = scan.first().ok_or(Status::BadJpeg)?;
                return Ok(usize::from(*count) == self.components.len());
            }
        }
        Err(Status::BadJpeg)
    }

    fn of_frame(encoding: u8, frame: &[u8], orientation: u16) -> Result<Self> {
        let (height, width) = (number(frame, 1)?, number(frame, 3)?);
        let count = usize::from(*frame.get(5).ok_or(Status::BadJpeg)?);
        let components = frame[6..].chunks_exact(3).take(count);
        let components: Vec<_> = components.map(|of| (of[1] >> 4, of[1] & 15)).collect();
        let is_good = |of: &(u8, u8)| (1..=4).contains(&of.0) && (1..=4).contains(&of.1);
        if components.len() != count || !components.iter().all(is_good) || width * height == 0 {
            return Err(Status::BadJpeg);
        }
        if !(1..=COMPONENTS).contains(&count) {
            return Err(Status::JpegNotSupported);
        }
        Ok(Self {
            encoding,
            precision: frame[0],
            width,
            height,
            components,
            orientation,
        })
    }

    /// How chroma is sampled; `None` for what has no name.
    pub fn subsampling(&self) -> Option<Subsampling> {
        match self.components[..] {
            [_] => Some(Subsampling::Gray),
            [luma, one, other] if one == other => {
                let is_whole = luma.0 % one.0 == 0 && luma.1 % one.1 == 0;
                let of = Subsampling::Chroma(luma.0 / one.0, luma.1 / one.1);
                (is_whole && of.number() >= 0).then_some(of)
            }
            _ => None,
        }
    }

    /// Columns and rows of a component.
    pub fn size(&self, component: usize) -> Option<(usize, usize)> {
        let most = |which: fn(&(u8, u8)) -> u8| self.components.iter().map(which).max();
        let (columns, rows) = (most(|of| of.0)?, most(|of| of.1)?);
        let of = self.components.get(component)?;
        let part = |all: usize, of: u8, most: u8| (all * usize::from(of)).div_ceil(most.into());
        Some((
            part(self.width, of.0, columns),
            part(self.height, of.1, rows),
        ))
    }
}

/// The orientation in an Exif segment.
fn oriented(segment: &[u8]) -> Option<u16> {
    let tiff = segment.strip_prefix(b"Exif\0\0")?;
    let is_little = tiff.starts_with(b"II");
    let read = |at: usize, bytes: usize| {
        let bytes = tiff.get(at..at.checked_add(bytes)?)?;
        let add = |number, byte: &u8| number << 8 | usize::from(*byte);
        Some(match is_little {
            true => bytes.iter().rev().fold(0, add),
            false => bytes.iter().fold(0, add),
        })
    };
    let directory = read(4, 4)?;
    let count = read(directory, 2)?;
    let mut entries = (0..count).map(|at| directory + 2 + 12 * at);
    let entry = entries.find(|at| read(*at, 2) == Some(0x0112))?;
    u16::try_from(read(entry + 8, 2)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of 17 by 9 pixels with these sampling factors.
    fn jpeg(factors: &[u8]) -> Vec<u8> {
        let mut jpeg = vec![0xff, 0xd8, 0xff, 0xc0, 0, 8 + 3 * factors.len() as u8];
        jpeg.extend([8, 0, 9, 0, 17, factors.len() as u8]);
        for (id, factors) in (1..).zip(factors) {
            jpeg.extend([id, *factors, 0]);
        }
        jpeg
    }

    #[test]
    fn a_header_has_the_sizes_of_its_components() {
        let header = Header::read(&jpeg(&[0x22, 0x11, 0x11])).unwrap();
        assert_eq!((header.width, header.height), (17, 9));
        assert_eq!(header.subsampling().map(Subsampling::number), Some(2));
        assert_eq!(header.size(0), Some((17, 9)));
        assert_eq!(header.size(1), Some((9, 5)));
        assert_eq!(header.size(3), None);
        let gray = Header::read(&jpeg(&[0x11])).unwrap();
        assert_eq!(gray.subsampling(), Some(Subsampling::Gray));
        let odd = Header::read(&jpeg(&[0x32, 0x21, 0x11])).unwrap();
        assert_eq!(odd.subsampling(), None);
    }

    #[test]
    fn what_is_no_header_is_an_error() {
        let good = jpeg(&[0x11]);
        for length in 0..good.len() {
            assert!(Header::read(&good[..length]).is_err(), "{length}");
        }
        assert!(Header::read(&jpeg(&[0x01])).is_err());
        assert_eq!(
            Header::read(&jpeg(&[0x11; 5])),
            Err(Status::JpegNotSupported)
        );
    }

    #[test]
    fn exif_says_the_orientation() {
        let segment = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0";
        assert_eq!(oriented(segment), Some(6));
        for length in 0..segment.len() - 2 {
            assert_eq!(oriented(&segment[..length]), None, "{length}");
        }
    }
}
