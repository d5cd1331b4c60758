// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Pinned, mapped and managed memory, pointer attributes, staging (pitfalls 10 to 12, 14 to 18, 27, 88).
#include "driver.h"
#include <set>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static void need_unified(const Gpu &gpu) {
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING))
        pitfall::skip("no unified addressing");
}

// With unified addressing, kernels can access every pinned buffer, whatever its flags are.
PITFALL(10, plain_pinned_written_by_kernel) {
    Gpu gpu;
    need_unified(gpu);
    CUfunction fill = gpu.function("fill");
    const unsigned words = 100'000;
    unsigned *plain = pinned_words(words);
    LAUNCH(fill, 4, 64, nullptr, plain, 0x10u, words);
    CK(cuCtxSynchronize());
    EXPECT_WORDS(plain, words, 0x10);

    void *host = nullptr;
    CK(cuMemHostAlloc(&host, words * 4, 0));
    LAUNCH(fill, 4, 64, nullptr, host, 0x11u, words);
    CK(cuStreamSynchronize(nullptr));
    EXPECT_WORDS((unsigned *)host, words, 0x11);
    CK(cuMemHostAlloc(&host, words * 4, CU_MEMHOSTALLOC_WRITECOMBINED));
    LAUNCH(fill, 4, 64, nullptr, host, 0x12u, words);
    CK(cuStreamSynchronize(nullptr));
    EXPECT_WORDS((unsigned *)host, words, 0x12);

    // And read: the kernel sees the CPU's last writes.
    *plain = 5;
    CUfunction step = gpu.function("step");
    for (unsigned i = 0; i < 20; i++) {
        unsigned before = *(volatile unsigned *)plain;
        LAUNCH(step, 1, 1, nullptr, plain, 3u, 1u);
        CK(cuCtxSynchronize());
        unsigned after = *(volatile unsigned *)plain;
        EXPECT(after == before * 3 + 1, "step %u: %u after %u", i, after, before);
        *(volatile unsigned *)plain = after + 1;
    }
}

struct Box {
    unsigned *target;
    unsigned value;
    Box *next;
};

PITFALL(11, mapped_pointers_inside_structs) {
    Gpu gpu;
    need_unified(gpu);
    unsigned *first = pinned_words(16), *second = pinned_words(16);
    CUdeviceptr alias = 0;
    CK(cuMemHostGetDevicePointer(&alias, first + 3, 0));
    EXPECT(alias == (CUdeviceptr)(first + 3), "device pointer %llx of host pointer %p", (unsigned long long)alias, (void *)(first + 3));
    // Device memory points at pinned memory, a box of pinned memory at device memory and back.
    CUdeviceptr head = device_words(16), word = device_words(1);
    void *middle_memory = pinned_words(16);
    auto *middle = (Box *)middle_memory;
    CUdeviceptr tail = device_words(16);
    Box on_tail = {second + 5, 333, nullptr};
    *middle = {(unsigned *)word, 222, (Box *)tail};
    Box on_head = {first + 7, 111, middle};
    CK(cuMemcpyHtoD(tail, &on_tail, sizeof on_tail));
    CK(cuMemcpyHtoD(head, &on_head, sizeof on_head));
    LAUNCH(gpu.function("store_through"), 1, 1, nullptr, head);
    CK(cuCtxSynchronize());
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(first[7] == 111 && got == 222 && second[5] == 333, "%u %u %u", first[7], got, second[5]);
}

// Coherent, or refused with a null pointer and an attribute that reports it; no other behaviour is permitted.
PITFALL(12, managed_coherent_or_refused) {
    Gpu gpu;
    int managed = gpu.attribute(CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY);
    pitfall::observed("hw.managed=%d", managed);
    CUdeviceptr memory = 0x5555;
    CUresult code = cuMemAllocManaged(&memory, 1 << 20, CU_MEM_ATTACH_GLOBAL);
    if (!managed) {
        EXPECT(code != CUDA_SUCCESS, "the attribute says no, the call says yes");
        EXPECT(memory == 0, "the refused allocation left pointer %llx", (unsigned long long)memory);
        return;
    }
    CK(code);
    auto *words = (volatile unsigned *)memory;
    words[0] = 4;
    words[1000] = 5;
    LAUNCH(gpu.function("step"), 1, 1, nullptr, memory, 10u, 2u);
    LAUNCH(gpu.function("step"), 1, 1, nullptr, memory + 4000, 10u, 3u);
    CK(cuCtxSynchronize());
    EXPECT(words[0] == 42 && words[1000] == 53, "%u %u", words[0], words[1000]);
    CK(cuMemFree(memory));
}

PITFALL(14, free_races_synchronise) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            CK(cuCtxSetCurrent(gpu.context));
            for (int i = 0; i < 100; i++) {
                unsigned *memory = pinned_words(16384 + 1024 * (i % 5), i);
                EXPECT_WORDS(memory, 16384, (unsigned)i);
                CK(cuMemFreeHost(memory));
            }
            stop = true;
        });
    CUstream stream = new_stream();
    CUdeviceptr word = device_words(1);
    unsigned expected = 0, got = 0;
    while (!stop) {
        LAUNCH(step, 1, 1, stream, word, 3u, 1u);
        expected = expected * 3 + 1;
        CK(cuStreamSynchronize(stream));
        CK(cuCtxSynchronize());
    }
    for (auto &thread : threads)
        thread.join();
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == expected, "%u, expected %u", got, expected);
}

// Small allocations share memory that is pinned as a whole. Each is freed when no work of its own context uses it,
// whichever context is current, and another context's work holds up none.
PITFALL(14, pinned_memory_is_freed_behind_its_context) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    const unsigned words = 16384;
    Gate gate(gpu);
    CUcontext other = nullptr;
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    for (bool from_other : {false, true}) {
        CK(cuCtxSetCurrent(gpu.context));
        unsigned *memory = pinned_words(words, 1), *neighbour = pinned_words(words, 2);
        CUstream stream = new_stream();
        gate.close(stream);
        LAUNCH(fill, 1, 64, stream, memory, 3u, words);
        if (from_other)
            CK(cuCtxSetCurrent(other));
        gate.open_later();
        CK(cuMemFreeHost(memory));
        CK(cuCtxSetCurrent(gpu.context));
        CK(cuStreamQuery(stream));
        EXPECT_WORDS(neighbour, words, 2u);
        gate.wait_opened();
        // Memory of the other context.
        gate.close(stream);
        CK(cuCtxSetCurrent(other));
        CK(cuMemFreeHost(pinned_words(words)));
        CK(cuCtxSetCurrent(gpu.context));
        CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        gate.open();
        CK(cuStreamSynchronize(stream));
        CK(cuMemFreeHost(neighbour));
    }
    // A context ends with its memory.
    CK(cuCtxSetCurrent(other));
    unsigned *memory = pinned_words(words);
    CK(cuMemFreeHost(pinned_words(words)));
    CK(cuCtxDestroy(other));
    CK(cuCtxSetCurrent(gpu.context));
    unsigned type = 0;
    CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)memory), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFreeHost(memory), CUDA_ERROR_INVALID_VALUE);
}

PITFALL(15, register_edges) {
    Gpu gpu;
    auto *memory = (unsigned char *)aligned_alloc(4096, 64 * 4096);
    memset(memory, 1, 64 * 4096);
    CK(cuMemHostRegister(memory, 8 * 4096, 0));
    CK_IS(cuMemHostRegister(memory, 8 * 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    OBSERVE("overlap_inside", cuMemHostRegister(memory + 4096, 4096, 0));
    OBSERVE("overlap_tail", cuMemHostRegister(memory + 4 * 4096, 8 * 4096, 0));
    OBSERVE("unregister_interior", cuMemHostUnregister(memory + 4096));
    unsigned flags = 99;
    pitfall::observed("flags_of_plain=%d", cuMemHostGetFlags(&flags, memory));
    pitfall::observed("flags_of_plain_value=%u", flags);
    CK(cuMemHostUnregister(memory));
    CK_IS(cuMemHostUnregister(memory), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    CK_IS(cuMemHostUnregister(memory + 20 * 4096), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    OBSERVE("zero_size", cuMemHostRegister(memory, 0, 0));
    OBSERVE("null", cuMemHostRegister(nullptr, 4096, 0));
    OBSERVE("unregister_null", cuMemHostUnregister(nullptr));
    OBSERVE("bad_flags", cuMemHostRegister(memory, 4096, 0x8000));
    CUresult mapped = cuMemHostRegister(memory, 4096, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE);
    CK(mapped);
    CK(cuMemHostGetFlags(&flags, memory));
    pitfall::observed("flags_of_mapped_portable=%u", flags);
    CK(cuMemHostUnregister(memory));
    OBSERVE("free_host_of_registered_or_heap", cuMemFreeHost(memory));
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, 4096));
    OBSERVE("unregister_of_allocated", cuMemHostUnregister(pinned));
    OBSERVE("register_of_allocated", cuMemHostRegister(pinned, 4096, 0));
    OBSERVE("free_host_interior", cuMemFreeHost((char *)pinned + 64));
    CK(cuMemFreeHost(pinned));
    OBSERVE("free_host_twice", cuMemFreeHost(pinned));
    OBSERVE("free_host_null", cuMemFreeHost(nullptr));
    void *zero = (void *)0x55;
    OBSERVE("alloc_host_zero", cuMemAllocHost(&zero, 0));
    OBSERVE("host_alloc_bad_flags", cuMemHostAlloc(&zero, 4096, 0x8000));
    // Two neighbours that share a page.
    auto *page = memory + 32 * 4096;
    CUresult low = cuMemHostRegister(page + 100, 1000, 0);
    CUresult high = cuMemHostRegister(page + 2100, 1000, 0);
    pitfall::observed("unaligned=%d", (int)low);
    pitfall::observed("unaligned_same_page=%d", (int)high);
    if (low == CUDA_SUCCESS)
        CK(cuMemHostUnregister(page + 100));
    if (high == CUDA_SUCCESS)
        CK(cuMemHostUnregister(page + 2100));
    free(memory);
}

// Only the CPU uses the bytes next to an unaligned registered buffer. Pages that are mapped twice, and in another
// process too, stay the same pages: a library may communicate through them with a running kernel.
PITFALL(15, registered_shared_memory_stays_shared) {
    const size_t bytes = 3 * 4096;
    int file = (int)syscall(SYS_memfd_create, "shared", 0u);
    EXPECT(file >= 0 && ftruncate(file, bytes) == 0, "no memfd");
    auto map = [&] { return (volatile unsigned *)mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0); };
    volatile unsigned *first = map(), *second = map();
    int to_child[2], to_parent[2];
    EXPECT(pipe(to_child) == 0 && pipe(to_parent) == 0, "no pipes");
    pid_t child = fork();
    if (child == 0) {
        char turn;
        close(to_child[1]);
        while (read(to_child[0], &turn, 1) == 1) {
            first[1024] = first[1024] * 2 + 1;
            if (write(to_parent[1], &turn, 1) != 1)
                break;
        }
        _exit(0);
    }
    auto others_turn = [&] {
        char turn = 0;
        EXPECT(write(to_child[1], &turn, 1) == 1 && read(to_parent[0], &turn, 1) == 1, "the other process is gone");
    };
    Gpu gpu;
    CUfunction step = gpu.function("step");
    first[1024] = 5;
    CK(cuMemHostRegister((void *)first, bytes, 0));
    CK(cuMemHostRegister((void *)second, bytes, 0));
    CUdeviceptr on_first = 0, on_second = 0;
    CK(cuMemHostGetDevicePointer(&on_first, (void *)first, 0));
    CK(cuMemHostGetDevicePointer(&on_second, (void *)second, 0));
    LAUNCH(step, 1, 1, nullptr, on_first + 4096, 3u, 1u);
    LAUNCH(step, 1, 1, nullptr, on_second + 4096, 3u, 2u);
    CK(cuCtxSynchronize());
    EXPECT(first[1024] == 50 && second[1024] == 50, "%u %u", first[1024], second[1024]);
    others_turn();
    EXPECT(first[1024] == 101 && second[1024] == 101, "%u %u", first[1024], second[1024]);
    CK(cuMemHostUnregister((void *)first));
    LAUNCH(step, 1, 1, nullptr, on_second + 4096, 2u, 0u);
    CK(cuCtxSynchronize());
    CK(cuMemHostUnregister((void *)second));
    others_turn();
    EXPECT(first[1024] == 405 && second[1024] == 405, "%u %u", first[1024], second[1024]);
    close(to_child[1]);
    int status = 0;
    EXPECT(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

// Many such files at a time, released in another order, and again.
PITFALL(15, many_shared_files_are_registered) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    const int count = 64;
    std::vector<volatile unsigned *> mappings;
    for (int i = 0; i < count; i++) {
        int file = (int)syscall(SYS_memfd_create, "shared", 0u);
        EXPECT(file >= 0 && ftruncate(file, 8192) == 0, "no memfd");
        mappings.push_back((volatile unsigned *)mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
        close(file);
    }
    for (unsigned round = 0; round < 3; round++) {
        for (int i = 0; i < count; i++) {
            CK(cuMemHostRegister((void *)mappings[i], 8192, 0));
            CUdeviceptr pointer = 0;
            CK(cuMemHostGetDevicePointer(&pointer, (void *)mappings[i], 0));
            LAUNCH(step, 1, 1, nullptr, pointer + 4, 3u, (unsigned)i);
        }
        CK(cuCtxSynchronize());
        for (int i = 0; i < count; i++)
            CK(cuMemHostUnregister((void *)mappings[i * 37 % count]));
    }
    for (unsigned i = 0; i < count; i++)
        EXPECT(mappings[i][1] == 13 * i, "file %u has %u", i, mappings[i][1]);
}

PITFALL(15, neighbours_of_a_registered_buffer) {
    Gpu gpu;
    need_unified(gpu);
    auto *words = (volatile unsigned *)aligned_alloc(4096, 3 * 4096);
    memset((void *)words, 0, 3 * 4096);
    const unsigned first = 100, count = 1024; // not a page's begin, not a page's end
    CUresult code = cuMemHostRegister((void *)(words + first), count * 4, CU_MEMHOSTREGISTER_DEVICEMAP);
    if (code != CUDA_SUCCESS)
        pitfall::skip("an unaligned range cannot be registered: %s", name_of(code));
    CUdeviceptr device = 0;
    CK(cuMemHostGetDevicePointer(&device, (void *)(words + first), 0));
    std::atomic<bool> stop{false};
    std::thread neighbour([&] {
        unsigned turn = 0;
        while (!stop) {
            turn++;
            for (unsigned i : {first - 1, first + count, 0u})
                words[i] = turn;
            EXPECT(words[first - 1] == turn && words[first + count] == turn && words[0] == turn, "turn %u: %u %u %u", turn,
                   words[first - 1], words[first + count], words[0]);
        }
    });
    CUfunction fill = gpu.function("fill");
    for (unsigned round = 1; round <= 50; round++) {
        LAUNCH(fill, 1, 64, nullptr, device, round, count);
        CK(cuCtxSynchronize());
        EXPECT_WORDS((unsigned *)words + first, count, round);
    }
    stop = true;
    neighbour.join();
    CK(cuMemHostUnregister((void *)(words + first)));
}

PITFALL(15, alignment_and_exhaustion) {
    Gpu gpu;
    for (size_t bytes : {1, 3, 100, 257, 5000, 70000, 3 << 20}) {
        CUdeviceptr a = 0, b = 0;
        CK(cuMemAlloc(&a, bytes));
        CK(cuMemAlloc(&b, bytes));
        EXPECT(a % 256 == 0 && b % 256 == 0, "%zu bytes at %llx and %llx", bytes, (unsigned long long)a, (unsigned long long)b);
        EXPECT(a + bytes <= b || b + bytes <= a, "two allocations overlap");
        void *host = nullptr;
        CK(cuMemAllocHost(&host, bytes));
        EXPECT((uintptr_t)host % 256 == 0, "pinned %p", host);
    }
    CUdeviceptr memory = 0;
    CK_IS(cuMemAlloc(&memory, size_t(1) << 50), CUDA_ERROR_OUT_OF_MEMORY);
    void *host = nullptr;
    OBSERVE("pinned_1_PiB", cuMemAllocHost(&host, size_t(1) << 50));
    CK_IS(cuMemAlloc(&memory, 0), CUDA_ERROR_INVALID_VALUE);
    size_t free_before = 0, free_after = 0, total = 0;
    CK(cuMemGetInfo(&free_before, &total));
    EXPECT(free_before <= total && total > 0, "%zu of %zu free", free_before, total);
    CK(cuMemAlloc(&memory, 64 << 20));
    CK(cuMemGetInfo(&free_after, &total));
    EXPECT(free_after + (60 << 20) <= free_before, "free before %zu, after 64 MiB %zu", free_before, free_after);
    size_t device_total = 0;
    CK(cuDeviceTotalMem(&device_total, gpu.device));
    EXPECT(device_total == total, "cuDeviceTotalMem %zu, cuMemGetInfo %zu", device_total, total);
}

PITFALL(16, pageable_is_not_pinned) {
    Gpu gpu;
    unsigned type = 77;
    int on_stack = 0;
    std::vector<char> heap(100'000);
    void *mapped = mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    static int in_data = 0;
    for (void *pageable : {(void *)&on_stack, (void *)(heap.data() + 5000), mapped, (void *)&in_data})
        CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pageable), CUDA_ERROR_INVALID_VALUE);
    // The batched form answers with "nothing known" instead.
    int ordinal = 77;
    CUdeviceptr device_pointer = 77;
    CUcontext context = (CUcontext)77;
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_CONTEXT};
    void *into[] = {&type, &ordinal, &device_pointer, &context};
    type = 77;
    CK(cuPointerGetAttributes(4, which, into, (CUdeviceptr)heap.data()));
    EXPECT(type == 0, "memory type %u for heap memory", type);
    pitfall::observed("batched_ordinal=%d", ordinal);
    pitfall::observed("batched_device_pointer=%llu", (unsigned long long)device_pointer);
    pitfall::observed("batched_context_null=%d", context == nullptr);

    unsigned *pinned = pinned_words(25'000);
    CK(cuPointerGetAttributes(4, which, into, (CUdeviceptr)(pinned + 777)));
    EXPECT(type == CU_MEMORYTYPE_HOST && ordinal == 0, "type %u, ordinal %d of pinned memory's inside", type, ordinal);
    EXPECT(device_pointer == (CUdeviceptr)(pinned + 777) && context == gpu.context, "device pointer %llx", (unsigned long long)device_pointer);
    CUdeviceptr device = device_words(1000);
    CK(cuPointerGetAttributes(4, which, into, device + 128));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && ordinal == 0 && device_pointer == device + 128, "type %u, ordinal %d", type, ordinal);
    CK(cuMemFree(device));
    CK(cuMemFreeHost(pinned));
    OBSERVE("type_of_freed_device", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
    OBSERVE("type_of_freed_pinned", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pinned));
    OBSERVE("type_of_null", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
}

PITFALL(17, attributes_die_with_the_registration) {
    Gpu gpu;
    auto *memory = (char *)mmap(nullptr, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 1 << 20);
    unsigned type = 0;
    for (int round = 0; round < 20; round++) {
        CK(cuMemHostRegister(memory, 1 << 20, 0));
        CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(memory + 70'000)));
        EXPECT(type == CU_MEMORYTYPE_HOST, "round %d: type %u", round, type);
        CK(cuMemHostUnregister(memory));
        CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(memory + 70'000)), CUDA_ERROR_INVALID_VALUE);
    }
    // Addresses are reused: each allocation reports its own new kind and size, and has its own number.
    std::set<unsigned long long> ids;
    for (int round = 0; round < 50; round++) {
        size_t bytes = 4096 * (1 + round % 7), size = 0;
        CUdeviceptr device = device_words(bytes / 4), base = 0;
        CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device));
        EXPECT(type == CU_MEMORYTYPE_DEVICE, "round %d: type %u", round, type);
        unsigned long long id = 0, same = 0;
        CK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, device));
        CK(cuPointerGetAttribute(&same, CU_POINTER_ATTRIBUTE_BUFFER_ID, device + bytes - 1));
        EXPECT(id == same && ids.insert(id).second, "round %d: numbers %llu and %llu", round, id, same);
        CK(cuMemGetAddressRange(&base, &size, device + bytes / 2));
        EXPECT(base == device && size == bytes, "round %d: %zu bytes at %llx", round, size, (unsigned long long)base);
        unsigned *pinned = pinned_words(bytes / 4);
        CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)pinned));
        EXPECT(type == CU_MEMORYTYPE_HOST, "round %d: type %u", round, type);
        CK(cuMemFreeHost(pinned));
        CK(cuMemFree(device));
    }
}

PITFALL(17, every_allocator_is_known) {
    Gpu gpu;
    unsigned type = 0, on = 1, got = 99;
    unsigned long long first = 0, second = 0;
    CUdeviceptr start = 0, device = device_words(1000), other = device_words(1000);
    size_t size = 0;
    CK(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    CK(cuPointerGetAttribute(&got, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, device));
    EXPECT((got & 0xff) == 1, "SYNC_MEMOPS reads %u", got);
    CK(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, device));
    CK(cuPointerGetAttribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    EXPECT(first != second, "two allocations with buffer id %llu", first);
    CK(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, device + 99));
    CK(cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, device + 99));
    EXPECT(start == device && size == 4000, "range %llx of %zu", (unsigned long long)start, size);

    CUdeviceptr global = 0;
    CK(cuModuleGetGlobal(&global, &size, gpu.module(), "table"));
    CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, global + 8));
    EXPECT(type == CU_MEMORYTYPE_DEVICE, "type %u of a module's variable", type);

    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) {
        CUstream stream = new_stream();
        CUdeviceptr pooled = 0;
        CK(cuMemAllocAsync(&pooled, 4096, stream));
        CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, pooled + 100));
        EXPECT(type == CU_MEMORYTYPE_DEVICE, "type %u of pool memory", type);
        CK(cuMemFreeAsync(pooled, stream));
        CK(cuStreamSynchronize(stream));
    } else {
        pitfall::observed("hw.pools=0");
    }
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    size_t granularity = 0;
    CUmemGenericAllocationHandle handle;
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        CK(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
        CUdeviceptr address = 0;
        CK(cuMemCreate(&handle, granularity, &prop, 0));
        CK(cuMemAddressReserve(&address, granularity, 0, 0, 0));
        CK(cuMemMap(address, granularity, 0, handle, 0));
        CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        CK(cuMemSetAccess(address, granularity, &access, 1));
        CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 12345));
        EXPECT(type == CU_MEMORYTYPE_DEVICE, "type %u of mapped memory", type);
        std::vector<unsigned> words(1024, 3), back(1024);
        CK(cuMemcpy(address + 4096, (CUdeviceptr)words.data(), 4096));
        CK(cuMemcpy((CUdeviceptr)back.data(), address + 4096, 4096));
        EXPECT_WORDS(back.data(), 1024, 3);
        CK(cuMemUnmap(address, granularity));
        OBSERVE("type_after_unmap", cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address));
        CK(cuMemRelease(handle));
        CK(cuMemAddressFree(address, granularity));
    } else {
        // NCCL queries the granularity first, and uses another method only if the memory itself cannot be allocated.
        if (cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) == CUDA_SUCCESS) {
            EXPECT(granularity == 2 << 20, "%zu bytes", granularity);
            EXPECT(cuMemCreate(&handle, granularity, &prop, 0) == CUDA_ERROR_NOT_SUPPORTED, "memory of no device");
        }
        pitfall::observed("hw.virtual_memory_management=0");
    }
}

static long resident_bytes() {
    long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2)
        pitfall::fail("/proc/self/statm");
    fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}

// Small allocations side by side are still memory of their own.
PITFALL(17, small_pinned_allocations_are_told_apart) {
    Gpu gpu;
    need_unified(gpu);
    // Pinned alone, memory is zero, also where freed memory was.
    for (int round = 0; round < 3; round++) {
        unsigned *alone = nullptr;
        CK(cuMemAllocHost((void **)&alone, 70'000));
        EXPECT_WORDS(alone, 17'500, 0u);
        std::fill_n(alone, 17'500, 7);
        CK(cuMemFreeHost(alone));
    }
    CUfunction fill = gpu.function("fill");
    std::vector<std::pair<unsigned *, unsigned>> all;
    std::set<unsigned long long> ids;
    auto add = [&](unsigned words) {
        unsigned *memory = pinned_words(words, 1), value = all.size() + 100;
        unsigned long long id = 0;
        CK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, (CUdeviceptr)memory));
        EXPECT(ids.insert(id).second, "a second buffer has the number %llu", id);
        CUdeviceptr start = 0;
        size_t bytes = 0;
        CK(cuMemGetAddressRange(&start, &bytes, (CUdeviceptr)(memory + words - 1)));
        EXPECT(start == (CUdeviceptr)memory && bytes == words * 4, "%zu bytes from %llx", bytes, (unsigned long long)start);
        LAUNCH(fill, 1, 64, nullptr, memory, value, words);
        all.push_back({memory, value});
    };
    unsigned sizes[] = {1, 3, 1000, 1024, 5000, 70'000, 262'144, 300'000};
    for (int round = 0; round < 6; round++)
        for (unsigned words : sizes)
            add(words);
    CK(cuCtxSynchronize());
    for (size_t i = 0; i < all.size(); i++)
        EXPECT_WORDS(all[i].first, sizes[i % 8], all[i].second);
    unsigned type = 0;
    for (size_t i = 0; i < all.size(); i += 2) {
        CK(cuMemFreeHost(all[i].first));
        CK_IS(cuMemFreeHost(all[i].first), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)all[i].first), CUDA_ERROR_INVALID_VALUE);
    }
    // Not the address of an allocation.
    CK_IS(cuMemFreeHost(all[1].first + 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemHostUnregister(all[1].first), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemHostRegister(all[1].first, 4, 0), CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < 24; i++)
        add(sizes[i % 8]);
    CK(cuCtxSynchronize());
    for (size_t i = 1; i < 48; i += 2)
        EXPECT_WORDS(all[i].first, sizes[i % 8], all[i].second);
}

PITFALL(18, staging_is_given_back) {
    Gpu gpu;
    CUstream stream = new_stream();
    const size_t bytes = (pitfall::large() ? size_t(256) : size_t(32)) << 20;
    const int copies = 8;
    auto once = [&](size_t size) {
        CUdeviceptr device = device_words(size / 4);
        std::vector<unsigned> source(size / 4, 1);
        for (int i = 0; i < copies; i++)
            CK(cuMemcpyHtoDAsync(device, source.data(), size, stream));
        CK(cuStreamSynchronize(stream));
        CK(cuMemFree(device));
    };
    once(8 << 20);
    long before = resident_bytes();
    once(bytes);
    once(bytes);
    long grown = resident_bytes() - before;
    EXPECT(grown < (long)(2 * bytes), "%ld MiB more resident memory after %d copies of %zu MiB", grown >> 20, 2 * copies, bytes >> 20);
}

PITFALL(88, free_right_after_async_dtoh) {
    Gpu gpu;
    CUstream stream = new_stream();
    const size_t words = 2 << 20;
    CUdeviceptr device = device_words(words, 0xdddddddd);
    for (int round = 0; round < 10; round++) {
        unsigned *pinned = pinned_words(words);
        CK(cuMemcpyDtoHAsync(pinned, device, words * 4, stream));
        CK(cuMemFreeHost(pinned));
        // Whatever takes the address now must not receive the copy.
        auto *fresh = (unsigned *)mmap(pinned, words * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(fresh != MAP_FAILED, "mmap");
        std::fill_n(fresh, words, 0x11111111);
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(fresh, words, 0x11111111);
        munmap(fresh, words * 4);
    }
    // The same with a registered buffer.
    for (int round = 0; round < 10; round++) {
        auto *memory = (unsigned *)mmap(nullptr, words * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        std::fill_n(memory, words, 1);
        CK(cuMemHostRegister(memory, words * 4, 0));
        CK(cuMemcpyDtoHAsync(memory, device, words * 4, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(memory, words, 0xdddddddd);
        CK(cuMemHostUnregister(memory));
        munmap(memory, words * 4);
    }
}

// Pages that the kernel counts as this process's pinned ones, in bytes.
static long counted_as_pinned() {
    long kilobytes = -1;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmPin: %ld", &kilobytes);
    if (file)
        fclose(file);
    EXPECT(kilobytes >= 0, "no VmPin in /proc/self/status");
    return kilobytes << 10;
}

// The most bytes that the kernel driver copies without pinning them.
static long copied_unpinned() {
    long bytes = -1;
    FILE *file = fopen("/sys/module/virtio_gpgpu/parameters/copy_bytes", "r");
    EXPECT(file && fscanf(file, "%ld", &bytes) == 1, "no parameter copy_bytes: %s", strerror(errno));
    fclose(file);
    return bytes;
}

// The state of a thread, and whether it is in an ioctl.
static char state_in_ioctl(pid_t thread) {
    char path[64], line[512] = "", state = '?';
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)thread);
    FILE *file = fopen(path, "r");
    EXPECT(file && fgets(line, sizeof line, file), "%s: %s", path, strerror(errno));
    fclose(file);
    if (atoi(line) != SYS_ioctl)
        return '-';
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)thread);
    file = fopen(path, "r");
    EXPECT(file && fgets(line, sizeof line, file), "%s: %s", path, strerror(errno));
    fclose(file);
    const char *name_end = strrchr(line, ')');
    EXPECT(name_end && sscanf(name_end, ") %c", &state) == 1, "%s", line);
    return state;
}

static std::atomic<int> in_handler{0};
static std::atomic<bool> handlers_return{false};

static void stay(int) {
    in_handler++;
    while (!handlers_return)
        usleep(1000);
}

struct CopyOut {
    std::vector<unsigned> target;
    std::atomic<pid_t> id{0};
    std::thread thread;
};

// A copy that a signal has interrupted stays pending while the process handles the signal, with its pages pinned. They
// count: one such copy is always permitted, and a further one only with room below the limit.
PITFALL(89, interrupted_copies_count_as_pinned) {
    if (pitfall::backend() != "vm")
        pitfall::skip("not the guest's kernel driver");
    Gpu gpu;
    const size_t words = 4 << 20, bytes = words * 4;
    CUdeviceptr device = device_words(words, 0x89898989);
    struct sigaction action = {};
    action.sa_handler = stay;
    action.sa_flags = SA_RESTART;
    sigaction(SIGUSR1, &action, nullptr);
    Gate gate(gpu);
    CopyOut copies[2];
    for (auto &copy : copies)
        copy.target.assign(words, 0);
    // An ordinary user, to whom the limit applies. It may access its own threads.
    rlimit limit = {8 << 20, 8 << 20};
    EXPECT(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit: %s", strerror(errno));
    EXPECT(setresuid(65534, 65534, 65534) == 0, "setresuid: %s", strerror(errno));
    EXPECT(prctl(PR_SET_DUMPABLE, 1) == 0, "prctl: %s", strerror(errno));

    gate.close(nullptr);
    for (auto &copy : copies) {
        copy.thread = std::thread([&] {
            copy.id = gettid();
            CK(cuCtxSetCurrent(gpu.context));
            CK(cuMemcpyDtoH(copy.target.data(), device, bytes));
        });
        while (copy.id == 0 || state_in_ioctl(copy.id) != 'S')
            usleep(1000);
    }
    long before = counted_as_pinned();
    EXPECT(pthread_kill(copies[0].thread.native_handle(), SIGUSR1) == 0, "pthread_kill");
    while (in_handler < 1)
        usleep(1000);
    long counted = counted_as_pinned() - before;
    // In fragmented memory, a block can have no room for the last pages. The driver copies such a short rest unpinned.
    EXPECT(counted >= (long)bytes - copied_unpinned() && counted <= (long)bytes + (1 << 20),
           "%ld bytes more, of a copy of %zu", counted, bytes);

    // There is no room for the other: it waits in the kernel, killable, and its handler does not run yet.
    EXPECT(pthread_kill(copies[1].thread.native_handle(), SIGUSR1) == 0, "pthread_kill");
    while (in_handler < 2 && state_in_ioctl(copies[1].id) != 'D')
        usleep(1000);
    EXPECT(in_handler == 1, "a second copy was left under way beyond the limit");
    EXPECT(counted_as_pinned() - before == counted, "%ld bytes more", counted_as_pinned() - before);

    gate.open();
    handlers_return = true;
    for (auto &copy : copies) {
        copy.thread.join();
        EXPECT_WORDS(copy.target.data(), words, 0x89898989);
    }
    EXPECT(in_handler == 2, "%d signals were handled", in_handler.load());
    EXPECT(counted_as_pinned() == before, "%ld bytes stay counted", counted_as_pinned() - before);
}

// Copies and fills beyond the end of an allocation or a registration are refused, and reach no other one.
PITFALL(16, nothing_goes_beyond_an_allocation) {
    Gpu gpu;
    CUstream stream = new_stream();
    for (size_t bytes : {size_t(512), size_t(4096), size_t(5000), size_t(3 << 20)}) {
        void *made[3];
        for (void *&one : made) {
            CK(cuMemAllocHost(&one, bytes));
            memset(one, 1, bytes);
        }
        unsigned char *pinned = (unsigned char *)made[1];
        CUdeviceptr there = 0, device = device_words(bytes / 4 + 4096, 0x02020202);
        CK(cuMemHostGetDevicePointer(&there, pinned, 0));
        const size_t more = bytes + 4096;
        CK_IS(cuMemcpyDtoH(pinned, device, more), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyDtoHAsync(pinned + bytes - 4, device, 4096, stream), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyHtoD(device, pinned, more), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyHtoDAsync(device, pinned, more, stream), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpy(there, device, more), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyDtoD(there, device, more), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemsetD8(there, 3, more), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemsetD32Async(there, 3, more / 4, stream), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemsetD2D8(there, 64, 3, 64, more / 64), CUDA_ERROR_INVALID_VALUE);
        CUDA_MEMCPY2D rows = {};
        rows.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        rows.srcDevice = device;
        rows.dstMemoryType = CU_MEMORYTYPE_HOST;
        rows.dstHost = pinned;
        rows.srcPitch = rows.dstPitch = rows.WidthInBytes = 64;
        rows.Height = more / 64;
        CK_IS(cuMemcpy2D(&rows), CUDA_ERROR_INVALID_VALUE);
        CK(cuCtxSynchronize());
        for (void *one : made) {
            auto *end = (unsigned char *)one + bytes;
            EXPECT(std::count((unsigned char *)one, end, 1) == (long)bytes, "pinned memory of %zu bytes was written", bytes);
            CK(cuMemFreeHost(one));
        }
        CK(cuMemFree(device));
    }
    // Two registrations beside each other. The answers are those of an H200 with driver 580: memory that begins outside
    // of a registration is pageable.
    const size_t page = 4096;
    auto *memory = (unsigned char *)mmap(nullptr, 6 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, 6 * page);
    CUdeviceptr device = device_words(6 * page / 4), small = 0, base = 0;
    for (size_t at : {page, 3 * page})
        CK(cuMemHostRegister(memory + at, 2 * page, 0));
    CK_IS(cuMemcpyHtoD(device, memory + 2 * page, 2 * page), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyDtoH(memory + 2 * page, device, 2 * page), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyHtoDAsync(device, memory + 4 * page, 2 * page, stream), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemsetD8((CUdeviceptr)memory + page, 0, 4 * page), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemcpyHtoD(device, memory, 3 * page));
    CK(cuMemcpyDtoH(memory, device, 3 * page));
    for (size_t at : {page, 3 * page})
        CK(cuMemHostUnregister(memory + at));
    CK(cuMemAlloc(&small, 1000));
    size_t bytes = 0;
    CK(cuMemsetD8(small, 0, 1000));
    CK_IS(cuMemsetD8(small, 0, 1001), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyHtoD(small, memory, 1024), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyDtoH(memory, small, 1024), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemGetAddressRange(&base, &bytes, small + 999));
    EXPECT(base == small && bytes == 1000, "%zu bytes", bytes);
    CK_IS(cuMemGetAddressRange(&base, &bytes, small + 1000), CUDA_ERROR_NOT_FOUND);
    CK(cuMemFree(small));
    CK(cuMemFree(device));
}

// CUDA leaves such races to the program. Here they must not write to memory that is not the program's any more, nor leave
// records behind.
PITFALL(27, pinned_memory_ends_with_its_context_in_other_threads) {
    if (pitfall::backend() == "native")
        return;
    Gpu gpu;
    const size_t bytes = 1 << 20;
    std::atomic<CUcontext> current{gpu.context};
    std::atomic<bool> is_over{false};
    std::vector<void *> buffers(2);
    for (auto &buffer : buffers) {
        buffer = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(buffer, 1, bytes);
    }
    std::vector<std::thread> threads;
    for (void *buffer : buffers) {
        threads.emplace_back([&] {
            while (!is_over) {
                cuCtxSetCurrent(current);
                void *memory = nullptr;
                if (cuMemHostAlloc(&memory, 1 << 16, 0) == CUDA_SUCCESS)
                    cuMemFreeHost(memory);
            }
        });
        threads.emplace_back([&, buffer] {
            while (!is_over) {
                cuCtxSetCurrent(current);
                CUresult code = cuMemHostRegister(buffer, bytes, 0);
                if (code == CUDA_SUCCESS || code == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
                    cuMemHostUnregister(buffer);
            }
        });
    }
    // A real context takes 0.1 s.
    const unsigned rounds = gpu.is_large() ? 24 : 240;
    for (unsigned round = 0; round < rounds; round++) {
        CUcontext next = nullptr;
        CK(cuCtxCreate(&next, nullptr, 0, gpu.device));
        CUcontext last = current.exchange(next);
        if (last != gpu.context)
            CK(cuCtxDestroy(last));
        // A primary context has the same id again.
        if (round % 4 == 0)
            CK(cuDevicePrimaryCtxReset(gpu.device));
    }
    is_over = true;
    for (auto &thread : threads)
        thread.join();
    CK(cuCtxSetCurrent(current));
    for (void *buffer : buffers) {
        // It may still be registered in the last context.
        cuMemHostUnregister(buffer);
        CK(cuMemHostRegister(buffer, bytes, 0));
        CK(cuMemHostUnregister(buffer));
    }
}

PITFALL_MAIN
