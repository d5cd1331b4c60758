// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The measurements and their goals: suites of programs, and the rows that they fill.

use std::fmt;

/// A row's goal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Goal {
    /// The ratio of ours to the native figure is at most this.
    RatioAtMost(f64),
    /// The ratio of ours to the native figure is at least this.
    RatioAtLeast(f64),
    /// Ours is at most this, in the row's unit.
    AtMost(f64),
    /// Ours is at most the sum of the native figure and this, in the row's unit.
    NativeAnd(f64),
}

impl Goal {
    /// Whether these medians meet the goal.
    pub fn met(self, native: f64, ours: f64) -> bool {
        match self {
            Self::RatioAtMost(limit) => ours <= limit * native,
            Self::RatioAtLeast(limit) => ours >= limit * native,
            Self::AtMost(limit) => ours <= limit,
            Self::NativeAnd(limit) => ours <= native + limit,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RatioAtMost(limit) => write!(f, "<= {limit:.2}"),
            Self::RatioAtLeast(limit) => write!(f, ">= {limit:.2}"),
            Self::AtMost(limit) => write!(f, "ours <= {limit}"),
            Self::NativeAnd(limit) => write!(f, "<= native + {limit}"),
        }
    }
}

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The row's name.
    pub name: String,
    /// The program's name of the measurement.
    pub measure: String,
    /// The program's argument for the measurement; empty if it has only one.
    pub argument: String,
    /// The unit of the figures.
    pub unit: &'static str,
    /// The row's goal.
    pub goal: Option<Goal>,
}

/// How a suite is run, besides natively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over the back end's socket.
    Socket,
    /// In the VM.
    Vm,
}

/// The program of a suite.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A program of `benches/programs`, which prints its measurements, and how it is linked.
    Bench(&'static str, &'static str),
    /// A program of `tests/programs` with the static runtime, timed as a whole.
    Whole(&'static str, Vec<String>),
    /// The idle program, which is measured from outside, and its seconds.
    Idle(f64),
}

/// One program with the rows that its runs fill.
#[derive(Clone, Debug, PartialEq)]
pub struct Suite {
    /// The name that is shown while it runs.
    pub title: String,
    /// The program.
    pub source: Source,
    /// How it is run, besides natively.
    pub way: Way,
    /// The number of runs of each side.
    pub rounds: usize,
    /// Seconds that one run may take.
    pub limit: u64,
    /// The rows that it fills.
    pub rows: Vec<Row>,
}

/// The extent of the measurements.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// On an NVIDIA GPU: the papers' sizes and the goals.
    pub gpu: bool,
    /// Fewer rounds.
    pub quick: bool,
    /// With rows that take minutes.
    pub long: bool,
    /// With a VM.
    pub vm: bool,
    /// Whether the VM uses KVM: only then do total times in it count.
    pub kvm: bool,
}

impl Scope {
    /// Every suite of this scope.
    pub fn suites(self) -> Vec<Suite> {
        let mut suites = vec![self.calls(), self.features(), self.starts(), self.runtime()];
        suites.push(self.socket_copies());
        for (name, most) in [
            ("binomial-options", 3),
            ("black-scholes", 3),
            ("matrix-multiplication", 3),
            ("stereo-disparity", 3),
            ("radix-sort", 3),
        ] {
            let size = if self.gpu { "paper" } else { "small" };
            let args = vec!["--size".to_owned(), size.to_owned()];
            suites.push(self.whole(name, &format!("program-{name}"), args, Way::Socket, most));
        }
        suites.push(self.stereo(12.5, Way::Socket, 3));
        if self.long {
            suites.push(self.stereo(100.0, Way::Socket, 2));
        }
        suites.push(self.idle(Way::Socket));
        if self.vm {
            suites.push(self.vm_copies());
            suites.push(self.stereo(12.5, Way::Vm, 2));
            if self.long {
                suites.push(self.stereo(100.0, Way::Vm, 2));
            }
            suites.push(self.idle(Way::Vm));
        }
        suites
    }

    fn rounds(self, most: usize) -> usize {
        if self.quick { most.min(2) } else { most }
    }

    /// A goal that only applies to a GPU.
    fn goal(self, goal: Goal) -> Option<Goal> {
        self.gpu.then_some(goal)
    }

    fn calls(self) -> Suite {
        let us = |name: &str, argument: &str, goal: Option<Goal>| Row {
            name: name.to_owned(),
            measure: name.to_owned(),
            argument: argument.to_owned(),
            unit: "us",
            goal,
        };
        let equal = self.goal(Goal::RatioAtMost(1.0));
        let mut rows = vec![
            us(
                "launch-call",
                "launch-call",
                self.goal(Goal::RatioAtMost(0.1)),
            ),
            us(
                "launch-sustained",
                "launch-sustained",
                self.goal(Goal::RatioAtMost(0.60)),
            ),
            us("launch-sync-median", "launch-sync", equal),
            us(
                "launch-sync-p99",
                "launch-sync",
                self.goal(Goal::RatioAtMost(1.2)),
            ),
            us("event-record-query", "event-record-query", equal),
            us("event-done", "event-done", None),
            us("copy-4B-h2d", "copy-4B-h2d", equal),
            us("copy-4B-d2h", "copy-4B-d2h", equal),
            us("allocate-free-1MiB", "allocate-free-1MiB", equal),
            us(
                "allocate-free-async-1MiB",
                "allocate-free-async-1MiB",
                equal,
            ),
        ];
        rows.extend(
            [
                "cuCtxGetCurrent",
                "cuCtxGetDevice",
                "cuCtxSetCurrent",
                "cuDeviceGetAttribute",
                "cuFuncGetAttribute",
                "cuDevicePrimaryCtxGetState",
                "cuPointerGetAttribute",
            ]
            .map(answered),
        );
        Suite {
            title: "calls of the driver API".to_owned(),
            source: Source::Bench("calls", "driver"),
            way: Way::Socket,
            rounds: self.rounds(5),
            limit: 120,
            rows,
        }
    }

    fn features(self) -> Suite {
        let row = |name: &str, argument: &str, most: f64| Row {
            name: name.to_owned(),
            measure: name.to_owned(),
            argument: argument.to_owned(),
            unit: "us",
            goal: self.goal(Goal::RatioAtMost(most)),
        };
        let own = |name: &str, most| row(name, name, most);
        let launches = "graph-launch-20";
        Suite {
            title: "graphs, memory of all kinds and idle streams".to_owned(),
            source: Source::Bench("features", "driver"),
            way: Way::Socket,
            rounds: self.rounds(5),
            limit: 120,
            rows: vec![
                own("launch-varied-sustained", 0.6),
                own("event-record-wait", 1.0),
                own("stream-query", 1.0),
                own("map-unmap-64MiB", 1.5),
                own("managed-256MiB", 2.0),
                own("texture-copy-64MiB", 1.0),
                own("host-allocate-free-64KiB", 1.0),
                own("copy-rows-16KiB", 1.0),
                own("copy-rows-4MiB", 1.0),
                own("copy-wait-1MiB", 1.0),
                own("graph-make-100", 1.5),
                row("graph-launch-20", launches, 0.2),
                row("graph-launch-20-sustained", launches, 1.0),
                Row {
                    goal: None,
                    ..own("graph-update-100", 1.0)
                },
            ],
        }
    }

    fn starts(self) -> Suite {
        Suite {
            title: "process start, driver API".to_owned(),
            source: Source::Bench("start", "driver"),
            way: Way::Socket,
            rounds: self.rounds(7),
            limit: 60,
            rows: vec![Row {
                name: "start-driver".to_owned(),
                measure: "start-driver".to_owned(),
                argument: String::new(),
                unit: "ms",
                goal: self.goal(Goal::RatioAtMost(0.25)),
            }],
        }
    }

    fn runtime(self) -> Suite {
        let mut rows = vec![Row {
            name: "start-runtime".to_owned(),
            measure: "start-runtime".to_owned(),
            argument: "start-runtime".to_owned(),
            unit: "ms",
            goal: self.goal(Goal::RatioAtMost(0.25)),
        }];
        rows.extend(
            [
                "cudaGetDevice",
                "cudaDeviceGetAttribute",
                "cudaGetLastError",
            ]
            .map(answered),
        );
        Suite {
            title: "process start and calls, runtime API".to_owned(),
            source: Source::Bench("runtime", "static"),
            way: Way::Socket,
            rounds: self.rounds(7),
            limit: 60,
            rows,
        }
    }

    fn sizes(self, all: &'static [u32]) -> impl Iterator<Item = u32> {
        let most = if self.gpu { 256 } else { 64 };
        all.iter().copied().filter(move |size| *size <= most)
    }

    fn copy_rows(
        self,
        kind: &str,
        sizes: &'static [u32],
        goal: Option<Goal>,
        vm: bool,
    ) -> Vec<Row> {
        let mut rows = Vec::new();
        for size in self.sizes(sizes) {
            for direction in ["h2d", "d2h"] {
                let measure = format!("{kind}-{direction}-{size}");
                rows.push(Row {
                    name: format!("{measure}MiB{}", if vm { "-vm" } else { "" }),
                    measure: measure.clone(),
                    argument: measure,
                    unit: "GB/s",
                    goal,
                });
            }
        }
        rows
    }

    fn socket_copies(self) -> Suite {
        let pinned = self.goal(Goal::RatioAtLeast(0.98));
        let pageable = self.goal(Goal::RatioAtLeast(1.5));
        let mut rows = self.copy_rows("pinned", &[16, 64, 256], pinned, false);
        rows.extend(self.copy_rows("pageable", &[64, 256], pageable, false));
        Suite {
            title: "copies, over the socket".to_owned(),
            source: Source::Bench("copies", "driver"),
            way: Way::Socket,
            rounds: self.rounds(3),
            limit: 120,
            rows,
        }
    }

    fn vm_copies(self) -> Suite {
        let pinned = self.goal(Goal::RatioAtLeast(0.98));
        let huge = self.goal(Goal::RatioAtLeast(4.0));
        let mut rows = self.copy_rows("pinned", &[16, 64, 256], pinned, true);
        rows.extend(self.copy_rows("huge", &[64, 256], huge, true));
        rows.extend(self.copy_rows("small", &[64, 256], None, true));
        Suite {
            title: "copies, in the VM".to_owned(),
            source: Source::Bench("copies", "driver"),
            way: Way::Vm,
            rounds: self.rounds(3),
            limit: 240,
            rows,
        }
    }

    fn whole(
        self,
        program: &'static str,
        name: &str,
        args: Vec<String>,
        way: Way,
        rounds: usize,
    ) -> Suite {
        let goal = self.goal(Goal::RatioAtMost(1.0));
        let row = |suffix: &str, measure: &str, goal| Row {
            name: format!("{name}{suffix}"),
            measure: measure.to_owned(),
            argument: String::new(),
            unit: "ms",
            goal,
        };
        // An emulated guest creates and checks the data many times slower. There, only the time of the CUDA part
        // counts.
        let rows = match way {
            Way::Socket => vec![row("", "whole", goal), row("-cuda", "cuda", None)],
            Way::Vm if self.kvm => vec![row("-vm", "whole", goal), row("-cuda-vm", "cuda", None)],
            Way::Vm => vec![row("-cuda-vm", "cuda", goal)],
        };
        Suite {
            title: format!(
                "{name}, {}",
                if way == Way::Vm {
                    "in the VM"
                } else {
                    "over the socket"
                }
            ),
            source: Source::Whole(program, args),
            way,
            rounds: self.rounds(rounds),
            limit: 300,
            rows,
        }
    }

    /// Stereo Disparity with this number of gigabytes (10^9 bytes) of copies; less on the software GPU.
    fn stereo(self, gigabytes: f64, way: Way, rounds: usize) -> Suite {
        let (size, copies) = if self.gpu {
            ("paper", gigabytes)
        } else {
            ("small", gigabytes / 50.0)
        };
        // Two frames: the copies are measured, and an emulated guest takes long to create a frame.
        let args = ["--size", size, "--frames", "2", "--copies"].map(str::to_owned);
        let args = args.into_iter().chain([copies.to_string()]).collect();
        let name = format!("stereo-{copies}GB");
        self.whole("stereo-disparity", &name, args, way, rounds)
    }

    fn idle(self, way: Way) -> Suite {
        let suffix = if way == Way::Vm { "-vm" } else { "" };
        let row = |name: &str, unit, goal| Row {
            name: format!("{name}{suffix}"),
            measure: name.to_owned(),
            argument: String::new(),
            unit,
            goal,
        };
        // Less than one clock tick of the whole time.
        let mut rows = vec![row("idle-host-cpu", "%", Some(Goal::AtMost(0.05)))];
        if way == Way::Socket || self.kvm {
            rows.push(row("idle-own-cpu", "%", Some(Goal::AtMost(0.05))));
            rows.push(row(
                "idle-first-call",
                "us",
                self.goal(Goal::NativeAnd(100.0)),
            ));
        }
        Suite {
            title: format!(
                "idling, {}",
                if way == Way::Vm {
                    "in the VM"
                } else {
                    "over the socket"
                }
            ),
            source: Source::Idle(if self.quick { 3.0 } else { 10.0 }),
            way,
            rounds: if way == Way::Vm { 1 } else { self.rounds(2) },
            limit: 120,
            rows,
        }
    }
}

/// A row for a call that the library answers without the host.
fn answered(call: &str) -> Row {
    Row {
        name: call.to_owned(),
        measure: call.to_owned(),
        argument: call.to_owned(),
        unit: "ns",
        goal: Some(Goal::AtMost(50.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn goals_compare_in_the_right_direction() {
        assert!(Goal::RatioAtMost(0.1).met(4.0, 0.4));
        assert!(!Goal::RatioAtMost(0.1).met(4.0, 0.5));
        assert!(Goal::RatioAtLeast(4.0).met(8.0, 33.0));
        assert!(!Goal::RatioAtLeast(4.0).met(8.0, 31.0));
        assert!(!Goal::AtMost(50.0).met(100.0, 51.0));
        assert!(Goal::NativeAnd(100.0).met(20.0, 119.0));
    }

    #[test]
    fn every_row_has_a_name_of_its_own() {
        let scope = Scope {
            gpu: true,
            quick: false,
            long: true,
            vm: true,
            kvm: true,
        };
        let suites = scope.suites();
        let names: Vec<_> = suites
            .iter()
            .flat_map(|s| &s.rows)
            .map(|r| &r.name)
            .collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    }
}
