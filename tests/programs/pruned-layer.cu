// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Two linear layers with cuSPARSELt, half of whose weights are pruned: a layer of halves with a bias and a ReLU, and
// one of bytes with an algorithm that a search found. Of each four weights the magnitudes differ, so that it is certain
// which ones are pruned; all values are small integers, so every sum is exact in any order.
#include <algorithm>
#include <memory>

#include "cusparselt.h"

namespace {

// A whole number that a half has exactly.
uint16_t half_bits(int value) {
  if (value == 0) return 0;
  const unsigned size = static_cast<unsigned>(abs(value));
  unsigned exponent = 0;
  while (size >> (exponent + 1) != 0) ++exponent;
  const unsigned fraction = (size << 10 >> exponent) & 0x3ff;
  return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) | (exponent + 15) << 10 | fraction);
}

template <typename T>
T stored(int value) {
  return static_cast<T>(value);
}
template <>
uint16_t stored<uint16_t>(int value) {
  return half_bits(value);
}

template <typename T>
std::vector<T> stored(const std::vector<int>& values) {
  std::vector<T> all;
  for (int value : values) all.push_back(stored<T>(value));
  return all;
}

struct Object : cusparseLtObject_t {};

// out = epilogue(weights' x): the weights lie by rows, x and the results by columns, as a framework has a batch's rows.
template <typename In, typename Out>
class Layer {
 public:
  Layer(const Object& handle, int in_type, int out_type, int compute, int n, int batch, const In* bias)
      : handle_(handle), dense_(static_cast<size_t>(n) * n), pruned_(static_cast<size_t>(n) * n) {
    SPARSE(cusparseLtStructuredDescriptorInit(&handle_, &a_, n, n, n, 16, in_type, kRows, kHalfOfIt));
    SPARSE(cusparseLtDenseDescriptorInit(&handle_, &b_, n, batch, n, 16, in_type, kColumns));
    SPARSE(cusparseLtDenseDescriptorInit(&handle_, &d_, n, batch, n, 16, out_type, kColumns));
    SPARSE(cusparseLtMatmulDescriptorInit(&handle_, &product_, kPlain, kPlain, &a_, &b_, &d_, &d_, compute));
    if (bias != nullptr) {
      const int relu = 1;
      SPARSE(cusparseLtMatmulDescSetAttribute(&handle_, &product_, kRelu, &relu, sizeof relu));
      SPARSE(cusparseLtMatmulDescSetAttribute(&handle_, &product_, kBias, &bias, sizeof bias));
    }
    SPARSE(cusparseLtMatmulAlgSelectionInit(&handle_, &selection_, &product_, 0));
    SPARSE(cusparseLtMatmulPlanInit(&handle_, &plan_, &product_, &selection_));
    size_t bytes = 0, buffer_bytes = 0;
    SPARSE(cusparseLtSpMMACompressedSize(&handle_, &plan_, &bytes, &buffer_bytes));
    compressed_.reset(new DeviceBuffer<char>(bytes));
    buffer_.reset(new DeviceBuffer<char>(buffer_bytes + 1));
  }
  ~Layer() {
    SPARSE(cusparseLtMatmulPlanDestroy(&plan_));
    for (const Object* matrix : {&a_, &b_, &d_}) SPARSE(cusparseLtMatDescriptorDestroy(matrix));
  }
  Layer(const Layer&) = delete;

  // Prunes and compresses the weights; writes the remaining ones to `left`.
  void prune(const std::vector<In>& weights, std::vector<In>* left, Program* program, cudaStream_t stream) {
    DeviceBuffer<int> valid(1);
    dense_.upload(weights.data(), program);
    CHECK(cudaDeviceSynchronize());
    SPARSE(cusparseLtSpMMAPrune(&handle_, &product_, dense_.get(), pruned_.get(), kStrips, stream));
    SPARSE(cusparseLtSpMMAPruneCheck(&handle_, &product_, pruned_.get(), valid.get(), stream));
    SPARSE(cusparseLtSpMMACompress(&handle_, &plan_, pruned_.get(), compressed_->get(), buffer_->get(), stream));
    CHECK(cudaStreamSynchronize(stream));
    int is_wrong = -1;
    valid.download(&is_wrong, program);
    pruned_.download(left->data(), program);
    if (is_wrong != 0) {
      fprintf(stderr, "wrong: what was pruned has too much left\n");
      exit(kWrongResult);
    }
  }

  void run(const In* in, Out* out, bool searches, cudaStream_t stream) {
    const float one = 1, zero = 0;
    size_t bytes = 0;
    SPARSE(cusparseLtMatmulGetWorkspace(&handle_, &plan_, &bytes));
    workspace_.reset(new DeviceBuffer<char>(bytes + 1));
    if (searches) {
      SPARSE(cusparseLtMatmulSearch(&handle_, &plan_, &one, compressed_->get(), in, &zero, out, out, workspace_->get(),
                                    &stream, 1));
      CHECK(cudaStreamSynchronize(stream));
      SPARSE(cusparseLtMatmulGetWorkspace(&handle_, &plan_, &bytes));
      workspace_.reset(new DeviceBuffer<char>(bytes + 1));
    }
    SPARSE(cusparseLtMatmul(&handle_, &plan_, &one, compressed_->get(), in, &zero, out, out, workspace_->get(), &stream,
                            1));
  }

 private:
  const Object& handle_;
  DeviceBuffer<In> dense_, pruned_;
  // The library's product refers to its matrices where they are.
  Object a_, b_, d_, product_, selection_, plan_;
  std::unique_ptr<DeviceBuffer<char>> compressed_, buffer_, workspace_;
};

// Of each four numbers the magnitudes are 1 to 4; `kept` contains the positions of 3 and 4.
void make_weights(uint64_t seed, std::vector<int>* weights, std::vector<int>* kept) {
  for (size_t i = 0; i < weights->size(); i += 4) {
    const uint64_t bits = random_bits(seed, i);
    for (size_t at = 0; at < 4; ++at) {
      const int size = 1 + static_cast<int>((at ^ bits) % 4);
      (*weights)[i + at] = bits >> (8 + at) & 1 ? size : -size;
      (*kept)[i + at] = size > 2 ? (*weights)[i + at] : 0;
    }
  }
}

template <typename T>
void compare(const char* what, const std::vector<T>& found, const std::vector<T>& right, Mismatches* wrong) {
  for (size_t i = 0; i < found.size(); ++i)
    if (found[i] != right[i]) wrong->report("%s %zu: %lld in place of %lld", what, i, (long long)found[i], (long long)right[i]);
}

bool run(Program* program) {
  // Sizes that are valid for both types: halves need multiples of 16, bytes of 32, and a batch of bytes of 16.
  const int n = static_cast<int>((program->size() + 31) / 32 * 32), batch = n / 2;
  const size_t count = static_cast<size_t>(n) * n, columns = static_cast<size_t>(n) * batch;
  std::vector<int> weights(count), kept(count), bias(n), in(columns);
  make_weights(program->seed(), &weights, &kept);
  for (int i = 0; i < n; ++i) bias[i] = static_cast<int>(random_bits(program->seed() + 1, i) % 9) - 4;
  for (size_t i = 0; i < columns; ++i) in[i] = static_cast<int>(random_bits(program->seed() + 2, i) % 3) - 1;
  std::vector<uint16_t> left(count), halves(columns);
  std::vector<int8_t> left_bytes(count);
  std::vector<int> integers(columns);

  program->total.start();
  {
    Object handle;
    cudaStream_t stream;
    SPARSE(cusparseLtInit(&handle));
    CHECK(cudaStreamCreate(&stream));
    {
      DeviceBuffer<uint16_t> device_bias(n), device_in(columns), device_out(columns);
      DeviceBuffer<int8_t> device_in_bytes(columns);
      DeviceBuffer<int> device_integers(columns);
      Layer<uint16_t, uint16_t> first(handle, kHalf, kHalf, kComputeFloat, n, batch, device_bias.get());
      Layer<int8_t, int> second(handle, kInteger8, kInteger, kComputeInteger, n, batch, nullptr);
      KernelTimer timer(program);
      for (uint64_t i = 0; i < program->iterations(); ++i) {
        device_bias.upload(stored<uint16_t>(bias).data(), program);
        device_in.upload(stored<uint16_t>(in).data(), program);
        device_in_bytes.upload(stored<int8_t>(in).data(), program);
        first.prune(stored<uint16_t>(weights), &left, program, stream);
        second.prune(stored<int8_t>(weights), &left_bytes, program, stream);
        timer.start();
        first.run(device_in.get(), device_out.get(), false, stream);
        second.run(device_in_bytes.get(), device_integers.get(), true, stream);
        CHECK(cudaStreamSynchronize(stream));
        timer.stop();
        device_out.download(halves.data(), program);
        device_integers.download(integers.data(), program);
      }
    }
    CHECK(cudaStreamDestroy(stream));
    SPARSE(cusparseLtDestroy(&handle));
  }
  program->total.stop();
  // NVIDIA's library makes -0 of a number below 0 by its ReLU (on an H200), and other implementations may make 0.
  for (uint16_t& half : halves)
    if (half == 0x8000) half = 0;
  program->emit(halves.data(), columns * sizeof(uint16_t));
  program->emit(integers.data(), columns * sizeof(int));

  Mismatches wrong;
  compare("weight", left, stored<uint16_t>(kept), &wrong);
  compare("weight", left_bytes, stored<int8_t>(kept), &wrong);
  // Every column of a small batch, and a sample of a large one's.
  const int step = batch <= 96 ? 1 : batch / 31;
  for (int j = 0; j < batch; j += step) {
    for (int i = 0; i < n; ++i) {
      int sum = 0;
      for (int k = 0; k < n; ++k) sum += kept[static_cast<size_t>(i) * n + k] * in[static_cast<size_t>(j) * n + k];
      const size_t at = static_cast<size_t>(j) * n + i;
      const uint16_t half = half_bits(std::max(sum + bias[i], 0));
      if (halves[at] != half || integers[at] != sum)
        wrong.report("output %d of column %d: %#x and %d in place of %#x and %d", i, j, halves[at], integers[at], half, sum);
    }
  }
  return wrong.none();
}

}  // namespace

int main(int argc, char** argv) {
  Program program("pruned-layer", "computes two pruned linear layers with cuSPARSELt", "inputs and outputs of a layer", 96,
                  2048);
  program.size_limit(4096);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
