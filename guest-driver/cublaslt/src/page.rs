// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cublaslt.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    descriptors {
        cublasLtMatmulDescCreate cublasLtMatmulDescInit_internal cublasLtMatmulDescDestroy
        cublasLtMatmulDescSetAttribute cublasLtMatmulDescGetAttribute cublasLtMatrixLayoutCreate
        cublasLtMatrixLayoutInit_internal cublasLtGroupedMatrixLayoutCreate
        cublasLtGroupedMatrixLayoutInit_internal cublasLtMatrixLayoutDestroy
        cublasLtMatrixLayoutSetAttribute cublasLtMatrixLayoutGetAttribute
        cublasLtMatmulPreferenceCreate cublasLtMatmulPreferenceInit_internal
        cublasLtMatmulPreferenceDestroy cublasLtMatmulPreferenceSetAttribute
        cublasLtMatmulPreferenceGetAttribute cublasLtMatrixTransformDescCreate
        cublasLtMatrixTransformDescInit_internal cublasLtMatrixTransformDescDestroy
        cublasLtMatrixTransformDescSetAttribute cublasLtMatrixTransformDescGetAttribute
        cublasLtEmulationDescCreate cublasLtEmulationDescInit_internal cublasLtEmulationDescDestroy
        cublasLtEmulationDescSetAttribute cublasLtEmulationDescGetAttribute
    }
    product {
        cublasLtMatmul cublasLtMatrixTransform
    }
    algorithm {
        cublasLtMatmulAlgoGetHeuristic cublasLtMatmulAlgoGetHeuristicForStream cublasLtMatmulAlgoCheck
        cublasLtMatmulAlgoCheckForStream cublasLtMatmulAlgoGetIds cublasLtMatmulAlgoInit
        cublasLtMatmulAlgoCapGetAttribute cublasLtMatmulAlgoConfigGetAttribute
        cublasLtMatmulAlgoConfigSetAttribute
    }
    words {
        cublasLtGetVersion cublasLtGetProperty cublasLtGetCudartVersion cublasLtGetStatusName
        cublasLtGetStatusString cublasLtHeuristicsCacheGetCapacity cublasLtHeuristicsCacheSetCapacity
        cublasLtDisableCpuInstructionsSetMask cublasLtLoggerSetCallback cublasLtLoggerSetFile
        cublasLtLoggerOpenFile cublasLtLoggerSetLevel cublasLtLoggerSetMask cublasLtLoggerForceDisable
    }
}

const TEXT: &str = "\
# cuBLASLt

`libcublasLt.so.12` and `libcublasLt.so.13`. [The rules for all libraries](../libraries.md#rules-for-all-libraries)
apply. A handle of cuBLAS is one of cuBLASLt, as natively.

## Differences from NVIDIA's

- **Descriptors** live in the program, in its own memory (`cublasLtMatmulDescInit` and similar functions) or not; none
  of their functions calls the host. A product, a transformation or a query of algorithms carries all attributes of
  its descriptors; a product that comes again names those that the host has kept of it. Known attributes are those of
  the headers of CUDA 12.0 to 13.1; any other returns `CUBLAS_STATUS_INVALID_VALUE`. If the host's library does not
  know an attribute, the call that uses the descriptor fails, unless the attribute has its default.
- **The form of a product** is all attributes of its descriptors, the algorithm, the workspace's size, the stream, and
  whether beta is zero. Of an address it has the alignment, up to 16 bytes, and whether it is NULL. Values of alpha
  and beta are not a part of it.
- **The program keeps answers about algorithms**: heuristics and checks by the form of the query (with alignments up
  to 256 bytes) and the handle, capabilities and settings by the algorithm. After
  `cublasLtHeuristicsCacheSetCapacity(0)` every heuristic and check asks the host again; other capacities are only
  stored and returned, and the host's library has its own.
- **One call finds at most 256 algorithms**, and 1024 numbers of algorithms.
- **The logger does nothing.** Its functions succeed, nothing is logged, and no callback is called.
- `cublasLtGetCudartVersion` returns 13000, whatever the host has. `cublasLtGetVersion` and `cublasLtGetProperty`
  return the host library's values; without one the version is 0.
- `cublasLtDisableCpuInstructionsSetMask` only stores its value: the CPU is the host's.
- **Not supported**: functions that NVIDIA's library exports for its other libraries, in no header
  (`cublasLtSSSMatmul` and others). They are exported, return `CUBLAS_STATUS_NOT_SUPPORTED` and log their name once on
  standard error.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cublaslt", "cublaslt"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
