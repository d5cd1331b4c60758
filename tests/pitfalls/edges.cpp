// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Edges of graphs that wait for a part of a launch: from captures and by hand (pitfalls 37, 38, 42). The expected edges
// are those of an H100 (driver 580.159.04).
#include "driver.h"

// Each node adds to its own word, so that overlapping launches have the same results as others.
struct Adder {
    CUfunction kernel;
    CUdeviceptr words = device_words(8, 0);

    explicit Adder(Gpu &gpu) : kernel(gpu.function("step")) {}

    CUresult launch(CUstream stream, unsigned word, std::vector<CUlaunchAttribute> attributes = {}) {
        CUlaunchConfig config = {};
        config.gridDimX = config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = config.blockDimY = config.blockDimZ = 1;
        config.hStream = stream;
        config.attrs = attributes.data();
        config.numAttrs = (unsigned)attributes.size();
        CUdeviceptr at = words + 4 * word;
        unsigned factor = 1, term = 1;
        void *params[] = {&at, &factor, &term};
        return cuLaunchKernelEx(&config, kernel, params, nullptr);
    }

    CUgraphNode add(CUgraph graph, unsigned word) {
        CUDA_KERNEL_NODE_PARAMS node = {};
        node.func = kernel;
        node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1;
        CUdeviceptr at = words + 4 * word;
        unsigned factor = 1, term = 1;
        void *params[] = {&at, &factor, &term};
        node.kernelParams = params;
        CUgraphNode made = nullptr;
        CK(cuGraphAddKernelNode(&made, graph, nullptr, 0, &node));
        return made;
    }

    // Launches a graph twice, and expects every word below `count` to have been added to as often.
    void run(CUgraph graph, unsigned count) {
        CUgraphExec exec = nullptr;
        CK(cuMemsetD32(words, 0, 8));
        CK(cuGraphInstantiate(&exec, graph, 0));
        for (int i = 0; i < 2; i++)
            CK(cuGraphLaunch(exec, nullptr));
        CK(cuCtxSynchronize());
        std::vector<unsigned> all(count);
        CK(cuMemcpyDtoH(all.data(), words, 4 * count));
        for (unsigned i = 0; i < count; i++)
            EXPECT(all[i] == 2, "word %u: %u", i, all[i]);
        CK(cuGraphExecDestroy(exec));
    }
};

static CUlaunchAttribute overlap(int allowed) {
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = allowed;
    return attribute;
}

// Goes on where launches may overlap: before compute capability 9 they need not be able to.
static void expect_overlap(const Gpu &gpu, Adder &adder) {
    CUresult code = adder.launch(nullptr, 7, {overlap(1)});
    if (code != CUDA_SUCCESS && gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9)
        pitfall::skip("launches do not overlap");
    CK(code);
}

static CUgraphEdgeData edge(int from_port, int type, int to_port = 0) {
    CUgraphEdgeData data = {};
    data.from_port = (unsigned char)from_port;
    data.to_port = (unsigned char)to_port;
    data.type = (unsigned char)type;
    return data;
}

// "from>to:from_port,to_port,type" of each edge, in order.
static std::string edges_of(CUgraph graph) {
    std::vector<CUgraphNode> nodes(64), from(64), to(64);
    std::vector<CUgraphEdgeData> data(64);
    size_t count = nodes.size(), edges = data.size();
    CK(cuGraphGetNodes(graph, nodes.data(), &count));
    CK(cuGraphGetEdges_v2(graph, from.data(), to.data(), data.data(), &edges));
    std::vector<std::string> all;
    for (size_t i = 0; i < edges; i++) {
        auto number = [&](CUgraphNode of) { return std::to_string(std::find(nodes.begin(), nodes.end(), of) - nodes.begin()); };
        char parts[32];
        snprintf(parts, sizeof parts, ":%d,%d,%d", data[i].from_port, data[i].to_port, data[i].type);
        all.push_back(number(from[i]) + ">" + number(to[i]) + parts);
    }
    std::sort(all.begin(), all.end());
    std::string text;
    for (const std::string &one : all)
        text += (text.empty() ? "" : " ") + one;
    return text;
}

static void expect_edges(CUgraph graph, const std::string &expected) {
    std::string found = edges_of(graph);
    EXPECT(found == expected, "%s and not %s", found.c_str(), expected.c_str());
}

PITFALL(37, a_captured_launch_that_may_overlap_has_an_edge_that_says_so) {
    Gpu gpu;
    Adder adder(gpu);
    expect_overlap(gpu, adder);
    CUstream stream = new_stream();
    CUgraph graph = nullptr;
    // The first has nothing to overlap with, a fill is waited for as a whole, and the last may overlap with the one
    // before.
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(adder.launch(stream, 0, {overlap(1)}));
    CK(cuMemsetD32Async(adder.words + 28, 1, 1, stream));
    CK(adder.launch(stream, 1, {overlap(1)}));
    CK(adder.launch(stream, 2, {overlap(0)}));
    CK(adder.launch(stream, 3, {overlap(1)}));
    CK(cuStreamEndCapture(stream, &graph));
    expect_edges(graph, "0>1:0,0,0 1>2:0,0,0 2>3:0,0,0 3>4:1,0,1");
    // It is the edge's, and no attribute of the node.
    std::vector<CUgraphNode> nodes(8);
    size_t count = nodes.size();
    CK(cuGraphGetNodes(graph, nodes.data(), &count));
    CUlaunchAttributeValue value = overlap(1).value;
    CK_IS(cuGraphKernelNodeGetAttribute(nodes[4], CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &value), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGraphKernelNodeSetAttribute(nodes[4], CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, &value), CUDA_ERROR_INVALID_VALUE);
    CUgraph clone = nullptr;
    CK(cuGraphClone(&clone, graph));
    expect_edges(clone, "0>1:0,0,0 1>2:0,0,0 2>3:0,0,0 3>4:1,0,1");
    adder.run(graph, 4);
    adder.run(clone, 4);
    CK(cuGraphDestroy(clone));
    CK(cuGraphDestroy(graph));
}

PITFALL(38, events_of_captured_launches_stand_for_a_part_of_them) {
    Gpu gpu;
    Adder adder(gpu);
    expect_overlap(gpu, adder);
    CUstream stream = new_stream(), other = new_stream();
    CUevent early = nullptr, late = nullptr;
    CK(cuEventCreate(&early, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&late, CU_EVENT_DISABLE_TIMING));
    struct {
        bool completes;
        int at_start;
        bool overlaps;
        CUgraphEdgeData shown;
        const char *edge;
    } cases[] = {
        {false, 0, false, edge(1, 1), "0>1:1,0,1"},
        {false, 1, false, edge(2, 1), "0>1:2,0,1"},
        // A launch that may overlap does not only wait for the start of the blocks.
        {false, 1, true, edge(2, 1), "0>1:1,0,1"},
        {true, 0, false, edge(2, 0), "0>1:2,0,0"},
    };
    for (const auto &of : cases) {
        CUlaunchAttribute records = {};
        if (of.completes) {
            records.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
            records.value.launchCompletionEvent.event = early;
        } else {
            records.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
            records.value.programmaticEvent = {early, 0, of.at_start};
        }
        CUgraph graph = nullptr, own = nullptr;
        CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        CK(adder.launch(stream, 0, {records}));
        CK(cuStreamWaitEvent(other, early, 0));
        CUstreamCaptureStatus status;
        cuuint64_t id = 0;
        const CUgraphNode *nodes = nullptr;
        const CUgraphEdgeData *data = nullptr;
        size_t count = 0;
        CK(cuStreamGetCaptureInfo_v3(other, &status, &id, &own, &nodes, &data, &count));
        EXPECT(count == 1 && memcmp(data, &of.shown, sizeof *data) == 0, "%zu: %d, %d", count, data->from_port, data->type);
        CK_IS(cuStreamGetCaptureInfo_v3(other, &status, &id, &own, &nodes, nullptr, &count), CUDA_ERROR_LOSSY_QUERY);
        CK(adder.launch(other, 1, of.overlaps ? std::vector{overlap(1)} : std::vector<CUlaunchAttribute>()));
        CK(cuEventRecord(late, other));
        // The first launch may not be over when the second one is, so both are waited for.
        CK(cuStreamWaitEvent(stream, late, 0));
        CK(adder.launch(stream, 2));
        CK(cuStreamEndCapture(stream, &graph));
        expect_edges(graph, std::string(of.edge) + " 0>2:0,0,0 1>2:0,0,0");
        adder.run(graph, 3);
        CK(cuGraphDestroy(graph));
    }
    // A launch that is not captured records the event as any other record does.
    CUlaunchAttribute again = {};
    again.id = CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
    again.value.launchCompletionEvent.event = early;
    CK(adder.launch(stream, 0, {again}));
    CK(cuStreamWaitEvent(other, early, 0));
    CK(cuStreamSynchronize(other));
    CK(cuEventQuery(early));
    // A fill may wait so in a capture.
    CUlaunchAttribute records = {};
    records.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    records.value.programmaticEvent = {early, 0, 0};
    CUgraph graph = nullptr;
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CK(adder.launch(stream, 0, {records}));
    CK(cuStreamWaitEvent(other, early, 0));
    CK(cuMemsetD32Async(adder.words + 28, 1, 1, other));
    CK(cuEventRecord(late, other));
    CK(cuStreamWaitEvent(stream, late, 0));
    CK(cuStreamEndCapture(stream, &graph));
    expect_edges(graph, "0>1:1,0,1");
    adder.run(graph, 1);
    CK(cuGraphDestroy(graph));
}

PITFALL(42, edges_for_a_part_are_those_of_launches) {
    Gpu gpu;
    Adder adder(gpu);
    expect_overlap(gpu, adder);
    for (int from = 0; from < 4; from++)
        for (int to = 0; to < 2; to++)
            for (int type = 0; type < 3; type++)
                for (bool fills_first : {false, true})
                    for (bool fills_last : {false, true}) {
                        CUgraph graph = nullptr;
                        CK(cuGraphCreate(&graph, 0));
                        CUgraphNode nodes[2];
                        bool fills[] = {fills_first, fills_last};
                        for (unsigned i = 0; i < 2; i++) {
                            CUDA_MEMSET_NODE_PARAMS fill = {};
                            fill.dst = adder.words + 4 * i;
                            fill.elementSize = 4;
                            fill.width = fill.height = 1;
                            fill.value = 2;
                            if (fills[i])
                                CK(cuGraphAddMemsetNode(&nodes[i], graph, nullptr, 0, &fill, gpu.context));
                            else
                                nodes[i] = adder.add(graph, i);
                        }
                        bool whole = from == 0 && type == 0, order = from == 2 && type == 0;
                        bool programmatic = (from == 1 || from == 2) && type == 1;
                        bool good = to == 0 && (whole || (!fills_first && (order || (programmatic && !fills_last))));
                        CUgraphEdgeData data = edge(from, type, to);
                        CK_IS(cuGraphAddDependencies_v2(graph, &nodes[0], &nodes[1], &data, 1), good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
                        if (good)
                            adder.run(graph, 2);
                        CK(cuGraphDestroy(graph));
                    }
    CUgraph graph = nullptr, other = nullptr;
    CK(cuGraphCreate(&graph, 0));
    CK(cuGraphCreate(&other, 0));
    CUgraphNode a = adder.add(graph, 0), b = adder.add(graph, 1), c = adder.add(other, 0), d = adder.add(other, 1);
    CUgraphEdgeData data = edge(1, 1), plain = {};
    CK(cuGraphAddDependencies_v2(graph, &a, &b, &data, 1));
    CK(cuGraphAddDependencies_v2(other, &c, &d, nullptr, 1));
    // Between two nodes there is one edge.
    CUgraphEdgeData more = edge(2, 0);
    CK_IS(cuGraphAddDependencies_v2(graph, &a, &b, &more, 1), CUDA_ERROR_INVALID_VALUE);
    data.reserved[2] = 1;
    CK_IS(cuGraphAddDependencies_v2(graph, &b, &a, &data, 1), CUDA_ERROR_INVALID_VALUE);
    // A query without a place for edge data fails if there is some.
    CUgraphNode from, to;
    size_t count = 1;
    CK_IS(cuGraphGetEdges_v2(graph, &from, &to, nullptr, &count), CUDA_ERROR_LOSSY_QUERY);
    // An executable graph keeps its edges.
    CUgraphExec exec = nullptr;
    CUgraphExecUpdateResultInfo result = {};
    CK(cuGraphInstantiate(&exec, graph, 0));
    CK(cuGraphExecUpdate(exec, graph, &result));
    CK_IS(cuGraphExecUpdate(exec, other, &result), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    EXPECT(result.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, "%d", result.result);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphRemoveDependencies_v2(graph, &a, &b, &plain, 1));
    expect_edges(graph, "");
    CK(cuGraphDestroy(graph));
    CK(cuGraphDestroy(other));
}

PITFALL_MAIN
