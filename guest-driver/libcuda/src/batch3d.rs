// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Batches of copies in three dimensions: each is made of single copies in the batch's stream, as [`crate::batch`]'s are. A copy with
//! attributes is a batch of one.

use std::ffi::c_void;

use gpgpu_graphs::capture;
use gpgpu_protocol::cuda::*;

use crate::{
    argument::{HostPtr, InPtr, OutPtr},
    batch::{ANY, DURING_CALL, Failure, IN_STREAM, PREFER_OVERLAP},
    client::client,
    copy::{Order, synchronise},
    copy_rows::planes,
    cuda,
    ffi::Result,
    graph::{self, Guest},
    thread,
};

/// `CU_MEMCPY_OPERAND_TYPE_POINTER`.
const POINTER: u32 = 1;
/// `CU_MEMCPY_OPERAND_TYPE_ARRAY`.
const ARRAY: u32 = 2;

/// `CUmemcpy3DOperand` of a pointer: lengths are in bytes, and 0 for what lies without gaps.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Operand {
    type_: u32,
    address: u64,
    row: usize,
    layer: usize,
    _hint: [i32; 2],
}

/// `CUDA_MEMCPY3D_BATCH_OP`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Operation {
    src: Operand,
    dst: Operand,
    width: usize,
    height: usize,
    depth: usize,
    access: u32,
    flags: u32,
}

const _: () = assert!(size_of::<Operand>() == 40 && size_of::<Operation>() == 112);

impl Operand {
    /// The pitch, and the rows of a layer.
    fn lengths(&self, width: usize, height: usize) -> Result<(usize, usize)> {
        match self.type_ {
            POINTER => {}
            ARRAY => return Err(CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(CUDA_ERROR_INVALID_VALUE),
        }
        let or = |given: usize, least: usize| match given {
            0 => Ok(least),
            given if given < least => Err(CUDA_ERROR_INVALID_VALUE),
            given => Ok(given),
        };
        if self.address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok((or(self.row, width)?, or(self.layer, height)?))
    }
}

impl Operation {
    /// The copy that it is.
    fn copy(&self) -> Result<CUDA_MEMCPY3D> {
        let (width, height) = (self.width, self.height);
        let known = (IN_STREAM..=ANY).contains(&self.access) && self.flags & !PREFER_OVERLAP == 0;
        if !known || width == 0 || height == 0 || self.depth == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let (src_pitch, src_height) = self.src.lengths(width, height)?;
        let (dst_pitch, dst_height) = self.dst.lengths(width, height)?;
        let nothing = std::ptr::null_mut();
        Ok(CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: CU_MEMORYTYPE_UNIFIED,
            srcHost: nothing,
            srcDevice: self.src.address,
            srcArray: std::ptr::null_mut(),
            reserved0: nothing,
            srcPitch: src_pitch,
            srcHeight: src_height,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: CU_MEMORYTYPE_UNIFIED,
            dstHost: nothing,
            dstDevice: self.dst.address,
            dstArray: std::ptr::null_mut(),
            reserved1: nothing,
            dstPitch: dst_pitch,
            dstHeight: dst_height,
            WidthInBytes: width,
            Height: height,
            Depth: self.depth,
        })
    }
}

/// The operations of a list, each with its copy, all of which are good as far as this library can tell.
fn operations(
    count: usize,
    list: InPtr<Operation>,
    flags: u64,
) -> std::result::Result<Vec<(Operation, CUDA_MEMCPY3D)>, Failure> {
    if count == 0 || flags != 0 {
        return Err((CUDA_ERROR_INVALID_VALUE, None));
    }
    let one = |index| {
        let operation = list.at(index).map_err(|code| (code, None))?;
        let copy = operation.copy().map_err(|code| (code, Some(index)))?;
        Ok((operation, copy))
    };
    (0..count).map(one).collect()
}

/// Issues the copies, and says which failed: `usize::MAX` for none. The legacy default stream takes no batch, and says nothing of it.
fn issue(count: usize, list: HostPtr, failed: OutPtr<usize>, flags: u64, order: Order) -> Result {
    if thread::current_context() == 0 {
        return Err(CUDA_ERROR_INVALID_CONTEXT);
    }
    if order.stream == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let list = InPtr::nested(list.address() as *const c_void);
    let outcome = operations(count, list, flags).and_then(|operations| {
        let whole = |code| (code, None);
        let during_call = operations.iter().any(|(of, _)| of.access == DURING_CALL);
        if during_call && capture::any::<Guest>() {
            // A node would read its source when the graph runs.
            client()
                .and_then(|client| graph::refuse(client, order.stream))
                .map_err(whole)?;
        }
        for (index, (_, copy)) in operations.into_iter().enumerate() {
            planes(copy, order).map_err(|code| (code, Some(index)))?;
        }
        if during_call {
            client()
                .and_then(|client| synchronise(client, order.stream))
                .map_err(whole)?;
        }
        Ok(())
    });
    let index = outcome.as_ref().err().and_then(|(_, index)| *index);
    failed.offer(index.unwrap_or(usize::MAX));
    outcome.map_err(|(code, _)| code)
}

/// Where nobody wants to know which copy failed.
fn nowhere() -> OutPtr<usize> {
    OutPtr::nested(std::ptr::null_mut())
}

cuda! {
    fn cuMemcpy3DBatchAsync(numOps: usize, opList: HostPtr, failIdx: OutPtr<usize>, flags: u64, hStream: CUstream) {
        issue(numOps, opList, failIdx, flags, Order::on(hStream)?)
    }
    fn cuMemcpy3DBatchAsync_ptsz(numOps: usize, opList: HostPtr, failIdx: OutPtr<usize>, flags: u64, hStream: CUstream) {
        issue(numOps, opList, failIdx, flags, Order::on_per_thread(hStream)?)
    }
    fn cuMemcpy3DBatchAsync_v2(numOps: usize, opList: HostPtr, flags: u64, hStream: CUstream) {
        issue(numOps, opList, nowhere(), flags, Order::on(hStream)?)
    }
    fn cuMemcpy3DWithAttributesAsync(op: HostPtr, flags: u64, hStream: CUstream) {
        issue(1, op, nowhere(), flags, Order::on(hStream)?)
    }
    fn cuMemcpy3DWithAttributesAsync_ptsz(op: HostPtr, flags: u64, hStream: CUstream) {
        issue(1, op, nowhere(), flags, Order::on_per_thread(hStream)?)
    }
    fn cuMemcpy3DBatchAsync_v2_ptsz(numOps: usize, opList: HostPtr, flags: u64, hStream: CUstream) {
        issue(numOps, opList, nowhere(), flags, Order::on_per_thread(hStream)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Operand = Operand {
        type_: POINTER,
        address: 0x100,
        row: 0,
        layer: 0,
        _hint: [0; 2],
    };
    const GOOD: Operation = Operation {
        src: END,
        dst: END,
        width: 8,
        height: 2,
        depth: 1,
        access: IN_STREAM,
        flags: 0,
    };

    /// What a batch of a good copy and of this one comes to.
    fn second(of: Operation) -> std::result::Result<usize, Failure> {
        let list = [GOOD, of];
        let list = InPtr::nested(list.as_ptr().cast());
        operations(2, list, 0).map(|operations| operations.len())
    }

    #[test]
    fn a_copy_that_cannot_be_is_named() {
        assert_eq!(second(GOOD), Ok(2));
        let bad = Err((CUDA_ERROR_INVALID_VALUE, Some(1)));
        let end = |change: fn(&mut Operand)| {
            let mut of = GOOD;
            change(&mut of.src);
            second(of)
        };
        assert_eq!(end(|src| src.row = 7), bad);
        assert_eq!(end(|src| src.row = 8), Ok(2));
        assert_eq!(end(|src| src.layer = 1), bad);
        assert_eq!(end(|src| src.type_ = 0), bad);
        assert_eq!(end(|src| src.type_ = 5), bad);
        assert_eq!(end(|src| src.address = 0), bad);
        assert_eq!(second(Operation { width: 0, ..GOOD }), bad);
        assert_eq!(second(Operation { depth: 0, ..GOOD }), bad);
        assert_eq!(second(Operation { access: 0, ..GOOD }), bad);
        assert_eq!(second(Operation { access: 4, ..GOOD }), bad);
        assert_eq!(second(Operation { flags: 1, ..GOOD }), Ok(2));
        assert_eq!(second(Operation { flags: 2, ..GOOD }), bad);
    }

    #[test]
    fn a_batch_of_nothing_or_with_flags_fails_as_a_whole() {
        let list = [GOOD];
        let list: InPtr<Operation> = InPtr::nested(list.as_ptr().cast());
        let bad = Err((CUDA_ERROR_INVALID_VALUE, None));
        assert_eq!(operations(0, list, 0).map(drop), bad);
        assert_eq!(operations(1, list, 1).map(drop), bad);
        assert!(operations(1, list, 0).is_ok());
    }

    #[test]
    fn rows_and_layers_follow_each_other_unless_lengths_say_otherwise() {
        let copy = GOOD.copy().unwrap();
        assert_eq!((copy.srcPitch, copy.srcHeight), (8, 2));
        let src = Operand {
            row: 16,
            layer: 4,
            ..END
        };
        let copy = Operation { src, ..GOOD }.copy().unwrap();
        assert_eq!((copy.srcPitch, copy.srcHeight), (16, 4));
    }
}
