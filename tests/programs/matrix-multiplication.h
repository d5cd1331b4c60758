/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Matrix multiplication's problem: its sizes, input and check, for the runtime and the driver version alike.
#pragma once

#include <cmath>

#include "common.h"

constexpr uint64_t kMatrixSmall = 96, kMatrixPaper = 4096, kMatrixLimit = 32768;
constexpr const char* kMatrixUnit = "rows and columns of square matrices";
constexpr unsigned kMatrixTile = 16;

// The paper's 196 MB are 49 Mi floats: 4096 x 4096 times 4096 x 4224.
struct MatrixShape {
  unsigned m, k, n;
  explicit MatrixShape(const Program& program)
      : m(static_cast<unsigned>(program.size())), k(m), n(program.paper() ? m + 128 : m) {}
  size_t a() const { return size_t{m} * k; }
  size_t b() const { return size_t{k} * n; }
  size_t c() const { return size_t{m} * n; }
  std::string text() const { return std::to_string(m) + "x" + std::to_string(k) + "x" + std::to_string(n); }
};

inline void matrix_input(const Program& program, const MatrixShape& shape, float* a, float* b) {
  for (size_t i = 0; i < shape.a(); ++i) a[i] = random_float(program.seed(), i, -1, 1);
  for (size_t i = 0; i < shape.b(); ++i) b[i] = random_float(~program.seed(), i, -1, 1);
}

// The kernel adds one product after another, each rounded once. The CPU does so too (fmaf), so the two must agree in
// every bit; a sample of large results is checked.
inline bool matrix_check(const MatrixShape& shape, const float* a, const float* b, const float* c) {
  Mismatches wrong;
  const uint64_t most = 1 + (64ull << 20) / shape.k / 16, step = check_step(shape.c(), most);
  for (uint64_t i = 0; i < shape.c(); i += step) {
    const uint64_t row = i / shape.n, column = i % shape.n;
    float sum = 0;
    for (uint64_t j = 0; j < shape.k; ++j) sum = std::fmaf(a[row * shape.k + j], b[j * shape.n + column], sum);
    if (sum != c[i])
      wrong.report("row %" PRIu64 ", column %" PRIu64 ": %a in place of %a", row, column, c[i], sum);
  }
  return wrong.none();
}
