// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The exported functions that the table describes completely.

macro_rules! export {
    ($($op:literal $completion:ident $style:ident $name:ident ($($arg:ident : $kind:ident $([$($of:tt)*])?),*) $($is:ident)*;)*) => {
        $(row!($style $op $name ($($arg: $kind),*));)*
    };
}

macro_rules! row {
    (table $op:literal $name:ident ($($arg:ident : $kind:ident),*)) => {
        /// cuDNN's function of this name.
        ///
        /// # Safety
        ///
        /// Pointers to host memory are NULL or valid for the function's accesses.
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name($($arg: gpgpu_library::argument!($kind)),*) -> gpgpu_library::Status {
            crate::calls::call($op, &[$(gpgpu_library::Word::word($arg)),*])
        }
    };
    (guest $($rest:tt)*) => {};
}

gpgpu_protocol::with_cudnn!(export);
