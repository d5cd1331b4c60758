//! `libcublasLt.so` for a virtio-gpgpu guest: it refuses, for the host does not serve cuBLASLt yet.
//!
//! NVIDIA's own cannot take its place. Programs give it handles of cuBLAS as its own, which here are the guest library's: it would read
//! memory at their numbers. So it stands beside our libcublas in the folder of our libraries, and its functions return
//! `CUBLAS_STATUS_NOT_SUPPORTED` and name themselves once.

#![allow(non_snake_case)]

use std::ffi::c_char;

use gpgpu_protocol::libraries::cublas::{STATUSES, status};

/// `cublasLtGetVersion`: there is no version of what is not served.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    0
}

/// `cublasLtGetCudartVersion`: as for the version.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetCudartVersion() -> usize {
    0
}

/// `cublasLtGetStatusName`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusName(status: u32) -> *const c_char {
    STATUSES.name(status).as_ptr()
}

/// `cublasLtGetStatusString`.
#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetStatusString(status: u32) -> *const c_char {
    STATUSES.text(status).as_ptr()
}

gpgpu_client::unsupported! { status::NOT_SUPPORTED;
    cublasLtCreate cublasLtDestroy cublasLtEmulationDescCreate cublasLtEmulationDescDestroy
    cublasLtEmulationDescGetAttribute cublasLtEmulationDescInit_internal
    cublasLtEmulationDescSetAttribute cublasLtGetProperty cublasLtGroupedMatrixLayoutCreate
    cublasLtGroupedMatrixLayoutInit_internal cublasLtHeuristicsCacheGetCapacity
    cublasLtHeuristicsCacheSetCapacity cublasLtLoggerForceDisable cublasLtLoggerOpenFile
    cublasLtLoggerSetCallback cublasLtLoggerSetFile cublasLtLoggerSetLevel cublasLtLoggerSetMask
    cublasLtMatmul cublasLtMatmulAlgoCapGetAttribute cublasLtMatmulAlgoCheck
    cublasLtMatmulAlgoCheckForStream cublasLtMatmulAlgoConfigGetAttribute
    cublasLtMatmulAlgoConfigSetAttribute cublasLtMatmulAlgoGetHeuristic
    cublasLtMatmulAlgoGetHeuristicForStream cublasLtMatmulAlgoGetIds cublasLtMatmulAlgoInit
    cublasLtMatmulDescCreate cublasLtMatmulDescDestroy cublasLtMatmulDescGetAttribute
    cublasLtMatmulDescInit_internal cublasLtMatmulDescSetAttribute cublasLtMatmulPreferenceCreate
    cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceGetAttribute
    cublasLtMatmulPreferenceInit_internal cublasLtMatmulPreferenceSetAttribute
    cublasLtMatrixLayoutCreate cublasLtMatrixLayoutDestroy cublasLtMatrixLayoutGetAttribute
    cublasLtMatrixLayoutInit_internal cublasLtMatrixLayoutSetAttribute cublasLtMatrixTransform
    cublasLtMatrixTransformDescCreate cublasLtMatrixTransformDescDestroy
    cublasLtMatrixTransformDescGetAttribute cublasLtMatrixTransformDescInit_internal
    cublasLtMatrixTransformDescSetAttribute
}
