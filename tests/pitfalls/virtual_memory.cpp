// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
// Virtual memory: addresses that a program reserves, and physical memory that it maps there (pitfalls 9, 17, 30, 63,
// 72, 73).
#include "driver.h"

static const size_t MIB = 1 << 20, PIECE = 2 * MIB;

static CUmemAllocationProp properties(CUdevice device = 0) {
    CUmemAllocationProp prop{};
    prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    prop.location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    return prop;
}

// The granularity; skips a test if there is no such memory. The tests are written for NVIDIA's.
static void need(const Gpu &gpu) {
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED))
        pitfall::skip("no virtual memory management");
    CUmemAllocationProp prop = properties();
    size_t least = 0, best = 0;
    CK(cuMemGetAllocationGranularity(&least, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CK(cuMemGetAllocationGranularity(&best, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    if (least != PIECE)
        pitfall::skip("a granularity of %zu bytes", least);
    EXPECT(best >= least && best % least == 0, "%zu bytes are recommended", best);
}

static CUdeviceptr reserve(size_t bytes, CUdeviceptr wish = 0, size_t alignment = 0) {
    CUdeviceptr start = 0;
    CK(cuMemAddressReserve(&start, bytes, alignment, wish, 0));
    EXPECT(start % (alignment ? alignment : PIECE) == 0, "0x%llx is not aligned", start);
    return start;
}

static CUmemGenericAllocationHandle create(size_t bytes, CUdevice device = 0) {
    CUmemAllocationProp prop = properties(device);
    CUmemGenericAllocationHandle handle = 0;
    CK(cuMemCreate(&handle, bytes, &prop, 0));
    return handle;
}

static CUresult allow(CUdeviceptr start, size_t bytes, CUmemAccess_flags flags, CUdevice device = 0) {
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, {device}}, flags};
    return cuMemSetAccess(start, bytes, &access, 1);
}

static unsigned long long allowed(CUdeviceptr address, CUdevice device = 0) {
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {device}};
    unsigned long long flags = ~0ull;
    CK(cuMemGetAccess(&flags, &location, address));
    return flags;
}

// Maps separate memory, which is freed with the mapping.
static void map(CUdeviceptr start, size_t bytes, CUdevice device = 0) {
    CUmemGenericAllocationHandle handle = create(bytes, device);
    CK(cuMemMap(start, bytes, 0, handle, 0));
    CK(allow(start, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE, device));
    CK(cuMemRelease(handle));
}

static void unmap(CUdeviceptr start, size_t bytes) {
    CK(cuCtxSynchronize());
    CK(cuMemUnmap(start, bytes));
}

static void expect_pattern(CUdeviceptr from, size_t bytes, unsigned seed) {
    std::vector<unsigned char> want(bytes), got(bytes);
    pattern(want.data(), bytes, seed);
    CK(cuMemcpyDtoH(got.data(), from, bytes));
    EXPECT(want == got, "the bytes at 0x%llx are not those of seed %u", from, seed);
}

PITFALL(17, mapped_memory_is_like_any_other) {
    Gpu gpu;
    need(gpu);
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    // Two mappings side by side are one for copies, fills and kernels.
    const size_t bytes = 12 * MIB, count = bytes / 4;
    CUdeviceptr start = reserve(64 * MIB), plain = device_words(count, 5);
    map(start, 4 * MIB);
    map(start + 4 * MIB, 8 * MIB);
    EXPECT(allowed(start) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, "no access");
    std::vector<unsigned> words(count);
    LAUNCH(fill, 16, 256, stream, start, 7u, (unsigned)count);
    CK(cuMemcpyDtoHAsync(words.data(), start, bytes, stream));
    CK(cuStreamSynchronize(stream));
    EXPECT_WORDS(words.data(), count, 7);
    CK(cuMemsetD32(start + 3 * MIB, 8, 2 * MIB / 4));
    CK(cuMemsetD32Async(start, 9, 1, stream));
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyDtoD(plain, start, bytes));
    CK(cuMemcpyDtoH(words.data(), plain, bytes));
    EXPECT(words[0] == 9 && words[1] == 7, "0x%x, 0x%x", words[0], words[1]);
    EXPECT_WORDS(&words[3 * MIB / 4], 2 * MIB / 4, 8);
    // From and to pageable memory: small, staged, and long enough for the mover; across the boundary or not.
    for (size_t length : {size_t(4), size_t(4000), size_t(60000), MIB, 6 * MIB, 11 * MIB}) {
        for (CUdeviceptr to : {start, start + 4 * MIB - 2000, start + 12 * MIB - length}) {
            if (to + length > start + bytes)
                continue;
            std::vector<unsigned char> from(length);
            pattern(from.data(), length, (unsigned)length);
            CK(cuMemcpyHtoD(to, from.data(), length));
            expect_pattern(to, length, (unsigned)length);
            pattern(from.data(), length, 77);
            CK(cuMemcpyHtoDAsync(to, from.data(), length, stream));
            CK(cuStreamSynchronize(stream));
            expect_pattern(to, length, 77);
        }
    }
    unsigned *pinned = pinned_words(count, 3);
    CK(cuMemcpyHtoDAsync(start, pinned, bytes, stream));
    CK(cuMemcpyDtoDAsync(plain, start, bytes, stream));
    CK(cuStreamSynchronize(stream));
    CK(cuMemcpyDtoH(words.data(), plain, bytes));
    EXPECT_WORDS(words.data(), count, 3);
    // Rows over the border.
    CUDA_MEMCPY2D rows{};
    rows.srcMemoryType = CU_MEMORYTYPE_HOST;
    rows.srcHost = words.data();
    rows.srcPitch = rows.WidthInBytes = 1000;
    rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    rows.dstDevice = start + 4 * MIB - 40000;
    rows.dstPitch = 4096;
    rows.Height = 20;
    std::fill(words.begin(), words.end(), 11);
    CK(cuMemcpy2D(&rows));
    CK(cuMemcpyDtoH(words.data(), rows.dstDevice + 15 * 4096, 1000));
    EXPECT_WORDS(words.data(), 250, 11);
    unmap(start, bytes);
    CK(cuMemAddressFree(start, 64 * MIB));
    CK(cuMemFree(plain));
}

template <typename T> static T ask(CUpointer_attribute attribute, CUdeviceptr address) {
    T value{};
    CUresult code = cuPointerGetAttribute(&value, attribute, address);
    EXPECT(code == CUDA_SUCCESS, "attribute %d is refused with %d", (int)attribute, (int)code);
    return value;
}

PITFALL(17, addresses_are_known_for_what_is_there) {
    Gpu gpu;
    need(gpu);
    const size_t bytes = 16 * MIB;
    CUdeviceptr start = reserve(bytes), at = start + 4 * MIB, inside = at + 12345;
    unsigned type = 0;
    // If nothing is mapped, the driver returns nothing, not even about the reservation.
    auto expect_nothing_at = [](CUdeviceptr address) {
        // The results of NVIDIA's driver 580 were obtained with one process per query: if one process makes them all, a
        // signal ends it on an H100.
        if (pitfall::backend() == "native")
            return;
        for (CUpointer_attribute attribute : {CU_POINTER_ATTRIBUTE_CONTEXT, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                              CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                              CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_MAPPED}) {
            unsigned long long value = 0;
            CK_IS(cuPointerGetAttribute(&value, attribute, address), CUDA_ERROR_INVALID_VALUE);
        }
    };
    expect_nothing_at(start);
    expect_nothing_at(inside);
    CUdeviceptr base = 0;
    size_t length = 0;
    CUmemGenericAllocationHandle closed = create(PIECE);
    CK(cuMemMap(at, PIECE, 0, closed, 0));
    CK(cuMemRelease(closed));
    // Mapped, but not accessible yet.
    CK_IS(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside), CUDA_ERROR_INVALID_VALUE);
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE, "not device memory");
    EXPECT(ask<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == bytes, "another length");
    CK(allow(at, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READ));
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside, "another address");
    CK(allow(at, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    map(at + PIECE, 2 * PIECE);
    EXPECT(ask<bool>(CU_POINTER_ATTRIBUTE_MAPPED, inside), "it is not mapped");
    expect_nothing_at(start);
    EXPECT(ask<unsigned>(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside) == CU_MEMORYTYPE_DEVICE, "not device memory");
    EXPECT(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside) == 0, "of another device");
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside) == inside, "another address");
    EXPECT(ask<CUdeviceptr>(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside) == start, "another reservation");
    EXPECT(ask<size_t>(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside) == bytes, "another length");
    EXPECT(!ask<bool>(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside), "it is managed");
    CK(cuMemGetAddressRange(&base, &length, inside + PIECE));
    pitfall::observed("address_range=%lld+%zu", (long long)(base - at), length);
    auto first = ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, at);
    EXPECT(first == ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, inside), "two buffers");
    EXPECT(first != ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, at + PIECE), "one buffer");
    CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    int ordinal = 9;
    void *to[] = {&type, &ordinal};
    CK(cuPointerGetAttributes(2, which, to, inside));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && ordinal == 0, "type %u of device %d", type, ordinal);
    // Nothing is remembered from before.
    unmap(at, 3 * PIECE);
    CK_IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside), CUDA_ERROR_INVALID_VALUE);
    CK(cuPointerGetAttributes(2, which, to, inside));
    EXPECT(type == 0 && ordinal == -2, "type %u of device %d", type, ordinal);
    expect_nothing_at(inside);
    map(at, PIECE);
    EXPECT(ask<unsigned long long>(CU_POINTER_ATTRIBUTE_BUFFER_ID, at) != first, "the same buffer");
    unmap(at, PIECE);
    CK(cuMemAddressFree(start, bytes));
    CK_IS(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside), CUDA_ERROR_INVALID_VALUE);
}

PITFALL(09, copies_know_what_may_be_accessed) {
    Gpu gpu;
    need(gpu);
    CUdeviceptr start = reserve(8 * PIECE), plain = device_words(PIECE / 4, 2);
    std::vector<unsigned> words(PIECE / 4, 6), got(PIECE / 4);
    auto refused = [&](CUdeviceptr address, size_t bytes) {
        CK_IS(cuMemcpyHtoD(address, words.data(), bytes), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyDtoH(got.data(), address, bytes), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpyDtoD(address, plain, bytes), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemsetD8(address, 1, bytes), CUDA_ERROR_INVALID_VALUE);
    };
    // An address that is only reserved is not the host's either.
    refused(start, 4);
    refused(start + PIECE, MIB);
    CUmemGenericAllocationHandle handle = create(PIECE);
    CK(cuMemMap(start, PIECE, 0, handle, 0));
    EXPECT(allowed(start) == CU_MEM_ACCESS_FLAGS_PROT_NONE, "access that nobody has given");
    refused(start, 4);
    CK(allow(start, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CK(cuMemcpy(start, (CUdeviceptr)words.data(), PIECE));
    CK(cuMemcpy((CUdeviceptr)got.data(), start, PIECE));
    EXPECT_WORDS(got.data(), PIECE / 4, 6);
    // Past the end of the mapped range.
    refused(start + PIECE - 4, 8);
    refused(start + PIECE - 100000, 200000);
    // No longer accessible.
    CK(cuCtxSynchronize());
    CK(allow(start, PIECE, CU_MEM_ACCESS_FLAGS_PROT_NONE));
    EXPECT(allowed(start) == CU_MEM_ACCESS_FLAGS_PROT_NONE, "access that was taken away");
    refused(start, 4);
    refused(start, MIB);
    CK(allow(start, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CK(cuMemcpyDtoH(got.data(), start, PIECE));
    EXPECT_WORDS(got.data(), PIECE / 4, 6);
    unmap(start, PIECE);
    refused(start, 4);
    CK(cuMemRelease(handle));
    CK(cuMemAddressFree(start, 8 * PIECE));
    CK(cuMemFree(plain));
}

// NVIDIA's driver takes such an address for a host address, and a signal ends the process.
PITFALL_OURS(09, unified_copies_refuse_reserved_addresses) {
    Gpu gpu;
    need(gpu);
    CUdeviceptr start = reserve(2 * PIECE);
    std::vector<unsigned> words(MIB / 4, 6);
    auto refused = [&](size_t bytes) {
        CK_IS(cuMemcpy(start, (CUdeviceptr)words.data(), bytes), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemcpy((CUdeviceptr)words.data(), start, bytes), CUDA_ERROR_INVALID_VALUE);
    };
    refused(4);
    refused(MIB);
    map(start, PIECE);
    CK(cuMemcpy(start, (CUdeviceptr)words.data(), MIB));
    unmap(start, PIECE);
    refused(4);
    refused(MIB);
    CK(cuMemAddressFree(start, 2 * PIECE));
}

PITFALL(63, memory_lives_as_long_as_its_last_reference) {
    Gpu gpu;
    need(gpu);
    CUdeviceptr start = reserve(4 * PIECE), alias = reserve(4 * PIECE);
    CUmemGenericAllocationHandle handle = create(PIECE), again = 0;
    CUmemAllocationProp said{};
    CK(cuMemGetAllocationPropertiesFromHandle(&said, handle));
    EXPECT(said.type == CU_MEM_ALLOCATION_TYPE_PINNED && said.location.type == CU_MEM_LOCATION_TYPE_DEVICE && said.location.id == 0,
           "another kind of memory");
    EXPECT(said.requestedHandleTypes == 0, "it can be exported");
    CK_IS(cuMemRetainAllocationHandle(&again, (void *)start), CUDA_ERROR_INVALID_VALUE);
    // The same memory at two places.
    CK(cuMemMap(start, PIECE, 0, handle, 0));
    CK(cuMemMap(alias + PIECE, PIECE, 0, handle, 0));
    CK(allow(start, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CK(allow(alias + PIECE, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CK(cuMemRelease(handle));
    CK(cuMemsetD32(start, 41, PIECE / 4));
    CK(cuCtxSynchronize());
    unmap(start, PIECE);
    std::vector<unsigned> got(PIECE / 4);
    CK(cuMemcpyDtoH(got.data(), alias + PIECE, PIECE));
    EXPECT_WORDS(got.data(), PIECE / 4, 41);
    // Any address of it leads to a handle again.
    CK(cuMemRetainAllocationHandle(&again, (void *)(alias + PIECE + 777)));
    CK(cuMemMap(start + PIECE, PIECE, 0, again, 0));
    CK(allow(start + PIECE, PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CK(cuMemRelease(again));
    unmap(alias + PIECE, PIECE);
    CK(cuMemcpyDtoH(got.data(), start + PIECE, PIECE));
    EXPECT_WORDS(got.data(), PIECE / 4, 41);
    unmap(start + PIECE, PIECE);
    CK(cuMemAddressFree(start, 4 * PIECE));
    CK(cuMemAddressFree(alias, 4 * PIECE));
}

PITFALL_OURS(63, handles_that_are_none) {
    Gpu gpu;
    need(gpu);
    CUdeviceptr start = reserve(2 * PIECE);
    CUmemGenericAllocationHandle handle = create(PIECE), other = create(PIECE);
    CUmemAllocationProp said;
    CK(cuMemRelease(handle));
    CUstream stream = new_stream();
    for (CUmemGenericAllocationHandle wrong : {handle, other + 0x100, 0ull, ~0ull, 0xdeadbeefull, (unsigned long long)stream}) {
        CK_IS(cuMemRelease(wrong), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemMap(start, PIECE, 0, wrong, 0), CUDA_ERROR_INVALID_VALUE);
        CK_IS(cuMemGetAllocationPropertiesFromHandle(&said, wrong), CUDA_ERROR_INVALID_VALUE);
    }
    CK(cuMemRelease(other));
    CK(cuMemAddressFree(start, 2 * PIECE));
}

PITFALL(63, what_cannot_be_is_refused) {
    Gpu gpu;
    need(gpu);
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr start = 0;
    CUmemAllocationProp prop = properties();
    auto create_as = [&](size_t bytes, unsigned long long flags = 0) { return cuMemCreate(&handle, bytes, &prop, flags); };
    for (size_t bytes : {size_t(0), size_t(1), PIECE - 1, PIECE + 4096})
        CK_IS(create_as(bytes), CUDA_ERROR_INVALID_VALUE);
    CK_IS(create_as(PIECE, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(create_as(size_t(1) << 46), CUDA_ERROR_OUT_OF_MEMORY);
    CK_IS(cuMemCreate(nullptr, PIECE, &prop, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemCreate(&handle, PIECE, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
    prop.location.id = 1000;
    CK_IS(create_as(PIECE), CUDA_ERROR_INVALID_DEVICE);
    prop.location.id = -1;
    CK_IS(create_as(PIECE), CUDA_ERROR_INVALID_DEVICE);
    prop = properties();
    prop.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    CK_IS(create_as(PIECE), CUDA_ERROR_INVALID_VALUE);
    for (size_t bytes : {size_t(0), size_t(1), PIECE + 4096})
        CK_IS(cuMemAddressReserve(&start, bytes, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAddressReserve(&start, PIECE, 3, 0, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAddressReserve(&start, PIECE, 0, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAddressReserve(nullptr, PIECE, 0, 0, 0), CUDA_ERROR_INVALID_VALUE);

    start = reserve(8 * PIECE);
    handle = create(2 * PIECE);
    CUdeviceptr plain = device_words(PIECE);
    auto map_at = [&](CUdeviceptr at, size_t bytes, size_t offset, unsigned long long flags = 0) {
        return cuMemMap(at, bytes, offset, handle, flags);
    };
    for (CUdeviceptr at : {CUdeviceptr(0), start - PIECE, start + 7 * PIECE, start + 8 * PIECE, start + 4096, plain, CUdeviceptr(0) - PIECE})
        CK_IS(map_at(at, 2 * PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    CK_IS(map_at(start, 0, 0), CUDA_ERROR_INVALID_VALUE);
    // Memory is mapped as a whole.
    for (size_t bytes : {size_t(4096), PIECE, 3 * PIECE})
        CK_IS(map_at(start, bytes, 0), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(map_at(start, PIECE, PIECE), CUDA_ERROR_NOT_SUPPORTED);
    CK_IS(map_at(start, 2 * PIECE, 0, 1), CUDA_ERROR_INVALID_VALUE);
    CK(map_at(start + 2 * PIECE, 2 * PIECE, 0));
    // Over what is mapped: from both sides, and the same.
    for (size_t piece : {1, 2, 3})
        CK_IS(map_at(start + piece * PIECE, 2 * PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    map(start + 4 * PIECE, PIECE);
    // Parts of mappings, and what is no reservation's.
    struct Part {
        CUdeviceptr at;
        size_t bytes;
    } parts[] = {{start + 2 * PIECE, PIECE}, {start + 3 * PIECE, PIECE}, {start + 3 * PIECE, 2 * PIECE}, {start + 2 * PIECE, 0},
                 {plain, PIECE},             {start + 2 * PIECE, ~size_t(0) - PIECE + 1},                {start + 2 * PIECE + 4096, 2 * PIECE}};
    for (auto [at, bytes] : parts) {
        // NVIDIA's driver 580 lets a length pass the end of all addresses.
        if (at + bytes < at && pitfall::backend() == "native")
            continue;
        CUresult unmapped = cuMemUnmap(at, bytes);
        EXPECT(unmapped == CUDA_ERROR_INVALID_VALUE, "%zu bytes at 0x%llx are unmapped: %d", bytes, at - start, unmapped);
        CK_IS(allow(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_VALUE);
    }
    // Access is given to what is mapped, without holes.
    for (auto [at, bytes] : {Part{start + PIECE, 3 * PIECE}, Part{start + 2 * PIECE, 4 * PIECE}, Part{start, PIECE}})
        CK_IS(allow(at, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(allow(start + 2 * PIECE, 2 * PIECE, (CUmemAccess_flags)2), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemSetAccess(start + 2 * PIECE, 2 * PIECE, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
    CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    unsigned long long flags = 0;
    CK_IS(cuMemGetAccess(&flags, &location, start), CUDA_ERROR_INVALID_VALUE);
    // No device was given access to it, though all may use it.
    flags = 9;
    CK(cuMemGetAccess(&flags, &location, plain));
    EXPECT(flags == CU_MEM_ACCESS_FLAGS_PROT_NONE, "access %llu to plain memory", flags);
    // A reservation is freed as a whole, and not while something is mapped in it. Such memory cannot be freed in any
    // other way.
    CK_IS(cuMemAddressFree(start, 8 * PIECE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemFree(start + 2 * PIECE), CUDA_ERROR_INVALID_VALUE);
    // Several whole mappings at once.
    CK(allow(start + 2 * PIECE, 3 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    CK(cuMemsetD8(start + 2 * PIECE, 1, 3 * PIECE));
    CK(cuCtxSynchronize());
    // Unmapped is a range, with its holes; also one in which nothing is.
    CK(cuMemUnmap(start + PIECE, 6 * PIECE));
    CK_IS(cuMemsetD8(start + 2 * PIECE, 1, PIECE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemsetD8(start + 4 * PIECE, 1, PIECE), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemUnmap(start + 2 * PIECE, 3 * PIECE));
    CK_IS(cuMemAddressFree(start, PIECE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(cuMemAddressFree(start + PIECE, 7 * PIECE), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemAddressFree(start, 8 * PIECE));
    CK_IS(cuMemAddressFree(start, 8 * PIECE), CUDA_ERROR_INVALID_VALUE);
    CK_IS(map_at(start, 2 * PIECE, 0), CUDA_ERROR_INVALID_VALUE);
    CK(cuMemRelease(handle));
    CK(cuMemFree(plain));
}

PITFALL(63, memory_of_the_host_and_for_other_processes) {
    Gpu gpu;
    need(gpu);
    CUmemGenericAllocationHandle handle = 0;
    // Asked for by PyTorch and NCCL for all their memory, whether they export it or not.
    CUmemAllocationProp prop = properties();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    CK(cuMemCreate(&handle, PIECE, &prop, 0));
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        int fd = -1;
        CK_IS(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0), CUDA_ERROR_NOT_SUPPORTED);
        CK_IS(cuMemImportFromShareableHandle(&handle, (void *)1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), CUDA_ERROR_NOT_SUPPORTED);
    }
    CK(cuMemRelease(handle));
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)) {
        prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
        EXPECT(cuMemCreate(&handle, PIECE, &prop, 0) != CUDA_SUCCESS, "memory for a fabric");
    }
    if (!gpu.attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        prop = properties();
        prop.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, {0}};
        CK_IS(cuMemCreate(&handle, PIECE, &prop, 0), CUDA_ERROR_NOT_SUPPORTED);
    }
}

PITFALL(72, what_is_made_is_used_until_nothing_refers_to_it) {
    Gpu gpu;
    need(gpu);
    // More than half of the free memory: no second allocation fits, whatever other processes allocate meanwhile.
    const size_t bytes = free_bytes() / 100 * 55 / (2 * MIB) * (2 * MIB);
    CUdeviceptr start = reserve(size_t(1) << 38);
    CUmemGenericAllocationHandle handle = create(bytes), second;
    CUmemAllocationProp prop = properties();
    auto expect_used = [&](const char *what) {
        CUresult code = cuMemCreate(&second, bytes, &prop, 0);
        EXPECT(code == CUDA_ERROR_OUT_OF_MEMORY, "%s: more was made, %d", what, (int)code);
    };
    expect_used("made");
    CK(cuMemMap(start, bytes, 0, handle, 0));
    CK(cuMemRelease(handle));
    expect_used("mapped");
    CK(cuMemUnmap(start, bytes));
    // Nothing refers to it.
    handle = create(bytes);
    CK(cuMemMap(start, bytes, 0, handle, 0));
    CK(cuMemUnmap(start, bytes));
    expect_used("unmapped, with a handle");
    CK(cuMemRelease(handle));
    handle = create(bytes);
    CK(cuMemRelease(handle));
    CK(cuMemAddressFree(start, size_t(1) << 38));
}

// PyTorch's expandable segments: a reservation for more than the device has, grown and shrunk piece by piece.
PITFALL(72, segments_that_expand) {
    Gpu gpu;
    need(gpu);
    CUstream stream = new_stream();
    CUfunction fill = gpu.function("fill");
    size_t free = 0, total = 0;
    CK(cuMemGetInfo(&free, &total));
    for (size_t piece : {2 * MIB, 20 * MIB}) {
        const size_t length = (total + total / 8 + piece - 1) / piece * piece;
        const unsigned count = 8;
        CUdeviceptr start = reserve(length);
        CUmemGenericAllocationHandle handles[count];
        auto at = [&](unsigned i) { return start + i * piece; };
        auto grow = [&](unsigned from, unsigned to) {
            for (unsigned i = from; i < to; i++) {
                handles[i] = create(piece);
                CK(cuMemMap(at(i), piece, 0, handles[i], 0));
            }
            CK(allow(at(from), (to - from) * piece, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        };
        auto shrink = [&](unsigned i) {
            CK(cuStreamSynchronize(stream));
            CK(cuMemUnmap(at(i), piece));
            CK(cuMemRelease(handles[i]));
        };
        grow(0, 1);
        grow(1, 4);
        LAUNCH(fill, 8, 256, stream, start, 1u, (unsigned)(4 * piece / 4));
        grow(4, count);
        LAUNCH(fill, 8, 256, stream, start + 4 * piece, 2u, (unsigned)(4 * piece / 4));
        shrink(2);
        shrink(5);
        std::vector<unsigned> got(3 * piece / 4);
        CK(cuMemcpyDtoHAsync(got.data(), start, 2 * piece, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(got.data(), 2 * piece / 4, 1);
        grow(5, 6);
        grow(2, 3);
        LAUNCH(fill, 8, 256, stream, at(2), 3u, (unsigned)(piece / 4));
        CK(cuMemcpyDtoHAsync(got.data(), at(1), 3 * piece, stream));
        CK(cuStreamSynchronize(stream));
        EXPECT_WORDS(got.data(), piece / 4, 1);
        EXPECT_WORDS(&got[piece / 4], piece / 4, 3);
        EXPECT_WORDS(&got[2 * piece / 4], piece / 4, 1);
        // All available memory, and then an error after which the program can continue.
        if (piece != 2 * MIB && pitfall::backend() != "native") {
            std::vector<CUmemGenericAllocationHandle> rest;
            CUmemAllocationProp prop = properties();
            CUmemGenericAllocationHandle more = 0;
            CUresult code = CUDA_SUCCESS;
            while (rest.size() < 4096 && (code = cuMemCreate(&more, 64 * MIB, &prop, 0)) == CUDA_SUCCESS)
                rest.push_back(more);
            CK_IS(code, CUDA_ERROR_OUT_OF_MEMORY);
            for (auto handle : rest)
                CK(cuMemRelease(handle));
        }
        for (unsigned i = 0; i < count; i++)
            shrink(i);
        CK(cuMemAddressFree(start, length));
    }
}

PITFALL(73, reservations_are_apart_and_bounded) {
    Gpu gpu;
    need(gpu);
    // Directly after the first one, as a program requests that grows a buffer in place; granted or not, they do not
    // overlap.
    CUdeviceptr first = reserve(4 * PIECE), behind = reserve(4 * PIECE, first + 4 * PIECE), same = reserve(PIECE, first);
    pitfall::observed("grown_in_place=%d", behind == first + 4 * PIECE);
    EXPECT(behind >= first + 4 * PIECE || behind + 4 * PIECE <= first, "they overlap");
    EXPECT(same >= first + 4 * PIECE || same + PIECE <= first, "they overlap");
    // A copy across two reservations is invalid.
    if (behind == first + 4 * PIECE) {
        map(first + 3 * PIECE, PIECE);
        map(behind, PIECE);
        std::vector<char> bytes(2 * PIECE);
        OBSERVE("copy_over_two_reservations", cuMemcpyDtoH(bytes.data(), first + 3 * PIECE, 2 * PIECE));
        OBSERVE("access_over_two_reservations", allow(first + 3 * PIECE, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
        unmap(first + 3 * PIECE, PIECE);
        unmap(behind, PIECE);
    }
    CK(cuMemAddressFree(first, 4 * PIECE));
    CK(cuMemAddressFree(behind, 4 * PIECE));
    CK(cuMemAddressFree(same, PIECE));
    for (size_t alignment : {size_t(4096), PIECE, 64 * MIB, size_t(1) << 30})
        CK(cuMemAddressFree(reserve(PIECE, 0, alignment < PIECE ? 0 : alignment), PIECE));
    // However long, there is an end to it, and none to the program.
    std::vector<CUdeviceptr> all;
    CUresult code = CUDA_SUCCESS;
    CUdeviceptr start = 0;
    const size_t length = size_t(1) << 40;
    while (all.size() < 200 && (code = cuMemAddressReserve(&start, length, 0, 0, 0)) == CUDA_SUCCESS)
        all.push_back(start);
    pitfall::observed("hw.tebibytes_reserved=%zu", all.size());
    CK_IS(code, CUDA_ERROR_OUT_OF_MEMORY);
    std::sort(all.begin(), all.end());
    for (size_t i = 1; i < all.size(); i++)
        EXPECT(all[i] - all[i - 1] >= length, "they overlap");
    for (CUdeviceptr reserved : all)
        CK(cuMemAddressFree(reserved, length));
    CK(cuMemAddressFree(reserve(length), length));
}

PITFALL(63, many_threads_map_and_unmap) {
    Gpu gpu;
    need(gpu);
    const unsigned threads = 8, rounds = pitfall::large() ? 500 : 40;
    CUdeviceptr start = reserve(threads * 4 * PIECE);
    std::vector<std::thread> all;
    for (unsigned number = 0; number < threads; number++)
        all.emplace_back([&, number] {
            CK(cuCtxSetCurrent(gpu.context));
            CUstream stream = new_stream();
            CUdeviceptr own = start + number * 4 * PIECE;
            std::vector<unsigned> got(PIECE / 4);
            for (unsigned round = 0; round < rounds; round++) {
                CUdeviceptr at = own + round % 4 * PIECE;
                map(at, PIECE);
                CK(cuMemsetD32Async(at, number << 16 | round, PIECE / 4, stream));
                CK(cuMemcpyDtoHAsync(got.data(), at, PIECE, stream));
                CK(cuStreamSynchronize(stream));
                EXPECT_WORDS(got.data(), PIECE / 4, number << 16 | round);
                CK(cuMemUnmap(at, PIECE));
            }
        });
    for (auto &thread : all)
        thread.join();
    CK(cuMemAddressFree(start, threads * 4 * PIECE));
}

// Mappings belong to the process: a destroyed context removes none, and another one finds them.
PITFALL(63, contexts_end_and_mappings_stay) {
    Gpu gpu;
    need(gpu);
    CK(cuCtxSetCurrent(nullptr));
    // None of it needs a context.
    CUdeviceptr start = reserve(2 * PIECE);
    map(start, PIECE);
    CUcontext other = nullptr;
    CK(cuCtxCreate(&other, nullptr, 0, gpu.device));
    map(start + PIECE, PIECE);
    CK(cuMemsetD32(start, 21, 2 * PIECE / 4));
    CK(cuCtxSynchronize());
    CK(cuCtxDestroy(other));
    CK(cuCtxSetCurrent(gpu.context));
    std::vector<unsigned> got(2 * PIECE / 4);
    CK(cuMemcpyDtoH(got.data(), start, 2 * PIECE));
    EXPECT_WORDS(got.data(), 2 * PIECE / 4, 21);
    EXPECT(ask<CUcontext>(CU_POINTER_ATTRIBUTE_CONTEXT, start) == nullptr, "it is in a context");
    unmap(start, 2 * PIECE);
    CK(cuMemAddressFree(start, 2 * PIECE));
}

PITFALL(30, a_kernel_on_what_is_unmapped_fails) {
    Gpu gpu;
    need(gpu);
    CUfunction fill = gpu.function("fill");
    CUdeviceptr start = reserve(2 * PIECE);
    map(start, PIECE);
    LAUNCH(fill, 1, 256, nullptr, start, 1u, 1024u);
    CK(cuCtxSynchronize());
    CK(cuMemUnmap(start, PIECE));
    LAUNCH(fill, 1, 256, nullptr, start, 1u, 1024u);
    CK_IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
    CUdeviceptr memory = 0;
    CK_IS(cuMemAlloc(&memory, 4), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PITFALL(68, memory_of_another_device) {
    Gpu gpu;
    need(gpu);
    int count = 0, reaches = 0;
    CK(cuDeviceGetCount(&count));
    if (count < 2)
        pitfall::skip("one device");
    CK(cuDeviceCanAccessPeer(&reaches, 0, 1));
    CUcontext peer = nullptr;
    CK(cuDevicePrimaryCtxRetain(&peer, 1));
    CUfunction fill = gpu.function("fill");
    CUdeviceptr start = reserve(2 * PIECE);
    map(start, PIECE, 1);
    map(start + PIECE, PIECE, 0);
    EXPECT(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, start) == 1, "not of device 1");
    EXPECT(ask<int>(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, start + PIECE) == 0, "not of device 0");
    EXPECT(allowed(start, 1) == CU_MEM_ACCESS_FLAGS_PROT_READWRITE && allowed(start, 0) == CU_MEM_ACCESS_FLAGS_PROT_NONE,
           "the devices' access is %llu and %llu", allowed(start, 1), allowed(start, 0));
    CUmemGenericAllocationHandle handle = 0;
    CK(cuMemRetainAllocationHandle(&handle, (void *)start));
    CUmemAllocationProp said{};
    CK(cuMemGetAllocationPropertiesFromHandle(&said, handle));
    EXPECT(said.location.id == 1, "of device %d", said.location.id);
    CK(cuMemRelease(handle));
    CK(cuCtxSetCurrent(peer));
    CK(cuMemsetD32(start, 4, PIECE / 4));
    CK(cuCtxSynchronize());
    CK(cuMemcpyPeer(start + PIECE, gpu.context, start, peer, PIECE));
    CK(cuCtxSynchronize());
    CK(cuCtxSetCurrent(gpu.context));
    std::vector<unsigned> got(PIECE / 4);
    CK(cuMemcpyDtoH(got.data(), start + PIECE, PIECE));
    EXPECT_WORDS(got.data(), PIECE / 4, 4);
    if (reaches) {
        // Both devices at once.
        CUmemAccessDesc both[] = {{{CU_MEM_LOCATION_TYPE_DEVICE, {0}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
                                  {{CU_MEM_LOCATION_TYPE_DEVICE, {1}}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE}};
        CK(cuMemSetAccess(start, 2 * PIECE, both, 2));
        LAUNCH(fill, 8, 256, nullptr, start, 5u, (unsigned)(2 * PIECE / 4));
        CK(cuCtxSynchronize());
        CK(cuCtxSetCurrent(peer));
        CK(cuMemcpyDtoH(got.data(), start + PIECE, PIECE));
        EXPECT_WORDS(got.data(), PIECE / 4, 5);
        CK(cuCtxSetCurrent(gpu.context));
        CK(cuCtxSynchronize());
        CK(allow(start, 2 * PIECE, CU_MEM_ACCESS_FLAGS_PROT_NONE, 0));
    }
    // A kernel of a device without access.
    LAUNCH(fill, 1, 256, nullptr, start, 6u, 1024u);
    CK_IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

PITFALL_MAIN
