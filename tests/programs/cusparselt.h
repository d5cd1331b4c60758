/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// cuSPARSELt's functions that the test programs call, as its documentation declares them: no header of NVIDIA's is
// needed.
#pragma once

#include <cuda_runtime.h>

#include "runtime.h"

extern "C" {
// An object of any kind, in the program's memory.
struct alignas(16) cusparseLtObject_t {
  unsigned char data[512];
};

int cusparseLtInit(cusparseLtObject_t* handle);
int cusparseLtDestroy(const cusparseLtObject_t* handle);
int cusparseLtDenseDescriptorInit(const cusparseLtObject_t* handle, cusparseLtObject_t* matrix, int64_t rows,
                                  int64_t columns, int64_t ld, uint32_t alignment, int type, int order);
int cusparseLtStructuredDescriptorInit(const cusparseLtObject_t* handle, cusparseLtObject_t* matrix, int64_t rows,
                                       int64_t columns, int64_t ld, uint32_t alignment, int type, int order,
                                       int sparsity);
int cusparseLtMatDescriptorDestroy(const cusparseLtObject_t* matrix);
int cusparseLtMatmulDescriptorInit(const cusparseLtObject_t* handle, cusparseLtObject_t* product, int op_a, int op_b,
                                   const cusparseLtObject_t* a, const cusparseLtObject_t* b,
                                   const cusparseLtObject_t* c, const cusparseLtObject_t* d, int compute);
int cusparseLtMatmulDescSetAttribute(const cusparseLtObject_t* handle, cusparseLtObject_t* product, int attribute,
                                     const void* value, size_t bytes);
int cusparseLtMatmulAlgSelectionInit(const cusparseLtObject_t* handle, cusparseLtObject_t* selection,
                                     const cusparseLtObject_t* product, int algorithm);
int cusparseLtMatmulPlanInit(const cusparseLtObject_t* handle, cusparseLtObject_t* plan,
                             const cusparseLtObject_t* product, const cusparseLtObject_t* selection);
int cusparseLtMatmulPlanDestroy(const cusparseLtObject_t* plan);
int cusparseLtMatmulGetWorkspace(const cusparseLtObject_t* handle, const cusparseLtObject_t* plan, size_t* bytes);
int cusparseLtMatmul(const cusparseLtObject_t* handle, const cusparseLtObject_t* plan, const void* alpha,
                     const void* a, const void* b, const void* beta, const void* c, void* d, void* workspace,
                     cudaStream_t* streams, int count);
int cusparseLtMatmulSearch(const cusparseLtObject_t* handle, cusparseLtObject_t* plan, const void* alpha,
                           const void* a, const void* b, const void* beta, const void* c, void* d, void* workspace,
                           cudaStream_t* streams, int count);
int cusparseLtSpMMAPrune(const cusparseLtObject_t* handle, const cusparseLtObject_t* product, const void* in,
                         void* out, int algorithm, cudaStream_t stream);
int cusparseLtSpMMAPruneCheck(const cusparseLtObject_t* handle, const cusparseLtObject_t* product, const void* in,
                              int* valid, cudaStream_t stream);
int cusparseLtSpMMACompressedSize(const cusparseLtObject_t* handle, const cusparseLtObject_t* plan, size_t* bytes,
                                  size_t* buffer_bytes);
int cusparseLtSpMMACompress(const cusparseLtObject_t* handle, const cusparseLtObject_t* plan, const void* in,
                            void* out, void* buffer, cudaStream_t stream);
}

enum { kPlain = 0, kTransposed = 1 };            // cusparseOperation_t
enum { kColumns = 1, kRows = 2 };                // cusparseOrder_t
enum { kHalf = 2, kInteger8 = 3, kInteger = 10 };  // cudaDataType
enum { kComputeInteger = 0, kComputeFloat = 2 };  // cusparseComputeType
enum { kRelu = 0, kBias = 8 };                   // cusparseLtMatmulDescAttribute_t
enum { kHalfOfIt = 0, kStrips = 1 };             // cusparseLtSparsity_t, cusparseLtPruneAlg_t

// Ends the program with the call and its status unless cuSPARSELt returns success.
#define SPARSE(call)                                                                             \
  do {                                                                                           \
    const int sparse_status = (call);                                                            \
    if (sparse_status != 0) {                                                                    \
      fprintf(stderr, "%s:%d: %s failed: status %d\n", __FILE__, __LINE__, #call, sparse_status); \
      exit(kCudaError);                                                                          \
    }                                                                                            \
  } while (0)
