// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Invalid, freed and foreign handles (pitfall 63). Natively some of these crash the process, so they only run on ours.
#include "driver.h"

static void device_still_works(const Gpu &gpu) {
    CUdeviceptr word = device_words(1, 5);
    unsigned got = 0;
    LAUNCH(gpu.function("step"), 1, 1, nullptr, word, 3u, 1u);
    CK(cuMemcpyDtoH(&got, word, 4));
    EXPECT(got == 16, "%u", got);
    CK(cuMemFree(word));
}

#define REFUSED(CALL) EXPECT((CALL) != CUDA_SUCCESS || cuCtxSynchronize() != CUDA_SUCCESS, "accepted")

static void every_call_with(const Gpu &gpu, uint64_t handle) {
    auto stream = (CUstream)handle;
    auto event = (CUevent)handle;
    auto context = (CUcontext)handle;
    auto module = (CUmodule)handle;
    auto function = (CUfunction)handle;
    auto pool = (CUmemoryPool)handle;
    cuuint64_t long_value = 0;
    CUevent good;
    CK(cuEventCreate(&good, 0));
    CUdeviceptr word = device_words(4);
    unsigned *pinned = pinned_words(4);
    int value = 0;
    float ms = 0;
    size_t size = 0;
    CUdeviceptr address = 0;
    CUfunction found;
    unsigned flags = 0;
    // Each is an error, at the call or at the next synchronisation, and none ends the process.
    REFUSED(cuStreamSynchronize(stream));
    REFUSED(cuStreamQuery(stream));
    REFUSED(cuStreamWaitEvent(stream, good, 0));
    REFUSED(cuStreamGetFlags(stream, &flags));
    REFUSED(cuMemcpyHtoDAsync(word, pinned, 4, stream));
    REFUSED(cuMemsetD32Async(word, 1, 1, stream));
    REFUSED(cuLaunchHostFunc(stream, [](void *) {}, nullptr));
    REFUSED(try_launch(gpu.function("step"), 1, 1, stream, word, 1u, 1u));
    REFUSED(cuEventRecord(good, stream));
    REFUSED(cuMemAllocAsync(&address, 64, stream));
    REFUSED(cuMemFreeAsync(word, stream));
    REFUSED(cuStreamDestroy(stream));
    REFUSED(cuMemAllocFromPoolAsync(&address, 64, pool, nullptr));
    REFUSED(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &long_value));
    REFUSED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &long_value));
    REFUSED(cuMemPoolTrimTo(pool, 0));
    REFUSED(cuDeviceSetMemPool(gpu.device, pool));
    REFUSED(cuMemPoolDestroy(pool));
    REFUSED(cuEventRecord(event, nullptr));
    REFUSED(cuEventQuery(event));
    REFUSED(cuEventSynchronize(event));
    REFUSED(cuEventElapsedTime(&ms, event, good));
    REFUSED(cuStreamWaitEvent(nullptr, event, 0));
    REFUSED(cuEventDestroy(event));
    REFUSED(cuModuleGetFunction(&found, module, "step"));
    REFUSED(cuModuleGetGlobal(&address, &size, module, "counter"));
    REFUSED(cuModuleUnload(module));
    REFUSED(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, function));
    REFUSED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    REFUSED(cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, 0));
    CUcontext before = nullptr, after = nullptr;
    CK(cuCtxGetCurrent(&before));
    REFUSED(cuCtxPushCurrent(context));
    REFUSED(cuCtxSetCurrent(context));
    REFUSED(cuCtxDestroy(context));
    CK(cuCtxGetCurrent(&after));
    EXPECT(before == after, "a refused context changed the current one");
    CK(cuEventDestroy(good));
    CK(cuMemFree(word));
    CK(cuMemFreeHost(pinned));
}

PITFALL_OURS(63, random_handles) {
    Gpu gpu;
    uint64_t state = 88172645463325252ull;
    for (uint64_t handle : {uint64_t(0xffffffff), ~uint64_t(0), ~uint64_t(0) << 48, uint64_t(1) << 63})
        every_call_with(gpu, handle);
    for (int i = 0; i < 40; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        every_call_with(gpu, i % 2 ? state : state >> 20);
    }
    every_call_with(gpu, (uint64_t)&state);
    device_still_works(gpu);
}

PITFALL_OURS(63, freed_handles) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUevent event;
    CUmodule module;
    CK(cuEventCreate(&event, 0));
    CK(cuModuleLoadData(&module, kernels_fatbin));
    CK(cuStreamDestroy(stream));
    CK(cuEventDestroy(event));
    CK(cuModuleUnload(module));
    for (auto handle : {(uint64_t)stream, (uint64_t)event, (uint64_t)module})
        every_call_with(gpu, handle);
    CUcontext context;
    CK(cuCtxCreate(&context, nullptr, 0, gpu.device));
    CK(cuCtxDestroy(context));
    CK(cuCtxSetCurrent(gpu.context));
    every_call_with(gpu, (uint64_t)context);
    device_still_works(gpu);
}

PITFALL_OURS(63, handles_of_another_type) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUevent event;
    CK(cuEventCreate(&event, 0));
    CUdeviceptr word = device_words(1);
    unsigned flags = 0;
    int value = 0;
    REFUSED(cuStreamSynchronize((CUstream)event));
    REFUSED(cuStreamQuery((CUstream)gpu.module()));
    REFUSED(cuEventQuery((CUevent)stream));
    REFUSED(cuEventRecord((CUevent)gpu.context, stream));
    REFUSED(cuModuleUnload((CUmodule)stream));
    REFUSED(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, (CUfunction)event));
    REFUSED(cuStreamGetFlags((CUstream)gpu.function("step"), &flags));
    REFUSED(cuStreamDestroy((CUstream)event));
    REFUSED(cuEventDestroy((CUevent)stream));
    REFUSED(cuStreamSynchronize((CUstream)word));
    CK(cuEventRecord(event, stream));
    CK(cuStreamSynchronize(stream));
    CK(cuEventDestroy(event));
    CK(cuStreamDestroy(stream));
    device_still_works(gpu);
}

PITFALL_OURS(63, null_arguments) {
    Gpu gpu;
    CUdeviceptr word = device_words(1);
    REFUSED(cuMemcpyHtoD(word, nullptr, 4));
    REFUSED(cuMemcpyDtoH(nullptr, word, 4));
    REFUSED(cuStreamCreate(nullptr, 0));
    REFUSED(cuEventCreate(nullptr, 0));
    REFUSED(cuModuleLoadData(nullptr, kernels_fatbin));
    REFUSED(cuMemAllocHost(nullptr, 4));
    REFUSED(cuDeviceGet(nullptr, 0));
    REFUSED(cuModuleGetFunction(nullptr, gpu.module(), "step"));
    CUfunction found;
    REFUSED(cuModuleGetFunction(&found, gpu.module(), nullptr));
    REFUSED(cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr));
    REFUSED(cuGetExportTable(nullptr, nullptr));
    REFUSED(cuGetProcAddress(nullptr, nullptr, 12000, 0, nullptr));
    REFUSED(cuMemcpy2D(nullptr));
    device_still_works(gpu);
}

PITFALL_MAIN
