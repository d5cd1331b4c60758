// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions that are new in CUDA 13.1 and 13.2, copies between arrays, external semaphores, and the device of OpenGL.

use super::*;
use fake::{FUNCTION, NODE, NODES_KERNEL, PARAMETERS};

unsafe extern "C" {
    safe fn cudaGLSetGLDevice(device: c_int) -> cudaError_t;
    safe fn cudaGraphConditionalHandleCreate_v2(
        handle: &mut u64,
        graph: cudaGraph_t,
        context: cudaExecutionContext_t,
        value: c_uint,
        flags: c_uint,
    ) -> cudaError_t;
    safe fn cudaMemcpyWithAttributesAsync(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        attributes: *mut CUmemcpyAttributes,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaMemcpyWithAttributesAsync_ptsz(
        to: *mut c_void,
        from: *const c_void,
        bytes: usize,
        attributes: *mut CUmemcpyAttributes,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaMemcpy3DWithAttributesAsync(
        operation: *mut c_void,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaMemcpy3DWithAttributesAsync_ptsz(
        operation: *mut c_void,
        flags: u64,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaLaunchHostFunc_v2(
        stream: cudaStream_t,
        function: CUhostFn,
        data: *mut c_void,
        mode: c_uint,
    ) -> cudaError_t;
    safe fn cudaLaunchHostFunc_v2_ptsz(
        stream: cudaStream_t,
        function: CUhostFn,
        data: *mut c_void,
        mode: c_uint,
    ) -> cudaError_t;
    safe fn cudaFuncGetParamCount(function: *const c_void, count: *mut usize) -> cudaError_t;
    safe fn cudaMemcpyArrayToArray(
        to: cudaArray_t,
        to_x: usize,
        to_y: usize,
        from: cudaArray_t,
        from_x: usize,
        from_y: usize,
        bytes: usize,
        kind: c_uint,
    ) -> cudaError_t;
    safe fn cudaMemcpyArrayToArray_ptds(
        to: cudaArray_t,
        to_x: usize,
        to_y: usize,
        from: cudaArray_t,
        from_x: usize,
        from_y: usize,
        bytes: usize,
        kind: c_uint,
    ) -> cudaError_t;
    safe fn cudaGraphNodeGetContainingGraph(
        node: cudaGraphNode_t,
        graph: &mut cudaGraph_t,
    ) -> cudaError_t;
    safe fn cudaGraphNodeGetLocalId(node: cudaGraphNode_t, id: &mut c_uint) -> cudaError_t;
    safe fn cudaGraphNodeGetToolsId(node: cudaGraphNode_t, id: &mut u64) -> cudaError_t;
    safe fn cudaGraphGetId(graph: cudaGraph_t, id: &mut c_uint) -> cudaError_t;
    safe fn cudaGraphExecGetId(exec: cudaGraphExec_t, id: &mut c_uint) -> cudaError_t;
    safe fn cudaGraphNodeGetParams(node: cudaGraphNode_t, to: *mut [u64; 32]) -> cudaError_t;
    safe fn cudaGraphNodeSetParams(node: cudaGraphNode_t, from: *const [u64; 32]) -> cudaError_t;
    safe fn cudart13_cudaGraphAddNode(
        node: &mut cudaGraphNode_t,
        graph: cudaGraph_t,
        dependencies: *const cudaGraphNode_t,
        edges: *const c_void,
        count: usize,
        parameters: *mut [u64; 32],
    ) -> cudaError_t;
    safe fn cudart12_cudaSignalExternalSemaphoresAsync(
        semaphores: *const *mut c_void,
        parameters: *const [u32; 8],
        count: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudart12_cudaWaitExternalSemaphoresAsync_ptsz(
        semaphores: *const *mut c_void,
        parameters: *const [u32; 10],
        count: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudart13_cudaSignalExternalSemaphoresAsync(
        semaphores: *const *mut c_void,
        parameters: *const [u32; 36],
        count: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudart13_cudaWaitExternalSemaphoresAsync_ptsz(
        semaphores: *const *mut c_void,
        parameters: *const [u32; 36],
        count: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaSignalExternalSemaphoresAsync_v2_ptsz(
        semaphores: *const *mut c_void,
        parameters: *const [u32; 36],
        count: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
    safe fn cudaWaitExternalSemaphoresAsync_v2(
        semaphores: *const *mut c_void,
        parameters: *const [u32; 36],
        count: c_uint,
        stream: cudaStream_t,
    ) -> cudaError_t;
}

/// A context that the test makes current.
const CONTEXT: usize = 0xabc0;

/// A handle of any type.
fn handle<T>(address: usize) -> *mut T {
    without_provenance_mut(address)
}

#[test]
fn opengls_device_is_the_threads() {
    let mut device = 9;
    assert_eq!((cudaGLSetGLDevice(1), cudaGetDevice(&mut device)), (0, 0));
    assert_eq!((device, cudaGLSetGLDevice(2)), (1, 101));
}

#[test]
fn a_condition_has_the_named_or_the_current_context() {
    fake::make_current(CONTEXT);
    let create = |context| {
        let graph = handle(0x6);
        cudaGraphConditionalHandleCreate_v2(&mut 0, graph, handle(context), 5, 1)
    };
    assert_eq!((create(0xc0), create(0)), (0, 0));
    assert_eq!(
        asked(),
        ["condition 0x6 0xc0 5 1", "condition 0x6 0xabc0 5 1"]
    );
    NEXT.set(CUDA_ERROR_INVALID_VALUE);
    assert_eq!((create(0), cudaGetLastError()), (1, 1));
}

#[test]
fn a_copy_with_attributes_is_a_batch_of_one() {
    let nowhere = CUmemLocation { type_: 0, id: 0 };
    let mut attributes = CUmemcpyAttributes {
        srcAccessOrder: 3,
        srcLocHint: nowhere,
        dstLocHint: nowhere,
        flags: 0,
    };
    let (to, from) = (handle(0x7000), handle::<c_void>(0x8000));
    let stream = handle(0x57);
    let (attributes, none) = (&raw mut attributes, null_mut());
    assert_eq!(
        cudaMemcpyWithAttributesAsync(to, from, 9, attributes, stream),
        0
    );
    assert_eq!(
        cudaMemcpyWithAttributesAsync(to, from, 9, attributes, null_mut()),
        0
    );
    assert_eq!(
        cudaMemcpyWithAttributesAsync_ptsz(to, from, 9, attributes, null_mut()),
        0
    );
    NEXT.set(CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cudaMemcpyWithAttributesAsync(to, from, 9, none, stream), 1);
    assert_eq!(
        asked(),
        [
            "batch 1 0x7000 0x8000 9 1 0 Some(3) 0x57",
            "batch 1 0x7000 0x8000 9 1 0 Some(3) 0x0",
            "batch 1 0x7000 0x8000 9 1 0 Some(3) 0x2",
            "batch 1 0x7000 0x8000 9 1 0 None 0x57",
        ]
    );
    let operation = handle(0x99);
    assert_eq!(cudaMemcpy3DWithAttributesAsync(operation, 4, stream), 0);
    assert_eq!(
        cudaMemcpy3DWithAttributesAsync_ptsz(operation, 0, null_mut()),
        0
    );
    assert_eq!(asked(), ["batch3d 1 0x99 4 0x57", "batch3d 1 0x99 0 0x2"]);
}

#[test]
fn a_host_call_has_a_mode_that_older_drivers_need_not_know() {
    unsafe extern "C" fn called(_: *mut c_void) {}
    let (stream, data) = (handle(0x57), handle(0xda));
    for mode in [0, 1] {
        assert_eq!(cudaLaunchHostFunc_v2(stream, Some(called), data, mode), 0);
    }
    assert_eq!(
        cudaLaunchHostFunc_v2_ptsz(null_mut(), Some(called), data, 1),
        0
    );
    assert_eq!(
        asked(),
        [
            "host 0x57 0xda in mode 0",
            "host 0x57 0xda in mode 1",
            "host 0x2 0xda in mode 1",
        ]
    );
    NEXT.set(CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(cudaLaunchHostFunc_v2(stream, Some(called), data, 1), 0);
    assert_eq!(asked(), ["host 0x57 0xda in mode 1", "host 0x57 0xda"]);
    assert_eq!(cudaLaunchHostFunc_v2(stream, Some(called), data, 2), 1);
    assert_eq!((asked().len(), cudaGetLastError()), (0, 1));
}

#[test]
fn the_parameters_of_a_kernel_are_counted_by_any_driver() {
    let program = register(c"kernel");
    let count = |to: &mut usize| cudaFuncGetParamCount(program.kernel, to);
    let mut to = 99;
    assert_eq!((count(&mut to), to), (0, PARAMETERS));
    assert_eq!(asked(), ["load 0xfa7", "count 0x4e1"]);
    NEXT.set(CUDA_ERROR_NOT_SUPPORTED);
    to = 99;
    assert_eq!((count(&mut to), to), (0, PARAMETERS));
    assert_eq!(asked()[1..], ["parameter 0", "parameter 1", "parameter 2"]);
    assert_eq!(cudaFuncGetParamCount(program.kernel, null_mut()), 1);
    assert_eq!(cudaFuncGetParamCount(null(), &mut to), 98);
    assert_eq!(asked(), [""; 0]);
}

#[test]
fn a_copy_between_arrays_goes_on_in_the_next_row() {
    // The arrays have four rows each, of 6 and of 4 bytes.
    let (six, four) = (handle(0xa6), handle(0xa4));
    let copy = |to, from, bytes| {
        let ((to, tx, ty), (from, fx, fy)) = (to, from);
        cudaMemcpyArrayToArray(to, tx, ty, from, fx, fy, bytes, 3)
    };
    assert_eq!(copy((six, 5, 0), (four, 1, 1), 9), 0);
    assert_eq!(
        asked(),
        [
            "1x1 0xa6[5,0] from 0xa4[1,1]",
            "2x1 0xa6[0,1] from 0xa4[2,1]",
            "4x1 0xa6[2,1] from 0xa4[0,2]",
            "2x1 0xa6[0,2] from 0xa4[0,3]",
        ]
    );
    // Whole rows of equal length are copied at once.
    let other = handle(0xb6);
    assert_eq!(copy((other, 4, 0), (six, 4, 1), 14), 0);
    let rows = [
        "2x1 0xb6[4,0] from 0xa6[4,1]",
        "6x2 0xb6[0,1] from 0xa6[0,2]",
    ];
    assert_eq!(asked(), rows);
    assert_eq!(cudaMemcpyArrayToArray_ptds(other, 0, 3, six, 1, 0, 5, 4), 0);
    let queued = ["5x1 0xb6[0,3] from 0xa6[1,0] 0x2", "synchronize 0x2"];
    assert_eq!(asked(), queued);
    NEXT.set(CUDA_ERROR_INVALID_CONTEXT);
    assert_eq!(copy((six, 0, 0), (four, 0, 0), 9), 201);
    assert_eq!(asked().len(), 1, "the first row failed");
}

#[test]
fn a_copy_between_arrays_stays_inside_both() {
    let (six, four) = (handle(0xa6), handle(0xa4));
    let copy = |to_at: (usize, usize), from_at: (usize, usize), bytes| {
        cudaMemcpyArrayToArray(six, to_at.0, to_at.1, four, from_at.0, from_at.1, bytes, 3)
    };
    assert_eq!(copy((0, 0), (0, 0), 17), 1, "the source has 16 bytes");
    assert_eq!(copy((0, 2), (0, 0), 13), 1, "the destination has 12 left");
    assert_eq!(copy((6, 0), (0, 0), 1), 1, "no such column");
    assert_eq!(copy((0, 0), (0, 4), 1), 1, "no such row");
    assert_eq!(copy((0, usize::MAX), (0, 0), 1), 1);
    assert_eq!(copy((0, 0), (0, 0), usize::MAX), 1);
    assert_eq!(copy((0, 0), (0, 0), 0), 0);
    assert_eq!(cudaMemcpyArrayToArray(six, 0, 0, four, 0, 0, 1, 7), 21);
    assert_eq!(
        cudaMemcpyArrayToArray(six, 0, 0, null_mut(), 0, 0, 1, 3),
        400
    );
    assert_eq!(asked(), [""; 0]);
}

#[test]
fn ids_are_the_drivers() {
    let (mut graph, mut small, mut large) = (null_mut(), 0, 0);
    assert_eq!(cudaGraphNodeGetContainingGraph(handle(1), &mut graph), 0);
    assert_eq!(graph.addr(), 0x101);
    assert_eq!(cudaGraphNodeGetLocalId(handle(2), &mut small), 0);
    assert_eq!(small, 0x202);
    assert_eq!(cudaGraphNodeGetToolsId(handle(3), &mut large), 0);
    assert_eq!(large, 0x303);
    assert_eq!(cudaGraphGetId(handle(4), &mut small), 0);
    assert_eq!(small, 0x404);
    assert_eq!(cudaGraphExecGetId(handle(5), &mut small), 0);
    assert_eq!(small, 0x505);
    NEXT.set(CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cudaGraphGetId(handle(4), &mut small), 1);
    assert_eq!(cudaGetLastError(), 1);
}

/// `cudaGraphNodeTypeKernel` and others.
const LAUNCH: u64 = 0;
const COPY: u64 = 1;
const FILL: u64 = 2;
const WAIT: u64 = 6;
const CONDITION: u64 = 13;

/// The parameters of a node of this type, as words.
fn node<const N: usize>(kind: u64, of: [u64; N]) -> [u64; 32] {
    let mut words = [0; 32];
    words[0] = kind;
    words[2..N + 2].copy_from_slice(&of);
    words
}

/// The runtime's description of a node for this description by the driver.
fn told(native: [u64; 32]) -> [u64; 32] {
    let mut to = [u64::MAX; 32];
    NODE.set(native);
    assert_eq!(cudaGraphNodeGetParams(handle(1), &mut to), 0);
    match to[0] {
        LAUNCH => without_padding(to, &[6, 10]),
        COPY => without_padding(to, &[23]),
        _ => to,
    }
}

/// The parameters that the driver gets when the runtime sets these.
fn set(given: [u64; 32]) -> [u64; 32] {
    assert_eq!(cudaGraphNodeSetParams(handle(1), &given), 0);
    match given[0] {
        LAUNCH => without_padding(NODE.get(), &[6]),
        COPY => without_padding(NODE.get(), &[8, 19]),
        _ => NODE.get(),
    }
}

/// The words, with the upper halves of some cleared because they are padding.
fn without_padding(mut words: [u64; 32], padded: &[usize]) -> [u64; 32] {
    for index in padded {
        words[*index] &= u64::from(u32::MAX);
    }
    words
}

/// Two words of 32 bits in one of 64.
fn pair(low: u32, high: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[test]
fn a_launchs_parameters_come_back_and_can_be_set_again() {
    fake::make_current(CONTEXT);
    let program = register(NODES_KERNEL);
    assert_eq!(launch(program.kernel, ONE, ONE, 0), 0);
    let (stub, kernel) = (program.kernel.addr() as u64, 0x4e2);
    let function = kernel + FUNCTION as u64;
    // Blocks and threads, dynamic shared memory, both lists of arguments.
    let shape = [pair(1, 2), pair(3, 4), pair(5, 6), 7, 0x88, 0];
    let with = |function: u64, last: [u64; 2]| {
        let [a, b, c, d, e, f] = shape;
        node(LAUNCH, [function, a, b, c, d, e, f, last[0], last[1]])
    };
    // In the driver's structure, a kernel and a context come last; in the runtime's, the context and the type of the
    // function.
    let (of_stub, of_function) = (with(stub, [0xc0, 1]), with(0x999, [0xc0, 3]));
    assert_eq!(told(with(function, [0, 0xc0])), of_stub);
    assert_eq!(told(with(kernel, [0, 0xc0])), of_stub);
    assert_eq!(told(with(0x999, [0, 0xc0])), of_function);
    assert_eq!(told(with(0, [0x999, 0xc0])), with(0x999, [0xc0, 2]));
    // In a named context the driver finds the kernel's function.
    assert_eq!(set(of_stub), with(0, [kernel, 0xc0]));
    assert_eq!(set(with(stub, [0, 0])), with(function, [0, 0]));
    assert_eq!(set(with(stub, [0, 1])), with(function, [0, 0]));
    assert_eq!(set(of_function), with(0x999, [0, 0xc0]));
    let unknown = with(stub, [0, 4]);
    assert_eq!(cudaGraphNodeSetParams(handle(1), &unknown), 1);
}

#[test]
fn a_copys_parameters_come_back_and_can_be_set_again() {
    fake::make_current(CONTEXT);
    // From host memory, rows of 8 bytes of 16, to a device's.
    let native = |context| {
        let side = |kind: CUmemorytype, at| [0, 0, 0, 0, u64::from(kind), at, at, 0, 0, 16, 2];
        let mut words = node(COPY, [0, context]);
        words[4..15].copy_from_slice(&side(CU_MEMORYTYPE_HOST, 0x8000));
        words[15..26].copy_from_slice(&side(CU_MEMORYTYPE_DEVICE, 0x7000));
        words[26..29].copy_from_slice(&[8, 2, 1]);
        words
    };
    // An array or NULL, the position, the pointer with its pitch; the extent and the direction come last.
    let ours = |context| {
        let side = |at| [0, 0, 0, 0, at, 16, 8, 2];
        let mut words = node(COPY, [0, context]);
        words[4..12].copy_from_slice(&side(0x8000));
        words[12..20].copy_from_slice(&side(0x7000));
        words[20..24].copy_from_slice(&[8, 2, 1, u64::from(HOST_TO_DEVICE)]);
        words
    };
    assert_eq!(told(native(0xc0)), ours(0xc0));
    assert_eq!(set(ours(0xc0)), native(0xc0));
    assert_eq!(set(ours(0)), native(CONTEXT as u64));
    let mut reserved = ours(0);
    reserved[2] = pair(0, 1);
    assert_eq!(cudaGraphNodeSetParams(handle(1), &reserved), 1);
}

#[test]
fn other_nodes_have_the_drivers_parameters_and_a_context() {
    fake::make_current(CONTEXT);
    let fill = |context| node(FILL, [0x7000, 4, pair(5, 1), 4, 1, context]);
    assert_eq!(told(fill(0xc0)), fill(0xc0));
    assert_eq!(set(fill(0xc0)), fill(0xc0));
    assert_eq!(set(fill(0)), fill(CONTEXT as u64));
    let condition = |context| node(CONDITION, [3, pair(0, 2), 0x1234, context]);
    assert_eq!(told(condition(0xc0)), condition(0xc0));
    for (given, native) in [(0xc0, 0xc0), (0, CONTEXT as u64)] {
        let mut given = condition(given);
        let before = given;
        let (none, no_edges) = (null(), null());
        let mut made = null_mut();
        let added = cudart13_cudaGraphAddNode(&mut made, handle(6), none, no_edges, 0, &mut given);
        assert_eq!((added, NODE.get()), (0, condition(native)));
        assert_eq!(given, before, "the context stays as it was given");
    }
    let event = node(WAIT, [0x55]);
    assert_eq!(told(event), event);
    assert_eq!(cudaGraphNodeGetParams(handle(1), null_mut()), 1);
    NEXT.set(CUDA_ERROR_NOT_SUPPORTED);
    assert_eq!(cudaGraphNodeGetParams(handle(1), &mut [0; 32]), 801);
}

#[test]
fn semaphores_of_other_interfaces_are_the_drivers() {
    let semaphores = [null_mut(); 2];
    let semaphores = semaphores.as_ptr();
    // A value, a fence and a key of 64 bits each, a timeout of waits, and flags.
    let old = [[1, 0, 2, 0, 3, 0, 4, 0], [5, 0, 6, 0, 7, 0, 8, 0]];
    let signal = cudart12_cudaSignalExternalSemaphoresAsync;
    assert_eq!(signal(semaphores, old.as_ptr(), 2, handle(0x57)), 0);
    let old = [
        [1, 0, 2, 0, 3, 0, 4, 0, 5, 0],
        [6, 0, 7, 0, 8, 0, 9, 0, 10, 0],
    ];
    let wait = cudart12_cudaWaitExternalSemaphoresAsync_ptsz;
    assert_eq!(wait(semaphores, old.as_ptr(), 2, null_mut()), 0);
    assert_eq!(
        asked(),
        [
            "signal 0x57 [(0, 1), (2, 2), (4, 3), (18, 4)] [(0, 5), (2, 6), (4, 7), (18, 8)]",
            "wait 0x2 [(0, 1), (2, 2), (4, 3), (6, 4), (18, 5)] [(0, 6), (2, 7), (4, 8), (6, 9), (18, 10)]",
        ]
    );
    let mut native = [0; 36];
    (native[2], native[18]) = (1, 2);
    let native: *const [u32; 36] = &raw const native;
    let stream = handle(0x57);
    NEXT.set(CUDA_ERROR_INVALID_HANDLE);
    let signal = cudart13_cudaSignalExternalSemaphoresAsync;
    assert_eq!(signal(semaphores, native, 1, stream), 400);
    assert_eq!(cudaGetLastError(), 400);
    let wait = cudart13_cudaWaitExternalSemaphoresAsync_ptsz;
    assert_eq!(wait(semaphores, native, 1, null_mut()), 0);
    assert_eq!(
        cudaSignalExternalSemaphoresAsync_v2_ptsz(semaphores, native, 1, null_mut()),
        0
    );
    assert_eq!(
        cudaWaitExternalSemaphoresAsync_v2(semaphores, native, 1, stream),
        0
    );
    let signal = cudart12_cudaSignalExternalSemaphoresAsync;
    assert_eq!(signal(semaphores, null(), 1, stream), 0);
    assert_eq!(
        asked(),
        [
            "signal 0x57 [(2, 1), (18, 2)]",
            "wait 0x2 [(2, 1), (18, 2)]",
            "signal 0x2 [(2, 1), (18, 2)]",
            "wait 0x57 [(2, 1), (18, 2)]",
            "signal 0x57 of nothing",
        ]
    );
}
