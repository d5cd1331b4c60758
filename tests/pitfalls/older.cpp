/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// The rest of the driver API: functions of CUDA's first versions, and features that a machine lacks. The expected codes
// are those of an H100 with driver 580.
#include "driver.h"
#include <dlfcn.h>
#include <string>

// A function by its symbol: cuda.h maps the name without a suffix to the newest version.
template <typename... Arguments> static int call(const char *symbol, Arguments... arguments) {
    static void *library = dlopen("libcuda.so.1", RTLD_NOW);
    void *function = library ? dlsym(library, symbol) : nullptr;
    if (!function)
        pitfall::fail("there is no %s", symbol);
    return (int)((CUresult(*)(Arguments...))function)(arguments...);
}

#define IS(CODE, ...)                                                                                                  \
    do {                                                                                                               \
        int code_ = call(__VA_ARGS__);                                                                                 \
        if (code_ != (int)(CODE))                                                                                      \
            pitfall::fail("%s:%d: %s returned %d, expected %d", __FILE__, __LINE__, #__VA_ARGS__, code_, (int)(CODE)); \
    } while (0)

static unsigned word_at(CUdeviceptr at) {
    unsigned value = 0;
    CK(cuMemcpyDtoH(&value, at, 4));
    return value;
}

// Addresses of 32 bits are for contexts that no 64-bit process has; results are cleared all the same. Some programs
// load the library by its linker name, which NVIDIA's driver also has. Both names are one library.
PITFALL(50, the_library_has_two_names) {
    void *one = dlopen("libcuda.so.1", RTLD_NOW), *other = dlopen("libcuda.so", RTLD_NOW);
    if (!other && pitfall::backend() == "native")
        pitfall::skip("this machine's driver has no libcuda.so");
    EXPECT(one && one == other, "%p and %p: %s", one, other, other ? "two libraries" : dlerror());
}

PITFALL(50, addresses_of_32_bits_are_no_contexts) {
    Gpu gpu;
    unsigned narrow[2] = {7, 7}, other[2] = {7, 7};
    unsigned host[4] = {1, 2, 3, 4};
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemAlloc", narrow, 1024u);
    EXPECT(narrow[0] == 0 && narrow[1] == 7, "%u %u", narrow[0], narrow[1]);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemGetInfo", narrow, other);
    EXPECT(other[0] == 0 && other[1] == 7, "%u %u", other[0], other[1]);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemFree", 0u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemcpyHtoD", 0x1000u, (const void *)host, 4u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemcpyHtoD", 0x1000u, (const void *)host, 0u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemsetD32", 0x1000u, 1u, 0u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemGetAddressRange", narrow, other, 0x1000u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemcpy2D", (const void *)nullptr);
    void *pinned = host;
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemAllocHost", &pinned, 4096u);
    EXPECT(pinned == nullptr, "%p", pinned);
    // Those of arrays and references are no other, for all that some have no address.
    CUarray array = nullptr;
    unsigned form[4] = {64, 4, CU_AD_FORMAT_FLOAT, 1};
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuArrayCreate", &array, (const void *)form);
    IS(CUDA_ERROR_INVALID_HANDLE, "cuArrayGetDescriptor", (void *)form, (CUarray) nullptr);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemcpyHtoA", (CUarray) nullptr, 0u, (const void *)host, 4u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuMemcpyAtoD", 0x1000u, (CUarray) nullptr, 0u, 4u);
    void *reference = nullptr;
    IS(CUDA_SUCCESS, "cuTexRefCreate", &reference);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuTexRefSetAddress", narrow, reference, 0x1000u, 4u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuTexRefGetAddress", narrow, reference);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuTexRefSetAddress2D", reference, (const void *)form, 0x1000u, 256u);
    IS(CUDA_SUCCESS, "cuTexRefDestroy", reference);
    IS(CUDA_SUCCESS, "cuDeviceTotalMem", narrow, 0);
    size_t all = 0;
    CK(cuDeviceTotalMem(&all, 0));
    unsigned expected = all > 0xffffffffu ? 0xffffffffu : (unsigned)all;
    EXPECT(narrow[0] == expected && narrow[1] == 7, "%u, expected %u", narrow[0], expected);
    IS(CUDA_ERROR_INVALID_VALUE, "cuDeviceTotalMem", (unsigned *)nullptr, 0);
    IS(CUDA_ERROR_INVALID_DEVICE, "cuDeviceTotalMem", narrow, 99);
    CUcontext context = nullptr;
    IS(CUDA_ERROR_OUT_OF_MEMORY, "cuCtxCreate", &context, 0u, 0);
    IS(CUDA_ERROR_INVALID_VALUE, "cuCtxCreate", &context, 0x1000u, 0);
    IS(CUDA_ERROR_INVALID_DEVICE, "cuCtxCreate", &context, 0u, 99);
    IS(CUDA_ERROR_INVALID_VALUE, "cuCtxCreate", (CUcontext *)nullptr, 0u, 0);
}

PITFALL(50, older_contexts_are_pushed_popped_and_detached) {
    Gpu gpu;
    CUcontext made = nullptr, popped = nullptr, now = nullptr;
    IS(CUDA_SUCCESS, "cuCtxCreate_v2", &made, 0u, 0);
    IS(CUDA_SUCCESS, "cuCtxPopCurrent", &popped);
    CK(cuCtxGetCurrent(&now));
    EXPECT(popped == made && now == gpu.context, "the wrong context was popped");
    IS(CUDA_SUCCESS, "cuCtxPushCurrent", made);
    // One that the thread has already is not pushed again.
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuCtxPushCurrent", made);
    IS(CUDA_ERROR_INVALID_VALUE, "cuCtxPushCurrent", (CUcontext) nullptr);
    // Each attachment is one more use, and the last detachment is the end.
    CUcontext attached = nullptr;
    IS(CUDA_SUCCESS, "cuCtxAttach", &attached, 0u);
    EXPECT(attached == made, "another context was attached");
    IS(CUDA_SUCCESS, "cuCtxDetach", made);
    CK(cuCtxGetCurrent(&now));
    EXPECT(now == made, "the context ended with its first detachment");
    IS(CUDA_SUCCESS, "cuCtxDetach", made);
    CK(cuCtxGetCurrent(&now));
    EXPECT(now == gpu.context, "the context is still current");
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuCtxDetach", (CUcontext) nullptr);
}

PITFALL(50, older_registrations_are_as_the_newer) {
    Gpu gpu;
    void *memory = aligned_alloc(4096, 8192);
    memset(memory, 0, 8192);
    unsigned flags = 0;
    IS(CUDA_SUCCESS, "cuMemHostRegister", memory, (size_t)8192, 0u);
    CK(cuMemHostGetFlags(&flags, memory));
    IS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, "cuMemHostRegister", memory, (size_t)8192, 0u);
    CK(cuMemHostUnregister(memory));
}

// A function keeps what its launches take.
PITFALL(50, older_launches_take_what_the_function_keeps) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill"), none = gpu.function("no_params");
    CUdeviceptr words = device_words(1024);
    CUstream stream = new_stream();
    IS(CUDA_SUCCESS, "cuFuncSetBlockShape", fill, 32, 1, 1);
    IS(CUDA_SUCCESS, "cuParamSetv", fill, 0, (void *)&words, 8u);
    IS(CUDA_SUCCESS, "cuParamSeti", fill, 8, 7u);
    IS(CUDA_SUCCESS, "cuParamSeti", fill, 12, 100u);
    IS(CUDA_SUCCESS, "cuParamSetSize", fill, 16u);
    IS(CUDA_SUCCESS, "cuLaunchGrid", fill, 4, 1);
    CK(cuCtxSynchronize());
    EXPECT(word_at(words) == 7 && word_at(words + 4 * 99) == 7 && word_at(words + 4 * 100) == 0, "the launch filled other words");
    IS(CUDA_SUCCESS, "cuParamSeti", fill, 8, 9u);
    IS(CUDA_SUCCESS, "cuParamSeti", fill, 12, 32u);
    IS(CUDA_SUCCESS, "cuLaunch", fill);
    CK(cuCtxSynchronize());
    EXPECT(word_at(words) == 9 && word_at(words + 4 * 31) == 9 && word_at(words + 4 * 32) == 7, "one block filled other words");
    IS(CUDA_SUCCESS, "cuParamSeti", fill, 12, 64u);
    IS(CUDA_SUCCESS, "cuParamSeti", fill, 8, 11u);
    IS(CUDA_SUCCESS, "cuLaunchGridAsync", fill, 2, 1, stream);
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(words + 4 * 63) == 11, "the launch in a stream did nothing");
    // Without a shape a block is one thread.
    IS(CUDA_SUCCESS, "cuLaunch", none);
    // More parameters than the function has are too many; fewer are the program's affair.
    IS(CUDA_SUCCESS, "cuParamSetSize", none, 8u);
    IS(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "cuLaunch", none);
    IS(CUDA_SUCCESS, "cuParamSetSize", none, 0u);
    IS(CUDA_SUCCESS, "cuLaunch", none);
    CK(cuCtxSynchronize());
}

PITFALL(50, older_launches_have_limits) {
    Gpu gpu;
    CUfunction f = gpu.function("no_params");
    struct {
        int x, y, z, expected;
    } shapes[] = {{0, 1, 1, 1},  {-1, 1, 1, 1},   {1, 0, 1, 1},   {1024, 1, 1, 0}, {1025, 1, 1, 1},
                  {32, 32, 2, 1}, {1, 1, 64, 0},  {1, 1, 65, 1}, {70000, 1, 1, 1}};
    for (auto &of : shapes)
        IS(of.expected, "cuFuncSetBlockShape", f, of.x, of.y, of.z);
    IS(CUDA_SUCCESS, "cuFuncSetSharedSize", f, 48u << 10);
    IS(CUDA_ERROR_INVALID_VALUE, "cuFuncSetSharedSize", f, (48u << 10) + 1);
    IS(CUDA_SUCCESS, "cuFuncSetSharedSize", f, 0u);
    IS(CUDA_SUCCESS, "cuParamSetSize", f, 32764u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuParamSetSize", f, 32765u);
    IS(CUDA_SUCCESS, "cuParamSetSize", f, 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLaunchGrid", f, 0, 1);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLaunchGrid", f, -1, 1);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLaunchGrid", f, 1, 0);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLaunchGrid", f, 1, 65536);
    IS(CUDA_ERROR_INVALID_HANDLE, "cuFuncSetBlockShape", (CUfunction) nullptr, 1, 1, 1);
    IS(CUDA_ERROR_INVALID_HANDLE, "cuParamSetSize", (CUfunction) nullptr, 1u);
    IS(CUDA_ERROR_INVALID_HANDLE, "cuLaunch", (CUfunction) nullptr);
    CK(cuCtxSetCurrent(nullptr));
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuFuncSetBlockShape", f, 1, 1, 1);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuLaunch", f);
}

static std::string told;
static void tell(void *data, unsigned level, char *message, size_t length) {
    if (data != (void *)42 || level != 0 || strlen(message) != length)
        pitfall::fail("the callback was given %p, level %u, %zu", data, level, length);
    told += message;
    told += '\n';
}

// A failure is kept, and reported to each caller that asks.
PITFALL(29, failed_calls_are_in_the_log) {
    Gpu gpu;
    unsigned from = 0, at = 0;
    void *handle = nullptr;
    IS(CUDA_SUCCESS, "cuLogsCurrent", &from, 0u);
    IS(CUDA_SUCCESS, "cuLogsRegisterCallback", (void *)tell, (void *)42, &handle);
    CK_IS(cuCtxSetLimit((CUlimit)999, 1), CUDA_ERROR_INVALID_VALUE);
    const std::string said = "Returning 1 (CUDA_ERROR_INVALID_VALUE) from cuCtxSetLimit";
    EXPECT(told.find(said) != std::string::npos, "told: %s", told.c_str());
    std::vector<char> text(30000);
    size_t size = text.size();
    at = from;
    IS(CUDA_SUCCESS, "cuLogsDumpToMemory", &at, text.data(), &size, 0u);
    EXPECT(at > from && size == strlen(text.data()), "from %u to %u, %zu bytes", from, at, size);
    EXPECT(std::string(text.data()).find("[CUDA][E] " + said + "\n") != std::string::npos, "the dump is: %s", text.data());
    // From there on there is nothing.
    size = text.size();
    IS(CUDA_SUCCESS, "cuLogsDumpToMemory", &at, text.data(), &size, 0u);
    EXPECT(size == 0, "%zu bytes", size);
    // If none fits, the iterator stays.
    CK_IS(cuCtxSetLimit((CUlimit)999, 1), CUDA_ERROR_INVALID_VALUE);
    at = from;
    size = 10;
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsDumpToMemory", &at, text.data(), &size, 0u);
    EXPECT(at == from, "at %u of %u", at, from);
    at = 1000000;
    size = text.size();
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsDumpToMemory", &at, text.data(), &size, 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsDumpToMemory", (unsigned *)nullptr, (char *)nullptr, &size, 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsDumpToFile", (unsigned *)nullptr, (const char *)nullptr, 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsDumpToFile", (unsigned *)nullptr, "/nonexistent/x", 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsCurrent", (unsigned *)nullptr, 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsRegisterCallback", (void *)nullptr, (void *)nullptr, &handle);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLogsUnregisterCallback", (void *)nullptr);
    IS(CUDA_SUCCESS, "cuLogsUnregisterCallback", handle);
    told.clear();
    CK_IS(cuCtxSetLimit((CUlimit)999, 1), CUDA_ERROR_INVALID_VALUE);
    EXPECT(told.empty(), "told after it was unregistered: %s", told.c_str());
}

PITFALL(50, core_dumps_are_set_up) {
    Gpu gpu;
    char value[1100] = {};
    size_t size = 1;
    IS(CUDA_SUCCESS, "cuCoredumpGetAttributeGlobal", 2u, (void *)value, &size);
    EXPECT(value[0] == 1 && size == 1, "%d, %zu", value[0], size);
    size = 64;
    IS(CUDA_ERROR_INVALID_VALUE, "cuCoredumpGetAttributeGlobal", 1u, (void *)value, &size);
    size = 0;
    IS(CUDA_SUCCESS, "cuCoredumpGetAttributeGlobal", 1u, (void *)nullptr, &size);
    EXPECT(size == 1, "%zu", size);
    IS(CUDA_SUCCESS, "cuCoredumpGetAttributeGlobal", 5u, (void *)nullptr, &size);
    EXPECT(size == 1024, "%zu", size);
    strcpy(value, "/tmp/core.x");
    size = strlen(value) + 1;
    IS(CUDA_SUCCESS, "cuCoredumpSetAttributeGlobal", 5u, (void *)value, &size);
    memset(value, 0, sizeof value);
    size = 1023;
    IS(CUDA_SUCCESS, "cuCoredumpGetAttributeGlobal", 5u, (void *)value, &size);
    EXPECT(strcmp(value, "/tmp/core.x") == 0, "%.40s", value);
    size = 4;
    IS(CUDA_ERROR_INVALID_VALUE, "cuCoredumpSetAttributeGlobal", 1u, (void *)value, &size);
    size = 1;
    IS(CUDA_ERROR_INVALID_VALUE, "cuCoredumpSetAttributeGlobal", 8u, (void *)value, &size);
    // No context has its own pipe.
    IS(CUDA_ERROR_INVALID_VALUE, "cuCoredumpGetAttribute", 4u, (void *)value, &size);
    IS(CUDA_ERROR_INVALID_VALUE, "cuCoredumpGetAttribute", 6u, (void *)value, &size);
    CK(cuCtxSetCurrent(nullptr));
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuCoredumpGetAttribute", 1u, (void *)value, &size);
}

PITFALL(50, what_the_machine_has_none_of) {
    Gpu gpu;
    CUstream stream = new_stream();
    unsigned affinity[2] = {7, 7};
    IS(CUDA_SUCCESS, "cuCtxGetExecAffinity", (void *)affinity, 0u);
    EXPECT(affinity[0] == 0 && (int)affinity[1] == gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), "%u %u", affinity[0],
           affinity[1]);
    IS(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "cuCtxGetExecAffinity", (void *)affinity, 1u);
    int support = 7;
    IS(CUDA_SUCCESS, "cuDeviceGetExecAffinitySupport", &support, 0u, 0);
    EXPECT(support == 0, "%d", support);
    unsigned capability = 7, operation = 0;
    IS(CUDA_SUCCESS, "cuDeviceGetHostAtomicCapabilities", &capability, (const unsigned *)&operation, 1u, 0);
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED))
        EXPECT(capability == 0, "%x", capability);
    operation = 13;
    IS(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetHostAtomicCapabilities", &capability, (const unsigned *)&operation, 1u, 0);
    IS(CUDA_ERROR_INVALID_VALUE, "cuDeviceGetHostAtomicCapabilities", &capability, (const unsigned *)&operation, 0u, 0);
    operation = 0;
    IS(CUDA_ERROR_INVALID_DEVICE, "cuDeviceGetP2PAtomicCapabilities", &capability, (const unsigned *)&operation, 1u, 0, 0);
    IS(CUDA_SUCCESS, "cuFlushGPUDirectRDMAWrites", 0u, 100u);
    IS(CUDA_SUCCESS, "cuFlushGPUDirectRDMAWrites", 0u, 200u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuFlushGPUDirectRDMAWrites", 0u, 150u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuFlushGPUDirectRDMAWrites", 1u, 100u);
    IS(CUDA_ERROR_NOT_SUPPORTED, "cuProfilerInitialize", "a", "b", 0u);
    // Displays.
    void *none = nullptr;
    IS(CUDA_ERROR_INVALID_HANDLE, "cuGraphicsUnregisterResource", (void *)nullptr);
    IS(CUDA_ERROR_INVALID_VALUE, "cuGraphicsMapResources", 0u, (void **)nullptr, stream);
    IS(CUDA_ERROR_INVALID_HANDLE, "cuGraphicsMapResources", 1u, &none, stream);
    IS(CUDA_ERROR_OPERATING_SYSTEM, "cuGraphicsGLRegisterBuffer", &none, 1u, 0u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuGraphicsGLRegisterImage", &none, 1u, 7u, 0u);
    unsigned devices = 0, size = 0;
    int device = 0;
    IS(CUDA_ERROR_OPERATING_SYSTEM, "cuGLGetDevices_v2", &devices, &device, 1u, 1u);
    IS(CUDA_ERROR_OPERATING_SYSTEM, "cuGLCtxCreate_v2", &none, 0u, 0);
    IS(CUDA_ERROR_INVALID_DEVICE, "cuGLCtxCreate_v2", &none, 0u, 99);
    IS(CUDA_ERROR_OPERATING_SYSTEM, "cuGLInit");
    IS(CUDA_ERROR_OPERATING_SYSTEM, "cuGLRegisterBufferObject", 1u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuGLMapBufferObject_v2", &none, (size_t *)nullptr, 1u);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuGLMapBufferObject", &devices, &size, 1u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuGLUnregisterBufferObject", 1u);
    IS(CUDA_ERROR_UNKNOWN, "cuGraphicsEGLRegisterImage", &none, (void *)nullptr, 0u);
    IS(CUDA_ERROR_INVALID_HANDLE, "cuEGLStreamConsumerConnect", &none, (void *)nullptr);
    IS(CUDA_ERROR_INVALID_VALUE, "cuVDPAUGetDevice", &device, 0u, (void *)nullptr);
    IS(CUDA_ERROR_INVALID_CONTEXT, "cuGraphicsVDPAURegisterVideoSurface", &none, 0u, 0u);
    // Memory and semaphores of other interfaces.
    uint64_t description[16] = {1, 0xffffffff, 0, 65536};
    IS(CUDA_ERROR_UNKNOWN, "cuImportExternalMemory", &none, (const void *)description);
    description[3] = 0;
    IS(CUDA_ERROR_INVALID_VALUE, "cuImportExternalMemory", &none, (const void *)description);
    description[0] = 2;
    description[3] = 65536;
    IS(CUDA_ERROR_NOT_SUPPORTED, "cuImportExternalMemory", &none, (const void *)description);
    IS(CUDA_ERROR_INVALID_VALUE, "cuImportExternalMemory", &none, (const void *)nullptr);
    // For a semaphore these are flags, none of which are defined.
    IS(CUDA_ERROR_INVALID_VALUE, "cuImportExternalSemaphore", &none, (const void *)description);
    description[0] = 1;
    description[3] = 0;
    IS(CUDA_ERROR_UNKNOWN, "cuImportExternalSemaphore", &none, (const void *)description);
    IS(CUDA_ERROR_INVALID_VALUE, "cuDestroyExternalMemory", (void *)nullptr);
    IS(CUDA_ERROR_INVALID_VALUE, "cuSignalExternalSemaphoresAsync", (const void *)nullptr, (const void *)nullptr, 0u, stream);
    char list[64] = {};
    IS(CUDA_ERROR_INVALID_HANDLE, "cuDeviceGetNvSciSyncAttributes", (void *)nullptr, 0, 1);
    IS(CUDA_ERROR_NOT_SUPPORTED, "cuDeviceGetNvSciSyncAttributes", (void *)list, 0, 1);
    // Features that the device's attributes deny.
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED))
        IS(CUDA_ERROR_NOT_SUPPORTED, "cuMulticastCreate", (void *)nullptr, (const void *)nullptr);
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK))
        IS(CUDA_ERROR_NOT_SUPPORTED, "cuMemBatchDecompressAsync", (void *)nullptr, (size_t)0, 0u, (size_t *)nullptr, stream);
    CUdeviceptr words = device_words(1024);
    int fd = -1;
    IS(CUDA_ERROR_INVALID_VALUE, "cuMemGetHandleForAddressRange", (void *)&fd, words, (size_t)4096, 0u, 0ull);
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED))
        IS(CUDA_ERROR_NOT_SUPPORTED, "cuMemGetHandleForAddressRange", (void *)&fd, words, (size_t)4096, 1u, 0ull);
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS)) {
        CUlibrary library;
        CK(cuLibraryLoadData(&library, kernels_fatbin, nullptr, nullptr, 0, nullptr, nullptr, 0));
        IS(CUDA_ERROR_INVALID_VALUE, "cuLibraryGetUnifiedFunction", &none, library, "fill");
        IS(CUDA_ERROR_INVALID_HANDLE, "cuLibraryGetUnifiedFunction", &none, (CUlibrary) nullptr, "fill");
    }
}

// A batch of boxes, and what cannot be one.
PITFALL(82, batches_of_boxes) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUdeviceptr from = device_words(1024, 3), to = device_words(1024);
    struct Operand {
        unsigned type, pad;
        CUdeviceptr address;
        size_t row, layer;
        int hint[2];
    };
    struct Operation {
        Operand src, dst;
        size_t width, height, depth;
        unsigned access, flags;
    };
    static_assert(sizeof(Operation) == sizeof(CUDA_MEMCPY3D_BATCH_OP));
    Operation good = {{1, 0, from, 0, 0, {}}, {1, 0, to, 0, 0, {}}, 8, 2, 1, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM, 0};
    Operation both[2] = {good, good};
    both[1].dst.address = to + 1024;
    auto ask = [&](CUresult expected, size_t at, const char *what) {
        size_t failed = 77;
        int code = call("cuMemcpy3DBatchAsync", (size_t)2, (void *)both, &failed, 0ull, stream);
        EXPECT(code == expected && failed == at, "%s: %d at %zd", what, code, (ssize_t)failed);
        IS(expected, "cuMemcpy3DBatchAsync_v2", (size_t)2, (void *)both, 0ull, stream);
        CK(cuStreamSynchronize(stream));
        both[1] = good;
        both[1].dst.address = to + 1024;
    };
    ask(CUDA_SUCCESS, SIZE_MAX, "good");
    EXPECT(word_at(to) == 3 && word_at(to + 12) == 3 && word_at(to + 16) == 0 && word_at(to + 1024) == 3, "other words were copied");
    both[1].dst.row = 16;
    both[1].dst.layer = 4;
    set_words(to, 0, 1024);
    ask(CUDA_SUCCESS, SIZE_MAX, "rows apart");
    EXPECT(word_at(to + 1024) == 3 && word_at(to + 1032) == 0 && word_at(to + 1040) == 3, "the rows are not 16 bytes apart");
    both[1].flags = 1;
    ask(CUDA_SUCCESS, SIZE_MAX, "the flag that there is");
    both[1].src.row = 4;
    ask(CUDA_ERROR_INVALID_VALUE, 1, "rows too short");
    both[1].src.layer = 1;
    ask(CUDA_ERROR_INVALID_VALUE, 1, "layers too low");
    both[1].width = 0;
    ask(CUDA_ERROR_INVALID_VALUE, 1, "no width");
    both[1].access = 4;
    ask(CUDA_ERROR_INVALID_VALUE, 1, "no such order");
    both[1].flags = 2;
    ask(CUDA_ERROR_INVALID_VALUE, 1, "no such flag");
    both[1].src.type = 5;
    ask(CUDA_ERROR_INVALID_VALUE, 1, "no such type");
    // With an array, all lengths are in its elements.
    CUDA_ARRAY3D_DESCRIPTOR form = {8, 4, 0, CU_AD_FORMAT_UNSIGNED_INT16, 1, 0};
    CUarray array;
    CK(cuArray3DCreate(&array, &form));
    unsigned short numbers[24], got[24] = {};
    for (int at = 0; at < 24; at++)
        numbers[at] = at + 1;
    CUDA_MEMCPY3D_BATCH_OP boxes[2] = {};
    // Two rows of three, five from each other, to the second element of the second row; then back without gaps.
    boxes[0].src.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    boxes[0].src.op.ptr.ptr = (CUdeviceptr)numbers;
    boxes[0].src.op.ptr.rowLength = 5;
    boxes[0].dst.type = CU_MEMCPY_OPERAND_TYPE_ARRAY;
    boxes[0].dst.op.array.array = array;
    boxes[0].dst.op.array.offset = {1, 1, 0};
    boxes[0].extent = {3, 2, 1};
    boxes[0].srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    boxes[1] = boxes[0];
    boxes[1].src = boxes[0].dst;
    boxes[1].dst = boxes[0].src;
    boxes[1].dst.op.ptr.ptr = (CUdeviceptr)got;
    boxes[1].dst.op.ptr.rowLength = 0;
    for (auto &box : boxes) {
        IS(CUDA_SUCCESS, "cuMemcpy3DBatchAsync_v2", (size_t)1, (void *)&box, 0ull, stream);
        CK(cuStreamSynchronize(stream));
    }
    EXPECT(got[0] == 1 && got[2] == 3 && got[3] == 6 && got[5] == 8 && got[6] == 0, "%u %u %u %u %u", got[0], got[2], got[3], got[5], got[6]);
    boxes[0].dst.op.array.offset.x = 6;
    IS(CUDA_ERROR_INVALID_VALUE, "cuMemcpy3DBatchAsync_v2", (size_t)1, (void *)boxes, 0ull, stream);
    CK(cuArrayDestroy(array));
    size_t failed = 77;
    IS(CUDA_ERROR_INVALID_VALUE, "cuMemcpy3DBatchAsync", (size_t)2, (void *)both, &failed, 0ull, (CUstream) nullptr);
    EXPECT(failed == 77, "the legacy stream's batch failed at %zu", failed);
    IS(CUDA_ERROR_INVALID_VALUE, "cuMemcpy3DBatchAsync", (size_t)0, (void *)both, &failed, 0ull, stream);
    EXPECT(failed == SIZE_MAX, "%zu", failed);
    IS(CUDA_ERROR_INVALID_VALUE, "cuMemcpy3DBatchAsync_v2", (size_t)2, (void *)both, 1ull, stream);
}

PITFALL(50, functions_of_later_versions) {
    Gpu gpu;
    if (!dlsym(RTLD_DEFAULT, "cuMemcpyWithAttributesAsync"))
        pitfall::skip("the driver is of CUDA 13.1 or earlier");
    CUstream stream = new_stream();
    CUdeviceptr from = device_words(64, 3), to = device_words(64);
    CUmemcpyAttributes attributes = {};
    attributes.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    const char *copy = "cuMemcpyWithAttributesAsync";
    IS(CUDA_SUCCESS, copy, to, from, (size_t)4, &attributes, stream);
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(to) == 3 && word_at(to + 4) == 0, "%u and %u", word_at(to), word_at(to + 4));
    IS(CUDA_SUCCESS, "cuMemcpyWithAttributesAsync_ptsz", to + 4, from, (size_t)4, &attributes, (CUstream) nullptr);
    CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT(word_at(to + 4) == 3 && word_at(to + 8) == 0, "%u and %u", word_at(to + 4), word_at(to + 8));
    IS(CUDA_ERROR_INVALID_VALUE, copy, to, from, (size_t)4, &attributes, (CUstream) nullptr);
    IS(CUDA_ERROR_INVALID_VALUE, copy, to, from, (size_t)0, &attributes, stream);
    IS(CUDA_ERROR_INVALID_VALUE, copy, to, from, (size_t)4, (CUmemcpyAttributes *)nullptr, stream);
    attributes.flags = 2;
    IS(CUDA_ERROR_INVALID_VALUE, copy, to, from, (size_t)4, &attributes, stream);
    CUDA_MEMCPY3D_BATCH_OP rows = {};
    rows.src.type = rows.dst.type = CU_MEMCPY_OPERAND_TYPE_POINTER;
    rows.src.op.ptr.ptr = from;
    rows.dst.op.ptr.ptr = to + 64;
    rows.dst.op.ptr.rowLength = 8;
    rows.extent = {4, 2, 1};
    rows.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
    const char *boxes = "cuMemcpy3DWithAttributesAsync";
    IS(CUDA_SUCCESS, boxes, &rows, 0ull, stream);
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(to + 64) == 3 && word_at(to + 68) == 0 && word_at(to + 72) == 3, "the rows are not 8 bytes apart");
    IS(CUDA_ERROR_INVALID_VALUE, boxes, &rows, 1ull, stream);
    IS(CUDA_ERROR_INVALID_VALUE, boxes, (void *)nullptr, 0ull, stream);
    IS(CUDA_ERROR_INVALID_VALUE, boxes, &rows, 0ull, (CUstream) nullptr);
    rows.dst.op.ptr.ptr = to + 128;
    IS(CUDA_SUCCESS, "cuMemcpy3DWithAttributesAsync_ptsz", &rows, 0ull, (CUstream) nullptr);
    CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT(word_at(to + 128) == 3, "%u", word_at(to + 128));
    CUdevResource all = {}, group = {}, of = {};
    CK(cuCtxGetDevResource(gpu.context, &all, CU_DEV_RESOURCE_TYPE_SM));
    unsigned groups = 1;
    CK(cuDevSmResourceSplitByCount(&group, &groups, &all, nullptr, 0, 8));
    CUdevResourceDesc described;
    CUgreenCtx green;
    CUstream own;
    CK(cuDevResourceGenerateDesc(&described, &group, 1));
    CK(cuGreenCtxCreate(&green, described, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM));
    CK(cuGreenCtxStreamCreate(&own, green, CU_STREAM_NON_BLOCKING, 0));
    for (const char *name : {"cuStreamGetDevResource", "cuStreamGetDevResource_ptsz"}) {
        for (CUstream of_all : {stream, CUstream(nullptr), CU_STREAM_PER_THREAD}) {
            IS(CUDA_SUCCESS, name, of_all, &of, CU_DEV_RESOURCE_TYPE_SM);
            EXPECT(of.sm.smCount == all.sm.smCount, "%u of %u", of.sm.smCount, all.sm.smCount);
        }
        IS(CUDA_SUCCESS, name, own, &of, CU_DEV_RESOURCE_TYPE_SM);
        EXPECT(of.sm.smCount == group.sm.smCount, "%u of %u", of.sm.smCount, group.sm.smCount);
    }
    CK(cuStreamDestroy(own));
    CK(cuGreenCtxDestroy(green));
    CUfunction function = gpu.function("step");
    size_t count = 99, offset, size;
    IS(CUDA_SUCCESS, "cuFuncGetParamCount", function, &count);
    EXPECT(count > 0 && cuFuncGetParamInfo(function, count - 1, &offset, &size) == CUDA_SUCCESS, "%zu", count);
    CK_IS(cuFuncGetParamInfo(function, count, &offset, &size), CUDA_ERROR_INVALID_VALUE);
    IS(CUDA_ERROR_INVALID_VALUE, "cuFuncGetParamCount", function, (size_t *)nullptr);
    static int calls;
    calls = 0;
    CUhostFn call_back = [](void *) { calls++; };
    for (unsigned mode : {0u, 1u})
        IS(CUDA_SUCCESS, "cuLaunchHostFunc_v2", stream, call_back, (void *)nullptr, mode);
    IS(CUDA_SUCCESS, "cuLaunchHostFunc_v2_ptsz", (CUstream) nullptr, call_back, (void *)nullptr, 1u);
    IS(CUDA_ERROR_INVALID_VALUE, "cuLaunchHostFunc_v2", stream, call_back, (void *)nullptr, 2u);
    CK(cuStreamSynchronize(stream));
    CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT(calls == 3, "%d", calls);
}

PITFALL_MAIN
