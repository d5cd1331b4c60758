// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions that programs may link and that this library does not implement.

// The functions of EGL and VDPAU: no display of a virtual machine uses the GPU.
unsupported! {
    cudaEGLStreamConsumerAcquireFrame
    cudaEGLStreamConsumerConnect
    cudaEGLStreamConsumerConnectWithFlags
    cudaEGLStreamConsumerDisconnect
    cudaEGLStreamConsumerReleaseFrame
    cudaEGLStreamProducerConnect
    cudaEGLStreamProducerDisconnect
    cudaEGLStreamProducerPresentFrame
    cudaEGLStreamProducerReturnFrame
    cudaEventCreateFromEGLSync
    cudaGraphicsEGLRegisterImage
    cudaGraphicsResourceGetMappedEglFrame
    cudaGraphicsVDPAURegisterOutputSurface
    cudaGraphicsVDPAURegisterVideoSurface
    cudaVDPAUGetDevice
    cudaVDPAUSetVDPAUDevice
}

// It makes groups of different sizes, which a host's driver supports from CUDA 13.1 on. The driver API of 13.0 makes
// groups of one size (`cudaDevSmResourceSplitByCount`), and cannot split a group again.
unsupported! {
    cudaDevSmResourceSplit
}

// CUDA 13.3 to 13.5 added these, and each needs a driver of its release. The guest's libcuda is of 13.0.
unsupported! {
    cudaMemGetLocationInfo
    cudaStreamBeginRecaptureToGraph
    cudaStreamBeginRecaptureToGraph_ptsz
    cudaSubgridCreate
    cudaSubgridWorkerGridCreate
    cudaSubgridWorksetCreate
}

// CUDA 13 removed it. NVIDIA's driver of CUDA 13 refuses `cuLaunchCooperativeKernelMultiDevice`, and so does the
// guest's libcuda.
unsupported! {
    cudaLaunchCooperativeKernelMultiDevice
}

// NVIDIA's runtime exports this name, but no header declares it, so its arguments are unknown.
unsupported! {
    __cudaGetProcAddress
}
