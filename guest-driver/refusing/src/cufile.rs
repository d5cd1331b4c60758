// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuFile: direct file access by the GPU, which a guest's virtual GPU does not have.

use crate::refuse;

/// `CU_FILE_PLATFORM_NOT_SUPPORTED`.
const NOT_SUPPORTED: u32 = 5007;

// The result is a structure of two numbers in a register: cuFile's error, and the driver's, which is zero.
refuse! { "cuFile", u64 = NOT_SUPPORTED as u64;
    cuFileBatchIOCancel cuFileBatchIODestroy cuFileBatchIOGetStatus cuFileBatchIOSetUp
    cuFileBatchIOSubmit cuFileBufDeregister cuFileBufRegister cuFileCopyGpu
    cuFileCopyGpuPosixIORetry cuFileCopyGpuWrap cuFileCopyGpuWrapPosixIORetry cuFileDriverClose
    cuFileDriverClose_v2 cuFileDriverGetP2PFlags cuFileDriverGetProperties cuFileDriverOpen
    cuFileDriverSetMaxCacheSize cuFileDriverSetMaxDirectIOSize cuFileDriverSetMaxPinnedMemSize
    cuFileDriverSetP2PFlags cuFileDriverSetPollMode cuFileExportPCIeTopology cuFileGetBARSizeInKB
    cuFileGetParameterBool cuFileGetParameterGpuBounceBufferSlabArray cuFileGetParameterMinMaxValue
    cuFileGetParameterPosixPoolSlabArray cuFileGetParameterSizeT cuFileGetParameterString
    cuFileGetStatsL1 cuFileGetStatsL2 cuFileGetStatsL3 cuFileGetStatsLevel cuFileGetVersion
    cuFileGpuWaitValue32 cuFileHandleDeregister cuFileHandleRegister cuFileInlineGpu
    cuFileObjectDriverOpen cuFileObjectDriverOpenForDiagnostics cuFileObjectInitialize
    cuFileReadAsync cuFileSetParameterBool cuFileSetParameterGpuBounceBufferSlabArray
    cuFileSetParameterPosixPoolSlabArray cuFileSetParameterSizeT cuFileSetParameterString
    cuFileSetStatsLevel cuFileSparseGpu cuFileStatsReset cuFileStatsStart cuFileStatsStop
    cuFileStreamDeregister cuFileStreamHandleInline cuFileStreamHandleSparse cuFileStreamRegister
    cuFileStreamWaitValue32 cuFileWriteAsync
}

// The number of bytes read or written, or a negative error.
refuse! { "cuFile", isize = -(NOT_SUPPORTED as isize);
    cuFileRead cuFileReadv cuFileWrite cuFileWritev
}

// The use count.
refuse! { "cuFile", i64 = 0;
    cuFileUseCount
}
