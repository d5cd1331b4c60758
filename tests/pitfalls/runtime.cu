// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// The runtime API: last error, properties, symbols, launches by <<<>>>, both APIs on one stream
// (pitfalls 1, 16, 20, 28, 30 to 32, 39, 46, 49, 55, 57, 58, 68, 82).
#include "harness.h"
#include <atomic>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <thread>

#define CKR_IS(CALL, CODE)                                                                                             \
    do {                                                                                                               \
        cudaError_t code_ = (CALL);                                                                                    \
        if (code_ != (CODE))                                                                                           \
            pitfall::fail("%s:%d: %s returned %d (%s), expected %d", __FILE__, __LINE__, #CALL, (int)code_,             \
                          cudaGetErrorName(code_), (int)(CODE));                                                       \
    } while (0)
#define CKR(CALL) CKR_IS(CALL, cudaSuccess)
#define OBSERVE(KEY, CALL) pitfall::observed("%s=%d", KEY, (int)(CALL))

__global__ void step(unsigned *word, unsigned factor, unsigned term) { *word = *word * factor + term; }
__global__ void hold(volatile unsigned *flag, long long clocks) {
    long long start = clock64();
    while (*flag == 0 && clock64() - start < clocks) {
    }
}
__global__ void illegal(unsigned *word) { *word = 1; }
__device__ unsigned variable = 11;
__device__ unsigned array[64];
__constant__ unsigned constant[4] = {1, 2, 3, 4};
__global__ void read_symbols(unsigned *out) { *out = variable + array[63] * 10 + constant[3] * 100; }

static const long long hold_clocks = 15'000'000'000;

PITFALL(01, runtime_async_dtoh_pageable) {
    unsigned *word, *flag, got = 0;
    cudaStream_t stream;
    CKR(cudaMalloc(&word, 4));
    CKR(cudaMemset(word, 0, 4));
    CKR(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    *flag = 0;
    hold<<<1, 1, 0, stream>>>(flag, hold_clocks);
    step<<<1, 1, 0, stream>>>(word, 1, 42);
    CKR(cudaGetLastError());
    std::thread opener([&] {
        usleep(50'000);
        *(volatile unsigned *)flag = 1;
    });
    CKR(cudaMemcpyAsync(&got, word, 4, cudaMemcpyDeviceToHost, stream));
    EXPECT(got == 42, "%u", got);
    opener.join();
}

PITFALL(16, runtime_pointer_attributes) {
    cudaPointerAttributes attributes;
    int on_stack = 0;
    std::vector<char> heap(10000);
    char *pinned, *device;
    CKR(cudaFree(nullptr));
    for (void *pageable : {(void *)&on_stack, (void *)heap.data()}) {
        memset(&attributes, 0x55, sizeof attributes);
        CKR(cudaPointerGetAttributes(&attributes, pageable));
        EXPECT(attributes.type == cudaMemoryTypeUnregistered, "type %d of pageable memory", (int)attributes.type);
        EXPECT(attributes.devicePointer == nullptr, "device pointer %p of pageable memory", attributes.devicePointer);
        pitfall::observed("pageable_device=%d", attributes.device);
        pitfall::observed("pageable_host_pointer=%s", attributes.hostPointer == pageable ? "itself" : attributes.hostPointer ? "other" : "null");
    }
    CKR(cudaMallocHost(&pinned, 10000));
    CKR(cudaMalloc(&device, 10000));
    CKR(cudaPointerGetAttributes(&attributes, pinned + 5000));
    EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == pinned + 5000 && attributes.device == 0, "type %d", (int)attributes.type);
    CKR(cudaPointerGetAttributes(&attributes, device + 5000));
    EXPECT(attributes.type == cudaMemoryTypeDevice && attributes.devicePointer == device + 5000, "type %d", (int)attributes.type);
    EXPECT(attributes.hostPointer == nullptr, "host pointer %p of device memory", attributes.hostPointer);
    CKR(cudaFreeHost(pinned));
    CKR(cudaFree(device));
    CKR(cudaGetLastError());
}

// Launches of the runtime and of the driver API alternate on one stream, with no synchronisation between.
PITFALL(20, runtime_and_driver_on_one_stream) {
    unsigned *word, expected = 1, got = 0;
    cudaStream_t stream;
    CKR(cudaMalloc(&word, 4));
    CKR(cudaMemcpy(word, &expected, 4, cudaMemcpyHostToDevice));
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUcontext current = nullptr, primary = nullptr;
    EXPECT(cuCtxGetCurrent(&current) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS, "contexts");
    EXPECT(current == primary, "the runtime's context is not the primary one");
    cudaFunction_t function;
    CKR(cudaGetFuncBySymbol(&function, (const void *)step));
    for (unsigned i = 0; i < 200; i++) {
        step<<<1, 1, 0, stream>>>(word, 3, i);
        unsigned factor = 5, term = i + 1;
        void *params[] = {&word, &factor, &term};
        CUresult code = cuLaunchKernel((CUfunction)function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, params, nullptr);
        EXPECT(code == CUDA_SUCCESS, "cuLaunchKernel returned %d", (int)code);
        CKR(cudaLaunchKernel((const void *)step, dim3(1), dim3(1), params, 0, stream));
        expected = ((expected * 3 + i) * 5 + i + 1) * 5 + i + 1;
    }
    CKR(cudaMemcpyAsync(&got, word, 4, cudaMemcpyDeviceToHost, stream));
    CKR(cudaStreamSynchronize(stream));
    EXPECT(got == expected, "%u, expected %u", got, expected);
    // Memory and events cross over, too.
    CUdeviceptr memory = 0;
    EXPECT(cuMemAlloc(&memory, 4096) == CUDA_SUCCESS, "cuMemAlloc");
    CKR(cudaMemset((void *)memory, 7, 4096));
    CKR(cudaFree((void *)memory));
    cudaEvent_t event;
    CKR(cudaEventCreate(&event));
    EXPECT(cuEventRecord((CUevent)event, (CUstream)stream) == CUDA_SUCCESS, "cuEventRecord");
    CKR(cudaEventSynchronize(event));
}

PITFALL(28, rejected_runtime_launches) {
    unsigned *word, got = 9;
    CKR(cudaMalloc(&word, 4));
    CKR(cudaMemset(word, 0, 4));
    step<<<0, 1>>>(word, 1, 1);
    // Documented is cudaErrorInvalidConfiguration; newer runtimes answer cudaErrorInvalidValue.
    cudaError_t peeked = cudaPeekAtLastError();
    EXPECT(peeked == cudaErrorInvalidConfiguration || peeked == cudaErrorInvalidValue, "%d", (int)peeked);
    CKR_IS(cudaGetLastError(), peeked);
    CKR(cudaGetLastError());
    CKR(cudaDeviceSynchronize());
    pitfall::observed("no_blocks=%d", (int)peeked);
    step<<<1, 2048>>>(word, 1, 1);
    cudaError_t large = cudaGetLastError();
    EXPECT(large == cudaErrorInvalidConfiguration || large == cudaErrorInvalidValue, "%d", (int)large);
    pitfall::observed("block_too_large=%d", (int)large);
    step<<<1, 1, 1 << 20>>>(word, 1, 1);
    CKR_IS(cudaGetLastError(), cudaErrorInvalidValue);
    CKR(cudaDeviceSynchronize());
    step<<<1, 1>>>(word, 1, 1);
    CKR(cudaGetLastError());
    CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 1, "%u", got);
}

PITFALL(30, sticky_error_stays_in_the_runtime) {
    unsigned *word;
    int current = 0;
    CKR(cudaMalloc(&word, 4));
    illegal<<<1, 1>>>((unsigned *)0x10);
    CKR(cudaPeekAtLastError());
    CKR_IS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
    for (int i = 0; i < 3; i++) {
        void *memory = nullptr;
        CKR_IS(cudaGetLastError(), cudaErrorIllegalAddress);
        CKR_IS(cudaMalloc(&memory, 4096), cudaErrorIllegalAddress);
        CKR_IS(cudaMemset(word, 0, 4), cudaErrorIllegalAddress);
    }
    step<<<1, 1>>>(word, 1, 1);
    CKR_IS(cudaGetLastError(), cudaErrorIllegalAddress);
    OBSERVE("get_device", cudaGetDevice(&current));
    OBSERVE("free", cudaFree(word));
    OBSERVE("reset", cudaDeviceReset());
    void *memory = nullptr;
    OBSERVE("malloc_after_reset", cudaMalloc(&memory, 4096));
    OBSERVE("last_after_reset", cudaGetLastError());
    _exit(write(STDOUT_FILENO, "@PASS\n", 6) == 6 ? 0 : 1);
}

PITFALL(31, last_error_is_the_threads) {
    void *memory = nullptr;
    CKR(cudaFree(nullptr));
    CKR_IS(cudaMalloc(&memory, size_t(1) << 50), cudaErrorMemoryAllocation);
    std::thread([] {
        CKR(cudaPeekAtLastError());
        void *mine = nullptr;
        CKR(cudaMalloc(&mine, 4096));
        CKR_IS(cudaSetDevice(9999), cudaErrorInvalidDevice);
        CKR_IS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
        CKR(cudaFree(mine));
    }).join();
    CKR(cudaMalloc(&memory, 4096)); // a success leaves it
    CKR_IS(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    CKR_IS(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    CKR_IS(cudaSetDevice(-1), cudaErrorInvalidDevice); // a later failure replaces it
    CKR_IS(cudaGetLastError(), cudaErrorInvalidDevice);
    CKR(cudaGetLastError());
    CKR(cudaPeekAtLastError());
    // The driver API has no part in it.
    CUdeviceptr none = 0;
    EXPECT(cuMemAlloc(&none, 0) != CUDA_SUCCESS, "cuMemAlloc of nothing");
    CKR(cudaGetLastError());
}

PITFALL(31, not_ready_and_last_error) {
    unsigned *flag;
    cudaStream_t stream;
    cudaEvent_t event;
    CKR(cudaHostAlloc(&flag, 4, cudaHostAllocMapped));
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CKR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *flag = 0;
    hold<<<1, 1, 0, stream>>>(flag, hold_clocks);
    CKR(cudaEventRecord(event, stream));
    CKR(cudaGetLastError());
    CKR_IS(cudaStreamQuery(stream), cudaErrorNotReady);
    OBSERVE("last_error_after_stream_query", cudaGetLastError());
    CKR_IS(cudaEventQuery(event), cudaErrorNotReady);
    OBSERVE("last_error_after_event_query", cudaGetLastError());
    *(volatile unsigned *)flag = 1;
    CKR(cudaStreamSynchronize(stream));
    cudaPointerAttributes attributes;
    int local;
    CKR(cudaPointerGetAttributes(&attributes, &local));
    CKR(cudaGetLastError()); // what the runtime asks for itself leaves no trace
    cudaFuncAttributes function;
    OBSERVE("attributes_of_no_kernel", cudaFuncGetAttributes(&function, (const void *)&local));
    OBSERVE("last_error_after_it", cudaGetLastError());
}

PITFALL(32, runtime_names_and_strings) {
    uint64_t hash = 1469598103934665603ull;
    for (int code = 0; code < 1100; code++) {
        const char *name = cudaGetErrorName((cudaError_t)code), *text = cudaGetErrorString((cudaError_t)code);
        EXPECT(name && text, "code %d has a null name or text", code);
        EXPECT(name == cudaGetErrorName((cudaError_t)code), "the name of code %d moved", code);
        if (strcmp(name, cudaGetErrorName((cudaError_t)1099)) != 0)
            pitfall::observed("%d=%s", code, name);
        for (const char *at = text; *at; at++)
            hash = (hash ^ (unsigned char)*at) * 1099511628211ull;
    }
    pitfall::observed("unknown=%s", cudaGetErrorName((cudaError_t)1099));
    pitfall::observed("hash_of_strings=%llx", (unsigned long long)hash);
}

// Compares each field of the properties with the corresponding attribute: a shifted structure is detected.
PITFALL(49, properties_match_attributes) {
    cudaDeviceProp prop;
    struct {
        cudaDeviceProp prop;
        unsigned char guard[256];
    } guarded;
    memset(&guarded, 0xa5, sizeof guarded);
    CKR(cudaGetDeviceProperties(&guarded.prop, 0));
    for (unsigned i = 0; i < 256; i++)
        EXPECT(guarded.guard[i] == 0xa5, "cudaGetDeviceProperties writes %u bytes beyond the structure", i + 1);
    prop = guarded.prop;
    auto attribute = [](cudaDeviceAttr which) {
        int value = -1;
        CKR(cudaDeviceGetAttribute(&value, which, 0));
        return (long long)value;
    };
#define FIELD(NAME, ATTRIBUTE)                                                                                         \
    EXPECT((long long)prop.NAME == attribute(ATTRIBUTE), #NAME " is %lld, the attribute %lld", (long long)prop.NAME, attribute(ATTRIBUTE))
    FIELD(sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock);
    FIELD(regsPerBlock, cudaDevAttrMaxRegistersPerBlock);
    FIELD(warpSize, cudaDevAttrWarpSize);
    FIELD(memPitch, cudaDevAttrMaxPitch);
    FIELD(maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock);
    FIELD(maxThreadsDim[0], cudaDevAttrMaxBlockDimX);
    FIELD(maxThreadsDim[1], cudaDevAttrMaxBlockDimY);
    FIELD(maxThreadsDim[2], cudaDevAttrMaxBlockDimZ);
    FIELD(maxGridSize[0], cudaDevAttrMaxGridDimX);
    FIELD(maxGridSize[1], cudaDevAttrMaxGridDimY);
    FIELD(maxGridSize[2], cudaDevAttrMaxGridDimZ);
    FIELD(totalConstMem, cudaDevAttrTotalConstantMemory);
    FIELD(major, cudaDevAttrComputeCapabilityMajor);
    FIELD(minor, cudaDevAttrComputeCapabilityMinor);
    FIELD(textureAlignment, cudaDevAttrTextureAlignment);
    FIELD(texturePitchAlignment, cudaDevAttrTexturePitchAlignment);
    FIELD(multiProcessorCount, cudaDevAttrMultiProcessorCount);
    FIELD(integrated, cudaDevAttrIntegrated);
    FIELD(canMapHostMemory, cudaDevAttrCanMapHostMemory);
    FIELD(maxTexture1D, cudaDevAttrMaxTexture1DWidth);
    FIELD(maxTexture2D[0], cudaDevAttrMaxTexture2DWidth);
    FIELD(maxTexture2D[1], cudaDevAttrMaxTexture2DHeight);
    FIELD(maxTexture3D[0], cudaDevAttrMaxTexture3DWidth);
    FIELD(maxTexture3D[1], cudaDevAttrMaxTexture3DHeight);
    FIELD(maxTexture3D[2], cudaDevAttrMaxTexture3DDepth);
    FIELD(maxSurface1D, cudaDevAttrMaxSurface1DWidth);
    FIELD(surfaceAlignment, cudaDevAttrSurfaceAlignment);
    FIELD(concurrentKernels, cudaDevAttrConcurrentKernels);
    FIELD(ECCEnabled, cudaDevAttrEccEnabled);
    FIELD(pciBusID, cudaDevAttrPciBusId);
    FIELD(pciDeviceID, cudaDevAttrPciDeviceId);
    FIELD(pciDomainID, cudaDevAttrPciDomainId);
    FIELD(tccDriver, cudaDevAttrTccDriver);
    FIELD(asyncEngineCount, cudaDevAttrAsyncEngineCount);
    FIELD(unifiedAddressing, cudaDevAttrUnifiedAddressing);
    FIELD(memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth);
    FIELD(l2CacheSize, cudaDevAttrL2CacheSize);
    FIELD(persistingL2CacheMaxSize, cudaDevAttrMaxPersistingL2CacheSize);
    FIELD(maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor);
    FIELD(streamPrioritiesSupported, cudaDevAttrStreamPrioritiesSupported);
    FIELD(globalL1CacheSupported, cudaDevAttrGlobalL1CacheSupported);
    FIELD(localL1CacheSupported, cudaDevAttrLocalL1CacheSupported);
    FIELD(sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor);
    FIELD(regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor);
    FIELD(managedMemory, cudaDevAttrManagedMemory);
    FIELD(isMultiGpuBoard, cudaDevAttrIsMultiGpuBoard);
    FIELD(multiGpuBoardGroupID, cudaDevAttrMultiGpuBoardGroupID);
    FIELD(hostNativeAtomicSupported, cudaDevAttrHostNativeAtomicSupported);
    FIELD(pageableMemoryAccess, cudaDevAttrPageableMemoryAccess);
    FIELD(concurrentManagedAccess, cudaDevAttrConcurrentManagedAccess);
    FIELD(computePreemptionSupported, cudaDevAttrComputePreemptionSupported);
    FIELD(canUseHostPointerForRegisteredMem, cudaDevAttrCanUseHostPointerForRegisteredMem);
    FIELD(cooperativeLaunch, cudaDevAttrCooperativeLaunch);
    FIELD(sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin);
    FIELD(pageableMemoryAccessUsesHostPageTables, cudaDevAttrPageableMemoryAccessUsesHostPageTables);
    FIELD(directManagedMemAccessFromHost, cudaDevAttrDirectManagedMemAccessFromHost);
    FIELD(maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor);
    FIELD(accessPolicyMaxWindowSize, cudaDevAttrMaxAccessPolicyWindowSize);
    FIELD(reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock);
    FIELD(sparseCudaArraySupported, cudaDevAttrSparseCudaArraySupported);
    FIELD(hostRegisterSupported, cudaDevAttrHostRegisterSupported);
    FIELD(hostRegisterReadOnlySupported, cudaDevAttrHostRegisterReadOnlySupported);
    FIELD(timelineSemaphoreInteropSupported, cudaDevAttrTimelineSemaphoreInteropSupported);
    FIELD(memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported);
    FIELD(gpuDirectRDMASupported, cudaDevAttrGPUDirectRDMASupported);
    FIELD(clusterLaunch, cudaDevAttrClusterLaunch);
    FIELD(deferredMappingCudaArraySupported, cudaDevAttrDeferredMappingCudaArraySupported);
    FIELD(ipcEventSupported, cudaDevAttrIpcEventSupport);
    FIELD(memoryPoolSupportedHandleTypes, cudaDevAttrMemoryPoolSupportedHandleTypes);
    size_t free_bytes = 0, total = 0;
    CKR(cudaMemGetInfo(&free_bytes, &total));
    EXPECT(prop.totalGlobalMem == total, "totalGlobalMem %zu, cudaMemGetInfo %zu", prop.totalGlobalMem, total);
    CUuuid uuid;
    EXPECT(cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS && memcmp(&uuid, &prop.uuid, 16) == 0, "the UUID differs from cuDeviceGetUuid's");
    char name[256] = "";
    EXPECT(cuDeviceGetName(name, sizeof name, 0) == CUDA_SUCCESS && strcmp(name, prop.name) == 0, "name %s, cuDeviceGetName %s", prop.name, name);
    pitfall::observed("hw.name=%s", prop.name);
    // The whole structure, eight bytes at a time.
    std::string hex;
    for (size_t i = 256; i < sizeof prop; i += 8) {
        char word[24];
        unsigned long long value;
        memcpy(&value, (char *)&prop + i, 8);
        snprintf(word, sizeof word, "%llx ", value);
        hex += word;
    }
    pitfall::observed("hw.prop=%s", hex.c_str());
    for (int which = 1; which < 150; which++) {
        int value = -1;
        cudaError_t code = cudaDeviceGetAttribute(&value, (cudaDeviceAttr)which, 0);
        pitfall::observed("hw.attribute_%d=%d,%d", which, (int)code, code == cudaSuccess ? value : 0);
    }
}

__global__ void read_texture(cudaTextureObject_t texture, float *out) { out[threadIdx.x] = tex2D<float>(texture, threadIdx.x + 0.5f, 1.5f); }

// Arrays and textures of the runtime: copies in all directions, and descriptions that are read back.
PITFALL(55, runtime_textures) {
    const cudaChannelFormatDesc floats = cudaCreateChannelDesc<float>();
    const float data[] = {1, 2, 3, 4, 5, 6, 7, 8};
    float got[8] = {}, *out;
    cudaArray_t array, other;
    CKR(cudaMallocArray(&array, &floats, 4, 2));
    CKR(cudaMalloc3DArray(&other, &floats, make_cudaExtent(4, 2, 0)));
    CKR(cudaMemcpy2DToArray(array, 0, 0, data, 16, 16, 2, cudaMemcpyHostToDevice));
    CKR(cudaMemcpy2DArrayToArray(other, 0, 0, array, 0, 0, 16, 2, cudaMemcpyDeviceToDevice));
    cudaMemcpy3DParms copy = {};
    copy.srcArray = other;
    copy.dstPtr = make_cudaPitchedPtr(got, 16, 4, 2);
    copy.extent = make_cudaExtent(4, 2, 1);
    copy.kind = cudaMemcpyDeviceToHost;
    CKR(cudaMemcpy3D(&copy));
    EXPECT(memcmp(got, data, sizeof data) == 0, "an array differs");
    cudaChannelFormatDesc channels;
    cudaExtent extent;
    unsigned flags;
    CKR(cudaArrayGetInfo(&channels, &extent, &flags, other));
    EXPECT(channels.x == 32 && channels.y == 0 && channels.f == cudaChannelFormatKindFloat, "%d and %d bits of kind %d", channels.x, channels.y, (int)channels.f);
    EXPECT(extent.width == 4 && extent.height == 2 && extent.depth == 0 && flags == 0, "%zu x %zu x %zu, flags %u", extent.width, extent.height, extent.depth, flags);
    cudaResourceDesc resource = {}, told;
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    cudaTextureDesc reads = {}, how;
    reads.addressMode[0] = reads.addressMode[1] = cudaAddressModeClamp;
    reads.readMode = cudaReadModeElementType;
    cudaTextureObject_t texture;
    CKR(cudaCreateTextureObject(&texture, &resource, &reads, nullptr));
    CKR(cudaMalloc(&out, 16));
    read_texture<<<1, 4>>>(texture, out);
    CKR(cudaMemcpy(got, out, 16, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(got, data + 4, 16) == 0, "the texture reads %g %g %g %g", got[0], got[1], got[2], got[3]);
    CKR(cudaGetTextureObjectResourceDesc(&told, texture));
    EXPECT(told.resType == cudaResourceTypeArray && told.res.array.array == array, "the texture is of another array");
    CKR(cudaGetTextureObjectTextureDesc(&how, texture));
    EXPECT(how.addressMode[1] == cudaAddressModeClamp && how.filterMode == cudaFilterModePoint && how.readMode == cudaReadModeElementType, "mode %d, filter %d, read mode %d",
           (int)how.addressMode[1], (int)how.filterMode, (int)how.readMode);
    CKR(cudaDestroyTextureObject(texture));
    // From rows in memory.
    float *memory;
    size_t pitch;
    CKR(cudaMallocPitch(&memory, &pitch, 16, 2));
    CKR(cudaMemcpy2DFromArray(memory, pitch, array, 0, 0, 16, 2, cudaMemcpyDeviceToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D.devPtr = memory;
    resource.res.pitch2D.desc = floats;
    resource.res.pitch2D.width = 4;
    resource.res.pitch2D.height = 2;
    resource.res.pitch2D.pitchInBytes = pitch;
    CKR(cudaCreateTextureObject(&texture, &resource, &reads, nullptr));
    read_texture<<<1, 4>>>(texture, out);
    CKR(cudaMemcpy(got, out, 16, cudaMemcpyDeviceToHost));
    EXPECT(memcmp(got, data + 4, 16) == 0, "the texture of rows reads %g %g %g %g", got[0], got[1], got[2], got[3]);
    CKR(cudaGetTextureObjectResourceDesc(&told, texture));
    EXPECT(told.resType == cudaResourceTypePitch2D && told.res.pitch2D.devPtr == memory && told.res.pitch2D.pitchInBytes == pitch && told.res.pitch2D.desc.x == 32,
           "the texture is of other memory");
    CKR(cudaDestroyTextureObject(texture));
    CKR(cudaFreeArray(array));
    CKR(cudaFreeArray(other));
    CKR(cudaFreeArray(nullptr));
}

PITFALL(55, symbols) {
    unsigned *out, value = 0, got[64] = {}, fresh[64];
    CKR(cudaMalloc(&out, 4));
    read_symbols<<<1, 1>>>(out);
    CKR(cudaMemcpy(&value, out, 4, cudaMemcpyDeviceToHost));
    EXPECT(value == 11 + 0 + 400, "%u", value);
    for (unsigned i = 0; i < 64; i++)
        fresh[i] = i;
    unsigned five = 5;
    cudaStream_t stream;
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CKR(cudaMemcpyToSymbol(variable, &five, 4));
    CKR(cudaMemcpyToSymbolAsync(array, fresh, sizeof fresh, 0, cudaMemcpyHostToDevice, stream));
    CKR(cudaMemcpyToSymbolAsync(constant, &five, 4, 12, cudaMemcpyHostToDevice, stream));
    read_symbols<<<1, 1, 0, stream>>>(out);
    CKR(cudaMemcpyAsync(&value, out, 4, cudaMemcpyDeviceToHost, stream));
    CKR(cudaStreamSynchronize(stream));
    EXPECT(value == 5 + 630 + 500, "%u", value);
    CKR(cudaMemcpyFromSymbol(got, array, 16 * 4, 8 * 4));
    for (unsigned i = 0; i < 16; i++)
        EXPECT(got[i] == i + 8, "word %u is %u", i, got[i]);
    void *address = nullptr;
    size_t size = 0;
    CKR(cudaGetSymbolAddress(&address, array));
    CKR(cudaGetSymbolSize(&size, array));
    EXPECT(size == 256, "%zu bytes", size);
    CKR(cudaMemset(address, 0, 256));
    CKR(cudaMemcpyFromSymbol(got, array, 256));
    EXPECT(got[0] == 0 && got[63] == 0, "the symbol's address is another memory");
    OBSERVE("beyond_the_symbol", cudaMemcpyToSymbol(array, fresh, 256, 4));
    OBSERVE("no_symbol", cudaGetSymbolAddress(&address, (const void *)&five));
    cudaGetLastError();
}

PITFALL(58, runtime_reset) {
    for (unsigned round = 0; round < 8; round++) {
        unsigned *word, value = round, got = 0;
        CKR(cudaMalloc(&word, 4));
        CKR(cudaMemcpy(word, &value, 4, cudaMemcpyHostToDevice));
        step<<<1, 1>>>(word, 10, 1); // its module is loaded again
        CKR(cudaGetLastError());
        CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
        EXPECT(got == round * 10 + 1, "round %u: %u", round, got);
        unsigned symbol = 0, changed = 1000 + round;
        CKR(cudaMemcpyFromSymbol(&symbol, variable, 4));
        EXPECT(symbol == 11, "round %u: the variable is %u and not its initial value", round, symbol);
        CKR(cudaMemcpyToSymbol(variable, &changed, 4));
        CKR(cudaDeviceReset());
    }
}

PITFALL(68, runtime_pools) {
    int supported = 0, handles = -1;
    CKR(cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, 0));
    CKR(cudaDeviceGetAttribute(&handles, cudaDevAttrMemoryPoolSupportedHandleTypes, 0));
    OBSERVE("hw.handle_types", handles);
    if (!supported)
        pitfall::skip("no memory pools");
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool, own, now;
    CKR(cudaMemPoolCreate(&pool, &properties));
    CKR(cudaDeviceGetDefaultMemPool(&own, 0));
    CKR(cudaDeviceGetMemPool(&now, 0));
    EXPECT(own == now && own != pool, "the device's pool is another");
    unsigned long long threshold = ~0ull, used = 0, reserved = 0;
    CKR(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    cudaStream_t stream;
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (unsigned round = 0; round < 20; round++) {
        unsigned *word, *other, got[2] = {};
        CKR(cudaMallocFromPoolAsync(&word, 4 << 20, pool, stream));
        CKR(cudaMallocAsync(&other, 1000, stream));
        EXPECT(word != other, "one address twice");
        CKR(cudaMemsetAsync(word, 0, 4 << 20, stream));
        CKR(cudaMemsetAsync(other, 0, 1000, stream));
        step<<<1, 1, 0, stream>>>(word, 3, round);
        step<<<1, 1, 0, stream>>>(other, 3, round + 1);
        CKR(cudaGetLastError());
        CKR(cudaMemcpyAsync(&got[0], word, 4, cudaMemcpyDeviceToHost, stream));
        CKR(cudaMemcpyAsync(&got[1], other, 4, cudaMemcpyDeviceToHost, stream));
        CKR(cudaFreeAsync(word, stream));
        CKR(cudaStreamSynchronize(stream));
        EXPECT(got[0] == round && got[1] == round + 1, "%u and %u", got[0], got[1]);
        CKR(cudaFree(other));
    }
    CKR(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    CKR(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    EXPECT(used == 0 && reserved >= 4 << 20, "%llu bytes used, %llu reserved", used, reserved);
    CKR(cudaMemPoolTrimTo(pool, 0));
    CKR(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved));
    EXPECT(reserved == 0, "%llu bytes reserved after a trim to 0", reserved);
    CKR(cudaDeviceSetMemPool(0, pool));
    CKR(cudaDeviceGetMemPool(&now, 0));
    EXPECT(now == pool, "the pool was not set");
    CKR(cudaMemPoolDestroy(pool));
    CKR(cudaDeviceGetMemPool(&now, 0));
    EXPECT(now == own, "the destroyed pool is the device's");
    void *much = nullptr;
    CKR_IS(cudaMallocAsync(&much, 1ull << 50, stream), cudaErrorMemoryAllocation);
    CKR_IS(cudaGetLastError(), cudaErrorMemoryAllocation);
}

// A function of CUDA 13.1's runtime, by its name: earlier ones lack it.
template <typename... A> static int newer(const char *name, A... arguments) {
    auto *found = (int (*)(A...))dlsym(RTLD_DEFAULT, name);
    if (!found)
        pitfall::skip("the runtime has no %s", name);
    return found(arguments...);
}

PITFALL(25, runtime_green_contexts) {
    CKR(cudaFree(nullptr));
    // A CUdevResource: 144 bytes, with the multiprocessors after the first 96.
    struct alignas(8) Resource {
        unsigned type, internal[23], count, rest[11];
    } all = {}, group = {}, left = {}, has = {};
    static_assert(sizeof(Resource) == 144);
    void *descriptor = nullptr, *green = nullptr, *device = nullptr;
    int code = newer("cudaDeviceGetDevResource", 0, &all, 1u);
    if (code == cudaErrorNotSupported || code == cudaErrorCallRequiresNewerDriver)
        pitfall::skip("the driver has no resources");
    EXPECT(code == 0 && all.type == 1 && all.count >= 1, "%d: %u multiprocessors", code, all.count);
    unsigned groups = 1;
    code = newer("cudaDevSmResourceSplitByCount", &group, &groups, (const Resource *)&all, &left, 0u, 0u);
    EXPECT(code == 0 && groups == 1 && group.count + left.count == all.count, "%d: %u and %u", code, group.count, left.count);
    code = newer("cudaDevResourceGenerateDesc", &descriptor, &group, 1u);
    EXPECT(code == 0 && descriptor, "%d", code);
    code = newer("cudaGreenCtxCreate", &green, descriptor, 0, 0u);
    EXPECT(code == 0 && green, "%d", code);
    code = newer("cudaExecutionCtxGetDevResource", green, &has, 1u);
    EXPECT(code == 0 && has.count == group.count, "%d: %u in place of %u", code, has.count, group.count);
    code = newer("cudaDeviceGetExecutionCtx", &device, 0);
    EXPECT(code == 0 && device && device != green, "%d", code);
    unsigned long long ids[2] = {};
    int of = -1;
    EXPECT(newer("cudaExecutionCtxGetId", green, &ids[0]) == 0 && newer("cudaExecutionCtxGetId", device, &ids[1]) == 0 && ids[0] != ids[1],
           "ids %llu and %llu", ids[0], ids[1]);
    EXPECT(newer("cudaExecutionCtxGetDevice", &of, green) == 0 && of == 0, "device %d", of);
    cudaStream_t stream = nullptr;
    cudaEvent_t event;
    code = newer("cudaExecutionCtxStreamCreate", &stream, green, (unsigned)cudaStreamNonBlocking, 0);
    EXPECT(code == 0 && stream, "%d", code);
    code = newer("cudaStreamGetDevResource", stream, &has, 1u);
    EXPECT(code == 0 && has.count == group.count, "%d: %u in place of %u", code, has.count, group.count);
    unsigned *word, got = 0;
    CKR(cudaMalloc(&word, 4));
    CKR(cudaMemset(word, 0, 4));
    CKR(cudaDeviceSynchronize());
    step<<<1, 1, 0, stream>>>(word, 1, 5);
    CKR(cudaGetLastError());
    CKR(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    EXPECT(newer("cudaExecutionCtxRecordEvent", green, event) == 0 && newer("cudaExecutionCtxWaitEvent", device, event) == 0,
           "events of execution contexts");
    EXPECT(newer("cudaExecutionCtxSynchronize", green) == 0, "a wait for a green context");
    CKR(cudaEventQuery(event));
    CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 5, "%u", got);
    // The current context is the same as before.
    CUcontext current = nullptr;
    EXPECT(cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == device, "another context is current");
    CKR(cudaStreamDestroy(stream));
    EXPECT(newer("cudaExecutionCtxDestroy", green) == 0, "a green context does not end");
    CKR(cudaFree(word));
    CKR(cudaDeviceSynchronize());
}

// The runtime's structure of a conditional node returns the bodies' graphs.
PITFALL(39, runtime_graphs_have_conditional_nodes) {
    for (unsigned value : {0u, 1u}) {
        cudaGraph_t graph;
        cudaGraphConditionalHandle handle;
        CKR(cudaGraphCreate(&graph, 0));
        CKR(cudaGraphConditionalHandleCreate(&handle, graph, value, cudaGraphCondAssignDefault));
        cudaGraphNodeParams params = {};
        params.type = cudaGraphNodeTypeConditional;
        params.conditional.handle = handle;
        params.conditional.type = cudaGraphCondTypeIf;
        params.conditional.size = 2;
        cudaGraphNode_t node;
        CKR(cudaGraphAddNode(&node, graph, nullptr, nullptr, 0, &params));
        unsigned *words = nullptr;
        CKR(cudaMalloc(&words, 8));
        CKR(cudaMemset(words, 0, 8));
        for (int body = 0; body < 2; body++) {
            cudaMemsetParams fill = {};
            fill.dst = words + body;
            fill.value = 7 + body;
            fill.elementSize = 4;
            fill.width = fill.height = 1;
            cudaGraphNode_t inner;
            CKR(cudaGraphAddMemsetNode(&inner, params.conditional.phGraph_out[body], nullptr, 0, &fill));
        }
        cudaGraphExec_t exec;
        CKR(cudaGraphInstantiate(&exec, graph, 0));
        CKR(cudaGraphLaunch(exec, 0));
        unsigned got[2] = {};
        CKR(cudaMemcpy(got, words, 8, cudaMemcpyDeviceToHost));
        EXPECT(got[0] == (value ? 7u : 0u) && got[1] == (value ? 0u : 8u), "with %u the words are %u and %u", value, got[0], got[1]);
        CKR(cudaGraphExecDestroy(exec));
        CKR(cudaGraphDestroy(graph));
        CKR(cudaFree(words));
    }
}

// Whether a code means that the driver is too old for a function of the runtime.
static bool too_old(int code) { return code == cudaErrorNotSupported || code == cudaErrorCallRequiresNewerDriver; }

PITFALL(39, runtime_graphs_have_ids_and_say_their_parameters) {
    // cudaGraphNodeParams of CUDA 13.2. A kernel's are: function, shape, lists of arguments, context, type of the
    // function.
    struct Node {
        unsigned type, reserved[3];
        void *function;
        unsigned grid[3], block[3], shared;
        void **arguments, **extra, *context;
        unsigned long long rest[22];
    } params;
    static_assert(sizeof(Node) == 256);
    unsigned *word, one = 1, five = 5, seven = 7, got = 0;
    CKR(cudaMalloc(&word, 4));
    cudaGraph_t graph, other, of = nullptr;
    CKR(cudaGraphCreate(&graph, 0));
    CKR(cudaGraphCreate(&other, 0));
    cudaMemsetParams fill = {};
    fill.dst = word;
    fill.value = 2;
    fill.elementSize = 4;
    fill.width = fill.height = 1;
    void *arguments[] = {&word, &one, &five}, *changed[] = {&word, &one, &seven};
    cudaKernelNodeParams launch = {};
    launch.func = (void *)step;
    launch.gridDim = launch.blockDim = dim3(1);
    launch.kernelParams = arguments;
    cudaGraphNode_t nodes[2];
    CKR(cudaGraphAddMemsetNode(&nodes[0], graph, nullptr, 0, &fill));
    CKR(cudaGraphAddKernelNode(&nodes[1], graph, nodes, 1, &launch));
    unsigned ids[3] = {}, numbers[2] = {9, 9};
    unsigned long long tools[2] = {};
    int code = newer("cudaGraphGetId", graph, &ids[0]);
    if (too_old(code))
        pitfall::skip("graphs have no ids");
    EXPECT(code == 0 && newer("cudaGraphGetId", other, &ids[1]) == 0 && ids[0] != ids[1], "%d: %u and %u", code, ids[0], ids[1]);
    for (int at = 0; at < 2; at++) {
        EXPECT(newer("cudaGraphNodeGetLocalId", nodes[at], &numbers[at]) == 0 && (int)numbers[at] == at, "%u", numbers[at]);
        EXPECT(newer("cudaGraphNodeGetToolsId", nodes[at], &tools[at]) == 0, "no id for tools");
        EXPECT(newer("cudaGraphNodeGetContainingGraph", nodes[at], &of) == 0 && of == graph, "%p", (void *)of);
    }
    EXPECT(tools[0] != tools[1], "%llx and %llx", tools[0], tools[1]);
    code = newer("cudaGraphGetId", graph, (unsigned *)nullptr);
    EXPECT(code == cudaErrorInvalidValue, "%d", code);
    memset(&params, 0x55, sizeof params);
    code = newer("cudaGraphNodeGetParams", nodes[1], &params);
    EXPECT(code == 0 && params.type == cudaGraphNodeTypeKernel && params.function == (void *)step && params.block[0] == 1, "%d", code);
    EXPECT(*(unsigned *)params.arguments[2] == 5, "%u", *(unsigned *)params.arguments[2]);
    // The returned parameters can be set again.
    params.arguments = changed;
    code = newer("cudaGraphNodeSetParams", nodes[1], &params);
    EXPECT(code == 0, "%d", code);
    memset(&params, 0x55, sizeof params);
    code = newer("cudaGraphNodeGetParams", nodes[0], &params);
    EXPECT(code == 0 && params.type == cudaGraphNodeTypeMemset && params.function == word, "%d", code);
    cudaGraphExec_t exec;
    CKR(cudaGraphInstantiate(&exec, graph, 0));
    EXPECT(newer("cudaGraphExecGetId", exec, &ids[2]) == 0, "no id");
    CKR(cudaGraphLaunch(exec, nullptr));
    CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 9, "%u", got);
    // A condition in a context that is named.
    void *context = nullptr;
    cudaGraphConditionalHandle handle = 0;
    EXPECT(newer("cudaDeviceGetExecutionCtx", &context, 0) == 0, "no context");
    code = newer("cudaGraphConditionalHandleCreate_v2", &handle, other, context, 1u, (unsigned)cudaGraphCondAssignDefault);
    EXPECT(code == 0 && handle, "%d", code);
    cudaGraphNodeParams condition = {};
    condition.type = cudaGraphNodeTypeConditional;
    condition.conditional.handle = handle;
    condition.conditional.type = cudaGraphCondTypeIf;
    condition.conditional.size = 1;
    CKR(cudaGraphAddNode(&nodes[0], other, nullptr, nullptr, 0, &condition));
    CKR(cudaGraphAddMemsetNode(&nodes[1], condition.conditional.phGraph_out[0], nullptr, 0, &fill));
    EXPECT(newer("cudaGraphNodeGetContainingGraph", nodes[1], &of) == 0 && of == condition.conditional.phGraph_out[0], "%p", (void *)of);
    CKR(cudaGraphExecDestroy(exec));
    CKR(cudaGraphInstantiate(&exec, other, 0));
    CKR(cudaGraphLaunch(exec, nullptr));
    CKR(cudaMemcpy(&got, word, 4, cudaMemcpyDeviceToHost));
    EXPECT(got == 2, "%u", got);
    CKR(cudaGraphExecDestroy(exec));
    CKR(cudaGraphDestroy(graph));
    CKR(cudaGraphDestroy(other));
    CKR(cudaFree(word));
}

// After a reset the next call makes the primary context again, whoever made it current and in whichever thread.
PITFALL(58, the_runtime_starts_again_after_a_reset) {
    CUcontext context;
    void *memory = nullptr;
    EXPECT(cuInit(0) == CUDA_SUCCESS, "cuInit");
    EXPECT(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS, "cuDevicePrimaryCtxRetain");
    EXPECT(cuCtxSetCurrent(context) == CUDA_SUCCESS, "cuCtxSetCurrent");
    CKR(cudaMalloc(&memory, 4096));
    CKR(cudaDeviceReset());
    CKR(cudaMalloc(&memory, 4096));
    CKR(cudaMemset(memory, 1, 4096));
    CKR(cudaDeviceSynchronize());
    // Another thread has the context of before the first of two resets.
    std::atomic<int> step = 0;
    std::thread other([&] {
        void *own = nullptr;
        CKR(cudaMalloc(&own, 4096));
        step = 1;
        while (step != 2)
            std::this_thread::yield();
        CKR(cudaMalloc(&own, 4096));
        CKR(cudaMemset(own, 1, 4096));
        CKR(cudaDeviceSynchronize());
    });
    while (step != 1)
        std::this_thread::yield();
    for (int i = 0; i < 2; i++) {
        CKR(cudaMalloc(&memory, 4096));
        CKR(cudaDeviceReset());
    }
    step = 2;
    other.join();
}

PITFALL(46, runtime_counts_parameters) {
    size_t count = 99;
    int code = newer("cudaFuncGetParamCount", (const void *)step, &count);
    if (too_old(code))
        pitfall::skip("parameters are not counted");
    EXPECT(code == 0 && count == 3, "%d: %zu", code, count);
    code = newer("cudaFuncGetParamCount", (const void *)step, (size_t *)nullptr);
    EXPECT(code == cudaErrorInvalidValue, "%d", code);
}

PITFALL(57, runtime_host_calls_have_modes) {
    cudaStream_t stream;
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    static int calls;
    calls = 0;
    cudaHostFn_t call = [](void *by) { calls = calls * 10 + *(int *)by; };
    int numbers[] = {1, 2, 3};
    int code = newer("cudaLaunchHostFunc_v2", stream, call, (void *)&numbers[0], 0u);
    if (too_old(code))
        pitfall::skip("host calls have no modes");
    EXPECT(code == 0, "%d", code);
    code = newer("cudaLaunchHostFunc_v2", stream, call, (void *)&numbers[1], 1u);
    EXPECT(code == 0, "%d", code);
    code = newer("cudaLaunchHostFunc_v2", stream, call, (void *)&numbers[2], 2u);
    EXPECT(code == cudaErrorInvalidValue, "%d", code);
    CKR(cudaStreamSynchronize(stream));
    EXPECT(calls == 12, "%d", calls);
    CKR(cudaStreamDestroy(stream));
}

PITFALL(82, runtime_copies_with_attributes) {
    cudaStream_t stream;
    CKR(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    unsigned char *device, from[64], to[64] = {};
    for (int at = 0; at < 64; at++)
        from[at] = at * 3;
    CKR(cudaMalloc(&device, 64));
    cudaMemcpyAttributes attributes = {};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
    const char *name = "cudaMemcpyWithAttributesAsync";
    int code = newer(name, (void *)device, (const void *)from, (size_t)64, &attributes, stream);
    if (too_old(code))
        pitfall::skip("copies have no attributes");
    EXPECT(code == 0, "%d", code);
    // The source was read.
    memset(from, 0, sizeof from);
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    code = newer(name, (void *)to, (const void *)device, (size_t)64, &attributes, stream);
    EXPECT(code == 0, "%d", code);
    CKR(cudaStreamSynchronize(stream));
    EXPECT(to[1] == 3 && to[63] == 63 * 3, "%u and %u", to[1], to[63]);
    code = newer(name, (void *)to, (const void *)device, (size_t)64, &attributes, (cudaStream_t)nullptr);
    EXPECT(code == cudaErrorInvalidValue, "in the legacy stream %d", code);
    code = newer(name, (void *)to, (const void *)device, (size_t)64, (cudaMemcpyAttributes *)nullptr, stream);
    EXPECT(code == cudaErrorInvalidValue, "without attributes %d", code);
    // Two rows of four bytes, eight bytes from each other in the source.
    cudaMemcpy3DBatchOp rows = {};
    rows.src.type = rows.dst.type = cudaMemcpyOperandTypePointer;
    rows.src.op.ptr.ptr = device;
    rows.src.op.ptr.rowLength = 8;
    rows.dst.op.ptr.ptr = to;
    rows.extent = make_cudaExtent(4, 2, 1);
    rows.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    code = newer("cudaMemcpy3DWithAttributesAsync", &rows, 0ull, stream);
    if (!too_old(code)) {
        EXPECT(code == 0, "%d", code);
        CKR(cudaStreamSynchronize(stream));
        EXPECT(to[3] == 9 && to[4] == 24 && to[7] == 33, "%u, %u and %u", to[3], to[4], to[7]);
    }
    CKR(cudaFree(device));
    CKR(cudaStreamDestroy(stream));
}

PITFALL(82, runtime_copies_between_arrays) {
    cudaChannelFormatDesc bytes = cudaCreateChannelDesc<unsigned char>();
    cudaArray_t six, four;
    CKR(cudaMallocArray(&six, &bytes, 6, 4));
    CKR(cudaMallocArray(&four, &bytes, 4, 4));
    unsigned char from[16], to[24] = {};
    for (int at = 0; at < 16; at++)
        from[at] = at + 1;
    CKR(cudaMemcpy2DToArray(four, 0, 0, from, 4, 4, 4, cudaMemcpyHostToDevice));
    CKR(cudaMemcpy2DToArray(six, 0, 0, to, 6, 6, 4, cudaMemcpyHostToDevice));
    // From the second byte of the second row to the last byte of the first row, and on.
    size_t at = 1, end = 5, none = 0, count = 9;
    int code = newer("cudaMemcpyArrayToArray", six, end, none, (cudaArray_const_t)four, at, at, count, (int)cudaMemcpyDeviceToDevice);
    EXPECT(code == 0, "%d", code);
    CKR(cudaMemcpy2DFromArray(to, 6, six, 0, 0, 6, 4, cudaMemcpyDeviceToHost));
    for (int byte = 0; byte < 24; byte++) {
        int expected = byte >= 5 && byte < 14 ? byte + 1 : 0;
        EXPECT(to[byte] == expected, "byte %d is %u, not %d", byte, to[byte], expected);
    }
    CKR(cudaFreeArray(six));
    CKR(cudaFreeArray(four));
}

PITFALL_MAIN
