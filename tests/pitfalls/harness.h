/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// The harness of the pitfall programs: each test runs in a separate process (this program executed again, before any
// CUDA call), so that a sticky error, a crash or a hang only affects that test.
//
//   PITFALL(01, async_dtoh_pageable) { ... CK(cuMemAlloc(&p, 4)); EXPECT(x == 1, "x is %d", x); ... }
//   PITFALL_OURS(63, random_handles) { ... }   // never run on NVIDIA's driver: it may crash there
//   PITFALL_MAIN
//
// Environment: PITFALL_TIMEOUT scales the limit of 60 s per test; PITFALL_LARGE=1 adds sizes over 512 MiB;
// PITFALL_BACKEND says what libcuda.so.1 is (native, software, socket, vm).
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pitfall {

struct Test {
    const char *name;
    void (*run)();
    bool ours_only;
};

inline std::vector<Test> &tests() {
    static auto *list = new std::vector<Test>;
    return *list;
}

struct Register {
    Register(const char *name, void (*run)(), bool ours_only) { tests().push_back({name, run, ours_only}); }
};

// One line to the parent. One write, so that lines of several threads and processes do not mix.
inline void say(const char *kind, const char *format, va_list args) {
    char line[2048];
    int at = snprintf(line, sizeof line, "%s", kind);
    at += vsnprintf(line + at, sizeof line - at - 2, format, args);
    at = std::min<int>(at, sizeof line - 2);
    std::replace(line, line + at, '\n', ' ');
    line[at++] = '\n';
    ssize_t ignored = write(STDOUT_FILENO, line, at);
    (void)ignored;
}

// Ends the test as failed, from any of its threads.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void fail(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("@FAIL ", format, args);
    va_end(args);
    _exit(1);
}

// Ends the test as skipped: the hardware or the set-up lacks what it needs.
[[noreturn]] __attribute__((format(printf, 1, 2))) inline void skip(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("@SKIP ", format, args);
    va_end(args);
    _exit(0);
}

// A fact that CUDA does not document: compared between the native run and ours, never asserted. A key that begins with
// "hw." depends on the GPU model and is comparable only where the GPU is the same.
__attribute__((format(printf, 1, 2))) inline void observed(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say("@OBSERVED ", format, args);
    va_end(args);
}

inline bool large() {
    const char *value = getenv("PITFALL_LARGE");
    return value && *value && strcmp(value, "0") != 0;
}

inline std::string backend() {
    const char *value = getenv("PITFALL_BACKEND");
    return value ? value : "";
}

inline double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Tally {
    int passed = 0, failed = 0, skipped = 0;
};

// Starts the test in a separate process, forwards its output and judges how it ended.
inline void run_one(const Test &test, double limit, Tally &tally) {
    if (test.ours_only && (backend().empty() || backend() == "native")) {
        printf("SKIP %s: would hand NVIDIA's driver an invalid handle (PITFALL_BACKEND is not software, socket or vm)\n",
               test.name);
        tally.skipped++;
        return;
    }
    fflush(stdout);
    int out[2];
    if (pipe2(out, O_CLOEXEC) != 0) {
        perror("pipe2");
        exit(2);
    }
    pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        dup2(out[1], STDOUT_FILENO);
        // A kernel loaded at its first launch may wait for a spinning one.
        setenv("CUDA_MODULE_LOADING", "EAGER", 0);
        execl("/proc/self/exe", "pitfall", "--child", test.name, (char *)nullptr);
        _exit(126);
    }
    setpgid(child, child);
    close(out[1]);

    std::string verdict, pending;
    double deadline = seconds() + limit;
    bool timed_out = false;
    bool exited = false;
    int status = 0;
    auto line = [&](const std::string &text) {
        if (text.rfind("@OBSERVED ", 0) == 0)
            printf("OBSERVED %s %s\n", test.name, text.c_str() + 10);
        else if (text.rfind("@FAIL ", 0) == 0)
            verdict = verdict.empty() || verdict[0] != 'F' ? "F" + text.substr(6) : verdict;
        else if (text.rfind("@SKIP ", 0) == 0)
            verdict = verdict.empty() ? "S" + text.substr(6) : verdict;
        else if (text == "@PASS")
            verdict = verdict.empty() ? "P" : verdict;
        else if (!text.empty())
            printf("  | %s\n", text.c_str());
    };
    for (;;) {
        double left = deadline - seconds();
        if (left <= 0 && !exited) {
            timed_out = true;
            kill(-child, SIGKILL);
            waitpid(child, &status, 0);
            exited = true;
        }
        pollfd poll_out = {out[0], POLLIN, 0};
        int ready = poll(&poll_out, 1, exited ? 0 : 50);
        if (ready > 0) {
            char bytes[4096];
            ssize_t got = read(out[0], bytes, sizeof bytes);
            if (got > 0) {
                pending.append(bytes, got);
                size_t end;
                while ((end = pending.find('\n')) != std::string::npos) {
                    line(pending.substr(0, end));
                    pending.erase(0, end + 1);
                }
                continue;
            }
            if (got == 0 && !exited) {
                // All writers have closed the pipe, so the process is about to end: wait for it within the limit.
                while (waitpid(child, &status, WNOHANG) == 0) {
                    if (seconds() > deadline) {
                        timed_out = true;
                        kill(-child, SIGKILL);
                        waitpid(child, &status, 0);
                        break;
                    }
                    usleep(1000);
                }
                exited = true;
            }
            break;
        }
        if (exited)
            break;
        // A process that the test forked may hold the pipe open for longer than the test lives.
        if (waitpid(child, &status, WNOHANG) == child)
            exited = true;
    }
    line(pending);
    close(out[0]);
    kill(-child, SIGKILL);

    if (timed_out) {
        printf("FAIL %s: no end within %.0f s\n", test.name, limit);
        tally.failed++;
    } else if (!verdict.empty() && verdict[0] == 'F') {
        printf("FAIL %s: %s\n", test.name, verdict.c_str() + 1);
        tally.failed++;
    } else if (WIFSIGNALED(status)) {
        printf("FAIL %s: killed by signal %d (%s)%s\n", test.name, WTERMSIG(status), strsignal(WTERMSIG(status)),
               verdict.empty() ? "" : ", after its last check");
        tally.failed++;
    } else if (verdict.empty() || WEXITSTATUS(status) != 0) {
        printf("FAIL %s: exit status %d%s\n", test.name, WEXITSTATUS(status),
               verdict.empty() ? ", with no verdict" : ", after its last check");
        tally.failed++;
    } else if (verdict[0] == 'S') {
        printf("SKIP %s: %s\n", test.name, verdict.c_str() + 1);
        tally.skipped++;
    } else {
        printf("PASS %s\n", test.name);
        tally.passed++;
    }
    fflush(stdout);
}

inline int run_all(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    if (argc == 3 && strcmp(argv[1], "--child") == 0) {
        for (auto &test : tests()) {
            if (strcmp(test.name, argv[2]) == 0) {
                test.run();
                fflush(stdout);
                ssize_t ignored = write(STDOUT_FILENO, "@PASS\n", 6);
                (void)ignored;
                return 0; // by way of exit(): static destructors and libcuda's own teardown are part of the test
            }
        }
        return 2;
    }
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (auto &test : tests())
            printf("%s%s\n", test.name, test.ours_only ? " ours-only" : "");
        return 0;
    }
    const char *scale = getenv("PITFALL_TIMEOUT");
    double limit = 60 * (scale && atof(scale) > 0 ? atof(scale) : 1);
    Tally tally;
    for (int i = 1; i < argc; i++) {
        bool known = false;
        for (auto &test : tests())
            known |= strcmp(test.name, argv[i]) == 0;
        if (!known) {
            fprintf(stderr, "%s: no such test (--list names them)\n", argv[i]);
            return 2;
        }
    }
    for (auto &test : tests()) {
        bool wanted = argc == 1;
        for (int i = 1; i < argc; i++)
            wanted |= strcmp(test.name, argv[i]) == 0;
        if (wanted)
            run_one(test, limit, tally);
    }
    printf("SUMMARY passed=%d failed=%d skipped=%d\n", tally.passed, tally.failed, tally.skipped);
    return tally.failed ? 1 : 0;
}

// The exit status of a process started by the test: its code, or 1000 + the signal that killed it.
inline int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return -1;
    return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

} // namespace pitfall

#define PITFALL_ANY(NUMBER, NAME, OURS)                                                                                \
    static void pitfall_##NUMBER##_##NAME();                                                                           \
    static pitfall::Register register_##NUMBER##_##NAME("pitfall_" #NUMBER "_" #NAME, pitfall_##NUMBER##_##NAME, OURS); \
    static void pitfall_##NUMBER##_##NAME()
#define PITFALL(NUMBER, NAME) PITFALL_ANY(NUMBER, NAME, false)
#define PITFALL_OURS(NUMBER, NAME) PITFALL_ANY(NUMBER, NAME, true)
#define PITFALL_MAIN                                                                                                   \
    int main(int argc, char **argv) { return pitfall::run_all(argc, argv); }

// Fails the test unless the condition holds; the rest is a printf format that says what was seen.
#define EXPECT(CONDITION, ...)                                                                                         \
    do {                                                                                                               \
        if (!(CONDITION)) {                                                                                            \
            char seen_[1024];                                                                                          \
            snprintf(seen_, sizeof seen_, __VA_ARGS__);                                                                \
            pitfall::fail("%s:%d: %s is not so: %s", __FILE__, __LINE__, #CONDITION, seen_);                            \
        }                                                                                                              \
    } while (0)
