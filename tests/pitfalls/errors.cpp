// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Errors: when they show, how long they last, their names (pitfalls 29, 30, 32).
#include "driver.h"

// After a corrupting error the process's CUDA is over; its end is not what these tests are about.
[[noreturn]] static void pass_at_once() {
    _exit(write(STDOUT_FILENO, "@PASS\n", 6) == 6 ? 0 : 1);
}

PITFALL(29, failed_call_shows_by_the_next_sync) {
    Gpu gpu;
    CUstream stream = new_stream();
    unsigned value = 1;
    unsigned *pinned = pinned_words(1024);
    // An unused address. It may be refused by the call or by the synchronisation, but must not succeed.
    CUdeviceptr nowhere = 0x123450000ull;
    CUresult at_call = cuMemcpyHtoDAsync(nowhere, pinned, 4096, stream);
    CUresult at_sync = cuStreamSynchronize(stream);
    pitfall::observed("bad_destination=%d,%d", (int)at_call, (int)at_sync);
    EXPECT(at_call != CUDA_SUCCESS || at_sync != CUDA_SUCCESS, "a copy to nowhere succeeded");
    at_call = cuMemsetD32Async(nowhere, 1, 1024, stream);
    at_sync = cuStreamSynchronize(stream);
    pitfall::observed("bad_memset=%d,%d", (int)at_call, (int)at_sync);
    EXPECT(at_call != CUDA_SUCCESS || at_sync != CUDA_SUCCESS, "a memset of nowhere succeeded");
    // Such an error is not sticky.
    CUdeviceptr word = device_words(1);
    CK(cuMemcpyHtoD(word, &value, 4));
    CUstream none = (CUstream)0x77;
    CK_IS(cuStreamCreate(&none, 0xff), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    // Beyond the end of an allocation.
    CUdeviceptr device = device_words(1024);
    std::vector<unsigned> host(1 << 20);
    CUresult beyond = cuMemcpyDtoH(host.data(), device + (size_t(1) << 40), 4096);
    EXPECT(beyond == CUDA_ERROR_INVALID_VALUE, "copy from beyond every allocation: %d", (int)beyond);
    CK(cuCtxSynchronize());
}

static void sticky(const char *kernel, int expected) {
    // A sibling process, started before any CUDA call, must not notice.
    int go[2];
    EXPECT(pipe(go) == 0, "pipe");
    pid_t sibling = fork();
    if (sibling == 0) {
        Gpu gpu;
        char byte;
        ::close(go[1]);
        ssize_t ignored = read(go[0], &byte, 1);
        (void)ignored;
        std::vector<unsigned> got(1024);
        CUdeviceptr memory = device_words(1024);
        LAUNCH(gpu.function("fill"), 1, 32, nullptr, memory, 9u, 1024u);
        CK(cuMemcpyDtoH(got.data(), memory, 4096));
        EXPECT_WORDS(got.data(), 1024, 9);
        _exit(0);
    }
    Gpu gpu;
    CUstream stream = new_stream(), other = new_stream();
    CUevent event;
    CK(cuEventCreate(&event, 0));
    CUfunction fill = gpu.function("fill");
    CUdeviceptr word = device_words(64), memory = 0;
    unsigned *pinned = pinned_words(64);
    // Small pinned memory that is kept for the next allocation.
    void *kept = nullptr;
    CK(cuMemAllocHost(&kept, 4096));
    CK(cuMemFreeHost(kept));
    CUfunction bad = gpu.function(kernel);
    CUdeviceptr nowhere = 0x10;
    void *params[] = {&nowhere};
    CK(cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, stream, params, nullptr));
    CUresult first = cuStreamSynchronize(stream);
    pitfall::observed("first=%d", (int)first);
    EXPECT(first != CUDA_SUCCESS && (expected == 0 || (int)first == expected), "cuStreamSynchronize returned %d", (int)first);
    unsigned value = 0;
    CUcontext current = nullptr;
    size_t free_bytes = 0, total = 0;
    CUmodule module = nullptr;
    void *host = nullptr;
    struct Result {
        const char *call;
        CUresult code;
        bool must_repeat;
    };
    CUstream made = nullptr;
    Result results[] = {
        {"cuStreamSynchronize", cuStreamSynchronize(stream), true},
        {"cuStreamSynchronize_other", cuStreamSynchronize(other), true},
        {"cuCtxSynchronize", cuCtxSynchronize(), true},
        {"cuStreamQuery", cuStreamQuery(stream), true},
        {"cuMemAlloc", cuMemAlloc(&memory, 4096), true},
        {"cuMemcpyDtoH", cuMemcpyDtoH(&value, word, 4), true},
        {"cuMemcpyHtoD", cuMemcpyHtoD(word, &value, 4), true},
        {"cuMemcpyDtoHAsync", cuMemcpyDtoHAsync(pinned, word, 4, other), true},
        {"cuMemsetD32", cuMemsetD32(word, 1, 64), true},
        {"cuLaunchKernel", try_launch(fill, 1, 32, other, word, 1u, 64u), true},
        {"cuStreamCreate", cuStreamCreate(&made, 0), false},
        {"cuEventRecord", cuEventRecord(event, other), false},
        {"cuEventQuery", cuEventQuery(event), false},
        {"cuEventSynchronize", cuEventSynchronize(event), false},
        {"cuMemGetInfo", cuMemGetInfo(&free_bytes, &total), false},
        {"cuModuleLoadData", cuModuleLoadData(&module, kernels_fatbin), false},
        {"cuMemAllocHost", cuMemAllocHost(&host, 4096), false},
        {"cuMemFree", cuMemFree(word), false},
        {"cuMemFreeHost", cuMemFreeHost(pinned), false},
        {"cuStreamDestroy", cuStreamDestroy(other), false},
        {"cuEventDestroy", cuEventDestroy(event), false},
        {"cuCtxGetCurrent", cuCtxGetCurrent(&current), false},
        {"cuCtxSynchronize_again", cuCtxSynchronize(), true},
    };
    for (auto &result : results)
        pitfall::observed("%s=%d", result.call, (int)result.code);
    EXPECT(host == nullptr, "pinned memory was allocated");
    for (auto &result : results)
        EXPECT(!result.must_repeat || result.code == first, "%s returned %d after %d", result.call, (int)result.code, (int)first);
    ::close(go[0]);
    ::close(go[1]);
    int status = pitfall::wait_for(sibling);
    EXPECT(status == 0, "the sibling process ended with %d", status);
    pass_at_once();
}

PITFALL(30, illegal_address_is_sticky) { sticky("illegal_store", CUDA_ERROR_ILLEGAL_ADDRESS); }
PITFALL(30, trap_is_sticky) { sticky("trap", 0); }

// After such an error the process exits normally.
PITFALL(30, process_ends_after_a_sticky_error) {
    pid_t child = fork();
    if (child == 0) {
        Gpu gpu;
        CUdeviceptr nowhere = 0x10;
        LAUNCH(gpu.function("illegal_store"), 1, 1, nullptr, nowhere);
        CUresult code = cuCtxSynchronize();
        CUdeviceptr memory = 0;
        for (int i = 0; i < 50; i++) {
            CUresult now = cuMemAlloc(&memory, 1 << 20);
            EXPECT(now == code, "call %d: %d after %d", i, (int)now, (int)code);
        }
        exit(0);
    }
    int status = pitfall::wait_for(child);
    EXPECT(status == 0, "the process ended with %d", status);
    Gpu gpu; // and the next process, this one, has a working device
    CUdeviceptr memory = device_words(1024, 3);
    CK(cuMemFree(memory));
}

PITFALL(30, ordinary_errors_do_not_stick) {
    Gpu gpu;
    CUdeviceptr memory = 0, word = device_words(4);
    CUfunction function;
    unsigned value = 0;
    for (int i = 0; i < 20; i++) {
        CK_IS(cuMemAlloc(&memory, size_t(1) << 50), CUDA_ERROR_OUT_OF_MEMORY);
        CK(cuMemcpyDtoH(&value, word, 4));
        CK_IS(cuModuleGetFunction(&function, gpu.module(), "missing"), CUDA_ERROR_NOT_FOUND);
        CK(cuCtxSynchronize());
        CK_IS(cuMemFree(word + 4), CUDA_ERROR_INVALID_VALUE);
        CK(cuStreamSynchronize(nullptr));
    }
}

PITFALL(32, before_init) {
    int count = -1, version = 0;
    CUdevice device = -1;
    CUcontext context = nullptr;
    CUdeviceptr memory = 0;
    CK_IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
    CK_IS(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED);
    CK_IS(cuMemAlloc(&memory, 4096), CUDA_ERROR_NOT_INITIALIZED);
    CK_IS(cuCtxGetCurrent(&context), CUDA_ERROR_NOT_INITIALIZED);
    CK_IS(cuCtxSynchronize(), CUDA_ERROR_NOT_INITIALIZED);
    CK(cuDriverGetVersion(&version));
    const char *name = nullptr;
    CK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &name));
    EXPECT(name && strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY") == 0, "%s", name ? name : "null");
    CK_IS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
    CK(cuInit(0));
    CK(cuInit(0));
    CK(cuDeviceGetCount(&count));
    EXPECT(count > 0, "%d devices", count);
    // No context yet.
    CK_IS(cuMemAlloc(&memory, 4096), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuCtxGetCurrent(&context));
    EXPECT(context == nullptr, "a context is current before any was made");
    CK_IS(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    CUdevice current = -1;
    CK_IS(cuCtxGetDevice(&current), CUDA_ERROR_INVALID_CONTEXT);
}

PITFALL(32, classes) {
    Gpu gpu;
    int count = 0, value = 0;
    CK(cuDeviceGetCount(&count));
    CUdevice device = -1;
    CK_IS(cuDeviceGet(&device, count), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(cuDeviceGet(&device, -1), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(cuDeviceGetAttribute(&value, (CUdevice_attribute)9999, gpu.device), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, count + 5), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(cuDeviceGetCount(nullptr), CUDA_ERROR_INVALID_VALUE);
    EXPECT(gpu.attribute(CU_DEVICE_ATTRIBUTE_WARP_SIZE) == 32, "warp size");
    char name[256] = "";
    CK(cuDeviceGetName(name, sizeof name, gpu.device));
    EXPECT(name[0], "the device has no name");
    char little[4] = "xyz";
    OBSERVE("name_into_4_bytes", cuDeviceGetName(little, 4, gpu.device));
    CUuuid uuid = {}, again = {};
    CK(cuDeviceGetUuid(&uuid, gpu.device));
    CK(cuDeviceGetUuid(&again, gpu.device));
    EXPECT(memcmp(&uuid, &again, 16) == 0, "the UUID changes");
    char bus[32] = "";
    CK(cuDeviceGetPCIBusId(bus, sizeof bus, gpu.device));
    CUdevice by_bus = -1;
    CK(cuDeviceGetByPCIBusId(&by_bus, bus));
    EXPECT(by_bus == gpu.device, "%s is device %d", bus, by_bus);
    CUdeviceptr memory = device_words(16);
    CK(cuMemFree(memory));
    CK_IS(cuMemFree(memory), CUDA_ERROR_INVALID_VALUE);
    OBSERVE("free_of_null", cuMemFree(0));
    CK_IS(cuMemcpyHtoD(0, name, 16), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAlloc(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
    CUevent event;
    CK_IS(cuEventCreate(&event, 0xffff), CUDA_ERROR_INVALID_VALUE);
}

PITFALL(32, names_of_every_code) {
    // Without cuInit: the strings are the library's own and stay where they are.
    uint64_t hash = 1469598103934665603ull;
    int named = 0;
    for (int code = 0; code < 1100; code++) {
        const char *name = (const char *)0x77, *text = (const char *)0x77, *again = nullptr;
        CUresult got = cuGetErrorName((CUresult)code, &name);
        CUresult got_text = cuGetErrorString((CUresult)code, &text);
        EXPECT(got == got_text, "code %d: cuGetErrorName %d, cuGetErrorString %d", code, (int)got, (int)got_text);
        if (got != CUDA_SUCCESS) {
            EXPECT(got == CUDA_ERROR_INVALID_VALUE && !name && !text, "code %d: %d, name %p", code, (int)got, (const void *)name);
            continue;
        }
        cuGetErrorName((CUresult)code, &again);
        EXPECT(again == name && *name && *text, "the name of code %d moved", code);
        pitfall::observed("%d=%s", code, name);
        for (const char *at = text; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211ull;
        named++;
    }
    EXPECT(named > 60, "%d codes have names", named);
    pitfall::observed("hash_of_strings=%llx", (unsigned long long)hash);
}

PITFALL_MAIN
