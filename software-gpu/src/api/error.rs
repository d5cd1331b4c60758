// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Names and descriptions of result codes.

use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::OnceLock;

use gpgpu_protocol::cuda::{CUDA_ERROR_INVALID_VALUE, CUresult, RESULT_NAMES};

use crate::ffi::{Pointer, export};

struct Words {
    name: CString,
    description: CString,
}

/// Texts for codes whose names are not clear.
const DESCRIPTIONS: &[(&str, &str)] = &[
    ("SUCCESS", "no error"),
    ("INVALID_VALUE", "an argument is not valid"),
    ("OUT_OF_MEMORY", "there is not enough memory"),
    (
        "NOT_INITIALIZED",
        "the driver is not initialised: call cuInit first",
    ),
    ("DEINITIALIZED", "the driver is shutting down"),
    ("NO_DEVICE", "there is no CUDA device"),
    (
        "INVALID_DEVICE",
        "there is no device of that ordinal, or it cannot do this",
    ),
    ("INVALID_IMAGE", "the image is not a module"),
    (
        "INVALID_CONTEXT",
        "there is no current context, or it is not valid",
    ),
    ("NO_BINARY_FOR_GPU", "the image has no code for this device"),
    ("INVALID_PTX", "the PTX did not compile"),
    (
        "UNSUPPORTED_PTX_VERSION",
        "the PTX is of a newer version than this driver knows",
    ),
    ("FILE_NOT_FOUND", "the file was not found"),
    (
        "INVALID_HANDLE",
        "the handle names no object of the kind that is needed",
    ),
    ("NOT_FOUND", "no symbol of that name was found"),
    ("NOT_READY", "the work has not ended yet"),
    (
        "ILLEGAL_ADDRESS",
        "a kernel used an address where there is no memory",
    ),
    (
        "LAUNCH_OUT_OF_RESOURCES",
        "the launch needs more resources than the device has",
    ),
    (
        "LAUNCH_TIMEOUT",
        "the kernel took too long, or waited for what cannot come",
    ),
    (
        "CONTEXT_IS_DESTROYED",
        "the current context has been destroyed",
    ),
    ("ASSERT", "an assertion failed in a kernel"),
    (
        "ILLEGAL_INSTRUCTION",
        "a kernel met an instruction that cannot be run",
    ),
    (
        "MISALIGNED_ADDRESS",
        "a kernel used an address that is not aligned",
    ),
    ("LAUNCH_FAILED", "the kernel failed while it ran"),
    (
        "COOPERATIVE_LAUNCH_TOO_LARGE",
        "more blocks than can be resident at once",
    ),
    ("NOT_PERMITTED", "the call is not permitted here"),
    (
        "NOT_SUPPORTED",
        "the operation is not supported on this device",
    ),
];

fn words() -> &'static HashMap<CUresult, Words> {
    static WORDS: OnceLock<HashMap<CUresult, Words>> = OnceLock::new();
    WORDS.get_or_init(|| {
        let entry = |(code, name): &(CUresult, &str)| {
            let short = name
                .trim_start_matches("CUDA_")
                .trim_start_matches("ERROR_");
            let description = DESCRIPTIONS.iter().find(|(n, _)| *n == short).map_or_else(
                || short.to_lowercase().replace('_', " "),
                |(_, d)| (*d).to_owned(),
            );
            let c = |s: &str| CString::new(s).unwrap_or_default();
            let words = Words {
                name: c(name),
                description: c(&description),
            };
            (*code, words)
        };
        RESULT_NAMES.iter().map(entry).collect()
    })
}

export! {
    /// `cuGetErrorName`; NULL and `CUDA_ERROR_INVALID_VALUE` for a code that CUDA does not have.
    always fn cuGetErrorName(code: CUresult, name: Pointer<*const c_char>) |()| {
        let found = words().get(&code);
        name.set(found.map_or(std::ptr::null(), |w| w.name.as_ptr()))?;
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }

    /// `cuGetErrorString`; NULL and `CUDA_ERROR_INVALID_VALUE` for a code that CUDA does not have.
    always fn cuGetErrorString(code: CUresult, text: Pointer<*const c_char>) |()| {
        let found = words().get(&code);
        text.set(found.map_or(std::ptr::null(), |w| w.description.as_ptr()))?;
        found.map(|_| ()).ok_or(CUDA_ERROR_INVALID_VALUE)
    }
}
