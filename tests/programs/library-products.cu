// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Products of matrices with cuBLAS: single, half and double precision, in batches, with scalars and results on either
// side. All values are small integers, so every sum is exact in any order.
#include "cublas.h"

namespace {

constexpr int kBatches = 3;

// A whole number from -4 to 4.
int small_number(uint64_t seed, uint64_t index) { return static_cast<int>(random_bits(seed, index) % 9) - 4; }

// A whole number of so few bits as a half.
uint16_t half_bits(int value) {
  if (value == 0) return 0;
  const unsigned size = static_cast<unsigned>(value < 0 ? -value : value);
  const int exponent = 31 - __builtin_clz(size);
  const unsigned fraction = (size << (10 - exponent)) & 0x3ff;
  return static_cast<uint16_t>((value < 0 ? 0x8000 : 0) | ((exponent + 15) << 10) | fraction);
}

// Column `j`, row `i` of A times B, or of A times B's transpose.
int64_t product(const std::vector<int>& a, const std::vector<int>& b, int n, int i, int j, bool transposed) {
  int64_t sum = 0;
  for (int k = 0; k < n; ++k) sum += int64_t{a[i + k * n]} * (transposed ? b[j + k * n] : b[k + j * n]);
  return sum;
}

template <typename T>
bool is_right(const char* what, const std::vector<T>& got, int n, int64_t (*expected)(int64_t, int64_t),
              const std::vector<int>& a, const std::vector<int>& b, const std::vector<int>& c, bool transposed) {
  Mismatches wrong;
  // Every element of a small matrix, and a sample of a large one's.
  const int step = n <= 192 ? 1 : n / 61;
  for (int j = 0; j < n; j += step)
    for (int i = 0; i < n; i += step) {
      const T right = static_cast<T>(expected(product(a, b, n, i, j, transposed), c[i + j * n]));
      if (got[i + j * n] != right)
        wrong.report("%s: row %d, column %d: %g in place of %g", what, i, j, static_cast<double>(got[i + j * n]),
                     static_cast<double>(right));
    }
  return wrong.none();
}

bool run(Program* program) {
  const int n = static_cast<int>(program->size());
  const size_t count = static_cast<size_t>(n) * n;
  std::vector<int> a(count), b(count), c(count);
  for (size_t i = 0; i < count; ++i) {
    a[i] = small_number(program->seed(), 3 * i);
    b[i] = small_number(program->seed(), 3 * i + 1);
    c[i] = small_number(program->seed(), 3 * i + 2);
  }
  std::vector<float> floats[3], single(count), mixed(count);
  std::vector<double> doubles[2], batched(count * kBatches);
  std::vector<uint16_t> halves[2];
  for (int which = 0; which < 3; ++which) {
    const std::vector<int>& from = which == 0 ? a : which == 1 ? b : c;
    floats[which].assign(from.begin(), from.end());
    if (which == 2) break;
    doubles[which].assign(from.begin(), from.end());
    for (int value : from) halves[which].push_back(half_bits(value));
  }
  float on_host = 0, on_device = 0;

  program->total.start();
  {
    cublasHandle_t handle;
    BLAS(cublasCreate_v2(&handle));
    int version = 0, without_handle = 0;
    BLAS(cublasGetVersion_v2(handle, &version));
    BLAS(cublasGetVersion_v2(nullptr, &without_handle));
    if (version <= 0 || without_handle != version) return false;
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    BLAS(cublasSetStream_v2(handle, stream));
    DeviceBuffer<float> device_a(count), device_b(count), device_c(count), device_result(1);
    DeviceBuffer<double> double_a(count), double_b(count), double_c(count * kBatches);
    DeviceBuffer<uint16_t> half_a(count), half_b(count);
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      device_a.upload(floats[0].data(), program);
      device_b.upload(floats[1].data(), program);
      device_c.upload(floats[2].data(), program);
      double_a.upload(doubles[0].data(), program);
      double_b.upload(doubles[1].data(), program);
      half_a.upload(halves[0].data(), program);
      half_b.upload(halves[1].data(), program);

      timer.start();
      const float two = 2, minus_one = -1, one = 1, zero = 0;
      BLAS(cublasSgemm_v2(handle, kPlain, kTransposed, n, n, n, &two, device_a.get(), n, device_b.get(), n,
                          &minus_one, device_c.get(), n));
      // In the same stream, so after the product.
      CHECK(cudaMemcpyAsync(single.data(), device_c.get(), device_c.bytes(), cudaMemcpyDeviceToHost, stream));
      BLAS(cublasGemmEx(handle, kPlain, kPlain, n, n, n, &one, half_a.get(), kHalf, n, half_b.get(), kHalf, n, &zero,
                        device_c.get(), kFloat, n, kComputeFloat, kAnyAlgorithm));
      const double double_one = 1, double_zero = 0;
      // The same factors for each product of the batch.
      BLAS(cublasDgemmStridedBatched(handle, kPlain, kPlain, n, n, n, &double_one, double_a.get(), n, 0,
                                     double_b.get(), n, 0, &double_zero, double_c.get(), n,
                                     static_cast<long long>(count), kBatches));
      BLAS(cublasSdot_v2(handle, n, device_a.get(), 1, device_b.get(), n, &on_host));
      BLAS(cublasSetPointerMode_v2(handle, kScalarsOnDevice));
      BLAS(cublasSdot_v2(handle, n, device_a.get(), 1, device_b.get(), n, device_result.get()));
      BLAS(cublasSetPointerMode_v2(handle, kScalarsOnHost));
      CHECK(cudaStreamSynchronize(stream));
      timer.stop();

      device_c.download(mixed.data(), program);
      double_c.download(batched.data(), program);
      device_result.download(&on_device, program);
      program->moved(count * sizeof(float));
    }
    BLAS(cublasDestroy_v2(handle));
    CHECK(cudaStreamDestroy(stream));
  }
  program->total.stop();
  program->emit(single.data(), count * sizeof(float));
  program->emit(mixed.data(), count * sizeof(float));
  program->emit(batched.data(), batched.size() * sizeof(double));
  program->emit(&on_host, sizeof on_host);

  int64_t dot = 0;
  for (int i = 0; i < n; ++i) dot += int64_t{a[i]} * b[static_cast<size_t>(i) * n];
  bool right = static_cast<float>(dot) == on_host && on_host == on_device;
  if (!right) fprintf(stderr, "wrong: dot product %g on the host, %g on the device\n", on_host, on_device);
  right &= is_right("single", single, n, [](int64_t ab, int64_t c) { return 2 * ab - c; }, a, b, c, true);
  right &= is_right("half", mixed, n, [](int64_t ab, int64_t) { return ab; }, a, b, c, false);
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto begin = batched.begin() + static_cast<ptrdiff_t>(batch * count);
    const std::vector<double> one(begin, begin + static_cast<ptrdiff_t>(count));
    right &= is_right("double", one, n, [](int64_t ab, int64_t) { return ab; }, a, b, c, false);
  }
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("library-products", "multiplies matrices with cuBLAS", "rows and columns of each matrix", 96, 2048);
  program.size_limit(8192);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
