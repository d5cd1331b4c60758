/* SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause */
// Texture and surface references: variables of a module that the host binds to memory. The expected answers are those
// of an H100 with driver 580.
#include "driver.h"

// CUDA has deprecated them all.
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const char *const kImage =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".global .texref line;\n.global .texref plane;\n.global .surfref area;\n.global .u32 number;\n"
    // out[x] = line[x]
    ".visible .entry fetch(.param .u64 out) {\n"
    " .reg .u64 %rd<3>; .reg .u32 %r<2>; .reg .f32 %f<4>;\n"
    " ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n"
    " tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [line, {%r1}]; st.global.f32 [%rd1], %f0; ret; }\n"
    // out[0] += line[0], by one thread
    ".visible .entry sum(.param .u64 out) {\n"
    " .reg .u64 %rd<2>; .reg .u32 %r<2>; .reg .f32 %f<6>;\n"
    " ld.param.u64 %rd1, [out]; mov.u32 %r1, 0;\n"
    " tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [line, {%r1}]; ld.global.f32 %f4, [%rd1]; add.f32 %f4, %f4, %f0;\n"
    " st.global.f32 [%rd1], %f4; ret; }\n"
    // out[x] = plane(x + 1/2, 1/2)
    ".visible .entry sample(.param .u64 out) {\n"
    " .reg .u64 %rd<3>; .reg .u32 %r<2>; .reg .f32 %f<7>;\n"
    " ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n"
    " cvt.rn.f32.u32 %f5, %r1; add.f32 %f5, %f5, 0f3F000000; mov.f32 %f6, 0f3F000000;\n"
    " tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [plane, {%f5, %f6}]; st.global.f32 [%rd1], %f0; ret; }\n"
    // area(x, 0) += 1, and out[x] = its new value
    ".visible .entry step(.param .u64 out) {\n"
    " .reg .u64 %rd<3>; .reg .u32 %r<4>;\n"
    " ld.param.u64 %rd1, [out]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd2, %r1, 4; add.u64 %rd1, %rd1, %rd2;\n"
    " shl.b32 %r2, %r1, 2; mov.u32 %r3, 0; suld.b.2d.b32.trap %r0, [area, {%r2, %r3}]; add.u32 %r0, %r0, 1;\n"
    " sust.b.2d.b32.trap [area, {%r2, %r3}], %r0; st.global.u32 [%rd1], %r0; ret; }\n";

static const int kWidth = 64;
static const size_t kBytes = kWidth * sizeof(float);

// A module with references, memory for results, and an array.
struct Image {
    Gpu gpu;
    CUmodule module;
    CUdeviceptr out, memory;
    CUtexref line, plane;
    CUsurfref area;

    Image() {
        CK(cuModuleLoadData(&module, kImage));
        CK(cuMemAlloc(&out, 4096));
        CK(cuMemAlloc(&memory, 4096));
        CK(cuModuleGetTexRef(&line, module, "line"));
        CK(cuModuleGetTexRef(&plane, module, "plane"));
        CK(cuModuleGetSurfRef(&area, module, "area"));
    }
    ~Image() {
        cuMemFree(out);
        cuMemFree(memory);
        cuModuleUnload(module);
    }
    CUfunction function(const char *name) const {
        CUfunction found;
        CK(cuModuleGetFunction(&found, module, name));
        return found;
    }
    void launch(const char *name, unsigned threads = kWidth) const {
        void *arguments[] = {(void *)&out};
        CK(cuLaunchKernel(function(name), 1, 1, 1, threads, 1, 1, 0, nullptr, arguments, nullptr));
    }
    template <typename T = float> T result(int index) const {
        T all[kWidth];
        CK(cuMemcpyDtoH(all, out, sizeof all));
        return all[index];
    }
    // Numbers from `first` on.
    void fill(CUdeviceptr at, float first) const {
        float numbers[kWidth];
        for (int i = 0; i < kWidth; ++i)
            numbers[i] = first + (float)i;
        CK(cuMemcpyHtoD(at, numbers, sizeof numbers));
    }
    CUarray array(unsigned flags, float first) const {
        CUDA_ARRAY3D_DESCRIPTOR form = {kWidth, 4, 0, CU_AD_FORMAT_FLOAT, 1, flags};
        CUarray made;
        CK(cuArray3DCreate(&made, &form));
        fill(memory, first);
        CUDA_MEMCPY2D copy = {};
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = memory;
        copy.srcPitch = kBytes;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = made;
        copy.WidthInBytes = kBytes;
        copy.Height = 1;
        for (copy.dstY = 0; copy.dstY < 4; ++copy.dstY)
            CK(cuMemcpy2D(&copy));
        return made;
    }
};

PITFALL(55, references_of_textures_read_memory) {
    Image image;
    CUdeviceptr bound = 0;
    size_t offset = 99;
    image.fill(image.memory, 1);
    image.fill(image.memory + 512, 1001);
    CK(cuTexRefSetFormat(image.line, CU_AD_FORMAT_FLOAT, 1));
    CK(cuTexRefSetAddress(&offset, image.line, image.memory, kBytes));
    EXPECT(offset == 0, "%zu", offset);
    CK(cuTexRefGetAddress(&bound, image.line));
    EXPECT(bound == image.memory, "%llx is bound", bound);
    image.launch("fetch");
    EXPECT(image.result(5) == 6, "%f", image.result(5));
    CK(cuTexRefSetAddress(nullptr, image.line, image.memory + 512, kBytes));
    image.launch("fetch");
    EXPECT(image.result(5) == 1006, "%f", image.result(5));
    // Between alignments the program adds the offset itself.
    CK(cuTexRefSetAddress(&offset, image.line, image.memory + 512 + 8, kBytes - 8));
    EXPECT(offset == 8, "%zu", offset);
    image.launch("fetch");
    EXPECT(image.result(5) == 1006, "%f", image.result(5));
    CK_IS(cuTexRefSetAddress(nullptr, image.line, image.memory + 4, 128), CUDA_ERROR_INVALID_VALUE); // no place for the offset
    CK_IS(cuTexRefSetAddress(&offset, image.line, image.memory, (size_t)1 << 40), CUDA_ERROR_INVALID_VALUE); // more than there is

    image.fill(image.memory, 1);
    CUDA_ARRAY_DESCRIPTOR form = {kWidth, 4, CU_AD_FORMAT_FLOAT, 1};
    CK(cuTexRefSetAddress2D(image.plane, &form, image.memory, kBytes));
    CK(cuTexRefGetAddress(&bound, image.plane));
    EXPECT(bound == image.memory, "%llx is bound", bound);
    image.launch("sample");
    EXPECT(image.result(63) == 64, "%f", image.result(63));
    CK_IS(cuTexRefSetAddress2D(image.plane, &form, image.memory, 4), CUDA_ERROR_INVALID_VALUE); // a short pitch
    CK_IS(cuTexRefSetAddress2D(image.plane, &form, image.memory + 4, kBytes), CUDA_ERROR_INVALID_VALUE); // no alignment
}

PITFALL(55, references_of_textures_read_arrays) {
    Image image;
    CUarray array = image.array(0, 7), bound = nullptr;
    CK_IS(cuTexRefGetArray(&bound, image.plane), CUDA_ERROR_INVALID_VALUE); // nothing is bound
    CK(cuTexRefSetArray(image.plane, array, CU_TRSA_OVERRIDE_FORMAT));
    CK(cuTexRefGetArray(&bound, image.plane));
    EXPECT(bound == array, "another array is bound");
    CUdeviceptr address;
    CK_IS(cuTexRefGetAddress(&address, image.plane), CUDA_ERROR_INVALID_VALUE); // no memory is bound
    image.launch("sample");
    EXPECT(image.result(5) == 12, "%f", image.result(5));
    // Later settings count as well: the middle of the row.
    CK(cuTexRefSetFlags(image.plane, CU_TRSF_NORMALIZED_COORDINATES));
    CK(cuTexRefSetFilterMode(image.plane, CU_TR_FILTER_MODE_LINEAR));
    CK(cuTexRefSetAddressMode(image.plane, 0, CU_TR_ADDRESS_MODE_WRAP));
    image.launch("sample");
    EXPECT(image.result(3) == 38.5f, "%f", image.result(3));
    CK_IS(cuTexRefSetArray(image.plane, nullptr, CU_TRSA_OVERRIDE_FORMAT), CUDA_ERROR_INVALID_HANDLE); // no array
    CK(cuArrayDestroy(array));
}

// A launch reads what was bound when it was made, however many wait before it.
PITFALL(55, references_are_read_by_each_launch) {
    Image image;
    image.fill(image.memory, 1);
    image.fill(image.memory + 512, 100);
    CK(cuMemsetD32(image.out, 0, kWidth));
    CK(cuTexRefSetFormat(image.line, CU_AD_FORMAT_FLOAT, 1));
    void *arguments[] = {&image.out};
    CUfunction sum = image.function("sum");
    float expected = 0;
    for (int round = 0; round < 20; ++round) {
        CK(cuTexRefSetAddress(nullptr, image.line, image.memory + 512 * (round % 2), kBytes));
        for (int i = 0; i < 100; ++i)
            CK(cuLaunchKernel(sum, 1, 1, 1, 1, 1, 1, 0, nullptr, arguments, nullptr));
        expected += 100 * (round % 2 ? 100.0f : 1.0f);
    }
    EXPECT(image.result(0) == expected, "%f, expected %f", image.result(0), expected);
}

PITFALL(55, references_of_surfaces) {
    Image image;
    CUarray array = image.array(CUDA_ARRAY3D_SURFACE_LDST, 0), plain = image.array(0, 0), bound = nullptr;
    CK_IS(cuSurfRefGetArray(&bound, image.area), CUDA_ERROR_INVALID_VALUE); // nothing is bound
    CK(cuSurfRefSetArray(image.area, array, 0));
    CK_IS(cuSurfRefSetArray(image.area, array, 1), CUDA_ERROR_INVALID_VALUE); // a flag
    CK_IS(cuSurfRefSetArray(image.area, plain, 0), CUDA_ERROR_INVALID_VALUE); // an array without surfaces
    CK(cuSurfRefGetArray(&bound, image.area));
    EXPECT(bound == array, "another array is bound");
    image.launch("step");
    image.launch("step");
    float five = 5;
    unsigned bits;
    memcpy(&bits, &five, sizeof bits);
    EXPECT(image.result<unsigned>(5) == bits + 2, "%x", image.result<unsigned>(5));
    CK(cuArrayDestroy(array));
    CK(cuArrayDestroy(plain));
}

PITFALL(55, references_keep_what_they_are_set_to) {
    Image image;
    CUtexref own = nullptr, again = nullptr;
    CK(cuModuleGetTexRef(&again, image.module, "line"));
    EXPECT(again == image.line, "one name, two references");
    CK(cuTexRefCreate(&own));
    for (CUtexref of : {image.line, own}) {
        unsigned flags = 9;
        CUaddress_mode mode = CU_TR_ADDRESS_MODE_WRAP;
        CUfilter_mode filter = CU_TR_FILTER_MODE_LINEAR;
        CUarray_format format;
        int channels = 0, anisotropy = 9;
        float bias = 9, least = 9, greatest = 9, colour[4] = {9, 9, 9, 9};
        CK(cuTexRefGetFlags(&flags, of));
        CK(cuTexRefGetAddressMode(&mode, of, 2));
        CK(cuTexRefGetFilterMode(&filter, of));
        CK(cuTexRefGetFormat(&format, &channels, of));
        CK(cuTexRefGetMaxAnisotropy(&anisotropy, of));
        CK(cuTexRefGetMipmapLevelBias(&bias, of));
        CK(cuTexRefGetMipmapLevelClamp(&least, &greatest, of));
        CK(cuTexRefGetBorderColor(colour, of));
        EXPECT(flags == 0 && mode == CU_TR_ADDRESS_MODE_CLAMP && filter == CU_TR_FILTER_MODE_POINT, "%u %d %d", flags, mode, filter);
        EXPECT(format == CU_AD_FORMAT_FLOAT && channels == 1 && anisotropy == 0, "%d %d %d", format, channels, anisotropy);
        EXPECT(bias == 0 && least == 0 && greatest == 0 && colour[3] == 0, "%f %f %f %f", bias, least, greatest, colour[3]);
        CK(cuTexRefSetFormat(of, CU_AD_FORMAT_UNSIGNED_INT8, 4));
        CK(cuTexRefSetFlags(of, CU_TRSF_READ_AS_INTEGER));
        CK(cuTexRefSetAddressMode(of, 1, CU_TR_ADDRESS_MODE_MIRROR));
        CK(cuTexRefSetMaxAnisotropy(of, 4));
        CK(cuTexRefSetMipmapFilterMode(of, CU_TR_FILTER_MODE_LINEAR));
        CK(cuTexRefSetMipmapLevelBias(of, 1));
        CK(cuTexRefSetMipmapLevelClamp(of, 0, 2));
        CK(cuTexRefGetFormat(&format, &channels, of));
        CK(cuTexRefGetFlags(&flags, of));
        CK(cuTexRefGetAddressMode(&mode, of, 1));
        CK(cuTexRefGetMipmapFilterMode(&filter, of));
        CK(cuTexRefGetMipmapLevelClamp(&least, &greatest, of));
        EXPECT(format == CU_AD_FORMAT_UNSIGNED_INT8 && channels == 4, "%d %d", format, channels);
        EXPECT(flags == CU_TRSF_READ_AS_INTEGER && mode == CU_TR_ADDRESS_MODE_MIRROR, "%u %d", flags, mode);
        EXPECT(filter == CU_TR_FILTER_MODE_LINEAR && greatest == 2, "%d %f", filter, greatest);
    }
    CK(cuTexRefDestroy(own));
}

PITFALL(55, references_that_cannot_be) {
    Image image;
    CUtexref texture = nullptr;
    CUsurfref surface = nullptr;
    CUdeviceptr address;
    size_t bytes;
    unsigned flags;
    CUaddress_mode mode;
    CK_IS(cuModuleGetTexRef(&texture, image.module, "none"), CUDA_ERROR_NOT_FOUND); // there is none
    CK_IS(cuModuleGetTexRef(&texture, image.module, "area"), CUDA_ERROR_NOT_FOUND); // a surface
    CK_IS(cuModuleGetSurfRef(&surface, image.module, "line"), CUDA_ERROR_NOT_FOUND); // a texture
    CK_IS(cuModuleGetTexRef(&texture, image.module, "number"), CUDA_ERROR_NOT_FOUND); // a number
    CK_IS(cuModuleGetGlobal(&address, &bytes, image.module, "line"), CUDA_ERROR_INVALID_VALUE); // a reference is no memory
    CK_IS(cuTexRefSetFormat(image.line, CU_AD_FORMAT_FLOAT, 3), CUDA_ERROR_INVALID_VALUE); // three channels
    CK_IS(cuTexRefSetFlags(image.line, 0x1000), CUDA_ERROR_INVALID_VALUE); // an unknown flag
    CK_IS(cuTexRefSetAddressMode(image.line, 3, CU_TR_ADDRESS_MODE_WRAP), CUDA_ERROR_INVALID_VALUE); // a fourth dimension
    CK_IS(cuTexRefGetAddressMode(&mode, image.line, 3), CUDA_ERROR_INVALID_VALUE); // a fourth dimension
    CK_IS(cuTexRefGetFlags(&flags, nullptr), CUDA_ERROR_INVALID_HANDLE); // no reference
    CK_IS(cuTexRefSetFlags(nullptr, 0), CUDA_ERROR_INVALID_HANDLE); // no reference
    CK_IS(cuTexRefCreate(nullptr), CUDA_ERROR_INVALID_VALUE); // nowhere to put it
    CK_IS(cuTexRefGetAddress(&address, image.line), CUDA_ERROR_INVALID_VALUE); // nothing is bound
}

PITFALL_MAIN
