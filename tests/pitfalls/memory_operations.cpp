// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Words in memory that streams write and wait for, and attributes of streams and launches (pitfalls 9, 22, 37, 38, 47,
// 48, 62, 63).
#include "driver.h"

static unsigned long long long_at(CUdeviceptr word) {
    unsigned long long value = 0;
    CK(cuMemcpyDtoH(&value, word, 8));
    return value;
}

// Waits hold their own stream back and no other, until the word has its value.
PITFALL(22, waits_end_with_the_value_that_they_are_for) {
    Gpu gpu;
    CUstream waits = new_stream(), writes = new_stream();
    CUdeviceptr words = device_words(4), seen = device_words(4);
    const unsigned flags[] = {CU_STREAM_WAIT_VALUE_GEQ, CU_STREAM_WAIT_VALUE_EQ, CU_STREAM_WAIT_VALUE_AND, CU_STREAM_WAIT_VALUE_NOR};
    // The word's first value, the awaited value, a value that does not end the wait, and one that does.
    const unsigned values[][4] = {{0, 6, 5, 7}, {0, 6, 7, 6}, {0, 6, 8, 2}, {~0u, ~1u, 1, 2}};
    for (int kind = 0; kind < 4; kind++) {
        if (kind == 3 && !gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR))
            continue;
        auto [first, wanted, wrong, right] = values[kind];
        CK(cuMemsetD32(words, first, 1));
        CK(cuStreamSynchronize(nullptr));
        CK(cuStreamWaitValue32(waits, words, wanted, flags[kind]));
        CK(cuMemsetD32Async(seen, kind + 1, 1, waits));
        CK(cuStreamWriteValue32(writes, words, wrong, CU_STREAM_WRITE_VALUE_DEFAULT));
        CK(cuStreamSynchronize(writes));
        CK_IS(cuStreamQuery(waits), CUDA_ERROR_NOT_READY);
        CK(cuStreamWriteValue32(writes, words, right, CU_STREAM_WRITE_VALUE_DEFAULT));
        CK(cuStreamSynchronize(waits));
        unsigned got = 0;
        CK(cuMemcpyDtoH(&got, seen, 4));
        EXPECT(got == (unsigned)kind + 1, "wait %d: %u", kind, got);
    }
}

// The CPU ends a wait through pinned memory, and sees what a stream writes there.
PITFALL(22, words_in_pinned_memory) {
    Gpu gpu;
    CUstream stream = new_stream();
    unsigned *words = pinned_words(64);
    CUdeviceptr address = 0;
    CK(cuMemHostGetDevicePointer(&address, words, 0));
    CK(cuStreamWaitValue32(stream, address, 1, CU_STREAM_WAIT_VALUE_EQ));
    CK(cuStreamWriteValue32(stream, address + 128, 77, CU_STREAM_WRITE_VALUE_DEFAULT));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT(((volatile unsigned *)words)[32] == 0, "%u was written too early", words[32]);
    ((volatile unsigned *)words)[0] = 1;
    CK(cuStreamSynchronize(stream));
    EXPECT(words[32] == 77, "%u", words[32]);
}

PITFALL(22, long_words_and_batches) {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS))
        pitfall::skip("no words of 64 bits");
    CUstream stream = new_stream(), other = new_stream();
    CUdeviceptr words = device_words(8);
    CK(cuStreamWaitValue64(stream, words, 1ull << 40, CU_STREAM_WAIT_VALUE_GEQ));
    CK(cuStreamWriteValue64(stream, words + 8, 0x123456789abcdefull, CU_STREAM_WRITE_VALUE_DEFAULT));
    CK(cuStreamWriteValue64(other, words, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    CK(cuStreamSynchronize(other));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CK(cuStreamWriteValue64(other, words, 1ull << 41, CU_STREAM_WRITE_VALUE_DEFAULT));
    CK(cuStreamSynchronize(stream));
    EXPECT(long_at(words + 8) == 0x123456789abcdefull, "0x%llx", long_at(words + 8));

    CUstreamBatchMemOpParams batch[3] = {};
    batch[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    batch[0].waitValue.address = words + 16;
    batch[0].waitValue.value64 = 3;
    batch[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    batch[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[1].writeValue.address = words + 24;
    batch[1].writeValue.value = 9;
    batch[2].operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    batch[2].writeValue.address = words + 16;
    batch[2].writeValue.value64 = 4;
    CK(cuStreamBatchMemOp(stream, 3, batch, 0));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    CK(cuStreamWriteValue64(other, words + 16, 3, CU_STREAM_WRITE_VALUE_DEFAULT));
    CK(cuStreamSynchronize(stream));
    EXPECT(long_at(words + 16) == 4, "%llu", long_at(words + 16));
    EXPECT(long_at(words + 24) == 9, "%llu", long_at(words + 24));
}

// Nothing is queued where a call fails.
PITFALL(09, words_that_are_none_are_refused) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr words = device_words(4, 1);
    CK_IS(cuStreamWriteValue32(stream, words + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuStreamWaitValue32(stream, words + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CUstreamBatchMemOpParams batch[2] = {};
    batch[0].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[0].writeValue.address = words;
    batch[0].writeValue.value = 5;
    batch[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    batch[1].writeValue.address = words + 2;
    CK_IS(cuStreamBatchMemOp(stream, 2, batch, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuStreamBatchMemOp(stream, 257, batch, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, words, 4));
    EXPECT(got == 1, "%u was written", got);
}

PITFALL_OURS(63, words_outside_what_the_program_has) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr words = device_words(1024);
    unsigned of_the_cpu = 0;
    CK_IS(cuStreamBatchMemOp(stream, 1, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuStreamWriteValue32(stream, 0x1000, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuStreamWaitValue32(stream, (CUdeviceptr)&of_the_cpu, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemFree(words));
    CK_IS(cuStreamWriteValue32(stream, words, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
}

// If a process ends during a wait, the wait ends with it, and no other process is delayed.
PITFALL(62, process_ends_amid_a_wait) {
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            Gpu gpu;
            CUstream stream = new_stream();
            CUdeviceptr word = device_words(1);
            CK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
            CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
            kill(getpid(), SIGKILL);
        }
        EXPECT(pitfall::wait_for(child) == 1000 + SIGKILL, "the child did not come so far");
    }
    Gpu gpu;
    CUdeviceptr word = device_words(1, 3);
    unsigned got = 0;
    LAUNCH(gpu.function("step"), 1, 1, nullptr, word, 2u, 1u);
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 7, "%u", got);
}

// While one process waits, another works.
PITFALL(62, wait_holds_no_other_process_up) {
    int ready[2];
    EXPECT(pipe(ready) == 0, "errno %d", errno);
    pid_t child = fork();
    if (child == 0) {
        Gpu gpu;
        CUstream stream = new_stream();
        CUdeviceptr word = device_words(1);
        CK(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
        CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        ssize_t ignored = write(ready[1], "", 1);
        (void)ignored;
        for (;;)
            pause();
    }
    char byte;
    EXPECT(read(ready[0], &byte, 1) == 1, "the child did not come so far");
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUdeviceptr word = device_words(1, 1);
    unsigned expected = 1, got = 0;
    for (unsigned i = 0; i < 100; i++) {
        LAUNCH(step, 1, 1, nullptr, word, 3u, i);
        expected = expected * 3 + i;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == expected, "round %u: %u", i, got);
    }
    kill(child, SIGKILL);
    pitfall::wait_for(child);
}

// An attribute that was set can be read back, and is copied with the others.
PITFALL(48, attributes_of_streams) {
    Gpu gpu;
    CUstream one = new_stream(), other = new_stream();
    CUstreamAttrValue value = {}, got = {};
    value.syncPolicy = CU_SYNC_POLICY_BLOCKING_SYNC;
    CK(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &value));
    CK(cuStreamGetAttribute(one, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
    EXPECT(got.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC, "%d", got.syncPolicy);
    CK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
    EXPECT(got.syncPolicy != CU_SYNC_POLICY_BLOCKING_SYNC, "%d", got.syncPolicy);
    CK(cuStreamCopyAttributes(other, one));
    CK(cuStreamGetAttribute(other, CU_STREAM_ATTRIBUTE_SYNCHRONIZATION_POLICY, &got));
    EXPECT(got.syncPolicy == CU_SYNC_POLICY_BLOCKING_SYNC, "%d", got.syncPolicy);
    CK_IS(cuStreamGetAttribute(one, (CUstreamAttrID)99, &got), CUDA_ERROR_INVALID_VALUE);

    int least = 0, greatest = 0, priority = 1;
    CK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CK(cuStreamGetPriority(one, &priority));
    EXPECT(priority == 0, "%d", priority);
    value = {};
    value.priority = greatest;
    CK(cuStreamSetAttribute(one, CU_STREAM_ATTRIBUTE_PRIORITY, &value));
    CK(cuStreamGetPriority(one, &priority));
    EXPECT(priority == greatest, "%d instead of %d", priority, greatest);
}

// An event that a launch records represents that launch, whatever it was recorded for before.
PITFALL(47, launches_record_the_events_of_their_attributes) {
    Gpu gpu;
    Gate gate(gpu);
    CUfunction step = gpu.function("step");
    CUstream stream = new_stream();
    CUdeviceptr word = device_words(1, 1);
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    unsigned expected = 1;
    for (CUlaunchAttributeID id : {CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT}) {
        CK(cuEventRecord(event, stream));
        CK(cuStreamSynchronize(stream));
        CK(cuEventQuery(event));
        CUlaunchAttribute attribute = {};
        attribute.id = id;
        if (id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT)
            attribute.value.launchCompletionEvent.event = event;
        else
            attribute.value.programmaticEvent = {event, 0, 1};
        CUlaunchConfig config = {};
        config.gridDimX = config.gridDimY = config.gridDimZ = 1;
        config.blockDimX = config.blockDimY = config.blockDimZ = 1;
        config.hStream = stream;
        config.attrs = &attribute;
        config.numAttrs = 1;
        unsigned factor = 3, term = 1;
        void *params[] = {&word, &factor, &term};
        gate.close(stream);
        CUresult code = cuLaunchKernelEx(&config, step, params, nullptr);
        if (code != CUDA_SUCCESS && gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9) {
            gate.open();
            CK(cuStreamSynchronize(stream));
            pitfall::skip("a launch records no event");
        }
        CK(code);
        expected = expected * factor + term;
        CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuEventSynchronize(event));
        CK(cuStreamSynchronize(stream));
        unsigned got = 0;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == expected, "%u instead of %u", got, expected);
    }
}

static void run(CUgraph graph, CUstream stream, CUgraphExec *exec) {
    CK(cuGraphInstantiate(exec, graph, 0));
    CK(cuGraphLaunch(*exec, stream));
    CK(cuStreamSynchronize(stream));
}

// A stream that records makes nodes of them, and their addresses and values can be set in the executable graph.
PITFALL(37, words_become_nodes) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction step = gpu.function("step");
    CUdeviceptr words = device_words(8);
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(cuStreamWriteValue32(stream, words, 5, CU_STREAM_WRITE_VALUE_DEFAULT));
    CK(cuStreamWaitValue32(stream, words, 5, CU_STREAM_WAIT_VALUE_EQ));
    unsigned factor = 10, term = 1;
    void *params[] = {&words, &factor, &term};
    CK(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
    CUgraph graph;
    CK(cuStreamEndCapture(stream, &graph));
    EXPECT(long_at(words) == 0, "a capture wrote %llu", long_at(words));
    CUgraphNode nodes[4] = {};
    size_t count = 4;
    CK(cuGraphGetNodes(graph, nodes, &count));
    EXPECT(count == 3, "%zu nodes", count);
    CUgraphNodeType type;
    CK(cuGraphNodeGetType(nodes[0], &type));
    EXPECT(type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, "%d", type);
    CUDA_BATCH_MEM_OP_NODE_PARAMS got = {};
    CK(cuGraphBatchMemOpNodeGetParams(nodes[0], &got));
    EXPECT(got.count == 1 && got.paramArray[0].operation == CU_STREAM_MEM_OP_WRITE_VALUE_32, "%u operations", got.count);
    EXPECT(got.paramArray[0].writeValue.address == words && got.paramArray[0].writeValue.value == 5, "%u", got.paramArray[0].writeValue.value);
    CUgraphExec exec;
    run(graph, stream, &exec);
    EXPECT(long_at(words) == 51, "%llu", long_at(words));

    // A node of two, which is changed and then refused what an executable graph cannot change.
    CUstreamBatchMemOpParams pair[2] = {};
    for (int i = 0; i < 2; i++) {
        pair[i].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
        pair[i].writeValue.address = words + 4 * i;
        pair[i].writeValue.value = 100 + i;
    }
    CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {got.ctx, 2, pair, 0};
    CUgraph made;
    CUgraphNode node;
    CK(cuGraphCreate(&made, 0));
    CK(cuGraphAddBatchMemOpNode(&node, made, nullptr, 0, &batch));
    pair[0].writeValue.value = 1;
    CUgraphExec of_two;
    run(made, stream, &of_two);
    EXPECT(long_at(words) == (101ull << 32 | 100), "%llx", long_at(words));
    pair[0].writeValue.value = 200;
    CK(cuGraphExecBatchMemOpNodeSetParams(of_two, node, &batch));
    CK(cuGraphLaunch(of_two, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(long_at(words) == (101ull << 32 | 200), "%llx", long_at(words));
    batch.count = 1;
    CK_IS(cuGraphExecBatchMemOpNodeSetParams(of_two, node, &batch), CUDA_ERROR_INVALID_VALUE);
    CK(cuGraphBatchMemOpNodeSetParams(node, &batch));
    CK(cuGraphBatchMemOpNodeGetParams(node, &got));
    EXPECT(got.count == 1, "%u", got.count);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphExecDestroy(of_two));
    CK(cuGraphDestroy(graph));
    CK(cuGraphDestroy(made));
}

// An event of a launch's attributes brings another stream into the capture.
PITFALL(38, events_of_launches_join_streams) {
    Gpu gpu;
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9)
        pitfall::skip("a launch records no event");
    CUfunction step = gpu.function("step");
    CUstream stream = new_stream(), other = new_stream();
    CUdeviceptr words = device_words(4, 1), second = words + 8;
    CUevent event, back;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    attribute.value.programmaticEvent = {event, 0, 1};
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    unsigned factor = 3, term = 1;
    void *params[] = {&words, &factor, &term}, *others[] = {&second, &factor, &term};
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(cuLaunchKernelEx(&config, step, params, nullptr));
    CK(cuStreamWaitEvent(other, event, 0));
    CUstreamCaptureStatus status;
    CK(cuStreamIsCapturing(other, &status));
    EXPECT(status == CU_STREAM_CAPTURE_STATUS_ACTIVE, "%d", status);
    CK(cuLaunchKernel(step, 1, 1, 1, 1, 1, 1, 0, other, others, nullptr));
    CK(cuEventRecord(back, other));
    CK(cuStreamWaitEvent(stream, back, 0));
    CUgraph graph;
    CK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec;
    run(graph, stream, &exec);
    EXPECT((unsigned)long_at(words) == 4 && (unsigned)long_at(second) == 4, "%llu and %llu", long_at(words), long_at(second));
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL_MAIN
