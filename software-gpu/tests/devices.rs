// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Several devices in one process.

mod common;

use std::ptr::null_mut;

use common::*;
use gpgpu_protocol::cuda::*;

const PTX: &std::ffi::CStr = c"
.version 8.0
.target sm_80
.address_size 64

.visible .entry put(.param .u64 to, .param .u32 value)
{
    .reg .b32 %r<2>;
    .reg .b64 %d<2>;
    ld.param.u64 %d1, [to];
    ld.param.u32 %r1, [value];
    st.global.u32 [%d1], %r1;
    ret;
}
";

fn memory() -> (usize, usize) {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    (free, total)
}

fn ordinal(address: CUdeviceptr) -> i32 {
    let mut device = -1;
    ok!(cuPointerGetAttribute(
        (&raw mut device).cast(),
        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        address
    ));
    device
}

#[test]
fn each_device_has_its_own_context_and_its_own_memory() {
    if !in_child_with("each_device_has_its_own_context_and_its_own_memory", 3) {
        return;
    }
    ok!(cuInit(0));
    let mut count = 0;
    ok!(cuDeviceGetCount(&mut count));
    assert_eq!(count, 3);
    let mut device = 7;
    assert_eq!(cu!(cuDeviceGet(&mut device, 3)), CUDA_ERROR_INVALID_DEVICE);
    let uuids = [0, 1, 2].map(|device| {
        let mut uuid = CUuuid::default();
        ok!(cuDeviceGetUuid_v2(&mut uuid, device));
        uuid.bytes
    });
    assert!(uuids[0] != uuids[1] && uuids[1] != uuids[2]);

    let contexts = [0, 1].map(|device| {
        let mut context = null_mut();
        ok!(cuDevicePrimaryCtxRetain(&mut context, device));
        context
    });
    assert_ne!(contexts[0], contexts[1]);
    let mut blocks = [0; 2];
    for (device, context) in contexts.iter().enumerate() {
        ok!(cuCtxSetCurrent(*context));
        let mut current = -1;
        ok!(cuCtxGetDevice(&mut current));
        assert_eq!(current, device as i32);
        // Each has 64 MiB: together two devices contain more than one can.
        assert_eq!(memory(), (64 << 20, 64 << 20));
        ok!(cuMemAlloc_v2(&mut blocks[device], 48 << 20));
        assert_eq!(memory().0, 16 << 20);
        let mut more = 0;
        assert_eq!(
            cu!(cuMemAlloc_v2(&mut more, 48 << 20)),
            CUDA_ERROR_OUT_OF_MEMORY
        );
        assert_eq!(ordinal(blocks[device]), device as i32);
    }
    for (device, context) in contexts.iter().enumerate() {
        ok!(cuCtxSetCurrent(*context));
        let put = function(module(PTX), c"put");
        let mut value = 40 + device as u32;
        let mut arguments = [(&raw mut blocks[device]).cast(), (&raw mut value).cast()];
        assert_eq!(launch(put, 1, 1, null_mut(), &mut arguments), CUDA_SUCCESS);
        ok!(cuCtxSynchronize());
        assert_eq!(read(blocks[device], 1), [40 + device as u32]);
    }

    // Memory is returned to its device, even if it is freed with another device's context current.
    ok!(cuMemFree_v2(blocks[0]));
    assert!(memory().0 < 64 << 20);
    ok!(cuCtxSetCurrent(contexts[0]));
    let (free, _) = memory();
    assert!(free > 63 << 20, "{free}");

    // Pools are of one device each.
    let mut pooled = 0;
    ok!(cuMemAllocAsync(&mut pooled, 1 << 20, null_mut()));
    assert_eq!(ordinal(pooled), 0);
    ok!(cuCtxSetCurrent(contexts[1]));
    ok!(cuMemAllocAsync(&mut pooled, 1 << 20, null_mut()));
    assert_eq!(ordinal(pooled), 1);

    // The content of one device's context is destroyed with it, and the other's is not.
    ok!(cuDevicePrimaryCtxRelease_v2(0));
    assert_eq!(read(blocks[1], 1), [41]);
}

#[test]
fn physical_memory_is_on_the_named_device() {
    if !in_child_with("physical_memory_is_on_the_named_device", 2) {
        return;
    }
    ok!(cuInit(0));
    let mut contexts = [null_mut(); 2];
    for (device, context) in contexts.iter_mut().enumerate() {
        ok!(cuDevicePrimaryCtxRetain(context, device as i32));
    }
    let mut properties = CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: 0,
        location: CUmemLocation {
            type_: CU_MEM_LOCATION_TYPE_DEVICE,
            id: 1,
        },
        win32HandleMetaData: null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    };
    let mut handle = 0;
    ok!(cuCtxSetCurrent(contexts[0]));
    ok!(cuMemCreate(&mut handle, 2 << 20, &properties, 0));
    assert_eq!(memory().0, 64 << 20);
    ok!(cuCtxSetCurrent(contexts[1]));
    assert_eq!(memory().0, 62 << 20);
    let mut said = properties;
    ok!(cuMemGetAllocationPropertiesFromHandle(&mut said, handle));
    assert_eq!(said.location.id, 1);
    ok!(cuMemRelease(handle));
    assert_eq!(memory().0, 64 << 20);
    properties.location.id = 2;
    assert_eq!(
        cu!(cuMemCreate(&mut handle, 2 << 20, &properties, 0)),
        CUDA_ERROR_INVALID_DEVICE
    );
}
