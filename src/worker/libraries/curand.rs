// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuRAND's tables for quasirandom sequences, which are in the host's memory. The guest fetches them in pieces.

use gpgpu_protocol::libraries::{
    Kind, SUCCESS, Width,
    call::Value,
    curand::{DIMENSIONS, PIECE},
};

use super::{ByHand, Call, Outcome};

pub const BY_HAND: &[(&str, ByHand)] = &[
    ("curandGetDirectionVectors32", |call, words| {
        vectors(call, words, 101..=102, 32 * 4)
    }),
    ("curandGetDirectionVectors64", |call, words| {
        vectors(call, words, 103..=104, 64 * 8)
    }),
    ("curandGetScrambleConstants32", |call, words| {
        let table = Table {
            name: "curandGetScrambleConstants32",
            set: None,
            bytes: 4 * DIMENSIONS,
        };
        table.give_piece(call, words[0])
    }),
    ("curandGetScrambleConstants64", |call, words| {
        let table = Table {
            name: "curandGetScrambleConstants64",
            set: None,
            bytes: 8 * DIMENSIONS,
        };
        table.give_piece(call, words[0])
    }),
];

/// A piece of the direction vectors of one of these sets, with this many bytes for each dimension.
fn vectors(
    call: &mut Call<'_>,
    words: &[u64],
    sets: std::ops::RangeInclusive<u64>,
    bytes: usize,
) -> Outcome {
    // The table of another set may be shorter.
    if !sets.contains(&words[0]) {
        return Ok(call.statuses().invalid_value);
    }
    let table = Table {
        name: call.function.operation.name,
        set: Some(words[0]),
        bytes: bytes * DIMENSIONS,
    };
    table.give_piece(call, words[1])
}

/// A constant table of the library's.
struct Table {
    /// The function that returns its address.
    name: &'static str,
    /// The set, if there are several.
    set: Option<u64>,
    /// The length in bytes.
    bytes: usize,
}

impl Table {
    /// Returns the bytes from an offset on, as many as fit into a reply.
    fn give_piece(self, call: &mut Call<'_>, from: u64) -> Outcome {
        let statuses = call.statuses();
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        if from > self.bytes {
            return Ok(statuses.invalid_value);
        }
        let mut table: *const u8 = std::ptr::null();
        let to = &raw mut table as u64;
        let address = Kind::Out(Width::Bytes(8));
        let status = match self.set {
            Some(set) => call.call_library(self.name, &[address, Kind::I32], &[to, set]),
            None => call.call_library(self.name, &[address], &[to]),
        };
        if status != SUCCESS {
            return Ok(status);
        }
        if table.is_null() {
            return Ok(statuses.internal_error);
        }
        let bytes = PIECE.min(self.bytes - from);
        // SAFETY: the library's table is as long as its documentation says, constant, and lives as long as the library.
        let piece = unsafe { std::slice::from_raw_parts(table.add(from), bytes) };
        if let Some(Value::Bytes(reply, true)) = call.values.last_mut() {
            reply.extend_from_slice(piece);
        }
        Ok(SUCCESS)
    }
}
