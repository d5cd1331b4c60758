// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Guest pages under copies: never touched, read-only, forked, unmapped (pitfalls 85 to 87).
#include "driver.h"
#include <sys/mman.h>

static void *anonymous(size_t bytes) {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        pitfall::fail("mmap of %zu bytes: %s", bytes, strerror(errno));
    return memory;
}

static void expect_fresh_pages_are_zero() {
    const size_t bytes = 4 << 20;
    auto *fresh = (unsigned char *)anonymous(bytes);
    for (size_t i = 0; i < bytes; i++)
        EXPECT(fresh[i] == 0, "byte %zu of a fresh page is %02x: the shared zero page was written", i, fresh[i]);
    munmap(fresh, bytes);
}

PITFALL(85, dtoh_into_untouched_pages) {
    Gpu gpu;
    const size_t bytes = 8 << 20, words = bytes / 4;
    CUdeviceptr device = device_words(words, 0x5a5a5a5a);
    CUstream stream = new_stream();
    for (int how = 0; how < 4; how++) {
        auto *memory = (unsigned *)anonymous(bytes);
        if (how % 2) { // pages that were read, and so map the zero page, but never written
            unsigned sum = 0;
            for (size_t i = 0; i < words; i += 1024)
                sum += ((volatile unsigned *)memory)[i];
            EXPECT(sum == 0, "fresh memory is not zero");
        }
        if (how < 2) {
            CK(cuMemcpyDtoH(memory, device, bytes));
        } else {
            CK(cuMemcpyDtoHAsync(memory, device, bytes, stream));
            CK(cuStreamSynchronize(stream));
        }
        EXPECT_WORDS(memory, words, 0x5a5a5a5a);
        expect_fresh_pages_are_zero();
        munmap(memory, bytes);
    }
    // Registered, never touched.
    auto *memory = (unsigned *)anonymous(bytes);
    CK(cuMemHostRegister(memory, bytes, 0));
    CK(cuMemcpyDtoHAsync(memory, device, bytes, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(memory, words, 0x5a5a5a5a);
    expect_fresh_pages_are_zero();
    CK(cuMemHostUnregister(memory));
    // calloc'ed, the destination in its middle.
    auto *block = (unsigned char *)calloc(1, bytes);
    CK(cuMemcpyDtoH(block + 12345, device, 1 << 20));
    EXPECT(block[12344] == 0 && block[12345] == 0x5a && block[12345 + (1 << 20)] == 0, "neighbours of the destination changed");
    expect_fresh_pages_are_zero();
}

PITFALL(85, source_is_a_read_only_file) {
    Gpu gpu;
    const size_t bytes = 3 << 20;
    FILE *file = tmpfile();
    EXPECT(file, "tmpfile");
    std::vector<unsigned char> content(bytes), got(bytes);
    pattern(content.data(), bytes, 17);
    EXPECT(fwrite(content.data(), 1, bytes, file) == bytes && fflush(file) == 0, "write");
    auto *mapped = (unsigned char *)mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fileno(file), 0);
    auto *shared = (unsigned char *)mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fileno(file), 0);
    EXPECT(mapped != MAP_FAILED && shared != MAP_FAILED, "mmap");
    CUdeviceptr device = device_words(bytes / 4);
    CUstream stream = new_stream();
    for (auto *source : {mapped, shared}) {
        CK(cuMemsetD8(device, 0, bytes));
        CK(cuMemcpyHtoD(device, source, bytes));
        CK(cuMemcpyDtoH(got.data(), device, bytes));
        EXPECT(got == content, "a synchronous copy from a read-only file mapping");
        CK(cuMemsetD8Async(device, 0, bytes, stream));
        CK(cuMemcpyHtoDAsync(device, source + 4097, bytes - 4097, stream));
        CK(cuStreamSynchronize(stream));
        CK(cuMemcpyDtoH(got.data(), device, bytes - 4097));
        EXPECT(memcmp(got.data(), content.data() + 4097, bytes - 4097) == 0, "an asynchronous copy from a read-only file mapping");
    }
    OBSERVE("register_read_only_mapping", cuMemHostRegister(mapped, bytes, 0));
    // The file itself is as it was.
    std::vector<unsigned char> now(bytes);
    EXPECT(pread(fileno(file), now.data(), bytes, 0) == (ssize_t)bytes && now == content, "the file changed");
}

// Text and constants of the program itself as sources.
PITFALL(85, source_is_the_program_text) {
    Gpu gpu;
    static const char constant[] = "the quick brown fox jumps over the lazy dog";
    CUdeviceptr device = device_words(1024);
    char back[sizeof constant];
    CK(cuMemcpyHtoD(device, constant, sizeof constant));
    CK(cuMemcpyDtoH(back, device, sizeof constant));
    EXPECT(memcmp(back, constant, sizeof constant) == 0, "%s", back);
    std::vector<unsigned char> text(4096);
    CK(cuMemcpyHtoD(device, kernels_fatbin, 4096));
    CK(cuMemcpyDtoH(text.data(), device, 4096));
    EXPECT(memcmp(text.data(), kernels_fatbin, 4096) == 0, "read-only data");
}

PITFALL(86, address_space_churn_during_copies) {
    Gpu gpu;
    std::atomic<bool> stop{false};
    std::thread churn([&] {
        unsigned turn = 0;
        while (!stop) {
            size_t bytes = (1 + turn % 9) * 700'000;
            auto *memory = (unsigned char *)anonymous(bytes);
            for (size_t i = 0; i < bytes; i += 4096)
                memory[i] = (unsigned char)turn;
            madvise(memory, bytes, turn % 2 ? MADV_HUGEPAGE : MADV_DONTNEED);
            if (turn % 8 == 0) {
                pid_t child = fork();
                if (child == 0) {
                    memory[0] = 1;
                    _exit(0);
                }
                pitfall::wait_for(child);
            }
            munmap(memory, bytes);
            turn++;
        }
    });
    CUstream stream = new_stream();
    const size_t room = 6 << 20;
    CUdeviceptr device = device_words(room / 4);
    for (unsigned round = 0; round < 40; round++) {
        size_t bytes = room - round * 100'003;
        // Fresh memory each time, at an address that the last round gave up.
        auto *source = (unsigned char *)anonymous(bytes), *got = (unsigned char *)anonymous(bytes);
        pattern(source, bytes, round);
        if (round % 2) {
            CK(cuMemcpyHtoD(device, source, bytes));
            CK(cuMemcpyDtoH(got, device, bytes));
        } else {
            CK(cuMemcpyHtoDAsync(device, source, bytes, stream));
            CK(cuMemcpyDtoHAsync(got, device, bytes, stream));
            CK(cuStreamSynchronize(stream));
        }
        EXPECT(memcmp(source, got, bytes) == 0, "round %u: %zu bytes came back changed", round, bytes);
        munmap(source, bytes);
        munmap(got, bytes);
    }
    stop = true;
    churn.join();
}

// The source's pages are unmapped right after a pageable copy returned.
PITFALL(86, unmapped_right_after_pageable_copy) {
    Gpu gpu;
    CUstream stream = new_stream();
    const size_t bytes = 4 << 20;
    CUdeviceptr device = device_words(bytes / 4);
    std::vector<unsigned char> expected(bytes), got(bytes);
    for (unsigned round = 0; round < 10; round++) {
        auto *source = (unsigned char *)anonymous(bytes);
        pattern(source, bytes, round);
        memcpy(expected.data(), source, bytes);
        CK(cuMemcpyHtoDAsync(device, source, bytes, stream));
        munmap(source, bytes);
        auto *other = (unsigned char *)mmap(source, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        memset(other, 0xff, bytes);
        CK(cuStreamSynchronize(stream));
        CK(cuMemcpyDtoH(got.data(), device, bytes));
        EXPECT(got == expected, "round %u: the copy read its source after it returned", round);
        munmap(other, bytes);
    }
}

static void fork_with_registered(const Gpu &gpu, void *memory, size_t bytes, bool registered) {
    auto *words = (volatile unsigned *)memory;
    const size_t count = bytes / 4;
    for (size_t i = 0; i < count; i += 256)
        words[i] = 1;
    if (registered)
        CK(cuMemHostRegister(memory, bytes, 0));
    CUdeviceptr device = device_words(count, 0x77777777);
    int ready[2], go[2];
    EXPECT(pipe(ready) == 0 && pipe(go) == 0, "pipe");
    pid_t child = fork();
    if (child == 0) {
        // Some drivers do not pass pinned ranges on to the child: then this faults, only in the child.
        signal(SIGSEGV, SIG_DFL);
        ssize_t ignored = write(ready[1], "r", 1);
        for (size_t i = 0; i < count; i += 256)
            words[i] = 0xcccccccc;
        char byte;
        ::close(go[1]);
        ignored = read(go[0], &byte, 1);
        (void)ignored;
        _exit(0);
    }
    char byte;
    EXPECT(read(ready[0], &byte, 1) == 1, "read");
    // The parent writes after the fork: its writes must be what the device reads.
    for (size_t i = 0; i < count; i += 256)
        words[i] = (unsigned)i + 5;
    CUstream stream = new_stream();
    CUdeviceptr copy = device_words(count);
    CK(cuMemcpyHtoDAsync(copy, memory, bytes, stream));
    CK(cuStreamSynchronize(stream));
    std::vector<unsigned> got(count);
    CK(cuMemcpyDtoH(got.data(), copy, bytes));
    for (size_t i = 0; i < count; i += 256)
        EXPECT(got[i] == (unsigned)i + 5, "word %zu as the device read it: 0x%x", i, got[i]);
    // And data that the device writes must reach the parent.
    CK(cuMemcpyDtoHAsync(memory, device, bytes, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS((unsigned *)memory, count, 0x77777777);
    if (gpu.attribute(CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) && registered) {
        CUdeviceptr mapped = 0;
        CK(cuMemHostGetDevicePointer(&mapped, memory, 0));
        LAUNCH(gpu.function("fill"), 4, 64, stream, mapped, 0x88u, (unsigned)4096);
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS((unsigned *)memory, 4096, 0x88);
    }
    ::close(go[1]);
    ::close(go[0]);
    pitfall::observed("child_of_fork_ended=%d", pitfall::wait_for(child));
    if (registered)
        CK(cuMemHostUnregister(memory));
    CK(cuMemFree(device));
    CK(cuMemFree(copy));
}

PITFALL(87, fork_with_registered_pages) {
    Gpu gpu;
    const size_t bytes = pitfall::large() ? size_t(1) << 30 : size_t(32) << 20;
    auto *memory = (unsigned char *)anonymous(bytes);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    fork_with_registered(gpu, memory, bytes, true);
}

PITFALL(87, fork_with_registered_huge_pages) {
    Gpu gpu;
    const size_t bytes = size_t(32) << 20, huge = 2 << 20;
    auto *memory = (unsigned char *)anonymous(bytes + huge);
    memory += huge - (uintptr_t)memory % huge;
    madvise(memory, bytes, MADV_HUGEPAGE);
    fork_with_registered(gpu, memory, bytes, true);
}

PITFALL(87, fork_with_registered_hugetlb) {
    Gpu gpu;
    const size_t bytes = 4 << 20;
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (memory == MAP_FAILED)
        pitfall::skip("no huge pages are reserved here");
    fork_with_registered(gpu, memory, bytes, true);
}

PITFALL(87, fork_with_pageable) {
    Gpu gpu;
    const size_t bytes = 16 << 20;
    fork_with_registered(gpu, anonymous(bytes), bytes, false);
}

PITFALL_MAIN
