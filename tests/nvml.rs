// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! NVML from the point of view of programs in VMs: it reports on the program's own VM, and on no other.
//!
//! `cargo xtask test` builds the programs of these tests and names their directory in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message. With `VIRTIO_GPGPU_TEST_GPU=cuda` they run on a GPU.

mod common;
// Some of it is only for the tests of isolation.
#[allow(dead_code)]
#[path = "common/hosts/installed.rs"]
mod host;

use host::{BackEnd, Guest, Options, on_gpu, wait_for};

const MIB: u64 = 1 << 20;
/// NVML's codes.
const UNINITIALIZED: u64 = 1;
const NOT_SUPPORTED: u64 = 3;

/// The memory of a context on the software GPU, in MiB.
const CONTEXT: u64 = 31;

fn start(limits: [Option<u64>; 2]) -> Option<BackEnd> {
    let vm = |number: usize| {
        let limit = limits[number].map_or(String::new(), |mib| format!("memory = \"{mib}MiB\"\n"));
        format!("[[vm]]\nname = \"vm{number}\"\nsocket = \"DIR/vm{number}\"\n{limit}\n")
    };
    let back_end = BackEnd::start_with(&Options {
        config: Some(&(vm(0) + &vm(1))),
        prepare: &|command| {
            command.env("VIRTIO_GPGPU_SOFTWARE_CONTEXT", CONTEXT.to_string());
        },
        ..Options::default()
    })?;
    if !back_end.staged("isolation/nvml").exists() {
        eprintln!("skipped: the stage has no isolation/nvml; run cargo xtask test");
        return None;
    }
    Some(back_end)
}

/// A program that takes commands; see its source.
struct Program(Guest);

impl Program {
    fn start(back_end: &BackEnd, vm: usize, name: &str) -> Self {
        let command = back_end.command(vm, &back_end.staged(&format!("isolation/{name}")));
        let this = Self(Guest::spawn(command));
        assert_eq!(this.0.wait_for("open"), "open 0");
        this
    }

    /// A monitor that is ready for queries.
    fn monitor(back_end: &BackEnd, vm: usize) -> Self {
        let mut this = Self::start(back_end, vm, "nvml");
        assert_eq!(this.ask("init"), [0]);
        this
    }

    /// The numbers of its answer.
    fn ask(&mut self, line: &str) -> Vec<u64> {
        let answer = self.0.ask(line);
        let words = answer.split(' ').skip(1);
        words
            .map(|word| word.parse().unwrap_or_else(|_| panic!("{line}: {answer}")))
            .collect()
    }

    /// The total and the used bytes, from both versions of NVML's function.
    fn memory(&mut self) -> (u64, u64) {
        let answer = self.ask("memory");
        assert_eq!(answer[0], 0, "{answer:?}");
        assert_eq!(answer[..4], answer[4..], "{answer:?}");
        assert_eq!(answer[1], answer[2] + answer[3], "{answer:?}");
        (answer[1], answer[3])
    }

    /// The total and the used bytes, from CUDA.
    fn info(&mut self) -> (u64, u64) {
        let answer = self.ask("info");
        (answer[1], answer[1] - answer[0])
    }

    /// The bytes in use, by process.
    fn processes(&mut self) -> Vec<(u64, u64)> {
        let answer = self.ask("processes");
        assert_eq!(answer[0], 0, "{answer:?}");
        let pairs = answer[1..].chunks(2);
        pairs.map(|pair| (pair[0], pair[1])).collect()
    }
}

fn limit() -> u64 {
    if on_gpu() { 6144 } else { 512 }
}

#[test]
fn memory_is_cudas_and_the_total_is_the_limit() {
    let Some(back_end) = start([Some(limit()), Some(2 * limit())]) else {
        return;
    };
    let mut monitor = Program::monitor(&back_end, 0);
    // No process has a context, including the querying one.
    assert_eq!(monitor.memory(), (limit() * MIB, 0));
    assert_eq!(monitor.processes(), []);
    let mut program = Program::start(&back_end, 0, "limits");
    let before = program.info();
    assert!(before.1 >= CONTEXT * MIB, "{before:?}");
    assert_eq!(monitor.memory(), before);
    assert_eq!(program.ask(&format!("alloc {}", 64 * MIB)), [0]);
    let after = program.info();
    assert_eq!(after.1, before.1 + 64 * MIB);
    assert_eq!(monitor.memory(), after);
    // The query changes nothing.
    assert_eq!(program.info(), after);
    let pid = u64::from(program.0.pid());
    assert_eq!(monitor.processes(), [(pid, after.1)]);
    // The other VM sees its own limit, and none of this.
    let mut other = Program::monitor(&back_end, 1);
    assert_eq!(other.memory(), (2 * limit() * MIB, 0));
    assert_eq!(other.processes(), []);
    // Freed memory, and the memory of a process that has ended, is not in use.
    assert_eq!(program.ask("free"), [0]);
    // Only a later call of the same process waits for idle memory to be freed.
    let freed = program.info();
    assert_eq!(freed, before);
    assert_eq!(monitor.memory(), freed);
    drop(program);
    wait_for("the end of the process", || {
        monitor.processes().is_empty().then_some(())
    });
    assert_eq!(monitor.memory(), (limit() * MIB, 0));
}

#[test]
fn each_process_of_the_vm_counts_once() {
    let Some(back_end) = start([None, None]) else {
        return;
    };
    let mut monitor = Program::monitor(&back_end, 0);
    let mut programs: Vec<_> = [0, 0, 1]
        .map(|vm| Program::start(&back_end, vm, "limits"))
        .into();
    for (program, mib) in programs.iter_mut().zip([32, 96, 160]) {
        assert_eq!(program.ask(&format!("alloc {}", mib * MIB)), [0]);
    }
    let mut seen = monitor.processes();
    seen.sort_by_key(|(_, bytes)| *bytes);
    let pids: Vec<u64> = seen.iter().map(|(pid, _)| *pid).collect();
    assert_eq!(pids, [0, 1].map(|of: usize| programs[of].0.pid().into()));
    assert_eq!(seen[1].1 - seen[0].1, 64 * MIB);
    let (all, used) = monitor.memory();
    assert_eq!(used, seen.iter().map(|(_, bytes)| bytes).sum::<u64>());
    // Without a limit all of the GPU is available, as CUDA reports too.
    assert_eq!(all, programs[0].info().0);
    let share = monitor.ask("utilisation");
    assert!(share[0] == 0 && share[1] <= 100, "{share:?}");
}

#[test]
fn starts_are_counted_and_wrong_calls_refused() {
    let Some(back_end) = start([None, None]) else {
        return;
    };
    let mut program = Program::start(&back_end, 0, "nvml");
    assert_eq!(program.ask("count")[0], UNINITIALIZED);
    assert_eq!(program.ask("shutdown"), [UNINITIALIZED]);
    assert_eq!(program.ask("init"), [0]);
    assert_eq!(program.ask("init"), [0]);
    assert_eq!(program.ask("shutdown"), [0]);
    let count = program.ask("count");
    assert!(count[0] == 0 && count[1] > 0, "{count:?}");
    let edges = program.0.ask("edges");
    assert_eq!(edges, "edges 2 2 7 2 7 2 2 2 25 2 0 2 6 2 6 kept");
    let refused = program.ask("refused");
    let mut expected = [NOT_SUPPORTED; 10];
    // A list of fields is answered, and each unsupported field reports this.
    expected[6] = 0;
    assert_eq!(refused, expected);
    assert_eq!(program.ask("shutdown"), [0]);
    assert_eq!(program.ask("count")[0], UNINITIALIZED);
    // NVML can be initialised again.
    assert_eq!(program.ask("init"), [0]);
    assert_eq!(program.memory().1, 0);
}

/// A connection costs the host a process, and a program that uses CUDA already has one.
#[test]
fn a_process_with_cuda_uses_its_own_connection() {
    let Some(back_end) = start([None, None]) else {
        return;
    };
    let from = back_end.log.count();
    let mut program = Program::start(&back_end, 0, "nvml");
    assert_eq!(program.ask("cuda"), [0, 0]);
    assert_eq!(program.ask("init"), [0]);
    let (_, used) = program.memory();
    assert!(used >= CONTEXT * MIB, "{used}");
    let pid = u64::from(program.0.pid());
    assert_eq!(program.processes(), [(pid, used)]);
    // The next line in the log shows that no other line was pending.
    let mut other = Program::start(&back_end, 1, "nvml");
    assert_eq!(other.ask("cuda"), [0, 0]);
    back_end.worker(1, from);
    let opened = back_end.log.since(from);
    let opened = opened
        .iter()
        .filter(|line| line.contains(" opened (worker "));
    assert_eq!(opened.count(), 2, "one worker for each program");
    // A forked child cannot use its parent's connection.
    assert_eq!(program.ask("forked")[..4], program.ask("memory")[..4]);
    // A process that made queries before it used CUDA switches to the new connection.
    let from = back_end.log.count();
    let mut late = Program::start(&back_end, 1, "nvml");
    assert_eq!(late.ask("init"), [0]);
    late.memory();
    assert_eq!(late.ask("cuda"), [0, 0]);
    let (_, used) = late.memory();
    assert!(used >= CONTEXT * MIB, "{used}");
    let is_closed = |line: &String| line.contains(&pid_text(&late)) && line.contains(" closed");
    wait_for("the end of the library's own connections", || {
        let log = back_end.log.since(from);
        (log.iter().filter(|line| is_closed(line)).count() >= 2).then_some(())
    });
}

fn pid_text(program: &Program) -> String {
    format!("guest process {})", program.0.pid())
}

#[test]
fn gpgpu_smi_shows_the_vm() {
    let Some(back_end) = start([Some(limit()), None]) else {
        return;
    };
    let mut program = Program::start(&back_end, 0, "limits");
    assert_eq!(program.ask(&format!("alloc {}", 64 * MIB)), [0]);
    let used = program.info().1 / MIB;
    let show = |arguments: &[&str]| {
        let mut command = back_end.command(0, &back_end.staged("bin/gpgpu-smi"));
        command.args(arguments);
        let (status, said) = Guest::spawn(command).end();
        (status.success(), said)
    };
    let query = "--query-gpu=memory.total,memory.used,power.draw";
    let (_, said) = show(&[query, "--format=csv,noheader,nounits", "--id=0"]);
    assert_eq!(said, format!("{}, {used}, [N/A]", limit()));
    let (_, table) = show(&[]);
    let pid = program.0.pid();
    assert!(
        table.contains(&format!("{used}MiB / {}MiB", limit())),
        "{table}"
    );
    assert!(table.contains(&format!(" {pid} ")), "{table}");
    let (_, list) = show(&["-L"]);
    assert!(
        list.starts_with("GPU 0: ") && list.contains("(UUID: GPU-"),
        "{list}"
    );
    assert!(!show(&["--query-gpu=colour", "--format=csv"]).0);
}

/// Values of sensors with their codes, for the program's command `sensors`.
struct Sensors(Vec<(u64, u64)>);

impl Sensors {
    /// The number of values.
    const COUNT: usize = 34;

    fn of(program: &mut Program, device: u64) -> Self {
        let answer = program.ask(&format!("sensors {device}"));
        assert_eq!(answer[0], device);
        let values = answer[1..].chunks(2).map(|pair| (pair[0], pair[1]));
        let values: Vec<_> = values.collect();
        assert_eq!(values.len(), Self::COUNT);
        Self(values)
    }

    /// Whether all values are refused, and none is leaked besides its code.
    fn are_refused(&self) -> bool {
        self.0.iter().all(|value| *value == (NOT_SUPPORTED, 0))
    }

    /// Checks the sensors of the software GPU with a number, or of a real one.
    fn check(&self, gpu: u64) {
        let values: Vec<u64> = self.0.iter().map(|value| value.1).collect();
        if on_gpu() {
            // Some GPUs lack some sensors.
            let told = self.0.iter().filter(|value| value.0 == 0).count();
            assert!(told > 15, "{:?}", self.0);
            assert!((5..120).contains(&values[0]), "temperature {}", values[0]);
            assert!(
                (1_000..2_000_000).contains(&values[6]),
                "power {}",
                values[6]
            );
            assert!(values[16] <= values[20], "SM clock {}", values[16]);
            return;
        }
        let temperature = 41 + gpu;
        let mut expected = vec![temperature, temperature, 95, 90, 105, 87];
        expected.extend([71_250, 300_000, 300_000, 350_000, 100_000, 400_000]);
        expected.extend([2, 2, 123_456_789_012]);
        expected.extend([1410, 1400, 1593, 1275]);
        expected.extend([1980, 1970, 2619, 1545, 1400]);
        expected.extend([47, 123_456_789_012, 71_250, 70_500, 100_000, 400_000]);
        expected.extend([350_000, 300_000, 123_456_789_012, 300_000]);
        assert_eq!(values, expected);
        assert!(self.0.iter().all(|value| value.0 == 0), "{:?}", self.0);
    }
}

/// Two VMs, each with its own GPU; the software GPU has three devices.
fn sensing(may: [bool; 2]) -> String {
    let vm = |number: usize| {
        let gpu = if on_gpu() { 0 } else { number + 1 };
        let may = may[number];
        format!(
            "[[vm]]\nname = \"vm{number}\"\nsocket = \"DIR/vm{number}\"\ngpus = [{gpu}]\nsensors = {may}\n"
        )
    };
    vm(0) + &vm(1)
}

fn start_sensing(may: [bool; 2]) -> Option<BackEnd> {
    let back_end = BackEnd::start_with(&Options {
        config: Some(&sensing(may)),
        prepare: &|command| {
            command.env("VIRTIO_GPGPU_SOFTWARE_DEVICES", "3");
        },
        ..Options::default()
    })?;
    let needed = ["isolation/nvml", "software-gpu/libnvidia-ml.so.1"];
    let is_there = |path: &&str| back_end.staged(path).exists();
    if !needed.iter().all(is_there) {
        eprintln!("skipped: the stage has no {needed:?}; run cargo xtask test");
        return None;
    }
    Some(back_end)
}

#[test]
fn a_vm_reads_the_sensors_of_its_own_gpu_if_it_may() {
    let Some(back_end) = start_sensing([true, false]) else {
        return;
    };
    assert_eq!(back_end.sensor_processes(), 0, "no query yet");
    let mut other = Program::monitor(&back_end, 1);
    assert!(Sensors::of(&mut other, 0).are_refused());
    assert_eq!(
        back_end.sensor_processes(),
        0,
        "who may not ask costs nothing"
    );
    let mut monitor = Program::monitor(&back_end, 0);
    Sensors::of(&mut monitor, 0).check(1);
    assert_eq!(back_end.sensor_processes(), 1);
    // There is no second device, and no fan.
    assert_eq!(monitor.ask("sensors 1")[1], 2);
    let wrong = monitor.ask("wrong");
    assert_eq!(wrong, [2, 2, 2, 2, 25, 2, 2, 2, 3, 2, 2, 3, 2, 3, 0, 3]);
    assert!(Sensors::of(&mut other, 0).are_refused());
    // The query does not count as use of the GPU.
    assert_eq!(monitor.processes(), []);
}

#[test]
fn a_reload_gives_the_permission_and_takes_it_back() {
    let Some(back_end) = start_sensing([false, true]) else {
        return;
    };
    let mut monitors = [0, 1].map(|vm| Program::monitor(&back_end, vm));
    for may in [[false, true], [true, false], [false, true]] {
        let from = back_end.log.count();
        back_end.reload(&sensing(may));
        assert!(back_end.log.find(from, "Policy reloaded").is_some());
        for (vm, monitor) in monitors.iter_mut().enumerate() {
            let sensors = Sensors::of(monitor, 0);
            match may[vm] {
                true => sensors.check(vm as u64 + 1),
                false => assert!(sensors.are_refused(), "{:?}", sensors.0),
            }
        }
    }
}

#[test]
fn a_process_that_has_cuda_needs_no_other_connection_for_sensors() {
    let Some(back_end) = start_sensing([true, false]) else {
        return;
    };
    for (vm, may) in [(0, true), (1, false)] {
        let from = back_end.log.count();
        let mut program = Program::start(&back_end, vm, "nvml");
        assert_eq!(program.ask("cuda"), [0, 0]);
        assert_eq!(program.ask("init"), [0]);
        let sensors = Sensors::of(&mut program, 0);
        assert_ne!(sensors.are_refused(), may);
        let log = back_end.log.since(from);
        let opened = log.iter().filter(|line| line.contains(" opened (worker "));
        assert_eq!(opened.count(), 1, "{log:?}");
    }
}

#[test]
fn gpgpu_smi_shows_sensors_if_there_are_any() {
    let Some(back_end) = start_sensing([true, false]) else {
        return;
    };
    let show = |vm: usize, arguments: &[&str]| {
        let mut command = back_end.command(vm, &back_end.staged("bin/gpgpu-smi"));
        command.args(arguments);
        let (status, said) = Guest::spawn(command).end();
        assert!(status.success(), "{said}");
        said
    };
    let query = [
        "--query-gpu=temperature.gpu,power.draw,pstate,clocks.sm,fan.speed",
        "--format=csv,noheader",
    ];
    let refused = show(1, &query);
    assert_eq!(refused, "[N/A], [N/A], [N/A], [N/A], [N/A]");
    assert!(!show(1, &[]).contains("°C"));
    let (told, table) = (show(0, &query), show(0, &[]));
    if !on_gpu() {
        assert_eq!(told, "42, 71.25 W, P2, 1400 MHz, [N/A]");
        assert!(
            table.contains(" 42 °C  P2  71.25 W  of 300.00 W "),
            "{table}"
        );
    }
    assert!(table.contains("°C"), "{table}");
}
