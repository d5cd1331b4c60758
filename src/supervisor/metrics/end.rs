// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The reasons for the ends of clients.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use nix::libc::{SIGKILL, SIGSYS};

/// The reason why a client's worker has ended, or was never started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The guest closed the client, or the guest itself ended: the usual end of a program.
    Closed,
    /// The worker was killed from outside.
    Killed,
    /// The worker was killed by another signal, such as a crash of the driver.
    Crashed,
    /// The worker made a system call that is not allowed.
    Sandbox,
    /// The worker failed: the guest sent malformed data, or the driver failed.
    Failed,
    /// A kernel ran for longer than the VM's limit.
    LongestKernel,
    /// The host was out of memory.
    OutOfMemory,
    /// There was no worker: the VM had its maximum number of clients, or the host was out of processes.
    Refused,
    /// Its work stayed on a GPU for too long after its turn.
    Overrun,
}

/// All reasons, in the order in which they are counted.
pub const ENDS: [End; 9] = [
    End::Closed,
    End::Killed,
    End::Crashed,
    End::Sandbox,
    End::Failed,
    End::LongestKernel,
    End::OutOfMemory,
    End::Refused,
    End::Overrun,
];

impl End {
    /// The name in the metrics and the log.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Killed => "killed",
            Self::Crashed => "crashed",
            Self::Sandbox => "sandbox",
            Self::Failed => "failed",
            Self::LongestKernel => "longest_kernel",
            Self::OutOfMemory => "out_of_memory",
            Self::Refused => "refused",
            Self::Overrun => "overrun",
        }
    }

    /// The reason for the end of a worker's process that the supervisor did not cause. `oom` returns whether the kernel
    /// has recently killed a process for lack of memory; it is called only if that matters.
    pub fn of(status: ExitStatus, oom: impl FnOnce() -> bool) -> Self {
        match status.signal() {
            Some(SIGKILL) if oom() => Self::OutOfMemory,
            Some(SIGKILL) => Self::Killed,
            Some(SIGSYS) => Self::Sandbox,
            Some(_) => Self::Crashed,
            None if status.success() => Self::Closed,
            None => Self::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_how_it_ended() {
        let of = |raw, oom| End::of(ExitStatus::from_raw(raw), || oom);
        assert_eq!(of(0, true), End::Closed);
        assert_eq!(of(0x100, true), End::Failed);
        assert_eq!(of(9, false), End::Killed);
        assert_eq!(of(9, true), End::OutOfMemory);
        assert_eq!(of(11, true), End::Crashed);
        assert_eq!(of(31 | 0x80, true), End::Sandbox);
    }

    #[test]
    fn the_order_is_that_of_the_numbers() {
        for (index, end) in ENDS.iter().enumerate() {
            assert_eq!(*end as usize, index);
        }
    }
}
