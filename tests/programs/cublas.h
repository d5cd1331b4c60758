/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// cuBLAS's functions that the test programs call, as its documentation declares them: no header of NVIDIA's is needed.
#pragma once

#include <cuda_runtime.h>

#include "runtime.h"

extern "C" {
typedef struct cublasContext* cublasHandle_t;
int cublasCreate_v2(cublasHandle_t* handle);
int cublasDestroy_v2(cublasHandle_t handle);
int cublasGetVersion_v2(cublasHandle_t handle, int* version);
int cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream);
int cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace, size_t bytes);
int cublasSetPointerMode_v2(cublasHandle_t handle, int mode);
int cublasSdot_v2(cublasHandle_t handle, int n, const float* x, int incx, const float* y, int incy, float* result);
int cublasDnrm2_v2(cublasHandle_t handle, int n, const double* x, int incx, double* result);
int cublasDdot_v2(cublasHandle_t handle, int n, const double* x, int incx, const double* y, int incy, double* result);
int cublasDscal_v2(cublasHandle_t handle, int n, const double* alpha, double* x, int incx);
int cublasDgemv_v2(cublasHandle_t handle, int trans, int m, int n, const double* alpha, const double* a, int lda,
                   const double* x, int incx, const double* beta, double* y, int incy);
int cublasSgemm_v2(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const float* alpha,
                   const float* a, int lda, const float* b, int ldb, const float* beta, float* c, int ldc);
int cublasDgemmStridedBatched(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const double* alpha,
                              const double* a, int lda, long long stride_a, const double* b, int ldb,
                              long long stride_b, const double* beta, double* c, int ldc, long long stride_c,
                              int count);
int cublasGemmEx(cublasHandle_t handle, int transa, int transb, int m, int n, int k, const void* alpha, const void* a,
                 int type_a, int lda, const void* b, int type_b, int ldb, const void* beta, void* c, int type_c,
                 int ldc, int compute, int algorithm);
}

enum { kPlain = 0, kTransposed = 1 };          // cublasOperation_t
enum { kScalarsOnHost = 0, kScalarsOnDevice = 1 };  // cublasPointerMode_t
enum { kFloat = 0, kHalf = 2 };                // cudaDataType
enum { kComputeFloat = 68, kAnyAlgorithm = -1 };

// Ends the program with the call and its status unless cuBLAS returns success.
#define BLAS(call)                                                                           \
  do {                                                                                       \
    const int blas_status = (call);                                                          \
    if (blas_status != 0) {                                                                  \
      fprintf(stderr, "%s:%d: %s failed: status %d\n", __FILE__, __LINE__, #call, blas_status); \
      exit(kCudaError);                                                                      \
    }                                                                                        \
  } while (0)
