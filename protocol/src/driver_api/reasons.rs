// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Why functions of the driver API do not work in a guest: one table for the compatibility page, for what the guest's library says of a
//! call, and for the tests that hold it short.

use super::{ENTRY_POINTS, EntryPoint, Guest};

/// Functions that share a reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason {
    /// Symbols; one that ends with `*` stands for all that begin so.
    pub symbols: &'static [&'static str],
    /// Why, in a few words.
    pub why: &'static str,
}

impl Reason {
    /// Whether it is the reason for a symbol.
    pub fn is_for(&self, symbol: &str) -> bool {
        let names = |pattern: &&str| match pattern.strip_suffix('*') {
            Some(start) => symbol.starts_with(start),
            None => symbol == *pattern,
        };
        self.symbols.iter().any(names)
    }
}

/// What [`Guest::Unsupported`] functions lack. A function that NVIDIA's driver carries out, and this project does not.
pub const NOT_SUPPORTED: &[Reason] = &[
    Reason {
        symbols: &[
            "cuArray*", "cuMipmappedArray*", "cuTex*", "cuSurf*", "cuMemcpyAto*", "cuMemcpyHtoA*", "cuMemcpyDtoA*",
            "cuMemcpy3DPeer*", "cuDeviceGetTexture1DLinearMaxWidth", "cuModuleGetTexRef", "cuModuleGetSurfRef",
        ],
        why: ARRAYS,
    },
    Reason {
        symbols: &[
            "cuIpc*", "cuMemExportToShareableHandle", "cuMemImportFromShareableHandle", "cuMemPoolExport*", "cuMemPoolImport*",
        ],
        why: SHARING,
    },
    Reason {
        symbols: &[
            "cuMemAdvise*", "cuMemPrefetch*", "cuMemDiscard*", "cuMemRangeGetAttribute*", "cuLibraryGetManaged",
        ],
        why: MANAGED,
    },
];

/// Arrays and what reads them.
const ARRAYS: &str = "arrays, textures and surfaces are not carried out";
/// Memory and events of other processes.
const SHARING: &str = "memory and events are not shared between processes";
/// Managed memory.
const MANAGED: &str = "there is no managed memory";

/// The reasons of areas that have a project of their own: they do not count in the bound on [`NOT_SUPPORTED`].
pub const AREAS: &[&str] = &[ARRAYS, SHARING, MANAGED];

/// What fails here as with NVIDIA's driver, on Linux, without a display, on a device without the feature.
pub const REFUSED: &[Reason] = &[];

/// Why a function is not supported, or refused; `None` for one that works.
pub fn reason(symbol: &str) -> Option<&'static str> {
    let all = NOT_SUPPORTED.iter().chain(REFUSED);
    let mut found = all.filter(|reason| reason.is_for(symbol));
    found.next().map(|reason| reason.why)
}

/// The functions of the list that are not carried out, each with its reason.
pub fn not_supported() -> impl Iterator<Item = (&'static EntryPoint, &'static str)> {
    let missing = ENTRY_POINTS
        .iter()
        .filter(|entry| entry.guest == Guest::Unsupported && !entry.per_thread);
    missing.map(|entry| (entry, reason(entry.symbol).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many functions may lack a way into a guest, beside those of [`AREAS`].
    const MOST: usize = 40;

    #[test]
    fn each_function_that_is_not_carried_out_has_a_reason_and_there_are_few() {
        let mut count = 0;
        for (entry, why) in not_supported() {
            assert!(!why.is_empty(), "{}", entry.symbol);
            count += usize::from(!AREAS.contains(&why));
        }
        assert!(count <= MOST, "{count} functions are not supported");
    }

    #[test]
    fn each_reason_is_one_of_functions_that_there_are() {
        let alone = |reason: &&Reason| !AREAS.contains(&reason.why);
        for reason in NOT_SUPPORTED.iter().filter(alone) {
            let missing = not_supported().any(|(entry, _)| reason.is_for(entry.symbol));
            assert!(missing, "{}", reason.why);
        }
        for reason in REFUSED {
            for symbol in reason.symbols {
                let alone = Reason { symbols: &[symbol], ..*reason };
                let mut named = ENTRY_POINTS.iter().filter(|entry| alone.is_for(entry.symbol));
                let first = named.next();
                assert!(first.is_some_and(|entry| entry.guest != Guest::Unsupported), "{symbol}");
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
