// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Module images as the software GPU receives them: fatbins with compressed entries, cubins, text. The memory charged
//! against a VM's limit must never be less than the software GPU's, and the search for kernels that print and the check
//! of the headers must end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use software_gpu::image;

fuzz_target!(|bytes: &[u8]| {
    let _ = gpgpu_image::bounds::check(bytes);
    drop(gpgpu_image::prints::Prints::of(bytes, &[80]));
    let counted = gpgpu_image::size::device_bytes(bytes, 80);
    if let Ok(text) = image::from_file(bytes, 80)
        && let Ok(module) = image::parse(&text, 80)
        && let Ok(counted) = counted
    {
        assert!(counted >= module.variable_bytes());
    }
});
