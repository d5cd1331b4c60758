// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The objects that the dynamic linker has loaded into this process.

use std::ffi::{CStr, OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// A loaded executable or shared library.
#[derive(Debug)]
pub struct LoadedObject {
    /// Its file: `/proc/self/exe` for the executable.
    pub path: PathBuf,
    /// The load bias of the file's addresses.
    pub base: u64,
    /// Its executable segments in memory: first byte, length, protection.
    pub text: Vec<(u64, u64, c_int)>,
    /// The program headers as loaded, to compare with the file's.
    pub headers: Vec<u8>,
    /// Whether it is the program itself.
    pub is_executable: bool,
}

impl LoadedObject {
    /// The protection of the executable segment that holds `length` bytes from `address` on.
    pub fn text_protection(&self, address: u64, length: u64) -> Option<c_int> {
        let holds = |&&(start, size, _): &&(u64, u64, c_int)| {
            address >= start && address.saturating_add(length) <= start + size
        };
        self.text
            .iter()
            .find(holds)
            .map(|&(_, _, protection)| protection)
    }

    /// Whether the object was loaded from this file: a program can be replaced on disk while it starts.
    pub fn was_loaded_from(&self, file: &[u8]) -> bool {
        // e_phoff, at offset 32 of a 64-bit ELF header.
        let offset = file
            .get(32..40)
            .and_then(|bytes| bytes.try_into().ok())
            .map(u64::from_le_bytes);
        offset
            .and_then(|offset| file.get(usize::try_from(offset).ok()?..))
            .is_some_and(|headers| headers.starts_with(&self.headers))
    }
}

/// The program and its shared libraries, in the order of loading.
pub fn loaded_objects() -> Vec<LoadedObject> {
    unsafe extern "C" fn visit(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        objects: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid entry that stays so during the call, and `objects` is the vector below,
        // which no other code borrows meanwhile.
        let (info, objects) = unsafe { (&*info, &mut *objects.cast::<Vec<LoadedObject>>()) };
        if info.dlpi_phdr.is_null() {
            return 0;
        }
        // SAFETY: dlpi_phdr points to dlpi_phnum headers of the loaded object, mapped as long as it is.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        // SAFETY: the name is a terminated string, or null for some objects without a file.
        let name = (!info.dlpi_name.is_null()).then(|| unsafe { CStr::from_ptr(info.dlpi_name) });
        let is_executable = objects.is_empty();
        let path = match name.map(CStr::to_bytes) {
            _ if is_executable => PathBuf::from("/proc/self/exe"),
            Some(bytes) => PathBuf::from(OsStr::from_bytes(bytes)),
            None => PathBuf::new(),
        };
        let text = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0)
            .map(|header| {
                let mut protection = libc::PROT_EXEC;
                if header.p_flags & libc::PF_R != 0 {
                    protection |= libc::PROT_READ;
                }
                (
                    info.dlpi_addr.wrapping_add(header.p_vaddr),
                    header.p_memsz,
                    protection,
                )
            })
            .collect();
        // SAFETY: the same memory, seen as bytes; the headers are plain integers without padding.
        let bytes = unsafe {
            std::slice::from_raw_parts(info.dlpi_phdr.cast::<u8>(), size_of_val(headers))
        };
        let headers = bytes.to_vec();
        objects.push(LoadedObject {
            path,
            base: info.dlpi_addr,
            text,
            headers,
            is_executable,
        });
        0
    }

    let mut objects: Vec<LoadedObject> = Vec::new();
    // SAFETY: `visit` has the signature that dl_iterate_phdr asks for and gets the vector that it expects.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut objects).cast()) };
    objects
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::Image;

    #[test]
    fn the_program_comes_first_and_is_its_own_file() {
        let objects = loaded_objects();
        assert!(objects[0].is_executable);
        assert!(objects.iter().skip(1).all(|object| !object.is_executable));
        let image = Image::open(&objects[0].path).unwrap();
        assert!(objects[0].was_loaded_from(image.bytes()));
        let other = Image::open(&std::path::PathBuf::from("/bin/sh")).unwrap();
        assert!(!objects[0].was_loaded_from(other.bytes()));
        let here = the_program_comes_first_and_is_its_own_file as fn() as usize as u64;
        assert!(objects[0].text_protection(here, 14).is_some());
        assert_eq!(objects[0].text_protection(0, 14), None);
    }
}
