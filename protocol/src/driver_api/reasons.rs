// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The reasons why functions of the driver API do not work in a guest: one table for the compatibility page, for the
//! guest library's messages, and for the tests that limit its length.

use super::{ENTRY_POINTS, EntryPoint, Guest};

/// Functions that share a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// Symbols. One that ends with `*` stands for all with that prefix.
    pub symbols: &'static [&'static str],
    /// Why, in a few words.
    pub why: &'static str,
}

impl Reason {
    /// Whether it applies to a symbol.
    pub fn is_for(&self, symbol: &str) -> bool {
        self.symbols.iter().any(|pattern| names(pattern, symbol))
    }
}

/// Whether a pattern matches a symbol.
fn names(pattern: &str, symbol: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => symbol.starts_with(start),
        None => symbol == pattern,
    }
}

/// The functions of [`Guest::Unsupported`]: NVIDIA's driver supports them, and this project does not.
pub const NOT_SUPPORTED: &[Reason] = &[Reason {
    symbols: &["cuCheckpointProcess*"],
    why: "the virtual machine cannot save the GPU's state, which is on the host",
}];

/// Functions that fail here as with NVIDIA's driver, on Linux, without a display, on a device without the feature.
pub const REFUSED: &[Reason] = &[
    Reason {
        symbols: &[
            "cuCtxCreate",
            "cuMemAlloc",
            "cuMemFree",
            "cuMemGetInfo",
            "cuMemAllocHost",
            "cuMemHostGetDevicePointer",
            "cuMemAllocPitch",
            "cuMemGetAddressRange",
            "cuModuleGetGlobal",
            "cuMemcpyHtoD",
            "cuMemcpyDtoH",
            "cuMemcpyDtoD",
            "cuMemcpyHtoDAsync",
            "cuMemcpyDtoHAsync",
            "cuMemcpyDtoDAsync",
            "cuMemsetD8",
            "cuMemsetD16",
            "cuMemsetD32",
            "cuMemsetD2D8",
            "cuMemsetD2D16",
            "cuMemsetD2D32",
            "cuMemcpy2D",
            "cuMemcpy2DUnaligned",
            "cuMemcpy2DAsync",
            "cuMemcpy3D",
            "cuMemcpy3DAsync",
            "cuArrayCreate",
            "cuArrayGetDescriptor",
            "cuArray3DCreate",
            "cuArray3DGetDescriptor",
            "cuMemcpyAtoA",
            "cuMemcpyAtoD",
            "cuMemcpyAtoH",
            "cuMemcpyAtoHAsync",
            "cuMemcpyDtoA",
            "cuMemcpyHtoA",
            "cuMemcpyHtoAAsync",
            "cuTexRefGetAddress",
            "cuTexRefSetAddress",
            "cuTexRefSetAddress2D",
        ],
        why: "32-bit addresses, which no context of a 64-bit process has",
    },
    Reason {
        symbols: &["cuLaunchCooperativeKernelMultiDevice"],
        why: "removed from CUDA",
    },
    Reason {
        symbols: &["cuProfilerInitialize"],
        why: "removed from CUDA",
    },
    Reason {
        symbols: &["cuDeviceGetLuid"],
        why: "Windows only",
    },
    Reason {
        symbols: &["cuDeviceGetNvSciSyncAttributes"],
        why: "no NvSciSync",
    },
    Reason {
        symbols: &["cuGraphics*", "cuGL*", "cuEGL*", "cuVDPAU*"],
        why: "no display",
    },
    Reason {
        symbols: &[
            "cuImportExternal*",
            "cuDestroyExternal*",
            "cuExternalMemoryGet*",
            "cuSignalExternalSemaphoresAsync",
            "cuWaitExternalSemaphoresAsync",
            "cuGraphExternalSemaphores*",
            "cuGraphExecExternalSemaphores*",
            "cuGraphAddExternalSemaphores*",
        ],
        why: "no other interface has memory or semaphores of the GPU",
    },
    Reason {
        symbols: &["cuMemGetHandleForAddressRange"],
        why: "the device has no dma-bufs, as its attribute says",
    },
    Reason {
        symbols: &["cuMemMapArrayAsync"],
        why: "the device has no sparse arrays, as its attribute says",
    },
    Reason {
        symbols: &["cuMulticast*"],
        why: "the device has no multicast, as its attribute says",
    },
    Reason {
        symbols: &["cuMemBatchDecompressAsync"],
        why: "the device has no decompression, as its attribute says",
    },
    Reason {
        symbols: &["cuLibraryGetUnifiedFunction"],
        why: "the device has no unified functions, as its attribute says",
    },
];

/// The reason why a function is not supported, or refused; `None` for one that works.
pub fn reason(symbol: &str) -> Option<&'static str> {
    let all = NOT_SUPPORTED.iter().chain(REFUSED);
    let mut found = all.filter(|reason| reason.is_for(symbol));
    found.next().map(|reason| reason.why)
}

/// The functions of the list that are not supported, each with its reason.
pub fn not_supported() -> impl Iterator<Item = (&'static EntryPoint, &'static str)> {
    let missing = ENTRY_POINTS
        .iter()
        .filter(|entry| entry.guest == Guest::Unsupported && !entry.per_thread);
    missing.map(|entry| (entry, reason(entry.symbol).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The maximum number of functions that are not supported.
    const MOST: usize = 10;

    #[test]
    fn each_unsupported_function_has_a_reason_and_they_are_few() {
        let mut count = 0;
        for (entry, why) in not_supported() {
            assert!(!why.is_empty(), "{}", entry.symbol);
            count += 1;
        }
        assert!(count <= MOST, "{count} functions are not supported");
    }

    #[test]
    fn each_reason_is_one_of_functions_that_there_are() {
        for reason in NOT_SUPPORTED {
            let missing = not_supported().any(|(entry, _)| reason.is_for(entry.symbol));
            assert!(missing, "{}", reason.why);
        }
        for reason in REFUSED {
            for pattern in reason.symbols {
                let mut named = ENTRY_POINTS
                    .iter()
                    .filter(|entry| names(pattern, entry.symbol));
                let first = named.next();
                assert!(
                    first.is_some_and(|entry| entry.guest != Guest::Unsupported),
                    "{pattern}"
                );
            }
        }
    }

    #[test]
    fn no_function_has_two_reasons() {
        for entry in ENTRY_POINTS {
            let all = NOT_SUPPORTED.iter().chain(REFUSED);
            let reasons = all.filter(|reason| reason.is_for(entry.symbol)).count();
            assert!(reasons <= 1, "{}", entry.symbol);
        }
    }
}
