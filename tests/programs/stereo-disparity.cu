// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The shift of each pixel of the left image in the right one: block matching by sums of absolute differences. Each
// frame is a pair of RGBA images that is copied to the GPU, and a disparity (32 bits) and a confidence (8 bits) for
// each pixel that are copied back: 13 bytes per pixel. Only integers are used, so every GPU and the CPU agree in every
// bit.
#include <algorithm>

#include "runtime.h"

constexpr int kBlockX = 32, kBlockY = 8, kRadius = 3, kWindow = 2 * kRadius + 1, kRange = 16;
constexpr int kWide = kBlockX + 2 * kRadius, kHigh = kBlockY + 2 * kRadius;

__host__ __device__ int difference(uint32_t left, uint32_t right) {
  int sum = 0;
  for (int shift = 0; shift < 24; shift += 8) {
    const int delta = static_cast<int>(left >> shift & 255) - static_cast<int>(right >> shift & 255);
    sum += delta < 0 ? -delta : delta;
  }
  return sum;
}

__host__ __device__ int clamped(int value, int end) { return value < 0 ? 0 : value < end ? value : end - 1; }

// The mean difference of the best match, upside down: 255 is a perfect match.
__host__ __device__ uint8_t confidence_of(int cost) { return static_cast<uint8_t>(255 - cost / (3 * kWindow * kWindow)); }

__global__ void stereo_disparity(const uint32_t* left, const uint32_t* right, int* disparity, uint8_t* confidence,
                                 int width, int height) {
  __shared__ int differences[kHigh][kWide];
  __shared__ int columns[kBlockY][kWide];
  const int x0 = blockIdx.x * kBlockX, y0 = blockIdx.y * kBlockY;
  const int thread = threadIdx.y * kBlockX + threadIdx.x;
  int best = 0, best_cost = 0x7fffffff;
  for (int d = 0; d < kRange; ++d) {
    for (int i = thread; i < kHigh * kWide; i += kBlockX * kBlockY) {
      const int x = clamped(x0 + i % kWide - kRadius, width), y = clamped(y0 + i / kWide - kRadius, height);
      const size_t row = static_cast<size_t>(y) * width;
      differences[i / kWide][i % kWide] = difference(left[row + x], right[row + clamped(x - d, width)]);
    }
    __syncthreads();
    for (int i = thread; i < kBlockY * kWide; i += kBlockX * kBlockY) {
      int sum = 0;
#pragma unroll
      for (int j = 0; j < kWindow; ++j) sum += differences[i / kWide + j][i % kWide];
      columns[i / kWide][i % kWide] = sum;
    }
    __syncthreads();
    int cost = 0;
#pragma unroll
    for (int j = 0; j < kWindow; ++j) cost += columns[threadIdx.y][threadIdx.x + j];
    if (cost < best_cost) {
      best_cost = cost;
      best = d;
    }
  }
  const int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
  if (x < width && y < height) {
    const size_t at = static_cast<size_t>(y) * width + x;
    disparity[at] = best;
    confidence[at] = confidence_of(best_cost);
  }
}

struct Shape {
  int width, height;
  uint64_t frames;
  size_t pixels() const { return static_cast<size_t>(width) * height; }
};

// A scene of bands at different depths, with noise: the true disparity of a pixel is known, the match never perfect.
static int true_disparity(int y, uint64_t frame) { return static_cast<int>((y / 24 + frame) % (kRange - 2)); }

static void make_frame(const Shape& shape, uint64_t seed, uint64_t frame, uint32_t* left, uint32_t* right) {
  for (int y = 0; y < shape.height; ++y) {
    const int d = true_disparity(y, frame);
    for (int x = 0; x < shape.width; ++x) {
      const size_t at = static_cast<size_t>(y) * shape.width + x;
      const uint64_t texture = (frame * 65536 + y) * 65536;
      const uint32_t noise = static_cast<uint32_t>(random_bits(~seed, at)) & 0x07070707;
      left[at] = (static_cast<uint32_t>(random_bits(seed, texture + x + kRange - d)) & 0xf8f8f8f8) | noise;
      right[at] = static_cast<uint32_t>(random_bits(seed, texture + x + kRange)) & 0xf8f8f8f8;
    }
  }
}

static void check_pixel(const Shape& shape, const uint32_t* left, const uint32_t* right, const int* disparity,
                        const uint8_t* confidence, int x0, int y0, Mismatches* wrong) {
  int best = 0, best_cost = 0x7fffffff;
  for (int d = 0; d < kRange; ++d) {
    int cost = 0;
    for (int y = y0 - kRadius; y <= y0 + kRadius; ++y) {
      const size_t row = static_cast<size_t>(clamped(y, shape.height)) * shape.width;
      for (int x = x0 - kRadius; x <= x0 + kRadius; ++x) {
        const int column = clamped(x, shape.width);
        cost += difference(left[row + column], right[row + clamped(column - d, shape.width)]);
      }
    }
    if (cost < best_cost) {
      best_cost = cost;
      best = d;
    }
  }
  const size_t at = static_cast<size_t>(y0) * shape.width + x0;
  if (disparity[at] != best || confidence[at] != confidence_of(best_cost))
    wrong->report("pixel %d,%d: disparity %d, confidence %d in place of %d, %d", x0, y0, disparity[at], confidence[at],
                  best, confidence_of(best_cost));
}

static bool run(Program* program, const Shape& shape, double copies) {
  const size_t pixels = shape.pixels();
  HostBuffer<uint32_t> left(pixels, program->pinned()), right(pixels, program->pinned());
  HostBuffer<int> disparity(pixels, program->pinned());
  HostBuffer<uint8_t> confidence(pixels, program->pinned());
  Mismatches wrong;

  program->total.start();
  {
    DeviceBuffer<uint32_t> device_left(pixels), device_right(pixels);
    DeviceBuffer<int> device_disparity(pixels);
    DeviceBuffer<uint8_t> device_confidence(pixels);
    KernelTimer timer(program);
    const auto upload = [&] {
      device_left.upload(left.get(), program);
      device_right.upload(right.get(), program);
    };
    const auto download = [&] {
      device_disparity.download(disparity.get(), program);
      device_confidence.download(confidence.get(), program);
    };
    const dim3 block(kBlockX, kBlockY);
    const dim3 grid((shape.width + kBlockX - 1) / kBlockX, (shape.height + kBlockY - 1) / kBlockY);
    uint64_t moved = 0;
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      for (uint64_t frame = 0; frame < shape.frames; ++frame) {
        program->total.stop();
        make_frame(shape, program->seed(), frame, left.get(), right.get());
        program->total.start();
        upload();
        timer.start();
        stereo_disparity<<<grid, block>>>(device_left.get(), device_right.get(), device_disparity.get(),
                                          device_confidence.get(), shape.width, shape.height);
        timer.stop();
        download();
        moved += 13 * pixels;
        // More copies of the same frame: its share of --copies.
        const double goal = copies * 1e9 * (frame + 1 + i * shape.frames) / (shape.frames * program->iterations());
        for (; moved < goal; moved += 13 * pixels) {
          upload();
          download();
        }
        if (i + 1 < program->iterations()) continue;
        program->total.stop();
        program->emit(disparity.get(), disparity.bytes());
        program->emit(confidence.get(), confidence.bytes());
        const size_t step = check_step(pixels, (1 << 17) / shape.frames) | 1;
        for (size_t at = 0; at < pixels; at += step)
          check_pixel(shape, left.get(), right.get(), disparity.get(), confidence.get(), at % shape.width,
                      at / shape.width, &wrong);
        program->total.start();
      }
    }
  }
  program->total.stop();
  return wrong.none();
}

int main(int argc, char** argv) {
  double copies = 0;
  uint64_t frames = 0;
  Program program("stereo-disparity", "finds the disparity of stereo images by block matching", "pixels of a side", 96,
                  4096);
  program.size_limit(16384);
  program.option("frames", "pairs of images (default 16 for the paper's size, 1 otherwise)", &frames, 1, 1000000);
  program.option("copies", "GB to copy in all, by copying each frame again (default: each once)", &copies);
  program.parse(argc, argv);
  if (frames == 0) frames = program.paper() ? 16 : 1;
  const int side = static_cast<int>(program.size());
  const Shape shape{side, side, frames};
  return program.finish(run(&program, shape, copies),
                        std::to_string(side) + "x" + std::to_string(side) + "x" + std::to_string(frames));
}
