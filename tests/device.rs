// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device as VMMs and drivers see it. The supervisor and its device processes are the real ones; the workers are a
//! program that calls no CUDA.

#[path = "device/clients.rs"]
mod clients;
#[path = "device/connections.rs"]
mod connections;
#[path = "common/guest/mod.rs"]
// Some of it is only for the mover's tests.
#[allow(dead_code)]
mod guest;
#[path = "device/host.rs"]
mod host;
#[path = "device/life.rs"]
mod life;
#[path = "device/program.rs"]
mod program;
#[path = "device/requests.rs"]
mod requests;
#[path = "device/rings.rs"]
mod rings;
#[path = "device/service.rs"]
mod service;
#[path = "common/tracer.rs"]
// Some of it is only for the tests of statements.
#[allow(dead_code)]
mod tracer_process;
#[path = "device/warm.rs"]
mod warm;
#[path = "device/worker.rs"]
mod worker;

const BINARY: &str = env!("CARGO_BIN_EXE_vhost-device-gpgpu");

/// Not a test: the workers' program.
#[test]
fn fake_worker() {
    if let Ok(mode) = std::env::var(worker::MODE) {
        worker::run(&mode);
    }
}

/// Not a test: a supervisor that can be killed.
#[test]
fn service() {
    if let Ok(directory) = std::env::var(service::DIRECTORY) {
        service::run(&directory);
    }
}

/// Not a test: a process that stops another one at its exit.
#[test]
fn tracer() {
    if let Ok(held) = std::env::var(tracer_process::HELD) {
        tracer_process::run(&held);
    }
}
