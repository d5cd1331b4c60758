// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Gives the shared library the name that programs ask the loader for, and keeps it loaded: the software GPU may call it
//! after a `dlclose`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcupti.so.13");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
