// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Programs in a virtual machine. They only test correctness: some hosts emulate guests, so the times have no meaning.

use anyhow::{Context, Result, bail};

use super::{Bench, Line, Program, Way, compare};
use crate::initramfs::Job;
use crate::process::tail;
use crate::vm::{self, SHARE_TAG, SharedDirectory};

/// The programs, identified by words of their names.
const PROGRAMS: [&str; 2] = ["transformer flash", "lstm"];
/// RAM of the guest in MiB, and its processors.
const MEMORY_MIB: u32 = 12 << 10;
const CPUS: u32 = 8;
/// The time limit of one of them if the guest is emulated, and of all of them, in seconds.
const SECONDS: u64 = 240;
const ALL_SECONDS: u64 = 420;

/// The commands that change the guest's root to the host's root, which is shared read-only and contains the host's
/// Python. The guest's own devices are used, and the installation in the guest is at `/mnt`.
const ROOT: &str = "mkdir /host && mount -t virtiofs {tag} /host -o ro && for d in dev proc sys; do mount --rbind /$d /host/$d; done \
                    && mount -t tmpfs tmpfs /host/tmp && mount --bind / /host/mnt && cp -r /frameworks /host/tmp/";

/// Runs the programs natively and in a VM.
///
/// # Errors
///
/// There is no VM, or it ends before the programs do.
pub fn measure(bench: &Bench<'_>) -> Result<Vec<Program>> {
    let native: Vec<Line<Vec<f64>>> = bench.lines(Way::Native, "models.py", &PROGRAMS)?;
    let (qemu, ..) = bench.kit.vm.as_ref().context("no VM was prepared")?;
    let shared = SharedDirectory::start(qemu, "/".as_ref(), &bench.kit.logs.join("virtiofsd.log"))?;
    let socket = shared.socket();
    let mut spec = bench.kit.spec(&bench.backend.sockets[0])?;
    spec.share = Some(&socket);
    (spec.memory_mib, spec.cpus) = (MEMORY_MIB, CPUS);
    let words: Vec<String> = PROGRAMS.iter().map(|word| format!("'{word}'")).collect();
    let run = format!(
        "chroot /host /mnt/usr/bin/gpgpu-run --libdir /mnt/usr/lib/virtio-gpgpu {} /tmp/frameworks/models.py {} --seconds={SECONDS}",
        bench.python.display(),
        words.join(" ")
    );
    let jobs = [
        ("root", ROOT.replace("{tag}", SHARE_TAG), 60),
        ("programs", run, ALL_SECONDS),
    ];
    let jobs = jobs.map(|(id, command, limit)| Job {
        id: id.into(),
        command,
        limit,
    });
    let mut extra = crate::initramfs::jobs(&jobs);
    for entry in bench.scripts.read_dir()? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|end| end == "py") {
            let name = entry.file_name();
            extra.file(&format!("frameworks/{}", name.display()), &entry.path());
        }
    }
    let log = bench.kit.logs.join("frameworks-vm.log");
    let report = vm::boot_with(&spec, &extra, &jobs, Some(&log))?;
    if let Some(complaint) = report.kernel_complaints.first() {
        bail!("the guest's kernel reports {complaint}");
    }
    let said = report.jobs.iter().map(|job| job.output.as_str());
    let said = said.collect::<Vec<_>>().join("\n");
    let lines = said.lines().filter(|line| line.starts_with('{'));
    let ours: Vec<Line<Vec<f64>>> = lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if ours.is_empty() {
        bail!(
            "the programs printed nothing in the guest:\n{}",
            tail(&said, 15)
        );
    }
    Ok(compare(native, &ours))
}
