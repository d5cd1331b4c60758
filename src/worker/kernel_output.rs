// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The output of the client's kernels, and the messages of the driver and of NVIDIA's libraries: text for the guest's
//! program.
//!
//! libcuda writes the output of kernels to the standard output of its process, and the message of a failed assertion to
//! its standard error, when it waits for work. For a worker with a client both are pipes of the worker itself; its log
//! goes to its former standard error. A thread reads the pipes, so that the driver never blocks on them, and keeps text
//! up to a limit. Each answer reports whether there is text, and `gpgpuOutput` takes it. If anything may have been
//! printed, the worker reads the pipes to their end before an answer, so the text of a wait is available with its
//! answer.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use gpgpu_locks::Mutex;
use gpgpu_protocol::{
    cuda::{CUDA_ERROR_ASSERT, CUresult},
    layout::answer,
};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use crate::{cuda::driver, log};

/// The maximum number of bytes of text that are kept for the guest. Further text is dropped.
const MOST_BYTES: usize = 16 << 20;
/// The maximum number of bytes that one answer takes of each stream: both fit into the longest answer.
const AT_ONCE: usize = 24 << 10;
/// The capacity of a pipe: reading this many bytes empties it.
const PIPE_BYTES: usize = 64 << 10;

/// Standard output, and standard error.
const STREAMS: [RawFd; 2] = [libc::STDOUT_FILENO, libc::STDERR_FILENO];

/// Text that was not taken yet.
#[derive(Debug, Default)]
struct Text([Vec<u8>; 2]);

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Printed {
    pipes: OnceLock<[File; 2]>,
    text: Mutex<Text>,
    is_there: AtomicBool,
    /// Whether an image of the client may print, or an assertion has failed.
    is_expected: AtomicBool,
    has_asserted: AtomicBool,
}

/// The ends of the pipes, before they replace the standard streams.
#[derive(Debug)]
pub struct Pipes {
    read: [File; 2],
    write: [OwnedFd; 2],
}

impl Pipes {
    /// Makes the pipes, and keeps the log's present destination.
    ///
    /// # Errors
    /// The process has no free descriptors.
    pub fn new() -> io::Result<Self> {
        log::keep()?;
        let [output, error] = [io::pipe()?, io::pipe()?];
        let read = [output.0, error.0].map(|end| File::from(OwnedFd::from(end)));
        for end in &read {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        }
        let write = [output.1, error.1].map(OwnedFd::from);
        Ok(Self { read, write })
    }
}

impl Printed {
    /// Redirects this process's standard output and standard error to the guest.
    ///
    /// # Errors
    /// The descriptors cannot be replaced, or no thread can be started.
    pub fn capture(&'static self, pipes: Pipes) -> io::Result<()> {
        for (end, place) in pipes.write.iter().zip(STREAMS) {
            // SAFETY: takes numbers alone. The standard streams are to be the pipes from now on.
            if unsafe { libc::dup3(end.as_raw_fd(), place, 0) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // Messages about a defect of this program are for the operator.
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
        let _ = self.pipes.set(pipes.read);
        let read = || self.read_on();
        let thread = thread::Builder::new().name("printed".into());
        thread.spawn(read).map(drop)
    }

    /// Reads the pipes continuously.
    fn read_on(&self) {
        let Some(pipes) = self.pipes.get() else {
            return;
        };
        loop {
            let mut ends = pipes
                .each_ref()
                .map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
            // It fails only if it is interrupted.
            let _ = poll(&mut ends, PollTimeout::NONE);
            self.read();
        }
    }

    /// Reads everything that was in the pipes at the call.
    fn read(&self) {
        let Some(pipes) = self.pipes.get() else {
            return;
        };
        let mut buffer = [0; 4096];
        let mut text = self.text.lock();
        for (index, mut pipe) in pipes.iter().enumerate() {
            let mut seen = 0;
            // A kernel that prints without end must not delay the answers to other threads.
            while seen < PIPE_BYTES {
                let count = match pipe.read(&mut buffer) {
                    Ok(0) | Err(_) => break,
                    Ok(count) => count,
                };
                seen += count;
                let room = MOST_BYTES - text.0[0].len() - text.0[1].len();
                text.0[index].extend_from_slice(&buffer[..count.min(room)]);
            }
        }
        let is_there = text.0.iter().any(|text| !text.is_empty());
        self.is_there.store(is_there, Ordering::Release);
    }

    /// Records that an image of the client may print.
    pub fn expect(&self) {
        self.is_expected.store(true, Ordering::Relaxed);
    }

    /// [`StreamAnswer::flags`](gpgpu_protocol::layout::StreamAnswer::flags) of an answer with this result.
    pub fn flags(&self, result: CUresult) -> u32 {
        if result == CUDA_ERROR_ASSERT && !self.has_asserted.swap(true, Ordering::Relaxed) {
            // The driver prints the failed assertion when it waits, not when it is queried.
            // SAFETY: no arguments. In a context that has failed it does not wait.
            let _ = unsafe { driver::cuCtxSynchronize() };
            self.expect();
        }
        if self.is_expected.load(Ordering::Relaxed) {
            // SAFETY: NULL stands for all streams that are open for writing.
            unsafe { libc::fflush(std::ptr::null_mut()) };
            self.read();
        }
        match self.is_there.load(Ordering::Acquire) {
            true => answer::OUTPUT,
            false => 0,
        }
    }

    /// Takes text of standard output and of standard error; returns whether there is more.
    pub fn take(&self) -> ([Vec<u8>; 2], bool) {
        let mut text = self.text.lock();
        let taken = text.0.each_mut().map(|text| {
            let rest = text.split_off(text.len().min(AT_ONCE));
            std::mem::replace(text, rest)
        });
        let is_there = text.0.iter().any(|text| !text.is_empty());
        self.is_there.store(is_there, Ordering::Release);
        (taken, is_there)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// A worker whose standard streams are these pipes.
    fn printed() -> (Printed, [io::PipeWriter; 2]) {
        let printed = Printed::default();
        let [output, error] = [io::pipe().unwrap(), io::pipe().unwrap()];
        let read = [output.0, error.0].map(|end| File::from(OwnedFd::from(end)));
        for end in &read {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        }
        printed.pipes.set(read).unwrap();
        (printed, [output.1, error.1])
    }

    #[test]
    fn printed_text_is_announced_and_taken_once_in_order() {
        let (printed, [mut output, mut error]) = printed();
        output.write_all(b"one ").unwrap();
        assert_eq!(printed.flags(0), 0, "nothing that may print was loaded");
        printed.expect();
        output.write_all(b"two").unwrap();
        error.write_all(b"three").unwrap();
        assert_eq!(printed.flags(0), answer::OUTPUT);
        assert_eq!(
            printed.take(),
            ([b"one two".to_vec(), b"three".to_vec()], false)
        );
        assert_eq!(printed.flags(0), 0);
        assert_eq!(printed.take(), ([Vec::new(), Vec::new()], false));
    }

    #[test]
    fn endless_output_costs_no_more_than_the_bound() {
        let (printed, [mut output, _error]) = printed();
        let chunk = vec![b'x'; PIPE_BYTES];
        for _ in 0..MOST_BYTES / PIPE_BYTES + 10 {
            output.write_all(&chunk).unwrap();
            printed.read();
        }
        let (mut all, mut more) = (0, true);
        while more {
            let taken;
            (taken, more) = printed.take();
            assert!(taken[0].len() <= AT_ONCE);
            all += taken[0].len();
        }
        assert_eq!(all, MOST_BYTES);
    }
}
