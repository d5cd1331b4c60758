// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcufft and -lcurand where neither is installed: the names that the test programs use. Built twice, with
 * the soname of each library that is loaded when they run. Never loaded itself. 7 is CUFFT_SETUP_FAILED, and no success
 * in cuRAND either.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 7; }

#ifdef CURAND
STUB(curandCreateGenerator)
STUB(curandDestroyGenerator)
STUB(curandSetStream)
STUB(curandSetPseudoRandomGeneratorSeed)
STUB(curandSetGeneratorOffset)
STUB(curandGenerateUniform)
#else
STUB(cufftPlan2d)
STUB(cufftDestroy)
STUB(cufftSetStream)
STUB(cufftExecR2C)
STUB(cufftExecC2R)
#endif
