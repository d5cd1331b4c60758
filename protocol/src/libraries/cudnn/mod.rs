// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! cuDNN (cudnn.h).
//!
//! The guest composes the rows with `guest`, or sends only changes for them. Scaling factors are always at host
//! addresses. They have 8 bytes if the tensors are of double precision, and 4 otherwise; the guest knows which. `in[8]`
//! has room for either. Each descriptor type of the old API has its own class. The backend's descriptors share one
//! class, and [`backend`] describes how their attributes are encoded.

pub mod backend;

use super::Statuses;

/// The functions' results (`cudnnStatus_t`).
pub mod status {
    /// Done, or issued.
    pub const SUCCESS: u32 = 0;
    /// The library or the context is missing; of a descriptor: it is already finalised.
    pub const NOT_INITIALIZED: u32 = 1001;
    /// An argument is wrong, or names no object.
    pub const BAD_PARAM: u32 = 2000;
    /// A pointer is NULL.
    pub const NULL_POINTER: u32 = 2002;
    /// A descriptor is not finalised.
    pub const NOT_FINALIZED: u32 = 2004;
    /// There is no such type of attributes.
    pub const ATTRIBUTE_TYPE: u32 = 2010;
    /// A descriptor is of another type.
    pub const DESCRIPTOR_TYPE: u32 = 2012;
    /// The function does not exist here, or does not support this.
    pub const NOT_SUPPORTED: u32 = 3000;
    /// The library itself failed.
    pub const INTERNAL_ERROR: u32 = 4000;
    /// Memory ran out.
    pub const ALLOC_FAILED: u32 = 4003;
    /// The GPU failed, or an object that the handle needs was destroyed.
    pub const EXECUTION_FAILED: u32 = 5000;
}

macro_rules! names {
    ($($number:literal $name:literal $text:literal;)*) => {
        &[$(($number, $name, $text)),*]
    };
}

/// The statuses of cuDNN.
pub static STATUSES: Statuses = Statuses {
    bad_handle: status::BAD_PARAM,
    not_initialized: status::NOT_INITIALIZED,
    alloc_failed: status::ALLOC_FAILED,
    invalid_value: status::BAD_PARAM,
    execution_failed: status::EXECUTION_FAILED,
    internal_error: status::INTERNAL_ERROR,
    not_supported: status::NOT_SUPPORTED,
    names: names! {
        0 c"CUDNN_STATUS_SUCCESS" c"success";
        1001 c"CUDNN_STATUS_NOT_INITIALIZED" c"not initialized";
        1002 c"CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH" c"sublibrary version mismatch";
        1003 c"CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH" c"serialization version mismatch";
        1004 c"CUDNN_STATUS_DEPRECATED" c"deprecated";
        1005 c"CUDNN_STATUS_LICENSE_ERROR" c"license error";
        1006 c"CUDNN_STATUS_RUNTIME_IN_PROGRESS" c"runtime in progress";
        1007 c"CUDNN_STATUS_RUNTIME_FP_OVERFLOW" c"runtime overflow";
        1008 c"CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED" c"sublibrary loading failed";
        2000 c"CUDNN_STATUS_BAD_PARAM" c"wrong argument";
        2001 c"CUDNN_STATUS_INVALID_VALUE" c"invalid value";
        2002 c"CUDNN_STATUS_BAD_PARAM_NULL_POINTER" c"wrong argument: null pointer";
        2003 c"CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER" c"wrong argument: misaligned pointer";
        2004 c"CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED" c"wrong argument: not finalized";
        2005 c"CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND" c"wrong argument: out of bound";
        2006 c"CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT" c"wrong argument: size insufficient";
        2007 c"CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH" c"wrong argument: stream mismatch";
        2008 c"CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH" c"wrong argument: shape mismatch";
        2009 c"CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES" c"wrong argument: duplicated entries";
        2010 c"CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE" c"wrong argument: attribute type";
        2011 c"CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH" c"wrong argument: CUDA graph mismatch";
        2012 c"CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE" c"wrong argument: descriptor type";
        3000 c"CUDNN_STATUS_NOT_SUPPORTED" c"not supported";
        3001 c"CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN" c"not supported: graph pattern";
        3002 c"CUDNN_STATUS_NOT_SUPPORTED_SHAPE" c"not supported: shape";
        3003 c"CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE" c"not supported: data type";
        3004 c"CUDNN_STATUS_NOT_SUPPORTED_LAYOUT" c"not supported: layout";
        3005 c"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER" c"not supported: incompatible CUDA driver";
        3006 c"CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART" c"not supported: incompatible the CUDA runtime";
        3007 c"CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH" c"not supported: arch mismatch";
        3008 c"CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING" c"not supported: runtime prerequisite missing";
        3009 c"CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE" c"not supported: sublibrary unavailable";
        3010 c"CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT" c"not supported: shared memory insufficient";
        3011 c"CUDNN_STATUS_NOT_SUPPORTED_PADDING" c"not supported: padding";
        3012 c"CUDNN_STATUS_NOT_SUPPORTED_BAD_LAUNCH_PARAM" c"not supported: bad launch param";
        3013 c"CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API" c"not supported: CUDA graph native API";
        3014 c"CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE" c"not supported: invalid dynamic shape";
        4000 c"CUDNN_STATUS_INTERNAL_ERROR" c"internal error";
        4001 c"CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED" c"internal error: compilation failed";
        4002 c"CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE" c"internal error: unexpected value";
        4003 c"CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED" c"internal error: host allocation failed";
        4004 c"CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED" c"internal error: device allocation failed";
        4005 c"CUDNN_STATUS_INTERNAL_ERROR_BAD_LAUNCH_PARAM" c"internal error: bad launch param";
        4006 c"CUDNN_STATUS_INTERNAL_ERROR_TEXTURE_CREATION_FAILED" c"internal error: texture creation failed";
        5000 c"CUDNN_STATUS_EXECUTION_FAILED" c"execution failed";
        5001 c"CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER" c"execution failed: CUDA driver";
        5002 c"CUDNN_STATUS_EXECUTION_FAILED_CUBLAS" c"execution failed: cuBLAS";
        5003 c"CUDNN_STATUS_EXECUTION_FAILED_CUDART" c"execution failed: the CUDA runtime";
        5004 c"CUDNN_STATUS_EXECUTION_FAILED_CURAND" c"execution failed: cuRAND";
    },
    unknown: (c"CUDNN_UNKNOWN_STATUS", c"unknown status"),
};

/// The most dimensions of a descriptor (`CUDNN_DIM_MAX`).
pub const MOST_DIMENSIONS: u64 = 8;

/// The most sequences of a batch.
pub const MOST_SEQUENCES: usize = 1 << 20;

/// The bytes of a tensor's element (`cudnnDataType_t`), rounded up to whole bytes; `None` if there is no such type.
pub fn data_bytes(data: i32) -> Option<usize> {
    Some(match data {
        // Vectors of 32 integers, and complex numbers of double precision.
        8 => 32,
        21 => 16,
        // Double precision, integers of 64 bits, and complex numbers of single precision.
        1 | 10 | 20 => 8,
        // Single precision and integers of 32 bits, some of which hold four integers of 8 bits.
        0 | 4 | 5 | 7 | 14 | 19 => 4,
        // Both halves.
        2 | 9 => 2,
        // Integers, numbers and truth values of eight bits and less.
        3 | 6 | 11..=13 | 15..=18 | 22 | 23 => 1,
        _ => return None,
    })
}

/// Whether an element type is of double precision; scaling factors then have double precision, too.
pub fn is_double(data: i32) -> bool {
    data == 1
}

/// Passes cuDNN's table to `$callback!`; [`libraries`](crate::libraries) describes its format.
#[macro_export]
macro_rules! with_cudnn {
    ($callback:ident) => {
        $callback! {
            0x2800 post guest cudnnSetStream(handle: handle[CudnnHandle], streamId: stream);
            0x2801 call guest cudnnGetVersion(value: reply) pure;
            0x2802 call guest cudnnGetMaxDeviceVersion(value: reply) pure;
            0x2803 call guest cudnnGetCudartVersion(value: reply) pure;
            0x2804 post guest cudnnSetTensor(handle: handle[CudnnHandle], yDesc: object[CudnnTensor], y: device, value: in[16]) work;
            0x2805 post guest cudnnSetRNNDataDescriptor(rnnDataDesc: object[CudnnRnnData], dataType: i32, layout: i32, maxSeqLength: i32, batchSize: i32, vectorSize: i32, seqLengthArray: blob, paddingFill: in[8]);
            0x2806 call guest cudnnGetRNNWeightParams(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], pseudoLayer: i32, weightSpaceSize: i64, weightSpace: device, linLayerID: i32, mDesc: object[CudnnTensor], bDesc: object[CudnnTensor], found: reply);
            0x2807 wait guest cudnnCTCLoss(handle: handle[CudnnHandle], probsDesc: object[CudnnTensor], probs: device, sequences: blob, costs: device, gradientsDesc: object[CudnnTensor], gradients: device, algo: i32, ctcLossDesc: object[CudnnCtcLoss], workspace: device, workSpaceSizeInBytes: i64) work;
            0x2808 call guest cudnnGetCTCLossWorkspaceSize(handle: handle[CudnnHandle], probsDesc: object[CudnnTensor], gradientsDesc: object[CudnnTensor], sequences: blob, algo: i32, ctcLossDesc: object[CudnnCtcLoss], sizeInBytes: out[8]);
            0x2809 post guest cudnnBackendCreateDescriptor(descriptorType: i32, descriptor: new[CudnnBackend]);
            0x280a post guest cudnnBackendDestroyDescriptor(descriptor: gone[CudnnBackend]);
            0x280b post guest cudnnBackendSetAttribute(descriptor: object[CudnnBackend], attributeName: i32, attributeType: i32, elementCount: i64, elements: blob, isPosted: i32);
            0x280c call guest cudnnBackendGetAttribute(descriptor: object[CudnnBackend], attributeName: i32, attributeType: i32, requestedElementCount: i64, descriptors: blob, elementCount: out[8], elements: reply);
            0x280d wait guest cudnnBackendFinalize(descriptor: object[CudnnBackend], values: reply);
            0x280e post guest cudnnBackendExecute(handle: handle[CudnnHandle], executionPlan: object[CudnnBackend], variantPack: blob) work;
            0x280f call guest cudnnGetExecutionPlanWorkspaceSize(handle: handle[CudnnHandle], executionPlan: object[CudnnBackend], variantPack: blob, workspaceSizeInBytes: out[8]);
            0x2810 post table cudnnActivationBackward(handle: handle[CudnnHandle], activationDesc: object[CudnnActivation], alpha: in[8], yDesc: object[CudnnTensor], y: device, dyDesc: object[CudnnTensor], dy: device, xDesc: object[CudnnTensor], x: device, beta: in[8], dxDesc: object[CudnnTensor], dx: device) work;
            0x2811 post table cudnnActivationForward(handle: handle[CudnnHandle], activationDesc: object[CudnnActivation], alpha: in[8], xDesc: object[CudnnTensor], x: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x2812 post table cudnnAddTensor(handle: handle[CudnnHandle], alpha: in[8], aDesc: object[CudnnTensor], A: device, beta: in[8], cDesc: object[CudnnTensor], C: device) work;
            0x2813 post table cudnnBatchNormalizationBackward(handle: handle[CudnnHandle], mode: i32, alphaDataDiff: in[8], betaDataDiff: in[8], alphaParamDiff: in[8], betaParamDiff: in[8], xDesc: object[CudnnTensor], x: device, dyDesc: object[CudnnTensor], dy: device, dxDesc: object[CudnnTensor], dx: device, dBnScaleBiasDesc: object[CudnnTensor], bnScale: device, dBnScaleResult: device, dBnBiasResult: device, epsilon: f64, savedMean: device, savedInvVariance: device) work;
            0x2814 post table cudnnBatchNormalizationBackwardEx(handle: handle[CudnnHandle], mode: i32, bnOps: i32, alphaDataDiff: in[8], betaDataDiff: in[8], alphaParamDiff: in[8], betaParamDiff: in[8], xDesc: object[CudnnTensor], xData: device, yDesc: object[CudnnTensor], yData: device, dyDesc: object[CudnnTensor], dyData: device, dzDesc: object[CudnnTensor], dzData: device, dxDesc: object[CudnnTensor], dxData: device, dBnScaleBiasDesc: object[CudnnTensor], bnScaleData: device, bnBiasData: device, dBnScaleData: device, dBnBiasData: device, epsilon: f64, savedMean: device, savedInvVariance: device, activationDesc: object[CudnnActivation], workSpace: device, workSpaceSizeInBytes: i64, reserveSpace: device, reserveSpaceSizeInBytes: i64) work;
            0x2815 post table cudnnBatchNormalizationForwardInference(handle: handle[CudnnHandle], mode: i32, alpha: in[8], beta: in[8], xDesc: object[CudnnTensor], x: device, yDesc: object[CudnnTensor], y: device, bnScaleBiasMeanVarDesc: object[CudnnTensor], bnScale: device, bnBias: device, estimatedMean: device, estimatedVariance: device, epsilon: f64) work;
            0x2816 post table cudnnBatchNormalizationForwardTraining(handle: handle[CudnnHandle], mode: i32, alpha: in[8], beta: in[8], xDesc: object[CudnnTensor], x: device, yDesc: object[CudnnTensor], y: device, bnScaleBiasMeanVarDesc: object[CudnnTensor], bnScale: device, bnBias: device, exponentialAverageFactor: f64, resultRunningMean: device, resultRunningVariance: device, epsilon: f64, resultSaveMean: device, resultSaveInvVariance: device) work;
            0x2817 post table cudnnBatchNormalizationForwardTrainingEx(handle: handle[CudnnHandle], mode: i32, bnOps: i32, alpha: in[8], beta: in[8], xDesc: object[CudnnTensor], xData: device, zDesc: object[CudnnTensor], zData: device, yDesc: object[CudnnTensor], yData: device, bnScaleBiasMeanVarDesc: object[CudnnTensor], bnScale: device, bnBias: device, exponentialAverageFactor: f64, resultRunningMean: device, resultRunningVariance: device, epsilon: f64, resultSaveMean: device, resultSaveInvVariance: device, activationDesc: object[CudnnActivation], workspace: device, workSpaceSizeInBytes: i64, reserveSpace: device, reserveSpaceSizeInBytes: i64) work;
            0x2818 call table cudnnBuildRNNDynamic(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], miniBatch: i32);
            0x2819 post table cudnnCTCLoss_v8(handle: handle[CudnnHandle], algo: i32, ctcLossDesc: object[CudnnCtcLoss], probsDesc: object[CudnnTensor], probs: device, labels: device, labelLengths: device, inputLengths: device, costs: device, gradientsDesc: object[CudnnTensor], gradients: device, workSpaceSizeInBytes: i64, workspace: device) work;
            0x281a post table cudnnConvolutionBackwardBias(handle: handle[CudnnHandle], alpha: in[8], dyDesc: object[CudnnTensor], dy: device, beta: in[8], dbDesc: object[CudnnTensor], db: device) work;
            0x281b post table cudnnConvolutionBackwardData(handle: handle[CudnnHandle], alpha: in[8], wDesc: object[CudnnFilter], w: device, dyDesc: object[CudnnTensor], dy: device, convDesc: object[CudnnConvolution], algo: i32, workSpace: device, workSpaceSizeInBytes: i64, beta: in[8], dxDesc: object[CudnnTensor], dx: device) work;
            0x281c post table cudnnConvolutionBackwardFilter(handle: handle[CudnnHandle], alpha: in[8], xDesc: object[CudnnTensor], x: device, dyDesc: object[CudnnTensor], dy: device, convDesc: object[CudnnConvolution], algo: i32, workSpace: device, workSpaceSizeInBytes: i64, beta: in[8], dwDesc: object[CudnnFilter], dw: device) work;
            0x281d post table cudnnConvolutionBiasActivationForward(handle: handle[CudnnHandle], alpha1: in[8], xDesc: object[CudnnTensor], x: device, wDesc: object[CudnnFilter], w: device, convDesc: object[CudnnConvolution], algo: i32, workSpace: device, workSpaceSizeInBytes: i64, alpha2: in[8], zDesc: object[CudnnTensor], z: device, biasDesc: object[CudnnTensor], bias: device, activationDesc: object[CudnnActivation], yDesc: object[CudnnTensor], y: device) work;
            0x281e post table cudnnConvolutionForward(handle: handle[CudnnHandle], alpha: in[8], xDesc: object[CudnnTensor], x: device, wDesc: object[CudnnFilter], w: device, convDesc: object[CudnnConvolution], algo: i32, workSpace: device, workSpaceSizeInBytes: i64, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x281f call table cudnnCreate(handle: new[CudnnHandle]);
            0x2820 post table cudnnCreateActivationDescriptor(activationDesc: new[CudnnActivation]);
            0x2821 post table cudnnCreateCTCLossDescriptor(ctcLossDesc: new[CudnnCtcLoss]);
            0x2822 post table cudnnCreateConvolutionDescriptor(convDesc: new[CudnnConvolution]);
            0x2823 post table cudnnCreateDropoutDescriptor(dropoutDesc: new[CudnnDropout]);
            0x2824 post table cudnnCreateFilterDescriptor(filterDesc: new[CudnnFilter]);
            0x2825 post table cudnnCreateLRNDescriptor(normDesc: new[CudnnLrn]);
            0x2826 post table cudnnCreateOpTensorDescriptor(opTensorDesc: new[CudnnOpTensor]);
            0x2827 post table cudnnCreatePoolingDescriptor(poolingDesc: new[CudnnPooling]);
            0x2828 post table cudnnCreateRNNDataDescriptor(rnnDataDesc: new[CudnnRnnData]);
            0x2829 post table cudnnCreateRNNDescriptor(rnnDesc: new[CudnnRnn]);
            0x282a post table cudnnCreateReduceTensorDescriptor(reduceTensorDesc: new[CudnnReduceTensor]);
            0x282b post table cudnnCreateSpatialTransformerDescriptor(stDesc: new[CudnnSpatialTransformer]);
            0x282c post table cudnnCreateTensorDescriptor(tensorDesc: new[CudnnTensor]);
            0x282d post table cudnnCreateTensorTransformDescriptor(transformDesc: new[CudnnTensorTransform]);
            0x282e post table cudnnDeriveBNTensorDescriptor(derivedBnDesc: object[CudnnTensor], xDesc: object[CudnnTensor], mode: i32);
            0x282f post table cudnnDeriveNormTensorDescriptor(derivedNormScaleBiasDesc: object[CudnnTensor], derivedNormMeanVarDesc: object[CudnnTensor], xDesc: object[CudnnTensor], mode: i32, groupCnt: i32);
            0x2830 wait table cudnnDestroy(handle: gone[CudnnHandle]);
            0x2831 post table cudnnDestroyActivationDescriptor(activationDesc: gone[CudnnActivation]);
            0x2832 post table cudnnDestroyCTCLossDescriptor(ctcLossDesc: gone[CudnnCtcLoss]);
            0x2833 post table cudnnDestroyConvolutionDescriptor(convDesc: gone[CudnnConvolution]);
            0x2834 post table cudnnDestroyDropoutDescriptor(dropoutDesc: gone[CudnnDropout]);
            0x2835 post table cudnnDestroyFilterDescriptor(filterDesc: gone[CudnnFilter]);
            0x2836 post table cudnnDestroyLRNDescriptor(lrnDesc: gone[CudnnLrn]);
            0x2837 post table cudnnDestroyOpTensorDescriptor(opTensorDesc: gone[CudnnOpTensor]);
            0x2838 post table cudnnDestroyPoolingDescriptor(poolingDesc: gone[CudnnPooling]);
            0x2839 post table cudnnDestroyRNNDataDescriptor(rnnDataDesc: gone[CudnnRnnData]);
            0x283a post table cudnnDestroyRNNDescriptor(rnnDesc: gone[CudnnRnn]);
            0x283b post table cudnnDestroyReduceTensorDescriptor(reduceTensorDesc: gone[CudnnReduceTensor]);
            0x283c post table cudnnDestroySpatialTransformerDescriptor(stDesc: gone[CudnnSpatialTransformer]);
            0x283d post table cudnnDestroyTensorDescriptor(tensorDesc: gone[CudnnTensor]);
            0x283e post table cudnnDestroyTensorTransformDescriptor(transformDesc: gone[CudnnTensorTransform]);
            0x283f post table cudnnDivisiveNormalizationBackward(handle: handle[CudnnHandle], normDesc: object[CudnnLrn], mode: i32, alpha: in[8], xDesc: object[CudnnTensor], x: device, means: device, dy: device, temp: device, temp2: device, beta: in[8], dXdMeansDesc: object[CudnnTensor], dx: device, dMeans: device) work;
            0x2840 post table cudnnDivisiveNormalizationForward(handle: handle[CudnnHandle], normDesc: object[CudnnLrn], mode: i32, alpha: in[8], xDesc: object[CudnnTensor], x: device, means: device, temp: device, temp2: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x2841 post table cudnnDropoutBackward(handle: handle[CudnnHandle], dropoutDesc: object[CudnnDropout], dydesc: object[CudnnTensor], dy: device, dxdesc: object[CudnnTensor], dx: device, reserveSpace: device, reserveSpaceSizeInBytes: i64) work;
            0x2842 post table cudnnDropoutForward(handle: handle[CudnnHandle], dropoutDesc: object[CudnnDropout], xdesc: object[CudnnTensor], x: device, ydesc: object[CudnnTensor], y: device, reserveSpace: device, reserveSpaceSizeInBytes: i64) work;
            0x2843 call table cudnnDropoutGetReserveSpaceSize(xdesc: object[CudnnTensor], sizeInBytes: out[8]) pure;
            0x2844 call table cudnnDropoutGetStatesSize(handle: handle[CudnnHandle], sizeInBytes: out[8]) pure;
            0x2845 wait table cudnnFindConvolutionBackwardDataAlgorithm(handle: handle[CudnnHandle], wDesc: object[CudnnFilter], dyDesc: object[CudnnTensor], convDesc: object[CudnnConvolution], dxDesc: object[CudnnTensor], requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount]) work;
            0x2846 wait table cudnnFindConvolutionBackwardDataAlgorithmEx(handle: handle[CudnnHandle], wDesc: object[CudnnFilter], w: device, dyDesc: object[CudnnTensor], dy: device, convDesc: object[CudnnConvolution], dxDesc: object[CudnnTensor], dx: device, requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount], workSpace: device, workSpaceSizeInBytes: i64) work;
            0x2847 wait table cudnnFindConvolutionBackwardFilterAlgorithm(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], dyDesc: object[CudnnTensor], convDesc: object[CudnnConvolution], dwDesc: object[CudnnFilter], requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount]) work;
            0x2848 wait table cudnnFindConvolutionBackwardFilterAlgorithmEx(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], x: device, dyDesc: object[CudnnTensor], y: device, convDesc: object[CudnnConvolution], dwDesc: object[CudnnFilter], dw: device, requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount], workSpace: device, workSpaceSizeInBytes: i64) work;
            0x2849 wait table cudnnFindConvolutionForwardAlgorithm(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], wDesc: object[CudnnFilter], convDesc: object[CudnnConvolution], yDesc: object[CudnnTensor], requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount]) work;
            0x284a wait table cudnnFindConvolutionForwardAlgorithmEx(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], x: device, wDesc: object[CudnnFilter], w: device, convDesc: object[CudnnConvolution], yDesc: object[CudnnTensor], y: device, requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount], workSpace: device, workSpaceSizeInBytes: i64) work;
            0x284b call table cudnnGetActivationDescriptor(activationDesc: object[CudnnActivation], mode: out[4], reluNanOpt: out[4], coef: out[8]) pure;
            0x284c call table cudnnGetActivationDescriptorSwishBeta(activationDesc: object[CudnnActivation], swish_beta: out[8]) pure;
            0x284d call table cudnnGetBatchNormalizationBackwardExWorkspaceSize(handle: handle[CudnnHandle], mode: i32, bnOps: i32, xDesc: object[CudnnTensor], yDesc: object[CudnnTensor], dyDesc: object[CudnnTensor], dzDesc: object[CudnnTensor], dxDesc: object[CudnnTensor], dBnScaleBiasDesc: object[CudnnTensor], activationDesc: object[CudnnActivation], sizeInBytes: out[8]) pure;
            0x284e call table cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize(handle: handle[CudnnHandle], mode: i32, bnOps: i32, xDesc: object[CudnnTensor], zDesc: object[CudnnTensor], yDesc: object[CudnnTensor], bnScaleBiasMeanVarDesc: object[CudnnTensor], activationDesc: object[CudnnActivation], sizeInBytes: out[8]) pure;
            0x284f call table cudnnGetBatchNormalizationTrainingExReserveSpaceSize(handle: handle[CudnnHandle], mode: i32, bnOps: i32, activationDesc: object[CudnnActivation], xDesc: object[CudnnTensor], sizeInBytes: out[8]) pure;
            0x2850 call table cudnnGetCTCLossDescriptor(ctcLossDesc: object[CudnnCtcLoss], compType: out[4]) pure;
            0x2851 call table cudnnGetCTCLossDescriptorEx(ctcLossDesc: object[CudnnCtcLoss], compType: out[4], normMode: out[4], gradMode: out[4]) pure;
            0x2852 call table cudnnGetCTCLossDescriptor_v8(ctcLossDesc: object[CudnnCtcLoss], compType: out[4], normMode: out[4], gradMode: out[4], maxLabelLength: out[4]) pure;
            0x2853 call table cudnnGetCTCLossDescriptor_v9(ctcLossDesc: object[CudnnCtcLoss], compType: out[4], normMode: out[4], ctcGradMode: out[4], maxLabelLength: out[4]) pure;
            0x2854 call table cudnnGetCTCLossWorkspaceSize_v8(handle: handle[CudnnHandle], algo: i32, ctcLossDesc: object[CudnnCtcLoss], probsDesc: object[CudnnTensor], gradientsDesc: object[CudnnTensor], sizeInBytes: out[8]) pure;
            0x2855 call table cudnnGetConvolution2dDescriptor(convDesc: object[CudnnConvolution], pad_h: out[4], pad_w: out[4], u: out[4], v: out[4], dilation_h: out[4], dilation_w: out[4], mode: out[4], computeType: out[4]) pure;
            0x2856 call table cudnnGetConvolution2dForwardOutputDim(convDesc: object[CudnnConvolution], inputTensorDesc: object[CudnnTensor], filterDesc: object[CudnnFilter], n: out[4], c: out[4], h: out[4], w: out[4]) pure;
            0x2857 call table cudnnGetConvolutionBackwardDataAlgorithmMaxCount(handle: handle[CudnnHandle], count: out[4]) pure;
            0x2858 call table cudnnGetConvolutionBackwardDataAlgorithm_v7(handle: handle[CudnnHandle], filterDesc: object[CudnnFilter], diffDesc: object[CudnnTensor], convDesc: object[CudnnConvolution], gradDesc: object[CudnnTensor], requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount]) pure;
            0x2859 call table cudnnGetConvolutionBackwardDataWorkspaceSize(handle: handle[CudnnHandle], wDesc: object[CudnnFilter], dyDesc: object[CudnnTensor], convDesc: object[CudnnConvolution], dxDesc: object[CudnnTensor], algo: i32, sizeInBytes: out[8]) pure;
            0x285a call table cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(handle: handle[CudnnHandle], count: out[4]) pure;
            0x285b call table cudnnGetConvolutionBackwardFilterAlgorithm_v7(handle: handle[CudnnHandle], srcDesc: object[CudnnTensor], diffDesc: object[CudnnTensor], convDesc: object[CudnnConvolution], gradDesc: object[CudnnFilter], requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount]) pure;
            0x285c call table cudnnGetConvolutionBackwardFilterWorkspaceSize(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], dyDesc: object[CudnnTensor], convDesc: object[CudnnConvolution], gradDesc: object[CudnnFilter], algo: i32, sizeInBytes: out[8]) pure;
            0x285d call table cudnnGetConvolutionForwardAlgorithmMaxCount(handle: handle[CudnnHandle], count: out[4]) pure;
            0x285e call table cudnnGetConvolutionForwardAlgorithm_v7(handle: handle[CudnnHandle], srcDesc: object[CudnnTensor], filterDesc: object[CudnnFilter], convDesc: object[CudnnConvolution], destDesc: object[CudnnTensor], requestedAlgoCount: i32, returnedAlgoCount: out[4], perfResults: outs[48, requestedAlgoCount]) pure;
            0x285f call table cudnnGetConvolutionForwardWorkspaceSize(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], wDesc: object[CudnnFilter], convDesc: object[CudnnConvolution], yDesc: object[CudnnTensor], algo: i32, sizeInBytes: out[8]) pure;
            0x2860 call table cudnnGetConvolutionGroupCount(convDesc: object[CudnnConvolution], groupCount: out[4]) pure;
            0x2861 call table cudnnGetConvolutionMathType(convDesc: object[CudnnConvolution], mathType: out[4]) pure;
            0x2862 call table cudnnGetConvolutionNdDescriptor(convDesc: object[CudnnConvolution], arrayLengthRequested: i32, arrayLength: out[4], padA: outs[4, arrayLengthRequested], strideA: outs[4, arrayLengthRequested], dilationA: outs[4, arrayLengthRequested], mode: out[4], computeType: out[4]) pure;
            0x2863 call table cudnnGetConvolutionNdForwardOutputDim(convDesc: object[CudnnConvolution], inputTensorDesc: object[CudnnTensor], filterDesc: object[CudnnFilter], nbDims: i32, tensorOuputDimA: outs[4, nbDims]) pure;
            0x2864 call table cudnnGetConvolutionReorderType(convDesc: object[CudnnConvolution], reorderType: out[4]) pure;
            0x2865 call table cudnnGetDropoutDescriptor(dropoutDesc: object[CudnnDropout], handle: handle[CudnnHandle], dropout: out[4], states: out[8], seed: out[8]);
            0x2866 call table cudnnGetFilter4dDescriptor(filterDesc: object[CudnnFilter], dataType: out[4], format: out[4], k: out[4], c: out[4], h: out[4], w: out[4]) pure;
            0x2867 call table cudnnGetFilterNdDescriptor(filterDesc: object[CudnnFilter], nbDimsRequested: i32, dataType: out[4], format: out[4], nbDims: out[4], filterDimA: outs[4, nbDimsRequested]) pure;
            0x2868 call table cudnnGetFilterSizeInBytes(filterDesc: object[CudnnFilter], size: out[8]) pure;
            0x2869 call table cudnnGetLRNDescriptor(normDesc: object[CudnnLrn], lrnN: out[4], lrnAlpha: out[8], lrnBeta: out[8], lrnK: out[8]) pure;
            0x286a call table cudnnGetNormalizationBackwardWorkspaceSize(handle: handle[CudnnHandle], mode: i32, normOps: i32, algo: i32, xDesc: object[CudnnTensor], yDesc: object[CudnnTensor], dyDesc: object[CudnnTensor], dzDesc: object[CudnnTensor], dxDesc: object[CudnnTensor], dNormScaleBiasDesc: object[CudnnTensor], activationDesc: object[CudnnActivation], normMeanVarDesc: object[CudnnTensor], sizeInBytes: out[8], groupCnt: i32) pure;
            0x286b call table cudnnGetNormalizationForwardTrainingWorkspaceSize(handle: handle[CudnnHandle], mode: i32, normOps: i32, algo: i32, xDesc: object[CudnnTensor], zDesc: object[CudnnTensor], yDesc: object[CudnnTensor], normScaleBiasDesc: object[CudnnTensor], activationDesc: object[CudnnActivation], normMeanVarDesc: object[CudnnTensor], sizeInBytes: out[8], groupCnt: i32) pure;
            0x286c call table cudnnGetNormalizationTrainingReserveSpaceSize(handle: handle[CudnnHandle], mode: i32, normOps: i32, algo: i32, activationDesc: object[CudnnActivation], xDesc: object[CudnnTensor], sizeInBytes: out[8], groupCnt: i32) pure;
            0x286d call table cudnnGetOpTensorDescriptor(opTensorDesc: object[CudnnOpTensor], opTensorOp: out[4], opTensorCompType: out[4], opTensorNanOpt: out[4]) pure;
            0x286e call table cudnnGetPooling2dDescriptor(poolingDesc: object[CudnnPooling], mode: out[4], maxpoolingNanOpt: out[4], windowHeight: out[4], windowWidth: out[4], verticalPadding: out[4], horizontalPadding: out[4], verticalStride: out[4], horizontalStride: out[4]) pure;
            0x286f call table cudnnGetPooling2dForwardOutputDim(poolingDesc: object[CudnnPooling], inputTensorDesc: object[CudnnTensor], n: out[4], c: out[4], h: out[4], w: out[4]) pure;
            0x2870 call table cudnnGetPoolingNdDescriptor(poolingDesc: object[CudnnPooling], nbDimsRequested: i32, mode: out[4], maxpoolingNanOpt: out[4], nbDims: out[4], windowDimA: outs[4, nbDimsRequested], paddingA: outs[4, nbDimsRequested], strideA: outs[4, nbDimsRequested]) pure;
            0x2871 call table cudnnGetPoolingNdForwardOutputDim(poolingDesc: object[CudnnPooling], inputTensorDesc: object[CudnnTensor], nbDims: i32, outputTensorDimA: outs[4, nbDims]) pure;
            0x2872 call table cudnnGetRNNTempSpaceSizes(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], fwdMode: i32, xDesc: object[CudnnRnnData], workSpaceSize: out[8], reserveSpaceSize: out[8]) pure;
            0x2873 call table cudnnGetRNNWeightSpaceSize(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], weightSpaceSize: out[8]) pure;
            0x2874 call table cudnnGetReduceTensorDescriptor(reduceTensorDesc: object[CudnnReduceTensor], reduceTensorOp: out[4], reduceTensorCompType: out[4], reduceTensorNanOpt: out[4], reduceTensorIndices: out[4], reduceTensorIndicesType: out[4]) pure;
            0x2875 call table cudnnGetReductionIndicesSize(handle: handle[CudnnHandle], reduceTensorDesc: object[CudnnReduceTensor], aDesc: object[CudnnTensor], cDesc: object[CudnnTensor], sizeInBytes: out[8]) pure;
            0x2876 call table cudnnGetReductionWorkspaceSize(handle: handle[CudnnHandle], reduceTensorDesc: object[CudnnReduceTensor], aDesc: object[CudnnTensor], cDesc: object[CudnnTensor], sizeInBytes: out[8]) pure;
            0x2877 call table cudnnGetTensor4dDescriptor(tensorDesc: object[CudnnTensor], dataType: out[4], n: out[4], c: out[4], h: out[4], w: out[4], nStride: out[4], cStride: out[4], hStride: out[4], wStride: out[4]) pure;
            0x2878 call table cudnnGetTensorNdDescriptor(tensorDesc: object[CudnnTensor], nbDimsRequested: i32, dataType: out[4], nbDims: out[4], dimA: outs[4, nbDimsRequested], strideA: outs[4, nbDimsRequested]) pure;
            0x2879 call table cudnnGetTensorSizeInBytes(tensorDesc: object[CudnnTensor], size: out[8]) pure;
            0x287a call table cudnnGetTensorTransformDescriptor(transformDesc: object[CudnnTensorTransform], nbDimsRequested: i32, destFormat: out[4], padBeforeA: outs[4, nbDimsRequested], padAfterA: outs[4, nbDimsRequested], foldA: outs[4, nbDimsRequested], direction: out[4]) pure;
            0x287b post table cudnnIm2Col(handle: handle[CudnnHandle], xDesc: object[CudnnTensor], x: device, wDesc: object[CudnnFilter], convDesc: object[CudnnConvolution], colBuffer: device) work;
            0x287c call table cudnnInitTransformDest(transformDesc: object[CudnnTensorTransform], srcDesc: object[CudnnTensor], destDesc: object[CudnnTensor], destSizeInBytes: out[8]);
            0x287d post table cudnnLRNCrossChannelBackward(handle: handle[CudnnHandle], normDesc: object[CudnnLrn], lrnMode: i32, alpha: in[8], yDesc: object[CudnnTensor], y: device, dyDesc: object[CudnnTensor], dy: device, xDesc: object[CudnnTensor], x: device, beta: in[8], dxDesc: object[CudnnTensor], dx: device) work;
            0x287e post table cudnnLRNCrossChannelForward(handle: handle[CudnnHandle], normDesc: object[CudnnLrn], lrnMode: i32, alpha: in[8], xDesc: object[CudnnTensor], x: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x287f post table cudnnNormalizationBackward(handle: handle[CudnnHandle], mode: i32, normOps: i32, algo: i32, alphaDataDiff: in[8], betaDataDiff: in[8], alphaParamDiff: in[8], betaParamDiff: in[8], xDesc: object[CudnnTensor], xData: device, yDesc: object[CudnnTensor], yData: device, dyDesc: object[CudnnTensor], dyData: device, dzDesc: object[CudnnTensor], dzData: device, dxDesc: object[CudnnTensor], dxData: device, dNormScaleBiasDesc: object[CudnnTensor], normScaleData: device, normBiasData: device, dNormScaleData: device, dNormBiasData: device, epsilon: f64, normMeanVarDesc: object[CudnnTensor], savedMean: device, savedInvVariance: device, activationDesc: object[CudnnActivation], workSpace: device, workSpaceSizeInBytes: i64, reserveSpace: device, reserveSpaceSizeInBytes: i64, groupCnt: i32) work;
            0x2880 post table cudnnNormalizationForwardInference(handle: handle[CudnnHandle], mode: i32, normOps: i32, algo: i32, alpha: in[8], beta: in[8], xDesc: object[CudnnTensor], x: device, normScaleBiasDesc: object[CudnnTensor], normScale: device, normBias: device, normMeanVarDesc: object[CudnnTensor], estimatedMean: device, estimatedVariance: device, zDesc: object[CudnnTensor], z: device, activationDesc: object[CudnnActivation], yDesc: object[CudnnTensor], y: device, epsilon: f64, groupCnt: i32) work;
            0x2881 post table cudnnNormalizationForwardTraining(handle: handle[CudnnHandle], mode: i32, normOps: i32, algo: i32, alpha: in[8], beta: in[8], xDesc: object[CudnnTensor], xData: device, normScaleBiasDesc: object[CudnnTensor], normScale: device, normBias: device, exponentialAverageFactor: f64, normMeanVarDesc: object[CudnnTensor], resultRunningMean: device, resultRunningVariance: device, epsilon: f64, resultSaveMean: device, resultSaveInvVariance: device, activationDesc: object[CudnnActivation], zDesc: object[CudnnTensor], zData: device, yDesc: object[CudnnTensor], yData: device, workspace: device, workSpaceSizeInBytes: i64, reserveSpace: device, reserveSpaceSizeInBytes: i64, groupCnt: i32) work;
            0x2882 post table cudnnOpTensor(handle: handle[CudnnHandle], opTensorDesc: object[CudnnOpTensor], alpha1: in[8], aDesc: object[CudnnTensor], A: device, alpha2: in[8], bDesc: object[CudnnTensor], B: device, beta: in[8], cDesc: object[CudnnTensor], C: device) work;
            0x2883 post table cudnnPoolingBackward(handle: handle[CudnnHandle], poolingDesc: object[CudnnPooling], alpha: in[8], yDesc: object[CudnnTensor], y: device, dyDesc: object[CudnnTensor], dy: device, xDesc: object[CudnnTensor], x: device, beta: in[8], dxDesc: object[CudnnTensor], dx: device) work;
            0x2884 post table cudnnPoolingForward(handle: handle[CudnnHandle], poolingDesc: object[CudnnPooling], alpha: in[8], xDesc: object[CudnnTensor], x: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x2885 post table cudnnRNNBackwardData_v8(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], devSeqLengths: device, yDesc: object[CudnnRnnData], y: device, dy: device, xDesc: object[CudnnRnnData], dx: device, hDesc: object[CudnnTensor], hx: device, dhy: device, dhx: device, cDesc: object[CudnnTensor], cx: device, dcy: device, dcx: device, weightSpaceSize: i64, weightSpace: device, workSpaceSize: i64, workSpace: device, reserveSpaceSize: i64, reserveSpace: device) work;
            0x2886 post table cudnnRNNBackwardWeights_v8(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], addGrad: i32, devSeqLengths: device, xDesc: object[CudnnRnnData], x: device, hDesc: object[CudnnTensor], hx: device, yDesc: object[CudnnRnnData], y: device, weightSpaceSize: i64, dweightSpace: device, workSpaceSize: i64, workSpace: device, reserveSpaceSize: i64, reserveSpace: device) work;
            0x2887 post table cudnnRNNForward(handle: handle[CudnnHandle], rnnDesc: object[CudnnRnn], fwdMode: i32, devSeqLengths: device, xDesc: object[CudnnRnnData], x: device, yDesc: object[CudnnRnnData], y: device, hDesc: object[CudnnTensor], hx: device, hy: device, cDesc: object[CudnnTensor], cx: device, cy: device, weightSpaceSize: i64, weightSpace: device, workSpaceSize: i64, workSpace: device, reserveSpaceSize: i64, reserveSpace: device) work;
            0x2888 call table cudnnRNNGetClip_v8(rnnDesc: object[CudnnRnn], clipMode: out[4], clipNanOpt: out[4], lclip: out[8], rclip: out[8]) pure;
            0x2889 call table cudnnRNNGetClip_v9(rnnDesc: object[CudnnRnn], clipMode: out[4], lclip: out[8], rclip: out[8]) pure;
            0x288a post table cudnnRNNSetClip_v8(rnnDesc: object[CudnnRnn], clipMode: i32, clipNanOpt: i32, lclip: f64, rclip: f64);
            0x288b post table cudnnRNNSetClip_v9(rnnDesc: object[CudnnRnn], clipMode: i32, lclip: f64, rclip: f64);
            0x288c post table cudnnReduceTensor(handle: handle[CudnnHandle], reduceTensorDesc: object[CudnnReduceTensor], indices: device, indicesSizeInBytes: i64, workspace: device, workspaceSizeInBytes: i64, alpha: in[8], aDesc: object[CudnnTensor], A: device, beta: in[8], cDesc: object[CudnnTensor], C: device) work;
            0x288d post table cudnnReorderFilterAndBias(handle: handle[CudnnHandle], filterDesc: object[CudnnFilter], reorderType: i32, filterData: device, reorderedFilterData: device, reorderBias: i32, biasData: device, reorderedBiasData: device) work;
            0x288e post table cudnnRestoreDropoutDescriptor(dropoutDesc: object[CudnnDropout], handle: handle[CudnnHandle], dropout: f32, states: device, stateSizeInBytes: i64, seed: i64);
            0x288f post table cudnnScaleTensor(handle: handle[CudnnHandle], yDesc: object[CudnnTensor], y: device, alpha: in[8]) work;
            0x2890 post table cudnnSetActivationDescriptor(activationDesc: object[CudnnActivation], mode: i32, reluNanOpt: i32, coef: f64);
            0x2891 post table cudnnSetActivationDescriptorSwishBeta(activationDesc: object[CudnnActivation], swish_beta: f64);
            0x2892 post table cudnnSetCTCLossDescriptor(ctcLossDesc: object[CudnnCtcLoss], compType: i32);
            0x2893 post table cudnnSetCTCLossDescriptorEx(ctcLossDesc: object[CudnnCtcLoss], compType: i32, normMode: i32, gradMode: i32);
            0x2894 post table cudnnSetCTCLossDescriptor_v8(ctcLossDesc: object[CudnnCtcLoss], compType: i32, normMode: i32, gradMode: i32, maxLabelLength: i32);
            0x2895 post table cudnnSetCTCLossDescriptor_v9(ctcLossDesc: object[CudnnCtcLoss], compType: i32, normMode: i32, ctcGradMode: i32, maxLabelLength: i32);
            0x2896 post table cudnnSetConvolution2dDescriptor(convDesc: object[CudnnConvolution], pad_h: i32, pad_w: i32, u: i32, v: i32, dilation_h: i32, dilation_w: i32, mode: i32, computeType: i32);
            0x2897 post table cudnnSetConvolutionGroupCount(convDesc: object[CudnnConvolution], groupCount: i32);
            0x2898 post table cudnnSetConvolutionMathType(convDesc: object[CudnnConvolution], mathType: i32);
            0x2899 post table cudnnSetConvolutionNdDescriptor(convDesc: object[CudnnConvolution], arrayLength: i32, padA: array[4, arrayLength], filterStrideA: array[4, arrayLength], dilationA: array[4, arrayLength], mode: i32, computeType: i32);
            0x289a post table cudnnSetConvolutionReorderType(convDesc: object[CudnnConvolution], reorderType: i32);
            0x289b post table cudnnSetDropoutDescriptor(dropoutDesc: object[CudnnDropout], handle: handle[CudnnHandle], dropout: f32, states: device, stateSizeInBytes: i64, seed: i64) work;
            0x289c post table cudnnSetFilter4dDescriptor(filterDesc: object[CudnnFilter], dataType: i32, format: i32, k: i32, c: i32, h: i32, w: i32);
            0x289d post table cudnnSetFilterNdDescriptor(filterDesc: object[CudnnFilter], dataType: i32, format: i32, nbDims: i32, filterDimA: array[4, nbDims]);
            0x289e post table cudnnSetLRNDescriptor(normDesc: object[CudnnLrn], lrnN: i32, lrnAlpha: f64, lrnBeta: f64, lrnK: f64);
            0x289f post table cudnnSetOpTensorDescriptor(opTensorDesc: object[CudnnOpTensor], opTensorOp: i32, opTensorCompType: i32, opTensorNanOpt: i32);
            0x28a0 post table cudnnSetPooling2dDescriptor(poolingDesc: object[CudnnPooling], mode: i32, maxpoolingNanOpt: i32, windowHeight: i32, windowWidth: i32, verticalPadding: i32, horizontalPadding: i32, verticalStride: i32, horizontalStride: i32);
            0x28a1 post table cudnnSetPoolingNdDescriptor(poolingDesc: object[CudnnPooling], mode: i32, maxpoolingNanOpt: i32, nbDims: i32, windowDimA: array[4, nbDims], paddingA: array[4, nbDims], strideA: array[4, nbDims]);
            0x28a2 post table cudnnSetRNNDescriptor_v8(rnnDesc: object[CudnnRnn], algo: i32, cellMode: i32, biasMode: i32, dirMode: i32, inputMode: i32, dataType: i32, mathPrec: i32, mathType: i32, inputSize: i32, hiddenSize: i32, projSize: i32, numLayers: i32, dropoutDesc: object[CudnnDropout], auxFlags: i32);
            0x28a3 post table cudnnSetReduceTensorDescriptor(reduceTensorDesc: object[CudnnReduceTensor], reduceTensorOp: i32, reduceTensorCompType: i32, reduceTensorNanOpt: i32, reduceTensorIndices: i32, reduceTensorIndicesType: i32);
            0x28a4 post table cudnnSetSpatialTransformerNdDescriptor(stDesc: object[CudnnSpatialTransformer], samplerType: i32, dataType: i32, nbDims: i32, dimA: array[4, nbDims]);
            0x28a5 post table cudnnSetTensor4dDescriptor(tensorDesc: object[CudnnTensor], format: i32, dataType: i32, n: i32, c: i32, h: i32, w: i32);
            0x28a6 post table cudnnSetTensor4dDescriptorEx(tensorDesc: object[CudnnTensor], dataType: i32, n: i32, c: i32, h: i32, w: i32, nStride: i32, cStride: i32, hStride: i32, wStride: i32);
            0x28a7 post table cudnnSetTensorNdDescriptor(tensorDesc: object[CudnnTensor], dataType: i32, nbDims: i32, dimA: array[4, nbDims], strideA: array[4, nbDims]);
            0x28a8 post table cudnnSetTensorNdDescriptorEx(tensorDesc: object[CudnnTensor], format: i32, dataType: i32, nbDims: i32, dimA: array[4, nbDims]);
            0x28a9 post table cudnnSetTensorTransformDescriptor(transformDesc: object[CudnnTensorTransform], nbDims: i32, destFormat: i32, padBeforeA: list[4, nbDims], padAfterA: list[4, nbDims], foldA: list[4, nbDims], direction: i32);
            0x28aa post table cudnnSoftmaxBackward(handle: handle[CudnnHandle], algo: i32, mode: i32, alpha: in[8], yDesc: object[CudnnTensor], y: device, dyDesc: object[CudnnTensor], dy: device, beta: in[8], dxDesc: object[CudnnTensor], dx: device) work;
            0x28ab post table cudnnSoftmaxForward(handle: handle[CudnnHandle], algo: i32, mode: i32, alpha: in[8], xDesc: object[CudnnTensor], x: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x28ac post table cudnnSpatialTfGridGeneratorBackward(handle: handle[CudnnHandle], stDesc: object[CudnnSpatialTransformer], dgrid: device, dtheta: device) work;
            0x28ad post table cudnnSpatialTfGridGeneratorForward(handle: handle[CudnnHandle], stDesc: object[CudnnSpatialTransformer], theta: device, grid: device) work;
            0x28ae post table cudnnSpatialTfSamplerBackward(handle: handle[CudnnHandle], stDesc: object[CudnnSpatialTransformer], alpha: in[8], xDesc: object[CudnnTensor], x: device, beta: in[8], dxDesc: object[CudnnTensor], dx: device, alphaDgrid: in[8], dyDesc: object[CudnnTensor], dy: device, grid: device, betaDgrid: in[8], dgrid: device) work;
            0x28af post table cudnnSpatialTfSamplerForward(handle: handle[CudnnHandle], stDesc: object[CudnnSpatialTransformer], alpha: in[8], xDesc: object[CudnnTensor], x: device, grid: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x28b0 post table cudnnTransformFilter(handle: handle[CudnnHandle], transDesc: object[CudnnTensorTransform], alpha: in[8], srcDesc: object[CudnnFilter], srcData: device, beta: in[8], destDesc: object[CudnnFilter], destData: device) work;
            0x28b1 post table cudnnTransformTensor(handle: handle[CudnnHandle], alpha: in[8], xDesc: object[CudnnTensor], x: device, beta: in[8], yDesc: object[CudnnTensor], y: device) work;
            0x28b2 post table cudnnTransformTensorEx(handle: handle[CudnnHandle], transDesc: object[CudnnTensorTransform], alpha: in[8], srcDesc: object[CudnnTensor], srcData: device, beta: in[8], destDesc: object[CudnnTensor], destData: device) work;
            0x28b3 call guest cudnnGetProperty(kind: i32, value: out[4]) pure;
        }
    };
}
