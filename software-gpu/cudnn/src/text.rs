// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Texts of plans, from which any process can make other plans.

use std::sync::OnceLock;
use std::time::Duration;

use crate::graph::Operation;
use crate::types::{Result, Status};

/// The bytes of a text. NVIDIA's can be as long: they contain the code of kernels.
const BYTES: usize = 100_000;

/// The text of a plan, with a NUL at its end.
///
/// # Errors
/// `InternalError` if the operation has no text.
pub fn of(plan: &Operation) -> Result<Vec<u8>> {
    let mut text = serde_json::to_vec(plan).map_err(|_| Status::InternalError)?;
    let length = text.len().max(BYTES);
    text.resize(length, b' ');
    text.push(0);
    Ok(text)
}

/// The operation of the plan with a text.
///
/// # Errors
/// `BadParam` if there is none.
pub fn plan(text: &[u8]) -> Result<Operation> {
    let text = text.trim_ascii_end();
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    serde_json::from_slice(text).map_err(|_| Status::BadParam)
}

/// Takes as long as `VIRTIO_GPGPU_SOFTWARE_COMPILE` says, in milliseconds, no time unless set. NVIDIA's library
/// compiles the kernels of some plans when it builds them.
pub fn compile() {
    static TIME: OnceLock<Duration> = OnceLock::new();
    let time = TIME.get_or_init(|| {
        let set = std::env::var("VIRTIO_GPGPU_SOFTWARE_COMPILE");
        let milliseconds = set.ok().and_then(|set| set.parse().ok());
        Duration::from_millis(milliseconds.unwrap_or(0))
    });
    std::thread::sleep(*time);
}
