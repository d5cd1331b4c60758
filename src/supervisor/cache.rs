// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The driver's cache of compiled PTX: a directory for each socket.
//!
//! NVIDIA's driver looks up compiled code by a 64-bit number that it computes from the source. So VMs must not share a
//! directory: one VM could store code there that another's driver takes for its own, or learn from the time of a load
//! which code the other has loaded.

use std::{
    ffi::OsString,
    fs::{DirBuilder, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
        },
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use nix::sys::socket::MsgFlags;

use super::process::Program;
use crate::{ipc, sandbox};

/// The directory for cached files that the environment sets, if any. CUDA's own variables come first.
pub fn directory() -> Option<PathBuf> {
    choose(|name| std::env::var_os(name).filter(|value| !value.is_empty()))
}

fn choose(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if variable("CUDA_CACHE_DISABLE").is_some_and(|value| value != "0") {
        return None;
    }
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    variable("CUDA_CACHE_PATH")
        .or_else(|| variable("CACHE_DIRECTORY"))
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("XDG_CACHE_HOME")?).join("virtio-gpgpu")))
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".cache/virtio-gpgpu")))
        .and_then(absolute)
}

/// The directories, and the way in which workers get theirs.
#[derive(Debug, Clone)]
pub struct Cache {
    directory: PathBuf,
    /// The program that detaches a directory for workers in a sandbox: this program in the role `detach-directory`.
    detach: Option<Program>,
}

impl Cache {
    /// A cache for workers that run as the service's user and see all files.
    pub fn open_to_roles(directory: PathBuf) -> Self {
        Self {
            directory,
            detach: None,
        }
    }

    /// A cache for workers in a sandbox. They may run as another user, so all directories are below one that no other
    /// user can enter.
    pub fn detached(directory: &Path, detach: Program) -> Self {
        Self {
            directory: directory.join("sandbox"),
            detach: Some(detach),
        }
    }

    /// The directory that contains the directory of each socket.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Makes and opens the directory of the VMs that connect to `socket`.
    ///
    /// # Errors
    /// The directory cannot be made, or other users can write there.
    pub fn open(&self, socket: &Path) -> io::Result<Arc<File>> {
        let path = self.directory.join(name(&std::path::absolute(socket)?));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)?;
        let open = |path: &Path| {
            File::options()
                .read(true)
                .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW)
                .open(path)
        };
        let file = open(&path)?;
        // Code that another user can write there would run in guests' workers. SAFETY: takes nothing and cannot fail.
        let own = unsafe { libc::geteuid() };
        let Some(detach) = &self.detach else {
            belongs(&file, &[own], 0o022)?;
            return Ok(Arc::new(file));
        };
        // Root's workers run as another user, which then owns the directory. Other processes of that user cannot enter
        // the directory around it.
        belongs(&open(&self.directory)?, &[own], 0o077)?;
        belongs(&file, &[own, sandbox::NOBODY], 0o077)?;
        if own == 0 {
            std::os::unix::fs::fchown(&file, Some(sandbox::NOBODY), Some(sandbox::NOBODY))?;
        }
        take_detached(detach, &path).map(Arc::new)
    }
}

fn belongs(directory: &File, owners: &[u32], to_nobody_else: u32) -> io::Result<()> {
    let metadata = directory.metadata()?;
    if !owners.contains(&metadata.uid()) || metadata.mode() & to_nobody_else != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "other users may write there",
        ));
    }
    Ok(())
}

/// Starts a process that detaches a directory, and receives the directory.
fn take_detached(program: &Program, path: &Path) -> io::Result<File> {
    let (ours, theirs) = ipc::pair()?;
    let mut process = program.start(theirs, path.as_os_str())?;
    let received = ipc::recv(ours.as_fd(), &mut [0; 1], 1, MsgFlags::empty());
    let directory = received
        .ok()
        .flatten()
        .and_then(|received| received.all_or_none().into_iter().next());
    process.wait(Instant::now() + DETACHED);
    directory
        .map(File::from)
        .ok_or_else(|| io::Error::other("cannot mount the directory separately"))
}

/// The time limit for the exit of a process that has answered.
const DETACHED: Duration = Duration::from_secs(1);

/// The main function of that process. Its last argument is the path of the directory.
///
/// # Errors
/// The host does not allow it.
pub fn detach(channel: &OwnedFd) -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().next_back().unwrap_or_default();
    let directory = sandbox::detach(Path::new(&path))?;
    ipc::send(
        channel.as_fd(),
        &[&[0]],
        &[directory.as_raw_fd()],
        MsgFlags::empty(),
    )?;
    Ok(())
}

/// A socket's path as one name.
fn name(socket: &Path) -> OsString {
    let mut name = Vec::new();
    for byte in socket.as_os_str().as_bytes() {
        match byte {
            b'/' => name.extend_from_slice(b"%2F"),
            b'%' => name.extend_from_slice(b"%25"),
            _ => name.push(*byte),
        }
    }
    std::os::unix::ffi::OsStringExt::from_vec(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn each_socket_has_a_directory_of_its_own() {
        let base = tempfile::tempdir().unwrap();
        let place = base.path().join("a/b");
        let cache = Cache::open_to_roles(place.clone());
        for socket in ["/run/vm0", "/run/vm1", "/run%2Fvm0"] {
            cache.open(Path::new(socket)).unwrap();
        }
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 3);
        cache.open(Path::new("/run/vm0")).unwrap();
        assert_eq!(std::fs::read_dir(&place).unwrap().count(), 3);
        let theirs = place.join("%2Frun%2Fvm0");
        std::fs::set_permissions(&theirs, PermissionsExt::from_mode(0o777)).unwrap();
        assert!(cache.open(Path::new("/run/vm0")).is_err());
    }

    #[test]
    fn the_environment_says_where() {
        let of = |variables: &'static [(&str, &str)]| {
            choose(|name| {
                let found = variables.iter().find(|(variable, _)| *variable == name);
                found.map(|(_, value)| value.into())
            })
        };
        static ALL: [(&str, &str); 3] = [
            ("HOME", "/h"),
            ("CACHE_DIRECTORY", "/c"),
            ("XDG_CACHE_HOME", "/x"),
        ];
        assert_eq!(of(&ALL), Some("/c".into()));
        assert_eq!(of(&ALL[..1]), Some("/h/.cache/virtio-gpgpu".into()));
        assert_eq!(
            of(&[("CUDA_CACHE_PATH", "/p"), ("HOME", "/h")]),
            Some("/p".into())
        );
        assert_eq!(of(&[("CUDA_CACHE_DISABLE", "1"), ("HOME", "/h")]), None);
        assert_eq!(of(&[("CUDA_CACHE_PATH", "relative")]), None);
        assert_eq!(of(&[]), None);
    }
}
