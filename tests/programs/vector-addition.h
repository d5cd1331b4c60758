/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Vector addition's problem: its sizes, input and check, for the runtime and the driver version alike.
#pragma once

#include "common.h"

constexpr unsigned kVectorBlock = 256;
constexpr uint64_t kVectorSmall = 65536, kVectorPaper = 64ull << 20, kVectorLimit = 1ull << 31;
constexpr const char* kVectorUnit = "elements of each vector";

inline void vector_input(const Program& program, float* a, float* b) {
  for (uint64_t i = 0; i < program.size(); ++i) {
    a[i] = random_float(program.seed(), 2 * i, -1000, 1000);
    b[i] = random_float(program.seed(), 2 * i + 1, -1000, 1000);
  }
}

// One rounded addition: the CPU's result must be the GPU's, bit for bit, in every element.
inline bool vector_check(const Program& program, const float* a, const float* b, const float* out) {
  Mismatches wrong;
  for (uint64_t i = 0; i < program.size(); ++i)
    if (out[i] != a[i] + b[i]) wrong.report("element %" PRIu64 ": %a + %a gave %a", i, a[i], b[i], out[i]);
  return wrong.none();
}
