// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Effects of environment variables: visible devices, blocking launches, an absent profiler.
#include "driver.h"

// From cudaProfiler.h, which is in a separate package.
extern "C" CUresult cuProfilerStart(void);
extern "C" CUresult cuProfilerStop(void);

static void set(const char *name, const char *value) { EXPECT(setenv(name, value, 1) == 0, "setenv"); }

static int count_devices() {
    int count = -1;
    CK(cuInit(0));
    CK(cuDeviceGetCount(&count));
    return count;
}

// The UUID of device 0 as nvidia-smi writes it, found by another process: this one reads its environment only once.
static std::string uuid_of_first() {
    int ends[2];
    EXPECT(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        CUuuid uuid;
        CK(cuInit(0));
        CK(cuDeviceGetUuid_v2(&uuid, 0));
        bool written = write(ends[1], uuid.bytes, sizeof uuid.bytes) == ssize_t(sizeof uuid.bytes);
        _exit(!written);
    }
    unsigned char bytes[16];
    ::close(ends[1]);
    EXPECT(read(ends[0], bytes, sizeof bytes) == ssize_t(sizeof bytes), "the other process found no UUID");
    EXPECT(waitpid(child, nullptr, 0) == child, "waitpid");
    std::string text = "GPU-";
    for (int i = 0; i < 16; i++) {
        char byte[4];
        snprintf(byte, sizeof byte, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
        text += byte;
    }
    return text;
}

PITFALL(32, no_device_is_visible) {
    set("CUDA_VISIBLE_DEVICES", "");
    int count = -1;
    CK_IS(cuInit(0), CUDA_ERROR_NO_DEVICE);
    CK_IS(cuDeviceGetCount(&count), CUDA_ERROR_NOT_INITIALIZED);
}

// Launchers ask for the version, and then choose the devices.
PITFALL(32, devices_are_chosen_at_initialisation) {
    int version = 0;
    CK(cuDriverGetVersion(&version));
    CUcontext none;
    CK_IS(cuCtxGetCurrent(&none), CUDA_ERROR_NOT_INITIALIZED);
    set("CUDA_VISIBLE_DEVICES", "0,0");
    CK_IS(cuInit(0), CUDA_ERROR_INVALID_DEVICE);
}

// The tests run with EAGER otherwise.
PITFALL(32, a_failed_call_reads_no_variables) {
    CUcontext none;
    CK_IS(cuCtxGetCurrent(&none), CUDA_ERROR_NOT_INITIALIZED);
    set("CUDA_MODULE_LOADING", "LAZY");
    Gpu gpu;
    CUmoduleLoadingMode mode = CU_MODULE_EAGER_LOADING;
    CK(cuModuleGetLoadingMode(&mode));
    EXPECT(mode == CU_MODULE_LAZY_LOADING, "mode %d", mode);
}

PITFALL(32, the_first_that_is_none_ends_the_list) {
    set("CUDA_VISIBLE_DEVICES", "0,-1,0");
    EXPECT(count_devices() == 1, "%d devices", count_devices());
    CUdevice device;
    CK_IS(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE);
    Gpu gpu;
    CK(cuCtxSynchronize());
}

PITFALL(32, a_device_is_named_by_its_uuid) {
    std::string first = uuid_of_first();
    set("CUDA_VISIBLE_DEVICES", first.c_str());
    EXPECT(count_devices() == 1, "%d devices", count_devices());
    CUuuid uuid;
    CK(cuDeviceGetUuid_v2(&uuid, 0));
    char start[16];
    snprintf(start, sizeof start, "GPU-%02x%02x", (unsigned char)uuid.bytes[0], (unsigned char)uuid.bytes[1]);
    EXPECT(first.rfind(start, 0) == 0, "%s is seen as %s", first.c_str(), start);
}

PITFALL(32, no_device_has_such_a_uuid) {
    set("CUDA_VISIBLE_DEVICES", "GPU-no");
    CK_IS(cuInit(0), CUDA_ERROR_NO_DEVICE);
}

PITFALL(32, a_device_is_named_twice) {
    set("CUDA_VISIBLE_DEVICES", "0,0");
    CK_IS(cuInit(0), CUDA_ERROR_INVALID_DEVICE);
}

PITFALL(32, devices_have_an_order_that_is_none) {
    set("CUDA_DEVICE_ORDER", "SLOWEST_FIRST");
    CK_IS(cuInit(0), CUDA_ERROR_INVALID_DEVICE);
}

PITFALL(30, a_launch_that_waits_gives_the_kernels_error) {
    set("CUDA_LAUNCH_BLOCKING", "1");
    Gpu gpu;
    CUdeviceptr word = device_words(64);
    LAUNCH(gpu.function("fill"), 1, 32, nullptr, word, 7u, 64u);
    CUfunction bad = gpu.function("trap");
    CUdeviceptr nowhere = 0x10;
    void *params[] = {&nowhere};
    CUresult code = cuLaunchKernel(bad, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr);
    EXPECT(code != CUDA_SUCCESS, "the launch succeeded");
    EXPECT(cuCtxSynchronize() == code, "the error of the launch did not stay: %d", (int)code);
    pitfall::observed("launch=%d", (int)code);
}

PITFALL(32, a_profiler_that_is_not_there) {
    CK(cuInit(0));
    OBSERVE("start without a context", cuProfilerStart());
    Gpu gpu;
    CK(cuProfilerStart());
    CK(cuProfilerStop());
    CK(cuProfilerStop());
}

PITFALL(32, of_other_systems) {
    char luid[8];
    unsigned mask = 0;
    CK(cuInit(0));
    CK_IS(cuDeviceGetLuid(luid, &mask, 0), CUDA_ERROR_NOT_SUPPORTED);
}

PITFALL_MAIN
