// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A convolution of a random picture by cuFFT: cuRAND makes the picture, both are transformed, their spectra multiplied,
// and the product is transformed back. The CPU checks the result against the sum that defines a convolution.
#include "fourier.h"

namespace {

constexpr int kWidth = 5;  // rows and columns of the filter

// to = to * by / count, for each frequency.
__global__ void multiply(float2* to, const float2* by, size_t frequencies, float count) {
  const size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  if (i >= frequencies) return;
  const float2 a = to[i], b = by[i];
  to[i] = make_float2((a.x * b.x - a.y * b.y) / count, (a.x * b.y + a.y * b.x) / count);
}

// The filter's weights: whole numbers, so that the sum on the CPU has no error of theirs.
float weight(uint64_t seed, int row, int column) {
  return static_cast<float>(random_bits(seed, static_cast<uint64_t>(row * kWidth + column)) % 7) - 3;
}

bool run(Program* program) {
  const int n = static_cast<int>(program->size());
  const size_t count = static_cast<size_t>(n) * n, frequencies = static_cast<size_t>(n) * (n / 2 + 1);
  std::vector<float> filter(count), picture(count), again(count), result(count);
  for (int row = 0; row < kWidth; ++row)
    for (int column = 0; column < kWidth; ++column)
      filter[static_cast<size_t>(row) * n + column] = weight(program->seed(), row, column);

  program->total.start();
  {
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    curandGenerator_t generator;
    LIBRARY(curandCreateGenerator(&generator, kPhilox));
    LIBRARY(curandSetStream(generator, stream));
    int there = 0, back = 0;
    LIBRARY(cufftPlan2d(&there, n, n, kRealToComplex));
    LIBRARY(cufftPlan2d(&back, n, n, kComplexToReal));
    LIBRARY(cufftSetStream(there, stream));
    LIBRARY(cufftSetStream(back, stream));
    DeviceBuffer<float> device_picture(count), device_filter(count);
    DeviceBuffer<float2> spectrum(frequencies), filter_spectrum(frequencies);
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_filter.upload(filter.data(), program);
      timer.start();
      // The same picture twice: the second is what the first was.
      for (std::vector<float>* to : {&again, &picture}) {
        LIBRARY(curandSetPseudoRandomGeneratorSeed(generator, program->seed()));
        // A seed alone does not change the position in the sequence.
        LIBRARY(curandSetGeneratorOffset(generator, 0));
        LIBRARY(curandGenerateUniform(generator, device_picture.get(), count));
        CHECK(cudaMemcpyAsync(to->data(), device_picture.get(), device_picture.bytes(), cudaMemcpyDeviceToHost, stream));
        program->moved(device_picture.bytes());
      }
      LIBRARY(cufftExecR2C(there, device_picture.get(), spectrum.get()));
      LIBRARY(cufftExecR2C(there, device_filter.get(), filter_spectrum.get()));
      const unsigned blocks = static_cast<unsigned>((frequencies + 255) / 256);
      multiply<<<blocks, 256, 0, stream>>>(spectrum.get(), filter_spectrum.get(), frequencies,
                                           static_cast<float>(count));
      LIBRARY(cufftExecC2R(back, spectrum.get(), device_picture.get()));
      CHECK(cudaStreamSynchronize(stream));
      timer.stop();
      device_picture.download(result.data(), program);
    }
    LIBRARY(cufftDestroy(there));
    LIBRARY(cufftDestroy(back));
    LIBRARY(curandDestroyGenerator(generator));
    CHECK(cudaStreamDestroy(stream));
  }
  program->total.stop();
  program->emit(picture.data(), count * sizeof(float));
  program->emit(result.data(), count * sizeof(float));

  Mismatches wrong;
  double mean = 0;
  for (size_t i = 0; i < count; ++i) {
    mean += picture[i] / static_cast<double>(count);
    if (!(picture[i] > 0 && picture[i] <= 1)) wrong.report("random number %zu: %g", i, double{picture[i]});
    if (picture[i] != again[i]) wrong.report("random number %zu: %g, then %g", i, double{again[i]}, double{picture[i]});
  }
  // Six standard deviations of the mean of this number of values.
  const double near = 6 * 0.2887 / n;
  if (mean < 0.5 - near || mean > 0.5 + near) wrong.report("the mean is %g", mean);
  const uint64_t step = check_step(count, 100000);
  for (uint64_t at = 0; at < count; at += step) {
    const int y = static_cast<int>(at / n), x = static_cast<int>(at % n);
    double sum = 0;
    for (int row = 0; row < kWidth; ++row)
      for (int column = 0; column < kWidth; ++column)
        sum += double{weight(program->seed(), row, column)} *
               picture[static_cast<size_t>((y - row + n) % n) * n + (x - column + n) % n];
    if (!(result[at] > sum - 1e-3 && result[at] < sum + 1e-3))
      wrong.report("row %d, column %d: %g in place of %g", y, x, double{result[at]}, sum);
  }
  return wrong.none();
}

}  // namespace

int main(int argc, char** argv) {
  Program program("fft-convolution", "convolves a random picture with cuFFT", "rows and columns of the picture", 96,
                  4096);
  program.size_limit(16384);
  program.parse(argc, argv);
  if (program.size() < kWidth) {
    fprintf(stderr, "the picture has at least %d rows\n", kWidth);
    return kUsage;
  }
  return program.finish(run(&program));
}
