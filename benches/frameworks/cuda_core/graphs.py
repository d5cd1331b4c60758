# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""Graphs: captured, conditional, defined, updated, and their memory."""

import numpy

from .common import Lacks, SCALE, equal, need, part, refused, same, section


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

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "graph.dot")
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
