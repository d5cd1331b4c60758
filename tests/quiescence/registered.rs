// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Registered memory of a process of the guest.

use gpgpu_protocol::api::request;

use crate::client::Client;

/// Registers `bytes` of guest memory from `at` on, at an address of the process, with the device and with CUDA. Returns
/// the address for kernels.
pub fn register(
    client: &mut Client<'_>,
    address: u64,
    (at, bytes): (u64, u64),
    context: u64,
) -> u64 {
    let id = client.id();
    let registered = client.guest().register(id, address, bytes, &[(at, bytes)]);
    registered.expect("not registered");
    let register = request::cuMemHostRegister_v2 {
        address,
        bytes: bytes as usize,
        flags: 0,
        device: true,
    };
    client.works(&register, context, &[], 0).0.device
}
