// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Copies and memsets: what blocks the host, what is ordered with what, and every size (pitfalls 1 to 6, 8, 9, 82).
#include "driver.h"
#include <sys/mman.h>
#include <sys/time.h>

// "For transfers from device memory to pageable host memory, the function will return only once the copy has
// completed."
PITFALL(01, async_dtoh_pageable) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    for (unsigned words : {1u, 1024u, 16 * 1024u + 1, 256 * 1024u}) {
        CUdeviceptr device = device_words(words);
        std::vector<unsigned> pageable(words, 0xeeeeeeee);
        Gate gate(gpu);
        gate.close(stream);
        LAUNCH(fill, 4, 64, stream, device, 0x600d0000 + words, words);
        gate.open_later();
        CK(cuMemcpyDtoHAsync(pageable.data(), device, words * 4, stream));
        EXPECT(gate.is_open(), "a copy of %u words returned before the kernel that it follows could run", words);
        EXPECT_WORDS(pageable.data(), words, 0x600d0000 + words);
        gate.wait_opened();
        CK(cuMemFree(device));
    }
}

PITFALL(01, async_dtoh_pinned_returns) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    const unsigned words = 256 * 1024;
    CUdeviceptr device = device_words(words);
    unsigned *pinned = pinned_words(words, 0xeeeeeeee);
    Gate gate(gpu);
    gate.close(stream);
    LAUNCH(fill, 4, 64, stream, device, 77u, words);
    CK(cuMemcpyDtoHAsync(pinned, device, words * 4, stream));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    EXPECT_WORDS(pinned, words, 0xeeeeeeee);
    gate.open();
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(pinned, words, 77);
}

// "For transfers from any host memory to any host memory, the function is fully synchronous with respect to the host."
PITFALL(01, async_copies_within_host_memory) {
    Gpu gpu;
    CUstream stream = new_stream();
    for (size_t words : {size_t(16), size_t(16 * 1024), size_t(256 * 1024)}) {
        std::vector<unsigned> near_from(words), near_to(words);
        unsigned *from[] = {near_from.data(), pinned_words(words)};
        unsigned *to[] = {near_to.data(), pinned_words(words)};
        unsigned value = 0;
        for (int pinned_from = 0; pinned_from < 2; pinned_from++)
            for (int pinned_to = 0; pinned_to < 2; pinned_to++)
                for (bool rows : {false, true}) {
                    const unsigned *source = from[pinned_from], *target = to[pinned_to];
                    std::fill_n(from[pinned_from], words, ++value);
                    CUDA_MEMCPY2D copy = {};
                    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_HOST;
                    copy.srcHost = source;
                    copy.dstHost = to[pinned_to];
                    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 64;
                    copy.Height = words / 16;
                    Gate gate(gpu);
                    gate.close(stream);
                    gate.open_later();
                    if (rows)
                        CK(cuMemcpy2DAsync(&copy, stream));
                    else
                        CK(cuMemcpyAsync((CUdeviceptr)target, (CUdeviceptr)source, words * 4, stream));
                    EXPECT(gate.is_open(), "a copy of %zu words to %s memory did not wait", words, pinned_to ? "pinned" : "pageable");
                    EXPECT_WORDS(target, words, value);
                    gate.wait_opened();
                }
        CK(cuMemFreeHost(from[1]));
        CK(cuMemFreeHost(to[1]));
    }
}

// The bytes of a pageable source are taken before the call returns.
PITFALL(02, async_htod_pageable_snapshot) {
    Gpu gpu;
    CUstream stream = new_stream();
    for (size_t bytes : {size_t(4), size_t(4096), size_t(64 * 1024), size_t(1 << 20), size_t(8 << 20) + 3}) {
        CUdeviceptr device = device_words(bytes / 4 + 1);
        std::vector<unsigned char> source(bytes), expected(bytes), got(bytes);
        pattern(source.data(), bytes, 5);
        expected = source;
        Gate gate(gpu);
        gate.close(stream);
        if (bytes > 64 * 1024)
            gate.open_later(); // larger copies may wait for their staging buffer
        CK(cuMemcpyHtoDAsync(device, source.data(), bytes, stream));
        memset(source.data(), 0xff, bytes);
        gate.open();
        CK(cuStreamSynchronize(stream));
        gate.wait_opened();
        CK(cuMemcpyDtoH(got.data(), device, bytes));
        EXPECT(got == expected, "%zu bytes: the copy saw what was written to its source after the call", bytes);
        CK(cuMemFree(device));
    }
}

PITFALL(02, small_async_htod_does_not_wait) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr device = device_words(1024);
    std::vector<unsigned> source(1024, 9), got(1024);
    Gate gate(gpu);
    gate.close(stream);
    CK(cuMemcpyHtoDAsync(device, source.data(), 4096, stream));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyDtoH(got.data(), device, 4096));
    EXPECT_WORDS(got.data(), 1024, 9);
}

// A pinned source is read when the stream reaches the copy. A program may rely only on its being read no later.
PITFALL(02, async_htod_pinned_reads_in_stream_order) {
    Gpu gpu;
    CUstream stream = new_stream();
    const size_t words = 1 << 20;
    CUdeviceptr device = device_words(words);
    unsigned *pinned = pinned_words(words, 1);
    std::vector<unsigned> got(words);
    Gate gate(gpu);
    gate.close(stream);
    CK(cuMemcpyHtoDAsync(device, pinned, words * 4, stream));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    std::fill_n(pinned, words, 2);
    gate.open();
    CK(cuStreamSynchronize(stream));
    std::fill_n(pinned, words, 3);
    CK(cuMemcpyDtoH(got.data(), device, words * 4));
    pitfall::observed("pinned_source_read_at=%s", first_other(got.data(), words, 2) < 0   ? "execution"
                                                  : first_other(got.data(), words, 1) < 0 ? "call"
                                                                                           : "neither");
    EXPECT(std::count(got.begin(), got.end(), 3u) == 0, "the source was read after its stream was synchronised");
}

// Pinned memory as the hop between two queued copies.
PITFALL(03, pinned_written_then_read_by_the_stream) {
    Gpu gpu;
    std::vector<size_t> sizes = {4096, 12 << 20};
    if (pitfall::large())
        sizes.push_back(64 << 20);
    for (size_t bytes : sizes) {
        size_t words = bytes / 4;
        CUdeviceptr a = device_words(words, 0x1234), b = device_words(words, 0);
        unsigned *pinned = pinned_words(words, 0xbad);
        std::vector<unsigned> got(words);
        CUstream stream = new_stream(false);
        CK(cuMemcpyDtoHAsync(pinned, a, bytes, stream));
        CK(cuMemcpyHtoDAsync(b, pinned, bytes, stream));
        CK(cuStreamSynchronize(stream));
        CK(cuMemcpyDtoH(got.data(), b, bytes));
        EXPECT_WORDS(got.data(), words, 0x1234);

        // The same with a synchronous copy: it follows the blocking stream.
        CK(cuMemsetD32(a, 0x5678, words));
        CK(cuMemcpyDtoHAsync(pinned, a, bytes, stream));
        CK(cuMemcpyHtoD(b, pinned, bytes));
        CK(cuMemcpyDtoH(got.data(), b, bytes));
        EXPECT_WORDS(got.data(), words, 0x5678);
        CK(cuMemFree(a));
        CK(cuMemFree(b));
        CK(cuMemFreeHost(pinned));
        CK(cuStreamDestroy(stream));
    }
}

PITFALL(04, copy_stays_on_its_stream) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUfunction fill = gpu.function("fill");
    const unsigned words = 4096, quarter = words / 4;
    CUdeviceptr device = device_words(words, 7);
    unsigned *source = pinned_words(words, 2), *result = pinned_words(words), *early = pinned_words(words);
    Gate gate(gpu);
    gate.close(stream);
    LAUNCH(fill, 4, 64, stream, device, 1u, words);
    CK(cuMemcpyHtoDAsync(device, source, quarter * 4, stream));
    CK(cuMemsetD32Async(device + quarter * 4, 3, quarter, stream));
    CK(cuMemcpyDtoDAsync(device + 2 * quarter * 4, device + quarter * 4, quarter * 4, stream));
    CK(cuMemcpyDtoHAsync(result, device, words * 4, stream));
    // Nothing of that may have happened yet, as another stream sees.
    CK(cuMemcpyDtoHAsync(early, device, words * 4, other));
    CK(cuStreamSynchronize(other));
    EXPECT(!gate.is_open(), "the gate is open");
    EXPECT_WORDS(early, words, 7);
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(result, quarter, 2);
    EXPECT_WORDS(result + quarter, quarter, 3);
    EXPECT_WORDS(result + 2 * quarter, quarter, 3);
    EXPECT_WORDS(result + 3 * quarter, quarter, 1);
}

PITFALL(05, sync_copy_ignores_non_blocking_streams) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr device = device_words(1024, 5);
    std::vector<unsigned> host(1024, 6), got(1024);
    Gate gate(gpu);
    gate.close(stream);
    CK(cuMemcpyDtoH(got.data(), device, 4096));
    EXPECT_WORDS(got.data(), 1024, 5);
    CK(cuMemcpyHtoD(device, host.data(), 4096));
    CK(cuMemcpyDtoH(got.data(), device, 4096));
    EXPECT_WORDS(got.data(), 1024, 6);
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(stream));
}

PITFALL(05, sync_copy_follows_blocking_streams) {
    Gpu gpu;
    CUstream stream = new_stream(false);
    CUfunction fill = gpu.function("fill");
    CUdeviceptr device = device_words(1024, 5);
    std::vector<unsigned> got(1024);
    {
        Gate gate(gpu);
        gate.close(stream);
        LAUNCH(fill, 1, 64, stream, device, 8u, 1024u);
        gate.open_later();
        CK(cuMemcpyDtoH(got.data(), device, 4096));
        EXPECT(gate.is_open(), "a synchronous copy overtook a kernel of a blocking stream");
        EXPECT_WORDS(got.data(), 1024, 8);
    }
    // The blocking stream waits for the legacy one.
    Gate gate(gpu);
    gate.close(CU_STREAM_LEGACY);
    LAUNCH(fill, 1, 64, stream, device, 9u, 1024u);
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyDtoH(got.data(), device, 4096));
    EXPECT_WORDS(got.data(), 1024, 9);
}

// "For transfers from device memory to device memory, no host-side synchronization is performed"; memsets of device
// memory are asynchronous with respect to the host.
PITFALL(05, sync_memset_and_dtod_do_not_block_the_host) {
    Gpu gpu;
    CUstream stream = new_stream(false);
    CUdeviceptr a = device_words(4096, 1), b = device_words(4096, 2);
    std::vector<unsigned> got(4096);
    Gate gate(gpu);
    gate.close(stream);
    gate.open_later(5);
    CK(cuMemsetD32(a, 3, 4096));
    EXPECT(!gate.is_open(), "cuMemsetD32 waited for the device");
    CK(cuMemcpyDtoD(b, a, 4096 * 4));
    EXPECT(!gate.is_open(), "cuMemcpyDtoD waited for the device");
    gate.open();
    CK(cuMemcpyDtoH(got.data(), b, 4096 * 4));
    EXPECT_WORDS(got.data(), 4096, 3);
}

// Calls that do not wait for device memory wait for memory with this attribute, which ends with the memory.
PITFALL(05, memory_with_sync_memops_is_waited_for) {
    Gpu gpu;
    const size_t bytes = 4096;
    Gate gate(gpu);
    for (unsigned round = 0; round < 2; round++) {
        CUdeviceptr memory = device_words(bytes / 4), other = device_words(bytes / 4);
        unsigned value = 7;
        CK(cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
        EXPECT((value & 1) == 0, "round %u: new memory has the attribute", round);
        value = 1;
        CK(cuPointerSetAttribute(&value, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, memory));
        auto waits = [&](const char *what, auto call) {
            CK(cuCtxSynchronize());
            gate.close(nullptr);
            gate.open_later(0.02);
            CK(call());
            EXPECT(gate.is_open(), "%s did not wait", what);
            gate.wait_opened();
        };
        waits("a fill", [&] { return cuMemsetD8(memory, 1, bytes); });
        waits("a copy to it", [&] { return cuMemcpyDtoD(memory, other, bytes); });
        waits("a copy from it", [&] { return cuMemcpyDtoD(other, memory, bytes); });
        CK(cuMemFree(memory));
        CK(cuMemFree(other));
    }
}

PITFALL(06, event_delivers_what_it_covers) {
    Gpu gpu;
    CUstream a = new_stream(), b = new_stream();
    CUfunction fill = gpu.function("fill");
    const unsigned words = 64 * 1024;
    CUdeviceptr da = device_words(words), db = device_words(words);
    unsigned *ha = pinned_words(words, 1), *hb = pinned_words(words, 1);
    CUevent ea, eb;
    CK(cuEventCreate(&ea, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&eb, CU_EVENT_DISABLE_TIMING));
    Gate gate_a(gpu), gate_b(gpu);
    gate_a.close(a);
    gate_b.close(b);
    LAUNCH(fill, 4, 64, a, da, 0xaau, words);
    LAUNCH(fill, 4, 64, b, db, 0xbbu, words);
    CK(cuMemcpyDtoHAsync(ha, da, words * 4, a));
    CK(cuMemcpyDtoHAsync(hb, db, words * 4, b));
    CK(cuEventRecord(ea, a));
    CK(cuEventRecord(eb, b));
    gate_a.open();
    CK(cuEventSynchronize(ea));
    EXPECT_WORDS(ha, words, 0xaa);
    EXPECT_WORDS(hb, words, 1);
    CK_IS(cuEventQuery(eb), CUDA_ERROR_NOT_READY);
    gate_b.open();
    while (cuEventQuery(eb) == CUDA_ERROR_NOT_READY) {
    }
    EXPECT_WORDS(hb, words, 0xbb);
}

PITFALL(06, default_stream_event_delivers) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    const unsigned words = 64 * 1024;
    CUdeviceptr device = device_words(words);
    unsigned *host = pinned_words(words, 1);
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    for (unsigned round = 1; round <= 8; round++) {
        LAUNCH(fill, 4, 64, nullptr, device, round * 3, words);
        CK(cuMemcpyDtoHAsync(host, device, words * 4, nullptr));
        CK(cuEventRecord(event, nullptr));
        CK(cuEventSynchronize(event));
        EXPECT_WORDS(host, words, round * 3);
    }
}

static uint64_t checksum(const unsigned char *data, size_t bytes) {
    uint64_t sum = bytes, word;
    for (size_t at = 0; at + 8 <= bytes; at += 8) {
        memcpy(&word, data + at, 8);
        sum = (sum ^ word) * 0x9e3779b97f4a7c15ull;
    }
    for (size_t at = bytes & ~size_t(7); at < bytes; at++)
        sum = sum * 31 + data[at];
    return sum;
}

static void round_trip(size_t bytes) {
    CUdeviceptr a = 0, b = 0;
    CK(cuMemAlloc(&a, bytes));
    CK(cuMemAlloc(&b, bytes));
    std::vector<unsigned char> source(bytes), got(bytes, 0x11);
    pattern(source.data(), bytes, (unsigned)bytes);
    CK(cuMemcpyHtoD(a, source.data(), bytes));
    CK(cuMemcpyDtoD(b, a, bytes));
    CK(cuMemcpyDtoH(got.data(), b, bytes));
    EXPECT(memcmp(source.data(), got.data(), bytes) == 0, "%zu bytes came back changed", bytes);
    CK(cuMemFree(a));
    CK(cuMemFree(b));
}

PITFALL(08, chunk_boundaries) {
    Gpu gpu;
    for (size_t at : {size_t(4) << 10, size_t(64) << 10, size_t(1) << 20, size_t(2) << 20, size_t(4) << 20, size_t(16) << 20,
                      size_t(64) << 20})
        for (long off : {-1L, 0L, 1L})
            round_trip(at + off);
}

PITFALL(08, large_copies) {
    if (!pitfall::large())
        pitfall::skip("needs PITFALL_LARGE=1");
    Gpu gpu;
    for (size_t at : {size_t(256) << 20, size_t(2) << 30})
        for (long off : {-1L, 0L, 1L})
            round_trip(at + off);
    round_trip((size_t(4) << 30) + 1);
}

// A copy of many blocks, unaligned at both ends on both sides: every byte arrives, and no adjacent byte changes.
PITFALL(08, one_long_copy_unaligned) {
    Gpu gpu;
    const size_t most = (size_t(256) << 20) + 3, slack = 8192;
    CUdeviceptr device = 0;
    CK(cuMemAlloc(&device, most + slack));
    std::vector<unsigned char> host(most + slack, 0x5a);
    struct {
        size_t bytes, host, device;
    } cases[] = {{(512 << 10) + 1, 4095, 1}, {(1 << 20) + 1, 17, 255}, {(5 << 20) + 4097, 1, 3}, {most, 1233, 777}};
    for (auto [bytes, at, on] : cases) {
        unsigned char *data = host.data() + at;
        pattern(data, bytes, (unsigned)bytes);
        std::vector<unsigned char> before(data, data + std::min<size_t>(bytes, 4096));
        uint64_t sum = checksum(data, bytes);
        CK(cuMemsetD8(device, 0x77, most + slack));
        CK(cuMemcpyHtoD(device + on, data, bytes));
        memset(data, 0, bytes);
        CK(cuMemcpyDtoH(data, device + on, bytes));
        EXPECT(checksum(data, bytes) == sum && memcmp(data, before.data(), before.size()) == 0,
               "%zu bytes came back changed", bytes);
        unsigned char guards[2];
        CK(cuMemcpyDtoH(&guards[0], device + on - 1, 1));
        CK(cuMemcpyDtoH(&guards[1], device + on + bytes, 1));
        EXPECT(guards[0] == 0x77 && guards[1] == 0x77, "%zu bytes: device memory beside the copy changed", bytes);
        EXPECT(data[-1] == 0x5a && data[bytes] == 0x5a, "%zu bytes: host memory beside the copy changed", bytes);
        memset(data, 0x5a, bytes);
    }
}

// One of a copy's blocks is invalid: the call reports it, nothing hangs, and later calls work.
PITFALL_OURS(82, copy_past_the_end) {
    Gpu gpu;
    const size_t bytes = 24 << 20, past = 4 << 20;
    CUdeviceptr device = 0;
    CK(cuMemAlloc(&device, bytes));
    std::vector<unsigned char> host(bytes + past, 3);
    CK_IS(cuMemcpyHtoD(device, host.data(), bytes + past), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyDtoH(host.data(), device, bytes + past), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyHtoD(device + bytes + past, host.data(), bytes), CUDA_ERROR_INVALID_VALUE);
    pattern(host.data(), bytes, 9);
    uint64_t sum = checksum(host.data(), bytes);
    CK(cuMemcpyHtoD(device, host.data(), bytes));
    memset(host.data(), 0, bytes);
    CK(cuMemcpyDtoH(host.data(), device, bytes));
    EXPECT(checksum(host.data(), bytes) == sum, "the copy after a failed one came back changed");
}

static std::atomic<unsigned> signals_seen;

// Signal handlers run while long copies are under way, and no part of a copy runs twice or not at all.
PITFALL(82, signals_during_long_copies) {
    Gpu gpu;
    const size_t bytes = (32 << 20) + 5;
    CUdeviceptr device = 0;
    CK(cuMemAlloc(&device, bytes));
    std::vector<unsigned char> source(bytes), got(bytes);
    for (int flags : {0, SA_RESTART}) {
        struct sigaction action = {};
        action.sa_handler = [](int) { signals_seen++; };
        action.sa_flags = flags;
        sigaction(SIGALRM, &action, nullptr);
        itimerval often = {{0, 2000}, {0, 2000}};
        setitimer(ITIMER_REAL, &often, nullptr);
        for (unsigned round = 0; round < 3; round++) {
            pattern(source.data(), bytes, round + flags);
            memset(got.data(), 0, bytes);
            CK(cuMemcpyHtoD(device, source.data(), bytes));
            CK(cuMemcpyDtoH(got.data(), device, bytes));
            EXPECT(got == source, "round %u: wrong bytes", round);
        }
        often = {};
        setitimer(ITIMER_REAL, &often, nullptr);
    }
    EXPECT(signals_seen > 0, "no signal arrived");
}

PITFALL(09, direction_by_address) {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING))
        pitfall::skip("no unified addressing");
    const size_t bytes = 100'000, inner = 4321;
    CUdeviceptr device = device_words(bytes / 4), second = device_words(bytes / 4);
    auto *pinned = (unsigned char *)pinned_words(bytes / 4);
    std::vector<unsigned char> heap(bytes), expected(bytes), got(bytes);
    static unsigned char global[bytes];
    auto check = [&](const char *what, CUdeviceptr to, CUdeviceptr from, void *source, unsigned seed) {
        pattern(expected.data(), bytes, seed);
        memcpy(source, expected.data(), bytes);
        size_t count = bytes - inner - 17;
        if ((CUdeviceptr)source != from)
            CK(cuMemcpyHtoD(from, source, bytes));
        CK(cuMemcpy(to + inner, from + inner, count));
        CK(cuCtxSynchronize());
        if (to == device || to == second)
            CK(cuMemcpyDtoH(got.data(), to + inner, count));
        else
            memcpy(got.data(), (void *)(to + inner), count);
        EXPECT(memcmp(got.data(), expected.data() + inner, count) == 0, "%s: wrong bytes", what);
    };
    auto at = [](void *memory) { return (CUdeviceptr)memory; };
    std::vector<unsigned char> scratch(bytes);
    check("pageable to device", device, at(heap.data()), heap.data(), 1);
    check("device to pageable", at(heap.data()), device, scratch.data(), 2);
    check("pinned to device", device, at(pinned), pinned, 3);
    check("device to pinned", at(pinned), device, scratch.data(), 4);
    check("device to device", second, device, scratch.data(), 5);
    check("pageable to pageable", at(global), at(heap.data()), heap.data(), 6);
    check("pinned to pageable", at(global), at(pinned), pinned, 7);
    check("static to device", device, at(global), global, 8);

    unsigned *registered = (unsigned *)aligned_alloc(4096, 1 << 17);
    CK(cuMemHostRegister(registered, 1 << 17, 0));
    check("registered to device", device, at(registered), registered, 9);
    check("device to registered", at(registered), device, scratch.data(), 10);
    CK(cuMemHostUnregister(registered));
    check("device to what was registered", at(registered), device, scratch.data(), 11);
    free(registered);
    OBSERVE("zero_bytes", cuMemcpy(device, second, 0));
    OBSERVE("zero_bytes_null", cuMemcpy(0, 0, 0));
}

// A copy between host buffers is over when the call returns, also if one of them is pinned.
PITFALL(09, host_memory_has_its_bytes_when_a_copy_returns) {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING))
        pitfall::skip("no unified addressing");
    const size_t most = 3 << 20, row = 512;
    void *pinned = nullptr, *registered = aligned_alloc(4096, most);
    CK(cuMemAllocHost(&pinned, most));
    CK(cuMemHostRegister(registered, most, 0));
    std::vector<unsigned char> heap(most);
    unsigned seed = 0;
    for (auto *to : {(unsigned char *)pinned, (unsigned char *)registered})
        for (size_t bytes : {size_t(64), size_t(4096), size_t(16384), size_t(100'000), size_t(1 << 20), most})
            for (unsigned round = 0; round < 20; round++) {
                CK(cuCtxSynchronize());
                pattern(heap.data(), bytes, ++seed);
                CK(cuMemcpy((CUdeviceptr)to, (CUdeviceptr)heap.data(), bytes));
                EXPECT(memcmp(to, heap.data(), bytes) == 0, "%zu bytes, round %u", bytes, round);
                CK(cuCtxSynchronize());
                pattern(heap.data(), bytes, ++seed);
                CUDA_MEMCPY2D rows = {};
                rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_HOST;
                rows.srcHost = heap.data();
                rows.dstHost = to;
                rows.srcPitch = rows.dstPitch = row;
                rows.WidthInBytes = std::min(bytes, row - 12);
                rows.Height = std::max(bytes / row, size_t(1));
                CK(cuMemcpy2D(&rows));
                for (size_t y = 0; y < rows.Height; y++)
                    EXPECT(memcmp(to + y * row, heap.data() + y * row, rows.WidthInBytes) == 0, "row %zu of %zu, round %u",
                           y, rows.Height, round);
            }
    CK(cuMemHostUnregister(registered));
    free(registered);
}

// Whatever the driver thinks of a single row that is longer than its pitch: a call that succeeds has copied.
PITFALL(09, one_row_that_is_longer_than_its_pitch) {
    Gpu gpu;
    const unsigned bytes = 256;
    CUdeviceptr device = device_words(bytes / 4);
    std::vector<unsigned char> source(bytes), got(bytes);
    for (unsigned round = 0; round < 64; round++) {
        pattern(source.data(), bytes, round);
        CUDA_MEMCPY2D there = {}, back = {};
        there.srcMemoryType = back.dstMemoryType = CU_MEMORYTYPE_HOST;
        there.dstMemoryType = back.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        there.srcHost = source.data();
        back.dstHost = got.data();
        there.dstDevice = back.srcDevice = device;
        there.srcPitch = back.dstPitch = bytes;
        there.dstPitch = back.srcPitch = 16;
        there.WidthInBytes = back.WidthInBytes = bytes;
        there.Height = back.Height = 1;
        CK(cuMemsetD8(device, 0, bytes));
        CUresult sent = cuMemcpy2D(&there);
        CK(cuCtxSynchronize());
        CK(cuMemcpyDtoH(got.data(), device, bytes));
        EXPECT(sent != CUDA_SUCCESS || got == source, "round %u: the row is not there", round);
        CK(cuMemcpyHtoD(device, source.data(), bytes));
        std::fill(got.begin(), got.end(), 0);
        CUresult fetched = cuMemcpy2D(&back);
        EXPECT(fetched != CUDA_SUCCESS || got == source, "round %u: the row is not here", round);
        EXPECT(sent == fetched, "%d and %d", (int)sent, (int)fetched);
        if (round == 0)
            OBSERVE("result", sent);
    }
}

// Without distances, rows and slices follow each other. Distances that are too short are refused. These are the answers
// of an H200 with driver 580.
PITFALL(09, distances_between_rows_and_slices) {
    Gpu gpu;
    const size_t width = 64, height = 2, depth = 3, bytes = width * height * depth;
    CUdeviceptr device = device_words(1024, 0xeeeeeeee), other = device_words(1024);
    std::vector<unsigned char> source(4096), got(bytes);
    pattern(source.data(), source.size(), 3);
    auto *pinned = (unsigned char *)pinned_words(1024);
    memcpy(pinned, source.data(), 4096);
    CK(cuMemcpyHtoD(other, source.data(), 4096));
    CUDA_MEMCPY3D box = {};
    box.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    box.dstDevice = device;
    box.WidthInBytes = width, box.Height = height, box.Depth = depth;
    for (int from = 0; from < 3; from++) {
        box.srcMemoryType = from == 2 ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
        box.srcHost = from == 1 ? pinned : source.data();
        box.srcDevice = other;
        for (size_t pitch : {size_t(0), width})
            for (size_t rows : {size_t(0), height}) {
                box.srcPitch = box.dstPitch = pitch;
                box.srcHeight = box.dstHeight = rows;
                set_words(device, 0xeeeeeeee, 1024);
                CK(cuMemcpy3D(&box));
                CK(cuMemcpyDtoH(got.data(), device, bytes));
                EXPECT(memcmp(got.data(), source.data(), bytes) == 0, "pitch %zu, height %zu: a box with other bytes", pitch, rows);
            }
        box.srcPitch = box.dstPitch = width;
        set_words(device, 0xeeeeeeee, 1024);
        for (auto heights : {std::pair(1, 2), std::pair(2, 1)}) {
            box.srcHeight = heights.first, box.dstHeight = heights.second;
            CK_IS(cuMemcpy3D(&box), CUDA_ERROR_INVALID_VALUE);
            CK_IS(cuMemcpy3DAsync(&box, nullptr), CUDA_ERROR_INVALID_VALUE);
        }
        CK(cuCtxSynchronize());
        CK(cuMemcpyDtoH(got.data(), device, bytes));
        EXPECT(got == std::vector<unsigned char>(bytes, 0xee), "a refused copy has copied");
    }
    CUDA_MEMCPY2D rows = {};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = source.data();
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = device;
    rows.WidthInBytes = width;
    rows.Height = 1;
    struct {
        size_t from, to;
        CUresult code;
    } pitches[] = {{0, 0, CUDA_SUCCESS},
                   {width, size_t(1) << 31, CUDA_SUCCESS},
                   {size_t(1) << 31, width, CUDA_SUCCESS},
                   {width / 2, width, CUDA_ERROR_INVALID_VALUE},
                   {width, width / 2, CUDA_ERROR_INVALID_VALUE}};
    for (auto pitch : pitches) {
        rows.srcPitch = pitch.from, rows.dstPitch = pitch.to;
        CK_IS(cuMemcpy2D(&rows), pitch.code);
    }
}

// A refused copy of rows leaves no memory behind.
PITFALL_OURS(18, a_copy_of_rows_in_no_stream_keeps_nothing) {
    Gpu gpu;
    const size_t width = 4096, height = 4096;
    CUdeviceptr device = 0;
    CK(cuMemAlloc(&device, width * height));
    std::vector<unsigned char> source(width * height);
    CUstream stream = new_stream();
    CK(cuStreamDestroy(stream));
    CUDA_MEMCPY2D rows = {};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.srcHost = source.data();
    rows.dstDevice = device;
    rows.srcPitch = rows.dstPitch = rows.WidthInBytes = width;
    rows.Height = height;
    auto refused = [&] { EXPECT(cuMemcpy2DAsync(&rows, stream) != CUDA_SUCCESS, "there is no such stream"); };
    expect_kept(width * height, [&] {
        for (unsigned round = 0; round < 4; round++)
            refused();
    });
}

static unsigned char *guarded;
static size_t guarded_bytes;

// The program's handler of faults repairs accesses of copies too, whichever thread makes them.
PITFALL_OURS(82, faults_during_copies_reach_the_programs_handler) {
    Gpu gpu;
    guarded_bytes = 5 << 20;
    guarded = (unsigned char *)mmap(nullptr, guarded_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CUdeviceptr device = 0;
    CK(cuMemAlloc(&device, guarded_bytes));
    std::vector<unsigned char> source(guarded_bytes);
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO;
    action.sa_sigaction = [](int, siginfo_t *info, void *) {
        auto *page = (unsigned char *)((uintptr_t)info->si_addr & ~uintptr_t(4095));
        if (page < guarded || page >= guarded + guarded_bytes)
            _exit(9);
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
    };
    sigaction(SIGSEGV, &action, nullptr);
    for (size_t bytes : {size_t(900'000), size_t(2 << 20), size_t(3 << 20)}) {
        pattern(source.data(), bytes, (unsigned)bytes);
        CK(cuMemcpyHtoD(device, source.data(), bytes));
        mprotect(guarded, guarded_bytes, PROT_READ);
        CK(cuMemcpyDtoH(guarded, device, bytes));
        EXPECT(memcmp(guarded, source.data(), bytes) == 0, "%zu bytes", bytes);
    }
}

// Memory that was freed is no side of a copy, whatever the copy's form.
PITFALL_OURS(82, copies_of_freed_memory_are_refused) {
    Gpu gpu;
    const unsigned bytes = 4096;
    CUdeviceptr other = device_words(bytes / 4);
    for (unsigned which = 0; which < 5; which++) {
        CUdeviceptr memory = device_words(bytes / 4);
        CK(cuCtxSynchronize());
        CK(cuMemFree(memory));
        CUDA_MEMCPY2D rows = {};
        rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.dstDevice = which % 2 ? other : memory;
        rows.srcDevice = which % 2 ? memory : other;
        rows.srcPitch = rows.dstPitch = 64;
        rows.WidthInBytes = 32;
        rows.Height = 16;
        CUresult code = CUDA_SUCCESS;
        switch (which) {
        case 0:
        case 1: code = cuMemcpy2D(&rows); break;
        case 2: code = cuMemcpy2DAsync(&rows, nullptr); break;
        case 3: code = cuMemcpyPeer(other, gpu.context, memory, gpu.context, bytes); break;
        case 4: code = cuMemcpyPeerAsync(memory, gpu.context, other, gpu.context, bytes, nullptr); break;
        }
        EXPECT(code == CUDA_ERROR_INVALID_VALUE, "%u: %d", which, (int)code);
    }
}

PITFALL(09, two_and_three_dimensions) {
    Gpu gpu;
    const size_t width = 37, height = 19, host_pitch = 53;
    CUdeviceptr device = 0;
    size_t pitch = 0;
    CK(cuMemAllocPitch(&device, &pitch, width, height, 4));
    EXPECT(pitch >= width, "pitch %zu", pitch);
    pitfall::observed("hw.pitch=%zu", pitch);
    CK(cuMemsetD8(device, 0x77, pitch * height));
    std::vector<unsigned char> source(host_pitch * height), got(host_pitch * height, 0x55);
    pattern(source.data(), source.size(), 3);
    CUstream stream = new_stream();
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        for (bool unified : {false, true}) {
            std::fill(got.begin(), got.end(), 0x55);
            CUDA_MEMCPY2D up = {};
            up.srcMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_HOST;
            up.srcHost = source.data();
            up.srcDevice = (CUdeviceptr)source.data();
            up.srcPitch = host_pitch;
            up.srcXInBytes = 2;
            up.srcY = 1;
            up.dstMemoryType = unified ? CU_MEMORYTYPE_UNIFIED : CU_MEMORYTYPE_DEVICE;
            up.dstDevice = device;
            up.dstPitch = pitch;
            up.dstXInBytes = 3;
            up.dstY = 2;
            up.WidthInBytes = width - 5;
            up.Height = height - 4;
            CUDA_MEMCPY2D down = {};
            down.srcMemoryType = up.dstMemoryType;
            down.srcDevice = device;
            down.srcPitch = pitch;
            down.srcXInBytes = 3;
            down.srcY = 2;
            down.dstMemoryType = up.srcMemoryType;
            down.dstHost = got.data();
            down.dstDevice = (CUdeviceptr)got.data();
            down.dstPitch = host_pitch;
            down.dstXInBytes = 2;
            down.dstY = 1;
            down.WidthInBytes = up.WidthInBytes;
            down.Height = up.Height;
            if (asynchronous) {
                CK(cuMemcpy2DAsync(&up, stream));
                CK(cuMemcpy2DAsync(&down, stream));
                CK(cuStreamSynchronize(stream));
            } else {
                CK(cuMemcpy2D(&up));
                CK(cuMemcpy2D(&down));
            }
            for (size_t y = 0; y < height; y++)
                for (size_t x = 0; x < host_pitch; x++) {
                    bool inside = y >= 1 && y < 1 + height - 4 && x >= 2 && x < 2 + width - 5;
                    size_t i = y * host_pitch + x;
                    EXPECT(got[i] == (inside ? source[i] : 0x55), "row %zu column %zu is %02x", y, x, got[i]);
                }
        }
    }
    CUDA_MEMCPY2D bad = {};
    bad.srcMemoryType = CU_MEMORYTYPE_HOST;
    bad.srcHost = source.data();
    bad.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    bad.dstDevice = device;
    bad.dstPitch = pitch;
    bad.WidthInBytes = width;
    bad.Height = 4;
    bad.srcPitch = width - 1;
    CK_IS(cuMemcpy2D(&bad), CUDA_ERROR_INVALID_VALUE); // a pitch smaller than the row
    bad.srcPitch = host_pitch;
    bad.WidthInBytes = 0;
    OBSERVE("zero_width", cuMemcpy2D(&bad));
    bad.WidthInBytes = width;
    bad.Height = 0;
    OBSERVE("zero_height", cuMemcpy2D(&bad));

    // Three dimensions: a box inside a box, there and back, and the 2D memset.
    const size_t depth = 5;
    CUdeviceptr volume = device_words(64 * 32 * depth / 4);
    std::vector<unsigned char> box(host_pitch * height * depth), back(box.size(), 0x44);
    pattern(box.data(), box.size(), 8);
    CUDA_MEMCPY3D up = {};
    up.srcMemoryType = CU_MEMORYTYPE_HOST;
    up.srcHost = box.data();
    up.srcPitch = host_pitch;
    up.srcHeight = height;
    up.srcZ = 1;
    up.srcY = 2;
    up.srcXInBytes = 3;
    up.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    up.dstDevice = volume;
    up.dstPitch = 64;
    up.dstHeight = 32;
    up.dstXInBytes = 7;
    up.dstY = 3;
    up.WidthInBytes = 31;
    up.Height = 11;
    up.Depth = depth - 1;
    CK(cuMemcpy3D(&up));
    // A copy from pageable memory may return before its end.
    CK(cuStreamSynchronize(nullptr));
    CUDA_MEMCPY3D down = {};
    down.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    down.srcDevice = volume;
    down.srcPitch = 64;
    down.srcHeight = 32;
    down.srcXInBytes = 7;
    down.srcY = 3;
    down.dstMemoryType = CU_MEMORYTYPE_HOST;
    down.dstHost = back.data();
    down.dstPitch = host_pitch;
    down.dstHeight = height;
    down.dstZ = 1;
    down.dstY = 2;
    down.dstXInBytes = 3;
    down.WidthInBytes = 31;
    down.Height = 11;
    down.Depth = depth - 1;
    CK(cuMemcpy3DAsync(&down, stream));
    CK(cuStreamSynchronize(stream));
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < host_pitch; x++) {
                bool inside = z >= 1 && y >= 2 && y < 13 && x >= 3 && x < 34;
                size_t i = (z * height + y) * host_pitch + x;
                EXPECT(back[i] == (inside ? box[i] : 0x44), "plane %zu row %zu column %zu is %02x", z, y, x, back[i]);
            }
}

// A copy of rows between memory, or between memory and an array.
struct RowsCopy {
    CUDA_MEMCPY2D copy = {};

    RowsCopy(size_t width, size_t height) {
        copy.WidthInBytes = width;
        copy.Height = height;
    }
    RowsCopy &from(const void *host, size_t pitch) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = host;
        copy.srcPitch = pitch;
        return *this;
    }
    RowsCopy &from(CUdeviceptr device, size_t pitch) {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = device;
        copy.srcPitch = pitch;
        return *this;
    }
    RowsCopy &from(CUarray array) {
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = array;
        return *this;
    }
    RowsCopy &to(void *host, size_t pitch) {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = host;
        copy.dstPitch = pitch;
        return *this;
    }
    RowsCopy &to(CUdeviceptr device, size_t pitch) {
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = device;
        copy.dstPitch = pitch;
        return *this;
    }
    RowsCopy &to(CUarray array) {
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = array;
        return *this;
    }
    void in(CUstream stream) const { CK(cuMemcpy2DAsync(&copy, stream)); }
};

// Copies of rows, small and large, follow their stream like other copies, and take their source when those do.
PITFALL(02, rows_follow_their_stream) {
    Gpu gpu;
    CUstream stream = new_stream();
    Gate gate(gpu);
    struct { size_t width, height, gap; } shapes[] = {
        {4, 1, 12}, {252, 64, 12}, {3000, 300, 12}, {4096, 700, 12}, {200'000, 3, 12}, {36, 40'000, 4}, {4096, 2100, 0}};
    for (auto [width, height, gap] : shapes) {
        size_t near = width + gap, far = (width + 511) / 512 * 512;
        std::vector<unsigned char> source(near * height), first(source.size()), got(source.size(), 0x55), expected(got);
        pattern(source.data(), source.size(), (unsigned)width);
        first = source;
        void *memory = nullptr;
        CK(cuMemAllocHost(&memory, near * height));
        auto *pinned = (unsigned char *)memory;
        memset(pinned, 1, near * height);
        CUdeviceptr one = 0, two = 0;
        CK(cuMemAlloc(&one, far * height));
        CK(cuMemAlloc(&two, far * height));
        CUDA_ARRAY_DESCRIPTOR form = {width / 4, height, CU_AD_FORMAT_UNSIGNED_INT32, 1};
        CUarray array = nullptr;
        bool has_array = width / 4 <= 16384 && height <= 16384;
        if (has_array)
            CK(cuArrayCreate(&array, &form));
        auto check = [&](const char *what, auto &&value) {
            for (size_t y = 0; y < height; y++)
                for (size_t x = 0; x < near; x++) {
                    size_t i = y * near + x;
                    unsigned want = x < width ? value(i) : 0x55;
                    EXPECT(got[i] == want, "%s, %zu x %zu: row %zu column %zu is %02x, expected %02x", what, width, height, y, x, got[i], want);
                }
        };
        // Pageable memory was read when the call returns, also if the stream has not come to the copy.
        CK(cuMemsetD8(one, 0, far * height));
        CK(cuCtxSynchronize());
        gate.close(stream);
        gate.open_later();
        RowsCopy(width, height).from(source.data(), near).to(one, far).in(stream);
        std::fill(source.begin(), source.end(), 0xee);
        // And written when it returns, after the stream's earlier work.
        RowsCopy(width, height).from(one, far).to(got.data(), near).in(stream);
        check("pageable", [&](size_t i) { return first[i]; });
        gate.wait_opened();

        // Between memory that the GPU reaches, no call waits, and pinned memory is read in the stream's order.
        gate.close(stream);
        RowsCopy(width, height).from(pinned, near).to(two, far).in(stream);
        RowsCopy(width, height).from(two, far).to(one, far).in(stream);
        if (has_array)
            RowsCopy(width, height).from(one, far).to(array).in(stream);
        memset(pinned, 7, near * height);
        gate.open();
        if (has_array)
            RowsCopy(width, height).from(array).to(one, far).in(stream);
        std::fill(got.begin(), got.end(), 0x55);
        RowsCopy(width, height).from(one, far).to(got.data(), near).in(stream);
        check("pinned", [](size_t) { return 7u; });

        // The same with an array.
        if (has_array) {
            source = first;
            gate.close(stream);
            gate.open_later();
            RowsCopy(width, height).from(source.data(), near).to(array).in(stream);
            std::fill(source.begin(), source.end(), 0xee);
            std::fill(got.begin(), got.end(), 0x55);
            RowsCopy(width, height).from(array).to(got.data(), near).in(stream);
            check("an array", [&](size_t i) { return first[i]; });
            gate.wait_opened();
            RowsCopy(width, height).from(array).to(pinned, near).in(stream);
            CK(cuStreamSynchronize(stream));
            for (size_t i = 0; i < near * height; i++)
                EXPECT(pinned[i] == (i % near < width ? first[i] : 7), "pinned byte %zu is %02x", i, pinned[i]);
            CK(cuArrayDestroy(array));
        }
        CK(cuMemFree(one));
        CK(cuMemFree(two));
        CK(cuMemFreeHost(pinned));
    }
}

PITFALL(82, memsets) {
    Gpu gpu;
    const size_t bytes = 64 * 1024;
    CUdeviceptr device = device_words(bytes / 4, 0x01010101);
    std::vector<unsigned char> got(bytes), expected(bytes, 1);
    CUstream stream = new_stream();
    CK(cuMemsetD8Async(device + 3, 0xa5, 1001, stream));
    CK(cuMemsetD16Async(device + 2002, 0xbeef, 777, stream));
    CK(cuMemsetD32Async(device + 4000, 0xcafef00d, 333, stream));
    CK(cuMemsetD2D8Async(device + 8001, 100, 0x3c, 33, 7, stream));
    CK(cuMemsetD2D16Async(device + 12000, 100, 0x1234, 21, 5, stream));
    CK(cuMemsetD2D32Async(device + 16000, 256, 0x89abcdef, 40, 9, stream));
    memset(&expected[3], 0xa5, 1001);
    auto rows = [&](size_t at, size_t pitch, uint64_t value, size_t size, size_t width, size_t height) {
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width; x++)
                memcpy(&expected[at + y * pitch + x * size], &value, size);
    };
    rows(2002, 0, 0xbeef, 2, 777, 1);
    rows(4000, 0, 0xcafef00d, 4, 333, 1);
    rows(8001, 100, 0x3c, 1, 33, 7);
    rows(12000, 100, 0x1234, 2, 21, 5);
    rows(16000, 256, 0x89abcdef, 4, 40, 9);
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyDtoH(got.data(), device, bytes));
    for (size_t i = 0; i < bytes; i++)
        EXPECT(got[i] == expected[i], "byte %zu is %02x, expected %02x", i, got[i], expected[i]);
    CK_IS(cuMemsetD16(device + 1, 1, 4), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemsetD32(device + 2, 1, 4), CUDA_ERROR_INVALID_VALUE);
}

// cuMemcpy returns before the GPU has the bytes. cuMemFree waits for them: they do not reach the next allocation.
PITFALL(18, memory_freed_behind_a_write_is_not_written_later) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUstream stream = new_stream();
    const unsigned count = 8 << 10;
    std::vector<unsigned> old(count, ~0u), got(count);
    for (unsigned i = 0; i < 300; i++) {
        CUdeviceptr memory = 0, next = 0;
        CK(cuMemAlloc(&memory, count * 4));
        CK(cuCtxSynchronize());
        CK(cuMemcpyHtoD(memory, old.data(), count * 4));
        CK(cuMemFree(memory));
        CK(cuMemAlloc(&next, count * 4));
        LAUNCH(fill, 1, 64, stream, next, i, count);
        CK(cuMemcpyDtoHAsync(got.data(), next, count * 4, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(got.data(), count, i);
        CK(cuMemFree(next));
    }
}

// The first version of cuMemcpyBatchAsync, which names the copy that it refused.
using BatchAsync = CUresult (*)(CUdeviceptr *, CUdeviceptr *, size_t *, size_t, CUmemcpyAttributes *, size_t *, size_t, size_t *, CUstream);

static BatchAsync first_batch() {
    void *function = nullptr;
    CUdriverProcAddressQueryResult found;
    CK(cuGetProcAddress("cuMemcpyBatchAsync", &function, 12080, CU_GET_PROC_ADDRESS_DEFAULT, &found));
    EXPECT(function, "the driver has no cuMemcpyBatchAsync of CUDA 12.8");
    return (BatchAsync)function;
}

PITFALL(04, a_batch_of_copies_is_in_its_streams_order) {
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUfunction fill = gpu.function("fill");
    const unsigned words = 4096, bytes = words * 4;
    CUdeviceptr from = device_words(words, 7), to = device_words(3 * words, 7);
    unsigned *in = pinned_words(words, 2), *out = pinned_words(words), *early = pinned_words(3 * words);
    std::vector<unsigned> pageable(words, 5), called(words, 6);
    Gate gate(gpu);
    gate.close(stream);
    LAUNCH(fill, 4, 64, stream, from, 1u, words);
    // Device to device and to pinned, pinned to device; then pageable memory that may be reused at once.
    CUdeviceptr dsts[] = {to, (CUdeviceptr)out, to + bytes, to + 2 * bytes, to + 3 * bytes - 64};
    CUdeviceptr srcs[] = {from, from, (CUdeviceptr)in, (CUdeviceptr)pageable.data(), (CUdeviceptr)called.data()};
    size_t sizes[] = {bytes, bytes, bytes, bytes - 64, 64}, starts[] = {0, 3};
    CUmemcpyAttributes attributes[2] = {};
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
    attributes[1].flags = CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE;
    size_t failed = 3;
    CK(first_batch()(dsts, srcs, sizes, 5, attributes, starts, 2, &failed, stream));
    EXPECT(failed == ~size_t(0), "copy %zu failed", failed);
    std::fill(pageable.begin(), pageable.end(), 9);
    std::fill(called.begin(), called.end(), 9);
    CK(cuMemcpyDtoHAsync(early, to, 3 * bytes, other));
    CK(cuStreamSynchronize(other));
    EXPECT(!gate.is_open(), "the gate is open");
    EXPECT_WORDS(early, 3 * words, 7);
    gate.open();
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(out, words, 1);
    std::vector<unsigned> got(3 * words);
    CK(cuMemcpyDtoH(got.data(), to, 3 * bytes));
    EXPECT_WORDS(got.data(), words, 1);
    EXPECT_WORDS(&got[words], words, 2);
    EXPECT_WORDS(&got[2 * words], words - 16, 5);
    EXPECT_WORDS(&got[3 * words - 16], 16, 6);
}

PITFALL(82, batches_that_cannot_be) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr device = device_words(64, 3), dsts[] = {device, device + 64}, srcs[] = {device + 128, device + 192};
    size_t sizes[] = {4, 4}, starts[] = {0, 1}, failed = 0;
    CUmemcpyAttributes attributes[2] = {};
    attributes[0].srcAccessOrder = attributes[1].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    BatchAsync batch = first_batch();
    auto refused = [&](size_t count, size_t kinds, CUstream where) {
        CK_IS(batch(dsts, srcs, sizes, count, attributes, starts, kinds, &failed, where), CUDA_ERROR_INVALID_VALUE);
    };
    CK(batch(dsts, srcs, sizes, 2, attributes, starts, 2, &failed, stream));
    CK(batch(dsts, srcs, sizes, 2, attributes, starts, 1, &failed, CU_STREAM_PER_THREAD));
    refused(2, 2, nullptr);
    refused(2, 2, CU_STREAM_LEGACY);
    refused(0, 1, stream);
    refused(2, 0, stream);
    starts[0] = 1;
    refused(2, 1, stream);
    starts[0] = 0;
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_INVALID;
    refused(2, 2, stream);
    attributes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_ANY;
    sizes[1] = 0;
    refused(2, 2, stream);
    sizes[1] = 4;
    dsts[1] = 0;
    refused(2, 2, stream);
    CK(cuStreamSynchronize(stream));
}

// Every size around the powers of two, at odd offsets, pageable and pinned, synchronous and asynchronous.
PITFALL(82, copy_size_sweep) {
    Gpu gpu;
    const size_t room = (8 << 20) + 4096;
    CUdeviceptr device = device_words(room / 4);
    auto *pinned = (unsigned char *)pinned_words(room / 4);
    std::vector<unsigned char> source(room), got(room);
    pattern(source.data(), room, 99);
    CUstream stream = new_stream();
    unsigned turn = 0;
    for (size_t power = 1; power <= size_t(8) << 20; power *= 2) {
        for (long off : {-1L, 0L, 1L, 7L}) {
            size_t bytes = power + off;
            if (bytes == 0 || bytes > room - 64)
                continue;
            size_t skew = turn++ % 13;
            memset(got.data(), 0, bytes + 32);
            CK(cuMemcpyHtoD(device + skew, source.data() + skew, bytes));
            CK(cuMemcpyDtoH(got.data() + 5, device + skew, bytes));
            EXPECT(memcmp(got.data() + 5, source.data() + skew, bytes) == 0, "%zu pageable bytes", bytes);
            EXPECT(got[bytes + 5] == 0 && got[4] == 0, "%zu bytes: a neighbour changed", bytes);
            memcpy(pinned + skew, source.data(), bytes);
            CK(cuMemcpyHtoDAsync(device, pinned + skew, bytes, stream));
            CK(cuMemcpyDtoHAsync(pinned + 21, device, bytes, stream));
            CK(cuStreamSynchronize(stream));
            EXPECT(memcmp(pinned + 21, source.data(), bytes) == 0, "%zu pinned bytes", bytes);
        }
    }
}

PITFALL_MAIN
