// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The ring: commands and answers through memory that a guest process shares with its worker
//! (`spec/virtio-gpgpu.md`, "The ring").
//!
//! One region of [`RING_BYTES`] bytes holds a header, the command area, the reply slots, the words of events and blocks
//! for data. In the header, the head at 0 and the sleeping flag at 64 are the device's, and the tail at 128 is the
//! driver's. The guest's library appends records and moves the tail; the worker copies records out and moves the head.
//! Neither enters the kernel while the other is awake. A side that is about to sleep sets a flag first and then checks
//! for records once more ([`Consumer::prepare_to_sleep`]). The other side checks the flag after every append
//! ([`Producer::must_wake`]). A relaxed ring has no barrier between the append and the check, so the driver may miss a
//! sleeping device; the device checks the tail once more a moment later ([`Consumer::sleep`]).
//!
//! The guest can write to the whole region at any time. So a record is copied out before it is checked, and the worker
//! keeps its own copy of everything that it wrote.

use std::{
    marker::PhantomData,
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
    time::{Duration, Instant},
};

use thiserror::Error;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The offset of the command area.
pub const COMMAND_OFFSET: usize = 4096;
/// Bytes of the command area: a power of two.
pub const COMMAND_BYTES: usize = 256 << 10;
/// The offset of the reply slots.
pub const SLOT_OFFSET: usize = COMMAND_OFFSET + COMMAND_BYTES;
/// The number of reply slots, and so of threads whose calls can be pending at once.
pub const SLOTS: usize = 64;
/// Bytes of a reply slot.
pub const SLOT_BYTES: usize = 4096;
/// The most streams that one request waits for by fences.
pub const SLOT_FENCES: usize = 16;
/// The offset of the fences' words in a slot.
pub const SLOT_FENCE_OFFSET: usize = 64;
/// The offset of a slot's answer in the slot.
const SLOT_ANSWER: usize = 128;
/// The most bytes of answer that a slot holds.
pub const SLOT_ANSWER_BYTES: usize = SLOT_BYTES - SLOT_ANSWER;
/// The offset of the events' words.
pub const WORD_OFFSET: usize = SLOT_OFFSET + SLOTS * SLOT_BYTES;
/// The number of events that can have a word.
pub const WORDS: usize = 4096;
/// The offset of the data blocks.
pub const BLOCK_OFFSET: usize = WORD_OFFSET + WORDS * 4;
/// Bytes of a data block.
pub const BLOCK_BYTES: usize = 128 << 10;
/// The number of data blocks.
pub const BLOCKS: usize = 16;
/// Bytes of the whole region.
pub const RING_BYTES: usize = BLOCK_OFFSET + BLOCKS * BLOCK_BYTES;
/// The most bytes of a record, its header included.
pub const MAX_RECORD_BYTES: usize = COMMAND_BYTES / 4;

const HEAD: usize = 0;
const SLEEPING: usize = 64;
const TAIL: usize = 128;

/// The least time after which the device of a relaxed ring checks the tail once more, from the moment when it set the
/// sleeping flag. A store by the driver is visible long before that.
pub const LOOKS_AGAIN_AFTER: Duration = Duration::from_millis(1);

/// [`Record::slot`] of a post.
pub const NO_SLOT: u32 = u32::MAX;
/// [`Record::slot`] of filler up to the end of the command area.
const FILLER: u32 = u32::MAX - 1;

/// The fences word of an answer: the worker did nothing, and the driver must send the command by the command queue.
pub const ELSEWHERE: u32 = u32::MAX;
/// The fences word of an answer: it is too long for the slot, and `gpgpuRingAnswer` fetches it.
pub const KEPT: u32 = u32::MAX - 1;

const _: () = {
    assert!(COMMAND_BYTES.is_power_of_two());
    assert!(BLOCK_OFFSET.is_multiple_of(4096) && RING_BYTES.is_multiple_of(4096));
    assert!(SLOT_FENCE_OFFSET + SLOT_FENCES * 4 <= SLOT_ANSWER);
    // The specification's values.
    assert!(SLOT_OFFSET == 266_240 && WORD_OFFSET == 528_384 && BLOCK_OFFSET == 544_768);
};

/// The head of a record; commands follow, encoded as on the command queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Record {
    /// Bytes of the record with this head: a multiple of 8.
    pub bytes: u32,
    /// The slot for the answer, or [`NO_SLOT`].
    pub slot: u32,
    /// The sequence number, not 0: the slot's words have this value when they belong to this request.
    pub sequence: u32,
    /// The guest thread, as in a command's header.
    pub thread: u32,
}

const RECORD_HEAD: usize = size_of::<Record>();

/// An error in a record.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The tail is unaligned, or further ahead than the area is long.
    #[error("Invalid tail of the ring")]
    Tail,
    /// A record has no length, or reaches past the appended bytes.
    #[error("Invalid length of a record of the ring")]
    Length,
}

/// The shared region, as either side maps it.
#[derive(Debug, Clone, Copy)]
pub struct Area<'a> {
    base: *mut u8,
    memory: PhantomData<&'a [AtomicU64]>,
}

// SAFETY: everything shared is accessed by atomics or volatile accesses, or lies in parts that belong to one user at a
// time.
unsafe impl Send for Area<'_> {}
// SAFETY: as above.
unsafe impl Sync for Area<'_> {}

impl<'a> Area<'a> {
    /// The region at an address.
    ///
    /// # Safety
    ///
    /// [`RING_BYTES`] bytes are mapped there, readable and writable, aligned to a page, and stay so for `'a`.
    pub unsafe fn new(base: *mut u8) -> Self {
        Self {
            base,
            memory: PhantomData,
        }
    }

    /// The address of an offset.
    pub fn at(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset < RING_BYTES);
        self.base.wrapping_add(offset)
    }

    fn u32_at(&self, offset: usize) -> &'a AtomicU32 {
        debug_assert!(offset.is_multiple_of(4) && offset < RING_BYTES);
        // SAFETY: inside the region, aligned; both processes access it as an atomic.
        unsafe { AtomicU32::from_ptr(self.at(offset).cast()) }
    }

    fn u64_at(&self, offset: usize) -> &'a AtomicU64 {
        debug_assert!(offset.is_multiple_of(8) && offset < RING_BYTES);
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
    }

    /// The word of an event.
    pub fn word(&self, index: usize) -> &'a AtomicU32 {
        self.u32_at(WORD_OFFSET + index % WORDS * 4)
    }

    /// A reply slot.
    pub fn slot(&self, index: usize) -> Slot<'a> {
        Slot {
            area: *self,
            offset: SLOT_OFFSET + index % SLOTS * SLOT_BYTES,
        }
    }

    /// The word that is 1 while the device sleeps.
    pub fn sleeping(&self) -> &'a AtomicU32 {
        self.u32_at(SLEEPING)
    }

    /// The driver's position: the number of bytes appended since the ring was made.
    pub fn tail(&self) -> u64 {
        self.u64_at(TAIL).load(Ordering::Acquire)
    }
}

/// A reply slot.
///
/// A reply slot: at 0 the state, at 4 the number of fences, at 8 the answer's bytes, at 64 the fences' words, at 128
/// the answer.
#[derive(Debug, Clone, Copy)]
pub struct Slot<'a> {
    area: Area<'a>,
    offset: usize,
}

impl<'a> Slot<'a> {
    /// Driver: prepares the slot for its next request.
    pub fn clear(&self) {
        self.area.u32_at(self.offset).store(0, Ordering::Relaxed);
        for index in 0..SLOT_FENCES {
            self.fence(index).store(0, Ordering::Relaxed);
        }
    }

    /// Device: stores an answer; the GPU will write `sequence` to the first `fences` words.
    ///
    /// # Panics
    ///
    /// If head and reply together are longer than [`SLOT_ANSWER_BYTES`].
    pub fn answer(&self, sequence: u32, fences: u32, head: &[u8], reply: &[u8]) {
        let length = head.len() + reply.len();
        assert!(length <= SLOT_ANSWER_BYTES);
        let to = self.area.at(self.offset + SLOT_ANSWER);
        // SAFETY: the slot has room for so much. The guest reads it only after the state allows it; an earlier read
        // harms the guest alone.
        unsafe {
            to.copy_from_nonoverlapping(head.as_ptr(), head.len());
            to.wrapping_add(head.len())
                .copy_from_nonoverlapping(reply.as_ptr(), reply.len());
        }
        self.area
            .u32_at(self.offset + 8)
            .store(length as u32, Ordering::Relaxed);
        self.area
            .u32_at(self.offset + 4)
            .store(fences, Ordering::Relaxed);
        self.area
            .u32_at(self.offset)
            .store(sequence, Ordering::Release);
    }

    /// Driver: the number of the request's fences, once its answer is there.
    pub fn answered(&self, sequence: u32) -> Option<u32> {
        (self.area.u32_at(self.offset).load(Ordering::Acquire) == sequence)
            .then(|| self.area.u32_at(self.offset + 4).load(Ordering::Relaxed))
    }

    /// The word of a fence.
    pub fn fence(&self, index: usize) -> &'a AtomicU32 {
        let within = SLOT_FENCE_OFFSET + index % SLOT_FENCES * 4;
        self.area.u32_at(self.offset + within)
    }

    /// Driver: takes the answer, once it is there.
    pub fn take(&self, answer: &mut Vec<u8>) {
        let length = self.area.u32_at(self.offset + 8).load(Ordering::Relaxed) as usize;
        let from = self.area.at(self.offset + SLOT_ANSWER);
        // SAFETY: inside the slot, which the device has finished with.
        let bytes = unsafe { std::slice::from_raw_parts(from, length.min(SLOT_ANSWER_BYTES)) };
        answer.clear();
        answer.extend_from_slice(bytes);
    }
}

/// The driver's end of the command area.
#[derive(Debug)]
pub struct Producer<'a> {
    area: Area<'a>,
    tail: u64,
    head: u64,
    is_relaxed: bool,
}

impl<'a> Producer<'a> {
    /// The driver's end; `start` is where head and tail begin, a multiple of 8 on which both sides agree.
    pub fn new(area: Area<'a>, start: u64) -> Self {
        area.u64_at(HEAD).store(start, Ordering::Relaxed);
        area.u32_at(SLEEPING).store(0, Ordering::Relaxed);
        area.u64_at(TAIL).store(start, Ordering::Release);
        Self {
            area,
            tail: start,
            head: start,
            is_relaxed: false,
        }
    }

    /// Drops the barrier between moving the tail and checking for a sleeping device. The device must check the tail
    /// once more after [`LOOKS_AGAIN_AFTER`] (`gpgpuRingRelaxed`).
    pub fn relax(&mut self) {
        self.is_relaxed = true;
    }

    /// The position behind the last appended record.
    pub fn tail(&self) -> u64 {
        self.tail
    }

    /// Appends a record made of `commands`; `false` if there is no room now.
    ///
    /// # Panics
    ///
    /// If the record would be longer than [`MAX_RECORD_BYTES`], or `commands` is no multiple of 8.
    pub fn append(&mut self, slot: u32, sequence: u32, thread: u32, commands: &[u8]) -> bool {
        let bytes = RECORD_HEAD + commands.len();
        assert!(bytes <= MAX_RECORD_BYTES && bytes.is_multiple_of(8));
        let place = self.tail as usize % COMMAND_BYTES;
        let left = COMMAND_BYTES - place;
        let filler = if left < bytes { left } else { 0 };
        if !self.has_room(filler + bytes) {
            return false;
        }
        if filler > 0 {
            // The area's size and every record's are multiples of 8, so at least 8 bytes are left: length and slot.
            self.area
                .u32_at(COMMAND_OFFSET + place)
                .store(filler as u32, Ordering::Relaxed);
            self.area
                .u32_at(COMMAND_OFFSET + place + 4)
                .store(FILLER, Ordering::Relaxed);
            self.tail = self.tail.wrapping_add(filler as u64);
        }
        let to = self
            .area
            .at(COMMAND_OFFSET + self.tail as usize % COMMAND_BYTES);
        let head = Record {
            bytes: bytes as u32,
            slot,
            sequence,
            thread,
        };
        // SAFETY: `bytes` bytes from here to the area's end are free: the device is done with them.
        unsafe {
            to.copy_from_nonoverlapping(head.as_bytes().as_ptr(), RECORD_HEAD);
            to.wrapping_add(RECORD_HEAD)
                .copy_from_nonoverlapping(commands.as_ptr(), commands.len());
        }
        self.tail = self.tail.wrapping_add(bytes as u64);
        let tail = self.area.u64_at(TAIL);
        if self.is_relaxed {
            // The device often takes the cache line away when it reads the tail, and a barrier would wait until the
            // line is back.
            tail.store(self.tail, Ordering::Release);
        } else {
            // The new tail must be visible before the device's flag is read ([`Producer::must_wake`]); an exchange
            // costs less than a store and a fence.
            tail.swap(self.tail, Ordering::SeqCst);
        }
        true
    }

    fn has_room(&mut self, bytes: usize) -> bool {
        let free = |head: u64, tail: u64| COMMAND_BYTES - tail.wrapping_sub(head) as usize;
        if free(self.head, self.tail) >= bytes {
            return true;
        }
        let head = self.area.u64_at(HEAD).load(Ordering::Acquire);
        // Only the device moves the head, and only as far as the tail.
        if self.tail.wrapping_sub(head) as usize <= COMMAND_BYTES {
            self.head = head;
        }
        free(self.head, self.tail) >= bytes
    }

    /// Whether the device sleeps and needs a wake-up for the last append. It returns `true` once for each time the
    /// device goes to sleep, so that caller must wake the device.
    pub fn must_wake(&self) -> bool {
        let sleeping = self.area.u32_at(SLEEPING);
        sleeping.load(Ordering::SeqCst) != 0 && sleeping.swap(0, Ordering::AcqRel) != 0
    }
}

/// The device's end of the command area.
#[derive(Debug)]
pub struct Consumer<'a> {
    area: Area<'a>,
    head: u64,
    /// The tail as last read: the driver owns its cache line, and every read of it costs both sides.
    tail: u64,
    /// The head as last published to the driver; this happens seldom, because both sides use its cache line.
    told: u64,
}

impl<'a> Consumer<'a> {
    /// The device's end; `start` as for [`Producer::new`].
    pub fn new(area: Area<'a>, start: u64) -> Self {
        Self {
            area,
            head: start,
            tail: start,
            told: start,
        }
    }

    /// The position behind the last record that was read.
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The bytes of records that are known to follow the head; there may be more by now.
    pub fn backlog(&self) -> u64 {
        self.tail.wrapping_sub(self.head)
    }

    /// Whether something was appended.
    pub fn has_more(&self) -> bool {
        self.area.tail() != self.head
    }

    /// Copies the next record's commands into `commands`, which is cleared first; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The guest wrote an invalid ring; the client cannot continue.
    pub fn next(&mut self, commands: &mut Vec<u64>) -> Result<Option<Record>, Broken> {
        loop {
            if self.tail == self.head {
                self.tell();
                self.tail = self.area.tail();
            }
            let there = self.tail.wrapping_sub(self.head);
            if there == 0 {
                return Ok(None);
            }
            if there > COMMAND_BYTES as u64 || !there.is_multiple_of(8) {
                return Err(Broken::Tail);
            }
            let place = self.head as usize % COMMAND_BYTES;
            let left = (COMMAND_BYTES - place).min(there as usize);
            let word = |index: usize| {
                let from = self
                    .area
                    .at(COMMAND_OFFSET + place + index * 8)
                    .cast::<u64>();
                // SAFETY: aligned and, as `index * 8 < left` wherever this is called, inside the area.
                unsafe { from.read_volatile() }
            };
            // Every word is read once; later changes by the guest have no effect.
            let first = word(0);
            let (bytes, slot) = (first as u32 as usize, (first >> 32) as u32);
            if bytes < 8 || bytes > left || !bytes.is_multiple_of(8) {
                return Err(Broken::Length);
            }
            if slot == FILLER {
                self.advance(bytes);
                continue;
            }
            if !(RECORD_HEAD..=MAX_RECORD_BYTES).contains(&bytes) {
                return Err(Broken::Length);
            }
            let second = word(1);
            commands.clear();
            commands.extend((2..bytes / 8).map(word));
            self.advance(bytes);
            if self.tail != self.head {
                self.prefetch();
            }
            return Ok(Some(Record {
                bytes: bytes as u32,
                slot,
                sequence: second as u32,
                thread: (second >> 32) as u32,
            }));
        }
    }

    /// Prefetches the next record while this one is executed.
    fn prefetch(&self) {
        #[cfg(target_arch = "x86_64")]
        for line in 0..4 {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let place = (self.head as usize).wrapping_add(line * 64) % COMMAND_BYTES;
            // SAFETY: a hint about an address inside the area.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(self.area.at(COMMAND_OFFSET + place).cast()) };
        }
    }

    fn advance(&mut self, bytes: usize) {
        self.head = self.head.wrapping_add(bytes as u64);
        if self.head.wrapping_sub(self.told) >= COMMAND_BYTES as u64 / 8 {
            self.tell();
        }
    }

    fn tell(&mut self) {
        if self.told != self.head {
            self.told = self.head;
            self.area.u64_at(HEAD).store(self.head, Ordering::Release);
        }
    }

    /// Announces that the device is about to sleep. Returns `false` if something was appended meanwhile, and the device
    /// must not sleep.
    pub fn prepare_to_sleep(&self) -> bool {
        let sleeping = self.area.u32_at(SLEEPING);
        sleeping.store(1, Ordering::Relaxed);
        // The flag must be visible before the tail is read, or both sides could miss each other.
        fence(Ordering::SeqCst);
        if self.has_more() {
            sleeping.store(0, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Sleeps, after [`Consumer::prepare_to_sleep`]: `wait` waits while the word is 1, at most for the time that it is
    /// given. May return before anything was appended.
    pub fn sleep(&self, is_relaxed: bool, wait: impl Fn(&AtomicU32, Option<Duration>)) {
        let sleeping = self.area.u32_at(SLEEPING);
        if is_relaxed {
            // The driver may have checked for a sleeping device before the device set its flag, while its new tail
            // becomes visible only now.
            let begin = Instant::now();
            let mut left = LOOKS_AGAIN_AFTER;
            // A signal ends a wait early.
            while !left.is_zero() && sleeping.load(Ordering::Relaxed) == 1 {
                wait(sleeping, Some(left));
                left = LOOKS_AGAIN_AFTER.saturating_sub(begin.elapsed());
            }
            if self.has_more() {
                return;
            }
        }
        wait(sleeping, None);
    }

    /// Announces that the device is awake.
    pub fn awake(&self) {
        self.area.u32_at(SLEEPING).store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
