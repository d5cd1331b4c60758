// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A shared object with a kernel, for host.cu to load and unload.
#include <cuda_runtime.h>
__global__ void three(int *p) { *p = 3; }
extern "C" int run() {
    int *p = 0, h = 0;
    if (cudaMalloc(&p, 4)) return -1;
    three<<<1, 1>>>(p);
    if (cudaMemcpy(&h, p, 4, cudaMemcpyDeviceToHost) || cudaFree(p)) return -2;
    return h;
}
