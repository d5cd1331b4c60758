// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Finds the static CUDA runtime's functions in an ELF file.

use std::collections::HashSet;
use std::fs::File;
use std::path::Path;

use memmap2::Mmap;
use object::read::elf::{ElfFile64, FileHeader as _, Sym as _};
use object::{Endianness, Object as _, ObjectSection as _, elf};

/// The functions of the CUDA runtime that NVIDIA's static libraries of versions 11.8 to 13.4 define, one per line.
static RUNTIME_FUNCTIONS: &str = include_str!("runtime-functions.txt");

/// Every static runtime defines this function, because the compiler's code needs it. So the search looks for it first.
const MARKER: &[u8] = b"__cudaRegisterFatBinary";

/// The runtime's text for its error 35, which any static runtime has, stripped or not. Each byte is inverted, so that
/// programs with this code do not contain the text.
const ERROR_TEXT: [u8; 60] =
    inverted(*b"CUDA driver version is insufficient for CUDA runtime version");

/// An ELF file in memory.
pub struct Image {
    map: Mmap,
}

/// A function of the static CUDA runtime in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeFunction {
    /// CUDA's name, without the suffixes that link-time optimisation adds.
    pub name: String,
    /// The address as linked; the load address must be added.
    pub address: u64,
    /// The number of bytes of the function and of the padding after it.
    pub room: u64,
    /// The symbol is an indirect function: `address` is its resolver.
    pub indirect: bool,
}

impl Image {
    /// Maps the file; `None` if it cannot be read or is empty.
    pub fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        // SAFETY: the mapping is private and read only, and the bytes are parsed with bounds checks throughout. A file
        // that shrinks meanwhile would raise SIGBUS; the files are those that the dynamic linker itself has mapped or
        // is about to.
        let map = unsafe { Mmap::map(&file) }.ok()?;
        Some(Self { map })
    }

    /// The file's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// The file as 64-bit little-endian ELF for x86-64; `None` if it has another format.
    pub fn elf(&self) -> Option<Elf<'_>> {
        let file = ElfFile64::<Endianness>::parse(self.bytes()).ok()?;
        let header = file.elf_header();
        let fits =
            header.is_little_endian() && header.e_machine(Endianness::Little) == elf::EM_X86_64;
        fits.then_some(Elf { file })
    }
}

/// A parsed 64-bit x86-64 ELF file.
pub struct Elf<'a> {
    file: ElfFile64<'a, Endianness>,
}

impl<'a> Elf<'a> {
    /// The parsed file, for queries that this module does not offer.
    pub fn file(&self) -> &ElfFile64<'a, Endianness> {
        &self.file
    }

    /// The static runtime's functions, none twice at one address. Empty where there is no static runtime or no
    /// symbol of it; found out at the cost of one search through the names then. Libraries that were stripped may
    /// still export the functions.
    pub fn runtime_functions(&self) -> Vec<RuntimeFunction> {
        let has_marker = [".strtab", ".dynstr"].iter().any(|name| {
            self.file
                .section_by_name(name)
                .and_then(|section| section.data().ok())
                .is_some_and(|names| memchr::memmem::find(names, MARKER).is_some())
        });
        if !has_marker {
            return Vec::new();
        }
        let endian = Endianness::Little;
        let mut starts = Vec::new();
        let mut found = Vec::new();
        for table in [
            self.file.elf_symbol_table(),
            self.file.elf_dynamic_symbol_table(),
        ] {
            for symbol in table.iter() {
                let kind = symbol.st_type();
                let is_function = kind == elf::STT_FUNC || kind == elf::STT_GNU_IFUNC;
                if symbol.st_shndx(endian) == elf::SHN_UNDEF || !is_function {
                    continue;
                }
                let address = symbol.st_value(endian);
                starts.push(address);
                // The runtime's functions have a size. A symbol without one is a jump written in assembler, such as
                // those by which XLA opens libcudart at its first call: they lead to our functions by themselves.
                if kind == elf::STT_FUNC && symbol.st_size(endian) == 0 {
                    continue;
                }
                let Some(name) = symbol
                    .name(endian, table.strings())
                    .ok()
                    .and_then(cuda_name)
                else {
                    continue;
                };
                found.push(RuntimeFunction {
                    name: name.to_owned(),
                    address,
                    room: symbol.st_size(endian),
                    indirect: kind == elf::STT_GNU_IFUNC,
                });
            }
        }
        if !found
            .iter()
            .any(|function| function.name.as_bytes() == MARKER)
        {
            return Vec::new();
        }
        starts.sort_unstable();
        for function in &mut found {
            let next = starts.partition_point(|start| *start <= function.address);
            let limit = starts.get(next).copied().unwrap_or(u64::MAX);
            function.room = self.room(function, limit);
        }
        found.sort_by(|a, b| (a.address, &a.name).cmp(&(b.address, &b.name)));
        found.dedup_by(|a, b| a.address == b.address && a.name == b.name);
        found
    }

    /// The function's size, at most up to the next function, with the padding after it.
    fn room(&self, function: &RuntimeFunction, limit: u64) -> u64 {
        let gap = limit - function.address;
        let mut room = function.room.min(gap);
        let most = gap.min(32);
        while room < most {
            let Some(&byte) = self
                .code(function.address, most)
                .and_then(|code| code.get(room as usize..))
                .and_then(|rest| rest.first())
            else {
                break;
            };
            // The padding that compilers and linkers put between functions: int3, zero, nop and long nops. Long nops
            // are recognised only as whole instructions.
            match padding(self.code(function.address, most), room as usize, byte) {
                0 => break,
                length => room = (room + length).min(most),
            }
        }
        room
    }

    /// Up to `length` bytes of an executable section from `address` on.
    fn code(&self, address: u64, length: u64) -> Option<&'a [u8]> {
        self.file.sections().find_map(|section| {
            let start = section.address();
            if section.kind() != object::SectionKind::Text
                || !(start..start.saturating_add(section.size())).contains(&address)
            {
                return None;
            }
            let data = section.data().ok()?.get((address - start) as usize..)?;
            Some(&data[..data.len().min(length as usize)])
        })
    }

    /// The shared libraries that the file names (`DT_NEEDED`).
    pub fn needed(&self) -> Vec<String> {
        self.dynamic_strings(elf::DT_NEEDED)
    }

    /// The name that the file declares as a shared library (`DT_SONAME`).
    pub fn soname(&self) -> Option<String> {
        self.dynamic_strings(elf::DT_SONAME).pop()
    }

    fn dynamic_strings(&self, tag: u32) -> Vec<String> {
        use object::read::elf::{Dyn as _, SectionHeader as _};
        let endian = Endianness::Little;
        let sections = self.file.elf_section_table();
        for section in sections.iter() {
            let Ok(Some((entries, link))) = section.dynamic(endian, self.file.data()) else {
                continue;
            };
            let strings = sections
                .strings(endian, self.file.data(), link)
                .unwrap_or_default();
            return entries
                .iter()
                .filter(|entry| entry.tag32(endian) == Some(tag))
                .filter_map(|entry| entry.string(endian, strings).ok())
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
        }
        Vec::new()
    }

    /// Whether the file imports a function of this name.
    pub fn imports(&self, name: &str) -> bool {
        let endian = Endianness::Little;
        let table = self.file.elf_dynamic_symbol_table();
        table.iter().any(|symbol| {
            symbol.st_shndx(endian) == elf::SHN_UNDEF
                && symbol
                    .name(endian, table.strings())
                    .is_ok_and(|found| found == name.as_bytes())
        })
    }

    /// The names of the functions that the file exports.
    pub fn exports(&self) -> HashSet<String> {
        let endian = Endianness::Little;
        let table = self.file.elf_dynamic_symbol_table();
        table
            .iter()
            .filter(|symbol| symbol.st_shndx(endian) != elf::SHN_UNDEF)
            .filter_map(|symbol| symbol.name(endian, table.strings()).ok())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// Whether the file contains a runtime, recognised by one of its texts, and links none. Call this if the file has
    /// no symbols of a runtime. Kernels in the file prove nothing: a program of the driver API may have kernels, and a
    /// library that only launches other libraries' kernels has none. The text proves nothing either if it belongs to a
    /// library that the file carries as data.
    pub fn has_stripped_runtime(&self) -> bool {
        let text = inverted(std::hint::black_box(ERROR_TEXT));
        let is_there = |data: &[u8]| {
            memchr::memmem::find(data, &text)
                .is_some_and(|at| memchr::memmem::rfind(&data[..at], &elf::ELFMAG).is_none())
        };
        let constants = self.file.sections().filter(|section| {
            matches!(
                section.kind(),
                object::SectionKind::ReadOnlyData | object::SectionKind::ReadOnlyString
            )
        });
        let mut constants = constants.filter_map(|section| section.data().ok());
        constants.any(is_there) && !self.imports("__cudaRegisterFatBinary") && !self.takes_runtime()
    }

    /// Whether the file links a shared runtime, perhaps a renamed copy.
    fn takes_runtime(&self) -> bool {
        self.needed()
            .iter()
            .any(|name| name.starts_with("libcudart"))
    }

    /// Whether the program uses musl's dynamic linker, which cannot load libraries made for glibc.
    pub fn is_for_musl(&self) -> bool {
        use object::read::elf::ProgramHeader as _;
        let endian = Endianness::Little;
        let headers = self.file.elf_program_headers().iter();
        headers
            .filter_map(|header| header.interpreter(endian, self.file.data()).ok().flatten())
            .any(|path| memchr::memmem::find(path, b"ld-musl").is_some())
    }

    /// Whether the program has a dynamic linker, which loads its libraries and so the preload.
    pub fn has_interpreter(&self) -> bool {
        use object::read::elf::ProgramHeader as _;
        let endian = Endianness::Little;
        self.file
            .elf_program_headers()
            .iter()
            .any(|header| header.p_type(endian) == elf::PT_INTERP)
    }
}

/// The same bytes, with each bit inverted.
const fn inverted<const LENGTH: usize>(mut bytes: [u8; LENGTH]) -> [u8; LENGTH] {
    let mut at = 0;
    while at < LENGTH {
        bytes[at] = !bytes[at];
        at += 1;
    }
    bytes
}

/// The length of the padding instruction at `at`; 0 if there is no such instruction.
fn padding(code: Option<&[u8]>, at: usize, first: u8) -> u64 {
    if matches!(first, 0x90 | 0xcc | 0x00) {
        return 1;
    }
    let Some(rest) = code.and_then(|code| code.get(at..)) else {
        return 0;
    };
    // 66 prefixes, perhaps a CS prefix, then 0f 1f /0 (nop r/m) or 90.
    let prefixes = rest
        .iter()
        .take_while(|byte| matches!(byte, 0x66 | 0x2e))
        .count();
    match rest.get(prefixes..) {
        Some([0x90, ..]) => prefixes as u64 + 1,
        Some([0x0f, 0x1f, modrm, ..]) => {
            let length = match modrm {
                0x00 => 3,
                0x40 => 4,
                0x44 => 5,
                0x80 => 7,
                0x84 => 8,
                _ => return 0,
            };
            prefixes as u64 + length
        }
        _ => 0,
    }
}

/// CUDA's name of a symbol, `None` if the symbol is no runtime function. Link-time optimisation renames functions that
/// it made local; the copies that it specialised (`.constprop`, `.isra`, `.part`) take other arguments and are none.
fn cuda_name(symbol: &[u8]) -> Option<&str> {
    if !symbol.starts_with(b"cuda") && !symbol.starts_with(b"__cuda") {
        return None;
    }
    let symbol = std::str::from_utf8(symbol).ok()?;
    let (name, suffix) = symbol.split_at(symbol.find('.').unwrap_or(symbol.len()));
    let suffix_keeps_arguments =
        suffix.is_empty() || suffix.starts_with(".lto_priv.") || suffix == ".localalias";
    suffix_keeps_arguments.then_some(name)
}

/// Whether NVIDIA's runtime has a function of this name. A program may define its own `cudaCheck`.
pub fn is_runtime_function(name: &str) -> bool {
    RUNTIME_FUNCTIONS.lines().any(|known| known == name)
}

/// The major version of the static runtime with these functions: 13 if `cudaGetDeviceProperties` has no `_v2` beside
/// it, 12 if it has one (13 made that the only one), 11 for 11.8, which has texture references still, and launches with
/// attributes already. `None` for older ones: their structures are shorter.
pub fn runtime_version(functions: &[RuntimeFunction]) -> Option<u32> {
    let has = |name: &str| functions.iter().any(|function| function.name == name);
    match () {
        () if has("cudaBindTexture") => has("cudaLaunchKernelExC").then_some(11),
        () if has("cudaGetDeviceProperties_v2") => Some(12),
        () => Some(13),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_link_time_optimisation_only_with_their_arguments() {
        assert_eq!(cuda_name(b"cudaMalloc"), Some("cudaMalloc"));
        assert_eq!(
            cuda_name(b"__cudaRegisterVar.lto_priv.0"),
            Some("__cudaRegisterVar")
        );
        assert_eq!(cuda_name(b"cudaMalloc.localalias"), Some("cudaMalloc"));
        assert_eq!(cuda_name(b"cudaMalloc.constprop.0"), None);
        assert_eq!(cuda_name(b"cudaMalloc.part.0"), None);
        assert_eq!(cuda_name(b"_Z10cudaMallocv"), None);
        assert_eq!(cuda_name(b"mycudaMalloc"), None);
    }

    #[test]
    fn padding_is_whole_instructions() {
        assert_eq!(padding(Some(&[0x90]), 0, 0x90), 1);
        assert_eq!(
            padding(
                Some(&[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0]),
                0,
                0x66
            ),
            10
        );
        assert_eq!(padding(Some(&[0x0f, 0x1f, 0x40, 0x00]), 0, 0x0f), 4);
        assert_eq!(padding(Some(&[0x0f, 0x05]), 0, 0x0f), 0);
        assert_eq!(padding(Some(&[0x48, 0x89, 0xe5]), 0, 0x48), 0);
    }

    #[test]
    fn versions_are_told_apart() {
        let functions = |names: &[&str]| -> Vec<RuntimeFunction> {
            let function = |name: &&str| RuntimeFunction {
                name: (*name).into(),
                address: 0,
                room: 0,
                indirect: false,
            };
            names.iter().map(function).collect()
        };
        assert_eq!(
            runtime_version(&functions(&["cudaGetDeviceProperties"])),
            Some(13)
        );
        assert_eq!(
            runtime_version(&functions(&[
                "cudaGetDeviceProperties",
                "cudaGetDeviceProperties_v2"
            ])),
            Some(12)
        );
        let eleven = ["cudaGetDeviceProperties", "cudaBindTexture"];
        assert_eq!(runtime_version(&functions(&eleven)), None);
        let eleven = functions(&[eleven[0], eleven[1], "cudaLaunchKernelExC"]);
        assert_eq!(runtime_version(&eleven), Some(11));
    }
}
