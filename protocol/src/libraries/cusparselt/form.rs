// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The encoding of cuSPARSELt's calls: a call carries the whole content of the descriptors that it uses.
//!
//! The guest keeps these types in a program's structures, and the worker decodes requests into them.

use super::attributes::{ALPHA_VECTOR, BETA_VECTOR, Class, MATRIX, PRODUCT, SELECTION};
use crate::codec::{Malformed, Reader, Writer};

/// The attributes of a class that were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Set<const N: usize> {
    /// Bit N is set if attribute N was set.
    mask: u64,
    values: [u64; N],
}

impl<const N: usize> Default for Set<N> {
    fn default() -> Self {
        Self {
            mask: 0,
            values: [0; N],
        }
    }
}

impl<const N: usize> Set<N> {
    /// Sets an attribute.
    pub fn set(&mut self, number: usize, value: u64) {
        if let Some(to) = self.values.get_mut(number) {
            *to = value;
            self.mask |= 1 << number;
        }
    }

    /// The value of an attribute, if it was set.
    pub fn get(&self, number: usize) -> Option<u64> {
        let is_set = self.mask >> number.min(63) & 1 == 1;
        self.values.get(number).copied().filter(|_| is_set)
    }

    /// The attributes that were set, in ascending order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        (0..N).filter_map(|number| Some((number, self.get(number)?)))
    }

    fn put(&self, writer: &mut Writer) {
        writer.word(self.iter().count() as u64);
        for (number, value) in self.iter() {
            writer.word(number as u64);
            writer.word(value);
        }
    }

    fn read(class: Class, reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut all = Self::default();
        let mut next = 0;
        for _ in 0..reader.word()? {
            let (number, value) = (reader.word()?, reader.word()?);
            let number = usize::try_from(number).map_err(|_| Malformed::Range)?;
            let known = class.attributes().get(number).ok_or(Malformed::Range)?;
            // The numbers ascend, so a count that is too large fails soon.
            if number < next || !known.takes(value) {
                return Err(Malformed::Range);
            }
            all.set(number, value);
            next = number + 1;
        }
        Ok(all)
    }
}

/// The sparsity of a dense matrix.
pub const DENSE: u32 = u32::MAX;

/// A matrix (`cusparseLtMatDescriptor_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Matrix {
    /// Its rows.
    pub rows: i64,
    /// Its columns.
    pub columns: i64,
    /// The distance between columns, or rows.
    pub leading: i64,
    /// Its alignment in bytes.
    pub alignment: u32,
    /// The `cudaDataType` of its elements.
    pub data: i32,
    /// Its `cusparseOrder_t`.
    pub order: i32,
    /// Its `cusparseLtSparsity_t`, or [`DENSE`].
    pub sparsity: u32,
    /// The attributes that were set.
    pub set: Set<MATRIX>,
}

/// A product (`cusparseLtMatmulDescriptor_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Product {
    /// A, B, C and D.
    pub matrices: [Matrix; 4],
    /// The `cusparseOperation_t` of A and of B.
    pub operations: [i32; 2],
    /// Its `cusparseComputeType`.
    pub compute: i32,
    /// No more than room.
    pub room: i32,
    /// The attributes that were set.
    pub set: Set<PRODUCT>,
}

/// An algorithm for a product (`cusparseLtMatmulAlgSelection_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Selection {
    /// The product.
    pub product: Product,
    /// The attributes that were set.
    pub set: Set<SELECTION>,
}

/// Alpha or beta.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar {
    /// The bits of a number at a host address.
    Here(u32),
    /// A device address, or NULL.
    At(u64),
}

/// A value that has an encoding.
pub trait Form: Sized {
    /// Encodes the value.
    fn put(&self, writer: &mut Writer);

    /// Decodes a value.
    ///
    /// # Errors
    ///
    /// The bytes are invalid.
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed>;

    /// Its bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        self.put(&mut writer);
        writer.into_bytes()
    }

    /// Decodes a value from all of these bytes.
    ///
    /// # Errors
    ///
    /// The bytes are invalid.
    fn get(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let read = Self::read(&mut reader)?;
        reader.end()?;
        Ok(read)
    }
}

impl Form for Matrix {
    fn put(&self, writer: &mut Writer) {
        writer.put(&self.rows);
        writer.put(&self.columns);
        writer.put(&self.leading);
        writer.put(&self.alignment);
        writer.put(&self.data);
        writer.put(&self.order);
        writer.put(&self.sparsity);
        self.set.put(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            rows: reader.get()?,
            columns: reader.get()?,
            leading: reader.get()?,
            alignment: reader.get()?,
            data: reader.get()?,
            order: reader.get()?,
            sparsity: reader.get()?,
            set: Set::read(Class::Matrix, reader)?,
        })
    }
}

impl Product {
    /// Whether alpha and beta are vectors in device memory.
    pub fn vectors(&self) -> [bool; 2] {
        [ALPHA_VECTOR, BETA_VECTOR].map(|of| self.set.get(of) == Some(1))
    }

    /// Whether alpha and beta are where the library will look for them. The library itself refuses NULL.
    pub fn takes(&self, scalars: [Scalar; 2]) -> bool {
        let mut each = scalars.into_iter().zip(self.vectors());
        each.all(|(scalar, is_vector)| match scalar {
            Scalar::Here(_) => !is_vector,
            Scalar::At(address) => is_vector || address == 0,
        })
    }
}

impl Form for Product {
    fn put(&self, writer: &mut Writer) {
        for matrix in &self.matrices {
            matrix.put(writer);
        }
        for operation in &self.operations {
            writer.put(operation);
        }
        writer.put(&self.compute);
        self.set.put(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut matrices = [Matrix::default(); 4];
        for matrix in &mut matrices {
            *matrix = Matrix::read(reader)?;
        }
        Ok(Self {
            matrices,
            operations: [reader.get()?, reader.get()?],
            compute: reader.get()?,
            room: 0,
            set: Set::read(Class::Product, reader)?,
        })
    }
}

impl Form for Selection {
    fn put(&self, writer: &mut Writer) {
        self.product.put(writer);
        self.set.put(writer);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            product: Product::read(reader)?,
            set: Set::read(Class::Selection, reader)?,
        })
    }
}

/// Alpha and beta.
impl Form for [Scalar; 2] {
    fn put(&self, writer: &mut Writer) {
        for scalar in self {
            match *scalar {
                Scalar::Here(bits) => {
                    writer.put(&true);
                    writer.put(&bits);
                }
                Scalar::At(address) => {
                    writer.put(&false);
                    writer.word(address);
                }
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut scalar = || {
            Ok(match reader.get::<bool>()? {
                true => Scalar::Here(reader.get()?),
                false => Scalar::At(reader.word()?),
            })
        };
        Ok([scalar()?, scalar()?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection() -> Selection {
        let mut of = Selection::default();
        for (at, matrix) in of.product.matrices.iter_mut().enumerate() {
            matrix.rows = 64 + at as i64;
            matrix.leading = -1;
            matrix.sparsity = if at == 0 { 0 } else { DENSE };
        }
        of.product.matrices[1].set.set(1, 4096);
        of.product.operations = [0, 1];
        of.product.set.set(8, 0x7000_0000_0010);
        of.set.set(0, 3);
        of
    }

    #[test]
    fn written_values_are_read_back() {
        let of = selection();
        let bytes = of.bytes();
        assert_eq!(Selection::get(&bytes), Ok(of));
        for end in (0..bytes.len()).step_by(8) {
            assert!(Selection::get(&bytes[..end]).is_err(), "{end}");
        }
        assert!(Selection::get(&[bytes, vec![0; 8]].concat()).is_err());
        for scalars in [
            [Scalar::Here(7), Scalar::At(0)],
            [Scalar::At(u64::MAX), Scalar::Here(u32::MAX)],
        ] {
            assert_eq!(<[Scalar; 2]>::get(&scalars.bytes()), Ok(scalars));
        }
    }

    #[test]
    fn attributes_are_those_of_the_table_once_and_in_order() {
        let read = |set: &[(u64, u64)], count: u64| {
            let mut writer = Writer::new();
            writer.word(count);
            for (number, value) in set {
                writer.word(*number);
                writer.word(*value);
            }
            let bytes = writer.into_bytes();
            Set::<PRODUCT>::read(Class::Product, &mut Reader::new(&bytes))
        };
        assert!(read(&[(5, 1), (8, u64::MAX)], 2).is_ok());
        for (set, count) in [
            (&[(5, 1), (5, 1)][..], 2),
            (&[(8, 1), (5, 1)], 2),
            // A flag above 1, and a value of more than four bytes.
            (&[(5, 2)], 1),
            (&[(0, 1 << 32)], 1),
            (&[(20, 0)], 1),
            (&[(1 << 32, 0)], 1),
            (&[(5, 1)], u64::MAX),
        ] {
            assert!(read(set, count).is_err(), "{set:?}");
        }
        // The library chooses the number of configurations.
        let mut writer = Writer::new();
        for word in [1, 1, 3] {
            writer.word(word);
        }
        let bytes = writer.into_bytes();
        let read = Set::<SELECTION>::read(Class::Selection, &mut Reader::new(&bytes));
        assert!(read.is_err());
    }

    #[test]
    fn scalars_are_where_the_product_says() {
        let (here, at, null) = (Scalar::Here(1), Scalar::At(0x7000), Scalar::At(0));
        let mut of = Product::default();
        assert!(of.takes([here, here]) && of.takes([null, here]));
        assert!(!of.takes([at, here]) && !of.takes([here, at]));
        of.set.set(ALPHA_VECTOR, 1);
        assert!(of.takes([at, here]) && of.takes([null, here]));
        assert!(!of.takes([here, here]) && !of.takes([at, at]));
        of.set.set(BETA_VECTOR, 1);
        assert!(of.takes([at, at]) && !of.takes([at, here]));
        of.set.set(ALPHA_VECTOR, 0);
        assert!(!of.takes([at, at]));
    }

    /// The program's structures have 512 bytes, and the guest's library needs some of them for its own data.
    #[test]
    fn a_selection_fits_the_programs_structure() {
        assert!(size_of::<Selection>() + 16 <= 512);
    }
}
