// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/cusparselt.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    handle {
        cusparseLtInit cusparseLtDestroy cusparseLtGetVersion cusparseLtGetProperty
        cusparseLtGetErrorName cusparseLtGetErrorString
    }
    describe {
        cusparseLtDenseDescriptorInit cusparseLtStructuredDescriptorInit
        cusparseLtMatDescriptorDestroy cusparseLtMatDescSetAttribute cusparseLtMatDescGetAttribute
        cusparseLtMatmulDescriptorInit cusparseLtMatmulDescSetAttribute
        cusparseLtMatmulDescGetAttribute
    }
    selection {
        cusparseLtMatmulAlgSelectionInit cusparseLtMatmulAlgSelectionDestroy
        cusparseLtMatmulAlgSetAttribute cusparseLtMatmulAlgGetAttribute
    }
    plan {
        cusparseLtMatmulPlanInit cusparseLtMatmulPlanDestroy cusparseLtMatmulGetWorkspace
        cusparseLtMatmul cusparseLtMatmulSearch
    }
    sparse {
        cusparseLtSpMMAPrune cusparseLtSpMMAPruneCheck cusparseLtSpMMAPrune2
        cusparseLtSpMMAPruneCheck2 cusparseLtSpMMACompressedSize cusparseLtSpMMACompress
        cusparseLtSpMMACompressedSize2 cusparseLtSpMMACompress2
    }
}

const TEXT: &str = "\
# cuSPARSELt

`libcusparseLt.so.0`, with all names of version 0.10. [The rules for all
libraries](../libraries.md#rules-for-all-libraries) apply. It has run with the software GPU alone so far, not with
NVIDIA's library.

## Differences from NVIDIA's

- **Descriptors and selections are values** in the program's structures. A product keeps its matrices as they were
  when it was described, and a plan its product and selection as they were when it was made. A structure can be
  copied. After its destruction it is empty, and its use is an invalid value.
- **The host checks each descriptor, attribute and selection once**; the same values are accepted without it
  afterwards. From the second plan of the same form on, the plan and its products are posted.
- **A product runs in the first of the given streams**; the others are only checked. Programs wait for all of them.
- **A search waits.** It changes the plan, and the selection from which the plan was made, as natively. The library
  remembers it for 4,096 selections.
- **Alpha and beta** are single-precision numbers at host addresses. With `CUSPARSELT_MATMUL_ALPHA_VECTOR_SCALING` or
  `…BETA_VECTOR_SCALING` they are in device memory. These attributes are 0 or 1.
- **A plan belongs to the handle that made it**; its use with another one is an invalid value. A program has the 4,096
  most recently used plans: if it makes more without destroying any, it loses the oldest, whose use is an invalid
  value. A handle is charged 32 MiB of GPU memory.
- `cusparseLtGetVersion` and `cusparseLtGetProperty` return the host library's values. The texts of
  `cusparseLtGetErrorString` are this project's own.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-cusparselt", "cusparselt"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
