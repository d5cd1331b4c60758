// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The kernels of the programs that do wrong, and of those that must not notice. Found by their plain C names.
#include <cassert>

// Mixes each word with the step, several rounds over: a step takes the GPU longer than its calls take.
extern "C" __global__ void mix(unsigned *words, unsigned count, unsigned step, unsigned rounds) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        unsigned word = words[i] + step;
        for (unsigned round = 0; round < rounds; round++)
            word = word * 1664525u + 1013904223u;
        words[i] = word;
    }
}

extern "C" __global__ void fill(unsigned *words, unsigned long long count, unsigned value) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        words[i] = value;
}

// Counts the words that are the value, and those that are not zero.
extern "C" __global__ void scan(const unsigned *words, unsigned long long count, unsigned value, unsigned long long *found) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x, same = 0, other = 0;
    for (unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        same += words[i] == value;
        other += words[i] != 0;
    }
    if (same)
        atomicAdd(&found[0], same);
    if (other)
        atomicAdd(&found[1], other);
}

extern "C" __global__ void load(const unsigned *from, unsigned *to) { *to = *from; }

extern "C" __global__ void store(unsigned *to, unsigned value) { to[threadIdx.x] = value; }

extern "C" __global__ void claim(unsigned value) { assert(value == 7); }

extern "C" __global__ void trap() { asm volatile("trap;"); }

// Without an end, and without a way for the compiler to know it.
extern "C" __global__ void endless(volatile unsigned *word) {
    while (*word != 0xffffffff)
        *word = *word & 0x7fffffff;
}
