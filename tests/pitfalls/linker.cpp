// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The just-in-time linker (pitfalls 44, 45, 63).
#include "driver.h"

static const char caller_ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.extern .func (.param .b32 result) twice(.param .b32 value);
.visible .entry start(.param .u64 out, .param .u32 in)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    .param .b32 given;
    .param .b32 got;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [in];
    cvta.to.global.u64 %rd2, %rd1;
    st.param.b32 [given], %r1;
    call.uni (got), twice, (given);
    ld.param.b32 %r2, [got];
    st.global.u32 [%rd2], %r2;
    ret;
}
)";
static const char callee_ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .func (.param .b32 result) twice(.param .b32 value)
{
    .reg .b32 %r<3>;
    ld.param.b32 %r1, [value];
    add.u32 %r2, %r1, %r1;
    st.param.b32 [result], %r2;
    ret;
}
)";

static CUresult add(CUlinkState state, const char *text, const char *name) {
    return cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, name, 0, nullptr, nullptr);
}

static void expect_doubled(const Gpu &, CUmodule module) {
    CUfunction start;
    CK(cuModuleGetFunction(&start, module, "start"));
    CUdeviceptr word = device_words(1);
    LAUNCH(start, 1, 1, nullptr, word, 21u);
    unsigned got = 0;
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 42, "%u", got);
    CK(cuMemFree(word));
}

// The linker's output is a program's image as long as the linker lives. A copy of it is one for longer.
PITFALL(44, linker_makes_an_image_of_several) {
    Gpu gpu;
    CUlinkState state;
    CK(cuLinkCreate(0, nullptr, nullptr, &state));
    CK(add(state, caller_ptx, "caller"));
    // The text was read, and may change.
    std::string callee = callee_ptx;
    CK(add(state, callee.c_str(), "callee"));
    callee.assign(callee.size(), ' ');
    void *image = nullptr;
    size_t bytes = 0;
    CK(cuLinkComplete(state, &image, &bytes));
    EXPECT(image && bytes, "%p, %zu bytes", image, bytes);
    std::vector<char> copy((char *)image, (char *)image + bytes);
    CUmodule one, two;
    CK(cuModuleLoadData(&one, image));
    expect_doubled(gpu, one);
    CK(cuLinkDestroy(state));
    expect_doubled(gpu, one);
    CK(cuModuleUnload(one));
    CK(cuModuleLoadData(&two, copy.data()));
    expect_doubled(gpu, two);
    CK(cuModuleUnload(two));
}

PITFALL(44, linker_reads_files) {
    Gpu gpu;
    char path[] = "/tmp/pitfall-link-XXXXXX";
    int file = mkstemp(path);
    EXPECT(file >= 0 && write(file, callee_ptx, sizeof callee_ptx - 1) == sizeof callee_ptx - 1, "errno %d", errno);
    CUlinkState state;
    CK(cuLinkCreate(0, nullptr, nullptr, &state));
    CK_IS(cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/nonexistent/file.ptx", 0, nullptr, nullptr), CUDA_ERROR_FILE_NOT_FOUND);
    CK(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, nullptr, nullptr));
    CK(add(state, caller_ptx, nullptr));
    void *image = nullptr;
    CK(cuLinkComplete(state, &image, nullptr));
    CUmodule module;
    CK(cuModuleLoadData(&module, image));
    expect_doubled(gpu, module);
    CK(cuLinkDestroy(state));
    unlink(path);
}

// The program's buffer has the linker's words, when the call has returned.
PITFALL(45, what_nobody_defines_is_named_in_the_log) {
    Gpu gpu;
    char log[2048] = "";
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)sizeof log};
    CUlinkState state;
    CK(cuLinkCreate(2, options, values, &state));
    CUresult code = add(state, caller_ptx, "caller");
    void *image = nullptr;
    size_t bytes = 0;
    if (code == CUDA_SUCCESS)
        code = cuLinkComplete(state, &image, &bytes);
    EXPECT(code != CUDA_SUCCESS, "it was linked");
    EXPECT(strstr(log, "twice"), "the log is '%.500s'", log);
    CK(cuLinkDestroy(state));
}

PITFALL_OURS(63, linkers_that_are_none) {
    Gpu gpu;
    CUlinkState state;
    void *image = nullptr;
    CK_IS(cuLinkCreate(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK(cuLinkCreate(0, nullptr, nullptr, &state));
    CK_IS(cuLinkAddData(state, CU_JIT_INPUT_PTX, nullptr, 5, "x", 0, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK(cuLinkDestroy(state));
    CK_IS(cuLinkDestroy(state), CUDA_ERROR_INVALID_HANDLE);
    CK_IS(cuLinkComplete(state, &image, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CK_IS(add((CUlinkState)0x1234, caller_ptx, "x"), CUDA_ERROR_INVALID_HANDLE);
}

// Many threads link, each with its own linkers.
PITFALL(63, many_threads_link) {
    Gpu gpu;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] {
            CK(cuCtxSetCurrent(gpu.context));
            for (int round = 0; round < 8; round++) {
                CUlinkState state;
                CK(cuLinkCreate(0, nullptr, nullptr, &state));
                CK(add(state, callee_ptx, "callee"));
                CK(add(state, caller_ptx, "caller"));
                void *image = nullptr;
                CK(cuLinkComplete(state, &image, nullptr));
                CUmodule module;
                CK(cuModuleLoadData(&module, image));
                CK(cuLinkDestroy(state));
                expect_doubled(gpu, module);
                CK(cuModuleUnload(module));
            }
        });
    for (auto &thread : threads)
        thread.join();
}

PITFALL_MAIN
