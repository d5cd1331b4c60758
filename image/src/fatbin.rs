// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The container that nvcc's `fatbinary` writes. Its layout is not documented; this description is based on its output.
//!
//! A header of 16 bytes (magic, version, header size, size of the rest), then entries: a header whose second word is
//! its own size, then the payload. PTX is kind 1, a cubin kind 2; the payload may be compressed with LZ4 or Zstandard.

use std::borrow::Cow;

use super::{Broken, Contents, Source};

/// The first word of the wrapper that `__cudaRegisterFatBinary` gets.
pub const WRAPPER_MAGIC: u32 = 0x4662_43b1;
/// First word of the container.
pub const CONTAINER_MAGIC: u32 = 0xba55_ed50;

/// The size of the container's header in bytes.
pub const HEADER_BYTES: usize = 16;
/// The size of the known part of an entry's header in bytes.
pub const ENTRY_BYTES: usize = 64;
const KIND_PTX: u16 = 1;
const KIND_CUBIN: u16 = 2;
/// The payload is compressed with LZ4.
pub const FLAG_LZ4: u64 = 0x2000;
/// The payload is compressed with Zstandard.
pub const FLAG_ZSTD: u64 = 0x8000;
/// A bound far above the size of any program's code, and the largest image that a worker takes. A larger size means a
/// broken image.
const MOST_BYTES: usize = 2 << 30;
/// The maximum size of an unpacked entry, in bytes: a few compressed bytes can claim, and contain, any number. It is
/// far above the size of one architecture's code in NVIDIA's largest libraries.
pub const MOST_UNPACKED: usize = 256 << 20;
/// The maximum number of entries. A container has one for each architecture and source file.
const MOST_ENTRIES: usize = 1 << 16;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// PTX text, for the driver's compiler.
    Ptx,
    /// Code for one architecture.
    Cubin,
    /// Something else.
    Other,
}

/// An entry of a container.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// The compute capability that it requires, times ten.
    pub arch: u32,
    flags: u64,
    compressed: usize,
    decompressed: usize,
    /// The offset of its header.
    start: usize,
    payload: usize,
    payload_bytes: usize,
}

fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("a fixed offset in a fixed header")
}

fn size(value: u64) -> Result<usize, Broken> {
    usize::try_from(value)
        .ok()
        .filter(|s| *s <= MOST_BYTES)
        .ok_or_else(|| Broken::new("a size in the fatbin is too large"))
}

/// The offset of the end of a container.
///
/// # Errors
/// It is none, or broken.
pub fn end<S: Source>(source: &S) -> Result<usize, S::Error> {
    let (at, bytes) = header(source)?;
    Ok(at + bytes)
}

/// The size of a container's header, and of the rest.
fn header<S: Source>(source: &S) -> Result<(usize, usize), S::Error> {
    let header = source.bytes(0, HEADER_BYTES)?;
    if u32::from_le_bytes(field(&header, 0)) != CONTAINER_MAGIC {
        return Err(Broken::new("not a fatbin").into());
    }
    let header_bytes = u16::from_le_bytes(field(&header, 6)).into();
    Ok((header_bytes, size(u64::from_le_bytes(field(&header, 8)))?))
}

/// The entries of a container.
///
/// # Errors
/// It is none, or broken.
pub fn entries<S: Source>(source: &S) -> Result<Vec<Entry>, S::Error> {
    let (mut at, bytes) = header(source)?;
    let end = at + bytes;
    let mut entries = Vec::new();
    while at + ENTRY_BYTES <= end {
        let entry = source.bytes(at, ENTRY_BYTES)?;
        let header_bytes = size(u64::from(u32::from_le_bytes(field(&entry, 4))))?;
        let payload_bytes = size(u64::from_le_bytes(field(&entry, 8)))?;
        if header_bytes < ENTRY_BYTES || at + header_bytes + payload_bytes > end {
            return Err(Broken::new("an entry of the fatbin leaves it").into());
        }
        if entries.len() >= MOST_ENTRIES {
            return Err(Broken::new("the fatbin has too many entries").into());
        }
        entries.push(Entry {
            kind: match u16::from_le_bytes(field(&entry, 0)) {
                KIND_PTX => Kind::Ptx,
                KIND_CUBIN => Kind::Cubin,
                _ => Kind::Other,
            },
            arch: u32::from_le_bytes(field(&entry, 28)),
            flags: u64::from_le_bytes(field(&entry, 40)),
            compressed: u32::from_le_bytes(field(&entry, 16)) as usize,
            decompressed: size(u64::from_le_bytes(field(&entry, 56)))?,
            start: at,
            payload: at + header_bytes,
            payload_bytes,
        });
        at += header_bytes + payload_bytes;
    }
    Ok(entries)
}

/// The bytes of memory that [`Entry::unpack`] allocates at most for any one entry of a container.
pub fn most_unpacked(image: &[u8]) -> usize {
    let entries = entries(&Contents(image)).unwrap_or_default();
    let unpacked = entries.iter().map(|entry| entry.decompressed);
    // Others are refused.
    unpacked
        .filter(|bytes| *bytes <= MOST_UNPACKED)
        .max()
        .unwrap_or(0)
}

/// A container with only the entries for which `is_kept` is true. `None` if these are all or none.
pub fn with(image: &[u8], entries: &[Entry], is_kept: impl Fn(&Entry) -> bool) -> Option<Vec<u8>> {
    let kept: Vec<_> = entries.iter().filter(|entry| is_kept(entry)).collect();
    if kept.is_empty() || kept.len() == entries.len() {
        return None;
    }
    let header = image.get(..entries.first()?.start)?;
    let parts = kept.iter().map(|entry| image.get(entry.start..entry.end()));
    let parts = parts.collect::<Option<Vec<_>>>()?;
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut container = Vec::with_capacity(header.len() + length);
    container.extend_from_slice(header);
    container[8..16].copy_from_slice(&(length as u64).to_le_bytes());
    parts
        .iter()
        .for_each(|part| container.extend_from_slice(part));
    Some(container)
}

impl Entry {
    /// Whether a device of one of these compute capabilities (times ten) can use it. That is machine code of its major
    /// version and no higher minor version, text of no higher version, and anything else.
    pub fn is_useful(&self, capabilities: &[u32]) -> bool {
        let can_run = |capability: &u32| match self.kind {
            Kind::Cubin => self.is_code_for(*capability),
            Kind::Ptx => self.arch <= *capability,
            Kind::Other => true,
        };
        capabilities.iter().any(can_run)
    }

    /// Whether it is machine code that a device of this compute capability (times ten) can run.
    pub fn is_code_for(&self, capability: u32) -> bool {
        let is_same = self.arch / 10 == capability / 10;
        self.kind == Kind::Cubin && self.arch <= capability && is_same
    }

    /// Its payload as it is in the container.
    ///
    /// # Errors
    /// The container leaves the image, or the compressed bytes leave the payload.
    pub fn raw<'a>(&self, image: &Contents<'a>) -> Result<&'a [u8], Broken> {
        if self.flags & (FLAG_LZ4 | FLAG_ZSTD) != 0 && self.compressed > self.payload_bytes {
            return Err(Broken::new("a compressed entry leaves its payload"));
        }
        image.part(self.payload, self.payload_bytes)
    }

    /// The offset up to which its header names strings: the compiler's options, which a NUL ends, and a file's name.
    ///
    /// # Errors
    /// The header is not in the image.
    pub fn strings_end(&self, image: &Contents<'_>) -> Result<u64, Broken> {
        let header = image.part(self.start, ENTRY_BYTES)?;
        let [options, name, bytes] =
            [20, 32, 36].map(|at| u64::from(u32::from_le_bytes(field(header, at))));
        Ok(self.start as u64 + options.max(name + bytes))
    }

    /// The offset of its end.
    pub fn end(&self) -> usize {
        self.payload + self.payload_bytes
    }

    /// Its payload, decompressed. Allocates at most [`MOST_UNPACKED`] bytes, if the source allocates none.
    ///
    /// # Errors
    /// It is broken, or larger.
    pub fn unpack<'a, S: Source>(&self, source: &'a S) -> Result<Cow<'a, [u8]>, S::Error> {
        match self.flags & (FLAG_LZ4 | FLAG_ZSTD) {
            0 if self.decompressed == 0 => return source.bytes(self.payload, self.payload_bytes),
            FLAG_LZ4 | FLAG_ZSTD => {}
            _ => return Err(Broken::new("unknown compression of an entry").into()),
        }
        if self.compressed > self.payload_bytes {
            return Err(Broken::new("a compressed entry leaves its payload").into());
        }
        if self.decompressed > MOST_UNPACKED {
            return Err(Broken::new("an entry of the fatbin is too large to unpack").into());
        }
        let packed = source.bytes(self.payload, self.compressed)?;
        let plain = self.decompress(&packed)?;
        // Another reader would see more, or less.
        if plain.len() != self.decompressed {
            return Err(Broken::new("an entry has another size than its header says").into());
        }
        Ok(Cow::Owned(plain))
    }

    fn decompress(&self, packed: &[u8]) -> Result<Vec<u8>, Broken> {
        if self.flags & FLAG_LZ4 != 0 {
            return lz4_flex::block::decompress(packed, self.decompressed)
                .map_err(|error| Broken(format!("LZ4: {error}")));
        }
        let broken = |code| Broken(format!("Zstandard: {}", zstd_safe::get_error_name(code)));
        // Some readers stop after the first frame, and others do not.
        if zstd_safe::find_frame_compressed_size(packed).map_err(broken)? != packed.len() {
            return Err(Broken::new("a compressed entry is more than one frame"));
        }
        let mut plain = Vec::with_capacity(self.decompressed);
        zstd_safe::decompress(&mut plain, packed).map_err(broken)?;
        Ok(plain)
    }
}
