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

`libcusolver.so.11` and `libcusolver.so.12`. [The rules for all libraries](../libraries.md#rules-for-all-libraries)
apply. A new deterministic mode, math mode or setting of emulated arithmetic makes every form new.

## Differences from NVIDIA's

- **Sizes of workspaces** are asked for once for each handle and form, including the options of `cusolverDnParams_t`,
  `gesvdjInfo_t` and `syevjInfo_t`. After that the program's own process answers, until a setting of a handle changes.
- **Eigenvalues, singular values and refined systems** make the caller wait, as NVIDIA's do, because the host checks
  convergence. Factorizations and the systems that they solve do not.
- **Workspaces on the host** (`bufferOnHost`) are not used: the host's library works in memory of its own, of at most
  1 GiB. More returns `CUSOLVER_STATUS_INVALID_VALUE`.
- **`gesvdaStridedBatched`** returns the residual norms of at most 1024 matrices. For more, `h_R_nrmF` must be NULL, or
  it returns `CUSOLVER_STATUS_INVALID_VALUE`.
- **A `cusparseMatDescr_t`** must come from this project's libcusparse: NVIDIA's own is an address, which is not a
  descriptor here.
- `cusolverGetVersion` and `cusolverGetProperty` return the host library's values. Functions that CUDA 13 has dropped,
  such as `cusolverDnPotrf`, work if the host's library is that of CUDA 12.
- **Not supported**: functions of sparse matrices that compute on the CPU (their names end in `Host`),
  `cusolverSp…csreigvsi`, the previews of `cusolverSp_LOWLEVEL_PREVIEW.h`, `cusolverRf`, `cusolverDnXstedc`, and
  `cusolverDnIRSInfosGetResidualHistory`, whose answer is an address of the library's own. They are exported, return
  `CUSOLVER_STATUS_NOT_SUPPORTED` and log their name once on standard error. `libcusolverMg` loads, and all its
  functions fail.
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
