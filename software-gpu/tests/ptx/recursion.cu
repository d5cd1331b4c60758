// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Functions that call themselves, and each other. Compiled as kernels.cu.

__device__ __noinline__ int fibonacci(int n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

// Each thread has its own depth, so that lanes return at different times.
extern "C" __global__ void fibonacci_of_each(int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = fibonacci(i % 16);
}

__device__ __noinline__ int ackermann(int m, int n)
{
    if (m == 0)
        return n + 1;
    return ackermann(m - 1, n == 0 ? 1 : ackermann(m, n - 1));
}

extern "C" __global__ void ackermann_of_each(int *out)
{
    int i = threadIdx.x;
    out[i] = ackermann(i % 3, i / 8);
}

// A list through the variables of all calls that have not returned.
struct link {
    const link *outer;
    unsigned values[3];
};

__device__ __noinline__ unsigned walk(const link *from)
{
    unsigned sum = 0;
    for (; from; from = from->outer)
        for (int k = 0; k < 3; k++)
            sum = sum * 3 + from->values[k];
    return sum;
}

__device__ __noinline__ unsigned right(const link *outer, unsigned depth);

__device__ __noinline__ unsigned left(const link *outer, unsigned depth)
{
    link own = {outer, {depth, depth + 1, depth * 2}};
    unsigned below = depth == 0 ? walk(&own) : right(&own, depth - 1);
    // The variables are as they were, whatever the calls below had.
    return below + own.values[depth % 3];
}

__device__ __noinline__ unsigned right(const link *outer, unsigned depth)
{
    link own = {outer, {100 - depth, 7, depth}};
    unsigned below = depth == 0 ? walk(&own) : left(&own, depth - 1);
    return below * 2 - own.values[(depth + 1) % 3];
}

extern "C" __global__ void variables_of_all_calls(unsigned *out)
{
    int i = threadIdx.x;
    out[i] = left(nullptr, i % 12);
}

__device__ __noinline__ int find(int *out, int depth)
{
    if (depth == 0) {
        out[threadIdx.x] = 1000 + threadIdx.x;
        asm volatile("exit;");
    }
    return find(out, depth - 1) + find(out, depth - 1);
}

// Odd threads end inside of the calls.
extern "C" __global__ void some_end_below(int *out)
{
    int i = threadIdx.x;
    out[i] = i % 2 ? find(out, i % 7) : fibonacci(i % 10);
}

__device__ __noinline__ int without_end(int n)
{
    return without_end(n + 1) * 3 + n;
}

extern "C" __global__ void never_returns(int *out)
{
    out[threadIdx.x] = without_end(0);
}

__device__ __noinline__ int add(int, int a) { return a + 1; }
__device__ __noinline__ int again(int n, int a);
__device__ int (*const functions[2])(int, int) = {add, again};

__device__ __noinline__ int again(int n, int a)
{
    return functions[n > 0](n - 1, a) * 2 + n;
}

extern "C" __global__ void by_addresses(int *out)
{
    int i = threadIdx.x;
    out[i] = again(i % 9, i);
}
