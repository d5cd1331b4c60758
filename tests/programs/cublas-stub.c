// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcublas where no cuBLAS is installed: the names that the test programs use, and the soname of the
 * library that is loaded when they run. Never loaded itself. 1 is CUBLAS_STATUS_NOT_INITIALIZED.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 1; }

STUB(cublasCreate_v2)
STUB(cublasDestroy_v2)
STUB(cublasGetVersion_v2)
STUB(cublasSetStream_v2)
STUB(cublasSetWorkspace_v2)
STUB(cublasSetPointerMode_v2)
STUB(cublasSdot_v2)
STUB(cublasDnrm2_v2)
STUB(cublasDdot_v2)
STUB(cublasDscal_v2)
STUB(cublasDgemv_v2)
STUB(cublasSgemm_v2)
STUB(cublasDgemmStridedBatched)
STUB(cublasGemmEx)
