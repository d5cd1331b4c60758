// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Arrays, textures and surfaces: what kernels read through them, copies from and to arrays, and what is refused
// (pitfalls 9 and 55).
#include "driver.h"
#include <cmath>

namespace {

struct Four {
    float x = 0, y = 0, z = 0, w = 0;
};

CUDA_ARRAY3D_DESCRIPTOR form(size_t width, size_t height, size_t depth, CUarray_format format, unsigned channels, unsigned flags = 0) {
    return {width, height, depth, format, channels, flags};
}

CUarray new_array(size_t width, size_t height, size_t depth, CUarray_format format, unsigned channels, unsigned flags = 0) {
    CUDA_ARRAY3D_DESCRIPTOR of = form(width, height, depth, format, channels, flags);
    CUarray array = nullptr;
    CK(cuArray3DCreate(&array, &of));
    return array;
}

// A box of an array and one of host memory without gaps.
CUDA_MEMCPY3D box(CUarray array, const void *host, bool to_array, size_t row, size_t rows, size_t slices) {
    CUDA_MEMCPY3D copy = {};
    if (to_array) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = host;
        copy.srcPitch = row;
        copy.srcHeight = rows;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = array;
    } else {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = const_cast<void *>(host);
        copy.dstPitch = row;
        copy.dstHeight = rows;
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = array;
    }
    copy.WidthInBytes = row;
    copy.Height = rows;
    copy.Depth = slices;
    return copy;
}

void fill(CUarray array, const void *host, size_t row, size_t rows = 1, size_t slices = 1) {
    CUDA_MEMCPY3D copy = box(array, host, true, row, rows, slices);
    CK(cuMemcpy3D(&copy));
}

void read_back(CUarray array, void *host, size_t row, size_t rows = 1, size_t slices = 1) {
    CUDA_MEMCPY3D copy = box(array, host, false, row, rows, slices);
    CK(cuMemcpy3D(&copy));
}

CUDA_RESOURCE_DESC of_array(CUarray array) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
}

CUDA_RESOURCE_DESC of_linear(CUdeviceptr memory, CUarray_format format, unsigned channels, size_t bytes) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = memory;
    resource.res.linear.format = format;
    resource.res.linear.numChannels = channels;
    resource.res.linear.sizeInBytes = bytes;
    return resource;
}

CUDA_TEXTURE_DESC reads(CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
    CUDA_TEXTURE_DESC texture = {};
    texture.addressMode[0] = texture.addressMode[1] = texture.addressMode[2] = mode;
    texture.filterMode = filter;
    texture.flags = flags;
    return texture;
}

CUtexObject new_texture(const CUDA_RESOURCE_DESC &resource, const CUDA_TEXTURE_DESC &texture) {
    CUtexObject object = 0;
    CK(cuTexObjectCreate(&object, &resource, &texture, nullptr));
    return object;
}

// The value that a kernel reads at each position.
template <typename Out = Four> std::vector<Out> sample(const Gpu &gpu, const char *kernel, CUtexObject texture, const std::vector<Four> &at) {
    CUdeviceptr positions, out;
    std::vector<Out> got(at.size());
    CK(cuMemAlloc(&positions, at.size() * sizeof(Four)));
    CK(cuMemAlloc(&out, at.size() * sizeof(Out)));
    CK(cuMemcpyHtoD(positions, at.data(), at.size() * sizeof(Four)));
    CK(cuMemsetD8(out, 0xee, at.size() * sizeof(Out)));
    unsigned count = (unsigned)at.size();
    LAUNCH(gpu.function(kernel), (count + 63) / 64, 64, nullptr, texture, positions, out, count);
    CK(cuMemcpyDtoH(got.data(), out, at.size() * sizeof(Out)));
    CK(cuMemFree(positions));
    CK(cuMemFree(out));
    return got;
}

struct Words {
    unsigned x, y, z, w;
};

const CUaddress_mode MODES[] = {CU_TR_ADDRESS_MODE_WRAP, CU_TR_ADDRESS_MODE_CLAMP, CU_TR_ADDRESS_MODE_MIRROR, CU_TR_ADDRESS_MODE_BORDER};
const auto POINT = CU_TR_FILTER_MODE_POINT;
const auto LINEAR = CU_TR_FILTER_MODE_LINEAR;
const auto CLAMP = CU_TR_ADDRESS_MODE_CLAMP;
const unsigned NORMALIZED = CU_TRSF_NORMALIZED_COORDINATES;
const unsigned INTEGER = CU_TRSF_READ_AS_INTEGER;

// The element for a coordinate from 0 to 1, or -1 for the border.
int element_at(double x, int size, CUaddress_mode mode) {
    if (mode == CU_TR_ADDRESS_MODE_WRAP)
        x -= std::floor(x);
    if (mode == CU_TR_ADDRESS_MODE_MIRROR) {
        double whole = std::floor(x);
        x -= whole;
        if ((long)whole & 1)
            x = 1 - x;
    }
    int at = (int)std::floor(x * size);
    if (mode == CU_TR_ADDRESS_MODE_BORDER)
        return at < 0 || at >= size ? -1 : at;
    return std::min(std::max(at, 0), size - 1);
}

} // namespace

// Every format is read from a texture as it was written to the array.
PITFALL(55, texture_formats) {
    Gpu gpu;
    struct {
        CUarray_format format;
        unsigned bytes, flags;
        double one; // what an element of the largest number is, or 0 for an integer
    } cases[] = {
        {CU_AD_FORMAT_UNSIGNED_INT8, 1, INTEGER, 0},  {CU_AD_FORMAT_SIGNED_INT8, 1, INTEGER, 0},
        {CU_AD_FORMAT_UNSIGNED_INT16, 2, INTEGER, 0}, {CU_AD_FORMAT_SIGNED_INT16, 2, INTEGER, 0},
        {CU_AD_FORMAT_UNSIGNED_INT32, 4, INTEGER, 0}, {CU_AD_FORMAT_SIGNED_INT32, 4, INTEGER, 0},
        {CU_AD_FORMAT_UNSIGNED_INT8, 1, 0, 255},      {CU_AD_FORMAT_SIGNED_INT8, 1, 0, 127},
        {CU_AD_FORMAT_UNSIGNED_INT16, 2, 0, 65535},   {CU_AD_FORMAT_SIGNED_INT16, 2, 0, 32767},
    };
    for (auto &of : cases)
        for (unsigned channels : {1u, 2u, 4u}) {
            const unsigned width = 8;
            std::vector<unsigned char> bytes(width * channels * of.bytes);
            pattern(bytes.data(), bytes.size(), of.format * 4 + channels);
            CUarray array = new_array(width, 0, 0, of.format, channels);
            fill(array, bytes.data(), bytes.size());
            CUtexObject texture = new_texture(of_array(array), reads(CLAMP, POINT, of.flags));
            std::vector<Four> at;
            for (unsigned x = 0; x < width; x++)
                at.push_back({x + 0.5f, 0, 0, 0});
            auto words = sample<Words>(gpu, "texture_1d_words", texture, at);
            for (unsigned i = 0; i < width * channels; i++) {
                bool is_signed = of.format >= CU_AD_FORMAT_SIGNED_INT8;
                int64_t number = 0;
                memcpy(&number, &bytes[i * of.bytes], of.bytes);
                int shift = 64 - 8 * of.bytes;
                if (is_signed)
                    number = (int64_t)((uint64_t)number << shift) >> shift;
                unsigned got = (&words[i / channels].x)[i % channels];
                if (of.one == 0) {
                    EXPECT(got == (unsigned)number, "format %d, %u channels: %u is 0x%x, expected 0x%x", (int)of.format, channels, i, got, (unsigned)number);
                } else {
                    float value;
                    memcpy(&value, &got, 4);
                    double expected = std::max(number / of.one, -1.0);
                    EXPECT(std::fabs(value - expected) < 1e-5, "format %d, %u channels: %u is %.9g, expected %.9g", (int)of.format, channels, i, value, expected);
                }
            }
            CK(cuTexObjectDestroy(texture));
            CK(cuArrayDestroy(array));
        }
    const unsigned short halves[] = {0x3c00, 0x4000, 0xc000, 0x3555};
    const float numbers[] = {1, 2, -2, 0.333251953125f};
    CUarray array = new_array(4, 0, 0, CU_AD_FORMAT_HALF, 1);
    fill(array, halves, sizeof halves);
    auto got = sample(gpu, "texture_1d", new_texture(of_array(array), reads(CLAMP, POINT, 0)), {{0.5f}, {1.5f}, {2.5f}, {3.5f}});
    for (int i = 0; i < 4; i++)
        EXPECT(got[i].x == numbers[i], "half %d is %.9g, expected %.9g", i, got[i].x, numbers[i]);
}

// A read outside an image follows the address mode.
PITFALL(55, texture_address_modes) {
    Gpu gpu;
    const float data[] = {10, 20, 30, 40};
    CUarray array = new_array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
    fill(array, data, sizeof data);
    std::vector<Four> at;
    for (float x : {-1.2f, -0.9f, -0.3f, -0.1f, 0.1f, 0.3f, 0.6f, 0.9f, 1.1f, 1.3f, 1.8f, 2.1f, 2.3f, 5.1f})
        at.push_back({x});
    for (CUaddress_mode mode : MODES) {
        CUDA_TEXTURE_DESC how = reads(mode, POINT, NORMALIZED);
        how.borderColor[0] = 5;
        auto got = sample(gpu, "texture_1d", new_texture(of_array(array), how), at);
        for (size_t i = 0; i < at.size(); i++) {
            int element = element_at(at[i].x, 4, mode);
            float expected = element < 0 ? 5 : data[element];
            EXPECT(got[i].x == expected, "mode %d: %g is %g, expected %g", (int)mode, at[i].x, got[i].x, expected);
        }
    }
    // "Wrap and mirror are only for normalized coordinates": others are clamped.
    for (CUaddress_mode mode : {CU_TR_ADDRESS_MODE_WRAP, CLAMP, CU_TR_ADDRESS_MODE_MIRROR}) {
        auto got = sample(gpu, "texture_1d", new_texture(of_array(array), reads(mode, POINT, 0)), {{-3}, {0}, {3.9f}, {4}, {9}});
        const float expected[] = {10, 10, 40, 40, 40};
        for (int i = 0; i < 5; i++)
            EXPECT(got[i].x == expected[i], "mode %d: the %dth is %g, expected %g", (int)mode, i, got[i].x, expected[i]);
    }
}

// Linear filtering: "(1 - a) T[i] + a T[i+1]", a with 8 bits of fraction.
PITFALL(55, texture_linear_filtering) {
    Gpu gpu;
    const float line[] = {0, 256, 1024, 4096}, plane[] = {0, 1000, 100, 700};
    CUarray array = new_array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
    fill(array, line, sizeof line);
    std::vector<Four> at;
    for (int i = 0; i <= 96; i++)
        at.push_back({0.25f + i * 0.0390625f});
    auto got = sample(gpu, "texture_1d", new_texture(of_array(array), reads(CLAMP, LINEAR, 0)), at);
    for (size_t i = 0; i < at.size(); i++) {
        double x = at[i].x - 0.5, first = std::floor(x), a = x - first;
        double low = line[std::min(std::max((int)first, 0), 3)], high = line[std::min(std::max((int)first + 1, 0), 3)];
        double expected = low + a * (high - low);
        // The weight is rounded to a 256th.
        EXPECT(std::fabs(got[i].x - expected) <= (high - low) / 256 + 1e-3, "%g is %g, expected %g", at[i].x, got[i].x, expected);
    }
    CUarray square = new_array(2, 2, 0, CU_AD_FORMAT_FLOAT, 1);
    fill(square, plane, 8, 2);
    at.clear();
    for (int j = 0; j <= 4; j++)
        for (int i = 0; i <= 4; i++)
            at.push_back({0.5f + i * 0.25f, 0.5f + j * 0.25f});
    got = sample(gpu, "texture_2d", new_texture(of_array(square), reads(CLAMP, LINEAR, 0)), at);
    for (size_t i = 0; i < at.size(); i++) {
        double a = at[i].x - 0.5, b = at[i].y - 0.5;
        double expected = (1 - b) * ((1 - a) * plane[0] + a * plane[1]) + b * ((1 - a) * plane[2] + a * plane[3]);
        EXPECT(std::fabs(got[i].x - expected) <= 1e-2, "(%g, %g) is %g, expected %g", at[i].x, at[i].y, got[i].x, expected);
    }
    const unsigned char bytes[] = {0, 255};
    CUarray small = new_array(2, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1);
    fill(small, bytes, 2);
    got = sample(gpu, "texture_1d", new_texture(of_array(small), reads(CLAMP, LINEAR, 0)), {{0.5f}, {0.75f}, {1}, {1.5f}});
    const float fractions[] = {0, 0.25f, 0.5f, 1};
    for (int i = 0; i < 4; i++)
        EXPECT(std::fabs(got[i].x - fractions[i]) <= 1.0 / 256, "the %dth fraction is %g", i, got[i].x);
}

// Layers, slices and the faces of a cube.
PITFALL(55, texture_layers_volumes_and_cubes) {
    Gpu gpu;
    std::vector<float> data(2 * 2 * 12);
    for (size_t i = 0; i < data.size(); i++)
        data[i] = (float)i;
    CUarray layers = new_array(2, 2, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
    fill(layers, data.data(), 8, 2, 3);
    auto got = sample(gpu, "texture_2d_layered", new_texture(of_array(layers), reads(CLAMP, POINT, 0)),
                      {{0.5f, 0.5f, 0, 0}, {1.5f, 0.5f, 0, 1}, {0.5f, 1.5f, 0, 2}, {1.5f, 1.5f, 0, 9}});
    const float of_layers[] = {0, 5, 10, 11};
    for (int i = 0; i < 4; i++)
        EXPECT(got[i].x == of_layers[i], "the %dth of layers is %g, expected %g", i, got[i].x, of_layers[i]);
    CUarray lines = new_array(4, 0, 3, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED);
    fill(lines, data.data(), 16, 1, 3);
    got = sample(gpu, "texture_1d_layered", new_texture(of_array(lines), reads(CLAMP, POINT, 0)), {{2.5f, 0, 0, 1}, {0.5f, 0, 0, 2}});
    EXPECT(got[0].x == 6 && got[1].x == 8, "of lines: %g and %g, expected 6 and 8", got[0].x, got[1].x);
    CUarray volume = new_array(2, 2, 2, CU_AD_FORMAT_FLOAT, 1);
    fill(volume, data.data(), 8, 2, 2);
    got = sample(gpu, "texture_3d", new_texture(of_array(volume), reads(CLAMP, LINEAR, 0)), {{0.5f, 0.5f, 0.5f}, {1.5f, 0.5f, 1.5f}, {1, 1, 1}});
    const float of_volume[] = {0, 5, 3.5f};
    for (int i = 0; i < 3; i++)
        EXPECT(std::fabs(got[i].x - of_volume[i]) < 1e-3, "the %dth of the volume is %g, expected %g", i, got[i].x, of_volume[i]);
    // Each face, by its number and by where on it. The guide: x: s = -z, t = -y; -x: z, -y; y: x, z; -y: x, -z; z: x,
    // -y; -z: -x, -y.
    for (unsigned faces : {6u, 12u}) {
        bool layered = faces == 12;
        CUarray cube = new_array(2, 2, faces, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP | (layered ? CUDA_ARRAY3D_LAYERED : 0));
        fill(cube, data.data(), 8, 2, faces);
        std::vector<Four> at;
        std::vector<float> expected;
        for (unsigned layer = 0; layer < faces / 6; layer++)
            for (int face = 0; face < 6; face++)
                for (int corner = 0; corner < 4; corner++) {
                    float s = corner & 1 ? 0.5f : -0.5f, t = corner & 2 ? 0.5f : -0.5f;
                    const Four directions[] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t}, {s, -1, -t}, {s, -t, 1}, {-s, -t, -1}};
                    Four p = directions[face];
                    p.w = (float)layer;
                    at.push_back(p);
                    expected.push_back((layer * 6 + face) * 4.f + corner);
                }
        got = sample(gpu, layered ? "texture_cube_layered" : "texture_cube", new_texture(of_array(cube), reads(CLAMP, POINT, NORMALIZED)), at);
        for (size_t i = 0; i < at.size(); i++)
            EXPECT(got[i].x == expected[i], "%u faces: (%g %g %g) is %g, expected %g", faces, at[i].x, at[i].y, at[i].z, got[i].x, expected[i]);
    }
}

// The four elements around a place, counter-clockwise from the lower left.
PITFALL(55, texture_gathers) {
    Gpu gpu;
    float data[2 * 2 * 4];
    for (int i = 0; i < 16; i++)
        data[i] = (float)(i / 4 * 10 + i % 4);
    CUarray array = new_array(2, 2, 0, CU_AD_FORMAT_FLOAT, 4, CUDA_ARRAY3D_TEXTURE_GATHER);
    fill(array, data, 32, 2);
    auto got = sample(gpu, "texture_gather", new_texture(of_array(array), reads(CLAMP, POINT, 0)), {{1, 1}});
    EXPECT(got[0].x == 21 && got[0].y == 31 && got[0].z == 11 && got[0].w == 1, "gathered %g %g %g %g, expected 21 31 11 1", got[0].x,
           got[0].y, got[0].z, got[0].w);
}

// Levels by their number, between them, and by how far apart coordinates are.
PITFALL(55, texture_levels) {
    Gpu gpu;
    CUDA_ARRAY3D_DESCRIPTOR of = form(16, 8, 0, CU_AD_FORMAT_FLOAT, 1);
    CUmipmappedArray mipmapped;
    CK(cuMipmappedArrayCreate(&mipmapped, &of, 100));
    for (unsigned level = 0; level < 5; level++) {
        CUarray array, again;
        CK(cuMipmappedArrayGetLevel(&array, mipmapped, level));
        CK(cuMipmappedArrayGetLevel(&again, mipmapped, level));
        EXPECT(array == again, "level %u has two handles", level);
        CUDA_ARRAY3D_DESCRIPTOR got;
        CK(cuArray3DGetDescriptor(&got, array));
        size_t width = std::max(16u >> level, 1u), height = std::max(8u >> level, 1u);
        EXPECT(got.Width == width && got.Height == height && got.Depth == 0, "level %u is %zu x %zu x %zu", level, got.Width, got.Height, got.Depth);
        std::vector<float> data(width * height, 100.f * level);
        fill(array, data.data(), width * 4, height);
    }
    CUarray none;
    CK_IS(cuMipmappedArrayGetLevel(&none, mipmapped, 5), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = mipmapped;
    CUDA_TEXTURE_DESC how = reads(CLAMP, POINT, NORMALIZED);
    how.maxMipmapLevelClamp = 4;
    auto got = sample(gpu, "texture_level", new_texture(resource, how), {{0.5f, 0.5f, 0}, {0.5f, 0.5f, 1.25f}, {0.5f, 0.5f, 2.75f}, {0.5f, 0.5f, 9}});
    const float nearest[] = {0, 100, 300, 400};
    for (int i = 0; i < 4; i++)
        EXPECT(got[i].x == nearest[i], "the %dth nearest level has %g, expected %g", i, got[i].x, nearest[i]);
    how.mipmapFilterMode = LINEAR;
    got = sample(gpu, "texture_level", new_texture(resource, how), {{0.5f, 0.5f, 0.5f}, {0.5f, 0.5f, 1.25f}, {0.5f, 0.5f, 3}, {0.5f, 0.5f, 9}});
    const float between[] = {50, 125, 300, 400};
    for (int i = 0; i < 4; i++)
        EXPECT(std::fabs(got[i].x - between[i]) <= 0.5f, "the %dth between levels is %g, expected %g", i, got[i].x, between[i]);
    how.maxMipmapLevelClamp = 1.5f;
    got = sample(gpu, "texture_level", new_texture(resource, how), {{0.5f, 0.5f, 9}});
    EXPECT(std::fabs(got[0].x - 150) <= 0.5f, "clamped to 1.5 it is %g", got[0].x);
    how.maxMipmapLevelClamp = 4;
    // Steps of 1, 2 and 4 elements in x, and of 2 in y.
    got = sample(gpu, "texture_gradient", new_texture(resource, how), {{0.5f, 0.5f, 1 / 16.f, 0}, {0.5f, 0.5f, 2 / 16.f, 0}, {0.5f, 0.5f, 4 / 16.f, 0}, {0.5f, 0.5f, 0, 2 / 8.f}});
    const float steps[] = {0, 100, 200, 100};
    for (int i = 0; i < 4; i++)
        EXPECT(std::fabs(got[i].x - steps[i]) <= 1, "the %dth gradient has %g, expected %g", i, got[i].x, steps[i]);
    CK(cuMipmappedArrayDestroy(mipmapped));
    CK_IS(cuMipmappedArrayDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
}

// A texture of linear memory and one of rows, and a view of an array as something else.
PITFALL(55, textures_of_memory_and_views) {
    Gpu gpu;
    std::vector<float> data(64 * 4);
    for (size_t i = 0; i < data.size(); i++)
        data[i] = (float)i;
    CUdeviceptr memory;
    CK(cuMemAlloc(&memory, 4096));
    CK(cuMemcpyHtoD(memory, data.data(), 1024));
    CUtexObject linear = new_texture(of_linear(memory + 512, CU_AD_FORMAT_FLOAT, 1, 16), reads(CLAMP, POINT, 0));
    auto got = sample(gpu, "texture_fetch", linear, {{0}, {3}});
    EXPECT(got[0].x == 128 && got[1].x == 131, "linear memory: %g and %g, expected 128 and 131", got[0].x, got[1].x);
    // A kernel reads the words that the one before it wrote.
    LAUNCH(gpu.function("fill"), 1, 32, nullptr, memory + 512, 0x40000000u, 1u);
    got = sample(gpu, "texture_fetch", linear, {{0}});
    EXPECT(got[0].x == 2, "after a kernel wrote 2 it is %g", got[0].x);
    CUDA_RESOURCE_DESC rows = {};
    rows.resType = CU_RESOURCE_TYPE_PITCH2D;
    rows.res.pitch2D.devPtr = memory;
    rows.res.pitch2D.format = CU_AD_FORMAT_FLOAT;
    rows.res.pitch2D.numChannels = 1;
    rows.res.pitch2D.width = 5;
    rows.res.pitch2D.height = 2;
    rows.res.pitch2D.pitchInBytes = 256;
    got = sample(gpu, "texture_2d", new_texture(rows, reads(CLAMP, LINEAR, 0)), {{0.5f, 0.5f}, {4.5f, 1.5f}, {9, 9}, {1, 1}});
    const float of_rows[] = {0, 68, 68, 32.5f};
    for (int i = 0; i < 4; i++)
        EXPECT(std::fabs(got[i].x - of_rows[i]) < 1e-3, "the %dth of rows is %g, expected %g", i, got[i].x, of_rows[i]);
    // The driver requires no memory behind an address: a texture may be longer than its memory, if it is not sampled
    // there.
    got = sample(gpu, "texture_fetch", new_texture(of_linear(memory, CU_AD_FORMAT_FLOAT, 1, 64 << 20), reads(CLAMP, POINT, 0)), {{128}});
    auto right = sample(gpu, "texture_fetch", new_texture(of_linear(memory, CU_AD_FORMAT_FLOAT, 1, 1024), reads(CLAMP, POINT, 0)), {{128}});
    EXPECT(got[0].x == right[0].x, "of a long texture: %g, expected %g", got[0].x, right[0].x);
    CUDA_TEXTURE_DESC point = reads(CLAMP, POINT, 0);
    CUtexObject object;
    CUDA_RESOURCE_DESC nowhere = of_linear(0x700000000000, CU_AD_FORMAT_FLOAT, 1, 4096);
    CK(cuTexObjectCreate(&object, &nowhere, &point, nullptr));
    CK(cuTexObjectDestroy(object));
    CUDA_RESOURCE_DESC bad = of_linear(memory + 4, CU_AD_FORMAT_FLOAT, 1, 16);
    CK_IS(cuTexObjectCreate(&object, &bad, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    bad = rows;
    bad.res.pitch2D.pitchInBytes = 48;
    CK_IS(cuTexObjectCreate(&object, &bad, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    bad = of_linear(memory, CU_AD_FORMAT_FLOAT, 3, 16);
    CK_IS(cuTexObjectCreate(&object, &bad, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    CUarray array = new_array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1);
    const float one[16] = {1};
    fill(array, one, 16, 4);
    CUDA_RESOURCE_DESC of = of_array(array);
    CUDA_RESOURCE_VIEW_DESC view = {};
    view.format = CU_RES_VIEW_FORMAT_UINT_1X32;
    view.width = view.height = 4;
    CK(cuTexObjectCreate(&object, &of, &point, &view));
    auto words = sample<Words>(gpu, "texture_2d_words", object, {{0.5f, 0.5f}});
    EXPECT(words[0].x == 0x3f800000, "seen as an integer, 1.0 is 0x%x", words[0].x);
    CUDA_RESOURCE_VIEW_DESC got_view;
    CK(cuTexObjectGetResourceViewDesc(&got_view, object));
    EXPECT(got_view.format == view.format && got_view.width == 4, "the view is %d, %zu wide", (int)got_view.format, got_view.width);
    view.format = CU_RES_VIEW_FORMAT_UINT_4X32;
    CK_IS(cuTexObjectCreate(&object, &of, &point, &view), CUDA_ERROR_INVALID_VALUE);
    view.format = CU_RES_VIEW_FORMAT_FLOAT_1X32;
    view.width = 3;
    CK_IS(cuTexObjectCreate(&object, &of, &point, &view), CUDA_ERROR_INVALID_VALUE);
}

// Kernels read and write surfaces, and no adjacent memory.
PITFALL(55, surfaces) {
    Gpu gpu;
    const unsigned width = 6, height = 5;
    CUarray array = new_array(width, height, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST);
    std::vector<unsigned> words(width * height), got(width * height);
    for (unsigned i = 0; i < words.size(); i++)
        words[i] = i * 3;
    fill(array, words.data(), width * 4, height);
    CUDA_RESOURCE_DESC resource = of_array(array), told;
    CUsurfObject surface;
    CK(cuSurfObjectCreate(&surface, &resource));
    CK(cuSurfObjectGetResourceDesc(&told, surface));
    EXPECT(told.resType == CU_RESOURCE_TYPE_ARRAY && told.res.array.hArray == array, "the surface is of another array");
    LAUNCH(gpu.function("surface_add_2d"), 1, 32, nullptr, surface, width, height, 1000u);
    read_back(array, got.data(), width * 4, height);
    for (unsigned i = 0; i < words.size(); i++)
        EXPECT(got[i] == words[i] + 1000, "word %u is %u, expected %u", i, got[i], words[i] + 1000);
    // A texture of the same array sees what was written.
    auto seen = sample<Words>(gpu, "texture_2d_words", new_texture(of_array(array), reads(CLAMP, POINT, INTEGER)), {{0.5f, 0.5f}});
    EXPECT(seen[0].x == 1000, "the texture has %u", seen[0].x);
    CUdeviceptr out = device_words(8, 0xeeeeeeee);
    unsigned edges[5];
    LAUNCH(gpu.function("surface_edges"), 1, 1, nullptr, surface, (int)width, (int)height, out);
    CK(cuMemcpyDtoH(edges, out, sizeof edges));
    const unsigned expected[] = {0, 0, got[width], got[width * height - 1], got[1]};
    for (int i = 0; i < 5; i++)
        EXPECT(edges[i] == expected[i], "edge %d is %u, expected %u", i, edges[i], expected[i]);
    std::vector<unsigned> after(words.size());
    read_back(array, after.data(), width * 4, height);
    EXPECT(after == got, "a write outside changed the surface");
    for (int layered = 0; layered < 2; layered++) {
        CUarray volume = new_array(4, 3, 2, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST | (layered ? CUDA_ARRAY3D_LAYERED : 0));
        resource = of_array(volume);
        CUsurfObject of_volume;
        CK(cuSurfObjectCreate(&of_volume, &resource));
        LAUNCH(gpu.function("surface_fill_3d"), 1, 32, nullptr, of_volume, layered, 4u, 3u, 2u);
        unsigned filled[24];
        read_back(volume, filled, 16, 3, 2);
        for (unsigned i = 0; i < 24; i++)
            EXPECT(filled[i] == i + 1, "layered %d: word %u is %u", layered, i, filled[i]);
        CK(cuSurfObjectDestroy(of_volume));
    }
    CK(cuSurfObjectDestroy(surface));
    CK_IS(cuSurfObjectGetResourceDesc(&told, surface), CUDA_ERROR_INVALID_VALUE);
    resource = of_linear(out, CU_AD_FORMAT_UNSIGNED_INT32, 1, 32);
    CK_IS(cuSurfObjectCreate(&surface, &resource), CUDA_ERROR_INVALID_VALUE);
}

// Every form of copy between an array and memory, with pitches and offsets.
PITFALL(09, copies_of_arrays) {
    Gpu gpu;
    const size_t width = 1000, height = 37, depth = 5; // bytes of a row: 4000
    CUarray volume = new_array(width, height, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1);
    CUarray other = new_array(width, height, depth, CU_AD_FORMAT_UNSIGNED_INT32, 1);
    const size_t bytes = width * 4 * height * depth;
    std::vector<unsigned char> data(bytes), got(bytes);
    pattern(data.data(), bytes, 9);
    fill(volume, data.data(), width * 4, height, depth);
    read_back(volume, got.data(), width * 4, height, depth);
    EXPECT(got == data, "a whole volume differs");
    // From array to array, to device memory with a pitch, to pinned memory, each in a stream.
    CUstream stream = new_stream();
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = volume;
    copy.dstArray = other;
    copy.WidthInBytes = width * 4;
    copy.Height = height;
    copy.Depth = depth;
    CK(cuMemcpy3DAsync(&copy, stream));
    CUdeviceptr memory;
    const size_t pitch = 4608, rows = height + 3;
    CK(cuMemAlloc(&memory, pitch * rows * depth));
    copy.srcArray = other;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstArray = nullptr;
    copy.dstDevice = memory;
    copy.dstPitch = pitch;
    copy.dstHeight = rows;
    CK(cuMemcpy3DAsync(&copy, stream));
    auto *pinned = (unsigned char *)pinned_words(pitch * rows * depth / 4, 0xeeeeeeee);
    CK(cuMemcpyDtoHAsync(pinned, memory, pitch * rows * depth, stream));
    CK(cuStreamSynchronize(stream));
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            EXPECT(memcmp(pinned + (z * rows + y) * pitch, &data[(z * height + y) * width * 4], width * 4) == 0, "row %zu of slice %zu differs", y, z);
    // A part of it, from pinned memory into the middle of another array.
    pattern(pinned, pitch * rows * depth, 10);
    CUDA_MEMCPY3D part = {};
    part.srcMemoryType = CU_MEMORYTYPE_HOST;
    part.srcHost = pinned;
    part.srcPitch = pitch;
    part.srcHeight = rows;
    part.srcXInBytes = 12;
    part.srcY = 2;
    part.srcZ = 1;
    part.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    part.dstArray = other;
    part.dstXInBytes = 40;
    part.dstY = 3;
    part.dstZ = 2;
    part.WidthInBytes = 400;
    part.Height = 20;
    part.Depth = 2;
    CK(cuMemcpy3DAsync(&part, stream));
    CK(cuStreamSynchronize(stream));
    read_back(other, got.data(), width * 4, height, depth);
    for (size_t z = 0; z < depth; z++)
        for (size_t y = 0; y < height; y++)
            for (size_t x = 0; x < width * 4; x++) {
                bool inside = x >= 40 && x < 440 && y >= 3 && y < 23 && z >= 2 && z < 4;
                unsigned char expected = inside ? pinned[((z - 2 + 1) * rows + y - 3 + 2) * pitch + x - 40 + 12] : data[(z * height + y) * width * 4 + x];
                EXPECT(got[(z * height + y) * width * 4 + x] == expected, "byte %zu of row %zu of slice %zu differs", x, y, z);
            }
    // Pageable memory with a pitch, both ways; rows in two dimensions.
    CUarray plane = new_array(width, height, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
    std::vector<unsigned char> from(pitch * height), to(pitch * height, 0xcc);
    pattern(from.data(), from.size(), 11);
    CUDA_MEMCPY2D two = {};
    two.srcMemoryType = CU_MEMORYTYPE_HOST;
    two.srcHost = from.data();
    two.srcPitch = pitch;
    two.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    two.dstArray = plane;
    two.WidthInBytes = width * 4;
    two.Height = height;
    CK(cuMemcpy2DAsync(&two, stream));
    std::fill(from.begin(), from.begin() + 4, 0); // it was read when the call returned
    CK(cuStreamSynchronize(stream));
    CUDA_MEMCPY2D back = {};
    back.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    back.srcArray = plane;
    back.dstMemoryType = CU_MEMORYTYPE_HOST;
    back.dstHost = to.data();
    back.dstPitch = pitch;
    back.WidthInBytes = width * 4;
    back.Height = height;
    CK(cuMemcpy2DUnaligned(&back));
    pattern(from.data(), from.size(), 11);
    for (size_t y = 0; y < height; y++) {
        EXPECT(memcmp(&to[y * pitch], &from[y * pitch], width * 4) == 0, "row %zu of the plane differs", y);
        for (size_t x = width * 4; x < pitch && y + 1 < height; x++)
            EXPECT(to[y * pitch + x] == 0xcc, "a copy wrote between rows");
    }
    // One range: an array's first row.
    CUarray line = new_array(64, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1), second = new_array(64, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
    CK(cuMemcpyHtoA(line, 0, data.data(), 256));
    CK(cuMemcpyHtoAAsync(line, 16, data.data() + 1000, 32, stream));
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyAtoA(second, 0, line, 0, 256));
    CK(cuMemcpyAtoD(memory, second, 0, 256));
    CK(cuMemcpyDtoA(second, 128, memory, 64));
    std::vector<unsigned char> wanted(data.begin(), data.begin() + 256), end(256);
    std::copy(data.begin() + 1000, data.begin() + 1032, wanted.begin() + 16);
    std::copy(wanted.begin(), wanted.begin() + 64, wanted.begin() + 128);
    CK(cuMemcpyAtoH(end.data(), second, 0, 128));
    CK(cuMemcpyAtoHAsync(end.data() + 128, second, 128, 128, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT(end == wanted, "the line differs");
}

// More than a block is sent in pieces.
PITFALL(09, large_copies_of_arrays) {
    Gpu gpu;
    const size_t width = 1500, height = 1200; // 16-byte elements: 28.8 MB
    CUarray array = new_array(width, height, 0, CU_AD_FORMAT_UNSIGNED_INT32, 4);
    std::vector<unsigned char> data(width * 16 * height), got(data.size());
    pattern(data.data(), data.size(), 12);
    fill(array, data.data(), width * 16, height);
    read_back(array, got.data(), width * 16, height);
    EXPECT(got == data, "28.8 MB differ");
    CK(cuArrayDestroy(array));
}

// A copy keeps its stream's order, and reads pinned memory when the stream reaches it.
PITFALL(04, copies_of_arrays_are_in_their_streams_order) {
    Gpu gpu;
    CUstream stream = new_stream();
    CUarray array = new_array(256, 0, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1);
    unsigned *pinned = pinned_words(256, 1);
    CUdeviceptr words = device_words(256, 0);
    Gate gate(gpu);
    gate.close(stream);
    CK(cuMemcpyHtoAAsync(array, 0, pinned, 1024, stream));
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.srcArray = array;
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = words;
    copy.WidthInBytes = 1024;
    copy.Height = 1;
    CK(cuMemcpy2DAsync(&copy, stream));
    CK_IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    std::fill_n(pinned, 256, 2u);
    gate.open();
    CK(cuStreamSynchronize(stream));
    std::vector<unsigned> got(256);
    CK(cuMemcpyDtoH(got.data(), words, 1024));
    EXPECT_WORDS(got.data(), 256, 2);
}

PITFALL(55, arrays_that_cannot_be) {
    Gpu gpu;
    const auto F = CU_AD_FORMAT_FLOAT;
    const CUDA_ARRAY3D_DESCRIPTOR bad[] = {
        form(0, 0, 0, F, 1),
        form(0, 4, 0, F, 1),
        form(4, 0, 4, F, 1),
        form(4, 4, 0, F, 3),
        form(4, 4, 0, F, 0),
        form(4, 4, 0, (CUarray_format)0x77, 1),
        form(4, 4, 0, F, 1, 0x1000),
        form(4, 4, 0, F, 1, CUDA_ARRAY3D_LAYERED),
        form(4, 8, 6, F, 1, CUDA_ARRAY3D_CUBEMAP),
        form(4, 4, 5, F, 1, CUDA_ARRAY3D_CUBEMAP),
        form(4, 4, 13, F, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED),
        form(64, 0, 0, F, 1, CUDA_ARRAY3D_TEXTURE_GATHER),
        form(size_t(1) << 40, 1, 0, F, 1),
        form((size_t)gpu.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH) + 1, 0, 0, F, 1),
        form((size_t)gpu.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH) + 1, 2, 0, F, 1),
        form(2, (size_t)gpu.attribute(CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT) + 1, 0, F, 1),
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CUarray array;
        CUresult code = cuArray3DCreate(&array, &bad[i]);
        EXPECT(code == CUDA_ERROR_INVALID_VALUE, "the %zuth returned %d (%s)", i, (int)code, name_of(code));
    }
    CUDA_ARRAY3D_DESCRIPTOR good = form(4, 4, 0, F, 1), told;
    CUDA_ARRAY_DESCRIPTOR short_form;
    CUarray array;
    CK_IS(cuArray3DCreate(nullptr, &good), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuArray3DCreate(&array, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuArrayDestroy(nullptr), CUDA_ERROR_INVALID_HANDLE);
    CK_IS(cuArray3DGetDescriptor(&told, nullptr), CUDA_ERROR_INVALID_HANDLE);
    CK(cuArray3DCreate(&array, &good));
    CK_IS(cuArray3DGetDescriptor(nullptr, array), CUDA_ERROR_INVALID_VALUE);
    CK(cuArrayGetDescriptor(&short_form, array));
    EXPECT(short_form.Width == 4 && short_form.Height == 4 && short_form.Format == F && short_form.NumChannels == 1, "the descriptor is another's");
    CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
    CK_IS(cuArrayGetMemoryRequirements(&needs, array, gpu.device), CUDA_ERROR_INVALID_VALUE);
    CUarray plane;
    CK_IS(cuArrayGetPlane(&plane, array, 0), CUDA_ERROR_INVALID_VALUE);
    CUDA_ARRAY_SPARSE_PROPERTIES sparse;
    CK_IS(cuArrayGetSparseProperties(&sparse, array), CUDA_ERROR_INVALID_VALUE);
    // Without a context no array can be made, and existing ones can be queried and destroyed.
    CK(cuCtxSetCurrent(nullptr));
    CUarray none;
    CK_IS(cuArray3DCreate(&none, &good), CUDA_ERROR_INVALID_CONTEXT);
    CK(cuArray3DGetDescriptor(&told, array));
    CK(cuArrayDestroy(array));
}

PITFALL(55, textures_that_cannot_be) {
    Gpu gpu;
    CUarray array = new_array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1);
    const CUDA_RESOURCE_DESC of = of_array(array);
    const CUDA_TEXTURE_DESC point = reads(CLAMP, POINT, 0);
    CUtexObject object = 0;
    CK_IS(cuTexObjectCreate(nullptr, &of, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuTexObjectCreate(&object, nullptr, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuTexObjectCreate(&object, &of, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
    CUDA_RESOURCE_DESC resource = of;
    resource.flags = 1;
    CK_IS(cuTexObjectCreate(&object, &resource, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    resource = of;
    resource.resType = (CUresourcetype)9;
    CK_IS(cuTexObjectCreate(&object, &resource, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    resource = of_array(nullptr);
    CK_IS(cuTexObjectCreate(&object, &resource, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
    CUDA_TEXTURE_DESC texture = point;
    texture.flags = 0x100;
    CK_IS(cuTexObjectCreate(&object, &of, &texture, nullptr), CUDA_ERROR_INVALID_VALUE);
    texture = point;
    texture.addressMode[0] = (CUaddress_mode)9;
    CK_IS(cuTexObjectCreate(&object, &of, &texture, nullptr), CUDA_ERROR_INVALID_VALUE);
    texture = point;
    texture.filterMode = (CUfilter_mode)9;
    CK_IS(cuTexObjectCreate(&object, &of, &texture, nullptr), CUDA_ERROR_INVALID_VALUE);
    texture = point;
    texture.reserved[3] = 1;
    CK_IS(cuTexObjectCreate(&object, &of, &texture, nullptr), CUDA_ERROR_INVALID_VALUE);
    // The description reads back until the object is destroyed.
    texture = reads(CU_TR_ADDRESS_MODE_BORDER, LINEAR, NORMALIZED);
    texture.borderColor[2] = 3;
    texture.mipmapLevelBias = 1.5f;
    CK(cuTexObjectCreate(&object, &of, &texture, nullptr));
    CUDA_TEXTURE_DESC how;
    CK(cuTexObjectGetTextureDesc(&how, object));
    EXPECT(how.addressMode[0] == CU_TR_ADDRESS_MODE_BORDER && how.filterMode == LINEAR && how.flags == NORMALIZED, "mode %d, filter %d, flags %u",
           (int)how.addressMode[0], (int)how.filterMode, how.flags);
    CK(cuTexObjectGetResourceDesc(&resource, object));
    EXPECT(resource.resType == CU_RESOURCE_TYPE_ARRAY && resource.res.array.hArray == array, "the texture is of another array");
    CK_IS(cuTexObjectGetTextureDesc(nullptr, object), CUDA_ERROR_INVALID_VALUE);
    CK(cuTexObjectDestroy(object));
    CK_IS(cuTexObjectGetTextureDesc(&how, object), CUDA_ERROR_INVALID_VALUE);
    // As with NVIDIA's driver, destroying an invalid object is no error.
    CK(cuTexObjectDestroy(object));
    CK(cuTexObjectDestroy(0xdeadbeefdeadbeefull));
    CK(cuCtxSetCurrent(nullptr));
    CK_IS(cuTexObjectGetTextureDesc(&how, object), CUDA_ERROR_INVALID_CONTEXT);
    CK_IS(cuTexObjectDestroy(object), CUDA_ERROR_INVALID_CONTEXT);
}

// Boxes that leave their array are refused, and copy nothing.
PITFALL(09, copies_that_leave_an_array) {
    Gpu gpu;
    CUarray plane = new_array(8, 4, 0, CU_AD_FORMAT_FLOAT, 1), volume = new_array(4, 4, 4, CU_AD_FORMAT_FLOAT, 1), line = new_array(16, 0, 0, CU_AD_FORMAT_FLOAT, 1);
    std::vector<unsigned char> host(4096, 7), zeros(128), got(128);
    fill(plane, zeros.data(), 32, 4);
    struct {
        CUarray array;
        size_t x, y, z, width, height, depth;
    } const bad[] = {
        {plane, 0, 0, 0, 36, 4, 1}, {plane, 0, 0, 0, 32, 5, 1}, {plane, 4, 0, 0, 32, 1, 1}, {plane, 0, 4, 0, 32, 1, 1},
        {plane, 0, 0, 1, 32, 4, 1}, {plane, 0, 0, 0, 32, 4, 2}, {volume, 0, 0, 4, 16, 4, 1}, {volume, 0, 0, 1, 16, 4, 4},
        {line, 0, 1, 0, 64, 1, 1},  {line, 0, 0, 0, 64, 2, 1}, {plane, size_t(1) << 63, 0, 0, 32, 1, 1}, {nullptr, 0, 0, 0, 16, 4, 1},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CUDA_MEMCPY3D copy = box(bad[i].array, host.data(), true, bad[i].width, bad[i].height, bad[i].depth);
        copy.dstXInBytes = bad[i].x;
        copy.dstY = bad[i].y;
        copy.dstZ = bad[i].z;
        CUresult code = cuMemcpy3D(&copy);
        EXPECT(code == CUDA_ERROR_INVALID_VALUE, "the %zuth returned %d (%s)", i, (int)code, name_of(code));
    }
    CK_IS(cuMemcpyHtoA(line, 4, host.data(), 64), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyHtoA(line, 0, nullptr, 4), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyHtoA(nullptr, 0, host.data(), 4), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemcpyDtoA(line, 0, 0x1000, 64), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemcpyHtoA(line, 0, host.data(), 0));
    CUDA_MEMCPY3D copy = box(volume, host.data(), true, 16, 4, 4);
    copy.srcPitch = 8;
    CK_IS(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcPitch = 16;
    copy.srcHeight = 2;
    CK_IS(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    copy.srcHeight = 4;
    copy.dstLOD = 1;
    CK_IS(cuMemcpy3D(&copy), CUDA_ERROR_INVALID_VALUE);
    read_back(plane, got.data(), 32, 4);
    EXPECT(got == zeros, "a copy that was refused has copied something");
}

// Invalid and destroyed handles.
PITFALL_OURS(63, handles_of_arrays) {
    Gpu gpu;
    CUarray array = new_array(4, 4, 0, CU_AD_FORMAT_FLOAT, 1);
    CK(cuArrayDestroy(array));
    CUDA_ARRAY3D_DESCRIPTOR told;
    float data[16] = {};
    CK_IS(cuArrayDestroy(array), CUDA_ERROR_INVALID_HANDLE);
    for (CUarray bad : {array, (CUarray)0x1234, (CUarray)(void *)data, (CUarray)~0ull}) {
        CK_IS(cuArray3DGetDescriptor(&told, bad), CUDA_ERROR_INVALID_HANDLE);
        CK_IS(cuMemcpyHtoA(bad, 0, data, 16), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyAtoH(data, bad, 0, 16), CUDA_ERROR_INVALID_VALUE);
        CUDA_RESOURCE_DESC resource = of_array(bad);
        CUDA_TEXTURE_DESC point = reads(CLAMP, POINT, 0);
        CUtexObject object;
        CK_IS(cuTexObjectCreate(&object, &resource, &point, nullptr), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuSurfObjectCreate(&object, &resource), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMipmappedArrayGetLevel(&array, (CUmipmappedArray)bad, 0), CUDA_ERROR_INVALID_HANDLE);
    }
    CK(cuCtxSynchronize());
}

// Arrays, textures and their numbers are their context's.
PITFALL(55, textures_end_with_their_context) {
    Gpu gpu;
    CUarray array = new_array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
    const float data[] = {1, 2, 3, 4};
    fill(array, data, sizeof data);
    CUtexObject texture = new_texture(of_array(array), reads(CLAMP, POINT, 0));
    CUcontext second;
#if CUDA_VERSION >= 13000
    CK(cuCtxCreate(&second, nullptr, 0, gpu.device));
#else
    CK(cuCtxCreate(&second, 0, gpu.device));
#endif
    CUarray there = new_array(4, 0, 0, CU_AD_FORMAT_FLOAT, 1);
    CUtexObject other = new_texture(of_array(there), reads(CU_TR_ADDRESS_MODE_BORDER, POINT, 0));
    CUDA_TEXTURE_DESC how;
    CK(cuTexObjectGetTextureDesc(&how, other));
    EXPECT(how.addressMode[0] == CU_TR_ADDRESS_MODE_BORDER, "the texture of the second context is another's");
    // Another context's array can be queried and copied.
    CUDA_ARRAY3D_DESCRIPTOR told;
    CK(cuArray3DGetDescriptor(&told, array));
    CK(cuMemcpyHtoA(array, 0, data, 4));
    CK(cuCtxDestroy(second));
    CK(cuCtxSetCurrent(gpu.context));
    CK(cuTexObjectGetTextureDesc(&how, texture));
    EXPECT(how.addressMode[0] == CLAMP, "the texture of the first context has changed");
    auto got = sample(gpu, "texture_1d", texture, {{3.5f}});
    EXPECT(got[0].x == 4, "the texture of the first context has %g", got[0].x);
}

PITFALL_MAIN
