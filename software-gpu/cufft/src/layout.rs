// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The places of the elements of a transform's data.

use crate::types::{Direction, Result, Status};

/// The maximum number of elements of a transform with all its batches: inputs and results are held in memory.
const MOST: i64 = 1 << 28;

/// The sizes of a transform, and how often it is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The size in each dimension, the innermost last.
    pub sizes: Vec<usize>,
    /// The number of transforms.
    pub batch: i64,
}

impl Shape {
    /// A shape of numbers that a caller gave.
    ///
    /// # Errors
    /// There are not one to three dimensions, one has no elements, or there are too many of them.
    pub fn new(sizes: &[i64], batch: i64) -> Result<Self> {
        if !(1..=3).contains(&sizes.len()) {
            return Err(Status::InvalidValue);
        }
        if batch < 1 || sizes.iter().any(|size| *size < 1) {
            return Err(Status::InvalidSize);
        }
        let all = sizes.iter().try_fold(batch, |all, size| {
            all.checked_mul(*size).filter(|all| *all <= MOST)
        });
        all.ok_or(Status::InvalidSize)?;
        Ok(Self {
            sizes: sizes.iter().map(|size| *size as usize).collect(),
            batch,
        })
    }

    /// The elements of one transform.
    pub fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The sizes of half of a spectrum: the innermost dimension has the frequencies that are not negative.
    pub fn half(&self) -> Vec<usize> {
        let mut half = self.sizes.clone();
        if let Some(last) = half.last_mut() {
            *last = *last / 2 + 1;
        }
        half
    }
}

/// A caller's description of the places of one side's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Embedding {
    /// The sizes of the array that the transform's data is a part of.
    pub sizes: Vec<i64>,
    /// From one element to the next of the innermost dimension.
    pub stride: i64,
    /// The distance of the first elements of two consecutive transforms.
    pub distance: i64,
}

/// The places of one side's elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The number of elements in each dimension.
    sizes: Vec<usize>,
    /// From one element to the next in each dimension.
    steps: Vec<i64>,
    distance: i64,
    batch: i64,
}

impl Layout {
    /// Elements at the places that an embedding defines.
    ///
    /// # Errors
    /// A number of the embedding is not positive, or its span is too large.
    pub fn embedded(sizes: Vec<usize>, of: &Embedding, batch: i64) -> Result<Self> {
        let mut steps = vec![of.stride; sizes.len()];
        for at in (0..sizes.len().saturating_sub(1)).rev() {
            let step = steps[at + 1].checked_mul(of.sizes[at + 1]);
            steps[at] = step.ok_or(Status::InvalidValue)?;
        }
        let layout = Self {
            sizes,
            steps,
            distance: of.distance,
            batch,
        };
        let is_positive = layout.steps.iter().all(|step| *step > 0);
        if !is_positive || (batch > 1 && of.distance < 1) || layout.span().is_none() {
            return Err(Status::InvalidValue);
        }
        Ok(layout)
    }

    /// Elements one after the other; with `padded`, each row of real numbers has the room of its half spectrum.
    pub fn basic(sizes: Vec<usize>, padded: bool, batch: i64) -> Result<Self> {
        let mut embed: Vec<i64> = sizes.iter().map(|size| *size as i64).collect();
        if let Some(last) = embed.last_mut().filter(|_| padded) {
            *last = (*last / 2 + 1) * 2;
        }
        let distance = embed.iter().product();
        let of = Embedding {
            sizes: embed,
            stride: 1,
            distance,
        };
        Self::embedded(sizes, &of, batch)
    }

    fn span(&self) -> Option<i64> {
        let ends = self.sizes.iter().zip(&self.steps);
        let last = ends.clone().try_fold(0_i64, |last, (size, step)| {
            last.checked_add(step.checked_mul(*size as i64 - 1)?)
        })?;
        let before = self.distance.checked_mul(self.batch - 1)?;
        before.checked_add(last)?.checked_add(1)
    }

    /// From the first to the last element of all transforms.
    pub fn length(&self) -> i64 {
        self.span().unwrap_or(i64::MAX)
    }

    /// The places of one transform's elements, in order.
    pub fn places(&self, of: i64) -> impl Iterator<Item = i64> {
        let count: usize = self.sizes.iter().product();
        (0..count).map(move |mut index| {
            let mut place = of * self.distance;
            for (size, step) in self.sizes.iter().zip(&self.steps).rev() {
                place += (index % size) as i64 * step;
                index /= size;
            }
            place
        })
    }
}

/// The sizes of the input and of the output.
pub fn sides(shape: &Shape, direction: Direction) -> (Vec<usize>, Vec<usize>) {
    let full = shape.sizes.clone();
    match direction {
        Direction::Complex => (full.clone(), full),
        Direction::FromReal => (full, shape.half()),
        Direction::ToReal => (shape.half(), full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_embedding() {
        let of = Embedding {
            sizes: vec![9, 4],
            stride: 2,
            distance: 50,
        };
        let layout = Layout::embedded(vec![2, 3], &of, 2).unwrap();
        let all: Vec<_> = layout.places(1).collect();
        assert_eq!(all, [50, 52, 54, 58, 60, 62]);
        assert_eq!(layout.length(), 63);
        let padded = Layout::basic(vec![2, 5], true, 1).unwrap();
        let all: Vec<_> = padded.places(0).collect();
        assert_eq!(all, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn an_invalid_shape_is_refused() {
        assert!(Shape::new(&[], 1).is_err());
        assert!(Shape::new(&[2; 1000], 1).is_err());
        assert!(Shape::new(&[0], 1).is_err() && Shape::new(&[-3], 1).is_err());
        assert!(Shape::new(&[1 << 40, 1 << 40], 1).is_err());
        assert!(Shape::new(&[8], 1 << 62).is_err() && Shape::new(&[8], 0).is_err());
        let far = Embedding {
            sizes: vec![i64::MAX; 2],
            stride: 3,
            distance: 1,
        };
        assert!(Layout::embedded(vec![2, 2], &far, 1).is_err());
    }
}
