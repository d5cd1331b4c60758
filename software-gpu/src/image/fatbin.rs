// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The part of a fatbin that this device runs.

use gpgpu_image::fatbin::{Kind, entries};
use gpgpu_protocol::cuda::CUDA_ERROR_NO_BINARY_FOR_GPU;

use super::{Refused, Source};

pub use gpgpu_image::fatbin::{CONTAINER_MAGIC, WRAPPER_MAGIC};

/// The text of the PTX entry for the highest target that a device of `capability` can run.
pub(super) fn best_ptx(
    source: &impl Source<Error = Refused>,
    capability: u32,
) -> Result<String, Refused> {
    let entries = entries(source)?;
    // If several are for one target, the first one.
    let ptx = entries.iter().rev();
    let best = ptx
        .filter(|entry| entry.kind == Kind::Ptx && entry.arch <= capability)
        .max_by_key(|entry| entry.arch);
    let best = best.ok_or_else(|| {
        let message = format!(
            "no PTX for compute_{capability} or lower among {} entries; build with code=compute_80",
            entries.len()
        );
        Refused::new(CUDA_ERROR_NO_BINARY_FOR_GPU, message)
    })?;
    super::as_text(&best.unpack(source)?)
}

#[cfg(test)]
mod tests {
    use super::super::{Contents, from_file};
    use super::*;
    use gpgpu_image::fatbin::{FLAG_LZ4, FLAG_ZSTD};
    use gpgpu_protocol::cuda::CUDA_ERROR_INVALID_IMAGE;

    const ENTRY_BYTES: usize = 64;

    const TEXT: &[u8] = b".version 8.0\n.target sm_80\n.address_size 64\n";

    fn entry(kind: u16, arch: u32, flags: u64, packed: &[u8], plain: usize) -> Vec<u8> {
        let padded = packed.len().next_multiple_of(8);
        let mut e = Vec::new();
        e.extend(kind.to_le_bytes());
        e.extend(0x101u16.to_le_bytes());
        e.extend((ENTRY_BYTES as u32).to_le_bytes());
        e.extend((padded as u64).to_le_bytes());
        e.extend((packed.len() as u32).to_le_bytes());
        e.extend([0; 8]);
        e.extend(arch.to_le_bytes());
        e.extend([0; 8]);
        e.extend(flags.to_le_bytes());
        e.extend([0; 8]);
        e.extend((plain as u64).to_le_bytes());
        assert_eq!(e.len(), ENTRY_BYTES);
        e.extend(packed);
        e.resize(ENTRY_BYTES + padded, 0);
        e
    }

    fn container(entries: &[Vec<u8>]) -> Vec<u8> {
        let mut c = Vec::new();
        c.extend(CONTAINER_MAGIC.to_le_bytes());
        c.extend(1u16.to_le_bytes());
        c.extend(16u16.to_le_bytes());
        c.extend((entries.concat().len() as u64).to_le_bytes());
        c.extend(entries.concat());
        c
    }

    #[test]
    fn the_highest_target_that_the_device_runs_is_taken() {
        let old = b".version 7.0\n.target sm_70\n";
        let lz4 = lz4_flex::block::compress(TEXT);
        let image = container(&[
            entry(2, 80, 0, b"\x7fELF....", 0),
            entry(1, 70, 0, old, 0),
            entry(1, 80, FLAG_LZ4, &lz4, TEXT.len()),
            entry(1, 90, 0, b"too new", 0),
        ]);
        assert_eq!(from_file(&image, 80).unwrap().as_bytes(), TEXT);
        assert_eq!(from_file(&image, 75).unwrap().as_bytes(), old);
        assert_eq!(
            from_file(&image, 60).unwrap_err().code,
            CUDA_ERROR_NO_BINARY_FOR_GPU
        );
    }

    #[test]
    fn zstandard_is_unpacked() {
        let packed = ruzstd::encoding::compress_to_vec(
            TEXT,
            ruzstd::encoding::CompressionLevel::Uncompressed,
        );
        let image = container(&[entry(1, 80, FLAG_ZSTD, &packed, TEXT.len())]);
        assert_eq!(best_ptx(&Contents(&image), 80).unwrap().as_bytes(), TEXT);
    }

    #[test]
    fn broken_containers_are_refused() {
        let image = container(&[entry(1, 80, FLAG_LZ4, &[0xff; 32], 1 << 20)]);
        for length in 0..image.len() {
            assert!(best_ptx(&Contents(&image[..length]), 80).is_err());
        }
        let refused = best_ptx(&Contents(&image), 80).unwrap_err();
        assert_eq!(refused.code, CUDA_ERROR_INVALID_IMAGE);
    }
}
