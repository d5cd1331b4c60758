// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Whether everything that the headers of an image name lies in the image.
//!
//! `cuModuleLoadData` gets no length, so NVIDIA's driver believes the headers, and would read the memory behind a short
//! image. Only headers are read here. What the driver finds by the contents of a section is its own concern.

use super::{
    Broken, Contents, ELF_MAGIC,
    elf::Elf,
    fatbin::{self, CONTAINER_MAGIC, HEADER_BYTES},
};

const SHT_NULL: u32 = 0;
/// Sections without bytes in the file: the usual kind, and NVIDIA's own for variables, local memory, shared memory, and
/// reserved shared memory. ptxas writes the latter into relocatable code from compute capability 10.0 on.
pub const WITHOUT_BYTES: [u32; 5] = [8, 0x7000_0007, 0x7000_0009, 0x7000_000a, 0x7000_0015];

/// In place of the number of segments: it is in the first section's header. No cubin has so many.
const PN_XNUM: u16 = 0xffff;
/// In place of a section's index: the index is in the first section's header.
const SHN_XINDEX: u16 = 0xffff;

/// The layout of a class of ELF files: the offsets of fields, and the sizes of headers.
struct Class {
    is_long: bool,
    segments: u64,
    sections: u64,
    /// Five numbers of 16 bits: the size and number of segments' headers, the same of sections, and the index of the
    /// section with their names.
    counts: u64,
    segment: u64,
    segment_offset: u64,
    segment_bytes: u64,
    section: u64,
    section_offset: u64,
    section_bytes: u64,
    section_link: u64,
}

const LONG: Class = Class {
    is_long: true,
    segments: 32,
    sections: 40,
    counts: 54,
    segment: 56,
    segment_offset: 8,
    segment_bytes: 32,
    section: 64,
    section_offset: 24,
    section_bytes: 32,
    section_link: 40,
};

const SHORT: Class = Class {
    is_long: false,
    segments: 28,
    sections: 32,
    counts: 42,
    segment: 32,
    segment_offset: 4,
    segment_bytes: 16,
    section: 40,
    section_offset: 16,
    section_bytes: 20,
    section_link: 24,
};

fn leaves() -> Broken {
    Broken::new("a header of the image names bytes outside of it")
}

/// Checks a fatbin with its entries, or a cubin. A compressed entry is not unpacked. Any other image is text, which the
/// caller ends with a NUL, or has a form that is not known.
///
/// # Errors
/// A header names bytes outside of the image, or two readers may see the headers differently.
pub fn check(image: &[u8]) -> Result<(), Broken> {
    match image.first_chunk().map(|magic| u32::from_le_bytes(*magic)) {
        Some(CONTAINER_MAGIC) => container(image),
        Some(ELF_MAGIC) => elf(image),
        _ => Ok(()),
    }
}

fn container(image: &[u8]) -> Result<(), Broken> {
    let source = Contents(image);
    if source.part(6, 2)? != (HEADER_BYTES as u16).to_le_bytes() {
        return Err(Broken::new("the header of the fatbin has an unknown size"));
    }
    let mut end = HEADER_BYTES;
    for entry in fatbin::entries(&source)? {
        let payload = entry.raw(&source)?;
        if entry.strings_end(&source)? > image.len() as u64 {
            return Err(leaves());
        }
        if payload.starts_with(&ELF_MAGIC.to_le_bytes()) {
            elf(payload)?;
        }
        end = entry.end();
    }
    // A reader may take what is left for one more entry.
    if end < fatbin::end(&source)? {
        source.part(end, fatbin::ENTRY_BYTES)?;
    }
    Ok(())
}

/// Checks an ELF file.
///
/// # Errors
/// As for [`check`].
pub fn elf(bytes: &[u8]) -> Result<(), Broken> {
    let elf = Elf::any(bytes);
    let class = match elf.word(4)? {
        [2, 1] => &LONG,
        // The driver no longer runs such code, but old fatbins may contain it.
        [1, 1] => &SHORT,
        _ => return Err(Broken::new("the cubin is no ELF file of a known class")),
    };
    let file = File { elf, class };
    // The file header is complete: this is its end.
    file.count(4)?;
    file.segments()?;
    file.sections()
}

/// A file with its layout.
struct File<'a> {
    elf: Elf<'a>,
    class: &'static Class,
}

impl File<'_> {
    fn word(&self, at: u64) -> Result<u64, Broken> {
        match self.class.is_long {
            true => self.elf.u64(at),
            false => self.elf.u32(at).map(u64::from),
        }
    }

    /// One of the numbers of 16 bits.
    fn count(&self, index: u64) -> Result<u16, Broken> {
        self.elf.u16(self.class.counts + 2 * index)
    }

    fn inside(&self, offset: u64, bytes: u64) -> Result<(), Broken> {
        let end = offset.checked_add(bytes).ok_or_else(leaves)?;
        match bytes == 0 || end <= self.elf.bytes() {
            true => Ok(()),
            false => Err(leaves()),
        }
    }

    /// The offset of a table, which the file header has at `at`; `None` if there is none.
    fn table(&self, at: u64, size: u16, count: u16, expected: u64) -> Result<Option<u64>, Broken> {
        match self.word(at)? {
            0 if count == 0 => Ok(None),
            0 => Err(Broken::new("the cubin has headers without a table")),
            _ if u64::from(size) != expected => {
                Err(Broken::new("the headers of the cubin have an unknown size"))
            }
            table => Ok(Some(table)),
        }
    }

    fn segments(&self) -> Result<(), Broken> {
        let (class, count) = (self.class, self.count(1)?);
        if count == PN_XNUM {
            return Err(Broken::new("the cubin has too many segments"));
        }
        if count == 0 {
            return Ok(());
        }
        let table = self.table(class.segments, self.count(0)?, count, class.segment)?;
        let table = table.ok_or_else(leaves)?;
        for index in 0..count.into() {
            let at = self.elf.place(table, index, class.segment)?;
            self.inside(
                self.word(at + class.segment_offset)?,
                self.word(at + class.segment_bytes)?,
            )?;
        }
        Ok(())
    }

    fn sections(&self) -> Result<(), Broken> {
        let (class, count) = (self.class, self.count(3)?);
        let Some(table) = self.table(class.sections, self.count(2)?, count, class.section)? else {
            return Ok(());
        };
        let header = |index| self.elf.place(table, index, class.section);
        let range = |at| -> Result<(u64, u64), Broken> {
            Ok((
                self.word(at + class.section_offset)?,
                self.word(at + class.section_bytes)?,
            ))
        };
        // Numbers that do not fit into 16 bits are in the first header.
        let first = header(0)?;
        let count = match count {
            0 => self.word(first + class.section_bytes)?,
            count => count.into(),
        };
        let names = match self.count(4)? {
            SHN_XINDEX => self.elf.u32(first + class.section_link)?.into(),
            index => u64::from(index),
        };
        let (names, names_bytes) = range(header(names)?)?;
        self.inside(names, names_bytes)?;
        if names_bytes > 0 && self.elf.word(names + names_bytes - 1)? != [0] {
            return Err(Broken::new("the last name in the cubin has no end"));
        }
        for index in 0..count {
            let at = header(index)?;
            let (name, kind) = (self.elf.u32(at)?, self.elf.u32(at + 4)?);
            if name != 0 && u64::from(name) >= names_bytes {
                return Err(leaves());
            }
            let is_number = index == 0 && kind == SHT_NULL;
            if !is_number && !WITHOUT_BYTES.contains(&kind) {
                let (offset, bytes) = range(at)?;
                self.inside(offset, bytes)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "bounds_tests.rs"]
mod tests;
