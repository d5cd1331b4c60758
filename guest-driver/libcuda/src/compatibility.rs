// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The compatibility page: generated from the API table and the list of entry points, and checked to be up to date.

use std::{fmt::Write, fs, path::Path};

use gpgpu_protocol::{
    api::OPERATIONS,
    driver_api::{
        ENTRY_POINTS, EntryPoint, Guest,
        reasons::{REFUSED, not_supported, reason},
    },
};

/// The completion of a function that works, as a word.
fn completes(entry: &EntryPoint) -> &'static str {
    let operation = OPERATIONS
        .iter()
        .find(|operation| operation.name == entry.symbol);
    operation.map_or("guest", |operation| operation.completion.word())
}

fn version(entry: &EntryPoint) -> String {
    format!("{}.{}", entry.since / 1000, entry.since % 1000 / 10)
}

/// Whether a function always fails here as with NVIDIA's driver, with any arguments.
fn is_refused(entry: &EntryPoint) -> bool {
    entry.guest == Guest::Refused || REFUSED.iter().any(|reason| reason.is_for(entry.symbol))
}

fn page() -> String {
    let mut page = String::from(
        "# The CUDA driver API in a guest\n\n\
         Generated from the API table (`protocol/src/api`), the list of entry points and the table of reasons (`protocol/src/driver_api`); do \
         not edit it by hand: `UPDATE_DOCS=1 cargo test -p gpgpu-libcuda compatibility` writes it again.\n\n\
         `guest-driver/libcudart/README.md` describes the runtime API.\n\n\
         ## Works\n\n\
         Completion: *post* returns at once, and an error surfaces later; *call* returns when the host has issued it; *fence* \
         returns when the GPU has done the earlier work; *wait* returns when it is done. Other threads of the program continue \
         meanwhile. A function with *guest* is answered in the program's own process, or uses other functions.\n\n\
         The library's version is 13.0. `cuGetProcAddress` finds no functions of later versions; programs find them by `dlsym`.\n\n\
         | function | since CUDA | symbol | completes |\n|---|---|---|---|\n",
    );
    let all = || ENTRY_POINTS.iter().filter(|entry| !entry.per_thread);
    for entry in all().filter(|entry| entry.guest != Guest::Unsupported && !is_refused(entry)) {
        let _ = writeln!(
            page,
            "| {} | {} | `{}` | {} |",
            entry.name,
            version(entry),
            entry.symbol,
            completes(entry)
        );
    }
    page.push_str(
        "\n## Refused, as by NVIDIA's driver\n\n\
         These fail in a guest with the code of NVIDIA's driver on Linux, without a display, on a device that lacks the feature. \
         Wrong arguments have the driver's codes too.\n\n\
         | symbol | since CUDA | reason |\n|---|---|---|\n",
    );
    for entry in all().filter(|entry| is_refused(entry)) {
        let why = reason(entry.symbol).unwrap_or_default();
        let _ = writeln!(page, "| `{}` | {} | {why} |", entry.symbol, version(entry));
    }
    let _ = write!(
        page,
        "\n## Not supported: {} symbols\n\n\
         These are exported, return `CUDA_ERROR_NOT_SUPPORTED`, and log their name and the reason once on standard error.\n\n\
         | symbol | since CUDA | reason |\n|---|---|---|\n",
        not_supported().count()
    );
    for (entry, why) in not_supported() {
        let _ = writeln!(page, "| `{}` | {} | {why} |", entry.symbol, version(entry));
    }
    page
}

#[test]
fn the_compatibility_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/compatibility.md");
    let page = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let there = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == page,
        "docs/compatibility.md is out of date: UPDATE_DOCS=1 cargo test -p gpgpu-libcuda compatibility"
    );
}
