// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Built with --default-stream per-thread: the default stream of each thread is its own (pitfalls 21, 68).
#include "harness.h"
#include <cuda_runtime.h>

#define CKR_IS(CALL, CODE)                                                                                             \
    do {                                                                                                               \
        cudaError_t code_ = (CALL);                                                                                    \
        if (code_ != (CODE))                                                                                           \
            pitfall::fail("%s:%d: %s returned %d (%s), expected %d", __FILE__, __LINE__, #CALL, (int)code_,             \
                          cudaGetErrorName(code_), (int)(CODE));                                                       \
    } while (0)
#define CKR(CALL) CKR_IS(CALL, cudaSuccess)

__global__ void hold(volatile unsigned *flag, long long clocks) {
    long long start = clock64();
    while (*flag == 0 && clock64() - start < clocks) {
    }
}
__global__ void add(unsigned *word, unsigned term) { *word += term; }

PITFALL(21, default_streams_of_two_threads_overlap) {
    unsigned *flag, *mine, *others;
    CKR(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
    CKR(cudaMalloc(&mine, 4));
    CKR(cudaMalloc(&others, 4));
    CKR(cudaMemset(mine, 0, 4));
    CKR(cudaMemset(others, 0, 4));
    CKR(cudaDeviceSynchronize());
    *flag = 0;
    hold<<<1, 1>>>(flag, 15'000'000'000ll);
    add<<<1, 1>>>(mine, 5);
    CKR(cudaGetLastError());
    std::thread([&] {
        unsigned got = 0;
        add<<<1, 1>>>(others, 7);
        CKR(cudaGetLastError());
        CKR(cudaMemcpy(&got, others, 4, cudaMemcpyDeviceToHost));
        EXPECT(got == 7, "%u", got);
        CKR(cudaStreamSynchronize(0));
        CKR(cudaStreamQuery(cudaStreamPerThread));
    }).join();
    CKR_IS(cudaStreamQuery(0), cudaErrorNotReady);
    CKR_IS(cudaStreamQuery(cudaStreamPerThread), cudaErrorNotReady);
    // The legacy stream, named, follows all of them.
    add<<<1, 1, 0, cudaStreamLegacy>>>(mine, 100);
    CKR_IS(cudaStreamQuery(cudaStreamLegacy), cudaErrorNotReady);
    *(volatile unsigned *)flag = 1;
    CKR(cudaStreamSynchronize(cudaStreamLegacy));
    unsigned got = 0;
    CKR(cudaMemcpy(&got, mine, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 105, "%u", got);
}

// "Synchronous" fills of pinned memory are over when they return, in a thread's own default stream too.
PITFALL(21, pinned_memory_is_filled_when_the_call_returns) {
    const size_t bytes = 1 << 20;
    unsigned char *pinned, *device;
    CKR(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
    CKR(cudaMalloc(&device, bytes));
    for (int round = 1; round < 100; round++) {
        CKR(cudaMemset(pinned, round, bytes));
        EXPECT(pinned[0] == round && pinned[bytes - 1] == round, "round %d: %u", round, pinned[bytes - 1]);
        CKR(cudaMemset2D(pinned, 1024, round + 100, 1000, 1024));
        EXPECT(pinned[999] == round + 100 && pinned[1000] == round, "round %d: rows", round);
        CKR(cudaMemset(device, round, bytes));
        CKR(cudaMemcpy(pinned, device, bytes, cudaMemcpyDeviceToHost));
        EXPECT(pinned[0] == round && pinned[bytes - 1] == round, "round %d: the copy", round);
    }
    CKR(cudaFree(device));
    CKR(cudaFreeHost(pinned));
}

PITFALL(21, many_threads_default_streams) {
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 6; t++)
        threads.emplace_back([t] {
            unsigned *word, got = 0;
            CKR(cudaMalloc(&word, 4));
            CKR(cudaMemset(word, 0, 4));
            for (unsigned i = 0; i < 50; i++)
                add<<<1, 1>>>(word, i + t);
            CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
            EXPECT(got == 1225 + 50 * t, "thread %u: %u", t, got);
            CKR(cudaFree(word));
        });
    for (auto &thread : threads)
        thread.join();
}

PITFALL(68, allocations_are_in_the_threads_default_stream) {
    unsigned *flag;
    CKR(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
    cudaMemPool_t pool;
    CKR(cudaDeviceGetDefaultMemPool(&pool, 0));
    int no = 0;
    CKR(cudaMemPoolSetAttribute(pool, cudaMemPoolReuseAllowInternalDependencies, &no));
    *flag = 0;
    hold<<<1, 1>>>(flag, 15'000'000'000ll);
    // The other thread does not wait for this thread's kernel.
    unsigned *mine, got = 0;
    CKR(cudaMallocAsync(&mine, 1 << 20, 0));
    CKR(cudaMemsetAsync(mine, 0, 1 << 20, 0));
    add<<<1, 1>>>(mine, 5);
    unsigned *result;
    CKR(cudaMallocAsync(&result, 4, 0));
    CKR(cudaMemcpyAsync(result, mine, 4, cudaMemcpyDeviceToDevice, 0));
    CKR(cudaFreeAsync(mine, 0));
    std::thread([&] {
        unsigned seen = 0, *others;
        CKR(cudaMallocAsync(&others, 1 << 20, 0));
        CKR(cudaMemsetAsync(others, 0xff, 1 << 20, 0));
        CKR(cudaMemcpyAsync(&seen, others, 4, cudaMemcpyDeviceToHost, 0));
        CKR(cudaStreamSynchronize(0));
        EXPECT(seen == ~0u, "%x", seen);
        CKR(cudaFreeAsync(others, 0));
        CKR(cudaStreamSynchronize(cudaStreamPerThread));
    }).join();
    CKR_IS(cudaStreamQuery(0), cudaErrorNotReady);
    *(volatile unsigned *)flag = 1;
    CKR(cudaMemcpyAsync(&got, result, 4, cudaMemcpyDeviceToHost, 0));
    CKR(cudaFreeAsync(result, 0));
    CKR(cudaStreamSynchronize(0));
    EXPECT(got == 5, "%u", got);
}

PITFALL_MAIN
