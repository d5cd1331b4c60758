// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcusparseLt where no cuSPARSELt is installed: the names that the test programs use, and the soname of
 * the library that is loaded when they run. Never loaded itself. 1 is CUSPARSE_STATUS_NOT_INITIALIZED.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 1; }

STUB(cusparseLtInit)
STUB(cusparseLtDestroy)
STUB(cusparseLtDenseDescriptorInit)
STUB(cusparseLtStructuredDescriptorInit)
STUB(cusparseLtMatDescriptorDestroy)
STUB(cusparseLtMatmulDescriptorInit)
STUB(cusparseLtMatmulDescSetAttribute)
STUB(cusparseLtMatmulAlgSelectionInit)
STUB(cusparseLtMatmulPlanInit)
STUB(cusparseLtMatmulPlanDestroy)
STUB(cusparseLtMatmulGetWorkspace)
STUB(cusparseLtMatmul)
STUB(cusparseLtMatmulSearch)
STUB(cusparseLtSpMMAPrune)
STUB(cusparseLtSpMMAPruneCheck)
STUB(cusparseLtSpMMACompressedSize)
STUB(cusparseLtSpMMACompress)
