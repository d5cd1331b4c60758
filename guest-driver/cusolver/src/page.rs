// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cusolver.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    state {
        cusolverDnCreate cusolverDnDestroy cusolverDnSetStream cusolverDnGetStream
        cusolverSpCreate cusolverSpDestroy cusolverSpSetStream cusolverSpGetStream
        cusolverDnSetDeterministicMode cusolverDnSetMathMode cusolverDnSetEmulationStrategy
        cusolverDnSetEmulationSpecialValuesSupport cusolverDnSetFixedPointEmulationMantissaControl
        cusolverDnSetFixedPointEmulationMaxMantissaBitCount
        cusolverDnSetFixedPointEmulationMantissaBitOffset
    }
}

const TEXT: &str = "\
# cuSOLVER

`libcusolver.so.11` and `libcusolver.so.12`. [What holds for all libraries](../libraries.md) holds here too; a new deterministic mode, math mode or setting of emulated arithmetic \
makes every form new.

## What differs from NVIDIA's

- **Sizes of workspaces** are asked for once for each handle and form, options of `cusolverDnParams_t`, `gesvdjInfo_t` and `syevjInfo_t` included. The same question is answered in the program's own process \
from then on, until a setting of a handle changes.
- **Eigenvalues, singular values and refined systems** make the caller wait, as NVIDIA's do, which look at the host whether a method has converged. Factors and what is solved by them do not.
- **Workspaces on the host** (`bufferOnHost`) stay as they are: the host's library works in memory of its own, of at most 1 GiB. More is `CUSOLVER_STATUS_INVALID_VALUE`.
- **`gesvdaStridedBatched`** takes at most 1024 matrices: more are `CUSOLVER_STATUS_INVALID_VALUE`.
- **A `cusparseMatDescr_t`** must be one of this project's libcusparse: NVIDIA's own is an address, which is no descriptor here.
- `cusolverGetVersion` and `cusolverGetProperty` say what the host's library says. The functions that CUDA 13 has no more, such as `cusolverDnPotrf`, work where the host's library is that of CUDA 12.
- **Not supported**: functions of sparse matrices that compute on the CPU (their names end in `Host`), `cusolverSp…csreigvsi`, the previews of `cusolverSp_LOWLEVEL_PREVIEW.h`, `cusolverRf`, \
`cusolverDnXstedc`, and `cusolverDnIRSInfosGetResidualHistory`, whose answer is an address of the library's own. They are exported, return `CUSOLVER_STATUS_NOT_SUPPORTED` and name themselves once on standard error. \
`libcusolverMg` is not there.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cusolver", "cusolver"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
