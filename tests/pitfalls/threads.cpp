// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Contexts and threads (pitfalls 25 to 27, 79).
#include "driver.h"
#include <barrier>

PITFALL(25, current_context_is_per_thread) {
    Gpu gpu;
    CUcontext one = nullptr, two = nullptr, current = nullptr;
    CK(cuCtxCreate(&one, nullptr, 0, gpu.device));
    CK(cuCtxGetCurrent(&current));
    EXPECT(current == one, "cuCtxCreate does not make its context current");
    CK(cuCtxCreate(&two, nullptr, 0, gpu.device));
    CK(cuCtxPopCurrent(&current));
    EXPECT(current == two, "popped another context");
    CK(cuCtxPopCurrent(&current));
    EXPECT(current == one, "popped another context");
    CK(cuCtxGetCurrent(&current));
    EXPECT(current == gpu.context, "the primary context is not current again");

    std::barrier<> meet(2);
    auto body = [&](CUcontext mine, CUcontext theirs) {
        CUcontext got = (CUcontext)77;
        CK(cuCtxGetCurrent(&got));
        EXPECT(got == nullptr, "a new thread has a current context");
        CUdeviceptr memory = 0;
        CK_IS(cuMemAlloc(&memory, 4), CUDA_ERROR_INVALID_CONTEXT);
        CK(cuCtxPushCurrent(mine));
        meet.arrive_and_wait();
        CK(cuCtxGetCurrent(&got));
        EXPECT(got == mine, "another thread's push changed this thread's context");
        CK(cuMemAlloc(&memory, 4096));
        CUcontext owner = nullptr;
        CK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
        EXPECT(owner == mine, "memory of another context");
        CK(cuMemFree(memory));
        meet.arrive_and_wait();
        // Each pops its own while the other one works.
        CK(cuCtxPopCurrent(&got));
        EXPECT(got == mine, "popped another context");
        CK(cuCtxGetCurrent(&got));
        EXPECT(got == nullptr, "something is left");
        meet.arrive_and_wait();
        // And they migrate: each now works in the context that the other released.
        CK(cuCtxPushCurrent(theirs));
        CK(cuMemAlloc(&memory, 4096));
        CK(cuMemFree(memory));
        CK(cuCtxSynchronize());
        pop_context();
        CUresult empty = cuCtxPopCurrent(&got);
        EXPECT(empty == CUDA_ERROR_INVALID_CONTEXT, "pop of an empty stack: %d", empty);
    };
    std::thread second(body, two, one);
    std::thread first(body, one, two);
    first.join();
    second.join();
    CK(cuCtxGetCurrent(&current));
    EXPECT(current == gpu.context, "threads changed the main thread's context");
    CK(cuCtxDestroy(one));
    CK(cuCtxDestroy(two));
    // Destroying a current context leaves none, or itself, current: only what follows is compared.
    CUdevice device = -1;
    CK(cuCtxGetDevice(&device));
    EXPECT(device == gpu.device, "device %d", device);
}

// A context's limits, flags, API version and device are its own.
PITFALL(25, context_properties) {
    Gpu gpu;
    CUcontext context = nullptr;
    CK(cuCtxCreate(&context, nullptr, CU_CTX_SCHED_BLOCKING_SYNC | CU_CTX_MAP_HOST, gpu.device));
    unsigned flags = 0;
    CK(cuCtxGetFlags(&flags));
    EXPECT(flags & CU_CTX_SCHED_BLOCKING_SYNC, "flags %u", flags);
    pitfall::observed("flags=%u", flags);
    unsigned version = 0;
    CK(cuCtxGetApiVersion(context, &version));
    EXPECT(version >= 3010, "API version %u", version);
    pitfall::observed("api_version=%u", version);
    for (CUlimit limit : {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE, CU_LIMIT_MALLOC_HEAP_SIZE}) {
        size_t value = 0;
        CUresult code = cuCtxGetLimit(&value, limit);
        pitfall::observed("limit_%d=%d,%zu", (int)limit, (int)code, value);
    }
    CK(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    size_t stack = 0;
    CK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    EXPECT(stack >= 4096, "stack %zu", stack);
    OBSERVE("unknown_limit", cuCtxGetLimit(&stack, (CUlimit)9999));
    CUfunc_cache cache = (CUfunc_cache)77;
    CK(cuCtxGetCacheConfig(&cache));
    pitfall::observed("cache_config=%d", (int)cache);
    unsigned long long id = 0, primary = 0;
    CK(cuCtxGetId(context, &id));
    CK(cuCtxGetId(gpu.context, &primary));
    EXPECT(id != primary, "two contexts with id %llu", id);
    // A stream belongs to its context; the caller's current context may be another one.
    CUstream stream = new_stream();
    pop_context();
    CUcontext owner = nullptr;
    CK(cuStreamGetCtx(stream, &owner));
    EXPECT(owner == context, "the stream's context changed");
    CK(cuStreamSynchronize(stream));
    CUdeviceptr memory = 0;
    CK(cuCtxPushCurrent(context));
    CK(cuMemAlloc(&memory, 4096));
    pop_context();
    CK(cuMemcpyHtoD(memory, &id, 8)); // memory of any context of the process
    unsigned long long back = 0;
    CK(cuMemcpyDtoH(&back, memory, 8));
    EXPECT(back == id, "%llu, expected %llu", back, id);
    CK(cuCtxDestroy(context));
}

static void short_threads(const Gpu &gpu, int total, int at_once) {
    for (int i = 0; i < total; i += at_once) {
        std::vector<std::thread> threads;
        for (int t = 0; t < at_once; t++)
            threads.emplace_back([&, i, t] {
                CK(cuCtxSetCurrent(gpu.context));
                CUdeviceptr memory = 0;
                unsigned value = i * 10 + t, back = 0;
                CK(cuMemAlloc(&memory, 4096));
                CK(cuMemcpyHtoDAsync(memory, &value, 4, CU_STREAM_PER_THREAD));
                CK(cuMemcpyDtoHAsync(&back, memory, 4, CU_STREAM_PER_THREAD));
                CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
                EXPECT(back == value, "%u, expected %u", back, value);
                CK(cuMemFree(memory));
            });
        for (auto &thread : threads)
            thread.join();
    }
}

PITFALL(26, many_short_threads) {
    Gpu gpu;
    const int total = pitfall::large() ? 10'000 : 1'000, at_once = 8;
    expect_kept(64 << 20, [&] { short_threads(gpu, total, at_once); });
}

static std::atomic<int> in_destructor{-1};
struct CallsAtThreadEnd {
    CUdeviceptr memory = 0;
    ~CallsAtThreadEnd() { in_destructor = cuMemFree(memory); }
};

PITFALL(26, call_in_a_thread_local_destructor) {
    Gpu gpu;
    std::thread([&] {
        static thread_local CallsAtThreadEnd last; // constructed before libcuda's own thread-locals, so destroyed after them
        CK(cuCtxSetCurrent(gpu.context));
        CK(cuMemAlloc(&last.memory, 4096));
    }).join();
    pitfall::observed("free_in_thread_local_destructor=%d", in_destructor.load());
    EXPECT(in_destructor != -1, "the destructor did not run");
    CUdeviceptr memory = device_words(4);
    CK(cuMemFree(memory));
}

// One process waits for its GPU, another one works meanwhile.
PITFALL(27, waiting_process_stops_no_other) {
    int to_parent[2], to_child[2];
    EXPECT(pipe(to_parent) == 0 && pipe(to_child) == 0, "pipe");
    pid_t child = fork(); // before any CUDA call
    if (child == 0) {
        Gpu gpu;
        Gate gate(gpu);
        CUstream stream = new_stream();
        gate.close(stream);
        std::thread opener([&] {
            char byte = 0;
            ssize_t ignored = write(to_parent[1], "r", 1);
            ignored = read(to_child[0], &byte, 1);
            (void)ignored;
            gate.open();
        });
        CK(cuCtxSynchronize());
        EXPECT(gate.is_open(), "cuCtxSynchronize did not wait");
        opener.join();
        gate.check();
        _exit(0);
    }
    close(to_parent[1]);
    close(to_child[0]);
    char byte = 0;
    EXPECT(read(to_parent[0], &byte, 1) == 1, "the other process did not come up");
    {
        Gpu gpu;
        CUfunction fill = gpu.function("fill");
        std::vector<unsigned> got(1024);
        for (unsigned i = 0; i < 50; i++) {
            CUdeviceptr memory = 0;
            CK(cuMemAlloc(&memory, 4096));
            LAUNCH(fill, 1, 64, nullptr, memory, i, 1024u);
            CK(cuMemcpyDtoH(got.data(), memory, 4096));
            EXPECT_WORDS(got.data(), 1024, i);
            CK(cuMemFree(memory));
        }
    }
    EXPECT(waitpid(child, nullptr, WNOHANG) == 0, "the other process did not wait for its kernel");
    EXPECT(write(to_child[1], "o", 1) == 1, "write");
    int status = pitfall::wait_for(child);
    EXPECT(status == 0, "the waiting process ended with %d", status);
}

// Many small synchronous calls of two threads: a lost wake-up leaves one of them waiting for ever.
PITFALL(79, small_calls_of_two_threads) {
    Gpu gpu;
    const unsigned rounds = pitfall::large() ? 100'000 : 3'000;
    auto player = [&](unsigned me) {
        CK(cuCtxSetCurrent(gpu.context));
        CUstream stream = new_stream();
        CUdeviceptr word = device_words(2);
        unsigned *pinned = pinned_words(4);
        CUfunction step = gpu.function("step");
        unsigned expected = me;
        // A synchronous copy from pageable memory may still be on its way when it returns, and the stream waits for no
        // other.
        CK(cuMemcpyHtoD(word, &expected, 4));
        CK(cuCtxSynchronize());
        for (unsigned i = 0; i < rounds; i++) {
            switch ((i * 7 + me) % 4) {
            case 0: {
                unsigned got = 0;
                CK(cuMemcpyDtoH(&got, word, 4));
                EXPECT(got == expected, "thread %u round %u: %u, expected %u", me, i, got, expected);
                break;
            }
            case 1:
                LAUNCH(step, 1, 1, stream, word, 3u, i);
                expected = expected * 3 + i;
                CK(cuStreamSynchronize(stream));
                break;
            case 2:
                CK(cuMemcpyDtoHAsync(pinned, word, 4, stream));
                CK(cuStreamSynchronize(stream));
                EXPECT(*pinned == expected, "thread %u round %u: %u, expected %u", me, i, *pinned, expected);
                break;
            default:
                expected = i;
                CK(cuMemcpyHtoDAsync(word, &expected, 4, stream));
                while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
                    std::this_thread::yield();
            }
        }
    };
    std::thread other(player, 1);
    player(0);
    other.join();
}

// However many threads wait, others go on: one of them may be what ends the waits.
PITFALL(27, threads_that_wait_stop_no_other) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr word = device_words(1);
    CUstream stream = new_stream(), other = new_stream();
    Gate gate(gpu);
    for (bool whole : {false, true}) {
        gate.close(stream);
        std::atomic<int> begun = 0, ended = 0;
        std::vector<std::thread> threads;
        for (int i = 0; i < 100; i++)
            threads.emplace_back([&] {
                CK(cuCtxSetCurrent(gpu.context));
                begun++;
                CK(whole ? cuCtxSynchronize() : cuStreamSynchronize(stream));
                ended++;
            });
        while (begun < 100)
            std::this_thread::yield();
        // The threads begin to wait during these.
        for (unsigned i = 1; i < 200; i++) {
            size_t free = 0, total = 0;
            CK(cuMemGetInfo(&free, &total));
            LAUNCH(fill, 1, 1, other, word, i, 1u);
        }
        EXPECT(ended == 0 && !gate.is_open(), "%d threads have ended", (int)ended);
        gate.open();
        for (std::thread &thread : threads)
            thread.join();
        gate.check();
        CK(cuStreamSynchronize(other));
        unsigned got = 0;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == 199, "%u", got);
    }
}

PITFALL(26, objects_end_while_an_ended_context_is_current) {
    Gpu gpu;
    size_t before = 0, after = 0, total = 0;
    CK(cuMemGetInfo(&before, &total));
    // In another thread, whose current context then ends.
    auto with_ended_context = [&](auto first, auto body) {
        std::thread([&] {
            CK(cuCtxSetCurrent(gpu.context));
            first();
            CUcontext ended = nullptr;
            CK(cuCtxCreate(&ended, nullptr, 0, gpu.device));
            std::thread([&] { CK(cuCtxDestroy(ended)); }).join();
            body();
        }).join();
        CK(cuCtxSynchronize());
    };
    CUgraph graph = nullptr;
    CUgraphNode node = nullptr;
    CK(cuGraphCreate(&graph, 0));
    CK(cuGraphAddEmptyNode(&node, graph, nullptr, 0));
    for (unsigned round = 0; round < 8; round++) {
        CUgraphExec exec = nullptr;
        CUevent event = nullptr;
        CUstream stream = nullptr;
        with_ended_context(
            [&] {
                CK(cuGraphInstantiate(&exec, graph, 0));
                CK(cuEventCreate(&event, 0));
                CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
                // The thread's own stream ends with the thread.
                CUdeviceptr memory = device_words(16);
                CK(cuMemsetD32Async(memory, 1, 16, CU_STREAM_PER_THREAD));
                CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
                CK(cuMemFree(memory));
                std::vector<CUdeviceptr> all(40);
                for (auto &one : all)
                    CK(cuMemAlloc(&one, 1 << 20));
                for (auto &one : all)
                    CK(cuMemFree(one));
            },
            [&] {
                CK(cuGraphExecDestroy(exec));
                CK(cuEventDestroy(event));
                CK(cuStreamDestroy(stream));
                // Such a call may give freed memory back, whatever its result is.
                size_t free = 0, all = 0;
                cuMemGetInfo(&free, &all);
            });
    }
    CK(cuGraphDestroy(graph));
    CK(cuMemGetInfo(&after, &total));
    // Other programs use a real GPU's memory, too.
    if (!gpu.is_large())
        EXPECT(before < after + (100u << 20), "%zu bytes became %zu", before, after);
}

PITFALL_MAIN
