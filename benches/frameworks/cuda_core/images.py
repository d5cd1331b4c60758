# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Textures, surfaces, tensor maps, green contexts, NVML, and errors."""

import numpy

from .common import SCALE, equal, need, part, refused, same, section


TEXTURES = """
extern "C" __global__ void sample(float* to, cudaTextureObject_t from, int w, int h) {
    int x = threadIdx.x, y = threadIdx.y;
    if (x >= w || y >= h) return;
    to[y * w + x] = tex2D<float>(from, x + 0.5f, y + 0.5f) + 2 * tex2D<float>(from, x + 1.0f, y + 0.5f);
}
extern "C" __global__ void store(cudaSurfaceObject_t to, int w, int h) {
    int x = threadIdx.x, y = threadIdx.y;
    if (x < w && y < h) surf2Dwrite(float(y * w + x), to, x * 4, y);
}
extern "C" __global__ void level(float* to, cudaTextureObject_t from, float l) {
    to[threadIdx.x] = tex2DLod<float>(from, (threadIdx.x + 0.5f) / blockDim.x, 0.5f, l);
}
extern "C" __global__ void row(float* to, cudaTextureObject_t from) {
    to[threadIdx.x] = tex2D<float>(from, threadIdx.x + 0.5f, 0.5f);
}
extern "C" __global__ void linear(int* to, cudaTextureObject_t from) {
    to[threadIdx.x] = tex1Dfetch<int>(from, threadIdx.x);
}
"""


@section
def textures_and_surfaces(place):
    device, stream = place.device, place.stream
    need(hasattr(device, "create_opaque_array"), "arrays")
    textures = part(".texture", "OpaqueArrayOptions", "TextureObjectOptions", "ResourceDescriptor")
    sample, store, level, row, linear = place.compile(TEXTURES, "sample", "store", "level", "row", "linear")
    w, h = 16, 8
    array = device.create_opaque_array(
        textures.OpaqueArrayOptions(shape=(w, h), format=numpy.float32, num_channels=1, is_surface_load_store=True)
    )
    equal((array.shape, array.num_channels, array.element_bytes, array.size_bytes), ((w, h), 1, 4, w * h * 4))
    image = numpy.arange(w * h, dtype=numpy.float32).reshape(h, w) ** 1.5
    array.copy_from(image, stream=stream)
    stream.sync()
    back = numpy.zeros_like(image)
    array.copy_to(back, stream=stream)
    stream.sync()
    same(back, image)
    resource = textures.ResourceDescriptor.from_opaque_array(array)
    texture = device.create_texture_object(
        resource=resource, options=textures.TextureObjectOptions(filter_mode="linear", address_mode="clamp")
    )
    to = place.buffer(numpy.zeros(w * h, numpy.float32))
    place.launch(sample, 1, (w, h), to, numpy.uint64(int(texture.handle)), numpy.int32(w), numpy.int32(h))
    got = place.read(to, numpy.float32).reshape(h, w)
    right = numpy.concatenate([image[:, 1:], image[:, -1:]], axis=1)
    equal(bool(numpy.allclose(got, image + (image + right), rtol=1e-2)), True)
    surface = device.create_surface_object(resource=resource)
    place.launch(store, 1, (w, h), numpy.uint64(int(surface.handle)), numpy.int32(w), numpy.int32(h))
    stream.sync()
    array.copy_to(back, stream=stream)
    stream.sync()
    same(back, numpy.arange(w * h).reshape(h, w))
    levels = device.create_mipmapped_array(
        textures.MipmappedArrayOptions(shape=(8, 8), format=numpy.float32, num_channels=1, num_levels=3)
    )
    equal(levels.num_levels, 3)
    for at in range(3):
        part_of = levels.get_level(at)
        equal(part_of.shape, (8 >> at, 8 >> at))
        part_of.copy_from(numpy.full((8 >> at, 8 >> at), 10.0 * at, numpy.float32), stream=stream)
        stream.sync()
    # Textures of levels have normalized coordinates.
    options = textures.TextureObjectOptions(
        max_mipmap_level_clamp=2.0, mipmap_filter_mode="point", normalized_coords=True
    )
    mipmapped = device.create_texture_object(
        resource=textures.ResourceDescriptor.from_mipmapped_array(levels), options=options
    )
    found = []
    for at in range(3):
        place.launch(level, 1, 2, to, numpy.uint64(int(mipmapped.handle)), numpy.float32(at))
        found.append(float(place.read(to, numpy.float32)[0]))
    equal(found, [0.0, 10.0, 20.0])
    ints = place.buffer(numpy.arange(64, dtype=numpy.int32) * 3)
    descriptor = textures.ResourceDescriptor.from_linear(ints, format=numpy.int32, num_channels=1)
    fetched = device.create_texture_object(resource=descriptor)
    target = place.buffer(numpy.zeros(64, numpy.int32))
    place.launch(linear, 1, 64, target, numpy.uint64(int(fetched.handle)))
    same(place.read(target, numpy.int32), numpy.arange(64) * 3)
    pitch = device.properties.texture_pitch_alignment * 4
    rows = place.buffer(numpy.arange(4 * pitch // 4, dtype=numpy.float32))
    descriptor = textures.ResourceDescriptor.from_pitch2d(
        rows, format=numpy.float32, num_channels=1, width=8, height=4, pitch_bytes=pitch
    )
    pitched = device.create_texture_object(resource=descriptor)
    place.launch(row, 1, 8, to, numpy.uint64(int(pitched.handle)))
    same(place.read(to, numpy.float32)[:8], numpy.arange(8))
    refused(
        "an array of three channels",
        lambda: device.create_opaque_array(
            textures.OpaqueArrayOptions(shape=(8, 8), format=numpy.float32, num_channels=3)
        ),
    )
    for thing in (pitched, texture, surface, mipmapped, fetched, levels, array):
        thing.close()
    return [float(got.sum()), *found]


@section
def tensor_maps(place):
    device = place.device
    need(getattr(device.properties, "tensor_map_access_supported", False), "tensor maps")
    utils = part(".utils", "StridedMemoryView")
    need(hasattr(utils.StridedMemoryView, "as_tensor_map"), "tensor maps of views")
    x = place.buffer(numpy.arange(64 * 64, dtype=numpy.float32))
    view = utils.StridedMemoryView.from_buffer(x, (64, 64), dtype=numpy.dtype(numpy.float32))
    descriptor = view.as_tensor_map(box_dim=(32, 32))
    equal(descriptor.device == device, True)
    source = """
    struct __align__(64) Map { unsigned long long words[16]; };
    extern "C" __global__ void load(const __grid_constant__ Map map, float* to) {
        __shared__ __align__(128) float tile[32 * 32];
        __shared__ __align__(8) unsigned long long barrier;
        unsigned b = (unsigned)__cvta_generic_to_shared(&barrier), t = (unsigned)__cvta_generic_to_shared(tile);
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(b));
            asm volatile("fence.proxy.async.shared::cta;");
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(b), "r"(4096));
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                         " [%0], [%1, {%2, %3}], [%4];"
                         :: "r"(t), "l"(&map), "r"(32), "r"(32), "r"(b) : "memory");
        }
        __syncthreads();
        unsigned done = 0;
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done) : "r"(b) : "memory");
        for (int i = threadIdx.x; i < 1024; i += blockDim.x) to[i] = tile[i];
    }
    """
    kernel = place.compile(source, "load")
    to = place.buffer(numpy.zeros(1024, numpy.float32))
    place.launch(kernel, 1, 128, descriptor, to)
    right = numpy.arange(64 * 64, dtype=numpy.float32).reshape(64, 64)[32:, 32:].ravel()
    same(place.read(to, numpy.float32), right)
    y = place.buffer(numpy.arange(64 * 64, dtype=numpy.float32) * 2)
    descriptor.replace_address(utils.StridedMemoryView.from_buffer(y, (64, 64), dtype=numpy.dtype(numpy.float32)))
    place.launch(kernel, 1, 128, descriptor, to)
    same(place.read(to, numpy.float32), right * 2)
    return [float(right.sum())]


@section
def green_contexts(place):
    core, device = place.core, place.device
    need(hasattr(device, "create_context") and hasattr(core, "SMResourceOptions"), "green contexts")
    whole = device.resources.sm
    equal(whole.sm_count, device.properties.multiprocessor_count)
    wanted = max(whole.min_partition_size, 8)
    (group,), rest = whole.split(core.SMResourceOptions(count=wanted))
    equal(group.sm_count >= wanted and group.sm_count + rest.sm_count <= whole.sm_count, True)
    context = device.create_context(core.ContextOptions(resources=[group]))
    equal(context.is_green, True)
    equal(context.resources.sm.sm_count, group.sm_count)
    stream = context.create_stream()
    equal(stream.context == context, True)
    equal(stream.resources.sm.sm_count, group.sm_count)
    kernel = place.compile(SCALE, "add_one")
    x = place.buffer(numpy.arange(1000, dtype=numpy.int32))
    place.launch(kernel, 4, 256, x, numpy.int32(1000), stream=stream)
    stream.sync()
    same(place.read(x, numpy.int32), numpy.arange(1000) + 1)
    before = device.set_current(context)
    inner = device.create_stream()
    place.launch(kernel, 4, 256, x, numpy.int32(1000), stream=inner)
    inner.sync()
    device.set_current(before)
    same(place.read(x, numpy.int32), numpy.arange(1000) + 2)
    for thing in (inner, stream):
        thing.close()
    context.close()
    return [whole.sm_count, group.sm_count]


@section
def system_and_nvml(place):
    system = part(".system")
    found = []
    if hasattr(system, "get_user_mode_driver_version"):
        equal(system.get_num_devices() >= 1, True)
        version = system.get_user_mode_driver_version()
        equal(version[0] >= 12, True)
        equal(system.get_nvml_version()[0] >= 12, True)
        equal(system.get_kernel_mode_driver_version()[0] >= 1, True)
        seen = system.Device(index=0) if hasattr(system, "Device") else None
        if seen is not None:
            ours = place.device
            equal(seen.name, ours.name)
            equal(seen.uuid_without_prefix if hasattr(seen, "uuid_without_prefix") else seen.uuid[4:], ours.uuid)
            equal(seen.memory_info.total > 0, True)
            equal(tuple(seen.cuda_compute_capability), tuple(ours.compute_capability))
            if hasattr(ours, "to_system_device"):
                equal(ours.to_system_device().uuid, seen.uuid)
                equal(seen.to_cuda_device() == ours, True)
            equal(seen.pci_info.bus_id.count(":"), 2)
            equal(0 <= seen.utilization.gpu <= 100, True)
    elif hasattr(system, "num_devices"):
        equal(system.num_devices >= 1, True)
        found.append(system.driver_version[0])
    return found


@section
def errors_of_calls(place):
    from cuda.bindings import driver

    # No handles that are none: NVIDIA's driver may crash on them.
    found = [int(driver.cuMemFree(12345)[0]), int(driver.cuDeviceGet(99)[0])]
    for code in (driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY, driver.CUresult.CUDA_ERROR_INVALID_VALUE):
        equal(driver.cuGetErrorName(code)[1].decode(), code.name)
        equal(len(driver.cuGetErrorString(code)[1]) > 5, True)
    return found
