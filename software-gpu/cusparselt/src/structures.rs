// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The content of programs' structures. Matrices and products are values there, the rest are numbers of objects. They
//! are never addresses, so a structure that was never initialised, or was destroyed, is an error.

use std::ffi::c_int;

use gpgpu_stand_in::{
    call::{Answer, Argument},
    memory::Plain,
};

use crate::types::{Result, Status, bytes_of, require};

/// The kinds of content of a structure. It begins with a mark of its kind.
///
/// # Safety
/// As [`Plain`], and its first eight bytes are [`Held::MARK`].
pub unsafe trait Held: Plain {
    /// The first word.
    const MARK: u64;
}

macro_rules! held {
    ($($ty:ty = $mark:literal;)*) => {$(
        // SAFETY: integers without padding.
        unsafe impl Plain for $ty {}
        // SAFETY: the first field is the mark.
        unsafe impl Held for $ty {
            const MARK: u64 = $mark;
        }
        // The size of every structure in `cusparseLt.h`.
        const _: () = assert!(size_of::<$ty>() <= 512);
    )*};
}

held! {
    Matrix = 0x51d0_0000_0000_0001;
    Product = 0x51d0_0000_0000_0002;
    Named<HANDLE> = 0x51d0_0000_0000_0003;
    Named<SELECTION> = 0x51d0_0000_0000_0004;
    Named<PLAN> = 0x51d0_0000_0000_0005;
}

/// A handle.
pub const HANDLE: u8 = 0;
/// A selection.
pub const SELECTION: u8 = 1;
/// A plan.
pub const PLAN: u8 = 2;

/// The number of an object.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Named<const KIND: u8> {
    mark: u64,
    /// The number.
    pub number: u64,
}

impl<const KIND: u8> Named<KIND>
where
    Self: Held,
{
    /// The object with a number.
    pub fn new(number: usize) -> Self {
        let mark = Self::MARK;
        let number = number as u64;
        Self { mark, number }
    }
}

/// The content of a program's structure.
///
/// # Errors
/// `InvalidValue` for NULL, and if it holds something else.
pub fn read<T: Held>(from: Argument<T>) -> Result<T> {
    let mark: u64 = from.cast::<u64>().get::<Status>()?;
    require(mark == T::MARK)?;
    from.get()
}

/// Ends the content of a program's structure, and returns it.
///
/// # Errors
/// As [`read`].
pub fn end<T: Held>(at: Answer<T>) -> Result<T> {
    let held = read(at.as_argument())?;
    at.cast::<u64>().set::<Status>(0)?;
    Ok(held)
}

/// A matrix.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Matrix {
    mark: u64,
    /// Its rows.
    pub rows: i64,
    /// Its columns.
    pub columns: i64,
    /// From one row, or column, to the next.
    pub leading: i64,
    /// The distance of those of a batch; 0 if they are one.
    pub stride: i64,
    /// The number of matrices in a batch.
    pub batch: c_int,
    /// The type of its elements (`cudaDataType_t`).
    pub data: c_int,
    /// Whether rows lie one after the other, or columns: 1 or 0.
    by_rows: u32,
    /// Whether half of it is zero: 1 or 0.
    is_sparse: u32,
}

impl Matrix {
    /// A matrix as a program describes it.
    ///
    /// # Errors
    /// `InvalidValue` for shapes that a matrix does not have, `NotSupported` for other types.
    pub fn new(
        (rows, columns, leading): (i64, i64, i64),
        alignment: u32,
        data: c_int,
        order: c_int,
        is_sparse: bool,
    ) -> Result<Self> {
        require(matches!(order, 1 | 2) && alignment.is_multiple_of(16) && alignment > 0)?;
        let by_rows = order == 2;
        // 16 bytes, and twice as much for a half-sparse matrix.
        let granule = (16 / bytes_of(data)? as i64) << u8::from(is_sparse);
        let inner = if by_rows { columns } else { rows };
        require(rows > 0 && columns > 0 && leading >= inner)?;
        require(rows % granule == 0 && columns % granule == 0)?;
        Ok(Self {
            mark: Self::MARK,
            rows,
            columns,
            leading,
            stride: 0,
            batch: 1,
            data,
            by_rows: by_rows.into(),
            is_sparse: is_sparse.into(),
        })
    }

    /// Whether rows lie one after the other.
    pub fn by_rows(&self) -> bool {
        self.by_rows == 1
    }

    /// Whether half of it is zero.
    pub fn is_sparse(&self) -> bool {
        self.is_sparse == 1
    }
}

/// The attributes of a product that are supported here; the numbers are NVIDIA's.
pub mod attribute {
    /// Whether negative numbers become zero.
    pub const RELU: usize = 0;
    /// The largest number that ReLU leaves.
    pub const UPPER: usize = 1;
    /// The number up to which ReLU returns zero.
    pub const THRESHOLD: usize = 2;
    /// Whether a Gaussian error unit is applied.
    pub const GELU: usize = 3;
    /// The factor.
    pub const GELU_SCALE: usize = 4;
    /// Whether there is an alpha for each row, in device memory.
    pub const ALPHA_VECTOR: usize = 5;
    /// The same for beta.
    pub const BETA_VECTOR: usize = 6;
    /// The distance of the biases of a batch.
    pub const BIAS_STRIDE: usize = 7;
    /// The address of the bias.
    pub const BIAS: usize = 8;
    /// The address of the sparse matrix, which is written later.
    pub const SPARSE: usize = 9;
    /// Their number.
    pub const COUNT: usize = 10;
}

/// A product.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Product {
    mark: u64,
    /// A, B, C and D.
    pub matrices: [Matrix; 4],
    /// The `cusparseOperation_t` of A and of B.
    pub operations: [c_int; 2],
    /// Its `cusparseComputeType`.
    pub compute: c_int,
    room: u32,
    /// The settings, by number.
    pub set: [u64; attribute::COUNT],
}

impl Product {
    /// A product of which nothing is set.
    pub fn new(matrices: [Matrix; 4], operations: [c_int; 2], compute: c_int) -> Self {
        let mut set = [0; attribute::COUNT];
        set[attribute::UPPER] = f32::INFINITY.to_bits().into();
        set[attribute::GELU_SCALE] = 1_f32.to_bits().into();
        Self {
            mark: Self::MARK,
            matrices,
            operations,
            compute,
            room: 0,
            set,
        }
    }

    /// An attribute that is a flag.
    pub fn flag(&self, number: usize) -> bool {
        self.set[number] as u32 != 0
    }

    /// An attribute that is a number.
    pub fn number(&self, number: usize) -> f64 {
        f32::from_bits(self.set[number] as u32).into()
    }
}
