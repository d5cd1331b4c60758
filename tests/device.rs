// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device as VMMs and drivers see it: the supervisor and its device processes are the real ones,
//! the workers a program that calls no CUDA.

#[path = "device/guest.rs"]
// Some of it is for the tests of the mover.
#[allow(dead_code)]
mod guest;
#[path = "device/life.rs"]
mod life;
#[path = "statements/tracer.rs"]
// Some of it is for the tests of statements.
#[allow(dead_code)]
mod tracer_process;
#[path = "device/warm.rs"]
mod warm;
#[path = "device/worker.rs"]
mod worker;

use std::{
    io::Read,
    os::unix::{io::OwnedFd, net::UnixStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::JoinHandle,
};

use gpgpu_protocol::{
    api,
    layout::{
        COMMAND_QUEUE, CONTROL_QUEUE, Config, ControlHeader, EVENT_QUEUE, MAX_ANSWER_BYTES,
        MAX_DATA_BYTES, MAX_STREAM_BYTES, OpenAnswer, VERSION, event, status,
    },
};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use vhost::vhost_user::VhostUserFrontend;
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend};
use zerocopy::{FromBytes, IntoBytes};

use guest::{Guest, Vmm, split};
use vhost_device_gpgpu::{
    policy::VmPolicy,
    supervisor::{self, Program, Supervisor},
};
use worker::{CRASH, ECHO, EXIT, HOLD, LIE, OFFSET, PID, REFUSE, RELEASE, STUCK, TOUCH};

const BINARY: &str = env!("CARGO_BIN_EXE_vhost-device-gpgpu");

/// Not a test of its own: what workers run.
#[test]
fn fake_worker() {
    if let Ok(mode) = std::env::var(worker::MODE) {
        worker::run(&mode);
    }
}

/// Not a test of its own: a process that holds another one.
#[test]
fn tracer() {
    if let Ok(held) = std::env::var(tracer_process::HELD) {
        tracer_process::run(&held);
    }
}

/// A supervisor in a thread; it ends when this is dropped.
struct Host {
    directory: tempfile::TempDir,
    stop: Option<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Host {
    fn new(mode: &str) -> Self {
        Self::with_connections(mode, 8)
    }

    fn with_connections(mode: &str, max_connections: usize) -> Self {
        Self::start(mode, max_connections, 0)
    }

    fn start(mode: &str, max_connections: usize, warm_workers: usize) -> Self {
        Self::with_policy(mode, max_connections, warm_workers, |_| {})
    }

    fn with_policy(
        mode: &str,
        max_connections: usize,
        warm_workers: usize,
        policy: impl Fn(&mut VmPolicy),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = supervisor::Config {
            vms: ["vm0", "vm1"]
                .map(|name| {
                    let mut vm = VmPolicy::new(directory.path().join(name));
                    policy(&mut vm);
                    vm
                })
                .to_vec(),
            gpus: 0,
            max_connections,
            device: Program {
                program: BINARY.into(),
                arguments: vec!["device-process".into()],
                ..Program::default()
            },
            worker: Program {
                program: std::env::current_exe().unwrap(),
                arguments: ["--exact", "fake_worker", "--nocapture", "--quiet"]
                    .map(Into::into)
                    .to_vec(),
                environment: vec![(worker::MODE.into(), mode.into())],
            },
            warm_workers,
            cache: None,
            scheduler: true,
            mover: None,
            context_costs: Vec::new(),
        };
        let supervisor = Supervisor::new(config).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            use std::os::fd::AsFd;
            supervisor.run(theirs.as_fd()).unwrap();
        });
        Self {
            directory,
            stop: Some(ours.into()),
            thread: Some(thread),
        }
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.directory.path().join(format!("vm{number}"))
    }

    fn boot(&self, vmm: Vmm) -> Guest {
        Guest::boot(&self.socket(0), vmm)
    }

    /// Ends all, and waits for it.
    fn stop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.stop();
    }
}

fn pid_of(guest: &mut Guest, client: u32) -> Pid {
    let (status, answer, _) = guest.command(client, &[PID], 4, &[], 0);
    assert_eq!(status, status::OK);
    Pid::from_raw(i32::from_ne_bytes(answer.try_into().unwrap()))
}

fn exists(pid: Pid) -> bool {
    kill(pid, None).is_ok()
}

fn echoes(guest: &mut Guest, client: u32) {
    let (status, answer, data) = guest.command(client, &[ECHO, 2, 3], 16, b"in-data", 7);
    assert_eq!(
        (status, &answer[..], &data[..]),
        (status::OK, &[ECHO, 2, 3][..], &b"in-data"[..])
    );
}

fn dies(guest: &mut Guest, client: u32, how: u8) -> u32 {
    guest.command(client, &[how], 16, &[], 0).0
}

/// QEMU reads the whole configuration space for every byte that its guest reads.
/// GPGPU-DEV-1, GPGPU-DEV-6.
#[test]
fn a_vm_of_qemu() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    for _ in 0..16 {
        let config = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
        assert_ne!(config.instance.get(), 0);
        assert_eq!(config.of_instance(0), Config::current());
    }
    let client = guest.open();
    echoes(&mut guest, client);
    let big: Vec<u8> = (0..MAX_DATA_BYTES).map(|at| (at * 7 / 3) as u8).collect();
    guest.indirect = true;
    let (status, _, data) = guest.command(client, &[ECHO], 0, &big, big.len() as u64);
    assert_eq!(status, status::OK);
    assert!(data == big);
    let stream = vec![ECHO; MAX_STREAM_BYTES];
    let (status, answer, _) = guest.command(client, &stream, MAX_ANSWER_BYTES as u32, &[], 0);
    assert_eq!((status, answer), (status::OK, stream));
    assert_eq!(guest.close(client), status::OK);
}

/// Cloud Hypervisor reads pieces, adds memory region by region, and connects again.
/// GPGPU-DEV-6, GPGPU-DEV-7.
#[test]
fn a_vm_of_cloud_hypervisor() {
    let host = Host::new("normal");
    for _ in 0..3 {
        let mut guest = host.boot(Vmm::cloud_hypervisor());
        let shown = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
        let whole = Config::current().of_instance(shown.instance.get());
        for (offset, size) in [(0, 4), (4, 4), (8, 8), (63, 1), (64, 8), (200, 4)] {
            let mut expected = vec![0; size as usize];
            for (at, byte) in expected.iter_mut().enumerate() {
                *byte = whole
                    .as_bytes()
                    .get(offset as usize + at)
                    .copied()
                    .unwrap_or(0);
            }
            assert_eq!(guest.config(offset, size), expected);
        }
        // Writes do nothing, and end nothing.
        let flags = vhost::vhost_user::message::VhostUserConfigFlags::WRITABLE;
        guest.frontend.set_config(4, flags, &[0xff; 4]).unwrap();
        assert_eq!(guest.config(4, 4), VERSION.to_le_bytes());

        let client = guest.open();
        guest.indirect = true;
        echoes(&mut guest, client);
        // A buffer that crosses from one region into the next, and one above 4 GiB.
        let seam = (32u64 << 20) - 4096;
        let runs = [(seam, 8192), (1 << 32, 4096)];
        let region = guest
            .register(client, 0x7f00_0000_0000, 12288, &runs)
            .unwrap();
        guest
            .memory
            .write_slice(b"registry", GuestAddress(seam))
            .unwrap();
        let (status, answer, _) = guest.command(client, &[TOUCH, region as u8], 8, &[], 0);
        assert_eq!((status, &answer[..]), (status::OK, &b"registry"[..]));
        assert_eq!(guest.unregister(client, region), status::OK);
        let mut bytes = [0; 8];
        guest
            .memory
            .read_slice(&mut bytes, GuestAddress(seam))
            .unwrap();
        assert_eq!(&bytes, &b"registry".map(|byte| byte + 1));
        // The guest goes away with its client open.
    }
}

/// A guest library without a VM is its own front end: each connection is a device of its own.
#[test]
fn several_connections_to_one_socket() {
    let host = Host::new("normal");
    let mut guests: Vec<Guest> = (0..3).map(|_| host.boot(Vmm::qemu())).collect();
    let clients: Vec<u32> = guests.iter_mut().map(Guest::open).collect();
    let mut last = guests.pop().unwrap();
    echoes(&mut last, clients[2]);
    drop(last);
    for (guest, client) in guests.iter_mut().zip(clients) {
        echoes(guest, client);
    }
    let mut other = Guest::boot(&host.socket(1), Vmm::qemu());
    let client = other.open();
    echoes(&mut other, client);
}

#[test]
fn connections_over_the_limit_wait() {
    let host = Host::with_connections("normal", 1);
    let first = host.boot(Vmm::qemu());
    let socket = host.socket(0);
    let second = std::thread::spawn(move || {
        let mut guest = Guest::boot(&socket, Vmm::qemu());
        let client = guest.open();
        echoes(&mut guest, client);
    });
    drop(first);
    second.join().unwrap();
}

/// A mismatched library decodes wrong bytes silently, unless it is turned away.
/// GPGPU-DEV-18.
#[test]
fn pitfall_83_another_version_is_turned_away() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    for (version, digest) in [
        (VERSION + 1, api::issued::FAMILY),
        (VERSION, api::issued::FAMILY ^ 1),
    ] {
        let request = Guest::open_request(version, digest);
        assert_eq!(
            guest.control(request.as_bytes()).status(),
            status::VERSION_MISMATCH
        );
    }
    guest.open();
}

/// A worker that finds no GPU, or dies as it starts, is an answer and not a wait.
#[test]
fn pitfall_83_no_gpu_is_an_answer() {
    for (mode, expected) in [("no-gpu", status::NO_GPU), ("crash", status::NO_RESOURCES)] {
        let host = Host::new(mode);
        let mut guest = host.boot(Vmm::qemu());
        for _ in 0..2 {
            let open = guest.post_open();
            assert_eq!(guest.wait(CONTROL_QUEUE, open).status(), expected, "{mode}");
        }
    }
}

/// A worker that says nothing holds up its own client alone.
#[test]
fn pitfall_83_a_mute_worker_holds_up_nobody_else() {
    let host = Host::new("mute");
    let mut guest = host.boot(Vmm::qemu());
    guest.post_open();
    assert_eq!(guest.close(1), status::NO_CLIENT);
    assert_eq!(guest.command(1, &[ECHO], 8, &[], 0).0, status::NO_CLIENT);
    assert_eq!(
        guest.used_index(CONTROL_QUEUE),
        1,
        "the client that is being opened waits"
    );
}

/// The configuration space says how many clients the VM may have, and one more is refused as such. A limit above what one
/// connection may have is shown as that.
/// GPGPU-DEV-61, GPGPU-DEV-19.
#[test]
fn the_limit_of_clients_is_shown_and_answered() {
    let host = Host::with_policy("normal", 8, 0, |vm| vm.max_clients = 3);
    let mut guest = host.boot(Vmm::qemu());
    let config = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
    assert_eq!(config.max_clients.get(), 3);
    let clients = [guest.open(), guest.open(), guest.open()];
    let open = guest.post_open();
    let refused: OpenAnswer = guest.wait(CONTROL_QUEUE, open).head();
    assert_eq!(
        (refused.status.get(), refused.client.get()),
        (status::LIMIT, 0)
    );
    // Those of another connection of the VM count.
    let mut other = host.boot(Vmm::qemu());
    let open = other.post_open();
    assert_eq!(other.wait(CONTROL_QUEUE, open).status(), status::LIMIT);
    assert_eq!(guest.close(clients[0]), status::OK);
    let again = guest.open();
    echoes(&mut guest, again);

    let host = Host::with_policy("normal", 8, 0, |vm| vm.max_clients = 1024);
    let mut guest = host.boot(Vmm::qemu());
    let config = Config::read_from_bytes(&guest.config(0, 64)).unwrap();
    assert_eq!(config.of_instance(0), Config::current());
}

/// GPGPU-DEV-11, GPGPU-DEV-14, GPGPU-DEV-17, GPGPU-DEV-26, GPGPU-DEV-64.
#[test]
fn requests_that_make_no_sense() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let header = |kind: u32, client: u32| ControlHeader {
        kind: kind.into(),
        client: client.into(),
    };
    for (request, expected) in [
        (header(99, client).as_bytes(), status::UNKNOWN_REQUEST),
        (header(0, client).as_bytes(), status::UNKNOWN_REQUEST),
        (&b""[..], status::MALFORMED),
        (&b"\x02\0\0\0"[..], status::MALFORMED),
        (header(1, 0).as_bytes(), status::MALFORMED),
        (header(3, client).as_bytes(), status::MALFORMED),
        (header(4, client).as_bytes(), status::MALFORMED),
        (header(2, 99).as_bytes(), status::NO_CLIENT),
        (
            Guest::unregister_request(client, 7).as_bytes(),
            status::BAD_ADDRESS,
        ),
        (
            Guest::unregister_request(99, 7).as_bytes(),
            status::NO_CLIENT,
        ),
    ] {
        assert_eq!(guest.control(request).status(), expected, "{request:?}");
    }
    // The device gives clients their numbers.
    let mut open = Guest::open_request(VERSION, api::issued::FAMILY);
    open.header.client = 7.into();
    assert_eq!(guest.control(open.as_bytes()).status(), status::MALFORMED);
    // No room for an answer: the chain comes back with nothing written.
    let at = guest.alloc(4096);
    for writable in [&[][..], &[(at + 64, 7)][..]] {
        let head = guest.push_parts(CONTROL_QUEUE, &[(at, 8)], writable);
        guest.kick(CONTROL_QUEUE);
        assert_eq!(guest.wait(CONTROL_QUEUE, head).len, 0);
    }
    echoes(&mut guest, client);
}

/// GPGPU-DEV-23, GPGPU-DEV-24, GPGPU-DEV-26, GPGPU-DEV-27.
#[test]
fn registrations_that_make_no_sense() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let (page, at) = (4096, 0x7000_0000);
    let region = guest
        .register(client, at, page, &[(0x20_0000, page)])
        .unwrap();
    let top = 1u64 << 32;
    for (address, length, runs, expected) in [
        (at, page, &[(0x30_0000, page)][..], status::BAD_ADDRESS),
        (
            at - page,
            2 * page,
            &[(0x30_0000, 2 * page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            page,
            &[(top + (16 << 20), page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            2 * page,
            &[(top + (16 << 20) - page, 2 * page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            2 * page,
            &[(0x30_0000, page)],
            status::BAD_ADDRESS,
        ),
        (
            at + page,
            page,
            &[(u64::MAX - 4095, page)],
            status::BAD_ADDRESS,
        ),
        (
            u64::MAX - 4095,
            2 * page,
            &[(0x30_0000, 2 * page)],
            status::BAD_ADDRESS,
        ),
        (at + 1, page, &[(0x30_0000, page)], status::MALFORMED),
        (at + page, 100, &[(0x30_0000, 100)], status::MALFORMED),
        (at + page, page, &[(0x30_0001, page)], status::MALFORMED),
        (at + page, page, &[], status::MALFORMED),
    ] {
        assert_eq!(
            guest.register(client, address, length, runs),
            Err(expected),
            "{address:#x}"
        );
    }
    assert_eq!(
        guest.register(99, at, page, &[(0x20_0000, page)]),
        Err(status::NO_CLIENT)
    );
    // More runs than the request has.
    let mut request = Guest::register_request(client, at + page, page, &[(0x30_0000, page)]);
    request[24] = 2;
    assert_eq!(guest.control(&request).status(), status::MALFORMED);
    request[24..28].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(guest.control(&request).status(), status::LIMIT);

    assert_eq!(guest.unregister(client, region), status::OK);
    assert_eq!(
        guest.unregister(client, region),
        status::BAD_ADDRESS,
        "a stale region"
    );
    // The same range again: what failed has left nothing behind.
    let again = guest
        .register(client, at, 2 * page, &[(0x20_0000, 2 * page)])
        .unwrap();
    assert_ne!(again, region);
}

/// Lengths that do not fit the chain, and the limits, each next to what is allowed.
/// GPGPU-DEV-12, GPGPU-DEV-28.
#[test]
fn pitfall_81_lengths_are_held_against_the_chain() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let h = |stream, answer, input, out| Guest::header(client, stream, answer, input, out);
    let most = MAX_DATA_BYTES as u64;
    for (header, readable, writable, expected) in [
        (h(16, 8, 0, 0), 56, 16, status::OK),
        (h(16, 8, 0, 0), 55, 16, status::MALFORMED),
        (h(16, 8, 0, 0), 56, 15, status::MALFORMED),
        (h(16, 8, 1, 0), 56, 16, status::MALFORMED),
        (h(16, 8, 0, 1), 56, 16, status::MALFORMED),
        (h(0, 8, 0, 0), 56, 16, status::MALFORMED),
        (h(16, 8, u64::MAX - 40, 0), 56, 16, status::LIMIT),
        (h(16, 8, 0, u64::MAX - 10), 56, 16, status::LIMIT),
        (h(16, 8, most + 1, 0), 56, 16, status::LIMIT),
        (h(16, 8, 0, most + 1), 56, 16, status::LIMIT),
        (h(16, u32::MAX, 0, 0), 56, 16, status::LIMIT),
        (
            h(16, MAX_ANSWER_BYTES as u32 + 1, 0, 0),
            56,
            16,
            status::LIMIT,
        ),
        (h(MAX_STREAM_BYTES + 1, 8, 0, 0), 56, 16, status::LIMIT),
        (h(u32::MAX as usize, 8, 0, 0), 56, 16, status::LIMIT),
        (h(16, 8, 0, 0), 39, 16, status::MALFORMED),
        (h(16, 8, 0, 0), 0, 16, status::MALFORMED),
        (Guest::header(99, 16, 8, 0, 0), 56, 16, status::NO_CLIENT),
        (Guest::header(0, 16, 8, 0, 0), 56, 16, status::NO_CLIENT),
    ] {
        let head = guest.post_sizes(&header, readable, writable);
        let used = guest.wait(COMMAND_QUEUE, head);
        assert_eq!(
            used.status(),
            expected,
            "{header:?} in {readable} and {writable}"
        );
    }
    let mut part = h(1, 8, 0, 0);
    part.data_offset = (1 << 40).into();
    let at = guest.alloc(64);
    guest
        .memory
        .write_slice(part.as_bytes(), GuestAddress(at))
        .unwrap();
    guest
        .memory
        .write_slice(&[OFFSET], GuestAddress(at + 40))
        .unwrap();
    let answer = guest.alloc(64);
    let head = guest.push_parts(COMMAND_QUEUE, &[(at, 41)], &[(answer, 16)]);
    guest.kick(COMMAND_QUEUE);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!(used.bytes[8..16], (1u64 << 40).to_le_bytes());
    for writable in [0, 7] {
        let head = guest.post_sizes(&h(16, 8, 0, 0), 56, writable);
        assert_eq!(guest.wait(COMMAND_QUEUE, head).len, 0);
    }
    echoes(&mut guest, client);
}

/// Descriptors that loop, lie outside of memory or are in the wrong order end nothing.
/// GPGPU-DEV-9, GPGPU-DEV-10, GPGPU-DEV-50.
#[test]
fn pitfall_81_descriptors_that_make_no_sense() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let header = Guest::header(client, 16, 8, 0, 0);
    let at = guest.alloc(4096);
    guest
        .memory
        .write_slice(header.as_bytes(), GuestAddress(at))
        .unwrap();
    let answer = at + 1024;
    let far = 1 << 40;
    for (readable, writable, expected) in [
        (
            vec![(at, 40), (far, 16)],
            vec![(answer, 16)],
            Some(status::BAD_ADDRESS),
        ),
        (
            vec![(far, 56)],
            vec![(answer, 16)],
            Some(status::BAD_ADDRESS),
        ),
        (vec![(at, 56)], vec![(answer, 8), (far, 8)], None),
        (vec![(at, 56)], vec![(far, 16)], None),
        (vec![(at, 56)], vec![(u64::MAX - 3, 16)], None),
        // Empty descriptors between others mean nothing.
        (
            vec![(at, 20), (far, 0), (at + 20, 36)],
            vec![(answer, 0), (answer, 16)],
            Some(status::OK),
        ),
        (
            vec![(at, 56)],
            vec![(answer, u32::MAX), (answer, u32::MAX)],
            None,
        ),
    ] {
        let head = guest.push_parts(COMMAND_QUEUE, &readable, &writable[..]);
        // Do not keep gigabytes of what was written.
        guest.kick(COMMAND_QUEUE);
        guest.trim(COMMAND_QUEUE, head, 64);
        let used = guest.wait(COMMAND_QUEUE, head);
        if let Some(expected) = expected {
            let bytes = used.bytes.clone();
            assert_eq!(
                used.status(),
                expected,
                "{readable:?} {writable:?} {bytes:?}"
            );
        }
    }
    // Readable after writable.
    let parts = [(answer, 16, 2), (at, 56, 0)];
    let head = guest.push_raw(COMMAND_QUEUE, &parts, vec![(answer, 16)]);
    guest.kick(COMMAND_QUEUE);
    assert_eq!(guest.wait(COMMAND_QUEUE, head).status(), status::MALFORMED);
    // A descriptor that is its own successor.
    let head = guest.push_raw(COMMAND_QUEUE, &[(at, 56, 0)], vec![]);
    guest.loop_descriptor(COMMAND_QUEUE, head);
    guest.kick(COMMAND_QUEUE);
    assert_eq!(guest.wait(COMMAND_QUEUE, head).len, 0);
    // Heads that do not exist, and an available ring that is ahead of itself.
    guest.make_available(COMMAND_QUEUE, 0xffff);
    guest.kick(COMMAND_QUEUE);
    echoes(&mut guest, client);
    let index = guest.avail(COMMAND_QUEUE);
    guest.break_available(COMMAND_QUEUE, index.wrapping_add(5000));
    guest.kick(COMMAND_QUEUE);
    guest.break_available(COMMAND_QUEUE, index);
    echoes(&mut guest, client);
    assert_eq!(guest.close(client), status::OK);
}

/// An answer whose status cannot be written comes back with a used length of 0, and one whose other bytes cannot with a
/// status that says so.
/// GPGPU-DEV-11, GPGPU-DEV-28, GPGPU-DEV-29.
#[test]
fn answers_that_cannot_be_written() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let at = guest.alloc(4096);
    guest.write(at, Guest::header(client, 16, 8, 0, 0).as_bytes());
    guest.write(at + 512, Guest::close_request(99).as_bytes());
    let (answer, far) = (at + 1024, 1 << 40);
    for (queue, readable, writable, expected) in [
        (COMMAND_QUEUE, (at, 56), vec![(far, 16)], None),
        (COMMAND_QUEUE, (at, 56), vec![(u64::MAX - 3, 16)], None),
        (COMMAND_QUEUE, (at, 56), vec![(answer, 4), (far, 12)], None),
        (
            COMMAND_QUEUE,
            (at, 56),
            vec![(answer, 8), (far, 8)],
            Some(status::BAD_ADDRESS),
        ),
        (CONTROL_QUEUE, (at + 512, 8), vec![(far, 8)], None),
        (
            CONTROL_QUEUE,
            (at + 512, 8),
            vec![(answer, 4), (far, 4)],
            None,
        ),
    ] {
        let head = guest.push_parts(queue, &[readable], &writable);
        guest.kick(queue);
        let used = guest.wait(queue, head);
        match expected {
            Some(status) => assert_eq!((used.status(), used.len), (status, 8)),
            None => assert_eq!(used.len, 0, "{writable:?}"),
        }
    }
    echoes(&mut guest, client);
}

/// A head that is no descriptor of the queue is no chain: it is skipped, and the next one is served.
/// GPGPU-DEV-10.
#[test]
fn heads_that_the_queue_does_not_have_are_skipped() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm {
        queue_size: 16,
        ..Vmm::qemu()
    });
    let client = guest.open();
    for head in [16, 17, 0xffff] {
        let before = guest.used_index(COMMAND_QUEUE);
        guest.make_available(COMMAND_QUEUE, head);
        guest.kick(COMMAND_QUEUE);
        echoes(&mut guest, client);
        assert_eq!(guest.used_index(COMMAND_QUEUE), before + 1, "head {head}");
    }
}

/// Making one descriptor available again and again does not make the device hold more than the
/// ring has.
/// GPGPU-DEV-47.
#[test]
fn pitfall_73_chains_under_way_are_bounded() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm {
        queue_size: 16,
        ..Vmm::qemu()
    });
    let client = guest.open();
    let held = guest.post(client, &[HOLD], 8, &[], 0);
    for _ in 0..14 {
        guest.make_available(COMMAND_QUEUE, held);
    }
    // Once this has come back, the device has taken what was before it.
    let header = Guest::header(99, 16, 8, 0, 0);
    let refused = guest.post_sizes(&header, 56, 16);
    assert_eq!(
        guest.wait(COMMAND_QUEUE, refused).status(),
        status::NO_CLIENT
    );
    for _ in 0..16 {
        guest.make_available(COMMAND_QUEUE, held);
    }
    guest.kick(COMMAND_QUEUE);
    // The control queue is served all the while, and ending the client gives everything back.
    assert_eq!(guest.close(client), status::OK);
    guest.wait_used(COMMAND_QUEUE, 32);
}

/// A worker that is killed costs its own client, and nobody else anything.
/// GPGPU-DEV-44, GPGPU-DEV-45, GPGPU-DEV-46.
#[test]
fn a_worker_that_dies_costs_its_client_alone() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let (first, second) = (guest.open(), guest.open());
    let region = guest
        .register(first, 0x1000, 4096, &[(0x20_0000, 4096)])
        .unwrap();
    let event = guest.post_event_buffer(16);
    let held = guest.post(first, &[HOLD], 8, &[], 0);
    assert_eq!(dies(&mut guest, first, CRASH), status::CLIENT_DEAD);
    assert_eq!(
        guest.wait(COMMAND_QUEUE, held).status(),
        status::CLIENT_DEAD
    );
    let died = guest.event(event);
    assert_eq!(
        (died.kind.get(), died.client.get(), died.detail.get()),
        (event::CLIENT_DIED, first, libc::SIGSEGV as u32)
    );
    echoes(&mut guest, second);
    assert_eq!(
        guest.command(first, &[ECHO], 8, &[], 0).0,
        status::CLIENT_DEAD
    );
    assert_eq!(guest.unregister(first, region), status::CLIENT_DEAD);
    let again = guest.register(first, 0x4000, 4096, &[(0x20_0000, 4096)]);
    assert_eq!(again, Err(status::CLIENT_DEAD));
    assert_eq!(guest.close(first), status::OK);
    assert_eq!(guest.close(first), status::NO_CLIENT);
    assert_eq!(
        guest.command(first, &[ECHO], 8, &[], 0).0,
        status::NO_CLIENT
    );
    let third = guest.open();
    assert!(third != first && third != second);
    echoes(&mut guest, third);
}

/// An event waits for a buffer, and buffers that are too small come back.
/// GPGPU-DEV-42, GPGPU-DEV-43.
#[test]
fn events_wait_for_buffers() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let clients = [guest.open(), guest.open(), guest.open()];
    assert_eq!(dies(&mut guest, clients[0], EXIT), status::CLIENT_DEAD);
    assert_eq!(
        guest.unregister(clients[0], 1),
        status::CLIENT_DEAD,
        "the worker is gone"
    );
    let small = guest.post_event_buffer(15);
    let buffers = [guest.post_event_buffer(16), guest.post_event_buffer(64)];
    assert_eq!(guest.wait(EVENT_QUEUE, small).len, 0);
    let died = guest.event(buffers[0]);
    assert_eq!((died.client.get(), died.detail.get()), (clients[0], 0));
    // What the driver has closed by itself is no news to it.
    assert_eq!(guest.close(clients[1]), status::OK);
    assert_eq!(dies(&mut guest, clients[2], LIE), status::CLIENT_DEAD);
    assert_eq!(guest.event(buffers[1]).client.get(), clients[2]);
}

/// Once a `CLOSE` is answered, the worker is gone and every command has been given back.
/// GPGPU-DEV-21, GPGPU-DEV-22.
#[test]
fn pitfall_88_close_is_answered_once_the_worker_is_gone() {
    for mode in ["normal", "stubborn"] {
        let host = Host::new(mode);
        let mut guest = host.boot(Vmm::qemu());
        let client = guest.open();
        let pid = pid_of(&mut guest, client);
        assert!(exists(pid));
        let held: Vec<u16> = (0..3)
            .map(|_| guest.post(client, &[HOLD], 8, b"data", 4))
            .collect();
        // The queues are not ordered among each other: the commands have to be there first.
        assert_eq!(pid_of(&mut guest, client), pid);
        assert_eq!(guest.close(client), status::OK);
        assert!(!exists(pid), "{mode}");
        for head in held {
            assert_eq!(
                guest.wait(COMMAND_QUEUE, head).status(),
                status::CLIENT_DEAD
            );
        }
    }
}

/// Memory that is being registered as the client dies is the guest's again only when the worker is
/// gone.
/// GPGPU-DEV-44.
#[test]
fn pitfall_88_a_registration_outlives_a_dying_worker() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let pid = pid_of(&mut guest, client);
    let stuck = guest.post(client, &[STUCK], 8, &[], 0);
    let barrier = guest.command(99, &[ECHO], 8, &[], 0).0;
    assert_eq!(barrier, status::NO_CLIENT);
    let request = Guest::register_request(client, 0x1000, 4096, &[(0x20_0000, 4096)]);
    let register = guest.post_control(&request);
    let close = guest.post_control(Guest::close_request(client).as_bytes());
    assert_eq!(
        guest.wait(COMMAND_QUEUE, stuck).status(),
        status::CLIENT_DEAD
    );
    assert_eq!(
        guest.wait(CONTROL_QUEUE, register).status(),
        status::CLIENT_DEAD
    );
    assert!(!exists(pid));
    assert_eq!(guest.wait(CONTROL_QUEUE, close).status(), status::OK);
}

/// More data than the staging area holds: the rest waits, in order, and other clients do not.
#[test]
fn pitfall_82_staging_that_is_full_keeps_the_order() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    guest.indirect = true;
    let (first, second) = (guest.open(), guest.open());
    // Each holds two blocks of sixteen.
    let mut heads: Vec<u16> = (0..24u8)
        .map(|number| guest.post(first, &[HOLD, number], 8, &[number; 5000], 5000))
        .collect();
    echoes(&mut guest, second);
    guest.forget_order(COMMAND_QUEUE);
    // They come free two by two: this is behind all of them, and needs a block of its own.
    for _ in 0..3 {
        heads.push(guest.post(first, &[ECHO, 99], 8, &[99; 5000], 5000));
    }
    let small = guest.post(first, &[RELEASE], 8, &[], 0);
    // A command without data waits behind those with data, so the worker is told from outside.
    let pid = pid_of_worker(&host, first);
    kill(pid, Signal::SIGKILL).unwrap();
    let order = guest.wait_order(COMMAND_QUEUE, heads.len() + 1);
    heads.push(small);
    assert_eq!(
        order, heads,
        "commands are given back in the order in which they came"
    );
    for head in heads {
        assert_eq!(
            guest.take(COMMAND_QUEUE, head).status(),
            status::CLIENT_DEAD
        );
    }
    // And one whose worker goes on: many more blocks than there are, all carried out in order.
    let heads: Vec<u16> = (0..40u8)
        .map(|number| guest.post(second, &[ECHO, number], 8, &[number; 9000], 9000))
        .collect();
    assert_eq!(guest.wait_order(COMMAND_QUEUE, heads.len()), heads);
    for (number, head) in heads.into_iter().enumerate() {
        let (status, answer, data) = split(&guest.take(COMMAND_QUEUE, head), 8);
        assert_eq!(
            (status, &answer[..]),
            (status::OK, &[ECHO, number as u8][..])
        );
        assert!(data.iter().all(|&byte| byte == number as u8));
    }
}

/// The worker of a client that cannot be asked, found by what the test's host has started.
fn pid_of_worker(host: &Host, client: u32) -> Pid {
    // Workers are started in the order of their clients.
    pids_of(host, b"fake_worker")[client as usize - 1]
}

/// The processes of the first VM with this argument, oldest first.
fn pids_of(host: &Host, argument: &[u8]) -> Vec<Pid> {
    let mut found: Vec<i32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let arguments: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            let socket = host.socket(0);
            arguments.contains(&argument)
                && arguments.contains(&socket.as_os_str().as_encoded_bytes())
        })
        .collect();
    found.sort_unstable();
    found.into_iter().map(Pid::from_raw).collect()
}

/// A worker that does not read fills its channel, and nobody else waits for that.
#[test]
fn pitfall_82_a_full_channel_holds_up_its_own_client_alone() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let (first, second) = (guest.open(), guest.open());
    let mut heads = vec![guest.post(first, &[STUCK], 8, &[], 0)];
    for _ in 0..60 {
        heads.push(guest.post(first, &vec![ECHO; MAX_STREAM_BYTES], 8, &[], 0));
    }
    for _ in 0..10 {
        echoes(&mut guest, second);
    }
    guest.forget_order(COMMAND_QUEUE);
    let close = guest.post_control(Guest::close_request(first).as_bytes());
    assert_eq!(guest.wait_order(COMMAND_QUEUE, heads.len()), heads);
    assert_eq!(guest.wait(CONTROL_QUEUE, close).status(), status::OK);
    echoes(&mut guest, second);
}

/// `EVENT_IDX`: a driver that kicks only where it is asked to is never left waiting.
#[test]
fn pitfall_79_no_kick_is_lost() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm {
        queue_size: 8,
        ..Vmm::qemu()
    });
    let client = guest.open();
    let header = Guest::header(client, 16, 8, 0, 0);
    let at = guest.alloc(64);
    let answer = guest.alloc(64);
    guest
        .memory
        .write_slice(header.as_bytes(), GuestAddress(at))
        .unwrap();
    guest
        .memory
        .write_slice(&[ECHO; 16], GuestAddress(at + 40))
        .unwrap();
    for round in 0..3000u32 {
        let mut heads = Vec::new();
        if round % 2 == 1 {
            // The device finds nothing, and must not miss what comes while it looks.
            guest.kick(COMMAND_QUEUE);
        }
        for _ in 0..1 + round % 4 {
            let before = guest.avail(COMMAND_QUEUE);
            heads.push(guest.push_parts(COMMAND_QUEUE, &[(at, 56)], &[(answer, 16)]));
            guest.kick_if_wanted(COMMAND_QUEUE, before);
        }
        for head in heads {
            assert_eq!(guest.wait(COMMAND_QUEUE, head).status(), status::OK);
        }
    }
}

/// A worker's refusal is passed on, and data that it did not make leaves the guest's as it was.
/// GPGPU-DEV-13, GPGPU-DEV-29, GPGPU-DEV-30.
#[test]
fn what_a_failed_command_did_not_write_stays() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let head = guest.post(client, &[REFUSE], 8, &[], 16);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!((used.status(), used.len), (status::MALFORMED, 8));
    // Half of what there was room for.
    let head = guest.post(client, &[ECHO, 1], 8, &[7; 8], 16);
    let used = guest.wait(COMMAND_QUEUE, head);
    assert_eq!(used.len, 8 + 8 + 8);
    let (status, answer, data) = split(&used, 8);
    assert_eq!((status, &answer[..]), (status::OK, &[ECHO, 1][..]));
    assert_eq!(&data[..], [7, 7, 7, 7, 7, 7, 7, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
}

/// Once a ring is stopped nothing is written to it, and what was under way comes when it goes on.
#[test]
fn pitfall_84_a_ring_that_is_stopped_and_goes_on() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let held = guest.post(client, &[HOLD, 5], 8, b"before", 6);
    let released = guest.post(client, &[HOLD, 6], 8, &[], 0);
    let pid = pid_of(&mut guest, client);
    let base = guest.stop_ring(COMMAND_QUEUE);
    let written = guest.used_index(COMMAND_QUEUE);
    assert_eq!(base, guest.avail(COMMAND_QUEUE));
    // The worker dies, and that completes what is under way; the device is seen to have noticed.
    kill(pid, Signal::SIGKILL).unwrap();
    let event = guest.post_event_buffer(16);
    assert_eq!(guest.event(event).client.get(), client);
    assert_eq!(guest.used_index(COMMAND_QUEUE), written);
    guest.start_ring(COMMAND_QUEUE, base);
    assert_eq!(
        guest.wait(COMMAND_QUEUE, held).status(),
        status::CLIENT_DEAD
    );
    assert_eq!(
        guest.wait(COMMAND_QUEUE, released).status(),
        status::CLIENT_DEAD
    );
    let other = guest.open();
    echoes(&mut guest, other);
}

/// A guest that is reset finds no clients of its former life, told of it or not.
/// GPGPU-DEV-8.
#[test]
fn a_reset_ends_all_clients() {
    for told in [true, false] {
        let host = Host::new("normal");
        let mut guest = host.boot(Vmm::qemu());
        let client = guest.open();
        let pid = pid_of(&mut guest, client);
        guest.post(client, &[HOLD], 8, b"data", 4);
        for queue in 0..3 {
            guest.stop_ring(queue);
        }
        if told {
            guest.frontend.reset_device().unwrap();
            // The request has no answer of its own, but the next one has.
            guest.frontend.get_queue_num().unwrap();
            assert!(!exists(pid));
        }
        guest.reset_driver();
        assert_eq!(guest.close(client), status::NO_CLIENT);
        assert!(
            !exists(pid),
            "a request of the new driver was answered before the worker was gone"
        );
        assert_eq!(
            guest.command(client, &[ECHO], 8, &[], 0).0,
            status::NO_CLIENT
        );
        assert_eq!(
            guest.used_index(COMMAND_QUEUE),
            1,
            "what was under way is forgotten"
        );
        let next = guest.open();
        assert_ne!(next, client);
        echoes(&mut guest, next);
    }
}

/// The VM goes away in the middle of a command: its workers go too, and the socket serves the next.
#[test]
fn a_vm_that_disconnects_in_the_middle_of_a_command() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let pid = pid_of(&mut guest, client);
    let pidfd = pidfd(pid);
    guest.post(client, &[HOLD], 8, b"data", 4);
    drop(guest);
    let mut fds = [nix::poll::PollFd::new(
        std::os::fd::AsFd::as_fd(&pidfd),
        nix::poll::PollFlags::POLLIN,
    )];
    assert_eq!(
        nix::poll::poll(&mut fds, 60_000u16).unwrap(),
        1,
        "the worker does not end"
    );
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    echoes(&mut guest, client);
}

fn pidfd(pid: Pid) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: the call takes two integers and touches no memory.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    assert!(fd >= 0);
    // SAFETY: the kernel has just made this descriptor for the call, so nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Memory comes and goes while a command is under way; what was there when it came stays its own.
#[test]
fn memory_changes_while_a_command_is_under_way() {
    let host = Host::new("normal");
    let mut guest = host.boot(Vmm::cloud_hypervisor());
    let client = guest.open();
    let high = 1u64 << 32;
    let header = Guest::header(client, 16, 8, 0, 4);
    let at = guest.alloc(64);
    guest
        .memory
        .write_slice(header.as_bytes(), GuestAddress(at))
        .unwrap();
    guest
        .memory
        .write_slice(&[HOLD; 16], GuestAddress(at + 40))
        .unwrap();
    let head = guest.push_parts(COMMAND_QUEUE, &[(at, 56)], &[(high, 20)]);
    guest.kick(COMMAND_QUEUE);
    let pid = pid_of(&mut guest, client);
    let last = guest.memory.iter().last().unwrap();
    let info = vhost::VhostUserMemoryRegionInfo::from_guest_region(last).unwrap();
    guest.frontend.remove_mem_region(&info).unwrap();
    // It cannot be named any more, neither to be registered nor as a buffer.
    assert_eq!(
        guest.register(client, 0, 4096, &[(high, 4096)]),
        Err(status::BAD_ADDRESS)
    );
    kill(pid, Signal::SIGKILL).unwrap();
    assert_eq!(
        guest.wait(COMMAND_QUEUE, head).status(),
        status::CLIENT_DEAD
    );
    guest.frontend.add_mem_region(&info).unwrap();
    let client = guest.open();
    guest
        .register(client, 0x1000, 4096, &[(high, 4096)])
        .unwrap();
    echoes(&mut guest, client);
}

/// The supervisor's end is everybody's end.
#[test]
fn stopping_ends_all_processes_and_removes_the_sockets() {
    let mut host = Host::new("stubborn");
    let mut guest = host.boot(Vmm::qemu());
    let client = guest.open();
    let pid = pid_of(&mut guest, client);
    host.stop();
    assert!(!exists(pid));
    assert!(!host.socket(0).exists() && !host.socket(1).exists());
}

fn program(arguments: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(arguments)
        .env_remove("VIRTIO_GPGPU_LOG")
        .env_remove("RUST_LOG");
    command
}

#[test]
fn help_names_every_option() {
    let output = program(&["--help"]).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    for flag in [
        "--socket-path",
        "--socket-count",
        "--gpu",
        "--software-gpu",
        "--max-connections",
        "--warm-workers",
        "--warm-contexts",
    ] {
        assert!(text.contains(flag), "{flag}");
    }
    assert!(!text.contains("device-process"));
}

/// A host without a GPU is told so at once, with what to do about it.
#[test]
fn pitfall_83_no_gpu_and_no_software_gpu_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("vm");
    let empty = directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let output = program(&[
        "--gpu",
        "software",
        "--software-gpu",
        empty.to_str().unwrap(),
        "-s",
    ])
    .arg(&socket)
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let log = String::from_utf8(output.stderr).unwrap();
    assert!(
        log.contains("--software-gpu") && log.contains("libcuda.so.1 is missing"),
        "{log}"
    );
    assert!(!socket.exists());

    if !Path::new("/dev/nvidiactl").exists() {
        let output = program(&["--gpu", "cuda", "-s"])
            .arg(&socket)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(
            log.contains("No usable NVIDIA GPU") && log.contains("--gpu software"),
            "{log}"
        );
        assert_eq!(log.lines().count(), 1, "{log}");
    }
}

#[test]
fn roles_are_not_for_hands() {
    for role in ["device-process", "worker-process"] {
        let output = program(&[role]).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let mut log = String::new();
        (&output.stderr[..]).read_to_string(&mut log).unwrap();
        assert!(log.contains("supervisor"), "{log}");
    }
}
