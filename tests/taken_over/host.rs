// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor in a separate process, and its observable state.

use std::{
    fs,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use gpgpu_protocol::api::Sensor;
use vhost_device_gpgpu::{
    ipc::mover::take_order,
    log,
    policy::VmPolicy,
    supervisor::{self, Program, Supervisor},
};

pub use crate::common::LIMIT;
use crate::common::wait_for;

const BINARY: &str = env!("CARGO_BIN_EXE_vhost-device-gpgpu");
/// The variable with a process's role.
const ROLE: &str = "TAKEN_OVER_ROLE";
/// The attack of the first VM's processes: `worker`, or the device process's.
const ATTACK: &str = "TAKEN_OVER_ATTACK";
const DIRECTORY: &str = "TAKEN_OVER_DIRECTORY";
/// The arguments of this program as one of the processes.
const ARGUMENTS: [&str; 4] = ["--exact", "role", "--nocapture", "--quiet"];

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// The file by which a process reports that its attack is done.
fn done_file(directory: &str) -> PathBuf {
    PathBuf::from(directory).join("done")
}

/// Reports that the attack is done, with a number.
pub fn say_done(number: usize) {
    let path = done_file(&variable(DIRECTORY));
    let new = path.with_extension("new");
    fs::write(&new, number.to_string()).unwrap();
    fs::rename(new, path).unwrap();
}

/// Runs this process's role, and does not return; does nothing in a test.
pub fn run_role() {
    if variable(ROLE).is_empty() {
        return;
    }
    // None of the test's processes stays behind, however the test ends.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).unwrap();
    let attack = variable(ATTACK);
    let is_first = std::env::args().next_back().unwrap().ends_with("vm0");
    let stdin = || std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match &variable(ROLE)[..] {
        "supervisor" => supervise(&attack),
        "worker" => crate::worker::run(stdin()),
        "mover" => keep_channels(stdin()),
        _ if is_first && attack != "worker" => crate::device::run(&attack, stdin()),
        _ => {
            let label = std::env::args().next_back().unwrap();
            let failed = Command::new(BINARY).args(["device-process", &label]).exec();
            panic!("{failed}");
        }
    }
    std::process::exit(0);
}

fn supervise(attack: &str) {
    log::start(log::Format::Text, "supervisor");
    let directory = variable(DIRECTORY);
    let program = |role: &str| Program {
        program: std::env::current_exe().unwrap(),
        arguments: ARGUMENTS.map(Into::into).to_vec(),
        environment: vec![
            (ROLE.into(), role.into()),
            (ATTACK.into(), attack.into()),
            (DIRECTORY.into(), (&directory).into()),
        ],
    };
    let config = supervisor::Config {
        // The second VM may read the sensors of the first GPU.
        vms: [("vm0", false), ("vm1", true)]
            .map(|(name, sensors)| VmPolicy {
                gpus: Some(vec![0]),
                sensors,
                ..VmPolicy::new(PathBuf::from(&directory).join(name))
            })
            .to_vec(),
        gpus: 2,
        max_connections: 16,
        device: program("device"),
        worker: program("worker"),
        warm_workers: 0,
        cache: None,
        may_hold: true,
        scheduler: true,
        mover: Some(program("mover")),
        context_costs: Vec::new(),
        sensors: Some(sensors()),
    };
    let supervisor = Supervisor::new(config).unwrap();
    supervisor.run(std::io::stdin().as_fd()).unwrap();
}

/// The program that reports the sensors of every GPU.
fn sensors() -> Program {
    let values = vec![crate::worker::VALUE.to_string(); Sensor::COUNT].join(" ");
    Program {
        program: "/bin/sh".into(),
        arguments: vec![
            "-c".into(),
            format!("while read gpu; do echo {values}; done").into(),
        ],
        environment: Vec::new(),
    }
}

/// A mover that moves nothing.
fn keep_channels(link: OwnedFd) {
    let mut kept = Vec::new();
    while let Ok(Some(order)) = take_order(link.as_fd()) {
        kept.push(order);
    }
}

/// The number of descriptors that a process has open.
pub fn files_of(process: u32) -> usize {
    fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

/// See the module's documentation. It ends when this is dropped.
pub struct Host {
    child: Child,
    directory: tempfile::TempDir,
}

impl Host {
    /// Two VMs; the first one makes this attack.
    pub fn start(attack: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(ARGUMENTS)
            .env(ROLE, "supervisor")
            .env(ATTACK, attack)
            .env(DIRECTORY, directory.path())
            .stdin(Stdio::piped())
            // It is not read: a write there must not block.
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let host = Self { child, directory };
        wait_for("a socket", || host.socket(1).exists().then_some(()));
        host
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn socket(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("vm{number}"))
    }

    /// Whether the attack was made. The answer is `true` only once.
    pub fn is_done(&self) -> bool {
        let file = done_file(self.directory.path().to_str().unwrap());
        fs::rename(&file, file.with_extension("seen")).is_ok()
    }

    /// The number of the report.
    pub fn done(&self) -> usize {
        let file = done_file(self.directory.path().to_str().unwrap()).with_extension("seen");
        fs::read_to_string(file).unwrap().parse().unwrap()
    }

    /// A child of the supervisor that satisfies `is_it`.
    fn child(&self, what: &str, is_it: impl Fn(&str, &str) -> bool) -> u32 {
        let text = |child: &str, name: &str| {
            let bytes = fs::read(format!("/proc/{child}/{name}")).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        wait_for(what, || {
            let tasks = fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
            let children = tasks
                .flatten()
                .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
            let children = children.collect::<String>();
            let mut children = children.split_whitespace();
            let found =
                children.find(|child| is_it(&text(child, "cmdline"), &text(child, "environ")));
            found.map(|child| child.parse().unwrap())
        })
    }

    /// The device process of a VM.
    pub fn device(&self, number: usize) -> u32 {
        let socket = self.socket(number);
        let label = format!("device-process {} ", socket.display());
        self.child("a device process", |line, _| line.ends_with(&label))
    }

    /// The mover.
    pub fn mover(&self) -> u32 {
        let role = format!("{ROLE}=mover ");
        self.child("a mover", |_, variables| variables.contains(&role))
    }

    /// The number of the supervisor's open descriptors.
    pub fn files(&self) -> usize {
        files_of(self.id())
    }

    /// Waits until a process has at most this number of descriptors open.
    pub fn wait_for_files(&self, process: u32, most: usize) {
        let mut files = 0;
        let few = || {
            files = files_of(process);
            (files <= most).then_some(())
        };
        wait_for("a small number of descriptors", few);
    }

    /// The supervisor's processor time.
    pub fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        let mut fields = rest.split_whitespace().skip(11);
        let mut ticks = || fields.next().unwrap().parse::<u32>().unwrap();
        Duration::from_millis(10) * (ticks() + ticks())
    }

    /// Stops the supervisor, and waits until it has ended normally.
    pub fn stop(&mut self) {
        drop(self.child.stdin.take());
        let deadline = Instant::now() + LIMIT;
        let ended = loop {
            if let Some(ended) = self.child.try_wait().unwrap() {
                break ended;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert!(ended.success(), "{ended}");
        assert!(!self.socket(0).exists());
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
