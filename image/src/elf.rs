// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! ELF as NVIDIA's tools write it: 64 bits, little-endian.

use super::Broken;

pub const SYMBOL_BYTES: u64 = 24;
const SECTION_BYTES: u64 = 64;

pub const SHT_SYMTAB: u32 = 2;
/// `.nv.callgraph`.
pub const SHT_CUDA_CALLGRAPH: u32 = 0x7000_0001;

/// In place of a section's index: the index is in the first section header.
const SHN_XINDEX: u16 = 0xffff;

/// A section's header.
pub struct Section {
    name: u32,
    pub kind: u32,
    pub flags: u64,
    pub offset: u64,
    pub bytes: u64,
    pub link: u32,
    pub alignment: u64,
}

/// A file. Only its class was checked.
pub struct Elf<'a>(&'a [u8]);

/// The headers of a file's sections.
pub struct Sections<'a> {
    elf: &'a Elf<'a>,
    table: u64,
    count: u64,
    names: Option<Section>,
}

impl<'a> Elf<'a> {
    pub fn new(bytes: &'a [u8]) -> Result<Self, Broken> {
        let elf = Self(bytes);
        match elf.word(4)? {
            [2, 1] => Ok(elf),
            _ => Err(Broken::new("the cubin is not 64-bit")),
        }
    }

    /// Bytes whose class the caller checks.
    pub fn any(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The size of the file in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn word<const N: usize>(&self, offset: u64) -> Result<[u8; N], Broken> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let end = offset.checked_add(N);
        end.and_then(|end| self.0.get(offset..end)?.try_into().ok())
            .ok_or_else(|| Broken::new("the cubin ends early"))
    }

    pub fn u16(&self, offset: u64) -> Result<u16, Broken> {
        self.word(offset).map(u16::from_le_bytes)
    }

    pub fn u32(&self, offset: u64) -> Result<u32, Broken> {
        self.word(offset).map(u32::from_le_bytes)
    }

    pub fn u64(&self, offset: u64) -> Result<u64, Broken> {
        self.word(offset).map(u64::from_le_bytes)
    }

    /// The offset of an element of a table. The whole table must be in the file.
    pub fn place(&self, table: u64, index: u64, size: u64) -> Result<u64, Broken> {
        let place = || {
            let at = index.checked_mul(size)?.checked_add(table)?;
            (at.checked_add(size)? <= self.0.len() as u64).then_some(at)
        };
        place().ok_or_else(|| Broken::new("a header of the cubin leaves it"))
    }

    fn section(&self, table: u64, index: u64) -> Result<Section, Broken> {
        let at = self.place(table, index, SECTION_BYTES)?;
        Ok(Section {
            name: self.u32(at)?,
            kind: self.u32(at + 4)?,
            flags: self.u64(at + 8)?,
            offset: self.u64(at + 24)?,
            bytes: self.u64(at + 32)?,
            link: self.u32(at + 40)?,
            alignment: self.u64(at + 48)?,
        })
    }

    /// The sections; none if the file has no table of them.
    pub fn sections(&'a self) -> Result<Sections<'a>, Broken> {
        let table = self.u64(40)?;
        if table == 0 {
            return Ok(Sections {
                elf: self,
                table,
                count: 0,
                names: None,
            });
        }
        // A reader may use the size of a header in the file, or the size that it knows.
        if u64::from(self.u16(58)?) != SECTION_BYTES {
            return Err(Broken::new("the headers of the cubin have an unknown size"));
        }
        // If the number of sections does not fit into 16 bits, it is in the first header, as is the index of the
        // section with the names.
        let first = self.section(table, 0)?;
        let count = match self.u16(60)? {
            0 => first.bytes,
            count => count.into(),
        };
        let names = match self.u16(62)? {
            SHN_XINDEX => first.link.into(),
            index => u64::from(index),
        };
        Ok(Sections {
            elf: self,
            table,
            count,
            names: Some(self.section(table, names)?),
        })
    }

    /// The bytes from an offset in a section of names on: the name, and the rest of the file.
    pub fn name_and_rest(&self, names: &Section, offset: u32) -> Result<&'a [u8], Broken> {
        let at = names.offset.checked_add(offset.into());
        at.and_then(|at| self.0.get(usize::try_from(at).ok()?..))
            .ok_or_else(|| Broken::new("a name is not in the cubin"))
    }
}

impl Sections<'_> {
    /// Iterates over the sections.
    pub fn each(&self) -> impl Iterator<Item = Result<Section, Broken>> {
        (0..self.count).map(|index| self.get(index))
    }

    /// The section with this index.
    pub fn get(&self, index: u64) -> Result<Section, Broken> {
        self.elf.section(self.table, index)
    }

    /// A section's name, and everything that follows it in the file.
    pub fn name(&self, section: &Section) -> Result<&[u8], Broken> {
        let names = self.names.as_ref();
        let names = names.ok_or_else(|| Broken::new("the sections of the cubin have no names"))?;
        self.elf.name_and_rest(names, section.name)
    }
}
