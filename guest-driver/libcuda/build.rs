// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Gives the library its name.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
