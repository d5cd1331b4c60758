// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Nodes by the generic functions, whose parameters contain the node's type: prints everything that must be the same for
// any two runtimes.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
__global__ void add(int *p, int v) { p[threadIdx.x] += v; }
#define E(call) printf("%-50.50s %d\n", #call, (int)(call))
#if CUDART_VERSION >= 13000
#define ADD(node, dependencies, count, params) cudaGraphAddNode(node, g, dependencies, nullptr, count, params)
#else
#define ADD(node, dependencies, count, params) cudaGraphAddNode(node, g, dependencies, count, params)
#endif
int main() {
    int h[32] = {}, *d, v = 5, w = 7;
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t x;
    E(cudaStreamCreate(&s));
    E(cudaMalloc(&d, sizeof h));
    E(cudaGraphCreate(&g, 0));
    cudaGraphNode_t fill, kernel, copy;
    cudaGraphNodeParams p = {cudaGraphNodeTypeMemset};
    p.memset.dst = d;
    p.memset.value = 3;
    p.memset.elementSize = 4;
    p.memset.width = 32;
    p.memset.height = 1;
    E(ADD(&fill, nullptr, 0, &p));
    void *args[] = {&d, &v}, *other[] = {&d, &w};
    cudaGraphNodeParams k = {cudaGraphNodeTypeKernel};
    k.kernel.func = (void *)add;
    k.kernel.gridDim = dim3(1);
    k.kernel.blockDim = dim3(32);
    k.kernel.kernelParams = args;
    E(ADD(&kernel, &fill, 1, &k));
    cudaGraphNodeParams c = {cudaGraphNodeTypeMemcpy};
    c.memcpy.copyParams.srcPtr = make_cudaPitchedPtr(d, sizeof h, sizeof h, 1);
    c.memcpy.copyParams.dstPtr = make_cudaPitchedPtr(h, sizeof h, sizeof h, 1);
    c.memcpy.copyParams.extent = make_cudaExtent(sizeof h, 1, 1);
    c.memcpy.copyParams.kind = cudaMemcpyDeviceToHost;
    E(ADD(&copy, &kernel, 1, &c));
    E(cudaGraphInstantiate(&x, g, 0));
    E(cudaGraphLaunch(x, s));
    E(cudaStreamSynchronize(s));
    printf("%d %d\n", h[0], h[31]);
    k.kernel.kernelParams = other;
    E(cudaGraphExecNodeSetParams(x, kernel, &k));
    E(cudaGraphLaunch(x, s));
    E(cudaStreamSynchronize(s));
    printf("%d\n", h[31]);
    p.memset.value = 30;
    E(cudaGraphNodeSetParams(fill, &p));
    E(cudaGraphExecDestroy(x));
    E(cudaGraphInstantiate(&x, g, 0));
    E(cudaGraphLaunch(x, s));
    E(cudaStreamSynchronize(s));
    printf("%d\n", h[31]);
    E(ADD(&copy, nullptr, 0, nullptr));
    c.memcpy.flags = 1;
    E(ADD(&copy, nullptr, 0, &c));
}
