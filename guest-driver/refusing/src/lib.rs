// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Libraries with NVIDIA's names that load in a virtio-gpgpu guest and refuse every call.
//!
//! Frameworks are linked with these libraries, and work without their features: profiling, communication between GPUs,
//! file access by the GPU. NVIDIA's own libraries do not work in a guest, because they look for NVIDIA's kernel driver,
//! or patch libcuda. So each function here returns its library's status for an unsupported function. A library reports
//! once in a process that it is unsupported.
//!
//! One static library contains all functions. It is linked once for each of NVIDIA's names, and a version script in
//! `link` lists the symbols that each exports.

#![allow(non_snake_case)]

pub mod cufile;
pub mod cupti;
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
    use std::ffi::{CStr, c_char};
    use std::ptr::null;

    use super::*;

    /// torch's profiler makes these calls.
    #[test]
    fn a_program_that_profiles_gets_the_reason() {
        let status = cupti::cuptiSubscribe();
        let mut text: *const c_char = null();
        // SAFETY: the pointer is to a value that lives across the call.
        assert_eq!(unsafe { cupti::cuptiGetResultString(status, &mut text) }, 0);
        // SAFETY: a string was given.
        let text = unsafe { CStr::from_ptr(text) };
        assert_eq!(text, c"CUPTI_ERROR_NOT_SUPPORTED");
        // SAFETY: as above; NULL is refused.
        unsafe {
            assert_eq!(cupti::cuptiGetResultString(30, &mut null()), 1);
            assert_eq!(cupti::cuptiGetResultString(0, std::ptr::null_mut()), 1);
        }
    }

    /// JAX calls it, and uses no GPU if the answer is an error or too old.
    #[test]
    fn cuptis_version_is_known() {
        let mut version = 0;
        // SAFETY: the pointer is to a value that lives across the call; NULL is refused.
        unsafe {
            assert_eq!(cupti::cuptiGetVersion(&mut version), 0);
            assert_eq!(cupti::cuptiGetVersion(std::ptr::null_mut()), 1);
        }
        assert_eq!(version, 130_000);
        assert_eq!(cupti::version_of(b"/lib/libcupti.so.12"), 18);
        assert_eq!(cupti::version_of(b"/lib/libcupti.so.13"), 130_000);
    }

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
