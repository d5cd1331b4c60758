// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Calls of cuBLAS in streams that are captured.

use std::ptr::null_mut;

use cudarc::driver::sys::{
    self, CUgraph, CUgraphExec, CUresult, CUstream, CUstreamCaptureMode, CUstreamCaptureStatus,
};

use crate::symbols::{Blas, INVALID_VALUE, SUCCESS, alloc, begin, cuda, new_stream, synchronize};

const N: usize = 64;
const WORKSPACE: u64 = 4 << 20;

fn write(address: u64, values: &[f32]) {
    cuda!(cuMemcpyHtoD_v2(
        address,
        values.as_ptr().cast(),
        size_of_val(values)
    ));
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
}

fn read(address: u64) -> Vec<f32> {
    let mut values = vec![0_f32; N];
    assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
    cuda!(cuMemcpyDtoH_v2(
        values.as_mut_ptr().cast(),
        address,
        N * size_of::<f32>()
    ));
    values
}

fn capture(stream: CUstream) {
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    cuda!(cuStreamBeginCapture_v2(stream, mode));
}

fn status(stream: CUstream) -> CUstreamCaptureStatus {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    cuda!(cuStreamIsCapturing(stream, &mut status));
    status
}

fn instantiate(stream: CUstream) -> CUgraphExec {
    let (mut graph, mut exec): (CUgraph, CUgraphExec) = (null_mut(), null_mut());
    cuda!(cuStreamEndCapture(stream, &mut graph));
    cuda!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    cuda!(cuGraphDestroy(graph));
    exec
}

/// A handle on a stream, with a workspace.
fn handle_on(blas: &Blas, stream: CUstream) -> u64 {
    let handle = blas.create().unwrap();
    let words = [handle, stream as u64];
    assert_eq!(blas.call("cublasSetStream_v2", &words), SUCCESS);
    let words = [handle, alloc(WORKSPACE as usize), WORKSPACE];
    assert_eq!(blas.call("cublasSetWorkspace_v2", &words), SUCCESS);
    handle
}

fn add(blas: &Blas, handle: u64, factor: f32, x: u64, y: u64) -> u32 {
    let factor = (&raw const factor) as u64;
    blas.call("cublasSaxpy_v2", &[handle, N as u64, factor, x, 1, y, 1])
}

fn dot(blas: &Blas, handle: u64, x: u64, result: u64) -> u32 {
    blas.call("cublasSdot_v2", &[handle, N as u64, x, 1, x, 1, result])
}

/// Each launch does the work of a captured call, which itself does nothing; other streams continue.
pub fn launches() {
    begin();
    let blas = Blas::open();
    let (stream, side) = (new_stream(), new_stream());
    let (handle, other) = (handle_on(&blas, stream), handle_on(&blas, side));
    let [x, y, z] = [(); 3].map(|()| alloc(N * 4));
    for (at, value) in [(x, 1.0), (y, 0.0), (z, 0.0)] {
        write(at, &[value; N]);
    }
    capture(stream);
    // The first one waits for the library's status, and three are posted.
    for factor in [1.0, 2.0, 3.0, 4.0] {
        assert_eq!(add(&blas, handle, factor, x, y), SUCCESS);
    }
    assert_eq!(add(&blas, other, 5.0, x, z), SUCCESS);
    assert_eq!(
        status(stream),
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE
    );
    let exec = instantiate(stream);
    assert_eq!((read(y), read(z)), (vec![0.0; N], vec![5.0; N]));
    for launches in 1..4 {
        cuda!(cuGraphLaunch(exec, stream));
        assert_eq!(read(y), [10.0 * launches as f32; N]);
    }
    // Scalars are read during the capture; memory is read at the launch.
    write(x, &[2.0; N]);
    cuda!(cuGraphLaunch(exec, stream));
    assert_eq!(read(y), [50.0; N]);
    // The handle's stream is the same as before.
    assert_eq!(add(&blas, handle, 0.5, x, y), SUCCESS);
    cuda!(cuStreamSynchronize(stream));
    assert_eq!(read(y), [51.0; N]);
    // A graph keeps objects that its handle has released.
    assert_eq!(blas.call("cublasDestroy_v2", &[handle]), SUCCESS);
    cuda!(cuGraphLaunch(exec, side));
    assert_eq!(read(y), [71.0; N]);
    cuda!(cuGraphExecDestroy(exec));
}

/// A library that allocates a workspace for a graph keeps it as long as the graph exists.
pub fn workspaces() {
    begin();
    let blas = Blas::open();
    let (stream, side) = (new_stream(), new_stream());
    let handle = blas.create().unwrap();
    let tell = || blas.call("cublasSetStream_v2", &[handle, stream as u64]);
    assert_eq!(tell(), SUCCESS);
    assert_eq!(blas.call("cublasSetPointerMode_v2", &[handle, 1]), SUCCESS);
    // With this number of elements, cuBLAS reduces in two launches.
    const MANY: usize = 1 << 20;
    let [x, y] = [(); 2].map(|()| alloc(MANY * 4));
    let results = alloc(N * 4);
    let fill = |at, value: f32| {
        cuda!(cuMemsetD32_v2(at, value.to_bits(), MANY));
        assert_eq!(synchronize(), CUresult::CUDA_SUCCESS);
    };
    let dot = |of, result| {
        let words = [handle, MANY as u64, of, 1, of, 1, result];
        blas.call("cublasSdot_v2", &words)
    };
    fill(x, 1.0);
    fill(y, 2.0);
    write(results, &[0.0; N]);
    capture(stream);
    for (of, result) in [(x, results), (y, results + 4), (x, results + 8)] {
        assert_eq!(dot(of, result), SUCCESS);
    }
    let mut graph: CUgraph = null_mut();
    cuda!(cuStreamEndCapture(stream, &mut graph));
    // An allocation, the call, and a free for each, as natively: the second and the third use the memory that the one
    // before has freed.
    let mut count = 0;
    cuda!(cuGraphGetNodes(graph, null_mut(), &mut count));
    let mut nodes = vec![null_mut(); count];
    cuda!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count));
    let mut addresses = vec![];
    for node in nodes {
        let mut kind = sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY;
        cuda!(cuGraphNodeGetType(node, &mut kind));
        if kind == sys::CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEM_FREE {
            let mut address = 0;
            cuda!(cuGraphMemFreeNodeGetParams(node, &mut address));
            addresses.push(address);
        }
    }
    assert_eq!((count, addresses.len()), (9, 3));
    assert!(addresses.iter().all(|of| *of == addresses[0]));
    let mut exec: CUgraphExec = null_mut();
    cuda!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    cuda!(cuGraphDestroy(graph));
    for (launch, stream) in [stream, side, stream].into_iter().enumerate() {
        fill(x, launch as f32);
        cuda!(cuGraphLaunch(exec, stream));
        let got = read(results);
        let of_x = (launch * launch * MANY) as f32;
        assert_eq!(got[..3], [of_x, 4.0 * MANY as f32, of_x]);
    }
    // The handle's stream is the same, and it has no workspace.
    fill(x, 3.0);
    assert_eq!(dot(x, results), SUCCESS);
    assert_eq!(read(results)[0], 9.0 * MANY as f32);
    cuda!(cuGraphExecDestroy(exec));
}

/// Calls that no graph can contain, and calls that the library refuses.
pub fn wrong() {
    begin();
    let blas = Blas::open();
    let stream = new_stream();
    let handle = handle_on(&blas, stream);
    let [x, y] = [(); 2].map(|()| alloc(N * 4));
    write(x, &[1.0; N]);
    write(y, &[0.0; N]);
    // A result at a host address would require a wait.
    for _ in 0..3 {
        let (mut result, mut graph) = (-1_f32, null_mut());
        capture(stream);
        assert_eq!(add(&blas, handle, 1.0, x, y), SUCCESS);
        assert_ne!(dot(&blas, handle, x, (&raw mut result) as u64), SUCCESS);
        let status = status(stream);
        assert_eq!(
            status,
            CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_INVALIDATED
        );
        // Nothing is executed instead.
        assert_ne!(add(&blas, handle, 1.0, x, y), SUCCESS);
        // SAFETY: the pointer is to a value that lives across the call.
        let ended = unsafe { sys::cuStreamEndCapture(stream, &mut graph) };
        assert_eq!(ended, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        assert_eq!((graph, read(y)), (null_mut(), vec![0.0; N]));
        assert_eq!(dot(&blas, handle, x, (&raw mut result) as u64), SUCCESS);
        assert_eq!(result, N as f32);
    }
    // A refused call leaves the capture unchanged.
    capture(stream);
    let one = 1_f32;
    let words = [handle, u64::MAX, (&raw const one) as u64, 0, 1];
    let _ = blas.call("cublasSscal_v2", &words);
    let words = [handle, 7, 0, 4, 4, 4, 0, x, 1, x, 1, 0, y, 1];
    assert_eq!(blas.call("cublasSgemm_v2", &words), INVALID_VALUE);
    assert_eq!(add(&blas, handle, 1.0, x, y), SUCCESS);
    let exec = instantiate(stream);
    cuda!(cuGraphLaunch(exec, stream));
    assert_eq!(read(y), [1.0; N]);
    // The legacy stream would wait for a captured stream.
    let (mut blocking, mut graph) = (null_mut(), null_mut());
    cuda!(cuStreamCreate(&mut blocking, 0));
    let legacy = blas.create().unwrap();
    capture(blocking);
    assert_ne!(add(&blas, legacy, 1.0, x, y), SUCCESS);
    // SAFETY: as above.
    let ended = unsafe { sys::cuStreamEndCapture(blocking, &mut graph) };
    assert_eq!(ended, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(add(&blas, legacy, 1.0, x, y), SUCCESS);
    assert_eq!(read(y), [2.0; N]);
}
