// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Queries device 0 through the runtime in several ways, and checks that the answers agree.
#include <cstdarg>

#include "runtime.h"

static Mismatches wrong;

static void expect(bool holds, const char* what) {
  if (!holds) wrong.report("%s", what);
}

// An attribute must equal the property structure's field, if there is a corresponding one.
static void agrees(const char* what, cudaDeviceAttr attribute, long long property) {
  int value = -1;
  CHECK(cudaDeviceGetAttribute(&value, attribute, 0));
  if (value != property) wrong.report("%s: attribute %d, property %lld", what, value, property);
}

static void append(std::string* text, const char* format, ...) {
  char line[512];
  va_list values;
  va_start(values, format);
  vsnprintf(line, sizeof line, format, values);
  va_end(values);
  *text += line;
}

static void query(Program* program) {
  program->total.start();
  int count = 0, driver = 0, runtime = 0, device = -1;
  CHECK(cudaGetDeviceCount(&count));
  CHECK(cudaDriverGetVersion(&driver));
  CHECK(cudaRuntimeGetVersion(&runtime));
  CHECK(cudaSetDevice(0));
  CHECK(cudaGetDevice(&device));
  cudaDeviceProp property;
  CHECK(cudaGetDeviceProperties(&property, 0));
  size_t free_bytes = 0, total_bytes = 0;
  CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));

  expect(count >= 1, "there is a device");
  expect(device == 0, "cudaGetDevice gives what cudaSetDevice set");
  expect(driver >= runtime / 1000 * 1000, "the driver is at least of the runtime's major version");
  expect(property.name[0] != 0 && memchr(property.name, 0, sizeof property.name) != nullptr, "the device has a name");
  expect(property.warpSize == 32, "a warp has 32 lanes");
  expect(property.totalGlobalMem > 0, "the device has memory");
  expect(total_bytes > 0 && free_bytes <= total_bytes, "free memory is part of all memory");
  expect(total_bytes <= property.totalGlobalMem, "cudaMemGetInfo's total is no more than the device's");
  agrees("multiprocessors", cudaDevAttrMultiProcessorCount, property.multiProcessorCount);
  agrees("compute capability, major", cudaDevAttrComputeCapabilityMajor, property.major);
  agrees("compute capability, minor", cudaDevAttrComputeCapabilityMinor, property.minor);
  agrees("warp size", cudaDevAttrWarpSize, property.warpSize);
  agrees("threads per block", cudaDevAttrMaxThreadsPerBlock, property.maxThreadsPerBlock);
  agrees("threads per multiprocessor", cudaDevAttrMaxThreadsPerMultiProcessor, property.maxThreadsPerMultiProcessor);
  agrees("block x", cudaDevAttrMaxBlockDimX, property.maxThreadsDim[0]);
  agrees("block y", cudaDevAttrMaxBlockDimY, property.maxThreadsDim[1]);
  agrees("block z", cudaDevAttrMaxBlockDimZ, property.maxThreadsDim[2]);
  agrees("grid x", cudaDevAttrMaxGridDimX, property.maxGridSize[0]);
  agrees("grid y", cudaDevAttrMaxGridDimY, property.maxGridSize[1]);
  agrees("grid z", cudaDevAttrMaxGridDimZ, property.maxGridSize[2]);
  agrees("shared memory per block", cudaDevAttrMaxSharedMemoryPerBlock, property.sharedMemPerBlock);
  agrees("shared memory per block, opt-in", cudaDevAttrMaxSharedMemoryPerBlockOptin, property.sharedMemPerBlockOptin);
  agrees("shared memory per multiprocessor", cudaDevAttrMaxSharedMemoryPerMultiprocessor,
         property.sharedMemPerMultiprocessor);
  agrees("registers per block", cudaDevAttrMaxRegistersPerBlock, property.regsPerBlock);
  agrees("constant memory", cudaDevAttrTotalConstantMemory, property.totalConstMem);
  agrees("memory bus width", cudaDevAttrGlobalMemoryBusWidth, property.memoryBusWidth);
  agrees("L2 cache", cudaDevAttrL2CacheSize, property.l2CacheSize);
  agrees("unified addressing", cudaDevAttrUnifiedAddressing, property.unifiedAddressing);
  agrees("managed memory", cudaDevAttrManagedMemory, property.managedMemory);

  // A device that does not exist is refused, the error is kept until it is read, and nothing else is harmed.
  expect(cudaSetDevice(count) == cudaErrorInvalidDevice, "cudaSetDevice refuses a device past the last");
  expect(cudaGetLastError() == cudaErrorInvalidDevice, "cudaGetLastError gives the refusal");
  expect(cudaGetLastError() == cudaSuccess, "cudaGetLastError forgets what it gave");
  CHECK(cudaDeviceSynchronize());
  program->total.stop();

  // Only facts that do not change from run to run or with the VM's share of the memory are part of the checksum.
  std::string text;
  append(&text, "name: %s\n", property.name);
  append(&text, "compute capability: %d.%d\n", property.major, property.minor);
  append(&text, "multiprocessors: %d\n", property.multiProcessorCount);
  append(&text, "threads per block: %d\n", property.maxThreadsPerBlock);
  append(&text, "threads per multiprocessor: %d\n", property.maxThreadsPerMultiProcessor);
  append(&text, "block: %d x %d x %d\n", property.maxThreadsDim[0], property.maxThreadsDim[1],
         property.maxThreadsDim[2]);
  append(&text, "grid: %d x %d x %d\n", property.maxGridSize[0], property.maxGridSize[1], property.maxGridSize[2]);
  append(&text, "shared memory per block: %zu (%zu opt-in)\n", property.sharedMemPerBlock,
         property.sharedMemPerBlockOptin);
  append(&text, "registers per block: %d\n", property.regsPerBlock);
  append(&text, "constant memory: %zu\n", property.totalConstMem);
  append(&text, "L2 cache: %d\n", property.l2CacheSize);
  fputs(text.c_str(), stdout);
  printf("devices: %d\ndriver: %d\nruntime: %d\nmemory: %zu of %zu bytes free\n", count, driver, runtime, free_bytes,
         total_bytes);
  program->emit(text.data(), text.size());
}

int main(int argc, char** argv) {
  Program program("device-query", "prints the properties of device 0 and checks that they agree", "", 0, 0);
  program.size_limit(0);
  program.parse(argc, argv);
  for (uint64_t i = 0; i + 1 < program.iterations(); ++i) {
    cudaDeviceProp property;
    CHECK(cudaGetDeviceProperties(&property, 0));
  }
  query(&program);
  return program.finish(wrong.none(), "device");
}
