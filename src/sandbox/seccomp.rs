// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The system calls of each role, with the reasons.
//!
//! Two tables make a filter: the *allowed* calls, and the calls that are *refused* with an error code because a library
//! tries them but works without them. All other calls end the process. If several filters apply, as after
//! [`super::tighten`], the strictest result counts.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{Error, Role, Seccomp};

/// The stage of a role's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It starts its driver, before it has received anything of a guest.
    Start,
    /// It serves.
    Serve,
}

/// A condition on an argument of a system call.
#[derive(Debug, Clone, Copy)]
enum Is {
    /// The argument equals this number.
    Just(u64),
    /// The bits of the argument under the mask equal `bits`.
    Bits { mask: u64, bits: u64 },
    /// The argument is the id of this process.
    Own,
    /// The argument differs from this number.
    Other(u64),
    /// The argument is an address, not NULL.
    Address,
}

/// A system call with conditions on its arguments, by their position. Several rules for one call are alternatives.
struct Rule {
    call: i64,
    when: &'static [(u8, Is)],
}

macro_rules! rules {
    ($($(#[doc = $why:literal])* $call:ident $(($($position:literal: $is:expr),*))?;)*) => {
        &[$(Rule { call: libc::$call, when: &[$($(($position, $is)),*)?] }),*]
    };
}

/// The condition that an argument has none of these bits.
const fn without(bits: u64) -> Is {
    Is::Bits {
        mask: bits,
        bits: 0,
    }
}

const EXEC: u64 = libc::PROT_EXEC as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
/// The flags of `clone` for namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;

/// The calls of Rust's and C's libraries in any process that uses threads, memory and a log.
const COMMON: &[Rule] = rules! {
    /// Memory: data, and code from files. No mapping can be both writable and executable.
    SYS_mmap(2: without(EXEC));
    SYS_munmap;
    SYS_mremap;
    SYS_mprotect(2: without(EXEC));
    SYS_madvise;
    SYS_brk;
    /// Threads, without new namespaces. A table below refuses new processes.
    SYS_clone(0: without(NAMESPACES));
    SYS_set_robust_list;
    SYS_rseq;
    SYS_futex;
    SYS_sched_yield;
    /// The number of processors, for the number of threads and of heaps.
    SYS_sched_getaffinity;
    SYS_getcpu;
    SYS_gettid;
    SYS_getpid;
    /// Names of threads and of memory, for debuggers.
    SYS_prctl(0: Is::Just(libc::PR_SET_NAME as u64));
    SYS_prctl(0: Is::Just(0x5356_4d41));
    /// Reads the stack's size; setting it is not allowed.
    SYS_prlimit64(2: Is::Just(0));
    SYS_sigaltstack;
    SYS_rt_sigaction;
    SYS_rt_sigprocmask;
    SYS_rt_sigreturn;
    SYS_restart_syscall;
    /// A process that aborts sends a signal to itself. It cannot send one to another process.
    SYS_tgkill(0: Is::Own);
    SYS_exit;
    SYS_exit_group;
    /// Time.
    SYS_clock_gettime;
    SYS_clock_getres;
    SYS_clock_nanosleep;
    SYS_nanosleep;
    SYS_gettimeofday;
    /// Keys of hash tables.
    SYS_getrandom;
    /// Existing descriptors: the log, channels, and descriptors received from a channel.
    SYS_read;
    SYS_readv;
    SYS_pread64;
    SYS_write;
    SYS_writev;
    SYS_pwrite64;
    SYS_close;
    SYS_fstat;
    SYS_lseek;
    SYS_poll;
    SYS_ppoll;
    SYS_recvmsg;
    SYS_recvfrom;
    SYS_sendmsg;
    SYS_sendto;
    SYS_getsockopt;
    SYS_shutdown;
    SYS_dup;
    SYS_fcntl(1: Is::Just(libc::F_DUPFD_CLOEXEC as u64));
    SYS_fcntl(1: Is::Just(libc::F_GETFD as u64));
    SYS_fcntl(1: Is::Just(libc::F_SETFD as u64));
    SYS_fcntl(1: Is::Just(libc::F_GETFL as u64));
    SYS_fcntl(1: Is::Just(libc::F_SETFL as u64));
    SYS_fcntl(1: Is::Just(libc::F_ADD_SEALS as u64));
    SYS_fcntl(1: Is::Just(libc::F_GET_SEALS as u64));
    SYS_ioctl(1: Is::Just(libc::FIONBIO));
    SYS_ioctl(1: Is::Just(libc::FIOCLEX));
    /// Shared memory: staging areas, lists of runs, lists of descriptors.
    SYS_memfd_create;
    SYS_ftruncate;
    SYS_eventfd2;
    SYS_epoll_create1;
    SYS_epoll_ctl;
    SYS_epoll_pwait;
};

/// Older system calls that exist beside newer ones only on x86.
#[cfg(target_arch = "x86_64")]
const COMMON_X86: &[Rule] = rules! {
    SYS_epoll_wait;
    SYS_time;
};
#[cfg(not(target_arch = "x86_64"))]
const COMMON_X86: &[Rule] = &[];

const DEVICE: &[Rule] = rules! {
    /// The connection of the vhost-user library, from a listener of this process.
    SYS_accept4;
    /// Timers.
    SYS_timerfd_create;
    SYS_timerfd_settime;
    /// The page size of a guest's memory.
    SYS_fstatfs;
};

/// The driver's calls while it serves.
const CUDA: &[Rule] = rules! {
    /// Code of libraries that are loaded at their first use, such as the PTX compiler: from files, read-only.
    SYS_mmap(2: Is::Bits { mask: EXEC | WRITE, bits: EXEC }, 3: without(ANONYMOUS));
    /// Files of the root directory and of the cache. The root directory and Landlock restrict the paths.
    SYS_openat;
    SYS_newfstatat;
    SYS_statx;
    SYS_faccessat;
    SYS_faccessat2;
    SYS_readlinkat;
    SYS_getdents64;
    SYS_fstatfs;
    SYS_statfs;
    SYS_getcwd;
    /// Management of the cache.
    SYS_mkdirat;
    SYS_unlinkat;
    SYS_renameat;
    SYS_renameat2;
    SYS_fsync;
    SYS_fdatasync;
    SYS_flock;
    SYS_fcntl(1: Is::Just(libc::F_SETLK as u64));
    SYS_fcntl(1: Is::Just(libc::F_SETLKW as u64));
    SYS_fcntl(1: Is::Just(libc::F_GETLK as u64));
    SYS_fcntl(1: Is::Just(libc::F_DUPFD as u64));
    /// The driver's ioctls: all have type F, except those of unified memory, which are small numbers, and the two that
    /// initialise and deinitialise it.
    SYS_ioctl(1: Is::Bits { mask: 0xff00, bits: (b'F' as u64) << 8 });
    SYS_ioctl(1: Is::Bits { mask: 0xffff_ff00, bits: 0 });
    SYS_ioctl(1: Is::Just(0x3000_0001));
    SYS_ioctl(1: Is::Just(0x3000_0002));
    /// The driver's event thread is started with a long timer slack; see `cuda::event_thread`.
    SYS_prctl(0: Is::Just(libc::PR_SET_TIMERSLACK as u64));
    SYS_prctl(0: Is::Just(libc::PR_GET_TIMERSLACK as u64));
    /// The driver's threads wait for each other.
    SYS_pipe2;
    SYS_dup3;
    SYS_timerfd_create;
    SYS_timerfd_settime;
    SYS_sched_get_priority_max;
    SYS_sched_get_priority_min;
    SYS_sched_getparam;
    SYS_sched_getscheduler;
    SYS_getpriority;
    SYS_sched_setaffinity(0: Is::Just(0));
    SYS_sched_setaffinity(0: Is::Own);
    /// The location and presence of memory; memory near a GPU.
    SYS_mincore;
    SYS_mlock;
    SYS_munlock;
    SYS_msync;
    SYS_mbind;
    SYS_get_mempolicy;
    SYS_set_mempolicy;
    SYS_membarrier;
    /// The identity of the process, and the processor that it runs on.
    SYS_uname;
    SYS_sysinfo;
    SYS_getuid;
    SYS_geteuid;
    SYS_getgid;
    SYS_getegid;
    SYS_getppid;
    SYS_getrusage;
};

#[cfg(target_arch = "x86_64")]
const CUDA_X86: &[Rule] = rules! {
    SYS_open;
    SYS_stat;
    SYS_lstat;
    SYS_access;
    SYS_readlink;
    SYS_mkdir;
    SYS_rmdir;
    SYS_unlink;
    SYS_rename;
    SYS_pipe;
    SYS_dup2;
};
#[cfg(not(target_arch = "x86_64"))]
const CUDA_X86: &[Rule] = &[];

/// Further calls of the driver at its start.
const CUDA_START: &[Rule] = rules! {
    /// The driver binds an abstract socket, and looks for MPS. The network namespace and the root directory are
    /// private.
    SYS_socket(0: Is::Just(libc::AF_UNIX as u64));
    SYS_bind;
    SYS_listen;
    SYS_connect;
    SYS_setsockopt;
    /// A worker executes itself again if its context has failed before it has a client.
    SYS_execve;
    SYS_set_tid_address;
    SYS_prctl(0: Is::Just(libc::PR_SET_PDEATHSIG as u64));
    SYS_prctl(0: Is::Just(libc::PR_SET_DUMPABLE as u64));
    SYS_prctl(0: Is::Just(libc::PR_SET_NO_NEW_PRIVS as u64));
    SYS_prlimit64(1: Is::Just(libc::RLIMIT_CORE as u64));
    SYS_setrlimit(0: Is::Just(libc::RLIMIT_CORE as u64));
    /// Installs the list for serving.
    SYS_seccomp;
};

#[cfg(target_arch = "x86_64")]
const CUDA_START_X86: &[Rule] = rules! {
    SYS_arch_prctl;
};
#[cfg(not(target_arch = "x86_64"))]
const CUDA_START_X86: &[Rule] = &[];

/// Calls that are answered with an error.
struct Refused {
    error: i32,
    calls: &'static [Rule],
}

/// Refused in every role.
const REFUSED: &[Refused] = &[
    Refused {
        error: libc::ENOSYS,
        calls: rules! {
            /// Its flags are in memory, which a filter cannot read. The C library then uses clone.
            SYS_clone3;
        },
    },
    Refused {
        error: libc::EPERM,
        calls: rules! {
            /// The query whether the log is a terminal. This is the only query about terminals.
            SYS_ioctl(1: Is::Just(libc::TCGETS));
            /// The driver works without these: it tries to run helpers, to make device files or change their modes, and
            /// to raise the priority of its threads.
            SYS_clone(0: without(THREAD));
            /// NVRTC, which compiles some of cuDNN's kernels, asks for a larger stack.
            SYS_prlimit64(1: Is::Other(libc::RLIMIT_CORE as u64), 2: Is::Address);
            SYS_setrlimit(0: Is::Other(libc::RLIMIT_CORE as u64));
            SYS_mknodat;
            SYS_symlinkat;
            SYS_fchmodat;
            SYS_fchmod;
            SYS_fchown;
            SYS_fchownat;
            SYS_setpriority;
            SYS_sched_setscheduler;
            SYS_sched_setattr;
        },
    },
    #[cfg(target_arch = "x86_64")]
    Refused {
        error: libc::EPERM,
        calls: rules! {
            SYS_mknod;
            SYS_symlink;
            SYS_chmod;
            SYS_chown;
            SYS_vfork;
            SYS_fork;
        },
    },
];

/// Refused in a device process: libraries look for files, which its root directory does not have.
const REFUSED_DEVICE: &[Refused] = &[
    Refused {
        error: libc::ENOENT,
        calls: rules! {
            SYS_openat;
            SYS_newfstatat;
            SYS_statx;
            SYS_readlinkat;
            SYS_faccessat;
        },
    },
    #[cfg(target_arch = "x86_64")]
    Refused {
        error: libc::ENOENT,
        calls: rules! {
            SYS_open;
            SYS_stat;
            SYS_readlink;
            SYS_access;
        },
    },
];

/// Refused in a serving worker or mover: a driver may try again to bind its socket or to reach MPS.
const REFUSED_SERVING: &[Refused] = &[Refused {
    error: libc::EPERM,
    calls: rules! {
        SYS_socket;
        SYS_bind;
        SYS_listen;
        SYS_connect;
        SYS_setsockopt;
    },
}];

/// Calls that no role makes, refused to the supervisor and so to all processes. Allow lists exist only for the roles: a
/// filter also applies to started processes, so the supervisor's list could not be narrower than theirs.
const REFUSED_TO_ALL: &[i64] = &[
    // Memory and state of other processes.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // The kernel itself: modules, kexec, the clock, swapping, accounting, quotas, its log.
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_adjtimex,
    libc::SYS_clock_adjtime,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    // Large parts of the kernel that had many vulnerabilities and are not needed.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_fanotify_init,
    // Files by handle, without a path through their directories.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // Obsolete processor modes.
    libc::SYS_personality,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
];

/// The calls that a role may make at a stage.
fn allowed(role: Role, stage: Stage) -> Vec<&'static [Rule]> {
    let mut tables = vec![COMMON, COMMON_X86];
    if role == Role::Device {
        tables.push(DEVICE);
        return tables;
    }
    tables.extend([CUDA, CUDA_X86]);
    if stage == Stage::Start {
        tables.extend([CUDA_START, CUDA_START_X86]);
    }
    tables
}

/// The calls that are refused to a role from a stage on.
fn refused(role: Role, stage: Stage) -> &'static [&'static [Refused]] {
    match (role, stage) {
        (Role::Device, _) => &[REFUSED, REFUSED_DEVICE],
        (_, Stage::Start) => &[REFUSED],
        (_, Stage::Serve) => &[REFUSED_SERVING],
    }
}

/// Installs the filters of a role at a stage in all threads of this process.
///
/// # Errors
/// The kernel refuses.
pub fn apply(role: Role, stage: Stage, mode: Seccomp) -> Result<(), Error> {
    let Some(otherwise) = otherwise(mode) else {
        return Ok(());
    };
    if mode == Seccomp::Trap {
        trap::name_the_call();
    }
    let mut list = Calls::new();
    let mut errors: BTreeMap<i32, Calls> = BTreeMap::new();
    for refused in refused(role, stage).iter().copied().flatten() {
        for rule in refused.calls {
            add(errors.entry(refused.error).or_default(), rule)?;
            // The list allows some calls that a separate filter refuses.
            add(&mut list, rule)?;
        }
    }
    for (error, calls) in errors {
        let refuse = SeccompAction::Errno(error as u32);
        install(filter(calls, SeccompAction::Allow, refuse)?)?;
    }
    if stage == Stage::Serve {
        // Calls that were refused before are still refused.
        for rule in REFUSED.iter().flat_map(|refused| refused.calls) {
            add(&mut list, rule)?;
        }
    }
    for rule in allowed(role, stage).into_iter().flatten() {
        add(&mut list, rule)?;
    }
    install(filter(list, otherwise, SeccompAction::Allow)?)
}

/// The rules of each call. A call without rules has no conditions.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

fn add(calls: &mut Calls, rule: &Rule) -> Result<(), Error> {
    if rule.when.is_empty() {
        calls.insert(rule.call, Vec::new());
        return Ok(());
    }
    let conditions = conditions(rule.when)?;
    match calls.get_mut(&rule.call) {
        Some(always) if always.is_empty() => {}
        Some(known) => known.push(conditions),
        None => drop(calls.insert(rule.call, vec![conditions])),
    }
    Ok(())
}

/// Refuses the calls that no role makes to this process and to all processes that it starts.
///
/// # Errors
/// The kernel refuses.
pub fn refuse_in_all(mode: Seccomp) -> Result<(), Error> {
    let refuse = match mode {
        Seccomp::None => return Ok(()),
        Seccomp::Log => SeccompAction::Log,
        // Not killed: without the supervisor every VM would lose its device.
        Seccomp::Kill | Seccomp::Trap => SeccompAction::Errno(libc::EPERM as u32),
    };
    let calls = REFUSED_TO_ALL.iter().map(|call| (*call, Vec::new()));
    install(filter(calls.collect(), SeccompAction::Allow, refuse)?)
}

/// The effect of a call outside the list.
fn otherwise(mode: Seccomp) -> Option<SeccompAction> {
    match mode {
        Seccomp::Kill => Some(SeccompAction::KillProcess),
        Seccomp::Log => Some(SeccompAction::Log),
        Seccomp::Trap => Some(SeccompAction::Trap),
        Seccomp::None => None,
    }
}

fn conditions(when: &[(u8, Is)]) -> Result<SeccompRule, Error> {
    let condition = |&(position, is): &(u8, Is)| {
        let (compare, value) = match is {
            Is::Just(value) => (SeccompCmpOp::Eq, value),
            Is::Bits { mask, bits } => (SeccompCmpOp::MaskedEq(mask), bits),
            Is::Own => (SeccompCmpOp::Eq, u64::from(std::process::id())),
            Is::Other(value) => (SeccompCmpOp::Ne, value),
            Is::Address => (SeccompCmpOp::Ne, 0),
        };
        // A pointer is NULL only if both halves are 0. All other arguments are 32-bit numbers whose upper halves may
        // have any value.
        let whole = matches!(is, Is::Just(0) | Is::Address);
        let length = if whole {
            SeccompCmpArgLen::Qword
        } else {
            SeccompCmpArgLen::Dword
        };
        SeccompCondition::new(position, length, compare, value)
    };
    let conditions = when.iter().map(condition).collect::<Result<Vec<_>, _>>();
    conditions
        .and_then(SeccompRule::new)
        .map_err(|error| Error::because("Making a list of system calls", error))
}

fn filter(
    calls: Calls,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<BpfProgram, Error> {
    let made = std::env::consts::ARCH
        .try_into()
        .and_then(|arch| SeccompFilter::new(calls, otherwise, listed, arch))
        .and_then(BpfProgram::try_from);
    made.map_err(|error| Error::because("Making a list of system calls", error))
}

fn install(program: BpfProgram) -> Result<(), Error> {
    seccompiler::apply_filter_all_threads(&program)
        .map_err(|error| Error::because("Restricting system calls", error))
}

/// Logs the call that ends the process.
mod trap {
    use std::ffi::{c_int, c_void};

    /// The offset of the call's number in the signal's information: it follows three numbers and a pointer.
    const CALL: usize = 24;

    extern "C" fn end(_: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the kernel gives a handler of SA_SIGINFO its information, which is longer than this.
        let mut call = unsafe { information.byte_add(CALL).cast::<u32>().read_unaligned() };
        let mut text = *b"A system call that is not allowed:           \n";
        // A signal handler must not allocate or use the formatter.
        for digit in text[..45].iter_mut().rev().take(9) {
            *digit = b'0' + (call % 10) as u8;
            call /= 10;
            if call == 0 {
                break;
            }
        }
        // SAFETY: the text lives across the call; both calls are ones that a handler may make.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::_exit(128 + libc::SIGSYS);
        }
    }

    /// Installs the handler that logs the call.
    pub fn name_the_call() {
        // SAFETY: numbers alone, for which zero is a value, and a handler of the type that the flag asks for.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = end as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
        }
    }
}
