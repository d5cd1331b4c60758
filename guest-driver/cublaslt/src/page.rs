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

`libcublasLt.so.12` and `libcublasLt.so.13`. [What holds for all libraries](../libraries.md) holds here too. A handle of cuBLAS is one of cuBLASLt, as natively.

## What differs from NVIDIA's

- **Descriptors** live in the program, whether it has room for them itself (`cublasLtMatmulDescInit` and the like) or not; none of their functions calls the host. A product, a transformation \
or a question for algorithms carries all that its descriptors say. Attributes are those of the headers of CUDA 12.0 to 13.1; another is `CUBLAS_STATUS_INVALID_VALUE`. One that the host's \
library does not know makes the call fail that uses the descriptor, unless it has its default.
- **The form of a product** is all that its descriptors say, the algorithm, the workspace's size, the stream, and whether beta is zero; of an address only the alignment counts, up to 16 bytes, and \
whether it is NULL. Values of alpha and beta are no part of it.
- **Answers about algorithms** are kept in the program: heuristics and checks by the form of the question (with alignments up to 256 bytes) and the handle, capabilities and settings by the algorithm. `cublasLtHeuristicsCacheSetCapacity(0)` \
has every heuristic and check asked again; other capacities are told back, and the host's library has its own.
- **At most 256 algorithms** are found by one call, and 1024 numbers of algorithms.
- **The logger does nothing.** Its functions succeed, nothing is logged, and no callback is called.
- `cublasLtGetCudartVersion` says 13000, whatever the host has. `cublasLtGetVersion` and `cublasLtGetProperty` say what the host's library says; without one the version is 0.
- `cublasLtDisableCpuInstructionsSetMask` tells back what it was told: the CPU is the host's.
- **Not supported**: what NVIDIA's library exports for its other libraries, in no header (`cublasLtSSSMatmul` and the like). These functions are exported, return `CUBLAS_STATUS_NOT_SUPPORTED` \
and name themselves once on standard error.
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
