// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The policy of each VM, from a file or from flags.

mod file;
pub mod libraries;
pub mod values;

use std::{fmt, path::PathBuf, time::Duration};

use crate::account::CLIENTS;

pub use file::Error;
pub use libraries::Libraries;
use values::{Gpus, LongestKernel, Memory, OverrunLimit, PauseLimit};

/// The default weight of a VM.
pub const DEFAULT_WEIGHT: u32 = 100;
/// The default of the overrun limit: longer than any kernel that terminates.
pub const DEFAULT_OVERRUN_LIMIT: Duration = Duration::from_secs(30);
/// The default of the pause limit. A program may have a thousand kernels queued, and the VMM does not respond during
/// the pause.
pub const DEFAULT_PAUSE_LIMIT: Duration = Duration::from_secs(15);
/// The maximum weight; the minimum is 1.
pub const MAX_WEIGHT: u32 = 10_000;
/// The maximum length of a socket's path, in bytes.
pub const MAX_SOCKET_PATH: usize = 107;
/// The maximum length of a VM's name, in bytes.
const MAX_NAME: usize = 128;

/// The policy of one VM: it applies to all connections and clients of one socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VmPolicy {
    /// Its name in the log and the metrics.
    pub name: String,
    /// Its socket.
    pub socket: PathBuf,
    /// The GPUs that it may use, by the host driver's numbers; `None` for all.
    pub gpus: Option<Vec<u32>>,
    /// The limit of device memory of its processes together, on each GPU, in bytes; `None` for no limit.
    pub memory: Option<u64>,
    /// Its share of a contended GPU, relative to the other VMs' weights.
    pub weight: u32,
    /// The maximum number of processes that use CUDA at a time.
    pub max_clients: usize,
    /// The maximum run time of one kernel; a longer one is ended with its worker. `None` for no limit.
    pub longest_kernel: Option<Duration>,
    /// The maximum time for which a process's work may stay on a GPU after its turn, while other VMs want the GPU and
    /// this one has had more than its share; then the process is ended with its worker. `None` for no limit.
    pub overrun_limit: Option<Duration>,
    /// The maximum time for which the VM's pause waits for a process's work on the GPU; then the process is ended with
    /// its worker. `None` for no limit.
    pub pause_limit: Option<Duration>,
    /// Whether it may read the sensors of its GPUs, which reveal the load of other VMs too.
    pub sensors: bool,
}

impl VmPolicy {
    /// The default policy of a VM with this socket.
    pub fn new(socket: PathBuf) -> Self {
        Self {
            name: socket.display().to_string(),
            socket,
            gpus: None,
            memory: None,
            weight: DEFAULT_WEIGHT,
            max_clients: CLIENTS,
            longest_kernel: None,
            overrun_limit: Some(DEFAULT_OVERRUN_LIMIT),
            pause_limit: Some(DEFAULT_PAUSE_LIMIT),
            sensors: false,
        }
    }
}

impl fmt::Display for VmPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?}: socket {}, GPUs {}, memory {}, weight {}, max clients {}, longest kernel {}, overrun limit {}, pause limit {}, sensors {}",
            self.name,
            self.socket.display(),
            Gpus(self.gpus.clone()),
            Memory(self.memory),
            self.weight,
            self.max_clients,
            LongestKernel(self.longest_kernel),
            OverrunLimit(self.overrun_limit),
            PauseLimit(self.pause_limit),
            self.sensors,
        )
    }
}

impl VmPolicy {
    /// Whether the VM may use a GPU.
    pub fn may_use(&self, gpu: u32) -> bool {
        self.gpus.as_ref().is_none_or(|gpus| gpus.contains(&gpu))
    }

    /// Applies the changes that are possible while the VM runs, and returns their descriptions.
    pub fn renew(&mut self, new: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        let mut note =
            |what: &str, differs: bool, old: &dyn fmt::Display, new: &dyn fmt::Display| {
                if differs {
                    changes.push(format!("{what} {old} \u{2192} {new}"));
                }
            };
        macro_rules! note {
            ($what:literal, $field:ident $(, $as:ident)?) => {
                note($what, self.$field != new.$field, &$($as)?(self.$field.clone()), &$($as)?(new.$field.clone()))
            };
        }
        note!("name", name);
        note!("memory", memory, Memory);
        note!("weight", weight);
        note!("max clients", max_clients);
        note!("longest kernel", longest_kernel, LongestKernel);
        note!("overrun limit", overrun_limit, OverrunLimit);
        note!("pause limit", pause_limit, PauseLimit);
        note!("sensors", sensors);
        *self = Self {
            socket: self.socket.clone(),
            gpus: self.gpus.clone(),
            ..new.clone()
        };
        changes
    }
}

/// A GPU of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostGpu {
    /// The driver's name for it.
    pub name: String,
    /// The size of the device memory in bytes.
    pub memory: u64,
    /// Its address on the PCI bus, as in `0000:3B:00.0`; empty if the driver does not report it.
    pub address: String,
}

/// The policies of all VMs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies {
    /// One for each VM.
    pub vms: Vec<VmPolicy>,
    /// The directories of NVIDIA's libraries, for all VMs.
    pub libraries: Libraries,
    /// The file from which they were read.
    pub file: Option<PathBuf>,
    /// The place of each VM's list of GPUs, for error messages.
    places: Vec<String>,
}

impl Policies {
    /// The policies from flags.
    pub fn of_flags(vms: Vec<VmPolicy>, libraries: Libraries) -> Self {
        let places = vec!["--gpus".to_owned(); vms.len()];
        let file = None;
        Self {
            vms,
            libraries,
            file,
            places,
        }
    }

    /// Checks that the host has the GPUs of all VMs.
    ///
    /// # Errors
    /// A GPU does not exist.
    pub fn check_gpus(&self, host: usize) -> Result<(), Error> {
        for (vm, place) in self.vms.iter().zip(&self.places) {
            let named = vm.gpus.iter().flatten();
            if let Some(gpu) = named.copied().find(|gpu| *gpu as usize >= host) {
                let message = match host {
                    1 => format!("no GPU {gpu} on this host, which has only GPU 0"),
                    _ => format!(
                        "no GPU {gpu} on this host, which has GPUs 0 to {}",
                        host - 1
                    ),
                };
                let place = place.clone();
                return Err(Error { place, message });
            }
        }
        Ok(())
    }

    /// Warnings: memory limits whose sum exceeds a GPU's memory; limits of kernels' time without the scheduler.
    pub fn doubts(&self, host: &[HostGpu], is_scheduled: bool) -> Vec<String> {
        let limited = |vm: &&VmPolicy| !is_scheduled && vm.longest_kernel.is_some();
        let unscheduled = self.vms.iter().filter(limited).map(|vm| {
            let name = &vm.name;
            format!("VM {name:?}: longest-kernel has no effect with --scheduler=false")
        });
        let doubt = |(gpu, facts): (usize, &HostGpu)| {
            let users = self.vms.iter().filter(|vm| vm.may_use(gpu as u32));
            let limits = users.filter_map(|vm| vm.memory);
            let sum = limits.fold(0, u64::saturating_add);
            let what = format!(
                "GPU {gpu} has {} of memory; the memory limits of its VMs total {}, so some VMs may not reach theirs",
                Memory(Some(facts.memory)),
                Memory(Some(sum))
            );
            (sum > facts.memory).then_some(what)
        };
        let crowded = host.iter().enumerate().filter_map(doubt);
        crowded.chain(unscheduled).collect()
    }
}

#[cfg(test)]
mod tests;
