// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Profiles: the records of CUPTI's activities, and its callbacks (pitfall 91). Natively they are NVIDIA's own.
#include "driver.h"
#include <dlfcn.h>
#include <utility>
#include <map>
#include <string>
#include <thread>
#include <vector>

// Numbers of CUPTI's headers.
enum : unsigned { MEMCPY = 1, MEMSET = 2, DRIVER = 4, CONCURRENT_KERNEL = 10, EXTERNAL_CORRELATION = 39 };
enum : unsigned { DRIVER_DOMAIN = 1, CUSTOM0 = 3, NOT_SUPPORTED = 27, NOT_INITIALIZED = 15 };
enum : unsigned char { HTOD = 1, DTOH = 2, PAGEABLE = 1, DEVICE = 3 };

static void *cupti_library() {
    static void *library = [] {
        for (const char *name : {"libcupti.so.13", "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13"})
            if (void *found = dlopen(name, RTLD_NOW))
                return found;
        return (void *)nullptr;
    }();
    if (!library)
        pitfall::skip("no CUPTI");
    return library;
}

// Calls a function of CUPTI by name; the arguments have the types of its declaration.
template <class... A> static unsigned cupti(const char *name, A... arguments) {
    auto function = (unsigned (*)(A...))dlsym(cupti_library(), name);
    EXPECT(function, "no %s", name);
    return function(arguments...);
}

#define CUPTI(NAME, ...)                                                                                               \
    do {                                                                                                               \
        unsigned status_ = cupti(NAME, ##__VA_ARGS__);                                                                 \
        EXPECT(status_ == 0, "%s returned %u", NAME, status_);                                                         \
    } while (0)

// Enables records of work. A host without CUPTI refuses.
static void enable(unsigned kind) {
    unsigned status = cupti("cuptiActivityEnable", kind);
    if (kind != DRIVER && kind != EXTERNAL_CORRELATION && (status == NOT_SUPPORTED || status == NOT_INITIALIZED))
        pitfall::skip("the host serves no CUPTI");
    EXPECT(status == 0, "cuptiActivityEnable(%u) returned %u", kind, status);
}

// A record, as far as the tests look at it.
struct Record {
    unsigned kind = 0, correlation = 0;
    unsigned long long start = 0, end = 0, bytes = 0, external = 0;
    unsigned char copy = 0, from = 0, to = 0;
    unsigned callback = 0, grid = 0, block = 0, stream = 0;
    std::string name;
};

template <class T> static T at(const char *record, size_t offset) {
    T value;
    memcpy(&value, record + offset, sizeof value);
    return value;
}

// Reads a record by the offsets of CUPTI's structures, which have not changed since CUDA 12.0.
static Record read(const char *record) {
    Record found;
    found.kind = at<unsigned>(record, 0);
    switch (found.kind) {
    case CONCURRENT_KERNEL:
        found.start = at<unsigned long long>(record, 16);
        found.end = at<unsigned long long>(record, 24);
        found.stream = at<unsigned>(record, 48);
        found.grid = at<unsigned>(record, 52);
        found.block = at<unsigned>(record, 64);
        found.correlation = at<unsigned>(record, 92);
        found.name = at<const char *>(record, 104);
        break;
    case MEMCPY:
        found.copy = at<unsigned char>(record, 4);
        found.from = at<unsigned char>(record, 5);
        found.to = at<unsigned char>(record, 6);
        found.bytes = at<unsigned long long>(record, 8);
        found.start = at<unsigned long long>(record, 16);
        found.end = at<unsigned long long>(record, 24);
        found.stream = at<unsigned>(record, 40);
        found.correlation = at<unsigned>(record, 44);
        break;
    case MEMSET:
        found.bytes = at<unsigned long long>(record, 8);
        found.start = at<unsigned long long>(record, 16);
        found.end = at<unsigned long long>(record, 24);
        found.stream = at<unsigned>(record, 40);
        found.correlation = at<unsigned>(record, 44);
        break;
    case DRIVER:
        found.callback = at<unsigned>(record, 4);
        found.start = at<unsigned long long>(record, 8);
        found.end = at<unsigned long long>(record, 16);
        found.correlation = at<unsigned>(record, 32);
        break;
    case EXTERNAL_CORRELATION:
        found.external = at<unsigned long long>(record, 8);
        found.correlation = at<unsigned>(record, 16);
        break;
    }
    return found;
}

static std::mutex records_lock;
static std::vector<Record> records;
static size_t buffer_bytes = 1 << 20;

static void requested(unsigned char **buffer, size_t *size, size_t *most) {
    *buffer = (unsigned char *)aligned_alloc(8, buffer_bytes);
    *size = buffer_bytes;
    *most = 0;
}

static void completed(CUcontext, unsigned, unsigned char *buffer, size_t, size_t valid) {
    void *record = nullptr;
    std::lock_guard<std::mutex> guard(records_lock);
    while (cupti("cuptiActivityGetNextRecord", buffer, valid, &record) == 0)
        records.push_back(read((const char *)record));
    free(buffer);
}

// Takes all records of work that has ended.
static std::vector<Record> take() {
    CK(cuCtxSynchronize());
    CUPTI("cuptiActivityFlushAll", 0u);
    std::lock_guard<std::mutex> guard(records_lock);
    return std::exchange(records, {});
}

static std::vector<Record> of_kind(const std::vector<Record> &all, unsigned kind) {
    std::vector<Record> found;
    for (const Record &record : all)
        if (record.kind == kind)
            found.push_back(record);
    return found;
}

static void launch(CUfunction fill, CUdeviceptr words, unsigned value, unsigned count, CUstream stream) {
    void *params[] = {&words, &value, &count};
    CK(cuLaunchKernel(fill, (count + 255) / 256, 1, 1, 256, 1, 1, 0, stream, params, nullptr));
}

// Each piece of work has one record, in the time of its call and of the synchronisation, which leads to the call.
PITFALL(91, each_piece_of_work_has_a_record) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUstream stream = new_stream();
    const unsigned count = 1 << 20;
    CUdeviceptr words = device_words(count);
    std::vector<unsigned> host(count, 5);
    CUPTI("cuptiActivityRegisterCallbacks", (void *)requested, (void *)completed);
    for (unsigned kind : {DRIVER, CONCURRENT_KERNEL, MEMCPY, MEMSET, EXTERNAL_CORRELATION})
        enable(kind);
    unsigned long long began = 0, ended = 0;
    CUPTI("cuptiGetTimestamp", &began);
    for (unsigned i = 1; i <= 3; i++) {
        CUPTI("cuptiActivityPushExternalCorrelationId", CUSTOM0, 100ull + i);
        launch(fill, words, i, i * 1024, stream);
        unsigned long long last = 0;
        CUPTI("cuptiActivityPopExternalCorrelationId", CUSTOM0, &last);
        EXPECT(last == 100 + i, "%llu", last);
    }
    CK(cuMemsetD32Async(words, 9, 512, stream));
    CK(cuStreamSynchronize(stream));
    // Pageable memory: less than a block of the ring, and more than the ring takes.
    CK(cuMemcpyHtoD(words, host.data(), 4096));
    CK(cuMemcpyDtoH(host.data(), words, count * 4));
    std::vector<Record> all = take();
    CUPTI("cuptiGetTimestamp", &ended);
    EXPECT(host[0] == 5 && host[1024] == 3 && host[2048] == 3, "%u %u %u", host[0], host[1024], host[2048]);

    std::map<unsigned, std::vector<Record>> calls;
    std::map<unsigned, unsigned long long> numbers;
    for (const Record &record : all) {
        if (record.kind == DRIVER)
            calls[record.correlation].push_back(record);
        if (record.kind == EXTERNAL_CORRELATION)
            numbers[record.correlation] = record.external;
    }
    for (const Record &record : all) {
        if (record.kind == DRIVER || record.kind == EXTERNAL_CORRELATION)
            continue;
        EXPECT(record.start >= began && record.start <= record.end && record.end <= ended,
               "kind %u from %llu to %llu, of %llu to %llu", record.kind, record.start, record.end, began, ended);
        EXPECT(calls[record.correlation].size() == 1, "kind %u: %zu calls", record.kind, calls[record.correlation].size());
    }
    std::vector<Record> kernels = of_kind(all, CONCURRENT_KERNEL);
    EXPECT(kernels.size() == 3, "%zu kernels", kernels.size());
    for (unsigned i = 0; i < 3; i++) {
        const Record &kernel = kernels[i];
        EXPECT(kernel.name == "fill" && kernel.grid == 4 * (i + 1) && kernel.block == 256, "%s, %u blocks of %u",
               kernel.name.c_str(), kernel.grid, kernel.block);
        EXPECT(numbers[kernel.correlation] == 101 + i, "kernel %u has number %llu", i, numbers[kernel.correlation]);
        EXPECT(i == 0 || kernels[i - 1].end <= kernel.start, "kernels of a stream overlap");
        EXPECT(kernel.stream == kernels[0].stream, "streams %u and %u", kernel.stream, kernels[0].stream);
    }
    std::vector<Record> fills = of_kind(all, MEMSET), copies = of_kind(all, MEMCPY);
    EXPECT(fills.size() == 1 && fills[0].bytes == 2048 && fills[0].stream == kernels[0].stream, "%zu fills", fills.size());
    EXPECT(copies.size() == 2, "%zu copies", copies.size());
    std::sort(copies.begin(), copies.end(), [](const Record &a, const Record &b) { return a.bytes < b.bytes; });
    EXPECT(copies[0].copy == HTOD && copies[0].bytes == 4096 && copies[0].from == PAGEABLE && copies[0].to == DEVICE,
           "copy %u of %llu bytes, %u to %u", copies[0].copy, copies[0].bytes, copies[0].from, copies[0].to);
    EXPECT(copies[1].copy == DTOH && copies[1].bytes == count * 4 && copies[1].from == DEVICE && copies[1].to == PAGEABLE,
           "copy %u of %llu bytes, %u to %u", copies[1].copy, copies[1].bytes, copies[1].from, copies[1].to);
    EXPECT(copies[0].stream == copies[1].stream && copies[0].stream != kernels[0].stream, "streams %u, %u and %u",
           copies[0].stream, copies[1].stream, kernels[0].stream);

    for (unsigned kind : {DRIVER, CONCURRENT_KERNEL, MEMCPY, MEMSET, EXTERNAL_CORRELATION})
        CUPTI("cuptiActivityDisable", kind);
    launch(fill, words, 1, 1024, stream);
    EXPECT(take().empty(), "records of what is disabled");
}

// Many launches of two threads, with buffers for few records.
PITFALL(91, no_record_is_lost_in_small_buffers) {
    const unsigned launches = 2000;
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr words = device_words(1024);
    buffer_bytes = 16 << 10;
    CUPTI("cuptiActivityRegisterCallbacks", (void *)requested, (void *)completed);
    enable(CONCURRENT_KERNEL);
    std::vector<std::thread> threads;
    for (unsigned thread = 0; thread < 2; thread++)
        threads.emplace_back([&] {
            CK(cuCtxSetCurrent(gpu.context));
            CUstream stream = new_stream();
            for (unsigned i = 0; i < launches; i++)
                launch(fill, words, i, 256, stream);
            CK(cuStreamSynchronize(stream));
        });
    for (auto &thread : threads)
        thread.join();
    std::vector<Record> kernels = of_kind(take(), CONCURRENT_KERNEL);
    EXPECT(kernels.size() == 2 * launches, "%zu kernels", kernels.size());
    std::map<unsigned, unsigned> calls;
    for (const Record &kernel : kernels)
        calls[kernel.correlation]++;
    EXPECT(calls.size() == 2 * launches, "%zu calls", calls.size());
    size_t lost = 0;
    CUPTI("cuptiActivityGetNumDroppedRecords", (CUcontext) nullptr, 0u, &lost);
    EXPECT(lost == 0, "%zu records are lost", lost);
}

struct CallbackData {
    unsigned site;
    const char *function;
    const void *params;
    void *result;
    const char *symbol;
    CUcontext context;
    unsigned context_number;
    unsigned long long *data;
    unsigned correlation;
};

struct Seen {
    CUfunction function;
    unsigned grid;
    CUcontext context;
    std::vector<std::string> sites;
    unsigned correlation = 0;
    bool finalizes = false;
};

static void callback(void *user, unsigned domain, unsigned, const void *data) {
    auto &seen = *(Seen *)user;
    auto &call = *(const CallbackData *)data;
    EXPECT(domain == DRIVER_DOMAIN, "domain %u", domain);
    seen.sites.push_back(std::string(call.site ? "exit " : "enter ") + call.function);
    if (std::string(call.function) != "cuLaunchKernel")
        return;
    // The parameters are a structure with the function's arguments.
    EXPECT(*(CUfunction *)call.params == seen.function, "another function");
    EXPECT(*(const unsigned *)((const char *)call.params + 8) == seen.grid, "another grid");
    EXPECT(call.context == seen.context, "another context");
    EXPECT(call.symbol && std::string(call.symbol) == "fill", "another kernel: %s", call.symbol ? call.symbol : "");
    if (call.site == 0) {
        *call.data = 4711;
        seen.correlation = call.correlation;
        return;
    }
    EXPECT(*call.data == 4711 && call.correlation == seen.correlation, "data %llu", *call.data);
    EXPECT(*(CUresult *)call.result == CUDA_SUCCESS, "result %d", *(CUresult *)call.result);
    if (seen.finalizes)
        CUPTI("cuptiFinalize");
}

// Profilers count calls and take their arguments by callbacks, and some end CUPTI in one.
PITFALL(91, callbacks_enclose_a_call) {
    Gpu gpu;
    CUfunction fill = gpu.function("fill");
    CUdeviceptr words = device_words(4096);
    CUstream stream = new_stream();
    Seen seen = {fill, 7, gpu.context, {}};
    void *subscriber = nullptr;
    CUPTI("cuptiSubscribe", &subscriber, (void *)callback, (void *)&seen);
    CUPTI("cuptiEnableDomain", 1u, subscriber, DRIVER_DOMAIN);
    launch(fill, words, 3, 7 * 256, stream);
    CK(cuStreamSynchronize(stream));
    CUPTI("cuptiEnableDomain", 0u, subscriber, DRIVER_DOMAIN);
    launch(fill, words, 3, 7 * 256, stream);
    std::vector<std::string> right = {"enter cuLaunchKernel", "exit cuLaunchKernel", "enter cuStreamSynchronize",
                                      "exit cuStreamSynchronize"};
    EXPECT(seen.sites == right, "%zu sites, first %s", seen.sites.size(), seen.sites.empty() ? "" : seen.sites[0].c_str());

    seen.sites.clear();
    seen.finalizes = true;
    CUPTI("cuptiEnableDomain", 1u, subscriber, DRIVER_DOMAIN);
    launch(fill, words, 3, 7 * 256, stream);
    launch(fill, words, 3, 7 * 256, stream);
    CK(cuStreamSynchronize(stream));
    right.resize(2);
    EXPECT(seen.sites == right, "%zu sites after the end", seen.sites.size());
}

PITFALL_MAIN
