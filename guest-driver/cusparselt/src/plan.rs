// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Plans, and the products that they compute.

use std::{
    ffi::c_int,
    hash::{DefaultHasher, Hash, Hasher},
};

use gpgpu_library::{
    Status,
    forward::{self, contents, new_object, stream_id},
};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function,
        Library::CusparseLt,
        cusparselt::{
            attributes::{Class, FOUND},
            form::{Form, Product, Scalar, Selection},
            status,
        },
    },
};

use crate::{
    LIBRARY, PLAN, alive, enter, enter_on,
    kept::{self, Opaque, Plan},
    selection::{self, Found},
};

const NEW: &Function = CusparseLt.find("cusparseLtMatmulPlanInit");
const END: &Function = CusparseLt.find("cusparseLtMatmulPlanDestroy");
const WORKSPACE: &Function = CusparseLt.find("cusparseLtMatmulGetWorkspace");
const MATMUL: &Function = CusparseLt.find("cusparseLtMatmul");
const SEARCH: &Function = CusparseLt.find("cusparseLtMatmulSearch");

/// A plan in a program's structure.
///
/// # Errors
///
/// `INVALID_VALUE` if it is no plan.
///
/// # Safety
///
/// The structure is NULL or the caller's to read.
pub unsafe fn read(from: *const Opaque) -> Result<(Plan, u64), Status> {
    // SAFETY: promised by the caller.
    unsafe { kept::read::<Plan>(from) }
}

/// Records a plan's source. The library accepts the same calls with plans from equal sources.
fn describe(id: u64, handle: u64, blob: &[u8]) {
    let mut hasher = DefaultHasher::new();
    (handle, blob).hash(&mut hasher);
    contents::begin(id, hasher.finish());
}

/// `cusparseLtMatmulPlanInit`.
///
/// # Safety
///
/// Structures are NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulPlanInit(
    handle: *const Opaque,
    plan: *mut Opaque,
    matmulDescr: *const Opaque,
    algSelection: *const Opaque,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            if plan.is_null() {
                return Err(status::INVALID_VALUE);
            }
            let (product, _) = kept::read::<Product>(matmulDescr)?;
            let (selected, serial) = selection::read(algSelection)?;
            // The product's descriptor may have got more settings since the selection was made.
            let selection = Selection {
                product,
                ..selected
            };
            let (id, blob) = (new_object(PLAN)?, selection.bytes());
            if let Some(lost) = alive::add(id) {
                forward::send(END, &[lost])?;
            }
            on.send(NEW, &blob, [id, 0]).inspect_err(|_| {
                alive::forget(id);
            })?;
            describe(id, on.id, &blob);
            kept::write(plan, Plan { id, selection }, serial)
        })
    }
}

/// `cusparseLtMatmulPlanDestroy`.
///
/// # Safety
///
/// The structure is NULL or the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulPlanDestroy(plan: *const Opaque) -> Status {
    enter(|| {
        // SAFETY: promised by the caller.
        let plan = unsafe { kept::end::<Plan>(plan) }?;
        match alive::forget(plan.id) {
            true => forward::send(END, &[plan.id]),
            // It was destroyed to make room for another one, or through a copy of the structure.
            false => Ok(()),
        }
    })
}

/// `cusparseLtMatmulGetWorkspace`.
///
/// # Safety
///
/// Structures are NULL or the caller's; `workspaceSize` is NULL or the caller's to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cusparseLtMatmulGetWorkspace(
    handle: *const Opaque,
    plan: *const Opaque,
    workspaceSize: *mut usize,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (plan, _) = read(plan)?;
            if workspaceSize.is_null() {
                return Err(status::INVALID_VALUE);
            }
            on.send(
                WORKSPACE,
                &plan.selection.bytes(),
                [0, workspaceSize as u64],
            )
        })
    }
}

/// Alpha and beta, at the places that the product says.
///
/// # Safety
///
/// Pointers to host memory are NULL or to single-precision numbers.
unsafe fn scalars(of: &Product, pointers: [*const u32; 2]) -> [Scalar; 2] {
    let mut scalars = [Scalar::At(0); 2];
    for ((scalar, is_vector), pointer) in scalars.iter_mut().zip(of.vectors()).zip(pointers) {
        *scalar = match is_vector || pointer.is_null() {
            true => Scalar::At(pointer as u64),
            // SAFETY: promised by the caller.
            false => Scalar::Here(unsafe { pointer.read_unaligned() }),
        };
    }
    scalars
}

/// The stream of a product: the first of the program's streams for it. The product waits for all of them.
///
/// # Errors
///
/// `INVALID_VALUE` if one is invalid.
///
/// # Safety
///
/// `streams` is NULL or has so many.
unsafe fn first_of(streams: *const CUstream, count: c_int) -> Result<u64, Status> {
    let count = usize::try_from(count).map_err(|_| status::INVALID_VALUE)?;
    if streams.is_null() && count != 0 {
        return Err(status::INVALID_VALUE);
    }
    let mut first = None;
    for at in 0..count {
        // SAFETY: promised by the caller.
        let stream = unsafe { streams.add(at).read() };
        let id = stream_id(LIBRARY, stream as u64)?;
        first.get_or_insert(id);
    }
    // Without streams it is the legacy stream.
    first.map_or_else(|| stream_id(LIBRARY, 0), Ok)
}

/// `cusparseLtMatmul`.
///
/// # Safety
///
/// Structures are NULL or the caller's; scalars at host addresses are NULL or single-precision numbers; `streams` is
/// NULL or has as many as is said.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtMatmul(
    handle: *const Opaque,
    plan: *const Opaque,
    alpha: *const u32,
    d_A: u64,
    d_B: u64,
    beta: *const u32,
    d_C: u64,
    d_D: u64,
    workspace: u64,
    streams: *const CUstream,
    numStreams: c_int,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (plan, _) = read(plan)?;
            alive::use_one(plan.id)?;
            let scalars = scalars(&plan.selection.product, [alpha, beta]);
            let stream = first_of(streams, numStreams)?;
            let rest = [plan.id, 0, d_A, d_B, d_C, d_D, workspace, stream];
            on.send(MATMUL, &scalars.bytes(), rest)
        })
    }
}

/// Decodes the attributes that a search has found from its reply.
fn found(reply: &[u8]) -> Result<Found, Status> {
    let words = reply.chunks_exact(8).map(|word| {
        let word = word.try_into().unwrap_or_default();
        u64::from_le_bytes(word)
    });
    let words: Vec<u64> = words.collect();
    let found = words.chunks(2).map(|pair| match *pair {
        [number, value] => {
            let at = FOUND.into_iter().find(|at| *at as u64 == number)?;
            Class::Selection.attributes()[at]
                .takes(value)
                .then_some((at, value))
        }
        _ => None,
    });
    found
        .collect::<Option<Found>>()
        .ok_or(status::INTERNAL_ERROR)
}

/// `cusparseLtMatmulSearch`.
///
/// # Safety
///
/// As [`cusparseLtMatmul`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cusparseLtMatmulSearch(
    handle: *const Opaque,
    plan: *mut Opaque,
    alpha: *const u32,
    d_A: u64,
    d_B: u64,
    beta: *const u32,
    d_C: u64,
    d_D: u64,
    workspace: u64,
    streams: *const CUstream,
    numStreams: c_int,
) -> Status {
    // SAFETY: promised by the caller.
    unsafe {
        enter_on(handle, |on| {
            let (mut of, serial) = read(plan)?;
            alive::use_one(of.id)?;
            let scalars = scalars(&of.selection.product, [alpha, beta]);
            let stream = first_of(streams, numStreams)?;
            let rest = [of.id, 0, d_A, d_B, d_C, d_D, workspace, stream, 1];
            let found = found(&on.ask_for(SEARCH, &scalars.bytes(), rest)?)?;
            for (number, value) in &found {
                of.selection.set.set(*number, *value);
            }
            describe(of.id, on.id, &of.selection.bytes());
            selection::note(serial, found);
            kept::write(plan, of, serial)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_to_a_search_has_exactly_the_form_of_its_results() {
        let reply = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let found = |words: &[u64]| found(&Vec::<u8>::from_iter::<Vec<u8>>(reply(words)));
        assert_eq!(found(&[]), Ok(vec![]));
        assert_eq!(found(&[0, 7, 3, 2]), Ok(vec![(0, 7), (3, 2)]));
        for wrong in [&[0][..], &[1, 7], &[6, 7], &[0, 1 << 32]] {
            assert!(found(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn scalars_are_read_where_the_product_says() {
        let two = 2.0_f32.to_bits();
        let pointers = [&raw const two, std::ptr::null()];
        let mut of = Product::default();
        // SAFETY: the pointers are to a number, or NULL.
        let [alpha, beta] = unsafe { scalars(&of, pointers) };
        assert_eq!([alpha, beta], [Scalar::Here(two), Scalar::At(0)]);
        of.set.set(5, 1);
        // SAFETY: as above.
        let [alpha, _] = unsafe { scalars(&of, pointers) };
        assert_eq!(alpha, Scalar::At(pointers[0] as u64));
    }
}
