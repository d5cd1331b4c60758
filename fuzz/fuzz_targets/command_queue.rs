// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The command queue: commands of a served client, their data, and the answers of workers and movers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use virtio_gpgpu_fuzz::device::{Rig, play};

fuzz_target!(|bytes: &[u8]| play(Rig::with_client, bytes));
