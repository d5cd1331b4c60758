// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuFFT's functions that are not supported. They are exported, so that programs start, and return an error.
//!
//! The other names that the libraries of CUDA 12.9 and 13 export.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::cufft::status;

// Callbacks, which are the program's device code in cuFFT's kernels; plans for several GPUs and their memory; building
// blocks for device code.
unsupported! { status::NOT_SUPPORTED;
    __cufftXtSetJITCallback_12_7 cufftDebug cufftDescriptionCreate cufftDescriptionDestroy
    cufftDescriptionGetTraitInt64 cufftDescriptionSetTraitInt64 cufftDeviceCreate
    cufftDeviceDestroy cufftDeviceGetDatabaseStr cufftDeviceGetDatabaseStrSize
    cufftDeviceGetDeviceFunctionTraitInt64 cufftDeviceGetDeviceFunctions cufftDeviceGetLTOIRSizes
    cufftDeviceGetLTOIRs cufftDeviceGetNumDeviceFunctions cufftDeviceGetNumLTOIRs
    cufftDeviceGetSemanticVersion cufftDeviceGetVersion cufftDeviceIsSupported cufftXtClearCallback
    cufftXtExecDescriptor cufftXtExecDescriptorC2C cufftXtExecDescriptorC2R
    cufftXtExecDescriptorD2Z cufftXtExecDescriptorR2C cufftXtExecDescriptorZ2D
    cufftXtExecDescriptorZ2Z cufftXtFree cufftXtMakePlanGuru64 cufftXtMalloc cufftXtMemcpy
    cufftXtQueryPlan cufftXtSetCallback cufftXtSetCallbackSharedSize cufftXtSetJITCallback
}
