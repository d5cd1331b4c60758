// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The cost of single calls of the driver API to their caller.
#include "driver.h"

// The number of launches between two readings of the clock: more expensive than the clock, and fewer than any queue
// holds.
constexpr int kBatch = 64;
constexpr int kRow = 50000;

static void launches(const Wanted& wanted, Device& device) {
  Counter counter(device);
  for (int i = 0; i < 200; ++i) counter.launch();
  counter.check();
  if (wanted("launch-call")) {
    Samples samples;
    for (int i = 0; i < wanted.repetitions(200); ++i) {
      const double begin = now();
      for (int j = 0; j < kBatch; ++j) counter.launch();
      samples.add((now() - begin) / kBatch);
      CHECK(cuStreamSynchronize(device.stream));
    }
    report("launch-call", samples.median(), "us");
  }
  if (wanted("launch-sustained")) {
    Samples samples;
    const int row = wanted.quick() ? kRow / 5 : kRow;
    for (int i = 0; i < 3; ++i) {
      const double begin = now();
      for (int j = 0; j < row; ++j) counter.launch();
      CHECK(cuStreamSynchronize(device.stream));
      samples.add((now() - begin) / row);
    }
    report("launch-sustained", samples.median(), "us");
  }
  if (wanted("launch-sync")) {
    Samples samples;
    for (int i = 0; i < wanted.repetitions(3000); ++i) {
      const double begin = now();
      counter.launch();
      CHECK(cuStreamSynchronize(device.stream));
      samples.add(now() - begin);
    }
    report("launch-sync-median", samples.median(), "us");
    report("launch-sync-p99", samples.quantile(0.99), "us");
  }
  counter.check();
}

static void events(const Wanted& wanted, Device& device) {
  CUevent event;
  CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  const auto query = [&] {
    const CUresult state = cuEventQuery(event);
    EXPECT(state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY, "cuEventQuery returned %d", static_cast<int>(state));
    return state == CUDA_SUCCESS;
  };
  if (wanted("event-record-query")) {
    Samples samples;
    for (int i = 0; i < wanted.repetitions(200); ++i) {
      const double begin = now();
      for (int j = 0; j < kBatch; ++j) {
        CHECK(cuEventRecord(event, device.stream));
        query();
      }
      samples.add((now() - begin) / kBatch);
      CHECK(cuStreamSynchronize(device.stream));
      EXPECT(query(), "an event is not done after its stream was synchronised%s", "");
    }
    report("event-record-query", samples.median(), "us");
  }
  if (wanted("event-done")) {
    Samples samples;
    for (int i = 0; i < wanted.repetitions(1000); ++i) {
      const double begin = now();
      CHECK(cuEventRecord(event, device.stream));
      while (!query()) {
      }
      samples.add(now() - begin);
    }
    report("event-done", samples.median(), "us");
  }
  CHECK(cuEventDestroy(event));
}

static void small_copies(const Wanted& wanted) {
  CUdeviceptr address;
  CHECK(cuMemAlloc(&address, 4));
  const int times = wanted.repetitions(2000);
  unsigned back = 0;
  if (wanted("copy-4B-h2d")) {
    Samples samples;
    for (int i = 0; i < times; ++i) {
      const unsigned value = 0x5eed0000u + i;
      const double begin = now();
      CHECK(cuMemcpyHtoD(address, &value, 4));
      samples.add(now() - begin);
      if (i % 64 == 0 || i + 1 == times) {
        CHECK(cuMemcpyDtoH(&back, address, 4));
        EXPECT(back == value, "%x came back in place of %x", back, value);
      }
    }
    report("copy-4B-h2d", samples.median(), "us");
  }
  if (wanted("copy-4B-d2h")) {
    Samples samples;
    for (int i = 0; i < times; ++i) {
      if (i % 64 == 0) CHECK(cuMemsetD32(address, i, 1));
      if (i % 64 == 0) CHECK(cuCtxSynchronize());
      const double begin = now();
      CHECK(cuMemcpyDtoH(&back, address, 4));
      samples.add(now() - begin);
      EXPECT(back == static_cast<unsigned>(i / 64 * 64), "%x came back in place of %x", back, i / 64 * 64);
    }
    report("copy-4B-d2h", samples.median(), "us");
  }
  CHECK(cuMemFree(address));
}

static void allocation(const Wanted& wanted) {
  constexpr size_t kBytes = 1 << 20;
  Samples samples;
  for (int i = 0; i < wanted.repetitions(500); ++i) {
    CUdeviceptr address = 0;
    const double begin = now();
    CHECK(cuMemAlloc(&address, kBytes));
    const double middle = now();
    // Now and then, outside the clock: the memory exists, to its last byte.
    if (i % 100 == 0) {
      unsigned char back = 0;
      CHECK(cuMemsetD8(address, static_cast<unsigned char>(i + 1), kBytes));
      CHECK(cuMemcpyDtoH(&back, address + kBytes - 1, 1));
      EXPECT(back == static_cast<unsigned char>(i + 1), "%d came back", back);
    }
    const double again = now();
    CHECK(cuMemFree(address));
    samples.add(middle - begin + now() - again);
  }
  report("allocate-free-1MiB", samples.median(), "us");
}

// The same in a stream's order, out of the device's own pool.
static void allocation_in_order(const Wanted& wanted, Device& device) {
  constexpr size_t kBytes = 1 << 20;
  Samples samples;
  for (int i = 0; i < wanted.repetitions(500); ++i) {
    CUdeviceptr address = 0;
    const double begin = now();
    CHECK(cuMemAllocAsync(&address, kBytes, device.stream));
    const double middle = now();
    if (i % 100 == 0) {
      unsigned char back = 0;
      CHECK(cuMemsetD8Async(address, static_cast<unsigned char>(i + 1), kBytes, device.stream));
      CHECK(cuMemcpyDtoHAsync(&back, address + kBytes - 1, 1, device.stream));
      CHECK(cuStreamSynchronize(device.stream));
      EXPECT(back == static_cast<unsigned char>(i + 1), "%d came back", back);
    }
    const double again = now();
    CHECK(cuMemFreeAsync(address, device.stream));
    samples.add(middle - begin + now() - again);
  }
  CHECK(cuStreamSynchronize(device.stream));
  report("allocate-free-async-1MiB", samples.median(), "us");
}

// Calls that need nothing of the device, in nanoseconds.
static void answered(const Wanted& wanted, Device& device) {
  const CUfunction function = device.function("add_one");
  CUcontext context = nullptr;
  CUdevice number = -1;
  int value = 0;
  if (wanted("cuCtxGetCurrent")) {
    report("cuCtxGetCurrent", nanoseconds(wanted, [&] { CHECK(cuCtxGetCurrent(&context)); }), "ns");
    EXPECT(context == device.context, "%p", static_cast<void*>(context));
  }
  if (wanted("cuCtxGetDevice")) {
    report("cuCtxGetDevice", nanoseconds(wanted, [&] { CHECK(cuCtxGetDevice(&number)); }), "ns");
    EXPECT(number == device.device, "%d", number);
  }
  if (wanted("cuCtxSetCurrent"))
    report("cuCtxSetCurrent", nanoseconds(wanted, [&] { CHECK(cuCtxSetCurrent(device.context)); }), "ns");
  if (wanted("cuDeviceGetAttribute")) {
    report("cuDeviceGetAttribute", nanoseconds(wanted, [&] {
             CHECK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, device.device));
           }), "ns");
    EXPECT(value == 32, "a warp of %d", value);
  }
  if (wanted("cuFuncGetAttribute")) {
    report("cuFuncGetAttribute", nanoseconds(wanted, [&] {
             CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
           }), "ns");
    EXPECT(value >= 32 && value <= 1024, "%d threads", value);
  }
  if (wanted("cuDevicePrimaryCtxGetState")) {
    unsigned flags = 0;
    report("cuDevicePrimaryCtxGetState", nanoseconds(wanted, [&] {
             CHECK(cuDevicePrimaryCtxGetState(device.device, &flags, &value));
           }), "ns");
    EXPECT(value == 1, "active is %d", value);
  }
  if (wanted("cuPointerGetAttribute")) {
    CUdeviceptr address;
    unsigned type = 0;
    CHECK(cuMemAlloc(&address, 4096));
    report("cuPointerGetAttribute", nanoseconds(wanted, [&] {
             CHECK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
           }), "ns");
    EXPECT(type == CU_MEMORYTYPE_DEVICE, "type %u", type);
    CHECK(cuMemFree(address));
  }
}

int main(int argc, char** argv) {
  const Wanted wanted(argc, argv);
  Device device;
  wanted.settle();
  char name[256] = "";
  int version = 0;
  CHECK(cuDeviceGetName(name, sizeof name, device.device));
  CHECK(cuDriverGetVersion(&version));
  fact("device", name);
  fact("cuda", std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10));
  if (wanted("launch-call") || wanted("launch-sustained") || wanted("launch-sync")) launches(wanted, device);
  events(wanted, device);
  small_copies(wanted);
  if (wanted("allocate-free-1MiB")) allocation(wanted);
  if (wanted("allocate-free-async-1MiB")) allocation_in_order(wanted, device);
  answered(wanted, device);
  return 0;
}
