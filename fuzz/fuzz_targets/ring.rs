// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The worker's end of the ring, while the guest continues to write to it.
//!
//! The region lies between guard pages. An input contains the guest's writes before the worker reads, and the writes
//! that a thread of the guest repeats meanwhile.
#![no_main]

use std::{
    ptr::NonNull,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use gpgpu_protocol::ring::{
    Area, COMMAND_BYTES, COMMAND_OFFSET, Consumer, MAX_RECORD_BYTES, RING_BYTES,
};
use libfuzzer_sys::fuzz_target;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect};
use vhost_device_gpgpu::worker::read_again;
use virtio_gpgpu_fuzz::input::Input;
use zerocopy::IntoBytes;

const PAGE: usize = 4096;
/// The offset of the tail, where the driver appends.
const TAIL: usize = 128;
/// The most records that are read: the other thread could append forever.
const MOST: usize = 256;

#[derive(Clone, Copy)]
struct Region(NonNull<u8>);

// SAFETY: the mapping stays, and is accessed by atomics alone, as the ring itself does.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    fn get() -> Self {
        static REGION: OnceLock<Region> = OnceLock::new();
        *REGION.get_or_init(|| {
            let length = (RING_BYTES + 2 * PAGE).try_into().expect("not zero");
            let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
            // SAFETY: a new mapping; all of it but its first and last page is made accessible.
            unsafe {
                let base =
                    mmap_anonymous(None, length, ProtFlags::PROT_NONE, flags).expect("no memory");
                let inner = base.byte_add(PAGE);
                let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
                mprotect(inner, RING_BYTES, access).expect("no memory");
                Self(inner.cast())
            }
        })
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let offset = (offset % RING_BYTES) & !7;
        // SAFETY: inside the region, aligned, and there for ever.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input::new(bytes);
    let region = Region::get();
    // Both start here, so that wrapping around occurs too.
    let start = input.number().wrapping_mul(8);
    let tail = start.wrapping_add(input.number());
    let writes: Vec<(usize, u64)> = (0..input.u8() % 16)
        .map(|_| {
            let place = match input.u8() {
                // Nearby: the heads of the first records.
                near @ 0..=199 => {
                    COMMAND_OFFSET + start as usize % COMMAND_BYTES + usize::from(near) * 8
                }
                200..=227 => TAIL,
                _ => input.u32() as usize,
            };
            (place, input.number())
        })
        .collect();
    let content = input.rest();
    for (index, word) in content.chunks(8).enumerate() {
        let mut all = [0; 8];
        all[..word.len()].copy_from_slice(word);
        let place = COMMAND_OFFSET + (start as usize).wrapping_add(index * 8) % COMMAND_BYTES;
        region
            .word(place)
            .store(u64::from_le_bytes(all), Ordering::Relaxed);
    }
    region.word(TAIL).store(tail, Ordering::Release);

    // SAFETY: the region is mapped for ever, and aligned to a page.
    let area = unsafe { Area::new(region.0.as_ptr()) };
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        if !writes.is_empty() {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for &(place, value) in &writes {
                        let word = region.word(place);
                        let before = word.swap(value, Ordering::AcqRel);
                        std::hint::spin_loop();
                        word.store(before, Ordering::Release);
                    }
                }
            });
        }
        let mut consumer = Consumer::new(area, start);
        let mut commands = Vec::new();
        let mut head = consumer.head();
        for _ in 0..MOST {
            match consumer.next(&mut commands) {
                Ok(Some(record)) => {
                    assert!((16..=MAX_RECORD_BYTES).contains(&(record.bytes as usize)));
                    assert_eq!(commands.len() * 8 + 16, record.bytes as usize);
                    // Filler may have preceded it.
                    assert!(consumer.head().wrapping_sub(head) >= u64::from(record.bytes));
                    head = consumer.head();
                    let _ = read_again(commands.as_bytes(), false);
                }
                Ok(None) => {
                    if consumer.prepare_to_sleep() {
                        consumer.awake();
                    }
                    break;
                }
                Err(_) => break,
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    for index in 0..content.len().div_ceil(8) {
        let place = COMMAND_OFFSET + (start as usize).wrapping_add(index * 8) % COMMAND_BYTES;
        region.word(place).store(0, Ordering::Relaxed);
    }
    for (place, _) in writes {
        region.word(place).store(0, Ordering::Relaxed);
    }
});
