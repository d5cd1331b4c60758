// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Copies of other forms: boxes, arrays, pinned and managed memory, and two devices.
#![allow(missing_docs)]

mod common;

use std::ffi::c_void;
use std::process::Command;
use std::ptr::null_mut;

use common::*;
use gpgpu_protocol::cuda::{
    CU_AD_FORMAT_UNSIGNED_INT8, CU_MEMORYTYPE_ARRAY, CU_MEMORYTYPE_DEVICE, CU_MEMORYTYPE_HOST,
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D,
};
use gpgpu_protocol::cupti::{copy_kind, memory_kind};
use gpgpu_stand_in::ok;

fn nothing() -> CUDA_MEMCPY3D {
    // SAFETY: numbers and pointers, for which zero is a value.
    unsafe { std::mem::zeroed() }
}

#[test]
fn a_box_has_one_record() {
    let session = Session::new();
    let from = [5_u8; 4 * 3 * 2];
    let to = LIBRARIES.allocate(from.len());
    Session::enable(&ALL);
    let what = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_HOST,
        srcHost: from.as_ptr().cast(),
        srcPitch: 4,
        srcHeight: 3,
        dstMemoryType: CU_MEMORYTYPE_DEVICE,
        dstDevice: to,
        dstPitch: 4,
        dstHeight: 3,
        WidthInBytes: 4,
        Height: 3,
        Depth: 2,
        ..nothing()
    };
    for name in ["cuMemcpy3D_v2", "cuMemcpy3DAsync_v2"] {
        match name {
            "cuMemcpy3D_v2" => ok!(LIBRARIES, name; &what),
            _ => ok!(LIBRARIES, name; &what, null_mut::<c_void>()),
        }
        synchronize();
        let records = session.records();
        assert_eq!(records.len(), 2, "{records:?}");
        let copy = only!(records, Copy)[0];
        assert_eq!((copy.bytes, copy.copy_kind), (24, copy_kind::HTOD));
        assert_eq!(copy.correlation, only!(records, Call)[0].correlation);
        assert!(copy.start <= copy.end);
    }
}

#[test]
fn the_kinds_of_memory_are_told() {
    let session = Session::new();
    let (device, size) = (LIBRARIES.allocate(64), 64_usize);
    let (mut pinned, mut managed) = (0_u64, 0_u64);
    ok!(LIBRARIES, "cuMemHostAlloc"; &mut pinned, size, 0_u32);
    ok!(LIBRARIES, "cuMemAllocManaged"; &mut managed, size, 1_u32);
    let form = CUDA_ARRAY3D_DESCRIPTOR {
        Width: size,
        Height: 0,
        Depth: 0,
        Format: CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
        Flags: 0,
    };
    let mut array = null_mut::<c_void>();
    ok!(LIBRARIES, "cuArray3DCreate_v2"; &mut array, &form);
    Session::enable(&ALL);
    ok!(LIBRARIES, "cuMemcpy"; device, pinned, size);
    ok!(LIBRARIES, "cuMemcpyDtoDAsync_v2"; device, managed, size, null_mut::<c_void>());
    ok!(LIBRARIES, "cuMemcpyDtoA_v2"; array, 0_usize, device, size);
    let what = CUDA_MEMCPY3D {
        srcMemoryType: CU_MEMORYTYPE_ARRAY,
        srcArray: array.cast(),
        dstMemoryType: CU_MEMORYTYPE_HOST,
        dstHost: pinned as *mut c_void,
        WidthInBytes: size,
        Height: 1,
        Depth: 1,
        ..nothing()
    };
    ok!(LIBRARIES, "cuMemcpy3D_v2"; &what);
    ok!(LIBRARIES, "cuMemsetD8_v2"; managed, 3_u8, size);
    synchronize();
    let records = session.records();
    let kinds: Vec<_> = only!(records, Copy)
        .iter()
        .map(|of| (of.copy_kind, of.from_kind, of.to_kind))
        .collect();
    let expected = [
        (copy_kind::HTOD, memory_kind::PINNED, memory_kind::DEVICE),
        (copy_kind::DTOD, memory_kind::MANAGED, memory_kind::DEVICE),
        (copy_kind::DTOA, memory_kind::DEVICE, memory_kind::ARRAY),
        (copy_kind::ATOH, memory_kind::ARRAY, memory_kind::PINNED),
    ];
    assert_eq!(kinds, expected);
    let fill = only!(records, Fill)[0];
    assert_eq!(
        (fill.value, fill.memory_kind),
        (3, memory_kind::MANAGED.into())
    );
}

#[test]
fn a_copy_between_devices_has_its_own_kind() {
    const NAME: &str = "a_copy_between_devices_has_its_own_kind";
    const DEVICES: &str = "VIRTIO_GPGPU_SOFTWARE_DEVICES";
    if std::env::var_os(DEVICES).is_none() {
        // The number of devices is that of the process.
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child
            .args(["--exact", NAME, "--nocapture"])
            .env(DEVICES, "2");
        assert!(child.status().unwrap().success());
        return;
    }
    let session = Session::new();
    let first = LIBRARIES.allocate(32);
    let (mut other, mut own) = (null_mut::<c_void>(), null_mut::<c_void>());
    ok!(LIBRARIES, "cuCtxGetCurrent"; &mut own);
    ok!(LIBRARIES, "cuDevicePrimaryCtxRetain"; &mut other, 1);
    ok!(LIBRARIES, "cuCtxSetCurrent"; other);
    let second = LIBRARIES.allocate(32);
    Session::enable(&ALL);
    ok!(LIBRARIES, "cuMemcpyPeer"; second, other, first, own, 32_usize);
    synchronize();
    ok!(LIBRARIES, "cuCtxSetCurrent"; own);
    synchronize();
    let records = session.records();
    assert!(only!(records, Copy).is_empty());
    let copies = only!(records, Peer);
    assert_eq!(copies.len(), 1);
    let copy = copies[0];
    assert_eq!((copy.copy_kind, copy.bytes), (copy_kind::PTOP, 32));
    assert_eq!((copy.from_device, copy.to_device, copy.device), (0, 1, 1));
    assert_ne!(copy.from_context, copy.to_context);
    assert_eq!(copy.correlation, only!(records, Call)[0].correlation);
}
