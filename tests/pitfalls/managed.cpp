// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Managed memory (pitfalls 9, 12, 13, 17, 57, 60). These tests are right on every device that has any: no thread of the
// CPU touches memory that a stream may use while the stream has work.
#include "driver.h"
#include <csignal>
#include <random>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <thread>

static void need_managed(const Gpu &gpu) {
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY))
        pitfall::skip("no managed memory");
}

template <typename T = unsigned> static T *managed(size_t count, unsigned flags = CU_MEM_ATTACH_GLOBAL) {
    CUdeviceptr memory = 0;
    CK(cuMemAllocManaged(&memory, count * sizeof(T), flags));
    return (T *)memory;
}

static CUdeviceptr on_device(const volatile void *memory) { return (CUdeviceptr)memory; }

// A function that a driver may lack.
template <typename F> static F optional(const char *name, int version) {
    void *found = nullptr;
    CUdriverProcAddressQueryResult status;
    if (cuGetProcAddress(name, &found, version, CU_GET_PROC_ADDRESS_DEFAULT, &status) != CUDA_SUCCESS)
        return nullptr;
    return (F)found;
}

static const size_t MIB = 1 << 20;

// The program writes, a kernel changes, the program reads: all of it and single words, in memory of all sizes.
PITFALL(12, managed_memory_goes_to_and_fro) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction add = gpu.function("add_words");
    for (size_t count : {size_t(1), size_t(1000), size_t(1024), MIB / 4, 5 * MIB / 4 + 3, 4 * MIB}) {
        unsigned *words = managed(count);
        EXPECT(words[0] == 0 && words[count - 1] == 0, "fresh memory holds %u and %u", words[0], words[count - 1]);
        for (size_t i = 0; i < count; i++)
            words[i] = i;
        for (unsigned round = 1; round <= 3; round++) {
            LAUNCH(add, 8, 64, nullptr, words, 7u, unsigned(count), 1u);
            CK(cuCtxSynchronize());
            for (size_t i = 0; i < count; i++)
                EXPECT(words[i] == i + 7 * round + (round - 1) * (i % 2), "round %u: word %zu of %zu is %u", round, i, count, words[i]);
            for (size_t i = 1; i < count; i += 2)
                words[i]++;
        }
        CK(cuMemFree(on_device(words)));
    }
}

// Bytes that only one of CPU and GPU touches keep their values, whichever part of the memory the other one touches.
PITFALL(12, managed_memory_is_whole_at_every_border) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction step = gpu.function("step");
    const size_t count = 3 * MIB; // words: 12 MiB
    auto *bytes = managed<unsigned char>(count * 4);
    pattern(bytes, count * 4, 1);
    std::vector<unsigned char> model(bytes, bytes + count * 4);
    std::mt19937 random(1);
    std::vector<size_t> places = {0, 4, 4092, 4096, 2 * MIB - 4, 2 * MIB, 4 * MIB - 4, 4 * MIB, count * 4 - 4};
    for (int i = 0; i < 20; i++)
        places.push_back(random() % count * 4);
    for (size_t at : places) {
        unsigned word;
        memcpy(&word, &model[at], 4);
        word = word * 3 + 5;
        memcpy(&model[at], &word, 4);
        LAUNCH(step, 1, 1, nullptr, bytes + at, 3u, 5u);
        CK(cuCtxSynchronize());
        EXPECT(memcmp(bytes + at, &word, 4) == 0, "the kernel's word at %zu", at);
        size_t other = random() % (count * 4);
        bytes[other] ^= 0x5a;
        model[other] ^= 0x5a;
    }
    EXPECT(memcmp(bytes, model.data(), model.size()) == 0, "something else has changed");
    CK(cuMemFree(on_device(bytes)));
}

struct Node {
    Node *next;
    unsigned value;
};

// Pointers mean the same on both sides.
PITFALL(11, managed_lists_are_walked_by_both) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction walk = gpu.function("walk_list");
    std::vector<Node *> nodes;
    Node *blocks[2] = {managed<Node>(1000), managed<Node>(200'000)};
    for (int i = 0; i < 50; i++)
        nodes.push_back(i % 3 ? &blocks[i % 2][i * 19] : managed<Node>(1));
    for (size_t i = 0; i < nodes.size(); i++)
        *nodes[i] = {i + 1 < nodes.size() ? nodes[i + 1] : nullptr, unsigned(i)};
    unsigned *sum = managed(1);
    unsigned expected = 49 * 50 / 2;
    for (int round = 0; round < 3; round++) {
        LAUNCH(walk, 1, 1, nullptr, nodes[0], 2u, sum);
        CK(cuCtxSynchronize());
        EXPECT(*sum == expected, "round %d: the sum is %u, not %u", round, *sum, expected);
        expected += 100;
        unsigned here = 0;
        for (Node *node = nodes[0]; node; node = node->next)
            here += node->value;
        EXPECT(here == expected, "round %d: here the sum is %u, not %u", round, here, expected);
        nodes[10]->value += 5;
        expected += 5;
    }
}

// System calls read and write managed memory, wherever it is.
PITFALL(13, system_calls_reach_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction fill = gpu.function("fill");
    const unsigned count = 3 * MIB / 4;
    unsigned *words = managed(count);
    int file = memfd_create("managed", MFD_CLOEXEC);
    EXPECT(file >= 0, "no file: %d", errno);
    LAUNCH(fill, 8, 64, nullptr, words, 0x1234u, count);
    CK(cuCtxSynchronize());
    ssize_t done = pwrite(file, words, count * 4, 0);
    EXPECT(done == ssize_t(count) * 4, "write(2) says %zd, errno %d", done, errno);
    std::vector<unsigned> read(count);
    EXPECT(pread(file, read.data(), count * 4, 0) == ssize_t(count) * 4, "the file is short");
    EXPECT_WORDS(read.data(), count, 0x1234);
    // And into memory that is on the device.
    LAUNCH(fill, 8, 64, nullptr, words, 0x5678u, count);
    CK(cuCtxSynchronize());
    done = pread(file, words + 1000, 2 * MIB + 5000, 0);
    EXPECT(done == ssize_t(2 * MIB + 5000), "read(2) says %zd, errno %d", done, errno);
    EXPECT_WORDS(words, 1000, 0x5678);
    EXPECT_WORDS(words + 1000, (2 * MIB + 5000) / 4, 0x1234);
    EXPECT_WORDS(words + 1000 + (2 * MIB + 5000) / 4, 1000, 0x5678);
    // The C library's functions use wide loads and stores.
    LAUNCH(fill, 8, 64, nullptr, words, 0x9abcu, count);
    CK(cuCtxSynchronize());
    memset(words + 7, 0, 1001);
    memmove(words + 500'000, words, 4096);
    EXPECT(words[500'006] == 0x9abc && words[500'007] == 0 && words[600'000] == 0x9abc, "%x %x %x", words[500'006], words[500'007],
           words[600'000]);
    close(file);
}

// Several threads read what a kernel has left.
PITFALL(13, threads_read_managed_memory_at_once) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction fill = gpu.function("fill");
    const unsigned count = 2 * MIB;
    unsigned *words = managed(count);
    for (unsigned round = 0; round < 5; round++) {
        LAUNCH(fill, 8, 64, nullptr, words, round, count);
        CK(cuCtxSynchronize());
        auto each = [](auto body) {
            std::vector<std::thread> threads;
            for (unsigned t = 0; t < 4; t++)
                threads.emplace_back(body, t);
            for (auto &thread : threads)
                thread.join();
        };
        std::atomic<unsigned> wrong{0};
        each([&](unsigned t) {
            for (unsigned i = t; i < count; i += 997)
                if (words[i] != round)
                    wrong++;
        });
        EXPECT(wrong == 0, "round %u: %u words are wrong", round, wrong.load());
        // Each thread writes to its own words.
        each([&](unsigned t) {
            for (unsigned i = t; i < count; i += 4 * 1009)
                words[i] = round + 100;
        });
        LAUNCH(gpu.function("add_words"), 8, 64, nullptr, words, 1u, count, 1u);
        CK(cuCtxSynchronize());
        for (unsigned t = 0; t < 4; t++)
            for (unsigned i = t; i < count; i += 4 * 1009)
                EXPECT(words[i] == round + 101, "round %u: word %u is %u", round, i, words[i]);
    }
}

// Memory of one stream, and memory of none, is the program's while another stream works.
PITFALL(12, managed_memory_of_one_stream_is_free_while_others_work) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction add = gpu.function("add_words");
    CUstream busy = new_stream(), own = new_stream();
    const unsigned count = MIB;
    unsigned *mine = managed(count, CU_MEM_ATTACH_HOST), *host = managed(count, CU_MEM_ATTACH_HOST);
    CK(cuStreamAttachMemAsync(own, on_device(mine), 0, CU_MEM_ATTACH_SINGLE));
    CK(cuStreamSynchronize(own));
    CUdeviceptr other = device_words(count, 1);
    Gate gate(gpu);
    gate.close(busy);
    LAUNCH(add, 4, 64, busy, other, 1u, count, 1u);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < count; i++)
            mine[i] = host[i] = i + round;
        LAUNCH(add, 8, 64, own, mine, 5u, count, 1u);
        CK(cuMemcpyDtoHAsync(host + 10, on_device(mine), 4000, own));
        CK(cuStreamSynchronize(own));
        for (unsigned i = 0; i < count; i++) {
            EXPECT(mine[i] == i + round + 5, "round %u: word %u is %u", round, i, mine[i]);
            unsigned expected = i >= 10 && i < 1010 ? i - 10 + round + 5 : i + round;
            EXPECT(host[i] == expected, "round %u: the host's word %u is %u, not %u", round, i, host[i], expected);
        }
        // Another launch in the busy stream does not detach it.
        LAUNCH(add, 4, 64, busy, other, 1u, count, 1u);
        mine[round] = 3;
        host[round] = 4;
        EXPECT(mine[round] == 3 && host[round] == 4, "%u %u", mine[round], host[round]);
    }
    EXPECT(!gate.is_open(), "the busy stream was waited for");
    gate.open();
    CK(cuCtxSynchronize());
    unsigned first = 0;
    CK(cuMemcpyDtoH(&first, other, 4));
    EXPECT(first == 5, "the busy stream's word is %u", first);
    // A destroyed stream releases its memory.
    CK(cuStreamDestroy(own));
    CK(cuStreamAttachMemAsync(busy, on_device(mine), 0, CU_MEM_ATTACH_GLOBAL));
    CK(cuStreamSynchronize(busy));
    LAUNCH(add, 8, 64, nullptr, mine, 5u, count, 1u);
    CK(cuCtxSynchronize());
    EXPECT(mine[100] == 100 + 2 + 5 + 5, "%u", mine[100]);
}

// Copies and fills take managed memory for either side.
PITFALL(09, copies_from_and_to_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    const size_t bytes = 5 * MIB + 12;
    std::vector<unsigned char> plain(bytes), model(bytes);
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, bytes));
    CUdeviceptr device = 0;
    CK(cuMemAlloc(&device, bytes));
    CUstream stream = new_stream();
    for (unsigned flags : {CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST}) {
        auto *memory = managed<unsigned char>(bytes, flags), *second = managed<unsigned char>(bytes, flags);
        auto is = [&](const char *what) {
            EXPECT(memcmp(memory, model.data(), bytes) == 0, "%s, attachment %u", what, flags);
        };
        pattern(model.data(), bytes, 1);
        CK(cuMemcpyHtoD(on_device(memory), model.data(), bytes));
        is("from pageable memory");
        pattern(memory, bytes, 2);
        CK(cuMemcpyDtoH(plain.data(), on_device(memory), bytes));
        pattern(model.data(), bytes, 2);
        EXPECT(plain == model, "to pageable memory, attachment %u", flags);
        pattern(memory, bytes, 3);
        // A copy within the device does not hold up the host.
        CK(cuMemcpy(device, on_device(memory), bytes));
        CK(cuCtxSynchronize());
        memset(memory, 0, bytes);
        CK(cuMemcpy(on_device(memory), device, bytes));
        CK(cuCtxSynchronize());
        pattern(model.data(), bytes, 3);
        is("to the device and back");
        pattern(memory, bytes, 4);
        CK(cuMemcpyDtoD(on_device(second), on_device(memory), bytes));
        CK(cuCtxSynchronize());
        CK(cuMemcpyDtoHAsync(pinned, on_device(second), bytes, stream));
        CK(cuStreamSynchronize(stream));
        pattern(model.data(), bytes, 4);
        EXPECT(memcmp(pinned, model.data(), bytes) == 0, "by a second one to pinned memory, attachment %u", flags);
        // As host memory, which it is too.
        pattern(memory, bytes, 5);
        CK(cuMemcpyHtoDAsync(device, memory, bytes, stream));
        CK(cuMemcpyDtoHAsync(second, device, bytes, stream));
        CK(cuStreamSynchronize(stream));
        pattern(model.data(), bytes, 5);
        EXPECT(memcmp(second, model.data(), bytes) == 0, "as the host's side, attachment %u", flags);
        // A part, with the rest as the program has left it.
        pattern(memory, bytes, 6);
        pattern(model.data(), bytes, 6);
        CK(cuMemsetD8Async(on_device(memory) + MIB - 3, 0x77, 2 * MIB + 7, stream));
        CK(cuStreamSynchronize(stream));
        memset(model.data() + MIB - 3, 0x77, 2 * MIB + 7);
        is("a fill");
        CK(cuMemsetD2D8(on_device(memory) + 5, 4096, 0x66, 100, 800));
        CK(cuCtxSynchronize());
        for (size_t row = 0; row < 800; row++)
            memset(model.data() + 5 + row * 4096, 0x66, 100);
        is("a fill of rows");
        CUDA_MEMCPY2D rows = {};
        rows.srcMemoryType = CU_MEMORYTYPE_HOST;
        rows.srcHost = plain.data();
        rows.srcPitch = 2000;
        rows.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
        rows.dstDevice = on_device(memory) + 9;
        rows.dstPitch = 5000;
        rows.WidthInBytes = 1000;
        rows.Height = 500;
        memory[9] = 1;
        CK(cuMemcpy2D(&rows));
        for (size_t row = 0; row < 500; row++)
            memcpy(model.data() + 9 + row * 5000, plain.data() + row * 2000, 1000);
        is("a copy of rows");
        CK_IS(cuMemcpyHtoD(on_device(memory) + MIB, plain.data(), bytes), CUDA_ERROR_INVALID_VALUE);
        is("a copy that is too long");
        CK(cuMemFree(on_device(memory)));
        CK(cuMemFree(on_device(second)));
    }
}

// A graph's kernels, copies and fills find what the program has written, at each launch.
// So do copies of arrays.
PITFALL(09, copies_between_arrays_and_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned side = 64, pitch = side * 4, bytes = side * pitch;
    CUarray array;
    CUDA_ARRAY_DESCRIPTOR of = {side, side, CU_AD_FORMAT_UNSIGNED_INT32, 1};
    CK(cuArrayCreate(&array, &of));
    CUstream stream = new_stream();
    std::vector<unsigned char> plain(bytes), model(bytes);
    unsigned seed = 0;
    for (unsigned flags : {CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST}) {
        auto *memory = managed<unsigned char>(bytes, flags);
        for (bool is_async : {false, true}) {
            auto copy = [&](CUDA_MEMCPY2D rows) {
                rows.WidthInBytes = pitch;
                rows.Height = side;
                CK(is_async ? cuMemcpy2DAsync(&rows, stream) : cuMemcpy2D(&rows));
                CK(cuCtxSynchronize());
            };
            CUDA_MEMCPY2D there = {}, back = {}, fetch = {};
            there.srcMemoryType = back.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
            there.srcDevice = back.dstDevice = on_device(memory);
            fetch.dstMemoryType = CU_MEMORYTYPE_HOST;
            fetch.dstHost = plain.data();
            there.srcPitch = back.dstPitch = fetch.dstPitch = pitch;
            there.dstMemoryType = back.srcMemoryType = fetch.srcMemoryType = CU_MEMORYTYPE_ARRAY;
            there.dstArray = back.srcArray = fetch.srcArray = array;
            pattern(memory, bytes, ++seed);
            pattern(model.data(), bytes, seed);
            copy(there);
            copy(fetch);
            EXPECT(plain == model, "into the array, attachment %u, asynchronous %d", flags, is_async);
            memset(memory, 0, bytes);
            copy(back);
            EXPECT(memcmp(memory, model.data(), bytes) == 0, "out of the array, attachment %u, asynchronous %d", flags,
                   is_async);
        }
        CK(cuMemFree(on_device(memory)));
    }
    CK(cuStreamDestroy(stream));
    CK(cuArrayDestroy(array));
}

PITFALL(39, graphs_use_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned count = MIB;
    unsigned *words = managed(count), *host = managed(count, CU_MEM_ATTACH_HOST);
    CUstream stream = new_stream();
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    LAUNCH(gpu.function("add_words"), 8, 64, stream, words, 3u, count, 1u);
    CK(cuMemcpyAsync(on_device(host), on_device(words), 4096, stream));
    CK(cuMemsetD32Async(on_device(words) + 400, 9, 10, stream));
    CUgraph graph;
    CK(cuStreamEndCapture(stream, &graph));
    CUgraphExec exec;
    CK(cuGraphInstantiate(&exec, graph, 0));
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < count; i++) {
            words[i] = i + round;
            host[i] = i;
        }
        CK(cuGraphLaunch(exec, stream));
        CK(cuStreamSynchronize(stream));
        for (unsigned i = 0; i < count; i++) {
            unsigned expected = i >= 100 && i < 110 ? 9 : i + round + 3;
            EXPECT(words[i] == expected, "round %u: word %u is %u, not %u", round, i, words[i], expected);
            expected = i < 1024 ? i + round + 3 : i;
            EXPECT(host[i] == expected, "round %u: the copy's word %u is %u, not %u", round, i, host[i], expected);
        }
    }
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

struct Call {
    unsigned *words;
    unsigned seen;
};

// A host function in a stream uses managed memory; the stream continues only when it returns.
PITFALL(57, callbacks_use_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned count = MIB;
    Call call = {managed(count), 0};
    CUstream stream = new_stream();
    LAUNCH(gpu.function("fill"), 8, 64, stream, call.words, 41u, count);
    CK(cuLaunchHostFunc(
        stream,
        [](void *data) {
            auto *call = (Call *)data;
            call->seen = call->words[777'777];
            call->words[777'777] = 50;
        },
        &call));
    CK(cuStreamSynchronize(stream));
    EXPECT(call.seen == 41, "the call has seen %u", call.seen);
    LAUNCH(gpu.function("add_words"), 8, 64, stream, call.words, 1u, count, 1u);
    CK(cuStreamSynchronize(stream));
    EXPECT(call.words[777'777] == 51 && call.words[777'776] == 42, "%u %u", call.words[777'777], call.words[777'776]);
}

// The same, with work behind the function that was submitted before the function runs: a kernel, a copy out and, in
// another stream, a kernel behind an event.
PITFALL(57, work_behind_a_callback_sees_its_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned count = MIB, at = 777'777;
    CUfunction add = gpu.function("add_words");
    CUdeviceptr copied;
    CK(cuMemAlloc(&copied, 4));
    CUstream stream = new_stream(), other = new_stream();
    for (bool writes : {true, false}) {
        Call call = {managed(count), 0};
        LAUNCH(gpu.function("fill"), 8, 64, stream, call.words, 41u, count);
        CK(cuLaunchHostFunc(
            stream,
            writes ? (CUhostFn)[](void *data) { ((Call *)data)->words[at] = 50; }
                   : (CUhostFn)[](void *data) { ((Call *)data)->seen = ((Call *)data)->words[at]; },
            &call));
        CK(cuMemcpyAsync(copied, on_device(call.words + at), 4, stream));
        LAUNCH(add, 8, 64, stream, call.words, 1u, count, 1u);
        CUevent event;
        CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        CK(cuEventRecord(event, stream));
        CK(cuStreamWaitEvent(other, event, 0));
        LAUNCH(add, 8, 64, other, call.words, 1u, count, 1u);
        CK(cuStreamSynchronize(other));
        unsigned expected = writes ? 50 : 41, copy = 0;
        EXPECT(call.seen == (writes ? 0 : 41), "the function has seen %u", call.seen);
        EXPECT(call.words[at] == expected + 2 && call.words[at + 1] == 43, "%u %u", call.words[at], call.words[at + 1]);
        CK(cuMemcpyDtoH(&copy, copied, 4));
        EXPECT(copy == expected, "the copy has %u", copy);
        CK(cuEventDestroy(event));
    }
}

// Signals interrupt threads that wait for a page: they repeat the access after the handler.
PITFALL(12, signals_interrupt_accesses_to_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned count = MIB / 4, rounds = 100;
    CUfunction add = gpu.function("add_words");
    volatile unsigned *words = managed(count);
    CK(cuMemsetD32(on_device(words), 0, count));
    CK(cuCtxSynchronize());
    signal(SIGALRM, [](int) {});
    struct itimerval often = {{0, 500}, {0, 500}}, never = {};
    setitimer(ITIMER_REAL, &often, nullptr);
    unsigned wrong = 0;
    for (unsigned round = 0; round < rounds; round++) {
        LAUNCH(add, 8, 64, nullptr, words, 1u, count, 1u);
        CK(cuCtxSynchronize());
        // The first access is a write in every other round.
        if (round % 2)
            words[5] = 1000 * round;
        else
            wrong += words[7] != round + 1;
        LAUNCH(add, 8, 64, nullptr, words, 0u, count, 1u);
        CK(cuCtxSynchronize());
        if (round % 2)
            wrong += words[5] != 1000 * round;
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    EXPECT(wrong == 0, "%u of %u rounds read old values", wrong, rounds);
    EXPECT(words[777] == rounds, "%u of %u launches are left", words[777], rounds);
}

// A thousand random steps on several allocations, against a model.
PITFALL(12, managed_memory_keeps_to_a_model) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction add = gpu.function("add_words");
    CUstream streams[2] = {new_stream(), new_stream(false)};
    std::mt19937 random(7);
    struct Piece {
        unsigned *words;
        std::vector<unsigned> model;
    };
    std::vector<Piece> pieces;
    for (int step = 0; step < 1000; step++) {
        unsigned what = random() % 16;
        if (pieces.size() < 2 || (what == 0 && pieces.size() < 8)) {
            size_t count = 1 + random() % (random() % 2 ? 2000 : MIB);
            pieces.push_back({managed(count), std::vector<unsigned>(count)});
            // The process's own earlier data may still be there.
            memset(pieces.back().words, 0, count * 4);
            continue;
        }
        Piece &piece = pieces[random() % pieces.size()];
        size_t count = piece.model.size(), at = random() % count, many = 1 + random() % std::min<size_t>(count - at, 3000);
        if (what == 1) {
            CK(cuMemFree(on_device(piece.words)));
            std::swap(piece, pieces.back());
            pieces.pop_back();
        } else if (what < 6) {
            for (size_t i = at; i < at + many; i++)
                piece.model[i] = piece.words[i] = random();
        } else if (what < 9) {
            for (size_t i = at; i < at + many; i++)
                EXPECT(piece.words[i] == piece.model[i], "step %d: word %zu is %x, not %x", step, i, piece.words[i], piece.model[i]);
        } else if (what < 14) {
            CUstream stream = streams[random() % 2];
            LAUNCH(add, 2, 64, stream, piece.words + at, unsigned(step), unsigned(many), 1u);
            CK(cuStreamSynchronize(stream));
            for (size_t i = at; i < at + many; i++)
                piece.model[i] += step;
        } else if (what == 14) {
            CK(cuMemsetD32(on_device(piece.words + at), step, many));
            CK(cuCtxSynchronize());
            std::fill_n(piece.model.begin() + at, many, step);
        } else {
            std::vector<unsigned> values(many, step);
            CK(cuMemcpyHtoD(on_device(piece.words + at), values.data(), many * 4));
            CK(cuCtxSynchronize());
            std::copy(values.begin(), values.end(), piece.model.begin() + at);
        }
    }
    for (Piece &piece : pieces)
        for (size_t i = 0; i < piece.model.size(); i++)
            EXPECT(piece.words[i] == piece.model[i], "at the end word %zu is %x, not %x", i, piece.words[i], piece.model[i]);
}

// Threads with streams and memory of their own do not meet.
PITFALL(12, threads_have_managed_memory_of_their_own) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction add = gpu.function("add_words");
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 4; t++)
        threads.emplace_back([&, t] {
            CK(cuCtxSetCurrent(gpu.context));
            CUstream stream = new_stream();
            for (unsigned round = 0; round < 10; round++) {
                unsigned count = 100'000 * (1 + (t + round) % 6);
                unsigned *words = managed(count, CU_MEM_ATTACH_HOST);
                CK(cuStreamAttachMemAsync(stream, on_device(words), 0, CU_MEM_ATTACH_SINGLE));
                CK(cuStreamSynchronize(stream));
                for (unsigned i = 0; i < count; i++)
                    words[i] = i + t;
                LAUNCH(add, 4, 64, stream, words, round, count, 1u);
                CK(cuStreamSynchronize(stream));
                for (unsigned i = 0; i < count; i++)
                    EXPECT(words[i] == i + t + round, "thread %u, round %u: word %u is %u", t, round, i, words[i]);
                words[count - 1] = 0;
                CK(cuMemFree(on_device(words)));
            }
            CK(cuStreamDestroy(stream));
        });
    for (auto &thread : threads)
        thread.join();
}

// Threads touch their parts while kernels change others: a device without concurrent access need not allow that, but
// nothing is lost.
PITFALL(14, launches_race_threads_that_touch_managed_memory) {
    Gpu gpu;
    need_managed(gpu);
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS) && pitfall::backend() == "native")
        pitfall::skip("the device allows no such access");
    CUfunction add = gpu.function("add_words");
    const unsigned block = 2 * MIB / 4, count = 6 * block;
    unsigned *words = managed(count);
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; t++)
        threads.emplace_back([&, t] {
            // A block of its own, between those of the kernels.
            auto *own = (volatile unsigned *)words + 2 * t * block;
            for (unsigned round = 0; round < 100; round++)
                for (unsigned i = 0; i < 64; i++)
                    own[i * (block / 64)] = own[i * (block / 64)] + 1;
        });
    CUstream stream = new_stream();
    const unsigned launches = 100;
    for (unsigned i = 0; i < launches; i++)
        for (unsigned t = 0; t < 3; t++)
            LAUNCH(add, 1, 64, stream, words + (2 * t + 1) * block, 1u, 64u, block / 64);
    for (auto &thread : threads)
        thread.join();
    CK(cuStreamSynchronize(stream));
    for (unsigned t = 0; t < 3; t++)
        for (unsigned i = 0; i < 64; i++) {
            unsigned own = words[2 * t * block + i * (block / 64)], kernels = words[(2 * t + 1) * block + i * (block / 64)];
            EXPECT(own == 100 && kernels == launches, "part %u: word %u is %u, the kernels' %u", t, i, own, kernels);
        }
}

// The driver's answers about managed memory, and its refusals of impossible requests.
PITFALL(17, managed_memory_is_known_for_what_it_is) {
    Gpu gpu;
    need_managed(gpu);
    CUdeviceptr memory = 5;
    for (unsigned flags : {0u, 3u, 4u, 5u, 8u})
        CK_IS(cuMemAllocManaged(&memory, 4096, flags), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAllocManaged(&memory, 0, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    EXPECT(memory == 0, "a refused allocation leaves %llx", (unsigned long long)memory);
    CK_IS(cuMemAllocManaged(&memory, size_t(1) << 50, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CK_IS(cuMemAllocManaged(&memory, size_t(-1), CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
    CK_IS(cuMemAllocManaged(nullptr, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_VALUE);
    for (unsigned flags : {CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST}) {
        auto *bytes = managed<unsigned char>(10'000, flags);
        memory = on_device(bytes);
        for (int used = 0; used < 2; used++) {
            auto of = [&](auto value, CUpointer_attribute attribute, size_t at) {
                CK(cuPointerGetAttribute(&value, attribute, memory + at));
                return value;
            };
            EXPECT(of(0u, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 7) == CU_MEMORYTYPE_DEVICE, "the type");
            EXPECT(of(false, CU_POINTER_ATTRIBUTE_IS_MANAGED, 9999), "it is not managed");
            EXPECT(of(CUdeviceptr(0), CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 7) == memory + 7, "the device's address");
            EXPECT(of(CUdeviceptr(0), CU_POINTER_ATTRIBUTE_HOST_POINTER, 7) == memory + 7, "the host's address");
            EXPECT(of(CUdeviceptr(0), CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 7) == memory, "the start");
            EXPECT(of(size_t(0), CU_POINTER_ATTRIBUTE_RANGE_SIZE, 7) == 10'000, "the size");
            EXPECT(of(CUcontext(), CU_POINTER_ATTRIBUTE_CONTEXT, 7) == gpu.context, "the context");
            EXPECT(of(7, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 7) == 0, "the device");
            EXPECT(of(false, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 7), "copies that wait");
            CUdeviceptr base = 0;
            size_t size = 0;
            CK(cuMemGetAddressRange(&base, &size, memory + 9999));
            EXPECT(base == memory && size == 10'000, "the range is %zu bytes", size);
            unsigned host_flags = 0;
            CK(cuMemHostGetFlags(&host_flags, bytes));
            EXPECT(host_flags == CU_MEMHOSTALLOC_DEVICEMAP, "the host's flags are %u", host_flags);
            CK_IS(cuMemHostGetDevicePointer(&base, bytes, 0), CUDA_ERROR_INVALID_VALUE);
            CK_IS(cuMemFreeHost(bytes), CUDA_ERROR_INVALID_VALUE);
            CK_IS(cuMemFree(memory + 4), CUDA_ERROR_INVALID_VALUE);
            CK_IS(cuMemFreeAsync(memory, nullptr), CUDA_ERROR_NOT_SUPPORTED);
            bytes[5000] = 1;
        }
        CUstream stream = new_stream();
        CK(cuStreamAttachMemAsync(stream, memory, 10'000, CU_MEM_ATTACH_SINGLE));
        CK_IS(cuStreamAttachMemAsync(stream, memory, 4096, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuStreamAttachMemAsync(stream, memory + 4096, 0, CU_MEM_ATTACH_SINGLE), CUDA_ERROR_INVALID_VALUE);
        CK(cuStreamAttachMemAsync(stream, memory, 0, CU_MEM_ATTACH_GLOBAL));
        CK(cuStreamSynchronize(stream));
        CK(cuStreamDestroy(stream));
        CK(cuMemFree(memory));
        unsigned type = 0;
        CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    }
    CUcontext popped = pop_context();
    CK_IS(cuMemAllocManaged(&memory, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuCtxSetCurrent(popped));
}

// A prefetch moves memory and changes nothing: what other streams write meanwhile stays.
PITFALL(12, a_prefetch_keeps_what_other_streams_write) {
    Gpu gpu;
    need_managed(gpu);
    auto prefetch = optional<CUresult (*)(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)>("cuMemPrefetchAsync", 12020);
    if (!prefetch)
        pitfall::skip("nothing is prefetched here");
    const unsigned bytes = 1 << 20;
    CUstream writes = new_stream(), moves = new_stream();
    Gate gate(gpu);
    for (unsigned char round = 1; round < 4; round++) {
        auto *memory = managed<unsigned char>(bytes);
        memset(memory, 100, bytes);
        gate.close(writes);
        CK(cuMemsetD8Async(on_device(memory), round, bytes, writes));
        gate.open_later(0.01);
        CK(prefetch(on_device(memory), bytes, {CU_MEM_LOCATION_TYPE_HOST, {0}}, 0, moves));
        gate.wait_opened();
        CK(cuCtxSynchronize());
        EXPECT(memory[0] == round && memory[bytes - 1] == round, "%u and %u", memory[0], memory[bytes - 1]);
        memory[1] = 50;
        CK(cuMemsetD8Async(on_device(memory) + 2, 60, 1, writes));
        CK(cuCtxSynchronize());
        EXPECT(memory[0] == round && memory[1] == 50 && memory[2] == 60, "%u, %u, %u", memory[0], memory[1], memory[2]);
        CK(cuMemFree(on_device(memory)));
    }
    CK(cuStreamDestroy(writes));
    CK(cuStreamDestroy(moves));
}

// A free waits for work that uses the memory, callbacks among it.
PITFALL(57, managed_memory_is_freed_behind_callbacks) {
    Gpu gpu;
    need_managed(gpu);
    auto *memory = managed<unsigned>(1024);
    memory[7] = 5;
    struct Seen {
        unsigned *from, value;
    } seen = {memory, 0};
    CUstream stream = new_stream();
    Gate gate(gpu);
    gate.close(stream);
    CK(cuLaunchHostFunc(
        stream,
        [](void *data) {
            auto *seen = (Seen *)data;
            seen->value = seen->from[7];
        },
        &seen));
    gate.open_later(0.01);
    CK(cuMemFree(on_device(memory)));
    EXPECT(seen.value == 5, "the callback saw %u", seen.value);
    gate.wait_opened();
    CK(cuStreamDestroy(stream));
}

// Prefetches bring memory to where it is to be, and advice is kept.
PITFALL(12, managed_memory_is_prefetched_and_advised) {
    Gpu gpu;
    need_managed(gpu);
    auto prefetch = optional<CUresult (*)(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)>("cuMemPrefetchAsync", 12020);
    auto advise = optional<CUresult (*)(CUdeviceptr, size_t, CUmem_advise, CUmemLocation)>("cuMemAdvise", 12020);
    auto ask = optional<CUresult (*)(void *, size_t, CUmem_range_attribute, CUdeviceptr, size_t)>("cuMemRangeGetAttribute", 8000);
    if (!prefetch || !advise || !ask)
        pitfall::skip("nothing is prefetched here");
    const size_t bytes = 8 * MIB, half = bytes / 2;
    const unsigned count = bytes / 4;
    unsigned *words = managed(count);
    CUdeviceptr memory = on_device(words);
    CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, {0}}, host = {CU_MEM_LOCATION_TYPE_HOST, {0}}, none = {CU_MEM_LOCATION_TYPE_INVALID, {0}},
                  absent = {CU_MEM_LOCATION_TYPE_DEVICE, {99}};
    auto is = [&](CUmem_range_attribute attribute, int expected, size_t length) {
        int value = 77;
        CK(ask(&value, 4, attribute, memory, length));
        EXPECT(value == expected, "attribute %d of %zu bytes is %d, not %d", (int)attribute, length, value, expected);
    };
    is(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, bytes);
    is(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, -2, bytes);
    is(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, -2, bytes);
    CUstream stream = new_stream();
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < count; i++)
            words[i] = i + round;
        CK(prefetch(memory, bytes, device, 0, stream));
        is(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, 0, bytes);
        is(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE, 1, bytes);
        LAUNCH(gpu.function("add_words"), 8, 64, stream, words, 2u, count, 1u);
        CK(prefetch(memory, bytes, host, 0, stream));
        CK(cuStreamSynchronize(stream));
        is(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, -1, bytes);
        for (unsigned i = 0; i < count; i++)
            EXPECT(words[i] == i + round + 2, "round %u: word %u is %u", round, i, words[i]);
    }
    CK(prefetch(memory, half, device, 0, stream));
    is(CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, -2, bytes);
    CK(cuStreamSynchronize(stream));
    EXPECT(words[0] == 4 && words[count - 1] == count + 3, "%u %u", words[0], words[count - 1]);
    CK_IS(prefetch(memory, bytes, absent, 0, stream), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(prefetch(memory, bytes, none, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CK_IS(prefetch(memory, 0, device, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CK_IS(prefetch(memory, bytes + MIB, device, 0, stream), CUDA_ERROR_INVALID_VALUE);
    CK_IS(prefetch(memory, 4096, device, 1, stream), CUDA_ERROR_INVALID_VALUE);
    CK(prefetch(memory + 3, 5, device, 0, stream));
    CUdeviceptr plain = device_words(1024);
    CK_IS(prefetch(plain, 4096, device, 0, stream), CUDA_ERROR_INVALID_VALUE);

    CK(advise(memory, half, CU_MEM_ADVISE_SET_READ_MOSTLY, device));
    is(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, bytes);
    is(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 1, half);
    CK(advise(memory, half, CU_MEM_ADVISE_UNSET_READ_MOSTLY, device));
    CK(advise(memory, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device));
    CK(advise(memory, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, device));
    CK(advise(memory, bytes, CU_MEM_ADVISE_SET_ACCESSED_BY, host));
    is(CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 0, half);
    is(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, 0, bytes);
    is(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE, 1, bytes);
    int who[3] = {77, 77, 77};
    CK(ask(who, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, bytes));
    EXPECT(who[0] == 0 && who[1] == -1 && who[2] == -2, "accessed by %d %d %d", who[0], who[1], who[2]);
    CK(advise(memory, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host));
    is(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, -1, bytes);
    CK(advise(memory, bytes, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, device));
    CK(advise(memory, bytes, CU_MEM_ADVISE_UNSET_ACCESSED_BY, device));
    is(CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, -2, bytes);
    CK(ask(who, 12, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, memory, bytes));
    EXPECT(who[0] == -1 && who[1] == -2, "accessed by %d %d", who[0], who[1]);
    CK_IS(advise(memory, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, device), CUDA_ERROR_INVALID_VALUE);
    CK_IS(advise(memory, 4096, (CUmem_advise)99, device), CUDA_ERROR_INVALID_VALUE);
    CK_IS(advise(memory, 4096, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, absent), CUDA_ERROR_INVALID_VALUE);
    CK_IS(advise(plain, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, device), CUDA_ERROR_INVALID_VALUE);
    int value = 0;
    CK_IS(ask(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(ask(&value, 8, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, memory, 4096), CUDA_ERROR_INVALID_VALUE);
    CK_IS(ask(&value, 4, CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, plain, 4096), CUDA_ERROR_INVALID_VALUE);
}

// A forked child does not affect its parent's managed memory, and the parent continues. Both devices use each other's
// memory, wherever it is, and the program sees what they wrote.
PITFALL(12, managed_memory_of_two_devices) {
    Gpu gpu;
    need_managed(gpu);
    int count = 0;
    CK(cuDeviceGetCount(&count));
    if (count < 2)
        pitfall::skip("one device");
    struct Device {
        CUcontext context;
        CUfunction add;
        CUstream stream;
        unsigned *words;
    } devices[2];
    const unsigned length = 3 * MIB / 4 + 5;
    for (int i = 0; i < 2; i++) {
        CUmodule module = nullptr;
        CK(cuDevicePrimaryCtxRetain(&devices[i].context, i));
        CK(cuCtxSetCurrent(devices[i].context));
        CK(cuModuleLoadData(&module, kernels_fatbin));
        CK(cuModuleGetFunction(&devices[i].add, module, "add_words"));
        devices[i].stream = new_stream();
        devices[i].words = managed(length);
        for (unsigned at = 0; at < length; at++)
            devices[i].words[at] = at;
    }
    auto prefetch = optional<CUresult (*)(CUdeviceptr, size_t, CUmemLocation, unsigned, CUstream)>("cuMemPrefetchAsync", 13000);
    unsigned added = 0;
    for (unsigned round = 0; round < 6; round++) {
        for (int user = 0; user < 2; user++) {
            CK(cuCtxSetCurrent(devices[user].context));
            for (int owner = 0; owner < 2; owner++) {
                unsigned *words = devices[owner].words;
                CUmemLocation to = {CU_MEM_LOCATION_TYPE_DEVICE, {(int)(round % 2)}};
                if (prefetch && round > 1)
                    CK(prefetch(on_device(words), length * 4, to, 0, devices[user].stream));
                LAUNCH(devices[user].add, 8, 64, devices[user].stream, words, round + user, length, 1u);
            }
            CK(cuStreamSynchronize(devices[user].stream));
            added += round + user;
            // Without this the other device would add to the memory where it is.
            if (round % 3)
                for (auto &device : devices)
                    EXPECT(device.words[length - 1] == length - 1 + added, "round %u: %u", round, device.words[length - 1]);
        }
        for (auto &device : devices)
            for (unsigned at = 0; at < length; at++)
                EXPECT(device.words[at] == at + added, "round %u: word %u is %u", round, at, device.words[at]);
    }
    CK(cuCtxSetCurrent(devices[1].context));
    CK(cuMemFree(on_device(devices[0].words)));
    CK(cuMemFree(on_device(devices[1].words)));
}

PITFALL(60, managed_memory_is_the_parents) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned count = MIB;
    unsigned *words = managed(count);
    LAUNCH(gpu.function("fill"), 8, 64, nullptr, words, 6u, count);
    CK(cuCtxSynchronize());
    pid_t child = fork();
    if (child == 0) {
        // It exits, like any unrelated child.
        void *own = malloc(1 << 22);
        memset(own, 1, 1 << 22);
        _exit(0);
    }
    int status = -1;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "the child ended with %x", status);
    EXPECT_WORDS(words, count, 6);
    LAUNCH(gpu.function("add_words"), 8, 64, nullptr, words, 1u, count, 1u);
    CK(cuCtxSynchronize());
    EXPECT_WORDS(words, count, 7);
}

// The process ends, wherever its memory is; a context destroys its memory.
PITFALL(61, managed_memory_ends_with_its_context) {
    Gpu gpu;
    need_managed(gpu);
    const unsigned count = MIB;
    for (int round = 0; round < 3; round++) {
        CUctxCreateParams params = {};
        CUcontext context;
        CK(cuCtxCreate(&context, &params, 0, gpu.device));
        unsigned *words = managed(count);
        words[5] = 1;
        CUdeviceptr inside = on_device(words) + 20;
        CUcontext owner = nullptr;
        CK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, inside));
        EXPECT(owner == context, "it is another context's");
        CK(cuCtxDestroy(context));
        unsigned type = 0;
        CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemFree(on_device(words)), CUDA_ERROR_INVALID_VALUE);
        CK(cuCtxSetCurrent(gpu.context));
    }
    unsigned *words = managed(count);
    LAUNCH(gpu.function("fill"), 8, 64, nullptr, words, 6u, count);
    static unsigned *left;
    left = words;
    atexit([] {
        if (left[MIB - 1] != 6)
            pitfall::fail("at the end the word is %u", left[MIB - 1]);
    });
    CK(cuCtxSynchronize());
}

// Variables that the image places in managed memory, one small and one of several blocks, and a device variable.
static const char *VARIABLES = R"(.version 7.0
.target sm_50
.address_size 64
.visible .global .attribute(.managed) .align 4 .u32 small[10] = {1, 2, 3};
.visible .global .attribute(.managed) .align 4 .b8 large[5242880];
.visible .global .align 4 .u32 plain[10];
.visible .entry both() {
    .reg .u32 a;
    ld.global.u32 a, [small + 4];
    add.u32 a, a, 1;
    st.global.u32 [small + 4], a;
    ld.global.u32 a, [large + 5242876];
    add.u32 a, a, 3;
    st.global.u32 [large + 5242876], a;
    ret;
})";

// The program and kernels use a module's managed variables, which have their first values and end with the module.
// A program that locks its memory sees what kernels write, like any other.
PITFALL(12, managed_memory_is_locked) {
    Gpu gpu;
    need_managed(gpu);
    CUfunction add = gpu.function("add_words");
    const unsigned count = 3 * MIB / 4;
    for (bool from_the_start : {true, false}) {
        if (from_the_start && mlockall(MCL_FUTURE) != 0)
            pitfall::skip("no memory may be locked");
        unsigned *words = managed(count);
        if (!from_the_start && mlock(words, count * 4) != 0)
            pitfall::skip("no memory may be locked");
        struct Unlock {
            ~Unlock() { munlockall(); }
        } unlock;
        for (unsigned i = 0; i < count; i++)
            words[i] = i;
        for (unsigned round = 1; round <= 3; round++) {
            LAUNCH(add, 8, 64, nullptr, words, 7u, count, 1u);
            CK(cuCtxSynchronize());
            for (unsigned i = 0; i < count; i++)
                EXPECT(words[i] == i + 7 * round, "round %u: word %u is %u", round, i, words[i]);
        }
        CK(cuMemFree(on_device(words)));
    }
}

PITFALL(12, managed_variables_of_a_module) {
    Gpu gpu;
    need_managed(gpu);
    for (unsigned round = 0; round < 3; round++) {
        CUmodule module;
        CK(cuModuleLoadData(&module, VARIABLES));
        CUfunction both;
        CK(cuModuleGetFunction(&both, module, "both"));
        // Once before the program knows their addresses.
        if (round == 1) {
            CK(cuLaunchKernel(both, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
            CK(cuCtxSynchronize());
        }
        CUdeviceptr address = 0, again = 0, base = 0;
        size_t bytes = 0, size = 0;
        CK(cuModuleGetGlobal(&address, &bytes, module, "small"));
        EXPECT(bytes == 40, "small has %zu bytes", bytes);
        auto *small = (volatile unsigned *)address;
        const unsigned before = round == 1;
        EXPECT(small[0] == 1 && small[1] == 2 + before && small[2] == 3 && small[9] == 0, "%u %u %u %u", small[0], small[1],
               small[2], small[9]);
        bool is_managed = false;
        // After this question, NVIDIA's driver 580 takes the module's handle for none (seen on an H200).
        if (pitfall::backend() != "native") {
            CK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address + 5));
            EXPECT(is_managed, "it is not managed");
        }
        CK(cuMemGetAddressRange(&base, &size, address + 39));
        EXPECT(base == address && size == 40, "the range has %zu bytes", size);
        CK(cuModuleGetGlobal(&again, nullptr, module, "small"));
        EXPECT(again == address, "it has moved");
        CK(cuModuleGetGlobal(&again, &bytes, module, "large"));
        EXPECT(bytes == 5 * MIB, "large has %zu bytes", bytes);
        auto *large = (volatile unsigned *)again;
        const size_t last = 5 * MIB / 4 - 1;
        EXPECT(large[0] == 0 && large[last] == 3 * before, "%u %u", large[0], large[last]);
        small[1] = 70;
        large[0] = 5;
        large[last] = 80;
        CK(cuLaunchKernel(both, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
        CK(cuCtxSynchronize());
        EXPECT(small[1] == 71 && large[last] == 83 && large[0] == 5, "%u %u %u", small[1], large[last], large[0]);
        unsigned words[2] = {};
        CK(cuMemcpyDtoH(words, address, 8));
        EXPECT(words[0] == 1 && words[1] == 71, "the copy has %u %u", words[0], words[1]);
        CK(cuMemsetD32(again, 9, last + 1));
        CK(cuCtxSynchronize());
        EXPECT(large[0] == 9 && large[last] == 9, "%u %u after the fill", large[0], large[last]);
        CK(cuModuleUnload(module));
        CK_IS(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address), CUDA_ERROR_INVALID_VALUE);
    }
}

// A library distinguishes its managed variables from others, and its module has them at the same address.
PITFALL(12, managed_variables_of_a_library) {
    Gpu gpu;
    need_managed(gpu);
    CUlibrary library;
    CK(cuLibraryLoadData(&library, VARIABLES, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUdeviceptr address = 0, other = 0;
    size_t bytes = 0;
    CK(cuLibraryGetManaged(&address, &bytes, library, "small"));
    EXPECT(bytes == 40 && ((volatile unsigned *)address)[1] == 2, "%zu bytes", bytes);
    CK(cuLibraryGetGlobal(&other, nullptr, library, "small"));
    EXPECT(other == address, "as a global it is elsewhere");
    CUmodule module;
    CK(cuLibraryGetModule(&module, library));
    CK(cuModuleGetGlobal(&other, nullptr, module, "small"));
    EXPECT(other == address, "the module's is elsewhere");
    CK_IS(cuLibraryGetManaged(&other, &bytes, library, "plain"), CUDA_ERROR_NOT_FOUND);
    CK_IS(cuLibraryGetManaged(&other, &bytes, library, "nothing"), CUDA_ERROR_NOT_FOUND);
    CK_IS(cuLibraryGetManaged(nullptr, nullptr, library, "small"), CUDA_ERROR_INVALID_VALUE);
    bool is_managed = true;
    CK(cuLibraryGetGlobal(&other, &bytes, library, "plain"));
    CK(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, other));
    EXPECT(!is_managed, "plain is managed");
    // Many threads query the same one at once.
    CK(cuLibraryUnload(library));
    for (int round = 0; round < 10; round++) {
        CK(cuLibraryLoadData(&library, VARIABLES, nullptr, nullptr, 0, nullptr, nullptr, 0));
        std::vector<std::thread> threads;
        for (unsigned i = 0; i < 8; i++)
            threads.emplace_back([&, i] {
                CK(cuCtxSetCurrent(gpu.context));
                CUdeviceptr found = 0;
                CK(cuLibraryGetManaged(&found, nullptr, library, i % 2 ? "large" : "small"));
                auto *word = (volatile unsigned *)found + i;
                EXPECT(*word == (i == 0 ? 1 : i == 2 ? 3 : 0), "word %u is %u", i, *word);
            });
        for (auto &thread : threads)
            thread.join();
        CK(cuLibraryUnload(library));
    }
}

// Variables of several modules may lie in one page: each has its own value, and those of the others end with their
// modules.
PITFALL(12, managed_variables_share_a_page) {
    Gpu gpu;
    need_managed(gpu);
    CUmodule modules[3];
    CUfunction both[3];
    volatile unsigned *small[3];
    auto load = [&](unsigned i) {
        CK(cuModuleLoadData(&modules[i], VARIABLES));
        CK(cuModuleGetFunction(&both[i], modules[i], "both"));
        CUdeviceptr address = 0;
        CK(cuModuleGetGlobal(&address, nullptr, modules[i], "small"));
        small[i] = (volatile unsigned *)address;
        EXPECT(small[i][1] == 2, "a new one has %u", small[i][1]);
        small[i][0] = 10 * i;
    };
    auto launch = [&](unsigned i) { CK(cuLaunchKernel(both[i], 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr)); };
    load(0);
    load(1);
    launch(0);
    load(2);
    for (unsigned i = 0; i < 3; i++)
        launch(i);
    CK(cuCtxSynchronize());
    for (unsigned i = 0; i < 3; i++)
        EXPECT(small[i][0] == 10 * i && small[i][1] == 3 + (i == 0), "%u has %u %u", i, small[i][0], small[i][1]);
    // The program's writes to one, and a kernel's to another.
    small[2][1] = 100;
    CK(cuModuleUnload(modules[1]));
    launch(0);
    CK(cuCtxSynchronize());
    EXPECT(small[0][1] == 5 && small[2][1] == 100, "%u %u", small[0][1], small[2][1]);
    load(1);
    EXPECT(small[2][1] == 100, "another module made it %u", small[2][1]);
    launch(2);
    CK(cuCtxSynchronize());
    EXPECT(small[2][1] == 101 && small[1][1] == 2 && small[0][1] == 5, "%u %u %u", small[2][1], small[1][1], small[0][1]);
    for (CUmodule module : modules)
        CK(cuModuleUnload(module));
}

PITFALL_MAIN
