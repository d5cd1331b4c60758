// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Output of kernels: its descriptor, time and order (pitfall 54).
#include "harness.h"
#include <cassert>
#include <cuda.h>
#include <cuda_runtime.h>

#define CKR_IS(CALL, CODE)                                                                                             \
    do {                                                                                                               \
        cudaError_t code_ = (CALL);                                                                                    \
        if (code_ != (CODE))                                                                                           \
            pitfall::fail("%s:%d: %s returned %d (%s), expected %d", __FILE__, __LINE__, #CALL, (int)code_,             \
                          cudaGetErrorName(code_), (int)(CODE));                                                       \
    } while (0)
#define CKR(CALL) CKR_IS(CALL, cudaSuccess)

// Redirects this process's writes to a descriptor to a file meanwhile.
class Caught {
  public:
    explicit Caught(int descriptor) : place(descriptor), file(tmpfile()) {
        fflush(nullptr);
        saved = dup(place);
        dup2(fileno(file), place);
    }
    // Returns the output so far, and restores the descriptor.
    std::string text() {
        fflush(nullptr);
        if (saved >= 0) {
            dup2(saved, place);
            close(saved);
            saved = -1;
        }
        std::string all;
        char bytes[65536];
        rewind(file);
        while (size_t got = fread(bytes, 1, sizeof bytes, file))
            all.append(bytes, got);
        return all;
    }
    // Bytes that came so far.
    off_t bytes() { return lseek(fileno(file), 0, SEEK_END); }

  private:
    int place, saved;
    FILE *file;
};

__global__ void hello(int number) { printf("hello %d from %d\n", number, (int)threadIdx.x); }
__global__ void many(int lines) {
    for (int i = 0; i < lines; i++)
        printf("line %06d of a kernel that prints much\n", i);
}
__global__ void silent(int *word) { *word = 7; }

__global__ void formats() {
    printf("plain, 100%%\n");
    printf("%d|%5d|%-5d|%05d|%+d|% d\n", 42, 42, 42, 42, 42, 42);
    printf("%u|%x|%X|%#x|%o|%#o\n", 3000000000u, 48879u, 48879u, 48879u, 8u, 8u);
    printf("%ld|%lld|%llu|%hd|%c\n", -5L, -1234567890123LL, 18446744073709551615ULL, (short)-3, 'x');
    printf("%f|%.3f|%10.2f|%-10.1f|%e|%G|%g\n", 1.5, 2.0 / 3, 3.14159, 2.5, 12345.678, 1e-10, 0.5);
    printf("%s|%10s|%-10s|%.2s\n", "text", "right", "left", "cut");
    printf("%*d|%-*d\n", 6, 7, 6, 7);
    printf("%p\n", (void *)0x1234);
    printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5,
           6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32);
}

__global__ void counts(int *result) {
    result[0] = printf("none\n");
    result[1] = printf("%d %s\n", 1, "two");
    result[2] = printf(nullptr);
}

__device__ __noinline__ void inner(int number) { printf("inner %d\n", number); }
typedef void (*Function)(int);
__device__ Function table[1] = {inner};
__global__ void through(int number) { inner(number); }
__global__ void by_address(int number) { table[number & 0](number); }

__global__ void check(const int *value) { assert(value[threadIdx.x] == 1); }

// One way after the other of waiting for a kernel: what it has printed stands between what the host prints before and
// after.
PITFALL(54, printed_text_comes_with_each_way_of_waiting) {
    int *word, got = 0;
    CKR(cudaMalloc(&word, 4));
    cudaStream_t stream;
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    cudaEvent_t event;
    CKR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    Caught out(STDOUT_FILENO);
    std::string expected;
    auto way = [&](int number, auto wait) {
        printf("before %d\n", number);
        hello<<<1, 2, 0, stream>>>(number);
        CKR(cudaGetLastError());
        wait();
        printf("after %d\n", number);
        char lines[200];
        snprintf(lines, sizeof lines, "before %d\nhello %d from 0\nhello %d from 1\nafter %d\n", number, number, number, number);
        expected += lines;
    };
    for (int round = 0; round < 3; round++) {
        way(1, [&] { CKR(cudaDeviceSynchronize()); });
        way(2, [&] { CKR(cudaStreamSynchronize(stream)); });
        way(3, [&] {
            CKR(cudaEventRecord(event, stream));
            CKR(cudaEventSynchronize(event));
        });
        way(4, [&] {
            // The copy is in the stream, and the program waits for its end.
            CKR(cudaMemcpyAsync(&got, word, 4, cudaMemcpyDeviceToHost, stream));
            CKR(cudaStreamSynchronize(stream));
        });
        // An event that was queried before.
        way(5, [&] {
            CKR(cudaEventRecord(event, stream));
            while (cudaEventQuery(event) == cudaErrorNotReady) {
            }
            CKR(cudaEventSynchronize(event));
        });
    }
    std::string text = out.text();
    EXPECT(text == expected, "printed: %s", text.c_str());
}

// A kernel that calls printf by other functions prints as one that names it.
PITFALL(54, text_of_called_functions_comes_with_the_wait) {
    int *word;
    CKR(cudaMalloc(&word, 4));
    Caught out(STDOUT_FILENO);
    silent<<<1, 1>>>(word);
    CKR(cudaStreamSynchronize(0));
    by_address<<<1, 1>>>(5);
    CKR(cudaStreamSynchronize(0));
    printf("one\n");
    through<<<1, 1>>>(6);
    CKR(cudaStreamSynchronize(0));
    printf("two\n");
    std::string text = out.text();
    EXPECT(text == "inner 5\none\ninner 6\ntwo\n", "printed: %s", text.c_str());
}

PITFALL(54, blocking_copy_puts_out_what_its_stream_printed) {
    int *word, got = 0;
    std::vector<char> large(8 << 20);
    char *device;
    CKR(cudaMalloc(&word, 4));
    CKR(cudaMalloc(&device, large.size()));
    Caught out(STDOUT_FILENO);
    std::string expected;
    for (int round = 0; round < 3; round++) {
        hello<<<1, 1>>>(round);
        CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
        printf("small\n");
        hello<<<1, 1>>>(round);
        CKR(cudaMemcpy(large.data(), device, large.size(), cudaMemcpyDeviceToHost));
        printf("large\n");
        char lines[100];
        snprintf(lines, sizeof lines, "hello %d from 0\nsmall\nhello %d from 0\nlarge\n", round, round);
        expected += lines;
    }
    std::string text = out.text();
    EXPECT(text == expected, "printed: %s", text.c_str());
}

PITFALL(54, reset_puts_out_what_was_printed) {
    Caught out(STDOUT_FILENO);
    hello<<<1, 1>>>(1);
    CKR(cudaDeviceReset());
    printf("reset\n");
    hello<<<1, 1>>>(2);
    CKR(cudaDeviceSynchronize());
    std::string text = out.text();
    EXPECT(text == "hello 1 from 0\nreset\nhello 2 from 0\n", "printed: %s", text.c_str());
}

PITFALL(54, formats_are_those_of_c) {
    Caught out(STDOUT_FILENO);
    formats<<<1, 1>>>();
    CKR(cudaDeviceSynchronize());
    std::string text = out.text();
    char expected[4096];
    int at = 0;
#define LINE(...) at += snprintf(expected + at, sizeof expected - at, __VA_ARGS__)
    LINE("plain, 100%%\n");
    LINE("%d|%5d|%-5d|%05d|%+d|% d\n", 42, 42, 42, 42, 42, 42);
    LINE("%u|%x|%X|%#x|%o|%#o\n", 3000000000u, 48879u, 48879u, 48879u, 8u, 8u);
    LINE("%ld|%lld|%llu|%hd|%c\n", -5L, -1234567890123LL, 18446744073709551615ULL, (short)-3, 'x');
    LINE("%f|%.3f|%10.2f|%-10.1f|%e|%G|%g\n", 1.5, 2.0 / 3, 3.14159, 2.5, 12345.678, 1e-10, 0.5);
    LINE("%s|%10s|%-10s|%.2s\n", "text", "right", "left", "cut");
    LINE("%*d|%-*d\n", 6, 7, 6, 7);
    LINE("%p\n", (void *)0x1234);
    for (int i = 1; i <= 32; i++)
        LINE("%d%c", i, i < 32 ? ' ' : '\n');
    EXPECT(text == expected, "printed: %s", text.c_str());
}

PITFALL(54, printf_returns_how_many_arguments_it_took) {
    int *results, got[3];
    CKR(cudaMalloc(&results, sizeof got));
    Caught out(STDOUT_FILENO);
    counts<<<1, 1>>>(results);
    CKR(cudaMemcpy(got, results, sizeof got, cudaMemcpyDeviceToHost));
    std::string text = out.text();
    EXPECT(got[0] == 0 && got[1] == 2 && got[2] == -1, "%d %d %d", got[0], got[1], got[2]);
    EXPECT(text == "none\n1 two\n", "printed: %s", text.c_str());
}

// More than a pipe holds, and more than one answer carries.
PITFALL(54, much_text_comes_whole_if_the_buffer_holds_it) {
    const int lines = 100'000;
    CKR(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 64 << 20));
    Caught out(STDOUT_FILENO);
    many<<<1, 1>>>(lines);
    CKR(cudaDeviceSynchronize());
    std::string text = out.text(), expected;
    for (int i = 0; i < lines; i++) {
        char line[64];
        snprintf(line, sizeof line, "line %06d of a kernel that prints much\n", i);
        expected += line;
    }
    EXPECT(text.size() == expected.size(), "%zu of %zu bytes came", text.size(), expected.size());
    EXPECT(text == expected, "the text is another");
}

PITFALL(54, the_oldest_text_goes_where_the_buffer_is_full) {
    const int lines = 200'000;
    CKR(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 20));
    Caught out(STDOUT_FILENO);
    many<<<1, 1>>>(lines);
    CKR(cudaDeviceSynchronize());
    std::string text = out.text();
    char last[64];
    snprintf(last, sizeof last, "line %06d of a kernel that prints much\n", lines - 1);
    EXPECT(text.size() > strlen(last) && text.compare(text.size() - strlen(last), strlen(last), last) == 0, "the newest line did not come");
    // The driver decides the number and the age of the lines that are left: it puts out some while the kernel runs.
    pitfall::observed("hw.bytes=%zu", text.size());
}

// Two threads print by their streams and wait for them, while a third works with kernels that print nothing.
PITFALL(54, each_thread_finds_its_text_printed_when_its_wait_returns) {
    Caught out(STDOUT_FILENO);
    const int rounds = 50;
    std::atomic<bool> done{false};
    std::atomic<int> late{0};
    std::thread quiet([&] {
        int *word, got = 0;
        CKR(cudaMalloc(&word, 4));
        while (!done) {
            silent<<<1, 1, 0, cudaStreamPerThread>>>(word);
            CKR(cudaMemcpyAsync(&got, word, 4, cudaMemcpyDeviceToHost, cudaStreamPerThread));
            CKR(cudaStreamSynchronize(cudaStreamPerThread));
            if (got != 7)
                late++;
        }
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < rounds; i++) {
                off_t before = out.bytes();
                hello<<<1, 1, 0, cudaStreamPerThread>>>(1);
                CKR(cudaStreamSynchronize(cudaStreamPerThread));
                if (out.bytes() <= before)
                    late++;
            }
        });
    for (auto &thread : threads)
        thread.join();
    done = true;
    quiet.join();
    std::string text = out.text();
    EXPECT(late == 0, "%d waits returned too early", late.load());
    EXPECT(std::count(text.begin(), text.end(), '\n') == 2 * rounds, "%zu bytes came", text.size());
}

PITFALL(54, failed_assertion_says_so_on_standard_error_and_sticks) {
    int *values, host[4] = {1, 1, 0, 1};
    CKR(cudaMalloc(&values, sizeof host));
    CKR(cudaMemcpy(values, host, sizeof host, cudaMemcpyHostToDevice));
    Caught error(STDERR_FILENO);
    check<<<1, 4>>>(values);
    cudaError_t first = cudaDeviceSynchronize();
    cudaError_t again = cudaMemcpy(host, values, sizeof host, cudaMemcpyDeviceToHost);
    std::string text = error.text();
    EXPECT(first == cudaErrorAssert, "the wait returned %d", (int)first);
    EXPECT(again == cudaErrorAssert, "the copy returned %d", (int)again);
    EXPECT(text.find("printf.cu:") != std::string::npos, "said: %s", text.c_str());
    EXPECT(text.find("check(const int *)") != std::string::npos, "said: %s", text.c_str());
    EXPECT(text.find("block: [0,0,0], thread: [2,0,0] Assertion `value[threadIdx.x] == 1` failed.") != std::string::npos, "said: %s",
           text.c_str());
}

// A process that was killed before it waited has printed nothing, and the next one finds nothing of it.
PITFALL(54, nothing_of_another_process_comes_out) {
    for (int round = 0; round < 2; round++) {
        pid_t child = fork();
        if (child == 0) {
            hello<<<1, 1>>>(99);
            cudaStreamQuery(nullptr);
            _exit(0);
        }
        int status = 0;
        waitpid(child, &status, 0);
    }
    Caught out(STDOUT_FILENO);
    hello<<<1, 1>>>(1);
    CKR(cudaDeviceSynchronize());
    std::string text = out.text();
    EXPECT(text == "hello 1 from 0\n", "printed: %s", text.c_str());
}

PITFALL_MAIN
