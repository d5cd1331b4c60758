// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Starts the other roles of this program, and detects their end.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::{
            ffi::OsStringExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::child_output::ChildOutputs;

/// The file of this process, whatever its name was at the start.
const OWN: &str = "/proc/self/exe";

/// The command of a role's process: the program, the arguments before the role's own, and variables.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// The program.
    pub program: PathBuf,
    /// Its first arguments.
    pub arguments: Vec<OsString>,
    /// Variables, in addition to the supervisor's own.
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// This program in another role. It is the file that this process runs, even if an upgrade has replaced it, because
    /// all processes of a service must have one version.
    ///
    /// # Errors
    /// `/proc` is not mounted.
    pub fn own(role: &str) -> io::Result<Self> {
        let whole: Vec<OsString> = fs::read("/proc/self/cmdline")?
            .split_inclusive(|&byte| byte == 0)
            .map(|argument| OsString::from_vec(argument[..argument.len() - 1].to_vec()))
            .collect();
        Ok(Self {
            program: PathBuf::from(OWN),
            arguments: loader_arguments(&whole, std::env::args_os().len())
                .into_iter()
                .chain([role.into()])
                .collect(),
            environment: Vec::new(),
        })
    }

    /// Makes the dynamic loader search a directory before all others.
    pub fn prefer_libraries_of(&mut self, directory: &OsStr) {
        let before = |rest: Option<OsString>| {
            let mut path = directory.to_owned();
            if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
                path.push(":");
                path.push(rest);
            }
            path
        };
        // An explicit loader's own option hides the variable.
        let option = self
            .arguments
            .iter()
            .position(|argument| argument == "--library-path");
        if let Some(value) = option.and_then(|option| self.arguments.get_mut(option + 1)) {
            *value = before(Some(value.clone()));
        }
        let variable = "LD_LIBRARY_PATH";
        self.environment
            .push((variable.into(), before(std::env::var_os(variable))));
    }

    /// The command that starts it, in a process group of its own: a terminal's signals go only to the supervisor, which
    /// ends the others in order.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // So that a list of processes shows the program's name.
        if self.program == Path::new(OWN)
            && let Some(name) = std::env::args_os().next()
        {
            command.arg0(name);
        }
        command
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .process_group(0);
        command
    }

    /// Starts it with `channel` as its standard input. It shares the supervisor's log, so it must not read any data of
    /// a guest.
    ///
    /// # Errors
    /// The program cannot be run, or the host is out of processes or file descriptors.
    pub fn start(&self, channel: OwnedFd, label: &OsStr) -> io::Result<Process> {
        let child = self
            .command()
            .arg(label)
            .stdin(Stdio::from(channel))
            .spawn()?;
        Process::new(child)
    }

    /// The same, for a process that may serve a guest: `outputs` reads its output and logs it with the name of its
    /// role.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_heard(
        &self,
        channel: OwnedFd,
        label: &OsStr,
        (role, outputs): (&'static str, &ChildOutputs),
    ) -> io::Result<Process> {
        let (output, stdout) = io::pipe()?;
        let (log, stderr) = io::pipe()?;
        let child = self
            .command()
            .arg(label)
            .stdin(Stdio::from(channel))
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        let process = Process::new(child)?;
        outputs.add((role, process.id()), output, log)?;
        Ok(process)
    }
}

/// The arguments of the dynamic loader if it was started by name (`ld.so --library-path … program …`): all arguments
/// before this program's own `own` ones, and the program.
fn loader_arguments(whole: &[OsString], own: usize) -> Vec<OsString> {
    match whole.len().checked_sub(own) {
        Some(before) if before > 0 => whole[1..=before].to_vec(),
        _ => Vec::new(),
    }
}

/// A child process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    pidfd: OwnedFd,
}

impl Process {
    fn new(mut child: Child) -> io::Result<Self> {
        // SAFETY: the call takes two integers and touches no memory.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, child.id(), 0) };
        if fd < 0 {
            let error = io::Error::last_os_error();
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        // SAFETY: the kernel has just made this descriptor for the call, so nothing else owns it.
        let pidfd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        Ok(Self { child, pidfd })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status, if it has ended. This reaps it.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // This fails only for a process that has ended.
        let _ = self.child.kill();
    }
}

impl Process {
    /// The reason why a killed process does not end: the state of an uninterruptible thread, and its place in the
    /// kernel.
    pub fn held_by(&self) -> String {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.id()));
        let held = tasks.into_iter().flatten().flatten().find_map(|task| {
            let task = task.path();
            let status = fs::read_to_string(task.join("status")).ok()?;
            let state = status
                .lines()
                .find_map(|line| line.strip_prefix("State:"))?
                .trim();
            // Z: this thread has ended.
            if state.starts_with('Z') {
                return None;
            }
            let place = fs::read_to_string(task.join("wchan")).unwrap_or_default();
            let place = match place.trim() {
                "" | "0" => "the kernel",
                known => known,
            };
            Some(format!("a thread is in state {state}, in {place}"))
        });
        held.unwrap_or_else(|| "the kernel gives no reason".to_owned())
    }

    /// Waits until it has ended, or until the deadline.
    pub fn wait(&mut self, deadline: Instant) -> bool {
        while self.ended().is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
            let _ = poll(&mut fds, timeout);
        }
        true
    }
}

impl AsFd for Process {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }
}

impl AsRawFd for Process {
    fn as_raw_fd(&self) -> i32 {
        self.pidfd.as_raw_fd()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.try_wait();
    }
}

/// Waits for processes that were killed. Those that have not ended after `soon` are named in the log; the wait for them
/// ends at `late`.
pub fn wait_for_all(mut processes: Vec<&mut Process>, soon: Duration, late: Duration) {
    let began = Instant::now();
    processes.retain_mut(|process| !process.wait(began + soon));
    for process in &processes {
        tracing::error!(
            "Process {} was killed but has not exited: {}. It may still write to its VM's memory, so the VMs' connections stay open \
             until it has, for at most {late:?}",
            process.id(),
            process.held_by()
        );
    }
    processes.retain_mut(|process| !process.wait(began + late));
    for process in &processes {
        tracing::error!(
            "Process {} has still not exited; the service ends without it",
            process.id()
        );
    }
}

/// A text that describes a process's end.
pub fn reason(status: ExitStatus) -> String {
    match (status.signal(), status.code()) {
        (Some(libc::SIGSYS), _) => {
            "killed by SIGSYS: its sandbox forbids a system call that it made \
             (--seccomp=trap logs the number)"
                .to_owned()
        }
        (Some(signal), _) => match nix::sys::signal::Signal::try_from(signal) {
            Ok(name) => format!("killed by {name}"),
            Err(_) => format!("killed by signal {signal}"),
        },
        (None, Some(code)) => format!("exit status {code}"),
        (None, None) => "no exit status".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn os(arguments: &[&str]) -> Vec<OsString> {
        arguments.iter().map(Into::into).collect()
    }

    #[test]
    fn an_explicit_loader_is_used_for_the_children_too() {
        let whole = os(&["ld.so", "--library-path", "/lib", "/bin/prog", "-s", "x"]);
        assert_eq!(
            loader_arguments(&whole, 3),
            os(&["--library-path", "/lib", "/bin/prog"])
        );
        assert!(loader_arguments(&os(&["/bin/prog", "-s", "x"]), 3).is_empty());
    }

    /// A process that takes long to end: this one ends by itself.
    #[test]
    fn a_process_that_is_slow_to_exit_is_waited_for() {
        let mut cat = Command::new("cat");
        let mut child = cat.stdin(Stdio::piped()).spawn().unwrap();
        let input = child.stdin.take();
        let mut process = Process::new(child).unwrap();
        assert!(!process.wait(Instant::now()));
        std::thread::scope(|scope| {
            scope.spawn(|| drop(input));
            wait_for_all(vec![&mut process], Duration::ZERO, Duration::from_secs(60));
        });
        assert!(process.ended().unwrap().success());
    }

    #[test]
    fn a_loaders_library_path_is_extended() {
        let mut program = Program {
            program: "ld.so".into(),
            arguments: os(&["--library-path", "/lib", "/bin/prog", "role"]),
            environment: Vec::new(),
        };
        program.prefer_libraries_of(OsStr::new("/gpu"));
        assert_eq!(program.arguments[1], "/gpu:/lib");
        let (name, value) = &program.environment[0];
        assert_eq!(name, "LD_LIBRARY_PATH");
        assert!(value.to_str().unwrap().starts_with("/gpu"));
    }
}
