// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! An RPM for the tests that replaces those of a distribution: on a Debian machine no RPM provides our packages'
//! requirements. It provides a list of permitted requirements, so that RPM itself refuses packages with others. It has
//! Fedora's triggers for the same directories, and it owns the directories that belong to a distribution.

use std::path::{Path, PathBuf};

use ::rpm::{Dependency, FileOptions, Scriptlet};
use anyhow::Result;

use super::Compression;
use super::release::Release;
use super::rpm::{add_script, start, write};

/// Its name.
pub const NAME: &str = "virtio-gpgpu-test-distribution";

/// The permitted requirements of our packages, with their versions: Fedora, Enterprise Linux 10 and openSUSE have all
/// of them, dkms from their own or well-known repositories.
const PROVIDED: &[(&str, Option<&str>)] = &[
    ("/bin/sh", None),
    ("/usr/bin/kill", None),
    ("/usr/bin/systemd-sysusers", None),
    ("systemd", Some("252-1")),
    ("dkms", Some("3.0.10-1")),
    ("rtld(GNU_HASH)", None),
    ("ld-linux-x86-64.so.2()(64bit)", None),
    ("ld-linux-x86-64.so.2(GLIBC_2.3)(64bit)", None),
    ("libdl.so.2()(64bit)", None),
    ("libpthread.so.0()(64bit)", None),
    ("librt.so.1()(64bit)", None),
    ("libm.so.6()(64bit)", None),
    ("libc.so.6()(64bit)", None),
    ("libgcc_s.so.1()(64bit)", None),
];

/// The libraries with versioned symbols, the names of the versions, and the newest permitted version of each. They are
/// those of Debian 12, on which releases are built, or of its time.
const VERSIONED: &[(&str, &str, &[u32])] = &[
    ("libc.so.6", "GLIBC_2.", &[36]),
    ("libm.so.6", "GLIBC_2.", &[36]),
    ("libdl.so.2", "GLIBC_2.", &[36]),
    ("libpthread.so.0", "GLIBC_2.", &[36]),
    ("librt.so.1", "GLIBC_2.", &[36]),
    ("libgcc_s.so.1", "GCC_3.", &[4]),
    ("libgcc_s.so.1", "GCC_4.", &[8]),
];

/// The versions of the C library and the compiler's library that have a third number.
const THIRD: &[&str] = &[
    "libc.so.6(GLIBC_2.2.5)(64bit)",
    "libc.so.6(GLIBC_2.3.2)(64bit)",
    "libc.so.6(GLIBC_2.3.3)(64bit)",
    "libc.so.6(GLIBC_2.3.4)(64bit)",
    "libm.so.6(GLIBC_2.2.5)(64bit)",
    "libdl.so.2(GLIBC_2.2.5)(64bit)",
    "libpthread.so.0(GLIBC_2.2.5)(64bit)",
    "libpthread.so.0(GLIBC_2.3.2)(64bit)",
    "librt.so.1(GLIBC_2.2.5)(64bit)",
    "libgcc_s.so.1(GCC_3.3.1)(64bit)",
    "libgcc_s.so.1(GCC_4.2.0)(64bit)",
];

/// Directories that belong to a distribution and do not exist on a Debian machine.
const DIRECTORIES: &[&str] = &["/usr/share/licenses"];

/// Fedora's triggers: the watched directory, and the action after a transaction that has changed something there.
const TRIGGERS: &[(&str, &str)] = &[
    ("/usr/lib/sysusers.d", "systemd-sysusers || :"),
    (
        "/usr/lib/systemd/system",
        "if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi",
    ),
    (
        "/usr/lib/udev/rules.d",
        "if [ -S /run/udev/control ]; then udevadm control --reload || :; fi",
    ),
    ("/usr/lib", "ldconfig"),
];

/// Makes it in the directory `output`.
pub fn build(release: &Release, output: &Path) -> Result<PathBuf> {
    let mut builder = start(
        NAME,
        release,
        "Apache-2.0 OR BSD-3-Clause",
        "noarch",
        "what a distribution with RPM has",
        Compression::None,
    )?;
    for (name, version) in PROVIDED {
        builder.provides(match version {
            Some(version) => Dependency::eq(*name, *version),
            None => Dependency::any(*name),
        });
    }
    for (library, start, newest) in VERSIONED {
        for newest in *newest {
            for version in 0..=*newest {
                let name = format!("{library}({start}{version})(64bit)");
                builder.provides(Dependency::any(name));
            }
        }
    }
    for name in THIRD {
        builder.provides(Dependency::any(*name));
    }
    for directory in DIRECTORIES {
        builder.with_dir_entry(FileOptions::dir(*directory).permissions(0o755))?;
    }
    for (directory, script) in TRIGGERS {
        let script = || Scriptlet::new(*script).prog(vec!["/bin/sh"]);
        builder.trans_file_trigger_in(directory, None, script());
        // systemd-sysusers does not remove groups.
        if !directory.contains("sysusers") {
            builder.trans_file_trigger_postun(directory, None, script());
        }
    }
    add_script(&mut builder, "post", "exit 0")?;
    let file = output.join(format!("{NAME}.rpm"));
    write(&mut builder, &file)?;
    Ok(file)
}
