// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Graphs, made by capture and by hand: prints what any two runtimes must agree on.
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>
__global__ void add(int *p, int v) { p[threadIdx.x] += v; }
__device__ int symbol[4];
#define E(call) printf("%-50.50s %d\n", #call, (int)(call))
int main() {
    int h[32] = {1}, *d, v = 5;
    cudaStream_t s;
    cudaGraph_t g, clone;
    cudaGraphExec_t x;
    E(cudaStreamCreate(&s));
    E(cudaMalloc(&d, sizeof h));
    E(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
    E(cudaMemcpyAsync(d, h, sizeof h, cudaMemcpyHostToDevice, s));
    add<<<1, 32, 0, s>>>(d, v);
    E(cudaMemcpyAsync(h, d, sizeof h, cudaMemcpyDeviceToHost, s));
    cudaStreamCaptureStatus status;
    E(cudaStreamIsCapturing(s, &status));
    E(cudaStreamEndCapture(s, &g));
    size_t n = 0;
    cudaGraphNode_t nodes[8];
    E(cudaGraphGetNodes(g, 0, &n));
    E(cudaGraphGetNodes(g, nodes, &n));
    for (size_t i = 0; i < n; i++) {
        cudaGraphNodeType t;
        E(cudaGraphNodeGetType(nodes[i], &t));
        printf("type %d\n", t);
        if (t == cudaGraphNodeTypeMemcpy) {
            cudaMemcpy3DParms p;
            memset(&p, 0, sizeof p);
            E(cudaGraphMemcpyNodeGetParams(nodes[i], &p));
            printf("%d %zu %zu %zu\n", p.kind, p.extent.width, p.extent.height, p.extent.depth);
        }
        if (t == cudaGraphNodeTypeKernel) {
            cudaKernelNodeParams p;
            E(cudaGraphKernelNodeGetParams(nodes[i], &p));
            printf("own function %d block %u value %d\n", p.func == (void *)add, p.blockDim.x, *(int *)p.kernelParams[1]);
            int seven = 7;
            void *args[] = {&d, &seven};
            p.kernelParams = args;
            E(cudaGraphKernelNodeSetParams(nodes[i], &p));
        }
    }
    E(cudaGraphInstantiate(&x, g, 0));
    for (int i = 0; i < 3; i++) E(cudaGraphLaunch(x, s));
    E(cudaStreamSynchronize(s));
    printf("%d\n", h[0]);
    E(cudaGraphClone(&clone, g));
    E(cudaGraphDestroy(clone));
    E(cudaGraphExecDestroy(x));
    E(cudaGraphDestroy(g));
    E(cudaGraphCreate(&g, 0));
    cudaGraphNode_t a, b, c, e;
    cudaMemsetParams ms = {};
    ms.dst = d;
    ms.value = 3;
    ms.elementSize = 4;
    ms.width = 32;
    ms.height = 1;
    E(cudaGraphAddMemsetNode(&a, g, 0, 0, &ms));
    void *args[] = {&d, &v};
    cudaKernelNodeParams k = {};
    k.func = (void *)add;
    k.gridDim = dim3(1);
    k.blockDim = dim3(32);
    k.kernelParams = args;
    E(cudaGraphAddKernelNode(&b, g, &a, 1, &k));
    E(cudaGraphAddMemcpyNode1D(&c, g, &b, 1, h, d, sizeof h, cudaMemcpyDeviceToHost));
    E(cudaGraphAddMemcpyNodeToSymbol(&e, g, &b, 1, symbol, d, 16, 0, cudaMemcpyDeviceToDevice));
    E(cudaGraphAddMemcpyNodeToSymbol(&e, g, &b, 1, symbol, d, 17, 0, cudaMemcpyDeviceToDevice));
    E(cudaGraphInstantiate(&x, g, 0));
    E(cudaGraphLaunch(x, 0));
    E(cudaDeviceSynchronize());
    int back[4] = {};
    E(cudaMemcpyFromSymbol(back, symbol, 16));
    printf("%d %d\n", h[31], back[3]);
    cudaArray_t array;
    cudaChannelFormatDesc f = cudaCreateChannelDesc<float2>();
    E(cudaMallocArray(&array, &f, 4, 4));
    E(cudaMemcpy2DToArray(array, 8, 1, h, 16, 16, 2, cudaMemcpyHostToDevice));
    memset(h, 0, sizeof h);
    E(cudaMemcpy2DFromArray(h, 16, array, 8, 1, 16, 2, cudaMemcpyDeviceToHost));
    printf("%d %d\n", h[0], h[7]);
    cudaExtent ext;
    unsigned flags;
    E(cudaArrayGetInfo(&f, &ext, &flags, array));
    printf("%d %d %d %zu %zu %zu %u\n", f.x, f.y, f.f, ext.width, ext.height, ext.depth, flags);
    E(cudaFreeArray(array));
    f.x = 7;
    E(cudaMallocArray(&array, &f, 4, 4));
    int *m = 0;
    E(cudaMallocManaged(&m, 64));
    cudaPointerAttributes pa;
    E(cudaPointerGetAttributes(&pa, m));
    printf("managed type %d device %d\n", pa.type, pa.device);
    void *fn = 0;
    cudaDriverEntryPointQueryResult r;
    E(cudaGetDriverEntryPointByVersion("cuMemAlloc", &fn, 12000, 0, &r));
    printf("%d %d\n", fn != 0, r);
    E(cudaGetDriverEntryPointByVersion("cuNothing", &fn, 12000, 0, &r));
    printf("%d %d\n", fn != 0, r);
    cudaLaunchAttribute at[1];
    at[0].id = cudaLaunchAttributeClusterDimension;
    at[0].val.clusterDim.x = 2;
    at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
    cudaLaunchConfig_t cfg = {};
    cfg.gridDim = dim3(2);
    cfg.blockDim = dim3(32);
    cfg.attrs = at;
    cfg.numAttrs = 1;
    E(cudaLaunchKernelExC(&cfg, (void *)add, args));
    cfg.gridDim = dim3(3);
    E(cudaLaunchKernelExC(&cfg, (void *)add, args));
    int clusters = 0;
    cfg.gridDim = dim3(4);
    E(cudaOccupancyMaxActiveClusters(&clusters, (void *)add, &cfg));
    E(cudaOccupancyMaxPotentialClusterSize(&clusters, (void *)add, &cfg));
    printf("%d\n", clusters);
    E(cudaDeviceSynchronize());
}
