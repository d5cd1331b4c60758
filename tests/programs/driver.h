/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// The driver API's part of the test programs: error checks, the embedded kernel image, context, buffers, kernel time.
#pragma once

#include <cuda.h>

#include "common.h"

// Ends the program with the call, the error's name and its string unless the CUDA call succeeds.
#define CHECK(call)                                                                                              \
  do {                                                                                                           \
    const CUresult check_error = (call);                                                                         \
    if (check_error != CUDA_SUCCESS) {                                                                           \
      const char *check_name = nullptr, *check_text = nullptr;                                                   \
      cuGetErrorName(check_error, &check_name);                                                                  \
      cuGetErrorString(check_error, &check_text);                                                                \
      fprintf(stderr, "%s:%d: %s failed: %s (%d): %s\n", __FILE__, __LINE__, #call,                              \
              check_name != nullptr ? check_name : "unknown", static_cast<int>(check_error),                     \
              check_text != nullptr ? check_text : "no description");                                            \
      exit(kCudaError);                                                                                          \
    }                                                                                                            \
  } while (0)

// KERNEL_IMAGE is the path of the fatbin that nvcc -fatbin made; the assembler puts its bytes into the program.
#ifndef KERNEL_IMAGE
#error "-DKERNEL_IMAGE='\"FILE.fatbin\"' names the kernel image to embed (README.md has the commands)"
#endif
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".globl gpgpu_kernel_image\n"
    "gpgpu_kernel_image:\n"
    ".incbin \"" KERNEL_IMAGE "\"\n"
    ".byte 0\n"  // PTX given as the image in place of a fatbin ends with a zero byte
    ".popsection\n");
extern "C" const unsigned char gpgpu_kernel_image[];

// Device 0, its primary context and the embedded module.
class Device {
 public:
  Device() {
    CHECK(cuInit(0));
    CHECK(cuDeviceGet(&device_, 0));
    CHECK(cuDevicePrimaryCtxRetain(&context_, device_));
    CHECK(cuCtxSetCurrent(context_));
    CHECK(cuModuleLoadData(&module_, gpgpu_kernel_image));
  }
  ~Device() {
    CHECK(cuModuleUnload(module_));
    CHECK(cuDevicePrimaryCtxRelease(device_));
  }
  Device(const Device&) = delete;

  CUfunction function(const char* name) const {
    CUfunction function;
    CHECK(cuModuleGetFunction(&function, module_, name));
    return function;
  }

 private:
  CUdevice device_;
  CUcontext context_;
  CUmodule module_;
};

// Device memory for `count` elements.
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : bytes_(count * sizeof(T)) { CHECK(cuMemAlloc(&address_, bytes_)); }
  ~DeviceBuffer() { CHECK(cuMemFree(address_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;

  CUdeviceptr get() const { return address_; }
  void upload(const T* from, Program* program) const {
    CHECK(cuMemcpyHtoD(address_, from, bytes_));
    program->moved(bytes_);
  }
  void download(T* to, Program* program) const {
    CHECK(cuMemcpyDtoH(to, address_, bytes_));
    program->moved(bytes_);
  }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_;
};

// Host memory for `count` elements, page-locked with --pinned. Not zeroed.
template <typename T>
class HostBuffer {
 public:
  HostBuffer(size_t count, bool pinned) : count_(count), pinned_(pinned) {
    if (pinned_) {
      CHECK(cuMemAllocHost(reinterpret_cast<void**>(&data_), count * sizeof(T)));
    } else if ((data_ = static_cast<T*>(malloc(count * sizeof(T)))) == nullptr) {
      fprintf(stderr, "out of host memory: %zu bytes\n", count * sizeof(T));
      exit(kUsage);
    }
  }
  ~HostBuffer() {
    if (pinned_) CHECK(cuMemFreeHost(data_));
    else free(data_);
  }
  HostBuffer(const HostBuffer&) = delete;

  T* get() const { return data_; }
  T& operator[](size_t index) const { return data_[index]; }
  size_t bytes() const { return count_ * sizeof(T); }

 private:
  T* data_ = nullptr;
  size_t count_;
  bool pinned_;
};

// Adds the GPU's time between start() and stop() to the program's kernel_ms; stop() waits for the kernels and reports
// what they did wrong.
class KernelTimer {
 public:
  explicit KernelTimer(Program* program) : program_(program) {
    CHECK(cuEventCreate(&begin_, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end_, CU_EVENT_DEFAULT));
  }
  ~KernelTimer() {
    CHECK(cuEventDestroy(begin_));
    CHECK(cuEventDestroy(end_));
  }
  KernelTimer(const KernelTimer&) = delete;

  void start() { CHECK(cuEventRecord(begin_, nullptr)); }
  void stop() {
    CHECK(cuEventRecord(end_, nullptr));
    CHECK(cuEventSynchronize(end_));
    float milliseconds = 0;
    CHECK(cuEventElapsedTime(&milliseconds, begin_, end_));
    program_->kernel_ms += milliseconds;
  }

 private:
  Program* program_;
  CUevent begin_, end_;
};
