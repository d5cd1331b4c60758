// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuSPARSE's functions that are not supported. They are exported, so that programs start, and return an error.
//!
//! The other names that the libraries of CUDA 12 and 13.3 export: both are `libcusparse.so.12`.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::cusparse::status;

// Products whose operations are the program's own code.
unsupported! { status::NOT_SUPPORTED;
    cusparseSpMMOp cusparseSpMMOp_createPlan cusparseSpMMOp_destroyPlan cusparseSpMVOp
    cusparseSpMVOp_bufferSize cusparseSpMVOp_createDescr cusparseSpMVOp_createPlan
    cusparseSpMVOp_destroyDescr cusparseSpMVOp_destroyPlan cusparseSpMVOp_setGlobalUserData
}

// Older functions that may keep the address of a value, take a complex number by value, or do not document on which
// side their arguments are.
unsupported! { status::NOT_SUPPORTED;
    cusparseCbsrilu02_numericBoost cusparseCcsr2csr_compress cusparseCcsrcolor
    cusparseCcsrilu02_numericBoost cusparseCnnz_compress cusparseCreateColorInfo
    cusparseDbsrilu02_numericBoost cusparseDcsrcolor cusparseDcsrilu02_numericBoost
    cusparseDestroyColorInfo cusparseHpruneCsr2csr cusparseHpruneCsr2csrByPercentage
    cusparseHpruneCsr2csrByPercentage_bufferSizeExt cusparseHpruneCsr2csrNnz
    cusparseHpruneCsr2csrNnzByPercentage cusparseHpruneCsr2csr_bufferSizeExt cusparseHpruneDense2csr
    cusparseHpruneDense2csrByPercentage cusparseHpruneDense2csrByPercentage_bufferSizeExt
    cusparseHpruneDense2csrNnz cusparseHpruneDense2csrNnzByPercentage
    cusparseHpruneDense2csr_bufferSizeExt cusparseSbsrilu02_numericBoost cusparseScsrcolor
    cusparseScsrilu02_numericBoost cusparseZbsrilu02_numericBoost cusparseZcsr2csr_compress
    cusparseZcsrcolor cusparseZcsrilu02_numericBoost cusparseZnnz_compress
}

// Functions that are newer than CUDA 13.0.
unsupported! { status::NOT_SUPPORTED;
    cusparseSpMVDescrGetParam cusparseSpMVDescrSetParam cusparseSpMVGeneric
    cusparseSpMVGeneric_bufferSize cusparseSpMVGeneric_preprocess cusparseSpMV_createDescr
    cusparseSpMV_destroyDescr cusparseSpMatConvert cusparseSpMatConvertDescrCreate
    cusparseSpMatConvertDescrDestroy cusparseSpMatConvert_analysis cusparseSpMatConvert_bufferSize
    cusparseSpMatGetPointers cusparseSpMatGetSizes cusparseSpMatSetPointers
}
