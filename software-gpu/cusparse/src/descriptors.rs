// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Vectors and matrices as programs describe them, and as work reads and writes them.

use std::ffi::c_int;

use gpgpu_locks::Mutex;
use gpgpu_stand_in::{
    driver::{Code, ILLEGAL_ADDRESS},
    memory::{Memory, Outcome, Vector},
    objects::Objects,
};

use crate::handle::Raw;
use crate::types::{Index, Number, Result, Status};

/// Indices in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Indices {
    /// Their address.
    pub address: u64,
    /// Their width.
    pub width: Index,
    /// The number of the first index: 0 or 1.
    pub base: i64,
}

/// `cusparseDnVecDescr_t`.
#[derive(Debug, Clone, Copy)]
pub struct Dense {
    /// Elements.
    pub size: i64,
    /// The address of the elements.
    pub values: u64,
    /// Their `cudaDataType`.
    pub data: c_int,
}

/// `cusparseSpVecDescr_t`.
#[derive(Debug, Clone, Copy)]
pub struct Sparse {
    /// Elements, with those that are zero.
    pub size: i64,
    /// Elements that are stored.
    pub count: i64,
    /// The indices of these.
    pub indices: Indices,
    /// The address of their values.
    pub values: u64,
    /// Their `cudaDataType`.
    pub data: c_int,
}

/// `cusparseDnMatDescr_t`.
#[derive(Debug, Clone, Copy)]
pub struct DenseMatrix {
    /// Rows and columns.
    pub shape: (i64, i64),
    /// From one column, or row, to the next.
    pub leading: i64,
    /// The address of the first element.
    pub values: u64,
    /// Their `cudaDataType`.
    pub data: c_int,
    /// Whether rows lie one after the other.
    pub by_rows: bool,
}

/// The format of a sparse matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// The start of each row's elements, and the elements' columns.
    Csr,
    /// Rows and columns of each element.
    Coo,
}

/// `cusparseSpMatDescr_t`.
#[derive(Debug, Clone, Copy)]
pub struct SparseMatrix {
    /// The format.
    pub format: Format,
    /// Rows and columns.
    pub shape: (i64, i64),
    /// Elements that are stored.
    pub count: i64,
    /// The start of each row, or each element's row.
    pub rows: Indices,
    /// Each element's column.
    pub columns: Indices,
    /// The address of the values.
    pub values: u64,
    /// Their `cudaDataType`.
    pub data: c_int,
    /// The triangle that counts, and whether its diagonal is taken for ones.
    pub attributes: [c_int; 2],
}

/// `cusparseMatDescr_t`: type, triangle, diagonal, base.
pub type Description = [c_int; 4];

/// The result of a product of sparse matrices before it is copied.
#[derive(Debug, Clone, Default)]
pub struct Product {
    /// The start of each row.
    pub rows: Vec<i64>,
    /// Each element's column.
    pub columns: Vec<i64>,
}

// Numbers look like addresses of pages that no process has, of each kind its own.

/// Vectors.
pub static VECTORS: Objects<Mutex<Dense>> = Objects::new(0xC5B2_0000_0000_0000, 16);
/// Sparse vectors.
pub static SPARSE: Objects<Mutex<Sparse>> = Objects::new(0xC5B3_0000_0000_0000, 16);
/// Matrices.
pub static MATRICES: Objects<Mutex<DenseMatrix>> = Objects::new(0xC5B4_0000_0000_0000, 16);
/// Sparse matrices.
pub static SPARSE_MATRICES: Objects<Mutex<SparseMatrix>> = Objects::new(0xC5B5_0000_0000_0000, 16);
/// Descriptions of the older functions.
pub static DESCRIPTIONS: Objects<Mutex<Description>> = Objects::new(0xC5B6_0000_0000_0000, 16);
/// Products that are being made.
pub static PRODUCTS: Objects<Mutex<Product>> = Objects::new(0xC5B7_0000_0000_0000, 16);
/// Triangular systems that were looked at: whether they were.
pub static SYSTEMS: Objects<Mutex<bool>> = Objects::new(0xC5B8_0000_0000_0000, 16);

/// Runs `f` with an object's contents.
///
/// # Errors
/// `InvalidValue` if there is no such object.
pub fn with<T, R>(
    objects: &Objects<Mutex<T>>,
    name: Raw,
    f: impl FnOnce(&mut T) -> R,
) -> Result<R> {
    let found = objects.find(name as usize).ok_or(Status::InvalidValue)?;
    let mut held = found.lock();
    Ok(f(&mut held))
}

/// The present content of an object.
///
/// # Errors
/// `InvalidValue` if there is no such object.
pub fn get<T: Clone>(objects: &Objects<Mutex<T>>, name: Raw) -> Result<T> {
    with(objects, name, |held| held.clone())
}

fn span(address: u64, count: i64) -> Vector {
    Vector {
        address,
        count,
        step: 1,
    }
}

fn place(index: i64, limit: i64) -> std::result::Result<usize, Code> {
    // On a GPU an invalid index reads or writes other memory.
    match (0..limit).contains(&index) {
        true => Ok(index as usize),
        false => Err(ILLEGAL_ADDRESS),
    }
}

impl Indices {
    /// So many of them, counted from zero.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn read(&self, memory: Memory, count: i64) -> Outcome<Vec<i64>> {
        let at = span(self.address, count);
        let all: Vec<i64> = match self.width {
            Index::Narrow => memory
                .vector::<i32>(at)?
                .into_iter()
                .map(i64::from)
                .collect(),
            Index::Wide => memory.vector(at)?,
        };
        Ok(all.into_iter().map(|index| index - self.base).collect())
    }

    /// Checks that this number of elements can be written.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn check(&self, memory: Memory, count: i64) -> Outcome {
        let at = span(self.address, count);
        match self.width {
            Index::Narrow => memory.check_vector::<i32>(at),
            Index::Wide => memory.check_vector::<i64>(at),
        }
    }

    /// Writes indices that are counted from zero.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn write(&self, memory: Memory, indices: &[i64]) -> Outcome {
        let at = span(self.address, indices.len() as i64);
        let named = indices.iter().map(|index| index + self.base);
        match self.width {
            Index::Narrow => {
                let narrow: Vec<i32> = named.map(|index| index as i32).collect();
                memory.set_vector(at, &narrow)
            }
            Index::Wide => memory.set_vector(at, &named.collect::<Vec<_>>()),
        }
    }
}

impl Dense {
    /// Checks that all elements can be written. Work checks this before it makes data of that size.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn check<T: Number>(&self, memory: Memory) -> Outcome {
        memory.check_vector::<T>(span(self.values, self.size))
    }

    /// The elements.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn read<T: Number>(&self, memory: Memory) -> Outcome<Vec<T>> {
        memory.vector(span(self.values, self.size))
    }

    /// Writes all elements.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn write<T: Number>(&self, memory: Memory, values: &[T]) -> Outcome {
        memory.set_vector(span(self.values, self.size), values)
    }
}

impl Sparse {
    /// The stored elements, and their places.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn read<T: Number>(&self, memory: Memory) -> Outcome<Vec<(usize, T)>> {
        let values = memory.vector::<T>(span(self.values, self.count))?;
        let indices = self.indices.read(memory, self.count)?;
        let pairs = indices.into_iter().zip(values);
        pairs
            .map(|(index, value)| Ok((place(index, self.size)?, value)))
            .collect()
    }
}

impl DenseMatrix {
    fn stored(&self) -> gpgpu_stand_in::memory::Matrix {
        let (rows, columns) = match self.by_rows {
            true => (self.shape.1, self.shape.0),
            false => self.shape,
        };
        gpgpu_stand_in::memory::Matrix {
            address: self.values,
            rows,
            columns,
            leading: self.leading,
        }
    }

    fn at(&self, row: usize, column: usize) -> usize {
        let (rows, columns) = (self.shape.0 as usize, self.shape.1 as usize);
        match self.by_rows {
            true => row * columns + column,
            false => column * rows + row,
        }
    }

    /// Checks that all elements can be written. Work checks this before it makes data of that size.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn check<T: Number>(&self, memory: Memory) -> Outcome {
        memory.check_matrix::<T>(self.stored())
    }

    /// The elements, rows one after the other.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn read<T: Number>(&self, memory: Memory) -> Outcome<Vec<T>> {
        let values = memory.matrix::<T>(self.stored())?;
        if values.is_empty() {
            return Ok(values);
        }
        let (rows, columns) = (self.shape.0 as usize, self.shape.1 as usize);
        let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        Ok(places
            .map(|(row, column)| values[self.at(row, column)])
            .collect())
    }

    /// Writes all elements, rows one after the other.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn write<T: Number>(&self, memory: Memory, values: &[T]) -> Outcome {
        let mut stored = vec![T::default(); values.len()];
        let columns = self.shape.1 as usize;
        for (at, value) in values.iter().enumerate() {
            stored[self.at(at / columns, at % columns)] = *value;
        }
        memory.set_matrix(self.stored(), &stored, |_, _| true)
    }
}

impl SparseMatrix {
    /// The elements that are stored: row, column and value.
    ///
    /// # Errors
    /// The device cannot access them, or an index is invalid.
    pub fn read<T: Number>(&self, memory: Memory) -> Outcome<Vec<(usize, usize, T)>> {
        let values = memory.vector::<T>(span(self.values, self.count))?;
        let columns = self.columns.read(memory, self.count)?;
        let rows = match self.format {
            Format::Coo => self.rows.read(memory, self.count)?,
            Format::Csr => {
                let starts = self.rows.read(memory, self.shape.0.saturating_add(1))?;
                let mut rows = vec![0; self.count as usize];
                for (row, ends) in starts.windows(2).enumerate() {
                    let range = ends[0] as usize..ends[1] as usize;
                    rows.get_mut(range).ok_or(ILLEGAL_ADDRESS)?.fill(row as i64);
                }
                rows
            }
        };
        let all = rows.into_iter().zip(columns).zip(values);
        all.map(|((row, column), value)| {
            Ok((
                place(row, self.shape.0)?,
                place(column, self.shape.1)?,
                value,
            ))
        })
        .collect()
    }

    /// Writes elements, which are sorted by row and column, and the starts of rows if the format has them.
    ///
    /// # Errors
    /// The device may not reach them.
    pub fn write<T: Number>(&self, memory: Memory, elements: &[(usize, usize, T)]) -> Outcome {
        let columns: Vec<i64> = elements
            .iter()
            .map(|(_, column, _)| *column as i64)
            .collect();
        let values: Vec<T> = elements.iter().map(|(.., value)| *value).collect();
        let rows = match self.format {
            Format::Coo => elements.iter().map(|(row, ..)| *row as i64).collect(),
            Format::Csr => {
                self.rows.check(memory, self.shape.0.saturating_add(1))?;
                starts(self.shape.0, elements.iter().map(|(row, ..)| *row))
            }
        };
        self.rows.write(memory, &rows)?;
        self.columns.write(memory, &columns)?;
        memory.set_vector(span(self.values, values.len() as i64), &values)
    }
}

/// The start of each row, and the end, by the rows of sorted elements.
pub fn starts(rows: i64, of: impl Iterator<Item = usize>) -> Vec<i64> {
    let mut starts = vec![0; rows as usize + 1];
    for row in of {
        starts[row + 1] += 1;
    }
    for row in 1..starts.len() {
        starts[row] += starts[row - 1];
    }
    starts
}
