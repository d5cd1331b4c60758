// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The CUDA driver API: every function, declared once.
//!
//! [`with_driver_api!`](crate::with_driver_api) passes the list to a macro of the caller's choice. From it come
//! [`ENTRY_POINTS`], the types in [`signature`], the host's bindings, the runtime library's, the functions that the
//! guest's library does not have yet, and the checks that the functions of the guest's library and of the software GPU
//! have CUDA's signatures ([`check`]).
//!
//! CUDA gives a function whose signature changed a new symbol, and `cuGetProcAddress` returns the one that was current
//! in the requested version. So a row of the list is one symbol. It consists of: the function's name without a version;
//! the CUDA version that introduced the symbol (1000 times the major, 10 times the minor); the origin of the guest's
//! function ([`Guest`], in lower case, or `graph` for functions written by hand in `gpgpu-graphs`, also for the
//! software GPU); the symbol; the symbol of its variant with per-thread default streams if it has one; its parameters.
//!
//! The types are those of [`crate::cuda`]: an integer for an enumeration of CUDA, and `c_void` for a structure behind a
//! pointer, or for a handle, that is not declared there.

mod list;
pub mod reasons;

pub mod check;

use crate::with_driver_api;

/// The implementation of a function in the guest's library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guest {
    /// It is generated from the API table ([`crate::api`]).
    Table,
    /// It is written by hand.
    Guest,
    /// It returns an error, as NVIDIA's driver does in the same environment: on Linux, and without a display.
    Refused,
    /// It only reports that it is not supported yet.
    Unsupported,
}

/// One symbol of the driver API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryPoint {
    /// The function's name, without a version.
    pub name: &'static str,
    /// The CUDA version that introduced this symbol (1000 times the major, 10 times the minor).
    pub since: u32,
    /// The exported symbol.
    pub symbol: &'static str,
    /// Whether this is the variant with per-thread default streams.
    pub per_thread: bool,
    /// The implementation in the guest's library.
    pub guest: Guest,
}

/// Per-thread default streams were introduced with CUDA 7.
const fn per_thread_since(since: u32) -> u32 {
    if since < 7000 { 7000 } else { since }
}

macro_rules! guest {
    (table) => {
        Guest::Table
    };
    (guest) => {
        Guest::Guest
    };
    (graph) => {
        Guest::Guest
    };
    (refused) => {
        Guest::Refused
    };
    (unsupported) => {
        Guest::Unsupported
    };
}

macro_rules! entry_points {
    ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {
        /// All entry points, by name and then by version; a variant with per-thread default streams follows its
        /// function.
        pub const ENTRY_POINTS: &[EntryPoint] = &[$(
            EntryPoint {
                name: stringify!($name),
                since: $since,
                symbol: stringify!($symbol),
                per_thread: false,
                guest: guest!($guest),
            },
            $(EntryPoint {
                name: stringify!($name),
                since: per_thread_since($since),
                symbol: stringify!($per_thread),
                per_thread: true,
                guest: guest!($guest),
            },)?
        )*];
    };
}

with_driver_api!(entry_points);

/// The type of each function, with the name of its symbol.
#[allow(non_camel_case_types, non_snake_case)]
pub mod signature {
    use std::ffi::{c_char, c_void};

    use crate::{cuda::*, with_driver_api};

    macro_rules! signatures {
        ($($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {$(
            #[doc = concat!("`", stringify!($symbol), "`.")]
            pub type $symbol = unsafe extern "C" fn($($arg: $ty),*) -> CUresult;
            $(
                #[doc = concat!("`", stringify!($per_thread), "`.")]
                pub type $per_thread = $symbol;
            )?
        )*};
    }

    with_driver_api!(signatures);
}

/// Defines `with_signature!`, with one arm for each symbol. `$d` is a dollar sign, for the macro that is defined.
macro_rules! lookup {
    ($d:tt $($name:ident $since:literal $guest:ident $symbol:ident $($per_thread:ident)? ($($arg:ident : $ty:ty),*);)*) => {
        /// Passes the parameters of the function of the first symbol to `$callback!`, after the tokens in `extra`. The
        /// types must be in scope: those of [`crate::cuda`], `c_char` and `c_void`.
        #[macro_export]
        macro_rules! with_signature {
            $(
                ($symbol $d callback:ident $d($d extra:tt)*) => {
                    $d callback! { $d($d extra)* ($($arg: $ty),*) }
                };
            )*
        }
    };
}

with_driver_api!(lookup $);

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::*;
    use crate::api::OPERATIONS;

    #[test]
    fn names_are_sorted_symbols_are_unique_and_versions_ascend() {
        assert!(ENTRY_POINTS.is_sorted_by_key(|entry| entry.name));
        let mut newest = HashMap::new();
        let mut symbols = HashSet::new();
        for entry in ENTRY_POINTS {
            let older = newest.insert((entry.name, entry.per_thread), entry.since);
            assert!(older < Some(entry.since), "{}", entry.symbol);
            assert!(symbols.insert(entry.symbol), "{}", entry.symbol);
        }
    }

    #[test]
    fn a_symbol_is_its_name_with_suffixes() {
        for entry in ENTRY_POINTS {
            let symbol = entry.symbol;
            assert!(symbol.starts_with(entry.name), "{symbol}");
            let suffixed = symbol.ends_with("_ptsz") || symbol.ends_with("_ptds");
            assert_eq!(suffixed, entry.per_thread, "{symbol}");
        }
    }

    #[test]
    fn the_api_table_makes_the_functions_that_the_list_assigns_to_it() {
        let made: HashSet<_> = OPERATIONS
            .iter()
            .map(|operation| (operation, operation.description()))
            .filter(|(_, description)| matches!(description.style, "plain" | "worker"))
            .flat_map(|(of, description)| description.per_thread.iter().chain([&of.name]))
            .collect();
        for entry in ENTRY_POINTS {
            assert_eq!(
                made.contains(&entry.symbol),
                entry.guest == Guest::Table,
                "{}",
                entry.symbol
            );
        }
    }
}
