// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VMM and the guest driver in it: a vhost-user front end with its own memory and virtqueues.

use std::{collections::HashMap, os::fd::AsRawFd, path::Path, sync::atomic::Ordering};

use gpgpu_protocol::layout::{COMMAND_QUEUE, CommandHeader, ControlAnswer};
use nix::{
    fcntl::{FallocateFlags, fallocate},
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{
        Frontend, VhostUserFrontend,
        message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserProtocolFeatures},
    },
};
use virtio_bindings::virtio_ring::{
    VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE,
};
use vm_memory::{Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};
use vmm_sys_util::eventfd::EventFd;
use zerocopy::{FromBytes, Immutable, IntoBytes};

mod front_end;
mod requests;
mod vmm;

pub use vmm::Vmm;

/// The distance between the rings in the first region. The buffers follow them.
const RING_BYTES: u64 = 0x1_0000;
const HEAP: u64 = 3 * RING_BYTES;
/// A watchdog for events that never come, not a measurement.
const WATCHDOG_MS: i32 = 60_000;

/// Addresses and lengths.
type Parts = Vec<(u64, u32)>;

struct Ring {
    base: u64,
    size: u16,
    avail: u16,
    used: u16,
    free: Vec<u16>,
    /// The descriptors of each pending chain, and its writable part.
    under_way: HashMap<u16, (Vec<u16>, Parts)>,
    /// Completed chains that were not taken yet: their writable part and used length.
    done: HashMap<u16, Used>,
    /// The same, oldest first.
    order: Vec<u16>,
    kick: EventFd,
    call: EventFd,
}

/// A chain that the device has returned.
#[derive(Debug, Clone)]
pub struct Used {
    /// The length that the device has reported.
    pub len: u32,
    /// The whole writable part.
    pub bytes: Vec<u8>,
}

impl Used {
    /// The structure at the start of the writable part.
    pub fn head<T: FromBytes>(&self) -> T {
        T::read_from_prefix(&self.bytes)
            .expect("no room for an answer")
            .0
    }

    /// The status of a command or a control request.
    pub fn status(&self) -> u32 {
        self.head::<ControlAnswer>().status.get()
    }
}

/// See the module's documentation.
pub struct Guest {
    pub frontend: Frontend,
    pub memory: GuestMemoryMmap,
    vmm: Vmm,
    rings: Vec<Ring>,
    next_buffer: u64,
    /// Whether chains go through indirect tables.
    pub indirect: bool,
}

impl Guest {
    /// Connects, and initialises the device until its driver is ready.
    pub fn boot(socket: &Path, vmm: Vmm) -> Self {
        let memory = vmm.memory();
        let mut frontend = Frontend::connect(socket, 3).unwrap();
        frontend.set_owner().unwrap();
        let offered = frontend.get_features().unwrap();
        for bit in [28, 29, 30, 32] {
            assert_ne!(offered & 1 << bit, 0, "feature {bit} is not offered");
        }
        let protocol = frontend.get_protocol_features().unwrap();
        assert!(protocol.contains(vmm.protocol), "{protocol:?}");
        assert!(!protocol.contains(VhostUserProtocolFeatures::INFLIGHT_SHMFD));
        frontend.set_protocol_features(vmm.protocol).unwrap();
        frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        assert_eq!(frontend.get_queue_num().unwrap(), 3);
        let ring = |index: u64| Ring {
            base: index * RING_BYTES,
            size: vmm.queue_size,
            avail: 0,
            used: 0,
            free: (0..vmm.queue_size).rev().collect(),
            under_way: HashMap::new(),
            done: HashMap::new(),
            order: Vec::new(),
            kick: EventFd::new(0).unwrap(),
            call: EventFd::new(0).unwrap(),
        };
        let mut guest = Self {
            frontend,
            memory,
            rings: (0..3).map(ring).collect(),
            vmm,
            next_buffer: HEAP,
            indirect: false,
        };
        guest.set_features();
        guest.set_memory();
        for queue in 0..3 {
            guest.start_ring(queue, 0);
        }
        guest
    }

    fn set_features(&mut self) {
        let mut features = 1 << 32 | 1 << 30 | 1 << 28;
        if self.vmm.event_idx {
            features |= 1 << VIRTIO_RING_F_EVENT_IDX;
        }
        self.frontend.set_features(features).unwrap();
    }

    fn set_memory(&mut self) {
        let infos = self.memory_infos();
        if self.vmm.mem_slots {
            assert!(self.frontend.get_max_mem_slots().unwrap() >= infos.len() as u64);
            for info in &infos {
                self.frontend.add_mem_region(info).unwrap();
            }
        } else {
            self.frontend.set_mem_table(&infos).unwrap();
        }
    }

    fn memory_infos(&self) -> Vec<VhostUserMemoryRegionInfo> {
        let regions = self.memory.iter();
        regions
            .map(|region| VhostUserMemoryRegionInfo::from_guest_region(region).unwrap())
            .collect()
    }

    fn ring_config(&self, queue: usize) -> VringConfigData {
        let ring = &self.rings[queue];
        VringConfigData {
            queue_max_size: 1024,
            queue_size: ring.size,
            flags: 0,
            desc_table_addr: self.host_address(ring.base),
            avail_ring_addr: self.host_address(ring.base + 0x5000),
            used_ring_addr: self.host_address(ring.base + 0x8000),
            log_addr: None,
        }
    }

    fn host_address(&self, address: u64) -> u64 {
        self.memory.get_host_address(GuestAddress(address)).unwrap() as u64
    }

    /// Starts a ring at an index of the available ring.
    pub fn start_ring(&mut self, queue: usize, base: u16) {
        self.set_call(queue);
        self.start_silent_ring(queue, base);
    }

    /// Stops a ring; returns the index at which to continue.
    pub fn stop_ring(&mut self, queue: usize) -> u16 {
        self.frontend.get_vring_base(queue).unwrap() as u16
    }

    /// Restarts the guest's driver: its rings are empty, and its chains are forgotten.
    pub fn reset_driver(&mut self) {
        self.clear_driver();
        for queue in 0..3 {
            self.start_ring(queue, 0);
        }
    }

    /// The same, without starting a ring.
    pub fn clear_driver(&mut self) {
        self.set_features();
        for queue in 0..3 {
            let size = self.vmm.queue_size;
            let ring = &mut self.rings[queue];
            ring.avail = 0;
            ring.used = 0;
            ring.free = (0..size).rev().collect();
            ring.under_way.clear();
            ring.done.clear();
            ring.order.clear();
            let base = ring.base;
            let zeros = vec![0; RING_BYTES as usize];
            self.memory.write_slice(&zeros, GuestAddress(base)).unwrap();
        }
    }

    /// A piece of the configuration space.
    pub fn config(&mut self, offset: u32, size: u32) -> Vec<u8> {
        let buffer = vec![0xff; size as usize];
        let flags = VhostUserConfigFlags::empty();
        let (head, bytes) = self
            .frontend
            .get_config(offset, size, flags, &buffer)
            .unwrap();
        assert_eq!({ head.size }, size, "a VMM ends its VM over this");
        bytes
    }

    /// Writes to a buffer.
    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(at)).unwrap();
    }

    /// Returns pages of the first region to the host, as a balloon does. The next access gets new pages.
    pub fn give_back_pages(&self, at: u64, bytes: usize) {
        let region = self.memory.iter().next().unwrap();
        let place = region.file_offset().unwrap();
        let start = place.start() + (at - region.start_addr().0);
        let how = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        fallocate(place.file(), how, start as i64, bytes as i64).unwrap();
    }

    /// Sends a command whose data is in these buffers; the device either reads or writes them.
    pub fn post_buffers(
        &mut self,
        client: u32,
        stream: &[u8],
        answer: u32,
        buffers: &[(u64, u32)],
        to_guest: bool,
    ) -> u16 {
        let bytes = buffers.iter().map(|&(_, len)| u64::from(len)).sum();
        let (input, out) = if to_guest { (0, bytes) } else { (bytes, 0) };
        let header = Self::header(client, stream.len(), answer, input, out);
        let at = self.alloc(size_of::<CommandHeader>() + stream.len());
        self.write_object(&header, at);
        self.write(at + size_of::<CommandHeader>() as u64, stream);
        let mut readable = vec![(at, (size_of::<CommandHeader>() + stream.len()) as u32)];
        let mut writable = vec![(self.alloc(8 + answer as usize), 8 + answer)];
        if to_guest {
            &mut writable
        } else {
            &mut readable
        }
        .extend_from_slice(buffers);
        let head = self.push_parts(COMMAND_QUEUE, &readable, &writable);
        self.kick(COMMAND_QUEUE);
        head
    }

    /// Frees all buffers from an address on.
    pub fn forget_buffers(&mut self, from: u64) {
        self.next_buffer = from;
    }

    /// Allocates a buffer, which begins at a page.
    pub fn alloc(&mut self, bytes: usize) -> u64 {
        let at = self.next_buffer;
        self.next_buffer += (bytes as u64).next_multiple_of(4096).max(4096);
        let first = self.memory.iter().next().unwrap();
        assert!(
            self.next_buffer <= first.len(),
            "the test needs more guest memory"
        );
        at
    }

    fn write_object<T: IntoBytes + Immutable>(&self, value: &T, at: u64) {
        self.memory
            .write_slice(value.as_bytes(), GuestAddress(at))
            .unwrap();
    }

    fn write_descriptor(&self, at: u64, address: u64, len: u32, flags: u32, next: u16) {
        self.memory
            .write_obj(address.to_le(), GuestAddress(at))
            .unwrap();
        self.memory
            .write_obj(len.to_le(), GuestAddress(at + 8))
            .unwrap();
        self.memory
            .write_obj((flags as u16).to_le(), GuestAddress(at + 12))
            .unwrap();
        self.memory
            .write_obj(next.to_le(), GuestAddress(at + 14))
            .unwrap();
    }

    /// Makes a chain of these parts available; returns its head.
    pub fn push_parts(
        &mut self,
        queue: usize,
        readable: &[(u64, u32)],
        writable: &[(u64, u32)],
    ) -> u16 {
        let parts: Vec<(u64, u32, u32)> = readable
            .iter()
            .map(|&(at, len)| (at, len, 0))
            .chain(
                writable
                    .iter()
                    .map(|&(at, len)| (at, len, VRING_DESC_F_WRITE)),
            )
            .collect();
        self.push_raw(queue, &parts, writable.to_vec())
    }

    /// Makes a chain of these descriptors available, whatever their flags.
    pub fn push_raw(&mut self, queue: usize, parts: &[(u64, u32, u32)], writable: Parts) -> u16 {
        let table = self.rings[queue].base;
        let in_table = if self.indirect { 1 } else { parts.len() };
        let free = &mut self.rings[queue].free;
        let descriptors: Vec<u16> = (0..in_table).map(|_| free.pop().unwrap()).collect();
        let flags = |index: usize, flags: u32| match index + 1 == parts.len() {
            true => flags,
            false => flags | VRING_DESC_F_NEXT,
        };
        if self.indirect {
            let indirect = self.alloc(parts.len() * 16);
            for (index, &(at, len, own)) in parts.iter().enumerate() {
                let to = indirect + index as u64 * 16;
                self.write_descriptor(to, at, len, flags(index, own), index as u16 + 1);
            }
            let to = table + u64::from(descriptors[0]) * 16;
            let len = parts.len() as u32 * 16;
            self.write_descriptor(to, indirect, len, VRING_DESC_F_INDIRECT, 0);
        } else {
            for (index, &(at, len, own)) in parts.iter().enumerate() {
                let next = descriptors.get(index + 1).copied().unwrap_or(0);
                let to = table + u64::from(descriptors[index]) * 16;
                self.write_descriptor(to, at, len, flags(index, own), next);
            }
        }
        let head = descriptors[0];
        let ring = &mut self.rings[queue];
        // A chain without a waiter must not be mistaken for this one.
        ring.done.remove(&head);
        ring.under_way.insert(head, (descriptors, writable));
        self.make_available(queue, head);
        head
    }

    /// Makes a head available, possibly again.
    pub fn make_available(&mut self, queue: usize, head: u16) {
        let ring = &mut self.rings[queue];
        let slot = u64::from(ring.avail % ring.size);
        let avail = ring.base + 0x5000;
        self.memory
            .write_obj(head.to_le(), GuestAddress(avail + 4 + slot * 2))
            .unwrap();
        ring.avail = ring.avail.wrapping_add(1);
        let index = ring.avail.to_le();
        self.memory
            .store(index, GuestAddress(avail + 2), Ordering::SeqCst)
            .unwrap();
    }

    /// Sets the index of the available ring to an invalid value.
    pub fn break_available(&mut self, queue: usize, index: u16) {
        let avail = self.rings[queue].base + 0x5000;
        self.memory
            .store(index.to_le(), GuestAddress(avail + 2), Ordering::SeqCst)
            .unwrap();
    }

    /// Kicks unconditionally: unnecessary kicks are allowed.
    pub fn kick(&self, queue: usize) {
        self.rings[queue].kick.write(1).unwrap();
    }

    /// Kicks only if the device has asked for it, as Linux does with `EVENT_IDX`.
    pub fn kick_if_wanted(&self, queue: usize, before: u16) -> bool {
        let ring = &self.rings[queue];
        let event = GuestAddress(ring.base + 0x8000 + 4 + u64::from(ring.size) * 8);
        std::sync::atomic::fence(Ordering::SeqCst);
        let event = u16::from_le(self.memory.load(event, Ordering::SeqCst).unwrap());
        let wanted =
            ring.avail.wrapping_sub(event).wrapping_sub(1) < ring.avail.wrapping_sub(before);
        if wanted {
            self.kick(queue);
        }
        wanted
    }

    /// The index of the available ring.
    pub fn avail(&self, queue: usize) -> u16 {
        self.rings[queue].avail
    }

    /// The number of chains that the device has returned since the ring was started, modulo 2^16.
    pub fn used_index(&self, queue: usize) -> u16 {
        let used = GuestAddress(self.rings[queue].base + 0x8000 + 2);
        u16::from_le(self.memory.load(used, Ordering::SeqCst).unwrap())
    }

    fn collect(&mut self, queue: usize) {
        let index = self.used_index(queue);
        let ring = &mut self.rings[queue];
        while ring.used != index {
            let at = ring.base + 0x8000 + 4 + u64::from(ring.used % ring.size) * 8;
            let id: u32 = self.memory.read_obj(GuestAddress(at)).unwrap();
            let len: u32 = self.memory.read_obj(GuestAddress(at + 4)).unwrap();
            let head = u32::from_le(id) as u16;
            let (descriptors, writable) = ring
                .under_way
                .remove(&head)
                .expect("a chain was given back that was not under way");
            ring.free.extend(descriptors);
            let mut bytes = Vec::new();
            for (at, len) in writable {
                let start = bytes.len();
                bytes.resize(start + len as usize, 0);
                // Some tests use parts outside of guest memory.
                let _ = self
                    .memory
                    .read_slice(&mut bytes[start..], GuestAddress(at));
            }
            ring.done.insert(
                head,
                Used {
                    len: u32::from_le(len),
                    bytes,
                },
            );
            ring.order.push(head);
            ring.used = ring.used.wrapping_add(1);
        }
        // Ask for an interrupt for the next chain.
        let event = GuestAddress(ring.base + 0x5000 + 4 + u64::from(ring.size) * 2);
        self.memory
            .store(ring.used.to_le(), event, Ordering::SeqCst)
            .unwrap();
    }

    /// Waits for interrupts until `done` returns a value.
    fn wait_until<T>(&mut self, queue: usize, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        loop {
            self.collect(queue);
            if let Some(value) = done(self) {
                return value;
            }
            // Earlier chains have no interrupt of their own.
            if self.used_index(queue) != self.rings[queue].used {
                continue;
            }
            let call = &self.rings[queue].call;
            // SAFETY: the descriptor is the ring's own, and open as long as the ring.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(call.as_raw_fd()) };
            let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
            let ready = poll(&mut fds, PollTimeout::try_from(WATCHDOG_MS).unwrap()).unwrap();
            assert!(ready > 0, "no interrupt on queue {queue}");
            call.read().unwrap();
        }
    }

    /// Waits until the device returns a chain.
    pub fn wait(&mut self, queue: usize, head: u16) -> Used {
        self.wait_until(queue, |guest| {
            let ring = &mut guest.rings[queue];
            ring.order.retain(|&other| other != head);
            ring.done.remove(&head)
        })
    }

    /// Chains in the order in which the device returns them.
    pub fn wait_order(&mut self, queue: usize, count: usize) -> Vec<u16> {
        self.wait_until(queue, |guest| {
            let order = &mut guest.rings[queue].order;
            (order.len() >= count).then(|| order.drain(..count).collect())
        })
    }

    /// Waits until the device has returned this number of chains.
    pub fn wait_used(&mut self, queue: usize, count: u16) {
        // The same head is returned many times here, so the driver's records are not valid.
        let deadline =
            std::time::Instant::now() + std::time::Duration::from_millis(WATCHDOG_MS as u64);
        while self.used_index(queue) != count {
            assert!(
                std::time::Instant::now() < deadline,
                "{}",
                self.used_index(queue)
            );
            std::thread::yield_now();
        }
    }

    /// Keeps only the first `most` bytes of a chain's writable part.
    pub fn trim(&mut self, queue: usize, head: u16, most: u32) {
        if let Some((_, writable)) = self.rings[queue].under_way.get_mut(&head) {
            for (_, len) in writable {
                *len = (*len).min(most);
            }
        }
    }

    /// Makes a descriptor its own successor.
    pub fn loop_descriptor(&mut self, queue: usize, descriptor: u16) {
        let at = self.rings[queue].base + u64::from(descriptor) * 16;
        self.memory
            .write_obj((VRING_DESC_F_NEXT as u16).to_le(), GuestAddress(at + 12))
            .unwrap();
        self.memory
            .write_obj(descriptor.to_le(), GuestAddress(at + 14))
            .unwrap();
    }

    /// Forgets the order of the chains that were returned so far.
    pub fn forget_order(&mut self, queue: usize) {
        self.collect(queue);
        self.rings[queue].order.clear();
    }

    /// The content of a returned chain.
    pub fn take(&mut self, queue: usize, head: u16) -> Used {
        self.rings[queue]
            .done
            .remove(&head)
            .expect("not given back")
    }
}
