// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Diffusion on a grid, whose steps are launches of one graph: two halves of the grid are computed in two streams that
// fork and join, and the graph was captured from them. The source's strength changes from launch to launch, by a new
// parameter of one node, and the graph itself copies the total to the host. All values are integers, so every order
// gives the same result.
#include "runtime.h"

namespace {

constexpr int kLaunches = 24;
constexpr int kBlock = 128;

// A cell keeps half of its value and gives an eighth to each neighbour; the border loses the rest.
__global__ void diffuse(const unsigned* from, unsigned* to, int size, int first, int rows) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * size) return;
  const int y = first + i / size, x = i % size;
  auto at = [&](int row, int column) {
    return row < 0 || column < 0 || row >= size || column >= size ? 0u : from[row * size + column];
  };
  to[y * size + x] = at(y, x) / 2 + at(y - 1, x) / 8 + at(y + 1, x) / 8 + at(y, x - 1) / 8 + at(y, x + 1) / 8;
}

__global__ void feed(unsigned* cells, int size, unsigned strength) { cells[size / 2 * size + size / 2] += strength; }

__global__ void add(const unsigned* cells, int count, unsigned long long* total) {
  unsigned long long sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) sum += cells[i];
  atomicAdd(total, sum);
}

// One step, on the CPU.
std::vector<unsigned> step(std::vector<unsigned> cells, int size, unsigned strength) {
  cells[size / 2 * size + size / 2] += strength;
  std::vector<unsigned> next(cells.size());
  auto at = [&](int y, int x) { return y < 0 || x < 0 || y >= size || x >= size ? 0u : cells[y * size + x]; };
  for (int y = 0; y < size; ++y)
    for (int x = 0; x < size; ++x)
      next[y * size + x] = at(y, x) / 2 + at(y - 1, x) / 8 + at(y + 1, x) / 8 + at(y, x - 1) / 8 + at(y, x + 1) / 8;
  return next;
}

bool run(Program* program) {
  const int size = static_cast<int>(program->size()), upper = size / 2;
  const size_t count = static_cast<size_t>(size) * size;
  std::vector<unsigned> cells(count), out(count);
  for (size_t i = 0; i < count; ++i) cells[i] = static_cast<unsigned>(random_bits(program->seed(), i) % 4096);
  auto strength = [&](int launch) { return static_cast<unsigned>(random_bits(program->seed() + 1, launch) % 100000); };
  std::vector<unsigned long long> totals(kLaunches);

  program->total.start();
  {
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    DeviceBuffer<unsigned> one(count), other(count);
    DeviceBuffer<unsigned long long> sum(1);
    HostBuffer<unsigned long long> total(1, true);

    cudaGraph_t graph;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    feed<<<1, 1, 0, stream>>>(one.get(), size, strength(0));
    CHECK(cudaMemsetAsync(sum.get(), 0, sum.bytes(), stream));
    CHECK(cudaEventRecord(fork, stream));
    CHECK(cudaStreamWaitEvent(side, fork, 0));
    const int low = (upper * size + kBlock - 1) / kBlock, high = ((size - upper) * size + kBlock - 1) / kBlock;
    diffuse<<<low, kBlock, 0, stream>>>(one.get(), other.get(), size, 0, upper);
    diffuse<<<high, kBlock, 0, side>>>(one.get(), other.get(), size, upper, size - upper);
    CHECK(cudaEventRecord(join, side));
    CHECK(cudaStreamWaitEvent(stream, join, 0));
    add<<<8, kBlock, 0, stream>>>(other.get(), static_cast<int>(count), sum.get());
    CHECK(cudaMemcpyAsync(total.get(), sum.get(), sum.bytes(), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaMemcpyAsync(one.get(), other.get(), other.bytes(), cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaStreamEndCapture(stream, &graph));

    cudaGraphExec_t exec;
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    cudaGraphNode_t root;
    size_t roots = 1;
    CHECK(cudaGraphGetRootNodes(graph, &root, &roots));
    cudaKernelNodeParams params{};
    CHECK(cudaGraphKernelNodeGetParams(root, &params));
    KernelTimer timer(program);
    for (uint64_t i = 0; i < program->iterations(); ++i) {
      one.upload(cells.data(), program);
      timer.start();
      for (int launch = 0; launch < kLaunches; ++launch) {
        unsigned now = strength(launch);
        void* arguments[] = {params.kernelParams[0], params.kernelParams[1], &now};
        cudaKernelNodeParams changed = params;
        changed.kernelParams = arguments;
        CHECK(cudaGraphExecKernelNodeSetParams(exec, root, &changed));
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaStreamSynchronize(stream));
        totals[launch] = total[0];
      }
      timer.stop();
      one.download(out.data(), program);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventDestroy(join));
    CHECK(cudaEventDestroy(fork));
    CHECK(cudaStreamDestroy(side));
    CHECK(cudaStreamDestroy(stream));
  }
  program->total.stop();
  program->emit(out.data(), count * sizeof(unsigned));
  program->emit(totals.data(), totals.size() * sizeof totals[0]);

  for (int launch = 0; launch < kLaunches; ++launch) {
    cells = step(std::move(cells), size, strength(launch));
    unsigned long long right = 0;
    for (unsigned cell : cells) right += cell;
    if (totals[launch] != right) {
      fprintf(stderr, "wrong: the total of launch %d is %llu, not %llu\n", launch, totals[launch], right);
      return false;
    }
  }
  for (size_t i = 0; i < count; ++i) {
    if (out[i] == cells[i]) continue;
    fprintf(stderr, "wrong: cell %zu is %u, not %u\n", i, out[i], cells[i]);
    return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("diffusion-graph", "computes steps of a diffusion by launches of a captured graph",
                  "rows and columns of the grid", 64, 2048);
  program.size_limit(4096);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
