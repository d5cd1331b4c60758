# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Devices, streams, events, programs, links and launches."""

import ctypes

import numpy

from .common import Lacks, SCALE, equal, need, part, refused, release, same, section


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
    """The directories of CUDA's headers in this Python, if they are installed."""
    import glob
    import os
    import site

    directories = []
    for packages in site.getsitepackages():
        for header in glob.glob(os.path.join(packages, "nvidia", "*", "include", "cooperative_groups.h")):
            directories.append(os.path.dirname(header))
            cccl = os.path.join(directories[-1], "cccl")
            if os.path.isdir(cccl):
                directories.append(cccl)
    return directories
