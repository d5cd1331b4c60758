// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Streams, events, ordering over threads (pitfalls 19, 21 to 24).
#include "driver.h"
#include <memory>

// Spins the CPU until the turn is ours: an order of calls over two threads with no GPU synchronisation in it.
static void await_turn(const std::atomic<unsigned> &turn, unsigned wanted) {
    while (turn.load(std::memory_order_acquire) != wanted)
        std::this_thread::yield();
}

struct Wide {
    unsigned first;
    unsigned char filling[4072];
    unsigned last;
};

// A launch that takes long to encode, then a short call of another thread on the same stream: call order is stream
// order.
PITFALL(19, calls_of_two_threads_keep_their_order) {
    Gpu gpu;
    CUfunction wide = gpu.function("params_wide");
    CUstream stream = new_stream();
    CUdeviceptr word = device_words(1);
    unsigned *results = pinned_words(512, 0xeeeeeeee);
    std::atomic<unsigned> turn{0};
    const unsigned rounds = 512;
    std::thread launcher([&] {
        CK(cuCtxSetCurrent(gpu.context));
        auto params = std::make_unique<Wide>();
        for (unsigned i = 0; i < rounds; i++) {
            await_turn(turn, 2 * i);
            params->first = i;
            params->last = 1000;
            LAUNCH(wide, 1, 1, stream, *params, word);
            params->first = params->last = 0xbad; // taken at the call
            turn.store(2 * i + 1, std::memory_order_release);
        }
    });
    for (unsigned i = 0; i < rounds; i++) {
        await_turn(turn, 2 * i + 1);
        CK(cuMemcpyDtoHAsync(results + i, word, 4, stream));
        CK(cuMemsetD32Async(word, 0x55, 1, stream));
        turn.store(2 * i + 2, std::memory_order_release);
    }
    launcher.join();
    CK(cuStreamSynchronize(stream));
    for (unsigned i = 0; i < rounds; i++)
        EXPECT(results[i] == i + 1000, "round %u read %u", i, results[i]);
}

// The same, where the second thread's call is synchronous.
PITFALL(19, synchronous_call_follows_other_threads_launch) {
    Gpu gpu;
    CUfunction wide = gpu.function("params_wide");
    CUdeviceptr word = device_words(1);
    std::atomic<unsigned> turn{0};
    const unsigned rounds = 256;
    std::thread launcher([&] {
        CK(cuCtxSetCurrent(gpu.context));
        Wide params = {};
        for (unsigned i = 0; i < rounds; i++) {
            await_turn(turn, 2 * i);
            params.first = i;
            LAUNCH(wide, 1, 1, nullptr, params, word);
            turn.store(2 * i + 1, std::memory_order_release);
        }
    });
    for (unsigned i = 0; i < rounds; i++) {
        await_turn(turn, 2 * i + 1);
        unsigned got = 0;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == i, "round %u read %u", i, got);
        turn.store(2 * i + 2, std::memory_order_release);
    }
    launcher.join();
}

PITFALL(21, legacy_and_per_thread_handles) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr a = device_words(64), b = device_words(64), c = device_words(64);
    Gate gate(gpu);
    gate.close(CU_STREAM_PER_THREAD); // this thread's
    LAUNCH(fill, 1, 32, CU_STREAM_PER_THREAD, a, 1u, 64u);
    std::thread other([&] {
        CK(cuCtxSetCurrent(gpu.context));
        // Another thread's per-thread stream is another stream.
        LAUNCH(fill, 1, 32, CU_STREAM_PER_THREAD, b, 2u, 64u);
        CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    });
    other.join();
    EXPECT(!gate.is_open(), "the gate is open");
    CK_IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
    // The legacy stream follows every per-thread one.
    LAUNCH(fill, 1, 32, CU_STREAM_LEGACY, c, 3u, 64u);
    CK_IS(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(CU_STREAM_LEGACY));
    CK(cuStreamQuery(CU_STREAM_PER_THREAD));
    unsigned got[64];
    CUdeviceptr all[] = {a, b, c};
    for (unsigned i = 0; i < 3; i++) {
        CK(cuMemcpyDtoH(got, all[i], sizeof got));
        EXPECT_WORDS(got, 64, i + 1);
    }
}

PITFALL(21, null_is_the_legacy_stream) {
    Gpu gpu;
    CUstream blocking = new_stream(false), free_standing = new_stream(true);
    Gate gate(gpu);
    gate.close(nullptr);
    CK_IS(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
    CUdeviceptr word = 0;
    CK(cuMemAlloc(&word, 4));
    CK(cuMemsetD32Async(word, 1, 1, free_standing));
    CK(cuStreamSynchronize(free_standing));
    CK(cuMemsetD32Async(word, 2, 1, blocking));
    CK_IS(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(blocking));
    unsigned flags = 9;
    CK(cuStreamGetFlags(free_standing, &flags));
    EXPECT(flags == CU_STREAM_NON_BLOCKING, "flags %u", flags);
    CK(cuStreamGetFlags(blocking, &flags));
    EXPECT(flags == CU_STREAM_DEFAULT, "flags %u", flags);
    OBSERVE("flags_of_null", cuStreamGetFlags(nullptr, &flags));
    pitfall::observed("flags_of_null_value=%u", flags);
    CUcontext context = nullptr;
    CK(cuStreamGetCtx(blocking, &context));
    EXPECT(context == gpu.context, "cuStreamGetCtx gave another context");
}

PITFALL(21, priorities) {
    Gpu gpu;
    int least = 99, greatest = 99;
    CK(cuCtxGetStreamPriorityRange(&least, &greatest));
    EXPECT(greatest <= least && least == 0, "priorities %d to %d", least, greatest);
    pitfall::observed("hw.greatest_priority=%d", greatest);
    for (int asked : {least, greatest, greatest - 5, least + 5}) {
        CUstream stream;
        int got = 99;
        CK(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, asked));
        CK(cuStreamGetPriority(stream, &got));
        EXPECT(got == std::clamp(asked, greatest, least), "asked %d, got %d", asked, got);
        CK(cuStreamDestroy(stream));
    }
    unsigned long long first = 0, second = 0;
    CUstream one = new_stream(), two = new_stream();
    CK(cuStreamGetId(one, &first));
    CK(cuStreamGetId(two, &second));
    EXPECT(first != second, "two streams with id %llu", first);
}

// NOT_READY while it runs, and a loop that only queries comes to an end.
PITFALL(22, query_is_honest_and_ends) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int by_event = 0; by_event < 2; by_event++) {
        Gate gate(gpu);
        gate.close(stream);
        CK(cuEventRecord(event, stream));
        for (int i = 0; i < 100; i++) {
            CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
            CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        }
        gate.open();
        CUresult code;
        do
            code = by_event ? cuEventQuery(event) : cuStreamQuery(stream);
        while (code == CUDA_ERROR_NOT_READY);
        CK(code);
    }
}

// A destroyed stream's work still runs to its end.
PITFALL(22, destroy_with_work_pending) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr device = device_words(64);
    CUstream stream = new_stream();
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    Gate gate(gpu);
    gate.close(stream);
    LAUNCH(fill, 1, 32, stream, device, 4u, 64u);
    CK(cuEventRecord(event, stream));
    gate.open_later(1);
    CK(cuStreamDestroy(stream));
    pitfall::observed("stream_destroy_waits=%d", gate.is_open());
    gate.open();
    CK(cuEventSynchronize(event));
    CK(cuEventDestroy(event));
    unsigned got[64];
    CK(cuMemcpyDtoH(got, device, sizeof got));
    EXPECT_WORDS(got, 64, 4);
}

PITFALL(23, recreated_event_is_not_stale) {
    Gpu gpu;
    CUstream stream = new_stream();
    Gate gate(gpu);
    for (int round = 0; round < 32; round++) {
        CUevent event;
        CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CK(cuEventQuery(event)); // never recorded is complete
        CK(cuEventSynchronize(event));
        CK(cuEventRecord(event, stream));
        CK(cuEventSynchronize(event));
        CK(cuEventQuery(event));
        if (round % 2) { // destroyed and created again, perhaps at the same handle
            CK(cuEventDestroy(event));
            CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        }
        gate.close(stream);
        CK(cuEventRecord(event, stream));
        CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuEventSynchronize(event));
        CK(cuEventQuery(event));
        CK(cuEventDestroy(event));
    }
}

PITFALL(24, elapsed_time_errors) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUevent timed, later, untimed;
    float ms = -1;
    CK(cuEventCreate(&timed, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&later, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    CK_IS(cuEventElapsedTime(&ms, timed, later), CUDA_ERROR_INVALID_HANDLE); // never recorded
    CK(cuEventRecord(timed, stream));
    CK_IS(cuEventElapsedTime(&ms, timed, later), CUDA_ERROR_INVALID_HANDLE);
    CK(cuEventRecord(untimed, stream));
    CK(cuStreamSynchronize(stream));
    CK_IS(cuEventElapsedTime(&ms, timed, untimed), CUDA_ERROR_INVALID_HANDLE);
    CK(cuEventElapsedTime(&ms, timed, timed));
    EXPECT(ms == 0, "%g ms between an event and itself", ms);
    Gate gate(gpu);
    gate.close(stream);
    CK(cuEventRecord(later, stream));
    CK_IS(cuEventElapsedTime(&ms, timed, later), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuEventSynchronize(later));
    CK(cuEventElapsedTime(&ms, timed, later));
    EXPECT(ms >= 0, "%g ms", ms);
    float back = 0;
    CK(cuEventElapsedTime(&back, later, timed));
    EXPECT(std::abs(back + ms) < 0.01, "%g ms one way, %g the other", ms, back);
}

// The time is the stream's: at least what passed between "the first event is complete" and "the gate opens".
PITFALL(24, elapsed_time_is_the_streams) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUevent begin, end;
    CK(cuEventCreate(&begin, CU_EVENT_DEFAULT));
    CK(cuEventCreate(&end, CU_EVENT_DEFAULT));
    Gate gate(gpu);
    CK(cuEventRecord(begin, stream));
    gate.close(stream);
    CK(cuEventRecord(end, stream)); // both are recorded long before the second happens
    CK(cuEventSynchronize(begin));
    double from = pitfall::seconds();
    while (pitfall::seconds() - from < 0.1)
        std::this_thread::yield();
    double least = (pitfall::seconds() - from) * 1000;
    gate.open();
    CK(cuEventSynchronize(end));
    double most = (pitfall::seconds() - from) * 1000;
    float ms = 0;
    CK(cuEventElapsedTime(&ms, begin, end));
    EXPECT(ms >= least * 0.99, "%g ms for a kernel that was held for %g ms (%g at the most)", ms, least, most);
}

PITFALL(24, wait_binds_to_the_latest_record) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUstream a = new_stream(), b = new_stream();
    CUdeviceptr word = device_words(1, 1);
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    unsigned *got = pinned_words(1);
    {
        // Never recorded: the wait is no wait.
        Gate gate(gpu);
        gate.close(a);
        CK(cuStreamWaitEvent(b, event, 0));
        CK(cuEventRecord(event, a)); // too late for the wait above
        LAUNCH(step, 1, 1, b, word, 1u, 1u);
        CK(cuStreamSynchronize(b));
        EXPECT(!gate.is_open(), "the gate is open");
        // Recorded now: this wait holds, also after the event was recorded again elsewhere.
        CK(cuStreamWaitEvent(b, event, 0));
        LAUNCH(step, 1, 1, a, word, 10u, 0u);
        CUstream c = new_stream();
        CK(cuEventRecord(event, c));
        CK(cuEventSynchronize(event));
        CK(cuMemcpyDtoHAsync(got, word, 4, b));
        CK_IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuStreamSynchronize(b));
        EXPECT(*got == 2 || *got == 20, "%u", *got);
        CK(cuStreamSynchronize(a));
    }
}

// A stream that was repeatedly found idle is busy as soon as it gets work: from its own thread, another one, an event
// of another stream, or the legacy stream.
PITFALL(24, idle_streams_are_busy_again) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUstream free_stream = new_stream(), blocking = new_stream(false), other = new_stream();
    CUdeviceptr word = device_words(1, 1);
    CUevent event, before, after;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&before, 0));
    CK(cuEventCreate(&after, 0));
    CK_IS(cuEventQuery(event), CUDA_SUCCESS);
    auto settle = [&](CUstream stream) {
        for (int i = 0; i < 3; i++) {
            CK(cuStreamSynchronize(stream));
            CK(cuStreamQuery(stream));
            CK(cuEventRecord(event, stream));
            CK(cuEventSynchronize(event));
            CK(cuEventQuery(event));
            CK(cuStreamQuery(stream));
        }
    };
    auto busy = [&](const char *what, CUstream stream, auto give) {
        settle(stream);
        Gate gate(gpu);
        give(gate);
        CUresult code = cuStreamQuery(stream);
        EXPECT(code == CUDA_ERROR_NOT_READY, "%s: the query returned %d", what, code);
        CK(cuEventRecord(event, stream));
        code = cuEventQuery(event);
        EXPECT(code == CUDA_ERROR_NOT_READY, "%s: the event's query returned %d", what, code);
        gate.open();
        CK(cuEventSynchronize(event));
        CK(cuCtxSynchronize());
    };
    for (CUstream stream : {free_stream, blocking}) {
        busy("own work", stream, [&](Gate &gate) { gate.close(stream); });
        busy("another thread's work", stream, [&](Gate &gate) {
            std::thread([&] {
                CK(cuCtxSetCurrent(gpu.context));
                gate.close(stream);
            }).join();
        });
        busy("an event of another stream", stream, [&](Gate &gate) {
            CUevent there;
            CK(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
            gate.close(other);
            CK(cuEventRecord(there, other));
            CK(cuStreamWaitEvent(stream, there, 0));
        });
    }
    // The event waits for the legacy stream although its own stream is idle, whatever a query has returned before.
    for (bool asks : {false, true}) {
        settle(blocking);
        Gate gate(gpu);
        gate.close(nullptr);
        if (asks)
            cuStreamQuery(blocking);
        CK(cuEventRecord(event, blocking));
        CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuEventSynchronize(event));
    }
    // Consecutive records in an idle stream: each is complete, and none includes work that another thread submits
    // later.
    for (CUstream stream : {free_stream, blocking, (CUstream) nullptr}) {
        for (int i = 0; i < 20; i++) {
            CK(cuEventRecord(event, stream));
            CK(cuEventSynchronize(event));
            CK(cuEventRecord(before, stream));
            CK(cuEventSynchronize(before));
            CK(cuEventQuery(event));
            // Whatever else is done meanwhile without submitting work, here or in another thread.
            CUevent other_event;
            CK(cuEventCreate(&other_event, CU_EVENT_DISABLE_TIMING));
            CK(cuEventDestroy(other_event));
            CK(cuStreamQuery(stream));
            std::thread([&] {
                CK(cuCtxSetCurrent(gpu.context));
                CK(cuStreamQuery(stream));
            }).join();
        }
        Gate gate(gpu);
        std::thread([&] {
            CK(cuCtxSetCurrent(gpu.context));
            gate.close(stream);
        }).join();
        CK(cuEventQuery(event));
        CK(cuEventRecord(event, stream));
        CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuEventSynchronize(event));
    }
    // A failed launch is no work, and an event that times has a time.
    settle(free_stream);
    CK_IS(cuLaunchKernel(step, 0, 1, 1, 1, 1, 1, 0, free_stream, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamQuery(free_stream));
    for (int i = 0; i < 50; i++) {
        CK(cuEventRecord(before, free_stream));
        CK(cuEventSynchronize(before));
        if (i % 2)
            LAUNCH(step, 1, 1, free_stream, word, 1u, 1u);
        CK(cuEventRecord(after, free_stream));
        CK(cuEventSynchronize(after));
        float ms = -1;
        CK(cuEventElapsedTime(&ms, before, after));
        EXPECT(ms >= 0, "%f ms", ms);
    }
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 26, "%u", got);
}

// An event of a context stands for all of its streams, and a context that waits holds back all of them, also those made
// later.
PITFALL(24, contexts_record_and_wait) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUstream a = new_stream(), b = new_stream();
    CUdeviceptr word = device_words(1, 1);
    CUevent event, foreign;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    unsigned *got = pinned_words(1);
    {
        Gate gate(gpu);
        gate.close(a);
        LAUNCH(step, 1, 1, a, word, 10u, 0u);
        CK(cuCtxRecordEvent(gpu.context, event));
        CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        CK(cuCtxWaitEvent(gpu.context, event));
        LAUNCH(step, 1, 1, b, word, 1u, 1u);
        CK_IS(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
        CUstream later = new_stream();
        CK(cuMemcpyDtoHAsync(got, word, 4, later));
        CK_IS(cuStreamQuery(later), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuStreamSynchronize(b));
        CK(cuStreamSynchronize(later));
        CK(cuEventSynchronize(event));
    }
    CK(cuMemcpyDtoH(got, word, 4));
    EXPECT(*got == 11, "%u", *got);
    CK_IS(cuCtxRecordEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuCtxWaitEvent(nullptr, event), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuCtxRecordEvent(gpu.context, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CK_IS(cuCtxWaitEvent(gpu.context, nullptr), CUDA_ERROR_INVALID_HANDLE);
    // A context that has a stream which records is not one of which there is an event, and the capture is worth
    // nothing.
    CUgraph graph = nullptr;
    CK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CK_IS(cuCtxRecordEvent(gpu.context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CK_IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
    CK_IS(cuCtxWaitEvent(gpu.context, event), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CK_IS(cuStreamEndCapture(a, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    // An event is recorded in its own context, and waited for in any.
    CUcontext other;
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    CK(cuEventCreate(&foreign, CU_EVENT_DISABLE_TIMING));
    CK_IS(cuCtxRecordEvent(gpu.context, foreign), CUDA_ERROR_INVALID_HANDLE);
    CK(cuCtxWaitEvent(gpu.context, foreign));
    CK(cuCtxRecordEvent(other, foreign));
    CK(cuCtxWaitEvent(gpu.context, foreign));
    CK(cuCtxDestroy(other));
}

// Two threads, two streams, ordered only by events.
PITFALL(24, event_ping_pong_over_threads) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUdeviceptr word = device_words(1, 1);
    CUstream streams[2] = {new_stream(), new_stream()};
    CUevent events[2];
    for (auto &event : events)
        CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    std::atomic<unsigned> turn{0};
    const unsigned rounds = 200;
    auto player = [&](unsigned me) {
        CK(cuCtxSetCurrent(gpu.context));
        for (unsigned i = 0; i < rounds; i++) {
            await_turn(turn, 2 * i + me);
            CK(cuStreamWaitEvent(streams[me], events[1 - me], 0));
            LAUNCH(step, 1, 1, streams[me], word, 3u + 2 * me, 1u + me);
            CK(cuEventRecord(events[me], streams[me]));
            turn.store(2 * i + me + 1, std::memory_order_release);
        }
    };
    std::thread other(player, 1);
    player(0);
    other.join();
    CK(cuStreamSynchronize(streams[0]));
    CK(cuStreamSynchronize(streams[1]));
    unsigned expected = 1, got = 0;
    for (unsigned i = 0; i < rounds; i++)
        expected = (expected * 3 + 1) * 5 + 2;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == expected, "%u, expected %u", got, expected);
}

// A wait for an event is for the record that was the latest when the wait began, however often another thread records
// the event meanwhile.
PITFALL(24, a_wait_is_for_the_record_that_it_found) {
    Gpu gpu;
    Gate first(gpu), second(gpu);
    CUstream stream = new_stream();
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    bool is_over = false;
    // The other thread may begin its wait too late, so there are several rounds.
    for (int round = 0; round < 20 && !is_over; round++) {
        first.close(stream);
        CK(cuEventRecord(event, stream));
        std::atomic<bool> begins = false, ends = false;
        std::thread waits([&] {
            CK(cuCtxSetCurrent(gpu.context));
            begins = true;
            CK(cuEventSynchronize(event));
            ends = true;
        });
        while (!begins)
            std::this_thread::yield();
        for (int i = 0; i < 1000; i++)
            std::this_thread::yield();
        EXPECT(!ends, "the wait ended before the record");
        second.close(stream);
        CK(cuEventRecord(event, stream));
        first.open();
        for (int i = 0; i < 50000 && !ends; i++)
            std::this_thread::yield();
        is_over = ends;
        second.open();
        waits.join();
        CK(cuStreamSynchronize(stream));
    }
    EXPECT(is_over, "each wait was for the later record");
    CK(cuEventDestroy(event));
}

// Waits for a gate's kernel in one stream by a call of another thread, and gives work to a second stream meanwhile. The
// name is that of the call.
static void wait_beside(const char *name, void (*call)(CUdeviceptr memory, void *pinned)) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    Gate gate(gpu);
    CUstream first, second;
    CK(cuStreamCreate(&first, CU_STREAM_DEFAULT));
    CK(cuStreamCreate(&second, CU_STREAM_DEFAULT));
    unsigned *word = pinned_words(1);
    CUdeviceptr memory = device_words(1024);
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, 4096));
    gate.close(first);
    std::atomic<bool> begins = false, is_over = false;
    std::thread waits([&] {
        CK(cuCtxSetCurrent(gpu.context));
        begins = true;
        call(memory, pinned);
        is_over = true;
    });
    while (!begins)
        std::this_thread::yield();
    // The other thread begins to wait during one of these.
    for (unsigned i = 0; i < 300 && !is_over; i++) {
        LAUNCH(fill, 1, 1, second, word, i, 1u);
        CK(cuStreamSynchronize(second));
        EXPECT_WORDS(word, 1, i);
    }
    EXPECT(!gate.is_open(), "the gate is open");
    gate.open();
    waits.join();
    bool is_held_up = gate.was_given_up();
    // Some of NVIDIA's calls keep a lock while they wait.
    if (pitfall::backend() == "native")
        pitfall::observed("held_up_by_%s=%d", name, is_held_up);
    else
        EXPECT(!is_held_up, "%s holds up other threads", name);
    CK(cuStreamDestroy(first));
    CK(cuStreamDestroy(second));
}

// A thread that waits for a context, or for the legacy stream, holds up no stream: work that another thread gives
// meanwhile may be what ends the earlier work.
PITFALL(22, a_wait_for_the_context_holds_up_no_stream) {
    wait_beside("cuCtxSynchronize", [](CUdeviceptr, void *) { CK(cuCtxSynchronize()); });
}

PITFALL(22, a_free_holds_up_no_stream) {
    wait_beside("cuMemFree", [](CUdeviceptr memory, void *) { CK(cuMemFree(memory)); });
}

PITFALL(22, a_free_of_pinned_memory_holds_up_no_stream) {
    wait_beside("cuMemFreeHost", [](CUdeviceptr, void *pinned) { CK(cuMemFreeHost(pinned)); });
}

PITFALL(22, a_wait_for_the_legacy_stream_holds_up_no_stream) {
    wait_beside("cuStreamSynchronize", [](CUdeviceptr, void *) { CK(cuStreamSynchronize(nullptr)); });
}

// Nor does a wait for a stream without work wait for the legacy stream.
PITFALL(22, an_idle_stream_does_not_wait_for_the_legacy_stream) {
    Gpu gpu;
    Gate gate(gpu);
    CUstream idle;
    CK(cuStreamCreate(&idle, CU_STREAM_DEFAULT));
    gate.close(nullptr);
    CK(cuStreamSynchronize(idle));
    EXPECT(!gate.is_open(), "the gate is open");
    gate.open();
    CK(cuCtxSynchronize());
    bool waits = gate.was_given_up();
    if (pitfall::backend() == "native")
        pitfall::observed("an_idle_stream_waits=%d", waits);
    else
        EXPECT(!waits, "it waits");
    CK(cuStreamDestroy(idle));
}

// A launch and a record that the driver refuses fail themselves, and no other call gets their error.
PITFALL(25, work_for_another_contexts_stream_is_refused_at_once) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr word = device_words(1);
    CUevent event;
    CK(cuEventCreate(&event, 0));
    CUcontext other = nullptr;
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    CUstream others = new_stream();
    CK(cuCtxSetCurrent(gpu.context));
    CUresult code = try_launch(fill, 1, 1, others, word, 1u, 1u);
    EXPECT(code == CUDA_ERROR_INVALID_HANDLE, "%d", (int)code);
    CK(cuCtxSynchronize());
    CK(cuCtxSetCurrent(nullptr));
    OBSERVE("record_without_context", cuEventRecord(event, nullptr));
    CK(cuCtxSetCurrent(other));
    CK(cuCtxSynchronize());
    CK(cuCtxDestroy(other));
    CK(cuCtxSetCurrent(gpu.context));
    CK(cuCtxSynchronize());
    LAUNCH(fill, 1, 1, nullptr, word, 7u, 1u);
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 7, "%u", got);
}

// The default streams of two contexts have the same handle.
PITFALL(24, an_event_says_nothing_of_another_contexts_default_stream) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    unsigned *word = pinned_words(1);
    Gate gate(gpu);
    CUcontext other = nullptr;
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    CUevent event;
    CK(cuEventCreate(&event, 0));
    for (unsigned round = 1; round < 4; round++) {
        CK(cuCtxSetCurrent(gpu.context));
        gate.close(nullptr);
        LAUNCH(fill, 1, 1, nullptr, word, round, 1u);
        CK(cuCtxSetCurrent(other));
        CK(cuEventRecord(event, nullptr));
        CK(cuCtxSetCurrent(gpu.context));
        if (round % 2)
            CK(cuEventSynchronize(event));
        else
            while (cuEventQuery(event) == CUDA_ERROR_NOT_READY)
                std::this_thread::yield();
        CK_IS(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
        gate.open_later(0.005);
        CK(cuStreamSynchronize(nullptr));
        EXPECT_WORDS(word, 1, round);
        gate.wait_opened();
    }
    CK(cuCtxDestroy(other));
    CK(cuCtxSetCurrent(gpu.context));
}

// A context waits for the work of every stream, also if the program has many and used each long ago.
PITFALL(22, a_context_waits_for_each_of_many_streams) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    Gate gate(gpu);
    const unsigned count = 40;
    std::vector<CUstream> streams(count);
    for (auto &stream : streams)
        stream = new_stream();
    unsigned *words = pinned_words(count);
    for (unsigned round = 1; round <= 2; round++)
        for (unsigned i = 0; i < count; i++) {
            gate.close(streams[i]);
            auto give = [&] { LAUNCH(fill, 1, 1, streams[i], words + i, round, 1u); };
            if (i % 2)
                give();
            else
                std::thread([&] {
                    CK(cuCtxSetCurrent(gpu.context));
                    give();
                }).join();
            gate.open_later(0.005);
            CK(cuCtxSynchronize());
            EXPECT_WORDS(words + i, 1, round);
            CK(cuStreamQuery(streams[i]));
            gate.wait_opened();
        }
    // Work in all of them.
    gate.close(streams[7]);
    for (unsigned i = 0; i < count; i++)
        LAUNCH(fill, 1, 1, streams[i], words + i, 9u, 1u);
    gate.open_later(0.005);
    CK(cuCtxSynchronize());
    EXPECT_WORDS(words, count, 9u);
    gate.wait_opened();
    for (auto stream : streams)
        CK(cuStreamDestroy(stream));
}

// Work in a stream needs no current context, unless the stream is a default one.
PITFALL(25, work_in_a_stream_needs_no_current_context) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUstream stream = new_stream();
    CUdeviceptr word = device_words(2);
    CUevent event = nullptr;
    unsigned *pinned = pinned_words(2), pageable[2] = {8, 9};
    CK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CK(cuCtxSetCurrent(nullptr));
    CK(cuMemcpyHtoDAsync(word, pageable, 8, stream));
    LAUNCH(fill, 1, 1, stream, word, 7u, 1u);
    CK(cuMemcpyDtoHAsync(pinned, word, 8, stream));
    CK(cuEventRecord(event, stream));
    CK(cuStreamWaitEvent(stream, event, 0));
    CK(cuMemsetD32Async(word, 3, 1, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(pinned[0] == 7 && pinned[1] == 9, "%u and %u", pinned[0], pinned[1]);
    CK(cuEventQuery(event));
    CK(cuMemcpyAsync((CUdeviceptr)pinned, word, 8, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(pinned[0] == 3 && pinned[1] == 9, "%u and %u", pinned[0], pinned[1]);
    CK_IS(cuMemcpyHtoD(word, pageable, 8), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuMemcpyHtoDAsync(word, pageable, 8, nullptr), CUDA_ERROR_INVALID_CONTEXT);
    CUcontext current = gpu.context;
    CK(cuCtxGetCurrent(&current));
    EXPECT(current == nullptr, "a context has become current");
    CK(cuCtxSetCurrent(gpu.context));
}

// "hEvent and hStream must be from the same context."
PITFALL(25, an_event_is_recorded_in_its_own_context) {
    Gpu gpu;
    CUcontext other = nullptr;
    CUevent event = nullptr, others = nullptr;
    CUstream stream = new_stream();
    CK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    CUstream others_stream = new_stream();
    CK(cuEventCreate(&others, CU_EVENT_DEFAULT));
    // The second time, queries have given the event a word that the GPU writes.
    for (int round = 0; round < 2; round++) {
        CK_IS(cuEventRecord(event, others_stream), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(cuEventRecordWithFlags(event, others_stream, CU_EVENT_RECORD_DEFAULT), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(cuEventRecord(event, nullptr), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(cuEventRecord(event, CU_STREAM_PER_THREAD), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(cuEventRecord(others, stream), CUDA_ERROR_INVALID_HANDLE);
        CK(cuStreamSynchronize(stream));
        CK(cuStreamSynchronize(others_stream));
        CK(cuEventRecord(others, others_stream));
        // The stream's context counts, not the current one.
        CK(cuEventRecord(event, stream));
        for (CUevent of : {event, others}) {
            while (cuEventQuery(of) == CUDA_ERROR_NOT_READY)
                std::this_thread::yield();
            CK(cuEventQuery(of));
        }
    }
    CK(cuCtxDestroy(other));
}

PITFALL_MAIN
