// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of a library's functions by name, looked up as by a C program's loader.

use libloading::Library;

/// The guest's library with this name.
pub fn open(name: &str) -> Library {
    // SAFETY: the initialisers of the library are this project's own.
    unsafe { Library::new(name) }.unwrap()
}

/// Calls a function. Its parameters have the arguments' types, which must be as wide as C's.
macro_rules! call {
    (@any $arg:expr) => { _ };
    ($library:expr, $name:ident($($arg:expr),* $(,)?)) => {{
        // SAFETY: the function takes so many such arguments, which are good or are refused.
        #[allow(clippy::macro_metavars_in_unsafe)]
        unsafe {
            let name = stringify!($name).as_bytes();
            let found = $library.get::<unsafe extern "C" fn($($crate::calls::call!(@any $arg)),*) -> u32>(name);
            found.unwrap()($($arg),*)
        }
    }};
}

/// Calls a function that must succeed.
macro_rules! ok {
    ($library:expr, $name:ident($($arg:expr),* $(,)?)) => {
        assert_eq!($crate::calls::call!($library, $name($($arg),*)), 0, stringify!($name))
    };
}

pub(crate) use {call, ok};
