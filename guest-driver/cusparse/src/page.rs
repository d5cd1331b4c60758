// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cusparse.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    state {
        cusparseCreate cusparseDestroy cusparseSetStream cusparseGetStream cusparseSetPointerMode
        cusparseGetPointerMode
    }
    description {
        cusparseCreateMatDescr cusparseDestroyMatDescr cusparseSetMatType cusparseGetMatType
        cusparseSetMatFillMode cusparseGetMatFillMode cusparseSetMatDiagType cusparseGetMatDiagType
        cusparseSetMatIndexBase cusparseGetMatIndexBase
    }
    vector {
        cusparseCreateSpVec cusparseCreateConstSpVec cusparseDestroySpVec cusparseAxpby cusparseRot
    }
    words {
        cusparseGetErrorName cusparseGetErrorString cusparseLoggerSetCallback cusparseLoggerSetFile
        cusparseLoggerOpenFile cusparseLoggerSetLevel cusparseLoggerSetMask
        cusparseLoggerForceDisable
    }
}

const TEXT: &str = "\
# cuSPARSE

`libcusparse.so.12`, for CUDA 12 and CUDA 13. [The rules for all libraries](../libraries.md#rules-for-all-libraries)
apply.

## Differences from NVIDIA's

- **Descriptors** are made and set without waiting, once one of the same form was accepted. Reading from one waits for
  the host.
- **Functions with a result** (`SpVV`, `…Nnz`, `…zeroPivot`) make the caller wait, also if the result stays on the
  device. So do the parts of `SpGEMM` that return the size of a buffer, and `cusparseDenseToSparse_analysis`.
- **Attributes** of a sparse matrix have at most 1024 bytes.
- **The logger does nothing.** Its functions succeed, nothing is logged, and no callback is called.
- `cusparseGetVersion` and `cusparseGetProperty` return the host library's values. The texts of
  `cusparseGetErrorString` are this project's own.
- **Not supported**: products with a program's own operations (`SpMMOp`, `SpMVOp`), functions that came after CUDA
  13.0 (`SpMVGeneric`, `SpMatConvert`, `cusparseSpMV_createDescr`), `…ilu02_numericBoost`, which may keep an address
  of the program's, `csrcolor`, pruning of halves, and `nnz_compress` and `csr2csr_compress` of complex numbers. They
  are exported, return `CUSPARSE_STATUS_NOT_SUPPORTED` and log their name once on standard error.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cusparse", "cusparse"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
