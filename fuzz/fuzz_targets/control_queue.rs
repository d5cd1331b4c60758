// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The control queue: clients that come and go, memory that is registered, rings that make no sense, and workers that
//! say anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use virtio_gpgpu_fuzz::device::{Rig, play};

fuzz_target!(|bytes: &[u8]| play(Rig::new, bytes));
