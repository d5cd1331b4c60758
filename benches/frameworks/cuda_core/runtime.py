# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""The runtime API of cuda-bindings, and what of cuda-core calls it. gpgpu-run serves releases since 12.9.8 and 13.4."""

import ctypes
import importlib.metadata

import numpy

from .common import SCALE, equal, need, same, section


def served():
    """`cuda.bindings.runtime`, where the licence of the release lets gpgpu-run serve it."""
    licence = importlib.metadata.metadata("cuda-bindings").get("License-Expression")
    need(licence == "Apache-2.0", "cuda-bindings under the Apache licence")
    from cuda.bindings import runtime

    return runtime


def ok(result):
    """The answer of a call that must succeed."""
    code, *rest = result
    equal(int(code), 0, "a call's code")
    return rest[0] if len(rest) == 1 else tuple(rest)


@section
def runtime_copies(place):
    runtime = served()
    kind = runtime.cudaMemcpyKind
    data, back = numpy.arange(4096, dtype=numpy.int32), numpy.zeros(4096, numpy.int32)
    stream = ok(runtime.cudaStreamCreate())
    there = ok(runtime.cudaMallocAsync(data.nbytes, stream))
    ok(runtime.cudaMemcpyAsync(there, data.ctypes.data, data.nbytes, kind.cudaMemcpyHostToDevice, stream))
    ok(runtime.cudaMemsetAsync(there, 0xFF, 64, stream))
    start, end = ok(runtime.cudaEventCreate()), ok(runtime.cudaEventCreate())
    ok(runtime.cudaEventRecord(start, stream))
    ok(runtime.cudaMemcpyAsync(back.ctypes.data, there, data.nbytes, kind.cudaMemcpyDeviceToHost, stream))
    ok(runtime.cudaEventRecord(end, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    equal(ok(runtime.cudaEventElapsedTime(start, end)) >= 0, True)
    same(back[:16], numpy.full(16, -1))
    same(back[16:], data[16:])
    ok(runtime.cudaFreeAsync(there, stream))
    # Rows of an array.
    channel = ok(runtime.cudaCreateChannelDesc(32, 0, 0, 0, runtime.cudaChannelFormatKind.cudaChannelFormatKindSigned))
    array = ok(runtime.cudaMallocArray(channel, 64, 64, 0))
    pitch = 64 * 4
    ok(runtime.cudaMemcpy2DToArray(array, 0, 0, data.ctypes.data, pitch, pitch, 64, kind.cudaMemcpyHostToDevice))
    ok(runtime.cudaMemcpy2DFromArray(back.ctypes.data, pitch, array, 0, 8, pitch, 8, kind.cudaMemcpyDeviceToHost))
    same(back[:512], data[512:1024])
    described, extent, _ = ok(runtime.cudaArrayGetInfo(array))
    equal((described.x, extent.width, extent.height), (32, 64, 64))
    ok(runtime.cudaFreeArray(array))
    return [int(back[:512].sum()), extent.width]


@section
def runtime_kernels_and_graphs(place):
    runtime = served()
    from cuda.bindings import driver

    program = place.core.Program(SCALE, code_type="c++", options=place.core.ProgramOptions(std="c++17"))
    code = program.compile("cubin" if place.device.compute_capability.major >= 9 else "ptx").code
    library = ok(runtime.cudaLibraryLoadData(code, [], [], 0, [], [], 0))
    kernel = ok(runtime.cudaLibraryGetKernel(library, b"add"))
    there = ok(runtime.cudaMalloc(4))
    ok(runtime.cudaMemset(there, 0, 4))
    stream = ok(runtime.cudaStreamCreateWithFlags(runtime.cudaStreamNonBlocking))
    called = []
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda data: called.append(data))
    node = runtime.cudaHostFn_t(_ptr=ctypes.addressof(function))
    ok(runtime.cudaStreamBeginCapture(stream, runtime.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal))
    arguments = ((there, 3), (ctypes.c_void_p, ctypes.c_int))
    ok(driver.cuLaunchKernel(driver.CUkernel(int(kernel)), 2, 1, 1, 32, 1, 1, 0, int(stream), arguments, 0))
    ok(runtime.cudaLaunchHostFunc(stream, node, 5))
    graph = ok(runtime.cudaStreamEndCapture(stream))
    _, count = ok(runtime.cudaGraphGetNodes(graph))
    executable = ok(runtime.cudaGraphInstantiate(graph, 0))
    for _ in range(4):
        ok(runtime.cudaGraphLaunch(executable, stream))
    ok(runtime.cudaStreamSynchronize(stream))
    total = numpy.zeros(1, numpy.int32)
    ok(runtime.cudaMemcpy(total.ctypes.data, there, 4, runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost))
    equal(int(total[0]), 4 * 2 * 32 * 3)
    equal(called, [5] * 4)
    ok(runtime.cudaGraphExecDestroy(executable))
    ok(runtime.cudaGraphDestroy(graph))
    ok(runtime.cudaLibraryUnload(library))
    return [count, int(total[0])]


@section
def runtime_devices_and_errors(place):
    runtime = served()
    properties = ok(runtime.cudaGetDeviceProperties(0))
    attribute = runtime.cudaDeviceAttr.cudaDevAttrMultiProcessorCount
    equal(properties.multiProcessorCount, ok(runtime.cudaDeviceGetAttribute(attribute, 0)))
    code, _ = runtime.cudaMalloc(1 << 60)
    equal(ok(runtime.cudaGetErrorName(code)), b"cudaErrorMemoryAllocation")
    equal(runtime.cudaGetLastError()[0], code)
    equal(int(runtime.cudaGetLastError()[0]), 0)
    refused, _ = runtime.cudaGetDeviceProperties(99)
    equal(int(refused), int(runtime.cudaError_t.cudaErrorInvalidDevice))
    identity = ok(runtime.cudaDeviceGetPCIBusId(32, 0)).split(b"\0")[0].decode()
    equal(ok(runtime.cudaDeviceGetByPCIBusId(identity.encode())), 0)
    equal(place.device.pci_bus_id.lower(), identity.lower())
    place.device.sync()
    return [properties.warpSize, properties.major, int(refused)]
