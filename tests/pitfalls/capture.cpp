// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Stream capture: the recorded calls, the forbidden calls, and the errors of each (pitfalls 34 to 38, 76).
#include "driver.h"

static CUstreamCaptureStatus status_of(CUstream stream) {
    CUstreamCaptureStatus status = (CUstreamCaptureStatus)77;
    CK(cuStreamIsCapturing(stream, &status));
    return status;
}

static void begin(CUstream stream, CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL) {
    CK(cuStreamBeginCapture(stream, mode));
    EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%d", status_of(stream));
}

static CUgraph end(CUstream stream) {
    CUgraph graph = nullptr;
    CK(cuStreamEndCapture(stream, &graph));
    EXPECT(graph != nullptr, "no graph");
    EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE, "%d", status_of(stream));
    return graph;
}

// The capture ends with this error and without a graph, and the stream can be used and captured again.
static void end_without(CUstream stream, CUresult code) {
    CUgraph graph = (CUgraph)8;
    CK_IS(cuStreamEndCapture(stream, &graph), code);
    EXPECT(graph == nullptr, "a graph at %p", (void *)graph);
    EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_NONE, "%d", status_of(stream));
    CK(cuStreamSynchronize(stream));
    begin(stream);
    CK(cuGraphDestroy(end(stream)));
}

static std::vector<CUgraphNode> nodes_of(CUgraph graph) {
    size_t count = 0;
    CK(cuGraphGetNodes(graph, nullptr, &count));
    std::vector<CUgraphNode> nodes(count);
    if (count)
        CK(cuGraphGetNodes(graph, nodes.data(), &count));
    return nodes;
}

static std::vector<int> types_of(CUgraph graph) {
    std::vector<int> types;
    for (CUgraphNode node : nodes_of(graph)) {
        CUgraphNodeType type;
        CK(cuGraphNodeGetType(node, &type));
        types.push_back(type);
    }
    return types;
}

static CUgraphExec instantiate(CUgraph graph, unsigned long long flags = 0) {
    CUgraphExec exec = nullptr;
    CK(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

// Launches a graph `times` times, waits, and destroys it and its graph.
static void replay(CUgraph graph, CUstream stream, int times = 1) {
    CUgraphExec exec = instantiate(graph);
    for (int i = 0; i < times; i++)
        CK(cuGraphLaunch(exec, stream));
    CK(cuStreamSynchronize(stream));
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

static unsigned word_at(CUdeviceptr at) {
    unsigned word = ~0u;
    CK(cuMemcpyDtoH(&word, at, 4));
    return word;
}

PITFALL(37, asynchronous_calls_are_nodes_of_their_own_types) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill"), step = gpu.function("step");
    const unsigned count = 1 << 16;
    CUdeviceptr a = device_words(count), b = device_words(count), c = device_words(1, 1);
    unsigned *pinned = pinned_words(count, 5), *back = pinned_words(count, 0);
    std::vector<unsigned> near(count, 9), far(count, 0);
    begin(stream);
    CK(cuMemcpyHtoDAsync(a, pinned, count * 4, stream));
    CK(cuMemcpyDtoDAsync(b, a, count * 4, stream));
    CK(cuMemcpyDtoHAsync(back, b, count * 4, stream));
    CK(cuMemsetD32Async(b, 3, count / 2, stream));
    CK(cuMemsetD8Async(b, 0, 3, stream));
    LAUNCH(fill, 4, 64, stream, a, 7u, 100u);
    LAUNCH(step, 1, 1, stream, c, 3u, 1u);
    CK(cuMemcpyHtoDAsync(b + count * 2, near.data(), count * 2, stream));
    CK(cuMemcpyDtoHAsync(far.data(), b, count * 4, stream));
    CK(cuMemcpyAsync(a + 400, b, 4, stream));
    // Nothing of that has happened.
    EXPECT(back[0] == 0 && far[0] == 0, "%u, %u", back[0], far[0]);
    CUgraph graph = end(stream);
    EXPECT(word_at(a) == 0 && word_at(c) == 1, "what was recorded was done");
    const int K = CU_GRAPH_NODE_TYPE_KERNEL, C = CU_GRAPH_NODE_TYPE_MEMCPY, F = CU_GRAPH_NODE_TYPE_MEMSET;
    std::vector<int> types = types_of(graph), want = {C, C, C, F, F, K, K, C, C, C};
    EXPECT(types == want, "%zu nodes, the first of type %d", types.size(), types.empty() ? -1 : types[0]);
    size_t edges = 0;
    CK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT(edges == want.size() - 1, "%zu edges", edges);
    // Host memory is read when the node is reached, pageable memory too.
    std::fill_n(pinned, count, 6);
    std::fill(near.begin(), near.end(), 10);
    replay(graph, stream, 3);
    EXPECT_WORDS(back, count, 6);
    EXPECT(far[0] == (3u & 0xff000000), "0x%x", far[0]);
    EXPECT_WORDS(&far[1], count / 2 - 1, 3);
    EXPECT_WORDS(&far[count / 2], count / 2, 10);
    EXPECT(word_at(a) == 7 && word_at(a + 396) == 7 && word_at(a + 400) == 0 && word_at(a + 404) == 6, "a is wrong");
    EXPECT(word_at(c) == 40, "%u: not three times", word_at(c));
}

PITFALL(37, rows_and_boxes_are_one_node) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr a = device_words(4096, 1), b = device_words(4096, 2);
    std::vector<unsigned> near(4096, 3);
    begin(stream);
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcDevice = a;
    rows.dstDevice = b;
    rows.srcPitch = 256;
    rows.dstPitch = 512;
    rows.WidthInBytes = 100;
    rows.Height = 10;
    rows.dstXInBytes = 12;
    rows.srcY = 2;
    CK(cuMemcpy2DAsync(&rows, stream));
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_HOST;
    box.srcHost = near.data();
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = a;
    box.srcPitch = 64;
    box.srcHeight = 8;
    box.dstPitch = 128;
    box.dstHeight = 16;
    box.WidthInBytes = 32;
    box.Height = 4;
    box.Depth = 2;
    CK(cuMemcpy3DAsync(&box, stream));
    CK(cuMemsetD2D32Async(b + 8192, 512, 4, 8, 3, stream));
    CUgraph graph = end(stream);
    std::vector<int> want = {CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_MEMSET};
    EXPECT(types_of(graph) == want, "%zu nodes", types_of(graph).size());
    replay(graph, stream);
    EXPECT(word_at(b + 8) == 2 && word_at(b + 12) == 1 && word_at(b + 108) == 1 && word_at(b + 112) == 2, "the row is wrong");
    EXPECT(word_at(b + 512 * 9 + 12) == 1 && word_at(b + 512 * 10 + 12) == 2, "the rows are wrong");
    EXPECT(word_at(a) == 3 && word_at(a + 28) == 3 && word_at(a + 32) == 1 && word_at(a + 128 * 3) == 3, "the slice is wrong");
    EXPECT(word_at(a + 128 * 4) == 1 && word_at(a + 128 * 16) == 3 && word_at(a + 128 * 20) == 1, "the slices are wrong");
    EXPECT(word_at(b + 8192 + 1024 + 28) == 4 && word_at(b + 8192 + 1024 + 32) == 2, "the fill is wrong");
}

PITFALL(37, copies_of_arrays_are_nodes) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr a = device_words(1024, 1), b = device_words(1024, 2);
    std::vector<unsigned> near(64, 3), back(64, 0);
    CUDA_ARRAY3D_DESCRIPTOR form{16, 4, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
    CUarray one = nullptr, other = nullptr;
    CK(cuArray3DCreate(&one, &form));
    CK(cuArray3DCreate(&other, &form));
    // Device memory to the first array, the middle of that to the second, pageable memory to its last row, and all of
    // it back to device memory and to pageable memory.
    begin(stream);
    CUDA_MEMCPY3D box{};
    box.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    box.srcDevice = a;
    box.srcPitch = 128;
    box.srcHeight = 4;
    box.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    box.dstArray = one;
    box.WidthInBytes = 64;
    box.Height = 4;
    box.Depth = 1;
    CK(cuMemcpy3DAsync(&box, stream));
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    rows.srcArray = one;
    rows.srcXInBytes = 16;
    rows.srcY = 1;
    rows.dstArray = other;
    rows.WidthInBytes = 32;
    rows.Height = 2;
    CK(cuMemcpy2DAsync(&rows, stream));
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcXInBytes = rows.srcY = 0;
    rows.srcHost = near.data();
    rows.srcPitch = 64;
    rows.dstY = 3;
    rows.WidthInBytes = 64;
    rows.Height = 1;
    CK(cuMemcpy2DAsync(&rows, stream));
    CUDA_MEMCPY2D out{};
    out.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    out.srcArray = other;
    out.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    out.dstDevice = b;
    out.dstPitch = 256;
    out.WidthInBytes = 64;
    out.Height = 4;
    CK(cuMemcpy2DAsync(&out, stream));
    out.dstMemoryType = CU_MEMORYTYPE_HOST;
    out.dstHost = back.data();
    out.dstPitch = 64;
    CK(cuMemcpy2DAsync(&out, stream));
    CUgraph graph = end(stream);
    EXPECT(types_of(graph) == std::vector<int>(5, CU_GRAPH_NODE_TYPE_MEMCPY), "%zu nodes", types_of(graph).size());
    size_t count = 5;
    CUgraphNode nodes[5];
    CK(cuGraphGetNodes(graph, nodes, &count));
    CUDA_MEMCPY3D got{};
    CK(cuGraphMemcpyNodeGetParams(nodes[0], &got));
    EXPECT(got.dstArray == one && got.dstMemoryType == CU_MEMORYTYPE_ARRAY, "another array");
    CUgraphExec exec = nullptr;
    CK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (unsigned turn = 0; turn < 3; ++turn) {
        set_words(a, 5 + turn, 128);
        std::fill(near.begin(), near.end(), 30 + turn);
        CK(cuGraphLaunch(exec, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT(word_at(b) == 5 + turn && word_at(b + 28) == 5 + turn && word_at(b + 256) == 5 + turn, "%u in turn %u", word_at(b), turn);
        EXPECT(word_at(b + 768) == 30 + turn && word_at(b + 768 + 60) == 30 + turn, "%u in turn %u", word_at(b + 768), turn);
        EXPECT(word_at(b + 64) == 2, "more than the rows was written");
        EXPECT(back[0] == 5 + turn && back[16 * 3 + 15] == 30 + turn, "%u and %u in turn %u", back[0], back[63], turn);
    }
    // Copies of several rows cannot be changed. For one row, each address can be changed to another one of the same
    // type.
    CK(cuGraphExecMemcpyNodeSetParams(exec, nodes[0], &got, gpu.context));
    CUDA_MEMCPY3D changed = got;
    changed.srcDevice = b;
    CK_IS(cuGraphExecMemcpyNodeSetParams(exec, nodes[0], &changed, gpu.context), CUDA_ERROR_INVALID_VALUE);
    changed = got;
    changed.dstArray = other;
    CK_IS(cuGraphExecMemcpyNodeSetParams(exec, nodes[0], &changed, gpu.context), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphMemcpyNodeGetParams(nodes[2], &got));
    EXPECT(got.dstArray == other && got.dstY == 3 && got.Height == 1, "the third copy is of %zu rows", got.Height);
    got.dstY = 2;
    CK(cuGraphExecMemcpyNodeSetParams(exec, nodes[2], &got, gpu.context));
    std::fill(near.begin(), near.end(), 50);
    CK(cuGraphLaunch(exec, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(b + 512) == 50 && word_at(b + 768) == 32, "%u and %u", word_at(b + 512), word_at(b + 768));
    got.dstY = 4;
    CK_IS(cuGraphExecMemcpyNodeSetParams(exec, nodes[2], &got, gpu.context), CUDA_ERROR_INVALID_VALUE);
    got.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    got.dstDevice = b;
    CK_IS(cuGraphExecMemcpyNodeSetParams(exec, nodes[2], &got, gpu.context), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
    CK(cuArrayDestroy(one));
    CK(cuArrayDestroy(other));
}

// Calls that may not be made while a stream of the mode is captured by this thread.
template <typename Call>
static void forbidden(CUstream stream, CUfunction kernel, const char *name, Call call, CUresult code) {
    begin(stream);
    CUresult got = call();
    if (got != code)
        pitfall::fail("%s returned %d (%s) during a capture, expected %d", name, (int)got, name_of(got), (int)code);
    EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "%s left the capture at %d", name, status_of(stream));
    // A launch into the stream is refused now.
    CK_IS(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    end_without(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

PITFALL(36, what_is_not_for_a_capture_ends_it) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUfunction kernel = gpu.function("no_params");
    CUdeviceptr a = device_words(64), made = 0;
    CUevent event;
    CK(cuEventCreate(&event, 0));
    CK(cuEventRecord(event, other));
    CK(cuStreamSynchronize(other));
    const CUresult UNSUPPORTED = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
#define FORBIDDEN(CALL) forbidden(stream, kernel, #CALL, [&] { return CALL; }, UNSUPPORTED)
    FORBIDDEN(cuStreamSynchronize(stream));
    FORBIDDEN(cuStreamQuery(stream));
    FORBIDDEN(cuCtxSynchronize());
    FORBIDDEN(cuMemAlloc(&made, 4096));
    FORBIDDEN(cuMemFree(a));
    FORBIDDEN(cuEventQuery(event));
    FORBIDDEN(cuEventSynchronize(event));
    FORBIDDEN(cuStreamSynchronize(other));
    // Copies between contexts, whichever these are.
    FORBIDDEN(cuMemcpyPeerAsync(a, gpu.context, a + 128, gpu.context, 4, stream));
    CUDA_MEMCPY3D_PEER between{};
    between.srcMemoryType = between.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    between.dstDevice = a, between.srcDevice = a + 128;
    between.dstContext = between.srcContext = gpu.context;
    between.srcPitch = between.dstPitch = between.WidthInBytes = 4;
    between.Height = between.Depth = 1;
    FORBIDDEN(cuMemcpy3DPeerAsync(&between, stream));
    CUevent captured;
    CK(cuEventCreate(&captured, 0));
    forbidden(stream, kernel, "cuEventQuery of an event of the capture", [&] {
        CK(cuEventRecord(captured, stream));
        return cuEventQuery(captured);
    }, CUDA_ERROR_CAPTURED_EVENT);
    forbidden(stream, kernel, "cuEventSynchronize of an event of the capture", [&] {
        CK(cuEventRecord(captured, stream));
        return cuEventSynchronize(captured);
    }, CUDA_ERROR_CAPTURED_EVENT);
    // The memory that was not freed is there.
    EXPECT(word_at(a) == 0, "%u", word_at(a));
}

PITFALL(36, copies_that_wait_are_work_of_the_legacy_stream) {
    Gpu gpu;
    CUfunction kernel = gpu.function("no_params");
    CUdeviceptr a = device_words(64), b = device_words(64);
    unsigned *pinned = pinned_words(64);
    std::vector<unsigned> near(64, 7);
    // Beside a capture of a stream that does not wait for the legacy stream they are done, and are no part of it.
    for (CUstreamCaptureMode mode : {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
        CUstream stream = new_stream();
        begin(stream, mode);
        CK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
        near.assign(64, 7);
        CK(cuMemcpyHtoD(a, near.data(), 256));
        CK(cuMemcpyDtoD(b, a, 256));
        CK(cuMemsetD32(a, 9, 32));
        CK(cuMemcpyDtoH(near.data(), b, 256));
        EXPECT_WORDS(near.data(), 64, 7);
        CK(cuMemcpyDtoH(pinned, a, 128));
        EXPECT_WORDS(pinned, 32, 9);
        CUgraph graph = end(stream);
        EXPECT(nodes_of(graph).size() == 1, "%zu nodes", nodes_of(graph).size());
        CK(cuGraphDestroy(graph));
    }
    // Beside one of a stream that does, they end it.
    CUstream blocking = new_stream(false);
    auto implicit = [&](const char *name, auto call) {
        begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
        CUresult got = call();
        EXPECT(got == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "%s returned %d", name, got);
        end_without(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    };
    implicit("cuMemcpyHtoD", [&] { return cuMemcpyHtoD(a, near.data(), 256); });
    implicit("cuMemcpyDtoH", [&] { return cuMemcpyDtoH(pinned, a, 256); });
    implicit("cuMemcpyDtoD", [&] { return cuMemcpyDtoD(b, a, 256); });
    implicit("cuMemsetD32", [&] { return cuMemsetD32(a, 1, 64); });
    EXPECT(word_at(a) == 9, "%u", word_at(a));
}

PITFALL(36, the_legacy_stream_and_its_captures) {
    Gpu gpu;
    CUfunction kernel = gpu.function("no_params");
    CUstream blocking = new_stream(false), free_stream = new_stream();
    CUdeviceptr a = device_words(4);
    CK_IS(cuStreamBeginCapture(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CK_IS(cuStreamBeginCapture(CU_STREAM_LEGACY, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    // The legacy stream would wait for a blocking stream that records, and so it may not be used.
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    CK_IS(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(status_of(blocking) == CU_STREAM_CAPTURE_STATUS_INVALIDATED, "%d", status_of(blocking));
    end_without(blocking, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    begin(blocking, CU_STREAM_CAPTURE_MODE_RELAXED);
    CUstreamCaptureStatus status;
    CK_IS(cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    EXPECT(status_of(blocking) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "asking has ended the capture");
    CK(cuGraphDestroy(end(blocking)));
    // It does not wait for one that does not block.
    begin(free_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    CK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CK(cuMemsetD32(a, 4, 4));
    EXPECT(word_at(a) == 4, "%u", word_at(a));
    EXPECT(status_of(free_stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%d", status_of(free_stream));
    CK(cuGraphDestroy(end(free_stream)));
}

PITFALL(35, modes_belong_to_threads) {
    Gpu gpu;
    CUstream stream = new_stream();
    auto exchange = [](CUstreamCaptureMode to) {
        CUstreamCaptureMode mode = to;
        CK(cuThreadExchangeStreamCaptureMode(&mode));
        return mode;
    };
    // The code of an allocation: `allocate` makes it in this thread, `elsewhere` in another of the mode.
    auto allocate = [&] {
        CUdeviceptr made = 0;
        CUresult code = cuMemAlloc(&made, 1 << 20);
        if (code == CUDA_SUCCESS) {
            CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
            CK(cuThreadExchangeStreamCaptureMode(&mode));
            CK(cuMemFree(made));
            CK(cuThreadExchangeStreamCaptureMode(&mode));
        }
        return code;
    };
    auto elsewhere = [&](CUstreamCaptureMode mode) {
        CUresult code = CUDA_ERROR_UNKNOWN;
        std::thread([&] {
            CK(cuCtxSetCurrent(gpu.context));
            EXPECT(exchange(mode) == CU_STREAM_CAPTURE_MODE_GLOBAL, "a thread does not begin with GLOBAL");
            code = allocate();
        }).join();
        return code;
    };
    const auto GLOBAL = CU_STREAM_CAPTURE_MODE_GLOBAL, LOCAL = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, RELAXED = CU_STREAM_CAPTURE_MODE_RELAXED;
    struct {
        CUstreamCaptureMode capture, thread;
        bool here, there;
    } rows[] = {
        {GLOBAL, GLOBAL, false, false}, {GLOBAL, LOCAL, false, true}, {GLOBAL, RELAXED, true, true},
        {LOCAL, GLOBAL, false, true},   {LOCAL, LOCAL, false, true},  {LOCAL, RELAXED, true, true},
        {RELAXED, GLOBAL, true, true},  {RELAXED, LOCAL, true, true}, {RELAXED, RELAXED, true, true},
    };
    for (auto &row : rows) {
        for (bool here : {true, false}) {
            begin(stream, row.capture);
            CUresult code;
            if (here) {
                CUstreamCaptureMode before = exchange(row.thread);
                code = allocate();
                EXPECT(exchange(before) == row.thread, "the mode was forgotten");
            } else {
                code = elsewhere(row.thread);
            }
            bool good = here ? row.here : row.there;
            CUresult want = good ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            EXPECT(code == want, "capture %d, thread %d, here %d: %s", row.capture, row.thread, here, name_of(code));
            if (good)
                CK(cuGraphDestroy(end(stream)));
            else
                end_without(stream, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        }
    }
}

PITFALL(38, streams_join_by_events_and_everybody_knows) {
    Gpu gpu;
    CUstream a = new_stream(), b = new_stream(), c = new_stream();
    CUfunction step = gpu.function("step");
    CUdeviceptr x = device_words(1, 1), y = device_words(1, 1);
    CUevent fork, join;
    CK(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
    begin(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    LAUNCH(step, 1, 1, a, x, 2u, 1u);
    CK(cuEventRecord(fork, a));
    EXPECT(status_of(b) == CU_STREAM_CAPTURE_STATUS_NONE, "%d", status_of(b));
    CK(cuStreamWaitEvent(b, fork, 0));
    EXPECT(status_of(b) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%d", status_of(b));
    LAUNCH(step, 1, 1, b, y, 5u, 0u);
    LAUNCH(step, 1, 1, a, x, 3u, 0u);
    // Another thread sees both in one capture, and begins its own capture.
    cuuint64_t of_a = 0, of_b = 0, of_c = 0;
    auto id = [](CUstream stream) {
        CUstreamCaptureStatus status;
        cuuint64_t id = 0;
        CK(cuStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr));
        return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? id : 0;
    };
    std::thread([&] {
        CK(cuCtxSetCurrent(gpu.context));
        of_a = id(a), of_b = id(b);
        CK_IS(cuStreamBeginCapture(b, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_ERROR_ILLEGAL_STATE);
        begin(c, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        of_c = id(c);
        LAUNCH(step, 1, 1, c, y, 7u, 7u);
        CUgraph mine = end(c);
        EXPECT(nodes_of(mine).size() == 1, "%zu nodes", nodes_of(mine).size());
        CK(cuGraphDestroy(mine));
    }).join();
    EXPECT(of_a && of_a == of_b && of_c && of_c != of_a, "captures %llu, %llu, %llu", (unsigned long long)of_a,
           (unsigned long long)of_b, (unsigned long long)of_c);
    CUgraph graph = nullptr;
    CK(cuEventRecord(join, b));
    CK(cuStreamWaitEvent(a, join, 0));
    CUstreamCaptureStatus status;
    const CUgraphNode *dependencies = nullptr;
    size_t count = 0;
    CK(cuStreamGetCaptureInfo(a, &status, nullptr, &graph, &dependencies, nullptr, &count));
    EXPECT(graph && count == 2 && dependencies[0] != dependencies[1], "%zu dependencies", count);
    LAUNCH(step, 1, 1, a, x, 1u, 1u);
    graph = end(a);
    EXPECT(status_of(b) == CU_STREAM_CAPTURE_STATUS_NONE, "%d", status_of(b));
    EXPECT(nodes_of(graph).size() == 4, "%zu nodes", nodes_of(graph).size());
    size_t edges = 0;
    CK(cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT(edges == 4, "%zu edges", edges);
    replay(graph, a);
    EXPECT(word_at(x) == 10 && word_at(y) == 5, "%u, %u", word_at(x), word_at(y));
}

PITFALL(36, streams_that_do_not_join_end_the_capture) {
    Gpu gpu;
    CUstream a = new_stream(), b = new_stream(), c = new_stream();
    CUfunction kernel = gpu.function("no_params");
    CUevent event, outside;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&outside, CU_EVENT_DISABLE_TIMING));
    auto launch = [&](CUstream stream) { CK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr)); };
    begin(a);
    launch(a);
    CK(cuEventRecord(event, a));
    CK(cuStreamWaitEvent(b, event, 0));
    launch(b);
    end_without(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
    EXPECT(status_of(b) == CU_STREAM_CAPTURE_STATUS_NONE, "%d", status_of(b));
    // The event stands for nothing any more.
    CK_IS(cuStreamWaitEvent(c, event, 0), CUDA_ERROR_INVALID_VALUE);
    // Recorded anew, it is an event as any other.
    CK(cuEventRecord(event, c));
    CK(cuStreamWaitEvent(b, event, 0));
    CK(cuEventSynchronize(event));
    // A stream that records waits for nothing outside.
    CK(cuEventRecord(outside, c));
    begin(a);
    CK_IS(cuStreamWaitEvent(a, outside, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    end_without(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // Two captures do not become one.
    begin(a);
    begin(b);
    launch(a);
    CK(cuEventRecord(event, a));
    CK_IS(cuStreamWaitEvent(b, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
    CUgraph graph = (CUgraph)8;
    CK_IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(graph == nullptr, "a graph at %p", (void *)graph);
    end_without(b, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CK_IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    // A capture cannot be ended in another stream than that in which it began.
    begin(a);
    CK(cuEventRecord(event, a));
    CK(cuStreamWaitEvent(b, event, 0));
    CK_IS(cuStreamEndCapture(b, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    end_without(a, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT(status_of(b) == CU_STREAM_CAPTURE_STATUS_NONE, "%d", status_of(b));
    // Another thread ends a capture without a graph, whether or not it is joined.
    for (CUresult code : {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD}) {
        begin(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        launch(a);
        if (code == CUDA_ERROR_STREAM_CAPTURE_UNJOINED) {
            CK(cuEventRecord(event, a));
            CK(cuStreamWaitEvent(b, event, 0));
            launch(b);
        }
        std::thread([&] {
            CK(cuCtxSetCurrent(gpu.context));
            CK_IS(cuStreamEndCapture(a, &graph), code);
        }).join();
        EXPECT(graph == nullptr, "a graph at %p", (void *)graph);
        CK_IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_ILLEGAL_STATE);
    }
    // A stream that is destroyed ends its capture, but not one that began in another stream: only whether its work was
    // joined counts.
    for (bool joins : {true, false}) {
        CUstream fork = new_stream();
        begin(a);
        launch(a);
        CK(cuEventRecord(event, a));
        CK(cuStreamWaitEvent(fork, event, 0));
        launch(fork);
        if (joins) {
            CK(cuEventRecord(event, fork));
            CK(cuStreamWaitEvent(a, event, 0));
        }
        CK(cuStreamDestroy(fork));
        EXPECT(status_of(a) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%d", status_of(a));
        launch(a);
        if (joins) {
            graph = end(a);
            EXPECT(types_of(graph).size() == 3, "%zu nodes", types_of(graph).size());
            CK(cuGraphDestroy(graph));
        } else {
            end_without(a, CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
        }
    }
    begin(b);
    CK(cuStreamDestroy(b));
    CUdeviceptr made = 0;
    CK(cuMemAlloc(&made, 4096));
    CK(cuMemFree(made));
}

// A stream may end before the capture that it has joined: nothing of it is lost, and it still has to be joined.
// Other streams have joined by a wait, and then the program drops those dependencies of the origin.
PITFALL(36, dependencies_may_be_dropped_after_a_join) {
    Gpu gpu;
    CUstream a = new_stream(), b = new_stream();
    CUfunction kernel = gpu.function("no_params");
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    auto launch = [&](CUstream stream) { CK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr)); };
    for (bool joins : {false, true}) {
        begin(a);
        launch(a);
        if (joins) {
            CK(cuEventRecord(event, a));
            CK(cuStreamWaitEvent(b, event, 0));
            launch(b);
            CK(cuEventRecord(event, b));
            CK(cuStreamWaitEvent(a, event, 0));
        }
        CK(cuStreamUpdateCaptureDependencies(a, nullptr, nullptr, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
        launch(a);
        CUgraph graph = end(a);
        EXPECT(nodes_of(graph).size() == (joins ? 3 : 2), "%zu nodes", nodes_of(graph).size());
        CK(cuGraphDestroy(graph));
    }
    CK(cuEventDestroy(event));
}

// A captured launch has its stream's priority.
PITFALL(37, captured_launches_have_their_streams_priority) {
    Gpu gpu;
    CUfunction kernel = gpu.function("no_params");
    int least = 0, greatest = 0;
    CK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CUstream plain = new_stream(), urgent = nullptr;
    CK(cuStreamCreateWithPriority(&urgent, CU_STREAM_NON_BLOCKING, greatest));
    for (CUstream stream : {plain, urgent}) {
        begin(stream);
        CK(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr));
        CUgraph graph = end(stream);
        CUkernelNodeAttrValue value = {};
        CK(cuGraphKernelNodeGetAttribute(nodes_of(graph)[0], CU_KERNEL_NODE_ATTRIBUTE_PRIORITY, &value));
        int own = 0;
        CK(cuStreamGetPriority(stream, &own));
        EXPECT(value.priority == own, "%d, and the stream has %d", value.priority, own);
        replay(graph, stream);
    }
}

PITFALL(36, streams_may_end_before_their_capture) {
    Gpu gpu;
    CUstream origin = new_stream();
    CUdeviceptr x = device_words(2);
    CUevent forked, joined;
    CK(cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
    for (int joins = 0; joins < 3; joins++) {
        CUstream side;
        CUgraph graph = nullptr;
        CK(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
        CK(cuStreamBeginCapture(origin, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CK(cuMemsetD32Async(x, 3, 1, origin));
        CK(cuEventRecord(forked, origin));
        CK(cuStreamWaitEvent(side, forked, 0));
        CK(cuMemsetD32Async(x + 4, 4, 1, side));
        CK(cuEventRecord(joined, side));
        // Before the stream is destroyed, after it, and not at all.
        if (joins == 0)
            CK(cuStreamWaitEvent(origin, joined, 0));
        CK(cuStreamDestroy(side));
        if (joins == 1)
            CK(cuStreamWaitEvent(origin, joined, 0));
        CK(cuMemsetD32Async(x, 5, 1, origin));
        CK_IS(cuStreamEndCapture(origin, &graph), joins == 2 ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED : CUDA_SUCCESS);
        if (graph) {
            CUgraphExec exec;
            CK(cuGraphInstantiateWithFlags(&exec, graph, 0));
            CK(cuMemsetD32(x, 0, 2));
            // The stream does not wait for the legacy one.
            CK(cuCtxSynchronize());
            CK(cuGraphLaunch(exec, origin));
            CK(cuStreamSynchronize(origin));
            unsigned got[2] = {};
            CK(cuMemcpyDtoH(got, x, 8));
            EXPECT(got[0] == 5 && got[1] == 4, "%u %u", got[0], got[1]);
            CK(cuGraphExecDestroy(exec));
            CK(cuGraphDestroy(graph));
        }
    }
    // If the program already has the graph, the pointer may be NULL.
    CUgraph given;
    size_t nodes = 0;
    CK(cuGraphCreate(&given, 0));
    CK(cuStreamBeginCaptureToGraph(origin, given, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(cuMemsetD32Async(x, 3, 1, origin));
    CK(cuStreamEndCapture(origin, nullptr));
    CK(cuGraphGetNodes(given, nullptr, &nodes));
    EXPECT(nodes == 1, "%zu nodes", nodes);
    CK(cuGraphDestroy(given));
}

PITFALL(38, external_events_are_nodes) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUfunction step = gpu.function("step");
    CUdeviceptr x = device_words(1, 1);
    CUevent done, ready;
    CK(cuEventCreate(&done, 0));
    CK(cuEventCreate(&ready, CU_EVENT_DISABLE_TIMING));
    CK_IS(cuEventRecordWithFlags(done, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
    CK_IS(cuStreamWaitEvent(stream, done, CU_EVENT_WAIT_EXTERNAL), CUDA_ERROR_ILLEGAL_STATE);
    begin(stream);
    CK(cuStreamWaitEvent(stream, ready, CU_EVENT_WAIT_EXTERNAL));
    LAUNCH(step, 1, 1, stream, x, 2u, 0u);
    CK(cuEventRecordWithFlags(done, stream, CU_EVENT_RECORD_EXTERNAL));
    CUgraph graph = end(stream);
    std::vector<int> want = {CU_GRAPH_NODE_TYPE_WAIT_EVENT, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_EVENT_RECORD};
    EXPECT(types_of(graph) == want, "%zu nodes", types_of(graph).size());
    CUgraphExec exec = instantiate(graph);
    Gate gate(gpu);
    for (unsigned i = 1; i <= 3; i++) {
        // The graph waits for the work before the event's last record, and its own event is complete when that work is.
        gate.close(other);
        CK(cuEventRecord(ready, other));
        CK(cuGraphLaunch(exec, stream));
        CK_IS(cuEventQuery(done), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuEventSynchronize(done));
        EXPECT(word_at(x) == 1u << i, "%u after %u launches", word_at(x), i);
        CK(cuEventQuery(done));
    }
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL(34, what_the_library_does_for_itself_is_in_no_capture) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUfunction fill = gpu.function("fill");
    const unsigned count = 1 << 22;
    CUdeviceptr a = device_words(count), b = device_words(count);
    std::vector<unsigned> near(count, 4), far(count);
    begin(stream);
    // Long pageable copies in another stream, and the calls that belong to them, are not unsafe.
    for (unsigned i = 0; i < 4; i++) {
        CK(cuMemcpyHtoDAsync(a, near.data(), count * 4, other));
        LAUNCH(fill, 32, 64, other, a, i, 100u);
        CK(cuMemcpyDtoHAsync(far.data(), a, count * 4, other));
        EXPECT(far[0] == i && far[100] == 4, "%u, %u", far[0], far[100]);
        LAUNCH(fill, 32, 64, stream, b, i, count);
        CUmodule module;
        CUevent event;
        CK(cuEventCreate(&event, 0));
        CK(cuEventRecord(event, other));
        CK(cuEventDestroy(event));
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        CK(cuThreadExchangeStreamCaptureMode(&mode));
        CK(cuModuleLoadData(&module, kernels_ptx));
        CK(cuModuleUnload(module));
        CK(cuThreadExchangeStreamCaptureMode(&mode));
    }
    EXPECT(status_of(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%d", status_of(stream));
    CUgraph graph = end(stream);
    EXPECT(nodes_of(graph).size() == 4, "%zu nodes", nodes_of(graph).size());
    replay(graph, stream);
    EXPECT(word_at(b) == 3 && word_at(b + count * 4 - 4) == 3, "%u", word_at(b));
}

PITFALL(76, capture_while_other_work_goes_on) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUdeviceptr x = device_words(1, 0), y = device_words(1, 0);
    std::atomic<bool> over{false};
    unsigned launched = 0;
    std::thread busy([&] {
        CK(cuCtxSetCurrent(gpu.context));
        CUstream stream = new_stream();
        while (!over || launched < 100) {
            LAUNCH(step, 1, 1, stream, y, 1u, 1u);
            launched++;
        }
        // Waiting for it is for the time after the captures.
    });
    CUstream stream = new_stream();
    std::vector<CUgraph> graphs;
    for (int i = 0; i < 50; i++) {
        begin(stream);
        for (int j = 0; j < 20; j++)
            LAUNCH(step, 1, 1, stream, x, 1u, 1u);
        graphs.push_back(end(stream));
        EXPECT(nodes_of(graphs.back()).size() == 20, "%zu nodes", nodes_of(graphs.back()).size());
    }
    over = true;
    busy.join();
    for (CUgraph graph : graphs)
        replay(graph, stream);
    CK(cuCtxSynchronize());
    EXPECT(word_at(x) == 1000, "%u", word_at(x));
    EXPECT(word_at(y) == launched, "%u of %u", word_at(y), launched);
}

// A wait for an event without a record is no wait, also in a stream that is captured.
PITFALL(38, a_captured_stream_waits_for_no_record) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUdeviceptr word = device_words(1);
    CUfunction step = gpu.function("step");
    CUevent never = nullptr, once = nullptr;
    CK(cuEventCreate(&never, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&once, CU_EVENT_DEFAULT));
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(step, 1, 1, stream, word, 10u, 1u);
    CK(cuStreamWaitEvent(stream, never, 0));
    LAUNCH(step, 1, 1, stream, word, 10u, 2u);
    CUgraph graph = nullptr;
    CK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = nullptr;
    CK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CK(cuGraphLaunch(exec, stream));
    CK(cuStreamSynchronize(stream));
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 12, "%u", got);
    // A record of before the capture is work outside of it.
    CK(cuEventRecord(once, other));
    CK(cuStreamSynchronize(other));
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK_IS(cuStreamWaitEvent(stream, once, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    CK_IS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // An event of a capture that has ended stands for nothing until it is recorded again.
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(cuEventRecord(once, stream));
    CK(cuStreamEndCapture(stream, &graph));
    CK_IS(cuEventQuery(once), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuEventSynchronize(once), CUDA_ERROR_INVALID_VALUE);
    CK(cuEventRecord(once, stream));
    CK(cuEventSynchronize(once));
    CK(cuEventQuery(once));
    CK(cuGraphExecDestroy(exec));
}

PITFALL_MAIN
