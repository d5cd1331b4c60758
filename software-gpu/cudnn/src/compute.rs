// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The arithmetic: ordinary Rust on numbers that were read, in double precision.

use serde::{Deserialize, Serialize};

use crate::types::{Result, Status, require};

/// The movement of a window over images: one number for each of their dimensions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// Zeros before the first element; as many follow the last one.
    pub padding: Vec<i64>,
    /// From one place to the next.
    pub stride: Vec<i64>,
    /// From one element of the window to the next.
    pub dilation: Vec<i64>,
}

impl Window {
    /// The window extended to three dimensions, so that one loop suffices.
    fn whole(&self) -> [[i64; 3]; 3] {
        let three = |of: &[i64], default: i64| {
            let mut all = [default; 3];
            all[3 - of.len()..].copy_from_slice(of);
            all
        };
        [
            three(&self.padding, 0),
            three(&self.stride, 1),
            three(&self.dilation, 1),
        ]
    }

    /// The output sizes for images of these sizes and a window of those.
    ///
    /// # Errors
    /// `BadParam` if numbers are out of range, or the window is larger than the image.
    pub fn output(&self, images: &[i64], window: &[i64]) -> Result<Vec<i64>> {
        let dimensions = images.len();
        let lists = [&self.padding[..], &self.stride, &self.dilation, window];
        require((1..=3).contains(&dimensions) && lists.iter().all(|of| of.len() == dimensions))?;
        let is_small = |of: i64, least: i64| (least..1 << 30).contains(&of);
        let sizes = (0..dimensions).map(|at| {
            let [padding, stride, dilation, window] = lists.map(|list| list[at]);
            require(is_small(padding, 0) && is_small(stride, 1) && is_small(dilation, 1))?;
            require(is_small(window, 1) && is_small(images[at], 1))?;
            let reach = dilation * (window - 1) + 1;
            let room = images[at] + 2 * padding - reach;
            require(room >= 0)?;
            Ok(room / stride + 1)
        });
        sizes.collect()
    }
}

fn whole(sizes: &[i64]) -> [i64; 3] {
    let mut all = [1; 3];
    all[3 - sizes.len()..].copy_from_slice(sizes);
    all
}

fn each([a, b, c]: [i64; 3]) -> impl Iterator<Item = [i64; 3]> {
    (0..a).flat_map(move |a| (0..b).flat_map(move |b| (0..c).map(move |c| [a, b, c])))
}

fn place([_, b, c]: [i64; 3], [x, y, z]: [i64; 3]) -> usize {
    ((x * b + y) * c + z) as usize
}

// The place in the image of an element of the window at a place of the output; `None` in the padding.
fn source(
    [padding, stride, dilation]: [[i64; 3]; 3],
    image: [i64; 3],
    out: [i64; 3],
    of: [i64; 3],
) -> Option<usize> {
    let mut at = [0; 3];
    for d in 0..3 {
        at[d] = out[d] * stride[d] - padding[d] + of[d] * dilation[d];
        if !(0..image[d]).contains(&at[d]) {
            return None;
        }
    }
    Some(place(image, at))
}

/// A convolution's sizes: images, channels, and the dimensions of each.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Convolution {
    images: usize,
    channels: usize,
    groups: usize,
    filters: usize,
    image: [i64; 3],
    window: [i64; 3],
    output: [i64; 3],
    moves: [[i64; 3]; 3],
    is_flipped: bool,
}

impl Convolution {
    /// A convolution of images with sizes `x` (images, channels and dimensions), filters with sizes `w` (filters,
    /// channels of a group and dimensions), and the output sizes.
    ///
    /// # Errors
    /// `BadParam` if they do not fit each other.
    pub fn new(
        x: &[i64],
        w: &[i64],
        moves: &Window,
        groups: i64,
        is_flipped: bool,
    ) -> Result<(Self, Vec<i64>)> {
        require(x.len() >= 3 && x.len() == w.len() && groups > 0)?;
        require(x[1] == w[1].saturating_mul(groups) && w[0] % groups == 0)?;
        let output = moves.output(&x[2..], &w[2..])?;
        let sizes = [&[x[0], w[0]], &output[..]].concat();
        let convolution = Self {
            images: x[0] as usize,
            channels: w[1] as usize,
            groups: groups as usize,
            filters: (w[0] / groups) as usize,
            image: whole(&x[2..]),
            window: whole(&w[2..]),
            output: whole(&output),
            moves: moves.whole(),
            is_flipped,
        };
        Ok((convolution, sizes))
    }

    /// Computes it.
    pub fn run(&self, x: &[f64], w: &[f64]) -> Vec<f64> {
        let pixels = |of: [i64; 3]| of.iter().product::<i64>() as usize;
        let (in_image, in_window) = (pixels(self.image), pixels(self.window));
        let mut y = Vec::new();
        for image in 0..self.images {
            for group in 0..self.groups {
                let first = (image * self.groups + group) * self.channels;
                for filter in 0..self.filters {
                    let filter = (group * self.filters + filter) * self.channels;
                    y.extend(each(self.output).map(|out| {
                        let mut sum = 0.0;
                        for channel in 0..self.channels {
                            let x = &x[(first + channel) * in_image..][..in_image];
                            let w = &w[(filter + channel) * in_window..][..in_window];
                            for of in each(self.window) {
                                if let Some(at) = source(self.moves, self.image, out, of) {
                                    let tap = place(self.window, of);
                                    let tap = match self.is_flipped {
                                        true => in_window - 1 - tap,
                                        false => tap,
                                    };
                                    sum += x[at] * w[tap];
                                }
                            }
                        }
                        sum
                    }));
                }
            }
        }
        y
    }
}

/// The result of a window of images (`cudnnPoolingMode_t`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pooling {
    /// The largest.
    #[default]
    Largest,
    /// The average, in which padding counts as zeros.
    Average,
    /// The average without padding.
    AverageWithin,
}

/// Pools images of these sizes (images, channels and dimensions) by a window.
///
/// # Errors
/// As [`Window::output`].
pub fn pool(
    mode: Pooling,
    x: &[f64],
    sizes: &[i64],
    window: &[i64],
    moves: &Window,
) -> Result<Vec<f64>> {
    let output = whole(&moves.output(&sizes[2..], window)?);
    let (image, window, moves) = (whole(&sizes[2..]), whole(window), moves.whole());
    let in_image = image.iter().product::<i64>() as usize;
    let in_window = window.iter().product::<i64>() as f64;
    let mut y = Vec::new();
    for x in x.chunks_exact(in_image) {
        y.extend(each(output).map(|out| {
            let taps = each(window).filter_map(|of| source(moves, image, out, of));
            let values: Vec<f64> = taps.map(|at| x[at]).collect();
            let sum: f64 = values.iter().sum();
            match mode {
                Pooling::Largest => values.into_iter().fold(f64::NEG_INFINITY, f64::max),
                Pooling::Average => sum / in_window,
                Pooling::AverageWithin => sum / values.len().max(1) as f64,
            }
        }));
    }
    Ok(y)
}

/// A function of one number (`cudnnActivationMode_t`).
///
/// # Errors
/// `NotSupported` for a function that is not here.
pub fn activation(
    mode: i32,
    coefficient: f64,
) -> Result<impl Fn(f64) -> f64 + Clone + Send + 'static> {
    require((0..=6).contains(&mode))?;
    if mode == 6 {
        return Err(Status::NotSupported);
    }
    Ok(move |x: f64| match mode {
        0 => 1.0 / (1.0 + (-x).exp()),
        1 => x.max(0.0),
        2 => x.tanh(),
        3 => x.max(0.0).min(coefficient),
        4 if x < 0.0 => coefficient * (x.exp() - 1.0),
        _ => x,
    })
}

/// The softmax over each of `outer` times `inner` rows of `count` numbers, which are `inner` apart; `is_logarithm` of
/// it.
pub fn softmax(x: &[f64], [outer, count, inner]: [usize; 3], is_logarithm: bool) -> Vec<f64> {
    let mut y = vec![0.0; x.len()];
    for outer in 0..outer {
        for inner_at in 0..inner {
            let at = |of: usize| (outer * count + of) * inner + inner_at;
            let largest = (0..count).map(|of| x[at(of)]).fold(f64::MIN, f64::max);
            let sum: f64 = (0..count).map(|of| (x[at(of)] - largest).exp()).sum();
            for of in 0..count {
                let shifted = x[at(of)] - largest;
                y[at(of)] = match is_logarithm {
                    true => shifted - sum.ln(),
                    false => shifted.exp() / sum,
                };
            }
        }
    }
    y
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(padding: &[i64], stride: &[i64], dilation: &[i64]) -> Window {
        Window {
            padding: padding.to_vec(),
            stride: stride.to_vec(),
            dilation: dilation.to_vec(),
        }
    }

    #[test]
    fn a_convolution_is_what_it_says() {
        let x: Vec<f64> = (1..=9).map(f64::from).collect();
        let w = [1.0, 0.0, 0.0, -1.0];
        let of = |moves: Window, is_flipped| {
            let (of, sizes) =
                Convolution::new(&[1, 1, 3, 3], &[1, 1, 2, 2], &moves, 1, is_flipped).unwrap();
            (of.run(&x, &w), sizes)
        };
        let plain = moves(&[0, 0], &[1, 1], &[1, 1]);
        assert_eq!(of(plain.clone(), false), (vec![-4.0; 4], vec![1, 1, 2, 2]));
        assert_eq!(of(plain, true).0, [4.0; 4]);
        let (y, sizes) = of(moves(&[1, 1], &[2, 2], &[1, 1]), false);
        assert_eq!((y, sizes), (vec![-1.0, -3.0, -7.0, -4.0], vec![1, 1, 2, 2]));
        let (y, sizes) = of(moves(&[0, 0], &[1, 1], &[2, 2]), false);
        assert_eq!((y, sizes), (vec![-8.0], vec![1, 1, 1, 1]));
    }

    #[test]
    fn groups_do_not_see_each_other() {
        let (of, sizes) = Convolution::new(
            &[1, 2, 1, 2],
            &[2, 1, 1, 1],
            &moves(&[0, 0], &[1, 1], &[1, 1]),
            2,
            false,
        )
        .unwrap();
        assert_eq!(sizes, [1, 2, 1, 2]);
        let y = of.run(&[1.0, 2.0, 3.0, 4.0], &[10.0, 100.0]);
        assert_eq!(y, [10.0, 20.0, 300.0, 400.0]);
        let wrong = moves(&[0, 0], &[1, 1], &[1, 1]);
        for (x, w, groups) in [
            ([1, 2, 1, 2], [2, 2, 1, 1], 2),
            ([1, 2, 1, 2], [3, 1, 1, 1], 2),
            ([1, 2, 1, 2], [2, 1, 2, 1], 2),
            ([1, 2, 1, 2], [2, 1, 1, 1], 0),
        ] {
            let made = Convolution::new(&x, &w, &wrong, groups, false);
            assert_eq!(made.err(), Some(Status::BadParam));
        }
    }

    #[test]
    fn pooling_knows_its_padding() {
        let x = [1.0, 2.0, 3.0, 4.0];
        let moves = moves(&[1, 1], &[2, 2], &[1, 1]);
        let of = |mode| pool(mode, &x, &[1, 1, 2, 2], &[2, 2], &moves).unwrap();
        assert_eq!(of(Pooling::Largest), x);
        assert_eq!(of(Pooling::Average), [0.25, 0.5, 0.75, 1.0]);
        assert_eq!(of(Pooling::AverageWithin), x);
    }

    #[test]
    fn a_softmax_adds_up_to_one() {
        let y = softmax(&[0.0, 1000.0, 0.0, 1000.0], [1, 2, 2], false);
        assert_eq!(y, [0.5; 4]);
        let y = softmax(&[1.0, 1.0], [1, 2, 1], true);
        assert_eq!(y, [-(2.0_f64.ln()); 2]);
    }
}
