// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls that some threads may not make while a stream is captured.

/// Calls that CUDA calls potentially unsafe while a capture is open: their effect is not part of the graph, or they
/// wait for the GPU. CUDA's documentation counts synchronous copies and fills among them, but the driver (580) executes
/// them: they are only work in the legacy stream.
const UNSAFE: &[&str] = &[
    "cuMemAlloc",
    "cuMemAllocPitch",
    "cuMemAllocManaged",
    "cuMemAllocHost",
    "cuMemHostAlloc",
    "cuMemHostRegister",
    "cuMemHostUnregister",
    "cuMemFree",
    "cuMemFreeHost",
    "cuMemPoolImportPointer",
];

const fn is_equal(one: &[u8], other: &[u8], length: usize) -> bool {
    let mut at = 0;
    while at < length {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// Whether a function of the driver API, by its symbol, is potentially unsafe in a capture.
pub const fn is_unsafe(symbol: &str) -> bool {
    let symbol = symbol.as_bytes();
    // Ignore the version and the suffix for the thread's own default stream.
    let mut length = 0;
    while length < symbol.len() && symbol[length] != b'_' {
        length += 1;
    }
    let mut at = 0;
    while at < UNSAFE.len() {
        let of = UNSAFE[at].as_bytes();
        if of.len() == length && is_equal(of, symbol, length) {
            return true;
        }
        at += 1;
    }
    false
}

/// Whether a function of the driver API, by its symbol, is a copy or fill in the legacy stream without a stream
/// argument.
pub const fn is_legacy(symbol: &str) -> bool {
    let symbol = symbol.as_bytes();
    // Ignore the version. A function with the suffix for the thread's own default stream does not use the legacy
    // stream.
    let mut length = 0;
    while length < symbol.len() && symbol[length] != b'_' {
        length += 1;
    }
    let copies = length >= 8 && is_equal(symbol, b"cuMemcpy", 8);
    let fills = length >= 8 && is_equal(symbol, b"cuMemset", 8);
    let is_async = symbol[length - 1] == b'c';
    let per_thread = symbol[symbol.len() - 1] == b's';
    (copies || fills) && !is_async && !per_thread
}
