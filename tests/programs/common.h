/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Shared by all test programs, whichever CUDA API they use: options, seeded input, timing, the checksum of the output
// and the RESULT line that ends a run. runtime.h and driver.h add error checks and buffers.
#pragma once

#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

// Exit codes of a program. They distinguish a wrong result from a failed CUDA call.
enum ExitCode : int { kOk = 0, kWrongResult = 1, kUsage = 2, kCudaError = 3 };

// Time added up over any number of start/stop pairs, in milliseconds of the monotonic clock.
class Stopwatch {
 public:
  void start() { begin_ = std::chrono::steady_clock::now(); }
  void stop() {
    sum_ += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  }
  double milliseconds() const { return sum_; }

 private:
  std::chrono::steady_clock::time_point begin_;
  double sum_ = 0;
};

// A number that depends only on the seed and the index, so that any element can be computed again for a check, in any
// order.
inline uint64_t random_bits(uint64_t seed, uint64_t index) {
  uint64_t z = (seed * 0x2545f4914f6cdd1dull) ^ (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

// Uniform in [low, high): 24 random bits, so that every value is exact in a float before it is scaled.
inline float random_float(uint64_t seed, uint64_t index, float low, float high) {
  return low + (high - low) * (static_cast<float>(random_bits(seed, index) >> 40) * 0x1p-24f);
}

// One run of one program. Options are declared, then parse() reads the command line; emit() takes the output from
// memory; finish() prints the RESULT line and returns the exit code.
class Program {
 public:
  Program(const char* name, const char* summary, const char* unit, uint64_t small, uint64_t paper)
      : name_(name), summary_(summary), unit_(unit), small_(small), paper_(paper), size_(small) {}
  ~Program() {
    if (output_ != nullptr) fclose(output_);
  }
  Program(const Program&) = delete;

  // Declares `--name N`, a whole number that parse() stores in *value, whose present value is the default.
  void option(const char* name, const char* help, uint64_t* value, uint64_t low, uint64_t high) {
    numbers_.push_back({name, help, value, nullptr, low, high});
  }
  // Declares `--name X`, a number with a fraction that is not negative.
  void option(const char* name, const char* help, double* value) {
    numbers_.push_back({name, help, nullptr, value, 0, 0});
  }
  // The largest N for `--size N`.
  void size_limit(uint64_t limit) { limit_ = limit; }

  void parse(int argc, char** argv) {
    option("seed", "seed of the input (default 1)", &seed_, 0, UINT64_MAX);
    option("iterations", "times to upload, compute and download (default 1)", &iterations_, 1, 1000000);
    for (int i = 1; i < argc; ++i) {
      std::string argument = argv[i], value;
      if (argument == "--help" || argument == "-h") {
        help();
        exit(kOk);
      }
      if (argument == "--pinned") {
        pinned_ = true;
        continue;
      }
      const size_t equals = argument.find('=');
      if (equals != std::string::npos) {
        value = argument.substr(equals + 1);
        argument.resize(equals);
      } else if (i + 1 < argc) {
        value = argv[++i];
      } else {
        usage("%s: an unknown option, or one that lacks its value", argument.c_str());
      }
      accept(argument, value);
    }
  }

  uint64_t size() const { return size_; }
  uint64_t seed() const { return seed_; }
  uint64_t iterations() const { return iterations_; }
  bool pinned() const { return pinned_; }
  bool paper() const { return size_ == paper_; }

  // Appends output bytes to the checksum (64-bit FNV-1a) and to the file of --output.
  void emit(const void* data, size_t bytes) {
    const unsigned char* at = static_cast<const unsigned char*>(data);
    uint64_t hash = checksum_;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ at[i]) * 0x100000001b3ull;
    checksum_ = hash;
    if (output_ != nullptr && fwrite(data, 1, bytes, output_) != bytes) {
      fprintf(stderr, "%s: writing %s: %s\n", name_, path_.c_str(), strerror(errno));
      exit(kUsage);
    }
  }

  // Bytes of cudaMemcpy or cuMemcpy between host and device, both directions, all iterations.
  void moved(uint64_t bytes) { moved_ += bytes; }

  Stopwatch total;         // from before the first CUDA call to the last result in host memory, checks left out
  double kernel_ms = 0;    // what the GPU took for the kernels, by CUDA events

  int finish(bool ok, const std::string& size) {
    if (output_ != nullptr) {
      const bool closed = fclose(output_) == 0;
      output_ = nullptr;
      if (!closed) {
        fprintf(stderr, "%s: writing %s: %s\n", name_, path_.c_str(), strerror(errno));
        return kUsage;
      }
    }
    printf("RESULT name=%s size=%s status=%s checksum=%016" PRIx64 " moved_bytes=%" PRIu64
           " iterations=%" PRIu64 " kernel_ms=%.3f total_ms=%.3f\n",
           name_, size.c_str(), ok ? "ok" : "wrong", checksum_, moved_, iterations_, kernel_ms, total.milliseconds());
    return ok ? kOk : kWrongResult;
  }
  int finish(bool ok) { return finish(ok, std::to_string(size_)); }

 private:
  struct Number {
    std::string name, help;
    uint64_t* whole;
    double* fraction;
    uint64_t low, high;
  };

  void help() const {
    printf("%s: %s\n\nUsage: %s [options]\n", name_, summary_, name_);
    if (limit_ != 0)
      printf("  --size small|paper|N    %s; small is %" PRIu64 " (the default), paper %" PRIu64 "\n", unit_, small_,
             paper_);
    for (const Number& number : numbers_)
      printf("  --%-20s  %s\n", (number.name + (number.whole != nullptr ? " N" : " X")).c_str(), number.help.c_str());
    printf("  --%-20s  %s\n", "pinned", "page-locked host buffers in place of ordinary memory");
    printf("  --%-20s  %s\n", "output FILE", "write the raw bytes of the result to FILE");
    printf("\nThe last line is RESULT with key=value pairs; checksum is 64-bit FNV-1a of the result's raw bytes.\n"
           "Exit status: 0 right, 1 wrong result, 2 usage or file error, 3 a CUDA call failed.\n");
  }

  template <typename... A>
  [[noreturn]] void usage(const char* format, A... values) const {
    fprintf(stderr, "%s: ", name_);
    fprintf(stderr, format, values...);
    fprintf(stderr, " (--help shows the options)\n");
    exit(kUsage);
  }

  uint64_t whole(const std::string& name, const std::string& text, uint64_t low, uint64_t high) const {
    char* end = nullptr;
    errno = 0;
    const uint64_t value = strtoull(text.c_str(), &end, 0);
    if (text.empty() || text[0] == '-' || *end != 0 || errno != 0 || value < low || value > high)
      usage("%s %s: not a whole number from %" PRIu64 " to %" PRIu64, name.c_str(), text.c_str(), low, high);
    return value;
  }

  void accept(const std::string& argument, const std::string& value) {
    if (argument == "--size" && limit_ != 0) {
      size_ = value == "small" ? small_ : value == "paper" ? paper_ : whole(argument, value, 1, limit_);
      return;
    }
    if (argument == "--output") {
      if (output_ != nullptr) usage("%s: given twice", "--output");
      path_ = value;
      output_ = fopen(value.c_str(), "wb");
      if (output_ == nullptr) usage("%s: %s", value.c_str(), strerror(errno));
      return;
    }
    for (const Number& number : numbers_) {
      if (argument != "--" + number.name) continue;
      if (number.whole != nullptr) {
        *number.whole = whole(argument, value, number.low, number.high);
      } else {
        char* end = nullptr;
        *number.fraction = strtod(value.c_str(), &end);
        if (value.empty() || *end != 0 || !(*number.fraction >= 0 && *number.fraction < 1e9))
          usage("%s %s: not a number from 0 to 1e9", argument.c_str(), value.c_str());
      }
      return;
    }
    usage("%s: an unknown option", argument.c_str());
  }

  const char *name_, *summary_, *unit_;
  uint64_t small_, paper_, size_, limit_ = UINT32_MAX, seed_ = 1, iterations_ = 1, moved_ = 0;
  bool pinned_ = false;
  std::string path_;
  FILE* output_ = nullptr;
  uint64_t checksum_ = 0xcbf29ce484222325ull;
  std::vector<Number> numbers_;
};

// Up to five lines about wrong elements, then silence: a broken run can have a hundred million.
class Mismatches {
 public:
  template <typename... A>
  void report(const char* format, A... values) {
    if (count_++ < 5) {
      fprintf(stderr, "wrong: ");
      fprintf(stderr, format, values...);
      fputc('\n', stderr);
    }
  }
  bool none() const {
    if (count_ > 5) fprintf(stderr, "wrong: %" PRIu64 " in all\n", count_);
    return count_ == 0;
  }

 private:
  uint64_t count_ = 0;
};

// The step from one checked element to the next, so that about `most` of `count` are checked.
inline uint64_t check_step(uint64_t count, uint64_t most) { return count <= most ? 1 : count / most; }
