// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Large data through a mover: the supervisor, the device processes and the mover are the real ones, on the software
//! GPU. The workers have device memory there and execute commands.
//!
//! The software GPU is the one in the directory that `VIRTIO_GPGPU_STAGE` names, or the one that was built with this
//! program. If there is none, these tests print that they have nothing to run on. With `VIRTIO_GPGPU_TEST_GPU=cuda`
//! they run on a GPU.

mod common;
#[path = "common/guest/mod.rs"]
// Some of it is only for the device's tests.
#[allow(dead_code)]
mod guest;
#[path = "common/hosts/movers.rs"]
// Some of it is only for the tests of writes to a guest's memory.
#[allow(dead_code)]
mod host;
#[path = "mover/worker.rs"]
mod worker;

use std::{
    fs,
    os::fd::AsRawFd,
    time::{Duration, Instant},
};

use gpgpu_protocol::layout::{COMMAND_QUEUE, CONTROL_QUEUE, MAX_DATA_BYTES, status};
use nix::{
    sys::{
        signal::{Signal, kill},
        socket::{MsgFlags, recv},
    },
    unistd::Pid,
};
use zerocopy::IntoBytes;

use guest::{Guest, Vmm};
use host::{Host, on_gpu, wait_for};
use worker::{CARRIED_OUT, CLAIM, COPY, COPY_STAGED, EXPORT, EXPORT_RUBBISH, FREE, PEEK, UNEXPORT};

const MIB: usize = 1 << 20;
const GPU_BYTES: u64 = 16 << 20;

/// Not a test: the workers' program.
#[test]
fn fake_worker() {
    if std::env::var_os(worker::MODE).is_some() {
        worker::run();
    }
}

/// A host whose workers execute commands.
fn start() -> Option<Host> {
    let own = std::env::current_exe().unwrap();
    let test = ["--exact", "fake_worker", "--nocapture", "--quiet"];
    Host::new(&own, &test, &[(worker::MODE, "1")], true)
}

fn boot(host: &Host, number: usize) -> Guest {
    let mut vmm = Vmm::qemu();
    vmm.regions = vec![(0, 192 << 20, 0)];
    Guest::boot(&host.socket(number), vmm)
}

fn stop_mover(host: &Host) -> Stopped {
    let mover = host.mover();
    kill(mover, Signal::SIGSTOP).unwrap();
    // Each of its threads stops when it sees the signal.
    wait_for("a mover that stands still", || {
        let threads = fs::read_dir(format!("/proc/{mover}/task")).unwrap();
        let stopped = |thread: fs::DirEntry| {
            let stat = fs::read_to_string(thread.path().join("stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        threads.map(Result::unwrap).all(stopped).then_some(())
    });
    Stopped(mover)
}

/// A mover that is stopped until this is dropped.
struct Stopped(Pid);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGCONT);
    }
}

fn stream(numbers: &[u64]) -> Vec<u8> {
    let mut whole = [0; 5];
    whole[..numbers.len()].copy_from_slice(numbers);
    whole.as_bytes().to_vec()
}

fn pattern(bytes: usize, seed: usize) -> Vec<u8> {
    (0..bytes)
        .map(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8 ^ seed as u8)
        .collect()
}

/// A guest with one client. Its worker has exported memory number 1, and the mover has moved data for it.
struct Session {
    guest: Guest,
    client: u32,
}

impl Session {
    fn new(host: &Host, number: usize) -> Self {
        let mut guest = boot(host, number);
        let client = guest.open();
        let mut this = Self { guest, client };
        this.small(&[EXPORT, 1, GPU_BYTES]);
        this.wait_for_mover(0);
        this
    }

    /// Waits until the mover moves data; overwrites device memory at `offset`.
    fn wait_for_mover(&mut self, offset: u64) {
        let at = self.guest.alloc(MIB);
        let rest = self.guest.alloc(0);
        wait_for("a mover that serves", || {
            self.guest.forget_buffers(rest);
            let moved = self.run(&[COPY, 1, offset], &[(at, MIB as u32)], false);
            (moved == (status::OK, "moved".into())).then_some(())
        });
    }

    fn post(&mut self, numbers: &[u64], buffers: &[(u64, u32)], to_guest: bool) -> u16 {
        self.guest
            .post_buffers(self.client, &stream(numbers), 16, buffers, to_guest)
    }

    /// Waits for the end of a command; returns its status and its answer.
    fn end(&mut self, head: u16) -> (u32, String) {
        let used = self.guest.wait(COMMAND_QUEUE, head);
        let (status, answer, _) = used.split(16);
        (status, String::from_utf8(answer).unwrap())
    }

    fn run(&mut self, numbers: &[u64], buffers: &[(u64, u32)], to_guest: bool) -> (u32, String) {
        let head = self.post(numbers, buffers, to_guest);
        self.end(head)
    }

    /// A command without data.
    fn small(&mut self, numbers: &[u64]) -> String {
        let (status, answer) = self.run(numbers, &[], false);
        assert_eq!(status, status::OK);
        answer
    }

    fn read(&self, buffers: &[(u64, u32)]) -> Vec<u8> {
        use vm_memory::{Bytes, GuestAddress};
        let mut all = Vec::new();
        for &(at, len) in buffers {
            let start = all.len();
            all.resize(start + len as usize, 0);
            let to = &mut all[start..];
            self.guest.memory.read_slice(to, GuestAddress(at)).unwrap();
        }
        all
    }

    /// Copies from these buffers into device memory and from there into others, and compares them. The answers must be
    /// `expected`.
    fn round_trip(&mut self, from: &[(u64, u32)], to: &[(u64, u32)], offset: u64, expected: &str) {
        let bytes: usize = from.iter().map(|&(_, len)| len as usize).sum();
        let data = pattern(bytes, offset as usize);
        let mut rest = &data[..];
        for &(at, len) in from {
            let (part, after) = rest.split_at(len as usize);
            self.guest.write(at, part);
            rest = after;
        }
        let ok = (status::OK, expected.to_owned());
        assert_eq!(self.run(&[COPY, 1, offset], from, false), ok);
        assert_eq!(self.run(&[COPY, 1, offset], to, true), ok);
        assert!(self.read(to) == data);
    }
}

/// Buffers of `each` bytes, `gap` bytes apart, in an order that no copy would produce by chance.
fn scattered(start: u64, count: u64, each: u32, gap: u64) -> Vec<(u64, u32)> {
    (0..count)
        .map(|at| (at * 7 + 3) % count)
        .map(|at| (start + at * (u64::from(each) + gap), each))
        .collect()
}

#[test]
fn pitfall_8_large_data_of_any_shape_arrives_both_ways() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    session.guest.indirect = true;
    let most = MAX_DATA_BYTES as u64;
    let a = session.guest.alloc(8 * MIB);
    let b = session.guest.alloc(8 * MIB);
    let most_of = |at| vec![(at, most as u32)];
    session.round_trip(&most_of(a), &most_of(b), 0, "moved");
    session.round_trip(&most_of(a), &most_of(b), GPU_BYTES - most, "moved");
    // Scattered pages, as in a guest's memory after some time; they do not start at a page.
    let pages = |at| scattered(at, 512, 4096, 4096);
    session.round_trip(&pages(a), &pages(b), 4096, "moved");
    let mut cut = pages(a);
    (cut[0].0, cut[0].1) = (cut[0].0 + 16, 4080);
    cut.push((a + 8 * MIB as u64 - 16, 16));
    session.round_trip(&cut, &pages(b), 4096, "moved");
    // No two addresses have the same alignment.
    let odd = |at| scattered(at, 97, 4099, 2);
    session.round_trip(&odd(a + 1), &odd(b + 6), 3, "moved");
    session.round_trip(&odd(a), &[(b, 97 * 4099)], 4, "moved");
    // Long and short runs in one command.
    let mixed = [
        (a + 8, 700_001),
        (a + MIB as u64, 5),
        (a + 2 * MIB as u64, 300_000),
    ];
    session.round_trip(&mixed, &[(b, 1_000_006)], 1 << 20, "moved");
    // The surrounding bytes do not change.
    session.guest.write(b, &vec![0xee; 2 * MIB]);
    let data = (status::OK, "moved".to_owned());
    let middle = [(b + 4099, 300_001)];
    assert_eq!(session.run(&[COPY, 1, 0], &middle, true), data);
    let around = session.read(&[(b, 4099), (b + 4099 + 300_001, 4096)]);
    assert!(around.iter().all(|&byte| byte == 0xee));
}

/// This can only fail on a GPU: the software GPU keeps no page that the host has taken.
#[test]
fn pitfall_90_a_balloon_costs_no_data() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let a = session.guest.alloc(4 * MIB);
    let b = session.guest.alloc(4 * MIB);
    let whole = |at| [(at, 4 * MIB as u32)];
    session.round_trip(&whole(a), &whole(b), 0, "moved");
    for (at, bytes) in [(a, 4 * MIB), (b + 4096, 4096), (b + MIB as u64, 2 * MIB)] {
        session.guest.give_back_pages(at, bytes);
        // Different data each time.
        session.round_trip(&whole(a), &whole(b), at % 64 + bytes as u64, "moved");
    }
}

#[test]
fn small_and_immovable_data_is_staged() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    session.guest.indirect = true;
    let a = session.guest.alloc(8 * MIB);
    let b = session.guest.alloc(8 * MIB);
    session.round_trip(&[(a, 4096)], &[(b, 4096)], 0, "staged 1");
    let large = [(a, MIB as u32)];
    let staged = (status::OK, "staged 1".to_owned());
    assert_eq!(session.run(&[COPY_STAGED, 1, 0], &large, false), staged);
    // A handle that is no device memory cannot be imported.
    session.small(&[EXPORT_RUBBISH, 7, GPU_BYTES]);
    assert_eq!(session.run(&[COPY, 7, 0], &large, false), staged);
    // The first command of a stream of two is not executed again.
    let mut both = stream(&[COPY, 1, 0]);
    both.extend(stream(&[CARRIED_OUT, 1, 0, 40]));
    let head = session
        .guest
        .post_buffers(session.client, &both, 16, &large, false);
    assert_eq!(session.end(head), staged);
    session.round_trip(&[(a, MIB as u32)], &[(b, MIB as u32)], 0, "moved");
}

/// A worker that exceeds its limits ends its client, and affects no other.
#[test]
fn pitfall_81_a_worker_can_name_only_its_own_exports() {
    let Some(host) = start() else { return };
    let mut other = Session::new(&host, 1);
    let from = other.guest.alloc(MIB);
    let to = other.guest.alloc(MIB);
    for claim in [
        [CLAIM, 2, 0, 0],
        [CLAIM, 1, GPU_BYTES - MIB as u64 + 1, 0],
        [CLAIM, 1, u64::MAX, 0],
        [CLAIM, 1, u64::MAX - MIB as u64 + 1, 0],
        [CLAIM, 1, 0, 40],
        [CLAIM, 1, 0, u64::from(u32::MAX)],
        [CARRIED_OUT, 1, 0, 40],
    ] {
        let mut session = Session::new(&host, 0);
        let at = session.guest.alloc(MIB);
        let (status, _) = session.run(&claim, &[(at, MIB as u32)], false);
        assert_eq!(status, status::CLIENT_DEAD, "{claim:?}");
        other.round_trip(&[(from, MIB as u32)], &[(to, MIB as u32)], 0, "moved");
    }
}

/// GPGPU-DEV-23: the device accesses only the guest's memory.
#[test]
fn pitfall_81_buffers_outside_the_guests_memory_are_not_moved() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let a = session.guest.alloc(MIB);
    let end = 192u64 << 20;
    for far in [end - 4096, end, 1 << 40, u64::MAX - 4095, u64::MAX] {
        for to_guest in [false, true] {
            let buffers = [(a, MIB as u32 / 2), (far, MIB as u32 / 2)];
            let (status, _) = session.run(&[COPY, 1, 0], &buffers, to_guest);
            assert_eq!(status, status::BAD_ADDRESS, "{far:#x}");
        }
    }
    let to = session.guest.alloc(MIB);
    session.round_trip(&[(a, MIB as u32)], &[(to, MIB as u32)], 0, "moved");
}

#[test]
fn a_mover_killed_in_mid_copy_costs_no_data() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let a = session.guest.alloc(4 * MIB);
    let b = session.guest.alloc(4 * MIB);
    let data = pattern(4 * MIB, 1);
    session.guest.write(a, &data);
    let parts = |at: u64| (0..4).map(move |part| [(at + part * MIB as u64, MIB as u32)]);
    for to_guest in [false, true] {
        let at = if to_guest { b } else { a };
        // The stopped mover has these moves and does not answer.
        let stopped = stop_mover(&host);
        let heads: Vec<u16> = parts(at)
            .enumerate()
            .map(|(part, buffers)| {
                let offset = (part * MIB) as u64;
                session.post(&[COPY, 1, offset], &buffers, to_guest)
            })
            .collect();
        kill(stopped.0, Signal::SIGKILL).unwrap();
        for head in heads {
            assert_eq!(session.end(head), (status::OK, "staged 1".into()));
        }
        // It is available again after some time.
        session.wait_for_mover(8 << 20);
    }
    assert!(session.read(&[(b, 4 * MIB as u32)]) == data);
    session.round_trip(&[(a, 4 * MIB as u32)], &[(b, 4 * MIB as u32)], 0, "moved");
}

/// Whether the other end of a VMM's connection is closed.
fn is_closed(guest: &Guest) -> bool {
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    recv(guest.frontend.as_raw_fd(), &mut [0], flags) == Ok(0)
}

/// A VMM whose connection is closed may connect to another back end, and its guest continues in the same memory.
#[test]
fn pitfall_88_a_crash_is_not_told_while_a_mover_copies() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let at = session.guest.alloc(MIB);
    let serves = |device: &Pid| {
        let maps = fs::read_to_string(format!("/proc/{device}/maps"));
        maps.is_ok_and(|maps| maps.contains("memfd:guest"))
    };
    // The other one waits for a connection.
    let device = host.processes("device-process").into_iter().find(serves);
    let device = device.expect("no device process");
    let stopped = stop_mover(&host);
    session.post(&[COPY, 1, 0], &[(at, MIB as u32)], true);
    // The worker has answered the copy before this, so the mover has it.
    assert_eq!(session.small(&[COPY_STAGED, 9, 0]), "staged 1");
    kill(device, Signal::SIGKILL).unwrap();
    let ended = host.processes("worker-process").into_iter().chain([device]);
    for process in ended.collect::<Vec<_>>() {
        wait_for("an end that the supervisor has seen", || {
            kill(process, None).is_err().then_some(())
        });
    }
    // The supervisor has handled it once it serves another VM.
    boot(&host, 1);
    assert!(!is_closed(&session.guest));
    drop(stopped);
    wait_for("the end of the connection", || {
        is_closed(&session.guest).then_some(())
    });
}

/// The guest may reuse its pages once a chain is returned, or its client is closed.
#[test]
fn pitfall_88_pages_are_the_movers_until_it_is_done() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let at = session.guest.alloc(MIB);
    let stopped = stop_mover(&host);
    let copy = session.post(&[COPY, 1, 0], &[(at, MIB as u32)], true);
    // The worker has answered the copy before this.
    assert_eq!(session.small(&[COPY_STAGED, 9, 0]), "staged 1");
    let close = Guest::close_request(session.client);
    let close = session.guest.post_control(close.as_bytes());
    // The device continues meanwhile, and this client's worker has ended.
    let second = session.guest.open();
    let mut other = Session {
        guest: session.guest,
        client: second,
    };
    other.small(&[EXPORT, 1, GPU_BYTES]);
    let came_back = other.guest.used_index(COMMAND_QUEUE);
    drop(stopped);
    assert_eq!(other.end(copy).0, status::CLIENT_DEAD);
    assert_eq!(other.guest.wait(CONTROL_QUEUE, close).status(), status::OK);
    assert_eq!(other.guest.used_index(COMMAND_QUEUE), came_back + 1);
}

/// Nothing is written to a stopped VM's memory.
#[test]
fn a_stopped_ring_has_nothing_under_way() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let (a, b) = (session.guest.alloc(MIB), session.guest.alloc(MIB));
    let data = pattern(MIB, 5);
    session.guest.write(a, &data);
    session.run(&[COPY, 1, 0], &[(a, MIB as u32)], false);
    let stopped = stop_mover(&host);
    let head = session.post(&[COPY, 1, 0], &[(b, MIB as u32)], true);
    assert_eq!(session.small(&[COPY_STAGED, 9, 0]), "staged 1");
    let go_on = std::thread::spawn(move || drop(stopped));
    let base = session.guest.stop_ring(COMMAND_QUEUE);
    let at_stop = session.read(&[(b, MIB as u32)]);
    go_on.join().unwrap();
    // The mover serves others, and writes nothing more here.
    let mut other = Session::new(&host, 1);
    let (c, d) = (other.guest.alloc(MIB), other.guest.alloc(MIB));
    other.round_trip(&[(c, MIB as u32)], &[(d, MIB as u32)], 0, "moved");
    assert!(session.read(&[(b, MIB as u32)]) == at_stop);
    session.guest.start_ring(COMMAND_QUEUE, base);
    session.guest.kick(COMMAND_QUEUE);
    // The move was complete at the stop or, if it had not begun, the data goes through the staging area now.
    let expected = if at_stop == data { "moved" } else { "staged 1" };
    assert_eq!(session.end(head), (status::OK, expected.into()));
    assert!(session.read(&[(b, MIB as u32)]) == data);
}

#[test]
fn pitfall_62_returned_device_memory_is_not_kept() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    if on_gpu() {
        return is_free_again(&mut session);
    }
    let mover = host.mover();
    let imports = || {
        let maps = fs::read_to_string(format!("/proc/{mover}/maps")).unwrap();
        maps.matches("gpgpu-device-memory").count()
    };
    let before = imports();
    assert!(before > 0);
    let at = session.guest.alloc(MIB);
    session.small(&[EXPORT, 2, GPU_BYTES]);
    assert_eq!(
        session.run(&[COPY, 2, 0], &[(at, MIB as u32)], false).1,
        "moved"
    );
    assert!(imports() > before);
    session.small(&[UNEXPORT, 2]);
    wait_for("the end of the import", || {
        (imports() == before).then_some(())
    });
    // A dead worker's memory is completely returned, and so is a VM's.
    session.guest.close(session.client);
    wait_for("the end of the import", || (imports() == 0).then_some(()));
    let second = Session::new(&host, 1);
    assert!(imports() > 0);
    drop(second);
    wait_for("the end of the import", || (imports() == 0).then_some(()));
}

/// A GPU reports its free memory itself; the software GPU only knows the calling process's.
fn is_free_again(session: &mut Session) {
    const BYTES: u64 = 1 << 30;
    let free = |session: &mut Session| session.small(&[FREE]).parse::<u64>().unwrap();
    let at = session.guest.alloc(MIB);
    let before = free(session);
    session.small(&[EXPORT, 2, BYTES]);
    assert_eq!(
        session.run(&[COPY, 2, 0], &[(at, MIB as u32)], false).1,
        "moved"
    );
    assert!(free(session) <= before - BYTES);
    session.small(&[UNEXPORT, 2]);
    let rest = session.guest.alloc(0);
    wait_for("free memory", || {
        session.guest.forget_buffers(rest);
        (free(session) >= before).then_some(())
    });
}

/// A guest's kernels run in its worker, and must not access memory that the mover has registered.
#[test]
fn pitfall_64_a_kernel_cannot_reach_guest_memory_that_the_mover_has() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    let maps = fs::read_to_string(format!("/proc/{}/maps", host.mover())).unwrap();
    let mapped = maps
        .lines()
        .find(|line| line.contains("memfd:guest"))
        .unwrap();
    let (start, _) = mapped.split_once('-').unwrap();
    let start = u64::from_str_radix(start, 16).unwrap();
    assert_eq!(session.small(&[PEEK, 0]), "code 0");
    // CUDA_ERROR_ILLEGAL_ADDRESS
    assert_eq!(session.small(&[PEEK, start]), "code 700");
    // The mover and other clients continue.
    let mut other = Session::new(&host, 1);
    let (a, b) = (other.guest.alloc(MIB), other.guest.alloc(MIB));
    other.round_trip(&[(a, MIB as u32)], &[(b, MIB as u32)], 0, "moved");
}

/// Measures the speed: `VIRTIO_GPGPU_TEST_GPU=cuda cargo test --release --test mover -- --ignored --nocapture measure`.
#[test]
#[ignore = "measures, and says nothing on the software GPU"]
fn measure() {
    let Some(host) = start() else { return };
    let mut session = Session::new(&host, 0);
    session.guest.indirect = true;
    let blocks = 8;
    let at = session.guest.alloc(64 * MIB);
    let four = 4 * MIB as u64;
    let whole = |block: u64| vec![(at + block * four, four as u32)];
    let pages = |each: u32| {
        move |block: u64| -> Vec<(u64, u32)> {
            scattered(
                at + block * 2 * four,
                four / u64::from(each),
                each,
                u64::from(each),
            )
        }
    };
    type Shape<'a> = (&'a str, Box<dyn Fn(u64) -> Vec<(u64, u32)> + 'a>);
    let shapes: [Shape<'_>; 6] = [
        ("one run", Box::new(whole)),
        ("runs of 512 KiB", Box::new(pages(512 << 10))),
        ("runs of 128 KiB", Box::new(pages(128 << 10))),
        ("runs of 64 KiB", Box::new(pages(64 << 10))),
        ("runs of 16 KiB", Box::new(pages(16 << 10))),
        ("pages", Box::new(pages(4096))),
    ];
    for (name, shape) in shapes {
        for to_guest in [false, true] {
            let mut best = Duration::MAX;
            for _ in 0..12 {
                let begin = Instant::now();
                let heads: Vec<u16> = (0..blocks)
                    .map(|block| {
                        let offset = (block % 4) << 22;
                        let head = session.post(&[COPY, 1, offset], &shape(block), to_guest);
                        // Data that arrives in the guest's memory is not checked.
                        session.guest.trim(COMMAND_QUEUE, head, 24);
                        head
                    })
                    .collect();
                for head in heads {
                    session.guest.wait(COMMAND_QUEUE, head);
                }
                best = best.min(begin.elapsed());
                session.guest.forget_buffers(at + 64 * MIB as u64);
            }
            let rate = (blocks * four) as f64 / best.as_secs_f64() / 1e9;
            println!("{name}, to guest: {to_guest}: {rate:.1} GB/s");
        }
    }
}

#[test]
fn many_copies_of_two_vms_at_a_time() {
    let Some(host) = start() else { return };
    let mut sessions = [Session::new(&host, 0), Session::new(&host, 1)];
    for session in &mut sessions {
        session.guest.indirect = true;
    }
    let mut heads = Vec::new();
    let mut places = Vec::new();
    for (number, session) in sessions.iter_mut().enumerate() {
        let at = session.guest.alloc(12 * MIB);
        session.guest.write(at, &pattern(12 * MIB, number));
        places.push(at);
        for part in 0..12 {
            let buffers = scattered(at + part * MIB as u64, 128, 4096, 4096);
            let head = session.post(&[COPY, 1, part << 20], &buffers, false);
            heads.push((number, head));
        }
    }
    for (number, head) in heads {
        assert_eq!(sessions[number].end(head), (status::OK, "moved".into()));
    }
    for (session, at) in sessions.iter_mut().zip(places) {
        let back = session.guest.alloc(MIB);
        for part in 0..12 {
            let to = [(back, MIB as u32 / 2)];
            assert_eq!(session.run(&[COPY, 1, part << 20], &to, true).1, "moved");
            let from = scattered(at + part * MIB as u64, 128, 4096, 4096);
            assert!(session.read(&to) == session.read(&from), "part {part}");
        }
    }
}
