// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The plan of a move: the copy engine copies long pieces, a kernel scattered ones.

use gpgpu_protocol::cuda::CUdeviceptr;
use zerocopy::{Immutable, IntoBytes};

use super::guest::Piece;
use crate::ipc::mover::Direction;

/// The minimum size of a copy for the copy engine. From there on it is at least as fast as the kernel, and computation
/// on the GPU does not slow it down.
pub const LONG_BYTES: u64 = 256 << 10;
/// The maximum number of bytes that a block of the kernel copies at a time: four loads for each of its threads.
pub const SHARE_BYTES: u64 = 16 << 10;

/// A copy, in the form in which the kernel reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoBytes, Immutable)]
#[repr(C)]
pub struct Copy {
    /// The source address.
    pub from: CUdeviceptr,
    /// The destination address.
    pub to: CUdeviceptr,
    /// The number of bytes.
    pub bytes: u64,
}

/// The copies of a move.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The pieces for the copy engine.
    pub long: Vec<Copy>,
    /// The pieces for the kernel.
    pub short: Vec<Copy>,
}

impl Plan {
    /// Plans a move between pieces of guest memory and the same number of bytes at `device`. Pieces below
    /// [`LONG_BYTES`] are cut into shares.
    pub fn new(pieces: &[Piece], device: CUdeviceptr, direction: Direction) -> Self {
        let mut plan = Self::default();
        let mut at = device;
        for piece in pieces {
            let copy = |address, device, bytes| match direction {
                Direction::ToDevice => Copy {
                    from: address,
                    to: device,
                    bytes,
                },
                Direction::ToGuest => Copy {
                    from: device,
                    to: address,
                    bytes,
                },
            };
            if piece.bytes >= LONG_BYTES {
                plan.long.push(copy(piece.address, at, piece.bytes));
            } else {
                for start in (0..piece.bytes).step_by(SHARE_BYTES as usize) {
                    let bytes = SHARE_BYTES.min(piece.bytes - start);
                    plan.short
                        .push(copy(piece.address + start, at + start, bytes));
                }
            }
            at += piece.bytes;
        }
        plan
    }

    /// The numbers of bytes that the copy engine moves and that the kernel moves.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |copies: &[Copy]| copies.iter().map(|copy| copy.bytes).sum();
        (sum(&self.long), sum(&self.short))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_pieces_go_whole_and_short_ones_in_shares() {
        let piece = |address, bytes| Piece { address, bytes };
        let pieces = [
            piece(0x1000, 5),
            piece(0x10_0000, LONG_BYTES),
            piece(0x80_0000, SHARE_BYTES + 1),
        ];
        let plan = Plan::new(&pieces, 0x9000_0000, Direction::ToDevice);
        let copy = |from, to, bytes| Copy { from, to, bytes };
        let third = 0x9000_0005 + LONG_BYTES;
        assert_eq!(plan.long, [copy(0x10_0000, 0x9000_0005, LONG_BYTES)]);
        assert_eq!(
            plan.short,
            [
                copy(0x1000, 0x9000_0000, 5),
                copy(0x80_0000, third, SHARE_BYTES),
                copy(0x80_0000 + SHARE_BYTES, third + SHARE_BYTES, 1),
            ]
        );
        assert_eq!(plan.bytes(), (LONG_BYTES, SHARE_BYTES + 6));
        let back = Plan::new(&pieces[1..2], 7, Direction::ToGuest);
        assert_eq!(back.long, [copy(7, 0x10_0000, LONG_BYTES)]);
    }
}
