// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The installed back end, guest programs that use its sockets, and the observable state of both.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::{fs::symlink, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

pub use crate::common::{LIMIT, on_gpu, wait_for};

/// More than the longest time from a program's start to that of the next warm worker.
const REST: Duration = Duration::from_millis(1500);
use crate::common::{program, stop};

/// The directory with the guest programs and libraries, if there is one.
pub fn stage() -> Option<PathBuf> {
    let stage = std::env::var_os("VIRTIO_GPGPU_STAGE").map(PathBuf::from);
    let stage = stage.filter(|stage| stage.join("isolation/guest").exists());
    if stage.is_none() {
        eprintln!(
            "skipped: VIRTIO_GPGPU_STAGE names no directory with isolation/guest; run cargo xtask test"
        );
    }
    stage
}

/// The lines that a process writes, as they arrive.
#[derive(Clone, Default)]
pub struct Lines(Arc<(Mutex<Read>, Condvar)>);

#[derive(Default)]
struct Read {
    lines: Vec<String>,
    ended: bool,
}

impl Lines {
    /// Reads the output of a pipe; `each` gets every line first.
    fn read(pipe: impl std::io::Read + Send + 'static, echo: bool) -> Self {
        let lines = Self::default();
        let ours = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                if echo {
                    eprintln!("| {line}");
                }
                ours.0.0.lock().unwrap().lines.push(line);
                ours.0.1.notify_all();
            }
            ours.0.0.lock().unwrap().ended = true;
            ours.0.1.notify_all();
        });
        lines
    }

    /// The number of lines.
    pub fn count(&self) -> usize {
        self.0.0.lock().unwrap().lines.len()
    }

    /// All lines from this one on.
    pub fn since(&self, from: usize) -> Vec<String> {
        self.0.0.lock().unwrap().lines[from..].to_vec()
    }

    /// The first line from `from` on that contains `text`; `None` if the pipe is closed before.
    pub fn find(&self, from: usize, text: &str) -> Option<String> {
        let (lock, more) = &*self.0;
        let deadline = Instant::now() + LIMIT;
        let mut state = lock.lock().unwrap();
        let mut at = from;
        loop {
            while let Some(line) = state.lines.get(at) {
                if line.contains(text) {
                    return Some(line.clone());
                }
                at += 1;
            }
            if state.ended {
                return None;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line with {text:?}");
            state = more.wait_timeout(state, left).unwrap().0;
        }
    }
}

/// A process's role, from its command line.
fn role(pid: Pid) -> Option<&'static str> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    ["device-process", "worker-process", "mover-process"]
        .into_iter()
        .find(|role| line.split('\0').any(|argument| argument == *role))
}

/// The number of descriptors that a process has open.
fn descriptors(pid: Pid) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count)
}

/// The resources of a back end, compared before and after a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Holdings {
    /// The number of processes, including the supervisor.
    pub processes: usize,
    /// Descriptors of the supervisor.
    pub supervisor: usize,
    /// Descriptors of the movers.
    pub movers: usize,
}

/// A running back end with the sockets of two VMs.
pub struct BackEnd {
    process: Child,
    /// Its log.
    pub log: Lines,
    /// Contains the sockets `vm0` and `vm1`, and the test's own files.
    pub dir: tempfile::TempDir,
    stage: PathBuf,
}

/// The options of a back end's start.
pub struct Options<'a> {
    /// A policy that replaces `--socket-path`; `DIR` stands for the directory of the sockets.
    pub config: Option<&'a str>,
    /// Arguments besides sockets and GPU.
    pub arguments: &'a [&'a str],
    /// Whether the software GPU can be lost, which the file [`BackEnd::lost`] causes.
    pub can_be_lost: bool,
    /// The last change of the command.
    pub prepare: &'a dyn Fn(&mut Command),
}

impl Default for Options<'_> {
    fn default() -> Self {
        Self {
            config: None,
            arguments: &[],
            can_be_lost: false,
            prepare: &|_| {},
        }
    }
}

fn write_policy(dir: &Path, text: &str) {
    let text = text.replace("DIR", &dir.display().to_string());
    fs::write(dir.join("policy.toml"), text).unwrap();
}

impl BackEnd {
    /// Writes another policy and makes the back end read it.
    pub fn reload(&self, text: &str) {
        write_policy(self.dir.path(), text);
        kill(self.supervisor(), Signal::SIGHUP).unwrap();
    }

    /// Starts a back end; `None` if there is nothing to run.
    pub fn start() -> Option<Self> {
        Self::start_with(&Options::default())
    }

    /// Starts a back end with these options.
    pub fn start_with(options: &Options<'_>) -> Option<Self> {
        let stage = stage()?;
        let dir = tempfile::tempdir().unwrap();
        // With separate links, because a test may remove the library.
        let library = dir.path().join("software-gpu");
        fs::create_dir(&library).unwrap();
        for (name, file) in [
            ("libcuda.so.1", "libcuda.so.1"),
            ("libcuda.so", "libcuda.so.1"),
            ("libnvidia-ml.so.1", "libnvidia-ml.so.1"),
        ] {
            if let Ok(real) = fs::canonicalize(stage.join("software-gpu").join(file)) {
                symlink(real, library.join(name)).unwrap();
            }
        }
        let mut command = Command::new(program());
        let policy = dir.path().join("policy.toml");
        match options.config {
            Some(text) => {
                write_policy(dir.path(), text);
                command.arg("--config").arg(&policy);
            }
            None => {
                command
                    .arg("--socket-path")
                    .arg(dir.path().join("vm"))
                    .args(["--socket-count", "2"]);
            }
        }
        if on_gpu() {
            command.args(["--gpu", "cuda"]);
        } else {
            command
                .args(["--gpu", "software", "--software-gpu"])
                .arg(&library)
                .env("VIRTIO_GPGPU_SOFTWARE_MEMORY", "1024");
        }
        command
            .args(options.arguments)
            .env("VIRTIO_GPGPU_LOG", "info")
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        if options.can_be_lost {
            command.env("VIRTIO_GPGPU_SOFTWARE_LOST", library.join("lost"));
        }
        (options.prepare)(&mut command);
        let mut process = command.spawn().unwrap();
        let echo = std::env::var_os("VIRTIO_GPGPU_TEST_ECHO").is_some();
        let log = Lines::read(process.stderr.take().unwrap(), echo);
        let back_end = Self {
            process,
            log,
            dir,
            stage,
        };
        for vm in 0..2 {
            let socket = back_end.socket(vm).display().to_string();
            let heard = back_end.log.find(0, &format!("Listening at {socket}"));
            assert!(heard.is_some(), "{:?}", back_end.log.since(0));
        }
        Some(back_end)
    }

    /// A VM's socket.
    pub fn socket(&self, vm: usize) -> PathBuf {
        self.dir.path().join(format!("vm{vm}"))
    }

    /// The file that causes the loss of a GPU, where workers and movers see it.
    pub fn lost(&self) -> PathBuf {
        self.dir.path().join("software-gpu/lost")
    }

    /// The supervisor's process.
    pub fn supervisor(&self) -> Pid {
        Pid::from_raw(self.process.id() as i32)
    }

    /// A command that runs in a VM.
    pub fn command(&self, vm: usize, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.stage.join("lib/virtio-gpgpu"))
            .env(
                "VIRTIO_GPGPU",
                format!("unix:{}", self.socket(vm).display()),
            );
        command
    }

    /// A staged file.
    pub fn staged(&self, path: &str) -> PathBuf {
        self.stage.join(path)
    }

    /// Starts the guest program in a VM.
    pub fn guest(&self, vm: usize, arguments: &[&str]) -> Guest {
        let mut command = self.command(vm, &self.staged("isolation/guest"));
        command.args(arguments);
        Guest::spawn(command)
    }

    /// Runs the guest program in a VM to its end; returns its status and output.
    pub fn run(&self, vm: usize, arguments: &[&str]) -> (ExitStatus, String) {
        self.guest(vm, arguments).end()
    }

    /// Checks that a new process in this VM works; returns the time that it took.
    pub fn works(&self, vm: usize) -> Duration {
        let start = Instant::now();
        let (status, said) = self.run(vm, &["once"]);
        assert!(
            status.success() && said.contains("done"),
            "{status}: {said}"
        );
        start.elapsed()
    }

    /// The number of processes that read sensors.
    pub fn sensor_processes(&self) -> usize {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let is_one = |path: PathBuf| {
            let read = |name| fs::read_to_string(path.join(name)).unwrap_or_default();
            let parent = format!("PPid:\t{}\n", self.supervisor());
            read("cmdline").contains("sensor-probe") && read("status").contains(&parent)
        };
        all.filter(|entry| is_one(entry.path())).count()
    }

    /// Its child processes, by role.
    pub fn children(&self) -> BTreeMap<&'static str, Vec<Pid>> {
        let mut children = BTreeMap::<_, Vec<Pid>>::new();
        let tasks = fs::read_dir(format!("/proc/{}/task", self.supervisor())).unwrap();
        for task in tasks.flatten() {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            for pid in list.split_whitespace().filter_map(|pid| pid.parse().ok()) {
                let pid = Pid::from_raw(pid);
                if let Some(role) = role(pid) {
                    children.entry(role).or_default().push(pid);
                }
            }
        }
        children
    }

    /// Waits for a line of the log from `from` on, and returns the number after `(process ` or `(worker `.
    fn logged_pid(&self, from: usize, texts: [&str; 2]) -> Pid {
        let mut at = from;
        loop {
            let line = self.log.find(at, texts[0]).expect("the back end ended");
            if line.contains(texts[1]) {
                let (_, number) = line.rsplit_once(' ').unwrap();
                return Pid::from_raw(number.trim_end_matches(')').parse().unwrap());
            }
            at += self
                .log
                .since(at)
                .iter()
                .position(|other| *other == line)
                .unwrap()
                + 1;
        }
    }

    /// The worker that the next client of a VM got, by the log from `from` on.
    pub fn worker(&self, vm: usize, from: usize) -> Pid {
        let socket = self.socket(vm).display().to_string();
        self.logged_pid(from, [") opened (worker ", &socket])
    }

    /// The device process of the next connection of a VM, by the log from `from` on.
    pub fn device(&self, vm: usize, from: usize) -> Pid {
        let socket = self.socket(vm).display().to_string();
        self.logged_pid(from, ["VM connected (process ", &socket])
    }

    /// Its present resources.
    pub fn holdings(&self) -> Holdings {
        let children = self.children();
        let movers = children.get("mover-process").cloned().unwrap_or_default();
        Holdings {
            processes: 1 + children.values().map(Vec::len).sum::<usize>(),
            supervisor: descriptors(self.supervisor()),
            movers: movers.into_iter().map(descriptors).sum(),
        }
    }

    /// Waits until nothing has changed for [`REST`], so that warm workers are ready.
    pub fn settled(&self) -> (Holdings, u64) {
        let mut last = (self.holdings(), self.device_memory());
        let mut since = Instant::now();
        wait_for("rest", || {
            let now = (self.holdings(), self.device_memory());
            if now != last {
                (last, since) = (now, Instant::now());
            }
            (since.elapsed() > REST).then_some(())
        });
        last
    }

    /// Waits until no more device memory is in use than before; returns the time since `since`.
    pub fn memory_back(&self, before: u64, since: Instant) -> Duration {
        // The driver's rounding and the bystander's kept memory are not leaks.
        let slack = if on_gpu() { 64 << 20 } else { 0 };
        wait_for("device memory that was given back", || {
            (self.device_memory() <= before + slack).then_some(())
        });
        since.elapsed()
    }

    /// Waits until it has no more resources than before.
    pub fn back_to(&self, before: &(Holdings, u64)) {
        let mut now = self.holdings();
        let deadline = Instant::now() + LIMIT;
        while now.processes > before.0.processes
            || now.supervisor > before.0.supervisor
            || now.movers > before.0.movers
        {
            assert!(Instant::now() < deadline, "{now:?} and not {before:?}");
            std::thread::sleep(Duration::from_millis(1));
            now = self.holdings();
        }
        self.memory_back(before.1, Instant::now());
    }

    /// Bytes of device memory in use: those of the GPU, or of all memory that the software GPU's processes have
    /// allocated.
    pub fn device_memory(&self) -> u64 {
        if on_gpu() {
            let output = Command::new("nvidia-smi")
                .args([
                    "--id=0",
                    "--query-gpu=memory.used",
                    "--format=csv,noheader,nounits",
                ])
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            return said.trim().parse::<u64>().unwrap() << 20;
        }
        let mut chunks = HashMap::new();
        for pid in self.children().into_values().flatten() {
            let Ok(fds) = fs::read_dir(format!("/proc/{pid}/fd")) else {
                continue;
            };
            for fd in fds.flatten() {
                let is_chunk = |to: PathBuf| to.to_string_lossy().contains("gpgpu-device-memory");
                if fs::read_link(fd.path()).is_ok_and(is_chunk)
                    && let Ok(metadata) = fs::metadata(fd.path())
                {
                    use std::os::unix::fs::MetadataExt;
                    chunks.insert(metadata.ino(), metadata.len());
                }
            }
        }
        chunks.values().sum()
    }

    /// Whether it is still running.
    pub fn lives(&mut self) -> bool {
        self.process.try_wait().unwrap().is_none()
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

/// A program in a VM.
pub struct Guest {
    process: Child,
    input: Option<ChildStdin>,
    /// Its output.
    pub said: Lines,
    errors: Lines,
}

impl Guest {
    /// Starts a program with pipes for its input and output.
    pub fn spawn(mut command: Command) -> Self {
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: process.stdin.take(),
            said: Lines::read(process.stdout.take().unwrap(), false),
            errors: Lines::read(process.stderr.take().unwrap(), false),
            process,
        }
    }

    /// Sends a line to it; returns its next line.
    pub fn ask(&mut self, line: &str) -> String {
        let from = self.said.count();
        writeln!(self.input.as_mut().unwrap(), "{line}").unwrap();
        self.said
            .find(from, "")
            .unwrap_or_else(|| panic!("no answer to {line:?}: {:?}", self.errors.since(0)))
    }

    /// Waits for a line.
    pub fn wait_for(&self, text: &str) -> String {
        self.said.find(0, text).unwrap_or_else(|| {
            panic!(
                "no {text:?} in {:?}, {:?}",
                self.said.since(0),
                self.errors.since(0)
            )
        })
    }

    /// Its process id, which is the same in the host and in its VM.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Kills it with `SIGKILL`.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        let status = self.process.wait().unwrap();
        assert_eq!(status.signal(), Some(9), "{:?}", self.said.since(0));
    }

    /// Closes its input and waits for its end; returns its status and its output, including errors.
    pub fn end(mut self) -> (ExitStatus, String) {
        if let Some(mut input) = self.input.take() {
            let _ = input.flush();
        }
        let deadline = Instant::now() + LIMIT;
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                let _ = self.process.kill();
                panic!("it never ends: {:?}", self.said.since(0));
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        // Wait until both pipes are closed.
        let _ = (self.said.find(0, "\0"), self.errors.find(0, "\0"));
        let lines = [self.said.since(0), self.errors.since(0)].concat();
        (status, lines.join("\n"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
