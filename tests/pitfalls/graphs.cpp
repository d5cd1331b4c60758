// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Graphs: built by hand, queried, changed, cloned, launched, destroyed (pitfalls 7, 39 to 42, 63).
#include "graphs.h"

static CUDA_MEMCPY3D line_to_host(void *to, CUdeviceptr from, size_t bytes) {
    CUDA_MEMCPY3D copy = line(0, from, bytes);
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = to;
    return copy;
}

PITFALL(39, parameters_are_the_processs_own_and_can_be_changed) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(2, 1);
    CUgraph graph = new_graph();
    CUgraphNode node = add_step(graph, {}, f, x, 2, 1);
    CUgraphExec exec = instantiate(graph);
    // The caller's parameters are read once. The parameters that the node returns can be read, and changed.
    CUDA_KERNEL_NODE_PARAMS got{};
    CK(cuGraphKernelNodeGetParams(node, &got));
    EXPECT(got.func == f && got.gridDimX == 1 && got.blockDimX == 1 && got.kernelParams && !got.extra, "func %p", (void *)got.func);
    EXPECT(*(CUdeviceptr *)got.kernelParams[0] == x, "0x%llx", *(CUdeviceptr *)got.kernelParams[0]);
    EXPECT(*(unsigned *)got.kernelParams[1] == 2 && *(unsigned *)got.kernelParams[2] == 1, "factor %u", *(unsigned *)got.kernelParams[1]);
    launch(exec, stream);
    EXPECT(word_at(x) == 3, "%u", word_at(x));
    unsigned factor = 10;
    void *params[] = {got.kernelParams[0], &factor, got.kernelParams[2]};
    got.kernelParams = params;
    CK(cuGraphKernelNodeSetParams(node, &got));
    factor = 77;
    // The executable graph is as it was.
    launch(exec, stream);
    EXPECT(word_at(x) == 7, "%u", word_at(x));
    CUDA_KERNEL_NODE_PARAMS after{};
    CK(cuGraphKernelNodeGetParams(node, &after));
    EXPECT(*(unsigned *)after.kernelParams[1] == 10, "%u", *(unsigned *)after.kernelParams[1]);
    CK(cuGraphExecKernelNodeSetParams(exec, node, &after));
    launch(exec, stream);
    EXPECT(word_at(x) == 71, "%u", word_at(x));
    // Another function, with the parameters packed.
    CUfunction fill = gpu.function("fill");
    struct {
        CUdeviceptr words;
        unsigned value, count;
    } packed = {x, 5, 2};
    size_t bytes = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &packed, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
    after.func = fill;
    after.kernelParams = nullptr;
    after.extra = extra;
    CK(cuGraphExecKernelNodeSetParams(exec, node, &after));
    launch(exec, stream);
    EXPECT(word_at(x) == 5 && word_at(x + 4) == 5, "%u", word_at(x));
    // A change that CUDA refuses has no effect.
    after.blockDimX = 4096;
    CUresult code = cuGraphExecKernelNodeSetParams(exec, node, &after);
    EXPECT(code == CUDA_ERROR_INVALID_VALUE, "%s", name_of(code));
    CUgraphNode other = nullptr;
    EXPECT(cuGraphAddKernelNode(&other, graph, nullptr, 0, &after) == CUDA_ERROR_INVALID_VALUE, "a block of 4096 threads");
    set_words(x, 0, 2);
    launch(exec, stream);
    EXPECT(word_at(x + 4) == 5, "%u", word_at(x + 4));
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL(39, nodes_of_every_type_and_their_setters) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(64, 1), y = device_words(64, 2);
    unsigned near[64] = {};
    static std::atomic<unsigned> called;
    called = 0;
    auto call = [](void *data) { called = called * 10 + (unsigned)(size_t)data; };
    CUevent event, second;
    CK(cuEventCreate(&event, 0));
    CK(cuEventCreate(&second, 0));
    CUgraph graph = new_graph(), inner = new_graph();
    CUgraphNode fill, copy, host, record, wait, empty, child, back;
    CUDA_MEMSET_NODE_PARAMS fill_params = words_of(x, 4, 8);
    CK(cuGraphAddMemsetNode(&fill, graph, nullptr, 0, &fill_params, gpu.context));
    CUDA_MEMCPY3D copy_params = line(y, x, 32);
    CK(cuGraphAddMemcpyNode(&copy, graph, &fill, 1, &copy_params, gpu.context));
    CUDA_HOST_NODE_PARAMS host_params{};
    host_params.fn = call;
    host_params.userData = (void *)1;
    CK(cuGraphAddHostNode(&host, graph, &copy, 1, &host_params));
    CK(cuGraphAddEventRecordNode(&record, graph, &host, 1, event));
    CK(cuGraphAddEventWaitNode(&wait, graph, &record, 1, event));
    CK(cuGraphAddEmptyNode(&empty, graph, &wait, 1));
    CUgraphNode in_child = add_step(inner, {}, f, y, 3, 1);
    CK(cuGraphAddChildGraphNode(&child, graph, &empty, 1, inner));
    CUDA_MEMCPY3D back_params = line_to_host(near, y, 32);
    CK(cuGraphAddMemcpyNode(&back, graph, &child, 1, &back_params, gpu.context));
    // The child is a clone of the given graph.
    CK(cuGraphDestroyNode(in_child));
    CUgraph own = nullptr;
    CK(cuGraphChildGraphNodeGetGraph(child, &own));
    size_t count = 0;
    CK(cuGraphGetNodes(own, nullptr, &count));
    EXPECT(own != inner && count == 1, "%zu nodes", count);
    CK_IS(cuGraphDestroy(own), CUDA_ERROR_INVALID_VALUE);
    CUgraphExec exec = instantiate(graph);
    launch(exec, stream);
    EXPECT(near[0] == 13 && near[1] == 4 && near[7] == 4 && near[8] == 0 && called == 1, "%u, %u, called %u", near[0], near[1], called.load());
    CK(cuEventQuery(event));
    // Each can be queried and changed, in the graph and in the executable graph.
    CUDA_MEMSET_NODE_PARAMS fill_got{};
    CK(cuGraphMemsetNodeGetParams(fill, &fill_got));
    EXPECT(fill_got.dst == x && fill_got.value == 4 && fill_got.elementSize == 4 && fill_got.width == 8 && fill_got.height == 1, "fill");
    fill_got.value = 6;
    CK(cuGraphMemsetNodeSetParams(fill, &fill_got));
    CK(cuGraphExecMemsetNodeSetParams(exec, fill, &fill_got, gpu.context));
    CUDA_MEMCPY3D copy_got{};
    CK(cuGraphMemcpyNodeGetParams(copy, &copy_got));
    EXPECT(copy_got.srcDevice == x && copy_got.dstDevice == y && copy_got.WidthInBytes == 32, "copy");
    copy_got.WidthInBytes = 16;
    CK(cuGraphMemcpyNodeSetParams(copy, &copy_got));
    CK(cuGraphExecMemcpyNodeSetParams(exec, copy, &copy_got, gpu.context));
    CUDA_HOST_NODE_PARAMS host_got{};
    CK(cuGraphHostNodeGetParams(host, &host_got));
    EXPECT(host_got.fn == host_params.fn && host_got.userData == (void *)1, "host");
    host_got.userData = (void *)2;
    CK(cuGraphHostNodeSetParams(host, &host_got));
    CK(cuGraphExecHostNodeSetParams(exec, host, &host_got));
    CUevent event_got = nullptr;
    CK(cuGraphEventRecordNodeGetEvent(record, &event_got));
    EXPECT(event_got == event, "event");
    CK(cuGraphEventRecordNodeSetEvent(record, second));
    CK(cuGraphExecEventRecordNodeSetEvent(exec, record, second));
    CK(cuGraphEventWaitNodeGetEvent(wait, &event_got));
    EXPECT(event_got == event, "event");
    launch(exec, stream);
    EXPECT(near[0] == 19 && near[3] == 6 && near[4] == 4 && called == 12, "%u, %u, called %u", near[0], near[4], called.load());
    CK(cuEventQuery(second));
    // A disabled node does nothing, and its dependents run.
    unsigned enabled = 7;
    CK(cuGraphNodeSetEnabled(exec, fill, 0));
    CK(cuGraphNodeGetEnabled(exec, fill, &enabled));
    EXPECT(enabled == 0, "%u", enabled);
    CK_IS(cuGraphNodeSetEnabled(exec, host, 0), CUDA_ERROR_INVALID_VALUE);
    set_words(x, 9, 8);
    launch(exec, stream);
    EXPECT(near[0] == 28 && near[3] == 9, "%u", near[0]);
    CK(cuGraphNodeSetEnabled(exec, fill, 1));
    launch(exec, stream);
    EXPECT(near[0] == 19, "%u", near[0]);
    // Another node's graph, of the same shape.
    CUgraph other = new_graph();
    add_step(other, {}, f, y, 5, 0);
    CK(cuGraphExecChildGraphNodeSetParams(exec, child, other));
    launch(exec, stream);
    EXPECT(near[0] == 30, "%u", near[0]);
    CK_IS(cuGraphExecChildGraphNodeSetParams(exec, child, inner), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    // The setter of another type is refused.
    CK_IS(cuGraphMemsetNodeGetParams(copy, &fill_got), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphHostNodeSetParams(fill, &host_got), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphExecDestroy(exec));
    for (CUgraph each : {graph, inner, other})
        CK(cuGraphDestroy(each));
}

PITFALL(39, one_function_for_nodes_of_every_type) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr x = device_words(4, 1);
    Step step(gpu.function("step"), x, 4, 2);
    CUgraph graph = new_graph();
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_MEMSET;
    params.memset.dst = x;
    params.memset.value = 3;
    params.memset.elementSize = 4;
    params.memset.width = params.memset.height = 1;
    params.memset.ctx = gpu.context;
    CUgraphNode first, second;
    CK(cuGraphAddNode(&first, graph, nullptr, nullptr, 0, &params));
    CUgraphNodeParams kernel{};
    kernel.type = CU_GRAPH_NODE_TYPE_KERNEL;
    kernel.kernel.func = step.node.func;
    kernel.kernel.gridDimX = kernel.kernel.gridDimY = kernel.kernel.gridDimZ = 1;
    kernel.kernel.blockDimX = kernel.kernel.blockDimY = kernel.kernel.blockDimZ = 1;
    kernel.kernel.kernelParams = step.params;
    CUgraphEdgeData edge{};
    CK(cuGraphAddNode(&second, graph, &first, &edge, 1, &kernel));
    CUgraphExec exec = instantiate(graph);
    launch(exec, stream);
    EXPECT(word_at(x) == 14, "%u", word_at(x));
    params.memset.value = 5;
    CK(cuGraphNodeSetParams(first, &params));
    CK(cuGraphExecNodeSetParams(exec, first, &params));
    step.factor = 2;
    CK(cuGraphExecNodeSetParams(exec, second, &kernel));
    launch(exec, stream);
    EXPECT(word_at(x) == 12, "%u", word_at(x));
    CK_IS(cuGraphExecNodeSetParams(exec, second, &params), CUDA_ERROR_INVALID_VALUE);
    params.reserved0[1] = 1;
    CK_IS(cuGraphNodeSetParams(first, &params), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphExecDestroy(exec));
    // The graph of a child graph node is replaced by a clone of another one with any topology.
    CUgraph inner = new_graph(), longer = new_graph(), own;
    add_step(inner, {}, step.node.func, x, 2, 1);
    CUgraphNode child, last = nullptr;
    CK(cuGraphAddChildGraphNode(&child, graph, &second, 1, inner));
    for (unsigned by = 1; by <= 3; by++)
        last = add_step(longer, by == 1 ? std::vector<CUgraphNode>{} : std::vector<CUgraphNode>{last}, step.node.func, x, 1, by);
    CUgraphNodeParams of_child{};
    of_child.type = CU_GRAPH_NODE_TYPE_GRAPH;
    of_child.graph.graph = longer;
    CK(cuGraphNodeSetParams(child, &of_child));
    CK_IS(cuGraphNodeSetParams(first, &of_child), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphDestroy(longer));
    CK(cuGraphChildGraphNodeGetGraph(child, &own));
    size_t count = 0;
    CK(cuGraphGetNodes(own, nullptr, &count));
    EXPECT(count == 3, "%zu nodes", count);
    exec = instantiate(graph);
    launch(exec, stream);
    EXPECT(word_at(x) == 5 * 4 + 2 + 6, "%u", word_at(x));
    CK(cuGraphExecDestroy(exec));
    for (CUgraph each : {graph, inner})
        CK(cuGraphDestroy(each));
}

PITFALL(41, updates_are_done_or_refused) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(4, 1);
    CUevent event;
    CK(cuEventCreate(&event, 0));
    auto chain = [&](unsigned factor, int steps) {
        CUgraph graph = new_graph();
        CUgraphNode last = nullptr;
        for (int i = 0; i < steps; i++)
            last = add_step(graph, i ? std::vector<CUgraphNode>{last} : std::vector<CUgraphNode>{}, f, x, factor, i);
        return graph;
    };
    CUgraph graph = chain(2, 3);
    CUgraphExec exec = instantiate(graph);
    launch(exec, stream);
    EXPECT(word_at(x) == 12, "%u", word_at(x));
    CUgraphExecUpdateResultInfo info{};
    CUgraph same = chain(3, 3);
    CK(cuGraphExecUpdate(exec, same, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "%d", info.result);
    launch(exec, stream);
    EXPECT(word_at(x) == 12 * 27 + 5, "%u", word_at(x));
    // Longer, shorter, another order, another type: refused with the reason, and nothing changes.
    CUgraph longer = chain(5, 4), shorter = chain(5, 2), fork = chain(5, 1), typed = chain(5, 2);
    CUgraphNode root;
    size_t one = 1;
    CK(cuGraphGetRootNodes(fork, &root, &one));
    for (int i = 0; i < 2; i++)
        add_step(fork, {root}, f, x + 4, 1, 1);
    CUgraphNode tail, nodes[2];
    size_t two = 2;
    CK(cuGraphGetNodes(typed, nodes, &two));
    CK(cuGraphAddEmptyNode(&tail, typed, &nodes[1], 1));
    for (CUgraph other : {longer, shorter, fork}) {
        CK_IS(cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
        EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "%d", info.result);
    }
    CK_IS(cuGraphExecUpdate(exec, typed, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED && info.errorNode == tail, "%d", info.result);
    set_words(x, 1, 1);
    launch(exec, stream);
    EXPECT(word_at(x) == 27 + 5, "%u", word_at(x));
    CK(cuGraphExecDestroy(exec));
    // A captured graph updates one that was captured the same way, again and again.
    exec = nullptr;
    for (unsigned i = 1; i <= 20; i++) {
        CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CK(cuMemsetD32Async(x, i, 4, stream));
        LAUNCH(f, 1, 1, stream, x, i, 1u);
        CUgraph captured;
        CK(cuStreamEndCapture(stream, &captured));
        if (!exec)
            exec = instantiate(captured);
        else
            CK(cuGraphExecUpdate(exec, captured, &info));
        CK(cuGraphDestroy(captured));
        launch(exec, stream);
        EXPECT(word_at(x) == i * i + 1 && word_at(x + 12) == i, "%u after update %u", word_at(x), i);
    }
    CK(cuGraphExecDestroy(exec));
    for (CUgraph each : {graph, same, longer, shorter, fork, typed})
        CK(cuGraphDestroy(each));
}

PITFALL(42, arrays_are_as_long_as_there_is_room) {
    Gpu gpu;
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(1);
    CUgraph graph = new_graph();
    std::vector<CUgraphNode> nodes;
    for (int i = 0; i < 5; i++)
        nodes.push_back(add_step(graph, {}, f, x, 1, i));
    // The last waits for all others.
    std::vector<CUgraphNode> from(nodes.begin(), nodes.end() - 1), to(4, nodes[4]);
    CK(cuGraphAddDependencies(graph, from.data(), to.data(), nullptr, 4));
    auto query = [&](const char *name, size_t total, auto ask) {
        size_t count = 99;
        CK(ask(nullptr, &count));
        EXPECT(count == total, "%s: %zu", name, count);
        CUgraphNode none = (CUgraphNode)0x77;
        count = 0;
        CK_IS(ask(&none, &count), CUDA_ERROR_INVALID_VALUE);
        EXPECT(none == (CUgraphNode)0x77, "%s wrote where there is no room", name);
        for (size_t room = 1; room <= total + 3; room++) {
            std::vector<CUgraphNode> got(room + 1, (CUgraphNode)0x77);
            count = room;
            CK(ask(got.data(), &count));
            EXPECT(count == std::min(room, total), "%s: %zu of %zu", name, count, room);
            EXPECT(got[room] == (CUgraphNode)0x77, "%s wrote behind the array", name);
            for (size_t i = 0; i < room; i++)
                EXPECT((got[i] != nullptr) == (i < total) && got[i] != (CUgraphNode)0x77, "%s: entry %zu is %p", name, i, (void *)got[i]);
        }
        CK_IS(ask(nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    };
    query("nodes", 5, [&](CUgraphNode *to, size_t *count) { return cuGraphGetNodes(graph, to, count); });
    query("roots", 4, [&](CUgraphNode *to, size_t *count) { return cuGraphGetRootNodes(graph, to, count); });
    query("dependencies", 4, [&](CUgraphNode *to, size_t *count) { return cuGraphNodeGetDependencies(nodes[4], to, nullptr, count); });
    query("dependents", 1, [&](CUgraphNode *to, size_t *count) { return cuGraphNodeGetDependentNodes(nodes[0], to, nullptr, count); });
    CUgraphNode one[8], other[8];
    size_t count = 8;
    CK(cuGraphGetEdges(graph, one, other, nullptr, &count));
    EXPECT(count == 4 && other[0] == nodes[4] && !one[4] && !other[7], "%zu edges", count);
    CK_IS(cuGraphGetEdges(graph, one, nullptr, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
    // Edges that are there, of a node to itself, that are not there: refused.
    CK_IS(cuGraphAddDependencies(graph, from.data(), to.data(), nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphAddDependencies(graph, &nodes[1], &nodes[1], nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphRemoveDependencies(graph, &nodes[0], &nodes[1], nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    // Edges may close a circle. Then the graph cannot be instantiated.
    CK(cuGraphAddDependencies(graph, &nodes[4], &nodes[0], nullptr, 1));
    CUgraphExec exec = nullptr;
    CK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA_GRAPH_INSTANTIATE_PARAMS instantiation{};
    CK_IS(cuGraphInstantiateWithParams(&exec, graph, &instantiation), CUDA_ERROR_INVALID_VALUE);
    EXPECT(instantiation.result_out == CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, "%d", instantiation.result_out);
    CK(cuGraphRemoveDependencies(graph, &nodes[4], &nodes[0], nullptr, 1));
    CK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphRemoveDependencies(graph, &from[2], &to[2], nullptr, 2));
    count = 8;
    CK(cuGraphGetEdges(graph, one, other, nullptr, &count));
    EXPECT(count == 2, "%zu edges", count);
    CK(cuGraphDestroyNode(nodes[0]));
    CK(cuGraphGetNodes(graph, nullptr, &count));
    EXPECT(count == 4, "%zu nodes", count);
    CK(cuGraphDestroy(graph));
}

// Each launch of an executable graph follows the one before, in whichever streams and over each update.
PITFALL(40, launches_in_several_streams_keep_their_order) {
    Gpu gpu;
    CUstream streams[] = {new_stream(), new_stream()};
    CUfunction f = gpu.function("step");
    Gate gate(gpu);
    for (int way = 0; way < 3; way++) {
        CUdeviceptr x = device_words(1, 1);
        CUgraph first = new_graph(), second = new_graph();
        add_step(first, {}, f, x, 2, 1);
        CUgraphNode node = add_step(second, {}, f, x, 3, 0);
        if (way == 2) { // No change of parameters alone.
            CUkernelNodeAttrValue value = {};
            value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
            CK(cuGraphKernelNodeSetAttribute(node, CU_KERNEL_NODE_ATTRIBUTE_MEM_SYNC_DOMAIN, &value));
        }
        CUgraphExec exec = instantiate(first);
        gate.close(streams[0]);
        CK(cuGraphLaunch(exec, streams[0]));
        if (way > 0) {
            CUgraphExecUpdateResultInfo info;
            CK(cuGraphExecUpdate(exec, second, &info));
        }
        CK(cuGraphLaunch(exec, streams[1]));
        CK_IS(cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuCtxSynchronize());
        unsigned expected = way == 0 ? 7 : 9;
        EXPECT(word_at(x) == expected, "%u in way %d", word_at(x), way);
        CK(cuGraphExecDestroy(exec));
        CK(cuGraphDestroy(first));
        CK(cuGraphDestroy(second));
    }
}

// The executable graph holds the user objects of the graph from which it was updated last.
PITFALL(40, an_update_replaces_what_is_held) {
    Gpu gpu;
    static std::atomic<int> ended[2];
    ended[0] = ended[1] = 0;
    auto holding = [&](int which) {
        CUgraph graph = new_graph();
        CUuserObject object;
        auto end = [](void *which) { ended[(size_t)which]++; };
        CK(cuUserObjectCreate(&object, (void *)(size_t)which, end, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
        CK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
        CUgraphNode node;
        CK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
        return graph;
    };
    // The program's function is called by another thread.
    auto wait_for = [&](int which) {
        for (int i = 0; i < 2000 && ended[which] == 0; i++)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return ended[which].load();
    };
    CUgraph first = holding(0), second = holding(1);
    CUgraphExec exec = instantiate(first);
    CK(cuGraphDestroy(first));
    CUgraphExecUpdateResultInfo info;
    CK(cuGraphExecUpdate(exec, second, &info));
    CK(cuGraphDestroy(second));
    EXPECT(wait_for(0) == 1, "the first graph's object lives");
    EXPECT(ended[1] == 0, "the second graph's object ended");
    CK(cuGraphLaunch(exec, nullptr));
    CK(cuCtxSynchronize());
    CK(cuGraphExecDestroy(exec));
    EXPECT(wait_for(1) == 1, "the second graph's object lives");
}

PITFALL(40, what_a_graph_holds_lives_as_long_as_its_launches) {
    Gpu gpu;
    CUstream stream = new_stream();
    static std::atomic<int> calls, ended;
    calls = ended = 0;
    CUgraph graph = new_graph();
    CUuserObject object;
    CK(cuUserObjectCreate(&object, (void *)&ended, [](void *) { ended++; }, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    CK(cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    CUDA_HOST_NODE_PARAMS host{};
    host.fn = [](void *) { calls++; };
    CUgraphNode node;
    CK(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
    // A copy to the host, which the launch still makes when graph and executable graph are destroyed. The launch itself
    // would wait for a copy to pageable memory.
    CUdeviceptr x = device_words(256, 5);
    unsigned *near = pinned_words(256);
    CUDA_MEMCPY3D back = line_to_host(near, x, 1024);
    CK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &back, gpu.context));
    CUgraph clone = nullptr;
    CK(cuGraphClone(&clone, graph));
    CUgraphExec exec = instantiate(graph);
    CK(cuGraphDestroy(graph));
    CK(cuGraphDestroy(clone));
    EXPECT(ended == 0, "the object ended with the graph");
    {
        Gate gate(gpu);
        gate.close(stream);
        for (int i = 0; i < 3; i++)
            CK(cuGraphLaunch(exec, stream));
        CK(cuGraphExecDestroy(exec));
        EXPECT(ended == 0 && calls == 0, "%d, %d", ended.load(), calls.load());
        gate.open();
        CK(cuStreamSynchronize(stream));
    }
    EXPECT(calls == 3, "%d calls", calls.load());
    EXPECT_WORDS(near, 256, 5);
    // The destructor may be called slightly later.
    for (int i = 0; i < 5000 && ended == 0; i++)
        usleep(1000);
    EXPECT(ended == 1, "%d ends", ended.load());
    CK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
}

PITFALL(40, making_and_ending_leaves_nothing) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(64, 0);
    std::vector<unsigned> near(64, 0);
    auto make_and_end = [&](int i) {
        CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        LAUNCH(f, 1, 1, stream, x, 1u, 1u);
        CK(cuMemcpyDtoHAsync(near.data(), x, 256, stream));
        CUgraph graph, clone;
        CK(cuStreamEndCapture(stream, &graph));
        CK(cuGraphClone(&clone, graph));
        CUgraphExec exec = instantiate(clone);
        CK(cuGraphDestroy(graph));
        CK(cuGraphDestroy(clone));
        CK(cuGraphLaunch(exec, stream));
        if (i % 3 == 0)
            CK(cuStreamSynchronize(stream));
        CK(cuGraphExecDestroy(exec));
    };
    // The first ones let the driver's own memory grow.
    unsigned made = 0;
    while (made < 200)
        make_and_end(made++);
    CK(cuStreamSynchronize(stream));
    expect_kept(8 << 20, [&] {
        for (int i = 0; i < 1000; i++)
            make_and_end(made++);
        CK(cuStreamSynchronize(stream));
    });
    EXPECT(near[0] == made, "%u of %u", near[0], made);
}

// A copy from pageable memory.
static CUDA_MEMCPY3D from_host(CUdeviceptr to, const void *from, size_t bytes) {
    CUDA_MEMCPY3D copy = line(to, 0, bytes);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = from;
    return copy;
}

// A change and the end of a graph wait for no work of other streams, whatever memory the graph has.
PITFALL(40, changes_and_ends_of_graphs_wait_for_nothing) {
    Gpu gpu;
    CUstream stream = new_stream(), busy = new_stream();
    CUdeviceptr x = device_words(64);
    std::vector<unsigned> near(64, 3), far(64, 4);
    CUgraph copies = new_graph(), others = new_graph(), allocations = new_graph();
    CUgraphNode copy, another, made, freed;
    CUDA_MEMCPY3D one = from_host(x, near.data(), 256), two = from_host(x, far.data(), 256);
    CK(cuGraphAddMemcpyNode(&copy, copies, nullptr, 0, &one, gpu.context));
    CK(cuGraphAddMemcpyNode(&another, others, nullptr, 0, &one, gpu.context));
    CUDA_MEM_ALLOC_NODE_PARAMS memory{};
    memory.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    memory.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    memory.bytesize = 4 << 20;
    CK(cuGraphAddMemAllocNode(&made, allocations, nullptr, 0, &memory));
    CK(cuGraphAddMemFreeNode(&freed, allocations, &made, 1, memory.dptr));
    CUgraphExec exec = instantiate(copies), allocating = instantiate(allocations);
    launch(exec, stream);
    launch(allocating, stream);
    EXPECT(word_at(x) == 3, "%u", word_at(x));
    Gate gate(gpu);
    gate.close(busy);
    CK(cuGraphExecMemcpyNodeSetParams(exec, copy, &two, gpu.context));
    launch(exec, stream);
    // The copy back waits for no other stream either.
    unsigned *word = pinned_words(1);
    CK(cuMemcpyDtoHAsync(word, x, 4, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(*word == 4, "%u", *word);
    CUgraphExecUpdateResultInfo info;
    CK(cuGraphExecUpdate(exec, others, &info));
    launch(exec, stream);
    CK(cuMemcpyDtoHAsync(word, x, 4, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(*word == 3, "%u", *word);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphExecDestroy(allocating));
    CK(cuGraphDestroy(allocations));
    CK(cuGraphDestroy(copies));
    CK(cuGraphDestroy(others));
    CK(cuDeviceGraphMemTrim(gpu.device));
    EXPECT(!gate.is_open(), "the gate is open");
    gate.open();
    CK(cuCtxSynchronize());
}

// A copy from or to pageable memory is disabled and enabled like any other.
PITFALL(39, copies_of_pageable_memory_are_disabled_and_enabled) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr x = device_words(64, 1);
    std::vector<unsigned> source(64, 2), target(64, 0);
    CUgraph graph = new_graph();
    CUgraphNode in, out;
    CUDA_MEMCPY3D into = from_host(x, source.data(), 256), back = line(0, x, 256);
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = target.data();
    CK(cuGraphAddMemcpyNode(&in, graph, nullptr, 0, &into, gpu.context));
    CK(cuGraphAddMemcpyNode(&out, graph, &in, 1, &back, gpu.context));
    CUgraphExec exec = instantiate(graph);
    unsigned seen = 0;
    for (unsigned round = 0; round < 8; round++) {
        const unsigned is_in = round & 1, is_out = round >> 1 & 1;
        CK(cuGraphNodeSetEnabled(exec, in, is_in));
        CK(cuGraphNodeSetEnabled(exec, out, is_out));
        std::fill(source.begin(), source.end(), 10 + round);
        set_words(x, 100 + round, 64);
        launch(exec, stream);
        const unsigned there = is_in ? 10 + round : 100 + round;
        EXPECT(word_at(x) == there, "round %u: %u on the device", round, word_at(x));
        seen = is_out ? there : seen;
        EXPECT_WORDS(target.data(), 64, seen);
    }
    CK(cuGraphExecDestroy(exec));
}

PITFALL(07, results_of_a_launch_come_once) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr x = device_words(4, 1), y = device_words(4, 2);
    unsigned word = 0;
    CUgraph graph = new_graph();
    CUgraphNode node;
    CUDA_MEMCPY3D back = line_to_host(&word, x, 4);
    CK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &back, gpu.context));
    CUgraphExec exec = instantiate(graph);
    launch(exec, stream);
    EXPECT(word == 1, "%u", word);
    CK(cuMemcpyDtoH(&word, y, 4));
    CK(cuStreamSynchronize(stream));
    CK(cuCtxSynchronize());
    EXPECT(word == 2, "%u: the graph's copy came again", word);
    CK(cuGraphExecDestroy(exec));
    CK(cuCtxSynchronize());
    EXPECT(word == 2, "%u", word);
    CK(cuGraphDestroy(graph));
}

PITFALL(41, clones_are_apart_and_find_their_nodes) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(1, 1);
    CUgraph graph = new_graph(), clone = nullptr;
    CUgraphNode first = add_step(graph, {}, f, x, 2, 0), second = add_step(graph, {first}, f, x, 1, 5), found = nullptr;
    CK(cuGraphClone(&clone, graph));
    CK(cuGraphNodeFindInClone(&found, second, clone));
    CUgraph again = nullptr;
    CK(cuGraphClone(&again, clone));
    CUgraphNode none = nullptr;
    CK_IS(cuGraphNodeFindInClone(&none, second, again), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphDestroy(again));
    EXPECT(found != second, "the clone's node is the original's");
    Step other(f, x, 1, 7);
    CK(cuGraphKernelNodeSetParams(found, &other.node));
    CUgraphExec one = instantiate(graph), two = instantiate(clone);
    launch(one, stream);
    EXPECT(word_at(x) == 7, "%u", word_at(x));
    launch(two, stream);
    EXPECT(word_at(x) == 21, "%u", word_at(x));
    CK(cuGraphDestroy(graph));
    launch(two, stream);
    EXPECT(word_at(x) == 49, "%u", word_at(x));
    CK(cuGraphDestroy(clone));
    CK(cuGraphExecDestroy(one));
    CK(cuGraphExecDestroy(two));
}

PITFALL(41, graphs_in_graphs_and_written_out) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(1, 1);
    CUgraph graph = new_graph(), outer = nullptr;
    CUgraphNode first = add_step(graph, {}, f, x, 2, 0);
    add_step(graph, {first}, f, x, 1, 1);
    CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
    cuuint64_t flags = 99;
    CK(cuGraphExecGetFlags(exec, &flags));
    // Only the flag for freeing is kept.
    EXPECT(flags == 0, "%llu", (unsigned long long)flags);
    CK(cuGraphUpload(exec, stream));
    // An executable graph becomes no node of a capture; its graph does.
    for (auto call : {+[](CUgraphExec exec, CUstream stream) { return cuGraphLaunch(exec, stream); },
                      +[](CUgraphExec exec, CUstream stream) { return cuGraphUpload(exec, stream); }}) {
        CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CK_IS(call(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
        CK_IS(cuStreamEndCapture(stream, &outer), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    }
    CK(cuGraphExecDestroy(exec));
    EXPECT(word_at(x) == 1, "%u", word_at(x));
    outer = new_graph();
    CUgraphNode child;
    CK(cuGraphAddChildGraphNode(&child, outer, nullptr, 0, graph));
    add_step(outer, {child}, f, x, 10, 0);
    CUgraphExec both = instantiate(outer);
    launch(both, stream);
    EXPECT(word_at(x) == 30, "%u", word_at(x));
    // In another stream, and in the legacy stream.
    launch(both, other);
    CK(cuGraphLaunch(both, nullptr));
    CK(cuCtxSynchronize());
    EXPECT(word_at(x) == (30 * 2 + 1) * 10 * 20 + 10, "%u", word_at(x));
    char path[] = "/tmp/pitfall-graph-XXXXXX";
    int file = mkstemp(path);
    CK(cuGraphDebugDotPrint(outer, path, 0));
    char text[4096] = {};
    ssize_t bytes = read(file, text, sizeof text - 1);
    EXPECT(bytes > 0 && strncmp(text, "digraph", 7) == 0 && strstr(text, "->"), "%.100s", text);
    close(file);
    unlink(path);
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    params.hUploadStream = stream;
    CK(cuGraphInstantiateWithParams(&exec, graph, &params));
    EXPECT(params.result_out == CUDA_GRAPH_INSTANTIATE_SUCCESS, "%d", params.result_out);
    launch(exec, stream);
    CK_IS(cuGraphInstantiateWithFlags(&exec, graph, 1u << 20), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphDestroy(graph));
    CK(cuGraphDestroy(outer));
}

PITFALL(41, a_graph_that_was_moved_into_a_node_keeps_its_nodes) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    CUdeviceptr x = device_words(1, 1), y = device_words(1, 7), z = device_words(1, 0);
    CUgraph inner = new_graph(), outer = new_graph(), found = nullptr;
    CUgraphNode step = add_step(inner, {}, f, x, 2, 1), copy, child, other;
    CUDA_MEMCPY3D line{};
    line.srcMemoryType = line.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    line.srcDevice = x;
    line.dstDevice = z;
    line.WidthInBytes = 4;
    line.Height = line.Depth = 1;
    CK(cuGraphAddMemcpyNode(&copy, inner, &step, 1, &line, gpu.context));
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = inner;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CK(cuGraphAddNode(&child, outer, nullptr, nullptr, 0, &params));
    CK(cuGraphChildGraphNodeGetGraph(child, &found));
    EXPECT(found == inner, "another graph");
    CUgraphExec exec = instantiate(outer);
    launch(exec, stream);
    EXPECT(word_at(x) == 3 && word_at(z) == 3, "%u, %u", word_at(x), word_at(z));
    // Its nodes are the executable graph's.
    line.srcDevice = y;
    CK(cuGraphExecMemcpyNodeSetParams(exec, copy, &line, gpu.context));
    launch(exec, stream);
    EXPECT(word_at(x) == 7 && word_at(z) == 7, "%u, %u", word_at(x), word_at(z));
    // It is no graph by itself any more.
    CUgraphExec alone;
    CK_IS(cuGraphInstantiate(&alone, inner, 0), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphDestroy(inner), CUDA_ERROR_INVALID_VALUE);
    CUgraph third = new_graph();
    CK_IS(cuGraphAddChildGraphNode(&other, third, nullptr, 0, inner), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphAddNode(&other, third, nullptr, nullptr, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExecUpdateResultInfo info{};
    CK_IS(cuGraphExecUpdate(exec, inner, &info), CUDA_ERROR_INVALID_VALUE);
    // The node takes it along.
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(outer));
    CK(cuGraphDestroy(third));
    for (CUdeviceptr word : {x, y, z})
        CK(cuMemFree(word));
}

PITFALL(41, large_graphs_and_wide_ones) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction f = gpu.function("step");
    const unsigned wide = 64, deep = 100;
    CUdeviceptr x = device_words(wide, 0);
    CUgraph graph = new_graph();
    CUgraphNode root, end;
    CK(cuGraphAddEmptyNode(&root, graph, nullptr, 0));
    std::vector<CUgraphNode> last(wide, root);
    for (unsigned i = 0; i < deep; i++)
        for (unsigned j = 0; j < wide; j++)
            last[j] = add_step(graph, {last[j]}, f, x + 4 * j, 1, 1);
    CK(cuGraphAddEmptyNode(&end, graph, last.data(), last.size()));
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < 3; i++)
        CK(cuGraphLaunch(exec, stream));
    std::vector<unsigned> words(wide);
    CK(cuMemcpyDtoHAsync(words.data(), x, wide * 4, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(words.data(), wide, 3 * deep);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

// No launch waits for an earlier graph with the same topology: each graph runs, changes and ends in its own order.
PITFALL(41, graphs_that_are_alike_are_each_their_own) {
    Gpu gpu;
    CUfunction f = gpu.function("step");
    const unsigned deep = 5, rounds = 40, threads = 3;
    auto power = [](unsigned factor) {
        unsigned word = 0;
        for (unsigned i = 0; i < deep; i++)
            word = word * factor + i;
        return word;
    };
    auto make = [&](CUdeviceptr word, unsigned factor) {
        CUgraph graph = new_graph();
        std::vector<CUgraphNode> last;
        for (unsigned i = 0; i < deep; i++)
            last = {add_step(graph, last, f, word, factor, i)};
        return graph;
    };
    auto work = [&](unsigned thread) {
        CK(cuCtxSetCurrent(gpu.context));
        CUstream stream = new_stream();
        CUdeviceptr words = device_words(rounds, 0);
        std::vector<CUgraphExec> kept;
        for (unsigned i = 0; i < rounds; i++) {
            CUgraph graph = make(words + 4 * i, thread + i);
            CUgraphExec exec = instantiate(graph);
            // Changed before its first launch, by a setter and as a whole.
            CUgraph other = make(words + 4 * i, thread + i + 1);
            if (i % 4 == 1) {
                size_t count = 1;
                CUgraphNode last;
                Step to(f, words + 4 * i, 0, 7);
                CK(cuGraphGetNodes(graph, &last, &count));
                CK(cuGraphExecKernelNodeSetParams(exec, last, &to.node));
            } else if (i % 4 == 2) {
                CUgraphExecUpdateResultInfo info{};
                CK(cuGraphExecUpdate(exec, other, &info));
            } else if (i % 4 == 3) {
                CK(cuGraphUpload(exec, stream));
            }
            CK(cuGraphDestroy(other));
            CK(cuGraphDestroy(graph));
            CK(cuGraphLaunch(exec, stream));
            // One in three is destroyed when it may not have been made yet.
            if (i % 3 == 0)
                CK(cuGraphExecDestroy(exec));
            else
                kept.push_back(exec);
        }
        std::vector<unsigned> got(rounds);
        CK(cuMemcpyDtoHAsync(got.data(), words, rounds * 4, stream));
        CK(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < rounds; i++) {
            unsigned factor = thread + i + (i % 4 == 2), right = power(factor);
            if (i % 4 == 1) {
                // The first step sets the word to 7.
                right = 7;
                for (unsigned j = 1; j < deep; j++)
                    right = right * factor + j;
            }
            EXPECT(got[i] == right, "thread %u, graph %u: %u, not %u", thread, i, got[i], right);
        }
        for (CUgraphExec exec : kept)
            CK(cuGraphExecDestroy(exec));
        CK(cuMemFree(words));
        CK(cuStreamDestroy(stream));
    };
    // The host has made as many at a time in the first round; so the second waits for none.
    for (int round = 0; round < 2; round++) {
        std::vector<std::thread> all;
        for (unsigned i = 0; i < threads; i++)
            all.emplace_back(work, i);
        for (auto &thread : all)
            thread.join();
    }
}

PITFALL(40, what_a_graph_uses_may_end_before_it) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUgraph graph = new_graph();
    CUgraphNode node;
    CUDA_HOST_NODE_PARAMS host{};
    static std::atomic<int> calls;
    calls = 0;
    host.fn = [](void *) { calls++; };
    CK(cuGraphAddHostNode(&node, graph, nullptr, 0, &host));
    CUgraphExec exec = instantiate(graph);
    // Many pending launches while the graph is destroyed, from two threads.
    std::thread other([&] {
        CK(cuCtxSetCurrent(gpu.context));
        CUstream mine = new_stream();
        for (int i = 0; i < 200; i++)
            CK(cuGraphLaunch(exec, mine));
        CK(cuStreamSynchronize(mine));
    });
    for (int i = 0; i < 200; i++)
        CK(cuGraphLaunch(exec, stream));
    other.join();
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
    CK(cuStreamSynchronize(stream));
    EXPECT(calls == 400, "%d", calls.load());
    // A stream with launches under way.
    CUstream gone = new_stream();
    graph = new_graph();
    CUdeviceptr x = device_words(1, 0);
    add_step(graph, {}, gpu.function("step"), x, 1, 1);
    exec = instantiate(graph);
    for (int i = 0; i < 50; i++)
        CK(cuGraphLaunch(exec, gone));
    CK(cuStreamDestroy(gone));
    CK(cuGraphExecDestroy(exec));
    CK(cuCtxSynchronize());
    EXPECT(word_at(x) == 50, "%u", word_at(x));
    CK(cuGraphDestroy(graph));
}

PITFALL_OURS(63, handles_of_graphs_that_are_none) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUgraph graph = new_graph(), out = nullptr;
    CUgraphNode node;
    CK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    CUgraphExec exec = instantiate(graph);
    size_t count = 0;
    for (size_t bad : {size_t(0), size_t(1), size_t(0x1234), (size_t)graph + 16, (size_t)node, (size_t)exec, (size_t)stream}) {
        CUgraph g = (CUgraph)bad;
        CK_IS(cuGraphGetNodes(g, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuGraphClone(&out, g), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuGraphDestroy(g), CUDA_ERROR_INVALID_VALUE);
        CUgraphExec made;
        CK_IS(cuGraphInstantiateWithFlags(&made, g, 0), CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t bad : {size_t(0), size_t(5), (size_t)graph, (size_t)exec}) {
        CUgraphNodeType type;
        CK_IS(cuGraphNodeGetType((CUgraphNode)bad, &type), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuGraphDestroyNode((CUgraphNode)bad), CUDA_ERROR_INVALID_VALUE);
        CUgraphNode n = (CUgraphNode)bad, added;
        CK_IS(cuGraphAddEmptyNode(&added, graph, &n, 1), CUDA_ERROR_INVALID_VALUE);
    }
    for (size_t bad : {size_t(0), size_t(5), (size_t)graph, (size_t)node}) {
        CK_IS(cuGraphLaunch((CUgraphExec)bad, stream), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuGraphExecDestroy((CUgraphExec)bad), CUDA_ERROR_INVALID_VALUE);
    }
    CK(cuGraphExecDestroy(exec));
    CK_IS(cuGraphExecDestroy(exec), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphDestroy(graph));
    CK_IS(cuGraphDestroy(graph), CUDA_ERROR_INVALID_VALUE);
    CK(cuCtxSynchronize());
    // An executable graph of a destroyed context: its destruction causes no error of a later call.
    CUcontext other;
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    graph = new_graph();
    CUDA_MEMSET_NODE_PARAMS fill = words_of(device_words(1), 1, 1);
    CK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, other));
    exec = instantiate(graph);
    CK(cuCtxDestroy(other));
    CK(cuCtxSetCurrent(gpu.context));
    CK(cuGraphExecDestroy(exec));
    CK(cuCtxSynchronize());
}

// A disabled node is like an empty one: its memory may be freed.
PITFALL(40, a_disabled_node_needs_no_memory) {
    Gpu gpu;
    CUdeviceptr kept = device_words(64), freed = device_words(64);
    CUgraph graph = new_graph();
    CUgraphNode nodes[2];
    for (int i = 0; i < 2; i++) {
        CUDA_MEMSET_NODE_PARAMS fill{};
        fill.dst = i ? freed : kept;
        fill.elementSize = 4;
        fill.value = 5;
        fill.width = 64;
        fill.height = 1;
        CK(cuGraphAddMemsetNode(&nodes[i], graph, nullptr, 0, &fill, gpu.context));
    }
    CUgraphExec exec;
    CK(cuGraphInstantiate(&exec, graph, 0));
    CK(cuGraphNodeSetEnabled(exec, nodes[1], 0));
    CK(cuMemFree(freed));
    CK(cuGraphLaunch(exec, nullptr));
    CK(cuStreamSynchronize(nullptr));
    std::vector<unsigned> got(64);
    CK(cuMemcpyDtoH(got.data(), kept, 256));
    EXPECT_WORDS(got.data(), 64, 5);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL_MAIN
