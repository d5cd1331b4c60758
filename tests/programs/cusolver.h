/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// cuSOLVER's functions that the test programs call, as its documentation declares them: no header of NVIDIA's is
// needed.
#pragma once

#include <cuda_runtime.h>

#include "runtime.h"

extern "C" {
typedef struct cusolverDnContext* cusolverDnHandle_t;
int cusolverDnCreate(cusolverDnHandle_t* handle);
int cusolverDnDestroy(cusolverDnHandle_t handle);
int cusolverDnDgeqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, double* a, int lda, int* lwork);
int cusolverDnDgeqrf(cusolverDnHandle_t handle, int m, int n, double* a, int lda, double* tau, double* work, int lwork,
                     int* info);
int cusolverDnDormqr_bufferSize(cusolverDnHandle_t handle, int side, int trans, int m, int n, int k, const double* a,
                                int lda, const double* tau, const double* c, int ldc, int* lwork);
int cusolverDnDormqr(cusolverDnHandle_t handle, int side, int trans, int m, int n, int k, const double* a, int lda,
                     const double* tau, double* c, int ldc, double* work, int lwork, int* info);
}

enum { kPlain = 0, kTransposed = 1 };  // cublasOperation_t
enum { kLeft = 0, kRight = 1 };        // cublasSideMode_t

// Ends the program with the call and its status unless cuSOLVER returns success.
#define SOLVER(call)                                                                             \
  do {                                                                                           \
    const int solver_status = (call);                                                            \
    if (solver_status != 0) {                                                                    \
      fprintf(stderr, "%s:%d: %s failed: status %d\n", __FILE__, __LINE__, #call, solver_status); \
      exit(kCudaError);                                                                          \
    }                                                                                            \
  } while (0)
