// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Two VMs that train at once with different weights.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::Bench;

/// The VMs' weights. A VM trains a number of steps proportional to its weight, so that both need the same time.
pub const WEIGHTS: [u32; 2] = [1, 3];

/// The steps of the VM with weight 1.
const STEPS: usize = 100;

/// The output of `training.py`.
#[derive(Deserialize)]
struct Trained {
    weights: String,
    done: Vec<f64>,
}

/// The result of a VM.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Share {
    weight: u32,
    steps: usize,
    /// The time that it took alone, and together with the other.
    alone_seconds: f64,
    seconds: f64,
    /// The share of the GPU's time while both trained, from its steps and the time of one alone.
    share: f64,
    /// Whether the model's weights are bit-identical to those after training alone.
    is_same: bool,
}

/// Trains in each VM alone, and then in both.
///
/// # Errors
///
/// A program fails.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<Share>> {
    let mut alone = Vec::new();
    for (vm, weight) in WEIGHTS.into_iter().enumerate() {
        let directory = tempfile::tempdir()?;
        alone.push(train(bench, vm, weight, directory.path(), 1)?);
    }
    let directory = tempfile::tempdir()?;
    let directory = directory.path();
    let together: Vec<Result<Trained>> = std::thread::scope(|scope| {
        let threads: Vec<_> = WEIGHTS
            .into_iter()
            .enumerate()
            .map(|(vm, weight)| scope.spawn(move || train(bench, vm, weight, directory, 2)))
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined
            .map(|outcome| outcome.unwrap_or_else(|_| anyhow::bail!("a thread panicked")))
            .collect()
    });
    let together: Vec<Trained> = together.into_iter().collect::<Result<_>>()?;
    Ok(shares(&alone, &together))
}

fn train(
    bench: &Bench<'_>,
    vm: usize,
    weight: u32,
    directory: &std::path::Path,
    count: usize,
) -> Result<Trained> {
    let steps = (STEPS * weight as usize).to_string();
    let (directory, count) = (directory.to_string_lossy(), count.to_string());
    let said = bench.run_in(vm, "training.py", &[&steps, &directory, &count])?;
    serde_json::from_str(said.trim()).with_context(|| format!("training.py printed {said:?}"))
}

fn seconds(of: &Trained) -> f64 {
    of.done.last().unwrap_or(&0.0) - of.done.first().unwrap_or(&0.0)
}

fn shares(alone: &[Trained], together: &[Trained]) -> Vec<Share> {
    let first = |of: &Trained| of.done.first().copied().unwrap_or(0.0);
    let last = |of: &Trained| of.done.last().copied().unwrap_or(0.0);
    let begin = together.iter().map(first).fold(0.0, f64::max);
    let end = together.iter().map(last).fold(f64::INFINITY, f64::min);
    // The GPU time of the steps during which both trained.
    let time = |(alone, together): (&Trained, &Trained)| {
        let within = together.done.iter().filter(|at| (begin..=end).contains(at));
        let each = seconds(alone) / (alone.done.len() - 1).max(1) as f64;
        within.count() as f64 * each
    };
    let times: Vec<f64> = alone.iter().zip(together).map(time).collect();
    let all: f64 = times.iter().sum();
    let each = WEIGHTS.into_iter().zip(alone.iter().zip(together));
    each.zip(times)
        .map(|((weight, (alone, together)), time)| Share {
            weight,
            steps: together.done.len() - 1,
            alone_seconds: seconds(alone),
            seconds: seconds(together),
            share: time / all,
            is_same: alone.weights == together.weights,
        })
        .collect()
}

/// The shares as a table of a page.
pub fn table(shares: &[Share]) -> String {
    let mut text = String::from(
        "| weight | steps | alone | beside the other | share of the work | model as alone |\n|---|--:|--:|--:|--:|---|\n",
    );
    for of in shares {
        let _ = writeln!(
            text,
            "| {} | {} | {:.2} s | {:.2} s | {:.3} | {} |",
            of.weight,
            of.steps,
            of.alone_seconds,
            of.seconds,
            of.share,
            if of.is_same { "yes" } else { "**no**" }
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_of_the_time_in_which_both_train() {
        let trained = |weights: &str, done: Vec<f64>| Trained {
            weights: weights.to_owned(),
            done,
        };
        let steps = |begin: f64, each: f64, count: u32| {
            (0..=count).map(|at| begin + each * f64::from(at)).collect()
        };
        // A step takes a second alone. Together, the first VM gets a quarter of the GPU until the second is done.
        let alone = [
            trained("a", steps(0.0, 1.0, 10)),
            trained("b", steps(0.0, 1.0, 30)),
        ];
        let mut done: Vec<f64> = steps(100.5, 4.0, 9);
        done.extend([137.5, 138.5]);
        let together = [
            trained("a", done),
            trained("c", steps(100.0, 4.0 / 3.0, 27)),
        ];
        let found = shares(&alone, &together);
        assert!((found[0].share - 0.25).abs() < 0.02, "{found:?}");
        assert!((found[0].share + found[1].share - 1.0).abs() < 1e-9);
        assert!(found[0].is_same && !found[1].is_same);
        assert!((found[1].seconds - 36.0).abs() < 1e-9);
    }
}
