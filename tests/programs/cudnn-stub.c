// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
/*
 * The target of -lcudnn where no cuDNN is installed: the names that the test programs use, and the soname of the
 * library that is loaded when they run. Never loaded itself. 1001 is CUDNN_STATUS_NOT_INITIALIZED.
 */
#define STUB(name) \
  int name(void);  \
  int name(void) { return 1001; }

STUB(cudnnGetVersion)
STUB(cudnnCreate)
STUB(cudnnDestroy)
STUB(cudnnSetStream)
STUB(cudnnCreateTensorDescriptor)
STUB(cudnnSetTensor4dDescriptor)
STUB(cudnnDestroyTensorDescriptor)
STUB(cudnnCreateFilterDescriptor)
STUB(cudnnSetFilter4dDescriptor)
STUB(cudnnDestroyFilterDescriptor)
STUB(cudnnCreateConvolutionDescriptor)
STUB(cudnnSetConvolution2dDescriptor)
STUB(cudnnSetConvolutionGroupCount)
STUB(cudnnDestroyConvolutionDescriptor)
STUB(cudnnGetConvolution2dForwardOutputDim)
STUB(cudnnGetConvolutionForwardWorkspaceSize)
STUB(cudnnConvolutionForward)
