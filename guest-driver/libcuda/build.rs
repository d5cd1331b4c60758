// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Sets the library's soname.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
