// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuSPARSELt (cusparseLt.h).
//!
//! Descriptors and selections of an algorithm are kept in the program's own structures, as natively. A call carries the
//! whole content of those that it uses in one argument, encoded as in [`form`]. Both sides implement such rows by hand.
//! Handles and plans are objects of the host. A call that makes or sets a descriptor asks the host once whether the
//! library accepts the content.
//!
//! [`attributes`] lists the settings. Alpha and beta are always single-precision numbers: at host addresses, or vectors
//! in device memory if an attribute of the product says so.

pub mod attributes;
pub mod form;

pub use super::cusparse::{STATUSES, status};

/// Passes cuSPARSELt's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cusparselt {
    ($callback:ident) => {
        $callback! {
            0x2c00 call guest cusparseLtInit(handle: new[CusparseLtHandle]);
            0x2c01 wait guest cusparseLtDestroy(handle: gone[CusparseLtHandle]);
            0x2c02 call guest cusparseLtGetVersion(handle: handle[CusparseLtHandle], version: out[4]) pure;
            0x2c03 call guest cusparseLtGetProperty(property: i32, value: out[4]) pure;
            0x2c04 call guest cusparseLtDenseDescriptorInit(handle: handle[CusparseLtHandle], matrix: blob) pure;
            0x2c05 call guest cusparseLtStructuredDescriptorInit(handle: handle[CusparseLtHandle], matrix: blob) pure;
            0x2c06 call guest cusparseLtMatDescSetAttribute(handle: handle[CusparseLtHandle], matrix: blob) pure;
            0x2c07 call guest cusparseLtMatDescGetAttribute(handle: handle[CusparseLtHandle], matrix: blob, attribute: i32, value: out[8]) pure;
            0x2c08 call guest cusparseLtMatmulDescriptorInit(handle: handle[CusparseLtHandle], product: blob) pure;
            0x2c09 call guest cusparseLtMatmulDescSetAttribute(handle: handle[CusparseLtHandle], product: blob) pure;
            0x2c0a call guest cusparseLtMatmulDescGetAttribute(handle: handle[CusparseLtHandle], product: blob, attribute: i32, value: out[8]) pure;
            0x2c0b call guest cusparseLtMatmulAlgSelectionInit(handle: handle[CusparseLtHandle], selection: blob) pure;
            0x2c0c call guest cusparseLtMatmulAlgSetAttribute(handle: handle[CusparseLtHandle], selection: blob) pure;
            0x2c0d call guest cusparseLtMatmulAlgGetAttribute(handle: handle[CusparseLtHandle], selection: blob, attribute: i32, value: out[8]) pure;
            0x2c0e post guest cusparseLtMatmulPlanInit(handle: handle[CusparseLtHandle], plan: new[CusparseLtPlan], selection: blob);
            0x2c0f post guest cusparseLtMatmulPlanDestroy(plan: gone[CusparseLtPlan]);
            0x2c10 call guest cusparseLtMatmulGetWorkspace(handle: handle[CusparseLtHandle], selection: blob, workspaceSize: out[8]) pure;
            0x2c11 post guest cusparseLtMatmul(handle: handle[CusparseLtHandle], plan: object[CusparseLtPlan], scalars: blob, d_A: device, d_B: device, d_C: device, d_D: device, workspace: device, stream: stream) work;
            0x2c12 wait guest cusparseLtMatmulSearch(handle: handle[CusparseLtHandle], plan: object[CusparseLtPlan], scalars: blob, d_A: device, d_B: device, d_C: device, d_D: device, workspace: device, stream: stream, found: reply) work;
            0x2c13 post guest cusparseLtSpMMAPrune(handle: handle[CusparseLtHandle], product: blob, d_in: device, d_out: device, pruneAlg: i32, stream: stream) work;
            0x2c14 post guest cusparseLtSpMMAPruneCheck(handle: handle[CusparseLtHandle], product: blob, d_in: device, valid: device, stream: stream) work;
            0x2c15 post guest cusparseLtSpMMAPrune2(handle: handle[CusparseLtHandle], matrix: blob, isSparseA: i32, op: i32, d_in: device, d_out: device, pruneAlg: i32, stream: stream) work;
            0x2c16 post guest cusparseLtSpMMAPruneCheck2(handle: handle[CusparseLtHandle], matrix: blob, isSparseA: i32, op: i32, d_in: device, d_valid: device, stream: stream) work;
            0x2c17 call guest cusparseLtSpMMACompressedSize(handle: handle[CusparseLtHandle], selection: blob, compressedSize: out[8], compressedBufferSize: out[8]) pure;
            0x2c18 call guest cusparseLtSpMMACompressedSize2(handle: handle[CusparseLtHandle], matrix: blob, compressedSize: out[8], compressedBufferSize: out[8]) pure;
            0x2c19 post guest cusparseLtSpMMACompress(handle: handle[CusparseLtHandle], plan: object[CusparseLtPlan], d_dense: device, d_compressed: device, d_compressed_buffer: device, stream: stream) work;
            0x2c1a post guest cusparseLtSpMMACompress2(handle: handle[CusparseLtHandle], matrix: blob, isSparseA: i32, op: i32, d_dense: device, d_compressed: device, d_compressed_buffer: device, stream: stream) work;
        }
    };
}
