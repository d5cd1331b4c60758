// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Kernels that need NVIDIA's device runtime, which is in the program if it was there at the build.
#pragma once
#include "driver.h"

extern "C" const char device_runtime[], device_runtime_end[]; // libcudadevrt.a

// A module that consists of a text and the device runtime. Skips the test if there is no runtime.
inline CUmodule with_device_runtime(const char *text) {
    size_t bytes = device_runtime_end - device_runtime;
    if (bytes == 0)
        pitfall::skip("no libcudadevrt.a when the program was built");
    char log[1024] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CUlinkState state;
    CK(cuLinkCreate(2, options, values, &state));
    CK(cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, "kernels", 0, nullptr, nullptr));
    CK(cuLinkAddData(state, CU_JIT_INPUT_LIBRARY, (void *)device_runtime, bytes, "libcudadevrt.a", 0, nullptr, nullptr));
    void *image = nullptr;
    size_t length = 0;
    CUresult code = cuLinkComplete(state, &image, &length);
    EXPECT(code == CUDA_SUCCESS, "the kernels do not link: %d (%s), log: %.900s", (int)code, name_of(code), log);
    CUmodule module;
    CK(cuModuleLoadData(&module, image));
    CK(cuLinkDestroy(state));
    return module;
}

inline CUfunction function_of(CUmodule module, const char *name) {
    CUfunction found = nullptr;
    CK(cuModuleGetFunction(&found, module, name));
    return found;
}
