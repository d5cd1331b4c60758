// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Vector addition on the runtime API.
#include "vector-addition.h"

#include "runtime.h"
#include "vector-addition.kernel.cu"

static bool run(Program* program) {
  const uint64_t count = program->size();
  HostBuffer<float> a(count, program->pinned()), b(count, program->pinned()), out(count, program->pinned());
  vector_input(*program, a.get(), b.get());

  program->total.start();
  {
    DeviceBuffer<float> device_a(count), device_b(count), device_out(count);
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_a.upload(a.get(), program);
      device_b.upload(b.get(), program);
      timer.start();
      vector_addition<<<(count + kVectorBlock - 1) / kVectorBlock, kVectorBlock>>>(device_a.get(), device_b.get(),
                                                                                  device_out.get(), count);
      timer.stop();
      device_out.download(out.get(), program);
    }
  }
  program->total.stop();
  program->emit(out.get(), out.bytes());
  return vector_check(*program, a.get(), b.get(), out.get());
}

int main(int argc, char** argv) {
  Program program("vector-addition", "adds two vectors of floats", kVectorUnit, kVectorSmall, kVectorPaper);
  program.size_limit(kVectorLimit);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
