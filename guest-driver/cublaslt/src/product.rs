// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Products and transformations.

use gpgpu_library::{Object, Status, forward::stream_id};
use gpgpu_protocol::{
    cuda::CUstream,
    libraries::{
        Function,
        Library::CublasLt,
        cublaslt::{
            attributes::{
                Class, POINTER_MODE, SCALE_TYPE, TRANSFORM_POINTER_MODE, TRANSFORM_SCALE_TYPE,
            },
            form::{
                Algorithm, Operands, Place, SCALAR, Scalar, places, put_product,
                put_transformation, scalar_bytes,
            },
            status,
        },
    },
};

use crate::{
    LIBRARY,
    call::{Parts, on_handle, post_by_plan, send_work},
    descriptor::{Descriptor, Raw},
    enter,
    plans::{self, Found},
};

/// `cublasLtMatmul`, with the content of its descriptors.
pub const MATMUL: &Function = CublasLt.find("cublasLtMatmul");
/// `cublasLtMatmul` by a plan.
const BY_PLAN: &Function = CublasLt.find("gpgpuLtPlanMatmul");
const TRANSFORM: &Function = CublasLt.find("cublasLtMatrixTransform");

/// A scalar with the size of a `cudaDataType`, followed by zeros.
///
/// # Safety
///
/// There are so many bytes at the pointer.
unsafe fn value_at(pointer: *const u8, bytes: usize) -> [u64; SCALAR / 8] {
    // Loads of a fixed width: a copy of a variable length calls `memcpy`.
    // SAFETY: promised by the caller; a program's value may be anywhere.
    unsafe {
        match bytes {
            1 => [u64::from(pointer.read()), 0],
            2 => [u64::from(pointer.cast::<u16>().read_unaligned()), 0],
            4 => [u64::from(pointer.cast::<u32>().read_unaligned()), 0],
            8 => [pointer.cast::<u64>().read_unaligned(), 0],
            _ => pointer.cast::<[u64; SCALAR / 8]>().read_unaligned(),
        }
    }
}

/// Alpha and beta at the places that a descriptor says.
///
/// # Safety
///
/// Pointers to host memory are NULL or to values of the scale type.
unsafe fn scalars(
    of: &Descriptor<'_>,
    [mode, scale_type]: [u16; 2],
    pointers: [*const u8; 2],
) -> Result<[Scalar; 2], Status> {
    let places = places(of.get(mode)).ok_or(status::INVALID_VALUE)?;
    let mut scalars = [Scalar::At(0); 2];
    for ((scalar, place), pointer) in scalars.iter_mut().zip(places).zip(pointers) {
        *scalar = match place {
            Place::Device => Scalar::At(pointer as u64),
            Place::Zero => Scalar::Here([0; SCALAR / 8]),
            Place::Host if pointer.is_null() => Scalar::At(0),
            Place::Host => {
                let bytes = scalar_bytes(of.get(scale_type)).ok_or(status::INVALID_VALUE)?;
                // SAFETY: promised by the caller.
                Scalar::Here(unsafe { value_at(pointer, bytes) })
            }
        };
    }
    Ok(scalars)
}

/// Whether a scalar should be at a host address, and the pointer is NULL.
fn has_missing(of: &Descriptor<'_>, mode: u16, pointers: [*const u8; 2]) -> bool {
    let places = places(of.get(mode)).into_iter().flatten();
    let mut all = places.zip(pointers);
    all.any(|(place, pointer)| matches!(place, Place::Host) && pointer.is_null())
}

/// `cublasLtMatmul`.
///
/// # Safety
///
/// Descriptors and the algorithm are NULL or valid and unchanged meanwhile; other pointers to host memory are NULL or
/// valid for the function's accesses.
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatmul(
    lightHandle: Object,
    computeDesc: Raw,
    alpha: *const u8,
    A: u64,
    Adesc: Raw,
    B: u64,
    Bdesc: Raw,
    beta: *const u8,
    C: u64,
    Cdesc: Raw,
    D: u64,
    Ddesc: Raw,
    algo: *const Algorithm,
    workspace: u64,
    workspaceSizeInBytes: u64,
    stream: CUstream,
) -> Status {
    enter(|| {
        on_handle(lightHandle, |known| {
            // SAFETY: promised by the caller; an algorithm is bytes.
            let (parts, algorithm) = unsafe {
                let parts = Parts::read(computeDesc, [Adesc, Bdesc, Cdesc, Ddesc])?;
                (parts, algo.as_ref())
            };
            let attributes = [POINTER_MODE, SCALE_TYPE];
            // SAFETY: promised by the caller.
            let scalars = unsafe { scalars(parts.operation(), attributes, [alpha, beta]) }?;
            // NVIDIA's library reads a scalar at any host address, which would be one of the worker's here.
            if has_missing(parts.operation(), attributes[0], [alpha, beta]) {
                return Err(status::INVALID_VALUE);
            }
            let stream = stream_id(LIBRARY, stream as u64)?;
            let operands = Operands {
                scalars,
                matrices: [A, B, C, D],
                workspace: (workspace, workspaceSizeInBytes),
            };
            let found = plans::find(&parts, algorithm);
            if let Found::Plan(plan) = found
                && post_by_plan(BY_PLAN, known, lightHandle, stream, plan, &operands)?
            {
                return Ok(());
            }
            send_work(MATMUL, known, lightHandle, stream, |sink| {
                put_product(sink, &parts.described(), algorithm, &operands);
            })?;
            if let Found::Nothing(hash) = found {
                plans::met(hash, &parts, algorithm);
            }
            Ok(())
        })
    })
}

/// `cublasLtMatrixTransform`.
///
/// # Safety
///
/// As [`cublasLtMatmul`].
#[unsafe(no_mangle)]
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn cublasLtMatrixTransform(
    lightHandle: Object,
    transformDesc: Raw,
    alpha: *const u8,
    A: u64,
    Adesc: Raw,
    beta: *const u8,
    B: u64,
    Bdesc: Raw,
    C: u64,
    Cdesc: Raw,
    stream: CUstream,
) -> Status {
    enter(|| {
        on_handle(lightHandle, |known| {
            // SAFETY: promised by the caller.
            let operation = unsafe { Descriptor::read(Class::Transform, transformDesc) }?;
            let mut layouts = [None; 3];
            for (layout, raw) in layouts.iter_mut().zip([Adesc, Bdesc, Cdesc]) {
                if !raw.is_null() {
                    // SAFETY: promised by the caller.
                    *layout = Some(unsafe { Descriptor::read(Class::Layout, raw) }?);
                }
            }
            // NVIDIA's library reads these two at any address.
            if layouts[0].is_none() || layouts[2].is_none() {
                return Err(status::INVALID_VALUE);
            }
            let attributes = [TRANSFORM_POINTER_MODE, TRANSFORM_SCALE_TYPE];
            // SAFETY: promised by the caller.
            let scalars = unsafe { scalars(&operation, attributes, [alpha, beta]) }?;
            let stream = stream_id(LIBRARY, stream as u64)?;
            send_work(TRANSFORM, known, lightHandle, stream, |sink| {
                let layouts = layouts.each_ref().map(Option::as_ref);
                put_transformation(sink, &operation, layouts, scalars, [A, B, C]);
            })
        })
    })
}
