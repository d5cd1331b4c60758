// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tests of the buffers.

use std::cell::{Cell, RefCell};

use gpgpu_protocol::cupti::{ExternalCorrelation, SUCCESS, kind};

use super::*;

thread_local! {
    /// The size and the maximum number of records of the buffers that the program gives.
    static GIVES: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    /// The requests so far.
    static REQUESTS: Cell<usize> = const { Cell::new(0) };
    /// The external ids of each completed buffer.
    static COMPLETED: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

unsafe extern "C" fn request(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    REQUESTS.set(REQUESTS.get() + 1);
    let (bytes, records) = GIVES.get();
    if bytes == 0 {
        return;
    }
    let memory = Box::leak(vec![0_u64; bytes.div_ceil(8)].into_boxed_slice());
    // SAFETY: the pointers are the library's, for these values.
    unsafe {
        *buffer = memory.as_mut_ptr().cast();
        *size = bytes;
        *most = records;
    }
}

unsafe extern "C" fn complete(_: *mut c_void, _: u32, buffer: *mut u8, size: usize, valid: usize) {
    assert!(valid <= size);
    let mut ids = Vec::new();
    let mut record = null_mut();
    let end = loop {
        // SAFETY: the buffer has so many bytes.
        let status = unsafe { cuptiActivityGetNextRecord(buffer, valid, &mut record) };
        if status != SUCCESS {
            break status;
        }
        // SAFETY: the tests have records of this type alone.
        ids.push(unsafe { record.cast::<ExternalCorrelation>().read() }.external);
    };
    assert_eq!(end, MAX_LIMIT_REACHED);
    COMPLETED.with_borrow_mut(|completed| completed.push(ids));
    // A flush in a callback does not wait for itself.
    BUFFERS.with(|buffers| buffers.deliver(&Queue::new(), When::Flush));
}

thread_local! {
    static BUFFERS: Buffers = const { Buffers::new() };
}

fn external(id: u64) -> ExternalCorrelation {
    ExternalCorrelation {
        kind: kind::EXTERNAL_CORRELATION,
        external_kind: 0,
        external: id,
        correlation: 0,
        reserved: 0,
    }
}

fn deliver(queue: &Queue, ids: std::ops::Range<u64>, when: When) -> Vec<Vec<u64>> {
    for id in ids {
        queue.add(|records| records.push(&external(id)));
    }
    BUFFERS.with(|buffers| {
        buffers.register(Some((request, complete)));
        buffers.deliver(queue, when);
    });
    COMPLETED.take()
}

#[test]
fn full_buffers_are_completed_and_a_flush_completes_the_rest() {
    // Two records of 24 bytes, and a rest that is too short for a third.
    GIVES.set((70, 0));
    let queue = Queue::new();
    assert_eq!(deliver(&queue, 0..5, When::Enough), [[0, 1], [2, 3]]);
    assert_eq!(REQUESTS.get(), 3);
    assert_eq!(deliver(&queue, 5..6, When::Flush), [[4, 5]]);
    assert!(deliver(&queue, 0..0, When::Flush).is_empty());
    assert_eq!(deliver(&queue, 6..7, When::Enough), [[0; 0]; 0]);
    assert_eq!(deliver(&queue, 0..0, When::End), [[6]]);
    assert_eq!(queue.take_dropped(), 0);
}

#[test]
fn a_buffer_has_at_most_as_many_records_as_the_program_says() {
    GIVES.set((1000, 2));
    let queue = Queue::new();
    let completed = deliver(&queue, 0..5, When::Flush);
    assert_eq!(completed, [vec![0, 1], vec![2, 3], vec![4]]);
}

#[test]
fn records_without_a_buffer_are_counted_once() {
    let queue = Queue::new();
    GIVES.set((0, 0));
    assert!(deliver(&queue, 0..3, When::Flush).is_empty());
    // The program declined: it is not asked for each record.
    assert_eq!(REQUESTS.get(), 1);
    assert_eq!(queue.take_dropped(), 3);
    assert_eq!(queue.take_dropped(), 0);
    // A buffer that is too small for any record.
    GIVES.set((16, 0));
    assert!(deliver(&queue, 0..2, When::Flush).is_empty());
    assert_eq!((REQUESTS.get(), queue.take_dropped()), (2, 2));
}

#[test]
fn walking_ends_at_what_is_no_record() {
    let next = |bytes: &mut [u8], place: Option<usize>| {
        let buffer = bytes.as_mut_ptr();
        let mut record = place.map_or(null_mut(), |place| buffer.wrapping_add(place));
        // SAFETY: the buffer has so many bytes.
        let status = unsafe { cuptiActivityGetNextRecord(buffer, bytes.len(), &mut record) };
        match status {
            SUCCESS => Ok(record as usize - buffer as usize),
            status => Err(status),
        }
    };
    let mut bytes = [0_u8; 60];
    (bytes[0], bytes[24]) = (kind::EXTERNAL_CORRELATION as u8, kind::DRIVER as u8);
    assert_eq!(next(&mut bytes, None), Ok(0));
    // The second record would be longer than the rest.
    assert_eq!(next(&mut bytes, Some(0)), Err(INVALID_KIND));
    assert_eq!(next(&mut bytes[..24], Some(0)), Err(MAX_LIMIT_REACHED));
    assert_eq!(next(&mut bytes[..26], Some(0)), Err(INVALID_KIND));
    assert_eq!(next(&mut bytes[..0], None), Err(MAX_LIMIT_REACHED));
    bytes[24] = kind::OVERHEAD as u8;
    assert_eq!(next(&mut bytes, Some(0)), Err(INVALID_KIND));
    assert_eq!(next(&mut bytes, Some(61)), Err(INVALID_PARAMETER));
    let mut record = null_mut();
    // SAFETY: NULL is refused.
    let status = unsafe { cuptiActivityGetNextRecord(null_mut(), 8, &mut record) };
    assert_eq!(status, INVALID_PARAMETER);
}
