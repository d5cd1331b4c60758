//! What device memory an image takes once it is loaded: its variables, its constants and its code.
//!
//! The aim is a bound that is never below what the driver takes. Of a cubin everything counts that the driver loads, also
//! functions that it would load only at their first use. What code PTX becomes nobody knows before it is compiled: as many
//! bytes as twice the text are an estimate. Its variables are counted as they are declared.

use super::{Broken, Contents, ELF_MAGIC, fatbin, ptx};

/// The unit in which sections are placed, in bytes.
const UNIT: u64 = 4096;
/// What a loaded image takes beside its sections, in bytes.
const OVERHEAD: u64 = 32 << 10;

const SHF_ALLOC: u64 = 2;
const PT_LOAD: u32 = 1;

/// The bytes of device memory that an image takes on a device of this compute capability (times ten): of several that it
/// holds and that the device can run, the largest.
///
/// # Errors
/// It cannot be understood, so nobody can say what it takes.
pub fn device_bytes(image: &[u8], capability: u32) -> Result<u64, Broken> {
    let magic = image.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    match magic {
        Some(ELF_MAGIC) => cubin(image),
        Some(fatbin::WRAPPER_MAGIC) => Err(Broken::new("a pointer to an image is no image")),
        Some(fatbin::CONTAINER_MAGIC) => {
            let source = Contents(image);
            let mut most = 0;
            for entry in fatbin::entries(&source)? {
                if entry.arch > capability || entry.kind == fatbin::Kind::Other {
                    continue;
                }
                let held = entry.unpack(&source)?;
                most = most.max(match entry.kind {
                    fatbin::Kind::Cubin => cubin(&held)?,
                    _ => text(&held)?,
                });
            }
            Ok(most)
        }
        _ => text(image),
    }
}

fn text(bytes: &[u8]) -> Result<u64, Broken> {
    let end = bytes.iter().position(|byte| *byte == 0);
    let text = &bytes[..end.unwrap_or(bytes.len())];
    let variables = ptx::variables(text)?;
    Ok(variables.saturating_add(2 * text.len() as u64 + OVERHEAD))
}

fn word<const N: usize>(bytes: &[u8], offset: usize) -> Result<[u8; N], Broken> {
    let end = offset.checked_add(N);
    end.and_then(|end| bytes.get(offset..end)?.try_into().ok())
        .ok_or_else(|| Broken::new("the cubin ends early"))
}

/// The sections of a cubin that the driver loads, or its segments if those are more.
fn cubin(elf: &[u8]) -> Result<u64, Broken> {
    let u16_at = |at| word(elf, at).map(u16::from_le_bytes);
    let u32_at = |at| word(elf, at).map(u32::from_le_bytes);
    let u64_at = |at| word(elf, at).map(u64::from_le_bytes);
    let place = |start: u64, index: u64, size: u16| -> Result<usize, Broken> {
        index
            .checked_mul(u64::from(size))
            .and_then(|offset| offset.checked_add(start))
            .and_then(|at| usize::try_from(at).ok())
            .ok_or_else(|| Broken::new("a header of the cubin leaves it"))
    };
    if elf.get(4) != Some(&2) {
        return Err(Broken::new("the cubin is not of 64 bits"));
    }
    let (program, sections) = (u64_at(32)?, u64_at(40)?);
    let (program_size, program_count) = (u16_at(54)?, u16_at(56)?);
    let (section_size, section_count) = (u16_at(58)?, u16_at(60)?);
    if (sections != 0 && section_size < 64) || (program_count != 0 && program_size < 56) {
        return Err(Broken::new("the headers of the cubin are too small"));
    }
    // More sections than a half word can say are counted in the first.
    let section_count = match section_count {
        0 if sections != 0 => u64_at(place(sections, 0, section_size)? + 32)?,
        count => u64::from(count),
    };
    let placed = |bytes: u64| bytes.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX);
    let mut by_section = 0_u64;
    for index in 0..section_count {
        let at = place(sections, index, section_size)?;
        if u64_at(at + 8)? & SHF_ALLOC != 0 {
            by_section = by_section.saturating_add(placed(u64_at(at + 32)?));
        }
    }
    let mut by_segment = 0_u64;
    for index in 0..u64::from(program_count) {
        let at = place(program, index, program_size)?;
        if u32_at(at)? == PT_LOAD {
            by_segment = by_segment.saturating_add(placed(u64_at(at + 40)?));
        }
    }
    Ok(by_section.max(by_segment).saturating_add(OVERHEAD))
}

#[cfg(test)]
#[path = "size_tests.rs"]
mod tests;
