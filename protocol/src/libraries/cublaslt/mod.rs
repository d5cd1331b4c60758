// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuBLASLt (cublasLt.h).
//!
//! Descriptors are kept in the guest. A call carries the content of its descriptors and its scalars in one argument,
//! encoded as in [`form`]. Both sides implement such rows by hand. [`attributes`] lists the parts of descriptors.
//!
//! The host can keep the descriptors of a repeated product as a plan. Later calls carry the plan's id instead.

pub mod attributes;
pub mod form;

pub use super::cublas::status;
use super::{Statuses, cublas};

/// `cublasStatus_t`. Some texts differ from cuBLAS's.
pub static STATUSES: Statuses = Statuses {
    names: &[
        (0, c"CUBLAS_STATUS_SUCCESS", c"success"),
        (
            1,
            c"CUBLAS_STATUS_NOT_INITIALIZED",
            c"the library was not initialized",
        ),
        (
            3,
            c"CUBLAS_STATUS_ALLOC_FAILED",
            c"the resource allocation failed",
        ),
        (
            7,
            c"CUBLAS_STATUS_INVALID_VALUE",
            c"an unsupported value or parameter was passed to the function",
        ),
        (
            8,
            c"CUBLAS_STATUS_ARCH_MISMATCH",
            c"the function requires an architectural feature absent from the device",
        ),
        (
            11,
            c"CUBLAS_STATUS_MAPPING_ERROR",
            c"an access to GPU memory space failed",
        ),
        (
            13,
            c"CUBLAS_STATUS_EXECUTION_FAILED",
            c"the function failed to launch on the GPU",
        ),
        (
            14,
            c"CUBLAS_STATUS_INTERNAL_ERROR",
            c"an internal operation failed",
        ),
        (
            15,
            c"CUBLAS_STATUS_NOT_SUPPORTED",
            c"the requested functionality is not supported",
        ),
        (
            16,
            c"CUBLAS_STATUS_LICENSE_ERROR",
            c"the license check failed",
        ),
    ],
    unknown: (c"unrecognized status", c"unrecognized status"),
    ..cublas::STATUSES
};

/// Passes cuBLASLt's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cublaslt {
    ($callback:ident) => {
        $callback! {
            0x1400 call table cublasLtCreate(lightHandle: new[CublasLtHandle]);
            0x1401 wait table cublasLtDestroy(lightHandle: gone[CublasLtHandle]);
            0x1402 call guest cublasLtGetVersion(version: out[8]);
            0x1403 call guest cublasLtGetProperty(property: i32, value: out[4]);
            0x1404 post guest cublasLtMatmul(lightHandle: handle[CublasLtHandle], product: blob, stream: stream) work;
            0x1405 post guest cublasLtMatrixTransform(lightHandle: handle[CublasLtHandle], transformation: blob, stream: stream) work;
            0x1406 call guest cublasLtMatmulAlgoGetHeuristic(lightHandle: handle[CublasLtHandle], question: blob, results: reply);
            0x1407 call guest cublasLtMatmulAlgoGetHeuristicForStream(lightHandle: handle[CublasLtHandle], question: blob, results: reply, stream: stream);
            0x1408 call guest cublasLtMatmulAlgoCheck(lightHandle: handle[CublasLtHandle], question: blob, result: out[96]);
            0x1409 call guest cublasLtMatmulAlgoCheckForStream(lightHandle: handle[CublasLtHandle], question: blob, result: out[96], stream: stream);
            0x140a call guest cublasLtMatmulAlgoGetIds(lightHandle: handle[CublasLtHandle], computeType: i32, scaleType: i32, Atype: i32, Btype: i32, Ctype: i32, Dtype: i32, requestedAlgoCount: i32, algoIdsArray: outs[4, requestedAlgoCount], returnAlgoCount: out[4]);
            0x140b call guest cublasLtMatmulAlgoInit(lightHandle: handle[CublasLtHandle], computeType: i32, scaleType: i32, Atype: i32, Btype: i32, Ctype: i32, Dtype: i32, algoId: i32, algo: out[64]);
            0x140c call guest cublasLtMatmulAlgoCapGetAttribute(algo: in[64], attr: i32, value: reply);
            0x140d call guest cublasLtMatmulAlgoConfigGetAttribute(algo: in[64], attr: i32, value: reply);
            0x140e call guest cublasLtMatmulAlgoConfigSetAttribute(algo: inout[64], attr: i32, buf: array[1, sizeInBytes], sizeInBytes: i64);
            0x140f call guest gpgpuLtPlan(plan: new[CublasLtPlan], description: blob);
            0x1410 post guest gpgpuLtPlanForget(plan: gone[CublasLtPlan]);
            0x1411 post guest gpgpuLtPlanMatmul(lightHandle: handle[CublasLtHandle], plan: object[CublasLtPlan], operands: blob, stream: stream) work;
        }
    };
}
