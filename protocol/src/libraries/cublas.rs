// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuBLAS (cublas_v2.h).
//!
//! Rows with `guest` are answered in the guest from the process's state, or send only changes. Scalars and results are
//! at a host or a device address, by the handle's pointer mode; `[4]` is their size in bytes, `[alphaType]` names the
//! argument that gives the size.

use super::Statuses;

/// The functions' results (`cublasStatus_t`).
pub mod status {
    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// There is no such handle, or the library is missing.
    pub const NOT_INITIALIZED: u32 = 1;
    /// Memory ran out.
    pub const ALLOC_FAILED: u32 = 3;
    /// An argument is wrong.
    pub const INVALID_VALUE: u32 = 7;
    /// An access to device memory failed.
    pub const MAPPING_ERROR: u32 = 11;
    /// The GPU failed, or an object that the handle needs was destroyed.
    pub const EXECUTION_FAILED: u32 = 13;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 14;
    /// The function does not exist here, or does not support this.
    pub const NOT_SUPPORTED: u32 = 15;
}

/// `cublasStatus_t`.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::NOT_INITIALIZED,
    not_initialized: status::NOT_INITIALIZED,
    alloc_failed: status::ALLOC_FAILED,
    invalid_value: status::INVALID_VALUE,
    execution_failed: status::EXECUTION_FAILED,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::NOT_SUPPORTED,
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
            c"the function requires a feature absent from the device architecture",
        ),
        (
            11,
            c"CUBLAS_STATUS_MAPPING_ERROR",
            c"an access to GPU memory space failed",
        ),
        (
            13,
            c"CUBLAS_STATUS_EXECUTION_FAILED",
            c"the GPU program failed to execute",
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
            c"the requested functionality requires some license",
        ),
    ],
    unknown: (c"CUBLAS_STATUS_<unknown>", c"unknown status"),
};

/// Passes cuBLAS's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cublas {
    ($callback:ident) => {
        $callback! {
            0x1000 call guest cublasCreate_v2(handle: new);
            0x1001 wait guest cublasDestroy_v2(handle: gone);
            0x1002 call guest cublasGetVersion_v2(handle: handle, version: out[4]);
            0x1003 call guest cublasGetProperty(property: i32, value: out[4]);
            0x1004 post guest cublasSetStream_v2(handle: handle, streamId: stream);
            0x1005 post guest cublasSetPointerMode_v2(handle: handle, mode: i32);
            0x1006 post guest cublasSetWorkspace_v2(handle: handle, workspace: device, workspaceSizeInBytes: i64);
            0x1007 call guest cublasSetAtomicsMode(handle: handle, mode: i32);
            0x1008 call guest cublasSetEmulationStrategy(handle: handle, emulationStrategy: i32);
            0x1009 call guest cublasSetMathMode(handle: handle, mode: i32);
            0x100a call guest cublasSetSmCountTarget(handle: handle, smCountTarget: i32);
            0x100b wait table cublasAsumEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, result: result[resultType], resultType: i32, executiontype: i32) work;
            0x100c wait table cublasAsumEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, result: result[resultType], resultType: i32, executiontype: i32) work;
            0x100d post table cublasAxpyEx(handle: handle, n: i32, alpha: scalar[alphaType], alphaType: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32, executiontype: i32) work;
            0x100e post table cublasAxpyEx_64(handle: handle, n: i64, alpha: scalar[alphaType], alphaType: i32, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64, executiontype: i32) work;
            0x100f post table cublasCaxpy_v2(handle: handle, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32) work;
            0x1010 post table cublasCaxpy_v2_64(handle: handle, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64) work;
            0x1011 post table cublasCcopy_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x1012 post table cublasCcopy_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x1013 post table cublasCdgmm(handle: handle, mode: i32, m: i32, n: i32, A: device, lda: i32, x: device, incx: i32, C: device, ldc: i32) work;
            0x1014 post table cublasCdgmm_64(handle: handle, mode: i32, m: i64, n: i64, A: device, lda: i64, x: device, incx: i64, C: device, ldc: i64) work;
            0x1015 wait table cublasCdotc_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, result: result[8]) work;
            0x1016 wait table cublasCdotc_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, result: result[8]) work;
            0x1017 wait table cublasCdotu_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, result: result[8]) work;
            0x1018 wait table cublasCdotu_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, result: result[8]) work;
            0x1019 post table cublasCgbmv_v2(handle: handle, trans: i32, m: i32, n: i32, kl: i32, ku: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x101a post table cublasCgbmv_v2_64(handle: handle, trans: i32, m: i64, n: i64, kl: i64, ku: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x101b post table cublasCgeam(handle: handle, transa: i32, transb: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, beta: scalar[8], B: device, ldb: i32, C: device, ldc: i32) work;
            0x101c post table cublasCgeam_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, beta: scalar[8], B: device, ldb: i64, C: device, ldc: i64) work;
            0x101d wait table cublasCgelsBatched(handle: handle, trans: i32, m: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, Carray: device, ldc: i32, info: out[4], devInfoArray: device, batchSize: i32) work;
            0x101e post table cublasCgemm3m(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x101f post table cublasCgemm3mBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], Aarray: device, lda: i32, Barray: device, ldb: i32, beta: scalar[8], Carray: device, ldc: i32, batchCount: i32) work;
            0x1020 post table cublasCgemm3mBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], Aarray: device, lda: i64, Barray: device, ldb: i64, beta: scalar[8], Carray: device, ldc: i64, batchCount: i64) work;
            0x1021 post table cublasCgemm3mEx(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, Atype: i32, lda: i32, B: device, Btype: i32, ldb: i32, beta: scalar[8], C: device, Ctype: i32, ldc: i32) work;
            0x1022 post table cublasCgemm3mEx_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, Atype: i32, lda: i64, B: device, Btype: i32, ldb: i64, beta: scalar[8], C: device, Ctype: i32, ldc: i64) work;
            0x1023 post table cublasCgemm3mStridedBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, strideA: i64, B: device, ldb: i32, strideB: i64, beta: scalar[8], C: device, ldc: i32, strideC: i64, batchCount: i32) work;
            0x1024 post table cublasCgemm3mStridedBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, strideA: i64, B: device, ldb: i64, strideB: i64, beta: scalar[8], C: device, ldc: i64, strideC: i64, batchCount: i64) work;
            0x1025 post table cublasCgemm3m_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x1026 post table cublasCgemmBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], Aarray: device, lda: i32, Barray: device, ldb: i32, beta: scalar[8], Carray: device, ldc: i32, batchCount: i32) work;
            0x1027 post table cublasCgemmBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], Aarray: device, lda: i64, Barray: device, ldb: i64, beta: scalar[8], Carray: device, ldc: i64, batchCount: i64) work;
            0x1028 post table cublasCgemmEx(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, Atype: i32, lda: i32, B: device, Btype: i32, ldb: i32, beta: scalar[8], C: device, Ctype: i32, ldc: i32) work;
            0x1029 post table cublasCgemmEx_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, Atype: i32, lda: i64, B: device, Btype: i32, ldb: i64, beta: scalar[8], C: device, Ctype: i32, ldc: i64) work;
            0x102a post table cublasCgemmStridedBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, strideA: i64, B: device, ldb: i32, strideB: i64, beta: scalar[8], C: device, ldc: i32, strideC: i64, batchCount: i32) work;
            0x102b post table cublasCgemmStridedBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, strideA: i64, B: device, ldb: i64, strideB: i64, beta: scalar[8], C: device, ldc: i64, strideC: i64, batchCount: i64) work;
            0x102c post table cublasCgemm_v2(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x102d post table cublasCgemm_v2_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x102e post table cublasCgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[8], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[8], yarray: device, incy: i32, batchCount: i32) work;
            0x102f post table cublasCgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[8], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[8], yarray: device, incy: i64, batchCount: i64) work;
            0x1030 post table cublasCgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[8], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x1031 post table cublasCgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[8], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x1032 post table cublasCgemv_v2(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x1033 post table cublasCgemv_v2_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x1034 wait table cublasCgeqrfBatched(handle: handle, m: i32, n: i32, Aarray: device, lda: i32, TauArray: device, info: out[4], batchSize: i32) work;
            0x1035 post table cublasCgerc_v2(handle: handle, m: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x1036 post table cublasCgerc_v2_64(handle: handle, m: i64, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x1037 post table cublasCgeru_v2(handle: handle, m: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x1038 post table cublasCgeru_v2_64(handle: handle, m: i64, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x1039 post table cublasCgetrfBatched(handle: handle, n: i32, A: device, lda: i32, P: device, info: device, batchSize: i32) work;
            0x103a post table cublasCgetriBatched(handle: handle, n: i32, A: device, lda: i32, P: device, C: device, ldc: i32, info: device, batchSize: i32) work;
            0x103b wait table cublasCgetrsBatched(handle: handle, trans: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, devIpiv: device, Barray: device, ldb: i32, info: out[4], batchSize: i32) work;
            0x103c post table cublasChbmv_v2(handle: handle, uplo: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x103d post table cublasChbmv_v2_64(handle: handle, uplo: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x103e post table cublasChemm_v2(handle: handle, side: i32, uplo: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x103f post table cublasChemm_v2_64(handle: handle, side: i32, uplo: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x1040 post table cublasChemv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x1041 post table cublasChemv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x1042 post table cublasCher2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x1043 post table cublasCher2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x1044 post table cublasCher2k_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x1045 post table cublasCher2k_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x1046 post table cublasCher_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], x: device, incx: i32, A: device, lda: i32) work;
            0x1047 post table cublasCher_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], x: device, incx: i64, A: device, lda: i64) work;
            0x1048 post table cublasCherk3mEx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[4], A: device, Atype: i32, lda: i32, beta: scalar[4], C: device, Ctype: i32, ldc: i32) work;
            0x1049 post table cublasCherk3mEx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[4], A: device, Atype: i32, lda: i64, beta: scalar[4], C: device, Ctype: i32, ldc: i64) work;
            0x104a post table cublasCherkEx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[4], A: device, Atype: i32, lda: i32, beta: scalar[4], C: device, Ctype: i32, ldc: i32) work;
            0x104b post table cublasCherkEx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[4], A: device, Atype: i32, lda: i64, beta: scalar[4], C: device, Ctype: i32, ldc: i64) work;
            0x104c post table cublasCherk_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x104d post table cublasCherk_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x104e post table cublasCherkx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x104f post table cublasCherkx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x1050 post table cublasChpmv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], AP: device, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x1051 post table cublasChpmv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], AP: device, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x1052 post table cublasChpr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, AP: device) work;
            0x1053 post table cublasChpr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, AP: device) work;
            0x1054 post table cublasChpr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], x: device, incx: i32, AP: device) work;
            0x1055 post table cublasChpr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], x: device, incx: i64, AP: device) work;
            0x1056 post table cublasCmatinvBatched(handle: handle, n: i32, A: device, lda: i32, Ainv: device, lda_inv: i32, info: device, batchSize: i32) work;
            0x1057 post table cublasCopyEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32) work;
            0x1058 post table cublasCopyEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64) work;
            0x1059 post table cublasCrot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, c: scalar[4], s: scalar[8]) work;
            0x105a post table cublasCrot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, c: scalar[4], s: scalar[8]) work;
            0x105b wait table cublasCrotg_v2(handle: handle, a: in_out[8], b: in_out[8], c: in_out[4], s: in_out[8]) work;
            0x105c post table cublasCscal_v2(handle: handle, n: i32, alpha: scalar[8], x: device, incx: i32) work;
            0x105d post table cublasCscal_v2_64(handle: handle, n: i64, alpha: scalar[8], x: device, incx: i64) work;
            0x105e post table cublasCsrot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, c: scalar[4], s: scalar[4]) work;
            0x105f post table cublasCsrot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, c: scalar[4], s: scalar[4]) work;
            0x1060 post table cublasCsscal_v2(handle: handle, n: i32, alpha: scalar[4], x: device, incx: i32) work;
            0x1061 post table cublasCsscal_v2_64(handle: handle, n: i64, alpha: scalar[4], x: device, incx: i64) work;
            0x1062 post table cublasCswap_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x1063 post table cublasCswap_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x1064 post table cublasCsymm_v2(handle: handle, side: i32, uplo: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x1065 post table cublasCsymm_v2_64(handle: handle, side: i32, uplo: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x1066 post table cublasCsymv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x1067 post table cublasCsymv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x1068 post table cublasCsyr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x1069 post table cublasCsyr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x106a post table cublasCsyr2k_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x106b post table cublasCsyr2k_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x106c post table cublasCsyr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, A: device, lda: i32) work;
            0x106d post table cublasCsyr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, A: device, lda: i64) work;
            0x106e post table cublasCsyrk3mEx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, Atype: i32, lda: i32, beta: scalar[8], C: device, Ctype: i32, ldc: i32) work;
            0x106f post table cublasCsyrk3mEx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, Atype: i32, lda: i64, beta: scalar[8], C: device, Ctype: i32, ldc: i64) work;
            0x1070 post table cublasCsyrkEx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, Atype: i32, lda: i32, beta: scalar[8], C: device, Ctype: i32, ldc: i32) work;
            0x1071 post table cublasCsyrkEx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, Atype: i32, lda: i64, beta: scalar[8], C: device, Ctype: i32, ldc: i64) work;
            0x1072 post table cublasCsyrk_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x1073 post table cublasCsyrk_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x1074 post table cublasCsyrkx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x1075 post table cublasCsyrkx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x1076 post table cublasCtbmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x1077 post table cublasCtbmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x1078 post table cublasCtbsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x1079 post table cublasCtbsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x107a post table cublasCtpmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x107b post table cublasCtpmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x107c post table cublasCtpsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x107d post table cublasCtpsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x107e post table cublasCtpttr(handle: handle, uplo: i32, n: i32, AP: device, A: device, lda: i32) work;
            0x107f post table cublasCtrmm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, C: device, ldc: i32) work;
            0x1080 post table cublasCtrmm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, C: device, ldc: i64) work;
            0x1081 post table cublasCtrmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x1082 post table cublasCtrmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x1083 post table cublasCtrsmBatched(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, batchCount: i32) work;
            0x1084 post table cublasCtrsmBatched_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, batchCount: i64) work;
            0x1085 post table cublasCtrsm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32) work;
            0x1086 post table cublasCtrsm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64) work;
            0x1087 post table cublasCtrsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x1088 post table cublasCtrsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x1089 post table cublasCtrttp(handle: handle, uplo: i32, n: i32, A: device, lda: i32, AP: device) work;
            0x108a wait table cublasDasum_v2(handle: handle, n: i32, x: device, incx: i32, result: result[8]) work;
            0x108b wait table cublasDasum_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x108c post table cublasDaxpy_v2(handle: handle, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32) work;
            0x108d post table cublasDaxpy_v2_64(handle: handle, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64) work;
            0x108e post table cublasDcopy_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x108f post table cublasDcopy_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x1090 post table cublasDdgmm(handle: handle, mode: i32, m: i32, n: i32, A: device, lda: i32, x: device, incx: i32, C: device, ldc: i32) work;
            0x1091 post table cublasDdgmm_64(handle: handle, mode: i32, m: i64, n: i64, A: device, lda: i64, x: device, incx: i64, C: device, ldc: i64) work;
            0x1092 wait table cublasDdot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, result: result[8]) work;
            0x1093 wait table cublasDdot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, result: result[8]) work;
            0x1094 post table cublasDgbmv_v2(handle: handle, trans: i32, m: i32, n: i32, kl: i32, ku: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x1095 post table cublasDgbmv_v2_64(handle: handle, trans: i32, m: i64, n: i64, kl: i64, ku: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x1096 post table cublasDgeam(handle: handle, transa: i32, transb: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, beta: scalar[8], B: device, ldb: i32, C: device, ldc: i32) work;
            0x1097 post table cublasDgeam_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, beta: scalar[8], B: device, ldb: i64, C: device, ldc: i64) work;
            0x1098 wait table cublasDgelsBatched(handle: handle, trans: i32, m: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, Carray: device, ldc: i32, info: out[4], devInfoArray: device, batchSize: i32) work;
            0x1099 post table cublasDgemmBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], Aarray: device, lda: i32, Barray: device, ldb: i32, beta: scalar[8], Carray: device, ldc: i32, batchCount: i32) work;
            0x109a post table cublasDgemmBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], Aarray: device, lda: i64, Barray: device, ldb: i64, beta: scalar[8], Carray: device, ldc: i64, batchCount: i64) work;
            0x109b post table cublasDgemmGroupedBatched(handle: handle, transa_array: array[4, group_count], transb_array: array[4, group_count], m_array: array[4, group_count], n_array: array[4, group_count], k_array: array[4, group_count], alpha_array: scalars[8, group_count], Aarray: device, lda_array: array[4, group_count], Barray: device, ldb_array: array[4, group_count], beta_array: scalars[8, group_count], Carray: device, ldc_array: array[4, group_count], group_count: i32, group_size: array[4, group_count]) work;
            0x109c post table cublasDgemmGroupedBatched_64(handle: handle, transa_array: array[4, group_count], transb_array: array[4, group_count], m_array: array[8, group_count], n_array: array[8, group_count], k_array: array[8, group_count], alpha_array: scalars[8, group_count], Aarray: device, lda_array: array[8, group_count], Barray: device, ldb_array: array[8, group_count], beta_array: scalars[8, group_count], Carray: device, ldc_array: array[8, group_count], group_count: i64, group_size: array[8, group_count]) work;
            0x109d post table cublasDgemmStridedBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, strideA: i64, B: device, ldb: i32, strideB: i64, beta: scalar[8], C: device, ldc: i32, strideC: i64, batchCount: i32) work;
            0x109e post table cublasDgemmStridedBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, strideA: i64, B: device, ldb: i64, strideB: i64, beta: scalar[8], C: device, ldc: i64, strideC: i64, batchCount: i64) work;
            0x109f post table cublasDgemm_v2(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x10a0 post table cublasDgemm_v2_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x10a1 post table cublasDgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[8], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[8], yarray: device, incy: i32, batchCount: i32) work;
            0x10a2 post table cublasDgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[8], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[8], yarray: device, incy: i64, batchCount: i64) work;
            0x10a3 post table cublasDgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[8], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x10a4 post table cublasDgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[8], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x10a5 post table cublasDgemv_v2(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x10a6 post table cublasDgemv_v2_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x10a7 wait table cublasDgeqrfBatched(handle: handle, m: i32, n: i32, Aarray: device, lda: i32, TauArray: device, info: out[4], batchSize: i32) work;
            0x10a8 post table cublasDger_v2(handle: handle, m: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x10a9 post table cublasDger_v2_64(handle: handle, m: i64, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x10aa post table cublasDgetrfBatched(handle: handle, n: i32, A: device, lda: i32, P: device, info: device, batchSize: i32) work;
            0x10ab post table cublasDgetriBatched(handle: handle, n: i32, A: device, lda: i32, P: device, C: device, ldc: i32, info: device, batchSize: i32) work;
            0x10ac wait table cublasDgetrsBatched(handle: handle, trans: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, devIpiv: device, Barray: device, ldb: i32, info: out[4], batchSize: i32) work;
            0x10ad post table cublasDmatinvBatched(handle: handle, n: i32, A: device, lda: i32, Ainv: device, lda_inv: i32, info: device, batchSize: i32) work;
            0x10ae wait table cublasDnrm2_v2(handle: handle, n: i32, x: device, incx: i32, result: result[8]) work;
            0x10af wait table cublasDnrm2_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x10b0 wait table cublasDotEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32, result: result[resultType], resultType: i32, executionType: i32) work;
            0x10b1 wait table cublasDotEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64, result: result[resultType], resultType: i32, executionType: i32) work;
            0x10b2 wait table cublasDotcEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32, result: result[resultType], resultType: i32, executionType: i32) work;
            0x10b3 wait table cublasDotcEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64, result: result[resultType], resultType: i32, executionType: i32) work;
            0x10b4 post table cublasDrot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, c: scalar[8], s: scalar[8]) work;
            0x10b5 post table cublasDrot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, c: scalar[8], s: scalar[8]) work;
            0x10b6 wait table cublasDrotg_v2(handle: handle, a: in_out[8], b: in_out[8], c: in_out[8], s: in_out[8]) work;
            0x10b7 post table cublasDrotm_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, param: scalar[8 * 5]) work;
            0x10b8 post table cublasDrotm_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, param: scalar[8 * 5]) work;
            0x10b9 wait table cublasDrotmg_v2(handle: handle, d1: in_out[8], d2: in_out[8], x1: in_out[8], y1: in_out[8], param: in_out[8 * 5]) work;
            0x10ba post table cublasDsbmv_v2(handle: handle, uplo: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x10bb post table cublasDsbmv_v2_64(handle: handle, uplo: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x10bc post table cublasDscal_v2(handle: handle, n: i32, alpha: scalar[8], x: device, incx: i32) work;
            0x10bd post table cublasDscal_v2_64(handle: handle, n: i64, alpha: scalar[8], x: device, incx: i64) work;
            0x10be post table cublasDspmv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], AP: device, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x10bf post table cublasDspmv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], AP: device, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x10c0 post table cublasDspr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, AP: device) work;
            0x10c1 post table cublasDspr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, AP: device) work;
            0x10c2 post table cublasDspr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, AP: device) work;
            0x10c3 post table cublasDspr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, AP: device) work;
            0x10c4 post table cublasDswap_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x10c5 post table cublasDswap_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x10c6 post table cublasDsymm_v2(handle: handle, side: i32, uplo: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x10c7 post table cublasDsymm_v2_64(handle: handle, side: i32, uplo: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x10c8 post table cublasDsymv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], A: device, lda: i32, x: device, incx: i32, beta: scalar[8], y: device, incy: i32) work;
            0x10c9 post table cublasDsymv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], A: device, lda: i64, x: device, incx: i64, beta: scalar[8], y: device, incy: i64) work;
            0x10ca post table cublasDsyr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x10cb post table cublasDsyr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x10cc post table cublasDsyr2k_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x10cd post table cublasDsyr2k_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x10ce post table cublasDsyr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, A: device, lda: i32) work;
            0x10cf post table cublasDsyr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, A: device, lda: i64) work;
            0x10d0 post table cublasDsyrk_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x10d1 post table cublasDsyrk_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x10d2 post table cublasDsyrkx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x10d3 post table cublasDsyrkx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x10d4 post table cublasDtbmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x10d5 post table cublasDtbmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x10d6 post table cublasDtbsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x10d7 post table cublasDtbsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x10d8 post table cublasDtpmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x10d9 post table cublasDtpmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x10da post table cublasDtpsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x10db post table cublasDtpsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x10dc post table cublasDtpttr(handle: handle, uplo: i32, n: i32, AP: device, A: device, lda: i32) work;
            0x10dd post table cublasDtrmm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, C: device, ldc: i32) work;
            0x10de post table cublasDtrmm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, C: device, ldc: i64) work;
            0x10df post table cublasDtrmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x10e0 post table cublasDtrmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x10e1 post table cublasDtrsmBatched(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32, batchCount: i32) work;
            0x10e2 post table cublasDtrsmBatched_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64, batchCount: i64) work;
            0x10e3 post table cublasDtrsm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, B: device, ldb: i32) work;
            0x10e4 post table cublasDtrsm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[8], A: device, lda: i64, B: device, ldb: i64) work;
            0x10e5 post table cublasDtrsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x10e6 post table cublasDtrsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x10e7 post table cublasDtrttp(handle: handle, uplo: i32, n: i32, A: device, lda: i32, AP: device) work;
            0x10e8 wait table cublasDzasum_v2(handle: handle, n: i32, x: device, incx: i32, result: result[8]) work;
            0x10e9 wait table cublasDzasum_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x10ea wait table cublasDznrm2_v2(handle: handle, n: i32, x: device, incx: i32, result: result[8]) work;
            0x10eb wait table cublasDznrm2_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x10ec post table cublasGemmBatchedEx(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[computeType], Aarray: device, Atype: i32, lda: i32, Barray: device, Btype: i32, ldb: i32, beta: scalar[computeType], Carray: device, Ctype: i32, ldc: i32, batchCount: i32, computeType: i32, algo: i32) work;
            0x10ed post table cublasGemmBatchedEx_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[computeType], Aarray: device, Atype: i32, lda: i64, Barray: device, Btype: i32, ldb: i64, beta: scalar[computeType], Carray: device, Ctype: i32, ldc: i64, batchCount: i64, computeType: i32, algo: i32) work;
            0x10ee post table cublasGemmEx(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[computeType], A: device, Atype: i32, lda: i32, B: device, Btype: i32, ldb: i32, beta: scalar[computeType], C: device, Ctype: i32, ldc: i32, computeType: i32, algo: i32) work;
            0x10ef post table cublasGemmEx_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[computeType], A: device, Atype: i32, lda: i64, B: device, Btype: i32, ldb: i64, beta: scalar[computeType], C: device, Ctype: i32, ldc: i64, computeType: i32, algo: i32) work;
            0x10f0 post table cublasGemmGroupedBatchedEx(handle: handle, transa_array: array[4, group_count], transb_array: array[4, group_count], m_array: array[4, group_count], n_array: array[4, group_count], k_array: array[4, group_count], alpha_array: scalars[computeType, group_count], Aarray: device, Atype: i32, lda_array: array[4, group_count], Barray: device, Btype: i32, ldb_array: array[4, group_count], beta_array: scalars[computeType, group_count], Carray: device, Ctype: i32, ldc_array: array[4, group_count], group_count: i32, group_size: array[4, group_count], computeType: i32) work;
            0x10f1 post table cublasGemmGroupedBatchedEx_64(handle: handle, transa_array: array[4, group_count], transb_array: array[4, group_count], m_array: array[8, group_count], n_array: array[8, group_count], k_array: array[8, group_count], alpha_array: scalars[computeType, group_count], Aarray: device, Atype: i32, lda_array: array[8, group_count], Barray: device, Btype: i32, ldb_array: array[8, group_count], beta_array: scalars[computeType, group_count], Carray: device, Ctype: i32, ldc_array: array[8, group_count], group_count: i64, group_size: array[8, group_count], computeType: i32) work;
            0x10f2 post table cublasGemmStridedBatchedEx(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[computeType], A: device, Atype: i32, lda: i32, strideA: i64, B: device, Btype: i32, ldb: i32, strideB: i64, beta: scalar[computeType], C: device, Ctype: i32, ldc: i32, strideC: i64, batchCount: i32, computeType: i32, algo: i32) work;
            0x10f3 post table cublasGemmStridedBatchedEx_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[computeType], A: device, Atype: i32, lda: i64, strideA: i64, B: device, Btype: i32, ldb: i64, strideB: i64, beta: scalar[computeType], C: device, Ctype: i32, ldc: i64, strideC: i64, batchCount: i64, computeType: i32, algo: i32) work;
            0x10f4 post table cublasHSHgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[4], yarray: device, incy: i32, batchCount: i32) work;
            0x10f5 post table cublasHSHgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[4], yarray: device, incy: i64, batchCount: i64) work;
            0x10f6 post table cublasHSHgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[4], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x10f7 post table cublasHSHgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[4], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x10f8 post table cublasHSSgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[4], yarray: device, incy: i32, batchCount: i32) work;
            0x10f9 post table cublasHSSgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[4], yarray: device, incy: i64, batchCount: i64) work;
            0x10fa post table cublasHSSgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[4], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x10fb post table cublasHSSgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[4], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x10fc post table cublasHgemm(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[2], A: device, lda: i32, B: device, ldb: i32, beta: scalar[2], C: device, ldc: i32) work;
            0x10fd post table cublasHgemmBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[2], Aarray: device, lda: i32, Barray: device, ldb: i32, beta: scalar[2], Carray: device, ldc: i32, batchCount: i32) work;
            0x10fe post table cublasHgemmBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[2], Aarray: device, lda: i64, Barray: device, ldb: i64, beta: scalar[2], Carray: device, ldc: i64, batchCount: i64) work;
            0x10ff post table cublasHgemmStridedBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[2], A: device, lda: i32, strideA: i64, B: device, ldb: i32, strideB: i64, beta: scalar[2], C: device, ldc: i32, strideC: i64, batchCount: i32) work;
            0x1100 post table cublasHgemmStridedBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[2], A: device, lda: i64, strideA: i64, B: device, ldb: i64, strideB: i64, beta: scalar[2], C: device, ldc: i64, strideC: i64, batchCount: i64) work;
            0x1101 post table cublasHgemm_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[2], A: device, lda: i64, B: device, ldb: i64, beta: scalar[2], C: device, ldc: i64) work;
            0x1102 wait table cublasIamaxEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, result: result[4]) work;
            0x1103 wait table cublasIamaxEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, result: result[8]) work;
            0x1104 wait table cublasIaminEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, result: result[4]) work;
            0x1105 wait table cublasIaminEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, result: result[8]) work;
            0x1106 wait table cublasIcamax_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1107 wait table cublasIcamax_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x1108 wait table cublasIcamin_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1109 wait table cublasIcamin_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x110a wait table cublasIdamax_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x110b wait table cublasIdamax_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x110c wait table cublasIdamin_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x110d wait table cublasIdamin_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x110e wait table cublasIsamax_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x110f wait table cublasIsamax_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x1110 wait table cublasIsamin_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1111 wait table cublasIsamin_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x1112 wait table cublasIzamax_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1113 wait table cublasIzamax_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x1114 wait table cublasIzamin_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1115 wait table cublasIzamin_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[8]) work;
            0x1116 wait table cublasNrm2Ex(handle: handle, n: i32, x: device, xType: i32, incx: i32, result: result[resultType], resultType: i32, executionType: i32) work;
            0x1117 wait table cublasNrm2Ex_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, result: result[resultType], resultType: i32, executionType: i32) work;
            0x1118 post table cublasRotEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32, c: scalar[csType], s: scalar[csType], csType: i32, executiontype: i32) work;
            0x1119 post table cublasRotEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64, c: scalar[csType], s: scalar[csType], csType: i32, executiontype: i32) work;
            0x111a wait table cublasRotgEx(handle: handle, a: in_out[abType], b: in_out[abType], abType: i32, c: in_out[csType], s: in_out[csType], csType: i32, executiontype: i32) work;
            0x111b post table cublasRotmEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32, param: scalar[paramType * 5], paramType: i32, executiontype: i32) work;
            0x111c post table cublasRotmEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64, param: scalar[paramType * 5], paramType: i32, executiontype: i32) work;
            0x111d wait table cublasRotmgEx(handle: handle, d1: in_out[d1Type], d1Type: i32, d2: in_out[d2Type], d2Type: i32, x1: in_out[x1Type], x1Type: i32, y1: in_out[y1Type], y1Type: i32, param: in_out[paramType * 5], paramType: i32, executiontype: i32) work;
            0x111e wait table cublasSasum_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x111f wait table cublasSasum_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[4]) work;
            0x1120 post table cublasSaxpy_v2(handle: handle, n: i32, alpha: scalar[4], x: device, incx: i32, y: device, incy: i32) work;
            0x1121 post table cublasSaxpy_v2_64(handle: handle, n: i64, alpha: scalar[4], x: device, incx: i64, y: device, incy: i64) work;
            0x1122 post table cublasScalEx(handle: handle, n: i32, alpha: scalar[alphaType], alphaType: i32, x: device, xType: i32, incx: i32, executionType: i32) work;
            0x1123 post table cublasScalEx_64(handle: handle, n: i64, alpha: scalar[alphaType], alphaType: i32, x: device, xType: i32, incx: i64, executionType: i32) work;
            0x1124 wait table cublasScasum_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1125 wait table cublasScasum_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[4]) work;
            0x1126 wait table cublasScnrm2_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x1127 wait table cublasScnrm2_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[4]) work;
            0x1128 post table cublasScopy_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x1129 post table cublasScopy_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x112a post table cublasSdgmm(handle: handle, mode: i32, m: i32, n: i32, A: device, lda: i32, x: device, incx: i32, C: device, ldc: i32) work;
            0x112b post table cublasSdgmm_64(handle: handle, mode: i32, m: i64, n: i64, A: device, lda: i64, x: device, incx: i64, C: device, ldc: i64) work;
            0x112c wait table cublasSdot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, result: result[4]) work;
            0x112d wait table cublasSdot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, result: result[4]) work;
            0x112e post table cublasSgbmv_v2(handle: handle, trans: i32, m: i32, n: i32, kl: i32, ku: i32, alpha: scalar[4], A: device, lda: i32, x: device, incx: i32, beta: scalar[4], y: device, incy: i32) work;
            0x112f post table cublasSgbmv_v2_64(handle: handle, trans: i32, m: i64, n: i64, kl: i64, ku: i64, alpha: scalar[4], A: device, lda: i64, x: device, incx: i64, beta: scalar[4], y: device, incy: i64) work;
            0x1130 post table cublasSgeam(handle: handle, transa: i32, transb: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, beta: scalar[4], B: device, ldb: i32, C: device, ldc: i32) work;
            0x1131 post table cublasSgeam_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, beta: scalar[4], B: device, ldb: i64, C: device, ldc: i64) work;
            0x1132 wait table cublasSgelsBatched(handle: handle, trans: i32, m: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, Carray: device, ldc: i32, info: out[4], devInfoArray: device, batchSize: i32) work;
            0x1133 post table cublasSgemmBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[4], Aarray: device, lda: i32, Barray: device, ldb: i32, beta: scalar[4], Carray: device, ldc: i32, batchCount: i32) work;
            0x1134 post table cublasSgemmBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[4], Aarray: device, lda: i64, Barray: device, ldb: i64, beta: scalar[4], Carray: device, ldc: i64, batchCount: i64) work;
            0x1135 post table cublasSgemmEx(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[4], A: device, Atype: i32, lda: i32, B: device, Btype: i32, ldb: i32, beta: scalar[4], C: device, Ctype: i32, ldc: i32) work;
            0x1136 post table cublasSgemmEx_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[4], A: device, Atype: i32, lda: i64, B: device, Btype: i32, ldb: i64, beta: scalar[4], C: device, Ctype: i32, ldc: i64) work;
            0x1137 post table cublasSgemmGroupedBatched(handle: handle, transa_array: array[4, group_count], transb_array: array[4, group_count], m_array: array[4, group_count], n_array: array[4, group_count], k_array: array[4, group_count], alpha_array: scalars[4, group_count], Aarray: device, lda_array: array[4, group_count], Barray: device, ldb_array: array[4, group_count], beta_array: scalars[4, group_count], Carray: device, ldc_array: array[4, group_count], group_count: i32, group_size: array[4, group_count]) work;
            0x1138 post table cublasSgemmGroupedBatched_64(handle: handle, transa_array: array[4, group_count], transb_array: array[4, group_count], m_array: array[8, group_count], n_array: array[8, group_count], k_array: array[8, group_count], alpha_array: scalars[4, group_count], Aarray: device, lda_array: array[8, group_count], Barray: device, ldb_array: array[8, group_count], beta_array: scalars[4, group_count], Carray: device, ldc_array: array[8, group_count], group_count: i64, group_size: array[8, group_count]) work;
            0x1139 post table cublasSgemmStridedBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, strideA: i64, B: device, ldb: i32, strideB: i64, beta: scalar[4], C: device, ldc: i32, strideC: i64, batchCount: i32) work;
            0x113a post table cublasSgemmStridedBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, strideA: i64, B: device, ldb: i64, strideB: i64, beta: scalar[4], C: device, ldc: i64, strideC: i64, batchCount: i64) work;
            0x113b post table cublasSgemm_v2(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x113c post table cublasSgemm_v2_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x113d post table cublasSgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[4], yarray: device, incy: i32, batchCount: i32) work;
            0x113e post table cublasSgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[4], yarray: device, incy: i64, batchCount: i64) work;
            0x113f post table cublasSgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[4], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x1140 post table cublasSgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[4], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x1141 post table cublasSgemv_v2(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, x: device, incx: i32, beta: scalar[4], y: device, incy: i32) work;
            0x1142 post table cublasSgemv_v2_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, x: device, incx: i64, beta: scalar[4], y: device, incy: i64) work;
            0x1143 wait table cublasSgeqrfBatched(handle: handle, m: i32, n: i32, Aarray: device, lda: i32, TauArray: device, info: out[4], batchSize: i32) work;
            0x1144 post table cublasSger_v2(handle: handle, m: i32, n: i32, alpha: scalar[4], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x1145 post table cublasSger_v2_64(handle: handle, m: i64, n: i64, alpha: scalar[4], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x1146 post table cublasSgetrfBatched(handle: handle, n: i32, A: device, lda: i32, P: device, info: device, batchSize: i32) work;
            0x1147 post table cublasSgetriBatched(handle: handle, n: i32, A: device, lda: i32, P: device, C: device, ldc: i32, info: device, batchSize: i32) work;
            0x1148 wait table cublasSgetrsBatched(handle: handle, trans: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, devIpiv: device, Barray: device, ldb: i32, info: out[4], batchSize: i32) work;
            0x1149 post table cublasSmatinvBatched(handle: handle, n: i32, A: device, lda: i32, Ainv: device, lda_inv: i32, info: device, batchSize: i32) work;
            0x114a wait table cublasSnrm2_v2(handle: handle, n: i32, x: device, incx: i32, result: result[4]) work;
            0x114b wait table cublasSnrm2_v2_64(handle: handle, n: i64, x: device, incx: i64, result: result[4]) work;
            0x114c post table cublasSrot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, c: scalar[4], s: scalar[4]) work;
            0x114d post table cublasSrot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, c: scalar[4], s: scalar[4]) work;
            0x114e wait table cublasSrotg_v2(handle: handle, a: in_out[4], b: in_out[4], c: in_out[4], s: in_out[4]) work;
            0x114f post table cublasSrotm_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, param: scalar[4 * 5]) work;
            0x1150 post table cublasSrotm_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, param: scalar[4 * 5]) work;
            0x1151 wait table cublasSrotmg_v2(handle: handle, d1: in_out[4], d2: in_out[4], x1: in_out[4], y1: in_out[4], param: in_out[4 * 5]) work;
            0x1152 post table cublasSsbmv_v2(handle: handle, uplo: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, x: device, incx: i32, beta: scalar[4], y: device, incy: i32) work;
            0x1153 post table cublasSsbmv_v2_64(handle: handle, uplo: i32, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, x: device, incx: i64, beta: scalar[4], y: device, incy: i64) work;
            0x1154 post table cublasSscal_v2(handle: handle, n: i32, alpha: scalar[4], x: device, incx: i32) work;
            0x1155 post table cublasSscal_v2_64(handle: handle, n: i64, alpha: scalar[4], x: device, incx: i64) work;
            0x1156 post table cublasSspmv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], AP: device, x: device, incx: i32, beta: scalar[4], y: device, incy: i32) work;
            0x1157 post table cublasSspmv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], AP: device, x: device, incx: i64, beta: scalar[4], y: device, incy: i64) work;
            0x1158 post table cublasSspr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], x: device, incx: i32, y: device, incy: i32, AP: device) work;
            0x1159 post table cublasSspr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], x: device, incx: i64, y: device, incy: i64, AP: device) work;
            0x115a post table cublasSspr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], x: device, incx: i32, AP: device) work;
            0x115b post table cublasSspr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], x: device, incx: i64, AP: device) work;
            0x115c post table cublasSswap_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x115d post table cublasSswap_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x115e post table cublasSsymm_v2(handle: handle, side: i32, uplo: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x115f post table cublasSsymm_v2_64(handle: handle, side: i32, uplo: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x1160 post table cublasSsymv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], A: device, lda: i32, x: device, incx: i32, beta: scalar[4], y: device, incy: i32) work;
            0x1161 post table cublasSsymv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], A: device, lda: i64, x: device, incx: i64, beta: scalar[4], y: device, incy: i64) work;
            0x1162 post table cublasSsyr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x1163 post table cublasSsyr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x1164 post table cublasSsyr2k_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x1165 post table cublasSsyr2k_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x1166 post table cublasSsyr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[4], x: device, incx: i32, A: device, lda: i32) work;
            0x1167 post table cublasSsyr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[4], x: device, incx: i64, A: device, lda: i64) work;
            0x1168 post table cublasSsyrk_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x1169 post table cublasSsyrk_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x116a post table cublasSsyrkx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x116b post table cublasSsyrkx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64, beta: scalar[4], C: device, ldc: i64) work;
            0x116c post table cublasStbmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x116d post table cublasStbmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x116e post table cublasStbsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x116f post table cublasStbsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x1170 post table cublasStpmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x1171 post table cublasStpmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x1172 post table cublasStpsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x1173 post table cublasStpsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x1174 post table cublasStpttr(handle: handle, uplo: i32, n: i32, AP: device, A: device, lda: i32) work;
            0x1175 post table cublasStrmm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32, C: device, ldc: i32) work;
            0x1176 post table cublasStrmm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64, C: device, ldc: i64) work;
            0x1177 post table cublasStrmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x1178 post table cublasStrmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x1179 post table cublasStrsmBatched(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32, batchCount: i32) work;
            0x117a post table cublasStrsmBatched_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64, batchCount: i64) work;
            0x117b post table cublasStrsm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, B: device, ldb: i32) work;
            0x117c post table cublasStrsm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, B: device, ldb: i64) work;
            0x117d post table cublasStrsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x117e post table cublasStrsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x117f post table cublasStrttp(handle: handle, uplo: i32, n: i32, A: device, lda: i32, AP: device) work;
            0x1180 post table cublasSwapEx(handle: handle, n: i32, x: device, xType: i32, incx: i32, y: device, yType: i32, incy: i32) work;
            0x1181 post table cublasSwapEx_64(handle: handle, n: i64, x: device, xType: i32, incx: i64, y: device, yType: i32, incy: i64) work;
            0x1182 post table cublasTSSgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[4], yarray: device, incy: i32, batchCount: i32) work;
            0x1183 post table cublasTSSgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[4], yarray: device, incy: i64, batchCount: i64) work;
            0x1184 post table cublasTSSgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[4], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x1185 post table cublasTSSgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[4], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x1186 post table cublasTSTgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[4], yarray: device, incy: i32, batchCount: i32) work;
            0x1187 post table cublasTSTgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[4], yarray: device, incy: i64, batchCount: i64) work;
            0x1188 post table cublasTSTgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[4], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x1189 post table cublasTSTgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[4], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[4], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x118a post table cublasUint8gemmBias(handle: handle, transa: i32, transb: i32, transc: i32, m: i32, n: i32, k: i32, A: device, A_bias: i32, lda: i32, B: device, B_bias: i32, ldb: i32, C: device, C_bias: i32, ldc: i32, C_mult: i32, C_shift: i32) work;
            0x118b post table cublasZaxpy_v2(handle: handle, n: i32, alpha: scalar[16], x: device, incx: i32, y: device, incy: i32) work;
            0x118c post table cublasZaxpy_v2_64(handle: handle, n: i64, alpha: scalar[16], x: device, incx: i64, y: device, incy: i64) work;
            0x118d post table cublasZcopy_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x118e post table cublasZcopy_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x118f post table cublasZdgmm(handle: handle, mode: i32, m: i32, n: i32, A: device, lda: i32, x: device, incx: i32, C: device, ldc: i32) work;
            0x1190 post table cublasZdgmm_64(handle: handle, mode: i32, m: i64, n: i64, A: device, lda: i64, x: device, incx: i64, C: device, ldc: i64) work;
            0x1191 wait table cublasZdotc_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, result: result[16]) work;
            0x1192 wait table cublasZdotc_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, result: result[16]) work;
            0x1193 wait table cublasZdotu_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, result: result[16]) work;
            0x1194 wait table cublasZdotu_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, result: result[16]) work;
            0x1195 post table cublasZdrot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, c: scalar[8], s: scalar[8]) work;
            0x1196 post table cublasZdrot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, c: scalar[8], s: scalar[8]) work;
            0x1197 post table cublasZdscal_v2(handle: handle, n: i32, alpha: scalar[8], x: device, incx: i32) work;
            0x1198 post table cublasZdscal_v2_64(handle: handle, n: i64, alpha: scalar[8], x: device, incx: i64) work;
            0x1199 post table cublasZgbmv_v2(handle: handle, trans: i32, m: i32, n: i32, kl: i32, ku: i32, alpha: scalar[16], A: device, lda: i32, x: device, incx: i32, beta: scalar[16], y: device, incy: i32) work;
            0x119a post table cublasZgbmv_v2_64(handle: handle, trans: i32, m: i64, n: i64, kl: i64, ku: i64, alpha: scalar[16], A: device, lda: i64, x: device, incx: i64, beta: scalar[16], y: device, incy: i64) work;
            0x119b post table cublasZgeam(handle: handle, transa: i32, transb: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, beta: scalar[16], B: device, ldb: i32, C: device, ldc: i32) work;
            0x119c post table cublasZgeam_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, beta: scalar[16], B: device, ldb: i64, C: device, ldc: i64) work;
            0x119d wait table cublasZgelsBatched(handle: handle, trans: i32, m: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, Carray: device, ldc: i32, info: out[4], devInfoArray: device, batchSize: i32) work;
            0x119e post table cublasZgemm3m(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x119f post table cublasZgemm3m_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11a0 post table cublasZgemmBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[16], Aarray: device, lda: i32, Barray: device, ldb: i32, beta: scalar[16], Carray: device, ldc: i32, batchCount: i32) work;
            0x11a1 post table cublasZgemmBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[16], Aarray: device, lda: i64, Barray: device, ldb: i64, beta: scalar[16], Carray: device, ldc: i64, batchCount: i64) work;
            0x11a2 post table cublasZgemmStridedBatched(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, strideA: i64, B: device, ldb: i32, strideB: i64, beta: scalar[16], C: device, ldc: i32, strideC: i64, batchCount: i32) work;
            0x11a3 post table cublasZgemmStridedBatched_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, strideA: i64, B: device, ldb: i64, strideB: i64, beta: scalar[16], C: device, ldc: i64, strideC: i64, batchCount: i64) work;
            0x11a4 post table cublasZgemm_v2(handle: handle, transa: i32, transb: i32, m: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x11a5 post table cublasZgemm_v2_64(handle: handle, transa: i32, transb: i32, m: i64, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11a6 post table cublasZgemvBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[16], Aarray: device, lda: i32, xarray: device, incx: i32, beta: scalar[16], yarray: device, incy: i32, batchCount: i32) work;
            0x11a7 post table cublasZgemvBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[16], Aarray: device, lda: i64, xarray: device, incx: i64, beta: scalar[16], yarray: device, incy: i64, batchCount: i64) work;
            0x11a8 post table cublasZgemvStridedBatched(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, strideA: i64, x: device, incx: i32, stridex: i64, beta: scalar[16], y: device, incy: i32, stridey: i64, batchCount: i32) work;
            0x11a9 post table cublasZgemvStridedBatched_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, strideA: i64, x: device, incx: i64, stridex: i64, beta: scalar[16], y: device, incy: i64, stridey: i64, batchCount: i64) work;
            0x11aa post table cublasZgemv_v2(handle: handle, trans: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, x: device, incx: i32, beta: scalar[16], y: device, incy: i32) work;
            0x11ab post table cublasZgemv_v2_64(handle: handle, trans: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, x: device, incx: i64, beta: scalar[16], y: device, incy: i64) work;
            0x11ac wait table cublasZgeqrfBatched(handle: handle, m: i32, n: i32, Aarray: device, lda: i32, TauArray: device, info: out[4], batchSize: i32) work;
            0x11ad post table cublasZgerc_v2(handle: handle, m: i32, n: i32, alpha: scalar[16], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x11ae post table cublasZgerc_v2_64(handle: handle, m: i64, n: i64, alpha: scalar[16], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x11af post table cublasZgeru_v2(handle: handle, m: i32, n: i32, alpha: scalar[16], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x11b0 post table cublasZgeru_v2_64(handle: handle, m: i64, n: i64, alpha: scalar[16], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x11b1 post table cublasZgetrfBatched(handle: handle, n: i32, A: device, lda: i32, P: device, info: device, batchSize: i32) work;
            0x11b2 post table cublasZgetriBatched(handle: handle, n: i32, A: device, lda: i32, P: device, C: device, ldc: i32, info: device, batchSize: i32) work;
            0x11b3 wait table cublasZgetrsBatched(handle: handle, trans: i32, n: i32, nrhs: i32, Aarray: device, lda: i32, devIpiv: device, Barray: device, ldb: i32, info: out[4], batchSize: i32) work;
            0x11b4 post table cublasZhbmv_v2(handle: handle, uplo: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, x: device, incx: i32, beta: scalar[16], y: device, incy: i32) work;
            0x11b5 post table cublasZhbmv_v2_64(handle: handle, uplo: i32, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, x: device, incx: i64, beta: scalar[16], y: device, incy: i64) work;
            0x11b6 post table cublasZhemm_v2(handle: handle, side: i32, uplo: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x11b7 post table cublasZhemm_v2_64(handle: handle, side: i32, uplo: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11b8 post table cublasZhemv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], A: device, lda: i32, x: device, incx: i32, beta: scalar[16], y: device, incy: i32) work;
            0x11b9 post table cublasZhemv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], A: device, lda: i64, x: device, incx: i64, beta: scalar[16], y: device, incy: i64) work;
            0x11ba post table cublasZher2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x11bb post table cublasZher2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x11bc post table cublasZher2k_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x11bd post table cublasZher2k_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x11be post table cublasZher_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, A: device, lda: i32) work;
            0x11bf post table cublasZher_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, A: device, lda: i64) work;
            0x11c0 post table cublasZherk_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[8], A: device, lda: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x11c1 post table cublasZherk_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[8], A: device, lda: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x11c2 post table cublasZherkx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x11c3 post table cublasZherkx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[8], C: device, ldc: i64) work;
            0x11c4 post table cublasZhpmv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], AP: device, x: device, incx: i32, beta: scalar[16], y: device, incy: i32) work;
            0x11c5 post table cublasZhpmv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], AP: device, x: device, incx: i64, beta: scalar[16], y: device, incy: i64) work;
            0x11c6 post table cublasZhpr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], x: device, incx: i32, y: device, incy: i32, AP: device) work;
            0x11c7 post table cublasZhpr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], x: device, incx: i64, y: device, incy: i64, AP: device) work;
            0x11c8 post table cublasZhpr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[8], x: device, incx: i32, AP: device) work;
            0x11c9 post table cublasZhpr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[8], x: device, incx: i64, AP: device) work;
            0x11ca post table cublasZmatinvBatched(handle: handle, n: i32, A: device, lda: i32, Ainv: device, lda_inv: i32, info: device, batchSize: i32) work;
            0x11cb post table cublasZrot_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32, c: scalar[8], s: scalar[16]) work;
            0x11cc post table cublasZrot_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64, c: scalar[8], s: scalar[16]) work;
            0x11cd wait table cublasZrotg_v2(handle: handle, a: in_out[16], b: in_out[16], c: in_out[8], s: in_out[16]) work;
            0x11ce post table cublasZscal_v2(handle: handle, n: i32, alpha: scalar[16], x: device, incx: i32) work;
            0x11cf post table cublasZscal_v2_64(handle: handle, n: i64, alpha: scalar[16], x: device, incx: i64) work;
            0x11d0 post table cublasZswap_v2(handle: handle, n: i32, x: device, incx: i32, y: device, incy: i32) work;
            0x11d1 post table cublasZswap_v2_64(handle: handle, n: i64, x: device, incx: i64, y: device, incy: i64) work;
            0x11d2 post table cublasZsymm_v2(handle: handle, side: i32, uplo: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x11d3 post table cublasZsymm_v2_64(handle: handle, side: i32, uplo: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11d4 post table cublasZsymv_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], A: device, lda: i32, x: device, incx: i32, beta: scalar[16], y: device, incy: i32) work;
            0x11d5 post table cublasZsymv_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], A: device, lda: i64, x: device, incx: i64, beta: scalar[16], y: device, incy: i64) work;
            0x11d6 post table cublasZsyr2_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], x: device, incx: i32, y: device, incy: i32, A: device, lda: i32) work;
            0x11d7 post table cublasZsyr2_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], x: device, incx: i64, y: device, incy: i64, A: device, lda: i64) work;
            0x11d8 post table cublasZsyr2k_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x11d9 post table cublasZsyr2k_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11da post table cublasZsyr_v2(handle: handle, uplo: i32, n: i32, alpha: scalar[16], x: device, incx: i32, A: device, lda: i32) work;
            0x11db post table cublasZsyr_v2_64(handle: handle, uplo: i32, n: i64, alpha: scalar[16], x: device, incx: i64, A: device, lda: i64) work;
            0x11dc post table cublasZsyrk_v2(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x11dd post table cublasZsyrk_v2_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11de post table cublasZsyrkx(handle: handle, uplo: i32, trans: i32, n: i32, k: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x11df post table cublasZsyrkx_64(handle: handle, uplo: i32, trans: i32, n: i64, k: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, beta: scalar[16], C: device, ldc: i64) work;
            0x11e0 post table cublasZtbmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x11e1 post table cublasZtbmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x11e2 post table cublasZtbsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, k: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x11e3 post table cublasZtbsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, k: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x11e4 post table cublasZtpmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x11e5 post table cublasZtpmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x11e6 post table cublasZtpsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, AP: device, x: device, incx: i32) work;
            0x11e7 post table cublasZtpsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, AP: device, x: device, incx: i64) work;
            0x11e8 post table cublasZtpttr(handle: handle, uplo: i32, n: i32, AP: device, A: device, lda: i32) work;
            0x11e9 post table cublasZtrmm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, C: device, ldc: i32) work;
            0x11ea post table cublasZtrmm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, C: device, ldc: i64) work;
            0x11eb post table cublasZtrmv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x11ec post table cublasZtrmv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x11ed post table cublasZtrsmBatched(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32, batchCount: i32) work;
            0x11ee post table cublasZtrsmBatched_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64, batchCount: i64) work;
            0x11ef post table cublasZtrsm_v2(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, B: device, ldb: i32) work;
            0x11f0 post table cublasZtrsm_v2_64(handle: handle, side: i32, uplo: i32, trans: i32, diag: i32, m: i64, n: i64, alpha: scalar[16], A: device, lda: i64, B: device, ldb: i64) work;
            0x11f1 post table cublasZtrsv_v2(handle: handle, uplo: i32, trans: i32, diag: i32, n: i32, A: device, lda: i32, x: device, incx: i32) work;
            0x11f2 post table cublasZtrsv_v2_64(handle: handle, uplo: i32, trans: i32, diag: i32, n: i64, A: device, lda: i64, x: device, incx: i64) work;
            0x11f3 post table cublasZtrttp(handle: handle, uplo: i32, n: i32, A: device, lda: i32, AP: device) work;
        }
    };
}
