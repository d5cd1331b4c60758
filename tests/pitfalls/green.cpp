// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Green contexts: parts of a GPU's multiprocessors. The expected values are the answers of an H100 with driver 580, and
// CUDA's documented ones. No test depends on the number of multiprocessors.
#include "driver.h"
#include <dlfcn.h>

static CUdevResource all_of(CUdevice device) {
    CUdevResource all;
    memset(&all, 0, sizeof all);
    CUresult code = cuDeviceGetDevResource(device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (code == CUDA_ERROR_NOT_SUPPORTED)
        pitfall::skip("the device's multiprocessors cannot be split");
    CK(code);
    return all;
}

// The groups of a split into as many as `count`, and what is left.
static std::vector<CUdevResource> split(const CUdevResource &all, unsigned count, unsigned least, CUdevResource *left = nullptr) {
    std::vector<CUdevResource> groups(count);
    CK(cuDevSmResourceSplitByCount(groups.data(), &count, &all, left, 0, least));
    EXPECT(count >= 1 && count <= groups.size(), "%u groups", count);
    groups.resize(count);
    return groups;
}

static CUdevResourceDesc describe(std::vector<CUdevResource> parts) {
    CUdevResourceDesc made = nullptr;
    CK(cuDevResourceGenerateDesc(&made, parts.data(), (unsigned)parts.size()));
    EXPECT(made != nullptr, "the descriptor is NULL");
    return made;
}

static CUgreenCtx make(CUdevice device, std::vector<CUdevResource> parts) {
    CUgreenCtx green = nullptr;
    CK(cuGreenCtxCreate(&green, describe(std::move(parts)), device, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT(green != nullptr, "the green context is NULL");
    return green;
}

// A green context with the smallest group that there is.
static CUgreenCtx smallest(CUdevice device) { return make(device, split(all_of(device), 1, 0)); }

static CUcontext context_of(CUgreenCtx green) {
    CUcontext context = nullptr;
    CK(cuCtxFromGreenCtx(&context, green));
    return context;
}

static CUstream stream_of(CUgreenCtx green) {
    CUstream stream = nullptr;
    CK(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
    return stream;
}

static unsigned word(CUdeviceptr at) {
    unsigned value = 0;
    CK(cuMemcpyDtoH(&value, at, 4));
    return value;
}

PITFALL(25, multiprocessors_are_split_by_the_rules) {
    Gpu gpu;
    CUdevResource all = all_of(gpu.device), again = all_of(gpu.device), own, none;
    unsigned total = all.sm.smCount;
    EXPECT(sizeof all == 144 && all.type == CU_DEV_RESOURCE_TYPE_SM, "%zu bytes, type %d", sizeof all, (int)all.type);
    EXPECT(total >= 1 && (int)total <= gpu.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), "%u multiprocessors", total);
    EXPECT(!memcmp(&all, &again, sizeof all), "asked again the resource is another");
    memset(&own, 0, sizeof own);
    CK(cuCtxGetDevResource(gpu.context, &own, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(!memcmp(&all, &own, sizeof all), "the context's resource is another than the device's");
    CK_IS(cuDeviceGetDevResource(gpu.device, &own, (CUdevResourceType)0), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CK_IS(cuCtxGetDevResource(gpu.context, &own, (CUdevResourceType)0), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CK_IS(cuDeviceGetDevResource(gpu.device, nullptr, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDeviceGetDevResource(99, &own, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_DEVICE);
    CK_IS(cuCtxGetDevResource(nullptr, &own, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_CONTEXT);

    CUdevResource left;
    for (unsigned least : {0u, 1u, total / 4, total / 2, total}) {
        memset(&left, 0, sizeof left);
        auto groups = split(all, 1, least, &left);
        unsigned have = groups[0].sm.smCount;
        EXPECT(groups[0].type == CU_DEV_RESOURCE_TYPE_SM && have >= least && have >= 1, "%u of at least %u", have, least);
        EXPECT(have + left.sm.smCount == total, "%u and %u are not %u", have, left.sm.smCount, total);
        EXPECT(left.type == (have == total ? CU_DEV_RESOURCE_TYPE_INVALID : CU_DEV_RESOURCE_TYPE_SM), "what is left has type %d",
               (int)left.type);
    }
    // As many as there are, and all alike.
    auto many = split(all, total, 0, &left);
    unsigned count = 0;
    CK(cuDevSmResourceSplitByCount(nullptr, &count, &all, nullptr, 0, 0));
    EXPECT(count == many.size(), "%u groups are said, %zu made", count, many.size());
    for (const auto &group : many)
        EXPECT(group.sm.smCount == many[0].sm.smCount, "groups of %u and of %u", many[0].sm.smCount, group.sm.smCount);
    // The same split, the same bytes.
    CUdevResource left_again;
    memset(&left_again, 0, sizeof left_again);
    auto same = split(all, total, 0, &left_again);
    EXPECT(same.size() == many.size() && !memcmp(same.data(), many.data(), many.size() * sizeof all), "the same split gives other groups");

    CUdevResource out[2];
    memset(out, 0, sizeof out);
    count = 1;
    CK_IS(cuDevSmResourceSplitByCount(out, &count, &all, nullptr, 0, total + 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    EXPECT(count == 1 && out[0].type == CU_DEV_RESOURCE_TYPE_INVALID, "a split that fails has made %u", count);
    CK_IS(cuDevSmResourceSplitByCount(out, &count, &all, nullptr, 3, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDevSmResourceSplitByCount(out, nullptr, &all, nullptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDevSmResourceSplitByCount(out, &count, nullptr, nullptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
    count = 0;
    CK_IS(cuDevSmResourceSplitByCount(out, &count, &all, nullptr, 0, 1), CUDA_ERROR_INVALID_VALUE);
    memset(&none, 0, sizeof none);
    count = 2;
    CK_IS(cuDevSmResourceSplitByCount(out, &count, &none, nullptr, 0, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    // A split resource cannot be split again.
    auto groups = split(all, 1, total / 2, &left);
    CK_IS(cuDevSmResourceSplitByCount(out, &count, &groups[0], nullptr, 0, 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    if (left.type == CU_DEV_RESOURCE_TYPE_SM)
        CK_IS(cuDevSmResourceSplitByCount(out, &count, &left, nullptr, 0, 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
}

PITFALL(25, green_contexts_are_contexts) {
    Gpu gpu;
    CUdevResource all = all_of(gpu.device), left, has;
    auto groups = split(all, 1, 0, &left);
    CUdevResourceDesc one = describe(groups);
    CUgreenCtx green = nullptr, other = nullptr;
    CK_IS(cuGreenCtxCreate(&green, one, gpu.device, 2), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuGreenCtxCreate(&green, one, 99, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_DEVICE);
    CK(cuGreenCtxCreate(&green, one, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM));
    // A descriptor is good for several.
    CK(cuGreenCtxCreate(&other, one, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT(green != other, "two green contexts are one");
    memset(&has, 0, sizeof has);
    CK(cuGreenCtxGetDevResource(green, &has, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(has.sm.smCount == groups[0].sm.smCount, "%u multiprocessors in place of %u", has.sm.smCount, groups[0].sm.smCount);
    CK_IS(cuGreenCtxGetDevResource(green, &has, (CUdevResourceType)0), CUDA_ERROR_INVALID_RESOURCE_TYPE);

    CUcontext context = context_of(green), now = nullptr;
    EXPECT((void *)context == (void *)green && context_of(green) == context, "its context is another handle");
    CK(cuCtxGetCurrent(&now));
    EXPECT(now == gpu.context, "making one has changed the current context");
    unsigned long long id = 0, id_of_context = 0, id_of_primary = 0;
    using GetId = CUresult (*)(CUgreenCtx, unsigned long long *);
    if (auto get_id = (GetId)dlsym(RTLD_DEFAULT, "cuGreenCtxGetId")) {
        CK(get_id(green, &id));
        CK(cuCtxGetId(context, &id_of_context));
        CK(cuCtxGetId(gpu.context, &id_of_primary));
        EXPECT(id == id_of_context && id != id_of_primary, "ids %llu, %llu, %llu", id, id_of_context, id_of_primary);
        CK_IS(get_id(nullptr, &id), CUDA_ERROR_INVALID_CONTEXT);
    }
    CK(cuCtxSetCurrent(context));
    CK(cuCtxGetCurrent(&now));
    CUdevice device = -1;
    CK(cuCtxGetDevice(&device));
    EXPECT(now == context && device == gpu.device, "the current context is another, on device %d", device);
    memset(&has, 0, sizeof has);
    CK(cuCtxGetDevResource(context, &has, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(has.sm.smCount == groups[0].sm.smCount, "its context has %u multiprocessors", has.sm.smCount);
    size_t stack = 0;
    unsigned flags = 0, version = 0;
    CK(cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE));
    CK(cuCtxGetFlags(&flags));
    CK(cuCtxGetApiVersion(context, &version));
    CK(cuCtxSynchronize());
    // Only the call for green contexts destroys one.
    CK_IS(cuCtxDestroy(context), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuCtxGetCurrent(&now));
    EXPECT(now == context, "what cannot be destroyed so is current no more");

    CUstream stream = nullptr;
    CK_IS(cuGreenCtxStreamCreate(&stream, green, 0, 0), CUDA_ERROR_INVALID_VALUE);
    stream = stream_of(green);
    CUcontext of = nullptr;
    CUgreenCtx green_of = nullptr;
    CK(cuStreamGetCtx(stream, &of));
    EXPECT(of == context, "its stream is of another context");
    CK(cuStreamGetCtx_v2(stream, &of, &green_of));
    EXPECT(of == gpu.context && green_of == green, "its stream is of %p and %p", (void *)of, (void *)green_of);
    CK(cuStreamGetGreenCtx(stream, &green_of));
    EXPECT(green_of == green, "its stream is of the green context %p", (void *)green_of);
    int priority = -9;
    CK(cuStreamGetFlags(stream, &flags));
    CK(cuStreamGetPriority(stream, &priority));
    EXPECT(flags == CU_STREAM_NON_BLOCKING && priority == 0, "flags %u, priority %d", flags, priority);
    CK(cuStreamGetCtx_v2(nullptr, &of, &green_of));
    EXPECT(of == gpu.context && green_of == green, "the default stream is of %p and %p", (void *)of, (void *)green_of);
    CK(cuCtxSetCurrent(gpu.context));
    CUstream plain = new_stream();
    green_of = green;
    CK(cuStreamGetGreenCtx(plain, &green_of));
    EXPECT(green_of == nullptr, "a stream of the primary context is of a green one");
    green_of = green;
    CK(cuStreamGetCtx_v2(plain, &of, &green_of));
    EXPECT(of == gpu.context && green_of == nullptr, "a plain stream is of %p and %p", (void *)of, (void *)green_of);

    CK_IS(cuCtxFromGreenCtx(&of, nullptr), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuGreenCtxDestroy(nullptr), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuGreenCtxGetDevResource(nullptr, &has, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuGreenCtxStreamCreate(&plain, nullptr, CU_STREAM_NON_BLOCKING, 0), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuStreamDestroy(stream));
    CK(cuGreenCtxDestroy(green));
    CK(cuGreenCtxDestroy(other));
    CK(cuCtxSynchronize());
}

PITFALL(25, groups_of_a_split_make_green_contexts) {
    Gpu gpu;
    CUdevResource all = all_of(gpu.device), left, has;
    memset(&left, 0, sizeof left);
    auto groups = split(all, 2, 0, &left);
    auto count = [&](CUgreenCtx green) {
        CK(cuGreenCtxGetDevResource(green, &has, CU_DEV_RESOURCE_TYPE_SM));
        CK(cuGreenCtxDestroy(green));
        return has.sm.smCount;
    };
    unsigned each = groups[0].sm.smCount;
    EXPECT(count(make(gpu.device, {all})) == all.sm.smCount, "of the whole device there are %u", has.sm.smCount);
    if (groups.size() == 2)
        EXPECT(count(make(gpu.device, groups)) == 2 * each, "of both groups there are %u", has.sm.smCount);
    if (left.type == CU_DEV_RESOURCE_TYPE_SM)
        EXPECT(count(make(gpu.device, {groups[0], left})) == each + left.sm.smCount, "of a group and the rest there are %u",
               has.sm.smCount);
}

PITFALL(25, what_is_made_in_a_green_context_is_the_primarys) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUgreenCtx green = smallest(gpu.device);
    CUcontext context = context_of(green);
    CUstream plain = new_stream(), own = stream_of(green);
    CK(cuCtxSetCurrent(context));
    CUdeviceptr memory = 0;
    CK(cuMemAlloc(&memory, 4096));
    CUcontext of = nullptr;
    CK(cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_CONTEXT, memory));
    EXPECT(of == gpu.context, "the memory is of another context");
    CUevent event = nullptr;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    // The primary context's function in each stream that there is.
    CUstream streams[] = {own, nullptr, CU_STREAM_LEGACY, plain};
    for (unsigned i = 0; i < 4; i++) {
        LAUNCH(fill, 1, 32, streams[i], memory, 10 + i, 32u);
        CK(cuEventRecord(event, streams[i]));
        CK(cuEventSynchronize(event));
        EXPECT(word(memory + 64) == 10 + i, "stream %u: %u", i, word(memory + 64));
    }
    CUmodule module = nullptr;
    CUfunction loaded = nullptr;
    CK(cuModuleLoadData(&module, kernels_ptx));
    CK(cuModuleGetFunction(&loaded, module, "fill"));
    CK(cuCtxSetCurrent(gpu.context));
    LAUNCH(loaded, 1, 32, plain, memory, 20u, 32u);
    CK(cuStreamSynchronize(plain));
    EXPECT(word(memory) == 20, "by the function that was loaded in it: %u", word(memory));
    // In the green context's stream, while the primary context is current.
    LAUNCH(fill, 1, 32, own, memory, 21u, 32u);
    CK(cuStreamSynchronize(own));
    EXPECT(word(memory) == 21, "%u", word(memory));
    CK(cuGreenCtxDestroy(green));
    EXPECT(word(memory) == 21, "the memory has gone with the green context: %u", word(memory));
    LAUNCH(loaded, 1, 32, plain, memory, 22u, 32u);
    CK(cuStreamSynchronize(plain));
    CK(cuEventRecord(event, plain));
    CK(cuEventSynchronize(event));
    EXPECT(word(memory) == 22, "%u", word(memory));
    CK(cuModuleUnload(module));
    CK(cuMemFree(memory));
}

PITFALL(24, green_contexts_record_and_wait) {
    Gpu gpu;
    Gate gate(gpu);
    CUgreenCtx green = smallest(gpu.device);
    CUcontext context = context_of(green);
    CUstream held = stream_of(green), other = new_stream();
    CUdeviceptr words = device_words(64);
    CUevent record = nullptr, wait = nullptr;
    CK(cuEventCreate(&record, CU_EVENT_DISABLE_TIMING));
    CK(cuEventCreate(&wait, CU_EVENT_DISABLE_TIMING));
    gate.close(held);
    CK(cuGreenCtxRecordEvent(green, record));
    CK_IS(cuEventQuery(record), CUDA_ERROR_NOT_READY);
    CK_IS(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    // A stream of the primary context is delayed only by the event.
    CK(cuMemsetD32Async(words, 1, 1, other));
    CK(cuStreamSynchronize(other));
    CK(cuStreamWaitEvent(other, record, 0));
    CK(cuMemsetD32Async(words + 4, 2, 1, other));
    CK_IS(cuStreamQuery(other), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(other));
    CK(cuEventSynchronize(record));
    EXPECT(word(words + 4) == 2, "%u", word(words + 4));
    // And the reverse: all later work of the green context waits.
    gate.close(other);
    CK(cuEventRecord(wait, other));
    CK(cuGreenCtxWaitEvent(green, wait));
    CUstream late = stream_of(green);
    CK(cuMemsetD32Async(words + 8, 3, 1, held));
    CK(cuMemsetD32Async(words + 12, 4, 1, late));
    CK_IS(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
    CK_IS(cuStreamQuery(late), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuStreamSynchronize(held));
    CK(cuStreamSynchronize(late));
    CK(cuCtxRecordEvent(context, record));
    CK(cuCtxWaitEvent(context, wait));
    CK_IS(cuGreenCtxRecordEvent(nullptr, record), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuGreenCtxWaitEvent(nullptr, record), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuStreamDestroy(held));
    CK(cuStreamDestroy(late));
    CK(cuGreenCtxDestroy(green));
}

PITFALL(22, the_primary_context_waits_for_its_green_ones) {
    Gpu gpu;
    Gate gate(gpu);
    CUgreenCtx green = smallest(gpu.device);
    CUcontext context = context_of(green);
    CUstream held = stream_of(green), plain = new_stream();
    CUdeviceptr words = device_words(64);
    for (bool in_green : {false, true}) {
        CK(cuCtxSetCurrent(in_green ? context : gpu.context));
        set_words(words, 0, 1);
        gate.close(held);
        CK(cuMemsetD32Async(words, 7, 1, held));
        gate.open_later();
        CK(cuCtxSynchronize());
        EXPECT(gate.is_open(), "the wait was over before the work");
        CK_IS(cuStreamQuery(held), CUDA_SUCCESS);
        EXPECT(word(words) == 7, "%u", word(words));
        gate.wait_opened();
    }
    CK(cuCtxSetCurrent(gpu.context));
    // CUDA does not define whether freeing memory waits for the green contexts of its context.
    CUdeviceptr freed = 0;
    CK(cuCtxSetCurrent(context));
    CK(cuMemAlloc(&freed, 1 << 20));
    gate.close(held);
    CK(cuMemsetD32Async(freed, 7, 1 << 18, held));
    gate.open_later();
    CK(cuMemFree(freed));
    pitfall::observed("a free waits for a green stream=%d", gate.is_open());
    gate.wait_opened();
    CK(cuStreamSynchronize(plain));
    CK(cuCtxSetCurrent(gpu.context));
    CK(cuStreamDestroy(held));
    CK(cuGreenCtxDestroy(green));
}

PITFALL(22, a_green_context_ends_behind_its_work) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUgreenCtx green = smallest(gpu.device);
    CUstream stream = stream_of(green);
    CUdeviceptr words = device_words(1, 1);
    CUevent event = nullptr;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    unsigned expected = 1;
    // Enough for a crowd that becomes a graph, more than once.
    for (unsigned i = 0; i < 1000; i++) {
        LAUNCH(step, 1, 1, stream, words, 3u, i);
        expected = expected * 3 + i;
    }
    CK(cuEventRecord(event, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(word(words) == expected, "%u in place of %u", word(words), expected);
    for (unsigned i = 0; i < 1000; i++) {
        LAUNCH(step, 1, 1, stream, words, 5u, i);
        expected = expected * 5 + i;
    }
    CK(cuCtxSynchronize());
    CK(cuStreamDestroy(stream));
    CK(cuGreenCtxDestroy(green));
    CK(cuEventSynchronize(event));
    EXPECT(word(words) == expected, "%u in place of %u", word(words), expected);
    // Again and again, and nothing stays of them.
    for (unsigned i = 0; i < 100; i++) {
        green = smallest(gpu.device);
        stream = stream_of(green);
        LAUNCH(step, 1, 1, stream, words, 1u, 1u);
        CK(cuStreamSynchronize(stream));
        CK(cuStreamDestroy(stream));
        CK(cuGreenCtxDestroy(green));
    }
    EXPECT(word(words) == expected + 100, "%u in place of %u", word(words), expected + 100);
}

PITFALL(58, a_green_context_ends_while_it_is_current) {
    Gpu gpu;
    CUgreenCtx green = smallest(gpu.device);
    CUcontext context = context_of(green);
    CUstream stream = stream_of(green);
    CK(cuCtxSetCurrent(context));
    CK(cuGreenCtxDestroy(green));
    CUcontext now = nullptr;
    CK(cuCtxGetCurrent(&now));
    EXPECT(now == context, "it is current no more");
    CUdeviceptr memory = 0;
    CK_IS(cuMemAlloc(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK(cuCtxSetCurrent(gpu.context));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK_IS(cuStreamDestroy(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK(cuMemAlloc(&memory, 16));
    CK(cuMemFree(memory));
}

// CUDA lets only one thread at a time use it.
PITFALL_OURS(58, a_green_context_ends_while_other_threads_have_it) {
    Gpu gpu;
    CUgreenCtx green = smallest(gpu.device);
    CUcontext context = context_of(green);
    std::atomic<int> ready{0};
    std::atomic<bool> ended{false};
    std::vector<std::thread> threads;
    for (unsigned i = 0; i < 4; i++) {
        threads.emplace_back([&] {
            CUcontext seen = nullptr;
            CUdeviceptr memory = 0;
            CK(cuCtxSetCurrent(context));
            CK(cuMemAlloc(&memory, 16));
            ready++;
            while (!ended)
                std::this_thread::yield();
            CK(cuCtxGetCurrent(&seen));
            EXPECT(seen == context, "it is current no more");
            CK_IS(cuMemAlloc(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            CK_IS(cuMemsetD8(memory, 1, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            CK_IS(cuCtxSynchronize(), CUDA_ERROR_CONTEXT_IS_DESTROYED);
            CK(cuCtxSetCurrent(gpu.context));
            CK(cuMemsetD8(memory, 1, 16));
            CK(cuMemFree(memory));
        });
    }
    while (ready != 4)
        std::this_thread::yield();
    CK(cuGreenCtxDestroy(green));
    ended = true;
    for (auto &thread : threads)
        thread.join();
}

PITFALL(59, a_green_context_retains_the_primary) {
    Gpu gpu;
    CUdevResource all = all_of(gpu.device);
    CUdevResourceDesc whole = describe({all});
    CUgreenCtx green = nullptr;
    CK(cuCtxSetCurrent(nullptr));
    CK(cuDevicePrimaryCtxRelease(gpu.device));
    unsigned flags = 0;
    int active = -1;
    auto is_active = [&] {
        CK(cuDevicePrimaryCtxGetState(gpu.device, &flags, &active));
        return active == 1;
    };
    EXPECT(!is_active(), "the primary context is active");
    CK(cuGreenCtxCreate(&green, whole, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM));
    EXPECT(is_active(), "the primary context is not active");
    CK(cuCtxSetCurrent(context_of(green)));
    CUdeviceptr memory = device_words(4, 5);
    EXPECT(word(memory) == 5, "%u", word(memory));
    CK(cuCtxSetCurrent(nullptr));
    CK(cuGreenCtxDestroy(green));
    EXPECT(!is_active(), "the primary context stays active");
    // It continues to exist while it is retained once more.
    CUcontext primary = nullptr;
    CK(cuGreenCtxCreate(&green, whole, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM));
    CK(cuDevicePrimaryCtxRetain(&primary, gpu.device));
    CK(cuCtxSetCurrent(primary));
    memory = device_words(4, 6);
    CK(cuGreenCtxDestroy(green));
    EXPECT(word(memory) == 6, "%u", word(memory));
    CK(cuDevicePrimaryCtxRelease(gpu.device));
}

PITFALL(39, graphs_are_captured_in_green_streams) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUgreenCtx green = smallest(gpu.device);
    CUstream own = stream_of(green), plain = new_stream();
    CUdeviceptr words = device_words(2, 1);
    CK(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(step, 1, 1, own, words, 3u, 1u);
    CK(cuMemsetD32Async(words + 4, 9, 1, own));
    LAUNCH(step, 1, 1, own, words, 3u, 2u);
    CUgraph graph = nullptr;
    CK(cuStreamEndCapture(own, &graph));
    CUgraphExec exec = nullptr;
    CK(cuGraphInstantiate(&exec, graph, 0));
    unsigned expected = 1;
    for (CUstream stream : {own, plain, own}) {
        set_words(words + 4, 0, 1);
        CK(cuGraphLaunch(exec, stream));
        CK(cuStreamSynchronize(stream));
        expected = (expected * 3 + 1) * 3 + 2;
        EXPECT(word(words) == expected && word(words + 4) == 9, "%u, %u in place of %u", word(words), word(words + 4), expected);
    }
    CK(cuGraphExecDestroy(exec));
    // One that was captured elsewhere, in a green stream.
    CUgraph other = nullptr;
    CK(cuStreamBeginCapture(plain, CU_STREAM_CAPTURE_MODE_GLOBAL));
    LAUNCH(step, 1, 1, plain, words, 7u, 1u);
    CK(cuStreamEndCapture(plain, &other));
    CK(cuGraphInstantiate(&exec, other, 0));
    CK(cuGraphLaunch(exec, own));
    CK(cuStreamSynchronize(own));
    expected = expected * 7 + 1;
    EXPECT(word(words) == expected, "%u in place of %u", word(words), expected);
    CK(cuGraphExecDestroy(exec));
    CK(cuGraphDestroy(other));
    CK(cuGraphDestroy(graph));
    CK(cuStreamDestroy(own));
    CK(cuGreenCtxDestroy(green));
}

PITFALL(68, memory_is_freed_in_the_order_of_green_streams) {
    Gpu gpu;
    CUgreenCtx green = smallest(gpu.device);
    CUstream own = stream_of(green);
    for (unsigned i = 0; i < 50; i++) {
        CUdeviceptr memory = 0;
        unsigned value = 0;
        CK(cuMemAllocAsync(&memory, 1 << 16, own));
        CK(cuMemsetD32Async(memory, i, 1 << 14, own));
        CK(cuMemcpyDtoHAsync(&value, memory + (1 << 15), 4, own));
        CK(cuMemFreeAsync(memory, own));
        CK(cuStreamSynchronize(own));
        EXPECT(value == i, "%u in place of %u", value, i);
    }
    // Use beyond the green context.
    CUdeviceptr kept = 0;
    CK(cuMemAllocAsync(&kept, 4096, own));
    CK(cuMemsetD32Async(kept, 77, 1024, own));
    CK(cuStreamSynchronize(own));
    CK(cuStreamDestroy(own));
    CK(cuGreenCtxDestroy(green));
    EXPECT(word(kept) == 77, "%u", word(kept));
    CUstream plain = new_stream();
    CK(cuMemFreeAsync(kept, plain));
    CK(cuStreamSynchronize(plain));
}

PITFALL(25, threads_have_green_contexts_of_their_own) {
    Gpu gpu;
    CUfunction step = gpu.function("step");
    CUdevResource all = all_of(gpu.device);
    auto groups = split(all, 4, 0);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < groups.size(); i++) {
        threads.emplace_back([&, i] {
            CUgreenCtx green = make(gpu.device, {groups[i]});
            CK(cuCtxSetCurrent(context_of(green)));
            CUstream own = stream_of(green);
            CUdeviceptr words = 0;
            CK(cuMemAlloc(&words, 8));
            CK(cuMemsetD32(words, 1, 2));
            CK(cuCtxSynchronize());
            unsigned expected = 1;
            for (unsigned n = 0; n < 200; n++) {
                LAUNCH(step, 1, 1, own, words, 3u, n);
                LAUNCH(step, 1, 1, nullptr, words + 4, 3u, n);
                expected = expected * 3 + n;
                if (n % 50 == 0)
                    CK(cuCtxSynchronize());
            }
            CK(cuCtxSynchronize());
            EXPECT(word(words) == expected && word(words + 4) == expected, "%u, %u in place of %u", word(words), word(words + 4),
                   expected);
            CK(cuMemFree(words));
            CK(cuStreamDestroy(own));
            CK(cuCtxSetCurrent(nullptr));
            CK(cuGreenCtxDestroy(green));
        });
    }
    for (auto &thread : threads)
        thread.join();
}

PITFALL(47, cooperative_grids_fit_the_green_context) {
    Gpu gpu;
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH))
        pitfall::skip("no cooperative launches");
    CUfunction fill = gpu.function("fill");
    CUdevResource all = all_of(gpu.device);
    auto groups = split(all, 1, 0);
    int on_each = 0;
    CK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, fill, 256, 0));
    unsigned most = all.sm.smCount * on_each, here = groups[0].sm.smCount * on_each;
    CUgreenCtx green = make(gpu.device, groups);
    CUstream own = stream_of(green), plain = new_stream();
    CUdeviceptr words = device_words(1024);
    unsigned value = 3, count = 1024;
    void *params[] = {&words, &value, &count};
    CK(cuLaunchCooperativeKernel(fill, most, 1, 1, 256, 1, 1, 0, plain, params));
    CK(cuStreamSynchronize(plain));
    value = 4;
    CK(cuLaunchCooperativeKernel(fill, here, 1, 1, 256, 1, 1, 0, own, params));
    CK(cuStreamSynchronize(own));
    EXPECT(word(words + 4000) == 4, "%u", word(words + 4000));
    // On some GPUs a green context may use more multiprocessors than it was given.
    OBSERVE("hw.more blocks than its multiprocessors hold", cuLaunchCooperativeKernel(fill, most, 1, 1, 256, 1, 1, 0, own, params));
    CK(cuStreamSynchronize(own));
    CK(cuGreenCtxDestroy(green));
}

PITFALL(60, a_child_has_no_green_context) {
    Gpu gpu;
    CUgreenCtx green = smallest(gpu.device);
    CK(cuCtxSetCurrent(context_of(green)));
    fflush(nullptr);
    pid_t child = fork();
    if (child == 0) {
        CUdeviceptr memory = 0;
        _exit(cuMemAlloc(&memory, 16) == CUDA_SUCCESS);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child has the parent's green context");
    CUdeviceptr words = device_words(1, 8);
    EXPECT(word(words) == 8, "%u", word(words));
    CK(cuCtxSetCurrent(gpu.context));
    CK(cuGreenCtxDestroy(green));
}

// Whether work in the default streams of two contexts is ordered CUDA leaves open.
PITFALL_OURS(21, a_green_context_has_a_default_stream_of_its_own) {
    Gpu gpu;
    Gate gate(gpu);
    CUfunction fill = gpu.function("fill");
    CUdevResource all = all_of(gpu.device);
    CUgreenCtx green = smallest(gpu.device);
    CUdeviceptr words = device_words(1024);
    int on_each = 0;
    CK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&on_each, fill, 256, 0));
    unsigned most = all.sm.smCount * on_each, value = 3, count = 1024;
    void *params[] = {&words, &value, &count};
    // The same handle is used with different streams in turn.
    CK(cuLaunchCooperativeKernel(fill, most, 1, 1, 256, 1, 1, 0, nullptr, params));
    CK(cuCtxSynchronize());
    gate.close(nullptr);
    CK(cuCtxSetCurrent(context_of(green)));
    CK_IS(cuLaunchCooperativeKernel(fill, most, 1, 1, 256, 1, 1, 0, nullptr, params), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    LAUNCH(fill, 1, 32, nullptr, words, 9u, 32u);
    CK(cuStreamSynchronize(nullptr));
    CK_IS(cuStreamQuery(nullptr), CUDA_SUCCESS);
    CK(cuCtxSynchronize());
    CUstream made = new_stream(false);
    CUgreenCtx of = nullptr;
    CUcontext primary = nullptr;
    CK(cuStreamGetCtx_v2(made, &primary, &of));
    EXPECT(of == green && primary == gpu.context, "a stream that is made in it is another's");
    CK(cuCtxSetCurrent(gpu.context));
    CK_IS(cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
    gate.open();
    CK(cuCtxSynchronize());
    EXPECT(word(words) == 9, "%u", word(words));
    CK(cuGreenCtxDestroy(green));
}

PITFALL_OURS(63, green_handles_that_are_none) {
    Gpu gpu;
    CUdevResource all = all_of(gpu.device), left, has, bad;
    auto groups = split(all, 2, 0, &left);
    CUgreenCtx green = make(gpu.device, {groups[0]}), none = nullptr;
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CK(cuEventCreate(&event, 0));
    for (uintptr_t handle : {(uintptr_t)0x1234, (uintptr_t)gpu.context, (uintptr_t)event, ~(uintptr_t)0}) {
        CUgreenCtx wrong = (CUgreenCtx)handle;
        CK_IS(cuCtxFromGreenCtx(&context, wrong), CUDA_ERROR_INVALID_CONTEXT);
        CK_IS(cuGreenCtxDestroy(wrong), CUDA_ERROR_INVALID_CONTEXT);
        CK_IS(cuGreenCtxGetDevResource(wrong, &has, CU_DEV_RESOURCE_TYPE_SM), CUDA_ERROR_INVALID_CONTEXT);
        CK_IS(cuGreenCtxStreamCreate(&stream, wrong, CU_STREAM_NON_BLOCKING, 0), CUDA_ERROR_INVALID_CONTEXT);
        CK_IS(cuGreenCtxRecordEvent(wrong, event), CUDA_ERROR_INVALID_CONTEXT);
        CK_IS(cuGreenCtxWaitEvent(wrong, event), CUDA_ERROR_INVALID_CONTEXT);
        CUdevResourceDesc descriptor = (CUdevResourceDesc)handle;
        CK_IS(cuGreenCtxCreate(&none, descriptor, gpu.device, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_VALUE);
    }
    CK_IS(cuGreenCtxRecordEvent(green, (CUevent)0x1234), CUDA_ERROR_INVALID_HANDLE);
    CK_IS(cuGreenCtxWaitEvent(green, nullptr), CUDA_ERROR_INVALID_HANDLE);
    // Resources that do not exist.
    CUdevResourceDesc descriptor = nullptr;
    memset(&bad, 0xff, sizeof bad);
    bad.type = CU_DEV_RESOURCE_TYPE_SM;
    CK_IS(cuDevResourceGenerateDesc(&descriptor, &bad, 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    unsigned count = 1;
    CK_IS(cuDevSmResourceSplitByCount(&has, &count, &bad, nullptr, 0, 1), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    memset(&bad, 0, sizeof bad);
    CK_IS(cuDevResourceGenerateDesc(&descriptor, &bad, 1), CUDA_ERROR_INVALID_RESOURCE_TYPE);
    CK_IS(cuDevResourceGenerateDesc(&descriptor, groups.data(), 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDevResourceGenerateDesc(&descriptor, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuDevResourceGenerateDesc(nullptr, groups.data(), 1), CUDA_ERROR_INVALID_VALUE);
    // From two splits, and the whole device twice.
    auto others = split(all, 1, all.sm.smCount);
    CUdevResource mixed[] = {groups[0], others[0]}, twice[] = {all, all};
    CK_IS(cuDevResourceGenerateDesc(&descriptor, mixed, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    CK_IS(cuDevResourceGenerateDesc(&descriptor, twice, 2), CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    // The count is only informative: a change has no effect.
    bad = groups[0];
    bad.sm.smCount += 100;
    CUgreenCtx same = make(gpu.device, {bad});
    CK(cuGreenCtxGetDevResource(same, &has, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(has.sm.smCount == groups[0].sm.smCount, "%u multiprocessors in place of %u", has.sm.smCount, groups[0].sm.smCount);
    // The resources of a green context can be split again.
    CUgreenCtx whole = make(gpu.device, {all});
    CK(cuGreenCtxGetDevResource(whole, &has, CU_DEV_RESOURCE_TYPE_SM));
    auto inner = split(has, 1, 0);
    CUgreenCtx nested = make(gpu.device, inner);
    CK(cuGreenCtxGetDevResource(nested, &bad, CU_DEV_RESOURCE_TYPE_SM));
    EXPECT(bad.sm.smCount == inner[0].sm.smCount, "%u in place of %u", bad.sm.smCount, inner[0].sm.smCount);
    for (CUgreenCtx of : {nested, whole, same, green})
        CK(cuGreenCtxDestroy(of));
    CK_IS(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuCtxFromGreenCtx(&context, green), CUDA_ERROR_INVALID_CONTEXT);
    // The software GPU's own resources are numbers, which last.
    if (pitfall::backend() != "software")
        CK_IS(cuGreenCtxCreate(&none, describe(inner), gpu.device, CU_GREEN_CTX_DEFAULT_STREAM), CUDA_ERROR_INVALID_CONTEXT);
    // A reset destroys them all, and their streams.
    green = make(gpu.device, {groups[0]});
    stream = stream_of(green);
    CK(cuCtxSetCurrent(context_of(green)));
    CK(cuDevicePrimaryCtxReset(gpu.device));
    CK_IS(cuGreenCtxDestroy(green), CUDA_ERROR_INVALID_CONTEXT);
    CUdeviceptr memory = 0;
    CK_IS(cuMemAlloc(&memory, 16), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    CK(cuCtxSetCurrent(nullptr));
    green = make(gpu.device, {groups[0]});
    CK(cuCtxSetCurrent(context_of(green)));
    CK(cuMemFree(device_words(16)));
    CK(cuGreenCtxDestroy(green));
}

PITFALL_MAIN
