// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of functions that are fully described by the table, with scaling factors of the right width, and a record of
//! descriptors' settings.

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering},
};

use gpgpu_library::{
    Status,
    forward::{self, contents},
    handle::Handle,
};
use gpgpu_protocol::libraries::{Function, Kind, Width};

use crate::{LIBRARY, enter, tensors};

/// Properties of a function that its row does not have.
#[derive(Debug, Default)]
struct Manner {
    /// The arguments that are scaling factors.
    factors: Vec<usize>,
    /// Whether it completely sets a descriptor, its first argument.
    is_whole: bool,
    /// The argument that is the element type of the tensors or filters that its first argument describes.
    data: Option<usize>,
    /// The tensor descriptors that it writes, and the descriptor from which they get their element type.
    derived: Option<(&'static [usize], usize)>,
    /// Whether it destroys a descriptor.
    ends: bool,
}

/// Functions that set a descriptor completely from their arguments.
const WHOLE: &[&str] = &[
    "cudnnSetTensor4dDescriptor",
    "cudnnSetTensor4dDescriptorEx",
    "cudnnSetTensorNdDescriptor",
    "cudnnSetTensorNdDescriptorEx",
    "cudnnDeriveBNTensorDescriptor",
    "cudnnSetFilter4dDescriptor",
    "cudnnSetFilterNdDescriptor",
    "cudnnSetPooling2dDescriptor",
    "cudnnSetPoolingNdDescriptor",
    "cudnnSetLRNDescriptor",
    "cudnnSetOpTensorDescriptor",
    "cudnnSetReduceTensorDescriptor",
    "cudnnSetSpatialTransformerNdDescriptor",
    "cudnnSetTensorTransformDescriptor",
    "cudnnSetDropoutDescriptor",
    "cudnnRestoreDropoutDescriptor",
    "cudnnSetCTCLossDescriptor_v8",
    "cudnnSetCTCLossDescriptor_v9",
];

/// Functions that set the element type of a descriptor, and the argument that is the type.
const TYPED: &[(&str, usize)] = &[
    ("cudnnSetTensor4dDescriptor", 2),
    ("cudnnSetTensor4dDescriptorEx", 1),
    ("cudnnSetTensorNdDescriptor", 1),
    ("cudnnSetTensorNdDescriptorEx", 2),
    ("cudnnSetFilter4dDescriptor", 1),
    ("cudnnSetFilterNdDescriptor", 1),
];

/// Functions that write tensor descriptors: the arguments that are written, and the one that has their type.
const DERIVED: &[(&str, &[usize], usize)] = &[
    ("cudnnDeriveBNTensorDescriptor", &[0], 1),
    ("cudnnDeriveNormTensorDescriptor", &[0, 1], 2),
    ("cudnnInitTransformDest", &[2], 1),
];

impl Manner {
    fn of(function: &Function) -> Self {
        let is_factor = |kind: &Kind| *kind == Kind::In(Width::Bytes(8));
        let kinds = function.kinds.iter().enumerate();
        let name = function.operation.name;
        let typed = TYPED.iter().find(|of| of.0 == name);
        let derived = DERIVED.iter().find(|of| of.0 == name);
        Self {
            factors: kinds
                .filter(|(_, kind)| is_factor(kind))
                .map(|(at, _)| at)
                .collect(),
            is_whole: WHOLE.contains(&name),
            data: typed.map(|(_, at)| *at),
            derived: derived.map(|(_, to, from)| (*to, *from)),
            ends: function.ends().is_some(),
        }
    }
}

fn manner(at: usize) -> &'static Manner {
    static ALL: OnceLock<Vec<Manner>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let functions = LIBRARY.functions().iter();
        functions.map(|of| Manner::of(of)).collect()
    });
    &all[at]
}

/// The most scaling factors of a function.
const FACTORS: usize = 4;

/// Makes a call with the program's arguments.
pub fn call(op: u16, words: &[u64]) -> Status {
    let at = usize::from(op - LIBRARY.first());
    let function = LIBRARY.functions()[at];
    enter(function.operation.name, || {
        let manner = manner(at);
        if manner.factors.is_empty() {
            return send(function, manner, words);
        }
        // The row expects the wider factors, so narrower ones are padded.
        let bytes = tensors::factor_bytes(function, words);
        let mut room = [0_u64; FACTORS];
        let mut sent = words.to_vec();
        for (room, at) in room.iter_mut().zip(&manner.factors) {
            if words[*at] != 0 {
                *room = read(words[*at], bytes);
                sent[*at] = std::ptr::from_ref(room) as u64;
            }
        }
        send(function, manner, &sent)
    })
}

/// The bytes at an address of the program, padded with zeros.
fn read(address: u64, bytes: usize) -> u64 {
    let mut value = [0; 8];
    // SAFETY: the program gives this address where cuDNN reads so many bytes, by its C caller's promise.
    unsafe {
        std::ptr::copy_nonoverlapping(address as *const u8, value.as_mut_ptr(), bytes.min(8));
    }
    u64::from_ne_bytes(value)
}

/// A number that differs from all contents of descriptors.
fn unknown() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(1 << 63);
    LAST.fetch_add(1, Ordering::Relaxed)
}

fn send(function: &'static Function, manner: &Manner, words: &[u64]) -> Result<(), Status> {
    if manner.ends {
        tensors::forget(words[0]);
    }
    // The descriptor's old state does not matter here: programs set a descriptor to the same values again and again.
    let before = manner.is_whole.then(|| contents::of(words[0]));
    if manner.is_whole {
        contents::set(words[0], 0);
    }
    let sent = forward::send(function, words);
    match (sent, before) {
        (Err(status), Some(before)) => {
            contents::set(words[0], before);
            return Err(status);
        }
        (sent, _) => sent?,
    }
    if let Some(at) = manner.data {
        tensors::note(words[0], words[at] as i32);
    }
    if let Some((to, from)) = manner.derived {
        for at in to {
            if !manner.is_whole {
                contents::set(words[*at], unknown());
            }
            if let Some(data) = tensors::data(words[from]) {
                tensors::note(words[*at], data);
            }
        }
    }
    Ok(())
}

/// The accepted forms of calls without a handle that are not sent by their rows alone.
pub fn free() -> &'static Handle {
    static FREE: OnceLock<Handle> = OnceLock::new();
    FREE.get_or_init(Handle::default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_functions_are_in_the_table() {
        let has = |name: &str| {
            LIBRARY
                .functions()
                .iter()
                .any(|of| of.operation.name == name)
        };
        for name in WHOLE.iter().chain(DERIVED.iter().map(|(name, ..)| name)) {
            assert!(has(name), "{name}");
        }
        for (at, of) in LIBRARY.functions().iter().enumerate() {
            let manner = manner(at);
            assert!(manner.factors.len() <= FACTORS, "{}", of.operation.name);
            let sets = of.operation.name.starts_with("cudnnSetTensor")
                || of.operation.name.starts_with("cudnnSetFilter");
            let describes = sets
                && of.operation.name.contains("Descriptor")
                && !of.operation.name.contains("Transform");
            let mut arguments = of.operation.description().arguments.iter();
            let data = arguments.position(|of| of.name == "dataType");
            let data = data.filter(|_| describes);
            assert_eq!(manner.data, data, "{}", of.operation.name);
        }
    }

    #[test]
    fn no_more_is_read_than_a_factor_has() {
        // The second half is another variable of the program.
        let pair = [1_f32.to_bits(), u32::MAX];
        let at = pair.as_ptr() as u64;
        assert_eq!(read(at, 4), u64::from(pair[0]));
        assert_eq!(read(at, 8) >> 32, u64::from(u32::MAX));
    }
}
