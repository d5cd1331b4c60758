// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The changes between two samples.

use serde::Serialize;

use crate::supervisor::metrics::{ClientStatus, Status, Totals, VmStatus};

/// All VMs, in descending order of their GPU time.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Rates {
    /// The service's version.
    pub version: String,
    /// The time since its start.
    pub uptime_seconds: f64,
    /// The time between the samples; 0 if there was no earlier one, in which case all rates are 0.
    pub interval_seconds: f64,
    /// By VM.
    pub vms: Vec<Vm>,
}

/// A VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its weight.
    pub weight: u32,
    /// Its share of GPU time: 1 is all of one GPU.
    pub gpu_share: f64,
    /// The same by GPU.
    pub gpus: Vec<Gpu>,
    /// The work of its clients.
    #[serde(flatten)]
    pub work: Work,
    /// The limit of device memory on each GPU.
    pub memory_limit_bytes: Option<u64>,
    /// The average number of clients that waited for their VM's turn: 1 is one client all the time.
    pub waiting: f64,
    /// The number of these waits per second.
    pub waits_per_second: f64,
    /// Its clients, in descending order of their launches.
    pub clients: Vec<Client>,
}

/// A VM's use of a GPU.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Gpu {
    /// The GPU, by the host driver's number.
    pub gpu: u32,
    /// Its share of the GPU: 1 is all of it.
    pub share: f64,
    /// The charged bytes of the GPU's memory.
    pub memory_bytes: u64,
}

/// A client.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Client {
    /// Its number in its connection.
    pub client: u32,
    /// The guest process's name.
    pub name: String,
    /// Its id in the guest.
    pub guest_process: u32,
    /// Its worker's process id.
    pub worker: u32,
    /// The work.
    #[serde(flatten)]
    pub work: Work,
}

/// Amounts of work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Work {
    /// Kernels launched per second.
    pub launches_per_second: f64,
    /// Bytes copied per second, in all directions.
    pub copied_bytes_per_second: f64,
    /// Commands that wait in rings.
    pub queued_commands: u64,
    /// Device memory, on all GPUs.
    pub memory_bytes: u64,
}

/// The value per second, if the interval is not 0.
fn rate(value: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { value / seconds } else { 0.0 }
}

impl Work {
    fn of(totals: Totals, queued_commands: u64, memory_bytes: u64, seconds: f64) -> Self {
        Self {
            launches_per_second: rate(totals.launches as f64, seconds),
            copied_bytes_per_second: rate(totals.bytes() as f64, seconds),
            queued_commands,
            memory_bytes,
        }
    }
}

impl Rates {
    /// The rates between two samples. Entries that the first one lacks began at 0.
    pub fn between(first: &Status, second: &Status) -> Self {
        let seconds = second.uptime_seconds - first.uptime_seconds;
        // The time does not grow if the service was restarted.
        let seconds = seconds.max(0.0);
        let mut vms: Vec<Vm> = second
            .vms
            .iter()
            .map(|vm| {
                let before = first.vms.iter().find(|before| before.socket == vm.socket);
                Vm::between(before.unwrap_or(&VmStatus::default()), vm, seconds)
            })
            .collect();
        vms.sort_by(|a, b| {
            let shares = b.gpu_share.total_cmp(&a.gpu_share);
            shares.then_with(|| a.name.cmp(&b.name))
        });
        Self {
            version: second.version.clone(),
            uptime_seconds: second.uptime_seconds,
            interval_seconds: seconds,
            vms,
        }
    }

    /// The number of clients.
    pub fn clients(&self) -> usize {
        self.vms.iter().map(|vm| vm.clients.len()).sum()
    }
}

impl Vm {
    fn between(before: &VmStatus, now: &VmStatus, seconds: f64) -> Self {
        let gpus: Vec<Gpu> = now
            .gpus
            .iter()
            .map(|gpu| {
                let before = before.gpus.iter().find(|before| before.gpu == gpu.gpu);
                let had = gpu.seconds - before.map_or(0.0, |before| before.seconds);
                Gpu {
                    gpu: gpu.gpu,
                    share: rate(had.max(0.0), seconds),
                    memory_bytes: gpu.memory_bytes,
                }
            })
            .collect();
        let done = now.totals.since(before.totals);
        let memory = now
            .gpus
            .iter()
            .fold(0_u64, |sum, gpu| sum.saturating_add(gpu.memory_bytes));
        let mut clients: Vec<Client> = now
            .clients
            .iter()
            .map(|client| {
                let same = |before: &&ClientStatus| before.worker == client.worker;
                let before = before.clients.iter().find(same);
                let before = before.map(|before| before.totals).unwrap_or_default();
                Client {
                    client: client.client,
                    name: client.name.clone(),
                    guest_process: client.guest_process,
                    worker: client.worker,
                    work: Work::of(
                        client.totals.since(before),
                        client.queued_commands,
                        client.memory_bytes,
                        seconds,
                    ),
                }
            })
            .collect();
        clients.sort_by(|a, b| {
            let launches = b.work.launches_per_second;
            let launches = launches.total_cmp(&a.work.launches_per_second);
            launches.then_with(|| a.worker.cmp(&b.worker))
        });
        Self {
            name: now.name.clone(),
            weight: now.weight,
            gpu_share: gpus.iter().map(|gpu| gpu.share).sum(),
            gpus,
            work: Work::of(done, now.queued_commands, memory, seconds),
            memory_limit_bytes: now.memory_limit_bytes,
            waiting: rate(done.wait_nanoseconds as f64 / 1e9, seconds),
            waits_per_second: rate(done.waits as f64, seconds),
            clients,
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::supervisor::metrics::GpuStatus;

    /// A service with two VMs, `seconds` after its start, whose second VM works twice as much.
    pub fn status(seconds: f64) -> Status {
        let vm = |name: &str, speed: f64| VmStatus {
            name: name.to_owned(),
            socket: format!("/run/{name}"),
            weight: 100,
            memory_limit_bytes: (name == "a").then_some(8 << 30),
            gpus: vec![GpuStatus {
                gpu: 0,
                seconds: 0.3 * speed * seconds,
                memory_bytes: 2 << 30,
            }],
            totals: Totals {
                launches: (1000.0 * speed * seconds) as u64,
                bytes_to_device: (2e9 * speed * seconds) as u64,
                waits: (10.0 * seconds) as u64,
                wait_nanoseconds: (0.25e9 * seconds) as u64,
                ..Totals::default()
            },
            clients: vec![ClientStatus {
                client: 7,
                name: "python3\u{1b}[2J".to_owned(),
                guest_process: 812,
                worker: 4711,
                memory_bytes: 1 << 30,
                totals: Totals {
                    launches: (1000.0 * speed * seconds) as u64,
                    ..Totals::default()
                },
                ..ClientStatus::default()
            }],
            ..VmStatus::default()
        };
        Status {
            version: "1.2.3".to_owned(),
            uptime_seconds: seconds,
            vms: vec![vm("a", 1.0), vm("b", 2.0)],
            ..Status::default()
        }
    }

    #[test]
    fn rates_are_by_the_services_clock_and_the_busiest_comes_first() {
        let rates = Rates::between(&status(10.0), &status(12.0));
        assert_eq!(rates.interval_seconds, 2.0);
        let names: Vec<&str> = rates.vms.iter().map(|vm| &vm.name[..]).collect();
        assert_eq!(names, ["b", "a"]);
        let b = &rates.vms[0];
        assert!((b.gpu_share - 0.6).abs() < 1e-6);
        assert_eq!(b.work.launches_per_second, 2000.0);
        assert_eq!(b.work.copied_bytes_per_second, 4e9);
        assert_eq!((b.waiting, b.waits_per_second), (0.25, 10.0));
        assert_eq!(b.clients[0].work.launches_per_second, 2000.0);
    }

    #[test]
    fn a_service_that_was_started_anew_has_no_rates_yet() {
        let rates = Rates::between(&status(100.0), &status(3.0));
        assert_eq!(rates.interval_seconds, 0.0);
        assert!(rates.vms.iter().all(|vm| vm.gpu_share == 0.0));
        assert!(
            rates
                .vms
                .iter()
                .all(|vm| vm.work.launches_per_second == 0.0)
        );
    }

    #[test]
    fn new_entries_have_begun_since() {
        let mut first = status(10.0);
        first.vms.remove(1);
        first.vms[0].clients.clear();
        let rates = Rates::between(&first, &status(12.0));
        let a = rates.vms.iter().find(|vm| vm.name == "a").unwrap();
        assert_eq!(a.clients[0].work.launches_per_second, 6000.0);
    }
}
