// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Tensor maps (pitfall 39).
#include "driver.h"

static CUresult tiled(CUtensorMap *map, CUdeviceptr tensor, cuuint32_t box, CUtensorMapSwizzle swizzle) {
    cuuint64_t dims[] = {64, 64}, strides[] = {256};
    cuuint32_t boxes[] = {box, 8}, steps[] = {1, 1};
    return cuTensorMapEncodeTiled(map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, (void *)tensor, dims, strides, boxes, steps,
                                  CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                  CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// Skips the test on a GPU that has no tensor maps: the first that has is of compute capability 9.0.
static void need(const Gpu &gpu, CUdeviceptr tensor) {
    alignas(64) CUtensorMap map = {};
    if (tiled(&map, tensor, 16, CU_TENSOR_MAP_SWIZZLE_NONE) != CUDA_SUCCESS &&
        gpu.attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) < 9)
        pitfall::skip("no tensor maps");
}

// A map is a function of what it describes.
PITFALL(39, tensor_maps_say_what_they_were_made_of) {
    Gpu gpu;
    CUdeviceptr tensor = device_words(64 * 64), other = device_words(64 * 64);
    need(gpu, tensor);
    alignas(64) CUtensorMap one = {}, same = {}, moved = {}, wider = {};
    CK(tiled(&one, tensor, 16, CU_TENSOR_MAP_SWIZZLE_NONE));
    CK(tiled(&same, tensor, 16, CU_TENSOR_MAP_SWIZZLE_NONE));
    CK(tiled(&wider, tensor, 32, CU_TENSOR_MAP_SWIZZLE_128B));
    CK(tiled(&moved, other, 16, CU_TENSOR_MAP_SWIZZLE_NONE));
    EXPECT(!memcmp(&one, &same, sizeof one), "equal maps differ");
    EXPECT(memcmp(&one, &wider, sizeof one), "unequal maps are the same");
    EXPECT(memcmp(&one, &moved, sizeof one), "maps of two tensors are the same");
    // The alignment of a map only matters for kernels: programs store maps in their own objects.
    alignas(64) char room[sizeof(CUtensorMap) + 64];
    auto *anywhere = reinterpret_cast<CUtensorMap *>(room + 16);
    CK(tiled(anywhere, tensor, 16, CU_TENSOR_MAP_SWIZZLE_NONE));
    EXPECT(!memcmp(&one, anywhere, sizeof one), "the map of another place differs");
    CK(cuTensorMapReplaceAddress(anywhere, (void *)other));
    EXPECT(!memcmp(&moved, anywhere, sizeof one), "the map with another address differs");
    CK(cuTensorMapReplaceAddress(&one, (void *)other));
    EXPECT(!memcmp(&one, &moved, sizeof one), "the map with another address is not that tensor's");

    cuuint64_t dims[] = {64, 16, 16, 4}, strides[] = {256, 4096, 65536};
    cuuint32_t steps[] = {1, 1, 1, 1};
    int lower[] = {-1, -1}, upper[] = {-1, -1};
    CK(cuTensorMapEncodeIm2col(&one, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, (void *)tensor, dims, strides, lower, upper, 16, 64,
                               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                               CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

PITFALL(39, tensor_maps_that_cannot_be) {
    Gpu gpu;
    CUdeviceptr tensor = device_words(64 * 64);
    need(gpu, tensor);
    alignas(64) CUtensorMap map = {};
    CK_IS(tiled(nullptr, tensor, 16, CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(tiled(&map, tensor + 4, 16, CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(tiled(&map, tensor, 257, CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(tiled(&map, tensor, 0, CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(tiled(&map, tensor, 64, CU_TENSOR_MAP_SWIZZLE_32B), CUDA_ERROR_INVALID_VALUE);
}

PITFALL_MAIN
