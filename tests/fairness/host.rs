// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The service with a policy, and the processes of its VMs.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    time::{Duration, Instant},
};

use super::client::{LIBRARY, MARK};
use super::common;

/// A time limit for events that never happen.
pub const LIMIT: Duration = Duration::from_secs(90);

/// The programs and libraries of the tests.
pub struct Parts {
    /// The service's program.
    program: PathBuf,
    /// The guest's `libcuda.so.1`.
    library: PathBuf,
    /// The directory of the software GPU's library; `None` on a GPU.
    software_gpu: Option<PathBuf>,
}

impl Parts {
    /// The programs and libraries that `cargo xtask test` has staged.
    pub fn find() -> Option<Self> {
        let stage = common::stage()?;
        Some(Self {
            program: common::program(),
            library: stage.join("lib/virtio-gpgpu/libcuda.so.1"),
            software_gpu: (!common::on_gpu()).then(|| stage.join("software-gpu")),
        })
    }
}

/// A running service with the VMs `vm0`, `vm1` …
pub struct Host {
    parts: Parts,
    process: Child,
    dir: tempfile::TempDir,
}

impl Host {
    /// With one VM for each of `policies`: lines of the policy in addition to its name and socket.
    pub fn new(policies: &[&str]) -> Option<Self> {
        // All on the first GPU: a host with several would distribute them.
        let policies: Vec<String> = policies
            .iter()
            .map(|own| format!("{own}\ngpus = [0]"))
            .collect();
        Self::with_gpus(1, &policies)
    }

    /// The same with this number of GPUs. If there are fewer, the test is skipped.
    pub fn with_gpus(gpus: usize, policies: &[impl AsRef<str>]) -> Option<Self> {
        let parts = Parts::find()?;
        let present = |gpu| std::path::Path::new(&format!("/dev/nvidia{gpu}")).exists();
        if common::on_gpu() && !(0..gpus).all(present) {
            eprintln!("skipped: the host has fewer than {gpus} GPUs");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let mut policy = String::new();
        for (number, own) in policies.iter().map(AsRef::as_ref).enumerate() {
            let socket = at(&format!("vm{number}"));
            policy += &format!("[[vm]]\nname = \"vm{number}\"\nsocket = {socket:?}\n{own}\n\n");
        }
        fs::write(at("policy.toml"), policy).unwrap();
        let mut command = Command::new(&parts.program);
        command.arg("--config").arg(at("policy.toml"));
        command.arg(format!("--metrics=unix:{}", at("metrics").display()));
        match &parts.software_gpu {
            Some(directory) => command
                .env("VIRTIO_GPGPU_SOFTWARE_DEVICES", gpus.to_string())
                .args(["--gpu", "software", "--software-gpu"])
                .arg(directory),
            None => command.args(["--gpu", "cuda"]),
        };
        let log = fs::File::create(at("log")).unwrap();
        let process = command.stderr(log).spawn().unwrap();
        let host = Self {
            parts,
            process,
            dir,
        };
        host.wait_for("the sockets", || {
            (0..policies.len())
                .all(|number| host.at(&format!("vm{number}")).exists())
                .then_some(())
        });
        Some(host)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Waits until `look` returns a value.
    pub fn wait_for<T>(&self, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(found) = look() {
                return found;
            }
            let log = || fs::read_to_string(self.at("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "{what} never comes:\n{}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A process of a VM that takes commands.
    pub fn client(&self, vm: usize, order: &str) -> Client {
        let test = ["--exact", "client_of_a_vm", "--nocapture", "--quiet"];
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(test)
            .env(LIBRARY, &self.parts.library)
            .env(
                "VIRTIO_GPGPU",
                format!("unix:{}", self.at(&format!("vm{vm}")).display()),
            )
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = channel();
        let output = BufReader::new(process.stdout.take().unwrap());
        std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            let own = lines.filter_map(|line| Some(line.strip_prefix(MARK)?.to_owned()));
            own.map(|line| tell.send(line))
                .take_while(Result::is_ok)
                .count()
        });
        let mut client = Client {
            input: process.stdin.take(),
            process,
            lines,
        };
        client.wait_for("ready");
        client.tell(order);
        client
    }

    /// The GPU time that each VM has had.
    fn gpu_seconds(&self) -> GpuTime {
        let mut stream = UnixStream::connect(self.at("metrics")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let mut all = BTreeMap::new();
        for line in text.lines() {
            let Some(rest) = line.strip_prefix("virtio_gpgpu_gpu_seconds_total{") else {
                continue;
            };
            let (labels, value) = rest.rsplit_once("} ").unwrap();
            let label = |name: &str| {
                let value = |label: &str| {
                    let value = label.strip_prefix(name)?.strip_prefix("=\"")?;
                    Some(value.strip_suffix('"')?.to_owned())
                };
                labels.split(',').find_map(value).unwrap()
            };
            let of = (label("vm"), label("gpu"));
            *all.entry(of).or_insert(0.0) += value.parse::<f64>().unwrap();
        }
        GpuTime(all)
    }

    /// The GPU time that each VM gets from now on, until the sum is `seconds`.
    pub fn gpu_time(&self, seconds: f64) -> GpuTime {
        let before = self.gpu_seconds();
        self.wait_for("GPU time", || {
            let had = self.gpu_seconds().since(&before);
            (had.0.values().sum::<f64>() >= seconds).then_some(had)
        })
    }

    /// Waits until the VMs' GPU times are right in a window of `seconds` of GPU time.
    ///
    /// If the machine pauses, the turn of one VM lasts for so long, and then the others catch up. So there are several
    /// windows. A wrong schedule is wrong in all of them.
    #[track_caller]
    pub fn until_right(&self, seconds: f64, are_right: impl Fn(&GpuTime) -> bool) {
        let mut wrong = Vec::new();
        for _ in 0..6 {
            let had = self.gpu_time(seconds);
            if are_right(&had) {
                return;
            }
            wrong.push(had);
        }
        panic!("{wrong:?}");
    }

    /// The service's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.at("log")).unwrap()
    }
}

/// GPU time of VMs in seconds, by VM and GPU.
#[derive(Debug)]
pub struct GpuTime(BTreeMap<(String, String), f64>);

impl GpuTime {
    fn since(mut self, before: &Self) -> Self {
        for (of, seconds) in &mut self.0 {
            *seconds -= before.0.get(of).unwrap_or(&0.0);
        }
        self
    }

    /// The GPU time of the VM with this number, on all GPUs.
    pub fn of(&self, vm: usize) -> f64 {
        let vm = format!("vm{vm}");
        let its = self.0.iter().filter(|((of, _), _)| *of == vm);
        its.map(|(_, seconds)| seconds).sum()
    }

    /// Its GPU time on one GPU.
    pub fn on(&self, vm: usize, gpu: usize) -> f64 {
        let of = (format!("vm{vm}"), gpu.to_string());
        self.0.get(&of).copied().unwrap_or(0.0)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        common::stop(&mut self.process);
    }
}

/// A process of a VM.
pub struct Client {
    /// The process.
    pub process: Child,
    input: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Client {
    /// Sends it a command.
    pub fn tell(&mut self, line: &str) {
        writeln!(self.input.as_ref().unwrap(), "{line}").unwrap();
    }

    /// Waits until it prints a line that begins with `word`, and returns the rest of the line.
    pub fn wait_for(&self, word: &str) -> String {
        loop {
            let line = self
                .lines
                .recv_timeout(LIMIT)
                .unwrap_or_else(|_| panic!("no {word}"));
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
        }
    }

    /// Closes its input, and waits until it ends.
    pub fn end(mut self) -> ExitStatus {
        self.input = None;
        self.process.wait().unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
