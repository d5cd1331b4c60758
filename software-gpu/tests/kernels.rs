// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Modules and launches.

mod common;

use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::Ordering;

use common::*;
use gpgpu_protocol::cuda::*;

const PTX: &CStr = cr#"
.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.const .align 4 .u32 hidden = 1;

// c[i] = a[i] + b[i]
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %d<8>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.s32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p, %r4, %r5;
    @%p bra DONE;
    ld.param.u64 %d1, [a];
    ld.param.u64 %d2, [b];
    ld.param.u64 %d3, [c];
    mul.wide.u32 %d4, %r4, 4;
    add.s64 %d1, %d1, %d4;
    add.s64 %d2, %d2, %d4;
    add.s64 %d3, %d3, %d4;
    ld.global.u32 %r6, [%d1];
    ld.global.u32 %r7, [%d2];
    add.u32 %r6, %r6, %r7;
    st.global.u32 [%d3], %r6;
DONE:
    ret;
}

// out = { small, wide, the second word of pair }
.visible .entry mixed(.param .u8 small, .param .f64 wide, .param .align 8 .b8 pair[12], .param .u64 out)
{
    .reg .b32 %r<4>;
    .reg .b64 %d<4>;
    ld.param.u64 %d1, [out];
    ld.param.u8 %r1, [small];
    st.global.u32 [%d1], %r1;
    ld.param.u64 %d2, [wide];
    st.global.u64 [%d1+8], %d2;
    ld.param.u32 %r2, [pair+8];
    st.global.u32 [%d1+16], %r2;
    ret;
}

.visible .entry bump()
{
    .reg .b32 %r<3>;
    .reg .b64 %d<3>;
    mov.u64 %d1, counter;
    ld.global.u32 %r1, [%d1];
    add.u32 %r1, %r1, 1;
    st.global.u32 [%d1], %r1;
    ret;
}

// Waits until *flag is 1.
.visible .entry spin(.param .u64 flag)
{
    .reg .pred %p;
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%d1];
    setp.ne.u32 %p, %r1, 1;
    @%p bra AGAIN;
    ret;
}

.visible .entry store(.param .u64 address, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [address];
    ld.param.u32 %r1, [value];
    st.global.u32 [%d1], %r1;
    ret;
}

.visible .entry halt()
{
    trap;
}

.visible .entry bounded()
.maxntid 64, 1, 1
{
    ret;
}
"#;

fn arg<T>(value: &mut T) -> *mut c_void {
    (&raw mut *value).cast()
}

fn add_on(f: CUfunction, s: CUstream) {
    let n = 1000u32;
    let (mut a, mut b, mut c) = (alloc(4000), alloc(4000), alloc(4000));
    let x: Vec<u32> = (0..n).collect();
    let y: Vec<u32> = (0..n).map(|i| i * 3).collect();
    ok!(cuMemcpyHtoDAsync_v2(a, x.as_ptr().cast(), 4000, s));
    ok!(cuMemcpyHtoDAsync_v2(b, y.as_ptr().cast(), 4000, s));
    let mut count = n;
    let mut arguments = [arg(&mut a), arg(&mut b), arg(&mut c), arg(&mut count)];
    assert_eq!(
        launch(f, n.div_ceil(128), 128, s, &mut arguments),
        CUDA_SUCCESS
    );
    let mut sum = vec![0u32; n as usize];
    ok!(cuMemcpyDtoHAsync_v2(sum.as_mut_ptr().cast(), c, 4000, s));
    assert!(sum.iter().enumerate().all(|(i, v)| *v == 4 * i as u32));
    for p in [a, b, c] {
        ok!(cuMemFree_v2(p));
    }
}

#[test]
fn vectors_are_added() {
    context();
    let m = module(PTX);
    let f = function(m, c"add");
    add_on(f, NULL_STREAM);
    add_on(f, stream(CU_STREAM_NON_BLOCKING));
    assert_eq!(function(m, c"add"), f);
    let mut none = null_mut();
    assert_eq!(
        cu!(cuModuleGetFunction(&mut none, m, c"sub".as_ptr())),
        CUDA_ERROR_NOT_FOUND
    );
    ok!(cuModuleUnload(m));
    assert_eq!(
        launch(f, 1, 1, NULL_STREAM, &mut []),
        CUDA_ERROR_INVALID_HANDLE
    );
}

#[test]
fn pitfall_45_and_46_parameters_by_both_forms() {
    context();
    let f = function(module(PTX), c"mixed");
    let places: Vec<_> = (0..4)
        .map(|i| {
            let (mut offset, mut size) = (0, 0);
            ok!(cuFuncGetParamInfo(f, i, &mut offset, &mut size));
            (offset, size)
        })
        .collect();
    assert_eq!(places, [(0, 1), (8, 8), (16, 12), (32, 8)]);
    let mut offset = 0;
    assert_eq!(
        cu!(cuFuncGetParamInfo(f, 4, &mut offset, null_mut())),
        CUDA_ERROR_INVALID_VALUE
    );

    let mut out = alloc(24);
    let (mut small, mut wide, mut pair) = (200u8, 1.5f64, [1u32, 2, 3]);
    let mut arguments = [
        arg(&mut small),
        arg(&mut wide),
        arg(&mut pair),
        arg(&mut out),
    ];
    let bits = 1.5f64.to_bits();
    let expected = [200, 0, bits as u32, (bits >> 32) as u32, 3, 0];
    assert_eq!(launch(f, 1, 1, NULL_STREAM, &mut arguments), CUDA_SUCCESS);
    assert_eq!(read(out, 6), expected);

    ok!(cuMemsetD8_v2(out, 0, 24));
    let mut packed = [0u8; 40];
    packed[0] = 200;
    packed[8..16].copy_from_slice(&wide.to_le_bytes());
    packed[24..28].copy_from_slice(&3u32.to_le_bytes());
    packed[32..40].copy_from_slice(&out.to_le_bytes());
    let mut size = packed.len();
    let mut extra = [
        std::ptr::without_provenance_mut(1),
        packed.as_mut_ptr().cast(),
        std::ptr::without_provenance_mut(2),
        arg(&mut size),
        null_mut(),
    ];
    let mut go = |params: *mut *mut c_void| {
        cu!(cuLaunchKernel(
            f,
            1,
            1,
            1,
            1,
            1,
            1,
            0,
            NULL_STREAM,
            params,
            extra.as_mut_ptr()
        ))
    };
    assert_eq!(go(null_mut()), CUDA_SUCCESS);
    assert_eq!(go(arguments.as_mut_ptr()), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(read(out, 6), expected);
    size = 39;
    let again = cu!(cuLaunchKernel(
        f,
        1,
        1,
        1,
        1,
        1,
        1,
        0,
        NULL_STREAM,
        null_mut(),
        extra.as_mut_ptr()
    ));
    // The missing part of the parameters is zero.
    assert_eq!((again, size), (CUDA_SUCCESS, 39));
    assert_eq!(
        launch(f, 1, 1, NULL_STREAM, &mut []),
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn pitfall_28_launches_that_are_refused_leave_nothing_behind() {
    context();
    let m = module(PTX);
    let (f, bounded) = (function(m, c"bump"), function(m, c"bounded"));
    let go = |grid: [u32; 3], block: [u32; 3], shared| {
        let (g, b) = (grid, block);
        cu!(cuLaunchKernel(
            f,
            g[0],
            g[1],
            g[2],
            b[0],
            b[1],
            b[2],
            shared,
            NULL_STREAM,
            null_mut(),
            null_mut()
        ))
    };
    for grid in [
        [0, 1, 1],
        [1, 0, 1],
        [0x8000_0000, 1, 1],
        [1, 65536, 1],
        [1, 1, 65536],
    ] {
        assert_eq!(go(grid, [1, 1, 1], 0), CUDA_ERROR_INVALID_VALUE, "{grid:?}");
    }
    for block in [[0, 1, 1], [2048, 1, 1], [33, 32, 1], [1, 1, 65]] {
        assert_eq!(
            go([1, 1, 1], block, 0),
            CUDA_ERROR_INVALID_VALUE,
            "{block:?}"
        );
    }
    assert_eq!(go([1, 1, 1], [1, 1, 1], 49 << 10), CUDA_ERROR_INVALID_VALUE);
    ok!(cuFuncSetAttribute(
        f,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        100 << 10
    ));
    assert_eq!(go([1, 1, 1], [1, 1, 1], 49 << 10), CUDA_SUCCESS);
    assert_eq!(
        cu!(cuFuncSetAttribute(
            f,
            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
            200 << 10
        )),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        launch(bounded, 1, 65, NULL_STREAM, &mut []),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(launch(bounded, 1, 64, NULL_STREAM, &mut []), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
}

#[test]
fn pitfall_47_a_cooperative_launch_has_to_fit() {
    context();
    let f = function(module(PTX), c"bounded");
    let (mut blocks, mut processors) = (0, 0);
    ok!(cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &mut blocks,
        f,
        64,
        0
    ));
    ok!(cuDeviceGetAttribute(
        &mut processors,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
        0
    ));
    let most = (blocks * processors) as u32;
    assert!(most > 0);
    let go = |grid| {
        cu!(cuLaunchCooperativeKernel(
            f,
            grid,
            1,
            1,
            64,
            1,
            1,
            0,
            NULL_STREAM,
            null_mut()
        ))
    };
    assert_eq!(go(most + 1), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_eq!(go(most), CUDA_SUCCESS);
    ok!(cuCtxSynchronize());
}

#[test]
fn pitfall_48_function_attributes() {
    context();
    let m = module(PTX);
    let get = |f, which| {
        let mut value: c_int = -1;
        ok!(cuFuncGetAttribute(&mut value, which, f));
        value
    };
    let (add, bounded) = (function(m, c"add"), function(m, c"bounded"));
    assert_eq!(get(add, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 1024);
    assert_eq!(get(bounded, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK), 64);
    assert!(get(add, CU_FUNC_ATTRIBUTE_NUM_REGS) > 0);
    assert_eq!(get(add, CU_FUNC_ATTRIBUTE_PTX_VERSION), 80);
    assert_eq!(
        get(add, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
        48 << 10
    );
    let mut value = 0;
    assert_eq!(
        cu!(cuFuncGetAttribute(&mut value, 99, add)),
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn pitfall_43_module_variables_and_unloading() {
    context();
    let (first, second) = (module(PTX), module(PTX));
    let global = |m| {
        let (mut address, mut size) = (0, 0);
        ok!(cuModuleGetGlobal_v2(
            &mut address,
            &mut size,
            m,
            c"counter".as_ptr()
        ));
        assert_eq!(size, 4);
        address
    };
    assert_eq!(read(global(first), 1), [7]);
    let s = stream(CU_STREAM_NON_BLOCKING);
    for _ in 0..3 {
        assert_eq!(
            launch(function(first, c"bump"), 1, 1, s, &mut []),
            CUDA_SUCCESS
        );
    }
    ok!(cuStreamSynchronize(s));
    assert_eq!(
        (read(global(first), 1), read(global(second), 1)),
        (vec![10], vec![7])
    );
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(
            null_mut(),
            null_mut(),
            first,
            c"counter".as_ptr()
        )),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        cu!(cuModuleGetGlobal_v2(
            null_mut(),
            null_mut(),
            first,
            c"absent".as_ptr()
        )),
        CUDA_ERROR_NOT_FOUND
    );
    // A module's variable is not the program's to free.
    assert_eq!(cu!(cuMemFree_v2(global(first))), CUDA_ERROR_INVALID_VALUE);
    let stale = function(first, c"bump");
    ok!(cuModuleUnload(first));
    assert_eq!(launch(stale, 1, 1, s, &mut []), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(
        launch(function(second, c"bump"), 1, 1, s, &mut []),
        CUDA_SUCCESS
    );
    ok!(cuStreamSynchronize(s));
    assert_eq!(read(global(second), 1), [8]);
}

#[test]
fn pitfall_44_unloading_waits_for_launched_kernels() {
    context();
    let m = module(PTX);
    let s = stream(CU_STREAM_NON_BLOCKING);
    let flag = pinned(1);
    let mut address = flag.as_ptr() as u64;
    assert_eq!(
        launch(function(m, c"spin"), 1, 1, s, &mut [arg(&mut address)]),
        CUDA_SUCCESS
    );
    assert_eq!(launch(function(m, c"bump"), 1, 1, s, &mut []), CUDA_SUCCESS);
    let opener = std::thread::spawn(move || flag[0].store(1, Ordering::Release));
    ok!(cuModuleUnload(m));
    opener.join().unwrap();
    ok!(cuStreamSynchronize(s));
}

#[test]
fn pitfall_10_and_22_kernels_reach_pinned_memory_while_the_host_looks_on() {
    context();
    let m = module(PTX);
    let s = stream(CU_STREAM_NON_BLOCKING);
    let words = pinned(2);
    let (mut flag, mut out, mut value) = (words.as_ptr() as u64, words[1].as_ptr() as u64, 42u32);
    assert_eq!(
        launch(function(m, c"spin"), 1, 1, s, &mut [arg(&mut flag)]),
        CUDA_SUCCESS
    );
    let mut store = [arg(&mut out), arg(&mut value)];
    assert_eq!(
        launch(function(m, c"store"), 1, 1, s, &mut store),
        CUDA_SUCCESS
    );
    assert_eq!(cu!(cuStreamQuery(s)), CUDA_ERROR_NOT_READY);
    words[0].store(1, Ordering::Release);
    while cu!(cuStreamQuery(s)) == CUDA_ERROR_NOT_READY {
        std::thread::yield_now();
    }
    assert_eq!(words[1].load(Ordering::Acquire), 42);
}

#[test]
fn libraries_load_where_they_are_used_and_kernels_launch_as_functions() {
    let first = context();
    let mut library = null_mut();
    let n = null_mut::<c_void>;
    ok!(cuLibraryLoadData(
        &mut library,
        PTX.as_ptr().cast(),
        n().cast(),
        n().cast(),
        0,
        n().cast(),
        n().cast(),
        0
    ));
    let (mut kernel, mut f, mut offset, mut size) = (null_mut(), null_mut(), 0, 0);
    ok!(cuLibraryGetKernel(&mut kernel, library, c"add".as_ptr()));
    ok!(cuKernelGetParamInfo(kernel, 3, &mut offset, &mut size));
    assert_eq!((offset, size), (24, 4));
    ok!(cuKernelGetFunction(&mut f, kernel));
    add_on(f, NULL_STREAM);
    add_on(kernel.cast(), NULL_STREAM);
    let second = context();
    assert_ne!(first, second);
    add_on(kernel.cast(), NULL_STREAM);
    ok!(cuLibraryUnload(library));
    assert_eq!(
        launch(kernel.cast(), 1, 1, NULL_STREAM, &mut []),
        CUDA_ERROR_INVALID_HANDLE
    );
    assert_eq!(
        launch(f, 1, 1, NULL_STREAM, &mut []),
        CUDA_ERROR_INVALID_HANDLE
    );
}

#[test]
fn ptx_that_does_not_compile_is_explained() {
    context();
    let mut log = [1u8; 256];
    let text = CString::new(
        ".version 8.0\n.target sm_80\n.address_size 64\n.entry k() { nonsense.u32 1; }\n",
    )
    .unwrap();
    let mut options = [CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES];
    let mut values = [log.as_mut_ptr().cast(), log.len() as *mut c_void];
    let mut m = null_mut();
    let load = cu!(cuModuleLoadDataEx(
        &mut m,
        text.as_ptr().cast(),
        2,
        options.as_mut_ptr(),
        values.as_mut_ptr()
    ));
    assert_eq!(load, CUDA_ERROR_INVALID_PTX);
    let text = CStr::from_bytes_until_nul(&log).unwrap().to_str().unwrap();
    assert!(text.contains("line 4"), "{text}");
    assert_eq!(values[1] as usize, text.len());
    let newer = c".version 99.0\n.target sm_80\n.address_size 64\n";
    assert_eq!(
        cu!(cuModuleLoadData(&mut m, newer.as_ptr().cast())),
        CUDA_ERROR_UNSUPPORTED_PTX_VERSION
    );
}

fn sticky(expected: CUresult, go: impl FnOnce(CUmodule, CUstream) -> CUresult) {
    context();
    let m = module(PTX);
    let (s, other) = (stream(0), stream(CU_STREAM_NON_BLOCKING));
    let d = alloc(4);
    let e = event(0);
    assert_eq!(go(m, s), CUDA_SUCCESS);
    assert_eq!(cu!(cuStreamSynchronize(s)), expected);
    for _ in 0..2 {
        let (mut out, mut cx) = (0, null_mut());
        assert_eq!(cu!(cuMemAlloc_v2(&mut out, 4)), expected);
        assert_eq!(cu!(cuMemsetD32_v2(d, 1, 1)), expected);
        assert_eq!(cu!(cuStreamQuery(other)), expected);
        assert_eq!(cu!(cuEventRecord(e, other)), expected);
        assert_eq!(cu!(cuCtxSynchronize()), expected);
        assert_eq!(cu!(cuCtxCreate_v2(&mut cx, 0, 0)), expected);
        assert_eq!(launch(function_of(m), 1, 1, other, &mut []), expected);
    }
    let mut count = 0;
    ok!(cuDeviceGetCount(&mut count));
}

fn function_of(m: CUmodule) -> CUfunction {
    let mut f = null_mut();
    let _ = cu!(cuModuleGetFunction(&mut f, m, c"bump".as_ptr()));
    f
}

#[test]
fn pitfall_30_an_illegal_address_is_the_end() {
    if in_child("pitfall_30_an_illegal_address_is_the_end") {
        sticky(CUDA_ERROR_ILLEGAL_ADDRESS, |m, s| {
            // The word after an allocation of 4 bytes.
            let (mut address, mut value) = (alloc(4) + 4, 1u32);
            launch(
                function(m, c"store"),
                1,
                1,
                s,
                &mut [arg(&mut address), arg(&mut value)],
            )
        });
    }
}

#[test]
fn pitfall_30_a_misaligned_address_is_the_end() {
    if in_child("pitfall_30_a_misaligned_address_is_the_end") {
        sticky(CUDA_ERROR_MISALIGNED_ADDRESS, |m, s| {
            let (mut address, mut value) = (alloc(8) + 2, 1u32);
            launch(
                function(m, c"store"),
                1,
                1,
                s,
                &mut [arg(&mut address), arg(&mut value)],
            )
        });
    }
}

#[test]
fn pitfall_30_a_trap_is_the_end_even_of_endless_kernels() {
    if in_child("pitfall_30_a_trap_is_the_end_even_of_endless_kernels") {
        sticky(CUDA_ERROR_LAUNCH_FAILED, |m, s| {
            let mut never = alloc(4);
            ok!(cuMemsetD32_v2(never, 0, 1));
            let endless = stream(CU_STREAM_NON_BLOCKING);
            assert_eq!(
                launch(function(m, c"spin"), 1, 1, endless, &mut [arg(&mut never)]),
                CUDA_SUCCESS
            );
            launch(function(m, c"halt"), 1, 1, s, &mut [])
        });
    }
}
