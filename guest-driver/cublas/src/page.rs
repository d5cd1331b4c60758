// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cublas.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    state {
        cublasCreate_v2 cublasDestroy_v2 cublasGetVersion_v2 cublasGetProperty cublasSetStream_v2
        cublasGetStream_v2 cublasSetPointerMode_v2 cublasGetPointerMode_v2 cublasSetWorkspace_v2
        cublasSetMathMode cublasGetMathMode cublasSetAtomicsMode cublasGetAtomicsMode
        cublasSetSmCountTarget cublasGetSmCountTarget cublasSetEmulationStrategy
        cublasGetEmulationStrategy
    }
    transfer {
        cublasSetVector cublasSetVector_64 cublasSetVectorAsync cublasSetVectorAsync_64
        cublasGetVector cublasGetVector_64 cublasGetVectorAsync cublasGetVectorAsync_64
        cublasSetMatrix cublasSetMatrix_64 cublasSetMatrixAsync cublasSetMatrixAsync_64
        cublasGetMatrix cublasGetMatrix_64 cublasGetMatrixAsync cublasGetMatrixAsync_64
    }
    words {
        cublasGetStatusName cublasGetStatusString cublasGetCudartVersion cublasLoggerConfigure
        cublasSetLoggerCallback cublasGetLoggerCallback cublasXerbla
    }
}

const TEXT: &str = "\
# cuBLAS

`libcublas.so.12` and `libcublas.so.13`. [The rules for all libraries](../libraries.md#rules-for-all-libraries) apply.
A form counts under the handle's math mode, atomics mode, number of multiprocessors and emulation strategy: under other
values its first call waits too.

## Differences from NVIDIA's

- **Functions with a result** (dot products, norms, sums, indices, rotations) make the caller wait, as NVIDIA's do if
  the result is at a host address; here they also wait if it stays on the device.
- **`…GroupedBatched` functions** take at most 1024 groups; more return `CUBLAS_STATUS_INVALID_VALUE`. Each call waits
  for the host's library.
- **The logger does nothing.** `cublasLoggerConfigure` and `cublasSetLoggerCallback` succeed, nothing is logged, and
  no callback is called.
- `cublasGetCudartVersion` returns 13000, whatever the host has. `cublasGetVersion` and `cublasGetProperty` return the
  host library's values.
- **Not supported**: the old API of `cublas.h` (`cublasInit`, `cublasSgemm` without a handle and so on), cublasXt, and
  the settings of emulated arithmetic of CUDA 13. They are exported, return `CUBLAS_STATUS_NOT_SUPPORTED` and log
  their name once on standard error. A program with a static cuBLAS (`libcublas_static.a`) does not use this library.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cublas", "cublas"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
