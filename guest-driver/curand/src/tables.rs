// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The tables for quasirandom sequences. They are constants of the host's library, and stay in the process once they
//! were fetched.

use std::ffi::c_void;

use gpgpu_library::{Status, forward::Request};
use gpgpu_locks::Mutex;
use gpgpu_protocol::libraries::{
    Function, Library,
    curand::{DIMENSIONS, PIECE, status},
};

use crate::{enter, give};

/// A table, once it was fetched, as words of eight bytes, so that it is aligned for its values.
struct Table(Mutex<Option<&'static [u64]>>);

impl Table {
    const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The address of a table of this size. `set` selects one of several tables of the function.
    fn get(
        &self,
        function: &'static Function,
        set: Option<i32>,
        bytes: usize,
    ) -> Result<*const c_void, Status> {
        let mut table = self.0.lock();
        let words = match *table {
            Some(words) => words,
            None => {
                let words = fetch(function, set, bytes)?;
                // Programs keep the address, so the table is never freed.
                *table.insert(Vec::leak(words))
            }
        };
        Ok(words.as_ptr().cast())
    }
}

/// Fetches a table piece by piece.
fn fetch(function: &'static Function, set: Option<i32>, bytes: usize) -> Result<Vec<u64>, Status> {
    let mut words = Vec::with_capacity(bytes / 8);
    while words.len() * 8 < bytes {
        let from = words.len() * 8;
        // A nonzero word asks for the reply.
        let arguments = [set.unwrap_or(0) as u64, from as u64, 1];
        let arguments = &arguments[usize::from(set.is_none())..];
        let piece = Request::new(function, arguments).ask_for()?;
        if piece.len() != PIECE.min(bytes - from) || !piece.len().is_multiple_of(8) {
            return Err(status::INTERNAL_ERROR);
        }
        let of = |word: &[u8]| {
            word.iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte))
        };
        words.extend(piece.chunks_exact(8).map(of));
    }
    Ok(words)
}

macro_rules! tables {
    ($($vectors:ident $constants:ident $first:literal $values:literal $bytes:literal;)*) => {$(
        /// cuRAND's function of this name. There are two sets, each with the same number of values of the same width
        /// for each dimension.
        ///
        /// # Safety
        ///
        /// `vectors` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $vectors(vectors: *mut *const c_void, set: i32) -> Status {
            static TABLES: [Table; 2] = [Table::new(), Table::new()];
            const FUNCTION: &Function = Library::Curand.find(stringify!($vectors));
            enter(|| {
                let at = usize::try_from(set.wrapping_sub($first)).ok();
                let table = at.and_then(|at| TABLES.get(at)).ok_or(status::OUT_OF_RANGE)?;
                let table = table.get(FUNCTION, Some(set), DIMENSIONS * $values * $bytes)?;
                // SAFETY: promised by the caller.
                unsafe { give(vectors, table) }
            })
        }

        /// cuRAND's function of this name: a value for each dimension.
        ///
        /// # Safety
        ///
        /// `constants` is NULL or the caller's to write to.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $constants(constants: *mut *const c_void) -> Status {
            static TABLE: Table = Table::new();
            const FUNCTION: &Function = Library::Curand.find(stringify!($constants));
            enter(|| {
                let table = TABLE.get(FUNCTION, None, DIMENSIONS * $bytes)?;
                // SAFETY: promised by the caller.
                unsafe { give(constants, table) }
            })
        }
    )*};
}

tables! {
    curandGetDirectionVectors32 curandGetScrambleConstants32 101 32 4;
    curandGetDirectionVectors64 curandGetScrambleConstants64 103 64 8;
}
