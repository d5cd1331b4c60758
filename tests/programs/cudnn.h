/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// cuDNN's functions that the test programs call, as its documentation declares them: no header of NVIDIA's is needed.
#pragma once

#include <cuda_runtime.h>

#include "runtime.h"

extern "C" {
typedef struct cudnnContext* cudnnHandle_t;
typedef struct cudnnTensorStruct* cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct* cudnnFilterDescriptor_t;
typedef struct cudnnConvolutionStruct* cudnnConvolutionDescriptor_t;
size_t cudnnGetVersion(void);
int cudnnCreate(cudnnHandle_t* handle);
int cudnnDestroy(cudnnHandle_t handle);
int cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
int cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t* tensor);
int cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, int format, int type, int n, int c, int h, int w);
int cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor);
int cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t* filter);
int cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, int type, int format, int k, int c, int h, int w);
int cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter);
int cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t* convolution);
int cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w, int stride_h,
                                    int stride_w, int dilation_h, int dilation_w, int mode, int type);
int cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int groups);
int cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution);
int cudnnGetConvolution2dForwardOutputDim(cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t x,
                                          cudnnFilterDescriptor_t w, int* n, int* c, int* height, int* width);
int cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t handle, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                                            cudnnConvolutionDescriptor_t convolution, cudnnTensorDescriptor_t y,
                                            int algorithm, size_t* bytes);
int cudnnConvolutionForward(cudnnHandle_t handle, const void* alpha, cudnnTensorDescriptor_t x_descriptor,
                            const void* x, cudnnFilterDescriptor_t w_descriptor, const void* w,
                            cudnnConvolutionDescriptor_t convolution, int algorithm, void* workspace, size_t bytes,
                            const void* beta, cudnnTensorDescriptor_t y_descriptor, void* y);
}

enum { kPlanes = 0 };            // cudnnTensorFormat_t
enum { kSingle = 0, kDouble = 1 };  // cudnnDataType_t
enum { kCorrelation = 1 };       // cudnnConvolutionMode_t
enum { kImplicitProduct = 0 };   // cudnnConvolutionFwdAlgo_t

// Ends the program with the call and its status unless cuDNN returns success.
#define DNN(call)                                                                           \
  do {                                                                                      \
    const int dnn_status = (call);                                                          \
    if (dnn_status != 0) {                                                                  \
      fprintf(stderr, "%s:%d: %s failed: status %d\n", __FILE__, __LINE__, #call, dnn_status); \
      exit(kCudaError);                                                                     \
    }                                                                                       \
  } while (0)
