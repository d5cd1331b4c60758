// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The images of a batch: `images` of `nvjpegDecodeBatched` and `nvjpegDecodeBatchedEx`.

use super::MOST_IMAGES;
use crate::codec::{Malformed, Reader, Writer};

/// The words of an `nvjpegImage_t`: an address and a distance between rows for each component.
pub const IMAGE_WORDS: usize = 2 * super::COMPONENTS;

/// A JPEG of a batch, and its destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// The bytes of the JPEG. It follows the one before it.
    pub length: u64,
    /// The destination: device addresses, then distances between rows in bytes.
    pub destination: [u64; IMAGE_WORDS],
    /// The id of its parameters; 0 where the call has none.
    pub params: u64,
}

/// A batch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// The images.
    pub images: Vec<Image>,
    /// The bytes of all JPEGs, one after the other; empty if they were sent ahead.
    pub data: Vec<u8>,
}

impl Batch {
    /// The sum of the lengths of all JPEGs; `None` if it overflows.
    pub fn total(&self) -> Option<u64> {
        let mut lengths = self.images.iter().map(|image| image.length);
        lengths.try_fold(0, u64::checked_add)
    }

    /// Encodes the batch.
    pub fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        writer.word(self.images.len() as u64);
        for image in &self.images {
            writer.word(image.length);
            for word in image.destination {
                writer.word(word);
            }
            writer.word(image.params);
        }
        writer.bytes_with(self.data.len(), |to| to.copy_from_slice(&self.data));
        writer.into_bytes()
    }

    /// Decodes a batch.
    ///
    /// # Errors
    ///
    /// The bytes are invalid, there are too many images, or the sum of their lengths overflows.
    pub fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let count = usize::try_from(reader.word()?).map_err(|_| Malformed::Range)?;
        if count > MOST_IMAGES {
            return Err(Malformed::Range);
        }
        let mut images = Vec::with_capacity(count);
        for _ in 0..count {
            let length = reader.word()?;
            let mut destination = [0; IMAGE_WORDS];
            for word in &mut destination {
                *word = reader.word()?;
            }
            images.push(Image {
                length,
                destination,
                params: reader.word()?,
            });
        }
        let data = reader.bytes()?.to_vec();
        reader.end()?;
        let batch = Self { images, data };
        batch.total().ok_or(Malformed::Range)?;
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch() -> Batch {
        let image = |length| Image {
            length,
            destination: [1, 2, 3, 0, 8, 8, 8, 0],
            params: 7,
        };
        Batch {
            images: vec![image(3), image(2)],
            data: vec![5; 5],
        }
    }

    #[test]
    fn a_batch_is_read_as_it_was_written() {
        for of in [batch(), Batch::default()] {
            assert_eq!(Batch::get(&of.bytes()), Ok(of));
        }
        assert_eq!(batch().total(), Some(5));
    }

    #[test]
    fn bytes_that_are_no_batch_are_refused() {
        let good = batch().bytes();
        assert!(Batch::get(&good[..good.len() - 8]).is_err());
        assert!(Batch::get(&[good.clone(), vec![0; 8]].concat()).is_err());
        for count in [3_u64, 1 << 12 | 1, u64::MAX] {
            let mut bad = good.clone();
            bad[..8].copy_from_slice(&count.to_le_bytes());
            assert!(Batch::get(&bad).is_err(), "{count}");
        }
        let mut endless = batch();
        endless.images[0].length = u64::MAX;
        assert!(Batch::get(&endless.bytes()).is_err());
    }
}
