// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Compiled with --default-stream per-thread and without: the same answers, other symbols.
#include <cstdio>
#include <cuda_runtime.h>
__device__ float weights[4];
__global__ void scale(float *p, float f) { p[blockIdx.x * blockDim.x + threadIdx.x] *= f + weights[1]; }
int main() {
    float h[256], w[4] = {0, 1, 0, 0}, *d;
    for (int i = 0; i < 256; i++) h[i] = i;
    cudaMalloc(&d, sizeof h);
    cudaMemcpyAsync(d, h, sizeof h, cudaMemcpyHostToDevice);
    cudaMemcpyToSymbol(weights, w, sizeof w);
    scale<<<8, 32>>>(d, 1.f);
    cudaMemcpy2DAsync(h, 64, d, 64, 64, 16, cudaMemcpyDeviceToHost);
    cudaEvent_t e;
    cudaEventCreate(&e);
    cudaEventRecord(e);
    cudaEventSynchronize(e);
    int blocks = 0, block = 0;
    cudaOccupancyMaxPotentialBlockSize(&blocks, &block, scale);
    printf("%g %g last error %d block %d\n", h[1], h[255], cudaGetLastError(), block);
    return !(h[1] == 2 && h[255] == 510 && block > 0);
}
