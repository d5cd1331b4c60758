// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The kernels of the benchmarks: as small as a kernel can be that leaves a trace to check.

extern "C" __global__ void add_one(unsigned* counter) { atomicAdd(counter, 1u); }

// Marks each of `count` pages of `words` 32-bit words: `mark` into its first word.
extern "C" __global__ void mark_pages(unsigned* data, unsigned words, unsigned count, unsigned mark) {
  const unsigned page = blockIdx.x * blockDim.x + threadIdx.x;
  if (page < count) data[static_cast<size_t>(page) * words] = mark;
}

// Counts the pages that do not have `mark` in their first word.
extern "C" __global__ void count_unmarked(const unsigned* data, unsigned words, unsigned count, unsigned mark,
                                          unsigned* unmarked) {
  const unsigned page = blockIdx.x * blockDim.x + threadIdx.x;
  if (page < count && data[static_cast<size_t>(page) * words] != mark) atomicAdd(unmarked, 1u);
}

// A kernel of a set amount of work: each block counts itself at its end. `never` is zero: without it the compiler would
// remove the computation, whose result is unused.
extern "C" __global__ void count_up(unsigned* counters, unsigned iterations, unsigned never) {
  unsigned value = threadIdx.x;
#pragma unroll 1
  for (unsigned i = 0; i < iterations; ++i) value = value * 1664525u + 1013904223u;
  if (value == 0x5eed && never != 0) atomicAdd(counters, value);
  __syncthreads();
  if (threadIdx.x == 0) atomicAdd(&counters[blockIdx.x], 1u);
}
