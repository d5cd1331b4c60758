// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The control queue: clients that open and close, memory that is registered, invalid rings, and workers that send
//! arbitrary messages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use virtio_gpgpu_fuzz::device::{Rig, play};

fuzz_target!(|bytes: &[u8]| play(Rig::new, bytes));
