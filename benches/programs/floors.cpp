// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The cost of this machine's parts without CUDA and without us: the floors below every figure of the other programs.
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>

#include "bench.h"

struct Shared {
  alignas(64) std::atomic<unsigned> there;
  alignas(64) std::atomic<unsigned> back;
};

// A word that is passed to another process and back; both poll it without pause.
static void ping_pong(const Wanted& wanted) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) return;
  auto* const shared = static_cast<Shared*>(
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const unsigned times = wanted.repetitions(200000);
  const pid_t child = fork();
  if (child == 0) {
    for (unsigned i = 1; i <= times; ++i) {
      while (shared->there.load(std::memory_order_acquire) != i) {
      }
      shared->back.store(i, std::memory_order_release);
    }
    _exit(0);
  }
  Samples samples;
  for (unsigned i = 1; i <= times; ++i) {
    const double begin = now();
    shared->there.store(i, std::memory_order_release);
    while (shared->back.load(std::memory_order_acquire) != i) {
    }
    samples.add(now() - begin);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(status == 0 && shared->back == times, "the other process ended with %d", status);
  report("floor-shared-memory-round-trip", samples.median(), "us");
}

// The same through the kernel: two eventfds, both processes asleep in between.
static void wake_up(const Wanted& wanted) {
  const int there = eventfd(0, 0), back = eventfd(0, 0);
  const int times = wanted.repetitions(5000);
  const pid_t child = fork();
  uint64_t value = 1;
  if (child == 0) {
    for (int i = 0; i < times; ++i)
      if (read(there, &value, 8) != 8 || write(back, &value, 8) != 8) _exit(1);
    _exit(0);
  }
  Samples samples;
  for (int i = 0; i < times; ++i) {
    const double begin = now();
    EXPECT(write(there, &value, 8) == 8 && read(back, &value, 8) == 8, "eventfd%s", "");
    samples.add(now() - begin);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT(status == 0, "the other process ended with %d", status);
  report("floor-eventfd-round-trip", samples.median(), "us");
}

static void memory(const Wanted& wanted) {
  constexpr size_t kBytes = 64 << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 0);
  Samples whole, pages;
  for (int i = 0; i < wanted.repetitions(15); ++i) {
    from[kBytes - 1] = static_cast<char>(i);
    const double begin = now();
    memcpy(to.data(), from.data(), kBytes);
    whole.add(now() - begin);
    EXPECT(to[kBytes - 1] == static_cast<char>(i), "memcpy%s", "");
    const double again = now();
    // Pages in an order that no prefetcher guesses: 40503 and the number of pages have no common divisor.
    constexpr size_t kPages = kBytes / 4096;
    for (size_t page = 0; page < kPages; ++page)
      memcpy(to.data() + page * 4096, from.data() + page * 40503 % kPages * 4096, 4096);
    pages.add(now() - again);
  }
  report("floor-memcpy-64MiB", kBytes / whole.median() * 1e-3, "GB/s");
  report("floor-memcpy-4KiB-pages", kBytes / pages.median() * 1e-3, "GB/s");
}

int main(int argc, char** argv) {
  const Wanted wanted(argc, argv);
  report("floor-clock", nanoseconds(wanted, [] { now(); }), "ns");
  report("floor-system-call", nanoseconds(wanted, [] { getppid(); }), "ns");
  ping_pong(wanted);
  wake_up(wanted);
  memory(wanted);
  return 0;
}
