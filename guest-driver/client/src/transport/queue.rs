// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A split virtqueue in shared memory, from the driver's side (VIRTIO 1.3, section 2.7).
//!
//! Requests are stored in slots. A slot has four descriptors, and a buffer each for the readable and the writable part,
//! so a request needs no allocation. No ring features are negotiated.

use std::{
    os::fd::{AsRawFd as _, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering, fence},
    },
    time::{Duration, Instant},
};

use gpgpu_locks::{Condvar, Mutex};

use vmm_sys_util::eventfd::EventFd;

use super::{Failure, children::Identity, shared::Shared};

/// Descriptors of a slot: request, data in, answer, data out.
const PER_SLOT: u16 = 4;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
/// The time for which a caller polls for its answer before it sleeps.
const SPIN: Duration = Duration::from_micros(50);

/// The layout of a queue in the shared memory, as offsets.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// The descriptor table, which the rings follow.
    pub start: u64,
    /// The number of requests at a time.
    pub slots: u16,
    /// The slots' buffers.
    pub buffers: u64,
    /// The size of a slot's request buffer, and of its answer buffer.
    pub buffer_bytes: u64,
}

impl Geometry {
    /// The queue's size in descriptors.
    pub const fn size(&self) -> u16 {
        self.slots * PER_SLOT
    }

    /// The offset of the driver's ring.
    pub const fn available(&self) -> u64 {
        self.start + (self.size() as u64) * 16
    }

    /// The offset of the device's ring.
    pub const fn used(&self) -> u64 {
        (self.available() + 6 + (self.size() as u64) * 2).next_multiple_of(4096)
    }

    /// The offset after the rings.
    pub const fn rings_end(&self) -> u64 {
        (self.used() + 6 + (self.size() as u64) * 8).next_multiple_of(4096)
    }

    /// The offset after the buffers.
    pub const fn buffers_end(&self) -> u64 {
        self.buffers + self.slots as u64 * 2 * self.buffer_bytes
    }
}

/// A part of a chain, as offset and length in the shared memory.
pub type Part = (u64, usize);

struct Ring {
    available: u16,
    seen: u16,
    free: Vec<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    Waited,
    Posted,
    Done,
}

struct Slot {
    state: Mutex<State>,
    done: Condvar,
}

/// The queue.
pub struct Queue {
    shared: Arc<Shared>,
    geometry: Geometry,
    ring: Mutex<Ring>,
    freed: Condvar,
    slots: Vec<Slot>,
    kick: EventFd,
    /// The file of `kick`; `None` never occurs.
    kick_file: Option<Identity>,
    dead: AtomicBool,
}

/// One notification.
static ONE: u64 = 1;

/// A slot while its owner fills it.
pub struct Claimed<'a> {
    queue: &'a Queue,
    slot: u16,
}

impl Queue {
    /// The descriptor that notifies the device.
    pub fn kick(&self) -> RawFd {
        self.kick.as_raw_fd()
    }

    /// A queue that notifies the device of new requests by `kick`.
    pub fn new(shared: Arc<Shared>, geometry: Geometry, kick: EventFd) -> Self {
        let slots = (0..geometry.slots).map(|_| Slot {
            state: Mutex::new(State::Idle),
            done: Condvar::new(),
        });
        Self {
            shared,
            geometry,
            ring: Mutex::new(Ring {
                available: 0,
                seen: 0,
                free: (0..geometry.slots).rev().collect(),
            }),
            freed: Condvar::new(),
            slots: slots.collect(),
            kick_file: Identity::of(kick.as_raw_fd()),
            kick,
            dead: AtomicBool::new(false),
        }
    }

    /// Takes a free slot, and waits for one if necessary.
    pub fn claim(&self) -> Result<Claimed<'_>, Failure> {
        let mut ring = self.ring.lock();
        loop {
            if self.dead.load(Ordering::Acquire) {
                return Err(Failure::Os(libc::ENOTCONN));
            }
            if let Some(slot) = ring.free.pop() {
                return Ok(Claimed { queue: self, slot });
            }
            ring = self.freed.wait(ring);
        }
    }

    fn u16_at(&self, offset: u64) -> &AtomicU16 {
        // SAFETY: the offset is an aligned one in the mapped rings, which both sides access as atomics.
        unsafe { AtomicU16::from_ptr(self.shared.at(offset).cast()) }
    }

    fn u32_at(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.shared.at(offset).cast()) }
    }

    fn describe(&self, index: u16, part: Part, flags: u16) {
        let at = self.shared.at(self.geometry.start + u64::from(index) * 16);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&part.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&(part.1 as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&flags.to_le_bytes());
        bytes[14..].copy_from_slice(&(index + 1).to_le_bytes());
        // SAFETY: the descriptor is the slot's own, in the mapped table; the device reads it only
        // after the slot was made available.
        unsafe { at.cast::<[u8; 16]>().write_volatile(bytes) };
    }

    /// Makes a chain available and notifies the device, unless the device has disabled notifications.
    fn offer(&self, slot: u16) {
        let size = self.geometry.size();
        let mut ring = self.ring.lock();
        let position = u64::from(ring.available % size);
        self.u16_at(self.geometry.available() + 4 + position * 2)
            .store(slot * PER_SLOT, Ordering::Relaxed);
        ring.available = ring.available.wrapping_add(1);
        self.u16_at(self.geometry.available() + 2)
            .store(ring.available, Ordering::Release);
        drop(ring);
        // The index must be visible before the flag is read. Otherwise both sides could miss each other's update.
        fence(Ordering::SeqCst);
        if self.u16_at(self.geometry.used()).load(Ordering::Relaxed) & 1 == 0 {
            self.notify();
        }
    }

    /// Notifies the device. If the program has closed the descriptor, the queue ends: a number may be another file's.
    fn notify(&self) {
        let fd = self.kick.as_raw_fd();
        if Identity::of(fd) != self.kick_file {
            self.bury();
            return;
        }
        // If the counter is full, the device has enough notifications. The C library's function would be a point at
        // which the thread can be cancelled, and no call of CUDA is one.
        // SAFETY: the pointer is to eight bytes that live across the call.
        unsafe { libc::syscall(libc::SYS_write, fd, &raw const ONE, size_of_val(&ONE)) };
    }

    /// Takes all chains that the device has returned.
    pub fn reap(&self) {
        let size = self.geometry.size();
        let mut ring = self.ring.lock();
        while ring.seen
            != self
                .u16_at(self.geometry.used() + 2)
                .load(Ordering::Acquire)
        {
            let position = u64::from(ring.seen % size);
            let id = self
                .u32_at(self.geometry.used() + 4 + position * 8)
                .load(Ordering::Relaxed);
            ring.seen = ring.seen.wrapping_add(1);
            let Some(slot) = self.slots.get((id / u32::from(PER_SLOT)) as usize) else {
                continue;
            };
            let mut state = slot.state.lock();
            match *state {
                State::Waited => {
                    *state = State::Done;
                    slot.done.notify_all();
                }
                State::Posted => {
                    *state = State::Idle;
                    ring.free.push((id / u32::from(PER_SLOT)) as u16);
                    self.freed.notify_one();
                }
                // The device returned a chain that it did not have.
                State::Idle | State::Done => {}
            }
        }
    }

    /// Ends all waits, because the device process has ended.
    pub fn bury(&self) {
        self.dead.store(true, Ordering::Release);
        for slot in &self.slots {
            let _state = slot.state.lock();
            slot.done.notify_all();
        }
        let _ring = self.ring.lock();
        self.freed.notify_all();
    }

    fn await_done(&self, slot: &Slot) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < SPIN {
            self.reap();
            if *slot.state.lock() == State::Done {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let mut state = slot.state.lock();
        while *state != State::Done {
            if self.dead.load(Ordering::Acquire) {
                return Err(Failure::Os(libc::ENOTCONN));
            }
            state = slot.done.wait(state);
        }
        Ok(())
    }
}

impl Claimed<'_> {
    fn buffer(&self, index: u64) -> u64 {
        let geometry = &self.queue.geometry;
        geometry.buffers + (u64::from(self.slot) * 2 + index) * geometry.buffer_bytes
    }

    /// Writes the request, whose pieces are concatenated.
    ///
    /// # Errors
    ///
    /// `E2BIG` if it does not fit.
    pub fn write(&self, pieces: &[&[u8]]) -> Result<Part, Failure> {
        let start = self.buffer(0);
        let mut length = 0;
        for piece in pieces {
            if (length + piece.len()) as u64 > self.queue.geometry.buffer_bytes {
                return Err(Failure::Os(libc::E2BIG));
            }
            let to = self.queue.shared.at(start).wrapping_add(length);
            // SAFETY: the buffer is the slot's own and long enough; the device does not have it now.
            unsafe { to.copy_from_nonoverlapping(piece.as_ptr(), piece.len()) };
            length += piece.len();
        }
        Ok((start, length))
    }

    /// The place of an answer of `length` bytes.
    pub fn answer(&self, length: usize) -> Result<Part, Failure> {
        if length as u64 > self.queue.geometry.buffer_bytes {
            return Err(Failure::Os(libc::E2BIG));
        }
        Ok((self.buffer(1), length))
    }

    /// A copy of the answer's first bytes, after [`Claimed::send`].
    pub fn read(&self, from: usize, to: &mut [u8]) {
        let at = self.queue.shared.at(self.buffer(1)).wrapping_add(from);
        // SAFETY: the buffer is the slot's own and the device has returned it; callers ask for parts of it.
        unsafe { at.copy_to_nonoverlapping(to.as_mut_ptr(), to.len()) };
    }

    fn link(&self, readable: [Part; 2], writable: [Part; 2]) {
        let parts = [
            (readable[0], 0),
            (readable[1], 0),
            (writable[0], WRITE),
            (writable[1], WRITE),
        ];
        let used: Vec<_> = parts
            .into_iter()
            .filter(|((_, length), _)| *length > 0)
            .collect();
        for (i, (part, flags)) in used.iter().enumerate() {
            let next = if i + 1 < used.len() { NEXT } else { 0 };
            self.queue
                .describe(self.slot * PER_SLOT + i as u16, *part, flags | next);
        }
    }

    /// Sends the chain and waits until the device returns it.
    pub fn send(&self, readable: [Part; 2], writable: [Part; 2]) -> Result<(), Failure> {
        self.start(readable, writable);
        self.finish()
    }

    /// Sends the chain. [`Claimed::finish`] has to follow.
    pub fn start(&self, readable: [Part; 2], writable: [Part; 2]) {
        self.link(readable, writable);
        *self.queue.slots[usize::from(self.slot)].state.lock() = State::Waited;
        self.queue.offer(self.slot);
    }

    /// Waits until the device returns the chain that was sent.
    pub fn finish(&self) -> Result<(), Failure> {
        self.queue
            .await_done(&self.queue.slots[usize::from(self.slot)])
    }

    /// Sends the chain. The slot is free again when the device returns it.
    pub fn post(self, readable: [Part; 2], writable: [Part; 2]) {
        self.link(readable, writable);
        *self.queue.slots[usize::from(self.slot)].state.lock() = State::Posted;
        self.queue.offer(self.slot);
        std::mem::forget(self);
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.slots[usize::from(self.slot)].state.lock();
        // A chain that the device never returned keeps its slot, because the device might still write there.
        if matches!(*state, State::Idle | State::Done) {
            *state = State::Idle;
            drop(state);
            self.queue.ring.lock().free.push(self.slot);
            self.queue.freed.notify_one();
        }
    }
}
