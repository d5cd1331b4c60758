// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A policy while the back end is running: the GPUs that a VM sees, their order, and changes by SIGHUP.
//!
//! The guests are processes of this test program. They use the guest's libcuda in the directory that
//! `VIRTIO_GPGPU_STAGE` names; without it, the tests print that there is nothing to run. The GPUs are the software
//! GPU's.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
};

use gpgpu_protocol::cuda::*;
use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};

mod common;
#[path = "policy/guest.rs"]
mod guest;

use common::{LIMIT, stage};

/// Not a test: the guests' program.
#[test]
fn guest_program() {
    if let Some(library) = std::env::var_os(guest::LIBRARY) {
        guest::run(Path::new(&library));
    }
}

/// A process, and the lines that it writes.
struct Speaker {
    process: Child,
    lines: Receiver<String>,
}

impl Speaker {
    fn new(mut process: Child, output: impl std::io::Read + Send + 'static) -> Self {
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.try_for_each(|line| sender.send(line))
        });
        let _ = process.stdout.take();
        Self { process, lines }
    }

    /// The first line from now on that contains `text`.
    fn wait_for(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LIMIT);
            let line = line.unwrap_or_else(|_| panic!("nothing said with {text:?}"));
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Speaker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A running back end with two GPUs.
struct BackEnd {
    log: Speaker,
    stage: PathBuf,
    dir: tempfile::TempDir,
}

impl BackEnd {
    /// With a policy, in which `$DIR` stands for the directory of the sockets.
    fn start(stage: &Path, policy: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("policy.toml");
        fs::write(&file, fill(policy, dir.path())).unwrap();
        let mut process = command(stage)
            .arg("--config")
            .arg(&file)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = process.stderr.take().unwrap();
        let back_end = Self {
            log: Speaker::new(process, log),
            stage: stage.to_owned(),
            dir,
        };
        back_end.log.wait_for("Listening");
        back_end
    }

    /// Changes the policy's file and signals the back end.
    fn change(&self, policy: &str) {
        let text = fill(policy, self.dir.path());
        fs::write(self.file(), text).unwrap();
        self.signal();
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("policy.toml")
    }

    fn signal(&self) {
        kill(Pid::from_raw(self.log.process.id() as i32), Signal::SIGHUP).unwrap();
    }

    fn guest(&self, socket: &str) -> Guest {
        self.guest_with(socket, &[])
    }

    /// With additional environment variables.
    fn guest_with(&self, socket: &str, variables: &[(&str, &str)]) -> Guest {
        let socket = self.dir.path().join(socket);
        Guest::start(&self.stage, &socket, variables)
    }
}

impl Drop for BackEnd {
    fn drop(&mut self) {
        // Stops it in order, so that it ends its processes.
        common::stop(&mut self.log.process);
    }
}

fn fill(policy: &str, dir: &Path) -> String {
    policy.replace("$DIR", dir.to_str().unwrap())
}

fn command(stage: &Path) -> Command {
    let mut command = Command::new(common::program());
    command
        .args(["--gpu", "software", "--software-gpu"])
        .arg(stage.join("software-gpu"))
        .env("VIRTIO_GPGPU_SOFTWARE_DEVICES", "2")
        .env("VIRTIO_GPGPU_LOG", "info");
    command
}

/// A process that uses CUDA, and executes commands.
struct Guest {
    output: Speaker,
    input: ChildStdin,
}

impl Guest {
    fn start(stage: &Path, socket: &Path, variables: &[(&str, &str)]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "guest_program", "--nocapture"])
            .env(guest::LIBRARY, stage.join("lib/virtio-gpgpu/libcuda.so.1"))
            .env("VIRTIO_GPGPU", format!("unix:{}", socket.display()))
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = process.stdout.take().unwrap();
        Self {
            input: process.stdin.take().unwrap(),
            output: Speaker::new(process, output),
        }
    }

    /// Sends it a command; returns its answer.
    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input, "{what}").unwrap();
        let line = self.output.wait_for(guest::MARK);
        let (_, answer) = line.split_once(guest::MARK).unwrap();
        answer.to_owned()
    }

    /// Ends it, and waits until its worker has ended.
    fn end(self, back_end: &BackEnd) {
        drop(self);
        back_end.log.wait_for(") closed");
    }
}

const OK: u32 = CUDA_SUCCESS;
const NO_MEMORY: u32 = CUDA_ERROR_OUT_OF_MEMORY;

#[test]
fn clients_of_a_vm_number_the_gpus_alike_and_another_vm_has_another_first() {
    let Some(stage) = stage() else { return };
    let policy = "[[vm]]\nsocket = '$DIR/vm'\n[[vm]]\nsocket = '$DIR/other'\n";
    let back_end = BackEnd::start(&stage, policy);
    let mut first = back_end.guest("vm");
    assert_eq!(first.ask("devices"), "0 1");
    let mut other = back_end.guest("other");
    assert_eq!(other.ask("devices"), "1 0");
    let mut second = back_end.guest("vm");
    assert_eq!(second.ask("devices"), "0 1");
    for guest in [&mut first, &mut second, &mut other] {
        assert_eq!(guest.ask("work 0"), "device 0, value 42");
        assert_eq!(guest.ask("work 1"), "device 1, value 42");
        assert_eq!(guest.ask("work 2"), CUDA_ERROR_INVALID_DEVICE.to_string());
    }
    // The order is kept as long as one of them exists, whatever the others do.
    first.end(&back_end);
    let mut third = back_end.guest("vm");
    assert_eq!(third.ask("devices"), "0 1");
    let mut beside = back_end.guest("other");
    assert_eq!(beside.ask("devices"), "1 0");
}

/// Reading a pipe that nobody writes to would stop the service.
#[test]
fn a_pipe_in_the_place_of_the_policy_is_not_read_again() {
    let Some(stage) = stage() else { return };
    let back_end = BackEnd::start(&stage, "[[vm]]\nsocket = '$DIR/vm'\n");
    fs::remove_file(back_end.file()).unwrap();
    mkfifo(&back_end.file(), Mode::S_IRWXU).unwrap();
    back_end.signal();
    back_end.log.wait_for("is a pipe");
    assert_eq!(back_end.guest("vm").ask("devices"), "0 1");
}

/// A device that a program sees is the same on the host, whatever its number is; a device that it does not see does not
/// exist for it.
#[test]
fn a_program_sees_the_devices_that_it_asks_for() {
    let Some(stage) = stage() else { return };
    let policy = "[[vm]]\nsocket = '$DIR/vm'\n[[vm]]\nsocket = '$DIR/one'\ngpus = [1]\n";
    let back_end = BackEnd::start(&stage, policy);
    // The VM's order of the GPUs is kept as long as it has a client, so the first client must exist before the others.
    let mut first = back_end.guest("vm");
    assert_eq!(first.ask("devices"), "0 1");
    for (visible, devices) in [("1", "1"), ("1,0", "1 0"), ("0", "0"), ("0,7,1", "0")] {
        let mut guest = back_end.guest_with("vm", &[("CUDA_VISIBLE_DEVICES", visible)]);
        assert_eq!(guest.ask("devices"), devices, "{visible}");
        let count = devices.split(' ').count();
        for number in 0..count {
            let worked = guest.ask(&format!("work {number}"));
            assert_eq!(worked, format!("device {number}, value 42"), "{visible}");
        }
        let refused = guest.ask(&format!("work {count}"));
        assert_eq!(refused, CUDA_ERROR_INVALID_DEVICE.to_string(), "{visible}");
    }
    // GPUs that the VM may not use cannot be queried.
    let mut one = back_end.guest_with("one", &[("CUDA_VISIBLE_DEVICES", "0,1")]);
    assert_eq!(one.ask("devices"), "1");
    assert_eq!(one.ask("work 1"), CUDA_ERROR_INVALID_DEVICE.to_string());
}

#[test]
fn a_vm_with_one_gpu_sees_that_one_alone() {
    let Some(stage) = stage() else { return };
    let policy = "[[vm]]\nsocket = '$DIR/one'\ngpus = [1]\nmemory = '256MiB'\n\
                  [[vm]]\nsocket = '$DIR/two'\ngpus = [1, 0]\n";
    let back_end = BackEnd::start(&stage, policy);
    let mut one = back_end.guest("one");
    assert_eq!(one.ask("devices"), "1");
    assert_eq!(one.ask("work 0"), "device 0, value 42");
    assert_eq!(one.ask("work 1"), CUDA_ERROR_INVALID_DEVICE.to_string());
    // Its limit applies there, and to no other VM.
    assert_eq!(one.ask("allocate 200"), OK.to_string());
    assert_eq!(one.ask("allocate 200"), NO_MEMORY.to_string());
    let mut two = back_end.guest("two");
    assert_eq!(two.ask("devices"), "0 1", "the other GPU is idle");
    assert_eq!(two.ask("allocate 200"), OK.to_string());
    assert_eq!(two.ask("allocate 200"), OK.to_string());
}

#[test]
fn sighup_changes_limits_and_interrupts_no_program() {
    let Some(stage) = stage() else { return };
    let policy = |rest: &str| format!("[[vm]]\nname = 'a'\nsocket = '$DIR/vm'\ngpus = [0]\n{rest}");
    let back_end = BackEnd::start(&stage, &policy("memory = '512MiB'\n"));
    let mut guest = back_end.guest("vm");
    assert_eq!(guest.ask("allocate 200"), OK.to_string());

    // Less than the present use: existing memory is kept, and no more can be allocated.
    back_end.change(&policy("memory = '64MiB'\nweight = 7\nmax-clients = 1\n"));
    let said = back_end.log.wait_for("VM \"a\": memory");
    assert!(said.contains("512.0 MiB \u{2192} 64.0 MiB"), "{said}");
    assert!(said.contains("weight 100 \u{2192} 7"), "{said}");
    back_end.log.wait_for("Policy reloaded");
    assert_eq!(guest.ask("allocate 100"), NO_MEMORY.to_string());
    assert_eq!(
        guest.ask("again"),
        "value 42",
        "it goes on with what it has"
    );

    // One client is the maximum now, and the next one is refused.
    let mut refused = back_end.guest("vm");
    assert_eq!(refused.ask("devices"), NO_MEMORY.to_string());
    drop(refused);

    // A file with an error changes nothing.
    back_end.change(&policy("memory = '1TiB'\nweight = 0\n"));
    let said = back_end.log.wait_for("policy.toml:");
    assert!(said.contains("policy.toml:6: "), "{said}");
    assert_eq!(guest.ask("allocate 100"), NO_MEMORY.to_string());

    // Changes that need a restart are logged and ignored, and the others apply.
    let moved = policy("memory = '1GiB'\n").replace("gpus = [0]", "gpus = [1]");
    let added = format!("{moved}[[vm]]\nsocket = '$DIR/new'\n");
    back_end.change(&added);
    back_end.log.wait_for("a change of GPUs needs a restart");
    back_end.log.wait_for("a new socket needs a restart");
    back_end.log.wait_for("Policy reloaded");
    assert_eq!(guest.ask("allocate 100"), OK.to_string());
    assert_eq!(guest.ask("again"), "value 42");
    assert!(!back_end.dir.path().join("new").exists());
    let mut next = back_end.guest("vm");
    assert_eq!(next.ask("devices"), "0");
}

#[test]
fn no_vm_gets_the_name_of_one_that_keeps_its_own() {
    let Some(stage) = stage() else { return };
    let vm =
        |name: &str, socket: &str| format!("[[vm]]\nname = '{name}'\nsocket = '$DIR/{socket}'\n");
    let both = vm("a", "one") + &vm("b", "two");
    let back_end = BackEnd::start(&stage, &both);
    back_end.change(&vm("a", "two"));
    back_end
        .log
        .wait_for("The VM \"a\", whose section was removed");
    // Both may change their names at once.
    back_end.change(&(vm("b", "one") + &vm("a", "two")));
    back_end.log.wait_for("name b \u{2192} a");
}

/// The new directories apply to processes that start from now on; the waiting worker is replaced.
#[test]
fn sighup_changes_the_directories_of_libraries() {
    let Some(stage) = stage() else { return };
    let vm = "[[vm]]\nsocket = '$DIR/vm'\n";
    let back_end = BackEnd::start(&stage, vm);
    let lib = back_end.dir.path().join("lib");
    fs::create_dir(&lib).unwrap();
    let mut before = back_end.guest("vm");
    assert_eq!(before.ask("work 0"), "device 0, value 42");
    back_end.change(&format!("{vm}[libraries]\nfolders = ['$DIR/lib']\n"));
    back_end
        .log
        .wait_for("lib contains none of NVIDIA's libraries");
    let said = back_end.log.wait_for("for new processes");
    assert!(said.contains("software-gpu \u{2192} "), "{said}");
    back_end.log.wait_for("Policy reloaded: 0 VMs");
    let mut after = back_end.guest("vm");
    assert_eq!(after.ask("work 0"), "device 0, value 42");
    assert_eq!(before.ask("work 0"), "device 0, value 42");
    // A directory that does not exist is refused.
    back_end.change(&format!("{vm}[libraries]\nfolders = ['$DIR/nowhere']\n"));
    let said = back_end.log.wait_for("The policy is unchanged");
    assert!(said.contains("policy.toml:4: directory "), "{said}");
    back_end.change(vm);
    back_end.log.wait_for("for new processes");
}

#[test]
fn a_configuration_can_be_checked_without_a_start() {
    let Some(stage) = stage() else { return };
    let dir = tempfile::tempdir().unwrap();
    let check = |policy: &str| {
        let file = dir.path().join("policy.toml");
        fs::write(&file, fill(policy, dir.path())).unwrap();
        let mut command = command(&stage);
        command.arg("--check").arg("--config").arg(file);
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (
            output.status.code(),
            text(&output.stdout),
            text(&output.stderr),
        )
    };
    let right = "[[vm]]\nname = 'a'\nsocket = '$DIR/vm'\ngpus = [1]\nmemory = '8GiB'\n";
    let (code, said, log) = check(right);
    assert_eq!(code, Some(0), "{log}");
    assert!(
        said.contains("GPU 1: ") && said.contains("VM \"a\""),
        "{said}"
    );
    assert!(said.contains("memory 8.0 GiB"), "{said}");
    assert!(
        log.contains("GPU 1 has 4.0 GiB"),
        "it is more than there is: {log}"
    );
    assert!(!dir.path().join("vm").exists());
    // The software GPU's own directory contains all stand-ins.
    assert!(
        said.contains("software-gpu/libcublas.so.13, version 13\n")
            && said.contains("software-gpu/libcusparseLt.so.0, version 0\n"),
        "{said}"
    );
    let lib = dir.path().join("lib");
    fs::create_dir(&lib).unwrap();
    fs::set_permissions(&lib, PermissionsExt::from_mode(0o755)).unwrap();
    fs::write(lib.join("libcublas.so.13.1.0"), "").unwrap();
    symlink("libcublas.so.13.1.0", lib.join("libcublas.so.13")).unwrap();
    symlink("/nowhere", lib.join("libcudnn.so.9")).unwrap();
    let libraries = "[libraries]\nfolders = ['$DIR/lib']\nahead = ['cublas', 'cudnn']\n";
    let (code, said, log) = check(&format!("{right}{libraries}"));
    assert_eq!(code, Some(0), "{log}");
    let line = "libcublas.so.13, version 13.1.0, loaded ahead";
    assert!(said.contains(line), "{said}");
    assert!(log.contains("cudnn cannot be loaded ahead"), "{log}");
    assert!(log.contains("libcudnn.so.9, a link to /nowhere"), "{log}");
    assert!(log.contains("libcublas.so.13 cannot be opened: "), "{log}");
    let (code, _, log) = check(&format!("{right}[libraries]\nfolders = ['$DIR/vm']\n"));
    assert_eq!(code, Some(1));
    assert!(log.contains("policy.toml:7: directory "), "{log}");
    let (code, _, log) = check(&right.replace("[1]", "[2]"));
    assert_eq!(code, Some(1));
    assert!(
        log.contains("policy.toml:4: no GPU 2 on this host"),
        "{log}"
    );
}
