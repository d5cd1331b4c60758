// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The arithmetic: matrices that were read, in the shapes in which LAPACK has factors and pivots.

use nalgebra::{Cholesky, ComplexField, DMatrix, DVector, LU, SVD, SymmetricEigen};

use crate::types::{Fill, Number, Operation, Real};

/// A matrix of columns one after the other.
pub fn matrix<T: Number>(rows: i64, columns: i64, values: Vec<T>) -> DMatrix<T> {
    DMatrix::from_vec(rows.max(0) as usize, columns.max(0) as usize, values)
}

/// The Hermitian matrix of which one triangle is given.
pub fn hermitian<T: Number>(a: &DMatrix<T>, fill: Fill) -> DMatrix<T> {
    DMatrix::from_fn(a.nrows(), a.ncols(), |row, column| {
        match (row == column, fill.holds(row, column)) {
            (true, _) => T::from_real(a[(row, row)].real()),
            (false, true) => a[(row, column)],
            (false, false) => a[(column, row)].conjugate(),
        }
    })
}

/// The triangular factor of a positive definite matrix; or the order of the first leading minor that is not positive.
pub fn cholesky<T: Number>(a: &DMatrix<T>, fill: Fill) -> Result<DMatrix<T>, i32> {
    let whole = hermitian(a, fill);
    match Cholesky::new(whole.clone()) {
        Some(found) if fill == Fill::Lower => Ok(found.l()),
        Some(found) => Ok(found.l().adjoint()),
        None => {
            let is_bad = |order: &usize| {
                let part = whole.view((0, 0), (*order, *order)).into_owned();
                Cholesky::new(part).is_none()
            };
            Err((1..=a.nrows()).find(is_bad).unwrap_or(a.nrows()) as i32)
        }
    }
}

fn nothing<T: Number>(b: &DMatrix<T>) -> DMatrix<T> {
    // As on a GPU, which divides by zero.
    b.map(|_| T::from_real(nalgebra::convert(f64::NAN)))
}

/// Solves a system by the factor of [`cholesky`].
pub fn solve_cholesky<T: Number>(factor: &DMatrix<T>, fill: Fill, b: &DMatrix<T>) -> DMatrix<T> {
    let found = match fill {
        Fill::Lower => factor
            .solve_lower_triangular(b)
            .and_then(|b| factor.ad_solve_lower_triangular(&b)),
        Fill::Upper => factor
            .ad_solve_upper_triangular(b)
            .and_then(|b| factor.solve_upper_triangular(&b)),
    };
    found.unwrap_or_else(|| nothing(b))
}

/// Both triangular factors in one matrix, the rows that were exchanged, counted from one, and the place of the first
/// zero on the diagonal, or 0.
pub fn lu<T: Number>(a: DMatrix<T>) -> (DMatrix<T>, Vec<i32>, i32) {
    let least = a.nrows().min(a.ncols());
    let found = LU::new(a);
    let factors = found.lu_internal().clone();
    let mut order = DVector::from_fn(factors.nrows(), |row, _| row);
    found.p().permute_rows(&mut order);
    // From where each row came to which rows are exchanged, one after the other.
    let mut now: Vec<usize> = (0..factors.nrows()).collect();
    let mut pivots = Vec::with_capacity(least);
    for row in 0..least {
        let from = (row..now.len()).find(|at| now[*at] == order[row]);
        let from = from.unwrap_or(row);
        now.swap(row, from);
        pivots.push(from as i32 + 1);
    }
    let zero = (0..least).find(|at| factors[(*at, *at)] == T::zero());
    (factors, pivots, zero.map_or(0, |at| at as i32 + 1))
}

/// Solves a system by the factors of [`lu`]; `None` if a pivot is no row.
pub fn solve_lu<T: Number>(
    factors: &DMatrix<T>,
    pivots: &[i32],
    operation: Operation,
    mut b: DMatrix<T>,
) -> Option<DMatrix<T>> {
    let rows: Option<Vec<_>> = pivots
        .iter()
        .map(|pivot| {
            usize::try_from(*pivot - 1)
                .ok()
                .filter(|row| *row < b.nrows())
        })
        .collect();
    let rows = rows?;
    let mut lower = factors.lower_triangle();
    lower.fill_diagonal(T::one());
    let upper = factors.upper_triangle();
    if operation == Operation::None {
        for (row, with) in rows.iter().enumerate() {
            b.swap_rows(row, *with);
        }
    }
    let found = match operation {
        Operation::None => lower
            .solve_lower_triangular(&b)
            .and_then(|b| upper.solve_upper_triangular(&b)),
        Operation::Transpose => upper
            .tr_solve_upper_triangular(&b)
            .and_then(|b| lower.tr_solve_lower_triangular(&b)),
        Operation::Adjoint => upper
            .ad_solve_upper_triangular(&b)
            .and_then(|b| lower.ad_solve_lower_triangular(&b)),
    };
    let mut x = found.unwrap_or_else(|| nothing(&b));
    if operation != Operation::None {
        for (row, with) in rows.iter().enumerate().rev() {
            x.swap_rows(row, *with);
        }
    }
    Some(x)
}

/// The Householder vectors of a QR factorisation below the upper triangle, and their factors.
pub fn qr<T: Number>(mut a: DMatrix<T>) -> (DMatrix<T>, Vec<T>) {
    let mut factors = Vec::new();
    for at in 0..a.nrows().min(a.ncols()) {
        let alpha = a[(at, at)];
        let below = a.view((at + 1, at), (a.nrows() - at - 1, 1)).norm();
        if below == nalgebra::zero() && alpha.imaginary() == nalgebra::zero() {
            factors.push(T::zero());
            continue;
        }
        let length = alpha.modulus().hypot(below);
        let beta = if alpha.real() > nalgebra::zero() {
            -length
        } else {
            length
        };
        let factor = (T::from_real(beta) - alpha).unscale(beta);
        let scale = T::one() / (alpha - T::from_real(beta));
        for row in at + 1..a.nrows() {
            a[(row, at)] *= scale;
        }
        a[(at, at)] = T::from_real(beta);
        let vector = reflector(&a, at);
        let mut rest = a.columns_mut(at + 1, a.ncols() - at - 1);
        let products = vector.adjoint() * &rest;
        rest -= (vector * products) * factor.conjugate();
        factors.push(factor);
    }
    (a, factors)
}

// The vector of a reflection that `qr` has left in a column.
fn reflector<T: Number>(a: &DMatrix<T>, at: usize) -> DVector<T> {
    DVector::from_fn(a.nrows(), |row, _| match row.cmp(&at) {
        std::cmp::Ordering::Less => T::zero(),
        std::cmp::Ordering::Equal => T::one(),
        std::cmp::Ordering::Greater => a[(row, at)],
    })
}

/// The product of Q, or its adjoint, and a matrix: Q is on the left, or on the right.
pub fn times_q<T: Number>(
    vectors: &DMatrix<T>,
    factors: &[T],
    is_right: bool,
    adjoint: bool,
    mut c: DMatrix<T>,
) -> DMatrix<T> {
    let count = factors.len().min(vectors.ncols());
    // Q is the product of all reflections, the first one leftmost.
    let forwards = is_right != adjoint;
    for step in 0..count {
        let at = if forwards { step } else { count - 1 - step };
        let vector = reflector(vectors, at);
        let factor = match adjoint {
            true => factors[at].conjugate(),
            false => factors[at],
        };
        if is_right {
            let products = &c * &vector;
            c -= (products * vector.adjoint()) * factor;
        } else {
            let products = vector.adjoint() * &c;
            c -= (vector * products) * factor;
        }
    }
    c
}

/// The eigenvalues of a Hermitian matrix, the least first, and a column for each.
pub fn eigen<T: Number>(a: &DMatrix<T>, fill: Fill) -> (Vec<Real<T>>, DMatrix<T>) {
    let found = SymmetricEigen::new(hermitian(a, fill));
    let mut order: Vec<usize> = (0..a.nrows()).collect();
    order.sort_by(|one, other| {
        let (one, other) = (found.eigenvalues[*one], found.eigenvalues[*other]);
        one.partial_cmp(&other).unwrap_or(std::cmp::Ordering::Equal)
    });
    let values = order.iter().map(|at| found.eigenvalues[*at]).collect();
    let vectors = DMatrix::from_fn(a.nrows(), a.nrows(), |row, column| {
        found.eigenvectors[(row, order[column])]
    });
    (values, vectors)
}

/// A singular value decomposition.
pub struct Singular<T: Number> {
    /// The values, the greatest first.
    pub values: Vec<Real<T>>,
    /// The left vectors in columns.
    pub left: DMatrix<T>,
    /// The right vectors in columns.
    pub right: DMatrix<T>,
}

/// Decomposes a matrix that has at least as many rows as columns. With `all`, the left vectors are a basis of the whole
/// space.
pub fn singular<T: Number>(a: DMatrix<T>, all: bool) -> Singular<T> {
    let (rows, columns) = a.shape();
    if columns == 0 {
        return Singular {
            values: Vec::new(),
            left: DMatrix::identity(rows, if all { rows } else { 0 }),
            right: DMatrix::zeros(0, 0),
        };
    }
    let found = SVD::new(a, true, true);
    let (left, right) = (found.u.unwrap_or_default(), found.v_t.unwrap_or_default());
    let left = match all {
        true => completed(left),
        false => left,
    };
    Singular {
        values: found.singular_values.iter().copied().collect(),
        left,
        right: right.adjoint(),
    }
}

// Orthonormal columns, and as many more as the space has dimensions.
fn completed<T: Number>(columns: DMatrix<T>) -> DMatrix<T> {
    let rows = columns.nrows();
    let (vectors, factors) = qr(columns.clone());
    let mut all = times_q(
        &vectors,
        &factors,
        false,
        false,
        DMatrix::identity(rows, rows),
    );
    all.columns_mut(0, columns.ncols()).copy_from(&columns);
    all
}
