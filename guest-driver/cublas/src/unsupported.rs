// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuBLAS's functions that are not supported. They are exported, so that programs start, and return an error.
//!
//! The other names that the library of CUDA 13.0 exports.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::cublas::status;

// The API from before CUDA 4 (cublas.h), in which a process has one implicit handle.
unsupported! { status::NOT_SUPPORTED;
        cublasAlloc cublasCaxpy cublasCbdmm cublasCcopy cublasCdotc cublasCdotu cublasCgbmv
        cublasCgemm cublasCgemv cublasCgerc cublasCgeru cublasChbmv cublasChemm cublasChemv
        cublasCher cublasCher2 cublasCher2k cublasCherk cublasChpmv cublasChpr cublasChpr2
        cublasCrot cublasCrotg cublasCscal cublasCsrot cublasCsscal cublasCswap cublasCsymm
        cublasCsyr2k cublasCsyrk cublasCtbmv cublasCtbsv cublasCtpmv cublasCtpsv cublasCtrmm
        cublasCtrmv cublasCtrsm cublasCtrsv cublasDasum cublasDaxpy cublasDbdmm cublasDcopy
        cublasDdot cublasDgbmv cublasDgemm cublasDgemv cublasDger cublasDnrm2 cublasDrot cublasDrotg
        cublasDrotm cublasDrotmg cublasDsbmv cublasDscal cublasDspmv cublasDspr cublasDspr2
        cublasDswap cublasDsymm cublasDsymv cublasDsyr cublasDsyr2 cublasDsyr2k cublasDsyrk
        cublasDtbmv cublasDtbsv cublasDtpmv cublasDtpsv cublasDtrmm cublasDtrmv cublasDtrsm
        cublasDtrsv cublasDzasum cublasDznrm2 cublasFree cublasGetError cublasGetVersion
        cublasIcamax cublasIcamin cublasIdamax cublasIdamin cublasInit cublasIsamax cublasIsamin
        cublasIzamax cublasIzamin cublasSasum cublasSaxpy cublasSbdmm cublasScasum cublasScnrm2
        cublasScopy cublasSdot cublasSetKernelStream cublasSgbmv cublasSgemm cublasSgemv cublasSger
        cublasShutdown cublasSnrm2 cublasSrot cublasSrotg cublasSrotm cublasSrotmg cublasSsbmv
        cublasSscal cublasSspmv cublasSspr cublasSspr2 cublasSswap cublasSsymm cublasSsymv
        cublasSsyr cublasSsyr2 cublasSsyr2k cublasSsyrk cublasStbmv cublasStbsv cublasStpmv
        cublasStpsv cublasStrmm cublasStrmv cublasStrsm cublasStrsv cublasZaxpy cublasZbdmm
        cublasZcopy cublasZdotc cublasZdotu cublasZdrot cublasZdscal cublasZgbmv cublasZgemm
        cublasZgemv cublasZgerc cublasZgeru cublasZhbmv cublasZhemm cublasZhemv cublasZher
        cublasZher2 cublasZher2k cublasZherk cublasZhpmv cublasZhpr cublasZhpr2 cublasZrot
        cublasZrotg cublasZscal cublasZswap cublasZsymm cublasZsyr2k cublasZsyrk cublasZtbmv
        cublasZtbsv cublasZtpmv cublasZtpsv cublasZtrmm cublasZtrmv cublasZtrsm cublasZtrsv
}

// cuBLASXt (cublasXt.h), which distributes a product over several GPUs.
unsupported! { status::NOT_SUPPORTED;
        cublasXtCgemm cublasXtChemm cublasXtCher2k cublasXtCherk cublasXtCherkx cublasXtCreate
        cublasXtCspmm cublasXtCsymm cublasXtCsyr2k cublasXtCsyrk cublasXtCsyrkx cublasXtCtrmm
        cublasXtCtrsm cublasXtDestroy cublasXtDeviceSelect cublasXtDgemm cublasXtDspmm cublasXtDsymm
        cublasXtDsyr2k cublasXtDsyrk cublasXtDsyrkx cublasXtDtrmm cublasXtDtrsm cublasXtGetBlockDim
        cublasXtGetNumBoards cublasXtGetPinningMemMode cublasXtMaxBoards cublasXtSetBlockDim
        cublasXtSetCpuRatio cublasXtSetCpuRoutine cublasXtSetPinningMemMode cublasXtSgemm
        cublasXtSspmm cublasXtSsymm cublasXtSsyr2k cublasXtSsyrk cublasXtSsyrkx cublasXtStrmm
        cublasXtStrsm cublasXtZgemm cublasXtZhemm cublasXtZher2k cublasXtZherk cublasXtZherkx
        cublasXtZspmm cublasXtZsymm cublasXtZsyr2k cublasXtZsyrk cublasXtZsyrkx cublasXtZtrmm
        cublasXtZtrsm
}

// Settings of emulated arithmetic and of NVIDIA's own tools.
unsupported! { status::NOT_SUPPORTED;
        cublasGetBackdoor cublasGetEmulationSpecialValuesSupport cublasGetEnvironmentMode
        cublasGetFixedPointEmulationMantissaBitCountPointer
        cublasGetFixedPointEmulationMantissaBitOffset cublasGetFixedPointEmulationMantissaControl
        cublasGetFixedPointEmulationMaxMantissaBitCount cublasSetBackdoor cublasSetBackdoorEx
        cublasSetEmulationSpecialValuesSupport cublasSetEnvironmentMode
        cublasSetFixedPointEmulationMantissaBitCountPointer
        cublasSetFixedPointEmulationMantissaBitOffset cublasSetFixedPointEmulationMantissaControl
        cublasSetFixedPointEmulationMaxMantissaBitCount
}
