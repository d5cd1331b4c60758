// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Metrics, end to end: the service on the software GPU, programs of a guest, and the values that can be read
//! meanwhile.
//!
//! `cargo xtask test` builds the programs of these tests and names their directory in `VIRTIO_GPGPU_STAGE`. Without it
//! the tests are skipped, with a message. With `VIRTIO_GPGPU_TEST_GPU=cuda` they run on a GPU.

mod common;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Instant,
};

use common::{LIMIT, on_gpu, program, stage, stop, wait_for};
use nix::{
    fcntl::{FcntlArg, fcntl},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// A running service for one VM, and the lines that it logs.
struct Service {
    process: Child,
    lines: Receiver<Value>,
    directory: tempfile::TempDir,
    stage: PathBuf,
}

/// The service for one VM on the GPU of the tests.
fn service(stage: &Path, socket: &Path) -> Command {
    let mut command = Command::new(program());
    command.arg("--socket-path").arg(socket);
    match on_gpu() {
        true => command.args(["--gpu", "cuda"]),
        false => command
            .args(["--gpu", "software", "--software-gpu"])
            .arg(stage.join("software-gpu")),
    };
    command
}

impl Service {
    fn start(stage: PathBuf) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut command = service(&stage, &directory.path().join("vm"));
        command
            .arg("--metrics")
            .arg(format!("unix:{}/metrics", directory.path().display()))
            .args(["--log-format", "json"])
            .env("VIRTIO_GPGPU_LOG", "info")
            .stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (sender, lines) = channel();
        let log = BufReader::new(process.stderr.take().unwrap());
        std::thread::spawn(move || {
            log.lines().map_while(Result::ok).try_for_each(|line| {
                let parsed = serde_json::from_str(&line);
                sender.send(parsed.unwrap_or_else(|error| panic!("{line}: {error}")))
            })
        });
        let service = Self {
            process,
            lines,
            directory,
            stage,
        };
        service.wait_for("Metrics at");
        service
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The first line from now on whose message contains `text`.
    fn wait_for(&self, text: &str) -> Value {
        loop {
            let line = self.lines.recv_timeout(LIMIT);
            let line = line.unwrap_or_else(|_| panic!("nothing logged with {text:?}"));
            if line["message"].as_str().unwrap().contains(text) {
                return line;
            }
        }
    }

    /// A command that runs a staged program in the VM.
    fn program(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.stage.join("bin/gpgpu-run"));
        command.arg(self.stage.join(name)).args(arguments).env(
            "VIRTIO_GPGPU",
            format!("unix:{}", self.path("vm").display()),
        );
        command
    }

    fn add_vectors(&self) -> Output {
        let mut command = self.program(
            "programs/driver/vector-addition-driver",
            &["--size", "4096"],
        );
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// A page: its header and its body.
    fn get(&self, request: &str) -> (String, String) {
        let mut stream = UnixStream::connect(self.path("metrics")).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        exchange(&mut stream, request)
    }

    /// All metrics of the VM, by name and further labels.
    fn metrics(&self) -> BTreeMap<String, f64> {
        let (head, text) = self.get("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert!(head.contains("application/openmetrics-text"), "{head}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        let vm = format!("vm=\"{}\"", self.path("vm").display());
        let lines = text.lines().filter(|line| line.contains(&vm));
        let values = lines.map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            let name = name.replace(&format!("{vm},"), "").replace(&vm, "");
            (name, value.parse().unwrap())
        });
        values.collect()
    }

    fn metric(&self, name: &str) -> f64 {
        let metrics = self.metrics();
        let value = metrics.get(name);
        *value.unwrap_or_else(|| panic!("{name} is not in {metrics:?}"))
    }

    fn wait_until(&self, name: &str, is_so: impl Fn(f64) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so(self.metric(name)) {
            assert!(Instant::now() < end, "{name} stays {}", self.metric(name));
            std::thread::yield_now();
        }
    }

    fn clients(&self) -> Value {
        let (head, text) = self.get("GET /clients HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(head.contains("content-type: application/json"), "{head}");
        serde_json::from_str(&text).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        stop(&mut self.process);
    }
}

fn exchange(stream: &mut (impl Read + Write), request: &str) -> (String, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

const LAUNCHES: &str = "virtio_gpgpu_launches_total{}";
const CLIENTS: &str = "virtio_gpgpu_clients{}";

fn ends(reason: &str) -> String {
    format!("virtio_gpgpu_client_ends_total{{reason=\"{reason}\"}}")
}

fn copied(direction: &str) -> String {
    format!("virtio_gpgpu_copied_bytes_total{{direction=\"{direction}\"}}")
}

/// All counters, which must never decrease.
fn totals(metrics: &BTreeMap<String, f64>) -> impl Iterator<Item = (&String, f64)> {
    let totals = metrics.iter().filter(|(name, _)| name.contains("_total{"));
    totals.map(|(name, value)| (name, *value))
}

#[test]
fn the_work_of_a_program_stays_counted_after_its_end() {
    let Some(stage) = stage() else { return };
    let service = Service::start(stage);
    let before = service.metrics();
    assert!(totals(&before).count() > 10, "{before:?}");
    assert!(totals(&before).all(|(_, value)| value == 0.0), "{before:?}");
    assert_eq!(before["virtio_gpgpu_weight{}"], 100.0);

    service.add_vectors();
    service.wait_until(&ends("closed"), |ended| ended == 1.0);
    let first = service.metrics();
    assert!(first[LAUNCHES] >= 1.0, "{first:?}");
    // Two vectors of 4-byte values are sent, and one is returned.
    assert!(
        first[&copied("to_device")] >= 2.0 * 4.0 * 4096.0,
        "{first:?}"
    );
    assert!(first[&copied("from_device")] >= 4.0 * 4096.0, "{first:?}");
    assert!(first["virtio_gpgpu_copies_total{}"] >= 3.0, "{first:?}");
    assert!(first["virtio_gpgpu_commands_total{}"] > first[LAUNCHES]);
    assert_eq!(first["virtio_gpgpu_clients_opened_total{}"], 1.0);
    assert_eq!(first[CLIENTS], 0.0);
    assert_eq!(first["virtio_gpgpu_queued_commands{}"], 0.0);
    assert_eq!(first["virtio_gpgpu_pinned_bytes{}"], 0.0);

    // The same again increases them by the same amounts.
    service.add_vectors();
    service.wait_until(&ends("closed"), |ended| ended == 2.0);
    let second = service.metrics();
    assert_eq!(second[LAUNCHES], 2.0 * first[LAUNCHES]);
    let to_device = copied("to_device");
    assert_eq!(second[&to_device], 2.0 * first[&to_device]);
}

/// A pipe with no room for another line.
fn full_pipe() -> (std::io::PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    let room = fcntl(&writer, FcntlArg::F_GETPIPE_SZ).unwrap();
    writer.write_all(&vec![b'x'; room as usize]).unwrap();
    (reader, writer)
}

/// Neither a full disk nor a reader that has gone or does not read may stop the programs of all VMs.
#[test]
fn a_service_whose_log_cannot_be_written_goes_on() {
    let Some(stage) = stage() else { return };
    let full = File::options().write(true).open("/dev/full").unwrap();
    let (reader, closed) = std::io::pipe().unwrap();
    drop(reader);
    let (_unread, unread) = full_pipe();
    for log in [Stdio::from(full), closed.into(), unread.into()] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("vm");
        let mut process = service(&stage, &socket).stderr(log).spawn().unwrap();
        // Each connection is a line of the log. The program runs only in a service.
        wait_for("a program that runs", || {
            let mut guest = Command::new(stage.join("bin/gpgpu-smi"));
            guest
                .arg("-L")
                .env("VIRTIO_GPGPU", format!("unix:{}", socket.display()))
                .env("LD_LIBRARY_PATH", stage.join("lib/virtio-gpgpu"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            let ended = process.try_wait().unwrap();
            assert!(ended.is_none(), "the service: {ended:?}");
            guest.status().unwrap().success().then_some(())
        });
        assert!(stop(&mut process).unwrap().success());
    }
}

#[test]
fn a_killed_worker_is_counted_with_its_reason_and_its_counts_stay() {
    let Some(stage) = stage() else { return };
    let service = Service::start(stage);
    // It runs kernels until its standard input ends: the worker dies while they run.
    let mut victim = service
        .program("isolation/guest", &["work"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    service.wait_until(LAUNCHES, |launches| launches > 0.0);
    assert_eq!(service.metric(CLIENTS), 1.0);

    // The page about clients names the worker as the log does.
    let page = service.clients();
    let client = &page["vms"][0]["clients"][0];
    assert!(client["totals"]["launches"].as_u64().unwrap() > 0, "{page}");
    let opened = service.wait_for(") opened (worker ");
    assert_eq!(opened["vm"], service.path("vm").to_str().unwrap());
    for field in ["client", "name", "guest_process", "worker"] {
        assert_eq!(opened[field], client[field], "{field}");
    }
    assert_eq!(client["name"], "guest");
    let worker = Pid::from_raw(client["worker"].as_u64().unwrap() as i32);

    // So does top.
    let top = |form: &str| {
        let mut command = Command::new(program());
        let address = format!("unix:{}", service.path("metrics").display());
        command.args(["top", "--interval", "0.2", form, "--metrics", &address]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let json: Value = serde_json::from_str(&top("--json")).unwrap();
    assert_eq!(json["vms"][0]["clients"][0]["worker"], client["worker"]);
    assert!(json["interval_seconds"].as_f64().unwrap() >= 0.2, "{json}");
    assert!(json["vms"][0]["gpu_share"].is_f64(), "{json}");
    let table = top("--once");
    assert!(
        table.contains(" guest (") && table.contains(" 1 clients\n"),
        "{table}"
    );

    let before = service.metrics();
    // `wait` closes the standard input, at which the program would end by itself. So the input stays open until the
    // program has noticed that its worker is dead.
    let input = victim.stdin.take();
    kill(worker, Signal::SIGKILL).unwrap();
    assert!(!victim.wait().unwrap().success());
    drop(input);
    service.wait_until(&ends("killed"), |killed| killed == 1.0);
    let after = service.metrics();
    for (name, value) in totals(&before) {
        assert!(
            after[name] >= value,
            "{name} went back from {value} to {}",
            after[name]
        );
    }
    assert_eq!(after[&ends("closed")], 0.0);
    assert_eq!(after[CLIENTS], 0.0);
    assert_eq!(
        service.clients()["vms"][0]["clients"],
        Value::Array(Vec::new())
    );
    let died = service.wait_for("its worker died");
    assert_eq!(died["reason"], "killed");
    assert_eq!(died["status"], "killed by SIGKILL");
    assert_eq!(
        (&died["level"], &died["role"]),
        (&"WARN".into(), &"supervisor".into())
    );
}

#[test]
fn a_socket_is_open_to_owner_and_group_and_ends_with_the_service() {
    let Some(stage) = stage() else { return };
    let service = Service::start(stage);
    let path = service.path("metrics");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);

    let (head, _) = service.get("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    let post = "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx";
    let (head, _) = service.get(post);
    assert!(head.starts_with("HTTP/1.1 405 "), "{head}");
    let (head, _) = service.get("what is this\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");

    // Silent connections do not keep others out forever: when their time limit expires, the next one is served.
    let silent: Vec<UnixStream> = (0..32)
        .map(|_| UnixStream::connect(&path).unwrap())
        .collect();
    assert!(service.metrics().contains_key(CLIENTS));
    drop(silent);

    let directory = service.directory.path().to_owned();
    let mut service = service;
    assert!(stop(&mut service.process).unwrap().success());
    assert!(!path.exists());
    assert!(!directory.join("vm").exists());
}

#[test]
fn top_names_the_missing_service() {
    let output = Command::new(program())
        .args(["top", "--once", "--metrics", "unix:/nowhere/metrics"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("Is the service running, with --metrics unix:/nowhere/metrics?"),
        "{said}"
    );
}

#[test]
fn a_loopback_port_is_served_and_no_other() {
    let Some(stage) = stage() else { return };
    let directory = tempfile::tempdir().unwrap();
    let service = |metrics: &str| {
        let mut command = Command::new(program());
        command
            .arg("--socket-path")
            .arg(directory.path().join("vm"))
            .args(["--gpu", "software", "--software-gpu"])
            .arg(stage.join("software-gpu"))
            .args(["--metrics", metrics])
            .env("VIRTIO_GPGPU_LOG", "info")
            .stderr(Stdio::piped());
        command
    };
    let refused = service("0.0.0.0:9400").output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("0.0.0.0:9400 is not a loopback address"),
        "{said}"
    );
    assert_eq!(refused.status.code(), Some(2));

    let mut running = service("127.0.0.1:0").spawn().unwrap();
    let log = BufReader::new(running.stderr.take().unwrap());
    let mut lines = log.lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("Metrics at")).unwrap();
    let (_, url) = line.split_once("http://").unwrap();
    let mut stream = TcpStream::connect(url.trim_end_matches("/metrics")).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let (head, text) = exchange(&mut stream, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && text.contains(CLIENTS.trim_end_matches("{}")));
    stop(&mut running);
}
