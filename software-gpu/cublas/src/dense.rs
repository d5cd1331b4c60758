// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Matrices in memory, and the operations of levels 2 and 3 on them.

use crate::number::{Field, Load, Number};
use crate::types::{Fill, Operation};
use gpgpu_stand_in::memory::{Matrix, Memory, Outcome};

/// A matrix, columns one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense<N> {
    /// Elements of a column.
    pub rows: usize,
    /// The number of columns.
    pub columns: usize,
    /// The elements.
    pub data: Vec<N>,
}

impl<N: Number> Dense<N> {
    /// The matrix with the elements that `f` returns for row and column.
    pub fn new(rows: usize, columns: usize, mut f: impl FnMut(usize, usize) -> N) -> Self {
        let mut data = Vec::with_capacity(rows * columns);
        for column in 0..columns {
            data.extend((0..rows).map(|row| f(row, column)));
        }
        Self {
            rows,
            columns,
            data,
        }
    }

    /// A matrix in device memory.
    pub fn read<T: Load<N>>(memory: &Memory, matrix: Matrix) -> Outcome<Self> {
        let data = memory.matrix::<T>(matrix)?;
        Ok(Self {
            rows: matrix.rows.max(0) as usize,
            columns: matrix.columns.max(0) as usize,
            data: data.into_iter().map(T::load).collect(),
        })
    }

    /// An element.
    pub fn at(&self, row: usize, column: usize) -> N {
        self.data[column * self.rows + row]
    }

    /// The matrix after an operation.
    pub fn apply(mut self, operation: Operation) -> Self {
        if operation.conjugates() {
            self.data.iter_mut().for_each(|x| *x = x.conjugate());
        }
        if operation.transposes() {
            return Self::new(self.columns, self.rows, |row, column| self.at(column, row));
        }
        self
    }

    /// The product with another.
    pub fn times(&self, other: &Self) -> Self {
        let shape = [self.rows, other.columns, self.columns];
        Self {
            rows: self.rows,
            columns: other.columns,
            data: N::product(&self.data, &other.data, shape),
        }
    }
}

impl<N: Field> Dense<N> {
    /// The symmetric, or Hermitian, matrix of which a triangle was given.
    pub fn mirrored(self, fill: Fill, hermitian: bool) -> Self {
        Self::new(self.rows, self.columns, |row, column| {
            if row == column && hermitian {
                // Its imaginary part is not referenced.
                N::real(self.at(row, row).re())
            } else if fill.holds(row, column) {
                self.at(row, column)
            } else if hermitian {
                self.at(column, row).conjugate()
            } else {
                self.at(column, row)
            }
        })
    }
}

/// A triangular matrix to multiply with or to solve for.
pub struct Triangle<N> {
    matrix: Dense<N>,
    fill: Fill,
    unit: bool,
}

impl<N: Field> Triangle<N> {
    /// The triangle `fill` of a matrix after an operation.
    pub fn new(matrix: Dense<N>, fill: Fill, operation: Operation, unit: bool) -> Self {
        Self {
            matrix: matrix.apply(operation),
            fill: fill.after(operation),
            unit,
        }
    }

    // The product of a row and `x` without the diagonal. Elements outside of the triangle are not used, even NaN.
    fn row(&self, row: usize, x: &[N]) -> N {
        let columns = match self.fill {
            Fill::Lower => 0..row,
            Fill::Upper => row + 1..self.matrix.rows,
        };
        let mut sum = N::default();
        columns.for_each(|column| sum += self.matrix.at(row, column) * x[column]);
        sum
    }

    /// Multiplies it with a vector, in place.
    pub fn multiply(&self, x: &mut [N]) {
        let rows = self.matrix.rows;
        for i in 0..rows {
            // In an order in which overwritten elements are no longer needed.
            let row = match self.fill {
                Fill::Lower => rows - 1 - i,
                Fill::Upper => i,
            };
            let on_diagonal = if self.unit {
                x[row]
            } else {
                self.matrix.at(row, row) * x[row]
            };
            x[row] = on_diagonal + self.row(row, x);
        }
    }

    /// Solves for the vector that it makes `x` of, in place.
    pub fn solve(&self, x: &mut [N]) {
        let rows = self.matrix.rows;
        for i in 0..rows {
            let row = match self.fill {
                Fill::Lower => i,
                Fill::Upper => rows - 1 - i,
            };
            let rest = x[row] - self.row(row, x);
            x[row] = if self.unit {
                rest
            } else {
                rest / self.matrix.at(row, row)
            };
        }
    }
}

/// `alpha * new + beta * old`, where zero for `beta` means that nothing old counts, not even a NaN.
pub fn blend<N: Number>(alpha: N, new: N, beta: N, old: N) -> N {
    if beta.is_nothing() {
        alpha * new
    } else {
        alpha * new + beta * old
    }
}
