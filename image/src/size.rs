// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The device memory of a loaded image: its variables, its constants and its code.
//!
//! The result should be an upper bound of the driver's use. In a cubin all loaded sections count, including functions
//! that the driver would load only at their first use. The code of PTX is unknown before it is compiled, and is
//! estimated from its instructions. Its variables count as declared. Variables of managed memory count twice, plus
//! [`MANAGED_CHUNK`].

use super::{Broken, Contents, ELF_MAGIC, bounds, cubin, fatbin, ptx};

/// The memory of a loaded image besides its sections, in bytes.
const OVERHEAD: u64 = 32 << 10;

/// The size of the chunks in which the driver allocates managed memory (observed with driver 580 on an H200); it keeps
/// a chunk while a variable is in it. If it fills a chunk before it allocates another one, two consecutive chunks
/// together contain more than one chunk's bytes. So an image's variables take at most twice their bytes and one chunk.
pub const MANAGED_CHUNK: u64 = 128 << 20;

/// The memory that variables take beyond their own bytes if `managed` bytes of them are managed memory.
fn beside(managed: u64) -> u64 {
    match managed {
        0 => 0,
        bytes => bytes.saturating_add(MANAGED_CHUNK),
    }
}

/// The bytes of device memory that an image takes on a device of this compute capability (times ten). If it contains
/// several images that the device can run, the largest one counts.
///
/// # Errors
/// It is not understood, so its memory is unknown.
pub fn device_bytes(image: &[u8], capability: u32) -> Result<u64, Broken> {
    let magic = image.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    match magic {
        Some(fatbin::WRAPPER_MAGIC) => Err(Broken::new("a pointer to an image is no image")),
        Some(fatbin::CONTAINER_MAGIC) => {
            let source = Contents(image);
            let mut most = 0;
            for entry in fatbin::entries(&source)? {
                // Images for future devices can have any form.
                if entry.arch <= capability {
                    most = most.max(held(&entry.unpack(&source)?)?);
                }
            }
            Ok(most)
        }
        _ => contents(image),
    }
}

/// The memory of a fatbin's entry if the driver chooses it, whatever its declared kind is.
fn held(bytes: &[u8]) -> Result<u64, Broken> {
    let padding = bytes.iter().rev().take_while(|byte| **byte == 0).count();
    if is_cubin(bytes) {
        // It may have been compressed, and then was not checked before.
        bounds::elf(bytes)?;
    }
    // Its length is known, so the driver may read past a NUL.
    if !is_cubin(bytes) && bytes[..bytes.len() - padding].contains(&0) {
        return Err(Broken::new(
            "an entry of the fatbin is neither a cubin nor text",
        ));
    }
    contents(bytes)
}

fn is_cubin(bytes: &[u8]) -> bool {
    bytes.starts_with(&ELF_MAGIC.to_le_bytes())
}

/// The memory of a cubin or a text. The memory of any other image that a driver can load is unknown, so it is an error.
fn contents(bytes: &[u8]) -> Result<u64, Broken> {
    let (all, managed) = if is_cubin(bytes) {
        let taken = cubin::taken(bytes)?;
        (taken.all, taken.managed)
    } else {
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        let declared = ptx::declared(text)?;
        let all = declared.variables.saturating_add(declared.code);
        (all, declared.managed)
    };
    Ok(all.saturating_add(beside(managed)).saturating_add(OVERHEAD))
}

#[cfg(test)]
#[path = "size_tests.rs"]
mod tests;
