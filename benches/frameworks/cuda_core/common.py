# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What sections share: their registry, checks, and a device with a stream and a few ways to use it."""

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
