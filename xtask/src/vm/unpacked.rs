// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Decompresses a kernel. An emulated guest takes two to three seconds to decompress its kernel, which is a third of
//! its boot. QEMU starts a decompressed kernel at its PVH entry.

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result};
use memchr::memmem;
use ruzstd::decoding::StreamingDecoder;

/// The start of a Zstandard frame.
const ZSTANDARD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// The start of an ELF file.
const ELF: [u8; 4] = *b"\x7fELF";
/// The type and the name of the ELF note with the PVH entry (`XEN_ELFNOTE_PHYS32_ENTRY`). In the file, two lengths
/// precede them.
const ENTRY: [u8; 8] = *b"\x12\0\0\0Xen\0";

/// The compressed kernel in a boot image, by its header (Linux, `Documentation/arch/x86/boot.rst`).
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    let is_image = image.get(0x202..0x206) == Some(b"HdrS");
    let protected = (usize::from(*image.get(0x1f1)?) + 1) * 512;
    let start = protected.checked_add(number(0x248)?)?;
    let end = start.checked_add(number(0x24c)?)?;
    image.get(start..end).filter(|_| is_image)
}

/// Writes the decompressed kernel of the boot image `image` to the file `to`, if QEMU can start it. Returns whether it
/// can: the kernel must be compressed with Zstandard, and have a PVH entry.
///
/// # Errors
///
/// The image cannot be read or decompressed, or the file cannot be written.
pub fn unpack(image: &Path, to: &Path) -> Result<bool> {
    let bytes = fs::read(image).with_context(|| format!("cannot read {}", image.display()))?;
    let Some(payload) = payload(&bytes).filter(|of| of.starts_with(&ZSTANDARD)) else {
        return Ok(false);
    };
    let mut kernel = Vec::new();
    StreamingDecoder::new(payload)
        .map_err(io::Error::other)
        .and_then(|mut frame| frame.read_to_end(&mut kernel))
        .with_context(|| format!("cannot decompress the kernel in {}", image.display()))?;
    let has_entry = kernel.starts_with(&ELF) && memmem::find(&kernel, &ENTRY).is_some();
    if has_entry {
        fs::write(to, kernel).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(has_entry)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    /// A boot image with three sectors before its protected part, in which the payload is at 64.
    fn image(payload: &[u8]) -> Vec<u8> {
        let mut image = vec![0; 3 * 512 + 64];
        image[0x1f1] = 2;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x248..0x24c].copy_from_slice(&64_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        image.extend_from_slice(payload);
        image.extend_from_slice(b"what follows");
        image
    }

    #[test]
    fn a_kernel_is_unpacked_if_qemu_can_start_it() {
        let directory = tempfile::tempdir().unwrap();
        let [from, to] = ["image", "kernel"].map(|name| directory.path().join(name));
        let unpacked = |image: &[u8]| {
            fs::write(&from, image).unwrap();
            let _ = fs::remove_file(&to);
            let done = unpack(&from, &to).unwrap();
            assert_eq!(done, to.exists());
            done.then(|| fs::read(&to).unwrap())
        };
        let pack = |kernel: &[u8]| {
            let mut packed = compress_to_vec(kernel, CompressionLevel::Fastest);
            // Linux appends the size of the compressed data.
            packed.extend_from_slice(&(kernel.len() as u32).to_le_bytes());
            image(&packed)
        };
        let kernel = [&ELF[..], &[7; 3000], &[4, 0, 0, 0], &ENTRY, &[9; 4]].concat();
        assert_eq!(unpacked(&pack(&kernel)).as_deref(), Some(&*kernel));
        assert_eq!(unpacked(&pack(&kernel[..3000])), None);
        assert_eq!(unpacked(&pack(&kernel[1..])), None);
        assert_eq!(unpacked(&image(&kernel)), None);
        assert_eq!(unpacked(&kernel), None);
        let mut other = pack(&kernel);
        other[0x24f] = 0xff;
        assert_eq!(unpacked(&other), None);
        // A truncated frame.
        let whole = compress_to_vec(&*kernel, CompressionLevel::Fastest);
        fs::write(&from, image(&whole[..whole.len() / 2])).unwrap();
        assert!(unpack(&from, &to).is_err());
    }
}
