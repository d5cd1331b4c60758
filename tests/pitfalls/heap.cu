// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Allocations of kernels: objects that outlive their kernel, a heap that is full, and functions that call themselves
// with memory of their own (pitfall 67).
#include "harness.h"
#include <cuda_runtime.h>

#define CKR(CALL)                                                                                                      \
    do {                                                                                                               \
        cudaError_t code_ = (CALL);                                                                                    \
        if (code_ != cudaSuccess)                                                                                      \
            pitfall::fail("%s:%d: %s returned %d (%s)", __FILE__, __LINE__, #CALL, (int)code_,                          \
                          cudaGetErrorName(code_));                                                                    \
    } while (0)

struct Shape {
    __device__ virtual unsigned area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    unsigned side;
    __device__ explicit Square(unsigned side) : side(side) {}
    __device__ unsigned area() const override { return side * side; }
};
struct Rectangle : Shape {
    unsigned width, height;
    __device__ Rectangle(unsigned width, unsigned height) : width(width), height(height) {}
    __device__ unsigned area() const override { return width * height; }
};

__global__ void make(Shape **all) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i % 2)
        all[i] = new Square(i);
    else
        all[i] = new Rectangle(i, 3);
}
__global__ void areas(Shape **all, unsigned *out) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = all[i]->area();
}
__global__ void end(Shape **all) { delete all[blockIdx.x * blockDim.x + threadIdx.x]; }

PITFALL(67, objects_of_kernels_live_until_they_are_deleted) {
    const unsigned count = 512;
    Shape **all;
    unsigned *out, got[count];
    CKR(cudaMalloc(&all, count * sizeof *all));
    CKR(cudaMalloc(&out, sizeof got));
    for (int round = 0; round < 2; round++) {
        make<<<4, 128>>>(all);
        areas<<<4, 128>>>(all, out);
        end<<<4, 128>>>(all);
        CKR(cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost));
        for (unsigned i = 0; i < count; i++)
            EXPECT(got[i] == (i % 2 ? i * i : i * 3), "object %u: %u", i, got[i]);
    }
}

// Allocates pieces until it fails, and frees all of them.
__global__ void fill(unsigned *count) {
    void **last = nullptr;
    unsigned taken = 0;
    while (void **piece = taken < 10000 ? (void **)malloc(64 << 10) : nullptr) {
        *piece = last;
        last = piece;
        taken++;
    }
    while (last) {
        void **next = (void **)*last;
        free(last);
        last = next;
    }
    *count = taken;
}

PITFALL(67, a_full_heap_has_no_memory_and_room_again_after_frees) {
    size_t heap = 0;
    unsigned *count, taken = 0;
    CKR(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 16 << 20));
    CKR(cudaDeviceGetLimit(&heap, cudaLimitMallocHeapSize));
    EXPECT(heap >= 16 << 20, "%zu", heap);
    CKR(cudaMalloc(&count, sizeof *count));
    for (int round = 0; round < 2; round++) {
        fill<<<1, 1>>>(count);
        CKR(cudaMemcpy(&taken, count, sizeof taken, cudaMemcpyDeviceToHost));
        EXPECT(taken > 0 && taken < 10000, "%u pieces", taken);
    }
}

__device__ __noinline__ unsigned *sorted(const unsigned *from, unsigned n) {
    unsigned *to = (unsigned *)malloc(n * sizeof *to);
    if (n == 1) {
        *to = *from;
        return to;
    }
    unsigned half = n / 2, *low = sorted(from, half), *high = sorted(from + half, n - half);
    for (unsigned i = 0, j = 0, k = 0; k < n; k++)
        to[k] = j == n - half || (i < half && low[i] < high[j]) ? low[i++] : high[j++];
    free(low);
    free(high);
    return to;
}
__global__ void sort_each(unsigned *data, unsigned n) {
    unsigned *own = data + n * threadIdx.x, *to = sorted(own, n);
    for (unsigned i = 0; i < n; i++)
        own[i] = to[i];
    free(to);
}

PITFALL(67, functions_that_call_themselves_have_memory_of_their_own) {
    const unsigned n = 33, threads = 64;
    unsigned *data, values[threads][n];
    for (unsigned i = 0; i < threads * n; i++)
        values[i / n][i % n] = i * 7919 % 10007;
    CKR(cudaDeviceSetLimit(cudaLimitStackSize, 8192));
    CKR(cudaMalloc(&data, sizeof values));
    CKR(cudaMemcpy(data, values, sizeof values, cudaMemcpyHostToDevice));
    sort_each<<<1, threads>>>(data, n);
    unsigned got[threads][n];
    CKR(cudaMemcpy(got, data, sizeof got, cudaMemcpyDeviceToHost));
    for (unsigned t = 0; t < threads; t++) {
        std::sort(values[t], values[t] + n);
        EXPECT(std::equal(values[t], values[t] + n, got[t]), "the list of thread %u", t);
    }
}

PITFALL_MAIN
