# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""NVIDIA's cuda-core and cuda-bindings on any GPU, the software GPU too.

Each section uses one part of the packages, checks what it gets, and returns numbers that must be the same on every way
to the GPU. A section that needs what the installed release or the GPU does not have is left out. Alone, the program
prints a line for each section: cuda_core.py [WORD…] runs those whose names have one of the words.
"""

import ctypes
import multiprocessing
import sys
import traceback

import numpy

SECTIONS = {}


class Lacks(Exception):
    """The release or the GPU does not have what the section uses."""


def section(run):
    SECTIONS[run.__name__.replace("_", " ")] = run
    return run


def need(there, what):
    if not there:
        raise Lacks(what)


def equal(ours, right, what="a result"):
    if ours != right:
        raise AssertionError(f"{what} is {ours!r} and not {right!r}")


def same(ours, right, what="an array"):
    if not numpy.array_equal(ours, right):
        raise AssertionError(f"{what} is {ours} and not {right}")


def refused(name, run, *words):
    """What `run` raises has these words in its text."""
    try:
        run()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        for word in words:
            if word not in text:
                raise AssertionError(f"{name} is refused with {text!r}, which has no {word!r}") from error
        return 1
    raise AssertionError(f"{name} is not refused")


def part(name, *attributes):
    """A module of cuda.core, where the installed release has it. Without these attributes, the section is left out."""
    import importlib

    for base in ("cuda.core", "cuda.core.experimental"):
        try:
            module = importlib.import_module(base + name)
        except ImportError:
            continue
        if all(hasattr(module, attribute) for attribute in attributes):
            return module
    raise Lacks(f"cuda.core{name} with {' '.join(attributes)}")


def release():
    import importlib.metadata

    return importlib.metadata.version("cuda-core")


class Place:
    """A device that is current, a stream, and what the sections share."""

    def __init__(self):
        self.core = part("", "Device", "Program", "launch")
        self.device = self.core.Device()
        self.device.set_current()
        self.stream = self.device.create_stream()
        capability = self.device.compute_capability
        self.arch = f"{capability.major}{capability.minor}"

    def compile(self, source, *names, **options):
        """The kernels of a source, by their names."""
        options.setdefault("std", "c++17")
        program = self.core.Program(source, code_type="c++", options=self.core.ProgramOptions(**options))
        code = program.compile("ptx", name_expressions=names)
        kernels = [code.get_kernel(name) for name in names]
        return kernels[0] if len(kernels) == 1 else kernels

    def timing(self, enabled):
        """Options of an event: releases before 1.0 have another name for this one."""
        name = "timing_enabled" if hasattr(self.core.EventOptions(), "timing_enabled") else "enable_timing"
        return self.core.EventOptions(**{name: enabled})

    def launch(self, kernel, grid, block, *arguments, stream=None, **config):
        self.core.launch(
            stream or self.stream, self.core.LaunchConfig(grid=grid, block=block, **config), kernel, *arguments
        )

    def buffer(self, array, resource=None):
        """A buffer with what the array holds."""
        resource = resource or self.device.memory_resource
        buffer = resource.allocate(array.nbytes, stream=self.stream)
        self.write(buffer, array)
        return buffer

    def write(self, buffer, array):
        from cuda.bindings import driver

        array = numpy.ascontiguousarray(array)
        self.check(driver.cuMemcpyHtoDAsync(int(buffer.handle), array.ctypes.data, array.nbytes, self.stream.handle))
        self.stream.sync()

    def read(self, buffer, dtype, count=None, address=None):
        """What a buffer holds, once the stream is done."""
        from cuda.bindings import driver

        dtype = numpy.dtype(dtype)
        array = numpy.empty(buffer.size // dtype.itemsize if count is None else count, dtype)
        self.stream.sync()
        self.check(
            driver.cuMemcpyDtoH(array.ctypes.data, int(buffer.handle if address is None else address), array.nbytes)
        )
        return array

    def check(self, result):
        from cuda.bindings import driver

        code, *rest = result
        if int(code) != 0:
            raise RuntimeError(f"{driver.cuGetErrorName(code)[1].decode()}")
        return rest[0] if len(rest) == 1 else tuple(rest)


SCALE = """
template <typename T> __global__ void scale(T* to, const T* from, T by, size_t n) {
    size_t step = gridDim.x * (size_t)blockDim.x;
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += step) to[i] = from[i] * by;
}
extern "C" __global__ void add_one(int* x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += 1;
}
extern "C" __global__ void add(int* x, int by) { atomicAdd(x, by); }
"""


@section
def devices(place):
    device, core = place.device, place.core
    equal(core.Device(device.device_id) is device or core.Device(device.device_id) == device, True)
    properties = device.properties
    names = [name for name in dir(type(properties)) if not name.startswith("_")]
    values = {name: int(getattr(properties, name)) for name in names}
    equal(
        (device.compute_capability.major, device.compute_capability.minor),
        (values["compute_capability_major"], values["compute_capability_minor"]),
    )
    equal(getattr(device, "arch", place.arch), place.arch)
    equal(device.uuid.count("-"), 4)
    equal(device.context is not None, True)
    refused("a device that is none", lambda: core.Device(1000))
    equal(
        len(core.Device.get_all_devices()) if hasattr(core.Device, "get_all_devices") else 1,
        devices_of_the_driver(place),
    )
    # Sizes alone: some abilities are the host's.
    sizes = (
        "max_",
        "maximum_",
        "compute_capability",
        "warp",
        "multiprocessor",
        "texture_",
        "surface_",
        "l2_",
        "total_constant",
    )
    return [values[name] for name in sorted(values) if name.startswith(sizes)]


def devices_of_the_driver(place):
    from cuda.bindings import driver

    return place.check(driver.cuDeviceGetCount())


@section
def streams_and_events(place):
    device, core = place.device, place.core
    kernel = place.compile(SCALE, "add_one")
    x = place.buffer(numpy.arange(1000, dtype=numpy.int32))
    low, high = (core.StreamOptions(priority=priority) for priority in (0, -1))
    streams = [device.create_stream(options=options) for options in (low, high, None)]
    equal([stream.priority for stream in streams[:2]], [0, -1])
    equal(device.create_stream(options=core.StreamOptions(nonblocking=False)).is_nonblocking, False)
    equal(streams[0].is_nonblocking, True)
    equal(streams[0] == streams[1], False)
    equal(streams[0].device == device and streams[0].context == device.context, True)
    last = place.stream
    for stream in streams:
        stream.wait(last)
        place.launch(kernel, 4, 256, x, numpy.int32(1000), stream=stream)
        last = stream
    event = last.record(options=place.timing(False))
    place.stream.wait(event)
    place.launch(kernel, 4, 256, x, numpy.int32(1000))
    same(place.read(x, numpy.int32), numpy.arange(1000) + 4)
    event.sync()
    equal(event.is_done, True)
    # A stream of somebody else.
    foreign = core.Stream.from_handle(int(streams[0].handle))
    place.launch(kernel, 4, 256, x, numpy.int32(1000), stream=foreign)
    foreign.sync()

    class Theirs:
        def __cuda_stream__(self):
            return (0, int(streams[1].handle))

    theirs = device.create_stream(Theirs())
    place.launch(kernel, 4, 256, x, numpy.int32(1000), stream=theirs)
    theirs.sync()
    for stream in (device.default_stream, core._stream.LEGACY_DEFAULT_STREAM, core._stream.PER_THREAD_DEFAULT_STREAM):
        place.launch(kernel, 4, 256, x, numpy.int32(1000), stream=stream)
        stream.sync()
    same(place.read(x, numpy.int32), numpy.arange(1000) + 9)
    start, end = (device.create_event(options=place.timing(True)) for _ in range(2))
    place.stream.record(start)
    place.launch(kernel, 4, 256, x, numpy.int32(1000))
    place.stream.record(end)
    end.sync()
    equal(end - start >= 0, True)
    equal(getattr(start, "is_timing_enabled", True), True)
    plain = [place.stream.record() for _ in range(2)]
    refused("the time between events without times", lambda: plain[1] - plain[0], "timing")
    never = device.create_event(options=place.timing(True))
    refused("the time to an event that is not recorded", lambda: never - start, "record")
    blocking = device.create_event(
        options=core.EventOptions(
            **{name: True for name in ("busy_waited_sync", "blocking_sync") if hasattr(core.EventOptions(), name)}
        )
    )
    place.stream.record(blocking)
    blocking.sync()
    x.close()
    for stream in streams:
        stream.close()
    return [int(blocking.is_done)]


@section
def programs_and_kernels(place):
    core = place.core
    names = ("scale<float>", "scale<double>", "add_one")
    code = core.Program(SCALE, code_type="c++", options=core.ProgramOptions(std="c++17")).compile(
        "ptx", name_expressions=names
    )
    equal(getattr(code, "code_type", "ptx"), "ptx")
    found = []
    for name, dtype in zip(names, (numpy.float32, numpy.float64)):
        x, n = numpy.linspace(1, 2, 777, dtype=dtype), numpy.uint64(777)
        ours, to = place.buffer(x), place.device.memory_resource.allocate(x.nbytes, stream=place.stream)
        place.launch(code.get_kernel(name), (3, 1, 1), (64, 1, 1), to, ours, dtype(3), n)
        same(place.read(to, dtype), x * dtype(3))
        found.append(float(place.read(to, dtype).sum()))
    kernel = code.get_kernel("add_one")
    attributes = kernel.attributes

    def at(name):
        """Older releases have functions where newer ones have properties."""
        value = getattr(attributes, name)
        return value() if callable(value) else value

    equal(at("max_threads_per_block") >= 256, True)
    equal(at("num_regs") > 0, True)
    equal((at("shared_size_bytes"), at("local_size_bytes")), (0, 0))
    found.append(at("ptx_version"))
    if hasattr(kernel, "arguments_info"):
        equal(kernel.num_arguments, 2)
        equal([(info.offset, info.size) for info in kernel.arguments_info], [(0, 8), (8, 4)])
    if hasattr(kernel, "occupancy"):
        occupancy = kernel.occupancy
        found.append(occupancy.max_active_blocks_per_multiprocessor(256, 0))
        found.append(occupancy.available_dynamic_shared_memory_per_block(2, 256))
        size = occupancy.max_potential_block_size(0, 256)
        equal(size.min_grid_size > 0 and 0 < size.max_block_size <= 256, True)
    refused("a kernel that is none", lambda: code.get_kernel("nothing"), "NOT_FOUND")
    again = core.ObjectCode.from_ptx(code.code, symbol_mapping=getattr(code, "symbol_mapping", None))
    x = place.buffer(numpy.arange(10, dtype=numpy.int32))
    place.launch(again.get_kernel("add_one"), 1, 32, x, numpy.int32(10))
    same(place.read(x, numpy.int32), numpy.arange(10) + 1)
    refused(
        "PTX that is none",
        lambda: core.ObjectCode.from_ptx(b".version 9.0\n.target sm_80\nnothing\n").get_kernel("f"),
        "CUDA_ERROR_INVALID_",
    )
    refused("a source that does not compile", lambda: core.Program("nothing", code_type="c++").compile("ptx"), "error")
    if hasattr(core.Kernel, "from_handle"):
        twin = core.Kernel.from_handle(int(kernel.handle), code)
        place.launch(twin, 1, 32, x, numpy.int32(10))
        same(place.read(x, numpy.int32), numpy.arange(10) + 2)
    return found


LAYOUT = (
    "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64"
    "-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
)


@section
def programs_of_other_sources(place):
    """PTX and NVVM's IR as sources; code that was pickled, and code from a cache."""
    import pickle

    core = place.core
    code = core.Program(SCALE, code_type="c++", options=core.ProgramOptions(std="c++17")).compile("ptx")
    x = place.buffer(numpy.zeros(32, numpy.int32))
    kernels = [pickle.loads(pickle.dumps(code)).get_kernel("add_one")]
    text = code.code.decode() if isinstance(code.code, bytes) else code.code
    program = core.Program(text.rstrip("\0"), code_type="ptx")
    linked = program.compile("cubin")
    equal(getattr(linked, "code_type", "cubin"), "cubin")
    try:
        kernels.append(linked.get_kernel("add_one"))
    except Exception as error:
        # A GPU that runs PTX alone.
        if not any(word in str(error) for word in ("NO_BINARY_FOR_GPU", "INVALID_IMAGE", "NOT_SUPPORTED")):
            raise
    source = """
    target triple = "nvptx64-unknown-cuda"
    target datalayout = "%s"
    declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
    define void @add_one(i32* %x, i32 %n) {
        %at = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
        %where = getelementptr i32, i32* %x, i32 %at
        %was = load i32, i32* %where
        %is = add i32 %was, 1
        store i32 %is, i32* %where
        ret void
    }
    !nvvm.annotations = !{!0}
    !0 = !{void (i32*, i32)* @add_one, !"kernel", i32 1}
    !nvvmir.version = !{!1}
    !1 = !{i32 2, i32 0, i32 3, i32 1}
    """.replace("%s", LAYOUT)
    try:
        kernels.append(core.Program(source, code_type="nvvm").compile("ptx").get_kernel("add_one"))
    except (RuntimeError, ImportError, ValueError, OSError) as error:
        if "nvvm" not in str(error).lower() or "ERROR" in str(error):
            raise
    try:
        cache = part(".utils", "InMemoryProgramCache").InMemoryProgramCache()
        for _ in range(2):
            program = core.Program(SCALE, code_type="c++", options=core.ProgramOptions(std="c++17"))
            kernels.append(program.compile("ptx", cache=cache).get_kernel("add_one"))
    except Lacks:
        pass
    for kernel in kernels:
        place.launch(kernel, 1, 32, x, numpy.int32(32))
    same(place.read(x, numpy.int32), numpy.full(32, len(kernels)))
    if not release().startswith("0.3"):
        equal(pickle.loads(pickle.dumps(place.device)) == place.device, True)
    return []


CALLER = """
extern __device__ int twice(int);
extern "C" __global__ void f(int* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
"""
CALLED = "__device__ int twice(int x) { return 2 * x; }"


@section
def linked_programs(place):
    core = place.core
    need(hasattr(core, "Linker"), "Linker")
    found = []
    for lto in (False, True):
        options = core.ProgramOptions(relocatable_device_code=True, link_time_optimization=lto or None)
        kind = "ltoir" if lto else "ptx"
        codes = [core.Program(source, code_type="c++", options=options).compile(kind) for source in (CALLER, CALLED)]
        if lto:
            linker = core.Linker(
                *codes,
                options=core.LinkerOptions(arch=f"sm_{place.arch}", link_time_optimization=True, ptx=True),
            )
            linked = linker.link("ptx")
        else:
            linker = core.Linker(*codes, options=core.LinkerOptions(arch=f"sm_{place.arch}"))
            linked = linker.link("cubin")
        linker.close()
        x = place.buffer(numpy.arange(32, dtype=numpy.int32))
        try:
            kernel = linked.get_kernel("f")
        except Exception as error:
            # A GPU that runs PTX alone.
            if (
                lto
                or "NO_BINARY_FOR_GPU" not in str(error)
                and "INVALID_IMAGE" not in str(error)
                and "NOT_SUPPORTED" not in str(error)
            ):
                raise
            continue
        place.launch(kernel, 1, 32, x)
        same(place.read(x, numpy.int32), 2 * numpy.arange(32))
        found.append(int(lto))
    return found[-1:]


@section
def links_by_the_driver(place):
    """cuLink, which cuda-core uses without nvJitLink."""
    from cuda.bindings import driver

    core = place.core
    options = core.ProgramOptions(relocatable_device_code=True)
    codes = [core.Program(source, code_type="c++", options=options).compile("ptx").code for source in (CALLER, CALLED)]
    log = bytearray(4096)
    keys = [driver.CUjit_option.CU_JIT_INFO_LOG_BUFFER, driver.CUjit_option.CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES]
    state = place.check(driver.cuLinkCreate(2, keys, [log, len(log)]))
    for at, code in enumerate(codes):
        code = code if isinstance(code, bytes) else code.encode()
        place.check(
            driver.cuLinkAddData(
                state, driver.CUjitInputType.CU_JIT_INPUT_PTX, code, len(code), b"part%d" % at, 0, [], []
            )
        )
    image, size = place.check(driver.cuLinkComplete(state))
    library = place.check(driver.cuLibraryLoadData(ctypes.string_at(image, size), [], [], 0, [], [], 0))
    place.check(driver.cuLinkDestroy(state))
    kernel = place.check(driver.cuLibraryGetKernel(library, b"f"))
    x = place.buffer(numpy.arange(32, dtype=numpy.int32))
    place.check(
        driver.cuLaunchKernel(
            driver.CUfunction(int(kernel)),
            1,
            1,
            1,
            32,
            1,
            1,
            0,
            place.stream.handle,
            ((int(x.handle),), (ctypes.c_void_p,)),
            0,
        )
    )
    same(place.read(x, numpy.int32), 2 * numpy.arange(32))
    place.check(driver.cuLibraryUnload(library))
    return [size > 0]


@section
def launches(place):
    core, device = place.core, place.device
    source = """
    #include <cooperative_groups.h>
    namespace cg = cooperative_groups;
    extern "C" __global__ void total(int* x, int* sum) {
        cg::this_grid().sync();
        atomicAdd(sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
        cg::this_grid().sync();
        x[blockIdx.x * blockDim.x + threadIdx.x] = *sum;
    }
    """
    dynamic = """
    struct Pair { int a; double b; };
    extern "C" __global__ void reverse(int* x) {
        extern __shared__ int kept[];
        kept[threadIdx.x] = x[threadIdx.x];
        __syncthreads();
        x[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
    }
    extern "C" __global__ void kinds(double* to, bool b, signed char c, short s, int i, long long l, float f, double d,
                                     unsigned char u) {
        to[0] = b; to[1] = c; to[2] = s; to[3] = i; to[4] = l; to[5] = f; to[6] = d; to[7] = u;
    }
    """
    reverse, kinds = place.compile(dynamic, "reverse", "kinds")
    x = place.buffer(numpy.arange(512, dtype=numpy.int32))
    place.launch(reverse, 1, 512, x, shmem_size=2048)
    same(place.read(x, numpy.int32), numpy.arange(512)[::-1])
    to = place.buffer(numpy.zeros(8))
    place.launch(
        kinds,
        1,
        1,
        to,
        True,
        numpy.int8(-3),
        numpy.int16(-300),
        numpy.int32(70000),
        -(1 << 40),
        ctypes.c_float(0.5),
        0.1,
        numpy.uint8(200),
    )
    same(place.read(to, numpy.float64), [1, -3, -300, 70000, -float(1 << 40), 0.5, 0.1, 200])
    if hasattr(
        core.LaunchConfig(grid=1, block=1), "programmatic_stream_serialization"
    ) and device.compute_capability >= (9, 0):
        place.launch(reverse, 1, 512, x, shmem_size=2048, programmatic_stream_serialization=True)
        same(place.read(x, numpy.int32), numpy.arange(512))
        place.launch(reverse, 1, 512, x, shmem_size=2048)
    refused("a block that is too large", lambda: place.launch(reverse, 1, 4096, x), "INVALID_VALUE")
    refused(
        "too much shared memory",
        lambda: place.launch(reverse, 1, 32, x, shmem_size=1 << 26),
        "CUDA_ERROR_INVALID_VALUE",
    )
    kernel, includes = None, cooperative_headers()
    if includes and hasattr(core.LaunchConfig(grid=1, block=1), "is_cooperative"):
        try:
            kernel = place.compile(source, "total", include_path=includes)
        except core._utils.cuda_utils.NVRTCError:
            pass  # The headers are of another release.
    if kernel is not None:
        x, total = place.buffer(numpy.ones(256, numpy.int32)), place.buffer(numpy.zeros(1, numpy.int32))
        place.launch(kernel, 4, 64, x, total, is_cooperative=True)
        same(place.read(x, numpy.int32), numpy.full(256, 256))
        refused(
            "a cooperative grid that is too large",
            lambda: place.launch(kernel, 1 << 20, 64, x, total, is_cooperative=True),
        )
    if getattr(device.properties, "cluster_launch", False):
        source = """
        extern "C" __global__ void ranks(unsigned* to) {
            unsigned rank, size;
            asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
            asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
            if (!threadIdx.x) to[blockIdx.x] = rank * 100 + size;
        }
        """
        kernel = place.compile(source, "ranks")
        to = place.buffer(numpy.zeros(8, numpy.uint32))
        place.launch(kernel, 4, 32, to, cluster=2)
        same(place.read(to, numpy.uint32), [2, 102] * 4)
        if hasattr(kernel, "occupancy"):
            config = core.LaunchConfig(grid=4, cluster=2, block=32)
            equal(kernel.occupancy.max_active_clusters(config, stream=place.stream) > 0, True)
            equal(kernel.occupancy.max_potential_cluster_size(config, stream=place.stream) >= 2, True)
    return [float(place.read(to, numpy.float64 if to.size == 64 else numpy.uint32, 4).sum())]


def cooperative_headers():
    """The folders of CUDA's headers in this Python, if they are installed."""
    import glob
    import os
    import site

    folders = []
    for packages in site.getsitepackages():
        for header in glob.glob(os.path.join(packages, "nvidia", "*", "include", "cooperative_groups.h")):
            folders.append(os.path.dirname(header))
            folders.extend(folder for folder in [os.path.join(folders[-1], "cccl")] if os.path.isdir(folder))
    return folders


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
        # By the host alone: on an H200 (driver 580), a kernel that used such memory failed natively, too.
        array = numpy.from_dlpack(x).view(numpy.int32)
        array[:] = numpy.arange(1000)
        same(array, numpy.arange(1000))
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


def graph_parts():
    """The module with the names of graphs."""
    try:
        return part(".graph", "GraphBuilder")
    except Lacks:
        return part("", "GraphBuilder")


@section
def captured_graphs(place):
    core, device, stream = place.core, place.device, place.stream
    need(hasattr(device, "create_graph_builder"), "graph builders")
    graphs = graph_parts()
    kernel, add = place.compile(SCALE, "add_one", "add")
    x, n = place.buffer(numpy.zeros(100, numpy.int32)), numpy.int32(100)
    builder = device.create_graph_builder().begin_building()
    equal(builder.is_building, True)
    place.launch(kernel, 1, 128, x, n, stream=builder)
    left, right = builder.split(2)
    place.launch(add, 1, 1, x, numpy.int32(10), stream=left)
    place.launch(add, 1, 1, int(x.handle) + 4, numpy.int32(20), stream=right)
    joined = graphs.GraphBuilder.join(left, right)
    place.launch(kernel, 1, 128, x, n, stream=joined)
    called = []
    if hasattr(joined, "callback"):
        joined.callback(lambda: called.append(1))
    graph = joined.end_building().complete()
    graph.upload(stream)
    for _ in range(3):
        graph.launch(stream)
    expected = numpy.full(100, 6)
    expected[:2] += [30, 60]
    same(place.read(x, numpy.int32), expected)
    equal(len(called), 3 if hasattr(joined, "callback") else 0)

    # The same with another number, put in the place of the first.
    def build(by):
        builder = device.create_graph_builder().begin_building()
        place.launch(add, 1, 1, x, numpy.int32(by), stream=builder)
        return builder.end_building()

    one, other = build(1), build(1000)
    graph = one.complete()
    graph.launch(stream)
    graph.update(other)
    graph.launch(stream)
    equal(int(place.read(x, numpy.int32)[0]), 36 + 1001)
    child = build(5)
    builder = device.create_graph_builder().begin_building()
    try:
        (builder.embed if hasattr(builder, "embed") else builder.add_child)(child)
    except TypeError:
        # A release whose function does not fit the one of cuda-bindings that it calls.
        place.launch(add, 1, 1, x, numpy.int32(5), stream=builder)
    builder.end_building().complete().launch(stream)
    found = place.read(x, numpy.int32)
    equal(int(found[0]), 36 + 1006)
    import os
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "graph.dot")
        try:
            one.debug_dot_print(path)
        except TypeError:
            one.debug_dot_print(path.encode())
        with open(path) as file:
            equal("digraph" in file.read(), True)
    return [int(found.sum())]


@section
def conditional_graphs(place):
    device, stream = place.device, place.stream
    need(hasattr(device, "create_graph_builder"), "graph builders")
    builder = device.create_graph_builder()
    need(hasattr(builder, "create_condition") or hasattr(builder, "create_conditional_handle"), "conditions")
    new = "create_condition" if hasattr(builder, "create_condition") else "create_conditional_handle"
    source = SCALE + """
    typedef cudaGraphConditionalHandle Handle;
    extern "C" __device__ __cudart_builtin__ void CUDARTAPI cudaGraphSetConditional(Handle handle, unsigned int value);
    extern "C" __global__ void set(Handle handle, unsigned value) { cudaGraphSetConditional(handle, value); }
    extern "C" __global__ void down(Handle handle, int* left) { cudaGraphSetConditional(handle, --*left > 0); }
    """
    try:
        put, down, add = place.compile(source, "set", "down", "add")
    except Exception as error:
        raise Lacks(f"kernels that set conditions: {str(error).splitlines()[0]}") from error
    x = place.buffer(numpy.zeros(4, numpy.int32))

    def at(index):
        return int(x.handle) + 4 * index

    found = []
    for value in (0, 1, 2, 3):
        builder = device.create_graph_builder().begin_building()
        handles = [getattr(builder, new)(default_value=0) for _ in range(4)]
        for handle in handles[:3]:
            place.launch(put, 1, 1, handle, numpy.uint32(value), stream=builder)
        place.launch(put, 1, 1, handles[3], numpy.uint32(1), stream=builder)
        body = getattr(builder, "if_then", None) or builder.if_cond
        branch = body(handles[0]).begin_building()
        place.launch(add, 1, 1, at(0), numpy.int32(1), stream=branch)
        branch.end_building()
        for number, branch in enumerate(builder.if_else(handles[1])):
            branch.begin_building()
            place.launch(add, 1, 1, at(1), numpy.int32(10**number), stream=branch)
            branch.end_building()
        for number, branch in enumerate(builder.switch(handles[2], 3)):
            branch.begin_building()
            place.launch(add, 1, 1, at(2), numpy.int32(10**number), stream=branch)
            branch.end_building()
        left = place.buffer(numpy.full(1, 5, numpy.int32))
        loop = builder.while_loop(handles[3]).begin_building()
        place.launch(add, 1, 1, at(3), numpy.int32(1), stream=loop)
        place.launch(down, 1, 1, handles[3], left, stream=loop)
        loop.end_building()
        graph = builder.end_building().complete()
        graph.launch(stream)
        found.append(place.read(x, numpy.int32).tolist())
    equal(found, [[0, 10, 1, 5], [1, 11, 11, 10], [2, 12, 111, 15], [3, 13, 111, 20]])
    return found[-1]


@section
def defined_graphs(place):
    core, device, stream = place.core, place.device, place.stream
    graphs = part(".graph", "GraphDefinition")
    kernel, add = place.compile(SCALE, "add_one", "add")
    x, y = (place.buffer(numpy.zeros(100, numpy.int32)) for _ in range(2))
    config, n = core.LaunchConfig(grid=1, block=128), numpy.int32(100)
    one = core.LaunchConfig(grid=1, block=1)
    graph = graphs.GraphDefinition()
    first = graph.memset(int(x.handle), numpy.int32(5), 100)
    second = first.launch(config, kernel, x, n)
    third = second.memcpy(int(y.handle), int(x.handle), 400)
    event = device.create_event()
    recorded = third.record(event)
    seen = []
    called = recorded.callback(lambda: seen.append(1))
    other = graph.launch(one, add, y, numpy.int32(0))
    joined = graph.join(called, other)
    waits = joined.wait(event)
    equal(len(graph.nodes()), 8)
    equal(len(graph.edges()), 7)
    equal(
        [type(node).__name__ for node in (first, second, third, recorded, called, joined, waits)],
        ["MemsetNode", "KernelNode", "MemcpyNode", "EventRecordNode", "HostCallbackNode", "EmptyNode", "EventWaitNode"],
    )
    equal((first.dptr, first.value, first.element_size, first.width, first.height), (int(x.handle), 5, 4, 100, 1))
    equal((third.src, third.dst, third.size), (int(x.handle), int(y.handle), 400))
    equal((second.grid, second.block, second.shmem_size), ((1, 1, 1), (128, 1, 1), 0))
    equal(second.kernel == kernel, True)
    equal(set(third.pred) == {second} and set(third.succ) == {recorded}, True)
    equal(recorded.event == event, True)
    ready = graph.instantiate()
    ready.launch(stream)
    same(place.read(y, numpy.int32), numpy.full(100, 6))
    equal(seen, [1])
    # Memory of the graph's own.
    owned = graphs.GraphDefinition()
    memory = owned.allocate(400)
    equal((memory.bytesize, memory.device_id, memory.memory_type), (400, device.device_id, "device"))
    last = (
        memory.memset(memory.dptr, numpy.int32(41), 100)
        .launch(config, kernel, memory.dptr, n)
        .memcpy(int(x.handle), memory.dptr, 400)
    )
    last.deallocate(memory.dptr)
    ready = owned.instantiate()
    for _ in range(2):
        ready.launch(stream)
        same(place.read(x, numpy.int32), numpy.full(100, 42))
    child = graphs.GraphDefinition()
    child.launch(one, add, x, numpy.int32(8))
    outer = graphs.GraphDefinition()
    node = outer.embed(child)
    equal(len(node.child_graph.nodes()), 1)
    outer.instantiate().launch(stream)
    found = place.read(x, numpy.int32)
    equal(int(found[0]), 50)
    # Conditions.
    if hasattr(outer, "create_condition"):
        conditional = graphs.GraphDefinition()
        condition = conditional.create_condition(default_value=1)
        branch = conditional.if_then(condition)
        branch.then.launch(one, add, x, numpy.int32(3))
        either = branch.if_else(conditional.create_condition(default_value=0))
        either.then.launch(one, add, x, numpy.int32(1000))
        either.else_.launch(one, add, x, numpy.int32(4))
        cases = either.switch(conditional.create_condition(default_value=2), 3)
        for number, body in enumerate(cases.branches):
            body.launch(one, add, x, numpy.int32(100 * number))
        conditional.instantiate().launch(stream)
        found = place.read(x, numpy.int32)
        equal(int(found[0]), 50 + 3 + 4 + 200)
    # An edge goes, then a node.
    other.destroy()
    equal(other.is_valid, False)
    waits.pred.clear()
    equal((len(graph.nodes()), len(waits.pred)), (7, 0))

    def in_a_circle():
        third.succ.add(first)
        graph.instantiate()

    refused("a circle", in_a_circle)
    return [int(found.sum())]


@section
def updates_of_graphs(place):
    core, device, stream = place.core, place.device, place.stream
    graphs = part(".graph", "GraphDefinition", "ExecutableKernelNode")
    kernel, add = place.compile(SCALE, "add_one", "add")
    x, y = (place.buffer(numpy.zeros(100, numpy.int32)) for _ in range(2))
    one = core.LaunchConfig(grid=1, block=1)
    graph = graphs.GraphDefinition()
    fill = graph.memset(int(x.handle), numpy.int32(5), 100)
    call = fill.launch(one, add, x, numpy.int32(10))
    copy = call.memcpy(int(y.handle), int(x.handle), 400)
    seen = []
    callback = copy.callback(lambda: seen.append("first"))
    child = graphs.GraphDefinition()
    child.launch(one, add, y, numpy.int32(100))
    embedded = callback.embed(child)
    events = [device.create_event() for _ in range(2)]
    record = embedded.record(events[0])
    ready = graph.instantiate()
    ready.launch(stream)
    equal(int(place.read(y, numpy.int32)[0]), 115)
    ready[fill].update(dst=x, value=numpy.int32(7), width=100)
    ready[call].update(config=core.LaunchConfig(grid=1, block=128), kernel=kernel, args=(x, numpy.int32(100)))
    ready[callback].update(lambda: seen.append("second"))
    ready[record].update(events[1])
    another = graphs.GraphDefinition()
    another.launch(one, add, y, numpy.int32(1000))
    ready[embedded].update(another)
    ready.launch(stream)
    same(place.read(y, numpy.int32), [1008] + [8] * 99)
    equal(seen, ["first", "second"])
    equal(ready[call].is_enabled, True)
    ready[call].disable()
    equal(ready[call].is_enabled, False)
    ready.launch(stream)
    equal(int(place.read(y, numpy.int32)[1]), 7)
    ready[call].enable()
    ready[copy].update(dst=y, src=x, size=40)
    ready.launch(stream)
    events[1].sync()
    # The definition is as it was, and changes for itself.
    fill.update(value=numpy.int32(3))
    call.update(args=(x, numpy.int32(20)))
    copy.update(size=200)
    callback.update(lambda: seen.append("third"))
    record.update(events[0])
    embedded.update(another)
    equal((fill.value, copy.size), (3, 200))
    again = graph.instantiate()
    again.launch(stream)
    found = place.read(y, numpy.int32)
    equal(found[:2].tolist(), [1023, 3])
    ready.update(graph)
    ready.launch(stream)
    same(place.read(y, numpy.int32), found)
    return [int(found.sum()), len(seen)]


@section
def memory_of_graphs(place):
    core, device, stream = place.core, place.device, place.stream
    need(hasattr(core, "GraphMemoryResource"), "GraphMemoryResource")
    resource = core.GraphMemoryResource(device)
    kernel = place.compile(SCALE, "add_one")
    x = place.buffer(numpy.zeros(100, numpy.int32))
    builder = device.create_graph_builder().begin_building()
    inner = resource.allocate(400, stream=builder)
    inner.fill(3, stream=builder)
    place.launch(kernel, 1, 128, inner, numpy.int32(100), stream=builder)
    inner.copy_to(x, stream=builder)
    inner.close(builder)
    graph = builder.end_building().complete()
    graph.launch(stream)
    same(place.read(x, numpy.int32), numpy.full(100, 0x03030304))
    equal(resource.attributes.reserved_mem_high >= 400, True)
    stream.sync()
    graph.close()
    resource.trim()
    equal(resource.attributes.used_mem_current, 0)
    resource.attributes.used_mem_high = 0
    equal(resource.attributes.used_mem_high, 0)
    return [1]


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


def numbers():
    """What all sections come to, in one process: those that are left out have none."""
    found = []
    place = Place()
    for name, run in SECTIONS.items():
        try:
            found.extend(float(number) for number in run(place))
        except Lacks:
            pass
        except Exception as error:
            raise RuntimeError(f"{name}: {error}") from error
    return found


def main():
    words = sys.argv[1:]
    place = Place()
    failed = 0
    for name, run in SECTIONS.items():
        if words and not any(word in name for word in words):
            continue
        try:
            print(f"{name}: {[float(number) for number in run(place)]}", flush=True)
        except Lacks as lack:
            print(f"{name}: left out, there is no {lack}", flush=True)
        except Exception:
            failed += 1
            print(f"{name}: wrong", flush=True)
            traceback.print_exc()
    sys.exit(failed != 0)


if __name__ == "__main__":
    main()
