// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The largest eigenvalue of a matrix by power iteration with cuBLAS: short calls that depend on each other, half of
// them with a result on the host. The matrix is the sum of a matrix of ones and twice the identity, so the eigenvalue
// is its size plus 2.
#include <cmath>

#include "cublas.h"

namespace {

constexpr int kSteps = 30;

bool run(Program* program) {
  const int n = static_cast<int>(program->size());
  const size_t count = static_cast<size_t>(n) * n;
  HostBuffer<double> matrix(count, program->pinned()), vector(n, program->pinned());
  for (size_t i = 0; i < count; ++i) matrix[i] = i % (n + 1) == 0 ? 3 : 1;
  for (int i = 0; i < n; ++i) vector[i] = random_float(program->seed(), i, 0.5, 1.5);

  double value = 0;
  program->total.start();
  {
    cublasHandle_t handle;
    BLAS(cublasCreate_v2(&handle));
    DeviceBuffer<double> device_matrix(count), device_vector(n), device_product(n);
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_matrix.upload(matrix.get(), program);
      device_vector.upload(vector.get(), program);
      double* from = device_vector.get();
      double* to = device_product.get();
      timer.start();
      for (int step = 0; step < kSteps; ++step) {
        double length = 0;
        BLAS(cublasDnrm2_v2(handle, n, from, 1, &length));
        const double shorter = 1 / length, one = 1, zero = 0;
        BLAS(cublasDscal_v2(handle, n, &shorter, from, 1));
        BLAS(cublasDgemv_v2(handle, kPlain, n, n, &one, device_matrix.get(), n, from, 1, &zero, to, 1));
        BLAS(cublasDdot_v2(handle, n, from, 1, to, 1, &value));
        double* const swap = from;
        from = to;
        to = swap;
      }
      timer.stop();
    }
    BLAS(cublasDestroy_v2(handle));
  }
  program->total.stop();
  // Libraries add in different orders: what they agree in is emitted.
  const double rounded = std::round(value * 1e6) / 1e6;
  program->emit(&rounded, sizeof rounded);
  if (rounded == n + 2) return true;
  fprintf(stderr, "wrong: the largest eigenvalue is %d, not %.9g\n", n + 2, value);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("power-iteration", "finds an eigenvalue with cuBLAS", "rows and columns of the matrix", 200, 8192);
  program.size_limit(16384);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
