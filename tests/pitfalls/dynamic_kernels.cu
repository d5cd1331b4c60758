// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Kernels that launch kernels, for dynamic.cpp.

__device__ void note(unsigned *out, unsigned value) { out[1 + atomicAdd(out, 1)] = value; }

__global__ void child(unsigned *out, unsigned value) { note(out, value); }

__global__ void add(unsigned *to, unsigned term) { *to += term; }

__global__ void copy_word(unsigned *to, const unsigned *from) { *to = *from; }

// Each thread launches a child of two blocks of four threads.
extern "C" __global__ void each(unsigned *out, unsigned value) { child<<<2, 4>>>(out, value); }

// Children of one stream run in its order, and see what the parent wrote before.
extern "C" __global__ void in_order(unsigned *out, unsigned count) {
    out[0] = 0;
    for (unsigned i = 0; i < count; i++)
        child<<<1, 1>>>(out, i);
}

// Two streams that an event connects: the second takes what the first made.
extern "C" __global__ void connected(unsigned *out, unsigned value) {
    cudaStream_t first, second;
    cudaEvent_t event;
    unsigned codes = cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking);
    codes |= cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking);
    codes |= cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    add<<<1, 1, 0, first>>>(out + 1, value);
    add<<<1, 1, 0, first>>>(out + 1, value);
    codes |= cudaEventRecord(event, first);
    codes |= cudaStreamWaitEvent(second, event, 0);
    copy_word<<<1, 1, 0, second>>>(out + 2, out + 1);
    codes |= cudaEventDestroy(event);
    codes |= cudaStreamDestroy(first);
    codes |= cudaStreamDestroy(second);
    out[0] = codes | cudaGetLastError();
}

__global__ void parent_of_one(unsigned *out, unsigned value) { add<<<1, 1>>>(out, value); }

// The tail runs after all other work of the grid, including the work of its children.
extern "C" __global__ void tail(unsigned *out, unsigned value) {
    copy_word<<<1, 1, 0, cudaStreamTailLaunch>>>(out + 1, out);
    parent_of_one<<<1, 1, 0, cudaStreamFireAndForget>>>(out, value);
    parent_of_one<<<1, 1>>>(out + 2, value);
    copy_word<<<1, 1, 0, cudaStreamTailLaunch>>>(out + 3, out + 2);
}

// A kernel that continues in its own tail.
extern "C" __global__ void again(unsigned *out, unsigned left) {
    *out += 1;
    if (left > 0)
        again<<<1, 1, 0, cudaStreamTailLaunch>>>(out, left - 1);
}

extern "C" __global__ void moves(unsigned *out, unsigned value) {
    add<<<1, 1>>>(out + 1, value);
    unsigned codes = cudaMemcpyAsync(out + 3, out + 1, 8, cudaMemcpyDeviceToDevice, 0);
    void *memory = nullptr;
    codes |= cudaMalloc(&memory, 1000);
    *(volatile unsigned *)memory = value;
    out[5] = *(volatile unsigned *)memory;
    codes |= cudaFree(memory);
    out[0] = codes;
}

// The codes of invalid launches, and of a query after each.
extern "C" __global__ void refused(unsigned *out, unsigned threads) {
    add<<<1, threads>>>(out, 1);
    out[1] = cudaPeekAtLastError();
    out[2] = cudaGetLastError();
    out[3] = cudaGetLastError();
    add<<<0, 1>>>(out, 1);
    out[4] = cudaGetLastError();
    int multiprocessors = 0;
    out[6] = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    out[7] = multiprocessors;
    cudaFuncAttributes attributes;
    out[8] = cudaFuncGetAttributes(&attributes, add);
    out[9] = attributes.maxThreadsPerBlock;
}

__global__ void stray(unsigned *to) { *to = 1; }

extern "C" __global__ void broken(unsigned *, unsigned) { stray<<<1, 1>>>((unsigned *)64); }
