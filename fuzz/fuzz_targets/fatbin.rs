//! Module images as the software GPU gets them: fatbins with compressed entries, cubins, text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use software_gpu::image;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = image::from_file(bytes, 80) {
        let _ = image::parse(&text, 80);
    }
});
