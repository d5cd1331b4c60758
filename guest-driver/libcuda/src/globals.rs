// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Variables of modules and libraries.

use gpgpu_protocol::{api::request, cuda::*};

use crate::{
    client::Client,
    ffi::Result,
    managed,
    stores::pointers::{Kind, Origin, Range},
    thread,
};

/// Whether a variable of the host, which was looked up, is in managed memory. An older host does not report this, and
/// has the variable only for kernels and copies.
fn is_managed(client: &Client, start: u64) -> bool {
    let request = request::gpgpuPointerAttribute {
        value: true,
        attribute: CU_POINTER_ATTRIBUTE_IS_MANAGED,
        ptr: start,
    };
    client.call(&request).is_ok_and(|reply| reply.value != 0)
}

/// Records the memory of a variable, so that copies treat it as device memory, and so that the program can access it if
/// it is managed and accessible. `owner` is the module or the library.
pub fn note(client: &'static Client, owner: u64, start: u64, bytes: usize) {
    if start == 0 || bytes == 0 || client.pointers.find(start).is_some() {
        return;
    }
    let managed =
        is_managed(client, start) && managed::variable(client, owner, start, bytes as u64).is_ok();
    insert(client, owner, (start, bytes), managed);
}

/// Records the memory of a managed variable.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if the program cannot access it. Copies and kernels can.
pub fn note_managed(client: &'static Client, owner: u64, start: u64, bytes: usize) -> Result {
    if client
        .pointers
        .find(start)
        .is_some_and(|range| range.is_managed())
    {
        return Ok(());
    }
    let placed = managed::variable(client, owner, start, bytes as u64);
    insert(client, owner, (start, bytes), placed.is_ok());
    placed
}

fn insert(client: &Client, owner: u64, (start, bytes): (u64, usize), managed: bool) {
    client.pointers.insert(Range {
        start,
        bytes: bytes as u64,
        context: thread::home(client),
        kind: Kind::Device,
        origin: Origin::Image { owner, managed },
    });
}

/// Unloads a module or a library; `unload` makes the host do so.
pub fn unload(client: &Client, owner: u64, unload: impl FnOnce() -> Result) -> Result {
    // Before the host's memory is freed, because the library may be fetching a block of it.
    managed::forget_image(owner);
    unload()?;
    client.pointers.remove_image(owner);
    Ok(())
}
