// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Two linear layers as in a framework with cuBLASLt: a product, a bias and a ReLU in one call, with an algorithm that
// the library's heuristic returns, and then with a handle of cuBLAS in place of its own. All values are small integers,
// so every sum is exact in any order.
#include "cublaslt.h"

namespace {

constexpr size_t kWorkspace = 4 << 20;

// A whole number from -4 to 4.
int small_number(uint64_t seed, uint64_t index) { return static_cast<int>(random_bits(seed, index) % 9) - 4; }

// out = epilogue(weights' x + bias): the weights' columns are the outputs, as in PyTorch.
class Layer {
 public:
  Layer(int inputs, int outputs, int batch, int epilogue, const float* weights, const float* bias)
      : weights_(weights) {
    const int transposed = kTransposed;
    BLAS(cublasLtMatmulDescCreate(&operation_, kComputeFloat, kFloat));
    BLAS(cublasLtMatmulDescSetAttribute(operation_, kTransposeA, &transposed, sizeof transposed));
    BLAS(cublasLtMatmulDescSetAttribute(operation_, kEpilogue, &epilogue, sizeof epilogue));
    BLAS(cublasLtMatmulDescSetAttribute(operation_, kBiasPointer, &bias, sizeof bias));
    BLAS(cublasLtMatrixLayoutCreate(&weights_layout_, kFloat, inputs, outputs, inputs));
    BLAS(cublasLtMatrixLayoutCreate(&in_layout_, kFloat, inputs, batch, inputs));
    BLAS(cublasLtMatrixLayoutCreate(&out_layout_, kFloat, outputs, batch, outputs));
  }
  ~Layer() {
    BLAS(cublasLtMatrixLayoutDestroy(out_layout_));
    BLAS(cublasLtMatrixLayoutDestroy(in_layout_));
    BLAS(cublasLtMatrixLayoutDestroy(weights_layout_));
    BLAS(cublasLtMatmulDescDestroy(operation_));
  }
  Layer(const Layer&) = delete;

  // The algorithm that the library would take.
  cublasLtMatmulAlgo_t algorithm(cublasLtHandle_t handle) const {
    cublasLtDescriptor_t preference;
    const uint64_t workspace = kWorkspace;
    BLAS(cublasLtMatmulPreferenceCreate(&preference));
    BLAS(cublasLtMatmulPreferenceSetAttribute(preference, kMaxWorkspaceBytes, &workspace, sizeof workspace));
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    BLAS(cublasLtMatmulAlgoGetHeuristic(handle, operation_, weights_layout_, in_layout_, out_layout_, out_layout_,
                                        preference, 1, &found, &count));
    BLAS(cublasLtMatmulPreferenceDestroy(preference));
    if (count != 1 || found.state != 0 || found.workspaceSize > kWorkspace) {
      fprintf(stderr, "wrong: the heuristic has no algorithm\n");
      exit(kWrongResult);
    }
    return found.algo;
  }

  void run(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t* algorithm, const float* in, float* out,
           void* workspace, cudaStream_t stream) const {
    const float one = 1, zero = 0;
    BLAS(cublasLtMatmul(handle, operation_, &one, weights_, weights_layout_, in, in_layout_, &zero, out, out_layout_,
                        out, out_layout_, algorithm, workspace, kWorkspace, stream));
  }

 private:
  const float* weights_;
  cublasLtDescriptor_t operation_, weights_layout_, in_layout_, out_layout_;
};

// A layer's result for a column, on the CPU.
std::vector<float> expected(const std::vector<float>& weights, const std::vector<float>& bias,
                            const std::vector<float>& in, bool has_relu) {
  std::vector<float> out(bias);
  for (size_t j = 0; j < out.size(); ++j) {
    for (size_t i = 0; i < in.size(); ++i) out[j] += weights[j * in.size() + i] * in[i];
    if (has_relu && out[j] < 0) out[j] = 0;
  }
  return out;
}

bool run(Program* program) {
  const int n = static_cast<int>(program->size()), batch = n / 2;
  const size_t count = static_cast<size_t>(n) * n, columns = static_cast<size_t>(n) * batch;
  std::vector<float> weights[2], bias[2], in(columns), out(columns), again(columns);
  for (int layer = 0; layer < 2; ++layer) {
    weights[layer].resize(count);
    bias[layer].resize(n);
    // Most of the second layer's weights are zero: sums stay small enough to be exact.
    for (size_t i = 0; i < count; ++i) {
      const bool is_there = layer == 0 || random_bits(program->seed(), 7 * i) % 16 == 0;
      weights[layer][i] = is_there ? static_cast<float>(small_number(program->seed(), 7 * i + 1 + layer)) : 0;
    }
    for (int i = 0; i < n; ++i) bias[layer][i] = static_cast<float>(small_number(program->seed(), 7 * i + 3 + layer));
  }
  for (size_t i = 0; i < columns; ++i) in[i] = static_cast<float>(small_number(program->seed(), 7 * i + 5));

  program->total.start();
  {
    cublasLtHandle_t handle;
    cublasHandle_t other;
    cudaStream_t stream;
    BLAS(cublasLtCreate(&handle));
    BLAS(cublasCreate_v2(&other));
    CHECK(cudaStreamCreate(&stream));
    DeviceBuffer<float> device_weights[2]{DeviceBuffer<float>(count), DeviceBuffer<float>(count)};
    DeviceBuffer<float> device_bias[2]{DeviceBuffer<float>(n), DeviceBuffer<float>(n)};
    DeviceBuffer<float> device_in(columns), device_hidden(columns), device_out(columns), device_again(columns);
    DeviceBuffer<char> workspace(kWorkspace);
    const Layer first(n, n, batch, kReluBias, device_weights[0].get(), device_bias[0].get());
    const Layer second(n, n, batch, kBias, device_weights[1].get(), device_bias[1].get());
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      for (int layer = 0; layer < 2; ++layer) {
        device_weights[layer].upload(weights[layer].data(), program);
        device_bias[layer].upload(bias[layer].data(), program);
      }
      device_in.upload(in.data(), program);
      const cublasLtMatmulAlgo_t algorithms[] = {first.algorithm(handle), second.algorithm(handle)};
      timer.start();
      first.run(handle, &algorithms[0], device_in.get(), device_hidden.get(), workspace.get(), stream);
      second.run(handle, &algorithms[1], device_hidden.get(), device_out.get(), workspace.get(), stream);
      // A handle of cuBLAS is one of cuBLASLt too; without an algorithm the library looks for one.
      const auto same = reinterpret_cast<cublasLtHandle_t>(other);
      first.run(same, nullptr, device_in.get(), device_hidden.get(), workspace.get(), stream);
      second.run(same, nullptr, device_hidden.get(), device_again.get(), workspace.get(), stream);
      CHECK(cudaStreamSynchronize(stream));
      timer.stop();
      device_out.download(out.data(), program);
      device_again.download(again.data(), program);
    }
    CHECK(cudaStreamDestroy(stream));
    BLAS(cublasDestroy_v2(other));
    BLAS(cublasLtDestroy(handle));
  }
  program->total.stop();
  program->emit(out.data(), columns * sizeof(float));

  Mismatches wrong;
  // Every column of a small batch, and a sample of a large one's.
  const int step = batch <= 96 ? 1 : batch / 31;
  for (int j = 0; j < batch; j += step) {
    const auto begin = in.begin() + static_cast<ptrdiff_t>(j) * n;
    const auto hidden = expected(weights[0], bias[0], std::vector<float>(begin, begin + n), true);
    const auto right = expected(weights[1], bias[1], hidden, false);
    for (int i = 0; i < n; ++i) {
      const size_t at = static_cast<size_t>(j) * n + i;
      if (out[at] != right[i] || again[at] != right[i])
        wrong.report("output %d of column %d: %g and %g in place of %g", i, j, out[at], again[at], right[i]);
    }
  }
  return wrong.none();
}

}  // namespace

int main(int argc, char** argv) {
  Program program("linear-layer", "computes two linear layers with cuBLASLt", "inputs and outputs of a layer", 96, 2048);
  program.size_limit(8192);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
