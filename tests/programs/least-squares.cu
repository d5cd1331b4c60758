// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The polynomial that fits points best, by a QR factorisation of cuSOLVER. The points are those of a polynomial whose
// coefficients are small whole numbers, so the answer is known.
#include <algorithm>
#include <cmath>

#include "cusolver.h"

namespace {

constexpr int kCoefficients = 6;

bool run(Program* program) {
  const int points = std::max(static_cast<int>(program->size()), kCoefficients + 1);
  const size_t count = static_cast<size_t>(points) * kCoefficients;
  HostBuffer<double> matrix(count, program->pinned()), values(points, program->pinned());
  double coefficients[kCoefficients], found[kCoefficients] = {};
  for (int i = 0; i < kCoefficients; ++i) {
    coefficients[i] = static_cast<int>(random_bits(program->seed(), i) % 19) - 9;
  }
  for (int row = 0; row < points; ++row) {
    const double x = 2.0 * row / (points - 1) - 1;
    double power = 1, sum = 0;
    for (int i = 0; i < kCoefficients; ++i, power *= x) {
      matrix[row + static_cast<size_t>(i) * points] = power;
      sum += coefficients[i] * power;
    }
    values[row] = sum;
  }

  int info[2] = {-1, -1};
  program->total.start();
  {
    cusolverDnHandle_t handle;
    SOLVER(cusolverDnCreate(&handle));
    DeviceBuffer<double> a(count), b(points), tau(kCoefficients);
    DeviceBuffer<int> device_info(2);
    int factor = 0, multiply = 0;
    SOLVER(cusolverDnDgeqrf_bufferSize(handle, points, kCoefficients, a.get(), points, &factor));
    SOLVER(cusolverDnDormqr_bufferSize(handle, kLeft, kTransposed, points, 1, kCoefficients, a.get(), points, tau.get(),
                                       b.get(), points, &multiply));
    const int lwork = factor > multiply ? factor : multiply;
    DeviceBuffer<double> work(lwork > 0 ? lwork : 1);
    HostBuffer<double> triangle(count, program->pinned()), right(points, program->pinned());
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      a.upload(matrix.get(), program);
      b.upload(values.get(), program);
      timer.start();
      SOLVER(cusolverDnDgeqrf(handle, points, kCoefficients, a.get(), points, tau.get(), work.get(), lwork,
                              device_info.get()));
      SOLVER(cusolverDnDormqr(handle, kLeft, kTransposed, points, 1, kCoefficients, a.get(), points, tau.get(), b.get(),
                              points, work.get(), lwork, device_info.get() + 1));
      timer.stop();
      a.download(triangle.get(), program);
      b.download(right.get(), program);
      device_info.download(info, program);
    }
    SOLVER(cusolverDnDestroy(handle));
    for (int row = kCoefficients - 1; row >= 0; --row) {
      double rest = right[row];
      for (int column = row + 1; column < kCoefficients; ++column) {
        rest -= triangle[row + static_cast<size_t>(column) * points] * found[column];
      }
      found[row] = rest / triangle[row + static_cast<size_t>(row) * points];
    }
  }
  program->total.stop();
  bool is_right = info[0] == 0 && info[1] == 0;
  for (int i = 0; i < kCoefficients; ++i) {
    // Libraries add in different orders: what they agree in is emitted. There is no negative zero.
    found[i] = std::round(found[i] * 1e6) / 1e6 + 0.0;
    is_right = is_right && found[i] == coefficients[i];
  }
  program->emit(found, sizeof found);
  if (is_right) return true;
  fprintf(stderr, "wrong: a coefficient is not the polynomial's (%d, %d)\n", info[0], info[1]);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("least-squares", "fits a polynomial with cuSOLVER", "points of the polynomial", 1000, 200000);
  program.size_limit(10000000);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
