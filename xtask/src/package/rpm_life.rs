// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The life cycle of the RPMs, as far as a Debian machine allows. Debian's `rpm` installs, upgrades and erases them in
//! a clean root, together with an RPM that stands for a distribution.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::booted::{self, Booted};
use super::contents::{DKMS, GUEST, HOST, MODULE};
use super::lifecycle::{
    EARLIER, EARLIER_PACKAGES, Life, NEW_PACKAGES, OPTIONS, PROGRAMS, Service, in_directory, parent,
};
use super::machine::Machine;
use super::root::Debian;
use super::service::Running;
use super::stand_in;
use crate::kit::Kit;
use crate::ui::{self, Step};

const PACKAGES: [&str; 3] = [HOST, DKMS, GUEST];
/// The path of the RPM that stands for a distribution.
const DISTRIBUTION: &str = "/srv/distribution";
/// Debian's own rpm warns about this use. The other options are its defaults for root.
const RPM: [&str; 2] = ["rpm", "--dbpath=/var/lib/rpm"];

/// Tests the life cycle of the RPMs `made`, and before them `earlier`, in the root `clean`, together with the RPM
/// `stand_in`.
pub fn run(
    kit: &Kit,
    clean: &Path,
    debian: Debian,
    made: &[PathBuf],
    earlier: &[PathBuf],
    stand_in: &Path,
) -> Result<()> {
    let suite = debian.suite();
    let (new, old) = (parent(made)?, parent(earlier)?);
    let programs = kit.stage.programs();
    let distribution = stand_in.parent().context("no directory")?;
    let directories: [(&Path, &str); 4] = [
        (&programs, PROGRAMS),
        (old, EARLIER_PACKAGES),
        (new, NEW_PACKAGES),
        (distribution, DISTRIBUTION),
    ];

    let step = Step::new(format!("RPMs on Debian {suite}"));
    let log = kit.logs.join(format!("rpm-{suite}.log"));
    let machine = Machine::start(clean, &directories, &log)?;
    let log = kit.logs.join(format!("rpm-{suite}-service.log"));
    lead(&Life::new(machine, &step, log), made, earlier)?;
    step.done("installed, verified, used, upgraded and erased");

    let name = format!("service of the RPM on Debian {suite}");
    if !booted::is_possible() {
        ui::line(format!("skipped   {name}: no cgroup2 can be mounted here"));
        return Ok(());
    }
    let step = Step::new(name);
    let log = kit.logs.join(format!("rpm-{suite}-booted.log"));
    let booted = Booted::start(clean, &directories, &log)?;
    serve(&booted.machine, &step, made, earlier)?;
    drop(booted);
    step.done("enabled, upgraded while it ran, and erased");
    Ok(())
}

fn rpm(machine: &Machine, words: &[&str]) -> Result<String> {
    let all: Vec<&str> = RPM.iter().chain(words).copied().collect();
    machine.run(&all)
}

fn install(machine: &Machine, how: &str, files: &[String]) -> Result<String> {
    let words: Vec<&str> = [how, "--replacepkgs"]
        .into_iter()
        .chain(files.iter().map(String::as_str))
        .collect();
    rpm(machine, &words)
}

/// Installs the RPM that stands for a distribution.
fn add_distribution(machine: &Machine) -> Result<()> {
    let file = format!("{DISTRIBUTION}/{}.rpm", stand_in::NAME);
    machine.run(&["mkdir", "-p", "/var/lib/rpm"])?;
    // Debian 13's systemd does not have this directory; that of distributions with RPM does.
    machine.run(&["mkdir", "-p", "/usr/lib/modules-load.d"])?;
    rpm(machine, &["--initdb"])?;
    install(machine, "-i", &[file]).map(|_| ())
}

fn lead(life: &Life, made: &[PathBuf], earlier: &[PathBuf]) -> Result<()> {
    let (machine, step) = (&life.machine, life.step);
    let new = in_directory(made, NEW_PACKAGES);
    let version = version_of(made)?;
    let before = machine.state()?;
    add_distribution(machine)?;
    let distribution = machine.state()?;

    step.message("read");
    for file in &new {
        described(machine, file, &version)?;
    }

    step.message("install");
    install(machine, "-i", &in_directory(earlier, EARLIER_PACKAGES))?;
    installed(machine, EARLIER)?;
    life.checks()?;
    let service = Service::start(machine, &life.log)?;
    step.message("use");
    let right = life.uses()?;

    step.message("upgrade");
    machine.shell(&format!(
        "echo '# An administrator was here.' >>{OPTIONS}; \
         cp /usr/share/doc/{HOST}/examples/policy.toml /etc/virtio-gpgpu"
    ))?;
    install(machine, "-U", &new)?;
    installed(machine, &version)?;
    machine.run(&["grep", "--quiet", "An administrator", OPTIONS])?;
    life.serves_without_its_file(&right)?;
    service.stop()?;

    step.message("the new version");
    let service = Service::start(machine, &life.log)?;
    ensure!(
        life.uses()? == right,
        "the new version gives another result"
    );
    life.opted_in(&right)?;
    service.stop()?;
    install(machine, "-U", &new).context("once more")?;
    installed(machine, &version)?;

    step.message("erase");
    machine.shell(
        "mkdir -p /var/cache/private/virtio-gpgpu/vm && ln -s private/virtio-gpgpu /var/cache/virtio-gpgpu",
    )?;
    let words: Vec<&str> = ["-e"].into_iter().chain(PACKAGES).collect();
    rpm(machine, &words)?;
    // RPM keeps the administrator's files in its own way.
    let kept = format!("{OPTIONS}.rpmsave");
    machine.run(&["grep", "--quiet", "An administrator", &kept])?;
    machine.run(&["rm", "-r", &kept, "/etc/virtio-gpgpu"])?;
    let after = machine.state()?;
    let left: Vec<_> = after.difference(&distribution).collect();
    ensure!(left.is_empty(), "{left:?} is left after erasure");
    rpm(machine, &["-e", stand_in::NAME])?;
    let lost: Vec<_> = before.difference(&machine.state()?).cloned().collect();
    ensure!(lost.is_empty(), "erasure has removed {lost:?}");
    let named = machine.shell(
        "find /etc/systemd /var/lib/systemd /usr/lib/modules -name '*gpgpu*'; \
         ldconfig --print-cache | grep gpgpu || true",
    )?;
    ensure!(named.is_empty(), "{named} is left after erasure");
    Ok(())
}

/// Checks how RPM reads one of our files.
fn described(machine: &Machine, file: &str, version: &str) -> Result<()> {
    let ask = |what: &str| rpm(machine, &["-qp", what, file]);
    let info = ask("--info")?;
    ensure!(info.contains(version), "{file} says {info}");
    let provided = ask("--provides")?;
    ensure!(
        !provided.contains(".so"),
        "{file} offers its libraries to other packages: {provided}"
    );
    let required = ask("--requires")?;
    let scripts = ask("--scripts")?;
    let owners = rpm(
        machine,
        &[
            "-qp",
            "--queryformat=[%{FILEUSERNAME}:%{FILEGROUPNAME} %{FILEMODES:octal}\\n]",
            file,
        ],
    )?;
    for line in owners.lines() {
        let right = ["40755", "100644", "100755", "120777"].map(|mode| format!("root:root {mode}"));
        ensure!(
            right.iter().any(|one| one == line),
            "{file} has a file of {line}"
        );
    }
    if file.contains(DKMS) {
        ensure!(
            required.contains("dkms >= 3.0.10"),
            "{file} requires {required}"
        );
        ensure!(scripts.contains("posttrans"), "{file} has {scripts}");
    } else {
        ensure!(
            required.contains("libc.so.6(GLIBC_2.") && required.contains("libc.so.6()(64bit)"),
            "{file} requires {required}"
        );
        ensure!(!required.contains("cuda"), "{file} requires {required}");
    }
    if file.contains(HOST) {
        let configured = ask("--configfiles")?;
        ensure!(configured.trim() == OPTIONS, "{file} has {configured}");
        for name in ["postinstall", "preuninstall", "postuninstall"] {
            ensure!(scripts.contains(name), "{file} has {scripts}");
        }
    }
    Ok(())
}

/// Checks that the packages are completely installed in this version, and that the driver is built.
fn installed(machine: &Machine, version: &str) -> Result<()> {
    for package in PACKAGES {
        let there = rpm(machine, &["-q", "--queryformat=%{VERSION}", package])?;
        ensure!(there == version, "{package} is {there}");
    }
    let words = ["-V", "--nodeps"].into_iter().chain(PACKAGES);
    let words: Vec<&str> = RPM.into_iter().chain(words).collect();
    let changed = machine.shell(&format!(
        "{} | grep -v ' c {OPTIONS}' || true",
        words.join(" ")
    ))?;
    ensure!(changed.is_empty(), "rpm -V says {changed}");
    let built = machine.run(&["dkms", "status", "-m", MODULE])?;
    ensure!(
        built.lines().count() == 1
            && built.contains(&format!("{MODULE}/{version}"))
            && built.contains("installed"),
        "DKMS says {built}"
    );
    machine.shell("test -n \"$(find /usr/lib/modules/*/ -name 'virtio_gpgpu.ko*')\"")?;
    Ok(())
}

/// The host's RPM with a running systemd: only the administrator starts the service, no upgrade ends it, and removal
/// does.
fn serve(machine: &Machine, step: &Step, made: &[PathBuf], earlier: &[PathBuf]) -> Result<()> {
    let service = Running { machine };
    let ours = |files: &[PathBuf], at| -> Vec<String> {
        let files = in_directory(files, at).into_iter();
        files.filter(|file| !file.contains(DKMS)).collect()
    };
    step.message("install");
    add_distribution(machine)?;
    install(machine, "-i", &ours(earlier, EARLIER_PACKAGES))?;
    ensure!(
        service.state("is-active")? == "inactive",
        "the installation has started the service"
    );
    machine.run(&["systemctl", "enable", "--now", HOST])?;
    service.listens_at("/run/gpgpu/vm.sock")?;
    let process = service.process()?;
    service.computes("/run/gpgpu/vm.sock")?;

    step.message("upgrade");
    let said = install(machine, "-U", &ours(made, NEW_PACKAGES))?;
    ensure!(said.contains("was not restarted"), "rpm says {said}");
    ensure!(
        service.process()? == process,
        "the upgrade has restarted the service"
    );
    for _ in 0..2 {
        service.computes("/run/gpgpu/vm.sock")?;
    }

    step.message("erase");
    rpm(machine, &["-e", HOST, GUEST])?;
    ensure!(
        service.state("is-active")? == "inactive",
        "erased, and the service still runs"
    );
    let left = machine.shell(
        "find / /run -xdev -name '*gpgpu*' -not -path '/srv/*'; \
         systemctl list-units --failed --plain --no-legend",
    )?;
    ensure!(left.is_empty(), "{left} is left after erasure");
    Ok(())
}

/// The version in the name of the host's RPM.
fn version_of(files: &[PathBuf]) -> Result<String> {
    let name = files.first().and_then(|file| file.file_name()?.to_str());
    let rest = name.and_then(|name| name.strip_prefix(HOST)?.strip_prefix('-'));
    let version = rest.and_then(|rest| rest.split_once('-'));
    let (version, _) = version.context("an RPM without a version")?;
    Ok(version.to_owned())
}
