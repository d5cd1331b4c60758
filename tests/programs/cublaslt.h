/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// cuBLASLt's functions that the test programs call, as its documentation declares them: no header of NVIDIA's is
// needed.
#pragma once

#include "cublas.h"

extern "C" {
typedef struct cublasLtContext* cublasLtHandle_t;
typedef struct cublasLtDescriptor* cublasLtDescriptor_t;  // of every kind

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  int state;
  float wavesCount;
  int reserved[4];
};

int cublasLtCreate(cublasLtHandle_t* handle);
int cublasLtDestroy(cublasLtHandle_t handle);
int cublasLtMatmulDescCreate(cublasLtDescriptor_t* operation, int compute, int scale);
int cublasLtMatmulDescDestroy(cublasLtDescriptor_t operation);
int cublasLtMatmulDescSetAttribute(cublasLtDescriptor_t operation, int attribute, const void* value, size_t bytes);
int cublasLtMatrixLayoutCreate(cublasLtDescriptor_t* layout, int type, uint64_t rows, uint64_t columns, int64_t ld);
int cublasLtMatrixLayoutDestroy(cublasLtDescriptor_t layout);
int cublasLtMatmulPreferenceCreate(cublasLtDescriptor_t* preference);
int cublasLtMatmulPreferenceDestroy(cublasLtDescriptor_t preference);
int cublasLtMatmulPreferenceSetAttribute(cublasLtDescriptor_t preference, int attribute, const void* value,
                                         size_t bytes);
int cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtDescriptor_t operation, cublasLtDescriptor_t a,
                                   cublasLtDescriptor_t b, cublasLtDescriptor_t c, cublasLtDescriptor_t d,
                                   cublasLtDescriptor_t preference, int wanted,
                                   cublasLtMatmulHeuristicResult_t* results, int* count);
int cublasLtMatmul(cublasLtHandle_t handle, cublasLtDescriptor_t operation, const void* alpha, const void* a,
                   cublasLtDescriptor_t a_layout, const void* b, cublasLtDescriptor_t b_layout, const void* beta,
                   const void* c, cublasLtDescriptor_t c_layout, void* d, cublasLtDescriptor_t d_layout,
                   const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes,
                   cudaStream_t stream);
}

enum { kTransposeA = 3, kEpilogue = 7, kBiasPointer = 8 };  // cublasLtMatmulDescAttributes_t
enum { kMaxWorkspaceBytes = 1 };                            // cublasLtMatmulPreferenceAttributes_t
enum { kBias = 4, kReluBias = 6 };                          // cublasLtEpilogue_t
