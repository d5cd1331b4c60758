// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Launches of graphs that kernels update (pitfalls 39, 41, 63).
#include "device_runtime.h"
#include "graphs.h"

typedef CUgraphDeviceNode Name;

static const CUlaunchAttributeID UPDATABLE = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;

// The functions are those of cuda_device_runtime_api.h, and an update of several things is its cudaGraphKernelNodeUpdate.
static const char *KERNELS = R"(.version 8.3
.target sm_80
.address_size 64
.extern .func (.param .b32 error) cudaGraphKernelNodeSetParam(.param .b64 node, .param .b64 offset, .param .b64 value, .param .b64 size);
.extern .func (.param .b32 error) cudaGraphKernelNodeSetEnabled(.param .b64 node, .param .b32 enable);
.extern .func (.param .b32 error) cudaGraphKernelNodeSetGridDim(.param .b64 node, .param .align 4 .b8 grid[12]);
.extern .func (.param .b32 error) cudaGraphKernelNodeUpdatesApply(.param .b64 updates, .param .b64 count);
// Each block adds.
.visible .entry add(.param .u64 to, .param .u32 term) {
    .reg .b64 a; .reg .b32 y;
    ld.param.u64 a, [to];
    ld.param.u32 y, [term];
    red.global.add.u32 [a], y;
    ret;
}
.visible .entry add_twice(.param .u64 to, .param .u32 term) {
    .reg .b64 a; .reg .b32 y;
    ld.param.u64 a, [to];
    ld.param.u32 y, [term];
    add.u32 y, y, y;
    red.global.add.u32 [a], y;
    ret;
}
// The bytes are at value.
.visible .entry set_params(.param .u64 code, .param .u64 node, .param .u64 offset, .param .u64 value, .param .u64 size) {
    .reg .b64 a, n, o, v, s; .reg .b32 x;
    ld.param.u64 a, [code];
    ld.param.u64 n, [node];
    ld.param.u64 o, [offset];
    ld.param.u64 v, [value];
    ld.param.u64 s, [size];
    {
        .param .b64 first, second, third, fourth; .param .b32 result;
        st.param.b64 [first], n;
        st.param.b64 [second], o;
        st.param.b64 [third], v;
        st.param.b64 [fourth], s;
        call.uni (result), cudaGraphKernelNodeSetParam, (first, second, third, fourth);
        ld.param.b32 x, [result];
    }
    st.global.u32 [a], x;
    ret;
}
.visible .entry set_enabled(.param .u64 code, .param .u64 node, .param .u32 enabled) {
    .reg .b64 a, n; .reg .b32 x, e;
    ld.param.u64 a, [code];
    ld.param.u64 n, [node];
    ld.param.u32 e, [enabled];
    {
        .param .b64 first; .param .b32 second, result;
        st.param.b64 [first], n;
        st.param.b32 [second], e;
        call.uni (result), cudaGraphKernelNodeSetEnabled, (first, second);
        ld.param.b32 x, [result];
    }
    st.global.u32 [a], x;
    ret;
}
.visible .entry set_grid(.param .u64 code, .param .u64 node, .param .u32 x, .param .u32 y, .param .u32 z) {
    .reg .b64 a, n; .reg .b32 r, s, t, u;
    ld.param.u64 a, [code];
    ld.param.u64 n, [node];
    ld.param.u32 s, [x];
    ld.param.u32 t, [y];
    ld.param.u32 u, [z];
    {
        .param .b64 first; .param .align 4 .b8 second[12]; .param .b32 result;
        st.param.b64 [first], n;
        st.param.b32 [second], s;
        st.param.b32 [second+4], t;
        st.param.b32 [second+8], u;
        call.uni (result), cudaGraphKernelNodeSetGridDim, (first, second);
        ld.param.b32 r, [result];
    }
    st.global.u32 [a], r;
    ret;
}
.visible .entry apply(.param .u64 code, .param .u64 updates, .param .u64 count) {
    .reg .b64 a, u, n; .reg .b32 x;
    ld.param.u64 a, [code];
    ld.param.u64 u, [updates];
    ld.param.u64 n, [count];
    {
        .param .b64 first, second; .param .b32 result;
        st.param.b64 [first], u;
        st.param.b64 [second], n;
        call.uni (result), cudaGraphKernelNodeUpdatesApply, (first, second);
        ld.param.b32 x, [result];
    }
    st.global.u32 [a], x;
    ret;
})";

// cudaGraphKernelNodeUpdate.
struct Update {
    Name node;
    enum Field : unsigned { NONE, GRID, PARAM, ENABLED } field;
    unsigned pad;
    unsigned long long value[3];
};
static_assert(sizeof(Update) == 40, "the structure of cuda_device_runtime_api.h");

struct Setup {
    Gpu gpu;
    CUfunction add, add_twice, set_params, set_enabled, set_grid, apply;
    // Words: 0 for sums, 1 for results, 8 for a value, 16 for updates.
    CUdeviceptr words;
    CUstream stream;

    Setup() {
        CUmodule module = with_device_runtime(KERNELS);
        add = function_of(module, "add");
        add_twice = function_of(module, "add_twice");
        set_params = function_of(module, "set_params");
        set_enabled = function_of(module, "set_enabled");
        set_grid = function_of(module, "set_grid");
        apply = function_of(module, "apply");
        CK(cuMemAlloc(&words, 1024));
        CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CK(cuMemsetD32(words, 0, 256));
        CK(cuCtxSynchronize());
    }

    static CUDA_KERNEL_NODE_PARAMS launch(CUfunction function, void **params) {
        CUDA_KERNEL_NODE_PARAMS of{};
        of.func = function;
        of.gridDimX = of.gridDimY = of.gridDimZ = of.blockDimX = of.blockDimY = of.blockDimZ = 1;
        of.kernelParams = params;
        return of;
    }

    CUgraphNode adds(CUgraph graph, std::vector<CUgraphNode> after, unsigned term) const {
        CUdeviceptr to = words;
        void *params[] = {&to, &term};
        CUDA_KERNEL_NODE_PARAMS of = launch(add, params);
        CUgraphNode made = nullptr;
        CK(cuGraphAddKernelNode(&made, graph, after.data(), after.size(), &of));
        return made;
    }

    void set_value(unsigned value) const { CK(cuMemcpyHtoD(words + 32, &value, 4)); }

    // Runs a kernel that updates a node, and returns its result.
    unsigned run(CUfunction function, void **params) const {
        CK(cuMemsetD32(words + 4, ~0u, 1));
        CK(cuCtxSynchronize());
        CK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
        CK(cuStreamSynchronize(stream));
        return word_at(words + 4);
    }

    unsigned param(Name node, unsigned value, unsigned long long offset = 8, unsigned long long size = 4) const {
        set_value(value);
        CUdeviceptr code = words + 4, at = words + 32;
        void *params[] = {&code, &node, &offset, &at, &size};
        return run(set_params, params);
    }

    unsigned enable(Name node, unsigned enabled) const {
        CUdeviceptr code = words + 4;
        void *params[] = {&code, &node, &enabled};
        return run(set_enabled, params);
    }

    unsigned grid(Name node, unsigned x, unsigned y = 1, unsigned z = 1) const {
        CUdeviceptr code = words + 4;
        void *params[] = {&code, &node, &x, &y, &z};
        return run(set_grid, params);
    }

    unsigned updates(std::vector<Update> all) const { return updates(all, words + 64); }

    unsigned updates(std::vector<Update> all, CUdeviceptr at) const {
        CUdeviceptr code = words + 4;
        unsigned long long count = all.size();
        if (count)
            CK(cuMemcpyHtoD(at, all.data(), all.size() * sizeof(Update)));
        void *params[] = {&code, &at, &count};
        return run(apply, params);
    }

    void expect(CUgraphExec exec, unsigned sum, const char *what) const {
        CK(cuMemsetD32(words, 0, 1));
        CK(cuCtxSynchronize());
        CK(cuGraphLaunch(exec, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT(word_at(words) == sum, "%s: the sum is %u, not %u", what, word_at(words), sum);
    }
};

static CUresult set(CUgraphNode node, int updatable, Name *name = nullptr, Name before = nullptr) {
    CUlaunchAttributeValue value{};
    value.deviceUpdatableKernelNode.deviceUpdatable = updatable;
    value.deviceUpdatableKernelNode.devNode = before;
    CUresult code = cuGraphKernelNodeSetAttribute(node, UPDATABLE, &value);
    if (name)
        *name = value.deviceUpdatableKernelNode.devNode;
    return code;
}

static Name mark(CUgraphNode node) {
    Name name = nullptr;
    CK(set(node, 1, &name));
    EXPECT(name != nullptr, "the node has no name");
    return name;
}

static Name name_of(CUgraphNode node, int updatable) {
    CUlaunchAttributeValue value{};
    CK(cuGraphKernelNodeGetAttribute(node, UPDATABLE, &value));
    EXPECT(value.deviceUpdatableKernelNode.deviceUpdatable == updatable, "the attribute is %d, not %d",
           value.deviceUpdatableKernelNode.deviceUpdatable, updatable);
    return value.deviceUpdatableKernelNode.devNode;
}

PITFALL(39, kernels_update_launches) {
    Setup s;
    CUgraph graph = new_graph();
    CUgraphNode first = s.adds(graph, {}, 1000), node = s.adds(graph, {first}, 1);
    EXPECT(name_of(node, 0) == nullptr, "a plain node has a name");
    Name name = mark(node);
    EXPECT(mark(node) == name && name_of(node, 1) == name, "another name");
    EXPECT(s.param(name, 5) == 1, "a node of no executable graph was updated");
    CUgraphExec exec = instantiate(graph);
    CK(cuGraphUpload(exec, s.stream));
    CK(cuStreamSynchronize(s.stream));
    EXPECT(s.param(name, 5) == 0, "the parameter was not set");
    s.expect(exec, 1005, "another parameter");
    s.expect(exec, 1005, "another parameter, again");
    EXPECT(s.grid(name, 2, 3, 2) == 0, "the grid was not set");
    s.expect(exec, 1060, "another grid");
    EXPECT(s.enable(name, 0) == 0, "the node was not disabled");
    s.expect(exec, 1000, "disabled");
    unsigned enabled = 9;
    CK(cuGraphNodeGetEnabled(exec, node, &enabled));
    EXPECT(enabled == 1, "the program sees what a kernel has done: %u", enabled);
    EXPECT(s.enable(name, 1) == 0, "the node was not enabled");
    s.expect(exec, 1060, "enabled");
    s.set_value(7);
    EXPECT(s.updates({{name, Update::GRID, 0, {1ull << 32 | 4, 1, 0}},
                      {name, Update::PARAM, 0, {s.words + 32, 8, 4}},
                      {name, Update::ENABLED, 0, {1, 0, 0}}}) == 0,
           "the updates were refused");
    s.expect(exec, 1028, "several updates at once");
    // An upload changes nothing that kernels have set; a change by the program does.
    CK(cuGraphUpload(exec, s.stream));
    s.expect(exec, 1028, "uploaded again");
    CUdeviceptr to = s.words;
    unsigned term = 100;
    void *params[] = {&to, &term};
    CUDA_KERNEL_NODE_PARAMS other = Setup::launch(s.add_twice, params);
    CK(cuGraphExecKernelNodeSetParams(exec, node, &other));
    s.expect(exec, 1200, "changed by the program");
    EXPECT(s.param(name, 3) == 0, "the parameter of the other function was not set");
    s.expect(exec, 1006, "the other function");
    CK(cuGraphNodeSetEnabled(exec, node, 0));
    s.expect(exec, 1000, "disabled by the program");
    CK(cuGraphNodeSetEnabled(exec, node, 1));
    s.expect(exec, 1200, "enabled by the program");
    // The node keeps its name in the next executable graph, which begins with the graph's own parameters.
    CK(cuGraphExecDestroy(exec));
    CUgraphNode third = s.adds(graph, {node}, 20000);
    exec = instantiate(graph);
    s.expect(exec, 21001, "made again");
    EXPECT(s.param(name, 8) == 0, "the parameter was not set");
    s.expect(exec, 21008, "made again, updated");
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroyNode(third));
    exec = instantiate(graph);
    CK(cuGraphDestroy(graph));
    s.expect(exec, 1001, "the graph is gone");
    CK(cuGraphExecDestroy(exec));
}

// A kernel of the graph updates a later launch, whose function was another one when the name was made.
PITFALL(39, a_kernel_updates_a_launch_behind_it) {
    Setup s;
    for (unsigned long long flags : {0ull, (unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH}) {
        CUgraph graph = new_graph();
        CUgraphNode nodes[2] = {s.adds(graph, {}, 1), s.adds(graph, {}, 2)};
        Name names[2] = {mark(nodes[0]), mark(nodes[1])};
        CUdeviceptr to = s.words, code = s.words + 4, at = s.words + 32;
        unsigned term = 1;
        unsigned long long offset = 8, size = 4;
        void *params[] = {&to, &term};
        CUDA_KERNEL_NODE_PARAMS other = Setup::launch(s.add_twice, params);
        CK(cuGraphKernelNodeSetParams(nodes[1], &other));
        void *arguments[] = {&code, &names[1], &offset, &at, &size};
        CUDA_KERNEL_NODE_PARAMS of = Setup::launch(s.set_params, arguments);
        CUgraphNode setter = nullptr;
        CK(cuGraphAddKernelNode(&setter, graph, &nodes[0], 1, &of));
        CK(cuGraphAddDependencies(graph, &setter, &nodes[1], nullptr, 1));
        CUgraphExec exec = instantiate(graph, flags);
        CK(cuGraphUpload(exec, s.stream));
        for (unsigned value : {50u, 60u}) {
            s.set_value(value);
            s.expect(exec, 1 + 2 * value, flags ? "in a graph for kernels" : "in a graph");
        }
        CK(cuGraphExecDestroy(exec));
        CK(cuGraphDestroy(graph));
    }
}

PITFALL(39, captured_launches_that_kernels_update) {
    Setup s;
    CUdeviceptr to = s.words;
    unsigned term = 3;
    void *params[] = {&to, &term};
    CUlaunchAttribute attribute{};
    attribute.id = UPDATABLE;
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = s.stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    for (int updatable : {0, 1}) {
        attribute.value.deviceUpdatableKernelNode.deviceUpdatable = updatable;
        CK_IS(cuLaunchKernelEx(&config, s.add, params, nullptr), CUDA_ERROR_NOT_SUPPORTED);
    }
    CK(cuStreamBeginCapture(s.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    attribute.value.deviceUpdatableKernelNode.deviceUpdatable = 0;
    CK(cuLaunchKernelEx(&config, s.add, params, nullptr));
    EXPECT(attribute.value.deviceUpdatableKernelNode.devNode == nullptr, "a plain launch has a name");
    attribute.value.deviceUpdatableKernelNode.deviceUpdatable = 1;
    CK(cuLaunchKernelEx(&config, s.add, params, nullptr));
    Name name = attribute.value.deviceUpdatableKernelNode.devNode;
    EXPECT(name != nullptr, "the launch has no name");
    CUgraph graph = nullptr;
    CK(cuStreamEndCapture(s.stream, &graph));
    CUgraphNode nodes[2] = {};
    size_t count = 2;
    CK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 2 && name_of(nodes[0], 0) == nullptr && name_of(nodes[1], 1) == name, "the nodes have other names");
    CUgraphExec exec = instantiate(graph);
    s.expect(exec, 6, "as captured");
    EXPECT(s.param(name, 9) == 0, "the parameter was not set");
    s.expect(exec, 12, "updated");
}

// The rest of the graph is rebuilt: nodes of other types, values and their bodies, and edges between such launches.
PITFALL(39, a_graph_of_all_kinds_is_made_again) {
    Setup s;
    CUgraph graph = new_graph();
    CUgraphConditionalHandle value = 0;
    CK(cuGraphConditionalHandleCreate(&value, graph, s.gpu.context, 1, CU_GRAPH_COND_ASSIGN_DEFAULT));
    CUgraphNode first = s.adds(graph, {}, 1), second = s.adds(graph, {first}, 2), fill = nullptr;
    Name names[2] = {mark(first), mark(second)};
    CUDA_MEMSET_NODE_PARAMS words = words_of(s.words + 8, 9, 1);
    CK(cuGraphAddMemsetNode(&fill, graph, &second, 1, &words, s.gpu.context));
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = value;
    params.conditional.type = CU_GRAPH_COND_TYPE_IF;
    params.conditional.size = 1;
    params.conditional.ctx = s.gpu.context;
    CUgraphNode node = nullptr;
    CK(cuGraphAddNode(&node, graph, &fill, nullptr, 1, &params));
    s.adds(params.conditional.phGraph_out[0], {}, 100);
    unsigned more = 0;
    for (unsigned round = 0; round < 3; round++) {
        CUgraphExec exec = instantiate(graph);
        s.expect(exec, 103 + more, "made");
        EXPECT(s.param(names[0], 10) == 0 && s.param(names[1], 20) == 0, "the parameters were not set");
        CK(cuMemsetD32(s.words + 8, 0, 1));
        s.expect(exec, 130 + more, "updated");
        EXPECT(word_at(s.words + 8) == 9, "the fill is missing");
        CK(cuGraphExecDestroy(exec));
        more += 1000;
        node = s.adds(graph, {node}, 1000);
    }
}

static CUgraph graph_of(CUgraphNode node) {
    CUgraph graph = nullptr;
    CK(cuGraphChildGraphNodeGetGraph(node, &graph));
    return graph;
}

static CUgraphNode first_of(CUgraph graph) {
    CUgraphNode node = nullptr;
    size_t count = 1;
    CK(cuGraphGetNodes(graph, &node, &count));
    return node;
}

// A child graph is a clone, whose launches have the names of the original but are not updated. A moved graph is no clone.
PITFALL(39, launches_that_kernels_update_in_child_graphs) {
    Setup s;
    CUgraph original = new_graph(), parent = new_graph(), moved = new_graph(), outer = new_graph(), clone = nullptr;
    Name name = mark(s.adds(original, {}, 1)), other = mark(s.adds(moved, {}, 2));
    CUgraphNode child = nullptr;
    CK(cuGraphAddChildGraphNode(&child, parent, nullptr, 0, original));
    EXPECT(name_of(first_of(graph_of(child)), 1) == name, "the clone has another name");
    CUgraphExec of_parent = instantiate(parent), of_original = instantiate(original);
    s.expect(of_original, 1, "the original");
    EXPECT(s.param(name, 5) == 0, "the parameter was not set");
    s.expect(of_parent, 1, "the clone in a node");
    s.expect(of_original, 5, "the updated original");
    CK(cuGraphClone(&clone, parent));
    CUgraphNodeParams params;
    memset(&params, 0, sizeof params);
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = moved;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CUgraphNode node = nullptr;
    CK(cuGraphAddNode(&node, outer, nullptr, nullptr, 0, &params));
    s.adds(outer, {node}, 10);
    // A launch of the child graph becomes one later.
    CUgraph plain = new_graph();
    s.adds(plain, {}, 100);
    CK(cuGraphAddChildGraphNode(&child, outer, &node, 1, plain));
    Name late = mark(first_of(graph_of(child)));
    CUgraphExec exec = instantiate(outer);
    s.expect(exec, 112, "child graphs");
    EXPECT(s.param(other, 3) == 0 && s.param(late, 200) == 0, "the parameters were not set");
    s.expect(exec, 213, "updated child graphs");
}

// Such a node stays, and its graph is one of a kind.
PITFALL(41, nodes_that_kernels_update_stay) {
    Setup s;
    CUgraph graph = new_graph(), plain = new_graph(), clone = nullptr;
    CUgraphNode node = s.adds(graph, {}, 1), other = s.adds(graph, {}, 2);
    s.adds(plain, {s.adds(plain, {}, 1)}, 2);
    Name name = nullptr;
    CK_IS(set(node, 2), CUDA_ERROR_INVALID_VALUE);
    CK_IS(set(node, 1, &name, (Name)0x55), CUDA_ERROR_INVALID_VALUE);
    CK(set(node, 0, &name));
    EXPECT(name == nullptr, "a plain node has a name");
    CK(set(node, 1, &name));
    CK_IS(set(node, 0), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphDestroyNode(node), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphKernelNodeCopyAttributes(other, node), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphKernelNodeCopyAttributes(node, other), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExec exec = instantiate(graph), second = nullptr, of_plain = instantiate(plain);
    CK_IS(cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExecUpdateResultInfo info{};
    CK_IS(cuGraphExecUpdate(exec, graph, &info), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphExecUpdate(exec, plain, &info), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuGraphExecUpdate(of_plain, graph, &info), CUDA_ERROR_NOT_SUPPORTED);
    s.expect(exec, 3, "after refused calls");
    // Another node becomes one for the next executable graph.
    Name another = mark(other);
    EXPECT(another != name, "two nodes have one name");
    CK(cuGraphExecDestroy(exec));
    exec = instantiate(graph);
    s.expect(exec, 3, "two nodes");
    EXPECT(s.param(another, 30) == 0 && s.param(name, 10) == 0, "the parameters were not set");
    s.expect(exec, 40, "two updated nodes");
}

PITFALL(63, updates_that_a_kernel_is_refused) {
    Setup s;
    CUgraph graph = new_graph();
    CUgraphNode node = s.adds(graph, {}, 1);
    Name name = mark(node);
    CUgraphExec exec = instantiate(graph);
    s.expect(exec, 1, "before");
    EXPECT(s.param(name, 5, 12) == 1, "a parameter behind the last was set");
    EXPECT(s.param(name, 5, 0, 64) == 1, "parameters beyond the last were set");
    EXPECT(s.param(name, 5, ~0ull - 1) == 1, "parameters before the first were set");
    EXPECT(s.grid(name, 0) == 1 && s.grid(name, 1, 70000) == 1 && s.grid(name, 1, 1, 70000) == 1, "an impossible grid was set");
    EXPECT(s.updates({{name, Update::NONE, 0, {}}}) == 1, "no field was set");
    EXPECT(s.updates({}) == 0 && s.updates({}, 0) == 1, "no updates, and updates nowhere");
    EXPECT(s.enable(nullptr, 0) == 1 && s.param(nullptr, 1) == 1 && s.grid(nullptr, 1) == 1, "no node was updated");
    s.expect(exec, 1, "after");
}

PITFALL_MAIN
