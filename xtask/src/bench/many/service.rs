// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The service with many VMs: its start, its metrics, and the resources that its processes use.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::artifacts::Stage;
use crate::bench::measure::{descendants, role};
use crate::process::capture;
use crate::runner::{Backend, Gpu};

/// The back end's features, found in its help text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Whether it schedules the GPU by default.
    pub scheduler: bool,
    /// Whether it reads a policy.
    pub policy: bool,
    /// Whether it has metrics.
    pub metrics: bool,
}

impl Features {
    /// The features of this stage's back end.
    pub fn of(stage: &Stage) -> Result<Self> {
        let help = capture(Command::new(stage.backend()).arg("--help"))?;
        Ok(Self::read(&help))
    }

    fn read(help: &str) -> Self {
        let has = |option: &str| help.split_whitespace().any(|word| word == option);
        Self {
            scheduler: has("--scheduler"),
            policy: has("--config"),
            metrics: has("--metrics"),
        }
    }
}

/// A VM's part of the policy.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Its weight.
    pub weight: u32,
    /// The longest time that its work may stay on the GPU after its turn; `None` for the service's default.
    pub overrun_limit: Option<&'static str>,
}

impl Terms {
    /// A weight alone.
    pub const fn weight(weight: u32) -> Self {
        Self {
            weight,
            overrun_limit: None,
        }
    }
}

/// A back end that serves many VMs.
pub struct Service {
    /// Its processes and sockets.
    pub backend: Backend,
    /// The address of the metrics.
    pub metrics: Option<PathBuf>,
}

impl Service {
    /// Starts a back end for VMs with these terms; with `scheduled` unset, the driver schedules the GPU.
    pub fn start(
        stage: &Stage,
        gpu: Gpu,
        features: Features,
        vms: &[Terms],
        scheduled: bool,
        log: &Path,
    ) -> Result<Self> {
        let mut metrics = None;
        let backend = Backend::start_with(stage, gpu, vms.len(), log, |command, dir| {
            if features.scheduler && !scheduled {
                command.arg("--scheduler=false");
            }
            if features.policy {
                let path = dir.join("policy.toml");
                fs::write(&path, policy(dir, vms))?;
                command.arg("--config").arg(path);
            } else {
                command.arg("--socket-path").arg(dir.join("vm"));
                command.args(["--socket-count", &vms.len().to_string()]);
            }
            if features.metrics {
                let path = dir.join("metrics");
                command.arg(format!("--metrics=unix:{}", path.display()));
                metrics = Some(path);
            }
            Ok(())
        })?;
        Ok(Self { backend, metrics })
    }
}

fn policy(dir: &Path, vms: &[Terms]) -> String {
    vms.iter()
        .enumerate()
        .map(|(number, vm)| {
            let socket = dir.join(format!("vm{number}"));
            let limit = vm.overrun_limit.map_or(String::new(), |limit| {
                format!("overrun-limit = \"{limit}\"\n")
            });
            format!(
                "[[vm]]\nname = \"vm{number}\"\nsocket = \"{}\"\nweight = {}\n{limit}\n",
                socket.display(),
                vm.weight
            )
        })
        .collect()
}

/// The use of the processes of one role.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Role {
    /// The role.
    pub role: String,
    /// The number of processes.
    pub processes: usize,
    /// The sum of their resident memory, in MiB; shared memory counts for each process.
    pub rss_mib: f64,
    /// The sum of their proportional memory, in MiB; shared memory is divided between its users.
    pub pss_mib: f64,
    /// Percent of one processor, in user and kernel mode.
    pub cpu_percent: f64,
}

/// A process of the service.
struct Process {
    role: String,
    ticks: u64,
}

/// The processor time that every process of the service has used so far.
pub struct Usage {
    processes: BTreeMap<u32, Process>,
    at: std::time::Instant,
}

impl Usage {
    /// The present usage of `root` and its descendants.
    pub fn now(root: u32) -> Self {
        let all = descendants(root);
        let processes = all
            .into_iter()
            .map(|(id, ticks)| {
                let role = role(&fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default());
                (id, Process { role, ticks })
            })
            .collect();
        Self {
            processes,
            at: std::time::Instant::now(),
        }
    }

    /// The usage of each role from `before` until now, and its present memory.
    pub fn since(&self, before: &Self) -> Vec<Role> {
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let mut roles: BTreeMap<&str, Role> = BTreeMap::new();
        for (id, process) in &self.processes {
            let role = roles.entry(&process.role).or_default();
            role.role.clone_from(&process.role);
            role.processes += 1;
            let earlier = before.processes.get(id).map_or(0, |process| process.ticks);
            // A tick is a hundredth of a second on every x86-64 Linux.
            role.cpu_percent += process.ticks.saturating_sub(earlier) as f64 / seconds;
            let memory = fs::read_to_string(format!("/proc/{id}/smaps_rollup")).unwrap_or_default();
            let kib = |name: &str| {
                let line = memory.lines().find(|line| line.starts_with(name));
                let number = line.and_then(|line| line.split_whitespace().nth(1));
                number
                    .and_then(|text| text.parse::<f64>().ok())
                    .unwrap_or(0.0)
            };
            role.rss_mib += kib("Rss:") / 1024.0;
            role.pss_mib += kib("Pss:") / 1024.0;
        }
        roles.into_values().collect()
    }
}

/// The seconds of GPU time of each VM, from the service's metrics.
pub fn gpu_seconds(text: &str) -> BTreeMap<String, f64> {
    let mut all = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix("virtio_gpgpu_gpu_seconds_total{") else {
            continue;
        };
        let Some((labels, value)) = rest.split_once('}') else {
            continue;
        };
        let name = labels
            .split(',')
            .find_map(|label| label.trim().strip_prefix("vm=\"")?.strip_suffix('"'));
        if let (Some(name), Ok(value)) = (name, value.trim().parse::<f64>()) {
            *all.entry(name.to_owned()).or_insert(0.0) += value;
        }
    }
    all
}

/// The service's present metrics, read from its socket.
pub fn scrape(socket: &Path) -> Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::os::unix::net::UnixStream::connect(socket)
        .with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_in_the_help() {
        let features = Features::read("  --metrics <PATH>\n  --no-scheduler-x  --config <FILE>\n");
        assert_eq!(
            (features.scheduler, features.policy, features.metrics),
            (false, true, true)
        );
    }

    #[test]
    fn gpu_time_is_added_up_by_vm() {
        let text = "# TYPE virtio_gpgpu_gpu_seconds_total counter\n\
                    virtio_gpgpu_gpu_seconds_total{vm=\"vm0\",gpu=\"0\"} 1.5\n\
                    virtio_gpgpu_gpu_seconds_total{gpu=\"1\",vm=\"vm0\"} 0.25\n\
                    virtio_gpgpu_gpu_seconds_total{vm=\"b\"} 2\n\
                    virtio_gpgpu_launches_total{vm=\"b\"} 9\n";
        let all = gpu_seconds(text);
        assert_eq!((all["vm0"], all["b"], all.len()), (1.75, 2.0, 2));
    }

    #[test]
    fn roles_are_told_by_their_command_lines() {
        assert_eq!(
            role(b"/x/vhost-device-gpgpu\0worker-process\0a\0"),
            "worker"
        );
        assert_eq!(
            role(b"/x/vhost-device-gpgpu\0--socket-path\0a\0"),
            "supervisor"
        );
        assert_eq!(role(b""), "supervisor");
    }
}
