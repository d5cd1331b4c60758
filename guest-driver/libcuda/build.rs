//! Gives the library its name, and lists the entry points that it does not define.

use std::{collections::HashSet, env, fs, path::Path};

use gpgpu_protocol::{api::OPERATIONS, entry_points::ENTRY_POINTS};

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=src");
    let mut defined: HashSet<String> = HashSet::new();
    for operation in OPERATIONS
        .iter()
        .filter(|operation| matches!(operation.style, "plain" | "worker"))
    {
        defined.insert(operation.name.to_owned());
        defined.extend(operation.per_thread.iter().map(|&name| name.to_owned()));
    }
    for entry in fs::read_dir("src")
        .expect("src is beside build.rs")
        .flatten()
    {
        if let Ok(text) = fs::read_to_string(entry.path()) {
            defined.extend(words(&text));
        }
    }
    let missing: Vec<_> = ENTRY_POINTS
        .iter()
        .map(|entry| entry.symbol)
        .filter(|symbol| !defined.contains(*symbol))
        .collect();
    let out = env::var("OUT_DIR").expect("cargo sets OUT_DIR");
    let list = format!("unsupported! {{\n{}\n}}\n", missing.join("\n"));
    fs::write(Path::new(&out).join("unsupported.rs"), list).expect("OUT_DIR can be written");
}

/// The names that a source file defines: every `fn cuName(` and every name that a macro of the
/// crate turns into a function (an identifier directly before a comma, a semicolon or ` =`).
fn words(text: &str) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or(text);
    let mut found = Vec::new();
    for line in code.lines().map(str::trim_start) {
        if let Some(rest) = line.strip_prefix("fn cu") {
            found.push(format!("cu{}", identifier(rest)));
        }
        // Tables of macros: `linear!`, `pitched!`, `launches!`, `older_names!`.
        let is_table_row = line.ends_with(';')
            && !line.contains("::cu")
            && !line.contains('{')
            && !line.contains('.');
        if is_table_row || line.contains(" = ") && line.contains(" as (") {
            for word in line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
                if word.starts_with("cu") {
                    found.push(word.to_owned());
                }
            }
        }
    }
    found
}

fn identifier(text: &str) -> &str {
    let end = text
        .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .unwrap_or(text.len());
    &text[..end]
}
