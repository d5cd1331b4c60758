// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `cusparseMatDescr_t`. Its getters return the fields themselves, without a status, so the fields are stored here too.

use gpgpu_library::{Object, Status, forward};
use gpgpu_protocol::libraries::{Function, Library::Cusparse};

use crate::{enter, known::Known};

/// Type, triangle, diagonal and base.
static DESCRIPTIONS: Known<[i32; 4]> = Known::new();

const CREATE: &Function = Cusparse.find("cusparseCreateMatDescr");
const DESTROY: &Function = Cusparse.find("cusparseDestroyMatDescr");

/// `cusparseCreateMatDescr`.
///
/// # Safety
///
/// `descrA` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseCreateMatDescr(descrA: *mut Object) -> Status {
    enter(|| {
        forward::send(CREATE, &[descrA as u64])?;
        // SAFETY: the caller's, and it has been written.
        DESCRIPTIONS.set(unsafe { descrA.read() } as u64, [0; 4]);
        Ok(())
    })
}

/// `cusparseDestroyMatDescr`.
#[unsafe(no_mangle)]
pub extern "C" fn cusparseDestroyMatDescr(descrA: Object) -> Status {
    enter(|| {
        DESCRIPTIONS.forget(descrA as u64);
        forward::send(DESTROY, &[descrA as u64])
    })
}

macro_rules! parts {
    ($($at:literal: $set:ident $get:ident;)*) => {$(
        /// cuSPARSE's function of this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn $set(descrA: Object, value: i32) -> Status {
            const SET: &Function = Cusparse.find(stringify!($set));
            enter(|| {
                forward::send(SET, &[descrA as u64, value as u64])?;
                DESCRIPTIONS.change(descrA as u64, |parts| parts[$at] = value);
                Ok(())
            })
        }

        /// cuSPARSE's function of this name. For an invalid descriptor it returns a new descriptor's value.
        #[unsafe(no_mangle)]
        pub extern "C" fn $get(descrA: Object) -> i32 {
            DESCRIPTIONS.get(descrA as u64).map_or(0, |parts| parts[$at])
        }
    )*};
}

parts! {
    0: cusparseSetMatType cusparseGetMatType;
    1: cusparseSetMatFillMode cusparseGetMatFillMode;
    2: cusparseSetMatDiagType cusparseGetMatDiagType;
    3: cusparseSetMatIndexBase cusparseGetMatIndexBase;
}
