// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The permissions that a process has in a role's sandbox.
//!
//! Each attempt runs in a separate process of this program, which enters the sandbox and makes the attempt. Each
//! attempt is also made outside a sandbox, where it must succeed: an attempt that always fails would prove nothing.

#[path = "sandbox/back_end.rs"]
mod back_end;
mod common;
#[path = "sandbox/libraries.rs"]
mod libraries;

use std::{
    ffi::{CStr, CString},
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::{fs::PermissionsExt, process::CommandExt, process::ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Output},
    sync::OnceLock,
    time::Duration,
};

use libtest_mimic::{Arguments, Failed, Trial};
use nix::{sys::signal::kill, unistd::Uid};
use vhost_device_gpgpu::sandbox::{self, Role, Sandbox, Seccomp, Settings};

/// The variable with the arguments of a process that makes attempts: role, stage, sandbox, lists, attempt.
const INSIDE: &str = "SANDBOX_TEST_INSIDE";
/// The same, for a process that detaches a directory.
const DETACH: &str = "detach";
/// A user and group that own nothing.
const USER: u32 = 54321;
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    match std::env::var(INSIDE) {
        Ok(what) if what == DETACH => return detach(),
        Ok(what) => return inside(&what),
        Err(_) => {}
    }
    // Before there are threads: a file that another thread's child still has open for writing cannot be executed.
    let copy = tempfile::tempdir().and_then(|directory| {
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755))?;
        let program = directory.path().join("sandbox");
        fs::copy(own(), &program)?;
        fs::set_permissions(&program, PermissionsExt::from_mode(0o755))?;
        let _ = COPY.set(program);
        Ok(directory)
    });
    let Ok(_kept) = copy else {
        return ExitCode::FAILURE;
    };
    let arguments = Arguments::from_args();
    type Test = fn() -> Result<(), Failed>;
    let tests: [(&str, Test); 11] = [
        ("attempts_succeed_outside", attempts_succeed_outside),
        (
            "a_worker_that_serves_is_kept_in",
            a_worker_that_serves_is_kept_in,
        ),
        (
            "a_mover_that_serves_is_kept_in",
            a_mover_that_serves_is_kept_in,
        ),
        ("a_device_process_is_kept_in", a_device_process_is_kept_in),
        (
            "a_worker_is_kept_in_before_it_serves_too",
            a_worker_is_kept_in_before_it_serves_too,
        ),
        ("each_layer_holds_by_itself", each_layer_holds_by_itself),
        (
            "an_unprivileged_user_has_the_same",
            an_unprivileged_user_has_the_same,
        ),
        (
            "a_worker_has_the_operators_libraries",
            libraries::a_worker_has_the_operators_libraries,
        ),
        (
            "a_detached_directory_leads_nowhere_else",
            a_detached_directory_leads_nowhere_else,
        ),
        (
            "a_host_that_cannot_is_refused",
            back_end::a_host_that_cannot_is_refused,
        ),
        (
            "the_processes_of_a_back_end_are_in",
            back_end::the_processes_of_a_back_end_are_in,
        ),
    ];
    let trials = tests.map(|(name, test)| Trial::test(name, test)).into();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A copy of this program that any user can execute.
static COPY: OnceLock<PathBuf> = OnceLock::new();

fn copy() -> &'static Path {
    COPY.get().map_or(Path::new(""), PathBuf::as_path)
}

// The attempts, each with its end inside a sandbox.

/// The result of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    /// An error from the system.
    Refused,
    /// The process was killed by SIGSYS.
    Killed,
}

type Attempt = fn() -> io::Result<()>;

/// This is permitted in a process with a driver: libraries are loaded at their first use, and a system call filter does
/// not distinguish a library from memory that is a file, whatever its seals are.
const MAP_WRITTEN: &str = "map-what-was-written-as-code";

/// Every attempt, with its name.
const ATTEMPTS: [(&str, Attempt); 19] = [
    ("read-users", || File::open("/etc/passwd").map(drop)),
    ("list-temporary-files", || fs::read_dir("/tmp").map(drop)),
    ("see-the-first-process", || {
        File::open("/proc/1/status").map(drop)
    }),
    ("see-the-parent", || {
        let parent = std::os::unix::process::parent_id();
        File::open(format!("/proc/{parent}/status")).map(drop)
    }),
    ("write", || {
        // Wherever the root is.
        File::create("/file-of-a-test").map(drop)?;
        fs::remove_file("/file-of-a-test")
    }),
    ("read-by-a-way-out", || {
        // The standard input is a directory of the host.
        // SAFETY: the string lives across the call.
        let fd = unsafe { libc::openat(0, c"../../../../../etc/passwd".as_ptr(), libc::O_RDONLY) };
        result(fd.into()).map(drop)
    }),
    ("execute", || {
        let program = CString::new("/proc/self/exe")?;
        let variable = c"SANDBOX_TEST_INSIDE=- - - - nothing";
        let (arguments, variables) = (
            [program.as_ptr(), std::ptr::null()],
            [variable.as_ptr(), std::ptr::null()],
        );
        // SAFETY: the strings and lists live across the call, and the lists end with NULL.
        let failed =
            unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
        result(failed.into()).map(drop)
    }),
    ("start-a-process", || {
        // SAFETY: this process has one thread, and the child does nothing but end.
        match unsafe { libc::fork() } {
            // SAFETY: does not return.
            0 => unsafe { libc::_exit(0) },
            child => result(child.into()).map(drop),
        }
    }),
    ("connect", || {
        let address: std::net::SocketAddr = std::env::var("SANDBOX_TEST_ADDRESS")
            .ok()
            .and_then(|address| address.parse().ok())
            .ok_or(io::ErrorKind::InvalidInput)?;
        std::net::TcpStream::connect(address).map(drop)
    }),
    ("make-a-socket", || {
        // SAFETY: numbers alone.
        result(unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) }.into()).map(drop)
    }),
    ("trace-the-parent", || {
        let parent = nix::unistd::getppid().as_raw();
        // SAFETY: the request takes no memory. It ends with this process.
        result(unsafe { libc::ptrace(libc::PTRACE_SEIZE, parent, 0, 0) }).map(drop)
    }),
    ("read-the-parents-memory", || {
        let mut byte = 0_u8;
        let here = libc::iovec {
            iov_base: (&raw mut byte).cast(),
            iov_len: 1,
        };
        // Any address that exists there suffices.
        let there = libc::iovec {
            iov_base: parents_memory()? as *mut _,
            iov_len: 1,
        };
        let parent = std::os::unix::process::parent_id();
        // SAFETY: the list that is written to describes a byte that lives across the call.
        result(unsafe { libc::process_vm_readv(parent as i32, &here, 1, &there, 1, 0) as i64 })
            .map(drop)
    }),
    ("signal-the-parent", || {
        kill(nix::unistd::getppid(), None).map_err(io::Error::from)
    }),
    ("make-namespaces", || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWUTS).map_err(io::Error::from)
    }),
    ("mount", || {
        let flags = nix::mount::MsFlags::MS_PRIVATE;
        nix::mount::mount::<str, str, str, str>(None, "/", None, flags, None)
            .map_err(io::Error::from)
    }),
    ("run-what-was-written", || {
        // SAFETY: new memory, whose protection is changed; nothing runs there.
        unsafe {
            let memory = libc::mmap(
                std::ptr::null_mut(),
                4096,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            result(libc::mprotect(memory, 4096, libc::PROT_READ | libc::PROT_EXEC).into()).map(drop)
        }
    }),
    (MAP_WRITTEN, || {
        // SAFETY: a new file and a new mapping; nothing runs there.
        unsafe {
            let file = result(libc::memfd_create(c"test".as_ptr(), 0).into())? as i32;
            result(libc::ftruncate(file, 4096).into())?;
            let code = libc::PROT_READ | libc::PROT_EXEC;
            let mapped = libc::mmap(std::ptr::null_mut(), 4096, code, libc::MAP_SHARED, file, 0);
            result(if mapped == libc::MAP_FAILED { -1 } else { 0 }).map(drop)
        }
    }),
    ("write-to-its-own-code", || {
        // The driver may write to files of its own threads, for their names.
        let thread = nix::unistd::gettid();
        let memory = format!("/proc/self/task/{thread}/mem");
        File::options().write(true).open(memory).map(drop)
    }),
    ("be-root", || match Uid::effective().is_root() {
        true => Ok(()),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }),
];

/// An address in the parent's memory, which the parent has printed.
fn parents_memory() -> io::Result<usize> {
    let told = std::env::var("SANDBOX_TEST_MEMORY").ok();
    told.and_then(|address| address.parse().ok())
        .ok_or(io::ErrorKind::InvalidInput.into())
}

fn result(value: i64) -> io::Result<i64> {
    if value < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value)
}

/// Enters a sandbox and makes an attempt; the exit status is the result.
fn inside(what: &str) -> ExitCode {
    let words: Vec<&str> = what.split(' ').collect();
    let [role, stage, sandbox, seccomp, attempt] = words[..] else {
        return ExitCode::from(9);
    };
    let role = match role {
        "device" => Role::Device,
        "worker" => Role::Worker,
        "mover" => Role::Mover,
        _ => return ExitCode::SUCCESS,
    };
    let settings = Settings::from_arguments(
        [
            format!("--sandbox={sandbox}"),
            format!("--seccomp={seccomp}"),
        ]
        .into_iter(),
    );
    let entered = sandbox::enter(role, settings, None, &libraries::directories());
    let entered = entered.and_then(|()| match stage {
        "serve" => sandbox::tighten(role, settings),
        _ => Ok(()),
    });
    if let Err(error) = entered {
        eprintln!("{error}");
        return ExitCode::from(8);
    }
    let all = ATTEMPTS.iter().map(|(name, act)| (name, act));
    let of_libraries = libraries::ATTEMPTS.iter().map(|(name, _, act)| (name, act));
    let attempt = all.chain(of_libraries).find(|(name, _)| **name == attempt);
    match attempt.map(|(_, act)| act()) {
        Some(Ok(())) => ExitCode::SUCCESS,
        Some(Err(error)) => {
            eprintln!("{error}");
            ExitCode::from(7)
        }
        None => ExitCode::from(9),
    }
}

/// A command for a process that makes an attempt.
fn attempt(program: &Path, role: &str, stage: &str, settings: Settings, name: &str) -> Command {
    let [sandbox, seccomp] = settings.to_arguments();
    let value = |argument: &str| argument.split_once('=').map(|(_, value)| value.to_owned());
    let (sandbox, seccomp) = (value(&sandbox).unwrap(), value(&seccomp).unwrap());
    let mut command = Command::new(program);
    static KNOWN: u8 = 1;
    command
        .env(INSIDE, format!("{role} {stage} {sandbox} {seccomp} {name}"))
        .env(
            "SANDBOX_TEST_MEMORY",
            (&raw const KNOWN as usize).to_string(),
        )
        .stdin(File::open("/").unwrap());
    command
}

fn end(output: &Output) -> Result<End, Failed> {
    match (output.status.code(), output.status.signal()) {
        (Some(0), _) => Ok(End::Done),
        (Some(7), _) => Ok(End::Refused),
        (_, Some(libc::SIGSYS)) => Ok(End::Killed),
        _ => Err(format!("{output:?}").into()),
    }
}

/// Makes all attempts, with a listener to which a connection would be possible.
fn make(
    program: &Path,
    user: Option<u32>,
    role: &str,
    stage: &str,
    settings: Settings,
) -> Result<Vec<(&'static str, End)>, Failed> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let mut ends = Vec::new();
    for (name, _) in ATTEMPTS {
        let mut command = attempt(program, role, stage, settings, name);
        command.env("SANDBOX_TEST_ADDRESS", listener.local_addr()?.to_string());
        if let Some(user) = user {
            command.uid(user).gid(user);
        }
        let output = command.output()?;
        ends.push((
            name,
            end(&output).map_err(|failed| format!("{name}: {failed:?}"))?,
        ));
    }
    Ok(ends)
}

fn own() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Checks that all attempts except these fail, in any way.
fn kept_in(ends: &[(&str, End)], but: &[&str]) -> Result<(), Failed> {
    for (name, end) in ends {
        let may = but.contains(name);
        if (*end == End::Done) != may {
            return Err(format!("{name}: {end:?}").into());
        }
    }
    Ok(())
}

/// Checks that these attempts kill the process.
fn killed(ends: &[(&str, End)], names: &[&str]) -> Result<(), Failed> {
    for name in names {
        if !ends.contains(&(name, End::Killed)) {
            return Err(format!("{name} is not a reason to be killed: {ends:?}").into());
        }
    }
    Ok(())
}

const NEVER: [&str; 7] = [
    "trace-the-parent",
    "read-the-parents-memory",
    "signal-the-parent",
    "make-namespaces",
    "mount",
    "run-what-was-written",
    "execute",
];

const ALL: Settings = Settings {
    sandbox: Sandbox::Namespace,
    seccomp: Seccomp::Kill,
};
const NONE: Settings = Settings {
    sandbox: Sandbox::None,
    seccomp: Seccomp::None,
};

fn attempts_succeed_outside() -> Result<(), Failed> {
    if !Uid::effective().is_root() {
        eprintln!("skipped: some need root");
        return Ok(());
    }
    for (name, end) in make(copy(), None, "worker", "serve", NONE)? {
        if end != End::Done {
            return Err(format!("{name}: {end:?}").into());
        }
    }
    Ok(())
}

fn a_worker_that_serves_is_kept_in() -> Result<(), Failed> {
    let ends = make(copy(), None, "worker", "serve", ALL)?;
    kept_in(&ends, &[MAP_WRITTEN])?;
    killed(&ends, &NEVER)
}

fn a_mover_that_serves_is_kept_in() -> Result<(), Failed> {
    let ends = make(copy(), None, "mover", "serve", ALL)?;
    kept_in(&ends, &[MAP_WRITTEN])?;
    killed(&ends, &NEVER)
}

fn a_device_process_is_kept_in() -> Result<(), Failed> {
    let ends = make(copy(), None, "device", "start", ALL)?;
    kept_in(&ends, &[])?;
    killed(&ends, &NEVER)?;
    killed(&ends, &["make-a-socket", "connect", MAP_WRITTEN])
}

fn a_worker_is_kept_in_before_it_serves_too() -> Result<(), Failed> {
    // It may execute itself again, and the driver makes a socket.
    let ends = make(copy(), None, "worker", "start", ALL)?;
    kept_in(&ends, &["execute", "make-a-socket", MAP_WRITTEN])
}

/// The attempts that one of the two layers does not stop are stopped by the other.
fn each_layer_holds_by_itself() -> Result<(), Failed> {
    let namespaces = Settings {
        seccomp: Seccomp::None,
        ..ALL
    };
    let ends = make(copy(), None, "worker", "serve", namespaces)?;
    let files = [
        "read-users",
        "list-temporary-files",
        "see-the-first-process",
        "see-the-parent",
        "write",
        "connect",
        "make-namespaces",
        "mount",
        "trace-the-parent",
        "read-the-parents-memory",
        "be-root",
    ];
    for name in files {
        if ends.contains(&(name, End::Done)) {
            return Err(format!("{name} without lists of system calls").into());
        }
    }
    if has_landlock() {
        for name in ["read-by-a-way-out", "signal-the-parent"] {
            if ends.contains(&(name, End::Done)) {
                return Err(format!("{name} in spite of Landlock").into());
            }
        }
    } else {
        eprintln!("this kernel has no Landlock of Linux 6.12");
    }
    let lists = Settings {
        sandbox: Sandbox::None,
        ..ALL
    };
    killed(&make(copy(), None, "worker", "serve", lists)?, &NEVER)
}

/// Whether signals are restricted.
fn has_landlock() -> bool {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no pointer.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, 0, 0, VERSION) };
    version >= 6
}

fn an_unprivileged_user_has_the_same() -> Result<(), Failed> {
    if !Uid::effective().is_root() {
        eprintln!("skipped: all tests are this one");
        return Ok(());
    }
    let ends = make(copy(), Some(USER), "worker", "serve", ALL)?;
    kept_in(&ends, &[MAP_WRITTEN])?;
    killed(&ends, &NEVER)?;
    kept_in(&make(copy(), Some(USER), "device", "start", ALL)?, &[])
}

/// The supervisor passes such a directory to a worker: `..` from there must not lead to the host's root.
fn a_detached_directory_leads_nowhere_else() -> Result<(), Failed> {
    let around = tempfile::tempdir()?;
    fs::set_permissions(around.path(), PermissionsExt::from_mode(0o755))?;
    fs::write(around.path().join("outside"), "")?;
    let directory = around.path().join("directory");
    fs::create_dir(&directory)?;
    fs::write(directory.join("own"), "")?;
    // Independently of the umask.
    for (path, mode) in [
        ("outside", 0o644),
        ("directory", 0o755),
        ("directory/own", 0o644),
    ] {
        fs::set_permissions(around.path().join(path), PermissionsExt::from_mode(mode))?;
    }
    let users: &[Option<u32>] = match Uid::effective().is_root() {
        true => &[None, Some(USER)],
        false => &[None],
    };
    for user in users {
        let mut command = Command::new(copy());
        command.env(INSIDE, DETACH).current_dir(&directory);
        if let Some(user) = *user {
            command.uid(user).gid(user);
        }
        let output = command.output()?;
        if output.status.code() != Some(0) {
            return Err(format!("{user:?}: {output:?}").into());
        }
    }
    Ok(())
}

/// The main function of such a process: it detaches its directory, and explores from there.
fn detach() -> ExitCode {
    let opens = |directory: i32, path: &CStr| {
        // SAFETY: the string lives across the call. The descriptor stays until the process ends.
        unsafe { libc::openat(directory, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) >= 0 }
    };
    if !opens(libc::AT_FDCWD, c"../outside") {
        eprintln!("there is no way up anyway");
        return ExitCode::FAILURE;
    }
    match sandbox::detach(Path::new(".")) {
        Ok(own) if !opens(own.as_raw_fd(), c"own") => eprintln!("its own file is not there"),
        Ok(own) if opens(own.as_raw_fd(), c"../outside") => eprintln!("there is a way up"),
        Ok(_) => return ExitCode::SUCCESS,
        Err(error) => eprintln!("{error}"),
    }
    ExitCode::FAILURE
}
