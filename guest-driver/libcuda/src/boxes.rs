// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Boxes of bytes: their pieces, and the copies of boxes that use the ring.
//!
//! A box of pageable memory is copied through the ring's data blocks, or through device memory if it is large and has
//! no gaps. A copy between sides that the worker can access is posted, unless its caller waits for it. For these ways
//! the library has checked all that the host would refuse.

use std::{collections::VecDeque, sync::atomic::Ordering};

use gpgpu_client::{
    Scope,
    data_blocks::Run,
    parallel_copy::{self, Part},
    ring::{Ring, Ticket},
    transport::Data,
};
use gpgpu_protocol::{
    api::{BoxCopy, BoxEnd, Copy2D, Operation, Request, request},
    ring::{BLOCK_BYTES, BLOCKS},
};

use crate::{
    argument::HostPtr,
    client::Client,
    copy::{Order, await_blocks, blocks_for, finish},
    ffi::Result,
    thread,
};

/// The size of a row in bytes, the number of rows, and the number of slices.
pub type Size = [usize; 3];

/// The maximum number of a copy's data blocks at a time.
const MOST_BLOCKS: usize = BLOCKS * 3 / 4;

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
        let whole = client.whole(end.address, rows * end.pitch + width);
        return end.pitch >= width && whole.is_some();
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

/// Copies a box between sides that the worker can access. A box of memory alone has one slice.
pub fn between(client: &Client, (dst, src): (BoxEnd, BoxEnd), size: Size, order: Order) -> Result {
    let Order {
        stream: hStream,
        synchronous,
    } = order;
    let [width, height, depth] = size;
    let copy = BoxCopy {
        dst,
        src,
        width,
        height,
        depth,
    };
    let post = request::gpgpuBoxCopyAsync::OPERATION;
    if !synchronous && ring_for(client, &[&dst, &src], size, hStream, post).is_some() {
        return client.post(&request::gpgpuBoxCopyAsync { copy, hStream });
    }
    if dst.array == 0 && src.array == 0 {
        let copy = Copy2D {
            dst: dst.address,
            dst_pitch: dst.pitch,
            src: src.address,
            src_pitch: src.pitch,
            width,
            height,
        };
        let request = request::gpgpuCopy2D {
            copy,
            hStream,
            synchronous,
        };
        return client.call(&request).map(drop);
    }
    let request = request::gpgpuBoxCopy {
        copy,
        hStream,
        synchronous,
    };
    client.call(&request).map(drop)
}

/// The minimum size of pageable memory without gaps that is copied through device memory: the mover copies large data
/// faster than this process, and the GPU's part takes little time.
const STAGED: usize = 8 << 20;
/// The maximum amount of device memory for that.
const STAGE: usize = 64 << 20;

/// Calls `each` to copy a box piece by piece through device memory, whose address it gets; `false` if that does not
/// pay, or there is no memory.
fn staged(
    client: &Client,
    (size, is_packed): (Size, bool),
    hStream: u64,
    mut each: impl FnMut(u64, [usize; 3], Size) -> Result,
) -> Result<bool> {
    let bytes = |part: &Size| part.iter().product::<usize>();
    // A refused copy would leave the memory behind, which is freed in the stream's order.
    if !is_packed || bytes(&size) < STAGED || !client.objects.knows_stream(hStream) {
        return Ok(false);
    }
    let all = pieces(size, STAGE);
    let bytesize = all.iter().map(|(_, part)| bytes(part)).max();
    let bytesize = bytesize.unwrap_or(STAGE);
    let allocate = request::cuMemAlloc_v2 {
        dptr: true,
        bytesize,
    };
    let Ok(made) = client.call(&allocate) else {
        return Ok(false);
    };
    let dptr = made.dptr;
    let copied = all
        .into_iter()
        .try_for_each(|(at, part)| each(dptr, at, part));
    // In stream order, after the copies, so no other stream is waited for.
    client.pools.any_freed.store(true, Ordering::Relaxed);
    let freed = client.call(&request::cuMemFreeAsync { dptr, hStream });
    copied.and(freed.map(|_| true))
}

/// A piece of a box in device memory, without gaps.
fn packed_end(address: u64, [width, height, _]: Size) -> BoxEnd {
    BoxEnd {
        address,
        pitch: width,
        rows: height,
        ..BoxEnd::default()
    }
}

/// The parts of the copy of a piece between pageable memory and data blocks, with or without gaps. `outward` is to the
/// pageable memory.
fn parts_of(
    (near, block): (Near, *mut u8),
    (at, part): ([usize; 3], Size),
    outward: bool,
) -> Vec<Part> {
    let [width, height, depth] = part;
    let copy = |first: HostPtr, offset: usize, bytes: usize| {
        let (first, block) = (first.address() as *mut u8, block.wrapping_add(offset));
        match outward {
            true => parallel_copy::parts(first, block, bytes),
            false => parallel_copy::parts(block, first, bytes),
        }
    };
    if near.is_packed(part) {
        return copy(near.at(at), 0, width * height * depth).collect();
    }
    let rows = near.rows(at, part).enumerate();
    rows.flat_map(|(row, first)| copy(first, row * width, width))
        .collect()
}

/// The pieces of a copy, one for each command, and the maximum number of a command's data blocks.
fn commands(size: Size) -> (Vec<([usize; 3], Size)>, usize) {
    let most = blocks_for(size.iter().product());
    (pieces(size, most * BLOCK_BYTES), most)
}

/// Neighbouring blocks for a command, if there are as many; at the start of a copy after a while.
fn take(ring: &Ring, count: usize, is_first: bool) -> Option<Run> {
    let run = match is_first {
        true => await_blocks(ring, count)?,
        false => ring.take_blocks(count)?,
    };
    if run.count == count {
        return Some(run);
    }
    ring.give_blocks(run, None);
    None
}

/// The data blocks of a copy to the device. They become free when the GPU has read them.
struct Sending<'a> {
    client: &'a Client,
    ring: &'a Ring,
    /// The blocks of commands, in order.
    given: VecDeque<(Run, Ticket)>,
}

impl Sending<'_> {
    /// Takes blocks for one more command; `None` if there are none, and the copy has no command yet.
    fn take(&mut self, count: usize) -> Result<Option<Run>> {
        let held = self.given.len();
        if (held + 1) * count <= MOST_BLOCKS
            && let Some(run) = take(self.ring, count, held == 0)
        {
            return Ok(Some(run));
        }
        let Some((run, ticket)) = self.given.pop_front() else {
            return Ok(None);
        };
        // The first command is over first. After an error the GPU may still read its blocks, which are then lost.
        self.client
            .end::<request::gpgpuBlockBoxIn>(self.ring, ticket)?;
        Ok(Some(run))
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        for (run, ticket) in self.given.drain(..) {
            self.ring.give_blocks(run, Some(ticket));
        }
    }
}

/// Sends a box through data blocks; `false` if it has to be sent in another way, in which case nothing was done.
fn send_by_blocks(
    client: &Client,
    to: &BoxEnd,
    from: Near,
    size: Size,
    order: Order,
) -> Result<bool> {
    let hStream = order.stream;
    let operation = request::gpgpuBlockBoxIn::OPERATION;
    let Some(ring) = ring_for(client, &[to], size, hStream, operation) else {
        return Ok(false);
    };
    let mut sending = Sending {
        client,
        ring,
        given: VecDeque::new(),
    };
    let (pieces, count) = commands(size);
    for piece in pieces {
        let Some(run) = sending.take(count)? else {
            return Ok(false);
        };
        let block = run.first;
        let parts = parts_of((from, ring.block(block)), piece, false);
        // SAFETY: the blocks are this copy's alone, and as long as a piece; the program vouches for its memory.
        unsafe { parallel_copy::copy_parts(&parts) };
        let (at, [width, height, depth]) = piece;
        let request = request::gpgpuBlockBoxIn {
            to: moved(to, at),
            width,
            height,
            depth,
            block,
            hStream,
        };
        match client.begin(ring, &request) {
            Ok(ticket) => sending.given.push_back((run, ticket)),
            Err(code) => {
                ring.give_blocks(run, None);
                return Err(code);
            }
        }
    }
    drop(sending);
    // An array's end has no address.
    finish(client, to.address, order)?;
    Ok(true)
}

/// Copies a box of pageable memory; `false` if it has to be sent in another way, in which case nothing was done. The
/// bytes were read when this returns.
pub fn send(client: &Client, to: &BoxEnd, from: Near, size: Size, order: Order) -> Result<bool> {
    let hStream = order.stream;
    let is_whole = from.is_packed(size);
    let sent = staged(client, (size, is_whole), hStream, |stage, at, part| {
        let request = request::gpgpuCopyIn {
            dst: stage,
            hStream,
            synchronous: false,
        };
        let bytes = from.at(at).bytes(part.iter().product());
        client.transfer(&request, Data::In(bytes))?;
        between(
            client,
            (moved(to, at), packed_end(stage, part)),
            part,
            order,
        )
    })?;
    Ok(sent || send_by_blocks(client, to, from, size, order)?)
}

/// Fetches a box through data blocks; `false` as in [`send`].
fn fetch_by_blocks(
    client: &Client,
    to: Near,
    from: &BoxEnd,
    size: Size,
    hStream: u64,
) -> Result<bool> {
    let operation = request::gpgpuBlockBoxOut::OPERATION;
    let Some(ring) = ring_for(client, &[from], size, hStream, operation) else {
        return Ok(false);
    };
    let (given, sent) = (client.given(), client.sent());
    let (pieces, count) = commands(size);
    let Some(first) = take(ring, count, true) else {
        return Ok(false);
    };
    // The copy keeps its blocks until its end, so that other threads' copies do not hold it up.
    let (mut own, mut held) = (vec![first], count);
    let mut todo = pieces.into_iter();
    let mut under_way = VecDeque::new();
    loop {
        while todo.len() > 0 {
            if own.is_empty() && held + count <= MOST_BLOCKS {
                own.extend(take(ring, count, false));
                held += own.len() * count;
            }
            let Some(run) = own.pop() else { break };
            let Some((at, part)) = todo.next() else {
                break;
            };
            let [width, height, depth] = part;
            let request = request::gpgpuBlockBoxOut {
                from: moved(from, at),
                width,
                height,
                depth,
                block: run.first,
                hStream,
            };
            under_way.push_back((at, part, run, client.begin(ring, &request)?));
        }
        let Some((at, part, run, ticket)) = under_way.pop_front() else {
            break;
        };
        // After an error the GPU may still write to the blocks, which are then lost.
        client.end::<request::gpgpuBlockBoxOut>(ring, ticket)?;
        let parts = parts_of((to, ring.block(run.first)), (at, part), true);
        // SAFETY: the blocks are this copy's alone, and the GPU has written them; the program vouches for its memory.
        unsafe { parallel_copy::copy_parts(&parts) };
        own.push(run);
    }
    own.into_iter().for_each(|run| ring.give_blocks(run, None));
    // The last copy completes after all earlier work of the stream.
    client.set_stream_idle(hStream, sent, false);
    if hStream == 0 {
        client.set_idle(given, Scope::Legacy);
    }
    Ok(true)
}

/// Copies a box to pageable memory, and returns when it is there; `false` as in [`send`].
pub fn fetch(client: &Client, to: Near, from: &BoxEnd, size: Size, hStream: u64) -> Result<bool> {
    let is_whole = to.is_packed(size);
    let order = Order {
        stream: hStream,
        synchronous: false,
    };
    let fetched = staged(client, (size, is_whole), hStream, |stage, at, part| {
        between(
            client,
            (packed_end(stage, part), moved(from, at)),
            part,
            order,
        )?;
        let request = request::gpgpuCopyOut {
            src: stage,
            hStream,
        };
        let bytes = to.at(at).bytes_mut(part.iter().product());
        client.transfer(&request, Data::Out(bytes)).map(drop)
    })?;
    Ok(fetched || fetch_by_blocks(client, to, from, size, hStream)?)
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
