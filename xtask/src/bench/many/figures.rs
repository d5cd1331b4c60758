// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Figures computed from the loads' output: shares, windows, fairness. Times are in microseconds of the monotonic
//! clock.

/// The amount of work done, by time, in ascending order of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series(pub Vec<(f64, f64)>);

impl Series {
    /// The amount done at `time`: interpolated between the two neighbouring samples, and constant beyond the ends.
    pub fn at(&self, time: f64) -> f64 {
        let after = self.0.partition_point(|(t, _)| *t < time);
        match (
            after.checked_sub(1).and_then(|i| self.0.get(i)),
            self.0.get(after),
        ) {
            (None, None) => 0.0,
            (None, Some((_, done))) | (Some((_, done)), None) => *done,
            (Some((t0, d0)), Some((t1, d1))) => d0 + (d1 - d0) * (time - t0) / (t1 - t0),
        }
    }

    /// The amount done between two times.
    pub fn between(&self, from: f64, to: f64) -> f64 {
        self.at(to) - self.at(from)
    }
}

/// The sum of several series between two times.
pub fn sum_between(series: &[Series], from: f64, to: f64) -> f64 {
    series.iter().map(|one| one.between(from, to)).sum()
}

/// Jain's index of fairness: 1 if all have the same share, 1/n if one has everything, and 1 if nobody has anything.
pub fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    if squares == 0.0 {
        return 1.0;
    }
    sum * sum / (shares.len() as f64 * squares)
}

/// The least Jain's index of `share`'s results for `count` participants, over all windows of `length` between two
/// times, which start a step apart. If no window fits, the index for the whole time.
pub fn least_jain(
    count: usize,
    (from, to): (f64, f64),
    length: f64,
    step: f64,
    share: impl Fn(usize, f64, f64) -> f64,
) -> f64 {
    let length = length.min(to - from);
    let mut least: f64 = 1.0;
    let mut begin = from;
    while begin + length <= to + step * 0.01 {
        let shares: Vec<f64> = (0..count)
            .map(|index| share(index, begin, begin + length))
            .collect();
        least = least.min(jain(&shares));
        begin += step;
    }
    least
}

/// The largest deviation of a share from its weight, relative to the weight.
pub fn weight_error(shares: &[f64], weights: &[f64]) -> f64 {
    let (all, whole): (f64, f64) = (shares.iter().sum(), weights.iter().sum());
    if all <= 0.0 {
        return 1.0;
    }
    shares
        .iter()
        .zip(weights)
        .map(|(share, weight)| ((share / all) / (weight / whole) - 1.0).abs())
        .fold(0.0, f64::max)
}

/// The median.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        length if length % 2 == 1 => sorted[middle],
        _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_read_between_its_looks() {
        let series = Series(vec![(10.0, 0.0), (20.0, 100.0), (30.0, 100.0)]);
        assert_eq!(series.at(5.0), 0.0);
        assert_eq!(series.at(15.0), 50.0);
        assert_eq!(series.at(20.0), 100.0);
        assert_eq!(series.at(99.0), 100.0);
        assert_eq!(series.between(12.0, 17.0), 50.0);
        assert_eq!(sum_between(&[series.clone(), series], 10.0, 20.0), 200.0);
        assert_eq!(Series::default().at(1.0), 0.0);
    }

    #[test]
    fn jains_index_is_between_one_nth_and_one() {
        assert_eq!(jain(&[2.0, 2.0, 2.0]), 1.0);
        assert_eq!(jain(&[3.0, 0.0, 0.0]), 1.0 / 3.0);
        assert_eq!(jain(&[0.0, 0.0]), 1.0);
        assert!((jain(&[1.0, 1.1]) - 0.9977).abs() < 1e-4);
    }

    #[test]
    fn the_worst_window_counts() {
        // One load that works all the time, and one that stops half-way.
        let steady = Series(vec![(0.0, 0.0), (10.0, 10.0)]);
        let stops = Series(vec![(0.0, 0.0), (5.0, 5.0), (10.0, 5.0)]);
        let all = [steady, stops];
        let least = |length| {
            least_jain(2, (0.0, 10.0), length, 1.0, |i, from, to| {
                all[i].between(from, to)
            })
        };
        assert_eq!(least(2.0), 0.5);
        assert!((least(20.0) - 0.9).abs() < 1e-9, "the whole time");
    }

    #[test]
    fn weights_are_compared_as_parts() {
        assert!(weight_error(&[10.0, 20.0, 40.0], &[1.0, 2.0, 4.0]) < 1e-9);
        let error = weight_error(&[11.0, 20.0, 39.0], &[1.0, 2.0, 4.0]);
        assert!((error - 0.1).abs() < 1e-9, "{error}");
        assert_eq!(weight_error(&[0.0, 0.0], &[1.0, 1.0]), 1.0);
    }

    #[test]
    fn medians_of_odd_and_even_counts() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
