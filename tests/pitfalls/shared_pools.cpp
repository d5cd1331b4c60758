/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Memory pools that processes share by descriptors. The expected answers are those of NVIDIA's driver (580, H100).
#include "processes.h"
#include <algorithm>
#include <utility>

static const size_t MIB = 1 << 20;
// Sizes that lie in one page of the device with others, and one that does not.
static const unsigned COUNTS[] = {1, 1024, 3 << 18, 12 << 20};

static void need_shared_pools(const Gpu &gpu) {
    if (!(gpu.attribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES) & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR))
        pitfall::skip("no memory pools for descriptors");
}

static CUresult create(const Gpu &gpu, CUmemoryPool &pool, unsigned types) {
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = (CUmemAllocationHandleType)types;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}};
    return cuMemPoolCreate(&pool, &properties);
}

static CUmemoryPool new_pool(const Gpu &gpu, unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    need_shared_pools(gpu);
    CUmemoryPool pool = nullptr;
    CK(create(gpu, pool, types));
    return pool;
}

static int export_of(CUmemoryPool pool) {
    int descriptor = -1;
    CK(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    return descriptor;
}

static CUresult try_import(CUmemoryPool &pool, int descriptor) {
    return cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

static CUmemoryPool import_of(int descriptor) {
    CUmemoryPool pool = nullptr;
    CK(try_import(pool, descriptor));
    ::close(descriptor);
    return pool;
}

static CUmemoryPool get_pool(const Gpu &gpu, const Peer &peer) {
    need_shared_pools(gpu);
    return import_of(peer.get_descriptor());
}

static CUmemPoolPtrExportData data_of(CUdeviceptr memory) {
    CUmemPoolPtrExportData data;
    CK(cuMemPoolExportPointer(&data, memory));
    return data;
}

static CUdeviceptr open(CUmemoryPool pool, CUmemPoolPtrExportData data) {
    CUdeviceptr memory = 0;
    CK(cuMemPoolImportPointer(&memory, pool, &data));
    return memory;
}

static CUdeviceptr from_pool(CUmemoryPool pool, size_t count, unsigned value, CUstream stream = nullptr) {
    CUdeviceptr memory = 0;
    CK(cuMemAllocFromPoolAsync(&memory, count * 4, pool, stream));
    CK(cuMemsetD32Async(memory, value, count, stream));
    CK(cuStreamSynchronize(stream));
    return memory;
}

static size_t free_memory() {
    size_t free = 0, total = 0;
    CK(cuMemGetInfo(&free, &total));
    return free;
}

PITFALL(65, allocations_of_a_shared_pool) {
    Other other([](const Peer &peer) {
        Gpu gpu;
        CUmemoryPool pool = get_pool(gpu, peer);
        CUstream stream = new_stream();
        for (unsigned count : COUNTS) {
            CUdeviceptr memory = open(pool, peer.get<CUmemPoolPtrExportData>()), base = 0;
            expect_words(memory, count, count ^ 5);
            size_t bytes = 0;
            CK(cuMemGetAddressRange(&base, &bytes, memory + (count - 1) * 4));
            EXPECT(base == memory && bytes == count * 4ull, "%zu bytes from %lld", bytes, (long long)(base - memory));
            fill(gpu, memory, count, count ^ 6);
            peer.go();
            peer.wait();
            expect_words(memory, count, count ^ 7);
            CUdeviceptr own = device_words(count);
            CK(cuMemcpyDtoD(own, memory, count * 4ull));
            expect_words(own, count, count ^ 7);
            CK(cuMemFree(own));
            // It is freed in the order of a stream.
            LAUNCH(gpu.function("fill"), (count + 255) / 256, 256, stream, memory, count ^ 8, count);
            CK(cuMemFreeAsync(memory, stream));
            CK(cuStreamSynchronize(stream));
            unsigned word = 0;
            CK_IS(cuMemcpyDtoH(&word, memory, 4), CUDA_ERROR_INVALID_VALUE);
            peer.go();
        }
        CK(cuMemPoolDestroy(pool));
    });
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    other.peer.put_descriptor(export_of(pool));
    for (unsigned count : COUNTS) {
        CUdeviceptr memory = from_pool(pool, count, count ^ 5), neighbour = from_pool(pool, count, 77);
        other.peer.put(data_of(memory));
        other.peer.wait();
        expect_words(memory, count, count ^ 6);
        fill(gpu, memory, count, count ^ 7);
        other.peer.go();
        other.peer.wait();
        expect_words(memory, count, count ^ 8);
        expect_words(neighbour, count, 77);
        CK(cuMemFreeAsync(memory, nullptr));
        CK(cuMemFree(neighbour));
    }
    CK(cuCtxSynchronize());
    CK(cuMemPoolDestroy(pool));
    other.join();
}

PITFALL(65, shared_pools_by_the_rules) {
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu), own_pool = new_pool(gpu, CU_MEM_HANDLE_TYPE_NONE), none = nullptr, standard = nullptr;
    CK(cuDeviceGetDefaultMemPool(&standard, gpu.device));
    CK_IS(create(gpu, none, CU_MEM_HANDLE_TYPE_WIN32), CUDA_ERROR_INVALID_VALUE);
    CK_IS(create(gpu, none, CU_MEM_HANDLE_TYPE_WIN32_KMT), CUDA_ERROR_INVALID_VALUE);
    int descriptor = -1;
    for (CUmemoryPool other : {own_pool, standard, none})
        CK_IS(cuMemPoolExportToShareableHandle(&descriptor, other, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    for (int type : {0, 2, 8})
        CK_IS(cuMemPoolExportToShareableHandle(&descriptor, pool, (CUmemAllocationHandleType)type, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolExportToShareableHandle(nullptr, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    descriptor = export_of(pool);

    CUdeviceptr memory = from_pool(pool, 1024, 3), of_own = from_pool(own_pool, 1024, 4), of_standard = 0, plain = device_words(1024);
    CK(cuMemAllocAsync(&of_standard, 4096, nullptr));
    CUmemPoolPtrExportData data = data_of(memory), other{};
    for (CUdeviceptr wrong : {memory + 512, of_own, of_standard, plain, (CUdeviceptr)0})
        CK_IS(cuMemPoolExportPointer(&other, wrong), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolExportPointer(nullptr, memory), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr freed = from_pool(pool, 1024, 5);
    CK(cuMemFreeAsync(freed, nullptr));
    CK_IS(cuMemPoolExportPointer(&other, freed), CUDA_ERROR_INVALID_VALUE);
    unsigned types = 0;
    CK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory));
    EXPECT(types == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "types %u", types);
    CUipcMemHandle handle;
    CK_IS(cuIpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_VALUE);

    // Imports of a pool.
    CUmemoryPool imported = nullptr, again = nullptr;
    void *as_handle = (void *)(intptr_t)descriptor;
    CK_IS(cuMemPoolImportFromShareableHandle(nullptr, as_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolImportFromShareableHandle(&imported, as_handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolImportFromShareableHandle(&imported, as_handle, CU_MEM_HANDLE_TYPE_NONE, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolImportFromShareableHandle(&imported, as_handle, CU_MEM_HANDLE_TYPE_WIN32, 0), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(try_import(imported, 999), CUDA_ERROR_UNKNOWN);
    int file = ::open("/etc/passwd", O_RDONLY | O_CLOEXEC);
    CK_IS(try_import(imported, file), CUDA_ERROR_UNKNOWN);
    ::close(file);
    CK(try_import(imported, descriptor));
    CK(try_import(again, descriptor));
    EXPECT(imported == again && imported != pool, "a pool that is imported twice is two");
    ::close(descriptor);

    // It is for what was allocated from it elsewhere, and nothing else.
    cuuint64_t word = 0;
    CUdeviceptr address = 0;
    for (int attribute = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES; attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; attribute++)
        CK_IS(cuMemPoolGetAttribute(imported, (CUmemPool_attribute)attribute, &word), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolSetAttribute(imported, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &word), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolTrimTo(imported, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAllocFromPoolAsync(&address, 1024, imported, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAllocFromPoolAsync(&address, 0, imported, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDeviceSetMemPool(gpu.device, imported), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolExportToShareableHandle(&descriptor, imported, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_INVALID_VALUE);
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}};
    CUmemAccessDesc wish = {location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    CK(cuMemPoolGetAccess(&flags, imported, &location));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "access %d", (int)flags);
    CK(cuMemPoolSetAccess(imported, &wish, 1));
    wish.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    for (CUmemoryPool of : {imported, pool})
        CK_IS(cuMemPoolSetAccess(of, &wish, 1), CUDA_ERROR_INVALID_DEVICE);

    // Imports of an allocation.
    CK_IS(cuMemPoolImportPointer(nullptr, imported, &data), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemPoolImportPointer(&address, imported, nullptr), CUDA_ERROR_INVALID_VALUE);
    for (unsigned char byte : {0, 0x5a, 0xff}) {
        memset(&other, byte, sizeof other);
        CK_IS(cuMemPoolImportPointer(&address, imported, &other), CUDA_ERROR_INVALID_VALUE);
    }
    CUmemoryPool second_pool = new_pool(gpu), second = import_of(export_of(second_pool));
    for (CUmemoryPool wrong : {pool, own_pool, standard, none, second})
        CK_IS(cuMemPoolImportPointer(&address, wrong, &data), CUDA_ERROR_INVALID_VALUE);
    address = open(imported, data);
    EXPECT(address != memory && open(imported, data) == address, "opened twice, at two addresses");
    expect_words(address, 1024, 3);
    CUmemoryPool of_pool = nullptr;
    CUcontext context = nullptr;
    int ordinal = -1, legacy = -1;
    size_t bytes = 0;
    CK(cuPointerGetAttribute(&of_pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    CK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    CK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    CK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    CK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    CK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address + 64));
    EXPECT(of_pool == imported && !context && ordinal == 0 && !(legacy & 0xff) && types == 0 && bytes == 4096, "what opened memory says of itself");
    CK_IS(cuMemPoolExportPointer(&other, address), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcGetMemHandle(&handle, address), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcCloseMemHandle(address), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFree(address + 512), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFreeAsync(address + 512, nullptr), CUDA_ERROR_INVALID_VALUE);
    // The pool stays while something is open, which is freed once.
    CK_IS(cuMemPoolDestroy(imported), CUDA_ERROR_INVALID_VALUE);
    expect_words(address, 1024, 3);
    CK(cuMemFree(address));
    CK_IS(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFreeAsync(address, nullptr), CUDA_ERROR_INVALID_VALUE);
    address = open(imported, data);
    CUstream stream = new_stream();
    CK(cuMemFreeAsync(address, stream));
    CK_IS(cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    // Not permitted while a stream is captured.
    CUgraph graph = nullptr;
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK_IS(cuMemPoolImportPointer(&address, imported, &data), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CK_IS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CK(cuMemPoolDestroy(imported));
    CK_IS(cuMemPoolDestroy(second_pool), CUDA_SUCCESS);
    CK(cuMemPoolDestroy(second));
    expect_words(memory, 1024, 3);
}

// Another process can read and write an allocation until its stream has reached the free.
PITFALL(65, shared_allocations_are_freed_in_the_order_of_streams) {
    Other other([](const Peer &peer) {
        Gpu gpu;
        CUmemoryPool pool = get_pool(gpu, peer);
        CUstream stream = new_stream();
        for (unsigned round = 0; round < 8; round++) {
            CUmemPoolPtrExportData data = peer.get<CUmemPoolPtrExportData>();
            CUdeviceptr memory = open(pool, data), copy = device_words(MIB);
            Gate gate(gpu);
            gate.close(stream);
            CK(cuMemcpyDtoDAsync(copy, memory, 4 * MIB, stream));
            LAUNCH(gpu.function("fill"), MIB / 256, 256, stream, memory, round + 20, (unsigned)MIB);
            CK(cuMemFreeAsync(memory, stream));
            if (round % 2) {
                // Opened again meanwhile, it is the same memory.
                CUdeviceptr again = open(pool, data);
                CK(cuMemFreeAsync(again, stream));
            }
            peer.go();
            peer.wait();
            gate.open();
            CK(cuStreamSynchronize(stream));
            expect_words(copy, MIB, round + 10);
            CK(cuMemFree(copy));
            peer.go();
        }
        CK(cuMemPoolDestroy(pool));
    });
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    other.peer.put_descriptor(export_of(pool));
    CUstream stream = new_stream();
    for (unsigned round = 0; round < 8; round++) {
        CUdeviceptr memory = from_pool(pool, MIB, round + 10, stream);
        other.peer.put(data_of(memory));
        other.peer.wait();
        // The next allocations are other memory, in any stream.
        std::vector<CUdeviceptr> more;
        for (int i = 0; i < 8; i++)
            more.push_back(from_pool(pool, MIB, 99, i % 2 ? stream : nullptr));
        other.peer.go();
        other.peer.wait();
        expect_words(memory, MIB, round + 20);
        CK(cuMemFreeAsync(memory, stream));
        for (CUdeviceptr one : more)
            CK(cuMemFreeAsync(one, nullptr));
    }
    CK(cuCtxSynchronize());
    CK(cuMemPoolDestroy(pool));
    other.join();
}

// CUDA leaves open what becomes of memory that its owner frees first. Here those who have opened it keep it.
PITFALL_OURS(65, shared_allocations_outlive_their_owner) {
    Other owner([](const Peer &peer) {
        Gpu gpu;
        CUmemoryPool pool = new_pool(gpu);
        peer.put_descriptor(export_of(pool));
        CUstream stream = new_stream();
        CUdeviceptr ordered = from_pool(pool, MIB, 8, stream), plain = from_pool(pool, 64, 9), late = from_pool(pool, 64, 10);
        for (CUdeviceptr memory : {ordered, plain, late})
            peer.put(data_of(memory));
        peer.wait();
        CK(cuMemFreeAsync(ordered, stream));
        CK(cuMemFree(plain));
        CK(cuMemFreeAsync(late, nullptr));
        // The next allocations are other memory.
        for (int i = 0; i < 8; i++) {
            from_pool(pool, MIB, 1, stream);
            from_pool(pool, 64, 1);
            device_words(64, 1);
        }
        CK(cuMemPoolDestroy(pool));
        peer.go();
        peer.wait();
    });
    Gpu gpu;
    CUmemoryPool pool = get_pool(gpu, owner.peer);
    CUmemPoolPtrExportData data[3];
    for (CUmemPoolPtrExportData &one : data)
        one = owner.peer.get<CUmemPoolPtrExportData>();
    CUdeviceptr ordered = open(pool, data[0]), plain = open(pool, data[1]), late = 0;
    owner.peer.go();
    owner.peer.wait();
    expect_words(ordered, MIB, 8);
    expect_words(plain, 64, 9);
    CK_IS(cuMemPoolImportPointer(&late, pool, &data[2]), CUDA_ERROR_INVALID_VALUE);
    owner.kill();
    fill(gpu, ordered, MIB, 13);
    expect_words(ordered, MIB, 13);
    expect_words(plain, 64, 9);
    CK(cuMemFree(ordered));
    CK(cuMemFreeAsync(plain, nullptr));
    CK(cuCtxSynchronize());
    // No process can provide it any more. The host learns that at an undefined time.
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; i < 500 && (code = cuMemPoolImportPointer(&late, pool, &data[1])) == CUDA_ERROR_INVALID_VALUE; i++)
        usleep(10000);
    EXPECT(code == CUDA_ERROR_INVALID_HANDLE, "opened from a process that has ended: %d", (int)code);
    CK(cuMemPoolDestroy(pool));
}

PITFALL(65, shared_allocations_leave_nothing_behind) {
    Other other([](const Peer &peer) {
        Gpu gpu;
        CUmemoryPool pool = get_pool(gpu, peer);
        CUstream stream = new_stream();
        size_t before = 0, after = 0;
        // Another process that makes a context takes more at once than a round can lose.
        auto look = [&] {
            size_t last = std::exchange(after, free_memory());
            if (last > after + 48 * MIB)
                before -= std::min(before, last - after);
        };
        for (int round = 0; round < 40; round++) {
            CUdeviceptr memory = open(pool, peer.get<CUmemPoolPtrExportData>());
            expect_words(memory + 64 * MIB - 64, 16, round);
            CK(round % 2 ? cuMemFree(memory) : cuMemFreeAsync(memory, stream));
            CK(cuStreamSynchronize(stream));
            look();
            if (round == 3)
                before = after;
            peer.go();
        }
        peer.wait();
        // Freed memory is given back at an undefined time.
        for (int i = 0; i < 500 && after + 96 * MIB < before; i++) {
            usleep(10000);
            look();
        }
        EXPECT(after + 96 * MIB >= before, "%zu MiB are gone", (before - after) / MIB);
        CK(cuMemPoolDestroy(pool));
    });
    Gpu gpu;
    CUmemoryPool pool = new_pool(gpu);
    other.peer.put_descriptor(export_of(pool));
    for (int round = 0; round < 40; round++) {
        CUdeviceptr memory = from_pool(pool, 16 * MIB, round);
        other.peer.put(data_of(memory));
        other.peer.wait();
        CK(cuMemFreeAsync(memory, nullptr));
    }
    CK(cuCtxSynchronize());
    CK(cuMemPoolDestroy(pool));
    other.peer.go();
    other.join();
}

PITFALL_MAIN
