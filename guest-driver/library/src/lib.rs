// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The common part of the guest's libraries with NVIDIA's names. It sends calls to the host, whose own library executes
//! them.
//!
//! A library consists of the functions that its table's rows generate ([`export_rows_of`]); they use [`forward`]. A
//! handle's settings are kept here ([`handle`]), so that queries and repeated settings cost nothing. A library's own
//! files contain the other functions, which need no host, or more than a row.

pub mod driver;
pub mod forward;
pub mod handle;
pub mod memory;
#[cfg(feature = "page")]
pub mod page;

use gpgpu_client::forks;
use gpgpu_protocol::libraries::{Library, SUCCESS};

/// The type of every function's result. Each library has its own enumeration.
pub type Status = u32;

/// A handle, a plan or a descriptor as the program sees it: its id as a pointer.
pub type Object = *mut std::ffi::c_void;

/// Runs the body of an exported function, and turns a panic into a status. In a forked child of a process that used CUDA
/// it fails first of all: a thread that the child does not have may have held any of the library's locks.
pub fn enter(library: Library, body: impl FnOnce() -> Result<(), Status>) -> Status {
    if forks::is_child() {
        return library.statuses().not_initialized;
    }
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    match outcome {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => library.statuses().internal_error,
    }
}

/// Writes a value to the program's pointer.
///
/// # Errors
///
/// The library's status for an invalid value if the pointer is NULL.
///
/// # Safety
///
/// The pointer is NULL or the caller's to write to.
pub unsafe fn give<T>(library: Library, to: *mut T, value: T) -> Result<(), Status> {
    if to.is_null() {
        return Err(library.statuses().invalid_value);
    }
    // SAFETY: promised by the caller.
    unsafe { to.write(value) };
    Ok(())
}

/// An argument as a word.
pub trait Word {
    /// The word, as the argument's register has it.
    fn word(self) -> u64;
}

macro_rules! words {
    ($($type:ty: $value:ident => $word:expr;)*) => {$(
        impl Word for $type {
            fn word(self) -> u64 {
                let $value = self;
                $word
            }
        }
    )*};
}

words! {
    i32: value => value as u64;
    i64: value => value as u64;
    f32: value => u64::from(value.to_bits());
    f64: value => value.to_bits();
    *mut std::ffi::c_void: value => value as u64;
}

/// A step of a hash of words: a bijection, so that hashes of words that differ in one differ.
fn mix(hash: u64, word: u64) -> u64 {
    let hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

/// The C type of an argument, by its kind.
#[doc(hidden)]
#[macro_export]
macro_rules! argument {
    (i32) => { i32 };
    (i64) => { i64 };
    (f32) => { f32 };
    (f64) => { f64 };
    ($pointer:ident) => { *mut ::std::ffi::c_void };
}

/// Exports the functions of a library's table in `gpgpu_protocol` that its rows describe completely.
#[macro_export]
macro_rules! export_rows_of {
    ($library:expr, $with:ident) => {
        const ROWS_OF: ::gpgpu_protocol::libraries::Library = $library;
        use $crate::export_rows;
        ::gpgpu_protocol::$with!(export_rows);
    };
}

/// Exports the functions of these rows.
#[doc(hidden)]
#[macro_export]
macro_rules! export_rows {
    ($($op:literal $completion:ident $style:ident $name:ident ($($arg:ident : $kind:ident $([$($of:tt)*])?),*) $($is:ident)*;)*) => {
        $($crate::export_row!($style $op $name ($($arg: $kind),*));)*
    };
}

/// Exports a function, unless its row says that it is written by hand.
#[doc(hidden)]
#[macro_export]
macro_rules! export_row {
    (table $op:literal $name:ident ($($arg:ident : $kind:ident),*)) => {
        /// The library's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers to host memory are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: $crate::argument!($kind)),*) -> $crate::Status {
            const FUNCTION: &::gpgpu_protocol::libraries::Function = ROWS_OF.row($op);
            $crate::forward::forward(FUNCTION, &[$($crate::Word::word($arg)),*])
        }
    };
    (guest $($rest:tt)*) => {};
}
