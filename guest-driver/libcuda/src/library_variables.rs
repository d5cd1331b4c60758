// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The program's environment variables for NVIDIA's libraries, which the host has to know.

use std::sync::Once;

use gpgpu_client::log::{self, Level};
use gpgpu_protocol::{
    api::request,
    cuda::*,
    libraries::variables::{VARIABLES, may_travel},
};

use crate::client::Client;

/// Sends the variables once, before the process uses a library. NVIDIA's libraries read them in their first handle or
/// call, so a program may set them until then.
#[inline]
pub fn send(client: &Client) {
    static SENT: Once = Once::new();
    SENT.call_once(|| send_all(client));
}

fn send_all(client: &Client) {
    for name in VARIABLES {
        let Some(value) = std::env::var_os(name) else {
            continue;
        };
        let value = value.to_string_lossy().into_owned();
        let sent = match may_travel(name, &value) {
            true => client.call(&request::gpgpuLibraryVariable {
                name: name.to_owned(),
                value,
            }),
            false => Err(CUDA_ERROR_INVALID_VALUE),
        };
        if let Err(code) = sent {
            log::say(Level::Error, || match code {
                CUDA_ERROR_INVALID_VALUE => {
                    format!("{name} has no effect: its value is not accepted")
                }
                _ => format!("{name} has no effect: the host does not set it (error {code})"),
            });
        }
    }
}
