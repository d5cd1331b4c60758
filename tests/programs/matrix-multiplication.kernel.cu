// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// c = a * b for row-major matrices: a is m by k, b is k by n. One block computes one tile of c, from tiles of a and b
// in shared memory. Any sizes are possible: elements outside a matrix count as zero.
constexpr unsigned kTile = 16;

extern "C" __global__ void matrix_multiplication(const float* a, const float* b, float* c, unsigned m, unsigned k,
                                                 unsigned n) {
  __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
  const unsigned x = threadIdx.x, y = threadIdx.y;
  const unsigned row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
  float sum = 0;
  for (unsigned start = 0; start < k; start += kTile) {
    tile_a[y][x] = row < m && start + x < k ? a[static_cast<size_t>(row) * k + start + x] : 0.0f;
    tile_b[y][x] = start + y < k && column < n ? b[static_cast<size_t>(start + y) * n + column] : 0.0f;
    __syncthreads();
#pragma unroll
    for (unsigned i = 0; i < kTile; ++i) sum = __fmaf_rn(tile_a[y][i], tile_b[i][x], sum);
    __syncthreads();
  }
  if (row < m && column < n) c[static_cast<size_t>(row) * n + column] = sum;
}
