// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// European options by the Black-Scholes formula: three arrays are copied to the GPU, and two back.
#include <cmath>

#include "runtime.h"

constexpr unsigned kBlock = 128;
constexpr float kRate = 0.02f, kVolatility = 0.30f;

// The normal distribution's cumulative function: Abramowitz and Stegun 26.2.17, error below 7.5e-8.
__device__ float cumulative_normal(float d) {
  const float k = 1.0f / (1.0f + 0.2316419f * fabsf(d));
  const float polynomial =
      k * (0.31938153f + k * (-0.356563782f + k * (1.781477937f + k * (-1.821255978f + k * 1.330274429f))));
  const float tail = 0.39894228040143267794f * expf(-0.5f * d * d) * polynomial;
  return d > 0 ? 1.0f - tail : tail;
}

__global__ void black_scholes(const float* price, const float* strike, const float* years, float* call, float* put,
                              unsigned count) {
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += size_t{gridDim.x} * blockDim.x) {
    const float s = price[i], x = strike[i], t = years[i];
    const float spread = kVolatility * sqrtf(t);
    const float d1 = (logf(s / x) + (kRate + 0.5f * kVolatility * kVolatility) * t) / spread;
    const float d2 = d1 - spread;
    const float n1 = cumulative_normal(d1), n2 = cumulative_normal(d2);
    const float discounted = x * expf(-kRate * t);
    call[i] = s * n1 - discounted * n2;
    put[i] = discounted * (1.0f - n2) - s * (1.0f - n1);
  }
}

// The formula in double precision with the C library's own error function.
static void reference(double s, double x, double t, double* call, double* put) {
  const double spread = kVolatility * std::sqrt(t);
  const double d1 = (std::log(s / x) + (kRate + 0.5 * kVolatility * kVolatility) * t) / spread, d2 = d1 - spread;
  const double n1 = 0.5 * std::erfc(-d1 * M_SQRT1_2), n2 = 0.5 * std::erfc(-d2 * M_SQRT1_2);
  const double discounted = x * std::exp(-kRate * t);
  *call = s * n1 - discounted * n2;
  *put = discounted * (1 - n2) - s * (1 - n1);
}

static bool run(Program* program) {
  const uint64_t count = program->size(), seed = program->seed();
  HostBuffer<float> price(count, program->pinned()), strike(count, program->pinned()), years(count, program->pinned());
  HostBuffer<float> result(2 * count, program->pinned());  // the calls, then the puts
  for (uint64_t i = 0; i < count; ++i) {
    price[i] = random_float(seed, 3 * i, 5, 30);
    strike[i] = random_float(seed, 3 * i + 1, 1, 100);
    years[i] = random_float(seed, 3 * i + 2, 0.25f, 10);
  }

  program->total.start();
  {
    DeviceBuffer<float> device_price(count), device_strike(count), device_years(count), device_call(count),
        device_put(count);
    KernelTimer timer(program);
    const uint64_t blocks = (count + kBlock - 1) / kBlock;
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_price.upload(price.get(), program);
      device_strike.upload(strike.get(), program);
      device_years.upload(years.get(), program);
      timer.start();
      black_scholes<<<blocks < 8192 ? blocks : 8192, kBlock>>>(device_price.get(), device_strike.get(),
                                                               device_years.get(), device_call.get(), device_put.get(),
                                                               count);
      timer.stop();
      device_call.download(result.get(), program);
      device_put.download(result.get() + count, program);
    }
  }
  program->total.stop();
  program->emit(result.get(), result.bytes());

  // Floats of prices up to 100 carry about 1e-5; the approximation and the rounding of d1 add as much again.
  Mismatches wrong;
  const uint64_t step = check_step(count, 1 << 20);
  for (uint64_t i = 0; i < count; i += step) {
    double call, put;
    reference(price[i], strike[i], years[i], &call, &put);
    if (!(std::fabs(result[i] - call) < 1e-4) || !(std::fabs(result[count + i] - put) < 1e-4))
      wrong.report("option %" PRIu64 ": call %g and put %g in place of %g and %g", i, result[i], result[count + i], call,
                   put);
  }
  return wrong.none();
}

int main(int argc, char** argv) {
  Program program("black-scholes", "prices European options by the Black-Scholes formula", "options", 32768, 100000000);
  program.size_limit(1u << 31);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
