// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A device for the tests of the guest's kernel driver, over vhost-user, without workers or a GPU. The guest's test
//! controls it, so it can do what a conforming device never does: refuse or ignore a CLOSE, shorten answers, keep
//! chains.
//!
//! `gpgpu-misbehaving-device SOCKET` serves one virtual machine at a time, until it is ended. [`device`] describes its
//! orders. Whenever the driver stops the device, it prints `stopped, N clients open`.

mod device;

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use vhost::vhost_user::Listener;
use vhost_user_backend::VhostUserDaemon;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

fn main() -> Result<()> {
    let socket = std::env::args()
        .nth(1)
        .context("the socket's path is missing")?;
    let mut listener =
        Listener::new(&socket, true).with_context(|| format!("cannot listen at {socket}"))?;
    loop {
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let device = Arc::new(Mutex::new(device::Device::new(memory.clone())));
        let mut daemon = VhostUserDaemon::new("gpgpu".to_owned(), device, memory)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        daemon
            .start(&mut listener)
            .map_err(|error| anyhow::anyhow!("{error:?}"))?;
        // The end of a VMM is not an error.
        let _ = daemon.wait();
    }
}
