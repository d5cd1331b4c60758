// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Matrix multiplication on the runtime API.
#include "matrix-multiplication.h"

#include "matrix-multiplication.kernel.cu"
#include "runtime.h"

static_assert(kTile == kMatrixTile, "the grid is made for the kernel's tile");

static bool run(Program* program, const MatrixShape& shape) {
  HostBuffer<float> a(shape.a(), program->pinned()), b(shape.b(), program->pinned()), c(shape.c(), program->pinned());
  matrix_input(*program, shape, a.get(), b.get());

  program->total.start();
  {
    DeviceBuffer<float> device_a(shape.a()), device_b(shape.b()), device_c(shape.c());
    KernelTimer timer(program);
    const dim3 block(kTile, kTile), grid((shape.n + kTile - 1) / kTile, (shape.m + kTile - 1) / kTile);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_a.upload(a.get(), program);
      device_b.upload(b.get(), program);
      timer.start();
      matrix_multiplication<<<grid, block>>>(device_a.get(), device_b.get(), device_c.get(), shape.m, shape.k, shape.n);
      timer.stop();
      device_c.download(c.get(), program);
    }
  }
  program->total.stop();
  program->emit(c.get(), c.bytes());
  return matrix_check(shape, a.get(), b.get(), c.get());
}

int main(int argc, char** argv) {
  Program program("matrix-multiplication", "multiplies two matrices of floats, tile by tile", kMatrixUnit,
                  kMatrixSmall, kMatrixPaper);
  program.size_limit(kMatrixLimit);
  program.parse(argc, argv);
  const MatrixShape shape(program);
  return program.finish(run(&program, shape), shape.text());
}
