// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The guest's libraries export each name that stock frameworks import from them, with the required version: a module
//! does not load if one name is missing. The names are in `tests/imports`, and `list.py` there makes the lists. The
//! libraries also load quickly.
//!
//! The libraries are in the directory that `VIRTIO_GPGPU_STAGE` names. Without it, the tests are skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{FileHeader64, SHT_DYNSYM, SHT_RELR, SectionHeader64},
    read::elf::{FileHeader, SectionHeader, Sym},
};

/// A function of CUDA 13.1's driver that libcuda does not have. NVIDIA's static runtime in CuPy's modules looks it up,
/// and works without it.
const NEWER: &str = "cuDevSmResourceSplit";

/// Names, each with its version, if any.
type Names = BTreeSet<(String, Option<String>)>;

/// The directory of the guest's libraries, if there is one.
fn libraries() -> Option<PathBuf> {
    let Some(stage) = std::env::var_os("VIRTIO_GPGPU_STAGE") else {
        eprintln!("skipped: VIRTIO_GPGPU_STAGE is not set; run cargo xtask test");
        return None;
    };
    Some(Path::new(&stage).join("lib/virtio-gpgpu"))
}

/// The names that a library exports.
fn exports(library: &Path) -> Names {
    let bytes = fs::read(library).unwrap();
    let data = bytes.as_slice();
    let header = FileHeader64::<Endianness>::parse(data).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, data).unwrap();
    let symbols = sections.symbols(endian, data, SHT_DYNSYM).unwrap();
    let versions = sections.versions(endian, data).unwrap();
    let mut names = Names::new();
    for (index, symbol) in symbols.enumerate() {
        if symbol.is_undefined(endian) {
            continue;
        }
        let name = symbol.name(endian, symbols.strings()).unwrap();
        let version = versions.as_ref().and_then(|versions| {
            let version = versions.version_index(endian, index);
            versions.version(version).unwrap()
        });
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        names.insert((text(name), version.map(|version| text(version.name()))));
    }
    names
}

/// The names in a list, by library.
fn wanted(list: &str) -> BTreeMap<String, Names> {
    let mut wanted = BTreeMap::<_, Names>::new();
    let (mut library, mut version) = (None, None);
    for line in list.lines().filter(|line| !line.starts_with('#')) {
        if let Some(head) = line.strip_prefix('[') {
            let mut words = head.trim_end_matches(']').split(' ').map(str::to_owned);
            (library, version) = (words.next(), words.next());
            continue;
        }
        let names = line.split_whitespace();
        for name in names.filter(|name| *name != NEWER) {
            let library = library.clone().expect("a name is below its library");
            let name = (name.to_owned(), version.clone());
            wanted.entry(library).or_default().insert(name);
        }
    }
    wanted
}

/// The wanted names that a library with these exports lacks. A name without a version may have any.
fn missing(wanted: &Names, exported: &Names) -> Vec<String> {
    let plain: BTreeSet<_> = exported.iter().map(|(name, _)| name).collect();
    let is_there = |name: &&(String, Option<String>)| match name {
        (name, None) => plain.contains(name),
        _ => exported.contains(*name),
    };
    let missing = wanted.iter().filter(|name| !is_there(name));
    missing
        .map(|(name, version)| match version {
            Some(version) => format!("{name}@{version}"),
            None => name.clone(),
        })
        .collect()
}

#[test]
fn each_name_that_a_framework_imports_is_there() {
    let Some(libraries) = libraries() else { return };
    let lists = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/imports");
    let (mut exported, mut faults) = (BTreeMap::new(), Vec::new());
    let mut names = 0;
    for list in fs::read_dir(lists).unwrap() {
        let list = list.unwrap().path();
        if list.extension().is_none_or(|end| end != "txt") {
            continue;
        }
        let framework = list.file_stem().unwrap().display().to_string();
        for (library, wanted) in wanted(&fs::read_to_string(&list).unwrap()) {
            let exported = exported
                .entry(library.clone())
                .or_insert_with(|| exports(&libraries.join(&library)));
            names += wanted.len();
            let lacks = missing(&wanted, exported);
            faults.extend(
                lacks
                    .iter()
                    .map(|name| format!("{library} lacks {name} of {framework}")),
            );
        }
    }
    assert!(names > 4000, "{names} names");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A program may load a library by the linker's name for it. It gets our newest version, and never a genuine one that
/// the guest has elsewhere.
#[test]
fn each_library_has_its_name_without_a_version() {
    let Some(directory) = libraries() else { return };
    let mut newest = BTreeMap::<String, u32>::new();
    for entry in fs::read_dir(&directory).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some((plain, version)) = name.rsplit_once(".so.")
            && let Ok(version) = version.parse()
        {
            let newest = newest.entry(plain.to_owned()).or_insert(version);
            *newest = version.max(*newest);
        }
    }
    assert!(newest.len() > 10, "{newest:?}");
    for (plain, version) in newest {
        let target = fs::read_link(directory.join(format!("{plain}.so")));
        let right = format!("{plain}.so.{version}");
        assert_eq!(target.unwrap(), Path::new(&right));
    }
}

/// The loader writes each relocated address in each process that loads a library, into that process's private memory.
/// With the descriptions of all operations each library had 64,000.
#[test]
fn the_loader_relocates_few_addresses_of_a_library() {
    let Some(directory) = libraries() else { return };
    let mut libraries = 0;
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().display().to_string();
        // An empty file beside each library is the build's marker.
        if !name.contains(".so.") || name.starts_with('.') || name.ends_with(".source") {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        let header = FileHeader64::<Endianness>::parse(&*bytes).unwrap();
        let endian = header.endian().unwrap();
        let sections = header.sections(endian, &*bytes).unwrap();
        let is_packed = |section: &SectionHeader64<Endianness>| section.sh_type(endian) == SHT_RELR;
        assert!(
            !sections.iter().any(is_packed),
            "{name}: these are not counted"
        );
        let tables = sections
            .iter()
            .filter_map(|section| section.rela(endian, &*bytes).unwrap());
        let relocations: usize = tables.map(|(entries, _)| entries.len()).sum();
        assert!(relocations < 16_000, "{name} has {relocations}");
        libraries += 1;
    }
    assert!(libraries > 20, "{libraries} libraries");
}
