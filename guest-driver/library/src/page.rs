// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A library's page in `docs/libraries`. It is generated from the library's table and the functions exported by hand,
//! and a test checks that it is up to date.

use std::{collections::BTreeMap, fmt::Write, fs, path::Path};

use gpgpu_protocol::libraries::Library;

/// Names the functions of the calling crate that are written by hand, by file, in `BY_HAND`. This does not compile if
/// one is missing.
#[macro_export]
#[allow(clippy::crate_in_macro_def)]
macro_rules! by_hand {
    ($($file:ident { $($name:ident)* })*) => {
        /// The functions that are written by hand, by their files.
        const BY_HAND: &[(&str, &[&str])] =
            &[$((concat!(stringify!($file), ".rs"), &[$(stringify!($name)),*])),*];

        $($(const _: () = {
            let _ = crate::$file::$name;
        };)*)*
    };
}

/// A library's page.
#[derive(Debug)]
pub struct Page<'a> {
    /// The library.
    pub library: Library,
    /// The package of the guest's library, and its directory in `guest-driver`.
    pub package: (&'a str, &'a str),
    /// The functions that are written by hand, by file.
    pub by_hand: &'a [(&'a str, &'a [&'a str])],
    /// The page's beginning: its title, and the differences from NVIDIA's library.
    pub text: &'a str,
}

/// A function's completion and its origin.
#[derive(PartialEq, Eq)]
struct Row {
    completes: &'static str,
    file: String,
}

impl Page<'_> {
    fn rows(&self) -> BTreeMap<String, Row> {
        let mut rows = BTreeMap::new();
        let functions = self.library.functions().iter();
        let functions = || functions.clone().filter(|function| !function.is_own());
        for function in functions() {
            let row = Row {
                completes: function.operation.completion.word(),
                file: String::new(),
            };
            rows.insert(function.operation.name.to_owned(), row);
        }
        for (file, names) in self.by_hand {
            for name in *names {
                let row = rows.entry((*name).to_owned()).or_insert(Row {
                    completes: "guest",
                    file: String::new(),
                });
                assert_eq!(row.file, "", "{name} is exported twice");
                row.file = (*file).to_owned();
            }
        }
        for function in functions() {
            let of = &function.operation;
            let is_by_hand = !rows[of.name].file.is_empty();
            assert_eq!(is_by_hand, of.description().style == "guest", "{}", of.name);
        }
        rows
    }

    fn write(&self) -> String {
        let rows = self.rows();
        let by_hand = rows.values().filter(|row| !row.file.is_empty()).count();
        let (package, directory) = self.package;
        let mut page = format!(
            "{}\n\n## Functions\n\n\
             Generated from the library's table (in `protocol/src/libraries`) and the exported functions\n\
             (`guest-driver/{directory}/src`); `UPDATE_DOCS=1 cargo test -p {package} page` writes it again.\n\
             [How calls complete](../libraries.md#how-calls-complete) explains the third column. {by_hand} of the {} functions are written by\n\
             hand, in the file that the last column names; the others are generated from the library's table. `_64` marks a function\n\
             that also exists with that suffix and completes alike.\n\n\
             | function | also | completes | by hand |\n|---|---|---|---|\n",
            self.text.trim_end(),
            rows.len()
        );
        for (name, row) in &rows {
            let is_like_the_other = |of: &str| rows.get(of) == Some(row);
            if name.strip_suffix("_64").is_some_and(is_like_the_other) {
                continue;
            }
            let wide = match is_like_the_other(&format!("{name}_64")) {
                true => "`_64`",
                false => "",
            };
            let _ = writeln!(
                page,
                "| `{name}` | {wide} | {} | {} |",
                row.completes, row.file
            );
        }
        page
    }

    /// Fails if the page is out of date; with `UPDATE_DOCS` in the environment, writes it first.
    ///
    /// # Panics
    ///
    /// If it is out of date.
    pub fn check(&self) {
        let name = self.library.name();
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../docs/libraries")
            .join(format!("{name}.md"));
        let page = self.write();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            fs::write(&path, &page).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
        let there = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            there == page,
            "docs/libraries/{name}.md is out of date: UPDATE_DOCS=1 cargo test -p {} page",
            self.package.0
        );
    }
}
