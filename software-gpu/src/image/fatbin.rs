//! The container that nvcc's `fatbinary` writes. Its layout is not documented; what is here was seen in its output.
//!
//! A header of 16 bytes (magic, version, header size, size of what follows), then entries: a header whose own size is its
//! second word, then the payload. PTX is kind 1, a cubin kind 2; the payload may be compressed with LZ4 or Zstandard.

use std::io::Read;

use gpgpu_protocol::cuda::CUDA_ERROR_NO_BINARY_FOR_GPU;

use super::{Refused, Source};

/// First word of the wrapper that `__cudaRegisterFatBinary` gets.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// First word of the container.
pub const CONTAINER_MAGIC: u32 = 0xba55_ed50;
/// First word of a cubin.
pub const ELF_MAGIC: u32 = u32::from_le_bytes(*b"\x7fELF");

const HEADER_BYTES: usize = 16;
const ENTRY_BYTES: usize = 64;
const KIND_PTX: u16 = 1;
const FLAG_LZ4: u64 = 0x2000;
const FLAG_ZSTD: u64 = 0x8000;
/// No program's code comes near; a size beyond it is a broken image.
const MOST_BYTES: usize = 1 << 30;

struct Entry {
    arch: u32,
    flags: u64,
    compressed: usize,
    decompressed: usize,
    payload: usize,
    payload_bytes: usize,
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("a fixed offset in a fixed header")
}

fn size(value: u64) -> Result<usize, Refused> {
    usize::try_from(value)
        .ok()
        .filter(|s| *s <= MOST_BYTES)
        .ok_or_else(|| Refused::invalid("a size in the fatbin is too large"))
}

/// The text of the PTX entry for the highest target that a device of `capability` can run.
pub(super) fn best_ptx(source: &impl Source, capability: u32) -> Result<String, Refused> {
    let header = source.bytes(0, HEADER_BYTES)?;
    if u32::from_le_bytes(field(&header, 0)) != CONTAINER_MAGIC {
        return Err(Refused::invalid("not a fatbin"));
    }
    let mut at = usize::from(u16::from_le_bytes(field(&header, 6)));
    let end = at + size(u64::from_le_bytes(field(&header, 8)))?;
    let mut best: Option<Entry> = None;
    let mut others = 0;
    while at + ENTRY_BYTES <= end {
        let entry = source.bytes(at, ENTRY_BYTES)?;
        let header_bytes = size(u64::from(u32::from_le_bytes(field(&entry, 4))))?;
        let payload_bytes = size(u64::from_le_bytes(field(&entry, 8)))?;
        if header_bytes < ENTRY_BYTES || at + header_bytes + payload_bytes > end {
            return Err(Refused::invalid("an entry of the fatbin leaves it"));
        }
        let arch = u32::from_le_bytes(field(&entry, 28));
        let is_ptx = u16::from_le_bytes(field(&entry, 0)) == KIND_PTX;
        if is_ptx && arch <= capability && best.as_ref().is_none_or(|b| b.arch < arch) {
            best = Some(Entry {
                arch,
                flags: u64::from_le_bytes(field(&entry, 40)),
                compressed: size(u64::from(u32::from_le_bytes(field(&entry, 16))))?,
                decompressed: size(u64::from_le_bytes(field(&entry, 56)))?,
                payload: at + header_bytes,
                payload_bytes,
            });
        } else {
            others += 1;
        }
        at += header_bytes + payload_bytes;
    }
    let best = best.ok_or_else(|| {
        let message = format!(
            "no PTX for compute_{capability} or lower among {others} entries; build with code=compute_80"
        );
        Refused::new(CUDA_ERROR_NO_BINARY_FOR_GPU, message)
    })?;
    super::as_text(&unpack(source, &best)?)
}

fn unpack(source: &impl Source, entry: &Entry) -> Result<Vec<u8>, Refused> {
    if entry.flags & (FLAG_LZ4 | FLAG_ZSTD) == 0 {
        return source.bytes(entry.payload, entry.payload_bytes);
    }
    if entry.compressed > entry.payload_bytes {
        return Err(Refused::invalid("a compressed entry leaves its payload"));
    }
    let packed = source.bytes(entry.payload, entry.compressed)?;
    if entry.flags & FLAG_LZ4 != 0 {
        return lz4_flex::block::decompress(&packed, entry.decompressed)
            .map_err(|e| Refused::invalid(&format!("LZ4: {e}")));
    }
    let broken = |e: &dyn std::fmt::Display| Refused::invalid(&format!("Zstandard: {e}"));
    let mut text = Vec::new();
    ruzstd::decoding::StreamingDecoder::new(packed.as_slice())
        .map_err(|e| broken(&e))?
        .take(entry.decompressed as u64)
        .read_to_end(&mut text)
        .map_err(|e| broken(&e))?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::super::{Contents, from_file};
    use super::*;
    use gpgpu_protocol::cuda::CUDA_ERROR_INVALID_IMAGE;

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
