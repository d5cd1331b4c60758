// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A box filter of a picture: reads through a texture, which clamps at the edges, and writes to a surface. The two
// arrays change their parts from pass to pass.
#include "runtime.h"

namespace {

constexpr int kRadius = 2, kPasses = 3, kSide = 16;
constexpr int kTaps = (2 * kRadius + 1) * (2 * kRadius + 1);

__global__ void filter(cudaTextureObject_t from, cudaSurfaceObject_t to, int size) {
  const int x = blockIdx.x * kSide + threadIdx.x, y = blockIdx.y * kSide + threadIdx.y;
  if (x >= size || y >= size) return;
  int sum[4] = {};
  for (int j = -kRadius; j <= kRadius; ++j)
    for (int i = -kRadius; i <= kRadius; ++i) {
      const uchar4 tap = tex2D<uchar4>(from, x + i + 0.5f, y + j + 0.5f);
      sum[0] += tap.x;
      sum[1] += tap.y;
      sum[2] += tap.z;
      sum[3] += tap.w;
    }
  const uchar4 mean = make_uchar4(sum[0] / kTaps, sum[1] / kTaps, sum[2] / kTaps, sum[3] / kTaps);
  surf2Dwrite(mean, to, x * static_cast<int>(sizeof mean), y);
}

// A picture on the device, with what reads and what writes it.
class Picture {
 public:
  explicit Picture(size_t size) : size_(size) {
    const cudaChannelFormatDesc channels = cudaCreateChannelDesc<uchar4>();
    CHECK(cudaMallocArray(&array_, &channels, size, size, cudaArraySurfaceLoadStore));
    cudaResourceDesc resource = {};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array_;
    cudaTextureDesc reads = {};
    reads.addressMode[0] = reads.addressMode[1] = cudaAddressModeClamp;
    reads.filterMode = cudaFilterModePoint;
    reads.readMode = cudaReadModeElementType;
    CHECK(cudaCreateTextureObject(&texture_, &resource, &reads, nullptr));
    CHECK(cudaCreateSurfaceObject(&surface_, &resource));
  }
  ~Picture() {
    CHECK(cudaDestroyTextureObject(texture_));
    CHECK(cudaDestroySurfaceObject(surface_));
    CHECK(cudaFreeArray(array_));
  }
  Picture(const Picture&) = delete;

  cudaTextureObject_t texture() const { return texture_; }
  cudaSurfaceObject_t surface() const { return surface_; }
  void upload(const uchar4* from, Program* program) const {
    CHECK(cudaMemcpy2DToArray(array_, 0, 0, from, row(), row(), size_, cudaMemcpyHostToDevice));
    program->moved(row() * size_);
  }
  void download(uchar4* to, Program* program) const {
    CHECK(cudaMemcpy2DFromArray(to, row(), array_, 0, 0, row(), size_, cudaMemcpyDeviceToHost));
    program->moved(row() * size_);
  }

 private:
  size_t row() const { return size_ * sizeof(uchar4); }

  size_t size_;
  cudaArray_t array_ = nullptr;
  cudaTextureObject_t texture_ = 0;
  cudaSurfaceObject_t surface_ = 0;
};

// The mean of a channel of the pixels around one.
int mean_of(const std::vector<unsigned char>& channel, int size, int x, int y) {
  const auto clamped = [size](int at) { return at < 0 ? 0 : at >= size ? size - 1 : at; };
  int sum = 0;
  for (int j = -kRadius; j <= kRadius; ++j)
    for (int i = -kRadius; i <= kRadius; ++i) sum += channel[static_cast<size_t>(clamped(y + j)) * size + clamped(x + i)];
  return sum / kTaps;
}

// Checks every pixel, one channel at a time; of a large picture only the first channel.
bool is_right(const HostBuffer<uchar4>& in, const HostBuffer<uchar4>& out, int size) {
  Mismatches wrong;
  const auto part = [](const uchar4& pixel, int channel) {
    return channel == 0 ? pixel.x : channel == 1 ? pixel.y : channel == 2 ? pixel.z : pixel.w;
  };
  for (int channel = 0; channel < (size <= 256 ? 4 : 1); ++channel) {
    std::vector<unsigned char> from(in.count()), to(in.count());
    for (size_t i = 0; i < in.count(); ++i) from[i] = part(in[i], channel);
    for (int pass = 0; pass < kPasses; ++pass) {
      for (int y = 0; y < size; ++y)
        for (int x = 0; x < size; ++x) to[static_cast<size_t>(y) * size + x] = mean_of(from, size, x, y);
      from.swap(to);
    }
    for (size_t i = 0; i < in.count(); ++i)
      if (part(out[i], channel) != from[i])
        wrong.report("pixel %zu, channel %d: %d in place of %d", i, channel, part(out[i], channel), from[i]);
  }
  return wrong.none();
}

bool run(Program* program) {
  const int size = static_cast<int>(program->size());
  const size_t count = static_cast<size_t>(size) * size;
  HostBuffer<uchar4> in(count, program->pinned()), out(count, program->pinned());
  for (size_t i = 0; i < count; ++i) {
    const uint64_t bits = random_bits(program->seed(), i);
    in[i] = make_uchar4(bits & 255, bits >> 8 & 255, bits >> 16 & 255, bits >> 24 & 255);
  }

  program->total.start();
  {
    Picture one(size), other(size);
    KernelTimer timer(program);
    const dim3 grid((size + kSide - 1) / kSide, (size + kSide - 1) / kSide), block(kSide, kSide);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      one.upload(in.get(), program);
      timer.start();
      for (int pass = 0; pass < kPasses; ++pass) {
        const Picture &from = pass % 2 == 0 ? one : other, &to = pass % 2 == 0 ? other : one;
        filter<<<grid, block>>>(from.texture(), to.surface(), size);
      }
      timer.stop();
      (kPasses % 2 == 0 ? one : other).download(out.get(), program);
    }
  }
  program->total.stop();
  program->emit(out.get(), out.bytes());
  return is_right(in, out, size);
}

}  // namespace

int main(int argc, char** argv) {
  Program program("box-filter", "filters a picture through textures and surfaces", "rows and columns", 96, 4096);
  program.size_limit(16384);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
