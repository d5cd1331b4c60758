//! The command queue: commands of a client that is served, their data, and what workers and movers make of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use virtio_gpgpu_fuzz::{device::Rig, input::Input};

fuzz_target!(|bytes: &[u8]| Rig::with_client().run(&mut Input::new(bytes)));
