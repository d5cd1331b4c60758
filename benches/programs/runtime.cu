// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// On the runtime API: from main to the first kernel's result, and calls that the library answers by itself.
#include <cuda_runtime.h>

#include "bench.h"

#define CHECK(call)                                                                                        \
  do {                                                                                                     \
    const cudaError_t check_error = (call);                                                                \
    if (check_error != cudaSuccess)                                                                        \
      stop(3, "%s:%d: %s failed: %s", __FILE__, __LINE__, #call, cudaGetErrorName(check_error));           \
  } while (0)

__global__ void add_one(unsigned* counter) { atomicAdd(counter, 1u); }

static double first_result() {
  const double begin = now();
  unsigned value = 41, *address;
  CHECK(cudaMalloc(&address, sizeof value));
  CHECK(cudaMemcpy(address, &value, sizeof value, cudaMemcpyHostToDevice));
  add_one<<<1, 1>>>(address);
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(&value, address, sizeof value, cudaMemcpyDeviceToHost));
  const double end = now();
  EXPECT(value == 42, "41 + 1 = %u", value);
  CHECK(cudaFree(address));
  return (end - begin) * 1e-3;
}

int main(int argc, char** argv) {
  const double start = first_result();
  const Wanted wanted(argc, argv);
  if (wanted("start-runtime")) report("start-runtime", start, "ms");
  int value = -1;
  if (wanted("cudaGetDevice")) {
    report("cudaGetDevice", nanoseconds(wanted, [&] { CHECK(cudaGetDevice(&value)); }), "ns");
    EXPECT(value == 0, "device %d", value);
  }
  if (wanted("cudaDeviceGetAttribute")) {
    report("cudaDeviceGetAttribute",
           nanoseconds(wanted, [&] { CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0)); }), "ns");
    EXPECT(value == 32, "a warp of %d", value);
  }
  if (wanted("cudaGetLastError")) report("cudaGetLastError", nanoseconds(wanted, [&] { CHECK(cudaGetLastError()); }), "ns");
  return 0;
}
