// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Virtual memory management: reserved addresses, physical memory, and imports by another process.

mod common;

use std::ffi::{CStr, c_int, c_void};
use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;

use common::*;
use gpgpu_protocol::cuda::*;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

const GRANULE: usize = 2 << 20;
const FD: CUmemAllocationHandleType = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

const PTX: &CStr = cr#"
.version 8.0
.target sm_80
.address_size 64

// to[i] = from[i] + 1
.visible .entry next(.param .u64 to, .param .u64 from)
{
    .reg .b32 %r<3>;
    .reg .b64 %d<4>;
    mov.u32 %r1, %tid.x;
    ld.param.u64 %d1, [to];
    ld.param.u64 %d2, [from];
    mul.wide.u32 %d3, %r1, 4;
    add.s64 %d1, %d1, %d3;
    add.s64 %d2, %d2, %d3;
    ld.global.u32 %r2, [%d2];
    add.u32 %r2, %r2, 1;
    st.global.u32 [%d1], %r2;
    ret;
}

// Writes until the program sets `enough`.
.visible .entry scribble(.param .u64 to, .param .u64 enough)
{
    .reg .pred %p;
    .reg .b32 %r<2>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [to];
    ld.param.u64 %d2, [enough];
AGAIN:
    st.volatile.global.u32 [%d1], 5;
    ld.volatile.global.u32 %r1, [%d2];
    setp.eq.u32 %p, %r1, 0;
    @%p bra AGAIN;
    ret;
}
"#;

fn properties() -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FD,
        location: CUmemLocation {
            type_: CU_MEM_LOCATION_TYPE_DEVICE,
            id: 0,
        },
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: CUmemAllocationFlags::default(),
    }
}

fn create(size: usize) -> CUmemGenericAllocationHandle {
    let mut handle = 0;
    ok!(cuMemCreate(&mut handle, size, &properties(), 0));
    handle
}

fn reserve(size: usize) -> CUdeviceptr {
    let mut address = 0;
    ok!(cuMemAddressReserve(&mut address, size, 0, 0, 0));
    assert_eq!(address % GRANULE as u64, 0);
    address
}

fn allow(address: CUdeviceptr, size: usize, flags: CUmemAccess_flags) -> CUresult {
    let wish = CUmemAccessDesc {
        location: properties().location,
        flags,
    };
    cu!(cuMemSetAccess(address, size, &wish, 1))
}

fn allowed(address: CUdeviceptr) -> u64 {
    let mut flags = 9;
    let location = properties().location;
    ok!(cuMemGetAccess(&mut flags, &location, address));
    flags
}

/// Maps for reading and writing.
fn map(address: CUdeviceptr, size: usize, handle: CUmemGenericAllocationHandle) {
    ok!(cuMemMap(address, size, 0, handle, 0));
    assert_eq!(
        allow(address, size, CU_MEM_ACCESS_FLAGS_PROT_READWRITE),
        CUDA_SUCCESS
    );
}

fn free_bytes() -> usize {
    let (mut free, mut total) = (0, 0);
    ok!(cuMemGetInfo_v2(&mut free, &mut total));
    free
}

fn next(to: CUdeviceptr, from: CUdeviceptr, threads: u32) -> CUresult {
    let f = function(module(PTX), c"next");
    let (mut to, mut from) = (to, from);
    let arguments = &mut [(&raw mut to).cast(), (&raw mut from).cast()];
    match launch(f, 1, threads, NULL_STREAM, arguments) {
        CUDA_SUCCESS => cu!(cuCtxSynchronize()),
        refused => refused,
    }
}

fn export(handle: CUmemGenericAllocationHandle) -> OwnedFd {
    let mut fd: c_int = -1;
    ok!(cuMemExportToShareableHandle(
        (&raw mut fd).cast(),
        handle,
        FD,
        0
    ));
    // SAFETY: a descriptor that is the caller's from here on.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn import(fd: &OwnedFd) -> Result<CUmemGenericAllocationHandle, CUresult> {
    let mut handle = 0;
    let fd = fd.as_raw_fd() as usize as *mut c_void;
    match cu!(cuMemImportFromShareableHandle(&mut handle, fd, FD)) {
        CUDA_SUCCESS => Ok(handle),
        refused => Err(refused),
    }
}

#[test]
fn mapped_memory_is_like_any_other() {
    context();
    let (address, size) = (reserve(4 * GRANULE), 2 * GRANULE);
    map(address, size, create(size));
    assert!(read(address, size / 4).iter().all(|w| *w == 0));
    ok!(cuMemsetD32_v2(address, 5, size / 4));
    assert_eq!(next(address + 64, address, 16), CUDA_SUCCESS);
    let words = read(address, 33);
    assert_eq!((words[15], words[16], words[31], words[32]), (5, 6, 6, 5));
    let plain = alloc(4);
    ok!(cuMemcpyDtoD_v2(plain, address + 64, 4));
    assert_eq!(read(plain, 1), [6]);
    let (mut base, mut bytes) = (0, 0);
    ok!(cuMemGetAddressRange_v2(
        &mut base,
        &mut bytes,
        address + 100
    ));
    assert_eq!((base, bytes), (address, size));
    let mut kind = 0u32;
    ok!(cuPointerGetAttribute(
        (&raw mut kind).cast(),
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
        address + 4
    ));
    assert_eq!(kind, CU_MEMORYTYPE_DEVICE);
    let mut types = 0u64;
    ok!(cuPointerGetAttribute(
        (&raw mut types).cast(),
        CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
        address
    ));
    assert_eq!(types, FD.into());
    assert_eq!(cu!(cuMemFree_v2(address)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        cu!(cuMemFreeAsync(address, NULL_STREAM)),
        CUDA_ERROR_INVALID_VALUE
    );
    // Beyond the mapping the reservation has no memory.
    assert_eq!(
        cu!(cuMemsetD8_v2(address + size as u64 - 1, 0, 2)),
        CUDA_ERROR_INVALID_VALUE
    );
    let mut host = 0u32;
    assert_eq!(
        cu!(cuMemcpyDtoH_v2(
            (&raw mut host).cast(),
            address + size as u64,
            4
        )),
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn attributes_report_the_supported_features() {
    ok!(cuInit(0));
    for which in [
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1,
        CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
    ] {
        let mut value = -1;
        ok!(cuDeviceGetAttribute(&mut value, which, 0));
        assert_eq!(value, 1, "attribute {which}");
    }
    for option in [
        CU_MEM_ALLOC_GRANULARITY_MINIMUM,
        CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
    ] {
        let mut granularity = 0;
        ok!(cuMemGetAllocationGranularity(
            &mut granularity,
            &properties(),
            option
        ));
        assert_eq!(granularity, GRANULE);
    }
}

#[test]
fn reservations_are_where_they_were_wished() {
    ok!(cuInit(0));
    let wish = 0x3000_0000_0000;
    let (mut again, mut other) = (0, 0);
    for _ in 0..2 {
        ok!(cuMemAddressReserve(&mut again, GRANULE, 0, wish, 0));
        assert_eq!(again, wish);
        // Taken: somewhere else.
        ok!(cuMemAddressReserve(&mut other, GRANULE, 0, wish, 0));
        assert_ne!(other, wish);
        ok!(cuMemAddressFree(again, GRANULE));
    }
    ok!(cuMemAddressReserve(&mut again, GRANULE, 0, wish, 0));
    let mut aligned = 0;
    ok!(cuMemAddressReserve(&mut aligned, GRANULE, 1 << 30, 0, 0));
    assert_eq!(aligned % (1 << 30), 0);
    // As much as a program that grows its buffers in place asks for: it costs nothing.
    let mut huge = 0;
    ok!(cuMemAddressReserve(&mut huge, 1 << 40, 0, 0, 0));
    for (size, alignment, flags) in [
        (0, 0, 0),
        (GRANULE + 1, 0, 0),
        (GRANULE, 3, 0),
        (GRANULE, 0, 1),
    ] {
        assert_eq!(
            cu!(cuMemAddressReserve(&mut other, size, alignment, 0, flags)),
            CUDA_ERROR_INVALID_VALUE
        );
    }
    assert_eq!(
        cu!(cuMemAddressFree(again, 2 * GRANULE)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuMemAddressFree(again, GRANULE));
    assert_eq!(
        cu!(cuMemAddressFree(again, GRANULE)),
        CUDA_ERROR_INVALID_VALUE
    );
}

#[test]
fn invalid_memory_and_mappings_are_refused() {
    // Another test could map memory that must be unmapped here.
    if !in_child("invalid_memory_and_mappings_are_refused") {
        return;
    }
    ok!(cuInit(0));
    let mut handle = 0;
    for size in [0, 1, GRANULE - 1, GRANULE + 4096] {
        assert_eq!(
            cu!(cuMemCreate(&mut handle, size, &properties(), 0)),
            CUDA_ERROR_INVALID_VALUE
        );
    }
    assert_eq!(
        cu!(cuMemCreate(&mut handle, 1 << 40, &properties(), 0)),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    assert_eq!(
        cu!(cuMemCreate(&mut handle, GRANULE, &properties(), 1)),
        CUDA_ERROR_INVALID_VALUE
    );
    let refused = |change: fn(&mut CUmemAllocationProp)| {
        let (mut prop, mut handle) = (properties(), 0);
        change(&mut prop);
        cu!(cuMemCreate(&mut handle, GRANULE, &prop, 0))
    };
    assert_eq!(refused(|p| p.type_ = 0), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(refused(|p| p.location.id = 1), CUDA_ERROR_INVALID_DEVICE);
    assert_eq!(
        refused(|p| p.location.type_ = CU_MEM_LOCATION_TYPE_HOST),
        CUDA_ERROR_NOT_SUPPORTED
    );
    assert_eq!(
        refused(|p| p.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC),
        CUDA_ERROR_NOT_SUPPORTED
    );

    let (address, handle) = (reserve(4 * GRANULE), create(2 * GRANULE));
    let map =
        |address, size, offset, handle, flags| cu!(cuMemMap(address, size, offset, handle, flags));
    // Memory is mapped as a whole.
    for (size, offset) in [(GRANULE, 0), (3 * GRANULE, 0), (GRANULE, GRANULE)] {
        assert_eq!(
            map(address, size, offset, handle, 0),
            CUDA_ERROR_NOT_SUPPORTED,
            "{size} {offset}"
        );
    }
    for (at, size, offset, handle, flags) in [
        (address + 4096, 2 * GRANULE, 0, handle, 0),
        (address + 3 * GRANULE as u64, 2 * GRANULE, 0, handle, 0),
        (alloc_outside(), 2 * GRANULE, 0, handle, 0),
        (address, 2 * GRANULE, 0, handle + 1, 0),
        (address, 2 * GRANULE, 0, handle, 1),
    ] {
        assert_eq!(
            map(at, size, offset, handle, flags),
            CUDA_ERROR_INVALID_VALUE,
            "{at:#x} {size} {offset}"
        );
    }
    assert_eq!(map(address, 2 * GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_eq!(
        map(address, 2 * GRANULE, 0, handle, 0),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        map(address + GRANULE as u64, 2 * GRANULE, 0, handle, 0),
        CUDA_ERROR_INVALID_VALUE
    );
    // Only whole mappings can be unmapped.
    assert_eq!(cu!(cuMemUnmap(address, GRANULE)), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        cu!(cuMemUnmap(address, 5 * GRANULE)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(allow(address, GRANULE, 3), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(allow(address, 4 * GRANULE, 3), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(allow(address, 2 * GRANULE, 2), CUDA_ERROR_INVALID_VALUE);
    assert_eq!(
        cu!(cuMemAddressFree(address, 4 * GRANULE)),
        CUDA_ERROR_INVALID_VALUE
    );
    // Including the range's hole, and where nothing is mapped any more.
    ok!(cuMemUnmap(address, 4 * GRANULE));
    ok!(cuMemUnmap(address, 2 * GRANULE));
    ok!(cuMemAddressFree(address, 4 * GRANULE));
    ok!(cuMemRelease(handle));
    assert_eq!(cu!(cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
}

// An address that can be the device's and is not reserved.
fn alloc_outside() -> CUdeviceptr {
    let address = reserve(GRANULE);
    ok!(cuMemAddressFree(address, GRANULE));
    address
}

#[test]
fn copies_and_kernels_need_access() {
    if !in_child("copies_and_kernels_need_access") {
        return;
    }
    context();
    let address = reserve(GRANULE);
    ok!(cuMemMap(address, GRANULE, 0, create(GRANULE), 0));
    assert_eq!(allowed(address), 0);
    let mut word = 0u32;
    let word = (&raw mut word).cast::<c_void>();
    assert_eq!(
        cu!(cuMemcpyDtoH_v2(word, address, 4)),
        CUDA_ERROR_INVALID_VALUE
    );
    assert_eq!(
        allow(address, GRANULE, CU_MEM_ACCESS_FLAGS_PROT_READ),
        CUDA_SUCCESS
    );
    assert_eq!(allowed(address + 1), 1);
    ok!(cuMemcpyDtoH_v2(word, address, 4));
    assert_eq!(
        cu!(cuMemcpyHtoD_v2(address, word, 4)),
        CUDA_ERROR_INVALID_VALUE
    );
    let plain = alloc(128);
    assert_eq!(next(plain, address, 32), CUDA_SUCCESS);
    assert_eq!(read(plain, 1), [1]);
    assert_eq!(next(address, plain, 32), CUDA_ERROR_ILLEGAL_ADDRESS);
    // As after every fault.
    assert_eq!(
        cu!(cuMemUnmap(address, GRANULE)),
        CUDA_ERROR_ILLEGAL_ADDRESS
    );
}

#[test]
fn unmapped_and_reserved_addresses_fault() {
    if !in_child("unmapped_and_reserved_addresses_fault") {
        return;
    }
    context();
    let (address, plain) = (reserve(GRANULE), alloc(128));
    map(address, GRANULE, create(GRANULE));
    assert_eq!(next(address, plain, 32), CUDA_SUCCESS);
    ok!(cuMemUnmap(address, GRANULE));
    assert_eq!(next(address, plain, 32), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn a_kernel_whose_memory_is_unmapped_under_it_faults() {
    if !in_child("a_kernel_whose_memory_is_unmapped_under_it_faults") {
        return;
    }
    context();
    let (address, handle) = (reserve(2 * GRANULE), create(GRANULE));
    map(address, GRANULE, handle);
    map(address + GRANULE as u64, GRANULE, handle);
    let enough = pinned(1);
    let (mut to, mut until) = (address, enough[0].as_ptr() as u64);
    let arguments = &mut [(&raw mut to).cast(), (&raw mut until).cast()];
    let f = function(module(PTX), c"scribble");
    assert_eq!(
        launch(f, 1, 1, stream(CU_STREAM_NON_BLOCKING), arguments),
        CUDA_SUCCESS
    );
    // It runs once its word is there, at the memory's other address.
    while read(address + GRANULE as u64, 1) != [5] {
        std::thread::yield_now();
    }
    // A thread without a context waits for none.
    let unmap = move || cu!(cuMemUnmap(address, GRANULE));
    let code = std::thread::spawn(unmap).join().unwrap();
    // The kernel's fault may come first.
    assert!([CUDA_SUCCESS, CUDA_ERROR_ILLEGAL_ADDRESS].contains(&code));
    assert_eq!(cu!(cuCtxSynchronize()), CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn memory_is_counted_and_lives_while_it_is_mapped() {
    if !in_child("memory_is_counted_and_lives_while_it_is_mapped") {
        return;
    }
    context();
    let before = free_bytes();
    let (address, handle) = (reserve(2 * GRANULE), create(GRANULE));
    assert_eq!(free_bytes(), before - GRANULE, "addresses are no memory");
    map(address, GRANULE, handle);
    ok!(cuMemRelease(handle));
    assert_eq!(
        cu!(cuMemMap(address + GRANULE as u64, GRANULE, 0, handle, 0)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuMemsetD32_v2(address, 7, 1));
    let mut again = 0;
    ok!(cuMemRetainAllocationHandle(
        &mut again,
        (address + 5) as *mut c_void
    ));
    assert_eq!(again, handle);
    // The same memory twice.
    map(address + GRANULE as u64, GRANULE, again);
    assert_eq!(read(address + GRANULE as u64, 1), [7]);
    ok!(cuMemRelease(again));
    assert_eq!(free_bytes(), before - GRANULE);
    ok!(cuMemUnmap(address, 2 * GRANULE));
    assert_eq!(free_bytes(), before);
    assert_eq!(cu!(cuMemRelease(handle)), CUDA_ERROR_INVALID_VALUE);
    // The next memory at this address is zeroed.
    map(address, GRANULE, create(GRANULE));
    assert_eq!(read(address, 1), [0]);
}

#[test]
fn copies_run_over_neighbouring_mappings() {
    context();
    let address = reserve(3 * GRANULE);
    for at in 0..3 {
        ok!(cuMemMap(
            address + (at * GRANULE) as u64,
            GRANULE,
            0,
            create(GRANULE),
            0
        ));
    }
    assert_eq!(allow(address, 3 * GRANULE, 3), CUDA_SUCCESS);
    let words = 3 * GRANULE / 4;
    let source: Vec<u32> = (0..words as u32).collect();
    ok!(cuMemcpyHtoD_v2(
        address,
        source.as_ptr().cast(),
        3 * GRANULE
    ));
    assert_eq!(read(address, words), source);
    let middle = address + GRANULE as u64;
    assert_eq!(next(middle - 64, middle - 64, 32), CUDA_SUCCESS);
    assert_eq!(read(middle, 1), [GRANULE as u32 / 4 + 1]);
    ok!(cuMemUnmap(middle, GRANULE));
    let mut word = 0u64;
    assert_eq!(
        cu!(cuMemcpyDtoH_v2((&raw mut word).cast(), middle - 4, 8)),
        CUDA_ERROR_INVALID_VALUE
    );
    ok!(cuMemsetD32_v2(address, 1, 4));
    ok!(cuMemUnmap(address, GRANULE));
    ok!(cuMemUnmap(address + 2 * GRANULE as u64, GRANULE));
    ok!(cuMemAddressFree(address, 3 * GRANULE));
}

#[test]
fn only_exported_memory_is_imported() {
    context();
    let mut handle = 0;
    let mut prop = properties();
    prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    ok!(cuMemCreate(&mut handle, GRANULE, &prop, 0));
    let mut fd: c_int = -1;
    assert_eq!(
        cu!(cuMemExportToShareableHandle(
            (&raw mut fd).cast(),
            handle,
            FD,
            0
        )),
        CUDA_ERROR_INVALID_VALUE
    );
    let file = OwnedFd::from(std::fs::File::open("/proc/self/exe").unwrap());
    assert_eq!(import(&file), Err(CUDA_ERROR_INVALID_VALUE));
    // One that its maker could still shorten.
    let name = c"no-device-memory";
    let plain = nix::sys::memfd::memfd_create(name, nix::sys::memfd::MFdFlags::empty()).unwrap();
    nix::unistd::ftruncate(&plain, GRANULE as i64).unwrap();
    assert_eq!(import(&plain), Err(CUDA_ERROR_INVALID_VALUE));

    // In the same process: the same memory under another handle.
    let handle = create(GRANULE);
    let other = import(&export(handle)).unwrap();
    let mut prop = properties();
    prop.requestedHandleTypes = 77;
    ok!(cuMemGetAllocationPropertiesFromHandle(&mut prop, other));
    assert_eq!(prop, properties());
    let address = reserve(2 * GRANULE);
    map(address, GRANULE, handle);
    map(address + GRANULE as u64, GRANULE, other);
    ok!(cuMemsetD32_v2(address, 3, 1));
    assert_eq!(read(address + GRANULE as u64, 1), [3]);
}

#[test]
fn another_process_imports_and_shares() {
    const SOCKET: &str = "SOFTWARE_GPU_TEST_SOCKET";
    let size = 2 * GRANULE;
    if std::env::var_os(SOCKET).is_some() {
        return import_from_parent(size);
    }
    context();
    let (address, handle) = (reserve(size), create(size));
    map(address, size, handle);
    ok!(cuMemsetD32_v2(address, 1, size / 4));
    ok!(cuCtxSynchronize());
    let (mut here, there) = UnixStream::pair().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "another_process_imports_and_shares",
            "--exact",
            "--nocapture",
        ])
        .env(SOCKET, "0")
        .stdin(OwnedFd::from(there))
        .spawn()
        .unwrap();
    let fd = export(handle);
    let fds = [fd.as_raw_fd()];
    let message = [ControlMessage::ScmRights(&fds)];
    let data = [IoSlice::new(b"m")];
    sendmsg::<()>(here.as_raw_fd(), &data, &message, MsgFlags::empty(), None).unwrap();
    drop(fd);
    // The child has read what was here and written.
    let mut answer = [0; 1];
    here.read_exact(&mut answer).unwrap();
    assert_eq!(read(address, 2), [2, 1]);
    assert_eq!(read(address + size as u64 - 4, 1), [9]);
    // It keeps the memory when this process releases it.
    ok!(cuMemsetD32_v2(address, 4, 1));
    ok!(cuMemUnmap(address, size));
    ok!(cuMemRelease(handle));
    here.write_all(b"g").unwrap();
    assert!(child.wait().unwrap().success());
}

fn import_from_parent(size: usize) {
    use std::os::fd::AsFd;
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let mut socket = UnixStream::from(stdin);
    context();
    let mut byte = [0; 1];
    let fd = {
        let mut space = nix::cmsg_space!(c_int);
        let mut data = [IoSliceMut::new(&mut byte)];
        let message = recvmsg::<()>(
            socket.as_raw_fd(),
            &mut data,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        )
        .unwrap();
        let Some(ControlMessageOwned::ScmRights(fds)) = message.cmsgs().unwrap().next() else {
            panic!("no descriptor");
        };
        // SAFETY: the message's only descriptor, new here.
        unsafe { OwnedFd::from_raw_fd(fds[0]) }
    };
    let before = free_bytes();
    let handle = import(&fd).unwrap();
    drop(fd);
    assert_eq!(free_bytes(), before, "the other process counts it");
    let address = reserve(size);
    map(address, size, handle);
    ok!(cuMemRelease(handle));
    assert!(read(address, size / 4).iter().all(|w| *w == 1));
    assert_eq!(next(address, address, 1), CUDA_SUCCESS);
    ok!(cuMemsetD32_v2(address + size as u64 - 4, 9, 1));
    ok!(cuCtxSynchronize());
    socket.write_all(b"d").unwrap();
    socket.read_exact(&mut byte).unwrap();
    assert_eq!(read(address, 2), [4, 1]);
}
