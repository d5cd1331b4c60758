// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Convolutions with cuDNN: of single and double precision, with groups, padding, strides and dilation, added to the
// previous values. All values are small integers, so every sum is exact in any order.
#include "cudnn.h"

namespace {

// A whole number from -4 to 4.
int small_number(uint64_t seed, uint64_t index) { return static_cast<int>(random_bits(seed, index) % 9) - 4; }

constexpr int kImages = 2, kGroups = 2, kChannels = 4, kFilters = 4;  // channels and filters of a group
constexpr int kWindow = 3, kPadding = 2, kStride = 2, kDilation = 2;

struct Shape {
  int size;    // rows and columns of an image
  int output;  // rows and columns of an output image
  size_t x() const { return static_cast<size_t>(kImages) * kGroups * kChannels * size * size; }
  size_t w() const { return static_cast<size_t>(kGroups) * kFilters * kChannels * kWindow * kWindow; }
  size_t y() const { return static_cast<size_t>(kImages) * kGroups * kFilters * output * output; }
};

// An element of the output.
int64_t convolved(const std::vector<int>& x, const std::vector<int>& w, const Shape& shape, int image, int filter, int row,
                  int column) {
  int64_t sum = 0;
  const int first = filter / kFilters * kChannels;
  for (int channel = 0; channel < kChannels; ++channel)
    for (int i = 0; i < kWindow; ++i)
      for (int j = 0; j < kWindow; ++j) {
        const int r = row * kStride - kPadding + i * kDilation, c = column * kStride - kPadding + j * kDilation;
        if (r < 0 || r >= shape.size || c < 0 || c >= shape.size) continue;
        const size_t plane = static_cast<size_t>(image) * kGroups * kChannels + first + channel;
        const size_t tap = (static_cast<size_t>(filter) * kChannels + channel) * kWindow * kWindow + i * kWindow + j;
        sum += int64_t{x[(plane * shape.size + r) * shape.size + c]} * w[tap];
      }
  return sum;
}

template <typename T>
bool is_right(const std::vector<T>& got, const Shape& shape, const std::vector<int>& x, const std::vector<int>& w,
              const std::vector<int>& before) {
  Mismatches wrong;
  // Every element of small images, and a sample of large ones.
  const int step = shape.output <= 64 ? 1 : shape.output / 13;
  for (int image = 0; image < kImages; ++image)
    for (int filter = 0; filter < kGroups * kFilters; ++filter)
      for (int row = 0; row < shape.output; row += step)
        for (int column = 0; column < shape.output; column += step) {
          const size_t plane = static_cast<size_t>(image) * kGroups * kFilters + filter;
          const size_t at = (plane * shape.output + row) * shape.output + column;
          const T right = static_cast<T>(2 * convolved(x, w, shape, image, filter, row, column) - before[at]);
          if (got[at] != right)
            wrong.report("image %d, filter %d, row %d, column %d: %g in place of %g", image, filter, row, column,
                         static_cast<double>(got[at]), static_cast<double>(right));
        }
  return wrong.none();
}

// Convolves on a stream: `T` is the elements' type and that of the factors.
template <typename T>
std::vector<T> convolve(Program* program, KernelTimer* timer, cudnnHandle_t handle, cudaStream_t stream, int type,
                        const Shape& shape, const std::vector<int>* values) {
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t convolution;
  DNN(cudnnCreateTensorDescriptor(&x));
  DNN(cudnnCreateTensorDescriptor(&y));
  DNN(cudnnCreateFilterDescriptor(&w));
  DNN(cudnnCreateConvolutionDescriptor(&convolution));
  DNN(cudnnSetTensor4dDescriptor(x, kPlanes, type, kImages, kGroups * kChannels, shape.size, shape.size));
  DNN(cudnnSetFilter4dDescriptor(w, type, kPlanes, kGroups * kFilters, kChannels, kWindow, kWindow));
  DNN(cudnnSetConvolution2dDescriptor(convolution, kPadding, kPadding, kStride, kStride, kDilation, kDilation,
                                      kCorrelation, type));
  DNN(cudnnSetConvolutionGroupCount(convolution, kGroups));
  int n, c, height, width;
  DNN(cudnnGetConvolution2dForwardOutputDim(convolution, x, w, &n, &c, &height, &width));
  if (n != kImages || c != kGroups * kFilters || height != shape.output || width != shape.output) {
    fprintf(stderr, "wrong: %d images of %d x %d x %d\n", n, c, height, width);
    return {};
  }
  DNN(cudnnSetTensor4dDescriptor(y, kPlanes, type, n, c, height, width));
  size_t bytes = 0;
  DNN(cudnnGetConvolutionForwardWorkspaceSize(handle, x, w, convolution, y, kImplicitProduct, &bytes));
  const std::vector<T> before(values[2].begin(), values[2].end());
  std::vector<T> host[3];
  for (int which = 0; which < 3; ++which) host[which].assign(values[which].begin(), values[which].end());
  {
    DeviceBuffer<T> device_x(shape.x()), device_w(shape.w()), device_y(shape.y());
    DeviceBuffer<char> workspace(bytes + 1);
    const T two = 2, minus_one = -1;
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_x.upload(host[0].data(), program);
      device_w.upload(host[1].data(), program);
      device_y.upload(before.data(), program);
      timer->start();
      DNN(cudnnConvolutionForward(handle, &two, x, device_x.get(), w, device_w.get(), convolution, kImplicitProduct,
                                  workspace.get(), bytes, &minus_one, y, device_y.get()));
      CHECK(cudaStreamSynchronize(stream));
      timer->stop();
      device_y.download(host[2].data(), program);
    }
  }
  DNN(cudnnDestroyConvolutionDescriptor(convolution));
  DNN(cudnnDestroyFilterDescriptor(w));
  DNN(cudnnDestroyTensorDescriptor(x));
  DNN(cudnnDestroyTensorDescriptor(y));
  return host[2];
}

bool run(Program* program) {
  Shape shape{static_cast<int>(program->size()), 0};
  shape.output = (shape.size + 2 * kPadding - kDilation * (kWindow - 1) - 1) / kStride + 1;
  const size_t counts[3] = {shape.x(), shape.w(), shape.y()};
  std::vector<int> values[3];
  for (int which = 0; which < 3; ++which)
    for (size_t i = 0; i < counts[which]; ++i) values[which].push_back(small_number(program->seed(), 3 * i + which));

  std::vector<float> single;
  std::vector<double> both;
  program->total.start();
  {
    if (cudnnGetVersion() < 90000) return false;
    cudnnHandle_t handle;
    DNN(cudnnCreate(&handle));
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    DNN(cudnnSetStream(handle, stream));
    KernelTimer timer(program);
    single = convolve<float>(program, &timer, handle, stream, kSingle, shape, values);
    both = convolve<double>(program, &timer, handle, stream, kDouble, shape, values);
    DNN(cudnnDestroy(handle));
    CHECK(cudaStreamDestroy(stream));
  }
  program->total.stop();
  if (single.empty() || both.empty()) return false;
  program->emit(single.data(), single.size() * sizeof(float));
  program->emit(both.data(), both.size() * sizeof(double));
  return is_right(single, shape, values[0], values[1], values[2]) && is_right(both, shape, values[0], values[1], values[2]);
}

}  // namespace

int main(int argc, char** argv) {
  Program program("convolution", "convolves images with cuDNN", "rows and columns of each image", 40, 1024);
  program.size_limit(4096);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
