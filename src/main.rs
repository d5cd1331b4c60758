// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A vhost-user back end that runs CUDA for virtual machines without a GPU: see the library.

fn main() -> std::process::ExitCode {
    vhost_device_gpgpu::main()
}
