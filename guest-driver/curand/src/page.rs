// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The page docs/libraries/curand.md.

use gpgpu_library::page::Page;

gpgpu_library::by_hand! {
    generators {
        curandCreateGenerator curandCreateGeneratorHost curandDestroyGenerator curandGetVersion
        curandGetProperty curandSetStream curandSetGeneratorOrdering
        curandSetQuasiRandomGeneratorDimensions
    }
    numbers {
        curandGenerate curandGenerateLongLong curandGenerateUniform curandGenerateUniformDouble
        curandGenerateNormal curandGenerateNormalDouble curandGenerateLogNormal
        curandGenerateLogNormalDouble curandGeneratePoisson curandGeneratePoissonMethod
    }
    tables {
        curandGetDirectionVectors32 curandGetDirectionVectors64 curandGetScrambleConstants32
        curandGetScrambleConstants64
    }
}

const TEXT: &str = "\
# cuRAND

`libcurand.so.10`, the host API. [The rules for all libraries](../libraries.md#rules-for-all-libraries) apply. The
device API (`curand_kernel.h`) is code of the program's own kernels and does not use this library.

## Differences from NVIDIA's

- **A generator for the host** (`curandCreateGeneratorHost`) makes its numbers on the GPU, in device memory of the
  same size, and copies them. They are those of the same type of generator on the GPU. NVIDIA's generator for the host
  differs in the last bits, except for integers and uniform numbers. Its stream is not used.
- **Seed, offset, order and dimensions** go to the host at once, and each call waits for the answer. A new order or
  number of dimensions makes every form new.
- **The tables** for quasirandom sequences (`curandGetDirectionVectors…`, `curandGetScrambleConstants…`) are the host
  library's. They travel once in a process; the longest, of 10 MB, in 167 pieces.
- A generator is charged 32 MiB of GPU memory.
- **Not supported**: `curandCreatePoissonDistribution` and `curandDestroyDistribution`. The structure lies in memory
  that the program's kernels can write to, and NVIDIA's library follows the host addresses in it. They return
  `CURAND_STATUS_ARCH_MISMATCH`, because cuRAND has no status for an unsupported function. `curandGeneratePoisson`
  works.
";

#[test]
fn the_page_is_up_to_date() {
    Page {
        library: crate::LIBRARY,
        package: ("gpgpu-curand", "curand"),
        by_hand: BY_HAND,
        text: TEXT,
    }
    .check();
}
