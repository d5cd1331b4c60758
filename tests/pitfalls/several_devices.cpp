// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Two devices: graphs with nodes on both, and each other's memory (pitfalls 30, 38, 39, 63, 68).
#include "graphs.h"
#include <atomic>
#include <thread>

struct Devices {
    Two two{false};
    CUcontext contexts[2];
    CUfunction steps[2];
    CUstream streams[2];
    // A word on each.
    CUdeviceptr words[2];

    Devices() {
        contexts[0] = two.first.context, contexts[1] = two.context;
        for (int at = 0; at < 2; at++) {
            CUmodule module;
            int registers;
            CK(cuCtxSetCurrent(contexts[at]));
            CK(cuModuleLoadData(&module, kernels_fatbin));
            CK(cuModuleGetFunction(&steps[at], module, "step"));
            CK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, steps[at]));
            streams[at] = new_stream();
            words[at] = device_words(1);
        }
        CK(cuCtxSetCurrent(contexts[0]));
    }

    // Appends a digit to the word of a device.
    CUgraphNode append(CUgraph graph, std::vector<CUgraphNode> after, int device, unsigned digit) const {
        CK(cuCtxSetCurrent(contexts[device]));
        CUgraphNode node = add_step(graph, after, steps[device], words[device], 10, digit);
        CK(cuCtxSetCurrent(contexts[0]));
        return node;
    }

    // Copies the word of the other device to this one.
    CUgraphNode copy(CUgraph graph, std::vector<CUgraphNode> after, int to) const {
        CUDA_MEMCPY3D of = line(words[to], words[!to], 4);
        CUgraphNode node = nullptr;
        CK(cuGraphAddMemcpyNode(&node, graph, after.data(), after.size(), &of, contexts[to]));
        return node;
    }

    unsigned word(int device) const {
        CK(cuCtxSetCurrent(contexts[device]));
        unsigned word = word_at(words[device]);
        CK(cuCtxSetCurrent(contexts[0]));
        return word;
    }

    void clear() const {
        for (int at = 0; at < 2; at++) {
            CK(cuCtxSetCurrent(contexts[at]));
            set_words(words[at], 0, 1);
        }
        CK(cuCtxSetCurrent(contexts[0]));
    }

    // A launch in the stream of either device, from words of zero.
    void expect(CUgraphExec exec, unsigned first, unsigned second) const {
        for (int at = 0; at < 2; at++) {
            clear();
            launch(exec, streams[at]);
            EXPECT(word(0) == first && word(1) == second, "in a stream of device %d: %u and %u, not %u and %u", at, word(0), word(1),
                   first, second);
        }
    }
};

PITFALL(39, a_graph_goes_over_two_devices) {
    Devices both;
    CUgraph graph = new_graph();
    // Alternating: 1 here, 2 there, 3 here; and 4 there in parallel with the last.
    CUgraphNode one = both.append(graph, {}, 0, 1);
    CUgraphNode there = both.copy(graph, {one}, 1);
    CUgraphNode two = both.append(graph, {there}, 1, 2);
    CUgraphNode here = both.copy(graph, {two}, 0);
    both.append(graph, {here}, 0, 3);
    CUgraphNode four = both.append(graph, {here}, 1, 4);
    CUgraphExec exec = instantiate(graph);
    both.expect(exec, 123, 124);
    CK(cuGraphUpload(exec, both.streams[1]));
    both.expect(exec, 123, 124);
    // Launches one after the other, in streams of both, that wait for each other.
    CUevent events[2];
    for (int at = 0; at < 2; at++) {
        CK(cuCtxSetCurrent(both.contexts[at]));
        CK(cuEventCreate(&events[at], CU_EVENT_DISABLE_TIMING));
    }
    for (unsigned round = 0; round < 50; round++) {
        int at = round % 2;
        both.clear();
        for (int time = 0; time < 2; time++, at = !at) {
            CK(cuGraphLaunch(exec, both.streams[at]));
            CK(cuEventRecord(events[at], both.streams[at]));
            CK(cuStreamWaitEvent(both.streams[!at], events[at], 0));
        }
        CK(cuStreamSynchronize(both.streams[at]));
        EXPECT(both.word(0) == 123123 && both.word(1) == 123124, "round %u: %u and %u", round, both.word(0), both.word(1));
    }
    // Parameters of the other device's node, a node that is left out, and the graph as a whole.
    Step changed(both.steps[1], both.words[1], 10, 7);
    CK(cuGraphExecKernelNodeSetParams(exec, two, &changed.node));
    both.expect(exec, 173, 174);
    CK(cuGraphNodeSetEnabled(exec, four, 0));
    both.expect(exec, 173, 17);
    CUgraph clone;
    CK(cuGraphClone(&clone, graph));
    CUgraphExecUpdateResultInfo info{};
    CK(cuGraphExecUpdate(exec, clone, &info));
    CK(cuGraphNodeSetEnabled(exec, four, 1));
    both.expect(exec, 123, 124);
    CK(cuGraphExecDestroy(exec));
    exec = instantiate(clone);
    CK(cuGraphDestroy(clone));
    CK(cuGraphDestroy(graph));
    both.expect(exec, 123, 124);
    CK(cuGraphExecDestroy(exec));
}

PITFALL(39, a_graph_is_launched_in_a_stream_of_another_device) {
    Devices both;
    for (int at = 0; at < 2; at++) {
        CUgraph graph = new_graph();
        CUgraphNode one = both.append(graph, {}, at, 1);
        both.append(graph, {one}, at, 2);
        CUgraphExec exec = instantiate(graph);
        both.expect(exec, at ? 0 : 12, at ? 12 : 0);
        // As a child of another graph.
        CUgraph outer = new_graph();
        CUgraphNode child = nullptr;
        CUgraphNode three = both.append(outer, {}, !at, 3);
        CK(cuGraphAddChildGraphNode(&child, outer, &three, 1, graph));
        CUgraphExec whole = instantiate(outer);
        both.expect(whole, at ? 3 : 12, at ? 12 : 3);
        CK(cuGraphExecDestroy(whole));
        CK(cuGraphDestroy(outer));
        CK(cuGraphExecDestroy(exec));
        CK(cuGraphDestroy(graph));
    }
}

PITFALL(38, streams_of_two_devices_are_captured_together) {
    Devices both;
    CUevent events[2];
    for (int at = 0; at < 2; at++) {
        CK(cuCtxSetCurrent(both.contexts[at]));
        CK(cuEventCreate(&events[at], CU_EVENT_DISABLE_TIMING));
    }
    CUstream first = both.streams[0], second = both.streams[1];
    CK(cuCtxSetCurrent(both.contexts[0]));
    CK(cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(both.steps[0], 1, 1, first, both.words[0], 10u, 1u);
    CK(cuEventRecord(events[0], first));
    CK(cuStreamWaitEvent(second, events[0], 0));
    // Streams and functions determine the device, whatever context is current.
    CK(cuMemcpyDtoDAsync(both.words[1], both.words[0], 4, second));
    LAUNCH(both.steps[1], 1, 1, second, both.words[1], 10u, 2u);
    CK(cuCtxSetCurrent(both.contexts[1]));
    CK(cuMemcpyAsync(both.words[0], both.words[1], 4, second));
    CK(cuEventRecord(events[1], second));
    CK(cuStreamWaitEvent(first, events[1], 0));
    LAUNCH(both.steps[0], 1, 1, first, both.words[0], 10u, 3u);
    CUgraph graph = nullptr;
    CK(cuStreamEndCapture(first, &graph));
    EXPECT(both.word(0) == 0 && both.word(1) == 0, "a capture did %u and %u", both.word(0), both.word(1));
    size_t nodes = 0;
    CK(cuGraphGetNodes(graph, nullptr, &nodes));
    EXPECT(nodes == 5, "%zu nodes", nodes);
    CUgraphExec exec = instantiate(graph);
    both.expect(exec, 123, 12);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL(63, graphs_over_two_devices_by_the_rules) {
    Devices both;
    CUgraph graph = new_graph();
    CUgraphNode one = both.append(graph, {}, 0, 1), two = both.append(graph, {one}, 1, 2);
    // Kernels launch graphs of one device.
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    CUgraphExec exec = nullptr;
    CK_IS(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_INVALID_VALUE);
    EXPECT(params.result_out == CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED, "result %d", (int)params.result_out);
    exec = instantiate(graph);
    // A node stays on its device.
    Step elsewhere(both.steps[0], both.words[0], 10, 5);
    CK_IS(cuGraphExecKernelNodeSetParams(exec, two, &elsewhere.node), CUDA_ERROR_INVALID_VALUE);
    CUgraph other = new_graph();
    CUgraphNode first = both.append(other, {}, 1, 1);
    both.append(other, {first}, 0, 2);
    CUgraphExecUpdateResultInfo info{};
    CK_IS(cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    both.expect(exec, 1, 2);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(other));
    CK(cuGraphDestroy(graph));
}

// In both directions, to memory from before and from after.
PITFALL(68, kernels_reach_the_memory_of_a_peer) {
    Two reach;
    Devices both;
    for (int at = 0; at < 2; at++) {
        CK(cuCtxSetCurrent(both.contexts[at]));
        CK(cuCtxEnablePeerAccess(both.contexts[!at], 0));
    }
    for (int at = 0; at < 2; at++) {
        CK(cuCtxSetCurrent(both.contexts[!at]));
        CUdeviceptr later = device_words(1);
        CK(cuCtxSetCurrent(both.contexts[at]));
        both.clear();
        LAUNCH(both.steps[at], 1, 1, both.streams[at], both.words[!at], 10u, 1u);
        LAUNCH(both.steps[at], 1, 1, both.streams[at], later, 10u, 2u);
        CK(cuStreamSynchronize(both.streams[at]));
        EXPECT(both.word(!at) == 1 && word_at(later) == 2, "from device %d: %u and %u", at, both.word(!at), word_at(later));
        // A graph's kernels, too.
        CK(cuCtxSetCurrent(both.contexts[at]));
        CUgraph graph = new_graph();
        add_step(graph, {}, both.steps[at], both.words[!at], 10, 4);
        launch(instantiate(graph), both.streams[at]);
        EXPECT(both.word(!at) == 14, "from a graph on device %d: %u", at, both.word(!at));
    }
}

PITFALL(63, peers_by_the_rules) {
    Two reach;
    Devices both;
    int can = -1, value = -1;
    CK(cuDeviceCanAccessPeer(&can, 1, 1));
    EXPECT(can == 0, "a device is its own peer: %d", can);
    CK(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
    EXPECT(value == 1, "the attribute of an access that is possible is %d", value);
    CK_IS(cuDeviceGetP2PAttribute(&value, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 1, 1), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(cuCtxDisablePeerAccess(both.contexts[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    CK_IS(cuCtxEnablePeerAccess(both.contexts[1], 1), CUDA_ERROR_INVALID_VALUE);
    for (int round = 0; round < 2; round++) {
        CK(cuCtxEnablePeerAccess(both.contexts[1], 0));
        CK_IS(cuCtxEnablePeerAccess(both.contexts[1], 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
        // The other direction has its own access.
        CK(cuCtxSetCurrent(both.contexts[1]));
        CK_IS(cuCtxDisablePeerAccess(both.contexts[0]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
        CK(cuCtxSetCurrent(both.contexts[0]));
        CK(cuCtxDisablePeerAccess(both.contexts[1]));
        CK_IS(cuCtxDisablePeerAccess(both.contexts[1]), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
}

PITFALL(30, memory_of_another_device_is_out_of_reach) {
    Devices both;
    LAUNCH(both.steps[0], 1, 1, both.streams[0], both.words[1], 10u, 1u);
    CK_IS(cuStreamSynchronize(both.streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
}

// Peers reach what the program allocates.
PITFALL(30, variables_of_a_peer_are_out_of_reach) {
    Two reach;
    Devices both;
    CUmodule module;
    CUdeviceptr variable = 0;
    size_t bytes = 0;
    CK(cuCtxEnablePeerAccess(both.contexts[1], 0));
    CK(cuCtxSetCurrent(both.contexts[1]));
    CK(cuModuleLoadData(&module, ".version 7.0\n.target sm_70\n.address_size 64\n.visible .global .align 4 .u32 far = 4;\n"));
    CK(cuModuleGetGlobal(&variable, &bytes, module, "far"));
    CK(cuCtxSetCurrent(both.contexts[0]));
    LAUNCH(both.steps[0], 1, 1, both.streams[0], variable, 10u, 1u);
    CK_IS(cuStreamSynchronize(both.streams[0]), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PITFALL(25, events_of_two_devices_have_nothing_in_common) {
    Devices both;
    CUevent events[2];
    for (int at = 0; at < 2; at++) {
        CK(cuCtxSetCurrent(both.contexts[at]));
        CK(cuEventCreate(&events[at], CU_EVENT_DEFAULT));
    }
    for (int at = 0; at < 2; at++) {
        CK_IS(cuEventRecord(events[at], both.streams[!at]), CUDA_ERROR_INVALID_HANDLE);
        CK(cuEventRecord(events[at], both.streams[at]));
        CK(cuEventSynchronize(events[at]));
    }
    float time = 0;
    CK_IS(cuEventElapsedTime(&time, events[0], events[1]), CUDA_ERROR_INVALID_HANDLE);
    // A wait for the other device's event is what connects the devices.
    CK(cuStreamWaitEvent(both.streams[0], events[1], 0));
    CK(cuStreamSynchronize(both.streams[0]));
}

// A synchronous copy between two devices comes after the work of both, except that of non-blocking streams.
PITFALL(05, a_copy_from_a_peer_follows_the_peers_work) {
    Devices both;
    for (int at = 0; at < 2; at++)
        for (int way = 0; way < 3; way++) {
            both.clear();
            CK(cuCtxSetCurrent(both.contexts[at]));
            CUstream stream = new_stream(false);
            std::atomic<bool> is_open{false};
            auto hold = [](void *open) {
                while (!*(std::atomic<bool> *)open)
                    std::this_thread::yield();
            };
            CK(cuLaunchHostFunc(stream, hold, &is_open));
            LAUNCH(both.steps[at], 1, 1, stream, both.words[at], 10u, 6u);
            CK(cuCtxSetCurrent(both.contexts[!at]));
            // The delay only widens the window in which a wrong order would show.
            std::thread opens([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                is_open = true;
            });
            CUDA_MEMCPY3D_PEER box{};
            box.srcMemoryType = box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
            box.srcDevice = both.words[at], box.srcContext = both.contexts[at];
            box.dstDevice = both.words[!at], box.dstContext = both.contexts[!at];
            box.WidthInBytes = 4, box.Height = box.Depth = 1;
            const char *names[] = {"cuMemcpy3DPeer", "cuMemcpyPeer", "cuMemcpyDtoD"};
            CUresult code = way == 0   ? cuMemcpy3DPeer(&box)
                            : way == 1 ? cuMemcpyPeer(both.words[!at], both.contexts[!at], both.words[at], both.contexts[at], 4)
                                       : cuMemcpyDtoD(both.words[!at], both.words[at], 4);
            opens.join();
            CK(code);
            EXPECT(both.word(!at) == 6, "%s from device %d: %u", names[way], at, both.word(!at));
        }
}

// A function of one device runs in the streams of that device alone, whichever context is current.
PITFALL(25, a_function_runs_in_its_own_devices_streams) {
    Devices both;
    for (int at = 0; at < 2; at++) {
        both.clear();
        CK(cuCtxSetCurrent(both.contexts[!at]));
        unsigned factor = 10, term = 5;
        void *params[] = {&both.words[at], &factor, &term};
        auto launched = [&](CUstream stream) {
            return cuLaunchKernel(both.steps[at], 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr);
        };
        CK_IS(launched(nullptr), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(launched(CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(launched(both.streams[!at]), CUDA_ERROR_INVALID_HANDLE);
        CK(cuCtxSynchronize());
        CK(launched(both.streams[at]));
        CK(cuStreamSynchronize(both.streams[at]));
        EXPECT(both.word(at) == 5, "device %d: %u", at, both.word(at));
    }
}

// "Set the value of attribute for a kernel on the requested device."
PITFALL(25, attributes_of_kernels_are_a_devices_own) {
    Devices both;
    CUlibrary library;
    CUkernel kernel;
    CK(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CK(cuLibraryGetKernel(&kernel, library, "step"));
    const auto most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    const int bytes[] = {60000, 1000};
    for (int at = 0; at < 2; at++)
        CK(cuKernelSetAttribute(most, bytes[at], kernel, at));
    for (int at = 0; at < 2; at++) {
        int value = 0;
        CK(cuKernelGetAttribute(&value, most, kernel, at));
        EXPECT(value == bytes[at], "device %d: %d", at, value);
        CK(cuCtxSetCurrent(both.contexts[at]));
        unsigned factor = 10, term = 5;
        void *params[] = {&both.words[at], &factor, &term};
        auto launched = [&](unsigned shared) {
            return cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, shared, both.streams[at], params, nullptr);
        };
        CK_IS(launched(bytes[at] + 4), CUDA_ERROR_INVALID_VALUE);
        CK(launched(bytes[at]));
        CK(cuStreamSynchronize(both.streams[at]));
        EXPECT(both.word(at) == 5, "device %d: %u", at, both.word(at));
    }
    CK(cuLibraryUnload(library));
}

PITFALL_MAIN
