// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Finds a symbol of a mapped object in its dynamic symbol table, by the GNU hash table.

use std::ffi::c_char;

use crate::{LinkMap, equals, string_length};

const DT_NULL: i64 = 0;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_GNU_HASH: i64 = 0x6fff_fef5;

/// An entry of a dynamic section.
#[repr(C)]
pub struct Dynamic {
    tag: i64,
    value: usize,
}

/// An entry of a symbol table.
#[repr(C)]
pub struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// A symbol's value.
///
/// # Safety
/// It is null or a symbol.
pub unsafe fn value(symbol: *const Symbol) -> usize {
    // SAFETY: the caller's promise.
    unsafe { symbol.as_ref() }.map_or(0, |symbol| symbol.value)
}

/// The address of a symbol that the object defines; the object may be unrelocated.
///
/// # Safety
/// The entry is a mapped object's whose dynamic section and tables are sound.
pub unsafe fn find(map: &LinkMap, name: &[u8]) -> Option<usize> {
    // SAFETY: the caller's promise. The section ends with DT_NULL; the GNU hash table's layout is: the number of
    // buckets, the first symbol in it, the number of 64-bit words of a filter, a shift, the filter, the buckets, the
    // chains. A chain ends with an odd hash.
    unsafe {
        let (mut strings, mut symbols, mut hashes) = (0, 0, 0);
        let mut entry = map.dynamic;
        while !entry.is_null() && (*entry).tag != DT_NULL {
            match (*entry).tag {
                DT_STRTAB => strings = address(map, (*entry).value),
                DT_SYMTAB => symbols = address(map, (*entry).value),
                DT_GNU_HASH => hashes = address(map, (*entry).value),
                _ => {}
            }
            entry = entry.add(1);
        }
        if strings == 0 || symbols == 0 || hashes == 0 {
            return None;
        }
        let header = hashes as *const u32;
        let (buckets, first, words) = (*header, *header.add(1), *header.add(2));
        let bucket_table = header.add(4).add(2 * words as usize);
        let chains = bucket_table.add(buckets as usize);
        let wished = hash(name);
        let mut index = *bucket_table.add(wished.checked_rem(buckets)? as usize);
        if index < first {
            return None;
        }
        loop {
            let found = *chains.add((index - first) as usize);
            let symbol = &*(symbols as *const Symbol).add(index as usize);
            let text = (strings + symbol.name as usize) as *const c_char;
            let is_same = found | 1 == wished | 1 && equals(text, string_length(text), name);
            if is_same && symbol.section != 0 {
                return Some(map.base.wrapping_add(symbol.value));
            }
            if found & 1 == 1 {
                return None;
            }
            index += 1;
        }
    }
}

/// glibc has replaced the addresses in the section by absolute ones on x86-64; others have not.
fn address(map: &LinkMap, value: usize) -> usize {
    match value < map.base {
        true => map.base.wrapping_add(value),
        false => value,
    }
}

fn hash(name: &[u8]) -> u32 {
    name.iter().fold(5381, |hash: u32, byte| {
        hash.wrapping_mul(33).wrapping_add(u32::from(*byte))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A variable that is not exported by name from a test program; libc's functions are.
    #[test]
    fn finds_the_symbols_that_an_object_defines() {
        unsafe extern "C" {
            fn dlsym(handle: *mut u8, name: *const c_char) -> *mut u8;
            fn dlopen(name: *const c_char, mode: i32) -> *mut u8;
        }
        // SAFETY: with glibc a handle is the address of the object's entry; libc is never unloaded.
        unsafe {
            let handle = dlopen(c"libc.so.6".as_ptr(), 1);
            let map = &*handle.cast::<LinkMap>();
            let expected = dlsym(handle, c"environ".as_ptr()) as usize;
            assert_eq!(find(map, b"environ"), Some(expected));
            assert_eq!(find(map, b"no_such_symbol_anywhere"), None);
        }
    }
}
