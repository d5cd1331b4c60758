// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A host that lacks a resource: space in a file system that backs guest memory, descriptors, processes.

use std::{
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::Command,
};

use gpgpu_protocol::layout::{COMMAND_QUEUE, CommandHeader, status};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::signal::kill,
    unistd::Pid,
};
use zerocopy::IntoBytes;

use super::{
    bystander::Bystander,
    guest::Guest,
    host::{BackEnd, Options},
    vmm::Vm,
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A small file system in memory; it is removed when this is dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    /// Mounts one at a new directory; `None` if that is not permitted.
    fn mount(path: PathBuf, bytes: u64) -> Option<Self> {
        fs::create_dir(&path).unwrap();
        let options = format!("size={bytes}");
        let mounted = mount(
            Some("tmpfs"),
            &path,
            Some("tmpfs"),
            MsFlags::empty(),
            Some(&options[..]),
        );
        if let Err(error) = mounted {
            eprintln!("skipped: no file system can be mounted: {error}");
            return None;
        }
        Some(Self(path))
    }

    /// Uses the remaining space.
    fn fill(&self) {
        fill(&self.0);
    }

    /// Frees the space.
    fn empty(&self) {
        fs::remove_file(self.0.join("filling")).unwrap();
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}

fn is_root() -> bool {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn fill(directory: &Path) {
    let mut file = File::create(directory.join("filling")).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
}

/// Posts a copy with data at this address. The test does not access the bytes, because their pages may not exist.
fn post(vm: &mut Vm, at: u64, bytes: u64, to_guest: bool) -> u16 {
    const ANSWER: u32 = 256;
    let stream = vm.copy(0, to_guest);
    let (input, out) = if to_guest { (0, bytes) } else { (bytes, 0) };
    let header = Guest::header(vm.client, stream.len(), ANSWER, input, out);
    let head = [header.as_bytes(), &stream[..]].concat();
    let (command, answer) = (
        vm.guest.alloc(head.len()),
        vm.guest.alloc(8 + ANSWER as usize),
    );
    vm.guest.write(command, &head);
    let data = (at, bytes as u32);
    let mut parts = vec![(command, head.len() as u32, 0)];
    if !to_guest {
        parts.push((data.0, data.1, 0));
    }
    const WRITE: u32 = virtio_bindings::virtio_ring::VRING_DESC_F_WRITE;
    parts.push((answer, 8 + ANSWER, WRITE));
    if to_guest {
        parts.push((data.0, data.1, WRITE));
    }
    assert!(head.len() > size_of::<CommandHeader>());
    let posted = vm
        .guest
        .push_raw(COMMAND_QUEUE, &parts, vec![(answer, 8 + ANSWER)]);
    vm.guest.kick(COMMAND_QUEUE);
    posted
}

#[test]
fn pitfall_62_guest_memory_whose_file_system_is_full_costs_the_copy_alone() {
    let Some(mut back_end) = BackEnd::start() else {
        return;
    };
    let Some(room) = Tmpfs::mount(back_end.dir.path().join("ram"), 40 * MIB) else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    let from = back_end.log.count();
    let mut vm = Vm::boot(&back_end, 0, Some(room.0.clone()));
    let device = back_end.device(0, from);
    let heap = vm.guest.alloc(0);
    // The pages of rings and commands exist; the others were never accessed.
    vm.guest.write(heap, &vec![0; 2 * MIB as usize]);
    room.fill();
    let hole = 16 * MIB;
    for bytes in [4 * KIB, 64 * KIB, 4 * MIB] {
        for to_guest in [false, true] {
            let head = post(&mut vm, hole + 8, bytes, to_guest);
            let used = vm.guest.wait(COMMAND_QUEUE, head);
            assert_eq!(
                used.status(),
                status::NO_RESOURCES,
                "{bytes} bytes, to guest: {to_guest}"
            );
            vm.guest.forget_buffers(heap);
        }
    }
    bystander.steps(3);
    assert!(kill(device, None).is_ok(), "the device process stays");
    // Processes with space continue, in the same VM and in others. With space, the same copies are right.
    vm.works();
    room.empty();
    let data: Vec<u8> = (0..4 * MIB).map(|at| (at % 251) as u8).collect();
    for bytes in [64 * KIB, 4 * MIB] {
        let bytes = bytes as usize;
        vm.guest.write(hole, &data[..bytes]);
        let there = post(&mut vm, hole, bytes as u64, false);
        assert_eq!(vm.guest.wait(COMMAND_QUEUE, there).status(), status::OK);
        let back = post(&mut vm, hole + 8 * MIB, bytes as u64, true);
        assert_eq!(vm.guest.wait(COMMAND_QUEUE, back).status(), status::OK);
        use vm_memory::{Bytes, GuestAddress};
        let mut found = vec![0; bytes];
        vm.guest
            .memory
            .read_slice(&mut found, GuestAddress(hole + 8 * MIB))
            .unwrap();
        assert!(found == data[..bytes]);
        vm.guest.forget_buffers(heap);
    }
    drop(vm);
    bystander.end();
    let said = back_end.log.since(from);
    assert!(
        said.iter()
            .any(|line| line.contains("guest pages unavailable")),
        "{said:?}"
    );
    assert!(said.len() < 100, "{} lines", said.len());
    assert!(back_end.lives());
}

#[test]
fn pitfall_62_a_full_dev_shm_is_nothing_to_us() {
    if !is_root() {
        eprintln!("skipped: no file system can be mounted");
        return;
    }
    let prepare = |command: &mut Command| {
        // SAFETY: between fork and exec, system calls of this process alone: it has no other thread then.
        unsafe {
            command.pre_exec(|| {
                unshare(CloneFlags::CLONE_NEWNS)?;
                let none: Option<&str> = None;
                mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
                mount(
                    Some("tmpfs"),
                    "/dev/shm",
                    Some("tmpfs"),
                    MsFlags::empty(),
                    Some("size=64k"),
                )?;
                fill(Path::new("/dev/shm"));
                Ok(())
            });
        }
    };
    let options = Options {
        prepare: &prepare,
        ..Options::default()
    };
    let Some(mut back_end) = BackEnd::start_with(&options) else {
        return;
    };
    let bystander = Bystander::start(&back_end);
    back_end.works(0);
    let mut vm = Vm::boot(&back_end, 0, None);
    vm.works();
    bystander.steps(2);
    bystander.end();
    assert!(back_end.lives());
}

/// Sets a soft limit of a running process of this user, and returns the previous one.
fn limit(pid: Pid, what: libc::__rlimit_resource_t, soft: u64) -> std::io::Result<u64> {
    let mut before = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let done = |result: i32| match result {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: the pointers are to values that live across the calls.
    unsafe {
        done(libc::prlimit(
            pid.as_raw(),
            what,
            std::ptr::null(),
            &mut before,
        ))?;
        let wanted = libc::rlimit {
            rlim_cur: soft.min(before.rlim_max),
            ..before
        };
        done(libc::prlimit(
            pid.as_raw(),
            what,
            &wanted,
            std::ptr::null_mut(),
        ))?;
    }
    Ok(before.rlim_cur)
}

/// The limit of descriptors at which a process can open no more.
fn no_more_descriptors(pid: Pid) -> u64 {
    let open = |number: &u64| fs::symlink_metadata(format!("/proc/{pid}/fd/{number}")).is_ok();
    (0..).find(|number| !open(number)).unwrap()
}

/// Checks that a program fails at once, with an error of the driver API.
fn fails_clearly(back_end: &BackEnd) {
    let (status, said) = back_end.run(0, &["once"]);
    assert_eq!((status.code(), status.signal()), (Some(2), None), "{said}");
    assert!(said.contains("failed cuInit(0)"), "{said}");
}

#[test]
fn pitfall_62_a_host_without_descriptors_says_so() {
    // In a sandbox, only a process with a privilege that not every root user has can set a limit.
    let options = Options {
        arguments: &["--sandbox", "none"],
        ..Options::default()
    };
    let Some(mut back_end) = BackEnd::start_with(&options) else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    back_end.settled();
    let from = back_end.log.count();
    let supervisor = back_end.supervisor();
    let most = no_more_descriptors(supervisor);
    let before = limit(supervisor, libc::RLIMIT_NOFILE, most).unwrap();
    for _ in 0..4 {
        fails_clearly(&back_end);
    }
    bystander.steps(3);
    let lines = back_end.log.since(from);
    assert!(
        lines
            .iter()
            .any(|line| line.contains("Too many open files")),
        "{lines:?}"
    );
    assert!(lines.len() < 60, "{lines:?}");
    // There is not even a descriptor to refuse a connection with: then the connection waits.
    limit(supervisor, libc::RLIMIT_NOFILE, 3).unwrap();
    let from = back_end.log.count();
    let waiting = back_end.guest(0, &["once"]);
    bystander.steps(5);
    let lines = back_end.log.since(from);
    assert!(lines.len() < 20, "{lines:?}");
    limit(supervisor, libc::RLIMIT_NOFILE, before).unwrap();
    let (status, said) = waiting.end();
    assert!(status.success(), "{status}: {said}");
    back_end.works(0);

    // A device process without free descriptors opens no client, and continues with its existing ones.
    let from = back_end.log.count();
    let mut vm = Vm::boot(&back_end, 0, None);
    let device = back_end.device(0, from);
    let most = no_more_descriptors(device);
    let before = limit(device, libc::RLIMIT_NOFILE, most).unwrap();
    let head = vm.guest.post_open();
    let used = vm.guest.wait(gpgpu_protocol::layout::CONTROL_QUEUE, head);
    assert_eq!(used.status(), status::NO_RESOURCES);
    vm.works();
    limit(device, libc::RLIMIT_NOFILE, before).unwrap();
    vm.open();
    vm.works();
    drop(vm);
    bystander.end();
    assert!(back_end.lives());
}

/// Limits the number of processes and threads of a process's user, from that process's point of view. Only that user
/// may do so, or one with a privilege that not every root user has.
fn limit_as(user: u32, pid: Pid, most: u64) {
    let mut command = Command::new("true");
    command.uid(user).gid(user);
    // SAFETY: between fork and exec, two system calls, which take no lock.
    unsafe { command.pre_exec(move || limit(pid, libc::RLIMIT_NPROC, most).map(drop)) };
    assert!(command.status().unwrap().success());
}

#[test]
fn pitfall_62_a_host_without_processes_says_so() {
    if !is_root() {
        eprintln!("skipped: it takes another user, and root to become one");
        return;
    }
    // The limit does not apply to root; this user does not exist on the machine.
    const USER: u32 = 54_321;
    let prepare = |command: &mut Command| {
        let socket = command
            .get_args()
            .skip_while(|argument| *argument != "--socket-path")
            .nth(1);
        let directory = Path::new(socket.unwrap()).parent().unwrap();
        fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).unwrap();
        command.uid(USER).gid(USER);
    };
    let options = Options {
        prepare: &prepare,
        ..Options::default()
    };
    let Some(mut back_end) = BackEnd::start_with(&options) else {
        return;
    };
    back_end.works(0);
    let bystander = Bystander::start(&back_end);
    let (holdings, _) = back_end.settled();
    let from = back_end.log.count();
    let supervisor = back_end.supervisor();
    limit_as(USER, supervisor, 0);
    // Processes that are ready continue to serve.
    for _ in 0..holdings.processes {
        back_end.run(0, &["once"]);
    }
    for _ in 0..3 {
        fails_clearly(&back_end);
    }
    bystander.steps(3);
    let lines = back_end.log.since(from);
    assert!(
        lines.iter().any(|line| line.contains("cannot start")),
        "{lines:?}"
    );
    assert!(lines.len() < 80, "{lines:?}");
    limit_as(USER, supervisor, u64::MAX);
    back_end.works(0);

    // A worker that cannot start threads still answers.
    let from = back_end.log.count();
    let mut vm = Vm::boot(&back_end, 0, None);
    let worker = back_end.worker(0, from);
    limit_as(USER, worker, 0);
    let heads: Vec<u16> = (0..12)
        .map(|_| post(&mut vm, 16 * MIB, 64 * KIB, false))
        .collect();
    for head in heads {
        let status = vm.guest.wait(COMMAND_QUEUE, head).status();
        assert!(
            [status::OK, status::NO_RESOURCES].contains(&status),
            "{status}"
        );
    }
    limit_as(USER, worker, u64::MAX);
    vm.works();
    drop(vm);
    bystander.end();
    assert!(back_end.lives());
}
