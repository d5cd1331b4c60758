/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// The runtime API's part of the test programs: error checks, buffers and kernel time.
#pragma once

#include <cuda_runtime.h>

#include "common.h"

// Ends the program with the call, the error's name and its string unless the CUDA call succeeds.
#define CHECK(call)                                                                                              \
  do {                                                                                                           \
    const cudaError_t check_error = (call);                                                                      \
    if (check_error != cudaSuccess) {                                                                            \
      fprintf(stderr, "%s:%d: %s failed: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorName(check_error),    \
              cudaGetErrorString(check_error));                                                                  \
      exit(kCudaError);                                                                                          \
    }                                                                                                            \
  } while (0)

// Device memory for `count` elements.
template <typename T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t count) : bytes_(count * sizeof(T)) { CHECK(cudaMalloc(&data_, bytes_)); }
  ~DeviceBuffer() { CHECK(cudaFree(data_)); }
  DeviceBuffer(const DeviceBuffer&) = delete;

  T* get() const { return data_; }
  size_t bytes() const { return bytes_; }
  void upload(const T* from, Program* program) const { upload(from, bytes_ / sizeof(T), program); }
  void upload(const T* from, size_t count, Program* program) const {
    CHECK(cudaMemcpy(data_, from, count * sizeof(T), cudaMemcpyHostToDevice));
    program->moved(count * sizeof(T));
  }
  void download(T* to, Program* program) const { download(to, bytes_ / sizeof(T), program); }
  void download(T* to, size_t count, Program* program) const {
    CHECK(cudaMemcpy(to, data_, count * sizeof(T), cudaMemcpyDeviceToHost));
    program->moved(count * sizeof(T));
  }

 private:
  T* data_ = nullptr;
  size_t bytes_;
};

// Host memory for `count` elements, page-locked with --pinned. Not zeroed.
template <typename T>
class HostBuffer {
 public:
  HostBuffer(size_t count, bool pinned) : count_(count), pinned_(pinned) {
    if (pinned_) {
      CHECK(cudaMallocHost(&data_, count * sizeof(T)));
    } else if ((data_ = static_cast<T*>(malloc(count * sizeof(T)))) == nullptr) {
      fprintf(stderr, "out of host memory: %zu bytes\n", count * sizeof(T));
      exit(kUsage);
    }
  }
  ~HostBuffer() {
    if (pinned_) CHECK(cudaFreeHost(data_));
    else free(data_);
  }
  HostBuffer(const HostBuffer&) = delete;

  T* get() const { return data_; }
  T& operator[](size_t index) const { return data_[index]; }
  size_t count() const { return count_; }
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
    CHECK(cudaEventCreate(&begin_));
    CHECK(cudaEventCreate(&end_));
  }
  ~KernelTimer() {
    CHECK(cudaEventDestroy(begin_));
    CHECK(cudaEventDestroy(end_));
  }
  KernelTimer(const KernelTimer&) = delete;

  void start() { CHECK(cudaEventRecord(begin_)); }
  void stop() {
    CHECK(cudaGetLastError());
    CHECK(cudaEventRecord(end_));
    CHECK(cudaEventSynchronize(end_));
    float milliseconds = 0;
    CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
    program_->kernel_ms += milliseconds;
  }

 private:
  Program* program_;
  cudaEvent_t begin_, end_;
};
