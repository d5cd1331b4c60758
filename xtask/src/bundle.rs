// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cargo xtask bundle`: one archive with everything that the demo, the benchmarks and the tests of the back end need
//! on another machine, including QEMU and its libraries.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use liblzma::{
    stream::{Check, Filters, LzmaOptions, Stream},
    write::XzEncoder,
};

use crate::bench;
use crate::host_tests;
use crate::kernel::Kernel;
use crate::kit::{Guest, Kit, busybox};
use crate::paths::Paths;
use crate::pitfalls;
use crate::process::capture;
use crate::programs::install;
use crate::ui::{self, Step};
use crate::vm;

const NAME: &str = "virtio-gpgpu-bundle";
const LIMIT: u64 = 60 * 1024 * 1024;
/// The level of xz: from 6 on it takes longer and gains little.
const LEVEL: u32 = 6;
/// The dictionary of xz, in bytes. The guest's libraries occur again in the initramfs, 100 MB away; with the level's
/// own 8 MiB the archive is a fifth larger. An archive of this size is one block, for one thread.
const DICTIONARY: u32 = 128 << 20;
/// The kernel that the bundle's guest boots.
const KERNEL: &str = "6.12";
/// The newest C library that our binaries may require.
const GLIBC: (u32, u32) = (2, 34);
/// The files that QEMU loads to boot a Linux kernel on a machine without screen and network.
const FIRMWARE: [&str; 5] = [
    "usr/share/seabios/bios-256k.bin",
    "usr/share/qemu/linuxboot_dma.bin",
    "usr/share/qemu/kvmvapic.bin",
    "usr/share/qemu/multiboot_dma.bin",
    "usr/share/qemu/pvh.bin",
];

/// Builds everything and writes `.bundle/virtio-gpgpu-bundle.tar.xz`.
pub fn run() -> Result<()> {
    let (kit, environment) = Kit::build(Some(KERNEL))?;
    let paths = &environment.paths;
    pitfalls::build(paths, environment.cuda()?, &kit.stage)?;
    bench::programs::build(paths, environment.cuda()?, &kit.stage)?;
    host_tests::build_guests(paths, environment.cuda()?, &kit.stage)?;
    let kernel = environment.kernel(KERNEL)?;
    let (_, _, guest) = kit.vm.as_ref().context("no guest was built")?;

    let step = Step::new("bundle");
    let work = tempfile::tempdir().context("cannot create a temporary directory")?;
    let root = work.path().join(NAME);
    add_parts(&kit, paths, &root)?;
    note_glibc(&root)?;
    add_guest(paths, kernel, guest, &root.join("guest"))?;
    add_qemu(kernel, &root.join("qemu"))?;
    let script = root.join("run.sh");
    fs::write(&script, include_str!("run.sh"))?;
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;

    let output = paths.root.join(".bundle").join(format!("{NAME}.tar.xz"));
    fs::create_dir_all(paths.root.join(".bundle"))?;
    step.message("compressing");
    compress(&root, &output)?;
    let size = fs::metadata(&output)?.len();
    if size >= LIMIT {
        bail!(
            "{} has {} MiB, and 60 is the limit",
            output.display(),
            size >> 20
        );
    }
    step.done(format!(
        "{} ({:.1} MiB)",
        output.display(),
        size as f64 / f64::from(1 << 20)
    ));
    println!("{}", output.display());
    Ok(())
}

/// Adds the parts of the stage, the scripts of the frameworks, xtask itself and the tests of the back end.
fn add_parts(kit: &Kit, paths: &Paths, root: &Path) -> Result<()> {
    for part in [
        "bin",
        "lib",
        "software-gpu",
        "programs",
        "pitfalls",
        "bench",
        "isolation",
    ] {
        copy_stage(&kit.stage.dir.join(part), &root.join(part))?;
    }
    copy_stage(
        &paths.root.join("benches/frameworks"),
        &root.join("frameworks"),
    )?;
    fs::write(root.join(bench::VERSION_FILE), bench::version())?;
    let own = std::env::current_exe().context("cannot find this program's own file")?;
    strip(&own, &root.join("bin/xtask"))?;
    host_tests::build(paths, &root.join(host_tests::PART))
}

/// Writes the version of the C library that the bundle's programs need, and warns if it is newer than [`GLIBC`].
fn note_glibc(root: &Path) -> Result<()> {
    let (major, minor) = newest_glibc(root)?;
    if (major, minor) > GLIBC {
        ui::line(format!(
            "note      built here, the bundle's programs need glibc {major}.{minor} instead of 2.34: build on Debian 12 for older hosts"
        ));
    }
    fs::write(root.join("glibc"), format!("{major}.{minor}\n"))?;
    Ok(())
}

/// Adds the guest's kernel, its initramfs, the busybox that probes KVM, and the module.
fn add_guest(paths: &Paths, kernel: &Kernel, guest: &Guest, to: &Path) -> Result<()> {
    let needed = [
        (guest.kernel.clone(), "vmlinuz"),
        (guest.initramfs.clone(), "initramfs"),
        (busybox(kernel), "busybox"),
    ];
    for (from, name) in needed {
        install(&from, &to.join(name))?;
    }
    fs::write(to.join("release"), &guest.release)?;
    let module = paths.modules().join(&kernel.abi).join("virtio_gpgpu.ko");
    install(&module, &to.join("virtio_gpgpu.ko"))
}

/// Packs a directory into an archive, which replaces an earlier one only when it is complete.
fn compress(root: &Path, output: &Path) -> Result<()> {
    let fresh = output.with_extension("new");
    let mut options = LzmaOptions::new_preset(LEVEL).context("cannot compress")?;
    options.dict_size(DICTIONARY);
    let encoder = Stream::new_stream_encoder(Filters::new().lzma2(&options), Check::Crc64)
        .context("cannot compress")?;
    let mut archive = tar::Builder::new(XzEncoder::new_stream(File::create(&fresh)?, encoder));
    archive.follow_symlinks(false);
    archive.append_dir_all(NAME, root)?;
    archive.into_inner()?.finish()?.sync_all()?;
    fs::rename(&fresh, output)?;
    Ok(())
}

/// Copies a part of the stage without our build markers.
fn copy_stage(from: &Path, to: &Path) -> Result<()> {
    let ours = |name: &str| name.starts_with('.') || name.ends_with(".source");
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.context("the stage is incomplete")?;
        let target = to.join(entry.path().strip_prefix(from)?);
        if entry.depth() > 0 && ours(&entry.file_name().to_string_lossy()) {
            continue;
        }
        if entry.file_type().is_dir() {
            fs::create_dir_all(&target)?;
        } else if entry.file_type().is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

fn strip(from: &Path, to: &Path) -> Result<()> {
    capture(Command::new("strip").arg("-o").arg(to).arg(from)).map(|_| ())
}

/// Adds QEMU and virtiofsd with their loader, exactly the libraries that they load, and the firmware in [`FIRMWARE`].
fn add_qemu(kernel: &Kernel, to: &Path) -> Result<()> {
    let root = &kernel.root;
    let lib = root.join("usr/lib/x86_64-linux-gnu");
    let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
    install(
        &loader.canonicalize()?,
        &to.join("usr/lib64/ld-linux-x86-64.so.2"),
    )?;
    let mut libraries = BTreeSet::<PathBuf>::new();
    for program in ["usr/bin/qemu-system-x86_64", vm::VIRTIOFSD] {
        let binary = root.join(program);
        let listed = capture(
            Command::new(&loader)
                .arg("--library-path")
                .arg(&lib)
                .arg("--list")
                .arg(&binary),
        )?;
        let stripped = to.join(program);
        fs::create_dir_all(stripped.parent().context("a program in no directory")?)?;
        strip(&binary, &stripped)?;
        let listed = listed
            .lines()
            .filter_map(|line| line.split("=> ").nth(1)?.split(" (").next())
            .filter(|path| path.starts_with('/') && !path.contains("/ld-linux"));
        libraries.extend(listed.map(PathBuf::from));
    }
    for library in libraries {
        let name = library.file_name().context("a library without a name")?;
        install(&library, &to.join("usr/lib/x86_64-linux-gnu").join(name))?;
    }
    for file in FIRMWARE {
        install(&root.join(file), &to.join(file))?;
    }
    for package in [
        "qemu-system-x86",
        "qemu-system-common",
        "qemu-system-data",
        "seabios",
        "virtiofsd",
        "libc6",
    ] {
        let copyright = format!("usr/share/doc/{package}/copyright");
        if root.join(&copyright).is_file() {
            install(&root.join(&copyright), &to.join(&copyright))?;
        }
    }
    Ok(())
}

/// The newest version of the C library that any program or library below `root` requires.
fn newest_glibc(root: &Path) -> Result<(u32, u32)> {
    let mut newest = (0, 0);
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry?;
        let is_elf = entry.file_type().is_file() && fs::read(entry.path())?.starts_with(b"\x7fELF");
        if is_elf {
            let text = capture(
                Command::new("readelf")
                    .args(["--wide", "--version-info"])
                    .arg(entry.path()),
            )?;
            newest = newest.max(glibc_of(&text));
        }
    }
    Ok(newest)
}

fn glibc_of(text: &str) -> (u32, u32) {
    text.split_whitespace()
        .filter_map(|word| word.strip_prefix("GLIBC_"))
        .filter_map(|version| {
            let mut parts = version.split('.').map(|part| part.parse().ok());
            Some((parts.next()??, parts.next()??))
        })
        .max()
        .unwrap_or((0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_is_found_by_number() {
        let text = "0x0010: Name: GLIBC_2.4  Flags: none\n 0x0020: Name: GLIBC_2.34 Flags: none\n Name: GLIBC_PRIVATE";
        assert_eq!(glibc_of(text), (2, 34));
    }
}
