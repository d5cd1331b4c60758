// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Kernels that print: each thread prints the length of the Collatz sequence of its number. All of the output must
// appear on the program's standard output, between the lines that the program itself prints before and after it waits.
#include <unistd.h>

#include <algorithm>

#include "runtime.h"

namespace {

constexpr int kBlock = 64;

__host__ __device__ int collatz(uint64_t number) {
  int steps = 0;
  for (; number != 1; ++steps) number = number % 2 == 0 ? number / 2 : 3 * number + 1;
  return steps;
}

__global__ void lengths(uint64_t first, uint64_t count) {
  const uint64_t i = blockIdx.x * static_cast<uint64_t>(blockDim.x) + threadIdx.x;
  if (i < count) printf("%llu has %d steps\n", static_cast<unsigned long long>(first + i), collatz(first + i));
}

// Has what the process prints go to a file.
class Captured {
 public:
  Captured() : file_(tmpfile()) {
    fflush(stdout);
    saved_ = dup(STDOUT_FILENO);
    if (file_ == nullptr || saved_ < 0 || dup2(fileno(file_), STDOUT_FILENO) < 0) {
      perror("tmpfile");
      exit(kUsage);
    }
  }
  ~Captured() { fclose(file_); }
  Captured(const Captured&) = delete;
  // Restores the process's output, and reads the lines that came.
  std::vector<std::string> lines() {
    fflush(stdout);
    dup2(saved_, STDOUT_FILENO);
    close(saved_);
    rewind(file_);
    std::vector<std::string> lines;
    char line[256];
    while (fgets(line, sizeof line, file_) != nullptr) lines.emplace_back(line);
    return lines;
  }

 private:
  FILE* file_;
  int saved_;
};

bool run(Program* program) {
  const uint64_t count = program->size();
  std::vector<std::string> printed;
  program->total.start();
  {
    CHECK(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 64 << 20));
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      Captured captured;
      printf("begin\n");
      timer.start();
      lengths<<<(count + kBlock - 1) / kBlock, kBlock>>>(1, count);
      timer.stop();
      CHECK(cudaDeviceSynchronize());
      printf("end\n");
      printed = captured.lines();
    }
  }
  program->total.stop();
  bool right = printed.size() == count + 2 && printed.front() == "begin\n" && printed.back() == "end\n";
  if (!right) fprintf(stderr, "%zu lines came of %" PRIu64 "\n", printed.size(), count + 2);
  // Blocks print in any order.
  std::vector<std::string> expected = {"begin\n", "end\n"};
  for (uint64_t i = 1; i <= count; ++i)
    expected.push_back(std::to_string(i) + " has " + std::to_string(collatz(i)) + " steps\n");
  std::sort(expected.begin(), expected.end());
  std::sort(printed.begin(), printed.end());
  right = right && printed == expected;
  std::string text;
  for (const std::string& line : printed) text += line;
  program->emit(text.data(), text.size());
  if (!printed.empty()) printf("%s", printed[printed.size() / 2].c_str());
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("kernel-printf", "prints from kernels", "numbers", 2000, 100000);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
