// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Matrix multiplication with only the driver API.
#include "matrix-multiplication.h"

#include "driver.h"

static bool run(Program* program, MatrixShape shape) {
  program->total.start();
  Device device;
  program->total.stop();
  HostBuffer<float> a(shape.a(), program->pinned()), b(shape.b(), program->pinned()), c(shape.c(), program->pinned());
  matrix_input(*program, shape, a.get(), b.get());

  program->total.start();
  {
    CUfunction kernel = device.function("matrix_multiplication");
    DeviceBuffer<float> device_a(shape.a()), device_b(shape.b()), device_c(shape.c());
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_a.upload(a.get(), program);
      device_b.upload(b.get(), program);
      CUdeviceptr pointers[3] = {device_a.get(), device_b.get(), device_c.get()};
      void* arguments[] = {&pointers[0], &pointers[1], &pointers[2], &shape.m, &shape.k, &shape.n};
      timer.start();
      CHECK(cuLaunchKernel(kernel, (shape.n + kMatrixTile - 1) / kMatrixTile, (shape.m + kMatrixTile - 1) / kMatrixTile,
                           1, kMatrixTile, kMatrixTile, 1, 0, nullptr, arguments, nullptr));
      timer.stop();
      device_c.download(c.get(), program);
    }
  }
  program->total.stop();
  program->emit(c.get(), c.bytes());
  return matrix_check(shape, a.get(), b.get(), c.get());
}

int main(int argc, char** argv) {
  Program program("matrix-multiplication-driver", "multiplies two matrices of floats, tile by tile (driver API)",
                  kMatrixUnit, kMatrixSmall, kMatrixPaper);
  program.size_limit(kMatrixLimit);
  program.parse(argc, argv);
  const MatrixShape shape(program);
  return program.finish(run(&program, shape), shape.text());
}
