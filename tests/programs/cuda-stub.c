// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcuda where no driver is installed: the names that the driver API programs use, and the soname of
 * the library that is loaded when they run. Never loaded itself. 34 is CUDA_ERROR_STUB_LIBRARY.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 34; }

STUB(cuInit)
STUB(cuDeviceGet)
STUB(cuDevicePrimaryCtxRetain)
STUB(cuDevicePrimaryCtxRelease_v2)
STUB(cuCtxSetCurrent)
STUB(cuModuleLoadData)
STUB(cuModuleUnload)
STUB(cuModuleGetFunction)
STUB(cuLaunchKernel)
STUB(cuMemAlloc_v2)
STUB(cuMemFree_v2)
STUB(cuMemAllocHost_v2)
STUB(cuMemFreeHost)
STUB(cuMemcpyHtoD_v2)
STUB(cuMemcpyDtoH_v2)
STUB(cuEventCreate)
STUB(cuEventDestroy_v2)
STUB(cuEventRecord)
STUB(cuEventSynchronize)
STUB(cuEventElapsedTime)
STUB(cuEventElapsedTime_v2)
STUB(cuGetErrorName)
STUB(cuGetErrorString)
