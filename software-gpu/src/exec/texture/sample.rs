// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sampling: from coordinates to the value of a texture.

use super::super::env::Env;
use super::super::program::Stop;
use super::{Geometry, Image, Outside, Texture};

/// The elements of one dimension for a coordinate; `None` is the border.
#[derive(Debug, Clone, Copy)]
struct Pair {
    at: [Option<u32>; 2],
    /// The weight of the second, of 256.
    weight: u32,
}

/// A coordinate in 1/256 of an element, as in a texture unit.
fn fixed(x: f32) -> i64 {
    // Out of all proportion is out of the image, and not a number is 0.
    (x * 256.0).round().clamp(-1e15, 1e15) as i64
}

/// The element with a number, which may be outside.
fn element(number: i64, size: u32, outside: Outside) -> Option<u32> {
    let size = i64::from(size);
    match outside {
        Outside::Wrap => Some(number.rem_euclid(size) as u32),
        Outside::Border => (0..size).contains(&number).then_some(number as u32),
        Outside::Clamp | Outside::Mirror => Some(number.clamp(0, size - 1) as u32),
    }
}

/// Brings a coordinate from 0 to 1 into the image, where it repeats.
fn folded(x: f32, outside: Outside) -> f32 {
    match outside {
        Outside::Wrap => x - x.floor(),
        Outside::Mirror => {
            let whole = x.floor();
            let rest = x - whole;
            if whole.rem_euclid(2.0) == 0.0 {
                rest
            } else {
                1.0 - rest
            }
        }
        _ => x,
    }
}

/// The place of a coordinate in one dimension.
fn pair(x: f32, size: u32, outside: Outside, normalized: bool, linear: bool) -> Pair {
    let (x, outside) = if normalized {
        (folded(x, outside) * size as f32, outside)
    } else {
        // "Wrap and mirror are only supported for normalized coordinates."
        let outside = match outside {
            Outside::Border => Outside::Border,
            _ => Outside::Clamp,
        };
        (x, outside)
    };
    if linear {
        let at = fixed(x) - 128;
        let first = at >> 8;
        Pair {
            at: [first, first + 1].map(|number| element(number, size, outside)),
            weight: (at & 255) as u32,
        }
    } else {
        let number = x.floor().clamp(-1e15, 1e15) as i64;
        Pair {
            at: [element(number, size, outside); 2],
            weight: 0,
        }
    }
}

/// The way by which an instruction finds its level.
#[derive(Debug, Clone, Copy)]
pub(super) enum Lod {
    Base,
    Level(f32),
    /// The derivatives of the coordinates, in x and y.
    Gradient([f32; 3], [f32; 3]),
}

/// The query of an instruction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wish {
    pub(super) geometry: Geometry,
    pub(super) at: [f32; 3],
    pub(super) layer: u32,
    pub(super) lod: Lod,
}

/// The face of a cube that a direction meets, and where, from 0 to 1 each.
fn face([x, y, z]: [f32; 3]) -> (u32, f32, f32) {
    let [a, b, c] = [x.abs(), y.abs(), z.abs()];
    let (face, s, t, m) = if c >= a && c >= b {
        match z.is_sign_negative() {
            false => (4, x, -y, c),
            true => (5, -x, -y, c),
        }
    } else if b >= a {
        match y.is_sign_negative() {
            false => (2, x, z, b),
            true => (3, x, -z, b),
        }
    } else {
        match x.is_sign_negative() {
            false => (0, -z, -y, a),
            true => (1, z, -y, a),
        }
    };
    (face, (s / m + 1.0) / 2.0, (t / m + 1.0) / 2.0)
}

/// The direction of a place on a face.
fn direction(face: u32, s: f32, t: f32) -> [f32; 3] {
    let (s, t) = (2.0 * s - 1.0, 2.0 * t - 1.0);
    match face {
        0 => [1.0, -t, -s],
        1 => [-1.0, -t, s],
        2 => [s, 1.0, t],
        3 => [s, -1.0, -t],
        4 => [s, -t, 1.0],
        _ => [-s, -t, -1.0],
    }
}

/// A place in a level: the remaining coordinates, and the slice.
#[derive(Debug, Clone, Copy)]
struct Spot {
    at: [f32; 3],
    dimensions: usize,
    slice: u32,
    normalized: bool,
    /// The coordinates are on a face of a cube.
    on_face: bool,
}

impl Texture {
    fn spot(&self, wish: &Wish) -> Spot {
        let depth = self.levels[0].depth;
        let layers = if wish.geometry == Geometry::ACube {
            depth / 6
        } else {
            depth
        };
        let layer = wish.layer.min(layers.max(1) - 1);
        match wish.geometry {
            Geometry::Cube | Geometry::ACube => {
                let (face, s, t) = face(wish.at);
                Spot {
                    at: [s, t, 0.0],
                    dimensions: 2,
                    slice: (layer * 6 + face).min(depth - 1),
                    normalized: true,
                    on_face: true,
                }
            }
            geometry => Spot {
                at: wish.at,
                dimensions: geometry.coordinates(),
                slice: if geometry.has_layer() { layer } else { 0 },
                normalized: self.sampler.normalized,
                on_face: false,
            },
        }
    }

    fn outside(&self, axis: usize, spot: &Spot) -> Outside {
        if spot.on_face && self.sampler.seamless {
            return Outside::Border;
        }
        self.sampler.outside[axis]
    }

    fn pairs(&self, image: &Image, spot: &Spot, linear: bool) -> [Pair; 3] {
        let sizes = [image.width, image.height, image.depth];
        std::array::from_fn(|axis| {
            if axis < spot.dimensions {
                let outside = self.outside(axis, spot);
                pair(spot.at[axis], sizes[axis], outside, spot.normalized, linear)
            } else {
                Pair {
                    at: [Some(if axis == 2 { spot.slice } else { 0 }); 2],
                    weight: 0,
                }
            }
        })
    }

    /// The element beyond the edge of a face: the one of the adjacent face.
    fn beyond(&self, image: &Image, spot: &Spot, [s, t]: [i64; 2]) -> [u32; 3] {
        let size = image.width as f32;
        let place = |number: i64| (number as f32 + 0.5) / size;
        let (at, s, t) = face(direction(spot.slice % 6, place(s), place(t)));
        let number = |place: f32| ((place * size).floor().max(0.0) as u32).min(image.width - 1);
        [number(s), number(t), spot.slice / 6 * 6 + at]
    }

    fn numbers_at(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        image: &Image,
        at: [Option<u32>; 3],
    ) -> Result<[f32; 4], Stop> {
        match at {
            [Some(x), Some(y), Some(z)] => {
                let channels = image.element(env, lane, self.format, [x, y, z])?;
                Ok(self.sampler.numbers(self.format, channels))
            }
            _ => Ok(self.border()),
        }
    }

    fn border(&self) -> [f32; 4] {
        let mut colour = self.sampler.border;
        for (k, channel) in colour.iter_mut().enumerate() {
            if k >= usize::from(self.format.channels) {
                *channel = if k == 3 { 1.0 } else { 0.0 };
            }
        }
        colour
    }

    /// The value at a spot of one level, as numbers.
    fn weighted(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        image: &Image,
        spot: &Spot,
    ) -> Result<[f32; 4], Stop> {
        let pairs = self.pairs(image, spot, self.sampler.linear);
        let seamless = spot.on_face && self.sampler.seamless;
        let first = |axis: usize| (fixed(spot.at[axis] * image.width as f32) - 128) >> 8;
        let mut sum = [0.0_f32; 4];
        for corner in 0..8_usize {
            let side = |axis: usize| corner >> axis & 1;
            let weight = (0..3).fold(1.0_f32, |weight, axis| {
                let second = pairs[axis].weight as f32 / 256.0;
                weight
                    * if side(axis) == 1 {
                        second
                    } else {
                        1.0 - second
                    }
            });
            if weight == 0.0 {
                continue;
            }
            let mut at: [_; 3] = std::array::from_fn(|axis| pairs[axis].at[side(axis)]);
            if seamless && (at[0].is_none() || at[1].is_none()) {
                let number = |axis: usize| first(axis) + side(axis) as i64;
                at = self.beyond(image, spot, [number(0), number(1)]).map(Some);
            }
            let numbers = self.numbers_at(env, lane, image, at)?;
            for (sum, number) in sum.iter_mut().zip(numbers) {
                *sum += weight * number;
            }
        }
        Ok(sum)
    }

    /// The requested level.
    fn level(&self, wish: &Wish) -> f32 {
        let image = &self.levels[0];
        let sizes = [image.width, image.height, image.depth].map(|size| size as f32);
        let asked = match wish.lod {
            Lod::Base => return 0.0,
            Lod::Level(level) => level,
            Lod::Gradient(by_x, by_y) => {
                let length = |by: [f32; 3]| {
                    let steps = (0..wish.geometry.coordinates()).map(|k| by[k] * sizes[k]);
                    steps.map(|step| step * step).sum::<f32>().sqrt()
                };
                length(by_x).max(length(by_y)).log2()
            }
        };
        let [least, most] = self.sampler.levels;
        (asked + self.sampler.bias)
            .max(least)
            .min(most)
            .clamp(0.0, (self.levels.len() - 1) as f32)
    }

    /// The texture's value for a `tex` instruction, and whether there is one.
    pub(super) fn sample(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        wish: &Wish,
    ) -> Result<[u32; 4], Stop> {
        let spot = self.spot(wish);
        let level = self.level(wish);
        if self.sampler.gives_integers(self.format) {
            let image = self.levels[(level + 0.5).floor() as usize];
            let pairs = self.pairs(&image, &spot, false);
            return match pairs.map(|pair| pair.at[0]) {
                [Some(x), Some(y), Some(z)] => image.element(env, lane, self.format, [x, y, z]),
                _ => Ok(self.integer_border()),
            };
        }
        let numbers = if self.sampler.linear_levels {
            let at = (level * 256.0).round() as usize;
            let (first, weight) = (at >> 8, (at & 255) as f32 / 256.0);
            let image = self.levels[first];
            let mut numbers = self.weighted(env, lane, &image, &spot)?;
            if weight > 0.0 {
                let image = self.levels[first + 1];
                let other = self.weighted(env, lane, &image, &spot)?;
                for (number, other) in numbers.iter_mut().zip(other) {
                    *number = *number * (1.0 - weight) + other * weight;
                }
            }
            numbers
        } else {
            let image = self.levels[(level + 0.5).floor() as usize];
            self.weighted(env, lane, &image, &spot)?
        };
        Ok(numbers.map(f32::to_bits))
    }

    /// The border of a texture of integers: its bits.
    fn integer_border(&self) -> [u32; 4] {
        let mut bits = self.sampler.border.map(f32::to_bits);
        for (k, channel) in bits.iter_mut().enumerate() {
            if k >= usize::from(self.format.channels) {
                *channel = u32::from(k == 3);
            }
        }
        bits
    }

    /// The texture's value at a whole coordinate.
    pub(super) fn fetch(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        wish: &Wish,
        whole: [i32; 3],
    ) -> Result<[u32; 4], Stop> {
        let level = match wish.lod {
            Lod::Level(level) => level.clamp(0.0, (self.levels.len() - 1) as f32) as usize,
            _ => 0,
        };
        let image = self.levels[level];
        let sizes = [image.width, image.height, image.depth];
        let dimensions = wish.geometry.coordinates();
        let slice = wish.layer.min(image.depth - 1);
        let at: [Option<u32>; 3] = std::array::from_fn(|axis| {
            if axis < dimensions {
                let outside = match self.is_linear {
                    true => Outside::Border,
                    false if self.sampler.outside[axis] == Outside::Border => Outside::Border,
                    false => Outside::Clamp,
                };
                element(whole[axis].into(), sizes[axis], outside)
            } else {
                Some(if axis == 2 && wish.geometry.has_layer() {
                    slice
                } else {
                    0
                })
            }
        });
        let integers = self.sampler.gives_integers(self.format);
        match at {
            [Some(x), Some(y), Some(z)] => {
                let channels = image.element(env, lane, self.format, [x, y, z])?;
                if integers {
                    return Ok(channels);
                }
                Ok(self
                    .sampler
                    .numbers(self.format, channels)
                    .map(f32::to_bits))
            }
            _ if self.is_linear => Ok([0; 4]),
            _ if integers => Ok(self.integer_border()),
            _ => Ok(self.border().map(f32::to_bits)),
        }
    }

    /// One channel of the four elements that a linear texture would weight (`tld4`).
    pub(super) fn gather(
        &self,
        env: &mut Env<'_, '_>,
        lane: usize,
        wish: &Wish,
        channel: usize,
    ) -> Result<[u32; 4], Stop> {
        let spot = self.spot(wish);
        let image = self.levels[0];
        let [x, y, z] = self.pairs(&image, &spot, true);
        let integers = self.sampler.gives_integers(self.format);
        let mut gathered = [0; 4];
        // Counter-clockwise from the lower left.
        for (to, (i, j)) in gathered.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)]) {
            let at = [x.at[i], y.at[j], z.at[0]];
            *to = match (integers, at) {
                (true, [Some(x), Some(y), Some(z)]) => {
                    image.element(env, lane, self.format, [x, y, z])?[channel]
                }
                (true, _) => self.integer_border()[channel],
                _ => self.numbers_at(env, lane, &image, at)?[channel].to_bits(),
            };
        }
        Ok(gathered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_outside_come_to_the_elements_that_their_mode_says() {
        let at = |x: f32, outside| pair(x, 4, outside, true, false).at[0];
        assert_eq!(at(-0.125, Outside::Wrap), Some(3));
        assert_eq!(at(1.375, Outside::Wrap), Some(1));
        assert_eq!(at(-0.125, Outside::Clamp), Some(0));
        assert_eq!(at(1.375, Outside::Clamp), Some(3));
        assert_eq!(at(-0.375, Outside::Mirror), Some(1));
        assert_eq!(at(1.375, Outside::Mirror), Some(2));
        assert_eq!(at(2.375, Outside::Mirror), Some(1));
        assert_eq!(at(-0.125, Outside::Border), None);
        assert_eq!(at(0.375, Outside::Border), Some(1));
    }

    #[test]
    fn a_direction_meets_the_face_that_it_came_from() {
        for number in 0..6 {
            for (s, t) in [(0.25, 0.75), (0.6, 0.1)] {
                let (found, s_found, t_found) = face(direction(number, s, t));
                assert_eq!(found, number);
                assert!((s - s_found).abs() < 1e-6 && (t - t_found).abs() < 1e-6);
            }
        }
    }

    #[test]
    fn weights_have_eight_bits() {
        let weight = |x: f32| pair(x, 4, Outside::Clamp, false, true).weight;
        assert_eq!(weight(0.5), 0);
        assert_eq!(weight(0.75), 64);
        assert_eq!(weight(0.5 + 1.0 / 1024.0), 0);
        assert_eq!(weight(0.5 + 3.0 / 1024.0), 1);
    }
}
