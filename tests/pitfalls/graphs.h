// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The common part of the tests of graphs.
#pragma once
#include "driver.h"

inline CUgraph new_graph() {
    CUgraph graph = nullptr;
    CK(cuGraphCreate(&graph, 0));
    return graph;
}

inline CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    CK(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

inline void launch(CUgraphExec exec, CUstream stream) {
    CK(cuGraphLaunch(exec, stream));
    CK(cuStreamSynchronize(stream));
}

inline unsigned word_at(CUdeviceptr at) {
    unsigned word = ~0u;
    CK(cuMemcpyDtoH(&word, at, 4));
    return word;
}

inline CUDA_MEMCPY3D line(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = from;
    copy.dstDevice = to;
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
}

inline CUDA_MEMSET_NODE_PARAMS words_of(CUdeviceptr at, unsigned value, size_t count) {
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = at;
    fill.value = value;
    fill.elementSize = 4;
    fill.width = count;
    fill.height = 1;
    return fill;
}

// A launch of `step`: word = word * factor + term.
struct Step {
    CUdeviceptr word;
    unsigned factor, term;
    void *params[3];
    CUDA_KERNEL_NODE_PARAMS node{};

    Step(CUfunction f, CUdeviceptr word, unsigned factor, unsigned term) : word(word), factor(factor), term(term) {
        params[0] = &this->word, params[1] = &this->factor, params[2] = &this->term;
        node.func = f;
        node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1;
        node.kernelParams = params;
    }
    Step(const Step &) = delete;
};

inline CUgraphNode add_step(CUgraph graph, std::vector<CUgraphNode> after, CUfunction f, CUdeviceptr word, unsigned factor,
                            unsigned term) {
    Step step(f, word, factor, term);
    CUgraphNode node = nullptr;
    CK(cuGraphAddKernelNode(&node, graph, after.data(), after.size(), &step.node));
    return node;
}
