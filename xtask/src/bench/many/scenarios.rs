// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The scenarios, and the rows that they fill.

use anyhow::{Context, Result};

use super::figures::{jain, least_jain, median, sum_between, weight_error};
use super::load::Load;
use super::report::{Judge, Row};
use super::service::{Role, Terms, Usage};
use super::{Shown, Side, Stand, Vm, VmRow};

/// The length of a window in which the VMs' shares are compared, and the step to the next one, in microseconds.
const WINDOW: f64 = 2e6;
const STEP: f64 = 100e3;
/// The number of connected VMs in the crowd, and of working ones among them.
const CROWD: usize = 64;
const ACTIVE: usize = 16;
/// The socket of the first VM with another weight than the rest.
const WEIGHTED: usize = 8;
const WEIGHTS: [u32; 3] = [100, 200, 400];
/// The weight of the last VM but one: nearly the whole GPU. The last VM gets nearly nothing, and may not overrun for
/// long.
const HEAVY: u32 = 10_000;
const OVERRUN_LIMIT: &str = "500ms";
/// The processes of that VM with an endless kernel.
const ENDLESS: usize = 16;
/// The number of turns of the side with a scheduler and of the side without.
const PAIRS: usize = 8;

/// One part of the measurement.
pub struct Scenario {
    /// The name for the option that selects scenarios.
    pub name: &'static str,
    /// The name for the user while it runs.
    pub title: &'static str,
    /// Adds its rows.
    pub run: fn(&mut Measured) -> Result<()>,
}

/// All scenarios. The work of one VM alone comes first, because the others are compared with it.
pub const ALL: [Scenario; 7] = [
    Scenario {
        name: "alone",
        title: "each VM alone",
        run: alone,
    },
    Scenario {
        name: "unlike",
        title: "eight VMs with unlike loads",
        run: unlike,
    },
    Scenario {
        name: "weights",
        title: "weights 1:2:4",
        run: weighted,
    },
    Scenario {
        name: "wait",
        title: "short kernels beside long ones",
        run: wait,
    },
    Scenario {
        name: "overrun",
        title: "endless kernels beside a VM with all the weight",
        run: overrun,
    },
    Scenario {
        name: "overhead",
        title: "one VM with and without the scheduler",
        run: overhead,
    },
    Scenario {
        name: "crowd",
        title: "64 VMs, 16 of them active",
        run: crowd,
    },
];

/// The policy of the service's VMs.
pub fn terms(real: bool) -> Vec<Terms> {
    let mut all = vec![
        Terms::weight(100);
        if real {
            CROWD
        } else {
            WEIGHTED + WEIGHTS.len()
        }
    ];
    for (terms, weight) in all[WEIGHTED..].iter_mut().zip(WEIGHTS) {
        *terms = Terms::weight(weight);
    }
    all.push(Terms::weight(HEAVY));
    all.push(Terms {
        weight: 1,
        overrun_limit: Some(OVERRUN_LIMIT),
    });
    all
}

/// The measurements so far.
pub struct Measured<'a> {
    stand: &'a Stand<'a>,
    /// The kernel's iterations in a millisecond.
    iterations: f64,
    /// The rows so far.
    pub rows: Vec<Row>,
    /// The VMs with different loads.
    pub vms: Vec<VmRow>,
    /// The use of the service's processes with many VMs.
    pub roles: Vec<Role>,
}

impl<'a> Measured<'a> {
    /// Without rows.
    pub fn new(stand: &'a Stand<'a>, iterations: f64) -> Self {
        Self {
            stand,
            iterations,
            rows: Vec::new(),
            vms: Vec::new(),
            roles: Vec::new(),
        }
    }

    /// A VM whose kernels take `kernel_us` and fill the GPU; `more` is the rest of its command line.
    fn vm(&self, name: &'static str, processes: usize, kernel_us: f64, more: &str) -> Vm {
        let iterations = (self.iterations * kernel_us / 1000.0).round().max(1.0);
        let mut words = format!("--kernel-us {kernel_us} --iterations {iterations} {more}");
        if !self.stand.real {
            words.push_str(" --blocks 1");
        }
        Vm {
            name,
            load: Load::new(&words),
            reference: None,
            processes,
        }
    }

    /// The eight VMs with different loads. Each could keep the GPU busy by itself.
    fn unlike(&self) -> Vec<Vm> {
        let (large, small) = if self.stand.real {
            (16 << 20, 4 << 20)
        } else {
            (1 << 20, 64 << 10)
        };
        let mut quarter = self.vm(
            "quarter of the GPU, 8 streams",
            1,
            500.0,
            "--load kernels --depth 64 --streams 8",
        );
        if self.stand.real {
            quarter
                .load
                .arguments
                .extend(["--blocks".to_owned(), QUARTER.to_owned()]);
        }
        let mut waiting = self.vm("1 ms kernels, each waited for", 1, 1000.0, "--load sync");
        let ahead = self.vm("", 1, 1000.0, "--load kernels --depth 8");
        waiting.reference = Some(ahead.load.clone());
        // Even alone, its processes compete: the driver switches between them.
        let mut several = self.vm(
            "eight processes, 1 ms kernels",
            8,
            1000.0,
            "--load kernels --depth 8",
        );
        several.reference = Some(ahead.load);
        vec![
            self.vm("100 us kernels", 1, 100.0, "--load kernels --depth 64"),
            self.vm("5 ms kernels", 1, 5000.0, "--load kernels --depth 4"),
            self.vm(
                "copies only",
                1,
                300.0,
                &format!("--load copies --bytes {large} --depth 4"),
            ),
            self.vm(
                "copies and 1 ms kernels",
                1,
                1000.0,
                &format!("--load mixed --bytes {small} --depth 4"),
            ),
            several,
            self.vm(
                "1000 launches ahead",
                1,
                100.0,
                "--load kernels --depth 1000",
            ),
            waiting,
            quarter,
        ]
    }

    fn seconds(&self, seconds: f64) -> f64 {
        if self.stand.quick {
            seconds / 2.0
        } else {
            seconds
        }
    }

    fn row(&mut self, name: &str, unit: &'static str, values: &[(Side, f64)], goal: Option<Judge>) {
        // Goals need a shared GPU.
        let goal = goal.filter(|_| self.stand.real);
        self.rows.push(Row::new(name, unit, values, goal));
    }
}

/// A quarter of the blocks that an H200 holds at a time.
const QUARTER: &str = "264";

/// The GPU time of each VM relative to its work alone.
fn part(shown: &Shown, alone: &[f64], vm: usize, from: f64, to: f64) -> f64 {
    sum_between(&shown.done[vm], from, to) / ((to - from) * 1e-6) / alone[vm]
}

/// Writes the VMs' shares in each window to a file, which shows the least fair one.
fn note_windows(stand: &Stand<'_>, side: Side, shown: &Shown, alone: &[f64]) -> Result<()> {
    let (from, to) = shown.span;
    let windows = (0..).map(|number| from + f64::from(number) * STEP);
    let parts: Vec<Vec<f64>> = windows
        .take_while(|begin| begin + WINDOW <= to + STEP * 0.01)
        .map(|begin| {
            let vms = 0..alone.len();
            vms.map(|vm| part(shown, alone, vm, begin, begin + WINDOW))
                .collect()
        })
        .collect();
    let path = stand
        .logs
        .join(format!("many-windows-{}.json", side.name()));
    std::fs::write(path, serde_json::to_string(&parts)?)?;
    Ok(())
}

fn fairness(shown: &Shown, alone: &[f64]) -> f64 {
    least_jain(alone.len(), shown.span, WINDOW, STEP, |vm, from, to| {
        part(shown, alone, vm, from, to)
    })
}

fn accounted_fairness(shown: &Shown) -> Option<f64> {
    (!shown.accounts.is_empty()).then(|| {
        least_jain(
            shown.accounts.len(),
            shown.span,
            WINDOW,
            STEP,
            |vm, from, to| shown.accounts[vm].between(from, to),
        )
    })
}

fn work(shown: &Shown, alone: &[f64]) -> f64 {
    let parts = alone
        .iter()
        .enumerate()
        .map(|(vm, alone)| shown.rate(vm) / alone);
    parts.sum()
}

fn alone(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    for (number, vm) in measured.unlike().iter().enumerate() {
        let mut row = VmRow::new(vm);
        let mut vm = vm.clone();
        if let Some(load) = vm.reference.take() {
            (vm.load, vm.processes) = (load, 1);
        }
        for side in stand
            .sides()
            .filter(|side| *side == Side::Native || *side == stand.ours())
        {
            let name = format!("alone-{number}");
            let seconds = measured.seconds(1.5);
            let shown = stand.run(
                side,
                (std::slice::from_ref(&vm), number),
                seconds,
                &name,
                || Ok(()),
            )?;
            let rate = shown.rate(0);
            if side == Side::Native {
                row.alone_native = rate;
            } else {
                row.alone_ours = rate;
            }
        }
        measured.vms.push(row);
    }
    Ok(())
}

impl Measured<'_> {
    fn alone(&self, side: Side) -> Result<Vec<f64>> {
        let rate = |row: &VmRow| match side {
            Side::Native => row.alone_native,
            _ => row.alone_ours,
        };
        let rates: Vec<f64> = self.vms.iter().map(rate).collect();
        (!rates.is_empty() && rates.iter().all(|rate| *rate > 0.0))
            .then_some(rates)
            .context("the VMs' rates alone were not measured")
    }
}

fn unlike(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    let vms = measured.unlike();
    let (mut fair, mut accounted, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    for side in stand.sides() {
        let alone = measured.alone(side)?;
        let shown = stand.run(side, (&vms, 0), measured.seconds(8.0), "unlike", || Ok(()))?;
        note_windows(stand, side, &shown, &alone)?;
        fair.push((side, fairness(&shown, &alone)));
        sums.push((side, work(&shown, &alone)));
        if let Some(value) = accounted_fairness(&shown) {
            accounted.push((side, value));
        }
        for (vm, row) in measured.vms.iter_mut().enumerate() {
            let (from, to) = shown.span;
            row.parts
                .insert(side.name().to_owned(), part(&shown, &alone, vm, from, to));
            if let Some(series) = shown.accounts.get(vm) {
                let accounted = series.between(from, to) / (to - from);
                row.accounted.insert(side.name().to_owned(), accounted);
            }
        }
    }
    let goal = Some(Judge::AtLeast(0.99));
    measured.row("fairness, worst 2 s, by work done", "Jain", &fair, goal);
    if !accounted.is_empty() {
        measured.row("fairness, worst 2 s, by GPU time", "Jain", &accounted, goal);
    }
    measured.row(
        "work of all, parts of one alone",
        "",
        &sums,
        Some(Judge::AtLeast(0.97)),
    );
    Ok(())
}

fn weighted(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    let weights = WEIGHTS.map(f64::from);
    let loads = [100.0, 1000.0, 2000.0];
    let vms: Vec<Vm> = loads
        .iter()
        .map(|us| measured.vm("weighted", 1, *us, "--load kernels --depth 32"))
        .collect();
    let mut errors = Vec::new();
    let mut accounted = Vec::new();
    let mut given: [Vec<(Side, f64)>; 3] = Default::default();
    for side in stand.sides() {
        if side == Side::Scheduled && !stand.features.policy {
            continue;
        }
        let mut alone = Vec::new();
        let seconds = measured.seconds(1.0);
        for (number, vm) in vms.iter().enumerate() {
            let name = format!("weights-alone-{number}");
            let one = (std::slice::from_ref(vm), WEIGHTED + number);
            alone.push(stand.run(side, one, seconds, &name, || Ok(()))?.rate(0));
        }
        let shown = stand.run(
            side,
            (&vms, WEIGHTED),
            measured.seconds(5.0),
            "weights",
            || Ok(()),
        )?;
        let (from, to) = shown.span;
        let parts: Vec<f64> = (0..vms.len())
            .map(|vm| part(&shown, &alone, vm, from, to))
            .collect();
        errors.push((side, 100.0 * weight_error(&parts, &weights)));
        let sum: f64 = parts.iter().sum();
        for (given, part) in given.iter_mut().zip(&parts) {
            given.push((side, part / sum));
        }
        if !shown.accounts.is_empty() {
            let had: Vec<f64> = shown
                .accounts
                .iter()
                .map(|series| series.between(from, to))
                .collect();
            accounted.push((side, 100.0 * weight_error(&had, &weights)));
        }
    }
    let goal = Some(Judge::AtMost(3.0));
    measured.row(
        "weights 1:2:4, worst error, by work done",
        "%",
        &errors,
        goal,
    );
    if !accounted.is_empty() {
        measured.row(
            "weights 1:2:4, worst error, by GPU time",
            "%",
            &accounted,
            goal,
        );
    }
    for (weight, given) in WEIGHTS.iter().zip(&given) {
        let name = format!("weight {weight} of 700: part of what the three get");
        measured.row(&name, "", given, None);
    }
    Ok(())
}

fn wait(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    let mut vms = vec![measured.vm(
        "100 us kernels, each waited for",
        1,
        100.0,
        "--load sync --note-ms 12 --delay-ms 1000",
    )];
    vms.extend((0..7).map(|_| measured.vm("5 ms kernels", 1, 5000.0, "--load kernels --depth 4")));
    let mut values: [Vec<(Side, f64)>; 4] = Default::default();
    for side in stand.sides() {
        // It starts when the others have begun.
        let (alone, beside) = (measured.seconds(1.0), measured.seconds(5.0));
        let shown = stand.run(side, (&vms[..1], 0), 1.0 + alone, "wait-alone", || Ok(()))?;
        let one = shown.last_rate(0, alone);
        let shown = stand.run(side, (&vms, 0), 1.0 + beside, "wait", || Ok(()))?;
        for (value, us) in values.iter_mut().zip(shown.waits[0]) {
            value.push((side, us / 1e3));
        }
        values[3].push((side, shown.last_rate(0, beside) / one));
    }
    let [median, most, worst, parts] = values;
    measured.row(
        "100 us kernel beside 7 VMs of 5 ms ones: median wait",
        "ms",
        &median,
        None,
    );
    measured.row(
        "the same, 99th percentile",
        "ms",
        &most,
        Some(Judge::AtMost(15.0)),
    );
    measured.row("the same, worst", "ms", &worst, Some(Judge::AtMost(30.0)));
    measured.row("the same, rate, parts of one alone", "", &parts, None);
    Ok(())
}

/// Endless kernels begin while no other VM needs the GPU. Half a second later, a VM with nearly all the weight starts.
fn overrun(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    let first = terms(stand.real).len() - 2;
    let heavy = measured.vm(
        "100 us kernels",
        1,
        100.0,
        "--load kernels --depth 64 --delay-ms 500",
    );
    let processes = if stand.real { ENDLESS } else { 2 };
    let endless = measured.vm("endless kernels", processes, 1.0, "--load endless");
    let vms = [heavy, endless];
    let mut values = Vec::new();
    for side in stand.sides() {
        let alone = stand.run(side, (&vms[..1], first), 2.0, "overrun-alone", || Ok(()))?;
        let one = alone.last_rate(0, 1.0);
        let shown = stand.run(side, (&vms, first), 4.5, "overrun", || Ok(()))?;
        values.push((side, shown.last_rate(0, 2.0) / one));
    }
    measured.row(
        &format!("weight {HEAVY} beside {processes} endless processes of weight 1, after 2 s: part of one alone"),
        "",
        &values,
        Some(Judge::AtLeast(0.9)),
    );
    Ok(())
}

fn overhead(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    if !stand.features.scheduler {
        return Ok(());
    }
    let empty = "--load kernels --depth 512 --blocks 1";
    let loads = [
        (
            "one VM alone, 100 us kernels",
            measured.vm("100 us kernels", 1, 100.0, "--load kernels --depth 64"),
        ),
        (
            "one VM alone, 1 us kernels",
            measured.vm("1 us kernels", 1, 1.0, empty),
        ),
        (
            "one VM alone, 100 us kernels, each waited for",
            measured.vm("100 us kernels", 1, 100.0, "--load sync"),
        ),
    ];
    let sides = [Side::Driver, Side::Scheduled];
    for (number, (name, vm)) in loads.into_iter().enumerate() {
        let mut rates: [Vec<f64>; 2] = Default::default();
        for pair in 0..if stand.quick { 4 } else { PAIRS } {
            // Each side comes first equally often.
            let mut turns: Vec<_> = sides.into_iter().zip(&mut rates).collect();
            if pair % 2 == 1 {
                turns.reverse();
            }
            for (side, rates) in turns {
                let run = format!("overhead-{number}");
                let one = (std::slice::from_ref(&vm), 0);
                rates.push(
                    stand
                        .run(side, one, measured.seconds(0.8), &run, || Ok(()))?
                        .rate(0),
                );
            }
        }
        let path = stand.logs.join(format!("many-overhead-{number}.json"));
        std::fs::write(path, serde_json::to_string(&rates)?)?;
        let [without, with] = rates.map(|rates| median(&rates));
        let values = [(Side::Driver, 1.0), (Side::Scheduled, with / without)];
        measured.row(
            &format!("{name}, rate"),
            "",
            &values,
            Some(Judge::AtLeast(0.99)),
        );
    }
    Ok(())
}

fn crowd(measured: &mut Measured) -> Result<()> {
    let stand = measured.stand;
    let (crowd, active) = if stand.real { (CROWD, ACTIVE) } else { (4, 2) };
    let side = stand.ours();
    let working = measured.vm("1 ms kernels", 1, 1000.0, "--load kernels --depth 8");
    let seconds = measured.seconds(1.0);
    let one = stand.run(
        side,
        (std::slice::from_ref(&working), 0),
        seconds,
        "crowd-alone",
        || Ok(()),
    )?;
    let idle = measured.vm("idle", 1, 1.0, "--load idle");
    // The weighted VMs are among the idle ones.
    let mut vms = vec![idle; crowd];
    let rest = (0..crowd).filter(|number| !(WEIGHTED..WEIGHTED + WEIGHTS.len()).contains(number));
    let active: Vec<usize> = rest.take(active).collect();
    for number in &active {
        vms[*number] = working.clone();
    }
    let service = stand.service(side).context("no service")?;
    let root = service.backend.id();
    let mut roles = Vec::new();
    let shown = stand.run(side, (&vms, 0), measured.seconds(8.0), "crowd", || {
        let before = Usage::now(root);
        std::thread::sleep(std::time::Duration::from_secs_f64(measured.seconds(2.0)));
        roles = Usage::now(root).since(&before);
        Ok(())
    })?;
    let (from, to) = shown.span;
    let of = |from: f64, to: f64| -> Vec<f64> {
        let part = |vm: &usize| sum_between(&shown.done[*vm], from, to);
        active.iter().map(part).collect()
    };
    let fair = least_jain(
        active.len(),
        (from, to),
        WINDOW,
        STEP,
        |number, from, to| of(from, to)[number],
    );
    let whole = jain(&of(from, to));
    let sum = active.iter().map(|vm| shown.rate(*vm) / one.rate(0)).sum();
    measured.roles = roles;
    let name = format!("{crowd} VMs, {} active", active.len());
    measured.row(
        &format!("{name}: fairness, worst 2 s"),
        "Jain",
        &[(side, fair)],
        Some(Judge::AtLeast(0.99)),
    );
    measured.row(
        &format!("{name}: fairness, whole time"),
        "Jain",
        &[(side, whole)],
        None,
    );
    measured.row(
        &format!("{name}: work of all"),
        "",
        &[(side, sum)],
        Some(Judge::AtLeast(0.97)),
    );
    Ok(())
}
