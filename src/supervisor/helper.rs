// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A process that answers questions about the GPUs, because the supervisor itself loads no driver.
//!
//! It reads its standard input and prints a line for each question. It has no access to any guest.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::fd::AsFd,
    process::{Child, ChildStdin, ChildStdout, Stdio},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};

use super::process::{Program, reason};

/// The maximum size of an answer in bytes.
const MOST: u64 = 16 << 10;
/// The time limit for the end of a process that has closed its output.
const END_LIMIT: Duration = Duration::from_millis(100);

/// The process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Helper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts `program`, which is this program in such a role.
    ///
    /// # Errors
    /// The reason why it cannot be started.
    pub fn start(program: &Program) -> Result<Self, String> {
        let mut child = program
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| format!("{}: {error}", program.program.display()))?;
        let pipes = (child.stdin.take(), child.stdout.take());
        let (Some(input), Some(output)) = pipes else {
            return Err("no pipes".to_owned());
        };
        Ok(Self {
            child,
            input,
            output: BufReader::new(output),
        })
    }

    /// Asks a question, and waits for the answer until `deadline`. The answer is a line, without surrounding spaces.
    ///
    /// # Errors
    /// The reason why there is no answer. The process may still answer late, so no other question may be asked.
    pub fn ask(&mut self, question: &[u8], deadline: Instant) -> Result<String, String> {
        let written = self.input.write_all(question);
        // A process that failed at its start has printed the reason before it ended.
        if let Err(error) = written
            && error.kind() != std::io::ErrorKind::BrokenPipe
        {
            return Err(error.to_string());
        }
        let output = self.output.get_ref().as_fd();
        let mut fds = [PollFd::new(output, PollFlags::POLLIN)];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            match poll(&mut fds, timeout) {
                Ok(0) => return Err("the driver does not answer".to_owned()),
                Ok(_) => break,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        let mut line = String::new();
        // The process writes a line at once.
        let read = self.output.by_ref().take(MOST).read_line(&mut line);
        read.map_err(|error| error.to_string())?;
        match line.trim() {
            "" => Err(self.end()),
            line => Ok(line.to_owned()),
        }
    }

    /// Describes its end, after the end of its output.
    fn end(&mut self) -> String {
        let deadline = Instant::now() + END_LIMIT;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return format!("the driver failed ({})", reason(status)),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(END_LIMIT / 20),
                _ => return "the driver failed".to_owned(),
            }
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helper(script: &str) -> Helper {
        let program = Program {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
        };
        Helper::start(&program).unwrap()
    }

    fn ask(script: &str, limit: Duration) -> Result<String, String> {
        helper(script).ask(b"question\n", Instant::now() + limit)
    }

    #[test]
    fn an_answer_is_a_line_and_a_process_without_one_says_how_it_ended() {
        let long = Duration::from_secs(60);
        let answer = ask("read line; echo \" $line? \"; read line", long);
        assert_eq!(answer, Ok("question?".to_owned()));
        assert_eq!(ask("echo no driver", long), Ok("no driver".to_owned()));
        let killed = ask("kill -KILL $$", long);
        assert_eq!(
            killed,
            Err("the driver failed (killed by SIGKILL)".to_owned())
        );
        let silent = ask("sleep 60", Duration::from_millis(10));
        assert_eq!(silent, Err("the driver does not answer".to_owned()));
    }
}
