// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Marks the preload to be initialised before every other object.

fn main() {
    // Otherwise the libraries that the program needs are initialised before the preload. One with a static CUDA runtime
    // would have registered its kernels with that runtime before its functions are redirected.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rerun-if-changed=build.rs");
}
