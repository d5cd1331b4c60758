// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The runtime's table of calls with invalid or odd arguments: "call arguments -> code, last error". See
// differential.cpp.
#include "harness.h"
#include "rows.h"
#include <cuda_runtime.h>

static void row(const char *call, cudaError_t code) {
    cudaError_t last = cudaGetLastError();
    printf("%s -> %d %s, last error %d\n", call, (int)code, cudaGetErrorName(code), (int)last);
}

__global__ void fill(unsigned *words, unsigned value) { words[threadIdx.x] = value; }
__device__ unsigned symbol[4];

static void table() {
    int value = 0;
    void *memory = nullptr, *host = nullptr;
    unsigned *word = nullptr, *freed = nullptr, *pinned = nullptr, heap[16] = {};
    size_t size = 0;
    float ms = 0;
    cudaDeviceProp prop;
    cudaStream_t stream = nullptr;
    cudaEvent_t event = nullptr, second = nullptr;
    cudaFuncAttributes attributes;
    cudaPointerAttributes pointer;
    ROW(cudaGetDeviceCount(&value));
    ROW(cudaGetDeviceCount(nullptr));
    ROW(cudaDriverGetVersion(&value));
    ROW(cudaDriverGetVersion(nullptr));
    ROW(cudaRuntimeGetVersion(&value));
    ROW(cudaGetDevice(&value));
    ROW(cudaGetDevice(nullptr));
    ROW(cudaSetDevice(-1));
    ROW(cudaSetDevice(4096));
    ROW(cudaGetDeviceProperties(&prop, 4096));
    ROW(cudaGetDeviceProperties(&prop, -1));
    ROW(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 4096));
    ROW(cudaDeviceGetAttribute(&value, (cudaDeviceAttr)9999, 0));
    ROW(cudaDeviceGetAttribute(nullptr, cudaDevAttrWarpSize, 0));
    ROW(cudaSetDeviceFlags(0xffff));
    ROW(cudaMalloc((void **)&word, 4096));
    ROW(cudaMalloc((void **)&freed, 4096));
    ROW(cudaFree(freed));
    ROW(cudaFree(freed));
    ROW(cudaFree(nullptr));
    ROW(cudaFree(word + 1));
    ROW(cudaFree(heap));
    ROW(cudaMalloc(&memory, 0));
    ROW(cudaMalloc(nullptr, 16));
    ROW(cudaMalloc(&memory, size_t(1) << 50));
    ROW(cudaMallocHost(&host, 0));
    ROW(cudaMallocHost((void **)&pinned, 4096));
    ROW(cudaHostAlloc(&host, 16, 0xff));
    ROW(cudaFreeHost(nullptr));
    ROW(cudaFreeHost(heap));
    ROW(cudaHostRegister(heap, 0, 0));
    ROW(cudaHostUnregister(heap));
    ROW(cudaHostGetDevicePointer(&memory, heap, 0));
    ROW(cudaMallocPitch(&memory, &size, 0, 0));
    ROW(cudaMallocManaged(&memory, 0));
    ROW(cudaMemcpy(word, heap, 4, cudaMemcpyHostToDevice));
    ROW(cudaMemcpy(word, heap, 4, cudaMemcpyDefault));
    ROW(cudaMemcpy(word, heap, 4, cudaMemcpyDeviceToHost));
    ROW(cudaMemcpy(heap, heap + 8, 4, cudaMemcpyHostToHost));
    ROW(cudaMemcpy(heap, heap + 8, 4, cudaMemcpyDefault));
    ROW(cudaMemcpy(word, heap, 4, (cudaMemcpyKind)77));
    ROW(cudaMemcpy(nullptr, heap, 4, cudaMemcpyHostToDevice));
    ROW(cudaMemcpy(nullptr, heap, 0, cudaMemcpyHostToDevice));
    ROW(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
    ROW(cudaMemcpy(freed, heap, 4, cudaMemcpyHostToDevice));
    ROW(cudaMemcpy2D(word, 4, heap, 8, 8, 1, cudaMemcpyHostToDevice));
    ROW(cudaMemcpy2D(word, 8, heap, 8, 8, 0, cudaMemcpyHostToDevice));
    ROW(cudaMemcpy2D(word, 8, heap, 8, 0, 4, cudaMemcpyHostToDevice));
    ROW(cudaMemset(nullptr, 0, 4));
    ROW(cudaMemset(nullptr, 0, 0));
    ROW(cudaMemset(freed, 0, 4));
    ROW(cudaMemset2D(word, 4, 0, 8, 2));
    ROW(cudaMemcpyToSymbol(symbol, heap, 17));
    ROW(cudaMemcpyToSymbol(symbol, heap, 4, 16));
    ROW(cudaMemcpyToSymbol((const void *)nullptr, heap, 4));
    ROW(cudaMemcpyToSymbol((const void *)heap, heap, 4));
    ROW(cudaGetSymbolSize(&size, (const void *)heap));
    ROW(cudaMemGetInfo(nullptr, &size));
    ROW(cudaStreamCreateWithFlags(&stream, 0xff));
    ROW(cudaStreamCreate(nullptr));
    ROW(cudaStreamCreate(&stream));
    ROW(cudaStreamDestroy(nullptr));
    ROW(cudaStreamDestroy(cudaStreamLegacy));
    ROW(cudaStreamQuery(nullptr));
    ROW(cudaStreamWaitEvent(stream, nullptr, 0));
    ROW(cudaStreamAddCallback(stream, nullptr, nullptr, 0));
    ROW(cudaLaunchHostFunc(stream, nullptr, nullptr));
    ROW(cudaEventCreateWithFlags(&event, 0xff));
    ROW(cudaEventCreate(nullptr));
    ROW(cudaEventCreate(&event));
    ROW(cudaEventCreate(&second));
    ROW(cudaEventQuery(nullptr));
    ROW(cudaEventQuery(event));
    ROW(cudaEventElapsedTime(&ms, event, second));
    ROW(cudaEventElapsedTime(&ms, nullptr, second));
    ROW(cudaEventElapsedTime(nullptr, event, second));
    ROW(cudaEventDestroy(nullptr));
    ROW(cudaFuncGetAttributes(&attributes, (const void *)fill));
    ROW(cudaFuncGetAttributes(&attributes, (const void *)heap));
    ROW(cudaFuncGetAttributes(&attributes, (const void *)nullptr));
    ROW(cudaFuncGetAttributes(nullptr, (const void *)fill));
    ROW(cudaFuncSetAttribute(fill, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 24));
    ROW(cudaFuncSetAttribute(fill, (cudaFuncAttribute)99, 1));
    ROW(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, fill, 0, 0));
    ROW(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&value, fill, 4096, 0));
    void *params[] = {&word, &value};
    ROW(cudaLaunchKernel((const void *)fill, dim3(0), dim3(1), params, 0, stream));
    ROW(cudaLaunchKernel((const void *)fill, dim3(1), dim3(0), params, 0, stream));
    ROW(cudaLaunchKernel((const void *)fill, dim3(1), dim3(2048), params, 0, stream));
    ROW(cudaLaunchKernel((const void *)fill, dim3(1), dim3(1, 1, 65), params, 0, stream));
    ROW(cudaLaunchKernel((const void *)fill, dim3(1, 65536), dim3(1), params, 0, stream));
    ROW(cudaLaunchKernel((const void *)fill, dim3(1), dim3(1), params, 1 << 24, stream));
    ROW(cudaLaunchKernel((const void *)heap, dim3(1), dim3(1), params, 0, stream));
    ROW(cudaLaunchKernel((const void *)nullptr, dim3(1), dim3(1), params, 0, stream));
    ROW(cudaLaunchCooperativeKernel((const void *)fill, dim3(1 << 24), dim3(1024), params, 0, stream));
    ROW(cudaPointerGetAttributes(&pointer, heap));
    ROW(cudaPointerGetAttributes(&pointer, freed));
    ROW(cudaPointerGetAttributes(&pointer, nullptr));
    ROW(cudaPointerGetAttributes(nullptr, heap));
    ROW(cudaDeviceGetLimit(&size, (cudaLimit)99));
    ROW(cudaDeviceSetLimit((cudaLimit)99, 1));
    ROW(cudaDeviceSetCacheConfig((cudaFuncCache)99));
    ROW(cudaDeviceCanAccessPeer(&value, 0, 0));
    ROW(cudaDeviceCanAccessPeer(&value, 0, 4096));
    ROW(cudaDeviceEnablePeerAccess(0, 0));
    ROW(cudaMallocAsync(&memory, 0, stream));
    ROW(cudaFreeAsync(nullptr, stream));
    ROW(cudaDeviceSynchronize());
    ROW(cudaDeviceReset());
    ROW(cudaFree(word));
    ROW(cudaDeviceSynchronize());
}

int main(int argc, char **argv) {
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    return run_rows(argc, argv, table);
}
