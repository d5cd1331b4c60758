//! The exported functions that the table describes completely.

use std::ffi::c_void;

use gpgpu_protocol::with_cublas;

use crate::{Status, forward::forward, handle::CublasHandle};

/// An argument as a word.
trait Word {
    fn word(self) -> u64;
}

impl Word for i32 {
    fn word(self) -> u64 {
        self as u64
    }
}

impl Word for i64 {
    fn word(self) -> u64 {
        self as u64
    }
}

impl Word for *mut c_void {
    fn word(self) -> u64 {
        self as u64
    }
}

macro_rules! ty {
    (handle) => {
        CublasHandle
    };
    (i32) => {
        i32
    };
    (i64) => {
        i64
    };
    ($pointer:ident) => {
        *mut c_void
    };
}

macro_rules! export {
    (table $op:literal $name:ident ($($arg:ident : $kind:ident),*)) => {
        /// cuBLAS's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers to host memory are NULL or valid for what the function reads or writes.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: ty!($kind)),*) -> Status {
            forward($op, &[$($arg.word()),*])
        }
    };
    (guest $($rest:tt)*) => {};
}

macro_rules! exports {
    ($($op:literal $completion:ident $style:ident $name:ident ($($arg:ident : $kind:ident $([$($of:tt)*])?),*) $($is:ident)*;)*) => {
        $(export!($style $op $name ($($arg: $kind),*));)*
    };
}

with_cublas!(exports);
