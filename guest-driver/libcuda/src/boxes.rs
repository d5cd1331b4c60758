// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Boxes of bytes: their pieces, and the copies of boxes that use the ring.
//!
//! A small box of pageable memory is copied through the ring's data blocks. A copy between sides that the worker can
//! access is posted, unless its caller waits for it. For both, the library has checked all that the host would refuse.

use gpgpu_client::{Scope, ring::Ring};
use gpgpu_protocol::{
    api::{BoxCopy, BoxEnd, Operation, Request, request},
    ring::{BLOCK_BYTES, BLOCKS},
};

use crate::{
    argument::HostPtr,
    client::Client,
    copy::{Order, await_block, synchronise},
    ffi::Result,
    thread,
};

/// The size of a row in bytes, the number of rows, and the number of slices.
pub type Size = [usize; 3];

/// The maximum number of a copy's data blocks. A larger box is sent beside the stream, in longer pieces.
const MOST_BLOCKS: usize = BLOCKS / 2;

/// A box in pageable memory: the first byte, and the distances between rows and between slices in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Near {
    pub first: HostPtr,
    pub pitch: usize,
    pub slice: usize,
}

impl Near {
    /// The address of the first byte of a piece.
    pub fn at(&self, [x, y, z]: [usize; 3]) -> HostPtr {
        self.first.add(z * self.slice + y * self.pitch + x)
    }

    /// Each row of a piece, in order.
    pub fn rows(
        self,
        [x, y, z]: [usize; 3],
        [_, height, depth]: Size,
    ) -> impl Iterator<Item = HostPtr> {
        (0..depth).flat_map(move |k| (0..height).map(move |j| self.at([x, y + j, z + k])))
    }

    /// Whether a piece has no gaps.
    pub fn is_packed(&self, [width, height, depth]: Size) -> bool {
        (height == 1 || self.pitch == width) && (depth == 1 || self.slice == width * height)
    }
}

/// Cuts a box into pieces of at most `most` bytes: the start of each, and its size.
pub fn pieces([width, height, depth]: Size, most: usize) -> Vec<([usize; 3], Size)> {
    let cut = |all: usize, each: usize| {
        (0..all)
            .step_by(each.max(1))
            .map(move |at| (at, each.max(1).min(all - at)))
    };
    let mut pieces = Vec::new();
    if width > most {
        // Between elements, because no element is longer than this.
        let each = most / 16 * 16;
        for z in 0..depth {
            for y in 0..height {
                pieces.extend(cut(width, each).map(|(x, bytes)| ([x, y, z], [bytes, 1, 1])));
            }
        }
    } else if width * height > most {
        for z in 0..depth {
            let rows = cut(height, most / width);
            pieces.extend(rows.map(|(y, rows)| ([0, y, z], [width, rows, 1])));
        }
    } else {
        let slices = cut(depth, most / (width * height));
        pieces.extend(slices.map(|(z, slices)| ([0, 0, z], [width, height, slices])));
    }
    pieces
}

/// The place of a piece in an array or in memory.
pub fn moved(end: &BoxEnd, [x, y, z]: [usize; 3]) -> BoxEnd {
    if end.array == 0 {
        let bytes = (z * end.rows + y) * end.pitch + x;
        return BoxEnd {
            address: end.address + bytes as u64,
            ..*end
        };
    }
    BoxEnd {
        x: end.x + x,
        y: end.y + y,
        z: end.z + z,
        ..*end
    }
}

/// Whether the host certainly accepts a box on its side.
fn is_accepted(client: &Client, end: &BoxEnd, [width, height, depth]: Size) -> bool {
    if end.array == 0 {
        let rows = (depth - 1) * end.rows + height - 1;
        return client
            .whole(end.address, rows * end.pitch + width)
            .is_some();
    }
    let Ok(array) = client.arrays.array(end.array) else {
        return false;
    };
    let is_here = client.objects.context_device(array.context)
        == client.objects.context_device(thread::current_context());
    let is_even = (array.element())
        .is_some_and(|bytes| end.x.is_multiple_of(bytes) && width.is_multiple_of(bytes));
    is_here && is_even
}

/// The ring, if the host has an operation and accepts a copy between the ends in this stream.
fn ring_for<'a>(
    client: &'a Client,
    ends: &[&BoxEnd],
    size: Size,
    stream: u64,
    operation: &Operation,
) -> Option<&'a Ring> {
    let ring = client.ring()?;
    let is_known = client.has(operation.op)
        && client.objects.knows_stream(stream)
        && ends.iter().all(|end| is_accepted(client, end, size));
    is_known.then_some(ring)
}

/// Posts a copy between sides that the worker can access; `false` if the host has to answer it.
pub fn post(
    client: &Client,
    (dst, src): (BoxEnd, BoxEnd),
    size: Size,
    hStream: u64,
) -> Result<bool> {
    let operation = request::gpgpuBoxCopyAsync::OPERATION;
    if ring_for(client, &[&dst, &src], size, hStream, operation).is_none() {
        return Ok(false);
    }
    let [width, height, depth] = size;
    let copy = BoxCopy {
        dst,
        src,
        width,
        height,
        depth,
    };
    client.post(&request::gpgpuBoxCopyAsync { copy, hStream })?;
    Ok(true)
}

/// Takes a data block for each piece; `None` if not all are free.
fn take_blocks(ring: &Ring, count: usize) -> Option<Vec<u32>> {
    let mut taken = Vec::new();
    for _ in 0..count {
        match await_block(ring) {
            Some(block) => taken.push(block),
            None => {
                taken
                    .into_iter()
                    .for_each(|block| ring.give_block(block, None));
                return None;
            }
        }
    }
    Some(taken)
}

/// Copies a small box of pageable memory through data blocks; `false` if it has to be sent in another way, in which
/// case nothing was done. The bytes were read when this returns.
pub fn send(client: &Client, to: &BoxEnd, from: Near, size: Size, order: Order) -> Result<bool> {
    let hStream = order.stream;
    let operation = request::gpgpuBlockBoxIn::OPERATION;
    let all = pieces(size, BLOCK_BYTES);
    if all.len() > MOST_BLOCKS {
        return Ok(false);
    }
    let ring = ring_for(client, &[to], size, hStream, operation);
    let taken = ring.and_then(|ring| Some((ring, take_blocks(ring, all.len())?)));
    let Some((ring, taken)) = taken else {
        return Ok(false);
    };
    let mut taken = taken.into_iter();
    for ((at, part), block) in all.into_iter().zip(&mut taken) {
        let [width, height, depth] = part;
        // SAFETY: the block is this copy's alone, and as long as a piece.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(ring.block(block), width * height * depth) };
        if from.is_packed(part) {
            bytes.copy_from_slice(from.at(at).bytes(bytes.len()));
        } else {
            for (row, bytes) in from.rows(at, part).zip(bytes.chunks_exact_mut(width)) {
                bytes.copy_from_slice(row.bytes(width));
            }
        }
        let request = request::gpgpuBlockBoxIn {
            to: moved(to, at),
            width,
            height,
            depth,
            block,
            hStream,
        };
        // The GPU reads the block when the stream reaches the copy. Then the block is free again.
        match client.begin(ring, &request) {
            Ok(ticket) => ring.give_block(block, Some(ticket)),
            Err(code) => {
                taken.for_each(|block| ring.give_block(block, None));
                return Err(code);
            }
        }
    }
    if order.synchronous && !client.is_idle(Scope::Legacy) {
        synchronise(client, hStream)?;
    }
    Ok(true)
}

/// Copies a small box to pageable memory through data blocks, and returns when it is there; `false` as in [`send`].
pub fn fetch(client: &Client, to: Near, from: &BoxEnd, size: Size, hStream: u64) -> Result<bool> {
    let operation = request::gpgpuBlockBoxOut::OPERATION;
    let all = pieces(size, BLOCK_BYTES);
    if all.len() > MOST_BLOCKS {
        return Ok(false);
    }
    let ring = ring_for(client, &[from], size, hStream, operation);
    let taken = ring.and_then(|ring| Some((ring, take_blocks(ring, all.len())?)));
    let Some((ring, taken)) = taken else {
        return Ok(false);
    };
    let (given, sent) = (client.given(), client.sent());
    let mut under_way = Vec::new();
    for ((at, part), block) in all.into_iter().zip(taken) {
        let [width, height, depth] = part;
        let request = request::gpgpuBlockBoxOut {
            from: moved(from, at),
            width,
            height,
            depth,
            block,
            hStream,
        };
        under_way.push((at, part, block, client.begin(ring, &request)?));
    }
    for (at, part, block, ticket) in under_way {
        // After an error the GPU may still write to the block, which is then lost.
        client.end::<request::gpgpuBlockBoxOut>(ring, ticket)?;
        // SAFETY: the block is this copy's alone, and the GPU has written it.
        let bytes = unsafe { std::slice::from_raw_parts(ring.block(block), part.iter().product()) };
        if to.is_packed(part) {
            to.at(at).store(bytes);
        } else {
            for (row, bytes) in to.rows(at, part).zip(bytes.chunks_exact(part[0])) {
                row.store(bytes);
            }
        }
        ring.give_block(block, None);
    }
    // The last copy completes after all earlier work of the stream.
    client.set_stream_idle(hStream, sent, false);
    if hStream == 0 {
        client.set_idle(given, Scope::Legacy);
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pitfall_08_pieces_cover_a_box_once_and_are_no_longer_than_they_may() {
        for size in [[1, 1, 1], [48, 3, 2], [100, 7, 5], [640, 1, 2], [33, 40, 1]] {
            for most in [16, 100, 300, 1 << 20] {
                let mut seen = vec![false; size.iter().product()];
                for ([x, y, z], part) in pieces(size, most) {
                    assert!(part.iter().product::<usize>() <= most);
                    for k in z..z + part[2] {
                        for j in y..y + part[1] {
                            for i in x..x + part[0] {
                                let at = (k * size[1] + j) * size[0] + i;
                                assert!(!std::mem::replace(&mut seen[at], true));
                            }
                        }
                    }
                }
                assert!(seen.iter().all(|seen| *seen), "{size:?} {most}");
            }
        }
    }
}
