// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The sandboxes of a whole back end, and a back end on a host that does not allow them.

use std::{
    fs::{self, File},
    io::{self, BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::{Command, Stdio},
    time::Instant,
};

use libtest_mimic::Failed;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{LIMIT, common};

/// A host on which namespaces cannot be made: a filter that the program inherits refuses them.
pub fn a_host_that_cannot_is_refused() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let run = |options: &[&str]| {
        let mut command = Command::new(common::program());
        command
            .arg("--socket-path")
            .arg(directory.path().join("vm"))
            .args(["--gpu", "software", "--software-gpu"])
            .arg(directory.path())
            .args(options);
        // SAFETY: the closure makes system calls alone; its data was made before.
        unsafe { command.pre_exec(refuse_namespaces) };
        command.output()
    };
    let refused = run(&[])?;
    let said = String::from_utf8_lossy(&refused.stderr);
    for part in [
        "sandbox cannot be set up",
        "Making namespaces",
        "--sandbox=none",
    ] {
        if !said.contains(part) || refused.status.code() != Some(1) {
            return Err(format!("{refused:?}").into());
        }
    }
    // With this option it gets as far as looking for the software GPU, which does not exist.
    let told = run(&["--sandbox=none"])?;
    if !String::from_utf8_lossy(&told.stderr).contains("No software GPU") {
        return Err(format!("{told:?}").into());
    }
    Ok(())
}

fn refuse_namespaces() -> io::Result<()> {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
    let filter: BpfProgram = SeccompFilter::new(
        [(libc::SYS_unshare, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH
            .try_into()
            .map_err(io::Error::other)?,
    )
    .and_then(TryInto::try_into)
    .map_err(io::Error::other)?;
    seccompiler::apply_filter(&filter).map_err(io::Error::other)
}

/// A whole back end: each process that the supervisor has started is confined.
pub fn the_processes_of_a_back_end_are_in() -> Result<(), Failed> {
    let Some(stage) = common::stage() else {
        return Ok(());
    };
    let directory = tempfile::tempdir()?;
    let socket = directory.path().join("vm");
    let mut back_end = Command::new(common::program())
        .arg("--socket-path")
        .arg(&socket)
        .args(["--gpu", "software", "--software-gpu"])
        .arg(stage.join("software-gpu"))
        .stderr(Stdio::piped())
        .spawn()?;
    let checked = check_processes(&mut back_end);
    kill(Pid::from_raw(back_end.id() as i32), Signal::SIGTERM)?;
    back_end.wait()?;
    checked
}

fn check_processes(back_end: &mut std::process::Child) -> Result<(), Failed> {
    let mut log = BufReader::new(back_end.stderr.take().ok_or("no log")?).lines();
    log.find(|line| line.as_ref().is_ok_and(|line| line.contains("Listening")))
        .ok_or("it does not listen")??;
    std::thread::spawn(move || log.count());
    let end = Instant::now() + LIMIT;
    let mut most = Vec::new();
    // The spare device process and the warm worker.
    for role in ["device-process", "worker-process"] {
        let (process, status) = loop {
            let found = children(back_end.id())
                .into_iter()
                .find(|child| arguments(*child).contains(&role.to_owned()));
            let status = found.and_then(|child| {
                let status = fs::read_to_string(format!("/proc/{child}/status")).ok()?;
                Some((child, status))
            });
            match status {
                // It is in its sandbox once it has its filter.
                Some(found) if field(&found.1, "Seccomp_filters:") > 1 => break found,
                _ if Instant::now() > end => return Err(format!("no confined {role}").into()),
                _ => std::thread::yield_now(),
            }
        };
        let right = field(&status, "NoNewPrivs:") == 1
            && field(&status, "Seccomp:") == 2
            && status.contains("CapEff:\t0000000000000000")
            && status.contains("CapPrm:\t0000000000000000")
            && status.contains("CapBnd:\t0000000000000000")
            && field(&status, "Uid:") != 0;
        if !right {
            return Err(format!("{role}: {status}").into());
        }
        let limits = fs::read_to_string(format!("/proc/{process}/limits"))?;
        most.push(field(&limits, "Max open files"));
    }
    // Descriptors in flight are counted for all processes of a user, and compared with the sender's limit.
    match most[..] {
        [device, worker] if device <= 4096 || worker < device => Ok(()),
        _ => Err(format!("the limits of descriptors: {most:?}").into()),
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

fn children(parent: u32) -> Vec<u32> {
    let mut text = String::new();
    let path = format!("/proc/{parent}/task/{parent}/children");
    let _ = File::open(path).and_then(|mut file| file.read_to_string(&mut text));
    text.split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect()
}

fn arguments(process: u32) -> Vec<String> {
    let whole = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    whole
        .split(|byte| *byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}
