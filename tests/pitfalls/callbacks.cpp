// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Host functions and stream callbacks (pitfalls 56, 57).
#include "driver.h"
#include <mutex>

static double soon_enough() { return pitfall::seconds() + 10; }

// A callback waits for a lock that another thread holds while it calls CUDA.
PITFALL(56, callback_waits_for_a_cuda_caller) {
    Gpu gpu;
    struct Shared {
        std::mutex lock;
        std::atomic<int> entered{0};
        std::atomic<bool> stuck{false};
    };
    auto *shared = new Shared;
    CUstream stream = new_stream();
    for (int round = 0; round < 10; round++) {
        shared->entered = 0;
        shared->lock.lock();
        CK(cuLaunchHostFunc(
            stream,
            [](void *data) {
                auto *s = (Shared *)data;
                s->entered = 1;
                double until = soon_enough();
                while (!s->lock.try_lock()) {
                    if (pitfall::seconds() > until) {
                        s->stuck = true;
                        return;
                    }
                    std::this_thread::yield();
                }
                s->lock.unlock();
            },
            shared));
        double until = soon_enough();
        while (!shared->entered && pitfall::seconds() < until) {
        }
        EXPECT(shared->entered, "the callback does not start without a synchronising call");
        CUdeviceptr memory = 0;
        unsigned value = round, back = 0;
        CK(cuMemAlloc(&memory, 4096));
        CUstream other = new_stream();
        CK(cuMemcpyHtoDAsync(memory, &value, 4, other));
        CK(cuMemcpyDtoHAsync(&back, memory, 4, other));
        CK(cuStreamSynchronize(other));
        CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        shared->lock.unlock();
        CK(cuStreamSynchronize(stream));
        EXPECT(!shared->stuck, "a CUDA call and a callback waited for each other");
        EXPECT(back == value, "%u", back);
        CK(cuMemFree(memory));
    }
}

PITFALL(56, callbacks_during_large_copies) {
    Gpu gpu;
    static std::atomic<int> calls{0};
    CUstream copies = new_stream(), callbacks = new_stream();
    const size_t bytes = 32 << 20;
    CUdeviceptr device = device_words(bytes / 4);
    std::vector<unsigned char> source(bytes), got(bytes);
    pattern(source.data(), bytes, 3);
    std::thread copier([&] {
        CK(cuCtxSetCurrent(gpu.context));
        for (int i = 0; i < 8; i++) {
            CK(cuMemcpyHtoDAsync(device, source.data(), bytes, copies));
            CK(cuMemcpyDtoHAsync(got.data(), device, bytes, copies));
        }
        CK(cuStreamSynchronize(copies));
    });
    for (int i = 0; i < 1000; i++)
        CK(cuLaunchHostFunc(callbacks, [](void *) { calls++; }, nullptr));
    CK(cuStreamSynchronize(callbacks));
    EXPECT(calls == 1000, "%d of 1000 callbacks ran", calls.load());
    copier.join();
    EXPECT(got == source, "the copy changed its bytes");
}

// A stream's queue is full before its callback is over: a launch waits for the callback, and delays no other stream.
PITFALL(56, callback_before_more_than_a_stream_holds) {
    Gpu gpu;
    static std::atomic<int> launched{0};
    static std::atomic<bool> stuck{false};
    const unsigned launches = 4000;
    CUstream stream = new_stream();
    CUfunction step = gpu.function("step");
    CUdeviceptr count = device_words(1, 0);
    CK(cuLaunchHostFunc(
        stream,
        [](void *) {
            double until = soon_enough();
            while (launched < 500 && pitfall::seconds() < until)
                std::this_thread::yield();
            stuck = launched < 500;
        },
        nullptr));
    std::thread launcher([&] {
        CK(cuCtxSetCurrent(gpu.context));
        for (unsigned i = 0; i < launches; i++) {
            LAUNCH(step, 1, 1, stream, count, 1u, 1u);
            launched++;
        }
    });
    launcher.join();
    unsigned got = 0;
    CK(cuMemcpyDtoHAsync(&got, count, 4, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(!stuck, "%d launches", launched.load());
    EXPECT(got == launches, "%u of %u kernels ran", got, launches);
}

PITFALL(57, callback_sees_the_copy_before_it) {
    Gpu gpu;
    const unsigned words = 64 * 1024;
    struct Seen {
        unsigned *buffer;
        long other;
        int calls;
    } seen = {pinned_words(words, 0xbad), -2, 0};
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    CUdeviceptr device = device_words(words);
    {
        Gate gate(gpu);
        gate.close(stream);
        LAUNCH(fill, 4, 64, stream, device, 0xfeedu, words);
        CK(cuMemcpyDtoHAsync(seen.buffer, device, words * 4, stream));
        CK(cuLaunchHostFunc(
            stream,
            [](void *data) {
                auto *s = (Seen *)data;
                s->other = first_other(s->buffer, 64 * 1024, 0xfeed);
                s->calls++;
            },
            &seen));
        EXPECT(seen.calls == 0, "the callback ran before the work before it");
        gate.open();
        CK(cuStreamSynchronize(stream));
    }
    EXPECT(seen.calls == 1, "%d calls", seen.calls);
    EXPECT(seen.other == -1, "word %ld was not copied yet", seen.other);
}

PITFALL(57, same_user_data_twice_and_order) {
    Gpu gpu;
    static std::vector<int> order;
    CUstream stream = new_stream();
    struct Item {
        int number;
    };
    static Item items[500];
    for (int i = 0; i < 500; i++) {
        items[i].number = i;
        auto note = [](void *data) { order.push_back(((Item *)data)->number); };
        CK(cuLaunchHostFunc(stream, note, &items[i]));
        CK(cuLaunchHostFunc(stream, note, &items[i]));
    }
    CK(cuStreamSynchronize(stream));
    EXPECT(order.size() == 1000, "%zu of 1000 calls", order.size());
    for (int i = 0; i < 1000; i++)
        EXPECT(order[i] == i / 2, "call %d was for item %d", i, order[i]);
}

// Later work of the stream waits for the callback, another stream's does not.
PITFALL(57, callback_holds_its_stream_back) {
    Gpu gpu;
    static std::atomic<bool> release{false};
    static std::atomic<bool> stuck{false};
    CUstream stream = new_stream(), other = new_stream();
    CUdeviceptr word = device_words(1, 1);
    unsigned *pinned = pinned_words(1, 5);
    CK(cuLaunchHostFunc(
        stream,
        [](void *data) {
            double until = soon_enough();
            while (!release && pitfall::seconds() < until)
                std::this_thread::yield();
            stuck = !release;
            *(unsigned *)data = 6; // read by the copy behind it
        },
        pinned));
    CK(cuMemcpyHtoDAsync(word, pinned, 4, stream));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    unsigned *early = pinned_words(1);
    CK(cuMemcpyDtoHAsync(early, word, 4, other));
    CK(cuStreamSynchronize(other));
    EXPECT(*early == 1, "the copy behind the callback overtook it: %u", *early);
    release = true;
    CK(cuStreamSynchronize(stream));
    EXPECT(!stuck, "a call waited for the callback");
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 6, "the copy behind the callback read %u", got);
}

PITFALL(57, stream_callback_gets_stream_and_status) {
    Gpu gpu;
    struct Seen {
        CUstream stream;
        CUresult status;
        int calls;
    } seen = {nullptr, CUDA_ERROR_UNKNOWN, 0};
    CUstream stream = new_stream();
    CK(cuStreamAddCallback(
        stream,
        [](CUstream s, CUresult status, void *data) {
            auto *into = (Seen *)data;
            into->stream = s;
            into->status = status;
            into->calls++;
        },
        &seen, 0));
    CK(cuStreamSynchronize(stream));
    EXPECT(seen.calls == 1 && seen.stream == stream && seen.status == CUDA_SUCCESS, "%d calls, status %d", seen.calls, (int)seen.status);
    OBSERVE("bad_flags", cuStreamAddCallback(stream, [](CUstream, CUresult, void *) {}, nullptr, 5));
    OBSERVE("null_function", cuLaunchHostFunc(stream, nullptr, nullptr));
}

PITFALL(57, a_callback_needs_a_context) {
    Gpu gpu;
    static std::atomic<int> calls;
    auto count = [](void *) { calls++; };
    CK(cuCtxSetCurrent(nullptr));
    CUresult code = cuLaunchHostFunc(nullptr, count, nullptr);
    EXPECT(code == CUDA_ERROR_INVALID_CONTEXT, "%d", (int)code);
    CK(cuCtxSetCurrent(gpu.context));
    CK(cuCtxSynchronize());
    EXPECT(calls == 0, "%d calls", calls.load());
    CK(cuLaunchHostFunc(nullptr, count, nullptr));
    CK(cuCtxSynchronize());
    EXPECT(calls == 1, "%d calls", calls.load());
}

PITFALL(57, cuda_calls_inside_a_callback) {
    Gpu gpu;
    static CUresult codes[4];
    CUstream stream = new_stream();
    CK(cuLaunchHostFunc(
        stream,
        [](void *) {
            CUdeviceptr memory = 0;
            void *host = nullptr;
            CUstream made = nullptr;
            codes[0] = cuMemAlloc(&memory, 4096);
            codes[1] = cuMemAllocHost(&host, 4096);
            codes[2] = cuStreamCreate(&made, 0);
            codes[3] = cuCtxSynchronize();
        },
        nullptr));
    CK(cuStreamSynchronize(stream));
    const char *names[] = {"alloc", "alloc_host", "stream_create", "ctx_synchronize"};
    for (int i = 0; i < 4; i++)
        pitfall::observed("%s=%d", names[i], (int)codes[i]);
    EXPECT(codes[0] == CUDA_ERROR_NOT_PERMITTED, "cuMemAlloc in a host function: %d", (int)codes[0]);
}

// After a failed kernel a stream callback still runs, with the error; a host function does not.
PITFALL(57, after_a_failed_kernel) {
    Gpu gpu;
    static std::atomic<int> host_function{0}, callback{0}, status{-1};
    CUstream stream = new_stream();
    CUdeviceptr nowhere = 0x10;
    CUfunction illegal = gpu.function("illegal_store");
    Gate *gate = new Gate(gpu);
    gate->close(stream); // so that both are queued before the kernel fails
    LAUNCH(illegal, 1, 1, stream, nowhere);
    CK(cuLaunchHostFunc(stream, [](void *) { host_function++; }, nullptr));
    CUresult added = cuStreamAddCallback(
        stream,
        [](CUstream, CUresult code, void *) {
            status = code;
            callback++;
        },
        nullptr, 0);
    CK(added);
    gate->open();
    CUresult code = cuStreamSynchronize(stream);
    EXPECT(code == CUDA_ERROR_ILLEGAL_ADDRESS, "cuStreamSynchronize returned %d", (int)code);
    // The callback may not have run yet.
    double until = pitfall::seconds() + 2;
    while (callback == 0 && pitfall::seconds() < until)
        std::this_thread::yield();
    pitfall::observed("host_function_calls=%d", host_function.load());
    pitfall::observed("callback_calls=%d", callback.load());
    pitfall::observed("callback_status=%d", status.load());
    EXPECT(host_function == 0, "the host function ran after a failed kernel");
    _exit((ssize_t)write(STDOUT_FILENO, "@PASS\n", 6) == 6 ? 0 : 1); // what teardown does after such an error is another test's matter
}

PITFALL_MAIN
