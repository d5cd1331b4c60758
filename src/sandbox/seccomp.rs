// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The system calls that each role may make, and why.
//!
//! Two tables make a filter: the *allowed* calls, and the calls that are *refused* with an error code, because a
//! library tries them and can do without. All others end the process. If several filters apply, as after
//! [`super::tighten`], the strictest answer counts.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::{Error, Role, Seccomp};

/// The stage of a role's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// It starts its driver, and nothing of a guest has reached it.
    Start,
    /// It serves.
    Serve,
}

/// The required value of an argument of a system call.
#[derive(Debug, Clone, Copy)]
enum Is {
    /// This number.
    Just(u64),
    /// A number with these bits, of those under the mask.
    Bits { mask: u64, bits: u64 },
    /// This process.
    Own,
    /// Another number than this.
    Other(u64),
    /// Some address.
    Address,
}

/// A system call, and one way in which it may be made: conditions on arguments, by their position. Several rules for
/// one call are alternatives.
struct Rule {
    call: i64,
    when: &'static [(u8, Is)],
}

macro_rules! rules {
    ($($(#[doc = $why:literal])* $call:ident $(($($position:literal: $is:expr),*))?;)*) => {
        &[$(Rule { call: libc::$call, when: &[$($(($position, $is)),*)?] }),*]
    };
}

/// An argument without some bits.
const fn without(bits: u64) -> Is {
    Is::Bits {
        mask: bits,
        bits: 0,
    }
}

const EXEC: u64 = libc::PROT_EXEC as u64;
const WRITE: u64 = libc::PROT_WRITE as u64;
const ANONYMOUS: u64 = libc::MAP_ANONYMOUS as u64;
/// Flags of `clone` for namespaces.
const NAMESPACES: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
const THREAD: u64 = libc::CLONE_THREAD as u64;

/// The needs of Rust's and C's libraries in any process that has threads, memory and a log.
const COMMON: &[Rule] = rules! {
    /// Memory: data, and code from files. No mapping can be both written and run.
    SYS_mmap(2: without(EXEC));
    SYS_munmap;
    SYS_mremap;
    SYS_mprotect(2: without(EXEC));
    SYS_madvise;
    SYS_brk;
    /// Threads, without namespaces; that it is no process, a table below sees to.
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
    /// The stack's size, asked and not set.
    SYS_prlimit64(2: Is::Just(0));
    SYS_sigaltstack;
    SYS_rt_sigaction;
    SYS_rt_sigprocmask;
    SYS_rt_sigreturn;
    SYS_restart_syscall;
    /// A process that aborts sends itself a signal, and no other process.
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
    /// Existing descriptors: the log, channels, descriptors received by a channel.
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
    /// Memory to share: staging areas, lists of runs, lists of descriptors.
    SYS_memfd_create;
    SYS_ftruncate;
    SYS_eventfd2;
    SYS_epoll_create1;
    SYS_epoll_ctl;
    SYS_epoll_pwait;
};

/// System calls that older processors have beside newer ones.
#[cfg(target_arch = "x86_64")]
const COMMON_X86: &[Rule] = rules! {
    SYS_epoll_wait;
    SYS_time;
};
#[cfg(not(target_arch = "x86_64"))]
const COMMON_X86: &[Rule] = &[];

const DEVICE: &[Rule] = rules! {
    /// The connection of the vhost-user library, from a listener of this process's own.
    SYS_accept4;
    /// Timers.
    SYS_timerfd_create;
    SYS_timerfd_settime;
    /// The size of the pages that a guest's memory consists of.
    SYS_fstatfs;
};

/// The driver's calls while it serves.
const CUDA: &[Rule] = rules! {
    /// Code of libraries that are loaded when they are first needed, as the compiler for PTX: from files, read-only.
    SYS_mmap(2: Is::Bits { mask: EXEC | WRITE, bits: EXEC }, 3: without(ANONYMOUS));
    /// Files of the root directory, and of the cache: which, the root directory and Landlock decide.
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
    /// The cache's own upkeep.
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
    /// The driver's own ioctls: all are of type F, except those of unified memory, which are small numbers, and two
    /// that begin and end it.
    SYS_ioctl(1: Is::Bits { mask: 0xff00, bits: (b'F' as u64) << 8 });
    SYS_ioctl(1: Is::Bits { mask: 0xffff_ff00, bits: 0 });
    SYS_ioctl(1: Is::Just(0x3000_0001));
    SYS_ioctl(1: Is::Just(0x3000_0002));
    /// The driver's thread for events is started with a long timer slack; see `cuda::event_thread`.
    SYS_prctl(0: Is::Just(libc::PR_SET_TIMERSLACK as u64));
    SYS_prctl(0: Is::Just(libc::PR_GET_TIMERSLACK as u64));
    /// The driver's own threads wait for each other.
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
    /// The place and presence of memory; memory near a GPU.
    SYS_mincore;
    SYS_mlock;
    SYS_munlock;
    SYS_msync;
    SYS_mbind;
    SYS_get_mempolicy;
    SYS_set_mempolicy;
    SYS_membarrier;
    /// Identity, and the processor that it runs on.
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

/// Further calls of the driver during its start.
const CUDA_START: &[Rule] = rules! {
    /// The driver listens at an abstract socket, and looks for MPS; in a network and a root directory of its own.
    SYS_socket(0: Is::Just(libc::AF_UNIX as u64));
    SYS_bind;
    SYS_listen;
    SYS_connect;
    SYS_setsockopt;
    /// A worker whose context has failed while it waited starts anew.
    SYS_execve;
    SYS_set_tid_address;
    SYS_prctl(0: Is::Just(libc::PR_SET_PDEATHSIG as u64));
    SYS_prctl(0: Is::Just(libc::PR_SET_DUMPABLE as u64));
    SYS_prctl(0: Is::Just(libc::PR_SET_NO_NEW_PRIVS as u64));
    SYS_prlimit64(1: Is::Just(libc::RLIMIT_CORE as u64));
    SYS_setrlimit(0: Is::Just(libc::RLIMIT_CORE as u64));
    /// The list for serving.
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

/// In every role.
const REFUSED: &[Refused] = &[
    Refused {
        error: libc::ENOSYS,
        calls: rules! {
            /// Its flags are in memory, where a filter does not look. The C library makes threads by clone then.
            SYS_clone3;
        },
    },
    Refused {
        error: libc::EPERM,
        calls: rules! {
            /// For the query whether the log is a terminal; nothing else is ever asked of one.
            SYS_ioctl(1: Is::Just(libc::TCGETS));
            /// A driver that runs helpers, makes device files or changes their modes, or raises the priority of its
            /// threads, works without these.
            SYS_clone(0: without(THREAD));
            /// NVRTC, by which cuDNN compiles some of its kernels, would have a larger stack.
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

/// In a device process: libraries look for files, where there are none.
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

/// In a worker or mover that serves: a driver may try to listen or to reach MPS once more.
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

/// Calls that no role ever makes, refused to the supervisor and so to all. Allow lists come with the roles: a filter
/// also applies to started processes, so the supervisor's cannot be narrower than theirs.
const REFUSED_TO_ALL: &[i64] = &[
    // Other processes' memory and state.
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    // The kernel itself: modules, another kernel, the clock, swapping, accounting, quotas, its log.
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
    // Large parts of the kernel that have often been a way in, and are not needed.
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
    // Files by number, past their directories.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    // The processor in modes of old.
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

/// The calls that a role is refused from a stage on.
fn refused(role: Role, stage: Stage) -> &'static [&'static [Refused]] {
    match (role, stage) {
        (Role::Device, _) => &[REFUSED, REFUSED_DEVICE],
        (_, Stage::Start) => &[REFUSED],
        (_, Stage::Serve) => &[REFUSED_SERVING],
    }
}

/// Gives all threads of this process the filters of a role at a stage.
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
            // The list allows some calls that a filter of their own refuses.
            add(&mut list, rule)?;
        }
    }
    for (error, calls) in errors {
        let refuse = SeccompAction::Errno(error as u32);
        install(filter(calls, SeccompAction::Allow, refuse)?)?;
    }
    if stage == Stage::Serve {
        // Calls that were refused before still are.
        for rule in REFUSED.iter().flat_map(|refused| refused.calls) {
            add(&mut list, rule)?;
        }
    }
    for rule in allowed(role, stage).into_iter().flatten() {
        add(&mut list, rule)?;
    }
    install(filter(list, otherwise, SeccompAction::Allow)?)
}

/// Rules by call; none for a call says that there are no conditions.
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

/// Refuses to this process, and to all that it starts, the calls that no role makes.
///
/// # Errors
/// The kernel refuses.
pub fn refuse_in_all(mode: Seccomp) -> Result<(), Error> {
    let refuse = match mode {
        Seccomp::None => return Ok(()),
        Seccomp::Log => SeccompAction::Log,
        // Not killed: with the supervisor every VM would lose its device.
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
        // A pointer is NULL only if both halves are; all other arguments are 32-bit numbers whose upper halves may have
        // any value.
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

/// Naming the call that ends the process.
mod trap {
    use std::ffi::{c_int, c_void};

    /// The field of the signal's information that holds the call's number: after three numbers and a pointer.
    const CALL: usize = 24;

    extern "C" fn end(_: c_int, information: *mut libc::siginfo_t, _: *mut c_void) {
        // SAFETY: the kernel gives a handler of SA_SIGINFO its information, which is longer than this.
        let mut call = unsafe { information.byte_add(CALL).cast::<u32>().read_unaligned() };
        let mut text = *b"A system call that is not allowed:           \n";
        // No allocation and no formatting in a signal's handler.
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

    /// From now on such a call is named in the log.
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
