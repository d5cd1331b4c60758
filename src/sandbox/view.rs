// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's files that a role sees, with the reason for each.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Component, Path, PathBuf},
};

use super::Role;
use crate::policy::libraries;

/// The access of a role to a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Read-only, and code can be loaded from it.
    Libraries,
    /// Read-only.
    Read,
    /// The process's own directory in `/proc`: read-only, except for the names of its threads.
    OwnProcess,
    /// A device file.
    Device,
}

/// A file or directory of the host that is visible to a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The path, on the host and for the role.
    pub path: PathBuf,
    /// The allowed access.
    pub kind: Kind,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The directories of libraries that the driver loads at its start or at their first use (the PTX compiler). Programs
/// are not included: the driver runs `nvidia-modprobe` if it finds it, but does not need it.
const LIBRARIES: &[&str] = &[
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    // Some distributions keep each package in a directory of its own.
    "/nix/store",
    "/gnu/store",
    "/run/opengl-driver",
];

const READ: &[&str] = &[
    // The loader's cache of libraries, and the links that select the driver on Debian.
    "/etc/ld.so.cache",
    "/etc/alternatives",
    // Settings of NVIDIA's driver for applications.
    "/etc/nvidia",
    "/usr/share/nvidia",
    // The driver's queries about processors, memory and itself during its start.
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/devices",
    "/proc/driver/nvidia",
    "/proc/sys/vm",
    // Memory nodes, processors, and their distance from GPUs.
    "/sys/devices",
    "/sys/bus/pci",
    // The state of the driver's modules.
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
];

const DEVICES: &[&str] = &[
    "/dev/null",
    "/dev/zero",
    "/dev/urandom",
    // The driver's interface to the kernel: control, unified memory.
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    // Parts of GPUs (MIG) and memory of other hosts (IMEX) to which an administrator has given access.
    "/dev/nvidia-caps",
    "/dev/nvidia-caps-imex-channels",
];

/// The files that a role sees. A worker also sees these directories of the operator's libraries. A device process sees
/// none, because it gets everything as descriptors.
pub fn of(role: Role, directories: &[PathBuf]) -> Vec<Entry> {
    if role == Role::Device {
        return Vec::new();
    }
    let mut entries = Vec::new();
    let mut add = |path: PathBuf, kind| add(&mut entries, path, kind);
    for path in LIBRARIES {
        add(path.into(), Kind::Libraries);
    }
    for path in library_path() {
        // The driver's file may be a link to another directory.
        let linked = ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"]
            .map(|name| path.join(name).canonicalize());
        add(path, Kind::Libraries);
        for driver in linked.into_iter().flatten() {
            add(driver, Kind::Libraries);
        }
    }
    // A worker may execute itself again, and the driver looks in the program's directory.
    for path in programs() {
        add(path, Kind::Libraries);
    }
    for path in READ {
        add(path.into(), Kind::Read);
    }
    // In a guest of this project, /dev/nvidiactl is a link to the virtual GPU.
    for path in DEVICES.iter().filter(|path| !Path::new(path).is_symlink()) {
        add(path.into(), Kind::Device);
    }
    for path in gpus() {
        add(path, Kind::Device);
    }
    add(
        format!("/proc/{}", std::process::id()).into(),
        Kind::OwnProcess,
    );
    if role == Role::Worker {
        add_libraries(&mut entries, directories);
    }
    entries
}

fn add(entries: &mut Vec<Entry>, path: PathBuf, kind: Kind) {
    let known = |entry: &Entry| entry.kind == kind && path.starts_with(&entry.path);
    if path.is_absolute() && path.exists() && !entries.iter().any(known) {
        let is_directory = path.is_dir();
        entries.push(Entry {
            path,
            kind,
            is_directory,
        });
    }
}

/// Adds directories of libraries, and the files elsewhere to which links there lead.
fn add_libraries(entries: &mut Vec<Entry>, directories: &[PathBuf]) {
    for directory in directories {
        add(entries, directory.clone(), Kind::Libraries);
    }
    for link in directories
        .iter()
        .flat_map(|directory| libraries::links_in(directory))
    {
        if let Some(file) = way_out(&link, entries) {
            add(entries, file, Kind::Libraries);
        }
    }
}

/// The target of a link that leads out of the visible files, if it is a file. The target becomes visible at that path.
/// If the path is itself a link, it shows the file.
fn way_out(link: &Path, entries: &[Entry]) -> Option<PathBuf> {
    /// The maximum length of a sequence of links: more than in practice.
    const LINKS: usize = 16;
    let mut at = link.to_owned();
    for _ in 0..LINKS {
        let to = fs::read_link(&at).ok()?;
        at = without_dots(&at.parent()?.join(to));
        if !entries.iter().any(|entry| at.starts_with(&entry.path)) {
            return at.is_file().then_some(at);
        }
    }
    None
}

/// A path without `.` and `..`.
fn without_dots(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                plain.pop();
            }
            component => plain.push(component),
        }
    }
    plain
}

/// The directories of the loader's environment variable and of its configuration.
fn library_path() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::env::var_os("LD_LIBRARY_PATH")
        .map(|value| split(&value))
        .unwrap_or_default();
    let arguments = command_line();
    let option = arguments.iter().position(|word| word == "--library-path");
    if let Some(value) = option.and_then(|option| arguments.get(option + 1)) {
        found.extend(split(value));
    }
    let mut files = vec![PathBuf::from("/etc/ld.so.conf")];
    files.extend(
        fs::read_dir("/etc/ld.so.conf.d")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path()),
    );
    for file in files {
        let text = fs::read_to_string(file).unwrap_or_default();
        found.extend(text.lines().filter_map(configured));
    }
    found
}

/// The directory that a line of the loader's configuration names.
fn configured(line: &str) -> Option<PathBuf> {
    let line = line.split('#').next().unwrap_or_default().trim();
    line.starts_with('/').then(|| PathBuf::from(line))
}

fn split(list: &OsStr) -> Vec<PathBuf> {
    list.as_bytes()
        .split(|byte| matches!(byte, b':' | b';'))
        .filter(|path| !path.is_empty())
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .collect()
}

/// This program, and the loader if it was started by name.
fn programs() -> Vec<PathBuf> {
    let own = std::env::current_exe().ok();
    let named = command_line().into_iter().map(PathBuf::from);
    own.into_iter()
        .chain(named.filter(|word| word.is_absolute() && word.is_file()))
        .collect()
}

/// The command line up to and including the program, which a loader may precede.
fn command_line() -> Vec<OsString> {
    let whole = fs::read("/proc/self/cmdline").unwrap_or_default();
    let words: Vec<OsString> = whole
        .split_inclusive(|byte| *byte == 0)
        .map(|word| OsStr::from_bytes(&word[..word.len() - 1]).to_owned())
        .collect();
    let before = words.len().saturating_sub(std::env::args_os().len());
    words.into_iter().take(before + 1).collect()
}

/// The GPUs' device files: `nvidia` and a number.
fn gpus() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let is_gpu = |name: &[u8]| {
        let number = name.strip_prefix(b"nvidia").unwrap_or_default();
        !number.is_empty() && number.iter().all(u8::is_ascii_digit)
    };
    entries
        .filter(|entry| is_gpu(entry.file_name().as_bytes()))
        .map(|entry| entry.path())
        .collect()
}

/// The directories in a directory, opened only to be named in rules.
pub(super) fn directories_in(directory: &Path) -> Vec<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt;
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
            let opened = fs::File::options()
                .read(true)
                .custom_flags(flags)
                .open(entry.path());
            opened.ok().map(OwnedFd::from)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_process_sees_no_file() {
        assert!(of(Role::Device, &["/usr/lib".into()]).is_empty());
    }

    #[test]
    fn a_worker_sees_its_own_process_and_no_users_files() {
        let view = of(Role::Worker, &[]);
        let sees = |path: &str| {
            view.iter()
                .any(|entry| Path::new(path).starts_with(&entry.path))
        };
        assert!(sees(&format!("/proc/{}/maps", std::process::id())));
        for hidden in [
            "/proc/1/maps",
            "/etc/passwd",
            "/home",
            "/root",
            "/var",
            "/tmp",
            "/bin",
        ] {
            assert!(!sees(hidden), "{hidden}");
        }
    }

    #[test]
    fn a_worker_sees_the_operators_libraries_and_where_their_links_lead() {
        use std::os::unix::fs::symlink;
        let whole = tempfile::tempdir().unwrap();
        let whole = whole.path().canonicalize().unwrap();
        let file = |name: &str| {
            let path = whole.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        file("lib/libcublas.so.13.0");
        file("lib/deeper/libcudnn.so.9");
        let store = file("store/libcurand.so.10.4");
        let other = file("store/other");
        let link = |to: &str, from: &str| symlink(to, whole.join(from)).unwrap();
        link("libcublas.so.13.0", "lib/libcublas.so.13");
        fs::create_dir(whole.join("choice")).unwrap();
        symlink(&store, whole.join("choice/curand")).unwrap();
        link("../choice/curand", "lib/libcurand.so.10");
        symlink(&other, whole.join("lib/notes")).unwrap();
        link("/nowhere", "lib/libcufft.so.12");
        let directories = [whole.join("lib")];
        let view = of(Role::Worker, &directories);
        let added: Vec<&Entry> = view
            .iter()
            .filter(|entry| entry.path.starts_with(&whole))
            .collect();
        let entry = |path: &str, is_directory| Entry {
            path: whole.join(path),
            kind: Kind::Libraries,
            is_directory,
        };
        // A link appears as the file to which it leads.
        assert_eq!(added, [&entry("lib", true), &entry("choice/curand", false)]);
        for role in [Role::Mover, Role::Device] {
            let view = of(role, &directories);
            assert!(!view.iter().any(|entry| entry.path.starts_with(&whole)));
        }
    }

    #[test]
    fn the_loaders_configuration_is_read() {
        assert_eq!(configured("/opt/lib # the driver"), Some("/opt/lib".into()));
        assert_eq!(configured("include /etc/ld.so.conf.d/*.conf"), None);
        assert_eq!(configured("# /opt/lib"), None);
        assert_eq!(
            split(OsStr::new("/a::/b;/c")),
            [PathBuf::from("/a"), "/b".into(), "/c".into()]
        );
    }
}
