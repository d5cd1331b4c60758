// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuSPARSE (cusparse.h).
//!
//! Rows with `guest` are answered in the guest from the process's state, or send only changes. Scalars and results are
//! at a host or a device address, by the handle's pointer mode; `[compute]` names the `cudaDataType` that gives their
//! size. Creating and setting a descriptor are posts: its id is the guest's.

use super::Statuses;

/// The functions' results (`cusparseStatus_t`).
pub mod status {
    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// There is no such handle, or the library is missing.
    pub const NOT_INITIALIZED: u32 = 1;
    /// Memory ran out.
    pub const ALLOC_FAILED: u32 = 2;
    /// An argument is wrong.
    pub const INVALID_VALUE: u32 = 3;
    /// The GPU failed, or an object that the handle needs was destroyed.
    pub const EXECUTION_FAILED: u32 = 6;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 7;
    /// The function does not exist here, or does not support this.
    pub const NOT_SUPPORTED: u32 = 10;
}

/// `cusparseStatus_t`.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::NOT_INITIALIZED,
    not_initialized: status::NOT_INITIALIZED,
    alloc_failed: status::ALLOC_FAILED,
    invalid_value: status::INVALID_VALUE,
    execution_failed: status::EXECUTION_FAILED,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::NOT_SUPPORTED,
    names: &[
        (0, c"CUSPARSE_STATUS_SUCCESS", c"success"),
        (
            1,
            c"CUSPARSE_STATUS_NOT_INITIALIZED",
            c"the library was not initialized",
        ),
        (
            2,
            c"CUSPARSE_STATUS_ALLOC_FAILED",
            c"the resource allocation failed",
        ),
        (
            3,
            c"CUSPARSE_STATUS_INVALID_VALUE",
            c"an argument has no valid value",
        ),
        (
            4,
            c"CUSPARSE_STATUS_ARCH_MISMATCH",
            c"the device lacks a feature",
        ),
        (
            5,
            c"CUSPARSE_STATUS_MAPPING_ERROR",
            c"an access to GPU memory failed",
        ),
        (
            6,
            c"CUSPARSE_STATUS_EXECUTION_FAILED",
            c"the GPU program failed",
        ),
        (
            7,
            c"CUSPARSE_STATUS_INTERNAL_ERROR",
            c"an internal operation failed",
        ),
        (
            8,
            c"CUSPARSE_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
            c"the type of the matrix is not supported",
        ),
        (9, c"CUSPARSE_STATUS_ZERO_PIVOT", c"a pivot is zero"),
        (
            10,
            c"CUSPARSE_STATUS_NOT_SUPPORTED",
            c"the operation or its type is not supported",
        ),
        (
            11,
            c"CUSPARSE_STATUS_INSUFFICIENT_RESOURCES",
            c"there are not enough resources",
        ),
    ],
    unknown: (c"CUSPARSE_STATUS_<unknown>", c"unknown status"),
};

/// Passes cuSPARSE's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cusparse {
    ($callback:ident) => {
        $callback! {
            0x2400 call guest cusparseCreate(handle: new[CusparseHandle]);
            0x2401 wait guest cusparseDestroy(handle: gone[CusparseHandle]);
            0x2402 post guest cusparseSetPointerMode(handle: handle[CusparseHandle], mode: i32);
            0x2403 post guest cusparseSetStream(handle: handle[CusparseHandle], streamId: stream);
            0x2404 post guest cusparseAxpby(handle: handle[CusparseHandle], alpha: scalar[16], vecX: object[SpVec], beta: scalar[16], vecY: object[DnVec]) work;
            0x2405 post guest cusparseCreateConstSpVec(spVecDescr: new[SpVec], size: i64, nnz: i64, indices: device, values: device, idxType: i32, idxBase: i32, valueType: i32);
            0x2406 post guest cusparseCreateMatDescr(descrA: new[CusparseMatDescr]);
            0x2407 post guest cusparseCreateSpVec(spVecDescr: new[SpVec], size: i64, nnz: i64, indices: device, values: device, idxType: i32, idxBase: i32, valueType: i32);
            0x2408 post guest cusparseDestroyMatDescr(descrA: gone[CusparseMatDescr]);
            0x2409 post guest cusparseDestroySpVec(spVecDescr: gone[SpVec]);
            0x240a post guest cusparseRot(handle: handle[CusparseHandle], c_coeff: scalar[16], s_coeff: scalar[16], vecX: object[SpVec], vecY: object[DnVec]) work;
            0x240b post guest cusparseSetMatDiagType(descrA: object[CusparseMatDescr], diagType: i32);
            0x240c post guest cusparseSetMatFillMode(descrA: object[CusparseMatDescr], fillMode: i32);
            0x240d post guest cusparseSetMatIndexBase(descrA: object[CusparseMatDescr], base: i32);
            0x240e post guest cusparseSetMatType(descrA: object[CusparseMatDescr], value_type: i32);
            0x240f call table cusparseBlockedEllGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], ellBlockSize: out[8], ellCols: out[8], ellColInd: out[8], ellValue: out[8], ellIdxType: out[4], idxBase: out[4], valueType: out[4]);
            0x2410 post table cusparseBsrSetStridedBatch(spMatDescr: object[SpMat], batchCount: i32, offsetsBatchStride: i64, columnsBatchStride: i64, ValuesBatchStride: i64);
            0x2411 post table cusparseCbsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x2412 post table cusparseCbsric02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pBuffer: device) work;
            0x2413 post table cusparseCbsric02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pInputBuffer: device) work;
            0x2414 call table cusparseCbsric02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], pBufferSizeInBytes: out[4]);
            0x2415 post table cusparseCbsrilu02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x2416 post table cusparseCbsrilu02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x2417 call table cusparseCbsrilu02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], pBufferSizeInBytes: out[4]);
            0x2418 post table cusparseCbsrmm(handle: handle[CusparseHandle], dirA: i32, transA: i32, transB: i32, mb: i32, n: i32, kb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockSize: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x2419 post table cusparseCbsrmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[8], y: device) work;
            0x241a post table cusparseCbsrsm2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], policy: i32, pBuffer: device) work;
            0x241b call table cusparseCbsrsm2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], pBufferSizeInBytes: out[4]);
            0x241c post table cusparseCbsrsm2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], B: device, ldb: i32, X: device, ldx: i32, policy: i32, pBuffer: device) work;
            0x241d post table cusparseCbsrsv2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], policy: i32, pBuffer: device) work;
            0x241e call table cusparseCbsrsv2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], pBufferSizeInBytes: out[4]);
            0x241f post table cusparseCbsrsv2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], f: device, x: device, policy: i32, pBuffer: device) work;
            0x2420 post table cusparseCbsrxmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, sizeOfMask: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedMaskPtrA: device, bsrSortedRowPtrA: device, bsrSortedEndPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[8], y: device) work;
            0x2421 post table cusparseCcsr2bsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device) work;
            0x2422 post table cusparseCcsr2csru(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x2423 post table cusparseCcsr2gebsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDim: i32, colBlockDim: i32, pBuffer: device) work;
            0x2424 call table cusparseCcsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]);
            0x2425 post table cusparseCcsrgeam2(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[8], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x2426 call table cusparseCcsrgeam2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[8], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x2427 post table cusparseCcsric02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x2428 post table cusparseCcsric02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x2429 call table cusparseCcsric02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], pBufferSizeInBytes: out[4]);
            0x242a post table cusparseCcsrilu02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x242b post table cusparseCcsrilu02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x242c call table cusparseCcsrilu02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], pBufferSizeInBytes: out[4]);
            0x242d post table cusparseCcsru2csr(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x242e call table cusparseCcsru2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBufferSizeInBytes: out[8]);
            0x242f post table cusparseCgebsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x2430 post table cusparseCgebsr2gebsc(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, bscVal: device, bscRowInd: device, bscColPtr: device, copyValues: i32, idxBase: i32, pBuffer: device) work;
            0x2431 call table cusparseCgebsr2gebsc_bufferSize(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]) pure;
            0x2432 post table cusparseCgebsr2gebsr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDimC: i32, colBlockDimC: i32, pBuffer: device) work;
            0x2433 call table cusparseCgebsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, rowBlockDimC: i32, colBlockDimC: i32, pBufferSizeInBytes: out[4]);
            0x2434 post table cusparseCgemvi(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, nnz: i32, xVal: device, xInd: device, beta: scalar[8], y: device, idxBase: i32, pBuffer: device) work;
            0x2435 call table cusparseCgemvi_bufferSize(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, nnz: i32, pBufferSize: out[4]) pure;
            0x2436 post table cusparseCgpsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBuffer: device) work;
            0x2437 call table cusparseCgpsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x2438 post table cusparseCgtsv2(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x2439 post table cusparseCgtsv2StridedBatch(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, pBuffer: device) work;
            0x243a call table cusparseCgtsv2StridedBatch_bufferSizeExt(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, bufferSizeInBytes: out[8]) pure;
            0x243b call table cusparseCgtsv2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x243c post table cusparseCgtsv2_nopivot(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x243d call table cusparseCgtsv2_nopivot_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x243e post table cusparseCgtsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBuffer: device) work;
            0x243f call table cusparseCgtsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x2440 wait table cusparseCnnz(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], A: device, lda: i32, nnzPerRowCol: device, nnzTotalDevHostPtr: result[4]) work;
            0x2441 call table cusparseConstBlockedEllGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], ellBlockSize: out[8], ellCols: out[8], ellColInd: out[8], ellValue: out[8], ellIdxType: out[4], idxBase: out[4], valueType: out[4]);
            0x2442 call table cusparseConstCooGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8], cooRowInd: out[8], cooColInd: out[8], cooValues: out[8], idxType: out[4], idxBase: out[4], valueType: out[4]);
            0x2443 call table cusparseConstCscGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8], cscColOffsets: out[8], cscRowInd: out[8], cscValues: out[8], cscColOffsetsType: out[4], cscRowIndType: out[4], idxBase: out[4], valueType: out[4]);
            0x2444 call table cusparseConstCsrGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8], csrRowOffsets: out[8], csrColInd: out[8], csrValues: out[8], csrRowOffsetsType: out[4], csrColIndType: out[4], idxBase: out[4], valueType: out[4]);
            0x2445 call table cusparseConstDnMatGet(dnMatDescr: object[DnMat], rows: out[8], cols: out[8], ld: out[8], values: out[8], value_type: out[4], order: out[4]);
            0x2446 call table cusparseConstDnMatGetValues(dnMatDescr: object[DnMat], values: out[8]);
            0x2447 call table cusparseConstDnVecGet(dnVecDescr: object[DnVec], size: out[8], values: out[8], valueType: out[4]);
            0x2448 call table cusparseConstDnVecGetValues(dnVecDescr: object[DnVec], values: out[8]);
            0x2449 call table cusparseConstSpMatGetValues(spMatDescr: object[SpMat], values: out[8]);
            0x244a call table cusparseConstSpVecGet(spVecDescr: object[SpVec], size: out[8], nnz: out[8], indices: out[8], values: out[8], idxType: out[4], idxBase: out[4], valueType: out[4]);
            0x244b call table cusparseConstSpVecGetValues(spVecDescr: object[SpVec], values: out[8]);
            0x244c call table cusparseCooGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8], cooRowInd: out[8], cooColInd: out[8], cooValues: out[8], idxType: out[4], idxBase: out[4], valueType: out[4]);
            0x244d post table cusparseCooSetPointers(spMatDescr: object[SpMat], cooRows: device, cooColumns: device, cooValues: device);
            0x244e post table cusparseCooSetStridedBatch(spMatDescr: object[SpMat], batchCount: i32, batchStride: i64);
            0x244f post table cusparseCreateBlockedEll(spMatDescr: new[SpMat], rows: i64, cols: i64, ellBlockSize: i64, ellCols: i64, ellColInd: device, ellValue: device, ellIdxType: i32, idxBase: i32, valueType: i32);
            0x2450 post table cusparseCreateBsr(spMatDescr: new[SpMat], brows: i64, bcols: i64, bnnz: i64, rowBlockSize: i64, colBlockSize: i64, bsrRowOffsets: device, bsrColInd: device, bsrValues: device, bsrRowOffsetsType: i32, bsrColIndType: i32, idxBase: i32, valueType: i32, order: i32);
            0x2451 post table cusparseCreateBsric02Info(info: new[Bsric02Info]);
            0x2452 post table cusparseCreateBsrilu02Info(info: new[Bsrilu02Info]);
            0x2453 post table cusparseCreateBsrsm2Info(info: new[Bsrsm2Info]);
            0x2454 post table cusparseCreateBsrsv2Info(info: new[Bsrsv2Info]);
            0x2455 post table cusparseCreateConstBlockedEll(spMatDescr: new[SpMat], rows: i64, cols: i64, ellBlockSize: i64, ellCols: i64, ellColInd: device, ellValue: device, ellIdxType: i32, idxBase: i32, valueType: i32);
            0x2456 post table cusparseCreateConstBsr(spMatDescr: new[SpMat], brows: i64, bcols: i64, bnnz: i64, rowBlockDim: i64, colBlockDim: i64, bsrRowOffsets: device, bsrColInd: device, bsrValues: device, bsrRowOffsetsType: i32, bsrColIndType: i32, idxBase: i32, valueType: i32, order: i32);
            0x2457 post table cusparseCreateConstCoo(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, cooRowInd: device, cooColInd: device, cooValues: device, cooIdxType: i32, idxBase: i32, valueType: i32);
            0x2458 post table cusparseCreateConstCsc(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, cscColOffsets: device, cscRowInd: device, cscValues: device, cscColOffsetsType: i32, cscRowIndType: i32, idxBase: i32, valueType: i32);
            0x2459 post table cusparseCreateConstCsr(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, csrRowOffsets: device, csrColInd: device, csrValues: device, csrRowOffsetsType: i32, csrColIndType: i32, idxBase: i32, valueType: i32);
            0x245a post table cusparseCreateConstDnMat(dnMatDescr: new[DnMat], rows: i64, cols: i64, ld: i64, values: device, valueType: i32, order: i32);
            0x245b post table cusparseCreateConstDnVec(dnVecDescr: new[DnVec], size: i64, values: device, valueType: i32);
            0x245c post table cusparseCreateConstSlicedEll(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, sellValuesSize: i64, sliceSize: i64, sellSliceOffsets: device, sellColInd: device, sellValues: device, sellSliceOffsetsType: i32, sellColIndType: i32, idxBase: i32, valueType: i32);
            0x245d post table cusparseCreateCoo(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, cooRowInd: device, cooColInd: device, cooValues: device, cooIdxType: i32, idxBase: i32, valueType: i32);
            0x245e post table cusparseCreateCsc(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, cscColOffsets: device, cscRowInd: device, cscValues: device, cscColOffsetsType: i32, cscRowIndType: i32, idxBase: i32, valueType: i32);
            0x245f post table cusparseCreateCsr(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, csrRowOffsets: device, csrColInd: device, csrValues: device, csrRowOffsetsType: i32, csrColIndType: i32, idxBase: i32, valueType: i32);
            0x2460 post table cusparseCreateCsric02Info(info: new[Csric02Info]);
            0x2461 post table cusparseCreateCsrilu02Info(info: new[Csrilu02Info]);
            0x2462 post table cusparseCreateCsru2csrInfo(info: new[Csru2csrInfo]);
            0x2463 post table cusparseCreateDnMat(dnMatDescr: new[DnMat], rows: i64, cols: i64, ld: i64, values: device, valueType: i32, order: i32);
            0x2464 post table cusparseCreateDnVec(dnVecDescr: new[DnVec], size: i64, values: device, valueType: i32);
            0x2465 post table cusparseCreateIdentityPermutation(handle: handle[CusparseHandle], n: i32, p: device) work;
            0x2466 post table cusparseCreatePruneInfo(info: new[PruneInfo]);
            0x2467 post table cusparseCreateSlicedEll(spMatDescr: new[SpMat], rows: i64, cols: i64, nnz: i64, sellValuesSize: i64, sliceSize: i64, sellSliceOffsets: device, sellColInd: device, sellValues: device, sellSliceOffsetsType: i32, sellColIndType: i32, idxBase: i32, valueType: i32);
            0x2468 call table cusparseCscGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8], cscColOffsets: out[8], cscRowInd: out[8], cscValues: out[8], cscColOffsetsType: out[4], cscRowIndType: out[4], idxBase: out[4], valueType: out[4]);
            0x2469 post table cusparseCscSetPointers(spMatDescr: object[SpMat], cscColOffsets: device, cscRowInd: device, cscValues: device);
            0x246a post table cusparseCsr2cscEx2(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrVal: device, csrRowPtr: device, csrColInd: device, cscVal: device, cscColPtr: device, cscRowInd: device, valType: i32, copyValues: i32, idxBase: i32, alg: i32, buffer: device) work;
            0x246b call table cusparseCsr2cscEx2_bufferSize(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrVal: device, csrRowPtr: device, csrColInd: device, cscVal: device, cscColPtr: device, cscRowInd: device, valType: i32, copyValues: i32, idxBase: i32, alg: i32, bufferSize: out[8]) pure;
            0x246c call table cusparseCsrGet(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8], csrRowOffsets: out[8], csrColInd: out[8], csrValues: out[8], csrRowOffsetsType: out[4], csrColIndType: out[4], idxBase: out[4], valueType: out[4]);
            0x246d post table cusparseCsrSetPointers(spMatDescr: object[SpMat], csrRowOffsets: device, csrColInd: device, csrValues: device);
            0x246e post table cusparseCsrSetStridedBatch(spMatDescr: object[SpMat], batchCount: i32, offsetsBatchStride: i64, columnsValuesBatchStride: i64);
            0x246f post table cusparseDbsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x2470 post table cusparseDbsric02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pBuffer: device) work;
            0x2471 post table cusparseDbsric02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pInputBuffer: device) work;
            0x2472 call table cusparseDbsric02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], pBufferSizeInBytes: out[4]);
            0x2473 post table cusparseDbsrilu02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x2474 post table cusparseDbsrilu02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x2475 call table cusparseDbsrilu02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], pBufferSizeInBytes: out[4]);
            0x2476 post table cusparseDbsrmm(handle: handle[CusparseHandle], dirA: i32, transA: i32, transB: i32, mb: i32, n: i32, kb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockSize: i32, B: device, ldb: i32, beta: scalar[8], C: device, ldc: i32) work;
            0x2477 post table cusparseDbsrmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[8], y: device) work;
            0x2478 post table cusparseDbsrsm2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], policy: i32, pBuffer: device) work;
            0x2479 call table cusparseDbsrsm2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], pBufferSizeInBytes: out[4]);
            0x247a post table cusparseDbsrsm2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], B: device, ldb: i32, X: device, ldx: i32, policy: i32, pBuffer: device) work;
            0x247b post table cusparseDbsrsv2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], policy: i32, pBuffer: device) work;
            0x247c call table cusparseDbsrsv2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], pBufferSizeInBytes: out[4]);
            0x247d post table cusparseDbsrsv2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], f: device, x: device, policy: i32, pBuffer: device) work;
            0x247e post table cusparseDbsrxmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, sizeOfMask: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedMaskPtrA: device, bsrSortedRowPtrA: device, bsrSortedEndPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[8], y: device) work;
            0x247f post table cusparseDcsr2bsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device) work;
            0x2480 post table cusparseDcsr2csr_compress(handle: handle[CusparseHandle], m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedColIndA: device, csrSortedRowPtrA: device, nnzA: i32, nnzPerRow: device, csrSortedValC: device, csrSortedColIndC: device, csrSortedRowPtrC: device, tol: f64) work;
            0x2481 post table cusparseDcsr2csru(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x2482 post table cusparseDcsr2gebsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDim: i32, colBlockDim: i32, pBuffer: device) work;
            0x2483 call table cusparseDcsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]);
            0x2484 post table cusparseDcsrgeam2(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[8], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x2485 call table cusparseDcsrgeam2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[8], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[8], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x2486 post table cusparseDcsric02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x2487 post table cusparseDcsric02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x2488 call table cusparseDcsric02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], pBufferSizeInBytes: out[4]);
            0x2489 post table cusparseDcsrilu02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x248a post table cusparseDcsrilu02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x248b call table cusparseDcsrilu02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], pBufferSizeInBytes: out[4]);
            0x248c post table cusparseDcsru2csr(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x248d call table cusparseDcsru2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBufferSizeInBytes: out[8]);
            0x248e wait table cusparseDenseToSparse_analysis(handle: handle[CusparseHandle], matA: object[DnMat], matB: object[SpMat], alg: i32, externalBuffer: device) work;
            0x248f call table cusparseDenseToSparse_bufferSize(handle: handle[CusparseHandle], matA: object[DnMat], matB: object[SpMat], alg: i32, bufferSize: out[8]);
            0x2490 post table cusparseDenseToSparse_convert(handle: handle[CusparseHandle], matA: object[DnMat], matB: object[SpMat], alg: i32, externalBuffer: device) work;
            0x2491 post table cusparseDestroyBsric02Info(info: gone[Bsric02Info]);
            0x2492 post table cusparseDestroyBsrilu02Info(info: gone[Bsrilu02Info]);
            0x2493 post table cusparseDestroyBsrsm2Info(info: gone[Bsrsm2Info]);
            0x2494 post table cusparseDestroyBsrsv2Info(info: gone[Bsrsv2Info]);
            0x2495 post table cusparseDestroyCsric02Info(info: gone[Csric02Info]);
            0x2496 post table cusparseDestroyCsrilu02Info(info: gone[Csrilu02Info]);
            0x2497 post table cusparseDestroyCsru2csrInfo(info: gone[Csru2csrInfo]);
            0x2498 post table cusparseDestroyDnMat(dnMatDescr: gone[DnMat]);
            0x2499 post table cusparseDestroyDnVec(dnVecDescr: gone[DnVec]);
            0x249a post table cusparseDestroyPruneInfo(info: gone[PruneInfo]);
            0x249b post table cusparseDestroySpMat(spMatDescr: gone[SpMat]);
            0x249c post table cusparseDgebsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x249d post table cusparseDgebsr2gebsc(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, bscVal: device, bscRowInd: device, bscColPtr: device, copyValues: i32, idxBase: i32, pBuffer: device) work;
            0x249e call table cusparseDgebsr2gebsc_bufferSize(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]) pure;
            0x249f post table cusparseDgebsr2gebsr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDimC: i32, colBlockDimC: i32, pBuffer: device) work;
            0x24a0 call table cusparseDgebsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, rowBlockDimC: i32, colBlockDimC: i32, pBufferSizeInBytes: out[4]);
            0x24a1 post table cusparseDgemvi(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, alpha: scalar[8], A: device, lda: i32, nnz: i32, xVal: device, xInd: device, beta: scalar[8], y: device, idxBase: i32, pBuffer: device) work;
            0x24a2 call table cusparseDgemvi_bufferSize(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, nnz: i32, pBufferSize: out[4]) pure;
            0x24a3 post table cusparseDgpsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBuffer: device) work;
            0x24a4 call table cusparseDgpsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x24a5 post table cusparseDgtsv2(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x24a6 post table cusparseDgtsv2StridedBatch(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, pBuffer: device) work;
            0x24a7 call table cusparseDgtsv2StridedBatch_bufferSizeExt(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, bufferSizeInBytes: out[8]) pure;
            0x24a8 call table cusparseDgtsv2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x24a9 post table cusparseDgtsv2_nopivot(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x24aa call table cusparseDgtsv2_nopivot_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x24ab post table cusparseDgtsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBuffer: device) work;
            0x24ac call table cusparseDgtsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x24ad call table cusparseDnMatGet(dnMatDescr: object[DnMat], rows: out[8], cols: out[8], ld: out[8], values: out[8], value_type: out[4], order: out[4]);
            0x24ae call table cusparseDnMatGetStridedBatch(dnMatDescr: object[DnMat], batchCount: out[4], batchStride: out[8]);
            0x24af call table cusparseDnMatGetValues(dnMatDescr: object[DnMat], values: out[8]);
            0x24b0 post table cusparseDnMatSetStridedBatch(dnMatDescr: object[DnMat], batchCount: i32, batchStride: i64);
            0x24b1 post table cusparseDnMatSetValues(dnMatDescr: object[DnMat], values: device);
            0x24b2 call table cusparseDnVecGet(dnVecDescr: object[DnVec], size: out[8], values: out[8], valueType: out[4]);
            0x24b3 call table cusparseDnVecGetValues(dnVecDescr: object[DnVec], values: out[8]);
            0x24b4 post table cusparseDnVecSetValues(dnVecDescr: object[DnVec], values: device);
            0x24b5 wait table cusparseDnnz(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], A: device, lda: i32, nnzPerRowCol: device, nnzTotalDevHostPtr: result[4]) work;
            0x24b6 wait table cusparseDnnz_compress(handle: handle[CusparseHandle], m: i32, descr: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, nnzPerRow: device, nnzC: result[4], tol: f64) work;
            0x24b7 post table cusparseDpruneCsr2csr(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, threshold: scalar[8], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x24b8 post table cusparseDpruneCsr2csrByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBuffer: device) work;
            0x24b9 call table cusparseDpruneCsr2csrByPercentage_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBufferSizeInBytes: out[8]);
            0x24ba wait table cusparseDpruneCsr2csrNnz(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, threshold: scalar[8], descrC: object[CusparseMatDescr], csrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4], pBuffer: device) work;
            0x24bb wait table cusparseDpruneCsr2csrNnzByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, percentage: f32, descrC: object[CusparseMatDescr], csrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4], info: object[PruneInfo], pBuffer: device) work;
            0x24bc call table cusparseDpruneCsr2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, threshold: scalar[8], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x24bd post table cusparseDpruneDense2csr(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, threshold: scalar[8], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x24be post table cusparseDpruneDense2csrByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBuffer: device) work;
            0x24bf call table cusparseDpruneDense2csrByPercentage_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBufferSizeInBytes: out[8]);
            0x24c0 wait table cusparseDpruneDense2csrNnz(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, threshold: scalar[8], descrC: object[CusparseMatDescr], csrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4], pBuffer: device) work;
            0x24c1 wait table cusparseDpruneDense2csrNnzByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, percentage: f32, descrC: object[CusparseMatDescr], csrRowPtrC: device, nnzTotalDevHostPtr: result[4], info: object[PruneInfo], pBuffer: device) work;
            0x24c2 call table cusparseDpruneDense2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, threshold: scalar[8], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x24c3 post table cusparseGather(handle: handle[CusparseHandle], vecY: object[DnVec], vecX: object[SpVec]) work;
            0x24c4 call table cusparseGetProperty(property: i32, value: out[4]);
            0x24c5 call table cusparseGetVersion(handle: handle[CusparseHandle], version: out[4]);
            0x24c6 post table cusparseSDDMM(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[DnMat], matB: object[DnMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, externalBuffer: device) work;
            0x24c7 call table cusparseSDDMM_bufferSize(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[DnMat], matB: object[DnMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, bufferSize: out[8]);
            0x24c8 post table cusparseSDDMM_preprocess(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[DnMat], matB: object[DnMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, externalBuffer: device) work;
            0x24c9 post table cusparseSbsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x24ca post table cusparseSbsric02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pBuffer: device) work;
            0x24cb post table cusparseSbsric02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pInputBuffer: device) work;
            0x24cc call table cusparseSbsric02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], pBufferSizeInBytes: out[4]);
            0x24cd post table cusparseSbsrilu02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x24ce post table cusparseSbsrilu02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x24cf call table cusparseSbsrilu02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], pBufferSizeInBytes: out[4]);
            0x24d0 post table cusparseSbsrmm(handle: handle[CusparseHandle], dirA: i32, transA: i32, transB: i32, mb: i32, n: i32, kb: i32, nnzb: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockSize: i32, B: device, ldb: i32, beta: scalar[4], C: device, ldc: i32) work;
            0x24d1 post table cusparseSbsrmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[4], y: device) work;
            0x24d2 post table cusparseSbsrsm2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], policy: i32, pBuffer: device) work;
            0x24d3 call table cusparseSbsrsm2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], pBufferSizeInBytes: out[4]);
            0x24d4 post table cusparseSbsrsm2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], B: device, ldb: i32, X: device, ldx: i32, policy: i32, pBuffer: device) work;
            0x24d5 post table cusparseSbsrsv2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], policy: i32, pBuffer: device) work;
            0x24d6 call table cusparseSbsrsv2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], pBufferSizeInBytes: out[4]);
            0x24d7 post table cusparseSbsrsv2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], f: device, x: device, policy: i32, pBuffer: device) work;
            0x24d8 post table cusparseSbsrxmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, sizeOfMask: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedMaskPtrA: device, bsrSortedRowPtrA: device, bsrSortedEndPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[4], y: device) work;
            0x24d9 post table cusparseScatter(handle: handle[CusparseHandle], vecX: object[SpVec], vecY: object[DnVec]) work;
            0x24da post table cusparseScsr2bsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device) work;
            0x24db post table cusparseScsr2csr_compress(handle: handle[CusparseHandle], m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedColIndA: device, csrSortedRowPtrA: device, nnzA: i32, nnzPerRow: device, csrSortedValC: device, csrSortedColIndC: device, csrSortedRowPtrC: device, tol: f32) work;
            0x24dc post table cusparseScsr2csru(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x24dd post table cusparseScsr2gebsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDim: i32, colBlockDim: i32, pBuffer: device) work;
            0x24de call table cusparseScsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]);
            0x24df post table cusparseScsrgeam2(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[4], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x24e0 call table cusparseScsrgeam2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[4], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[4], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x24e1 post table cusparseScsric02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x24e2 post table cusparseScsric02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x24e3 call table cusparseScsric02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], pBufferSizeInBytes: out[4]);
            0x24e4 post table cusparseScsrilu02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x24e5 post table cusparseScsrilu02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x24e6 call table cusparseScsrilu02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], pBufferSizeInBytes: out[4]);
            0x24e7 post table cusparseScsru2csr(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x24e8 call table cusparseScsru2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBufferSizeInBytes: out[8]);
            0x24e9 post table cusparseSgebsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x24ea post table cusparseSgebsr2gebsc(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, bscVal: device, bscRowInd: device, bscColPtr: device, copyValues: i32, idxBase: i32, pBuffer: device) work;
            0x24eb call table cusparseSgebsr2gebsc_bufferSize(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]) pure;
            0x24ec post table cusparseSgebsr2gebsr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDimC: i32, colBlockDimC: i32, pBuffer: device) work;
            0x24ed call table cusparseSgebsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, rowBlockDimC: i32, colBlockDimC: i32, pBufferSizeInBytes: out[4]);
            0x24ee post table cusparseSgemvi(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, alpha: scalar[4], A: device, lda: i32, nnz: i32, xVal: device, xInd: device, beta: scalar[4], y: device, idxBase: i32, pBuffer: device) work;
            0x24ef call table cusparseSgemvi_bufferSize(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, nnz: i32, pBufferSize: out[4]) pure;
            0x24f0 post table cusparseSgpsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBuffer: device) work;
            0x24f1 call table cusparseSgpsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x24f2 post table cusparseSgtsv2(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x24f3 post table cusparseSgtsv2StridedBatch(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, pBuffer: device) work;
            0x24f4 call table cusparseSgtsv2StridedBatch_bufferSizeExt(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, bufferSizeInBytes: out[8]) pure;
            0x24f5 call table cusparseSgtsv2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x24f6 post table cusparseSgtsv2_nopivot(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x24f7 call table cusparseSgtsv2_nopivot_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x24f8 post table cusparseSgtsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBuffer: device) work;
            0x24f9 call table cusparseSgtsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x24fa wait table cusparseSnnz(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], A: device, lda: i32, nnzPerRowCol: device, nnzTotalDevHostPtr: result[4]) work;
            0x24fb wait table cusparseSnnz_compress(handle: handle[CusparseHandle], m: i32, descr: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, nnzPerRow: device, nnzC: result[4], tol: f32) work;
            0x24fc post table cusparseSpGEAM(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], beta: scalar[compute], matB: object[SpMat], matC: object[SpMat], compute: i32, alg: i32, spgeamDescr: object[SpGeam], externalBuffer: device) work;
            0x24fd call table cusparseSpGEAM_bufferSize(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], beta: scalar[compute], matB: object[SpMat], matC: object[SpMat], compute: i32, alg: i32, spgeamDescr: object[SpGeam], bufferSize: out[8]);
            0x24fe post table cusparseSpGEAM_createDescr(descr: new[SpGeam]);
            0x24ff post table cusparseSpGEAM_destroyDescr(descr: gone[SpGeam]);
            0x2500 wait table cusparseSpGEAM_nnz(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], beta: scalar[compute], matB: object[SpMat], matC: object[SpMat], compute: i32, alg: i32, spgeamDescr: object[SpGeam], externalBuffer: device) work;
            0x2501 wait table cusparseSpGEMM_compute(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[SpMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, spgemmDescr: object[SpGemm], bufferSize2: inout[8], externalBuffer2: device) work;
            0x2502 post table cusparseSpGEMM_copy(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[SpMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, spgemmDescr: object[SpGemm]) work;
            0x2503 post table cusparseSpGEMM_createDescr(descr: new[SpGemm]);
            0x2504 post table cusparseSpGEMM_destroyDescr(descr: gone[SpGemm]);
            0x2505 wait table cusparseSpGEMM_estimateMemory(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[SpMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, spgemmDescr: object[SpGemm], chunk_fraction: f32, bufferSize3: inout[8], externalBuffer3: device, bufferSize2: inout[8]) work;
            0x2506 call table cusparseSpGEMM_getNumProducts(spgemmDescr: object[SpGemm], num_prods: out[8]);
            0x2507 wait table cusparseSpGEMM_workEstimation(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[SpMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, spgemmDescr: object[SpGemm], bufferSize1: inout[8], externalBuffer1: device) work;
            0x2508 post table cusparseSpGEMMreuse_compute(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[SpMat], beta: scalar[compute], matC: object[SpMat], compute: i32, alg: i32, spgemmDescr: object[SpGemm]) work;
            0x2509 wait table cusparseSpGEMMreuse_copy(handle: handle[CusparseHandle], opA: i32, opB: i32, matA: object[SpMat], matB: object[SpMat], matC: object[SpMat], alg: i32, spgemmDescr: object[SpGemm], bufferSize5: inout[8], externalBuffer5: device) work;
            0x250a wait table cusparseSpGEMMreuse_nnz(handle: handle[CusparseHandle], opA: i32, opB: i32, matA: object[SpMat], matB: object[SpMat], matC: object[SpMat], alg: i32, spgemmDescr: object[SpGemm], bufferSize2: inout[8], externalBuffer2: device, bufferSize3: inout[8], externalBuffer3: device, bufferSize4: inout[8], externalBuffer4: device) work;
            0x250b wait table cusparseSpGEMMreuse_workEstimation(handle: handle[CusparseHandle], opA: i32, opB: i32, matA: object[SpMat], matB: object[SpMat], matC: object[SpMat], alg: i32, spgemmDescr: object[SpGemm], bufferSize1: inout[8], externalBuffer1: device) work;
            0x250c post table cusparseSpMM(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[DnMat], beta: scalar[compute], matC: object[DnMat], compute: i32, alg: i32, externalBuffer: device) work;
            0x250d call table cusparseSpMM_bufferSize(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[DnMat], beta: scalar[compute], matC: object[DnMat], compute: i32, alg: i32, bufferSize: out[8]);
            0x250e post table cusparseSpMM_preprocess(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[DnMat], beta: scalar[compute], matC: object[DnMat], compute: i32, alg: i32, externalBuffer: device) work;
            0x250f post table cusparseSpMV(handle: handle[CusparseHandle], opA: i32, alpha: scalar[compute], matA: object[SpMat], vecX: object[DnVec], beta: scalar[compute], vecY: object[DnVec], compute: i32, alg: i32, externalBuffer: device) work;
            0x2510 call table cusparseSpMV_bufferSize(handle: handle[CusparseHandle], opA: i32, alpha: scalar[compute], matA: object[SpMat], vecX: object[DnVec], beta: scalar[compute], vecY: object[DnVec], compute: i32, alg: i32, bufferSize: out[8]);
            0x2511 post table cusparseSpMV_preprocess(handle: handle[CusparseHandle], opA: i32, alpha: scalar[compute], matA: object[SpMat], vecX: object[DnVec], beta: scalar[compute], vecY: object[DnVec], compute: i32, alg: i32, externalBuffer: device) work;
            0x2512 call table cusparseSpMatGetAttribute(spMatDescr: object[SpMat], attribute: i32, data: outs[1, dataSize], dataSize: i64);
            0x2513 call table cusparseSpMatGetFormat(spMatDescr: object[SpMat], format: out[4]);
            0x2514 call table cusparseSpMatGetIndexBase(spMatDescr: object[SpMat], idxBase: out[4]);
            0x2515 call table cusparseSpMatGetSize(spMatDescr: object[SpMat], rows: out[8], cols: out[8], nnz: out[8]);
            0x2516 call table cusparseSpMatGetStridedBatch(spMatDescr: object[SpMat], batchCount: out[4]);
            0x2517 call table cusparseSpMatGetValues(spMatDescr: object[SpMat], values: out[8]);
            0x2518 post table cusparseSpMatSetAttribute(spMatDescr: object[SpMat], attribute: i32, data: array[1, dataSize], dataSize: i64);
            0x2519 post table cusparseSpMatSetValues(spMatDescr: object[SpMat], values: device);
            0x251a post table cusparseSpSM_analysis(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[DnMat], matC: object[DnMat], compute: i32, alg: i32, spsmDescr: object[SpSm], externalBuffer: device) work;
            0x251b call table cusparseSpSM_bufferSize(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[DnMat], matC: object[DnMat], compute: i32, alg: i32, spsmDescr: object[SpSm], bufferSize: out[8]);
            0x251c post table cusparseSpSM_createDescr(descr: new[SpSm]);
            0x251d post table cusparseSpSM_destroyDescr(descr: gone[SpSm]);
            0x251e post table cusparseSpSM_solve(handle: handle[CusparseHandle], opA: i32, opB: i32, alpha: scalar[compute], matA: object[SpMat], matB: object[DnMat], matC: object[DnMat], compute: i32, alg: i32, spsmDescr: object[SpSm]) work;
            0x251f post table cusparseSpSM_updateMatrix(handle: handle[CusparseHandle], spsmDescr: object[SpSm], newValues: device, updatePart: i32) work;
            0x2520 post table cusparseSpSV_analysis(handle: handle[CusparseHandle], opA: i32, alpha: scalar[compute], matA: object[SpMat], vecX: object[DnVec], vecY: object[DnVec], compute: i32, alg: i32, spsvDescr: object[SpSv], externalBuffer: device) work;
            0x2521 call table cusparseSpSV_bufferSize(handle: handle[CusparseHandle], opA: i32, alpha: scalar[compute], matA: object[SpMat], vecX: object[DnVec], vecY: object[DnVec], compute: i32, alg: i32, spsvDescr: object[SpSv], bufferSize: out[8]);
            0x2522 post table cusparseSpSV_createDescr(descr: new[SpSv]);
            0x2523 post table cusparseSpSV_destroyDescr(descr: gone[SpSv]);
            0x2524 post table cusparseSpSV_solve(handle: handle[CusparseHandle], opA: i32, alpha: scalar[compute], matA: object[SpMat], vecX: object[DnVec], vecY: object[DnVec], compute: i32, alg: i32, spsvDescr: object[SpSv]) work;
            0x2525 post table cusparseSpSV_updateMatrix(handle: handle[CusparseHandle], spsvDescr: object[SpSv], newValues: device, updatePart: i32) work;
            0x2526 wait table cusparseSpVV(handle: handle[CusparseHandle], opX: i32, vecX: object[SpVec], vecY: object[DnVec], result: result[compute], compute: i32, externalBuffer: device) work;
            0x2527 call table cusparseSpVV_bufferSize(handle: handle[CusparseHandle], opX: i32, vecX: object[SpVec], vecY: object[DnVec], result: scalar[compute], compute: i32, bufferSize: out[8]);
            0x2528 call table cusparseSpVecGet(spVecDescr: object[SpVec], size: out[8], nnz: out[8], indices: out[8], values: out[8], idxType: out[4], idxBase: out[4], valueType: out[4]);
            0x2529 call table cusparseSpVecGetIndexBase(spVecDescr: object[SpVec], idxBase: out[4]);
            0x252a call table cusparseSpVecGetValues(spVecDescr: object[SpVec], values: out[8]);
            0x252b post table cusparseSpVecSetValues(spVecDescr: object[SpVec], values: device);
            0x252c post table cusparseSparseToDense(handle: handle[CusparseHandle], matA: object[SpMat], matB: object[DnMat], alg: i32, externalBuffer: device) work;
            0x252d call table cusparseSparseToDense_bufferSize(handle: handle[CusparseHandle], matA: object[SpMat], matB: object[DnMat], alg: i32, bufferSize: out[8]);
            0x252e post table cusparseSpruneCsr2csr(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, threshold: scalar[4], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x252f post table cusparseSpruneCsr2csrByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBuffer: device) work;
            0x2530 call table cusparseSpruneCsr2csrByPercentage_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBufferSizeInBytes: out[8]);
            0x2531 wait table cusparseSpruneCsr2csrNnz(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, threshold: scalar[4], descrC: object[CusparseMatDescr], csrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4], pBuffer: device) work;
            0x2532 wait table cusparseSpruneCsr2csrNnzByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, percentage: f32, descrC: object[CusparseMatDescr], csrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4], info: object[PruneInfo], pBuffer: device) work;
            0x2533 call table cusparseSpruneCsr2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, threshold: scalar[4], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x2534 post table cusparseSpruneDense2csr(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, threshold: scalar[4], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x2535 post table cusparseSpruneDense2csrByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBuffer: device) work;
            0x2536 call table cusparseSpruneDense2csrByPercentage_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, percentage: f32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, info: object[PruneInfo], pBufferSizeInBytes: out[8]);
            0x2537 wait table cusparseSpruneDense2csrNnz(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, threshold: scalar[4], descrC: object[CusparseMatDescr], csrRowPtrC: device, nnzTotalDevHostPtr: result[4], pBuffer: device) work;
            0x2538 wait table cusparseSpruneDense2csrNnzByPercentage(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, percentage: f32, descrC: object[CusparseMatDescr], csrRowPtrC: device, nnzTotalDevHostPtr: result[4], info: object[PruneInfo], pBuffer: device) work;
            0x2539 call table cusparseSpruneDense2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, A: device, lda: i32, threshold: scalar[4], descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x253a wait table cusparseXbsric02_zeroPivot(handle: handle[CusparseHandle], info: object[Bsric02Info], position: result[4]) work;
            0x253b wait table cusparseXbsrilu02_zeroPivot(handle: handle[CusparseHandle], info: object[Bsrilu02Info], position: result[4]) work;
            0x253c wait table cusparseXbsrsm2_zeroPivot(handle: handle[CusparseHandle], info: object[Bsrsm2Info], position: result[4]) work;
            0x253d wait table cusparseXbsrsv2_zeroPivot(handle: handle[CusparseHandle], info: object[Bsrsv2Info], position: result[4]) work;
            0x253e post table cusparseXcoo2csr(handle: handle[CusparseHandle], cooRowInd: device, nnz: i32, m: i32, csrSortedRowPtr: device, idxBase: i32) work;
            0x253f post table cusparseXcoosortByColumn(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, cooRowsA: device, cooColsA: device, P: device, pBuffer: device) work;
            0x2540 post table cusparseXcoosortByRow(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, cooRowsA: device, cooColsA: device, P: device, pBuffer: device) work;
            0x2541 call table cusparseXcoosort_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, cooRowsA: device, cooColsA: device, pBufferSizeInBytes: out[8]) pure;
            0x2542 post table cusparseXcscsort(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], cscColPtrA: device, cscRowIndA: device, P: device, pBuffer: device) work;
            0x2543 call table cusparseXcscsort_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, cscColPtrA: device, cscRowIndA: device, pBufferSizeInBytes: out[8]) pure;
            0x2544 wait table cusparseXcsr2bsrNnz(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedRowPtrA: device, csrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], bsrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4]) work;
            0x2545 post table cusparseXcsr2coo(handle: handle[CusparseHandle], csrSortedRowPtr: device, nnz: i32, m: i32, cooRowInd: device, idxBase: i32) work;
            0x2546 wait table cusparseXcsr2gebsrNnz(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedRowPtrA: device, csrSortedColIndA: device, descrC: object[CusparseMatDescr], bsrSortedRowPtrC: device, rowBlockDim: i32, colBlockDim: i32, nnzTotalDevHostPtr: result[4], pBuffer: device) work;
            0x2547 wait table cusparseXcsrgeam2Nnz(handle: handle[CusparseHandle], m: i32, n: i32, descrA: object[CusparseMatDescr], nnzA: i32, csrSortedRowPtrA: device, csrSortedColIndA: device, descrB: object[CusparseMatDescr], nnzB: i32, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedRowPtrC: device, nnzTotalDevHostPtr: result[4], workspace: device) work;
            0x2548 wait table cusparseXcsric02_zeroPivot(handle: handle[CusparseHandle], info: object[Csric02Info], position: result[4]) work;
            0x2549 wait table cusparseXcsrilu02_zeroPivot(handle: handle[CusparseHandle], info: object[Csrilu02Info], position: result[4]) work;
            0x254a post table cusparseXcsrsort(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrRowPtrA: device, csrColIndA: device, P: device, pBuffer: device) work;
            0x254b call table cusparseXcsrsort_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrRowPtrA: device, csrColIndA: device, pBufferSizeInBytes: out[8]) pure;
            0x254c wait table cusparseXgebsr2gebsrNnz(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, descrC: object[CusparseMatDescr], bsrSortedRowPtrC: device, rowBlockDimC: i32, colBlockDimC: i32, nnzTotalDevHostPtr: result[4], pBuffer: device) work;
            0x254d post table cusparseZbsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x254e post table cusparseZbsric02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pBuffer: device) work;
            0x254f post table cusparseZbsric02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], policy: i32, pInputBuffer: device) work;
            0x2550 call table cusparseZbsric02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsric02Info], pBufferSizeInBytes: out[4]);
            0x2551 post table cusparseZbsrilu02(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x2552 post table cusparseZbsrilu02_analysis(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], policy: i32, pBuffer: device) work;
            0x2553 call table cusparseZbsrilu02_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockDim: i32, info: object[Bsrilu02Info], pBufferSizeInBytes: out[4]);
            0x2554 post table cusparseZbsrmm(handle: handle[CusparseHandle], dirA: i32, transA: i32, transB: i32, mb: i32, n: i32, kb: i32, nnzb: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockSize: i32, B: device, ldb: i32, beta: scalar[16], C: device, ldc: i32) work;
            0x2555 post table cusparseZbsrmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[16], y: device) work;
            0x2556 post table cusparseZbsrsm2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], policy: i32, pBuffer: device) work;
            0x2557 call table cusparseZbsrsm2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], pBufferSizeInBytes: out[4]);
            0x2558 post table cusparseZbsrsm2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, transXY: i32, mb: i32, n: i32, nnzb: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, blockSize: i32, info: object[Bsrsm2Info], B: device, ldb: i32, X: device, ldx: i32, policy: i32, pBuffer: device) work;
            0x2559 post table cusparseZbsrsv2_analysis(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], policy: i32, pBuffer: device) work;
            0x255a call table cusparseZbsrsv2_bufferSize(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], pBufferSizeInBytes: out[4]);
            0x255b post table cusparseZbsrsv2_solve(handle: handle[CusparseHandle], dirA: i32, transA: i32, mb: i32, nnzb: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, blockDim: i32, info: object[Bsrsv2Info], f: device, x: device, policy: i32, pBuffer: device) work;
            0x255c post table cusparseZbsrxmv(handle: handle[CusparseHandle], dirA: i32, transA: i32, sizeOfMask: i32, mb: i32, nb: i32, nnzb: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedMaskPtrA: device, bsrSortedRowPtrA: device, bsrSortedEndPtrA: device, bsrSortedColIndA: device, blockDim: i32, x: device, beta: scalar[16], y: device) work;
            0x255d post table cusparseZcsr2bsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, blockDim: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device) work;
            0x255e post table cusparseZcsr2csru(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x255f post table cusparseZcsr2gebsr(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDim: i32, colBlockDim: i32, pBuffer: device) work;
            0x2560 call table cusparseZcsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]);
            0x2561 post table cusparseZcsrgeam2(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[16], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBuffer: device) work;
            0x2562 call table cusparseZcsrgeam2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, alpha: scalar[16], descrA: object[CusparseMatDescr], nnzA: i32, csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, beta: scalar[16], descrB: object[CusparseMatDescr], nnzB: i32, csrSortedValB: device, csrSortedRowPtrB: device, csrSortedColIndB: device, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device, pBufferSizeInBytes: out[8]);
            0x2563 post table cusparseZcsric02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x2564 post table cusparseZcsric02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], policy: i32, pBuffer: device) work;
            0x2565 call table cusparseZcsric02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csric02Info], pBufferSizeInBytes: out[4]);
            0x2566 post table cusparseZcsrilu02(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA_valM: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x2567 post table cusparseZcsrilu02_analysis(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], policy: i32, pBuffer: device) work;
            0x2568 call table cusparseZcsrilu02_bufferSize(handle: handle[CusparseHandle], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrSortedValA: device, csrSortedRowPtrA: device, csrSortedColIndA: device, info: object[Csrilu02Info], pBufferSizeInBytes: out[4]);
            0x2569 post table cusparseZcsru2csr(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBuffer: device) work;
            0x256a call table cusparseZcsru2csr_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, nnz: i32, csrVal: device, csrRowPtr: device, csrColInd: device, info: object[Csru2csrInfo], pBufferSizeInBytes: out[8]);
            0x256b post table cusparseZgebsr2csr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDim: i32, colBlockDim: i32, descrC: object[CusparseMatDescr], csrSortedValC: device, csrSortedRowPtrC: device, csrSortedColIndC: device) work;
            0x256c post table cusparseZgebsr2gebsc(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, bscVal: device, bscRowInd: device, bscColPtr: device, copyValues: i32, idxBase: i32, pBuffer: device) work;
            0x256d call table cusparseZgebsr2gebsc_bufferSize(handle: handle[CusparseHandle], mb: i32, nb: i32, nnzb: i32, bsrSortedVal: device, bsrSortedRowPtr: device, bsrSortedColInd: device, rowBlockDim: i32, colBlockDim: i32, pBufferSizeInBytes: out[4]) pure;
            0x256e post table cusparseZgebsr2gebsr(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, descrC: object[CusparseMatDescr], bsrSortedValC: device, bsrSortedRowPtrC: device, bsrSortedColIndC: device, rowBlockDimC: i32, colBlockDimC: i32, pBuffer: device) work;
            0x256f call table cusparseZgebsr2gebsr_bufferSize(handle: handle[CusparseHandle], dirA: i32, mb: i32, nb: i32, nnzb: i32, descrA: object[CusparseMatDescr], bsrSortedValA: device, bsrSortedRowPtrA: device, bsrSortedColIndA: device, rowBlockDimA: i32, colBlockDimA: i32, rowBlockDimC: i32, colBlockDimC: i32, pBufferSizeInBytes: out[4]);
            0x2570 post table cusparseZgemvi(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, alpha: scalar[16], A: device, lda: i32, nnz: i32, xVal: device, xInd: device, beta: scalar[16], y: device, idxBase: i32, pBuffer: device) work;
            0x2571 call table cusparseZgemvi_bufferSize(handle: handle[CusparseHandle], transA: i32, m: i32, n: i32, nnz: i32, pBufferSize: out[4]) pure;
            0x2572 post table cusparseZgpsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBuffer: device) work;
            0x2573 call table cusparseZgpsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, ds: device, dl: device, d: device, du: device, dw: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x2574 post table cusparseZgtsv2(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x2575 post table cusparseZgtsv2StridedBatch(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, pBuffer: device) work;
            0x2576 call table cusparseZgtsv2StridedBatch_bufferSizeExt(handle: handle[CusparseHandle], m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, batchStride: i32, bufferSizeInBytes: out[8]) pure;
            0x2577 call table cusparseZgtsv2_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x2578 post table cusparseZgtsv2_nopivot(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, pBuffer: device) work;
            0x2579 call table cusparseZgtsv2_nopivot_bufferSizeExt(handle: handle[CusparseHandle], m: i32, n: i32, dl: device, d: device, du: device, B: device, ldb: i32, bufferSizeInBytes: out[8]) pure;
            0x257a post table cusparseZgtsvInterleavedBatch(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBuffer: device) work;
            0x257b call table cusparseZgtsvInterleavedBatch_bufferSizeExt(handle: handle[CusparseHandle], algo: i32, m: i32, dl: device, d: device, du: device, x: device, batchCount: i32, pBufferSizeInBytes: out[8]) pure;
            0x257c wait table cusparseZnnz(handle: handle[CusparseHandle], dirA: i32, m: i32, n: i32, descrA: object[CusparseMatDescr], A: device, lda: i32, nnzPerRowCol: device, nnzTotalDevHostPtr: result[4]) work;
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::libraries::{Kind, Library};

    /// With the host's pointer mode, a row that declares one of these a device address lets the guest choose a host
    /// address.
    #[test]
    fn addresses_by_the_pointer_mode_are_no_device_addresses() {
        let of_host = [
            "alpha",
            "beta",
            "c_coeff",
            "s_coeff",
            "threshold",
            "result",
            "position",
            "nnzTotalDevHostPtr",
            "nnzC",
            "bufferSize",
            "bufferSize1",
            "bufferSize2",
            "pBufferSize",
            "pBufferSizeInBytes",
            "bufferSizeInBytes",
            "num_prods",
            "data",
        ];
        let mut found = Vec::new();
        for of in Library::Cusparse.functions() {
            let name = of.operation.name;
            for (argument, kind) in of.operation.description().arguments.iter().zip(of.kinds) {
                if of_host.contains(&argument.name) {
                    assert_ne!(*kind, Kind::Device, "{name}");
                    found.push(argument.name);
                }
                // The functions that read a descriptor's fields.
                let reads = name.contains("Get") || name.ends_with("getNumProducts");
                assert!(!reads || *kind != Kind::Device, "{name}");
            }
        }
        assert!(of_host.iter().all(|name| found.contains(name)));
    }
}
