// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Vector addition with only the driver API.
#include "vector-addition.h"

#include "driver.h"

static bool run(Program* program) {
  unsigned count = static_cast<unsigned>(program->size());
  program->total.start();
  Device device;
  program->total.stop();
  HostBuffer<float> a(count, program->pinned()), b(count, program->pinned()), out(count, program->pinned());
  vector_input(*program, a.get(), b.get());

  program->total.start();
  {
    CUfunction kernel = device.function("vector_addition");
    DeviceBuffer<float> device_a(count), device_b(count), device_out(count);
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_a.upload(a.get(), program);
      device_b.upload(b.get(), program);
      CUdeviceptr pointers[3] = {device_a.get(), device_b.get(), device_out.get()};
      void* arguments[] = {&pointers[0], &pointers[1], &pointers[2], &count};
      timer.start();
      CHECK(cuLaunchKernel(kernel, (count - 1) / kVectorBlock + 1, 1, 1, kVectorBlock, 1, 1, 0, nullptr, arguments,
                           nullptr));
      timer.stop();
      device_out.download(out.get(), program);
    }
  }
  program->total.stop();
  program->emit(out.get(), out.bytes());
  return vector_check(*program, a.get(), b.get(), out.get());
}

int main(int argc, char** argv) {
  Program program("vector-addition-driver", "adds two vectors of floats (driver API)", kVectorUnit, kVectorSmall,
                  kVectorPaper);
  program.size_limit(kVectorLimit);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
