// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cufft.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    settings {
        cufftCreate cufftDestroy cufftSetStream cufftSetAutoAllocation cufftSetWorkArea
        cufftXtSetWorkArea cufftXtSetGPUs cufftGetVersion cufftGetProperty
    }
    calls {
        cufftSetPlanPropertyInt64 cufftGetPlanPropertyInt64 cufftResetPlanProperty cufftGetSize
        cufftXtSetWorkAreaPolicy cufftXtMakePlanMany cufftXtGetSizeMany cufftXtExec cufftMakePlan1d
        cufftGetSize1d cufftMakePlan2d cufftGetSize2d cufftMakePlan3d cufftGetSize3d
        cufftMakePlanMany cufftGetSizeMany cufftMakePlanMany64 cufftGetSizeMany64 cufftPlan1d
        cufftEstimate1d cufftPlan2d cufftEstimate2d cufftPlan3d cufftEstimate3d cufftPlanMany
        cufftEstimateMany cufftExecC2C cufftExecR2C cufftExecC2R cufftExecZ2Z cufftExecD2Z
        cufftExecZ2D
    }
}

const TEXT: &str = "\
# cuFFT

`libcufft.so.11` and `libcufft.so.12`. [The rules for all libraries](../libraries.md#rules-for-all-libraries) apply.

## Differences from NVIDIA's

- **A plan's work area is the guest's own memory**, also if the plan allocates it: it counts as memory of the program.
  The host's plans never allocate one. In addition, a plan is charged 2 MiB of GPU memory, and for the tables of its
  transform 64 bytes for each element of each dimension, of at most 65,536 elements unless the size has a prime factor
  above 127.
- **Functions that make a plan wait** for the host's library; executions are posts. `cufftSetStream` and
  `cufftSetWorkArea` reach the host only if they change the setting.
- **A plan belongs to the context** that is current when it gets its transform, or when the host is first asked about
  it.
- **`cufftEstimate…`** asks the host's library about a plan of that kind, as `cufftGetSize…` does.
- **Not supported**: callbacks (`cufftXtSetCallback`, `cufftXtSetJITCallback`), plans for more than one GPU
  (`cufftXtSetGPUs`, `cufftXtMalloc`, `cufftXtMemcpy`, `cufftXtExecDescriptor…`), `cufftXtQueryPlan`, and the building
  blocks for device code (`cufftDevice…`, `cufftDescription…`). They return `CUFFT_NOT_SUPPORTED`. `libcufftw.so` is
  NVIDIA's own and calls this library.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cufft", "cufft"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
