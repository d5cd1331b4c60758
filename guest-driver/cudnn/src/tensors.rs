// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The element types of tensors and filters. They determine whether scaling factors have the width of a `double`.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicUsize, Ordering},
};

use gpgpu_locks::RwLock;
use gpgpu_protocol::libraries::{Class, Function, Kind, cudnn::is_double};

/// `cudnnDataType_t` by descriptor.
static TYPES: RwLock<Option<HashMap<u64, i32>>> = RwLock::new(None);
/// The number of these with double precision; most programs have none.
static DOUBLES: AtomicUsize = AtomicUsize::new(0);

/// Records that a descriptor was set.
pub fn note(id: u64, data: i32) {
    let mut types = TYPES.write();
    let before = types.get_or_insert_default().insert(id, data);
    if is_double(data) {
        DOUBLES.fetch_add(1, Ordering::Relaxed);
    }
    if before.is_some_and(is_double) {
        DOUBLES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Records that a descriptor was destroyed.
pub fn forget(id: u64) {
    let mut types = TYPES.write();
    let before = types.as_mut().and_then(|types| types.remove(&id));
    if before.is_some_and(is_double) {
        DOUBLES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The type of a descriptor's elements, if it was set.
pub fn data(id: u64) -> Option<i32> {
    let types = TYPES.read();
    types.as_ref()?.get(&id).copied()
}

/// The bytes of a call's scaling factors: those of a `double` if one of its tensors or filters has such elements,
/// otherwise those of a `float`.
pub fn factor_bytes(function: &Function, words: &[u64]) -> usize {
    if DOUBLES.load(Ordering::Relaxed) == 0 {
        return 4;
    }
    let mut arguments = function.kinds.iter().zip(words);
    let has_double = arguments.any(|(kind, word)| match kind {
        Kind::Object(Class::CudnnTensor | Class::CudnnFilter) => data(*word).is_some_and(is_double),
        _ => false,
    });
    if has_double { 8 } else { 4 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LIBRARY;

    #[test]
    fn factors_are_wide_where_a_tensor_is_of_double_precision() {
        let add = LIBRARY.find("cudnnAddTensor");
        // Handle, factor, tensor, address, factor, tensor, address.
        let bytes = |a, b| factor_bytes(add, &[0x1d0, 0, a, 0, 0, b, 0]);
        assert_eq!(bytes(0x1d1, 0x2d1), 4);
        note(0x1d1, 0);
        note(0x2d1, 1);
        note(0x2d1, 1);
        assert_eq!((bytes(0x1d1, 0x2d1), bytes(0x1d1, 0x1d1)), (8, 4));
        note(0x2d1, 2);
        assert_eq!(bytes(0x1d1, 0x2d1), 4);
        note(0x1d1, 1);
        assert_eq!(bytes(0x1d1, 0x2d1), 8);
        forget(0x1d1);
        forget(0x1d1);
        assert_eq!((bytes(0x1d1, 0x2d1), data(0x1d1)), (4, None));
        forget(0x2d1);
    }
}
