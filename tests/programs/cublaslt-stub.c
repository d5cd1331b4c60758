// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcublasLt where no cuBLASLt is installed: the names that the test programs use, and the soname of the
 * library that is loaded when they run. Never loaded itself. 1 is CUBLAS_STATUS_NOT_INITIALIZED.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 1; }

STUB(cublasLtCreate)
STUB(cublasLtDestroy)
STUB(cublasLtMatmulDescCreate)
STUB(cublasLtMatmulDescDestroy)
STUB(cublasLtMatmulDescSetAttribute)
STUB(cublasLtMatrixLayoutCreate)
STUB(cublasLtMatrixLayoutDestroy)
STUB(cublasLtMatmulPreferenceCreate)
STUB(cublasLtMatmulPreferenceDestroy)
STUB(cublasLtMatmulPreferenceSetAttribute)
STUB(cublasLtMatmulAlgoGetHeuristic)
STUB(cublasLtMatmul)
