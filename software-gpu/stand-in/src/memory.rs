// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Vectors and matrices in device memory. Work reads them as a whole, computes, and writes them as a whole, so only
//! this file has to do with addresses.

use std::num::Wrapping;

use half::{bf16, f16};
use num_complex::Complex;

use crate::driver::{Code, Driver, ILLEGAL_ADDRESS, MISALIGNED_ADDRESS, OUT_OF_MEMORY};

/// A value that memory holds.
///
/// # Safety
/// Every pattern of bits is a value, without padding.
pub unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($t:ty),*) => {$(
        // SAFETY: a number, or two without padding between or behind them.
        unsafe impl Plain for $t {}
    )*};
}
plain!(
    u8,
    i8,
    u32,
    i32,
    i64,
    u64,
    f16,
    bf16,
    f32,
    f64,
    Complex<f32>,
    Complex<f64>,
    Complex<i8>,
    Wrapping<i32>
);

/// A result of work: the driver's code is the error, and becomes a fault.
pub type Outcome<T = ()> = Result<T, Code>;

/// `count` elements, `step` elements apart; with a negative step the last one comes first in memory.
#[derive(Debug, Clone, Copy)]
pub struct Vector {
    /// The address of the first in memory.
    pub address: u64,
    /// Their number.
    pub count: i64,
    /// Their distance.
    pub step: i64,
}

/// Columns one after the other, `leading` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Matrix {
    /// The address of the first element.
    pub address: u64,
    /// Elements of a column.
    pub rows: i64,
    /// The number of columns.
    pub columns: i64,
    /// From one column to the next.
    pub leading: i64,
}

/// Device memory, for work that runs in a stream.
#[derive(Clone, Copy)]
pub struct Memory(&'static Driver);

/// The maximum number of elements of a vector whose elements are all the same one: nothing else bounds its size.
const MOST_REPEATED: i64 = 1 << 26;

fn elements(count: i64) -> Outcome<usize> {
    usize::try_from(count).map_err(|_| ILLEGAL_ADDRESS)
}

impl Memory {
    /// The driver's memory.
    pub fn new(driver: &'static Driver) -> Self {
        Self(driver)
    }

    // The address of `count` elements that lie one after the other.
    fn span<T: Plain>(&self, address: u64, count: i64, write: bool) -> Outcome<*mut T> {
        let size = elements(count)?
            .checked_mul(size_of::<T>())
            .ok_or(ILLEGAL_ADDRESS)?;
        if !address.is_multiple_of(size_of::<T>() as u64) {
            return Err(MISALIGNED_ADDRESS);
        }
        Ok(self.0.bytes(address, size, write)?.cast())
    }

    // From the first to the last element of a vector.
    fn vector_span<T: Plain>(&self, v: Vector, write: bool) -> Outcome<*mut T> {
        if v.step == 0 && v.count > MOST_REPEATED {
            return Err(OUT_OF_MEMORY);
        }
        let length = (v.count - 1)
            .checked_mul(v.step.checked_abs().ok_or(ILLEGAL_ADDRESS)?)
            .and_then(|last| last.checked_add(1))
            .ok_or(ILLEGAL_ADDRESS)?;
        self.span(v.address, length, write)
    }

    fn matrix_span<T: Plain>(&self, m: Matrix, write: bool) -> Outcome<*mut T> {
        let length = (m.columns - 1)
            .checked_mul(m.leading)
            .and_then(|last| last.checked_add(m.rows))
            .ok_or(ILLEGAL_ADDRESS)?;
        self.span(m.address, length, write)
    }

    /// Checks that a vector can be written. Work checks this before it makes the data, so that a wrong size costs no
    /// memory.
    pub fn check_vector<T: Plain>(&self, v: Vector) -> Outcome {
        if v.count <= 0 {
            return Ok(());
        }
        self.vector_span::<T>(v, true).map(|_| ())
    }

    /// The same for a matrix.
    pub fn check_matrix<T: Plain>(&self, m: Matrix) -> Outcome {
        if m.rows <= 0 || m.columns <= 0 {
            return Ok(());
        }
        self.matrix_span::<T>(m, true).map(|_| ())
    }

    /// One value.
    ///
    /// # Errors
    /// `ILLEGAL_ADDRESS` and `MISALIGNED_ADDRESS`, as of all functions here.
    pub fn get<T: Plain>(&self, address: u64) -> Outcome<T> {
        let at = self.span::<T>(address, 1, false)?;
        // SAFETY: the span is readable and aligned while this work runs. Concurrent writes of the device are the
        // caller's race, and every pattern of bits is a value.
        Ok(unsafe { at.read_volatile() })
    }

    /// Writes one value.
    pub fn set<T: Plain>(&self, address: u64, value: T) -> Outcome {
        let at = self.span::<T>(address, 1, true)?;
        // SAFETY: as in `get`, and writable.
        unsafe { at.write_volatile(value) };
        Ok(())
    }

    /// A vector's elements in order.
    pub fn vector<T: Plain>(&self, v: Vector) -> Outcome<Vec<T>> {
        if v.count <= 0 {
            return Ok(Vec::new());
        }
        let base = self.vector_span::<T>(v, false)?;
        // SAFETY: `place` stays in the span, which is as in `get`.
        Ok((0..v.count)
            .map(|i| unsafe { base.add(v.place(i)).read() })
            .collect())
    }

    /// Writes a vector's elements in order.
    pub fn set_vector<T: Plain>(&self, v: Vector, values: &[T]) -> Outcome {
        if v.count <= 0 {
            return Ok(());
        }
        let base = self.vector_span::<T>(v, true)?;
        for (i, value) in (0..v.count).zip(values) {
            // SAFETY: as in `vector`, and writable.
            unsafe { base.add(v.place(i)).write(*value) };
        }
        Ok(())
    }

    /// A matrix's elements, columns one after the other.
    pub fn matrix<T: Plain>(&self, m: Matrix) -> Outcome<Vec<T>> {
        if m.rows <= 0 || m.columns <= 0 {
            return Ok(Vec::new());
        }
        let base = self.matrix_span::<T>(m, false)?;
        let (rows, leading) = (m.rows as usize, m.leading as usize);
        let mut all = Vec::with_capacity(rows.saturating_mul(m.columns as usize));
        for column in 0..m.columns as usize {
            // SAFETY: the column lies in the span, which is as in `get`.
            all.extend((0..rows).map(|row| unsafe { base.add(column * leading + row).read() }));
        }
        Ok(all)
    }

    /// Writes those elements of a matrix that `which` selects by row and column.
    pub fn set_matrix<T: Plain>(
        &self,
        m: Matrix,
        values: &[T],
        which: impl Fn(usize, usize) -> bool,
    ) -> Outcome {
        if m.rows <= 0 || m.columns <= 0 {
            return Ok(());
        }
        let base = self.matrix_span::<T>(m, true)?;
        let (rows, leading) = (m.rows as usize, m.leading as usize);
        for (column, values) in values.chunks(rows).enumerate() {
            for (row, value) in values.iter().enumerate() {
                if which(row, column) {
                    // SAFETY: the element lies in the span, which is as in `get` and writable.
                    unsafe { base.add(column * leading + row).write(*value) };
                }
            }
        }
        Ok(())
    }

    /// Fills bytes.
    pub fn fill(&self, address: u64, size: usize, with: u8) -> Outcome {
        let base = self.0.bytes(address, size, true)?;
        // SAFETY: the bytes are writable while this work runs.
        unsafe { base.write_bytes(with, size) };
        Ok(())
    }

    /// The elements at these places, counted from an address on.
    ///
    /// # Errors
    /// A place is not before `length`, too.
    pub fn gather<T: Plain>(
        &self,
        address: u64,
        length: i64,
        places: impl Iterator<Item = i64>,
    ) -> Outcome<Vec<T>> {
        let base = self.span::<T>(address, length, false)?;
        let get = |place| {
            if !(0..length).contains(&place) {
                return Err(ILLEGAL_ADDRESS);
            }
            // SAFETY: the place lies in the span, which is as in `get`.
            Ok(unsafe { base.add(place as usize).read() })
        };
        places.map(get).collect()
    }

    /// Writes elements at these places, counted from an address on.
    ///
    /// # Errors
    /// As [`Memory::gather`].
    pub fn scatter<T: Plain>(
        &self,
        address: u64,
        length: i64,
        places: impl Iterator<Item = i64>,
        values: &[T],
    ) -> Outcome {
        let base = self.span::<T>(address, length, true)?;
        for (place, value) in places.zip(values) {
            if !(0..length).contains(&place) {
                return Err(ILLEGAL_ADDRESS);
            }
            // SAFETY: the place lies in the span, which is as in `get` and writable.
            unsafe { base.add(place as usize).write(*value) };
        }
        Ok(())
    }
}

impl Vector {
    // The place of the i-th element, from the first in memory.
    fn place(&self, i: i64) -> usize {
        let from_first = if self.step < 0 {
            (self.count - 1 - i).wrapping_mul(-self.step)
        } else {
            i.wrapping_mul(self.step)
        };
        from_first as usize
    }
}

/// A scalar of a call's: read at the call, or by the work from device memory.
#[derive(Debug, Clone, Copy)]
pub enum Scalar<T> {
    /// The value.
    Host(T),
    /// Its address.
    Device(u64),
}

impl<T: Plain> Scalar<T> {
    /// The value.
    pub fn get(&self, memory: &Memory) -> Outcome<T> {
        match *self {
            Self::Host(value) => Ok(value),
            Self::Device(address) => memory.get(address),
        }
    }
}
