// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A breadth-first search in managed memory. The graph is a structure with pointers that the CPU builds and the GPU
// follows: vertices point at their lists of neighbours, and these at vertices. After each level the CPU reads how many
// vertices were found, and between searches it takes edges away. Nothing is copied by the program.
#include "runtime.h"

namespace {

constexpr int kSearches = 4;
constexpr int kDegree = 6;
constexpr unsigned kUnseen = ~0u;

struct Vertex {
  Vertex** neighbours;
  unsigned degree;
  unsigned level;
};

struct Level {
  unsigned number;
  unsigned found;
};

__global__ void visit(Vertex* vertices, unsigned count, Level* level) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    if (vertices[i].level != level->number) continue;
    for (unsigned edge = 0; edge < vertices[i].degree; ++edge)
      if (atomicCAS(&vertices[i].neighbours[edge]->level, kUnseen, level->number + 1) == kUnseen) atomicAdd(&level->found, 1);
  }
}

template <typename T>
T* managed(size_t count) {
  T* memory = nullptr;
  CHECK(cudaMallocManaged(&memory, count * sizeof(T)));
  return memory;
}

// The same on the CPU, by numbers.
std::vector<unsigned> levels(const std::vector<std::vector<unsigned>>& edges, unsigned from) {
  std::vector<unsigned> level(edges.size(), kUnseen), queue = {from};
  level[from] = 0;
  for (size_t next = 0; next < queue.size(); ++next)
    for (unsigned to : edges[queue[next]])
      if (level[to] == kUnseen) {
        level[to] = level[queue[next]] + 1;
        queue.push_back(to);
      }
  return level;
}

bool run(Program* program) {
  const unsigned count = static_cast<unsigned>(program->size());
  std::vector<unsigned> out;
  bool right = true;

  program->total.start();
  for (uint64_t iteration = 0; iteration < program->iterations(); ++iteration) {
    out.clear();
    std::vector<std::vector<unsigned>> edges(count);
    for (unsigned i = 0; i < count; ++i)
      for (unsigned edge = 0; edge < kDegree; ++edge) {
        // Most edges are short, so that a search takes many levels.
        const uint64_t bits = random_bits(program->seed(), uint64_t{i} * kDegree + edge);
        edges[i].push_back(bits % 64 == 0 ? (bits >> 8) % count : (i + 1 + (bits >> 8) % 64) % count);
      }
    Vertex* vertices = managed<Vertex>(count);
    Vertex** neighbours = managed<Vertex*>(size_t{count} * kDegree);
    Level* level = managed<Level>(1);
    for (unsigned i = 0; i < count; ++i) {
      vertices[i] = {neighbours + size_t{i} * kDegree, kDegree, kUnseen};
      for (unsigned edge = 0; edge < kDegree; ++edge) vertices[i].neighbours[edge] = vertices + edges[i][edge];
    }
    for (int search = 0; search < kSearches; ++search) {
      const unsigned from = random_bits(program->seed() + 1, search) % count;
      for (unsigned i = 0; i < count; ++i) vertices[i].level = kUnseen;
      vertices[from].level = 0;
      *level = {0, 1};
      KernelTimer timer(program);
      while (level->found != 0) {
        level->found = 0;
        timer.start();
        visit<<<64, 128>>>(vertices, count, level);
        timer.stop();
        CHECK(cudaDeviceSynchronize());
        ++level->number;
      }
      const std::vector<unsigned> expected = levels(edges, from);
      for (unsigned i = 0; i < count; ++i) {
        right &= vertices[i].level == expected[i];
        out.push_back(vertices[i].level);
      }
      // Every third vertex loses its last edge.
      for (unsigned i = search; i < count; i += 3)
        if (vertices[i].degree > 1) {
          --vertices[i].degree;
          edges[i].pop_back();
        }
    }
    CHECK(cudaFree(vertices));
    CHECK(cudaFree(neighbours));
    CHECK(cudaFree(level));
  }
  program->total.stop();
  program->emit(out.data(), out.size() * sizeof out[0]);
  return right;
}

}  // namespace

int main(int argc, char** argv) {
  Program program("graph-traversal", "searches a graph in managed memory, breadth first", "vertices", 4096, 1 << 20);
  program.size_limit(1 << 24);
  program.parse(argc, argv);
  return program.finish(run(&program));
}
