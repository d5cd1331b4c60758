// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// out[i] = a[i] + b[i]
extern "C" __global__ void vector_addition(const float* a, const float* b, float* out, unsigned count) {
  const unsigned index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) out[index] = a[index] + b[index];
}
