// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A program in another VM that works during a fault, and the table of its observations.

use std::{
    collections::BTreeMap,
    io::Write,
    sync::Mutex,
    time::{Duration, Instant},
};

use nix::time::{ClockId, clock_gettime};

use super::host::{BackEnd, Guest, Holdings, wait_for};

/// The number of steps that must precede a comparison.
const STEPS: usize = 4;

fn now() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

/// See the module's documentation.
pub struct Bystander {
    guest: Guest,
}

impl Bystander {
    /// Starts it in VM 1, and waits until it has made some steps.
    pub fn start(back_end: &BackEnd) -> Self {
        Self::doing(back_end, &["work"])
    }

    /// Starts one that makes copies with the mover.
    pub fn copying(back_end: &BackEnd) -> Self {
        Self::doing(back_end, &["work", "copies"])
    }

    fn doing(back_end: &BackEnd, arguments: &[&str]) -> Self {
        let guest = back_end.guest(1, arguments);
        let this = Self { guest };
        this.steps(2);
        this
    }

    /// Waits for this number of further steps.
    pub fn steps(&self, more: usize) {
        let wanted = self.guest.said.count() + more;
        wait_for("a step of the other VM", || {
            if self.guest.said.count() >= wanted {
                return Some(());
            }
            let last = self.guest.said.since(0).pop().unwrap_or_default();
            assert!(last.is_empty() || last.starts_with("step"), "{last}");
            None
        });
    }

    /// The longest time between consecutive steps that overlap a time window.
    fn longest_gap(&self, from: i64, to: i64) -> Duration {
        let lines = self.guest.said.since(0);
        let ends = lines.iter().filter_map(|line| {
            let mut words = line.split(' ');
            (words.next() == Some("step")).then(|| words.next().unwrap().parse::<i64>().unwrap())
        });
        let ends: Vec<i64> = ends.collect();
        let gaps = ends
            .windows(2)
            .filter(|pair| pair[1] > from && pair[0] < to)
            .map(|pair| pair[1] - pair[0]);
        Duration::from_nanos(gaps.max().unwrap_or(0) as u64)
    }

    /// Ends it; all its results must have been right.
    pub fn end(self) {
        let (status, said) = self.guest.end();
        let last: Vec<&str> = said.lines().rev().take(3).collect();
        assert!(
            status.success() && said.contains("done"),
            "{status}: {last:?}"
        );
    }
}

/// A fault that is caused while the bystander works.
pub struct Fault<'a> {
    name: String,
    back_end: &'a BackEnd,
    bystander: &'a Bystander,
    before: (Holdings, u64),
    gap_before: Duration,
    began: i64,
    ended: Option<Instant>,
}

impl<'a> Fault<'a> {
    /// Records the state before it.
    pub fn begin(name: &str, back_end: &'a BackEnd, bystander: &'a Bystander) -> Self {
        let start = now();
        let before = back_end.settled();
        bystander.steps(STEPS);
        let began = now();
        Self {
            name: name.to_owned(),
            back_end,
            bystander,
            before,
            gap_before: bystander.longest_gap(start, began),
            began,
            ended: None,
        }
    }

    /// Records that the process that caused it has ended.
    pub fn ended(&mut self) {
        self.ended = Some(Instant::now());
    }

    /// Checks that the memory is returned, that a new process in the same VM works, and that the other VM has
    /// continued.
    pub fn contained(self) {
        let ended = self.ended.unwrap_or_else(Instant::now);
        let memory = self.back_end.memory_back(self.before.1, ended);
        let works = self.back_end.works(0);
        self.back_end.back_to(&self.before);
        self.bystander.steps(STEPS);
        let during = self.bystander.longest_gap(self.began, now());
        let milliseconds = |time: Duration| time.as_secs_f64() * 1e3;
        let row = Row {
            fault: self.name,
            gap_before_ms: milliseconds(self.gap_before),
            gap_during_ms: milliseconds(during),
            memory_back_ms: milliseconds(memory),
            new_process_ms: milliseconds(works),
        };
        row.report();
    }
}

/// A row of the table.
struct Row {
    fault: String,
    gap_before_ms: f64,
    gap_during_ms: f64,
    memory_back_ms: f64,
    new_process_ms: f64,
}

static ROWS: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

impl Row {
    fn report(self) {
        let Self {
            fault,
            gap_before_ms,
            gap_during_ms,
            memory_back_ms,
            new_process_ms,
        } = self;
        println!(
            "{fault:<44} | other VM's longest gap: before {gap_before_ms:8.1} ms | during {gap_during_ms:8.1} ms | \
             memory back after {memory_back_ms:7.1} ms | new process works after {new_process_ms:7.1} ms"
        );
        let object = format!(
            "{{\"fault\": \"{fault}\", \"gap_before_ms\": {gap_before_ms:.3}, \"gap_during_ms\": {gap_during_ms:.3}, \
             \"memory_back_ms\": {memory_back_ms:.3}, \"new_process_ms\": {new_process_ms:.3}}}"
        );
        let Some(directory) = std::env::var_os("VIRTIO_GPGPU_TEST_OUT") else {
            return;
        };
        let mut rows = ROWS.lock().unwrap();
        rows.insert(fault, object);
        let path = std::path::Path::new(&directory).join("isolation.json");
        let mut file = std::fs::File::create(path).unwrap();
        let all: Vec<&str> = rows.values().map(String::as_str).collect();
        writeln!(file, "[\n  {}\n]", all.join(",\n  ")).unwrap();
    }
}
