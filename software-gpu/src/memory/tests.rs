// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Allocations of the software GPU's memory.

use super::*;

#[test]
fn accounting_returns_to_where_it_was_and_memory_is_scrubbed() {
    let memory = DeviceMemory::new(1 << 20, 1).unwrap();
    let a = memory.allocate(5000, Kind::Device, (1, 0)).unwrap();
    assert_eq!(a.start % ALLOCATION_ALIGNMENT, 0);
    let p = memory.host_pointer(a.start, 5000, true).unwrap();
    // SAFETY: the allocation has 5000 bytes.
    unsafe { p.write_bytes(7, 5000) };
    assert_eq!(memory.free_bytes(0), (1 << 20) - 5120);
    assert_eq!(
        memory.allocate(1 << 20, Kind::Device, (1, 0)).unwrap_err(),
        CUDA_ERROR_OUT_OF_MEMORY
    );
    memory.release(&memory.remove(a.start, |_| true).unwrap());
    assert_eq!(memory.free_bytes(0), 1 << 20);
    let b = memory.allocate(1 << 20, Kind::Device, (1, 0)).unwrap();
    let p = memory.host_pointer(b.start, 1 << 20, true).unwrap();
    // SAFETY: the allocation has a mebibyte.
    let bytes = unsafe { std::slice::from_raw_parts(p, 1 << 20) };
    assert!(bytes.iter().all(|b| *b == 0));
}

#[test]
fn ranges_that_leave_an_allocation_are_refused() {
    let memory = DeviceMemory::new(1 << 20, 1).unwrap();
    let a = memory.allocate(100, Kind::Device, (1, 0)).unwrap();
    assert!(memory.classify(a.start + 40, 60, true).is_ok());
    assert!(memory.classify(a.start + 40, 61, true).is_err());
    assert!(memory.classify(a.start + 100, 1, true).is_err());
    let pageable = [0u8; 16];
    let place = memory
        .classify(pageable.as_ptr() as u64, 16, false)
        .unwrap();
    assert!(matches!(place, Place::Pageable));
}

#[test]
fn registering_twice_or_nothing_is_refused() {
    let memory = DeviceMemory::new(1 << 20, 1).unwrap();
    let buffer = vec![0u8; 10_000];
    let start = buffer.as_ptr() as u64;
    memory.register(start, 10_000, 0, (1, 0)).unwrap();
    assert_eq!(
        memory.register(start + 5000, 10, 0, (1, 0)),
        Err(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
    );
    assert_eq!(
        memory.register(4096, 10, 0, (1, 0)),
        Err(CUDA_ERROR_INVALID_VALUE)
    );
    assert!(memory.remove(start, Allocation::is_host).is_some());
    memory.register(start, 10_000, 0, (1, 0)).unwrap();
}
