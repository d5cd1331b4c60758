// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VMM's requests besides the start of a device: a pause, a reconnection, and late interrupts.

use std::{
    os::fd::{AsRawFd, BorrowedFd},
    path::Path,
    sync::atomic::Ordering,
    time::Duration,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use vhost::{
    VhostBackend,
    vhost_user::{Frontend, VhostUserFrontend, message::VhostUserHeaderFlag},
};

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::{Guest, HEAP, RING_BYTES, Used};

impl Guest {
    /// Whether the back end closes the connection within this time, or at all if there is no time limit. All answers
    /// must have been read.
    pub fn has_hung_up(&self, within: Option<Duration>) -> bool {
        let within = within.map_or(PollTimeout::NONE, |time| time.try_into().unwrap());
        // SAFETY: the descriptor is the front end's, which lives across the call.
        let connection = unsafe { BorrowedFd::borrow_raw(self.frontend.as_raw_fd()) };
        let mut polled = [PollFd::new(connection, PollFlags::POLLIN)];
        poll(&mut polled, within).unwrap() > 0
    }

    /// Sends an invalid message.
    pub fn send_nonsense(&self) {
        // The header of a message without content.
        let nonsense = [0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: the descriptor is the front end's, which lives across the call.
        let connection = unsafe { BorrowedFd::borrow_raw(self.frontend.as_raw_fd()) };
        let sent = nix::unistd::write(connection, &nonsense).unwrap();
        assert_eq!(sent, nonsense.len());
    }

    /// Connects again, as Cloud Hypervisor does when its back end disappears while a driver is in use, and when it
    /// restores a VM from a snapshot: rings start after all available chains, whether or not these were answered.
    pub fn reconnect(&mut self, socket: &Path) {
        self.frontend = Frontend::connect(socket, 3).unwrap();
        self.frontend.set_owner().unwrap();
        self.frontend.get_features().unwrap();
        let protocol = self.vmm.protocol;
        // The vhost crate's front end requires the query; Cloud Hypervisor's does not.
        self.frontend.get_protocol_features().unwrap();
        self.frontend.set_protocol_features(protocol).unwrap();
        self.frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
        self.set_features();
        let infos = self.memory_infos();
        self.frontend.set_mem_table(&infos).unwrap();
        for (queue, ring) in self.rings.iter().enumerate() {
            self.frontend.set_vring_num(queue, ring.size).unwrap();
        }
        for (queue, ring) in self.rings.iter().enumerate() {
            let config = self.ring_config(queue);
            self.frontend.set_vring_addr(queue, &config).unwrap();
            self.frontend.set_vring_base(queue, ring.avail).unwrap();
            self.frontend.set_vring_call(queue, &ring.call).unwrap();
            self.frontend.set_vring_kick(queue, &ring.kick).unwrap();
        }
        self.enable_rings(true);
    }

    /// The same with fresh memory: a VM that is restored from a snapshot.
    pub fn restore(&mut self, socket: &Path, fill: impl FnOnce(&GuestMemoryMmap)) {
        self.memory = self.vmm.memory();
        fill(&self.memory);
        self.reconnect(socket);
    }

    /// Places a new driver's rings and buffers at this address.
    pub fn move_driver(&mut self, to: u64) {
        for (queue, ring) in self.rings.iter_mut().enumerate() {
            ring.base = to + queue as u64 * RING_BYTES;
        }
        self.next_buffer = to + HEAP;
    }

    /// Enables or disables all rings, as Cloud Hypervisor does when its VM continues or pauses.
    pub fn enable_rings(&mut self, enable: bool) {
        for queue in 0..3 {
            self.frontend.set_vring_enable(queue, enable).unwrap();
        }
    }

    /// Stops all rings, as QEMU does when its VM pauses or its guest resets the device. Returns the indices at which to
    /// continue.
    pub fn stop_rings(&mut self) -> [u16; 3] {
        self.enable_rings(false);
        [0, 1, 2].map(|queue| self.stop_ring(queue))
    }

    /// Starts all rings as QEMU does: they are enabled after all of them were set up.
    pub fn start_rings(&mut self, bases: [u16; 3]) {
        self.set_features();
        for (queue, base) in bases.into_iter().enumerate() {
            self.set_call(queue);
            self.set_up_ring(queue, base);
        }
        self.enable_rings(true);
    }

    /// Starts a ring without a descriptor for interrupts.
    pub fn start_silent_ring(&mut self, queue: usize, base: u16) {
        self.set_up_ring(queue, base);
        self.frontend.set_vring_enable(queue, true).unwrap();
    }

    /// Starts a ring with a reported number of entries.
    pub fn start_ring_of(&mut self, queue: usize, entries: u16) {
        let size = std::mem::replace(&mut self.rings[queue].size, entries);
        self.set_up_ring(queue, 0);
        self.frontend.set_vring_enable(queue, true).unwrap();
        self.rings[queue].size = size;
    }

    fn set_up_ring(&mut self, queue: usize, base: u16) {
        let ring = &self.rings[queue];
        let config = self.ring_config(queue);
        self.frontend.set_vring_num(queue, ring.size).unwrap();
        self.frontend.set_vring_base(queue, base).unwrap();
        self.frontend.set_vring_addr(queue, &config).unwrap();
        self.frontend.set_vring_kick(queue, &ring.kick).unwrap();
    }

    /// Sets the descriptor for a ring's interrupts.
    pub fn set_call(&mut self, queue: usize) {
        let ring = &self.rings[queue];
        self.frontend.set_vring_call(queue, &ring.call).unwrap();
    }

    /// Takes the chains that the device has returned so far, without waiting for interrupts.
    pub fn poll(&mut self, queue: usize, head: u16) -> Option<Used> {
        self.collect(queue);
        self.rings[queue].done.remove(&head)
    }

    /// Returns a function that makes this chain available in all entries of a ring, even after the VMM has gone.
    pub fn spinner(&self, queue: usize, head: u16) -> impl Fn() + Send + use<> {
        let ring = &self.rings[queue];
        let (memory, kick) = (self.memory.clone(), ring.kick.try_clone().unwrap());
        let (avail, size) = (ring.base + 0x5000, ring.size);
        for slot in 0..size {
            let at = GuestAddress(avail + 4 + u64::from(slot) * 2);
            memory.write_obj(head.to_le(), at).unwrap();
        }
        let used = GuestAddress(ring.base + 0x8000 + 2);
        move || {
            let index: u16 = memory.load(used, Ordering::SeqCst).unwrap();
            let index = u16::from_le(index).wrapping_add(size);
            memory
                .store(index.to_le(), GuestAddress(avail + 2), Ordering::SeqCst)
                .unwrap();
            kick.write(1).unwrap();
        }
    }
}
