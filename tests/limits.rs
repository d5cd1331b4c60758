// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Memory limits from the point of view of programs in VMs.
//!
//! `cargo xtask test` builds the programs of these tests and names their directory in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message. With `VIRTIO_GPGPU_TEST_GPU=cuda` they run on a GPU.

mod common;
// Some of it is only for the tests of isolation.
#[allow(dead_code)]
#[path = "common/hosts/installed.rs"]
mod host;
#[path = "limits/shared.rs"]
mod shared;

use host::{BackEnd, Guest, Options, on_gpu, wait_for};

const MIB: u64 = 1 << 20;
const OUT_OF_MEMORY: u64 = 2;
const NOT_SUPPORTED: u64 = 801;

/// The memory of a context on the software GPU, in MiB: a whole number of the limits' units and half a unit.
const CONTEXT: u64 = 31;
/// Its charge.
const CONTEXT_CHARGE: u64 = 32;

/// A policy whose VMs 0 and 1 have these limits, in MiB.
fn policy(limits: [u64; 2]) -> String {
    let vm = |number: usize| {
        let limit = limits[number];
        format!(
            "[[vm]]\nname = \"vm{number}\"\nsocket = \"DIR/vm{number}\"\nmemory = \"{limit}MiB\"\n"
        )
    };
    vm(0) + &vm(1)
}

fn start(limits: [u64; 2]) -> Option<BackEnd> {
    let back_end = BackEnd::start_with(&Options {
        config: Some(&policy(limits)),
        prepare: &|command| {
            command.env("VIRTIO_GPGPU_SOFTWARE_CONTEXT", CONTEXT.to_string());
        },
        ..Options::default()
    })?;
    if !back_end.staged("isolation/limits").exists() {
        eprintln!("skipped: the stage has no isolation/limits; run cargo xtask test");
        return None;
    }
    Some(back_end)
}

/// A program that takes commands.
struct Program(Guest);

impl Program {
    fn start(back_end: &BackEnd, vm: usize) -> Self {
        let this = Self::try_start(back_end, vm);
        assert_eq!(this.0.wait_for("open"), "open 0");
        this
    }

    fn try_start(back_end: &BackEnd, vm: usize) -> Self {
        let command = back_end.command(vm, &back_end.staged("isolation/limits"));
        Self(Guest::spawn(command))
    }

    /// The numbers of its answer.
    fn ask(&mut self, line: &str) -> Vec<u64> {
        let answer = self.0.ask(line);
        let words = answer.split(' ').skip(1);
        words
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{line}: {answer}")))
            .collect()
    }

    /// The free and the total bytes.
    fn info(&mut self) -> (u64, u64) {
        let answer = self.ask("info");
        assert_eq!(answer[3], 0, "{answer:?}");
        (answer[0], answer[1])
    }

    /// The free bytes after 64 MiB of `free` were taken, which may have cost up to `most` MiB.
    fn left_of(&mut self, free: u64, most: u64) -> u64 {
        let left = self.info().0;
        assert!(
            (free - most * MIB..=free - 64 * MIB).contains(&left),
            "{}",
            free - left
        );
        left
    }

    /// `fill`; returns the number of pieces that it got.
    fn fill(&mut self, threads: usize, bytes: u64) -> u64 {
        let answer = self.ask(&format!("fill {threads} {bytes}"));
        assert_eq!(answer[1], OUT_OF_MEMORY, "{answer:?}");
        answer[0]
    }

    fn succeeds(&mut self, line: &str) {
        assert_eq!(self.ask(line), [0], "{line}");
    }

    fn has_no_room(&mut self, line: &str) {
        assert_eq!(self.ask(line), [OUT_OF_MEMORY], "{line}");
    }
}

/// The limit that the tests set for a VM, in MiB: room for some contexts and some more.
fn limit() -> u64 {
    if on_gpu() { 6144 } else { 512 }
}

#[test]
fn pitfall_72_all_queries_report_the_same_memory() {
    let Some(back_end) = start([limit(), 2 * limit()]) else {
        return;
    };
    for (vm, limit) in [(0, limit()), (1, 2 * limit())] {
        let mut program = Program::start(&back_end, vm);
        let answer = program.ask("info");
        assert_eq!(answer[1..], [limit * MIB, limit * MIB, 0]);
        let cost = limit * MIB - answer[0];
        if on_gpu() {
            assert!((64 * MIB..2048 * MIB).contains(&cost), "{cost}");
        } else {
            assert_eq!(cost, CONTEXT_CHARGE * MIB);
        }
        // Allocated memory is not free, and free memory can be allocated.
        program.succeeds(&format!("alloc {}", 64 * MIB));
        assert_eq!(program.info().0, answer[0] - 64 * MIB);
        program.succeeds(&format!(
            "alloc {}",
            (answer[0] - 64 * MIB) / (2 * MIB) * (2 * MIB)
        ));
        assert!(program.info().0 < 2 * MIB);
    }
}

#[test]
fn pitfall_70_threads_and_processes_get_all_of_the_limit_and_no_more() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut programs: Vec<_> = (0..4).map(|_| Program::start(&back_end, 0)).collect();
    let (free, _) = programs[0].info();
    for piece in [4 * MIB, 48 * MIB] {
        let counts: Vec<u64> = std::thread::scope(|scope| {
            let running: Vec<_> = programs
                .iter_mut()
                .map(|program| scope.spawn(move || program.fill(16, piece)))
                .collect();
            running
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        let all: u64 = counts.iter().sum::<u64>() * piece;
        assert!(all <= free, "{all} of {free}");
        // Memory that was refused while another process held it for a moment is available once all are done.
        let more: u64 = programs
            .iter_mut()
            .map(|program| program.fill(1, piece))
            .sum();
        assert!(all + more * piece <= free && all + (more + 1) * piece > free);
        let left = programs[0].info().0;
        assert!(left < piece, "{left}");
        for program in &mut programs {
            program.succeeds("free");
        }
        wait_for("all that was freed", || {
            (programs[1].info().0 == free).then_some(())
        });
    }
}

#[test]
fn pitfall_68_cached_memory_is_free_for_every_process() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut programs: Vec<_> = (0..4).map(|_| Program::start(&back_end, 0)).collect();
    let (free, _) = programs[0].info();
    for round in 0..8 {
        // Each freed piece is kept for the same process's next allocation.
        for program in &mut programs {
            program.succeeds(&format!("alloc {}", 40 * MIB));
            // The guest's own library keeps smaller allocations.
            program.succeeds(&format!("alloc {}", 2 * MIB));
            program.succeeds("free");
        }
        for program in &mut programs {
            // A process does not wait until its worker has freed unused memory.
            wait_for("all that was freed", || {
                (program.info().0 == free).then_some(())
            });
        }
        let all = free / (2 * MIB) * (2 * MIB);
        let (one, other) = (round % 4, (round + 1) % 4);
        programs[one].succeeds(&format!("alloc {all}"));
        assert!(programs[other].info().0 < 2 * MIB);
        programs[other].has_no_room(&format!("alloc {}", 2 * MIB));
        programs[one].succeeds("free");
        wait_for("all that was freed", || {
            (programs[other].info().0 == free).then_some(())
        });
    }
}

#[test]
fn pitfall_68_memory_of_pools_counts_until_it_is_freed_in_a_streams_order() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut one = Program::start(&back_end, 0);
    let mut other = Program::start(&back_end, 0);
    let (free, _) = one.info();
    let all = free / (2 * MIB) * (2 * MIB);
    for round in 0..6 {
        // Whether or not a pool keeps its memory, the memory is available to processes that need it.
        let threshold = if round < 3 { 0 } else { u64::MAX };
        one.succeeds(&format!("threshold {threshold}"));
        one.succeeds(&format!("async {}", all - 64 * MIB));
        one.succeeds(&format!("async {}", 64 * MIB));
        assert!(one.info().0 < 2 * MIB);
        one.has_no_room(&format!("async {}", 2 * MIB));
        other.has_no_room(&format!("alloc {}", 2 * MIB));
        other.has_no_room(&format!("async {}", 2 * MIB));
        assert_eq!(one.ask("reserved"), [all, all, 0]);
        one.succeeds("freeasync");
        // The same process need not wait, whatever it allocates next.
        if round % 3 == 1 {
            one.succeeds(&format!("alloc {all}"));
            one.succeeds("freeasync");
        }
        // The program is idle meanwhile.
        wait_for("what was freed", || (other.info().0 == free).then_some(()));
        let kept = if round == 3 || round == 5 { all } else { 0 };
        assert_eq!(one.ask("reserved"), [0, kept, 0], "round {round}");
        other.succeeds(&format!("alloc {all}"));
        one.has_no_room(&format!("async {}", 2 * MIB));
        assert_eq!(one.ask("reserved"), [0, 0, 0]);
        other.succeeds("freeasync");
        wait_for("what was freed", || (one.info().0 == free).then_some(()));
    }
    // A killed process leaves no memory behind either.
    one.succeeds(&format!("async {}", all / 2));
    one.succeeds("freeasync");
    one.succeeds(&format!("async {}", all / 4));
    one.0.kill();
    let cost = limit() * MIB - other.info().1 + CONTEXT_CHARGE * MIB;
    wait_for("what was held", || {
        (other.info().0 >= free + if on_gpu() { 0 } else { cost }).then_some(())
    });
    other.succeeds(&format!("async {all}"));
}

/// The highest memory use of any process of a back end in bytes, except the supervisor.
fn peak(back_end: &BackEnd) -> u64 {
    let children = back_end.children().into_values().flatten();
    let peaks = children.filter_map(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib << 10)
    });
    peaks.max().unwrap_or(0)
}

#[test]
fn pitfall_73_a_flood_of_copies_takes_a_bounded_part_of_the_hosts_memory() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut program = Program::start(&back_end, 0);
    program.succeeds("flood 1 1048576");
    let before = peak(&back_end);
    // 2 GiB behind a stream that is blocked until all threads have submitted work.
    program.succeeds("flood 64 33554432");
    let more = peak(&back_end) - before;
    assert!(more < 256 * MIB, "{} MiB more", more / MIB);
}

#[test]
fn pitfall_71_memory_of_a_killed_process_is_free_for_the_next() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut other = Program::start(&back_end, 1);
    let apart = other.info();
    let fresh = Program::start(&back_end, 0).info();
    for _ in 0..3 {
        let mut victim = Program::start(&back_end, 0);
        wait_for("the last one's context", || {
            (victim.info() == fresh).then_some(())
        });
        victim.succeeds(&format!("alloc {}", 256 * MIB));
        let mut witness = Program::start(&back_end, 0);
        assert!(witness.info().0 <= fresh.0 - 256 * MIB);
        // Another VM has its own limit.
        assert_eq!(other.info(), apart);
        victim.0.kill();
        wait_for("what was held", || (witness.info() == fresh).then_some(()));
    }
}

#[test]
fn pitfall_69_contexts_count() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut program = Program::start(&back_end, 0);
    let (free, total) = program.info();
    let cost = total - free;
    let mut contexts = 0;
    while program.info().0 >= cost {
        program.succeeds("context");
        contexts += 1;
        assert!(program.info().0 <= total - (contexts + 1) * cost);
    }
    assert!(contexts >= 2);
    program.has_no_room("context");
    // Nor is there room for another process's.
    let refused = Program::try_start(&back_end, 0);
    assert_eq!(refused.0.wait_for("open"), "open 2");
    for _ in 0..contexts {
        program.succeeds("uncontext");
    }
    assert_eq!(program.info(), (free, total));
}

#[test]
fn pitfall_69_green_contexts_count() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut program, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    let (free, total) = program.info();
    let mut greens = 0;
    let mut left = free;
    while program.ask("green") == [0] {
        greens += 1;
        let now = program.info().0;
        assert!(now < left, "{now} of {left} bytes are free after one more");
        left = now;
        assert_eq!(other.info().0, now);
    }
    assert!(greens >= 2);
    program.has_no_room("green");
    other.has_no_room("green");
    // Memory in the primary context counts as before.
    program.has_no_room(&format!("alloc {}", left + 2 * MIB));
    for _ in 0..greens {
        program.succeeds("ungreen");
    }
    assert_eq!(program.info(), (free, total));
    // A process that has ended leaves nothing.
    other.succeeds("green");
    other.0.kill();
    wait_for("what it had", || (program.info().0 > free).then_some(()));
}

#[test]
fn pitfall_72_mapped_memory_counts_while_anything_refers_to_it() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut one, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    let free = one.info().0;
    assert_eq!(other.info().0, free);
    // Kept memory is available for a mapping, in this process and in another one.
    other.succeeds(&format!("alloc {}", 96 * MIB));
    other.succeeds("free");
    one.succeeds(&format!("alloc {}", 64 * MIB));
    one.succeeds("free");
    let (large, small) = (free / 2 / (2 * MIB) * (2 * MIB), 20 * MIB);
    one.succeeds(&format!("map {large}"));
    assert_eq!(one.info().0, free - large);
    assert_eq!(other.info().0, free - large);
    let mut left = free - large;
    while left >= small {
        one.succeeds(&format!("map {small}"));
        left -= small;
    }
    assert_eq!(one.info().0, left);
    one.has_no_room(&format!("map {small}"));
    other.has_no_room(&format!("map {small}"));
    other.has_no_room(&format!("alloc {small}"));
    one.succeeds("unmap");
    assert_eq!(one.info().0, left + small);
    other.succeeds(&format!("map {small}"));
    one.has_no_room(&format!("map {small}"));
    // Another VM has its own memory, and a process's memory is freed when it ends.
    let mut stranger = Program::start(&back_end, 1);
    stranger.succeeds(&format!("map {large}"));
    one.0.kill();
    wait_for("what was mapped", || {
        (other.info().0 >= free - small).then_some(())
    });
    other.succeeds(&format!("map {large}"));
}

#[test]
fn executable_graphs_count_by_the_most_that_there_were() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut one, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    // The word that the fills write to.
    one.succeeds("graphs 0 1");
    let (free, others) = (one.info().0, other.info().0);
    one.succeeds("graphs 200 20");
    let left = one.info().0;
    assert!(free - left >= 200 * (112 << 10), "{}", free - left);
    assert_eq!(others - other.info().0, free - left);
    // The driver keeps a graph's memory for the next graph.
    one.succeeds("ungraph");
    assert_eq!(one.info().0, left);
    one.succeeds("graphs 200 20");
    assert_eq!(one.info().0, left);
    // Without free memory, there is no room for more of them.
    other.0.ask("fill 1 2097152");
    one.has_no_room("graphs 200 20");
    one.0.kill();
    wait_for("what the graphs had", || {
        (other.info().0 >= free - left).then_some(())
    });
    other.succeeds("graphs 20 20");
}

/// Also graphs for which the program does not usually wait: it does wait if there may be no room.
#[test]
fn graphs_like_an_earlier_one_are_refused_at_once_without_room() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let (mut one, mut other) = (Program::start(&back_end, 0), Program::start(&back_end, 0));
    one.succeeds("launches 100 20");
    let left = one.info().0;
    for _ in 0..2 {
        one.succeeds("ungraph");
        one.succeeds("launches 100 20");
        assert_eq!(one.info().0, left);
    }
    other.0.ask("fill 1 2097152");
    one.succeeds("ungraph");
    one.succeeds("launches 100 20");
    one.has_no_room("launches 100 20");
    one.succeeds("ungraph");
    one.succeeds("launches 50 20");
}

#[test]
fn pitfall_67_every_other_way_to_allocate_counts_or_does_not_exist() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut program = Program::start(&back_end, 0);
    let (free, _) = program.info();
    let too_much = (limit() + 64) * MIB;
    for way in [
        "async", "pool", "create", "managed", "array", "array3d", "mipmap",
    ] {
        program.has_no_room(&format!("way {way} {too_much}"));
        program.has_no_room(&format!("way {way} {}", free + 2 * MIB));
        assert_eq!(program.info().0, free, "{way}");
    }
    for way in ["pitch", "create", "graph", "ipc", "import"] {
        let answer = program.0.ask(&format!("way {way} {too_much}"));
        let code = answer.trim_start_matches("way ");
        let refused = [OUT_OF_MEMORY, NOT_SUPPORTED].map(|code| code.to_string());
        // An opened address is no handle, and imported memory is no allocation: CUDA_ERROR_INVALID_VALUE and
        // CUDA_ERROR_UNKNOWN, as with NVIDIA's driver.
        let is_none = [("ipc", "1"), ("import", "999")].contains(&(way, code));
        assert!(
            is_none || code == "absent" || refused.iter().any(|refused| refused == code),
            "{way}: {answer}"
        );
        assert_eq!(program.info().0, free, "{way}");
    }
    // An array counts until it is destroyed, in whole pieces of 2 MiB.
    program.succeeds(&format!("array {}", 64 * MIB));
    let left = program.left_of(free, 68);
    program.has_no_room(&format!("array {}", left + 2 * MIB));
    program.has_no_room(&format!("alloc {}", left + 2 * MIB));
    program.succeeds("unarray");
    assert_eq!(program.info().0, free);
    // Variables of modules.
    program.has_no_room(&format!("module {}", free + 1));
    program.has_no_room(&format!("module {too_much}"));
    program.succeeds(&format!("module {}", 64 * MIB));
    let left = program.left_of(free, 72);
    program.has_no_room(&format!("module {}", left + 2 * MIB));
    program.succeeds("unload");
    assert_eq!(program.info().0, free);
    // Those of libraries, into which the driver loads a kernel's library to describe it, with no context current.
    program.has_no_room(&format!("library {}", free + 1));
    program.succeeds("unlibrary");
    program.succeeds(&format!("library {}", 64 * MIB));
    let left = program.left_of(free, 72);
    program.has_no_room(&format!("library {}", left + 2 * MIB));
    program.succeeds("unlibrary");
    program.succeeds("unlibrary");
    assert_eq!(program.info().0, free);
    // A context's limits: its kernels' heap, their stacks and their output.
    for line in [
        format!("limit 2 {too_much}"),
        format!("limit 1 {too_much}"),
        format!("limit 0 {}", 400 << 10),
    ] {
        program.has_no_room(&line);
        assert_eq!(program.info().0, free, "{line}");
    }
    program.succeeds(&format!("limit 2 {}", 72 * MIB));
    assert_eq!(program.info().0, free - 64 * MIB);
}

#[test]
fn pitfall_71_a_limit_below_the_usage_stops_only_new_allocations() {
    let Some(back_end) = start([limit(), limit()]) else {
        return;
    };
    let mut program = Program::start(&back_end, 0);
    let (free, total) = program.info();
    program.succeeds(&format!("alloc {}", 128 * MIB));
    let lower = (total - free) / MIB + 64;
    back_end.reload(&policy([lower, limit()]));
    wait_for("the new limit", || {
        (program.info() == (0, lower * MIB)).then_some(())
    });
    program.has_no_room(&format!("alloc {}", 128 * MIB));
    // Existing memory is kept.
    program.succeeds("free");
    wait_for("what was freed", || {
        (program.info().0 == 64 * MIB).then_some(())
    });
    program.succeeds(&format!("alloc {}", 64 * MIB));
    back_end.reload(&policy([limit(), limit()]));
    wait_for("the old limit", || {
        (program.info().1 == total).then_some(())
    });
    program.succeeds(&format!("alloc {}", 128 * MIB));
}
