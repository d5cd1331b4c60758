// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A process that computes, waits SECONDS with its context open, and computes again. It prints a line when it starts to
// wait, for the measurement of other processes.
#include <sys/resource.h>

#include "driver.h"

static double processor_us() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6 + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

int main(int argc, char** argv) {
  const Wanted wanted(argc, argv);
  const double seconds = wanted.names().size() == 1 ? atof(wanted.names()[0].c_str()) : 0;
  if (seconds <= 0) stop(2, "usage: idle [--settle=SECONDS] SECONDS");
  Device device;
  Counter counter(device);
  const auto once = [&] {
    const double begin = now();
    counter.launch();
    CHECK(cuStreamSynchronize(device.stream));
    return now() - begin;
  };
  // The next worker has its own context. If it started after the work below, the first call would have to wait for the
  // GPU to switch contexts.
  wanted.settle();
  Samples busy;
  for (int i = 0; i < 1000; ++i) busy.add(once());
  report("idle-begin", busy.median(), "us");
  const double before = processor_us(), begin = now();
  const timespec time = {static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  nanosleep(&time, nullptr);
  const double waited = now() - begin, used = processor_us() - before;
  const double first = once();
  report("idle-first-call", first, "us");
  report("idle-own-cpu", used / waited * 100, "%");
  counter.check();
  return 0;
}
