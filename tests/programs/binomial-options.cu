// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// European call options by a binomial tree: one block walks one option's tree from its leaves to its root.
#include <cmath>

#include "runtime.h"

constexpr unsigned kBlock = 128;
constexpr uint64_t kMaxSteps = 2048;

struct Option {
  float price, strike, years, rate, volatility;
};

// Shared memory holds two layers of the tree, each of steps + 1 floats, that take turns.
__global__ void binomial_options(const Option* options, float* values, unsigned steps) {
  extern __shared__ float layers[];
  const Option option = options[blockIdx.x];
  const float dt = option.years / steps;
  const float move = option.volatility * sqrtf(dt);
  const float up = expf(move), down = expf(-move);
  const float growth = expf(option.rate * dt), discount = expf(-option.rate * dt);
  const float p = (growth - down) / (up - down);
  const float p_up = p * discount, p_down = (1.0f - p) * discount;

  float *from = layers, *to = layers + steps + 1;
  for (unsigned i = threadIdx.x; i <= steps; i += blockDim.x) {
    const float leaf = option.price * expf(move * (2.0f * i - steps)) - option.strike;
    from[i] = leaf > 0 ? leaf : 0.0f;
  }
  for (unsigned last = steps; last > 0; --last) {
    __syncthreads();
    for (unsigned i = threadIdx.x; i < last; i += blockDim.x) to[i] = p_up * from[i + 1] + p_down * from[i];
    float* done = from;
    from = to;
    to = done;
  }
  __syncthreads();
  if (threadIdx.x == 0) values[blockIdx.x] = from[0];
}

// The same tree in double precision.
static double reference(const Option& option, unsigned steps, std::vector<double>* layer) {
  const double dt = option.years / steps, move = option.volatility * std::sqrt(dt);
  const double up = std::exp(move), down = std::exp(-move), p = (std::exp(option.rate * dt) - down) / (up - down);
  const double discount = std::exp(-option.rate * dt), p_up = p * discount, p_down = (1 - p) * discount;
  layer->resize(steps + 1);
  for (unsigned i = 0; i <= steps; ++i)
    (*layer)[i] = std::fmax(option.price * std::exp(move * (2.0 * i - steps)) - option.strike, 0);
  for (unsigned last = steps; last > 0; --last)
    for (unsigned i = 0; i < last; ++i) (*layer)[i] = p_up * (*layer)[i + 1] + p_down * (*layer)[i];
  return (*layer)[0];
}

static bool run(Program* program, unsigned steps) {
  const uint64_t count = program->size(), seed = program->seed();
  HostBuffer<Option> options(count, program->pinned());
  HostBuffer<float> values(count, program->pinned());
  for (uint64_t i = 0; i < count; ++i)
    options[i] = {random_float(seed, 3 * i, 5, 30), random_float(seed, 3 * i + 1, 1, 100),
                  random_float(seed, 3 * i + 2, 0.25f, 10), 0.06f, 0.10f};

  program->total.start();
  {
    DeviceBuffer<Option> device_options(count);
    DeviceBuffer<float> device_values(count);
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_options.upload(options.get(), program);
      timer.start();
      binomial_options<<<count, kBlock, 2 * (steps + 1) * sizeof(float)>>>(device_options.get(), device_values.get(),
                                                                          steps);
      timer.stop();
      device_values.download(values.get(), program);
    }
  }
  program->total.stop();
  program->emit(values.get(), values.bytes());

  // p loses about steps^0.5 times a float's precision by cancellation, and the tree carries that to the root.
  Mismatches wrong;
  std::vector<double> layer;
  const uint64_t most = 1 + (256ull << 20) / (uint64_t{steps} * steps), step = check_step(count, most);
  for (uint64_t i = 0; i < count; i += step) {
    const double right = reference(options[i], steps, &layer);
    if (!(std::fabs(values[i] - right) < 2e-3 * options[i].price))
      wrong.report("option %" PRIu64 ": %g in place of %g", i, values[i], right);
  }
  return wrong.none();
}

int main(int argc, char** argv) {
  uint64_t steps = 0;
  Program program("binomial-options", "prices European call options by a binomial tree", "options", 32, 4096);
  program.size_limit(1u << 24);
  program.option("steps", "time steps of the tree (default 2048 for the paper's size, 192 otherwise)", &steps, 1,
                 kMaxSteps);
  program.parse(argc, argv);
  if (steps == 0) steps = program.paper() ? kMaxSteps : 192;
  return program.finish(run(&program, steps), std::to_string(program.size()) + "x" + std::to_string(steps));
}
