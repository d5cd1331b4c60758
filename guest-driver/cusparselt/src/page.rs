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

`libcusparseLt.so.0`, with all names of version 0.10. [What holds for all libraries](../libraries.md) holds here too. It has run with the software GPU alone so far, not with NVIDIA's library.

## What differs from NVIDIA's

- **Descriptors and selections are values** in the program's structures: a product has its matrices as they were when it was described, and a plan its product and selection as they were when it was made. A structure can be copied. \
It holds nothing after it has ended, and using it is an invalid value.
- **The host is asked about each descriptor, attribute and selection once**; what says the same again is accepted without it. Plans are posted from the second one on that is made alike, as are their products.
- **A product runs in the first of the streams** that it is given; the others are only checked. Programs wait for all of them.
- **A search waits.** It changes the plan, and the selection that the plan was made of, as natively. Of 4,096 selections it is remembered.
- **Alpha and beta** are single-precision numbers at host addresses. With `CUSPARSELT_MATMUL_ALPHA_VECTOR_SCALING` or `…BETA_VECTOR_SCALING` they are in device memory. These attributes are 0 or 1.
- **A plan is of the handle that made it**; with another one it is an invalid value. Of a program's plans the 4,096 that were used last are there: one that makes more, and does not end them, loses the oldest, whose use is an invalid value. A handle is charged 32 MiB of GPU memory.
- `cusparseLtGetVersion` and `cusparseLtGetProperty` say what the host's library says. `cusparseLtGetErrorString` has words of this project's own.
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
