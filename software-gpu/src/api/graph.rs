// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Graphs and stream capture: the exported symbols, generated from the rows of the driver API's list with the word
//! `graph`.

use std::ffi::{c_char, c_void};

use gpgpu_graphs::api;
use gpgpu_protocol::{cuda::*, with_driver_api};

use crate::ffi;
use crate::graph::Soft;
use crate::observe;

macro_rules! function {
    (graph $symbol:ident [] $arguments:tt) => {
        function!(@ $symbol false $symbol $arguments);
    };
    (graph $symbol:ident [$per_thread:ident] $arguments:tt) => {
        function!(@ $symbol false $symbol $arguments);
        function!(@ $symbol true $per_thread $arguments);
    };
    (@ $body:ident $is_per_thread:literal $symbol:ident ($($arg:ident : $ty:ty),*)) => {
        /// As CUDA's documentation of the driver API describes it.
        ///
        /// # Safety
        /// Pointers are NULL or valid as CUDA's documentation of the function says.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($arg: $ty),*) -> CUresult {
            observe::call(observe::name!($symbol), || {
                // SAFETY: promised by the caller.
                ffi::always(|()| unsafe { api::$body::<Soft, $is_per_thread>($($arg),*) })
            })
        }
    };
    ($other:ident $($rest:tt)*) => {};
}

macro_rules! functions {
    ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {
        $(function!($guest $symbol [$($per_thread)?] ($($arg: $ty),*));)*

        /// Each symbol, and its address.
        pub(super) fn addresses() -> impl Iterator<Item = (&'static str, usize)> {
            let all = [$(address!($guest $symbol), $(address!($guest $per_thread),)?)*];
            all.into_iter().flatten()
        }
    };
}

macro_rules! address {
    (graph $symbol:ident) => {
        Some((stringify!($symbol), $symbol as *const () as usize))
    };
    ($other:ident $symbol:ident) => {
        None
    };
}

with_driver_api!(functions);
