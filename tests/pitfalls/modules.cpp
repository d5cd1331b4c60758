// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Modules, libraries, variables, entry points by name (pitfalls 43, 44, 45, 50, 51).
#include "driver.h"
#include <dlfcn.h>
#include <set>
#include <string>

// Two modules with a kernel of one name and unlike parameters.
static const char one_ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry same(.param .u64 out, .param .u32 a)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [a];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}
)";
static const char two_ptx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 bias = 1000;
.visible .entry same(.param .u32 a, .param .u8 b, .param .u64 out)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    ld.param.u32 %r1, [a];
    ld.param.u8 %r2, [b];
    ld.param.u64 %rd1, [out];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r3, [bias];
    add.u32 %r4, %r1, %r2;
    add.u32 %r5, %r4, %r3;
    st.global.u32 [%rd2], %r5;
    ret;
}
)";

static unsigned word_at(CUdeviceptr word) {
    unsigned value = 0;
    CK(cuMemcpyDtoH(&value, word, 4));
    return value;
}

static void load_run_unload(CUdeviceptr word, unsigned round) {
    CUmodule module;
    CUfunction same;
    CK(cuModuleLoadData(&module, round % 2 ? two_ptx : one_ptx));
    CK(cuModuleGetFunction(&same, module, "same"));
    unsigned expected;
    if (round % 2) {
        LAUNCH(same, 1, 1, CU_STREAM_PER_THREAD, round, (unsigned char)200, word);
        expected = round + 200 + 1000;
    } else {
        LAUNCH(same, 1, 1, CU_STREAM_PER_THREAD, word, round);
        expected = round;
    }
    CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    unsigned got = word_at(word);
    EXPECT(got == expected, "round %u: %u, expected %u", round, got, expected);
    CK(cuModuleUnload(module));
}

PITFALL(43, same_name_other_layout_after_unload) {
    Gpu gpu;
    CUdeviceptr word = device_words(1);
    for (unsigned round = 0; round < 32; round++)
        load_run_unload(word, round);
    std::thread other([&] {
        CK(cuCtxSetCurrent(gpu.context));
        CUdeviceptr mine = device_words(1);
        for (unsigned round = 1; round < 20; round++)
            load_run_unload(mine, round);
    });
    for (unsigned round = 0; round < 20; round++)
        load_run_unload(word, round);
    other.join();
}

PITFALL(43, variables_of_two_copies_of_a_module) {
    Gpu gpu;
    CUmodule first, second;
    CK(cuModuleLoadData(&first, two_ptx));
    CK(cuModuleLoadData(&second, two_ptx));
    CUdeviceptr a = 0, b = 0;
    size_t size = 0;
    CK(cuModuleGetGlobal(&a, &size, first, "bias"));
    EXPECT(size == 4, "size %zu", size);
    CK(cuModuleGetGlobal(&b, nullptr, second, "bias"));
    CK(cuModuleGetGlobal(nullptr, &size, second, "bias"));
    EXPECT(a != b && size == 4, "one address for two modules");
    EXPECT(word_at(a) == 1000 && word_at(b) == 1000, "initial values %u and %u", word_at(a), word_at(b));
    unsigned value = 5;
    CK(cuMemcpyHtoD(a, &value, 4));
    EXPECT(word_at(b) == 1000, "the other module's variable changed");
    CUdeviceptr word = device_words(1);
    CUfunction same;
    CK(cuModuleGetFunction(&same, first, "same"));
    LAUNCH(same, 1, 1, nullptr, 1u, (unsigned char)1, word);
    EXPECT(word_at(word) == 7, "%u", word_at(word));
    CK_IS(cuModuleGetFunction(&same, first, "missing"), CUDA_ERROR_NOT_FOUND);
    CK_IS(cuModuleGetGlobal(&a, &size, first, "missing"), CUDA_ERROR_NOT_FOUND);
    OBSERVE("variable_by_a_kernels_name", cuModuleGetGlobal(&a, &size, first, "same"));
    unsigned count = 0;
    CK(cuModuleGetFunctionCount(&count, first));
    EXPECT(count == 1, "%u functions", count);
    CUfunction listed[1];
    CK(cuModuleEnumerateFunctions(listed, 1, first));
    const char *name = nullptr;
    CK(cuFuncGetName(&name, listed[0]));
    EXPECT(name && strcmp(name, "same") == 0, "%s", name ? name : "null");
    CUmodule owner = nullptr;
    CK(cuFuncGetModule(&owner, listed[0]));
    EXPECT(owner == first, "cuFuncGetModule");
}

template <typename Object>
static std::set<std::string> names_of(const std::vector<Object> &objects, CUresult (*ask)(const char **, Object)) {
    std::set<std::string> names;
    for (Object object : objects) {
        const char *name = nullptr;
        CK(ask(&name, object));
        names.insert(name);
    }
    return names;
}

// The names of all kernels together are longer than one answer of a device.
PITFALL(43, all_functions_of_a_large_module_are_named) {
    Gpu gpu;
    std::set<std::string> expected;
    std::string ptx = ".version 7.0\n.target sm_80\n.address_size 64\n";
    for (unsigned i = 0; i < 600; i++) {
        std::string name = "kernel_" + std::string(200, 'a' + i % 26) + "_" + std::to_string(i);
        ptx += ".visible .entry " + name + "()\n{\n    ret;\n}\n";
        expected.insert(name);
    }
    CUmodule module = nullptr;
    CK(cuModuleLoadData(&module, ptx.c_str()));
    unsigned count = 0;
    CK(cuModuleGetFunctionCount(&count, module));
    EXPECT(count == expected.size(), "%u functions", count);
    std::vector<CUfunction> functions(count);
    CK(cuModuleEnumerateFunctions(functions.data(), count, module));
    std::set<std::string> names = names_of(functions, cuFuncGetName);
    EXPECT(names == expected, "%zu names of functions", names.size());
    CK(cuModuleUnload(module));
    CUlibrary library = nullptr;
    CK(cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
    CK(cuLibraryGetKernelCount(&count, library));
    EXPECT(count == expected.size(), "%u kernels", count);
    std::vector<CUkernel> kernels(count);
    CK(cuLibraryEnumerateKernels(kernels.data(), count, library));
    names = names_of(kernels, cuKernelGetName);
    EXPECT(names == expected, "%zu names of kernels", names.size());
    CK(cuLibraryUnload(library));
}

PITFALL(43, constants_and_arrays) {
    Gpu gpu;
    CUdeviceptr table = 0, constants = 0, out = device_words(32);
    size_t size = 0;
    CK(cuModuleGetGlobal(&table, &size, gpu.module(), "table"));
    EXPECT(size == 1024, "size %zu", size);
    CK(cuModuleGetGlobal(&constants, &size, gpu.module(), "constants"));
    EXPECT(size == 64, "size %zu", size);
    CUfunction read = gpu.function("read_globals");
    unsigned got[32], initial[8] = {3, 1, 4, 1, 5, 9, 2, 6};
    LAUNCH(read, 1, 32, nullptr, out);
    CK(cuMemcpyDtoH(got, out, sizeof got));
    for (unsigned i = 0; i < 32; i++)
        EXPECT(got[i] == (i % 16 < 8 ? initial[i % 16] : 0) + 7, "%u at %u", got[i], i);
    unsigned words[256], fresh[16];
    for (unsigned i = 0; i < 256; i++)
        words[i] = i * 1000;
    for (unsigned i = 0; i < 16; i++)
        fresh[i] = i * i;
    CK(cuMemcpyHtoD(table, words, sizeof words));
    CK(cuMemcpyHtoD(constants, fresh, sizeof fresh));
    LAUNCH(gpu.function("no_params"), 1, 1, nullptr);
    LAUNCH(read, 1, 32, nullptr, out);
    CK(cuMemcpyDtoH(got, out, sizeof got));
    for (unsigned i = 0; i < 32; i++)
        EXPECT(got[i] == i * 1000 + (i % 16) * (i % 16) + 8, "%u at %u", got[i], i);
}

PITFALL(44, unload_with_work_pending) {
    Gpu gpu;
    CUmodule module;
    CUfunction same;
    CK(cuModuleLoadData(&module, one_ptx));
    CK(cuModuleGetFunction(&same, module, "same"));
    CUdeviceptr word = device_words(1);
    CUstream stream = new_stream();
    Gate gate(gpu);
    gate.close(stream);
    for (unsigned i = 1; i <= 100; i++)
        LAUNCH(same, 1, 1, stream, word, i);
    gate.open_later();
    CK(cuModuleUnload(module));
    gate.wait_opened();
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(word) == 100, "%u", word_at(word));
}

PITFALL(44, jit_options_and_logs) {
    Gpu gpu;
    std::string broken = one_ptx;
    broken.replace(broken.find("st.global.u32"), 13, "no.such.instr");
    char info[4096] = "", error[4096] = "";
    float seconds = -1;
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_ERROR_LOG_BUFFER,
                              CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_WALL_TIME, CU_JIT_LOG_VERBOSE, CU_JIT_OPTIMIZATION_LEVEL};
    void *values[] = {info, (void *)sizeof info, error, (void *)sizeof error, nullptr, (void *)1, (void *)2};
    CUmodule module = (CUmodule)0x77;
    CUresult code = cuModuleLoadDataEx(&module, broken.c_str(), 7, options, values);
    EXPECT(code == CUDA_ERROR_INVALID_PTX, "broken PTX: %d", (int)code);
    EXPECT(error[0] != 0, "no error log for broken PTX");
    EXPECT((size_t)values[3] <= sizeof error && strlen(error) < sizeof error, "error log's size reads %zu", (size_t)values[3]);
    error[0] = 0;
    values[1] = (void *)sizeof info;
    values[3] = (void *)sizeof error;
    CK(cuModuleLoadDataEx(&module, two_ptx, 7, options, values));
    EXPECT(error[0] == 0, "error log for good PTX: %.100s", error);
    memcpy(&seconds, &values[4], 4);
    EXPECT(seconds >= 0, "wall time %g", seconds);
    EXPECT((size_t)values[1] <= sizeof info, "info log's size reads %zu", (size_t)values[1]);
    // The options' buffers are the caller's again.
    memset(info, 0x11, sizeof info);
    memset(error, 0x11, sizeof error);
    CUdeviceptr word = device_words(1);
    CUfunction same;
    CK(cuModuleGetFunction(&same, module, "same"));
    LAUNCH(same, 1, 1, nullptr, 3u, (unsigned char)4, word);
    EXPECT(word_at(word) == 1007, "%u", word_at(word));
}

PITFALL(44, image_is_copied_at_load) {
    Gpu gpu;
    std::string text = two_ptx;
    CUmodule module;
    CK(cuModuleLoadData(&module, text.data()));
    std::fill(text.begin(), text.end() - 1, 'x');
    CUdeviceptr word = device_words(1);
    CUfunction same;
    CK(cuModuleGetFunction(&same, module, "same"));
    LAUNCH(same, 1, 1, nullptr, 3u, (unsigned char)4, word);
    EXPECT(word_at(word) == 1007, "%u", word_at(word));
    // A file of this process's file system.
    char path[] = "/tmp/pitfall-XXXXXX";
    int file = mkstemp(path);
    EXPECT(write(file, one_ptx, sizeof one_ptx - 1) == (ssize_t)sizeof one_ptx - 1, "write");
    CK(cuModuleLoad(&module, path));
    unlink(path);
    CK(cuModuleGetFunction(&same, module, "same"));
    LAUNCH(same, 1, 1, nullptr, word, 31u);
    EXPECT(word_at(word) == 31, "%u", word_at(word));
    CK_IS(cuModuleLoad(&module, "/no/such/file.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
    OBSERVE("load_of_text", cuModuleLoadData(&module, "this is no image"));
    OBSERVE("load_of_empty_text", cuModuleLoadData(&module, ""));
    CK_IS(cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
}

// Images that were loaded before are known by what is in them, not by where they are or how long.
PITFALL(44, image_loaded_again_and_changed_in_place) {
    Gpu gpu;
    CUdeviceptr word = device_words(1);
    for (size_t padding : {size_t(100), size_t(100) << 10, size_t(9) << 20}) {
        std::string image(two_ptx);
        while (image.size() < padding)
            image += "// as long as it takes, as long as it takes, as long as it takes\n";
        auto run = [&](unsigned bias) {
            CUmodule module;
            CUfunction same;
            CK(cuModuleLoadData(&module, image.c_str()));
            CK(cuModuleGetFunction(&same, module, "same"));
            LAUNCH(same, 1, 1, nullptr, 3u, (unsigned char)4, word);
            unsigned got = word_at(word);
            EXPECT(got == bias + 7, "image of %zu bytes: %u, expected %u", image.size(), got, bias + 7);
            CK(cuModuleUnload(module));
        };
        run(1000);
        run(1000);
        image.replace(image.find("1000"), 4, "2000");
        run(2000);
        run(2000);
        image.replace(image.find("2000"), 4, "1000");
        run(1000);
        image[image.find(".visible")] = '?';
        CUmodule module;
        EXPECT(cuModuleLoadData(&module, image.c_str()) == CUDA_ERROR_INVALID_PTX, "an image with a mistake in it loads");
    }
}

PITFALL(44, linker_owns_its_cubin) {
    Gpu gpu;
    CUlinkState state;
    if (pitfall::backend() == "software" && !dlsym(RTLD_DEFAULT, "cuLinkCreate_v2"))
        pitfall::skip("the software GPU has no run-time linker");
    CUresult code = cuLinkCreate(0, nullptr, nullptr, &state);
    if (code == CUDA_ERROR_NOT_SUPPORTED && pitfall::backend() != "native" && !pitfall::backend().empty())
        pitfall::skip("no run-time linker");
    CK(code);
    std::string text = two_ptx;
    CK(cuLinkAddData(state, CU_JIT_INPUT_PTX, text.data(), text.size() + 1, "two", 0, nullptr, nullptr));
    std::fill(text.begin(), text.end(), 'x');
    void *cubin = nullptr;
    size_t size = 0;
    CK(cuLinkComplete(state, &cubin, &size));
    EXPECT(cubin && size > 0, "%zu bytes", size);
    CUmodule module;
    CK(cuModuleLoadData(&module, cubin));
    CK(cuLinkDestroy(state));
    CUdeviceptr word = device_words(1);
    CUfunction same;
    CK(cuModuleGetFunction(&same, module, "same"));
    LAUNCH(same, 1, 1, nullptr, 3u, (unsigned char)4, word);
    EXPECT(word_at(word) == 1007, "%u", word_at(word));
}

PITFALL(44, libraries_and_kernels) {
    Gpu gpu;
    CUlibrary library;
    CK(cuLibraryLoadData(&library, kernels_fatbin, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CUkernel fill, missing;
    CK(cuLibraryGetKernel(&fill, library, "fill"));
    CK_IS(cuLibraryGetKernel(&missing, library, "missing"), CUDA_ERROR_NOT_FOUND);
    CUdeviceptr word = device_words(64);
    // A kernel is launched directly, cast to a function, and as the function of the current context.
    LAUNCH((CUfunction)fill, 1, 32, nullptr, word, 6u, 64u);
    EXPECT(word_at(word) == 6, "%u", word_at(word));
    CUfunction function;
    CK(cuKernelGetFunction(&function, fill));
    LAUNCH(function, 1, 32, nullptr, word, 7u, 64u);
    EXPECT(word_at(word) == 7, "%u", word_at(word));
    const char *name = nullptr;
    CK(cuKernelGetName(&name, fill));
    EXPECT(name && strcmp(name, "fill") == 0, "%s", name ? name : "null");
    size_t offset = 9, size = 9;
    CK(cuKernelGetParamInfo(fill, 1, &offset, &size));
    EXPECT(offset == 8 && size == 4, "offset %zu size %zu", offset, size);
    int threads = 0;
    CK(cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, fill, gpu.device));
    EXPECT(threads > 0, "%d threads", threads);
    CUmodule module;
    CK(cuLibraryGetModule(&module, library));
    CUdeviceptr global = 0, by_module = 0;
    CK(cuLibraryGetGlobal(&global, &size, library, "counter"));
    CK(cuModuleGetGlobal(&by_module, nullptr, module, "counter"));
    EXPECT(size == 4 && word_at(global) == 7, "%zu bytes, value %u", size, word_at(global));
    EXPECT(global == by_module, "library and module disagree about a variable's address");
    CK(cuLibraryUnload(library));
}

PITFALL(45, parameter_layout) {
    Gpu gpu;
    struct Layout {
        const char *kernel;
        std::vector<std::pair<size_t, size_t>> params;
    };
    std::vector<Layout> layouts = {
        {"no_params", {}},
        {"fill", {{0, 8}, {8, 4}, {12, 4}}},
        {"params_1", {{0, 8}, {8, 1}}},
        {"params_4089", {{0, 8}, {8, 4089}}},
        {"params_32756", {{0, 8}, {8, 32756}}},
        {"params_wide", {{0, 4080}, {4080, 8}}},
        {"mixed", {{0, 1}, {8, 8}, {16, 2}, {20, 4}, {24, 1}, {32, 8}, {48, 16}, {64, 1}, {72, 8}}},
    };
    Layout seventy = {"seventy_params", {{0, 8}}};
    for (size_t i = 0; i < 70; i++)
        seventy.params.push_back({8 + 4 * i, 4});
    layouts.push_back(seventy);
    for (auto &layout : layouts) {
        CUfunction f = gpu.function(layout.kernel);
        size_t offset = 0, size = 0;
        for (size_t i = 0; i < layout.params.size(); i++) {
            CK(cuFuncGetParamInfo(f, i, &offset, &size));
            EXPECT(offset == layout.params[i].first && size == layout.params[i].second, "%s's parameter %zu: offset %zu, size %zu",
                   layout.kernel, i, offset, size);
        }
        CK_IS(cuFuncGetParamInfo(f, layout.params.size(), &offset, &size), CUDA_ERROR_INVALID_VALUE);
    }
}

// Each name at each version: found or not, and the same in every process.
PITFALL(50, entry_points_by_version) {
    int before = 0, after = 0;
    CK(cuDriverGetVersion(&before));
    Gpu gpu;
    CK(cuDriverGetVersion(&after));
    EXPECT(before == after && before >= 12000, "driver version %d before cuInit, %d after", before, after);
    const char *names[] = {"cuInit",          "cuMemAlloc",        "cuMemFree",      "cuCtxCreate",         "cuCtxDestroy",
                           "cuCtxGetDevice",  "cuCtxSynchronize",  "cuMemGetInfo",   "cuStreamDestroy",     "cuMemcpyHtoD",
                           "cuMemcpyDtoHAsync", "cuLaunchKernel",  "cuLaunchKernelEx", "cuLaunchHostFunc",  "cuStreamGetCaptureInfo",
                           "cuEventElapsedTime", "cuGetProcAddress", "cuMemPrefetchAsync", "cuMemAdvise",     "cuGraphAddNode",
                           "cuStreamBatchMemOp", "cuLibraryLoadData", "cuKernelGetParamInfo", "cuMemAllocAsync", "cuDeviceGetUuid",
                           "cuDevicePrimaryCtxReset", "cuModuleGetLoadingMode", "cuStreamWaitValue32", "cuMemHostRegister", "cuNoSuchFunction"};
    int versions[] = {1000, 2000, 3020, 4000, 6050, 7000, 8000, 9000, 10000, 11000, 11030, 12000, 12050, 13000};
    for (const char *name : names) {
        std::string line;
        for (int version : versions)
            for (cuuint64_t flags : {CU_GET_PROC_ADDRESS_DEFAULT, CU_GET_PROC_ADDRESS_LEGACY_STREAM, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM}) {
                void *address = nullptr;
                CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)9;
                CUresult code = cuGetProcAddress(name, &address, version, flags, &status);
                EXPECT((status == CU_GET_PROC_ADDRESS_SUCCESS) == (address != nullptr), "%s %d: status %d, address %p", name, version,
                       (int)status, address);
                line += std::to_string((int)code) + "/" + std::to_string((int)status) + (flags == 2 ? " " : ",");
            }
        pitfall::observed("%s=%s", name, line.c_str());
    }
    void *address = nullptr;
    OBSERVE("null_status", cuGetProcAddress("cuInit", &address, 12000, 0, nullptr));
    OBSERVE("null_status_missing", cuGetProcAddress("cuNoSuchFunction", &address, 12000, 0, nullptr));
    OBSERVE("bad_flags", cuGetProcAddress("cuInit", &address, 12000, 99, nullptr));
}

// A found function works, with the signature of the requested version.
PITFALL(50, versions_have_their_signatures) {
    Gpu gpu;
    auto find = [](const char *name, int version, cuuint64_t flags = 0) {
        void *address = nullptr;
        CUdriverProcAddressQueryResult status;
        CK(cuGetProcAddress(name, &address, version, flags, &status));
        EXPECT(address, "%s of %d: status %d", name, version, (int)status);
        return address;
    };
    CUdeviceptr memory = 0;
    CK(((CUresult(*)(CUdeviceptr *, size_t))find("cuMemAlloc", 12000))(&memory, 4096));
    CK(((CUresult(*)(CUdeviceptr))find("cuMemFree", 12000))(memory));
    CUcontext context = nullptr;
    CK(((CUresult(*)(CUcontext *, unsigned, CUdevice))find("cuCtxCreate", 11000))(&context, 0, gpu.device));
    CK(((CUresult(*)(CUcontext))find("cuCtxDestroy", 12000))(context));
    CK(cuCtxSetCurrent(gpu.context));
    // The first form has four arguments: a fifth must not be written through.
    void *address = nullptr;
    auto four = (CUresult(*)(const char *, void **, int, cuuint64_t))find("cuGetProcAddress", 11030);
    CK(four("cuInit", &address, 12000, 0));
    EXPECT(address, "cuInit is not found by the first cuGetProcAddress");
    CUdevice device = -1;
    CK(((CUresult(*)(CUdevice *))find("cuCtxGetDevice", 12000))(&device));
    EXPECT(device == gpu.device, "device %d", device);
    CK(((CUresult(*)())find("cuCtxSynchronize", 12000))());
    // The per-thread variant of NULL is the per-thread stream.
    auto memset_ptsz = (CUresult(*)(CUdeviceptr, unsigned, size_t, CUstream))find("cuMemsetD32Async", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    auto query_ptsz = (CUresult(*)(CUstream))find("cuStreamQuery", 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    CUdeviceptr word = device_words(1);
    Gate gate(gpu);
    gate.close(CU_STREAM_PER_THREAD);
    CK(memset_ptsz(word, 3, 1, nullptr));
    CK_IS(query_ptsz(nullptr), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    EXPECT(word_at(word) == 3, "%u", word_at(word));
}

// Every public name of the header that this program was built with is exported by the library itself, too.
PITFALL(50, names_by_dlsym) {
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    EXPECT(self, "libcuda.so.1 is not loaded by that name");
    for (const char *name : {"cuInit", "cuMemAlloc_v2", "cuMemAlloc", "cuCtxCreate_v2", "cuMemcpyHtoD_v2", "cuMemcpyHtoD_v2_ptds",
                             "cuMemcpyHtoDAsync_v2_ptsz", "cuLaunchKernel_ptsz", "cuStreamSynchronize_ptsz", "cuGetProcAddress_v2",
                             "cuGetExportTable", "cuDriverGetVersion", "cuEventDestroy_v2", "cuStreamDestroy_v2"})
        pitfall::observed("%s=%s", name, dlsym(self, name) ? "exported" : "missing");
    EXPECT(dlsym(self, "cuMemAlloc_v2") && dlsym(self, "cuGetProcAddress_v2"), "cuMemAlloc_v2 or cuGetProcAddress_v2 is missing");
}

// A table that is not there is an error, not a success with a null or empty table.
PITFALL(51, unknown_export_table) {
    CUuuid id;
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned i = 0; i < 16; i++)
            id.bytes[i] = (char)(round * 61 + i * 17 + 1);
        const void *table = nullptr;
        CUresult code = cuGetExportTable(&table, &id);
        EXPECT(code != CUDA_SUCCESS || table != nullptr, "success with a null table");
        if (round == 0)
            pitfall::observed("unknown_table=%d", (int)code);
        CK(cuInit(0));
    }
}

// Libraries and their kernels belong to no context, so a program may look at them before it has one.
PITFALL(50, kernels_are_found_without_a_context) {
    CK(cuInit(0));
    CUdevice device;
    CK(cuDeviceGet(&device, 0));
    CUlibrary library = nullptr;
    CUkernel kernel = nullptr;
    CK(cuLibraryLoadData(&library, kernels_ptx, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CK(cuLibraryGetKernel(&kernel, library, "step"));
    int most = 0;
    CK(cuKernelGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    EXPECT(most >= 32, "%d threads", most);
    CUcontext current = nullptr;
    CK(cuCtxGetCurrent(&current));
    EXPECT(current == nullptr, "a context has become current");
    unsigned flags = 0;
    int active = -1;
    CK(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT(active == 0, "the primary context is active");
    Gpu gpu;
    CUdeviceptr word = device_words(1, 4);
    CUstream stream = new_stream();
    LAUNCH((CUfunction)kernel, 1, 1, stream, word, 10u, 2u);
    unsigned got = 0;
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 42, "%u", got);
    CK(cuLibraryUnload(library));
}

PITFALL_MAIN
