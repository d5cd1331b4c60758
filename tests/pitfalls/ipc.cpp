/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Device memory that processes share by handles and by descriptors, and shared events. Both processes of a test are
// forked before either calls CUDA.
#include "processes.h"
#include <sys/mman.h>
#include <sys/stat.h>

static void need_handles() {
    if (pitfall::backend() == "software")
        pitfall::skip("the software GPU's own library shares nothing by handles");
}

static void need_descriptors(const Gpu &gpu) {
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED))
        pitfall::skip("no memory for descriptors");
}

static CUdeviceptr open(const CUipcMemHandle &handle) {
    CUdeviceptr memory = 0;
    CK(cuIpcOpenMemHandle(&memory, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    return memory;
}

static CUipcMemHandle handle_of(CUdeviceptr memory) {
    CUipcMemHandle handle;
    CK(cuIpcGetMemHandle(&handle, memory));
    return handle;
}

// Sizes that lie in one page of the device with others, and one that does not.
static const unsigned COUNTS[] = {1, 1024, 3 << 18, 12 << 20};

PITFALL(65, kernels_of_two_processes_share_memory) {
    need_handles();
    Other other([](const Peer &peer) {
        Gpu gpu;
        for (unsigned count : COUNTS) {
            CUdeviceptr memory = open(peer.get<CUipcMemHandle>());
            expect_words(memory, count, count ^ 5);
            CUdeviceptr base = 0;
            size_t bytes = 0;
            CK(cuMemGetAddressRange(&base, &bytes, memory + (count - 1) * 4));
            // The size may be rounded up to a page of the device.
            EXPECT(base == memory && (bytes == count * 4ull || count == 1), "%zu bytes from %lld", bytes, (long long)(base - memory));
            fill(gpu, memory, count, count ^ 6);
            peer.go();
            peer.wait();
            expect_words(memory, count, count ^ 7);
            // Copies and fills take it as they take any other.
            CUdeviceptr own = device_words(count);
            CK(cuMemcpyDtoD(own, memory, count * 4ull));
            expect_words(own, count, count ^ 7);
            std::vector<unsigned> host(count, count ^ 8);
            CK(cuMemcpyHtoD(memory, host.data(), count * 4ull));
            CK(cuMemsetD32(memory, count ^ 9, 1));
            CK(cuCtxSynchronize());
            CK(cuMemFree(own));
            peer.go();
            peer.wait();
            CK(cuIpcCloseMemHandle(memory));
            unsigned word = 0;
            CK_IS(cuMemcpyDtoH(&word, memory, 4), CUDA_ERROR_INVALID_VALUE);
        }
    });
    Gpu gpu;
    for (unsigned count : COUNTS) {
        CUdeviceptr memory = device_words(count), neighbour = device_words(count, 77);
        fill(gpu, memory, count, count ^ 5);
        other.peer.put(handle_of(memory));
        other.peer.wait();
        expect_words(memory, count, count ^ 6);
        fill(gpu, memory, count, count ^ 7);
        other.peer.go();
        other.peer.wait();
        expect_words(memory, 1, count ^ 9);
        if (count > 1)
            expect_words(memory + 4, count - 1, count ^ 8);
        expect_words(neighbour, count, 77);
        other.peer.go();
        CK(cuMemFree(memory));
        CK(cuMemFree(neighbour));
    }
    other.join();
}

PITFALL(65, memory_is_opened_and_closed_by_the_rules) {
    need_handles();
    Other other([](const Peer &peer) {
        CUdeviceptr memory = 0, again = 0, second = 0;
        CUipcMemHandle handle = peer.get<CUipcMemHandle>(), small = peer.get<CUipcMemHandle>(), freed = peer.get<CUipcMemHandle>();
        CK_IS(cuIpcOpenMemHandle(&memory, handle, 1), CUDA_ERROR_NOT_INITIALIZED);
        Gpu gpu;
        CK(cuCtxSetCurrent(nullptr));
        CK_IS(cuIpcOpenMemHandle(&memory, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
        CK_IS(cuIpcCloseMemHandle(0), CUDA_ERROR_INVALID_CONTEXT);
        CK(cuCtxSetCurrent(gpu.context));
        CK_IS(cuIpcOpenMemHandle(nullptr, handle, 1), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuIpcOpenMemHandle(&memory, handle, 0), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuIpcOpenMemHandle(&memory, handle, 2), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuIpcOpenMemHandle(&memory, freed, 1), CUDA_ERROR_INVALID_VALUE);
        CUipcMemHandle nothing = {};
        CK_IS(cuIpcOpenMemHandle(&memory, nothing, 1), CUDA_ERROR_INVALID_VALUE);
        memset(&nothing, 0xa5, sizeof nothing);
        CK_IS(cuIpcOpenMemHandle(&memory, nothing, 1), CUDA_ERROR_INVALID_VALUE);
        memory = open(handle);
        CK(cuIpcOpenMemHandle(&again, handle, 3));
        EXPECT(memory == again, "opened twice in one context, at two addresses");
        second = open(small);
        expect_words(second, 16, 4);
        // The attributes of the opened memory.
        unsigned type = 0;
        int legacy = -1;
        CUcontext context = nullptr;
        CK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
        CK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
        CK(cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
        EXPECT(type == CU_MEMORYTYPE_DEVICE && (legacy & 0xff) == 0 && context == gpu.context, "type %u, legacy %d", type, legacy);
        size_t range = 0;
        CK(cuPointerGetAttribute(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, memory + 8));
        EXPECT(range == 6 << 20, "%zu bytes", range);
        unsigned long long id = 0, other_id = 0;
        CK(cuPointerGetAttribute(&id, CU_POINTER_ATTRIBUTE_BUFFER_ID, memory));
        CK(cuPointerGetAttribute(&other_id, CU_POINTER_ATTRIBUTE_BUFFER_ID, second));
        EXPECT(id && other_id && id != other_id, "ids %llu and %llu", id, other_id);
        // It is not this process's to free, or to share.
        CUipcMemHandle mine;
        CK_IS(cuIpcGetMemHandle(&mine, memory), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemFreeAsync(memory, nullptr), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuIpcCloseMemHandle(memory + 4096), CUDA_ERROR_INVALID_VALUE);
        // It is opened by one context of a device.
        CUcontext elsewhere;
        CK(cuCtxCreate(&elsewhere, nullptr, 0, gpu.device));
        CK_IS(cuIpcOpenMemHandle(&again, handle, 1), CUDA_ERROR_INVALID_HANDLE);
        CK(cuCtxSetCurrent(gpu.context));
        CK(cuCtxDestroy(elsewhere));
        expect_words(memory, 16, 3);
        CK(cuIpcCloseMemHandle(memory));
        expect_words(memory, 16, 3);
        CK(cuIpcCloseMemHandle(memory));
        unsigned word;
        CK_IS(cuMemcpyDtoH(&word, memory, 4), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
        expect_words(second, 16, 4);
        memory = open(handle);
        expect_words(memory, 16, 3);
        // In a capture as well.
        CUstream stream = new_stream();
        CUgraph graph = nullptr;
        CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
        CK(cuIpcOpenMemHandle(&again, handle, 1));
        CK(cuIpcCloseMemHandle(again));
        CK(cuStreamEndCapture(stream, &graph));
        // It is destroyed with its context. NVIDIA's driver 580 opens it in no other context than the first, although
        // it was closed there.
        if (pitfall::backend() == "native")
            return peer.go();
        CUcontext brief;
        CK(cuIpcCloseMemHandle(second));
        CK(cuCtxCreate(&brief, nullptr, 0, gpu.device));
        second = open(small);
        expect_words(second, 16, 4);
        CK(cuCtxDestroy(brief));
        CK(cuCtxSetCurrent(gpu.context));
        CK_IS(cuMemcpyDtoH(&word, second, 4), CUDA_ERROR_INVALID_VALUE);
        second = open(small);
        expect_words(second, 16, 4);
        peer.go();
    });
    Gpu gpu;
    CUdeviceptr memory = device_words((6 << 20) / 4, 3), small = device_words(16, 4), freed = device_words(2 << 20, 5);
    CUipcMemHandle handle = handle_of(memory), inside = handle_of(memory + 4096), gone = handle_of(freed);
    EXPECT(!memcmp(&handle, &inside, sizeof handle), "an allocation has two handles");
    CK(cuMemFree(freed));
    CUdeviceptr own = 0;
    CK_IS(cuIpcOpenMemHandle(&own, handle, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcOpenMemHandle(&own, handle, 1), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuIpcCloseMemHandle(memory), CUDA_ERROR_INVALID_VALUE);
    other.peer.put(handle);
    other.peer.put(handle_of(small));
    other.peer.put(gone);
    other.peer.wait();
    other.join();
}

PITFALL(65, what_handles_share) {
    need_handles();
    Gpu gpu;
    CUipcMemHandle handle;
    CUdeviceptr memory = device_words(1024), rows = 0, pooled = 0;
    size_t pitch = 0;
    int legacy = 0;
    CK(cuPointerGetAttribute(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, memory));
    EXPECT((legacy & 0xff) == 1, "memory of cuMemAlloc cannot be shared");
    CK_IS(cuIpcGetMemHandle(nullptr, memory), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcGetMemHandle(&handle, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcGetMemHandle(&handle, memory + 4096), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcGetMemHandle(&handle, 0x123456000000), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemAllocPitch(&rows, &pitch, 100, 100, 4));
    CK(cuIpcGetMemHandle(&handle, rows));
    CK(cuMemFree(rows));
    CK_IS(cuIpcGetMemHandle(&handle, rows), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemAllocAsync(&pooled, 4096, nullptr));
    CK_IS(cuIpcGetMemHandle(&handle, pooled), CUDA_ERROR_INVALID_VALUE);
    CUdeviceptr pinned = 0;
    CK(cuMemHostGetDevicePointer(&pinned, pinned_words(1024), 0));
    CK_IS(cuIpcGetMemHandle(&handle, pinned), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcGetMemHandle(&handle, (CUdeviceptr)&handle), CUDA_ERROR_INVALID_VALUE);
    CK(cuCtxSetCurrent(nullptr));
    CK_IS(cuIpcGetMemHandle(&handle, memory), CUDA_ERROR_INVALID_CONTEXT);
}

PITFALL(65, opened_memory_outlives_its_owner) {
    need_handles();
    Other owner([](const Peer &peer) {
        Gpu gpu;
        CUdeviceptr memory = device_words(9 << 20, 8), small = device_words(64, 9);
        peer.put(handle_of(memory));
        peer.put(handle_of(small));
        peer.wait();
        CK(cuMemFree(memory));
        CK(cuMemFree(small));
        // The next allocations are other memory.
        CUdeviceptr next = device_words(9 << 20, 1), next_small = device_words(64, 1);
        (void)next, (void)next_small;
        peer.go();
        peer.wait();
        _exit(0);
    });
    Gpu gpu;
    CUipcMemHandle handle = owner.peer.get<CUipcMemHandle>(), small = owner.peer.get<CUipcMemHandle>();
    CUdeviceptr memory = open(handle), word = open(small), again = 0;
    owner.peer.go();
    owner.peer.wait();
    expect_words(memory, 9 << 20, 8);
    expect_words(word, 64, 9);
    // A kernel uses it while its owner ends.
    CUstream stream = new_stream();
    Gate gate(gpu);
    gate.close(stream);
    LAUNCH(gpu.function("fill"), 64, 256, stream, memory, 12u, 16384u);
    owner.peer.go();
    owner.peer.wait_for_end();
    owner.join();
    gate.open();
    CK(cuStreamSynchronize(stream));
    expect_words(memory, 16384, 12);
    expect_words(memory + 65536, 16384, 8);
    fill(gpu, memory, 9 << 20, 13);
    expect_words(memory, 9 << 20, 13);
    expect_words(word, 64, 9);
    CK(cuIpcCloseMemHandle(memory));
    // No process can provide it any more. The host learns that at an undefined time.
    CUresult code = CUDA_SUCCESS;
    for (int i = 0; i < 500 && (code = cuIpcOpenMemHandle(&again, handle, 1)) == CUDA_SUCCESS; i++) {
        CK(cuIpcCloseMemHandle(again));
        usleep(10000);
    }
    EXPECT(code == CUDA_ERROR_INVALID_HANDLE, "opened by the handle of a process that has ended: %d", (int)code);
    CK(cuIpcCloseMemHandle(word));
}

PITFALL(65, memory_is_as_it_was_when_who_opened_it_dies) {
    need_handles();
    std::vector<Other> others;
    for (int i = 0; i < 3; i++)
        others.emplace_back([](const Peer &peer) {
            Gpu gpu;
            CUdeviceptr memory = open(peer.get<CUipcMemHandle>());
            unsigned slot = peer.get<unsigned>();
            fill(gpu, memory + slot * 4096, 1024, slot + 1);
            peer.go();
            if (slot == 1) {
                // It dies in the middle of a kernel.
                CUstream stream = new_stream();
                Gate gate(gpu);
                gate.close(stream);
                LAUNCH(gpu.function("fill"), 4, 256, stream, memory, 99u, 1024u);
                peer.go();
                peer.wait();
            }
            peer.wait();
        });
    Gpu gpu;
    CUdeviceptr memory = device_words(3 * 1024);
    CUipcMemHandle handle = handle_of(memory);
    for (unsigned slot = 0; slot < 3; slot++) {
        others[slot].peer.put(handle);
        others[slot].peer.put(slot);
        others[slot].peer.wait();
    }
    others[1].peer.wait();
    others[1].kill();
    others[0].kill();
    for (unsigned slot = 0; slot < 3; slot++)
        expect_words(memory + slot * 4096, 1024, slot + 1);
    fill(gpu, memory, 3 * 1024, 21);
    expect_words(memory, 3 * 1024, 21);
    others[2].peer.go();
    others[2].join();
    CK(cuMemFree(memory));
}

static const size_t PIECE = 2 << 20;

static CUmemAllocationProp properties(const Gpu &gpu, CUmemAllocationHandleType types) {
    CUmemAllocationProp prop = {};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}};
    prop.requestedHandleTypes = types;
    return prop;
}

static CUdeviceptr map(const Gpu &gpu, CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr start = 0;
    CK(cuMemAddressReserve(&start, bytes, 0, 0, 0));
    CK(cuMemMap(start, bytes, 0, handle, 0));
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {gpu.device}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CK(cuMemSetAccess(start, bytes, &access, 1));
    return start;
}

static void unmap(CUdeviceptr start, size_t bytes) {
    CK(cuMemUnmap(start, bytes));
    CK(cuMemAddressFree(start, bytes));
}

static int export_of(CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    CK(cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    EXPECT(descriptor > 2, "descriptor %d", descriptor);
    return descriptor;
}

static CUmemGenericAllocationHandle import_of(int descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    CK(cuMemImportFromShareableHandle(&handle, (void *)(uintptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    return handle;
}

PITFALL(65, descriptors_pass_memory_on) {
    Other other([](const Peer &peer) {
        Gpu gpu;
        need_descriptors(gpu);
        int descriptor = peer.get_descriptor();
        CUmemGenericAllocationHandle handle = import_of(descriptor), again = import_of(descriptor);
        ::close(descriptor);
        CUdeviceptr memory = map(gpu, handle, 3 * PIECE), second = map(gpu, again, 3 * PIECE);
        expect_words(memory, 3 * PIECE / 4, 5);
        fill(gpu, memory, 3 * PIECE / 4, 6);
        expect_words(second, 3 * PIECE / 4, 6);
        unmap(second, 3 * PIECE);
        CK(cuMemRelease(again));
        CK(cuMemRelease(handle));
        peer.go();
        peer.wait();
        expect_words(memory, 3 * PIECE / 4, 7);
        peer.go();
        peer.wait_for_end();
        // Mapped memory stays.
        expect_words(memory, 3 * PIECE / 4, 7);
        fill(gpu, memory, 3 * PIECE / 4, 8);
        expect_words(memory, 3 * PIECE / 4, 8);
        unmap(memory, 3 * PIECE);
    });
    Gpu gpu;
    need_descriptors(gpu);
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp prop = properties(gpu, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CK(cuMemCreate(&handle, 3 * PIECE, &prop, 0));
    CUdeviceptr memory = map(gpu, handle, 3 * PIECE);
    fill(gpu, memory, 3 * PIECE / 4, 5);
    int descriptor = export_of(handle);
    other.peer.put_descriptor(descriptor);
    ::close(descriptor);
    other.peer.wait();
    expect_words(memory, 3 * PIECE / 4, 6);
    fill(gpu, memory, 3 * PIECE / 4, 7);
    other.peer.go();
    other.peer.wait();
    unmap(memory, 3 * PIECE);
    CK(cuMemRelease(handle));
    ::close(other.peer.socket);
    other.join();
}

PITFALL(65, descriptors_by_the_rules) {
    if (pitfall::backend() == "software")
        pitfall::skip("the software GPU's own library has other codes for what is no descriptor");
    Gpu gpu;
    need_descriptors(gpu);
    CUmemGenericAllocationHandle handle = 0, plain = 0, got = 0;
    CUmemAllocationProp prop = properties(gpu, CU_MEM_HANDLE_TYPE_NONE);
    CK(cuMemCreate(&plain, PIECE, &prop, 0));
    const CUmemAllocationHandleType type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    unsigned long long to[8] = {};
    CK_IS(cuMemExportToShareableHandle(to, plain, type, 0), CUDA_ERROR_INVALID_VALUE);
    prop = properties(gpu, type);
    CK(cuMemCreate(&handle, PIECE, &prop, 0));
    CUmemAllocationProp said = {};
    CK(cuMemGetAllocationPropertiesFromHandle(&said, handle));
    EXPECT(said.requestedHandleTypes == type, "types %d", said.requestedHandleTypes);
    CK_IS(cuMemExportToShareableHandle(to, handle, type, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemExportToShareableHandle(nullptr, handle, type, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemExportToShareableHandle(to, handle, CU_MEM_HANDLE_TYPE_NONE, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemExportToShareableHandle(to, handle, CU_MEM_HANDLE_TYPE_WIN32, 0), CUDA_ERROR_INVALID_VALUE);
    int one = export_of(handle), other = export_of(handle);
    EXPECT(one != other && (fcntl(one, F_GETFD) & FD_CLOEXEC), "descriptors %d and %d", one, other);
    CUdeviceptr memory = map(gpu, handle, PIECE);
    fill(gpu, memory, PIECE / 4, 4);
    size_t types = 0;
    CK(cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, memory));
    EXPECT(types == type, "allowed types %zu", types);
    // In the same process the memory has another handle.
    CUmemGenericAllocationHandle second = import_of(one);
    EXPECT(second != handle, "imported under the same handle");
    CK(cuMemGetAllocationPropertiesFromHandle(&said, second));
    EXPECT(said.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE, "types %d", said.requestedHandleTypes);
    CUdeviceptr view = map(gpu, second, PIECE);
    expect_words(view, PIECE / 4, 4);
    CK(cuMemRetainAllocationHandle(&got, (void *)view));
    EXPECT(got == second, "retained another handle");
    CK(cuMemRelease(got));
    CK(cuMemRelease(second));
    unmap(view, PIECE);
    // Imports that are refused.
    int null = ::open("/dev/null", O_RDWR), file = memfd_create("x", 0);
    auto import = [&](intptr_t descriptor, CUmemAllocationHandleType kind) {
        return cuMemImportFromShareableHandle(&got, (void *)descriptor, kind);
    };
    CK_IS(import(-1, type), CUDA_ERROR_UNKNOWN);
    CK_IS(import(999, type), CUDA_ERROR_UNKNOWN);
    CK_IS(import(null, type), CUDA_ERROR_UNKNOWN);
    CK_IS(import(file, type), CUDA_ERROR_UNKNOWN);
    CK_IS(import(one, CU_MEM_HANDLE_TYPE_NONE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(import(one, CU_MEM_HANDLE_TYPE_WIN32), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(cuMemImportFromShareableHandle(nullptr, (void *)(uintptr_t)one, type), CUDA_ERROR_INVALID_VALUE);
    CUipcMemHandle ipc;
    CK_IS(cuIpcGetMemHandle(&ipc, memory), CUDA_ERROR_INVALID_VALUE);
    // None of it needs a context, and a capture is no hindrance.
    CK(cuCtxSetCurrent(nullptr));
    ::close(export_of(handle));
    CK(cuMemRelease(import_of(one)));
    CK(cuCtxSetCurrent(gpu.context));
    CUstream stream = new_stream();
    CUgraph graph = nullptr;
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    ::close(export_of(handle));
    CK(cuMemRelease(import_of(one)));
    CK(cuStreamEndCapture(stream, &graph));
    expect_words(memory, PIECE / 4, 4);
    unmap(memory, PIECE);
    CK(cuMemRelease(handle));
    CK(cuMemRelease(plain));
}

static const unsigned SHARED_EVENT = CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING;

static void need_events(const Gpu &gpu) {
    need_handles();
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED))
        pitfall::skip("no events between processes");
}

static CUevent shared_event() {
    CUevent event = nullptr;
    CK(cuEventCreate(&event, SHARED_EVENT));
    return event;
}

static CUipcEventHandle handle_of(CUevent event) {
    CUipcEventHandle handle;
    CK(cuIpcGetEventHandle(&handle, event));
    return handle;
}

static CUevent open(const CUipcEventHandle &handle) {
    CUevent event = nullptr;
    CK(cuIpcOpenEventHandle(&event, handle));
    return event;
}

PITFALL(65, events_order_the_work_of_two_processes) {
    need_handles();
    const unsigned COUNT = 1 << 16, ROUNDS = 20;
    Other other([=](const Peer &peer) {
        Gpu gpu;
        need_events(gpu);
        CUdeviceptr words = open(peer.get<CUipcMemHandle>());
        CUevent ping = open(peer.get<CUipcEventHandle>()), pong = open(peer.get<CUipcEventHandle>());
        CUstream stream = new_stream();
        CUfunction fill = gpu.function("fill");
        CUdeviceptr seen = device_words(COUNT);
        peer.go();
        for (unsigned round = 0; round < ROUNDS; round++) {
            peer.wait();
            // The other process's stream wrote before its record. After the wait these writes are here.
            CK(cuStreamWaitEvent(stream, ping, 0));
            CK(cuMemcpyDtoDAsync(seen, words, COUNT * 4, stream));
            LAUNCH(fill, COUNT / 256, 256, stream, words, 2 * round + 1, COUNT);
            CK(cuEventRecord(pong, stream));
            peer.go();
            CK(cuStreamSynchronize(stream));
            expect_words(seen, COUNT, 2 * round);
        }
        CK(cuEventDestroy(ping));
        CK(cuEventDestroy(pong));
    });
    Gpu gpu;
    need_events(gpu);
    CUdeviceptr words = device_words(COUNT), seen = device_words(COUNT);
    CUevent ping = shared_event(), pong = shared_event();
    other.peer.put(handle_of(words));
    other.peer.put(handle_of(ping));
    other.peer.put(handle_of(pong));
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    other.peer.wait();
    for (unsigned round = 0; round < ROUNDS; round++) {
        LAUNCH(fill, COUNT / 256, 256, stream, words, 2 * round, COUNT);
        CK(cuEventRecord(ping, stream));
        other.peer.go();
        other.peer.wait();
        CK(cuStreamWaitEvent(stream, pong, 0));
        CK(cuMemcpyDtoDAsync(seen, words, COUNT * 4, stream));
        if (round % 2)
            CK(cuEventSynchronize(pong));
        CK(cuStreamSynchronize(stream));
        CK(cuEventQuery(pong));
        expect_words(seen, COUNT, 2 * round + 1);
    }
    other.join();
}

PITFALL(65, events_of_another_process_are_pending_until_they_are_over) {
    need_handles();
    Other other([](const Peer &peer) {
        Gpu gpu;
        need_events(gpu);
        CUipcEventHandle handle = peer.get<CUipcEventHandle>();
        CUevent event = open(handle), again = open(handle);
        EXPECT(event != again, "one event is open as two");
        CK(cuEventQuery(event));
        CK(cuEventSynchronize(event));
        CUipcEventHandle own;
        CK_IS(cuIpcGetEventHandle(&own, event), CUDA_ERROR_INVALID_HANDLE);
        CUstream stream = new_stream(), other_stream = new_stream();
        Gate gate(gpu);
        peer.go();
        peer.wait();
        // The other process has recorded it, after its gate.
        CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
        CK_IS(cuEventQuery(again), CUDA_ERROR_NOT_READY);
        CK(cuStreamWaitEvent(stream, event, 0));
        CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
        CK(cuStreamQuery(other_stream));
        peer.go();
        CK(cuEventSynchronize(event));
        CK(cuEventQuery(again));
        CK(cuStreamSynchronize(stream));
        // This one's own record is the latest.
        gate.close(other_stream);
        CK(cuEventRecord(again, other_stream));
        peer.go();
        peer.wait();
        gate.open();
        CK(cuEventSynchronize(event));
        CK(cuStreamSynchronize(other_stream));
        float time = 0;
        CK_IS(cuEventElapsedTime(&time, event, again), CUDA_ERROR_INVALID_HANDLE);
        CK(cuEventDestroy(event));
        peer.go();
        peer.wait();
        CK(cuEventQuery(again));
        CK(cuEventRecord(again, stream));
        CK(cuEventSynchronize(again));
        CK(cuEventDestroy(again));
    });
    Gpu gpu;
    need_events(gpu);
    CUevent event = shared_event();
    CUstream stream = new_stream(), waiting = new_stream();
    Gate gate(gpu);
    other.peer.put(handle_of(event));
    other.peer.wait();
    gate.close(stream);
    CK(cuEventRecord(event, stream));
    CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    other.peer.go();
    other.peer.wait();
    gate.open();
    CK(cuStreamSynchronize(stream));
    other.peer.wait();
    CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    CK(cuStreamWaitEvent(waiting, event, 0));
    CK_IS(cuStreamQuery(waiting), CUDA_ERROR_NOT_READY);
    // A wait is for the latest record at the time of the call.
    CK(cuStreamQuery(stream));
    other.peer.go();
    CK(cuEventSynchronize(event));
    CK(cuStreamSynchronize(waiting));
    other.peer.wait();
    CK(cuEventDestroy(event));
    other.peer.go();
    other.join();
}

PITFALL(65, events_by_the_rules) {
    Gpu gpu;
    need_events(gpu);
    CUevent event = nullptr, plain = nullptr, got = nullptr;
    CUipcEventHandle handle;
    CK_IS(cuEventCreate(&event, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
    CK(cuEventCreate(&event, SHARED_EVENT | CU_EVENT_BLOCKING_SYNC));
    CK(cuEventDestroy(event));
    event = shared_event();
    CK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
    CK_IS(cuIpcGetEventHandle(&handle, plain), CUDA_ERROR_INVALID_HANDLE);
    CK_IS(cuIpcGetEventHandle(&handle, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuIpcGetEventHandle(nullptr, event), CUDA_ERROR_INVALID_VALUE);
    CK(cuIpcGetEventHandle(&handle, event));
    CK_IS(cuIpcOpenEventHandle(&got, handle), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuIpcOpenEventHandle(nullptr, handle), CUDA_ERROR_INVALID_VALUE);
    CUipcEventHandle nothing = {};
    CK_IS(cuIpcOpenEventHandle(&got, nothing), CUDA_ERROR_MAP_FAILED);
    memset(&nothing, 0xa5, sizeof nothing);
    CK_IS(cuIpcOpenEventHandle(&got, nothing), CUDA_ERROR_MAP_FAILED);
    CUdeviceptr memory = device_words(16), opened = 0;
    CUipcMemHandle memory_handle = handle_of(memory);
    memcpy(&nothing, &memory_handle, sizeof nothing);
    CK_IS(cuIpcOpenEventHandle(&got, nothing), CUDA_ERROR_MAP_FAILED);
    memcpy(&memory_handle, &handle, sizeof handle);
    CK_IS(cuIpcOpenMemHandle(&opened, memory_handle, 1), CUDA_ERROR_INVALID_VALUE);
    CUstream stream = new_stream();
    CK(cuEventRecord(event, stream));
    CK(cuEventSynchronize(event));
    CUevent second = shared_event();
    CK(cuEventRecord(second, stream));
    CK(cuEventSynchronize(second));
    float time = 0;
    CK_IS(cuEventElapsedTime(&time, event, second), CUDA_ERROR_INVALID_HANDLE);
    // More records than there are words, in two streams.
    CUstream other = new_stream();
    Gate gate(gpu);
    gate.close(stream);
    for (int i = 0; i < 40; i++)
        CK(cuEventRecord(event, i % 2 ? other : stream));
    gate.open();
    CK(cuEventSynchronize(event));
    CK(cuCtxSynchronize());
    CK(cuEventQuery(event));
    // In a capture.
    CUgraph graph = nullptr;
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK_IS(cuEventRecord(event, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CK(cuStreamEndCapture(stream, &graph));
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK_IS(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CK_IS(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    CK(cuIpcGetEventHandle(&handle, event));
    CK(cuStreamEndCapture(stream, &graph));
    CK(cuEventDestroy(second));
    CK(cuCtxSetCurrent(nullptr));
    CK_IS(cuIpcGetEventHandle(&handle, event), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuIpcOpenEventHandle(&got, handle), CUDA_ERROR_INVALID_CONTEXT);
}

// NVIDIA's driver leaves who waits for the record of a process that has died waiting for ever.
PITFALL_OURS(65, records_of_a_process_that_has_died_are_over) {
    need_handles();
    Other owner([](const Peer &peer) {
        Gpu gpu;
        CUevent event = shared_event(), mine = open(peer.get<CUipcEventHandle>());
        peer.put(handle_of(event));
        peer.wait();
        CUstream stream = new_stream();
        Gate gate(gpu);
        gate.close(stream);
        CK(cuEventRecord(event, stream));
        CK(cuEventRecord(mine, stream));
        peer.go();
        peer.wait();
    });
    Gpu gpu;
    need_events(gpu);
    CUevent own = shared_event();
    owner.peer.put(handle_of(own));
    CUevent event = open(owner.peer.get<CUipcEventHandle>());
    owner.peer.go();
    owner.peer.wait();
    CUstream stream = new_stream(), other = new_stream();
    CK(cuStreamWaitEvent(stream, event, 0));
    CK(cuStreamWaitEvent(other, own, 0));
    CK_IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
    owner.kill();
    CK(cuEventSynchronize(event));
    CK(cuStreamSynchronize(stream));
    CK(cuStreamSynchronize(other));
    CK(cuEventQuery(own));
    // The remaining process continues to use them.
    CK(cuEventRecord(event, stream));
    CK(cuEventSynchronize(event));
}

// The events end with their contexts, so a program that relies on that runs for ever.
PITFALL(65, events_end_with_their_context) {
    Gpu gpu;
    need_events(gpu);
    for (int i = 0; i < 5; i++) {
        CUcontext context = nullptr;
        CK(cuCtxCreate(&context, nullptr, 0, gpu.device));
        for (int k = 0; k < 900; k++) {
            CUevent event = shared_event();
            // Each first record has its memory registered, which takes long on a busy GPU.
            if (k % 50 == 0)
                CK(cuEventRecord(event, nullptr));
        }
        CK(cuCtxDestroy(context));
        CK(cuCtxSetCurrent(gpu.context));
    }
    CUevent event = shared_event();
    CK(cuEventRecord(event, nullptr));
    CK(cuEventSynchronize(event));
    CK(cuEventDestroy(event));
}

PITFALL_MAIN
