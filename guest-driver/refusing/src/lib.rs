// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries with NVIDIA's names that load in a virtio-gpgpu guest and refuse every call.
//!
//! Frameworks are linked with these libraries, and work without their features: communication between GPUs, file access
//! by the GPU. NVIDIA's own libraries do not work in a guest, because they look for NVIDIA's kernel driver,
//! or patch libcuda. So each function here returns its library's status for an unsupported function. A library reports
//! once in a process that it is unsupported.
//!
//! One static library contains all functions. It is linked once for each of NVIDIA's names, and a version script in
//! `link` lists the symbols that each exports.

#![allow(non_snake_case)]

pub mod cufile;
pub mod cusolvermg;
pub mod nvshmem;

/// Reports that a library is unsupported, when one of its functions is first called.
pub(crate) fn say(library: &'static str, function: &str) {
    gpgpu_client::log::refuse(
        library,
        &format!("does nothing in this VM ({function} was called): its functions fail"),
    );
}

/// Exports functions that always return the same value: `refuse! { "library", type = value; name name … }`.
macro_rules! refuse {
    ($library:literal, $type:ty = $value:expr; $($name:ident)*) => {$(
        /// Only returns this value.
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> $type {
            $crate::say($library, stringify!($name));
            $value
        }
    )*};
}
pub(crate) use refuse;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_librarys_functions_say_so_in_its_own_way() {
        assert_eq!(cusolvermg::cusolverMgCreate(), 9);
        // The halves are the library's error and the driver's.
        assert_eq!(cufile::cuFileDriverOpen(), 5007);
        assert_eq!(cufile::cuFileRead(), -5007);
        assert!(nvshmem::nvshmem_malloc().is_null());
        assert_eq!(nvshmem::nvshmem_my_pe(), -1);
        assert_ne!(nvshmem::nvshmemid_hostlib_init_attr(), 0);
        assert_eq!(nvshmem::nvshmemid_init_status(), 0);
    }
}
