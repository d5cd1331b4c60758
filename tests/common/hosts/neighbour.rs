// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host: the back end, its processes' resources and log, and a well-behaved VM on it.

use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::symlink, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread::JoinHandle,
    time::{Duration, Instant},
};

use gpgpu_protocol::api::{OPERATIONS, Request, request};

pub use crate::common::on_gpu;
use crate::{
    client::{Client, raw_command},
    common::{LIMIT, program, stop},
    guest::{Guest, Vmm},
    vmm,
};

/// The directory of the software GPU, if there is one.
fn software_gpu(directory: &Path) -> Option<PathBuf> {
    if let Some(stage) = std::env::var_os("VIRTIO_GPGPU_STAGE") {
        return Some(Path::new(&stage).join("software-gpu"));
    }
    let own = std::env::current_exe().ok()?;
    let built = own.parent()?.parent()?.join("libsoftware_gpu.so");
    if !built.exists() {
        eprintln!("skipped: there is no software GPU; run cargo xtask test");
        return None;
    }
    let linked = directory.join("software-gpu");
    fs::create_dir(&linked).unwrap();
    for name in ["libcuda.so.1", "libcuda.so"] {
        symlink(&built, linked.join(name)).unwrap();
    }
    Some(linked)
}

/// The resources of processes, by process id.
pub type Memory = HashMap<i32, u64>;

/// See the module's documentation.
pub struct Host {
    process: Child,
    directory: tempfile::TempDir,
    log: Arc<Log>,
}

/// The log so far.
#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Host {
    /// Starts a back end with two VMs.
    pub fn start() -> Option<Self> {
        Self::with("", 1)
    }

    /// The same; the policy of both VMs has these lines, and the software GPU has this number of devices.
    pub fn with(policy: &str, devices: usize) -> Option<Self> {
        Self::with_peers(policy, devices, true)
    }

    /// The same; `peers` says whether the software GPU's devices can access each other's memory.
    pub fn with_peers(policy: &str, devices: usize, peers: bool) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let vm = |name: &str| {
            let socket = at(name);
            format!("[[vm]]\nname = {name:?}\nsocket = {socket:?}\n{policy}\n")
        };
        let whole = [vm("vm0"), vm("vm1")].concat();
        fs::write(at("policy"), whole).unwrap();
        let mut command = Command::new(program());
        command
            .arg("--config")
            .arg(at("policy"))
            .args(["--warm-workers", "0"])
            .arg(format!("--metrics=unix:{}", at("metrics").display()))
            .env("VIRTIO_GPGPU_SOFTWARE_DEVICES", devices.to_string())
            .env("VIRTIO_GPGPU_SOFTWARE_PEERS", u32::from(peers).to_string());
        if on_gpu() {
            command.args(["--gpu", "cuda"]);
        } else {
            command
                .args(["--gpu", "software", "--software-gpu"])
                .arg(software_gpu(directory.path())?);
        }
        let mut process = command
            .env("VIRTIO_GPGPU_LOG", "info")
            // In a real driver, a handle that is used after its object's destruction would be freed memory.
            .env("VIRTIO_GPGPU_SOFTWARE_STALE", "abort")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let kept = Arc::<Log>::default();
        let log = BufReader::new(process.stderr.take().unwrap());
        let (sender, listening) = channel();
        let keeps = Arc::clone(&kept);
        std::thread::spawn(move || {
            for line in log.lines().map_while(Result::ok) {
                eprintln!("{line}");
                if line.contains("Listening") {
                    let _ = sender.send(());
                }
                keeps.lines.lock().unwrap().push(line);
                keeps.more.notify_all();
            }
        });
        for _ in 0..2 {
            listening.recv_timeout(LIMIT).expect("it does not listen");
        }
        Some(Self {
            process,
            directory,
            log: kept,
        })
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("vm{number}"))
    }

    /// A VM.
    pub fn boot(&self, number: usize, vmm: Vmm) -> Guest {
        Guest::boot(&self.socket(number), vmm)
    }

    /// A well-behaved VM, which copies to the GPU and back until it is told to finish.
    pub fn neighbour(&self) -> Neighbour {
        let socket = self.socket(1);
        let rounds = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let (counted, stopped) = (Arc::clone(&rounds), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut guest = Guest::boot(&socket, vmm());
            let mut client = Client::open(&mut guest);
            let context = client.context();
            let address = client.alloc(1 << 20, context);
            for round in 0.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let data: Vec<u8> = (0..100_000).map(|at| (at * 7 + round) as u8).collect();
                let copy = request::gpgpuCopyIn {
                    dst: address + round % 64,
                    hStream: 0,
                    synchronous: true,
                };
                client.works(&copy, context, &data, 0);
                let copy = request::gpgpuCopyOut {
                    src: address + round % 64,
                    hStream: 0,
                };
                let (_, back) = client.works(&copy, context, &[], data.len() as u64);
                assert!(back == data, "the neighbour's memory is not its own");
                counted.fetch_add(1, Ordering::Relaxed);
            }
            client.close();
        });
        let neighbour = Neighbour {
            rounds,
            stop,
            thread: Some(thread),
        };
        neighbour.goes_on();
        neighbour
    }

    /// The value of a VM's metric, or 0 if absent, for one GPU or for all GPUs.
    pub fn metric(&self, name: &str, vm: usize, gpu: Option<usize>) -> f64 {
        let mut stream = UnixStream::connect(self.directory.path().join("metrics")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (vm, gpu) = (
            format!("vm=\"vm{vm}\""),
            gpu.map(|gpu| format!("gpu=\"{gpu}\"")),
        );
        let value = |line: &str| {
            let labels = line.strip_prefix("virtio_gpgpu_")?.strip_prefix(name)?;
            let (labels, value) = labels.strip_prefix('{')?.rsplit_once("} ")?;
            let has = |label: &str| labels.split(',').any(|one| one == label);
            (has(&vm) && gpu.as_deref().is_none_or(has)).then(|| value.parse::<f64>().unwrap())
        };
        text.lines().filter_map(value).sum()
    }

    /// The GPU time of a VM in seconds, on one GPU or on all.
    pub fn gpu_seconds(&self, vm: usize, gpu: Option<usize>) -> f64 {
        self.metric("gpu_seconds_total", vm, gpu)
    }

    /// The same on one GPU, after the turns that have ended were recorded.
    pub fn settled_gpu_seconds(&self, vm: usize, gpu: usize) -> f64 {
        let mut had = self.gpu_seconds(vm, Some(gpu));
        loop {
            std::thread::sleep(Duration::from_millis(150));
            let now = self.gpu_seconds(vm, Some(gpu));
            if now == had {
                return now;
            }
            had = now;
        }
    }

    /// Waits until a condition holds for the host.
    pub fn wait_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !is_so() {
            assert!(Instant::now() < deadline, "never: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of lines logged so far.
    pub fn lines(&self) -> usize {
        self.log.lines.lock().unwrap().len()
    }

    /// Waits for the first line that satisfies `says`.
    // Some test programs do not use it.
    #[allow(dead_code)]
    pub fn logged(&self, says: impl Fn(&str) -> bool) -> String {
        self.wait_for_lines(|lines| lines.iter().find(|line| says(line)).cloned())
    }

    fn wait_for_lines<T>(&self, found: impl Fn(&[String]) -> Option<T>) -> T {
        let lines = self.log.lines.lock().unwrap();
        let more = &self.log.more;
        let waited = more.wait_timeout_while(lines, LIMIT, |lines| found(lines).is_none());
        found(&waited.unwrap().0).expect("it was not logged")
    }

    /// The supervisor and all its descendants.
    fn processes(&self) -> Vec<i32> {
        let mut all = vec![self.process.id() as i32];
        let mut next = 0;
        while let Some(&process) = all.get(next) {
            next += 1;
            let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else {
                continue;
            };
            for task in tasks.flatten() {
                let children = fs::read_to_string(task.path().join("children"));
                let children = children.unwrap_or_default();
                all.extend(
                    children
                        .split_whitespace()
                        .filter_map(|id| id.parse::<i32>().ok()),
                );
            }
        }
        all
    }

    /// The number of workers, including those that are ending.
    pub fn workers(&self) -> usize {
        let is_worker = |id: &&i32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("worker-process")
        };
        self.processes().iter().filter(is_worker).count()
    }

    /// The worker of a VM's client, according to the log. The first client of the VM is number 0, counted over all its
    /// connections.
    // Some test programs do not use it.
    #[allow(dead_code)]
    pub fn worker_of(&self, vm: usize, client: usize) -> u32 {
        let socket = format!("{}: client", self.socket(vm).display());
        let nth = |lines: &[String]| {
            let of_vm = lines.iter().filter(|line| line.contains(&socket));
            let opened = of_vm.filter_map(|line| line.split_once(") opened (worker "));
            let (_, worker) = opened.clone().nth(client)?;
            Some(worker.trim_end_matches(')').parse().unwrap())
        };
        self.wait_for_lines(nth)
    }

    /// Waits until there is this number of workers.
    pub fn wait_for_workers(&self, count: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.workers() != count {
            assert!(Instant::now() < deadline, "{} workers", self.workers());
            std::thread::yield_now();
        }
    }

    /// Waits until the supervisor has at most this number of descriptors open.
    pub fn wait_for_files(&self, most: usize) {
        let deadline = Instant::now() + LIMIT;
        while self.files() > most {
            let files = self.files();
            assert!(Instant::now() < deadline, "{files} descriptors, not {most}");
            std::thread::yield_now();
        }
    }

    /// The number of the supervisor's open descriptors.
    pub fn files(&self) -> usize {
        let directory = format!("/proc/{}/fd", self.process.id());
        fs::read_dir(directory).unwrap().count()
    }

    /// The private memory of each process.
    pub fn memory(&self) -> Memory {
        let held = |id: i32| {
            let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
            let line = status
                .lines()
                .find_map(|line| line.strip_prefix("RssAnon:"))?;
            let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
            Some((id, kilobytes << 10))
        };
        self.processes().into_iter().filter_map(held).collect()
    }

    /// Checks that no process has much more memory than before; a new process is compared with the largest one.
    pub fn check_memory(&self, before: &Memory, allowance: u64) {
        let largest = before.values().copied().max().unwrap_or(0);
        for (id, held) in self.memory() {
            let had = before.get(&id).copied().unwrap_or(largest);
            assert!(
                held < had + allowance,
                "process {id} holds {held} bytes, and held {had} before"
            );
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

/// See [`Host::neighbour`].
pub struct Neighbour {
    rounds: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// Waits until it has made progress.
    fn goes_on(&self) {
        let (start, deadline) = (self.rounds.load(Ordering::Relaxed), Instant::now() + LIMIT);
        while self.rounds.load(Ordering::Relaxed) < start + 3 {
            let ended = self.thread.as_ref().is_some_and(JoinHandle::is_finished);
            assert!(!ended, "the neighbour has failed");
            assert!(Instant::now() < deadline, "the neighbour does not get on");
            std::thread::yield_now();
        }
    }

    /// Checks that it continues, and that all its results were right.
    pub fn finish(mut self) {
        self.goes_on();
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the neighbour has failed");
        }
    }
}

/// Reproducible random numbers: SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// Any number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A size: small, at a limit, or arbitrary.
    pub fn size(&mut self) -> u32 {
        match self.below(4) {
            0 => self.below(100) as u32,
            1 => (64 << 10) + self.below(3) as u32 - 1,
            2 => (4 << 20) + self.below(3) as u32 - 1,
            _ => self.next() as u32,
        }
    }

    /// Random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }

    /// Any operation with arguments from a pool.
    pub fn command(&mut self, pool: &[u64]) -> Vec<u8> {
        let operation = loop {
            let operation = OPERATIONS[self.below(OPERATIONS.len() as u64) as usize];
            // It waits until a callback is due that was not fetched.
            if operation.op != request::gpgpuNextCallback::OP {
                break operation;
            }
        };
        let count = self.below(9);
        let words: Vec<u8> = (0..count)
            .flat_map(|_| pool[self.below(pool.len() as u64) as usize].to_le_bytes())
            .collect();
        let context = pool[7 * usize::from(self.below(8) != 0)];
        raw_command(operation.op, context, &words)
    }
}
