// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The commands for work on virtio-gpgpu: `cargo xtask --help`.

mod artifacts;
mod bench;
mod bundle;
mod cache;
mod cuda;
mod debian;
mod demo;
mod driver;
mod earlier;
mod fuzz;
mod host_tests;
mod initramfs;
mod kernel;
mod kit;
mod make;
mod monitor;
mod package;
mod parallel;
mod paths;
mod pitfalls;
mod process;
mod processes;
mod programs;
mod runner;
mod setup;
mod test;
mod ui;
mod vm;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use setup::Part;

/// Set up, build, test, measure and pack virtio-gpgpu.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch the downloads of the other commands: nvcc, QEMU, guest kernels with headers.
    Setup {
        /// Only these parts.
        #[arg(long, value_delimiter = ',')]
        only: Vec<Part>,
    },
    /// Build all parts and programs into target/stage, in the layout of an installation.
    Build,
    /// Boot a VM with the device, run CUDA programs in it, and print a table of the results.
    Demo(demo::Options),
    /// Measure each row natively and through virtio-gpgpu, in turn, and print a table.
    Bench(bench::Options),
    /// Run all tests.
    Test,
    /// Run the fuzz targets: the input from guests and from compromised workers.
    Fuzz(fuzz::Options),
    /// Run the tests of the guest's kernel driver, on a device with injected faults.
    Driver(driver::Options),
    /// Make an archive of the demo, the benchmarks and the tests for another machine.
    Bundle,
    /// Make Debian packages, RPMs and container images for hosts and guests, and test them.
    Package(package::Options),
    /// Run the tests of an unpacked bundle; its run.sh calls this.
    #[command(hide = true)]
    Tests(host_tests::Options),
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Task::Setup { only } => {
            let parts = if only.is_empty() {
                vec![Part::Cuda, Part::Guest, Part::Oldest]
            } else {
                only
            };
            setup::run(&parts)?;
            Ok(ExitCode::SUCCESS)
        }
        Task::Build => {
            let (kit, _environment) = kit::Kit::build(None)?;
            println!("{}", kit.stage.dir.display());
            Ok(ExitCode::SUCCESS)
        }
        Task::Test => test::run(),
        Task::Fuzz(options) => Ok(code(fuzz::run(&options)?)),
        Task::Tests(options) => Ok(code(host_tests::run(&options)?)),
        Task::Bundle => bundle::run().map(|()| ExitCode::SUCCESS),
        Task::Package(options) => package::run(&options).map(|()| ExitCode::SUCCESS),
        Task::Bench(options) => Ok(code(bench::run(&options)?)),
        Task::Demo(options) => Ok(code(demo::run(&options)?)),
        Task::Driver(options) => Ok(code(driver::run_alone(&options)?)),
    }
}

fn code(good: bool) -> ExitCode {
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn main() -> ExitCode {
    let result = process::install_interrupt_handler().and_then(|()| run(Cli::parse()));
    match result {
        Ok(code) => code,
        Err(_) if process::interrupted() => {
            eprintln!("interrupted");
            ExitCode::from(130)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
