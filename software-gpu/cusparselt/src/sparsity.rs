// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Matrices of which half is zero.
//!
//! A line runs along the products' inner dimension: a row of the first factor, a column of the second. In each group of
//! a line half of the numbers are zero: two of four, or of single-precision numbers one of two.
//!
//! A compressed matrix consists of the remaining numbers of each line, followed by four bits for each four numbers: the
//! positions of the two that remain. Its size is a multiple of 16 bytes.

use gpgpu_stand_in::driver::{ILLEGAL_ADDRESS, OUT_OF_MEMORY};
use gpgpu_stand_in::memory::{self, Memory, Outcome, Vector};

use crate::structures::Matrix;
use crate::types::{Element, Result, bytes_of, data};

/// Four numbers share a half byte.
const FOUR: usize = 4;

/// The lines of a matrix, one after the other.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines<T> {
    /// Their numbers.
    pub all: Vec<T>,
    /// The number of numbers in a line.
    pub length: usize,
}

/// The layout of a factor in memory.
#[derive(Debug, Clone, Copy)]
pub struct Factor {
    /// The matrix.
    pub matrix: Matrix,
    /// Whether its rows are the lines.
    by_rows: bool,
}

impl Factor {
    /// The first or the second factor of a product, transposed or not.
    pub fn new(matrix: Matrix, is_first: bool, is_transposed: bool) -> Self {
        let by_rows = is_first != is_transposed;
        Self { matrix, by_rows }
    }

    /// The number of lines, and of numbers in a line.
    pub fn shape(&self) -> (i64, i64) {
        let Matrix { rows, columns, .. } = self.matrix;
        match self.by_rows {
            true => (rows, columns),
            false => (columns, rows),
        }
    }

    /// Whether memory has the lines one after the other.
    fn is_straight(&self) -> bool {
        self.by_rows == self.matrix.by_rows()
    }

    /// Reads the i-th matrix of a batch.
    ///
    /// # Errors
    /// As all work.
    pub fn read<T: Element>(&self, memory: &Memory, at: u64, i: i64) -> Outcome<Lines<T>> {
        let read = memory.matrix::<T>(place(&self.matrix, at, i))?;
        let (lines, length) = self.shape();
        let (lines, length) = (lines as usize, length as usize);
        Ok(Lines {
            all: match self.is_straight() {
                true => read,
                false => turned(&read, length, lines),
            },
            length,
        })
    }

    /// Writes the i-th matrix of a batch.
    ///
    /// # Errors
    /// As all work.
    pub fn write<T: Element>(&self, memory: &Memory, at: u64, i: i64, lines: Lines<T>) -> Outcome {
        let values = match self.is_straight() {
            true => lines.all,
            false => turned(&lines.all, lines.all.len() / lines.length, lines.length),
        };
        memory.set_matrix(place(&self.matrix, at, i), &values, |_, _| true)
    }

    /// The numbers of a group.
    fn group(&self) -> usize {
        match self.matrix.data {
            data::R_32F => 2,
            _ => FOUR,
        }
    }

    /// Half of each group becomes zero: by lines the smallest numbers in a group, or by tiles of as many lines as a
    /// group has numbers, so that half of each column is zero, too, and the remaining sum is largest.
    pub fn prune<T: Element>(&self, lines: &mut Lines<T>, by_tiles: bool) {
        let group = self.group();
        if by_tiles {
            return prune_tiles(lines, group);
        }
        for group in lines.all.chunks_exact_mut(group) {
            let mut places: Vec<usize> = (0..group.len()).collect();
            // The first of those that are alike is kept.
            places.sort_by(|a, b| size(group[*b]).total_cmp(&size(group[*a])));
            for place in &places[group.len() / 2..] {
                group[*place] = T::default();
            }
        }
    }

    /// Whether half of each group is zero.
    pub fn is_pruned<T: Element>(&self, lines: &Lines<T>) -> bool {
        let left = |group: &[T]| group.iter().filter(|of| of.get() != 0.0).count();
        let mut groups = lines.all.chunks_exact(self.group());
        groups.all(|group| left(group) <= group.len() / 2)
    }

    /// The bytes of a compressed matrix.
    ///
    /// # Errors
    /// The size overflows.
    pub fn compressed(&self) -> Result<u64> {
        let (lines, length) = self.shape();
        let numbers = lines.checked_mul(length).map(|of| of as u64);
        let bytes = numbers.and_then(|of| {
            let values = (of / 2).checked_mul(bytes_of(self.matrix.data).ok()? as u64)?;
            values.checked_add(of / 8)?.checked_next_multiple_of(16)
        });
        bytes.ok_or(crate::types::Status::InvalidValue)
    }

    /// Writes the remaining numbers of a pruned matrix. If a group has too many, only the first half is written.
    ///
    /// # Errors
    /// As all work.
    pub fn compress<T: Element>(&self, memory: &Memory, at: u64, lines: &Lines<T>) -> Outcome {
        let mut values = Vec::with_capacity(lines.all.len() / 2);
        let mut marks = Vec::with_capacity(lines.all.len() / 8);
        for eight in lines.all.chunks(2 * FOUR) {
            let halves = eight.chunks(FOUR).map(|four| {
                let [first, second] = kept(four, self.group());
                values.extend([four[first], four[second]]);
                (first | second << 2) as u8
            });
            marks.push(
                halves
                    .enumerate()
                    .fold(0, |all, (at, of)| all | of << (4 * at)),
            );
        }
        let behind = at + size_of_val(&*values) as u64;
        memory.set_vector(straight(at, values.len()), &values)?;
        memory.set_vector(straight(behind, marks.len()), &marks)
    }

    /// Reads a compressed matrix.
    ///
    /// # Errors
    /// As for all work; a fault if compression never writes such marks.
    pub fn expand<T: Element>(&self, memory: &Memory, at: u64) -> Outcome<Lines<T>> {
        let (lines, length) = self.shape();
        let count = usize::try_from(lines.checked_mul(length).ok_or(OUT_OF_MEMORY)?);
        let count = count.map_err(|_| OUT_OF_MEMORY)?;
        let values = memory.vector::<T>(straight(at, count / 2))?;
        let behind = at + size_of_val(&*values) as u64;
        let marks = memory.vector::<u8>(straight(behind, count.div_ceil(8)))?;
        let mut all = vec![T::default(); count];
        for (number, (four, left)) in all.chunks_mut(FOUR).zip(values.chunks(2)).enumerate() {
            let mark = usize::from(marks[number / 2] >> (number % 2 * 4));
            let places = [mark & 3, mark >> 2 & 3];
            if places[0] >= places[1] {
                return Err(ILLEGAL_ADDRESS);
            }
            for (place, value) in places.into_iter().zip(left) {
                four[place] = *value;
            }
        }
        let length = length as usize;
        Ok(Lines { all, length })
    }
}

fn size<T: Element>(of: T) -> f64 {
    of.get().abs()
}

fn straight(address: u64, count: usize) -> Vector {
    Vector {
        address,
        count: count as i64,
        step: 1,
    }
}

/// The i-th matrix of a batch.
pub fn place(of: &Matrix, address: u64, i: i64) -> memory::Matrix {
    let bytes = bytes_of(of.data).unwrap_or(1) as i64;
    let distance = of.stride.wrapping_mul(i).wrapping_mul(bytes);
    let (rows, columns) = match of.by_rows() {
        true => (of.columns, of.rows),
        false => (of.rows, of.columns),
    };
    memory::Matrix {
        address: address.wrapping_add_signed(distance),
        rows,
        columns,
        leading: of.leading,
    }
}

/// Lines of `length` numbers, from an array that has the first number of each line first.
fn turned<T: Copy>(from: &[T], length: usize, lines: usize) -> Vec<T> {
    let place = |line| (0..length).map(move |at| at * lines + line);
    (0..lines).flat_map(place).map(|at| from[at]).collect()
}

/// The two places of four whose numbers are left, in order.
fn kept<T: Element>(four: &[T], group: usize) -> [usize; 2] {
    let is_left = |at: &usize| four[*at].get() != 0.0;
    if group == 2 {
        return [0, 2].map(|first| {
            if is_left(&first) || !is_left(&(first + 1)) {
                first
            } else {
                first + 1
            }
        });
    }
    let mut left = (0..FOUR).filter(is_left);
    match (left.next(), left.next()) {
        (Some(first), Some(second)) => [first, second],
        (Some(FOUR_LESS_ONE), None) => [0, FOUR_LESS_ONE],
        (Some(first), None) => [first, first + 1],
        (None, _) => [0, 1],
    }
}

const FOUR_LESS_ONE: usize = FOUR - 1;

fn prune_tiles<T: Element>(lines: &mut Lines<T>, group: usize) {
    let tiles = tiles(group);
    let length = lines.length;
    for first in (0..lines.all.len() / length).step_by(group) {
        for column in (0..length).step_by(group) {
            let at = |row: usize| (first + row) * length + column;
            let left = |tile: &[u8]| {
                let each = (0..group).map(|row| {
                    let line = &lines.all[at(row)..][..group];
                    let kept = line
                        .iter()
                        .enumerate()
                        .filter(|(at, _)| tile[row] >> at & 1 == 1);
                    kept.map(|(_, of)| size(*of)).sum::<f64>()
                });
                each.sum::<f64>()
            };
            let best = tiles
                .iter()
                .reduce(|best, other| match left(other) > left(best) {
                    true => other,
                    false => best,
                });
            let best = best.cloned().unwrap_or_default();
            for (row, mask) in best.iter().enumerate() {
                let from = at(row);
                let line = &mut lines.all[from..][..group];
                for (at, of) in line.iter_mut().enumerate() {
                    if mask >> at & 1 == 0 {
                        *of = T::default();
                    }
                }
            }
        }
    }
}

/// All square tiles with half of each row and of each column left: a mask for each row.
fn tiles(group: usize) -> Vec<Vec<u8>> {
    let half = group as u32 / 2;
    let rows: Vec<u8> = (0..1 << group)
        .filter(|of: &u8| of.count_ones() == half)
        .collect();
    let mut all = vec![vec![]];
    for _ in 0..group {
        let more = |tile: &Vec<u8>| {
            rows.iter()
                .map(|row| [&tile[..], &[*row]].concat())
                .collect::<Vec<_>>()
        };
        all = all.iter().flat_map(more).collect();
    }
    let is_left =
        |tile: &[u8], at| tile.iter().filter(|row| *row >> at & 1 == 1).count() == half as usize;
    all.retain(|tile| (0..group).all(|at| is_left(tile, at)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(data: i32) -> Factor {
        let matrix = Matrix::new((32, 32, 32), 16, data, 2, true).unwrap();
        Factor::new(matrix, true, false)
    }

    #[test]
    fn the_largest_numbers_are_kept() {
        let mut lines = Lines {
            all: vec![1.0_f32, -3.0, 2.0, 2.0],
            length: 4,
        };
        let mut pairs = lines.clone();
        factor(data::R_16F).prune(&mut lines, false);
        assert_eq!(lines.all, [0.0, -3.0, 2.0, 0.0]);
        factor(data::R_32F).prune(&mut pairs, false);
        assert_eq!(pairs.all, [0.0, -3.0, 2.0, 0.0]);
    }

    #[test]
    fn tiles_have_half_of_each_row_and_column() {
        assert_eq!((tiles(2).len(), tiles(4).len()), (2, 90));
        let all = (0..16).map(|of| (of * 7 % 16) as i8 - 5).collect();
        let mut lines = Lines { all, length: 4 };
        let before = lines.clone();
        let of = factor(data::R_8I);
        of.prune(&mut lines, true);
        assert!(of.is_pruned(&lines) && !of.is_pruned(&before));
        let turned = Lines {
            all: turned(&lines.all, 4, 4),
            length: 4,
        };
        assert!(of.is_pruned(&turned));
        let left = |of: &Lines<i8>| {
            of.all
                .iter()
                .map(|of| of.unsigned_abs() as u32)
                .sum::<u32>()
        };
        // If only lines are pruned, more remains; no tile can exceed that.
        let mut by_lines = before;
        of.prune(&mut by_lines, false);
        assert!(left(&lines) <= left(&by_lines) && left(&lines) * 2 > left(&by_lines));
    }

    #[test]
    fn two_places_of_four_are_marked() {
        for (four, places) in [
            ([0, 0, 0, 0], [0, 1]),
            ([0, 0, 0, 5], [0, 3]),
            ([0, 5, 0, 0], [1, 2]),
            ([0, 5, 0, 6], [1, 3]),
            ([4, 5, 6, 7], [0, 1]),
        ] {
            assert_eq!(kept(&four, 4), places, "{four:?}");
        }
        assert_eq!(kept(&[0.0_f32, 1.0, 2.0, 0.0], 2), [1, 2]);
        assert_eq!(kept(&[0.0_f32; 4], 2), [0, 2]);
    }

    #[test]
    fn sizes_are_those_that_frameworks_allocate() {
        for (data, bytes) in [(data::R_16F, 1152), (data::R_8I, 640), (data::R_32F, 2176)] {
            assert_eq!(factor(data).compressed(), Ok(bytes));
        }
    }
}
