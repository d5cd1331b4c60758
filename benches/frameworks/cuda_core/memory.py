# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Memory resources, managed and virtual memory, pools of two processes, views, batches of copies."""

import ctypes
import multiprocessing

import numpy

from .common import Place, SCALE, equal, need, part, refused, same, section


@section
def memory_resources(place):
    core, device, stream = place.core, place.device, place.stream
    found = []
    resource = (
        core.DeviceMemoryResource(device, core.DeviceMemoryResourceOptions(max_size=8 << 20))
        if hasattr(core, "DeviceMemoryResourceOptions")
        else core.DeviceMemoryResource(device.device_id)
    )
    x = place.buffer(numpy.arange(1000, dtype=numpy.int32), resource)
    equal((x.size, x.is_device_accessible, x.is_host_accessible, x.device_id), (4000, True, False, device.device_id))
    equal(x.memory_resource is resource, True)
    y = x.copy_to(stream=stream)
    same(place.read(y, numpy.int32), numpy.arange(1000))
    z = resource.allocate(4000, stream=stream)
    z.copy_from(y, stream=stream)
    same(place.read(z, numpy.int32), numpy.arange(1000))
    if hasattr(z, "fill"):
        z.fill(7, stream=stream)
        same(place.read(z, numpy.uint8), numpy.full(4000, 7))
        z.fill(numpy.int16(300), stream=stream)
        same(place.read(z, numpy.int16), numpy.full(2000, 300))
        z.fill(numpy.float32(1.5), stream=stream)
        same(place.read(z, numpy.float32), numpy.full(1000, 1.5))
    if hasattr(resource, "attributes"):
        attributes = resource.attributes
        found += [
            int(attributes.reuse_follow_event_dependencies),
            int(attributes.reuse_allow_opportunistic),
            attributes.release_threshold,
        ]
        equal(
            attributes.used_mem_current >= 12000 and attributes.reserved_mem_high >= attributes.used_mem_high > 0, True
        )
    for buffer in (x, y, z):
        buffer.close(stream)
    if hasattr(core, "DeviceMemoryResourceOptions"):
        refused("more than a pool may have", lambda: resource.allocate(64 << 20, stream=stream))
    refused("more than the GPU has", lambda: device.memory_resource.allocate(1 << 50, stream=stream))
    empty = device.memory_resource.allocate(0, stream=stream)
    equal(empty.size, 0)

    legacy = core.LegacyPinnedMemoryResource()
    pinned = legacy.allocate(4000)
    equal((pinned.is_device_accessible, pinned.is_host_accessible), (True, True))
    array = numpy.from_dlpack(pinned).view(numpy.int32)
    array[:] = numpy.arange(1000)
    kernel = place.compile(SCALE, "add_one")
    place.launch(kernel, 4, 256, pinned, numpy.int32(1000))
    stream.sync()
    same(array, numpy.arange(1000) + 1)
    x = place.buffer(numpy.zeros(1000, numpy.int32))
    pinned.copy_to(x, stream=stream)
    same(place.read(x, numpy.int32), numpy.arange(1000) + 1)
    equal(bytes(memoryview(array)[:2]), numpy.arange(1, 3, dtype=numpy.int32).tobytes())
    if hasattr(x, "set_deallocation_stream"):
        other = device.create_stream()
        x.set_deallocation_stream(other)
        x.close()
        other.sync()
        x = place.buffer(numpy.arange(1000, dtype=numpy.int32) + 1)
    # Memory of somebody else.
    borrowed = core.Buffer.from_handle(int(x.handle), x.size)
    place.launch(kernel, 4, 256, borrowed, numpy.int32(1000))
    same(place.read(x, numpy.int32), numpy.arange(1000) + 2)
    return [*found, int(array.sum())]


@section
def pinned_and_managed_pools(place):
    """What a GPU lacks of it is left out, and so no numbers are compared."""
    core, stream = place.core, place.stream
    need(hasattr(core, "PinnedMemoryResource"), "PinnedMemoryResource")
    lacks = []
    for name in ("PinnedMemoryResource", "ManagedMemoryResource"):
        try:
            resource = getattr(core, name)()
            x = resource.allocate(4000, stream=stream)
        except Exception as error:
            if "NOT_SUPPORTED" not in str(error) and "not support" not in str(error) and "not found" not in str(error):
                raise
            lacks.append(name)
            continue
        equal((x.is_device_accessible, x.is_host_accessible), (True, True))
        stream.sync()
        # By the host and in copies: a kernel needs access, which cuda-core does not give (an H200, driver 580).
        array = numpy.from_dlpack(x).view(numpy.int32)
        array[:] = numpy.arange(1000)
        same(array, numpy.arange(1000))
        y = place.buffer(numpy.zeros(1000, numpy.int32))
        y.copy_from(x, stream=stream)
        same(place.read(y, numpy.int32), numpy.arange(1000))
        del array
        x.close(stream)
    need(not lacks, " and no ".join(lacks))
    return []


@section
def managed_memory(place):
    """As cuda-bindings has it, with cuda-core's buffers."""
    from cuda.bindings import driver

    core, device, stream = place.core, place.device, place.stream
    address = place.check(driver.cuMemAllocManaged(1 << 20, driver.CUmemAttach_flags.CU_MEM_ATTACH_GLOBAL.value))
    array = numpy.ctypeslib.as_array(ctypes.cast(int(address), ctypes.POINTER(ctypes.c_int32)), (1 << 18,))
    array[:] = 1
    kernel = place.compile(SCALE, "add_one")
    place.launch(kernel, 1 << 10, 256, int(address), numpy.int32(1 << 18))
    stream.sync()
    same(array, numpy.full(1 << 18, 2))
    if hasattr(core, "ManagedBuffer"):
        buffer = core.ManagedBuffer.from_handle(int(address), 1 << 20)
        equal(buffer.is_managed, True)
        equal(buffer.read_mostly, False)
        buffer.read_mostly = True
        equal(buffer.read_mostly, True)
        buffer.read_mostly = False
        equal(buffer.preferred_location, None)
        for location in (device, core.Host()):
            buffer.preferred_location = location
            equal(buffer.preferred_location, location)
        buffer.preferred_location = None
        buffer.accessed_by = {device}
        equal(set(buffer.accessed_by), {device})
        buffer.accessed_by.discard(device)
        equal(set(buffer.accessed_by), set())
        if device.properties.concurrent_managed_access:
            buffer.prefetch(device, stream=stream)
            buffer.prefetch(core.Host(), stream=stream)
            stream.sync()
        same(array, numpy.full(1 << 18, 2))
    place.check(driver.cuMemFree(address))
    return [2]


@section
def virtual_memory(place):
    core, device = place.core, place.device
    need(hasattr(core, "VirtualMemoryResource"), "VirtualMemoryResource")
    need(device.properties.virtual_memory_management_supported, "virtual memory management")
    resource = core.VirtualMemoryResource(device)
    x = resource.allocate(1 << 20)
    size = x.size
    y = numpy.arange(size // 4, dtype=numpy.int32)
    place.write(x, y)
    kernel = place.compile(SCALE, "add_one")
    place.launch(kernel, size // 1024, 256, int(x.handle), numpy.int32(size // 4))
    same(place.read(x, numpy.int32), y + 1)
    larger = resource.modify_allocation(x, 3 * size)
    same(place.read(larger, numpy.int32, size // 4), y + 1)
    place.write(larger, numpy.arange(3 * size // 4, dtype=numpy.int32))
    place.launch(kernel, 3 * size // 1024, 256, int(larger.handle), numpy.int32(3 * size // 4))
    same(place.read(larger, numpy.int32, 3 * size // 4), numpy.arange(3 * size // 4) + 1)
    return [size]


def shared_pool_child(question, answer):
    """The other process: adds one to a buffer of a pool that it gets, once the events are over."""
    try:
        place = Place()
        resource, buffer, events = question.get(timeout=60)
        for event in events:
            place.stream.wait(event)
        numbers = place.read(buffer, numpy.int32)
        place.launch(place.compile(SCALE, "add_one"), 4, 256, buffer, numpy.int32(1000))
        place.stream.sync()
        answer.put((int(numbers.sum()), bool(getattr(buffer, "is_mapped", True)), bool(resource.is_mapped)))
        buffer.close()
    except BaseException as error:
        answer.put(f"{type(error).__name__}: {error}")
        raise


@section
def memory_of_two_processes(place):
    core, device, stream = place.core, place.device, place.stream
    need(
        hasattr(core, "DeviceMemoryResourceOptions") and hasattr(core.DeviceMemoryResourceOptions(), "ipc_enabled"),
        "shared pools",
    )
    need(device.properties.mempool_supported_handle_types & 1, "pools with file descriptors")
    resource = core.DeviceMemoryResource(device, core.DeviceMemoryResourceOptions(ipc_enabled=True, max_size=8 << 20))
    equal((resource.is_ipc_enabled, resource.is_mapped), (True, False))
    x = place.buffer(numpy.arange(1000, dtype=numpy.int32), resource)
    events = []
    if hasattr(core.EventOptions(), "ipc_enabled"):
        events = [place.stream.record(options=core.EventOptions(ipc_enabled=True))]
        equal(events[0].is_ipc_enabled, True)
    # cuda-core warns if programs would fork.
    multiprocessing.set_start_method("spawn", force=True)
    question, answer = multiprocessing.Queue(), multiprocessing.Queue()
    child = multiprocessing.Process(target=shared_pool_child, args=(question, answer))
    child.start()
    question.put((resource, x, events))
    said = answer.get(timeout=60)
    child.join()
    equal(said, (499500, True, True), "what the other process says")
    equal(child.exitcode, 0, "the other process's status")
    same(place.read(x, numpy.int32), numpy.arange(1000) + 1)
    x.close(stream)
    stream.sync()
    return [said[0]]


@section
def views_and_dlpack(place):
    core, device, stream = place.core, place.device, place.stream
    utils = part(".utils", "StridedMemoryView", "args_viewable_as_strided_memory")
    x = place.buffer(numpy.arange(24, dtype=numpy.int32))
    equal(x.__dlpack_device__()[0], 2)
    # Releases before 1.0 have the class alone.
    by_dlpack = getattr(utils.StridedMemoryView, "from_dlpack", utils.StridedMemoryView)
    by_interface = getattr(utils.StridedMemoryView, "from_cuda_array_interface", utils.StridedMemoryView)
    view = by_dlpack(x, stream_ptr=-1)
    equal(
        (view.shape, view.device_id, view.is_device_accessible, view.readonly), ((96,), device.device_id, True, False)
    )
    host = numpy.arange(24, dtype=numpy.float32).reshape(4, 6)[:, ::2]
    view = by_dlpack(host, stream_ptr=-1)
    equal((view.shape, view.strides, view.dtype, view.device_id), ((4, 3), (6, 2), numpy.dtype(numpy.float32), -1))

    @utils.args_viewable_as_strided_memory((0,))
    def ask(array, pointer):
        seen = array.view(pointer)
        return seen.ptr, seen.shape

    equal(ask(host, -1), (host.ctypes.data, (4, 3)))

    class Interface:
        __cuda_array_interface__ = {
            "shape": (4, 6),
            "typestr": "<i4",
            "data": (int(x.handle), False),
            "version": 3,
            "strides": None,
            "stream": int(stream.handle),
        }

    view = by_interface(Interface(), stream_ptr=int(stream.handle))
    equal((view.ptr, view.shape, view.dtype), (int(x.handle), (4, 6), numpy.dtype(numpy.int32)))
    if hasattr(utils.StridedMemoryView, "from_buffer"):
        view = utils.StridedMemoryView.from_buffer(x, (6, 4), dtype=numpy.dtype(numpy.int32))
        equal((view.shape, view.size, view.ptr), ((6, 4), 24, int(x.handle)))
    return [int(place.read(x, numpy.int32).sum())]


@section
def batches_of_copies(place):
    core, device, stream = place.core, place.device, place.stream
    utils = part(".utils", "copy_batch", "CopyOptions")
    sources = [place.buffer(numpy.full(100 + at, at, numpy.int32)) for at in range(5)]
    targets = [device.memory_resource.allocate(source.size, stream=stream) for source in sources]
    utils.copy_batch(stream, sources, targets)
    for at, target in enumerate(targets):
        same(place.read(target, numpy.int32), numpy.full(100 + at, at))
    utils.copy_batch(stream, targets, sources[::1], options=utils.CopyOptions(src_access_order="any"))
    targets[0].copy_from(
        sources[0], stream=stream, options=utils.CopyOptions(overlap_mode="prefer_overlap_with_compute")
    )
    return [int(place.read(targets[-1], numpy.int32).sum())]
