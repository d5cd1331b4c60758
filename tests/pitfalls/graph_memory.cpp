// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Memory that graphs allocate and free (pitfall 68).
#include "graphs.h"

PITFALL(68, memory_of_graphs) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    auto reserved = [&] {
        cuuint64_t bytes = ~0ull;
        CK(cuDeviceGetGraphMemAttribute(gpu.device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
        return bytes;
    };
    const unsigned count = 1 << 20;
    CUdeviceptr out = device_words(4);
    CUgraph graph;
    for (bool captured : {true, false}) {
        CUdeviceptr made = 0;
        if (captured) {
            CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
            CK(cuMemAllocAsync(&made, count * 4, stream));
            LAUNCH(fill, 4, 64, stream, made, 3u, count);
            CK(cuMemcpyDtoDAsync(out, made + count * 4 - 4, 4, stream));
            CK(cuMemFreeAsync(made, stream));
            CK(cuStreamEndCapture(stream, &graph));
        } else {
            graph = new_graph();
            CUDA_MEM_ALLOC_NODE_PARAMS alloc{};
            alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
            alloc.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}};
            alloc.bytesize = count * 4;
            CUgraphNode nodes[4];
            CK(cuGraphAddMemAllocNode(&nodes[0], graph, nullptr, 0, &alloc));
            made = alloc.dptr;
            CUDA_MEMSET_NODE_PARAMS words = words_of(made, 4, count);
            CK(cuGraphAddMemsetNode(&nodes[1], graph, &nodes[0], 1, &words, gpu.context));
            CUDA_MEMCPY3D copy = line(out, made + count * 4 - 4, 4);
            CK(cuGraphAddMemcpyNode(&nodes[2], graph, &nodes[1], 1, &copy, gpu.context));
            CK(cuGraphAddMemFreeNode(&nodes[3], graph, &nodes[2], 1, made));
            CUdeviceptr freed = 0;
            CK(cuGraphMemFreeNodeGetParams(nodes[3], &freed));
            EXPECT(freed == made, "0x%llx", freed);
            CUgraph clone;
            CK_IS(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
            CK_IS(cuGraphDestroyNode(nodes[3]), CUDA_ERROR_NOT_SUPPORTED);
        }
        EXPECT(made != 0, "no address");
        CUgraphExec exec = instantiate(graph);
        for (int i = 0; i < 3; i++)
            launch(exec, stream);
        EXPECT(word_at(out) == (captured ? 3 : 4), "%u", word_at(out));
        EXPECT(reserved() >= count * 4, "%llu bytes", (unsigned long long)reserved());
        CK(cuGraphExecDestroy(exec));
        CK(cuGraphDestroy(graph));
        CK(cuDeviceGraphMemTrim(gpu.device));
        EXPECT(reserved() == 0, "%llu bytes are left", (unsigned long long)reserved());
    }
    // Memory that a launch leaves: it is freed as any other, or by the next launch where the graph was made for that.
    CUdeviceptr left = 0;
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(cuMemAllocAsync(&left, 4096, stream));
    LAUNCH(fill, 1, 64, stream, left, 8u, 1024u);
    CK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiate(graph);
    launch(exec, stream);
    EXPECT(word_at(left) == 8, "%u", word_at(left));
    CK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemFreeAsync(left, stream));
    launch(exec, stream);
    CK(cuMemFree(left));
    CK(cuGraphExecDestroy(exec));
    exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 3; i++)
        launch(exec, stream);
    CK(cuMemFree(left));
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

static CUgraphNode add_allocation(CUgraph graph, std::vector<CUgraphNode> after, int device, size_t bytes, CUdeviceptr *address) {
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    params.poolProps.location.id = device;
    params.bytesize = bytes;
    CUgraphNode node = nullptr;
    CK(cuGraphAddMemAllocNode(&node, graph, after.data(), after.size(), &params));
    *address = params.dptr;
    return node;
}

static CUgraphNode add_free(CUgraph graph, std::vector<CUgraphNode> after, CUdeviceptr address) {
    CUgraphNode node = nullptr;
    CK(cuGraphAddMemFreeNode(&node, graph, after.data(), after.size(), address));
    return node;
}

static CUgraphNode add_fill(Gpu &gpu, CUgraph graph, CUgraphNode after, CUdeviceptr at, unsigned value, size_t count) {
    CUDA_MEMSET_NODE_PARAMS params = words_of(at, value, count);
    CUgraphNode node = nullptr;
    CK(cuGraphAddMemsetNode(&node, graph, &after, 1, &params, gpu.context));
    return node;
}

static CUgraphNode add_copy(Gpu &gpu, CUgraph graph, CUgraphNode after, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    CUDA_MEMCPY3D params = line(to, from, bytes);
    CUgraphNode node = nullptr;
    CK(cuGraphAddMemcpyNode(&node, graph, &after, 1, &params, gpu.context));
    return node;
}

// A node gets the memory again that the nodes before it have freed. So a loop takes the memory of one pass.
PITFALL(68, memory_of_a_graph_is_used_again) {
    Gpu gpu;
    CUstream stream = new_stream();
    const size_t bytes = 4 << 20, count = bytes / 4;
    CUdeviceptr first = 0, second = 0, less = 0, beside = 0, out = device_words(4);
    CUgraph graph = new_graph();
    CUgraphNode node = add_allocation(graph, {}, gpu.device, bytes, &first);
    node = add_copy(gpu, graph, add_fill(gpu, graph, node, first, 1, count), out, first + bytes - 4, 4);
    node = add_allocation(graph, {add_free(graph, {node}, first)}, gpu.device, bytes, &second);
    EXPECT(second == first, "0x%llx and 0x%llx", first, second);
    node = add_copy(gpu, graph, add_fill(gpu, graph, node, second, 2, count), out + 4, second, 4);
    node = add_allocation(graph, {add_free(graph, {node}, second)}, gpu.device, bytes / 4, &less);
    EXPECT(less == first, "0x%llx and 0x%llx", first, less);
    node = add_copy(gpu, graph, add_fill(gpu, graph, node, less, 3, count / 4), out + 8, less + bytes / 4 - 4, 4);
    add_free(graph, {node}, less);
    // This one may run at the same time.
    node = add_allocation(graph, {}, gpu.device, bytes, &beside);
    EXPECT(beside != first, "one address for two");
    node = add_copy(gpu, graph, add_fill(gpu, graph, node, beside, 4, count), out + 12, beside, 4);
    add_free(graph, {node}, beside);
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 3; i++) {
        CK(cuMemsetD32(out, 0, 4));
        CK(cuCtxSynchronize());
        launch(exec, stream);
        unsigned got[4] = {};
        CK(cuMemcpyDtoH(got, out, sizeof got));
        EXPECT(got[0] == 1 && got[1] == 2 && got[2] == 3 && got[3] == 4, "%u %u %u %u", got[0], got[1], got[2], got[3]);
    }
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
    // The same of a capture.
    CUdeviceptr captured[50];
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (CUdeviceptr &address : captured) {
        CK(cuMemAllocAsync(&address, bytes, stream));
        CK(cuMemsetD32Async(address, 7, count, stream));
        CK(cuMemFreeAsync(address, stream));
        EXPECT(address == captured[0], "0x%llx and 0x%llx", captured[0], address);
    }
    CK(cuStreamEndCapture(stream, &graph));
    exec = instantiate(graph);
    launch(exec, stream);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

// Nodes rely on the order of others that freed their memory: such a graph cannot be changed, and has one executable
// graph at a time.
PITFALL(68, graphs_with_memory_stay_as_they_were_made) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr address = 0, plain = device_words(1);
    CUgraph graph = new_graph(), other = new_graph(), third = new_graph();
    CUgraphNode before, after, node;
    CK(cuGraphAddEmptyNode(&before, graph, nullptr, 0));
    CK(cuGraphAddEmptyNode(&after, graph, &before, 1));
    // Nothing orders the two.
    add_allocation(graph, {}, gpu.device, 4096, &address);
    add_free(graph, {}, address);
    CK_IS(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, address), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, plain), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphAddMemFreeNode(&node, graph, nullptr, 0, address + 64), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphRemoveDependencies(graph, &before, &after, nullptr, 1), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphDestroyNode(after), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphAddChildGraphNode(&node, other, nullptr, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExec exec = instantiate(graph), again = nullptr;
    CK_IS(cuGraphInstantiateWithFlags(&again, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    launch(exec, stream);
    launch(exec, stream);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphExecDestroy(instantiate(graph)));
    CK(cuGraphDestroy(graph));
    // Other graphs free the memory that a graph leaves, but only after a launch has allocated it.
    graph = new_graph();
    node = add_allocation(graph, {}, gpu.device, 4096, &address);
    add_fill(gpu, graph, node, address, 5, 1024);
    add_free(other, {}, address);
    add_free(third, {}, address);
    exec = instantiate(graph);
    CUgraphExec frees = instantiate(other), too = instantiate(third);
    CK_IS(cuGraphLaunch(frees, stream), CUDA_ERROR_INVALID_VALUE);
    for (CUgraphExec of : {frees, too, frees}) {
        launch(exec, stream);
        CK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
        EXPECT(word_at(address) == 5, "%u", word_at(address));
        launch(of, stream);
        CK_IS(cuGraphLaunch(of == too ? frees : too, stream), CUDA_ERROR_INVALID_VALUE);
    }
    // It outlives its graph.
    launch(exec, stream);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
    EXPECT(word_at(address) == 5, "%u", word_at(address));
    launch(frees, stream);
    CK_IS(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    for (CUgraphExec of : {frees, too})
        CK(cuGraphExecDestroy(of));
    CK(cuGraphDestroy(other));
    CK(cuGraphDestroy(third));
}

PITFALL_MAIN
