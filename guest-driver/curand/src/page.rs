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

`libcurand.so.10`, the host API. [What holds for all libraries](../libraries.md) holds here too. The device API (`curand_kernel.h`) is code of the program's own kernels and needs nothing of this.

## What differs from NVIDIA's

- **A generator for the host** (`curandCreateGeneratorHost`) makes its numbers on the GPU, in device memory of as many bytes, and copies them. They are those of the same type of generator on the GPU; NVIDIA's \
own differ from these in the last bits where they are no whole or uniform numbers. Its stream is not used.
- **Seed, offset, order and dimensions** are told the host at once, and each call waits for its answer. A new order or number of dimensions makes every form new.
- **The tables** for quasirandom sequences (`curandGetDirectionVectors…`, `curandGetScrambleConstants…`) are the host's library's. They come once in a process, the longest, of 10 MB, in 167 pieces.
- A generator is charged 32 MiB of GPU memory.
- **Not supported**: `curandCreatePoissonDistribution` and `curandDestroyDistribution`. The structure lies in memory that the program's kernels can write to, and NVIDIA's library follows the host addresses in it. They return \
`CURAND_STATUS_ARCH_MISMATCH`, as cuRAND has no status for what is not supported. `curandGeneratePoisson` works.
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
