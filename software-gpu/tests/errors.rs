// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! CUDA's answers to mistakes.

mod common;

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use common::*;
use gpgpu_protocol::cuda::*;

fn garbage() -> [u64; 6] {
    [
        3,
        0xdead_beef,
        u64::MAX,
        0x0051_0000_0000_0000,
        0x7fff_0000_1000,
        1 << 63,
    ]
}

#[test]
fn pitfall_32_before_init_and_without_a_context() {
    if !in_child("pitfall_32_before_init_and_without_a_context") {
        return;
    }
    let (mut count, mut address) = (0, 0);
    assert_eq!(
        cu!(cuDeviceGetCount(&mut count)),
        CUDA_ERROR_NOT_INITIALIZED
    );
    assert_eq!(
        cu!(cuMemAlloc_v2(&mut address, 4)),
        CUDA_ERROR_NOT_INITIALIZED
    );
    ok!(cuDriverGetVersion(&mut count));
    assert_eq!(count, 13000);
    assert_eq!(cu!(cuInit(1)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuInit(0));
    ok!(cuInit(0));
    assert_eq!(
        cu!(cuMemAlloc_v2(&mut address, 4)),
        CUDA_ERROR_INVALID_CONTEXT
    );
    let mut current = null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    assert!(current.is_null());
    assert_eq!(
        cu!(cuCtxPopCurrent_v2(&mut current)),
        CUDA_ERROR_INVALID_CONTEXT
    );
    let mut device = 7;
    assert_eq!(cu!(cuDeviceGet(&mut device, 1)), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(cu!(cuDeviceGet(&mut device, -1)), CUDA_ERROR_INVALID_DEVICE);
    ok!(cuDeviceGet(&mut device, 0));
    let mut value = 0;
    assert_eq!(
        cu!(cuDeviceGetAttribute(&mut value, 9999, 0)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        cu!(cuDeviceGetAttribute(&mut value, 1, 1)),
        CUDA_ERROR_INVALID_DEVICE
    );
    for attribute in 1..CU_DEVICE_ATTRIBUTE_MAX {
        ok!(cuDeviceGetAttribute(&mut value, attribute, 0));
    }
    let mut name = [1 as std::ffi::c_char; 8];
    ok!(cuDeviceGetName(name.as_mut_ptr(), 8, 0));
    assert_eq!(name[7], 0);
}

#[test]
fn null_pointers_and_sizes() {
    context();
    let d = alloc(64);
    let mut out = 0;
    assert_eq!(cu!(cuMemAlloc_v2(null_mut(), 4)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemAlloc_v2(&mut out, 0)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        cu!(cuMemcpyHtoD_v2(d, null_mut(), 4)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        cu!(cuMemcpyDtoH_v2(null_mut(), d, 4)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuMemcpyHtoD_v2(0, null_mut(), 0));
    ok!(cuMemcpyDtoH_v2(null_mut(), 0, 0));
    let mut buffer = [0u8; 128];
    // Past the end, from the middle, and where nothing was ever allocated.
    let p = buffer.as_mut_ptr().cast::<c_void>();
    assert_eq!(cu!(cuMemcpyHtoD_v2(d, p, 65)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(d + 60, p, 5)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemcpyHtoD_v2(d + 60, p, 4));
    assert_eq!(
        cu!(cuMemcpyDtoD_v2(d, p as u64, 4)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(cu!(cuMemsetD32_v2(d + 2, 1, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD16_v2(d + 1, 1, 1)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemsetD8_v2(d, 1, 65)), CUDA_ERROR_INVALID_VALUE);
    // Freeing: NULL is nothing; twice, from the middle, and host memory are mistakes.
    ok!(cuMemFree_v2(0));
    assert_eq!(cu!(cuMemFree_v2(d + 4)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuMemFree_v2(d));
    assert_eq!(cu!(cuMemFree_v2(d)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemcpyHtoD_v2(d, p, 4)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemFree_v2(p as u64)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(cu!(cuMemFreeHost(p)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        cu!(cuMemHostGetDevicePointer_v2(&mut out, p, 0)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        cu!(cuMemHostUnregister(p)),
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
    );
    for (size, flags) in [(0, 1), (4, 0), (4, 3), (4, 4)] {
        assert_eq!(
            cu!(cuMemAllocManaged(&mut out, size, flags)),
            CUDA_ERROR_INVALID_VALUE
        );
        assert_eq!(out, 0);
    }
}

#[test]
fn pitfall_63_garbage_handles_are_errors() {
    context();
    let (s, e) = (stream(0), event(0));
    let mut scratch = 0usize;
    for handle in garbage().into_iter().chain([e as u64]) {
        assert_eq!(
            cu!(cuStreamQuery(handle as CUstream)),
            CUDA_ERROR_INVALID_HANDLE,
            "{handle:#x}"
        );
        assert_eq!(
            cu!(cuStreamDestroy_v2(handle as CUstream)),
            CUDA_ERROR_INVALID_HANDLE
        );
    }
    for handle in garbage().into_iter().chain([0, s as u64]) {
        assert_eq!(
            cu!(cuEventQuery(handle as CUevent)),
            CUDA_ERROR_INVALID_HANDLE
        );
        assert_eq!(
            cu!(cuEventRecord(handle as CUevent, s)),
            CUDA_ERROR_INVALID_HANDLE
        );
        assert_eq!(
            cu!(cuEventDestroy_v2(handle as CUevent)),
            CUDA_ERROR_INVALID_HANDLE
        );
        assert_eq!(
            cu!(cuModuleUnload(handle as CUmodule)),
            CUDA_ERROR_INVALID_HANDLE
        );
        assert_eq!(
            cu!(cuLibraryUnload(handle as CUlibrary)),
            CUDA_ERROR_INVALID_HANDLE
        );
        let unknown_context = match handle {
            0 => CUDA_ERROR_INVALID_VALUE,
            _ => CUDA_ERROR_INVALID_CONTEXT,
        };
        assert_eq!(
            cu!(cuCtxPushCurrent_v2(handle as CUcontext)),
            unknown_context
        );
        assert_eq!(cu!(cuCtxDestroy_v2(handle as CUcontext)), unknown_context);
        assert_eq!(
            launch(handle as CUfunction, 1, 1, s, &mut []),
            CUDA_ERROR_INVALID_HANDLE
        );
        assert_eq!(
            cu!(cuFuncGetParamInfo(
                handle as CUfunction,
                0,
                &mut scratch,
                null_mut()
            )),
            CUDA_ERROR_INVALID_HANDLE
        );
    }
    ok!(cuStreamDestroy_v2(s));
    assert_eq!(cu!(cuStreamDestroy_v2(s)), CUDA_ERROR_INVALID_HANDLE);
    ok!(cuEventDestroy_v2(e));
    assert_eq!(cu!(cuEventDestroy_v2(e)), CUDA_ERROR_INVALID_HANDLE);
    assert_eq!(cu!(cuEventQuery(e)), CUDA_ERROR_INVALID_HANDLE);
}

#[test]
fn pitfall_24_elapsed_time_errors() {
    context();
    let s = stream(CU_STREAM_NON_BLOCKING);
    let (a, b, untimed) = (event(0), event(0), event(CU_EVENT_DISABLE_TIMING));
    let mut ms = -1f32;
    assert_eq!(
        cu!(cuEventElapsedTime(&mut ms, a, b)),
        CUDA_ERROR_INVALID_HANDLE
    );
    ok!(cuEventQuery(a));
    ok!(cuEventRecord(a, s));
    let gate = Gate::hold(s);
    ok!(cuEventRecord(b, s));
    ok!(cuEventRecord(untimed, s));
    assert_eq!(cu!(cuEventElapsedTime(&mut ms, a, b)), CUDA_ERROR_NOT_READY);
    assert_eq!(cu!(cuEventQuery(b)), CUDA_ERROR_NOT_READY);
    assert_eq!(
        cu!(cuEventElapsedTime(&mut ms, a, untimed)),
        CUDA_ERROR_INVALID_HANDLE
    );
    gate.open();
    ok!(cuEventSynchronize(b));
    ok!(cuEventElapsedTime(&mut ms, a, b));
    assert!(ms >= 0.0);
}

#[test]
fn images_that_are_no_modules() {
    context();
    let load = |image: &[u8]| {
        let mut module = null_mut();
        cu!(cuModuleLoadData(&mut module, image.as_ptr().cast()))
    };
    assert_eq!(load(b"nonsense\0"), CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(load(b"\0"), CUDA_ERROR_INVALID_IMAGE);
    assert_eq!(
        load(b"\x7fELF\x02\x01\x01\x33\0"),
        CUDA_ERROR_NO_BINARY_FOR_GPU
    );
    let mut module = null_mut();
    assert_eq!(
        cu!(cuModuleLoadData(&mut module, null_mut())),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        cu!(cuModuleLoad(&mut module, c"/nowhere/at/all.ptx".as_ptr())),
        CUDA_ERROR_FILE_NOT_FOUND
    );
}

#[test]
fn pitfall_15_registering_host_memory() {
    context();
    let mut buffer = vec![1u32; 5000];
    let p = buffer.as_mut_ptr().wrapping_add(1).cast::<c_void>();
    ok!(cuMemHostRegister_v2(p, 4096, 0));
    assert_eq!(
        cu!(cuMemHostRegister_v2(p, 4096, 0)),
        CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    );
    let mut address = 0;
    ok!(cuMemHostGetDevicePointer_v2(
        &mut address,
        p.wrapping_byte_add(8),
        0
    ));
    assert_eq!(address, p as u64 + 8);
    ok!(cuMemsetD8_v2(p as u64, 0, 4096));
    assert_eq!(
        (buffer[0], buffer[1], buffer[1024], buffer[1025]),
        (1, 0, 0, 1)
    );
    ok!(cuMemHostUnregister(p));
    assert_eq!(
        cu!(cuMemHostUnregister(p)),
        CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
    );
    assert_eq!(cu!(cuMemHostRegister_v2(p, 0, 0)), CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn pitfall_16_the_kind_of_an_address_is_known() {
    context();
    let d = alloc(100);
    let host = pinned(4).as_ptr() as u64;
    let stack = [0u32; 4];
    let which = [
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    ];
    let ask = |address: u64| {
        let (mut kind, mut ordinal, mut size) = (9u32, 9 as c_int, 9usize);
        let data = [
            (&raw mut kind).cast::<c_void>(),
            (&raw mut ordinal).cast(),
            (&raw mut size).cast(),
        ];
        ok!(cuPointerGetAttributes(
            3,
            which.as_ptr(),
            data.as_ptr(),
            address
        ));
        (kind, ordinal, size)
    };
    assert_eq!(ask(d + 99), (CU_MEMORYTYPE_DEVICE, 0, 100));
    assert_eq!(ask(host + 4), (CU_MEMORYTYPE_HOST, 0, 16));
    assert_eq!(ask(stack.as_ptr() as u64), (0, -2, 0));
    assert_eq!(ask(d + 100).0, 0);
    let mut kind = 0u32;
    let single = |address, kind: &mut u32| {
        cu!(cuPointerGetAttribute(
            (&raw mut *kind).cast(),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            address
        ))
    };
    assert_eq!(single(d, &mut kind), CUDA_SUCCESS);
    assert_eq!(
        single(stack.as_ptr() as u64, &mut kind),
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn rows_are_copied_where_they_belong() {
    context();
    let (mut d, mut pitch) = (0, 0);
    ok!(cuMemAllocPitch_v2(&mut d, &mut pitch, 20, 4, 4));
    assert_eq!((pitch, d % 512), (512, 0));
    ok!(cuMemsetD2D16_v2(d, pitch, 0xabcd, 10, 4));
    let source: Vec<u8> = (0..60).collect();
    // SAFETY: all-zero is a valid value: integers and null pointers.
    let mut copy: CUDA_MEMCPY2D = unsafe { std::mem::zeroed() };
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = source.as_ptr().cast();
    (copy.srcPitch, copy.srcXInBytes, copy.srcY) = (15, 5, 1);
    copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.dstDevice = d;
    (copy.dstPitch, copy.dstXInBytes, copy.dstY) = (pitch, 2, 1);
    (copy.WidthInBytes, copy.Height) = (6, 2);
    ok!(cuMemcpy2D_v2(&copy));
    let mut row = [0u8; 20];
    for (y, first) in [(1u64, 20u8), (2, 35)] {
        ok!(cuMemcpyDtoH_v2(
            row.as_mut_ptr().cast(),
            d + y * pitch as u64,
            20
        ));
        assert_eq!(row[..2], [0xcd, 0xab]);
        assert_eq!(
            row[2..8],
            std::array::from_fn::<u8, 6, _>(|i| first + i as u8)
        );
        assert_eq!(row[8..10], [0xcd, 0xab]);
    }
    ok!(cuMemcpyDtoH_v2(
        row.as_mut_ptr().cast(),
        d + 3 * pitch as u64,
        20
    ));
    assert_eq!(row, [0xcd, 0xab].repeat(10)[..]);
    copy.srcPitch = 10;
    assert_eq!(cu!(cuMemcpy2D_v2(&copy)), CUDA_ERROR_INVALID_VALUE);
    copy.Height = 0;
    ok!(cuMemcpy2D_v2(&copy));
}

#[test]
fn pitfall_72_memory_is_counted_exactly() {
    if !in_child("pitfall_72_memory_is_counted_exactly") {
        return;
    }
    context();
    let (mut free, mut total, mut device) = (0, 0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    ok!(cuDeviceTotalMem_v2(&mut device, 0));
    assert_eq!((free, total, device), (64 << 20, 64 << 20, 64 << 20));
    let mut refused = 0;
    assert_eq!(
        cu!(cuMemAlloc_v2(&mut refused, (64 << 20) + 1)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    assert_eq!(
        cu!(cuMemAlloc_v2(&mut refused, usize::MAX)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    let all = alloc(64 << 20);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(free, 0);
    assert_eq!(
        cu!(cuMemAlloc_v2(&mut refused, 1)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    ok!(cuMemFree_v2(all));
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(free, 64 << 20);
}

#[test]
fn pitfall_58_and_59_the_primary_context() {
    if !in_child("pitfall_58_and_59_the_primary_context") {
        return;
    }
    ok!(cuInit(0));
    let (mut cx, mut again, mut flags, mut active) = (null_mut(), null_mut(), 0, 0);
    assert_eq!(
        cu!(cuDevicePrimaryCtxRelease_v2(0)),
        CUDA_ERROR_INVALID_CONTEXT
    );
    for round in 0..100 {
        ok!(cuDevicePrimaryCtxSetFlags_v2(0, CU_CTX_SCHED_YIELD));
        ok!(cuDevicePrimaryCtxRetain(&mut cx, 0));
        ok!(cuDevicePrimaryCtxRetain(&mut again, 0));
        assert_eq!(cx, again, "round {round}");
        ok!(cuCtxSetCurrent(cx));
        let d = alloc(1 << 20);
        let s = stream(0);
        ok!(cuMemsetD32Async(d, 1, 1, s));
        assert_eq!(read(d, 1), [1]);
        // A reset releases nothing.
        if round % 2 == 0 {
            ok!(cuDevicePrimaryCtxReset_v2(0));
        }
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuDevicePrimaryCtxRelease_v2(0));
        ok!(cuDevicePrimaryCtxGetState(0, &mut flags, &mut active));
        assert_eq!((active, flags), (0, 0), "flags go with the context");
        let mut address = 0;
        assert_eq!(
            cu!(cuMemAlloc_v2(&mut address, 4)),
            CUDA_ERROR_CONTEXT_IS_DESTROYED
        );
    }
    // All that the contexts held is free again.
    ok!(cuDevicePrimaryCtxRetain(&mut cx, 0));
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    assert_eq!(free, total);
}

#[test]
fn pitfall_25_contexts_are_current_per_thread() {
    let first = context();
    let other = std::thread::spawn(|| {
        let mut current = null_mut();
        ok!(cuCtxGetCurrent(&mut current));
        assert!(current.is_null());
        let own = context();
        ok!(cuCtxGetCurrent(&mut current));
        assert_eq!(current, own);
        own as usize
    });
    let other = other.join().unwrap() as CUcontext;
    let mut current = null_mut();
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, first);
    ok!(cuCtxPushCurrent_v2(other));
    ok!(cuCtxDestroy_v2(other));
    ok!(cuCtxGetCurrent(&mut current));
    assert_eq!(current, first);
    assert_ne!(cu!(cuCtxPushCurrent_v2(other)), CUDA_SUCCESS);
}

#[test]
fn pitfall_60_a_forked_child_has_no_driver() {
    if !in_child("pitfall_60_a_forked_child_has_no_driver") {
        return;
    }
    context();
    let d = alloc(4);
    // SAFETY: the child calls only functions that take no lock here, then leaves without running destructors.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut count = 0;
        let refused = cu!(cuDeviceGetCount(&mut count)) == CUDA_ERROR_NOT_INITIALIZED
            && cu!(cuMemFree_v2(d)) == CUDA_ERROR_NOT_INITIALIZED;
        // SAFETY: ends the child.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: waits for the child made above.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
    ok!(cuMemsetD32_v2(d, 4, 1));
    assert_eq!(read(d, 1), [4]);
}

#[test]
fn pitfall_61_exit_with_busy_streams() {
    if !in_child("pitfall_61_exit_with_busy_streams") {
        return;
    }
    context();
    let s = stream(CU_STREAM_NON_BLOCKING);
    let _gate = Gate::hold(s);
    let d = alloc(4);
    ok!(cuMemsetD32Async(d, 4, 1, s));
}

#[test]
fn unsupported_functions_return_not_supported() {
    context();
    let (s, mut status, mut table) = (stream(0), 9, std::ptr::null());
    assert_eq!(cu!(cuStreamBeginCapture_v2(s, 3)), CUDA_ERROR_INVALID_VALUE);
    ok!(cuStreamIsCapturing(s, &mut status));
    assert_eq!(status, CU_STREAM_CAPTURE_STATUS_NONE);
    let (mut graph, mut exec) = (std::ptr::null_mut(), std::ptr::null_mut());
    ok!(cuGraphCreate(&mut graph, 0));
    // Kernels have nothing to launch in a graph without nodes.
    const DEVICE_LAUNCH: u64 = 4;
    assert_eq!(
        cu!(cuGraphInstantiateWithFlags(&mut exec, graph, DEVICE_LAUNCH)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuGraphDestroy(graph));
    let mut tokens = 0u64;
    assert_eq!(
        cu!(cuPointerGetAttribute(
            (&raw mut tokens).cast(),
            CU_POINTER_ATTRIBUTE_P2P_TOKENS,
            alloc(1)
        )),
        CUDA_ERROR_NOT_SUPPORTED
    );
    let id = CUuuid::default();
    assert_eq!(
        cu!(cuGetExportTable(&mut table, &id)),
        CUDA_ERROR_INVALID_VALUE
    );
    for (code, name) in RESULT_NAMES {
        let mut text = std::ptr::null();
        ok!(cuGetErrorName(*code, &mut text));
        // SAFETY: the function succeeded, so it is a string.
        let text = unsafe { std::ffi::CStr::from_ptr(text) };
        assert_eq!(text.to_str().unwrap(), *name);
    }
    let mut text = std::ptr::null();
    assert_eq!(
        cu!(cuGetErrorName(12345, &mut text)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert!(text.is_null());
}
