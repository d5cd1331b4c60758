// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether an image may print.

use memchr::memmem;

use super::{
    Contents,
    fatbin::{self, Entry, Kind},
};

/// What the compiler makes of `printf`: text names it as a function, and machine code as a symbol.
const PRINTF: &[u8] = b"vprintf";

/// Whether a kernel of an image may print on a device of one of these compute capabilities (times ten). It is `false` only if
/// none does; of an image that cannot be understood it is `true`.
pub fn may_print(image: &[u8], capabilities: &[u32]) -> bool {
    let magic = image.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    if magic != Some(fatbin::CONTAINER_MAGIC) {
        return names_printf(image);
    }
    let source = Contents(image);
    let Ok(entries) = fatbin::entries(&source) else {
        return true;
    };
    let has_code = |capability: u32| entries.iter().any(|entry| is_code(entry, capability));
    let is_used = |entry: &&Entry| {
        capabilities.iter().any(|&capability| match entry.kind {
            Kind::Cubin => is_code(entry, capability),
            // Text is compiled where there is no machine code.
            _ => entry.arch <= capability && !has_code(capability),
        })
    };
    let mut used = entries.iter().filter(is_used);
    used.any(|entry| {
        let unpacked = entry.unpack(&source);
        unpacked.map_or(true, |bytes| names_printf(&bytes))
    })
}

/// Whether it is machine code that a device of this compute capability runs.
fn is_code(entry: &Entry, capability: u32) -> bool {
    entry.kind == Kind::Cubin && entry.arch <= capability && entry.arch / 10 == capability / 10
}

fn names_printf(bytes: &[u8]) -> bool {
    memmem::find(bytes, PRINTF).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container with these entries: kind, compute capability, bytes.
    fn container(entries: &[(u16, u32, &[u8])]) -> Vec<u8> {
        let mut body = Vec::new();
        for (kind, arch, bytes) in entries {
            let mut head = [0; 64];
            head[..2].copy_from_slice(&kind.to_le_bytes());
            head[4..8].copy_from_slice(&64_u32.to_le_bytes());
            head[8..16].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            head[28..32].copy_from_slice(&arch.to_le_bytes());
            body.extend(head);
            body.extend(*bytes);
        }
        let mut whole = fatbin::CONTAINER_MAGIC.to_le_bytes().to_vec();
        whole.extend([1, 0, 16, 0]);
        whole.extend((body.len() as u64).to_le_bytes());
        whole.extend(body);
        whole
    }

    #[test]
    fn an_image_prints_if_what_the_device_runs_of_it_names_printf() {
        assert!(may_print(b".extern .func vprintf ();", &[90]));
        assert!(!may_print(b".visible .entry printf_not()", &[90]));
        let (prints, silent) = (b"..vprintf..".as_slice(), b"....".as_slice());
        let image = container(&[(2, 80, prints), (2, 90, silent), (1, 90, prints)]);
        assert!(may_print(&image, &[80]));
        assert!(!may_print(&image, &[90]), "its own machine code is silent");
        assert!(may_print(&image, &[100]), "its text is compiled");
        assert!(may_print(&image, &[90, 86]));
        let broken = &image[..image.len() - prints.len() - 1];
        assert!(may_print(broken, &[90]), "the last entry is no whole one");
    }
}
