// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Launches: parameters in every form and size, attributes, occupancy (pitfalls 28, 46 to 48).
#include "driver.h"
#include <memory>
#include <thread>

static unsigned word_at(CUdeviceptr word) {
    unsigned value = 0;
    CK(cuMemcpyDtoH(&value, word, 4));
    return value;
}

// The error is returned by the launch, and does not persist.
PITFALL(28, rejected_launch_is_synchronous_and_not_sticky) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUstream stream = new_stream();
    CUdeviceptr word = device_words(64);
    unsigned value = 5, count = 64;
    void *params[] = {&word, &value, &count};
    auto launch = [&](unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared) {
        return cuLaunchKernel(fill, gx, gy, gz, bx, by, bz, shared, stream, params, nullptr);
    };
    CK_IS(launch(0, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    CK_IS(launch(1, 1, 1, 0, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(launch(1, 1, 1, 2048, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    CK_IS(launch(1, 1, 1, 64, 64, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(launch(1, 1, 1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(launch(1, 65536, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(launch(1, 1, 65536, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(launch(1, 1, 1, 1, 1, 1, 1 << 20), CUDA_ERROR_INVALID_VALUE);
    CK(cuStreamSynchronize(stream));
    CK(cuCtxSynchronize());
    EXPECT(word_at(word) == 0, "a rejected launch ran");
    CK(launch(1, 1, 1, 64, 1, 1, 0));
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(word) == 5, "%u", word_at(word));
}

template <unsigned N> struct Bytes {
    unsigned char at[N];
};

template <unsigned N> static void parameter_bytes(const Gpu &gpu) {
    auto bytes = std::make_unique<Bytes<N>>();
    pattern(bytes->at, N, N);
    unsigned expected = 0;
    for (unsigned i = 0; i < N; i++)
        expected = expected * 31 + bytes->at[i];
    CUfunction f = gpu.function(("params_" + std::to_string(N)).c_str());
    CUdeviceptr word = device_words(1);
    void *params[] = {&word, bytes.get()};
    CK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    pattern(bytes->at, N, N + 1); // they were taken at the call
    EXPECT(word_at(word) == expected, "%u bytes by kernelParams: %08x, expected %08x", N + 8, word_at(word), expected);

    pattern(bytes->at, N, N);
    CK(cuMemsetD32(word, 0, 1));
    std::vector<unsigned char> packed(8 + N);
    memcpy(packed.data(), &word, 8);
    memcpy(packed.data() + 8, bytes->at, N);
    size_t size = packed.size();
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed.data(), CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    CK(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    std::fill(packed.begin(), packed.end(), 0);
    EXPECT(word_at(word) == expected, "%u bytes by extra[]: %08x, expected %08x", N + 8, word_at(word), expected);
}

PITFALL(46, parameter_sizes) {
    Gpu gpu;
    parameter_bytes<1>(gpu);
    parameter_bytes<7>(gpu);
    parameter_bytes<248>(gpu);
    parameter_bytes<4088>(gpu);
    parameter_bytes<4089>(gpu);
    parameter_bytes<32756>(gpu);
}

struct alignas(16) Float4 {
    float x, y, z, w;
};

PITFALL(46, mixed_parameters) {
    Gpu gpu;
    CUfunction mixed = gpu.function("mixed");
    CUdeviceptr out = device_words(64);
    signed char a = -7, e = 99;
    double b = 1.0 / 3;
    short c = -12345;
    float d = 2.5f;
    long long f = -(1ll << 40);
    Float4 g = {1, 2, 3, 4};
    unsigned char h = 250;
    double expected[] = {-7, 1.0 / 3, -12345, 2.5, 99, (double)f, 4321, 250}, got[8];
    auto check = [&](const char *how) {
        CK(cuMemcpyDtoH(got, out, sizeof got));
        for (int i = 0; i < 8; i++)
            EXPECT(got[i] == expected[i], "%s: value %d is %.17g", how, i, got[i]);
        CK(cuMemsetD8(out, 0, sizeof got));
    };
    void *params[] = {&a, &b, &c, &d, &e, &f, &g, &h, &out};
    CK(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    check("kernelParams");
    unsigned char packed[80] = {};
    memcpy(packed + 0, &a, 1);
    memcpy(packed + 8, &b, 8);
    memcpy(packed + 16, &c, 2);
    memcpy(packed + 20, &d, 4);
    memcpy(packed + 24, &e, 1);
    memcpy(packed + 32, &f, 8);
    memcpy(packed + 48, &g, 16);
    memcpy(packed + 64, &h, 1);
    memcpy(packed + 72, &out, 8);
    size_t size = sizeof packed;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_BUFFER_POINTER, packed, CU_LAUNCH_PARAM_END};
    CK(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    check("extra[]");
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    CK(cuLaunchKernelEx(&config, mixed, params, nullptr));
    check("cuLaunchKernelEx");
    CK(cuLaunchKernelEx(&config, mixed, nullptr, extra));
    check("cuLaunchKernelEx with extra[]");
    OBSERVE("params_and_extra", cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, params, extra));
    size = 72;
    OBSERVE("extra_too_small", cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    size = sizeof packed + 8;
    CK_IS(cuLaunchKernel(mixed, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

// Slang's programs only have global parameters, and pass each launch a parameter buffer of 0 bytes at NULL.
PITFALL(46, no_parameters_in_no_buffer) {
    Gpu gpu;
    CUfunction count = gpu.function("no_params");
    CUdeviceptr counter;
    CK(cuModuleGetGlobal(&counter, nullptr, gpu.module(), "counter"));
    CK(cuMemsetD32(counter, 0, 1));
    size_t none = 0;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, nullptr, CU_LAUNCH_PARAM_BUFFER_SIZE, &none, CU_LAUNCH_PARAM_END};
    CK(cuLaunchKernel(count, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra));
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    CK(cuLaunchKernelEx(&config, count, nullptr, extra));
    CUgraph graph;
    CK(cuGraphCreate(&graph, 0));
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = count;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.extra = extra;
    CUgraphNode node;
    CK(cuGraphAddKernelNode(&node, graph, nullptr, 0, &params));
    CUgraphExec exec;
    CK(cuGraphInstantiate(&exec, graph, 0));
    CK(cuGraphLaunch(exec, nullptr));
    unsigned counted = 0;
    CK(cuMemcpyDtoH(&counted, counter, 4));
    EXPECT(counted == 3, "%u launches ran", counted);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(graph));
}

PITFALL(46, more_than_64_parameters) {
    Gpu gpu;
    CUdeviceptr out = device_words(1);
    unsigned values[70], expected = 0;
    void *params[71] = {&out};
    for (unsigned i = 0; i < 70; i++) {
        values[i] = i * i + 3;
        params[1 + i] = &values[i];
        expected += values[i] * (i % 5 + 1) * (i / 5 + 1);
    }
    CK(cuLaunchKernel(gpu.function("seventy_params"), 1, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr));
    EXPECT(word_at(out) == expected, "%u, expected %u", word_at(out), expected);
    CK(cuLaunchKernel(gpu.function("no_params"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    CK(cuCtxSynchronize());
}

// The same launches repeated with other parameters, like a training loop, in one stream and in two, and with calls in
// between that change how launches run. Each step depends on the one before.
PITFALL(46, parameters_of_many_launches) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUstream streams[2] = {new_stream(), new_stream(false)};
    CUdeviceptr words[2] = {device_words(1, 1), device_words(1, 1)};
    unsigned expected[2] = {1, 1};
    for (unsigned round = 0; round < 600; round++) {
        for (unsigned i = 0; i < 64; i++) {
            // From time to time the order is another.
            unsigned of = round % 5 == 4 ? i % 2 : round % 3 == 2;
            unsigned factor = 2 * i + 3 + round, summand = round % 2 ? i : i ^ round;
            LAUNCH(step, 1, 1, streams[of], words[of], factor, summand);
            expected[of] = expected[of] * factor + summand;
        }
        if (round % 150 == 149) {
            for (int of = 0; of < 2; of++) {
                CK(cuStreamSynchronize(streams[of]));
                EXPECT(word_at(words[of]) == expected[of], "%u after round %u, not %u", word_at(words[of]), round, expected[of]);
            }
            CK(cuFuncSetCacheConfig(step, CU_FUNC_CACHE_PREFER_L1));
            CUmodule again;
            CK(cuModuleLoadData(&again, kernels_fatbin));
            CUfunction other;
            CK(cuModuleGetFunction(&other, again, "step"));
            for (unsigned i = 0; i < 200; i++) {
                LAUNCH(other, 1, 1, streams[0], words[0], 3u, i);
                expected[0] = expected[0] * 3 + i;
            }
            CK(cuStreamSynchronize(streams[0]));
            CK(cuModuleUnload(again));
        }
    }
    CK(cuCtxSynchronize());
    EXPECT(word_at(words[0]) == expected[0], "%u, not %u", word_at(words[0]), expected[0]);
}

// The same launches with other parameters, each waited for, so that no two are pending: in two streams and the default
// stream, with calls in between that change how launches run, in streams that are made and destroyed, and on two
// threads at once.
PITFALL(46, parameters_of_launches_one_at_a_time) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUstream streams[3] = {new_stream(), new_stream(false), nullptr};
    CUdeviceptr words[3] = {device_words(1, 1), device_words(1, 1), device_words(1, 1)};
    unsigned expected[3] = {1, 1, 1};
    auto steps = [&](CUfunction function, CUstream stream, unsigned of, unsigned count) {
        for (unsigned i = 0; i < count; i++) {
            unsigned factor = 2 * i + 3, summand = i ^ count;
            LAUNCH(function, 1, 1, stream, words[of], factor, summand);
            expected[of] = expected[of] * factor + summand;
            CK(cuStreamSynchronize(stream));
        }
        EXPECT(word_at(words[of]) == expected[of], "%u after %u steps, not %u", word_at(words[of]), count, expected[of]);
    };
    for (unsigned round = 0; round < 4; round++) {
        for (unsigned of = 0; of < 3; of++)
            steps(step, streams[of], of, 50 + round);
        // Without a wait between a stream's and another's.
        for (unsigned i = 0; i < 90; i++) {
            LAUNCH(step, 1, 1, streams[i % 2], words[i % 2], 5u, i);
            expected[i % 2] = expected[i % 2] * 5 + i;
        }
        CK(cuCtxSynchronize());
        CK(cuFuncSetCacheConfig(step, round % 2 ? CU_FUNC_CACHE_PREFER_L1 : CU_FUNC_CACHE_PREFER_SHARED));
        CUmodule again;
        CK(cuModuleLoadData(&again, kernels_fatbin));
        CUfunction other;
        CK(cuModuleGetFunction(&other, again, "step"));
        steps(other, streams[0], 0, 60);
        CK(cuModuleUnload(again));
    }
    for (unsigned i = 0; i < 40; i++) {
        CUstream stream = new_stream(i % 2);
        steps(step, stream, 0, 40);
        CK(cuStreamDestroy(stream));
    }
    std::thread beside([&] {
        CK(cuCtxSetCurrent(gpu.context));
        steps(step, streams[1], 1, 300);
    });
    steps(step, streams[0], 0, 300);
    beside.join();
}

PITFALL(47, cooperative_grid) {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH))
        pitfall::skip("no cooperative launches");
    CUfunction neighbours = gpu.function("neighbours");
    int per_sm = 0, sms = gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
    CK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_sm, neighbours, 32, 0));
    EXPECT(per_sm > 0 && sms > 0, "%d blocks for each of %d multiprocessors", per_sm, sms);
    pitfall::observed("hw.most_blocks=%d", per_sm * sms);
    unsigned blocks = std::min(8, per_sm * sms);
    CUdeviceptr cells = device_words(blocks), out = device_words(blocks);
    void *params[] = {&cells, &out};
    CUstream stream = new_stream();
    std::vector<unsigned> got(blocks);
    for (int ex = 0; ex < 2; ex++) {
        CK(cuMemsetD32(out, 0, blocks));
        CK(cuMemsetD32(cells, 0, blocks));
        CK(cuCtxSynchronize());
        if (ex) {
            CUlaunchAttribute attribute = {};
            attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
            attribute.value.cooperative = 1;
            CUlaunchConfig config = {};
            config.gridDimX = blocks;
            config.gridDimY = config.gridDimZ = 1;
            config.blockDimX = 32;
            config.blockDimY = config.blockDimZ = 1;
            config.hStream = stream;
            config.attrs = &attribute;
            config.numAttrs = 1;
            CK(cuLaunchKernelEx(&config, neighbours, params, nullptr));
        } else {
            CK(cuLaunchCooperativeKernel(neighbours, blocks, 1, 1, 32, 1, 1, 0, stream, params));
        }
        CK(cuStreamSynchronize(stream));
        CK(cuMemcpyDtoH(got.data(), out, blocks * 4));
        for (unsigned i = 0; i < blocks; i++)
            EXPECT(got[i] == (i + 1) % blocks * 3 + 1, "block %u read %u", i, got[i]);
    }
    CK_IS(cuLaunchCooperativeKernel(neighbours, per_sm * sms + 1, 1, 1, 32, 1, 1, 0, stream, params),
          CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    CK(cuStreamSynchronize(stream));
}

// Cluster dimensions reach the kernel, or the launch is refused: never dropped.
PITFALL(47, cluster_dimensions) {
    Gpu gpu;
    int has_clusters = gpu.attribute(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH);
    pitfall::observed("hw.clusters=%d", has_clusters);
    CUfunction shape = gpu.function("cluster_shape");
    CUdeviceptr out = device_words(8, 0xee);
    void *params[] = {&out};
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim.x = 4;
    attribute.value.clusterDim.y = attribute.value.clusterDim.z = 1;
    CUlaunchConfig config = {};
    config.gridDimX = 8;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CUresult code = cuLaunchKernelEx(&config, shape, params, nullptr);
    if (!has_clusters) {
        EXPECT(code != CUDA_SUCCESS, "a cluster launch is accepted where the attribute says that there are none");
        CK(cuCtxSynchronize());
        EXPECT(word_at(out) == 0xee, "a refused launch ran");
        return;
    }
    CK(code);
    unsigned got[8];
    CK(cuMemcpyDtoH(got, out, sizeof got));
    for (unsigned i = 0; i < 8; i++)
        EXPECT(got[i] == 400 + i % 4, "block %u: size * 100 + rank is %u", i, got[i]);
    int clusters = 0;
    CK(cuOccupancyMaxActiveClusters(&clusters, shape, &config));
    EXPECT(clusters > 0, "%d clusters", clusters);
    config.gridDimX = 6;
    OBSERVE("grid_is_no_multiple_of_the_cluster", cuLaunchKernelEx(&config, shape, params, nullptr));
    config.gridDimX = 64;
    attribute.value.clusterDim.x = 64;
    OBSERVE("cluster_too_large", cuLaunchKernelEx(&config, shape, params, nullptr));
    CK(cuCtxSynchronize());
}

PITFALL(47, other_launch_attributes) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr word = device_words(64);
    unsigned value = 1, count = 64;
    void *params[] = {&word, &value, &count};
    CUstream stream = new_stream();
    int least = 0, greatest = 0;
    CK(cuCtxGetStreamPriorityRange(&least, &greatest));
    CUlaunchAttribute attributes[2] = {};
    CUlaunchConfig config = {};
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream;
    config.attrs = attributes;
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
    attributes[0].value.priority = greatest;
    attributes[1].id = CU_LAUNCH_ATTRIBUTE_IGNORE;
    config.numAttrs = 2;
    CK(cuLaunchKernelEx(&config, fill, params, nullptr));
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(word) == 1, "%u", word_at(word));
    value = 2;
    attributes[0].id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attributes[0].value.programmaticStreamSerializationAllowed = 1;
    config.numAttrs = 1;
    CUresult code = cuLaunchKernelEx(&config, fill, params, nullptr);
    pitfall::observed("hw.programmatic_stream_serialization=%d", (int)code);
    CK(cuStreamSynchronize(stream));
    EXPECT(word_at(word) == (code == CUDA_SUCCESS ? 2u : 1u), "%u after code %d", word_at(word), (int)code);
    attributes[0].id = (CUlaunchAttributeID)9999;
    OBSERVE("unknown_attribute", cuLaunchKernelEx(&config, fill, params, nullptr));
    CK(cuStreamSynchronize(stream));
}

PITFALL(48, function_attributes_and_occupancy) {
    Gpu gpu;
    CUfunction shared = gpu.function("dynamic_shared");
    int value = 0;
    CK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, shared));
    EXPECT(value > 0, "%d registers", value);
    CK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, shared));
    EXPECT(value > 0 && value <= gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK), "%d threads", value);
    CK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, shared));
    EXPECT(value == 0, "%d static bytes", value);
    CK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, shared));
    pitfall::observed("hw.ptx_version=%d", value);
    int plain = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
    int optin = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
    EXPECT(plain == 49152 && optin >= plain, "%d bytes of shared memory, %d by opting in", plain, optin);
    CUdeviceptr out = device_words(1);
    auto run = [&](int bytes) {
        unsigned words = bytes / 4;
        void *params[] = {&out, &words};
        return cuLaunchKernel(shared, 1, 1, 1, 128, 1, 1, bytes, nullptr, params, nullptr);
    };
    auto expected = [](unsigned words) { return (0 ^ 0x5au) + ((words / 2) ^ 0x5au) + ((words - 1) ^ 0x5au); };
    CK(run(plain));
    EXPECT(word_at(out) == expected(plain / 4), "%u", word_at(out));
    if (optin == plain)
        return;
    CK_IS(run(optin), CUDA_ERROR_INVALID_VALUE); // before opting in
    int before = -1, after = -1;
    CK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&before, shared, 128, optin));
    EXPECT(before == 0, "%d blocks before opting in", before);
    CK(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin));
    CK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, shared));
    EXPECT(value == optin, "%d", value);
    CK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&after, shared, 128, optin));
    EXPECT(after >= 1, "%d blocks after opting in", after);
    std::thread([&] { // the attribute is the function's, not the thread's
        CK(cuCtxSetCurrent(gpu.context));
        CK(run(optin));
        CK(cuCtxSynchronize());
    }).join();
    EXPECT(word_at(out) == expected(optin / 4), "%u", word_at(out));
    CK_IS(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, optin + 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(run(optin + 1), CUDA_ERROR_INVALID_VALUE);
    int grid = 0, block = 0;
    CK(cuOccupancyMaxPotentialBlockSize(&grid, &block, gpu.function("fill"), nullptr, 0, 0));
    EXPECT(grid > 0 && block >= 32, "%d blocks of %d", grid, block);
    pitfall::observed("hw.potential_block=%d,%d", grid, block);
    OBSERVE("set_read_only_attribute", cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_NUM_REGS, 4));
    OBSERVE("unknown_attribute", cuFuncGetAttribute(&value, (CUfunction_attribute)999, shared));
    CK(cuFuncSetCacheConfig(shared, CU_FUNC_CACHE_PREFER_SHARED));
    CK(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 50));
}


// Whatever is kept of an answer between two calls, it is right again after the call that changes it.
PITFALL(48, answers_follow_what_is_set) {
    Gpu gpu;
    CUfunction shared = gpu.function("dynamic_shared");
    CUlibrary library;
    CUkernel kernel;
    CK(cuLibraryLoadData(&library, kernels_fatbin, nullptr, nullptr, 0, nullptr, nullptr, 0));
    CK(cuLibraryGetKernel(&kernel, library, "dynamic_shared"));
    // A kernel's handle is good for questions of occupancy, but for no attribute of functions.
    int grids[2] = {}, blocks[2] = {}, registers = 0;
    CK(cuOccupancyMaxPotentialBlockSize(&grids[0], &blocks[0], shared, nullptr, 0, 256));
    CK(cuOccupancyMaxPotentialBlockSize(&grids[1], &blocks[1], (CUfunction)kernel, nullptr, 0, 256));
    EXPECT(grids[0] == grids[1] && blocks[0] == blocks[1], "%d of %d, %d of %d", grids[0], blocks[0], grids[1], blocks[1]);
    CK_IS(cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)kernel), CUDA_ERROR_INVALID_HANDLE);
    CUdeviceptr out = device_words(1);
    auto run = [&](CUfunction function, unsigned bytes) {
        unsigned words = bytes / 4;
        void *params[] = {&out, &words};
        return cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, bytes, nullptr, params, nullptr);
    };
    CUfunction_attribute most = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    int optin = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), value = -1;
    for (int bytes : {8192, optin, 4096, 32768, 32768, optin}) {
        CK(cuFuncSetAttribute(shared, most, bytes));
        CK(cuFuncGetAttribute(&value, most, shared));
        EXPECT(value == bytes, "the function's is %d, not %d", value, bytes);
        CK(run(shared, bytes));
        CK(cuKernelSetAttribute(most, bytes, kernel, gpu.device));
        CK(cuKernelGetAttribute(&value, most, kernel, gpu.device));
        EXPECT(value == bytes, "the kernel's is %d, not %d", value, bytes);
        CK(run((CUfunction)kernel, bytes));
        if (bytes == 8192) {
            OBSERVE("more_than_was_set", run(shared, bytes + 128));
            OBSERVE("more_than_was_set_of_the_kernel", run((CUfunction)kernel, bytes + 128));
        }
        CK(cuCtxSynchronize());
    }
    CK_IS(cuFuncSetAttribute(shared, most, optin + 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuFuncSetAttribute(shared, CU_FUNC_ATTRIBUTE_NUM_REGS, 8), CUDA_ERROR_INVALID_VALUE);
    CK(cuFuncGetAttribute(&value, most, shared));
    EXPECT(value == optin, "%d after a setting that was refused", value);
    for (size_t bytes : {2 << 20, 4 << 20}) {
        size_t got = 0;
        CK(cuCtxGetLimit(&got, CU_LIMIT_PRINTF_FIFO_SIZE));
        CK(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, bytes));
        CK(cuCtxGetLimit(&got, CU_LIMIT_PRINTF_FIFO_SIZE));
        EXPECT(got >= bytes, "a limit of %zu, not %zu", got, bytes);
    }
    for (CUfunc_cache wanted : {CU_FUNC_CACHE_PREFER_L1, CU_FUNC_CACHE_PREFER_SHARED}) {
        CUfunc_cache config = CU_FUNC_CACHE_PREFER_EQUAL;
        CK(cuCtxSetCacheConfig(wanted));
        CK(cuCtxGetCacheConfig(&config));
        EXPECT(config == wanted, "configuration %d", (int)config);
    }
    for (unsigned wanted : {CU_CTX_SCHED_SPIN, CU_CTX_SCHED_YIELD}) {
        unsigned flags = 99;
        int active = 0;
        CK(cuCtxSetFlags(wanted));
        CK(cuCtxGetFlags(&flags));
        EXPECT((flags & CU_CTX_SCHED_MASK) == wanted, "flags %u", flags);
        CK(cuDevicePrimaryCtxGetState(gpu.device, &flags, &active));
        EXPECT(active, "the current context is not active");
        pitfall::observed("primary_flags_after_%u=%u", wanted, flags);
    }
    unsigned flags = 99;
    CK(cuDevicePrimaryCtxSetFlags(gpu.device, CU_CTX_SCHED_BLOCKING_SYNC));
    CK(cuCtxGetFlags(&flags));
    pitfall::observed("flags_after_the_primary_contexts=%u", flags & CU_CTX_SCHED_MASK);
}

PITFALL_MAIN
