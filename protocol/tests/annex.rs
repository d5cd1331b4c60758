// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Annex A of the specification: generated from the API table, and checked to be up to date. Its byte examples are
//! written here by hand and compared with the codec.

#[path = "annex/forms.rs"]
mod forms;
#[path = "annex/libraries.rs"]
mod libraries;
#[path = "annex/messages.rs"]
mod messages;
#[path = "annex/operations.rs"]
mod operations;
#[path = "annex/tables.rs"]
mod tables;
#[path = "annex/types.rs"]
mod types;

use std::{fs, path::Path};

use gpgpu_protocol::codec::{Reader, Wire, Writer};

const INTRODUCTION: &str = "\
# Annex A: operations

This annex is normative. It specifies the encoding of the commands of a stream, and the arguments, the effect and the
results of each operation of the API table. It uses the terms and requirements of
[virtio-gpgpu.md](virtio-gpgpu.md). Together they specify a guest library and a device. The names and numbers of results,
flags and attributes (`CUDA_ERROR_…`, `CU_…`), and the effects of functions, are those of CUDA's driver API, unless this
annex specifies others.

The annex is generated from `protocol/src/api/`, by `UPDATE_DOCS=1 cargo test -p gpgpu-protocol --test annex`; do not edit
it by hand. The same test encodes and decodes all examples. Bytes are in hexadecimal, in memory order.

";

fn page() -> String {
    let mut page = String::from(INTRODUCTION);
    types::write(&mut page);
    messages::write(&mut page);
    operations::write_objects(&mut page);
    operations::write_rules(&mut page);
    operations::write_operations(&mut page);
    operations::write_structures(&mut page);
    tables::write(&mut page);
    libraries::write(&mut page);
    page
}

/// Bytes as they are shown: in groups of eight.
fn hex(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes
        .chunks(8)
        .map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect())
        .collect();
    groups.join(" ")
}

/// The bytes that are shown so.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    let spaces = hex.chars().filter(|digit| *digit == ' ').count();
    assert_eq!(digits.len() + spaces, hex.len(), "{hex}");
    digits
        .chunks_exact(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

/// A value as it travels.
fn encoded<T: Wire>(value: &T) -> Vec<u8> {
    let mut writer = Writer::new();
    writer.put(value);
    writer.into_bytes()
}

/// The value that travels so.
fn decoded<T: Wire>(bytes: &[u8]) -> T {
    let mut reader = Reader::new(bytes);
    let value = reader.get().unwrap();
    reader.end().unwrap();
    value
}

/// Documentation as running text.
fn text(doc: &[&str]) -> String {
    let lines: Vec<_> = doc.iter().map(|line| line.trim()).collect();
    lines.join(" ")
}

#[test]
fn the_annex_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec/operations.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "spec/operations.md is out of date: UPDATE_DOCS=1 cargo test -p gpgpu-protocol --test annex"
    );
}

#[test]
fn requirements_have_a_number_of_their_own() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../spec");
    let pages = ["virtio-gpgpu.md", "operations.md", "vhost-user.md"];
    let pages = pages.map(|page| directory.join(page));
    let text = pages.map(|page| fs::read_to_string(page).unwrap()).concat();
    // Each is defined in bold and may be referred to elsewhere.
    let mut numbers: Vec<&str> = text
        .split("**")
        .filter(|bold| bold.starts_with("GPGPU-D"))
        .collect();
    assert!(numbers.len() > 90, "{}", numbers.len());
    numbers.sort_unstable();
    let twice = numbers.windows(2).filter(|pair| pair[0] == pair[1]);
    assert_eq!(twice.map(|pair| pair[0]).collect::<Vec<_>>(), [""; 0]);
}
