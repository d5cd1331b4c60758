// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcusolver where no cuSOLVER is installed: the names that the test programs use, and the soname of the
 * library that is loaded when they run. Never loaded itself. 1 is CUSOLVER_STATUS_NOT_INITIALIZED.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 1; }

STUB(cusolverDnCreate)
STUB(cusolverDnDestroy)
STUB(cusolverDnDgeqrf_bufferSize)
STUB(cusolverDnDgeqrf)
STUB(cusolverDnDormqr_bufferSize)
STUB(cusolverDnDormqr)
