/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Shared by the driver-API programs: checked calls, the kernels' module and the gate that holds a stream back.
#pragma once

#include "harness.h"
#include <cuda.h>
#include <mutex>

extern "C" const unsigned char kernels_fatbin[]; // kernels.cu, embedded by kernels_fatbin.S
extern "C" const char kernels_ptx[];             // the same as PTX text, with a closing zero byte

inline const char *name_of(CUresult code) {
    const char *name = nullptr;
    if (cuGetErrorName(code, &name) != CUDA_SUCCESS || !name)
        name = "unnamed error";
    return name;
}

// The call must succeed.
#define CK(CALL)                                                                                                       \
    do {                                                                                                               \
        CUresult code_ = (CALL);                                                                                       \
        if (code_ != CUDA_SUCCESS)                                                                                     \
            pitfall::fail("%s:%d: %s returned %d (%s)", __FILE__, __LINE__, #CALL, (int)code_, name_of(code_));        \
    } while (0)

// The call must return exactly this code.
#define CK_IS(CALL, CODE)                                                                                              \
    do {                                                                                                               \
        CUresult code_ = (CALL);                                                                                       \
        if (code_ != (CODE))                                                                                           \
            pitfall::fail("%s:%d: %s returned %d (%s), expected %d (%s)", __FILE__, __LINE__, #CALL, (int)code_,        \
                          name_of(code_), (int)(CODE), name_of(CODE));                                                 \
    } while (0)

// The call's result is compared between the native run and ours.
#define OBSERVE(KEY, CALL) pitfall::observed("%s=%d", KEY, (int)(CALL))

// Device 0 with its primary context current, and the kernels of kernels.cu.
struct Gpu {
    CUdevice device = 0;
    CUcontext context = nullptr;

    Gpu() {
        CK(cuInit(0));
        CK(cuDeviceGet(&device, 0));
        CK(cuDevicePrimaryCtxRetain(&context, device));
        CK(cuCtxSetCurrent(context));
    }

    // The kernels, loaded when the first one is needed. A gate needs one, so they are never loaded behind a spinning
    // kernel.
    CUmodule module() const {
        static std::mutex lock;
        std::lock_guard<std::mutex> guard(lock);
        if (!mine) {
            char log[1024] = "";
            CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
            void *values[] = {log, (void *)sizeof log};
            CUresult code = cuModuleLoadDataEx(&mine, kernels_fatbin, 2, options, values);
            if (code != CUDA_SUCCESS)
                pitfall::fail("the kernels do not load: %d (%s), log: %.900s", (int)code, name_of(code), log);
        }
        return mine;
    }

    CUfunction function(const char *name) const {
        CUfunction found = nullptr;
        CK(cuModuleGetFunction(&found, module(), name));
        // Load now what is loaded lazily, not behind a spinning kernel.
        int registers = 0;
        CK(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, found));
        return found;
    }

    int attribute(CUdevice_attribute which) const {
        int value = -1;
        CK(cuDeviceGetAttribute(&value, which, device));
        return value;
    }

    // Whether it has more memory than the software GPU: then it is slower to make contexts, and other programs may use it.
    bool is_large() const {
        size_t bytes = 0;
        CK(cuDeviceTotalMem(&bytes, device));
        return bytes > 8ull << 30;
    }

  private:
    mutable CUmodule mine = nullptr;
};

// Two devices, each with its primary context. The first reaches the second's memory, if a test needs that.
struct Two {
    Gpu first;
    CUdevice device = 1;
    CUcontext context = nullptr;

    explicit Two(bool reaches = true) {
        int count = 0, can = 0;
        CK(cuDeviceGetCount(&count));
        if (count < 2)
            pitfall::skip("one device");
        CK(cuDeviceCanAccessPeer(&can, first.device, device));
        if (reaches && !can)
            pitfall::skip("the devices cannot reach each other's memory");
        CK(cuDevicePrimaryCtxRetain(&context, device));
    }
};

inline size_t free_bytes() {
    size_t free = 0, total = 0;
    CK(cuMemGetInfo(&free, &total));
    return free;
}

// The test fails if `work` takes more than this many bytes of the device each time. Other processes also take memory,
// the worker that starts for the next program for example, but they do so once.
template <class Work> void expect_kept(size_t allowed, Work work) {
    size_t lost = 0;
    for (int attempt = 0; attempt < 3; attempt++) {
        const size_t before = free_bytes();
        work();
        const size_t after = free_bytes();
        lost = before > after ? before - after : 0;
        if (lost <= allowed)
            return;
    }
    EXPECT(lost <= allowed, "%zu bytes are no longer free", lost);
}

inline CUstream new_stream(bool non_blocking = true) {
    CUstream stream;
    CK(cuStreamCreate(&stream, non_blocking ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
    return stream;
}

inline CUcontext pop_context() {
    CUcontext popped = nullptr;
    CK(cuCtxPopCurrent(&popped));
    return popped;
}

// Fills words before any later work, in a stream of any kind: a fill does not wait for non-blocking streams.
inline void set_words(CUdeviceptr words, unsigned value, size_t count) {
    CK(cuMemsetD32(words, value, count));
    CK(cuCtxSynchronize());
}

inline CUdeviceptr device_words(size_t count, unsigned value = 0) {
    CUdeviceptr memory = 0;
    CK(cuMemAlloc(&memory, count * 4));
    set_words(memory, value, count);
    return memory;
}

inline unsigned *pinned_words(size_t count, unsigned value = 0) {
    void *memory = nullptr;
    CK(cuMemAllocHost(&memory, count * 4));
    std::fill_n((unsigned *)memory, count, value);
    return (unsigned *)memory;
}

template <typename... Arguments> CUresult try_launch(CUfunction f, unsigned grid, unsigned block, CUstream s, Arguments... args) {
    void *params[] = {(void *)&args..., nullptr};
    return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, s, params, nullptr);
}

#define LAUNCH(...) CK(try_launch(__VA_ARGS__))

// Holds a stream back until it is opened: one thread of one block that spins on a word of mapped pinned memory. The
// spinning is bounded by the GPU's clock, so nothing hangs for ever; a gate that ran out was never opened in time,
// which the destructor reports: some call waited for the GPU that must not.
class Gate {
  public:
    explicit Gate(const Gpu &gpu) {
        kernel = gpu.function("gate");
        void *memory = nullptr;
        CK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_PORTABLE));
        words = (volatile unsigned *)memory;
        words[0] = 0;
        words[64] = 0;
        CK(cuMemHostGetDevicePointer(&address, memory, 0));
    }
    Gate(const Gate &) = delete;
    ~Gate() {
        open();
        if (later.joinable())
            later.join();
        check();
    }

    void close(CUstream stream) {
        words[0] = 0;
        long long clocks = 15'000'000'000; // 8 s or so on a GPU
        LAUNCH(kernel, 1, 1, stream, address, address + 256, clocks);
    }
    void open() {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        words[0] = 1;
    }
    bool is_open() const { return words[0] != 0; }
    // Another thread opens the gate in a while. The delay only widens the window in which a wrong order would show: no
    // verdict "right" or "wrong" of a call that waits for the gate depends on it.
    void open_later(double delay = 0.05) {
        if (later.joinable())
            later.join();
        later = std::thread([this, delay] {
            std::this_thread::sleep_for(std::chrono::duration<double>(delay));
            open();
        });
    }
    void wait_opened() {
        if (later.joinable())
            later.join();
    }
    // Whether its kernel ran out of time; forgets it.
    bool was_given_up() {
        bool was = words[64] != 0;
        words[64] = 0;
        return was;
    }
    void check() {
        if (was_given_up())
            pitfall::fail("a call waited for a stream that it must not wait for (the gate's kernel ran out of time)");
    }

  private:
    CUfunction kernel;
    volatile unsigned *words;
    CUdeviceptr address = 0;
    std::thread later;
};

// A byte pattern that no shifted, short or repeated copy reproduces.
inline void pattern(void *memory, size_t bytes, unsigned seed) {
    auto *at = (unsigned char *)memory;
    uint64_t state = seed * 0x9e3779b97f4a7c15ull + 1;
    size_t i = 0;
    for (; i + 8 <= bytes; i += 8) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        memcpy(at + i, &state, 8);
    }
    for (; i < bytes; i++)
        at[i] = (unsigned char)(seed + i);
}

// The first index at which the words differ from the value, or -1.
inline long first_other(const unsigned *words, size_t count, unsigned value) {
    for (size_t i = 0; i < count; i++)
        if (words[i] != value)
            return (long)i;
    return -1;
}

#define EXPECT_WORDS(WORDS, COUNT, VALUE)                                                                              \
    do {                                                                                                               \
        long at_ = first_other((WORDS), (COUNT), (VALUE));                                                             \
        if (at_ >= 0)                                                                                                  \
            pitfall::fail("%s:%d: %s[%ld] is 0x%x, expected 0x%x", __FILE__, __LINE__, #WORDS, at_, (WORDS)[at_],      \
                          (unsigned)(VALUE));                                                                          \
    } while (0)
