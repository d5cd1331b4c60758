// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A load for one of many clients of a GPU: kernels of a set length, copies, both, single kernels that are waited for,
// or nothing. It says how much it has done every 100 ms of the monotonic clock, which all processes of a machine share.
//
//   load --load kernels|sync|copies|mixed|endless|idle [--kernel-us N | --iterations N] [--blocks N] [--bytes N] [--depth N]
//        [--streams N] [--seconds S] [--start-at UNIX_TIME_MS|stdin] [--delay-ms N] [--think-us N] [--note-ms N] [--calibrate]
//
// A unit of work is a kernel (kernels, sync), a copy (copies), or a copy to the device, a kernel and a copy back
// (mixed). An endless load is one kernel that outlives the program; it may lose the GPU before that. Each wait of more
// than --note-ms is logged to standard error, with its start time. Kernels count iterations, not time: their work is
// the same however the GPU is shared.
#include "driver.h"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <thread>

namespace {

constexpr unsigned kThreads = 256;
// The distance of the stamps in a copy; the stamps differ between copies.
constexpr size_t kStampEvery = 64 << 10;
// The maximum work between two queries of an event, in microseconds, and so the maximum lag of the counted work.
constexpr double kBatchMicroseconds = 2000;
constexpr double kSampleMicroseconds = 100e3;

enum class Load { kKernels, kSync, kCopies, kMixed, kEndless, kIdle };

struct Options {
  Load load = Load::kKernels;
  double kernel_us = 100;
  unsigned iterations = 0;
  unsigned blocks = 0;
  size_t bytes = 16 << 20;
  int depth = 16;
  int streams = 1;
  double seconds = 2;
  const char* start = nullptr;
  double think_us = 0;
  double delay_ms = 0;
  double note_ms = 1e9;
  bool calibrate = false;

  bool has_kernels() const { return load != Load::kCopies; }
  bool has_copies() const { return load == Load::kCopies || load == Load::kMixed; }
};

double number(const char* name, const char* text, double least) {
  char* end = nullptr;
  const double value = text != nullptr ? strtod(text, &end) : 0;
  if (text == nullptr || end == text || *end != '\0' || !(value >= least))
    stop(2, "%s needs a number of at least %g", name, least);
  return value;
}

Options parse(int argc, char** argv) {
  Options options;
  static const char* const kLoads[] = {"kernels", "sync", "copies", "mixed", "endless", "idle"};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--calibrate") {
      options.calibrate = true;
      continue;
    }
    const char* value = i + 1 < argc ? argv[++i] : nullptr;
    if (name == "--load") {
      const auto* found = std::find_if(std::begin(kLoads), std::end(kLoads),
                                       [&](const char* load) { return value != nullptr && strcmp(load, value) == 0; });
      if (found == std::end(kLoads)) stop(2, "--load is kernels, sync, copies, mixed, endless or idle%s", "");
      options.load = static_cast<Load>(found - kLoads);
    } else if (name == "--start-at") {
      options.start = value;
    } else if (name == "--kernel-us") {
      options.kernel_us = number("--kernel-us", value, 1);
    } else if (name == "--iterations") {
      options.iterations = static_cast<unsigned>(number("--iterations", value, 1));
    } else if (name == "--blocks") {
      options.blocks = static_cast<unsigned>(number("--blocks", value, 1));
    } else if (name == "--bytes") {
      options.bytes = static_cast<size_t>(number("--bytes", value, 4));
    } else if (name == "--depth") {
      options.depth = static_cast<int>(number("--depth", value, 1));
    } else if (name == "--streams") {
      options.streams = static_cast<int>(number("--streams", value, 1));
    } else if (name == "--seconds") {
      options.seconds = number("--seconds", value, 0);
    } else if (name == "--delay-ms") {
      options.delay_ms = number("--delay-ms", value, 0);
    } else if (name == "--note-ms") {
      options.note_ms = number("--note-ms", value, 0);
    } else if (name == "--think-us") {
      options.think_us = number("--think-us", value, 0);
    } else {
      stop(2, "%s: an unknown option", name.c_str());
    }
  }
  return options;
}

// The kernels, each block of which counts itself, and their number so far.
class Kernels {
 public:
  Kernels(const Device& device, unsigned blocks) : function_(device.function("count_up")), blocks_(blocks) {
    if (blocks_ == 0) {
      int processors = 0, resident = 0;
      CHECK(cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device.device));
      CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&resident, function_, kThreads, 0));
      blocks_ = static_cast<unsigned>(processors * resident);
    }
    CHECK(cuMemAlloc(&counters_, blocks_ * sizeof(unsigned)));
    CHECK(cuMemsetD32(counters_, 0, blocks_));
    CHECK(cuCtxSynchronize());
  }
  ~Kernels() { CHECK(cuMemFree(counters_)); }
  Kernels(const Kernels&) = delete;

  void launch(CUstream stream, unsigned iterations) {
    unsigned never = 0;
    void* arguments[] = {&counters_, &iterations, &never};
    CHECK(cuLaunchKernel(function_, blocks_, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr));
    ++launched_;
  }

  // The number of iterations that take this long, on a GPU without other users.
  unsigned calibrate(CUstream stream, double microseconds) {
    CUevent begin, end;
    CHECK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CHECK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    const auto measure = [&](unsigned iterations, int times) {
      CHECK(cuEventRecord(begin, stream));
      for (int i = 0; i < times; ++i) launch(stream, iterations);
      CHECK(cuEventRecord(end, stream));
      CHECK(cuEventSynchronize(end));
      float milliseconds = 0;
      CHECK(cuEventElapsedTime(&milliseconds, begin, end));
      return std::max(milliseconds * 1e3 / times, 1e-3);
    };
    // An idle GPU runs slower, so warm it up first.
    for (const double until = now() + 300e3; now() < until;) measure(1000, 20);
    double iterations = 1000;
    for (int round = 0; round < 4; ++round) {
      const double took = measure(static_cast<unsigned>(iterations), static_cast<int>(std::max(50e3 / microseconds, 3.0)));
      iterations = std::min(std::max(iterations * microseconds / took, 1.0), 4e9);
    }
    CHECK(cuEventDestroy(begin));
    CHECK(cuEventDestroy(end));
    return static_cast<unsigned>(iterations);
  }

  // Fails unless every block of every launch has counted, once.
  void check() {
    std::vector<unsigned> counters(blocks_);
    CHECK(cuCtxSynchronize());
    CHECK(cuMemcpyDtoH(counters.data(), counters_, blocks_ * sizeof(unsigned)));
    for (unsigned block = 0; block < blocks_; ++block)
      EXPECT(counters[block] == launched_, "block %u ran %u times in %u launches", block, counters[block], launched_);
  }
  unsigned blocks() const { return blocks_; }

 private:
  CUfunction function_;
  unsigned blocks_;
  CUdeviceptr counters_ = 0;
  unsigned launched_ = 0;
};

// Pinned memory that is copied to the device and back: the data must be unchanged.
class Copy {
 public:
  explicit Copy(size_t bytes) : bytes_(bytes) {
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&out_), bytes, 0));
    CHECK(cuMemHostAlloc(reinterpret_cast<void**>(&back_), bytes, 0));
    CHECK(cuMemAlloc(&device_, bytes));
    memset(out_, 0, bytes);
    memset(back_, 0xff, bytes);
  }
  ~Copy() {
    CHECK(cuMemFree(device_));
    CHECK(cuMemFreeHost(back_));
    CHECK(cuMemFreeHost(out_));
  }
  Copy(const Copy&) = delete;

  void stamp(unsigned serial) {
    for (size_t at = 0; at + sizeof serial <= bytes_; at += kStampEvery)
      *reinterpret_cast<volatile unsigned*>(out_ + at) = serial + static_cast<unsigned>(at);
    serial_ = serial;
  }
  void to_device(CUstream stream) { CHECK(cuMemcpyHtoDAsync(device_, out_, bytes_, stream)); }
  void back(CUstream stream) { CHECK(cuMemcpyDtoHAsync(back_, device_, bytes_, stream)); }
  void check() const {
    for (size_t at = 0; at + sizeof serial_ <= bytes_; at += kStampEvery) {
      const unsigned value = *reinterpret_cast<volatile unsigned*>(back_ + at);
      EXPECT(value == serial_ + static_cast<unsigned>(at), "%x came back in place of %x", value,
             serial_ + static_cast<unsigned>(at));
    }
  }

 private:
  size_t bytes_;
  char* out_ = nullptr;
  char* back_ = nullptr;
  CUdeviceptr device_ = 0;
  unsigned serial_ = 0;
};

// Some units of work that were given to the device together.
struct Batch {
  CUevent over = nullptr;
  double given = 0;
  std::unique_ptr<Copy> copy;
};

class Run {
 public:
  Run(Device& device, const Options& options, Kernels& kernels, unsigned iterations)
      : options_(options), kernels_(kernels), iterations_(iterations) {
    streams_.push_back(device.stream);
    for (int i = 1; i < options.streams; ++i) {
      CUstream stream;
      CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      streams_.push_back(stream);
    }
    if (options.load == Load::kKernels) {
      const int fine = static_cast<int>(std::max(kBatchMicroseconds / options.kernel_us, 1.0));
      per_batch_ = std::min(std::max(options.depth / 2, 1), fine);
    } else if (options.load == Load::kCopies) {
      per_batch_ = 2;
    }
    const int count = options.load == Load::kSync ? 1 : std::max(options.depth / per_batch_, 1);
    for (int i = 0; i < count; ++i) {
      auto batch = std::make_unique<Batch>();
      CHECK(cuEventCreate(&batch->over, CU_EVENT_DISABLE_TIMING));
      if (options.has_copies()) batch->copy = std::make_unique<Copy>(options.bytes);
      idle_.push_back(std::move(batch));
    }
  }
  ~Run() {
    for (auto& batch : idle_) CHECK(cuEventDestroy(batch->over));
    for (size_t i = 1; i < streams_.size(); ++i) CHECK(cuStreamDestroy(streams_[i]));
  }
  Run(const Run&) = delete;

  // Works until the given time, and until all work is done.
  void work(double until) {
    while (now() < until) {
      if (idle_.empty()) await();
      // Finished work counts from then on, even if more can be queued.
      while (!given_.empty() && cuEventQuery(given_.front()->over) == CUDA_SUCCESS) await();
      give();
      if (options_.think_us > 0) usleep(static_cast<useconds_t>(options_.think_us));
    }
    while (!given_.empty()) await();
  }
  uint64_t done() const { return done_.load(std::memory_order_relaxed); }
  Samples& waits() { return waits_; }

 private:
  void give() {
    auto batch = std::move(idle_.front());
    idle_.pop_front();
    const CUstream stream = streams_[serial_++ % streams_.size()];
    batch->given = now();
    if (batch->copy) {
      batch->copy->stamp(serial_);
      batch->copy->to_device(stream);
    }
    if (options_.has_kernels())
      for (int i = 0; i < per_batch_; ++i) kernels_.launch(stream, iterations_);
    if (batch->copy) batch->copy->back(stream);
    if (options_.load == Load::kSync) {
      CHECK(cuStreamSynchronize(stream));
      over(std::move(batch));
    } else {
      CHECK(cuEventRecord(batch->over, stream));
      given_.push_back(std::move(batch));
    }
  }
  void await() {
    auto batch = std::move(given_.front());
    given_.pop_front();
    CHECK(cuEventSynchronize(batch->over));
    over(std::move(batch));
  }
  void over(std::unique_ptr<Batch> batch) {
    const double waited = now() - batch->given;
    waits_.add(waited);
    if (waited > options_.note_ms * 1e3) fprintf(stderr, "at %.0f us: waited for %.0f us\n", batch->given, waited);
    if (batch->copy) batch->copy->check();
    done_.fetch_add(per_batch_, std::memory_order_relaxed);
    idle_.push_back(std::move(batch));
  }

  const Options& options_;
  Kernels& kernels_;
  unsigned iterations_;
  int per_batch_ = 1;
  std::vector<CUstream> streams_;
  std::deque<std::unique_ptr<Batch>> idle_, given_;
  unsigned serial_ = 0;
  std::atomic<uint64_t> done_{0};
  Samples waits_;
};

// Waits until the given wall clock time; with `stdin`, reads it from the standard input.
void wait_for_start(const char* start) {
  char line[64] = "";
  if (start != nullptr && strcmp(start, "stdin") == 0) {
    if (fgets(line, sizeof line, stdin) == nullptr) stop(2, "no start command on standard input%s", "");
    line[strcspn(line, "\n")] = '\0';
    start = line;
  }
  if (start == nullptr) return;
  const double at = number("--start-at", start, 0);
  timespec time;
  time.tv_sec = static_cast<time_t>(at / 1e3);
  time.tv_nsec = static_cast<long>((at - time.tv_sec * 1e3) * 1e6);
  while (clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &time, nullptr) != 0) {
  }
}

// Keeps the GPU busy with one kernel until the time is up or the GPU is lost, and ends without waiting for it.
[[noreturn]] void never_end(Kernels& kernels, CUstream stream, double until) {
  kernels.launch(stream, std::numeric_limits<unsigned>::max());
  CUresult result = CUDA_ERROR_NOT_READY;
  while (result == CUDA_ERROR_NOT_READY && now() < until) {
    usleep(10000);
    result = cuStreamQuery(stream);
  }
  EXPECT(result != CUDA_SUCCESS, "the endless kernel has ended%s", "");
  _exit(0);
}

void say(double time, uint64_t done) {
  printf("{\"t\":%.0f,\"done\":%llu}\n", time, static_cast<unsigned long long>(done));
  fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Device device;
  Kernels kernels(device, options.blocks);
  const bool measure = options.calibrate || (options.iterations == 0 && options.load != Load::kCopies &&
                                             options.load != Load::kIdle);
  const unsigned iterations =
      measure ? kernels.calibrate(device.stream, options.kernel_us) : std::max(options.iterations, 1u);
  if (options.calibrate) {
    kernels.check();
    printf("{\"iterations\":%u,\"blocks\":%u}\n", iterations, kernels.blocks());
    return 0;
  }
  kernels.launch(device.stream, 1);
  CHECK(cuStreamSynchronize(device.stream));
  {
    Run run(device, options, kernels, iterations);
    printf("{\"ready\":true,\"iterations\":%u,\"blocks\":%u}\n", iterations, kernels.blocks());
    fflush(stdout);
    wait_for_start(options.start);

    const double begin = now(), until = begin + options.seconds * 1e6;
    std::atomic<bool> over{false};
    say(begin, 0);
    if (options.load == Load::kEndless) never_end(kernels, device.stream, until);
    std::thread samples([&] {
      for (int i = 1; !over; ++i) {
        const double left = begin + i * kSampleMicroseconds - now();
        if (left > 0) usleep(static_cast<useconds_t>(left));
        if (!over) say(now(), run.done());
      }
    });
    if (options.load == Load::kIdle) {
      usleep(static_cast<useconds_t>(options.seconds * 1e6));
      kernels.launch(device.stream, 1);
      CHECK(cuStreamSynchronize(device.stream));
    } else {
      usleep(static_cast<useconds_t>(options.delay_ms * 1e3));
      run.work(until);
    }
    const double end = now();
    over = true;
    samples.join();
    kernels.check();
    printf("{\"final\":true,\"t\":%.0f,\"done\":%llu,\"seconds\":%.6f,\"wait_p50\":%.3f,\"wait_p99\":%.3f,\"wait_max\":%.3f}\n",
           end, static_cast<unsigned long long>(run.done()), (end - begin) * 1e-6, run.waits().quantile(0.5),
           run.waits().quantile(0.99), run.waits().quantile(1.0));
    fflush(stdout);
  }
  return 0;
}
