// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// NVML as a program in a VM calls it: executes the commands on its standard input, one per line, and answers each with
// one line.
//
//   init              nvmlInit_v2; the code
//   shutdown          nvmlShutdown; the code
//   count             the code, and how many devices there are
//   memory            the code, all, free and used bytes; then the code of the second version, and the same of it
//   processes         the code, and id and bytes of each process
//   utilisation       the code, and the share in percent
//   edges             the codes of calls that are wrong, each as NVML documents it
//   refused           the codes of calls that a VM may not make
//   sensors N         of the device with this number, the code and the value of each sensor, in the order of tests/nvml.rs
//   wrong             the codes of calls about sensors that are wrong, each as NVML documents it
//   cuda              initialises CUDA and takes the first device's primary context; the codes
//   forked            the code, all, free and used bytes as a forked child learns them
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <iostream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

// The structures as NVML documents them.
struct Memory { uint64_t total, free, used; };
struct MemoryV2 { uint32_t version; uint64_t total, reserved, free, used; };
struct Process { uint32_t pid; uint64_t bytes; uint32_t gpu_instance, compute_instance; };
struct Utilisation { uint32_t gpu, memory; };
struct Temperature { uint32_t version, sensor; int32_t degrees; };
struct Field { uint32_t id, scope; int64_t timestamp, latency; uint32_t type, result; uint64_t value; };

static void *library;

template <typename... Arguments> static unsigned call(const char *name, Arguments... arguments) {
    auto function = (unsigned (*)(Arguments...))dlsym(library, name);
    if (function == nullptr) return 13;
    return function(arguments...);
}

static void *device(unsigned number = 0) {
    void *handle = nullptr;
    call("nvmlDeviceGetHandleByIndex_v2", number, &handle);
    return handle;
}

static std::string memory() {
    Memory first{};
    MemoryV2 second{};
    second.version = sizeof second | 2u << 24;
    unsigned one = call("nvmlDeviceGetMemoryInfo", device(), &first);
    unsigned two = call("nvmlDeviceGetMemoryInfo_v2", device(), &second);
    char line[256];
    snprintf(line, sizeof line, "%u %lu %lu %lu %u %lu %lu %lu", one, first.total, first.free, first.used, two, second.total,
             second.free, second.used);
    return line;
}

static std::string processes() {
    const char *name = "nvmlDeviceGetComputeRunningProcesses_v3";
    unsigned count = 0;
    unsigned code = call(name, device(), &count, (Process *)nullptr);
    std::vector<Process> all(count);
    if (code == 7) code = call(name, device(), &count, all.data());
    std::string line = std::to_string(code);
    for (auto &process : all) line += " " + std::to_string(process.pid) + " " + std::to_string(process.bytes);
    return line;
}

static std::string join(std::initializer_list<unsigned> codes) {
    std::string line;
    for (unsigned code : codes) line += (line.empty() ? "" : " ") + std::to_string(code);
    return line;
}

// A buffer is followed by bytes that must stay.
static std::string edges() {
    void *handle = device(), *other = nullptr;
    char text[64];
    for (char &c : text) c = 'x';
    MemoryV2 second{};
    second.version = 1;
    unsigned count = 0;
    std::string line = join({
        call("nvmlDeviceGetHandleByIndex_v2", 99u, &other),
        call("nvmlDeviceGetHandleByIndex_v2", 0u, (void **)nullptr),
        call("nvmlDeviceGetName", handle, text, 2u),
        call("nvmlDeviceGetName", handle, (char *)nullptr, 64u),
        call("nvmlDeviceGetUUID", handle, text, 40u),
        call("nvmlDeviceGetMemoryInfo", handle, (Memory *)nullptr),
        call("nvmlDeviceGetMemoryInfo", (void *)nullptr, (Memory *)nullptr),
        call("nvmlDeviceGetMemoryInfo", (void *)99, (Memory *)&second),
        call("nvmlDeviceGetMemoryInfo_v2", handle, &second),
        call("nvmlDeviceGetComputeRunningProcesses_v3", handle, (unsigned *)nullptr, (Process *)nullptr),
        call("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, &count, (Process *)nullptr),
        call("nvmlDeviceGetHandleByUUID", (const char *)nullptr, &other),
        call("nvmlDeviceGetHandleByUUID", "GPU-0", &other),
        call("nvmlDeviceGetHandleByPciBusId_v2", "none", &other),
        call("nvmlSystemGetProcessName", ~0u, text, 64u),
    });
    bool kept = text[0] == 'x' && text[40] == 'x';
    return line + (kept ? " kept" : " written");
}

static std::string refused() {
    void *handle = device(), *set = nullptr;
    unsigned value = 0;
    Field fields[2]{};
    fields[1].id = 165;
    unsigned all = call("nvmlDeviceGetFieldValues", handle, 2, (Field *)fields);
    return join({
        call("nvmlDeviceGetTemperature", handle, 0u, &value),
        call("nvmlDeviceGetPowerUsage", handle, &value),
        call("nvmlDeviceGetClockInfo", handle, 1u, &value),
        call("nvmlEventSetCreate", &set),
        call("nvmlDeviceSetPersistenceMode", handle, 1u),
        call("nvmlDeviceGetMigMode", handle, &value, &value),
        all,
        fields[0].result,
        fields[1].result,
        call("nvmlDeviceGetNvLinkState", handle, 0u, &value),
    });
}

static std::string sensors(unsigned number) {
    void *handle = device(number);
    std::string line = std::to_string(number);
    auto add = [&](unsigned code, uint64_t value) { line += " " + std::to_string(code) + " " + std::to_string(value); };
    auto simple = [&](const char *name) {
        unsigned value = 0;
        unsigned code = call(name, handle, &value);
        add(code, value);
    };
    auto part = [&](const char *name, unsigned of) {
        unsigned value = 0;
        unsigned code = call(name, handle, of, &value);
        add(code, value);
    };
    part("nvmlDeviceGetTemperature", 0);
    Temperature temperature{sizeof(Temperature) | 1u << 24, 0, 0};
    unsigned code = call("nvmlDeviceGetTemperatureV", handle, &temperature);
    add(code, temperature.degrees);
    for (unsigned of = 0; of < 4; of++) part("nvmlDeviceGetTemperatureThreshold", of);
    simple("nvmlDeviceGetPowerUsage");
    simple("nvmlDeviceGetEnforcedPowerLimit");
    simple("nvmlDeviceGetPowerManagementLimit");
    simple("nvmlDeviceGetPowerManagementDefaultLimit");
    unsigned lowest = 0, highest = 0;
    code = call("nvmlDeviceGetPowerManagementLimitConstraints", handle, &lowest, &highest);
    add(code, lowest);
    add(code, highest);
    simple("nvmlDeviceGetPerformanceState");
    simple("nvmlDeviceGetPowerState");
    uint64_t energy = 0;
    code = call("nvmlDeviceGetTotalEnergyConsumption", handle, &energy);
    add(code, energy);
    for (unsigned of = 0; of < 4; of++) part("nvmlDeviceGetClockInfo", of);
    for (unsigned of = 0; of < 4; of++) part("nvmlDeviceGetMaxClockInfo", of);
    unsigned clock = 0;
    code = call("nvmlDeviceGetClock", handle, 1u, 0u, &clock);
    add(code, clock);
    Field fields[10]{};
    unsigned ids[10] = {82, 83, 185, 186, 187, 188, 189, 190, 191, 192};
    for (int at = 0; at < 10; at++) fields[at].id = ids[at];
    call("nvmlDeviceGetFieldValues", handle, 10, (Field *)fields);
    for (auto &field : fields) add(field.result, field.value);
    return line;
}

static std::string wrong() {
    void *handle = device();
    unsigned value = 0;
    Temperature other{1, 0, 0}, unknown{sizeof(Temperature) | 1u << 24, 7, 0};
    Field part{};
    part.id = 185;
    part.scope = 1;
    unsigned all = call("nvmlDeviceGetFieldValues", handle, 1, &part);
    return join({
        call("nvmlDeviceGetTemperature", handle, 1u, &value),
        call("nvmlDeviceGetTemperature", handle, 0u, (unsigned *)nullptr),
        call("nvmlDeviceGetTemperature", (void *)nullptr, 0u, &value),
        call("nvmlDeviceGetTemperature", (void *)99, 0u, &value),
        call("nvmlDeviceGetTemperatureV", handle, &other),
        call("nvmlDeviceGetTemperatureV", handle, &unknown),
        call("nvmlDeviceGetTemperatureV", handle, (Temperature *)nullptr),
        call("nvmlDeviceGetTemperatureThreshold", handle, 8u, &value),
        call("nvmlDeviceGetTemperatureThreshold", handle, 5u, &value),
        call("nvmlDeviceGetClockInfo", handle, 4u, &value),
        call("nvmlDeviceGetClock", handle, 1u, 4u, &value),
        call("nvmlDeviceGetClock", handle, 1u, 1u, &value),
        call("nvmlDeviceGetPowerManagementLimitConstraints", handle, &value, (unsigned *)nullptr),
        call("nvmlDeviceGetFanSpeed", handle, &value),
        all,
        part.result,
    });
}

static std::string cuda() {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) return "none";
    auto init = (unsigned (*)(unsigned))dlsym(driver, "cuInit");
    auto retain = (unsigned (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
    void *context = nullptr;
    unsigned one = init(0);
    return join({one, retain(&context, 0)});
}

static std::string forked() {
    int ends[2];
    if (pipe(ends) != 0) return "none";
    pid_t child = fork();
    if (child == 0) {
        std::string line = memory();
        _exit(write(ends[1], line.data(), line.size()) != (ssize_t)line.size());
    }
    close(ends[1]);
    char line[256] = {};
    ssize_t length = read(ends[0], line, sizeof line - 1);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return std::string(line, length < 0 ? 0 : length);
}

int main() {
    library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    std::cout << "open " << (library == nullptr) << std::endl;
    std::string line;
    while (std::getline(std::cin, line)) {
        std::string answer = "unknown";
        unsigned number = 0;
        if (line == "init") answer = join({call("nvmlInit_v2")});
        else if (line == "shutdown") answer = join({call("nvmlShutdown")});
        else if (line == "count") {
            unsigned code = call("nvmlDeviceGetCount_v2", &number);
            answer = join({code, number});
        } else if (line == "memory") answer = memory();
        else if (line == "processes") answer = processes();
        else if (line == "utilisation") {
            Utilisation share{};
            unsigned code = call("nvmlDeviceGetUtilizationRates", device(), &share);
            answer = join({code, share.gpu});
        } else if (line == "edges") answer = edges();
        else if (line == "refused") answer = refused();
        else if (line.rfind("sensors ", 0) == 0) answer = sensors(std::stoul(line.substr(8)));
        else if (line == "wrong") answer = wrong();
        else if (line == "cuda") answer = cuda();
        else if (line == "forked") answer = forked();
        std::cout << line.substr(0, line.find(' ')) << " " << answer << std::endl;
    }
}
