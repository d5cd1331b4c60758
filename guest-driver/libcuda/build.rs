// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sets the library's soname, and lets it stay loaded: its threads run, and other libraries call it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
