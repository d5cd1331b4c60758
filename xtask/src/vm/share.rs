// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Directories of the host that guests can mount.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Qemu;
use crate::process::Proc;

/// The time limit for virtiofsd to listen.
const SHARE_START: Duration = Duration::from_secs(10);

/// A directory of the host that a guest can mount read-only. It is shared as long as this exists.
pub struct SharedDirectory {
    _virtiofsd: Proc,
    dir: tempfile::TempDir,
}

impl SharedDirectory {
    /// Shares a directory with the next guest that connects. `log` receives virtiofsd's messages.
    pub fn start(qemu: &Qemu, directory: &Path, log: &Path) -> Result<Self> {
        let dir = tempfile::tempdir().context("cannot create a temporary directory")?;
        let mut words = qemu.virtiofsd.iter();
        let mut command = Command::new(words.next().map_or_else(OsString::new, OsString::clone));
        let log = fs::File::create(log).context("cannot write virtiofsd's log")?;
        let shared = Self {
            _virtiofsd: Proc::spawn(
                command
                    .args(words)
                    .arg("--socket-path")
                    .arg(dir.path().join("share"))
                    .arg("--shared-dir")
                    .arg(directory)
                    // The host's root is mounted unchanged, and nothing is written to it.
                    .args(["--readonly", "--sandbox", "none", "--cache", "always"])
                    .stdout(log.try_clone()?)
                    .stderr(log),
                libc::SIGKILL,
            )
            .context("cannot start virtiofsd")?,
            dir,
        };
        let began = Instant::now();
        while !shared.socket().exists() {
            if began.elapsed() > SHARE_START {
                bail!("virtiofsd does not listen; its log has the reason");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(shared)
    }

    /// The path of its socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("share")
    }
}
