// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The time that small calls of NVIDIA's libraries take their caller, and that a large product takes to its end. The
// libraries are those that the loader finds: natively NVIDIA's, in a guest ours. One that is not there is left out.
#include <dlfcn.h>

#include <cmath>

#include "driver.h"

// The little of cublas_v2.h, cublasLt.h and cufft.h that is used.
enum { kHalf = 2, kFloat = 0, kCompute32F = 68, kDefaultAlgo = -1, kForward = -1, kC2C = 0x29, kMaxWorkspace = 1 };
struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
};

class Library {
 public:
  explicit Library(std::vector<const char*> names) {
    for (const char* name : names) {
      if (handle_ == nullptr) handle_ = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
    }
    if (handle_ == nullptr) fprintf(stderr, "left out: %s\n", dlerror());
  }
  explicit operator bool() const { return handle_ != nullptr; }
  // Calls the function of a name, which returns 0 if all is well.
  template <typename... A>
  void call(const char* name, A... arguments) const {
    const auto function = reinterpret_cast<int (*)(A...)>(dlsym(handle_, name));
    if (function == nullptr) stop(3, "there is no %s", name);
    const int status = function(arguments...);
    if (status != 0) stop(3, "%s returns %d", name, status);
  }
  template <typename F>
  F* find(const char* name) const {
    const auto function = reinterpret_cast<F*>(dlsym(handle_, name));
    if (function == nullptr) stop(3, "there is no %s", name);
    return function;
  }

 private:
  void* handle_ = nullptr;
};

// Microseconds that a call takes its caller: the median over batches, each of which begins with an idle GPU.
template <typename Call>
double in_call(const Wanted& wanted, Call call) {
  constexpr int kBatch = 100;
  Samples samples;
  for (int i = 0; i < 20; ++i) call();
  for (int i = 0; i < wanted.repetitions(41); ++i) {
    CHECK(cuCtxSynchronize());
    const double begin = now();
    for (int j = 0; j < kBatch; ++j) call();
    samples.add((now() - begin) / kBatch);
  }
  CHECK(cuCtxSynchronize());
  return samples.median();
}

static CUdeviceptr filled(size_t bytes, unsigned short value) {
  CUdeviceptr address;
  CHECK(cuMemAlloc(&address, bytes));
  CHECK(cuMemsetD16(address, value, bytes / 2));
  return address;
}

// Halves: 0.25 is 0x3400, and n products of two of these are n / 16.
constexpr unsigned short kQuarter = 0x3400;

static float half(unsigned short bits) {
  const int exponent = bits >> 10 & 31;
  return exponent == 0 ? 0 : std::ldexp(1.0f + (bits & 1023) / 1024.0f, exponent - 15);
}

static void check_product(CUdeviceptr c, int n) {
  unsigned short first;
  CHECK(cuMemcpyDtoH(&first, c, sizeof first));
  EXPECT(half(first) == n / 16.0f, "%d x %d: %f", n, n, half(first));
}

static void products(const Wanted& wanted) {
  const Library blas({"libcublas.so.13", "libcublas.so.12"});
  if (!blas) return;
  void* handle;
  blas.call("cublasCreate_v2", &handle);
  const float one = 1, zero = 0;
  const auto gemm = blas.find<int(void*, int, int, int, int, int, const float*, CUdeviceptr, int, int, CUdeviceptr, int, int,
                                  const float*, CUdeviceptr, int, int, int, int)>("cublasGemmEx");
  const auto product = [&](CUdeviceptr a, CUdeviceptr c, int n) {
    const int status = gemm(handle, 0, 0, n, n, n, &one, a, kHalf, n, a, kHalf, n, &zero, c, kHalf, n, kCompute32F, kDefaultAlgo);
    if (status != 0) stop(3, "cublasGemmEx returns %d", status);
  };
  for (const int n : {64, 8192}) {
    const size_t bytes = size_t{2} * n * n;
    const CUdeviceptr a = filled(bytes, kQuarter), c = filled(bytes, 0);
    if (n == 64) {
      report("cublasGemmEx, 64 x 64, fp16", in_call(wanted, [&] { product(a, c, n); }), "us");
    } else {
      Samples samples;
      for (int i = 0; i < wanted.repetitions(25); ++i) {
        CHECK(cuCtxSynchronize());
        const double begin = now();
        product(a, c, n);
        CHECK(cuCtxSynchronize());
        samples.add(now() - begin);
      }
      report("cublasGemmEx, 8192 x 8192, fp16, done", samples.median(), "us");
    }
    check_product(c, n);
    CHECK(cuMemFree(a));
    CHECK(cuMemFree(c));
  }
  blas.call("cublasDestroy_v2", handle);
}

static void light_products(const Wanted& wanted) {
  const Library light({"libcublasLt.so.13", "libcublasLt.so.12"});
  if (!light) return;
  constexpr int n = 64;
  constexpr size_t kWorkspace = 4 << 20;
  void *handle, *product, *layout, *preference;
  light.call("cublasLtCreate", &handle);
  light.call("cublasLtMatmulDescCreate", &product, int{kCompute32F}, int{kFloat});
  light.call("cublasLtMatrixLayoutCreate", &layout, int{kHalf}, uint64_t{n}, uint64_t{n}, int64_t{n});
  light.call("cublasLtMatmulPreferenceCreate", &preference);
  light.call("cublasLtMatmulPreferenceSetAttribute", preference, int{kMaxWorkspace}, &kWorkspace, sizeof kWorkspace);
  Heuristic heuristic;
  int found = 0;
  light.call("cublasLtMatmulAlgoGetHeuristic", handle, product, layout, layout, layout, layout, preference, 1, &heuristic, &found);
  EXPECT(found == 1, "%d algorithms", found);
  const float one = 1, zero = 0;
  const CUdeviceptr a = filled(2 * n * n, kQuarter), c = filled(2 * n * n, 0), workspace = filled(kWorkspace, 0);
  const auto matmul = light.find<int(void*, void*, const float*, CUdeviceptr, void*, CUdeviceptr, void*, const float*, CUdeviceptr, void*,
                                     CUdeviceptr, void*, const Algorithm*, CUdeviceptr, size_t, CUstream)>("cublasLtMatmul");
  const double time = in_call(wanted, [&] {
    const int status = matmul(handle, product, &one, a, layout, a, layout, &zero, c, layout, c, layout, &heuristic.algorithm, workspace,
                              kWorkspace, nullptr);
    if (status != 0) stop(3, "cublasLtMatmul returns %d", status);
  });
  check_product(c, n);
  report("cublasLtMatmul, 64 x 64, fp16", time, "us");
  light.call("cublasLtMatmulPreferenceDestroy", preference);
  light.call("cublasLtMatrixLayoutDestroy", layout);
  light.call("cublasLtMatmulDescDestroy", product);
  light.call("cublasLtDestroy", handle);
}

static void transforms(const Wanted& wanted) {
  const Library fft({"libcufft.so.12", "libcufft.so.11"});
  if (!fft) return;
  constexpr int n = 256;
  int plan;
  fft.call("cufftPlan1d", &plan, n, int{kC2C}, 1);
  std::vector<float> numbers(2 * n, 0);
  for (int i = 0; i < n; ++i) numbers[2 * i] = 1;
  const size_t bytes = numbers.size() * sizeof(float);
  const CUdeviceptr from = filled(bytes, 0), to = filled(bytes, 0);
  CHECK(cuMemcpyHtoD(from, numbers.data(), bytes));
  const auto execute = fft.find<int(int, CUdeviceptr, CUdeviceptr, int)>("cufftExecC2C");
  const double time = in_call(wanted, [&] {
    const int status = execute(plan, from, to, kForward);
    if (status != 0) stop(3, "cufftExecC2C returns %d", status);
  });
  CHECK(cuMemcpyDtoH(numbers.data(), to, bytes));
  // Ones have a spectrum of their sum and nothing else.
  EXPECT(numbers[0] == n && std::fabs(numbers[2]) < 1e-3f, "%f %f", numbers[0], numbers[2]);
  report("cufftExecC2C, 256", time, "us");
  fft.call("cufftDestroy", plan);
}

int main(int argc, char** argv) {
  const Wanted wanted(argc, argv);
  Device device;
  wanted.settle();
  if (wanted("cublas")) products(wanted);
  if (wanted("cublaslt")) light_products(wanted);
  if (wanted("cufft")) transforms(wanted);
  return 0;
}
