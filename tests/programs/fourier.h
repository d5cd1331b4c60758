/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// cuFFT's and cuRAND's functions that the test programs call, as their documentation declares them: no header of
// NVIDIA's is needed.
#pragma once

#include <cuda_runtime.h>

#include "runtime.h"

extern "C" {
int cufftPlan2d(int* plan, int nx, int ny, int type);
int cufftDestroy(int plan);
int cufftSetStream(int plan, cudaStream_t stream);
int cufftExecR2C(int plan, float* from, float2* to);
int cufftExecC2R(int plan, float2* from, float* to);

typedef struct curandGenerator_st* curandGenerator_t;
int curandCreateGenerator(curandGenerator_t* generator, int type);
int curandDestroyGenerator(curandGenerator_t generator);
int curandSetStream(curandGenerator_t generator, cudaStream_t stream);
int curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator, unsigned long long seed);
int curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset);
int curandGenerateUniform(curandGenerator_t generator, float* to, size_t count);
}

enum { kRealToComplex = 0x2a, kComplexToReal = 0x2c };  // cufftType
enum { kPhilox = 161 };                                 // curandRngType

// Ends the program with the call and its status unless the library returns success.
#define LIBRARY(call)                                                                           \
  do {                                                                                          \
    const int library_status = (call);                                                          \
    if (library_status != 0) {                                                                  \
      fprintf(stderr, "%s:%d: %s failed: status %d\n", __FILE__, __LINE__, #call, library_status); \
      exit(kCudaError);                                                                         \
    }                                                                                           \
  } while (0)
