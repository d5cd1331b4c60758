// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The cost of graphs, memory of all kinds, copies of rows and into arrays, and waits on an idle stream to their caller.
#include "driver.h"

constexpr int kBatch = 64;

// Many launches in a row, of which no two that follow each other have the same arguments.
static void varied(const Wanted& wanted, Device& device) {
  constexpr unsigned kCounters = 64;
  const int row = wanted.repetitions(50000);
  const CUfunction add = device.function("add_one");
  CUdeviceptr counters;
  CHECK(cuMemAlloc(&counters, kCounters * sizeof(unsigned)));
  CHECK(cuMemsetD32(counters, 0, kCounters));
  CHECK(cuCtxSynchronize());
  Samples samples;
  constexpr int kRounds = 3;
  for (int i = 0; i < kRounds; ++i) {
    const double begin = now();
    for (int j = 0; j < row; ++j) {
      CUdeviceptr counter = counters + j % kCounters * sizeof(unsigned);
      void* arguments[] = {&counter};
      CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, device.stream, arguments, nullptr));
    }
    CHECK(cuStreamSynchronize(device.stream));
    samples.add((now() - begin) / row);
  }
  report("launch-varied-sustained", samples.median(), "us");
  unsigned counted[kCounters], all = 0;
  CHECK(cuMemcpyDtoH(counted, counters, sizeof counted));
  for (const unsigned count : counted) all += count;
  EXPECT(all == static_cast<unsigned>(row * kRounds), "%u launches counted", all);
  CHECK(cuMemFree(counters));
}

static void idle_stream(const Wanted& wanted, Device& device) {
  CHECK(cuStreamSynchronize(device.stream));
  if (wanted("event-record-wait")) {
    CUevent event;
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    Samples samples;
    for (int i = 0; i < wanted.repetitions(1000); ++i) {
      const double begin = now();
      CHECK(cuEventRecord(event, device.stream));
      CHECK(cuEventSynchronize(event));
      samples.add(now() - begin);
    }
    CHECK(cuEventDestroy(event));
    report("event-record-wait", samples.median(), "us");
  }
  if (wanted("stream-query")) {
    Samples samples;
    for (int i = 0; i < wanted.repetitions(200); ++i) {
      const double begin = now();
      for (int j = 0; j < kBatch; ++j) CHECK(cuStreamQuery(device.stream));
      samples.add((now() - begin) / kBatch);
    }
    report("stream-query", samples.median(), "us");
  }
}

// Addresses and memory of their own, from the reservation to its end.
static void virtual_memory(const Wanted& wanted, Device& device) {
  constexpr size_t kBytes = 64 << 20;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device.device}};
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {device.device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  Samples samples;
  for (int i = 0; i < wanted.repetitions(50); ++i) {
    CUdeviceptr start;
    CUmemGenericAllocationHandle memory;
    const double begin = now();
    CHECK(cuMemAddressReserve(&start, kBytes, 0, 0, 0));
    CHECK(cuMemCreate(&memory, kBytes, &properties, 0));
    CHECK(cuMemMap(start, kBytes, 0, memory, 0));
    CHECK(cuMemSetAccess(start, kBytes, &access, 1));
    const double middle = now();
    if (i % 10 == 0) {
      unsigned char back = 0;
      CHECK(cuMemsetD8(start, static_cast<unsigned char>(i + 1), kBytes));
      CHECK(cuMemcpyDtoH(&back, start + kBytes - 1, 1));
      EXPECT(back == static_cast<unsigned char>(i + 1), "%d came back", back);
    }
    CHECK(cuCtxSynchronize());
    const double again = now();
    CHECK(cuMemUnmap(start, kBytes));
    CHECK(cuMemRelease(memory));
    CHECK(cuMemAddressFree(start, kBytes));
    samples.add(middle - begin + now() - again);
  }
  report("map-unmap-64MiB", samples.median(), "us");
}

// Pinned memory, while the program has other pinned memory.
static void host_memory(const Wanted& wanted) {
  constexpr size_t kBytes = 64 << 10;
  void *other, *memory;
  CHECK(cuMemAllocHost(&other, kBytes));
  Samples samples;
  for (int i = 0; i < wanted.repetitions(200); ++i) {
    const double begin = now();
    CHECK(cuMemAllocHost(&memory, kBytes));
    const double middle = now();
    auto* bytes = static_cast<volatile unsigned char*>(memory);
    bytes[0] = bytes[kBytes - 1] = static_cast<unsigned char>(i);
    EXPECT(bytes[0] == static_cast<unsigned char>(i), "%d came back", bytes[0]);
    const double again = now();
    CHECK(cuMemFreeHost(memory));
    samples.add(middle - begin + now() - again);
  }
  report("host-allocate-free-64KiB", samples.median(), "us");
  CHECK(cuMemFreeHost(other));
}

// Rows of pageable memory, copied to rows with gaps, by a call that waits for earlier work alone.
static void copy_rows(const Wanted& wanted, const char* name, size_t width, size_t height) {
  if (!wanted(name)) return;
  const size_t pitch = 2 * width;
  CUdeviceptr device;
  CHECK(cuMemAlloc(&device, pitch * height));
  std::vector<unsigned char> rows(width * height), back(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<unsigned char>(i ^ i >> 8);
  CUDA_MEMCPY2D up{}, down{};
  up.srcMemoryType = down.dstMemoryType = CU_MEMORYTYPE_HOST;
  up.dstMemoryType = down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  up.srcHost = rows.data();
  down.dstHost = back.data();
  up.dstDevice = down.srcDevice = device;
  up.srcPitch = down.dstPitch = up.WidthInBytes = down.WidthInBytes = width;
  up.dstPitch = down.srcPitch = pitch;
  up.Height = down.Height = height;
  Samples samples;
  for (int i = 0; i < wanted.repetitions(100); ++i) {
    rows[i % rows.size()] ^= 1;
    const double begin = now();
    CHECK(cuMemcpy2D(&up));
    samples.add(now() - begin);
  }
  CHECK(cuMemcpy2D(&down));
  EXPECT(back == rows, "%s", "other rows came back");
  report(name, samples.median(), "us");
  CHECK(cuMemFree(device));
}

// Pageable memory, copied in a stream's order and waited for, as frameworks copy a batch.
static void copy_and_wait(const Wanted& wanted, Device& device) {
  constexpr size_t kBytes = 1 << 20;
  CUdeviceptr memory;
  CHECK(cuMemAlloc(&memory, kBytes));
  std::vector<unsigned char> bytes(kBytes), back(kBytes);
  Samples samples;
  for (int i = 0; i < wanted.repetitions(200); ++i) {
    bytes[i] = static_cast<unsigned char>(i + 1);
    const double begin = now();
    CHECK(cuMemcpyHtoDAsync(memory, bytes.data(), kBytes, device.stream));
    CHECK(cuStreamSynchronize(device.stream));
    samples.add(now() - begin);
  }
  CHECK(cuMemcpyDtoH(back.data(), memory, kBytes));
  EXPECT(back == bytes, "%s", "other bytes came back");
  report("copy-wait-1MiB", samples.median(), "us");
  CHECK(cuMemFree(memory));
}

// Memory as a program gets it, copied into an array for textures, until it is there.
static void texture_copy(const Wanted& wanted) {
  constexpr size_t kSide = 4096;
  const CUDA_ARRAY_DESCRIPTOR shape = {kSide, kSide, CU_AD_FORMAT_FLOAT, 1};
  CUarray array;
  CHECK(cuArrayCreate(&array, &shape));
  std::vector<float> texels(kSide * kSide), back(kSide * kSide);
  CUDA_MEMCPY2D up{}, down{};
  up.srcMemoryType = down.dstMemoryType = CU_MEMORYTYPE_HOST;
  up.dstMemoryType = down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  up.srcHost = texels.data();
  down.dstHost = back.data();
  up.dstArray = down.srcArray = array;
  up.srcPitch = down.dstPitch = up.WidthInBytes = down.WidthInBytes = kSide * sizeof(float);
  up.Height = down.Height = kSide;
  Samples samples;
  for (int i = 0; i <= wanted.repetitions(11); ++i) {
    for (size_t at = 0; at < texels.size(); ++at) texels[at] = static_cast<float>(at + i);
    const double begin = now();
    CHECK(cuMemcpy2D(&up));
    CHECK(cuCtxSynchronize());
    // The first warms up.
    if (i > 0) samples.add(now() - begin);
  }
  CHECK(cuMemcpy2D(&down));
  EXPECT(back == texels, "%s", "other texels came back");
  report("texture-copy-64MiB", samples.median(), "us");
  CHECK(cuArrayDestroy(array));
}

// The work of `launches` launches in a stream, captured.
static CUgraph captured(Device& device, Counter& counter, int launches) {
  CUgraph graph;
  CHECK(cuStreamBeginCapture(device.stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < launches; ++i) counter.record();
  CHECK(cuStreamEndCapture(device.stream, &graph));
  return graph;
}

// An executable graph of 100 launches becomes another, all of whose launches have another parameter.
static void graph_update(const Wanted& wanted, Device& device) {
  constexpr int kNodes = 100;
  Counter counters[] = {Counter(device), Counter(device)};
  CUgraph graphs[] = {captured(device, counters[0], kNodes), captured(device, counters[1], kNodes)};
  CUgraphExec executable;
  CHECK(cuGraphInstantiate(&executable, graphs[0], 0));
  Samples samples;
  for (int i = 0; i < wanted.repetitions(100); ++i) {
    const int next = (i + 1) % 2;
    CUgraphExecUpdateResultInfo info;
    const double begin = now();
    CHECK(cuGraphExecUpdate(executable, graphs[next], &info));
    samples.add(now() - begin);
    CHECK(cuGraphLaunch(executable, device.stream));
    counters[next].ran(kNodes);
    CHECK(cuStreamSynchronize(device.stream));
  }
  report("graph-update-100", samples.median(), "us");
  for (Counter& counter : counters) counter.check();
  CHECK(cuGraphExecDestroy(executable));
  for (CUgraph graph : graphs) CHECK(cuGraphDestroy(graph));
}

static void graphs(const Wanted& wanted, Device& device) {
  Counter counter(device);
  if (wanted("graph-make-100")) {
    Samples samples;
    for (int i = 0; i < wanted.repetitions(100); ++i) {
      CUgraphExec executable;
      const double begin = now();
      CUgraph graph = captured(device, counter, 100);
      CHECK(cuGraphInstantiate(&executable, graph, 0));
      samples.add(now() - begin);
      if (i == 0) {
        CHECK(cuGraphLaunch(executable, device.stream));
        counter.ran(100);
      }
      CHECK(cuGraphExecDestroy(executable));
      CHECK(cuGraphDestroy(graph));
    }
    report("graph-make-100", samples.median(), "us");
  }
  if (wanted("graph-launch-20") || wanted("graph-launch-20-sustained")) {
    constexpr int kNodes = 20;
    CUgraphExec executable;
    CUgraph graph = captured(device, counter, kNodes);
    CHECK(cuGraphInstantiate(&executable, graph, 0));
    const auto launch = [&] {
      CHECK(cuGraphLaunch(executable, device.stream));
      counter.ran(kNodes);
    };
    for (int i = 0; i < 20; ++i) launch();
    counter.check();
    Samples calls, sustained;
    for (int i = 0; i < wanted.repetitions(200); ++i) {
      const double begin = now();
      for (int j = 0; j < 8; ++j) launch();
      calls.add((now() - begin) / 8);
      CHECK(cuStreamSynchronize(device.stream));
    }
    report("graph-launch-20", calls.median(), "us");
    const int row = wanted.repetitions(2000);
    for (int i = 0; i < 3; ++i) {
      const double begin = now();
      for (int j = 0; j < row; ++j) launch();
      CHECK(cuStreamSynchronize(device.stream));
      sustained.add((now() - begin) / row);
    }
    report("graph-launch-20-sustained", sustained.median(), "us");
    counter.check();
    CHECK(cuGraphExecDestroy(executable));
    CHECK(cuGraphDestroy(graph));
  }
  if (wanted("graph-update-100")) graph_update(wanted, device);
  counter.check();
}

// Managed memory that the CPU writes, then the GPU, and then the CPU reads.
static void managed(const Wanted& wanted, Device& device) {
  constexpr size_t kBytes = size_t{256} << 20;
  constexpr unsigned kWords = 1024, kPages = kBytes / sizeof(unsigned) / kWords;
  const CUfunction mark = device.function("mark_pages");
  CUdeviceptr memory = 0;
  CHECK(cuMemAllocManaged(&memory, kBytes, CU_MEM_ATTACH_GLOBAL));
  unsigned* words = reinterpret_cast<unsigned*>(memory);
  Samples samples;
  for (int i = 0; i < wanted.repetitions(5); ++i) {
    const unsigned value = 2 * i + 1;
    const double begin = now();
    for (unsigned page = 0; page < kPages; ++page) words[size_t{page} * kWords + 1] = value;
    unsigned count = kPages, length = kWords, marked = value + 1;
    void* arguments[] = {&memory, &length, &count, &marked};
    CHECK(cuLaunchKernel(mark, kPages / 128, 1, 1, 128, 1, 1, 0, device.stream, arguments, nullptr));
    CHECK(cuStreamSynchronize(device.stream));
    unsigned wrong = 0;
    for (unsigned page = 0; page < kPages; ++page) {
      const volatile unsigned* of = words + size_t{page} * kWords;
      wrong += of[0] != marked || of[1] != value;
    }
    samples.add(now() - begin);
    EXPECT(wrong == 0, "%u pages are wrong", wrong);
  }
  report("managed-256MiB", samples.median(), "us");
  CHECK(cuMemFree(memory));
}

int main(int argc, char** argv) {
  const Wanted wanted(argc, argv);
  Device device;
  wanted.settle();
  if (wanted("launch-varied-sustained")) varied(wanted, device);
  idle_stream(wanted, device);
  if (wanted("map-unmap-64MiB")) virtual_memory(wanted, device);
  if (wanted("managed-256MiB")) managed(wanted, device);
  if (wanted("texture-copy-64MiB")) texture_copy(wanted);
  if (wanted("host-allocate-free-64KiB")) host_memory(wanted);
  copy_rows(wanted, "copy-rows-16KiB", 256, 64);
  copy_rows(wanted, "copy-rows-4MiB", 4096, 1024);
  if (wanted("copy-wait-1MiB")) copy_and_wait(wanted, device);
  graphs(wanted, device);
  return 0;
}
