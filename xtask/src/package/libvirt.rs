// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The host's package on a Debian 13 whose libvirt manages the VM. The service serves a domain from the package's
//! example, under libvirt's own daemon and QEMU.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::booted::{self, Booted};
use super::contents::{DKMS, GUEST, HOST};
use super::guest::console::{Expected, Guest, Way};
use super::guest::disk::{Disk, FILES, MEMBER};
use super::lifecycle::{NEW_PACKAGES, in_directory, parent};
use super::machine::Machine;
use super::root;
use super::service::Running;
use crate::kit::Kit;
use crate::setup::Environment;
use crate::ui::Step;
use crate::vm;

/// The domain, and the path of the example that defines it.
const DOMAIN: &str = "gpgpu";
const EXAMPLE: &str = "/usr/share/doc/vhost-device-gpgpu/examples/libvirt-domain.xml";
/// The directory of the guest's disk, its kernel and its initramfs in the host's root.
const DISK: &str = "/srv/disk";
/// The image in the example.
const IMAGE: &str = "/var/lib/libvirt/images/gpgpu.qcow2";

/// The differences from the example: KVM is not needed, and the kernel is not on the disk, which has no boot loader.
const CHANGES: [(&str, &str); 3] = [
    ("<domain type='kvm'", "<domain type='qemu'"),
    ("<cpu mode='host-passthrough'/>", "<cpu mode='maximum'/>"),
    (
        "machine='q35'>hvm</type>",
        "machine='q35'>hvm</type>
         <kernel>/srv/disk/vmlinuz</kernel>
         <initrd>/srv/disk/initrd</initrd>
         <cmdline>console=ttyS0 loglevel=5 root=/dev/vda rw systemd.show_status=false TERM=dumb</cmdline>",
    ),
];

/// Connects the standard input and output with a terminal, until the terminal's other end closes.
const CONSOLE: &str = r#"
exec 3<>"$1" 4<&0
stty raw -echo <&3
cat <&4 >&3 2>/dev/null &
cat <&3 2>/dev/null
kill $!
exit 0
"#;

/// Prints the logs of QEMU, libvirt and the service.
const LOGS: &str = "cat /var/log/libvirt/qemu/gpgpu.log; \
                    journalctl --no-pager --unit=libvirtd --unit=vhost-device-gpgpu";

/// The number of runs of a program while the VM is paused and refuses to be saved.
const TIMES: u32 = 20;

/// Tests the life cycle of a domain on a host with the packages `made`.
pub fn run(kit: &Kit, environment: &Environment, made: &[PathBuf]) -> Result<()> {
    ensure!(
        booted::is_possible(),
        "no cgroup2 can be mounted here, and systemd needs one"
    );
    let (paths, cache) = (&environment.paths, environment.cache());
    let clean = root::LIBVIRT.ensure(paths, cache, root::Debian::Trixie)?;
    let guest = root::GUEST.ensure(paths, cache, root::Debian::Trixie)?;
    let expected = Expected::natively(kit)?;

    let step = Step::new("the disk of a Debian guest with the packages");
    let programs = kit.stage.programs();
    let files: [(&Path, &str); 2] = [(&programs, "programs"), (parent(made)?, "new")];
    let log = kit.logs.join("libvirt-disk.log");
    let disk = Disk::make(&guest, &files, &paths.guest(), &log, |machine| {
        let mut names = in_directory(made, &format!("{FILES}/new"));
        names.retain(|name| name.contains(DKMS) || name.contains(GUEST));
        machine.shell(&format!("dpkg --install {}", names.join(" ")))?;
        machine.run(&["adduser", MEMBER, "gpgpu"]).map(drop)
    })?;
    step.done("");

    let step = Step::new("a domain of libvirt's");
    let directories: [(&Path, &str); 2] = [(disk.directory(), DISK), (parent(made)?, NEW_PACKAGES)];
    let log = kit.logs.join("libvirt.log");
    let booted = Booted::start(&clean, &directories, &log)?;
    let host = Host {
        machine: &booted.machine,
        logs: &kit.logs,
    };
    let led = host.lead(made, &expected, &step);
    // The other log only has the last command.
    let log = kit.logs.join("libvirt-host.log");
    if led.is_err() {
        // Otherwise the logs would be lost with the root.
        let said = host.machine.shell(LOGS).unwrap_or_default();
        fs::write(&log, said).with_context(|| format!("cannot write {}", log.display()))?;
    }
    led.with_context(|| {
        let (logs, log) = (kit.logs.display(), log.display());
        format!(
            "the guest's consoles are in {logs}/libvirt-guest*.log, and the logs of libvirt and the service in {log}"
        )
    })?;
    step.done("defined, started, paused, not saved, destroyed and started again");
    Ok(())
}

/// A host with libvirt.
struct Host<'a> {
    machine: &'a Machine,
    /// The directory for the output of the guest's consoles.
    logs: &'a Path,
}

impl Host<'_> {
    fn lead(&self, made: &[PathBuf], expected: &Expected, step: &Step) -> Result<()> {
        step.message("install");
        let mut files = in_directory(made, NEW_PACKAGES);
        files.retain(|file| file.contains(HOST));
        self.machine
            .shell(&format!("dpkg --install {}", files.join(" ")))?;
        let service = Running {
            machine: self.machine,
        };
        service.listens_at("/run/gpgpu/vm.sock")?;
        let process = service.process()?;
        self.define()?;

        step.message("start");
        let mut guest = self.start("libvirt-guest.log")?;
        guest.is_for_members(expected)?;
        let few = expected.of_each_kind();
        guest.computes(Way::Wrapper, &few, expected)?;
        let idle = guest.memory_in_use()?;

        step.message("pause");
        let work = guest.begin(&expected.one("shared")?, TIMES)?;
        self.virsh(&["suspend", DOMAIN])?;
        self.is("paused")?;
        self.virsh(&["resume", DOMAIN])?;
        self.refuses_to_save()?;
        guest.finish(&work)?;

        step.message("destroy");
        guest.holds_memory(&expected.one("shared")?)?;
        self.virsh(&["destroy", DOMAIN])?;
        self.is("shut off")?;
        drop(guest);
        let mut guest = self.start("libvirt-guest-again.log")?;
        let used = guest.memory_in_use()?;
        ensure!(
            used == idle,
            "the GPU's memory in use is {used}, and was {idle} before"
        );
        guest.computes(Way::Wrapper, &few, expected)?;
        ensure!(service.process()? == process, "the service was restarted");
        guest.power_off()?;
        self.virsh(&["undefine", DOMAIN]).map(drop)
    }

    /// Runs virsh, and returns its output.
    fn virsh(&self, words: &[&str]) -> Result<String> {
        let start = ["timeout", "120", "virsh", "--quiet"];
        let all: Vec<&str> = start.into_iter().chain(words.iter().copied()).collect();
        Ok(self.machine.run(&all)?.trim().to_owned())
    }

    /// Defines the example's domain, with the guest's disk in place of its image.
    fn define(&self) -> Result<()> {
        let example = self.machine.run(&["cat", EXAMPLE])?;
        let domain = adapted(&example)?;
        let script = "printf %s \"$1\" >/srv/domain.xml";
        self.machine.run(&["sh", "-c", script, "sh", &domain])?;
        let image = format!("{DISK}/disk");
        let create = ["qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b"];
        let words: Vec<&str> = create.into_iter().chain([image.as_str(), IMAGE]).collect();
        self.machine.run(&words)?;
        self.virsh(&["define", "--validate", "/srv/domain.xml"])?;
        // Debian defines the network, but does not start it.
        self.virsh(&["net-start", "default"])
            .context("the network of the example")
            .map(drop)
    }

    /// Starts the domain and waits until its guest has started. The guest's console is written to this log.
    fn start(&self, log: &str) -> Result<Guest> {
        // It starts paused, so that no output of the guest is lost before a reader connects.
        self.virsh(&["start", "--paused", DOMAIN])?;
        let terminal = self.virsh(&["ttyconsole", DOMAIN])?;
        let words = ["sh", "-c", CONSOLE, "sh", &terminal];
        let command = self.machine.command(&words);
        let mut machine = vm::Machine::on_console(command, &self.logs.join(log))?;
        self.virsh(&["resume", DOMAIN])?;
        machine.boots(1)?;
        Guest::of(machine)
    }

    fn is(&self, state: &str) -> Result<()> {
        let is = self.virsh(&["domstate", DOMAIN])?;
        ensure!(is == state, "the domain is {is} and not {state}");
        Ok(())
    }

    /// libvirt refuses to write the VM's state to a file, and the VM continues.
    fn refuses_to_save(&self) -> Result<()> {
        let memory = "/var/tmp/memory,snapshot=external";
        let snapshot = ["snapshot-create-as", DOMAIN, "one", "--memspec", memory];
        let ways: [&[&str]; 4] = [
            &["save", DOMAIN, "/var/tmp/saved"],
            &["managedsave", DOMAIN],
            &["snapshot-create-as", DOMAIN, "two"],
            &snapshot,
        ];
        for words in ways {
            let Err(refused) = self.virsh(words) else {
                bail!("virsh {} succeeded, and must fail", words.join(" "));
            };
            let refused = format!("{refused:#}");
            ensure!(refused.contains("migrat"), "{refused}");
            self.is("running")?;
        }
        Ok(())
    }
}

/// The example with the changes. Each of them must apply.
fn adapted(example: &str) -> Result<String> {
    let mut domain = example.to_owned();
    for (from, to) in CHANGES {
        ensure!(
            domain.matches(from).count() == 1,
            "the example has no {from}, or more than one"
        );
        domain = domain.replace(from, to);
    }
    Ok(domain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_can_be_adapted() {
        let example = include_str!("../../../qemu-config/libvirt-domain.xml");
        let domain = adapted(example).unwrap();
        assert!(domain.contains("type='qemu'") && domain.contains("<initrd>"));
        assert!(domain.contains(IMAGE));
        assert!(adapted("<domain/>").is_err());
    }
}
