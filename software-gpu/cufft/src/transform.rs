// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The arithmetic: transforms of the whole input.

use num_complex::Complex;
use rustfft::{FftDirection, FftNum, FftPlanner};

use crate::layout::Shape;

/// Transforms complex numbers in all dimensions, without a factor.
pub fn complex<T: FftNum>(shape: &Shape, direction: FftDirection, data: &mut [Complex<T>]) {
    let mut planner = FftPlanner::new();
    let mut inner = 1;
    for size in shape.sizes.iter().rev() {
        let transform = planner.plan_fft(*size, direction);
        if inner == 1 {
            transform.process(data);
        } else {
            let mut line = vec![Complex::new(T::zero(), T::zero()); *size];
            for block in data.chunks_exact_mut(size * inner) {
                for first in 0..inner {
                    let along = || (first..).step_by(inner);
                    line.iter_mut()
                        .zip(along())
                        .for_each(|(to, at)| *to = block[at]);
                    transform.process(&mut line);
                    line.iter()
                        .zip(along())
                        .for_each(|(of, at)| block[at] = *of);
                }
            }
        }
        inner *= size;
    }
}

/// The half spectrum of real numbers.
pub fn from_real<T: FftNum>(shape: &Shape, data: &[T]) -> Vec<Complex<T>> {
    let mut full: Vec<_> = data.iter().map(|x| Complex::new(*x, T::zero())).collect();
    complex(shape, FftDirection::Forward, &mut full);
    let last = shape.sizes.last().copied().unwrap_or(1);
    let rows = full.chunks_exact(last);
    rows.flat_map(|row| row[..last / 2 + 1].to_vec()).collect()
}

/// The real numbers of a half spectrum, each times their number.
pub fn to_real<T: FftNum>(shape: &Shape, half: &[Complex<T>]) -> Vec<T> {
    let last = shape.sizes.last().copied().unwrap_or(1);
    let mut full = Vec::with_capacity(shape.count());
    for index in 0..shape.count() {
        let (row, column) = (index / last, index % last);
        full.push(if column < last / 2 + 1 {
            half[row * (last / 2 + 1) + column]
        } else {
            half[opposite(shape, row) * (last / 2 + 1) + last - column].conj()
        });
    }
    complex(shape, FftDirection::Inverse, &mut full);
    full.into_iter().map(|x| x.re).collect()
}

/// The row with the opposite frequency in all dimensions but the innermost.
fn opposite(shape: &Shape, mut row: usize) -> usize {
    let (mut opposite, mut step) = (0, 1);
    let outer = &shape.sizes[..shape.sizes.len() - 1];
    for size in outer.iter().rev() {
        opposite += (size - row % size) % size * step;
        row /= size;
        step *= size;
    }
    opposite
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow(shape: &Shape, data: &[Complex<f64>]) -> Vec<Complex<f64>> {
        let at = |mut index: usize| -> Vec<f64> {
            let digits = shape.sizes.iter().rev().map(|size| {
                let digit = index % size;
                index /= size;
                digit as f64 / *size as f64
            });
            let mut digits: Vec<_> = digits.collect();
            digits.reverse();
            digits
        };
        let sizes: Vec<f64> = shape.sizes.iter().map(|size| *size as f64).collect();
        (0..data.len())
            .map(|to| {
                let to = at(to);
                let terms = data.iter().enumerate().map(|(from, value)| {
                    let turns: f64 = at(from)
                        .iter()
                        .zip(&to)
                        .zip(&sizes)
                        .map(|((a, b), size)| a * b * size)
                        .sum();
                    value * Complex::from_polar(1.0, -turns * std::f64::consts::TAU)
                });
                terms.sum()
            })
            .collect()
    }

    #[test]
    fn transforms_are_the_sums_that_define_them() {
        for sizes in [&[7][..], &[8], &[3, 5], &[4, 1, 6], &[2, 3, 5]] {
            let sizes: Vec<i64> = sizes.to_vec();
            let shape = Shape::new(&sizes, 1).unwrap();
            let real: Vec<f64> = (0..shape.count())
                .map(|i| (i * i % 11) as f64 - 4.0)
                .collect();
            let full: Vec<_> = real
                .iter()
                .enumerate()
                .map(|(i, x)| Complex::new(*x, (i % 5) as f64))
                .collect();
            let mut fast = full.clone();
            complex(&shape, FftDirection::Forward, &mut fast);
            let is_close = |a: &[Complex<f64>], b: &[Complex<f64>]| {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).norm() < 1e-9)
            };
            assert!(is_close(&fast, &slow(&shape, &full)), "{sizes:?}");
            let spectrum = from_real(&shape, &real);
            let whole: Vec<_> = real.iter().map(|x| Complex::new(*x, 0.0)).collect();
            let last = *shape.sizes.last().unwrap();
            let half: Vec<_> = slow(&shape, &whole)
                .chunks(last)
                .flat_map(|row| row[..last / 2 + 1].to_vec())
                .collect();
            assert!(is_close(&spectrum, &half), "{sizes:?}");
            let again = to_real(&shape, &spectrum);
            let count = shape.count() as f64;
            let is_same = again
                .iter()
                .zip(&real)
                .all(|(a, b)| (a / count - b).abs() < 1e-9);
            assert!(is_same, "{sizes:?}");
        }
    }
}
