// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Products of a sparse and a dense matrix, with their epilogue: scaling, a bias, an activation.

use std::ffi::c_int;

use half::{bf16, f16};

use gpgpu_stand_in::memory::{Memory, Outcome, Scalar, Vector};

use crate::sparsity::{Factor, Lines, place};
use crate::structures::{Matrix, Product, attribute};
use crate::types::{
    COMPUTE_32F, COMPUTE_32I, Element, Result, Status, bytes_of, data, require, transposes,
};

/// Checks a product as a program describes it.
///
/// # Errors
/// `InvalidValue` if the matrices do not fit each other, `NotSupported` for types that are not computed here.
pub fn check(product: &Product) -> Result {
    let [first, second] = factors(product)?;
    let [_, _, c, d] = &product.matrices;
    let ((m, k), (n, inner)) = (first.shape(), second.shape());
    require(k == inner && (d.rows, d.columns) == (m, n) && (c.rows, c.columns) == (m, n))?;
    require(first.matrix.is_sparse() != second.matrix.is_sparse())?;
    require(!c.is_sparse() && !d.is_sparse())?;
    let types = product.matrices.map(|of| of.data);
    let [a, b, c, d] = types;
    let is_known = match (product.compute, a) {
        (COMPUTE_32F, data::R_16F | data::R_16BF | data::R_32F) => d == a,
        (COMPUTE_32I, data::R_8I) => {
            [data::R_8I, data::R_32I, data::R_16F, data::R_16BF].contains(&d)
        }
        (COMPUTE_32I..=COMPUTE_32F, _) => false,
        _ => return Err(Status::InvalidValue),
    };
    match is_known && a == b && c == d {
        true => Ok(()),
        false => Err(Status::NotSupported),
    }
}

/// The factors of a product.
///
/// # Errors
/// `InvalidValue` if its operations are invalid.
pub fn factors(product: &Product) -> Result<[Factor; 2]> {
    let [a, b, ..] = product.matrices;
    let [of_a, of_b] = product.operations;
    Ok([
        Factor::new(a, true, transposes(of_a)?),
        Factor::new(b, false, transposes(of_b)?),
    ])
}

/// The one that is sparse.
///
/// # Errors
/// As [`factors`].
pub fn sparse(product: &Product) -> Result<Factor> {
    let [first, second] = factors(product)?;
    Ok(if first.matrix.is_sparse() {
        first
    } else {
        second
    })
}

/// A product with the addresses of A, B, C and D.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The product.
    pub product: Product,
    /// A, B, C and D.
    pub at: [u64; 4],
    /// Alpha and beta; in device memory, each has one value per row.
    pub scalars: [Scalar<f32>; 2],
    /// The algorithm: 1 computes columns of D, any other rows.
    pub algorithm: c_int,
}

impl Work {
    /// Computes it.
    ///
    /// # Errors
    /// As all work.
    pub fn run(&self, memory: &Memory) -> Outcome {
        macro_rules! run {
            ($($a:ident, $from:ty => $d:ident, $to:ty;)*) => {
                match (self.product.matrices[0].data, self.product.matrices[3].data) {
                    $((data::$a, data::$d) => self.run_as::<$from, $to>(memory),)*
                    // Such a product has no plan.
                    _ => Ok(()),
                }
            };
        }
        run! {
            R_16F, f16 => R_16F, f16;
            R_16BF, bf16 => R_16BF, bf16;
            R_32F, f32 => R_32F, f32;
            R_8I, i8 => R_8I, i8;
            R_8I, i8 => R_32I, i32;
            R_8I, i8 => R_16F, f16;
            R_8I, i8 => R_16BF, bf16;
        }
    }

    fn run_as<T: Element, U: Element>(&self, memory: &Memory) -> Outcome {
        let Ok(factors) = factors(&self.product) else {
            return Ok(());
        };
        let [_, _, c, d] = &self.product.matrices;
        let rows = d.rows as usize;
        let [alphas, betas] = self.scalars.map(|of| each_row(memory, of, rows));
        let (alphas, betas) = (alphas?, betas?);
        for i in 0..i64::from(d.batch) {
            memory.check_matrix::<U>(place(d, self.at[3], i))?;
            let lines = [0, 1].map(|of| factor::<T>(memory, &factors[of], self.at[of], i));
            let [first, second] = lines;
            let (first, second) = (first?, second?);
            let sums = sums(&first, &second, self.algorithm == 1);
            let old = match betas.iter().all(|of| *of == 0.0) {
                true => None,
                false => Some(elements::<U>(memory, c, self.at[2], i)?),
            };
            let bias = self.bias::<U>(memory, rows, i)?;
            let columns = d.columns as usize;
            let numbers: Vec<U> = stored(d, rows, columns)
                .map(|(row, column)| {
                    let old = old.as_ref().map_or(0.0, |old| old[row * columns + column]);
                    let sum = alphas[row] * sums[row * columns + column] + betas[row] * old;
                    U::put(self.activated(sum + bias[row]))
                })
                .collect();
            memory.set_matrix(place(d, self.at[3], i), &numbers, |_, _| true)?;
        }
        Ok(())
    }

    /// The bias of each row: of D's type, and in single precision if the factors are integers.
    fn bias<U: Element>(&self, memory: &Memory, rows: usize, i: i64) -> Outcome<Vec<f64>> {
        fn read<V: Element>(memory: &Memory, from: Vector, by: i64) -> Outcome<Vec<f64>> {
            let distance = by.wrapping_mul(size_of::<V>() as i64);
            let address = from.address.wrapping_add_signed(distance);
            let read = memory.vector::<V>(Vector { address, ..from })?;
            Ok(read.into_iter().map(V::get).collect())
        }
        let address = self.product.set[attribute::BIAS];
        if address == 0 {
            return Ok(vec![0.0; rows]);
        }
        let by = (self.product.set[attribute::BIAS_STRIDE] as i64).wrapping_mul(i);
        let from = Vector {
            address,
            count: rows as i64,
            step: 1,
        };
        match self.product.compute {
            COMPUTE_32I => read::<f32>(memory, from, by),
            _ => read::<U>(memory, from, by),
        }
    }

    fn activated(&self, value: f64) -> f64 {
        let of = &self.product;
        if of.flag(attribute::RELU) {
            return match value > of.number(attribute::THRESHOLD) {
                true => value.min(of.number(attribute::UPPER)),
                false => 0.0,
            };
        }
        if of.flag(attribute::GELU) {
            // With the hyperbolic tangent.
            let inner = value + 0.044715 * value * value * value;
            let unit = 0.5 * value * (1.0 + (std::f64::consts::FRAC_2_PI.sqrt() * inner).tanh());
            return unit * of.number(attribute::GELU_SCALE);
        }
        value
    }
}

fn each_row(memory: &Memory, of: Scalar<f32>, rows: usize) -> Outcome<Vec<f64>> {
    let all = match of {
        Scalar::Host(value) => vec![value; rows],
        Scalar::Device(address) => memory.vector(Vector {
            address,
            count: rows as i64,
            step: 1,
        })?,
    };
    Ok(all.into_iter().map(f64::from).collect())
}

/// The lines of the i-th factor of a batch.
fn factor<T: Element>(memory: &Memory, of: &Factor, at: u64, i: i64) -> Outcome<Lines<f64>> {
    let read = match of.matrix.is_sparse() {
        true => of.expand::<T>(memory, at.wrapping_add(compressed_place(of, i)))?,
        false => of.read::<T>(memory, at, i)?,
    };
    Ok(Lines {
        all: read.all.into_iter().map(T::get).collect(),
        length: read.length,
    })
}

/// The distance of the i-th compressed matrix of a batch from the first one, in bytes.
pub fn compressed_place(of: &Factor, i: i64) -> u64 {
    match of.matrix.stride {
        0 => 0,
        _ => of.compressed().unwrap_or(0).wrapping_mul(i as u64),
    }
}

/// The sums of D, row by row.
fn sums(first: &Lines<f64>, second: &Lines<f64>, by_columns: bool) -> Vec<f64> {
    let line = |of: &Lines<f64>| of.all.len() / of.length;
    let (rows, columns) = (line(first), line(second));
    let mut sums = vec![0.0; rows * columns];
    let mut sum = |row: usize, column: usize| {
        let a = &first.all[row * first.length..][..first.length];
        let b = &second.all[column * second.length..][..second.length];
        sums[row * columns + column] = a.iter().zip(b).map(|(a, b)| a * b).sum();
    };
    match by_columns {
        true => (0..columns).for_each(|column| (0..rows).for_each(|row| sum(row, column))),
        false => (0..rows).for_each(|row| (0..columns).for_each(|column| sum(row, column))),
    }
    sums
}

/// The places of a matrix as they lie in memory: row and column.
fn stored(of: &Matrix, rows: usize, columns: usize) -> impl Iterator<Item = (usize, usize)> {
    let by_rows = of.by_rows();
    (0..rows * columns).map(move |at| match by_rows {
        true => (at / columns, at % columns),
        false => (at % rows, at / rows),
    })
}

/// The numbers of a matrix, row by row.
fn elements<U: Element>(memory: &Memory, of: &Matrix, at: u64, i: i64) -> Outcome<Vec<f64>> {
    let read = memory.matrix::<U>(place(of, at, i))?;
    let (rows, columns) = (of.rows as usize, of.columns as usize);
    let mut all = vec![0.0; read.len()];
    for ((row, column), value) in stored(of, rows, columns).zip(read) {
        all[row * columns + column] = value.get();
    }
    Ok(all)
}

/// The bytes of a product's workspace: the sums of each part of the inner dimension, if there are several parts.
pub fn workspace(product: &Product, parts: c_int) -> u64 {
    let d = &product.matrices[3];
    match parts {
        0 | 1 => 0,
        parts => (d.rows as u64)
            .saturating_mul(d.columns as u64)
            .saturating_mul(bytes_of(data::R_32F).unwrap_or(0) as u64)
            .saturating_mul(parts as u64),
    }
}
