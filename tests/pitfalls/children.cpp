// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Forked children of busy processes, and limits, signals and cancellation of the process around CUDA (pitfalls 60, 61).
#include "driver.h"
#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

static const unsigned SECONDS = 20;

// Forks, and runs `body` in the child, which a signal ends if it hangs.
template <typename Body> static pid_t forked(Body body) {
    fflush(stdout);
    pid_t child = fork();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        alarm(SECONDS);
        body();
        _exit(0);
    }
    return child;
}

static void expect_end(pid_t child, const char *what) {
    int status = pitfall::wait_for(child);
    EXPECT(status == 0, "%s ended with %d", what, status);
}

// Any lock of the library may be held by another thread at the fork, and the child has no such thread.
PITFALL(60, children_of_busy_threads_get_an_answer) {
    Gpu gpu;
    std::atomic<bool> over{false};
    std::atomic<int> rounds{0};
    std::vector<std::thread> busy;
    for (int i = 0; i < 2; i++)
        busy.emplace_back([&, i] {
            CK(cuCtxSetCurrent(gpu.context));
            CUstream stream;
            CK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
            while (!over) {
                const char *text;
                CK_IS(cuGetErrorName((CUresult)123456, &text), CUDA_ERROR_INVALID_VALUE);
                if (i == 0) {
                    CUgraph graph;
                    CK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
                    CK(cuStreamEndCapture(stream, &graph));
                    CK(cuGraphDestroy(graph));
                }
                rounds++;
            }
            CK(cuStreamDestroy(stream));
        });
    while (rounds < 10)
        std::this_thread::yield();
    for (int i = 0; i < 100; i++) {
        pid_t child = forked([] {
            CUdeviceptr memory = 0;
            CK_IS(cuMemAlloc(&memory, 4096), CUDA_ERROR_NOT_INITIALIZED);
            CK_IS(cuMemFree(5), CUDA_ERROR_NOT_INITIALIZED);
        });
        expect_end(child, "a child");
    }
    over = true;
    for (std::thread &thread : busy)
        thread.join();
}

// A thread of the parent asks for the version at the time of the fork.
PITFALL(60, children_of_a_process_that_asks_for_the_version) {
    for (int i = 0; i < 6; i++) {
        pid_t process = forked([] {
            std::atomic<bool> asks{false};
            std::thread other([&] {
                int version;
                asks = true;
                CK(cuDriverGetVersion(&version));
            });
            while (!asks)
                std::this_thread::yield();
            pid_t child = forked([] { CK(cuInit(0)); });
            expect_end(child, "the child");
            other.join();
        });
        expect_end(process, "the process");
    }
}

// A child's own files may get the numbers of descriptors that the library closed in it.
PITFALL(60, grandchildren_keep_their_files) {
    Gpu gpu;
    pid_t child = forked([] {
        std::vector<int> files;
        for (int i = 0; i < 64; i++)
            files.push_back(open("/dev/null", O_RDONLY));
        pid_t grandchild = forked([&] {
            for (int file : files)
                EXPECT(fcntl(file, F_GETFD) >= 0, "descriptor %d is closed", file);
        });
        expect_end(grandchild, "the grandchild");
    });
    expect_end(child, "the child");
}

// The reader of the program's messages has ended, or the disk is full.
PITFALL(61, messages_that_nobody_can_write) {
    for (bool is_pipe : {true, false}) {
        pid_t child = forked([is_pipe] {
            int ends[2] = {-1, open("/dev/full", O_WRONLY)};
            if (is_pipe) {
                EXPECT(pipe(ends) == 0, "pipe");
                close(ends[0]);
            }
            signal(SIGPIPE, SIG_IGN);
            setenv("VIRTIO_GPGPU_LOG", "debug", 1);
            int before = dup(2);
            dup2(ends[1], 2);
            CUresult init = cuInit(0), waited = cuCtxSynchronize();
            dup2(before, 2);
            CK(init);
            CK_IS(waited, CUDA_ERROR_INVALID_CONTEXT);
        });
        expect_end(child, "the process");
    }
}

// No call is cut off: the thread ends at its next point of cancellation.
PITFALL(61, a_thread_is_cancelled_during_calls) {
    pid_t child = forked([] {
        static Gpu gpu;
        static std::atomic<int> copied;
        auto copies = [](void *) -> void * {
            std::vector<unsigned> words(1 << 18, 7);
            CK(cuCtxSetCurrent(gpu.context));
            CUdeviceptr memory = device_words(1 << 18);
            for (;;) {
                void *pinned = nullptr;
                CK(cuMemcpyHtoD(memory, words.data(), words.size() * 4));
                CK(cuMemAllocHost(&pinned, 4 << 20));
                CK(cuMemFreeHost(pinned));
                copied++;
                pthread_testcancel();
            }
        };
        for (int i = 0; i < 5; i++) {
            pthread_t thread;
            copied = 0;
            EXPECT(pthread_create(&thread, nullptr, copies, nullptr) == 0, "pthread_create");
            while (copied < 3)
                std::this_thread::yield();
            EXPECT(pthread_cancel(thread) == 0, "pthread_cancel");
            void *result = nullptr;
            EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "it was not cancelled");
        }
        CK(cuCtxSynchronize());
    });
    expect_end(child, "the process");
}

// The cancellation is pending when the wait begins, and the work takes long.
PITFALL(61, a_thread_is_cancelled_during_a_long_wait) {
    pid_t child = forked([] {
        static Gpu gpu;
        static std::atomic<bool> waits, pending;
        auto wait = [](void *) -> void * {
            CK(cuCtxSetCurrent(gpu.context));
            CK(cuLaunchHostFunc(nullptr, [](void *) { usleep(100'000); }, nullptr));
            waits = true;
            while (!pending)
                sched_yield();
            CK(cuStreamSynchronize(nullptr));
            pthread_testcancel();
            return nullptr;
        };
        pthread_t thread;
        EXPECT(pthread_create(&thread, nullptr, wait, nullptr) == 0, "pthread_create");
        while (!waits)
            std::this_thread::yield();
        EXPECT(pthread_cancel(thread) == 0, "pthread_cancel");
        pending = true;
        void *result = nullptr;
        EXPECT(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED, "it was not cancelled");
        CK(cuCtxSynchronize());
    });
    expect_end(child, "the process");
}

// As batch systems set it.
PITFALL(61, files_have_a_limit) {
    pid_t child = forked([] {
        rlimit limit = {1 << 30, RLIM_INFINITY};
        getrlimit(RLIMIT_FSIZE, &limit);
        limit.rlim_cur = 1 << 30;
        EXPECT(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
        Gpu gpu;
        unsigned *pinned = pinned_words(1 << 20, 3);
        CUdeviceptr memory = device_words(1 << 20);
        CK(cuMemcpyHtoD(memory, pinned, 4 << 20));
        CK(cuMemsetD32(memory, 5, 1 << 20));
        CK(cuMemcpyDtoH(pinned, memory, 4 << 20));
        EXPECT_WORDS(pinned, 1 << 20, 5);
    });
    expect_end(child, "the process");
}

PITFALL_MAIN
