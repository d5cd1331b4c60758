// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Child processes that never outlive this program. Each one has its own process group, which ends when the guard is
//! dropped, on Ctrl-C, and, by the kernel, if this program is killed.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{
    atomic::{AtomicBool, Ordering},
    mpsc::{self, Receiver, RecvTimeoutError},
};
use std::time::{Duration, Instant};

use gpgpu_locks::{Mutex, MutexGuard};

use anyhow::{Context, Result, bail};

use crate::{processes, ui::Step};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static ENDING: AtomicBool = AtomicBool::new(false);
static LIVE: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// The time limit for a child to end by itself after SIGTERM.
const GRACE: Duration = Duration::from_secs(5);
/// The interval between two looks at a command that says nothing.
const LOOK: Duration = Duration::from_secs(1);

fn live() -> MutexGuard<'static, BTreeSet<i32>> {
    LIVE.lock()
}

/// Whether Ctrl-C, SIGTERM or SIGHUP arrived.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Fails once Ctrl-C has been pressed; for loops that do not wait for a child.
pub fn check_interrupted() -> Result<()> {
    if interrupted() {
        bail!("interrupted");
    }
    Ok(())
}

/// Asks all children to end, and prevents new ones, because the work has failed. Waits for children then fail.
pub fn end_all() {
    ENDING.store(true, Ordering::SeqCst);
    signal_all(libc::SIGTERM);
}

fn signal_all(signal: i32) {
    for &group in live().iter() {
        signal_group(group, signal);
    }
}

/// Installs the handler. It asks children to end and makes waits for them fail; the ordinary unwinding then removes the
/// temporary directories. A second Ctrl-C ends the program at once.
pub fn install_interrupt_handler() -> Result<()> {
    ctrlc::set_handler(|| {
        let again = INTERRUPTED.swap(true, Ordering::SeqCst);
        let signal = if again { libc::SIGKILL } else { libc::SIGTERM };
        signal_all(signal);
        if again {
            std::process::exit(130);
        }
    })
    .context("cannot install the handler for Ctrl-C")
}

fn signal_group(group: i32, signal: i32) {
    // SAFETY: kill takes two integers and touches no memory of ours; the group was created by us and its leader has not
    // been reaped yet, so the number cannot have been given to a stranger.
    unsafe { libc::kill(-group, signal) };
}

/// A running child and everything it started.
pub struct Proc {
    child: Child,
    group: i32,
}

impl Proc {
    /// Starts `command` in its own process group. The kernel sends it `last_signal` if this program dies.
    pub fn spawn(command: &mut Command, last_signal: i32) -> Result<Self> {
        command.process_group(0);
        let parent = std::process::id();
        // SAFETY: between fork and exec only prctl and getppid are called, both async-signal-safe, and no memory is
        // allocated.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(libc::PR_SET_PDEATHSIG, last_signal);
                // The parent may have died before prctl took effect.
                if libc::getppid() as u32 != parent {
                    return Err(std::io::Error::from_raw_os_error(libc::ESRCH));
                }
                Ok(())
            })
        };
        let program = command.get_program().to_string_lossy().into_owned();
        // Checked under the lock: a thread that has set a flag signals the children that are registered by then.
        let mut registry = live();
        check_interrupted()?;
        if ENDING.load(Ordering::SeqCst) {
            bail!("{program} is not started: another part of the work has failed");
        }
        let child = command.spawn().map_err(|error| {
            let remedy = remedy(&program);
            anyhow::anyhow!("cannot start {program}: {error}{remedy}")
        })?;
        let group = child.id() as i32;
        registry.insert(group);
        drop(registry);
        Ok(Self { child, group })
    }

    /// The child's standard input, if it was piped and not taken before.
    pub fn stdin(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }

    /// The child's standard output, if it was piped and not taken before.
    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// The child's standard error, if it was piped and not taken before.
    pub fn stderr(&mut self) -> Option<std::process::ChildStderr> {
        self.child.stderr.take()
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if the child has ended.
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits until the child ends.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        Ok(self.child.wait()?)
    }

    /// Waits until the child ends or `limit` has passed; `None` in the latter case.
    pub fn wait_for(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(Some(status));
            }
            if Instant::now() >= end {
                return Ok(None);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Asks the child to end, waits a short time, then kills it and the rest of its group.
    pub fn stop(&mut self) -> Option<ExitStatus> {
        if let Ok(None) = self.child.try_wait() {
            signal_group(self.group, libc::SIGTERM);
            let _ = self.wait_for(GRACE);
        }
        // The leader has been reaped or ignores SIGTERM. Members of the group keep its number from being reused; if the
        // group is empty, the call fails and does nothing.
        signal_group(self.group, libc::SIGKILL);
        let status = self.child.wait().ok();
        live().remove(&self.group);
        status
    }
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The package to install for a missing program; starts with a separator.
fn remedy(program: &str) -> String {
    let name = Path::new(program)
        .file_name()
        .and_then(OsStr::to_str)
        .unwrap_or(program);
    let package = match name {
        "gcc" | "cc" => "gcc",
        "python3" => "python3",
        "unshare" => "util-linux",
        "apt-get" | "apt-cache" => return "; a Debian 12 or 13 machine is needed".to_owned(),
        "dpkg-deb" => "dpkg",
        "tar" => "tar",
        "strip" | "readelf" => "binutils",
        "make" => "make",
        _ => return String::new(),
    };
    format!("; remedy: apt-get install {package}")
}

/// The exit status of a command, in words.
pub fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".to_owned(),
    }
}

/// Runs `command` to its end. All output goes to the file `log`, and the newest line is shown beside the spinner.
/// Returns the whole output; a failure includes the command's last lines.
pub fn run_logged(command: &mut Command, step: Option<&Step>, log: &Path) -> Result<String> {
    let (status, output) = run_status(command, step, log)?;
    if !status.success() {
        check_interrupted()?;
        let program = command.get_program().to_string_lossy().into_owned();
        bail!(
            "{program}: {}; the whole output is in {}\n{}",
            describe(status),
            log.display(),
            tail(&output, 25)
        );
    }
    Ok(output)
}

/// Like [`run_logged`], but returns the exit status instead of failing on it.
pub fn run_status(
    command: &mut Command,
    step: Option<&Step>,
    log: &Path,
) -> Result<(ExitStatus, String)> {
    run_lines(command, log, |text| {
        if let Some(step) = step {
            step.message(text);
        }
        Ok(())
    })
}

/// Like [`run_status`], but passes each line to `on_line` when it arrives.
pub fn run_lines(
    command: &mut Command,
    log: &Path,
    on_line: impl FnMut(&str) -> Result<()>,
) -> Result<(ExitStatus, String)> {
    run_watched(command, log, Duration::MAX, on_line)
}

/// Like [`run_lines`], for a command that may hang. It fails, with a list of the command's processes, if no line
/// arrives for `silence`. It also fails if the command has ended and a process that it left keeps its output open.
pub fn run_watched(
    command: &mut Command,
    log: &Path,
    silence: Duration,
    mut on_line: impl FnMut(&str) -> Result<()>,
) -> Result<(ExitStatus, String)> {
    if let Some(parent) = log.parent() {
        fs::create_dir_all(parent)
            .with_context(|| format!("cannot create {}", parent.display()))?;
    }
    let mut log_file =
        File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let (reader, writer) = std::io::pipe().context("cannot make a pipe")?;
    command.stdin(Stdio::null());
    command.stdout(writer.try_clone().context("cannot duplicate a pipe")?);
    command.stderr(writer);
    let mut child = Proc::spawn(command, libc::SIGKILL)?;
    // The command still holds the pipe's writing end, which would keep the loop below from seeing its end.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let lines = lines(reader);
    let mut output = String::new();
    let mut newest = Instant::now();
    let mut ended = None;
    loop {
        match lines.recv_timeout(LOOK) {
            Ok(bytes) => {
                log_file.write_all(&bytes)?;
                let text = String::from_utf8_lossy(&bytes);
                on_line(&text)?;
                output.push_str(&text);
                newest = Instant::now();
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let silent = newest.elapsed();
                if ended.is_none() && child.try_wait()?.is_some() {
                    ended = Some(Instant::now());
                }
                let reason = match ended {
                    Some(end) if end.elapsed() > GRACE => "has ended, and left these processes",
                    None if silent > silence => "says nothing more; its processes",
                    _ => continue,
                };
                let program = command.get_program().to_string_lossy().into_owned();
                let seconds = silent.as_secs();
                let processes = processes::of_group(child.group);
                let last = tail(&output, 25);
                bail!("{program} {reason} ({seconds} s after its last line):\n{processes}\n{last}");
            }
        }
    }
    let status = child.wait()?;
    check_interrupted()?;
    Ok((status, output))
}

/// The lines that arrive at a pipe, until its end.
fn lines(reader: PipeReader) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        loop {
            let mut bytes = Vec::new();
            // An error of a pipe is its end.
            let count = reader.read_until(b'\n', &mut bytes).unwrap_or(0);
            if count == 0 || sender.send(bytes).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Runs a short command and returns its standard output; a failure includes its standard error.
pub fn capture(command: &mut Command) -> Result<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = Proc::spawn(command, libc::SIGKILL)?;
    let stderr = child.stderr();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.read_to_end(&mut text);
        }
        text
    });
    let mut text = Vec::new();
    if let Some(mut stdout) = child.stdout() {
        stdout.read_to_end(&mut text)?;
    }
    let status = child.wait()?;
    let errors = errors.join().unwrap_or_default();
    if !status.success() {
        check_interrupted()?;
        bail!(
            "{program}: {}: {}",
            describe(status),
            tail(&String::from_utf8_lossy(&errors), 5)
        );
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The last `lines` lines of `text`.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure_of(script: &str, silence: Duration) -> String {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        let result = run_watched(&mut command, &log, silence, |_| Ok(()));
        format!("{:#}", result.unwrap_err())
    }

    #[test]
    fn a_command_that_hangs_is_ended_and_described() {
        let said = failure_of("echo begins; sleep 7531; true", Duration::ZERO);
        assert!(
            said.contains("sleep 7531") && said.contains("begins"),
            "{said}"
        );
    }

    #[test]
    fn a_process_that_a_command_leaves_is_ended_and_described() {
        let said = failure_of("sleep 7532 & echo begins", Duration::MAX);
        assert!(
            said.contains("left") && said.contains("sleep 7532"),
            "{said}"
        );
    }
}
