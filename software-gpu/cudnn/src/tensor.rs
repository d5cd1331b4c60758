// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The places of a tensor's elements, and the memory that holds them.

use gpgpu_stand_in::{
    driver::{ILLEGAL_ADDRESS, OUT_OF_MEMORY},
    memory::{Memory, Outcome, Vector},
};
use serde::{Deserialize, Serialize};

use crate::types::{Data, Result, Status, require};

/// The most dimensions of a tensor (`CUDNN_DIM_MAX`).
pub const MOST_DIMENSIONS: usize = 8;

/// The most elements of a tensor.
const MOST_ELEMENTS: i64 = 1 << 28;

/// Numbers of several dimensions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tensor {
    /// The type of its elements.
    pub data: Data,
    /// The number of elements in each dimension.
    pub sizes: Vec<i64>,
    /// The distance of elements in each dimension, in elements.
    pub strides: Vec<i64>,
}

/// Strides of a packed tensor; the last dimension is contiguous.
pub fn packed(sizes: &[i64]) -> Vec<i64> {
    let mut strides = vec![1; sizes.len()];
    for at in (1..sizes.len()).rev() {
        strides[at - 1] = strides[at] * sizes[at];
    }
    strides
}

/// Strides of one whose channels, the second dimension, are next to each other.
pub fn channels_last(sizes: &[i64]) -> Vec<i64> {
    let order: Vec<usize> = (0..1).chain(2..sizes.len()).chain(1..2).collect();
    let reordered: Vec<i64> = order.iter().map(|at| sizes[*at]).collect();
    let mut strides = vec![0; sizes.len()];
    for (at, stride) in order.into_iter().zip(packed(&reordered)) {
        strides[at] = stride;
    }
    strides
}

impl Tensor {
    /// A tensor with these sizes and strides.
    ///
    /// # Errors
    /// `BadParam` for sizes and strides that are not positive, `NotSupported` for too many of them or too large ones.
    pub fn new(data: Data, sizes: Vec<i64>, strides: Vec<i64>) -> Result<Self> {
        require(sizes.len() == strides.len() && !sizes.is_empty())?;
        require(sizes.iter().chain(&strides).all(|of| *of > 0))?;
        let tensor = Self {
            data,
            sizes,
            strides,
        };
        let is_small = |of: Option<i64>| of.is_some_and(|of| of <= MOST_ELEMENTS);
        if tensor.sizes.len() > MOST_DIMENSIONS
            || !is_small(tensor.count())
            || !is_small(tensor.span())
        {
            return Err(Status::NotSupported);
        }
        Ok(tensor)
    }

    fn count(&self) -> Option<i64> {
        let mut sizes = self.sizes.iter();
        sizes.try_fold(1_i64, |all, size| all.checked_mul(*size))
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.sizes.iter().product::<i64>() as usize
    }

    // The distance from the first element to the end of the last one.
    fn span(&self) -> Option<i64> {
        let mut places = self.sizes.iter().zip(&self.strides);
        places.try_fold(1_i64, |all, (size, stride)| {
            all.checked_add((size - 1).checked_mul(*stride)?)
        })
    }

    /// The bytes from the first element to the end of the last one.
    pub fn bytes(&self) -> usize {
        self.span().unwrap_or(0) as usize * self.data.bytes()
    }

    /// A dimension's size; 1 after the last dimension.
    pub fn size(&self, dimension: usize) -> i64 {
        self.sizes.get(dimension).copied().unwrap_or(1)
    }

    // The place of each element, in order of the dimensions.
    fn places(&self) -> impl Iterator<Item = i64> + '_ {
        (0..self.elements() as i64).map(|mut at| {
            let mut place = 0;
            for (size, stride) in self.sizes.iter().zip(&self.strides).rev() {
                place += at % size * stride;
                at /= size;
            }
            place
        })
    }

    /// Its elements in order of the dimensions.
    ///
    /// # Errors
    /// The device may not reach one.
    pub fn read(&self, memory: &Memory, address: u64) -> Outcome<Vec<f64>> {
        let count = self.span().ok_or(OUT_OF_MEMORY)?;
        let all = Vector {
            address,
            count,
            step: 1,
        };
        let values: Vec<f64> = match self.data {
            Data::Single => memory
                .vector::<f32>(all)?
                .into_iter()
                .map(f64::from)
                .collect(),
            Data::Double => memory.vector(all)?,
        };
        Ok(self.places().map(|place| values[place as usize]).collect())
    }

    /// Writes its elements: `alpha` times the new ones and `beta` times the old ones, which do not count for a zero.
    ///
    /// # Errors
    /// The device may not reach one.
    pub fn write(
        &self,
        memory: &Memory,
        address: u64,
        values: Vec<f64>,
        [alpha, beta]: [f64; 2],
    ) -> Outcome {
        if values.len() != self.elements() {
            return Err(ILLEGAL_ADDRESS);
        }
        let mut new: Vec<f64> = values.into_iter().map(|value| alpha * value).collect();
        if beta != 0.0 {
            let old = self.read(memory, address)?;
            for (new, old) in new.iter_mut().zip(old) {
                *new += beta * old;
            }
        }
        if self.span() == self.count() && self.strides == packed(&self.sizes) {
            let all = Vector {
                address,
                count: new.len() as i64,
                step: 1,
            };
            return match self.data {
                Data::Single => {
                    let new: Vec<f32> = new.into_iter().map(|value| value as f32).collect();
                    memory.set_vector(all, &new)
                }
                Data::Double => memory.set_vector(all, &new),
            };
        }
        for (place, value) in self.places().zip(new) {
            let address = address.wrapping_add(place as u64 * self.data.bytes() as u64);
            match self.data {
                Data::Single => memory.set(address, value as f32)?,
                Data::Double => memory.set(address, value)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strides_follow_the_layout() {
        assert_eq!(packed(&[2, 3, 4, 5]), [60, 20, 5, 1]);
        assert_eq!(channels_last(&[2, 3, 4, 5]), [60, 1, 15, 3]);
        assert_eq!(channels_last(&[2, 3]), [3, 1]);
    }

    #[test]
    fn sizes_are_bounded() {
        let new = |sizes: &[i64], strides: &[i64]| {
            Tensor::new(Data::Single, sizes.to_vec(), strides.to_vec())
        };
        assert_eq!(new(&[2, 3], &[6, 2]).unwrap().bytes(), (6 + 4 + 1) * 4);
        assert_eq!(new(&[0], &[1]), Err(Status::BadParam));
        assert_eq!(new(&[2], &[0]), Err(Status::BadParam));
        assert_eq!(new(&[2], &[1, 1]), Err(Status::BadParam));
        assert_eq!(new(&[1; 9], &[1; 9]), Err(Status::NotSupported));
        // Far apart, and many at one place.
        assert_eq!(new(&[2], &[1 << 40]), Err(Status::NotSupported));
        assert_eq!(new(&[1 << 20; 4], &[1; 4]), Err(Status::NotSupported));
        assert_eq!(
            new(&[i64::MAX; 2], &[i64::MAX; 2]),
            Err(Status::NotSupported)
        );
    }
}
