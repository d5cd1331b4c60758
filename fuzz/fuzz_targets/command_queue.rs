// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The command queue: commands of a client that is served, their data, and what workers and movers make of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use virtio_gpgpu_fuzz::device::{Rig, play};

fuzz_target!(|bytes: &[u8]| play(Rig::with_client, bytes));
