// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Calls from places where a library may already be unloaded: constructors and destructors of static objects, threads
// being torn down, many short threads, an object that is unloaded, exit() while another thread calls. Prints "ok"
// lines; its exit status is 0.
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <thread>
#include <unistd.h>
#include <vector>

// Destroyed last: after the runtime's own exit handler, which the constructor of `object` registers.
static struct Early {
    ~Early() {
        void *p = 0;
        fprintf(stderr, "after the runtime: %d\n", cudaMalloc(&p, 1));
    }
} early;

struct Static {
    void *memory = 0;
    Static() { printf("constructor: %d\n", cudaMalloc(&memory, 64)); }
    ~Static() { printf("destructor: %s\n", cudaFree(memory) == cudaSuccess ? "freed" : "refused"); }
};
static Static object;
struct Local {
    ~Local() {
        cudaError_t e = cudaSetDevice(99);
        if (e != cudaErrorInvalidDevice || cudaGetLastError() != e) abort();
    }
};
static thread_local Local local;

__global__ void twice(int *p) { p[threadIdx.x] *= 2; }

int main() {
    setvbuf(stdout, 0, _IONBF, 0);
    for (int round = 0; round < 50; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 20; i++)
            threads.emplace_back([] {
                (void)&local;
                int *p = 0, h[32] = {7};
                if (cudaMalloc(&p, sizeof h) || cudaMemcpy(p, h, sizeof h, cudaMemcpyHostToDevice)) abort();
                twice<<<1, 32>>>(p);
                if (cudaMemcpy(h, p, sizeof h, cudaMemcpyDeviceToHost) || h[0] != 14 || cudaFree(p)) abort();
            });
        for (auto &t : threads) t.join();
    }
    printf("ok threads\n");
    pid_t pid = fork();
    if (pid == 0) exit(cudaDeviceSynchronize() == cudaErrorInitializationError ? 0 : 1);
    (void)pid;
    cudaStream_t s;
    if (cudaStreamCreate(&s)) abort();
    int called = 0;
    cudaLaunchHostFunc(s, [](void *p) { *(int *)p = 1; }, &called);
    cudaStreamAddCallback(s, [](cudaStream_t, cudaError_t e, void *p) { *(int *)p += e == cudaSuccess; }, &called, 0);
    cudaStreamSynchronize(s);
    printf("ok host functions %d\n", called);
    std::thread([] {
        for (;;) {
            int *p = 0;
            if (cudaMalloc(&p, 64)) break;
            twice<<<1, 16>>>(p);
            cudaFree(p);
        }
        pause();
    }).detach();
    usleep(1000);
    exit(0);
}
