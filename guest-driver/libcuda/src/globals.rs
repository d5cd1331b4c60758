// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Variables of modules and libraries.

use gpgpu_protocol::{api::request, cuda::*};

use crate::{
    border::Result,
    client::Client,
    managed,
    stores::pointers::{Kind, Origin, Range},
    thread,
};

/// Whether the host has a variable, which was looked up, in managed memory.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if the host does not say so: it serves no managed variables.
pub fn is_managed(client: &Client, start: u64) -> Result<bool> {
    let request = request::gpgpuPointerAttribute {
        value: true,
        attribute: CU_POINTER_ATTRIBUTE_IS_MANAGED,
        ptr: start,
    };
    match client.call(&request) {
        Ok(reply) => Ok(reply.value != 0),
        Err(CUDA_ERROR_INVALID_VALUE) => Err(CUDA_ERROR_NOT_SUPPORTED),
        Err(code) => Err(code),
    }
}

/// Notes the memory of a variable, so that copies know it as the device's, and so that the program reaches it if it is managed.
/// `owner` is the module or the library. Says whether the program reaches it.
///
/// # Errors
/// `CUDA_ERROR_NOT_SUPPORTED` if the variable is managed and the program cannot reach it. Copies and kernels can.
pub fn note(client: &'static Client, owner: u64, start: u64, bytes: usize) -> Result<bool> {
    if start == 0 || bytes == 0 {
        return Ok(false);
    }
    if let Some(range) = client.pointers.find(start) {
        return Ok(range.is_managed());
    }
    let placed = match is_managed(client, start) {
        Ok(true) => managed::variable(client, owner, start, bytes as u64).map(|()| true),
        plain => plain,
    };
    client.pointers.insert(Range {
        start,
        bytes: bytes as u64,
        context: thread::home(client),
        kind: Kind::Device,
        origin: Origin::Image {
            owner,
            managed: placed == Ok(true),
        },
    });
    placed
}

/// Unloads a module or a library; `unload` has the host do so.
pub fn unload(client: &Client, owner: u64, unload: impl FnOnce() -> Result) -> Result {
    // Before the host's memory goes: the library may be bringing a block of it here.
    managed::forget_image(owner);
    unload()?;
    client.pointers.remove_image(owner);
    Ok(())
}
