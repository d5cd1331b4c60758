/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Shared by all benchmark programs: the clock, statistics, and the lines that a run prints: one JSON object for each
// measurement. A program exits 0 only if all that it computed on the way was right; 1 is a wrong value, 2 usage, 3 a
// CUDA call that failed.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// Microseconds of the monotonic clock.
inline double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e6 + time.tv_nsec * 1e-3;
}

template <typename... A>
[[noreturn]] void stop(int code, const char* format, A... values) {
  fprintf(stderr, format, values...);
  fputc('\n', stderr);
  exit(code);
}

// Ends the program unless a value is the expected one.
#define EXPECT(condition, ...)                                          \
  do {                                                                  \
    if (!(condition)) {                                                 \
      fprintf(stderr, "%s:%d: wrong: %s: ", __FILE__, __LINE__, #condition); \
      stop(1, __VA_ARGS__);                                             \
    }                                                                   \
  } while (0)

// Durations of an operation that is repeated many times.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  double quantile(double part) {
    std::sort(values_.begin(), values_.end());
    const size_t index = static_cast<size_t>(part * (values_.size() - 1) + 0.5);
    return values_.empty() ? 0 : values_[index];
  }
  double median() { return quantile(0.5); }

 private:
  std::vector<double> values_;
};

// One measurement for the user of this program.
inline void report(const std::string& measure, double value, const char* unit) {
  printf("{\"measure\":\"%s\",\"value\":%.6g,\"unit\":\"%s\"}\n", measure.c_str(), value, unit);
  fflush(stdout);
}

// A fact about the machine, for the head of the results.
inline void fact(const char* name, const std::string& value) {
  printf("{\"fact\":\"%s\",\"value\":\"%s\"}\n", name, value.c_str());
  fflush(stdout);
}

// The command line: `--quick`, `--settle=SECONDS`, and the measurements; without names, all of them.
class Wanted {
 public:
  Wanted(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      if (strcmp(argv[i], "--quick") == 0) {
        quick_ = true;
      } else if (strncmp(argv[i], "--settle=", 9) == 0) {
        settle_ = atof(argv[i] + 9);
      } else if (argv[i][0] == '-') {
        stop(2, "%s: an unknown option", argv[i]);
      } else {
        names_.push_back(argv[i]);
      }
    }
  }
  bool operator()(const char* name) const {
    return names_.empty() || std::find(names_.begin(), names_.end(), name) != names_.end();
  }
  const std::vector<std::string>& names() const { return names_; }
  // The number of repetitions: `times` in a full run.
  int repetitions(int times) const { return quick_ ? std::max(times / 5, 3) : times; }
  bool quick() const { return quick_; }
  // Waits, with a context, until the worker for the next client has started.
  void settle() const {
    const time_t seconds = static_cast<time_t>(settle_);
    const timespec time = {seconds, static_cast<long>((settle_ - seconds) * 1e9)};
    nanosleep(&time, nullptr);
  }

 private:
  std::vector<std::string> names_;
  bool quick_ = false;
  double settle_ = 0;
};

// Nanoseconds that one of many equal calls takes: the median over batches, each long enough for the clock.
template <typename Call>
double nanoseconds(const Wanted& wanted, Call call) {
  constexpr int kBatch = 1000;
  Samples samples;
  for (int i = 0; i < wanted.repetitions(101); ++i) {
    const double begin = now();
    for (int j = 0; j < kBatch; ++j) call();
    samples.add((now() - begin) * 1e3 / kBatch);
  }
  return samples.median();
}
