// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the stand-ins' tests: the software GPU and a stand-in as a C program gets them.
//!
//! Functions are found by name, and called by [`call!`](crate::call) with the given arguments: tests keep C's promises.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::OnceLock;

use libloading::Library;

/// The two libraries of a test program, which are in its directory.
pub struct Libraries {
    stand_in: &'static str,
    loaded: OnceLock<[Library; 2]>,
}

impl Libraries {
    /// The software GPU and the stand-in of a file name, neither loaded yet.
    pub const fn new(stand_in: &'static str) -> Self {
        let loaded = OnceLock::new();
        Self { stand_in, loaded }
    }

    fn loaded(&self) -> &[Library; 2] {
        self.loaded.get_or_init(|| {
            let exe = std::env::current_exe().expect("the test's own path");
            // SAFETY: our own libraries; their constructors do nothing. The second finds the first by its name.
            ["libsoftware_gpu.so", self.stand_in].map(|name| unsafe {
                Library::new(exe.with_file_name(name)).expect("built beside the test")
            })
        })
    }

    /// The function with that name, from whichever library it is.
    ///
    /// # Panics
    /// There is no such function.
    pub fn function<F: Copy>(&self, name: &str) -> F {
        let find = |library: &Library| {
            // SAFETY: the caller's arguments have the types of the function's by its C declaration.
            unsafe { library.get::<F>(name.as_bytes()) }
                .ok()
                .map(|f| *f)
        };
        // The stand-in last: it finds the driver's functions, too.
        let found = self.loaded().iter().find_map(find);
        found.unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// Makes the first device's primary context current.
    pub fn enter(&self) {
        let mut context: *mut c_void = null_mut();
        crate::ok!(self, "cuInit"; 0u32);
        crate::ok!(self, "cuDevicePrimaryCtxRetain"; &mut context, 0);
        crate::ok!(self, "cuCtxSetCurrent"; context);
    }

    /// Device memory of this number of bytes.
    pub fn allocate(&self, size: usize) -> u64 {
        let mut address = 0u64;
        crate::ok!(self, "cuMemAlloc_v2"; &mut address, size.max(1));
        address
    }

    /// Device memory with these values.
    pub fn upload<T: Copy>(&self, values: &[T]) -> u64 {
        let address = self.allocate(size_of_val(values));
        crate::ok!(self, "cuMemcpyHtoD_v2"; address, values.as_ptr(), size_of_val(values));
        address
    }

    /// The content of device memory once all work is done.
    pub fn download<T: Copy + Default>(&self, address: u64, count: usize) -> Vec<T> {
        let mut values = vec![T::default(); count];
        crate::ok!(self, "cuCtxSynchronize";);
        crate::ok!(self, "cuMemcpyDtoH_v2"; values.as_mut_ptr(), address, size_of_val(&*values));
        values
    }
}

/// A call by name: the parameters have the arguments' types, which must be as wide as C's.
#[macro_export]
macro_rules! call {
    (@any $a:expr) => { _ };
    ($libraries:expr, $name:expr; $($a:expr),* $(,)?) => {{
        let f: unsafe extern "C" fn($($crate::call!(@any $a)),*) -> std::ffi::c_int = $libraries.function($name);
        // SAFETY: pointers in tests are NULL or valid where the function uses them; the rest may be anything. The
        // expanded expressions are the function's arguments: tests do nothing unsafe in them.
        #[allow(clippy::macro_metavars_in_unsafe)]
        unsafe {
            f($($a),*)
        }
    }};
}

/// A call that must succeed.
#[macro_export]
macro_rules! ok {
    ($libraries:expr, $name:expr; $($a:expr),* $(,)?) => {
        assert_eq!($crate::call!($libraries, $name; $($a),*), 0, "{}", $name)
    };
}
