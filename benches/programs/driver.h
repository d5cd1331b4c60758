/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// The driver API's part of the benchmark programs: error checks, and a device with the kernels of kernels.cu.
#pragma once

#include <cuda.h>

#include "bench.h"

// Ends the program with the call and the error's name unless the CUDA call succeeds.
#define CHECK(call)                                                                                   \
  do {                                                                                                \
    const CUresult check_error = (call);                                                              \
    if (check_error != CUDA_SUCCESS) {                                                                \
      const char* check_name = nullptr;                                                               \
      cuGetErrorName(check_error, &check_name);                                                       \
      stop(3, "%s:%d: %s failed: %s (%d)", __FILE__, __LINE__, #call,                                 \
           check_name != nullptr ? check_name : "unknown", static_cast<int>(check_error));            \
    }                                                                                                 \
  } while (0)

extern "C" const unsigned char bench_kernel_image[];

// Device 0, its primary context, the kernels and a stream of its own.
struct Device {
  CUdevice device;
  CUcontext context;
  CUmodule module;
  CUstream stream;

  Device() {
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context, device));
    CHECK(cuCtxSetCurrent(context));
    CHECK(cuModuleLoadData(&module, bench_kernel_image));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  ~Device() {
    CHECK(cuStreamDestroy(stream));
    CHECK(cuModuleUnload(module));
    CHECK(cuDevicePrimaryCtxRelease(device));
  }
  Device(const Device&) = delete;

  CUfunction function(const char* name) const {
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module, name));
    return function;
  }
};

// One number in device memory that kernels add to, so that a lost or repeated launch shows.
class Counter {
 public:
  explicit Counter(const Device& device) : stream_(device.stream), add_(device.function("add_one")) {
    CHECK(cuMemAlloc(&address_, sizeof(unsigned)));
    CHECK(cuMemsetD32(address_, 0, 1));
    CHECK(cuCtxSynchronize());
  }
  ~Counter() { CHECK(cuMemFree(address_)); }
  Counter(const Counter&) = delete;

  void launch() {
    record();
    ++launches_;
  }
  // A launch that does not run yet, for the stream is captured.
  void record() {
    void* arguments[] = {&address_};
    CHECK(cuLaunchKernel(add_, 1, 1, 1, 1, 1, 1, 0, stream_, arguments, nullptr));
  }
  // Records that this number of captured launches has run.
  void ran(unsigned launches) { launches_ += launches; }
  // Fails unless every launch so far has added one, and no other did.
  void check() {
    CHECK(cuStreamSynchronize(stream_));
    unsigned value = 0;
    CHECK(cuMemcpyDtoH(&value, address_, sizeof value));
    EXPECT(value == launches_, "%u launches counted, %u made", value, launches_);
  }

 private:
  CUstream stream_;
  CUfunction add_;
  CUdeviceptr address_ = 0;
  unsigned launches_ = 0;
};
