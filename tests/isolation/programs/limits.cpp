// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The program in the VMs of the tests of memory limits. It reads a command from each line of standard input, and
// answers with one line.
//
//   info              free and all bytes as cuMemGetInfo has them, all bytes as cuDeviceTotalMem has them
//   alloc BYTES       allocates; the code
//   fill THREADS BYTES  allocates pieces of so many bytes in so many threads, each until it gets no more; how many, the code
//   async BYTES       allocates by cuMemAllocAsync; the code
//   free              frees all of that
//   freeasync         frees it by cuMemFreeAsync, and waits for nothing; the code
//   threshold BYTES   what the device's own pool keeps; the code
//   reserved          the bytes that the pool has in use, and those that it has reserved
//   context           makes one more context; the code
//   uncontext         ends it
//   green             makes one more green context, of all multiprocessors; the code
//   ungreen           ends it
//   module BYTES      loads a module with a variable of so many bytes; the code
//   unload            unloads it
//   limit WHICH VALUE cuCtxSetLimit; the code
//   flood THREADS BYTES  copies so many bytes of pageable memory in so many threads, into a stream that is held back until all
//                     have begun; the code
//   array BYTES       makes an array of so many bytes; the code
//   unarray           ends it; the code
//   map BYTES         makes so many bytes and maps them behind the last, without keeping the handle; the code
//   unmap             unmaps the last of these; the code
//   share             shares what was allocated last; the code, and a handle as the numbers of its bytes
//   open HANDLE       opens the memory of such a handle, and reads its last word; the code
//   close             closes what was opened last; the code
//   share-pooled BYTES   allocates from a pool that others may import; the code, and the bytes of a Pooled
//   open-pooled POOLED   opens such an allocation, and reads its first word; the code
//   free-pooled       frees what was opened so last; the code
//   way NAME BYTES    allocates in another way; the code, or "absent" where libcuda has no such function
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <mutex>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

static void *library;

template <typename F> static F *find(const char *name) { return (F *)dlsym(library, name); }

#define FIND(NAME, SYMBOL) static auto *NAME = find<decltype(::NAME)>(SYMBOL)

// Allocates in one of the other ways, and keeps what it gets.
static std::string way(const std::string &name, size_t bytes) {
    CUdeviceptr pointer = 0;
    CUdevice device = 0;
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CUresult code = CUDA_SUCCESS;
    auto absent = [](const void *function) { return function == nullptr; };
    CUmemPoolProps pool_properties{};
    pool_properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    pool_properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    if (name == "pitch") {
        auto *f = find<CUresult(CUdeviceptr *, size_t *, size_t, size_t, unsigned)>("cuMemAllocPitch_v2");
        if (absent((void *)f)) return "absent";
        size_t pitch = 0;
        code = f(&pointer, &pitch, 1 << 20, bytes >> 20, 4);
    } else if (name == "managed") {
        auto *f = find<CUresult(CUdeviceptr *, size_t, unsigned)>("cuMemAllocManaged");
        if (absent((void *)f)) return "absent";
        code = f(&pointer, bytes, CU_MEM_ATTACH_GLOBAL);
    } else if (name == "async") {
        auto *f = find<CUresult(CUdeviceptr *, size_t, CUstream)>("cuMemAllocAsync");
        if (absent((void *)f)) return "absent";
        code = f(&pointer, bytes, stream);
    } else if (name == "pool") {
        auto *make = find<CUresult(CUmemoryPool *, const CUmemPoolProps *)>("cuMemPoolCreate");
        auto *f = find<CUresult(CUdeviceptr *, size_t, CUmemoryPool, CUstream)>("cuMemAllocFromPoolAsync");
        if (absent((void *)make) || absent((void *)f)) return "absent";
        code = make(&pool, &pool_properties);
        if (code == CUDA_SUCCESS) code = f(&pointer, bytes, pool, stream);
    } else if (name == "create") {
        auto *f = find<CUresult(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long)>("cuMemCreate");
        if (absent((void *)f)) return "absent";
        CUmemGenericAllocationHandle handle;
        code = f(&handle, bytes, &properties, 0);
    } else if (name == "array") {
        auto *f = find<CUresult(CUarray *, const CUDA_ARRAY_DESCRIPTOR *)>("cuArrayCreate_v2");
        if (absent((void *)f)) return "absent";
        CUarray array;
        CUDA_ARRAY_DESCRIPTOR what{16384, (bytes + (256 << 10) - 1) / (256 << 10), CU_AD_FORMAT_UNSIGNED_INT32, 4};
        code = f(&array, &what);
    } else if (name == "array3d") {
        auto *f = find<CUresult(CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *)>("cuArray3DCreate_v2");
        if (absent((void *)f)) return "absent";
        CUarray array;
        CUDA_ARRAY3D_DESCRIPTOR what{1024, 1024, (bytes + (4 << 20) - 1) >> 22, CU_AD_FORMAT_UNSIGNED_INT32, 1, 0};
        code = f(&array, &what);
    } else if (name == "mipmap") {
        auto *f = find<CUresult(CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned)>("cuMipmappedArrayCreate");
        if (absent((void *)f)) return "absent";
        CUmipmappedArray array;
        CUDA_ARRAY3D_DESCRIPTOR what{16384, (bytes + (256 << 10) - 1) / (256 << 10), 0, CU_AD_FORMAT_UNSIGNED_INT32, 4, 0};
        code = f(&array, &what, 1);
    } else if (name == "graph") {
        auto *make = find<CUresult(CUgraph *, unsigned)>("cuGraphCreate");
        auto *f = find<CUresult(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *)>("cuGraphAddMemAllocNode");
        if (absent((void *)make) || absent((void *)f)) return "absent";
        CUgraph graph;
        CUgraphNode node;
        CUDA_MEM_ALLOC_NODE_PARAMS what{};
        what.poolProps = pool_properties;
        what.bytesize = bytes;
        code = make(&graph, 0);
        if (code == CUDA_SUCCESS) code = f(&node, graph, nullptr, 0, &what);
    } else if (name == "ipc") {
        auto *f = find<CUresult(CUdeviceptr *, CUipcMemHandle, unsigned)>("cuIpcOpenMemHandle_v2");
        if (absent((void *)f)) return "absent";
        code = f(&pointer, CUipcMemHandle{}, 1);
    } else if (name == "import") {
        auto *f = find<CUresult(CUexternalMemory *, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *)>("cuImportExternalMemory");
        if (absent((void *)f)) return "absent";
        CUexternalMemory memory;
        CUDA_EXTERNAL_MEMORY_HANDLE_DESC what{};
        what.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD;
        what.handle.fd = 0;
        what.size = bytes;
        code = f(&memory, &what);
    } else {
        return "unknown";
    }
    return std::to_string((int)code);
}

// The word that a stream waits for, and the number of threads that are about to enqueue a copy.
struct Hold {
    std::mutex lock;
    std::condition_variable changed;
    size_t missing;
};

static void CUDA_CB wait_for_all(void *data) {
    auto *hold = (Hold *)data;
    std::unique_lock<std::mutex> guard(hold->lock);
    hold->changed.wait(guard, [&] { return hold->missing == 0; });
}

static CUresult flood(CUcontext context, size_t count, size_t bytes) {
    FIND(cuStreamCreate, "cuStreamCreate");
    FIND(cuLaunchHostFunc, "cuLaunchHostFunc");
    FIND(cuMemAlloc, "cuMemAlloc_v2");
    FIND(cuMemFree, "cuMemFree_v2");
    FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
    FIND(cuStreamSynchronize, "cuStreamSynchronize");
    FIND(cuStreamDestroy, "cuStreamDestroy_v2");
    static auto *copy = find<CUresult(CUdeviceptr, const void *, size_t, CUstream)>("cuMemcpyHtoDAsync_v2");
    CUstream stream = nullptr;
    CUdeviceptr to = 0;
    Hold hold;
    hold.missing = count;
    CUresult code = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (code == CUDA_SUCCESS) code = cuMemAlloc(&to, bytes);
    if (code == CUDA_SUCCESS) code = cuLaunchHostFunc(stream, wait_for_all, &hold);
    if (code != CUDA_SUCCESS) return code;
    std::atomic<int> worst = 0;
    std::vector<std::thread> threads;
    std::vector<char> from(bytes, 7);
    for (size_t i = 0; i < count; i++)
        threads.emplace_back([&] {
            cuCtxSetCurrent(context);
            {
                std::lock_guard<std::mutex> guard(hold.lock);
                hold.missing--;
            }
            hold.changed.notify_all();
            if (CUresult code = copy(to, from.data(), bytes, stream)) worst = (int)code;
        });
    for (auto &thread : threads) thread.join();
    if (worst) return (CUresult)(int)worst;
    code = cuStreamSynchronize(stream);
    if (code == CUDA_SUCCESS) code = cuStreamDestroy(stream);
    return code == CUDA_SUCCESS ? cuMemFree(to) : code;
}

// Mappings, contiguous in a reservation of 2 TiB.
static std::vector<std::pair<CUdeviceptr, size_t>> mappings;

static CUresult map(size_t bytes) {
    FIND(cuMemAddressReserve, "cuMemAddressReserve");
    FIND(cuMemCreate, "cuMemCreate");
    FIND(cuMemMap, "cuMemMap");
    FIND(cuMemSetAccess, "cuMemSetAccess");
    FIND(cuMemRelease, "cuMemRelease");
    static auto *fill = find<decltype(::cuMemsetD8)>("cuMemsetD8_v2");
    static CUdeviceptr start = 0;
    CUresult code = CUDA_SUCCESS;
    if (start == 0) code = cuMemAddressReserve(&start, size_t(2) << 40, 0, 0, 0);
    if (code != CUDA_SUCCESS) return code;
    CUdeviceptr to = mappings.empty() ? start : mappings.back().first + mappings.back().second;
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUmemAccessDesc access = {properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUmemGenericAllocationHandle handle = 0;
    code = cuMemCreate(&handle, bytes, &properties, 0);
    if (code != CUDA_SUCCESS) return code;
    code = cuMemMap(to, bytes, 0, handle, 0);
    if (code == CUDA_SUCCESS) code = cuMemRelease(handle);
    if (code == CUDA_SUCCESS) code = cuMemSetAccess(to, bytes, &access, 1);
    if (code == CUDA_SUCCESS) code = fill(to, 1, 1 << 20);
    mappings.push_back({to, bytes});
    return code;
}

static CUresult unmap() {
    FIND(cuMemUnmap, "cuMemUnmap");
    auto [start, bytes] = mappings.back();
    mappings.pop_back();
    return cuMemUnmap(start, bytes);
}

// Makes executable graphs with this number of fills or launches, and launches none: as many as there is room for, or
// `most`.
static std::vector<CUgraphExec> executables;

static CUresult make_graphs(size_t most, size_t steps, bool launches) {
    FIND(cuGraphCreate, "cuGraphCreate");
    FIND(cuModuleLoadData, "cuModuleLoadData");
    FIND(cuModuleGetFunction, "cuModuleGetFunction");
    static auto *add_kernel =
        find<CUresult(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *)>("cuGraphAddKernelNode_v2");
    FIND(cuGraphAddMemsetNode, "cuGraphAddMemsetNode");
    FIND(cuGraphDestroy, "cuGraphDestroy");
    FIND(cuMemAlloc, "cuMemAlloc_v2");
    FIND(cuCtxGetCurrent, "cuCtxGetCurrent");
    static auto *instantiate = find<CUresult(CUgraphExec *, CUgraph, unsigned long long)>("cuGraphInstantiateWithFlags");
    static CUdeviceptr to = 0;
    CUresult code = CUDA_SUCCESS;
    if (to == 0) code = cuMemAlloc(&to, 4);
    CUcontext context = nullptr;
    if (code == CUDA_SUCCESS) code = cuCtxGetCurrent(&context);
    CUgraph graph = nullptr;
    if (code == CUDA_SUCCESS) code = cuGraphCreate(&graph, 0);
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = to;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    static CUfunction nothing = nullptr;
    if (launches && nothing == nullptr) {
        CUmodule module = nullptr;
        const char *text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n";
        if (code == CUDA_SUCCESS) code = cuModuleLoadData(&module, text);
        if (code == CUDA_SUCCESS) code = cuModuleGetFunction(&nothing, module, "nothing");
    }
    CUDA_KERNEL_NODE_PARAMS launch{};
    launch.func = nothing;
    launch.gridDimX = launch.gridDimY = launch.gridDimZ = launch.blockDimX = launch.blockDimY = launch.blockDimZ = 1;
    CUgraphNode node = nullptr;
    for (size_t i = 0; i < steps && code == CUDA_SUCCESS; i++) {
        CUgraphNode before = node;
        code = launches ? add_kernel(&node, graph, &before, i ? 1 : 0, &launch)
                        : cuGraphAddMemsetNode(&node, graph, &before, i ? 1 : 0, &fill, context);
    }
    for (size_t i = 0; i < most && code == CUDA_SUCCESS; i++) {
        CUgraphExec made = nullptr;
        code = instantiate(&made, graph, 0);
        if (code == CUDA_SUCCESS) executables.push_back(made);
    }
    if (graph) cuGraphDestroy(graph);
    return code;
}

static void answer(const char *what, const std::string &text) {
    printf("%s %s\n", what, text.c_str());
    fflush(stdout);
}

// Reads bytes as numbers.
static void read_bytes(const char *at, unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char *end = nullptr;
        bytes[i] = (unsigned char)strtoul(at, &end, 10);
        at = end;
    }
}

// An exported allocation of a pool: the contents of the pool's descriptor, and the allocation's own data.
struct Pooled {
    unsigned char descriptor[80];
    CUmemPoolPtrExportData data;
};

// Allocates from a pool that others may import.
static CUresult share_pooled(size_t bytes, CUdeviceptr &memory, Pooled &pooled) {
    FIND(cuMemPoolCreate, "cuMemPoolCreate");
    FIND(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync");
    FIND(cuStreamSynchronize, "cuStreamSynchronize");
    FIND(cuMemPoolExportToShareableHandle, "cuMemPoolExportToShareableHandle");
    FIND(cuMemPoolExportPointer, "cuMemPoolExportPointer");
    static CUmemoryPool pool = nullptr;
    CUmemPoolProps properties{};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    CUresult code = pool ? CUDA_SUCCESS : cuMemPoolCreate(&pool, &properties);
    if (code == CUDA_SUCCESS) code = cuMemAllocFromPoolAsync(&memory, bytes, pool, nullptr);
    if (code == CUDA_SUCCESS) code = cuStreamSynchronize(nullptr);
    int descriptor = -1;
    if (code == CUDA_SUCCESS) code = cuMemPoolExportToShareableHandle(&descriptor, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code == CUDA_SUCCESS) code = cuMemPoolExportPointer(&pooled.data, memory);
    if (code == CUDA_SUCCESS && pread(descriptor, pooled.descriptor, sizeof pooled.descriptor, 0) != (ssize_t)sizeof pooled.descriptor)
        code = CUDA_ERROR_OPERATING_SYSTEM;
    close(descriptor);
    return code;
}

// Opens an allocation by what stands for it: with a descriptor of this program's own making, which the library takes
// for the pool's.
static CUresult open_pooled(const Pooled &pooled, CUdeviceptr &memory) {
    FIND(cuMemPoolImportFromShareableHandle, "cuMemPoolImportFromShareableHandle");
    FIND(cuMemPoolImportPointer, "cuMemPoolImportPointer");
    int descriptor = memfd_create("pool", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (descriptor < 0 || write(descriptor, pooled.descriptor, sizeof pooled.descriptor) != (ssize_t)sizeof pooled.descriptor ||
        fcntl(descriptor, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    CUmemoryPool pool = nullptr;
    CUresult code = cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    close(descriptor);
    CUmemPoolPtrExportData data = pooled.data;
    return code == CUDA_SUCCESS ? cuMemPoolImportPointer(&memory, pool, &data) : code;
}

int main() {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 2;
    }
    FIND(cuInit, "cuInit");
    FIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    FIND(cuCtxSetCurrent, "cuCtxSetCurrent");
    FIND(cuMemGetInfo, "cuMemGetInfo_v2");
    FIND(cuDeviceTotalMem, "cuDeviceTotalMem_v2");
    FIND(cuMemAlloc, "cuMemAlloc_v2");
    FIND(cuMemFree, "cuMemFree_v2");
    static auto *create = find<CUresult(CUcontext *, unsigned, CUdevice)>("cuCtxCreate_v2");
    FIND(cuCtxDestroy, "cuCtxDestroy_v2");
    FIND(cuModuleLoadData, "cuModuleLoadData");
    FIND(cuModuleUnload, "cuModuleUnload");
    FIND(cuArrayCreate, "cuArrayCreate_v2");
    FIND(cuArrayDestroy, "cuArrayDestroy");
    FIND(cuCtxSetLimit, "cuCtxSetLimit");
    FIND(cuMemAllocAsync, "cuMemAllocAsync");
    FIND(cuMemFreeAsync, "cuMemFreeAsync");
    FIND(cuDeviceGetDefaultMemPool, "cuDeviceGetDefaultMemPool");
    FIND(cuIpcGetMemHandle, "cuIpcGetMemHandle");
    FIND(cuIpcOpenMemHandle, "cuIpcOpenMemHandle_v2");
    FIND(cuIpcCloseMemHandle, "cuIpcCloseMemHandle");
    FIND(cuMemGetAddressRange, "cuMemGetAddressRange_v2");
    FIND(cuMemcpyDtoH, "cuMemcpyDtoH_v2");
    static auto *set_attribute = find<decltype(::cuMemPoolSetAttribute)>("cuMemPoolSetAttribute");
    static auto *get_attribute = find<decltype(::cuMemPoolGetAttribute)>("cuMemPoolGetAttribute");
    CUresult code = cuInit(0);
    static CUcontext context;
    if (code == CUDA_SUCCESS) code = cuDevicePrimaryCtxRetain(&context, 0);
    if (code == CUDA_SUCCESS) code = cuCtxSetCurrent(context);
    answer("open", std::to_string((int)code));
    if (code != CUDA_SUCCESS) return 3;
    static std::mutex lock;
    static std::vector<CUdeviceptr> held, opened;
    std::vector<CUcontext> contexts;
    std::vector<void *> greens;
    // NULL in place of a descriptor stands for all of the device.
    auto *create_green = find<CUresult(void **, void *, CUdevice, unsigned)>("cuGreenCtxCreate");
    auto *end_green = find<CUresult(void *)>("cuGreenCtxDestroy");
    auto make_green = [&](void **to, CUdevice device, void *descriptor, unsigned flags) {
        return create_green ? create_green(to, descriptor, device, flags) : CUDA_ERROR_NOT_SUPPORTED;
    };
    std::vector<CUmodule> modules;
    auto *load_library = find<CUresult(void **, const void *, void *, void *, unsigned, void *, void *, unsigned)>("cuLibraryLoadData");
    auto *get_kernel = find<CUresult(void **, void *, const char *)>("cuLibraryGetKernel");
    auto *unload_library = find<CUresult(void *)>("cuLibraryUnload");
    FIND(cuCtxGetCurrent, "cuCtxGetCurrent");
    std::vector<void *> libraries;
    std::vector<CUarray> arrays;
    char line[1024];
    while (fgets(line, sizeof line, stdin)) {
        char word[64] = "", name[64] = "";
        size_t first = 0, second = 0;
        sscanf(line, "%63s", word);
        if (!strcmp(word, "info")) {
            size_t free = 0, total = 0, device = 0;
            code = cuMemGetInfo(&free, &total);
            if (code == CUDA_SUCCESS) code = cuDeviceTotalMem(&device, 0);
            answer("info", std::to_string(free) + " " + std::to_string(total) + " " + std::to_string(device) + " " + std::to_string((int)code));
        } else if (!strcmp(word, "alloc")) {
            sscanf(line, "%*s %zu", &first);
            CUdeviceptr pointer = 0;
            code = cuMemAlloc(&pointer, first);
            if (code == CUDA_SUCCESS) held.push_back(pointer);
            answer("alloc", std::to_string((int)code));
        } else if (!strcmp(word, "fill")) {
            sscanf(line, "%*s %zu %zu", &first, &second);
            std::vector<std::thread> threads;
            std::atomic<size_t> count = 0;
            std::atomic<int> end = 0;
            for (size_t i = 0; i < first; i++)
                threads.emplace_back([&, second] {
                    cuCtxSetCurrent(context);
                    for (;;) {
                        CUdeviceptr pointer = 0;
                        CUresult code = cuMemAlloc(&pointer, second);
                        if (code != CUDA_SUCCESS) {
                            end = (int)code;
                            return;
                        }
                        count++;
                        std::lock_guard<std::mutex> guard(lock);
                        held.push_back(pointer);
                    }
                });
            for (auto &thread : threads) thread.join();
            answer("fill", std::to_string(count) + " " + std::to_string(end));
        } else if (!strcmp(word, "free")) {
            code = CUDA_SUCCESS;
            for (CUdeviceptr pointer : held)
                if (CUresult freed = cuMemFree(pointer)) code = freed;
            held.clear();
            answer("free", std::to_string((int)code));
        } else if (!strcmp(word, "async")) {
            sscanf(line, "%*s %zu", &first);
            CUdeviceptr pointer = 0;
            code = cuMemAllocAsync(&pointer, first, nullptr);
            if (code == CUDA_SUCCESS) held.push_back(pointer);
            answer("async", std::to_string((int)code));
        } else if (!strcmp(word, "freeasync")) {
            code = CUDA_SUCCESS;
            for (CUdeviceptr pointer : held)
                if (CUresult freed = cuMemFreeAsync(pointer, nullptr)) code = freed;
            held.clear();
            answer("freeasync", std::to_string((int)code));
        } else if (!strcmp(word, "threshold")) {
            sscanf(line, "%*s %zu", &first);
            cuuint64_t value = first;
            CUmemoryPool pool = nullptr;
            code = cuDeviceGetDefaultMemPool(&pool, 0);
            if (code == CUDA_SUCCESS) code = set_attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value);
            answer("threshold", std::to_string((int)code));
        } else if (!strcmp(word, "reserved")) {
            cuuint64_t used = 0, reserved = 0;
            CUmemoryPool pool = nullptr;
            code = cuDeviceGetDefaultMemPool(&pool, 0);
            if (code == CUDA_SUCCESS) code = get_attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
            if (code == CUDA_SUCCESS) code = get_attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
            answer("reserved", std::to_string(used) + " " + std::to_string(reserved) + " " + std::to_string((int)code));
        } else if (!strcmp(word, "graphs")) {
            sscanf(line, "%*s %zu %zu", &first, &second);
            code = make_graphs(first, second, false);
            answer("graphs", std::to_string((int)code));
        } else if (!strcmp(word, "launches")) {
            sscanf(line, "%*s %zu %zu", &first, &second);
            code = make_graphs(first, second, true);
            answer("launches", std::to_string((int)code));
        } else if (!strcmp(word, "ungraph")) {
            FIND(cuGraphExecDestroy, "cuGraphExecDestroy");
            code = CUDA_SUCCESS;
            for (CUgraphExec made : executables)
                if (CUresult ended = cuGraphExecDestroy(made)) code = ended;
            executables.clear();
            answer("ungraph", std::to_string((int)code));
        } else if (!strcmp(word, "context")) {
            CUcontext made = nullptr;
            code = create(&made, 0, 0);
            if (code == CUDA_SUCCESS) contexts.push_back(made);
            cuCtxSetCurrent(context);
            answer("context", std::to_string((int)code));
        } else if (!strcmp(word, "uncontext")) {
            code = cuCtxDestroy(contexts.back());
            contexts.pop_back();
            cuCtxSetCurrent(context);
            answer("uncontext", std::to_string((int)code));
        } else if (!strcmp(word, "green")) {
            void *made = nullptr;
            code = make_green(&made, 0, nullptr, 1);
            if (code == CUDA_SUCCESS) greens.push_back(made);
            answer("green", std::to_string((int)code));
        } else if (!strcmp(word, "ungreen")) {
            code = greens.empty() ? CUDA_ERROR_INVALID_VALUE : end_green(greens.back());
            if (!greens.empty()) greens.pop_back();
            answer("ungreen", std::to_string((int)code));
        } else if (!strcmp(word, "module")) {
            sscanf(line, "%*s %zu", &first);
            std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 large[" +
                               std::to_string(first) + "];\n";
            CUmodule module = nullptr;
            code = cuModuleLoadData(&module, text.c_str());
            if (code == CUDA_SUCCESS) modules.push_back(module);
            answer("module", std::to_string((int)code));
        } else if (!strcmp(word, "library")) {
            // Describes a kernel without a current context: the driver loads the library into the primary one.
            sscanf(line, "%*s %zu", &first);
            std::string text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .global .align 8 .b8 large[" +
                               std::to_string(first) +
                               "];\n.visible .entry use(.param .u64 to) { .reg .b64 %r<3>; ld.param.u64 %r1, [to]; "
                               "mov.u64 %r2, large; st.global.u64 [%r1], %r2; ret; }\n";
            CUcontext before = nullptr;
            cuCtxGetCurrent(&before);
            cuCtxSetCurrent(nullptr);
            void *library = nullptr, *kernel = nullptr;
            code = load_library(&library, text.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0);
            if (code == CUDA_SUCCESS) {
                libraries.push_back(library);
                code = get_kernel(&kernel, library, "use");
            }
            cuCtxSetCurrent(before);
            answer("library", std::to_string((int)code));
        } else if (!strcmp(word, "unlibrary")) {
            code = unload_library(libraries.back());
            libraries.pop_back();
            answer("unlibrary", std::to_string((int)code));
        } else if (!strcmp(word, "array")) {
            sscanf(line, "%*s %zu", &first);
            CUarray array = nullptr;
            CUDA_ARRAY_DESCRIPTOR what{16384, (first + (256 << 10) - 1) / (256 << 10), CU_AD_FORMAT_UNSIGNED_INT32, 4};
            code = cuArrayCreate(&array, &what);
            if (code == CUDA_SUCCESS) arrays.push_back(array);
            answer("array", std::to_string((int)code));
        } else if (!strcmp(word, "unarray")) {
            code = cuArrayDestroy(arrays.back());
            arrays.pop_back();
            answer("unarray", std::to_string((int)code));
        } else if (!strcmp(word, "unload")) {
            code = cuModuleUnload(modules.back());
            modules.pop_back();
            answer("unload", std::to_string((int)code));
        } else if (!strcmp(word, "limit")) {
            sscanf(line, "%*s %zu %zu", &first, &second);
            answer("limit", std::to_string((int)cuCtxSetLimit((CUlimit)first, second)));
        } else if (!strcmp(word, "flood")) {
            sscanf(line, "%*s %zu %zu", &first, &second);
            answer("flood", std::to_string((int)flood(context, first, second)));
        } else if (!strcmp(word, "map")) {
            sscanf(line, "%*s %zu", &first);
            answer("map", std::to_string((int)map(first)));
        } else if (!strcmp(word, "unmap")) {
            answer("unmap", std::to_string((int)unmap()));
        } else if (!strcmp(word, "share")) {
            CUipcMemHandle handle{};
            code = held.empty() ? CUDA_ERROR_INVALID_VALUE : cuIpcGetMemHandle(&handle, held.back());
            std::string text = std::to_string((int)code);
            for (unsigned char byte : handle.reserved)
                text += " " + std::to_string(byte);
            answer("share", text);
        } else if (!strcmp(word, "open")) {
            CUipcMemHandle handle{};
            read_bytes(line + strlen("open"), (unsigned char *)handle.reserved, sizeof handle.reserved);
            CUdeviceptr pointer = 0;
            code = cuIpcOpenMemHandle(&pointer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
            if (code == CUDA_SUCCESS) {
                opened.push_back(pointer);
                size_t bytes = 0;
                unsigned last = 0;
                code = cuMemGetAddressRange(nullptr, &bytes, pointer);
                if (code == CUDA_SUCCESS) code = cuMemcpyDtoH(&last, pointer + bytes - 4, 4);
            }
            answer("open", std::to_string((int)code));
        } else if (!strcmp(word, "close")) {
            code = opened.empty() ? CUDA_ERROR_INVALID_VALUE : cuIpcCloseMemHandle(opened.back());
            if (!opened.empty()) opened.pop_back();
            answer("close", std::to_string((int)code));
        } else if (!strcmp(word, "share-pooled")) {
            sscanf(line, "%*s %zu", &first);
            CUdeviceptr memory = 0;
            Pooled pooled{};
            code = share_pooled(first, memory, pooled);
            if (code == CUDA_SUCCESS) held.push_back(memory);
            std::string text = std::to_string((int)code);
            for (size_t i = 0; i < sizeof pooled; i++)
                text += " " + std::to_string(((unsigned char *)&pooled)[i]);
            answer(word, text);
        } else if (!strcmp(word, "open-pooled")) {
            Pooled pooled{};
            read_bytes(line + strlen("open-pooled"), (unsigned char *)&pooled, sizeof pooled);
            CUdeviceptr memory = 0;
            code = open_pooled(pooled, memory);
            unsigned last = 0;
            if (code == CUDA_SUCCESS) {
                opened.push_back(memory);
                code = cuMemcpyDtoH(&last, memory, 4);
            }
            answer(word, std::to_string((int)code));
        } else if (!strcmp(word, "free-pooled")) {
            code = opened.empty() ? CUDA_ERROR_INVALID_VALUE : cuMemFree(opened.back());
            if (!opened.empty()) opened.pop_back();
            answer(word, std::to_string((int)code));
        } else if (!strcmp(word, "way")) {
            sscanf(line, "%*s %63s %zu", name, &first);
            answer("way", way(name, first));
        } else {
            answer("unknown", line);
        }
    }
}
