// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Memory pools of the host (pitfalls 11, 17, 28, 68).
#include "driver.h"

static const size_t MIB = 1 << 20;

// A pool of host memory that device 0 may use; skips a test if such pools are not supported.
static CUmemoryPool new_pool(const Gpu &gpu, size_t most = 0, bool open = true) {
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_MEMORY_POOLS_SUPPORTED))
        pitfall::skip("no memory pools of the host");
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    properties.maxSize = most;
    CUmemoryPool pool = nullptr;
    CK(cuMemPoolCreate(&pool, &properties));
    if (open) {
        CUmemAccessDesc wish{{CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CK(cuMemPoolSetAccess(pool, &wish, 1));
    }
    return pool;
}

static unsigned long long ask(CUmemoryPool pool, CUmemPool_attribute attribute) {
    cuuint64_t value = 0;
    CK(cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void set(CUmemoryPool pool, CUmemPool_attribute attribute, cuuint64_t value) {
    CK(cuMemPoolSetAttribute(pool, attribute, &value));
}

static unsigned *from_pool(CUmemoryPool pool, size_t bytes, CUstream stream) {
    CUdeviceptr memory = 0;
    CK(cuMemAllocFromPoolAsync(&memory, bytes, pool, stream));
    EXPECT(memory % 512 == 0, "0x%llx is not aligned", memory);
    return (unsigned *)memory;
}

static void release(unsigned *memory, CUstream stream) { CK(cuMemFreeAsync((CUdeviceptr)memory, stream)); }

PITFALL(68, other_streams_wait_for_a_free_of_host_memory) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    int no = 0;
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &no));
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull);
    CUstream reader = new_stream(), writer = new_stream();
    CUfunction fill = gpu.function("fill");
    for (size_t bytes : {4096 * sizeof(unsigned), 2 * MIB, 12 * MIB}) {
        size_t count = bytes / 4;
        std::vector<unsigned> got(count);
        CUdeviceptr copy = device_words(count);
        unsigned *first = from_pool(pool, bytes, reader);
        CK(cuStreamSynchronize(reader));
        std::fill_n(first, count, 1);
        {
            Gate gate(gpu);
            gate.close(reader);
            CK(cuMemcpyAsync(copy, (CUdeviceptr)first, bytes, reader));
            release(first, reader);
            std::vector<unsigned *> others;
            for (int i = 0; i < 4; i++) {
                others.push_back(from_pool(pool, bytes, writer));
                LAUNCH(fill, 4, 256, writer, others.back(), 2u, (unsigned)count);
            }
            CK(cuStreamSynchronize(writer));
            for (unsigned *other : others) {
                EXPECT_WORDS(other, count, 2);
                std::fill_n(other, count, 3);
            }
            EXPECT(!gate.is_open(), "the gate is open");
            gate.open();
            CK(cuStreamSynchronize(reader));
            for (unsigned *other : others)
                release(other, writer);
        }
        CK(cuMemcpyDtoH(got.data(), copy, bytes));
        EXPECT_WORDS(got.data(), count, 1);
        CK(cuMemFree(copy));
    }
    CK(cuMemPoolDestroy(pool));
}

PITFALL(68, one_stream_reuses_its_host_memory_in_order) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    const unsigned rounds = 50, count = 4096;
    CUdeviceptr results = device_words(rounds * 8);
    unsigned *first = nullptr;
    {
        Gate gate(gpu);
        gate.close(stream);
        for (unsigned round = 0; round < rounds; round++) {
            unsigned *memory = from_pool(pool, count * 4, stream);
            first = first ? first : memory;
            EXPECT(memory == first, "round %u has other memory", round);
            LAUNCH(fill, 4, 256, stream, memory, round, count);
            CK(cuMemcpyAsync(results + round * 32, (CUdeviceptr)(memory + count - 8), 32, stream));
            release(memory, stream);
        }
        EXPECT(!gate.is_open(), "the gate is open");
        gate.open();
        CK(cuStreamSynchronize(stream));
    }
    std::vector<unsigned> got(rounds * 8);
    CK(cuMemcpyDtoH(got.data(), results, got.size() * 4));
    for (unsigned round = 0; round < rounds; round++)
        EXPECT_WORDS(&got[round * 8], 8, round);
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0, "memory is used");
    CK(cuMemPoolDestroy(pool));
}

// A full pool, and a free that another stream has not reached: the allocation waits for it.
PITFALL(68, a_full_pool_of_host_memory_has_streams_wait) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu, MIB);
    CUstream reader = new_stream(), writer = new_stream();
    CUfunction fill = gpu.function("fill");
    const size_t count = MIB / 4;
    std::vector<unsigned *> all;
    CUdeviceptr memory = 0;
    CUresult code;
    while ((code = cuMemAllocFromPoolAsync(&memory, MIB, pool, reader)) == CUDA_SUCCESS && all.size() < 1000)
        all.push_back((unsigned *)memory);
    CK_IS(code, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT(!all.empty(), "there is no memory at all");
    CK(cuStreamSynchronize(reader));
    std::fill_n(all[0], count, 1);
    CUdeviceptr copy = device_words(count);
    std::vector<unsigned> got(count);
    {
        Gate gate(gpu);
        gate.close(reader);
        CK(cuMemcpyAsync(copy, (CUdeviceptr)all[0], MIB, reader));
        release(all[0], reader);
        all[0] = from_pool(pool, MIB, writer);
        LAUNCH(fill, 4, 256, writer, all[0], 2u, (unsigned)count);
        EXPECT(!gate.is_open(), "the gate is open");
        gate.open();
        CK(cuStreamSynchronize(writer));
    }
    CK(cuMemcpyDtoH(got.data(), copy, MIB));
    EXPECT_WORDS(got.data(), count, 1);
    EXPECT_WORDS(all[0], count, 2);
    for (unsigned *each : all)
        release(each, writer);
    CK(cuMemPoolDestroy(pool));
    CK(cuStreamSynchronize(writer));
}

PITFALL(68, host_memory_goes_back_when_the_program_waits) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    CUstream stream = new_stream();
    unsigned *one = from_pool(pool, 100, stream), *other = from_pool(pool, 3 * MIB, stream);
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 100 + 3 * MIB, "bytes in use");
    unsigned long long reserved = ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
    EXPECT(reserved >= 100 + 3 * MIB, "%llu bytes are reserved", reserved);
    release(one, stream);
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 3 * MIB, "the free counts at once");
    release(other, stream);
    CK(cuStreamSynchronize(stream));
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0, "without a threshold, nothing is kept");
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 100 + 3 * MIB, "the mark");
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) >= reserved, "the other mark");
    set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0, "the mark is set back");
    cuuint64_t five = 5;
    CK_IS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &five), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &five), CUDA_ERROR_INVALID_VALUE);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, ~0ull);
    one = from_pool(pool, 5 * MIB, stream);
    release(one, stream);
    CK(cuStreamSynchronize(stream));
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 5 * MIB, "with a threshold, memory is kept");
    CK(cuMemPoolTrimTo(pool, 0));
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0, "trimmed");
    CK(cuMemPoolDestroy(pool));
}

static void expect_attribute(unsigned *memory, CUpointer_attribute which, unsigned long long wanted, int bytes) {
    unsigned long long value = 0;
    CK(cuPointerGetAttribute(&value, which, (CUdeviceptr)memory));
    value &= bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
    EXPECT(value == wanted, "attribute %d is 0x%llx, not 0x%llx", (int)which, value, wanted);
}

PITFALL(17, host_pool_memory_is_the_hosts_with_access_and_without) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu, 0, false);
    CUstream stream = new_stream();
    unsigned *memory = from_pool(pool, 100, stream), *next = from_pool(pool, 100, stream);
    CUdeviceptr address = (CUdeviceptr)memory;
    EXPECT(next == memory + 128, "blocks do not lie side by side");
    CK(cuStreamSynchronize(stream));
    std::fill_n(memory, 25, 41u);
    unsigned long long pointer = 0;
    size_t size = 0;
    CUdeviceptr base = 0;
    for (bool open : {false, true}) {
        CUmemAccessDesc wish{{CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}},
                             open ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE};
        CK(cuMemPoolSetAccess(pool, &wish, 1));
        CUmemAccess_flags flags = (CUmemAccess_flags)9;
        CK(cuMemPoolGetAccess(&flags, pool, &wish.location));
        EXPECT(flags == wish.flags, "access is %d", (int)flags);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_MEMORYTYPE_HOST, 4);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_CONTEXT, 0, 8);
        expect_attribute(memory + 1, CU_POINTER_ATTRIBUTE_HOST_POINTER, address + 4, 8);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_IS_MANAGED, 0, 1);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 0, 4);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_RANGE_SIZE, 100, 8);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_MAPPED, 1, 1);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (unsigned long long)pool, 8);
        expect_attribute(memory, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 0, 8);
        if (open) {
            expect_attribute(memory + 1, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address + 4, 8);
            CK(cuMemGetAddressRange(&base, &size, address + 4));
            EXPECT(base == address && size == 100, "the range is 0x%llx, %zu", base, size);
        } else {
            CK_IS(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, address), CUDA_ERROR_INVALID_VALUE);
            CK_IS(cuMemGetAddressRange(&base, &size, address), CUDA_ERROR_NOT_FOUND);
        }
        // Copies between two blocks, and with the device.
        CUdeviceptr words = device_words(25, 7);
        CK(cuMemcpyAsync((CUdeviceptr)next, address, 100, stream));
        CK(cuMemcpyAsync(address, words, 100, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(next, 25, 41);
        EXPECT_WORDS(memory, 25, 7);
        std::fill_n(memory, 25, 41u);
        CK(cuMemFree(words));
    }
    LAUNCH(gpu.function("fill"), 1, 25, stream, memory, 5u, 25u);
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(memory, 25, 5);
    EXPECT_WORDS(next, 25, 41);
    unsigned flags = 0;
    CK_IS(cuMemHostGetFlags(&flags, memory), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemHostGetDevicePointer(&base, memory, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemHostUnregister(memory), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFreeAsync(address + 4, stream), CUDA_ERROR_INVALID_VALUE);
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 200, "both are still used");
    // A destroyed pool leaves memory in use unchanged.
    CK(cuMemPoolDestroy(pool));
    CK_IS(cuMemPoolTrimTo(pool, 0), CUDA_ERROR_INVALID_VALUE);
    std::fill_n(next, 25, 6u);
    release(memory, stream);
    CK_IS(cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(next, 25, 6);
    CK(cuMemFree((CUdeviceptr)next));
}

PITFALL(17, pools_of_the_host_by_the_rules) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu, 0, false), made = nullptr, found = nullptr, own = nullptr;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_HOST, {5}};
    CK(cuMemPoolCreate(&made, &properties));
    CK(cuMemPoolDestroy(made));
    for (auto type : {CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_WIN32, CU_MEM_HANDLE_TYPE_FABRIC}) {
        properties.handleTypes = type;
        CK_IS(cuMemPoolCreate(&made, &properties), CUDA_ERROR_INVALID_VALUE);
    }
    properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
    for (CUmemLocation location : {CUmemLocation{CU_MEM_LOCATION_TYPE_HOST_NUMA, {-1}}, {CU_MEM_LOCATION_TYPE_HOST_NUMA, {777}},
                                   {CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, {0}}, {CU_MEM_LOCATION_TYPE_INVALID, {0}},
                                   {(CUmemLocationType)9, {0}}, {CU_MEM_LOCATION_TYPE_DEVICE, {-1}}}) {
        properties.location = location;
        CK_IS(cuMemPoolCreate(&made, &properties), CUDA_ERROR_INVALID_VALUE);
    }
    properties.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    CK(cuMemPoolCreate(&made, &properties));
    CUstream stream = new_stream();
    unsigned *memory = from_pool(made, 100, stream);
    CK(cuStreamSynchronize(stream));
    std::fill_n(memory, 25, 1u);
    release(memory, stream);
    CK(cuMemPoolDestroy(made));

    CUmemLocation host{CU_MEM_LOCATION_TYPE_HOST, {0}}, node{CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
    CUmemLocation current{CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, {0}}, device{CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CK(cuMemGetDefaultMemPool(&own, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    CK(cuMemGetMemPool(&found, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    EXPECT(own && found == own, "the host's pool is not its own");
    CK(cuMemGetDefaultMemPool(&found, &node, CU_MEM_ALLOCATION_TYPE_PINNED));
    EXPECT(found && found != own, "the node has the host's pool");
    CK_IS(cuMemGetDefaultMemPool(&found, &current, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuMemGetDefaultMemPool(&found, &host, CU_MEM_ALLOCATION_TYPE_INVALID), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolDestroy(own), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, pool));
    CK(cuMemGetMemPool(&found, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    EXPECT(found == pool, "the host has another pool");
    CUmemoryPool of_device = nullptr;
    CK(cuDeviceGetDefaultMemPool(&of_device, gpu.device));
    CK_IS(cuMemSetMemPool(&node, CU_MEM_ALLOCATION_TYPE_PINNED, pool), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemSetMemPool(&host, CU_MEM_ALLOCATION_TYPE_PINNED, of_device), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, pool), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDeviceSetMemPool(gpu.device, pool), CUDA_ERROR_INVALID_VALUE);

    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (CUmemLocation *location : {&host, &node}) {
        CK(cuMemPoolGetAccess(&flags, pool, location));
        EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "the host's access is %d", (int)flags);
        CUmemAccessDesc wish{*location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CK(cuMemPoolSetAccess(pool, &wish, 1));
        wish.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
        CK_IS(cuMemPoolSetAccess(pool, &wish, 1), CUDA_ERROR_NOT_SUPPORTED);
    }
    CK_IS(cuMemPoolGetAccess(&flags, pool, &current), CUDA_ERROR_INVALID_VALUE);
    CUmemAccessDesc wish{{CU_MEM_LOCATION_TYPE_DEVICE, {777}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CK_IS(cuMemPoolSetAccess(pool, &wish, 1), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(cuMemPoolGetAccess(&flags, pool, &wish.location), CUDA_ERROR_INVALID_VALUE);
    wish = {device, CU_MEM_ACCESS_FLAGS_PROT_READ};
    CK_IS(cuMemPoolSetAccess(pool, &wish, 1), CUDA_ERROR_NOT_SUPPORTED);
    wish.flags = (CUmemAccess_flags)2;
    CK_IS(cuMemPoolSetAccess(pool, &wish, 1), CUDA_ERROR_INVALID_VALUE);

    CUdeviceptr nothing = 1;
    CK(cuMemAllocFromPoolAsync(&nothing, 0, pool, stream));
    EXPECT(nothing == 0, "no bytes are somewhere");
    int descriptor = -1;
    CK_IS(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemPoolDestroy(pool));
    CK(cuMemGetMemPool(&found, &host, CU_MEM_ALLOCATION_TYPE_PINNED));
    EXPECT(found != pool, "the host has a pool that has ended");
}

PITFALL(68, no_graph_has_host_memory_of_a_pool) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    CUstream stream = new_stream();
    CUdeviceptr words = device_words(16), nothing = 0;
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CK_IS(cuMemAllocFromPoolAsync(&nothing, 64, pool, stream), CUDA_ERROR_NOT_SUPPORTED);
    CK(cuMemsetD32Async(words, 3, 16, stream));
    CUgraph graph = nullptr;
    CK(cuStreamEndCapture(stream, &graph));
    size_t count = 0;
    CK(cuGraphGetNodes(graph, nullptr, &count));
    EXPECT(count == 1, "the graph has %zu nodes", count);
    CUDA_MEM_ALLOC_NODE_PARAMS params{};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_HOST, {0}};
    params.bytesize = 64;
    CUgraphNode node = nullptr;
    CK_IS(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    params.poolProps.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA;
    CK_IS(cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &params), CUDA_ERROR_NOT_SUPPORTED);
    CK(cuGraphDestroy(graph));
    CK(cuMemPoolDestroy(pool));
    CK(cuMemFree(words));
}

PITFALL(28, host_pool_memory_outlives_its_context) {
    Gpu gpu;
    const size_t bytes = MIB / 4;
    CUmemoryPool pool = new_pool(gpu);
    CUstream stream = new_stream();
    CUcontext second = nullptr;
    CK(cuCtxCreate(&second, nullptr, 0, gpu.device));
    CUstream there = new_stream();
    unsigned *kept = from_pool(pool, bytes, there), *freed = from_pool(pool, bytes, there);
    CK(cuStreamSynchronize(there));
    // A neighbour of another context.
    CK(cuCtxSetCurrent(gpu.context));
    unsigned *neighbour = from_pool(pool, bytes, stream);
    CK(cuStreamSynchronize(stream));
    CK(cuCtxSetCurrent(second));
    pattern(kept, bytes, 5);
    pattern(neighbour, bytes, 5);
    release(freed, there);
    CK(cuCtxDestroy(second));
    CK(cuCtxSetCurrent(gpu.context));
    std::vector<unsigned> wanted(bytes / 4), got(bytes / 4);
    pattern(wanted.data(), bytes, 5);
    // Later allocations are other memory.
    unsigned *other = from_pool(pool, bytes, stream);
    LAUNCH(gpu.function("fill"), 4, 256, stream, other, 9u, (unsigned)(bytes / 4));
    CK(cuStreamSynchronize(stream));
    CUdeviceptr words = device_words(bytes / 4);
    for (unsigned *each : {kept, neighbour}) {
        EXPECT(memcmp(each, wanted.data(), bytes) == 0, "the memory has changed");
        set_words(words, 0, bytes / 4);
        CK(cuMemcpy(words, (CUdeviceptr)each, bytes));
        CK(cuMemcpyDtoH(got.data(), words, bytes));
        EXPECT(got == wanted, "the copy differs");
    }
    EXPECT_WORDS(other, bytes / 4, 9);
    for (unsigned *each : {kept, neighbour, other})
        release(each, stream);
    CK(cuStreamSynchronize(stream));
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0, "memory is used");
    CK(cuMemPoolDestroy(pool));
    CK(cuMemFree(words));
}

PITFALL(11, threads_share_a_pool_of_host_memory) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    CUfunction fill = gpu.function("fill");
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (unsigned thread = 0; thread < 4; thread++)
        threads.emplace_back([&, thread] {
            CK(cuCtxSetCurrent(gpu.context));
            CUstream stream = new_stream();
            for (unsigned round = 0; round < 100; round++) {
                unsigned count = 64 << (round + thread) % 9, value = thread * 1000 + round;
                unsigned *memory = from_pool(pool, count * 4, stream), *second = from_pool(pool, count * 4, stream);
                LAUNCH(fill, 4, 256, stream, memory, value, count);
                CK(cuMemcpyAsync((CUdeviceptr)second, (CUdeviceptr)memory, count * 4, stream));
                release(memory, stream);
                CK(cuStreamSynchronize(stream));
                wrong += first_other(second, count, value) >= 0;
                release(second, stream);
            }
            CK(cuStreamDestroy(stream));
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT(wrong == 0, "%d results are wrong", wrong.load());
    CK(cuCtxSynchronize());
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0, "memory is used");
    EXPECT(ask(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0, "memory is kept");
    CK(cuMemPoolDestroy(pool));
}

PITFALL_MAIN
