// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The heap that kernels use by `malloc` and `free`.

mod common;

use std::ffi::{CStr, c_char, c_uint, c_void};
use std::ptr::{null, null_mut};

use common::*;
use gpgpu_protocol::cuda::*;

unsafe extern "C" {
    fn cuCtxSetLimit(limit: CUlimit, value: usize) -> CUresult;
    fn cuCtxGetLimit(value: *mut usize, limit: CUlimit) -> CUresult;
    fn cuStreamEndCapture(stream: CUstream, graph: *mut CUgraph) -> CUresult;
    fn cuGraphLaunch(exec: CUgraphExec, stream: CUstream) -> CUresult;
    fn cuLinkCreate_v2(
        n: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
        out: *mut *mut c_void,
    ) -> CUresult;
    fn cuLinkAddData_v2(
        state: *mut c_void,
        kind: CUjitInputType,
        data: *const c_void,
        size: usize,
        name: *const c_char,
        n: c_uint,
        options: *mut CUjit_option,
        values: *mut *mut c_void,
    ) -> CUresult;
    fn cuLinkComplete(state: *mut c_void, out: *mut *mut c_void, size: *mut usize) -> CUresult;
}

const PTX: &str = concat!(include_str!("ptx/heap.ptx"), "\0");

const THREADS: usize = 64 * 128;

fn arg<T>(value: &mut T) -> *mut c_void {
    (&raw mut *value).cast()
}

/// A module with the kernels, and addresses in device memory for `threads` threads.
struct Kernels {
    module: CUmodule,
    addresses: CUdeviceptr,
    threads: usize,
}

impl Kernels {
    fn new(threads: usize) -> Self {
        let text = CStr::from_bytes_with_nul(PTX.as_bytes()).unwrap();
        Self::of(module(text), threads)
    }

    fn of(module: CUmodule, threads: usize) -> Self {
        let addresses = alloc(8 * threads);
        Self {
            module,
            addresses,
            threads,
        }
    }

    /// Launches a kernel with a thread for each address, in blocks of 128 at most.
    fn launch(&self, name: &CStr, stream: CUstream, arguments: &mut [*mut c_void]) {
        let f = function(self.module, name);
        let block = self.threads.min(128);
        let grid = self.threads / block;
        assert_eq!(
            launch(f, grid as u32, block as u32, stream, arguments),
            CUDA_SUCCESS
        );
    }

    fn take(&self, mut bytes: u64) -> Vec<u64> {
        let mut addresses = self.addresses;
        self.launch(
            c"take",
            NULL_STREAM,
            &mut [arg(&mut addresses), arg(&mut bytes)],
        );
        self.read()
    }

    fn read(&self) -> Vec<u64> {
        let mut taken = vec![0u64; self.threads];
        let to = taken.as_mut_ptr().cast();
        ok!(cuMemcpyDtoH_v2(to, self.addresses, 8 * self.threads));
        taken
    }

    fn write(&self, addresses: &[u64]) {
        let from = addresses.as_ptr().cast();
        ok!(cuMemcpyHtoD_v2(self.addresses, from, 8 * addresses.len()));
    }

    fn fill(&self, stream: CUstream, mut words: u32) {
        let mut addresses = self.addresses;
        let mut arguments = [arg(&mut addresses), arg(&mut words)];
        self.launch(c"fill", stream, &mut arguments);
    }

    fn sums(&self, mut words: u32) -> Vec<u32> {
        let (mut addresses, mut sums) = (self.addresses, alloc(4 * self.threads));
        let mut arguments = [arg(&mut addresses), arg(&mut words), arg(&mut sums)];
        self.launch(c"sum", NULL_STREAM, &mut arguments);
        let read = read(sums, self.threads);
        ok!(cuMemFree_v2(sums));
        read
    }

    fn give(&self) -> CUresult {
        let mut addresses = self.addresses;
        self.launch(c"give", NULL_STREAM, &mut [arg(&mut addresses)]);
        cu!(cuCtxSynchronize())
    }

    /// Frees NULL.
    fn give_none(&self) -> CUresult {
        self.write(&vec![0; self.threads]);
        self.give()
    }
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

fn limit() -> usize {
    let mut value = 0;
    ok!(cuCtxGetLimit(&mut value, CU_LIMIT_MALLOC_HEAP_SIZE));
    value
}

fn set_limit(value: usize) -> CUresult {
    cu!(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, value))
}

#[test]
fn memory_of_one_launch_is_used_by_a_second_and_freed_by_a_third() {
    context();
    let kernels = Kernels::new(THREADS);
    for _ in 0..3 {
        let taken = kernels.take(100);
        assert!(taken.iter().all(|at| *at != 0 && at.is_multiple_of(16)));
        kernels.fill(NULL_STREAM, 25);
        let numbers = 0..THREADS as u32;
        assert!(kernels.sums(25).into_iter().eq(numbers.map(|n| 25 * n)));
        assert_eq!(kernels.give(), CUDA_SUCCESS);
    }
}

#[test]
fn streams_share_the_heap_of_their_context() {
    context();
    let kernels = Kernels::new(32);
    let streams = [stream(CU_STREAM_NON_BLOCKING), stream(0)];
    let (mut addresses, mut bytes) = (kernels.addresses, 64u64);
    let mut arguments = [arg(&mut addresses), arg(&mut bytes)];
    kernels.launch(c"take", streams[0], &mut arguments);
    ok!(cuStreamSynchronize(streams[0]));
    kernels.fill(streams[1], 16);
    ok!(cuStreamSynchronize(streams[1]));
    assert!(kernels.sums(16).into_iter().eq((0..32).map(|n| 16 * n)));
    assert_eq!(kernels.give(), CUDA_SUCCESS);
}

#[test]
fn threads_that_allocate_at_once_get_memory_of_their_own() {
    context();
    let kernels = Kernels::new(THREADS);
    for bytes in [1, 16, 65, 1000] {
        let mut taken = kernels.take(bytes);
        taken.sort_unstable();
        assert_ne!(taken[0], 0);
        assert!(
            taken.windows(2).all(|two| two[1] - two[0] >= bytes),
            "{bytes} bytes"
        );
        assert_eq!(kernels.give(), CUDA_SUCCESS);
    }
}

#[test]
fn threads_that_allocate_and_free_at_once_keep_what_they_wrote() {
    context();
    let kernels = Kernels::new(THREADS);
    let (mut wrong, mut rounds) = (alloc(4), 20u32);
    ok!(cuMemsetD32_v2(wrong, 0, 1));
    let mut arguments = [arg(&mut wrong), arg(&mut rounds)];
    kernels.launch(c"churn", NULL_STREAM, &mut arguments);
    assert_eq!(read(wrong, 1), [0]);
    // All is free again, in one piece.
    let one = Kernels::of(kernels.module, 1);
    assert_ne!(one.take(limit() as u64)[0], 0);
}

#[test]
fn without_room_the_address_is_null_and_a_free_makes_room() {
    context();
    let (threads, bytes) = (1024, 16 << 10);
    let kernels = Kernels::new(threads);
    let taken = kernels.take(bytes);
    let there = taken.iter().filter(|at| **at != 0).count();
    assert_eq!(there, limit() / bytes as usize);
    let one = Kernels::of(kernels.module, 1);
    assert_eq!(one.take(1), [0]);
    let some = taken.iter().copied().find(|at| *at != 0).unwrap();
    one.write(&[some]);
    assert_eq!(one.give(), CUDA_SUCCESS);
    assert_eq!(one.take(bytes), [some]);
    // The allocations that failed returned NULL, which may be freed.
    assert_eq!(kernels.give(), CUDA_SUCCESS);
    assert_eq!(kernels.give_none(), CUDA_SUCCESS);
    assert_ne!(one.take(limit() as u64), [0]);
    assert_eq!(one.give(), CUDA_SUCCESS);
    for bytes in [0, limit() as u64 + 1, 1 << 40, u64::MAX] {
        assert_eq!(one.take(bytes), [0], "{bytes} bytes");
    }
}

#[test]
fn the_size_is_that_of_the_limit_which_is_fixed_by_the_first_use() {
    let context = context();
    assert_eq!(limit(), 8 << 20);
    assert_eq!(set_limit(1 << 20), CUDA_SUCCESS);
    assert_eq!(set_limit(64 << 10), CUDA_SUCCESS);
    let kernels = Kernels::new(128);
    // A module and a launch that uses nothing leave it open.
    assert_eq!(kernels.take(0), [0; 128]);
    assert_eq!(set_limit(32 << 10), CUDA_SUCCESS);
    assert_eq!(limit(), 32 << 10);
    let taken = kernels.take(1 << 10);
    assert_eq!(taken.iter().filter(|at| **at != 0).count(), 32);
    for size in [16 << 10, 32 << 10, 64 << 10] {
        assert_eq!(set_limit(size), CUDA_ERROR_INVALID_VALUE);
    }
    assert_eq!(limit(), 32 << 10);
    assert_eq!(kernels.give(), CUDA_SUCCESS);
    assert_eq!(set_limit(64 << 10), CUDA_ERROR_INVALID_VALUE);
    ok!(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    ok!(cuCtxDestroy_v2(context));
    // Another context has its own.
    self::context();
    assert_eq!(limit(), 8 << 20);
    assert_eq!(set_limit(64 << 10), CUDA_SUCCESS);
}

#[test]
fn functions_of_the_api_refuse_its_addresses() {
    context();
    let kernels = Kernels::new(1);
    let at = kernels.take(64)[0];
    let (own, mut word) = (alloc(64), 0u32);
    let host = (&raw mut word).cast::<c_void>();
    for code in [
        cu!(cuMemcpyDtoH_v2(host, at, 4)),
        cu!(cuMemcpyHtoD_v2(at, host, 4)),
        cu!(cuMemcpyDtoD_v2(at, own, 4)),
        cu!(cuMemcpyDtoD_v2(own, at, 4)),
        cu!(cuMemsetD32_v2(at, 0, 1)),
        cu!(cuMemFree_v2(at)),
        cu!(cuPointerGetAttribute(
            host,
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            at
        )),
    ] {
        assert_eq!(code, CUDA_ERROR_INVALID_VALUE);
    }
    let (mut base, mut size) = (0, 0);
    assert_eq!(
        cu!(cuMemGetAddressRange_v2(&mut base, &mut size, at)),
        CUDA_ERROR_NOT_FOUND
    );
    assert_eq!(kernels.give(), CUDA_SUCCESS);
}

#[test]
fn each_launch_of_a_graph_allocates() {
    context();
    let (kernels, s) = (Kernels::new(64), stream(0));
    let (mut graph, mut exec) = (null_mut(), null_mut());
    let (mut addresses, mut bytes) = (kernels.addresses, 4096u64);
    ok!(cuStreamBeginCapture_v2(
        s,
        CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    ));
    let mut arguments = [arg(&mut addresses), arg(&mut bytes)];
    kernels.launch(c"take", s, &mut arguments);
    kernels.fill(s, 1024);
    ok!(cuStreamEndCapture(s, &mut graph));
    ok!(cuGraphInstantiateWithFlags(&mut exec, graph, 0));
    let mut all = Vec::new();
    for _ in 0..2 {
        ok!(cuGraphLaunch(exec, s));
        ok!(cuStreamSynchronize(s));
        assert!(kernels.sums(1024).into_iter().eq((0..64).map(|n| 1024 * n)));
        all.extend(kernels.read());
    }
    let both = Kernels::of(kernels.module, 128);
    both.write(&all);
    assert_eq!(both.give(), CUDA_SUCCESS);
    all.sort_unstable();
    assert!(all[0] != 0 && all.windows(2).all(|two| two[1] - two[0] >= 4096));
}

#[test]
fn a_linked_module_allocates_whatever_its_parameters_are_called() {
    context();
    const CALLER: &str = "
        .version 8.0\n.target sm_80\n.address_size 64
        .extern .func (.param .b64 r) cell (.param .b64 n);
        .visible .entry take(.param .u64 addresses, .param .u64 bytes)
        {
            .reg .b64 %d<4>;
            .param .b64 given;
            .param .b64 got;
            ld.param.u64 %d1, [addresses];
            ld.param.u64 %d2, [bytes];
            st.param.b64 [given], %d2;
            call.uni (got), cell, (given);
            ld.param.b64 %d3, [got];
            st.global.u64 [%d1], %d3;
            ret;
        }
        .extern .func free (.param .b64 p);
        .visible .entry give(.param .u64 addresses)
        {
            .reg .b64 %d<3>;
            .param .b64 given;
            ld.param.u64 %d1, [addresses];
            ld.global.u64 %d2, [%d1];
            st.param.b64 [given], %d2;
            call.uni free, (given);
            ret;
        }\0";
    const CELL: &str = "
        .version 8.0\n.target sm_80\n.address_size 64
        .extern .func (.param .b64 _r) malloc (.param .b64 _n);
        .visible .func (.param .b64 r) cell (.param .b64 n)
        {
            .reg .b64 %d<3>;
            .param .b64 given;
            .param .b64 got;
            ld.param.b64 %d1, [n];
            st.param.b64 [given], %d1;
            call.uni (got), malloc, (given);
            ld.param.b64 %d2, [got];
            st.param.b64 [r], %d2;
            ret;
        }\0";
    let (mut state, mut image, mut size) = (null_mut(), null_mut(), 0);
    ok!(cuLinkCreate_v2(0, null_mut(), null_mut(), &mut state));
    for text in [CALLER, CELL] {
        ok!(cuLinkAddData_v2(
            state,
            CU_JIT_INPUT_PTX,
            text.as_ptr().cast(),
            text.len(),
            null(),
            0,
            null_mut(),
            null_mut()
        ));
    }
    ok!(cuLinkComplete(state, &mut image, &mut size));
    let mut linked = null_mut();
    ok!(cuModuleLoadData(&mut linked, image));
    let kernels = Kernels::of(linked, 1);
    let all = limit() as u64;
    for _ in 0..2 {
        assert_ne!(kernels.take(all), [0]);
        assert_eq!(kernels.give(), CUDA_SUCCESS);
    }
}

#[test]
fn a_second_free_is_a_fault() {
    if !in_child("a_second_free_is_a_fault") {
        return;
    }
    context();
    let kernels = Kernels::new(1);
    assert_ne!(kernels.take(64), [0]);
    assert_eq!(kernels.give(), CUDA_SUCCESS);
    assert_eq!(kernels.give(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_free_inside_of_an_allocation_is_a_fault() {
    if !in_child("a_free_inside_of_an_allocation_is_a_fault") {
        return;
    }
    context();
    let kernels = Kernels::new(1);
    let at = kernels.take(1024)[0];
    kernels.write(&[at + 64]);
    assert_eq!(kernels.give(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_free_of_another_allocators_memory_is_a_fault() {
    if !in_child("a_free_of_another_allocators_memory_is_a_fault") {
        return;
    }
    context();
    let kernels = Kernels::new(1);
    kernels.write(&[kernels.addresses]);
    assert_eq!(kernels.give(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn the_device_gives_it_at_the_first_use_and_gets_it_back_with_the_context() {
    if !in_child("the_device_gives_it_at_the_first_use_and_gets_it_back_with_the_context") {
        return;
    }
    let outer = context();
    let all = free_bytes();
    for _ in 0..3 {
        let inner = context();
        let kernels = Kernels::new(64);
        let before = free_bytes();
        kernels.take(0);
        assert_eq!(free_bytes(), before);
        kernels.take(64);
        assert_eq!(free_bytes(), before - (8 << 20));
        kernels.take(64);
        assert_eq!(kernels.give(), CUDA_SUCCESS);
        assert_eq!(free_bytes(), before - (8 << 20));
        ok!(cuCtxDestroy_v2(inner));
        assert_eq!(free_bytes(), all);
    }
    // The same for the primary context, which starts anew.
    let mut primary = null_mut();
    for _ in 0..2 {
        ok!(cuDevicePrimaryCtxRetain(&mut primary, 0));
        ok!(cuCtxPushCurrent_v2(primary));
        assert_eq!(set_limit(1 << 20), CUDA_SUCCESS);
        let kernels = Kernels::new(64);
        let before = free_bytes();
        kernels.take(64);
        assert_eq!(free_bytes(), before - (1 << 20));
        ok!(cuDevicePrimaryCtxReset_v2(0));
        ok!(cuCtxSetCurrent(outer));
        assert_eq!(free_bytes(), all);
    }
}

#[test]
fn where_the_device_has_no_room_for_it_nothing_is_allocated() {
    if !in_child("where_the_device_has_no_room_for_it_nothing_is_allocated") {
        return;
    }
    context();
    assert_eq!(set_limit(1 << 30), CUDA_SUCCESS);
    let kernels = Kernels::new(64);
    let before = free_bytes();
    assert_eq!(kernels.take(64), [0; 64]);
    assert_eq!(free_bytes(), before);
    assert_eq!(set_limit(32 << 20), CUDA_SUCCESS);
    assert!(!kernels.take(64).contains(&0));
    assert_eq!(kernels.give(), CUDA_SUCCESS);
}
