// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuFFT (cufft.h, cufftXt.h).
//!
//! A plan is an `int` in the program. The guest's library maps it to an object, so all rows are sent by hand.
//! `cufftSetAutoAllocation` has no row: a plan's work area is always the guest's own memory and is charged as such.

use super::Statuses;

/// The functions' results (`cufftResult`).
pub mod status {
    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// The plan does not exist, or has no transform.
    pub const INVALID_PLAN: u32 = 1;
    /// Memory ran out.
    pub const ALLOC_FAILED: u32 = 2;
    /// An argument is wrong.
    pub const INVALID_VALUE: u32 = 4;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 5;
    /// The GPU failed, or an object that the plan needs was destroyed.
    pub const EXEC_FAILED: u32 = 6;
    /// The library is missing.
    pub const SETUP_FAILED: u32 = 7;
    /// The plan is for another device.
    pub const INVALID_DEVICE: u32 = 11;
    /// The function does not exist here, or does not support this.
    pub const NOT_SUPPORTED: u32 = 16;
}

/// `cufftResult`.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::INVALID_PLAN,
    not_initialized: status::SETUP_FAILED,
    alloc_failed: status::ALLOC_FAILED,
    invalid_value: status::INVALID_VALUE,
    execution_failed: status::EXEC_FAILED,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::NOT_SUPPORTED,
    names: &[
        (0, c"CUFFT_SUCCESS", c"success"),
        (1, c"CUFFT_INVALID_PLAN", c"the plan is not valid"),
        (2, c"CUFFT_ALLOC_FAILED", c"memory ran out"),
        (3, c"CUFFT_INVALID_TYPE", c"the type is not valid"),
        (
            4,
            c"CUFFT_INVALID_VALUE",
            c"a pointer or a parameter is not valid",
        ),
        (5, c"CUFFT_INTERNAL_ERROR", c"an internal operation failed"),
        (6, c"CUFFT_EXEC_FAILED", c"the transform failed on the GPU"),
        (
            7,
            c"CUFFT_SETUP_FAILED",
            c"the library could not be initialized",
        ),
        (
            8,
            c"CUFFT_INVALID_SIZE",
            c"a size of the transform is not valid",
        ),
        (9, c"CUFFT_UNALIGNED_DATA", c"the data is not aligned"),
        (
            10,
            c"CUFFT_INCOMPLETE_PARAMETER_LIST",
            c"a parameter is missing",
        ),
        (
            11,
            c"CUFFT_INVALID_DEVICE",
            c"the plan is for another device",
        ),
        (12, c"CUFFT_PARSE_ERROR", c"the plan could not be read"),
        (13, c"CUFFT_NO_WORKSPACE", c"there is no work area"),
        (
            14,
            c"CUFFT_NOT_IMPLEMENTED",
            c"the function is not implemented",
        ),
        (15, c"CUFFT_LICENSE_ERROR", c"a license is missing"),
        (
            16,
            c"CUFFT_NOT_SUPPORTED",
            c"the parameters are not supported",
        ),
        (
            17,
            c"CUFFT_MISSING_DEPENDENCY",
            c"a library that is needed is missing",
        ),
        (18, c"CUFFT_NVRTC_FAILURE", c"compiling failed"),
        (19, c"CUFFT_NVJITLINK_FAILURE", c"linking failed"),
        (20, c"CUFFT_NVSHMEM_FAILURE", c"nvSHMEM failed"),
    ],
    unknown: (c"CUFFT_<unknown>", c"unknown status"),
};

/// Passes cuFFT's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cufft {
    ($callback:ident) => {
        $callback! {
            0x1800 call guest cufftCreate(plan: new[CufftPlan]);
            0x1801 wait guest cufftDestroy(plan: gone[CufftPlan]);
            0x1802 post guest cufftSetStream(plan: handle[CufftPlan], stream: stream);
            0x1803 post guest cufftSetWorkArea(plan: handle[CufftPlan], workArea: device);
            0x1804 call guest cufftGetVersion(version: out[4]) pure;
            0x1805 call guest cufftGetProperty(property: i32, value: out[4]) pure;
            0x1806 call guest cufftMakePlan1d(plan: handle[CufftPlan], nx: i32, kind: i32, batch: i32, workSize: out[8]);
            0x1807 call guest cufftMakePlan2d(plan: handle[CufftPlan], nx: i32, ny: i32, kind: i32, workSize: out[8]);
            0x1808 call guest cufftMakePlan3d(plan: handle[CufftPlan], nx: i32, ny: i32, nz: i32, kind: i32, workSize: out[8]);
            0x1809 call guest cufftMakePlanMany(plan: handle[CufftPlan], rank: i32, n: array[4, rank], inembed: list[4, rank], istride: i32, idist: i32, onembed: list[4, rank], ostride: i32, odist: i32, kind: i32, batch: i32, workSize: out[8]);
            0x180a call guest cufftMakePlanMany64(plan: handle[CufftPlan], rank: i32, n: array[8, rank], inembed: list[8, rank], istride: i64, idist: i64, onembed: list[8, rank], ostride: i64, odist: i64, kind: i32, batch: i64, workSize: out[8]);
            0x180b call guest cufftXtMakePlanMany(plan: handle[CufftPlan], rank: i32, n: array[8, rank], inembed: list[8, rank], istride: i64, idist: i64, inputtype: i32, onembed: list[8, rank], ostride: i64, odist: i64, outputtype: i32, batch: i64, workSize: out[8], executiontype: i32);
            0x180c call guest cufftGetSize1d(plan: handle[CufftPlan], nx: i32, kind: i32, batch: i32, workSize: out[8]);
            0x180d call guest cufftGetSize2d(plan: handle[CufftPlan], nx: i32, ny: i32, kind: i32, workSize: out[8]);
            0x180e call guest cufftGetSize3d(plan: handle[CufftPlan], nx: i32, ny: i32, nz: i32, kind: i32, workSize: out[8]);
            0x180f call guest cufftGetSizeMany(plan: handle[CufftPlan], rank: i32, n: array[4, rank], inembed: list[4, rank], istride: i32, idist: i32, onembed: list[4, rank], ostride: i32, odist: i32, kind: i32, batch: i32, workSize: out[8]);
            0x1810 call guest cufftGetSizeMany64(plan: handle[CufftPlan], rank: i32, n: array[8, rank], inembed: list[8, rank], istride: i64, idist: i64, onembed: list[8, rank], ostride: i64, odist: i64, kind: i32, batch: i64, workSize: out[8]);
            0x1811 call guest cufftXtGetSizeMany(plan: handle[CufftPlan], rank: i32, n: array[8, rank], inembed: list[8, rank], istride: i64, idist: i64, inputtype: i32, onembed: list[8, rank], ostride: i64, odist: i64, outputtype: i32, batch: i64, workSize: out[8], executiontype: i32);
            0x1812 call guest cufftGetSize(plan: handle[CufftPlan], workSize: out[8]);
            0x1813 call guest cufftXtSetWorkAreaPolicy(plan: handle[CufftPlan], policy: i32, workSize: inout[8]);
            0x1814 call guest cufftSetPlanPropertyInt64(plan: handle[CufftPlan], property: i32, value: i64);
            0x1815 call guest cufftGetPlanPropertyInt64(plan: handle[CufftPlan], property: i32, value: out[8]);
            0x1816 call guest cufftResetPlanProperty(plan: handle[CufftPlan], property: i32);
            0x1817 post guest cufftExecC2C(plan: handle[CufftPlan], idata: device, odata: device, direction: i32) work;
            0x1818 post guest cufftExecZ2Z(plan: handle[CufftPlan], idata: device, odata: device, direction: i32) work;
            0x1819 post guest cufftExecR2C(plan: handle[CufftPlan], idata: device, odata: device) work;
            0x181a post guest cufftExecC2R(plan: handle[CufftPlan], idata: device, odata: device) work;
            0x181b post guest cufftExecD2Z(plan: handle[CufftPlan], idata: device, odata: device) work;
            0x181c post guest cufftExecZ2D(plan: handle[CufftPlan], idata: device, odata: device) work;
            0x181d post guest cufftXtExec(plan: handle[CufftPlan], input: device, output: device, direction: i32) work;
        }
    };
}
