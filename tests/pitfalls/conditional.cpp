// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Graphs with conditional nodes, whose values kernels set (pitfalls 34, 39, 41, 63).
#include "graphs.h"

typedef CUgraphConditionalHandle Value;

// The device function that sets a value is in NVIDIA's device runtime (libcudadevrt.a). The driver knows it as well.
static const char *KERNELS = R"(.version 8.3
.target sm_80
.address_size 64
.extern .func cudaGraphSetConditional(.param .b64 number, .param .b32 value);
.visible .entry add(.param .u64 to, .param .u32 term) {
    .reg .b64 a; .reg .b32 x, y;
    ld.param.u64 a, [to];
    ld.param.u32 y, [term];
    ld.global.u32 x, [a];
    add.u32 x, x, y;
    st.global.u32 [a], x;
    ret;
}
.visible .entry set(.param .u64 number, .param .u32 value) {
    .reg .b64 n; .reg .b32 x;
    ld.param.u64 n, [number];
    ld.param.u32 x, [value];
    {
        .param .b64 first; .param .b32 second;
        st.param.b64 [first], n;
        st.param.b32 [second], x;
        call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
}
// Counts one more, and sets the value to whether the count is below the bound.
.visible .entry count(.param .u64 to, .param .u64 number, .param .u32 bound) {
    .reg .b64 a, n; .reg .b32 x, m; .reg .pred p;
    ld.param.u64 a, [to];
    ld.param.u64 n, [number];
    ld.param.u32 m, [bound];
    ld.global.u32 x, [a];
    add.u32 x, x, 1;
    st.global.u32 [a], x;
    setp.lt.u32 p, x, m;
    selp.b32 x, 1, 0, p;
    {
        .param .b64 first; .param .b32 second;
        st.param.b64 [first], n;
        st.param.b32 [second], x;
        call.uni cudaGraphSetConditional, (first, second);
    }
    ret;
})";

struct Setup {
    Gpu gpu;
    CUfunction add, set, count;
    CUdeviceptr word;
    CUstream stream;

    Setup() {
        CUmodule module;
        CK(cuModuleLoadData(&module, KERNELS));
        CK(cuModuleGetFunction(&add, module, "add"));
        CK(cuModuleGetFunction(&set, module, "set"));
        CK(cuModuleGetFunction(&count, module, "count"));
        CK(cuMemAlloc(&word, 64));
        CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        clear();
    }

    void clear() const {
        CK(cuMemsetD32(word, 0, 16));
        CK(cuCtxSynchronize());
    }

    // The word after a launch, which begins with 0.
    unsigned launched(CUgraphExec exec) const {
        unsigned got = ~0u;
        clear();
        CK(cuGraphLaunch(exec, stream));
        CK(cuStreamSynchronize(stream));
        CK(cuMemcpyDtoH(&got, word, 4));
        return got;
    }

    Value value(CUgraph graph, unsigned initial, unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) const {
        Value made = 0;
        CK(cuGraphConditionalHandleCreate(&made, graph, gpu.context, initial, flags));
        return made;
    }

    CUresult try_node(CUgraphNode *node, CUgraph graph, std::vector<CUgraphNode> after, Value value, unsigned type,
                      std::vector<CUgraph> &bodies) const {
        CUgraphNodeParams params;
        memset(&params, 0, sizeof params);
        params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
        params.conditional.handle = value;
        params.conditional.type = (CUgraphConditionalNodeType)type;
        params.conditional.size = bodies.size();
        params.conditional.ctx = gpu.context;
        CUresult code = cuGraphAddNode(node, graph, after.data(), nullptr, after.size(), &params);
        for (size_t i = 0; code == CUDA_SUCCESS && i < bodies.size(); i++)
            bodies[i] = params.conditional.phGraph_out[i];
        return code;
    }

    std::vector<CUgraph> node(CUgraphNode *node, CUgraph graph, std::vector<CUgraphNode> after, Value value, unsigned type,
                              unsigned count) const {
        std::vector<CUgraph> bodies(count);
        CK(try_node(node, graph, after, value, type, bodies));
        return bodies;
    }

    CUgraphNode kernel(CUgraph graph, std::vector<CUgraphNode> after, CUfunction function, void **params) const {
        CUDA_KERNEL_NODE_PARAMS of = launch(function, params);
        CUgraphNode made = nullptr;
        CK(cuGraphAddKernelNode(&made, graph, after.data(), after.size(), &of));
        return made;
    }

    static CUDA_KERNEL_NODE_PARAMS launch(CUfunction function, void **params) {
        CUDA_KERNEL_NODE_PARAMS of{};
        of.func = function;
        of.gridDimX = of.gridDimY = of.gridDimZ = of.blockDimX = of.blockDimY = of.blockDimZ = 1;
        of.kernelParams = params;
        return of;
    }

    // word += term.
    CUgraphNode adds(CUgraph graph, std::vector<CUgraphNode> after, unsigned term) const {
        CUdeviceptr to = word;
        void *params[] = {&to, &term};
        return kernel(graph, after, add, params);
    }

    CUgraphNode sets(CUgraph graph, std::vector<CUgraphNode> after, Value number, unsigned value) const {
        void *params[] = {&number, &value};
        return kernel(graph, after, set, params);
    }

    CUgraphNode counts(CUgraph graph, Value number, unsigned bound) const {
        CUdeviceptr to = word;
        void *params[] = {&to, &number, &bound};
        return kernel(graph, {}, count, params);
    }
};

static const unsigned IF = CU_GRAPH_COND_TYPE_IF, WHILE = CU_GRAPH_COND_TYPE_WHILE, SWITCH = CU_GRAPH_COND_TYPE_SWITCH;

// Which body is done, for each value that a kernel before the node sets.
PITFALL(39, a_value_chooses_a_body) {
    Setup s;
    for (unsigned value = 0; value < 5; value++) {
        CUgraph graph = new_graph();
        CUgraphNode node = nullptr, next = nullptr, last = nullptr;
        Value first = s.value(graph, 7), second = s.value(graph, value), third = s.value(graph, 0);
        CUgraphNode before = s.sets(graph, {}, first, value);
        std::vector<CUgraph> bodies = s.node(&node, graph, {before}, first, SWITCH, 3);
        for (unsigned i = 0; i < 3; i++)
            s.adds(bodies[i], {}, i == 0 ? 1 : i == 1 ? 10 : 100);
        std::vector<CUgraph> two = s.node(&next, graph, {node}, second, IF, 2);
        s.adds(two[0], {}, 1000);
        s.adds(two[1], {s.adds(two[1], {}, 1500)}, 500);
        s.adds(s.node(&last, graph, {next}, third, IF, 1)[0], {}, 10000);
        s.adds(graph, {last}, 20000);
        CUgraphExec exec = instantiate(graph);
        const unsigned chosen[] = {2001, 1010, 1100, 1000, 1000};
        for (unsigned round = 0; round < 2; round++) {
            unsigned got = s.launched(exec);
            EXPECT(got == 20000 + chosen[value], "with %u the word is %u", value, got);
        }
        CK(cuGraphExecDestroy(exec));
        CK(cuGraphDestroy(graph));
    }
}

// A body is repeated until a kernel in it sets the value to 0, also in a nested body.
PITFALL(39, bodies_are_repeated) {
    Setup s;
    CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    Value again = s.value(graph, 1), never = s.value(graph, 0);
    CUgraph body = s.node(&node, graph, {}, again, WHILE, 1)[0];
    CUgraphNode counted = s.counts(body, again, 10);
    CUgraphNode other = nullptr;
    s.adds(s.node(&other, graph, {node}, never, WHILE, 1)[0], {}, 1000);
    CUgraphExec exec = instantiate(graph);
    for (unsigned round = 0; round < 3; round++) {
        unsigned got = s.launched(exec);
        EXPECT(got == 10, "the word is %u", got);
    }
    // The node of the body gets other parameters, in the executable graph and in the graph.
    unsigned bound = 4;
    void *params[] = {&s.word, &again, &bound};
    CUDA_KERNEL_NODE_PARAMS of = Setup::launch(s.count, params);
    CK(cuGraphExecKernelNodeSetParams(exec, counted, &of));
    unsigned got = s.launched(exec);
    EXPECT(got == 4, "with another parameter the word is %u", got);
    bound = 6;
    CK(cuGraphKernelNodeSetParams(counted, &of));
    CUgraphExecUpdateResultInfo info;
    CK(cuGraphExecUpdate(exec, graph, &info));
    EXPECT(info.result == CU_GRAPH_EXEC_UPDATE_SUCCESS, "the update came to %d", info.result);
    got = s.launched(exec);
    EXPECT(got == 6, "after an update the word is %u", got);
    CK_IS(cuGraphNodeSetEnabled(exec, node, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphExecDestroy(exec));

    // A loop in a loop: 3 times 5, with values of the graph and of the body.
    graph = new_graph();
    Value outer = s.value(graph, 1);
    body = s.node(&node, graph, {}, outer, WHILE, 1)[0];
    Value inner = s.value(body, 1);
    EXPECT(outer == 1 && inner == 2, "the values are %llu and %llu", (unsigned long long)outer, (unsigned long long)inner);
    CUdeviceptr rounds = s.word + 4, steps = s.word + 8;
    unsigned three = 3, five = 5;
    CUgraphNode begin = s.sets(body, {}, inner, 1);
    CUDA_MEMSET_NODE_PARAMS zero{steps, 0, 0, 4, 1, 1};
    CUgraphNode cleared = nullptr, loop = nullptr;
    CK(cuGraphAddMemsetNode(&cleared, body, &begin, 1, &zero, s.gpu.context));
    CUgraph deep = s.node(&loop, body, {cleared}, inner, WHILE, 1)[0];
    void *of_steps[] = {&steps, &inner, &five}, *of_rounds[] = {&rounds, &outer, &three};
    s.adds(deep, {s.kernel(deep, {}, s.count, of_steps)}, 1);
    s.kernel(body, {loop}, s.count, of_rounds);
    // The answer of NVIDIA's driver to a body alone is unknown.
    CUgraphExec alone = nullptr;
    if (pitfall::backend() != "native")
        CK_IS(cuGraphInstantiate(&alone, body, 0), CUDA_ERROR_INVALID_VALUE);
    exec = instantiate(graph);
    for (unsigned round = 0; round < 2; round++) {
        got = s.launched(exec);
        EXPECT(got == 15, "the inner body was done %u times", got);
    }
}

// Without a default a value stays from launch to launch.
PITFALL(39, values_without_a_default_stay) {
    Setup s;
    CUgraph graph = new_graph();
    CUgraphNode node = nullptr;
    Value value = s.value(graph, 1, 0);
    s.adds(s.node(&node, graph, {}, value, IF, 1)[0], {}, 100);
    s.sets(graph, {node}, value, 1);
    CUgraphExec exec = instantiate(graph);
    for (unsigned expected : {0u, 100u, 100u}) {
        unsigned got = s.launched(exec);
        EXPECT(got == expected, "the word is %u in place of %u", got, expected);
    }
}

// Streams are captured into bodies, and a node is added to a graph that is being captured.
PITFALL(34, bodies_are_captured) {
    Setup s;
    unsigned term = 2;
    void *params[] = {&s.word, &term};
    auto launch = [&](unsigned with) {
        term = with;
        CK(cuLaunchKernel(s.add, 1, 1, 1, 1, 1, 1, 0, s.stream, params, nullptr));
    };
    CUgraph graph = nullptr, ended = nullptr;
    CK(cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(2);
    CUstreamCaptureStatus status;
    const CUgraphNode *before = nullptr;
    size_t count = 0;
    CK(cuStreamGetCaptureInfo(s.stream, &status, nullptr, &graph, &before, nullptr, &count));
    EXPECT(count == 1, "%zu dependencies", count);
    Value value = s.value(graph, 1);
    CUgraphNode node = nullptr;
    CUgraph body = s.node(&node, graph, {before[0]}, value, IF, 1)[0];
    CK(cuStreamUpdateCaptureDependencies(s.stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    launch(400);
    CK(cuStreamEndCapture(s.stream, &ended));
    EXPECT(ended == graph, "the capture gave another graph");
    CK(cuStreamBeginCaptureToGraph(s.stream, body, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
    launch(30);
    CK(cuMemsetD32Async(s.word + 4, 5, 1, s.stream));
    CK(cuMemcpyDtoDAsync(s.word + 8, s.word + 4, 4, s.stream));
    CK(cuStreamEndCapture(s.stream, &ended));
    EXPECT(ended == body, "the capture gave another graph");
    CUgraphExec exec = instantiate(graph);
    unsigned got = s.launched(exec);
    EXPECT(got == 432, "the word is %u", got);
    CK(cuMemcpyDtoH(&got, s.word + 8, 4));
    EXPECT(got == 5, "the copy is %u", got);
}

// Values and nodes that cannot be, and graphs that have them.
PITFALL(63, conditions_that_cannot_be) {
    Setup s;
    CUgraph graph = new_graph(), other = new_graph();
    Value value = 0;
    CK_IS(cuGraphConditionalHandleCreate(&value, graph, s.gpu.context, 1, 2), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphConditionalHandleCreate(&value, graph, nullptr, 1, 1), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuGraphConditionalHandleCreate(&value, nullptr, s.gpu.context, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphConditionalHandleCreate(nullptr, graph, s.gpu.context, 1, 1), CUDA_ERROR_INVALID_VALUE);
    CUgraphNode node = nullptr;
    std::vector<CUgraph> bodies(1);
    CK_IS(s.try_node(&node, graph, {}, 1, IF, bodies), CUDA_ERROR_INVALID_VALUE);
    value = s.value(graph, 1);
    for (auto [type, count] : std::vector<std::pair<unsigned, unsigned>>{{IF, 3}, {WHILE, 2}, {SWITCH, 0}, {3, 1}}) {
        std::vector<CUgraph> none(count);
        CUresult code = s.try_node(&node, graph, {}, value, type, none);
        EXPECT(code == CUDA_ERROR_INVALID_VALUE, "type %u with %u bodies: %d", type, count, code);
    }
    for (Value none : {Value(0), Value(2), ~Value(0), value << 32 | value})
        CK_IS(s.try_node(&node, graph, {}, none, IF, bodies), CUDA_ERROR_INVALID_VALUE);
    // A value that no node depends on.
    CUgraphExec exec = nullptr;
    CK_IS(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CK(s.try_node(&node, graph, {}, value, IF, bodies));
    CK_IS(s.try_node(&node, graph, {}, value, IF, bodies), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphDestroy(bodies[0]), CUDA_ERROR_INVALID_VALUE);
    CUgraph clone = nullptr;
    CUgraphNode child = nullptr;
    CK_IS(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphAddChildGraphNode(&child, other, nullptr, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphNodeType type;
    CK(cuGraphNodeGetType(node, &type));
    EXPECT(type == CU_GRAPH_NODE_TYPE_CONDITIONAL, "the type is %d", type);
    // Nodes of a body are not for other graphs, nor others' for it. The sums are one after the other.
    CUgraphNode outside = s.adds(graph, {node}, 1), inside = s.adds(bodies[0], {}, 1), none = nullptr;
    CK_IS(cuGraphAddEmptyNode(&none, graph, &inside, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphAddEmptyNode(&none, bodies[0], &outside, 1), CUDA_ERROR_INVALID_VALUE);
    // Bodies have no calls, events and pageable memory.
    auto refused = [&](CUgraphNode wrong, const char *name) {
        CUresult code = cuGraphInstantiate(&exec, graph, 0);
        EXPECT(code == CUDA_ERROR_INVALID_VALUE, "a body with %s: %d", name, code);
        CK(cuGraphDestroyNode(wrong));
    };
    CUDA_HOST_NODE_PARAMS call{[](void *) {}, nullptr};
    CK(cuGraphAddHostNode(&none, bodies[0], nullptr, 0, &call));
    refused(none, "a call");
    CUevent event;
    CK(cuEventCreate(&event, 0));
    CK(cuGraphAddEventRecordNode(&none, bodies[0], nullptr, 0, event));
    refused(none, "a record");
    CK(cuGraphAddEventWaitNode(&none, bodies[0], nullptr, 0, event));
    refused(none, "a wait");
    static char pageable[64];
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pageable;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = s.word + 8;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    CK(cuGraphAddMemcpyNode(&none, bodies[0], nullptr, 0, &copy, s.gpu.context));
    refused(none, "a copy from pageable memory");
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, 64));
    copy.srcHost = pinned;
    CK(cuGraphAddMemcpyNode(&none, bodies[0], nullptr, 0, &copy, s.gpu.context));
    exec = instantiate(graph);
    // Once at a time.
    CUgraphExec second = nullptr;
    CK_IS(cuGraphInstantiate(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    unsigned got = s.launched(exec);
    EXPECT(got == 2, "the word is %u", got);
    // When its node is destroyed, a value is free for another one.
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroyNode(node));
    CK_IS(cuGraphInstantiate(&exec, graph, 0), CUDA_ERROR_INVALID_VALUE);
    CK(s.try_node(&node, graph, {}, value, IF, bodies));
    CK(cuGraphDestroy(graph));
    CK(cuGraphDestroy(other));
}

// A kernel that sets a value in no graph has no such value.
PITFALL(63, values_are_set_in_graphs_alone) {
    Setup s;
    Value number = 1;
    unsigned value = 1;
    void *params[] = {&number, &value};
    CK(cuLaunchKernel(s.set, 1, 1, 1, 1, 1, 1, 0, s.stream, params, nullptr));
    CK_IS(cuStreamSynchronize(s.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PITFALL_MAIN
