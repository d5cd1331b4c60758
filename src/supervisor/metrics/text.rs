// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Metrics for Prometheus, in the OpenMetrics text format.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::Registry,
};

use super::{Board, Status, VmStatus};

/// The format's media type.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The source of the metrics of a board.
pub struct Metrics(Registry);

impl Metrics {
    /// The metrics of this board.
    pub fn new(board: Arc<Board>) -> Self {
        let mut registry = Registry::with_prefix("virtio_gpgpu");
        registry.register_collector(Box::new(Source(board)));
        Self(registry)
    }

    /// The present metrics as text.
    ///
    /// # Errors
    /// Those of the formatter; it has none of its own.
    pub fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        text::encode(&mut text, &self.0)?;
        Ok(text)
    }
}

#[derive(Debug)]
struct Source(Arc<Board>);

impl Collector for Source {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        Families(encoder).encode(&self.0.status())
    }
}

type Labels = Vec<(&'static str, String)>;

struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    fn gauge(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn counter(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn seconds(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn encode(mut self, status: &Status) -> fmt::Result {
        self.service(status)?;
        self.policy(status)?;
        self.clients(status)?;
        self.gpus(status)?;
        self.work(status)
    }

    fn service(&mut self, status: &Status) -> fmt::Result {
        let version = vec![("version", status.version.clone())];
        self.gauge(
            "build_info",
            "1, with the version of the service",
            [(version, 1.0)],
        )?;
        self.gauge(
            "uptime_seconds",
            "Time since the start of the service",
            [(Vec::new(), status.uptime_seconds)],
        )?;
        self.gauge(
            "warm_workers",
            "Workers that wait for a client",
            [(Vec::new(), status.warm_workers as f64)],
        )?;
        self.gauge(
            "movers",
            "Processes that copy between guests and GPUs",
            [(Vec::new(), status.movers as f64)],
        )
    }

    fn policy(&mut self, status: &Status) -> fmt::Result {
        self.gauge(
            "weight",
            "The VM's share of a contended GPU, relative to the other VMs' weights",
            each(status, |vm| f64::from(vm.weight)),
        )?;
        let limits = status.vms.iter().filter_map(|vm| {
            let limit = vm.memory_limit_bytes?;
            Some((of(vm), limit as f64))
        });
        self.gauge(
            "memory_limit_bytes",
            "The VM's limit of device memory on each GPU; absent without a limit",
            limits,
        )?;
        self.gauge(
            "max_clients",
            "The VM's limit of clients",
            each(status, |vm| vm.max_clients as f64),
        )
    }

    fn clients(&mut self, status: &Status) -> fmt::Result {
        self.gauge(
            "connections",
            "Connections of the VM's VMM",
            each(status, |vm| vm.connections as f64),
        )?;
        self.gauge(
            "clients",
            "Processes of the VM that have the GPU open",
            each(status, |vm| vm.clients.len() as f64),
        )?;
        self.counter(
            "clients_opened",
            "Processes of the VM that have opened the GPU",
            each(status, |vm| vm.clients_opened),
        )?;
        let ends = status.vms.iter().flat_map(|vm| {
            let ends = vm.client_ends.iter();
            ends.map(|(reason, count)| (with(vm, "reason", reason), *count))
        });
        self.counter("client_ends", "Ended clients, by reason", ends)
    }

    fn gpus(&mut self, status: &Status) -> fmt::Result {
        let gpus = |status: &Status, value: fn(&super::GpuStatus) -> f64| {
            let vms = status.vms.iter().flat_map(|vm| {
                let gpus = vm.gpus.iter();
                gpus.map(move |gpu| (with(vm, "gpu", &gpu.gpu.to_string()), value(gpu)))
            });
            vms.collect::<Vec<_>>()
        };
        self.seconds(
            "gpu_seconds",
            "The VM's GPU time",
            gpus(status, |gpu| gpu.seconds),
        )?;
        self.gauge(
            "memory_bytes",
            "Device memory charged to the VM",
            gpus(status, |gpu| gpu.memory_bytes as f64),
        )
    }

    fn work(&mut self, status: &Status) -> fmt::Result {
        self.counter(
            "launches",
            "Kernels launched",
            each(status, |vm| vm.totals.launches),
        )?;
        self.counter(
            "launch_graphs",
            "Graphs that went to the driver in place of launches",
            each(status, |vm| vm.totals.launch_graphs),
        )?;
        self.counter("copies", "Copies made", each(status, |vm| vm.totals.copies))?;
        let bytes = status.vms.iter().flat_map(|vm| {
            let directions = [
                ("to_device", vm.totals.bytes_to_device),
                ("from_device", vm.totals.bytes_from_device),
                ("on_device", vm.totals.bytes_on_device),
            ];
            directions.map(|(direction, bytes)| (with(vm, "direction", direction), bytes))
        });
        self.counter("copied_bytes", "Bytes copied", bytes)?;
        self.counter(
            "commands",
            "Executed commands",
            each(status, |vm| vm.totals.commands),
        )?;
        self.gauge(
            "queued_commands",
            "Pending commands in the rings of the VM's clients",
            each(status, |vm| vm.queued_commands as f64),
        )?;
        self.gauge(
            "pinned_bytes",
            "Guest memory that programs have registered with CUDA",
            each(status, |vm| vm.pinned_bytes as f64),
        )?;
        self.counter(
            "lease_waits",
            "How often a command had to wait for the VM's turn",
            each(status, |vm| vm.totals.waits),
        )?;
        self.seconds(
            "lease_wait_seconds",
            "Total time of these waits",
            each(status, |vm| vm.totals.wait_nanoseconds as f64 / 1e9),
        )
    }
}

fn of(vm: &VmStatus) -> Labels {
    vec![("vm", vm.name.clone())]
}

fn with(vm: &VmStatus, label: &'static str, value: &str) -> Labels {
    vec![("vm", vm.name.clone()), (label, value.to_owned())]
}

fn each<T>(status: &Status, value: impl Fn(&VmStatus) -> T) -> Vec<(Labels, T)> {
    let vms = status.vms.iter();
    vms.map(|vm| (of(vm), value(vm))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        account::{Ledger, Shared, Terms},
        policy::VmPolicy,
        supervisor::usage::Usage,
    };
    use std::time::Duration;

    #[test]
    fn every_metric_is_there_for_every_vm_and_is_documented() {
        let mut policy = VmPolicy::new("/run/a".into());
        policy.name = "a\"b\\c\nd".into();
        policy.memory = Some(1 << 20);
        let ledger = Arc::new(Shared::<Ledger>::new(c"test").unwrap());
        let terms = Arc::new(Terms::new().unwrap());
        terms.set_limit(policy.memory);
        let usage = Arc::new(Usage::new(1));
        usage.add(0, 0, Duration::from_millis(1500));
        let board = Board::new([(&policy, &ledger, &terms)].into_iter(), 1, usage);
        board.set_policy(0, &policy);
        let text = Metrics::new(Arc::new(board)).text().unwrap();
        assert!(text.ends_with("# EOF\n"));
        let vm = r#"{vm="a\"b\\c\nd""#;
        for line in [
            format!("virtio_gpgpu_gpu_seconds_total{vm},gpu=\"0\"}} 1.5\n"),
            format!("virtio_gpgpu_launches_total{vm}}} 0\n"),
            format!("virtio_gpgpu_memory_limit_bytes{vm}}} 1048576.0\n"),
            format!("virtio_gpgpu_copied_bytes_total{vm},direction=\"on_device\"}} 0\n"),
            format!("virtio_gpgpu_client_ends_total{vm},reason=\"longest_kernel\"}} 0\n"),
            format!("virtio_gpgpu_weight{vm}}} 100.0\n"),
        ] {
            assert!(text.contains(&line), "{line} is missing in {text}");
        }
        let page = include_str!("../../../docs/operating.md");
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.map(|line| line.split_once(' ').unwrap());
        for (name, kind) in names {
            let suffix = if kind == "counter" { "_total" } else { "" };
            assert!(
                page.contains(&format!("`{name}{suffix}`")),
                "{name}{suffix} is not documented"
            );
        }
    }
}
