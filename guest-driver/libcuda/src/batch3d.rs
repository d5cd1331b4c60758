// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Batches of three-dimensional copies. Each copy is issued as a single copy in the batch's stream, as in
//! [`crate::batch`]. A copy with attributes is a batch of one.

use std::ffi::c_void;

use gpgpu_graphs::capture;
use gpgpu_protocol::{
    api::{Array, Object},
    cuda::*,
};

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

/// `CUmemcpy3DOperand`. All lengths are in elements.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Operand {
    type_: u32,
    /// The pointer or the array.
    address: u64,
    /// For a pointer: the length of a row, the rows of a layer, and a hint. A length is 0 if there are no gaps. For an
    /// array: the offset.
    lengths: [usize; 3],
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

/// One side of a copy, in bytes.
struct End {
    kind: CUmemorytype,
    /// For a pointer.
    address: u64,
    pitch: usize,
    height: usize,
    /// For an array.
    array: CUarray,
    at: [usize; 3],
}

/// The size of elements in bytes.
fn in_bytes(count: usize, element: usize) -> Result<usize> {
    count.checked_mul(element).ok_or(CUDA_ERROR_INVALID_VALUE)
}

/// The size of an array's element in bytes.
fn element(array: u64) -> Result<usize> {
    let known = client()?.arrays.array(Array::id(array as CUarray));
    let known = known.map_err(|_| CUDA_ERROR_INVALID_VALUE)?;
    // An array of compressed blocks has no single elements.
    known.element().ok_or(CUDA_ERROR_NOT_SUPPORTED)
}

impl Operand {
    /// The operand as one side of a copy. `unit` is the size of an element in bytes.
    fn end(&self, (width, height): (usize, usize), unit: usize) -> Result<End> {
        let or = |given: usize, least: usize| match given {
            0 => Ok(least),
            given if given < least => Err(CUDA_ERROR_INVALID_VALUE),
            given => Ok(given),
        };
        if self.address == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let [first, second, third] = self.lengths;
        match self.type_ {
            POINTER => Ok(End {
                kind: CU_MEMORYTYPE_UNIFIED,
                address: self.address,
                pitch: in_bytes(or(first, width)?, unit)?,
                height: or(second, height)?,
                array: std::ptr::null_mut(),
                at: [0; 3],
            }),
            ARRAY => Ok(End {
                kind: CU_MEMORYTYPE_ARRAY,
                address: 0,
                pitch: 0,
                height: 0,
                array: self.address as CUarray,
                at: [in_bytes(first, unit)?, second, third],
            }),
            _ => Err(CUDA_ERROR_INVALID_VALUE),
        }
    }
}

impl Operation {
    /// The operation as a copy. `element` returns the size of an array's element in bytes; an element of memory is one
    /// byte.
    fn copy(&self, element: impl Fn(u64) -> Result<usize>) -> Result<CUDA_MEMCPY3D> {
        let size = (self.width, self.height);
        let known = (IN_STREAM..=ANY).contains(&self.access) && self.flags & !PREFER_OVERLAP == 0;
        if !known || self.width == 0 || self.height == 0 || self.depth == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let unit = match (self.src.type_ == ARRAY, self.dst.type_ == ARRAY) {
            (false, false) => 1,
            (true, false) => element(self.src.address)?,
            (false, true) => element(self.dst.address)?,
            (true, true) => {
                let unit = element(self.src.address)?;
                if unit != element(self.dst.address)? {
                    return Err(CUDA_ERROR_INVALID_VALUE);
                }
                unit
            }
        };
        let src = self.src.end(size, unit)?;
        let dst = self.dst.end(size, unit)?;
        let nothing = std::ptr::null_mut();
        Ok(CUDA_MEMCPY3D {
            srcXInBytes: src.at[0],
            srcY: src.at[1],
            srcZ: src.at[2],
            srcLOD: 0,
            srcMemoryType: src.kind,
            srcHost: nothing,
            srcDevice: src.address,
            srcArray: src.array,
            reserved0: nothing,
            srcPitch: src.pitch,
            srcHeight: src.height,
            dstXInBytes: dst.at[0],
            dstY: dst.at[1],
            dstZ: dst.at[2],
            dstLOD: 0,
            dstMemoryType: dst.kind,
            dstHost: nothing,
            dstDevice: dst.address,
            dstArray: dst.array,
            reserved1: nothing,
            dstPitch: dst.pitch,
            dstHeight: dst.height,
            WidthInBytes: in_bytes(self.width, unit)?,
            Height: self.height,
            Depth: self.depth,
        })
    }
}

/// The operations of a list with their copies, checked as far as this library can.
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
        let copy = operation
            .copy(element)
            .map_err(|code| (code, Some(index)))?;
        Ok((operation, copy))
    };
    (0..count).map(one).collect()
}

/// Issues the copies, and returns the index of the copy that failed, `usize::MAX` for none. The legacy default stream
/// accepts no batch, and then no index is stored.
fn issue(count: usize, list: HostPtr, failed: OutPtr<usize>, flags: u64, order: Order) -> Result {
    thread::required_context()?;
    if order.stream == 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    let list = InPtr::nested(list.address() as *const c_void);
    let outcome = operations(count, list, flags).and_then(|operations| {
        let whole = |code| (code, None);
        let during_call = operations.iter().any(|(of, _)| of.access == DURING_CALL);
        if during_call && capture::any::<Guest>() {
            // A node would read its source only when the graph runs.
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

/// For a caller that does not want the index of the failed copy.
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
        lengths: [0; 3],
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

    /// The result of a batch of a valid copy and this one.
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
        assert_eq!(end(|src| src.lengths[0] = 7), bad);
        assert_eq!(end(|src| src.lengths[0] = 8), Ok(2));
        assert_eq!(end(|src| src.lengths[1] = 1), bad);
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

    /// The copy of an operation; arrays at 0x200 have elements of 2 bytes, and others of 4.
    fn copy(of: Operation) -> Result<CUDA_MEMCPY3D> {
        of.copy(|array| Ok(if array == 0x200 { 2 } else { 4 }))
    }

    #[test]
    fn rows_and_layers_follow_each_other_unless_lengths_say_otherwise() {
        let given = copy(GOOD).unwrap();
        assert_eq!((given.srcPitch, given.srcHeight), (8, 2));
        let src = Operand {
            lengths: [16, 4, 0],
            ..END
        };
        let given = copy(Operation { src, ..GOOD }).unwrap();
        assert_eq!((given.srcPitch, given.srcHeight), (16, 4));
    }

    #[test]
    fn an_array_says_how_long_elements_are() {
        let array = |address| Operand {
            type_: ARRAY,
            address,
            lengths: [3, 1, 2],
        };
        let src = Operand {
            lengths: [10, 0, 0],
            ..END
        };
        let dst = array(0x200);
        let into = copy(Operation { src, dst, ..GOOD }).unwrap();
        assert_eq!((into.WidthInBytes, into.Height), (16, 2));
        assert_eq!(
            (into.srcDevice, into.srcPitch, into.srcHeight),
            (0x100, 20, 2)
        );
        assert_eq!(into.dstMemoryType, CU_MEMORYTYPE_ARRAY);
        assert_eq!(into.dstArray as u64, 0x200);
        assert_eq!((into.dstXInBytes, into.dstY, into.dstZ), (6, 1, 2));
        let src = array(0x400);
        let out = copy(Operation { src, ..GOOD }).unwrap();
        assert_eq!(
            (out.srcXInBytes, out.WidthInBytes, out.dstPitch),
            (12, 32, 32)
        );
        let between = copy(Operation {
            src,
            dst: src,
            ..GOOD
        })
        .unwrap();
        assert_eq!((between.srcXInBytes, between.dstXInBytes), (12, 12));
        let bad = CUDA_ERROR_INVALID_VALUE;
        let refused = |of| copy(of).err();
        assert_eq!(refused(Operation { src, dst, ..GOOD }), Some(bad));
        let src = array(0);
        assert_eq!(refused(Operation { src, ..GOOD }), Some(bad));
        let dst = Operand {
            lengths: [usize::MAX, 0, 0],
            ..array(0x200)
        };
        assert_eq!(refused(Operation { dst, ..GOOD }), Some(bad));
    }
}
