// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Gives the shared library the name that programs ask the loader for.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvidia-ml.so.1");
}
