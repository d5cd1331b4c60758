// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The supervisor in a separate process, which can be killed.

use std::{
    io::{BufRead, BufReader},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use vhost_device_gpgpu::supervisor::Supervisor;

use super::host;

/// The variable with the directory of its sockets.
pub const DIRECTORY: &str = "SERVICE_DIRECTORY";

/// See the module's documentation.
pub struct Service {
    directory: tempfile::TempDir,
    process: Child,
}

impl Service {
    pub fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let process = process(directory.path());
        Self { directory, process }
    }

    pub fn socket(&self) -> PathBuf {
        host::socket(self.directory.path(), 0)
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts another one at the same sockets.
    pub fn start_again(&mut self) {
        self.process = process(self.directory.path());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It ends when its standard input ends.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

fn process(directory: &Path) -> Child {
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "service", "--nocapture", "--quiet"])
        .env(DIRECTORY, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(process.stdout.as_mut().unwrap());
    let mut line = String::new();
    while line != "listening\n" {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it is gone");
    }
    process
}

/// The main function of the process.
pub fn run(directory: &str) {
    let config = host::config(Path::new(directory), "normal", 8, 0, |_| {});
    let supervisor = Supervisor::new(config).unwrap();
    println!("\nlistening");
    supervisor.run(std::io::stdin().as_fd()).unwrap();
}
