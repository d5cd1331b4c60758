// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Forwards the output of the other processes to the log.
//!
//! A worker runs a guest's code, and libcuda prints the output of kernels; a device process reports errors in a guest's
//! requests. So the standard output and standard error of each are pipes that a thread here reads. It limits the bytes
//! that it reads at a time, the length of lines, and the number of lines of each VM, however many processes the VM has
//! and however often it connects. A mover, which VMs share, has a limit of its own, however often it is started. A
//! process that prints more blocks on its pipe, and delays no other. Only the supervisor has its standard error, so no
//! other process can fill it, or make it non-blocking.
//!
//! Reads never block: a process that can reopen its own pipe can consume its output before this thread reads it.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, PipeReader, Read, Write},
    os::fd::OwnedFd,
    sync::Arc,
    thread,
    time::Duration,
};

use gpgpu_locks::Mutex;
use nix::{
    errno::Errno,
    fcntl::{FcntlArg, OFlag, fcntl},
    sys::{
        epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout},
        eventfd::{EfdFlags, EventFd},
    },
};

use crate::log_limit::LogLimit;

/// The maximum length of a line; the rest is cut off.
const LINE_BYTES: usize = 512;
/// The number of bytes that are read from one pipe in a row.
const READ_BYTES: usize = 4096;
/// The number of reads from a pipe whose process has ended: a pipe holds no more.
const LAST_READS: usize = 16;
/// The interval between two checks of all pipes, which limits the cost of reading and discarding.
const PAUSE: Duration = Duration::from_millis(10);

/// A limit that the processes of a VM share, or the successive movers of a GPU.
pub type Limit = Arc<Mutex<LogLimit>>;

/// One of a process's pipes.
#[derive(Debug)]
struct ChildOutput {
    pipe: File,
    /// The role of the process, for the log.
    role: &'static str,
    process: u32,
    /// Whether it carries the output of kernels, not the process's own log.
    is_output: bool,
    limit: Limit,
    line: Vec<u8>,
}

#[derive(Debug, Default)]
struct State {
    last: u64,
    outputs: HashMap<u64, ChildOutput>,
}

#[derive(Debug)]
struct Shared {
    epoll: Epoll,
    /// Ends the thread.
    end: EventFd,
    state: Mutex<State>,
}

/// See the module's documentation. The thread ends when this is dropped.
#[derive(Debug)]
pub struct ChildOutputs {
    shared: Arc<Shared>,
    /// The limit for processes that do not belong to a VM yet.
    limit: Limit,
}

/// The number of [`Shared::end`] among the outputs.
const END: u64 = 0;

impl ChildOutputs {
    /// Starts the thread.
    ///
    /// # Errors
    /// The host is out of file descriptors or threads.
    pub fn new() -> io::Result<Self> {
        let shared = Arc::new(Shared {
            epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?,
            end: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?,
            state: Mutex::default(),
        });
        let end = EpollEvent::new(EpollFlags::EPOLLIN, END);
        shared.epoll.add(&shared.end, end)?;
        let own = Arc::clone(&shared);
        thread::Builder::new()
            .name("outputs".into())
            .spawn(move || own.listen())?;
        Ok(Self {
            shared,
            limit: Limit::default(),
        })
    }

    /// Reads a process's standard output and standard error from now on; the log names its role.
    ///
    /// # Errors
    /// The host is out of epoll watches.
    pub fn add(
        &self,
        (role, process): (&'static str, u32),
        output: PipeReader,
        log: PipeReader,
    ) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        for (pipe, is_output) in [(output, true), (log, false)] {
            state.last += 1;
            let key = state.last;
            let pipe = File::from(OwnedFd::from(pipe));
            fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
            self.shared
                .epoll
                .add(&pipe, EpollEvent::new(EpollFlags::EPOLLIN, key))?;
            let output = ChildOutput {
                pipe,
                role,
                process,
                is_output,
                limit: Arc::clone(&self.limit),
                line: Vec::new(),
            };
            state.outputs.insert(key, output);
        }
        Ok(())
    }

    /// Assigns a process to a VM.
    pub fn assign(&self, process: u32, limit: &Limit) {
        let mut state = self.shared.state.lock();
        for output in state.outputs.values_mut() {
            if output.process == process {
                output.limit = Arc::clone(limit);
            }
        }
    }

    /// Handles the end of a process. The rest of its output is read; other holders of its pipes are ignored.
    pub fn forget(&self, process: u32) {
        let mut state = self.shared.state.lock();
        state.outputs.retain(|_, output| {
            if output.process == process {
                let _ = (0..LAST_READS).find(|_| output.hear() != Heard::Some);
            }
            output.process != process
        });
    }
}

impl Drop for ChildOutputs {
    fn drop(&mut self) {
        // This fails only if the counter is at its maximum.
        let _ = self.shared.end.write(1);
    }
}

impl Shared {
    fn listen(&self) {
        let mut events = [EpollEvent::empty(); 16];
        loop {
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(Errno::EINTR) => continue,
                Err(error) => {
                    tracing::error!("The output of processes is no longer logged: {error}");
                    return;
                }
            };
            let mut state = self.state.lock();
            for event in &events[..count] {
                let key = event.data();
                if key == END {
                    return;
                }
                let heard = state.outputs.get_mut(&key).map(ChildOutput::hear);
                // Closing the descriptor ends its watch.
                if heard == Some(Heard::End) {
                    state.outputs.remove(&key);
                }
            }
            drop(state);
            thread::sleep(PAUSE);
        }
    }
}

/// The result of reading a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    Some,
    /// Nothing at present.
    Nothing,
    End,
}

impl ChildOutput {
    /// Reads from the pipe.
    fn hear(&mut self) -> Heard {
        let mut bytes = [0; READ_BYTES];
        let count = match self.pipe.read(&mut bytes) {
            Ok(count) => count,
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock => return Heard::Nothing,
                _ => return Heard::End,
            },
        };
        for &byte in &bytes[..count] {
            match byte {
                b'\n' => self.say(),
                _ if self.line.len() < LINE_BYTES => self.line.push(byte),
                _ => {}
            }
        }
        if count == 0 && !self.line.is_empty() {
            self.say();
        }
        match count {
            0 => Heard::End,
            _ => Heard::Some,
        }
    }

    fn say(&mut self) {
        let line = std::mem::take(&mut self.line);
        let (role, process) = (self.role, self.process);
        let missed = {
            let mut limit = self.limit.lock();
            if !limit.allow() {
                return;
            }
            limit.take_missed()
        };
        if missed > 0 {
            tracing::warn!("{role} {process}: {missed} lines before this one dropped");
        }
        if self.is_output {
            tracing::info!("{role} {process} printed: {}", printable(&line));
        } else {
            // The line is already formatted as a log line. A closed log has no readers, so its errors are ignored.
            let _ = writeln!(io::stderr(), "{}", printable(&line));
        }
    }
}

/// The text, with all characters escaped that do not print.
fn printable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let escaped = text.chars().flat_map(|character| {
        let plain = (!character.is_control()).then_some(character);
        plain
            .into_iter()
            .chain(character.escape_default().filter(move |_| plain.is_none()))
    });
    escaped.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_cannot_forge_or_flood_the_log() {
        assert_eq!(printable(b"fine \xc3\xa9"), "fine é");
        assert_eq!(printable(b"a\x1b[2J\rb\xff"), "a\\u{1b}[2J\\rb\u{fffd}");
        let (reader, mut writer) = io::pipe().unwrap();
        let mut output = output(reader);
        writer.write_all(&[b'x'; 3000]).unwrap();
        assert_eq!(output.hear(), Heard::Some);
        assert_eq!(output.line.len(), LINE_BYTES);
        writer.write_all(&[b'\n'; 1000]).unwrap();
        assert_eq!(output.hear(), Heard::Some);
        let missed = output.limit.lock().take_missed();
        assert!(missed > 900, "{missed} of 1000 lines");
        drop(writer);
        assert_eq!(output.hear(), Heard::End, "that was all");
    }

    fn output(reader: PipeReader) -> ChildOutput {
        ChildOutput {
            pipe: File::from(OwnedFd::from(reader)),
            role: "Worker",
            process: 1,
            is_output: true,
            limit: Limit::default(),
            line: Vec::new(),
        }
    }

    /// A worker reopens its pipe and consumes its output just before it is read here.
    #[test]
    fn an_empty_pipe_is_not_waited_for() {
        let outputs = ChildOutputs::new().unwrap();
        let (output, writer) = io::pipe().unwrap();
        let (log, _log_writer) = io::pipe().unwrap();
        outputs.add(("Worker", 7), output, log).unwrap();
        let hears = |outputs: &ChildOutputs| {
            let mut state = outputs.shared.state.lock();
            let outputs = state.outputs.values_mut();
            outputs.map(ChildOutput::hear).collect::<Vec<_>>()
        };
        assert_eq!(hears(&outputs), [Heard::Nothing; 2]);
        // Another process keeps the other ends open.
        let _kept = writer.try_clone().unwrap();
        outputs.forget(7);
        assert!(outputs.shared.state.lock().outputs.is_empty());
    }
}
