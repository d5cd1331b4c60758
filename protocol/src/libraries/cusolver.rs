// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuSOLVER (cusolverDn.h, cusolverSp.h).
//!
//! Functions of dense matrices, and those of sparse ones that compute on the GPU. Rows with `guest` are answered in the
//! guest from the process's state, or send only changes. Queries of sizes depend on the form of the call alone if a row
//! is `pure`: options are part of the form.

use super::Statuses;

/// The functions' results (`cusolverStatus_t`).
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
    pub const NOT_SUPPORTED: u32 = 9;
}

/// `cusolverStatus_t`.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::NOT_INITIALIZED,
    not_initialized: status::NOT_INITIALIZED,
    alloc_failed: status::ALLOC_FAILED,
    invalid_value: status::INVALID_VALUE,
    execution_failed: status::EXECUTION_FAILED,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::NOT_SUPPORTED,
    names: &[
        (0, c"CUSOLVER_STATUS_SUCCESS", c"success"),
        (
            1,
            c"CUSOLVER_STATUS_NOT_INITIALIZED",
            c"the library was not initialized",
        ),
        (
            2,
            c"CUSOLVER_STATUS_ALLOC_FAILED",
            c"the resource allocation failed",
        ),
        (
            3,
            c"CUSOLVER_STATUS_INVALID_VALUE",
            c"an argument has no valid value",
        ),
        (
            4,
            c"CUSOLVER_STATUS_ARCH_MISMATCH",
            c"the device lacks a feature",
        ),
        (
            5,
            c"CUSOLVER_STATUS_MAPPING_ERROR",
            c"an access to GPU memory failed",
        ),
        (
            6,
            c"CUSOLVER_STATUS_EXECUTION_FAILED",
            c"the GPU program failed",
        ),
        (
            7,
            c"CUSOLVER_STATUS_INTERNAL_ERROR",
            c"an internal operation failed",
        ),
        (
            8,
            c"CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED",
            c"the type of the matrix is not supported",
        ),
        (
            9,
            c"CUSOLVER_STATUS_NOT_SUPPORTED",
            c"the function is not supported",
        ),
        (10, c"CUSOLVER_STATUS_ZERO_PIVOT", c"a pivot is zero"),
        (
            11,
            c"CUSOLVER_STATUS_INVALID_LICENSE",
            c"there is no license",
        ),
        (
            12,
            c"CUSOLVER_STATUS_IRS_PARAMS_NOT_INITIALIZED",
            c"the parameters were not initialized",
        ),
        (
            13,
            c"CUSOLVER_STATUS_IRS_PARAMS_INVALID",
            c"a parameter is wrong",
        ),
        (
            14,
            c"CUSOLVER_STATUS_IRS_PARAMS_INVALID_PREC",
            c"a precision is wrong",
        ),
        (
            15,
            c"CUSOLVER_STATUS_IRS_PARAMS_INVALID_REFINE",
            c"a refinement is wrong",
        ),
        (
            16,
            c"CUSOLVER_STATUS_IRS_PARAMS_INVALID_MAXITER",
            c"a number of iterations is wrong",
        ),
        (
            20,
            c"CUSOLVER_STATUS_IRS_INTERNAL_ERROR",
            c"the refinement failed",
        ),
        (
            21,
            c"CUSOLVER_STATUS_IRS_NOT_SUPPORTED",
            c"the refinement is not supported",
        ),
        (
            22,
            c"CUSOLVER_STATUS_IRS_OUT_OF_RANGE",
            c"a value is out of range",
        ),
        (
            23,
            c"CUSOLVER_STATUS_IRS_NRHS_NOT_SUPPORTED_FOR_REFINE_GMRES",
            c"there are too many right-hand sides",
        ),
        (
            25,
            c"CUSOLVER_STATUS_IRS_INFOS_NOT_INITIALIZED",
            c"the infos were not initialized",
        ),
        (
            26,
            c"CUSOLVER_STATUS_IRS_INFOS_NOT_DESTROYED",
            c"the infos were not destroyed",
        ),
        (
            30,
            c"CUSOLVER_STATUS_IRS_MATRIX_SINGULAR",
            c"the matrix is singular",
        ),
        (
            31,
            c"CUSOLVER_STATUS_INVALID_WORKSPACE",
            c"the workspace is wrong",
        ),
    ],
    unknown: (c"CUSOLVER_STATUS_<unknown>", c"unknown status"),
};

/// Passes cuSOLVER's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cusolver {
    ($callback:ident) => {
        $callback! {
            0x2000 call guest cusolverDnCreate(handle: new[CusolverDn]);
            0x2001 wait guest cusolverDnDestroy(handle: gone[CusolverDn]);
            0x2002 call guest cusolverDnSetDeterministicMode(handle: handle[CusolverDn], mode: i32);
            0x2003 call guest cusolverDnSetEmulationSpecialValuesSupport(handle: handle[CusolverDn], mask: i32);
            0x2004 call guest cusolverDnSetEmulationStrategy(handle: handle[CusolverDn], strategy: i32);
            0x2005 call guest cusolverDnSetFixedPointEmulationMantissaBitOffset(handle: handle[CusolverDn], mantissaBitOffset: i32);
            0x2006 call guest cusolverDnSetFixedPointEmulationMantissaControl(handle: handle[CusolverDn], control: i32);
            0x2007 call guest cusolverDnSetFixedPointEmulationMaxMantissaBitCount(handle: handle[CusolverDn], mantissaBitCount: i32);
            0x2008 call guest cusolverDnSetMathMode(handle: handle[CusolverDn], mode: i32);
            0x2009 post guest cusolverDnSetStream(handle: handle[CusolverDn], streamId: stream);
            0x200a call guest cusolverSpCreate(handle: new[CusolverSp]);
            0x200b wait guest cusolverSpDestroy(handle: gone[CusolverSp]);
            0x200c post guest cusolverSpSetStream(handle: handle[CusolverSp], streamId: stream);
            0x200d call table cusolverGetProperty(property: i32, value: out[4]);
            0x200e call table cusolverGetVersion(version: out[4]);
            0x200f wait table cusolverDnCCgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2010 call table cusolverDnCCgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2011 wait table cusolverDnCCgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2012 call table cusolverDnCCgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2013 wait table cusolverDnCEgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2014 call table cusolverDnCEgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2015 wait table cusolverDnCEgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2016 call table cusolverDnCEgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2017 wait table cusolverDnCKgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2018 call table cusolverDnCKgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2019 wait table cusolverDnCKgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x201a call table cusolverDnCKgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x201b wait table cusolverDnCYgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x201c call table cusolverDnCYgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x201d wait table cusolverDnCYgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x201e call table cusolverDnCYgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x201f post table cusolverDnCgebrd(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, D: device, E: device, TAUQ: device, TAUP: device, Work: device, Lwork: i32, devInfo: device) work;
            0x2020 call table cusolverDnCgebrd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, Lwork: out[4]) pure;
            0x2021 post table cusolverDnCgeqrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, TAU: device, Workspace: device, Lwork: i32, devInfo: device) work;
            0x2022 call table cusolverDnCgeqrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2023 wait table cusolverDnCgesvd(handle: handle[CusolverDn], jobu: i32, jobvt: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, VT: device, ldvt: i32, work: device, lwork: i32, rwork: device, info: device) work;
            0x2024 call table cusolverDnCgesvd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, lwork: out[4]) pure;
            0x2025 wait table cusolverDnCgesvdaStridedBatched(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, d_work: device, lwork: i32, d_info: device, h_R_nrmF: outs[8, batchSize], batchSize: i32) work;
            0x2026 call table cusolverDnCgesvdaStridedBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, lwork: out[4], batchSize: i32) pure;
            0x2027 wait table cusolverDnCgesvdj(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo]) work;
            0x2028 wait table cusolverDnCgesvdjBatched(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo], batchSize: i32) work;
            0x2029 call table cusolverDnCgesvdjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo], batchSize: i32) pure;
            0x202a call table cusolverDnCgesvdj_bufferSize(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo]) pure;
            0x202b post table cusolverDnCgetrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Workspace: device, devIpiv: device, devInfo: device) work;
            0x202c call table cusolverDnCgetrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x202d post table cusolverDnCgetrs(handle: handle[CusolverDn], trans: i32, n: i32, nrhs: i32, A: device, lda: i32, devIpiv: device, B: device, ldb: i32, devInfo: device) work;
            0x202e wait table cusolverDnCheevd(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device) work;
            0x202f call table cusolverDnCheevd_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4]) pure;
            0x2030 wait table cusolverDnCheevdx(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x2031 call table cusolverDnCheevdx_bufferSize(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x2032 wait table cusolverDnCheevj(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x2033 wait table cusolverDnCheevjBatched(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo], batchSize: i32) work;
            0x2034 call table cusolverDnCheevjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo], batchSize: i32) pure;
            0x2035 call table cusolverDnCheevj_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x2036 wait table cusolverDnChegvd(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device) work;
            0x2037 call table cusolverDnChegvd_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4]) pure;
            0x2038 wait table cusolverDnChegvdx(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x2039 call table cusolverDnChegvdx_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x203a wait table cusolverDnChegvj(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x203b call table cusolverDnChegvj_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x203c post table cusolverDnChetrd(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, work: device, lwork: i32, info: device) work;
            0x203d call table cusolverDnChetrd_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, lwork: out[4]) pure;
            0x203e post table cusolverDnClaswp(handle: handle[CusolverDn], n: i32, A: device, lda: i32, k1: i32, k2: i32, devIpiv: device, incx: i32) work;
            0x203f post table cusolverDnClauum(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2040 call table cusolverDnClauum_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2041 post table cusolverDnCpotrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Workspace: device, Lwork: i32, devInfo: device) work;
            0x2042 post table cusolverDnCpotrfBatched(handle: handle[CusolverDn], uplo: i32, n: i32, Aarray: device, lda: i32, infoArray: device, batchSize: i32) work;
            0x2043 call table cusolverDnCpotrf_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x2044 post table cusolverDnCpotri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2045 call table cusolverDnCpotri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2046 post table cusolverDnCpotrs(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, devInfo: device) work;
            0x2047 post table cusolverDnCpotrsBatched(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, d_info: device, batchSize: i32) work;
            0x2048 post table cusolverDnCreateGesvdjInfo(info: new[GesvdjInfo]);
            0x2049 post table cusolverDnCreateParams(params: new[CusolverDnParams]);
            0x204a post table cusolverDnCreateSyevjInfo(info: new[SyevjInfo]);
            0x204b post table cusolverDnCsytrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x204c call table cusolverDnCsytrf_bufferSize(handle: handle[CusolverDn], n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x204d post table cusolverDnCsytri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x204e call table cusolverDnCsytri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, lwork: out[4]) pure;
            0x204f post table cusolverDnCungbr(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2050 call table cusolverDnCungbr_bufferSize(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2051 post table cusolverDnCungqr(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2052 call table cusolverDnCungqr_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2053 post table cusolverDnCungtr(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2054 call table cusolverDnCungtr_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2055 post table cusolverDnCunmqr(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, devInfo: device) work;
            0x2056 call table cusolverDnCunmqr_bufferSize(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x2057 post table cusolverDnCunmtr(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, info: device) work;
            0x2058 call table cusolverDnCunmtr_bufferSize(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x2059 wait table cusolverDnDBgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x205a call table cusolverDnDBgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x205b wait table cusolverDnDBgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x205c call table cusolverDnDBgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x205d wait table cusolverDnDDgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x205e call table cusolverDnDDgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x205f wait table cusolverDnDDgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2060 call table cusolverDnDDgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2061 wait table cusolverDnDHgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2062 call table cusolverDnDHgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2063 wait table cusolverDnDHgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2064 call table cusolverDnDHgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2065 wait table cusolverDnDSgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2066 call table cusolverDnDSgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2067 wait table cusolverDnDSgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2068 call table cusolverDnDSgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2069 wait table cusolverDnDXgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x206a call table cusolverDnDXgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x206b wait table cusolverDnDXgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x206c call table cusolverDnDXgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x206d post table cusolverDnDestroyGesvdjInfo(info: gone[GesvdjInfo]);
            0x206e post table cusolverDnDestroyParams(params: gone[CusolverDnParams]);
            0x206f post table cusolverDnDestroySyevjInfo(info: gone[SyevjInfo]);
            0x2070 post table cusolverDnDgebrd(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, D: device, E: device, TAUQ: device, TAUP: device, Work: device, Lwork: i32, devInfo: device) work;
            0x2071 call table cusolverDnDgebrd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, Lwork: out[4]) pure;
            0x2072 post table cusolverDnDgeqrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, TAU: device, Workspace: device, Lwork: i32, devInfo: device) work;
            0x2073 call table cusolverDnDgeqrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2074 wait table cusolverDnDgesvd(handle: handle[CusolverDn], jobu: i32, jobvt: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, VT: device, ldvt: i32, work: device, lwork: i32, rwork: device, info: device) work;
            0x2075 call table cusolverDnDgesvd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, lwork: out[4]) pure;
            0x2076 wait table cusolverDnDgesvdaStridedBatched(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, d_work: device, lwork: i32, d_info: device, h_R_nrmF: outs[8, batchSize], batchSize: i32) work;
            0x2077 call table cusolverDnDgesvdaStridedBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, lwork: out[4], batchSize: i32) pure;
            0x2078 wait table cusolverDnDgesvdj(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo]) work;
            0x2079 wait table cusolverDnDgesvdjBatched(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo], batchSize: i32) work;
            0x207a call table cusolverDnDgesvdjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo], batchSize: i32) pure;
            0x207b call table cusolverDnDgesvdj_bufferSize(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo]) pure;
            0x207c post table cusolverDnDgetrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Workspace: device, devIpiv: device, devInfo: device) work;
            0x207d call table cusolverDnDgetrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x207e post table cusolverDnDgetrs(handle: handle[CusolverDn], trans: i32, n: i32, nrhs: i32, A: device, lda: i32, devIpiv: device, B: device, ldb: i32, devInfo: device) work;
            0x207f post table cusolverDnDlaswp(handle: handle[CusolverDn], n: i32, A: device, lda: i32, k1: i32, k2: i32, devIpiv: device, incx: i32) work;
            0x2080 post table cusolverDnDlauum(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2081 call table cusolverDnDlauum_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2082 post table cusolverDnDorgbr(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2083 call table cusolverDnDorgbr_bufferSize(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2084 post table cusolverDnDorgqr(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2085 call table cusolverDnDorgqr_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2086 post table cusolverDnDorgtr(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2087 call table cusolverDnDorgtr_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2088 post table cusolverDnDormqr(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, devInfo: device) work;
            0x2089 call table cusolverDnDormqr_bufferSize(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x208a post table cusolverDnDormtr(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, info: device) work;
            0x208b call table cusolverDnDormtr_bufferSize(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x208c post table cusolverDnDpotrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Workspace: device, Lwork: i32, devInfo: device) work;
            0x208d post table cusolverDnDpotrfBatched(handle: handle[CusolverDn], uplo: i32, n: i32, Aarray: device, lda: i32, infoArray: device, batchSize: i32) work;
            0x208e call table cusolverDnDpotrf_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x208f post table cusolverDnDpotri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2090 call table cusolverDnDpotri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2091 post table cusolverDnDpotrs(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, devInfo: device) work;
            0x2092 post table cusolverDnDpotrsBatched(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, d_info: device, batchSize: i32) work;
            0x2093 wait table cusolverDnDsyevd(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device) work;
            0x2094 call table cusolverDnDsyevd_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4]) pure;
            0x2095 wait table cusolverDnDsyevdx(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x2096 call table cusolverDnDsyevdx_bufferSize(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x2097 wait table cusolverDnDsyevj(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x2098 wait table cusolverDnDsyevjBatched(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo], batchSize: i32) work;
            0x2099 call table cusolverDnDsyevjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo], batchSize: i32) pure;
            0x209a call table cusolverDnDsyevj_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x209b wait table cusolverDnDsygvd(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device) work;
            0x209c call table cusolverDnDsygvd_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4]) pure;
            0x209d wait table cusolverDnDsygvdx(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x209e call table cusolverDnDsygvdx_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x209f wait table cusolverDnDsygvj(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x20a0 call table cusolverDnDsygvj_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x20a1 post table cusolverDnDsytrd(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, work: device, lwork: i32, info: device) work;
            0x20a2 call table cusolverDnDsytrd_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, lwork: out[4]) pure;
            0x20a3 post table cusolverDnDsytrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x20a4 call table cusolverDnDsytrf_bufferSize(handle: handle[CusolverDn], n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x20a5 post table cusolverDnDsytri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x20a6 call table cusolverDnDsytri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, lwork: out[4]) pure;
            0x20a7 post table cusolverDnGeqrf(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeTau: i32, tau: device, computeType: i32, pBuffer: device, workspaceInBytes: i64, info: device) work;
            0x20a8 call table cusolverDnGeqrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeTau: i32, tau: device, computeType: i32, workspaceInBytes: out[8]) pure;
            0x20a9 wait table cusolverDnGesvd(handle: handle[CusolverDn], params: object[CusolverDnParams], jobu: i32, jobvt: i32, m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeS: i32, S: device, dataTypeU: i32, U: device, ldu: i64, dataTypeVT: i32, VT: device, ldvt: i64, computeType: i32, pBuffer: device, workspaceInBytes: i64, info: device) work;
            0x20aa call table cusolverDnGesvd_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobu: i32, jobvt: i32, m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeS: i32, S: device, dataTypeU: i32, U: device, ldu: i64, dataTypeVT: i32, VT: device, ldvt: i64, computeType: i32, workspaceInBytes: out[8]) pure;
            0x20ab call table cusolverDnGetDeterministicMode(handle: handle[CusolverDn], mode: out[4]);
            0x20ac call table cusolverDnGetEmulationSpecialValuesSupport(handle: handle[CusolverDn], mask: out[4]);
            0x20ad call table cusolverDnGetEmulationStrategy(handle: handle[CusolverDn], strategy: out[4]);
            0x20ae call table cusolverDnGetFixedPointEmulationMantissaBitOffset(handle: handle[CusolverDn], mantissaBitOffset: out[4]);
            0x20af call table cusolverDnGetFixedPointEmulationMantissaControl(handle: handle[CusolverDn], control: out[4]);
            0x20b0 call table cusolverDnGetFixedPointEmulationMaxMantissaBitCount(handle: handle[CusolverDn], mantissaBitCount: out[4]);
            0x20b1 call table cusolverDnGetMathMode(handle: handle[CusolverDn], mode: out[4]);
            0x20b2 post table cusolverDnGetrf(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, computeType: i32, pBuffer: device, workspaceInBytes: i64, info: device) work;
            0x20b3 call table cusolverDnGetrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, computeType: i32, workspaceInBytes: out[8]) pure;
            0x20b4 post table cusolverDnGetrs(handle: handle[CusolverDn], params: object[CusolverDnParams], trans: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, dataTypeB: i32, B: device, ldb: i64, info: device) work;
            0x20b5 post table cusolverDnIRSInfosCreate(infos_ptr: new[IrsInfos]);
            0x20b6 post table cusolverDnIRSInfosDestroy(infos: gone[IrsInfos]);
            0x20b7 wait table cusolverDnIRSInfosGetMaxIters(infos: object[IrsInfos], maxiters: out[4]);
            0x20b8 wait table cusolverDnIRSInfosGetNiters(infos: object[IrsInfos], niters: out[4]);
            0x20b9 wait table cusolverDnIRSInfosGetOuterNiters(infos: object[IrsInfos], outer_niters: out[4]);
            0x20ba post table cusolverDnIRSInfosRequestResidual(infos: object[IrsInfos]);
            0x20bb post table cusolverDnIRSParamsCreate(params_ptr: new[IrsParams]);
            0x20bc post table cusolverDnIRSParamsDestroy(params: gone[IrsParams]);
            0x20bd post table cusolverDnIRSParamsDisableFallback(params: object[IrsParams]);
            0x20be post table cusolverDnIRSParamsEnableFallback(params: object[IrsParams]);
            0x20bf call table cusolverDnIRSParamsGetMaxIters(params: object[IrsParams], maxiters: out[4]);
            0x20c0 post table cusolverDnIRSParamsSetMaxIters(params: object[IrsParams], maxiters: i32);
            0x20c1 post table cusolverDnIRSParamsSetMaxItersInner(params: object[IrsParams], maxiters_inner: i32);
            0x20c2 post table cusolverDnIRSParamsSetRefinementSolver(params: object[IrsParams], refinement_solver: i32);
            0x20c3 post table cusolverDnIRSParamsSetSolverLowestPrecision(params: object[IrsParams], solver_lowest_precision: i32);
            0x20c4 post table cusolverDnIRSParamsSetSolverMainPrecision(params: object[IrsParams], solver_main_precision: i32);
            0x20c5 post table cusolverDnIRSParamsSetSolverPrecisions(params: object[IrsParams], solver_main_precision: i32, solver_lowest_precision: i32);
            0x20c6 post table cusolverDnIRSParamsSetTol(params: object[IrsParams], val: f64);
            0x20c7 post table cusolverDnIRSParamsSetTolInner(params: object[IrsParams], val: f64);
            0x20c8 wait table cusolverDnIRSXgels(handle: handle[CusolverDn], gels_irs_params: object[IrsParams], gels_irs_infos: object[IrsInfos], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, niters: out[4], d_info: device) work;
            0x20c9 call table cusolverDnIRSXgels_bufferSize(handle: handle[CusolverDn], params: object[IrsParams], m: i32, n: i32, nrhs: i32, lwork_bytes: out[8]);
            0x20ca wait table cusolverDnIRSXgesv(handle: handle[CusolverDn], gesv_irs_params: object[IrsParams], gesv_irs_infos: object[IrsInfos], n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, niters: out[4], d_info: device) work;
            0x20cb call table cusolverDnIRSXgesv_bufferSize(handle: handle[CusolverDn], params: object[IrsParams], n: i32, nrhs: i32, lwork_bytes: out[8]);
            0x20cc post table cusolverDnPotrf(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, computeType: i32, pBuffer: device, workspaceInBytes: i64, info: device) work;
            0x20cd call table cusolverDnPotrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, computeType: i32, workspaceInBytes: out[8]) pure;
            0x20ce post table cusolverDnPotrs(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, dataTypeB: i32, B: device, ldb: i64, info: device) work;
            0x20cf wait table cusolverDnSBgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20d0 call table cusolverDnSBgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20d1 wait table cusolverDnSBgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20d2 call table cusolverDnSBgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20d3 wait table cusolverDnSHgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20d4 call table cusolverDnSHgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20d5 wait table cusolverDnSHgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20d6 call table cusolverDnSHgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20d7 wait table cusolverDnSSgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20d8 call table cusolverDnSSgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20d9 wait table cusolverDnSSgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20da call table cusolverDnSSgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20db wait table cusolverDnSXgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20dc call table cusolverDnSXgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20dd wait table cusolverDnSXgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x20de call table cusolverDnSXgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x20df post table cusolverDnSetAdvOptions(params: object[CusolverDnParams], function: i32, algo: i32);
            0x20e0 post table cusolverDnSgebrd(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, D: device, E: device, TAUQ: device, TAUP: device, Work: device, Lwork: i32, devInfo: device) work;
            0x20e1 call table cusolverDnSgebrd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, Lwork: out[4]) pure;
            0x20e2 post table cusolverDnSgeqrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, TAU: device, Workspace: device, Lwork: i32, devInfo: device) work;
            0x20e3 call table cusolverDnSgeqrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x20e4 wait table cusolverDnSgesvd(handle: handle[CusolverDn], jobu: i32, jobvt: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, VT: device, ldvt: i32, work: device, lwork: i32, rwork: device, info: device) work;
            0x20e5 call table cusolverDnSgesvd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, lwork: out[4]) pure;
            0x20e6 wait table cusolverDnSgesvdaStridedBatched(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, d_work: device, lwork: i32, d_info: device, h_R_nrmF: outs[8, batchSize], batchSize: i32) work;
            0x20e7 call table cusolverDnSgesvdaStridedBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, lwork: out[4], batchSize: i32) pure;
            0x20e8 wait table cusolverDnSgesvdj(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo]) work;
            0x20e9 wait table cusolverDnSgesvdjBatched(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo], batchSize: i32) work;
            0x20ea call table cusolverDnSgesvdjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo], batchSize: i32) pure;
            0x20eb call table cusolverDnSgesvdj_bufferSize(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo]) pure;
            0x20ec post table cusolverDnSgetrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Workspace: device, devIpiv: device, devInfo: device) work;
            0x20ed call table cusolverDnSgetrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x20ee post table cusolverDnSgetrs(handle: handle[CusolverDn], trans: i32, n: i32, nrhs: i32, A: device, lda: i32, devIpiv: device, B: device, ldb: i32, devInfo: device) work;
            0x20ef post table cusolverDnSlaswp(handle: handle[CusolverDn], n: i32, A: device, lda: i32, k1: i32, k2: i32, devIpiv: device, incx: i32) work;
            0x20f0 post table cusolverDnSlauum(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x20f1 call table cusolverDnSlauum_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x20f2 post table cusolverDnSorgbr(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x20f3 call table cusolverDnSorgbr_bufferSize(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x20f4 post table cusolverDnSorgqr(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x20f5 call table cusolverDnSorgqr_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x20f6 post table cusolverDnSorgtr(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x20f7 call table cusolverDnSorgtr_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x20f8 post table cusolverDnSormqr(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, devInfo: device) work;
            0x20f9 call table cusolverDnSormqr_bufferSize(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x20fa post table cusolverDnSormtr(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, info: device) work;
            0x20fb call table cusolverDnSormtr_bufferSize(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x20fc post table cusolverDnSpotrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Workspace: device, Lwork: i32, devInfo: device) work;
            0x20fd post table cusolverDnSpotrfBatched(handle: handle[CusolverDn], uplo: i32, n: i32, Aarray: device, lda: i32, infoArray: device, batchSize: i32) work;
            0x20fe call table cusolverDnSpotrf_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x20ff post table cusolverDnSpotri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2100 call table cusolverDnSpotri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2101 post table cusolverDnSpotrs(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, devInfo: device) work;
            0x2102 post table cusolverDnSpotrsBatched(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, d_info: device, batchSize: i32) work;
            0x2103 wait table cusolverDnSsyevd(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device) work;
            0x2104 call table cusolverDnSsyevd_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4]) pure;
            0x2105 wait table cusolverDnSsyevdx(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x2106 call table cusolverDnSsyevdx_bufferSize(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x2107 wait table cusolverDnSsyevj(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x2108 wait table cusolverDnSsyevjBatched(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo], batchSize: i32) work;
            0x2109 call table cusolverDnSsyevjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo], batchSize: i32) pure;
            0x210a call table cusolverDnSsyevj_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x210b wait table cusolverDnSsygvd(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device) work;
            0x210c call table cusolverDnSsygvd_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4]) pure;
            0x210d wait table cusolverDnSsygvdx(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x210e call table cusolverDnSsygvdx_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f32, vu: f32, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x210f wait table cusolverDnSsygvj(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x2110 call table cusolverDnSsygvj_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x2111 post table cusolverDnSsytrd(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, work: device, lwork: i32, info: device) work;
            0x2112 call table cusolverDnSsytrd_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, lwork: out[4]) pure;
            0x2113 post table cusolverDnSsytrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x2114 call table cusolverDnSsytrf_bufferSize(handle: handle[CusolverDn], n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2115 post table cusolverDnSsytri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x2116 call table cusolverDnSsytri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, lwork: out[4]) pure;
            0x2117 wait table cusolverDnSyevd(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, computeType: i32, pBuffer: device, workspaceInBytes: i64, info: device) work;
            0x2118 call table cusolverDnSyevd_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, computeType: i32, workspaceInBytes: out[8]) pure;
            0x2119 wait table cusolverDnSyevdx(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, range: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, vl: in[dataTypeW], vu: in[dataTypeW], il: i64, iu: i64, meig64: out[8], dataTypeW: i32, W: device, computeType: i32, pBuffer: device, workspaceInBytes: i64, info: device) work;
            0x211a call table cusolverDnSyevdx_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, range: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, vl: in[dataTypeW], vu: in[dataTypeW], il: i64, iu: i64, h_meig: out[8], dataTypeW: i32, W: device, computeType: i32, workspaceInBytes: out[8]) pure;
            0x211b wait table cusolverDnXgeev(handle: handle[CusolverDn], params: object[CusolverDnParams], jobvl: i32, jobvr: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, dataTypeVL: i32, VL: device, ldvl: i64, dataTypeVR: i32, VR: device, ldvr: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x211c call table cusolverDnXgeev_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobvl: i32, jobvr: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, dataTypeVL: i32, VL: device, ldvl: i64, dataTypeVR: i32, VR: device, ldvr: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x211d post table cusolverDnXgeqrf(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeTau: i32, tau: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x211e call table cusolverDnXgeqrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeTau: i32, tau: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x211f wait table cusolverDnXgesvd(handle: handle[CusolverDn], params: object[CusolverDnParams], jobu: i32, jobvt: i32, m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeS: i32, S: device, dataTypeU: i32, U: device, ldu: i64, dataTypeVT: i32, VT: device, ldvt: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x2120 call table cusolverDnXgesvd_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobu: i32, jobvt: i32, m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeS: i32, S: device, dataTypeU: i32, U: device, ldu: i64, dataTypeVT: i32, VT: device, ldvt: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2121 wait table cusolverDnXgesvdjGetResidual(handle: handle[CusolverDn], info: object[GesvdjInfo], residual: out[8]);
            0x2122 wait table cusolverDnXgesvdjGetSweeps(handle: handle[CusolverDn], info: object[GesvdjInfo], executed_sweeps: out[4]);
            0x2123 post table cusolverDnXgesvdjSetMaxSweeps(info: object[GesvdjInfo], max_sweeps: i32);
            0x2124 post table cusolverDnXgesvdjSetSortEig(info: object[GesvdjInfo], sort_svd: i32);
            0x2125 post table cusolverDnXgesvdjSetTolerance(info: object[GesvdjInfo], tolerance: f64);
            0x2126 wait table cusolverDnXgesvdp(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, econ: i32, m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeS: i32, S: device, dataTypeU: i32, U: device, ldu: i64, dataTypeV: i32, V: device, ldv: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, d_info: device, h_err_sigma: out[8]) work;
            0x2127 call table cusolverDnXgesvdp_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, econ: i32, m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeS: i32, S: device, dataTypeU: i32, U: device, ldu: i64, dataTypeV: i32, V: device, ldv: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2128 wait table cusolverDnXgesvdr(handle: handle[CusolverDn], params: object[CusolverDnParams], jobu: i32, jobv: i32, m: i64, n: i64, k: i64, p: i64, niters: i64, dataTypeA: i32, A: device, lda: i64, dataTypeSrand: i32, Srand: device, dataTypeUrand: i32, Urand: device, ldUrand: i64, dataTypeVrand: i32, Vrand: device, ldVrand: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, d_info: device) work;
            0x2129 call table cusolverDnXgesvdr_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobu: i32, jobv: i32, m: i64, n: i64, k: i64, p: i64, niters: i64, dataTypeA: i32, A: device, lda: i64, dataTypeSrand: i32, Srand: device, dataTypeUrand: i32, Urand: device, ldUrand: i64, dataTypeVrand: i32, Vrand: device, ldVrand: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x212a post table cusolverDnXgetrf(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x212b call table cusolverDnXgetrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], m: i64, n: i64, dataTypeA: i32, A: device, lda: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x212c post table cusolverDnXgetrs(handle: handle[CusolverDn], params: object[CusolverDnParams], trans: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, dataTypeB: i32, B: device, ldb: i64, info: device) work;
            0x212d post table cusolverDnXhetrf(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x212e call table cusolverDnXhetrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x212f post table cusolverDnXhetrs(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, dataTypeB: i32, B: device, ldb: i64, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x2130 call table cusolverDnXhetrs_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, dataTypeB: i32, B: device, ldb: i64, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2131 post table cusolverDnXlarft(handle: handle[CusolverDn], params: object[CusolverDnParams], direct: i32, storev: i32, n: i64, k: i64, dataTypeV: i32, V: device, ldv: i64, dataTypeTau: i32, tau: device, dataTypeT: i32, T: device, ldt: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64) work;
            0x2132 call table cusolverDnXlarft_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], direct: i32, storev: i32, n: i64, k: i64, dataTypeV: i32, V: device, ldv: i64, dataTypeTau: i32, tau: device, dataTypeT: i32, T: device, ldt: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2133 post table cusolverDnXpolar(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, M: i64, N: i64, dataTypeA: i32, A: device, lda: i64, dataTypeH: i32, H: device, ldh: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, d_res_nrm: device, d_A_nrmF: device, d_rcond: device, d_info: device) work;
            0x2134 call table cusolverDnXpolar_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, M: i64, N: i64, dataTypeA: i32, A: device, lda: i64, dataTypeH: i32, H: device, ldh: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2135 post table cusolverDnXpotrf(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x2136 call table cusolverDnXpotrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2137 post table cusolverDnXpotrs(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, dataTypeB: i32, B: device, ldb: i64, info: device) work;
            0x2138 wait table cusolverDnXsyevBatched(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device, batchSize: i64) work;
            0x2139 call table cusolverDnXsyevBatched_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8], batchSize: i64) pure;
            0x213a wait table cusolverDnXsyevd(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x213b call table cusolverDnXsyevd_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, dataTypeW: i32, W: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x213c wait table cusolverDnXsyevdx(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, range: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, vl: in[dataTypeW], vu: in[dataTypeW], il: i64, iu: i64, meig64: out[8], dataTypeW: i32, W: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x213d call table cusolverDnXsyevdx_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], jobz: i32, range: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, vl: in[dataTypeW], vu: in[dataTypeW], il: i64, iu: i64, h_meig: out[8], dataTypeW: i32, W: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x213e wait table cusolverDnXsyevjGetResidual(handle: handle[CusolverDn], info: object[SyevjInfo], residual: out[8]);
            0x213f wait table cusolverDnXsyevjGetSweeps(handle: handle[CusolverDn], info: object[SyevjInfo], executed_sweeps: out[4]);
            0x2140 post table cusolverDnXsyevjSetMaxSweeps(info: object[SyevjInfo], max_sweeps: i32);
            0x2141 post table cusolverDnXsyevjSetSortEig(info: object[SyevjInfo], sort_eig: i32);
            0x2142 post table cusolverDnXsyevjSetTolerance(info: object[SyevjInfo], tolerance: f64);
            0x2143 wait table cusolverDnXsygvStridedBatched(handle: handle[CusolverDn], params: object[CusolverDnParams], itype: i32, jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, strideA: i64, dataTypeB: i32, B: device, ldb: i64, strideB: i64, dataTypeW: i32, W: device, strideW: i64, computeType: i32, batchSize: i64, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x2144 call table cusolverDnXsygvStridedBatched_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], itype: i32, jobz: i32, uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, strideA: i64, dataTypeB: i32, B: device, ldb: i64, strideB: i64, dataTypeW: i32, W: device, strideW: i64, computeType: i32, batchSize: i64, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2145 wait table cusolverDnXsygvd(handle: handle[CusolverDn], params: object[CusolverDnParams], itype: i32, jobz: i32, uplo: i32, n: i64, dataTypeA: i32, d_A: device, lda: i64, dataTypeB: i32, d_B: device, ldb: i64, dataTypeW: i32, d_W: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, d_info: device) work;
            0x2146 call table cusolverDnXsygvd_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], itype: i32, jobz: i32, uplo: i32, n: i64, dataTypeA: i32, d_A: device, lda: i64, dataTypeB: i32, d_B: device, ldb: i64, dataTypeW: i32, d_W: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2147 wait table cusolverDnXsygvdx(handle: handle[CusolverDn], params: object[CusolverDnParams], itype: i32, jobz: i32, range: i32, uplo: i32, n: i64, dataTypeA: i32, d_A: device, lda: i64, dataTypeB: i32, d_B: device, ldb: i64, vl: in[dataTypeW], vu: in[dataTypeW], il: i64, iu: i64, meig: out[8], dataTypeW: i32, d_W: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, d_info: device) work;
            0x2148 call table cusolverDnXsygvdx_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], itype: i32, jobz: i32, uplo: i32, n: i64, dataTypeA: i32, d_A: device, lda: i64, dataTypeB: i32, d_B: device, ldb: i64, vl: in[dataTypeW], vu: in[dataTypeW], il: i64, iu: i64, meig: out[8], dataTypeW: i32, d_W: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x2149 post table cusolverDnXsytrf(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, computeType: i32, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x214a call table cusolverDnXsytrf_bufferSize(handle: handle[CusolverDn], params: object[CusolverDnParams], uplo: i32, n: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, computeType: i32, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x214b post table cusolverDnXsytrs(handle: handle[CusolverDn], uplo: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, dataTypeB: i32, B: device, ldb: i64, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, info: device) work;
            0x214c call table cusolverDnXsytrs_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i64, nrhs: i64, dataTypeA: i32, A: device, lda: i64, ipiv: device, dataTypeB: i32, B: device, ldb: i64, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x214d post table cusolverDnXtrtri(handle: handle[CusolverDn], uplo: i32, diag: i32, n: i64, dataTypeA: i32, A: device, lda: i64, bufferOnDevice: device, workspaceInBytesOnDevice: i64, bufferOnHost: scratch[workspaceInBytesOnHost], workspaceInBytesOnHost: i64, devInfo: device) work;
            0x214e call table cusolverDnXtrtri_bufferSize(handle: handle[CusolverDn], uplo: i32, diag: i32, n: i64, dataTypeA: i32, A: device, lda: i64, workspaceInBytesOnDevice: out[8], workspaceInBytesOnHost: out[8]) pure;
            0x214f wait table cusolverDnZCgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2150 call table cusolverDnZCgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2151 wait table cusolverDnZCgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2152 call table cusolverDnZCgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2153 wait table cusolverDnZEgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2154 call table cusolverDnZEgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2155 wait table cusolverDnZEgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2156 call table cusolverDnZEgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2157 wait table cusolverDnZKgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2158 call table cusolverDnZKgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2159 wait table cusolverDnZKgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x215a call table cusolverDnZKgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x215b wait table cusolverDnZYgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x215c call table cusolverDnZYgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x215d wait table cusolverDnZYgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x215e call table cusolverDnZYgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x215f wait table cusolverDnZZgels(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2160 call table cusolverDnZZgels_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, nrhs: i32, dA: device, ldda: i32, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2161 wait table cusolverDnZZgesv(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: i64, iter: out[4], d_info: device) work;
            0x2162 call table cusolverDnZZgesv_bufferSize(handle: handle[CusolverDn], n: i32, nrhs: i32, dA: device, ldda: i32, dipiv: device, dB: device, lddb: i32, dX: device, lddx: i32, dWorkspace: device, lwork_bytes: out[8]) pure;
            0x2163 post table cusolverDnZgebrd(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, D: device, E: device, TAUQ: device, TAUP: device, Work: device, Lwork: i32, devInfo: device) work;
            0x2164 call table cusolverDnZgebrd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, Lwork: out[4]) pure;
            0x2165 post table cusolverDnZgeqrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, TAU: device, Workspace: device, Lwork: i32, devInfo: device) work;
            0x2166 call table cusolverDnZgeqrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2167 wait table cusolverDnZgesvd(handle: handle[CusolverDn], jobu: i32, jobvt: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, VT: device, ldvt: i32, work: device, lwork: i32, rwork: device, info: device) work;
            0x2168 call table cusolverDnZgesvd_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, lwork: out[4]) pure;
            0x2169 wait table cusolverDnZgesvdaStridedBatched(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, d_work: device, lwork: i32, d_info: device, h_R_nrmF: outs[8, batchSize], batchSize: i32) work;
            0x216a call table cusolverDnZgesvdaStridedBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, rank: i32, m: i32, n: i32, d_A: device, lda: i32, strideA: i64, d_S: device, strideS: i64, d_U: device, ldu: i32, strideU: i64, d_V: device, ldv: i32, strideV: i64, lwork: out[4], batchSize: i32) pure;
            0x216b wait table cusolverDnZgesvdj(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo]) work;
            0x216c wait table cusolverDnZgesvdjBatched(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, work: device, lwork: i32, info: device, params: object[GesvdjInfo], batchSize: i32) work;
            0x216d call table cusolverDnZgesvdjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo], batchSize: i32) pure;
            0x216e call table cusolverDnZgesvdj_bufferSize(handle: handle[CusolverDn], jobz: i32, econ: i32, m: i32, n: i32, A: device, lda: i32, S: device, U: device, ldu: i32, V: device, ldv: i32, lwork: out[4], params: object[GesvdjInfo]) pure;
            0x216f post table cusolverDnZgetrf(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Workspace: device, devIpiv: device, devInfo: device) work;
            0x2170 call table cusolverDnZgetrf_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x2171 post table cusolverDnZgetrs(handle: handle[CusolverDn], trans: i32, n: i32, nrhs: i32, A: device, lda: i32, devIpiv: device, B: device, ldb: i32, devInfo: device) work;
            0x2172 wait table cusolverDnZheevd(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device) work;
            0x2173 call table cusolverDnZheevd_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4]) pure;
            0x2174 wait table cusolverDnZheevdx(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x2175 call table cusolverDnZheevdx_bufferSize(handle: handle[CusolverDn], jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x2176 wait table cusolverDnZheevj(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x2177 wait table cusolverDnZheevjBatched(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo], batchSize: i32) work;
            0x2178 call table cusolverDnZheevjBatched_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo], batchSize: i32) pure;
            0x2179 call table cusolverDnZheevj_bufferSize(handle: handle[CusolverDn], jobz: i32, uplo: i32, n: i32, A: device, lda: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x217a wait table cusolverDnZhegvd(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device) work;
            0x217b call table cusolverDnZhegvd_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4]) pure;
            0x217c wait table cusolverDnZhegvdx(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, work: device, lwork: i32, info: device) work;
            0x217d call table cusolverDnZhegvdx_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, range: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, vl: f64, vu: f64, il: i32, iu: i32, meig: out[4], W: device, lwork: out[4]);
            0x217e wait table cusolverDnZhegvj(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, work: device, lwork: i32, info: device, params: object[SyevjInfo]) work;
            0x217f call table cusolverDnZhegvj_bufferSize(handle: handle[CusolverDn], itype: i32, jobz: i32, uplo: i32, n: i32, A: device, lda: i32, B: device, ldb: i32, W: device, lwork: out[4], params: object[SyevjInfo]) pure;
            0x2180 post table cusolverDnZhetrd(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, work: device, lwork: i32, info: device) work;
            0x2181 call table cusolverDnZhetrd_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, d: device, e: device, tau: device, lwork: out[4]) pure;
            0x2182 post table cusolverDnZlaswp(handle: handle[CusolverDn], n: i32, A: device, lda: i32, k1: i32, k2: i32, devIpiv: device, incx: i32) work;
            0x2183 post table cusolverDnZlauum(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2184 call table cusolverDnZlauum_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x2185 post table cusolverDnZpotrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Workspace: device, Lwork: i32, devInfo: device) work;
            0x2186 post table cusolverDnZpotrfBatched(handle: handle[CusolverDn], uplo: i32, n: i32, Aarray: device, lda: i32, infoArray: device, batchSize: i32) work;
            0x2187 call table cusolverDnZpotrf_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, Lwork: out[4]) pure;
            0x2188 post table cusolverDnZpotri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, work: device, lwork: i32, devInfo: device) work;
            0x2189 call table cusolverDnZpotri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x218a post table cusolverDnZpotrs(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, devInfo: device) work;
            0x218b post table cusolverDnZpotrsBatched(handle: handle[CusolverDn], uplo: i32, n: i32, nrhs: i32, A: device, lda: i32, B: device, ldb: i32, d_info: device, batchSize: i32) work;
            0x218c post table cusolverDnZsytrf(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x218d call table cusolverDnZsytrf_bufferSize(handle: handle[CusolverDn], n: i32, A: device, lda: i32, lwork: out[4]) pure;
            0x218e post table cusolverDnZsytri(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, work: device, lwork: i32, info: device) work;
            0x218f call table cusolverDnZsytri_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, ipiv: device, lwork: out[4]) pure;
            0x2190 post table cusolverDnZungbr(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2191 call table cusolverDnZungbr_bufferSize(handle: handle[CusolverDn], side: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2192 post table cusolverDnZungqr(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2193 call table cusolverDnZungqr_bufferSize(handle: handle[CusolverDn], m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2194 post table cusolverDnZungtr(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, work: device, lwork: i32, info: device) work;
            0x2195 call table cusolverDnZungtr_bufferSize(handle: handle[CusolverDn], uplo: i32, n: i32, A: device, lda: i32, tau: device, lwork: out[4]) pure;
            0x2196 post table cusolverDnZunmqr(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, devInfo: device) work;
            0x2197 call table cusolverDnZunmqr_bufferSize(handle: handle[CusolverDn], side: i32, trans: i32, m: i32, n: i32, k: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x2198 post table cusolverDnZunmtr(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, work: device, lwork: i32, info: device) work;
            0x2199 call table cusolverDnZunmtr_bufferSize(handle: handle[CusolverDn], side: i32, uplo: i32, trans: i32, m: i32, n: i32, A: device, lda: i32, tau: device, C: device, ldc: i32, lwork: out[4]) pure;
            0x219a wait table cusolverSpCcsrlsvchol(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f32, reorder: i32, x: device, singularity: out[4]) work;
            0x219b wait table cusolverSpCcsrlsvqr(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f32, reorder: i32, x: device, singularity: out[4]) work;
            0x219c call table cusolverSpCcsrqrBufferInfoBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, batchSize: i32, info: object[CsrqrInfo], internalDataInBytes: out[8], workspaceInBytes: out[8]);
            0x219d post table cusolverSpCcsrqrsvBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrValA: device, csrRowPtrA: device, csrColIndA: device, b: device, x: device, batchSize: i32, info: object[CsrqrInfo], pBuffer: device) work;
            0x219e post table cusolverSpCreateCsrqrInfo(info: new[CsrqrInfo]);
            0x219f wait table cusolverSpDcsrlsvchol(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f64, reorder: i32, x: device, singularity: out[4]) work;
            0x21a0 wait table cusolverSpDcsrlsvqr(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f64, reorder: i32, x: device, singularity: out[4]) work;
            0x21a1 call table cusolverSpDcsrqrBufferInfoBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, batchSize: i32, info: object[CsrqrInfo], internalDataInBytes: out[8], workspaceInBytes: out[8]);
            0x21a2 post table cusolverSpDcsrqrsvBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrValA: device, csrRowPtrA: device, csrColIndA: device, b: device, x: device, batchSize: i32, info: object[CsrqrInfo], pBuffer: device) work;
            0x21a3 post table cusolverSpDestroyCsrqrInfo(info: gone[CsrqrInfo]);
            0x21a4 wait table cusolverSpScsrlsvchol(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f32, reorder: i32, x: device, singularity: out[4]) work;
            0x21a5 wait table cusolverSpScsrlsvqr(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f32, reorder: i32, x: device, singularity: out[4]) work;
            0x21a6 call table cusolverSpScsrqrBufferInfoBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, batchSize: i32, info: object[CsrqrInfo], internalDataInBytes: out[8], workspaceInBytes: out[8]);
            0x21a7 post table cusolverSpScsrqrsvBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrValA: device, csrRowPtrA: device, csrColIndA: device, b: device, x: device, batchSize: i32, info: object[CsrqrInfo], pBuffer: device) work;
            0x21a8 wait table cusolverSpXcsrqrAnalysisBatched(handle: handle[CusolverSp], m: i32, n: i32, nnzA: i32, descrA: object[CusparseMatDescr], csrRowPtrA: device, csrColIndA: device, info: object[CsrqrInfo]) work;
            0x21a9 wait table cusolverSpZcsrlsvchol(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f64, reorder: i32, x: device, singularity: out[4]) work;
            0x21aa wait table cusolverSpZcsrlsvqr(handle: handle[CusolverSp], m: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, b: device, tol: f64, reorder: i32, x: device, singularity: out[4]) work;
            0x21ab call table cusolverSpZcsrqrBufferInfoBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrVal: device, csrRowPtr: device, csrColInd: device, batchSize: i32, info: object[CsrqrInfo], internalDataInBytes: out[8], workspaceInBytes: out[8]);
            0x21ac post table cusolverSpZcsrqrsvBatched(handle: handle[CusolverSp], m: i32, n: i32, nnz: i32, descrA: object[CusparseMatDescr], csrValA: device, csrRowPtrA: device, csrColIndA: device, b: device, x: device, batchSize: i32, info: object[CsrqrInfo], pBuffer: device) work;
        }
    };
}

#[cfg(test)]
mod tests {
    use crate::libraries::{Kind, Library};

    /// A row that declares one of these a device address lets the guest choose a host address.
    #[test]
    fn host_addresses_are_no_device_addresses() {
        let of_host = [
            "h_R_nrmF",
            "h_err_sigma",
            "h_meig",
            "meig",
            "meig64",
            "vl",
            "vu",
            "iter",
            "niters",
            "outer_niters",
            "maxiters",
            "executed_sweeps",
            "residual",
            "singularity",
            "bufferOnHost",
            "workspaceInBytesOnHost",
            "internalDataInBytes",
        ];
        let mut found = Vec::new();
        for of in Library::Cusolver.functions() {
            for (argument, kind) in of.operation.description().arguments.iter().zip(of.kinds) {
                if of_host.contains(&argument.name) {
                    assert_ne!(*kind, Kind::Device, "{}", of.operation.name);
                    found.push(argument.name);
                }
                let is_size = argument.name.to_ascii_lowercase().starts_with("lwork");
                if is_size {
                    assert!(matches!(kind, Kind::I32 | Kind::I64 | Kind::Out(_)));
                }
            }
        }
        assert!(of_host.iter().all(|name| found.contains(name)));
    }

    /// The guest would answer some calls wrongly: those whose options are objects that the library changes by itself,
    /// and those with numbers that are not part of their form.
    #[test]
    fn sizes_that_are_kept_depend_on_the_form_alone() {
        use crate::{api::Property, libraries::Class};
        for of in Library::Cusolver.functions() {
            if of.operation.is(Property::Pure) {
                assert!(of.kinds.iter().all(|kind| {
                    match kind {
                        Kind::F32 | Kind::F64 => false,
                        Kind::Object(class) => {
                            [Class::CusolverDnParams, Class::GesvdjInfo, Class::SyevjInfo]
                                .contains(class)
                        }
                        _ => true,
                    }
                }));
            }
        }
    }
}
