// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Reset, retain, fork and exit; pools (pitfalls 58 to 61, 68).
#include "driver.h"
#include <dlfcn.h>

PITFALL(58, reset_leaves_nothing_stale) {
    CK(cuInit(0));
    CUdevice device;
    CK(cuDeviceGet(&device, 0));
    for (unsigned round = 0; round < (pitfall::large() ? 100u : 8u); round++) {
        Gpu gpu;
        CUstream stream = new_stream();
        CUdeviceptr memory = device_words(65536);
        std::vector<unsigned> got(65536);
        unsigned *pinned = pinned_words(65536, round);
        CK(cuMemcpyHtoDAsync(memory, pinned, 65536 * 4, stream));
        LAUNCH(gpu.function("step"), 1, 1, stream, memory, 2u, 1u);
        CK(cuStreamSynchronize(stream));
        CK(cuMemcpyDtoH(got.data(), memory, 65536 * 4));
        EXPECT(got[0] == round * 2 + 1, "round %u: %u", round, got[0]);
        EXPECT_WORDS(got.data() + 1, 65535, round);
        CK(cuDevicePrimaryCtxReset(device));
        unsigned flags = 0;
        int active = 1;
        CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
        EXPECT(!active, "active after its reset");
    }
}

PITFALL(58, reset_while_other_threads_hold_the_context) {
    Gpu gpu;
    std::atomic<int> stage{0};
    std::thread other([&] {
        CK(cuCtxSetCurrent(gpu.context));
        CUdeviceptr memory = device_words(16);
        stage = 1;
        while (stage < 2)
            std::this_thread::yield();
        // The context was destroyed; uses of this thread's remaining handles are errors and no crashes.
        CUcontext current = nullptr;
        OBSERVE("get_current_after_reset", cuCtxGetCurrent(&current));
        OBSERVE("alloc_after_reset", cuMemAlloc(&memory, 4096));
        OBSERVE("synchronize_after_reset", cuCtxSynchronize());
    });
    while (stage < 1)
        std::this_thread::yield();
    CK(cuDevicePrimaryCtxReset(gpu.device));
    stage = 2;
    other.join();
    Gpu again;
    CUdeviceptr memory = device_words(16, 5);
    unsigned got[16];
    CK(cuMemcpyDtoH(got, memory, sizeof got));
    EXPECT_WORDS(got, 16, 5);
}

// "Resetting the primary context does not release it." The context has one handle as long as the process lives.
PITFALL(58, the_primary_context_keeps_its_handle_and_references) {
    Gpu gpu;
    CUcontext again = nullptr;
    CUdeviceptr memory = 0;
    unsigned flags = 0;
    int active = -1;
    std::atomic<int> stage{0};
    std::thread other([&] {
        CK(cuCtxSetCurrent(gpu.context));
        CUdeviceptr own = device_words(16, 3);
        stage = 1;
        while (stage < 2)
            std::this_thread::yield();
        // The context is there again.
        own = device_words(16, 4);
        unsigned got[16];
        CK(cuMemcpyDtoH(got, own, sizeof got));
        EXPECT_WORDS(got, 16, 4);
    });
    while (stage < 1)
        std::this_thread::yield();
    CK(cuDevicePrimaryCtxReset(gpu.device));
    CK_IS(cuMemAlloc(&memory, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK(cuDevicePrimaryCtxGetState(gpu.device, &flags, &active));
    EXPECT(active == 0, "active after a reset");
    CK(cuDevicePrimaryCtxRetain(&again, gpu.device));
    EXPECT(again == gpu.context, "another handle");
    CK(cuMemAlloc(&memory, 64));
    stage = 2;
    other.join();
    // The reference of before the reset.
    CK(cuDevicePrimaryCtxRelease(gpu.device));
    CK(cuMemAlloc(&memory, 64));
    CK(cuDevicePrimaryCtxRelease(gpu.device));
    CK_IS(cuMemAlloc(&memory, 64), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK_IS(cuDevicePrimaryCtxRelease(gpu.device), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuDevicePrimaryCtxRetain(&again, gpu.device));
    EXPECT(again == gpu.context, "another handle after a release");
    CK(cuMemAlloc(&memory, 64));
}

PITFALL(59, retain_and_release_balance) {
    CK(cuInit(0));
    CUdevice device;
    CK(cuDeviceGet(&device, 0));
    unsigned flags = 9;
    int active = 9;
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(!active, "active before the first retain");
    pitfall::observed("flags_before=%u", flags);
    CUcontext first = nullptr, again = nullptr;
    CK(cuDevicePrimaryCtxRetain(&first, device));
    CK(cuDevicePrimaryCtxRetain(&again, device));
    EXPECT(first == again, "two primary contexts");
    std::thread([&] { CK(cuDevicePrimaryCtxRetain(&again, device)); }).join();
    EXPECT(first == again, "two primary contexts");
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active, "not active");
    OBSERVE("set_flags_while_active", cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_YIELD));
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    pitfall::observed("flags_while_active=%u", flags);
    CUcontext current = (CUcontext)0x77;
    CK(cuCtxGetCurrent(&current));
    EXPECT(current == nullptr, "a retain makes the context current");
    CK(cuDevicePrimaryCtxRelease(device));
    std::thread([&] { CK(cuDevicePrimaryCtxRelease(device)); }).join();
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active, "gone while it is still retained once");
    CK(cuDevicePrimaryCtxRelease(device));
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(!active, "active after the last release");
    OBSERVE("release_too_many", cuDevicePrimaryCtxRelease(device));
    CK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
    CK(cuDevicePrimaryCtxRetain(&first, device));
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active && (flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_BLOCKING_SYNC, "flags %u", flags);
    CK(cuCtxSetCurrent(first));
    CUdeviceptr memory = device_words(16, 4);
    CK(cuMemFree(memory));
    OBSERVE("destroy_of_primary", cuCtxDestroy(first));
}

static void works(unsigned value) {
    unsigned got[16];
    CUdeviceptr memory = device_words(16, value);
    CK(cuMemcpyDtoH(got, memory, sizeof got));
    EXPECT_WORDS(got, 16, value);
}

// Whatever the host has prepared, to the program there is no primary context before it retains one.
PITFALL(59, primary_context_before_the_first_retain) {
    CK(cuInit(0));
    CUdevice device;
    CK(cuDeviceGet(&device, 0));
    auto state = [&](bool expected_active, unsigned expected_flags, const char *when) {
        unsigned flags = 99;
        int active = 99;
        CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
        EXPECT(active == expected_active && flags == expected_flags, "%s: active %d, flags %u", when, active, flags);
    };
    state(false, 0, "at first");
    unsigned flags;
    EXPECT(cuDevicePrimaryCtxGetState(device, &flags, nullptr) == CUDA_ERROR_INVALID_VALUE, "a NULL pointer is accepted");
    EXPECT(cuDevicePrimaryCtxRelease(device) == CUDA_ERROR_INVALID_CONTEXT, "a context that is not retained is released");
    CK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_BLOCKING_SYNC));
    state(false, CU_CTX_SCHED_BLOCKING_SYNC, "after setting flags");
    EXPECT(cuDevicePrimaryCtxSetFlags(device, 0x100) == CUDA_ERROR_INVALID_VALUE, "flags that are none are accepted");
    CK(cuDevicePrimaryCtxReset(device));
    state(false, 0, "after a reset");
    CK(cuDevicePrimaryCtxSetFlags(device, CU_CTX_SCHED_YIELD));
    CUcontext primary, own;
    CK(cuDevicePrimaryCtxRetain(&primary, device));
    state(true, CU_CTX_SCHED_YIELD, "retained");
    CK(cuCtxSetCurrent(primary));
    CK(cuCtxGetFlags(&flags));
    EXPECT((flags & CU_CTX_SCHED_MASK) == CU_CTX_SCHED_YIELD, "the context has flags %u", flags);
    works(3);
    CK(cuDevicePrimaryCtxRelease(device));
    state(false, 0, "released");
    CK(cuDevicePrimaryCtxRetain(&primary, device));
    CK(cuDevicePrimaryCtxRelease(device));
    state(false, 0, "retained and released again");
    CK(cuCtxSetCurrent(nullptr));
    CK(cuCtxCreate(&own, nullptr, 0, device));
    state(false, 0, "beside a context of its own");
    works(4);
    CK(cuCtxDestroy(own));
}

// A program that makes its own context at once, and one that continues without any.
PITFALL(59, own_context_without_the_primary) {
    CK(cuInit(0));
    CUdevice device;
    CK(cuDeviceGet(&device, 0));
    CUcontext own, primary;
    CK(cuCtxCreate(&own, nullptr, 0, device));
    unsigned flags = 99;
    int active = 99;
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(!active && !flags, "active %d, flags %u", active, flags);
    works(4);
    CK(cuCtxDestroy(own));
    CK(cuDevicePrimaryCtxRetain(&primary, device));
    CK(cuCtxSetCurrent(primary));
    works(5);
    CK(cuDevicePrimaryCtxRelease(device));
}

// A thread's current context stays current when it ends. Calls that need no current context still work in this thread.
PITFALL(59, a_thread_whose_context_ended_goes_on) {
    CK(cuInit(0));
    CUdevice device;
    CK(cuDeviceGet(&device, 0));
    CUcontext other, primary;
    CK(cuCtxCreate(&other, nullptr, 0, device));
    CK(cuDevicePrimaryCtxRetain(&primary, device));
    CK(cuCtxSetCurrent(primary));
    CK(cuDevicePrimaryCtxRelease(device));
    CUdeviceptr memory;
    CK_IS(cuMemAlloc(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CUmemPoolProps props = {};
    props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    props.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    CUmemoryPool pool;
    CK(cuMemPoolCreate(&pool, &props));
    cuuint64_t kept = 1 << 20, found = 0;
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept));
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &found));
    EXPECT(found == kept, "the threshold is %llu", (unsigned long long)found);
    CK(cuMemPoolDestroy(pool));
    CK(cuCtxDestroy(other));
    CK_IS(cuMemAlloc(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CUcontext next;
    CK(cuCtxCreate(&next, nullptr, 0, device));
    works(4);
    CK(cuCtxDestroy(next));
}

// The child of a process that uses CUDA gets errors; its end takes nothing from the parent.
PITFALL(60, child_of_fork_leaves_the_parent_alone) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUdeviceptr word = device_words(1, 1);
    unsigned expected = 1, got = 0;
    for (int round = 0; round < 4; round++) {
        fflush(stdout);
        pid_t child = fork();
        if (child == 0) {
            alarm(10);
            CUdeviceptr memory = 0;
            int count = 0;
            if (round == 1) {
                OBSERVE("alloc_in_child", cuMemAlloc(&memory, 4096));
                OBSERVE("count_in_child", cuDeviceGetCount(&count));
                OBSERVE("sync_in_child", cuCtxSynchronize());
                OBSERVE("init_in_child", cuInit(0));
                OBSERVE("driver_version_in_child", cuDriverGetVersion(&count));
            }
            if (round % 2)
                exit(0); // destructors and at-exit handlers run
            _exit(0);
        }
        LAUNCH(step, 1, 1, nullptr, word, 3u, 1u);
        expected = expected * 3 + 1;
        int status = pitfall::wait_for(child);
        pitfall::observed("child_%d_ended=%d", round, status);
        LAUNCH(step, 1, 1, nullptr, word, 3u, 2u);
        expected = expected * 3 + 2;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == expected, "round %d: %u, expected %u", round, got, expected);
        CUdeviceptr memory = device_words(1000);
        CK(cuMemFree(memory));
    }
}

PITFALL(60, fork_before_init_works_in_the_child) {
    std::vector<pid_t> children;
    for (int i = 0; i < 3; i++) {
        pid_t child = fork();
        if (child == 0) {
            Gpu gpu;
            CUdeviceptr word = device_words(1, i);
            unsigned got = 99;
            LAUNCH(gpu.function("step"), 1, 1, nullptr, word, 2u, 7u);
            CK(cuMemcpyDtoH(&got, word, 4));
            _exit(got == 2u * i + 7 ? 0 : 5);
        }
        children.push_back(child);
    }
    Gpu gpu;
    CUdeviceptr word = device_words(1, 3);
    CK(cuMemFree(word));
    for (pid_t child : children) {
        int status = pitfall::wait_for(child);
        EXPECT(status == 0, "a child ended with %d", status);
    }
}

// A child that executes another program, as subprocess does.
// A program may ask for the version, and leave CUDA to its children.
PITFALL(60, a_version_is_no_initialisation) {
    int version = 0;
    CK(cuDriverGetVersion(&version));
    EXPECT(version >= 12000, "version %d", version);
    auto works = [] {
        CK(cuInit(0));
        int count = 0;
        CK(cuDeviceGetCount(&count));
        EXPECT(count > 0, "%d devices", count);
        Gpu gpu;
        CUdeviceptr word = device_words(1, 7);
        unsigned got = 0;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == 7, "%u", got);
    };
    for (int i = 0; i < 2; i++) {
        pid_t child = fork();
        if (child == 0) {
            int again = 0;
            CK(cuDriverGetVersion(&again));
            EXPECT(again == version, "version %d", again);
            works();
            _exit(0);
        }
        int status = pitfall::wait_for(child);
        EXPECT(status == 0, "a child ended with %d", status);
    }
    works();
}

PITFALL(60, exec_from_a_cuda_process) {
    Gpu gpu;
    CUdeviceptr word = device_words(1, 3);
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        if (child == 0) {
            execl("/bin/true", "true", (char *)nullptr);
            _exit(127);
        }
        int status = pitfall::wait_for(child);
        EXPECT(status == 0, "the child ended with %d", status);
        unsigned got = 0;
        CK(cuMemcpyDtoH(&got, word, 4));
        EXPECT(got == 3, "%u", got);
    }
}

struct FreesAtExit {
    CUdeviceptr memory = 0;
    CUstream stream = nullptr;
    bool armed = false;
    ~FreesAtExit() {
        if (!armed)
            return;
        CUresult free_code = cuMemFree(memory), stream_code = cuStreamDestroy(stream);
        pitfall::observed("in_static_destructor=%d,%d", (int)free_code, (int)stream_code);
        bool fine = (free_code == CUDA_SUCCESS || free_code == CUDA_ERROR_DEINITIALIZED) &&
                    (stream_code == CUDA_SUCCESS || stream_code == CUDA_ERROR_DEINITIALIZED);
        if (!fine)
            pitfall::fail("calls in a static destructor returned %d and %d", (int)free_code, (int)stream_code);
    }
};
static FreesAtExit at_exit; // constructed before libcuda is used: destroyed after what it registers at exit

PITFALL(61, static_destructor_calls_cuda) {
    Gpu gpu;
    at_exit.memory = device_words(1024);
    at_exit.stream = new_stream();
    at_exit.armed = true;
}

PITFALL(61, at_exit_handler_calls_cuda) {
    Gpu gpu;
    static CUdeviceptr memory;
    memory = device_words(1024);
    atexit([] {
        CUresult code = cuMemFree(memory);
        pitfall::observed("in_atexit=%d", (int)code);
        if (code != CUDA_SUCCESS && code != CUDA_ERROR_DEINITIALIZED)
            pitfall::fail("cuMemFree in an atexit handler returned %d", (int)code);
    });
}

PITFALL(61, exit_with_work_pending) {
    pid_t child = fork();
    if (child == 0) {
        Gpu gpu;
        CUstream stream = new_stream();
        CUdeviceptr device = device_words(1 << 20);
        unsigned *pinned = pinned_words(1 << 20);
        for (int i = 0; i < 50; i++) {
            LAUNCH(gpu.function("fill"), 1, 32, stream, device, (unsigned)i, 4096u);
            CK(cuMemcpyDtoHAsync(pinned, device, 4 << 20, stream));
        }
        exit(0);
    }
    int status = pitfall::wait_for(child);
    EXPECT(status == 0, "the process ended with %d", status);
}

PITFALL(61, exit_while_another_thread_launches) {
    pid_t child = fork();
    if (child == 0) {
        Gpu gpu;
        static std::atomic<int> launched{0};
        CUfunction step = gpu.function("step");
        CUdeviceptr word = device_words(1);
        std::thread([&gpu, step, word] {
            cuCtxSetCurrent(gpu.context);
            for (;;) {
                if (try_launch(step, 1, 1, nullptr, word, 1u, 1u) != CUDA_SUCCESS)
                    std::this_thread::yield();
                launched++;
            }
        }).detach();
        while (launched < 100)
            std::this_thread::yield();
        exit(0);
    }
    pitfall::observed("exit_while_launching=%d", pitfall::wait_for(child));
}

PITFALL(61, library_opened_and_closed) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 3; i++) {
            void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
            EXPECT(library, "%s", dlerror());
            auto init = (CUresult(*)(unsigned))dlsym(library, "cuInit");
            EXPECT(init && init(0) == CUDA_SUCCESS, "cuInit by dlsym");
            dlclose(library);
        }
        exit(0);
    }
    int status = pitfall::wait_for(child);
    EXPECT(status == 0, "the process ended with %d", status);
}

PITFALL(61, pthread_exit_of_the_main_thread) {
    pid_t child = fork();
    if (child == 0) {
        static Gpu gpu;
        std::thread([] {
            CK(cuCtxSetCurrent(gpu.context));
            for (int i = 0; i < 20; i++) {
                CUdeviceptr memory = device_words(64, 1);
                CK(cuMemFree(memory));
            }
            exit(0);
        }).detach();
        pthread_exit(nullptr);
    }
    int status = pitfall::wait_for(child);
    EXPECT(status == 0, "the process ended with %d", status);
}

PITFALL(68, pool_memory_after_free) {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)) {
        CUmemoryPool pool = nullptr;
        CUdeviceptr memory = 0;
        CUresult code = cuMemAllocAsync(&memory, 4096, nullptr);
        EXPECT(code != CUDA_SUCCESS, "the attribute says no pools, cuMemAllocAsync works");
        EXPECT(cuDeviceGetDefaultMemPool(&pool, gpu.device) != CUDA_SUCCESS, "the attribute says no pools, there is one");
        pitfall::skip("no memory pools");
    }
    CUmemoryPool pool;
    CK(cuDeviceGetDefaultMemPool(&pool, gpu.device));
    cuuint64_t threshold = ~0ull, used = 0, reserved = 0, high = 0;
    CK(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    std::vector<unsigned> got(1024);
    for (unsigned round = 0; round < 50; round++) {
        CUdeviceptr a = 0, b = 0;
        CK(cuMemAllocAsync(&a, 4096, stream));
        CK(cuMemAllocAsync(&b, (1 + round % 8) << 20, stream));
        EXPECT(a != b, "one address twice");
        LAUNCH(fill, 1, 64, stream, a, round, 1024u);
        LAUNCH(fill, 1, 64, stream, b, round + 1, 1024u);
        CK(cuMemcpyDtoHAsync(got.data(), a, 4096, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(got.data(), 1024, round);
        CK(cuMemFreeAsync(b, stream));
        CK(cuMemFreeAsync(a, stream));
    }
    CK(cuStreamSynchronize(stream));
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high));
    EXPECT(used == 0, "%llu bytes used after every free", (unsigned long long)used);
    EXPECT(reserved >= 8 << 20, "%llu bytes reserved under an unlimited threshold", (unsigned long long)reserved);
    EXPECT(high >= 8 << 20, "high-water mark %llu", (unsigned long long)high);
    CK(cuMemPoolTrimTo(pool, 0));
    CK(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    EXPECT(reserved == 0, "%llu bytes reserved after a trim to 0", (unsigned long long)reserved);
    // cuMemFree is for pool memory, too.
    CUdeviceptr memory = 0;
    CK(cuMemAllocAsync(&memory, 4096, stream));
    CK(cuStreamSynchronize(stream));
    CK(cuMemFree(memory));
}

PITFALL_MAIN
