// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The kernels of the driver-API programs. Plain C names, found by cuModuleGetFunction.
#include <cooperative_groups.h>

// Spins until the flag is set or the clocks have run out, which it reports.
extern "C" __global__ void gate(volatile unsigned *flag, volatile unsigned *ran_out, long long clocks) {
    long long start = clock64();
    while (*flag == 0) {
        if (clock64() - start > clocks) {
            *ran_out = 1;
            break;
        }
    }
    __threadfence_system();
}

extern "C" __global__ void fill(unsigned *words, unsigned value, unsigned count) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[i] = value;
}

// word = word * factor + term: no two of these steps commute.
extern "C" __global__ void step(unsigned *word, unsigned factor, unsigned term) { *word = *word * factor + term; }

// Adds to every stride-th word.
extern "C" __global__ void add_words(unsigned *words, unsigned value, unsigned count, unsigned stride) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        words[(size_t)i * stride] += value;
}

// Nodes that lie anywhere, each pointing at the next.
struct Node {
    Node *next;
    unsigned value;
};

extern "C" __global__ void walk_list(Node *node, unsigned value, unsigned *sum) {
    unsigned all = 0;
    for (; node; node = node->next) {
        all += node->value;
        node->value += value;
    }
    *sum = all;
}

extern "C" __global__ void illegal_store(unsigned *words) { words[threadIdx.x] = 1; }

extern "C" __global__ void trap() { asm volatile("trap;"); }

struct Box {
    unsigned *target;
    unsigned value;
    Box *next;
};
// Follows pointers that are only in device memory.
extern "C" __global__ void store_through(Box *box) {
    for (; box; box = box->next)
        *box->target = box->value;
}

template <unsigned N> struct Bytes {
    unsigned char at[N];
};
template <unsigned N> __device__ unsigned checksum(const Bytes<N> &bytes) {
    unsigned sum = 0;
    for (unsigned i = 0; i < N; i++)
        sum = sum * 31 + bytes.at[i];
    return sum;
}
#define PARAMS(N)                                                                                                      \
    extern "C" __global__ void params_##N(unsigned *out, const __grid_constant__ Bytes<N> bytes) {                      \
        *out = checksum<N>(bytes);                                                                                     \
    }
PARAMS(1)
PARAMS(7)
PARAMS(248)
PARAMS(4088)
PARAMS(4089)
PARAMS(32756)

struct Wide {
    unsigned first;
    unsigned char filling[4072];
    unsigned last;
};
extern "C" __global__ void params_wide(const __grid_constant__ Wide wide, unsigned *out) { *out = wide.first + wide.last; }

extern "C" __global__ void mixed(char a, double b, short c, float d, char e, long long f, float4 g, unsigned char h, double *out) {
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
    out[4] = e;
    out[5] = (double)f;
    out[6] = g.x + 10 * g.y + 100 * g.z + 1000 * g.w;
    out[7] = h;
}

__device__ unsigned counter = 7;
__device__ unsigned table[256];
__constant__ unsigned constants[16] = {3, 1, 4, 1, 5, 9, 2, 6};
extern "C" __global__ void no_params() { counter = counter + 1; }
extern "C" __global__ void read_globals(unsigned *out) {
    unsigned i = threadIdx.x;
    out[i] = table[i] + constants[i % 16] + counter;
}

#define FIVE(A) unsigned A##0, unsigned A##1, unsigned A##2, unsigned A##3, unsigned A##4
#define SUM(A) (A##0 + 2 * A##1 + 3 * A##2 + 4 * A##3 + 5 * A##4)
extern "C" __global__ void seventy_params(unsigned *out, FIVE(a), FIVE(b), FIVE(c), FIVE(d), FIVE(e), FIVE(f), FIVE(g), FIVE(h),
                                          FIVE(i), FIVE(j), FIVE(k), FIVE(l), FIVE(m), FIVE(n)) {
    *out = SUM(a) + SUM(b) * 2 + SUM(c) * 3 + SUM(d) * 4 + SUM(e) * 5 + SUM(f) * 6 + SUM(g) * 7 + SUM(h) * 8 + SUM(i) * 9 +
           SUM(j) * 10 + SUM(k) * 11 + SUM(l) * 12 + SUM(m) * 13 + SUM(n) * 14;
}

extern "C" __global__ void dynamic_shared(unsigned *out, unsigned words) {
    extern __shared__ unsigned shared[];
    for (unsigned i = threadIdx.x; i < words; i += blockDim.x)
        shared[i] = i ^ 0x5a;
    __syncthreads();
    if (threadIdx.x == 0)
        *out = shared[0] + shared[words / 2] + shared[words - 1];
}

// Each block writes its cell; after the grid's barrier each block reads its neighbour's.
extern "C" __global__ void neighbours(unsigned *cells, unsigned *out) {
    if (threadIdx.x == 0)
        cells[blockIdx.x] = blockIdx.x * 3 + 1;
    cooperative_groups::this_grid().sync();
    if (threadIdx.x == 0)
        out[blockIdx.x] = cells[(blockIdx.x + 1) % gridDim.x];
}

extern "C" __global__ void cluster_shape(unsigned *out) {
#if __CUDA_ARCH__ >= 900
    unsigned size, rank;
    asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(size));
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0)
        out[blockIdx.x] = size * 100 + rank;
#else
    if (threadIdx.x == 0)
        out[blockIdx.x] = 0;
#endif
}

// Textures and surfaces. `at` has a position for each result.
#define SAMPLE(NAME, TYPE, POSITION, CALL)                                                                             \
    extern "C" __global__ void NAME(unsigned long long texture, const POSITION *at, TYPE *out, unsigned count) {       \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                                            \
        if (i < count) {                                                                                               \
            POSITION p = at[i];                                                                                        \
            (void)p;                                                                                                   \
            out[i] = CALL;                                                                                             \
        }                                                                                                              \
    }
SAMPLE(texture_1d, float4, float4, tex1D<float4>(texture, p.x))
SAMPLE(texture_1d_words, uint4, float4, tex1D<uint4>(texture, p.x))
SAMPLE(texture_fetch, float4, float4, tex1Dfetch<float4>(texture, (int)p.x))
SAMPLE(texture_2d, float4, float4, tex2D<float4>(texture, p.x, p.y))
SAMPLE(texture_2d_words, uint4, float4, tex2D<uint4>(texture, p.x, p.y))
SAMPLE(texture_3d, float4, float4, tex3D<float4>(texture, p.x, p.y, p.z))
SAMPLE(texture_1d_layered, float4, float4, tex1DLayered<float4>(texture, p.x, (int)p.w))
SAMPLE(texture_2d_layered, float4, float4, tex2DLayered<float4>(texture, p.x, p.y, (int)p.w))
SAMPLE(texture_cube, float4, float4, texCubemap<float4>(texture, p.x, p.y, p.z))
SAMPLE(texture_cube_layered, float4, float4, texCubemapLayered<float4>(texture, p.x, p.y, p.z, (int)p.w))
SAMPLE(texture_level, float4, float4, tex2DLod<float4>(texture, p.x, p.y, p.z))
SAMPLE(texture_gradient, float4, float4,
       tex2DGrad<float4>(texture, p.x, p.y, make_float2(p.z, 0), make_float2(0, p.w)))
SAMPLE(texture_gather, float4, float4, tex2Dgather<float4>(texture, p.x, p.y, 1))

// Adds to each word of a surface.
extern "C" __global__ void surface_add_2d(unsigned long long surface, unsigned width, unsigned height, unsigned term) {
    for (unsigned i = threadIdx.x; i < width * height; i += blockDim.x) {
        int x = i % width * 4, y = i / width;
        unsigned word;
        surf2Dread(&word, surface, x, y);
        surf2Dwrite(word + term, surface, x, y);
    }
}

extern "C" __global__ void surface_fill_3d(unsigned long long surface, int layered, unsigned width, unsigned height, unsigned depth) {
    for (unsigned i = threadIdx.x; i < width * height * depth; i += blockDim.x) {
        unsigned x = i % width, y = i / width % height, z = i / width / height;
        if (layered)
            surf2DLayeredwrite(i + 1, surface, x * 4, y, z);
        else
            surf3Dwrite(i + 1, surface, x * 4, y, z);
    }
}

// Around the edge: what is outside reads as zero, and a write there does nothing.
extern "C" __global__ void surface_edges(unsigned long long surface, int width, int height, unsigned *out) {
    surf2Dwrite(0xdeadu, surface, -4, 0, cudaBoundaryModeZero);
    surf2Dwrite(0xdeadu, surface, width * 4, 0, cudaBoundaryModeZero);
    surf2Dwrite(0xdeadu, surface, 0, height, cudaBoundaryModeZero);
    surf2Dread(&out[0], surface, -4, 0, cudaBoundaryModeZero);
    surf2Dread(&out[1], surface, 0, height, cudaBoundaryModeZero);
    surf2Dread(&out[2], surface, -4, 1, cudaBoundaryModeClamp);
    surf2Dread(&out[3], surface, width * 4, height + 5, cudaBoundaryModeClamp);
    uchar4 bytes;
    surf2Dread(&bytes, surface, 4, 0);
    out[4] = bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
}
