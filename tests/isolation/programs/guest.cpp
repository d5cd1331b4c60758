// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The programs in the VMs of the isolation tests: one that works and notices every gap, faulty ones, and ones that are
// killed. The first argument selects one. Each reports on a line of standard output.
//
//   guest work [KIND]          steps of kernels and copies, each checked, until its standard input ends; copies: of long copies; backlog: of
//                              many kernels in a row that write to its own memory
//   guest once                 one such step
//   guest fault KIND           illegal, assert, trap; says the codes
//   guest endless              a kernel without an end, and waits for it
//   guest phase NAME           gets there, says so, and goes on there until it is killed
//   guest own VALUE            fills memory and says where it is; checks it when its standard input ends
//   guest peek ADDRESS         reads and writes at an address that is not its own
//   guest steal HANDLE...      uses numbers that another process was given as its own handles
//   guest fill VALUE BYTES     fills as much device memory as there is, BYTES at most; stays if another word is given
//   guest look VALUE BYTES     takes as much and looks for it
//   guest ipc                  what another process could be given
#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <poll.h>
#include <string>
#include <unistd.h>
#include <vector>

extern "C" const char kernels_ptx[];

static const char *name_of(CUresult code) {
    const char *name = nullptr;
    return cuGetErrorName(code, &name) == CUDA_SUCCESS && name ? name : "unnamed";
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
    fflush(stdout);
}

#define CK(CALL)                                                                                                       \
    do {                                                                                                               \
        CUresult code_ = (CALL);                                                                                       \
        if (code_ != CUDA_SUCCESS) {                                                                                   \
            say("failed %s %d %s", #CALL, (int)code_, name_of(code_));                                                 \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static CUmodule module;

static CUfunction function(const char *name) {
    CUfunction found;
    CK(cuModuleGetFunction(&found, module, name));
    return found;
}

static CUcontext open_gpu() {
    CUdevice device;
    CUcontext context;
    CK(cuInit(0));
    CK(cuDeviceGet(&device, 0));
    CK(cuDevicePrimaryCtxRetain(&context, device));
    CK(cuCtxSetCurrent(context));
    CK(cuModuleLoadData(&module, kernels_ptx));
    return context;
}

template <typename... Arguments> static CUresult launch(CUfunction f, unsigned grid, unsigned block, Arguments... arguments) {
    void *params[] = {(void *)&arguments..., nullptr};
    return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, nullptr, params, nullptr);
}

static long long nanoseconds() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static bool input_ended() {
    pollfd input = {STDIN_FILENO, POLLIN, 0};
    char byte;
    return poll(&input, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0;
}

static void wait_for_input() {
    char byte;
    while (read(STDIN_FILENO, &byte, 1) > 0) {
    }
}

// One step: words are copied to the device, a kernel mixes them, and they are copied back and checked.
struct Work {
    static constexpr unsigned COUNT = 96 << 10, ROUNDS = 2;
    CUfunction kernel = function("mix");
    CUdeviceptr memory = 0;
    std::vector<unsigned> words = std::vector<unsigned>(COUNT), back = std::vector<unsigned>(COUNT);

    Work() { CK(cuMemAlloc(&memory, COUNT * 4)); }

    void step(unsigned number) {
        for (unsigned i = 0; i < COUNT; i++)
            words[i] = i * 2654435761u ^ number;
        CK(cuMemcpyHtoD(memory, words.data(), COUNT * 4));
        CK(launch(kernel, 32, 128, memory, COUNT, number, ROUNDS));
        CK(cuMemcpyDtoH(back.data(), memory, COUNT * 4));
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned word = words[i] + number;
            for (unsigned round = 0; round < ROUNDS; round++)
                word = word * 1664525u + 1013904223u;
            if (back[i] != word) {
                say("wrong word %u of step %u: %08x and not %08x", i, number, back[i], word);
                exit(3);
            }
        }
    }
};

// One step that is all copies, each too long for the ring: by way of the mover, there and back.
struct Copies {
    static constexpr unsigned COUNT = 3 << 20;
    CUdeviceptr memory = 0;
    std::vector<unsigned> words = std::vector<unsigned>(COUNT), back = std::vector<unsigned>(COUNT);

    Copies() { CK(cuMemAlloc(&memory, COUNT * 4)); }

    void step(unsigned number) {
        for (unsigned i = 0; i < COUNT; i++)
            words[i] = i * 2654435761u ^ number;
        CK(cuMemcpyHtoD(memory, words.data(), COUNT * 4));
        CK(cuMemcpyDtoH(back.data(), memory, COUNT * 4));
        if (back != words) {
            say("wrong words in step %u", number);
            exit(3);
        }
    }
};

// One step that is many kernels, given at once, each of which writes to pinned memory of this program.
struct Backlog {
    static constexpr unsigned COUNT = 32 << 10, ROUNDS = 2, KERNELS = 3000;
    CUfunction kernel = function("mix");
    unsigned *words = nullptr;
    CUdeviceptr memory = 0;

    Backlog() {
        CK(cuMemHostAlloc((void **)&words, COUNT * 4, CU_MEMHOSTALLOC_DEVICEMAP));
        CK(cuMemHostGetDevicePointer(&memory, words, 0));
    }

    void step(unsigned number) {
        for (unsigned i = 0; i < COUNT; i++)
            words[i] = i;
        for (unsigned launches = 0; launches < KERNELS; launches++)
            CK(launch(kernel, 32, 128, memory, COUNT, number, ROUNDS));
        say("given");
        CK(cuCtxSynchronize());
        for (unsigned i = 0; i < COUNT; i += 1021) {
            unsigned word = i;
            for (unsigned launches = 0; launches < KERNELS; launches++) {
                word += number;
                for (unsigned round = 0; round < ROUNDS; round++)
                    word = word * 1664525u + 1013904223u;
            }
            if (words[i] != word) {
                say("wrong word %u of step %u: %08x and not %08x", i, number, words[i], word);
                exit(3);
            }
        }
    }
};

// Steps until the input ends. Each line: the end of the step, in nanoseconds of the clock that all processes share, its
// duration, and the amount of free device memory.
template <typename Step> static int work() {
    open_gpu();
    Step work;
    for (unsigned number = 0; !input_ended(); number++) {
        long long start = nanoseconds();
        work.step(number);
        size_t free_bytes = 0, total = 0;
        CK(cuMemGetInfo(&free_bytes, &total));
        long long end = nanoseconds();
        say("step %lld %lld %zu", end, end - start, free_bytes);
    }
    say("done");
    return 0;
}

static int once() {
    open_gpu();
    Work().step(1);
    say("done");
    return 0;
}

static int fault(const std::string &kind) {
    open_gpu();
    Work work;
    work.step(0);
    CUresult launched = CUDA_SUCCESS;
    if (kind == "illegal")
        launched = launch(function("store"), 1, 32, CUdeviceptr(0x10), 1u);
    else if (kind == "assert")
        launched = launch(function("claim"), 1, 32, 8u);
    else
        launched = launch(function("trap"), 1, 32);
    CUresult first = cuCtxSynchronize();
    CUdeviceptr more = 0;
    CUresult after = cuMemAlloc(&more, 1 << 20);
    CUresult copy = cuMemcpyDtoH(work.back.data(), work.memory, 4096);
    say("codes %d %d %d %d", (int)launched, (int)first, (int)after, (int)copy);
    return 0;
}

static int endless() {
    open_gpu();
    CUdeviceptr word = 0;
    CK(cuMemAlloc(&word, 64 << 20));
    CK(cuMemsetD32(word, 0, 1));
    CK(cuCtxSynchronize());
    CK(launch(function("endless"), 1, 1, word));
    say("at endless");
    CUresult code = cuCtxSynchronize();
    say("code %d %s", (int)code, name_of(code));
    return 0;
}

static int phase(const std::string &name) {
    if (name == "before") {
        say("at before");
        wait_for_input();
        return 0;
    }
    if (name == "init") {
        say("at init");
        open_gpu();
        wait_for_input();
        return 0;
    }
    open_gpu();
    // Memory that must be returned, whatever the phase is.
    CUdeviceptr memory = 0;
    CK(cuMemAlloc(&memory, 96 << 20));
    CK(cuMemsetD32(memory, 1, (96 << 20) / 4));
    CK(cuCtxSynchronize());
    std::vector<char> host(16 << 20, 1);
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, 4 << 20));
    CUfunction mix = function("mix");
    if (name == "synchronise")
        CK(launch(function("endless"), 1, 1, memory));
    say("at %s", name.c_str());
    for (unsigned number = 0;; number++) {
        if (name == "allocate") {
            CUdeviceptr more[4] = {};
            for (auto &one : more)
                CK(cuMemAlloc(&one, 40 << 20));
            for (auto &one : more)
                CK(cuMemFree(one));
        } else if (name == "copy") {
            CK(cuMemcpyHtoD(memory, host.data(), host.size()));
            CK(cuMemcpyDtoH(host.data(), memory, host.size()));
        } else if (name == "pinned") {
            void *more = nullptr;
            CK(cuMemAllocHost(&more, 8 << 20));
            CK(cuMemcpyHtoDAsync(memory, more, 8 << 20, nullptr));
            CK(cuMemFreeHost(more));
        } else if (name == "launch") {
            CK(launch(mix, 1, 32, memory, 1024u, number, 1u));
        } else if (name == "module") {
            CUmodule other;
            CK(cuModuleLoadData(&other, kernels_ptx));
            CK(cuModuleUnload(other));
        } else if (name == "synchronise") {
            CK(cuCtxSynchronize());
        } else {
            wait_for_input();
            return 0;
        }
    }
}

static int own(unsigned value) {
    CUcontext context = open_gpu();
    constexpr unsigned COUNT = 1 << 20;
    CUdeviceptr memory = 0;
    CUstream stream;
    CUevent event;
    CK(cuMemAlloc(&memory, COUNT * 4));
    CK(cuMemsetD32(memory, value, COUNT));
    CK(cuStreamCreate(&stream, 0));
    CK(cuEventCreate(&event, 0));
    CK(cuCtxSynchronize());
    void *pinned = nullptr;
    CK(cuMemAllocHost(&pinned, 1 << 20));
    std::fill_n((unsigned *)pinned, (1 << 20) / 4, value);
    say("own %llx %llx %llx %llx %llx %llx %llx", (unsigned long long)memory, (unsigned long long)(size_t)pinned,
        (unsigned long long)(size_t)context, (unsigned long long)(size_t)stream, (unsigned long long)(size_t)event,
        (unsigned long long)(size_t)module, (unsigned long long)(size_t)function("fill"));
    wait_for_input();
    std::vector<unsigned> words(COUNT);
    CK(cuMemcpyDtoH(words.data(), memory, COUNT * 4));
    unsigned *host = (unsigned *)pinned;
    bool same = std::all_of(words.begin(), words.end(), [&](unsigned word) { return word == value; }) &&
                std::all_of(host, host + (1 << 20) / 4, [&](unsigned word) { return word == value; });
    CK(cuStreamSynchronize(stream));
    CK(cuEventSynchronize(event));
    say(same ? "kept" : "changed");
    return same ? 0 : 3;
}

static int peek(CUdeviceptr address) {
    open_gpu();
    CUdeviceptr mine = 0;
    CK(cuMemAlloc(&mine, 4096));
    CK(cuMemsetD32(mine, 0, 1024));
    CK(cuCtxSynchronize());
    unsigned word = 0;
    CUresult in = cuMemcpyHtoD(address, &word, 4);
    CUresult out = cuMemcpyDtoH(&word, address, 4);
    CUresult set = cuMemsetD32(address, 0, 1);
    CUresult set_done = cuCtxSynchronize();
    CUresult freed = cuMemFree(address);
    // A kernel faults, and ends this process's use of the GPU.
    CK(launch(function("load"), 1, 1, address, mine));
    CUresult kernel = cuCtxSynchronize();
    say("codes %d %d %d %d %d word %x", (int)in, (int)out, (int)(set ? set : set_done), (int)freed, (int)kernel, word);
    return 0;
}

static int steal(const std::vector<unsigned long long> &handles) {
    open_gpu();
    Work work;
    // Some numbers may be valid in both processes: then they belong to this process, which is correct. A crash is
    // wrong, and so is a change of the other process's memory.
    int refused = 0;
    for (unsigned long long handle : handles) {
        CUfunction made;
        void *params[] = {nullptr};
        refused += cuStreamSynchronize((CUstream)handle) != CUDA_SUCCESS;
        refused += cuEventQuery((CUevent)handle) != CUDA_SUCCESS;
        refused += cuModuleGetFunction(&made, (CUmodule)handle, "fill") != CUDA_SUCCESS;
        refused += cuCtxPushCurrent((CUcontext)handle) != CUDA_SUCCESS;
        refused += cuLaunchKernel((CUfunction)handle, 0, 1, 1, 1, 1, 1, 0, nullptr, params, nullptr) != CUDA_SUCCESS;
        refused += cuStreamDestroy((CUstream)(handle ^ 0x5555)) != CUDA_SUCCESS;
        refused += cuEventDestroy((CUevent)(handle ^ 0x5555)) != CUDA_SUCCESS;
        refused += cuModuleUnload((CUmodule)(handle ^ 0x5555)) != CUDA_SUCCESS;
        refused += cuMemFreeHost((void *)handle) != CUDA_SUCCESS;
    }
    CUcontext context = nullptr;
    CK(cuDevicePrimaryCtxRetain(&context, 0));
    CK(cuCtxSetCurrent(context));
    work.step(5);
    say("refused %d", refused);
    return 0;
}

// Takes device memory in pieces until `most` bytes or all that there is, and calls `use` with each.
template <typename Use> static unsigned long long take(unsigned long long most, Use use) {
    size_t free_bytes = 0, total = 0;
    CK(cuMemGetInfo(&free_bytes, &total));
    unsigned long long taken = 0;
    for (size_t piece = size_t(1) << 30; piece >= size_t(2) << 20; piece /= 2) {
        while (taken + piece <= most) {
            CUdeviceptr memory = 0;
            if (cuMemAlloc(&memory, piece) != CUDA_SUCCESS)
                break;
            use(memory, (unsigned long long)piece / 4);
            taken += piece;
        }
    }
    CK(cuCtxSynchronize());
    return taken;
}

static int fill(unsigned value, unsigned long long most, bool stay) {
    open_gpu();
    unsigned long long bytes =
        take(most, [&](CUdeviceptr memory, unsigned long long count) { CK(cuMemsetD32(memory, value, count)); });
    say("filled %llu", bytes);
    if (stay)
        wait_for_input();
    return 0;
}

static int look(unsigned value, unsigned long long most) {
    open_gpu();
    CUfunction kernel = function("scan");
    CUdeviceptr found = 0;
    CK(cuMemAlloc(&found, 16));
    CK(cuMemsetD32(found, 0, 4));
    unsigned long long counts[2] = {};
    std::vector<unsigned> words;
    // The GPU searches large memory; the CPU searches small memory, because it may be simulating the GPU.
    bool by_gpu = most > (1ull << 30);
    unsigned long long bytes = take(most, [&](CUdeviceptr memory, unsigned long long count) {
        if (by_gpu) {
            CK(launch(kernel, 256, 256, memory, count, value, found));
            return;
        }
        words.resize(count);
        CK(cuMemcpyDtoH(words.data(), memory, count * 4));
        counts[0] += std::count(words.begin(), words.end(), value);
        counts[1] += count - std::count(words.begin(), words.end(), 0u);
    });
    if (by_gpu)
        CK(cuMemcpyDtoH(counts, found, 16));
    say("looked %llu found %llu nonzero %llu", bytes, counts[0], counts[1]);
    return 0;
}

// The bytes of a handle as hexadecimal digits, and the other way round.
template <class Handle> static std::string digits(const Handle &handle) {
    std::string text;
    char byte[3];
    for (size_t i = 0; i < sizeof handle; i++) {
        snprintf(byte, sizeof byte, "%02x", ((const unsigned char *)&handle)[i]);
        text += byte;
    }
    return text;
}

template <class Handle> static Handle of_digits(const std::string &text) {
    Handle handle = {};
    for (size_t i = 0; i < sizeof handle && text.size() >= 2 * i + 2; i++)
        ((unsigned char *)&handle)[i] = (unsigned char)strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16);
    return handle;
}

// Shares memory and an event with other processes, until there is input.
static int share(unsigned value) {
    open_gpu();
    CUdeviceptr memory = 0;
    CK(cuMemAlloc(&memory, 4 << 20));
    CK(cuMemsetD32(memory, value, 1 << 20));
    CUipcMemHandle handle = {};
    CUipcEventHandle event_handle = {};
    CUevent event;
    CK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS));
    CK(cuEventRecord(event, nullptr));
    CK(cuCtxSynchronize());
    CK(cuIpcGetMemHandle(&handle, memory));
    CK(cuIpcGetEventHandle(&event_handle, event));
    say("share %s %s", digits(handle).c_str(), digits(event_handle).c_str());
    wait_for_input();
    unsigned word = 0;
    CK(cuMemcpyDtoH(&word, memory, 4));
    say("%s", word == value ? "kept" : "changed");
    return 0;
}

// Opens another process's memory and events, prints the codes, and writes to the memory.
static int ipc(const std::string &memory_digits, const std::string &event_digits) {
    open_gpu();
    CUdeviceptr opened = 0;
    // No bytes open memory that no process has made.
    int open = 0;
    for (int byte = 0; byte < 256; byte++) {
        CUipcMemHandle handle;
        memset(&handle, byte, sizeof handle);
        open += cuIpcOpenMemHandle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS;
    }
    CUevent event = nullptr;
    CUresult memory_code = cuIpcOpenMemHandle(&opened, of_digits<CUipcMemHandle>(memory_digits), CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    CUresult event_code = cuIpcOpenEventHandle(&event, of_digits<CUipcEventHandle>(event_digits));
    unsigned word = 0;
    if (memory_code == CUDA_SUCCESS) {
        CK(cuMemcpyDtoH(&word, opened, 4));
        CK(cuMemsetD32(opened, ~word, 1));
        CK(cuCtxSynchronize());
    }
    say("codes %d %d open %d word %x", (int)memory_code, (int)event_code, open, word);
    Work().step(2);
    return 0;
}

int main(int argc, char **argv) {
    std::vector<std::string> words(argv + 1, argv + argc);
    auto number = [&](size_t at) { return words.size() > at ? strtoull(words[at].c_str(), nullptr, 0) : 0; };
    std::string what = words.empty() ? "" : words[0];
    std::string kind = words.size() > 1 ? words[1] : "";
    if (what == "work" && kind.empty())
        return work<Work>();
    if (what == "work" && kind == "copies")
        return work<Copies>();
    if (what == "work" && kind == "backlog")
        return work<Backlog>();
    if (what == "once")
        return once();
    if (what == "fault" && words.size() > 1)
        return fault(words[1]);
    if (what == "endless")
        return endless();
    if (what == "phase" && words.size() > 1)
        return phase(words[1]);
    if (what == "own")
        return own((unsigned)number(1));
    if (what == "peek")
        return peek(number(1));
    if (what == "steal") {
        std::vector<unsigned long long> handles;
        for (size_t at = 1; at < words.size(); at++)
            handles.push_back(number(at));
        return steal(handles);
    }
    if (what == "fill")
        return fill((unsigned)number(1), number(2), words.size() > 3);
    if (what == "look")
        return look((unsigned)number(1), number(2));
    if (what == "share")
        return share((unsigned)number(1));
    if (what == "ipc" && words.size() > 2)
        return ipc(words[1], words[2]);
    fprintf(stderr, "usage: guest work|once|fault|endless|phase|own|peek|steal|fill|look|share|ipc ...\n");
    return 2;
}
