// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Selections of an algorithm. A search stores its result for the selection from which a plan was made, wherever the
//! program keeps that selection: both have the same number.

use std::{
    collections::HashMap,
    ffi::{c_int, c_void},
};

use gpgpu_library::Status;
use gpgpu_locks::{Mutex, MutexGuard};
use gpgpu_protocol::libraries::{
    Function,
    Library::CusparseLt,
    cusparselt::{
        attributes::Class,
        form::{Form, Product, Selection},
        status,
    },
};

use crate::{
    describe::{tell, value},
    enter, enter_on,
    kept::{self, Opaque, new_serial},
};

const NEW: &Function = CusparseLt.find("cusparseLtMatmulAlgSelectionInit");
const SET: &Function = CusparseLt.find("cusparseLtMatmulAlgSetAttribute");
const GET: &Function = CusparseLt.find("cusparseLtMatmulAlgGetAttribute");

/// Attributes by number.
pub type Found = Vec<(usize, u64)>;

/// The most selections whose search results are kept, because programs need not destroy selections.
const SEARCHED: usize = 1 << 12;

/// The results of searches, by selection.
fn searched() -> MutexGuard<'static, Option<HashMap<u64, Found>>> {
    static FOUND: Mutex<Option<HashMap<u64, Found>>> = Mutex::new(None);
    FOUND.lock()
}

/// Records the result of a search.
pub fn note(serial: u64, found: Found) {
    let mut all = searched();
    let all = all.get_or_insert_default();
    if all.len() >= SEARCHED {
        all.clear();
    }
    all.insert(serial, found);
}

/// A structure's selection, with the result of its search.
///
/// # Errors
///
/// `INVALID_VALUE` if it is no selection.
///
/// # Safety
///
/// The structure is NULL or the caller's to read.
pub unsafe fn read(from: *const Opaque) -> Result<(Selection, u64), Status> {
    // SAFETY: promised by the caller.
    let (mut of, serial) = unsafe { kept::read::<Selection>(from) }?;
    let found = searched()
        .as_ref()
        .and_then(|all| all.get(&serial).cloned());
    for (number, value) in found.into_iter().flatten() {
        of.set.set(number, value);
    }
    Ok((of, serial))
}

/// `cusparseLtMatmulAlgSelectionInit`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgSelectionInit(
    handle: *const Opaque,
    algSelection: *mut Opaque,
    matmulDescr: *const Opaque,
    alg: c_int,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (product, _) = kept::read::<Product>(matmulDescr)?;
            // `CUSPARSELT_MATMUL_ALG_DEFAULT` is the only value.
            if alg != 0 {
                return Err(status::INVALID_VALUE);
            }
            let selection = Selection {
                product,
                ..Selection::default()
            };
            on.send(NEW, &selection.bytes(), [0])?;
            kept::write(algSelection, selection, new_serial())
        })
    }
}

/// `cusparseLtMatmulAlgSelectionDestroy`.
///
/// # Safety
///
/// The structure is NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgSelectionDestroy(
    algSelection: *const Opaque,
) -> Status {
    enter(|| {
        // SAFETY: promised by the caller.
        let (_, serial) = unsafe { kept::read::<Selection>(algSelection) }?;
        if let Some(all) = searched().as_mut() {
            all.remove(&serial);
        }
        // SAFETY: promised by the caller.
        unsafe { kept::end::<Selection>(algSelection).map(drop) }
    })
}

/// `cusparseLtMatmulAlgSetAttribute`.
///
/// # Safety
///
/// Structures are NULL or the caller's; `data` is NULL or has so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgSetAttribute(
    handle: *const Opaque,
    algSelection: *mut Opaque,
    attribute: c_int,
    data: *const c_void,
    dataSize: usize,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (mut of, _) = read(algSelection)?;
            let (at, value) = value(Class::Selection, attribute, data, dataSize)?;
            of.set.set(at, value);
            on.send(SET, &of.bytes(), [0])?;
            // It gets a new number: it includes the search's result, and its later settings take precedence.
            kept::write(algSelection, of, new_serial())
        })
    }
}

/// `cusparseLtMatmulAlgGetAttribute`.
///
/// # Safety
///
/// Structures are NULL or the caller's; `data` is NULL or has room for so many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulAlgGetAttribute(
    handle: *const Opaque,
    algSelection: *const Opaque,
    attribute: c_int,
    data: *mut c_void,
    dataSize: usize,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (of, _) = read(algSelection)?;
            let (set, blob) = (|at| of.set.get(at), || of.bytes());
            let asked = (Class::Selection, GET);
            tell(&on, asked, attribute, (data, dataSize), set, blob)
        })
    }
}
