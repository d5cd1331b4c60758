// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Graphs that kernels launch (pitfalls 30, 39, 41, 63).
#include "device_runtime.h"
#include "graphs.h"

typedef unsigned long long Name;

static const char *KERNELS = R"(.version 8.3
.target sm_80
.address_size 64
.extern .func (.param .b32 error) cudaGraphLaunch(.param .b64 graph, .param .b64 stream);
.visible .entry add(.param .u64 to, .param .u32 term) {
    .reg .b64 a; .reg .b32 x, y;
    ld.param.u64 a, [to];
    ld.param.u32 y, [term];
    ld.global.u32 x, [a];
    add.u32 x, x, y;
    st.global.u32 [a], x;
    ret;
}
// to = 10 * to + term: the digits show the order.
.visible .entry append(.param .u64 to, .param .u32 term) {
    .reg .b64 a; .reg .b32 x, y;
    ld.param.u64 a, [to];
    ld.param.u32 y, [term];
    ld.global.u32 x, [a];
    mad.lo.u32 x, x, 10, y;
    st.global.u32 [a], x;
    ret;
}
.visible .entry start(.param .u64 code, .param .u64 graph, .param .u64 stream) {
    .reg .b64 a, g, s; .reg .b32 x;
    ld.param.u64 a, [code];
    ld.param.u64 g, [graph];
    ld.param.u64 s, [stream];
    {
        .param .b64 first, second; .param .b32 result;
        st.param.b64 [first], g;
        st.param.b64 [second], s;
        call.uni (result), cudaGraphLaunch, (first, second);
        ld.param.b32 x, [result];
    }
    st.global.u32 [a], x;
    ret;
}
// Counts, and launches its own graph as a tail while the count is below a bound. Stores the graph's name in name.
.visible .entry again(.param .u64 to, .param .u32 bound, .param .u64 name) {
    .reg .b64 a, g, n, s; .reg .b32 x, m; .reg .pred p;
    ld.param.u64 a, [to];
    ld.param.u32 m, [bound];
    ld.param.u64 n, [name];
    mov.u64 g, %current_graph_exec;
    st.global.u64 [n], g;
    ld.global.u32 x, [a];
    add.u32 x, x, 1;
    st.global.u32 [a], x;
    setp.ge.u32 p, x, m;
    @p ret;
    mov.u64 s, 0x0100000000000000;
    {
        .param .b64 first, second; .param .b32 result;
        st.param.b64 [first], g;
        st.param.b64 [second], s;
        call.uni (result), cudaGraphLaunch, (first, second);
    }
    ret;
})";

// The streams of a kernel for graphs (driver_types.h).
static const Name TAIL = 1ull << 56, FORGET = 2ull << 56, SIBLING = 3ull << 56;

struct Setup {
    Gpu gpu;
    CUfunction add, append, start, again;
    // Words: 0 for sums, 1 for digits, 2 to 9 for results of launches, 10 for a name.
    CUdeviceptr words;
    CUstream stream;

    Setup() {
        CUmodule module = with_device_runtime(KERNELS);
        add = function_of(module, "add");
        append = function_of(module, "append");
        start = function_of(module, "start");
        again = function_of(module, "again");
        CK(cuMemAlloc(&words, 64));
        CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        clear();
    }

    void clear() const {
        CK(cuMemsetD32(words, 0, 16));
        CK(cuCtxSynchronize());
    }

    unsigned word(unsigned index) const {
        unsigned got = ~0u;
        CK(cuMemcpyDtoH(&got, words + 4 * index, 4));
        return got;
    }

    // The first two words, that begin with 0, after a launch.
    void expect(CUgraphExec exec, unsigned sum, unsigned digits, const char *what) const {
        clear();
        CK(cuGraphLaunch(exec, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT(word(0) == sum && word(1) == digits, "%s: the sum is %u, the digits are %u, not %u and %u", what, word(0), word(1),
               sum, digits);
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

    CUgraphNode adds(CUgraph graph, std::vector<CUgraphNode> after, unsigned term, unsigned word = 0) const {
        CUdeviceptr to = words + 4 * word;
        void *params[] = {&to, &term};
        return kernel(graph, after, add, params);
    }

    CUgraphNode appends(CUgraph graph, std::vector<CUgraphNode> after, unsigned digit) const {
        CUdeviceptr to = words + 4;
        void *params[] = {&to, &digit};
        return kernel(graph, after, append, params);
    }

    // Launches a graph, and puts the result in a word.
    CUgraphNode starts(CUgraph graph, std::vector<CUgraphNode> after, CUgraphExec which, Name in, unsigned word) const {
        CUdeviceptr code = words + 4 * word;
        Name name = (Name)which;
        void *params[] = {&code, &name, &in};
        return kernel(graph, after, start, params);
    }
};

// One for kernels, ready.
static CUgraphExec for_kernels(CUgraph graph, CUstream stream) {
    CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    CK(cuGraphUpload(exec, stream));
    CK(cuStreamSynchronize(stream));
    return exec;
}

// Graphs of digits: each appends one.
static CUgraphExec digit(const Setup &s, unsigned which) {
    CUgraph graph = new_graph();
    s.appends(graph, {}, which);
    CUgraphExec exec = for_kernels(graph, s.stream);
    CK(cuGraphDestroy(graph));
    return exec;
}

// A tail begins when the whole graph has ended, including graphs that were fired before it, and the stream continues
// after all of them.
PITFALL(39, kernels_launch_graphs) {
    Setup s;
    CUgraphExec one = digit(s, 1), two = digit(s, 2), three = digit(s, 3);
    for (unsigned long long flags : {0ull, (unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH}) {
        CUgraph graph = new_graph();
        CUgraphNode node = s.starts(graph, {}, two, TAIL, 2);
        node = s.starts(graph, {node}, three, TAIL, 3);
        node = s.starts(graph, {node}, one, FORGET, 4);
        s.adds(graph, {node}, 7);
        CUgraphExec exec = instantiate(graph, flags);
        for (unsigned round = 0; round < 3; round++)
            s.expect(exec, 7, 123, flags ? "in a graph for kernels" : "in a graph");
        for (unsigned index = 2; index < 5; index++)
            EXPECT(s.word(index) == 0, "launch %u: result %u", index, s.word(index));
        // After the launch in its stream.
        s.clear();
        CUdeviceptr to = s.words + 4;
        unsigned last = 9;
        void *params[] = {&to, &last};
        CK(cuGraphLaunch(exec, s.stream));
        CK(cuLaunchKernel(s.append, 1, 1, 1, 1, 1, 1, 0, s.stream, params, nullptr));
        CK(cuStreamSynchronize(s.stream));
        EXPECT(s.word(1) == 1239, "the digits are %u", s.word(1));
        CK(cuGraphExecDestroy(exec));
        CK(cuGraphDestroy(graph));
    }
    // A sibling of a graph that a kernel has launched.
    CUgraph inner = new_graph(), outer = new_graph();
    s.starts(inner, {}, one, SIBLING, 2);
    CUgraphExec middle = for_kernels(inner, s.stream);
    CUgraphNode node = s.starts(outer, {}, two, TAIL, 4);
    s.starts(outer, {node}, middle, FORGET, 3);
    s.expect(instantiate(outer), 0, 12, "with a sibling");
}

// A kernel learns the name of its graph, launches that again and again, and the host waits for all.
PITFALL(39, a_graph_launches_itself) {
    Setup s;
    CUgraph graph = new_graph();
    unsigned bound = 1000;
    CUdeviceptr name = s.words + 40;
    void *params[] = {&s.words, &bound, &name};
    CUgraphNode node = s.kernel(graph, {}, s.again, params);
    CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    cuuint64_t flags = 0;
    CK(cuGraphExecGetFlags(exec, &flags));
    EXPECT(flags == CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH, "the flags are %llu", (unsigned long long)flags);
    s.expect(exec, 1000, 0, "itself");
    Name got = 0;
    CK(cuMemcpyDtoH(&got, name, 8));
    EXPECT(got == (Name)exec, "its name is %llx, its handle %llx", got, (Name)exec);
    // Another parameter, for launches by the host at once, and an update from the graph.
    bound = 17;
    CUDA_KERNEL_NODE_PARAMS of = Setup::launch(s.again, params);
    CK(cuGraphExecKernelNodeSetParams(exec, node, &of));
    s.expect(exec, 17, 0, "with another parameter");
    bound = 5;
    CK(cuGraphKernelNodeSetParams(node, &of));
    CUgraphExecUpdateResultInfo info;
    CK(cuGraphExecUpdate(exec, graph, &info));
    s.expect(exec, 5, 0, "after an update");
    CK(cuMemcpyDtoH(&got, name, 8));
    EXPECT(got == (Name)exec, "after an update its name is %llx, its handle %llx", got, (Name)exec);
    // In an ordinary graph there is no name.
    bound = 1;
    CK(cuGraphKernelNodeSetParams(node, &of));
    s.expect(instantiate(graph), 1, 0, "in an ordinary graph");
    CK(cuMemcpyDtoH(&got, name, 8));
    EXPECT(got == 0, "the name is %llx", got);
}

// The kinds of nodes that such a graph can have, in a graph in it too.
PITFALL(39, graphs_for_kernels_fill_copy_and_have_graphs) {
    Setup s;
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, 64));
    *(unsigned *)pinned = 30;
    CUgraph inner = new_graph(), graph = new_graph(), outer = new_graph();
    CUgraphNode node = nullptr, child = nullptr;
    CUDA_MEMSET_NODE_PARAMS fill{s.words, 0, 4, 4, 1, 1};
    CK(cuGraphAddMemsetNode(&node, inner, nullptr, 0, &fill, s.gpu.context));
    s.adds(inner, {node}, 100);
    // The graph has two ends.
    s.adds(inner, {node}, 1, 9);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = s.words + 4;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    CK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, s.gpu.context));
    CK(cuGraphAddChildGraphNode(&child, graph, &node, 1, inner));
    node = s.appends(graph, {child}, 5);
    CUgraphExec exec = for_kernels(graph, s.stream);
    s.starts(outer, {}, exec, FORGET, 2);
    CUgraphExec by_kernel = instantiate(outer);
    s.expect(exec, 104, 305, "by the host");
    s.expect(by_kernel, 104, 305, "by a kernel");
    // A change counts for kernels when it was uploaded, or the host has launched the graph.
    CK(cuGraphNodeSetEnabled(exec, node, 0));
    CK(cuGraphUpload(exec, s.stream));
    s.expect(by_kernel, 104, 30, "without a node");
    unsigned digit = 7;
    CUdeviceptr to = s.words + 4;
    void *params[] = {&to, &digit};
    CUDA_KERNEL_NODE_PARAMS of = Setup::launch(s.append, params);
    CK(cuGraphNodeSetEnabled(exec, node, 1));
    CK(cuGraphExecKernelNodeSetParams(exec, node, &of));
    s.expect(exec, 104, 307, "changed, by the host");
    s.expect(by_kernel, 104, 307, "changed, by a kernel");
}

static const unsigned no_operation = CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;

// Instantiations that cannot be, with the node that is the reason.
PITFALL(63, graphs_that_kernels_cannot_launch) {
    Setup s;
    const unsigned long long for_device = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    auto refused = [&](CUgraph graph, unsigned result, CUgraphNode node, const char *what) {
        CUDA_GRAPH_INSTANTIATE_PARAMS params{};
        params.flags = for_device;
        CUgraphExec exec = nullptr;
        CUresult code = cuGraphInstantiateWithParams(&exec, graph, &params);
        EXPECT(code == CUDA_ERROR_INVALID_VALUE && params.result_out == result && params.hErrNode_out == node,
               "%s: %d, result %d, node %p", what, code, params.result_out, (void *)params.hErrNode_out);
        CK_IS(cuGraphInstantiate(&exec, graph, for_device), CUDA_ERROR_INVALID_VALUE);
    };
    CUgraph graph = new_graph();
    refused(graph, CUDA_GRAPH_INSTANTIATE_ERROR, nullptr, "nothing");
    s.adds(graph, {}, 1);
    auto with = [&](CUgraphNode wrong, const char *what, unsigned result = no_operation) {
        refused(graph, result, wrong, what);
        CK(cuGraphDestroyNode(wrong));
    };
    CUgraphNode node = nullptr;
    CK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    with(node, "an empty node");
    CUDA_HOST_NODE_PARAMS call{[](void *) {}, nullptr};
    CK(cuGraphAddHostNode(&node, graph, nullptr, 0, &call));
    with(node, "a call");
    CUevent event;
    CK(cuEventCreate(&event, 0));
    CK(cuGraphAddEventRecordNode(&node, graph, nullptr, 0, event));
    with(node, "a record");
    CK(cuGraphAddEventWaitNode(&node, graph, nullptr, 0, event));
    with(node, "a wait");
    static char pageable[64];
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pageable;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = s.words;
    copy.WidthInBytes = 4;
    copy.Height = copy.Depth = 1;
    CK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, s.gpu.context));
    // That is no memory of the device that the other node is on.
    with(node, "a copy from pageable memory", CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED);
    CUgraph alone = new_graph();
    CK(cuGraphAddMemcpyNode(&node, alone, nullptr, 0, &copy, s.gpu.context));
    refused(alone, no_operation, node, "a copy from pageable memory alone");
    // In a graph that is a node.
    CUgraph inner = new_graph(), outer = new_graph(), embedded = nullptr;
    CK(cuGraphAddHostNode(&node, inner, nullptr, 0, &call));
    CK(cuGraphAddChildGraphNode(&node, outer, nullptr, 0, inner));
    CK(cuGraphChildGraphNodeGetGraph(node, &embedded));
    size_t count = 1;
    CK(cuGraphGetNodes(embedded, &node, &count));
    refused(outer, no_operation, node, "a call in a graph that is a node");
    // In another context of the device. Only copies may be.
    CUcontext other;
    CUdeviceptr far = 0;
    CK(cuCtxCreate(&other, nullptr, 0, s.gpu.device));
    CK(cuMemAlloc(&far, 4));
    CK(cuCtxSetCurrent(s.gpu.context));
    CUDA_MEMSET_NODE_PARAMS fill = words_of(far, 0, 1);
    CK(cuGraphAddMemsetNode(&node, graph, nullptr, 0, &fill, other));
    with(node, "a fill in another context", CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED);
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = far;
    CK(cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, other));
    CUgraphExec exec = nullptr;
    CK(cuGraphInstantiate(&exec, graph, for_device));
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroyNode(node));
    CK_IS(cuGraphInstantiate(&exec, graph, for_device | CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
          CUDA_ERROR_INVALID_VALUE);
    // There is no stream for the upload.
    CK_IS(cuGraphInstantiate(&exec, graph, for_device | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphInstantiate(&exec, graph, for_device | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    s.expect(exec, 1, 0, "the rest");
}

// Launches that are refused to a kernel, and the lifetime of the handle.
PITFALL(63, launches_that_a_kernel_is_refused) {
    Setup s;
    CUgraph graph = new_graph(), outer = new_graph();
    s.appends(graph, {}, 1);
    CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH);
    s.starts(outer, {}, exec, FORGET, 2);
    CUgraphExec by_kernel = instantiate(outer);
    s.expect(by_kernel, 0, 0, "not uploaded");
    EXPECT(s.word(2) == 1, "not uploaded: result %u", s.word(2));
    // Instantiated with an upload.
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
    params.hUploadStream = s.stream;
    CUgraphExec second = nullptr;
    CK(cuGraphInstantiateWithParams(&second, graph, &params));
    EXPECT(second != exec, "two graphs have one name");
    CUgraph twice = new_graph();
    CUgraphNode node = s.starts(twice, {}, second, TAIL, 2);
    s.starts(twice, {node}, second, TAIL, 3);
    CUgraphExec both = instantiate(twice);
    for (unsigned round = 0; round < 2; round++) {
        s.expect(both, 0, 1, "twice");
        EXPECT(s.word(2) == 0 && s.word(3) == 1, "twice: results %u and %u", s.word(2), s.word(3));
    }
    // Streams that are not for graphs.
    for (Name in : {0ull, 1ull, 2ull, 3ull, 4ull << 56, 5ull << 56}) {
        CUgraph once = new_graph();
        s.starts(once, {}, second, in, 2);
        CUgraphExec of = instantiate(once);
        s.expect(of, 0, 0, "no stream for graphs");
        EXPECT(s.word(2) == 1, "in stream 0x%llx: result %u", in, s.word(2));
        CK(cuGraphExecDestroy(of));
        CK(cuGraphDestroy(once));
    }
    // A name is free for another graph after its graph was destroyed, any number of times.
    for (unsigned round = 0; round < 64; round++) {
        CK(cuGraphExecDestroy(exec));
        exec = for_kernels(graph, s.stream);
    }
    s.expect(exec, 0, 1, "after 64 others");
    // A stream's kernel cannot launch graphs. Through the guest's library the launch may be posted: its error is
    // returned by a later call.
    if (pitfall::backend() == "native" || pitfall::backend() == "software") {
        CUdeviceptr code = s.words;
        Name name = (Name)exec, in = FORGET;
        void *arguments[] = {&code, &name, &in};
        CK_IS(cuLaunchKernel(s.start, 1, 1, 1, 1, 1, 1, 0, s.stream, arguments, nullptr), CUDA_ERROR_NOT_SUPPORTED);
    }
}

// A kernel that launches something else has touched memory that is not there.
PITFALL(30, a_kernel_that_launches_no_graph_fails) {
    Setup s;
    CUgraph graph = new_graph(), outer = new_graph();
    s.adds(graph, {}, 1);
    // An ordinary graph has no name for kernels.
    CUgraphExec exec = instantiate(graph);
    s.starts(outer, {}, exec, FORGET, 2);
    CUgraphExec by_kernel = instantiate(outer);
    CK(cuGraphLaunch(by_kernel, s.stream));
    CK_IS(cuStreamSynchronize(s.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    CK_IS(cuGraphLaunch(by_kernel, s.stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PITFALL_MAIN
