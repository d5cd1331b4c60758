// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Prints one line for each behaviour of the runtime API that a program can rely on.
// The same source linked against any two runtimes must print the same lines.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

__global__ void add(int *p, int v) { p[threadIdx.x + blockIdx.x * blockDim.x] += v; }
__global__ void wild(int *p) { *p = 1; }
__global__ void spin(long long n) {
    long long t = clock64();
    while (clock64() - t < n) {
    }
}
__device__ int device_symbol[4] = {1, 2, 3, 4};
__constant__ int constant_symbol[4] = {5, 6, 7, 8};
static void not_a_kernel() {}

#define E(call)                                                                                    \
    do {                                                                                           \
        cudaError_t e = (call);                                                                    \
        cudaError_t peek = cudaPeekAtLastError();                                                  \
        cudaError_t get = cudaGetLastError();                                                      \
        printf("%-60s = %d, peek %d, get %d, then %d\n", #call, e, peek, get,                      \
               cudaPeekAtLastError());                                                             \
    } while (0)

static void attributes(const char *what, const void *p) {
    cudaPointerAttributes a;
    memset(&a, 0x55, sizeof a);
    cudaError_t e = cudaPointerGetAttributes(&a, p);
    printf("attributes of %-12s = %d: type %d device %d dev %s host %s\n", what, e, a.type, a.device,
           a.devicePointer == p ? "same" : a.devicePointer ? "other" : "null",
           a.hostPointer == p ? "same" : a.hostPointer ? "other" : "null");
    cudaGetLastError();
}

static void pointers() {
    int stack = 0;
    char *device = 0, *pinned = 0, *heap = (char *)malloc(1 << 16), *registered = (char *)aligned_alloc(4096, 1 << 16);
    attributes("null", 0);
    attributes("stack", &stack);
    attributes("heap", heap);
    E(cudaMalloc(&device, 4096));
    E(cudaMallocHost(&pinned, 4096));
    E(cudaHostRegister(registered, 1 << 16, 0));
    E(cudaHostRegister(registered, 1 << 16, 0));
    attributes("device", device);
    attributes("device+100", device + 100);
    attributes("pinned", pinned);
    attributes("pinned+8", pinned + 8);
    attributes("registered", registered);
    unsigned flags = 77;
    void *alias = 0;
    E(cudaHostGetFlags(&flags, pinned));
    printf("flags %u\n", flags);
    E(cudaHostGetDevicePointer(&alias, pinned, 0));
    printf("alias %d\n", alias == pinned);
    E(cudaHostGetDevicePointer(&alias, heap, 0));
    E(cudaHostUnregister(registered));
    E(cudaHostUnregister(registered));
    E(cudaFree(device));
    attributes("freed", device);
    E(cudaFree(device));
    E(cudaFree(0));
    E(cudaFree(heap));
    E(cudaFree(pinned));
    E(cudaFreeHost(pinned));
    E(cudaFreeHost(heap));
    E(cudaFreeHost(0));
}

static void copies() {
    int host[16], back[16];
    int *d = 0, *d2 = 0;
    for (int i = 0; i < 16; i++) host[i] = i;
    E(cudaMalloc(&d, sizeof host));
    E(cudaMalloc(&d2, sizeof host));
    E(cudaMemcpy(d, host, sizeof host, cudaMemcpyHostToDevice));
    E(cudaMemcpy(d2, d, sizeof host, cudaMemcpyDeviceToDevice));
    E(cudaMemcpy(back, d2, sizeof host, cudaMemcpyDefault));
    printf("round trip %d\n", memcmp(host, back, sizeof host));
    E(cudaMemcpy(back, host, sizeof host, cudaMemcpyHostToHost));
    E(cudaMemcpy(d, host, sizeof host, (cudaMemcpyKind)7));
    E(cudaMemcpy(0, host, sizeof host, cudaMemcpyHostToDevice));
    E(cudaMemcpy(d, 0, sizeof host, cudaMemcpyHostToDevice));
    E(cudaMemcpy(0, 0, 0, cudaMemcpyHostToDevice));
    E(cudaMemcpy(host, d, sizeof host, cudaMemcpyHostToDevice));
    E(cudaMemcpyAsync(d, host, sizeof host, (cudaMemcpyKind)9, 0));
    E(cudaMemcpy2D(d, 4, host, 16, 16, 2, cudaMemcpyHostToDevice));
    E(cudaMemcpy2D(d, 16, host, 16, 8, 0, cudaMemcpyHostToDevice));
    E(cudaMemcpy2D(d, 16, host, 16, 8, 2, cudaMemcpyHostToDevice));
    E(cudaMemset(0, 0, 4));
    E(cudaMemset(d, 1, 0));
    E(cudaMemset2D(d, 4, 0, 8, 2));
    E(cudaMemset2D(d, 16, 3, 4, 2));
    size_t pitch = 0, size = 0;
    char *pitched = 0;
    E(cudaMallocPitch(&pitched, &pitch, 100, 10));
    printf("pitch %zu\n", pitch);
    E(cudaMallocPitch(&pitched, &pitch, 0, 10));
    cudaPitchedPtr three;
    E(cudaMalloc3D(&three, make_cudaExtent(100, 4, 3)));
    printf("3D pitch %zu x %zu y %zu\n", three.pitch, three.xsize, three.ysize);
    E(cudaMemset3D(three, 5, make_cudaExtent(100, 4, 3)));
    char volume[100 * 4 * 3];
    cudaMemcpy3DParms p = {};
    p.srcPtr = three;
    p.dstPtr = make_cudaPitchedPtr(volume, 100, 100, 4);
    p.extent = make_cudaExtent(100, 4, 3);
    p.kind = cudaMemcpyDeviceToHost;
    E(cudaMemcpy3D(&p));
    printf("volume %d %d\n", volume[0], volume[1199]);
    void *symbol = 0;
    E(cudaGetSymbolAddress(&symbol, device_symbol));
    E(cudaGetSymbolSize(&size, device_symbol));
    printf("symbol size %zu\n", size);
    E(cudaGetSymbolAddress(&symbol, &host[0]));
    E(cudaGetSymbolSize(&size, &host[0]));
    E(cudaMemcpyFromSymbol(back, constant_symbol, 16));
    printf("constant %d\n", back[3]);
    E(cudaMemcpyToSymbol(device_symbol, host, 8, 8));
    E(cudaMemcpyFromSymbol(back, device_symbol, 16));
    printf("symbol %d %d %d %d\n", back[0], back[1], back[2], back[3]);
    E(cudaMemcpyFromSymbol(back, device_symbol, 64));
    E(cudaMemcpyToSymbol(device_symbol, host, 4, 0, cudaMemcpyDeviceToHost));
    E(cudaMalloc(&d, (size_t)1 << 60));
    E(cudaMalloc(0, 4));
    int *zero = (int *)1;
    E(cudaMalloc(&zero, 0));
    printf("zero %d\n", zero == 0);
    E(cudaFreeAsync(d2, 0));
    E(cudaMallocAsync((void **)&d2, 1024, 0));
    E(cudaFreeAsync(d2, 0));
    E(cudaStreamSynchronize(0));
}

static void launches() {
    int *d = 0, v = 5;
    E(cudaMalloc(&d, 4096));
    E(cudaMemset(d, 0, 4096));
    add<<<2, 32>>>(d, v);
    E(cudaDeviceSynchronize());
    int h[64];
    E(cudaMemcpy(h, d, sizeof h, cudaMemcpyDeviceToHost));
    printf("sum %d %d\n", h[0], h[63]);
    void *args[] = {&d, &v};
    E(cudaLaunchKernel((const void *)add, dim3(1), dim3(2048), args, 0, 0));
    E(cudaLaunchKernel((const void *)add, dim3(0), dim3(32), args, 0, 0));
    E(cudaLaunchKernel((const void *)add, dim3(1), dim3(0), args, 0, 0));
    E(cudaLaunchKernel((const void *)add, dim3(1, 70000), dim3(32), args, 0, 0));
    E(cudaLaunchKernel((const void *)add, dim3(1), dim3(1, 1, 65), args, 0, 0));
    E(cudaLaunchKernel((const void *)add, dim3(1), dim3(32), args, 1 << 20, 0));
    E(cudaLaunchKernel((const void *)not_a_kernel, dim3(1), dim3(32), args, 0, 0));
    E(cudaLaunchKernel(0, dim3(1), dim3(32), args, 0, 0));
    E(cudaDeviceSynchronize());
    E(cudaLaunchCooperativeKernel((const void *)add, dim3(1 << 20), dim3(32), args, 0, 0));
    E(cudaLaunchCooperativeKernel((const void *)add, dim3(1), dim3(32), args, 0, 0));
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    E(cudaLaunchKernelExC(&config, (const void *)add, args));
    add<<<0, 32>>>(d, v);
    printf("triple chevrons, grid 0: %d\n", cudaGetLastError());
    cudaFuncAttributes a;
    E(cudaFuncGetAttributes(&a, (const void *)add));
    printf("threads %d shared %zu local %zu dynamic %d\n", a.maxThreadsPerBlock, a.sharedSizeBytes, a.localSizeBytes,
           a.maxDynamicSharedSizeBytes);
    E(cudaFuncGetAttributes(&a, (const void *)not_a_kernel));
    E(cudaFuncSetAttribute((const void *)add, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 30));
    E(cudaFuncSetAttribute((const void *)add, (cudaFuncAttribute)99, 1));
    const char *name = 0;
    E(cudaFuncGetName(&name, (const void *)add));
    printf("name %s\n", name ? name : "(null)");
    int blocks = 0;
    E(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 128, 0));
    printf("occupancy %d\n", blocks > 0);
    E(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, not_a_kernel, 128, 0));
    E(cudaFree(d));
}

static void devices() {
    int n = 7;
    E(cudaSetDevice(99));
    E(cudaSetDevice(-1));
    E(cudaGetDevice(&n));
    printf("device %d\n", n);
    E(cudaDeviceGetAttribute(&n, (cudaDeviceAttr)9999, 0));
    E(cudaDeviceGetAttribute(&n, cudaDevAttrWarpSize, 99));
    E(cudaGetDevice(0));
    E(cudaGetDeviceCount(0));
    cudaDeviceProp p;
    E(cudaGetDeviceProperties(&p, 99));
    E(cudaDeviceCanAccessPeer(&n, 0, 0));
    printf("peer %d\n", n);
    E(cudaDeviceEnablePeerAccess(0, 0));
    E(cudaDeviceDisablePeerAccess(0));
    char id[32];
    E(cudaDeviceGetPCIBusId(id, 4, 0));
    E(cudaDeviceGetPCIBusId(id, 32, 0));
    E(cudaDeviceGetByPCIBusId(&n, id));
    E(cudaDeviceGetByPCIBusId(&n, "nonsense"));
    unsigned flags = 77;
    E(cudaGetDeviceFlags(&flags));
    printf("device flags %u\n", flags);
    E(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync));
    E(cudaSetDeviceFlags(0xffff));
    E(cudaGetDeviceFlags(&flags));
    printf("device flags %u\n", flags);
    size_t limit = 0;
    E(cudaDeviceGetLimit(&limit, cudaLimitStackSize));
    printf("stack %zu\n", limit);
    E(cudaDeviceGetLimit(&limit, (cudaLimit)99));
    E(cudaChooseDevice(&n, &p));
    E(cudaSetValidDevices(&n, -1));
    int valid[] = {99};
    E(cudaSetValidDevices(valid, 1));
    valid[0] = 0;
    E(cudaSetValidDevices(valid, 1));
    E(cudaInitDevice(99, 0, 0));
    E(cudaInitDevice(0, 0, 0));
}

static void streams() {
    cudaStream_t s = 0;
    cudaEvent_t a, b, quiet;
    float ms = 0;
    unsigned flags = 9;
    int priority = 9;
    E(cudaStreamCreateWithFlags(&s, 99));
    E(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    E(cudaStreamGetFlags(s, &flags));
    printf("flags %u\n", flags);
    E(cudaStreamGetFlags(0, &flags));
    printf("flags %u\n", flags);
    E(cudaStreamGetPriority(s, &priority));
    printf("priority %d\n", priority);
    E(cudaEventCreate(&a));
    E(cudaEventCreate(&b));
    E(cudaEventCreateWithFlags(&quiet, cudaEventDisableTiming));
    E(cudaEventCreateWithFlags(&quiet, 99));
    E(cudaEventCreateWithFlags(&quiet, cudaEventInterprocess));
    E(cudaEventQuery(a));
    E(cudaEventSynchronize(a));
    E(cudaEventElapsedTime(&ms, a, b));
    E(cudaEventRecord(a, s));
    spin<<<1, 1, 0, s>>>(400000000);
    E(cudaEventRecord(b, s));
    E(cudaStreamQuery(s));
    E(cudaEventQuery(b));
    E(cudaEventElapsedTime(&ms, a, b));
    E(cudaStreamSynchronize(s));
    E(cudaStreamQuery(s));
    E(cudaEventElapsedTime(&ms, a, b));
    printf("time %d\n", ms > 1);
    E(cudaEventRecord(quiet, s));
    E(cudaEventSynchronize(quiet));
    E(cudaEventElapsedTime(&ms, a, quiet));
    E(cudaStreamWaitEvent(s, a, 0));
    E(cudaStreamWaitEvent(s, a, 99));
    E(cudaStreamDestroy(0));
    E(cudaStreamDestroy(s));
    E(cudaEventDestroy(0));
    E(cudaEventDestroy(a));
    E(cudaStreamSynchronize(cudaStreamPerThread));
    E(cudaStreamSynchronize(cudaStreamLegacy));
    cudaStreamCaptureStatus status;
    E(cudaStreamIsCapturing(0, &status));
    cudaGraph_t graph = (cudaGraph_t)1;
    E(cudaStreamEndCapture(0, &graph));
    E(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal));
}

static void threads() {
    cudaSetDevice(99);
    std::thread([] {
        int device = 9;
        cudaError_t first = cudaPeekAtLastError();
        cudaError_t second = cudaGetDevice(&device);
        printf("other thread: %d %d device %d\n", first, second, device);
    }).join();
    printf("this thread: %d\n", cudaGetLastError());
}

static void resets() {
    int *d = 0, h = 0;
    for (int i = 0; i < 3; i++) {
        E(cudaMalloc(&d, 128));
        E(cudaMemset(d, 0, 128));
        add<<<1, 32>>>(d, i + 1);
        E(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost));
        printf("reset %d: %d\n", i, h);
        cudaSetDevice(99);
        E(cudaDeviceReset());
    }
    E(cudaMemcpy(&h, d, 4, cudaMemcpyDeviceToHost));
    int back[4];
    E(cudaMemcpyFromSymbol(back, device_symbol, 16));
    printf("symbol after reset %d %d %d %d\n", back[0], back[1], back[2], back[3]);
}

static void faults() {
    int *d = 0;
    E(cudaMalloc(&d, 128));
    wild<<<1, 1>>>((int *)16);
    E(cudaDeviceSynchronize());
    E(cudaDeviceSynchronize());
    E(cudaMalloc(&d, 128));
    E(cudaFree(d));
    int n;
    E(cudaGetDevice(&n));
    E(cudaGetDeviceCount(&n));
    E(cudaSetDevice(0));
    E(cudaStreamQuery(0));
    E(cudaDeviceReset());
    E(cudaMalloc(&d, 128));
}

int main() {
    setvbuf(stdout, 0, _IONBF, 0);
    E(cudaPeekAtLastError());
    printf("%s | %s\n", cudaGetErrorName(cudaErrorInvalidValue), cudaGetErrorName((cudaError_t)12345));
    pid_t pid = fork();
    if (pid == 0) {
        int n = 0;
        E(cudaGetDeviceCount(&n));
        _exit(0);
    }
    waitpid(pid, 0, 0);
    pointers();
    copies();
    launches();
    devices();
    streams();
    threads();
    resets();
    pid = fork();
    if (pid == 0) {
        int *d = 0, n = 0;
        E(cudaGetDeviceCount(&n));
        E(cudaGetDevice(&n));
        E(cudaMalloc(&d, 4));
        E(cudaSetDevice(0));
        _exit(0);
    }
    waitpid(pid, 0, 0);
    faults();
    return 0;
}
