// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A clean root with a running systemd as the first process of its own namespaces. Services start and stop there as on
//! a machine.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::machine::{Machine, PREPARE};
use crate::process::{self, Proc, capture};

/// The time limit for systemd to be up, or down.
const LIMIT: Duration = Duration::from_secs(90);

/// After [`PREPARE`]: a control group below one of our own, whose name is that of the directory of work, then systemd.
const BOOT: &str = r#"
mkdir "$work/groups"
mount -t cgroup2 none "$work/groups"
group="$work/groups/$(basename "$work")"
mkdir "$group"
echo $$ >"$group/cgroup.procs"
# A service may start here.
rm -f usr/sbin/policy-rc.d
: >etc/machine-id
# Devices as a container has them: systemd would take the real ones for its own.
umount -l dev
mount -t tmpfs -o mode=755 tmpfs dev
for name in null zero full random urandom tty; do
    : >dev/$name
    mount --bind /dev/$name dev/$name
done
mkdir dev/shm
mount -t tmpfs tmpfs dev/shm
if [ -c /dev/net/tun ]; then
    mkdir dev/net
    : >dev/net/tun
    mount --bind /dev/net/tun dev/net/tun
fi
mkdir dev/pts
mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
exec unshare --pid --fork --kill-child --cgroup --ipc --uts --net --mount sh -e -c '
umount -l sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 none sys/fs/cgroup
mount -t proc proc proc
pivot_root . mnt/host
umount -l /mnt/host
exec env -i container=other NOTIFY_SOCKET=/srv/notify/socket PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /usr/lib/systemd/systemd --system --log-target=null
' </dev/null >/dev/null 2>&1
"#;

/// Removes our control group with everything below it, once its last process has ended.
const REMOVE: &str = r#"
mount -t cgroup2 none "$1"
for try in $(seq 50); do
    find "$1/$2" -depth -type d -exec rmdir {} + && break
    sleep 0.1
done
"#;

/// The root with its systemd.
pub struct Booted {
    /// The machine that runs the commands.
    pub machine: Machine,
}

/// Whether control groups have the form that systemd needs, and this process may mount them.
pub fn is_possible() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "mount", "-t", "cgroup2", "none", "/mnt"]);
    capture(&mut command).is_ok()
}

impl Booted {
    /// Boots the root `clean`, as [`Machine::start`], and waits until systemd says that it is up.
    pub fn start(clean: &Path, directories: &[(&Path, &str)], log: &Path) -> Result<Self> {
        let work = tempfile::tempdir().context("cannot create a temporary directory")?;
        let notify = tempfile::tempdir().context("cannot create a temporary directory")?;
        let socket = UnixDatagram::bind(notify.path().join("socket"))?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &format!("{PREPARE}{BOOT}"), "sh"]);
        command.arg(clean).arg(work.path());
        for (from, to) in directories {
            command.arg(from).arg(to);
        }
        command.arg(notify.path()).arg("/srv/notify");
        command.stdin(Stdio::null());
        let mut keeper = Proc::spawn(&mut command, libc::SIGKILL)?;
        let end = Instant::now() + LIMIT;
        // A failed process sends nothing, so its state is checked periodically.
        socket.set_read_timeout(Some(Duration::from_millis(500)))?;
        let mut message = [0; 4096];
        loop {
            let length = socket.recv(&mut message).unwrap_or_default();
            if String::from_utf8_lossy(&message[..length]).contains("READY=1") {
                break;
            }
            if keeper.try_wait()?.is_some() {
                bail!("systemd does not start");
            }
            if Instant::now() > end {
                bail!("systemd is not up after {} s", LIMIT.as_secs());
            }
        }
        let children = format!("/proc/{0}/task/{0}/children", keeper.id());
        let children = fs::read_to_string(&children).context("the kernel lists no children")?;
        let first = children.split_whitespace().next();
        let target = first.context("systemd has ended")?.parse()?;
        let machine = Machine::of(keeper, target, true, log, work);
        Ok(Self { machine })
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        // After Ctrl-C no command can be started that would stop it.
        if !process::interrupted() {
            // systemd ends at once, and with it all other processes of its namespace, including this command.
            let _ = self
                .machine
                .run(&["systemctl", "--force", "--force", "poweroff"]);
            let _ = self.machine.keeper().wait_for(LIMIT);
        }
        // All processes in the control group end with it.
        self.machine.keeper().stop();
        let name = self
            .machine
            .work()
            .file_name()
            .unwrap_or_default()
            .to_owned();
        let _ = tempfile::tempdir().map(|groups| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-e", "-c", REMOVE, "sh"]);
            command.arg(groups.path()).arg(name);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(Stdio::null()).status()
        });
    }
}
