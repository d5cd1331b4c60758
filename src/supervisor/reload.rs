// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Changes of VMs' limits at run time.

use std::{
    fs,
    os::{
        fd::{AsRawFd, RawFd},
        unix::fs::FileTypeExt,
    },
    path::{Path, PathBuf},
};

use event_manager::EventOps;
use nix::sys::signalfd::SignalFd;

use super::Supervisor;
use crate::{
    HostGpu,
    policy::{Policies, VmPolicy},
};

/// The signals that request a new policy, and its file.
#[derive(Debug)]
pub struct Reload {
    signals: SignalFd,
    file: Option<PathBuf>,
    gpus: Vec<HostGpu>,
    is_scheduled: bool,
}

impl Reload {
    /// Reads the policy of a host with these GPUs from `file`, if there is one, whenever a signal arrives on `signals`,
    /// which does not block. `is_scheduled`: VMs take turns on the GPUs.
    pub fn new(
        signals: SignalFd,
        file: Option<PathBuf>,
        gpus: Vec<HostGpu>,
        is_scheduled: bool,
    ) -> Self {
        Self {
            signals,
            file,
            gpus,
            is_scheduled,
        }
    }

    /// The new policies, if a signal has arrived. Several signals count as one.
    fn read(&mut self) -> Option<Policies> {
        let mut came = false;
        while let Ok(Some(_)) = self.signals.read_signal() {
            came = true;
        }
        if !came {
            return None;
        }
        let Some(file) = &self.file else {
            tracing::warn!("SIGHUP: no policy file to reread, the policy comes from flags");
            return None;
        };
        if fs::metadata(file).is_ok_and(|about| about.file_type().is_fifo()) {
            tracing::error!("{} is a pipe and cannot be reread", file.display());
            return None;
        }
        let read = Policies::read(file);
        let read = read.and_then(|read| read.check_gpus(self.gpus.len()).map(|()| read));
        let read = read.inspect_err(|error| tracing::error!("{error}. The policy is unchanged"));
        let new = read.ok()?;
        for doubt in new.doubts(&self.gpus, self.is_scheduled) {
            tracing::warn!("{doubt}");
        }
        Some(new)
    }
}

impl AsRawFd for Reload {
    fn as_raw_fd(&self) -> RawFd {
        self.signals.as_raw_fd()
    }
}

impl Supervisor {
    /// Handles a signal: applies all permitted changes; running clients continue.
    pub(super) fn reload(&mut self, ops: &mut EventOps<'_>) {
        let Some(new) = self.reload.as_mut().and_then(Reload::read) else {
            return;
        };
        if let Some(name) = self.taken_name(&new.vms) {
            tracing::error!(
                "The VM {name:?}, whose section was removed, keeps its name until a restart, and another VM cannot have \
                 it. The policy is unchanged"
            );
            return;
        }
        let own = self.own_libraries.as_deref();
        let doubts = new.libraries.doubts(own);
        let libraries = new.libraries.or(own);
        if libraries != self.libraries {
            for doubt in doubts {
                tracing::warn!("{doubt}");
            }
            tracing::info!(
                "NVIDIA's libraries: {} \u{2192} {libraries}, for new processes",
                self.libraries
            );
            self.libraries = libraries;
            self.replace_warm(ops);
        }
        self.change(&new.vms);
    }

    /// The name of a VM without a section that another VM would get.
    fn taken_name(&self, new: &[VmPolicy]) -> Option<&str> {
        let of = |socket: &Path| new.iter().find(|new| new.socket == socket);
        let kept = self.vms.iter().filter(|vm| of(&vm.policy.socket).is_none());
        let mut kept = kept.map(|vm| vm.policy.name.as_str());
        kept.find(|name| new.iter().any(|new| new.name == *name))
    }

    /// Applies new policies.
    fn change(&mut self, new: &[VmPolicy]) {
        let mut changed = 0;
        for vm in &mut self.vms {
            let name = vm.policy.name.clone();
            let Some(new) = new.iter().find(|new| new.socket == vm.policy.socket) else {
                tracing::warn!(
                    vm = name,
                    "VM {name:?}: section removed; the VM keeps its policy until a restart"
                );
                continue;
            };
            if new.gpus != vm.policy.gpus {
                tracing::warn!(
                    vm = name,
                    "VM {name:?}: a change of GPUs needs a restart; the VM keeps its GPUs"
                );
            }
            let changes = vm.policy.renew(new);
            if changes.is_empty() {
                continue;
            }
            changed += 1;
            tracing::info!(vm = name, "VM {name:?}: {}", changes.join(", "));
        }
        for new in new {
            if !self.vms.iter().any(|vm| vm.policy.socket == new.socket) {
                tracing::warn!("VM {:?}: a new socket needs a restart", new.name);
            }
        }
        // Before the log line, because its readers rely on the change.
        self.policies_changed();
        tracing::info!("Policy reloaded: {changed} VMs changed");
    }
}
