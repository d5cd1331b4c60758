// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The access of a process in a role's sandbox to the operator's libraries.

use std::{
    fs::{self, File},
    io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::Command,
};

use libtest_mimic::Failed;
use nix::unistd::Uid;
use vhost_device_gpgpu::sandbox::Settings;

use super::{ALL, Attempt, End, NONE, USER, attempt, copy, end};

/// The variable with the parent of a directory of libraries that a process sees.
const LIBRARIES: &str = "SANDBOX_TEST_LIBRARIES";

/// The directory of libraries, if there is one.
pub fn directories() -> Vec<PathBuf> {
    let around = std::env::var_os(LIBRARIES).map(PathBuf::from);
    around
        .into_iter()
        .map(|around| around.join("lib"))
        .collect()
}

fn around(path: &str) -> PathBuf {
    let around = std::env::var_os(LIBRARIES).map(PathBuf::from);
    around.unwrap_or_default().join(path)
}

fn load(path: &str) -> io::Result<()> {
    // SAFETY: the library has one function, and nothing that runs when it is loaded.
    let loaded = unsafe { libloading::Library::new(around(path)) };
    loaded.map(drop).map_err(io::Error::other)
}

/// Attempts at a directory of libraries, and whether they may succeed in a worker.
pub const ATTEMPTS: [(&str, bool, Attempt); 8] = [
    ("load-a-library", true, || load("lib/libcublas.so.13")),
    ("load-a-library-by-a-link", true, || {
        load("lib/libcurand.so.10")
    }),
    ("list-libraries", true, || {
        fs::read_dir(around("lib")).map(drop)
    }),
    ("write-to-a-library", false, || {
        let mut options = File::options();
        options
            .write(true)
            .open(around("lib/libcublas.so.13"))
            .map(drop)
    }),
    ("add-a-library", false, || {
        File::create(around("lib/new")).map(drop)?;
        fs::remove_file(around("lib/new"))
    }),
    ("read-beside-the-libraries", false, || {
        File::open(around("beside")).map(drop)
    }),
    // NVRTC tries this, and continues if it fails.
    ("set-a-limit", false, || {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the structure lives across both calls.
        let done = unsafe {
            libc::getrlimit(libc::RLIMIT_STACK, &mut limit)
                | libc::setrlimit(libc::RLIMIT_STACK, &limit)
        };
        match done {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }),
    ("read-beside-a-links-library", false, || {
        File::open(around("store/beside")).map(drop)
    }),
];

pub fn a_worker_has_the_operators_libraries() -> Result<(), Failed> {
    let around = tempfile::tempdir()?;
    let path = |name: &str| around.path().join(name);
    for directory in ["lib", "store"] {
        fs::create_dir(path(directory))?;
    }
    fs::write(path("test.c"), "int test(void) { return 1; }")?;
    for library in ["lib/libcublas.so.13", "store/libcurand.so.10.4"] {
        let mut compiler = Command::new("cc");
        let compiled = compiler
            .args(["-shared", "-fPIC", "-o"])
            .args([path(library), path("test.c")])
            .output()?;
        if !compiled.status.success() {
            return Err(format!("{compiled:?}").into());
        }
    }
    std::os::unix::fs::symlink(path("store/libcurand.so.10.4"), path("lib/libcurand.so.10"))?;
    for beside in ["beside", "store/beside"] {
        fs::write(path(beside), "")?;
    }
    // Independently of the umask. The parent directory is not included, because a role need not access it.
    for (name, mode) in [
        ("lib", 0o755),
        ("lib/libcublas.so.13", 0o644),
        ("store", 0o755),
        ("store/libcurand.so.10.4", 0o644),
        ("store/beside", 0o644),
        ("beside", 0o644),
    ] {
        fs::set_permissions(path(name), PermissionsExt::from_mode(mode))?;
    }
    let make =
        |user: Option<u32>, role: &str, settings: Settings, is_right: fn(bool, End) -> bool| {
            for (name, may, _) in ATTEMPTS {
                let mut command = attempt(copy(), role, "serve", settings, name);
                command.env(LIBRARIES, around.path());
                if let Some(user) = user {
                    command.uid(user).gid(user);
                }
                let output = command.output()?;
                let end = end(&output)?;
                if !is_right(may, end) {
                    return Err(format!("{role}, {user:?}: {name}: {end:?}, {output:?}").into());
                }
            }
            Ok::<(), Failed>(())
        };
    make(None, "worker", NONE, |_, end| end == End::Done)?;
    // No attempt kills a worker.
    make(None, "worker", ALL, |may, end| {
        let expected = if may { End::Done } else { End::Refused };
        end == expected
    })?;
    for role in ["mover", "device"] {
        make(None, role, ALL, |_, end| end != End::Done)?;
    }
    if Uid::effective().is_root() {
        fs::set_permissions(around.path(), PermissionsExt::from_mode(0o755))?;
        make(Some(USER), "worker", ALL, |may, end| {
            may == (end == End::Done)
        })?;
    }
    Ok(())
}
