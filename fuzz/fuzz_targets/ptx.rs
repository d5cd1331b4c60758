// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! PTX text: parsed, counted against a VM's limit, and decoded for execution.
#![no_main]

use std::{convert::Infallible, sync::Arc};

use libfuzzer_sys::fuzz_target;
use software_gpu::{exec::LoadedModule, image};

fuzz_target!(|text: &str| {
    // A driver reads up to the first NUL.
    let text = text.split('\0').next().unwrap_or_default();
    drop(gpgpu_image::prints::Prints::of(text.as_bytes(), &[90]));
    let Ok(module) = image::parse(text, 90) else {
        return;
    };
    let bytes = module.variable_bytes();
    if let Ok(counted) = gpgpu_image::size::device_bytes(text.as_bytes(), 90) {
        assert!(counted >= bytes, "{counted} bytes are counted of {bytes}");
    }
    // A device has no more room, and the worker cannot afford more zeros.
    if bytes > 1 << 20 {
        return;
    }
    let mut next = 1u64 << 40;
    let _ = LoadedModule::new::<Infallible>(Arc::new(module), |global| {
        next = next.next_multiple_of(global.align as u64);
        let at = next;
        next += global.size as u64;
        Ok(at)
    });
});
