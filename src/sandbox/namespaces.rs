// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Namespaces, a private root directory, and an unprivileged user.
//!
//! Root makes the namespaces and then becomes `nobody`. Any other user first makes a user namespace, in which it keeps
//! its id and may do the rest. In both cases no permission remains that could undo this.

use std::{
    ffi::CString,
    fs::{self, DirBuilder, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt,
            fs::{DirBuilderExt, MetadataExt, symlink},
        },
    },
    path::Path,
};

use caps::{CapSet, Capability};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sched::{CloneFlags, unshare},
    sys::stat::{Mode, umask},
    unistd::{Gid, Uid, chdir, pivot_root, setgroups, setresgid, setresuid},
};

use super::{
    Error,
    view::{Entry, Kind},
};

/// The user and group of the roles of a supervisor that root has started: the kernel's number for nobody.
pub const NOBODY: u32 = 65534;

/// A file in the root directory of a sandbox. A program that executes itself again recognises the sandbox by it.
const MARK: &str = "/.vhost-device-gpgpu";

/// The directory in which the new root directory is built. It exists on each host, and its own content is not needed
/// during that time.
const PLACE: &str = "/proc";

/// Whether this process is in a sandbox's root directory.
pub fn is_inside() -> bool {
    Path::new(MARK).exists()
}

/// Whether this process can make namespaces without a user namespace.
fn is_privileged() -> bool {
    caps::has_cap(None, CapSet::Effective, Capability::CAP_SYS_ADMIN).unwrap_or(false)
}

/// Moves this process, which has one thread, into new namespaces in which it sees only the files of `view`.
///
/// # Errors
/// The host does not allow it.
pub(super) fn enter(view: &[Entry]) -> Result<(), Error> {
    let privileged = is_privileged();
    let group = device_group();
    own_namespaces(
        // Mounts: the root directory. Network: no interfaces and no abstract sockets of others. IPC: no segments or
        // queues of others. Host name and control groups: no information about the host.
        CloneFlags::CLONE_NEWNS
            | CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWIPC
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWCGROUP,
    )?;
    let trees = view
        .iter()
        .map(|entry| Ok((entry, clone_tree(&entry.path, entry.kind)?)))
        .collect::<io::Result<Vec<_>>>()
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOSYS) => Error::because("Copying mounts", "Linux 5.12 or later is needed"),
            _ => Error::because("Copying mounts", error),
        })?;
    // The unprivileged user must be able to read and search the new directories.
    let usual = umask(Mode::S_IWGRP | Mode::S_IWOTH);
    let built = build_root(&trees);
    umask(usual);
    built.map_err(Error::new("Making a root directory"))?;
    enter_root().map_err(Error::new("Changing the root directory"))?;
    if privileged && Uid::effective().is_root() {
        // The unprivileged user may not do this.
        super::drop_bounding(&caps::CapsHashSet::new())?;
        become_nobody(group).map_err(Error::new("Becoming an unprivileged user"))?;
    }
    Ok(())
}

/// Makes namespaces; first a user namespace, if necessary.
fn own_namespaces(flags: CloneFlags) -> Result<(), Error> {
    let (user, group) = (Uid::effective(), Gid::effective());
    if is_privileged() {
        unshare(flags)
            .map_err(io::Error::from)
            .map_err(Error::new("Making namespaces"))?;
    } else {
        unshare(CloneFlags::CLONE_NEWUSER | flags)
            .map_err(io::Error::from)
            .map_err(Error::new("Making namespaces as an unprivileged user"))?;
        let map = || {
            fs::write("/proc/self/setgroups", "deny")?;
            fs::write("/proc/self/uid_map", format!("{user} {user} 1"))?;
            fs::write("/proc/self/gid_map", format!("{group} {group} 1"))
        };
        map().map_err(Error::new("Being oneself in a namespace of users"))?;
    }
    // Later mounts do not propagate to other namespaces.
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    mount::<str, str, str, str>(None, "/", None, private, None)
        .map_err(io::Error::from)
        .map_err(Error::new("Making mounts private"))
}

fn become_nobody(group: Option<Gid>) -> io::Result<()> {
    setgroups(group.as_slice())?;
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    setresgid(group, group, group)?;
    setresuid(user, user, user)?;
    Ok(())
}

/// The group of the driver's device files, if only that group may use them.
fn device_group() -> Option<Gid> {
    let metadata = fs::symlink_metadata("/dev/nvidiactl").ok()?;
    if metadata.is_symlink() {
        // The virtual GPU of a guest of this project.
        return None;
    }
    let open = metadata.mode() & 0o006 == 0o006;
    (!open && metadata.mode() & 0o060 == 0o060).then(|| Gid::from_raw(metadata.gid()))
}

/// Builds the new root directory at [`PLACE`].
fn build_root(trees: &[(&Entry, OwnedFd)]) -> io::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(
        Some("sandbox"),
        PLACE,
        Some("tmpfs"),
        flags,
        Some("mode=0755,size=1m"),
    )?;
    let place = Path::new(PLACE);
    File::create(place.join(&MARK[1..]))?;
    for (entry, tree) in trees {
        let Ok(inside) = entry.path.strip_prefix("/") else {
            continue;
        };
        let target = place.join(inside);
        // An entry may lie below another one.
        if !target.exists() {
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o755);
            if entry.is_directory {
                builder.create(&target)?;
            } else {
                target
                    .parent()
                    .map_or(Ok(()), |parent| builder.create(parent))?;
                File::create(&target)?;
            }
        }
        move_tree(tree.as_fd(), &target)?;
    }
    if trees
        .iter()
        .any(|(entry, _)| entry.kind == Kind::OwnProcess)
    {
        symlink(std::process::id().to_string(), place.join("proc/self"))?;
    }
    let place = open_tree(PLACE.as_ref(), libc::O_CLOEXEC as u32)?;
    set_attributes(place.as_fd(), RDONLY, false)
}

fn enter_root() -> io::Result<()> {
    chdir(PLACE)?;
    // Stacks the old root directory on the new one, and unmounts it there.
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    chdir("/")?;
    Ok(())
}

const RDONLY: u64 = libc::MOUNT_ATTR_RDONLY;

/// A detached copy of the mounts at a path, with the access that is allowed there.
fn clone_tree(path: &Path, kind: Kind) -> io::Result<OwnedFd> {
    // Paths below PLACE still have their old meaning, because nothing is mounted there yet.
    let flags = OPEN_TREE_CLONE | libc::AT_RECURSIVE as u32 | libc::O_CLOEXEC as u32;
    let tree = open_tree(path, flags)?;
    let attributes = match kind {
        Kind::Libraries => RDONLY | libc::MOUNT_ATTR_NODEV,
        Kind::Read => RDONLY | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        Kind::OwnProcess => libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
        Kind::Device => RDONLY | libc::MOUNT_ATTR_NOEXEC,
    };
    set_attributes(tree.as_fd(), attributes | libc::MOUNT_ATTR_NOSUID, true)?;
    Ok(tree)
}

/// A directory as a detached mount: no path leads from its descriptor to its parent. Afterwards this process can do
/// nothing else.
///
/// # Errors
/// The directory does not exist, or the host does not allow it.
pub fn detach(directory: &Path) -> Result<OwnedFd, Error> {
    own_namespaces(CloneFlags::CLONE_NEWNS)?;
    let detached = || {
        let tree = open_tree(directory, OPEN_TREE_CLONE | libc::O_CLOEXEC as u32)?;
        let data = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC;
        set_attributes(tree.as_fd(), data, false)?;
        Ok(tree)
    };
    detached().map_err(Error::new("Detaching a directory"))
}

const OPEN_TREE_CLONE: u32 = 1;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 4;

fn open_tree(path: &Path, flags: u32) -> io::Result<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: the path is a string that lives across the call.
    let tree = unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) };
    if tree < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for the call, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(tree as RawFd) })
}

fn move_tree(tree: BorrowedFd<'_>, to: &Path) -> io::Result<()> {
    let to = CString::new(to.as_os_str().as_bytes())?;
    // SAFETY: the paths are strings that live across the call.
    let moved = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            to.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    };
    if moved < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

fn set_attributes(tree: BorrowedFd<'_>, attributes: u64, recursive: bool) -> io::Result<()> {
    // SAFETY: numbers alone, for which zero is a value.
    let mut set: libc::mount_attr = unsafe { std::mem::zeroed() };
    set.attr_set = attributes;
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the pointers are to a string and a structure that live across the call, and the size is the structure's.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const set,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
