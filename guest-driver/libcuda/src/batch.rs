// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Batches of copies, and single copies with a batch's attributes. Each copy is issued as a single copy in its stream.

use gpgpu_graphs::capture;
use gpgpu_protocol::cuda::*;

use crate::{
    argument::{InPtr, OutPtr},
    client::client,
    copy::{Order, at_once, unified},
    cuda,
    ffi::Result,
    graph::{self, Guest},
    thread,
};

/// `CU_MEMCPY_SRC_ACCESS_ORDER_STREAM`, the first of the orders in which a source can be read.
pub const IN_STREAM: u32 = 1;
/// `CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL`: the source has been read when the call returns.
pub const DURING_CALL: u32 = 2;
/// `CU_MEMCPY_SRC_ACCESS_ORDER_ANY`, the last.
pub const ANY: u32 = 3;
/// `CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE`; a hint, and the only flag.
pub const PREFER_OVERLAP: u32 = 1;

/// One copy of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Operation {
    dst: u64,
    src: u64,
    bytes: usize,
    /// The order in which its source is read: [`IN_STREAM`] to [`ANY`].
    access: u32,
}

/// The order in which a source is read by copies with these attributes.
fn access(attributes: &CUmemcpyAttributes) -> Result<u32> {
    let access = attributes.srcAccessOrder;
    if !(IN_STREAM..=ANY).contains(&access) || attributes.flags & !PREFER_OVERLAP != 0 {
        return Err(CUDA_ERROR_INVALID_VALUE);
    }
    Ok(access)
}

impl Operation {
    /// A copy, which needs both addresses and a length.
    fn new(dst: u64, src: u64, bytes: usize, access: u32) -> Result<Self> {
        if dst == 0 || src == 0 || bytes == 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        Ok(Self {
            dst,
            src,
            bytes,
            access,
        })
    }

    /// The copy of `cuMemcpyWithAttributesAsync`.
    fn single(
        dst: u64,
        src: u64,
        bytes: usize,
        attributes: InPtr<CUmemcpyAttributes>,
    ) -> Result<Self> {
        Self::new(dst, src, bytes, access(&attributes.get()?)?)
    }
}

/// A batch's failure, with the index of the operation if it concerns one.
pub type Failure = (CUresult, Option<usize>);

/// The arguments that both versions of the function have.
struct Batch {
    dsts: InPtr<CUdeviceptr>,
    srcs: InPtr<CUdeviceptr>,
    sizes: InPtr<usize>,
    count: usize,
    attributes: InPtr<CUmemcpyAttributes>,
    starts: InPtr<usize>,
    kinds: usize,
}

impl Batch {
    /// The order in which each operation's source is read: `starts` contains the first operation of each of the
    /// attributes.
    fn accesses(&self) -> Result<Vec<u32>> {
        if self.count == 0 || self.kinds == 0 || self.starts.at(0)? != 0 {
            return Err(CUDA_ERROR_INVALID_VALUE);
        }
        let mut accesses = Vec::new();
        for kind in 0..self.kinds {
            let attributes = self.attributes.at(kind)?;
            let start = self.starts.at(kind)?;
            let end = if kind + 1 < self.kinds {
                self.starts.at(kind + 1)?
            } else {
                self.count
            };
            let access = access(&attributes)?;
            if start >= end || end > self.count {
                return Err(CUDA_ERROR_INVALID_VALUE);
            }
            accesses.resize(end, access);
        }
        Ok(accesses)
    }

    /// The operations, checked as far as this library can.
    fn operations(&self) -> std::result::Result<Vec<Operation>, Failure> {
        let whole = |code| (code, None);
        let accesses = self.accesses().map_err(whole)?;
        let mut operations = Vec::with_capacity(accesses.len());
        for (index, access) in accesses.into_iter().enumerate() {
            let operation = Operation::new(
                self.dsts.at(index).map_err(whole)?,
                self.srcs.at(index).map_err(whole)?,
                self.sizes.at(index).map_err(whole)?,
                access,
            );
            operations.push(operation.map_err(|code| (code, Some(index)))?);
        }
        Ok(operations)
    }

    /// Issues the copies.
    fn issue(&self, order: Order) -> std::result::Result<(), Failure> {
        issue(order, || self.operations())
    }
}

/// Issues copies. The legacy default stream accepts no copies with attributes, as with NVIDIA's driver.
fn issue(
    order: Order,
    operations: impl FnOnce() -> std::result::Result<Vec<Operation>, Failure>,
) -> std::result::Result<(), Failure> {
    let whole = |code| (code, None);
    if thread::current_context() == 0 {
        return Err(whole(CUDA_ERROR_INVALID_CONTEXT));
    }
    if [0, CU_STREAM_LEGACY as u64].contains(&order.stream) {
        return Err(whole(CUDA_ERROR_INVALID_VALUE));
    }
    let operations = operations()?;
    let during_call = operations
        .iter()
        .any(|operation| operation.access == DURING_CALL);
    if during_call && capture::any::<Guest>() {
        // A node would read its source only when the graph runs.
        client()
            .and_then(|client| graph::refuse(client, order.stream))
            .map_err(whole)?;
    }
    for (index, operation) in operations.into_iter().enumerate() {
        let Operation {
            dst,
            src,
            bytes,
            access,
        } = operation;
        let copy = if access == DURING_CALL {
            at_once
        } else {
            unified
        };
        copy(dst, src, bytes, order).map_err(|code| (code, Some(index)))?;
    }
    Ok(())
}

/// Issues a copy with attributes.
fn issue_single(operation: Result<Operation>, order: Order) -> Result {
    let one = || operation.map(|one| vec![one]).map_err(|code| (code, None));
    issue(order, one).map_err(|(code, _)| code)
}

/// The first version of the function also returns the index of the operation that failed, and `usize::MAX` for none.
fn telling(batch: &Batch, failed: OutPtr<usize>, order: Result<Order>) -> Result {
    let outcome = order
        .map_err(|code| (code, None))
        .and_then(|order| batch.issue(order));
    let index = outcome.as_ref().err().and_then(|(_, index)| *index);
    failed.offer(index.unwrap_or(usize::MAX));
    outcome.map_err(|(code, _)| code)
}

macro_rules! batch {
    ($dsts:ident, $srcs:ident, $sizes:ident, $count:ident, $attrs:ident, $starts:ident, $kinds:ident) => {
        Batch {
            dsts: $dsts,
            srcs: $srcs,
            sizes: $sizes,
            count: $count,
            attributes: $attrs,
            starts: $starts,
            kinds: $kinds,
        }
    };
}

cuda! {
    fn cuMemcpyBatchAsync(dsts: InPtr<CUdeviceptr>, srcs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, attrs: InPtr<CUmemcpyAttributes>, attrsIdxs: InPtr<usize>, numAttrs: usize, failIdx: OutPtr<usize>, hStream: CUstream) {
        telling(&batch!(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs), failIdx, Order::on(hStream))
    }
    fn cuMemcpyBatchAsync_ptsz(dsts: InPtr<CUdeviceptr>, srcs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, attrs: InPtr<CUmemcpyAttributes>, attrsIdxs: InPtr<usize>, numAttrs: usize, failIdx: OutPtr<usize>, hStream: CUstream) {
        telling(&batch!(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs), failIdx, Order::on_per_thread(hStream))
    }
    fn cuMemcpyBatchAsync_v2(dsts: InPtr<CUdeviceptr>, srcs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, attrs: InPtr<CUmemcpyAttributes>, attrsIdxs: InPtr<usize>, numAttrs: usize, hStream: CUstream) {
        let batch = batch!(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs);
        batch.issue(Order::on(hStream)?).map_err(|(code, _)| code)
    }
    fn cuMemcpyBatchAsync_v2_ptsz(dsts: InPtr<CUdeviceptr>, srcs: InPtr<CUdeviceptr>, sizes: InPtr<usize>, count: usize, attrs: InPtr<CUmemcpyAttributes>, attrsIdxs: InPtr<usize>, numAttrs: usize, hStream: CUstream) {
        let batch = batch!(dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs);
        batch.issue(Order::on_per_thread(hStream)?).map_err(|(code, _)| code)
    }
    fn cuMemcpyWithAttributesAsync(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: InPtr<CUmemcpyAttributes>, hStream: CUstream) {
        issue_single(Operation::single(dst, src, size, attr), Order::on(hStream)?)
    }
    fn cuMemcpyWithAttributesAsync_ptsz(dst: CUdeviceptr, src: CUdeviceptr, size: usize, attr: InPtr<CUmemcpyAttributes>, hStream: CUstream) {
        issue_single(Operation::single(dst, src, size, attr), Order::on_per_thread(hStream)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of a batch of copies with these sizes, starts and (order, flags); sources are at 0x100 unless `src`
    /// is given.
    fn plan(
        sizes: &[usize],
        starts: &[usize],
        kinds: &[(u32, u32)],
        src: u64,
    ) -> std::result::Result<Vec<u32>, Failure> {
        let nowhere = CUmemLocation { type_: 0, id: 0 };
        let attributes: Vec<_> = kinds
            .iter()
            .map(|&(srcAccessOrder, flags)| CUmemcpyAttributes {
                srcAccessOrder,
                srcLocHint: nowhere,
                dstLocHint: nowhere,
                flags,
            })
            .collect();
        let dsts = vec![0x100u64; sizes.len()];
        let mut srcs = dsts.clone();
        srcs.extend([0]);
        srcs[sizes.len().saturating_sub(1)] = src;
        let batch = Batch {
            dsts: InPtr::nested(dsts.as_ptr().cast()),
            srcs: InPtr::nested(srcs.as_ptr().cast()),
            sizes: InPtr::nested(sizes.as_ptr().cast()),
            count: sizes.len(),
            attributes: InPtr::nested(attributes.as_ptr().cast()),
            starts: InPtr::nested(starts.as_ptr().cast()),
            kinds: kinds.len(),
        };
        let operations = batch.operations()?;
        Ok(operations
            .iter()
            .map(|operation| operation.access)
            .collect())
    }

    #[test]
    fn each_copy_has_the_attributes_that_start_at_or_before_it() {
        assert_eq!(plan(&[4], &[0], &[(1, 1)], 8), Ok(vec![1]));
        assert_eq!(
            plan(&[4; 5], &[0, 1, 3], &[(1, 0), (2, 0), (3, 1)], 8),
            Ok(vec![1, 2, 2, 3, 3])
        );
    }

    #[test]
    fn a_batch_that_says_nothing_true_of_itself_fails_as_a_whole() {
        let refused = Err((CUDA_ERROR_INVALID_VALUE, None));
        assert_eq!(plan(&[], &[0], &[(1, 0)], 8), refused, "no copies");
        assert_eq!(plan(&[4], &[0], &[], 8), refused, "no attributes");
        assert_eq!(plan(&[4; 2], &[1], &[(1, 0)], 8), refused, "a late start");
        assert_eq!(plan(&[4; 3], &[0, 0], &[(1, 0); 2], 8), refused, "no rise");
        assert_eq!(
            plan(&[4; 2], &[0, 2], &[(1, 0); 2], 8),
            refused,
            "behind the end"
        );
        assert_eq!(
            plan(&[4; 2], &[0, 5, 1], &[(1, 0); 3], 8),
            refused,
            "far behind"
        );
        assert_eq!(plan(&[4], &[0], &[(0, 0)], 8), refused, "no order");
        assert_eq!(plan(&[4], &[0], &[(4, 0)], 8), refused, "an unknown order");
        assert_eq!(plan(&[4], &[0], &[(1, 2)], 8), refused, "an unknown flag");
    }

    #[test]
    fn a_single_copy_has_a_batchs_rules() {
        let nowhere = CUmemLocation { type_: 0, id: 0 };
        let of = |dst, src, bytes, (srcAccessOrder, flags)| {
            let attributes = CUmemcpyAttributes {
                srcAccessOrder,
                srcLocHint: nowhere,
                dstLocHint: nowhere,
                flags,
            };
            let attributes = InPtr::nested(std::ptr::from_ref(&attributes).cast());
            Operation::single(dst, src, bytes, attributes)
        };
        let expected = Operation {
            dst: 8,
            src: 16,
            bytes: 4,
            access: DURING_CALL,
        };
        assert_eq!(of(8, 16, 4, (DURING_CALL, PREFER_OVERLAP)), Ok(expected));
        let refused = Err(CUDA_ERROR_INVALID_VALUE);
        assert_eq!(of(0, 16, 4, (ANY, 0)), refused);
        assert_eq!(of(8, 0, 4, (ANY, 0)), refused);
        assert_eq!(of(8, 16, 0, (ANY, 0)), refused);
        assert_eq!(of(8, 16, 4, (4, 0)), refused, "an unknown order");
        assert_eq!(of(8, 16, 4, (ANY, 2)), refused, "an unknown flag");
        let nothing = InPtr::nested(std::ptr::null());
        assert_eq!(Operation::single(8, 16, 4, nothing), refused);
    }

    #[test]
    fn the_failing_copy_is_named() {
        let of = |index| Err((CUDA_ERROR_INVALID_VALUE, Some(index)));
        assert_eq!(plan(&[4, 0, 4], &[0], &[(1, 0)], 8), of(1));
        assert_eq!(plan(&[4, 4], &[0], &[(1, 0)], 0), of(1));
    }
}
