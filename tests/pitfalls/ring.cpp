// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// A process that rewrites the memory that it shares with its worker (pitfalls 79, 81). It may break itself, and no
// other process.
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "driver.h"

// The library's first allocation in its window of addresses.
static volatile uint64_t *const RING = (volatile uint64_t *)0x100000000000;
static const size_t TAIL = 128 / 8, COMMANDS = 4096 / 8, COMMAND_WORDS = (256 << 10) / 8;
static const size_t SLOTS = COMMANDS + COMMAND_WORDS, SLOT_WORDS = 64 * 4096 / 8;

static bool has_ring() {
    const char *off = getenv("VIRTIO_GPGPU_RING");
    return !(off && off[0] == '0');
}

static uint64_t noise(uint64_t &state) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

// Runs the child's writes to its ring while it continues to call.
static void work_beside(void (*scribble)(uint64_t &state)) {
    Gpu gpu;
    CUdeviceptr word = device_words(1, 1);
    // Everything that must succeed does so before.
    CUfunction step = gpu.function("step");
    LAUNCH(step, 1, 1, nullptr, word, 3u, 1u);
    CK(cuCtxSynchronize());
    std::atomic<bool> stop{false};
    std::thread scribbler([&] {
        uint64_t state = 88172645463325252ull;
        while (!stop)
            scribble(state);
    });
    for (int i = 0; i < 200; i++) {
        unsigned got = 0;
        try_launch(step, 1, 1, nullptr, word, 3u, 1u);
        cuStreamQuery(nullptr);
        if (cuMemcpyDtoH(&got, word, 4) == CUDA_ERROR_EXTERNAL_DEVICE)
            break; // its worker is gone
    }
    stop = true;
    scribbler.join();
}

static void survives(void (*scribble)(uint64_t &state)) {
    if (!has_ring())
        pitfall::skip("there is no ring");
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(30);
        work_beside(scribble);
        _exit(0);
    }
    int status = pitfall::wait_for(child);
    // How it ends does not matter.
    EXPECT(status != 1000 + SIGALRM, "the process hangs");
    Gpu gpu;
    CUdeviceptr word = device_words(1, 5);
    unsigned got = 0;
    LAUNCH(gpu.function("step"), 1, 1, nullptr, word, 3u, 1u);
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 16, "%u", got);
}

PITFALL(81, tail_that_is_no_tail) {
    survives([](uint64_t &state) { RING[TAIL] = noise(state); });
}

// A record whose slot or sequence was rewritten is answered elsewhere.
PITFALL(81, records_that_change_under_the_reader) {
    survives([](uint64_t &state) { RING[COMMANDS + noise(state) % COMMAND_WORDS] = noise(state); });
}

PITFALL(81, answers_that_change_under_their_reader) {
    survives([](uint64_t &state) { RING[SLOTS + noise(state) % SLOT_WORDS] = noise(state); });
}

PITFALL(79, worker_that_is_said_to_sleep) {
    survives([](uint64_t &state) { RING[64 / 8] = noise(state) & 1; });
}

PITFALL_MAIN
