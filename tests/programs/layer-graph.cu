// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Two layers of a network captured into a graph, as in a framework: a product of cuBLAS with the program's own
// workspace, a bias and a ReLU by a kernel, a product with a bias by cuBLASLt. The graph is launched for one input
// after the other, each of which is copied to the same place. All values are small integers, so every sum is exact in
// any order.
#include "cublaslt.h"

namespace {

constexpr int kInputs = 6;
constexpr size_t kWorkspace = 4 << 20;

__global__ void bias_relu(float* values, const float* bias, int rows, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] = fmaxf(values[i] + bias[i % rows], 0);
}

// A whole number from -2 to 2.
float small_number(uint64_t seed, uint64_t index) { return static_cast<float>(random_bits(seed, index) % 5) - 2; }

// The result of two layers for a column, on the CPU.
std::vector<float> expected(const std::vector<float>* weights, const std::vector<float>* bias, std::vector<float> in) {
  const size_t n = in.size();
  for (int layer = 0; layer < 2; ++layer) {
    std::vector<float> out(bias[layer]);
    for (size_t j = 0; j < n; ++j) {
      for (size_t i = 0; i < n; ++i) out[j] += weights[layer][j * n + i] * in[i];
      if (layer == 0 && out[j] < 0) out[j] = 0;
    }
    in = out;
  }
  return in;
}

bool run(Program* program) {
  const int n = static_cast<int>(program->size()), batch = 8;
  const size_t count = static_cast<size_t>(n) * n, columns = static_cast<size_t>(n) * batch;
  std::vector<float> weights[2], bias[2];
  for (int layer = 0; layer < 2; ++layer) {
    for (size_t i = 0; i < count; ++i) {
      const bool is_there = random_bits(program->seed(), 3 * i + layer) % 8 == 0;
      weights[layer].push_back(is_there ? small_number(program->seed(), 5 * i + layer) : 0);
    }
    for (int i = 0; i < n; ++i) bias[layer].push_back(small_number(program->seed(), 11 * i + layer));
  }
  auto input = [&](int which, size_t i) { return small_number(program->seed() + 1, columns * which + i); };
  std::vector<std::vector<float>> out(kInputs, std::vector<float>(columns));

  program->total.start();
  {
    cublasHandle_t handle;
    cublasLtHandle_t lt;
    cudaStream_t stream;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    BLAS(cublasCreate_v2(&handle));
    BLAS(cublasLtCreate(&lt));
    DeviceBuffer<char> workspace(kWorkspace), lt_workspace(kWorkspace);
    DeviceBuffer<float> device_weights[2]{DeviceBuffer<float>(count), DeviceBuffer<float>(count)};
    DeviceBuffer<float> device_bias[2]{DeviceBuffer<float>(n), DeviceBuffer<float>(n)};
    DeviceBuffer<float> in(columns), hidden(columns), device_out(columns);
    HostBuffer<float> staged(columns, true);
    for (int layer = 0; layer < 2; ++layer) {
      device_weights[layer].upload(weights[layer].data(), program);
      device_bias[layer].upload(bias[layer].data(), program);
    }
    BLAS(cublasSetStream_v2(handle, stream));
    BLAS(cublasSetWorkspace_v2(handle, workspace.get(), kWorkspace));
    cublasLtDescriptor_t operation, square, narrow;
    const int transposed = kTransposed, epilogue = kBias;
    const float* second_bias = device_bias[1].get();
    BLAS(cublasLtMatmulDescCreate(&operation, kComputeFloat, kFloat));
    BLAS(cublasLtMatmulDescSetAttribute(operation, kTransposeA, &transposed, sizeof transposed));
    BLAS(cublasLtMatmulDescSetAttribute(operation, kEpilogue, &epilogue, sizeof epilogue));
    BLAS(cublasLtMatmulDescSetAttribute(operation, kBiasPointer, &second_bias, sizeof second_bias));
    BLAS(cublasLtMatrixLayoutCreate(&square, kFloat, n, n, n));
    BLAS(cublasLtMatrixLayoutCreate(&narrow, kFloat, n, batch, n));
    const float one = 1, zero = 0;
    auto layers = [&] {
      BLAS(cublasSgemm_v2(handle, kTransposed, kPlain, n, batch, n, &one, device_weights[0].get(), n, in.get(), n, &zero,
                          hidden.get(), n));
      bias_relu<<<static_cast<unsigned>(columns / 64 + 1), 64, 0, stream>>>(hidden.get(), device_bias[0].get(), n,
                                                                            static_cast<int>(columns));
      BLAS(cublasLtMatmul(lt, operation, &one, device_weights[1].get(), square, hidden.get(), narrow, &zero,
                          device_out.get(), narrow, device_out.get(), narrow, nullptr, lt_workspace.get(), kWorkspace,
                          stream));
    };
    // Once without a graph, as frameworks do: what libraries make at their first call is made.
    layers();
    CHECK(cudaStreamSynchronize(stream));
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    layers();
    CHECK(cudaMemcpyAsync(staged.get(), device_out.get(), device_out.bytes(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      for (int which = 0; which < kInputs; ++which) {
        std::vector<float> values(columns);
        for (size_t j = 0; j < columns; ++j) values[j] = input(which, j);
        in.upload(values.data(), program);
        timer.start();
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        timer.stop();
        memcpy(out[which].data(), staged.get(), staged.bytes());
      }
    }
    CHECK(cudaGraphExecDestroy(exec));
    BLAS(cublasLtMatrixLayoutDestroy(narrow));
    BLAS(cublasLtMatrixLayoutDestroy(square));
    BLAS(cublasLtMatmulDescDestroy(operation));
    BLAS(cublasLtDestroy(lt));
    BLAS(cublasDestroy_v2(handle));
    CHECK(cudaStreamDestroy(stream));
  }
  program->total.stop();

  bool is_right = true;
  for (int which = 0; which < kInputs; ++which) {
    program->emit(out[which].data(), columns * sizeof(float));
    for (int column = 0; column < batch; ++column) {
      std::vector<float> in(n);
      for (int i = 0; i < n; ++i) in[i] = input(which, static_cast<size_t>(column) * n + i);
      const auto right = expected(weights, bias, in);
      for (int i = 0; i < n && is_right; ++i) {
        const float got = out[which][static_cast<size_t>(column) * n + i];
        if (got == right[i]) continue;
        fprintf(stderr, "wrong: output %d of column %d of input %d is %g, not %g\n", i, column, which, got, right[i]);
        is_right = false;
      }
    }
  }
  return is_right;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("layer-graph", "computes two layers by launches of a graph with calls of cuBLAS and cuBLASLt",
                  "inputs and outputs of a layer", 64, 1024);
  program.size_limit(4096);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
