// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Functions whose arguments differ in CUDA 11 under the same names.

use std::ffi::{c_uint, c_void};
use std::ptr::{null_mut, without_provenance_mut};

use gpgpu_protocol::cuda::*;

use super::{fake, register};
use crate::abi::*;

unsafe extern "C" {
    safe fn cudart11_cudaFuncGetAttributes(
        attributes: *mut u8,
        function: *const c_void,
    ) -> cudaError_t;
    safe fn cudart11_cudaGraphInstantiate(
        exec: &mut usize,
        graph: *mut c_void,
        node: *mut *mut c_void,
        log: *mut c_void,
        bytes: usize,
    ) -> cudaError_t;
    safe fn cudart11_cudaGraphExecUpdate(
        exec: *mut c_void,
        graph: *mut c_void,
        node: *mut *mut c_void,
        result: *mut c_uint,
    ) -> cudaError_t;
}

#[test]
fn attributes_of_functions_end_before_clusters() {
    let program = register(c"kernel");
    let mut attributes = [0xaa_u8; 144];
    assert_eq!(
        cudart11_cudaFuncGetAttributes(attributes.as_mut_ptr(), program.kernel),
        0
    );
    let carveout = CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT;
    assert_eq!(attributes[48..52], carveout.to_ne_bytes());
    assert!(attributes[52..].iter().all(|&byte| byte == 0xaa));
    assert_eq!(
        cudart11_cudaFuncGetAttributes(null_mut(), program.kernel),
        1
    );
}

#[test]
fn graphs_have_a_node_at_fault_in_place_of_flags() {
    fake::asked();
    let (graph, mut exec) = (without_provenance_mut(0x9), 0);
    let mut node = without_provenance_mut(7);
    // The length of the log is not passed to the driver as flags.
    let instantiated = cudart11_cudaGraphInstantiate(&mut exec, graph, &mut node, null_mut(), 99);
    assert_eq!((instantiated, exec, node.addr()), (0, 0xe1, 0));
    assert_eq!(fake::asked().last().unwrap(), "instantiate 0x9 with 0");
    let (exec, mut result) = (without_provenance_mut(exec), 0);
    let updated = cudart11_cudaGraphExecUpdate(exec, graph, &mut node, &mut result);
    assert_eq!(
        (updated, node.addr(), result),
        (CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, 0xb, 4)
    );
    // Both results are optional.
    let updated = cudart11_cudaGraphExecUpdate(exec, graph, null_mut(), null_mut());
    assert_eq!(updated, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
}
