// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The compatibility page: made from the API table and the list of entry points, and checked to be up to date.

use std::{fmt::Write, fs, path::Path};

use gpgpu_protocol::{
    api::OPERATIONS,
    driver_api::{ENTRY_POINTS, Guest},
};

fn page() -> String {
    let mut page = String::from(
        "# What of the CUDA driver API works in a guest\n\n\
         Made from the API table (`protocol/src/api`) and the list of entry points; do not edit it by hand:\n\
         `UPDATE_DOCS=1 cargo test -p gpgpu-libcuda compatibility` makes it again.\n\n\
         How a call completes: *post* returns at once and an error of it surfaces later; *call* returns when the host has \
         issued it; *wait* returns when it is done, and other threads of the program go on meanwhile. *Guest* is answered \
         in the program's own process, or made of other functions. *Refused* is `CUDA_ERROR_NOT_SUPPORTED`, as by NVIDIA's driver on \
         Linux.\n\n\
         Everything else that the driver API has is exported, returns `CUDA_ERROR_NOT_SUPPORTED` and names itself once on \
         standard error. The runtime API on top of it is described in `guest-driver/libcudart/README.md`.\n\n\
         | function | since CUDA | symbol | completes |\n|---|---|---|---|\n",
    );
    let mut missing = Vec::new();
    for entry in ENTRY_POINTS.iter().filter(|entry| !entry.per_thread) {
        if entry.guest == Guest::Unsupported {
            missing.push(entry.symbol);
            continue;
        }
        let completes = match OPERATIONS
            .iter()
            .find(|operation| operation.name == entry.symbol)
        {
            Some(operation) => operation.completion.word(),
            None if entry.guest == Guest::Refused => "refused",
            None => "guest",
        };
        let version = format!("{}.{}", entry.since / 1000, entry.since % 1000 / 10);
        let _ = writeln!(
            page,
            "| {} | {version} | `{}` | {completes} |",
            entry.name, entry.symbol
        );
    }
    let _ = write!(
        page,
        "\n## Not supported yet: {} symbols\n\n",
        missing.len()
    );
    for symbol in missing {
        let _ = writeln!(page, "- `{symbol}`");
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
