// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device memory of a cubin.
//!
//! A cubin is an ELF file with NVIDIA's own sections. The driver's criteria are not completely known: a section counts
//! if its flags, its type or its name indicate that it is loaded.

use super::{
    Broken,
    elf::{Elf, SHT_CUDA_CALLGRAPH, SHT_SYMTAB, SYMBOL_BYTES, Section},
};

/// The unit in which sections are placed, in bytes.
pub const UNIT: u64 = 4096;

const SEGMENT_BYTES: u64 = 56;

const SHT_NULL: u32 = 0;
const SHT_PROGBITS: u32 = 1;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
const SHT_NOTE: u32 = 7;
const SHT_REL: u32 = 9;
/// `.nv.info`, and `.nv.info.k` for a kernel `k`.
const SHT_CUDA_INFO: u32 = 0x7000_0000;
const SHT_CUDA_PROTOTYPE: u32 = 0x7000_0002;
const SHT_CUDA_RELOCINFO: u32 = 0x7000_000b;
const SHT_CUDA_COMPAT: u32 = 0x7000_0086;
/// Relocations, `.nv.info` and symbols of Mercury code, which the driver compiles further.
const SHT_CUDA_MERCURY: [u32; 3] = [0x7000_0082, 0x7000_0083, 0x7000_0085];
const SHF_ALLOC: u64 = 2;

/// The flag of a variable in managed memory in a symbol's `st_other`.
const STO_CUDA_MANAGED: u8 = 4;

const PT_NULL: u32 = 0;
const PT_NOTE: u32 = 4;
const PT_PHDR: u32 = 6;

/// In place of a section's index: memory of the symbol itself, which the loader allocates.
const SHN_COMMON: u16 = 0xfff2;

/// The prefixes of the names of sections in device memory.
const LOADED: &[&[u8]] = &[
    b".nv.global",
    b".nv.constant",
    b".nv.shared",
    b".nv.local",
    b".text",
];

/// The device memory of a cubin, in bytes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// Its sections, or its segments if those are larger.
    pub all: u64,
    /// Its variables of managed memory.
    pub managed: u64,
}

/// The device memory of a cubin.
///
/// # Errors
/// It is broken, or of a form that NVIDIA's tools do not write.
pub fn taken(elf: &[u8]) -> Result<Taken, Broken> {
    let elf = Elf::new(elf)?;
    let mut taken = elf.by_section()?;
    taken.all = taken.all.max(elf.by_segment()?);
    Ok(taken)
}

/// Sizes are rounded up to whole units, or to the alignment.
fn placed(bytes: u64, alignment: u64) -> u64 {
    bytes
        .checked_next_multiple_of(alignment.max(UNIT))
        .unwrap_or(u64::MAX)
}

impl Elf<'_> {
    fn by_section(&self) -> Result<Taken, Broken> {
        let sections = self.sections()?;
        let mut taken = Taken::default();
        let mut add = |bytes| taken.all = taken.all.saturating_add(bytes);
        for section in sections.each() {
            let section = section?;
            if self.is_loaded(&section, sections.name(&section)?) {
                add(placed(section.bytes, section.alignment));
            }
            if section.kind == SHT_SYMTAB {
                add(self.common(&section)?);
                let managed = self.managed(&section)?;
                taken.managed = taken.managed.saturating_add(managed);
            }
        }
        Ok(taken)
    }

    fn is_loaded(&self, section: &Section, name: &[u8]) -> bool {
        match section.kind {
            SHT_NULL => false,
            _ if section.flags & SHF_ALLOC != 0 => true,
            _ if LOADED.iter().any(|prefix| name.starts_with(prefix)) => true,
            // The driver does not load debug information, names and relocations into the device.
            SHT_PROGBITS | SHT_SYMTAB | SHT_STRTAB | SHT_RELA | SHT_REL | SHT_NOTE => false,
            SHT_CUDA_INFO | SHT_CUDA_CALLGRAPH | SHT_CUDA_PROTOTYPE | SHT_CUDA_RELOCINFO
            | SHT_CUDA_COMPAT => false,
            kind if SHT_CUDA_MERCURY.contains(&kind) => false,
            // Memory without contents, and any unknown type.
            _ => true,
        }
    }

    /// Sums the results of `bytes` for each symbol, given its offset.
    fn of_symbols(
        &self,
        symbols: &Section,
        bytes: impl Fn(u64) -> Result<u64, Broken>,
    ) -> Result<u64, Broken> {
        let mut all = 0_u64;
        for index in 0..symbols.bytes / SYMBOL_BYTES {
            let at = self.place(symbols.offset, index, SYMBOL_BYTES)?;
            all = all.saturating_add(bytes(at)?);
        }
        Ok(all)
    }

    /// The bytes of the symbols that have their own memory.
    fn common(&self, symbols: &Section) -> Result<u64, Broken> {
        self.of_symbols(symbols, |at| match self.u16(at + 6)? {
            // The value of such a symbol is its alignment.
            SHN_COMMON => Ok(placed(self.u64(at + 16)?, self.u64(at + 8)?)),
            _ => Ok(0),
        })
    }

    /// The bytes of the symbols that are variables of managed memory.
    fn managed(&self, symbols: &Section) -> Result<u64, Broken> {
        self.of_symbols(symbols, |at| {
            let [_, other] = self.word(at + 4)?;
            match other & STO_CUDA_MANAGED {
                0 => Ok(0),
                _ => self.u64(at + 16),
            }
        })
    }

    fn by_segment(&self) -> Result<u64, Broken> {
        let (table, count) = (self.u64(32)?, self.u16(56)?);
        if count != 0 && u64::from(self.u16(54)?) != SEGMENT_BYTES {
            return Err(Broken::new("the headers of the cubin have an unknown size"));
        }
        let mut all = 0_u64;
        for index in 0..count {
            let at = self.place(table, index.into(), SEGMENT_BYTES)?;
            if !matches!(self.u32(at)?, PT_NULL | PT_NOTE | PT_PHDR) {
                all = all.saturating_add(placed(self.u64(at + 40)?, self.u64(at + 48)?));
            }
        }
        Ok(all)
    }
}
