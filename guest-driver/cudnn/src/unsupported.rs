// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuDNN's functions that are not supported. They are exported, so that programs start, and return an error.
//!
//! The other names that the library of version 9.28 exports.

use gpgpu_client::unsupported;
use gpgpu_protocol::libraries::cudnn::status;

// Operations on a stream without a handle: causal convolutions, and those of graph networks.
unsupported! { status::NOT_SUPPORTED;
        cudnnB2BCausalConv1dBackward cudnnB2BCausalConv1dForward cudnnCausalConv1dBackward
        cudnnCausalConv1dForward cudnnCausalConv1dNwhBackward cudnnCausalConv1dNwhForward
        cudnnFFTCausalConv1dBackward cudnnFFTCausalConv1dForward cudnnGnnAggSimpleBackward
        cudnnGnnAggSimpleForward cudnnGnnMhaGatBackward cudnnGnnMhaGatForward
        cudnnGnnMhaGatV2Backward cudnnGnnMhaGatV2Forward cudnnLongFFTCausalConv1dBackward
        cudnnLongFFTCausalConv1dForward cudnnLongFFTCausalConv1dGetBufferSizes
}

// The fused operations that preceded the backend. The type of an attribute's pointer depends on the attribute.
unsupported! { status::NOT_SUPPORTED;
        cudnnCreateFusedOpsConstParamPack cudnnCreateFusedOpsPlan
        cudnnCreateFusedOpsVariantParamPack cudnnDestroyFusedOpsConstParamPack
        cudnnDestroyFusedOpsPlan cudnnDestroyFusedOpsVariantParamPack cudnnFusedOpsExecute
        cudnnGetFusedOpsConstParamPackAttribute cudnnGetFusedOpsVariantParamPackAttribute
        cudnnMakeFusedOpsPlan cudnnSetFusedOpsConstParamPackAttribute
        cudnnSetFusedOpsVariantParamPackAttribute
}

// The attention functions that preceded the backend.
unsupported! { status::NOT_SUPPORTED;
        cudnnCreateAttnDescriptor cudnnCreateSeqDataDescriptor cudnnDestroyAttnDescriptor
        cudnnDestroySeqDataDescriptor cudnnGetAttnDescriptor cudnnGetMultiHeadAttnBuffers
        cudnnGetMultiHeadAttnWeights cudnnGetSeqDataDescriptor cudnnMultiHeadAttnBackwardData
        cudnnMultiHeadAttnBackwardWeights cudnnMultiHeadAttnForward cudnnSetAttnDescriptor
        cudnnSetSeqDataDescriptor
}

// CUDA graphs, descriptors in the program's memory, functions that return descriptors set in others, and NVIDIA's
// internal functions.
unsupported! { status::NOT_SUPPORTED;
        cudnnBackendInitialize cudnnBackendPopulateCudaGraph cudnnBackendUpdateCudaGraph
        cudnnGetBackdoor cudnnGetFoldedConvBackwardDataDescriptors cudnnGetRNNDataDescriptor
        cudnnGetRNNDescriptor_v8 cudnnGetRNNDropoutLocationsInternal cudnnSetBackdoor
        cudnnSetBackdoorEx
}
